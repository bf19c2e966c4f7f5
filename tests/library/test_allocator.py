"""The replay of the caching allocator: what holds for any sequence of requests, its constants, and whole steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from course_utils.allocator import ROUND, SMALL_REQUEST, Block, CachingAllocator, OutOfMemory, Requests
from course_utils.networks import NETWORKS
from course_utils.trace import training_step

MIB = 2**20
# Sizes around every border between the pools and the segments, and anything in between.
SIZES = st.one_of(
    st.integers(1, 4096),
    st.sampled_from([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB]).flatmap(lambda n: st.integers(n - 513, n + 513)),
    st.integers(1, 64 * MIB),
)


def whole(block: Block) -> tuple[int, int]:
    """Address and size of the segment a block is cut from."""
    first = block
    while first.before is not None:
        first = first.before
    size, part = 0, first
    while part is not None:
        size += part.size
        part = part.after  # type: ignore[assignment]
    return first.address, size


def segments(blocks: list[Block]) -> dict[int, int]:
    return dict(whole(block) for block in blocks)


class AnySequence(RuleBasedStateMachine):
    """Requests and releases in any order."""

    @initialize()
    def start(self) -> None:
        self.allocator = CachingAllocator()
        self.alive: list[tuple[Block, int]] = []
        self.seen: list[Block] = []
        self.most = 0

    @rule(size=SIZES)
    def allocate(self, size: int) -> None:
        before = self.allocator.reserved
        block = self.allocator.allocate(size)
        assert block.size >= size
        assert not block.free
        assert block.small == (size <= SMALL_REQUEST)
        self.alive.append((block, size))
        self.seen.append(block)
        grown = self.allocator.reserved - before
        if grown:  # only what no free block could hold is asked of the card, in the segments of its rules
            rounded = -(-size // ROUND) * ROUND
            expected = (
                2 * MIB if rounded <= MIB else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
            )
            assert grown == expected

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        block, _ = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        self.allocator.release(block)

    @invariant()
    def no_two_live_blocks_share_a_byte(self) -> None:
        spans = sorted((block.address, block.address + block.size) for block, _ in self.alive)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))

    @invariant()
    def every_block_lies_in_what_is_reserved(self) -> None:
        assert all(block.address + block.size <= self.allocator.reserved for block, _ in self.alive)
        assert sum(size for _, size in self.alive) <= self.allocator.reserved

    @invariant()
    def allocated_is_the_sum_of_the_blocks_in_use(self) -> None:
        assert self.allocator.allocated == sum(block.size for block, _ in self.alive)
        self.most = max(self.most, self.allocator.allocated)
        assert self.allocator.peak_allocated == self.most

    @invariant()
    def addresses_are_multiples_of_512(self) -> None:
        assert all(block.address % ROUND == 0 and block.size % ROUND == 0 for block, _ in self.alive)

    @invariant()
    def two_free_neighbours_are_one(self) -> None:
        for pool in self.allocator._free.values():
            for _, _, block in pool:
                assert block.free
                assert block.after is None or not block.after.free

    def teardown(self) -> None:
        """Everything freed merges back into whole segments, which add up to what is reserved."""
        if not hasattr(self, "alive"):
            return
        for block, _ in self.alive:
            self.allocator.release(block)
        left = [block for pool in self.allocator._free.values() for _, _, block in pool]
        assert all(block.before is None and block.after is None for block in left)
        assert sum(block.size for block in left) == self.allocator.reserved


AnySequence.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnySequence = AnySequence.TestCase


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        # From 10 MiB on a segment of their own size; a rest of up to 1 MiB stays with the block.
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (12 * MIB + 1, 12 * MIB + 512, 14 * MIB),
        (19 * MIB, 20 * MIB, 20 * MIB),
    ],
)
def test_rounding_and_segments(size: int, block: int, segment: int) -> None:
    """The rules of c10/cuda/CUDACachingAllocator.cpp with its default settings, size by size."""
    allocator = CachingAllocator()
    assert allocator.allocate(size).size == block
    assert allocator.reserved == segment


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    kept = [allocator.allocate(size * MIB) for size in (40, 12, 24)]
    for block in kept:
        allocator.release(block)
    assert allocator.allocate(11 * MIB) is kept[1]
    assert allocator.allocate(23 * MIB) is kept[2]
    assert allocator.reserved == 76 * MIB


def test_small_and_large_requests_do_not_share_segments() -> None:
    allocator = CachingAllocator()
    large = allocator.allocate(10 * MIB)
    allocator.release(large)
    allocator.allocate(1000)
    assert allocator.reserved == 12 * MIB


STEPS = st.lists(st.tuples(SIZES, st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25)


def replay(step: list[tuple[int, int, int]], steps: int, lasting: bool = False, limit: int | None = None) -> int:
    size = np.array([entry[0] for entry in step], dtype=np.int64)
    birth = np.array([min(entry[1:]) for entry in step], dtype=np.int64)
    death = np.array([max(entry[1:]) + 1 for entry in step], dtype=np.int64)
    stays = np.full(len(step), lasting)
    return (
        Requests(size, birth, death, stays, np.zeros(len(step), dtype=np.bool_), events=11)
        .replay(limit, steps)
        .reserved
    )


@settings(deadline=None)
@given(STEPS)
def test_more_steps_never_reserve_less(step: list[tuple[int, int, int]]) -> None:
    reserved = [replay(step, steps) for steps in (1, 2, 3)]
    assert reserved == sorted(reserved)


def test_a_second_identical_step_may_reserve_more() -> None:
    """Best fit looks at what is free: what was cut from a new segment takes another's place the second time."""
    step = [(5 * MIB, 0, 3), (16 * MIB, 1, 3), (15 * MIB, 2, 3)]
    assert [replay(step, steps) for steps in (1, 2, 3)] == [36 * MIB, 52 * MIB, 52 * MIB]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["AlexNet", "VGG-16", "GoogLeNet", "ResNet-50", "52 M dense net"])
