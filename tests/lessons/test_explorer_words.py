"""What the explorers of single lessons say in their special cases; what all have in common is test_explorers.py's."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from drawn import said_by
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_step
from small_nets import on_meta
from torch import nn

from classroom import ROOT
from classroom.notebooks import read_notebook
from course_utils.machine.hardware import device, devices, links
from course_utils.machine.speed import predict_step
from course_utils.networks import NETWORKS, Network, mlp, small_cnn
from course_utils.techniques import capacity
from course_utils.techniques.capacity import (
    ALLOCATOR,
    CONTEXT,
    FITS,
    NO,
    TENSORS,
    TIGHT,
    demand,
    fit,
    largest_batch,
)
from course_utils.techniques.offload import simulate
from course_utils.trace import training_step
from course_utils.units import GIB, format_bytes, format_seconds
from lessons.batch_size.accumulation import Cut, accumulation, micro_batches
from lessons.batch_size.explorer import batch_explorer
from lessons.batch_size.explorer import sentences as accumulated
from lessons.capstone.explorer import chosen_segments, plan_explorer
from lessons.capstone.plan import Plan, Problem
from lessons.capstone.search import TIE
from lessons.hardware.explorer import hardware_explorer, on_todays
from lessons.hardware.explorer import sentences as held
from lessons.many_gpus.explorer import cards_explorer
from lessons.offload.explorer import MOVES, offload_explorer
from lessons.one_card.explorer import one_card_explorer
from lessons.pooling.explorer import pool_explorer
from lessons.recompute.explorer import LEAST_TIME, LOWEST, NOTHING, RULES, recompute_explorer
from lessons.shared import changes, language_steps
from lessons.shared.change_explorer import times
from lessons.shared.changes import EVERY_POOL
from lessons.shared.parallel import on_cards as on_many
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.stride.explorer import LAYERS, stride_explorer
from lessons.transformers.explorer import transformer_explorer
from lessons.why_gpus import explorer as why_gpus
from lessons.why_gpus.crossover import BatchTimes, batch_times, leads
from lessons.why_gpus.explorer import INPUTS, UNITS, sentences
from lessons.why_gpus.hidden_layer import hidden_layer_step

TITAN = device("Titan X (Maxwell)")


def conv():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5)
    )


OWN = {"mine": Network("mine", conv, (3, 224, 224), 5), "small": Network("small", small_cnn, (3, 32, 32), 10)}


# -- 01 ---------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(INPUTS), st.sampled_from(UNITS), st.integers(1, 10**6), st.sampled_from(devices()),
    st.sampled_from([None, *links()]),
)  # fmt: skip
def test_the_shares_are_of_the_gpus_time_and_whoever_is_slower_is_waited_for(inputs, units, batch, card, way):
    cpu = batch_times(hidden_layer_step(inputs, units, "cpu"), REFERENCE_CPU)
    gpu = batch_times(hidden_layer_step(inputs, units), card, link=way, ahead=True)
    state, culprit, way_out = sentences(cpu, gpu, batch, leads(cpu, gpu))
    parts = "launches|copies to issue|the transfer|computing"
    shares = {name: int(share) for name, share in re.findall(rf"({parts}) (\d+) %", culprit)}
    assert 97 <= sum(shares.values()) <= 102
    assert ("waits for its host" in culprit) == ("launches" in shares) == (gpu.fixed >= gpu.work(batch))
    assert ("the transfer" in shares or "copies to issue" in shares) <= (way is not None)
    assert state.endswith(("as fast.", "a tie."))
    assert way_out.startswith(("The CPU wins", "The GPU wins"))


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        (4e-3, "with 5 µs the GPU gets ahead near batch 100, with 15 µs the GPU gets ahead near batch 500."),
        (2e-3, "with 5 µs the GPU is ahead from batch 1, with 15 µs the GPU gets ahead near batch 200."),
        (1e-6, ""),
    ],
)
def test_the_crossover_is_said_at_the_launches_that_are_reported(fixed, words):
    cpu = BatchTimes("CPU", 1e-3, 1e-5, np.zeros((1, 2)), np.zeros((1, 2)))
    gpu = replace(cpu, name="GPU", fixed=fixed, per_sample=0.0, launches=fixed, ahead=True)
    way_out = sentences(cpu, gpu, 32, leads(cpu, gpu))[2]
    assert way_out.endswith(words) if words else "for a launch" not in way_out


def test_small_differences_are_not_written_as_nothing():
    assert [why_gpus._difference(change) for change in (0.001, 0.06, 2.34, 12.6, 1234.0)] == [
        "less than 0.05", "0.1", "2.3", "13", "1,234",
    ]  # fmt: skip


# -- 02 ---------------------------------------------------------------------------------------------------------------


def test_a_batch_no_card_holds():
    explorer = hardware_explorer("mine", batch=100_000, networks=OWN)
    assert "no card holds it" in explorer.figure.value
    b200 = on_todays(explorer.step, 100_000, [device("B200")])[0]
    assert said_by(explorer).endswith(
        f"B200, the largest that does not hold it, lacks {format_bytes(-b200.verdict.spare_bytes)}; "
        f"batches up to {b200.largest_batch:,} fit it."
    )
    assert fit(explorer.step.at(b200.largest_batch), b200.device).state == FITS
    found = largest_batch(explorer.step, b200.device)
    assert found.fits == b200.largest_batch < found.tight
    assert fit(explorer.step.at(found.fits + found.stride), b200.device).state != FITS


def test_bfloat16_needs_a_card_that_computes_in_it():
    step = training_step(nn.Linear(10, 5), (10,), 5, precision="bfloat16")
    states = {fit.device: fit.state for fit in on_todays(step, 8, devices())}
    assert {item for item, state in states.items() if state == capacity.CANNOT} == {
        item for item in devices() if not item.bfloat16
    }
    assert {state for item, state in states.items() if item.bfloat16} == {FITS}


def test_memory_that_does_not_grow_has_no_largest_batch():
    assert on_todays(made_step([("a", 100, 0)], sample=0), 4, [TITAN])[0].largest_batch is None


def test_what_is_said_of_a_tight_card_and_of_one_without_a_price():
    explorer = hardware_explorer("mine", networks=OWN)
    step, batch = explorer.step, 64
    asked = demand(step.at(batch))
    titan, h100 = device("GTX Titan"), device("H100 SXM")
    verdict = fit(step.at(batch), titan)
    gaps = replace(verdict, state=TIGHT, decided=ALLOCATOR)
    tight = capacity.CardFit(titan, TIGHT, gaps, 80)
    lacking = replace(verdict, state=NO, decided=TENSORS, card_bytes=verdict.tensor_bytes + verdict.context_bytes - GIB)
    fits, short = capacity.CardFit(h100, FITS, verdict, 90), capacity.CardFit(titan, NO, lacking, 0)
    said = held(step, batch, asked, [tight])
    assert said[1] == "No card surely holds it; on GTX Titan it is tight: its tensors fit, not all else."
    assert said[2] == f"On GTX Titan (orange): {gaps.sentence}"
    said = held(step, batch, asked, [fits, short])
    assert said[1] == (
        "1 of 2 cards holds it. The smallest is H100 SXM (no confirmed price); no price of any of them is confirmed."
    )
    assert said[2].endswith("the largest that does not hold it, lacks 1.00 GiB, and not even one sample fits.")
    assert held(step, batch, asked, [fits])[2].startswith("Every card that computes in this precision holds it")
    cannot = capacity.CardFit(titan, capacity.CANNOT, verdict, 90)
    assert held(step, batch, asked, [cannot])[2] == "None of them computes in bfloat16: take float16."


def test_a_device_of_ones_own_is_drawn_too():
    own = replace(device("RTX 3090"), name="my laptop", memory_gb=6)
    explorer = hardware_explorer("mine", networks=OWN, more_devices=[own])
    assert "my laptop" in explorer.figure.value
    assert f"of {len(devices()) + 1} cards" in said_by(explorer)


# -- 04 to 06 ---------------------------------------------------------------------------------------------------------


def test_another_network_offers_its_own_layers():
    explorer = stride_explorer("AlexNet", "conv2")
    explorer.network.value = "VGG-16"
    assert explorer.layer.options == LAYERS["VGG-16"]
    assert explorer.layer.value == "conv1_1"
    explorer.layer.value = "conv3_1"
    explorer.network.value = "ResNet-50"
    assert explorer.layer.value == "conv3_1"  # both have one
    assert "This is the stride that ResNet-50 has as published" in said_by(explorer)
    assert "the peak stays at" in said_by(explorer)


def test_a_network_with_other_layers_is_drawn_once(monkeypatch):
    explorer = stride_explorer("AlexNet", "conv2")
    drawn, view = [], explorer.view
    monkeypatch.setattr(explorer, "view", lambda: drawn.append(explorer.layer.value) or view())
    explorer.network.value = "VGG-16"
    assert drawn == ["conv1_1"]
    assert "Last move" not in said_by(explorer)  # two things changed, of which the layer is not the cause
    explorer.layer.value = "conv3_1"
    explorer.network.value = "ResNet-50"
    assert "Last move, network VGG-16 to ResNet-50: the peak rises by" in said_by(explorer)


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (4, "4 times smaller"), (2.73, "2.7 times smaller"), (0.25, "4 times larger"), (1, "as large as before"),
        (1.05, "4.8 % smaller"), (0.97, "3.1 % larger"), (1.004, "as large as before"),
    ],
)  # fmt: skip
def test_factors_in_words(factor, said):
    assert times(factor) == said


def test_a_max_pool_is_told_what_an_average_would_save():
    explorer = pool_explorer("AlexNet", EVERY_POOL, "max pool")
    average = changes.pool(NETWORKS["AlexNet"], EVERY_POOL, "average pool").after.at(128).peak_bytes
    assert "the peak stays at" in said_by(explorer)
    assert f"an average pool here would bring the peak to {format_bytes(average)}" in said_by(explorer)


# -- 07 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps():
    return accumulation(on_meta(small_cnn), (3, 32, 32), 10, name="mine")


def cuts(*peaks_gib):
    """Plans of a batch of 8 with these peaks, smallest micro-batch first, each a tenth faster than the one before."""
    return [
        Cut(micro, 8 // micro, int(peak * GIB), 1.0 - 0.1 * i)
        for i, (micro, peak) in enumerate(zip((2, 4, 8), peaks_gib, strict=True))
    ]


@pytest.mark.parametrize(
    ("peaks", "way"),
    [
        ((1, 2, 3), "Largest micro-batch that fits: 8, the whole batch, with no accumulation."),
        ((1, 2, 13), "Largest micro-batch that fits: 4, in 2 parts. That loses 12 % of time"),
        ((1, 12.1, 13), "Largest micro-batch that fits: 2, in 4 parts. That loses 25 % of time"),
        ((12.5, 12.6, 13), "No micro-batch surely fits: even 2 samples need 12.50 GiB"),
        ((3, 13, 2), "Largest micro-batch that fits: 8, the whole batch"),  # a dense network: at once takes least
    ],
)
def test_the_way_out_is_the_largest_that_fits(peaks, way):
    made = cuts(*peaks)
    steps = accumulation(on_meta(small_cnn), (3, 32, 32), 10)
    room, least = TITAN.memory_bytes - 512 * 2**20, steps.fit(steps.cut(2, 1, TITAN), TITAN)
    for cut in made:  # as if these were the traced peaks
        state = (FITS, "") if cut.peak_bytes <= room else (NO, TENSORS)
        steps._fits[cut.micro, cut.parts > 1, TITAN] = replace(least, state=state[0], decided=state[1])
    assert accumulated(steps, made, made[0], TITAN)[2].startswith(way)


def test_a_larger_one_that_is_tight_is_said_to_be():
    made, steps = cuts(1, 2, 3), accumulation(on_meta(small_cnn), (3, 32, 32), 10)
    least = steps.fit(steps.cut(2, 1, TITAN), TITAN)
    for cut, state in zip(made, (FITS, FITS, TIGHT), strict=True):
        steps._fits[cut.micro, cut.parts > 1, TITAN] = replace(least, state=state)
    assert "fits: 4, in 2 parts (8: tight). That loses" in accumulated(steps, made, made[0], TITAN)[2]


def test_the_state_and_what_accumulation_adds(steps):
    made = steps.cuts(64, TITAN)
    chosen = next(cut for cut in made if cut.micro == 16)
    state, added, _ = accumulated(steps, made, chosen, TITAN)
    assert state.startswith("A batch of 64 as 4 × 16 on Titan X (Maxwell): the peak is ")
    verdict = fit(steps.ledger(16, 4), TITAN)
    assert f"{format_bytes(chosen.peak_bytes)}. {verdict.sentence} {format_seconds(chosen.seconds)} predicted" in state
    extra = chosen.peak_bytes - training_step(on_meta(small_cnn), (3, 32, 32), 10).at(16).peak_bytes
    assert added.startswith(f"Accumulation adds {format_bytes(extra)} to the peak")
    assert accumulated(steps, made, made[-1], TITAN)[1].startswith("Nothing is accumulated")


def test_a_peak_that_is_too_high_is_said_to_be(steps):
    small = replace(TITAN, memory_gb=0.5)
    chosen = steps.cut(16, 4, small)
    assert steps.fit(chosen, small).decided == CONTEXT
    assert steps.fit(chosen, small).sentence in accumulated(steps, [chosen], chosen, small)[0]
    assert steps.largest_that_fits([chosen], small) is None


def test_where_the_peak_is_in_the_update_accumulation_adds_nothing():
    steps = accumulation(mlp((500, 2000, 10)), (500,), 10, "adam")
    made = steps.cuts(8, TITAN)
    assert accumulated(steps, made, made[0], TITAN)[1].startswith("Accumulation adds nothing to the peak")


def test_the_micro_batch_follows_the_batch():
    explorer = batch_explorer("small", 64, 16, networks=OWN)
    explorer.wanted.value = 96
    assert [value for _, value in explorer.micro.options] == micro_batches(96)
    assert explorer.micro.value == 16
    explorer.wanted.value = 8
    assert explorer.micro.value == 8
    assert said_by(explorer).startswith("A batch of 8 at once")
    assert "alert" not in explorer.words.value


# -- 09, 11, 14: advice that was false once -------------------------------------------------------------------------


def test_one_percentage_for_what_moving_costs():
    explorer = offload_explorer(moves="everything")
    share = re.search(r"for (\d+ %) more time", explorer.figure.value)[1]
    assert f"a step, {share} longer" in said_by(explorer)


def test_what_moves_faster_than_the_fastest_that_fits_is_told_with_its_verdict():
    """The lesson opens it where what fits is several times as dear as what is tight, at the same peak."""
    explorer = offload_explorer()
    plans, shown = explorer.plans, explorer.moves.value
    assert plans.best(FITS) == shown
    tight = plans.best(FITS, TIGHT)
    assert plans.fit(tight).state == TIGHT
    assert plans.get(tight).slowdown < plans.get(shown).slowdown
    assert f"Nothing here that fits is faster; faster, but tight: to move {tight}, " in said_by(explorer)


def test_what_is_cheaper_than_recomputing_and_where():
    """What the lesson tells of its three tasks."""
    explorer = offload_explorer()
    cost = explorer.view().number
    explorer.batch.value = 384
    assert abs(explorer.view().number - cost) < 0.005
    explorer.batch.value, explorer.precision.value = 192, "float16"
    assert explorer.view().number > 2 * cost
    for link, cheaper in (("PCIe 3.0 x16", False), ("PCIe 4.0 x16", True)):
        explorer.link.value = link
        plans = explorer.plans
        costs = {name: plans.get(name).slowdown for name in MOVES if name.startswith("everything")}
        assert (min(costs.values()) < plans.forward_share) is cheaper
        assert min(costs, key=costs.get) != "everything"


def test_no_scheme_is_recommended_that_does_not_fit():
    explorer = cards_explorer("VGG-16", batch=1024)
    assert explorer.readings()[explorer.scheme.value].peak_bytes > 12 * GIB
    assert said_by(explorer).split("\n")[2].startswith("No scheme has room on these cards: the least is ")


def test_what_a_stage_waits_for_is_its_wait_with_and_without_a_link():
    explorer = cards_explorer("AlexNet", "H100 SXM", "Ethernet 10 Gbit/s", "pipeline", 4, 256)
    waits = re.search(r"it waits (.*?), .* it would wait (.*?), for", said_by(explorer))
    found = explorer.readings()["pipeline"]
    endless = on_many(explorer.step.at(256), found.device, replace(found.link, nominal_gb_s=1e12), 4, "pipeline")
    assert waits[1] == format_seconds(found.idle_seconds)
    assert waits[2] == format_seconds(endless.idle_seconds)
    assert endless.idle_seconds < found.idle_seconds / 10


def test_what_the_lesson_says_of_its_three_tasks():
    explorer = cards_explorer("ResNet-50", cards=8, batch=4)
    assert explorer.view().number >= 7
    explorer.batch.value = 2
    assert explorer.view().number < 7
    explorer = cards_explorer("AlexNet", batch=64)
    ahead = {}
    for explorer.batch.value in (32, 64, 128, 256):
        found = explorer.readings()
        ahead[explorer.batch.value] = found["data parallel"].speed_up / found["one weird trick"].speed_up
    assert ahead[32] < 0.99 < ahead[64] < 1.01 < min(ahead[128], ahead[256])


def test_what_is_chosen_is_not_advised():
    explorer = one_card_explorer("Llama-3-8B", "LoRA, base in 4 bits", device="GTX 1080")
    assert explorer.view().advised
    assert "train" not in explorer.view().advised


# -- 10 --------------------------------------------------------------------------------------------------------------


def test_what_the_lesson_says_of_its_tasks():
    explorer = recompute_explorer("GoogLeNet", rule=NOTHING)
    source = (ROOT / "lessons" / "recompute" / "lesson.py").read_text(encoding="utf-8")
    pages = [" ".join(page.partition("</details>")[0].replace("\n#", "").split()) for page in source.split("<details>")]
    both, tasks = pages[-2:]
    peaks = {}
    for explorer.rule.value in RULES:
        if explorer.rule.value != LEAST_TIME:
            peaks[explorer.rule.value] = explorer.view().number
    fewest = min((rule for rule in peaks if rule.endswith("even segments")), key=peaks.get)
    assert f"{format_bytes(peaks[NOTHING])} all kept, {format_bytes(peaks[fewest])} in {fewest}, " in tasks
    assert f"{format_bytes(peaks[LOWEST])} by *lowest peak*" in tasks

    explorer.network.value, explorer.batch.value, explorer.rule.value = "VGG-16", 256, LEAST_TIME
    shown, card = explorer.view(), device("P100")
    explorer.rule.value = LOWEST
    assert shown.number == explorer.view().number
    assert f"{format_bytes(int(shown.number))} in {shown.sentences[2].partition(': ')[2].partition(' in ')[0]}" in tasks
    lowest = explorer.chain.step(explorer.chain.least_peak(256, card))
    verdict = fit(lowest.at(256), card)
    assert (verdict.state, verdict.decided) == (TIGHT, "workspace")
    assert f"the {format_bytes(verdict.workspace_bytes)} of scratch memory" in tasks

    explorer.network.value, explorer.batch.value = "52 M dense net", 64
    roles, peak = explorer.chain.step().at(64).by_role(), explorer.chain.step().at(64).peak_bytes
    assert sum(roles[role] for role in ("parameters", "weight gradients", "optimizer state")) > 0.95 * peak
    assert roles["feature maps"] == 4  # the loss
    assert explorer.view().number == peak

    explorer.network.value = "ResNet-50"
    chain = explorer.chain
    moved = simulate(chain.step(chain.evenly(19)).at(64), "P100", "all")
    alone = predict_step(chain.step(chain.least_peak(64)).at(64), "P100")
    assert f"{format_bytes(moved.peak_bytes)} in {1000 * moved.total_seconds:.0f} ms" in both
    assert f"which takes {1000 * alone.total_seconds:.0f} ms" in both
    assert moved.peak_bytes < alone.ledger.peak_bytes
    less = simulate(alone.ledger, "P100", "conv")
    assert f"are as low, in {1000 * less.total_seconds:.0f} ms" in both
    assert less.peak_bytes <= moved.peak_bytes


# -- 12 --------------------------------------------------------------------------------------------------------------


@cache
def vgg_plans():
    return plan_explorer(Problem("VGG-16", 256, TITAN, "PCIe 3.0 x16"))


def test_the_menu_has_every_plan_of_vgg_that_the_lesson_names():
    problem, offered = vgg_plans()._problem, {one.plan for one in vgg_plans()._all}
    of_vgg = []
    for cell in read_notebook(ROOT / "notebooks" / "12_capstone.ipynb").cells:
        texts = [output.get("data", {}).get("text/html", output.get("text", "")) for output in cell.get("outputs", [])]
        of_vgg += [cell.source if cell.cell_type == "markdown" else "", *texts]
    part = r"float16|offload (?:conv|all|windowed \d)|\d+ (?:chosen )?segments?"
    named = set(re.findall(rf"\b[248] × (?:128|64|32)(?: \+ (?:{part}))*", " ".join(" ".join(of_vgg).split())))
    named.remove("4 × 32")  # of 128 digits
    assert named >= {"4 × 64", "2 × 128 + float16", "2 × 128 + 2 chosen segments", "2 × 128 + offload windowed 5"}
    assert named <= {str(plan) for plan in offered}
    cheapest = problem.chain.cheapest(256, problem.room_bytes, problem.device)
    half, chosen = problem.chain.cheapest(128, 0.75 * problem.room_bytes, problem.device), chosen_segments(problem)
    assert chosen["2 chosen segments"] == half  # what *The answer* takes if small batches are slow
    alone = [{"precision": "float16"}, {"segments": cheapest}, {"segments": problem.least_peak_segments}]
    alone += [{"offload": policy} for policy in ("conv", "all", "windowed")]
    assert {Plan(256), *(Plan(256, **settings) for settings in alone)} <= offered


def test_how_much_longer_a_tied_plan_may_take_is_what_the_lesson_says():
    evaluate = vgg_plans()._problem.evaluate
    quickest, tied_too = evaluate(Plan(256, 128, offload="windowed")), evaluate(Plan(256, 64))
    source = (ROOT / "lessons" / "capstone" / "lesson.py").read_text(encoding="utf-8")
    told = " ".join(source.replace("\n#", "").split())
    for start, share in (
        ("4 × 64 is ", tied_too.seconds / quickest.seconds - 1),
        ("if an image takes over ", (1 + TIE) * quickest.seconds / tied_too.seconds - 1),
    ):
        assert f"{start}{100 * share:.2f} %" in told


def test_what_the_lesson_says_of_the_plans_to_be_found():
    explorer = vgg_plans()
    source = (ROOT / "lessons" / "capstone" / "lesson.py").read_text(encoding="utf-8")
    told = " ".join(source.partition("What you will see")[2].partition("</details>")[0].replace("\n#", "").split())
    evaluate, lowest = explorer._problem.evaluate, explorer._problem.least_peak_segments

    def plan(*settings):
        explorer.micro.value, explorer.precision.value, explorer.offload.value, explorer.segments.value = settings
        return evaluate(explorer.plan)

    moved, alone = ("windowed", 3), ("none", 5)
    least, fastest = plan(32, "float32", moved, lowest), plan(256, "float16", moved, 1)
    assert "No combination here that fits is faster." in said_by(explorer)
    half, single = plan(256, "float16", alone, 1), plan(256, "float32", moved, 1)
    assert "tied within 1 % with" in said_by(explorer)
    assert least.tensor_bytes == min(one.tensor_bytes for one in explorer._all if one.plan.precision == "float32")
    for found in (least, fastest):
        assert f"{format_bytes(found.tensor_bytes)} in {format_seconds(found.seconds)}" in told
    assert least.waiting_seconds == pytest.approx(0, abs=1e-3)
    assert half.seconds == pytest.approx(fastest.seconds, rel=1e-3)
    for found in (half, single):
        assert f"{format_bytes(found.tensor_bytes)} do not fit" in told
    assert f"it takes {format_seconds(single.seconds)}" in told
    assert {one.state for one in (half, single)} == {NO}


# -- 13 --------------------------------------------------------------------------------------------------------------


def test_steps_that_are_kept_are_not_traced_whatever_the_advice(monkeypatch):
    if not language_steps._kept.names:
        pytest.skip("kept with another release of torch")
    monkeypatch.setattr(language_steps, "training_step", None)
    explorer = transformer_explorer()
    for control in explorer.controls.values():
        for value in control._options_values:
            control.value = value
            assert "alert" not in explorer.words.value


@pytest.mark.parametrize(
    ("card", "numbers", "said"),
    [
        ("T4", "bfloat16", "But T4 does not compute in bfloat16"),
        ("T4", "mixed", "But T4 does not compute in bfloat16"),
        ("RTX 3090", "bfloat16", language_steps.LOST),
        ("T4", "float32", ""),
        ("RTX 3090", "mixed", ""),
    ],
)  # fmt: skip
def test_a_format_that_the_card_lacks_or_that_loses_updates_is_said(card, numbers, said):
    words = said_by(transformer_explorer(device=card, numbers=numbers))
    assert said in words
    assert ("bfloat16" in words) == bool(said)


# -- 08: what its sentences say of the catalogue ---------------------------------------------------------------------


def test_every_card_from_2020_on_computes_in_bfloat16():
    assert all(card.bfloat16 for card in devices() if card.year >= 2020)
