"""Numbers that the text of lesson 02 says of steps, cards and rates, and no cell prints beside it."""

from io import BytesIO
from math import prod
from typing import Any

import pytest
import torch
from hardware_lesson import RTX, known, off, text_of_the_lesson, traced_in
from PIL import Image

from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import devices
from course_utils.memory import ROLES, StepTrace
from course_utils.networks import NETWORKS
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, MIB
from lessons.hardware.claims import bytes_a_parameter, dense_net
from lessons.hardware.measured_here import HEIGHT, WIDTH, as_input, best_steps, decoded_a_second, photograph
from lessons.hardware.offers import (
    SMALL_CARDS,
    duration,
    speed,
    todays_context,
    usual_batch,
    wide_resnet,
)
from lessons.shared.language_models import Options
from lessons.shared.language_steps import language_step
from lessons.shared.published import (
    XEONS,
    published,
)
from lessons.shared.sources import traced


def test_contexts_are_those_of_the_reports() -> None:
    text = text_of_the_lesson()
    assert f"*small* one of {context().least // MIB} MiB" in text
    for card in devices():
        lazy = [one.mib for one in reports() if one.architecture == card.architecture and one.loading == "lazy"]
        if card.architecture == "Kepler":
            assert not lazy
            assert card.name.removeprefix("Tesla ") in text
            assert todays_context(card) == context(card)
        else:
            assert todays_context(card).most == max(512 * MIB, *(int(mib * MIB) for mib in lazy), 0)


@pytest.mark.parametrize("name", [*NETWORKS, "GPT-2"])
def test_in_adams_update_the_batch_itself_is_left_of_a_sample(name: str) -> None:
    """GPT-2's step holds on to its scores; weight decay copies gradients, and frees the copies before the roots."""
    if name == "GPT-2":
        few = 1
        step, holding = (
            language_step(name, sequence=1024, numbers="float32", optimizer="adam", keep_output=keep)
            for keep in (False, True)
        )
        scores = 4 * 1024 * 50_257
        assert in_update(holding, 2).sum() - in_update(holding, 1).sum() == pytest.approx(scores, rel=1e-3)
        sample = 8 * 1024  # token ids; the labels are the same tensor
    else:
        few, network = 64, NETWORKS[name]
        with torch.device("meta"):
            step = training_step(network.build(), network.input_shape, network.classes, "adam")
        sample = 4 * prod(network.input_shape) + 8  # values in float32, a label
    some, more = (in_update(step, batch) for batch in (few, few + 1))
    parameters = int(step.at(few).by_layer()["parameters"].sum())
    assert more.sum() - some.sum() == pytest.approx(sample, abs=8)
    assert some.sum() - 20 * parameters - few * sample < 17 * MIB  # what cuBLAS has, and buffers
    if name != "GPT-2":
        assert some[ROLES.index("feature maps")] + some[ROLES.index("gradient maps")] < 16
    assert bytes_a_parameter(lambda w: torch.optim.Adam(w, 1e-3, weight_decay=1e-4)) == pytest.approx(20, abs=0.1)


def in_update(step: StepTrace, batch: int) -> Any:
    """Bytes by role at the moment of the update that has most."""
    ledger = step.at(batch)
    update = ledger.matrix[ledger.phases == "update"]
    return update[update.sum(axis=1).argmax()]


def test_a_frozen_convolution_keeps_its_input_and_a_frozen_linear_layer_does_not() -> None:
    for layer, size, kept in ((torch.nn.Conv2d(3, 4, 3), (2, 3, 8, 8), True), (torch.nn.Linear(3, 4), (2, 3), False)):
        given, saved = torch.randn(size, requires_grad=True), list[torch.Tensor]()
        with torch.autograd.graph.saved_tensors_hooks(lambda one, to=saved: to.append(one), lambda one: one):
            layer.requires_grad_(False)(given)
        assert (given.data_ptr() in [one.data_ptr() for one in saved]) is kept
    assert "the input of a frozen convolution too (of a frozen linear layer it does not)" in text_of_the_lesson()


def test_what_decodes_gives_inputs_of_the_network() -> None:
    jpeg = photograph()
    with Image.open(BytesIO(jpeg)) as image:
        assert image.size == (WIDTH, HEIGHT) == (500, 375)
    tried = [as_input(jpeg) for _ in range(20)]
    assert {tuple(one.shape) for one in tried} == {NETWORKS["ResNet-50"].input_shape}
    assert all(one.dtype == torch.float32 and -2.5 < one.mean() < 2.5 for one in tried)
    threads = torch.get_num_threads()
    assert decoded_a_second(runs=2, images=1) > 0
    assert torch.get_num_threads() == threads
    x, y = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)
    frozen = torch.nn.Sequential(torch.nn.Linear(3, 3).requires_grad_(False), torch.nn.Linear(3, 2))
    was = [one.clone() for one in frozen.parameters()]
    assert len(best_steps([frozen, torch.nn.Linear(3, 2)], x, y, rounds=2)) == 2
    assert [bool((a == b).all()) for a, b in zip(was, frozen.parameters(), strict=True)] == [True, True, False, False]


