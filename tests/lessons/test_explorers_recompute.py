"""The explorer of lesson 10 at its corners: words agree with the reading, the picture is well laid out."""

from __future__ import annotations

import itertools
import re

import pytest
from drawn import assert_well_laid, one_move

from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.techniques.capacity import NO, fit
from course_utils.techniques.recompute import Chain
from course_utils.units import CourseError, format_bytes
from lessons.recompute.explorer import (
    EVERY,
    LEAST_TIME,
    LOWEST,
    NOTHING,
    OFFERED,
    RULES,
    recompute_explorer,
    segments_of,
)

RULES_TRIED = (NOTHING, "4 even segments", EVERY, LOWEST, LEAST_TIME)


@pytest.mark.parametrize("network", ["VGG-16", "GoogLeNet", "AlexNet", "52 M dense net"])
def test_every_corner_says_what_is_read(network):
    assert network in OFFERED
    explorer = recompute_explorer(network, 2)
    for rule, (batch, card) in itertools.product(RULES_TRIED, ((2, "B200"), (256, "GTX 980"), (512, "P100"))):
        with one_move(explorer) as moved:
            explorer.batch.value, explorer.device.value, explorer.rule.value = batch, card, rule
        device = hardware.device(card)
        if 'role="alert"' in explorer.words.value:
            assert rule == LEAST_TIME
            assert "take a smaller batch" in explorer.words.value
            continue
        view = moved()
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|-\d", words), words
        plain = explorer.chain.step().at(batch)
        cut = explorer.chain.step(segments_of(explorer.chain, rule, batch, device)).at(batch)
        assert f"Batch {batch:,} on the {card}: peak {format_bytes(cut.peak_bytes)}" in words
        assert fit(cut, device).sentence in words
        assert (" less than" in words) == (cut.peak_bytes < 0.995 * plain.peak_bytes)
        extra = predict_step(cut, card).total_seconds / predict_step(plain, card).total_seconds - 1
        assert f", {100 * extra:+.1f} %." in words
        if rule == LEAST_TIME:
            assert fit(cut, device).state != NO
        if rule == NOTHING:
            assert "0 % of the forward pass runs twice" in words


def test_a_move_of_the_card_traces_nothing(monkeypatch):
    explorer = recompute_explorer("AlexNet", 64)
    monkeypatch.setattr(Chain, "step", lambda chain, segments=(): chain._steps[tuple(sorted(segments))])
    for card in ("GTX 980", "T4", "B200"):
        explorer.device.value = card
        assert "alert" not in explorer.words.value
        assert "Last move" not in explorer.words.value


def test_it_says_what_the_last_move_did_and_refuses_what_it_does_not_know():
    explorer = recompute_explorer("AlexNet", 64, NOTHING)
    explorer.rule.value = LOWEST
    assert f"Last move, recompute {NOTHING} to {LOWEST}: the peak falls by" in explorer.words.value
    assert "image/png" in explorer._repr_mimebundle_()
    for wrong in ({"network": "LeNet"}, {"rule": RULES[1][:-1]}, {"batch": 3}, {"device": "Voodoo 2"}):
        with pytest.raises(CourseError):
            recompute_explorer(**wrong)
