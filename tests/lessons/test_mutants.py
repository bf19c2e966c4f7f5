"""Wrong answers that nobody wrote: no mutant of a solution passes a check, or earns the points, and is wrong."""

from __future__ import annotations

import contextlib
import copy
import io
import random
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import pytest
from amount import THOROUGH
from mutants import mutants
from right_answers import CHECKS, GRADED

from classroom import ROOT
from classroom.grading.graft import kind_of
from classroom.notebooks import read_notebook
from classroom.questions.core import equal
from classroom.questions.functions import Check
from course_utils.units import GIB
from lessons.shared.keep_thoughts import as_function

MOST = 500 if THOROUGH else 25
SEEDS = 40 if THOROUGH else 8
MEMORY = 8 * GIB  # of this process: a mutant that repeats a list a billion times raises, as it would in a kernel
LONGEST = 10**6  # entries of a result; none of a right answer has as many
ENDLESS = 3  # cases on which a mutant may be stopped by `as_function`; after them no other is tried
SLOW = {"longest", "pool_keeps"}  # a mutant that loops or trains, each of them: in `make test-thorough` alone
# Mutants that are wrong by less than a result can show, or that only inputs tell apart that no question gives.
HARMLESS: dict[str, str] = {
    "card_bytes": "bytes of a share that is no whole number, cut to a whole one",
    "copy_over_kernel": "a rate of 1,000,000,001 in place of a billion",
}


def solutions() -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each question whose answer is a function of numbers: the solution's text, and what its notebook gives."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        given: dict[str, Any] = {}
        for cell in read_notebook(path).cells:
            kind, question = kind_of(cell)
            if cell.cell_type == "code" and not kind:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(cell.source, given)
            elif kind == "answer" and isinstance(CHECKS[question], Check):
                found[question] = cell.source, given
    return found


SOLUTIONS = solutions()


def results(function: Callable[..., Any], cases: Sequence[Sequence[Any]]) -> list[tuple[str, Any]]:
    def one(case: Sequence[Any]) -> tuple[str, Any]:
        try:
            result = function(*copy.deepcopy(case))
            long = isinstance(result, Sized) and len(result) > LONGEST
            return ("raised", "too long") if long else ("returned", result)
        except Exception as error:  # noqa: BLE001 - whatever a mutant raises, it is no result
            return "raised", type(error).__name__

    return [one(case) for case in cases]


class Marker:
    """What a check, or a graded draw, says of a mutant. It asks no further than to the first result that is wrong."""

    def __init__(self, mutant: Callable[..., Any]) -> None:
        self.mutant, self.endless = mutant, 0

    def calls_right(self, cases: Sequence[Sequence[Any]], truth: list[tuple[str, Any]]) -> bool:
        for case, right in zip(cases, truth, strict=True):
            if self.endless == ENDLESS:
                return False
            ((kind, found),) = results(self.mutant, [case])
            self.endless += (kind, found) == ("raised", "TimeoutError")
            if kind != "returned" or not equal(found, right[1]):
                return False
        return True


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("question", SOLUTIONS)
def test_no_mutant_that_is_wrong_is_called_right(question: str) -> None:
    if question in SLOW and not THOROUGH:
        pytest.skip("its mutants take long: make test-thorough")
    source, given = SOLUTIONS[question]
    right = as_function(source, question, given)
    cases = CHECKS[question].cases
    draws = [GRADED[question].draw(random.Random(f"{seed} {question}")) for seed in range(SEEDS)]
    truth, truths = results(right, cases), [results(right, draw) for draw in draws]
    passed, earned = [], []
    for text in mutants(source, MOST):
        marker = Marker(as_function(text, question, given))
        called_right = marker.calls_right(cases, truth)
        earns = [marker.calls_right(draw, known) for draw, known in zip(draws, truths, strict=True)]
        if called_right:
            if not all(earns):
                passed.append(text)
        elif sum(earns) > SEEDS // 4:
            earned.append(text)
    if question not in HARMLESS:
        assert not passed, f"the check calls right what is wrong for other inputs: add a case\n{passed[0]}"
        assert not earned, f"the points are earned by what the check calls wrong: draw such inputs\n{earned[0]}"
