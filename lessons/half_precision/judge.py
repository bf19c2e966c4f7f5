"""A training loop written by a learner, judged by where its weights end: beside the same training in float32.

What the loop does is recorded on one network and some digits, and replayed on another network and other digits, whose
same batch overflows. Maps and their gradients are float16, weights float32. Nothing here knows a right loop, only what
float32 does without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import shown
from course_utils.machine.measure import autocast
from course_utils.surroundings import no_garbage_collection
from lessons.shared.digits import load
from lessons.shared.replay.form import Record, Refused
from lessons.shared.replay.recorder import Recorder
from lessons.shared.replay.replayer import Replayed, replay
from lessons.shared.replay.steps import warm_up

Batch = tuple[Tensor, Tensor, float]
Train = Callable[..., Any]

SCALE, NO_SCALE = 2.0**16, 1.0  # of a training, and of a second one, in which nothing overflows
BATCHES, IMAGES = 8, 512  # so many images that a mean over them makes many values of gradient maps too small
HIDDEN = 32
WEIGHTS = (2e-4, 3e-4, 4e-3)  # of the loss among other terms; the learning rate is as much larger
RATE = 80.0
# Of the gradients: the first two weights of the loss stay below it and the third exceeds it, on whatever digits, so
# that a loop that looks at a norm goes the same way on others. Far above what torch adds to a norm, 1e-6.
MAX_NORM = 2e-4
OUTLIER = 1e3  # weight of the one batch whose scaled gradients no float16 holds
ROUNDING = 1e-6  # distance that the rounding of float32 weights can add up to
TOLERANCE = 0.02  # of the way that float32's weights have gone
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "mv", "addmv"})  # what a dense layer comes to
COPIES = frozenset({"clone", "_to_copy", "copy_"})


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
        returned: what the loop returned, as a message quotes it.
        of_none: what it returns with a scale of 1, where no batch has to be skipped.
        moved: from where the weights started to where they are, flat, float32.
        missed: distance to float32's weights, as a share of the way those have gone; inf for weights that are not
            finite.
        half: whether the network ran in float16, every time.
        skipped: batches that had to be skipped.
    """

    returned: str
    of_none: str
    moved: Tensor
    missed: float
    half: bool
    skipped: int = 1

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
        return (self.returned, self.of_none) == (str(self.skipped), "0")

    @property
    def follows(self) -> bool:
        """Whether the weights are float32's, but for rounding."""
        return self.missed <= TOLERANCE


