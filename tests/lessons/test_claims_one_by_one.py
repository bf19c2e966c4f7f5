"""The claim of lesson 05: its verdict follows from computed numbers, and other numbers give another."""

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import RIGHT, WRONG
from lessons.one_by_one import claims as one_by_one

EXPECTED = {77: RIGHT}


def test_verdict():
    # 64 · 64 · 256, 64 · 64 · 96, 256 · 96; the map that comes in is kept whole: all of its values.
    found = finding(77)
    assert found.verdict == EXPECTED[77]
    assert found.evidence == (
        "1,048,576 values become 393,216, 62.5 % fewer, for 24,576 weights; of the map before, 1,048,576 values stay "
        "kept for the backward pass"
    )


@pytest.mark.parametrize("after", [1_048_576, 393_215, 2_000_000])
def test_another_number_another_verdict(monkeypatch, after):
    monkeypatch.setattr(one_by_one, "squeezed", lambda: (1_048_576, after, 24_576, 4_194_304))
    assert finding(77).verdict == WRONG


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
