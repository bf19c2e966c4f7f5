"""Claims of lesson 08, half precision."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import torch

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, by_cases, by_parts, claim
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS
from course_utils.trace import PRECISIONS, training_step
from course_utils.units import format_bytes
from lessons.batch_size.claims import HALF
from lessons.half_precision.precision import Halving, fate
from lessons.shared.published import HALVES, TRAINED
from lessons.shared.sources import DATAGURU

# Milliseconds of a forward and backward pass on a Maxwell Titan X in float32 and float16: soumith's convnet-benchmarks,
# 2016, Torch with cuDNN R4; the VGG is Model A, eleven layers.
TITAN_X_2016 = {"AlexNet": (81, 71), "OverFeat": (268, 242), "VGG-A": (529, 471), "GoogLeNet": (470, 462)}


NARROW = "all in bfloat16"


@lru_cache(maxsize=8)
def _steps(name: str) -> dict[str, StepTrace]:
    network = NETWORKS[name]
    with torch.device("meta"):
        module, narrow = network.build(), network.build().to(torch.bfloat16)
    size = network.input_shape, network.classes
    steps = {precision: training_step(module, *size, precision=precision, name=name) for precision in PRECISIONS}
    return {**steps, NARROW: training_step(narrow, *size, input_dtype=torch.bfloat16, name=name)}


def halving(name: str, batch: int = 128, way: str = "float16") -> Halving:
    """A step of one of `networks.NETWORKS` with momentum, in float32 and under autocast in a 16-bit format.

    Or, with NARROW for its `way`, with weights, momentum, input and maps in bfloat16 and no autocast.
    """
    steps = _steps(name)
    return Halving(steps["float32"].at(batch), steps[way].at(batch))


HALVED = "ResNet-50", "VGG-16", "52 M dense net"
WAYS = {"float16": "float32", "bfloat16": "float32", NARROW: "bfloat16"}  # two autocasts, and the format of weights
SMALL, SCALE = 2.0**-26, 2.0**16  # a gradient of half the least that float16 keeps; a loss scale
STEP = 0.001  # Adam's rate by default, the length of its first step


@claim(81, DATAGURU, "16-bit numbers halve the memory, and nothing is lost.")
def _halves() -> Finding:
    found = {way: {name: halving(name, way=way) for name in HALVED} for way in WAYS}
    told = "; ".join(f"{name}: {_from_to(one)}, {change(one.saved)}" for name, one in found["float16"].items())
    other, narrow = (
        ", ".join(f"{name} {change(one.saved)}" for name, one in found[way].items()) for way in ("bfloat16", NARROW)
    )
    kept = {form: not fate(torch.tensor([SMALL]), form).lost for form in ("float16", "bfloat16")}
    scaled = not fate(torch.tensor([SMALL]), "float16", SCALE).lost
    moves = {form: float(torch.tensor(1.0, dtype=PRECISIONS[form]) - STEP) != 1 for form in ("float32", "bfloat16")}
    halved = [one.saved > HALF for nets in found.values() for one in nets.values()]
    whole = [kept[way if way in kept else "bfloat16"] and moves[weights] for way, weights in WAYS.items()]
    whole.append(scaled and moves["float32"])
    stays, goes = (
        ", ".join(f"{verb if holds else not_verb} in {form}" for form, holds in by.items())
        for by, verb, not_verb in ((kept, "stays", "becomes 0"), (moves, "moves", "does not move"))
    )
    bits = [f"{1 - math.log2(torch.finfo(PRECISIONS[form]).eps):.0f}" for form in ("bfloat16", "float32")]
    return Finding(
        by_cases([*halved, *whole]),
        f"batch 128, under float16 autocast: {told}. Under bfloat16 autocast: {other}. All in bfloat16, weights too: "
        f"{narrow}. A gradient of {SMALL:.1e} {stays}; with the loss times {SCALE:,.0f} it "
        f"{'stays' if scaled else 'becomes 0'} in float16 too. By a step of {STEP:g} a weight of 1 {goes}; under "
        f"autocast weights are float32. Digits do not vote: bfloat16 keeps {bits[0]} of float32's {bits[1]} bits",
        "Under autocast weights, optimizer state, indices and the input stay as they were. Float16 loses small "
        "gradients without a scale, weights in bfloat16 small steps. Bfloat16 under autocast rounds, but lost neither.",
        rule=f"a peak is halved if it falls over {HALF:.0%}. Right if all three networks are halved in all three ways, "
        "and no way loses that gradient or that step; partly right if one network is halved in one way, or if one way "
        "loses neither. Float16 counts once without a scale for the loss and once with",
        kind=by_parts({"halve the memory": halved, "nothing is lost": whole}) + " (gradients and steps)",
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
