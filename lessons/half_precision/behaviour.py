"""The check of question 6 of exercise 08: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip, percent, shown
from lessons.half_precision import judge as scaled_loops
from lessons.half_precision.judge import Batch, half_loss
from lessons.shared.network_questions import OTHER, OWN, ReplayCheck, import_ahead
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written

# -- 6. a loop that keeps small gradients ------------------------------------------------------------------------------


def _loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    scale: float,
    max_norm: float,
    divide: float = 1.0,
    clip: str = "after",
    skip: bool = True,
    zero: bool = True,
    repair: bool = False,
    stop: bool = False,
    good: Callable[[Tensor], Tensor] = torch.isfinite,
) -> int:
    """A loop with everything that can go wrong as a switch; as given, it is right."""
    skipped = 0
    parameters = list(model.parameters())
    for images, labels, weight in batches:
        if zero:
            optimizer.zero_grad()
        (half_loss(model, images, labels, weight) * scale).backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        if clip == "before":
            nn.utils.clip_grad_norm_(parameters, max_norm)
        for gradient in gradients:
            gradient /= scale**divide
            if repair:
                gradient.nan_to_num_(0.0, 0.0, 0.0)
        if skip and not all(bool(good(gradient).all()) for gradient in gradients):
            skipped += 1
            if stop:
                break
            continue
        if clip == "after":
            nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
    return skipped


def _smaller_rate(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], scale: float, max_norm: float
) -> int:
    for group in optimizer.param_groups:
        group["lr"] /= scale
    return _loop(model, optimizer, batches, scale, max_norm, divide=0.0)


def _in_float32(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Batch], scale: float, max_norm: float
) -> int:
    for images, labels, weight in batches:
        optimizer.zero_grad()
        (weight * nn.functional.cross_entropy(model(images), labels)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return 0


TOO_SHORT = (
    "Your steps are far too short: `max_norm` was compared with scaled gradients and cut them to almost nothing, or "
    "they were divided twice. Divide the gradients by `scale` once, before you clip them. Dividing the learning rate "
    "in their place is too late: clipping has seen the scaled ones by then."
)


class KeepSmall(ReplayCheck[scaled_loops.ScaledTraining]):
    """The check of question 6: a loop, judged by where its weights end beside float32's."""

    question = name = "keep_small"
    running = "Running the loop"
    takeaway = "Scale the loss, unscale the gradients, skip what is not finite, then clip: in this order."
    slips: Sequence[Slip] = (
        Slip(
            "no scaling",
            scaled_loops.loses_small,
            "The small gradients still become 0, and the outliers move everything: nothing is scaled. Multiply the "
            "loss by `scale` before the backward pass.",
        ),
        Slip(
            "never unscaled",
            functools.partial(_loop, divide=0.0, clip="never"),
            "Your gradients are still `scale` times too large when the optimizer takes them. Divide them first.",
        ),
        Slip(
            "clipped, never unscaled",
            functools.partial(_loop, divide=0.0),
            "Your gradients are clipped, but never divided by `scale`, so every step is as long as `max_norm` allows, "
            "the small ones too.",
        ),
        Slip("clipped before unscaling", functools.partial(_loop, clip="before"), TOO_SHORT),
        Slip("a smaller learning rate instead", _smaller_rate, TOO_SHORT),
        Slip(
            "nothing skipped",
            functools.partial(_loop, skip=False),
            "The weights are not numbers any more: a batch has infinite gradients when scaled, and you took a step "
            "with them. Skip it.",
        ),
        Slip(
            "infinity alone is looked for",
            functools.partial(_loop, good=lambda gradient: ~gradient.isinf()),
            "The weights are not numbers any more: of one batch all gradients are NaN, none is infinite, and you took "
            "a step with them. `isfinite` is False for both.",
        ),
        Slip(
            "infinite gradients replaced by 0",
            functools.partial(_loop, repair=True),
            "You replaced infinite gradients by numbers and took the step. What is left of that gradient is arbitrary: "
            "skip the whole batch, as momentum would carry it on.",
        ),
        Slip(
            "stops at an outlier",
            functools.partial(_loop, stop=True),
            "Your loop ends where a batch has to be skipped, and the batches behind it are never trained on: `break` "
            "leaves the loop, `continue` goes on with the next one.",
        ),
        Slip(
            "gradients add up",
            functools.partial(_loop, zero=False),
            "Gradients of one batch are still there in the next: after an outlier none is finite. Call "
            "`optimizer.zero_grad()` for every batch.",
        ),
        Slip("unscaled twice", functools.partial(_loop, divide=2.0), TOO_SHORT),
        Slip(
            "not clipped",
            functools.partial(_loop, clip="never"),
            "The gradients are right and are never clipped: `clip_grad_norm_` belongs after the division.",
        ),
        Slip(
            "skips not counted",
            lambda *arguments: 0 * _loop(*arguments),
            "The weights are right. Return how many batches you skipped.",
        ),
        Slip(
            "in float32",
            _in_float32,
            "The network ran in float32, where no scale is needed, and its maps take twice the memory. Take the loss "
            "from `half_loss`, and mend the loop.",
        ),
    )

    def record(self, given: Callable[..., Any]) -> Record:
        """What the loop does in three trainings."""
        return scaled_loops.record(given, seed=OWN)

    def judge(self, record: Record, seed: int) -> scaled_loops.ScaledTraining:
        """Where that leads other weights."""
        return scaled_loops.judge(record, seed=seed)

    def praise(self, seen: scaled_loops.ScaledTraining) -> str:
        """How near to float32 the weights end."""
        return f"Your weights end where float32's do, to {percent(seen.missed)} of the way they went. {self.takeaway}"

    def diagnose(self, seen: scaled_loops.ScaledTraining, given: Callable[..., Any]) -> str:
        """The slip whose weights these are, or how far they are off; "" if they are right."""
        if not seen.half and any(one.any() for one in seen.moved):  # else it trained nothing at all
            return self.told("in float32")
        alike = [slip for slip in self.slips if seen.leads_where(_slip_outcome(slip))]
        counted = [slip for slip in alike if seen.counted == _slip_outcome(slip).counted]
        for slip in counted or (() if seen.follows else alike):
            return slip.message
        if seen.follows and seen.counted[1] != "0":
            return (
                "The weights are right. But in the training with a scale of 1 nothing overflows, not even an outlier, "
                f"and you returned {seen.counted[1]}: it is the gradients that say whether a batch is skipped."
            )
        if seen.follows:
            wrong = zip(seen.counted, seen.skipped, strict=True)
            given_back, skipped = next((one, count) for one, count in wrong if one != str(count))
            wanted = f"{skipped} batch{'' if skipped == 1 else 'es'} had to be skipped"
            return f"The weights are right, but you returned {given_back} where {wanted}: count them."
        return (
            f"Your weights end {shown(round(seen.missed, 3))} times as far from float32's as those have moved; at most "
            f"{percent(scaled_loops.TOLERANCE)} is asked."
        )


@functools.cache
def _slip_outcome(slip: Slip) -> scaled_loops.ScaledTraining:
    return scaled_loops.judge(scaled_loops.record(slip.function, seed=OWN, write=written), seed=OTHER)


keep_small = KeepSmall()
import_ahead("sklearn.datasets")  # of the digits
