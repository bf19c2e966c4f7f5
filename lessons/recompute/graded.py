"""The inputs of exercise 10, "Recompute instead of store", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random
from functools import partial

from classroom.questions.graded import Graded
from lessons.shared import rewrites
from lessons.shared.network_questions import graded_network

Case = tuple[object, ...]
# Chains where the first cuts that fit, tried in whatever order, and those of the lowest peak all run more again.
NOT_THE_FIRST = (
    ([8, 8, 3, 6, 6, 5, 12], [2, 9, 9, 3, 1, 6, 8], 28),
    ([11, 5, 1, 3, 11, 1, 9], [1, 9, 9, 1, 8, 6, 9], 23),
)
ONLY_THE_LAST = ([5, 3, 3, 8, 4, 8, 5, 9], [8, 1, 5, 6, 3, 3, 6, 1], 22)


def _chains(draw: random.Random) -> list[Case]:
    uneven = [(draw.randint(2, 9) * k + draw.randint(1, k - 1), k) for k in (3, 5, 8)]
    return [*uneven, (6 * draw.randint(2, 9), 6), (draw.randint(10, 99), 1)]


def _counts(draw: random.Random) -> list[Case]:
    """Squares, one more than squares, and others: where the root rounded either way is not the smallest of the best."""
    side = draw.randint(4, 9)
    others = [side**2, side**2 + 1, side * (side + 1) + 1, draw.randint(200, 900), draw.choice((10, 17))]
    return [(1,), *((count,) for count in others)]  # one layer is one segment


def _outputs(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(1, 60) * 2 ** max(0, 4 - i // 2) for i in range(count)]


def _cuts(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for count, cuts in ((6, 2), (7, 1), (8, 3), (9, 3), (10, 4), (5, 0)):
        cases.append((_outputs(draw, count), sorted(draw.sample(range(1, count), cuts))))
    rising = sorted(_outputs(draw, 7))
    return [*cases, (rising, [2, 4, 5]), ([draw.randint(5, 9), 1, draw.randint(20, 30), 2], [1, 3])]


def _times(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for count, segments in ((5, [(0, 3)]), (6, [(0, 2), (3, 4)]), (8, [(1, 3), (3, 6)]), (4, [])):
        forward = [draw.randint(1, 20) for _ in range(count)]
        cases.append((forward, [2 * t + draw.randint(0, 3) for t in forward], segments))
    return cases


def _limits(draw: random.Random) -> list[Case]:
    """Limits from all that the layers keep down to too little; in some only several cuts fit."""
    cases: list[Case] = []
    for share in (1.0, 0.8, 0.65, 0.5, 0.05):
        outputs = [draw.randint(3, 9) for _ in range(8)]
        seconds = [draw.randint(1, 9) for _ in outputs]
        cases.append((outputs, seconds, int(share * sum(outputs))))
    size = draw.randint(2, 9)
    seconds = [draw.randint(1, 9) for _ in range(8)]
    cases += [([size] * 8, seconds, size * units) for units in (4, 5, 6)]
    cases.append(([size] * 8, seconds, size * 5 - 1))  # one too little
    for outputs, times, limit in (*NOT_THE_FIRST, ONLY_THE_LAST):
        size, time = draw.randint(2, 9), draw.randint(2, 9)
        cases.append(([size * output for output in outputs], [time * t for t in times], size * limit))
    return cases


chain_peak = Graded("chain_peak", _chains)
best_count = Graded("best_count", _counts)
cut_peak = Graded("cut_peak", _cuts)
extra_share = Graded("extra_share", _times)
least_again = Graded("least_again", _limits)


recompute_blocks = graded_network(
    "recompute_blocks",
    partial(rewrites.record, kind=rewrites.Tower),
    partial(rewrites.judge, kind=rewrites.Tower),
    lambda draw: (draw.randint(8, 16),),
)
