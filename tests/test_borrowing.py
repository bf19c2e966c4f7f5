"""An answer that calls the course's own library is none, whatever it computes and however it got hold of it."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from right_answers import CHECKS, GRADED, RIGHT

from course_utils.checks import planning
from course_utils.checks.core import Check, Outcome, attempt
from course_utils.grading.graded import BORROWED, Graded, canonical
from course_utils.grading.plain import borrows
from course_utils.parallel import ring_bytes

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = [name for name, graded in GRADED.items() if isinstance(graded, Graded)]
# The rooms that compute something, by themselves and quickly.
ROOMS = "allocator capacity crossover hardware memory offload parallel plan precision recompute.cuts speed units"


def computing() -> Iterator[Callable[..., Any]]:
    """Every function of these rooms, and every class with its methods."""
    for name in list(ROOMS.split()):
        importlib.import_module(f"course_utils.{name}")
    rooms = tuple(f"course_utils.{name}" for name in ROOMS.split())
    found: dict[int, Callable[..., Any]] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(rooms):
            continue
        for value in vars(module).values():
            if callable(value) and str(getattr(value, "__module__", "")).startswith(rooms):
                parts = vars(value).values() if inspect.isclass(value) else ()
                found |= {id(one): one for one in (value, *parts) if callable(one)}
    yield from found.values()


def fits(function: Callable[..., Any], case: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*case)
    except (TypeError, ValueError):
        return False
    return True


def test_nothing_of_the_library_that_gives_right_results_is_an_answer() -> None:
    alike = []
    functions = list(computing())
    assert len(functions) > 300
    for question in FUNCTIONS:
        graded, reference = GRADED[question], CHECKS[question].reference
        cases = graded.draw(random.Random("borrowed"))
        truth = [canonical(reference(*copy.deepcopy(case))) for case in cases]
        for function in functions:
            if not fits(function, cases[0]) or function in graded.given:
                continue
            if all(
                canonical(attempt("f", function, case).value) == right for case, right in zip(cases, truth, strict=True)
            ):
                alike.append(question)
                assert all(f": {BORROWED}: " in line for line in graded.lines(function)), (question, function)
                assert CHECKS[question](function).outcome is Outcome.WRONG
    assert "ring_bytes" in alike  # so there is something to find


def walked(gradient_bytes: int, cards: int) -> Any:
    return sys.modules["course_utils.parallel"].ring_bytes(gradient_bytes, cards)


WAYS = {
    "itself": ring_bytes,
    "called": lambda n, cards: ring_bytes(n, cards),
    "a part of it": functools.partial(ring_bytes),
    "by its name": lambda n, cards: getattr(importlib.import_module("course_utils.parallel"), "ring" + "_bytes")(
        n, cards
    ),
    "from the modules": walked,
    "by a sort": lambda n, cards: next(map(ring_bytes, [n], [cards])),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_it_is_noted(way: str) -> None:
    assert all(f": {BORROWED}: course_utils.parallel" in line for line in GRADED["ring_bytes"].lines(WAYS[way]))
    feedback = CHECKS["ring_bytes"](WAYS[way])
    assert (feedback.outcome, "the course's own" in feedback.message) == (Outcome.WRONG, True)


def test_what_the_exercise_gives_may_be_used() -> None:
    source = (ROOT / "source" / "12_capstone" / "exercise.py").read_text()
    (names,) = re.findall(r"^from course_utils\.plan import (.+)$", source, re.MULTILINE)
    assert sorted(names.split(", ")) == sorted(one.__name__ for one in planning.GIVEN)
    capstone = [name for name in FUNCTIONS if GRADED[name].given]
    assert len(capstone) == 4
    for name in capstone:
        assert CHECKS[name].given == planning.GIVEN

        def uses_given(*arguments: Any, right: Callable[..., Any] = RIGHT[name][0]) -> Any:
            planning.Plan(64, 32)
            return right(*arguments)

        uses_given.__signature__ = inspect.signature(RIGHT[name][0])  # type: ignore[attr-defined]
        assert GRADED[name].lines(uses_given) == GRADED[name].lines(RIGHT[name][0])


def test_a_check_has_an_answer_of_its_own_helpers() -> None:
    """Calls within the library, such as a check's own, are not an answer's."""
    check = Check("half", lambda n: n / 2, [(4,), (6,)], [], "good")
    assert check(lambda n: n / 2).outcome is Outcome.CORRECT


SETUP = ["from course_utils.checks import saved\nfrom course_utils.plan import Plan, table\n"]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("from course_utils.parallel import ring_bytes", "course_utils.parallel.ring_bytes"),
        ("import course_utils.parallel as p", "course_utils.parallel"),
        ("import sys\nsys.modules['course_utils.parallel.ring']", "course_utils.parallel.ring"),
        ("__import__('course_utils.plan').plan.pareto_front", "course_utils.plan"),
        ("from course_utils.plan import Plan, pareto_front", "course_utils.plan.pareto_front"),
        ("from course_utils.plan import Plan\nfrom course_utils.units import GIB, format_bytes", ""),
        ("from course_utils.checks import saved\n'''See course_utils.plan for more.'''", ""),
        ("x = 1", ""),
    ],
)
def test_what_an_answer_names_of_the_library_is_seen(source: str, named: str) -> None:
    assert borrows(source, SETUP) == named
