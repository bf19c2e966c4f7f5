"""Two streams over one training step: kernels on one, copies to the host and back on the other.

`run` is a discrete-event simulation of what Rhu et al., "vDNN" (MICRO-49, 2016), describe, on a `Work`'s kernels and
tensors. It decides when things happen; what moves and with which algorithm is
`course_utils.techniques.offload.policies`.
"""

from collections.abc import Iterator

import numpy as np

from course_utils.techniques.offload.schedule import BACK, LATE, ON_DEMAND, OUT, SLOW_COPY, Copy, Schedule, Stall
from course_utils.techniques.offload.work import BACKWARD, Bools, Work
from course_utils.units import CourseError


def run(
    work: Work,
    moved: Bools,
    fast: Bools,
    bytes_per_s: float,
    latency: float = 0.0,
    window: int = 0,
    policy: str = "",
    algorithm: str = "",
    prefetch: bool = True,
) -> Schedule:
    """Play one step: kernels in their order, each copy beside the kernel that lets it begin.

    Forward: a copy to the host is issued when the last kernel to use the tensor begins (it only reads, so both run
    together), and a layer begins when all but the latest `window` of these copies have ended. Memory is free when both
    the copy and that kernel have ended. Backward: with `window` 0 each layer that begins issues the copies back that it
    still misses and those for the nearest kernel after it that needs any, looking no further than the next convolution,
    and the next layer waits for them; with a larger one up to `window` tensors are fetched ahead of use and only their
    user waits. What nobody fetched is copied on demand: everything, without `prefetch`. One copy at a time.

    Args:
        work: kernels and tensors.
        moved: (S,) which tensors leave and return; all of them movable.
        fast: (K,) which convolutions use the fastest algorithm.
        bytes_per_s: rate of the link.
        latency: seconds every copy takes besides.
        window: tensors in flight, 0 or more.
        policy, algorithm: kept in the schedule.
        prefetch: whether anything is fetched ahead of use.

    Raises:
        CourseError: a tensor cannot be moved, the link has no rate, or the window is negative.
    """
    if np.any(moved & ~work.movable):
        raise CourseError(f"{work.name}: a tensor that is not used in both passes cannot be moved")
    if bytes_per_s <= 0:
        raise CourseError(f"the link's rate must be above 0 bytes a second, got {bytes_per_s!r}")
    if window < 0:
        raise CourseError(f"window must be 0 or more tensors, got {window!r}")
    return _Run(work, moved, fast, bytes_per_s, latency, window, prefetch).play(policy, algorithm)


class _Run:
    """The state of a simulation."""

    def __init__(
        self, work: Work, moved: Bools, fast: Bools, rate: float, latency: float, window: int, prefetch: bool
    ) -> None:
        self.work, self.moved, self.fast, self.prefetch = work, moved, fast, prefetch
        self.rate, self.latency, self.window = rate, latency, window
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

    def _copy(self, tensor: int, direction: str, issued: float, kernel: int) -> int:
        begins = max(self.free_at, issued)
        size = int(self.work.size[tensor])
        self.free_at = begins + size / self.rate + self.latency
        self.copies.append(Copy(tensor, direction, size, begins, self.free_at, kernel))
        return len(self.copies) - 1

    def _waits(self, kernel: int, now: float) -> Iterator[tuple[int, str]]:
        """The copies a kernel waits for, and why."""
        if self.work.begins_layer[kernel]:
            done = len(self.out) - self.window
            if done > 0:
                yield self.out[done - 1], SLOW_COPY
            if self.window == 0 and self.back:
                yield next(reversed(self.back.values())), LATE
        for tensor in self.needed.get(kernel, ()):  # by nobody before
            reason = LATE if tensor in self.back else ON_DEMAND
            if reason == ON_DEMAND:
                self.back[tensor] = self._copy(tensor, BACK, now, kernel)
            yield self.back[tensor], reason

    def _ahead(self, kernel: int) -> list[int]:
        """The tensors to fetch while a kernel of the backward pass runs."""
        work = self.work
        if work.phase[kernel] != BACKWARD or not self.prefetch:
            return []
        if self.window:
            while self.passed < len(self.queue) and work.first_backward_use[self.queue[self.passed]] <= kernel:
                self.passed += 1
            first = last = max(self.fetched, self.passed)
            while last < min(len(self.queue), self.passed + self.window) and work.leaves[self.queue[last]] < kernel:
                last += 1  # what has not left yet belongs to a later micro-batch
            self.fetched = last
            return self.queue[first:last]
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
