"""Claims of lesson 08, half precision."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, by_cases, by_parts, claim
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS
from course_utils.trace import training_step
from course_utils.units import format_bytes
from lessons.batch_size.claims import HALF
from lessons.half_precision.precision import Halving, fate
from lessons.shared.published import HALVES, TRAINED
from lessons.shared.sources import DATAGURU

# Milliseconds of a forward and backward pass on a Maxwell Titan X in float32 and float16: soumith's convnet-benchmarks,
# 2016, Torch with cuDNN R4; the VGG is Model A, eleven layers.
TITAN_X_2016 = {"AlexNet": (81, 71), "OverFeat": (268, 242), "VGG-A": (529, 471), "GoogLeNet": (470, 462)}


@lru_cache(maxsize=8)
def _three(name: str) -> list[StepTrace]:
    network = NETWORKS[name]
    with torch.device("meta"):
        module, narrow = network.build(), network.build().to(torch.bfloat16)
    size = network.input_shape, network.classes
    steps = [training_step(module, *size, precision=precision, name=name) for precision in ("float32", "float16")]
    return [*steps, training_step(narrow, *size, input_dtype=torch.bfloat16, name=name)]


def halving(name: str, batch: int = 128, weights: bool = False) -> Halving:
    """A step of one of `networks.NETWORKS` with momentum, in float32 and under float16 autocast.

    With `weights` the second step is not under autocast: it has weights, momentum, input and maps in bfloat16.
    """
    full, autocast, narrow = _three(name)
    return Halving(full.at(batch), (narrow if weights else autocast).at(batch))


HALVED = "ResNet-50", "VGG-16", "52 M dense net"
SMALL, SCALE = 2.0**-26, 2.0**16  # a gradient of half the least that float16 keeps; a loss scale
STEP = 0.001  # Adam's rate by default, the length of its first step


@claim(81, DATAGURU, "16-bit numbers halve the memory, and nothing is lost.")
def _halves() -> Finding:
    found = {name: halving(name) for name in HALVED}
    narrow = {name: halving(name, weights=True).saved for name in HALVED}
    saved = [*(one.saved for one in found.values()), *narrow.values()]
    told = "; ".join(f"{name}: {_from_to(one)}, {change(one.saved)}" for name, one in found.items())
    all_narrow = ", ".join(f"{name} {change(share)}" for name, share in narrow.items())
    kept, scaled = (not fate(torch.tensor([SMALL]), "float16", scale).lost for scale in (1.0, SCALE))
    moves = float(torch.tensor(1.0, dtype=torch.bfloat16) - STEP) != 1
    halved = [share > HALF for share in saved]
    return Finding(
        by_cases([*halved, kept, moves]),
        f"under float16 autocast, batch 128: {told}. All in bfloat16, weights too: {all_narrow}. A gradient of "
        f"{SMALL:.1e} {'stays' if kept else 'becomes 0'} in float16; with the loss times {SCALE:,.0f} it "
        f"{'stays' if scaled else 'does too'}. In bfloat16 a weight of 1 {'moves' if moves else 'does not move'} by a "
        f"step of {STEP:g}",
        "Under autocast weights, optimizer state, indices and the input stay as they were. Small gradients are lost "
        "without a scale; with one, rounding is left.",
        rule=f"a network's peak is halved if it falls over {HALF:.0%}; right if each of the three is, in both ways, "
        "that gradient stays without a scale and that weight moves; partly right if one of these eight is so",
        kind=by_parts({"halve the memory": halved, "nothing is lost": [kept, moves]}),
    )


def _from_to(found: Halving) -> str:
    return f"{format_bytes(found.full.peak_bytes)} to {format_bytes(found.half.peak_bytes)}"


def change(saved: float) -> str:
    """Of a peak, from the share saved."""
    return f"{'−' if saved > 0 else '+'}{100 * abs(saved):.0f} %"


@claim(82, DATAGURU, "The P100 gains hugely from 16-bit arithmetic.")
def _p100_gains() -> Finding:
    card, v100 = hardware.device("P100"), hardware.device("V100")
    measured = next(row for row in HALVES if (row.network, row.device) == ("VGG-16", "V100"))
    in_float16 = replace(card, tensor_tflops=card.float16_tflops)  # as if halves were added up in halves
    pytorch, most = (_gain(halving("VGG-16"), each) for each in (card, in_float16))
    verdict = RIGHT if most > 3 else PARTLY if most > 1.2 else WRONG
    published = [full / half for full, half in TITAN_X_2016.values()]
    p100 = next(row for row in TRAINED if row.device == card.name)
    return Finding(
        verdict,
        f"VGG-16 forward and backward modelled {most:.1f} times as fast with sums in float16, {pytorch:.2f} times with "
        f"PyTorch's, in float32 (V100, batch {measured.batch}: modelled "
        f"{_gain(halving('VGG-16', measured.batch), v100):.1f}, measured {measured.times:.1f}); "
        f"a Maxwell Titan X was measured {min(published):.2f} to {max(published):.2f} times, a P100 {p100.times:.2f} "
        f"times ({p100.network}, mixed precision; {p100.source})",
        "Twice at most, and not in PyTorch. The large factors came with tensor cores, a year later.",
        rule="right if sums in float16 made it over 3 times as fast, partly right if over 1.2 times",
    )


def _gain(vgg: Halving, card: Device) -> float:
    """How many times as fast the forward and the backward pass are in halves, which is what was measured."""
    pair = [predict_step(ledger, card).by_phase() for ledger in (vgg.full, vgg.half)]
    full, half = (phases[["forward", "backward"]].sum() for phases in pair)
    return float(full / half)
