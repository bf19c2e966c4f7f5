"""What lesson 03's explorer says in its special cases, and what only it has: devices as its axis, kept outlines."""

from __future__ import annotations

import re
from html import unescape

import pytest
from drawn import drawn_by, words_of
from made_steps import VGG, made_step
from torch import nn

from course_utils.machine.speed import predict_step
from course_utils.networks import Network
from course_utils.techniques.capacity import NO, fit, largest_batch
from course_utils.units import GIB, format_bytes, format_seconds
from lessons.memory import explorer as explorers
from lessons.memory.explorer import memory_explorer, sentences, time_sentence


def conv(inputs=3):
    return nn.Sequential(
        nn.Conv2d(inputs, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


OWN = {
    "mine": Network("mine", conv, (3, 64, 64), 5),
    "dense": Network("dense", lambda: nn.Linear(50, 10), (50,), 10),
    "picky": Network("picky", lambda: nn.Sequential(nn.MaxPool2d(100), conv()), (3, 224, 224), 5),
}


@pytest.fixture
def explorer():
    return memory_explorer("mine", batch=64, size=64, card_gib=4, networks=OWN)


def shown(explorer):
    """The picture and the words on the screen, words without their markup."""
    return explorer.figure.value, unescape(re.sub(r"<br>", "\n", re.sub(r"<(?!br>)[^>]*>", "", explorer.words.value)))


def test_sentences_when_it_fits():
    step = made_step(name="net")
    ledger = step.at(32)
    state, culprit, way_out = sentences(step, ledger, 12 * GIB)
    peak = format_bytes(ledger.peak_bytes)
    assert state.startswith(
        f"Batch 32 on a 12 GiB card: peak {peak}, in the backward phase, layer {ledger.peak_layer}."
    )
    assert state.endswith(fit(ledger, 12 * GIB).sentence)
    assert "It fits: the tensors leave " in state
    assert re.fullmatch(r"Feature maps are \d\d % of it; .* GiB of parameters, .* not grow with the batch\.", culprit)
    assert way_out == largest_batch(step, 12 * GIB).words


def test_sentences_when_feature_maps_break_the_budget():
    step = made_step(name="net")
    state, culprit, _ = sentences(step, step.at(256), 8 * GIB)
    over = format_bytes(step.at(256).requests.least_bytes - 8 * GIB)
    assert f"Batch 256 on an 8 GiB card: peak {format_bytes(step.at(256).peak_bytes)}" in state
    assert f"the tensors alone are {over} too much. Memory runs out in the forward phase, layer conv2." in state
    assert culprit.startswith(
        f"Feature maps break the budget: {format_bytes(step.at(256).by_role()['feature maps'])}, "
    )


def test_sentences_when_parameters_alone_are_too_much():
    step = made_step(name="net")
    _, culprit, way_out = sentences(step, step.at(4), GIB, "my card")
    assert culprit.startswith("Parameters, optimizer state and weight gradients alone take 1.5")
    assert culprit.endswith("more than the card has room for.")
    assert way_out.startswith(f"No batch fits: one sample alone needs {format_bytes(step.at(1).peak_bytes)},")


def test_sentences_when_memory_does_not_grow():
    step = made_step([("a", 100, 0)], sample=0, name="net")
    assert "does not grow with the batch" in sentences(step, step.at(1), GIB)[2]


@pytest.mark.parametrize("card", explorers.CARDS_GIB)
@pytest.mark.parametrize("batch", [1, 7, 512])
def test_what_is_said_of_the_batch_shown_and_of_the_largest_is_one_verdict(card, batch):
    step = made_step(VGG)
    state, _, way_out = sentences(step, step.at(batch), card * GIB)
    found = largest_batch(step, card * GIB)
    assert way_out == found.words
    assert fit(step.at(found.tight + 1), card * GIB).state == NO
    assert ("It does not fit" in state) == (batch > found.tight)
    if (batch <= found.fits and batch % found.stride == 0) or batch == found.some:
        assert "It fits" in state
    if batch > found.some and batch % found.stride == 0:
        assert "It fits" not in state


def test_it_says_what_the_last_move_did(explorer):
    step = explorer.step
    explorer.batch.value = 65
    change = format_bytes(step.at(65).peak_bytes - step.at(64).peak_bytes)
    assert shown(explorer)[1].endswith(f"Last move, batch 64 to 65: the peak rises by {change}.")
    explorer.batch.value = 64
    assert shown(explorer)[1].endswith(f"Last move, batch 65 to 64: the peak falls by {change}.")
    explorer.card.value = 24
    assert "Last move" not in shown(explorer)[1]


def test_the_picture_size_is_off_where_there_are_no_pictures(explorer):
    assert not explorer.size.disabled
    explorer.network.value = "dense"
    assert explorer.size.disabled
    assert "alert" not in explorer.words.value


def test_a_kept_outline_stays_while_the_batch_moves(explorer):
    kept = f"kept: {format_bytes(explorer.step.at(64).peak_bytes)}"
    explorer.keep.value = True
    explorer.batch.value = 200
    assert kept in [text.text for text in words_of(drawn_by(explorer))]
    explorer.keep.value = False
    assert kept not in [text.text for text in words_of(drawn_by(explorer))]


def test_with_a_device_picture_and_words_tell_its_time(explorer):
    explorer.device.value = "GTX 1080"
    picture, words = shown(explorer)
    time = predict_step(explorer.step.at(64), "GTX 1080")
    whole = format_seconds(time.total_seconds)
    assert f"alive over the {whole} predicted for GTX 1080" in picture
    assert words.splitlines()[-1] == time_sentence(time)
    assert time_sentence(time).startswith(f"Predicted on GTX 1080: {whole} a step, ")
    explorer.device.value = "operators"
    assert "redicted" not in "".join(shown(explorer))


def test_a_device_brings_its_card_and_another_can_be_chosen_after_it(explorer):
    explorer.device.value = "GTX 1080"
    assert explorer.card.value == 8
    assert "on an 8 GiB card" in shown(explorer)[1]
    explorer.card.value = 24
    assert "on a 24 GiB card" in shown(explorer)[1]
    explorer.device.value = "operators"
    assert explorer.card.value == 24
    assert memory_explorer("mine", size=64, networks=OWN, device="B200").card.value == 179
    assert memory_explorer("mine", size=64, networks=OWN, device="B200", card_gib=12).card.value == 12


def test_a_kept_outline_keeps_the_device_it_was_kept_on(explorer):
    explorer.device.value = "Tesla K40"
    explorer.keep.value = True
    explorer.device.value = "V100"
    ledger = explorer.step.at(64)
    slow, fast = (predict_step(ledger, name).total_seconds for name in ("Tesla K40", "V100"))
    texts = [text.text for text in words_of(drawn_by(explorer))]
    assert f"kept: {format_bytes(ledger.peak_bytes)}, {format_seconds(slow)}" in texts
    assert any(format_seconds(fast) in text for text in texts)
    explorer.device.value = "operators"
    assert f"kept: {format_bytes(ledger.peak_bytes)}" in [text.text for text in words_of(drawn_by(explorer))]


def test_what_a_device_cannot_compute_is_one_line(explorer):
    explorer.precision.value = "bfloat16"
    explorer.keep.value = True  # kept without a device
    explorer.device.value = "T4"
    assert shown(explorer)[1] == "T4 does not compute in bfloat16: choose float16 or float32"
    explorer.precision.value = "float32"
    assert shown(explorer)[1].startswith("the outline kept has no time: T4 does not compute in bfloat16")
    explorer.keep.value = False
    assert "alert" not in explorer.words.value


def test_unusual_starts_are_offered_too():
    explorer = memory_explorer("mine", batch=3000, size=50, card_gib=5.5, networks=OWN)
    assert (explorer.batch.value, explorer.size.value, explorer.card.value) == (3000, 50, 5.5)
    assert "5.5 GiB card" in explorer.words.value
