"""Lesson 02's claims: each verdict follows from its number, and another number gives another."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import MISLEADING, OPEN, OUTDATED, PARTLY, RIGHT, WRONG
from course_utils.machine import hardware as catalogue
from course_utils.machine import timing
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import MeasuredStep, Timing
from course_utils.memory import Ledger
from course_utils.techniques.capacity import Batches
from lessons.claims import CLAIMS
from lessons.hardware import claims as hardware

pytestmark = pytest.mark.usefixtures("fresh_traces")

# Worked out apart from the code: by hand (3 values a parameter with momentum; 9000·4000 + 4000·4000 + 4000·32 weights),
# from the papers (AlexNet's 60 million), from prices and years in the publications, and from what a claim leaves out.
EXPECTED = {
    2: MISLEADING, 8: RIGHT, 11: PARTLY, 12: PARTLY, 13: PARTLY, 14: WRONG, 15: RIGHT, 16: RIGHT, 17: PARTLY,
    18: OPEN, 25: WRONG, 41: WRONG, 42: PARTLY, 43: PARTLY, 44: OPEN, 45: RIGHT, 46: PARTLY, 47: PARTLY,
    56: PARTLY, 57: OUTDATED, 58: PARTLY, 62: PARTLY, 63: OUTDATED, 64: PARTLY, 65: OUTDATED, 83: OPEN,
}  # fmt: skip
# What the evidence must say, computed here by hand.
SAID = {
    2: f"{12 * 52_136_032 / 1e9:.2f} GB",
    12: "sgd 8 bytes, momentum 12 bytes, adam 20 bytes",
    13: f"{5744 * 2**20 // 8:,}; with gradients {5744 * 2**20 // 12:,}, with Adam {5744 * 2**20 // 20:,}",
    14: f"{9000 * 4000 + 4000 * 4000 + 4000 * 32:,} weights",
    15: f"{512_128_000 * 8 / 2**30:.2f} GiB",
    16: "60,965,224 in two columns, 61,100,840",
    18: f"{179 * 2**30 / 20 / 1e9:.1f} billion",
    42: f"{61.48 / 23.71:.2f} to {920.21 / 262.42:.2f} with cuDNN on 9; {2578.2 / 1298.65:.2f} to "
    f"{1231.01 / 587.97:.2f} with Torch's own kernels on 8 convolutional networks. Over 2 in 16 of 17 cases; "
    f"not ResNet-200 with Torch's own kernels, {2578.2 / 1298.65:.2f}; over 1.9 in 17, over 2.1 in 9",
    47: "gradients below the head: 0 bytes",
    56: f"{4 * 52_128_000 / 6e9 * 1e3:.1f} ms",
    83: f"{5499 / 999:.1f} times",
}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found
    assert any(character.isdigit() for character in found.evidence), "the evidence holds a number"
    assert SAID.get(number, "") in found.evidence


def test_every_claim_of_the_lesson_has_a_judge_here():
    own = {n for n, item in CLAIMS.items() if item.judge.__module__ == hardware.__name__}
    assert own == {*EXPECTED, 48}


@pytest.mark.parametrize(
    ("number", "reading", "value"),
    [
        (2, "peak_bytes", property(lambda ledger: 6 * 2**30)),
        (11, "reserved_bytes", lambda ledger: ledger.peak_bytes + 2**30),
        (15, "size", property(lambda ledger: np.full(len(ledger.tape.fixed), 2 * 2**30))),
        (47, "peak_bytes", property(lambda ledger: 2 * 2**30)),
    ],
)
def test_another_reading_another_verdict(monkeypatch, number, reading, value):
    monkeypatch.setattr(Ledger, reading, value)
    assert finding(number).verdict != EXPECTED[number]


def test_another_count_another_verdict(monkeypatch):
    monkeypatch.setattr(hardware, "bytes_a_parameter", lambda optimizer: 8.0)
    assert [finding(number).verdict for number in (12, 13)] == [RIGHT, RIGHT]
    monkeypatch.setattr(hardware, "BUFFER", 0)
    assert finding(13).verdict == WRONG
    monkeypatch.setattr(hardware, "weights", lambda module, biases=True: 512_128_000)
    assert [finding(number).verdict for number in (14, 16)] == [RIGHT, WRONG]
    monkeypatch.setattr(hardware, "largest_batch", lambda step, room: Batches(64, 64, 64))
    assert finding(17).verdict == RIGHT


def test_another_catalogue_another_verdict(monkeypatch):
    """In the autumn of 2016 most of this was right."""
    then = tuple(
        replace(item, year=2014, launch_usd=1200.0) if item.name == "Tesla K40" else item
        for item in catalogue.devices()
        if item.year <= 2016
    )
    monkeypatch.setattr(catalogue, "devices", lambda: then)
    assert [finding(number).verdict for number in (65, 41)] == [RIGHT, RIGHT]
    quadro = replace(then[0], name="Quadro")
    monkeypatch.setattr(catalogue, "devices", lambda: (*then, quadro))
    assert finding(83).verdict == WRONG
    monkeypatch.setattr(catalogue, "devices", lambda: then)
    until_2015 = tuple(item for item in then if item.year < 2016)
    monkeypatch.setattr(catalogue, "devices", lambda: until_2015)
    assert finding(25).verdict == RIGHT
    dear = replace(until_2015[0], name="RTX 2080", launch_usd=2000.0)
    monkeypatch.setattr(catalogue, "devices", lambda: (*until_2015, dear))
    assert finding(45).verdict == WRONG
    k40 = next(item for item in then if item.name == "Tesla K40")
    for price, year, verdict in ((520.0, 2013, RIGHT), (5499.0, 2020, WRONG), (None, 2013, OPEN)):
        sold = replace(k40, launch_usd=price, year=year)
        monkeypatch.setattr(catalogue, "devices", lambda sold=sold: (sold,))
        assert finding(44).verdict == verdict


def test_other_rates_other_verdicts(monkeypatch):
    monkeypatch.setattr(hardware, "predict_step", lambda *arguments: SimpleNamespace(total_seconds=1000.0))
    assert finding(8).verdict == WRONG
    monkeypatch.setattr(hardware, "predict_step", predict_step)
    monkeypatch.setattr(hardware, "ON_BOTH", {"cuDNN": hardware.ON_BOTH["cuDNN"]})
    assert finding(42).verdict == RIGHT
    monkeypatch.setattr(hardware, "ON_BOTH", {"cuDNN": {"VGG-16": (300.0, 262.0)}})
    assert finding(42).verdict == WRONG
    monkeypatch.setattr(hardware, "CAFFE_SWITCHES", ("USE_CUDNN := 1", "# CPU_ONLY := 1"))
    assert finding(62).verdict == RIGHT
    monkeypatch.setattr(hardware, "CAFFE_SWITCHES", ("# USE_CUDNN := 1", "CPU_ONLY := 1"))
    assert finding(62).verdict == WRONG
    old = catalogue.links()[:1]
    monkeypatch.setattr(catalogue, "links", lambda: old)
    assert finding(58).verdict == RIGHT
    monkeypatch.setattr(hardware, "on_cards", lambda *arguments: SimpleNamespace(speed_up=1.1))
    assert [finding(number).verdict for number in (46, 64)] == [WRONG, RIGHT]
    monkeypatch.setattr(
        hardware, "on_cards", lambda step, card, *more: SimpleNamespace(speed_up=1 + 3 * (card == "A100"))
    )
    assert finding(64).verdict == OUTDATED
    monkeypatch.setattr(hardware, "predict_step", lambda *_: SimpleNamespace(total_seconds=float(next(seconds))))
    seconds = iter((3, 2))
    assert finding(43).verdict == WRONG
    monkeypatch.delattr(hardware.torch.version, "hip")
    assert finding(63).verdict == RIGHT


def test_a_slow_machine_is_told_so(monkeypatch):
    for seconds, verdict in ((0.1, PARTLY), (30.0, WRONG)):
        timed = Timing(seconds, 0.0, 3)
        monkeypatch.setattr(hardware, "measure_step_time", lambda *a, timed=timed, **k: MeasuredStep(timed, timed))
        assert finding(48).verdict == verdict
    assert timing.measure_step_time is not hardware.measure_step_time


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
