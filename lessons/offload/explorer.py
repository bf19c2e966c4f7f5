"""Explorer of lesson 09: when the copy hides behind the computation, and which policy costs least.

Its controls choose a traced step, what moves, and the machine; the reading is an `offload.Schedule`, the verdict that
of `fits.fit_of`, the picture `schedule_lanes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures.style import percent
from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import Ledger, StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import FITS, TIGHT, Fit, room_for_tensors
from course_utils.techniques.offload import Schedule, Work, pytorch_step, simulate_work
from course_utils.techniques.offload.work import FORWARD
from course_utils.trace import training_step
from course_utils.units import GB, format_bytes, format_seconds, require_one_of
from lessons.offload.fits import fit_of
from lessons.offload.schedule_lanes import schedule_lanes

BATCHES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
OFFERED = ("VGG-16", "AlexNet", "GoogLeNet", "ResNet-50")
PRECISIONS = ("float32", "float16")
# What moves, as the control says it -> policy and maps in flight.
MOVES: dict[str, tuple[str, int]] = {
    "nothing": ("none", 1),
    "what convolutions read": ("conv", 1),
    "everything": ("all", 1),
    "everything, 2 in flight": ("windowed", 2),
    "everything, 4 in flight": ("windowed", 4),
    "everything, 6 in flight": ("windowed", 6),
}
WORTH = 0.0005  # a plan that saves less of the step's time than this is no better


class Plans:
    """The schedules of one step on one machine, each made, and judged, when first asked for."""

    def __init__(self, ledger: Ledger, work: Work, device: Device, link: Link) -> None:
        self.ledger, self.work, self.device, self.link = ledger, work, device, link
        self._found: dict[str, Schedule] = {}
        self._fits: dict[str, Fit] = {}

    def get(self, moves: str) -> Schedule:
        """The schedule of one of MOVES."""
        if moves not in self._found:
            policy, window = MOVES[moves]
            self._found[moves] = simulate_work(
                self.work, policy, "p", self.link.bytes_per_s, latency=self.device.launch_seconds, window=window
            )
        return self._found[moves]

    def fit(self, moves: str) -> Fit:
        """Whether it fits the device."""
        if moves not in self._fits:
            self._fits[moves] = fit_of(self.ledger, self.get(moves), self.device)
        return self._fits[moves]

    def best(self, *states: str) -> str | None:
        """The fastest of MOVES with one of these verdicts, of several that with the lowest peak; None if none has."""
        order = sorted(MOVES, key=lambda moves: (self.get(moves).total_seconds, self.get(moves).peak_bytes))
        return next((moves for moves in order if self.fit(moves).state in states), None)

    @property
    def forward_share(self) -> float:
        """What one more forward pass would add to the kernels' time, as a share of it."""
        kept = self.get("nothing")
        seconds = kept.ends - kept.begins
        return float(seconds[self.work.phase == FORWARD].sum() / seconds.sum())


def sentences(plans: Plans, moves: str) -> tuple[str, str, str]:
    """What a schedule means in words: what it costs and saves, what waits, and the choice that costs least.

    Args:
        plans: all schedules of the step on this machine.
        moves: the one shown.
    """
    return _state(plans, moves), _culprit(plans.get(moves)), _way(plans, moves)


def cost(schedule: Schedule) -> str:
    """How much longer than its kernels alone a step takes."""
    more = schedule.slowdown
    if more < WORTH:
        return "no longer"
    return f"{_share(more)} longer" if more < 2 else f"{1 + more:.1f} times as long"


def _state(plans: Plans, moves: str) -> str:
    schedule, kept = plans.get(moves), plans.get("nothing")
    if not schedule.copies:
        took = f"Nothing moves: {format_seconds(schedule.total_seconds)} a step"
        peak = format_bytes(schedule.peak_bytes)
    else:
        what, comma, how = moves.partition(",")
        seconds = format_seconds(schedule.total_seconds)
        took = f"{what.capitalize()} moves{comma}{how}: {seconds} a step, {cost(schedule)}"
        peak = f"{format_bytes(schedule.peak_bytes)} in place of {format_bytes(kept.peak_bytes)}"
    return f"{took}; peak {peak}. {plans.device.name}: {plans.fit(moves).sentence}"


def _culprit(schedule: Schedule) -> str:
    if not schedule.copies:
        return "No copies, so nothing waits."
    busy = schedule.copy_floor_seconds / schedule.compute_seconds
    times = f"{busy:.1f} times" if busy > 2 else f"{_share(busy)} of"
    link = f"The link at {schedule.bytes_per_s / GB:.3g} GB/s is busy for {times} the kernels' time"
    if not schedule.stalls:
        return f"{link}, and every copy hides behind them."
    longest = max(schedule.stalls, key=lambda stall: stall.seconds)
    waits = format_seconds(schedule.total_seconds - schedule.compute_seconds)
    return f"{link}; in all the device waits {waits}. Longest wait: {schedule.explain(longest)}."


