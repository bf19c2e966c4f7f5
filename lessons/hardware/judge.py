"""A pretrained network changed by a learner so that its head alone is trained, judged by what it does.

`compare` looks at properties only (output, gradients of the head, none of the backbone, how high the peak), so any
program that has them passes. Nothing here knows a right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, same, take_weights
from lessons.shared.rewrites import CLASSES, INPUT_SHAPE
from lessons.shared.watched import step

SHARE = 0.5  # of the original's peak: as high as the changed network's may be


class Pretrained(nn.Module):
    """A backbone of convolutions, which stands for a pretrained one, and a head of one dense layer."""

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


def compare(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> TransferComparison:
    """Compare `make()` with a `Pretrained` of the same weights, in one training step on random images.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = Pretrained()
        images, labels = torch.randn(batch, *INPUT_SHAPE), torch.randint(CLASSES, (batch,))
        changed = make()
        if differ := take_weights(changed, original):
            return TransferComparison(parameters_differ=differ)
        wanted, given = (step(network, images, labels, (batch, CLASSES)) for network in (original, changed))
    if not isinstance(given.output, Tensor):
        return TransferComparison(returned=type(given.output).__name__)
    heads = [name for name in wanted.gradients if name.startswith("head.")]
    return TransferComparison(
        returned="Tensor",
        same_output=same(given.output, wanted.output),
        trainable=given.trainable,
        head_learns=all(same(given.gradients.get(name), wanted.gradients[name]) for name in heads),
        backbone_gradients=tuple(name for name in given.gradients if name.startswith("backbone.")),
        peak=given.peak,
        original_peak=wanted.peak,
    )
