"""How many bytes a process has taken from its C library: torch's and NumPy's memory, texts and files kept in memory.

A recorder sees what goes through torch's dispatcher; this sees whatever else is kept. It is known for GNU's library,
where strangers are graded; elsewhere nothing is, and a learner's own check does without.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
TRIED = 2**20


class _Mallinfo(ctypes.Structure):
    """The C library's own count: `hblkhd` bytes in blocks of their own, `uordblks` in others (`man mallinfo2`)."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


@functools.cache
def _count() -> Callable[[], int] | None:
    """What counts, where there is a count and torch's memory is in it."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, TypeError, AttributeError):  # Windows, macOS, an older or another library
        return None
    function.restype = _Mallinfo

    def count() -> int:
        found = function()
        return int(found.uordblks + found.hblkhd)

    before = count()
    tried = torch.empty(TRIED, dtype=torch.uint8)
    return count if count() - before >= tried.nbytes else None


def taken() -> int:
    """Bytes that the process has taken and not given back; 0 where that is not known."""
    count = _count()
    return 0 if count is None else count()
