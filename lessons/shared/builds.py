"""The graded cell of a question whose answer builds a network: prints which properties the network has."""

from __future__ import annotations

import random

from lessons.shared import rebuilt
from lessons.shared.judged import GradedReplay
from lessons.shared.network_questions import graded_network
from lessons.shared.rebuilt import Original


def graded_build(question: str, original: Original, least: int = 24, most: int = 40) -> GradedReplay:
    """A line for each property of the network that the learner's function builds, at a batch between these.

    Args:
        question: the name of the question and of the function.
        original: the network it stands in place of, and what is asked.
        least: images in the batch that it is tried on; most: those at most.
    """

    def size(draw: random.Random) -> tuple[Original, int]:
        return original, draw.randint(least, most)

    return graded_network(question, rebuilt.record, rebuilt.judge, size, rebuilt.maker, "function")
