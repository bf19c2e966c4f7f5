"""The inputs of exercise 07, "Batch size", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import itertools
import random

from classroom.questions.graded import Graded
from lessons.batch_size import judge as training
from lessons.shared.judged import function
from lessons.shared.network_questions import graded_network

Case = tuple[object, ...]


def _measurements(draw: random.Random) -> list[Case]:
    """Two moments of a step that take turns as the peak, measured on both sides of the turn, in any order."""
    cases: list[Case] = []
    for small_ones in (0, 1, 2, 2):
        per_sample, turn = draw.randint(10**6, 10**8), draw.randint(10, 20)
        fixed = draw.randint(10**8, 10**9)
        flat = fixed + per_sample * turn
        batches = sorted(draw.sample(range(2, turn), small_ones)) + sorted(draw.sample(range(turn + 5, 99), 2))
        measured = [(n, max(flat + n, fixed + per_sample * n)) for n in batches]
        draw.shuffle(measured)
        if measured == sorted(measured) and small_ones:
            measured.reverse()
        cases.append((draw.randint(100, 512), measured))
    fixed, halves = draw.randint(10**3, 10**6), 2 * draw.randint(10, 500) + 1  # of a byte a sample
    batches = draw.sample(range(2, 40), 2)
    return [*cases, (2 * draw.randint(50, 250), [(2 * n, fixed + halves * n) for n in batches])]


def _lines(draw: random.Random) -> list[Case]:
    return [(draw.randint(1, 10**9), draw.randint(1, 10**6), 2 * draw.randint(1, 256)) for _ in "1234"]


def _divisor_pairs(wanted: int) -> list[tuple[int, int]]:
    """Neighbouring divisors two or more apart, the smaller one not found by halving or as a power of two."""
    divisors = [n for n in range(1, wanted // 2) if wanted % n == 0]
    halves = {wanted >> power for power in range(9)}
    pairs = itertools.pairwise(divisors)
    return [(a, b) for a, b in pairs if b - a > 1 and a & (a - 1) and a not in halves]


def _plans(draw: random.Random) -> list[Case]:
    """Batches with many divisors; limits that fit one exactly, nearly the next, the whole batch, or nothing."""
    cases: list[Case] = []
    for wanted in draw.sample([60, 90, 120, 126, 150, 180, 210, 240], 4):
        (micro, larger), per_sample = draw.choice(_divisor_pairs(wanted)), draw.randint(5, 90)
        fixed, accumulated = draw.randint(100, 900), per_sample * (larger - micro)
        for most in (micro, larger - 1):
            cases.append((wanted, fixed, accumulated, per_sample, fixed + accumulated + per_sample * most))
    wanted, per_sample = draw.randint(8, 64), draw.randint(5, 90)
    cases.append((wanted, 500, 400, per_sample, 500 + per_sample * wanted))  # the whole batch, exactly
    cases.append((100 * wanted, 500, 400, per_sample, 899 + per_sample))  # nothing
    fixed, accumulated, few = draw.randint(100, 900), draw.randint(20, 60), draw.randint(5, 9)
    one = (draw.choice((67, 71, 73, 79, 83, 89, 94)), fixed, accumulated, few, fixed + accumulated + few)
    cases.append(one)  # sample by sample
    even = 2 * draw.randint(10, 40)
    cases.append((even, 2, 3, 1, 5 + even // 2))  # next to nothing is fixed
    half = 6 * draw.randint(3, 9)  # two parts would fit but for the gradients
    cases.append((2 * half, fixed, accumulated, few, fixed + few * half + draw.randint(0, accumulated - 1)))
    return cases


def _sizes(draw: random.Random) -> list[Case]:
    cases: list[Case] = [([draw.randint(8, 64)] * draw.randint(2, 6) + [draw.randint(1, 7)],) for _ in "123"]
    return [*cases, ([draw.randint(1, 64) for _ in "12345"],)]


def _times(draw: random.Random) -> list[Case]:
    """Seconds of a step by batch: fixed costs that fade, in any order, and once a batch too large for a cache."""
    cases: list[Case] = []
    for bend in (1.0, 1.0, 4.0):
        fixed, per_sample = draw.uniform(0.01, 0.05), draw.uniform(0.0005, 0.002)
        batches = [4 * 2**i for i in range(7)]
        times = {n: fixed + per_sample * n * (bend if n == batches[-1] else 1.0) for n in batches}
        order = draw.sample(batches, len(batches))
        cases.append(({n: round(times[n], 6) for n in order}, round(draw.uniform(0.15, 0.6), 2)))
    share, best = draw.choice((0.3, 0.4, 0.5)), draw.randint(2, 9)
    more = (1 + share + 1 / (1 - share)) / 2  # too slow, but not by as much in samples a second
    cases.append(({4: round(4 * best * more, 4), 16: 16.0 * best, 8: 8.0 * best}, share))
    best = draw.choice((1, 2, 4, 8))  # exact in floats, however it is compared
    cases.append(({8: 8.0 * best, 2: 2.5 * best, 4: 4.5 * best}, 0.25))  # the smallest takes exactly as long as it may
    return cases


bytes_at = Graded("bytes_at", _measurements)
saved_by_halving = Graded("saved_by_halving", _lines)
micro_batch = Graded("micro_batch", _plans)
loss_weights = Graded("loss_weights", _sizes)
saturated_from = Graded("saturated_from", _times)


def _sizes_of_steps(draw: random.Random) -> tuple[int, int]:
    """Images in a micro-batch, and a larger number of micro-batches."""
    micro = draw.randint(3, 9)
    return micro, micro + draw.randint(1, 3)


accumulate = graded_network("accumulate", training.record, training.judge, _sizes_of_steps, function, "function")
