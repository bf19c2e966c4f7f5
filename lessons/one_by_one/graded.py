"""The inputs of exercise 05, "1×1 convolutions", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared import originals
from lessons.shared.builds import graded_build

Case = tuple[object, ...]


def _squeezes(draw: random.Random) -> list[Case]:
    return [(draw.randint(5, 99), channels, draw.randint(3, channels - 1)) for channels in (16, 64, 300, 512)]


def _runs(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for narrow in (0, 1, 2, 3, 5):
        channels = draw.randint(20, 256)
        cases.append((draw.randint(2, 128), draw.randint(3, 99), channels, draw.randint(2, channels - 1), narrow))
    return cases


# Where a bias more or less for each channel changes the number.
NEAR = ((7, 2, 3), (8, 3, 3), (16, 27, 3), (17, 15, 3), (33, 17, 3), (46, 4, 3), (35, 15, 5), (51, 24, 5), (19, 7, 7))
# Where one multiply-add more or less changes it.
CLOSE = ((13, 8, 3), (19, 18, 3), (46, 3, 3), (49, 128, 3), (68, 13, 3), (107, 39, 3), (119, 3, 3), (148, 21, 3))


def _pairs(draw: random.Random) -> list[Case]:
    """Among them a pair where some number of channels costs exactly as much as the convolution alone."""
    cases: list[Case] = [(draw.randint(20, 512), draw.randint(20, 512), kernel) for kernel in (3, 5, 3, 7)]
    even = 2 * draw.randint(2, 30)
    cases += [(9 * even, even, 3), (10 * draw.randint(2, 30), draw.randint(40, 90), 3)]
    return [*cases, draw.choice(NEAR), draw.choice(CLOSE)]


after_squeeze = Graded("after_squeeze", _squeezes)
bytes_added = Graded("bytes_added", _runs)
break_even = Graded("break_even", _pairs)
bottleneck = graded_build("bottleneck", originals.BOTTLENECK, 6, 9)
