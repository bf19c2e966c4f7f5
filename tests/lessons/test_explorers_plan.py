"""The explorer of lesson 12 at every setting: words agree with the reading, the picture is well laid out."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from awkward_nets import encoder_block
from drawn import assert_well_laid, one_move
from test_plan import BATCH, GEN3, NORMED, TITAN_X, problem

from course_utils.networks import Network
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.capstone.explorer import SLIGHT, PlanExplorer, plan_explorer, sentences
from lessons.capstone.plan import Plan, Problem, fastest


@pytest.fixture(scope="module")
def shown() -> PlanExplorer:
    return plan_explorer(problem().changed(device=replace(TITAN_X, memory_gb=0.526)))


def test_every_setting_says_what_is_read(shown: PlanExplorer) -> None:
    explorer, seen = shown, set()
    best = fastest(explorer._all)
    assert best is not None
    settings = [[value for _, value in control.options] if isinstance(control.options[0], tuple) else control.options
                for control in (explorer.micro, explorer.precision, explorer.offload, explorer.segments)]  # fmt: skip
    for values in itertools.product(*settings):
        with one_move(explorer) as moved:
            explorer.micro.value, explorer.precision.value, explorer.offload.value, explorer.segments.value = values
        view, found = moved(), explorer._problem.evaluate(explorer.plan)
        seen.add(explorer.plan)
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|[^×] -\d", words), words
        assert f": {format_bytes(found.tensor_bytes)} at the peak, in {found.peak}. " in words
        assert found.verdict.sentence in words
        assert ("It does not fit" in words) == (not found.feasible)
        assert ("for copies" in words) == (found.waiting_seconds > SLIGHT * found.seconds)
        assert ("tolerance of 16 bits;" in words or "tolerance of 16 bits." in words) >= (
            found.plan.precision == "float16"
        )
        assert ("No combination whose tensors fit is faster" in words) == (
            found.feasible and found.seconds <= best.seconds
        )
        assert (f"whose tensors fit: {best.plan} ({format_seconds(best.seconds)}" in words) == (
            not (found.feasible and found.seconds <= best.seconds)
        )
        assert view.number == found.needs_bytes
    assert seen == {one.plan for one in explorer._all}


def test_a_move_judges_nothing_anew(shown: PlanExplorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Problem, "schedule", lambda *_: pytest.fail("judged again"))
    for control in (shown.micro, shown.precision, shown.offload, shown.segments):
        control.index = 1 - (control.index or 0) if control.index in (0, 1) else 0
        assert "alert" not in shown.words.value


def test_batch_norm_leaves_no_micro_batches_and_a_tiny_card_nothing() -> None:
    normed = Problem(NORMED, BATCH, replace(TITAN_X, memory_gb=0.501), GEN3)
    explorer = plan_explorer(normed)
    assert [value for _, value in explorer.micro.options] == [BATCH]
    least = min(explorer._all, key=lambda one: one.needs_bytes)
    assert f"No combination fits; the least is {format_bytes(least.needs_bytes)}, with {least.plan}." in " ".join(
        explorer.view().sentences
    )
    assert_well_laid(explorer.view().picture)


def test_it_says_what_the_last_move_did_and_saves_a_still(shown: PlanExplorer) -> None:
    shown.micro.value, shown.precision.value, shown.offload.value, shown.segments.value = BATCH, "float32", "none", 1
    shown.micro.value = 12
    assert "Last move, batch 24 at once to 2 × 12: what it needs of the card falls by" in shown.words.value
    bundle = shown._repr_mimebundle_()
    found = shown._problem.evaluate(Plan(BATCH, 12))
    assert bundle["text/plain"] == "\n".join(sentences(shown._all, found))
    assert bundle["image/png"]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (Plan(BATCH, 2), "the control 'batch' does not offer 2: it has 24 at once, 2 × 12"),
        (Plan(BATCH, segments=3), "the control 'recompute' does not offer 3: it has nothing, 4 even segments"),
        (Plan(BATCH, algorithm="m"), "the controls cannot show slow convolutions: leave window, algorithm and changes"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(start: Plan, message: str) -> None:
    with pytest.raises(CourseError, match=re.escape(message)):
        plan_explorer(problem(), start)


def test_a_network_that_is_no_chain_is_refused_in_one_line() -> None:
    with pytest.raises(CourseError, match=r"Encoder is no nn\.Sequential"):
        plan_explorer(Problem(Network("encoder", encoder_block, (16, 64), 10), 8, TITAN_X, GEN3))
