"""The ways to fine-tune of `course_utils.techniques.fine_tuning`, on published language models: each a step, traced.

Weights are in one 16-bit format throughout, unless said.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.memory import Ledger, Tape
from course_utils.surroundings import no_garbage_collection
from course_utils.techniques.fine_tuning import RANK, adapt, eight_bit, fused, on_host, step_in_backward
from course_utils.trace import Spec
from course_utils.trace.inputs import StepSpec
from course_utils.trace.record import Run
from course_utils.trace.tracer import Tracer
from course_utils.units import CourseError, require_one_of
from lessons.shared.kept_steps import KeptSteps
from lessons.shared.language_models import SHAPES, LanguageModel, Options, Shape
from lessons.shared.stacked import SHORT, between, deepened

TRACED_AT = (512, 1024)  # sequences traced, between and beyond which every size is on a straight line
STEPS = Path(__file__).parent / "steps.xz"  # `python -m lessons.one_card.keep` writes it
_kept = KeptSteps(STEPS)


def _foreach(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=True)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "AdamW": fused,
    "8-bit AdamW": eight_bit,
    "AdamW, state on the CPU": on_host,
    "AdamW, torch's default": _foreach,
}
TRAINED = ("all", "head", "lora")
WIDE = "16 bits, adapters in float32"  # as peft keeps the adapters of a 16-bit model
BASES = ("16 bits", WIDE, "4 bits", "4 bits, copies kept", "4 bits, rest in float32")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Method:
    """A way to fine-tune.

    Attributes:
        trained: "all", "head" (the rest is frozen) or "lora".
        base: how frozen weights of layers are kept: one of BASES.
        optimizer: one of OPTIMIZERS. "AdamW" updates in one kernel (`fused=True`); torch's default makes temporaries.
        in_backward: whether each weight is updated as soon as its gradient is there.
        rank: of LoRA.
        beside: names of a layer's products that get LoRA; none: all of them.

    Raises:
        CourseError: something it does not know, or a base in 4 bits that is to be trained.
    """

    trained: str = "all"
    base: str = "16 bits"
    optimizer: str = "AdamW"
    in_backward: bool = False
    rank: int = RANK
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, known in (("trained", TRAINED), ("base", BASES), ("optimizer", tuple(OPTIMIZERS))):
            if getattr(self, what) not in known:
                raise CourseError(f"unknown {what} {getattr(self, what)!r}: choose one of {', '.join(known)}")
        if self.base != "16 bits" and self.trained == "all":
            raise CourseError(f"a base in {self.base} cannot be trained: all of it is frozen. Add LoRA")
        if self.in_backward and self.optimizer == "AdamW, torch's default":
            raise CourseError("a step within the backward pass updates one weight at a time: choose another optimizer")


METHODS = {
    "full": Method(),
    "8-bit AdamW": Method(optimizer="8-bit AdamW"),
    "state on the CPU": Method(optimizer="AdamW, state on the CPU"),
    "step in backward": Method(in_backward=True),
    "state on the CPU + step in backward": Method(optimizer="AdamW, state on the CPU", in_backward=True),
    "head alone": Method("head"),
    "LoRA": Method("lora"),
    "4-bit base and LoRA": Method("lora", "4 bits"),
}


def prepared(model: LanguageModel, method: Method) -> LanguageModel:
    """A model changed in place for a method: frozen, its layers' products in 4 bits or with LoRA beside them."""
    if method.trained == "all":
        return model
    rank = method.rank if method.trained == "lora" else 0
    adapt(
        model, rank, four_bit=method.base.startswith("4 bits"), keeps=method.base == "4 bits, copies kept",
        widened=method.base == "4 bits, rest in float32", beside=method.beside,
    )  # fmt: skip
    for parameter in model.parameters() if method.base == WIDE else ():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    if method.trained == "head":
        model.head.requires_grad_(True)
    return model


def _logits(model: nn.Module, batch: Any) -> Any:
    return model(batch[0])


def _loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(batch[0], batch[0]).loss
    return loss


@lru_cache(maxsize=256)
def _recorded(
    shape: Shape, method: Method, sequence: int, single: bool, recompute: bool, dtype: str, layers: int, output: bool
) -> tuple[Tracer, Run, Run | None]:
    """Forward and backward pass, with the updates that a method takes there: at batch 1, or at two others."""
    options = Options(recompute="full" if recompute else "none")
    with torch.device("meta"):
        model = prepared(shape.build(options, layers).to(DTYPES[dtype]), method)
    if method.in_backward:
        step_in_backward(model, OPTIMIZERS[method.optimizer])
    ids = [Spec(("sequence",), torch.int64)]
    told = StepSpec(ids, _logits, _loss, {"sequence": sequence}, keep_output=output)
    with no_garbage_collection():
        tracer = Tracer(model, told, fused, "float32", "cuda", shape.name)
        if single:
            return tracer, tracer.run(1), None
        low, high = tracer.batches
        return tracer, tracer.run(low), tracer.run(high)


def short_tape(
    shape: Shape, method: Method, sequence: int, batch: int, recompute: bool, dtype: str, layers: int = SHORT,
    keep_output: bool = False,
) -> Tape:  # fmt: skip
    """The traced step of a model of so many layers; one tape for batch 1, and one for all others."""
    # The two passes do not depend on the optimizer after them: they are recorded once for all.
    recorded = method if method.in_backward else replace(method, optimizer="AdamW")
    tracer, small, large = _recorded(shape, recorded, sequence, batch == 1, recompute, dtype, layers, keep_output)
    updated = copy.copy(tracer)
    updated.optimizer, updated._updates = OPTIMIZERS[method.optimizer], {}  # not asked where no gradient is left
    return updated._tape(small, large)


