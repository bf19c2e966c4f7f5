"""Does it fit: the one place where a training step is compared with a card.

`fit` says *fits*, *tight* or *no*, and which of four decided:

- *no*: the tensors at the peak, each rounded up to 512 bytes as its block is, are more than the card (**tensors**), or
  more than the driver's context leaves of it (**context**). No allocator helps; this bound is exact.
- *tight*: there is room for them, but PyTorch's allocator does not get through. It is replayed on a card of this very
  size, where it gives unused segments back and tries again before it fails (`course_utils.allocator`). Either its gaps
  are in the way (**allocator**), or it gets through with the tensors alone and not with the scratch memory that fast
  convolutions may want (**workspace**); cuDNN then takes slower ones (aten/native/cudnn/Conv_v8.cpp catches the
  out-of-memory error and tries the next).
- *fits*: it gets through with the scratch memory too.

Two things cannot be computed and are assumptions: CONTEXT_BYTES, and WORKSPACE_SHARE of the maps a convolution reads
and writes, which is that of the fastest algorithms of 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from course_utils.allocator import ROUND, Requests
from course_utils.machine.hardware import Device
from course_utils.memory import Ledger, StepTrace
from course_utils.techniques.offload.work import WORKSPACE_SHARE, convolution_maps
from course_utils.units import GIB, MIB, CourseError, format_bytes

# The context: what the driver and the libraries load for every process, outside PyTorch's counters. It cannot be
# computed. Seen in PyTorch's issues: 200 to 700 MB (28113, in 2019), about 300 MB since CUDA 11.7 loads kernels when
# they are first used, over 1,000 MB before (107667, in 2023). 512 MiB is the course's own assumption among them.
CONTEXT_BYTES = 512 * MIB
PROBES = 8  # batches replayed between the one that fits for certain and the one above which none can

FITS, TIGHT, NO, CANNOT = "fits", "tight", "no", "cannot compute in it"
TENSORS, CONTEXT, ALLOCATOR, WORKSPACE = "tensors", "context", "allocator", "workspace"


def spare_bytes(card: Device | float, tensor_bytes: int, context_bytes: int = CONTEXT_BYTES) -> int:
    """What tensors and context leave of a card, negative where they are too much: all there is to say without a replay.

    That of a framework of 2016, which laid out its memory itself, or of one card among many.
    """
    return int(card.memory_bytes if isinstance(card, Device) else card) - context_bytes - tensor_bytes


@dataclass(frozen=True)
class Fit:
    """The verdict on a step and a card. Bytes are those of one die.

    Attributes:
        state: FITS, TIGHT or NO.
        decided: what stands in the way: TENSORS, CONTEXT, ALLOCATOR or WORKSPACE; empty where it fits.
        card: what the card is called.
        card_bytes: what it holds.
        tensor_bytes: in use at the peak, in the allocator's blocks.
        context_bytes: what the driver takes.
        workspace_bytes: the most that one convolution may want as scratch memory.
    """

    state: str
    decided: str
    card: str
    card_bytes: int
    tensor_bytes: int
    context_bytes: int
    workspace_bytes: int

    @property
    def spare_bytes(self) -> int:
        """Of the card beyond tensors and context; negative where they are too much."""
        return spare_bytes(self.card_bytes, self.tensor_bytes, self.context_bytes)

    def holds(self, tensor_bytes: int) -> bool:
        """Whether the card has room for so many bytes beside the context."""
        return spare_bytes(self.card_bytes, tensor_bytes, self.context_bytes) >= 0

    @property
    def words(self) -> str:
        """The verdict as the end of a sentence that begins with the step: "fits the 12 GiB card with … to spare"."""
        spare, card = format_bytes(abs(self.spare_bytes)), f"the {self.card}"
        if self.state == FITS:
            return f"fits {card} with {spare} to spare"
        if self.decided == TENSORS:
            return f"is {format_bytes(self.tensor_bytes - self.card_bytes)} more than {card} holds"
        if self.decided == CONTEXT:
            return f"is {spare} more than {card} leaves beside the context"
        return f"is tight on {card}: the {self.decided} decides"

    @property
    def sentence(self) -> str:
        """The verdict, what decided it, and what that means."""
        spare, context = format_bytes(abs(self.spare_bytes)), f"{format_bytes(self.context_bytes)} of context"
        beside = f"the tensors leave {spare} beside {context}"
        if self.state == FITS:
            return f"It fits: {beside}, and the allocator finds room for everything."
        if self.decided == TENSORS:
            over = format_bytes(self.tensor_bytes - self.card_bytes)
            return f"It does not fit: the tensors alone are {over} too much."
        if self.decided == CONTEXT:
            return f"It does not fit: the card would hold the tensors, but {context} make that {spare} too much."
        if self.decided == ALLOCATOR:
            return f"It is tight, the allocator decides: {beside}, but in pieces too small for what is asked for."
        lacks = "in pieces too small for" if self.workspace_bytes <= self.spare_bytes else "less than"
        wanted = f"the {format_bytes(self.workspace_bytes)} of scratch memory that a fast convolution may want"
        return f"It is tight, the workspace decides: {beside}, {lacks} {wanted}; without it a slower one runs."


@dataclass(frozen=True)
class Demand:
    """What a step asks of a card.

    Attributes:
        requests: of the allocator, for the tensors.
        scratch: the same, and the scratch memory that convolutions may want.
        workspace: the most that one of them may want, in bytes.
        context: what the driver takes, in bytes.
    """

    requests: Requests
    scratch: Requests
    workspace: int
    context: int = CONTEXT_BYTES

    @property
    def tensors(self) -> int:
        """In use at the peak, in blocks."""
        return self.requests.least_bytes

    @property
    def least(self) -> int:
        """Bytes of a card below which no allocator makes it fit."""
        return self.tensors + self.context

    @cached_property
    def safe(self) -> int:
        """Bytes of a card with which the allocator never has to give anything back, scratch memory included."""
        return self.scratch.reserved_bytes + self.context

    def on(self, card: Device | float, name: str | None = None) -> Fit:
        """The verdict on a card, or on so many bytes."""
        room = int(card.memory_bytes if isinstance(card, Device) else card)
        name = name or (card.name if isinstance(card, Device) else card_name(room))
        state, decided = self._judge(room)
        return Fit(state, decided, name, room, self.tensors, self.context, self.workspace)

    def missing(self, card_bytes: int) -> str:
        """What there is no room for, whatever the allocator does: TENSORS, CONTEXT, or nothing."""
        if spare_bytes(card_bytes, self.tensors, self.context) >= 0:
            return ""
        return TENSORS if spare_bytes(card_bytes, self.tensors, 0) < 0 else CONTEXT

    def _judge(self, room: int) -> tuple[str, str]:
        missing = self.missing(room)
        if missing:
            return NO, missing
        left = room - self.context
        if self.scratch.fit_in(left):
            return FITS, ""
        return TIGHT, WORKSPACE if self.workspace and self.requests.fit_in(left) else ALLOCATOR


def card_name(card_bytes: float) -> str:
    """What a card is called that is known by its bytes alone: "12 GiB card"."""
    return f"{card_bytes / GIB:g} GiB card" if card_bytes % (GIB / 4) == 0 else f"{format_bytes(card_bytes)} limit"


def demand(ledger: Ledger, context_bytes: int = CONTEXT_BYTES) -> Demand:
    """What a step at one batch asks of a card.

    A ledger that assumes a workspace of its own (`StepTrace.at(batch, workspace)`) counts that among the tensors.
    """
    tensors = ledger.requests
    if ledger.workspace:
        return Demand(tensors, tensors, 0, context_bytes)
    wanted = (WORKSPACE_SHARE * convolution_maps(ledger.tape, ledger.size)).astype(np.int64)
    events = np.flatnonzero(wanted)
    scratch = tensors.also(wanted[events], events) if len(events) else tensors
    return Demand(tensors, scratch, int(wanted.max(initial=0)), context_bytes)


def fit(ledger: Ledger, card: Device | float, name: str | None = None, context_bytes: int = CONTEXT_BYTES) -> Fit:
    """Whether a step fits a card, and what decided it: see the top of `course_utils.techniques.capacity`.

    Args:
        ledger: the step at one batch, traced for "cuda".
        card: a device of the catalogue (of a card with two dies a program uses one), or bytes.
        name: what the card is called; its own name, or "12 GiB card", if not given.
        context_bytes: what the driver takes of it.
    """
    return demand(ledger, context_bytes).on(card, name)


@dataclass(frozen=True)
class Batches:
    """How far a card goes: batch `fits` does, above `tight` none can; 0 where there is none.

    In between it depends on how blocks fall and on workspace. Below, single ones may be tight: not each is replayed.
    """

    fits: int
    tight: int

    @property
    def words(self) -> str:
        """As a sentence."""
        if not self.tight:
            return "No batch fits."
        if self.fits == self.tight:
            return f"Largest batch that fits: {self.fits:,}."
        sure = f"Batches up to about {self.fits:,} fit" if self.fits else "No batch surely fits"
        return f"{sure}; up to {self.tight:,} it depends on how blocks fall and what workspace they leave."


def with_room(step: StepTrace, card: Device | float, context_bytes: int = CONTEXT_BYTES) -> int:
    """The largest batch whose tensors, in blocks, and the context are no more than the card; 0 if there is none.

    Exact, and without a replay: above it nothing helps, up to it the allocator may still fail.

    Raises:
        CourseError: memory does not grow with the batch, so that there is no largest one.
    """
    left = int(card.memory_bytes if isinstance(card, Device) else card) - context_bytes
    bound = step.largest_batch(left)
    if not bound:
        return 0
    rounding = ROUND * len(step.at(bound).size)  # more than all blocks together are larger than their tensors
    return _bisect(
        lambda batch: step.at(batch).requests.least_bytes <= left, step.largest_batch(left - rounding), bound + 1
    )


def largest_batch(
    step: StepTrace, card: Device | float, context_bytes: int = CONTEXT_BYTES, seen: int | None = None
) -> Batches:
    """The largest batch that fits a card, and the largest that is at least tight.

    The second is exact. For the first the allocator is replayed about fifteen times: from the batch up to which it
    never gives anything back, upwards in PROBES strides to one that does not get through, then by bisection. What lies
    between two probes is not replayed; name in `seen` a batch whose verdict is shown beside, which is. Found once for
    each step and card.

    Raises:
        CourseError: memory does not grow with the batch, so that there is no largest one.
    """
    room = int(card.memory_bytes if isinstance(card, Device) else card)
    left, key = room - context_bytes, (room, context_bytes)

    def fits(batch: int) -> bool:
        return demand(step.at(batch), context_bytes).scratch.fit_in(left)

    if key not in step._largest:
        most = with_room(step, card, context_bytes)
        sure = _never_short(step, most, room, context_bytes)
        probes = [sure + math.ceil((most - sure) * i / PROBES) for i in range(1, PROBES + 1)] if most > sure else []
        first = next((i for i, batch in enumerate(probes) if not fits(batch)), None)
        low = sure if not first else probes[first - 1]
        step._largest[key] = most if first is None else _bisect(fits, low, probes[first]), most
    found = Batches(*step._largest[key])
    if seen is not None and seen <= found.fits and not fits(seen):
        found = Batches(_bisect(fits, 0, seen), found.tight)
        step._largest[key] = found.fits, found.tight
    return found


def _never_short(step: StepTrace, batch: int, room: int, context_bytes: int) -> int:
    """A batch, the largest or one not far below, with which the allocator never has to give anything back."""
    while batch > 0:
        asked = demand(step.at(batch), context_bytes)
        if asked.safe <= room:
            break
        batch = min(batch - 1, int(0.99 * batch * room / asked.safe))
    return batch


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """A number from `low` on after which `holds` fails, if it holds at `low` and not at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class CardFit:
    """How a step stands on one device.

    Attributes:
        device: the card.
        state: FITS, TIGHT or NO; CANNOT where the device does not compute in the precision of the step.
        verdict: what `fit` says of it, whatever its arithmetic.
        largest_batch: the largest that fits; 0 if not even one sample does, None where memory does not grow with it.
    """

    device: Device
    state: str
    verdict: Fit
    largest_batch: int | None


