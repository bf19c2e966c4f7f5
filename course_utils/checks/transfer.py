"""A pretrained network changed by a learner so that its head alone is trained, judged by what it does.

`compare` looks at properties only (output, gradients of the head, none of the backbone, how high the peak), so any
program that has them passes. Nothing here knows a right answer. Must never import figures or explorers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from course_utils.checks.properties import PeakComparison, gradients, take_weights
from course_utils.checks.rewrites import CLASSES, INPUT_SHAPE, peak_bytes
from course_utils.trace import TraceError

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

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        scores: Tensor = self.head(self.backbone(pictures))
        return scores


@dataclass(frozen=True)
class Comparison(PeakComparison):
    """How a changed network stands beside the original, trained with momentum."""

    head_learns: bool = False  # the head's gradients are those of the original's
    backbone_gradients: tuple[str, ...] = ()  # names of the backbone's parameters that get a gradient


def compare(make: Callable[[], nn.Module], batch: int, seed: int = 0) -> Comparison:
    """Compare `make()` with a `Pretrained` of the same weights, on random pictures and by trace.

    Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = Pretrained()
        pictures, labels = torch.randn(batch, *INPUT_SHAPE), torch.randint(CLASSES, (batch,))
        changed = make()
    nothing = Comparison(original_peak=peak_bytes(Pretrained(), batch))
    if differ := take_weights(changed, original):
        return replace(nothing, parameters_differ=differ)
    expected, output = original(pictures), changed(pictures)
    if not isinstance(output, Tensor):
        return replace(nothing, returned=type(output).__name__)
    same = output.shape == expected.shape and torch.allclose(output, expected, rtol=1e-4, atol=1e-6)
    seen = replace(nothing, returned="Tensor", same_output=same, trainable=output.requires_grad)
    if not same or not seen.trainable:
        return seen
    wanted, given = gradients(original, expected, labels), gradients(changed, output, labels)
    heads = [name for name in wanted if name.startswith("head.")]
    seen = replace(
        seen,
        head_learns=all(name in given and torch.allclose(given[name], wanted[name]) for name in heads),
        backbone_gradients=tuple(name for name in given if name.startswith("backbone.")),
    )
    try:
        return replace(seen, peak=peak_bytes(make(), batch))
    except TraceError as failure:
        return replace(seen, trace_error=str(failure))