def _network(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def _batches(outlier: int, seed: int) -> list[Batch]:
    """Batches of digits, of which one is the outlier; how bright all are, from half to twice, changes every norm."""
    x, y = load()[:2]
    generator = torch.Generator().manual_seed(seed)
    x = x * 2 ** (2 * torch.rand((), generator=generator) - 1)
    weights = [OUTLIER if index == outlier else WEIGHTS[index % len(WEIGHTS)] for index in range(BATCHES)]
    rows = [torch.randperm(len(x), generator=generator)[:IMAGES] for _ in weights]
    return [(x[one], y[one], weight) for one, weight in zip(rows, weights, strict=True)]


def _trainings(outlier: int, seed: int) -> list[tuple[nn.Module, list[Batch]]]:
    """What a loop is given: a network with all batches, and another one with a good one and the outlier."""
    batches = _batches(outlier, seed)
    return [(_network(seed), batches), (_network(seed + 1), [batches[0], batches[outlier]])]


def _inputs(number: int, model: nn.Module, batches: Sequence[Batch]) -> dict[str, Tensor]:
    """What goes into the record of a training, by name: "parameter 1 0.weight", "images 1.0" and so on."""
    return {
        **{f"parameter {number} {name}": one.detach() for name, one in model.named_parameters()},
        **{f"images {number}.{k}": images for k, (images, _, _) in enumerate(batches)},
        **{f"labels {number}.{k}": labels for k, (_, labels, _) in enumerate(batches)},
    }


def _optimizer(number: int, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.0 if number else 0.9)


def record(train: Train, outlier: int = 4, seed: int = 0) -> Record:
    """What a loop does in two trainings.

    Of each it hands out "returned 0 TEXT" and "weight 0 NAME", with the number of the training. Raises whatever the
    learner's code raises, and Refused.
    """
    warm_up()
    trainings = [
        (model, [(images.clone(), labels.clone(), weight) for images, labels, weight in batches])
        for model, batches in _trainings(outlier, seed)
    ]
    inputs = {name: one for n, pair in enumerate(trainings) for name, one in _inputs(n, *pair).items()}
    with no_garbage_collection(), torch.random.fork_rng(devices=[]):
        recorder = Recorder(inputs)
        for number, (model, batches) in enumerate(trainings):
            optimizer = _optimizer(number, model)
            with recorder:
                returned = train(model, optimizer, batches, NO_SCALE if number else SCALE, MAX_NORM)
            recorder.mark(f"returned {number} {'ellipsis' if returned is ... else shown(returned)}")
            for name, parameter in model.named_parameters():
                recorder.mark(f"weight {number} {name}", parameter.detach())
    return recorder.record


def judge(record: Record, outlier: int = 4, seed: int = 1) -> ScaledTraining:
    """Where a record leads the weights of another network on other digits, beside float32. Raises Refused."""
    trainings = _trainings(outlier, seed)
    inputs = {name: one for n, pair in enumerate(trainings) for name, one in _inputs(n, *pair).items()}
    record.require_marks("".join(rf"returned {n} [^\n]*\n(weight {n} [^\n]+\n)+" for n in range(len(trainings))))
    found = replay(record, inputs)
    model, batches = trainings[0]
    start = _flat(dict(model.named_parameters()))
    handed = {name: found.handed.get(f"weight 0 {name}") for name, _ in model.named_parameters()}
    if any(one is None for one in handed.values()):
        raise Refused("a weight is missing")
    weights = _flat({name: one for name, one in handed.items() if one is not None})
    truth = _in_float32(model, batches, outlier)
    distance = torch.linalg.norm(weights - truth) / torch.linalg.norm(truth - start)
    missed = float(distance.nan_to_num(torch.inf))
    return ScaledTraining(_said(found, 0), _said(found, 1), weights - start, missed, _in_half(found, model))


def _said(found: Replayed, number: int) -> str:
    begin = f"returned {number} "
    return next((name.removeprefix(begin) for name in found.alive if name.startswith(begin)), "")


def _in_half(found: Replayed, model: nn.Module) -> bool:
    """Whether each map of the hidden layer, and each of its gradients, was made in float16, and what they are made of.

    Of whole batches nothing but the scores, ten values an image, is computed in float32; they are multiplied by none.
    """
    shapes = {tuple(one.shape) for one in model.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    made = (ref for one in found.ran for ref in one.made if HIDDEN in ref.size and ref.size not in shapes)
    kinds = {ref.dtype for ref in made if "float" in ref.dtype}
    for one in found.ran:
        factors = one.read if one.name in PRODUCTS else ()
        large = (ref for ref in one.made if math.prod(ref.size) > 10 * IMAGES and one.name not in COPIES)
        kinds |= {ref.dtype for ref in (*factors, *large) if IMAGES in ref.size and "float" in ref.dtype}
    return kinds == {"torch.float16"}


def _flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([one.detach().flatten() for one in weights.values()])


def _in_float32(model: nn.Module, batches: Sequence[Batch], outlier: int) -> Tensor:
    """The weights of the same training in float32, which needs no scale; the outlier is left out."""
    optimizer = _optimizer(0, model)
    for index, (images, labels, weight) in enumerate(batches):
        if index != outlier:
            optimizer.zero_grad()
            (weight * nn.functional.cross_entropy(model(images), labels)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            optimizer.step()
    return _flat(dict(model.named_parameters()))
