"""The two-lane schedule as a picture: well laid out at every extreme, its words and shapes those of the schedule."""

from __future__ import annotations

import itertools
import re

import pandas as pd
import pytest
import torch
from drawn import assert_well_laid, paths, words_of

from course_utils import networks
from course_utils.figures.plane import Spot
from course_utils.figures.style import ROLE_COLOURS
from course_utils.machine import hardware
from course_utils.machine.hardware import LINK_EFFICIENCY
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import room_for_tensors
from course_utils.techniques.offload import BACK, OUT, Schedule, simulate
from course_utils.trace import training_step
from course_utils.units import GIB, CourseError, format_bytes, format_seconds
from lessons.offload.efficiency import loss_by_efficiency
from lessons.offload.lanes import COMPUTE_COLOUR, COPY_COLOURS, LANE
from lessons.offload.schedule_lanes import MOVED, schedule_finding, schedule_lanes
from lessons.offload.search import simulate_2016

TITAN_X = hardware.device("Titan X (Maxwell)")


@pytest.fixture(scope="module")
def steps() -> dict[str, StepTrace]:
    found = {}
    for name in ("AlexNet", "VGG-16", "GoogLeNet", "52 M dense net"):
        network = networks.NETWORKS[name]
        with torch.device("meta"):
            found[name] = training_step(network.build(), network.input_shape, network.classes, name=name)
    return found


def pair(step: StepTrace, batch: int, policy: str, link: str) -> tuple[Schedule, Schedule]:
    limit = {"limit_bytes": 1e12}
    asked, none = (simulate_2016(step.at(batch), TITAN_X, p, "p", link, **limit) for p in (policy, "none"))
    return asked, none


def today(step: StepTrace, batch: int, policy: str, link: str) -> tuple[Schedule, Schedule]:
    asked, none = (simulate(step.at(batch), TITAN_X, p, "p", link) for p in (policy, "none"))
    return asked, none


@pytest.mark.parametrize("name", ["AlexNet", "VGG-16", "GoogLeNet", "52 M dense net"])
@pytest.mark.parametrize("policy", ["none", "all", "conv", "dyn", "windowed"])
def test_well_laid_at_every_extreme(steps: dict[str, StepTrace], name: str, policy: str) -> None:
    for batch, link in ((1, "PCIe 2.0 x16"), (700, "PCIe 5.0 x16")):
        for make in (pair, today) if policy != "dyn" else (pair,):
            schedule, none = make(steps[name], batch, policy, link)
            for limit in (None, GIB, 80 * GIB):
                for before in (None, none):
                    picture = schedule_lanes(schedule, limit, before)
                    assert_well_laid(picture)
                    assert format_bytes(schedule.peak_bytes) in picture.alt
                    assert f"{MOVED.get(policy, policy)} moved" in picture.alt


def lane_widths(picture: object, colour: str, lane: float) -> list[float]:
    boxes = [part for data in paths(picture, fill=colour) for part in data]
    return [max(x for x, _ in box) - min(x for x, _ in box) for box in boxes if abs(height(box) - lane) < 0.5]


def height(box: list[tuple[float, float]]) -> float:
    return max(y for _, y in box) - min(y for _, y in box)


def test_blocks_are_as_long_as_what_they_stand_for(steps: dict[str, StepTrace]) -> None:
    schedule, none = pair(steps["VGG-16"], 128, "all", "PCIe 3.0 x16")
    picture = schedule_lanes(schedule, 12 * GIB, none)
    busy = {
        COMPUTE_COLOUR: schedule.compute_seconds,
        COPY_COLOURS[OUT]: sum(c.ends - c.begins for c in schedule.copies if c.direction == OUT),
        COPY_COLOURS[BACK]: sum(c.ends - c.begins for c in schedule.copies if c.direction == BACK),
    }
    widths = {colour: sum(lane_widths(picture, colour, LANE)) for colour in busy}
    scale = widths[COMPUTE_COLOUR] / busy[COMPUTE_COLOUR]
    for colour, seconds in busy.items():
        assert widths[colour] / scale == pytest.approx(seconds, rel=0.02)


