"""The inputs of exercise 01, "Why GPUs help", drawn from the class seed. No right answer is known."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.shared.network_questions import graded_network
from lessons.why_gpus import judge as loops

Case = tuple[object, ...]


def _operators(draw: random.Random) -> list[Case]:
    """Operators limited by arithmetic, by traffic and by their launch, two of each."""
    cases: list[Case] = []
    for limit in ("arithmetic", "traffic", "launch", "arithmetic", "traffic", "launch"):
        rate, bandwidth = draw.randint(10, 90) * 1e11, draw.randint(10, 90) * 1e10
        longer, shorter, launch = draw.randint(50, 99) * 1e-6, draw.randint(10, 40) * 1e-6, draw.randint(2, 9) * 1e-6
        if limit == "launch":
            longer, shorter, launch = longer / 10, shorter / 10, longer
        seconds = (longer, shorter) if limit != "traffic" else (shorter, longer)
        cases.append((round(seconds[0] * rate), round(seconds[1] * bandwidth), rate, bandwidth, launch))
    return cases


def _devices(draw: random.Random) -> list[Case]:
    """Nanoseconds of two devices: a crossover somewhere, at a tie, from the start, or never."""
    cases: list[Case] = []
    for _ in "123":
        cpu, gpu = draw.randint(20, 90) * 1000, draw.randint(100, 200) * 1000
        cases.append((cpu, draw.randint(60, 400), gpu + draw.randint(1, 99), draw.randint(2, 50)))
    fixed, gain, batch, each = (
        draw.randint(20, 90) * 1000,
        draw.randint(5, 90),
        draw.randint(9, 999),
        draw.randint(2, 50),
    )
    cases.append((fixed, each + gain, fixed + gain * batch, each))  # a tie at `batch`
    cases.append((fixed, 200_000 + gain, fixed + 1000 * batch // 100, each))  # from the start
    cases.append((5 * fixed, each + gain, fixed, each))  # from the start, and more so with every sample
    cases.append((5 * fixed, each, fixed, each))  # from the start, with no gain a sample
    cases.append((fixed, each, 3 * fixed, each + gain))  # never
    cases.append((fixed, each, 3 * fixed, each))  # never
    cases.append((fixed, each, fixed - draw.randint(1, 99), each + draw.randint(100, 900)))  # never
    cases.append((fixed, each, fixed - draw.randint(100, 900), each + draw.randint(1, 99)))  # at first
    less = draw.randint(2, 90)
    cases.append((fixed, each, fixed - less, each + less - 1))  # ahead by 1 at first, then behind
    cases.append((fixed, each, fixed - less, each + less))  # a tie at first, then behind
    late = draw.randint(110_000, 180_000)
    cases.append((fixed, each + gain, fixed + gain * late - draw.randint(1, gain), each))  # at `late`
    return cases


def _clocks(draw: random.Random) -> list[Case]:
    """A step that the host decides, and steps that the card does, with short transfers and long ones."""
    cases: list[Case] = []
    for share, issuing in ((0.2, 0.9), (1.0, 0.5), (5.0, 0.2), (20.0, 0.05)):
        batch, size, rate = draw.randint(16, 512), draw.randint(10**4, 10**6), draw.choice((6, 10, 12.5, 31.5, 63))
        gpu, began = round(batch * size / (rate * 1e9) / share, 6) + 1e-6, draw.randint(1, 999) / 8
        returned, synchronized = began + issuing * gpu, began + gpu
        cases.append((round(gpu * draw.randint(2, 40), 9), began, returned, synchronized, batch, size, rate))
    return cases


def _halves(draw: random.Random) -> list[Case]:
    """Operators far from the ridge on both sides, near it on both, and short ones."""
    cases: list[Case] = []
    microseconds = [(100, 30, 20), (30, 100, 20), (5, 8, 40), (100, 90, 30), (90, 100, 30), (100, 80, 30)]
    for parts in draw.sample([*microseconds, (80, 100, 30), (50, 5, 80), (100, 10, 60)], 9):
        unit, rate, bandwidth = draw.randint(5, 50) / 10, draw.randint(10, 90) * 1e11, draw.randint(10, 90) * 1e10
        arithmetic, traffic, launch = (1e-6 * unit * part * draw.uniform(0.99, 1.01) for part in parts)
        cases.append((round(arithmetic * rate), round(traffic * bandwidth), rate, bandwidth, launch))
    return cases


operator_seconds = Graded("operator_seconds", _operators)
crossover_batch = Graded("crossover_batch", _devices)
speed_up = Graded("speed_up", _clocks)
helps_most = Graded("helps_most", _halves)


fewer_launches = graded_network("fewer_launches", loops.record, loops.judge, lambda draw: (draw.randint(24, 64),))
