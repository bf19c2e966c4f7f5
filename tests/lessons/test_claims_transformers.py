"""Claims of lesson 13: each verdict follows from its number, and another number gives another."""

from functools import partial

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import MISLEADING, PARTLY, RIGHT, WRONG
from course_utils.memory import Ledger
from lessons.shared.language_steps import language_step
from lessons.transformers import claims as transformers

# 84: parameters, two moments and one more of 5.75 GiB: 23.00, traced 29.06; where maps are largest it agrees. 85 and
# 86: Korthikanti and others (2022), 34 + 80 and 34 sbh, and 2 sbh for a layer's 16-bit input. 87: 4 in the update,
# without maps. 88: of attention with dropout alone, by hand (8h + 5as) / 8h less its log-sum-exp: 20.8 and 40.7;
# without dropout (8h + 2as) / 8h: 8.9 and 16.9.
EXPECTED = {84: PARTLY, 85: WRONG, 86: PARTLY, 87: MISLEADING, 88: PARTLY}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_is_the_literatures():
    assert "23.00 GiB by that formula" in finding(84).evidence
    assert "at first, 28.75. With 8 × 256: 32.86 by the formula, 32.88 traced" in finding(84).evidence
    assert "114 by the formula" in finding(85).evidence
    assert "selective checkpointing keeps 34.0 sbh a layer, full checkpointing 2.0" in finding(86).evidence


def test_another_number_another_verdict(monkeypatch):
    monkeypatch.setattr(Ledger, "peak_bytes", 4 * 4 * 124_439_808)
    assert [finding(number).verdict for number in (84, 87)] == [WRONG, RIGHT]
    monkeypatch.setattr(transformers, "a_layer", lambda options: 228.0)
    assert [finding(number).verdict for number in (85, 86)] == [RIGHT, WRONG]
    monkeypatch.setattr(transformers, "a_layer", lambda options: 34.0)
    assert finding(86).verdict == RIGHT


def test_without_moments_four_times_is_true_of_nothing(monkeypatch):
    assert "in the update the three together 4.0" in finding(87).evidence
    monkeypatch.setattr(transformers, "language_step", partial(language_step, optimizer="sgd"))
    assert finding(87).verdict == WRONG


def test_flash_attention_holds_where_everything_falls_and_fails_where_nothing_does(monkeypatch):
    for times, verdict in ((30.0, RIGHT), (9.0, WRONG)):
        found = [{"attention": times, "peak": times}] * 2
        monkeypatch.setattr(transformers, "times_less", lambda dropout, found=found: found)
        assert finding(88).verdict == verdict
    monkeypatch.setattr(transformers, "times_less", lambda dropout: [{"attention": 300 * dropout, "peak": 1.0}] * 2)
    assert finding(88).verdict == PARTLY  # dropout is the condition, and the peak was not claimed


def test_what_flash_attention_saves_is_what_the_formula_says():
    (short, long), (bare, bare_long) = transformers.times_less(0.1), transformers.times_less(0.0)
    for found, scores, sequence in ((short, 5, 2048), (long, 5, 4096), (bare, 2, 2048), (bare_long, 2, 4096)):
        by_hand = (8 * 768 + scores * 12 * sequence) / (8 * 768 + 4 * 12)  # a float32 for each head and token
        assert found["attention"] == pytest.approx(by_hand, rel=1e-3)


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
