"""Accumulated micro-batches in a trace: what is alive when, what does not change with their number, what is refused.

That every operator's bytes are right is tests/library/test_exactness.py.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from drawn import assert_well_laid, corners, paths
from hypothesis import given, settings
from hypothesis import strategies as st
from small_nets import on_meta
from torch import nn

from course_utils.figures import skyline
from course_utils.machine.hardware import device
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.networks import mlp, small_cnn
from course_utils.trace import TraceError, training_step
from course_utils.units import CourseError
from lessons.shared.digits import Variant, compare


def traced(accumulate: int, optimizer: str = "momentum", target: str = "cuda") -> StepTrace:
    return training_step(on_meta(small_cnn), (3, 32, 32), 10, optimizer, target=target, accumulate=accumulate)


def forwards(ledger: Ledger) -> list[slice]:
    """The events of each forward pass."""
    starts = np.flatnonzero(np.diff(np.concatenate([[1], ledger.tape.event_phase])) < 0)
    ends = [start + int(np.argmax(ledger.tape.event_phase[start:] != 0)) for start in starts]
    return [slice(int(start), end) for start, end in zip(starts, ends, strict=True)]


def test_the_gradients_of_earlier_micro_batches_are_alive_in_the_forward_pass() -> None:
    ledger = traced(3).at(8)
    gradients = ledger.matrix[:, ROLE["weight gradients"]]
    parameters = int(ledger.by_role()["parameters"])
    first, *later = forwards(ledger)
    assert len(later) == 2
    assert not gradients[first].any()
    assert all((gradients[own] == parameters).all() for own in later)


@given(batch=st.integers(1, 300), parts=st.integers(2, 5))
@settings(max_examples=10, deadline=None)
def test_from_two_micro_batches_on_the_peak_stays(batch: int, parts: int) -> None:
    two, many, one = (traced(k).at(batch) for k in (2, parts, 1))
    assert many.peak_bytes == two.peak_bytes >= one.peak_bytes
    assert many.reserved_bytes() == two.reserved_bytes()


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_what_is_told_by_layer_is_about_one_micro_batch(target: str) -> None:
    one, three = (traced(k, target=target).at(16) for k in (1, 3))
    same = ["layer", "shape", "parameters", "weight gradients", "flops"]
    network = [row for row in one.by_layer()["layer"] if row != "loss"]
    for table in (one, three):
        assert table.by_layer()["layer"].tolist()[: len(network)] == network
    left, right = (t.by_layer().set_index("layer").loc[network, same[1:]] for t in (one, three))
    assert left.equals(right)
    assert one.network_wide_parts() == three.network_wide_parts()


def test_each_further_micro_batch_takes_the_same_modelled_time() -> None:
    titan = device("Titan X (Maxwell)")
    two, three, seven = (predict_step(traced(k).at(8), titan).total_seconds for k in (2, 3, 7))
    assert seven == pytest.approx(two + 5 * (three - two))
    assert two > predict_step(traced(1).at(16), titan).total_seconds


def test_one_batch_is_the_plain_step() -> None:
    plain = training_step(on_meta(small_cnn), (3, 32, 32), 10)
    assert plain.at(5).timeline().equals(traced(1).at(5).timeline())


@pytest.mark.parametrize("accumulate", [0, -1, 2.0, True, "2"])
def test_what_is_no_number_of_batches_is_refused(accumulate: object) -> None:
    with pytest.raises(TraceError, match="accumulate must be a whole number of 1 or more"):
        training_step(mlp((4, 3)), (4,), 3, accumulate=accumulate)  # type: ignore[arg-type]


def test_inference_has_nothing_to_accumulate() -> None:
    with pytest.raises(TraceError, match="no gradients to accumulate"):
        training_step(mlp((4, 3)), (4,), 3, optimizer=None, accumulate=2)


def test_a_measured_step_accumulates_too() -> None:
    one, two = (measure_step(mlp((64, 512, 512, 10)), (64,), 10, 4, device="cpu", accumulate=k) for k in (1, 2))
    traces = [
        training_step(mlp((64, 512, 512, 10)), (64,), 10, target="cpu", accumulate=k).at(4).peak_bytes for k in (1, 2)
    ]
    assert two.peak_bytes - one.peak_bytes == pytest.approx(traces[1] - traces[0], rel=0.05)
    with pytest.raises(CourseError, match="accumulate must be a whole number of 1 or more"):
        measure_step(mlp((4, 3)), (4,), 3, 1, accumulate=0)


def test_compared_variants_count_what_accumulation_keeps() -> None:
    def build() -> nn.Module:
        return small_cnn(channels=1, size=8)

    table = compare({"64": Variant(build, 64), "64 x 4": Variant(build, 64, accumulate=4)}, 1, (0,), 8)
    for column in ("traced peak", "measured peak"):
        assert table[column]["64 x 4"] > table[column]["64"]


@pytest.mark.parametrize(("shown", "before"), [(2, 1), (1, 2), (2, 2), (3, 2), (9, 1), (9, 9)])
def test_a_skyline_of_accumulated_batches_is_well_laid_and_its_outline_covers_it(shown: int, before: int) -> None:
    picture = skyline(traced(shown).at(16), before=traced(before).at(32))
    assert_well_laid(picture)
    dashed = [
        e for e in ET.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}path") if e.get("stroke-dasharray")
    ]
    (outline,) = corners(max((e.get("d") or "" for e in dashed), key=len))
    edges = [line for part in paths(picture, stroke="var(--faint)") for line in part if len(line) == 3]
    (left, _), _, (right, _) = edges[0]
    xs = [x for x, _ in outline]
    assert xs == sorted(xs)
    assert xs[0] == pytest.approx(left, abs=0.5)
    assert xs[-1] == pytest.approx(right, abs=0.5)


def test_a_micro_batch_of_padding_alone_has_a_loss_of_nan_and_gradients_of_0():
    """Lesson 07: loop 3's update is right where it reports nan."""
    layer, padding = torch.nn.Linear(5, 10), torch.full((4,), -100)
    loss = torch.nn.functional.cross_entropy(layer(torch.randn(4, 5)), padding) * 0
    loss.backward()
    assert loss.isnan()
    assert not layer.weight.grad.any()
