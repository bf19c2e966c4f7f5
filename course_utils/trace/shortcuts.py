"""Shapes of operators whose meta kernels are slow Python: the same results, without it.

Each shortcut takes an operator's arguments and returns what the meta kernel would, or NotImplemented where the case is
not the plain one; then torch's own kernel runs. operators.toml says under [shortcuts] which operators each is for;
tests/library/test_shortcuts.py holds every shortcut against that kernel.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

from course_utils.trace import norms
from course_utils.trace.layouts import as_images, each, empty, iterated, layout_of_convolution, suggested, windows
from course_utils.trace.operators import SHORTCUTS_FOR
from course_utils.trace.overrides import overload, target

aten = torch.ops.aten

Shortcut = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _like_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    asked = kwargs.get("dtype") is not None or kwargs.get("memory_format") not in (None, torch.preserve_format)
    return NotImplemented if asked else iterated(args[0])


def _unary(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return iterated(args[0]) if args[0].is_floating_point() else NotImplemented


def _arithmetic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_binary`, also of whole numbers."""
    first, second = args[0], args[1]
    number = second.dtype if isinstance(second, Tensor) else type(second)
    whole = isinstance(first, Tensor) and first.dtype == torch.int64 and number in (torch.int64, int)
    return _binary(args, kwargs, whole and not kwargs)


def _binary(args: tuple[Any, ...], kwargs: dict[str, Any], whole: bool = False) -> Any:
    """Elementwise on two tensors of one dtype, or on one and a number; in floats, or in `whole` numbers."""
    first, second = args[0], args[1]
    if not isinstance(first, Tensor) or not (whole or first.is_floating_point()):
        return NotImplemented
    if not isinstance(second, Tensor):
        return NotImplemented if isinstance(second, complex) else iterated(first)
    if first.dtype != second.dtype or first.device != second.device:
        return NotImplemented
    return iterated(first, second)


