"""Ways to fine-tune a language model on one card, each as a training step that is traced.

LoRA after Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models" (2021); a base in 4 bits after Dettmers
and others, "QLoRA" (2023); optimizer state in 8 bits after Dettmers and others, "8-bit Optimizers via Block-wise
Quantization" (2022); the step within the backward pass after Lv and others, "Full Parameter Fine-tuning for Large
Language Models with Limited Resources" (2023, LOMO). Weights are in one 16-bit format throughout, unless said.

Traced: everything autograd and torch do. Counted: how many bytes 4-bit weights and 8-bit state have, that their kernels
make what they return and nothing besides, and when a gradient goes that is used at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.memory import Ledger, Tape
from course_utils.networks.language import SHAPES, LanguageModel, Options, Shape
from course_utils.trace import Spec
from course_utils.trace.inputs import StepSpec
from course_utils.trace.record import Run
from course_utils.trace.surroundings import no_garbage_collection
from course_utils.trace.tracer import Tracer
from course_utils.units import CourseError, require_one_of
from lessons.shared.kept_steps import KeptSteps
from lessons.shared.stacked import SHORT, between, deepened, stepped_in_backward

RANK, ALPHA = 16, 32  # of LoRA here; the update is scaled by ALPHA / RANK
ADAPTED = ("q", "k", "v", "project", "gate", "up", "down", "qkv")  # the products of a layer that get LoRA
BLOCK_4_BIT, BLOCK_8_BIT = 64, 256  # values that share one float32 scale
SMALLEST_8_BIT = 4096  # values a parameter has at least whose state is in 8 bits (bitsandbytes' min_8bit_size)
TRACED_AT = (512, 1024)  # sequences traced, between and beyond which every size is on a straight line
STEPS = Path(__file__).parent / "steps.xz"  # `python -m lessons.one_card.keep` writes it
_kept = KeptSteps(STEPS)

# The sixteen values of NF4 (QLoRA, appendix E).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


class LoRA(nn.Module):
    """A layer that stays as it is, and beside it a trained product of two thin matrices, 0 at the start.

    Args:
        base: what is kept, a map of the last dimension.
        inputs: its width.
        outputs: the width of its result.
        rank: columns of the thin matrices.
        like: a tensor whose dtype and device the thin matrices have.
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, like: Tensor) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False, dtype=like.dtype, device=like.device)
        self.up = nn.Linear(rank, outputs, bias=False, dtype=like.dtype, device=like.device)
        nn.init.zeros_(self.up.weight)
        self.scale = ALPHA / RANK

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) to (…, outputs)."""
        beside: Tensor = self.up(self.down(x.to(self.down.weight.dtype)))
        kept: Tensor = self.base(x)
        return kept + self.scale * beside


class FourBit(nn.Module):
    """A linear layer whose weight is kept in 4 bits a value, and made 16 bits wide whenever it is used.

    Args:
        linear: the layer to take over.
        keeps: the wide copy is left to autograd, which holds it for the backward pass; else it is made twice, as
            bitsandbytes does.
    """

    def __init__(self, linear: nn.Linear, keeps: bool = False) -> None:
        super().__init__()
        self.shape, self.keeps = (linear.out_features, linear.in_features), keeps
        packed, scales = quantised(linear.weight.detach())
        self.packed = nn.Parameter(packed, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)
        self.dtype = torch.bfloat16 if linear.weight.dtype == torch.bfloat16 else torch.float32

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) to (…, out)."""
        x = x.to(self.dtype)
        if self.keeps:
            return F.linear(x, dequantised(self.packed, self.scales, self.shape, x.dtype))
        product: Tensor = _Product.apply(x, self.packed, self.scales, self.shape)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """x Wᵀ with W from 4 bits, which the backward pass makes again: only the 4 bits wait for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, scales: Tensor, shape: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(packed, scales)
        ctx.shape = shape
        return F.linear(x, dequantised(packed, scales, shape, x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        packed, scales = ctx.saved_tensors
        return gradient @ dequantised(packed, scales, ctx.shape, gradient.dtype), None, None, None


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight as NF4: two values a byte, and a float32 scale for every BLOCK_4_BIT of them.

    Raises:
        CourseError: its values are no whole number of blocks.
    """
    if weight.numel() % BLOCK_4_BIT:
        raise CourseError(f"a weight of {weight.numel():,} values is no whole number of blocks of {BLOCK_4_BIT}")
    if weight.is_meta:
        bytes_ = torch.empty(weight.numel() // 2, dtype=torch.uint8, device="meta")
        return bytes_, torch.empty(weight.numel() // BLOCK_4_BIT, device="meta")
    blocks = weight.float().reshape(-1, BLOCK_4_BIT)
    scales = blocks.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny)
    nearest = (blocks / scales[:, None]).reshape(-1, 1).sub(torch.tensor(NF4)).abs().argmin(1).to(torch.uint8)
    return nearest[0::2] * 16 + nearest[1::2], scales


def dequantised(packed: Tensor, scales: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The weight of this shape and dtype. On shapes alone, one tensor: the kernel of bitsandbytes makes no other."""
    if packed.is_meta:
        return torch.empty(shape, dtype=dtype, device="meta")
    codes = torch.stack((packed // 16, packed % 16), 1).flatten().long()
    return (torch.tensor(NF4)[codes].reshape(-1, BLOCK_4_BIT) * scales[:, None]).reshape(shape).to(dtype)


class OneKernel(torch.optim.Optimizer):
    """An optimizer that updates each weight in one kernel, with nothing made besides. It counts: it does not train.

    Args:
        parameters: to be updated.
        state: of a parameter, the tensors that the card keeps for it.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], state: Callable[[nn.Parameter], list[Tensor]]) -> None:
        super().__init__(parameters, {})
        self._kept = state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make the state if there is none, and write the weights."""
        weights = [parameter for group in self.param_groups for parameter in group["params"]]
        for weight in weights:
            if weight not in self.state:
                self.state[weight] = dict(enumerate(self._kept(weight)))
        with torch.no_grad():
            torch._foreach_mul_(weights, 1.0)


def eight_bit_state(parameter: Tensor) -> list[Tensor]:
    """Both moments in 8 bits, with a float32 scale for each block; small parameters keep float32 ones."""
    like = partial(torch.empty, device=parameter.device)
    if parameter.numel() < SMALLEST_8_BIT:
        return [like(parameter.shape), like(parameter.shape)]
    blocks = -(-parameter.numel() // BLOCK_8_BIT)
    return [like(parameter.shape, dtype=torch.uint8) for _ in range(2)] + [like(blocks) for _ in range(2)]


def _fused(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return OneKernel(parameters, lambda parameter: [torch.empty_like(parameter), torch.empty_like(parameter)])


def _eight_bit(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return OneKernel(parameters, eight_bit_state)


def _on_host(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return OneKernel(parameters, lambda parameter: [])


def _foreach(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, foreach=True)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "AdamW": _fused,
    "8-bit AdamW": _eight_bit,
    "AdamW, state on the CPU": _on_host,
    "AdamW, torch's default": _foreach,
}
TRAINED = ("all", "head", "lora")
BASES = ("16 bits", "4 bits", "4 bits, copies kept", "4 bits, rest in float32")
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Method:
    """A way to fine-tune.

    Attributes:
        trained: "all", "head" (the rest is frozen) or "lora".
        base: how frozen weights of layers are kept: one of BASES.
        optimizer: one of OPTIMIZERS. "AdamW" updates in one kernel (`fused=True`); torch's default makes temporaries.
        in_backward: whether each weight is updated as soon as its gradient is there.

    Raises:
        CourseError: something it does not know, or a base in 4 bits that is to be trained.
    """

    trained: str = "all"
    base: str = "16 bits"
    optimizer: str = "AdamW"
    in_backward: bool = False

    def __post_init__(self) -> None:
        for what, known in (("trained", TRAINED), ("base", BASES), ("optimizer", tuple(OPTIMIZERS))):
            if getattr(self, what) not in known:
                raise CourseError(f"unknown {what} {getattr(self, what)!r}: choose one of {', '.join(known)}")
        if self.base != "16 bits" and self.trained == "all":
            raise CourseError("4-bit weights cannot be trained: their gradient would be for 16 values. Add LoRA")
        if self.in_backward and self.optimizer == "AdamW, torch's default":
            raise CourseError("a step within the backward pass updates one weight at a time: choose another optimizer")


METHODS = {
    "full": Method(),
    "8-bit AdamW": Method(optimizer="8-bit AdamW"),
    "state on the CPU": Method(optimizer="AdamW, state on the CPU"),
    "step in backward": Method(in_backward=True),
    "both of these": Method(optimizer="AdamW, state on the CPU", in_backward=True),
    "head alone": Method("head"),
    "LoRA": Method("lora"),
    "4-bit base and LoRA": Method("lora", "4 bits"),
}


def prepared(model: LanguageModel, method: Method) -> LanguageModel:
    """A model changed in place for a method: frozen, its layers' products in 4 bits or with LoRA beside them."""
    if method.trained == "all":
        return model
    like = model.embedding.weight
    model.requires_grad_(False)
    if method.trained == "head":
        model.head.requires_grad_(True)
    for layer in model.layers:
        for name in ADAPTED:
            linear = getattr(layer, name, None)
            if isinstance(linear, nn.Linear):
                base: nn.Module = linear
                if method.base != "16 bits":
                    base = FourBit(linear, keeps=method.base == "4 bits, copies kept")
                if method.trained == "lora":
                    base = LoRA(base, linear.in_features, linear.out_features, RANK, like)
                setattr(layer, name, base)
    if method.base == "4 bits, rest in float32":  # as peft's prepare_model_for_kbit_training leaves it
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.is_floating_point() and name != "scales":
                    parameter.data = parameter.data.float()
    return model


