"""Peaks that others measured: the file is whole, its rows agree with themselves, and the formula with Megatron's."""

from __future__ import annotations

import pytest

from lessons.shared.language_models import SHAPES
from lessons.transformers.peaks import MEGATRON, MEGATRON_SHAPE, t4_peaks


def test_twenty_rows_each_beside_its_trace():
    rows = t4_peaks()
    assert len(rows) == 20
    assert len({(row.name, row.attention, row.batch, row.sequence) for row in rows}) == 20
    assert all(row.measured % 512 == row.traced % 512 == 0 for row in rows)  # an allocator's blocks
    assert all(row.reserved >= row.measured and row.replayed >= row.traced for row in rows)
    assert sum(row.off == 0 for row in rows) >= 10
    assert max(abs(row.off) / row.measured for row in rows) < 0.001


def test_what_no_past_changes_is_exact_and_what_one_changes_is_no_more_off_than_that():
    for row in t4_peaks():
        assert row.least <= row.traced <= row.most
        assert (row.off == 0) == (row.least == row.most)
        assert abs(row.off) < row.most - row.least or row.off == 0


def test_the_models_are_those_of_the_table_of_shapes():
    for row in t4_peaks():
        shape, model = SHAPES[row.name], row.model
        assert (shape.vocabulary, shape.hidden, shape.inner, shape.layers, shape.heads, shape.kv_heads, shape.tied) == (
            model["vocab_size"], model["hidden_size"], model["intermediate_size"], model["num_layers"],
            model["num_attention_heads"], model["num_kv_heads"], model["tie_word_embeddings"],
        )  # fmt: skip


@pytest.mark.parametrize("run", MEGATRON, ids=lambda run: run.recompute)
def test_three_lines_of_arithmetic_are_near_an_a100(run):
    m = MEGATRON_SHAPE
    tokens = m["sequence"] * m["batch"]
    layer = {"none": 34 + 5 * m["heads"] * m["sequence"] / m["hidden"], "selective": 36, "full": 2}[run.recompute]
    formula = m["layers"] * tokens * m["hidden"] * layer + 6 * tokens * m["vocabulary"]
    assert formula == pytest.approx(run.step, rel=0.013)
