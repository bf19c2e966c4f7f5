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


def _transfers(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for share in (0.2, 1.0, 5.0, 20.0):
        batch, size, rate = draw.randint(16, 512), draw.randint(10**4, 10**6), draw.choice((6, 10, 12.5, 31.5, 63))
        gpu = round(batch * size / (rate * 1e9) / share, 9)
        cases.append((round(gpu * draw.randint(2, 40), 9), gpu, batch, size, rate))
    return cases


def _tables(draw: random.Random) -> list[Case]:
    """Tables of a device that saturates: time = launches + batch · work, and some noise in the rows."""
    cases: list[Case] = []
    for _ in "1234":
        start, launches, work = draw.choice((4, 8, 16)), draw.randint(20, 60), draw.uniform(0.5, 2.0)
        batches = [start * 2**i for i in range(6)]
        times = [round((launches + work * n) * draw.uniform(0.99, 1.01), 2) for n in batches]
        gains = [1 - times[i + 1] / times[i] / 2 for i in range(5)]
        ordered = sorted(gains)
        middle = draw.randint(1, 3)
        cases.append((batches, times, round((ordered[middle] + ordered[middle + 1]) / 2, 4)))
    # The gain falls, and rises again: the first row that does not pay counts. And one that never saturates.
    cases.append(([8, 16, 32, 64], [100.0, 190.0, 370.0, 700.0], 0.05 + draw.randint(1, 3) / 1000))
    cases.append(([2, 4, 8], [20.0, 20.0 + draw.randint(1, 9), 30.0 + draw.randint(1, 3)], 0.05))
    cases.append(([4, 8, 16, 32], [40.0, 40.0, 70.4, 137.6], draw.randint(75, 110) / 1000))  # a large gain comes first
    old = draw.randint(50, 90)
    gain = draw.randint(60, 90) / 1000  # a share of the old time; the next rows save next to nothing
    times = [2.0 * old, 4 * old * (1 - gain), 8 * old * (1 - gain) * 0.99]
    cases.append(([2, 4, 8], times, round((gain + gain / (1 - gain)) / 2, 5)))
    unit = 2.0 * draw.randint(1, 9)
    cases.append(([2, 4, 8], [2 * unit, 3 * unit, 5.5 * unit], 0.25))  # exactly the share is saved, then less
    cases.append(([8, 32, 64], [5 * unit, 15 * unit, (29 + draw.random() / 2) * unit], 0.05))  # times four pays
    cases.append(([8, 16, 32], [5 * unit, (14 + draw.random()) * unit, 22 * unit], 0.05))  # slower, then faster
    # 10 %, 2 %, and 11 % again.
    cases.append(([4, 8, 16, 32], [4 * unit, 7.2 * unit, 14.1 * unit, 25 * unit], draw.randint(30, 90) / 1000))
    return cases


operator_seconds = Graded("operator_seconds", _operators)
crossover_batch = Graded("crossover_batch", _devices)
speed_up = Graded("speed_up", _transfers)
saturates_at = Graded("saturates_at", _tables)


fewer_launches = graded_network("fewer_launches", loops.record, loops.judge, lambda draw: (draw.randint(24, 64),))
