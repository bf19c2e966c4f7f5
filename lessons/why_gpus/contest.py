"""This machine, measured, against a card, predicted: one training step at every batch, and where the card wins.

The host of a card runs the same Python as a CPU that trains alone. So what Python and autograd cost here, beyond bare
operators, is measured once, on a step with next to nothing to compute, and charged to both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from course_utils.machine.hardware import Device, Float64, Link
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.units import CourseError
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.queued import Queued, queued
from lessons.why_gpus.timed import measure_steps

MOST = 2**17  # samples: the largest batch looked at for a crossover
BATCHES = (1, 8, 32, 128, 512, 2048)  # measured
ROUNDS = 3  # of measuring them
SMALLEST = (2, 2)  # inputs and units of a network whose step is launches and Python alone


@dataclass(frozen=True)
class Contest:
    """One training step, measured on a CPU at some batches and predicted for a card at any.

    Attributes:
        measured: batch -> seconds of the step on the CPU, two batches at least.
        idle_seconds: on the CPU, of a step with the same operators and next to nothing to compute; it can take no
            longer than a step that computes, so the fastest of all that were measured.
        cpu: the CPU, as a device.
        card: the GPU.
        on_cpu: the step as the CPU runs it.
        on_card: the step as the GPU does.

    Raises:
        CourseError: fewer than two batches.
    """

    measured: Mapping[int, float]
    idle_seconds: float
    cpu: Device
    card: Device
    on_cpu: StepTrace
    on_card: StepTrace

    def __post_init__(self) -> None:
        if len(self.measured) < 2:
            raise CourseError("a contest needs the times of two batches or more")

    @property
    def python_seconds(self) -> float:
        """What a step costs here beyond bare operators: Python's own lines, and autograd's."""
        bare = predict_step(self.on_cpu.at(2), self.cpu).launch.sum()
        return max(0.0, self.idle_seconds - float(bare))

    @property
    def launches(self) -> int:
        """Kernels of a step on the card."""
        return int((predict_step(self.on_card.at(2), self.card).launch > 0).sum())

    @property
    def issuing(self) -> Device:
        """The card, with its host's Python in the price of each launch."""
        own = self.card.launch_seconds + self.python_seconds / self.launches
        return replace(self.card, launch_seconds=own)

    def here(self, batch: npt.ArrayLike) -> Float64:
        """Seconds on the CPU: a straight line between two measured batches, and on beyond the last."""
        at = sorted(self.measured)
        took = np.array([self.measured[n] for n in at])
        n = np.asarray(batch, dtype=float)
        slope = (took[-1] - took[-2]) / (at[-1] - at[-2])
        beyond = np.maximum(n - at[-1], 0.0) * max(slope, 0.0)
        seconds: Float64 = np.interp(n, at, took) + beyond
        return seconds

    def queue(self, batch: int, link: Link | None = None, pinned: bool = True) -> Queued:
        """The step on the card at a batch: what the host issues when, and what the card runs."""
        return queued(predict_step(self.on_card.at(batch), self.issuing, link=link), pinned)

    def there(self, batch: int, link: Link | None = None) -> float:
        """Seconds on the card, from the first launch to the last kernel's end."""
        return self.queue(batch, link).total_seconds

    def crossover(self, link: Link | None = None) -> int | None:
        """The batch from which on the card takes less time; 1 if it is always ahead, None if not up to MOST."""

        def ahead(batch: int) -> bool:
            return self.there(batch, link) < float(self.here(batch))

        grid: list[int] = sorted({round(n) for n in np.geomspace(1, MOST, 60).tolist()})
        behind = [n for n in grid if not ahead(n)]
        if not behind:
            return 1
        if behind[-1] == MOST:
            return None
        low, high = behind[-1], grid[grid.index(behind[-1]) + 1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if ahead(middle) else (middle, high)
        return high

    @property
    def reached(self) -> Device:
        """The CPU with the arithmetic rate that the measured steps reach, and all its data in a cache, read at once.

        The median of the rates from the smallest batch to each other; its own rate where no time grew.
        """
        first, *others = sorted(self.measured)
        flops = {n: float(predict_step(self.on_cpu.at(n), self.cpu).flops.sum()) for n in self.measured}
        grew = {n: self.measured[n] - self.measured[first] for n in others}
        rates = [(flops[n] - flops[first]) / grew[n] for n in others if grew[n] > 0]
        share = float(np.median(rates)) / self.cpu.reached_flops_per_s() if rates else 1.0
        return replace(self.cpu, bandwidth_gb_s=math.inf, float32_tflops=self.cpu.float32_tflops * share)


def contest(inputs: int, units: int, cpu: Device, card: Device, seconds: float = 0.15) -> Contest:
    """Measure the steps of `mlp((inputs, units, 10))` on this CPU, to set them against a card.

    Three rounds of all of them, so that another program's busy second falls on every batch alike; the best counts.
    """
    rounds, idles = [], []
    for _ in range(ROUNDS):
        rounds.append(measure_steps(inputs, units, list(BATCHES), seconds / ROUNDS))
        (smallest,) = measure_steps(*SMALLEST, [2], seconds / ROUNDS).values()
        idles.append(min(best.seconds for best in (smallest, *rounds[-1].values())))
    measured = {n: min(each[n].seconds for each in rounds) for n in BATCHES}
    return Contest(
        measured, min(idles), cpu, card, hidden_layer_step(inputs, units, "cpu"), hidden_layer_step(inputs, units),
    )  # fmt: skip
