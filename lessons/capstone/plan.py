"""A plan for a batch that is too large for a card: the techniques of the course together, judged by trace and schedule.

A `Plan` names techniques with their parameters; `Problem.evaluate` says what it needs of the card, how long its step
takes, and what it fails at. The techniques compose where they happen: precision and recomputation change the traced
step, accumulation repeats its passes, offload schedules each pass. Nothing is added up from separate savings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from course_utils.machine import hardware
from course_utils.machine.context import CONTEXT_BYTES, known_context
from course_utils.machine.hardware import Device, Link
from course_utils.memory import Int64, StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import Demand, Fit, spare_bytes
from course_utils.techniques.offload import WINDOW, Schedule, Work, link_of, pytorch_step, simulate_work
from course_utils.techniques.offload.work import WORKSPACE_SHARE, convolution_maps
from course_utils.trace import training_step
from course_utils.units import CourseError, format_bytes, format_seconds, require_one_of, require_whole
from lessons.capstone.times import seconds_of
from lessons.shared.recompute import Chain, Segment, checkpointed, evenly

PRECISIONS = hardware.PRECISIONS
OFFLOADS = ("none", "conv", "all", "windowed")
ALGORITHMS = ("p", "m")
# What lessons 04 to 06 change: they save memory, and what is trained afterwards is another network.
OTHER_NETWORKS = {
    "stride": "a larger stride skips positions",
    "squeeze": "a 1×1 convolution in front replaces channels by fewer",
    "pool": "an earlier pool throws away positions",
}
ANOTHER_NETWORK, ANOTHER_BATCH = "another network", "another batch"
BATCH_NORM, NO_ARITHMETIC = "batch norm", "precision"
ROUNDING, TOLERANCE = "to the rounding of float32", "to the tolerance of 16 bits"
BATCH_NORMS = nn.modules.batchnorm._BatchNorm


@dataclass(frozen=True)
class Plan:
    """How a batch goes through a card. What is not said is not done.

    Attributes:
        batch: samples in each update.
        micro_batch: samples that go through the network at a time, a divisor of the batch; None for all at once.
        precision: "float32", or "float16"/"bfloat16" for mixed precision with float32 weights and loss scaling.
        offload: what moves to the host's memory between forward and backward pass: "none", "conv" (what convolutions
            read), "all" (all that the backward pass needs), or "windowed" ("all", with `window` copies in flight).
        window: tensors in flight of the offload policy "windowed".
        algorithm: of the convolutions: "p", the fastest, or "m", slower and without workspace.
        segments: what is computed again in the backward pass instead of kept: the number of pieces into which the
            network is cut evenly, of which all but the last keep their input alone, 1 to keep everything; or the
            segments themselves, as `lessons.shared.recompute` takes and finds them.
        changes: changes to the network itself, of OTHER_NETWORKS. They are no way to train this one: `evaluate` refuses
            them with the reason.
        every: of so many maps in a row that the offload policy would move, the middle one moves; 1 for all.

    Raises:
        CourseError: a parameter out of range, or one that would have no effect.
    """

    batch: int
    micro_batch: int | None = None
    precision: str = "float32"
    offload: str = "none"
    window: int = WINDOW
    algorithm: str = "p"
    segments: int | tuple[Segment, ...] = 1
    changes: tuple[str, ...] = ()
    every: int = 1

    def __post_init__(self) -> None:
        require_whole("batch", self.batch)
        require_whole("window", self.window)
        require_whole("every", self.every)
        if not isinstance(self.segments, tuple):
            require_whole("segments", self.segments)
        if (micro := self.micro_batch) is not None:
            require_whole("micro_batch", micro)
            if self.batch % micro:
                near = min((abs(n - micro), n) for n in range(1, self.batch + 1) if self.batch % n == 0)[1]
                raise CourseError(
                    f"micro_batch must divide the batch of {self.batch}, and {micro} does not: take {near}"
                )
        known_by = {"precision": PRECISIONS, "offload": OFFLOADS, "algorithm": ALGORITHMS}
        for what, known in known_by.items():
            if (text := getattr(self, what)) not in known:
                hint = "; it is a search: name the policy it finds" if text == "dyn" else ""
                raise CourseError(f"unknown {what} {text!r}: choose one of {', '.join(known)}{hint}")
        if self.window != WINDOW and self.offload != "windowed":
            raise CourseError(f'window belongs to offload="windowed", not to {self.offload!r}: leave it out')
        if self.every != 1 and self.offload == "none":
            raise CourseError('every belongs to an offload policy, and offload is "none": leave it out')
        if isinstance(self.changes, str):
            raise CourseError(f'changes must be a tuple of names: write ("{self.changes}",)')
        unknown = [name for name in self.changes if name not in OTHER_NETWORKS]
        if unknown:
            raise CourseError(f"unknown change {unknown[0]!r}: choose among {', '.join(OTHER_NETWORKS)}")

    @property
    def micro(self) -> int:
        """Samples that go through the network at a time."""
        return self.batch if self.micro_batch is None else self.micro_batch

    @property
    def parts(self) -> int:
        """Micro-batches in an update, 1 if all go at once."""
        return self.batch // self.micro

    @property
    def techniques(self) -> tuple[str, ...]:
        """What it does, in a few words each; empty for the plain step."""
        said = [f"{self.parts:,} × {self.micro:,}"] if self.parts > 1 else []
        said += [self.precision] if self.precision != "float32" else []
        if self.offload != "none":
            window = f" {self.window}" if self.offload == "windowed" else ""
            said.append(f"offload {self.offload}{window}" + (f", 1 map in {self.every}" if self.every > 1 else ""))
        if isinstance(self.segments, tuple):
            several = "s" if len(self.segments) > 1 else ""
            said += [f"{len(self.segments)} chosen segment{several}"] if self.segments else []
        elif self.segments > 1:
            said.append(f"{self.segments} segments")
        said += ["slow convolutions"] if self.algorithm == "m" else []
        return (*said, *self.changes)

    def __str__(self) -> str:
        return " + ".join(self.techniques) or "plain"


class Refused(CourseError):
    """A plan that does not train what was asked for, or that the card cannot run; `kind` says it in a word or two."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What a plan comes to on a card. Bytes are those of one GPU, seconds are modelled.

    Attributes:
        plan: the plan.
        device: the card.
        tensor_bytes: tensors at the peak, with workspace where it is counted.
        context_bytes: what the driver takes of the card.
        seconds: of one update: every micro-batch, every copy waited for, the optimizer.
        waiting_seconds: of these, what kernels wait for copies.
        plain_seconds: of the plain step of the same batch, on a card of the same speed where it fits.
        schedule: of its kernels and copies: of the first two micro-batches and the update where it has several.
        scratch_bytes: (K,) what each kernel of it may want beside what is counted: fast convolutions do.
    """

    plan: Plan
    device: Device
    tensor_bytes: int
    context_bytes: int
    seconds: float
    waiting_seconds: float
    plain_seconds: float
    schedule: Schedule
    scratch_bytes: Int64

    @property
    def needs_bytes(self) -> int:
        """What the card must have at least: tensors and context."""
        return self.tensor_bytes + self.context_bytes

    @property
    def spare_bytes(self) -> int:
        """Of the card's memory beyond what is needed; negative where that is too much."""
        return self.verdict.spare_bytes

    @cached_property
    def demand(self) -> Demand:
        """What PyTorch's allocator is asked for."""
        asked, kernels = self.schedule.requests, np.flatnonzero(self.scratch_bytes)
        wanting = asked.also(self.scratch_bytes[kernels], kernels) if len(kernels) else asked
        return Demand(asked, wanting, known_context(self.context_bytes))

    @cached_property
    def verdict(self) -> Fit:
        """How the plan stands on the card: a replay of the allocator, slower than all the rest."""
        return self.demand.on(self.device)

    @property
    def peak(self) -> str:
        """Layer and pass in which the most memory is needed."""
        return self.schedule.kernel_name(self.schedule.peak_kernel)

    @property
    def state(self) -> str:
        """FITS, TIGHT or NO."""
        return self.verdict.state

    @cached_property
    def feasible(self) -> bool:
        """Whether tensors and context fit; in the state TIGHT allocator or workspace may still be in the way."""
        return not self.demand.missing(self.device)

    @property
    def equal_to(self) -> str:
        """How exactly the update is the plain step's: ROUNDING or TOLERANCE."""
        return ROUNDING if self.plan.precision == "float32" else TOLERANCE

    @property
    def lost(self) -> float:
        """More time than the plain step would take, as a share of it; negative where a precision is faster."""
        return self.seconds / self.plain_seconds - 1

    def __repr__(self) -> str:
        return f"{self.why()} {format_seconds(self.seconds)} an update, {100 * self.lost:+.1f} %."

    def why(self) -> str:
        """Whether it fits and by how much, in a sentence; where it does not, what needs the memory."""
        return f"{self.plan}: {format_bytes(self.tensor_bytes)} at the peak, in {self.peak}. {self.verdict.sentence}"


