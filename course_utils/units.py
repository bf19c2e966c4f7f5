"""Bytes and seconds as people write them, and errors that print as one line. Imports nothing of ours, and no torch.

Memory is given in binary units (1 GiB = 2**30 bytes), rates in decimal ones (1 GB/s = 10**9 bytes a second); the
published figures of 2014 to 2017 are decimal and are always written with their unit.
"""

import re
from collections.abc import Iterable
from numbers import Integral

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


def require_one_of(what: str, value: object, known: Iterable[object], error: type[CourseError] = CourseError) -> None:
    """Raises the error, with all choices, where a value is none of those known."""
    if value not in (known := list(known)):
        raise error(f"unknown {what} {value!r}: choose one of {', '.join(map(str, known))}")


def require_whole(what: str, value: object, least: int = 1, error: type[CourseError] = CourseError) -> None:
    """Raises the error where a value is no whole number, or below the least."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise error(f"{what} must be a whole number of {least} or more, got {value!r}")


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


def as_written(text: str) -> str:
    """A sentence or a title in the course's one way: a space before per cent, and a minus sign that is one.

    >>> as_written("GPT-2: -33% of 1e-5")
    'GPT-2: −33 % of 1e-5'
    """
    return re.sub(r"(?<![\w.)-])-(?=\d)", "−", re.sub(r"(?<=\d)%", " %", text))


def format_share(share: float) -> str:
    """A share in per cent, with one decimal.

    >>> format_share(0.125)
    '12.5 %'
    """
    return f"{100 * share:.1f} %"


def in_gb(count: float) -> float:
    """Decimal gigabytes, the unit of the papers of 2014 to 2017."""
    return count / GB


def format_seconds(seconds: float, digits: int = 3) -> str:
    """Write a time in the largest of s, ms, µs, ns that keeps it at 1 or more, to so many significant digits.

    >>> format_seconds(0.0726)
    '72.6 ms'
    >>> format_seconds(1200)
    '1,200 s'
    """
    size = float(seconds)
    for name in ("s", "ms", "µs", "ns"):
        if abs(float(f"{size:.{digits}g}")) >= 1 or name == "ns" or not size:
            break
        size *= 1000
    rounded = float(f"{size:.{digits}g}")
    return f"{rounded:,.0f} {name}" if abs(rounded) >= 10 ** (digits - 1) else f"{size:.{digits}g} {name}"
