"""Offload in a framework of 2016: the closed form of VGG-16, what may move, the baseline, and the search."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

from course_utils import networks
from course_utils.machine import hardware
from course_utils.memory import PHASES, ROLE, StepTrace
from course_utils.techniques.offload import BACK, OUT, Schedule
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.offload.frameworks_2016 import layerwise_2016, network_wide_2016
from lessons.offload.search import schedule_2016, simulate_2016

TITAN_X = hardware.device("Titan X (Maxwell)")
GEN3 = "PCIe 3.0 x16"


@cache
def traced(name: str) -> StepTrace:
    build = {"AlexNet": networks.alexnet, "VGG-16": networks.vgg16}[name]
    with torch.device("meta"):
        return training_step(build(), (3, 224, 224), 1000, name=name)


def test_vgg16_takes_what_the_sums_over_its_layers_say() -> None:
    """The closed form: forward, the longer of each layer and its copy; backward, of each layer and the copy below it.

    Layer times are the schedule's; the copies, their order and the sums are worked out here, from the shapes.
    """
    batch, rate, latency = 64, 0.75 * 15.75e9, TITAN_X.launch_seconds
    schedule = simulate_2016(traced("VGG-16").at(batch), TITAN_X, "all", "p", GEN3)
    work = schedule.work
    frame = pd.DataFrame(
        {
            "phase": np.array(PHASES)[work.phase],
            "layer": work.layers,
            "begins": schedule.begins,
            "seconds": schedule.ends - schedule.begins,
        }
    )
    own = frame["layer"].str.replace("relu", "conv")  # an activation is a part of its convolution's layer
    seconds = frame.groupby([frame["phase"], own])["seconds"].sum()
    layers, copies, channels, size = [], [], 3, 224
    for group, (count, width) in enumerate(networks.VGG_GROUPS, start=1):
        for index in range(1, count + 1):
            layers.append(f"conv{group}_{index}")
            copies.append(4 * batch * channels * size**2 / rate + latency)
            channels = width
        layers.append(f"pool{group}")
        copies.append(4 * batch * channels * size**2 / rate + latency)
        size //= 2
    forward = sum(max(seconds["forward"][layer], copy) for layer, copy in zip(layers, copies, strict=True))
    rest = seconds["forward"].drop(layers).sum()
    begins_backward = frame.loc[frame["phase"] == "backward", "begins"].iloc[0]
    assert begins_backward == pytest.approx(forward + rest, rel=1e-9)

    # Beside each layer the input of the layer below it returns; the first two beside the first kernels of the loss.
    below = dict(zip(layers[1:], copies, strict=False)) | {"pool5": 0.0}
    times = seconds["backward"]
    first, second, *others = frame.loc[(frame["phase"] == "backward") & (own == "loss"), "seconds"]
    backward = max(first, copies[-1]) + max(second, copies[-2]) + sum(others)
    backward += sum(max(times[layer], below.get(layer, 0.0)) for layer in times.index if layer != "loss")
    assert schedule.total_seconds - begins_backward == pytest.approx(backward, rel=1e-9)


# -- what may move -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "all_gb", "conv_gb"), [(64, 3.9, 2.3), (128, 7.8, 4.6), (256, 15.6, 9.3)])
def test_traffic_of_vgg16(batch: int, all_gb: float, conv_gb: float) -> None:
    """Of 15,203,328 values a picture (all but pool5's output), or 9,081,856 (those that feed a convolution)."""
    for policy, gb, values in (("all", all_gb, 15_203_328), ("conv", conv_gb, 9_081_856)):
        traffic = simulate_2016(traced("VGG-16").at(batch), TITAN_X, policy, "m", GEN3).traffic_bytes()
        assert traffic[OUT] == traffic[BACK] == 4 * batch * values
        assert traffic[OUT] / 1e9 == pytest.approx(gb, abs=0.06)


def test_working_set_of_vgg16_in_2016() -> None:
    """With everything moved the peak is pool1's backward: its input and gradient, output and gradient, all weights."""
    schedule = simulate_2016(traced("VGG-16").at(256), TITAN_X, "all", "m", GEN3)
    big = 4 * 256 * 64 * 224 * 224
    weights = 2 * 4 * 138_357_544
    assert schedule.kernel_name(schedule.peak_kernel) == "pool1 backward"
    # conv1_2's input may have begun to return: the copy overlaps the backward of the layer above.
    assert schedule.peak_bytes == weights + 3 * big + big // 2


def test_classifier_memory_is_left_out_on_request() -> None:
    whole, part = (layerwise_2016(traced("AlexNet").at(128), TITAN_X, features_only=only) for only in (False, True))
    none = [schedule_2016(work, "none", "m", 1e10) for work in (whole, part)]
    dense = 4 * (9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000)
    maps = 4 * 128 * (4096 + 4096 + 1000)
    assert none[0].peak_bytes - none[1].peak_bytes == 2 * dense + maps
    assert none[0].total_seconds == none[1].total_seconds


# -- the baseline ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AlexNet", "VGG-16"])
def test_the_baseline_is_the_ledger_s_network_wide_accounting(name: str) -> None:
    ledger = traced(name).at(32)
    schedule = simulate_2016(ledger, TITAN_X, "none", "m", GEN3)
    assert set(schedule.memory[1]) == {ledger.network_wide_bytes()}
    assert schedule.peak_bytes == schedule.average_bytes == ledger.network_wide_bytes()
    work = layerwise_2016(ledger, TITAN_X)
    with_workspace = simulate_2016(ledger, TITAN_X, "none", "p", GEN3)
    assert with_workspace.peak_bytes == ledger.network_wide_bytes() + work.workspace.max()


def test_network_wide_shares_two_gradient_buffers() -> None:
    work = network_wide_2016(layerwise_2016(traced("VGG-16").at(64), TITAN_X), "p")
    buffers = work.size[work.role == ROLE["gradient maps"]]
    assert buffers.tolist() == [4 * 64 * 64 * 224 * 224] * 2
    assert not work.movable.any()


def test_inference_has_nothing_to_move() -> None:
    with torch.device("meta"):
        ledger = training_step(networks.small_cnn(), (3, 32, 32), 10, optimizer=None).at(8)
    for policy in ("all", "windowed", "dyn"):
        schedule = simulate_2016(ledger, TITAN_X, policy, link=GEN3)
        assert not schedule.copies
        assert schedule.slowdown == pytest.approx(0)


# -- search ------------------------------------------------------------------------------------------------------------


def vgg16_dyn(limit_bytes: float) -> Schedule:
    ledger = traced("VGG-16").at(256)
    return simulate_2016(ledger, TITAN_X, "dyn", link=GEN3, limit_bytes=limit_bytes)


def test_dyn_takes_the_fastest_that_fits() -> None:
    ledger = traced("VGG-16").at(256)
    losses = []
    for limit in (30e9, 15e9, 13e9):
        schedule = vgg16_dyn(limit)
        assert schedule.peak_bytes <= limit
        losses.append(schedule.loss)
    assert losses == sorted(losses)
    assert losses[0] == pytest.approx(0)
    assert vgg16_dyn(30e9).tried[-1].startswith("none (p)")
    assert vgg16_dyn(15e9).tried[-1].startswith("conv (p)")
    mixed = vgg16_dyn(13e9)
    assert mixed.algorithm == "mixed"
    slowed = [mixed.kernel_name(k) for k in np.flatnonzero(~mixed.fast)]
    assert slowed == ["conv1_2 backward"]
    assert mixed.total_seconds < simulate_2016(ledger, TITAN_X, "all", "m", GEN3).total_seconds


def test_dyn_says_where_it_cannot_fit() -> None:
    with pytest.raises(CourseError, match=r"VGG-16, batch 256: even with every map moved .* in pool1 backward, more"):
        vgg16_dyn(12e9)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(CourseError, match=r"unknown policy 'some'"):
        simulate_2016(traced("AlexNet").at(2), TITAN_X, "some", link=GEN3)
