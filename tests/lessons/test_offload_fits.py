"""Lesson 09: whether a step whose maps move fits, and what the lesson says of maps in flight and of the cards."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

from course_utils import networks
from course_utils.machine import hardware
from course_utils.memory import Ledger
from course_utils.techniques.capacity import FITS, NO, TIGHT, fit, room_for_tensors
from course_utils.techniques.offload import OUT, run, simulate
from course_utils.techniques.offload.work import BACKWARD, FORWARD
from course_utils.trace import training_step
from lessons.offload.fits import fit_of

T4 = hardware.device("T4")


def step(name: str, batch: int) -> Ledger:
    network = networks.NETWORKS[name]
    with torch.device("meta"):
        model = network.build()
    return training_step(model, network.input_shape, network.classes, name=name).at(batch)


@pytest.mark.parametrize("name", networks.NETWORKS)
@pytest.mark.parametrize("card", ["GTX 980", "T4", "H100 SXM"])
def test_where_nothing_moves_it_is_the_verdict_of_fit(name: str, card: str) -> None:
    device = hardware.device(card)
    for batch in (32, 192, 2048):
        ledger = step(name, batch)
        nothing = simulate(ledger, device, "none", link="PCIe 3.0 x16")
        assert fit_of(ledger, nothing, device) == fit(ledger, device)


def test_what_the_lesson_says_of_maps_in_flight() -> None:
    ledger = step("VGG-16", 192)
    assert fit(ledger, T4).state == NO
    found = {n: simulate(ledger, T4, "windowed", window=n) for n in range(1, 11)}
    states = {n: fit_of(ledger, schedule, T4).state for n, schedule in found.items()}
    assert [n for n, state in states.items() if state == FITS] == [2]
    assert {state for n, state in states.items() if n != 2} == {TIGHT}
    assert max(found[n].peak_bytes for n in range(1, 6)) < room_for_tensors(T4) - 2 * 2**30
    none_in_flight = simulate(ledger, T4, "all")
    assert 1 - none_in_flight.peak_bytes / ledger.peak_bytes == pytest.approx(0.25, abs=0.02)
    assert found[4].peak_bytes == none_in_flight.peak_bytes < found[5].peak_bytes
    assert (round(found[4].slowdown, 3), round(none_in_flight.slowdown, 3)) == (0.038, 0.288)
    assert found[6].peak_bytes - found[4].peak_bytes == pytest.approx(1.7 * 2**30, rel=0.02)
    assert found[6].slowdown < 0.002
    assert found[6].peak_bytes > found[5].peak_bytes > found[3].peak_bytes


def test_what_the_lesson_says_of_the_two_passes() -> None:
    five = simulate(step("VGG-16", 192), T4, "windowed", window=5)
    work, share, lost = five.work, {}, {}
    for phase in (FORWARD, BACKWARD):
        own = work.phase == phase
        share[phase] = work.fast[own].sum() / work.fast.sum()
        quicker = replace(work, fast=np.where(own, work.fast / 1.5, work.fast))
        found = run(quicker, five.moved, five.fast, T4.link.bytes_per_s, T4.launch_seconds, window=5)
        saved = five.compute_seconds - found.compute_seconds
        lost[phase] = 1 - (five.total_seconds - found.total_seconds) / saved
    assert share[FORWARD] == pytest.approx(1 / 3, abs=0.02)
    assert lost[FORWARD] > 0.75
    assert lost[BACKWARD] < 0.25


def test_what_the_lesson_says_of_pinned_memory() -> None:
    """Each block rounded up to a power of two, as CachingHostAllocator.h of torch 2.13 does unless told otherwise."""
    moved = simulate(step("VGG-16", 192), T4, "all")
    out = [copy.bytes for copy in moved.copies if copy.direction == OUT]
    assert round(sum(out) / 2**30) == 13
    assert round(sum(1 << (size - 1).bit_length() for size in out) / 2**30) == 23


def test_the_code_on_the_page_moves_most_maps_twice_and_the_parameters() -> None:
    """Autograd hands each saved tensor to the hook, once for each operator that saves it."""
    with torch.device("meta"):
        net, images = networks.vgg16(), torch.empty(192, 3, 224, 224)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(net(images), torch.empty(192, dtype=torch.int64, device="meta"))
    assert loss.requires_grad
    sizes = [tensor.numel() * tensor.element_size() for tensor in saved]
    assert round(sum(1 << (size - 1).bit_length() for size in sizes if size) / 2**30) == 40


def test_with_a_link_four_times_as_fast_the_t4_waits_for_copies_beside_pools_alone() -> None:
    swapped = simulate(step("VGG-16", 192), T4, "all", link="PCIe 5.0 x16")
    beside = {stall.kernel: swapped.work.ops[swapped.copies[stall.copy].beside] for stall in swapped.stalls}
    long = [stall for stall in swapped.stalls if "max_pool" in beside[stall.kernel]]
    assert len(long) == 10  # five pools, both ways
    assert sum(stall.seconds for stall in long) > 0.99 * sum(stall.seconds for stall in swapped.stalls)


def test_what_lesson_09_says_of_float16_and_faster_links() -> None:
    """Its folded answer: from which link on moving everything costs less than a forward pass, 35 % of the kernels."""
    net = networks.vgg16()
    half = training_step(net, (3, 224, 224), 1000, precision="float16", name="VGG-16").at(192)
    as_told = functools.partial(simulate, half, T4, "windowed", precision="float16")
    plain = as_told().work
    forward = plain.fast[plain.phase == FORWARD].sum() / plain.fast.sum()
    assert forward == pytest.approx(0.35, abs=0.005)
    for window, enough in ((2, "PCIe 5.0 x16"), (4, "PCIe 4.0 x16"), (6, "PCIe 4.0 x16")):
        links = ("PCIe 3.0 x16", "PCIe 4.0 x16", "PCIe 5.0 x16")
        slow = [as_told(link=link, window=window).slowdown for link in links]
        assert links[[one < forward for one in slow].index(True)] == enough
