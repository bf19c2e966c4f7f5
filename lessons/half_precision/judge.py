"""A training loop written by a learner, judged by where its weights end: beside the same training in float32.

The network is small, the images are the digits; maps and their gradients are float16, weights float32. Nothing here
knows a right loop, only what float32 does without one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import as_number
from course_utils.machine.measure import autocast
from lessons.shared.digits import load
from lessons.shared.tensors import own_kind

Batch = tuple[Tensor, Tensor, float]
Train = Callable[..., Any]

SCALE = 2.0**16
BATCHES, IMAGES = 8, 512  # so many images that a mean over them makes many values of gradient maps too small
WEIGHTS = (4e-4, 8e-4, 1.6e-3)  # of the loss among other terms; the learning rate is as much larger
RATE = 80.0
MAX_NORM = 2e-4  # reached by some weights and not by others; far above what torch adds to a norm, 1e-6
OUTLIER = 1e3  # weight of the one batch whose scaled gradients no float16 holds
ROUNDING = 1e-6  # distance that the rounding of float32 weights can add up to
TOLERANCE = 0.02  # of the way that float32's weights have gone


def half_loss(model: nn.Module, images: Tensor, labels: Tensor, weight: float) -> Tensor:
    """The loss of a batch: maps in float16 (autocast), cross entropy in float32, times its weight."""
    with autocast("cpu", "float16"):
        return weight * nn.functional.cross_entropy(model(images), labels)


def loses_small(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], scale: float, max_norm: float
) -> int:
    """Train on every batch; gradients of a norm above `max_norm` are clipped. Returns how many batches were skipped."""
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        loss = half_loss(model, images, labels, weight)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped


@dataclass(frozen=True)
class ScaledTraining:
    """Where a training loop led.

    Attributes:
        returned: what the loop returned.
        of_none: what it returns for batches of which none has to be skipped.
        moved: from where the weights started to where they are, flat, float32.
        missed: distance to float32's weights, as a share of the way those have gone; inf for weights that are not
            finite.
        skipped: batches that had to be skipped.
        half: whether the network ran in float16, every time.
    """

    returned: Any
    of_none: Any
    moved: Tensor
    missed: float
    skipped: int
    half: bool

    def leads_where(self, other: ScaledTraining) -> bool:
        """Whether both loops moved the weights alike: to two percent of the way, or both out of the numbers."""
        if self.half is not other.half:
            return False
        if not (self.moved.isfinite().all() and other.moved.isfinite().all()):
            return bool(self.moved.isfinite().all() == other.moved.isfinite().all())
        apart = torch.linalg.norm(self.moved - other.moved)
        return bool(apart <= TOLERANCE * torch.linalg.norm(other.moved) + ROUNDING)

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "weights follow float32's": self.follows,
            "skipped batches counted": self.counts,
            "maps in float16": self.half,
        }

    @property
    def counts(self) -> bool:
        """Whether skipped batches are counted, also where there is none."""
        return as_number(self.returned) == self.skipped and as_number(self.of_none) == 0

    @property
    def follows(self) -> bool:
        """Whether the weights are float32's, but for rounding."""
        return self.missed <= TOLERANCE


def _network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def _batches(seed: int) -> tuple[list[Batch], int]:
    """Batches of digits, and which of them is the outlier."""
    x, y = load()[:2]
    generator = torch.Generator().manual_seed(seed)
    outlier = int(torch.randint(2, BATCHES - 2, (1,), generator=generator))
    found = []
    for index in range(BATCHES):
        rows = torch.randperm(len(x), generator=generator)[:IMAGES]
        weight = OUTLIER if index == outlier else WEIGHTS[index % len(WEIGHTS)]
        found.append((x[rows], y[rows], weight))
    return found, outlier


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def run(train: Train, seed: int = 0) -> ScaledTraining:
    """Let a loop train the network of a seed, and compare where it ends with float32.

    Raises whatever the learner's code raises.
    """
    batches, outlier = _batches(seed)
    model = _network(seed)
    start = _flat(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    kinds: set[torch.dtype] = set()
    model.register_forward_hook(lambda _module, _inputs, output: kinds.add(own_kind(output).dtype))
    returned = train(model, optimizer, copy.deepcopy(batches), SCALE, MAX_NORM)
    weights = _flat(model)
    truth = _in_float32(seed, batches, outlier)
    distance = torch.linalg.norm(weights - truth) / torch.linalg.norm(truth - start)
    missed = float(distance.nan_to_num(torch.inf))
    calm = _network(seed)
    of_none = train(calm, torch.optim.SGD(calm.parameters(), lr=RATE), copy.deepcopy(batches[:2]), SCALE, MAX_NORM)
    return ScaledTraining(returned, of_none, weights - start, missed, 1, kinds == {torch.float16})


def _in_float32(seed: int, batches: Sequence[Batch], outlier: int) -> Tensor:
    """The weights of the same training in float32, which needs no scale; the outlier is left out."""
    model = _network(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for index, (images, labels, weight) in enumerate(batches):
        if index != outlier:
            optimizer.zero_grad()
            (weight * nn.functional.cross_entropy(model(images), labels)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
    return _flat(model)
