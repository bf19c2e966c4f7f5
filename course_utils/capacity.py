"""What fits on which card: a traced step against the memory of every device of the catalogue.

A step needs at least the bytes of its tensors at the peak, which the trace knows exactly, and at most what PyTorch's
allocator then holds, which a replay knows; the context that the driver loads comes on top, and is an assumption.
Between the two bounds a step is *tight*: whether it fits depends on the gaps the allocator finds. Must never import
torch, matplotlib or ipywidgets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from course_utils.hardware import Device
from course_utils.memory import StepTrace
from course_utils.units import MIB, CourseError

# The context: what the driver and the libraries load for every process, outside PyTorch's counters. It cannot be
# computed. Seen in PyTorch's issues: 200 to 700 MB (28113, in 2019), about 300 MB since CUDA 11.7 loads kernels when
# they are first used, over 1,000 MB before (107667, in 2023). 512 MiB is the course's own assumption among them.
CONTEXT_BYTES = 512 * MIB

FITS, TIGHT, TOO_SMALL, CANNOT = "fits", "tight", "too small", "cannot compute in it"


@dataclass(frozen=True)
class CardFit:
    """How a step stands on one device. Bytes are those of one die.

    Attributes:
        device: the card.
        state: FITS with whatever gaps the allocator makes; TIGHT: its tensors fit, its gaps do not; TOO_SMALL; CANNOT:
            the device does not compute in the precision of the step.
        spare_bytes: of the card's memory beyond context and tensors; negative where that is too much.
        largest_batch: the largest whose tensors fit beside the context, exact; 0 if not even one sample does, None
            where memory does not grow with the batch.
    """

    device: Device
    state: str
    spare_bytes: int
    largest_batch: int | None


@dataclass(frozen=True)
class Demand:
    """What a step asks of a card, in bytes: its tensors, what the allocator holds for them, and the context."""

    tensors: int
    reserved: int
    context: int

    @property
    def least(self) -> int:
        """Below this no allocator makes it fit."""
        return self.tensors + self.context

    @property
    def safe(self) -> int:
        """With this it fits whatever gaps the allocator makes."""
        return self.reserved + self.context

    def state(self, device: Device) -> str:
        """How the step stands on a device that computes in its precision: FITS, TIGHT or TOO_SMALL."""
        room = device.memory_bytes
        return FITS if self.safe <= room else TIGHT if self.least <= room else TOO_SMALL


def demand(step: StepTrace, batch: int, context_bytes: int = CONTEXT_BYTES) -> Demand:
    """What one batch size of a step asks of a card.

    Raises:
        CourseError: batch is not a whole number of 1 or more.
    """
    ledger = step.at(batch)
    return Demand(ledger.peak_bytes, ledger.reserved_bytes(), context_bytes)


def on_cards(
    step: StepTrace, batch: int, devices: Iterable[Device], context_bytes: int = CONTEXT_BYTES
) -> list[CardFit]:
    """How a step stands on every device, in their order.

    Args:
        step: the step at every batch, traced for "cuda".
        batch: samples in the batch.
        devices: such as `course_utils.hardware.devices()`; of a card with two dies a program uses one.
        context_bytes: what the driver takes of each.

    Raises:
        CourseError: batch is not a whole number of 1 or more.
    """
    asked = demand(step, batch, context_bytes)
    precision = str(step.settings.get("precision", "float32"))
    largest: dict[int, int | None] = {}
    found = []
    for device in devices:
        room = device.memory_bytes
        if room not in largest:
            largest[room] = _largest(step, room - context_bytes)
        state = CANNOT if precision == "bfloat16" and not device.bfloat16 else asked.state(device)
        found.append(CardFit(device, state, room - asked.least, largest[room]))
    return found


def _largest(step: StepTrace, room: int) -> int | None:
    try:
        return step.largest_batch(room)
    except CourseError:  # memory does not grow with the batch, so that there is no largest one
        return None


def smallest(fits: Iterable[CardFit]) -> CardFit | None:
    """Of the cards that the step surely fits, the one with the least memory, of several the cheapest; None if none."""
    good = [fit for fit in fits if fit.state == FITS]
    return min(good, key=lambda fit: (fit.device.memory_bytes, fit.device.launch_usd or math.inf), default=None)


def cheapest(fits: Iterable[CardFit]) -> CardFit | None:
    """Of those that it surely fits and whose launch price is confirmed, the cheapest; None if there is none.

    Prices are of the year of the launch, not adjusted for inflation, and of the whole card.
    """
    good = [fit for fit in fits if fit.state == FITS and fit.device.launch_usd is not None]
    return min(good, key=lambda fit: (fit.device.launch_usd or math.inf, fit.device.memory_bytes), default=None)
