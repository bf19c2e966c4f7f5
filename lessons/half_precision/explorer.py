"""Explorer of lesson 08: what is gained by halving, in memory and in time, and what does not shrink.

Its controls choose a step traced in float32 and in halves (`trace`), a batch and a device; the reading is a
`precision.Halving`, the picture a `figures.skyline` with float32 as an outline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import skyline
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import FITS, NO, TIGHT, fit
from course_utils.trace import OPTIMIZERS, training_step
from course_utils.units import format_bytes, require_one_of
from lessons.half_precision.precision import HALVES, Halving, speed_up

BATCHES = (2, 4, 8, 16, 32, 64, 128, 256, 512)  # batch 1 is another trace; nobody halves memory at batch 1
OFFERED = ("VGG-16", "AlexNet", "ResNet-50", "52 M dense net")
STAYS = ("parameters", "optimizer state", "weight gradients", "pool indices", "input")
SLIGHT = 0.005  # a change of less than half a percent is none
TF32 = 0.5  # of the tensor cores' rate for halves: NVIDIA's A100 data sheet has 156 and 312 TFLOP/s


def sentences(halving: Halving, device: Device, precision: str) -> tuple[str, str, str]:
    """What halving does, in words: memory, what did not shrink, time.

    Args:
        halving: the step in float32 and in halves, at one batch.
        device: the card.
        precision: "float16" or "bfloat16".
    """
    return _memory(halving, device, precision), _what_stays(halving), _time(halving, device, precision)


def _memory(halving: Halving, device: Device, precision: str) -> str:
    full, half, change = halving.full, halving.half, -halving.saved_bytes
    head = f"Batch {half.batch:,} in {precision}: peak {format_bytes(half.peak_bytes)}"
    if abs(change) < SLIGHT * full.peak_bytes:
        compared = f"{head}, as in float32"
    else:
        table = halving.by_role()["change"]
        role = str(table.idxmin() if change < 0 else table.idxmax())
        way, done = ("less", "fall by") if change < 0 else ("more", "grow by")
        share = f"{100 * abs(change) / full.peak_bytes:.0f} % {way} than in float32"
        compared = f"{head}, {share}; {role} {done} {format_bytes(abs(table[role]))}"
    return f"{compared}. {_fits(halving, device)}"


def _fits(halving: Halving, device: Device) -> str:
    before, now = (fit(ledger, device) for ledger in (halving.full, halving.half))
    if before.state == now.state:
        said = {FITS: "Both fit", TIGHT: "Both are tight on", NO: "Neither fits"}[now.state]
        return f"{said} {_the(device)}."
    return f"In halves it {now.words}; float32 {before.words}."


def _the(device: Device) -> str:
    return f"the {device.name}"


def _what_stays(halving: Halving) -> str:
    table = halving.by_role()
    now = table["half"].to_dict()
    kept = {role: now[role] for role in STAYS}
    kept["weight gradients"] = min(table.loc["weight gradients", ["float32", "half"]])  # one may be there in half too
    share = 100 * sum(kept.values()) / halving.half.peak_bytes
    largest = sorted((role for role in STAYS if kept[role]), key=lambda role: -kept[role])[:3]
    parts = ", ".join(f"{role} {format_bytes(kept[role])}" for role in largest)
    copies = now["half copies of weights"]
    new = f" Half copies of weights come on top: {format_bytes(copies)}." if copies else ""
    return f"What halving leaves alone is {share:.0f} % of the new peak, most of it {parts}.{new}"


def _time(halving: Halving, device: Device, precision: str) -> str:
    if precision == "bfloat16" and not device.bfloat16:
        return f"The {device.name} has no bfloat16 arithmetic: choose float16, or a card from 2020 on."
    times = speed_up(halving, device, precision)
    peak = device.flops_per_s(precision) / device.flops_per_s()
    why = f"its {precision} arithmetic peaks at {peak:.1f} times float32's"
    if peak == 1:
        why = f"without tensor cores {precision} is computed at float32's rate, only the traffic is smaller"
    elif device.bfloat16 and TF32 * peak > 1.05:  # from Ampere on, where TF32 is faster than float32
        why += f"; where PyTorch runs convolutions in TF32, at up to {TF32 * peak:.1f} times, halves gain less"
    if abs(times - 1) < SLIGHT:
        return f"The {device.name} gains no time: {why}."
    if times < 1:
        return f"Modelled on {_the(device)}, a step is slower, {times:.2f} times as fast, and {why}."
    return f"Modelled on {_the(device)}, a step is {times:.2f} times as fast; {why}."


class HalfExplorer(Explorer):
    """Controls over a step in halves, its skyline over float32's outline, three sentences; made by `half_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[tuple[str, str], tuple[StepTrace, StepTrace]] = {}
        dropdown = widgets.Dropdown
        cards = [item.name for item in hardware.devices()]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.optimizer = described(dropdown, "optimizer", options=list(OPTIMIZERS), value=start["optimizer"])
        self.precision = described(dropdown, "precision", options=list(HALVES), value=start["precision"])
        self.device = described(dropdown, "device", options=cards, value=start["device"])
        self.batch = described(widgets.SelectionSlider, "batch", options=list(BATCHES), value=start["batch"])
        moving = (self.network, self.optimizer, self.precision, self.device, self.batch)
        self.lay_out(
            [("1fr 1fr 1fr 1fr", [self.network, self.optimizer, self.precision, self.device]), ("1fr", [self.batch])],
            {control.description: control for control in moving},
        )

    @property
    def steps(self) -> tuple[StepTrace, StepTrace]:
        """The step in float32 and in halves, traced at most once; two bytes a value are two bytes in either format."""
        key = (self.network.value, self.optimizer.value)
        if key not in self._steps:
            network = self._networks[self.network.value]
            with torch.device("meta"):
                module = network.build()
            full, half = (
                training_step(module, network.input_shape, network.classes, key[1], precision, name=network.name)
                for precision in ("float32", "float16")
            )
            self._steps[key] = full, half
        return self._steps[key]

    def view(self) -> View:
        """Skyline and sentences of the present settings; the peak in halves is watched."""
        full, half = (step.at(self.batch.value) for step in self.steps)
        halving = Halving(full, half)
        device = hardware.device(self.device.value)
        title = _title(halving, self.precision.value)
        picture = skyline(half, device, full, title, device.name, before_name="float32")
        said = sentences(halving, device, self.precision.value)
        lacks = self.precision.value == "bfloat16" and not device.bfloat16
        advised = {"precision": "float16"} if lacks else {}
        return View(picture, said, half.peak_bytes, uncaused=["precision", "device"], advised=advised)


