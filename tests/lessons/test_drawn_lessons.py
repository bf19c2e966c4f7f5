"""The pictures of lessons 05 and 06: bars as wide as channels, a pool whose gradients go where they should."""

import json
import re

import pytest
import torch
from drawn import assert_well_laid, paths, words_of

from course_utils.figures import ROLE_COLOURS
from course_utils.figures.style import SERIES_COLOURS
from course_utils.units import CourseError
from lessons.one_by_one.blocks import channel_bars
from lessons.pooling.drawn import pool_drawn, waterfall

BLOCKS = {"narrow": [("reads", 64), ("3×3", 64)], "wide": [("reads", 256), ("1×1", 64), ("1×1", 256)]}


def width(path):
    left, right = (end(x for part in path for x, _ in part) for end in (min, max))
    return right - left


def test_a_bar_is_as_wide_as_its_channels_in_every_block():
    picture = channel_bars(BLOCKS, "Two blocks")
    assert_well_laid(picture)
    # what a block reads is an outline, and the SVG is written in tenths of a pixel
    widths = [width(bar) for bar in paths(picture, fill=ROLE_COLOURS["feature maps"])]
    assert [w / widths[0] for w in widths] == pytest.approx([1, 1, 4], rel=0.002)
    assert [w.text for w in words_of(picture)].count("64") == 3


@pytest.mark.parametrize("blocks", [{}, {"empty": []}, {"none": [("reads", 0)]}])
def test_blocks_without_channels_are_refused(blocks):
    with pytest.raises(CourseError, match="channel_bars needs"):
        channel_bars(blocks)


def test_each_gradient_goes_to_the_largest_value_of_its_window_and_nothing_is_lost():
    values = torch.randperm(16, generator=torch.Generator().manual_seed(3)).view(4, 4).float()
    arriving = torch.tensor([[10.0, 20], [30, 40]])
    picture = pool_drawn(values, arriving, "A pool")
    assert_well_laid(picture)
    told = {name.strip(): json.loads(grid) for name, grid in re.findall(r"([\w: ]+): (\[\[[^;]*\]\])", picture.alt)}
    expected = torch.zeros(4, 4)
    for row in range(2):
        for column in range(2):
            window = values[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            at = int(window.argmax())
            expected[2 * row + at // 2, 2 * column + at % 2] = arriving[row, column]
    assert told["goes to the winners"] == expected.tolist()
    assert sum(map(sum, told["average pool: to all"])) == arriving.sum()


def test_only_a_map_of_sixteen_values_is_drawn():
    with pytest.raises(CourseError, match="4 × 4 values"):
        pool_drawn(torch.zeros(2, 2), torch.zeros(2, 2))


def test_each_fall_begins_where_the_last_one_ended_and_the_rest_is_what_is_left():
    picture = waterfall(("eager", 100.0), {"one": 40.0, "two": 25.0}, "left", "MiB", "What falls away")
    assert_well_laid(picture)
    first, second = paths(picture, fill=SERIES_COLOURS[1])
    left_of, right_of = (lambda path, end=end: end(x for part in path for x, _ in part) for end in (min, max))
    assert right_of(second) == pytest.approx(left_of(first), abs=0.2)
    assert width(first) / width(second) == pytest.approx(40 / 25, rel=0.01)
    assert "left: 35 MiB" in picture.alt


@pytest.mark.parametrize("falls", [{}, {"more than all": 101.0}, {"a rise": -1.0}])
def test_more_than_there_is_cannot_fall(falls):
    with pytest.raises(CourseError, match="parts of a total"):
        waterfall(("all", 100.0), falls, "left", "MiB")
