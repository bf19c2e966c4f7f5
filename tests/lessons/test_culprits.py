"""What the peak of a language model is for: logits, scores, other maps and what stays, each told by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lessons.shared.language_models import ATTENTION, SHAPES, Options
from lessons.shared.language_steps import kept_step, language_step
from lessons.transformers.explorer import LOGITS, MAPS, SCORES, STATES, culprits

SMALL = replace(SHAPES["GPT-2"], layers=6)


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
    shape = SMALL
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
