"""A model's training step under every way of training it: what is traced, and the command that traces the same.

A network and its changes are those of `course trace`. Of equal layers SHORT are traced and the middle is counted again
(`lessons.shared.stacked`); of a text two lengths are traced, between and beyond which sizes are on straight lines.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.memory import StepTrace, Tape
from course_utils.surroundings import no_garbage_collection
from course_utils.techniques.fine_tuning import RANK
from course_utils.trace import Spec
from course_utils.trace.inputs import StepSpec
from course_utils.trace.tracer import Tracer
from course_utils.trace_command.builders import own
from course_utils.trace_command.network import Network, Settings, dtype_of
from course_utils.trace_command.optimizers import maker
from course_utils.units import CourseError
from lessons.shared.stacked import SHORT, between, deepened
from website.guide.models import TEXT, Model

TRACED_AT = (512, 1024)  # tokens
MIXED, HALF, WHOLE, LORA, QLORA = METHODS = (
    "full, mixed precision", "full, bfloat16", "full, float32", "LoRA", "QLoRA",
)  # fmt: skip
# As `course trace` has them: the dtype of the weights, autocast, the rank of LoRA, 4-bit weights.
_SETTINGS: dict[str, dict[str, Any]] = {
    MIXED: {"precision": "bfloat16"},
    HALF: {"weights": "bfloat16"},
    WHOLE: {},
    LORA: {"weights": "bfloat16", "rank": RANK},
    QLORA: {"weights": "bfloat16", "rank": RANK, "four_bit": True},
}
FUSED, DEFAULT, EIGHT_BIT, MOMENTUM = OPTIMIZERS = ("adamw-fused", "adamw", "adamw-8bit", "momentum")


@dataclass(frozen=True)
class Way:
    """A way to train a model.

    Attributes:
        method: one of METHODS.
        optimizer: one of OPTIMIZERS, by the name that `course trace` has for it.
        checkpoint: whether every block runs again in the backward pass.
        length: tokens of a text, or the side of an image or a latent.
    """

    method: str
    optimizer: str
    checkpoint: bool
    length: int

    def settings(self, batch: int = 1) -> Settings:
        """As `course trace` takes it."""
        return Settings(batch, self.optimizer, checkpoint=self.checkpoint, **_SETTINGS[self.method])


def methods(model: Model) -> dict[str, tuple[str, ...]]:
    """How the guide trains a model, and the optimizers for each method."""
    if not model.adapts:
        return dict.fromkeys((MIXED, WHOLE), (FUSED, DEFAULT, MOMENTUM))
    adapters = (FUSED, EIGHT_BIT)
    full = (FUSED, DEFAULT, EIGHT_BIT)
    return {MIXED: full, HALF if model.kind == TEXT else WHOLE: full, LORA: adapters, QLORA: adapters}


def checkpointing(model: Model) -> tuple[bool, ...]:
    """Without it and with it, where a model has blocks."""
    return (False, True) if model.blocks else (False,)


def ways(model: Model) -> list[Way]:
    """All of them, in the order of the table."""
    return [
        Way(method, optimizer, checkpoint, length)
        for method, optimizers in methods(model).items()
        for checkpoint in checkpointing(model)
        for length in model.lengths
        for optimizer in optimizers
    ]


def command(model: Model, way: Way, batch: int, card: str) -> str:
    """`course trace …`, which says of one answer what the guide says, from the folder of the course."""
    shape = ",".join(map(str, model.shape(way.length)))
    kind = "int64:" if model.kind == TEXT else ""
    parts = [f"course trace website.guide.models:{model.key} --input {kind}{shape}"]
    parts += ["--loss returned"] if model.loss == "returned" else []
    parts += [f"--batch {batch} --optimizer {way.optimizer}", *flags(way), f'--card "{card}"']
    return " ".join(parts)


def flags(way: Way) -> list[str]:
    """The options of the command that a method and checkpointing are."""
    told = _SETTINGS[way.method]
    adapter = "" if not told.get("rank") else f"--{'qlora' if told.get('four_bit') else 'lora'} {RANK}"
    weights = f"--weights {told['weights']}" if "weights" in told else ""
    autocast = f"--precision {told['precision']}" if "precision" in told else ""
    return [part for part in (autocast, weights, adapter, "--checkpoint" if way.checkpoint else "") if part]


def network(model: Model, length: int, layers: int | None = None) -> Network:
    """The model as `course trace` builds it, or with so many of its layers."""
    with torch.device("meta"):
        built = model.make(layers)
    dtype = "int64" if model.kind == TEXT else "float32"
    return own(model.name, built, model.shape(length), dtype, None, model.loss)


def _returned(module: nn.Module, batch: Any) -> Tensor:
    out: Any = module(*batch)
    loss: Tensor = getattr(out, "loss", out)
    return loss


def _classified(module: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(module(batch[0]), batch[1])


def _told(model: Model, length: int, dtype: torch.dtype) -> StepSpec:
    """What goes in and what is trained on, as `course trace` says it."""
    shape = model.shape(length)
    if model.kind == TEXT:
        ids = (Spec(shape, torch.int64), Spec(shape, torch.int64))  # two tensors, and so two specs
        return StepSpec(ids, _returned, _returned, {}, keep_output=True)
    inputs = (Spec(shape, dtype), Spec((), torch.int64))
    if model.loss == "returned":
        return StepSpec(inputs, _returned, _returned, {}, keep_output=True)
    return StepSpec(inputs, _classified, _classified, {}, names=("input", "labels"), labels=1)


@dataclass(frozen=True)
class _Tapes:
    """Of one length: the step at batch 1, and at every larger one."""

    one: Tape
    more: Tape


def _traced(model: Model, method: str, checkpoint: bool, length: int, optimizers: tuple[str, ...]) -> dict[str, _Tapes]:
    """Forward and backward pass once, and each optimizer's update after them."""
    layers = _short(model)
    base = Way(method, optimizers[0], checkpoint, length).settings()
    module = network(model, length, layers).changed(base)
    told = _told(model, length, getattr(torch, dtype_of(module)))
    found = {}
    with no_garbage_collection():
        tracer = Tracer(module, told, maker(optimizers[0], module), base.precision, "cuda", model.name)
        single, low, high = (tracer.run(batch) for batch in (1, *tracer.batches))
        for optimizer in optimizers:
            updated = copy.copy(tracer)  # the same passes, and another update after them
            updated.optimizer, updated._updates = maker(optimizer, module), {}
            found[optimizer] = _Tapes(updated._tape(single, None), updated._tape(low, high))
    return found


