"""Curves and points over two axes: to scale, named, well laid out whatever the numbers, in words as well."""

import itertools
import math

import pytest
from drawn import assert_well_laid, paths, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.figures import Axis, Curve, Spot, plane
from course_utils.figures.style import FAINT, SERIES_COLOURS
from course_utils.units import CourseError, format_seconds

ANY = st.floats(1e-6, 1e9)
NAMES = st.sampled_from(["", "CPU", "GPU", "GPU with transfers", "a Titan X of 2015", "10 µs"])
SPOTS = st.lists(st.builds(Spot, NAMES, ANY, ANY), max_size=12)


@st.composite
def curves(draw):
    xs = sorted(draw(st.lists(ANY, min_size=2, max_size=8, unique=True)))
    return Curve(draw(NAMES), xs, [draw(ANY) for _ in xs], draw(st.sampled_from(SERIES_COLOURS)), draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(st.lists(curves(), min_size=1, max_size=4), SPOTS, st.booleans(), st.booleans(), ANY, ANY)
def test_whatever_the_numbers_nothing_collides_and_every_curve_is_named(lines, spots, log_x, log_y, limit, mark):
    picture = plane(
        Axis("batch", log=log_x), Axis("time", log=log_y), lines, spots, "A finding", {"limit": limit}, {"here": mark}
    )
    assert_well_laid(picture)
    texts = [text.text for text in words_of(picture)]
    assert all(texts.count(curve.name) >= 1 for curve in lines if curve.name)
    assert "limit" in texts
    assert all(spot.name in picture.alt for spot in spots)


def test_a_curve_is_to_scale_on_either_kind_of_axis():
    for log, value in ((False, 5.5), (True, math.sqrt(10))):
        axes = (Axis("x", log, 1, 10), Axis("y", log, 1, 10))
        curve, *_leader = paths(plane(*axes, [Curve("c", [1, value, 10], [1, value, 10], "#d55e00")]), stroke="#d55e00")
        (left, bottom), (x, y), (right, top) = curve[0]
        assert x == pytest.approx((left + right) / 2, abs=0.2)
        assert y == pytest.approx((bottom + top) / 2, abs=0.2)


def test_a_curve_stops_at_the_edge_of_the_plot():
    axes = (Axis("x", low=0, high=10), Axis("y", low=0, high=10))
    inside, *_leader = paths(plane(*axes, [Curve("c", [0, 10], [0, 10], "#d55e00")]), stroke="#d55e00")
    beyond, *_leader = paths(plane(*axes, [Curve("c", [0, 20], [0, 20], "#d55e00")]), stroke="#d55e00")
    for (x, y), (other_x, other_y) in zip(inside[0], beyond[0], strict=True):
        assert (x, y) == pytest.approx((other_x, other_y), abs=0.2)


def test_a_curve_that_ends_within_the_plot_is_led_to_its_name_from_its_own_end():
    axes = (Axis("x", low=0, high=10), Axis("y", low=0, high=10))
    curves = [Curve("short", [0, 4], [2, 2], "#d55e00"), Curve("long", [0, 10], [5, 9], "#0072b2")]
    picture = plane(*axes, curves)
    short, long = (paths(picture, stroke=curve.colour)[0][0] for curve in curves)
    leaders = [line for (line,) in paths(picture, stroke=f"var(--{FAINT})") if line[0] == short[-1]]
    assert leaders == [[short[-1], (long[-1][0], short[-1][1])]]


def test_ticks_are_round_within_the_ends_and_apart():
    for axis, wanted in (
        (Axis("x", low=0, high=100), [0, 20, 40, 60, 80, 100]),
        (Axis("x", True, 1, 1000), [1, 10, 100, 1000]),
        (Axis("x", True, 1, 10), [1, 2, 5, 10]),
    ):
        assert axis.ticks(300, 42) == pytest.approx(wanted)


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e12), st.booleans())
def test_ticks_never_stand_closer_than_asked(low, factor, log):
    axis = Axis("x", log, low, low * factor)
    places = [axis.share(tick) * 500 for tick in axis.ticks(500, 40)]
    assert all(-1 <= place <= 501 for place in places)
    assert all(later - earlier >= 39.5 for earlier, later in itertools.pairwise(places))


def test_the_alternative_text_tells_every_number():
    picture = plane(
        Axis("batch", log=True), Axis("time", write=format_seconds),
        [Curve("CPU", [1, 64], [0.001, 0.064])], [Spot("guess", 8, 0.5)], "CPU", {"limit": 0.1}, {"crossover": 32},
    )  # fmt: skip
    assert picture.alt == (
        "CPU. time against batch. CPU: from 1 ms at 1 to 64 ms at 64; guess: 500 ms at 8; limit: 100 ms; crossover: 32."
    )


def test_a_hollow_point_shows_the_paper():
    picture = plane(Axis("x"), Axis("y"), spots=[Spot("guess", 1, 1, "#d55e00", hollow=True), Spot("it", 2, 2)])
    assert len(paths(picture, fill="var(--paper)")) == 1
    assert len(paths(picture, stroke="#d55e00")) == 1


@pytest.mark.parametrize(
    ("x", "y", "lines", "message"),
    [
        (Axis("batch"), Axis("time"), [], "needs a curve or a point"),
        (Axis("batch"), Axis("time"), [Curve("c", [1, 2], [1, math.nan])], "finite numbers for 'time'"),
        (
            Axis("batch", log=True),
            Axis("time"),
            [Curve("c", [0, 2], [1, 2])],
            "above 0 on a logarithmic axis for 'batch'",
        ),
    ],
)
def test_what_cannot_be_drawn_is_one_line(x, y, lines, message):
    with pytest.raises(CourseError, match=message):
        plane(x, y, lines)
