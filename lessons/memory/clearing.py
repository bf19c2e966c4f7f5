"""Gradients cleared between two steps: freed, or overwritten with zeros, and what that leaves in memory."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import nn

from course_utils import networks
from course_utils.memory import Ledger
from course_utils.trace import training_step

CLEARED = {
    "ResNet-50": (networks.resnet50, (3, 224, 224), 1000),
    "VGG-16": (networks.vgg16, (3, 224, 224), 1000),
    "52 M dense net": (networks.kaggle_mlp, (9000,), 32),
}
BATCH = 32


def plain_frees() -> bool:
    """Whether `zero_grad()` of the PyTorch that runs, without an argument, leaves no gradient."""
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).zero_grad()
    return all(parameter.grad is None for parameter in layer.parameters())


@lru_cache(maxsize=16)
def cleared(name: str, frees: bool, optimizer: str = "momentum") -> Ledger:
    """A step of a network of CLEARED, at whose end gradients are freed, or overwritten with zeros."""
    build, shape, classes = CLEARED[name]
    with torch.device("meta"):
        module = build()
    return training_step(module, shape, classes, optimizer, set_to_none=frees).at(BATCH)


def freeing_saves(name: str, plain: bool, optimizer: str = "momentum") -> tuple[float, float]:
    """By what share less is left behind a step, and is its peak, if gradients are freed.

    Compared with a plain `zero_grad()` that frees them too, or with `plain=False` overwrites them.
    """
    freed, other = (cleared(name, frees, optimizer) for frees in (True, plain))
    return 1 - float(freed.total[-1] / other.total[-1]), 1 - freed.peak_bytes / other.peak_bytes
