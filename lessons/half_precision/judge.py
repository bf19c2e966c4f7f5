"""A training loop written by a learner, judged by where its weights end: beside the same training in float32.

What the loop does is recorded on networks and digits, and replayed on other networks and other digits, where the same
batches overflow. How many do is drawn, and neither their weight nor their brightness alone says which. Maps and their
gradients are float16, weights float32. Nothing here knows a right loop, only what float32 does without one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import shown
from course_utils.machine.measure import autocast
from lessons.shared.digits import load
from lessons.shared.replay.form import Record, Ref, Refused
from lessons.shared.replay.replayer import Ran, Replayed, replay
from lessons.shared.replay.steps import warm_up
from lessons.shared.replay.witness import Begin, Write, recorded

Batch = tuple[Tensor, Tensor, float]
Train = Callable[..., Any]

SCALE, NO_SCALE = 2.0**16, 1.0
SCALES = (SCALE, NO_SCALE, SCALE / 2)  # of the trainings; in that without a scale nothing overflows
IMAGES = 512  # so many images that a mean over them makes many values of gradient maps too small
HIDDEN = 32
WEIGHTS = (2e-4, 3e-4, 4e-3)  # of the loss among other terms; the learning rate is as much larger
RATE = 80.0
DECAY = 1e-5  # of the weights, with that rate: as much as shows
SMALLER = (0.5, 0.6, 0.7, 0.8, 0.9)  # factors of a training's usual weights and of its norm; its rate is larger by it
# Of the gradients: the first two weights of the loss stay below it and the third exceeds it, on whatever digits, so
# that a loop that looks at a norm goes the same way on others. Far above what torch adds to a norm, 1e-6.
MAX_NORM = 2e-4
BRIGHT = 2e4  # times as bright as others: float16 still holds the pixels and the maps
# (brightness, weight) of batches whose scaled gradients no float16 holds, and of one whose gradients it does. Of black
# images the first layer's weights have the gradient 0, as each image's own gradients are still held: their sum is not.
OUTLIERS = ((1.0, 1e3), (BRIGHT, WEIGHTS[2]), (0.0, 3e2))
TOO_BRIGHT = (1e7, WEIGHTS[0])  # float16 holds not even the pixels: all gradients are NaN, and none infinite
HARMLESS = (BRIGHT, 1e-6)
ROUNDING = 1e-6  # distance that the rounding of float32 weights can add up to
TOLERANCE = 0.02  # of the way that float32's weights have gone
OTHER_WORK = 0.5  # of what a forward pass multiplies: as much as may be computed in other types than float16
PRODUCTS = frozenset(
    "convolution convolution_backward addmm mm bmm baddbmm addbmm addmv mv dot vdot addr outer".split()
)


def half_loss(model: nn.Module, images: Tensor, labels: Tensor, weight: float) -> Tensor:
    """A batch's loss: maps in float16 (autocast), cross entropy in float32, times its weight."""
    with autocast("cpu", "float16"):
        return weight * nn.functional.cross_entropy(model(images), labels)


def loses_small(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    scale: float,
    max_norm: float,
) -> int:
    """Train on every batch; gradients of a norm above `max_norm` are clipped.

    Returns how many batches were skipped.
    """
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
        counted: what the loop returned from each training, as a message quotes it.
        skipped: how many batches each of them had to skip.
        moved: of each, from where its weights started to where they are, flat, float32.
        missed: distance to float32's weights, as a share of the way those have gone, the largest over the trainings
            with a scale; inf for weights that are not finite.
        half: whether the network ran in float16, every time.
    """

    counted: tuple[str, ...]
    skipped: tuple[int, ...]
    moved: tuple[Tensor, ...]
    missed: float
    half: bool

    def leads_where(self, other: ScaledTraining) -> bool:
        """Whether both loops moved the weights alike, each time: to two percent of the way, or out of the numbers."""
        return self.half is other.half and all(map(_alike, self.moved, other.moved))

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "weights follow float32's": self.follows,
            "skipped batches counted": self.counts,
            "maps in float16": self.half,
        }

    @property
    def returned(self) -> str:
        """What the loop returned from the first training."""
        return self.counted[0]

    @property
    def counts(self) -> bool:
        """Whether skipped batches are counted, also where there is none."""
        return self.counted == tuple(map(str, self.skipped))

    @property
    def follows(self) -> bool:
        """Whether the weights are float32's, but for rounding."""
        return self.missed <= TOLERANCE


