"""Does it fit: the one place where a training step is compared with a card.

`fit` says *fits*, *tight* or *no*, and which of four decided:

- *no*: the tensors at the peak, each rounded up to 512 bytes as its block is, are more than the card (**tensors**), or
  more than the least context that is assumed leaves of it (**context**). No allocator helps; this bound is exact.
- *fits*: PyTorch's allocator, replayed on a card of this very size, gets through beside the most context that was seen
  (`course_utils.machine.context`), with the scratch memory that fast convolutions may want and REPLAY_PERCENT to spare.
  Where it runs out it gives unused segments back and tries again before it fails (`course_utils.allocator`).
- *tight*: neither. What decided is what it would fit without: it gets through without scratch memory (**workspace**;
  cuDNN then takes slower convolutions, aten/native/cudnn/Conv_v8.cpp catches the out-of-memory error and tries the
  next), beside the least context (**context**), or not even then: its gaps are in the way (**allocator**).

Three things cannot be computed: the context, for which bounds were reported; how blocks fall after what a program did
before its first step, for which a replay has an error that was measured; and the scratch memory, WORKSPACE_SHARE of the
maps that a convolution reads and writes: a guess, the residual of one rounded figure of 2016. `python -m benchmarks
gpu_ladder` says how often the verdict errs.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np

from course_utils.allocator import LARGE_SEGMENT, ROUND, Requests
from course_utils.machine.context import Context, context, known_context
from course_utils.machine.hardware import Device
from course_utils.memory import Ledger, StepTrace
from course_utils.techniques.offload.work import WORKSPACE_SHARE, convolution_maps
from course_utils.units import GIB, format_bytes

# A step whose tensors are at most this share of what the context leaves, but for a few segments, is taken to fit
# without a replay: in the networks of the course the allocator reserves at most 1.51 times the peak, if it can.
CERTAIN, SEGMENTS = 5 / 8, 4 * LARGE_SEGMENT
# By how much a replay errs in the mean: of 20 steps on a T4 what they reserved was published (`python -m benchmarks
# gpu_peaks`).
REPLAY_PERCENT = 2
LOOKS = 64  # batches at most that are looked at between that one and the one above which none can fit

FITS, TIGHT, NO, CANNOT = "fits", "tight", "no", "cannot compute in it"
TENSORS, CONTEXT, ALLOCATOR, WORKSPACE = "tensors", "context", "allocator", "workspace"


def _bytes_of(card: Device | float) -> int:
    return int(card.memory_bytes if isinstance(card, Device) else card)


def _surely(room: float) -> int:
    """What a replay must get through in for a real allocator to get through in so much room."""
    return int(room) * 100 // (100 + REPLAY_PERCENT)


def _context_of(card: Device | float, taken: Context | None) -> Context:
    return taken if taken is not None else context(card if isinstance(card, Device) else None)


def room_for_tensors(card: Device | float, taken: Context | None = None) -> int:
    """Bytes that a card leaves for what is to *fit*, beside the most context that was seen: the line in a figure."""
    return _bytes_of(card) - _context_of(card, taken).most


def spare_bytes(card: Device | float, tensor_bytes: int, context_bytes: int | None = None) -> int:
    """What tensors and context leave of a card, negative where they are too much: all there is to say without a replay.

    That of a framework of 2016, which laid out its memory itself, or of one card among many. Without `context_bytes`
    the most that was seen is taken.
    """
    taken = None if context_bytes is None else known_context(context_bytes)
    return room_for_tensors(card, taken) - tensor_bytes


@dataclass(frozen=True)
class Fit:
    """The verdict on a step and a card. Bytes are those of one die."""

    state: str  # FITS, TIGHT or NO
    decided: str  # what stands in the way: TENSORS, CONTEXT, ALLOCATOR or WORKSPACE; empty where it fits
    card: str  # what the card is called
    card_bytes: int  # what it holds
    tensor_bytes: int  # in use at the peak, in the allocator's blocks
    context: Context  # what the driver and the libraries take of it
    beside: int  # bytes of context that the verdict speaks of: the most where it fits or falls short only of that
    workspace_bytes: int  # scratch memory that a convolution may want at the moment when that and the tensors are most
    tensors_then: int  # bytes in use at that moment

    @property
    def context_bytes(self) -> int:
        """The most context that was seen: what *fits* allows for."""
        return self.context.most

    @property
    def limit_bytes(self) -> int:
        """What the card has for tensors that are to fit, 0 if nothing: the line in a figure."""
        return max(0, self.card_bytes - self.context.most)

    @property
    def spare_bytes(self) -> int:
        """Of the card beyond tensors and the context the verdict speaks of; negative where they are too much."""
        return self.card_bytes - self.beside - self.tensor_bytes

    def holds(self, tensor_bytes: int) -> bool:
        """Whether the card has room for so many bytes beside the least context."""
        return self.card_bytes - self.context.least >= tensor_bytes

    @property
    def words(self) -> str:
        """The verdict as the end of a sentence that begins with the step: "fits the 12 GiB card and leaves …"."""
        spare, card = format_bytes(abs(self.spare_bytes)), f"the {self.card}"
        if self.state == FITS:
            return f"fits {card} and leaves {spare}"
        if self.decided == TENSORS:
            return f"is {format_bytes(self.tensor_bytes - self.card_bytes)} more than {card} holds"
        if self.state == NO:
            return f"is {spare} more than {card} leaves beside the context"
        return f"is tight on {card}: the {self.decided} decides"

    @property
    def sentence(self) -> str:
        """The verdict, what decided it, and what that means."""
        spare, taken = format_bytes(abs(self.spare_bytes)), f"{format_bytes(self.beside)} of context"
        beside = f"the tensors leave {spare} beside {taken}"
        if self.state == FITS:
            return f"It fits: {beside}, and the allocator finds room for everything."
        if self.decided == TENSORS:
            over = format_bytes(self.tensor_bytes - self.card_bytes)
            return f"It does not fit: the tensors alone are {over} too much."
        if self.state == NO:
            return f"It does not fit: the card would hold the tensors, but {taken} make that {spare} too much."
        if self.decided == CONTEXT:
            return (
                f"It is tight, the context decides: it fits beside {taken}, just under the least that was "
                f"reported, and not beside {format_bytes(self.context.most)}."
            )
        if self.decided == ALLOCATOR:
            return (
                f"It is tight, the allocator decides: {beside}, but its gaps may take that: a replay of it needs "
                f"more, or has less to spare than the {REPLAY_PERCENT} % by which replays err."
            )
        left = self.card_bytes - self.beside - self.tensors_then
        lacks = "in pieces that may be too small for" if self.workspace_bytes <= left else "less than"
        return (
            f"It is tight, the workspace decides: beside {taken} and the tensors of that moment there are "
            f"{format_bytes(left)}, {lacks} the {format_bytes(self.workspace_bytes)} of scratch memory that we guess a "
            "fast convolution wants; without it a slower one runs."
        )


@dataclass(frozen=True)
class Demand:
    """What a step asks of a card."""

    requests: Requests  # of the allocator, for the tensors
    scratch: Requests  # the same, and the scratch memory that convolutions may want
    context: Context | None = None  # what the driver and the libraries take; None for what was seen on the card

    @property
    def tensors(self) -> int:
        """In use at the peak, in blocks."""
        return self.requests.least_bytes

    @cached_property
    def fullest(self) -> tuple[int, int]:
        """Scratch memory and tensors, in bytes, at the moment when they are most together, of those with scratch."""
        wanted = self.scratch.alive - self.requests.alive
        if not wanted.any():
            return 0, self.tensors
        moment = int(np.where(wanted > 0, self.scratch.alive, 0).argmax())
        return int(wanted[moment]), int(self.requests.alive[moment])

    @property
    def workspace(self) -> int:
        """The scratch memory of that moment; 0 where no convolution wants any."""
        return self.fullest[0]

    @property
    def least(self) -> int:
        """Bytes of a card below which no allocator makes it fit."""
        return self.tensors + (self.context or context()).least

    def on(self, card: Device | float, name: str | None = None) -> Fit:
        """The verdict on a card, or on so many bytes."""
        held, taken = _bytes_of(card), _context_of(card, self.context)
        name = name or (card.name if isinstance(card, Device) else card_name(held))
        state, decided, beside = self._judge(held, taken)
        return Fit(state, decided, name, held, self.tensors, taken, beside, *self.fullest)

    def missing(self, card: Device | float) -> str:
        """What there is no room for, whatever the allocator does: TENSORS, CONTEXT, or nothing."""
        held = _bytes_of(card)
        if self.least <= held:
            return ""
        return TENSORS if self.tensors > held else CONTEXT

    def _judge(self, held: int, taken: Context) -> tuple[str, str, int]:
        """State, what decided, and the context beside which that is so."""
        if missing := self.missing(held):
            return NO, missing, taken.least
        for beside in (taken.most, taken.least):
            room = _surely(held - beside)
            if self.scratch.fit_in(room):
                return (FITS, "", beside) if beside == taken.most else (TIGHT, CONTEXT, beside)
            if self.scratch is not self.requests and self.requests.fit_in(room):
                return TIGHT, WORKSPACE, beside
        return TIGHT, ALLOCATOR, taken.least


def card_name(card_bytes: float) -> str:
    """What a card is called that is known by its bytes alone: "12 GiB card"."""
    return f"{card_bytes / GIB:g} GiB card" if card_bytes % (GIB / 4) == 0 else f"{format_bytes(card_bytes)} limit"


def demand(ledger: Ledger, taken: Context | None = None) -> Demand:
    """What a step at one batch asks of a card."""
    tensors = ledger.requests
    wanted = (WORKSPACE_SHARE * convolution_maps(ledger.tape, ledger.size)).astype(np.int64)
    events = np.flatnonzero(wanted)
    return Demand(tensors, tensors.also(wanted[events], events) if len(events) else tensors, taken)


def fit(ledger: Ledger, card: Device | float, name: str | None = None, taken: Context | None = None) -> Fit:
    """Whether a step fits a card, and what decided it: see the top of `course_utils.techniques.capacity`.

    Args:
        ledger: the step at one batch, traced for "cuda".
        card: a device of the catalogue (of a card with two dies a program uses one), or bytes.
        name: what the card is called; its own name, or "12 GiB card", if not given.
        taken: what the driver and the libraries take of it; what was seen on such cards if not given.
    """
    return demand(ledger, taken).on(card, name)


@dataclass(frozen=True)
class Batches:
    """How far a card goes, of the batches looked at: every one where `stride` is 1, else those it divides."""

    fits: int  # all that were looked at up to this one fit; 0 where there is none
    some: int  # the largest of those that fit
    tight: int  # the largest whose tensors and the least context are no more than the card; exact, 0 for none
    stride: int = 1  # how far those looked at are apart

    @property
    def words(self) -> str:
        """As a sentence."""
        if not self.tight:
            return "No batch fits."
        every = {2: "2nd", 32: "32nd"}.get(self.stride, f"{self.stride:,}th")  # of the powers of two, from 2
        looked = f" (every {every} was tried)" if self.stride > 1 else ""
        if self.fits == self.some:
            head = f"Largest batch that fits: {self.fits:,}{looked}" if self.fits else "No batch surely fits"
        else:
            head = f"All batches up to {self.fits:,} fit" if self.fits else "Not all batches fit"
            head += f", some up to {self.some:,}{looked}"
        if self.some == self.tight:
            return f"{head}."
        return f"{head}; up to {self.tight:,} it depends on the context, on how blocks fall and on workspace."


def with_room(step: StepTrace, card: Device | float, context_bytes: int | None = None) -> int:
    """The largest batch whose tensors, in blocks, and the context are no more than the card; 0 if there is none.

    Exact, and without a replay: above it nothing helps, up to it the allocator may still fail. Without `context_bytes`
    the least that is assumed is taken. Raises CourseError where memory does not grow with the batch.
    """
    left = _bytes_of(card) - (_context_of(card, None).least if context_bytes is None else context_bytes)
    bound = step.largest_batch(left)
    if not bound:
        return 0
    rounding = ROUND * len(step.at(bound).size)  # more than all blocks together are larger than their tensors
    least = step.largest_batch(left - rounding)
    looked = range(least + 1, bound + 1)
    return least + bisect_left(looked, True, key=lambda batch: step.at(batch).requests.least_bytes > left)


def largest_batch(step: StepTrace, card: Device | float, taken: Context | None = None) -> Batches:
    """The largest batch up to which all fit a card, the largest that fits at all, and the largest that is not *no*.

    A larger batch may fit where a smaller one does not: how blocks fall decides. So batches are looked at one by one,
    from the first whose tensors take more than CERTAIN of what the context leaves to the last that they leave room for:
    all of them where there are at most LOOKS, else those that the smallest sufficient power of two divides. The answer
    depends on the step, the card and the context alone; it is found once for each. Raises CourseError where memory
    does not grow with the batch.
    """
    held, taken = _bytes_of(card), _context_of(card, taken)
    key = held, taken.least, taken.most
    if key not in step._largest:
        room = _surely(held - taken.most)
        tight, top = with_room(step, held, taken.least), with_room(step, room, 0)
        sure = with_room(step, CERTAIN * (room - SEGMENTS), 0)
        stride = 2 ** max(0, math.ceil(math.log2(max(1, (top - sure) / LOOKS))))
        looked = range(sure + stride - sure % stride, top + 1, stride)

        def fits(batch: int) -> bool:
            return demand(step.at(batch)).scratch.fit_in(room)

        every = max([sure, *takewhile(fits, looked)])
        some = next((batch for batch in reversed(looked) if batch > every and fits(batch)), every)
        step._largest[key] = every, some, tight, stride
    return Batches(*step._largest[key])


@dataclass(frozen=True)
class CardFit:
    """How a step stands on one device."""

    device: Device
    state: str  # FITS, TIGHT or NO; CANNOT where the device does not compute in the precision of the step
    verdict: Fit  # what `fit` says of it, whatever its arithmetic
    largest_batch: int | None  # all up to it fit; 0 if not even one sample does, None where memory does not grow


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
