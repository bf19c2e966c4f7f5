"""`Chain`: one network, and the training step of every way to recompute it.

Each way is traced as it would run, through `torch.utils.checkpoint` itself; `cuts` only proposes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.trace import training_step
from course_utils.units import CourseError, format_bytes
from lessons.shared.recompute.cuts import Costs
from lessons.shared.recompute.real import Segment, checkpointed, evenly, parts, works_in_place

TRIES = 8  # proposals that are traced before `Chain.cheapest` gives up


def kept_and_again(ledger: Ledger) -> tuple[int, int]:
    """Bytes of feature maps at the peak: those kept since the forward pass, and those computed a second time."""
    tape, peak = ledger.tape, ledger.peak_event
    maps = (tape.role == ROLE["feature maps"]) & (tape.birth <= peak) & (tape.death > peak)
    again = maps & tape.recomputed[np.minimum(tape.birth, tape.events - 1)]
    return int(ledger.size[maps & ~again].sum()), int(ledger.size[again].sum())


class Chain:
    """A network that is a chain, and its training step with any segments recomputed.

    Args:
        module: an nn.Sequential of layers and blocks, on any device, "meta" included.
        input_shape: shape of one sample.
        classes: columns of the output, as `training_step` takes them.
        name: what pictures call it.
        settings: what else `training_step` takes: optimizer, precision, target …

    Raises:
        CourseError: the module is no nn.Sequential.
    """

    def __init__(
        self,
        module: nn.Module,
        input_shape: tuple[int, ...],
        classes: int | None,
        name: str | None = None,
        **settings: Any,
    ) -> None:
        self.parts = parts(module)
        self.module = module
        self.name = name or type(module).__name__
        self._arguments = (input_shape, classes)
        self._settings = settings
        self._steps: dict[tuple[Segment, ...], StepTrace] = {}
        self._costs: dict[tuple[int, str], Costs] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parts' names, in order: segment (0, 2) is the first two."""
        return tuple(self.parts)

    def step(self, segments: Iterable[Segment] = ()) -> StepTrace:
        """The step with these segments recomputed, traced at most once; () is the network as it is.

        Raises:
            CourseError: as `checkpointed`.
        """
        key = tuple(sorted(segments))
        if key not in self._steps:
            module = checkpointed(self.module, key) if key else self.module
            self._steps[key] = training_step(module, *self._arguments, name=self.name, **self._settings)
        return self._steps[key]

    def evenly(self, count: int) -> tuple[Segment, ...]:
        """The chain cut into `count` segments of as many parts each, the last of which is kept.

        Raises:
            CourseError: as `lessons.shared.recompute.evenly`.
        """
        return evenly(self.module, count)

    def least_peak(self, batch: int, device: Device | str = "P100") -> tuple[Segment, ...]:
        """The segments with the lowest peak, of these those with the least recomputation; no part runs more than twice.

        Found by dynamic programming over a model of the step (`lessons.shared.recompute.cuts`), which is exact
        for a chain of single layers; where parts are blocks, the lowest bound.
        """
        costs = self._costs_of(batch, device)
        return costs.cheapest(costs.least_peak()) or ()

    def cheapest(self, batch: int, limit_bytes: float, device: Device | str = "P100") -> tuple[Segment, ...]:
        """The segments that take the least time of those whose peak is at most `limit_bytes`; () if none is needed.

        The proposal is traced; where the traced peak is above the limit, the next is asked to stay below it.

        Raises:
            CourseError: nothing that was found fits.
        """
        costs = self._costs_of(batch, device)
        asked, lowest = float(limit_bytes), float("inf")
        for attempt in range(TRIES):
            segments = costs.cheapest(asked)
            if segments is None:
                break
            peak = self.step(segments).at(batch).peak_bytes
            if peak <= limit_bytes:
                return segments
            lowest = min(lowest, peak)
            asked -= 2**attempt * max(peak - limit_bytes, 1)
        found = self.least_peak(batch, device)
        lowest = min(lowest, self.step(found).at(batch).peak_bytes)
        if lowest <= limit_bytes:
            return found
        raise CourseError(
            f"{self.name}, batch {batch:,}: with recomputation it needs {format_bytes(lowest)}, more than "
            f"{format_bytes(limit_bytes)}: take a smaller batch"
        )

    def _costs_of(self, batch: int, device: Device | str) -> Costs:
        key = (batch, device if isinstance(device, str) else device.name)
        if key not in self._costs:
            ledger: Ledger = self.step().at(batch)
            begins = [not works_in_place(part) for part in self.parts.values()]
            self._costs[key] = Costs.of(ledger, self.names, begins, predict_step(ledger, device).seconds)
        return self._costs[key]
