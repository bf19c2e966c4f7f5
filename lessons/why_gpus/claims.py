"""Claims of lesson 01, why GPUs help and when they don't.

Where a claim compares a CPU with a GPU and nothing was published, two devices of one time stand in: two Xeons of 2014
and the Titan X of 2015, both at the same share of their peaks, as `lessons.why_gpus.crossover` predicts them. The
Xeons' bandwidth and launch cost are assumptions (`REFERENCE_CPU`).
"""

from __future__ import annotations

import inspect
import itertools
import re
from dataclasses import replace

import numpy as np
from torch import nn

from classroom.claims import MISLEADING, OPEN, PARTLY, RIGHT, SOME, WRONG, Finding, by_cases, by_parts, claim
from course_utils.machine import hardware, measure, timing
from course_utils.machine.hardware import Device, roofline_seconds
from course_utils.networks import mlp, small_cnn
from course_utils.units import MIB, format_seconds, in_gb
from lessons.shared import published
from lessons.shared.published import CAFFE2, PublishedTime
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.shared.sources import DETTMERS, EXCHANGE, MATHWORKS
from lessons.why_gpus.crossover import BatchTimes, batch_times, crossover
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.machine import LAYOUTS, XEONS

CARD, KEPLER = "Titan X (Maxwell)", "Tesla K40"
DETTMERS_YEAR, MATHWORKS_YEAR = 2014, 2020
A100_SMS = 108  # NVIDIA, A100 Tensor Core GPU Architecture (2020)
LINK = "PCIe 3.0 x16"
INPUTS, UNITS, BATCHES = (4, 64, 784, 4096), (10, 100, 1000, 10_000), (1, 16, 256, 4096)
SIZES = tuple(itertools.product(INPUTS, UNITS, BATCHES))
SELDOM = 0.1  # of the cases, or fewer
FLAT = 1.5  # times as long, or less, and a time does not grow
# Assumed of a desktop: four cores at 3.4 GHz, each of which adds eight numbers and multiplies eight in a cycle (AVX).
DESKTOP_TFLOPS = 4 * 3.4e9 * (8 + 8) / 1e12
GAIN = 0.05  # of the time for an image, and a larger batch is worth having


def _cpu(inputs: int, units: int) -> BatchTimes:
    return batch_times(hidden_layer_step(inputs, units, "cpu"), XEONS)


def _gpu(inputs: int, units: int, link: str | None = None) -> BatchTimes:
    return batch_times(hidden_layer_step(inputs, units, "cuda"), CARD, link=link, ahead=True)


def speed_ups() -> list[tuple[PublishedTime, float]]:
    """Published GPU times, and how many times faster each is than the Xeons on the same network and batch."""
    times = published.TIMES + published.OTHER_TIMES
    cpu = {(row.network, row.batch): row.both_ms for row in times if row.device == published.XEONS}
    return [
        (row, cpu[row.network, row.batch] / row.both_ms)
        for row in times
        if row.device != published.XEONS and (row.network, row.batch) in cpu
    ]


def own_kernels() -> dict[str, list[float]]:
    """How many times faster than the Xeons two cards were without cuDNN, on the networks of `speed_ups`."""
    on_xeons = (row for row in published.TIMES + published.OTHER_TIMES if row.device == published.XEONS)
    cpu = {row.network: row.both_ms for row in on_xeons}
    times = published.ON_BOTH[published.OWN_KERNELS]
    return {card: [ms / times[name][i] for name, ms in cpu.items()] for i, card in enumerate((KEPLER, CARD))}


# TFLOP/s at the base clock, where the catalogue has the boost clock's: 3,072 lanes · 2 · 1,000 MHz (HotHardware), and
# 2,560 · 2 · 1,607 MHz (Fudzilla, GTX 1080).
AT_BASE_CLOCK = {"Titan X (Maxwell)": 6.14, "GTX 1080": 8.23}


def peaks(device: str) -> float:
    """A card's float32 peak over the Xeons', all at base clocks: the ratio of their times at the same share of both."""
    card = hardware.device(device)
    tflops = card.float32_tflops if card.float32_clock == "base" else AT_BASE_CLOCK[device]
    return tflops / LAYOUTS[REFERENCE_CPU.name].peak_tflops


def inception() -> list[PublishedTime]:
    """The batch-time table of the Caffe2 notes: Inception on a Titan X."""
    return published.published("GoogLeNet", source=CAFFE2)


