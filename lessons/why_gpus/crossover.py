"""Where two devices take equally long: the predicted time of a step at every batch, and who is ahead from where on.

An operator takes its launch and the longer of two straight lines in the batch, arithmetic and traffic, as
`course_utils.machine.speed` has it at one batch. So a step is a chain of straight pieces, two steps are compared
exactly, piece by piece, and a crossover is computed, not searched for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Float64, Link
from course_utils.machine.speed import NO_KERNEL
from course_utils.memory import ROLE, StepTrace
from course_utils.units import CourseError

MOST = 2**40  # samples: beyond any batch; who is ahead there is ahead for good


@dataclass(frozen=True)
class BatchTimes:
    """Seconds of a step at every batch N: what the host issues, and the device's work.

    The host needs `fixed` seconds, the device per_sample · N + the sum over operators of the longer line. A CPU does
    one after the other. A GPU's host runs ahead, so the step takes as long as the slower of the two: `queued.queued`,
    but for what each waits for now and then.

    Attributes:
        name: the device, with the link if input comes over one.
        fixed: seconds whatever the batch: the launches, and the transfer's fixed part.
        per_sample: seconds for every sample besides: its transfer.
        arithmetic: (E, 2) seconds of each operator's arithmetic, fixed and per sample.
        bandwidth: (E, 2) seconds of each operator's traffic, fixed and per sample.
        launches: seconds of `fixed` that are launches.
        ahead: whether the host runs ahead of the device.
    """

    name: str
    fixed: float
    per_sample: float = 0.0
    arithmetic: Float64 = field(default_factory=lambda: np.zeros((0, 2)))
    bandwidth: Float64 = field(default_factory=lambda: np.zeros((0, 2)))
    launches: float = 0.0
    ahead: bool = False

    def work(self, batch: npt.ArrayLike) -> Float64:
        """Seconds of transfer and kernels at a batch, or at each of several: an array of the same shape."""
        n = np.asarray(batch, dtype=np.float64)[..., None]
        lines = (self.arithmetic[:, 0] + self.arithmetic[:, 1] * n, self.bandwidth[:, 0] + self.bandwidth[:, 1] * n)
        seconds: Float64 = self.per_sample * n[..., 0] + np.maximum(*lines).sum(axis=-1)
        return seconds

    def at(self, batch: npt.ArrayLike) -> Float64:
        """Seconds at a batch, or at each of several: an array of the same shape."""
        work = self.work(batch)
        seconds: Float64 = np.maximum(self.fixed, work) if self.ahead else self.fixed + work
        return seconds

    def turns(self) -> list[float]:
        """Batches above 1 at which the time bends, in order: an operator meets its other ceiling, or work its host."""
        fixed, slope = (self.arithmetic - self.bandwidth).T
        meets = -fixed[slope != 0] / slope[slope != 0]
        bends = {float(n) for n in meets if 1 < n < MOST}
        if self.ahead and float(self.work(1)) < self.fixed < float(self.work(MOST)):
            low, high = 1, MOST  # the work never falls, so halving finds it
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if float(self.work(middle)) < self.fixed else (low, middle)
            bends.add(low + 0.5)
        return sorted(bends)


@dataclass(frozen=True)
class Lead:
    """From this batch on, up to the next lead, one of two is faster; `first` says whether the first one is."""

    batch: int
    first: bool


def batch_times(
    step: StepTrace,
    device: Device | str,
    precision: str = "float32",
    link: Link | str | None = None,
    ahead: bool = False,
) -> BatchTimes:
    """The time of a traced step on a device at every batch; `predict_step(step.at(N), ...).total_seconds` if not ahead.

    At batch 1 tensors may be laid out differently, which this leaves out: there it is the same lines continued.

    Args:
        step: the traced step; affine in the batch.
        device: a Device, or the name of one in the catalogue.
        precision: of the arithmetic.
        link: what input and labels come over for every step, a Link or its name; None: they are there already.
        ahead: whether launches run beside the work, as a GPU's do.

    Raises:
        CourseError: a step that is not affine, no such device or link, or a precision the device does not have.
    """
    if step.tape is None:
        raise CourseError(f"{step.name} has no time at every batch: {step.why}")
    device = hardware.device(device) if isinstance(device, str) else device
    link = hardware.link(link) if isinstance(link, str) else link
    tape = step.tape
    runs = np.array([op not in NO_KERNEL for op in tape.event_ops])
    launches = device.launch_seconds * float(runs.sum())
    inputs = tape.role == ROLE["input"]
    transfer = [0.0, 0.0]
    if link is not None:
        transfer = [float(size[inputs].sum()) / link.bytes_per_s for size in (tape.fixed, tape.per_sample)]
        transfer[0] += hardware.COPY_SECONDS * float(inputs.sum())
    return BatchTimes(
        name=device.name if link is None else f"{device.name} over {link.name}",
        fixed=launches + transfer[0],
        per_sample=transfer[1],
        arithmetic=tape.event_flops[runs] / device.reached_flops_per_s(precision),
        bandwidth=tape.event_traffic[runs] / device.reached_bytes_per_s(),
        launches=launches,
        ahead=ahead,
    )


def leads(one: BatchTimes, other: BatchTimes) -> list[Lead]:
    """Who is faster from which batch on, exactly, from batch 1: leads alternate. A tie counts for `one`.

    Args:
        one: the first, such as the CPU.
        other: the second, such as the GPU; to lead it has to take less time.
    """

    def ahead(batch: int) -> bool:
        return float(one.at(batch)) <= float(other.at(batch))

    # Between two turns the difference is a straight line, whose sign changes once at most: halving finds where.
    corners = {1, MOST} | {
        side for turn in (*one.turns(), *other.turns()) for side in (math.floor(turn), math.ceil(turn))
    }
    found = [Lead(1, ahead(1))]
    for low, high in pairwise(sorted(corners)):
        if ahead(high) == found[-1].first:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ahead(middle) == found[-1].first else (low, middle)
        found.append(Lead(high, not found[-1].first))
    return found


def crossover(one: BatchTimes, other: BatchTimes) -> int | None:
    """The batch from which on `other` is the faster of the two for good.

    1 if it is at every batch, None if `one` is ahead in the end, however large the batch.
    """
    last = leads(one, other)[-1]
    return None if last.first else last.batch


# A launch on a GPU costs 5 to 15 µs (indepth.dev): the ends of what a crossover may be.
GPU_LAUNCH_SECONDS = (5e-6, 15e-6)
# A kernel of ResNet-50 forward on a V100 at batch 1, all included: 10.37 ms (`published.RESNET50_MS`) over 174 kernels.
KERNEL_SECONDS = 60e-6


def rough(batch: float | None) -> str:
    """A batch to two digits; nobody knows a crossover better. "never" for None."""
    return "never" if batch is None else f"{float(f'{batch:.2g}'):,.0f}"


def said(one: str, other: str, changes: Sequence[Lead]) -> str:
    """Leads in words, for two things with a name: who is ahead, and up to which batch, to two digits."""
    names = [one if lead.first else other for lead in changes]
    if len(changes) == 1:
        return f"{names[0]} wins at every batch"
    parts = [f"{names[0]} wins up to a batch of about {rough(changes[1].batch - 1)}"]
    for name, after in zip(names[1:], changes[2:], strict=False):
        parts.append(f"then {name} up to about {rough(after.batch - 1)}")
    return ", ".join([*parts, f"then {names[-1]}"])