def test_the_courses_networks_reserve_nothing_new_from_the_third_step_on(name: str, optimizer: str) -> None:
    network = NETWORKS[name]
    with torch.device("meta"):
        module = network.build()
    ledger = training_step(module, network.input_shape, optimizer=optimizer).at(32)
    assert ledger.requests.replay(steps=6).reserved == ledger.reserved_bytes()


def test_allocated_counts_whole_blocks_at_their_fullest_moment_of_the_last_step() -> None:
    """11 MiB take a segment of 12 whole: what is left, 1 MiB, is not split off. One byte takes 512."""
    size, birth, death = np.array([11 * MIB, 1, 30 * MIB]), np.array([0, 1, 3]), np.array([2, 2, 4])
    flags = np.zeros(3, dtype=np.bool_)
    replayed = Requests(size, birth, death, flags, flags, events=4).replay(steps=1)
    assert (replayed.peak_allocated, replayed.allocated, replayed.reserved) == (30 * MIB, 0, 44 * MIB)
    replayed = Requests(size[:2], birth[:2], death[:2], flags[:2], flags[:2], events=4).replay(steps=1)
    assert replayed.peak_allocated == 12 * MIB + 512


def test_state_that_comes_late_is_not_in_the_peak_of_the_first_step() -> None:
    size, flags = np.array([30 * MIB, 30 * MIB]), np.array([False, True])
    asked = Requests(size, np.array([1, 0]), np.array([2, 4]), flags, flags, events=4)
    assert [asked.replay(steps=steps).peak_allocated for steps in (1, 2)] == [30 * MIB, 60 * MIB]


@settings(deadline=None)
@given(STEPS)
def test_reserved_is_at_least_the_peak(step: list[tuple[int, int, int]]) -> None:
    alive = [sum(size for size, a, b in step if min(a, b) <= event <= max(a, b)) for event in range(10)]
    assert replay(step, steps=1) >= max(alive)
    assert replay(step, steps=3, lasting=True) >= sum(size for size, _, _ in step)


def test_state_made_late_finds_the_gaps_of_the_first_step() -> None:
    """Optimizer state is allocated at the end of the first step, into what its maps have left free."""
    size, flags = np.array([30 * MIB, 30 * MIB]), np.array([False, True])
    birth, death = np.array([1, 0]), np.array([2, 4])
    assert Requests(size, birth, death, flags, flags, events=4).replay(steps=1).reserved == 30 * MIB
    # The second step's map then needs a segment of its own.
    assert Requests(size, birth, death, flags, flags, events=4).replay(steps=2).reserved == 60 * MIB
    assert Requests(size, birth, death, flags, ~flags & flags, events=4).replay(steps=1).reserved == 60 * MIB


# -- A finite card ------------------------------------------------------------------------------------------------


