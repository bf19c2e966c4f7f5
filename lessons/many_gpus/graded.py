"""The inputs of exercise 11, "Many GPUs", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.many_gpus import judge as rings
from lessons.shared.judged import function
from lessons.shared.network_questions import graded_network
from lessons.shared.replay.form import from_texts, to_texts

Case = tuple[object, ...]


def _gradients(draw: random.Random) -> list[Case]:
    cases: list[Case] = [(cards * draw.randint(10**3, 10**8), cards) for cards in draw.sample(range(2, 17), 4)]
    return [*cases, (draw.randint(10**3, 10**6), 1)]


def _steps(draw: random.Random) -> list[Case]:
    """Buckets on a link that keeps up, one that does not, and one that stands still in between."""
    cases: list[Case] = []
    for rate, last in ((5e8, 1.0), (5e9, 1.0), (2e8, 0.02)):
        cards = draw.randint(3, 8)
        ready, moments = 0.0, []
        for _ in range(draw.randint(4, 6)):
            ready = round(ready + draw.uniform(0.005, 0.02), 4)
            moments.append((ready, 10**5 * draw.randint(40, 90)))
        moments.append((round(ready + 0.8 * (1 - last) + 0.004, 4), 10**5 * draw.randint(60, 90)))
        cases.append((moments, round(moments[-1][0] + 0.001, 4), round(draw.uniform(0.001, 0.01), 4), cards, rate))
    cases.append(([(0.01, 10**6), (0.02, 10**6)], 0.03, 0.002, 1, 1e9))
    return cases


def _networks(draw: random.Random) -> list[Case]:
    """Layers on both sides of every border: for the whole batch, for one card's, at half and twice the weights."""
    cases: list[Case] = []
    for ties in (False, False, True):
        cards, batch = draw.randint(3, 8), draw.randint(16, 200)
        if ties:  # of powers of two, so that no rounding decides them
            cards, batch = draw.choice((4, 8)), 2 ** draw.randint(4, 7)
        layers = []
        for share in (0.2, 0.7, 1.05, 1.5, 3.0, cards + 1.0, 1.0 if ties else 1.2):
            inputs = draw.randint(100, 5_000)
            border = cards * batch * inputs
            layers.append((border if share == 1.0 else round(border * share), inputs))
            layers.append((round(border * draw.uniform(0.55, 0.95)), inputs))
        cases.append((draw.sample(layers, len(layers)), batch, cards))
    return cases


def _models(draw: random.Random) -> list[Case]:
    return [
        (cards * draw.randint(10**6, 10**8), cards, stage) for stage in range(4) for cards in (draw.randint(2, 64),)
    ]


def _shards(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for reduction in ("mean", "sum"):
        for cards in draw.sample(range(2, 8), 2):
            size = draw.randint(20, 64)
            cases.append(([size] * (cards - 1) + [draw.randint(1, size - 1)], reduction))
    return cases


ring_bytes = Graded("ring_bytes", _gradients)
step_seconds = Graded("step_seconds", _steps)
cheaper_split = Graded("cheaper_split", _networks)
card_bytes = Graded("card_bytes", _models)
shard_factors = Graded("shard_factors", _shards)


def _size(draw: random.Random) -> tuple[int, int]:
    """Cards, and numbers in a chunk."""
    return draw.randint(4, 7), draw.randint(3, 20)


ring_average = graded_network(
    "ring_average", rings.record, rings.judge, _size, function, "function", to_texts, from_texts
)
