"""How results lie in memory: what a trace takes from torch's meta kernels against the real ones, in every layout.

A meta kernel of another layout costs or saves a copy later on. Those that are known to be of one have shortcuts, which
tests/library/test_shortcuts.py holds against the real kernels; here are the others that the short list trusts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from made_tensors import T, described, make
from torch import Tensor

from course_utils.trace.operators import SAME_AS_CPU
from course_utils.trace.shortcuts import SHORTCUTS

aten = torch.ops.aten
LAYOUTS = ["plain", "transposed", "channels last", "channels last, cut", "cut", "expanded", "permuted"]
SHAPE, SCORES = (3, 4, 6, 6), (3, 6, 6)
BOOL, WHOLE = torch.bool, torch.int64
ROWS = T((5,), dtype=WHOLE)
Arguments = Callable[[str, str], tuple[Any, ...]]  # of the layouts of the first two tensors


def t(layout: str, shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32) -> T:
    return T(shape, layout, dtype)


def one(*more: Any, dtype: torch.dtype = torch.float32) -> Arguments:
    return lambda a, b: (t(a, dtype=dtype), *more)


def two(*more: Any, first: torch.dtype = torch.float32, second: torch.dtype = torch.float32) -> Arguments:
    return lambda a, b: (t(a, dtype=first), t(b, dtype=second), *more)


def gradient(shape: tuple[int, ...], *more: Any) -> Arguments:
    return lambda a, b: (t(a, shape), *more)


OPERATORS: dict[Any, Arguments] = {
    **{op.default: one() for op in (aten.abs, aten.sgn, aten.rsqrt, aten.exp, aten.log, aten.cos, aten.sin)},
    **{op.default: one() for op in (aten.floor, aten.clone, aten.tril)},
    aten.clamp.default: one(0.0, 1.0),
    aten.minimum.default: two(),
    aten.rsub.Scalar: one(1.0),
    **{op.Scalar: one(1.0) for op in (aten.eq, aten.ne, aten.ge, aten.le, aten.lt, aten.gt)},
    **{op.Tensor: two() for op in (aten.eq, aten.ne, aten.ge, aten.le, aten.lt, aten.gt)},
    aten.bitwise_not.default: one(dtype=BOOL),
    aten.bitwise_and.Tensor: two(first=BOOL, second=BOOL),
    aten.where.self: lambda a, b: (t(a, dtype=BOOL), t(b), t("plain")),
    aten.masked_fill.Scalar: two(0.0, second=BOOL),
    aten.repeat.default: one([1, 2, 1, 1]),
    aten.constant_pad_nd.default: one([1, 1, 1, 1], 0.0),
    aten.cumsum.default: one(1),
    aten.all.default: one(dtype=BOOL),
    aten.all.dim: one(1, dtype=BOOL),
    aten.mean.dim: one([2, 3], True),
    aten.sort.default: one(1),
    aten.topk.default: one(2, 1),
    aten.gather.default: lambda a, b: (t(a), 1, t(b, dtype=WHOLE)),
    aten.scatter.src: lambda a, b: (t(a), 1, t(b, dtype=WHOLE), t("plain")),
    aten.scatter_add.default: lambda a, b: (t(a), 1, t(b, dtype=WHOLE), t("plain")),
    aten.addcmul.default: two(t("plain")),
    aten.stack.default: lambda a, b: ([t(a), t(b)], 1),
    aten.index.Tensor: one([None, ROWS]),
    aten.index_put.default: lambda a, b: (t(a), [ROWS], t(b, (5, *SHAPE[1:]))),
    aten.embedding.default: lambda a, b: (t(a, (9, 5)), T((3, 4), dtype=WHOLE)),
    aten.select_backward.default: gradient(SCORES, list(SHAPE), 1, 0),
    aten.slice_backward.default: gradient((3, 2, 6, 6), list(SHAPE), 1, 0, 2, 1),
    aten.bmm.default: lambda a, b: (t(a, (3, 4, 5)), t(b, (3, 5, 6))),
    aten.baddbmm.default: lambda a, b: (t(a, (3, 4, 6)), t(b, (3, 4, 5)), T((3, 5, 6))),
    aten._safe_softmax.default: one(-1),
    aten.avg_pool2d.default: one([2, 2]),
    aten.avg_pool2d_backward.default: lambda a, b: (
        t(a, (3, 4, 3, 3)), t(b), [2, 2], [2, 2], [0, 0], False, True, None
    ),
    aten._adaptive_avg_pool2d.default: one([2, 2]),
    aten._adaptive_avg_pool2d_backward.default: lambda a, b: (t(a, (3, 4, 2, 2)), t(b)),
    aten.grid_sampler_2d.default: lambda a, b: (t(a), t(b, (3, 5, 5, 2)), 0, 0, False),
    aten.grid_sampler_2d_backward.default: lambda a, b: (
        t(a, (3, 4, 5, 5)), t(b), T((3, 5, 5, 2)), 0, 0, False, [True, True]
    ),
    aten.nll_loss2d_forward.default: one(T(SCORES, dtype=WHOLE), None, 1, -100),
}  # fmt: skip
# Made out of nothing, one number or a row, in place, in plain order alone, or in attention's own layout.
NO_LAYOUT = """
start end empty new_empty new_empty_strided zeros new_zeros ones new_ones full full_like arange linspace rand
scalar_tensor _to_copy copy_ as_strided_ index_put_ embedding_dense_backward sum bernoulli_ masked_fill_ fill_ zero_
histc nll_loss2d_backward scatter _scaled_dot_product_flash_attention_for_cpu
_scaled_dot_product_flash_attention_for_cpu_backward
""".split()


def test_all_that_is_trusted_is_tried() -> None:
    tried = {op.overloadpacket.__name__ for op in (*OPERATORS, *SHORTCUTS)}
    assert sorted(SAME_AS_CPU - tried - {*NO_LAYOUT}) == []
    assert sorted(tried & {*NO_LAYOUT} - {op.overloadpacket.__name__ for op in SHORTCUTS}) == ["scatter"]


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_a_trusted_meta_kernel_lays_out_what_the_real_one_does(operator: Any) -> None:
    compared = 0
    for pair in itertools.product(LAYOUTS, LAYOUTS):
        arguments = OPERATORS[operator](*pair)
        real = operator(*make(arguments, "cpu"))
        assert isinstance(real, (Tensor, tuple))
        assert described(operator(*make(arguments, "meta")), ()) == described(real, ()), pair
        compared += 1
    assert compared == len(LAYOUTS) ** 2
