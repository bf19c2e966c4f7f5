"""Which parts of Linux a kernel in a sandbox cannot even ask for, whatever its rights: a seccomp filter.

Namespaces, users and mounts decide what a process may do; this takes away calls that no notebook needs and that have
been ways into Linux itself: tracing other processes, keyrings, BPF, io_uring, performance counters, mounts, modules.
They fail as forbidden (EPERM). Numbers are those of Linux's `asm/unistd_64.h` (x86_64) and `asm-generic/unistd.h`
(aarch64); the program is classic BPF, see Linux's "Seccomp BPF". Must never import anything of ours.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

# Name -> number on x86_64, on aarch64.
REFUSED = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112),
    "delete_module": (176, 106), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "setns": (308, 268), "settimeofday": (164, 170),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH of <linux/audit.h>
X32 = 0x40000000  # x86_64 programs of 32 bits: the same calls by other numbers
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
KILL, FORBID, ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
NUMBER, ARCHITECTURE = 0, 4  # offsets in `struct seccomp_data`
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def program(machine: str) -> bytes:
    """The filter for a machine of ARCHITECTURES, as instructions (code, jump if true, jump if false, value)."""
    column, architecture = ARCHITECTURES[machine]
    numbers = sorted(pair[column] for pair in REFUSED.values())
    lines = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
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
