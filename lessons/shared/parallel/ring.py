"""The ring all-reduce: every card ends with the sum of what all had, and sends less than twice its size.

Each card cuts its numbers into as many chunks as there are cards. In the first p - 1 steps each passes one chunk to its
neighbour, which adds its own: then every card holds one finished chunk. In p - 1 more the finished chunks go round.
After Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

import numpy as np

from course_utils.machine.hardware import Link
from course_utils.memory import Int64
from course_utils.units import KIB, CourseError, require_whole

# What one of the 2 (p - 1) steps costs beside its bytes. An all-reduce of 32 KiB, nearly nothing, on eight H200s runs
# at 1.44 GB/s in the ring's own measure: 39.8 µs for 14 steps (stas00/ml-engineering on GitHub, all-reduce on a node of
# eight H200s, 2026). Rings over PCIe or between machines are slower to answer; no figure of theirs is confirmed.
STEP_SECONDS = 2 * 7 / 8 * 32 * KIB / 1.44e9 / 14


def check_cards(cards: int) -> None:
    """Refuse a number of cards that is none.

    Raises:
        CourseError: cards is not a whole number of 1 or more.
    """
    require_whole("cards", cards)


def ring_bytes(size: float, cards: int) -> float:
    """Bytes each card sends, and receives, in a ring all-reduce of `size` bytes: 2 (p - 1) / p of them.

    Raises:
        CourseError: cards is not a whole number of 1 or more, or size is negative.
    """
    check_cards(cards)
    if size < 0:
        raise CourseError(f"size must be 0 bytes or more, got {size!r}")
    return 2 * (cards - 1) / cards * size


def all_reduce_seconds(size: float, cards: int, link: Link) -> float:
    """Seconds of a ring all-reduce: its bytes over the link, and STEP_SECONDS for each of its 2 (p - 1) steps.

    Raises:
        CourseError: as `ring_bytes`.
    """
    return ring_bytes(size, cards) / link.bytes_per_s + 2 * (cards - 1) * STEP_SECONDS


def ring_states(cards: int) -> Int64:
    """(2p - 1, p, p) from how many cards the numbers are that each card holds of each chunk, before and after steps.

    Row 0 is the beginning, all 1; the last is all p. In step s of the first half card c sends chunk c - s, in the
    second half chunk c + 1 - s, each time to card c + 1.

    Raises:
        CourseError: cards is not a whole number of 1 or more.
    """
    check_cards(cards)
    states = np.ones((2 * cards - 1, cards, cards), dtype=np.int64)
    for step in range(1, len(states)):
        before, after = states[step - 1], states[step]
        after[:] = before
        gathering = step >= cards
        s = step - cards if gathering else step - 1
        for card in range(cards):
            chunk, to = (card + (1 if gathering else 0) - s) % cards, (card + 1) % cards
            after[to, chunk] = before[card, chunk] if gathering else before[to, chunk] + before[card, chunk]
    return states
