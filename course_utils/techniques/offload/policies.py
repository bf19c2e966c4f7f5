"""What moves and with which algorithm: the policies of vDNN, its search, and a window of tensors in flight.

Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design" (MICRO-49,
2016).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import Ledger
from course_utils.techniques.offload.schedule import Schedule
from course_utils.techniques.offload.simulation import run
from course_utils.techniques.offload.work import Bools, Work, layerwise_2016, network_wide_2016, pytorch_step
from course_utils.units import KIB, CourseError, format_bytes, format_seconds, require_one_of

POLICIES = ("none", "all", "conv", "dyn", "windowed")
ALGORITHMS = ("m", "p")
ACCOUNTINGS = ("pytorch", "2016")
MINIMUM_BYTES = KIB  # smaller tensors are not worth a copy; torchtune draws the line at the same place
WINDOW = 5  # tensors in flight of the policy "windowed"; torchtune's stash has as many

Policy = Literal["none", "all", "conv", "dyn", "windowed"]


def simulate(
    ledger: Ledger,
    device: Device | str,
    policy: str = "all",
    algorithm: str = "p",
    link: Link | str | None = None,
    *,
    accounting: str = "pytorch",
    limit_bytes: float | None = None,
    window: int = WINDOW,
    prefetch: bool = True,
    minimum_bytes: int = MINIMUM_BYTES,
    precision: str = "float32",
) -> Schedule:
    """The schedule of one training step with offload to host memory.

    Args:
        ledger: the step at one batch, `training_step(...).at(batch)`.
        device: a Device, or the name of one in the catalogue.
        policy: "none" moves nothing; "all" every map that the backward pass needs; "conv" only those a convolution
            reads, whose long kernels hide the copy; "dyn" searches for the fastest that fits; "windowed" moves what
            "all" does and lets `window` tensors be in flight, where the others let none.
        algorithm: of the convolutions: "p", the fastest, or "m", slower and without workspace. "dyn" chooses by itself.
        link: between host and device, a Link or its name; None takes the device's own.
        accounting: "pytorch" for the traced step as it is, with the update; "2016" for forward and backward pass in a
            framework of that time, where "none" allocates everything throughout.
        limit_bytes: what "dyn" has to fit into; None takes the device's memory.
        window: tensors in flight of the policy "windowed", 1 or more.
        prefetch: whether tensors are brought back ahead of use, or each only when a kernel waits for it.
        minimum_bytes: smaller tensors stay.
        precision: of the arithmetic.

    Raises:
        CourseError: an unknown policy, algorithm, accounting, device or link; a device whose link is not confirmed and
            none is given; or, for "dyn", a step that does not fit with everything moved and no workspace.
    """
    for what, value, known in (
        ("policy", policy, POLICIES),
        ("algorithm", algorithm, ALGORITHMS),
        ("accounting", accounting, ACCOUNTINGS),
    ):
        require_one_of(what, value, known)
    device = hardware.device(device) if isinstance(device, str) else device
    step = pytorch_step if accounting == "pytorch" else layerwise_2016
    return simulate_work(
        step(ledger, device, precision),
        policy,
        algorithm,
        link_of(device, link).bytes_per_s,
        latency=device.launch_seconds,
        limit_bytes=device.memory_bytes if limit_bytes is None else limit_bytes,
        window=window,
        prefetch=prefetch,
        minimum_bytes=minimum_bytes,
    )


def link_of(device: Device, link: Link | str | None) -> Link:
    """The link to simulate: the one given, by name or not, or the device's own.

    Raises:
        CourseError: none is given and the device's is not confirmed.
    """
    found = hardware.link(link) if isinstance(link, str) else link or device.link
    if found is None:
        names = ", ".join(item.name for item in hardware.links())
        raise CourseError(f"nobody confirmed the link of {device.name}: give one, such as {names}")
    return found


def simulate_work(
    work: Work,
    policy: str,
    algorithm: str,
    bytes_per_s: float,
    *,
    latency: float = hardware.LAUNCH_SECONDS,
    limit_bytes: float = np.inf,
    window: int = WINDOW,
    prefetch: bool = True,
    minimum_bytes: int = MINIMUM_BYTES,
) -> Schedule:
    """`simulate` on kernels and tensors at hand, for many policies of one step.

    Raises:
        CourseError: as `simulate`.
    """
    if policy == "windowed" and window < 1:
        raise CourseError(f"window must be 1 or more tensors, got {window!r}; 0 is policy 'all'")
    search = _Search(work, bytes_per_s, latency, minimum_bytes, prefetch)
    if policy == "dyn":
        return search.dyn(limit_bytes)
    return search.static(policy, algorithm, window if policy == "windowed" else 0)


class _Search:
    """Schedules of one work at one link."""

    def __init__(
        self, work: Work, bytes_per_s: float, latency: float, minimum_bytes: int, prefetch: bool = True
    ) -> None:
        self.work, self.bytes_per_s, self.latency, self.prefetch = work, bytes_per_s, latency, prefetch
        self.big = work.movable & (work.size >= minimum_bytes)

    def static(self, policy: str, algorithm: str, window: int = 0) -> Schedule:
        """A policy that chooses by kind of layer."""
        fast = np.full(self.work.kernels, algorithm == "p")
        work = self.work
        if policy == "none" and work.accounting == "2016":
            work = network_wide_2016(work)
        return self._run(work, self._moved(policy, work), fast, policy, algorithm, window)

    def _moved(self, policy: str, work: Work) -> Bools:
        if policy == "none":
            return np.zeros(len(work.size), dtype=np.bool_)
        moved: Bools = self.big & work.feeds_convolution if policy == "conv" else self.big
        return moved

    def _run(self, work: Work, moved: Bools, fast: Bools, policy: str, algorithm: str, window: int = 0) -> Schedule:
        return run(work, moved, fast, self.bytes_per_s, self.latency, window, policy, algorithm, self.prefetch)

    def dyn(self, limit_bytes: float) -> Schedule:
        """The search of vDNN: the first of a few that fits, and else convolutions slowed down one by one.

        Everything moved without workspace must fit. Then, the fastest algorithms with nothing moved, with "conv", with
        "all", in this order. If none fits, "conv" and "all" with convolutions switched to the algorithm without
        workspace where memory runs out, until they fit: the faster of the two.
        """
        tried: list[str] = []

        def note(schedule: Schedule, what: str) -> bool:
            fits = schedule.peak_bytes <= limit_bytes
            needs = f"{format_bytes(schedule.peak_bytes)}, {format_seconds(schedule.total_seconds)}"
            tried.append(f"{what}: {needs}, {'fits' if fits else 'does not fit'}")
            return fits

        least = self.static("all", "m")
        if not note(least, "all (m)"):
            raise CourseError(
                f"{self.work.name}, batch {self.work.batch}: even with every map moved and no workspace it needs "
                f"{format_bytes(least.peak_bytes)} in {least.kernel_name(least.peak_kernel)}, more than "
                f"{format_bytes(limit_bytes)}: take a smaller batch"
            )
        for policy in ("none", "conv", "all"):
            schedule = self.static(policy, "p")
            if note(schedule, f"{policy} (p)"):
                return replace(schedule, policy="dyn", tried=tuple(tried))
        found = []
        for policy in ("conv", "all"):
            schedule, slowed = self._slow_down(policy, limit_bytes)
            if note(schedule, f"{policy} with {slowed} kernel{'s' * (slowed > 1)} of convolutions slowed down"):
                found.append(schedule)
        best = min(found, key=lambda schedule: schedule.total_seconds, default=least)
        return replace(best, policy="dyn", tried=tuple(tried))

    def _slow_down(self, policy: str, limit_bytes: float) -> tuple[Schedule, int]:
        """Take the workspace from the convolutions in which memory runs out, until it does not, or nothing is left."""
        moved, fast = self._moved(policy, self.work), np.ones(self.work.kernels, dtype=np.bool_)
        while True:
            schedule = self._run(self.work, moved, fast, policy, "mixed")
            over = schedule.at_kernels > limit_bytes
            during = over & fast & self.work.convolution & (self.work.workspace > 0)
            if not during.any():
                during = self._running_over(schedule, limit_bytes) & fast & self.work.convolution
            if schedule.peak_bytes <= limit_bytes or not during.any():
                return schedule, int(np.count_nonzero(~fast))
            fast = fast & ~during

    def _running_over(self, schedule: Schedule, limit_bytes: float) -> Bools:
        """(K,) kernels beside which memory exceeds the limit only after they began, when a copy took more of it."""
        times, level = schedule.memory
        running = np.zeros(self.work.kernels, dtype=np.bool_)
        running[[schedule.kernel_at(float(time)) for time in times[level > limit_bytes]]] = True
        return running
