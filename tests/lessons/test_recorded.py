"""Networks that are judged by a record: the peak is the trace's, and who tells apart who looks wins nothing by it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from classroom.questions.core import Outcome
from course_utils.trace import training_step
from lessons.memory import behaviour as memory
from lessons.memory import graded
from lessons.recompute import behaviour as recompute
from lessons.recompute.behaviour import recompute_blocks
from lessons.shared import originals, rewrites
from lessons.shared.replay.form import Refused
from lessons.shared.rewrites import CLASSES, INPUT_SHAPE, Tower, Watched
from lessons.stride import graded as strided

BATCH = 4


def look(kind: type[nn.Module], original: type[nn.Module] = Watched) -> rewrites.RewriteComparison:
    return rewrites.judge(rewrites.record(kind, BATCH, kind=original), BATCH, kind=original)


@pytest.mark.parametrize("kind", [Watched, memory._Detached, memory._ClearedAtTheEnd, Tower, recompute._EachLayer])
def test_the_peak_is_the_traces(kind: type[nn.Module]) -> None:
    """An independent oracle: the trace runs on shapes, from two steps on, and counts as its rooms do."""
    traced = replace(training_step(kind(), INPUT_SHAPE, CLASSES, target="cpu"), tape=None).at(BATCH).peak_bytes
    second = 4 * BATCH * (math.prod(INPUT_SHAPE) + 2)  # the images and labels of the other step
    peak = look(kind, Tower if issubclass(kind, Tower) else Watched).peak
    assert peak - second == pytest.approx(traced, abs=4 * BATCH * CLASSES)


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
    with contextlib.suppress(Refused):  # it computes with what came from elsewhere
        assert not all(look(kind).holds.values())
    assert any(line.endswith(": no") for line in graded.keep_less.lines(kind))


class WithoutGraph(Watched):
    """Keeps nothing, and computes the gradients when nobody watches any more: `later` says how."""

    def cheap(self, pictures: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            out: torch.Tensor = self.layers(pictures)
        return out.requires_grad_()

    def later(self, pictures: torch.Tensor, gradient: torch.Tensor) -> None:
        super().forward(pictures).backward(gradient)
        self.maps = []


class WhenParametersAreAsked(WithoutGraph):
    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        self.pictures, self.out = pictures, self.cheap(pictures)
        return self.out * 1

    def named_parameters(self, *args, **more) -> Iterator[tuple[str, nn.Parameter]]:
        if getattr(self, "out", None) is not None and self.out.grad is not None:
            gradient, self.out = self.out.grad, None
            self.later(self.pictures, gradient)
        return super().named_parameters(*args, **more)


class Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ends, gradients):
        ctx.ends, ctx.gradients = ends, gradients
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.gradients.append(gradient)
        return gradient, None, None


class WhenTheGraphGoes(WithoutGraph):
    def waits(self, pictures: torch.Tensor, gradients: list[torch.Tensor]) -> Iterator[None]:
        try:
            yield
        finally:
            if gradients:
                self.later(pictures, gradients[0])

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        gradients: list[torch.Tensor] = []
        waiting = self.waits(pictures, gradients)
        next(waiting)
        out: torch.Tensor = Pass.apply(self.cheap(pictures), waiting, gradients)
        return out


@pytest.mark.parametrize("kind", [WhenParametersAreAsked, WhenTheGraphGoes])
def test_nothing_is_computed_that_is_not_in_the_record(kind: type[nn.Module]) -> None:
    holds = look(kind).holds
    assert not (holds["same gradients"] and holds["peak low enough"])


class Overrides(nn.Module):
    """A tiny network that says it has the parameters of a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 10)
        self.large = originals.pooled()

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return self.large.parameters(recurse)

    def named_parameters(self, *args, **more) -> Iterator[tuple[str, nn.Parameter]]:
        return iter([("first.weight", self.first.weight)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.relu(self.first(x)).mean((2, 3)))
        return out


def test_parameters_are_those_that_ran_whatever_a_class_says() -> None:
    assert strided.strided.lines(Overrides) != strided.strided.lines(originals.pooled)
    assert any(line.endswith(": no") for line in strided.strided.lines(Overrides))


def test_what_a_step_leaves_counts_in_the_next() -> None:
    assert look(memory._NeverCleared).leaks
    assert not look(memory._Detached).leaks


def test_a_loops_variable_and_the_old_way_are_named() -> None:
    for kind, words in ((recompute._LastBlock, "a function made in a loop"), (recompute._Reentrant, "use_reentrant")):
        feedback = recompute_blocks(kind)
        assert feedback.outcome is Outcome.WRONG
        assert words in feedback.message.replace("A function", "a function")
