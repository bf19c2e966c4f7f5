"""What real kernels allocate, where that differs from the meta kernels a trace runs.

Two things live here: the operator that each device picks for attention, and the named differences of CUDA eager mode
that `target="cuda"` applies. Each says where it comes from and what has confirmed it; none has met a GPU yet in this
project. Must never import anything of ours but `shortcuts`.

1. Dropout keeps a bool mask, one byte a value, not a float one. Source: aten/native/Dropout.cpp,
   `is_fused_kernel_acceptable`. Confirmed: by reading.
2. The optimizer updates all tensors at once (`foreach`), so Adam's temporaries are as large as the network. Source:
   torch/optim/optimizer.py, `_default_to_fused_or_foreach`. Confirmed: against `foreach=True` on real CPU tensors.
3. The engine adds the gradients of a branch in place. Source: torch/csrc/autograd/input_buffer.cpp,
   `can_accumulate_inplace`. Confirmed: by the allocator's records of unwatched CPU runs. It is an effect of not being
   watched: under any dispatch mode the engine adds out of place, so `target="cpu"`, which must equal what such an
   observer sees, does not apply it.
4. cuBLAS workspace, kept from the first product on: one for the thread that runs forward, one for autograd's. Source:
   aten/cuda/CublasHandlePool.cpp. Confirmed: 8,519,680 bytes have been seen on cards before Hopper; that there are two,
   by reading.
5. Attention runs the memory-efficient kernel in float32 and flash attention in half precision. Source:
   aten/native/transformers/cuda/sdp_utils.cpp. Confirmed: by reading.
6. Adam's step counters stay in host memory. Source: torch/optim/adam.py, `capturable=False`. Confirmed: by reading.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from course_utils.shortcuts import SHORTCUTS

aten = torch.ops.aten

# Bytes a cuBLAS handle asks of the allocator by default on cards before Hopper: 2 x 4096 KiB + 8 x 16 KiB
# (CUBLAS_WORKSPACE_CONFIG ":4096:2:16:8"). On Hopper it is 32 MiB.
CUBLAS_WORKSPACE = 2 * 4096 * 1024 + 8 * 16 * 1024
MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmv", "addbmm"})


def flat_tensors(values: Any) -> list[Tensor]:
    """The tensors among arguments or results, lists of tensors opened."""
    found: list[Tensor] = []
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, Tensor))
    return found


# -- Attention: which operator a device runs ---------------------------------------------------------------------


class _FirstAttention(TorchDispatchMode):
    """Notes whether torch's CPU dispatch chose its fused attention."""

    fused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.fused = self.fused or func is aten._scaled_dot_product_flash_attention_for_cpu.default
        return func(*args, **(kwargs or {}))


def _cpu_picks_fused(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, **options: Any) -> bool:
    """Ask torch itself, on fake CPU tensors of the same shape and layout."""
    with _disable_current_modes(), FakeTensorMode(), _FirstAttention() as choice:  # type: ignore[no-untyped-call]
        fake: list[Any] = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, requires_grad=t.requires_grad) for t in (q, k, v)
        ]
        mask = None
        if attn_mask is not None:
            mask = torch.empty_strided(attn_mask.shape, attn_mask.stride(), dtype=attn_mask.dtype)
        _ORIGINAL_ATTENTION(fake[0], fake[1], fake[2], mask, **options)
    return bool(choice.fused)


_ORIGINAL_ATTENTION = nn.functional.scaled_dot_product_attention


