"""Claims of lesson 11: each verdict follows from its number, and another number gives another."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from verdicts import assert_none_was_certain, finding

from classroom.claims import OPEN, OUTDATED, PARTLY, RIGHT, WRONG
from course_utils import networks
from course_utils.machine import hardware
from course_utils.trace import training_step
from lessons.hardware.claims import dense_net
from lessons.many_gpus import claims as many_gpus
from lessons.shared.parallel import on_cards
from lessons.shared.sources import traced

# Worked out apart from the code: 208.5 MB of gradients against 15 ms of computation; 752.9 million a card, so 3.01
# billion on four and 2.26 on three; 99.2 % of VGG-16's work in 10.6 % of its parameters.
EXPECTED = {
    3: PARTLY,
    4: PARTLY,
    5: PARTLY,
    6: WRONG,
    7: PARTLY,
    9: PARTLY,
    10: RIGHT,
    95: OPEN,
    96: OPEN,
    93: OPEN,
}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_is_the_literatures():
    assert "0.21 GB of gradients in 104 ms. With batch 128 it computes for 15.4 ms" in finding(4).why
    assert "3.01 billion on 4 cards, 2.26 on the 3 pictured" in finding(6).evidence
    assert "99.2% of the arithmetic with 10.6% of the parameters" in finding(9).why
    # 62 GB of gradients, sent 1.5 times at 6 GB/s, are 15.5 s; four steps of 4.17 s in that time are 1.08
    assert "would be 15.5 billion" in finding(9).why
    assert "weights of its own, at most 1.1." in finding(9).evidence
    assert "5 GB/s, 4 GB/s of data" in finding(3).evidence
    assert hardware.link("InfiniBand QDR").nominal_gb_s == 4
    # 79,510 gradients of 4 bytes, sent 1.5 times at 6 GB/s: 79.5 of the 96.6 us that it waits
    assert "82% is for its bytes" in finding(5).why


@pytest.mark.parametrize("rate", [1e6, 1e-4])
def test_another_link_another_verdict(monkeypatch, rate):
    """GB/s: with no end of them nothing is waited for, with next to none everything is."""
    links = {name: replace(hardware.link(name), nominal_gb_s=rate) for name in
             ("InfiniBand QDR", "PCIe 2.0 x16", "PCIe 3.0 x16", "PCIe 5.0 x16", "NVLink 4")}  # fmt: skip
    monkeypatch.setattr(
        many_gpus, "on_cards", lambda ledger, card, link, *more: on_cards(ledger, card, links[link], *more)
    )
    fast = rate > 1
    assert finding(4).verdict == (WRONG if fast else RIGHT)
    assert finding(9).verdict == (PARTLY if fast else WRONG)  # a gain without sharing, or none to be explained


@pytest.mark.parametrize("batch", [2, 5])
def test_weights_without_sharing_by_hand(batch):
    """A convolution's parameters once for each of its 6 x 10 positions; of 5 channels and 2 or 5 images, not more."""
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(75, 7))
    ledger = training_step(module, (3, 6, 10), 7).at(batch)
    assert many_gpus.weights_without_sharing(ledger) == (3 * 9 + 1) * 5 * 60 + (75 + 1) * 7


def test_with_more_images_sharing_is_not_needed():
    """Lesson A: 3.2 times are passed without it with 400 images a card."""
    for network in (networks.vgg16, networks.alexnet):
        apart = {batch: many_gpus.with_and_without_sharing(traced(network).at(batch))[1] for batch in (32, 128, 400)}
        assert apart[32] < apart[128] < 1.1
        assert apart[400] > many_gpus.GOOD * many_gpus.CARDS == 3.2


@pytest.mark.parametrize("network", [networks.vgg16, networks.alexnet])
def test_on_cards_with_a_fast_link_sharing_is_not_needed_with_128_images(monkeypatch, network):
    monkeypatch.setattr(many_gpus, "CARD", "H100 SXM")
    monkeypatch.setattr(many_gpus, "LINK", "NVLink 4")
    assert many_gpus.with_and_without_sharing(traced(network).at(128))[1] == pytest.approx(4, abs=0.05)


def test_without_sharing_a_weight_is_used_once_for_an_image():
    """So VGG-16 would have as many as one image has multiply-adds, and a bias for each number of a layer's result."""
    table = traced(networks.vgg16).at(128).by_layer()
    owners = table[table["parameters"] > 0]
    multiply_adds = int(owners["flops"].sum()) // (2 * 128)
    biases = sum(math.prod(shape[1:]) for shape in owners["shape"])
    assert many_gpus.weights_without_sharing(traced(networks.vgg16).at(128)) == multiply_adds + biases


