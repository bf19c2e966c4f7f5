"""Predicted step time obeys its laws; what is measured here has the right form. No measured time is asserted."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks import speed
from course_utils import networks
from course_utils.machine import timing
from course_utils.machine.hardware import COPY_SECONDS, Device, Link, device, devices, links
from course_utils.machine.speed import NO_KERNEL, predict_step
from course_utils.machine.timing import measure_step_time, time_product, time_transfer
from course_utils.memory import StepTrace
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.memory.recurrent import rnn_from_cells

NAMES = ("small", "mlp", "rnn")
STEP = st.sampled_from(NAMES)
BATCH = st.integers(min_value=1, max_value=512)
DEVICE = st.sampled_from(devices())
LINK = st.sampled_from([None, *links()])
law = settings(deadline=None, max_examples=25)  # the first example of a network traces it


@lru_cache
def step(name: str, precision: str = "float32", optimizer: str | None = "momentum") -> StepTrace:
    build, shape = {
        "small": (networks.small_cnn, (3, 32, 32)),
        "mlp": (lambda: networks.mlp([64, 100, 10]), (64,)),
        "rnn": (rnn_from_cells, (6, 4)),
    }[name]
    return training_step(build(), shape, 10, precision=precision, optimizer=optimizer, name=name)


@law
@given(STEP, BATCH, DEVICE, LINK)
def test_the_step_is_the_sum_of_its_parts_however_they_are_grouped(
    name: str, batch: int, item: Device, over: Link | None
) -> None:
    time = predict_step(step(name).at(batch), item, link=over)
    assert np.all(time.seconds >= 0)
    events = time.timeline()["seconds"].sum() + time.transfer_seconds
    assert [events, time.by_phase().sum()] == pytest.approx([time.total_seconds] * 2, rel=1e-9)
    assert time.samples_per_second == pytest.approx(batch / time.total_seconds)


@law
@given(STEP, BATCH, BATCH, DEVICE, LINK)
def test_a_larger_batch_is_never_faster_in_any_event(
    name: str, batch: int, more: int, item: Device, over: Link | None
) -> None:
    small, large = (predict_step(step(name).at(n), item, link=over) for n in (batch + 1, batch + 1 + more))
    assert np.all(large.seconds >= small.seconds)
    assert large.total_seconds >= small.total_seconds


@law
@given(STEP, BATCH, DEVICE, st.floats(1, 50), st.floats(1, 50), st.floats(0, 1))
def test_a_faster_device_is_never_slower(
    name: str, batch: int, item: Device, arithmetic: float, bandwidth: float, launch: float
) -> None:
    better = replace(
        item,
        float32_tflops=item.float32_tflops * arithmetic,
        bandwidth_gb_s=item.bandwidth_gb_s * bandwidth,
        launch_seconds=item.launch_seconds * launch,
    )
    ledger = step(name).at(batch)
    assert np.all(predict_step(ledger, better).seconds <= predict_step(ledger, item).seconds)


@law
@given(STEP, BATCH, DEVICE)
def test_no_event_is_below_a_ceiling(name: str, batch: int, item: Device) -> None:
    time = predict_step(step(name).at(batch), item)
    assert np.all(time.seconds >= time.flops / item.flops_per_s())
    assert np.all(time.seconds >= time.traffic / (item.bandwidth_gb_s * 1e9))
    ceilings = np.maximum(time.flops / item.reached_flops_per_s(), time.traffic / item.reached_bytes_per_s())
    assert time.work == pytest.approx(ceilings)


def test_a_product_by_hand() -> None:
    """One dense layer without bias, batch 32: 2 · 32 · 500 · 200 operations; 4 bytes a value read and written."""
    ledger = training_step(nn.Linear(500, 200, bias=False), (500,), 200, optimizer=None).at(32)
    card = device("Tesla K40")
    time = predict_step(ledger, card)
    product = time.timeline().query("event == 'mm'").iloc[0]
    flops, traffic = 2 * 32 * 500 * 200, 4 * (32 * 500 + 500 * 200 + 32 * 200)
    assert (product["flops"], product["traffic"]) == (flops, traffic)
    by_hand = max(flops / (0.67 * 4.29e12), traffic / (0.75 * 288e9))
    assert product["seconds"] == pytest.approx(10e-6 + by_hand)


def test_transfer_is_input_and_labels_over_the_link() -> None:
    ledger = step("small").at(64)
    time = predict_step(ledger, "Tesla K40", link="PCIe 3.0 x16")
    bytes_in = 64 * (4 * 3 * 32 * 32 + 8)
    assert time.transfer_bytes == bytes_in
    assert time.copies == 2
    assert time.transfer_seconds == pytest.approx(2 * COPY_SECONDS + bytes_in / (0.75 * 15.75e9))
    without = predict_step(ledger, "Tesla K40")
    assert (without.transfer_bytes, without.transfer_seconds) == (0, 0)
    assert time.total_seconds == pytest.approx(without.total_seconds + time.transfer_seconds)
    assert time.timeline()["begins"].iloc[0] == pytest.approx(time.transfer_seconds)


def test_events_are_those_of_the_memory_timeline() -> None:
    ledger = step("small").at(64)
    frame, memory = predict_step(ledger, "T4").timeline(), ledger.timeline()
    pd.testing.assert_frame_equal(frame[["event", "phase", "layer"]], memory[["event", "phase", "layer"]])
    ends = frame["begins"] + frame["seconds"]
    assert np.allclose(ends.iloc[:-1], frame["begins"].iloc[1:], rtol=1e-12)
    quiet = frame["event"].isin(NO_KERNEL)
    assert (frame.loc[quiet, "seconds"] == 0).all()
    assert (frame.loc[~quiet, "seconds"] >= 10e-6).all()


def test_inference_has_no_backward_and_no_update() -> None:
    phases = predict_step(step("small", optimizer=None).at(8), "T4").by_phase()
    assert list(phases.index) == ["transfer", "forward", "backward", "update"]
    assert phases["forward"] > 0
    assert phases["backward"] == phases["update"] == 0


def test_half_precision_is_faster_where_tensor_cores_are_and_where_bytes_count() -> None:
    half, full = step("small", "float16").at(512), step("small").at(512)
    a100, old = device("A100"), device("Titan X (Maxwell)")
    convolution = "event == 'convolution'"
    for card, gains in ((a100, True), (old, False)):
        fast = predict_step(half, card, "float16").timeline().query(convolution)
        slow = predict_step(full, card).timeline().query(convolution)
        arithmetic = slow["flops"] / card.reached_flops_per_s(), fast["flops"] / card.reached_flops_per_s("float16")
        traffic = (found["traffic"] / card.reached_bytes_per_s() for found in (slow, fast))
        limited = [(a.to_numpy() > b.to_numpy()) for a, b in zip(arithmetic, traffic, strict=True)]
        faster = fast["seconds"].to_numpy() < slow["seconds"].to_numpy()
        assert gains or not faster[limited[0] & limited[1]].any()
        assert faster.any() or not gains


def test_a_step_is_timed_in_the_precision_it_was_traced_with() -> None:
    half, full = step("small", "float16").at(64), step("small").at(64)
    assert (
        (half.precision, full.precision)
        == (step("small", "float16").at(1).precision, "float32")
        == ("float16", "float32")
    )
    by_itself, asked = predict_step(half, "A100"), predict_step(half, "A100", "float16")
    assert by_itself.precision == "float16"
    assert np.array_equal(by_itself.seconds, asked.seconds)
    assert predict_step(full, "A100").precision == "float32"
    in_float32 = predict_step(half, "A100", "float32")  # the traffic of halves at float32's rate
    assert in_float32.precision == "float32"
    assert in_float32.total_seconds > by_itself.total_seconds
    with pytest.raises(CourseError, match="T4 does not compute in bfloat16"):
        predict_step(step("small", "bfloat16").at(64), "T4")


def test_a_network_traced_at_one_batch_is_timed_too() -> None:
    ledger = step("small").at(1)
    assert predict_step(ledger, "T4").total_seconds > 0


@pytest.mark.parametrize(
    ("card", "precision", "over", "message"),
    [
        ("K4", "float32", None, "no device called 'K4': did you mean Tesla K40?"),
        ("T4", "float64", None, "unknown precision 'float64': choose one of float32, bfloat16, float16"),
        ("T4", "bfloat16", None, "T4 does not compute in bfloat16"),
        ("T4", "float32", "PCIe 3", "no link called 'PCIe 3': did you mean PCIe 3.0 x16?"),
    ],
)
def test_what_does_not_exist_is_one_line(card: str, precision: str, over: str | None, message: str) -> None:
    with pytest.raises(CourseError) as error:
        predict_step(step("mlp").at(8), card, precision, link=over)
    assert str(error.value).startswith(message)


# -- Measured here: that it has the right form. No time is asserted. -----------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of a small product and a small copy."""
    monkeypatch.setattr(speed, "SIDE", 16)
    monkeypatch.setattr(speed, "COPIED", 2**12)


