"""New tensors as torch's kernels lay them out in memory, and how many windows fit: what shortcuts are made of."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


def empty(shape: Iterable[int], like: Tensor) -> Tensor:
    """A new tensor in plain order, of the dtype and on the device of another."""
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)


def twin(tensor: Tensor) -> Any:
    """A new tensor of the same shape, dtype and layout."""
    if not tensor.is_contiguous() and tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        return ordered_as(tensor)  # an expanded or cut tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def order_of(tensor: Tensor) -> list[int] | None:
    """The dimensions from the longest steps in memory to the shortest; None where two might change places."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: -strides[d])
    steps = [strides[d] for d in order]
    certain = min(tensor.shape, default=0) > 1 and steps[-1] > 0 and all(a > b for a, b in pairwise(steps))
    return order if certain else None


def ordered_as(tensor: Tensor) -> Any:
    """What an elementwise kernel makes: dimensions in the order of its first tensor, without gaps."""
    order = order_of(tensor)
    if order is None:
        return NotImplemented
    strides, step = [0] * tensor.dim(), 1
    for dimension in reversed(order):
        strides[dimension], step = step, step * tensor.shape[dimension]
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


def whole_like(x: Tensor) -> Any:
    """A tensor in the layout of one without gaps: plain, or of images channels last, where it has only one."""
    if x.is_contiguous():
        return empty(x.shape, x)
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and order_of(x) == [0, 2, 3, 1]
    return twin(x) if last else NotImplemented


def as_images(shape: Iterable[int], like: Tensor) -> Any:
    """A tensor of images in the layout of another, where it has only one."""
    if in_order(like) or order_of(like) == [0, 1, 2, 3]:
        return empty(shape, like)
    if order_of(like) != [0, 2, 3, 1]:
        return NotImplemented
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def in_order(tensor: Tensor) -> bool:
    """Contiguous, with the usual strides also where a dimension of one would allow others."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected:
            return False
        expected *= size
    return True


def windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool = False) -> int:
    """Positions of a sliding window, as convolution and pooling count them (aten/native/Pool.h)."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count


def each(values: list[int], dimensions: int) -> list[int]:
    """One value for every dimension, where one may stand for all."""
    return list(values) if len(values) == dimensions else list(values) * dimensions
