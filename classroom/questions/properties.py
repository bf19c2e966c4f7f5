"""The check of a question whose answer is a class or a function that is judged by what it does.

`PropertyCheck` is the way such a check goes: dots, the wrong thing given, a crash, then what a look at the answer
found. What `look` returns says which properties hold, for the graded cell as well, and whether the answer is right. A
question's own check finds the words: what keeps it from being right (`diagnose`), what it achieved (`praise`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from classroom.questions.core import Feedback, Holding, Outcome, Slip, Unfit, describe_crash, judged, not_asked_for

Seen = TypeVar("Seen", bound=Holding)


def function(answer: object) -> Callable[..., Any] | None:
    """The learner's function; None for anything that is none."""
    return answer if callable(answer) else None


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
            return outcome, not_asked_for(self.name, answer, kind)
        if outcome is Outcome.CRASHED:
            return outcome, f"{self.running} raised {describe_crash(found, answer)}"
        if isinstance(found, Unfit):
            said = str(found)
            return outcome, f"{said[0].upper()}{said[1:]}{'' if said.endswith(('.', '?', ')')) else '.'}"
        return outcome, self.praise(found) if outcome is Outcome.CORRECT else self.diagnose(found, given)
