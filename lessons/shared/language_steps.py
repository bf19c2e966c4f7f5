"""The training step of a language model, traced: by name, sequence, options, number format and optimizer.

Each is traced once and kept, so that a batch more is a reading. Of a stack of equal layers only a few are traced, and
repeated (`lessons.shared.stacked`): the result is the same, storage by storage, in a fraction of the time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.surroundings import no_garbage_collection
from course_utils.trace import Spec, training_step
from course_utils.trace.inputs import StepSpec
from course_utils.trace.optimizers import MakeOptimizer, UpdateTracer
from course_utils.trace.tracer import Tracer
from course_utils.units import CourseError
from lessons.shared.kept_steps import UNIT, KeptSteps
from lessons.shared.language_models import SHAPES, Options, Output, Shape
from lessons.shared.stacked import SHORT, NotAlike, deepened

KEPT = Path(__file__).with_suffix(".xz")  # `python -m lessons.transformers.keep` writes it
_kept = KeptSteps(KEPT)
# Weights, gradients and maps in bfloat16; float32 weights under autocast; everything in float32.
FORMATS = ("bfloat16", "mixed", "float32")
LOST = (
    "Without a float32 copy of the weights, or rounding at random, bfloat16 loses updates smaller than half the "
    "distance to its next value (lesson 08)."
)


@lru_cache(maxsize=128)
def language_step(
    model: str | Shape,
    sequence: int = 1024,
    options: Options | None = None,
    numbers: str = "bfloat16",
    optimizer: str | MakeOptimizer = "adamw",
    layers: int | None = None,
    keep_output: bool = True,
) -> StepTrace:
    """`out = model(ids, labels); out.loss.backward(); optimizer.step(); optimizer.zero_grad()` at every batch.

    Args:
        model: of `language_models.SHAPES`, or a shape. One with learned positions gets more where the sequence wants.
        sequence: tokens in a text.
        options: how the model runs.
        numbers: one of FORMATS.
        optimizer: as `training_step` takes it.
        layers: only so many of the model's.
        keep_output: whether `out`, and with it the logits, stays alive through the backward pass.

    Raises:
        CourseError: no such model or format.
    """
    if isinstance(model, str) and model not in SHAPES:
        raise CourseError(f"no language model {model!r}: choose one of {', '.join(SHAPES)}")
    if numbers not in FORMATS:
        raise CourseError(f"unknown format {numbers!r}: choose one of {', '.join(FORMATS)}")
    shape = SHAPES[model] if isinstance(model, str) else model
    shape, options = replace(shape, positions=max(shape.positions, sequence)), options or Options()
    layers = shape.layers if layers is None else layers
    group = options.group if options.recompute == "full" else 1
    units = layers // group
    if layers % group == 0 and units > SHORT:
        few = language_step(shape, sequence, options, numbers, optimizer, SHORT * group, keep_output)
        try:
            if few.tape is not None:
                update = _update(_built(shape, options, numbers, layers), optimizer)
                return replace(
                    few, tape=deepened(few.tape, units, group, update),
                    trace_at=lambda batch: deepened(few.trace_at(batch), units, group, update), _traced={}, _largest={},
                )  # fmt: skip
        except NotAlike:
            pass  # traced whole, below
    return training_step(
        _built(shape, options, numbers, layers), inputs=IDS, loss=_loss, sizes={"sequence": sequence},
        optimizer=optimizer, precision=_precision(numbers), keep_output=keep_output, name=shape.name,
    )  # fmt: skip


IDS = Spec(("sequence",), torch.int64)


def _built(shape: Shape, options: Options, numbers: str, layers: int) -> torch.nn.Module:
    with torch.device("meta"):
        module = shape.build(options, layers)
    return module.to(torch.bfloat16) if numbers == "bfloat16" else module


def _precision(numbers: str) -> str:
    return "bfloat16" if numbers == "mixed" else "float32"


def _loss(module: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    out: Output = module(ids, ids)
    return out.loss


def _update(model: torch.nn.Module, optimizer: str | MakeOptimizer) -> list[tuple[str, int]]:
    """The operators of a model's update, and the bytes that each reads and writes: all weights get a gradient."""
    weights = list(model.parameters())
    with no_garbage_collection():
        traced = UpdateTracer(optimizer, (), True, lambda _: None).update(weights, [""] * len(weights))
    return [(event.op, event.traffic) for event in traced.record.events]


def tracer(shape: Shape, sequence: int, options: Options, numbers: str, optimizer: str, layers: int) -> Tracer:
    """What traces such a step, for whoever needs its passes one by one. Arguments as for `language_step`."""
    shape = replace(shape, positions=max(shape.positions, sequence))
    step = StepSpec(IDS, _loss, _loss, {"sequence": sequence}, keep_output=True)
    return Tracer(_built(shape, options, numbers, layers), step, optimizer, _precision(numbers), "cuda", shape.name)


def kept_name(shape: Shape, options: Options, numbers: str, optimizer: str, single: bool) -> str:
    """Of a step in the file KEPT; `single` for batch 1."""
    ways = (shape.name, options.attention, options.recompute, options.pieces, numbers, optimizer)
    return ", ".join(map(str, (*ways, "one" if single else "more")))


def is_kept(shape: Shape, sequence: int, options: Options, numbers: str, optimizer: str) -> bool:
    """Whether `kept_step` reads this step."""
    plain = Options(options.attention, recompute=options.recompute, pieces=options.pieces)
    names = [kept_name(shape, options, numbers, optimizer, single) for single in (True, False)]
    known = shape == SHAPES.get(shape.name) and options == plain and not sequence % UNIT
    return known and all(name in _kept.names for name in names)


@lru_cache(maxsize=128)
def kept_step(shape: Shape, sequence: int, options: Options, numbers: str, optimizer: str) -> StepTrace:
    """`language_step`, read from the file KEPT where it is there: memory only, no arithmetic. Else it is traced."""
    if not is_kept(shape, sequence, options, numbers, optimizer):
        return language_step(shape, sequence, options, numbers, optimizer)
    one, more = (
        _kept.tape(kept_name(shape, options, numbers, optimizer, single), sequence) for single in (True, False)
    )
    assert one is not None
    assert more is not None
    single = one
    return StepTrace(
        shape.name, deepened(more, shape.layers), trace_at=lambda batch: deepened(single, shape.layers),
        settings={"precision": _precision(numbers)},
    )  # fmt: skip


def kept_bytes(ledger: Ledger) -> int:
    """Bytes of feature maps, masks included, alive after the first operator of the backward pass, made before it."""
    tape = ledger.tape
    last = int((tape.event_phase == 0).nonzero()[0][-1])
    kept = (tape.role == ROLE["feature maps"]) & (tape.birth <= last) & (tape.death > last + 1)
    return int(ledger.size[kept].sum())
