"""Explorer of lesson 09: when the copy hides behind the computation, and which policy loses least.

Its controls choose a traced step, what moves and how, and the machine; the reading is an `offload.Schedule` in the
accounting of 2016, the picture `figures.schedule_lanes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, View, described
from course_utils.figures.style import percent
from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import spare_bytes
from course_utils.techniques.offload import ALGORITHMS, Schedule, Work
from course_utils.trace import training_step
from course_utils.units import GB, CourseError, format_bytes, format_seconds, require_one_of
from lessons.offload.frameworks_2016 import layerwise_2016
from lessons.offload.published import LINK
from lessons.offload.schedule_lanes import schedule_lanes
from lessons.offload.search import POLICIES, schedule_2016

BATCHES = (8, 16, 32, 64, 128, 256, 512)
OFFERED = ("VGG-16", "AlexNet", "GoogLeNet", "ResNet-50")
WAYS = (*product(set(POLICIES) - {"dyn"}, ALGORITHMS), ("dyn", "p"))  # what the last sentence chooses from: all
NAMES = {"p": "(p), fastest", "m": "(m), no workspace"}
WORTH = 0.0005  # a plan that saves less of the step's time than this is no better


class Plans:
    """The schedules of one step on one machine, each made when first asked for."""

    def __init__(self, work: Work, device: Device, link: Link) -> None:
        self.work, self.device, self.link = work, device, link
        self._found: dict[tuple[str, str], Schedule | CourseError] = {}

    def get(self, policy: str, algorithm: str = "p") -> Schedule:
        """One schedule; "dyn" fits the device's memory.

        Raises:
            CourseError: "dyn", where not even everything moved fits.
        """
        key = (policy, "p" if policy == "dyn" else algorithm)
        if key not in self._found:
            try:
                self._found[key] = schedule_2016(
                    self.work, *key, self.link.bytes_per_s, latency=self.device.launch_seconds,
                    limit_bytes=self.device.memory_bytes,
                )  # fmt: skip
            except CourseError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, CourseError):
            raise found
        return found

    def fits(self, schedule: Schedule) -> bool:
        """Whether its peak is within the device's memory, as frameworks of 2016 laid it out: see `spare`."""
        return self.spare(schedule) >= 0

    def spare(self, schedule: Schedule) -> int:
        """What a schedule leaves of the device: those frameworks planned every address, and nobody counts a context."""
        return spare_bytes(self.device, schedule.peak_bytes, context_bytes=0)

    def best(self) -> tuple[str, str] | None:
        """Policy and algorithm of the fastest schedule that fits, of several the leanest; None if none does."""
        fitting = {}
        for way in WAYS:
            with suppress(CourseError):  # no "dyn" fits
                found = self.get(*way)
                if self.fits(found):
                    fitting[way] = (found.total_seconds, found.peak_bytes, way)
        return min(fitting, key=lambda way: fitting[way], default=None)

    def more_time(self, schedule: Schedule) -> str:
        """What a schedule costs against the fastest kernels with nothing moved."""
        more = schedule.total_seconds / self.get("none").total_seconds - 1
        return "no more time" if more < WORTH else f"{_share(more)} more time"


def waiting(schedule: Schedule) -> float:
    """The share of a step in which the device waits for copies."""
    return 1 - schedule.compute_seconds / schedule.total_seconds


def sentences(plans: Plans, chosen: Schedule) -> tuple[str, str, str]:
    """What a schedule means in words: what it costs and saves, what waits, the way that loses least.

    Args:
        plans: all schedules of the step on this machine.
        chosen: the one shown.
    """
    return _state(plans, chosen), _culprit(chosen), _way(plans, chosen)


def _how(schedule: Schedule) -> str:
    algorithm = "mixed" if schedule.algorithm == "mixed" else schedule.algorithm
    return f"{schedule.policy} ({algorithm})"


def _state(plans: Plans, schedule: Schedule) -> str:
    kept, device = plans.get("none"), plans.device
    spare = plans.spare(schedule)
    fits = f"fits {device.name} with {format_bytes(spare)} to spare"
    if spare < 0:
        fits = f"is {format_bytes(-spare)} more than {device.name} holds"
    peak = f"the peak of {format_bytes(schedule.peak_bytes)}"
    if schedule.peak_bytes != kept.peak_bytes:
        peak += f", in place of {format_bytes(kept.peak_bytes)},"
    took = f"{format_seconds(schedule.total_seconds)} a step, {plans.more_time(schedule)} than with nothing moved"
    return f"{_how(schedule)}: {took}; {peak} {fits}."


def _culprit(schedule: Schedule) -> str:
    if not schedule.copies:
        return "Nothing moves, so nothing waits."
    busy = schedule.copy_floor_seconds / schedule.compute_seconds
    times = f"{busy:.1f} times" if busy > 2 else f"{_share(busy)} of"
    link = f"The link at {schedule.bytes_per_s / GB:.3g} GB/s is busy for {times} the kernels' time"
    if not schedule.stalls:
        return f"{link}, and every copy hides behind them."
    longest = max(schedule.stalls, key=lambda stall: stall.seconds)
    return (
        f"{link}; the device waits {_share(waiting(schedule))} of the step. Longest wait: {schedule.explain(longest)}."
    )


