"""This machine against a card: what is measured, what is charged to both, and where they meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import assert_well_laid, paths
from hypothesis import given
from hypothesis import strategies as st

from course_utils.machine.hardware import LAUNCH_SECONDS, Link, device, link
from course_utils.machine.speed import predict_step
from course_utils.units import CourseError
from lessons.why_gpus import contest as module
from lessons.why_gpus.charges import COLOURS, charges
from lessons.why_gpus.contest import MOST, Contest
from lessons.why_gpus.crossover import batch_times, crossover
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.machine import XEONS
from lessons.why_gpus.queued import queued
from lessons.why_gpus.timed import Best

CARD, PCIE = device("RTX 4090"), link("PCIe 4.0 x16")
STEPS = hidden_layer_step(64, 100, "cpu"), hidden_layer_step(64, 100)


def made(measured: dict[int, float], idle: float = 2e-4) -> Contest:
    return Contest(measured, idle, XEONS, CARD, *STEPS)


@given(st.floats(0.0, 1e-3), st.integers(1, 10**6))
def test_python_is_charged_to_the_card_as_well(python: float, batch: int) -> None:
    bare = float(predict_step(STEPS[0].at(2), XEONS).launch.sum())
    contest = made({1: 1e-3, 2: 1e-3}, bare + python)
    assert contest.python_seconds == pytest.approx(python, abs=1e-12)
    issuing = contest.queue(batch).host_seconds
    assert issuing == pytest.approx(python + contest.launches * LAUNCH_SECONDS)
    assert contest.there(batch) >= issuing
    assert contest.there(batch, PCIE) >= contest.there(batch)


@given(st.floats(1e9, 1e12), st.floats(0.0, 1e-3))
def test_the_rate_reached_is_that_of_the_steps(rate: float, overhead: float) -> None:
    flops = {batch: float(predict_step(STEPS[0].at(batch), XEONS).flops.sum()) for batch in (1, 2048)}
    contest = made({batch: overhead + count / rate for batch, count in flops.items()})
    assert contest.reached.reached_flops_per_s() == pytest.approx(rate)
    for batch, count in flops.items():  # no time goes to memory: the explorer's step is the one that was measured
        work = float(batch_times(STEPS[0], contest.reached).work(batch))
        assert work == pytest.approx(count / rate)


def test_where_no_time_grew_the_rate_stays() -> None:
    assert made({1: 1e-3, 2048: 1e-3}).reached.float32_tflops == XEONS.float32_tflops


def test_the_best_of_three_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter((1.2, 1.0, 1.1, 1.3, 1.2, 1.0))  # the step, then the smallest one

    def steps(inputs: int, units: int, batches: list[int], seconds: float) -> dict[int, Best]:
        slower = next(rounds)
        return {n: Best(slower * (3e-4 + 2e-6 * n), 1.0, 1) for n in batches}

    monkeypatch.setattr(module, "measure_steps", steps)
    found = module.contest(64, 100, XEONS, CARD)
    assert found.measured[32] == pytest.approx(1.1 * 3.64e-4)
    assert found.idle_seconds == pytest.approx(3.04e-4)


def test_without_python_it_is_the_queue_of_the_model() -> None:
    contest = made({1: 1e-3, 2: 1e-3}, idle=0.0)
    assert contest.python_seconds == 0
    for batch in (1, 32, 10**6):
        assert contest.there(batch) == pytest.approx(queued(predict_step(STEPS[1].at(batch), CARD)).total_seconds)


@given(st.dictionaries(st.integers(1, 10**4), st.floats(1e-6, 1.0), min_size=2, max_size=6))
def test_the_line_goes_through_what_was_measured_and_never_falls_beyond(measured: dict[int, float]) -> None:
    contest = made(measured)
    np.testing.assert_allclose(contest.here(sorted(measured)), [measured[n] for n in sorted(measured)])
    beyond = contest.here([max(measured), 10**5, 10**6])
    assert (np.diff(beyond) >= 0).all()


@given(st.floats(1e-5, 1e-3), st.floats(1e-9, 1e-4), st.sampled_from([None, PCIE]))
def test_the_crossover_is_where_the_card_begins_to_win(fixed: float, each: float, way: Link | None) -> None:
    contest = made({1: fixed + each, 1000: fixed + 1000 * each})
    found = contest.crossover(way)

    def ahead(batch: int) -> bool:
        return contest.there(batch, way) < float(contest.here(batch))

    if found is None:
        assert not ahead(MOST)
    else:
        assert ahead(found)
        assert found == 1 or not ahead(found - 1)


def test_the_explorers_time_is_the_queues_but_for_one_operator() -> None:
    for way in (None, PCIE):
        times = batch_times(STEPS[1], CARD, link=way, ahead=True)
        for batch in (2, 1000, 65_536, 10**6):
            exact = queued(predict_step(STEPS[1].at(batch), CARD, link=way)).total_seconds
            assert times.at(batch) <= exact * (1 + 1e-9)
            assert exact <= times.at(batch) + min(times.fixed, float(times.work(batch)))


def test_two_batches_are_needed() -> None:
    with pytest.raises(CourseError, match="two batches"):
        made({1: 1e-3})


# -- what the lesson says of its explorer, with the Xeons -------------------------------------------------------------


def meets(card: str) -> int | None:
    return crossover(batch_times(STEPS[0], XEONS), batch_times(STEPS[1], card, ahead=True))


def test_a_b200_moves_the_crossover_not_at_all_and_cheaper_launches_do() -> None:
    usual, large = meets("RTX 4090"), meets("B200")
    assert usual is not None
    assert large is not None
    assert large == usual
    cpu = batch_times(STEPS[0], XEONS)
    cheap = crossover(cpu, batch_times(STEPS[1], replace(CARD, launch_seconds=LAUNCH_SECONDS / 2), ahead=True))
    assert cheap is not None
    assert cheap < 0.5 * usual


def test_charges_are_drawn_to_one_scale_with_their_sums():
    picture = charges({"one": {"launches": 3e-6, "work": 1e-6}, "two": {"work": 2e-6}}, "A title")
    assert_well_laid(picture)
    assert picture.alt == "A title. one: launches 3 µs, work 1 µs; two: work 2 µs."
    widths = [max(x for x, _ in part) - min(x for x, _ in part) for (part,) in paths(picture, fill=COLOURS[1])]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    for rows in ({}, {"one": {"work": -1.0}}, {"one": {"work": 0.0}}):
        with pytest.raises(CourseError):
            charges(rows, "none")
