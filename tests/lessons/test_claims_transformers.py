"""Claims of lesson 13: each verdict follows from its number, and another number gives another."""

import numpy as np
import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import MISLEADING, PARTLY, RIGHT, WRONG
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLE, Ledger
from course_utils.units import GIB
from lessons.shared.language_models import SHAPES, Options
from lessons.shared.language_steps import language_step
from lessons.transformers import claims as transformers

# 84: parameters, two moments and one more of 5.75 GiB: 23.00, traced 29.06; where maps are largest it agrees. 85 and
# 86: Korthikanti and others (2022), 34 + 80 and 34 sbh, and 2 sbh for a layer's 16-bit input. 87: 4 in the update,
# without maps, and XL's fused peak with tied embeddings. 88: attention's peak, see the last test but one; what it keeps
# with dropout (8h + 5as) / 8h less its log-sum-exp: 20.8 and 40.7; without (8h + 2as) / 8h: 8.9 and 16.9.
EXPECTED = {84: PARTLY, 85: WRONG, 86: PARTLY, 87: PARTLY, 88: PARTLY}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_is_the_literatures():
    assert "23.00 GiB by that formula" in finding(84).evidence
    assert "at first, 28.75. With 8 × 256: 32.86 by the formula, 32.88 traced" in finding(84).evidence
    assert "GPT-2, 1,024 tokens: 114.02 sbh bytes traced, 114 by the formula, 228" in finding(85).evidence
    assert "GPT-2 XL, 512 tokens: 74.0" in finding(85).evidence  # 34 + 5 · 25 · 512 / 1600
    assert "selective checkpointing keeps 34.0 sbh a layer, full checkpointing 2.0" in finding(86).evidence


def test_another_number_another_verdict(monkeypatch):
    monkeypatch.setattr(Ledger, "peak_bytes", 4 * 4 * 124_439_808)
    monkeypatch.setattr(transformers, "ADAM_MODELS", ("GPT-2",))
    assert [finding(number).verdict for number in (84, 87)] == [WRONG, RIGHT]
    double = lambda options, *case: 2 * transformers.formula(*case) if case else 2.0  # noqa: E731
    monkeypatch.setattr(transformers, "a_layer", double)
    assert [finding(number).verdict for number in (85, 86)] == [RIGHT, WRONG]
    monkeypatch.setattr(transformers, "a_layer", lambda options, *case: 228.0)
    assert finding(85).verdict == PARTLY
    monkeypatch.setattr(transformers, "a_layer", lambda options: 34.0)
    assert finding(86).verdict == RIGHT


def test_four_times_holds_for_one_fused_update_and_without_it_of_another_quantity_or_none(monkeypatch):
    assert "GPT-2 XL, fused update 4.1; with 8 texts up to 26.4 and 10.8. " in finding(87).evidence
    assert "moments in GPT-2's update 4.0" in finding(87).evidence
    monkeypatch.setattr(transformers, "ADAMS", {"default": "adamw"})
    assert finding(87).verdict == MISLEADING
    monkeypatch.setattr(transformers, "ADAMS", {"default": "momentum"})
    assert finding(87).verdict == WRONG


def test_flash_attention_holds_where_everything_falls_and_fails_where_nothing_does(monkeypatch):
    found = finding(88)
    assert found.kind == "some cases: 3 of 4; not with heads of 128, all in 16 bits"
    assert "heads of 64, all in 16 bits, 13.2 and 26.0 times with dropout or without; " in found.evidence
    assert "heads of 128, all in 16 bits, 6.8 and 13.2 times with dropout or without; " in found.evidence
    assert "heads of 128, softmax in float32, 13.2 and 26.0 times with dropout or without. " in found.evidence
    assert "would fall 10.0 and 19.6 times" in found.evidence
    for times, verdict in ((30.0, RIGHT), (9.0, WRONG)):
        monkeypatch.setattr(transformers, "peak_less", lambda *_, times=times: [times, times])
        assert finding(88).verdict == verdict
    monkeypatch.setattr(transformers, "peak_less", lambda head, dropout, wide: [30.0, 30.0 if wide else 19.0])
    assert (finding(88).verdict, finding(88).kind.count("all in 16 bits")) == (PARTLY, 2)


