"""Which parts of Linux a kernel in a sandbox cannot even ask for, whatever its rights: a seccomp filter.

Namespaces, users and mounts decide what a process may do; this takes away calls that no notebook needs and that have
been ways into Linux itself: tracing other processes, keyrings, BPF, io_uring, performance counters, mounts, modules.
So are those by which memory is taken that no process seems to hold (memfd, System V, anonymous shared memory), and
those that tell or lock what kernels of others have in common: the page cache, and files that all may read.
They fail as forbidden (EPERM). Numbers are those of Linux's `asm/unistd_64.h` (x86_64) and `asm-generic/unistd.h`
(aarch64); the program is classic BPF, see Linux's "Seccomp BPF".
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass

# Name -> number on x86_64, on aarch64.
REFUSED = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "cachestat": (451, 451), "clock_settime": (227, 112),
    "delete_module": (176, 106), "fadvise64": (221, 223), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "flock": (73, 32), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "init_module": (175, 105), "inotify_add_watch": (254, 27), "io_setup": (206, 0), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "mincore": (27, 232), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "preadv2": (327, 286), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "pwritev2": (328, 287), "quotactl": (179, 60), "readahead": (187, 213), "reboot": (169, 142),
    "request_key": (249, 218), "sched_setaffinity": (203, 122), "semget": (64, 190), "setns": (308, 268),
    "settimeofday": (164, 170), "shmget": (29, 194), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A call refused by one argument: where `argument & mask` is among `values`, or where it is not."""

    numbers: tuple[int, int]  # on x86_64, on aarch64
    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    refused_if_among: bool = True


CONDITIONS = (
    # socket: AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, by which ZeroMQ looks at the interfaces that are not there
    Condition((41, 198), 0, (1, 2, 10, 16), refused_if_among=False),
    Condition((9, 222), 3, (0x21,), mask=0x21),  # mmap: MAP_SHARED with MAP_ANONYMOUS
    Condition((72, 25), 1, (5, 6, 7, 36, 37, 38, 1024, 1026)),  # fcntl: locks, leases, notices of files
)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH of <linux/audit.h>
X32 = 0x40000000  # x86_64 programs of 32 bits: the same calls by other numbers
# BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_ALU|AND|K, BPF_RET|K
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
KILL, FORBID, ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`; arguments have 8 bytes, low ones first
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def program(machine: str) -> bytes:
    """The filter for a machine of ARCHITECTURES, as instructions (code, jump if true, jump if false, value)."""
    column, architecture = ARCHITECTURES[machine]
    numbers = sorted(pair[column] for pair in REFUSED.values())
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    for one in CONDITIONS:
        among, other = (FORBID, ALLOW) if one.refused_if_among else (ALLOW, FORBID)
        last = len(one.values)
        lines.append((EQUAL, 0, last + 4, one.numbers[column]))
        lines += [(LOAD, 0, 0, ARGUMENTS + 8 * one.argument), (AND, 0, 0, one.mask)]
        lines += [(EQUAL, last - i, 0, value) for i, value in enumerate(one.values)]
        lines += [(RETURN, 0, 0, other), (RETURN, 0, 0, among)]
    lines.append((AT_LEAST, len(numbers) + 1, 0, X32))
    lines += [(EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FORBID)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def refuse() -> bool:
    """Refuse these calls to this process and all it starts, for good; it must have given up new privileges.

    Returns False where the machine or its Linux has no such filter. Raises OSError if Linux takes it not.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return False
    code = program(machine)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    asked = Program(len(code) // 8, code)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(asked), 0, 0) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):  # Linux was built without
        return False
    raise OSError(ctypes.get_errno(), "seccomp filter")
