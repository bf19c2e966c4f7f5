"""Which parts of Linux a kernel in a sandbox cannot even ask for, whatever its rights: a seccomp filter.

Namespaces, users and mounts decide what a process may do; this takes away calls that no notebook needs and that have
been ways into Linux itself: tracing other processes, keyrings, BPF, io_uring, performance counters, mounts, modules.
So are those by which memory is taken that no process seems to hold (memfd, System V, anonymous shared memory), and
those that tell or lock what kernels of others have in common: the page cache, and files that all may read.
They fail as forbidden (EPERM). Numbers are those of Linux's `asm/unistd_64.h` (x86_64) and `asm-generic/unistd.h`
(aarch64); the program is classic BPF, see Linux's "Seccomp BPF".
"""

import csv
import ctypes
import errno
import os
import struct
from dataclasses import dataclass
from pathlib import Path

# Name -> number on x86_64, on aarch64.
with Path(__file__).with_name("syscalls.csv").open(encoding="utf-8", newline="") as _table:
    REFUSED = {row["call"]: (int(row["x86_64"]), int(row["aarch64"])) for row in csv.DictReader(_table)}


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


def refuse() -> None:
    """Refuse these calls to this process and all it starts, for good; it must have given up new privileges.

    Does nothing where the machine or its Linux has no such filter. Raises OSError if Linux takes it not.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return
    code = program(machine)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    asked = Program(len(code) // 8, code)
    refused = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(asked), 0, 0) != 0
    if refused and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):  # Linux was built without
        raise OSError(ctypes.get_errno(), "seccomp filter")
