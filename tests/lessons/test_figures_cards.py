"""Pictures of cards: their memory as bars, rings of them, the rates of their links."""

from __future__ import annotations

import math
import re

import pytest
from drawn import assert_well_laid, canvas, paths, words_of
from hypothesis import given
from hypothesis import strategies as st

from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine import hardware
from course_utils.techniques.capacity import room_for_tensors
from course_utils.units import GIB, CourseError, format_bytes
from lessons.hardware.cards import CardBar, cards
from lessons.many_gpus.card_lanes import card_lanes
from lessons.many_gpus.links_figure import link_rates
from lessons.many_gpus.ring_figure import ring_steps
from lessons.shared.parallel import ring_states
from lessons.shared.role_bars import role_bars


def test_dots_are_where_their_memory_is_and_lines_cross_there():
    bars = [CardBar("a", 2 * GIB, "fits", ("x",)), CardBar("b", 32 * GIB, "too small", ("",))]
    picture = cards(bars, {"needs": 8 * GIB}, "title", ("notes",))
    assert_well_laid(picture)

    def middle(points):
        xs = [x for x, _ in points]
        return (min(xs) + max(xs)) / 2

    (filled,), (ring,) = paths(picture, fill="#0072b2"), paths(picture, fill="var(--ink)")
    two, thirty_two = middle(filled[0]), middle(ring[0])
    line = paths(picture, stroke="var(--ink)")[0][0][0][0]
    assert (line - two) == pytest.approx(thirty_two - line, abs=0.2)  # 8 is midway between 2 and 32, by doublings
    assert two < line < thirty_two < canvas(picture)[0]


@pytest.mark.parametrize("need", [1, 2**20, GIB, 2**45])
def test_a_need_beyond_the_axis_stands_at_its_end(need):
    assert_well_laid(cards([CardBar("a", 4 * GIB, "tight", ())], {"tensors": need, "with gaps": 2 * need}))


def test_what_cannot_be_drawn_is_one_line():
    bar = CardBar("a", GIB, "fits", ())
    for arguments, message in (
        (([], {}), "needs a card"),
        (([bar], {"x": 0}), "bytes above 0"),
        (([CardBar("a", float("nan"), "fits", ())], {}), "bytes above 0"),
        (([bar], {"x": 1}, "", ("notes",)), "needs 1 notes for every card"),
    ):
        with pytest.raises(CourseError, match=message):
            cards(*arguments)


def test_what_no_picture_can_show_is_refused():
    for draw in (lambda: ring_steps(ring_states(5)), lambda: card_lanes({}), lambda: role_bars({}),
                 lambda: link_rates({}), lambda: link_rates(dict.fromkeys("abcde", hardware.peers()))):  # fmt: skip
        with pytest.raises(CourseError):
            draw()
    for count in (2, 3, 4):
        assert_well_laid(ring_steps(ring_states(count), "A ring"))
    with pytest.raises(CourseError, match="0 bytes or more"):
        role_bars({"one": {"input": -1.0}})


@given(gib=st.integers(min_value=2, max_value=96), tensors=st.floats(min_value=0, max_value=200))
def test_the_line_through_bars_is_what_the_context_leaves_of_the_card(gib: int, tensors: float) -> None:
    picture = role_bars({"one": {"input": tensors * GIB}}, "A title", gib * GIB)
    assert f"{gib} GiB card − context: {format_bytes(room_for_tensors(gib * GIB))}" in picture.alt
    assert_well_laid(picture)


@pytest.mark.parametrize("rows", [{"one": hardware.peers()[:1]}, {"all": hardware.peers(), "none": []},
                                  {"links": hardware.peers()[3:5], "memory": hardware.devices()}])  # fmt: skip
def test_rates_of_links_stand_in_their_order_and_each_is_written(rows):
    picture = link_rates(rows, "A title")
    assert_well_laid(picture)
    texts = [words.text for words in words_of(picture)]
    names = [item.name for items in rows.values() for item in items]
    assert [text for text in texts if text in names] == names
    marks = [(w.x, math.log10(float(w.text.replace(",", "")))) for w in words_of(picture)
             if w.anchor == "middle" and re.fullmatch(r"[\d,.]+", w.text)]  # fmt: skip
    (x0, v0), (x1, v1) = marks[0], marks[-1] if len(marks) > 1 else (marks[0][0] + 1, marks[0][1])
    for items, colour in zip(rows.values(), SERIES_COLOURS, strict=False):
        dots = [part for path in paths(picture, fill=colour) for part in path]
        assert len(dots) == len(items)
        for item, dot in zip(items, dots, strict=True):
            rate = item.bytes_per_s if isinstance(item, hardware.Link) else item.reached_bytes_per_s()
            x = (min(x for x, _ in dot) + max(x for x, _ in dot)) / 2
            if len(marks) > 1:
                assert v0 + (x - x0) * (v1 - v0) / (x1 - x0) == pytest.approx(math.log10(rate / 1e9), abs=0.01)
    for item in hardware.peers():
        if item.name in names and item.practical_gb_s is not None:
            assert f"{item.name} {item.bytes_per_s / 1e9:.3g} (measured {item.practical_gb_s:g})" in picture.alt