def _title(halving: Halving, precision: str) -> str:
    before, now = (format_bytes(ledger.peak_bytes) for ledger in (halving.full, halving.half))
    share = -halving.saved_bytes / halving.full.peak_bytes
    change = "nothing saved" if abs(share) < SLIGHT else f"{'+' if share > 0 else '−'}{100 * abs(share):.0f} %"
    return f"{halving.half.name}, batch {halving.half.batch:,}, {precision}: {now} in place of {before}, {change}"


def half_explorer(
    network: str = "VGG-16",
    batch: int = 128,
    optimizer: str = "momentum",
    precision: str = "float16",
    device: str = "P100",
    networks: Mapping[str, Network] | None = None,
) -> HalfExplorer:
    """What is gained by halving: controls for network, optimizer, precision, device and batch.

    Every move redraws the skyline in halves over float32's outline and says in words what shrank, what did not, and
    what the device gains in time. The first drawing of a network with an optimizer traces it twice (up to a second or
    two), other moves do not.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with, one of BATCHES.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        precision: "float16" or "bfloat16".
        device: of the catalogue.
        networks: what the first control offers, by name; four of `NETWORKS` if not given.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    offered = {name: NETWORKS[name] for name in OFFERED} if networks is None else networks
    for what, value, known in (
        ("network", network, offered), ("optimizer", optimizer, OPTIMIZERS), ("precision", precision, HALVES),
        ("batch", batch, BATCHES),
    ):  # fmt: skip
        require_one_of(what, value, known)
    start = {"network": network, "batch": batch, "optimizer": optimizer, "precision": precision}
    return HalfExplorer(offered, {**start, "device": hardware.device(device).name})


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    half_explorer,
    {"network": None, "optimizer": ("momentum", "adam"), "precision": None, "batch": None},
)
