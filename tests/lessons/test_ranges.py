"""The picture of magnitudes: what is lost is drawn hollow, at the right place, and said in words."""

from __future__ import annotations

import pytest
import torch
from drawn import assert_well_laid, paths, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.figures import ROLE_COLOURS
from course_utils.units import CourseError
from lessons.half_precision.precision import fate, formats, powers
from lessons.half_precision.ranges import BFLOAT16, FLOAT16, Reach, magnitudes

GROUP = st.dictionaries(st.integers(-149, 127), st.integers(1, 10**7), min_size=1, max_size=60)


def test_the_reaches_are_those_of_the_formats() -> None:
    table = formats()
    for reach in (FLOAT16, BFLOAT16):
        row = table.loc[reach.name]
        assert (2.0**reach.smallest, 2.0**reach.normal) == (row["smallest"], row["smallest normal"])
        assert 2.0**reach.largest < row["largest"] < 2.0 ** (reach.largest + 1)


@settings(deadline=None, max_examples=40)
@given(GROUP, GROUP)
def test_any_numbers_are_well_laid(one: dict[int, int], other: dict[int, int]) -> None:
    assert_well_laid(magnitudes({"gradient maps": one, "weight gradients": other}, "What is left"))


def test_what_float16_loses_is_hollow_and_counted() -> None:
    picture = magnitudes({"gradient maps": {-30: 30, -26: 10, -25: 20, -10: 40}})
    assert len(paths(picture, stroke=ROLE_COLOURS["gradient maps"])) == 2
    assert len(paths(picture, fill=ROLE_COLOURS["gradient maps"])) == 2
    assert "40.0 % become 0 in float16" in [text.text for text in words_of(picture)]
    assert "100 numbers from 2^−30 to 2^−9, most at 2^−10, 40.0 % become 0 in float16" in picture.alt
    none = magnitudes({"weight gradients": {0: 1}}, cut=Reach("float8", -9, -6, 8))
    assert "none becomes 0 in float8" in [text.text for text in words_of(none)]


def test_the_share_is_what_a_conversion_loses() -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0)).double() * 2.0**-26
    counts = powers(values)
    lost = sum(count for power, count in counts.items() if power < FLOAT16.smallest - 1) / len(values)
    assert fate(values, "float16").lost == pytest.approx(lost)


def test_nothing_to_draw_is_one_line() -> None:
    for groups in ({}, {"maps": {}}, {"maps": {3: 0}}):
        with pytest.raises(CourseError, match="magnitudes needs groups with numbers other than 0"):
            magnitudes(groups)
