"""The inputs of exercise 06, "Pooling", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared import originals
from lessons.shared.builds import graded_build

Case = tuple[object, ...]


def _kept(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for kind, kernel, stride, value_bytes in (
        ("max", 2, 2, 4), ("max", 2, 2, 2), ("max", 3, 2, 4), ("max", 3, 2, 2), ("average", 2, 2, 4),
        ("average", 3, 2, 2),
    ):  # fmt: skip
        side = 2 * draw.randint(10, 99)  # where windows overlap, a row and a column are left over
        cases.append((kind, draw.randint(2, 64), draw.randint(2, 256), side, kernel, stride, value_bytes))
    return cases


def _windows(draw: random.Random) -> list[Case]:
    """Tables of numbers, negative ones and ties among them."""
    cases: list[Case] = []
    for rows, columns, low, high in ((2, 2, 1, 99), (4, 6, 1, 999), (4, 4, -99, -1), (6, 4, 0, 2), (2, 8, 0, 1)):
        values = [[draw.randint(low, high) for _ in range(columns)] for _ in range(rows)]
        gradients = [
            [draw.randint(1, 99) * draw.choice((1, -1)) for _ in range(columns // 2)] for _ in range(rows // 2)
        ]
        cases.append((values, gradients))
    tie = [[9, 9, 3, 1], [2, 9, 3, 3]]
    return [*cases, (tie, [[draw.randint(2, 99), draw.randint(2, 99)]])]


def _balances(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for size, later in ((2, 3), (2, 7), (3, 5), (4, 4), (2, 1)):
        channels = [draw.randint(2, 99) for _ in range(later)]
        cases.append((draw.randint(2, 128), draw.randint(2, 99), size * draw.randint(4, 30), size, channels))
    loss = (draw.randint(2, 64), draw.randint(200, 300), 2 * draw.randint(4, 30), 2, [1, 2])
    return [*cases, loss]


pool_keeps = Graded("pool_keeps", _kept)
route = Graded("route", _windows)
pool_balance = Graded("pool_balance", _balances)
pooled_well = graded_build("pooled_well", originals.POOLED_WELL)
