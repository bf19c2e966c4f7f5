"""Operators of torch's that trust their arguments: what must hold of these before one runs on those of a stranger.

On a CPU most operators look at every index and shape themselves. These do not: a backward pass takes for granted that
its forward pass has run. Each guard returns whether the arguments are such as that leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lessons.shared.replay.form import MOST_VALUES, Refused

ALL = 2**63 - 1  # the end of a slice to the end
KINDS = {"ScalarType": torch.dtype, "Layout": torch.layout, "MemoryFormat": torch.memory_format}


def require_kinds(function: Any, given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise Refused where an operator takes a number for what it is not, or a size that overflows in its arithmetic.

    To torch a dtype is a number, and it looks at none: the kernel falls on one that is no dtype's.
    """
    for place, one in enumerate(function._schema.arguments):
        value = given[place] if place < len(given) else named.get(one.name)
        kind = str(one.real_type).removeprefix("Optional[").removesuffix("]")
        if value is None:
            continue
        if kind in KINDS and not isinstance(value, KINDS[kind]):
            raise Refused(f"`{function.overloadpacket.__name__}` is given {value} for a {kind}")
        numbers = [abs(n) for n in (value if isinstance(value, list) else [value]) if isinstance(n, int)]
        if kind == "List[int" and one.name != "stride" and math.prod(numbers) > MOST_VALUES:
            raise Refused("a tensor is larger than any answer needs")
        if kind in ("int", "List[int") and not function.overloadpacket.__name__.startswith("randint"):
            for number in numbers:
                if number > MOST_VALUES and number != ALL:
                    raise Refused(f"`{function.overloadpacket.__name__}` is given {number}, more than any answer needs")


def _within(indices: Tensor, end: int, besides: int | None = None) -> bool:
    inside = (indices >= 0) & (indices < end)
    return bool((inside if besides is None else inside | (indices == besides)).all())


def _nll(
    grad: Tensor, scores: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, *_: Any
) -> bool:
    classes = scores.shape[-1]
    fits = scores.dim() in (1, 2) and target.shape == scores.shape[:-1] and grad.numel() in (1, target.numel())
    return fits and _within(target, classes, ignored) and (weight is None or weight.shape == (classes,))


def _embedding(grad: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool) -> bool:
    return not by_frequency and grad.shape[:-1] == indices.shape and _within(indices, rows, padding)


def _pooled(grad: Tensor, maps: Tensor, *given: Any) -> bool:
    indices = given[-1]
    same = grad.shape == indices.shape and grad.shape[:-2] == maps.shape[:-2] and grad.dim() == maps.dim() >= 3
    return same and indices.dtype is torch.int64 and _within(indices, math.prod(maps.shape[-2:]))


def _averaged(grad: Tensor, maps: Tensor) -> bool:
    return grad.dim() == maps.dim() >= 3 and grad.shape[:-2] == maps.shape[:-2]


def _padded(grad: Tensor, x: Tensor, padding: list[int]) -> bool:
    *_, height, width = (1, *x.shape)
    left, right, top, bottom = padding
    inside = min(padding) >= 0 and max(left, right) < width and max(top, bottom) < height
    sizes = (*x.shape[:-2], height + top + bottom, width + left + right)
    return inside and x.dim() in (3, 4) and tuple(grad.shape) == sizes


def _softmaxed(grad: Tensor, output: Tensor, *_: Any) -> bool:
    return grad.shape == output.shape and grad.dtype == output.dtype


def _convolved(grad: Tensor, maps: Tensor, weight: Tensor, _: Any, *given: Any) -> bool:
    out = torch.ops.aten.convolution(maps.to("meta"), weight.to("meta"), None, *given[:-1])
    return tuple(grad.shape) == tuple(out.shape)


def _batch_normed(grad: Tensor, maps: Tensor, weight: Tensor | None, *given: Any) -> bool:
    per_channel = (weight, *given[:4])
    return grad.shape == maps.shape and all(one is None or one.shape == maps.shape[1:2] for one in per_channel)


def _batch_norm(maps: Tensor, weight: Tensor | None, bias: Tensor | None, *given: Any) -> bool:
    stats = [one for one in given if isinstance(one, Tensor)]
    training = next((one for one in given if isinstance(one, bool)), False)
    per_channel = all(one is None or one.shape == maps.shape[1:2] for one in (weight, bias, *stats))
    return maps.dim() >= 2 and per_channel and (training or len(stats) == 2)


def _layer_normed(
    grad: Tensor, x: Tensor, shape: list[int], mean: Tensor, scale: Tensor, weight: Any, bias: Any, *_: Any
) -> bool:
    rows = x.numel() // max(1, math.prod(shape))
    ends = tuple(x.shape[x.dim() - len(shape) :]) == tuple(shape)
    each = all(one is None or tuple(one.shape) == tuple(shape) for one in (weight, bias))
    return ends and each and grad.shape == x.shape and mean.numel() == scale.numel() == rows


def _group_normed(
    grad: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Any, n: int, c: int, hw: int, groups: int, *_: Any
) -> bool:
    each = weight is None or weight.shape == (c,)
    sizes = x.shape[:2] == (n, c) and x.numel() == n * c * hw and groups > 0 and c % groups == 0
    return each and sizes and grad.shape == x.shape and mean.numel() == scale.numel() == n * groups


def _of_floats(*given: Any) -> bool:
    """Whole numbers would be divided by a bound that may be 0."""
    return all(one.is_floating_point() for one in given if isinstance(one, Tensor))


def _strided(*given: Any, **_: Any) -> bool:
    """Of a new tensor's strides too: they may lead far beyond its values."""
    size, stride = given[-2:]
    steps = [*size, *stride]  # of lists of numbers; a tensor in their place is none
    return all(isinstance(n, int) for n in steps) and sum(map(math.prod, zip(size, stride, strict=True))) <= MOST_VALUES


def _triangle(x: Tensor, diagonal: int = 0) -> bool:
    return True  # and nothing to write into, of whose strides it is not sure


GUARDS: dict[str, Callable[..., bool]] = {
    "_adaptive_avg_pool2d_backward": _averaged,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_log_softmax_backward_data": _softmaxed,
    "_softmax_backward_data": _softmaxed,
    "adaptive_max_pool2d_backward": _pooled,
    "convolution_backward": _convolved,
    "embedding_dense_backward": _embedding,
    "empty_strided": _strided,
    "max_pool2d_with_indices_backward": _pooled,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_normed,
    "native_group_norm_backward": _group_normed,
    "native_layer_norm_backward": _layer_normed,
    "new_empty_strided": _strided,
    "nll_loss_backward": _nll,
    "huber_loss_backward": _of_floats,
    "reflection_pad2d_backward": _padded,
    "replication_pad2d_backward": _padded,
    "smooth_l1_loss_backward": _of_floats,
    "tril": _triangle,
    "triu": _triangle,
}
