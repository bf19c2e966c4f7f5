"""The pictures of the allocator in lesson 03: what they show is what the allocator holds."""

import pytest
from drawn import assert_well_laid, paths, words_of
from hypothesis import given
from hypothesis import strategies as st

from course_utils.allocator import CachingAllocator, OutOfMemory
from course_utils.units import MIB, CourseError
from lessons.memory.segments import Moment, segments, verdicts


@given(st.lists(st.tuples(st.integers(1, 60 * MIB), st.integers(0, 9)), max_size=40))
def test_a_layout_holds_all_that_is_reserved_and_frees_all_that_is_not_in_use(moves):
    allocator, held, refused = CachingAllocator(200 * MIB), [], []
    for size, which in moves:
        if held and which < 5:
            allocator.release(held.pop(which % len(held)))
        try:
            held.append(allocator.allocate(size))
        except OutOfMemory as error:
            refused.append(error.asked - Moment.of(error.allocator).untaken)
    assert all(missing > 0 for missing in refused)
    blocks = [block for segment in allocator.layout() for block in segment]
    assert sum(size for size, _ in blocks) == allocator.reserved
    assert sum(size for size, free in blocks if not free) == allocator.allocated == sum(one.size for one in held)


def test_the_picture_names_what_is_asked_for_and_the_largest_piece():
    allocator = CachingAllocator(60 * MIB)
    first = allocator.allocate(40 * MIB)
    allocator.release(first)
    allocator.allocate(12 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(30 * MIB)
    moment = Moment.of(allocator, caught.value.asked)
    assert moment.free == [28 * MIB, 20 * MIB]
    picture = segments({"three": moment}, "A title")
    assert_well_laid(picture)
    assert "12.00 MiB in use, 48.00 MiB free, at most 28.00 MiB in a piece, 30.00 MiB asked for" in picture.alt
    assert "28.00 MiB" in [words.text for words in words_of(picture)]
    assert "20.00 MiB" not in [words.text for words in words_of(picture)]


@pytest.mark.parametrize(
    "blocks", [[(1, False), (8000, True)], [(8000, True), (1, False)], [(4000, True), (1, False), (4000, True)]]
)
def test_a_thin_block_that_holds_its_segment_is_seen_within_it(blocks):
    picture = segments({"one": Moment(10_000, [[(2000, True)], blocks])}, "A title")
    (used,), _key = paths(picture, fill="#5a5a5a")
    gaps = [x for (gap,) in paths(picture, fill="#d9d9d9")[1:-1] for x, _ in gap]
    assert max(x for x, _ in used) - min(x for x, _ in used) == 4
    assert min(gaps) - 1 < min(x for x, _ in used) < max(x for x, _ in used) < max(gaps) + 1
    picture = verdicts({1: "fits", 2: "tight", 3: "fits"}, "A title")
    assert_well_laid(picture)
    assert "fits: 1, 3; tight: 2" in picture.alt


@pytest.mark.parametrize(
    "draw",
    [
        lambda: segments({}, "none"),
        lambda: segments({"a": Moment(1, []), "b": Moment(2, [])}, "two cards"),
        lambda: Moment.of(CachingAllocator()),
        lambda: verdicts({}, "none"),
        lambda: verdicts({1: "no"}, "another"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(CourseError):
        draw()
