"""The claim of lesson 06: its verdict follows from computed numbers, and other numbers give another."""

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, WRONG
from lessons.pooling import claims as pooling

EXPECTED = {78: WRONG}


def test_verdict():
    # 64 maps of 224 × 224 become 64 of 112 × 112; 128 · 64 · 112² values at 4 + 8 bytes are 1176 MiB.
    found = finding(78)
    assert found.verdict == EXPECTED[78]
    assert "4 times fewer values" in found.evidence
    assert "12 bytes for each value it produces, 1.15 GiB at batch 128" in found.evidence


@pytest.mark.parametrize(
    ("values_in", "values_out", "kept", "verdict"),
    [(400, 100, 1200, WRONG), (400, 100, 400, PARTLY), (100, 25, 0, PARTLY), (400, 50, 600, RIGHT)],
)
def test_another_number_another_verdict(monkeypatch, values_in, values_out, kept, verdict):
    monkeypatch.setattr(pooling, "around_pool", lambda ledger: (values_in, values_out, kept))
    assert finding(78).verdict == verdict


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
