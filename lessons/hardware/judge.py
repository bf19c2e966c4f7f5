"""A pretrained network changed by a learner so that its head alone is trained, judged by what it does.

`record` is a step of it, `judge` what that comes to: properties alone (output, gradients of the head, none of the
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
from lessons.shared.rewrites import CLASSES, INPUT_SHAPE

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

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "parameters kept": not self.parameters_differ,
            "same output": self.same_output,
            "head learns as before": self.head_learns,
            "backbone gets no gradient": self.returned == "Tensor" and not self.backbone_gradients,
            "peak low enough": 0 < self.peak <= SHARE * self.original_peak,
        }


@functools.lru_cache(maxsize=4)
def _trial(batch: int, seed: int) -> Trial:
    """A `Pretrained`, and a step on random images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        images, labels = torch.randn(batch, *INPUT_SHAPE), torch.randint(CLASSES, (batch,))
        return Trial(awake(Pretrained()), [(images, labels)], CLASSES)


def record(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> Record:
    """A training step of `make()`. Raises whatever the learner's code raises, and Refused."""
    return _trial(batch, seed).record(make)


def judge(record: Record, batch: int, seed: int = 1) -> TransferComparison:
    """What a record comes to beside a `Pretrained`, on weights and images drawn from this seed. Raises Refused."""
    trial = _trial(batch, seed)
    if differ := trial.differing(record):
        return TransferComparison(parameters_differ=differ)
    ours, theirs = trial.beside(record)
    (wanted,), (given,) = ours.each, theirs.each
    if given.output is None or wanted.output is None:
        return TransferComparison(returned=given.returned)
    heads = [name for name in wanted.gradients if name.startswith("head.")]
    return TransferComparison(
        returned="Tensor",
        shape=tuple(given.output.shape),
        expected_shape=(batch, CLASSES),
        same_output=same(given.output, wanted.output),
        trainable=bool(given.gradients),
        head_learns=all(same(given.gradients.get(name), wanted.gradients[name]) for name in heads),
        backbone_gradients=tuple(name for name in given.gradients if name.startswith("backbone.")),
        peak=theirs.peak,
        original_peak=ours.peak,
    )