class Problem:
    """A batch to be trained on one card: what plans are for. Every step is traced, and every plan judged, once.

    Args:
        network: which network; one of `course_utils.networks.NETWORKS`, or your own `Network`.
        batch: samples in each update.
        device: the card, or its name in the catalogue.
        link: between host and device, for offload; None takes the device's own.
        optimizer: "sgd", "momentum", "adam" or "adamw"; it stays as it is.
        context_bytes: what the driver takes of the card, as if it were known.
        workspace_share: scratch bytes of the fastest convolution algorithm, as a share of the maps it reads and writes,
            counted in the peak; 0 counts tensors alone there, as the other lessons do, and leaves scratch memory to the
            verdict, which assumes `course_utils.techniques.offload.work.WORKSPACE_SHARE`, that of 2016.

    Raises:
        CourseError: no such network, device or link, or a batch below 1.
    """

    def __init__(
        self,
        network: Network | str,
        batch: int,
        device: Device | str,
        link: Link | str | None = None,
        optimizer: str = "momentum",
        *,
        context_bytes: int = CONTEXT_BYTES,
        workspace_share: float = 0.0,
    ) -> None:
        if isinstance(network, str):
            require_one_of("network", network, NETWORKS)
        require_whole("batch", batch)
        self.network = NETWORKS[network] if isinstance(network, str) else network
        self.device = hardware.device(device) if isinstance(device, str) else device
        self.batch, self.link, self.optimizer = batch, link_of(self.device, link), optimizer
        self.context_bytes, self.workspace_share = context_bytes, workspace_share
        with torch.device("meta"):  # shapes without numbers
            self.module = self.network.build()
        self._steps: dict[tuple[str, tuple[Segment, ...], bool], StepTrace] = {}
        self._works: dict[tuple[str, tuple[Segment, ...], bool, int], tuple[Work, Int64]] = {}
        self._found: dict[Plan, Evaluation] = {}

    @cached_property
    def batch_norms(self) -> int:
        """Layers that normalise by the statistics of the micro-batch."""
        return sum(isinstance(module, BATCH_NORMS) and module.training for module in self.module.modules())

    def changed(self, **changes: Any) -> Problem:
        """The same problem with other arguments, such as another card; what has been traced serves both.

        Raises:
            CourseError: as `Problem`.
        """
        settings: dict[str, Any] = {
            "network": self.network, "batch": self.batch, "device": self.device, "link": self.link,
            "optimizer": self.optimizer, "context_bytes": self.context_bytes, "workspace_share": self.workspace_share,
        }  # fmt: skip
        other = Problem(**(settings | changes))
        if (other.network, other.optimizer) == (self.network, self.optimizer):
            other.module, other._steps = self.module, self._steps
            if "chain" in vars(self):  # not every network is one
                other.chain = self.chain
        return other

    @property
    def room_bytes(self) -> int:
        """What the card leaves beside the context."""
        return spare_bytes(self.device, 0, self.context_bytes)

    @cached_property
    def chain(self) -> Chain:
        """The network in float32, cut into segments in any way: where segments for a plan are found.

        Raises:
            CourseError: the network is no chain.
        """
        made = self.network
        found = Chain(self.module, made.input_shape, made.classes, made.name, optimizer=self.optimizer)
        for (precision, segments, several), step in self._steps.items():
            if precision == "float32" and not several:
                found._steps[segments] = step
        return found

    @cached_property
    def least_peak_segments(self) -> tuple[Segment, ...]:
        """The segments with which the whole batch at once has the lowest peak in float32.

        Raises:
            CourseError: the network is no chain.
        """
        return self.chain.least_peak(self.batch, self.device)

    def step(self, plan: Plan) -> StepTrace:
        """The traced step of a plan without its offload: of two micro-batches where it accumulates several."""
        segments = self._segments(plan)
        key = (plan.precision, segments, plan.parts > 1)
        if key == ("float32", segments, False) and "chain" in vars(self):  # traces the same
            return self.chain.step(segments)
        if key not in self._steps:
            module = checkpointed(self.module, segments) if segments else self.module
            made, several = self.network, 1 + (plan.parts > 1)
            options: dict[str, Any] = {"precision": plan.precision, "accumulate": several, "name": made.name}
            self._steps[key] = training_step(module, made.input_shape, made.classes, self.optimizer, **options)
        return self._steps[key]

    def _segments(self, plan: Plan) -> tuple[Segment, ...]:
        if isinstance(plan.segments, tuple):
            return plan.segments
        return evenly(self.module, plan.segments) if plan.segments > 1 else ()

    def schedule(self, plan: Plan) -> Schedule:
        """Kernels and copies of a plan's step: of its first two micro-batches and the update where it has several."""
        work, _ = self._work(plan)
        window = plan.window if plan.offload == "windowed" else WINDOW
        latency, rate = self.device.launch_seconds, self.link.bytes_per_s
        settings: dict[str, Any] = {"latency": latency, "window": window, "every": plan.every}
        return simulate_work(work, plan.offload, plan.algorithm, rate, **settings)

    def _work(self, plan: Plan) -> tuple[Work, Int64]:
        """The kernels of a plan's step, and the bytes that each convolution reads and writes."""
        key = (plan.precision, self._segments(plan), plan.parts > 1, plan.micro)
        if key not in self._works:
            ledger = self.step(plan).at(plan.micro)
            work, maps = pytorch_step(ledger, self.device, plan.precision), convolution_maps(ledger.tape, ledger.size)
            counted = (self.workspace_share * maps).astype(np.int64)
            self._works[key] = replace(work, workspace=counted), maps
        return self._works[key]

    def evaluate(self, plan: Plan) -> Evaluation:
        """What a plan comes to: memory by trace and schedule, modelled time.

        Raises:
            Refused: the plan trains something else, or asks for arithmetic that the card does not have.
            CourseError: the network cannot be cut into so many segments.
        """
        if plan not in self._found:
            self._check(plan)
            schedule = self.schedule(plan)
            seconds, waiting = seconds_of(schedule, plan.parts)
            wanted = 0.0 if self.workspace_share or plan.algorithm == "m" else WORKSPACE_SHARE
            self._found[plan] = Evaluation(
                plan=plan,
                device=self.device,
                tensor_bytes=schedule.peak_bytes,
                context_bytes=self.context_bytes,
                seconds=seconds,
                waiting_seconds=waiting,
                plain_seconds=seconds if plan == Plan(self.batch) else self.evaluate(Plan(self.batch)).seconds,
                schedule=schedule,
                scratch_bytes=(wanted * self._work(plan)[1]).astype(np.int64),
            )
        return self._found[plan]

    def _check(self, plan: Plan) -> None:
        if plan.changes:
            name = plan.changes[0]
            raise Refused(
                ANOTHER_NETWORK,
                f"{name!r} is not training-equivalent: {OTHER_NETWORKS[name]}, so another network is trained, with "
                "other outputs: leave changes out",
            )
        if plan.batch != self.batch:
            raise Refused(
                ANOTHER_BATCH,
                f"an update from {plan.batch} samples is not the update from {self.batch}: keep batch={self.batch} and "
                f"let micro_batch={plan.micro} go through at a time",
            )
        if plan.parts > 1 and self.batch_norms:
            raise Refused(
                BATCH_NORM,
                f"{self.network.name} has {self.batch_norms} batch norm{'s' * (self.batch_norms > 1)}, which would "
                f"normalise {plan.micro} samples at a time, not {plan.batch}: another update, so leave micro_batch out",
            )
        if plan.precision == "bfloat16" and not self.device.bfloat16:
            why = f"the {self.device.name} does not compute in bfloat16: choose float16 or float32"
            raise Refused(NO_ARITHMETIC, why)
