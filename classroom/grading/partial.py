"""Points for a part of a question: for the share of its inputs that an answer gets right, less what chance gives.

Of n inputs an answer is right for r; whoever returns the commonest right result every time is right for c. If r is
more than half of n, the answer earns the share (r - c) / (n - c) of the points, rounded down to half points: the
correction for guessing of classical test theory. So an answer that is always the same earns nothing, and one that is
wrong for an input less than all. Only functions are tried on inputs: where a question judges what a network is like it
is right or wrong as a whole, since a network that nobody touched has most of what is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from classroom.questions.graded import NOT_ATTEMPTED


class Counts(NamedTuple):
    """Inputs an answer is right for, of how many, and for how many the commonest right result is right."""

    right: int = 0
    inputs: int = 0
    by_chance: int = 0


NO_COUNTS = Counts()


def count(question: str, printed: str, expected: str) -> Counts:
    """The counts of what a graded cell printed, beside what the reference did.

    All are 0 for a question that is not tried on inputs, and for an answer that did not say something of each of them.
    """
    wanted, shown = expected.splitlines(), printed.splitlines()
    calls = [re.match(rf"({re.escape(question)}\(.*?\)) = (.*)", line) for line in wanted]
    found = [call for call in calls if call is not None]
    if not wanted or len(found) < len(wanted) or len(shown) != len(wanted):
        return NO_COUNTS
    told = all(line.startswith((f"{call[1]} = ", f"{call[1]}: ")) for line, call in zip(shown, found, strict=True))
    if not told or any(line.endswith(f": {NOT_ATTEMPTED}") for line in shown):
        return NO_COUNTS
    right = sum(one == other for one, other in zip(shown, wanted, strict=True))
    return Counts(right, len(wanted), max(Counter(call[2] for call in found).values()))


def partial_points(out_of: int, counts: Counts) -> float:
    """The points of an answer that is wrong for some inputs: whole or half ones, less than all."""
    right, inputs, by_chance = counts
    if right >= inputs or right <= by_chance or 2 * right <= inputs:
        return 0
    return whole((2 * out_of * (right - by_chance)) // (inputs - by_chance) / 2)


def whole(points: float) -> float:
    """Points as they are written: 2 in place of 2.0."""
    return int(points) if points == int(points) else points
