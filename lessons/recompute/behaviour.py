"""The check of exercise 10, "Recompute", question 6: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from classroom.questions.core import Slip, percent
from lessons.shared import rewrites
from lessons.shared.compared import LEAKS
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written
from lessons.shared.rewrites import RewriteComparison, Tower

BATCH = 8

# -- 6. a network that recomputes --------------------------------------------------------------------------------------


class _AllAtOnce(Tower):
    def forward(self, images: Tensor) -> Tensor:
        return checkpoint(super().forward, images, use_reentrant=False)  # type: ignore[no-any-return]


class _OneBlock(Tower):
    def forward(self, images: Tensor) -> Tensor:
        x = checkpoint(self.blocks[0], self.stem(images), use_reentrant=False)
        for block in self.blocks[1:]:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class _EachLayer(Tower):
    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            for layer in block:  # type: ignore[attr-defined]
                x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)  # type: ignore[no-any-return]


class _OtherNumbers(Tower):
    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return self.head(x)  # type: ignore[no-any-return]


class _LastBlock(Tower):
    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(lambda y: block(y), x, use_reentrant=False)  # noqa: B023 - the slip
        return self.head(x)  # type: ignore[no-any-return]


class _Reentrant(Tower):
    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)  # type: ignore[no-any-return]


class _NoGradient(Tower):
    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.stem(images)
            for block in self.blocks:
                x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class _Evaluates(Tower):
    def forward(self, images: Tensor) -> Tensor:
        self.eval()
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)  # type: ignore[no-any-return]


class _Narrow(Tower):
    def __init__(self) -> None:
        super().__init__(width=8)


class RecomputeBlocks(NetworkCheck[RewriteComparison]):
    """The check of question 6: a class whose forward recomputes, judged by the network it makes."""

    question, name, blank = "recompute_blocks", "Recomputes", "Recomputes.forward"
    takeaway = "The same network, the same gradients: memory paid with one more forward pass."
    by_peak = (
        Slip("nothing", Tower, "The peak has not moved: nothing is recomputed yet."),
        Slip(
            "all in one",
            _AllAtOnce,
            "The whole network is one segment. The backward pass runs all of it again at once, and every map is there "
            "as before. Several segments are needed.",
        ),
        Slip("one block", _OneBlock, "One block recomputes and the others keep their maps. Recompute more of them."),
        Slip(
            "every layer",
            _EachLayer,
            "Every layer is a segment of its own, so that every layer's input is kept, more than layers keep by "
            "themselves. Let a segment hold several layers.",
        ),
    )
    by_property = (
        Slip(
            "other random numbers",
            _OtherNumbers,
            "The output is right and the gradients are not: the second time dropout drops other values. Leave "
            "`preserve_rng_state` at its default.",
        ),
        Slip(
            "another block the second time",
            _LastBlock,
            "The gradients are not the same, without dropout either: what runs the second time is something else. A "
            "function made in a loop looks up the loop's variable when it is called, and in the backward pass that is "
            "the last block. Give `checkpoint` the block itself.",
        ),
        Slip(
            "the reentrant way",
            _Reentrant,
            "You recompute with `use_reentrant=True`, the way of old, of which torch advises against: it runs autograd "
            "within autograd and misses what hooks and `torch.no_grad` do. Give `use_reentrant=False`.",
        ),
        Slip(
            "torch.no_grad",
            _NoGradient,
            "Some layers get no gradient. `torch.no_grad` drops maps for good; `checkpoint` computes them again.",
        ),
        Slip(
            "evaluation",
            _Evaluates,
            "The output is not the original's in training. Layers are left out, changed, or not in training mode.",
        ),
        Slip(
            "other parameters",
            _Narrow,
            "The parameters are not the original's. Leave `__init__` alone; only `forward` needs to change.",
        ),
    )
    slips: Sequence[Slip] = (*by_peak, *by_property)

    def record(self, given: Callable[[], nn.Module]) -> Record:
        """Two steps of the network."""
        return rewrites.record(given, BATCH, kind=Tower)

    def judge(self, record: Record, seed: int) -> RewriteComparison:
        """What they come to beside `Tower`."""
        return rewrites.judge(record, BATCH, seed, Tower)

    def praise(self, seen: RewriteComparison) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def diagnose(self, seen: RewriteComparison, given: Callable[..., Any]) -> str:
        """What keeps the network from being right, or ""."""
        unlike = seen.unlike(self.told("other parameters"), "The output has another shape than the original's.")
        if unlike:
            return unlike
        if not seen.same_output:
            return self.told("evaluation")
        if not seen.trainable or seen.without_gradient:
            return self.told("torch.no_grad")
        if not seen.same_gradients:
            evaluated = rewrites.judge(rewrites.record(given, BATCH, 0, Tower, False, written), BATCH, 1, Tower, False)
            return self.told("other random numbers" if evaluated.same_gradients else "another block the second time")
        if seen.leaks:
            return LEAKS
        if seen.reentrant:
            return self.told("the reentrant way")
        if seen.elsewhere:
            return seen.elsewhere
        now = f" It is {percent(seen.share)} of the original; at most {percent(rewrites.RECOMPUTED)} is asked."
        for slip in self.by_peak:
            if seen.peak == _slip_peak(slip.function):
                return slip.message + now
        return f"The peak is still too high.{now}"


@functools.cache
def _slip_peak(make: Callable[[], nn.Module]) -> int:
    return rewrites.judge(rewrites.record(make, BATCH, kind=Tower, write=written), BATCH, kind=Tower).peak


recompute_blocks = RecomputeBlocks()
