"""The graded cell of a question whose answer builds a network: prints which properties the network has.

Must never import a topic of `course_utils.checks`, nor figures or explorers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from course_utils.checks import rebuilt
from course_utils.checks.rebuilt import Look, Original
from course_utils.grading.graded import GradedProperties, batch_and_seed


class GradedBuild(GradedProperties[Look]):
    """A line for each property of the network that the learner's function builds.

    Args:
        question: the name of the question and of the function.
        original: the network it stands in place of, and what is asked.
    """

    def __init__(self, question: str, original: Original) -> None:
        def look(make: Callable[[], object], draw: random.Random) -> Look:
            return rebuilt.look(make, original, *batch_and_seed(draw, 24))

        def properties(seen: Look) -> dict[str, bool]:
            found = {
                "layers fit each other": seen.kind == "network" and not seen.misfit,
                "output shape kept": seen.shape != () and seen.shape == seen.expected_shape,
                "everything trained": seen.peak > 0 and not seen.without_gradient,
                "peak low enough": 0 < seen.peak <= original.share * seen.original_peak,
            }
            if original.same_kernels or original.kernels:
                found["parameters kept"] = seen.shape != () and not seen.kernels_differ
            if original.full_size:
                found["sides kept"] = seen.peak > 0 and not seen.shrunk
            return found

        super().__init__(question, rebuilt.maker, look, properties, kind="function")
