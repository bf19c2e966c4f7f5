"""Tensors in any layout, on any device, and how what comes of them lies in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True)
class T:
    """A tensor to be made on any device; `layout` says how its values lie in memory."""

    shape: tuple[int, ...]
    layout: str = "plain"
    dtype: torch.dtype = torch.float32

    def make(self, device: str) -> Tensor:
        ones = torch.ones
        if self.layout == "transposed" and len(self.shape) > 1:
            *rest, a, b = self.shape
            return ones(*rest, b, a, dtype=self.dtype, device=device).transpose(-1, -2)
        if self.layout == "channels last" and len(self.shape) == 4:
            return ones(self.shape, dtype=self.dtype, device=device).to(memory_format=torch.channels_last)
        if self.layout == "channels last, cut" and len(self.shape) == 4:
            *rest, width = self.shape
            larger = ones((*rest, width + 1), dtype=self.dtype, device=device).to(memory_format=torch.channels_last)
            return larger[..., :-1]
        if self.layout == "cut":
            larger = ones((self.shape[0] + 2, *self.shape[1:-1], self.shape[-1] + 1), dtype=self.dtype, device=device)
            return larger[1:-1, ..., :-1] if len(self.shape) > 1 else larger[1:-1, 0]
        if self.layout == "expanded":
            return ones((1, *self.shape[1:]), dtype=self.dtype, device=device).expand(self.shape)
        if self.layout == "permuted" and len(self.shape) > 2:
            return ones((self.shape[1], self.shape[0], *self.shape[2:]), dtype=self.dtype, device=device).transpose(
                0, 1
            )
        return ones(self.shape, dtype=self.dtype, device=device)


def described(result: Any, arguments: Any) -> Any:
    """Shape, dtype, strides and storage bytes of every tensor of a result; one of the arguments is only named."""
    given_ids = {id(a): i for i, a in enumerate(arguments) if isinstance(a, Tensor)}

    def describe(t: Tensor) -> Any:
        if id(t) in given_ids:
            return f"argument {given_ids[id(t)]}"
        # The stride of a dimension of one, or of an empty tensor, moves nothing.
        strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
        return tuple(t.shape), t.dtype, strides, t.untyped_storage().nbytes()

    return tree_map_only(Tensor, describe, list(result) if isinstance(result, tuple) else result)


def make(arguments: Any, device: str) -> Any:
    return tree_map_only(T, lambda t: t.make(device), arguments, is_leaf=lambda value: isinstance(value, T))
