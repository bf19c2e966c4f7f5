"""The inputs of exercise 13, "Transformers", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared.network_questions import graded_network
from lessons.transformers import judge as chunked

Case = tuple[object, ...]
PRIMES = (53, 59, 61, 67, 71, 73, 79, 83, 89)


def _shapes(draw: random.Random) -> list[tuple[int, int]]:
    """Hidden width and heads; the first crosses nearer to the number below, the width of the last is a prime."""
    heads = [draw.choice((4, 6, 12, 20, 25)) for _ in range(4)]
    widths = [64, *(draw.choice((32, 64, 80, 128)) for _ in range(3))]
    shapes = [(width * a, a) for width, a in zip(widths, heads, strict=True)]
    return [*shapes, (draw.choice(PRIMES), draw.choice((7, 11)))]


def _layers(draw: random.Random) -> list[Case]:
    return [(draw.randint(100, 3000), draw.randint(2, 16), hidden, heads) for hidden, heads in _shapes(draw)]


def _crossings(draw: random.Random) -> list[Case]:
    whole = 5 * draw.randint(5, 20)  # with one head the crossing is a whole number
    return [*_shapes(draw), (whole, 1)]


def _rooms(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for hidden, heads in _shapes(draw):
        layers, batch, sequence = draw.randint(2, 48), draw.randint(2, 8), draw.randint(100, 4000)
        exact = layers * batch * sequence * (34 * hidden + 5 * heads * sequence)
        cases += [(layers, batch, hidden, heads, exact), (layers, batch, hidden, heads, exact - draw.randint(1, 900))]
    return [*cases, (12, 4, 768, 12, draw.randint(10, 1000))]


def _logits(draw: random.Random) -> list[Case]:
    return [
        (draw.randint(1, 16), draw.randint(100, 4000), draw.choice((32_000, 50_257, 128_256)), upcast, kept)
        for upcast in (True, False) for kept in (True, False)
    ]  # fmt: skip


def _stacks(draw: random.Random) -> list[Case]:
    deep = [(draw.randint(60, 130), 2, 34), (draw.choice((36, 49, 81)), 3, 3), (draw.choice((13, 17, 31, 37)), 4, 3)]
    several = (draw.randint(10, 12), *[draw.randint(2, 9)] * 2)  # more than one size has the lowest peak
    return [*deep, several, (draw.randint(8, 12), 2, 34), (draw.randint(5, 9), 40, draw.randint(2, 4)), (1, 7, 9)]


layer_bytes = Graded("layer_bytes", _layers)
crossing = Graded("crossing", _crossings)
longest = Graded("longest", _rooms)
logit_bytes = Graded("logit_bytes", _logits)
best_block = Graded("best_block", _stacks)


def _size(draw: random.Random) -> tuple[int, int]:
    """Texts, and tokens of each: of pieces of 32 a few are left, or many."""
    return draw.choice((4, 5)), draw.choice((61, 65, 67))


loss_in_pieces = graded_network("loss_in_pieces", chunked.record, chunked.judge, _size)
