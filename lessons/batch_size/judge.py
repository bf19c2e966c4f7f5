"""A training function written by a learner, judged by what it does: the update it makes, and how high its peak.

`compare` looks at properties only, so any program that has them passes. Nothing here knows a right answer: the whole
batch at once is what the update is compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lessons.shared.watched import Watch, no_garbage_collection
from lessons.shared.watched import apart as _apart  # the exercise gives this module to answers, which are to be watched

SHARE = 0.25  # of the whole batch's memory above what was there before: as high as the accumulated step's may be
SIDE = 16  # of the images, in pixels
CLASSES = 5
RATE, MOMENTUM = 0.07, 0.5  # no other optimizer makes the same update
MEASURED_BATCH, MEASURED_MICRO = 64, 8  # of the step whose memory is measured

TrainingFunction = Callable[[nn.Module, torch.optim.Optimizer, Tensor, Tensor, int], Any]


def network(seed: int) -> nn.Module:
    """A small network without batch norm, whose maps take far more than its parameters: (n, 1, 16, 16) to (n, 5)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES),
        )  # fmt: skip


def whole_batch(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """One step on all images at once: what accumulation is compared with."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


@dataclass(frozen=True)
class UpdateComparison:
    """How a learner's step stands beside the whole batch's.

    Attributes:
        returned: what the last call returned.
        even: flattened parameters after one step on micro-batches of one size, the whole batch's beside them.
        uneven: the same where the last micro-batch is smaller.
        second: the same after a second step on other images.
        most: images that went through the network at once, at most.
        micro: images that may.
        share: memory asked for during a step, as a share of what the whole batch asks for; all of it where the steps
            that were measured trained something else.
    """

    returned: object
    even: tuple[Tensor, Tensor]
    uneven: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    most: int
    micro: int
    share: float

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "the whole batch's update": self.even_equal,
            "also where the last micro-batch is smaller": self.uneven_equal,
            "also in the second step": self.second_equal,
            "at most micro images at a time": 0 < self.most <= self.micro,
            "peak low enough": self.share <= SHARE,
        }

    @property
    def even_equal(self) -> bool:
        """Whether equal micro-batches give the whole batch's update."""
        return close(*self.even)

    @property
    def uneven_equal(self) -> bool:
        """Whether they do where the last one is smaller."""
        return close(*self.uneven)

    @property
    def second_equal(self) -> bool:
        """Whether they do in the step after."""
        return close(*self.second)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two sets of float64 parameters are equal but for rounding."""
    return bool(torch.allclose(one, other, rtol=1e-6, atol=1e-9))


def compare(step: TrainingFunction, micro: int, parts: int, seed: int = 0) -> UpdateComparison:
    """Run a learner's `step(model, optimizer, images, labels, micro)` beside the whole batch's, on random images.

    Args:
        step: what the learner wrote.
        micro: images in a micro-batch, 2 or more.
        parts: micro-batches in the batch, 2 or more.
        seed: of images and parameters.

    Raises:
        Exception: whatever the learner's code raises.
    """
    even, one, _ = _after(step, [micro * parts], micro, seed)
    uneven, other, _ = _after(step, [micro * parts - micro // 2], micro, seed)
    second, most, returned = _after(step, [micro * parts, micro * parts], micro, seed, before=True)
    return UpdateComparison(returned, even, uneven, second, max(one, other, most), micro, _share(step, seed))


def _after(
    step: TrainingFunction, sizes: list[int], micro: int, seed: int, before: bool = False
) -> tuple[tuple[Tensor, Tensor], int, object]:
    """(learner's and whole batch's parameters after steps on batches of these sizes, most images, returned).

    With `before`, the gradients of a step that somebody else made are there when the first begins.
    """
    draw = torch.Generator().manual_seed(seed)
    seen = 0

    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal seen
        seen = max(seen, len(inputs[0]))

    returned: object = None
    models = [network(seed).double() for _ in "12"]
    optimizers = [torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM) for model in models]
    if before:
        models[0](torch.ones((1, 1, SIDE, SIDE), dtype=torch.float64)).sum().backward()
    models[0].register_forward_pre_hook(note)
    for size in sizes:
        images = torch.randn((size, 1, SIDE, SIDE), generator=draw, dtype=torch.float64)
        labels = torch.randint(CLASSES, (size,), generator=draw)
        returned = step(models[0], optimizers[0], images, labels, micro)
        whole_batch(models[1], optimizers[1], images, labels)
    ours, theirs = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models)
    return (ours, theirs), seen, returned


def _peak(step: Callable[..., Any], seed: int) -> tuple[int, Tensor]:
    """Peak in bytes of a step of MEASURED_BATCH images above what was there before, and the parameters after it.

    `step` is called without a size of micro-batches, twice: in a first step more than its own may be made.
    """
    model = network(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn((MEASURED_BATCH, 1, SIDE, SIDE), generator=draw)
    labels = torch.randint(CLASSES, (MEASURED_BATCH,), generator=draw)
    _apart(lambda: step(model, optimizer, images, labels))
    optimizer.zero_grad(set_to_none=True)  # what is freed in a measured step must have been made in it
    watch = Watch()
    watch.begin(*model.parameters(), images, labels)
    before = watch.bytes

    def measured() -> None:
        with no_garbage_collection(), watch:
            step(model, optimizer, images, labels)

    _apart(measured)
    return watch.peak - before, torch.cat([p.detach().flatten() for p in model.parameters()])


@functools.cache
def _whole_peak(seed: int) -> tuple[int, Tensor]:
    return _peak(whole_batch, seed)


def _share(step: TrainingFunction, seed: int) -> float:
    """Peak of a step in micro-batches of MEASURED_MICRO, as a share of the peak of the whole batch at once."""
    peak, parameters = _peak(lambda model, optimizer, x, y: step(model, optimizer, x, y, MEASURED_MICRO), seed)
    whole_peak, expected = _whole_peak(seed)
    return peak / whole_peak if torch.allclose(parameters, expected, rtol=1e-4, atol=1e-5) else 1.0
