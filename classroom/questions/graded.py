"""What a graded cell does: call the learner's function on inputs drawn from the class seed, print what it returns.

Nothing here knows a right answer. nbval compares the printed lines, from outside the learner's process, with those of
the solution. The seed is the environment variable COURSE_SEED, 0 if unset; where strangers are graded it never enters
their process: `draw_from` gets a token for each question, from which the seed cannot be found. One module a topic draws
the inputs: `from lessons.memory import graded`, then `graded.map_bytes(map_bytes)`.
"""

import math
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from IPython.utils.capture import capture_output

from classroom.questions import core

PRINTS_ALIKE = 1e-10  # relative difference, such as rounding makes, with which results must print alike
NOT_ATTEMPTED = "not attempted"
CRASHED = "crashed"
UNSTEADY = "rounding could change it"
REPLAYED = "can be replayed"  # the first property of an answer that is judged by its record
RECORD = "replay1:"
_tokens: dict[str, str] = {}
handed_over: set[str] = set()  # questions whose graded cells print a record


def hand_over(question: str) -> None:
    """Have the graded cell of this question print its answer's record, from now on."""
    handed_over.add(question)


def draw_from(question: str, token: str) -> None:
    """Draw this question's inputs from a token in place of the class seed, from now on."""
    _tokens[question] = token


def draws_for(question: str) -> random.Random:
    """Random numbers that depend on the class seed (or the question's token) and the question alone, everywhere."""
    return random.Random(_tokens.get(question) or f"{int(os.environ.get('COURSE_SEED', '0'))} {question}")


def canonical(value: Any, by: float = 0.0) -> str:
    """One text for equal results: 2.0 prints as 2, other floats to six digits, a tuple as a list, keys in order.

    `by` moves each float before, by this share of itself; whole ones are told apart to the unit, and move less than it.
    """
    number = core.as_number(value)
    if isinstance(number, float):
        moved = max(number - 0.1, min(number * (1 + by), number + 0.1))
        if math.isfinite(moved) and abs(moved - round(moved)) <= max(1e-9 * abs(moved), 1e-9):
            return str(round(moved))
        return f"{moved:.6g}"
    if number is not None:
        return str(number)
    if isinstance(value, Mapping):
        return "{" + ", ".join(sorted(f"{canonical(k, by)}: {canonical(v, by)}" for k, v in value.items())) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(canonical(part, by) for part in value)) + "}"
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(canonical(part, by) for part in value) + "]"
    if value is None or isinstance(value, bool | str | bytes):
        return repr(value)
    return f"a {type(value).__name__}"  # its repr may hold an address


def is_steady(value: Any) -> bool:
    """Whether what differs from a right result by at most PRINTS_ALIKE, as rounding makes it, prints like it."""
    return len({canonical(value, by) for by in (-PRINTS_ALIKE, 0, PRINTS_ALIKE)}) == 1


class GradedCell(ABC):
    """The graded cell of one question."""

    question: str

    def __call__(self, answer: object = ...) -> None:
        """Print the lines. What the learner prints is dropped."""
        for line in self.lines(answer):
            print(line)

    @abstractmethod
    def lines(self, answer: object) -> list[str]:
        """The lines of the graded cell."""


@dataclass(eq=False, repr=False)
class Graded(GradedCell):
    """The graded cell of one question whose answer is a function: a line for each input; a crash costs its own only."""

    question: str
    draw: Callable[[random.Random], Sequence[tuple[Any, ...]]]  # the arguments
    tells_unsteady: ClassVar[bool] = False  # of results that rounding could change: other inputs are then to be drawn

    def lines(self, answer: object) -> list[str]:
        """The lines of the graded cell."""
        if core.has_dots(answer):
            return [f"{self.question}: {NOT_ATTEMPTED}"]
        if not callable(answer):
            return [f"{self.question}: {CRASHED}: it is no function"]
        return [self._line(answer, arguments) for arguments in self.draw(draws_for(self.question))]

    def _line(self, answer: Callable[..., Any], arguments: Sequence[Any]) -> str:
        with capture_output():
            one = core.attempt(self.question, answer, arguments)
        call = f"{self.question}({', '.join(map(canonical, arguments))})"
        if core.has_dots(one.value) or core.is_about_dots(one.error):
            return f"{call}: {NOT_ATTEMPTED}"
        if one.error is not None:
            return f"{call}: {CRASHED}: {type(one.error).__name__}"
        if self.tells_unsteady and not is_steady(one.value):
            return f"{call}: {UNSTEADY}"
        changed = f" and changed {one.changed}" if one.changed else ""
        return f"{call} = {canonical(one.value)}{changed}"
