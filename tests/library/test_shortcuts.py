"""Shortcuts of `course_utils.trace.shortcuts` against torch's own kernels, on drawn arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from amount import share
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tensors import T, described, make

from course_utils.trace.shortcuts import SHORTCUTS

aten = torch.ops.aten


LAYOUTS = st.sampled_from(
    ["plain", "plain", "transposed", "channels last", "channels last, cut", "cut", "expanded", "permuted"]
)
DTYPES = st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float64])
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)
SMALL = st.integers(1, 4)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@st.composite
def unary(draw: Any) -> Arguments:
    return (T(draw(SHAPES), draw(LAYOUTS), draw(DTYPES)),), {}


@st.composite
def made_like(draw: Any) -> Arguments:
    options: dict[str, Any] = draw(
        st.sampled_from([{}, {"memory_format": torch.contiguous_format}, {"memory_format": torch.preserve_format}])
    )
    if draw(st.booleans()):
        options = {**options, "dtype": draw(DTYPES)}
    return (T(draw(SHAPES), draw(LAYOUTS), draw(DTYPES)),), options


@st.composite
def two_tensors(draw: Any, *more: Any, alike: bool = False) -> Arguments:
    """Two tensors that go together: of one shape, or the second one of another dtype, or stretched."""
    shape, dtype = draw(SHAPES), draw(DTYPES if alike else DTYPES | st.just(torch.int64))
    other_shape = tuple(draw(st.sampled_from([n, 1])) for n in shape) if not alike and draw(st.booleans()) else shape
    if not alike and draw(st.booleans()):
        other_shape = other_shape[draw(st.integers(0, len(shape) - 1)) :]
    other_dtype = dtype if alike else draw(st.sampled_from([dtype, dtype, torch.float32]))
    pair = T(shape, draw(LAYOUTS), dtype), T(other_shape, draw(LAYOUTS), other_dtype)
    return (*(pair[::-1] if not alike and draw(st.booleans()) else pair), *more), {}


@st.composite
def tensor_and_number(draw: Any) -> Arguments:
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64]))
    return (T(draw(SHAPES), draw(LAYOUTS), dtype), draw(st.sampled_from([2, 0.5]))), {}


@st.composite
def written(draw: Any, others: int, *more: Any) -> Arguments:
    """A whole tensor to be written into, and others of its shape."""
    shape = draw(SHAPES)
    others_made = [T(shape, draw(LAYOUTS)) for _ in range(others)]
    return (T(shape, draw(st.sampled_from(["plain", "transposed", "channels last"]))), *others_made, *more), {}


@st.composite
def lists(draw: Any, others: int, *more: Any, scalars: bool = False) -> Arguments:
    shapes = draw(st.lists(SHAPES, min_size=1, max_size=4))
    made = [[T(shape) for shape in shapes] for _ in range(1 + others)]
    return (*made, *more, *([[0.5] * len(shapes)] if scalars else [])), {}


@st.composite
def convolved(draw: Any, backward: bool = False) -> Arguments:
    transposed = draw(st.booleans())
    dims = 2 if transposed else draw(st.integers(1, 3))
    groups, dtype = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([torch.float32, torch.float64]))
    inputs, outputs = groups * draw(SMALL), groups * draw(SMALL)
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    stride, padding, dilation = ([draw(st.integers(low, 2)) for _ in range(dims)] for low in (1, 0, 1))
    # Large enough for the dilated kernel to fit at least once.
    sizes = [d * (k - 1) + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, dilation, strict=True)]
    x = T((draw(SMALL), inputs, *sizes), draw(LAYOUTS), dtype)
    weight = T((outputs, inputs // groups, *kernel), draw(st.sampled_from(["plain", "plain", "channels last"])), dtype)
    if draw(st.booleans()) and len(set(stride + padding)) == 1:
        stride, padding = stride[:1], padding[:1]  # one number for all dimensions
    if transposed:
        weight = T((inputs, outputs // groups, *kernel), weight.layout, dtype)
        padding = [min(p, *(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))) for p in padding]
    window = (stride, padding, dilation, transposed, [0] * dims, groups)
    if not backward:
        return (x, weight, draw(st.sampled_from([None, T((outputs,), dtype=dtype)])), *window), {}
    out = aten.convolution(x.make("meta"), weight.make("meta"), None, *window)
    # Asked for the bias alone, some of the CPU's libraries make the weight's gradient too, and throw it away.
    mask = draw(st.sampled_from([[True, True, True], [True, True, False], [False, True, True], [True, False, False]]))
    return (T(tuple(out.shape), draw(LAYOUTS), dtype), x, weight, [outputs], *window, mask), {}


@st.composite
def pooled(draw: Any, backward: bool = False) -> Arguments:
    kernel = draw(st.sampled_from([[2], [3], [2, 3], [1, 2]]))
    stride = draw(st.sampled_from([[], [1], [2], [2, 1], [3]]))
    padding, dilation, ceil = (
        draw(st.sampled_from([0, [0], [min(kernel) // 2]])),
        draw(st.integers(1, 2)),
        draw(st.booleans()),
    )
    side = st.integers(dilation * (max(kernel) - 1) + 1, 9)
    x = T((draw(SMALL), draw(SMALL), draw(side), draw(side)), draw(LAYOUTS), draw(DTYPES))
    window = (kernel, stride, padding, dilation, ceil)
    if not backward:
        return (x, *window[: draw(st.integers(1, 5))]), {}
    out = aten.max_pool2d_with_indices(x.make("meta"), *window)[0]
    indices = T(tuple(out.shape), dtype=torch.int64)  # ones: every window's largest value is at place 1
    return (T(tuple(out.shape), draw(LAYOUTS), x.dtype), x, *window, indices), {}


@st.composite
def normed(draw: Any, backward: bool = False) -> Arguments:
    channels = draw(SMALL)
    shape = (draw(st.integers(2, 4)), channels, *draw(st.sampled_from([(), (3,), (3, 2), (2, 1, 2)])))
    x, per_channel = T(shape, draw(LAYOUTS)), T((channels,))
    affine, training = draw(st.booleans()), draw(st.booleans())
    weight = per_channel if affine else None
    statistics = per_channel if not training or draw(st.booleans()) else None
    if not backward:
        return (x, weight, weight, statistics, statistics, training, 0.1, 1e-5), {}
    mask = [draw(st.booleans()), affine and draw(st.booleans()), affine and draw(st.booleans())]
    saved = per_channel if training else T((0,))
    return (T(shape, draw(LAYOUTS)), x, weight, statistics, statistics, saved, saved, training, 1e-5, mask), {}


@st.composite
def normed_by_groups(draw: Any, backward: bool = False) -> Arguments:
    groups, dtype = draw(SMALL), draw(DTYPES)
    samples, channels, size = draw(SMALL), groups * draw(SMALL), (draw(SMALL), draw(SMALL))
    layout = draw(st.sampled_from(["plain", "channels last"]))  # composite group norm makes sure of one of them
    x = T((samples, channels, *size), layout, dtype)
    weight = T((channels,), dtype=dtype) if draw(st.booleans()) else None
    numbers = (samples, channels, size[0] * size[1], groups)
    if not backward:
        return (x, weight, weight, *numbers, 1e-5), {}
    statistics = T((samples, groups), dtype=dtype)
    wanted = [layout != "plain" or draw(st.booleans())]  # channels last, the kernel cannot do without it
    wanted += [weight is not None and draw(st.booleans()) for _ in range(2)]
    gradient = T(x.shape, x.layout, dtype)  # autograd hands it over in the layout of x
    return (gradient, x, statistics, statistics, weight, *numbers, wanted), {}


@st.composite
def normed_by_rows(draw: Any, backward: bool = False) -> Arguments:
    shape, dtype = draw(SHAPES), draw(DTYPES)
    inner = shape[draw(st.integers(0, len(shape) - 1)) :]
    x = T(shape, draw(LAYOUTS), dtype)
    weight, bias = (T(inner, dtype=dtype) if draw(st.booleans()) else None for _ in range(2))
    if not backward:
        return (x, list(inner), weight, bias, 1e-5), {}
    statistics = T((*shape[: len(shape) - len(inner)], *(1,) * len(inner)), dtype=dtype)
    wanted = [draw(st.booleans()), weight is not None and draw(st.booleans()), bias is not None and draw(st.booleans())]
    gradient = T(shape, draw(LAYOUTS), dtype)
    return (gradient, x, list(inner), statistics, statistics, weight, bias, wanted), {}


@st.composite
def summed(draw: Any) -> Arguments:
    shape = draw(SHAPES)
    dimensions = draw(
        st.lists(st.integers(-len(shape), len(shape) - 1), max_size=3, unique_by=lambda d: d % len(shape))
    )
    return (T(shape, draw(LAYOUTS), draw(DTYPES)), dimensions, *draw(st.sampled_from([(), (True,), (False,)]))), {}


@st.composite
def normal(draw: Any) -> Arguments:
    (x, dimensions, *keep), _ = draw(summed())
    return (x, draw(st.sampled_from([1, 2])), dimensions, *keep), {}


@st.composite
def exponents(draw: Any, backward: bool = False) -> Arguments:
    shape, dtype = draw(SHAPES), draw(DTYPES)
    dimension = draw(st.integers(-len(shape), len(shape) - 1))
    if not backward:
        return (T(shape, draw(LAYOUTS), dtype), dimension, False), {}
    return (T(shape, draw(LAYOUTS), dtype), T(shape, draw(LAYOUTS), dtype), dimension, dtype), {}


@st.composite
def interpolated(draw: Any, bilinear: bool, backward: bool = False) -> Arguments:
    shape, size = tuple(draw(SMALL) for _ in range(4)), [draw(SMALL), draw(SMALL)]
    more = (draw(st.booleans()),) if bilinear else ()
    if backward:
        return (T((*shape[:2], *size), draw(LAYOUTS)), size, list(shape), *more), {}
    return (T(shape, draw(LAYOUTS)), size, *more), {}


@st.composite
def by_sixth(draw: Any) -> Arguments:
    (gradient, x), _ = draw(two_tensors(alike=True))
    return (gradient, 1.0, 1.0, 1.0, False, x), {}


@st.composite
def gradient_of_loss(draw: Any, *more: Any) -> Arguments:
    (x, target), _ = draw(two_tensors(alike=True))
    return (T((), dtype=x.dtype), x, target, draw(st.sampled_from([1, 2])), *more), {}


@st.composite
def gated(draw: Any) -> Arguments:
    shape = (draw(SMALL), draw(SMALL), draw(SMALL))
    return (T((shape[0], *shape), draw(LAYOUTS)), T((shape[0], 2 * shape[0], *shape[1:]), draw(LAYOUTS)), 1), {}


@st.composite
def padded(draw: Any) -> Arguments:
    height, width, shape = draw(st.integers(2, 5)), draw(st.integers(2, 5)), (draw(SMALL), draw(SMALL))
    x = T((*shape, height, width), draw(LAYOUTS))
    return (T((*shape, height + 2, width + 2), draw(LAYOUTS)), x, [1, 1, 1, 1]), {}


@st.composite
def rolled(draw: Any) -> Arguments:
    dimensions = draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True))
    x = T(tuple(draw(st.integers(2, 5)) for _ in range(4)), draw(LAYOUTS))
    return (x, [draw(st.integers(-2, 2)) for _ in dimensions], dimensions), {}


@st.composite
def folded(draw: Any, back: bool = False) -> Arguments:
    kernel, dilation, padding, stride = ([draw(st.integers(low, 3)) for _ in range(2)] for low in (1, 1, 0, 1))
    shape = (draw(SMALL), draw(SMALL), *(d * (k - 1) + draw(SMALL) for k, d in zip(kernel, dilation, strict=True)))
    x = T(shape, draw(LAYOUTS))
    if not back:
        return (x, kernel, dilation, padding, stride), {}
    columns = aten.im2col(x.make("meta"), kernel, dilation, padding, stride)
    return (T(tuple(columns.shape), draw(LAYOUTS)), list(shape[2:]), kernel, dilation, padding, stride), {}


@st.composite
def joined(draw: Any) -> Arguments:
    shape, dimension = list(draw(SHAPES)), 0
    dimension = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        shape[dimension] = draw(SMALL)
        parts.append(
            T(tuple(shape), draw(LAYOUTS), draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])))
        )
    if draw(st.booleans()) and len({part.dtype for part in parts}) == 1:  # as the cache of transformers begins
        parts.insert(draw(st.integers(0, len(parts))), T((0,), dtype=parts[0].dtype))
    return (parts,) if dimension == 0 and draw(st.booleans()) else (parts, dimension), {}


@st.composite
def classified(draw: Any, backward: bool = False) -> Arguments:
    rows, columns, dtype = draw(SMALL), draw(st.integers(2, 4)), draw(DTYPES)
    x, classes = T((rows, columns), draw(LAYOUTS), dtype), T((rows,), dtype=torch.int64)
    weights = T((columns,), dtype=dtype) if draw(st.booleans()) else None
    reduction, number = draw(st.integers(0, 2)), T((), dtype=dtype)
    if not backward:
        return (x, classes, weights, reduction, -100), {}
    return (T((rows,), dtype=dtype) if reduction == 0 else number, x, classes, weights, reduction, -100, number), {}


@st.composite
def looked_up(draw: Any) -> Arguments:
    rows, width, dtype = draw(st.integers(2, 4)), draw(SMALL), draw(DTYPES)
    indices = T(draw(SHAPES), dtype=draw(st.sampled_from([torch.int64, torch.int32])))
    return (T((rows, width), draw(LAYOUTS), dtype), indices), {}


@st.composite
def multiplied(draw: Any, bias: bool = False) -> Arguments:
    rows, inner, columns, dtype = draw(SMALL), draw(SMALL), draw(SMALL), draw(DTYPES)
    layout = st.sampled_from(["plain", "plain", "transposed", "cut", "expanded"])
    factors = (T((rows, inner), draw(layout), dtype), T((inner, columns), draw(layout), dtype))
    if not bias:
        return factors, {}
    return (
        T(draw(st.sampled_from([(columns,), (columns,), (rows, columns), (1, columns)])), dtype=dtype),
        *factors,
    ), {}


@st.composite
def multiplied_in_groups(draw: Any) -> Arguments:
    """Rows, or columns for the gradient of the weights, in groups; the inner dimension is one of whole 16 bytes."""
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    unit = 16 // dtype.itemsize
    rows, inner, columns, groups = draw(st.integers(2, 9)), unit * draw(SMALL), draw(st.integers(2, 20)), draw(SMALL)
    offsets = T((groups,), dtype=torch.int32)
    first, second = draw(st.sampled_from([((rows, inner), (groups, inner, columns)), ((groups, rows, inner),) * 2,
                                          ((groups, rows, inner), (inner, columns))]))  # fmt: skip
    if second == (groups, rows, inner):
        return (T(first, dtype=dtype), T((groups, inner, columns), "transposed", dtype)), {}
    if draw(st.booleans()):  # the gradient of the weights: two matrices, cut along what is summed over
        by_rows = T((inner, rows * unit), "plain", dtype), T((rows * unit, 2 * inner), "plain", dtype)
        return (*by_rows, offsets), {}
    return (T(first, dtype=dtype), T(second, "transposed", dtype), offsets), {}


@st.composite
def compared(draw: Any, *before: Any) -> Arguments:
    shape, dtype = draw(SHAPES), draw(st.sampled_from([torch.float32, torch.float64]))
    return (T(shape, "plain", dtype), T(shape, draw(LAYOUTS), dtype), *before, draw(st.sampled_from([0, 1, 2]))), {}


ARGUMENTS: dict[Any, st.SearchStrategy[Arguments]] = {
    aten.convolution.default: convolved(),
    aten.convolution_backward.default: convolved(backward=True),
    aten.max_pool2d_with_indices.default: pooled(),
    aten.max_pool2d_with_indices_backward.default: pooled(backward=True),
    aten.native_batch_norm.default: normed(),
    aten.native_batch_norm_backward.default: normed(backward=True),
    aten.native_layer_norm.default: normed_by_rows(),
    aten.native_layer_norm_backward.default: normed_by_rows(backward=True),
    aten.native_group_norm.default: normed_by_groups(),
    aten.native_group_norm_backward.default: normed_by_groups(backward=True),
    aten.sum.dim_IntList: summed(),
    aten.linalg_vector_norm.default: normal(),
    aten.clamp_min.default: tensor_and_number(),
    aten.pow.Tensor_Scalar: tensor_and_number(),
    **{op.default: exponents() for op in (aten._softmax, aten._log_softmax)},
    **{op.default: exponents(True) for op in (aten._softmax_backward_data, aten._log_softmax_backward_data)},
    **{op: two_tensors() for op in (aten.floor_divide.default, aten.logaddexp.default)},
    **{op.Tensor: two_tensors() for op in (aten.copysign, aten.xlogy)},
    aten.softplus_backward.default: two_tensors(1.0, 20.0, alike=True),
    aten.logit_backward.default: two_tensors(0.1, alike=True),
    aten.elu_backward.default: by_sixth(),
    aten.mse_loss_backward.default: gradient_of_loss(),
    **{op.default: gradient_of_loss(1.0) for op in (aten.smooth_l1_loss_backward, aten.huber_loss_backward)},
    aten.glu_backward.default: gated(),
    **{op.default: padded() for op in (aten.reflection_pad2d_backward, aten.replication_pad2d_backward)},
    aten.log_sigmoid_forward.default: unary(),
    aten.roll.default: rolled(),
    aten.im2col.default: folded(),
    aten.col2im.default: folded(back=True),
    aten.cat.default: joined(),
    aten.embedding.default: looked_up(),
    aten.nll_loss_forward.default: classified(),
    aten.nll_loss_backward.default: classified(backward=True),
    aten.mm.default: multiplied(),
    aten.addmm.default: multiplied(bias=True),
    aten._grouped_mm.default: multiplied_in_groups(),
    **{op.default: compared() for op in (aten.mse_loss, aten.smooth_l1_loss, aten.soft_margin_loss)},
    aten.binary_cross_entropy.default: compared(None),
    **{op.default: made_like() for op in (aten.empty_like, aten.zeros_like, aten.ones_like)},
    aten.upsample_nearest2d.default: interpolated(False),
    aten.upsample_nearest2d_backward.default: interpolated(False, backward=True),
    aten.upsample_bilinear2d.default: interpolated(True),
    aten.upsample_bilinear2d_backward.default: interpolated(True, backward=True),
    **{op.default: unary() for op in (aten.relu, aten.tanh, aten.sigmoid, aten.sqrt, aten.gelu, aten.silu, aten.neg)},
    **{op.default: unary() for op in (aten.hardtanh, aten.hardswish, aten.hardsigmoid, aten.leaky_relu)},
    **{op.default: written(0) for op in (aten.hardtanh_, aten.hardswish_, aten.leaky_relu_, aten.silu_)},
    **{op.default: two_tensors(alike=True) for op in (aten.hardswish_backward, aten.hardsigmoid_backward)},
    aten.hardtanh_backward.default: two_tensors(-1, 1, alike=True),
    aten.leaky_relu_backward.default: two_tensors(0.01, False, alike=True),
    aten.threshold_backward.default: two_tensors(0, alike=True),
    **{
        op.default: two_tensors(alike=True)
        for op in (aten.tanh_backward, aten.sigmoid_backward, aten.gelu_backward, aten.silu_backward)
    },
    **{op.Tensor: two_tensors() | tensor_and_number() for op in (aten.add, aten.sub, aten.mul, aten.div)},
    **{op.Scalar: tensor_and_number() for op in (aten.mul, aten.div)},
    aten.relu_.default: written(0),
    aten.bernoulli_.float: written(0, 0.5),
    **{op.Tensor: written(1) for op in (aten.add_, aten.mul_, aten.div_)},
    aten.div_.Scalar: written(0, 2.0),
    aten.lerp_.Scalar: written(1, 0.5),
    **{op.default: written(2) for op in (aten.addcmul_, aten.addcdiv_)},
    aten._foreach_add_.List: lists(1),
    **{op.Scalar: lists(0, 0.5) for op in (aten._foreach_add_, aten._foreach_mul_)},
    aten._foreach_lerp_.Scalar: lists(1, 0.5),
    aten._foreach_addcmul_.Scalar: lists(2, 0.5),
    aten._foreach_addcdiv_.ScalarList: lists(2, scalars=True),
    aten._foreach_div_.ScalarList: lists(0, scalars=True),
    aten._foreach_sqrt.default: lists(0),
}


def test_every_shortcut_has_its_arguments() -> None:
    assert set(ARGUMENTS) == set(SHORTCUTS)


@pytest.mark.parametrize("operator", ARGUMENTS, ids=str)
def test_a_shortcut_gives_what_the_kernels_give(operator: Any) -> None:
    taken = 0

    @settings(max_examples=share(80), deadline=None)
    @given(ARGUMENTS[operator])
    def holds(arguments: Arguments) -> None:
        nonlocal taken
        args, options = make(arguments[0], "meta"), arguments[1]
        short = SHORTCUTS[operator](args, options)
        if short is NotImplemented:
            return
        taken += 1
        real_args = make(arguments[0], "cpu")
        if operator is aten.native_layer_norm.default and args[0].dtype == torch.bfloat16:
            assert SHORTCUTS[operator](real_args, options) is NotImplemented  # the CPU's statistics are in 16 bits
            assert described(short, args) == described(operator(*args, **options), args), "meta kernel"
            return
        assert described(short, args) == described(operator(*real_args, **options), real_args), "real kernel"

    holds()
    assert taken > 0, "the shortcut never applied"
