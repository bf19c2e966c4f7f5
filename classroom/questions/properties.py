"""The check of a question whose answer is a class or a function that is judged by what it does.

`PropertyCheck` is the way such a check goes: dots, the wrong thing given, a crash, then what a look at the answer
found. What `look` returns says which properties hold, for the graded cell as well, and whether the answer is right. A
question's own check finds the words: what keeps it from being right (`diagnose`), what it achieved (`praise`). Below it
stands what looks at networks share.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from classroom.questions.core import (
    Feedback,
    Holding,
    Outcome,
    Slip,
    describe_crash,
    has_dots,
    is_about_dots,
    unfinished,
)

Seen = TypeVar("Seen", bound=Holding)


def network_maker(answer: object) -> Callable[[], nn.Module] | None:
    """A function that makes the learner's network, from a class or from one of its networks; None for anything else."""
    if isinstance(answer, nn.Module):
        answer = type(answer)
    return answer if isinstance(answer, type) and issubclass(answer, nn.Module) else None


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
    running: str = "Running the network"
    takeaway: str
    slips: Sequence[Slip]

    def __call__(self, answer: object = ...) -> Feedback:
        """Look at the learner's class or function and say what that shows."""
        outcome, message = self._judge(answer)
        return Feedback(self.question, outcome, message)

    def accept(self, answer: object) -> Callable[..., Any] | None:
        """What `look` is given; None for an answer that is nothing of the kind asked for."""
        return network_maker(answer)

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
        dots = Outcome.NOT_ATTEMPTED, f"Replace the dots in `{self.blank or self.name}`, run that cell, then this one."
        if has_dots(answer):
            return dots
        given = self.accept(answer)
        if given is None:
            what = "function itself, without calling it" if self.name == self.question else "class itself"
            return Outcome.WRONG, f"Give the {what}: `check.{self.question}({self.name})`."
        try:
            seen = self.look(given)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's code may raise anything
            if is_about_dots(error):
                return dots
            return Outcome.CRASHED, f"{self.running} raised {describe_crash(error, answer)}"
        if unfinished(seen):
            return dots
        if all(seen.holds.values()):
            return Outcome.CORRECT, self.praise(seen)
        return Outcome.WRONG, self.diagnose(seen, given)


# -- what looks at networks share ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """How a changed network stands beside the original. Where one thing differs, what follows it means little."""

    parameters_differ: str = ""  # what differs, or ""
    returned: str = ""  # type of what forward returned
    shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    same_output: bool = False
    trainable: bool = False
    same_gradients: bool = False

    def unlike(self, other_parameters: str, another_shape: str) -> str:
        """What keeps two networks from being compared at all, or "", told with the messages of two slips."""
        if self.parameters_differ:
            return f"{other_parameters} (Different: {self.parameters_differ}.)"
        if self.returned != "Tensor":
            nothing = " Is there a `return`?" if self.returned == "NoneType" else ""
            return f"`forward` returned a {self.returned}, not a tensor.{nothing}"
        if self.shape != self.expected_shape:
            return f"{another_shape} It is {self.shape}, and should be {self.expected_shape}."
        return ""


@dataclass(frozen=True)
class PeakComparison(Comparison):
    """The same, with the peaks of a traced training step, in bytes."""

    peak: int = 0
    original_peak: int = 1

    @property
    def share(self) -> float:
        """The peak as a share of the original's."""
        return self.peak / self.original_peak


def parameters_differ(changed: nn.Module, original: nn.Module) -> str:
    """Up to three names of parameters or buffers whose shapes differ, with commas; "" if there are none."""
    ours, theirs = ({n: tuple(t.shape) for n, t in m.state_dict().items()} for m in (original, changed))
    return ", ".join(sorted(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))[:3])


def take_weights(changed: nn.Module, original: nn.Module) -> str:
    """Give a changed network the original's weights, copied; says what differs (`parameters_differ`) if it cannot."""
    differ = parameters_differ(changed, original)
    if not differ:
        changed.load_state_dict(copy.deepcopy(original.state_dict()))
    return differ


def same(one: object, other: Tensor, relative: float = 1e-4) -> bool:
    """Whether something is a tensor of the same shape and values, to this share of them or a hundredth of it."""
    close = isinstance(one, Tensor) and one.shape == other.shape
    return close and torch.allclose(one, other, rtol=relative, atol=relative / 100)  # type: ignore[arg-type]


def same_gradients(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], relative: float = 1e-4) -> bool:
    """Whether the same parameters have the same gradients."""
    return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name], relative) for name in theirs)
