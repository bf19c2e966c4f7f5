"""A wanted batch sent through a card in micro-batches: the peak and the predicted time of every way to cut it.

Two traces are enough, of a plain step and of one that accumulates two micro-batches: from the second one on, every
micro-batch is like the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import nn

from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import PHASES, Ledger, StepTrace
from course_utils.techniques.capacity import FITS, Fit, demand, fit
from course_utils.trace import training_step
from course_utils.units import CourseError

SMALLEST = 2  # samples in a micro-batch: with one, batch norm has no statistics to train on


@dataclass(frozen=True)
class Cut:
    """One way to cut a wanted batch.

    Attributes:
        micro: samples in a micro-batch.
        parts: micro-batches, 1 if the whole batch goes through at once.
        peak_bytes: of the step.
        seconds: predicted for the step, all micro-batches and one update.
    """

    micro: int
    parts: int
    peak_bytes: int
    seconds: float

    @property
    def wanted(self) -> int:
        """Samples in the batch."""
        return self.micro * self.parts

    @property
    def seconds_per_sample(self) -> float:
        """Predicted seconds for each sample of the batch."""
        return self.seconds / self.wanted


@dataclass(frozen=True)
class Accumulation:
    """The step of one network plain, and with two micro-batches accumulated; made by `accumulation`."""

    plain: StepTrace
    double: StepTrace
    _seconds: dict[tuple[int, bool, Device], tuple[float, float]] = field(default_factory=dict, repr=False)
    _fits: dict[tuple[int, bool, Device], Fit] = field(default_factory=dict, repr=False)
    _exceeds: dict[tuple[int, bool, Device], bool] = field(default_factory=dict, repr=False)

    def ledger(self, micro: int, parts: int) -> Ledger:
        """The step with micro-batches of this size: plain, or the first two and the update, which have the peak of all.

        Raises:
            CourseError: fewer than one sample or part.
        """
        if parts < 1:
            raise CourseError(f"a batch has one part or more, got {parts!r}")
        return (self.plain if parts == 1 else self.double).at(micro)

    def cut(self, micro: int, parts: int, device: Device) -> Cut:
        """Peak and predicted time of so many micro-batches of this size."""
        ledger = self.ledger(micro, parts)
        key = (micro, parts > 1, device)
        if key not in self._seconds:
            self._seconds[key] = _times(ledger, device)
        total, last_pass = self._seconds[key]
        return Cut(micro, parts, ledger.peak_bytes, total + max(0, parts - 2) * last_pass)

    def fit(self, cut: Cut, device: Device) -> Fit:
        """Whether a cut fits a card."""
        key = (cut.micro, cut.parts > 1, device)
        if key not in self._fits:
            self._fits[key] = fit(self.ledger(cut.micro, cut.parts), device)
        return self._fits[key]

    def exceeds(self, cut: Cut, device: Device) -> bool:
        """Whether a cut is more than a card holds, whatever the allocator does; quicker than `fit`, which says NO."""
        key = (cut.micro, cut.parts > 1, device)
        if key not in self._exceeds:
            self._exceeds[key] = bool(demand(self.ledger(cut.micro, cut.parts)).missing(device))
        return self._exceeds[key]

    def largest_that_fits(self, cuts: Iterable[Cut], device: Device) -> Cut | None:
        """Of several cuts the one with the largest micro-batch that fits a card; None if none does."""
        largest_first = sorted(cuts, key=lambda cut: -cut.micro)
        return next((cut for cut in largest_first if self.fit(cut, device).state == FITS), None)

    def cuts(self, wanted: int, device: Device) -> list[Cut]:
        """Every way to cut the batch into equal micro-batches of SMALLEST samples or more, smallest first.

        Raises:
            CourseError: the wanted batch is below SMALLEST.
        """
        return [self.cut(micro, wanted // micro, device) for micro in micro_batches(wanted)]

    def extra_bytes(self, micro: int) -> int:
        """What accumulation adds to a micro-batch's peak: the gradients of those before, alive while it runs."""
        return self.double.at(micro).peak_bytes - self.plain.at(micro).peak_bytes


def micro_batches(wanted: int) -> list[int]:
    """The sizes into which a batch can be cut evenly, from SMALLEST samples to the whole.

    Raises:
        CourseError: the wanted batch is below SMALLEST.
    """
    if wanted < SMALLEST:
        raise CourseError(f"the wanted batch must be {SMALLEST} or more, got {wanted!r}")
    return [micro for micro in range(SMALLEST, wanted + 1) if wanted % micro == 0]


def accumulation(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int | None = None,
    optimizer: str = "momentum",
    name: str | None = None,
) -> Accumulation:
    """Trace a network's plain step and its accumulated one, in float32 with CUDA's kernels.

    Args:
        module: any nn.Module that takes one tensor.
        input_shape: shape of one sample.
        classes: columns the output must have; None does not check.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        name: what tables and pictures call the network.

    Raises:
        TraceError: the step cannot be traced.
    """
    plain, double = (
        training_step(module, input_shape, classes, optimizer, accumulate=parts, name=name) for parts in (1, 2)
    )
    return Accumulation(plain, double)


def _times(ledger: Ledger, device: Device) -> tuple[float, float]:
    """(predicted seconds of the step, seconds of its last forward and backward pass)."""
    time = predict_step(ledger, device)
    passes = ledger.phases != PHASES[-1]
    passes[: ledger.tape.last_pass] = False
    return time.total_seconds, float(time.seconds[passes].sum())
