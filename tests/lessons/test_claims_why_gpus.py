"""Lesson 01's claims: each verdict follows from its number, and another number gives another."""

from dataclasses import replace

import pytest
from torch import nn
from verdicts import assert_none_was_certain, finding

from classroom import ROOT
from classroom.claims import MISLEADING, OPEN, PARTLY, RIGHT, WRONG
from course_utils.machine import hardware, timing
from course_utils.machine.timing import MeasuredStep, Timing
from lessons.claims import CLAIMS
from lessons.shared import published
from lessons.why_gpus import claims as why_gpus
from lessons.why_gpus.crossover import BatchTimes, batch_times

# What the literature says, worked out apart from the code; see each claim's reason.
EXPECTED = {
    1: PARTLY,  # cnn-benchmarks: 8,495 ms against 920 is 9 times, on a K40; against 128.6 is 66, on a card of 2016
    36: PARTLY,  # 108 SMs of an A100, of the year of the text; 24 of a Titan X of 2015, whose 3,072 are lanes
    37: PARTLY,  # from one size to the next it may fall by a few per cent: where work overtakes the launches
    38: PARTLY,  # never behind in cnn-benchmarks; a reported MNIST network: 4.4 s an epoch on the CPU, 6.5 s on the GPU
    40: PARTLY,  # Titan X Maxwell to Pascal 1.47 to 1.60 times; a T4 has less of all than a V100 of the year before
    49: PARTLY,  # 400 weights, 500 with biases, 601 with one output
    50: RIGHT,  # 0.4 GB of weights, 1.2 GB with gradient and momentum
    51: RIGHT,
    52: PARTLY,
    53: OPEN,
    54: PARTLY,  # 72.7 ms at 16, 450.6 ms at 128; a digits network 2.7 ms at 1, 2.5 at 256
    55: PARTLY,  # 4.54 against 3.98 ms an image, and 3.65 against 3.52
    59: RIGHT,
    61: PARTLY,  # three lines: the model, the samples, their labels
}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found
    assert any(character.isdigit() for character in found.evidence), "the evidence holds a number"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "9 to 15 times, median 14, with a card sold by 2014 and cuDNN, up to 77 with later ones (Titan X (P"),
        (1, "own kernels 7 to 9 with the Tesla K40, 14 to 18 with the Titan X (Maxwell)"),  # 8,495 / 1,231 and so on
        (1, "reached 14% on the Xeons with VGG-16, the Tesla K40 37%"),  # 0.174 * 9.23 / 4.29
        (1, "the Titan X (Maxwell) 71% and 125%, by the direct"),  # 0.145 * 25.08 / 5.0 and 0.145 * 44.07 / 5.0
        (1, "if it takes twice as long as two, the card sold by 2014 has a median of 27"),  # 13.05 + 14.17
        (1, "1/5.6 of the two Xeons' peak: at the same share of it that card would be 49 to 85 "),  # 1,228.8 / 217.6
        (40, "11 of 12 cards"),
        (40, "Less of all three than a card of the generation before, of those in lesson 02's catalogue: RTX 2080 "),
        (40, ": RTX 2080 beside V100, T4 beside V100 (a K80"),
        (49, "400 weights, 500 with biases, 601 with one output"),
        (50, "100 M weights: 0.4 GB, 1.2 with gradient and momentum"),
        (54, "6.2 times for 8 times the images"),
        (55, "12.3%, 8.4%, 3.6%"),
    ],
)
def test_the_evidence_is_what_was_worked_out_by_hand(number, words):
    assert words in finding(number).evidence


@pytest.mark.parametrize(("seconds", "verdict"), [(0.02, RIGHT), (5.0, WRONG)])
def test_the_digits_are_judged_by_what_was_measured(monkeypatch, seconds, verdict):
    took = Timing(seconds, 0.0, 3)
    monkeypatch.setattr(timing, "measure_step_time", lambda *_, **__: MeasuredStep(took, took))
    found = finding(39)
    assert found.verdict == verdict
    assert f"{seconds * 5 * 469 / 60:.1f} minutes" in found.evidence  # 60,000 pictures in batches of 128


def with_times(monkeypatch, change):
    for rows in ("TIMES", "OTHER_TIMES"):
        monkeypatch.setattr(published, rows, tuple(change(row) for row in getattr(published, rows)))


def test_another_published_time_another_verdict(monkeypatch):
    with_times(monkeypatch, lambda row: replace(row, both_ms=100.0))
    assert finding(1).verdict == WRONG
    assert finding(40).verdict == WRONG
    assert finding(54).verdict == RIGHT
    assert finding(55).verdict == RIGHT  # twice the images in the same time: half saved for each
    assert finding(38).verdict == WRONG  # as fast as the CPU, so ahead in none
    with_times(monkeypatch, lambda row: replace(row, both_ms=float(row.batch)))
    assert finding(55).verdict == WRONG
    monkeypatch.setattr(published, "DIGITS_GPU_MS", {1: 1.0, 256: 256.0})
    assert finding(54).verdict == WRONG


