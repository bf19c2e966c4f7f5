"""What a wrong answer took an argument for: the reference with arguments left out or exchanged for others.

"No layers", "heads in place of key-value heads", "sixteen bits whatever is asked": such numbers are the reference's own
with an argument taken as 1, as another argument, or, of a truth value, always as the same. The plainest such story that
gives all numbers is told.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from classroom.questions.core import TOLERANCE, as_float, as_number, equal

FACTORS = (2, 0.5, 4, 0.25, 8, 0.125)  # that are told besides one argument
FEWEST = 4  # inputs: with fewer a coincidence is too likely
_Change = tuple[int, Callable[[tuple[Any, ...]], object], str]  # which argument, what stands for it, what is said


def story(names: Sequence[str], reference: Callable[..., Any], cases: Sequence[tuple[Any, ...]], got: list[Any]) -> str:
    """What the numbers `got` are, in words: those of the reference with arguments taken for something else, or ""."""
    if len(cases) < FEWEST or len({len(case) for case in cases}) > 1 or any(as_number(one) is None for one in got):
        return ""
    changes = list(_changes(names, cases))
    alone = [(one,) for one in changes]
    pairs = [(one, other) for one, other in itertools.combinations(changes, 2) if one[0] != other[0]]
    for tried, factors in ((alone, (1,)), (pairs, (1,)), (alone, FACTORS)):
        for taken in tried:
            numbers = [_with(reference, case, taken) for case in cases]
            factor = next((factor for factor in factors if _are(got, numbers, factor)), 0)
            if factor:
                said = " and ".join(change[2] for change in taken)
                return f"These are the numbers with {said}{_times(factor)}. Check where each argument goes."
    return ""


def _changes(names: Sequence[str], cases: Sequence[tuple[Any, ...]]) -> Iterator[_Change]:
    numbers = [i for i in range(len(cases[0])) if all(as_number(case[i]) is not None for case in cases)]
    for i in range(len(cases[0])):
        if all(isinstance(case[i], bool) for case in cases):
            yield i, lambda _: True, f"`{names[i]}` always True"
            yield i, lambda _: False, f"`{names[i]}` always False"
    yield from ((i, lambda _: 1, f"`{names[i]}` left out") for i in numbers)
    for i, j in itertools.permutations(numbers, 2):
        yield i, itemgetter(j), f"`{names[j]}` in place of `{names[i]}`"


def _with(reference: Callable[..., Any], case: tuple[Any, ...], changes: Sequence[_Change]) -> object:
    arguments = list(case)
    for i, stands, _ in changes:
        arguments[i] = stands(case)
    try:
        return reference(*arguments)
    except (ArithmeticError, ValueError, IndexError):  # such arguments mean nothing
        return None


def _are(got: list[Any], numbers: list[Any], factor: float) -> bool:
    """Whether all of `got` are so many times these numbers."""
    if any(as_number(one) is None for one in numbers):
        return False
    if factor == 1:
        return equal(got, numbers)
    return any(numbers) and all(
        math.isclose(as_float(a), factor * as_float(b), rel_tol=TOLERANCE) for a, b in zip(got, numbers, strict=True)
    )


def _times(factor: float) -> str:
    if factor == 1:
        return ""
    return f", {factor:g} times too large" if factor > 1 else f", {1 / factor:g} times too small"
