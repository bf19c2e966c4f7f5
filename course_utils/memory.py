"""What a traced training step says about memory: peak, timeline, per layer, per role, the 2016 accounting.

Pure NumPy over the arrays that `course_utils.trace` records, pandas only for tables and only when one is asked for, so
that a step can be measured where pandas is not installed; must never import torch, matplotlib or ipywidgets. A
`StepTrace` knows the step at every batch size; `StepTrace.at(batch)` is a `Ledger`, the same step at one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from course_utils.allocator import Requests
from course_utils.units import CourseError, require_whole

if TYPE_CHECKING:
    import pandas as pd

Int64 = npt.NDArray[np.int64]

# The order in which pictures stack them, bottom to top: first what stays, then what comes and goes.
ROLES = (
    "parameters",
    "optimizer state",
    "weight gradients",
    "input",
    "feature maps",
    "gradient maps",
    "workspace",
    "other",
)
ROLE = {name: code for code, name in enumerate(ROLES)}
PHASES = ("forward", "backward", "update")

# Operators whose result 2016's frameworks wrote over their input: network-wide accounting counts no map for them.
IN_PLACE_2016 = frozenset(
    {
        "relu", "relu_", "threshold", "sigmoid", "tanh", "hardtanh", "leaky_relu", "elu", "gelu", "silu",
        "mul", "native_dropout", "empty_like", "bernoulli_", "clone", "_to_copy",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Tape:
    """One training step as arrays: S storages that are born and die, E events (operators that allocate or write).

    A storage's size is `fixed + per_sample * batch` bytes. It is alive in the events `birth <= e < death`, where "in"
    an event means after its operator has run. Event 0 is the moment before the first operator, the last is `zero_grad`.
    """

    fixed: Int64  # (S,) bytes
    per_sample: Int64  # (S,) bytes for every sample of the batch
    role: Int64  # (S,) index into ROLES
    layer: Int64  # (S,) index into layer_names
    birth: Int64  # (S,) first event in which it is alive
    death: Int64  # (S,) first event in which it no longer is
    is_map: npt.NDArray[np.bool_]  # (S,) floating-point result of an operator, as opposed to a mask or an index
    event_ops: tuple[str, ...]  # (E,) operator names
    event_phase: Int64  # (E,) index into PHASES
    event_layer: Int64  # (E,) index into layer_names
    event_traffic: Int64  # (E, 2): bytes read and written, fixed and per sample
    recomputed: npt.NDArray[np.bool_]  # (E,) in the backward pass, computes what the forward pass computed already
    layer_names: tuple[str, ...]
    layer_shapes: dict[str, tuple[tuple[int, int], ...]]  # layer -> output dimensions, each (fixed, per sample)
    layer_parameters: dict[str, int]  # layer -> number of parameters it owns
    count_flops: Callable[[], Int64]  # counts `event_flops`; slower than the trace itself, so only when asked
    # (U, 3): event, storage, 1 if written and 0 if read, in the order of events; of the forward and backward pass only
    uses: Int64 = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))

    @property
    def events(self) -> int:
        """Number of events."""
        return len(self.event_ops)

    @cached_property
    def event_flops(self) -> Int64:
        """Floating-point operations of each event, (E, 2): fixed and per sample; a multiply-add counts as two."""
        return self.count_flops()

    @cached_property
    def coefficients(self) -> tuple[Int64, Int64]:
        """Bytes alive after each event by role, as two (E, roles) arrays: fixed, and per sample."""
        alive = []
        for size in (self.fixed, self.per_sample):
            change = np.zeros((self.events + 1, len(ROLES)), dtype=np.int64)
            np.add.at(change, (self.birth, self.role), size)
            np.subtract.at(change, (self.death, self.role), size)
            alive.append(np.cumsum(change, axis=0)[:-1])
        return alive[0], alive[1]

    @cached_property
    def totals(self) -> tuple[Int64, Int64]:
        """Bytes alive after each event, all roles, as two (E,) arrays: fixed, and per sample."""
        fixed, per_sample = self.coefficients
        return fixed.sum(axis=1), per_sample.sum(axis=1)

    @cached_property
    def last_pass(self) -> int:
        """The event that begins the last forward pass: 0 unless several batches are accumulated in a step."""
        forward = self.event_phase == PHASES.index("forward")
        return int(np.flatnonzero(forward & ~np.concatenate([[False], forward[:-1]]))[-1])

    @cached_property
    def convolutions(self) -> npt.NDArray[np.bool_]:
        """(E,) True for the events in which a convolution, or its backward, runs and may ask for workspace."""
        return np.array([op.startswith(("convolution", "cudnn_convolution")) for op in self.event_ops])


@dataclass(frozen=True)
class StepTrace:
    """One training step at every batch size, as `course_utils.trace.training_step` returns it."""

    name: str  # what the network is called in tables and pictures
    tape: Tape | None  # the step with sizes affine in the batch, for every batch from 2 on; None where they are not
    # Traces the step anew at one batch (tens of milliseconds); used for batch 1, where tensors with a dimension of one
    # may be laid out differently, and for networks that are not affine.
    trace_at: Callable[[int], Tape]
    why: str = ""  # the reason, of a network that is not affine
    settings: dict[str, object] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()  # of kernels that the trace cannot know and of a step that it is not told
    sizes: dict[str, int] = field(default_factory=dict)  # that shapes of the input name, such as {"sequence": 1024}
    # Traces the step anew with other sizes.
    resized: Callable[[dict[str, int]], StepTrace] | None = field(default=None, repr=False, compare=False)
    _traced: dict[int, Tape] = field(default_factory=dict, repr=False, compare=False)
    _largest: dict[tuple[int, ...], tuple[int, int, int, int]] = field(default_factory=dict, repr=False, compare=False)
    _resized: dict[tuple[tuple[str, int], ...], StepTrace] = field(default_factory=dict, repr=False, compare=False)

    @property
    def precision(self) -> str:
        """Of matrix products and convolutions: "float32", or the half precision the step was traced with."""
        return str(self.settings.get("precision", "float32"))

    @property
    def affine(self) -> bool:
        """Whether two traces stand for every batch; if not, each is traced by itself and `why` says what broke."""
        return self.tape is not None

    def at(self, batch: int, **sizes: int) -> Ledger:
        """The step at one batch size, and with other `sizes`, such as sequence=2048, for which it is traced anew once.

        Raises CourseError where batch is not a whole number of 1 or more, or no shape names a size.
        """
        require_whole("batch", batch)
        if any(self.sizes.get(name) != size for name, size in sizes.items()):
            if self.resized is None:
                raise CourseError(f"{self.name} was traced at one size of its input")
            key = tuple(sorted(sizes.items()))
            if key not in self._resized:
                self._resized[key] = self.resized(sizes)
            return self._resized[key].at(batch)
        batch, tape = int(batch), self.tape if batch > 1 else None
        if tape is None and batch not in self._traced:
            self._traced[batch] = self.trace_at(batch)
        return Ledger(self.name, tape or self._traced[batch], batch, self.precision)

    def largest_batch(self, limit_bytes: float) -> int:
        """The largest batch whose tensors are at most `limit_bytes` at the peak; 0 if not even one sample's are.

        Of tensors alone: how far a card goes is for `course_utils.techniques.capacity.largest_batch` to say.

        Exact: the peak is the largest of E straight lines in the batch, so the answer is the smallest of E crossings.
        Networks that are not affine are searched by bisection, which takes the peak to grow with the batch. Raises
        CourseError where memory does not grow with the batch, so that there is no largest one.
        """
        if self.tape is None:
            return self._search(limit_bytes)
        fixed, per_sample = self.tape.totals
        grows = per_sample > 0
        if not np.any(grows):
            raise CourseError(f"{self.name}: memory does not grow with the batch, so every batch fits or none does")
        batch = 0 if np.any(fixed > limit_bytes) else np.min((int(limit_bytes) - fixed[grows]) // per_sample[grows])
        return int(batch) if batch > 1 else int(self.at(1).peak_bytes <= limit_bytes)

    def _search(self, limit_bytes: float) -> int:
        def fits(batch: int) -> bool:
            return self.at(batch).peak_bytes <= limit_bytes

        if not fits(1):
            return 0
        low, high = 1, 2
        while fits(high):
            low, high = high, 2 * high
            if high > 2**24:
                raise CourseError(f"{self.name}: memory hardly grows with the batch; {low:,} samples still fit")
        return low + bisect_left(range(low + 1, high), True, key=lambda batch: not fits(batch))


@dataclass(frozen=True)
class Ledger:
    """Every byte of one training step at one batch size. All figures are bytes of tensors, exact, unless said."""

    name: str  # what the network is called in tables and pictures
    tape: Tape
    batch: int  # samples
    precision: str = "float32"  # of matrix products and convolutions, as traced; `machine.speed` predicts times in it

    @cached_property
    def size(self) -> Int64:
        """Bytes of each storage: (S,), in the order of the tape."""
        return self.tape.fixed + self.tape.per_sample * self.batch

    @cached_property
    def matrix(self) -> Int64:
        """Bytes alive after each event: (events, len(ROLES)), columns in the order of ROLES."""
        fixed, per_sample = self.tape.coefficients
        return fixed + per_sample * self.batch

    @cached_property
    def total(self) -> Int64:
        """Bytes alive after each event, all roles together: (events,)."""
        fixed, per_sample = self.tape.totals
        return fixed + per_sample * self.batch

    @cached_property
    def peak_event(self) -> int:
        """Index of the first event in which the most bytes are alive."""
        return int(np.argmax(self.total))

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at any moment of the step."""
        return int(self.total[self.peak_event])

    @property
    def peak_phase(self) -> str:
        """The phase in which the peak falls: "forward", "backward" or "update"."""
        return PHASES[int(self.tape.event_phase[self.peak_event])]

    @property
    def peak_layer(self) -> str:
        """The layer whose operator reaches the peak."""
        return self.tape.layer_names[int(self.tape.event_layer[self.peak_event])]

    @cached_property
    def phases(self) -> npt.NDArray[np.str_]:
        """Phase of each event: (events,) of "forward", "backward", "update"."""
        return np.array(PHASES)[self.tape.event_phase]

    @cached_property
    def layers(self) -> npt.NDArray[np.str_]:
        """Layer of each event: (events,)."""
        return np.array(self.tape.layer_names)[self.tape.event_layer]

    def by_role(self) -> pd.Series:
        """Bytes at the peak by role: a Series over ROLES that sums to `peak_bytes`."""
        import pandas as pd

        return pd.Series(self.matrix[self.peak_event], index=pd.Index(ROLES, name="role"), name="bytes")

    def timeline(self) -> pd.DataFrame:
        """One row an event: event (operator), phase, layer, bytes alive after it by role, and their total."""
        import pandas as pd

        events = {"event": self.tape.event_ops, "phase": self.phases, "layer": self.layers}
        return pd.DataFrame({**events, **dict(zip(ROLES, self.matrix.T, strict=True)), "total": self.total})

    def by_layer(self) -> pd.DataFrame:
        """One row a layer, in the order in which they first run.

        Columns: layer; shape (of its last output, batch first); parameters (how many it owns); saved feature maps
        (bytes it makes in the forward pass that are still alive when the backward pass begins); gradient maps (bytes
        its backward makes); weight gradients (bytes); flops (forward, a multiply-add counts as two, by torch's
        formulas). Of a step that accumulates several micro-batches, all of it is about the last one.
        """
        import pandas as pd

        tape, size = self.tape, self.size
        forward = (tape.event_phase == PHASES.index("forward")) & (np.arange(tape.events) >= tape.last_pass)
        last_forward = int(np.flatnonzero(forward)[-1])
        saved = (tape.role == ROLE["feature maps"]) & (tape.birth <= last_forward) & (tape.death > last_forward)
        flops = (tape.event_flops[:, 0] + tape.event_flops[:, 1] * self.batch) * forward

        maps = (tape.role == ROLE["gradient maps"]) & (tape.birth >= tape.last_pass)
        # Of a weight used several times, the sum that zero_grad frees, not the parts it was added up from.
        gradients = (tape.role == ROLE["weight gradients"]) & (tape.death >= tape.events - 1)

        def per_layer(layer: Int64, amounts: Int64) -> Int64:
            sums = np.zeros(len(tape.layer_names), dtype=np.int64)
            np.add.at(sums, layer, amounts)
            return sums

        columns = {
            "saved feature maps": per_layer(tape.layer, size * saved),
            "gradient maps": per_layer(tape.layer, size * maps),
            "weight gradients": per_layer(tape.layer, size * gradients),
            "flops": per_layer(tape.event_layer, flops),
        }
        code = {name: index for index, name in enumerate(tape.layer_names)}
        rows = []
        for name in [*tape.layer_shapes, *(layer for layer in tape.layer_parameters if layer not in tape.layer_shapes)]:
            shape = tuple(fixed + slope * self.batch for fixed, slope in tape.layer_shapes.get(name, ()))
            figures = {column: int(values[code[name]]) if name in code else 0 for column, values in columns.items()}
            rows.append({"layer": name, "shape": shape, "parameters": tape.layer_parameters.get(name, 0), **figures})
        return pd.DataFrame(rows)

    def network_wide_bytes(self) -> int:
        """The 2016 accounting: every feature map kept, two shared gradient buffers, weights and their gradients.

        Activations and dropout are taken to work in place, the gradient buffers are as large as the largest map, and
        neither workspace, optimizer state nor pooling indices count: the baseline of Rhu et al., MICRO-49 2016.
        """
        return sum(self.network_wide_parts().values())

    def network_wide_parts(self) -> dict[str, int]:
        """The terms of `network_wide_bytes` by role; the input counts as a feature map."""
        maps = self.size[self.maps_2016]
        parameters = int(self.size[self.tape.role == ROLE["parameters"]].sum())
        network_input = int(self.size[(self.tape.role == ROLE["input"]) & self.tape.is_map].sum())
        return {
            "feature maps": network_input + int(maps.sum()),
            "gradient maps": 2 * int(maps.max(initial=0)),
            "parameters": parameters,
            "weight gradients": parameters,
        }

    @cached_property
    def maps_2016(self) -> npt.NDArray[np.bool_]:
        """(S,) True for the feature maps that the 2016 accounting counts: those no in-place operator made."""
        tape = self.tape
        counted = np.array([op not in IN_PLACE_2016 for op in tape.event_ops])
        loss = np.array([layer == "loss" for layer in tape.layer_names])
        born = np.minimum(tape.birth, tape.events - 1)
        keep: npt.NDArray[np.bool_] = (
            (tape.role == ROLE["feature maps"])
            & tape.is_map
            & (tape.birth >= tape.last_pass)
            & (tape.event_phase[born] == 0)
            & counted[born]
            & ~loss[tape.layer]
        )
        return keep

    def allocated_bytes(self) -> int:
        """What `torch.cuda.max_memory_allocated` reports of a steady step: the peak of the allocator's blocks.

        Without what libraries ask for inside their kernels, cuDNN's scratch above all: in convolutional networks torch
        reports more by that (in 16 published steps 4.5 to 14.5 %). `course_utils.techniques.capacity.fit` guesses it.

        A replay of the step's allocations through `course_utils.allocator`. At least `peak_bytes`: a block is a tensor
        rounded up to 512 bytes, and more where what is left of a free block is too small to be split off.
        """
        return self.requests.replayed.peak_allocated

    def reserved_bytes(self) -> int:
        """What `torch.cuda.memory_reserved` reports after three such steps: blocks, and gaps nothing fits into.

        The same replay as that of `allocated_bytes`, and at least as much. A card that has less need not run out: there
        the allocator gives segments back, which `course_utils.techniques.capacity.fit` replays.
        """
        return self.requests.reserved_bytes

    @cached_property
    def requests(self) -> Requests:
        """What the step asks of the allocator, step after step."""
        tape = self.tape
        lasting = (tape.birth == 0) & (tape.death > tape.events - 1)
        return Requests(self.size, tape.birth, tape.death, lasting, tape.role == ROLE["optimizer state"], tape.events)
