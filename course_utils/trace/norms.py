"""Shapes of norms and of their gradients, as `course_utils.trace.shortcuts` gives those of other operators."""

from typing import Any

import torch
from torch import Tensor

from course_utils.trace.layouts import empty, iterated, suggested
from course_utils.trace.overrides import HALF, target


def batch_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In plain order also where a map of one pixel has the strides of channels last, as the CPU's kernel has it."""
    x, training = args[0], args[5]
    out = suggested(x.shape, x)
    if not training:  # the meta kernel keeps statistics; the CPU's kernel and cuDNN's do not
        return out, empty((0,), x), empty((0,), x)
    if args[1] is None and target() == "cuda":
        return NotImplemented
    # Statistics are kept in the precision of the weights, float32 also under autocast; on the CPU, where there are no
    # weights, in that of the running statistics or of the input.
    like = next(tensor for tensor in (args[1], args[3], x) if tensor is not None)
    return out, empty((x.shape[1],), like), empty((x.shape[1],), like)


def batch_norm_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only the gradients that are wanted; torch's meta kernel makes that of the input in any case."""
    x, weight, wanted = args[1], args[2], args[9]
    return (
        suggested(x.shape, x) if wanted[0] else None,
        iterated(weight) if wanted[1] else None,
        iterated(weight) if wanted[2] else None,
    )


def _mixed_on_cpu(x: Tensor, weights: tuple[Tensor | None, ...]) -> bool:
    """Whether a norm on the CPU reads half precision with weights in float32: then its statistics are float32 too.

    torch's fake tensors say half. Source: aten/native/mixed_data_type.h, `is_mixed_type` and `param_scalar_type`.
    """
    if x.dtype not in HALF or x.is_meta or target() == "cuda":
        return False
    return {t.dtype for t in weights if t is not None} == {torch.float32}


def layer_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Statistics of half precision are float32, on CUDA as on meta; on the CPU where the weights are."""
    x, shape, weight, bias = args[:4]
    half, mixed = x.dtype in HALF, _mixed_on_cpu(x, (weight, bias))
    if not (x.is_meta or mixed if half else x.is_floating_point()) or len(shape) > x.dim():
        return NotImplemented
    of = torch.float32 if mixed else x.dtype
    if any(t is not None and (t.dtype != of or tuple(t.shape) != tuple(shape)) for t in (weight, bias)):
        return NotImplemented
    rows = x.dim() - len(shape)
    if tuple(x.shape[rows:]) != tuple(shape):
        return NotImplemented
    statistics = (*x.shape[:rows], *(1,) * len(shape))
    mean, rstd = (torch.empty(statistics, dtype=torch.float32 if half else x.dtype, device=x.device) for _ in range(2))
    return empty(x.shape, x), mean, rstd


def layer_norm_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only the gradients that are wanted, of one dtype with the input and the weights."""
    gradient, x, _shape, mean, _rstd, weight, bias, wanted = args
    if gradient.dtype != x.dtype or mean.dtype not in (x.dtype, torch.float32):
        return NotImplemented
    if x.numel() == 0 or any(t is not None and t.dtype != x.dtype for t in (weight, bias)):
        return NotImplemented
    return (
        empty(x.shape, x) if wanted[0] else None,
        iterated(weight) if wanted[1] and weight is not None else None,
        iterated(bias) if wanted[2] and bias is not None else None,
    )


def group_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Statistics of each group in the dtype of the input; on the CPU in that of the weights."""
    x, weight, bias, samples, _channels, _pixels, groups, _eps = args
    mixed = _mixed_on_cpu(x, (weight, bias))
    if x.dtype not in (torch.float32, torch.float64) and not mixed:
        return NotImplemented
    of = weight if mixed and weight is not None else bias if mixed else x
    if any(t is not None and t.dtype != of.dtype for t in (weight, bias)):
        return NotImplemented
    return suggested(x.shape, x), empty((samples, groups), of), empty((samples, groups), of)


def group_norm_backward(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Only the gradients that are wanted."""
    gradient, x, mean, _rstd, weight, _samples, channels, _pixels, _groups, wanted = args
    mixed = _mixed_on_cpu(x, (weight,)) and gradient.dtype == x.dtype
    of = weight if mixed else x
    if any(t is not None and t.dtype != of.dtype for t in (mean, weight, *(() if mixed else (gradient,)))):
        return NotImplemented
    made = (suggested(x.shape, x), empty((channels,), of), empty((channels,), of))
    return tuple(tensor if want else None for tensor, want in zip(made, wanted, strict=True))