@claim(1, DETTMERS, "A GPU is typically 20 times faster than a CPU, on large problems up to 50 times.")
def _twenty_to_fifty() -> Finding:
    found = sorted((ratio, row.device) for row, ratio in speed_ups())
    then = [ratio for ratio, card in found if hardware.device(card).year <= DETTMERS_YEAR]
    later = [ratio for ratio, card in found if hardware.device(card).year > DETTMERS_YEAR]
    most, newest = found[-1]
    vgg, *titan = (
        ratio for name in (KEPLER, CARD) for row, ratio in speed_ups() if (row.network, row.device) == ("VGG-16", name)
    )
    reached = REFERENCE_CPU.float32_tflops / LAYOUTS[REFERENCE_CPU.name].peak_tflops
    plain = [f"{min(of):.0f} to {max(of):.0f} with the {card}" for card, of in own_kernels().items()]
    first = min((hardware.device(card).year for ratio, card in found if ratio >= 50), default="no year")
    slower = LAYOUTS[REFERENCE_CPU.name].peak_tflops / DESKTOP_TFLOPS
    typical, large = ([float(np.median(of)) >= 20 for of in (then, later)], [max(of) >= 50 for of in (then, later)])
    return Finding(
        by_cases(typical + large),
        f"large convolutional networks, published: against two 8-core Xeons {min(then):.0f} to {max(then):.0f} times, "
        f"median {float(np.median(then)):.0f}, with a card sold by {DETTMERS_YEAR} and cuDNN, up to {most:.0f} with "
        f"later ones ({newest}); with Torch's own kernels {', '.join(plain)}. One Xeon was not measured: if it takes "
        f"twice as long as two, the card sold by {DETTMERS_YEAR} has a median of {2 * float(np.median(then)):.0f}. "
        f"A desktop of four cores at 3.4 GHz has 1/{slower:.1f} of the two Xeons' peak: at the same share of it that "
        f"card would be {slower * min(then):.0f} to {slower * max(then):.0f} times as fast. Of its "
        f"peak at base clock Torch reached {reached:.0%} on the Xeons with VGG-16, the {KEPLER} "
        f"{reached * vgg / peaks(KEPLER):.0%}, the {CARD} "
        f"{' and '.join(f'{reached * ratio / peaks(CARD):.0%}' for ratio in titan)}, by the direct method's "
        "multiplications",
        f"The first card of the table to reach 50 is of {first}. Against another CPU, or better code, it is another "
        "number.",
        rule=f"two cases, cards sold by {DETTMERS_YEAR} and later ones, against two 8-core Xeons, the only CPU of the "
        "published table. “Typically 20” holds if the median is at least 20, “up to 50” if one reaches 50. Right if "
        "both parts hold in both cases, partly right if one does in one. Times without cuDNN do not vote",
        kind=by_parts({"typically 20 times": typical, "up to 50 times": large}) + "; against two 8-core Xeons",
    )


@claim(36, MATHWORKS, "A CPU has four to eight strong cores, a GPU hundreds of smaller ones.")
def _hundreds_of_cores() -> Finding:
    host, card = LAYOUTS[REFERENCE_CPU.name], LAYOUTS[CARD]
    lanes = [chip.units * chip.lanes for chip in (host, card)]
    bandwidth = hardware.device(CARD).reached_bytes_per_s() / REFERENCE_CPU.reached_bytes_per_s()
    year = hardware.device("A100").year
    of_its_time = A100_SMS if year <= MATHWORKS_YEAR else card.units
    return Finding(
        PARTLY if of_its_time >= 100 else MISLEADING,
        f"the A100, a card of {year}, has {of_its_time} SMs, the parts that run programs on their own. "
        f"{CARD}: {card.units} SMs "
        f"of {card.lanes} lanes, {lanes[1]:,} in all; {REFERENCE_CPU.name}: {host.units} cores of {host.lanes}, "
        f"{lanes[0]}; the card has {bandwidth:.1f} times their memory bandwidth, which is assumed",
        "Hundreds of cores are lanes, or the SMs of a very large card; and a CPU's core has lanes too.",
    )


@claim(37, MATHWORKS, "The speed-up of a GPU grows with the data and with the network.")
def _grows_with_size() -> Finding:
    grid = np.array([_cpu(784, u).at(BATCHES) / _gpu(784, u).at(BATCHES) for u in UNITS])
    least = min(float(np.min(grid[1:] / grid[:-1])), float(np.min(grid[:, 1:] / grid[:, :-1])))
    return Finding(
        WRONG if grid[-1, -1] < 2 * grid[0, 0] else RIGHT if least > 0.99 else PARTLY,
        f"784 inputs: from {grid[0, 0]:.1f} times with {UNITS[0]} units at batch {BATCHES[0]} "
        f"to {grid[-1, -1]:.1f} with {UNITS[-1]:,} units at batch {BATCHES[-1]:,}; the chips' arithmetic rates differ "
        f"by {hardware.device(CARD).reached_flops_per_s() / XEONS.reached_flops_per_s():.1f}",
        f"By the model, on this grid; from one size to the next it can fall to {least:.2f} of what it was.",
    )


