"""The trace against two witnesses that know nothing of it: every operator's bytes, and the peak, equal to the byte.

What is compared where (target "cpu", whole timeline; each batch is read from one affine trace, never traced anew but
for batch 1, as in use):

- MemTracker on fake tensors, small networks and the 52 M dense net: all batches × all optimizers.
- MemTracker, AlexNet, VGG-16, GoogLeNet, ResNet-50: at a third of the batches, or all of them in `make test-thorough`,
  with the optimizers by turns; `python -m benchmarks exactness` runs the whole product, which takes minutes.
- Live storages of real CPU tensors: small networks at 1, 2, 37 × all optimizers; large ones at 2, thoroughly at 1 too.
- Accumulated micro-batches, both witnesses: small networks by turns, AlexNet with MemTracker.
- Random networks drawn by hypothesis, both witnesses: tests/library/test_random_networks.py.
- bfloat16 autocast: MemTracker.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from amount import THOROUGH, by_turns
from oracles import LARGE, NETWORKS, SMALL, Case, blank, live_storages_timeline, mem_tracker_timeline
from small_nets import on_meta, operators

from course_utils.memory import StepTrace
from course_utils.trace import training_step

BATCHES = (1, 2, 37, 128, 256)
OPTIMIZERS = ("sgd", "momentum", "adam")

EVERYTHING = [
    (name, batch, optimizer) for name in [*SMALL, "kaggle_mlp"] for batch in BATCHES for optimizer in OPTIMIZERS
]
BY_TURNS = [
    (name, batch, OPTIMIZERS[(i + j) % 3])
    for i, name in enumerate(["alexnet", "vgg16", "googlenet", "resnet50"])
    for j, batch in enumerate(BATCHES)
]
# Real steps of large networks take seconds, most of all with Adam, so that each optimizer is tried where it is cheap.
REAL_LARGE = [
    *(("alexnet", 1, "momentum"), ("alexnet", 2, "sgd")),
    *(("vgg16", 1, "momentum"), ("vgg16", 2, "sgd")),
    *(("googlenet", 1, "sgd"), ("googlenet", 2, "adam")),
    *(("resnet50", 1, "sgd"), ("resnet50", 2, "momentum")),
    *(("kaggle_mlp", 1, "adam"), ("kaggle_mlp", 2, "sgd")),
]


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def trace_of(name: str, optimizer: str, precision: str = "float32") -> StepTrace:
    build, input_shape, classes = NETWORKS[name]
    with torch.device("meta"):
        module = build()
    return training_step(module, input_shape, classes, optimizer, precision, target="cpu")


def case_of(name: str, optimizer: str, precision: str = "float32") -> Case:
    build, input_shape, classes = NETWORKS[name]
    return Case(build, input_shape, classes, optimizer, precision=precision)


def test_the_covering_choice_covers() -> None:
    assert {(name, batch) for name, batch, _ in BY_TURNS} == {(name, b) for name in LARGE for b in BATCHES} - {
        ("kaggle_mlp", b) for b in BATCHES
    }
    assert len({(name, optimizer) for name, _, optimizer in BY_TURNS}) == 4 * 3
    assert len({(batch, optimizer) for _, batch, optimizer in BY_TURNS}) == 5 * 3


@pytest.mark.parametrize(("name", "batch", "optimizer"), [*EVERYTHING, *by_turns(BY_TURNS, 0)])
def test_equals_mem_tracker(name: str, batch: int, optimizer: str) -> None:
    step = trace_of(name, optimizer)
    assert step.affine, step.why
    timeline, peak = mem_tracker_timeline(case_of(name, optimizer), batch)
    ledger = step.at(batch)
    assert operators(ledger) == timeline
    assert ledger.peak_bytes == peak


@pytest.mark.parametrize(
    ("name", "batch", "optimizer"),
    [(name, batch, optimizer) for name in SMALL for batch in (1, 2, 37) for optimizer in OPTIMIZERS]
    + (REAL_LARGE if THOROUGH else [one for one in REAL_LARGE if one[1] == 2]),
)
def test_equals_live_storages_of_real_tensors(name: str, batch: int, optimizer: str) -> None:
    case = case_of(name, optimizer)
    timeline = live_storages_timeline(replace(case, build=blank(case.build)), batch)
    assert operators(trace_of(name, optimizer).at(batch)) == timeline


# -- accumulation ------------------------------------------------------------------------------------------------------

ACCUMULATED = [
    (name, batch, OPTIMIZERS[(i + j) % 3], 2 + (i + j) % 2)
    for i, name in enumerate(SMALL)
    for j, batch in enumerate((1, 2, 37))
]


@pytest.mark.parametrize(("name", "batch", "optimizer", "parts"), [*ACCUMULATED, ("alexnet", 37, "momentum", 2)])
def test_accumulated_micro_batches_equal_both_witnesses(name: str, batch: int, optimizer: str, parts: int) -> None:
    build, input_shape, classes = NETWORKS[name]
    step = training_step(on_meta(build), input_shape, classes, optimizer, target="cpu", accumulate=parts)
    assert step.affine, step.why
    case = replace(case_of(name, optimizer), accumulate=parts)
    timeline, peak = mem_tracker_timeline(case, batch)
    assert operators(step.at(batch)) == timeline
    assert step.at(batch).peak_bytes == peak
    if name in SMALL:
        assert operators(step.at(batch)) == live_storages_timeline(replace(case, build=blank(case.build)), batch)


@pytest.mark.parametrize("name", ["branching_cnn", "encoder_block"])
def test_accumulated_under_autocast_equals_mem_tracker(name: str) -> None:
    build, input_shape, classes = NETWORKS[name]
    step = training_step(on_meta(build), input_shape, classes, "adam", "bfloat16", target="cpu", accumulate=2)
    timeline, peak = mem_tracker_timeline(replace(case_of(name, "adam", "bfloat16"), accumulate=2), 37)
    assert operators(step.at(37)) == timeline
    assert step.at(37).peak_bytes == peak


# -- bfloat16 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["branching_cnn", "inplace_cnn", "shared_weights", "encoder_block", "kaggle_mlp"])
def test_bfloat16_equals_mem_tracker_under_autocast(name: str, optimizer: str) -> None:
    step = trace_of(name, optimizer, "bfloat16")
    for batch in (1, 37):
        timeline, peak = mem_tracker_timeline(case_of(name, optimizer, "bfloat16"), batch)
        assert operators(step.at(batch)) == timeline
        assert step.at(batch).peak_bytes == peak


def test_vgg16_under_autocast_equals_mem_tracker() -> None:
    """The network whose halves lesson 08 draws, at the batch it draws; pools keep 64-bit indices in any precision."""
    timeline, peak = mem_tracker_timeline(case_of("vgg16", "momentum", "bfloat16"), 128)
    ledger = trace_of("vgg16", "momentum", "bfloat16").at(128)
    assert operators(ledger) == timeline
    assert ledger.peak_bytes == peak
