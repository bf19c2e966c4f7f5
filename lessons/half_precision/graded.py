"""The inputs of exercise 08, "Half precision", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.half_precision import judge as scaled_loops
from lessons.shared.judged import function
from lessons.shared.network_questions import graded_network

OPTIMIZERS = ("sgd", "momentum", "adam")
RECIPES = ("float32", "mixed", "pure")
FORMATS = ((10, -14), (7, -126))  # fraction bits and lowest exponent of float16 and bfloat16
Case = tuple[object, ...]


def _parameters(draw: random.Random) -> list[Case]:
    return [(draw.randint(10, 10**9), optimizer, recipe) for recipe in RECIPES for optimizer in OPTIMIZERS]


def _maps(draw: random.Random) -> list[Case]:
    return [(draw.randint(10, 10**power), draw.randint(10, 10**power)) for power in (3, 4, 6, 8)]


def _weights(draw: random.Random) -> list[Case]:
    """In either format a number below 1 and one above, a negative one; a tiny one, 0, and a power of two."""
    cases: list[Case] = []
    for bits in FORMATS:
        for low, high, sign in ((1.05, 1.35, -1), (1.6, 1.95, 1), (-1.35, -1.05, draw.choice((-1, 1)))):
            power = sign * draw.randint(3, 5)  # nearer to 1 a result may end in a 5 that is printed rounded
            cases.append((round(draw.uniform(low, high), 3) * 2.0**power, *bits))
    tiny = draw.choice((1, -1)) * 1.25 * 2.0 ** -draw.randint(16, 20)
    return [*cases, (tiny, *FORMATS[0]), (0.0, *FORMATS[0]), (float(2 ** draw.randint(3, 11)), *FORMATS[0])]


def _gradients(draw: random.Random) -> list[Case]:
    """Gradients over many powers of two, some of them 0 or negative; one too large; two at the edge of what is lost."""
    cases: list[Case] = []
    for share, largest in ((1.0, -4), (0.75, -6), (0.5, -8), (1.0, 14), (0.9, 12)):
        sizes = [1.5 * 2.0 ** draw.randint(-37, -30) for _ in range(4)]
        sizes += [1.5 * 2.0 ** draw.randint(-29, -25) for _ in range(4)] + [1.5 * 2.0**largest]
        signed = [draw.choice((1, -1)) * size for size in sizes[:-1]] + [sizes[-1], -sizes[0], -sizes[1], 0.0, 0.0, 0.0]
        cases.append((draw.sample(signed, len(signed)), share))
    tie = [2.0 ** -draw.randint(30, 34), -(2.0 ** -draw.randint(26, 29)), 2.0**-25, -1.0]
    middle = [2.0 ** -draw.randint(27, 36), 0.5, 0.0]  # scaled, it is 2**-25
    above = [draw.randint(110, 190) / 100 * 2.0 ** -draw.randint(27, 36), 0.25]  # scaled, it is rounded up
    power = draw.randint(1, 4)
    edge = [2.0 ** -(24 + power), draw.choice((1, -1)) * 65504.0 / 2**power]  # scaled, it is float16's largest
    power = draw.randint(1, 4)
    beyond = [
        2.0 ** -(24 + power),
        draw.randint(70, 120) * 1000.0 / 2**power,
    ]  # scaled, it overflows by less than twice
    too_large = [2.0**-26, 2.0**-27, 2.0**-27, draw.randint(17, 30) * 1000.0]  # 4 would lose it, and keep the others
    return [
        *cases, (tie, 0.75), ([0.5, -0.25, 0.0], 0.9), (middle, 1.0), (above, 1.0), (edge, 1.0), (too_large, 0.6),
        (beyond, 1.0),
    ]  # fmt: skip


def _flags(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for interval in (2, 3, 4):
        flags: list[bool] = [False] * (interval - 1) + [True] + [False] * (2 * interval + 1)
        flags += [draw.random() < 0.2 for _ in range(8)]
        cases.append((flags, 2 ** draw.randint(8, 16), interval))
    calm = [False] * draw.randint(4, 6)  # grows with the first interval
    return [*cases, (calm, 2 ** draw.randint(3, 9), 3), ([True] * draw.randint(3, 5) + calm, draw.choice((1, 2)), 3)]


recipe_bytes = Graded("recipe_bytes", _parameters)
share_left = Graded("share_left", _maps)
smallest_update = Graded("smallest_update", _weights)
loss_scale = Graded("loss_scale", _gradients)
next_scales = Graded("next_scales", _flags)


def _pattern(draw: random.Random) -> tuple[int]:
    """What draws which batches are outliers, and how many."""
    return (draw.randrange(2**31),)


keep_small = graded_network(
    "keep_small", scaled_loops.record, scaled_loops.judge, _pattern, accept=function, kind="function"
)
