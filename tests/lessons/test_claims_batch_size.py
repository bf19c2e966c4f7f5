"""Lesson 07's claims: the verdicts worked out apart from the code, and that another number gives another."""

import pytest
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, WRONG
from course_utils.memory import Ledger
from lessons.batch_size import claims as batch_size

pytestmark = pytest.mark.usefixtures("fresh_traces")

# By hand, from the table of the Caffe2 notes (72.7, 127.5, 233.6, 450.6 ms): 4.54, 3.98, 3.65, 3.52 ms an image, so
# 29, 13 and 4 % more than at 128. VGG-16: 11.09 GB grow with the batch of 128 and 1.11 GB do not, so half of it saves
# 5.54 of 12.20. ResNet-50: 82.7 MiB an image, so 64 of them are 5.17 of 10.55 GiB: within a tenth of a half, and
# alone.
EXPECTED = {26: RIGHT, 79: PARTLY, 80: PARTLY}
EVIDENCE = {
    26: ["29% more", "by more than 1e-06", "23.6 % errors with 32 images a card, 34.7 % with 2"],
    79: [
        "10.31 GiB to 5.92 GiB, 43% less",
        "27%, 45% and 49% less",
        "AlexNet: PyTorch's peak 1.15 GiB to 940.29 MiB, 20% less",
        "10.55 GiB to 5.38 GiB, 49% less",
    ],
    80: ["64 costs 4% more", "32 13%", "16 29%"],
}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict_and_evidence(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found
    for words in EVIDENCE[number]:
        assert words in found.evidence


def test_a_smaller_batch_costs_neither_where_neither_time_nor_errors_grow(monkeypatch):
    monkeypatch.setattr(batch_size, "dearer", lambda batch: 0.0)
    assert finding(26).verdict == PARTLY
    monkeypatch.setattr(batch_size, "BATCH_NORM_ERROR", {32: 23.6, 2: 23.6})
    assert finding(26).verdict == WRONG


@pytest.mark.parametrize(("fixed", "verdict"), [(0, RIGHT), (25, RIGHT), (60, WRONG)])
def test_what_stays_decides_whether_half_is_half(monkeypatch, fixed, verdict):
    monkeypatch.setattr(Ledger, "network_wide_bytes", lambda ledger: 2 * ledger.batch + fixed)
    monkeypatch.setattr(Ledger, "peak_bytes", property(lambda ledger: 2 * ledger.batch + fixed))
    assert finding(79).verdict == verdict


@pytest.mark.parametrize(
    ("alexnet", "vgg", "resnet", "verdict"),
    [
        (0, 0, 0, RIGHT),
        (10_000, 0, 0, PARTLY),
        (0, 10_000, 0, PARTLY),
        (0, 0, 10_000, PARTLY),
        (10_000, 10_000, 0, PARTLY),
        (10_000, 10_000, 10_000, WRONG),
    ],
)
def test_one_network_alone_does_not_make_half_of_it(monkeypatch, alexnet, vgg, resnet, verdict):
    stays = {"alexnet": alexnet, "vgg16": vgg, "resnet50": resnet}
    for reading in ("network_wide_bytes", "peak_bytes"):
        read = lambda ledger: 2 * ledger.batch + stays[ledger.name]  # noqa: E731
        monkeypatch.setattr(Ledger, reading, property(read) if reading == "peak_bytes" else read)
    assert finding(79).verdict == verdict


def test_a_dear_32_would_be_a_last_resort(monkeypatch):
    monkeypatch.setattr(batch_size, "dearer", lambda batch: 16 / batch)
    assert finding(80).verdict == RIGHT


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
