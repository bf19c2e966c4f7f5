"""A training function written by a learner, judged by what it does: the update it makes, and how high its peak.

`record` is what it does, `judge` what that comes to: properties alone, so any program that has them passes. Nothing
here knows a right answer: the whole batch at once is what the update is compared with.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lessons.shared.replay.form import Record, Refused
from lessons.shared.replay.replayer import Replayed, replay
from lessons.shared.replay.steps import warm_up
from lessons.shared.replay.witness import Begin, Write, recorded, written

MEASURED_BATCH, MEASURED_MICRO = 64, 8  # of the step whose memory is told
SHARE = 2 * MEASURED_MICRO / MEASURED_BATCH  # of the whole batch's memory, as much as that step may take
SIDE = 16  # of the images, in pixels
MAP = 8 * SIDE**2  # values of an image's largest map
CLASSES = 5
RATE, MOMENTUM = 0.07, 0.5  # no other optimizer makes the same update

TrainingFunction = Callable[[nn.Module, torch.optim.Optimizer, Tensor, Tensor, int], Any]


def network(seed: int) -> nn.Module:
    """A small network without batch norm, whose maps take far more than its parameters: (n, 1, 16, 16) to (n, 5)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES),
        )  # fmt: skip


def whole_batch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
) -> None:
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
        share: memory asked for during a step, as a share of what the whole batch asks for, by the step that takes most
            beside what it may; all of it where the steps that were measured trained something else.
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


@dataclass(frozen=True)
class Session:
    """A network and its optimizer, and the batches it is trained on one after the other.

    Attributes:
        name: of the session.
        model: with weights of its own.
        momentum: by name of the parameter, as earlier steps left it; of no parameter where the optimizer keeps none.
        stale: gradients that are there when the session begins; of no parameter where there are none.
        batches: images with labels.
        micro: images that may go through the network at once.
    """

    name: str
    model: nn.Module
    momentum: dict[str, Tensor]
    stale: dict[str, Tensor]
    batches: list[tuple[Tensor, Tensor]]
    micro: int

    @property
    def share(self) -> float:
        """Of the whole batch's memory above what was there before, as much as a step may take: twice its part."""
        return 2 * self.micro / max(len(labels) for _, labels in self.batches)

    @property
    def handed(self) -> list[str]:
        """What is handed out after it, by name and in order."""
        kinds = ("", "momentum ") if self.momentum else ("",)
        return [f"{self.name} {kind}{name}" for name, _ in self.model.named_parameters() for kind in kinds]

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What goes into a record of it, by name."""
        found: dict[str, Tensor] = {f"parameter {name}": parameter for name, parameter in self.model.named_parameters()}
        found |= {f"momentum {name}": one for name, one in self.momentum.items()}
        found |= {f"stale {name}": one for name, one in self.stale.items()}
        found |= {f"batch {k}.{i}": one for k, batch in enumerate(self.batches) for i, one in enumerate(batch)}
        return {f"{self.name} {name}": one for name, one in found.items()}


def _sessions(micro: int, parts: int, seed: int) -> list[Session]:
    """The session whose memory counts, first, so that nothing is left of another; then those whose updates do."""
    even, uneven = micro * parts, micro * parts - micro // 2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [
            _session("measured", [MEASURED_BATCH], MEASURED_MICRO, torch.float32),
            _session("even", [even], micro, torch.float64),
            _session("uneven", [uneven], micro, torch.float64),
            _session("one", [micro * (parts - 1) + 1], micro, torch.float64),  # left for the last micro-batch
            _session("below", [micro - 1], micro, torch.float64, plain=True),  # fewer than a micro-batch
            _session("second", [even, even], micro, torch.float64, stale=True),
        ]


def _session(
    name: str, sizes: list[int], micro: int, dtype: torch.dtype, stale: bool = False, plain: bool = False
) -> Session:
    model = network(int(torch.randint(2**31, ()))).to(dtype)
    momentum, gradients = (
        {key: 0.01 * torch.randn_like(one).detach() for key, one in model.named_parameters()} for _ in "12"
    )
    batches = [(torch.randn(n, 1, SIDE, SIDE, dtype=dtype), torch.randint(CLASSES, (n,))) for n in sizes]
    return Session(name, model, {} if plain else momentum, gradients if stale else {}, batches, micro)


def record(step: TrainingFunction, micro: int, parts: int, seed: int = 0, write: Write = recorded) -> Record:
    """What `step(model, optimizer, images, labels, micro)` does in every session.

    Args:
        step: what the learner wrote.
        micro: images in a micro-batch, 2 or more.
        parts: micro-batches in the batch, 2 or more.
        seed: of all values.

    Raises whatever the learner's code raises, and Refused.
    """
    warm_up()

    def run(begin: Begin) -> None:
        sessions = _sessions(micro, parts, seed)
        scribe = begin({name: one for session in sessions for name, one in session.inputs.items()})
        with scribe:
            for number, session in enumerate(sessions):
                scribe.mark(f"{session.name} begin")
                parameters = dict(session.model.named_parameters())
                optimizer = _optimizer(session, number)
                for name, parameter in parameters.items():
                    if session.momentum:
                        optimizer.state[parameter]["momentum_buffer"] = session.momentum[name]
                    parameter.grad = session.stale.get(name)
                for images, labels in session.batches:
                    returned = step(session.model, optimizer, images, labels, session.micro)
                    scribe.mark(f"{session.name} returned {type(returned).__name__}")
                    del returned
                for name, parameter in parameters.items():
                    scribe.mark(f"{session.name} {name}", parameter)
                    if session.momentum:
                        scribe.mark(f"{session.name} momentum {name}", optimizer.state[parameter]["momentum_buffer"])
                scribe.mark(f"{session.name} end")

    return write(run)


def _optimizer(session: Session, number: int) -> torch.optim.Optimizer:
    """Another one for each session, by its number: two groups of parameters, and what SGD can do besides."""
    first, *rest = session.model.parameters()
    rate = RATE + 0.01 * number  # no numbers to write down
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 1.5 * rate}, {"params": rest}]
    momentum = MOMENTUM - 0.05 * number if session.momentum else 0.0
    nesterov = momentum > 0 and number % 2 == 1
    return torch.optim.SGD(groups, lr=rate, momentum=momentum, weight_decay=0.01 * number, nesterov=nesterov)


def judge(record: Record, micro: int, parts: int, seed: int = 1) -> UpdateComparison:
    """What a record comes to beside the whole batch's, on values drawn from this seed. Raises Refused."""
    sessions = _sessions(micro, parts, seed)
    values = {name: one.detach() for session in sessions for name, one in session.inputs.items()}
    record.require_marks("".join(map(_marks_of, sessions)))
    ours, theirs = replay(record, values), replay(_whole(micro, parts), values)
    updates = {one.name: (_after(ours, one), _after(theirs, one)) for one in sessions}
    shares = [_above(ours, one) / _above(theirs, one) / one.share for one in sessions]
    rests, (mine, whole) = ("uneven", "one", "below"), updates["measured"]
    trained = torch.allclose(mine, whole, rtol=1e-4, atol=1e-5)
    returned = [name.split()[-1] for name in ours.alive if " returned " in name]
    return UpdateComparison(
        returned=returned[-1] if returned else "",
        even=updates["even"],
        uneven=(torch.cat([updates[one][0] for one in rests]), torch.cat([updates[one][1] for one in rests])),
        second=updates["second"],
        most=micro + max(_most_images(ours, one) - one.micro for one in sessions),
        micro=micro,
        share=SHARE * max(shares) if trained else 1.0,
    )


