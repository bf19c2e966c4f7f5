"""A network that takes its batch one sample at a time, and what a rewritten one does: same output, how many operators.

`compare` looks at properties only, so any program that has them passes. Operators are counted as the trace counts
them: views launch nothing. Nothing here knows a right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lessons.shared.compared import Comparison, same, same_gradients, take_weights
from lessons.shared.watched import Watch, WatchedStep, step

INPUTS, UNITS, CLASSES = 20, 64, 4
MOST = 32  # operators a rewritten network's forward, loss and backward may launch, at any batch


class OneByOne(nn.Module):
    """A small network for card hands, written for one hand and then called in a loop over the batch."""

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
            "same output": self.same_output,
            "same gradients": self.same_gradients,
            "few operators": 0 < self.operators <= MOST,
            "no more for a larger batch": self.operators > 0 and not self.grow,
        }


def count_operators(network: nn.Module, batch: int) -> int:
    """Operators that one forward pass, cross-entropy and backward pass launch. Raises what the network raises."""
    return len(_step(network, batch).operators)


def _step(network: nn.Module, batch: int, seed: int = 0) -> WatchedStep:
    draw = torch.Generator().manual_seed(seed)
    hands = torch.randn((batch, INPUTS), generator=draw) + torch.randn((batch, 1), generator=draw)
    return step(network, hands, torch.randint(CLASSES, (batch,), generator=draw), (batch, CLASSES), Watch(False))


def compare(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> LaunchComparison:
    """Compare `make()` with a `OneByOne` of the same weights on random hands, at a batch and at twice as many.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original, rewritten = OneByOne(), make()
    if differ := take_weights(rewritten, original):
        return LaunchComparison(parameters_differ=differ)
    wanted, given = ([_step(net, batch, seed), _step(net, 2 * batch, seed + 1)] for net in (original, rewritten))
    output, expected = given[0].output, wanted[0].output
    if not isinstance(output, Tensor):
        return LaunchComparison(returned=type(output).__name__)
    pairs = list(zip(given, wanted, strict=True))
    return LaunchComparison(
        returned="Tensor",
        shape=tuple(output.shape),
        expected_shape=tuple(expected.shape),
        same_output=all(same(one.output, other.output, 1e-4) for one, other in pairs),
        trainable=given[0].trainable,
        same_gradients=all(same_gradients(one.gradients, other.gradients, 1e-3) for one, other in pairs),
        operators=len(given[0].operators),
        original_operators=len(wanted[0].operators),
        grow=len(given[1].operators) > len(given[0].operators),
    )
