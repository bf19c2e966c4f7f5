"""Explorer of lesson 02: what a training step needs, and which cards of the catalogue hold it.

Its controls choose a traced step (`trace`) and a batch, the reading is `on_todays`, the picture `cards`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import Picture
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import (
    CANNOT,
    FITS,
    TIGHT,
    CardFit,
    Demand,
    cheapest,
    demand,
    largest_batch,
    smallest,
)
from course_utils.trace import OPTIMIZERS, PRECISIONS, training_step
from course_utils.units import CourseError, format_bytes, require_one_of, require_whole
from lessons.hardware.cards import CardBar, cards
from lessons.hardware.offers import todays_context

LARGEST_BATCH = 512
INFERENCE = "none (inference)"


def on_todays(step: StepTrace, batch: int, devices: Sequence[Device], largest: bool = True) -> list[CardFit]:
    """How a step stands on every device, in their order, each beside the context that today's PyTorch takes of it."""
    asked = demand(step.at(batch))
    _ = asked.scratch.reserved_bytes  # known, so that a card with as much needs no replay
    found = []
    for device in devices:
        verdict = replace(asked, context=todays_context(device)).on(device)
        state = CANNOT if step.precision == "bfloat16" and not device.bfloat16 else verdict.state
        found.append(CardFit(device, state, verdict, _most(step, device) if largest else None))
    return found


def _most(step: StepTrace, device: Device) -> int | None:
    try:
        return largest_batch(step, device, todays_context(device)).fits
    except CourseError:  # memory does not grow with the batch, so that there is no largest one
        return None


def priced(device: Device) -> str:
    """A card with its launch price and year: "GTX 1080 (599 dollars in 2016)"."""
    price = "no confirmed price" if device.launch_usd is None else f"{device.launch_usd:,.0f} dollars in {device.year}"
    return f"{device.name} ({price})"


def sentences(step: StepTrace, batch: int, asked: Demand, fits: Sequence[CardFit]) -> tuple[str, str, str]:
    """What the dots say in words: what the step needs, which card to take, and what else would do.

    Args:
        step: the step at every batch.
        batch: the one shown.
        asked: what it needs.
        fits: how it stands on every card.
    """
    state = (
        f"{step.name}, batch {batch:,}: {format_bytes(asked.tensors)} of tensors at the peak; "
        f"{format_bytes(asked.least)} with the small context."
    )
    return state, _which(fits), _else(fits)


def _which(fits: Sequence[CardFit]) -> str:
    good = [fit for fit in fits if fit.state == FITS]
    least, cheap = smallest(fits), cheapest(fits)
    if least is None:
        tight = [fit.device.name for fit in fits if fit.state == TIGHT]
        if tight:
            return f"No card surely holds it; on {_names(tight)} it is tight: its tensors fit, not all else."
        return "No card here holds it."
    able = [fit for fit in fits if fit.state != CANNOT]
    which = "cards" if len(able) == len(fits) else "cards that compute in bfloat16"
    have = f"{len(good)} of {len(able)} {which} {'holds' if len(good) == 1 else 'hold'} it."
    if cheap is None:
        return f"{have} The smallest is {priced(least.device)}; no price of any of them is confirmed."
    if cheap.device == least.device:
        return f"{have} The smallest was the cheapest at launch too: {priced(cheap.device)}."
    return f"{have} The smallest is {priced(least.device)}, the cheapest at launch {priced(cheap.device)}."


def _short(fits: Sequence[CardFit]) -> CardFit | None:
    """Of the cards that compute in this precision and do not hold the step, the largest."""
    short = [fit for fit in fits if fit.state not in (FITS, CANNOT)]
    return max(short, key=lambda fit: fit.device.memory_bytes, default=None)


def _else_batch(fits: Sequence[CardFit]) -> int:
    """The batch that the last sentence names; 0 if it names none."""
    near = _short(fits)
    return 0 if near is None or near.state == TIGHT else near.largest_batch or 0


def _else(fits: Sequence[CardFit]) -> str:
    if all(fit.state == CANNOT for fit in fits):
        return "None of them computes in bfloat16: take float16."
    near = _short(fits)
    if near is None:
        return "Every card that computes in this precision holds it: the network does not decide which card you need."
    name = near.device.name
    if near.largest_batch is None:
        return f"{name} does not, and a smaller batch would not help: memory does not grow with the batch."
    if near.state == TIGHT:
        return f"On {name} (orange): {near.verdict.sentence}"
    missing = f"{name}, the largest that does not hold it, lacks {format_bytes(-near.verdict.spare_bytes)}"
    if near.largest_batch:
        return f"{missing}; batches up to {near.largest_batch:,} fit it."
    return f"{missing}, and not even one sample fits."


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def bars(fits: Sequence[CardFit], unknown: str = "any") -> list[CardBar]:
    """One dot a card, by memory, then by year; `unknown` is what stands for a largest batch that there is not."""

    def note(fit: CardFit) -> str:
        if fit.state == CANNOT:
            return "no bfloat16"
        return unknown if fit.largest_batch is None else f"{fit.largest_batch:,}" if fit.largest_batch else "none"

    ordered = sorted(fits, key=lambda fit: (fit.device.memory_bytes, fit.device.year))
    return [
        CardBar(
            f"{fit.device.name}{', one die' if fit.device.dies > 1 else ''}",
            fit.device.memory_bytes,
            fit.state,
            ("" if fit.device.launch_usd is None else f"${fit.device.launch_usd:,.0f}", note(fit)),
        )
        for fit in ordered
    ]