def test_a_part_that_holds_in_one_case_is_enough_for_in_part_and_both_in_both_for_right(monkeypatch):
    assert finding(1).kind == (
        "some cases: “typically 20 times” in 1 of 2; “up to 50 times” in 1 of 2; against two 8-core Xeons"
    )
    cpu = published.XEONS
    for times, verdict in ((19, WRONG), (30, PARTLY), (60, RIGHT)):
        with_times(monkeypatch, lambda row, ms=10.0 * times: replace(row, both_ms=ms if row.device == cpu else 10.0))
        assert finding(1).verdict == verdict


def test_what_lesson_a_says_of_other_cpus_is_what_the_judge_found():
    text = (ROOT / "lessons/myths_and_facts/lesson.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "the K40's median would be 27: *typically* would have held in 2014 too" in text
    assert "less than a fifth of the two Xeons' peak. At the same share of it the K40 would be 49 to 85 times" in text
    assert "Its median over the eight networks is 14 times" in text


def test_transfers_cancel_the_gain_in_three_of_64_sizes_by_copies_longer_than_the_cpus_step(monkeypatch):
    """Lesson A: 26 are behind without a copy, 35 ahead with it. 4 bytes for each input at PCIe 3.0's rate."""
    gains = {size: why_gpus.gain(*size) for size in why_gpus.SIZES}
    lost = [size for size, (there, copied) in gains.items() if there > 1 >= copied]
    assert lost == [(784, 10, 4096), (4096, 10, 256), (4096, 10, 4096)]
    assert sum(there <= 1 for there, _ in gains.values()) == 26
    assert sum(copied > 1 for _, copied in gains.values()) == 35
    for inputs, units, batch in lost:
        copy = 4 * inputs * batch / hardware.link(why_gpus.LINK).bytes_per_s
        assert copy > why_gpus._cpu(inputs, units).at(batch)
    text = (ROOT / "lessons/myths_and_facts/lesson.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "Of 64, the GPU is behind in 26 even with the data on the card, and ahead in 35 even with copies." in text
    monkeypatch.setattr(why_gpus, "gain", lambda *size: (2.0, 1.1))
    assert finding(59).verdict == WRONG
    monkeypatch.setattr(why_gpus, "gain", lambda *size: (2.0, 1.1 - 0.2 * (size == lost[0])))
    assert finding(59).verdict == RIGHT


def test_peaks_are_compared_at_base_clocks():
    """Lanes, and MHz at the base clock; two Xeons begin 256 multiply-adds in each cycle of 2,400 MHz."""
    for card, lanes, clock in (
        ("Tesla K40", 2880, 745), ("Titan X (Maxwell)", 3072, 1000), ("GTX 1080", 2560, 1607),
        ("Titan X (Pascal)", 3584, 1417),
    ):  # fmt: skip
        assert why_gpus.peaks(card) == pytest.approx(lanes * clock / (256 * 2400), rel=0.01)


def test_another_device_another_verdict(monkeypatch):
    free = replace(hardware.device(why_gpus.CARD), launch_seconds=0.0)
    monkeypatch.setattr(hardware, "device", lambda name: free)
    monkeypatch.setattr(why_gpus, "CARD", free)
    assert {number: finding(number).verdict for number in (38, 51, 52, 53)} == {
        38: RIGHT,  # the link alone lets the CPU win, in few cases
        51: WRONG,
        52: RIGHT,
        53: OPEN,  # the two copies take longer than the CPU's work
    }
    monkeypatch.setattr(why_gpus, "LINK", None)
    assert (finding(38).verdict, finding(53).verdict) == (RIGHT, WRONG)
    assert finding(59).verdict == WRONG


def test_if_launches_waited_for_the_work_the_speed_up_would_grow(monkeypatch):
    monkeypatch.setattr(why_gpus, "batch_times", lambda step, device, link=None, ahead=False: batch_times(step, device))
    assert finding(37).verdict == RIGHT


def test_without_a_gain_the_speed_up_does_not_grow(monkeypatch):
    monkeypatch.setattr(why_gpus, "_gpu", lambda *_: BatchTimes("flat", 1e-3, 1e-3))
    monkeypatch.setattr(why_gpus, "_cpu", lambda *_: BatchTimes("flat", 1e-3, 1e-3))
    assert finding(37).verdict == WRONG


def test_before_the_a100_it_was_misleading(monkeypatch):
    monkeypatch.setattr(why_gpus, "MATHWORKS_YEAR", 2019)
    assert finding(36).verdict == MISLEADING


def test_layers_of_other_sizes_other_verdicts(monkeypatch):
    narrow = nn.Linear(4, 50, device="meta")
    monkeypatch.setattr(why_gpus.nn, "Linear", lambda *arguments, **options: narrow)
    assert [finding(number).verdict for number in (49, 50)] == [RIGHT, WRONG]


@pytest.mark.parametrize(("lines", "verdict"), [(1, RIGHT), (2, PARTLY), (4, WRONG)])
def test_the_lines_that_name_a_device_are_counted(monkeypatch, lines, verdict):
    monkeypatch.setattr(why_gpus.inspect, "getsource", lambda _: "x.to(self.device)\n" * lines)
    assert finding(61).verdict == verdict


def test_the_step_that_is_measured_names_its_device_three_times():
    assert "3 lines put something on the device" in finding(61).evidence


def test_every_claim_of_the_lesson_is_here():
    assert {*EXPECTED, 39} <= set(CLAIMS)


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
