"""Ways to train on one card: LoRA, frozen weights in 4 bits, state in 8 bits, the update within the backward pass.

LoRA after Hu and others, "LoRA: Low-Rank Adaptation of Large Language Models" (2021); a base in 4 bits after Dettmers
and others, "QLoRA" (2023); optimizer state in 8 bits after Dettmers and others, "8-bit Optimizers via Block-wise
Quantization" (2022); the step within the backward pass after Lv and others, "Full Parameter Fine-tuning for Large
Language Models with Limited Resources" (2023, LOMO).

Traced: everything autograd and torch do. Counted: how many bytes 4-bit weights and 8-bit state have, and that their
kernels make what they return and nothing besides.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.units import CourseError

RANK, ALPHA = 16, 32  # of LoRA where no rank is given; the update is scaled by ALPHA / RANK
BLOCK_4_BIT, BLOCK_8_BIT = 64, 256  # values that share one float32 scale
SMALLEST_8_BIT = 4096  # values a parameter has at least whose state is in 8 bits (bitsandbytes' min_8bit_size)

# The sixteen values of NF4 (QLoRA, appendix E).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


class LoRA(nn.Module):
    """A layer that stays as it is, and beside it a trained product of two thin matrices, 0 at the start.

    `base` maps the last dimension from `inputs` to `outputs`; the matrices have `rank` columns, and dtype and device of
    the tensor `like`.
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
        return (kept + self.scale * beside).to(kept.dtype)


class FourBit(nn.Module):
    """A linear layer whose weight is kept in 4 bits a value, and made wide again whenever it is used.

    The product is in the dtype that the weight had, and what is returned in that of the input, as in bitsandbytes.
    With `keeps`, autograd holds the wide copy for the backward pass; else it is made twice, as bitsandbytes does.
    """

    def __init__(self, linear: Any, keeps: bool = False) -> None:
        super().__init__()
        inputs, outputs = widths(linear)
        self.shape, self.keeps, self.bias = (outputs, inputs), keeps, linear.bias
        parts = quantised(linear.weight.detach())
        self.packed, self.scales = (nn.Parameter(part, requires_grad=False) for part in parts)
        self.dtype = linear.weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) to (…, out)."""
        outside, x = x.dtype, x.to(self.dtype)
        bias = None if self.bias is None else self.bias.to(self.dtype)
        if self.keeps:
            return F.linear(x, dequantised(self.packed, self.scales, self.shape, x.dtype), bias).to(outside)
        product: Tensor = _Product.apply(x, self.packed, self.scales, self.shape, bias)  # type: ignore[no-untyped-call]
        return product.to(outside)


class _Product(torch.autograd.Function):
    """x Wᵀ + b with W from 4 bits, which the backward pass makes again: only the 4 bits wait for it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, packed: Tensor, scales: Tensor, shape: tuple[int, int], bias: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(packed, scales)
        ctx.shape = shape
        return F.linear(x, dequantised(packed, scales, shape, x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        packed, scales = ctx.saved_tensors
        return gradient @ dequantised(packed, scales, ctx.shape, gradient.dtype), None, None, None, None


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight as NF4: two values a byte, and a float32 scale for every BLOCK_4_BIT of them.

    Raises CourseError where its values are no whole number of blocks.
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

    `state` makes the tensors that the card keeps for a parameter.
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


# Adam or AdamW in one kernel: two moments in the dtype of the weights, both in 8 bits, and the state on the host.
fused = partial(OneKernel, state=lambda parameter: [torch.empty_like(parameter), torch.empty_like(parameter)])
eight_bit = partial(OneKernel, state=eight_bit_state)
on_host = partial(OneKernel, state=lambda parameter: [])


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a network: members of its outermost lists of modules that are built of several themselves."""
    if isinstance(model, (nn.Sequential, nn.ModuleList)):
        return [member for member in model.children() if len(list(member.modules())) > 2]
    return [block for member in model.children() for block in blocks_of(member)]


def widths(layer: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a linear layer; (0, 0) for any other module. Transformers' Conv1D of GPT-2 is one."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if type(layer).__name__ == "Conv1D" and isinstance(weight := getattr(layer, "weight", None), Tensor):
        return weight.shape[0], weight.shape[1]
    return 0, 0


def adapt(
    model: nn.Module, rank: int = RANK, four_bit: bool = False, keeps: bool = False, widened: bool = False,
    beside: Collection[str] = (),
) -> None:  # fmt: skip
    """A model changed in place: frozen, the linear layers of its blocks in 4 bits or with LoRA beside them, or both.

    Args:
        model: whose embedding, head and norms stay as they are, unless `widened`.
        rank: of LoRA; 0 for none.
        four_bit: whether those layers keep their weights in 4 bits.
        keeps: whether autograd keeps their wide copies, as for `FourBit`.
        widened: whether all that is not in 4 bits, adapters too, becomes float32, and so most of the maps: as peft's
            `prepare_model_for_kbit_training` leaves a model (0.20; its 4-bit layers' adapters are float32 in any case).
        beside: names of the linear layers that get LoRA; none: all of them.

    Raises:
        CourseError: its blocks have no linear layers.
    """
    model.requires_grad_(False)
    found: list[tuple[nn.Module, str, Any]] = [  # what holds a linear layer that runs as a module, its name there, it
        (parent, name, child)
        for block in blocks_of(model)
        for parent in block.modules()
        if not isinstance(parent, nn.MultiheadAttention)  # takes the weight past the layer
        for name, child in parent.named_children()
        if any(widths(child))
    ]
    if not found:
        raise CourseError("LoRA and 4-bit weights are for linear layers in repeated blocks, and there are none")
    for parent, name, linear in found:
        base: nn.Module = FourBit(linear, keeps) if four_bit else linear
        if rank and (not beside or name in beside):
            base = LoRA(base, *widths(linear), rank, linear.weight)
        setattr(parent, name, base)
    for parameter in model.parameters() if widened else ():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()


def step_in_backward(model: nn.Module, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> None:
    """Have an optimizer of its own update each weight as soon as its gradient is whole, which then goes.

    As PyTorch's tutorial has it, "How to save memory by fusing the optimizer step into the backward pass".
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(partial(_update, make([parameter])))


def _update(optimizer: torch.optim.Optimizer, parameter: Tensor) -> None:
    optimizer.step()
    optimizer.zero_grad()
