"""What a judge asks of every tensor that a learner's code gives it, before it believes a method of it."""

from __future__ import annotations

from torch import Tensor, nn


def own_kind(tensor: Tensor) -> Tensor:
    """The tensor. Raises TypeError for one of a class that somebody derived: its methods might say anything."""
    if type(tensor) not in (Tensor, nn.Parameter):
        raise TypeError(f"a tensor of a class of its own, {type(tensor).__name__}; use torch's")
    return tensor