def _way(plans: Plans, schedule: Schedule) -> str:
    way = plans.best()
    if way is None:
        least = plans.get("all", "m")
        return (
            f"No plan fits: with every map moved and no workspace it still needs {format_bytes(least.peak_bytes)}, in "
            f"{least.kernel_name(least.peak_kernel)}."
        )
    best = plans.get(*way)
    if plans.fits(schedule) and schedule.total_seconds <= best.total_seconds * (1 + WORTH):
        return "No plan that fits is faster."
    took = f"{format_seconds(best.total_seconds)} a step, {plans.more_time(best)}"
    return f"Fastest plan that fits: {_how(best)}, {took}."


def _share(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else percent(share, 1.0)


class OffloadExplorer(Explorer):
    """Controls over a schedule of two streams, its lanes, and sentences; made by `offload_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._steps: dict[str, StepTrace] = {}
        self._works: dict[tuple[str, int, str], Work] = {}
        self._plans: dict[tuple[str, int, str, str], Plans] = {}
        dropdown = widgets.Dropdown
        cards, links = [item.name for item in hardware.devices()], [item.name for item in hardware.links()]
        algorithms = [(NAMES[name], name) for name in ALGORITHMS]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.policy = described(dropdown, "policy", options=list(POLICIES), value=start["policy"])
        self.algorithm = described(dropdown, "algorithm", options=algorithms, value=start["algorithm"])
        self.device = described(dropdown, "device", options=cards, value=start["device"])
        self.link = described(dropdown, "link", options=links, value=start["link"])
        self.batch = described(widgets.SelectionSlider, "batch", options=list(BATCHES), value=start["batch"])
        moving = (self.network, self.policy, self.algorithm, self.device, self.link, self.batch)
        self.lay_out(
            [
                ("1fr 1fr 1fr", [self.network, self.policy, self.algorithm]),
                ("1fr 1fr 1fr", [self.device, self.link, self.batch]),
            ],
            {control.description: control for control in moving},
        )

    @property
    def plans(self) -> Plans:
        """All schedules of the present step and machine: the network traced once, each schedule made once."""
        key = (self.network.value, self.batch.value, self.device.value, self.link.value)
        if key not in self._plans:
            device = hardware.device(key[2])
            if key[:3] not in self._works:
                self._works[key[:3]] = layerwise_2016(self._step(key[0]).at(key[1]), device)
            self._plans[key] = Plans(self._works[key[:3]], device, hardware.link(key[3]))
        return self._plans[key]

    def _step(self, name: str) -> StepTrace:
        if name not in self._steps:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._steps[name] = training_step(module, network.input_shape, network.classes, name=network.name)
        return self._steps[name]

    def view(self) -> View:
        """Lanes and sentences of the present settings; the share of waiting is watched."""
        self.algorithm.disabled = self.policy.value == "dyn"  # the search chooses by itself
        plans = self.plans
        schedule, kept = plans.get(self.policy.value, self.algorithm.value), plans.get("none")
        limit = plans.device.memory_bytes
        picture = schedule_lanes(schedule, limit, kept if schedule.copies else None, limit=plans.device.name)
        said, best = sentences(plans, schedule), plans.best()
        advised = dict(zip(("policy", "algorithm"), best, strict=True)) if best else {}
        return View(picture, said, round(waiting(schedule), 3), "the share of waiting", _points, advised=advised)


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def offload_explorer(
    network: str = "VGG-16",
    batch: int = 128,
    policy: str = "all",
    algorithm: str = "p",
    device: str = "Titan X (Maxwell)",
    link: str = LINK,
    networks: Mapping[str, Network] | None = None,
) -> OffloadExplorer:
    """When the copy hides: controls for network, policy, algorithm, device, link and batch.

    Every move redraws the two lanes with the memory below them and says in words what is lost, what waits for what, and
    which plan that fits loses least. The step is that of a framework of 2016: forward and backward pass, activations in
    place. The first drawing of a network traces it (up to a second or two), other moves do not.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with, one of BATCHES.
        policy: "none", "all", "conv", "dyn" or "windowed".
        algorithm: "p", the fastest convolutions, or "m", those without workspace.
        device: of the catalogue; its memory is the limit.
        link: of the catalogue.
        networks: what the first control offers, by name; four of `NETWORKS` if not given.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    offered = {name: NETWORKS[name] for name in OFFERED} if networks is None else networks
    known: Sequence[tuple[str, Any, Any]] = (
        ("network", network, offered), ("policy", policy, POLICIES), ("algorithm", algorithm, ALGORITHMS),
        ("batch", batch, BATCHES),
    )  # fmt: skip
    for what, value, choices in known:
        require_one_of(what, value, choices)
    start = {"network": network, "batch": batch, "policy": policy, "algorithm": algorithm}
    return OffloadExplorer(offered, {**start, "device": hardware.device(device).name, "link": hardware.link(link).name})
