"""The explorer of lesson 13 at its corners: words agree with the reading, the picture is well laid out."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from drawn import assert_well_laid, one_move

from course_utils.machine import hardware
from course_utils.networks.language import ATTENTION, SHAPES, Options
from course_utils.techniques.capacity import fit
from course_utils.units import CourseError, format_bytes
from lessons.shared import language_steps
from lessons.shared.language_steps import kept_step, language_step
from lessons.transformers.explorer import IN_PIECES, LOGITS, MAPS, SCORES, STATES, culprits, transformer_explorer

SMALL = {
    "GPT-2": replace(SHAPES["GPT-2"], layers=6),
    "Llama": replace(SHAPES["Llama-3.2-1B"], layers=6),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_corner_says_what_is_read(name):
    explorer = transformer_explorer(name, 256, shapes=SMALL)
    for attention, recompute, (batch, card, loss) in itertools.product(
        ("eager", "fused"), ("none", "full"), ((1, "B200", IN_PIECES), (64, "T4", "all at once"))
    ):
        with one_move(explorer) as moved:
            explorer.attention.value, explorer.recompute.value = attention, recompute
            explorer.batch.value, explorer.device.value, explorer.loss.value = batch, card, loss
        view = moved()
        assert_well_laid(view.picture)
        words = " ".join(view.sentences)
        assert not re.search(r"\b(nan|inf|None)\b| -\d", words), words
        ledger = language_step(SMALL[name], 256, explorer.options).at(batch)
        assert f"peak {format_bytes(ledger.peak_bytes)}" in words
        assert fit(ledger, hardware.device(card)).sentence in words
        found = culprits(ledger, SMALL[name], 256, explorer.options.pieces)
        assert sum(found.parts.values()) == ledger.peak_bytes
        assert min(found.parts.values()) >= 0
        assert view.sentences[1].startswith(found.largest.capitalize())


@pytest.mark.parametrize("loss", [0, 16])
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("name", ["GPT-2", "GPT-2 XL", "Llama-3.2-1B", "Llama-3-8B"])
def test_no_map_of_a_layer_is_taken_for_logits_and_no_query_for_a_score(name, attention, loss):
    """The bounds are by hand: 14 bytes a logit, a part of them alive; no score where attention is fused."""
    shape, options = SHAPES[name], Options(attention, pieces=loss)
    for sequence in (128, 1024, 8192):
        for batch in (1, 8):
            ledger = kept_step(shape, sequence, options, "bfloat16", "adamw").at(batch)
            found = culprits(ledger, shape, sequence, loss)
            assert found.parts[LOGITS] <= 14 * batch * sequence * shape.vocabulary
            written = attention == "eager" and ledger.peak_phase != "update"
            assert (found.parts[SCORES] > 0) == written
            assert min(found.parts.values()) >= 0


def test_in_pieces_scores_are_the_largest_part():
    shape, options = SHAPES["GPT-2"], Options("eager", pieces=16)
    found = culprits(kept_step(shape, 1024, options, "bfloat16", "adamw").at(8), shape, 1024, 16)
    assert found.largest == SCORES


def test_culprits_are_who_they_are():
    shape = SMALL["GPT-2"]
    logits = 14 * 4 * 1024 * shape.vocabulary  # two bytes of the logits, and three tensors in float32
    eager = culprits(language_step(shape, 1024, Options("eager")).at(4), shape, 1024, 0).parts
    assert eager[LOGITS] == logits
    # Softmax's output in 16 bits: nothing is dropped, so that it is what the product reads, too.
    assert eager[SCORES] == 6 * 2 * shape.heads * 1024**2 * 4
    fused = culprits(language_step(shape, 1024, Options()).at(4), shape, 1024, 0).parts
    assert fused[LOGITS] == logits
    assert fused[SCORES] == 0
    assert fused[STATES] == eager[STATES]
    assert 0 < fused[MAPS] - (eager[MAPS] - 1024**2) < 0.05 * fused[MAPS]  # the mask; log-sum-exp of each token


def test_a_move_of_batch_or_card_traces_nothing(monkeypatch):
    explorer = transformer_explorer("GPT-2", 256, shapes=SMALL)
    monkeypatch.setattr(language_steps, "training_step", None)
    explorer.batch.value = 16
    explorer.device.value = "B200"
    assert "alert" not in explorer.words.value
    explorer.batch.value = 32
    assert "Last move, batch 16 to 32: the peak rises by" in explorer.words.value


def test_steps_that_are_kept_are_not_traced(monkeypatch):
    monkeypatch.setattr(language_steps, "training_step", None)
    if not language_steps._kept.names:
        pytest.skip("kept with another release of torch")
    explorer = transformer_explorer()
    said = []
    explorer.words.observe(lambda change: said.append(change["new"]), names="value")
    for control in (explorer.attention, explorer.recompute, explorer.loss, explorer.optimizer, explorer.sequence):
        for option in control.options:
            control.value = option[1] if isinstance(option, tuple) else option
    explorer.batch.value = 1
    assert said
    assert not [words for words in said if "alert" in words or "traced now" in words]


def test_it_says_at_once_that_a_step_is_traced():
    explorer = transformer_explorer("GPT-2", 256, shapes=SMALL)
    said = []
    explorer.words.observe(lambda change: said.append(change["new"]), names="value")
    explorer.sequence.value = 128
    assert "traced now" in said[0]
    assert "peak" in said[-1]
    explorer.sequence.value = 256
    assert len(said) == 3


def test_it_refuses_what_it_does_not_know():
    for wrong in (
        {"model": "GPT-5"}, {"sequence": 100}, {"batch": 3}, {"attention": "flash"}, {"recompute": "all"},
        {"numbers": "int8"}, {"device": "Voodoo 2"},
    ):  # fmt: skip
        with pytest.raises(CourseError):
            transformer_explorer(**wrong)
    assert "image/png" in transformer_explorer("GPT-2", 256, shapes=SMALL)._repr_mimebundle_()
