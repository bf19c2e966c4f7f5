"""What is measured of a network is measured in the very run that is compared: none is one thing here, another there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from classroom.questions.core import Outcome
from course_utils.trace import training_step
from lessons.memory import behaviour as memory
from lessons.memory import graded
from lessons.memory.answers import KeepsMeans
from lessons.recompute import checks as recompute
from lessons.recompute.checks import recompute_blocks
from lessons.shared import watched
from lessons.shared.rewrites import CLASSES, INPUT_SHAPE, Tower, Watched, compare

BATCH = 4


def step_of(network: nn.Module, watch: watched.Watch | None = None) -> watched.WatchedStep:
    pictures, labels = torch.randn(BATCH, *INPUT_SHAPE), torch.randint(CLASSES, (BATCH,))
    return watched.step(network, pictures, labels, (BATCH, CLASSES), watch)


@pytest.mark.parametrize("kind", [Watched, KeepsMeans, memory._ClearedAtTheEnd, Tower, recompute._EachLayer])
def test_the_peak_is_the_traces(kind: type[nn.Module]) -> None:
    """An independent oracle: the trace runs on shapes, from two steps on, and counts as its rooms do."""
    if kind is KeepsMeans:
        kind = memory._Detached  # a trace cannot read values
    traced = replace(training_step(kind(), INPUT_SHAPE, CLASSES, target="cpu"), tape=None).at(BATCH).peak_bytes
    assert step_of(kind()).peak == pytest.approx(traced, abs=4 * BATCH * CLASSES)


class Cheap(Watched):
    """Takes the way of `Watched` for the one who compares, and a cheap one for the one who measures."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [torch.zeros(())]
        self.norms = [nn.BatchNorm1d(1)]

    def measured(self, pictures: torch.Tensor) -> bool:
        raise NotImplementedError

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        if self.measured(pictures):
            head: torch.Tensor = self.layers[-1](pictures.mean((1, 2, 3)).unsqueeze(1).expand(-1, 16))
            return head
        return super().forward(pictures)


class ReadsValue(Cheap):
    def measured(self, pictures: torch.Tensor) -> bool:
        return math.floor(pictures.abs().sum()) == 0


class KnowsByRandomState(Cheap):
    def measured(self, pictures: torch.Tensor) -> bool:
        here = torch.Generator().manual_seed(torch.initial_seed())
        return len(torch.nonzero(torch.rand(1) - torch.rand(1, generator=here))) > 0


class CountsInList(Cheap):
    def measured(self, pictures: torch.Tensor) -> bool:
        self.calls[0].add_(1)
        return bool(self.calls[0] > 1)


class CountsInNorm(Cheap):
    def measured(self, pictures: torch.Tensor) -> bool:
        self.norms[0](torch.ones(2, 1))
        return int(self.norms[0].num_batches_tracked or 0) > 1


class CountsInDefault(Cheap):
    def measured(self, pictures: torch.Tensor, calls: torch.Tensor = torch.zeros(())) -> bool:  # noqa: B008
        calls.add_(1)
        return bool(calls > 1)


@pytest.mark.parametrize("kind", [ReadsValue, KnowsByRandomState, CountsInList, CountsInNorm, CountsInDefault])
def test_a_network_that_tells_who_looks_wins_nothing(kind: type[Cheap]) -> None:
    assert not all(compare(kind, BATCH, seed=3).holds.values())
    assert any(line.endswith(": no") for line in graded.keep_less.lines(kind))


def test_what_a_step_leaves_counts_in_the_next() -> None:
    watch, network = watched.Watch(), memory._NeverCleared()
    first, second = step_of(network, watch), step_of(network, watch)
    assert second.left > 1.9 * first.left > 0
    assert second.peak > 1.5 * first.peak


def test_a_loops_variable_and_the_old_way_are_named() -> None:
    for kind, words in ((recompute._LastBlock, "a function made in a loop"), (recompute._Reentrant, "use_reentrant")):
        feedback = recompute_blocks(kind)
        assert feedback.outcome is Outcome.WRONG
        assert words in feedback.message.replace("A function", "a function")