def requests(step: list[tuple[int, int, int]]) -> Requests:
    size = np.array([entry[0] for entry in step], dtype=np.int64)
    birth = np.array([min(entry[1:]) for entry in step], dtype=np.int64)
    death = np.array([max(entry[1:]) + 1 for entry in step], dtype=np.int64)
    none = np.zeros(len(step), dtype=np.bool_)
    return Requests(size, birth, death, none, none, events=11)


@settings(deadline=None)
@given(STEPS, st.floats(0, 2))
@example([(1, 1, 1), (10_485_249, 0, 0)], 0.875)  # the large block is given back for the small one
def test_a_finite_card_is_never_overdrawn_and_what_cannot_be_met_fails(
    step: list[tuple[int, int, int]], share: float
) -> None:
    """Between the bytes in use and what is reserved without end anything may happen; outside it nothing is open."""
    asked = requests(step)
    limit = int(share * asked.reserved_bytes)
    try:
        reserved = asked.replay(limit).reserved
    except OutOfMemory:
        reserved = None
    first = requests(step)  # asked about the card before the replay without an end, which it may then stand for
    assert (reserved is not None) == first.fit_in(limit) == first.fit_in(limit) == asked.fit_in(limit)
    assert first.reserved_bytes == asked.reserved_bytes
    assert first.replayed.peak_allocated == asked.replayed.peak_allocated
    if limit < asked.least_bytes:
        assert reserved is None
    elif limit >= asked.reserved_bytes:
        assert reserved == asked.reserved_bytes  # the replay without an end, to the byte
    assert reserved is None or reserved <= limit  # at the end: blocks may have been given back on the way


@settings(deadline=None)
@given(STEPS)
def test_bytes_in_use_are_counted_in_blocks_of_512(step: list[tuple[int, int, int]]) -> None:
    alive = [
        sum(-(-size // 512) * 512 for size, a, b in step if min(a, b) <= event <= max(a, b)) for event in range(10)
    ]
    assert requests(step).least_bytes == max(alive)


def test_an_unused_segment_is_given_back_before_a_request_fails() -> None:
    """As `release_cached_blocks` in CUDACachingAllocator.cpp: whole segments only, of both pools."""
    allocator = CachingAllocator(limit=64 * MIB)
    blocks = [allocator.allocate(size) for size in (30 * MIB, 1000, 20 * MIB)]
    allocator.release(blocks[0])
    allocator.release(blocks[1])
    assert allocator.reserved == 52 * MIB  # kept while there is room
    large = allocator.allocate(40 * MIB)  # larger than what is cached, larger than what is left
    assert allocator.reserved == 60 * MIB
    assert large.address >= 52 * MIB  # what was given back leaves a hole; no address is used twice
    with pytest.raises(OutOfMemory, match="of 67108864 reserved"):
        allocator.allocate(10 * MIB)


def test_a_segment_of_which_a_part_is_in_use_is_not_given_back() -> None:
    allocator = CachingAllocator(limit=64 * MIB)
    whole = allocator.allocate(40 * MIB)
    allocator.release(whole)
    allocator.allocate(20 * MIB)  # cut from it; 20 MiB of it stay free
    with pytest.raises(OutOfMemory):
        allocator.allocate(30 * MIB)  # 44 MiB are free, in pieces of 20 and 24


def test_scratch_memory_is_alive_in_its_event_alone() -> None:
    asked = requests([(30 * MIB, 0, 9)])
    more = asked.also(np.array([10 * MIB, 20 * MIB]), np.array([3, 4]))
    assert more.least_bytes == 50 * MIB
    assert asked.least_bytes == 30 * MIB


def test_what_a_program_had_before_changes_which_blocks_can_be_split() -> None:
    size, flags = np.array([11 * MIB]), np.zeros(1, dtype=np.bool_)
    asked = Requests(size, np.array([0]), np.array([1]), flags, flags, events=2)
    assert asked.replay().peak_allocated == 12 * MIB  # a segment of its own: 1 MiB is too small to be split off
    assert asked.replay(before=[20 * MIB]).peak_allocated == 11 * MIB
    assert asked.replay(before=[20 * MIB]).reserved == 20 * MIB


@settings(deadline=None)
@given(STEPS, st.lists(st.integers(1, 40 * MIB), max_size=5))
def test_whatever_was_there_before_no_block_is_above_its_need_by_more_than_what_is_not_split(
    step: list[tuple[int, int, int]], before: list[int]
) -> None:
    asked = requests(step)
    most = len(step) * SMALL_REQUEST
    assert asked.least_bytes <= asked.replay(before=before).peak_allocated <= asked.least_bytes + most