def _by_second(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Elementwise, where the kernel takes its second argument first."""
    return _binary((args[1], args[0]), kwargs)


def _in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Writes into its first argument: no shape to compute. Values that are real (step counters) are still written."""
    first = args[0]
    has_values = not (first.is_meta or isinstance(first, FakeTensor))
    if has_values or any(isinstance(a, Tensor) and a.shape != first.shape for a in args[1:]):
        return NotImplemented
    return first


def _by_sixth(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _binary((args[0], args[5]), kwargs)


def _plain_like_second(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients of losses (aten/native/Loss.cpp, LossNLL.cpp) and of gated halves (GatedLinearUnit.cpp), in order."""
    return empty(args[1].shape, args[1]) if args[0].dtype == args[1].dtype else NotImplemented


def _unpadded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In plain order on CUDA (aten/native/cuda/ReflectionPad.cu), on the CPU in the layout of the images."""
    x = args[1]
    return empty(x.shape, x) if target() == "cuda" else suggested(x.shape, x)


def _log_sigmoid(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """With what the CPU's kernel keeps for the backward pass; CUDA's keeps nothing (native/cuda/Activation.cpp)."""
    x = args[0]
    return (iterated(x), empty((0,), x)) if target() == "cuda" else (empty(x.shape, x), empty(x.shape, x))


def _roll(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The CPU cuts a tensor and joins its parts, in a layout for images; CUDA's kernel writes in plain order."""
    x, shifts, dimensions = args if len(args) > 2 else (*args, ())
    if not dimensions or x.dim() != 4 or target() == "cuda":
        return NotImplemented
    stays = any(s % x.shape[d] == 0 for s, d in zip(shifts, dimensions, strict=True))
    return NotImplemented if stays else suggested(x.shape, x)


def _in_place_each(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`_foreach_..._`: writes into every tensor of its first argument and returns nothing."""
    return None if all(tensor.is_meta for tensor in args[0]) else NotImplemented


def _unary_each(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    plain = all(tensor.is_meta and tensor.is_contiguous() for tensor in args[0])
    return [iterated(tensor) for tensor in args[0]] if plain else NotImplemented


def _convolution(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, weight, _bias, stride, padding, dilation, transposed, more, groups = args
    layout = layout_of_convolution(x, weight)
    if layout is None or x.dim() != weight.dim() or x.dtype != weight.dtype or (transposed and weight.dim() != 4):
        return NotImplemented
    spatial = weight.dim() - 2
    window = [each(values, spatial) for values in (stride, padding, dilation)]
    if transposed:
        channels, found = weight.shape[0], weight.shape[1] * groups
        numbers = zip(x.shape[2:], weight.shape[2:], *window, each(more, spatial), strict=True)
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in numbers]
    else:
        channels, found = weight.shape[1] * groups, weight.shape[0]
        sizes = [windows(*numbers) for numbers in zip(x.shape[2:], weight.shape[2:], *window, strict=True)]
    if x.shape[1] != channels or found % groups or min(sizes, default=1) < 1:
        return NotImplemented
    return torch.empty((x.shape[0], found, *sizes), dtype=x.dtype, device=x.device, memory_format=layout)


def _convolution_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _gradient, x, weight, bias_sizes = args[:4]
    wanted, layout = args[10], layout_of_convolution(x, weight)
    if layout is None:
        return NotImplemented
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=layout) if wanted[0] else None,
        torch.empty(weight.shape, dtype=x.dtype, device=x.device, memory_format=layout) if wanted[1] else None,
        empty(bias_sizes, weight) if wanted[2] else None,
    )


def _max_pool(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, kernel = args[:2]
    defaults: tuple[Any, ...] = ([], 0, 1, False)
    stride, padding, dilation, ceil = (*args[2:], *defaults[len(args) - 2 :])
    if x.dim() != 4 or not x.is_contiguous():
        return NotImplemented
    window = [each(v if isinstance(v, list) else [v], 2) for v in (kernel, stride or kernel, padding, dilation)]
    sizes = [windows(n, k, s, p, d, ceil) for n, k, s, p, d in zip(x.shape[2:], *window, strict=True)]
    if min(sizes) < 1:
        return NotImplemented
    out = empty((*x.shape[:2], *sizes), x)
    return out, torch.empty(out.shape, dtype=torch.int64, device=x.device)


def _like_second(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return iterated(args[1]) if args[1].is_contiguous() else NotImplemented


def _sum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Over some dimensions; in plain order, whatever that of the tensor (ReduceOpsUtils.h, `resize_reduction`)."""
    x, dimensions = args[0], args[1]
    if not x.is_floating_point() or not dimensions or kwargs.get("dtype") is not None:
        return NotImplemented
    gone = {d % x.dim() for d in dimensions} if x.dim() else set()
    if len(gone) != len(dimensions):
        return NotImplemented
    keep = args[2] if len(args) > 2 else False
    return empty((1 if d in gone else n for d, n in enumerate(x.shape) if keep or d not in gone), x)


def _vector_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _sum((args[0], *args[2:]), kwargs) if len(args) > 2 else NotImplemented


def _softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, _dimension, to_float32 = args
    return NotImplemented if to_float32 else empty(x.shape, x)


def _softmax_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, output, _dimension, dtype = args
    if not gradient.dtype == output.dtype == dtype or gradient.shape != output.shape:
        return NotImplemented
    return empty(gradient.shape, gradient)


def _cat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In the layout that all tensors suggest (aten/native/TensorShape.cpp, `cat_compute_output_memory_format`)."""
    tensors, dimension = args[0], args[1] if len(args) > 1 else 0
    layouts = {*map(suggest_memory_format, tensors)}
    tensors = [t for t in tensors if t.shape != (0,)] or tensors  # nothing goes with anything: torch's old rule
    first, axis = tensors[0], dimension % max(1, tensors[0].dim())
    shape = list(first.shape)
    for other in tensors:
        if other.dtype != first.dtype or other.dim() != first.dim():
            return NotImplemented
        if any(a != b for d, (a, b) in enumerate(zip(shape, other.shape, strict=True)) if d != axis):
            return NotImplemented
    shape[axis] = sum(t.shape[axis] for t in tensors)
    layout = layouts.pop() if len(layouts) == 1 else torch.contiguous_format
    return torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=layout)


def _larger(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Maps interpolated to another size, which is the second argument."""
    x, size = args[:2]
    return NotImplemented if size is None else as_images((*x.shape[:2], *size), x)


def _larger_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return as_images(args[2], args[0])


def _product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    first, second = args
    if first.dim() != 2 or second.dim() != 2 or first.shape[1] != second.shape[0] or first.dtype != second.dtype:
        return NotImplemented
    return empty((first.shape[0], second.shape[1]), first)


def _bias_and_product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bias, first, second = args
    if bias.dim() != 1 or bias.shape[0] != second.shape[1]:
        return NotImplemented
    return _product((first, second), kwargs)


def _grouped_product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A product for every group of rows (`offs`) or of matrices; rows of the result begin at multiples of 16 bytes.

    The meta kernel takes bfloat16 alone, and pads in builds for CUDA alone. Source: aten/native/GroupedMMUtils.h,
    `create_grouped_gemm_output_tensor`, which the CPU runs too.
    """
    first, second = args[:2]
    offsets: Tensor | None = args[2] if len(args) > 2 else kwargs.get("offs")
    if first.dtype != second.dtype or first.dtype == torch.float64 or {*map(Tensor.dim, (first, second))} - {2, 3}:
        return NotImplemented
    if kwargs.get("out_dtype") not in (None, first.dtype) or (offsets is None) != (first.dim() == second.dim() == 3):
        return NotImplemented
    both = first.dim() == second.dim()
    rows, columns = first.shape[-2], second.shape[-1]
    groups = () if not both else (len(first if offsets is None else offsets),)
    unit = 16 // first.element_size()
    padded = -(-columns // unit) * unit
    strides = (rows * padded, padded, 1) if both else (padded, 1)
    return torch.empty_strided((*groups, rows, columns), strides, dtype=first.dtype, device=first.device)


def _unfolded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Windows as columns, in a storage made as large as the input and then resized (aten/native/Im2Col.cpp)."""
    x, window = args[0], list(zip(*args[1:5], strict=False))  # per dimension: size, dilation, padding, stride
    if x.dim() != 4 or len(window) != 2:
        return NotImplemented
    counts = [windows(n, k, s, p, d) for n, (k, d, p, s) in zip(x.shape[2:], window, strict=True)]
    kernel = window[0][0] * window[1][0]
    return empty(x.shape, x).resize_(x.shape[0], x.shape[1] * kernel, counts[0] * counts[1])


def _folded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Columns summed into maps: in a storage as large as the columns (aten/native/Col2Im.cpp and its CUDA twin)."""
    x, size, kernel = args[:3]
    if x.dim() != 3 or len(size) != 2 or len(kernel) != 2 or x.shape[1] % (kernel[0] * kernel[1]):
        return NotImplemented
    return empty(x.shape, x).resize_(x.shape[0], x.shape[1] // (kernel[0] * kernel[1]), *size)


def _reduced_loss(place: int) -> Shortcut:
    """A loss with its reduction as argument `place`: the one number keeps the storage of the losses it was made from.

    The meta kernels make four bytes. Source: aten/native/Loss.cpp and cuda/Loss.cu, which write into the result and
    then resize it.
    """

    def shortcut(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second = args[:2]
        reduction = args[place] if len(args) > place else kwargs.get("reduction", 1)
        if reduction == 0 and place == 3:
            return aten.empty_like.default(first)
        if reduction == 0 or first.shape != second.shape or first.dtype != second.dtype:
            return NotImplemented
        return empty(first.shape, first).resize_(())

    return shortcut


def _class_loss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The mean or sum of negative log likelihoods, and the sum of the weights: one number each."""
    x, classes, _weights, reduction, _ignored = args
    if x.dim() != 2 or classes.shape != x.shape[:1] or reduction == 0:
        return NotImplemented
    return empty((), x), empty((), x)


def _embedding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A row for each index, which real kernels refuse to be a float; meta kernels before torch 2.13 do not."""
    weight, indices = args[:2]
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"expected indices of one of the scalar types: Long, Int; but got {indices.dtype}")
    return empty((*indices.shape, weight.shape[1]), weight)


_loss_reduced_by_third, _loss_reduced_by_fourth = _reduced_loss(2), _reduced_loss(3)
_FUNCTIONS = {name.removeprefix("_"): function for name, function in (vars(norms) | globals()).items()}
SHORTCUTS: dict[Any, Shortcut] = {
    overload(operator): _FUNCTIONS[name] for name, operators in SHORTCUTS_FOR.items() for operator in operators
}
