"""The inputs of exercise 12, "Capstone", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.capstone import judge as planning
from lessons.shared.judged import GradedReplay, function

Case = tuple[object, ...]
MB = 10**6


def _plans(draw: random.Random) -> list[Case]:
    """Batches at once and in parts, in both precisions; even numbers, so that halves are whole."""
    cases: list[Case] = []
    for many, half in ((False, False), (True, False), (True, True), (False, True)):
        parts = 1 if not many else draw.choice([3, 4, 8]) if half else 2
        fixed, accumulated, copies = (2 * draw.randint(50, 900) * MB for _ in "123")
        context, per_sample = draw.randint(200, 900) * MB, 2 * draw.randint(1, 50) * MB
        batch = parts * draw.randint(4, 64)
        cases.append((batch, parts, half, context, fixed, accumulated, per_sample, copies))
    few = [2 * draw.randint(5, 50) for _ in "12345"]  # bytes: one more shows
    return [*cases, (draw.randint(4, 64), 1, False, *few)]


def _times(draw: random.Random) -> list[Case]:
    """Copies shorter than both passes, longer than both, and between them."""
    cases: list[Case] = []
    for share in (0.5, 3.0, 1.4, 0.0):
        forward = round(draw.uniform(0.1, 1), 3)
        copies = (round(share * forward * draw.uniform(0.9, 1.1), 3) for _ in "12")
        update = round(draw.uniform(0.01, 0.3), 3)
        cases.append((draw.randint(2, 9), forward, round(2 * forward, 3), *copies, update))
    return cases


def _points(draw: random.Random) -> list[Case]:
    """Steps of a front, plans behind them, and some as fast or as lean as one on it; in any order."""
    cases: list[Case] = []
    for _ in "123":
        count = draw.randint(3, 5)
        sizes, times = sorted(draw.sample(range(10, 60), count)), sorted(draw.sample(range(10, 60), count))
        front = list(zip(reversed(sizes), times, strict=True))
        behind = [(size + draw.randint(1, 9), time + draw.randint(1, 9)) for size, time in front]
        behind += [(front[0][0] + 70, front[0][1]), (front[-1][0], front[-1][1] + 70)]
        points = list(dict.fromkeys([*front, *behind]))
        names = draw.sample("abcdefghijklmnopqrstuvwxyz", len(points))
        shuffled = draw.sample(points, len(points))
        equal = (front[0][0] + 70, front[0][1])  # as fast as the fastest, with more bytes, and before it in the table
        shuffled.sort(key=lambda point: point != equal)
        cases.append((dict(zip(names, shuffled, strict=True)),))
    return cases


def _tables(draw: random.Random) -> list[Case]:
    """Plans that are too large and faster, that train something else and are faster, lean and slow ones."""
    cases: list[Case] = []
    for exactly in (False, True, False, True):
        room = draw.randint(20, 40)
        fast = round(draw.uniform(2, 3), 2)
        size = room if exactly else room - draw.randint(2, 5)
        plans = [
            ("lean", (draw.randint(1, 9), round(fast + 4, 2), True)),
            ("full", (room - 1 if not exactly else room - 2, round(fast + 2, 2), True)),
            ("large", (room + draw.randint(1, 9), round(fast - 0.5, 2), True)),
            ("other", (draw.randint(2, 9), round(fast - 1, 2), False)),
            ("wanted", (size, fast, True)),
        ]
        names = draw.sample(["p", "q", "r", "s", "t"], 5)
        cases.append(({name: plan for name, (_, plan) in zip(names, plans, strict=True)}, room))
    return [*cases, ({"p": (9, 1.0, False), "q": (50, 1.0, True)}, 8)]


plan_bytes = Graded("plan_bytes", _plans)
update_seconds = Graded("update_seconds", _times)
unbeaten = Graded("unbeaten", _points)
least_time = Graded("least_time", _tables)


def _problems(draw: random.Random) -> list[planning.Setting]:
    """Chains that may be cut into micro-batches, some that may not, and one that nothing fits: too many for a table.

    For one or another of them each part of the search is needed (tested): every policy, both precisions, 2 and 4
    segments, small micro-batches, several techniques together.
    """
    width = draw.randint(32, 35)

    def one(norm: bool, batch: int, least: float, most: float, device: str, link: str) -> planning.Setting:
        return norm, width, batch, round(draw.uniform(least, most), 6), device, link

    return [
        one(False, 96, 0.432, 0.436, planning.TITAN_X, planning.GEN3),
        one(False, 144, 0.366, 0.37, "V100", planning.GEN2),
        one(False, 60, 0.591, 0.599, "GTX 1080", planning.GEN4),
        one(False, 96, 0.315, 0.319, "V100", planning.NVLINK),
        one(True, 120, 0.631, 0.639, planning.TITAN_X, planning.GEN3),
        one(True, 144, 0.564, 0.576, "Tesla K40", planning.GEN2),
        one(True, draw.randint(60, 96), 0.04, 0.05, planning.TITAN_X, planning.GEN3),
    ]


your_plan = GradedReplay(
    "your_plan",
    function,
    lambda answer, draw: planning.own_to_text(answer()),
    lambda text, draw, values: planning.own_look(text),
    "function",
)
find_plan = GradedReplay(
    "find_plan",
    function,
    lambda answer, draw: planning.to_text(planning.returned_for(answer, _problems(draw))),
    lambda text, draw, values: planning.look_at_small(planning.from_text(text), _problems(draw)),
    "function",
)
