"""Explorer of lesson 11: what more cards bring, and how the work should be split.

Its controls choose a traced step, cards, their link, a scheme and the batch of each; the reading is
`parallel.on_cards`, the picture `figures.card_lanes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import spare_bytes
from course_utils.trace import training_step
from course_utils.units import CourseError, format_bytes, format_seconds, require_one_of
from lessons.many_gpus.card_lanes import card_lanes
from lessons.shared.parallel import DATA, SCHEMES, STAGES, CardStep, on_cards

BATCHES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # batch 1 is another trace
CARDS = (1, 2, 3, 4, 5, 6, 7, 8)
MUCH = 0.05  # of the step: below it, waiting is no matter


def sentences(chosen: CardStep, others: Mapping[str, CardStep | None], endless: CardStep) -> tuple[str, str, str]:
    """What the cards do, in words: the state, what the link does, which scheme is best and what has room.

    Args:
        chosen: the step shown.
        others: scheme -> the same step under it, None where it cannot be.
        endless: the step shown, with an infinitely fast link.
    """
    return _state(chosen), _culprit(chosen, endless), _way(chosen, others)


def _cards(step: CardStep) -> str:
    return f"{step.cards} × {step.device.name}" if step.cards > 1 else f"One {step.device.name}"


def _state(step: CardStep) -> str:
    spare = spare_bytes(step.device, step.peak_bytes)
    fits = f"{format_bytes(abs(spare))} {'to spare' if spare >= 0 else 'too much'} beside the context"
    how = f", {step.scheme}" if step.cards > 1 else ""
    buckets = " (with the buckets of DDP)" if step.scheme == DATA and step.cards > 1 else ""
    return (
        f"{_cards(step)}{how}, {step.batch:,} samples a card, {step.samples:,} a step: "
        f"{format_seconds(step.seconds)}, {step.speed_up:.2f} times as many samples a second as one card. Peak of the "
        f"fullest card {format_bytes(step.peak_bytes)}{buckets}, {fits}."
    )


def _culprit(step: CardStep, endless: CardStep) -> str:
    if step.cards == 1:
        return "One card sends nothing."
    sent = (
        f"A card sends {format_bytes(step.sent_bytes)} a step, {format_seconds(step.link_seconds)} on {step.link.name}"
    )
    waits = step.idle_seconds / step.seconds
    if step.scheme == STAGES:
        return (
            f"{sent}; it waits {format_seconds(step.idle_seconds)}, {100 * waits:.0f} % of the step. With an "
            f"infinitely fast link it would wait {format_seconds(endless.idle_seconds)}, for its neighbours alone."
        )
    if not step.link_seconds:
        return f"{step.name} sends nothing under this scheme."
    hidden = step.hidden_seconds / step.link_seconds
    where = f"{100 * hidden:.0f} % of that is hidden behind computation"
    if waits < MUCH:
        return f"{sent}; {where}, and the card hardly waits."
    return f"{sent}; {where}, and the card waits {100 * waits:.0f} % of the step."


def _has_room(step: CardStep) -> bool:
    """For the tensors beside the context: no allocator is replayed for a card among many, so it may still be tight."""
    return spare_bytes(step.device, step.peak_bytes) >= 0


def fastest(others: Mapping[str, CardStep | None]) -> CardStep | None:
    """The fastest scheme whose fullest card has room; None if there is none."""
    fitting = [step for step in others.values() if step is not None and _has_room(step)]
    return max(fitting, key=lambda step: step.speed_up, default=None)


def _way(chosen: CardStep, others: Mapping[str, CardStep | None]) -> str:
    if chosen.cards == 1:
        return "Take more cards to see what they bring."
    possible = [step for step in others.values() if step is not None]
    best, least = fastest(others), min(possible, key=lambda step: step.peak_bytes)
    if best is None:
        return f"No scheme has room on these cards: the least is {format_bytes(least.peak_bytes)}, with {least.scheme}."
    if not _has_room(chosen):
        return f"Of the schemes with room, {best.scheme} is the fastest, {best.speed_up:.2f} times."
    if best.speed_up <= 1.0001 * chosen.speed_up:
        said = "No other scheme with room is faster."
    elif best.speed_up < 1.02 * chosen.speed_up:
        said = f"No other scheme with room is much faster; {best.scheme} reaches {best.speed_up:.2f} times."
    else:
        said = f"Faster here: {best.scheme}, {best.speed_up:.2f} times."
    if best.speed_up < 1:
        said += " All with room are slower than one card."
    if least.scheme != chosen.scheme and least.peak_bytes < 0.98 * chosen.peak_bytes:
        said += f" Least memory: {least.scheme}, {format_bytes(least.peak_bytes)}."
    return said


class CardsExplorer(Explorer):
    """Controls over cards and schemes, lanes of a step, three sentences; made by `cards_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[str, StepTrace] = {}
        dropdown, slider = widgets.Dropdown, widgets.SelectionSlider
        devices = [item.name for item in hardware.devices()]
        ways = [item.name for item in hardware.peers()]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.device = described(dropdown, "device", options=devices, value=start["device"])
        self.link = described(dropdown, "link", options=ways, value=start["link"])
        self.scheme = described(dropdown, "scheme", options=list(SCHEMES), value=start["scheme"])
        self.cards = described(slider, "cards", options=list(CARDS), value=start["cards"])
        sizes = [(f"{n:,}", n) for n in BATCHES]
        self.batch = described(slider, "batch a card", options=sizes, value=start["batch"])
        moving = (self.network, self.device, self.link, self.scheme, self.cards, self.batch)
        self.lay_out(
            [
                ("1fr 1fr 1fr 1fr", [self.network, self.device, self.link, self.scheme]),
                ("1fr 1fr", [self.cards, self.batch]),
            ],
            {control.description: control for control in moving},
        )

    @property
    def step(self) -> StepTrace:
        """The traced step of the network, traced at most once."""
        name = self.network.value
        if name not in self._steps:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._steps[name] = training_step(module, network.input_shape, network.classes, name=name)
        return self._steps[name]

    def readings(self) -> dict[str, CardStep | None]:
        """Scheme -> the step under it, None where the network has too few layers for so many stages."""
        ledger = self.step.at(self.batch.value)
        alone = predict_step(ledger, self.device.value)
        found: dict[str, CardStep | None] = {}
        for scheme in SCHEMES:
            try:
                found[scheme] = on_cards(ledger, alone.device, self.link.value, self.cards.value, scheme, alone=alone)
            except CourseError:
                if scheme == self.scheme.value:
                    raise
                found[scheme] = None
        return found

    def view(self) -> View:
        """Lanes and sentences of the present settings; the speed-up is watched."""
        found = self.readings()
        chosen = found[self.scheme.value]
        assert chosen is not None
        alone = on_cards(self.step.at(self.batch.value), chosen.device, chosen.link, 1)
        rows = {f"one {chosen.device.name}": alone}
        if chosen.cards > 1:
            rows[f"{chosen.cards} cards, {chosen.scheme}"] = chosen
        best, link = fastest(found), replace(chosen.link, nominal_gb_s=1e9)
        endless = on_cards(self.step.at(self.batch.value), chosen.device, link, chosen.cards, chosen.scheme)
        return View(
            card_lanes(rows, title(chosen), room_for=2),
            sentences(chosen, found, endless),
            round(chosen.speed_up, 2),
            what="the speed-up",
            write=lambda change: f"{change:.2f}",
            uncaused=["network"],
            advised={} if chosen.cards == 1 or best is None else {"scheme": best.scheme},
        )


def title(step: CardStep) -> str:
    """The finding: how much faster so many cards are."""
    head = f"{step.name}, batch {step.batch:,} a card"
    if step.cards == 1:
        return f"{head}: one card, {format_seconds(step.seconds)} a step"
    return f"{head}: {step.cards} cards, {step.scheme}, {step.speed_up:.2f} times as fast"


def cards_explorer(
    network: str = "AlexNet",
    device: str = "Tesla K40",
    link: str = "PCIe 2.0 x16",
    scheme: str = DATA,
    cards: int = 4,
    batch: int = 32,
    networks: Mapping[str, Network] = NETWORKS,
) -> CardsExplorer:
    """What more cards bring: controls for network, device, link, scheme, number of cards and the batch of each.

    Every move redraws when a card computes and when its link is busy, and says how much faster the cards are together,
    what they wait for, and which scheme does better. The first drawing of a network traces it, other moves do not.

    Args:
        network: which of `networks` to start with.
        device: of the catalogue; every card.
        link: of the catalogue; from card to card.
        scheme: one of SCHEMES.
        cards: 1 to 8.
        batch: samples of each card, one of BATCHES.
        networks: what the first control offers, by name.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, value, known in (
        ("network", network, networks), ("scheme", scheme, SCHEMES), ("number of cards", cards, CARDS),
        ("batch", batch, BATCHES),
    ):  # fmt: skip
        require_one_of(what, value, known)
    start = {"network": network, "scheme": scheme, "cards": cards, "batch": batch}
    return CardsExplorer(networks, {**start, "device": hardware.device(device).name, "link": hardware.link(link).name})


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    cards_explorer,
    {
        "network": ("AlexNet", "ResNet-50"),
        "device": ("Tesla K40", "RTX 4090"),
        "scheme": None,
        "cards": (1, 2, 4, 8),
        "batch a card": None,
    },
    write="hundredths",
)
