"""Who is faster from which batch on: exact against counting, and against the model at one batch; every law it keeps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils import networks
from course_utils.machine.hardware import devices, links
from course_utils.machine.speed import predict_step
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.shared.published import XEONS, published
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.why_gpus.crossover import BatchTimes, Lead, batch_times, crossover, leads, said
from lessons.why_gpus.hidden_layer import hidden_layer_step

SIZES = st.tuples(st.sampled_from([4, 64, 784, 4096]), st.sampled_from([10, 100, 1000]))
law = settings(deadline=None, max_examples=40)
SECONDS = st.integers(0, 10**4)  # whole numbers, so that a tie is a tie


def lines(fixed: int, per_sample: int, *operators: tuple[int, int, int, int], name: str = "x") -> BatchTimes:
    """Times of operators given as (arithmetic fixed, per sample, bandwidth fixed, per sample)."""
    rows = np.array(operators, dtype=float).reshape(-1, 4)
    return BatchTimes(name, float(fixed), float(per_sample), rows[:, :2], rows[:, 2:])


@st.composite
def some_times(draw: st.DrawFn) -> BatchTimes:
    small = st.integers(0, 300)
    operators = draw(st.lists(st.tuples(small, small, small, small), max_size=4))
    return replace(lines(draw(SECONDS), draw(st.integers(0, 50)), *operators), ahead=draw(st.booleans()))


@law
@given(SIZES, st.integers(2, 10**6), st.sampled_from(devices()), st.sampled_from([None, *links()]))
def test_the_time_at_every_batch_is_the_models_at_that_batch(sizes, batch, card, over):
    step = hidden_layer_step(*sizes)
    expected = predict_step(step.at(batch), card, link=over)
    times = batch_times(step, card, link=over)
    assert float(times.at(batch)) == pytest.approx(expected.total_seconds, rel=1e-9)
    assert times.launches == pytest.approx(expected.launch.sum())


def test_convolutions_too():
    step = training_step(networks.small_cnn(), (3, 32, 32), 10)
    for batch in (2, 17, 4000):
        expected = predict_step(step.at(batch), "Tesla K40", link="PCIe 3.0 x16").total_seconds
        assert float(batch_times(step, "Tesla K40", link="PCIe 3.0 x16").at(batch)) == pytest.approx(expected)


@law
@given(some_times(), some_times())
def test_leads_are_what_counting_finds(one, other):
    found = leads(one, other)
    batches = np.arange(1, 3001)
    ahead = one.at(batches) <= other.at(batches)
    said_ahead = [next(lead.first for lead in reversed(found) if lead.batch <= n) for n in batches]
    assert np.array_equal(ahead, said_ahead)
    assert found[0].batch == 1
    assert all(a.batch < b.batch and a.first != b.first for a, b in pairwise(found))


@law
@given(some_times(), some_times())
def test_the_crossover_is_where_the_sign_changes_for_good(one, other):
    batch = crossover(one, other)
    far = 10**9
    if batch is None:
        assert one.at(far) <= other.at(far)
        return
    assert other.at(batch) < one.at(batch)
    assert other.at(batch + 12345) < one.at(batch + 12345)
    assert batch == 1 or one.at(batch - 1) <= other.at(batch - 1)


@law
@given(SIZES, st.floats(0, 1e-4), st.floats(0, 1e-4))
def test_a_dearer_launch_moves_the_crossover_up_and_a_faster_link_down(sizes, launch, more):
    cpu = batch_times(hidden_layer_step(*sizes, "cpu"), REFERENCE_CPU)
    card = devices()[4]
    found = []
    for cost in (launch, launch + more):
        times = batch_times(hidden_layer_step(*sizes), replace(card, launch_seconds=cost))
        found.append(crossover(cpu, times) or 2**50)
    assert found[0] <= found[1]
    step = hidden_layer_step(*sizes)
    over = [crossover(cpu, batch_times(step, card, link=way)) or 2**50 for way in (*links(), None)]
    assert over == sorted(over, reverse=True)


def test_by_hand():
    cpu, gpu = lines(57, 3), lines(170, 1)
    assert leads(cpu, gpu) == [Lead(1, True), Lead(57, False)]  # (170 - 57) / 2 = 56.5
    assert crossover(lines(10, 3), lines(14, 1)) == 3  # a tie at 2 counts for the first
    assert crossover(gpu, cpu) is None
    assert crossover(lines(10, 3), lines(9, 3)) == 1
    assert crossover(cpu, cpu) is None


def test_a_lead_can_be_lost_again():
    """A card ahead while launches count, until the link is full; and a CPU whose bandwidth gives out."""
    one = lines(0, 0, (0, 10, 0, 0))
    other = lines(100, 0, (0, 1, -3000, 12))
    assert leads(one, other) == [Lead(1, True), Lead(12, False), Lead(1450, True)]
    assert crossover(one, other) is None
    words = said("CPU", "GPU", leads(one, other))
    assert words == "CPU wins up to a batch of about 11, then GPU up to about 1,400, then CPU"
    assert said("CPU", "GPU", [Lead(1, False)]) == "GPU wins at every batch"
    assert said("CPU", "GPU", [Lead(1, True), Lead(2000, False)]) == "CPU wins up to a batch of about 2,000, then GPU"


def test_wrong_arguments_are_one_line():
    with pytest.raises(CourseError, match="no device called"):
        batch_times(hidden_layer_step(4, 10), "Voodoo 2")
    step = hidden_layer_step(4, 10)
    with pytest.raises(CourseError, match="has no time at every batch: padded"):
        batch_times(replace(step, tape=None, why="padded"), "Tesla K40")


def test_the_reference_cpu_is_what_its_publications_say():
    """Its arithmetic rate is that of VGG-16 at batch 16, its bandwidth three quarters of two sockets' 59 GB/s."""

    with torch.device("meta"):
        model = networks.vgg16()
    ledger = training_step(model, (3, 224, 224), 1000, target="cpu").at(16)
    time = predict_step(ledger, REFERENCE_CPU)
    (row,) = published("VGG-16", XEONS)
    flops = time.flops[ledger.phases != "update"].sum()
    assert REFERENCE_CPU.name == row.device
    assert REFERENCE_CPU.float32_tflops == pytest.approx(flops / row.seconds / 1e12, rel=0.01)
    assert REFERENCE_CPU.bandwidth_gb_s == 0.75 * 2 * 59
    assert REFERENCE_CPU.launch_seconds == pytest.approx(4.42e-6 / 2, rel=0.01)
    both = time.by_phase()[["forward", "backward"]].sum()
    assert both == pytest.approx(row.seconds, rel=0.1)
