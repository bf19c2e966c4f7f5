"""Claims of lesson 08: each verdict follows from its number, and another number gives another."""

from dataclasses import replace

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, SOME, WRONG
from course_utils.machine import hardware
from lessons.half_precision import claims as half_precision
from lessons.half_precision.precision import Halving

# Worked out apart from the code: VGG-16 10.31 to 6.89 GiB is -33 %, not a half, and the dense net grows, but ResNet-50
# is within a tenth of a half; the P100 has twice float32's rate if it adds up in float16, which PyTorch does not.
EXPECTED = {81: PARTLY, 82: PARTLY}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_is_the_literatures():
    evidence = finding(81).evidence
    assert "10.31 GiB to 6.89 GiB, −33 %" in evidence
    assert "dense net: 619.25 MiB to 685.95 MiB, +11 %" in evidence
    assert "ResNet-50: 10.55 GiB to 5.59 GiB, −47 %" in evidence
    assert "1.5e-08 becomes 0 in float16, stays in bfloat16; with the loss times 65,536 it stays" in evidence
    # 2⁻²⁶; the least of float16 is 2⁻²⁴, of bfloat16 2⁻¹³³
    assert "bfloat16 autocast: ResNet-50 −47 %, VGG-16 −33 %, 52 M dense net +11 %." in evidence
    assert "a weight of 1 moves in float32, does not move in bfloat16; under autocast weights are float32" in evidence
    assert "8 of float32's 24 bits" in evidence  # 7 and 23 bits of fraction, and the digit before the point
    assert "weights too: ResNet-50 −49 %, VGG-16 −43 %, 52 M dense net −49 %" in evidence
    assert finding(81).kind == (
        f"{SOME}: “halve the memory” in 4 of 9; “nothing is lost” in 2 of 4 (gradients and steps)"
    )
    assert "measured 1.02 to 1.14 times" in finding(82).evidence
    assert "V100, batch 16: modelled 5.5, measured 1.4" in finding(82).evidence  # forward and backward, as measured
    assert "modelled 2.0 times as fast with sums in float16, 1.02 times with PyTorch's" in finding(82).evidence


@pytest.mark.parametrize(
    ("share", "gradient", "step", "verdict", "kind"),
    [
        (0.5, 1e-8, 1e-3, PARTLY, "one part, “halve the memory”, holds in each case; “nothing is lost” in 2 of 4"),
        (0.5, 1e-4, 1e-3, PARTLY, "one part, “halve the memory”, holds in each case; “nothing is lost” in 3 of 4"),
        (0.5, 1e-4, 1e-2, RIGHT, ""),
        (0.45, 1e-42, 1e-3, WRONG, ""),  # too small for bfloat16 too, and for float16 with a scale
        (0.33, 1e-8, 1e-9, WRONG, ""),  # a step that not even a float32 weight of 1 feels
        (0.33, 1e-8, 1e-3, PARTLY, "some cases: “halve the memory” in 0 of 9; “nothing is lost” in 2 of 4"),
        (0.33, 1e-4, 1e-2, PARTLY, "one part, “nothing is lost”, holds in each case; “halve the memory” in 0 of 9"),
    ],
)
def test_another_memory_gradient_or_step_another_verdict(monkeypatch, share, gradient, step, verdict, kind):
    monkeypatch.setattr(Halving, "saved", property(lambda self: share))
    monkeypatch.setattr(half_precision, "SMALL", gradient)
    monkeypatch.setattr(half_precision, "STEP", step)
    found = finding(81)
    assert (found.verdict, found.in_full) == (
        verdict,
        f"{verdict}: {kind} (gradients and steps)" if kind else verdict,
    )


@pytest.mark.parametrize(("rate", "verdict"), [(38.0, RIGHT), (None, WRONG)])
def test_another_rate_another_verdict(monkeypatch, rate, verdict):
    known = hardware.device
    monkeypatch.setattr(
        hardware, "device", lambda name: replace(known(name), float16_tflops=rate) if name == "P100" else known(name)
    )
    assert finding(82).verdict == verdict


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
