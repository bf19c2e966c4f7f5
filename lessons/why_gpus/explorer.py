"""Explorer of lesson 01: who wins, CPU or GPU, on a network with one hidden layer, and from which batch on.

Its controls choose a network (`hidden_layer`), a batch, two devices and a link; the reading is two
`crossover.BatchTimes`, the picture a `figures.plane`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
import numpy as np

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import Axis, Curve, Spot, plane
from course_utils.figures.style import SERIES_COLOURS, percent
from course_utils.machine.hardware import LAUNCH_SECONDS, Device, device, devices, link, links
from course_utils.units import format_seconds, require_whole
from lessons.why_gpus.crossover import GPU_LAUNCH_SECONDS, BatchTimes, Lead, batch_times, leads, rough, said
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.machine import XEONS

INPUTS = (4, 16, 64, 256, 784, 1024, 4096)
UNITS = (10, 30, 100, 300, 1000, 3000, 10_000)
BATCHES = tuple(2**power for power in range(17))
ON_THE_CARD = "data on the card"
CPU_COLOUR, GPU_COLOUR = SERIES_COLOURS[0], SERIES_COLOURS[1]
TIE = 1.05  # a ratio of times nearer to 1 than this is called a tie


def sentences(
    cpu: BatchTimes, gpu: BatchTimes, batch: int, changes: Sequence[Lead], python_seconds: float = 0.0
) -> tuple[str, str, str]:
    """Who wins in words: the state at this batch, what the GPU's time is spent on, and from where on it is another.

    Args:
        cpu: times of the CPU.
        gpu: times of the GPU, whose host runs ahead, with the transfer if input comes over a link.
        batch: samples in the batch.
        changes: `leads(cpu, gpu)`.
        python_seconds: of both `fixed` times, what Python and autograd take.
    """
    slow, fast = float(cpu.at(batch)), float(gpu.at(batch))
    ratio = max(slow, fast) / min(slow, fast)
    ahead = "a tie" if ratio < TIE else f"the {'GPU' if fast < slow else 'CPU'} is {_times(ratio)} as fast"
    state = f"Batch {batch:,}: CPU {format_seconds(slow)} a step, GPU {format_seconds(fast)}: {ahead}."
    work = float(gpu.work(batch))
    if gpu.fixed >= work:
        who = f"The GPU works for {format_seconds(work, 2)} of it and waits for its host"
        issuing = gpu.fixed - gpu.launches - python_seconds
        parts = {"launches": gpu.launches, "Python": python_seconds, "copies to issue": issuing}
    else:
        who = f"The host has issued all after {format_seconds(gpu.fixed)} and waits for the GPU"
        transfer = gpu.per_sample * batch
        parts = {"the transfer": transfer, "computing": work - transfer}
    shares = [f"{name} {percent(part, fast)}" for name, part in parts.items() if part > 0.005 * fast]
    culprit = f"{who}: {', '.join(shares)}."
    way_out = said("the CPU", "the GPU", changes)
    return state, culprit, f"{way_out[0].upper()}{way_out[1:]}.{_unsure(cpu, gpu, changes)}"


def _unsure(cpu: BatchTimes, gpu: BatchTimes, changes: Sequence[Lead]) -> str:
    """Where the GPU would get ahead if its launches cost as little or as much as reported; "" if at the same batch."""
    others = {}
    for seconds in GPU_LAUNCH_SECONDS:
        launches = gpu.launches * seconds / LAUNCH_SECONDS
        other = replace(gpu, launches=launches, fixed=gpu.fixed - gpu.launches + launches)
        others[seconds] = _gets_ahead(leads(cpu, other))
    if {*others.values()} == {_gets_ahead(changes)}:
        return ""
    words = ", ".join(f"with {format_seconds(seconds)} the GPU {where}" for seconds, where in others.items())
    return f" That assumes {format_seconds(LAUNCH_SECONDS)} for a launch: {words}."


def _gets_ahead(changes: Sequence[Lead]) -> str:
    """Where the GPU leads for the first time."""
    batch = next((lead.batch for lead in changes if not lead.first), None)
    if batch is None:
        return "never gets ahead"
    return "is ahead from batch 1" if batch == 1 else f"gets ahead near batch {rough(batch - 1)}"


def _difference(change: float) -> str:
    return f"{change:,.0f}" if change >= 9.5 else f"{change:.1f}" if change >= 0.05 else "less than 0.05"


def _times(ratio: float) -> str:
    return f"{ratio:,.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


class WhoWinsExplorer(Explorer):
    """Controls over a network and two devices, time against batch, and three sentences; made by `who_wins_explorer`."""

    def __init__(self, cpus: Mapping[str, Device], start: Mapping[str, Any], python_seconds: float) -> None:
        self._cpus, self._python_seconds = cpus, python_seconds
        dropdown, slider = widgets.Dropdown, widgets.SelectionSlider
        self.inputs, self.units, self.batch = (
            described(slider, what, options=[(f"{n:,}", n) for n in sorted({*known, start[what]})], value=start[what])
            for what, known in (("inputs", INPUTS), ("units", UNITS), ("batch", BATCHES))
        )
        self.gpu = described(dropdown, "GPU", options=[one.name for one in devices()], value=start["gpu"])
        self.cpu = described(dropdown, "CPU", options=list(cpus), value=next(iter(cpus)))
        ways = [ON_THE_CARD, *(one.name for one in links())]
        self.link = described(dropdown, "link", options=ways, value=start["link"] or ON_THE_CARD)
        self.lay_out(
            [
                ("1fr 1fr 1fr", [self.cpu, self.gpu, self.link]),
                ("1fr 1fr", [self.inputs, self.units]),
                ("1fr", [self.batch]),
            ],
            {one.description: one for one in (self.inputs, self.units, self.batch, self.gpu, self.cpu, self.link)},
        )

    def times(self) -> tuple[BatchTimes, BatchTimes]:
        """Seconds of the step at every batch, on the CPU and on the GPU."""
        way = None if self.link.value == ON_THE_CARD else self.link.value
        steps = [hidden_layer_step(self.inputs.value, self.units.value, target) for target in ("cpu", "cuda")]
        here = batch_times(steps[0], self._cpus[self.cpu.value])
        times = here, batch_times(steps[1], self.gpu.value, link=way, ahead=True)
        cpu, gpu = (replace(one, fixed=one.fixed + self._python_seconds) for one in times)
        return cpu, gpu

    def view(self) -> View:
        """Both times against the batch, the crossover marked; the GPU's speed-up is watched."""
        cpu, gpu = self.times()
        batch, changes = self.batch.value, leads(cpu, gpu)
        state, culprit, way_out = sentences(cpu, gpu, batch, changes, self._python_seconds)
        most = max(BATCHES[-1], batch)
        batches = sorted({round(n) for n in np.geomspace(1, most, 49)})
        here = {name: float(times.at(batch)) for name, times in (("CPU", cpu), ("GPU", gpu))}
        met = [change.batch for change in changes[1:] if change.batch <= most]
        colours = {"CPU": CPU_COLOUR, "GPU": GPU_COLOUR}
        lowest = [float(times.at(1)) for times in (cpu, gpu)]  # no step takes longer at a smaller batch
        turns = {f"crossover near {rough(turn - 1)}": float(turn) for turn in met}
        picture = plane(
            Axis("samples in the batch", log=True, low=1, high=most),
            Axis("time of a training step", log=True, low=min(lowest) / 2, write=format_seconds),
            [
                Curve("CPU", batches, [float(cpu.at(n)) for n in batches], CPU_COLOUR),
                Curve("GPU", batches, [float(gpu.at(n)) for n in batches], GPU_COLOUR),
            ],
            [  # the upper one first: its name stands above, which leaves the room below to the other's
                Spot(f"{name} {format_seconds(here[name])}", batch, here[name], colours[name], bold=True)
                for name in sorted(here, key=here.__getitem__, reverse=True)
            ],
            f"{self.inputs.value:,} inputs, {self.units.value:,} units: {said('the CPU', 'the GPU', changes)}",
            marks=turns,
        )
        speed_up = here["CPU"] / here["GPU"]
        return View(picture, (state, culprit, way_out), speed_up, "the GPU's speed-up", _difference)


