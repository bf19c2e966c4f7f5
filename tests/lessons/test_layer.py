"""Lesson 13's listing of a layer: each line's bytes by hand are those of the trace, at any length and batch."""

import pytest

from lessons.shared.language_models import SHAPES, Options
from lessons.shared.language_steps import language_step
from lessons.transformers.layer import LINES, kept_by_line, lines_of_a_layer

EAGER = Options(attention="eager", dropout=0.1)
GPT2 = SHAPES["GPT-2"]


@pytest.mark.parametrize(("sequence", "batch"), [(256, 3), (1024, 8)])
def test_each_line_keeps_what_the_hand_says_and_a_norm_its_two_numbers_a_token(sequence, batch):
    ledger = language_step("GPT-2", sequence, EAGER).at(batch)
    state, scores = sequence * batch * GPT2.hidden, GPT2.heads * sequence**2 * batch
    traced = kept_by_line(ledger, 5)
    for (line, (states, of_scores), _), size in zip(LINES, traced, strict=True):
        statistics = 8 * sequence * batch if "norm" in line else 0
        assert size == states * state + of_scores * scores + statistics, line
    of_layer = ledger.by_layer().set_index("layer")["saved feature maps"]
    assert sum(traced) == of_layer[of_layer.index.str.match(r"layers\.5(\.|$)")].sum()


def test_by_hand_it_is_the_formula_of_the_paper():
    assert [sum(terms) for terms in zip(*(by_hand for _, by_hand, _ in LINES), strict=True)] == [34, 5]


def test_without_dropout_the_lines_of_dropout_are_empty():
    ledger = language_step("GPT-2", 256, Options(attention="eager")).at(2)
    kept = dict(zip((line for line, *_ in LINES), kept_by_line(ledger, 5), strict=True))
    assert kept["w = dropout(w)"] == 0
    assert kept["w = softmax(mask(q @ k.T / √d))"] > 0


def test_the_text_ends_in_both_sums():
    last = lines_of_a_layer(language_step("GPT-2", 1024, EAGER).at(8), 5, 1024, GPT2).splitlines()[-1]
    assert last.split() == ["together", "684.00", "684.12"]
