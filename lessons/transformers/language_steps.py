"""The training step of a language model, traced: by name, sequence, options, number format and optimizer.

Each is traced once and kept, so that a batch more is a reading. Of a stack of equal layers only a few are traced, and
repeated (`lessons.shared.stacked`): the result is the same, storage by storage, in a fraction of the time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from course_utils.memory import ROLE, Ledger, StepTrace
from course_utils.networks.language import SHAPES, Options, Output, Shape
from course_utils.trace import Spec, training_step
from course_utils.units import CourseError
from lessons.shared.stacked import SHORT, NotAlike, deepened

# Weights, gradients and maps in bfloat16; float32 weights under autocast; everything in float32.
FORMATS = ("bfloat16", "mixed", "float32")


@lru_cache(maxsize=128)
def language_step(
    model: str | Shape,
    sequence: int = 1024,
    options: Options | None = None,
    numbers: str = "bfloat16",
    optimizer: str = "adamw",
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
                return replace(
                    few, tape=deepened(few.tape, units, group=group),
                    trace_at=lambda batch: deepened(few.trace_at(batch), units, group=group), _traced={}, _largest={},
                )  # fmt: skip
        except NotAlike:
            pass  # traced whole, below
    with torch.device("meta"):
        module = shape.build(options, layers)
    if numbers == "bfloat16":
        module = module.to(torch.bfloat16)

    def loss(module: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        out: Output = module(ids, ids)
        return out.loss

    return training_step(
        module, inputs=Spec(("sequence",), torch.int64), loss=loss, sizes={"sequence": sequence}, optimizer=optimizer,
        precision="bfloat16" if numbers == "mixed" else "float32", keep_output=keep_output, name=shape.name,
    )  # fmt: skip


def kept_bytes(ledger: Ledger) -> int:
    """Bytes of feature maps, masks included, alive after the first operator of the backward pass, made before it."""
    tape = ledger.tape
    last = int((tape.event_phase == 0).nonzero()[0][-1])
    kept = (tape.role == ROLE["feature maps"]) & (tape.birth <= last) & (tape.death > last + 1)
    return int(ledger.size[kept].sum())
