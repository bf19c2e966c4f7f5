"""Questions whose answer is a network: what is taken for one, and the check that looks at what it does."""

from __future__ import annotations

import importlib
import random
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from IPython import get_ipython
from torch import nn

from lessons.shared.judged import GradedReplay, Holding, PropertyCheck, Seen, Unfit
from lessons.shared.replay.form import Read, from_text, to_text

SEEDS = 2**31  # of values
OWN, OTHER = 0, 1  # seeds of the values that a check records an answer on, and of those it judges it on
REMEMBERS = (
    "on the values that it ran on it does what is asked for, and on others it does not: {how}. Compute it with torch, "
    "from what is given"
)
READERS = {
    "_local_scalar_dense": "`.item()`, `float()` or `if` reads a number",
    "equal": "`torch.equal` reads a number",
}
UNSEEN = "a number is read by `.tolist()` or NumPy, or remembered"


def import_ahead(*modules: str) -> None:
    """In a notebook, import what a first check needs and takes long while the question is still read."""

    def import_all() -> None:
        for name in modules:
            importlib.import_module(name)

    if get_ipython() is not None:
        threading.Thread(target=import_all, daemon=True).start()


import_ahead("torch._dynamo")  # torch's compiler, which it loads with the first dispatch mode


def network_maker(answer: object) -> Callable[[], nn.Module] | None:
    """A function that makes the learner's network, from a class or from one of its networks; None for anything else."""
    if isinstance(answer, nn.Module):
        answer = type(answer)
    return answer if isinstance(answer, type) and issubclass(answer, nn.Module) else None


def graded_network(
    question: str,
    record: Callable[..., Any],
    judge: Callable[..., Holding],
    size: Callable[[random.Random], tuple[Any, ...]],
    accept: Callable[[object], Callable[..., Any] | None] = network_maker,
    kind: str = "network",
    write: Callable[[Any], str] = to_text,
    read: Callable[[str], Any] = from_text,
) -> GradedReplay:
    """The graded cell of a question that is judged by a record.

    Args:
        question: its name.
        record: `record(given, *size, seed)` is what an answer does, with values from this seed.
        judge: `judge(record, *size, seed)` is what that comes to, with values from another.
        size: sizes of what an answer is tried on, from random numbers.
        accept: what `record` is given for an answer, or None.
        kind: what is asked for, "network" or "function".
        write: what makes a text of what was recorded.
        read: what makes that of a text again. Raises Refused.
    """
    return GradedReplay(
        question,
        accept,
        lambda given, draw: write(record(given, *size(draw), draw.randrange(SEEDS))),
        lambda text, draw, values: judge(read(text), *size(draw), values.randrange(SEEDS)),
        kind,
    )


class ReplayCheck(PropertyCheck[Seen]):
    """The check of a question that is judged by a record of what the answer does, which it replays on other values."""

    @abstractmethod
    def record(self, given: Callable[..., Any]) -> Any:
        """What an answer does, on values from the seed OWN: a Record, or what else `as_read` takes."""

    @abstractmethod
    def judge(self, record: Any, seed: int) -> Seen:
        """What a record comes to on values from a seed."""

    def look(self, given: Callable[..., Any]) -> Seen:
        """What the answer's record comes to. Raises Unfit where it is right for its own values alone."""
        record = self.as_read(self.record(given))
        seen = self.judge(record, OTHER)
        wrong = [name for name, held in seen.holds.items() if not held and "peak" not in name]
        if wrong and all(self.judge(record, OWN).holds.values()):
            raise Unfit(self.remembers(record))
        return seen

    def as_read(self, record: Any) -> Any:
        """What was recorded, after it has been a text."""
        return from_text(to_text(record))

    def remembers(self, record: Any) -> str:
        """What is said of an answer that is right for its own values alone."""
        kinds = (one.kind for one in record.entries if isinstance(one, Read))
        read = (READERS.get(kind, f"`{kind}` reads a number") for kind in kinds)
        return REMEMBERS.format(how=next(read, UNSEEN))


class NetworkCheck(ReplayCheck[Seen]):
    """The check of a question whose answer is a network's class."""

    running = "Running the network"

    def accept(self, answer: object) -> Callable[..., Any] | None:
        """What makes the network; None for an answer that is none."""
        return network_maker(answer)
