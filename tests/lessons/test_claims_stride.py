"""The claim of lesson 04: its verdict follows from computed numbers, and other numbers give another."""

from types import SimpleNamespace

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, WRONG
from lessons.shared import changes

EXPECTED = {76: PARTLY}


def test_verdict():
    # 3 × 3, padding 1, 224: 112 positions at stride 2, 56 at stride 4, so exactly 4 and 16 times fewer values.
    found = finding(76)
    assert found.verdict == EXPECTED[76]
    # The peak of the step with stride 2 in conv5_1 is where it was: the layers before it are not touched.
    assert "conv1_1, stride 2: output 4 times smaller" in found.evidence
    assert "conv1_1, stride 4: output 16 times smaller" in found.evidence
    assert "conv5_1, stride 2: output 4 times smaller, peak 1.0 times" in found.evidence


@pytest.mark.parametrize(
    ("values", "peaks", "verdict"), [((16, 8), (9, 5), RIGHT), ((16, 4), (9, 9), WRONG), ((16, 4), (9, 10), WRONG)]
)
def test_another_number_another_verdict(monkeypatch, values, peaks, verdict):
    fake = SimpleNamespace(output_values=values, peaks=lambda batch: peaks)
    monkeypatch.setattr(changes, "stride", lambda *_: fake)
    assert finding(76).verdict == verdict


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
