"""The networks that exercises 04 to 06 hand out to be built another way, and what is asked of the other one.

Nothing here knows a right answer: checks, graded cells and the exercises themselves take them from here.
"""

from __future__ import annotations

from torch import nn

from lessons.shared.rebuilt import Original

CLASSES = 10


def pooled() -> nn.Module:
    """A small network for 3 × 32 × 32 images that shrinks its maps by pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def wide() -> nn.Module:
    """A small network for 3 × 32 × 32 images, 64 channels all the way."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def pooled_late() -> nn.Module:
    """A small network for 3 × 32 × 32 images that does all its pooling at the end."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


STRIDED = Original(pooled, (3, 32, 32), CLASSES, share=0.7)
BOTTLENECK = Original(
    wide,
    (3, 32, 32),
    CLASSES,
    share=0.85,
    same_kernels=False,
    kernels=(((64, 3, 3, 3), 1), ((3, 3), 4), ((1, 1), 1), ((10, 64), 1)),
    full_size=True,
)
POOLED_WELL = Original(pooled_late, (3, 32, 32), CLASSES, share=0.43)
