"""A network rewritten by a learner, judged by what it does: same output, same gradients, how high its peak.

`compare` looks at properties only, so any program that has them passes. Nothing here knows a right answer. Must never
import figures or explorers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course_utils.checks.properties import PeakComparison, gradients, take_weights
from course_utils.trace import LeakError, TraceError, training_step

INPUT_SHAPE = (3, 32, 32)
CLASSES = 10
SHARE = 0.5  # of the original's peak: as high as a rewritten network's may be


class Watched(nn.Module):
    """A small network whose forward keeps every map in a list, for a plot that somebody once wanted."""

    def __init__(self, width: int = 16, depth: int = 9) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(depth):
            inputs, stride = width if i else 3, 2 if i == 1 else 1
            layers += [nn.Conv2d(inputs, width, 3, stride, padding=1), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]
        self.layers = nn.Sequential(*layers)

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        self.maps = []
        x = pictures
        for layer in self.layers:
            x = layer(x)
            self.maps.append(x)
        return x


@dataclass(frozen=True)
class Comparison(PeakComparison):
    """How a rewritten network stands beside the original."""

    without_gradient: tuple[str, ...] = ()  # names of parameters that get none
    kept: int = 0  # tensors of more than one value that the network still holds after a forward pass
    leaks: bool = False  # every step leaves more behind than the one before


class _AnyValue(TorchFunctionMode):
    """Lets a trace, which has only shapes, read a number from a tensor (0.0) or copy a map to the CPU (itself)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and isinstance(args[0], Tensor) and args[0].is_meta:
            if func in (Tensor.item, Tensor.__float__, Tensor.tolist):
                return 0.0
            if func is Tensor.cpu:
                return args[0]
        return func(*args, **(kwargs or {}))


def peak_bytes(network: nn.Module, batch: int) -> int:
    """Peak of one training step (momentum, CPU kernels: no workspace), in bytes, traced at this very batch.

    Raises TraceError.
    """
    with _AnyValue():
        step = training_step(network, INPUT_SHAPE, CLASSES, optimizer="momentum", target="cpu")
        return step.traced_at(batch).peak_bytes


class Tower(nn.Module):
    """Eight blocks of two convolutions and dropout, whose forward keeps every map for the backward pass."""

    def __init__(self, width: int = 16, depth: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.Dropout(0.2),
            )
            for _ in range(depth)
        )  # fmt: skip
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))

    def forward(self, pictures: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        x = self.stem(pictures)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


@functools.cache
def original_peak(batch: int, kind: Callable[[], nn.Module] = Watched) -> int:
    """The peak of a network as it was given, at a batch, in bytes."""
    return peak_bytes(kind(), batch)


def compare(
    make: Callable[[], nn.Module], batch: int, seed: int = 0, kind: Callable[[], nn.Module] = Watched
) -> Comparison:
    """Compare `make()` with a `kind()` of the same weights, on random pictures and by trace, at one and the same batch.

    Both draw the same random numbers in their forward passes. Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        return _compare(make, batch, seed, kind)


def _compare(make: Callable[[], nn.Module], batch: int, seed: int, kind: Callable[[], nn.Module]) -> Comparison:
    torch.manual_seed(seed)
    original = kind()
    pictures, labels = torch.randn(batch, *INPUT_SHAPE), torch.randint(CLASSES, (batch,))
    rewritten = make()
    nothing = Comparison(original_peak=original_peak(batch, kind))
    if differ := take_weights(rewritten, original):
        return replace(nothing, parameters_differ=differ)
    torch.manual_seed(seed)
    expected = original(pictures)
    torch.manual_seed(seed)
    output = rewritten(pictures)
    if not isinstance(output, Tensor):
        return replace(nothing, returned=type(output).__name__)
    shape, expected_shape = tuple(output.shape), tuple(expected.shape)
    seen = replace(
        nothing,
        returned="Tensor",
        shape=shape,
        expected_shape=expected_shape,
        same_output=shape == expected_shape and torch.allclose(output, expected, rtol=1e-4, atol=1e-6),
        trainable=output.requires_grad,
        kept=_kept(rewritten),
    )
    if shape != expected_shape or not seen.trainable:
        return seen
    wanted, given = gradients(original, expected, labels), gradients(rewritten, output, labels)
    peak, leaks, error = 0, False, ""
    try:
        peak = peak_bytes(make(), batch)
    except TraceError as failure:
        leaks, error = isinstance(failure, LeakError), str(failure)
    return replace(
        seen,
        without_gradient=tuple(name for name in wanted if name not in given),
        same_gradients=wanted.keys() == given.keys()
        and all(torch.allclose(given[name], wanted[name], rtol=1e-4, atol=1e-6) for name in wanted),
        peak=peak,
        leaks=leaks,
        trace_error=error,
    )


def _kept(network: nn.Module) -> int:
    """Tensors of more than one value in the plain attributes of a network and its layers."""

    def count(value: object) -> int:
        if isinstance(value, Tensor):
            return int(value.numel() > 1)
        if isinstance(value, dict):
            return sum(map(count, value.values()))
        return sum(map(count, value)) if isinstance(value, list | tuple | set) else 0

    internal = ("_parameters", "_buffers", "_modules")
    return sum(count(v) for module in network.modules() for k, v in vars(module).items() if k not in internal)
