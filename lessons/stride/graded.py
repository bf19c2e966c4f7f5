"""The inputs of exercise 04, "Stride", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared import originals
from lessons.shared.builds import graded_build

Case = tuple[object, ...]


def _sides(draw: random.Random) -> list[Case]:
    """Sides that do and do not come out even, each stride and padding there is."""
    cases: list[Case] = []
    for stride in (1, 2, 2, 3, 4, 4, 5):
        kernel, padding = draw.choice((1, 3, 5, 7, 11)), draw.randint(1, 3)
        positions, left_over = draw.randint(4, 90), draw.randint(0, stride - 1)
        side = kernel + (positions - 1) * stride + left_over
        cases.append((side, kernel, stride, padding))
    side = 2 * draw.randint(20, 99)
    return [*cases, (side, 3, 2, 1), (2 * draw.randint(20, 99) + 1, 1, 2, 0), (4 * draw.randint(9, 30) + 8, 5, 4, 0)]


def _maps(draw: random.Random, largest: int) -> list[tuple[int, int]]:
    side, maps = draw.randint(largest // 2, largest), []
    for _ in range(draw.randint(4, 7)):
        maps.append((draw.randint(2, 99), side))
        side = max(3, side - draw.randint(0, side // 3))
    return maps


def _chains(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for stride in (2, 2, 3, 4):
        maps = _maps(draw, 99)
        cases.append((draw.randint(2, 128), maps, draw.randint(1, len(maps) - 2), stride))
    maps = [(draw.randint(2, 99), 2 * draw.randint(5, 50) + 1) for _ in "1234"]  # odd sides at stride 2
    return [*cases, (draw.randint(2, 128), maps, draw.randint(1, 2), 2)]


def _networks(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for stride in (2, 3, 4, 2):
        maps = [draw.randint(10**3, 10**6) for _ in range(draw.randint(4, 7))]
        cases.append((draw.randint(10**3, 10**6), maps, draw.randint(1, len(maps) - 2), stride))
    return cases


output_side = Graded("output_side", _sides)
bytes_saved = Graded("bytes_saved", _chains)
times_smaller = Graded("times_smaller", _networks)
strided = graded_build("strided", originals.STRIDED)