@pytest.mark.usefixtures("small")
def test_this_machine_becomes_a_device_with_the_rates_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"time_product": 1e-3, "time_copy": 2e-3, "time_launch": 5e-6}
    for name, seconds in took.items():
        monkeypatch.setattr(speed, name, lambda *_, seconds=seconds: timing.Timing(seconds, 0.0, 3))
    here = speed.measure_cpu(0.01)
    assert (here.name, here.measured, here.dies) == ("this machine", True, 1)
    assert here.flops_per_s() == here.reached_flops_per_s() == pytest.approx(2 * 16**3 / 1e-3)
    assert here.reached_bytes_per_s() == pytest.approx(2 * 2**12 / 2e-3)
    assert here.launch_seconds == 5e-6
    assert torch.__version__ in here.sources


@pytest.mark.usefixtures("small")
def test_a_step_is_predicted_for_this_machine_and_its_threads_stay() -> None:
    threads = torch.get_num_threads()
    here = speed.measure_cpu(0.01)
    assert torch.get_num_threads() == threads
    assert here.memory_bytes > 0
    assert predict_step(step("mlp").at(8), here).total_seconds > 0


def test_half_precision_that_was_measured_is_the_rate_of_the_device() -> None:
    def made(**rates: float) -> Device:
        return speed.measured_device("Card X", "a card", {"float32": 1e9, "bfloat16": 2e9, **rates}, 1e9, 1e-6, 2**30)

    assert made().flops_per_s("bfloat16") == pytest.approx(1e9)
    assert made(float16=3e9).flops_per_s("bfloat16") == pytest.approx(3e9)


