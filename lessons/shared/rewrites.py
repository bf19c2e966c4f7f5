"""A network rewritten by a learner, judged by what it does: same output, same gradients, how high its peak.

`record` is two steps of it, `judge` what they come to: properties alone, so any program that has them passes. Nothing
here knows a right answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lessons.shared.compared import PeakComparison, awake, same, same_gradients
from lessons.shared.replay.form import Record
from lessons.shared.replay.steps import REENTRANT, Trial
from lessons.shared.replay.witness import GROWTH, Write, recorded

INPUT_SHAPE = (3, 32, 32)
CLASSES = 10
FEW = 3  # images of the batch on which the output alone is judged, in evaluation
SHARE = 0.5  # of the original's peak: as high as that of a network that keeps less may be
RECOMPUTED = 0.55  # the same for one that recomputes


class Watched(nn.Module):
    """A small network whose forward keeps every map in a list, for a plot once wanted."""

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
    leaks: bool = False  # the second step leaves more behind than the first
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
            "same output": self.same_output and not self.elsewhere,
            "same gradients": self.same_gradients,
            "peak low enough": not self.leaks and 0 < self.peak <= share * self.original_peak,
        }


class Tower(nn.Module):
    """Eight blocks of two convolutions and dropout; forward keeps every map for backward."""

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
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(*pooled, nn.Linear(width, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 10)."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(x)
        return scores


@functools.lru_cache(maxsize=4)
def _trial(batch: int, seed: int, kind: Callable[[], nn.Module], training: bool) -> Trial:
    """A `kind()`, and two steps: what a network keeps for its next step shows in the second."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = awake(kind()).train(training)
        sizes = (batch, batch, FEW)
        *batches, few = [(torch.randn(size, *INPUT_SHAPE), torch.randint(CLASSES, (size,))) for size in sizes]
    return Trial(original, batches, CLASSES, seed, [few])


def record(
    make: Callable[[], nn.Module],
    batch: int,
    seed: int = 0,
    kind: Callable[[], nn.Module] = Watched,
    training: bool = True,
    write: Write = recorded,
) -> Record:
    """Two training steps of `make()`, with the weights of a `kind()`, on random images.

    Raises whatever the learner's code raises, and Refused.
    """
    return _trial(batch, seed, kind, training).record(make, training, write)


def judge(
    record: Record, batch: int, seed: int = 1, kind: Callable[[], nn.Module] = Watched, training: bool = True
) -> RewriteComparison:
    """What a record comes to beside a `kind()`, on weights and images drawn from this seed.

    Dropout draws the same in both. Raises Refused.
    """
    trial = _trial(batch, seed, kind, training)
    nothing = RewriteComparison(recomputes=kind is Tower)
    if differ := trial.differing(record):
        return replace(nothing, parameters_differ=differ)
    wanted, given = trial.beside(record)
    first, pairs = given.each[0], list(zip(given.each, wanted.each, strict=True))
    if first.output is None:
        return replace(nothing, returned=first.returned)
    return replace(
        nothing,
        returned="Tensor",
        shape=tuple(first.output.shape),
        expected_shape=(batch, CLASSES),
        same_output=all(other.output is not None and same(one.output, other.output) for one, other in pairs),
        elsewhere=trial.elsewhere(wanted, given),
        trainable=bool(first.gradients),
        without_gradient=tuple(name for name in wanted.each[0].gradients if name not in first.gradients),
        same_gradients=all(same_gradients(one.gradients, other.gradients) for one, other in pairs),
        peak=given.peak,
        original_peak=wanted.peak,
        leaks=given.each[1].left > first.left + GROWTH,
        reentrant=REENTRANT in record.marks,
    )


def tensors_kept(make: Callable[[], nn.Module], batch: int) -> int:
    """Tensors of more than one value in the plain attributes of a network and its layers, after a forward pass."""
    network = make()
    network(torch.randn(batch, *INPUT_SHAPE))

    def count(value: object) -> int:
        if isinstance(value, Tensor):
            return int(value.numel() > 1)
        if isinstance(value, dict):
            return sum(map(count, value.values()))
        return sum(map(count, value)) if isinstance(value, list | tuple | set) else 0

    internal = ("_parameters", "_buffers", "_modules")
    return sum(count(v) for module in network.modules() for k, v in vars(module).items() if k not in internal)
