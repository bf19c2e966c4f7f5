"""The roofline: points where they were measured, ceilings where the device has them, the ridge between."""

import pytest
from drawn import assert_well_laid, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.machine.hardware import devices
from course_utils.units import CourseError
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.shared.roofline import Reached, roofline

AMOUNT = st.floats(1e3, 1e13)


def test_intensity_and_rate_by_hand():
    heavy = Reached("heavy", 4.422e12, 1e9, 2.0)
    assert (heavy.intensity, heavy.rate) == (4422, 2.211e12)


def test_the_title_counts_the_layers_on_either_side():
    ridge = REFERENCE_CPU.ridge()
    layers = [Reached(str(i), ridge * factor * 1e6, 1e6, 1.0) for i, factor in enumerate((0.5, 2, 3))]
    said = " ".join(word.text for word in words_of(roofline(REFERENCE_CPU, layers)))
    assert "Two 8-core Xeons: arithmetic limits 2 of 3 layers, bandwidth 1" in said
    assert f"ridge: {ridge:,.3g} FLOP a byte" in said
    assert "the slope is 88.5 GB/s" in said
    assert "174 GFLOP/s" in said


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(AMOUNT, AMOUNT, st.floats(1e-7, 1e4)), max_size=18), st.sampled_from([*devices(), REFERENCE_CPU])
)
def test_it_is_well_laid_whatever_was_measured(rows, card):
    picture = roofline(card, [Reached(f"conv{i}_{i}", *row) for i, row in enumerate(rows)], "" if rows else "a title")
    assert_well_laid(picture)


@pytest.mark.parametrize("row", [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)])
def test_what_has_no_place_is_refused(row):
    with pytest.raises(CourseError, match="roofline needs operations, bytes and seconds above 0, 'pool' lacks one"):
        roofline(REFERENCE_CPU, [Reached("pool", *row)])
