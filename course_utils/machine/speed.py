"""The predicted time of a traced step on a device, read from the same trace as memory.

Every operator costs its launch plus its roofline (`course_utils.machine.hardware`), one after the other; nothing
overlaps, and nothing is fitted to a network. `course_utils.machine.timing` measures what is predicted here, and makes
this machine a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from course_utils.machine import hardware
from course_utils.machine.hardware import COPY_SECONDS, Device, Float64, Link, roofline_seconds
from course_utils.memory import PHASES, ROLE, Int64, Ledger

# Events that run no kernel: marks of the trace, and memory that is asked for and not written.
NO_KERNEL = frozenset({"start", "end", "zero_grad", "empty", "empty_like", "empty_strided", "new_empty"})
BOUNDS = ("none", "launch", "arithmetic", "bandwidth")


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one training step: E events, of which each runs one operator, after one another.

    Attributes:
        name: the network.
        ledger: the step whose time this is; its events are those of `seconds`.
        device: whose rates.
        precision: of the arithmetic.
        transfer_bytes: what goes over the link before the step: input and labels; 0 if they are on the device already.
        copies: tensors that go over it, each in a copy of its own.
        link: the link it goes over.
        flops: (E,) operations of each event.
        traffic: (E,) bytes each event reads and writes.
        launch: (E,) seconds to issue each event's operator.
        work: (E,) seconds of each event's roofline.
    """

    name: str
    ledger: Ledger
    device: Device
    precision: str
    transfer_bytes: int
    copies: int
    link: Link | None
    flops: Int64
    traffic: Int64
    launch: Float64
    work: Float64

    @property
    def transfer_seconds(self) -> float:
        """Seconds input and labels take over the link: starting each copy, and the bytes at the link's rate."""
        return 0.0 if self.link is None else self.copies * COPY_SECONDS + self.transfer_bytes / self.link.bytes_per_s

    @property
    def seconds(self) -> Float64:
        """(E,) seconds of each event: launch and work."""
        return self.launch + self.work

    @property
    def total_seconds(self) -> float:
        """Seconds of the step: transfer and every event."""
        return self.transfer_seconds + float(self.seconds.sum())

    @property
    def recomputed_seconds(self) -> float:
        """Seconds of the backward pass that go into computing maps a second time."""
        return float(self.seconds[self.ledger.tape.recomputed].sum())

    @property
    def samples_per_second(self) -> float:
        """Samples trained on in a second."""
        return self.ledger.batch / self.total_seconds

    @cached_property
    def bound(self) -> npt.NDArray[np.str_]:
        """(E,) what takes the most of each event: "launch", "arithmetic", "bandwidth", or "none" without a kernel."""
        by_arithmetic = self.flops / self.device.reached_flops_per_s(self.precision)
        by_bandwidth = self.traffic / self.device.reached_bytes_per_s()
        parts = np.stack([np.zeros_like(self.launch), self.launch, by_arithmetic, by_bandwidth])
        bound: npt.NDArray[np.str_] = np.array(BOUNDS)[np.where(self.seconds > 0, np.argmax(parts, axis=0), 0)]
        return bound

    def by_phase(self) -> pd.Series:
        """Seconds of the transfer and of each phase: a Series that sums to `total_seconds`."""
        sums = [float(self.seconds[self.ledger.phases == phase].sum()) for phase in PHASES]
        return pd.Series(
            [self.transfer_seconds, *sums], index=pd.Index(["transfer", *PHASES], name="phase"), name="seconds"
        )

    def by_layer(self) -> pd.DataFrame:
        """One row a layer, in the order in which they first run: layer, and its seconds forward, backward, update.

        The last column, seconds, is their sum; with `transfer_seconds` the rows add up to the step.
        """
        frame = pd.DataFrame({"layer": self.ledger.layers, "phase": self.ledger.phases, "seconds": self.seconds})
        table = frame.pivot_table(index="layer", columns="phase", values="seconds", aggfunc="sum", fill_value=0.0)
        table = table.reindex(index=pd.unique(frame["layer"]), columns=list(PHASES), fill_value=0.0)
        table["seconds"] = table.sum(axis=1)
        table.columns.name = None
        return table[table["seconds"] > 0].reset_index()

    def timeline(self) -> pd.DataFrame:
        """One row an event, in the order of `Ledger.timeline`.

        Columns: event (operator), phase, layer, begins (seconds since the step began, the transfer before it), seconds,
        bound, flops, traffic (bytes).
        """
        ends = self.transfer_seconds + np.cumsum(self.seconds)
        return pd.DataFrame(
            {
                "event": self.ledger.tape.event_ops,
                "phase": self.ledger.phases,
                "layer": self.ledger.layers,
                "begins": ends - self.seconds,
                "seconds": self.seconds,
                "bound": self.bound,
                "flops": self.flops,
                "traffic": self.traffic,
            }
        )


def predict_step(
    ledger: Ledger, device: Device | str, precision: str | None = None, link: Link | str | None = None
) -> StepTime:
    """The time of a traced step on a device: launch and roofline of every operator, one after the other.

    A model, not a bound: kernels that do less arithmetic than the formula (Winograd, FFT) are faster, and kernels worse
    than the efficiencies of `course_utils.machine.hardware` are slower. `benchmarks/speed.py` prints by how much.

    Args:
        ledger: the step at one batch, `training_step(...).at(batch)`.
        device: a Device, or the name of one in the catalogue.
        precision: of convolutions and products; the one the step was traced with, whose sizes the traffic has, if None.
        link: what input and labels come over, a Link or its name; None: they are on the device already.

    Raises:
        CourseError: no such device or link, or a precision the device does not have.
    """
    device = hardware.device(device) if isinstance(device, str) else device
    link = hardware.link(link) if isinstance(link, str) else link
    precision = ledger.precision if precision is None else precision
    tape, batch = ledger.tape, ledger.batch
    runs = np.array([op not in NO_KERNEL for op in tape.event_ops])
    flops = (tape.event_flops[:, 0] + tape.event_flops[:, 1] * batch) * runs
    traffic = (tape.event_traffic[:, 0] + tape.event_traffic[:, 1] * batch) * runs
    inputs = tape.role == ROLE["input"]
    return StepTime(
        name=ledger.name,
        ledger=ledger,
        device=device,
        precision=precision,
        transfer_bytes=0 if link is None else int((tape.fixed + tape.per_sample * batch)[inputs].sum()),
        copies=0 if link is None else int(inputs.sum()),
        link=link,
        flops=flops,
        traffic=traffic,
        launch=device.launch_seconds * runs,
        work=roofline_seconds(flops, traffic, device, precision),
    )


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