def on_cards(
    step: StepTrace, batch: int, devices: Iterable[Device], context_bytes: int = CONTEXT_BYTES, largest: bool = True
) -> list[CardFit]:
    """How a step stands on every device, in their order.

    Args:
        step: the step at every batch, traced for "cuda".
        batch: samples in the batch.
        devices: such as `course_utils.machine.hardware.devices()`.
        context_bytes: what the driver takes of each.
        largest: whether to find the largest batch of each too, which takes most of the time; None stands for it if not.

    Raises:
        CourseError: batch is not a whole number of 1 or more.
    """
    asked = demand(step.at(batch), context_bytes)
    found, verdicts = [], {asked.safe: asked.on(asked.safe)}  # with `safe` known, a larger card needs no replay
    for device in devices:
        room = device.memory_bytes
        if room not in verdicts:
            verdicts[room] = asked.on(room)
        verdict = replace(verdicts[room], card=device.name)
        state = CANNOT if step.precision == "bfloat16" and not device.bfloat16 else verdict.state
        most = _largest(step, device, context_bytes) if largest else None
        found.append(CardFit(device, state, verdict, most))
    return found


def _largest(step: StepTrace, device: Device, context_bytes: int) -> int | None:
    try:
        return largest_batch(step, device, context_bytes).fits
    except CourseError:  # memory does not grow with the batch, so that there is no largest one
        return None


def smallest(fits: Iterable[CardFit]) -> CardFit | None:
    """Of the cards that the step fits, the one with the least memory, of several the cheapest; None if none."""
    good = [fit for fit in fits if fit.state == FITS]
    return min(good, key=lambda fit: (fit.device.memory_bytes, fit.device.launch_usd or math.inf), default=None)


def cheapest(fits: Iterable[CardFit]) -> CardFit | None:
    """Of those that it fits and whose launch price is confirmed, the cheapest; None if there is none.

    Prices are of the year of the launch, not adjusted for inflation, and of the whole card.
    """
    good = [fit for fit in fits if fit.state == FITS and fit.device.launch_usd is not None]
    return min(good, key=lambda fit: (fit.device.launch_usd or math.inf, fit.device.memory_bytes), default=None)
