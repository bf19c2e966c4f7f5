"""Explorer of lesson 03: where the memory of a training step goes, and whether it fits a card.

Its controls choose a traced step (`trace`) and a batch, the readings are a `memory.Ledger` and, where a device is
chosen, its `speed.StepTime`; the picture is a `figures.skyline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import skyline
from course_utils.figures.style import percent
from course_utils.machine import hardware
from course_utils.machine.speed import StepTime, predict_step
from course_utils.memory import Ledger, StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import NO, TENSORS, Fit, fit, largest_batch
from course_utils.trace import OPTIMIZERS, PRECISIONS, training_step
from course_utils.units import GIB, CourseError, format_bytes, format_seconds, require_one_of, require_whole

CARDS_GIB = (4, 6, 8, 11, 12, 16, 24, 40, 80, 141)  # what cards hold, from a laptop's to an H200
PICTURE_SIZES = (32, 64, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
LARGEST_BATCH = 512
OPERATORS = "operators"  # what the axis shows where no device is chosen
UNCAUSED = ("card", "axis")  # controls that change no peak
STAYS = ("parameters", "optimizer state", "weight gradients")  # the roles that do not grow with the batch


def sentences(step: StepTrace, ledger: Ledger, limit_bytes: float, card: str | None = None) -> tuple[str, str, str]:
    """What a skyline says in words: the state, the culprit, the way out.

    Args:
        step: the step at every batch.
        ledger: the same step at the batch shown.
        limit_bytes: what the card holds.
        card: what it is called, "12 GiB card" if not given.
    """
    verdict = fit(ledger, limit_bytes, card)
    return _state(ledger, verdict), _culprit(ledger, verdict), _way_out(step, limit_bytes)


def _state(ledger: Ledger, verdict: Fit) -> str:
    where = f"in the {ledger.peak_phase} phase" + (f", layer {ledger.peak_layer}" if ledger.peak_layer else "")
    peak = format_bytes(ledger.peak_bytes)
    head = f"Batch {ledger.batch:,} on {_article(verdict.card)}: peak {peak}, {where}. {verdict.sentence}"
    if verdict.decided != TENSORS:
        return head
    event = int((ledger.total > verdict.card_bytes).argmax())
    layer = f", layer {ledger.layers[event]}" if ledger.layers[event] else ""
    return f"{head} Memory runs out in the {ledger.phases[event]} phase{layer}."


def _cards(size_gib: float) -> list[tuple[str, float]]:
    """The sizes that are offered, as written: the usual ones and this one, such as that of the device chosen."""
    return [(f"{size:.4g} GiB", size) for size in sorted({*CARDS_GIB, size_gib})]


def _article(card: str) -> str:
    return f"an {card}" if card.startswith(("8", "11 ", "80")) else f"a {card}"


def _culprit(ledger: Ledger, verdict: Fit) -> str:
    shares = ledger.by_role()
    role, stays = str(shares.idxmax()), int(shares[list(STAYS)].sum())
    verb = "are" if role.endswith("s") else "is"
    share = percent(shares[role], ledger.peak_bytes)
    rest = f"{format_bytes(stays)} of parameters, optimizer state and weight gradients do not grow with the batch"
    if verdict.state != NO:
        return f"{role.capitalize()} {verb} {share} of it; {rest}."
    if not verdict.holds(stays):
        alone = "Parameters, optimizer state and weight gradients alone take"
        return f"{alone} {format_bytes(stays)}, more than the card has room for."
    breaks = "break" if verb == "are" else "breaks"
    return f"{role.capitalize()} {breaks} the budget: {format_bytes(shares[role])}, {share} of the peak; {rest}."


def _way_out(step: StepTrace, limit_bytes: float) -> str:
    try:
        batches = largest_batch(step, limit_bytes)
    except CourseError as error:
        return f"{error}."
    if batches.tight:
        return batches.words
    least = step.at(1).peak_bytes
    return f"No batch fits: one sample alone needs {format_bytes(least)}, and the context comes on top."


def time_sentence(time: StepTime) -> str:
    """What a skyline over time says beyond the memory."""
    phases = time.by_phase()
    longest = str(phases.idxmax())
    return (
        f"Predicted on {time.device.name}: {format_seconds(time.total_seconds)} a step, "
        f"{time.samples_per_second:,.3g} samples a second; "
        f"{percent(phases[longest], time.total_seconds)} of it is the {longest} phase."
    )


@dataclass(frozen=True)
class _Kept:
    """A step whose outline was kept, with the device and precision it was kept at."""

    ledger: Ledger
    device: str
    precision: str

    def time_on(self, device: str) -> StepTime | None:
        """Its time on its own device, or on this one if it was kept without."""
        if device == OPERATORS:
            return None
        try:
            return predict_step(self.ledger, device if self.device == OPERATORS else self.device, self.precision)
        except CourseError as error:
            raise CourseError(f"the outline kept has no time: {error}") from error


class MemoryExplorer(Explorer):
    """Controls over a training step, its skyline, and the sentences on it; made by `memory_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[tuple[object, ...], StepTrace] = {}
        self._kept: _Kept | None = None
        dropdown, size = widgets.Dropdown, start["size"]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.optimizer, self.precision = (
            described(dropdown, what, options=list(known), value=start[what])
            for what, known in (("optimizer", OPTIMIZERS), ("precision", PRECISIONS))
        )
        known = [item.name for item in hardware.devices()]
        axes = [("operators in order", OPERATORS), *((f"time on {name}", name) for name in known)]
        self.device = described(dropdown, "axis", "4em", options=axes, value=start["device"])
        self.device.tooltip = "What the axis shows: one operator after another, or the time predicted for a device"
        self.card = described(dropdown, "card", "4em", options=_cards(start["card_gib"]), value=start["card_gib"])
        sizes = [(f"{side} × {side}", side) for side in sorted({*PICTURE_SIZES, size})]
        self.size = described(widgets.SelectionSlider, "image", options=sizes, value=size, continuous_update=False)
        most = max(LARGEST_BATCH, start["batch"])
        self.batch = described(widgets.IntSlider, "batch", value=start["batch"], min=1, max=most)
        self.keep = widgets.ToggleButton(value=False, description="keep as outline", layout=widgets.Layout(width="98%"))
        self.keep.tooltip = "Draw this skyline as an outline over the next ones"
        moving = (self.network, self.size, self.optimizer, self.precision, self.card, self.batch, self.device)
        self.device.observe(self._hold, names="value")  # before the redraw, which then shows both
        self.lay_out(
            [
                ("1fr 1fr 1fr 1fr", [self.network, self.optimizer, self.precision, self.card]),
                ("3fr 1fr", [self.size, self.keep, self.batch, self.device]),
            ],
            {control.description: control for control in moving},
        )
        self.keep.observe(self._keep, names="value")

    @property
    def step(self) -> StepTrace:
        """The step that the controls ask for, traced at most once.

        Raises:
            CourseError: this network cannot take these images, or cannot be traced.
        """
        network = self._networks[self.network.value]
        images = len(network.input_shape) == 3
        shape = (network.input_shape[0], self.size.value, self.size.value) if images else network.input_shape
        key = (network.name, shape, self.optimizer.value, self.precision.value)
        if key not in self._steps:
            with torch.device("meta"):  # a network of shapes: no time and no memory for numbers nobody looks at
                module = network.build()
            self._steps[key] = training_step(
                module,
                input_shape=shape,
                classes=network.classes,
                optimizer=self.optimizer.value,
                precision=self.precision.value,
                name=self.network.value,
            )
        return self._steps[key]

    @property
    def limit_bytes(self) -> float:
        """What the card holds."""
        return float(self.card.value * GIB)

    def view(self) -> View:
        """Skyline and sentences of the present settings; the peak is watched."""
        self.size.disabled = len(self._networks[self.network.value].input_shape) != 3
        step = self.step
        ledger = step.at(self.batch.value)
        name, kept = self.device.value, self._kept
        time = None if name == OPERATORS else predict_step(ledger, name, self.precision.value)
        picture = skyline(
            ledger,
            self.limit_bytes,
            kept.ledger if kept else None,
            before_name="kept",
            time=time,
            before_time=kept.time_on(name) if kept else None,
        )
        said = sentences(step, ledger, self.limit_bytes)
        advised: dict[str, object] = {}
        with suppress(CourseError):  # memory that does not grow with the batch
            fits = largest_batch(step, self.limit_bytes).fits
            advised = {"batch": fits} if 0 < fits <= self.batch.max else advised
        all_said = (*said, time_sentence(time)) if time else said
        return View(picture, all_said, ledger.peak_bytes, uncaused=UNCAUSED, advised=advised)

    def _hold(self, change: Any) -> None:
        """A device chosen brings its own memory as the card; another card can be chosen after it."""
        if change["new"] != OPERATORS:
            size = hardware.device(change["new"]).memory_bytes / GIB
            with self.in_one_move():
                self.card.options = _cards(size)
                self.card.value = size

    def _keep(self, _change: object = None) -> None:
        try:
            kept = _Kept(self.step.at(self.batch.value), self.device.value, self.precision.value)
            self._kept = kept if self.keep.value else None
        except CourseError:  # nothing is drawn that could be kept
            self._kept = None
        self.redraw()


def memory_explorer(
    network: str = "VGG-16",
    batch: int = 128,
    size: int = 224,
    optimizer: str = "momentum",
    precision: str = "float32",
    card_gib: float | None = None,
    networks: Mapping[str, Network] = NETWORKS,
    device: str = OPERATORS,
) -> MemoryExplorer:
    """Where the memory of a training step goes: controls for network, batch, image, optimizer, precision and card.

    Every move redraws the skyline and says in words how things stand, which role is to blame, and the largest batch
    that fits. The first drawing of a combination traces it (tens to hundreds of milliseconds), moves of the batch, the
    card and the device do not. With a device the axis is the predicted time of the step there, and the card becomes the
    device's.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with.
        size: side of the square images to start with, in pixels; without effect on networks that take no images.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        precision: "float32", "bfloat16" or "float16" (autocast).
        card_gib: what the card holds, in GiB; if not given 12, or what the device holds.
        networks: what the first control offers, by name; add your own as `Network(name, build, input_shape, classes)`.
        device: what the axis shows to start with: "operators", or a name of the catalogue for its predicted time.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, value, known in (
        ("network", network, networks), ("optimizer", optimizer, OPTIMIZERS), ("precision", precision, PRECISIONS),
        ("device", device, [OPERATORS, *(item.name for item in hardware.devices())]),
    ):  # fmt: skip
        require_one_of(what, value, known)
    for what, number in (("batch", batch), ("size", size)):
        require_whole(what, number)
    if card_gib is None:
        card_gib = 12.0 if device == OPERATORS else hardware.device(device).memory_bytes / GIB
    if not card_gib > 0:
        raise CourseError(f"card_gib must be more than 0 GiB, got {card_gib!r}")
    start = {"network": network, "batch": batch, "size": size, "optimizer": optimizer, "precision": precision}
    return MemoryExplorer(networks, {**start, "card_gib": card_gib, "device": device})


# Begins as the lesson's cell does. What a page without a kernel shows: all that *Try these* asks.
PAGE = Page(
    partial(memory_explorer, "VGG-16", batch=7, optimizer="adam", card_gib=6),
    {
        "network": ("AlexNet", "VGG-16", "ResNet-50", "52 M dense net"),
        "optimizer": ("momentum", "adam"),
        "axis": ("operators in order", "time on RTX 4090"),
        "card": ("6 GiB", "12 GiB", "24 GiB"),
        "batch": (1, 2, 7, 8, 32, 64, 96, 100, 104, 108, 112, 116, 128, 160, 256, 512),
    },
)
