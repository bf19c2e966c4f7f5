"""Explorer of lesson 07: which batch, and how to get there on a card that cannot take it at once.

Its controls choose a traced step, a device and a wanted batch; the reading is `accumulation.Accumulation`, the picture
a `figures.plane` of peak against time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import Axis, Curve, Picture, Spot, plane
from course_utils.figures.scene import FAINT, INK
from course_utils.figures.style import SERIES_COLOURS, percent
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import TIGHT, room_for_tensors
from course_utils.trace import OPTIMIZERS
from course_utils.units import GIB, CourseError, format_bytes, format_seconds, require_one_of
from lessons.batch_size.accumulation import Accumulation, Cut, accumulation, micro_batches

WANTED = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
BEYOND = 2.0  # a card that holds more than this many times the highest peak is named, not drawn

WIDE = 8.0  # times that are further apart than this are drawn on a logarithmic axis
EARLIER = 0.98  # of the shortest time: where the axis begins if it is linear


def sentences(steps: Accumulation, cuts: Sequence[Cut], chosen: Cut, device: Device) -> tuple[str, str, str]:
    """What a choice means in words: the state, what accumulation adds, the way that loses the least time.

    Args:
        steps: the network's step.
        cuts: every way to cut the wanted batch.
        chosen: the one shown.
        device: whose memory and rates.
    """
    return _state(steps, chosen, device), _added(steps, chosen), _way(steps, cuts, device)


def _words(cut: Cut) -> str:
    return f"{cut.wanted:,} at once" if cut.parts == 1 else f"{cut.wanted:,} as {cut.parts:,} × {cut.micro:,}"


def _state(steps: Accumulation, cut: Cut, device: Device) -> str:
    return (
        f"A batch of {_words(cut)} on {device.name}: the peak is {format_bytes(cut.peak_bytes)}. "
        f"{steps.fit(cut, device).sentence} "
        f"{format_seconds(cut.seconds)} predicted for a step, {format_seconds(cut.seconds_per_sample)} a sample."
    )


def _added(steps: Accumulation, cut: Cut) -> str:
    if cut.parts == 1:
        return "Nothing is accumulated: the weight gradients come once, in the backward pass."
    extra = steps.extra_bytes(cut.micro)
    if not extra:
        return "Accumulation adds nothing to the peak, which is in the update, where all gradients are alive anyway."
    return (
        f"Accumulation adds {format_bytes(extra)} to the peak of a micro-batch: the gradients of those before it "
        "wait, and for a moment each layer has its old gradient and its new one."
    )


def _way(steps: Accumulation, cuts: Sequence[Cut], device: Device) -> str:
    whole, best = cuts[-1], steps.largest_that_fits(cuts, device)
    if best is None:
        least = cuts[0]
        larger = sorted(hardware.devices(), key=lambda card: card.memory_bytes)
        enough = next((card for card in larger if steps.largest_that_fits([least], card)), None)
        needs = f"No micro-batch surely fits: even {least.micro} samples need {format_bytes(least.peak_bytes)}"
        return f"{needs}, and no card here holds them." if enough is None else f"{needs}: take the {enough.name}."
    if best is whole:
        return f"Largest micro-batch that fits: {whole.wanted:,}, the whole batch, with no accumulation."
    lost = best.seconds / whole.seconds - 1
    tight = [f"{cut.micro:,}" for cut in cuts if cut.micro > best.micro and steps.fit(cut, device).state == TIGHT]
    nearly = f" ({' and '.join(tight)}: tight)" if tight else ""
    at_once = "is tight" if steps.fit(whole, device).state == TIGHT else "does not fit"
    return (
        f"Largest micro-batch that fits: {best.micro:,}, in {best.parts:,} parts{nearly}. That loses {_share(lost)} of "
        f"time against the whole batch at once, which {at_once}."
    )


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else percent(share, 1.0)


def picture(name: str, steps: Accumulation, cuts: Sequence[Cut], chosen: Cut, device: Device) -> Picture:
    """Peak against predicted time: a point for every micro-batch, hollow where the card is too small."""
    limit = room_for_tensors(device)
    whole, highest = cuts[-1], max(cut.peak_bytes for cut in cuts)
    shown = limit <= BEYOND * highest
    label = "GiB at the peak" + ("" if shown else f" (↑ {limit / GIB:,.4g} GiB: {device.name} − context)")
    best = steps.largest_that_fits(cuts, device)
    if best is None:
        finding = f"no way to cut a batch of {cuts[0].wanted:,} surely fits {device.name}"
    elif best.parts == 1:
        finding = f"a batch of {best.wanted:,} fits {device.name} at once"
    else:
        finding = f"a batch of {best.wanted:,} fits {device.name} as {best.parts:,} × {best.micro:,}"
    spots = [
        Spot(
            _named(cut) + (", tight" if steps.fit(cut, device).state == TIGHT else ""),
            cut.seconds,
            cut.peak_bytes / GIB,
            SERIES_COLOURS[0] if cut.micro == chosen.micro else INK,
            hollow=steps.exceeds(cut, device),
            bold=cut.micro == chosen.micro,
        )
        for cut in [chosen, *(cut for cut in cuts if cut.micro != chosen.micro)]
    ]
    wide = cuts[0].seconds > WIDE * whole.seconds
    left = None if wide else EARLIER * min(cut.seconds for cut in cuts)
    curve = Curve("", [p.seconds for p in cuts[::-1]], [p.peak_bytes / GIB for p in cuts[::-1]], FAINT, width=1.4)
    return plane(
        Axis("predicted time of one step with its update", log=wide, low=left, write=_seconds),
        Axis(label),
        curves=[curve],
        spots=spots,
        title=f"{name}: {finding}",
        limits={f"{device.name} − context": limit / GIB} if shown else None,
    )


def _named(cut: Cut) -> str:
    return "at once" if cut.parts == 1 else f"{cut.parts:,} × {cut.micro:,}"


def _seconds(value: float) -> str:
    return format_seconds(value) if value else "0"


class BatchExplorer(Explorer):
    """Controls over a batch and its micro-batches, peak against time, and sentences; made by `batch_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[tuple[str, str], Accumulation] = {}
        dropdown = widgets.Dropdown
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.optimizer = described(dropdown, "optimizer", options=list(OPTIMIZERS), value=start["optimizer"])
        names = [item.name for item in hardware.devices()]
        self.device = described(dropdown, "device", options=names, value=start["device"])
        slider = widgets.SelectionSlider
        batches = sorted({*WANTED, start["batch"]})
        self.wanted = described(slider, "batch", "7em", options=[(f"{n:,}", n) for n in batches], value=start["batch"])
        sizes = micro_batches(start["batch"])
        self.micro = described(
            slider, "micro-batch", "7em", options=[(f"{n:,}", n) for n in sizes], value=start["micro"]
        )
        self.wanted.observe(self._recut, names="value")  # before the base observes, so that one move draws once
        moving = (self.network, self.optimizer, self.device, self.wanted, self.micro)
        self.lay_out(
            [("1fr 1fr 1fr", [self.network, self.optimizer, self.device]), ("1fr 1fr", [self.wanted, self.micro])],
            {control.description: control for control in moving},
        )

    @property
    def steps(self) -> Accumulation:
        """The steps that the controls ask for, traced at most once."""
        return self._traced(self.network.value, self.optimizer.value)

    def _traced(self, name: str, optimizer: str) -> Accumulation:
        key = name, optimizer
        if key not in self._steps:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._steps[key] = accumulation(module, network.input_shape, network.classes, optimizer, name=name)
        return self._steps[key]

    def ahead(self) -> Iterator[Callable[[], object]]:
        """The steps of the other networks, and how the present batch is cut there."""
        for name in self._networks:
            yield partial(self._traced, name, self.optimizer.value)
            yield lambda name=name: self._read(self._traced(name, self.optimizer.value))  # type: ignore[misc]

    def _read(self, steps: Accumulation) -> tuple[list[Cut], Cut | None]:
        """Every way to cut the wanted batch, and the one with the largest micro-batch that fits."""
        device = hardware.device(self.device.value)
        cuts = steps.cuts(self.wanted.value, device)
        return cuts, steps.largest_that_fits(cuts, device)

    def _recut(self, _change: object = None) -> None:
        """Offer the micro-batches that divide the new batch; keep the nearest to the one that was chosen."""
        sizes, before = micro_batches(self.wanted.value), self.micro.value
        with self.in_one_move():
            self.micro.options = [(f"{n:,}", n) for n in sizes]
            self.micro.value = min(sizes, key=lambda n: (abs(n - before), n))

    def view(self) -> View:
        """Peak against time and the sentences of the present settings; the peak is watched."""
        steps, device = self.steps, hardware.device(self.device.value)
        cuts, best = self._read(steps)
        chosen = next(cut for cut in cuts if cut.micro == self.micro.value)
        drawn = picture(self.network.value, steps, cuts, chosen, device)
        advised = {} if best is None else {"micro-batch": best.micro}
        said = sentences(steps, cuts, chosen, device)
        return View(drawn, said, chosen.peak_bytes, uncaused=["device"], advised=advised)


def batch_explorer(
    network: str = "VGG-16",
    batch: int = 256,
    micro: int = 64,
    optimizer: str = "momentum",
    device: str = "Titan X (Maxwell)",
    networks: Mapping[str, Network] = NETWORKS,
) -> BatchExplorer:
    """Which batch, and how to get there: controls for network, optimizer, device, wanted batch and micro-batch.

    Every move redraws peak against predicted time for all micro-batches that divide the batch, and says whether the
    chosen one fits, what accumulation adds, and which one loses the least time.

    Args:
        network: which of `networks` to start with.
        batch: samples in the wanted batch, 2 or more.
        micro: samples in a micro-batch, a divisor of the batch of 2 or more.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        device: of the catalogue; its memory is the limit.
        networks: what the first control offers, by name; add your own as `Network(name, build, input_shape, classes)`.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, value, known in (("network", network, networks), ("optimizer", optimizer, OPTIMIZERS)):
        require_one_of(what, value, known)
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise CourseError(f"batch must be a whole number of 2 or more, got {batch!r}")
    if micro not in micro_batches(batch):
        raise CourseError(f"micro must be one of {', '.join(map(str, micro_batches(batch)))}, got {micro!r}")
    start = {"network": network, "batch": batch, "micro": micro, "optimizer": optimizer}
    return BatchExplorer(networks, {**start, "device": hardware.device(device).name})


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    batch_explorer,
    {
        "network": ("VGG-16", "ResNet-50", "52 M dense net"),
        "optimizer": ("momentum", "adam"),
        "device": ("GTX 980", "Titan X (Maxwell)"),
        "batch": ("64", "256", "1,024"),
        "micro-batch": None,
    },
)
