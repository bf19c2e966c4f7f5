"""An answer that calls the course's own library is none, whatever it computes and however it got hold of it."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import random
import re
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from right_answers import CHECKS, GRADED, RIGHT

from classroom.grading.plain import borrows
from classroom.questions.borrowing import calls_noted
from classroom.questions.core import Outcome, equal
from classroom.questions.functions import Check
from classroom.questions.graded import BORROWED, Graded
from course_utils.techniques.offload.simulation import run
from course_utils.techniques.offload.work import Work
from lessons.capstone import judge as planning
from lessons.half_precision import precision
from lessons.shared import parallel
from lessons.shared.parallel import ring_bytes

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = [name for name, graded in GRADED.items() if isinstance(graded, Graded)]


def streams_simulated(forward, backward, copies):
    """The course's own simulation, of a chain with a byte a second."""
    layers = len(forward)
    kernels = 2 * layers
    index = np.arange(layers)
    uses = sorted([(i, i, 0) for i in range(layers)] + [(kernels - 1 - i, i, 0) for i in range(layers)])
    seconds = np.array([*forward, *reversed(backward)], dtype=float)
    size = (np.array(copies) * 1000).astype(np.int64)
    work = Work(
        name="chain", batch=1, ops=("convolution",) * kernels, layers=("layer",) * kernels,
        phase=np.array([0] * layers + [1] * layers), begins_layer=np.ones(kernels, dtype=bool),
        convolution=np.ones(kernels, dtype=bool), fast=seconds, slow=seconds,
        workspace=np.zeros(kernels, dtype=np.int64), size=size,
        role=np.full(layers, 4), owners=("map",) * layers, birth=np.zeros(layers, dtype=np.int64),
        death=np.full(layers, kernels), allowed=index >= 0, uses=np.array(uses),
    )  # fmt: skip
    return run(work, np.ones(layers, dtype=bool), np.ones(kernels, dtype=bool), 1000.0).total_seconds


# Right results, each by the course's own library.
LOOK_ALIKES = {
    "smallest_update": lambda w, f, low: precision.spacing(w, "float16" if f == 10 else "bfloat16") / 2,
    "next_scales": lambda flags, scale, interval: precision.scales(flags, scale, interval=interval),
    "ring_bytes": lambda n, p: parallel.ring_bytes(4 * n, p),
    "card_bytes": lambda n, p, s: parallel.state_bytes(2 * n, 2 * n, 12 * n, p, s),
    "two_streams": streams_simulated,
}


@pytest.mark.parametrize("question", LOOK_ALIKES)
def test_right_results_of_the_library_are_no_answer(question: str) -> None:
    graded, answer = GRADED[question], LOOK_ALIKES[question]
    cases = graded.draw(random.Random("borrowed"))
    assert equal([answer(*case) for case in cases], [CHECKS[question].reference(*case) for case in cases])
    assert all(re.search(rf": {BORROWED}: (course_utils|lessons)\.", line) for line in graded.lines(answer))
    feedback = CHECKS[question](answer)
    assert (feedback.outcome, "the course's own" in feedback.message) == (Outcome.WRONG, True)


@pytest.mark.parametrize("question", FUNCTIONS)
def test_no_other_right_answer_is_taken_for_one(question: str) -> None:
    for answer in RIGHT[question]:
        assert CHECKS[question](answer).outcome is Outcome.CORRECT
        assert not any(BORROWED in line for line in GRADED[question].lines(answer))


def walked(gradient_bytes: int, cards: int) -> Any:
    return sys.modules["lessons.shared.parallel"].ring_bytes(gradient_bytes, cards)


@pytest.mark.parametrize("question", FUNCTIONS)
def test_what_a_check_knows_is_no_answer_either(question: str) -> None:
    """Where a learner is trusted the checks are there, with their references."""
    reference = CHECKS[question].reference
    feedback = CHECKS[question](reference)
    assert (feedback.outcome, "the course's own" in feedback.message) == (Outcome.WRONG, True)
    assert all(f": {BORROWED}: lessons." in line for line in GRADED[question].lines(reference))


WAYS = {
    "itself": ring_bytes,
    "called": lambda n, cards: ring_bytes(n, cards),
    "a part of it": functools.partial(ring_bytes),
    "by its name": lambda n, cards: getattr(
        importlib.import_module("lessons.shared.parallel"), "ring" + "_bytes"
    )(n, cards),
    "from the modules": walked,
    "by a sort": lambda n, cards: next(map(ring_bytes, [n], [cards])),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_it_is_noted(way: str) -> None:
    lines = GRADED["ring_bytes"].lines(WAYS[way])
    assert all(f": {BORROWED}: lessons.shared.parallel" in line for line in lines)
    feedback = CHECKS["ring_bytes"](WAYS[way])
    assert (feedback.outcome, "the course's own" in feedback.message) == (Outcome.WRONG, True)


def test_what_the_exercise_gives_may_be_used() -> None:
    source = (ROOT / "lessons" / "capstone" / "exercise.py").read_text()
    (names,) = re.findall(r"^from lessons\.capstone\.plan import (.+)$", source, re.MULTILINE)
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


SETUP = ["from lessons.offload import judge as saved\nfrom lessons.capstone.plan import Plan, table\n"]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("from lessons.shared.parallel import ring_bytes", "lessons.shared.parallel.ring_bytes"),
        ("import lessons.shared.parallel as p", "lessons.shared.parallel"),
        ("import sys\nsys.modules['lessons.shared.parallel.ring']", "lessons.shared.parallel.ring"),
        ("__import__('lessons.capstone.plan').plan.pareto_front", "lessons.capstone.plan"),
        ("from lessons.capstone.plan import Plan, pareto_front", "lessons.capstone.plan.pareto_front"),
        ("from lessons.capstone.plan import Plan\nfrom course_utils.units import GIB, format_bytes", ""),
        ("from lessons.offload import judge as saved\n'''See lessons.capstone.plan for more.'''", ""),
        ("x = 1", ""),
    ],
)
def test_what_an_answer_names_of_the_library_is_seen(source: str, named: str) -> None:
    assert borrows(source, SETUP) == named


def test_what_dies_of_the_library_while_an_answer_runs_is_no_call_of_the_answer() -> None:
    class Loop:
        pass

    def leave_dead() -> None:
        one = Loop()
        one.itself = one  # so that only the collector finds it
        weakref.finalize(one, parallel.ring_bytes, 4, 2).atexit = False

    leave_dead()
    with calls_noted() as found:
        gc.collect()
        assert not found
        ring_bytes(4, 2)
    assert found


def test_a_call_that_an_answer_leaves_to_the_collector_is_its_own() -> None:
    def answer(n: int, cards: int) -> float:
        found = []

        def waits():
            try:
                yield
            finally:
                found.append(ring_bytes(n, cards))

        waiting = waits()
        next(waiting)
        loop = [waiting]
        loop.append(loop)
        del waiting, loop
        while not found:
            _ = [[] for _ in range(1000)]  # until the collector begins by itself
        return found[0]

    assert all(f": {BORROWED}: lessons.shared.parallel" in line for line in GRADED["ring_bytes"].lines(answer))
