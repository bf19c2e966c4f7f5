"""The finding of one claim, for the tests of claims."""

from collections.abc import Iterable

import pytest

from classroom.claims import OPEN, Finding
from lessons.claims import judge

SEEN: dict[int, set[str]] = {}  # by claim, the verdicts that the tests of this process brought about


def finding(number: int) -> Finding:
    """What the judge of claim `number` finds."""
    found = judge([number]).rows[0][1]
    SEEN.setdefault(number, set()).add(found.verdict)
    return found


def assert_none_was_certain(numbers: Iterable[int]) -> None:
    """Whether every verdict that a number decides became another with another number, in the tests before this one.

    Claims that stay open, or are cited, are decided by no number.
    """
    numbers = list(numbers)
    if not set(numbers) <= SEEN.keys():
        pytest.skip("needs all tests of its file to have run before it")
    found = {number: judge([number]).rows[0][1] for number in numbers}
    certain = [n for n in numbers if len(SEEN[n]) < 2 and not found[n].cited and found[n].verdict != OPEN]
    assert not certain, f"claim {certain[0]}: no test brings about another verdict; if no number could, it is open"
