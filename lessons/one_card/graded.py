"""The inputs of exercise 14, "Fine-tuning and serving on one card", drawn from the class seed.

No right answer is known here.
"""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from course_utils.units import GIB
from lessons.one_card import judge as adapters
from lessons.shared.network_questions import graded_network

Case = tuple[object, ...]


def _caches(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for share in (1, 4, 8):
        kv_heads = draw.randint(2, 8)
        cases.append(
            (draw.randint(8, 80), kv_heads * share, kv_heads, draw.choice((64, 80, 128)), draw.randint(500, 9000),
             draw.randint(2, 40))
        )  # fmt: skip
    return cases


def _widths(draw: random.Random) -> list[Case]:
    return [
        ([[16 * draw.randint(10, 90), 16 * draw.randint(91, 300)] for _ in range(count)], draw.randint(2, 32))
        for count in (3, 1, 6)
    ]


def _fixed(draw: random.Random) -> list[Case]:
    def values(low: int, high: int) -> int:
        return 1000 * draw.randint(low, high)

    return [
        (values(10**5, 10**7), 0, 16, 16),
        (values(10**5, 10**7), 0, 16, 8),
        (values(10**5, 10**7), values(100, 900), 4, 32),
        (values(10**5, 10**7), values(100, 900), 8, 16),
        (values(10**3, 10**4), values(100, 900), 4, 8),
    ]


def _rooms(draw: random.Random) -> list[Case]:
    """Cards with room for thousands of tokens, for a few to the last byte, and for no weights."""
    cases: list[Case] = []
    for _ in range(3):
        taken = [GIB // 2 + draw.randint(0, 999), draw.randint(1, 15) * GIB + draw.randint(1, 10**6)]
        cases.append((24 * GIB, taken, 1024 * draw.randint(20, 400), draw.randint(2, 40)))
    token, batch = draw.randint(10, 99), draw.randint(2, 9)
    taken = [50, draw.randint(100, 999), draw.randint(100, 999)]
    full = sum(taken) + token * batch * draw.randint(3, 9)
    nearly = full + 3 * token * batch // 4  # three quarters of a token more for each
    cases += [(full, taken, token, batch), (nearly, taken, token, batch)]
    return [*cases, (8 * GIB, [GIB, 16 * GIB], 131_072, draw.randint(2, 9))]


def _rates(draw: random.Random) -> list[Case]:
    """Few sequences, several, and so many that the products compute for longer than they read."""
    cases: list[Case] = []
    for batch, cache in ((draw.randint(2, 4), 1e9), (draw.randint(20, 60), 1e8), (draw.randint(3000, 9000), 1e7)):
        weights = draw.randint(20, 160) * 1e8
        cases.append(
            (weights, cache * draw.randint(1, 9), batch, weights * draw.choice((8, 9, 11, 12)) / 10,
             draw.randint(200, 3000) * 1e9, draw.randint(20, 60) * 1e12)
        )  # fmt: skip
    return cases


kv_cache = Graded("kv_cache", _caches)
lora_bytes = Graded("lora_bytes", _widths)
fixed_bytes = Graded("fixed_bytes", _fixed)
longest_context = Graded("longest_context", _rooms)
tokens_per_second = Graded("tokens_per_second", _rates)


adapt_layer = graded_network("adapt_layer", adapters.record, adapters.judge, lambda draw: (draw.randint(2, 6),))