def _logits(model: nn.Module, batch: Any) -> Any:
    return model(batch[0])


def _loss(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(batch[0], batch[0]).loss
    return loss


@lru_cache(maxsize=256)
def _recorded(
    shape: Shape, trained: str, base: str, sequence: int, single: bool, recompute: bool, dtype: str, layers: int
) -> tuple[Tracer, Run, Run | None]:
    """Forward and backward pass, on which no optimizer depends: at batch 1, or at two others."""
    options = Options(recompute="full" if recompute else "none")
    with torch.device("meta"):
        model = prepared(shape.build(options, layers).to(DTYPES[dtype]), Method(trained, base))
    told = StepSpec([Spec(("sequence",), torch.int64)], _logits, _loss, {"sequence": sequence})
    with no_garbage_collection():
        tracer = Tracer(model, told, _fused, "float32", "cuda", shape.name)
        if single:
            return tracer, tracer.run(1), None
        low, high = tracer.batches
        return tracer, tracer.run(low), tracer.run(high)


def short_tape(
    shape: Shape, method: Method, sequence: int, batch: int, recompute: bool, dtype: str, layers: int = SHORT
) -> Tape:
    """The traced step of a model of so many layers; one tape for batch 1, and one for all others."""
    tracer, small, large = _recorded(shape, method.trained, method.base, sequence, batch == 1, recompute, dtype, layers)
    updated = copy.copy(tracer)  # the same two passes, and another optimizer behind them
    updated.optimizer, updated._updates = OPTIMIZERS[method.optimizer], {}
    tape = updated._tape(small, large)
    return stepped_in_backward(tape) if method.in_backward else tape


def kept_name(model: str, method: Method, single: bool, recompute: bool, dtype: str) -> str:
    """Of a step in the file STEPS; `single` for batch 1."""
    ways = (method.trained, method.base, method.optimizer, "within" if method.in_backward else "after")
    again, batch = "again" if recompute else "kept", "one" if single else "more"
    return ", ".join((model, *ways, again, dtype, batch))


def is_kept(model: str, method: Method, single: bool, recompute: bool, dtype: str) -> bool:
    """Whether `step(..., kept=True)` reads this step."""
    return kept_name(model, method, single, recompute, dtype) in _kept.names


@lru_cache(maxsize=256)
def _deep_tapes(
    model: str, method: Method, single: bool, recompute: bool, dtype: str, kept: bool
) -> tuple[tuple[int, Tape], ...]:
    shape, found = SHAPES[model], []
    for sequence in TRACED_AT:
        tape = _kept.tape(kept_name(model, method, single, recompute, dtype), sequence) if kept else None
        if tape is None:
            tape = short_tape(shape, method, sequence, 1 if single else 2, recompute, dtype)
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
        kept: whether it may be read from the file STEPS, which has memory only and no arithmetic, if it is there.

    Raises:
        CourseError: an argument out of range.
    """
    one, other = _two_tapes(model, method, sequence, batch, recompute, dtype, kept)
    key = (model, method, sequence, batch, recompute, dtype)
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
    model: str, method: str | Method, sequence: int, batch: int, recompute: bool, dtype: str, kept: bool
) -> tuple[tuple[int, Tape], ...]:
    require_one_of("model", model, SHAPES)
    if isinstance(method, str):
        require_one_of("method", method, METHODS)
        method = METHODS[method]
    require_one_of("dtype", dtype, DTYPES)
    if not 1 < sequence <= SHAPES[model].positions:
        raise CourseError(f"{model} takes sequences of 2 to {SHAPES[model].positions:,} tokens, got {sequence:,}")
    if batch < 1:
        raise CourseError(f"batch must be a whole number of 1 or more, got {batch!r}")
    return _deep_tapes(model, method, batch == 1, recompute, dtype, kept)


def trainable_bytes(shape: Shape, rank: int = RANK, value_bytes: int = 2) -> int:
    """Bytes of LoRA's matrices beside the seven products of every layer of a Llama-like model.

    A product of h by k gets rank · (h + k) values.
    """
    h, kv = shape.hidden, shape.kv_heads * shape.hidden // shape.heads
    widths = [(h, h), (h, kv), (h, kv), (h, h), (h, shape.inner), (h, shape.inner), (shape.inner, h)]
    return value_bytes * shape.layers * rank * sum(a + b for a, b in widths)