def test_words_name_the_longest_wait_and_the_peak(steps: dict[str, StepTrace]) -> None:
    schedule, none = pair(steps["VGG-16"], 128, "all", "PCIe 3.0 x16")
    picture = schedule_lanes(schedule, 12 * GIB, none)
    texts = [word.text for word in words_of(picture)]
    longest = max(schedule.stalls, key=lambda stall: stall.seconds)
    assert f"{schedule.kernel_name(longest.kernel)} waits {format_seconds(longest.seconds, 2)}" in texts
    assert f"peak {format_bytes(schedule.peak_bytes, 1)}: {schedule.kernel_name(schedule.peak_kernel)}" in texts
    assert {"computation", "copies", "12 GiB card", "nothing moved", "forward", "backward"} <= set(texts)
    assert schedule.explain(longest) in picture.alt
    more = schedule.total_seconds / none.total_seconds - 1
    title = schedule_finding(schedule, none)
    assert f"for {100 * more:.0f} % more time" in title
    assert f"peak {format_bytes(schedule.peak_bytes)} instead of {format_bytes(none.peak_bytes)}" in title
    assert "waits" in schedule_finding(schedule)
    assert schedule_finding(none, none).endswith("nothing moves")
    dense, before = today(steps["52 M dense net"], 512, "all", "PCIe 3.0 x16")
    assert f"peak {format_bytes(before.peak_bytes)} as before, for " in schedule_finding(dense, before)


def test_memory_is_the_schedule_s(steps: dict[str, StepTrace]) -> None:
    """The top of the stack, read off the picture's axis, is the peak."""
    schedule, _ = today(steps["VGG-16"], 64, "all", "PCIe 3.0 x16")
    picture = schedule_lanes(schedule)
    labels = [
        w for w in words_of(picture) if w.anchor == "end" and w.fill == "var(--faint)" and re.match(r"\d", w.text)
    ]
    (y0, v0), (y1, v1) = ((w.y - 0.35 * w.size, float(w.text)) for w in (labels[0], labels[-1]))
    colours = [ROLE_COLOURS[role] for role in ROLE_COLOURS]
    tops = [
        min(y for _, y in part)
        for colour in colours
        for data in paths(picture, fill=colour)
        for part in data
        if height(part) > 20
    ]
    highest = v0 + (min(tops) - y0) * (v1 - v0) / (y1 - y0)
    assert highest * GIB == pytest.approx(schedule.peak_bytes, rel=0.01)


def test_loss_by_efficiency() -> None:
    table = pd.DataFrame(
        {
            "efficiency": [0.3, 0.6, 1.2] * 2,
            "link": [0.63] * 3 + [LINK_EFFICIENCY] * 3,
            "all": [8.0, 17.0, 30.0, 6.0, 12.0, 25.0],
            "dyn": [7.0, 8.0, 9.0, 6.0, 7.0, 8.0],
            "conv": [0.0, 1.0, 8.0, 0.0, 0.0, 5.0],
        }
    )
    picture = loss_by_efficiency(table, "net", (Spot("published", 0.6, 18.0, hollow=True),), {"the model's": 0.6})
    assert_well_laid(picture)
    assert "net: with kernels 4.0 times as fast, moving everything loses 25 % instead of 6 %" in picture.alt
    assert {"all, no limit", "dyn, must fit", "conv, no limit", "published"} <= {w.text for w in words_of(picture)}
    with pytest.raises(CourseError, match=r"needed at a link's share of 0\.75; the table has 0\.63$"):
        loss_by_efficiency(table[table["link"] < LINK_EFFICIENCY], "net")


def test_names_of_waits_stand_apart(steps: dict[str, StepTrace]) -> None:
    for batch in (64, 128, 256):
        picture = schedule_lanes(*pair(steps["VGG-16"], batch, "all", "PCIe 3.0 x16")[:1])
        names = [word for word in words_of(picture) if " waits " in word.text and word.anchor == "middle"]
        assert len(names) > 2
        for one, other in itertools.combinations(names, 2):
            if one.y == other.y:
                assert max(one.box[0], other.box[0]) - min(one.box[2], other.box[2]) >= 4.8


def test_the_lesson_lists_the_waits_that_its_picture_names(steps: dict[str, StepTrace]) -> None:
    card, ledger = hardware.device("T4"), steps["VGG-16"].at(192)
    moved, kept = simulate(ledger, card, "all"), simulate(ledger, card, "none")
    picture = schedule_lanes(moved, room_for_tensors(card), kept, limit="T4 − context")
    listed = sorted(moved.stalls, key=lambda stall: -stall.seconds)[:4]
    named = {word.text for word in words_of(picture) if " waits " in word.text}
    assert named == {f"{moved.kernel_name(s.kernel)} waits {format_seconds(s.seconds, 2)}" for s in listed}