def title(step: StepTrace, batch: int, fits: Sequence[CardFit]) -> str:
    """The finding: how many cards hold the step."""
    good = sum(fit.state == FITS for fit in fits)
    able = sum(fit.state != CANNOT for fit in fits)
    cards = "cards" if able == len(fits) else "cards with bfloat16"
    count = "no card" if not good else "every card" if good == len(fits) else f"{good} of {able} {cards}"
    verb = "holds" if not good or good in (1, len(fits)) else "hold"
    return f"{step.name}, batch {batch:,}: {count} {verb} it"


class HardwareExplorer(Explorer):
    """Controls over a training step, every card's memory against it, and three sentences; by `hardware_explorer`."""

    def __init__(self, networks: Mapping[str, Network], devices: Sequence[Device], start: Mapping[str, Any]) -> None:
        self._networks, self._devices = networks, tuple(devices)
        self._steps: dict[tuple[str, str, str], StepTrace] = {}
        self._known: set[tuple[str, str, str]] = set()  # the steps whose largest batches were found
        dropdown = widgets.Dropdown
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.optimizer = described(
            dropdown, "optimizer", options=[*OPTIMIZERS, INFERENCE], value=start["optimizer"] or INFERENCE
        )
        self.precision = described(dropdown, "precision", options=list(PRECISIONS), value=start["precision"])
        most = max(LARGEST_BATCH, start["batch"])
        self.batch = described(widgets.IntSlider, "batch", value=start["batch"], min=1, max=most)
        moving = (self.network, self.optimizer, self.precision, self.batch)
        self.lay_out(
            [("1fr 1fr 1fr", moving[:3]), ("1fr", [self.batch])], {control.description: control for control in moving}
        )

    def _key(self, network: str) -> tuple[str, str, str]:
        return network, self.optimizer.value, self.precision.value

    @property
    def step(self) -> StepTrace:
        """The step that the controls ask for, traced at most once.

        Raises:
            CourseError: it cannot be traced.
        """
        return self._traced(*self._key(self.network.value))

    def _traced(self, name: str, optimizer: str, precision: str) -> StepTrace:
        key = name, optimizer, precision
        if key not in self._steps:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._steps[key] = training_step(
                module,
                network.input_shape,
                network.classes,
                None if optimizer == INFERENCE else optimizer,
                precision,
                name=network.name,
            )
        return self._steps[key]

    def ahead(self) -> Iterator[Callable[[], object]]:
        """The steps of the other networks."""
        return (partial(self._traced, *self._key(name)) for name in self._networks)

    def view(self) -> View:
        """Bars and sentences of the present settings; the peak of the tensors is watched."""
        step, batch, key = self.step, self.batch.value, self._key(self.network.value)
        if key in self._known:
            return self._whole()
        asked, fits = demand(step.at(batch)), on_todays(step, batch, self._devices, largest=False)
        said = (*sentences(step, batch, asked, fits)[:2], "The largest batch of each card is looked for.")
        parts = (partial(largest_batch, step, device, todays_context(device)) for device in self._devices)
        return View(self._drawn(asked, fits, "…"), said, asked.tensors, whole=self._whole, parts=parts)

    def _whole(self) -> View:
        """With the largest batch of each card, which takes longer to find than all else."""
        step, batch = self.step, self.batch.value
        self._known.add(self._key(self.network.value))
        asked, fits = demand(step.at(batch)), on_todays(step, batch, self._devices)
        fewer = _else_batch(fits)
        advised = {"batch": fewer} if fewer else {}
        said = sentences(step, batch, asked, fits)
        return View(self._drawn(asked, fits, "any"), said, asked.tensors, advised=advised)

    def _drawn(self, asked: Demand, fits: Sequence[CardFit], unknown: str) -> Picture:
        # one line: so near each other, two cannot be told apart on an axis that doubles
        lines = {f"tensors {format_bytes(asked.tensors)}, with context": float(asked.least)}
        head = title(self.step, self.batch.value, fits)
        return cards(bars(fits, unknown), lines, head, ("at launch", "fits up to"))


def hardware_explorer(
    network: str = "VGG-16",
    batch: int = 80,
    optimizer: str | None = "momentum",
    precision: str = "float32",
    networks: Mapping[str, Network] = NETWORKS,
    more_devices: Sequence[Device] = (),
) -> HardwareExplorer:
    """What fits? Controls for network, batch, optimizer and precision over the memory of every card of the catalogue.

    The line is the peak of the tensors, exact, with the least context that is assumed on top
    (`course_utils.machine.context`): no card that ends left of it holds the step. A card's dot is filled
    where the verdict is *fits* or *tight*. The first drawing of a combination traces it and replays it on every size of
    card (a second or two); a move of the batch does not.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with.
        optimizer: "sgd", "momentum", "adam" or "adamw"; None for inference.
        precision: "float32", "bfloat16" or "float16" (autocast).
        networks: what the first control offers, by name; add your own as `Network(name, build, input_shape, classes)`.
        more_devices: devices beside those of the catalogue, such as `lessons.why_gpus.timed.measure_here().device`.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, value, known in (
        ("network", network, networks), ("optimizer", optimizer, [*OPTIMIZERS, None]),
        ("precision", precision, PRECISIONS),
    ):  # fmt: skip
        require_one_of(what, value, known)
    require_whole("batch", batch)
    start = {"network": network, "batch": batch, "optimizer": optimizer, "precision": precision}
    return HardwareExplorer(networks, [*hardware.devices(), *more_devices], start)


# What a page without a kernel shows: all that *Try two things* asks, and bfloat16.
PAGE = Page(
    hardware_explorer,
    {
        "network": ("VGG-16", "ResNet-50", "52 M dense net"),
        "optimizer": ("momentum", "adam", INFERENCE),
        "precision": ("float32", "bfloat16"),
        "batch": (1, 16, 80, 128, 256, 512),
    },
)
