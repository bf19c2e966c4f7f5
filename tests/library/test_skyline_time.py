"""The skyline over time: seconds to scale, byte-seconds as areas, the peak when it happens, an outline on one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from amount import every_pair
from drawn import assert_well_laid, canvas, paths, ticks, words_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import VGG, made_step

from course_utils.figures import ROLE_COLOURS, describe, skyline
from course_utils.figures.skyline_plot import LEFT
from course_utils.machine.hardware import device
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLES
from course_utils.techniques.capacity import fit
from course_utils.units import GIB, MIB, CourseError, format_bytes, format_seconds

VGG_STEP = made_step(VGG, name="VGG-16")
CORNERS = {
    "tiny net": made_step([("a", 4, 8)], sample=4, state=0),
    "inference": made_step(VGG, train=False),
    "vgg": VGG_STEP,
    "nothing but weights": made_step([("dense", 2**30, 0)], sample=1),
    "very deep": made_step([(f"layer{i}", 2**16, 2**18) for i in range(700)]),
}


def timed(ledger, work=None, over=None):
    """A time for every event: made-up seconds, or launches alone."""
    time = predict_step(ledger, "Tesla K40", link=over)
    return time if work is None else replace(time, work=np.asarray(work, dtype=float), launch=np.zeros(len(work)))


def outlines(picture):
    """The solid outline of the step, and the dashed one of the step before if there is one."""
    return [path[0] for path in paths(picture, stroke="var(--ink)", stroke_width="12")]


def width(points):
    return max(x for x, _ in points) - min(x for x, _ in points)


@st.composite
def times(draw):
    """Steps with seconds of every kind: none, alike, or one event that takes nearly all."""
    layers = draw(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 2**27)), min_size=1, max_size=12))
    named = [(f"layer{i}", parameters, output) for i, (parameters, output) in enumerate(layers)]
    step = made_step(named, draw(st.integers(1, 2**20)), 1.0, draw(st.booleans()))
    ledger = step.at(draw(st.integers(1, 4096)))
    count = len(ledger.phases)
    seconds = draw(st.lists(st.sampled_from([0.0, 1e-6, 1e-3, 1.0, 60.0]), min_size=count, max_size=count))
    return timed(ledger, seconds, draw(st.sampled_from([None, "PCIe 3.0 x16"])))


@settings(max_examples=60, deadline=None)
@given(times(), st.one_of(st.none(), st.integers(2**10, 2**40)), st.one_of(st.none(), times()))
def test_whatever_the_seconds_labels_never_collide_and_no_role_goes_unnamed(time, limit, before):
    ledger = time.ledger
    ghost = None if before is None else before.ledger
    picture = skyline(ledger, limit, before=ghost, time=time, before_time=before)
    assert_well_laid(picture)
    named = {text.text for text in words_of(picture)}
    seen = time.seconds > 0.01 * (time.seconds.sum() + time.transfer_seconds)  # narrower events are drawn as one
    for code, role in enumerate(ROLES):
        alive = ledger.matrix[:, code] > 0
        assert alive.any() or role not in named
        assert role in named or not (alive & seen).any()


@pytest.mark.parametrize(("name", "batch", "limit"), every_pair(CORNERS, [1, 100_000], [None, 1, 3 * GIB]))
def test_corners(name, batch, limit):
    ledger, before = CORNERS[name].at(batch), VGG_STEP.at(4)
    time, then = timed(ledger, over="PCIe 2.0 x16"), timed(before)
    picture = skyline(ledger, limit, before=before, time=time, before_time=then)
    assert_well_laid(picture)
    assert len(picture.png) > 2000


@settings(max_examples=40, deadline=None)
@given(times(), times())
def test_both_steps_are_as_wide_as_their_seconds_on_one_scale(time, before):
    longest = max(time.total_seconds, before.total_seconds)
    picture = skyline(time.ledger, before=before.ledger, time=time, before_time=before)
    if longest == 0:
        return
    solid = outlines(picture)[0]
    dashed = paths(picture, stroke="var(--ink)", stroke_width="18", stroke_dasharray="90 72")[0][0]
    plot = max(width(solid), width(dashed))
    assert min(x for x, _ in solid) == min(x for x, _ in dashed) == LEFT
    assert width(solid) == pytest.approx(plot * time.total_seconds / longest, abs=0.2)
    assert width(dashed) == pytest.approx(plot * before.total_seconds / longest, abs=0.2)


@settings(max_examples=40, deadline=None)
@given(times())
def test_the_peak_stands_where_it_happens(time):
    picture = skyline(time.ledger, time=time)
    if time.total_seconds == 0:
        return
    solid, ring = outlines(picture)[0], paths(picture, fill="var(--ink)")[0][0]
    a_second = width(solid) / time.total_seconds
    event = time.timeline().iloc[time.ledger.peak_event]
    at = (min(x for x, _ in ring) + max(x for x, _ in ring)) / 2
    begins = LEFT + a_second * event["begins"]
    # Nothing more exact than the few pixels within which short events are drawn as one.
    assert begins - 2.6 <= at <= begins + a_second * event["seconds"] + 2.6


def test_a_bands_area_is_its_bytes_times_the_seconds_they_are_kept():
    ledger = VGG_STEP.at(32)
    work = np.linspace(1.0, 3.0, len(ledger.phases))  # every event wide enough to be drawn by itself
    time = timed(ledger, work)
    picture = skyline(ledger, time=time)
    solid = outlines(picture)[0]
    to_bytes = ticks(picture, GIB)
    for role in ("feature maps", "weight gradients", "parameters"):
        (band,) = paths(picture, fill=ROLE_COLOURS[role])[0]
        x, y = np.array([(px, to_bytes(py)) for px, py in band]).T
        area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
        expected = float((ledger.matrix[:, ROLES.index(role)] * work).sum())
        assert area * time.total_seconds / width(solid) == pytest.approx(expected, rel=0.01)


def test_many_short_events_keep_the_peak_and_stay_few():
    ledger = CORNERS["very deep"].at(3)
    picture = skyline(ledger, time=timed(ledger))
    assert ticks(picture, MIB)(min(y for _, y in outlines(picture)[0])) == pytest.approx(ledger.peak_bytes, rel=0.002)
    assert len(picture.svg) < 40_000


def test_phases_and_the_transfer_stand_under_the_axis_with_their_seconds():
    ledger = VGG_STEP.at(64)
    work = np.where(ledger.phases == "forward", 0.01, np.where(ledger.phases == "backward", 0.02, 1e-5))
    time = timed(ledger, work, "PCIe 3.0 x16")
    picture = skyline(ledger, 12 * GIB, time=time)
    row = [text for text in words_of(picture) if text.y > canvas(picture)[1] - 20]
    sums = time.by_phase()
    assert [text.text for text in row] == [f"{phase} {format_seconds(sums[phase])}" for phase in sums.index]
    assert [text.x for text in row] == sorted(text.x for text in row)
    heading = f"alive over the {format_seconds(time.total_seconds)} predicted for Tesla K40"
    assert any(text.text.endswith(heading) for text in words_of(picture))
    without = skyline(ledger, time=timed(ledger, work))
    assert not any(text.text.startswith("transfer") for text in words_of(without))


def test_the_words_for_who_cannot_see_it_say_the_time():
    ledger = VGG_STEP.at(64)
    time = timed(ledger)
    said = skyline(ledger, GIB, time=time).alt
    assert said == describe(ledger, fit(ledger, GIB), time)
    assert f"Over the {format_seconds(time.total_seconds)} predicted for Tesla K40: forward " in said
    assert "predicted" not in describe(ledger, fit(ledger, GIB))


def test_the_outline_is_named_with_its_peak_and_its_seconds():
    ledger, before = VGG_STEP.at(64), VGG_STEP.at(128)
    time, then = timed(ledger), timed(before, np.full(len(before.phases), 0.5))
    picture = skyline(ledger, before=before, before_name="kept", time=time, before_time=then)
    name = f"kept: {format_bytes(before.peak_bytes)}, {format_seconds(then.total_seconds)}"
    assert name in [text.text for text in words_of(picture)]


def test_what_does_not_go_together_is_one_line():
    ledger, other = VGG_STEP.at(64), VGG_STEP.at(65)
    time = timed(ledger)
    with pytest.raises(CourseError, match="before needs its own before_time where the axis is time"):
        skyline(ledger, before=other, time=time)
    with pytest.raises(CourseError, match="before_time is given and time is not"):
        skyline(ledger, before=other, before_time=timed(other))
    with pytest.raises(CourseError, match="time must be the time of the very step drawn"):
        skyline(other, time=time)
    with pytest.raises(CourseError, match="before_time must be the time of the very step drawn"):
        skyline(ledger, time=time, before_time=timed(other))


def test_a_device_that_takes_no_time_is_drawn():
    ledger = VGG_STEP.at(4)
    instant = replace(device("T4"), launch_seconds=0.0)
    picture = skyline(ledger, time=predict_step(ledger, instant))
    assert_well_laid(picture)
