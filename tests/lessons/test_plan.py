"""Plans: laws that hold for any of them, equality with the trace and the schedule they rest on, and what is refused."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from awkward_nets import encoder_block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_steps import roomy
from torch import nn

from course_utils.machine import hardware
from course_utils.machine.context import CONTEXT_BYTES, known_context
from course_utils.machine.speed import predict_step
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import FITS, NO, TIGHT, demand, fit
from course_utils.techniques.offload import simulate, simulate_work
from course_utils.techniques.offload.policies import moved
from course_utils.techniques.offload.work import WORKSPACE_SHARE, convolution_maps, pytorch_step
from course_utils.trace import training_step
from course_utils.units import GIB, CourseError
from lessons.capstone import plan as plan_module
from lessons.capstone.judge import look_at
from lessons.capstone.plan import (
    ALGORITHMS,
    ANOTHER_BATCH,
    ANOTHER_NETWORK,
    BATCH_NORM,
    NO_ARITHMETIC,
    OFFLOADS,
    OTHER_NETWORKS,
    ROUNDING,
    TOLERANCE,
    Evaluation,
    Plan,
    Problem,
    Refused,
)
from lessons.capstone.search import combinations, fastest, pareto_front, table, tied
from lessons.shared.recompute import checkpointed

TITAN_X = hardware.device("Titan X (Maxwell)")
GEN3 = "PCIe 3.0 x16"
BATCH = 24


def chain(norm: bool = False) -> nn.Sequential:
    """Convolutions, pools and a dense head: maps of several sizes, and weights that count."""
    middle: list[nn.Module] = [nn.BatchNorm2d(16)] if norm else []
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), *middle, nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 64, 256), nn.ReLU(), nn.Linear(256, 10)),
    )


CHAIN = Network("chain", chain, (3, 32, 32), 10)
NORMED = Network("normed chain", lambda: chain(norm=True), (3, 32, 32), 10)


@cache
def problem(share: float = 0.0) -> Problem:
    return Problem(CHAIN, BATCH, TITAN_X, GEN3, workspace_share=share)


micro_batches = st.sampled_from([None, 12, 8, 6, 3, 2])
some_maps = [(policy, every) for policy in OFFLOADS for every in ((1,) if policy == "none" else (1, 2, 3))]
plans = st.builds(
    lambda way, **rest: Plan(offload=way[0], every=way[1], **rest),
    way=st.sampled_from(some_maps),
    batch=st.just(BATCH),
    micro_batch=micro_batches,
    precision=st.sampled_from(["float32", "float16"]),
    algorithm=st.sampled_from(ALGORITHMS),
    segments=st.sampled_from([1, 3, ((0, 4),), ((0, 5), (5, 8))]),
)
slow_trace = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)


# -- equality with what plans rest on ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AlexNet", "52 M dense net"])
def test_the_empty_plan_is_the_plain_step(name: str) -> None:
    network = NETWORKS[name]
    found = Problem(network, 64, TITAN_X, GEN3).evaluate(Plan(64))
    step = training_step(network.build(), network.input_shape, network.classes)
    asked = demand(step.at(64))
    assert (found.demand.tensors, roomy(found.demand), found.demand.workspace) == (
        asked.tensors,
        roomy(asked),
        asked.workspace,
    )
    assert found.verdict == fit(step.at(64), TITAN_X, taken=known_context(CONTEXT_BYTES))
    assert found.seconds == pytest.approx(predict_step(step.at(64), TITAN_X).total_seconds)
    assert (found.waiting_seconds, found.lost) == (0, 0)
    assert found.peak.removesuffix(" backward") == step.at(64).peak_layer


@pytest.mark.parametrize(("micro", "precision", "parts"), [(24, "float16", 1), (6, "float32", 4), (4, "float16", 3)])
def test_accumulation_and_precision_are_the_trace_s(micro: int, precision: str, parts: int) -> None:
    found = Problem(CHAIN, micro * parts, TITAN_X, GEN3).evaluate(Plan(micro * parts, micro, precision))
    step = training_step(chain(), (3, 32, 32), 10, precision=precision, accumulate=parts).at(micro)
    assert found.tensor_bytes == step.peak_bytes
    assert found.seconds == pytest.approx(predict_step(step, TITAN_X).total_seconds, rel=1e-9)


@pytest.mark.parametrize("policy", OFFLOADS)
def test_offload_is_the_schedule_s(policy: str) -> None:
    found = problem().evaluate(Plan(BATCH, offload=policy))
    ledger = training_step(chain(), (3, 32, 32), 10).at(BATCH)
    schedule = simulate(ledger, TITAN_X, policy, link=GEN3)
    assert found.tensor_bytes == schedule.peak_bytes
    assert found.seconds == schedule.total_seconds
    assert found.waiting_seconds == pytest.approx(sum(stall.seconds for stall in schedule.stalls), abs=1e-12)


@pytest.mark.parametrize(("policy", "every"), [("all", 1), ("windowed", 1), ("all", 3), ("windowed", 2)])
def test_offload_of_four_micro_batches_is_that_of_four_traced_ones(policy: str, every: int) -> None:
    found = problem().evaluate(Plan(BATCH, 6, offload=policy, segments=((0, 4),), every=every))
    ledger = training_step(checkpointed(chain(), [(0, 4)]), (3, 32, 32), 10, accumulate=4).at(6)
    rate, latency = hardware.link(GEN3).bytes_per_s, TITAN_X.launch_seconds
    schedule = simulate_work(pytorch_step(ledger, TITAN_X), policy, "p", rate, latency=latency, every=every)
    assert found.tensor_bytes == schedule.peak_bytes
    assert found.seconds == pytest.approx(schedule.total_seconds, rel=1e-9)


@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_of_so_many_maps_in_a_row_the_middle_one_moves_in_each_micro_batch(every: int) -> None:
    ledger = training_step(chain(), (3, 32, 32), 10, accumulate=2).at(6)
    work = pytorch_step(ledger, TITAN_X)
    waiting = sorted(np.flatnonzero(moved(work, "all")).tolist(), key=lambda tensor: int(work.birth[tensor]))
    half = len(waiting) // 2  # as many in both
    assert half > every
    wanted = {
        tensor for part in (waiting[:half], waiting[half:]) for i, tensor in enumerate(part) if i % every == every // 2
    }
    assert set(np.flatnonzero(moved(work, "all", every)).tolist()) == wanted


def test_workspace_is_counted_where_it_is_asked_for_and_the_slow_algorithm_needs_none() -> None:
    share = 4 * WORKSPACE_SHARE  # so large that the peak is beside a convolution
    counted, plain = problem(share), problem()
    ledger = training_step(chain(), (3, 32, 32), 10).at(BATCH)
    scratch = (share * convolution_maps(ledger.tape, ledger.size)).astype(np.int64)
    assert counted.evaluate(Plan(BATCH)).tensor_bytes == int((ledger.total + scratch).max()) > ledger.peak_bytes
    slow = counted.evaluate(Plan(BATCH, algorithm="m"))
    assert slow.demand.workspace == 0
    assert slow.demand.tensors == plain.evaluate(Plan(BATCH)).demand.tensors
    assert plain.evaluate(Plan(BATCH)).demand.workspace > 0 == slow.demand.workspace
    assert counted.evaluate(Plan(BATCH)).demand.workspace == 0  # it stands among the tensors
    assert slow.seconds > counted.evaluate(Plan(BATCH)).seconds


# -- laws --------------------------------------------------------------------------------------------------------------


@given(plan=plans, gib=st.floats(0.1, 2), more=st.floats(0, 2))
@slow_trace
def test_more_memory_never_hurts(plan: Plan, gib: float, more: float) -> None:
    found = problem().evaluate(plan)
    small, large = (replace(found, device=replace(TITAN_X, memory_gb=size)) for size in (gib, gib + more))
    assert (large.state == NO) <= (small.state == NO)
    assert small.feasible <= large.feasible
    assert small.feasible == (small.state != NO)
    assert small.spare_bytes <= large.spare_bytes
    larger = replace(found, device=replace(TITAN_X, memory_gb=(roomy(found.demand) + 1) / GIB))
    assert larger.state == FITS


@given(plan=plans)
@slow_trace
def test_only_a_precision_beats_the_plain_step(plan: Plan) -> None:
    found, full = problem().evaluate(plan), problem().evaluate(replace(plan, precision="float32"))
    assert full.lost >= -1e-12
    kernels_alone = problem().evaluate(Plan(BATCH, precision=plan.precision)).seconds
    assert found.seconds - found.waiting_seconds >= kernels_alone * (1 - 1e-9)
    assert found.waiting_seconds >= 0
    assert roomy(found.demand) >= found.demand.least
    assert found.equal_to == (ROUNDING if plan.precision == "float32" else TOLERANCE)


@given(plan=plans)
@slow_trace
def test_moving_more_never_needs_more_than_moving_nothing(plan: Plan) -> None:
    stays = problem().evaluate(replace(plan, offload="none", every=1))
    moves = problem().evaluate(plan)
    assert moves.tensor_bytes <= stays.tensor_bytes
    assert moves.seconds >= stays.seconds - 1e-12


def made(tensors: int, seconds: float) -> Evaluation:
    one = problem().evaluate(Plan(BATCH))
    return replace(one, tensor_bytes=tensors, seconds=seconds)


points = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=8)


@given(points)
def test_the_front_holds_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    front = pareto_front([made(size, seconds) for size, seconds in points])
    shown = [(one.tensor_bytes, one.seconds) for one in front]
    assert set(shown) == {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
    assert shown == sorted(shown, key=lambda point: point[1])
    assert len(shown) == len(set(shown))


def test_the_fastest_of_those_that_fit() -> None:
    options = [made(*point) for point in [(4, 1.0), (3, 2.0), (2, 2.0), (1, 3.0)]]
    for one in options:
        vars(one)["feasible"] = one.tensor_bytes <= 3
    best = fastest(options)
    assert best is not None
    assert (best.tensor_bytes, best.seconds) == (2, 2.0)
    assert fastest(options[:1]) is None


def test_ties_fit_and_the_least_to_build_comes_first() -> None:
    plain = made(3, 1.005)
    copied, again, near, slow, tight = (
        replace(made(3, seconds), plan=plan)
        for plan, seconds in [
            (Plan(BATCH, offload="all"), 1.0), (Plan(BATCH, segments=2), 1.009), (Plan(BATCH, segments=3), 1.002),
            (Plan(BATCH), 1.02), (Plan(BATCH), 0.9),
        ]
    )  # fmt: skip
    for one in (plain, copied, again, near, slow, tight):
        vars(one)["verdict"] = SimpleNamespace(state=TIGHT if one is tight else FITS)
    found = tied([slow, copied, near, tight, again, plain])
    assert list(map(id, found)) == list(map(id, (plain, again, near, copied)))
    assert tied([tight]) == []


# -- combinations and words --------------------------------------------------------------------------------------------


def test_combinations_leave_out_what_is_refused() -> None:
    normed = Problem(NORMED, BATCH, TITAN_X, GEN3)
    found = combinations(normed, (BATCH, 12), ("float32", "bfloat16"), ("none", "all"), (1, 3))
    some = combinations(normed, offloads=("none", "all"), precisions=("float32",), every=(1, 2))
    assert [str(one.plan) for one in some] == ["plain", "offload all", "offload all, 1 map in 2"]
    assert {one.plan for one in found} == {
        Plan(BATCH, offload=offload, segments=pieces) for offload, pieces in itertools.product(("none", "all"), (1, 3))
    }
    assert list(table(found).index[:2]) == ["plain", "3 segments"]


def test_an_evaluation_says_what_is_too_much_and_what_is_to_spare() -> None:
    found = problem().evaluate(Plan(BATCH))
    tiny = replace(found, device=replace(TITAN_X, memory_gb=0.5))
    assert re.search(
        r"^plain: .+ MiB at the peak, in .+\. It does not fit: the card would hold the tensors", tiny.why()
    )
    assert re.search(r"\. It fits: the tensors leave 11\.\d\d GiB beside 512\.00 MiB of context", found.why())
    assert re.search(r"µs an update, \+0\.0 %\.$", repr(found))
    least = replace(found, device=replace(TITAN_X, memory_gb=(found.demand.least + 1) / GIB))
    assert f"It is tight, the {least.verdict.decided} decides" in least.why()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(64), "plain"),
        (Plan(64, 64, offload="conv"), "offload conv"),
        (
            Plan(64, 16, "float16", "windowed", 3, "m", 4),
            "4 × 16 + float16 + offload windowed 3 + 4 segments + slow convolutions",
        ),
        (Plan(64, segments=((0, 2),), changes=("stride",)), "1 chosen segment + stride"),
    ],
)
def test_a_plan_says_what_it_does(plan: Plan, words: str) -> None:
    assert str(plan) == words


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "plan", "kind", "message"),
    [
        *((CHAIN, Plan(BATCH, changes=(name,)), ANOTHER_NETWORK, "not training-equivalent") for name in OTHER_NETWORKS),
        (CHAIN, Plan(12), ANOTHER_BATCH, "keep batch=24 and let micro_batch=12 go through"),
        (NORMED, Plan(BATCH, 12), BATCH_NORM, "1 batch norm, which would normalise 12 samples at a time"),
        (CHAIN, Plan(BATCH, precision="bfloat16"), NO_ARITHMETIC, "does not compute in bfloat16"),
    ],
)
def test_another_update_is_refused_with_the_reason(network: Network, plan: Plan, kind: str, message: str) -> None:
    with pytest.raises(Refused, match=re.escape(message)) as refused:
        Problem(network, BATCH, TITAN_X, GEN3).evaluate(plan)
    assert refused.value.kind == kind


def test_batch_norm_in_eval_mode_looks_at_no_batch() -> None:
    frozen = replace(NORMED, build=lambda: chain(norm=True).eval())
    assert Problem(frozen, BATCH, TITAN_X, GEN3).evaluate(Plan(BATCH, 12)).feasible


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of 1 or more, got 0"),
        ({"batch": True}, "batch must be a whole number"),
        ({"micro_batch": 2.0}, "micro_batch must be a whole number of 1 or more, got 2.0"),
        ({"micro_batch": 100}, "micro_batch must divide the batch of 256, and 100 does not: take 128"),
        ({"precision": "half"}, "unknown precision 'half': choose one of float32, bfloat16, float16"),
        ({"offload": "dyn"}, "unknown offload 'dyn': choose one of none, conv, all, windowed; it is a search"),
        ({"algorithm": "fast"}, "unknown algorithm 'fast': choose one of p, m"),
        ({"segments": 0}, "segments must be a whole number of 1 or more, got 0"),
        ({"window": 3}, "window belongs to offload=\"windowed\", not to 'none': leave it out"),
        ({"every": 2}, 'every belongs to an offload policy, and offload is "none": leave it out'),
        ({"every": 0, "offload": "all"}, "every must be a whole number of 1 or more, got 0"),
        ({"changes": "stride"}, 'changes must be a tuple of names: write ("stride",)'),
        ({"changes": ("prune",)}, "unknown change 'prune': choose among stride, squeeze, pool"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(CourseError, match=re.escape(message)):
        Plan(**{"batch": 256, **wrong})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("LeNet", 8, TITAN_X, GEN3), "unknown network 'LeNet': choose one of AlexNet"),
        ((CHAIN, -1, TITAN_X, GEN3), "batch must be a whole number of 1 or more, got -1"),
        ((CHAIN, 8, "P1000", GEN3), "no device called 'P1000'"),
        ((CHAIN, 8, TITAN_X, None), "nobody confirmed the link of Titan X (Maxwell): give one"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused_in_one_line(arguments: Any, message: str) -> None:
    with pytest.raises(CourseError, match=re.escape(message)):
        Problem(*arguments)


def test_a_network_that_is_no_chain_cannot_be_cut() -> None:
    encoder = Network("encoder", encoder_block, (16, 64), 10)
    with pytest.raises(CourseError, match=r"Encoder is no nn\.Sequential"):
        Problem(encoder, 8, TITAN_X, GEN3).evaluate(Plan(8, segments=2))


def test_another_card_needs_no_other_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    one = problem()
    before = one.evaluate(Plan(BATCH, 6, segments=3))
    monkeypatch.setattr(plan_module, "training_step", lambda *_, **__: pytest.fail("traced again"))
    other = one.changed(device=replace(TITAN_X, memory_gb=24), batch=48)
    found = other.evaluate(Plan(48, 6, segments=3))
    assert (found.tensor_bytes, found.device.memory_gb) == (before.tensor_bytes, 24)
    assert found.seconds > 1.9 * before.seconds
    with pytest.raises(pytest.fail.Exception):
        one.changed(optimizer="adam").evaluate(Plan(BATCH))


def test_a_plan_of_a_class_of_ones_own_is_none() -> None:
    class Lies(Plan):
        """It may say another thing each time it is asked."""

    assert look_at(problem(), Plan(BATCH, 6)).found is not None
    assert look_at(problem(), Lies(BATCH, 6)).found is None


def test_four_times_64_images_take_longer_by_the_adding_up_of_gradients_and_by_launches() -> None:
    vgg = Problem("VGG-16", 256, TITAN_X, GEN3)
    whole, pieces = (vgg.evaluate(plan).seconds for plan in (Plan(256), Plan(256, 64)))
    two = vgg.schedule(Plan(256, 64)).work  # the first two micro-batches
    added = 3 * two.fast[np.array(two.ops) == "add_"].sum()
    assert added / (pieces - whole) == pytest.approx(0.88, abs=0.01)
    launches = 3 * len(vgg.schedule(Plan(256)).work.ops) * TITAN_X.launch_seconds
    assert added + launches == pytest.approx(pieces - whole, rel=0.05)
