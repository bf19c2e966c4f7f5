"""The inputs of exercise 03, "Where the memory goes", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared import rewrites
from lessons.shared.network_questions import graded_network

OPTIMIZERS = ("sgd", "momentum", "adam")
Case = tuple[object, ...]


def _maps(draw: random.Random) -> list[Case]:
    shapes = [
        (draw.randint(2, 256), draw.randint(2, 512), draw.randint(2, 99), draw.randint(100, 224)) for _ in "123456"
    ]
    return [*shapes[:3], *((*shape, draw.choice((1, 2, 8))) for shape in shapes[3:])]


def _parameters(draw: random.Random) -> list[Case]:
    return [(draw.randint(1, 10**power), name) for power in (3, 9) for name in OPTIMIZERS]


def _pools(draw: random.Random) -> list[Case]:
    sizes = [(draw.randint(1, 128), draw.randint(1, 512)) for _ in "1234"]
    odd, even = [2 * draw.randint(2, 99) + 1 for _ in "1234"], [2 * draw.randint(2, 99) for _ in "1234"]
    sides = [(odd[0], even[0]), (even[1], odd[1]), (odd[2], odd[3]), (even[2], even[3])]
    return [(*size, *side) for size, side in zip(sizes, sides, strict=True)]


def _networks(draw: random.Random) -> list[Case]:
    def one(power: int) -> Case:
        maps = draw.randint(10**power, 10 ** (power + 1))
        largest = draw.randint(maps // 9, maps // 3)
        return maps, draw.randint(10, maps), draw.randint(10, 10 * maps), largest, draw.randint(2, 256)

    return [one(power) for power in (2, 4, 6, 7)]


def _moments(draw: random.Random) -> list[Case]:
    """Steps where a high slow moment and a low steep one take turns as the peak; some batches are above 20,000."""
    cases: list[Case] = []
    for decides in ("steep", "flat", "steep", "flat"):
        flat, steep = draw.randint(1, 9), draw.randint(30, 90)
        turn, low = draw.randint(50, 200), draw.randint(0, 500)
        high = low + turn * (steep - flat)  # both need the same at batch `turn`
        batch = turn + draw.randint(5, 500) if decides == "steep" else draw.randint(5, turn - 5)
        limit = max(low + steep * batch, high + flat * batch) + draw.randint(0, flat - 1) * (len(cases) % 2)
        moments = [(high, flat), (low, steep), (low // 2, steep // 2), (high // 3, 0)]
        cases.append((draw.sample(moments, len(moments)), limit))
    low, steep = draw.randint(100, 900), draw.randint(10, 90)
    nothing = [([(low, steep), (low // 2, 2 * steep)], low + steep - 1), ([(low, steep), (9 * low, 1)], 8 * low)]
    held = [(9 * low, 0), (low, steep)]  # what does not grow is beyond the limit, or just within
    many = draw.randint(20_000, 40_000)
    large = ([(low, 3), (9 * low, 1), (low, 0)], low + 3 * many + draw.randint(0, 2))
    slow = ([(low, 1), (low // 2, 0)], low + draw.randint(3, 99))  # a byte a sample
    return [*cases, *nothing, (held, 9 * low - draw.randint(1, low)), (held, 9 * low), large, slow]


map_bytes = Graded("map_bytes", _maps)
training_bytes = Graded("training_bytes", _parameters)
pool_saved_bytes = Graded("pool_saved_bytes", _pools)
network_wide = Graded("network_wide", _networks)
largest_batch = Graded("largest_batch", _moments)


keep_less = graded_network("keep_less", rewrites.record, rewrites.judge, lambda draw: (draw.randint(8, 16),))
