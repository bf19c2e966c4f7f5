"""What real kernels allocate, where that differs from the meta kernels a trace runs.

Three things live here: shortcuts for operators whose meta kernels are slow (shape in, shape out); the operator that each
device picks for attention; and the named differences of CUDA eager mode that `target="cuda"` applies. Every difference
says where it comes from and what has confirmed it. Must never import anything of ours but `units`.

| difference of CUDA eager | source | confirmed |
|---|---|---|
| dropout keeps a bool mask, 1 byte a value, not a float one | aten/native/Dropout.cpp, `is_fused_kernel_acceptable` | source |
| the optimizer updates all tensors at once (`foreach`), so Adam's temporaries are as large as the network | torch/optim/optimizer.py, `_default_to_fused_or_foreach` | against foreach on CPU tensors |
| the engine adds gradients of a branch in place | torch/csrc/autograd/input_buffer.cpp, `can_accumulate_inplace` | allocator records of unwatched CPU runs |
| cuBLAS workspace, kept from the first product on, one for the thread that runs forward and one for autograd's | aten/cuda/CublasHandlePool.cpp | 8,519,680 bytes seen on cards before Hopper |
| attention runs the memory-efficient kernel in float32, flash attention in half precision | aten/native/transformers/cuda/sdp_utils.cpp | source |
| Adam's step counters stay in host memory | torch/optim/adam.py, `capturable=False` | source |

No row has met a GPU yet in this project. The third is an effect of being watched: with any dispatch mode on, the engine adds
out of place, so `target="cpu"`, which must equal what such an observer sees, does not apply it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# Bytes a cuBLAS handle asks of the allocator by default on cards before Hopper: 2 x 4096 KiB + 8 x 16 KiB
# (CUBLAS_WORKSPACE_CONFIG ":4096:2:16:8"). On Hopper it is 32 MiB.
CUBLAS_WORKSPACE = 2 * 4096 * 1024 + 8 * 16 * 1024
MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmv", "addbmm"})

Shortcut = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def flat_tensors(values: Any) -> list[Tensor]:
    """The tensors among arguments or results, lists of tensors opened."""
    found: list[Tensor] = []
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, Tensor))
    return found


# -- Shortcuts: the same results as the meta kernels, without their Python ------------------------------------------------


def _like_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.empty_like(args[0])


def _like_both(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Elementwise on two tensors of one shape, dtype and layout."""
    first, second = args[0], args[1]
    if not isinstance(first, Tensor):
        return NotImplemented
    if isinstance(second, Tensor):
        if first.shape != second.shape or first.dtype != second.dtype or first.stride() != second.stride():
            return NotImplemented
    elif not first.is_floating_point() or isinstance(second, complex):
        return NotImplemented
    return torch.empty_like(first)


def _in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Writes into its first argument: no shape to compute. Values that are real (step counters) are still written."""
    first = args[0]
    others = [a for a in args[1:] if isinstance(a, Tensor)]
    if first.device.type != "meta" or any(other.shape != first.shape for other in others):
        return NotImplemented
    return first


def _convolution_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _convolution(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, bias, stride, padding, dilation, transposed, _output_padding, groups = args
    spatial = weight.dim() - 2
    if transposed or x.dim() != weight.dim() or not x.is_contiguous() or not weight.is_contiguous() or x.dtype != weight.dtype:
        return NotImplemented
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        return NotImplemented

    def each(values: list[int]) -> list[int]:
        return list(values) if len(values) == spatial else list(values) * spatial

    sizes = [
        _convolution_size(*numbers)
        for numbers in zip(x.shape[2:], weight.shape[2:], each(stride), each(padding), each(dilation), strict=True)
    ]
    if min(sizes, default=1) < 1:
        return NotImplemented
    return x.new_empty((x.shape[0], weight.shape[0], *sizes))


def _convolution_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _gradient, x, weight, bias_sizes = args[:4]
    wanted = args[10]
    return (
        torch.empty_like(x) if wanted[0] else None,
        torch.empty_like(weight) if wanted[1] else None,
        weight.new_empty(bias_sizes) if wanted[2] else None,
    )


def _batch_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, _bias, _mean, _variance, training = args[:6]
    if x.dtype != torch.float32:
        return NotImplemented
    saved = x.shape[1] if training else 0
    return torch.empty_like(x), x.new_empty(saved), x.new_empty(saved)


def _batch_norm_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, x, wanted = args[0], args[1], args[9]
    if x.dtype != torch.float32:
        return NotImplemented
    channels = x.shape[1]
    return (
        torch.empty_like(x) if wanted[0] else None,
        gradient.new_empty(channels) if wanted[1] else None,
        gradient.new_empty(channels) if wanted[2] else None,
    )


def _product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    first, second = args
    if first.dim() != 2 or second.dim() != 2 or first.shape[1] != second.shape[0] or first.dtype != second.dtype:
        return NotImplemented
    return first.new_empty((first.shape[0], second.shape[1]))


def _bias_and_product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bias, first, second = args
    if bias.dim() != 1 or first.shape[1] != second.shape[0] or bias.shape[0] != second.shape[1]:
        return NotImplemented
    return first.new_empty((first.shape[0], second.shape[1]))


SHORTCUTS: dict[Any, Shortcut] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.mm.default: _product,
    aten.addmm.default: _bias_and_product,
    aten.relu.default: _like_first,
    aten.tanh.default: _like_first,
    aten.sigmoid.default: _like_first,
    aten.sqrt.default: _like_first,
    aten.gelu.default: _like_first,
    aten.silu.default: _like_first,
    aten.threshold_backward.default: _like_both,
    aten.tanh_backward.default: _like_both,
    aten.sigmoid_backward.default: _like_both,
    aten.gelu_backward.default: _like_both,
    aten.silu_backward.default: _like_both,
    aten.add.Tensor: _like_both,
    aten.mul.Tensor: _like_both,
    aten.mul.Scalar: _like_both,
    aten.div.Tensor: _like_both,
    aten.div.Scalar: _like_both,
    **{
        operator: _in_place
        for operator in (
            aten.relu_.default, aten.add_.Tensor, aten.mul_.Tensor, aten.div_.Scalar, aten.div_.Tensor,
            aten.bernoulli_.float, aten.lerp_.Scalar, aten.addcmul_.default, aten.addcdiv_.default, aten.sqrt_.default,
            aten.copy_.default, aten.zero_.default, aten.fill_.Scalar,
        )
    },
}  # fmt: skip


# -- Attention: which operator a device runs -------------------------------------------------------------------------------


class _FirstAttention(TorchDispatchMode):
    """Notes whether torch's CPU dispatch chose its fused attention."""

    fused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.fused = self.fused or func is aten._scaled_dot_product_flash_attention_for_cpu.default
        return func(*args, **(kwargs or {}))


