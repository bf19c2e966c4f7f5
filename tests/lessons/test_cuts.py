"""A batch cut into micro-batches: each cut against a direct trace, and the laws of all of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_nets import on_meta

from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.networks import small_cnn
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.batch_size.accumulation import SMALLEST, accumulation, micro_batches

TITAN = hardware.device("Titan X (Maxwell)")


@pytest.fixture(scope="module")
def steps():
    return accumulation(on_meta(small_cnn), (3, 32, 32), 10, name="mine")


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_a_plan_is_what_a_trace_of_all_its_parts_says(steps, parts):
    whole = training_step(on_meta(small_cnn), (3, 32, 32), 10, accumulate=parts).at(12)
    cut = steps.cut(12, parts, TITAN)
    assert cut.peak_bytes == whole.peak_bytes
    assert cut.seconds == pytest.approx(predict_step(whole, TITAN).total_seconds)
    assert cut.wanted == 12 * parts
    assert cut.seconds_per_sample == pytest.approx(cut.seconds / cut.wanted)


@given(st.integers(SMALLEST, 2000))
@settings(deadline=None)
def test_micro_batches_are_the_divisors(wanted):
    sizes = micro_batches(wanted)
    assert sizes[-1] == wanted
    assert sizes == sorted(set(sizes))
    assert all(wanted % micro == 0 and micro >= SMALLEST for micro in sizes)
    assert len(sizes) == sum(wanted % n == 0 for n in range(SMALLEST, wanted + 1))


def test_smaller_micro_batches_take_less_memory_and_more_time(steps):
    accumulated = steps.cuts(128, TITAN)[:-1]
    for small, large in itertools.pairwise(accumulated):
        assert small.peak_bytes < large.peak_bytes
        assert small.seconds > large.seconds


def test_the_extra_is_the_gradients_and_no_more_than_twice_of_them(steps):
    gradients = int(steps.double.at(2).by_role()["parameters"])
    assert 0 < steps.extra_bytes(16) <= 2 * gradients


@pytest.mark.parametrize("wrong", [0, 1, -4])
def test_a_batch_that_cannot_be_cut_is_refused(wrong):
    with pytest.raises(CourseError, match="the wanted batch must be 2 or more"):
        micro_batches(wrong)


def test_no_parts_are_refused(steps):
    with pytest.raises(CourseError, match="one part or more"):
        steps.cut(4, 0, TITAN)
