"""The offload schedule: laws that hold for any step, small steps worked out by hand, and the literature's networks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import awkward_nets
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from random_nets import random_networks

from course_utils import networks
from course_utils.machine import hardware
from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.techniques.offload import (
    BACK,
    OUT,
    Schedule,
    Work,
    policies,
    pytorch_step,
    run,
    simulate,
)
from course_utils.techniques.offload.policies import simulate_work
from course_utils.techniques.offload.schedule import LATE, ON_DEMAND, SLOW_COPY
from course_utils.trace import TraceError, training_step
from course_utils.units import CourseError
from lessons.offload.search import simulate_2016

TITAN_X = hardware.device("Titan X (Maxwell)")
GEN3 = "PCIe 3.0 x16"


@cache
def traced(name: str) -> StepTrace:
    build, size = {
        "AlexNet": (networks.alexnet, 224),
        "VGG-16": (networks.vgg16, 224),
        "GoogLeNet": (networks.googlenet, 224),
    }[name]
    with torch.device("meta"):
        return training_step(build(), (3, size, size), 1000, name=name)


# -- laws --------------------------------------------------------------------------------------------------------------


@st.composite
def works(draw: Any) -> Work:
    """A step made up of random kernels and tensors, with no network behind it."""
    forward, backward = draw(st.integers(1, 8)), draw(st.integers(1, 10))
    kernels = forward + backward
    times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0])
    sizes, births, deaths, uses = [], [], [], []
    for tensor in range(draw(st.integers(0, 10))):
        # Mostly what a step makes forward and uses backward; now and then anything, such as a gradient.
        birth = draw(st.integers(0, forward - 1 if draw(st.integers(0, 4)) else kernels - 1))
        later = [draw(st.lists(st.integers(0, kernels - 1), max_size=3)) for _ in range(2)]
        again = {(kernel, draw(st.booleans())) for kernel in (*later[0], *(forward + k % backward for k in later[1]))}
        used = [(kernel, wrote) for kernel, wrote in again if kernel > birth]
        sizes.append(draw(st.integers(0, 9)))
        births.append(birth)
        deaths.append(draw(st.integers(max([birth, *(kernel for kernel, _ in used)]) + 1, kernels)))
        uses += [(birth, tensor, 1), *((kernel, tensor, int(wrote)) for kernel, wrote in used)]
    fast = np.array([draw(times) for _ in range(kernels)])
    flags = [draw(st.lists(st.booleans(), min_size=kernels, max_size=kernels)) for _ in range(2)]
    convolution = np.array(flags[0])
    return Work(
        name="made",
        batch=1,
        ops=("kernel",) * kernels,
        layers=tuple(f"layer{k}" for k in range(kernels)),
        phase=np.array([0] * forward + [1] * backward),
        begins_layer=np.array(flags[1]),
        convolution=convolution,
        fast=fast,
        slow=np.where(convolution, 2 * fast, fast),
        workspace=np.where(convolution, draw(st.integers(0, 5)), 0),
        size=np.array(sizes, dtype=np.int64),
        role=np.full(len(sizes), ROLE["feature maps"]),
        owners=tuple(f"tensor{s}" for s in range(len(sizes))),
        birth=np.array(births, dtype=np.int64),
        death=np.array(deaths, dtype=np.int64),
        allowed=np.ones(len(sizes), dtype=np.bool_),
        uses=np.array(sorted(set(uses)), dtype=np.int64).reshape(-1, 3),
    )


def assert_lawful(schedule: Schedule) -> None:
    work, copies = schedule.work, schedule.copies
    begins, ends = schedule.begins, schedule.ends
    total = schedule.total_seconds
    close = 1e-9 * max(total, 1.0)
    # Neither stream does two things at once.
    assert (begins[1:] >= ends[:-1] - close).all()
    assert (ends >= begins).all()
    assert all(later.begins >= earlier.ends for earlier, later in pairwise(copies))
    # The step takes at least its kernels, at least its copies, at most both after one another.
    assert total >= schedule.compute_seconds - close
    assert total >= schedule.copy_floor_seconds - close
    assert total <= schedule.compute_seconds + schedule.copy_floor_seconds + close
    assert sum(stall.seconds for stall in schedule.stalls) == pytest.approx(total - schedule.compute_seconds, abs=close)
    for stall in schedule.stalls:
        assert stall.reason in (SLOW_COPY, LATE, ON_DEMAND)
        assert stall.begins + stall.seconds == pytest.approx(copies[stall.copy].ends)
        assert begins[stall.kernel] >= copies[stall.copy].ends
        assert work.layers[stall.kernel] in schedule.explain(stall)
    # What leaves returns, once, and nothing is used while it is away.
    trips = {way: {c.tensor: c for c in copies if c.direction == way} for way in (OUT, BACK)}
    assert set(trips[OUT]) == set(trips[BACK]) == set(np.flatnonzero(schedule.moved).tolist())
    assert len(copies) == 2 * int(schedule.moved.sum())
    for tensor, out in trips[OUT].items():
        back = trips[BACK][tensor]
        assert out.ends <= back.begins
        for kernel, _, wrote in work.uses[work.uses[:, 1] == tensor].tolist():
            if work.phase[kernel] == 0:
                assert schedule.released[tensor] >= max(ends[kernel], out.ends)
                assert not wrote or ends[kernel] <= out.begins + close, "copied before it was whole"
            else:
                assert begins[kernel] >= back.ends - close
    # Memory is what the events say, recounted tensor by tensor in the middle of every stretch of time.
    times, level = schedule.memory
    assert (level >= 0).all()
    assert times[0] == 0
    assert times[-1] <= total
    starts = np.append(begins, np.inf)
    over = {kernel + 1: end for kernel, end in enumerate(ends[:-1].tolist())} | {work.kernels: np.inf}
    for left, right, bytes_then in zip(times, np.append(times[1:], total), level, strict=True):
        if right <= left:
            continue
        now = (left + right) / 2
        alive = sum(
            int(work.size[t])
            for t in range(len(work.size))
            if starts[work.birth[t]] <= now < over[work.death[t]]
            and not (schedule.moved[t] and schedule.released[t] <= now < trips[BACK][t].begins)
        )
        busy = [k for k in range(work.kernels) if begins[k] <= now < ends[k] and work.convolution[k]]
        assert bytes_then == alive + sum(int(work.workspace[k]) for k in busy if schedule.fast[k])
    assert not total or schedule.average_bytes <= schedule.peak_bytes


@settings(max_examples=300, deadline=None)
@given(works(), st.data())
def test_laws_of_any_schedule(work: Work, data: Any) -> None:
    wanted = [data.draw(st.integers(0, 3)) > 0 for _ in work.size]
    fast = np.array([data.draw(st.booleans()) for _ in range(work.kernels)])
    window, latency = data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0.0, 0.25]))
    schedule = run(work, np.array(wanted, dtype=np.bool_) & work.movable, fast, 2.0, latency, window)
    assert_lawful(schedule)
    nothing = run(work, np.zeros(len(work.size), dtype=np.bool_), fast, 2.0, latency, window)
    assert (schedule.at_kernels <= nothing.at_kernels).all()
    assert nothing.total_seconds == pytest.approx(schedule.compute_seconds)
    assert not nothing.copies


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(random_networks(), st.sampled_from(["all", "conv", "windowed"]), st.sampled_from(["m", "p"]))
def test_laws_on_random_networks(network: Any, policy: str, algorithm: str) -> None:
    build, shape = network
    torch.manual_seed(0)
    try:
        ledger = training_step(build(), shape).at(3)
    except TraceError:  # what the backward pass needs is overwritten: no step, in torch neither
        reject()
    event, storage, _ = ledger.tape.uses.T
    assert (ledger.tape.birth[storage] <= event).all()
    assert (event < ledger.tape.death[storage]).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policies, "MINIMUM_BYTES", 0)
        for make in (simulate, simulate_2016):
            assert_lawful(make(ledger, TITAN_X, policy, algorithm, GEN3, window=2))
    assert (simulate(ledger, TITAN_X, "none", "m", GEN3).at_kernels == ledger.total).all()
    assert (simulate_2016(ledger, TITAN_X, "none", "m", GEN3).at_kernels == ledger.network_wide_bytes()).all()


# -- policy none is the ledger -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AlexNet", "VGG-16", "GoogLeNet"])
def test_none_is_the_timeline_of_the_ledger(name: str) -> None:
    for workspace in (0, 10**9):
        ledger = traced(name).at(32)
        step = pytorch_step(ledger, TITAN_X)
        wanted = np.where(step.convolution, workspace, 0)
        none = simulate_work(replace(step, workspace=wanted), "none", "p", hardware.link(GEN3).bytes_per_s)
        assert (none.at_kernels == ledger.total + wanted).all()
        assert none.peak_bytes == (ledger.total + wanted).max()
        assert none.peak_kernel == (ledger.total + wanted).argmax()
        assert none.slowdown == pytest.approx(0)
        assert none.total_seconds == pytest.approx(float((none.ends - none.begins).sum()))


# -- by hand -----------------------------------------------------------------------------------------------------------


def chain(forward: list[float], backward: list[float], sizes: list[int], convolution: bool = True) -> Work:
    """Layers 0, 1, …: layer l reads tensor l, both ways; the backward pass goes down. No other tensors."""
    layers = len(forward)
    kernels = 2 * layers
    last = [kernels - layer for layer in range(layers)]  # one past the backward of layer l
    return Work(
        name="chain",
        batch=1,
        ops=("convolution",) * kernels,
        layers=tuple(f"conv{layer}" for layer in [*range(layers), *reversed(range(layers))]),
        phase=np.array([0] * layers + [1] * layers),
        begins_layer=np.ones(kernels, dtype=np.bool_),
        convolution=np.full(kernels, convolution),
        fast=np.array([*forward, *reversed(backward)]),
        slow=np.array([*forward, *reversed(backward)]),
        workspace=np.zeros(kernels, dtype=np.int64),
        size=np.array(sizes),
        role=np.full(layers, ROLE["feature maps"]),
        owners=tuple(f"map{layer}" for layer in range(layers)),
        birth=np.maximum(np.arange(layers) - 1, 0),
        death=np.array(last),
        allowed=np.ones(layers, dtype=np.bool_),
        uses=np.array(
            sorted(
                [(max(layer - 1, 0), layer, 1) for layer in range(1, layers)]
                + [(layer, layer, 0) for layer in range(layers)]
                + [(end - 1, layer, 0) for layer, end in enumerate(last)]
            )
        ),
    )


def test_a_chain_takes_the_sums_of_the_longer_of_kernel_and_copy() -> None:
    # Copies of 2, 6 and 1 s beside forward kernels of 3, 4 and 5 s; the last map is not moved.
    work = chain([3.0, 4.0, 5.0], [3.0, 4.0, 5.0], [2, 6, 1])
    moved = np.array([True, True, False])
    schedule = run(work, moved, np.ones(6, dtype=np.bool_), bytes_per_s=1.0)
    forward = max(3, 2) + max(4, 6) + 5
    backward = max(5, 6) + max(4, 2) + 3  # map 1 returns beside conv2's backward, map 0 beside conv1's
    assert schedule.total_seconds == forward + backward == 27
    assert [(stall.kernel, stall.seconds, stall.reason) for stall in schedule.stalls] == [
        (2, 2.0, SLOW_COPY),
        (4, 1.0, LATE),
    ]
    assert schedule.explain(schedule.stalls[0]) == (
        "conv2 waits 2 s: 6 B of map1 has to leave first; the copy takes 6 s and was issued with conv1"
    )
    assert schedule.slowdown == pytest.approx(3 / 24)
    assert schedule.loss == pytest.approx(3 / 27)
    assert schedule.traffic_bytes() == {OUT: 8, BACK: 8}
    # Memory, second by second: maps 0 and 1 from the start, map 2 when conv1 begins.
    seconds = np.arange(27) + 0.5
    times, level = schedule.memory
    expected = [8] * 3 + [7] * 6 + [1] * 5 + [7] * 5 + [6] + [8] * 4 + [2] * 3  # map 2 is gone while conv1 waits
    assert level[np.searchsorted(times, seconds, side="right") - 1].tolist() == expected
    assert schedule.average_bytes == pytest.approx(sum(expected) / 27)
    assert schedule.peak_bytes == 8


def test_what_nobody_fetches_is_copied_on_demand() -> None:
    work = chain([3.0, 4.0], [3.0, 4.0], [2, 6])
    schedule = run(work, np.array([True, True]), np.ones(4, dtype=np.bool_), bytes_per_s=1.0)
    # Map 1 is needed by the first kernel of the backward pass: nothing before it could fetch it ahead.
    assert schedule.total_seconds == 3 + 6 + 6 + 4 + 3
    assert [stall.reason for stall in schedule.stalls] == [SLOW_COPY, ON_DEMAND]
    assert "nobody fetched ahead" in schedule.explain(schedule.stalls[1])


@pytest.mark.parametrize("window", [0, 2])
def test_without_prefetch_every_copy_back_is_waited_for(window: int) -> None:
    work = chain([3.0] * 4, [4.0] * 4, [2, 2, 2, 2])
    moved, fast = np.array([True] * 4), np.ones(8, dtype=np.bool_)
    ahead, demand = (
        run(work, moved, fast, bytes_per_s=1.0, window=window, prefetch=prefetch) for prefetch in (True, False)
    )
    assert_lawful(demand)
    assert [stall.reason for stall in demand.stalls].count(ON_DEMAND) == 4
    backward = demand.ends[-1] - demand.begins[4]
    assert backward == 3 * (2 + 4) + 4  # the first kernel begins when its copy has ended
    assert demand.total_seconds > ahead.total_seconds
    assert demand.peak_bytes <= ahead.peak_bytes
    times, levels = demand.memory  # a map is gone when its kernel ends, before the next one's copy begins
    assert levels[times >= demand.begins[4]].max() == 2


def test_a_prefetch_looks_no_further_than_the_next_convolution() -> None:
    # Kernels backward: 3, 2, 1, 0; only map 0 is away. With convolutions it is fetched beside conv1's backward.
    sizes = [2, 1, 1, 1]
    moved = np.array([True, False, False, False])
    for convolution, beside in ((True, "conv1 backward"), (False, "conv3 backward")):
        work = chain([9.0] * 4, [9.0] * 4, sizes, convolution)
        schedule = run(work, moved, np.ones(8, dtype=np.bool_), bytes_per_s=1.0)
        back = next(copy for copy in schedule.copies if copy.direction == BACK)
        assert schedule.kernel_name(back.beside) == beside


def test_a_window_lets_copies_lag_behind() -> None:
    work = chain([1.0] * 6, [1.0] * 6, [3] * 6)
    moved = np.array([True] * 5 + [False])
    totals = []
    for window in (0, 1, 2, 5):
        schedule = run(work, moved, np.ones(12, dtype=np.bool_), bytes_per_s=2.0, window=window)
        assert_lawful(schedule)
        totals.append(schedule.total_seconds)
        assert schedule.peak_bytes <= 18
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > totals[-1] >= 15  # ten copies of 1.5 s one after another


def test_a_joined_map_leaves_with_its_last_consumer() -> None:
    with torch.device("meta"):
        step = training_step(awkward_nets.branching_cnn(), (3, 32, 32), 10)
    work = pytorch_step(step.at(8), TITAN_X)
    kernel, tensor, wrote = work.uses.T
    readers = [
        np.unique(kernel[(tensor == t) & (work.phase[kernel] == 0) & (wrote == 0)]) for t in range(len(work.size))
    ]
    joined = [t for t in np.flatnonzero(work.movable) if len(readers[t]) == 3]
    assert len(joined) == 1, "the map that two convolutions and a pool read"
    assert [work.ops[k] for k in readers[joined[0]]] == ["convolution", "convolution", "max_pool2d_with_indices"]
    assert work.leaves[joined[0]] == readers[joined[0]][-1]
    schedule = simulate(step.at(8), TITAN_X, "all", link=GEN3)
    out = next(c for c in schedule.copies if c.tensor == joined[0])
    assert out.begins >= schedule.begins[readers[joined[0]][-1]]


# -- what may move -----------------------------------------------------------------------------------------------------


def test_pytorch_keeps_input_and_moves_what_autograd_saves() -> None:
    work = pytorch_step(traced("AlexNet").at(64), TITAN_X)
    assert set(work.role[work.movable]) == {ROLE["feature maps"]}
    owners = {work.owners[t] for t in np.flatnonzero(work.movable)}
    assert {"relu1", "pool1", "drop6"} <= owners
    assert "conv1" not in owners, "relu's own output is saved, its input dies at once"
    assert "input" not in owners


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"policy": "some"}, r"unknown policy 'some': choose one of none, all, conv, windowed"),
        ({"algorithm": "x"}, r"unknown algorithm 'x'"),
        ({"policy": "windowed", "window": 0}, r"window must be 1 or more tensors, got 0"),
        ({"link": None}, r"nobody confirmed the link of Titan X \(Maxwell\): give one, such as PCIe 2.0 x16"),
    ],
)
def test_refusals(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(CourseError, match=message):
        simulate(traced("AlexNet").at(2), TITAN_X, **({"link": GEN3} | asked))


def test_a_trace_without_uses_is_refused() -> None:
    ledger = traced("AlexNet").at(2)
    bare = Ledger(ledger.name, replace(ledger.tape, uses=np.zeros((0, 3), dtype=np.int64)), 2)
    with pytest.raises(CourseError, match="does not say which tensors"):
        simulate(bare, TITAN_X, link=GEN3)


def test_a_tensor_used_in_one_pass_cannot_move() -> None:
    work = chain([1.0], [1.0], [1])
    with pytest.raises(CourseError, match="not used in both passes"):
        run(replace(work, allowed=np.array([False])), np.array([True]), np.ones(2, dtype=np.bool_), 1.0)
    for rate, window, message in ((0.0, 0, "above 0 bytes a second"), (1.0, -1, "0 or more tensors")):
        with pytest.raises(CourseError, match=message):
            run(work, np.array([True]), np.ones(2, dtype=np.bool_), rate, window=window)


def test_inference_has_nothing_to_move() -> None:
    with torch.device("meta"):
        ledger = training_step(networks.small_cnn(), (3, 32, 32), 10, optimizer=None).at(8)
    for policy in ("all", "windowed"):
        schedule = simulate(ledger, TITAN_X, policy, link=GEN3)
        assert not schedule.copies
        assert schedule.slowdown == pytest.approx(0)


# -- several micro-batches ---------------------------------------------------------------------------------------------


@cache
def accumulated(parts: int) -> Ledger:
    with torch.device("meta"):
        return training_step(networks.alexnet(), (3, 224, 224), 1000, accumulate=parts).at(64)


@pytest.mark.parametrize(("policy", "window"), [("conv", 0), ("all", 0), ("windowed", 5)])
def test_every_micro_batch_is_offloaded_as_the_first_is(policy: str, window: int) -> None:
    one, two, three = (
        simulate(accumulated(parts), TITAN_X, policy, link=GEN3, window=window or 1) for parts in (1, 2, 3)
    )
    moved = one.traffic_bytes()
    assert moved[OUT] > 0
    for parts, several in ((2, two), (3, three)):
        traffic = several.traffic_bytes()
        loss = parts * 4  # divided by the number of parts, which is one more number that stays
        assert traffic[OUT] == traffic[BACK] == pytest.approx(parts * moved[OUT], abs=loss)
        born = several.work.birth[[copy.tensor for copy in several.copies if copy.direction == BACK]]
        began = [copy.begins for copy in several.copies if copy.direction == BACK]
        assert all(begin >= several.begins[birth] for begin, birth in zip(began, born, strict=True))
    assert three.peak_bytes == two.peak_bytes >= one.peak_bytes
    assert three.total_seconds - two.total_seconds == pytest.approx(two.total_seconds - one.total_seconds, rel=0.02)