def test_what_is_timed_is_run_three_times_at_least() -> None:
    timed = time_product(16, "float32", "cpu", 0.001)
    assert timed.runs >= 3
    assert timed.median > 0
    assert timed.spread >= 0


def test_a_real_step_is_timed_with_its_spread() -> None:
    found = measure_step_time(networks.mlp([8, 4, 3]), (8,), 3, 5, device="cpu", seconds=0.01)
    for part in (found.forward, found.step):
        assert part.runs >= 3
        assert part.median > 0
        assert part.spread >= 0


def test_inference_is_timed_without_a_backward_pass_and_leaves_the_mode() -> None:
    network = networks.mlp([8, 4, 3])
    found = measure_step_time(network, (8,), 3, 5, optimizer=None, device="cpu", seconds=0.01)
    assert found.forward == found.step
    assert network.training
    assert all(p.grad is None for p in network.parameters())


def test_wrong_arguments_of_measurements_are_one_line() -> None:
    with pytest.raises(CourseError, match="seconds must be above 0"):
        measure_step_time(networks.mlp([8, 3]), (8,), 3, 5, device="cpu", seconds=0)
    with pytest.raises(CourseError, match="unknown optimizer 'lion': choose one of sgd"):
        measure_step_time(networks.mlp([8, 3]), (8,), 3, 5, optimizer="lion")
    with pytest.raises(CourseError, match=r"batch must be a whole number of 1 or more, got 0"):
        measure_step_time(networks.mlp([8, 3]), (8,), 3, 0)


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match="this machine shows PyTorch no GPU"):
        time_transfer(4096, True, False, 0.01)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; PyTorch sees none")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_real_step_is_timed_on_a_gpu(precision: str) -> None:
    found = measure_step_time(networks.small_cnn(), (3, 32, 32), 10, 8, precision=precision, seconds=0.01)
    assert found.step.runs >= 3
    assert found.forward.median > 0


@pytest.mark.gpu
@needs_gpu
def test_a_timing_waits_for_the_gpu() -> None:
    """A product of 8,192² takes longer than any card's peak allows to issue it: 1.1 TFLOP, whatever the precision."""
    time = timing.time_product(8192, "float32", "cuda", 0.01)
    assert 2 * 8192**3 / time.median < 5e15  # as a launch alone it would come out above


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("to_host", [True, False])
def test_transfers_are_timed_both_ways(pinned: bool, to_host: bool) -> None:
    time = timing.time_transfer(2**20, pinned, to_host, 0.01)
    assert time.runs >= 3
    assert time.median > 0
    assert timing.time_launch("cuda", 0.01, awaited=True).median > 0


def test_transfers_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match="this machine shows PyTorch no GPU"):
        timing.time_transfer(8, True, False, 0.01)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 3000))
def test_a_timing_counts_every_run_of_its_blocks(work: int) -> None:
    calls = []
    found = timing.time_runs(lambda: calls.append(sum(range(work))), 1e-4)
    assert 3 <= found.runs <= len(calls)
    assert found.median > 0
    assert found.spread >= 0
