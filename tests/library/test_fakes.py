"""Meta tensors and quick fakes beside torch's own fake tensors: the same recording, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import awkward_nets
import pytest
import torch
from amount import by_turns
from small_nets import Heads, Net, chain
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention

from course_utils import networks
from course_utils.trace import training_step
from lessons.memory.recurrent import rnn_from_cells

pytestmark = pytest.mark.usefixtures("one_thread")


class Plain(nn.Module):
    """Operators of the short list that the course's networks do not run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        bias = self.inner.bias.clone()
        bias[4:8].zero_()
        x = x + bias[:8]
        maps = torch.cat([self.inner(x).tanh()[:, :8], -self.inner(x).sigmoid()[:, 8:]], 1) * torch.full((16,), 2.0)
        maps = maps + torch.zeros_like(maps) + x.new_empty(16) + torch.zeros(16) / 2
        maps = (
            torch.bmm(maps[:, None], maps[:, :, None])[:, 0]
            + F.avg_pool2d(maps.reshape(-1, 1, 4, 4), 2).flatten(1)[:, :1]
        )
        scores: Tensor = self.head(maps.expand(-1, 16).clone() * x.sum(1, keepdim=True))[:, 0:5]
        return scores


class Tokens(nn.Module):
    """Operators of the short list that language models run: positions, masks, gates, experts, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(50, 32), nn.LayerNorm(32), nn.Linear(32, 5)
        self.experts = nn.Parameter(torch.zeros(4, 32, 32))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, 8) to (batch, 5)."""
        maps = self.norm(self.words(tokens))
        maps = self.turned(maps) + self.attended(maps) + self.routed(maps.flatten(0, 1)).view_as(maps)
        maps = F.gelu(maps) + F.silu(maps) + maps.abs().log() + maps.sub(1).floor().minimum(maps).sqrt()
        maps = torch.cat([maps, self.masked(tokens, maps).mul_(torch.ones(32, device=maps.device))], 1)
        scores: Tensor = self.head(F.pad(maps.roll(1, 1), (0, 0, 1, 1)).mean(1))
        return scores

    def turned(self, maps: Tensor) -> Tensor:
        angles = torch.arange(8, device=maps.device).float()[:, None].repeat(1, 32) / 3
        scaled = maps * maps.pow(2).mean(-1, keepdim=True).rsqrt()
        return scaled * angles.cos() + torch.stack([-maps[..., 1::2], maps[..., ::2]], -1).flatten(2) * angles.sin()

    def attended(self, maps: Tensor) -> Tensor:
        rows = maps.unflatten(-1, (4, 8)).transpose(1, 2)
        mask = maps.new_ones(8, 8).tril() > 0
        out = scaled_dot_product_attention(rows, rows, rows, is_causal=True)
        out = out + scaled_dot_product_attention(rows, rows, rows, mask) + torch.rand(8, 1, device=maps.device).exp()
        unfused = scaled_dot_product_attention(rows, rows, rows, mask, dropout_p=0.1, is_causal=False)
        return (out + unfused).transpose(1, 2).flatten(2)

    def routed(self, rows: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.head(rows)[:, :4].softmax(-1), 2)
        order = torch.sort(chosen.flatten()).indices
        count = torch.histc(chosen.flatten().float(), bins=4, min=0, max=3)
        ends = count.cumsum(0, dtype=torch.int32)
        out = F.grouped_mm(rows[order // 2], self.experts.transpose(1, 2), offs=ends)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=rows.device)
        summed = (out[places].view(-1, 2, 32) * weights[..., None]).sum(1)
        spread = torch.zeros_like(self.head(rows)[:, :4]).scatter(1, chosen, weights)
        return summed + torch.baddbmm(rows[:, :1, None], spread[:, None], spread[..., None])[:, 0]

    def masked(self, tokens: Tensor, maps: Tensor) -> Tensor:
        known = (tokens != 0) & (tokens <= 49) & ~(tokens == 1) & (tokens >= 0) & (tokens < 50) & (tokens > -1)
        shifted = tokens.new_zeros(tokens.shape)
        shifted[:, 1:] = tokens[:, :-1].clone()
        shifted[:, 0] = 1
        shifted.masked_fill_(shifted == -100, 0)
        known = known & known.all(-1, keepdim=True) & (torch.full_like(tokens, 3) > 2)
        rows = maps.masked_fill(~known[..., None], 0.0) + (1 - maps) * self.words(shifted)
        return torch.where(known[..., None], rows, rows.new_zeros(())) + rows.gather(1, torch.zeros_like(rows).long())


class Shifted(nn.Module):
    """Windows of a picture, shifted, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8), nn.Linear(8, 5)
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.norm(self.first(x).permute(0, 2, 3, 1))
        maps = self.second(maps.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        maps = maps.roll((-1, -1), (1, 2)).unflatten(1, (2, 4)).unflatten(3, (2, 4)).transpose(2, 3)
        scores: Tensor = self.head(maps.contiguous().flatten(1, 4).mean(1))
        return scores


class Mobile(nn.Module):
    """The cheap activations of small convolutional networks, in either layout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = F.hardswish(self.first(x)) + F.hardswish(self.first(x) * 2, inplace=True)
        maps = maps * F.hardsigmoid(self.second(maps)) + F.relu6(self.second(maps)) + F.relu6(maps * 2, inplace=True)
        scores: Tensor = self.head(F.silu(self.second(maps), inplace=True).mean((2, 3)))
        return scores


class Maps(nn.Module):
    """What networks for segmentation run, in either layout: maps made larger, one class a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = F.leaky_relu(self.first(x), 0.1, inplace=True)
        pooled = F.interpolate(self.second(F.adaptive_avg_pool2d(maps, 1)), (7, 7), mode="bilinear")
        maps = F.interpolate(F.leaky_relu(self.second(maps)), scale_factor=2) + F.interpolate(pooled, scale_factor=2)
        maps = torch.addcmul(maps, maps, F.normalize(maps, dim=1).clamp(max=0.9)) * maps.clamp_min(1e-3)
        places = torch.linspace(-1, 1, 14, device=x.device, dtype=maps.dtype).expand(len(x), 14, 14)
        maps = F.grid_sample(maps, torch.stack([places, places.mT], -1), align_corners=True)
        maps = F.unfold(maps, 3, padding=1).unflatten(1, (8, 9)).mean(2).unflatten(-1, (14, 14))
        return F.interpolate(self.head(maps), (16, 16), mode="bilinear", align_corners=True)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(1)), (3, 4, 4), {}),
    "maps": (Maps, (3, 16, 16), {"target_shape": (16, 16)}),
    "maps, channels last": (
        lambda: Maps().to(memory_format=torch.channels_last), (3, 16, 16), {"target_shape": (16, 16)}
    ),
    "alexnet": (networks.alexnet, (3, 64, 64), {}),
    "googlenet": (networks.googlenet, (3, 64, 64), {}),
    "resnet50": (networks.resnet50, (3, 64, 64), {}),
    "channels last": (lambda: awkward_nets.branching_cnn().to(memory_format=torch.channels_last), (3, 16, 16), {}),
    "inplace_cnn": (awkward_nets.inplace_cnn, (3, 16, 16), {}),
    "rnn_from_cells": (rnn_from_cells, (7, 4), {}),
    "plain": (Plain, (8,), {}),
    "language": (Tokens, (8,), {"input_dtype": torch.int64}),
    "mobile": (Mobile, (3, 8, 8), {}),
    "mobile, channels last": (lambda: Mobile().to(memory_format=torch.channels_last), (3, 8, 8), {}),
    "shifted windows": (Shifted, (3, 16, 16), {}),
    **{how: (partial(Heads, how), (8, 32), {}) for how in ("plain heads", "grouped", "mask", "trained bias")},
    "tokens": (
        lambda: nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(7 * 16, 5)), (7,),
        {"input_dtype": torch.int64},
    ),
    "mean square": (
        partial(Net, chain), (8,), {"criterion": F.mse_loss, "target_shape": (5,), "target_dtype": torch.float32}
    ),
}  # fmt: skip


def test_what_is_traced_on_meta_tensors_for_the_cpu_is_the_same_on_fake_ones() -> None:
    from unittest import mock

    from course_utils.trace import runs

    seen: set[str] = set()
    for name, (build, shape, options) in NETWORKS.items():
        with mock.patch.object(runs, "Fakes", side_effect=AssertionError(f"{name} is traced on fake tensors")):
            meta = training_step(build(), shape, None, "sgd", target="cpu", **options).at(5).tape
        with mock.patch.object(runs, "SAME_AS_CPU", frozenset()):  # nothing is: everything runs on fake tensors
            fake = training_step(build(), shape, None, "sgd", target="cpu", **options).at(5).tape
        seen.update(op for op, phase in zip(meta.event_ops, meta.event_phase, strict=True) if phase < 2)
        assert meta.event_ops == fake.event_ops, name
        for array in ("fixed", "per_sample", "birth", "death", "role"):
            assert getattr(meta, array).tolist() == getattr(fake, array).tolist(), (name, array)
    assert sorted(runs.SAME_AS_CPU - seen - {"end"}) == []


def in_bfloat16(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: build().to(torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, one) for i, name in enumerate(NETWORKS) for one in by_turns(["float32", "bfloat16", "weights"], i)],
)
def test_quick_fakes_are_those_of_torch(name: str, precision: str) -> None:
    from unittest import mock

    from torch._subclasses.fake_tensor import FakeTensorMode

    from course_utils.trace import runs

    build, shape, options = NETWORKS[name]
    if precision == "weights":
        build, precision = in_bfloat16(build), "float32"
        if options.get("input_dtype") is None:
            options = {**options, "input_dtype": torch.bfloat16}
    tapes = []
    for fakes in (runs.Fakes, FakeTensorMode):
        with mock.patch.object(runs, "SAME_AS_CPU", frozenset()), mock.patch.object(runs, "Fakes", fakes):
            traced = training_step(build(), shape, None, "sgd", precision, "cpu", **options)
            tapes.append(traced.at(5).tape)
    assert tapes[0].event_ops == tapes[1].event_ops
    for array in ("fixed", "per_sample", "birth", "death", "role"):
        assert getattr(tapes[0], array).tolist() == getattr(tapes[1], array).tolist(), array