def test_a_dense_net_gains_by_its_link_and_its_batch(monkeypatch):
    """Either alone turns almost nothing into a gain; if today's PCIe did too, the sentence would be outdated."""
    # 52.1 M gradients of 4 bytes, sent 1.5 times at 3 GB/s: 104 ms, in which one card makes 7 steps of 15 ms, four 4
    assert "his link, 0.53 and 0.66 with batch 128 a card, 2.10 and 2.17 with 1,024" in finding(4).evidence
    assert "over PCIe 2.0 x16 0.96 and 1.14, and 2.84 and 2.88" in finding(4).evidence
    assert "over PCIe 5.0 x16 0.69 and 1.31, over NVLink 4 2.59 and 3.17" in finding(4).evidence
    digits = many_gpus.DIGITS
    weights = many_gpus.parameters(many_gpus.dense_step(*digits).at(2)) - sum(digits[1:])
    assert round(weights / 1e6, 2) == 12.11  # as published
    slow = {"NVLink 4": "PCIe 2.0 x16"}
    monkeypatch.setattr(
        many_gpus, "on_cards", lambda ledger, card, link, *more: on_cards(ledger, card, slow.get(link, link), *more)
    )
    assert finding(4).verdict == PARTLY
    monkeypatch.setattr(many_gpus, "LARGE", many_gpus.BATCH)
    assert finding(4).verdict == RIGHT
    slow |= {"PCIe 5.0 x16": "NVLink 4"}
    slow.pop("NVLink 4")
    assert finding(4).verdict == OUTDATED


def test_alexnets_dense_layers_are_what_makes_convolutions_partly_right(monkeypatch):
    """With a small batch their gradients are waited for; with the large one alone the sentence would be right."""
    dense_by_units = on_cards(traced(networks.alexnet).at(32), "GTX Titan", "PCIe 2.0 x16", 4, many_gpus.MIXED)
    assert "VGG-16 4.0 with 128 and 4.0 with 32, AlexNet 3.9 with 128 and 2.5 with 32" in finding(9).evidence
    assert "7.6 with 32, 1.1 with 4; AlexNet 3.1 with 128, 0.9 with 32" in finding(9).evidence
    assert "over 3.2 times at a ratio of 1.3 (VGG-16, 5 images) and of 1.2 (AlexNet, 46 images)" in finding(9).evidence
    assert finding(9).kind == (
        "one part, “because their weights are shared”, holds in each case; “parallelise well” in 3 of 4; "
        "the reason is tried in those 3"
    )
    assert dense_by_units.speed_up > 3.2
    monkeypatch.setattr(many_gpus, "SMALL", many_gpus.BATCH)
    assert finding(9).verdict == RIGHT


@pytest.mark.parametrize("network", [networks.vgg16, networks.alexnet])
def test_up_to_128_images_a_card_nothing_parallelises_well_without_sharing(network):
    gains = [many_gpus.with_and_without_sharing(traced(network).at(images))[1] for images in range(1, 129)]
    assert max(gains) == gains[-1] < many_gpus.GOOD * many_gpus.CARDS


def test_another_card_or_code_another_verdict(monkeypatch):
    monkeypatch.setattr(many_gpus, "BUFFER", 6144 * 2**20 - 8 * 10**9)
    assert finding(6).verdict == PARTLY  # by its own rule, and not with gradients
    monkeypatch.setattr(many_gpus, "CODING", 1.0)
    assert finding(3).verdict == RIGHT
    for gain, verdicts in ((5.0, [RIGHT, WRONG]), (1.0, [WRONG, RIGHT])):
        monkeypatch.setattr(many_gpus, "speed_up", lambda ledger, *more, gain=gain, **options: gain)
        assert [finding(number).verdict for number in (5, 7)] == verdicts


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)


@pytest.mark.parametrize(
    ("step", "batch", "device", "link", "ratio", "times"),
    [
        (dense_net, 256, "V100", "PCIe 3.0 x16", 0.19, 0.95),  # right of break-even, 0.18, and slower
        (lambda: traced(networks.googlenet), 2, "H100 SXM", "PCIe 3.0 x16", 0.08, 2.2),  # left of it, saved by launches
    ],
)
def test_where_lesson_11_says_that_its_one_number_misses(step, batch, device, link, ratio, times):
    ledger = step().at(batch)
    weights = sum(ledger.tape.layer_parameters.values())
    rate, over = hardware.device(device), hardware.link(link)
    used = ledger.by_layer()["flops"].sum() / (2 * weights)
    needed = 2 * 3 / 4 * rate.reached_flops_per_s("float32") / over.bytes_per_s
    assert used / needed == pytest.approx(ratio, abs=0.01)
    assert on_cards(ledger, device, link, 4).speed_up == pytest.approx(times, abs=0.05)
