"""Bytes as people write them, and errors that print as one line. Imports nothing of ours, and no torch.

Memory is given in binary units (1 GiB = 2**30 bytes), rates in decimal ones (1 GB/s = 10**9 bytes a second); the
published figures of 2014 to 2017 are decimal and are always written with their unit.
"""

KIB = 2**10
MIB = 2**20
GIB = 2**30
GB = 10**9


class CourseError(ValueError):
    """An error whose message says, in one line, what is wrong and what to do.

    In a notebook it prints as that line alone: no traceback reaches a learner.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def format_bytes(count: float, digits: int = 2) -> str:
    """Write a number of bytes in the largest binary unit that keeps it at 1 or more.

    >>> format_bytes(12_845_056)
    '12.25 MiB'
    >>> format_bytes(-5)
    '-5 B'
    """
    size, names = float(count), ["B", "KiB", "MiB", "GiB"]
    places = 0  # bytes are whole
    # Compare as it will be printed, so that 1023.999 MiB is written as 1.00 GiB.
    while len(names) > 1 and round(abs(size), places) >= 1024:
        size, names, places = size / 1024, names[1:], digits
    return f"{size:,.{places}f} {names[0]}"


def in_gb(count: float) -> float:
    """Decimal gigabytes, the unit of the papers of 2014 to 2017."""
    return count / GB
