"""Bytes as people write them, and errors that print as one line."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from course_utils.units import GB, GIB, KIB, MIB, CourseError, format_bytes, in_gb

UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
BYTES = st.integers(min_value=-(2**50), max_value=2**50)


def parse(text: str) -> tuple[float, str]:
    match = re.fullmatch(r"(-?[\d,]+(?:\.\d+)?) (B|KiB|MiB|GiB)", text)
    assert match, text
    return float(match[1].replace(",", "")), match[2]


def test_units_are_binary_for_memory_and_decimal_for_rates() -> None:
    assert (KIB, MIB, GIB, GB) == (1024, 1024**2, 1024**3, 1_000_000_000)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1_000, "1,000 B"),
        (1_024, "1.00 KiB"),
        (7_168, "7.00 KiB"),
        (12_845_056, "12.25 MiB"),
        (GIB - 1, "1.00 GiB"),
        (12 * GIB, "12.00 GiB"),
        (2_000 * GIB, "2,000.00 GiB"),
        (-3 * MIB, "-3.00 MiB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(BYTES, st.integers(min_value=1, max_value=4))
@example(MIB - 1, 2)
@example(GIB - 1, 2)
def test_what_is_written_is_within_half_a_last_digit(count: int, digits: int) -> None:
    value, unit = parse(format_bytes(count, digits))
    half_a_digit = 0.5 if unit == "B" else 0.5 * 10**-digits
    assert abs(value * UNITS[unit] - count) <= half_a_digit * UNITS[unit] * (1 + 1e-9)


@given(BYTES, st.integers(min_value=1, max_value=4))
@example(MIB - 1, 2)
@example(-(GIB - 1), 2)
def test_the_unit_is_the_largest_that_leaves_1_or_more(count: int, digits: int) -> None:
    value, unit = parse(format_bytes(count, digits))
    assert unit == "B" or abs(value) >= 1
    assert unit == "GiB" or abs(value) < 1024


@given(BYTES.filter(bool))
def test_sign_changes_nothing_else(count: int) -> None:
    assert format_bytes(-abs(count)) == "-" + format_bytes(abs(count))


@given(BYTES)
def test_in_gb_is_decimal(count: int) -> None:
    assert in_gb(count) == count / 10**9


def test_course_error_prints_as_its_message_alone_in_a_notebook() -> None:
    error = CourseError("batch must be a positive whole number, not -1")
    assert isinstance(error, ValueError)
    assert error._render_traceback_() == ["CourseError: batch must be a positive whole number, not -1"]


def test_a_subclass_prints_under_its_own_name() -> None:
    class TraceError(CourseError):
        pass

    assert TraceError("no parameters")._render_traceback_() == ["TraceError: no parameters"]