@functools.lru_cache(maxsize=4)
def _whole(micro: int, parts: int) -> Record:
    """A record of whole batches."""
    return record(lambda *given: whole_batch(*given[:-1]), micro, parts, write=written)


def _after(found: Replayed, session: Session) -> Tensor:
    """Parameters and momentum after a session, as one vector."""
    names = session.handed
    if any(name not in found.handed for name in names):
        raise Refused("parameters are missing after a step")
    return torch.cat([found.handed[name].flatten() for name in names])


def _marks_of(session: Session) -> str:
    """What `record` hands out of a session, in this order, as a pattern of names."""
    returned = rf"({session.name} returned \w+\n){{{len(session.batches)}}}"
    after = "".join(f"{re.escape(name)}\n" for name in session.handed)
    return rf"{session.name} begin\n{returned}{after}{session.name} end\n"


def _most_images(found: Replayed, session: Session) -> int:
    """Images that go through the network at once in a session: that a convolution reads, or whose maps are one tensor.

    A tensor no larger than all images of a batch is no map of theirs, but a copy of them.
    """
    ran = found.ran[found.done[f"{session.name} begin"] : found.done[f"{session.name} end"]]
    read = [one.read[0].size[0] for one in ran if one.name == "convolution"]
    made = [math.prod(ref.size) for one in ran for ref in one.made]
    copies = max(images.numel() for images, _ in session.batches)
    return max((*read, *(math.ceil(values / MAP) for values in made if values > copies)), default=0)


def _above(found: Replayed, session: Session) -> int:
    """The most bytes alive in a session, above the fewest: what lies about until it has begun is no part of those."""
    ran = found.ran[found.done[f"{session.name} begin"] : found.done[f"{session.name} end"]]
    alive = (found.alive[f"{session.name} begin"], *(one.bytes for one in ran))
    return max(alive) - min(alive)
