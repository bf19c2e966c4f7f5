"""The published pairs of lesson 14: the same step with a base in 4 bits and in 16."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lessons.one_card import serving

PAIRS = Path(serving.__file__).with_name("t4_pairs.csv")


def test_pairs_have_a_provenance_and_each_step_stands_once() -> None:
    pairs = pd.read_csv(PAIRS, comment="#")
    assert "fitcheck-llm" in PAIRS.read_text(encoding="utf-8").splitlines()[1]
    assert not pairs.duplicated(["model", "attention", "batch", "sequence", "rank"]).any()
    assert not pairs.isna().any(axis=None)
    for bits in ("four_bits", "sixteen_bits"):
        assert (pairs[f"{bits}_weights_mib"] > 0).all()
        assert (pairs[f"{bits}_weights_mib"] < pairs[f"{bits}_mib"]).all()