def who_wins_explorer(
    inputs: int = 64,
    units: int = 100,
    batch: int = 32,
    gpu: str = "RTX 4090",
    link_name: str | None = "PCIe 4.0 x16",
    cpu: Device | None = None,
    python_seconds: float = 0.0,
) -> WhoWinsExplorer:
    """Who wins, CPU or GPU, on a network with one hidden layer: controls for its sizes, the batch, devices and link.

    Every move redraws the time of a training step against the batch, and says who is ahead, what the GPU spends its
    time on, and from which batch on it is another. Nothing is traced on a move.

    Args:
        inputs: values of one sample.
        units: of the hidden layer.
        batch: samples in the batch.
        gpu: a device of the catalogue.
        link_name: what the input comes over in every step; None: it is on the card already.
        cpu: offered before the Xeons, such as `lessons.why_gpus.contest.Contest.reached`.
        python_seconds: what Python and autograd add to a step, on the CPU and on the GPU's host alike.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    for what, number, least in (("inputs", inputs, 2), ("units", units, 2), ("batch", batch, 1)):
        require_whole(what, number, least)
    cpus = {one.name: one for one in (cpu, XEONS) if one is not None}
    way = None if link_name is None else link(link_name).name
    start = {"inputs": inputs, "units": units, "batch": batch, "gpu": device(gpu).name, "link": way}
    return WhoWinsExplorer(cpus, start, python_seconds)


# What a page without a kernel shows: what the lesson asks for, and other sizes.
PAGE = Page(
    who_wins_explorer,
    {
        "GPU": ("RTX 4090", "B200"),
        "link": (ON_THE_CARD, "PCIe 4.0 x16"),
        "inputs": ("64", "784", "4,096"),
        "units": ("10", "100", "300", "1,000", "3,000"),
        "batch": ("1", "8", "32", "256", "1,024", "65,536"),
    },
    write="rounded",
)
