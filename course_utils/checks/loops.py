"""A network that takes its batch one sample at a time, and what a rewritten one does: same output, how many operators.

`compare` looks at properties only, so any program that has them passes. Operators are counted as the trace counts
them: views launch nothing. Nothing here knows a right answer. Must never import figures or explorers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from course_utils.checks import properties
from course_utils.checks.properties import gradients, take_weights
from course_utils.recorder import Recorder
from course_utils.speed import NO_KERNEL

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
class Comparison(properties.Comparison):
    """How a rewritten network stands beside the original."""

    operators: int = 0  # launched by forward, loss and backward at `batch`
    original_operators: int = 0
    grow: bool = False  # whether a larger batch launches more


def count_operators(network: nn.Module, batch: int) -> int:
    """Operators that one forward pass, cross-entropy and backward pass launch, counted on shapes alone.

    Raises whatever the network raises on tensors without values.
    """
    shapes = copy.deepcopy(network).to("meta")
    x, y = (torch.empty(s, dtype=d, device="meta") for s, d in (((batch, INPUTS), None), ((batch,), torch.int64)))
    recorder = Recorder(type(network).__name__, "cpu")
    with recorder:
        nn.functional.cross_entropy(shapes(x), y).backward()
    return sum(name not in NO_KERNEL for name in recorder.record.ops)


def compare(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> Comparison:
    """Compare `make()` with a `OneByOne` of the same weights, on random hands, and count operators at a batch.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = OneByOne()
        hands, labels = torch.randn(batch, INPUTS) + torch.randn(batch, 1), torch.randint(CLASSES, (batch,))
        rewritten = make()
    nothing = Comparison(original_operators=count_operators(original, batch))
    if differ := take_weights(rewritten, original):
        return replace(nothing, parameters_differ=differ)
    expected, output = original(hands), rewritten(hands)
    if not isinstance(output, Tensor):
        return replace(nothing, returned=type(output).__name__)
    seen = replace(
        nothing,
        returned="Tensor",
        shape=tuple(output.shape),
        expected_shape=tuple(expected.shape),
        same_output=output.shape == expected.shape and torch.allclose(output, expected, rtol=1e-4, atol=1e-5),
        trainable=output.requires_grad,
    )
    if seen.shape != seen.expected_shape or not seen.trainable:
        return seen
    wanted, given = gradients(original, expected, labels), gradients(rewritten, output, labels)
    same = wanted.keys() == given.keys() and all(
        torch.allclose(given[name], wanted[name], rtol=1e-3, atol=1e-5) for name in wanted
    )
    try:
        operators, more = count_operators(make(), batch), count_operators(make(), 2 * batch)
    except Exception as error:  # noqa: BLE001 - a learner's network may raise anything on tensors without values
        return replace(seen, same_gradients=same, trace_error=str(error).strip().split("\n")[0] or type(error).__name__)
    return replace(seen, same_gradients=same, operators=operators, grow=more > operators)
