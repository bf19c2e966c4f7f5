"""Questions whose answer is judged by what it does: what a look at it finds, its check, its graded cell.

`PropertyCheck` is the way such a check goes: dots, the wrong thing given, a crash, then what a look at the answer
found. What `look` returns says which properties hold, for the graded cell as well, and whether the answer is right. A
question's own check finds the words: what keeps it from being right (`diagnose`), what it achieved (`praise`).
`GradedReplay` is the graded cell, which prints those properties, or the record that they are found by.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from IPython.utils.capture import capture_output

from classroom.questions import core
from classroom.questions.core import Feedback, Outcome, Slip
from classroom.questions.graded import CRASHED, NOT_ATTEMPTED, REPLAYED, GradedCell, draw_from, draws_for, handed_over
from course_utils.units import CourseError


class Unfit(CourseError):
    """Why an answer cannot be judged by what it does, in one line for its author."""


class Holding(Protocol):
    """What a look at an answer found: which of the properties asked for hold, by name; it is right if all do."""

    @property
    def holds(self) -> Mapping[str, bool]:
        """Properties by name: for the check and the graded cell alike."""


def looked(
    answer: object, given: Callable[..., Any] | None, look: Callable[[Callable[..., Any]], Any]
) -> tuple[Outcome | None, Any]:
    """What a look at an answer found, or, with an outcome, the error it raised, or None where it was not looked at.

    Args:
        answer: what the learner gave.
        given: what `look` is given for it; None for an answer that is nothing of the kind asked for, which is wrong.
        look: what it does. Raises whatever the learner's code raises; Unfit where that cannot be judged.
    """
    if core.has_dots(answer):
        return Outcome.NOT_ATTEMPTED, None
    if given is None:
        return Outcome.WRONG, None
    try:
        return None, look(given)
    except Unfit as error:
        return Outcome.WRONG, error
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's code may raise anything
        return Outcome.NOT_ATTEMPTED if core.is_about_dots(error) else Outcome.CRASHED, error


def judged(
    answer: object, given: Callable[..., Any] | None, look: Callable[[Callable[..., Any]], Holding]
) -> tuple[Outcome, Any]:
    """How an answer fares by what it does, and what `looked` says of it."""
    outcome, seen = looked(answer, given, look)
    if outcome is not None:
        return outcome, seen
    returned = getattr(seen, "returned", None)
    if core.has_dots(returned) or "ellipsis" in (returned, getattr(seen, "kind", None)):  # the type of what came back
        return Outcome.NOT_ATTEMPTED, seen
    return Outcome.CORRECT if all(seen.holds.values()) else Outcome.WRONG, seen


def function(answer: object) -> Callable[..., Any] | None:
    """The learner's function; None for anything that is none."""
    return answer if callable(answer) else None


Seen = TypeVar("Seen", bound=Holding)


class PropertyCheck(ABC, Generic[Seen]):
    """The check of one question whose answer is judged by a look at what it does.

    Attributes:
        question: its name.
        name: what the learner writes and gives, the name of a class, or of a function where it equals `question`.
        blank: where the dots stand, as in "AllAtOnce.forward"; `name` if empty.
        running: what was going on when the learner's code raised.
        takeaway: one sentence for whoever has it right.
        slips: the catalogue.
    """

    question: str
    name: str
    blank: str = ""
    running: str
    takeaway: str
    slips: Sequence[Slip]

    def __call__(self, answer: object = ...) -> Feedback:
        """Look at the learner's class or function and say what that shows."""
        return Feedback(self.question, *self._judge(answer))

    def accept(self, answer: object) -> Callable[..., Any] | None:
        """What `look` is given; None for an answer that is nothing of the kind asked for, which is a function here."""
        return function(answer)

    @abstractmethod
    def look(self, given: Callable[..., Any]) -> Seen:
        """What the answer does. Raises whatever the learner's code raises."""

    @abstractmethod
    def diagnose(self, seen: Seen, given: Callable[..., Any]) -> str:
        """What keeps the answer from being right, where not all properties hold."""

    @abstractmethod
    def praise(self, seen: Seen) -> str:
        """What a right answer achieved."""

    def told(self, slip: str) -> str:
        """The message of the slip of this name."""
        return next(one.message for one in self.slips if one.name == slip)

    def _judge(self, answer: object) -> tuple[Outcome, str]:
        given = self.accept(answer)
        outcome, found = judged(answer, given, self.look)
        if outcome is Outcome.NOT_ATTEMPTED:
            return outcome, f"Replace the dots in `{self.blank or self.name}`, run that cell, then this one."
        if given is None:
            kind = "function" if self.name == self.question else "class"
            return outcome, core.not_asked_for(self.name, answer, kind)
        if outcome is Outcome.CRASHED:
            return outcome, f"{self.running} raised {core.describe_crash(found, answer)}"
        if isinstance(found, Unfit):
            said = str(found)
            return outcome, f"{said[0].upper()}{said[1:]}{'' if said.endswith(('.', '?', ')')) else '.'}"
        return outcome, self.praise(found) if outcome is Outcome.CORRECT else self.diagnose(found, given)


@dataclass(eq=False, repr=False)
class GradedReplay(GradedCell):
    """The graded cell of one question whose answer is judged by a record of what it does: a line for each property.

    Where strangers are graded the cell prints the record (`hand_over`), and another process judges it (`replay`).

    Attributes:
        question: the name of the question.
        accept: what `record` is given for an answer; None for an answer that is nothing of the kind asked for.
        record: what it does, as a line of text that begins with RECORD, on inputs from a random generator. Raises
            whatever the learner's code raises.
        judge: what a record comes to, with the same random numbers for sizes, and others for values; `holds` of what it
            returns are the properties, by the words that are printed.
        kind: what is asked for, "network" or "function".
    """

    question: str
    accept: Callable[[object], Callable[..., Any] | None]
    record: Callable[[Callable[..., Any], random.Random], str]
    judge: Callable[[str, random.Random, random.Random], Holding]
    kind: str = "network"

    def lines(self, answer: object) -> list[str]:
        """The lines of the graded cell."""
        with capture_output():
            outcome, found = looked(
                answer, self.accept(answer), lambda given: self.record(given, draws_for(self.question))
            )
        if outcome is not None:
            return self._said(outcome, found)
        return [found] if self.question in handed_over else self._judged(found)

    def replay(self, text: str, token: str) -> None:
        """Print the lines that a record comes to, on values drawn from this token."""
        draw_from(f"{self.question} values", token)
        for line in self._judged(text):
            print(line)

    def _judged(self, text: str) -> list[str]:
        draws = draws_for(self.question), draws_for(f"{self.question} values")
        outcome, found = judged(text, self.judge, lambda judge: judge(text, *draws))
        lines = self._said(outcome, found)
        return lines if isinstance(found, Unfit) or outcome is Outcome.NOT_ATTEMPTED else [f"{REPLAYED}: yes", *lines]

    def _said(self, outcome: Outcome, found: Any) -> list[str]:
        if outcome is Outcome.NOT_ATTEMPTED:
            return [f"{self.question}: {NOT_ATTEMPTED}"]
        if found is None:
            return [f"{self.question}: {CRASHED}: it is no {self.kind}"]
        if isinstance(found, Unfit):
            return [f"{REPLAYED}: no"]
        if outcome is Outcome.CRASHED:
            return [f"{self.question}: {CRASHED}: {type(found).__name__}"]
        return [f"{name}: {'yes' if held else 'no'}" for name, held in found.holds.items()]