def _cpu_picks_fused(q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> bool:
    """Ask torch itself, on fake CPU tensors of the same shape and layout."""
    original = _ORIGINAL_ATTENTION
    with FakeTensorMode(), _FirstAttention() as choice:
        fake = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, requires_grad=t.requires_grad) for t in (q, k, v)]
        mask = args[0] if args else kwargs.pop("attn_mask", None)
        if isinstance(mask, Tensor):
            mask = torch.empty_strided(mask.shape, mask.stride(), dtype=mask.dtype)
        original(*fake, mask, *args[1:], **kwargs)
    return choice.fused


_ORIGINAL_ATTENTION = nn.functional.scaled_dot_product_attention


@contextmanager
def attention(target: str) -> Iterator[None]:
    """While active, `scaled_dot_product_attention` on meta tensors runs the operator that `target` would run.

    Meta tensors by themselves always take the unfused path, whose maps grow with the square of the sequence.
    """

    def traced(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        options = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
        plain = query.dim() == 4 and not enable_gqa
        if query.device.type != "meta" or not plain:
            return _ORIGINAL_ATTENTION(query, key, value, enable_gqa=enable_gqa, **options)
        if target == "cuda":
            half = query.dtype in (torch.float16, torch.bfloat16)
            if half and attn_mask is None and query.shape[-1] <= 256:
                return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
            bias = attn_mask if attn_mask is None or attn_mask.dtype != torch.bool else attn_mask.to(query.dtype)
            if bias is not None:
                bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            needs = query.requires_grad or key.requires_grad or value.requires_grad
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, needs, dropout_p, is_causal, scale=scale
            )[0]
        if _cpu_picks_fused(query, key, value, **options):
            return aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
            )[0]
        return _ORIGINAL_ATTENTION(query, key, value, **options)

    with mock.patch.object(nn.functional, "scaled_dot_product_attention", traced):
        yield


# -- The differences of CUDA eager mode ------------------------------------------------------------------------------------


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
        elif op == "mul":
            for mask in filled.intersection(read):
                filled.discard(mask)
                if mask is not None:
                    yield mask


def may_add_in_place(left: Tensor, total: Tensor) -> bool:
    """Whether the engine would write the sum of two gradients over the first: dense, alone in its storage, same size."""
    whole = left.untyped_storage().nbytes() == left.numel() * left.element_size()
    return whole and left.shape == total.shape and left.dtype == total.dtype


class _SkipWrites(TorchDispatchMode):
    """Runs shortcuts where there are any; for work whose shapes matter and whose record does not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shortcut = SHORTCUTS.get(func)
        out = NotImplemented if shortcut is None else shortcut(args, kwargs or {})
        return func(*args, **(kwargs or {})) if out is NotImplemented else out


def writes_skipped() -> _SkipWrites:
    """A mode in which meta operators with a shortcut take it, so that an optimizer makes its state quickly."""
    return _SkipWrites()


# CUDA's autocast runs these in float32 where CPU's leaves them as they come (torch/autocast_mode.h, AT_FORALL_FP32 and
# AT_FORALL_FP32_SET_OPT_DTYPE); the ones a course network may meet.
CUDA_FLOAT32 = (
    "layer_norm", "group_norm", "exp", "log", "pow.Tensor_Scalar", "rsqrt", "reciprocal", "softplus", "nll_loss", "nll_loss2d",
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits", "cosine_similarity",
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
            library._destroy()  # type: ignore[no-untyped-call]


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