def kept_name(model: str, method: Method, single: bool, recompute: bool, dtype: str) -> str:
    """Of a step in the file STEPS; `single` for batch 1."""
    ways = [method.trained, method.base, method.optimizer, "within" if method.in_backward else "after"]
    if (method.rank, method.beside) != (RANK, ()):
        ways += [f"rank {method.rank}", *method.beside]
    again, batch = "again" if recompute else "kept", "one" if single else "more"
    return ", ".join((model, *ways, again, dtype, batch))


def is_kept(model: str, method: Method, single: bool, recompute: bool, dtype: str) -> bool:
    """Whether `step(..., kept=True)` reads this step."""
    return kept_name(model, method, single, recompute, dtype) in _kept.names


@lru_cache(maxsize=256)
def _deep_tapes(
    model: str, method: Method, single: bool, recompute: bool, dtype: str, kept: bool, output: bool
) -> tuple[tuple[int, Tape], ...]:
    shape, found = SHAPES[model], []
    for sequence in TRACED_AT:
        tape = _kept.tape(kept_name(model, method, single, recompute, dtype), sequence) if kept else None
        if tape is None:
            tape = short_tape(shape, method, sequence, 1 if single else 2, recompute, dtype, keep_output=output)
        found.append((sequence, deepened(tape, shape.layers)))
    return tuple(found)


KEPT = 64  # ledgers, with what was replayed for them
_ledgers: dict[tuple[object, ...], Ledger] = {}


def step(
    model: str = "Llama-3-8B",
    method: str | Method = "full",
    sequence: int = 2048,
    batch: int = 1,
    recompute: bool = True,
    dtype: str = "bfloat16",
    kept: bool = False,
    keep_output: bool = False,
) -> Ledger:
    """A training step of a published model under a method, on a GPU: every byte, as `training_step` gives it.

    SHORT layers are traced at two lengths of sequence and extended (`lessons.shared.stacked`), which is exact:
    attention is fused, so every size is affine in the sequence. The first call for a model and method takes a second.

    Args:
        model: one of `language_models.SHAPES`.
        method: a name of METHODS, or a `Method`.
        sequence: tokens in a sequence.
        batch: sequences in the batch.
        recompute: whether each layer is a segment that runs again in the backward pass.
        dtype: of the weights, of those that are not in 4 bits.
        kept: whether it may be read from the file STEPS, if it is there: memory only and no arithmetic, without output.
        keep_output: whether what the model returns, the logits, stays alive through the backward pass, as it does in a
            loop that calls it `out`.

    Raises:
        CourseError: an argument out of range.
    """
    kept = kept and not keep_output
    one, other = _two_tapes(model, method, sequence, batch, recompute, dtype, kept, keep_output)
    key = (model, method, sequence, batch, recompute, dtype, kept, keep_output)
    if key not in _ledgers:
        if len(_ledgers) >= KEPT:
            del _ledgers[next(iter(_ledgers))]
        _ledgers[key] = Ledger(model, between(one, other, sequence), batch)
    return _ledgers[key]


def longest_sequence(
    model: str, method: str | Method, room: float, batch: int = 1, recompute: bool = True, dtype: str = "bfloat16",
    kept: bool = False,
) -> int:  # fmt: skip
    """The longest sequence, of those the model takes, whose tensors are at most `room` bytes at the peak; 0 if none is.

    Exact for tensors: each event's bytes are on a straight line in the sequence. Arguments and errors as for `step`.
    """
    (low, small), (high, large) = _two_tapes(model, method, 2, batch, recompute, dtype, kept)
    at_low, at_high = (Ledger(model, tape, batch).total for tape in (small, large))
    slope = (at_high - at_low) // (high - low)
    start = at_low - slope * low
    if (start[slope <= 0] > room).any():
        return 0
    grows = slope > 0
    most = int(np.min((int(room) - start[grows]) // slope[grows]))
    return min(most, SHAPES[model].positions) if most > 1 else 0


def _two_tapes(
    model: str, method: str | Method, sequence: int, batch: int, recompute: bool, dtype: str, kept: bool,
    output: bool = False,
) -> tuple[tuple[int, Tape], ...]:  # fmt: skip
    require_one_of("model", model, SHAPES)
    if isinstance(method, str):
        require_one_of("method", method, METHODS)
        method = METHODS[method]
    require_one_of("dtype", dtype, DTYPES)
    if not 1 < sequence <= SHAPES[model].positions:
        raise CourseError(f"{model} takes sequences of 2 to {SHAPES[model].positions:,} tokens, got {sequence:,}")
    if batch < 1:
        raise CourseError(f"batch must be a whole number of 1 or more, got {batch!r}")
    return _deep_tapes(model, method, batch == 1, recompute, dtype, kept, output)


def trainable_bytes(shape: Shape, rank: int = RANK, value_bytes: int = 2) -> int:
    """Bytes of LoRA's matrices beside the seven products of every layer of a Llama-like model.

    A product of h by k gets rank · (h + k) values.
    """
    h, kv = shape.hidden, shape.kv_heads * shape.hidden // shape.heads
    widths = [(h, h), (h, kv), (h, kv), (h, h), (h, shape.inner), (h, shape.inner), (shape.inner, h)]
    return value_bytes * shape.layers * rank * sum(a + b for a, b in widths)
