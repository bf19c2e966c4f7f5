"""The policies of vDNN on a step of 2016, and its search for the fastest that fits a card.

Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design" (MICRO-49,
2016).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import Ledger
from course_utils.techniques.offload import WINDOW, Schedule, Work, link_of, run, simulate_work
from course_utils.techniques.offload.policies import moved
from course_utils.techniques.offload.work import Bools
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.offload.frameworks_2016 import layerwise_2016, network_wide_2016

POLICIES = ("none", "all", "conv", "dyn", "windowed")


def simulate_2016(
    ledger: Ledger,
    device: Device | str,
    policy: str = "all",
    algorithm: str = "p",
    link: Link | str | None = None,
    *,
    limit_bytes: float | None = None,
    window: int = WINDOW,
) -> Schedule:
    """The schedule of a step's forward and backward pass in a framework of 2016.

    Args:
        ledger: the step at one batch, `training_step(...).at(batch)`.
        device: a Device, or the name of one in the catalogue.
        policy: of `course_utils.techniques.offload.simulate`, where "none" allocates everything throughout; or "dyn",
            the fastest that fits.
        algorithm: of the convolutions: "p", the fastest, or "m", slower and without workspace. "dyn" chooses by itself.
        link: between host and device, a Link or its name; None takes the device's own.
        limit_bytes: what "dyn" has to fit into; None takes the device's memory.
        window: tensors in flight of the policy "windowed", 1 or more.

    Raises:
        CourseError: an unknown policy, algorithm, device or link; a device whose link is not confirmed and none is
            given; or, for "dyn", a step that does not fit with everything moved and no workspace.
    """
    device = hardware.device(device) if isinstance(device, str) else device
    limit_bytes = device.memory_bytes if limit_bytes is None else limit_bytes
    rate, latency = link_of(device, link).bytes_per_s, device.launch_seconds
    work = layerwise_2016(ledger, device)
    return schedule_2016(work, policy, algorithm, rate, latency=latency, limit_bytes=limit_bytes, window=window)


def schedule_2016(
    work: Work,
    policy: str,
    algorithm: str,
    bytes_per_s: float,
    *,
    latency: float = hardware.LAUNCH_SECONDS,
    limit_bytes: float = np.inf,
    window: int = WINDOW,
) -> Schedule:
    """`simulate_2016` on the kernels and tensors of `layerwise_2016`, for many policies of one step.

    Raises:
        CourseError: as `simulate_2016`.
    """
    if policy == "dyn":
        return _Search(work, bytes_per_s, latency, limit_bytes).fastest()
    if policy == "none":
        work = network_wide_2016(work, algorithm)
    return simulate_work(work, policy, algorithm, bytes_per_s, latency=latency, window=window)


class _Search:
    """vDNN's search on one work at one link."""

    def __init__(self, work: Work, bytes_per_s: float, latency: float, limit_bytes: float) -> None:
        self.work, self.bytes_per_s, self.latency, self.limit_bytes = work, bytes_per_s, latency, limit_bytes
        self.tried: list[str] = []

    def fastest(self) -> Schedule:
        """The first of a few that fits, and else of two with convolutions slowed down the faster.

        Everything moved without workspace must fit. Then, the fastest algorithms with nothing moved, with "conv", with
        "all", in this order. If none fits, "conv" and "all" with convolutions switched to the algorithm without
        workspace where memory runs out, until they fit.

        Raises:
            CourseError: not even everything moved fits.
        """
        least = self._static("all", "m")
        if not self._fits(least, "all (m)"):
            raise CourseError(
                f"{self.work.name}, batch {self.work.batch}: even with every map moved and no workspace it needs "
                f"{format_bytes(least.peak_bytes)} in {least.kernel_name(least.peak_kernel)}, more than "
                f"{format_bytes(self.limit_bytes)}: take a smaller batch"
            )
        for policy in ("none", "conv", "all"):
            schedule = self._static(policy, "p")
            if self._fits(schedule, f"{policy} (p)"):
                return self._found(schedule)
        found = []
        for policy in ("conv", "all"):
            schedule = self._slowed_down(policy)
            slowed = int(np.count_nonzero(~schedule.fast))
            if self._fits(schedule, f"{policy} with {slowed} kernel{'s' * (slowed > 1)} of convolutions slowed down"):
                found.append(schedule)
        return self._found(min(found, key=lambda schedule: schedule.total_seconds, default=least))

    def _fits(self, schedule: Schedule, what: str) -> bool:
        fits = schedule.peak_bytes <= self.limit_bytes
        needs = f"{format_bytes(schedule.peak_bytes)}, {format_seconds(schedule.total_seconds)}"
        self.tried.append(f"{what}: {needs}, {'fits' if fits else 'does not fit'}")
        return fits

    def _found(self, schedule: Schedule) -> Schedule:
        return replace(schedule, policy="dyn", tried=tuple(self.tried))

    def _static(self, policy: str, algorithm: str) -> Schedule:
        return schedule_2016(self.work, policy, algorithm, self.bytes_per_s, latency=self.latency)

    def _slowed_down(self, policy: str) -> Schedule:
        """Take the workspace from the convolutions in which memory runs out, until it does not, or nothing is left."""
        work, leaves, fast = self.work, moved(self.work, policy), np.ones(self.work.kernels, dtype=np.bool_)
        while True:
            schedule = run(work, leaves, fast, self.bytes_per_s, self.latency, policy=policy, algorithm="mixed")
            over = schedule.at_kernels > self.limit_bytes
            during = over & fast & work.convolution & (work.workspace > 0)
            if not during.any():
                during = self._running_over(schedule) & fast & work.convolution
            if schedule.peak_bytes <= self.limit_bytes or not during.any():
                return schedule
            fast = fast & ~during

    def _running_over(self, schedule: Schedule) -> Bools:
        """(K,) kernels beside which memory exceeds the limit only after they began, when a copy took more of it."""
        times, level = schedule.memory
        running = np.zeros(self.work.kernels, dtype=np.bool_)
        running[[schedule.kernel_at(float(time)) for time in times[level > self.limit_bytes]]] = True
        return running
