"""The inputs of exercise 09, "Offload to CPU memory", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.offload import judge as saved
from lessons.shared.judged import function
from lessons.shared.network_questions import graded_network

Case = tuple[object, ...]


def _maps(draw: random.Random) -> list[Case]:
    return [
        (draw.randint(2, 256), draw.randint(1, 512), draw.randint(7, 224), draw.randint(7, 224),
         round(draw.uniform(5, 60), 1))
        for _ in range(4)
    ]  # fmt: skip


def _convolutions(draw: random.Random) -> list[Case]:
    """Kernels, strides, channels read and written that differ; sides that the stride divides."""
    cases: list[Case] = []
    for kernel, stride in ((3, 1), (5, 2), (1, 1), (7, 3)):
        read = draw.randint(2, 200)
        machine = (round(draw.uniform(1, 60), 1), round(draw.uniform(5, 60), 1))
        side, batch = stride * draw.randint(5, 70), draw.randint(2, 256)
        cases.append((kernel, stride, read, read + draw.randint(1, 300), side, batch, *machine))
    return cases


def _layers(draw: random.Random) -> list[Case]:
    """Layers of which one that is neither the largest nor the shortest nor the first needs most of the link."""
    cases: list[Case] = []
    for length in (4, 6, 9):
        layers = [(draw.randint(10**6, 10**8), draw.randint(20, 100) / 1000) for _ in range(length - 3)]
        layers += [(draw.randint(5, 9) * 10**8, 0.9), (10**7, 0.004), (draw.randint(2, 4) * 10**8, 0.01)]
        order = draw.sample(layers[1:], length - 1)
        cases.append(([layers[0], *order],))
    return [*cases, ([(2 * draw.randint(20, 99) + 1, 2.0), (draw.randint(3, 19), 1.0)],)]  # a half byte a second


def _steps(draw: random.Random) -> list[Case]:
    cases: list[Case] = []
    for length in (1, 3, 5, 8):
        forward = [draw.randint(1, 20) / 4 for _ in range(length)]
        copies = [draw.choice((0.0, draw.randint(1, 40) / 4)) for _ in range(length - 1)] + [draw.randint(1, 20) / 4]
        if length == 5:
            forward[0] = 0.25
        if length > 1:
            copies[0] = 20.0 + draw.randint(1, 8) / 4
        if length == 3:  # the last copy takes longer than the first layer's backward kernels, beside which it is not
            copies[-1] = 2 * forward[0] + draw.randint(1, 8) / 4
        cases.append((forward, [2 * seconds for seconds in forward], copies))
    return cases


def _networks(draw: random.Random) -> list[Case]:
    """A chain, a module with branches, and shortcuts; names that do not sort in the order of layers."""
    cases: list[Case] = [([("z1", ["input"]), ("y2", ["z1"]), ("x3", ["y2"])],)]
    for branches in (2, 4):
        names = [f"b{i}" for i in draw.sample(range(10, 99), branches)]
        layers: list[tuple[str, list[str]]] = [("stem", ["input"])]
        layers += [(name, ["stem"]) for name in names]
        layers += [("join", names), ("conv", ["join"]), ("add", [draw.choice(["stem", names[0]]), "conv"])]
        layers += [("last", ["input", "add"]), ("dense", ["last"])]
        cases.append((layers,))
    return cases


copy_seconds = Graded("copy_seconds", _maps)
copy_over_kernel = Graded("copy_over_kernel", _convolutions)
least_link = Graded("least_link", _layers)
two_streams = Graded("two_streams", _steps)
leaves_with = Graded("leaves_with", _networks)


keep_outside = graded_network(
    "keep_outside", saved.record, saved.judge, lambda draw: (4 * draw.randint(3, 6),), function, "function"
)
