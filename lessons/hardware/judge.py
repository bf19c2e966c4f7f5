"""A pretrained network changed by a learner so that its head alone is trained, judged by what it does.

`record` is two steps of it, `judge` what they come to: properties alone (output, gradients of the head, none of the
backbone, how high the peak), so that any program that has them passes. Nothing here knows a right answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, awake, same
from lessons.shared.replay.form import Record
from lessons.shared.replay.steps import Trial
from lessons.shared.replay.witness import GROWTH, Write, recorded
from lessons.shared.rewrites import CLASSES, FEW, INPUT_SHAPE

SHARE = 0.5  # of the original's peak: as high as the changed network's may be


class Pretrained(nn.Module):
    """A backbone of convolutions, in place of a pretrained one, and a head of one dense layer."""

    def __init__(self, width: int = 16, depth: int = 5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            layers += [nn.Conv2d(width if i else INPUT_SHAPE[0], width, 3, padding=1), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        scores: Tensor = self.head(self.backbone(images))
        return scores


@dataclass(frozen=True)
class TransferComparison(PeakComparison):
    """How a changed network stands beside the original, trained with momentum."""

    head_learns: bool = False  # the head's gradients are those of the original's
    backbone_gradients: tuple[str, ...] = ()  # names of the backbone's parameters that get a gradient
    leaks: bool = False  # the second step leaves more behind than the first

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "parameters kept": not self.parameters_differ,
            "same output": self.same_output and not self.elsewhere,
            "head learns as before": self.head_learns,
            "backbone gets no gradient": self.returned == "Tensor" and not self.backbone_gradients,
            "peak low enough": not self.leaks and 0 < self.peak <= SHARE * self.original_peak,
        }


@functools.lru_cache(maxsize=4)
def _trial(batch: int, seed: int) -> Trial:
    """A `Pretrained`, and two steps on random images: what a network keeps for its next step shows in the second."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original, sizes = awake(Pretrained()), (batch, batch, FEW)
        *steps, few = [(torch.randn(size, *INPUT_SHAPE), torch.randint(CLASSES, (size,))) for size in sizes]
        return Trial(original, steps, CLASSES, others=[few])


def record(make: Callable[[], nn.Module], batch: int, seed: int = 0, write: Write = recorded) -> Record:
    """Two training steps of `make()`. Raises whatever the learner's code raises, and Refused."""
    return _trial(batch, seed).record(make, write=write)


def judge(record: Record, batch: int, seed: int = 1) -> TransferComparison:
    """What a record comes to beside a `Pretrained`, on weights and images drawn from this seed. Raises Refused."""
    trial = _trial(batch, seed)
    if differ := trial.differing(record):
        return TransferComparison(parameters_differ=differ)
    ours, theirs = trial.beside(record)
    pairs = list(zip(theirs.each, ours.each, strict=True))
    given, wanted = pairs[0]
    if given.output is None:
        return TransferComparison(returned=given.returned)
    heads = [name for name in wanted.gradients if name.startswith("head.")]
    return TransferComparison(
        returned="Tensor",
        shape=tuple(given.output.shape),
        expected_shape=(batch, CLASSES),
        same_output=all(other.output is not None and same(one.output, other.output) for one, other in pairs),
        elsewhere=trial.elsewhere(ours, theirs),
        trainable=bool(given.gradients),
        head_learns=all(same(one.gradients.get(n), other.gradients[n]) for one, other in pairs for n in heads),
        backbone_gradients=tuple({n: 1 for one in theirs.each for n in one.gradients if n.startswith("backbone.")}),
        leaks=theirs.each[1].left > given.left + GROWTH,
        peak=theirs.peak,
        original_peak=ours.peak,
    )
