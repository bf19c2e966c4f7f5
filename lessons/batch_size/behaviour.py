"""The check of exercise 07, "Batch size", question 6: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip, percent
from lessons.batch_size import judge as training
from lessons.batch_size.judge import TrainingFunction, UpdateComparison
from lessons.shared.network_questions import ReplayCheck
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written

# -- 6. a step in micro-batches --------------------------------------------------------------------------------------

MICRO, PARTS = 4, 6  # more parts than images in one: a number is told from a size


def _accumulate(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    micro: int,
    clear: str = "before",
    weigh: Callable[[int, int, int], float] = lambda size, whole, parts: size / whole,
    update: str = "after",
    drop: bool = False,
) -> None:
    """Accumulation with what can be done wrong about it as arguments.

    Args:
        model: the network.
        optimizer: of its parameters.
        images: (n, ...) the whole batch.
        labels: (n,) classes.
        micro: images in a micro-batch.
        clear: when gradients are cleared: "before" all, before "each" micro-batch, at the "end", or "never".
        weigh: factor of a micro-batch's mean loss, from its size, the whole batch's, and the number of micro-batches.
        update: the optimizer's step "after" all, after "each" micro-batch, or "never".
        drop: whether a smaller last micro-batch is left out.
    """
    pieces = [
        (x, y) for x, y in zip(images.split(micro), labels.split(micro), strict=True) if not drop or len(x) == micro
    ]
    if clear == "before":
        optimizer.zero_grad()
    for x, y in pieces:
        if clear == "each":
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        (loss * weigh(len(x), len(images), len(pieces))).backward()
        if update == "each":
            optimizer.step()
    if update == "after":
        optimizer.step()
    if clear == "end":
        optimizer.zero_grad()


def _one_graph(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, micro: int) -> None:
    optimizer.zero_grad()
    total = torch.zeros(())
    for x, y in zip(images.split(micro), labels.split(micro), strict=True):
        total = total + nn.functional.cross_entropy(model(x), y, reduction="sum") / len(images)
    total.backward()
    optimizer.step()


def _in_so_many(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, micro: int) -> None:
    _accumulate(model, optimizer, images, labels, -(-len(images) // micro))


def _all_at_once(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, micro: int
) -> None:
    training.whole_batch(model, optimizer, images, labels)


def _slip_step(**options: Any) -> TrainingFunction:
    return functools.partial(_accumulate, **options)


class Accumulate(ReplayCheck[UpdateComparison]):
    """The check of question 6: a training function, judged by the update it makes and by how high its peak is."""

    question = name = "accumulate"
    running = "Running a step"
    takeaway = "The update is the whole batch's, and so is what is learned; only the maps come in small portions."
    by_update = (
        Slip(
            "not divided",
            _slip_step(weigh=lambda size, whole, parts: 1.0),
            "The update is too large, by the number of micro-batches: `backward` adds up gradients, and you added "
            "up as many means. Weigh each loss before `backward`.",
        ),
        Slip(
            "mean of means",
            _slip_step(weigh=lambda size, whole, parts: 1 / parts),
            "Right where all micro-batches have one size, wrong where the last is smaller: you averaged the means. "
            "Weigh each by its share of the images.",
        ),
        Slip(
            "cleared in the loop",
            _slip_step(clear="each"),
            "Only the last micro-batch has an effect: `zero_grad` inside the loop throws away what the others left.",
        ),
        Slip(
            "cleared in the loop, not divided",
            _slip_step(clear="each", weigh=lambda size, whole, parts: 1.0),
            "Only the last micro-batch has an effect, with its full weight: `zero_grad` is inside the loop.",
        ),
        Slip(
            "never cleared",
            _slip_step(clear="never"),
            "The first step is right and the second is not: the gradients of the step before are still in it. "
            "Clear them once in every step.",
        ),
        Slip(
            "cleared at the end",
            _slip_step(clear="end"),
            "Your own steps are right, and the first one is not: gradients that were there before it are in its "
            "update. Clear them when a step begins.",
        ),
        Slip(
            "updated in the loop",
            _slip_step(update="each"),
            "You update after each micro-batch, so each meets other parameters than the one before. That is training "
            "with a small batch; accumulation updates once, at the end.",
        ),
        Slip(
            "updated in the loop, cleared in the loop",
            _slip_step(update="each", clear="each", weigh=lambda size, whole, parts: 1.0),
            "This is plain training with a small batch: cleared and updated for each. Accumulation does both once for "
            "the whole batch.",
        ),
        Slip(
            "no update",
            _slip_step(update="never"),
            "The parameters have not moved: there was no `optimizer.step()`, or no gradient for it to use. Is "
            "`backward` called, and not under `no_grad`?",
        ),
        Slip(
            "last one dropped",
            _slip_step(drop=True),
            "Images are left out where the last micro-batch is smaller. Every image of the batch belongs to the "
            "update.",
        ),
        Slip(
            "last one dropped, mean of means",
            _slip_step(drop=True, weigh=lambda size, whole, parts: 1 / parts),
            "Where the last micro-batch is smaller its images are left out of the update. They belong to it, with "
            "the weight that their number gives them.",
        ),
        Slip(
            "means divided by the batch",
            _slip_step(weigh=lambda size, whole, parts: 1 / whole),
            "The update is too small, by the size of a micro-batch: `cross_entropy` has divided by that already. "
            'Multiply by the micro-batch\'s size, or let it sum (`reduction="sum"`).',
        ),
    )
    by_size = (
        Slip(
            "number for size",
            _in_so_many,
            "The update is right, and too many images go through the network at once: `micro` is how many images "
            "are in a micro-batch, not how many micro-batches there are. `split` takes a size, `chunk` a number.",
        ),
    )
    by_peak = (
        Slip(
            "one graph for all",
            _one_graph,
            "The update is right, and too little is saved: `backward` runs once, at the end, so the maps of "
            "every micro-batch wait for it. Call `backward` for each; it frees the maps and adds up the gradients.",
        ),
        Slip(
            "the whole batch at once",
            _all_at_once,
            "The update is right, and nothing is saved: the whole batch goes through the network at once. At most "
            "`micro` images may.",
        ),
    )
    slips: Sequence[Slip] = (*by_update, *by_size, *by_peak)

    def record(self, given: Callable[..., Any]) -> Record:
        """What it does."""
        return training.record(given, MICRO, PARTS)

    def judge(self, record: Record, seed: int) -> UpdateComparison:
        """The updates it makes beside the whole batch's."""
        return training.judge(record, MICRO, PARTS, seed)

    def praise(self, seen: UpdateComparison) -> str:
        """That memory falls far enough; how far is measured, and varies a little from run to run."""
        return f"A step asks for less than {percent(training.SHARE)} of the whole batch's memory. {self.takeaway}"

    def diagnose(self, seen: UpdateComparison, given: Callable[..., Any]) -> str:
        """What keeps the step from being right, or ""."""
        if not (seen.even_equal and seen.uneven_equal and seen.second_equal):
            for slip, own in zip(self.by_update, _slip_updates(), strict=True):
                ours = (seen.even[0], seen.uneven[0], seen.second[0])
                if all(training.close(*pair) for pair in zip(ours, own, strict=True)):
                    return slip.message
            where = "where the last micro-batch is smaller" if seen.even_equal and not seen.uneven_equal else "here"
            if seen.even_equal and seen.uneven_equal:
                where = "in the second step"
            moved = float((seen.even[0] - seen.even[1]).abs().max()) if where == "here" else 0.0
            size = f" Parameters are off by up to {moved:.2g}." if moved else ""
            return f"The update is not the whole batch's {where}.{size} Work out which samples count, and how much."
        if seen.micro < seen.most < MICRO * PARTS - MICRO:
            return f"{self.told('number for size')} (Here {seen.most} at once, where micro is {seen.micro}.)"
        now = (
            f" A step asks for {percent(seen.share)} of the whole batch's memory; {percent(training.SHARE)} is allowed."
        )
        return self.told("the whole batch at once" if seen.most > MICRO else "one graph for all") + now


@functools.cache
def _slip_updates() -> list[tuple[Tensor, Tensor, Tensor]]:
    records = [training.record(slip.function, MICRO, PARTS, write=written) for slip in Accumulate.by_update]
    seen = [training.judge(one, MICRO, PARTS) for one in records]
    return [(one.even[0], one.uneven[0], one.second[0]) for one in seen]


accumulate = Accumulate()