def test_the_rates_of_small_cards_are_cores_times_clock() -> None:
    """Cores, tensor cores, GHz, GB, GB/s, typed from their pages; a GeForce adds up in float32 at half the rate."""
    pages = {
        "RTX 3060": (3584, 112, 1.777, 12, 360),
        "RTX A4000": (6144, 192, 1.560, 16, 448),
        "RTX A5000": (8192, 256, 1.695, 24, 768),
    }
    assert pages.keys() == SMALL_CARDS.keys()
    for name, (cores, tensor_cores, clock, memory, bandwidth) in pages.items():
        card, halved = SMALL_CARDS[name], 1 if " A" in name else 2
        assert (card.memory_gb, card.bandwidth_gb_s) == (memory, bandwidth)
        assert card.usable_gb == {"RTX 3060": 11.76, "RTX A4000": 15.61, "RTX A5000": 23.67}[name]  # their issues
        assert card.float32_tflops == pytest.approx(cores * 2 * clock / 1e3, rel=0.005)
        assert card.tensor_tflops == pytest.approx(tensor_cores * 128 * 2 * clock / 1e3 / halved, rel=0.005)


def test_guesses_of_one_and_two_texts_are_those_of_the_thoughts_named() -> None:
    def most(optimizer: str, **options: Any) -> int:
        step = language_step("GPT-2", sequence=1024, options=Options(**options), numbers="float32", optimizer=optimizer)
        return largest_batch(step, 6 * GIB).fits

    assert most("momentum", attention="eager", dropout=0.1) == 1
    assert most("adam") == most("momentum", attention="eager") == 2
    assert most("momentum") == 3


def test_what_a_cpu_is_enough_for_is_said() -> None:
    (row,) = published("ResNet-50", XEONS)
    head, few = 10_000 * row.forward_ms / row.batch / 1e3, 100_000 * row.per_sample_ms / 1e3
    text = text_of_the_lesson()
    assert f"a head on 10,000 images takes the Xeons {duration(head)}: a CPU" in text
    borrowed = 100_000 / speed(traced_in("float32"), usual_batch(traced_in("float32"), 256, "T4"), "T4", known())
    assert f"All layers for 10 epochs take them {duration(few)} and a T4 {duration(borrowed)}: borrow one" in text
    written = [duration(seconds) for seconds in (30, 150, 36_000, 1e6)]
    assert written == ["30 seconds", "2.5 minutes", "10 hours", "12 days"]


def test_the_model_is_as_far_off_as_said() -> None:
    ratio = {card: [one.ratio for one in found] for card, found in known().items()}
    near = [one for card in (*RTX, "RTX 5090", "V100", "T4") for one in ratio[card]]
    assert max(abs(one - 1) for one in near) < 1 / 6
    text = text_of_the_lesson()
    assert min(abs(one - 1) for card in ("H100 SXM", "RTX A4000", "RTX A5000", XEONS) for one in ratio[card]) > 1 / 6
    near_ones = "the RTX 3090, 4090 and 5090, the V100 and, with another network, the T4"
    assert f"within a sixth of the timings of {near_ones}" in text
    assert {one.network for one in known()["T4"]} == {"Wide ResNet"}
    table = off()
    assert float(table.loc[("RTX 3090", "ResNet-50", "Lambda"), "model / timed"]) == round(ratio["RTX 3090"][0], 2)


def test_mixed_precision_gains_a_t4_less_than_the_model_says() -> None:
    row = off().loc[("T4", "Wide ResNet", "Ceshine Lee")]
    said = f"{row['mixed, timed']} as fast was timed on the T4, the model has {row['by the model'].split()[0]}"
    assert said in text_of_the_lesson()
    with torch.device("meta"):
        assert sum(p.numel() for p in wide_resnet().parameters()) == pytest.approx(36.5e6, rel=0.01)


def test_the_rule_in_full_errs_either_way() -> None:
    """With the gradients that are there at the peak it allows as many as the trace; the replay then asks for more."""
    step = dense_net()
    found, room = largest_batch(step, 1536 * MIB).fits, 1024 * MIB
    sample = step.at(found + 1).peak_bytes - step.at(found).peak_bytes
    gradients = step.at(found).by_role()["weight gradients"]
    assert (room - 12 * 52_136_032) // sample < found < (room - 8 * 52_136_032 - gradients) // sample
    vgg = traced(networks.vgg16)
    found = largest_batch(vgg, 6144 * MIB).fits
    sample = vgg.at(found + 1).peak_bytes - vgg.at(found).peak_bytes
    assert (5632 * MIB - 12 * 138_357_544) // sample > found


def test_gaps_and_scratch_memory_count_for_more_on_six_gib() -> None:
    """The tensors alone of two networks would fit in larger batches than the rule says; no network really does."""
    more = []
    for name, network in NETWORKS.items():
        with torch.device("meta"):
            step = training_step(network.build(), network.input_shape, network.classes, "momentum")
        fits = largest_batch(step, 6 * GIB).fits
        parameters = int(step.at(fits).by_layer()["parameters"].sum())
        rule = (5632 * MIB - 12 * parameters) // (step.at(fits + 1).peak_bytes - step.at(fits).peak_bytes)
        assert fits <= rule
        assert (fits == rule) is (name == "GPT-2")  # for all others it promises too much
        if step.at(rule + 1).peak_bytes <= 5632 * MIB:
            more.append(name)
    assert sorted(more) == ["52 M dense net", "ResNet-50"]


def test_the_smallest_card_that_runs_inference_of_resnet_50() -> None:
    with torch.device("meta"):
        step = training_step(networks.resnet50(), (3, 224, 224), 1000, None)
    batches = {card.name: largest_batch(step, card, todays_context(card)) for card in devices() if card.memory_gb <= 8}
    assert {name for name, found in batches.items() if found.fits >= 256} == {"GTX Titan", "GTX 1080", "RTX 2080"}
    assert batches["GTX 980"].fits < 256 <= batches["GTX 980"].tight
    assert "for inference a GTX 1080's 8 GiB will do" in text_of_the_lesson()
