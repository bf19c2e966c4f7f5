"""Diffusion models: the U-Net of Stable Diffusion 1 and DiT. What enters is a latent, (batch, 4, side, side).

`forward` draws times and noise, and gives the mean squared error of the noise that it predicts.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from website.guide.vision import SelfAttention

STEPS = 1000  # of the noise


def noised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A latent with noise, the noise, and the times, (batch,)."""
    times = torch.randint(0, STEPS, (x.shape[0],), device=x.device)
    noise = torch.randn_like(x)
    share = (times.float() * (math.pi / 2 / STEPS)).cos().to(x.dtype)[:, None, None, None]
    return share * x + (1 - share * share).sqrt() * noise, noise, times


def waves(places: Tensor, width: int) -> Tensor:
    """Cosines and sines of places, (n,) to (n, width)."""
    half = width // 2
    angles = torch.outer(places.float(), torch.exp(-math.log(10_000) / half * torch.arange(half, device=places.device)))
    return torch.cat((angles.cos(), angles.sin()), -1)


# ---------------------------------------------------------------------------------------------------------------------
# DiT


class DiTLayer(nn.Module):
    """Attention and feed-forward, each between a shift and scale and a gate that time and class decide."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, 1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(hidden, 1e-6, elementwise_affine=False)
        self.attention = SelfAttention(hidden, heads)
        self.block = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(approximate="tanh"), nn.Linear(4 * hidden, hidden)
        )
        self.decide = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same; c: (batch, hidden)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.decide(c).unsqueeze(1).chunk(6, -1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.block(self.norm2(x) * (1 + scale2) + shift2)  # type: ignore[no-any-return]


class DiT(nn.Module):
    """Peebles and Xie, "Scalable Diffusion Models with Transformers" (2022), with patches of 2 × 2.

    Left out: the loss of the predicted variance, which its eight output channels have room for.
    """

    def __init__(self, hidden: int, layers: int, heads: int, classes: int = 1000) -> None:
        super().__init__()
        self.hidden = hidden
        self.patches = nn.Conv2d(4, hidden, 2, 2)
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.label = nn.Embedding(classes + 1, hidden)
        self.layers = nn.ModuleList(DiTLayer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, 1e-6, elementwise_affine=False)
        self.decide = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))
        self.head = nn.Linear(hidden, 2 * 2 * 8)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss of latents with these classes."""
        noisy, noise, times = noised(x)
        maps = self.patches(noisy)
        side = maps.shape[-1]
        lines = waves(torch.arange(side, device=x.device), self.hidden // 2)
        places = torch.cat((lines.repeat(side, 1), lines.repeat_interleave(side, 0)), -1).to(maps.dtype)
        tokens = maps.flatten(2).transpose(1, 2) + places
        c = self.time(waves(times, 256).to(x.dtype)) + self.label(labels)
        for layer in self.layers:
            tokens = layer(tokens, c)
        shift, scale = self.decide(c).unsqueeze(1).chunk(2, -1)
        found = self.head(self.norm(tokens) * (1 + scale) + shift)
        found = F.pixel_shuffle(found.transpose(1, 2).unflatten(2, (side, side)), 2)
        return F.mse_loss(found[:, :4].float(), noise.float())


# ---------------------------------------------------------------------------------------------------------------------
# The U-Net of Stable Diffusion 1


class Residual(nn.Module):
    """Two convolutions with the time between them, added to what entered."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.shortcut: nn.Module = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """(batch, inputs, side, side) to (batch, outputs, side, side)."""
        y = self.first(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.second(F.silu(self.norm2(y)))  # type: ignore[no-any-return]


class Attend(nn.Module):
    """Attention of tokens to themselves or to a text."""

    def __init__(self, hidden: int, other: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = nn.Linear(other, hidden, bias=False), nn.Linear(other, hidden, bias=False)
        self.project = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same; other: (batch, tokens, width)."""
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.q(x), self.k(other), self.v(other))
        )
        return self.project(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """The places of a map as tokens: attention to themselves, to the text, and a gated feed-forward block."""

    def __init__(self, channels: int, text: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, 1e-6)
        self.enter, self.leave = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(channels) for _ in range(3))
        self.own, self.cross = Attend(channels, channels), Attend(channels, text)
        self.up, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """(batch, channels, side, side) to the same."""
        side = x.shape[-1]
        tokens = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        y = self.norm1(tokens)
        tokens = tokens + self.own(y, y)
        tokens = tokens + self.cross(self.norm2(tokens), text)
        wide, gate = self.up(self.norm3(tokens)).chunk(2, -1)
        tokens = tokens + self.down(wide * F.gelu(gate))
        return x + self.leave(tokens.transpose(1, 2).unflatten(2, (side, side)))  # type: ignore[no-any-return]


class Unit(nn.Module):
    """A residual block, and a transformer after it where there is one."""

    def __init__(self, inputs: int, outputs: int, time: int, text: int) -> None:
        super().__init__()
        self.block = Residual(inputs, outputs, time)
        self.attention = Transformer(outputs, text) if text else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """(batch, inputs, side, side) to (batch, outputs, side, side)."""
        x = self.block(x, time, text)
        return x if self.attention is None else self.attention(x, time, text)


class UNet(nn.Module):
    """Rombach and others, "High-Resolution Image Synthesis with Latent Diffusion Models" (2021), as Stable Diffusion 1.

    The text's 77 vectors of 768 values are made here in place of a text encoder, which is frozen and runs before.
    """

    def __init__(self, widths: tuple[int, ...] = (320, 640, 1280, 1280), text: int = 768, each: int = 2) -> None:
        super().__init__()
        self.text, self.each, time, last = text, each, 4 * widths[0], len(widths) - 1
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.shrink, skips, now = nn.ModuleList(), nn.ModuleList(), [widths[0]], widths[0]
        for level, width in enumerate(widths):
            for _ in range(each):
                self.down.append(Unit(now, width, time, text if level < last else 0))
                skips.append(now := width)
            if level < last:
                self.shrink.append(nn.Conv2d(width, width, 3, 2, 1))
                skips.append(width)
        self.middle = nn.ModuleList([Unit(now, now, time, text), Residual(now, now, time)])
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(each + 1):
                self.up.append(Unit(now + skips.pop(), width, time, text if level < last else 0))
                now = width
            if level:
                self.grow.append(nn.Conv2d(now, now, 3, padding=1))
        self.norm, self.leave = nn.GroupNorm(32, now), nn.Conv2d(now, 4, 3, padding=1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """The loss of latents; `labels` stand for their texts and are not read."""
        noisy, noise, times = noised(x)
        text = torch.zeros(x.shape[0], 77, self.text, dtype=x.dtype, device=x.device)
        time = self.time(waves(times, self.enter.out_channels).to(x.dtype))
        maps = self.enter(noisy)
        skips = [maps]
        for index, unit in enumerate(self.down, 1):
            maps = unit(maps, time, text)
            skips.append(maps)
            if index % self.each == 0 and index < len(self.down):
                maps = self.shrink[index // self.each - 1](maps)
                skips.append(maps)
        for part in self.middle:
            maps = part(maps, time, text)
        for index, unit in enumerate(self.up, 1):
            maps = unit(torch.cat((maps, skips.pop()), 1), time, text)
            if index % (self.each + 1) == 0 and index < len(self.up):
                maps = self.grow[index // (self.each + 1) - 1](F.interpolate(maps, scale_factor=2.0))
        return F.mse_loss(self.leave(F.silu(self.norm(maps))).float(), noise.float())
