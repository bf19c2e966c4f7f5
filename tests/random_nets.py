"""Networks drawn by hypothesis: convolutions, norms, pools, residuals and branches, in place or not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

# What is drawn is a builder, not a module, so that every witness makes it in its own mode.
Build = Callable[[], nn.Module]


class Residual(nn.Module):
    """A body whose result is added to its input, in place or not."""

    def __init__(self, body: Build, inplace: bool) -> None:
        super().__init__()
        self.body, self.inplace = body(), inplace

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        if self.inplace:
            out += x
            return out
        return out + x


class Branches(nn.Module):
    """Bodies side by side, their channels concatenated."""

    def __init__(self, bodies: list[Build]) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(body() for body in bodies)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([body(x) for body in self.bodies], dim=1)


class Evaluated(nn.Module):
    """A layer that stays in evaluation mode while the rest of the network trains."""

    def __init__(self, layer: Build) -> None:
        super().__init__()
        self.layer = layer().eval()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


def stack(builders: list[Build]) -> Build:
    return lambda: nn.Sequential(*(build() for build in builders))


def activations(draw: Any, *more: type[nn.Module]) -> Build:
    inplace = draw(st.booleans())
    able = [partial(kind, inplace=inplace) for kind in (nn.ReLU, nn.SiLU, nn.LeakyReLU, nn.Dropout, *more)]
    return draw(st.sampled_from([*able, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish]))


@st.composite
def bodies(draw: Any, channels: int, size: int, depth: int = 0) -> tuple[Build, int, int]:
    """Layers on (batch, channels, size, size) maps, and the channels and size that come out."""
    layers: list[Build] = []
    for _ in range(draw(st.integers(1, 4 if depth == 0 else 2))):
        kinds = ["convolution", "activation", "norm", "pool"] + (["residual", "branches"] if depth < 2 else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "convolution":
            kernel, stride = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2])) if depth == 0 else 1
            groups = draw(st.sampled_from([1, channels]))
            outputs, bias = groups * draw(st.integers(1, 3)), draw(st.booleans())
            layers.append(partial(nn.Conv2d, channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=bias))
            channels, size = outputs, (size - 1) // stride + 1
        elif kind == "activation":
            layers.append(activations(draw, nn.Dropout2d))
        elif kind == "norm":
            affine = draw(st.booleans())
            norms: list[Build] = [
                partial(nn.BatchNorm2d, channels, affine=affine, track_running_stats=draw(st.booleans())),
                partial(nn.GroupNorm, 1, channels, affine=affine),
                partial(nn.LayerNorm, [channels, size, size], elementwise_affine=affine),
            ]
            norm = draw(st.sampled_from(norms))
            layers.append(partial(Evaluated, norm) if draw(st.integers(0, 4)) == 0 else norm)
        elif kind == "pool":
            pools = [nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1)]
            if depth == 0 and size > 1:
                pools += [nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)]
            pool = draw(st.sampled_from(pools))
            size = pool(torch.empty(1, 1, size, size, device="meta")).shape[-1]
            layers.append(partial(copy.copy, pool))
        elif kind == "residual":
            body, outputs, _ = draw(bodies(channels, size, depth + 1))
            join = partial(nn.Conv2d, outputs, channels, 1) if outputs != channels else nn.Identity
            layers.append(partial(Residual, stack([body, join]), draw(st.booleans())))
        else:
            made = [draw(bodies(channels, size, depth + 1)) for _ in range(draw(st.integers(2, 3)))]
            layers.append(partial(Branches, [build for build, _, _ in made]))
            channels = sum(outputs for _, outputs, _ in made)
    return stack(layers), channels, size


@st.composite
def random_networks(draw: Any) -> tuple[Build, tuple[int, ...]]:
    """A builder, and the shape of one sample."""
    channels, inside, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(3, 9))
    # Before anything else a convolution: without one, torch's fake kernel of batch norm makes a gradient of x that no
    # real kernel makes, and MemTracker counts it.
    stem = partial(nn.Conv2d, channels, inside, 1)
    body, outputs, left = draw(bodies(inside, size))
    width = draw(st.integers(1, 8))
    inputs = outputs * left * left
    head = [nn.Flatten, partial(nn.Linear, inputs, width), activations(draw), partial(nn.Linear, width, 5)]
    return stack([stem, body, *head]), (channels, size, size)
