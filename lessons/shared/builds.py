"""The graded cell of a question whose answer builds a network: prints which properties the network has."""

from __future__ import annotations

import random
from collections.abc import Callable

from classroom.questions.graded import GradedProperties
from lessons.shared import rebuilt
from lessons.shared.rebuilt import Original, RebuildLook


class GradedBuild(GradedProperties):
    """A line for each property of the network that the learner's function builds.

    Args:
        question: the name of the question and of the function.
        original: the network it stands in place of, and what is asked.
    """

    def __init__(self, question: str, original: Original) -> None:
        def look(make: Callable[[], object], draw: random.Random) -> RebuildLook:
            return rebuilt.look(make, original, draw.randint(24, 64))

        super().__init__(question, rebuilt.maker, look, kind="function")