@claim(38, MATHWORKS, "A GPU seldom fails to help.")
def _seldom_fails() -> Finding:
    ahead = [bool(_cpu(i, u).at(n) <= _gpu(i, u, LINK).at(n)) for i, u, n in SIZES]
    few = [wins for wins, (_, _, n) in zip(ahead, SIZES, strict=True) if n <= 16]
    large = [ratio <= 1 for _, ratio in speed_ups()]
    epoch = published.MNIST_EPOCH_SECONDS
    return Finding(
        by_cases(sum(fails) <= SELDOM * len(fails) for fails in (large, ahead)),
        f"large convolutional networks, published: the CPU is ahead in {sum(large)} of {len(large)} times; one hidden "
        f"layer: in {sum(ahead)} of {len(ahead)} cases, in {sum(few)} of {len(few)} with batches up to 16; published, "
        f"an epoch of MNIST: CPU {epoch['CPU']} s, GPU {epoch['GPU']} s ({published.MNIST_SOURCE})",
        "How often depends on what you count: the grid goes from 4 inputs to 4,096 and from batch 1 to 4,096.",
    )


@claim(39, MATHWORKS, "The example of handwritten digits, 28 × 28, needs only minutes on a CPU.")
def _digits_on_a_cpu() -> Finding:
    batch, images, epochs = 128, 60_000, 5
    step = timing.measure_step_time(small_cnn(1, 28), (1, 28, 28), 10, batch, device="cpu", seconds=0.2).step.median
    total = step * epochs * -(-images // batch)
    return Finding(
        RIGHT if total < 3600 else WRONG,
        f"measured here, a small convolutional network: {format_seconds(step)} a step of {batch}, "
        f"{total / 60:.1f} minutes for {epochs} passes over {images:,} images",
        "Small images and a small network. Measure yours before you rent a card.",
    )


# Cards, each after the one that it replaced.
SUCCESSIONS = (
    ("GTX Titan", "Titan X (Maxwell)", "Titan X (Pascal)"),
    ("GTX 980", "GTX 1080", "RTX 2080"),
    ("RTX 3090", "RTX 4090", "RTX 5090"),
    ("Tesla K40", "Tesla M40", "P100", "V100", "A100", "H100 SXM", "B200"),
)


def _rates(card: Device) -> tuple[float, float, float]:
    """TFLOP/s in float32, TFLOP/s of the fastest arithmetic on 16-bit numbers, and GB/s."""
    half = card.tensor_tflops or card.float16_tflops or card.float32_tflops
    return card.float32_tflops, half, card.bandwidth_gb_s


def _slower(one: Device, other: Device) -> bool:
    return all(less < more for less, more in zip(_rates(one), _rates(other), strict=True))


@claim(40, MATHWORKS, "Every generation of GPUs is faster than the one before.")
def _generations() -> Finding:
    def both(device: str) -> dict[str, float]:
        return {row.network: row.both_ms for row in published.TIMES if row.device == device and "5.1" in row.library}

    old, new = both(CARD), both("Titan X (Pascal)")
    ratios = [old[name] / new[name] for name in old if name in new]
    replaced = [pair for line in SUCCESSIONS for pair in itertools.pairwise(map(hardware.device, line))]
    gained = [_slower(before, after) for before, after in replaced]
    cards = sorted(hardware.devices(), key=lambda card: card.year)
    since = {card.architecture: card.year for card in reversed(cards)}  # the year of each generation's first card
    following = dict(itertools.pairwise(sorted({*since.values()})))  # Ada and Hopper are of one year
    later = [
        (old, new)
        for old, new in itertools.permutations(cards, 2)
        if since[new.architecture] == following.get(since[old.architecture])
    ]
    slower = [(old, new) for old, new in later if _slower(new, old)]
    lines = "; ".join(", ".join(line) for line in SUCCESSIONS)
    without = ", ".join(after.name for (_, after), more in zip(replaced, gained, strict=True) if not more)
    shown = ", ".join(f"{new.name} beside {old.name}" for old, new in slower) or "none"
    return Finding(
        WRONG if min(ratios) <= 1 or not any(gained) else PARTLY if slower or not all(gained) else RIGHT,
        f"Titan X, Maxwell to Pascal: {min(ratios):.2f} to {max(ratios):.2f} times on {len(ratios)} networks. On paper "
        f"{sum(gained)} of {len(gained)} cards have more than the one that they replaced, of arithmetic in float32 and "
        f"in 16 bits and of bandwidth ({lines}{'; not ' + without if without else ''}). Less of all three than a card "
        f"of the generation before, of those in lesson 02's catalogue: {shown} (a K80 counts as one of its two dies)",
        "It holds of most cards tried that replaced another. A new card may have less than the top card before it.",
        rule="right if every successor has more of all three, and no card has less of all three than any card one "
        "generation older. Wrong if no successor has more, or if the measured Titan X is not faster. Otherwise partly "
        "right. In 16 bits: the fastest arithmetic on such numbers, float32's if there is none of its own",
        kind=f"{SOME}: {sum(gained)} of {len(gained)} cards and those that they replaced",
    )


@claim(49, EXCHANGE, "A hidden layer of 100 units on 4 inputs has at most 400 parameters.")
def _at_most_400() -> Finding:
    layer, network = nn.Linear(4, 100, device="meta"), mlp((4, 100, 1))
    own, whole = (sum(p.numel() for p in module.parameters()) for module in (layer, network))
    weights = layer.weight.numel()
    verdict = PARTLY if weights <= 400 < own else RIGHT if own <= 400 else WRONG
    return Finding(
        verdict, f"{weights} weights, {own} with biases, {whole} with one output", "Small either way; biases count too."
    )


@claim(50, EXCHANGE, "A million inputs make the same layer large.")
def _a_million_inputs() -> Finding:
    layer = nn.Linear(10**6, 100, device="meta")
    size = 4 * layer.weight.numel()
    verdict = RIGHT if 3 * size > 500 * MIB else WRONG
    return Finding(
        verdict,
        f"{layer.weight.numel() / 1e6:.0f} M weights: {in_gb(size):.1f} GB, {in_gb(3 * size):.1f} with gradient and "
        "momentum",
        "The width of the input counts as much as the units.",
    )


@claim(51, EXCHANGE, "A network with one layer of 100 units is small, and a CPU may be faster.")
def _hundred_units() -> Finding:
    found = {inputs: crossover(_cpu(inputs, 100), _gpu(inputs, 100, LINK)) for inputs in (4, 784)}
    few = found[4]
    rough = {inputs: float(f"{batch:.1g}") for inputs, batch in found.items() if batch}  # nobody knows it better
    said = ", ".join(f"{inputs} inputs: from a batch near {batch:,.0f}" for inputs, batch in rough.items())
    return Finding(
        RIGHT if few is None or few > 128 else WRONG,
        f"the GPU is ahead, with {said}",
        "Yes, at the batches people use. Another poster saw the reverse, as one does beyond the crossover.",
    )


def _matrix_crossover(link: str | None, launch_seconds: float | None = None) -> int:
    """The smallest n at which the GPU multiplies two n × n matrices in less time than the CPU."""
    card, rate = hardware.device(CARD), 0.0 if link is None else hardware.link(link).bytes_per_s
    if launch_seconds is not None:
        card = replace(card, launch_seconds=launch_seconds)
    for n in range(1, 100_000):
        flops, size = 2.0 * n**3, 4.0 * n**2
        moved = 3 * (hardware.COPY_SECONDS + size / rate) if rate else 0.0
        cpu, gpu = (one.launch_seconds + roofline_seconds(flops, 3 * size, one) for one in (XEONS, card))
        if gpu + moved < cpu:
            return n
    raise AssertionError("arithmetic grows with n³, traffic with n²: they meet")


@claim(52, EXCHANGE, "For matrices, always use the GPU.")
def _always_for_matrices() -> Finding:
    there, brought = _matrix_crossover(None), _matrix_crossover(LINK)
    cheap = _matrix_crossover(None, XEONS.launch_seconds)
    card, xeons = (roofline_seconds(2.0 * there**3, 12.0 * there**2, one) for one in (hardware.device(CARD), XEONS))
    return Finding(
        PARTLY if there > 2 else RIGHT,
        f"a product of two n × n matrices, by the model, both at the same share of their peaks, with a launch of "
        f"{format_seconds(hardware.device(CARD).launch_seconds, 2)} on the GPU and of "
        f"{format_seconds(XEONS.launch_seconds, 2)} on the CPU: the GPU is ahead from n = {there} on, from {brought} "
        "if they have to be brought and fetched, in three copies",
        f"At n = {there} the card works {format_seconds(card, 2)} after its launch, the Xeons "
        f"{format_seconds(xeons, 2)}. With launches as short as the CPU's, n = {cheap} is enough.",
    )


@claim(53, EXCHANGE, "A poker bot learned ten times faster on the CPU.")
def _poker_bot() -> Finding:
    cpu, gpu = _cpu(4, 100), _gpu(4, 100, LINK)
    framework = float(gpu.at(1) / cpu.at(1))
    bare = float(gpu.at(1)) / (float(cpu.at(1)) - cpu.launches)
    verdict = RIGHT if framework >= 10 else OPEN if bare >= 10 else WRONG
    return Finding(
        verdict,
        f"4–100–10 at batch 1: the GPU takes {format_seconds(float(gpu.at(1)))}, nearly all launches, a CPU in the "
        f"same framework {format_seconds(float(cpu.at(1)))}: {framework:.1f} times less; with no launches {bare:.0f}",
        "Possible for a program without a framework. The network was not published.",
    )


@claim(54, EXCHANGE, "The time of a batch on a GPU does not grow with the batch.")
def _flat_batch_time() -> Finding:
    rows, small = inception(), published.DIGITS_GPU_MS
    factor, times = rows[-1].both_ms / rows[0].both_ms, rows[-1].batch / rows[0].batch
    return Finding(
        by_cases((factor < FLAT, small[256] / small[1] < FLAT)),
        f"Inception on a Titan X: {rows[0].both_ms} ms at {rows[0].batch}, {rows[-1].both_ms} at {rows[-1].batch}, "
        f"{factor:.1f} times for {times:.0f} times the images; a digits network on a GTX 1080 Ti, forward: "
        f"{small[1]:.1f} ms at 1, {small[256]:.1f} at 256",
        f"The small network's time is flat over these batches. Inception from {rows[-2].batch} to "
        f"{rows[-1].batch}: {rows[-1].both_ms / rows[-2].both_ms:.2f} times as long.",
    )


@claim(55, EXCHANGE, "So the batch should always fill the GPU's memory.")
def _fill_the_memory() -> Finding:
    each = [row.per_sample_ms for row in inception()]
    gains = [1 - after / before for before, after in itertools.pairwise(each)]
    return Finding(
        by_cases(gain > GAIN for gain in gains),
        "Inception, time saved for an image by doubling the batch from 16: " + ", ".join(f"{g:.1%}" for g in gains),
        "After saturation a larger batch gains next to nothing, and it changes how the network learns.",
    )


def gain(inputs: int, units: int, batch: int) -> tuple[float, float]:
    """The CPU's time for a step over the GPU's: with the data on the card, and with each batch copied over LINK."""
    cpu = _cpu(inputs, units).at(batch)
    there, copied = (float(cpu / _gpu(inputs, units, link).at(batch)) for link in (None, LINK))
    return there, copied


@claim(59, EXCHANGE, "Transfers between CPU and GPU can cancel the gain.")
def _transfers_cancel() -> Finding:
    gains = {case: gain(*case) for case in SIZES}
    lost = {case: ratios for case, ratios in gains.items() if ratios[0] > 1 >= ratios[1]}
    rule = "right if in one case the GPU is faster with the data on the card and no longer with them copied, else wrong"
    if not lost:
        return Finding(WRONG, "0 cases of the grid are decided by the link", "Arithmetic outweighs the transfer.")
    (i, u, n), ratios = max(lost.items(), key=lambda found: found[1])
    return Finding(
        RIGHT,
        f"{i:,} inputs, {u:,} units, batch {n:,}: the GPU is {ratios[0]:.1f} times as fast with the data on the card, "
        f"{ratios[1]:.1f} times as fast over {LINK}",
        f"The strongest of {len(lost)} such cases in the grid of {len(gains)}. Data that stays on the card is copied "
        "once.",
        rule=rule,
    )


@claim(61, EXCHANGE, "Using the GPU is one line of code.")
def _one_line() -> Finding:
    lines = inspect.getsource(measure.RealTraining).splitlines()
    found = sum(bool(re.search(r"\.to\(self\.device\)|device=self\.device\)", line)) for line in lines)
    return Finding(
        # At most the model, the samples and their labels; none at all is no step of ours.
        RIGHT if found == 1 else PARTLY if found in (2, 3) else WRONG,
        f"this course's own training step for both: {found} lines put something on the device",
        "One line for the model, and one for each tensor of a batch. No other line of the training changes.",
    )
