"""A replay of PyTorch's CUDA caching allocator: from bytes alive to bytes in blocks, and to bytes reserved on the card.

Rules and constants as in c10/cuda/CUDACachingAllocator.cpp with its default settings (one stream, no expandable
segments). Pure Python; must never import torch or anything else of ours.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ROUND = 512  # every request is rounded up to a multiple of this
SMALL_REQUEST = 2**20  # requests up to 1 MiB are cut from ...
SMALL_SEGMENT = 2 * 2**20  # ... segments of 2 MiB
LARGE_SEGMENT = 20 * 2**20  # requests between 1 and 10 MiB are cut from segments of 20 MiB
LARGE_REQUEST = 10 * 2**20  # larger ones get a segment of their own size ...
ROUND_LARGE = 2 * 2**20  # ... rounded up to a multiple of 2 MiB


@dataclass(eq=False)
class Block:
    """A stretch of a segment, in use or free, linked to its neighbours in the segment."""

    address: int
    size: int
    small: bool
    before: Block | None = None
    after: Block | None = None
    free: bool = False


class CachingAllocator:
    """Best fit among the free blocks of a pool, split where worth it, merged when freed, never given back.

    Attributes:
        reserved: bytes taken from the card.
        allocated: bytes in blocks that are in use, as `torch.cuda.memory_allocated` counts them.
        peak_allocated: the most `allocated` has been since it was last set, as `torch.cuda.max_memory_allocated`.
    """

    def __init__(self) -> None:
        self.reserved = self.allocated = self.peak_allocated = 0
        # Free blocks of the large and the small pool, as (size, address, block), smallest first.
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def allocate(self, size: int) -> Block:
        """Hand out a block of at least `size` bytes, growing `reserved` if no free block is large enough."""
        size = max(ROUND, -(-size // ROUND) * ROUND)
        small = size <= SMALL_REQUEST
        pool = self._free[small]
        index = bisect_left(pool, (size, -1))
        if index < len(pool):
            block = pool.pop(index)[2]
            block.free = False
        else:
            block = Block(self.reserved, self._segment_size(size), small)
            self.reserved += block.size
        rest = block.size - size
        if rest >= ROUND if small else rest > SMALL_REQUEST:
            tail = Block(block.address + size, rest, small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = tail
            block.after, block.size = tail, size
            self._put_back(tail)
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    @staticmethod
    def _segment_size(size: int) -> int:
        if size <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if size < LARGE_REQUEST:
            return LARGE_SEGMENT
        return -(-size // ROUND_LARGE) * ROUND_LARGE

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
        insort(self._free[block.small], (block.size, block.address, block), key=lambda entry: entry[:2])


def replay_step(
    size: npt.NDArray[np.int64],
    birth: npt.NDArray[np.int64],
    death: npt.NDArray[np.int64],
    lasting: npt.NDArray[np.bool_],
    late: npt.NDArray[np.bool_],
    events: int,
    steps: int = 3,
) -> CachingAllocator:
    """The allocator after `steps` training steps; its `peak_allocated` is that of the last of them.

    Args:
        size: (S,) bytes of each storage.
        birth: (S,) first event in which it is alive.
        death: (S,) first event in which it no longer is.
        lasting: (S,) True for what stays from step to step (parameters, optimizer state, input).
        late: (S,) True for what is made at the end of the first step (optimizer state).
        events: number of events in a step.
        steps: steps to replay; from the third on nothing new is reserved in the networks of the course.
    """
    allocator = CachingAllocator()
    born: list[list[int]] = [[] for _ in range(events + 1)]
    dead: list[list[int]] = [[] for _ in range(events + 1)]
    for index in range(len(size)):
        if size[index] == 0:
            continue
        if lasting[index]:
            if not late[index]:
                allocator.allocate(int(size[index]))
            continue
        born[int(birth[index])].append(index)
        dead[min(int(death[index]), events)].append(index)
    state = [int(size[index]) for index in range(len(size)) if lasting[index] and late[index] and size[index]]
    for step in range(steps):
        blocks: dict[int, Block] = {}
        allocator.peak_allocated = allocator.allocated
        for event in range(events + 1):
            for index in dead[event]:
                allocator.release(blocks.pop(index))
            if step == 0 and event == events - 1:
                for amount in state:
                    allocator.allocate(amount)
            for index in born[event]:
                blocks[index] = allocator.allocate(int(size[index]))
    return allocator
