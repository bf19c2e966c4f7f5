"""Two streams over one training step: kernels on one, copies to the host and back on the other.

`run` is a discrete-event simulation of what Rhu et al., "vDNN" (MICRO-49, 2016), describe, on kernels and tensors of
a `Work`. It decides when things happen; what moves and with which algorithm is `course_utils.offload.policies`. Must
never import torch, matplotlib or ipywidgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from course_utils.hardware import Float64
from course_utils.memory import PHASES, ROLE, ROLES, Int64
from course_utils.offload.work import BACKWARD, Bools, Work
from course_utils.units import CourseError, format_bytes, format_seconds

OUT, BACK = "to the host", "to the device"
SLOW_COPY, LATE, ON_DEMAND = "a copy to the host", "a copy back", "a copy back on demand"
REASONS = (SLOW_COPY, LATE, ON_DEMAND)


@dataclass(frozen=True)
class Copy:
    """One transfer over the link.

    Attributes:
        tensor: index into the work's tensors.
        direction: OUT or BACK.
        bytes: how much.
        begins: seconds since the step began.
        ends: seconds since the step began.
        beside: the kernel with whose start it was issued.
        on_demand: whether it was issued only when a kernel already waited for it.
    """

    tensor: int
    direction: str
    bytes: int
    begins: float
    ends: float
    beside: int
    on_demand: bool = False


@dataclass(frozen=True)
class Stall:
    """A time in which the compute stream waits before a kernel.

    Attributes:
        kernel: the kernel that waits.
        begins: seconds since the step began.
        seconds: how long.
        reason: one of REASONS.
        copy: index of the copy it waits for. A kernel that waits for several has a stall for each that ends later.
    """

    kernel: int
    begins: float
    seconds: float
    reason: str
    copy: int


@dataclass(frozen=True)
class Schedule:
    """When every kernel and copy of a step runs, and the memory that takes.

    Attributes:
        work: the kernels and tensors.
        policy: what chose the tensors that move.
        algorithm: "m", "p", or "mixed" where each convolution has its own.
        window: copies that may still be on their way when the next layer begins.
        bytes_per_s: rate of the link.
        moved: (S,) True for the tensors that leave and return.
        fast: (K,) True for the convolutions that use the fastest algorithm.
        begins: (K,) seconds at which each kernel begins.
        ends: (K,) seconds at which it ends.
        copies: in the order in which the copy stream runs them.
        stalls: in the order of time.
        released: (S,) seconds at which the memory of a moved tensor is free again; infinite if it stays.
        returned: (S,) seconds at which memory for its return is taken; infinite if it stays.
        tried: what a search tried before this, in words.
    """

    work: Work
    policy: str
    algorithm: str
    window: int
    bytes_per_s: float
    moved: Bools
    fast: Bools
    begins: Float64
    ends: Float64
    copies: tuple[Copy, ...]
    stalls: tuple[Stall, ...]
    released: Float64
    returned: Float64
    tried: tuple[str, ...] = ()

    # Time

    @property
    def total_seconds(self) -> float:
        """Seconds of the step."""
        return float(self.ends[-1])

    @property
    def compute_seconds(self) -> float:
        """Seconds of its kernels alone: the same step with nothing moved."""
        return float((self.ends - self.begins).sum())

    @property
    def fastest_seconds(self) -> float:
        """Seconds of the step with nothing moved and the fastest algorithms: what an unlimited device would take."""
        return float(self.work.fast.sum())

    @property
    def slowdown(self) -> float:
        """Time lost to moving and to slower algorithms, as a share of the fastest step: 0.1 is a tenth longer."""
        return self.total_seconds / self.fastest_seconds - 1

    @property
    def loss(self) -> float:
        """Performance lost, as the publications of 2016 count it: 1 - fastest / total."""
        return 1 - min(1.0, self.fastest_seconds / self.total_seconds)  # sums in another order differ in the last digit

    @property
    def copy_floor_seconds(self) -> float:
        """Seconds the copy stream is busy: no step that makes these copies is shorter."""
        return sum(copy.ends - copy.begins for copy in self.copies)

    def stall_seconds(self) -> pd.Series:
        """Seconds of waiting by reason: a Series over REASONS that sums to `total_seconds - compute_seconds`."""
        sums = dict.fromkeys(REASONS, 0.0)
        for stall in self.stalls:
            sums[stall.reason] += stall.seconds
        return pd.Series(sums, name="seconds")

    def explain(self, stall: Stall) -> str:
        """Why a stall happened, in one sentence with its numbers."""
        copy = self.copies[stall.copy]
        size = f"{format_bytes(copy.bytes, 1)} of {self.work.owners[copy.tensor]}"
        took = format_seconds(copy.ends - copy.begins, 2)
        head = f"{self.kernel_name(stall.kernel)} waits {format_seconds(stall.seconds, 2)}"
        if stall.reason == ON_DEMAND:
            return f"{head}: it needs {size}, which nobody fetched ahead; the copy takes {took}"
        queued = copy.begins - float(self.begins[copy.beside])
        began = f"was issued with {self.kernel_name(copy.beside)}"
        if queued > 1e-9:
            began += f" and queued {format_seconds(queued, 2)} behind others"
        what = "came back too late" if stall.reason == LATE else "has to leave first"
        return f"{head}: {size} {what}; the copy takes {took} and {began}"

    def kernel_name(self, kernel: int) -> str:
        """Layer and pass of a kernel, as people say it: "conv1_2", "conv1_2 backward"."""
        backward = self.work.phase[kernel] == BACKWARD
        return f"{self.work.layers[kernel]} backward" if backward else self.work.layers[kernel]

    # Traffic

    def traffic_bytes(self) -> dict[str, int]:
        """Bytes over the link in each direction."""
        return {way: sum(copy.bytes for copy in self.copies if copy.direction == way) for way in (OUT, BACK)}

    # Memory

    @cached_property
    def memory(self) -> tuple[Float64, Int64]:
        """Memory over time: (B,) seconds at which it changes, and (B,) bytes from each of them to the next.

        The first is 0; the last level ends with the step.
        """
        times, by_role = self.memory_by_role
        return times, by_role.sum(axis=1)

    @cached_property
    def memory_by_role(self) -> tuple[Float64, Int64]:
        """`memory` by role: (B,) seconds, and (B, len(ROLES)) bytes."""
        work, moved, scratch = self.work, np.flatnonzero(self.moved), ROLE["workspace"]
        starts = np.append(self.begins, np.inf)
        workspace = self._workspace
        used = np.flatnonzero(workspace)
        if work.static:
            begins, ends, scratch_bytes = np.zeros(1), np.full(1, np.inf), workspace.max(initial=0, keepdims=True)
        else:
            begins, ends, scratch_bytes = self.begins[used], self.ends[used], workspace[used]
        changes = [  # seconds, bytes, role
            (self.begins[:1], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)),
            (starts[work.birth], work.size, work.role),
            (starts[work.death], -work.size, work.role),
            (self.released[moved], -work.size[moved], work.role[moved]),
            (self.returned[moved], work.size[moved], work.role[moved]),
            (begins, scratch_bytes, np.full(len(begins), scratch)),
            (ends, -scratch_bytes, np.full(len(begins), scratch)),
        ]
        at, change, role = (np.concatenate(column) for column in zip(*changes, strict=True))
        inside = np.isfinite(at)
        times, place = np.unique(at[inside], return_inverse=True)
        steps = np.zeros((len(times), len(ROLES)), dtype=np.int64)
        np.add.at(steps, (place, role[inside]), change[inside])
        return times, np.cumsum(steps, axis=0)

    @property
    def _workspace(self) -> Int64:
        return np.where(self.fast & self.work.convolution, self.work.workspace, 0)

    @cached_property
    def peak_bytes(self) -> int:
        """The most memory at any time."""
        return max(int(self.memory[1].max()), int(self.at_kernels.max()))

    @property
    def peak_kernel(self) -> int:
        """The kernel that runs, or waits to run, when the peak is reached first."""
        at_kernels = self.at_kernels
        if at_kernels.max() == self.peak_bytes:
            return int(np.argmax(at_kernels))
        times, level = self.memory
        return self.kernel_at(float(times[int(np.argmax(level == self.peak_bytes))]))

    @property
    def average_bytes(self) -> float:
        """Memory averaged over the time of the step."""
        times, level = self.memory
        if not self.total_seconds:
            return float(level[-1])
        return float((level * np.diff(np.append(times, self.total_seconds))).sum() / self.total_seconds)

    def kernel_at(self, seconds: float) -> int:
        """The kernel that runs at a time, or the last that ran before it."""
        return int(np.clip(np.searchsorted(self.begins, seconds, side="right") - 1, 0, self.work.kernels - 1))

    @cached_property
    def at_kernels(self) -> Int64:
        """(K,) bytes as each kernel begins to run; for policy "none" the timeline of the ledger."""
        work, workspace = self.work, self._workspace
        moved = np.flatnonzero(self.moved)
        away = self.away(self.begins[:, None], moved)
        if work.static:
            workspace = np.full(work.kernels, workspace.max(initial=0))
        here: Int64 = work.levels + workspace - (away * work.size[moved]).sum(axis=1)
        return here

    def away(self, seconds: npt.ArrayLike, tensors: Int64) -> Bools:
        """Whether the memory of moved tensors is free at a time; the two are broadcast against each other."""
        at = np.asarray(seconds)
        free: Bools = (self.released[tensors] <= at) & (at < self.returned[tensors])
        return free

    # Tables

    def timeline(self) -> pd.DataFrame:
        """One row a kernel: event, phase, layer, begins, seconds, waits (seconds before it), memory (bytes)."""
        waits = np.zeros(self.work.kernels)
        for stall in self.stalls:
            waits[stall.kernel] += stall.seconds
        return pd.DataFrame(
            {
                "event": self.work.ops,
                "phase": np.array(PHASES)[self.work.phase],
                "layer": self.work.layers,
                "begins": self.begins,
                "seconds": self.ends - self.begins,
                "waits": waits,
                "memory": self.at_kernels,
            }
        )

    def transfers(self) -> pd.DataFrame:
        """One row a copy: layer (that made the tensor), direction, bytes, begins, seconds, beside (a kernel's name)."""
        return pd.DataFrame(
            [
                {
                    "layer": self.work.owners[copy.tensor],
                    "direction": copy.direction,
                    "bytes": copy.bytes,
                    "begins": copy.begins,
                    "seconds": copy.ends - copy.begins,
                    "beside": self.kernel_name(copy.beside),
                }
                for copy in self.copies
            ],
            columns=["layer", "direction", "bytes", "begins", "seconds", "beside"],
        )


def run(
    work: Work,
    moved: Bools,
    fast: Bools,
    bytes_per_s: float,
    latency: float = 0.0,
    window: int = 0,
    policy: str = "",
    algorithm: str = "",
) -> Schedule:
    """Play one step: kernels in their order, each copy beside the kernel that lets it begin.

    Forward: a copy to the host is issued when the last kernel to use the tensor begins (it only reads, so both run
    together), and a layer begins when all but the latest `window` of these copies have ended. Memory is free when both
    the copy and that kernel have ended. Backward: with `window` 0 each layer that begins issues the copies back that it
    still misses and those for the nearest kernel after it that needs any, looking no further than the next convolution,
    and the next layer waits for them; with a larger one up to `window` tensors are fetched ahead of use and only their
    user waits. What nobody fetched is copied on demand. One copy at a time.

    Args:
        work: kernels and tensors.
        moved: (S,) which tensors leave and return; all of them movable.
        fast: (K,) which convolutions use the fastest algorithm.
        bytes_per_s: rate of the link.
        latency: seconds every copy takes besides.
        window: tensors in flight, 0 or more.
        policy: kept in the schedule.
        algorithm: kept in the schedule.

    Raises:
        CourseError: a tensor cannot be moved, the link has no rate, or the window is negative.
    """
    if np.any(moved & ~work.movable):
        raise CourseError(f"{work.name}: a tensor that is not used in both passes cannot be moved")
    if bytes_per_s <= 0:
        raise CourseError(f"the link's rate must be above 0 bytes a second, got {bytes_per_s!r}")
    if window < 0:
        raise CourseError(f"window must be 0 or more tensors, got {window!r}")
    return _Run(work, moved, fast, bytes_per_s, latency, window).play(policy, algorithm)


class _Run:
    """The state of a simulation."""

    def __init__(self, work: Work, moved: Bools, fast: Bools, rate: float, latency: float, window: int) -> None:
        self.work, self.moved, self.fast, self.rate, self.latency, self.window = (
            work,
            moved,
            fast,
            rate,
            latency,
            window,
        )
        self.leaving: dict[int, list[int]] = {}
        self.needed: dict[int, list[int]] = {}
        for tensor in np.flatnonzero(moved).tolist():
            self.leaving.setdefault(int(work.leaves[tensor]), []).append(tensor)
            self.needed.setdefault(int(work.first_backward_use[tensor]), []).append(tensor)
        self.queue = [tensor for kernel in sorted(self.needed) for tensor in self.needed[kernel]]  # as they are needed
        self.passed = self.fetched = 0  # how many of the queue have been used, and fetched: for windows above 0
        self.copies: list[Copy] = []
        self.out: list[int] = []  # copies to the host, in order
        self.back: dict[int, int] = {}  # tensor -> its copy back
        self.free_at = 0.0  # of the copy stream

    def play(self, policy: str, algorithm: str) -> Schedule:
        work = self.work
        seconds = np.where(self.fast, work.fast, work.slow)
        begins, ends = np.zeros(work.kernels), np.zeros(work.kernels)
        released, returned = np.full(len(work.size), np.inf), np.full(len(work.size), np.inf)
        stalls = []
        now = 0.0
        for kernel in range(work.kernels):
            ready = now
            for copy, reason in self._waits(kernel, now):
                end = self.copies[copy].ends
                if end > ready:
                    stalls.append(Stall(kernel, ready, end - ready, reason, copy))
                    ready = end
            begins[kernel] = ready
            now = ends[kernel] = ready + seconds[kernel]
            for tensor in self.leaving.get(kernel, ()):
                copy = self._copy(tensor, OUT, ready, kernel)
                self.out.append(copy)
                released[tensor] = max(self.copies[copy].ends, ends[work.last_forward_use[tensor]])
            for tensor in self._ahead(kernel):
                self.back[tensor] = self._copy(tensor, BACK, ready, kernel)
        for tensor, copy in self.back.items():
            returned[tensor] = self.copies[copy].begins
        return Schedule(
            work, policy, algorithm, self.window, self.rate, self.moved, self.fast, begins, ends,
            tuple(self.copies), tuple(stalls), released, returned,
        )  # fmt: skip

    def _copy(self, tensor: int, direction: str, issued: float, kernel: int, on_demand: bool = False) -> int:
        begins = max(self.free_at, issued)
        size = int(self.work.size[tensor])
        self.free_at = begins + size / self.rate + self.latency
        self.copies.append(Copy(tensor, direction, size, begins, self.free_at, kernel, on_demand))
        return len(self.copies) - 1

    def _waits(self, kernel: int, now: float) -> Iterator[tuple[int, str]]:
        """The copies a kernel waits for, and why."""
        if self.work.begins_layer[kernel]:
            done = len(self.out) - self.window
            if done > 0:
                yield self.out[done - 1], SLOW_COPY
            if self.window == 0 and self.back:
                yield next(reversed(self.back.values())), LATE
        for tensor in self.needed.get(kernel, ()):
            missing = tensor not in self.back
            if missing:
                self.back[tensor] = self._copy(tensor, BACK, now, kernel, on_demand=True)
            copy = self.back[tensor]
            yield copy, ON_DEMAND if self.copies[copy].on_demand else LATE

    def _ahead(self, kernel: int) -> list[int]:
        """The tensors to fetch while a kernel of the backward pass runs."""
        work = self.work
        if work.phase[kernel] != BACKWARD:
            return []
        if self.window:
            while self.passed < len(self.queue) and work.first_backward_use[self.queue[self.passed]] <= kernel:
                self.passed += 1
            first = max(self.fetched, self.passed)
            self.fetched = max(first, min(len(self.queue), self.passed + self.window))
            return self.queue[first : self.fetched]
        if not work.begins_layer[kernel]:
            return []
        fetch: list[int] = []
        own = True  # still in the layer that begins with this kernel, whose own needs are late already
        for later in range(kernel + 1, work.kernels):
            own = own and not work.begins_layer[later]
            missing = [tensor for tensor in self.needed.get(later, ()) if tensor not in self.back]
            fetch += missing
            if not own and (missing or work.convolution[later]):
                break
        return fetch
