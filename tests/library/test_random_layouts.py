"""Random networks over images whose maps change their layout all the time: transposed, cut, channels last, joined.

Where a kernel lays its result out otherwise than a trace believes, some later copy is made or saved, and bytes differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from oracles import Case, live_storages_timeline
from small_nets import operators
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.trace import STANDING, training_step

pytestmark = pytest.mark.usefixtures("one_thread")


def in_parts(net: Any, x: Tensor) -> Tensor:
    half = x.shape[2] // 2
    return torch.cat([x[:, :, :half], x[:, :, half:].exp()], 2)


def attended(net: Any, x: Tensor) -> Tensor:
    rows = x.permute(0, 2, 3, 1).flatten(1, 2).softmax(1)
    return rows.transpose(1, 2).unflatten(2, x.shape[2:])


def masked(net: Any, x: Tensor) -> Tensor:
    mask = x.new_zeros(len(x), 1, *x.shape[2:])
    mask[:, :, 0], mask[..., 1:3] = 1, 2.0
    return x.masked_fill(mask > 1, 0.0)


def overwritten(net: Any, x: Tensor) -> Tensor:
    maps = x.clone()
    maps[:, 2:4] = 0.5
    return maps


def shifted(net: Any, x: Tensor) -> Tensor:
    x = x.roll((1, 1), (2, 3))
    return x.unflatten(2, (2, -1)).transpose(2, 3).reshape(x.shape)


STEPS: list[Callable[[Any, Tensor], Tensor]] = [
    *(in_parts, attended, masked, overwritten, shifted),
    lambda net, x: net.batch_norm(x),
    lambda net, x: net.group_norm(x),
    lambda net, x: net.by_channel(x),
    lambda net, x: net.mixed(x),
    lambda net, x: net.larger(x)[:, :, ::2, ::2],
    lambda net, x: net.layer_norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    lambda net, x: net.dense(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    lambda net, x: x * net.gain,
    lambda net, x: net.gain.sigmoid() * x,
    lambda net, x: torch.cat([x[:, :4], x[:, 4:] * 2], 1),
    lambda net, x: F.normalize(x, dim=1),
    lambda net, x: F.normalize(x, dim=3),
    lambda net, x: x + x.mean((2, 3), keepdim=True),
    lambda net, x: x - x.sum(1, keepdim=True),
    lambda net, x: x.transpose(2, 3),
    lambda net, x: F.fold(F.unfold(x, 3, padding=1) * 2, x.shape[2:], 3, padding=1),
    lambda net, x: F.relu(x) * F.hardsigmoid(x),
    lambda net, x: F.silu(x) + F.gelu(-x).clamp_min(-1),
    lambda net, x: F.elu(x) * F.softplus(x.transpose(2, 3)),
    lambda net, x: F.max_pool2d(x, 3, 1, 1),
    lambda net, x: F.avg_pool2d(x, 3, 1, 1),
    lambda net, x: F.interpolate(x, scale_factor=2, mode="bilinear")[:, :, : x.shape[2], : x.shape[3]],
    lambda net, x: F.interpolate(x, scale_factor=2)[:, :, ::2, 1::2],
    lambda net, x: F.pad(x, (1, 1, 1, 1), mode="reflect")[:, :, 1:-1, 2:],
]


class Drawn(nn.Module):
    """A convolution, three to eight steps drawn by the seed, and five scores."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        if draw.random() < 0.4:
            self.first = self.first.to(memory_format=torch.channels_last)
        self.batch_norm, self.group_norm = nn.BatchNorm2d(8), nn.GroupNorm(draw.choice([1, 2, 4]), 8)
        self.by_channel, self.mixed = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.larger = nn.ConvTranspose2d(8, 8, 2, 2)
        self.layer_norm, self.dense, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.gain = nn.Parameter(torch.ones(8, 1, 1))
        self.steps = draw.choices(STEPS, k=draw.randint(3, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for step in self.steps:
            x = step(self, x)
        scores: Tensor = self.head(x.mean((2, 3)))
        return scores


@pytest.mark.parametrize("seed", range(40))
def test_maps_in_any_layout_equal_real_tensors(seed: int) -> None:
    net = Drawn(seed)
    step = training_step(net, (3, 8, 8), 5, "sgd", target="cpu")
    if said := set(step.assumptions) - STANDING:
        assert overwritten in net.steps
        assert all("written in place" in what for what in said)
        return
    for batch in (3, 16):
        real = live_storages_timeline(Case(partial(Drawn, seed), (3, 8, 8), 5), batch)
        assert operators(step.at(batch)) == real, batch
