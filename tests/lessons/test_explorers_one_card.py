"""The explorer of lesson 14 at its corners: words agree with the reading, the picture is well laid out."""

from __future__ import annotations

import re

import pytest
from drawn import assert_well_laid, one_move

from course_utils.machine import hardware
from course_utils.techniques.capacity import fit, room_for_tensors
from course_utils.units import CourseError, format_bytes
from lessons.one_card import fine_tuning
from lessons.one_card.explorer import AFTER, EACH, NOTHING, TRAINED, WITHIN, one_card_explorer
from lessons.one_card.fine_tuning import longest_sequence, step

CORNERS = [
    ("Llama-3-8B", "all weights", "AdamW", AFTER, EACH, 2048, 1, "RTX 4090"),
    ("Llama-3-8B", "all weights", "AdamW, state on the CPU", WITHIN, EACH, 8192, 1, "B200"),
    ("Llama-3-8B", "LoRA, base in 4 bits", "8-bit AdamW", AFTER, NOTHING, 128, 1, "P100"),
    ("TinyLlama-1.1B", "the head alone", "AdamW", AFTER, EACH, 2048, 64, "GTX 1080"),
    ("TinyLlama-1.1B", "LoRA", "AdamW, torch's default", AFTER, NOTHING, 128, 64, "RTX 2080"),
]


def set_to(explorer, model, trained, optimizer, update, recompute, sequence, batch, card):
    with one_move(explorer) as view:
        explorer.model.value, explorer.trained.value, explorer.optimizer.value = model, trained, optimizer
        explorer.update.value, explorer.recompute.value = update, recompute
        explorer.sequence.value, explorer.batch.value, explorer.device.value = sequence, batch, card
    return view


def test_every_corner_says_what_is_read():
    explorer = one_card_explorer()
    for corner in CORNERS:
        moved = set_to(explorer, *corner)
        model, trained, _, _, recompute, sequence, batch, name = corner
        assert "alert" not in explorer.words.value, explorer.words.value
        view, card = moved(), hardware.device(name)
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b|-\d", words.replace(model, "")), words
        ledger = step(model, explorer.method, sequence, batch, recompute == EACH)
        assert f"{model}, {batch:,} × {sequence:,} tokens: peak {format_bytes(ledger.peak_bytes)}" in words
        assert fit(ledger, card).sentence in words
        longest = longest_sequence(model, explorer.method, room_for_tensors(card), batch, recompute == EACH)
        assert (f"up to {longest:,} tokens" if longest else "No sequence fits") in words
        assert explorer.method.trained == TRAINED[trained][0]


def test_what_was_traced_is_not_traced_again(monkeypatch):
    explorer = one_card_explorer()
    monkeypatch.setattr(fine_tuning, "Tracer", lambda *_: pytest.fail("traced again"))
    for sequence, card in ((128, "T4"), (4096, "B200"), (8192, "H100 SXM")):
        explorer.sequence.value, explorer.device.value = sequence, card
        assert "alert" not in explorer.words.value
    assert "Last move" not in explorer.words.value  # the last was the card's


def test_steps_that_are_kept_are_not_traced(monkeypatch):
    monkeypatch.setattr(fine_tuning, "Tracer", lambda *_: pytest.fail("traced"))
    if not fine_tuning._kept.names:
        pytest.skip("kept with another release of torch")
    fine_tuning._deep_tapes.cache_clear()
    explorer = one_card_explorer()
    said = []
    explorer.words.observe(lambda change: said.append(change["new"]), names="value")
    for control in (explorer.trained, explorer.optimizer, explorer.update, explorer.recompute, explorer.batch):
        for option in control.options:
            control.value = option
        control.value = control.options[0]
    assert said
    assert not [words for words in said if "traced now" in words]


def test_it_says_what_the_last_move_did_and_why_a_setting_cannot_be():
    explorer = one_card_explorer()
    explorer.trained.value = "LoRA, base in 4 bits"
    assert "Last move, train LoRA to LoRA, base in 4 bits: the peak falls by" in explorer.words.value
    assert "image/png" in explorer._repr_mimebundle_()
    with one_move(explorer):
        explorer.optimizer.value, explorer.update.value = "AdamW, torch's default", WITHIN
    assert "one weight at a time" in explorer.words.value
    assert "one weight at a time" in explorer._repr_mimebundle_()["text/plain"]
    explorer.update.value, explorer.model.value, explorer.sequence.value = AFTER, "TinyLlama-1.1B", 4096
    assert "takes sequences of 2 to 2,048 tokens" in explorer.words.value


def test_it_refuses_to_start_with_what_it_does_not_know():
    for wrong in (
        {"model": "GPT-5"}, {"trained": "nothing"}, {"optimizer": "Lion"}, {"sequence": 3}, {"batch": 3},
        {"device": "Voodoo 2"}, {"device": "GTX 980"},
    ):  # fmt: skip
        with pytest.raises(CourseError):
            one_card_explorer(**wrong)