def test_softmax_in_float32_nearly_doubles_what_attention_written_out_takes():
    for head in (64, 128):
        pairs = zip(*(transformers.peak_less(head, 0.0, wide) for wide in (False, True)), strict=True)
        assert all(1.9 < wide / narrow < 2 for narrow, wide in pairs)


@pytest.mark.parametrize(
    ("model", "dropout", "by_hand"),
    [("GPT-2", 0.1, 2 + 1 + 2), ("GPT-2", 0.0, 2), ("Llama-3.2-1B", 0.0, 4 + 2)],  # Llama's softmax is in float32
)
def test_bytes_that_attention_written_out_keeps_of_a_score(model, dropout, by_hand):
    step = language_step(model, 1024, Options("eager", dropout=dropout), layers=2, optimizer="sgd").at(4)
    tape, scores = step.tape, 4 * 1024 * 1024 * SHAPES[model].heads
    last = int((tape.event_phase == 0).nonzero()[0][-1])
    of_layer = np.array([name.startswith("layers.1.attention") for name in tape.layer_names])[tape.layer]
    kept = of_layer & (tape.role == ROLE["feature maps"]) & (tape.birth <= last) & (tape.death > last + 1)
    assert step.size[kept & (step.size >= scores)].sum() == by_hand * scores


def test_gpt_2_xl_peaks_at_the_loss_too_and_its_layers_are_most_of_it():
    step = language_step("GPT-2 XL", 1024, Options(dropout=0.1)).at(8)
    assert step.tape.event_ops[step.peak_event] == "_log_softmax_backward_data"
    kept_by_layers = 34 * SHAPES["GPT-2 XL"].layers * 8 * 1024 * SHAPES["GPT-2 XL"].hidden
    assert (round(step.peak_bytes / GIB, 1), kept_by_layers > step.peak_bytes / 2) == (34.1, True)


def test_what_the_recap_says_of_layers_and_loss_computed_again():
    plain, again = Options(dropout=0.1), Options(dropout=0.1, recompute="full", pieces=16)
    steps = [language_step("GPT-2", 1024, way).at(8) for way in (plain, again)]
    assert [round(step.peak_bytes / GIB, 2) for step in steps] == [8.51, 1.25]
    assert [round(1e3 * predict_step(step, "H100 SXM", "bfloat16").total_seconds) for step in steps] == [28, 40]


def test_what_flash_attention_saves_is_what_the_formula_says():
    (short, long), (bare, bare_long) = transformers.times_less(0.1), transformers.times_less(0.0)
    wide, wide_long = transformers.times_less(0.1, head=128)
    last, last_long = transformers.times_less(0.0, head=128)
    for found, heads, scores, sequence in (
        (short, 12, 5, 2048), (long, 12, 5, 4096), (bare, 12, 2, 2048), (bare_long, 12, 2, 4096), (wide, 6, 5, 2048),
        (wide_long, 6, 5, 4096), (last, 6, 2, 2048), (last_long, 6, 2, 4096),
    ):  # fmt: skip
        by_hand = (8 * 768 + scores * heads * sequence) / (8 * 768 + 4 * heads)  # a float32 for each head and token
        assert found["kept"] == pytest.approx(by_hand, rel=1e-3)


@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attentions_own_peak_by_hand(head, dropout):
    """Bytes of a value.

    Written out: queries, keys, values and the values' gradient, 8; for a score 2 each for its weight, its gradient,
    softmax's temporary and its result; cuBLAS's two workspaces. Fused: queries, keys, values, the output, their four
    gradients and a float32 sum, 20; for a row of scores a float32.
    """
    n, rows = 2048, 8 * 12 * 2048
    written, fused = (transformers.peak_alone(n, head, Options(way, dropout=dropout)) for way in ("eager", "fused"))
    assert written == pytest.approx(rows * (8 * head + 4 * 2 * n) + 2 * 8_519_680, rel=1e-3)
    assert fused == pytest.approx(rows * (20 * head + 4), rel=1e-3)


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
