"""The drawn positions of a kernel are those that PyTorch's convolution has, and the values read are those it reads."""

import pytest
import torch
from drawn import assert_well_laid, words_of
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_utils.units import CourseError
from lessons.stride.positions import kernel_positions, positions


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2), st.integers(1, 5))
def test_positions_and_values_read_are_those_of_a_convolution(side, kernel, padding, stride):
    if kernel > side + 2 * padding:
        return
    layer = nn.Conv1d(1, 1, kernel, stride, padding, bias=False)
    nn.init.ones_(layer.weight)
    row = torch.zeros(1, 1, side, requires_grad=True)
    output = layer(row)
    output.sum().backward()
    read = int((row.grad != 0).sum())
    assert len(positions(side, kernel, padding, stride)) == output.shape[-1]
    said = f"{output.shape[-1]} positions, {read} of {side} values read"
    assert said in kernel_positions(side, kernel, padding, [stride]).alt


def test_the_picture_is_well_laid():
    picture = kernel_positions(8, 3, 1, (1, 2, 3, 4), "Twice the stride, half the positions")
    assert_well_laid(picture)
    assert [w.text for w in words_of(picture)].count("8") == 4


@pytest.mark.parametrize(("side", "kernel", "strides"), [(20, 3, (1,)), (4, 9, (1,)), (8, 3, ()), (8, 3, (0,))])
def test_what_cannot_be_drawn_is_refused(side, kernel, strides):
    with pytest.raises(CourseError, match="rows of up to 16 values"):
        kernel_positions(side, kernel, 1, strides)
