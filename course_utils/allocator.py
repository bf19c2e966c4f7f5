"""A replay of PyTorch's CUDA caching allocator: from bytes alive to bytes in blocks, and to bytes reserved.

Rules and constants as in c10/cuda/CUDACachingAllocator.cpp with its default settings (one stream, no expandable
segments, no garbage collection). Where a finite card has no room for another segment, `malloc` there calls
`release_cached_blocks`, which gives every segment without a block in use back to the card, and tries once more; only
then does it raise. Pure Python and NumPy; must never import torch or anything else of ours.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

ROUND = 512  # every request is rounded up to a multiple of this
SMALL_REQUEST = 2**20  # requests up to 1 MiB are cut from ...
SMALL_SEGMENT = 2 * 2**20  # ... segments of 2 MiB
LARGE_SEGMENT = 20 * 2**20  # requests between 1 and 10 MiB are cut from segments of 20 MiB
LARGE_REQUEST = 10 * 2**20  # larger ones get a segment of their own size ...
ROUND_LARGE = 2 * 2**20  # ... rounded up to a multiple of 2 MiB


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of a segment, in use or free, linked to its neighbours in the segment."""

    address: int
    size: int
    small: bool
    before: Block | None = None
    after: Block | None = None
    free: bool = False


class OutOfMemory(Exception):
    """A request that a finite card cannot meet, even after every unused segment was given back."""

    def __init__(self, asked: int, allocator: CachingAllocator) -> None:
        super().__init__(f"{asked} bytes asked for, {allocator.reserved} of {allocator.limit} reserved")
        self.asked = asked  # bytes of the segment that there was no room for
        self.allocator = allocator  # as it was then