@dataclass(frozen=True)
class Training:
    """What a loop is given: a network, batches, a scale; and which of the batches are outliers.

    Attributes:
        factor: of its usual weights and of the norm, so that none is the same in all trainings.
    """

    model: nn.Module
    batches: list[Batch]
    scale: float
    outliers: frozenset[int]
    factor: float

    @property
    def max_norm(self) -> float:
        """The norm above which it clips."""
        return MAX_NORM * self.factor

    @property
    def skipped(self) -> int:
        """How many batches a loop has to skip."""
        return len(self.outliers) if self.scale > 1 else 0


def _network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def _kinds(pattern: int) -> list[dict[int, tuple[float, float]]]:
    """Of each training its unusual batches, (brightness, weight) by place. The two with a scale skip unequally many."""
    dice = random.Random(pattern)
    many = dice.randint(2, 3)
    first, *places = dice.sample(range(1, 7), 1 + many)  # the first batch and the last are always as usual
    long = dict(zip(places, (*OUTLIERS[1:], dice.choice(OUTLIERS)), strict=False)) | {first: HARMLESS}
    fewer = dice.choice([count for count in (1, 2) if count != many])
    short = dict(zip(dice.sample(range(1, 4), fewer), (TOO_BRIGHT, dice.choice(OUTLIERS)), strict=False))
    return [long, dict(enumerate(OUTLIERS, 1)), short]


def _trainings(pattern: int, seed: int) -> list[Training]:
    """A training of eight batches, one of four without a scale, one of four; on networks and digits by the seed.

    The usual batches are all from half to twice as bright, which changes every norm.
    """
    x, y = load()[:2]
    generator = torch.Generator().manual_seed(seed)
    factors = random.Random(pattern).sample(SMALLER, len(SCALES))
    usual = float(2 ** (2 * torch.rand((), generator=generator) - 1))
    made = []
    for number, (count, kinds) in enumerate(zip((8, 4, 4), _kinds(pattern), strict=True)):
        batches = []
        for place in range(count):
            brightness, weight = kinds.get(place, (usual, factors[number] * WEIGHTS[place % len(WEIGHTS)]))
            rows = torch.randperm(len(x), generator=generator)[:IMAGES]
            batches.append((x[rows] * brightness, y[rows], weight))
        outliers = frozenset(place for place, kind in kinds.items() if kind in (*OUTLIERS, TOO_BRIGHT))
        made.append(Training(_network(seed + number), batches, SCALES[number], outliers, factors[number]))
    return made


