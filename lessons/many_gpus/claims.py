"""Claims of lesson 11, many GPUs. Those about the cloud, clusters and today (8, 46, 56, 57, 64) are in `hardware`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import torch
from torch import nn

from classroom.claims import OPEN, OUTDATED, RIGHT, SOME, Finding, by_cases, by_parts, claim
from course_utils import networks
from course_utils.machine import hardware
from course_utils.memory import Ledger, StepTrace
from course_utils.trace import training_step
from course_utils.units import GB, MIB, format_seconds, in_gb
from lessons.hardware.claims import BUFFER, dense_net
from lessons.shared.parallel import DATA, MIXED, UNITS, on_cards
from lessons.shared.sources import DETTMERS, traced

CARD, LINK, CARDS, BATCH = "GTX Titan", "PCIe 2.0 x16", 4, 128  # what the texts of 2014 are about
CLUSTER = "InfiniBand QDR"  # the link of the cluster that Dettmers writes of
LARGE = 1024  # a batch that is large beside BATCH
SMALL = 32  # and one that is small
FEW = 4  # so few that VGG-16 too computes for hardly longer than it sends
LITTLE_GAIN = 1.5  # times as fast on four cards, and it is almost nothing
LITTLE = 0.05  # of a speed-up, which nobody minds losing
GOOD = 0.8  # of the ideal speed-up, and a network parallelises well
# Cireşan and others, "Deep, Big, Simple Neural Nets for Handwritten Digit Recognition" (2010), 12.11 million weights.
DIGITS = (841, 2500, 2000, 1500, 1000, 500, 10)
QDR_BITS, CODING = 40e9, 8 / 10  # InfiniBand QDR, four lanes; 8 bits travel as 10 (InfiniBand specification)


def speed_up(ledger: Ledger, scheme: str = DATA, cards: int = CARDS, overlap: bool = True) -> float:
    """Of cards and links of 2014."""
    return on_cards(ledger, CARD, LINK, cards, scheme, overlap).speed_up


@lru_cache(maxsize=2)
def dense_step(*units: int) -> StepTrace:
    """The step of a dense network of so many inputs, and so many units in each layer."""
    with torch.device("meta"):
        module = networks.mlp(units)
    return training_step(module, units[:1], units[-1], name="-".join(map(str, units)))


def parameters(ledger: Ledger) -> int:
    """Parameters of the network of a step."""
    return sum(ledger.tape.layer_parameters.values())


@claim(3, DETTMERS, "The InfiniBand network between two machines moves 40 Gbit/s.")
def _infiniband() -> Finding:
    raw, data = QDR_BITS / 8, QDR_BITS / 8 * CODING
    pcie = hardware.link(LINK)
    return Finding(
        by_cases(8 * rate == 40e9 for rate in (raw, data)),
        f"40 Gbit/s are {raw / GB:.0f} GB/s, {data / GB:.0f} GB/s of data after 8b/10b coding; {pcie.name} has "
        f"{pcie.nominal_gb_s:g} on paper",
        "So many bits are on the line; of data it is a fifth less, half of what the cards' own slots moved then.",
    )


@claim(4, DETTMERS, "Large dense networks gain almost nothing from data parallelism.")
def _dense_gains_nothing() -> Finding:
    nets = dense_net(), dense_step(*DIGITS)
    cases = (
        (CARD, CLUSTER, BATCH),
        (CARD, CLUSTER, LARGE),
        (CARD, LINK, BATCH),
        (CARD, LINK, LARGE),
        ("H100 SXM", "PCIe 5.0 x16", BATCH),
        ("H100 SXM", "NVLink 4", BATCH),
    )
    found = [[on_cards(step.at(batch), card, link, CARDS) for step in nets] for card, link, batch in cases]
    little = [step.speed_up < LITTLE_GAIN for steps in found for step in steps]
    of_2014, today = little[:8], little[8:]
    told = [" and ".join(f"{step.speed_up:.2f}" for step in steps) for steps in found]
    far, far_large, near, near_large, pcie, nvlink = told
    ledger, own = dense_net().at(BATCH), found[0][0]
    return Finding(
        OUTDATED if all(of_2014) and not any(today) else by_cases(little),
        f"times as fast on {CARDS} cards as on one, modelled, for its author's 52 M net and one of 12 M for digits. "
        f"{CARD}s over {CLUSTER}, his link, {far} with batch {BATCH} a card, {far_large} with {LARGE:,}; over {LINK} "
        f"{near}, and {near_large}. H100s, batch {BATCH}, over PCIe 5.0 x16 {pcie}, over NVLink 4 {nvlink}",
        "Every weight is used once for a sample and sent once a step. So the link, the card's arithmetic and the batch "
        f"decide together. Over {CLUSTER} the 52 M net sends {in_gb(4 * parameters(ledger)):.2f} GB of gradients in "
        f"{format_seconds(own.link_seconds)}. With batch {BATCH} it computes for "
        f"{format_seconds(own.compute_seconds)}.",
        rule=f"less than {LITTLE_GAIN} times as fast is almost nothing; right if every case is so, wrong if none is, "
        "outdated if every case of 2014 is and none of the H100s; otherwise partly right",
        kind=f"{SOME}: {sum(little)} of {len(little)}",
    )


@claim(5, DETTMERS, "Small networks parallelise well by data.")
def _small_nets() -> Finding:
    nets = {
        "784-100-10": dense_step(784, 100, 10),
        "GoogLeNet": traced(networks.googlenet),
        "VGG-16": traced(networks.vgg16),
    }
    ledgers = {name: step.at(BATCH) for name, step in nets.items()}
    gains = {name: speed_up(ledger) for name, ledger in ledgers.items()}
    by_size = sorted(ledgers, key=lambda name: parameters(ledgers[name]))
    told = "; ".join(
        f"{name} ({parameters(ledgers[name]) / 1e6:,.1f} M parameters) {gains[name]:.1f}" for name in by_size
    )
    endless = replace(hardware.link(LINK), nominal_gb_s=1e9)
    least, free = (on_cards(ledgers["784-100-10"], CARD, link, CARDS) for link in (LINK, endless))
    for_bytes = 1 - free.idle_seconds / least.idle_seconds
    return Finding(
        by_cases(gains[name] > GOOD * CARDS for name in by_size[:-1]),  # the last is not small
        f"times as fast on {CARDS} cards of 2014, batch {BATCH} a card, modelled: {told}",
        f"What decides is how often a weight is used in a step, not how many there are. Of the time the smallest "
        f"waits, {for_bytes:.0%} is for its bytes: with an infinitely fast link it is {free.speed_up:.1f} times as "
        f"fast. What is missing to {CARDS} then is latency.",
    )


@claim(6, DETTMERS, "Model parallelism over the cards pictured trains networks of about 3 billion connections.")
def _three_billion() -> Finding:
    each = (6144 * MIB - BUFFER) // (4 * 2)  # the rule of 2014: half of the card for momentum
    with_gradients = (6144 * MIB - BUFFER) // (4 * 3)
    return Finding(
        by_cases(round(3 * size / 1e9) == 3 for size in (each, with_gradients)),
        f"its own rule gives {each:,} a card: {4 * each / 1e9:.2f} billion on 4 cards, {3 * each / 1e9:.2f} on the 3 "
        f"pictured; with gradients counted {4 * with_gradients / 1e9:.2f} on 4",
        "Split by units, each card does keep its share of the weights. But the sum is for four cards, by a rule "
        "that leaves out gradients.",
    )


@claim(7, DETTMERS, "Several GPUs are best used for separate experiments.")
def _separate_experiments() -> Finding:
    nets = (dense_net().at(BATCH), traced(networks.alexnet).at(BATCH), traced(networks.resnet50).at(32))
    gains = [speed_up(ledger) for ledger in nets]
    lost = [1 - gain / CARDS for gain in gains]
    return Finding(
        by_cases(share > LITTLE for share in lost),
        f"{CARDS} experiments on {CARDS} cards are {CARDS} times as many, with nothing sent; one experiment on all of "
        f"them: {min(gains):.1f} (dense) to {max(gains):.2f} (ResNet-50) times as fast, modelled for 2014",
        "Where an experiment parallelises well, four of them, one after another on all cards, take about as long.",
    )


@claim(9, DETTMERS, "Convolutional networks parallelise well, because their weights are shared.")
def _convolutions_share() -> Finding:
    own = weights_without_sharing(traced(networks.vgg16).at(BATCH))
    table = traced(networks.vgg16).at(BATCH).by_layer().set_index("layer")
    convolutions = [layer for layer in table.index if layer.startswith("conv")]
    work = float(table.loc[convolutions, "flops"].sum() / table["flops"].sum())
    weights = float(table.loc[convolutions, "parameters"].sum() / table["parameters"].sum())
    nets = {"VGG-16": networks.vgg16, "AlexNet": networks.alexnet}
    gains = {
        (name, batch): with_and_without_sharing(traced(net).at(batch))
        for name, net in nets.items()
        for batch in (BATCH, SMALL)
    }
    good = GOOD * CARDS
    few = {case: on_cards(traced(nets[case[0]]).at(case[1]), CARD, LINK, CARDS) for case in (*gains, ("VGG-16", FEW))}
    told = ", ".join(
        f"{name} " + " and ".join(f"{gains[name, batch][0]:.1f} with {batch}" for batch in (BATCH, SMALL))
        for name in nets
    )
    ratios = {case: f"{step.compute_seconds / step.link_seconds:.1f} with {case[1]}" for case, step in few.items()}
    against = "; ".join(f"{net} " + ", ".join(ratios[case] for case in ratios if case[0] == net) for net in nets)
    first = " and of ".join(
        f"{ratio:.1f} ({name}, {images} images)"
        for name, (images, ratio) in ((name, enough(net)) for name, net in nets.items())
    )
    well = [gain > good for gain, _ in gains.values()]
    because = [without < good for gain, without in gains.values() if gain > good]  # else there is nothing to explain
    return Finding(
        by_cases(well + because),
        f"times as fast on {CARDS} GTX Titans of 2013, modelled, by images a card: {told}; if every position had "
        f"weights of its own, at most {max(without for _, without in gains.values()):.1f}. A card's time computing, "
        f"over its time sending: {against}. Four first gain over {good:.1f} times at a ratio of {first}",
        f"A shared weight is used at every position and its gradient is sent once: VGG-16's convolutions do {work:.1%} "
        f"of the arithmetic with {weights:.1%} of the parameters. With weights of their own there would be "
        f"{own / 1e9:.1f} billion. What decides is for how long a card computes beside what it sends: AlexNet computes "
        "little for its many dense weights, and so does VGG-16 with few images.",
        rule=f"right if both gain over {good:.1f} times with {BATCH} images and with {SMALL}, and less without "
        "sharing; wrong if neither gains so much",
        kind=by_parts({"parallelise well": well, "because their weights are shared": because})
        + f"; the reason is tried in those {sum(well)}",
    )


def weights_without_sharing(ledger: Ledger) -> int:
    """Parameters that the network of a step on images would have if each position had its own.

    A convolution's parameters are used at height · width positions, the last two sizes of its result (after batch and
    channels); a dense layer's at one.
    """
    table = ledger.by_layer()
    positions = [math.prod(shape[2:]) for shape in table["shape"]]
    return int((table["parameters"] * positions).sum())


def with_and_without_sharing(ledger: Ledger) -> tuple[float, float]:
    """How many times as fast this step is on CARDS cards, and how many if no position shared its weights.

    Then every position of a convolution's result would have weights of its own, and their gradients to send. The card
    computes as before, also the update, which is that of the shared weights on one card and on several. The step takes
    as long as the computation or the link, whichever takes longer.
    """
    more = weights_without_sharing(ledger) / parameters(ledger)
    found = on_cards(ledger, CARD, LINK, CARDS)
    apart = max(found.alone_seconds, more * found.link_seconds)
    return found.speed_up, CARDS * found.alone_seconds / apart


@lru_cache(maxsize=4)
def enough(builder: Callable[..., nn.Module]) -> tuple[int, float]:
    """The fewest images a card with which CARDS of them gain what we call well; and its time computing over sending."""
    network = traced(builder)
    images = next(n for n in range(1, BATCH + 1) if with_and_without_sharing(network.at(n))[0] > GOOD * CARDS)
    step = on_cards(network.at(images), CARD, LINK, CARDS)
    return images, step.compute_seconds / step.link_seconds


@claim(10, DETTMERS, "Krizhevsky splits convolutions by data and dense layers by model.")
def _one_weird_trick() -> Finding:
    ledger = traced(networks.alexnet).at(BATCH)
    found = {scheme: on_cards(ledger, CARD, LINK, CARDS, scheme) for scheme in (DATA, UNITS, MIXED)}
    sent = {scheme: step.sent_bytes / 1e6 for scheme, step in found.items()}
    after = speed_up(ledger, overlap=False)
    return Finding(
        RIGHT,
        f"so the paper says (Krizhevsky, 2014). What it saves, modelled: AlexNet on {CARDS} {CARD}s, a card sends "
        f"{sent[DATA]:.0f} MB by data, "
        f"{sent[UNITS]:.0f} by units, {sent[MIXED]:.0f} by the trick: {found[MIXED].speed_up:.1f} times as fast; by "
        f"data {after:.1f} if gradients wait for the end of the step, {found[DATA].speed_up:.1f} if they go beside it",
        "Convolutions send their weights' gradients, dense layers their input: the smaller of the two, but for conv1, "
        "whose gradient is small too.",
        cited=True,
    )


@claim(95, DETTMERS, "Code for several GPUs takes an expert who writes its kernels by hand.")
def _kernels_by_hand() -> Finding:
    return Finding(
        OPEN,
        "No number of this course decides it: lesson 11's script trains on several processes with PyTorch's own "
        "exchange and no kernel of its own, which says nothing of 2014",
        "The exchange now comes with the framework.",
    )


# Hoffmann et al., "Training Compute-Optimal Large Language Models" (2022): about 20 tokens for each parameter.
TOKENS_A_PARAMETER, CONNECTIONS = 20, 3e9


@claim(96, DETTMERS, "Three billion connections need far more data than most people have.")
def _data_for_three_billion() -> Finding:
    return Finding(
        OPEN,
        f"No number of this course decides how much data people have. For language models, {TOKENS_A_PARAMETER} tokens "
        f"a parameter would be {TOKENS_A_PARAMETER * CONNECTIONS / 1e9:.0f} billion (Hoffmann et al., 2022)",
        "That is for training from scratch. To adapt a network that others trained takes less.",
    )


@claim(93, DETTMERS, "Model parallelism is complicated.")
def _model_parallelism() -> Finding:
    ledger = dense_net().at(BATCH)
    found = {scheme: on_cards(ledger, CARD, LINK, CARDS, scheme) for scheme in (DATA, UNITS)}
    waits = {scheme: sum(span.what == "exchange" for span in step.linking) for scheme, step in found.items()}
    return Finding(
        OPEN,
        f"No number measures how complicated something is. The dense net of 2014 split by units waits for "
        f"{waits[UNITS]} exchanges of maps a step, under data parallelism for {waits[DATA]}",
        "Each layer has to be split and its maps exchanged; data parallelism wraps the network whole.",
    )
