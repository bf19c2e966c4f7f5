"""A network that takes its batch one sample at a time, and what a rewritten one does: same output, how many operators.

`record` is two steps of it, `judge` what they come to: properties alone, so any program that has them passes. Operators
are counted as the trace counts them: views launch nothing. Nothing here knows a right answer.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lessons.shared.compared import Comparison, same, same_gradients
from lessons.shared.replay.form import Record
from lessons.shared.replay.steps import Trial
from lessons.shared.replay.witness import recorded

INPUTS, UNITS, CLASSES = 20, 64, 4
FEW, MANY = (1, 9), (100, 600)  # from so many hands to so many on which the output alone is judged, in evaluation
FAR = 100.0  # times as far apart as others
MOST = 32  # operators a rewritten network's forward, loss and backward may launch, at any batch


class OneByOne(nn.Module):
    """A small network for card hands, written for one hand, called in a loop over the batch."""

    def __init__(self, units: int = UNITS) -> None:
        super().__init__()
        self.fc1 = nn.Linear(INPUTS, units)
        self.fc2 = nn.Linear(units, CLASSES)

    def forward(self, hands: Tensor) -> Tensor:
        """(N, 20) -> (N, 4)."""
        scores = []
        for hand in hands:
            centred = hand - hand.mean()
            hidden = torch.relu(self.fc1(centred))
            scores.append(self.fc2(hidden))
        return torch.stack(scores)


@dataclass(frozen=True)
class LaunchComparison(Comparison):
    """How a rewritten network stands beside the original."""

    operators: int = 0  # launched by forward, loss and backward at `batch`
    original_operators: int = 0
    grow: bool = False  # whether a larger batch launches more

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "parameters kept": not self.parameters_differ,
            "output shape kept": self.returned == "Tensor" and self.shape == self.expected_shape,
            "same output": self.same_output and not self.elsewhere,
            "same gradients": self.same_gradients,
            "few operators": 0 < self.operators <= MOST,
            "no more for a larger batch": self.operators > 0 and not self.grow,
        }


@functools.lru_cache(maxsize=4)
def _trial(batch: int, seed: int) -> Trial:
    """A `OneByOne`, and a step on random hands at a batch and one at twice as many."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hands = [torch.randn(n, INPUTS) + torch.randn(n, 1) for n in (batch, 2 * batch)]
        dice = random.Random(batch)
        hands += [FAR * torch.randn(dice.randint(*FEW), INPUTS), torch.randn(dice.randint(*MANY), INPUTS)]
        *steps, few, many = [(one, torch.randint(CLASSES, (len(one),))) for one in hands]
        return Trial(OneByOne(), steps, CLASSES, others=[few, many])


def record(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> Record:
    """A step of `make()` at a batch, one at twice as many. Raises whatever the learner's code raises, and Refused."""
    return _trial(batch, seed).record(make, write=functools.partial(recorded, memory=False))


def judge(record: Record, batch: int, seed: int = 1) -> LaunchComparison:
    """What a record comes to beside a `OneByOne`, on weights and hands drawn from this seed. Raises Refused."""
    trial = _trial(batch, seed)
    if differ := trial.differing(record):
        return LaunchComparison(parameters_differ=differ)
    ours, theirs = trial.beside(record)
    wanted, given = ours.each, theirs.each
    if given[0].output is None:
        return LaunchComparison(returned=given[0].returned)
    pairs = list(zip(given, wanted, strict=True))
    return LaunchComparison(
        returned="Tensor",
        shape=tuple(given[0].output.shape),
        expected_shape=(batch, CLASSES),
        same_output=all(other.output is not None and same(one.output, other.output) for one, other in pairs),
        elsewhere=trial.elsewhere(ours, theirs),
        trainable=bool(given[0].gradients),
        same_gradients=all(same_gradients(one.gradients, other.gradients, 1e-3) for one, other in pairs),
        operators=given[0].operators,
        original_operators=wanted[0].operators,
        grow=given[1].operators > given[0].operators
        or len({*theirs.evaluating}) > 1
        or max(theirs.evaluating) > max(MOST, given[0].operators),
    )
