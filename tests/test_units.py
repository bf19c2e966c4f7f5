"""Bytes as people write them, and errors that print as one line."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from course_utils.units import GB, GIB, KIB, MIB, CourseError, format_bytes, format_seconds, in_gb

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


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0 s"), (1, "1 s"), (0.0726, "72.6 ms"), (0.4506, "451 ms"), (1e-5, "10 µs"), (2.5e-9, "2.5 ns"),
        (1e-12, "0.001 ns"), (0.9999, "1 s"), (1200, "1,200 s"), (12345.6, "12,300 s"), (-0.02, "-20 ms"),
    ],
)  # fmt: skip
def test_seconds_as_people_write_them(seconds: float, written: str) -> None:
    assert format_seconds(seconds) == written


@given(st.floats(1e-9, 1e6), st.integers(2, 5))
def test_seconds_are_within_half_a_last_digit(seconds: float, digits: int) -> None:
    number, unit = format_seconds(seconds, digits).split()
    size = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * size == pytest.approx(seconds, rel=0.5 * 10.0 ** (1 - digits) * 1.001)
    assert unit == "ns" or float(number.replace(",", "")) >= 1
    assert unit == "s" or float(number.replace(",", "")) < 1000