class CachingAllocator:
    """Best fit among the free blocks of a pool, split where worth it, merged when freed.

    Args:
        limit: bytes of the card; None for one without end, on which no segment is ever given back.

    Attributes:
        reserved: bytes taken from the card.
        allocated: bytes in blocks that are in use, as `torch.cuda.memory_allocated` counts them.
        peak_allocated: the most `allocated` has been since it was last set, as `torch.cuda.max_memory_allocated`.
        was_short: whether a segment found no room, so that the limit made a difference.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.was_short = limit, False
        self.reserved = self.allocated = self.peak_allocated = 0
        self._next = 0  # address of the next segment: what is given back leaves a hole, as on the card
        self._segments: list[Block] = []  # the first block of each, which merging keeps
        # Free blocks of the large and the small pool, as (size, address, block), smallest first.
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def allocate(self, size: int) -> Block:
        """Hand out a block of at least `size` bytes, growing `reserved` if no free block is large enough.

        Raises OutOfMemory where the card has no room for another segment, even without those that are not in use.
        """
        size = -(-size // ROUND) * ROUND or ROUND
        small = size <= SMALL_REQUEST
        pool = self._free[small]
        index = bisect_left(pool, (size, -1))
        if index < len(pool):
            block = pool.pop(index)[2]
            block.free = False
        else:
            block = self._segment(size, small)
        rest = block.size - size
        if rest >= ROUND if small else rest > SMALL_REQUEST:
            tail = Block(block.address + size, rest, small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = tail
            block.after, block.size = tail, size
            self._put_back(tail)
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def _segment(self, size: int, small: bool) -> Block:
        if small:
            size = SMALL_SEGMENT
        else:
            size = LARGE_SEGMENT if size < LARGE_REQUEST else -(-size // ROUND_LARGE) * ROUND_LARGE
        if self.limit is not None and self.reserved + size > self.limit:
            self.was_short = True
            self.release_cached()
            if self.reserved + size > self.limit:
                raise OutOfMemory(size, self)
        block = Block(self._next, size, small)
        self._segments.append(block)
        self._next += size
        self.reserved += size
        return block

    def layout(self) -> list[list[tuple[int, bool]]]:
        """The segments, oldest first: of each its blocks, as bytes and whether the block is free."""
        found = []
        for first in self._segments:
            blocks = []
            block: Block | None = first
            while block is not None:
                blocks.append((block.size, block.free))
                block = block.after
            found.append(blocks)
        return found

    def release_cached(self) -> None:
        """Give every segment of which no block is in use back to the card."""
        self._segments = [first for first in self._segments if not first.free or first.after is not None]
        for small, pool in self._free.items():
            whole = [entry[2].before is None and entry[2].after is None for entry in pool]
            self.reserved -= sum(entry[0] for entry, free in zip(pool, whole, strict=True) if free)
            self._free[small] = [entry for entry, free in zip(pool, whole, strict=True) if not free]

    def release(self, block: Block) -> None:
        """Take a block back and merge it with free neighbours."""
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is None or not neighbour.free:
                continue
            pool = self._free[block.small]
            del pool[bisect_left(pool, (neighbour.size, neighbour.address))]
            first, second = (neighbour, block) if neighbour is block.before else (block, neighbour)
            first.size += second.size
            first.after = second.after
            if second.after is not None:
                second.after.before = first
            block = first
        self._put_back(block)

    def _put_back(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.address, block))  # no two addresses are the same


@dataclass(frozen=True)
class Requests:
    """What a training step asks of the allocator, R requests for memory, step after step."""

    size: Int64  # (R,) bytes
    birth: Int64  # (R,) first event in which it is alive
    death: Int64  # (R,) first event in which it no longer is
    lasting: npt.NDArray[np.bool_]  # (R,) True for what stays from step to step (parameters, optimizer state, input)
    late: npt.NDArray[np.bool_]  # (R,) True for what is made at the end of the first step (optimizer state)
    events: int  # in a step
    _fits: dict[int, bool] = field(default_factory=dict, repr=False, compare=False)  # what was replayed, by limit

    @cached_property
    def alive(self) -> Int64:
        """(events + 2,) bytes in use after each event, each request rounded up as its block is."""
        change = np.zeros(self.events + 2, dtype=np.int64)
        rounded = -(-self.size // ROUND) * ROUND
        np.add.at(change, np.where(self.lasting, 0, self.birth), rounded)
        np.subtract.at(change, np.where(self.lasting, self.events + 1, np.minimum(self.death, self.events)), rounded)
        return np.cumsum(change)

    @property
    def least_bytes(self) -> int:
        """The most bytes in use at any moment: no allocator needs less."""
        return int(self.alive.max())

    @cached_property
    def replayed(self) -> CachingAllocator:
        """The allocator after three steps on a card without end."""
        return self.replay()

    @property
    def reserved_bytes(self) -> int:
        """What the allocator would have reserved on a card without end."""
        return self.replayed.reserved

    def also(self, size: Int64, birth: Int64, death: Int64 | None = None) -> Requests:
        """These requests and more of a step, each alive during one event alone where no death is given."""
        no = np.zeros(len(size), dtype=np.bool_)
        return replace(
            self,
            size=np.concatenate([self.size, size]),
            birth=np.concatenate([self.birth, birth]),
            death=np.concatenate([self.death, birth + 1 if death is None else death]),
            lasting=np.concatenate([self.lasting, no]),
            late=np.concatenate([self.late, no]),
            _fits={},
        )

    def fit_in(self, limit: int) -> bool:
        """Whether the allocator gets through on a card that leaves it so many bytes."""
        if limit < self.least_bytes:
            return False
        if "replayed" in vars(self) and limit >= self.reserved_bytes:  # known already: it is never short
            return True
        if limit not in self._fits:
            try:
                allocator = self.replay(limit)
            except OutOfMemory:
                self._fits[limit] = False
            else:
                self._fits[limit] = True
                if not allocator.was_short:  # the very same as on a card without end
                    vars(self)["replayed"] = allocator
        return self._fits[limit]

    @cached_property
    def _order(self) -> tuple[list[int], int]:
        """A step's requests in their order, ~index where one ends, and the place before which late ones are made.

        In an event first what dies goes, then what is born comes; late ones stand between the two, in the last event.
        """
        moving = np.flatnonzero(~self.lasting & (self.size > 0))
        event = np.concatenate([np.minimum(self.death, self.events)[moving], self.birth[moving]])
        born = np.repeat([0, 1], len(moving))
        index = np.concatenate([moving, moving])
        order = np.lexsort((index, born, event))
        late = int(np.count_nonzero(2 * event + born < 2 * (self.events - 1) + 1))
        return np.where(born, index, ~index)[order].tolist(), late

    def replay(self, limit: int | None = None, steps: int = 3, before: Sequence[int] = ()) -> CachingAllocator:
        """The allocator after so many training steps; its `peak_allocated` is that of the last of them.

        Args:
            limit: bytes of the card; None for one without end.
            steps: steps to replay; from the third on nothing new is reserved in the networks of the course.
            before: bytes of blocks that the program had all at once and gave back in this order before anything else.
                Their segments stay, and which blocks are cut from them decides what remains too small to be split.

        Raises:
            OutOfMemory: a request cannot be met within the limit.
        """
        allocator = CachingAllocator(limit)
        for block in [allocator.allocate(amount) for amount in before]:
            allocator.release(block)
        sizes, (order, late) = self.size.tolist(), self._order
        kept, made_late = self.lasting & (self.size > 0), self.late
        for index in np.flatnonzero(kept & ~made_late).tolist():
            allocator.allocate(sizes[index])
        blocks: dict[int, Block] = {}

        def follow(requests: list[int]) -> None:
            for index in requests:
                if index < 0:
                    allocator.release(blocks.pop(~index))
                else:
                    blocks[index] = allocator.allocate(sizes[index])

        for step in range(steps):
            allocator.peak_allocated = allocator.allocated
            follow(order[:late])
            if step == 0:
                for index in np.flatnonzero(kept & made_late).tolist():
                    allocator.allocate(sizes[index])
            follow(order[late:])
        return allocator
