"""Lesson 07's explorer and its reading: cuts against direct traces, words against cuts, every corner."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from drawn import assert_well_laid, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from small_nets import on_meta

from course_utils.figures import Picture
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.networks import NETWORKS, Network, mlp, small_cnn
from course_utils.techniques.capacity import CONTEXT, FITS, NO, TENSORS, fit
from course_utils.trace import training_step
from course_utils.units import GIB, CourseError, format_bytes, format_seconds
from lessons.batch_size import explorer as explorers
from lessons.batch_size.accumulation import SMALLEST, Cut, accumulation, micro_batches
from lessons.batch_size.explorer import WANTED, batch_explorer, sentences

TITAN = hardware.device("Titan X (Maxwell)")
OWN = {
    "mine": Network("mine", small_cnn, (3, 32, 32), 10),
    "dense": Network("dense", lambda: mlp((500, 2000, 10)), (500,), 10),
}


@pytest.fixture(scope="module")
def steps():
    return accumulation(on_meta(small_cnn), (3, 32, 32), 10, name="mine")


@pytest.fixture
def explorer():
    return batch_explorer("mine", 64, 16, networks=OWN)


def shown(explorer):
    """The picture and the words on the screen, words without their markup."""
    return explorer.figure.value, re.sub(r"<br>", "\n", re.sub(r"<(?!br>)[^>]*>", "", explorer.words.value))


# -- the reading -------------------------------------------------------------------------------------------------------


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


# -- the words ---------------------------------------------------------------------------------------------------------


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
        ((12.5, 12.6, 13), "No micro-batch surely fits: even 2 samples need 12.50 GiB."),
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
    assert sentences(steps, made, made[0], TITAN)[2].startswith(way)


def test_the_state_and_what_accumulation_adds(steps):
    made = steps.cuts(64, TITAN)
    chosen = next(cut for cut in made if cut.micro == 16)
    state, added, _ = sentences(steps, made, chosen, TITAN)
    assert state.startswith("A batch of 64 as 4 × 16 on Titan X (Maxwell): the peak is ")
    verdict = fit(steps.ledger(16, 4), TITAN)
    assert f"{format_bytes(chosen.peak_bytes)}. {verdict.sentence} {format_seconds(chosen.seconds)} predicted" in state
    extra = chosen.peak_bytes - training_step(on_meta(small_cnn), (3, 32, 32), 10).at(16).peak_bytes
    assert added.startswith(f"Accumulation adds {format_bytes(extra)} to the peak")
    assert sentences(steps, made, made[-1], TITAN)[1].startswith("Nothing is accumulated")


def test_a_peak_that_is_too_high_is_said_to_be(steps):
    small = replace(TITAN, memory_gb=0.5)
    chosen = steps.cut(16, 4, small)
    assert steps.fit(chosen, small).decided == CONTEXT
    assert steps.fit(chosen, small).sentence in sentences(steps, [chosen], chosen, small)[0]
    assert steps.largest_that_fits([chosen], small) is None


def test_where_the_peak_is_in_the_update_accumulation_adds_nothing():
    steps = accumulation(mlp((500, 2000, 10)), (500,), 10, "adam")
    made = steps.cuts(8, TITAN)
    assert sentences(steps, made, made[0], TITAN)[1].startswith("Accumulation adds nothing to the peak")


# -- the explorer ------------------------------------------------------------------------------------------------------


def test_every_control_changes_picture_or_words(explorer):
    moves = {"micro": 32, "wanted": 96, "device": "H200 SXM", "optimizer": "adam", "network": "dense"}
    for name, value in moves.items():
        before = shown(explorer)
        getattr(explorer, name).value = value
        assert shown(explorer) != before, name


def test_the_micro_batch_follows_the_batch(explorer):
    explorer.wanted.value = 96
    assert [value for _, value in explorer.micro.options] == micro_batches(96)
    assert explorer.micro.value == 16
    explorer.wanted.value = 8
    assert explorer.micro.value == 8
    assert shown(explorer)[1].startswith("A batch of 8 at once")
    assert "alert" not in explorer.words.value


def test_it_says_what_the_last_move_did(explorer):
    before = explorer.steps.cut(16, 4, TITAN).peak_bytes
    explorer.micro.value = 32
    change = format_bytes(explorer.steps.cut(32, 2, TITAN).peak_bytes - before)
    assert shown(explorer)[1].endswith(f"Last move, micro-batch 16 to 32: the peak rises by {change}.")
    explorer.device.value = "GTX 980"
    assert "Last move" not in shown(explorer)[1]


def test_a_network_is_traced_once(explorer, monkeypatch):
    calls = []
    monkeypatch.setattr(explorers, "accumulation", lambda *a, **k: calls.append(a) or accumulation(*a, **k))
    for wanted, device in itertools.product((32, 64, 128), ("GTX 980", "H100 SXM")):
        explorer.wanted.value, explorer.device.value = wanted, device
    assert calls == []
    for optimizer in ("adam", "momentum", "adam"):
        explorer.optimizer.value = optimizer
    assert len(calls) == 1


@pytest.mark.parametrize("network", NETWORKS)
def test_the_courses_networks_at_the_corners_of_every_control(network):
    explorer = batch_explorer(network, 8, 8)
    for optimizer, device in (("sgd", "GTX 980"), ("adamw", "H200 SXM")):
        explorer.optimizer.value, explorer.device.value = optimizer, device
        for wanted in (WANTED[0], 96, WANTED[-1]):
            explorer.wanted.value = wanted
            sizes = micro_batches(wanted)
            for micro in (sizes[0], sizes[len(sizes) // 2], sizes[-1]):
                explorer.micro.value = micro
                picture, words = shown(explorer)
                assert "alert" not in explorer.words.value
                assert not re.search(r"\b(nan|inf|None)\b", words)
                assert_well_laid(Picture(picture, "", 0, bytes))
                cut = explorer.steps.cut(micro, wanted // micro, hardware.device(device))
                assert f"the peak is {format_bytes(cut.peak_bytes)}. " in words
                assert explorer.steps.fit(cut, hardware.device(device)).sentence in words
                name = "at once" if micro == wanted else f"{wanted // micro:,} × {micro:,}"
                assert [text for text in words_of(Picture(picture, "", 0, bytes)) if text.text == name and text.bold]


def test_the_saved_notebook_carries_a_still(explorer):
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"].splitlines() == list(explorer.view().sentences)
    assert bundle["image/png"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of mine, dense"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"batch": 2.5}, "batch must be a whole number of 2 or more, got 2.5"),
        ({"batch": 1}, "the wanted batch must be 2 or more, got 1"),
        ({"micro": 5}, "micro must be one of 2, 4, 8, 16, 32, 64, got 5"),
        ({"device": "Voodoo 2"}, "no device called 'Voodoo 2'"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        batch_explorer(**{"network": "mine", "batch": 64, "micro": 16, "networks": OWN, **wrong})
