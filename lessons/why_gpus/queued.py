"""A predicted step as a GPU runs it: the host issues operators ahead of the device, which works them off in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_utils.machine.hardware import COPY_SECONDS, Float64
from course_utils.machine.speed import StepTime
from course_utils.memory import ROLE


@dataclass(frozen=True)
class Queued:
    """A step as a GPU runs it: the host puts K operators into a queue one by one, the device works them off in order.

    Attributes:
        names: (K,) of the operators, copies first.
        copies: how many of them are copies over the link.
        issues: (K,) seconds at which the host begins to put each into the queue.
        issued: (K,) seconds at which it is there.
        begins: (K,) seconds at which the device begins each.
        ends: (K,) seconds at which it is done.
    """

    names: tuple[str, ...]
    copies: int
    issues: Float64
    issued: Float64
    begins: Float64
    ends: Float64

    @property
    def host_seconds(self) -> float:
        """When the host has issued everything and goes on: what a clock shows that does not wait for the device."""
        return float(self.issued[-1])

    @property
    def total_seconds(self) -> float:
        """When the device is done: what a clock shows after `torch.cuda.synchronize()`."""
        return float(self.ends[-1])


def queued(time: StepTime, pinned: bool = True) -> Queued:
    """The same launches and the same work as in `time`, with the host running ahead of the device.

    An operator begins when it is issued and the one before it is done; issuing one takes the device's launch cost.

    Args:
        time: of a step; the two of its copies come first if its data goes over a link.
        pinned: whether a copy is queued as a kernel is (from pinned memory, with `non_blocking`); else the host waits
            until it is done.
    """
    runs = np.flatnonzero(time.launch > 0)
    names = [f"copy {i + 1}" for i in range(time.copies)] + [time.ledger.tape.event_ops[i] for i in runs]
    issue = np.concatenate([np.full(time.copies, COPY_SECONDS), time.launch[runs]])
    moving = 0.0 if time.link is None else time.transfer_bytes / time.link.bytes_per_s
    shares = _input_shares(time)
    work = np.concatenate([moving * shares, time.work[runs]])
    issues, issued, begins, ends = (np.zeros(len(names)) for _ in range(4))
    host = device = 0.0
    for k in range(len(names)):
        issues[k], issued[k] = host, host + issue[k]
        host = float(issued[k])
        begins[k] = max(host, device)
        device = ends[k] = begins[k] + work[k]
        if k < time.copies and not pinned:
            host = device
    return Queued(tuple(names), time.copies, issues, issued, begins, ends)


def _input_shares(time: StepTime) -> Float64:
    """What share of the transferred bytes each copied tensor is."""
    if not time.copies:
        return np.zeros(0)
    tape = time.ledger.tape
    sizes = (tape.fixed + tape.per_sample * time.ledger.batch)[tape.role == ROLE["input"]].astype(float)
    shares: Float64 = sizes / sizes.sum()
    return shares
