"""A network rewritten by a learner, judged by what it does: same output, same gradients, how high its peak.

`compare` looks at properties only, so any program that has them passes. Nothing here knows a right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, same, same_gradients, take_weights
from lessons.shared.watched import Watch, WatchedStep, step

INPUT_SHAPE = (3, 32, 32)
CLASSES = 10
SHARE = 0.5  # of the original's peak: as high as that of a network that keeps less may be
RECOMPUTED = 0.55  # the same for one that recomputes


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

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        self.maps = []
        x = images
        for layer in self.layers:
            x = layer(x)
            self.maps.append(x)
        return x


@dataclass(frozen=True)
class RewriteComparison(PeakComparison):
    """How a rewritten network stands beside the original."""

    recomputes: bool = False  # whether a network is asked for that recomputes
    without_gradient: tuple[str, ...] = ()  # names of parameters that get none
    kept: int = 0  # tensors of more than one value that the network still holds after a forward pass
    leaks: bool = False  # the second step leaves more behind than the first
    same_in_evaluation: bool = True  # also the gradients without dropout; looked at where those with it differ
    reentrant: bool = False  # it recomputes in the way of old that torch advises against

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        found = {"parameters kept": not self.parameters_differ}
        share = RECOMPUTED if self.recomputes else SHARE
        if self.recomputes:
            found["without use_reentrant"] = self.returned == "Tensor" and not self.reentrant
        else:
            found["output shape kept"] = self.returned == "Tensor" and self.shape == self.expected_shape
        return {
            **found,
            "same output": self.same_output,
            "same gradients": self.same_gradients,
            "peak low enough": not self.leaks and 0 < self.peak <= share * self.original_peak,
        }


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

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


def compare(
    make: Callable[[], nn.Module], batch: int, seed: int = 0, kind: Callable[[], nn.Module] = Watched
) -> RewriteComparison:
    """Compare `make()` with a `kind()` of the same weights, in two training steps on random images.

    Both draw the same random numbers in their forward passes. Raises whatever the learner's code raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original, rewritten = kind(), make()
        nothing = RewriteComparison(recomputes=kind is Tower)
        if differ := take_weights(rewritten, original):
            return replace(nothing, parameters_differ=differ)
        watched: list[tuple[nn.Module, Watch, list[WatchedStep]]] = [(original, Watch(), []), (rewritten, Watch(), [])]
        for number in (1, 2):  # what a network keeps for its next step shows in the second
            images, labels = torch.randn(batch, *INPUT_SHAPE), torch.randint(CLASSES, (batch,))
            for network, watch, steps in watched:
                torch.manual_seed(seed + number)
                steps.append(step(network, images, labels, (batch, CLASSES), watch))
        wanted, given = (steps for _, _, steps in watched)
        first = given[0].output
        if not isinstance(first, Tensor):
            return replace(nothing, returned=type(first).__name__)
        alike = all(same_gradients(one.gradients, other.gradients) for one, other in zip(given, wanted, strict=True))
        evaluated = alike or _same_in_evaluation(original, rewritten, images, labels)
    return replace(
        nothing,
        returned="Tensor",
        shape=tuple(first.shape),
        expected_shape=tuple(wanted[0].output.shape),
        same_output=all(same(one.output, other.output) for one, other in zip(given, wanted, strict=True)),
        trainable=given[0].trainable,
        kept=_kept(rewritten),
        without_gradient=tuple(name for name in wanted[0].gradients if name not in given[0].gradients),
        same_gradients=alike,
        peak=max(one.peak for one in given),
        original_peak=max(one.peak for one in wanted),
        leaks=given[1].left > given[0].left,
        same_in_evaluation=evaluated,
        reentrant=any("CheckpointFunctionBackward" in one.nodes for one in given),
    )


def _same_in_evaluation(original: nn.Module, rewritten: nn.Module, images: Tensor, labels: Tensor) -> bool:
    """Whether the gradients are the same where dropout drops nothing."""
    ours, theirs = (step(net.eval(), images, labels, (len(images), CLASSES)) for net in (rewritten, original))
    return same_gradients(ours.gradients, theirs.gradients)


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