def _inputs(number: int, model: nn.Module, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """What goes into the record of a training, by name: "parameter 1 0.weight", "images 1.0" and so on."""
    return {
        **{f"parameter {number} {name}": one.detach() for name, one in model.named_parameters()},
        **{f"images {number}.{k}": images for k, (images, _, _) in enumerate(batches)},
        **{f"labels {number}.{k}": labels for k, (_, labels, _) in enumerate(batches)},
    }


def _optimizer(number: int, training: Training) -> torch.optim.Optimizer:
    rate = RATE / training.factor
    momentum, decay = (0.0, DECAY) if number else (0.9, 0.0)
    return torch.optim.SGD(training.model.parameters(), lr=rate, momentum=momentum, weight_decay=decay)


def record(train: Train, pattern: int = 0, seed: int = 0, write: Write | None = None) -> Record:
    """What a loop does in three trainings; `pattern` draws which batches are outliers, and how many.

    Of each it hands out "returned 0 TEXT" and "weight 0 NAME", with the number of the training. Raises whatever the
    learner's code raises, and Refused.
    """
    warm_up()

    def run(begin: Begin) -> None:
        trainings = _trainings(pattern, seed)
        inputs = {name: t for n, one in enumerate(trainings) for name, t in _inputs(n, one.model, one.batches).items()}
        scribe = begin(inputs)
        for number, one in enumerate(trainings):
            optimizer = _optimizer(number, one)
            with scribe:
                returned = train(one.model, optimizer, one.batches, one.scale, one.max_norm)
            scribe.mark(f"returned {number} {'ellipsis' if returned is ... else shown(returned)}")
            for name, parameter in one.model.named_parameters():
                scribe.mark(f"weight {number} {name}", parameter.detach())

    return (write or partial(recorded, memory=False))(run)


def judge(record: Record, pattern: int = 0, seed: int = 1) -> ScaledTraining:
    """Where a record leads the weights of other networks on other digits, beside float32. Raises Refused."""
    trainings = _trainings(pattern, seed)
    inputs = {name: t for n, one in enumerate(trainings) for name, t in _inputs(n, one.model, one.batches).items()}
    record.require_marks("".join(rf"returned {n} [^\n]*\n(weight {n} [^\n]+\n)+" for n in range(len(trainings))))
    found = replay(record, inputs)
    moved, missed = [], [0.0]
    for number, one in enumerate(trainings):
        start = _flat(dict(one.model.named_parameters()))
        ended = {name: found.handed.get(f"weight {number} {name}") for name, _ in one.model.named_parameters()}
        if any(weight is None for weight in ended.values()):
            raise Refused("a weight is missing")
        weights = _flat({name: weight for name, weight in ended.items() if weight is not None})
        moved.append(weights - start)
        if one.scale > 1:
            truth = _in_float32(number, one)
            distance = torch.linalg.norm(weights - truth) / torch.linalg.norm(truth - start)
            missed.append(float(distance.nan_to_num(torch.inf)))
    counted = tuple(_said(found, number) for number in range(len(trainings)))
    skipped = tuple(one.skipped for one in trainings)
    half = _in_half(found, trainings[0].model, sum(len(one.batches) for one in trainings))
    return ScaledTraining(counted, skipped, tuple(moved), max(missed), half)


def _said(found: Replayed, number: int) -> str:
    begin = f"returned {number} "
    return next((name.removeprefix(begin) for name in found.alive if name.startswith(begin)), "")


def _in_half(found: Replayed, model: nn.Module, batches: int) -> bool:
    """Whether each map of the hidden layer, and each of its gradients, was made in float16, as nearly all is.

    What remains is the loss, ten values an image, and the update: less than half of what one forward pass multiplies.
    """
    shapes = {tuple(one.shape) for one in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    made = (ref for one in found.ran for ref in one.made if HIDDEN in ref.size and ref.size not in shapes)
    kinds = {ref.dtype for ref in made if "float" in ref.dtype}
    in_others = sum(map(_work, (one for one in found.ran if {ref.dtype for ref in _refs(one)} != {"torch.float16"})))
    multiplied = batches * IMAGES * sum(one.numel() for one in model.parameters() if one.dim() > 1)
    return kinds == {"torch.float16"} and in_others <= OTHER_WORK * multiplied


def _work(one: Ran) -> float:
    """What an operator reads and makes; of a product at least what it multiplies, m k n of m k, k n and m n values."""
    sizes = sorted((math.prod(ref.size) for ref in _refs(one)), reverse=True)
    return math.sqrt(math.prod(sizes[:3])) if one.name.removesuffix("_") in PRODUCTS else sum(sizes)


def _refs(one: Ran) -> tuple[Ref, ...]:
    return (*one.read, *one.made)


def _alike(moved: Tensor, others: Tensor) -> bool:
    if not (moved.isfinite().all() and others.isfinite().all()):
        return bool(moved.isfinite().all() == others.isfinite().all())
    apart = torch.linalg.norm(moved - others)
    return bool(apart <= TOLERANCE * torch.linalg.norm(others) + ROUNDING)


def _flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([one.detach().flatten() for one in weights.values()])


def _in_float32(number: int, training: Training) -> Tensor:
    """The weights of the same training in float32, which needs no scale; the outliers are left out."""
    model = training.model
    optimizer = _optimizer(number, training)
    for place, (images, labels, weight) in enumerate(training.batches):
        if place not in training.outliers:
            optimizer.zero_grad()
            (weight * nn.functional.cross_entropy(model(images), labels)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), training.max_norm)
            optimizer.step()
    return _flat(dict(model.named_parameters()))