def _short(model: Model) -> int | None:
    """Layers that are traced of a model; None for all."""
    return SHORT + model.apart if model.layers > SHORT + model.apart else None


def steps(model: Model, method: str) -> Iterator[tuple[Way, StepTrace]]:
    """Every way to train a model by a method, and its step at every batch: memory alone, no arithmetic and no uses."""
    for checkpoint in checkpointing(model):
        yield from _steps_of(model, method, checkpoint, methods(model)[method], model.lengths)


def _steps_of(
    model: Model, method: str, checkpoint: bool, optimizers: tuple[str, ...], lengths: tuple[int, ...]
) -> Iterator[tuple[Way, StepTrace]]:
    at = TRACED_AT if model.kind == TEXT else lengths
    traced = {length: _traced(model, method, checkpoint, length, optimizers) for length in at}
    for length in lengths:
        if length not in traced:
            try:
                traced[length] = {one: _between(traced, at, one, length) for one in optimizers}
            except CourseError:  # a size that is on no straight line, such as what sorting takes: traced itself
                traced[length] = _traced(model, method, checkpoint, length, optimizers)
        for optimizer in optimizers:
            way = Way(method, optimizer, checkpoint, length)
            yield way, _whole(model, traced[length][optimizer], way.settings().precision)


def _between(traced: dict[int, dict[str, _Tapes]], at: Sequence[int], optimizer: str, length: int) -> _Tapes:
    low, high = (traced[n][optimizer] for n in at)
    one, more = (
        between((at[0], first), (at[1], second), length)
        for first, second in ((low.one, high.one), (low.more, high.more))
    )
    return _Tapes(one, more)


def _whole(model: Model, short: _Tapes, precision: str) -> StepTrace:
    if _short(model) is not None:
        units = model.layers - model.apart
        short = _Tapes(deepened(short.one, units), deepened(short.more, units))
    single = short.one
    return StepTrace(model.name, short.more, lambda batch: single, settings={"precision": precision})


def step(model: Model, way: Way) -> StepTrace:
    """One of them, traced now; its length may be another than those of the table."""
    _, found = next(_steps_of(model, way.method, way.checkpoint, (way.optimizer,), (way.length,)))
    return found
