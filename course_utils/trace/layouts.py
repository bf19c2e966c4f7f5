"""New tensors as torch's kernels lay them out in memory, and how many windows fit: what shortcuts are made of."""

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format


def empty(shape: Iterable[int], like: Tensor) -> Tensor:
    """A new tensor in plain order, of the dtype and on the device of another."""
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)


def iterated(*tensors: Tensor) -> Any:
    """What an elementwise kernel makes, in the dtype of the first; NotImplemented where shapes do not go together.

    Its dimensions are in the order of the first tensor that tells two of them apart, without gaps. Source:
    aten/src/ATen/TensorIterator.cpp, `compute_fast_setup_type` and `reorder_dimensions`.
    """
    first = tensors[0]
    alike = all(tensor.shape == first.shape for tensor in tensors)
    shape = first.shape if alike else _together(tensors)
    if shape is None:
        return NotImplemented
    if all(map(Tensor.is_contiguous if alike else in_order, tensors)):
        return empty(shape, first)
    if alike:
        if first.dim() == 4 and all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in tensors):
            return torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=torch.channels_last)
        one_layout = all(tensor.stride() == first.stride() for tensor in tensors)
        if one_layout and first.untyped_storage().nbytes() == first.nbytes and 0 not in first.stride():
            return torch.empty_strided(shape, first.stride(), dtype=first.dtype, device=first.device)
    steps = [_steps(tensor, shape) for tensor in tensors]
    order = [*range(len(shape))][::-1]  # innermost first
    for i in range(1, len(shape)):
        mine = i
        for other in range(i - 1, -1, -1):
            swap = _swap(order[other], order[mine], steps, shape)
            if swap > 0:
                order[other], order[mine], mine = order[mine], order[other], other
            elif swap < 0:
                break
    strides, step = [0] * len(shape), 1
    for dimension in order:
        strides[dimension], step = step, step * shape[dimension]
    return torch.empty_strided(shape, strides, dtype=first.dtype, device=first.device)


def _together(tensors: Sequence[Tensor]) -> Sequence[int] | None:
    """The shape that tensors are stretched to."""
    sizes = [{*column} - {1} for column in zip_longest(*(reversed(tensor.shape) for tensor in tensors), fillvalue=1)]
    return [size.pop() if size else 1 for size in reversed(sizes)] if all(len(size) < 2 for size in sizes) else None


def _steps(tensor: Tensor, shape: Sequence[int]) -> list[int]:
    """The strides of a tensor stretched to a shape: none where it is stretched."""
    missing = len(shape) - tensor.dim()
    sizes = zip(tensor.shape, shape[missing:], tensor.stride(), strict=True)
    return [0] * missing + [0 if n == 1 != wide else stride for n, wide, stride in sizes]


def _swap(inner: int, outer: int, steps: list[list[int]], shape: Sequence[int]) -> int:
    """1 if two dimensions must change places, -1 if not, 0 if no tensor tells."""
    for strides in steps:
        a, b = strides[inner], strides[outer]
        if a and b and a != b:
            return 1 if a > b else -1
        if a and b and shape[inner] > shape[outer]:
            return 1
    return 0


def order_of(tensor: Tensor) -> list[int] | None:
    """The dimensions from the longest steps in memory to the shortest; None where two might change places."""
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: -strides[d])
    steps = [strides[d] for d in order]
    certain = min(tensor.shape, default=0) > 1 and steps[-1] > 0 and all(a > b for a, b in pairwise(steps))
    return order if certain else None


def suggested(shape: Iterable[int], like: Tensor) -> Tensor:
    """A new tensor in the layout that kernels on images take from another: channels last, or plain whatever it has."""
    layout = suggest_memory_format(like) if not like.is_contiguous() else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=layout)


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


def layout_of_convolution(x: Tensor, weight: Tensor) -> torch.memory_format | None:
    """The layout a convolution works in: channels last if either tensor has it, as cuDNN and the CPU's library do.

    The meta kernel looks at the input alone. None for tensors in neither layout.
    """
    layouts = set()
    for tensor in (x, weight):
        last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        order = None if in_order(tensor) else order_of(tensor)  # a part of a tensor is made whole first
        if in_order(tensor) or order == [*range(tensor.dim())]:
            layouts.add(torch.contiguous_format)
        elif order == [0, 2, 3, 1] or (last and not tensor.is_contiguous()):
            layouts.add(torch.channels_last)
        else:  # neither, or, with a dimension of one, both
            return None
    return torch.channels_last if torch.channels_last in layouts else torch.contiguous_format
