"""The explorer of lesson 08 at every corner: words agree with the reading, the picture is well laid out."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from amount import every_pair
from drawn import assert_well_laid, one_move

from course_utils.machine import hardware
from course_utils.networks import NETWORKS
from course_utils.techniques.capacity import fit
from course_utils.trace import OPTIMIZERS, training_step
from course_utils.units import CourseError, format_bytes
from lessons.half_precision import explorer as half_precision
from lessons.half_precision.explorer import BATCHES, OFFERED, half_explorer, sentences
from lessons.half_precision.precision import HALVES, Halving, speed_up

CARDS = ("GTX 980", "P100", "T4", "B200")  # the least memory, plain float16, tensor cores without bfloat16, all of it


def halving_of(explorer):
    full, half = (step.at(explorer.batch.value) for step in explorer.steps)
    return Halving(full, half)


@pytest.mark.parametrize(
    ("network", "optimizer"), [*itertools.product(OFFERED, ("sgd", "adamw")), (OFFERED[0], "momentum")]
)
def test_every_corner_says_what_is_read(network, optimizer):
    explorer = half_explorer(network, 2, optimizer)
    for batch, card, precision in every_pair((2, 128, 512), CARDS, HALVES):
        with one_move(explorer) as moved:
            explorer.batch.value, explorer.device.value, explorer.precision.value = batch, card, precision
        view, found, device = moved(), halving_of(explorer), hardware.device(card)
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|-\d", words), words
        assert f"Batch {batch} in {precision}: peak {format_bytes(found.half.peak_bytes)}" in words
        assert (" less than in float32" in words) == (found.saved > 0.005)
        assert (" more than in float32" in words) == (found.saved < -0.005)
        full, half = (fit(ledger, device) for ledger in (found.full, found.half))
        both = {"fits": "Both fit the", "tight": "Both are tight on the", "no": "Neither fits the"}[half.state]
        assert (both in words) == (full.state == half.state)
        assert (f"In halves it {half.words}; float32 {full.words}." in words) == (full.state != half.state)
        if precision == "bfloat16" and not device.bfloat16:
            assert f"The {card} has no bfloat16 arithmetic" in words
        elif abs(speed_up(found, device, precision) - 1) >= 0.005:
            assert f"{speed_up(found, device, precision):.2f} times as fast" in words
        assert ("no faster" in words) == (
            device.flops_per_s("float16") == device.flops_per_s() and precision == "float16"
        )


def test_a_move_of_batch_or_card_traces_nothing(monkeypatch):
    explorer = half_explorer()
    monkeypatch.setattr(half_precision, "training_step", lambda *_, **__: pytest.fail("traced again"))
    for batch, card in itertools.product(BATCHES, CARDS):
        explorer.batch.value, explorer.device.value = batch, card
        assert "alert" not in explorer.words.value
    explorer.precision.value = "bfloat16"


@pytest.mark.parametrize("name", OFFERED)
def test_two_bytes_are_two_bytes_in_either_format(name):
    network = NETWORKS[name]
    with torch.device("meta"):
        module = network.build()
    halves = [training_step(module, network.input_shape, network.classes, precision=half).at(64) for half in HALVES]
    assert (halves[0].matrix == halves[1].matrix).all()


def test_it_says_what_the_last_move_did_and_saves_a_still():
    explorer = half_explorer("52 M dense net")
    explorer.optimizer.value = "adam"
    assert "Last move, optimizer momentum to adam: the peak rises by" in explorer.words.value
    assert "nothing saved" in explorer.view().picture.alt or "nothing saved" in explorer.view().picture.svg
    explorer.device.value = "A100"
    assert "Last move" not in explorer.words.value
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == "\n".join(sentences(halving_of(explorer), hardware.device("A100"), "float16"))
    assert bundle["image/png"]
    assert "TF32" in bundle["text/plain"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"network": "LeNet"}, "unknown network 'LeNet': choose one of VGG-16, AlexNet"),
        ({"optimizer": "lion"}, "unknown optimizer 'lion'"),
        ({"precision": "float32"}, "unknown precision 'float32': choose one of float16, bfloat16"),
        ({"batch": 1}, "unknown batch 1: choose one of 2, 4, 8"),
        ({"device": "P1000"}, "no device called 'P1000': did you mean"),
    ],
)
def test_wrong_starts_are_refused_in_one_line(wrong, message):
    with pytest.raises(CourseError, match=re.escape(message)):
        half_explorer(**wrong)


def test_every_control_offers_what_the_course_knows():
    explorer = half_explorer()
    assert explorer.device.options == tuple(item.name for item in hardware.devices())
    assert explorer.optimizer.options == tuple(OPTIMIZERS)
    assert (explorer.network.options, explorer.batch.options) == (OFFERED, BATCHES)
