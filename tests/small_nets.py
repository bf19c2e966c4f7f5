"""A small network whose forward may do anything, and the timeline of a ledger in the witnesses' form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from oracles import Timeline
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

from course_utils.memory import Ledger


def operators(ledger: Ledger) -> Timeline:
    """(operator, bytes alive after it) without the start and, in training, zero_grad."""
    frame = ledger.timeline()
    return list(zip(frame["event"][1:-1], frame["total"][1:-1].tolist(), strict=True))


class Net(nn.Module):
    """Three dense layers, and a forward that may do anything with them."""

    def __init__(self, run: Callable[[Any, Tensor], Any], inputs: int = 8) -> None:
        super().__init__()
        self.run = run
        self.a, self.b, self.c = nn.Linear(inputs, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def chain(net: Any, x: Tensor) -> Tensor:
    out: Tensor = net.c(F.relu(net.b(F.relu(net.a(x)))))
    return out


class Heads(nn.Module):
    """Attention of four heads over rows of 32, as real ones are: shared keys, masks, biases that are trained."""

    def __init__(self, how: str = "plain", attention: Callable[..., Tensor] = scaled_dot_product_attention) -> None:
        super().__init__()
        self.how, self.attention = how, attention
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16)
        self.head = nn.Linear(32, 5)
        self.bias = nn.Parameter(torch.zeros(4, 8, 8)) if how == "trained bias" else None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        options: dict[str, Any] = {"enable_gqa": True}
        if self.how != "grouped":
            k, v, options = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), {}
        if self.how == "mask":
            options["attn_mask"] = x.new_ones(8, 8, dtype=torch.bool).tril()
        if self.bias is not None:
            options["attn_mask"] = self.bias
        scores: Tensor = self.head(self.attention(q, k, v, **options).transpose(1, 2).flatten(2).mean(1))
        return scores


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()
