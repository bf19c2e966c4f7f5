"""The bits drawn are those stored, each in a cell of its own."""

import pytest
from drawn import assert_well_laid, words_of

from course_utils.units import CourseError, as_written
from lessons.half_precision.bits import bit_fields
from lessons.half_precision.precision import bits

FORMATS = ("float32", "float16", "bfloat16")


@pytest.mark.parametrize("value", [0.1, -1.0, 65504.0, 2.0**-24, 0.0])
def test_every_bit_has_a_cell(value):
    numbers = {name: bits(value, name) for name in FORMATS}
    picture = bit_fields(numbers, "One number")
    assert_well_laid(picture)
    drawn = [words.text for words in words_of(picture) if words.text in ("0", "1")]
    assert "".join(drawn) == "".join(n.sign + n.exponent + str(n.hidden) + n.fraction for n in numbers.values())
    assert all(as_written(number.reading) in picture.alt for number in numbers.values())


def test_no_numbers_are_refused():
    with pytest.raises(CourseError, match="up to 32 bits"):
        bit_fields({})