def _way(plans: Plans, moves: str) -> str:
    best, shown = plans.best(FITS), plans.get(moves)
    again = f"Recomputing (lesson 10) costs one more forward pass at most: {_share(plans.forward_share)}."
    if best is None:
        least = min(MOVES, key=lambda moves: plans.get(moves).peak_bytes)
        peak, state = format_bytes(plans.get(least).peak_bytes), plans.fit(least).state
        verdict = "is tight" if state == TIGHT else "is too much"
        return f"No choice here fits: the lowest peak, {peak} with {least} moved, {verdict}."
    found = plans.get(best)
    tight = _tight(plans, found)
    if plans.fit(moves).state == FITS and shown.total_seconds <= found.total_seconds * (1 + WORTH):
        better = "Nothing here that fits is faster" + (f"; faster, but tight: {tight}." if tight else ".")
        return f"{better} {again}" if shown.copies else "Nothing has to move."
    if not found.copies:
        return f"Nothing has to move: kept, it fits and takes {format_seconds(found.total_seconds)}."
    advice = f"Fastest that fits: {best}, {format_seconds(found.total_seconds)} a step, {cost(found)}"
    return f"{advice}; faster, but tight: {tight}. {again}" if tight else f"{advice}. {again}"


def _tight(plans: Plans, fitting: Schedule) -> str:
    """The fastest choice, if it is tight and faster than the fastest that fits, else nothing.

    How blocks happen to lie decides between the two verdicts, so it is worth a trial.
    """
    faster = plans.best(FITS, TIGHT)
    if faster is None or plans.get(faster).total_seconds * (1 + WORTH) >= fitting.total_seconds:
        return ""
    return f"to move {faster}, {cost(plans.get(faster))}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else percent(share, 1.0)


class OffloadExplorer(Explorer):
    """Controls over a schedule of two streams, its lanes, and sentences; made by `offload_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[tuple[str, str], StepTrace] = {}
        self._plans: dict[tuple[str, str, int, str, str], Plans] = {}
        dropdown = widgets.Dropdown
        cards, links = [item.name for item in hardware.devices()], [item.name for item in hardware.links()]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.moves = described(dropdown, "moves", options=list(MOVES), value=start["moves"])
        self.precision = described(dropdown, "precision", options=list(PRECISIONS), value=start["precision"])
        self.device = described(dropdown, "device", options=cards, value=start["device"])
        self.link = described(dropdown, "link", options=links, value=start["link"])
        self.batch = described(widgets.SelectionSlider, "batch", options=list(BATCHES), value=start["batch"])
        moving = (self.network, self.moves, self.precision, self.device, self.link, self.batch)
        self.lay_out(
            [
                ("1fr 1fr 1fr", [self.network, self.moves, self.precision]),
                ("1fr 1fr 1fr", [self.device, self.link, self.batch]),
            ],
            {control.description: control for control in moving},
        )

    @property
    def plans(self) -> Plans:
        """All schedules of the present step and machine: the network traced once, each schedule made once."""
        name, precision, batch = self.network.value, self.precision.value, self.batch.value
        key = (name, precision, batch, self.device.value, self.link.value)
        if key not in self._plans:
            device, ledger = hardware.device(self.device.value), self._step(name, precision).at(batch)
            work = pytorch_step(ledger, device, precision)
            self._plans[key] = Plans(ledger, work, device, hardware.link(self.link.value))
        return self._plans[key]

    def _step(self, name: str, precision: str) -> StepTrace:
        if (name, precision) not in self._steps:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._steps[name, precision] = training_step(
                module, network.input_shape, network.classes, precision=precision, name=network.name
            )
        return self._steps[name, precision]

    def view(self) -> View:
        """Lanes and sentences of the present settings; what moving costs is watched."""
        plans, moves = self.plans, self.moves.value
        schedule, kept = plans.get(moves), plans.get("nothing")
        name = f"{plans.device.name} − context"
        before = kept if schedule.copies else None
        picture = schedule_lanes(schedule, room_for_tensors(plans.device), before, limit=name)
        best = plans.best(FITS)
        advised = {} if best is None else {"moves": best}
        cost_now = round(schedule.slowdown, 3)
        return View(picture, sentences(plans, moves), cost_now, "what moving costs", _points, advised=advised)


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def offload_explorer(
    network: str = "VGG-16",
    batch: int = 192,
    moves: str = "everything, 2 in flight",
    precision: str = "float32",
    device: str = "T4",
    link: str = "PCIe 3.0 x16",
    networks: Mapping[str, Network] | None = None,
) -> OffloadExplorer:
    """When the copy hides: controls for network, what moves, precision, device, link and batch.

    Every move redraws the two lanes with the memory below them and says in words what moving costs, what waits for
    what, and which choice that fits costs least. The first drawing of a network traces it (up to a second or two),
    other moves do not.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with, one of BATCHES.
        moves: one of MOVES.
        precision: "float32", or "float16" for autocast.
        device: of the catalogue.
        link: of the catalogue, between host and device.
        networks: what the first control offers, by name; four of `NETWORKS` if not given.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    offered = {name: NETWORKS[name] for name in OFFERED} if networks is None else networks
    known: Sequence[tuple[str, Any, Any]] = (
        ("network", network, offered), ("choice of what moves", moves, MOVES), ("batch", batch, BATCHES),
        ("precision", precision, PRECISIONS),
    )  # fmt: skip
    for what, value, choices in known:
        require_one_of(what, value, choices)
    start = {"network": network, "batch": batch, "moves": moves, "precision": precision}
    return OffloadExplorer(offered, {**start, "device": hardware.device(device).name, "link": hardware.link(link).name})


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    offload_explorer,
    {"network": ("VGG-16", "AlexNet"), "moves": None, "precision": None, "link": None, "batch": (96, 192, 384)},
    write="points",
)
