"""A schedule: when every kernel and copy of a step runs, why what waits, and the memory over that time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from course_utils.allocator import Requests
from course_utils.machine.hardware import Float64
from course_utils.memory import ROLE, ROLES, Int64
from course_utils.techniques.offload.work import BACKWARD, Bools, Work
from course_utils.units import format_bytes, format_seconds

OUT, BACK = "to the host", "to the device"
SLOW_COPY, LATE, ON_DEMAND = "a copy to the host", "a copy back", "a copy back on demand"


@dataclass(frozen=True)
class Copy:
    """One transfer over the link."""

    tensor: int  # index into the work's tensors
    direction: str  # OUT or BACK
    bytes: int  # how much
    begins: float  # seconds since the step began
    ends: float  # seconds since the step began
    beside: int  # the kernel with whose start it was issued


@dataclass(frozen=True)
class Stall:
    """A time in which the compute stream waits before a kernel."""

    kernel: int  # the kernel that waits
    begins: float  # seconds since the step began
    seconds: float  # how long
    reason: str  # SLOW_COPY, LATE or ON_DEMAND
    copy: int  # index of the copy it waits for. A kernel that waits for several has a stall for each that ends later


@dataclass(frozen=True)
class Schedule:
    """When every kernel and copy of a step runs, and the memory that takes."""

    work: Work  # the kernels and tensors
    policy: str  # what chose the tensors that move
    algorithm: str  # "m", "p", or "mixed" where each convolution has its own
    window: int  # copies that may still be on their way when the next layer begins
    bytes_per_s: float  # rate of the link
    moved: Bools  # (S,) True for the tensors that leave and return
    fast: Bools  # (K,) True for the convolutions that use the fastest algorithm
    begins: Float64  # (K,) seconds at which each kernel begins
    ends: Float64  # (K,) seconds at which it ends
    copies: tuple[Copy, ...]  # in the order in which the copy stream runs them
    stalls: tuple[Stall, ...]  # in the order of time
    released: Float64  # (S,) seconds at which the memory of a moved tensor is free again; infinite if it stays
    returned: Float64  # (S,) seconds at which memory for its return is taken; infinite if it stays
    tried: tuple[str, ...] = ()  # what a search tried before this, in words

    @property
    def total_seconds(self) -> float:
        """Seconds of the step."""
        return float(self.ends[-1])

    @property
    def compute_seconds(self) -> float:
        """Seconds of its kernels alone: the same step with nothing moved."""
        return float((self.ends - self.begins).sum())

    @property
    def slowdown(self) -> float:
        """Time lost to moving and to slower algorithms, as a share of the fastest step: 0.1 is a tenth longer."""
        return self.total_seconds / float(self.work.fast.sum()) - 1

    @property
    def loss(self) -> float:
        """Performance lost, as the publications of 2016 count it: 1 - fastest / total."""
        return 1 - min(1.0, float(self.work.fast.sum()) / self.total_seconds)  # in another order the last digit differs

    @property
    def copy_floor_seconds(self) -> float:
        """Seconds the copy stream is busy: no step that makes these copies is shorter."""
        return sum(copy.ends - copy.begins for copy in self.copies)

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

    def traffic_bytes(self) -> dict[str, int]:
        """Bytes over the link in each direction."""
        return {way: sum(copy.bytes for copy in self.copies if copy.direction == way) for way in (OUT, BACK)}

    @cached_property
    def memory(self) -> tuple[Float64, Int64]:
        """Memory over time: (B,) seconds at which it changes, and (B,) bytes from each of them to the next.

        A tensor is gone when the last kernel that uses it has ended, whatever the next one waits for. The first time is
        0; the last level ends with the step.
        """
        times, by_role = self.memory_by_role
        return times, by_role.sum(axis=1)

    @cached_property
    def memory_by_role(self) -> tuple[Float64, Int64]:
        """`memory` by role: (B,) seconds, and (B, len(ROLES)) bytes."""
        work, moved, scratch = self.work, np.flatnonzero(self.moved), ROLE["workspace"]
        starts, over = np.append(self.begins, np.inf), np.concatenate([[0.0], self.ends[:-1], [np.inf]])
        workspace = self.workspace
        used = np.flatnonzero(workspace)
        changes = [  # seconds, bytes, role
            (self.begins[:1], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)),
            (starts[work.birth], work.size, work.role),
            (over[work.death], -work.size, work.role),
            (self.released[moved], -work.size[moved], work.role[moved]),
            (self.returned[moved], work.size[moved], work.role[moved]),
            (self.begins[used], workspace[used], np.full(len(used), scratch)),
            (self.ends[used], -workspace[used], np.full(len(used), scratch)),
        ]
        at, change, role = (np.concatenate(column) for column in zip(*changes, strict=True))
        inside = np.isfinite(at)
        times, place = np.unique(at[inside], return_inverse=True)
        steps = np.zeros((len(times), len(ROLES)), dtype=np.int64)
        np.add.at(steps, (place, role[inside]), change[inside])
        return times, np.cumsum(steps, axis=0)

    @property
    def workspace(self) -> Int64:
        """(K,) scratch bytes of each kernel with the algorithm it uses."""
        return np.where(self.fast & self.work.convolution, self.work.workspace, 0)

    @cached_property
    def peak_bytes(self) -> int:
        """The most memory at any time."""
        return max(int(self.memory[1].max()), int(self.at_kernels.max()))

    @cached_property
    def requests(self) -> Requests:
        """What it asks of PyTorch's caching allocator.

        Memory of a tensor that has left is free from the next kernel on, and taken again with the kernel beside which
        it returns.
        """
        work, moved = self.work, np.flatnonzero(self.moved)
        gone = np.searchsorted(self.begins, self.released[moved])
        back = np.searchsorted(self.begins, self.returned[moved], side="right") - 1
        away = moved[back > gone]
        death = work.death.copy()
        death[away] = gone[back > gone]
        lasting = (work.birth == 0) & (death > work.kernels - 1)
        asked = Requests(work.size, work.birth, death, lasting, work.role == ROLE["optimizer state"], work.kernels)
        asked = asked.also(work.size[away], back[back > gone], work.death[away])
        scratch = np.flatnonzero(self.workspace)
        return asked.also(self.workspace[scratch], scratch)

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
        return float((level * np.diff(np.append(times, self.total_seconds))).sum() / self.total_seconds)

    def kernel_at(self, seconds: float) -> int:
        """The kernel that runs at a time, or the last that ran before it."""
        return int(np.clip(np.searchsorted(self.begins, seconds, side="right") - 1, 0, self.work.kernels - 1))

    @cached_property
    def at_kernels(self) -> Int64:
        """(K,) bytes as each kernel begins to run; for policy "none" the timeline of the ledger."""
        work, moved = self.work, np.flatnonzero(self.moved)
        away = self.away(self.begins[:, None], moved)
        here: Int64 = work.levels + self.workspace - (away * work.size[moved]).sum(axis=1)
        return here

    def away(self, seconds: npt.ArrayLike, tensors: Int64) -> Bools:
        """Whether the memory of moved tensors is free at a time; the two are broadcast against each other."""
        at = np.asarray(seconds)
        return (self.released[tensors] <= at) & (at < self.returned[tensors])