def _as_bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """What the fused kernels take: 0 or minus infinity for every value of a bool mask."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-torch.inf, dtype=query.dtype, device=query.device))


def _first(results: tuple[Tensor, ...]) -> Tensor:
    return results[0]


@dataclass
class AttentionCalls:
    """What `attention` has routed: `unfused` tells whether a call took the unfused path because the target would."""

    unfused: bool = False


@contextmanager
def attention(target: str) -> Iterator[AttentionCalls]:
    """While active, `scaled_dot_product_attention` on meta tensors runs the operator that `target` would run.

    Meta tensors by themselves always take the unfused path, whose maps grow with the square of the sequence.
    """
    calls = AttentionCalls()

    def traced(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        options: dict[str, Any] = {
            "attn_mask": attn_mask,
            "dropout_p": dropout_p,
            "is_causal": is_causal,
            "scale": scale,
        }
        plain = query.dim() == 4 and not enable_gqa
        if query.device.type != "meta" or not plain:
            calls.unfused = True
            return _ORIGINAL_ATTENTION(query, key, value, enable_gqa=enable_gqa, **options)
        if target == "cuda":
            half = query.dtype in (torch.float16, torch.bfloat16)
            if half and attn_mask is None and query.shape[-1] <= 256:
                flash = aten._scaled_dot_product_flash_attention
                return _first(flash(query, key, value, dropout_p, is_causal, False, scale=scale))
            bias = _as_bias(attn_mask, query)
            if bias is not None:
                bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            needs = query.requires_grad or key.requires_grad or value.requires_grad
            efficient = aten._scaled_dot_product_efficient_attention
            return _first(efficient(query, key, value, bias, needs, dropout_p, is_causal, scale=scale))
        if _cpu_picks_fused(query, key, value, **options):
            flash = aten._scaled_dot_product_flash_attention_for_cpu
            bias = _as_bias(attn_mask, query)
            return _first(flash(query, key, value, dropout_p, is_causal, attn_mask=bias, scale=scale))
        calls.unfused = True
        return _ORIGINAL_ATTENTION(query, key, value, **options)

    with mock.patch.object(nn.functional, "scaled_dot_product_attention", traced):
        yield calls


# -- The differences of CUDA eager mode --------------------------------------------------------------------------


def dropout_masks(ops: Iterable[tuple[str, list[int | None], list[int | None]]]) -> Iterator[int]:
    """Storages that are one byte a value on CUDA: the float mask of an unfused, out-of-place dropout.

    Args:
        ops: (operator, storages read, storages written) in order.

    Yields:
        The storage of each mask: made by `empty_like`, filled by `bernoulli_`, and multiplied out of place.
    """
    made: set[int | None] = set()
    filled: set[int | None] = set()
    for op, read, written in ops:
        if op == "empty_like":
            made.update(written)
        elif op == "bernoulli_" and read[0] in made:
            filled.add(read[0])
        elif op == "mul_":  # in place: not fused
            filled.difference_update(read)
        elif op == "mul":
            for mask in filled.intersection(read):
                filled.discard(mask)
                if mask is not None:
                    yield mask


def may_add_in_place(left: Tensor) -> bool:
    """Whether the engine may write the sum of two gradients over the first: a view shares its storage with its base."""
    return not left._is_view()


class _SkipWrites(TorchDispatchMode):
    """Runs shortcuts where there are any; for work whose shapes matter and whose record does not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shortcut = SHORTCUTS.get(func)
        out = NotImplemented if shortcut is None else shortcut(args, kwargs or {})
        return func(*args, **(kwargs or {})) if out is NotImplemented else out


def writes_skipped() -> _SkipWrites:
    """A mode in which meta operators with a shortcut take it, so that an optimizer makes its state quickly."""
    return _SkipWrites()  # type: ignore[no-untyped-call]


# CUDA's autocast runs these in float32 where CPU's leaves them as they come (torch/autocast_mode.h, AT_FORALL_FP32 and
# AT_FORALL_FP32_SET_OPT_DTYPE); the ones a course network may meet.
CUDA_FLOAT32 = (
    "layer_norm", "group_norm", "exp", "log", "pow.Tensor_Scalar", "rsqrt", "reciprocal", "softplus", "nll_loss",
    "nll_loss2d", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits",
    "cosine_similarity",
)  # fmt: skip
CUDA_FLOAT32_RESULT = ("softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "prod", "cumsum")


@contextmanager
def autocast(dtype: torch.dtype, target: str) -> Iterator[None]:
    """Autocast for fake CPU tensors, with CUDA's list of float32 operators if the target is CUDA."""
    with torch.autocast("cpu", dtype=dtype):
        if target == "cpu":
            yield
            return
        library = torch.library.Library("aten", "IMPL")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some stand in for a CPU rule
                for name in CUDA_FLOAT32:
                    library.impl(name, _in_float32(_overload(name), by_dtype=False), "AutocastCPU")
                for name in CUDA_FLOAT32_RESULT:
                    library.impl(name, _in_float32(_overload(name), by_dtype=True), "AutocastCPU")
            yield
        finally:
            library._destroy()


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _in_float32(operator: Any, by_dtype: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            if by_dtype:
                if args[0].dtype in (torch.float16, torch.bfloat16) and kwargs.get("dtype") is None:
                    kwargs["dtype"] = torch.float32
                return operator(*args, **kwargs)
            cast = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
            return operator(*cast, **kwargs)

    return run


FUSED_RECURRENCE = (nn.RNN, nn.LSTM, nn.GRU)


def fused_recurrence(module: nn.Module) -> str | None:
    """The path of a layer whose fused kernel hides its buffers from any trace, if there is one."""
    for path, child in module.named_modules():
        if isinstance(child, FUSED_RECURRENCE):
            return f"{path or 'the network'} ({type(child).__name__})"
    return None
