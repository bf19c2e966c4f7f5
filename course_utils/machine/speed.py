"""The predicted time of a traced step on a device, read from the same trace as memory.

Every operator costs its launch plus its roofline (`course_utils.machine.hardware`), one after the other; nothing
overlaps, and nothing is fitted to a network. `course_utils.machine.timing` measures what is predicted here, and makes
this machine a device.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from course_utils.machine import hardware
from course_utils.machine.hardware import COPY_SECONDS, Device, Float64, Link, roofline_seconds
from course_utils.memory import PHASES, ROLE, Int64, Ledger

# Events that run no kernel: marks of the trace, and memory that is asked for and not written.
NO_KERNEL = frozenset({"start", "end", "zero_grad", "empty", "empty_like", "empty_strided", "new_empty"})


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one training step: E events, of which each runs one operator, after one another."""

    name: str  # of the network
    ledger: Ledger  # the step whose time this is; its events are those of `seconds`
    device: Device  # whose rates
    precision: str  # of the arithmetic
    transfer_bytes: int  # input and labels, which go over the link before the step; 0 if on the device already
    copies: int  # tensors that go over it, each in a copy of its own
    link: Link | None
    flops: Int64  # (E,) operations of each event
    traffic: Int64  # (E,) bytes each event reads and writes
    launch: Float64  # (E,) seconds to issue each event's operator
    work: Float64  # (E,) seconds of each event's roofline

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

    def by_phase(self) -> pd.Series:
        """Seconds of the transfer and of each phase: a Series that sums to `total_seconds`."""
        sums = [float(self.seconds[self.ledger.phases == phase].sum()) for phase in PHASES]
        phases = pd.Index(["transfer", *PHASES], name="phase")
        return pd.Series([self.transfer_seconds, *sums], index=phases, name="seconds")

    def timeline(self) -> pd.DataFrame:
        """One row an event, in the order of `Ledger.timeline`.

        Columns: event (operator), phase, layer, begins (seconds since the step began, the transfer before it), seconds,
        flops, traffic (bytes).
        """
        ends = self.transfer_seconds + np.cumsum(self.seconds)
        return pd.DataFrame(
            {
                "event": self.ledger.tape.event_ops,
                "phase": self.ledger.phases,
                "layer": self.ledger.layers,
                "begins": ends - self.seconds,
                "seconds": self.seconds,
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
