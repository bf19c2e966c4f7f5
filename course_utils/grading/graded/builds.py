"""The graded cell of a question whose answer builds a network: prints which properties the network has.

Must never import a topic of `course_utils.checks`, nor figures or explorers.
"""

from __future__ import annotations

from collections.abc import Sequence

from IPython.utils.capture import capture_output

from course_utils.checks import rebuilt
from course_utils.checks.core import has_dots, is_about_dots
from course_utils.checks.rebuilt import Original
from course_utils.grading.graded import CRASHED, NOT_ATTEMPTED, draws_for


class GradedBuild:
    """A line for each property of the network that the learner's function builds.

    Args:
        question: the name of the question and of the function.
        original: the network it stands in place of, and what is asked.
    """

    def __init__(self, question: str, original: Original) -> None:
        self.question, self.original = question, original

    def __call__(self, answer: object = ...) -> None:
        """Print a line for each property."""
        for line in self.lines(answer):
            print(line)

    def lines(self, answer: object) -> Sequence[str]:
        """The lines of the graded cell."""
        if has_dots(answer):
            return [f"{self.question}: {NOT_ATTEMPTED}"]
        make = rebuilt.maker(answer)
        if make is None:
            return [f"{self.question}: {CRASHED}: it is no function"]
        draw = draws_for(self.question)
        batch, seed = draw.randint(24, 64), draw.randint(0, 10**6)
        try:
            with capture_output():
                seen = rebuilt.look(make, self.original, batch, seed)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's function may raise anything
            dots = is_about_dots(error) or "ellipsis" in str(error)
            return [f"{self.question}: {NOT_ATTEMPTED if dots else f'{CRASHED}: {type(error).__name__}'}"]
        if "ellipsis" in (seen.kind, seen.returned):
            return [f"{self.question}: {NOT_ATTEMPTED}"]
        properties = {
            "layers fit each other": seen.kind == "network" and not seen.misfit,
            "output shape kept": seen.shape == (4, self.original.classes),
            "everything trained": seen.peak > 0 and not seen.without_gradient,
            "peak low enough": 0 < seen.peak <= self.original.share * seen.original_peak,
        }
        if self.original.same_kernels or self.original.kernels:
            properties["parameters kept"] = seen.shape != () and not seen.kernels_differ
        if self.original.full_size:
            properties["sides kept"] = seen.peak > 0 and not seen.shrunk
        return [f"{name}: {'yes' if held else 'no'}" for name, held in properties.items()]
