"""Questions whose answer is a network: what is taken for one, and the check that looks at what it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from torch import nn

from classroom.questions.properties import PropertyCheck, Seen


def network_maker(answer: object) -> Callable[[], nn.Module] | None:
    """A function that makes the learner's network, from a class or from one of its networks; None for anything else."""
    if isinstance(answer, nn.Module):
        answer = type(answer)
    return answer if isinstance(answer, type) and issubclass(answer, nn.Module) else None


def batch_and_seed(draw: random.Random, least: int) -> tuple[int, int]:
    """A batch from `least` to 64 at which a network is looked at, and the seed of its weights and inputs."""
    return draw.randint(least, 64), draw.randint(0, 10**6)


class NetworkCheck(PropertyCheck[Seen]):
    """The check of a question whose answer is a network's class."""

    running = "Running the network"

    def accept(self, answer: object) -> Callable[..., Any] | None:
        """What makes the network; None for an answer that is none."""
        return network_maker(answer)
