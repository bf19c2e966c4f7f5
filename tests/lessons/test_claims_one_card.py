"""Claims of lesson 14: each verdict follows from its number, and another number gives another."""

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, WRONG
from course_utils.memory import Ledger
from lessons.one_card import claims as one_card

# Published figures beside what is traced: LitGPT's 16.24 > 13.50, two for keys and values, 2 bytes of 6.74 billion
# weights (13.48 of 13.52 GB) but 4.17 of 4.57 GB in 4 bits, and one way that needs 22.0 of 24 GiB.
EXPECTED = {89: PARTLY, 90: WRONG, 91: PARTLY, 92: RIGHT}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_holds_the_numbers():
    assert "GPT-2 2, SmolLM2-1.7B 2, Llama-3-8B 0.5, Qwen3-1.7B 1" in finding(90).evidence
    assert "13.48 GB and 4.17" in finding(91).evidence
    assert "21.97 GiB, and the context takes up to 512.00 MiB of the 23.64 GiB of an RTX" in finding(92).evidence


def test_another_trace_another_verdict(monkeypatch):
    monkeypatch.setattr(Ledger, "peak_bytes", property(lambda ledger: 4 * 2 * 8_030_261_248))
    assert finding(89).verdict == WRONG


def test_a_step_that_fits_does_not_with_every_map_kept():
    assert "1 of 5 ways fits. With every map kept that way takes 45.49 GiB" in finding(92).evidence


def test_another_card_cache_or_model_another_verdict(monkeypatch):
    monkeypatch.setattr(one_card, "CARD", "T4")
    assert finding(92).verdict == WRONG
    for four_bit, verdict in ((4.2, RIGHT), (3.37, PARTLY)):
        monkeypatch.setattr(one_card, "PUBLISHED", {"bfloat16": 13.52, "NF4": four_bit})
        assert finding(91).verdict == verdict
    monkeypatch.setattr(one_card, "BYTES", 4)  # as if a key and a value were one
    assert finding(90).verdict == PARTLY
    alone = one_card.SHAPES["SmolLM2-1.7B"]
    monkeypatch.setattr(one_card, "QWEN3", alone)
    monkeypatch.setattr(one_card, "SHAPES", {**one_card.SHAPES, "Llama-3-8B": alone})
    assert finding(90).verdict == RIGHT


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
