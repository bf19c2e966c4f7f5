"""The check of exercise 13, "Transformers", question 6: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from classroom.questions.core import Slip, percent
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written
from lessons.transformers import judge as chunked
from lessons.transformers.judge import SHARE, PiecesComparison, Reader

# -- 6. the loss in pieces --------------------------------------------------------------------------------------------


class _Summing(Reader):
    """The loss over pieces, each by `piece`; what slips have in common."""

    pieces = 8

    def maps(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()

    def piece(self, maps: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.head(maps), labels, reduction="sum")

    def again(self, maps: Tensor, labels: Tensor) -> Tensor:
        return checkpoint(self.piece, maps, labels, use_reentrant=False)  # type: ignore[no-any-return]

    def split(self, ids: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        maps, flat = self.maps(ids, labels)
        return list(zip(maps.chunk(self.pieces), flat.chunk(self.pieces), strict=True))


class _NoCheckpoint(_Summing):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.piece(*one) for one in self.split(ids, labels)]).sum() / labels.numel()


class _AllAgain(Reader):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return checkpoint(super().forward, ids, labels, use_reentrant=False)  # type: ignore[no-any-return]


class _TwoPieces(_Summing):
    pieces = 2

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.again(*one) for one in self.split(ids, labels)]).sum() / labels.numel()


class _MeanOfMeans(_Summing):
    pieces = 5

    def piece(self, maps: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.head(maps), labels)

    def split(self, ids: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
        maps, flat = self.maps(ids, labels)
        return list(zip(maps.split(50), flat.split(50), strict=True))

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.again(*one) for one in self.split(ids, labels)]).mean()


class _SumOfMeans(_MeanOfMeans):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.again(*one) for one in self.split(ids, labels)]).sum()


class _Sum(_Summing):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.again(*one) for one in self.split(ids, labels)]).sum()


class _Detached(_Summing):
    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        parts = [self.again(maps.detach(), flat) for maps, flat in self.split(ids, labels)]
        return torch.stack(parts).sum() / labels.numel()


class _LateNames(_Summing):
    """What is computed again looks names up a second time, when the loop has moved on."""

    pieces = 12

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        parts = []
        for maps, flat in self.split(ids, labels):
            parts.append(checkpoint(lambda one: self.piece(one, flat), maps, use_reentrant=False))  # noqa: B023 - the slip
        return torch.stack(parts).sum() / labels.numel()


class _InHalf(_Summing):
    def piece(self, maps: Tensor, labels: Tensor) -> Tensor:
        logits = maps.half() @ self.head.weight.half().t()
        return cross_entropy(logits.float(), labels, reduction="sum")

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.again(*one) for one in self.split(ids, labels)]).sum() / labels.numel()


class _Narrow(Reader):
    def __init__(self) -> None:
        super().__init__(hidden=8)


class LossInPieces(NetworkCheck[PiecesComparison]):
    """The check of question 6: a class whose forward computes the loss in pieces, judged by the step it makes."""

    question, name, blank = "loss_in_pieces", "InPieces", "InPieces.forward"
    takeaway = "The same loss and gradients, and the logits are never all there."
    by_peak = (
        Slip("nothing", Reader, "The peak has not moved: all logits are still made at once."),
        Slip(
            "all in one",
            _AllAgain,
            "The whole step is one checkpoint. The backward pass makes all logits again at once. Several pieces are "
            "needed, each in a checkpoint of its own.",
        ),
        Slip(
            "without a checkpoint",
            _NoCheckpoint,
            "You compute piece by piece, but every piece keeps its logits for the backward pass. Put each piece's head "
            "and loss, both, into `checkpoint`, and they are computed again.",
        ),
        Slip(
            "two pieces", _TwoPieces, "Two pieces are a start: half of the logits are still there at once. Take more."
        ),
    )
    by_property = (
        Slip(
            "the sum of means",
            _SumOfMeans,
            "The loss is a whole number of times too large: means of pieces were added up, or a sum was divided by "
            "less than the number of tokens. Add up the *sums* of the pieces, and divide by the number of tokens.",
        ),
        Slip(
            "a sum",
            _Sum,
            "The loss is the sum over all tokens. Divide by how many there are.",
        ),
        Slip(
            "the mean of means",
            _MeanOfMeans,
            "The loss is nearly right. Either a short last piece is left out, or, in a mean of the pieces' means, it "
            "has too much weight, or tokens are compared with the wrong labels, or numbers are rounded to 16 bits. "
            "Add up the sums of all pieces in float32, and divide by the number of tokens.",
        ),
        Slip(
            "detached",
            _Detached,
            "The loss is right and gradients are missing or wrong: something on the way was detached or left out.",
        ),
        Slip(
            "late names",
            _LateNames,
            "The loss is right and its gradients are not. What a checkpoint computes again in the backward pass sees "
            "variables as they are then: hand it the piece's maps and labels, both, as arguments.",
        ),
        Slip(
            "fewer bits",
            _InHalf,
            "The loss or its gradients are rounded: the original computes in float32, and something of yours has fewer "
            "bits. All logits in fewer bits are still all logits. Keep float32, and take pieces.",
        ),
        Slip(
            "other parameters",
            _Narrow,
            "The parameters are not the original's. Leave `__init__` alone; only `forward` needs to change.",
        ),
    )
    slips: Sequence[Slip] = (*by_peak, *by_property)

    def record(self, given: Callable[[], nn.Module]) -> Record:
        """The step it makes."""
        return chunked.record(given)

    def judge(self, record: Record, seed: int) -> PiecesComparison:
        """The step beside the original's."""
        return chunked.judge(record, seed=seed)

    def praise(self, seen: PiecesComparison) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def diagnose(self, seen: PiecesComparison, given: Callable[..., Any]) -> str:
        """What keeps the step from being right."""
        unlike = seen.unlike(self.told("other parameters"), "The loss is to be one number.")
        if unlike:
            return unlike
        if seen.rounded and not (seen.same_output and seen.same_gradients):
            return self.told("fewer bits")
        if not seen.same_output:
            tokens = 4 * 63
            if math.isclose(seen.loss_factor, tokens, rel_tol=0.01):
                return self.told("a sum")
            if math.isclose(seen.loss_factor, 1, rel_tol=0.1):
                return self.told("the mean of means")
            if 1.5 < seen.alike_factor < tokens / 1.5 and math.isclose(
                seen.alike_factor, round(seen.alike_factor), rel_tol=1e-4
            ):
                return self.told("the sum of means")
            times = seen.loss_factor if seen.loss_factor > 1 else 1 / seen.loss_factor if seen.loss_factor > 0 else 0
            way = "large" if seen.loss_factor > 1 else "small"
            size = f"{times:.3g} times too {way}" if times else "not the original's"
            return (
                f"The loss is {size}. The original's is the mean over all {tokens} tokens, each with all of its "
                f"{chunked.WORDS:,} logits."
            )
        if not seen.trainable or not seen.same_gradients:
            if seen.without_gradient:
                return self.told("detached")
            # The mean of means may be near enough in the loss; its gradients are not.
            return self.told("late names" if math.isclose(seen.loss_factor, 1, rel_tol=1e-5) else "the mean of means")
        if seen.elsewhere:
            return seen.elsewhere
        now = f" It is {percent(seen.share)} of the original; at most {percent(SHARE)} is asked."
        if seen.peak == seen.original_peak:
            return self.told("all in one" if seen.again else "nothing") + now
        for slip in self.by_peak:
            if seen.peak == _slip_peak(slip.function):
                return slip.message + now
        if seen.peak <= SHARE * seen.original_peak:
            values = percent(seen.most_values / seen.original_values)
            return (
                f"Fewer bytes, and as many values: {values} of the original's are alive at once, {percent(SHARE)} may "
                "be. All logits in fewer bits are still all logits. Keep float32, and take pieces."
            )
        if percent(seen.share) == percent(SHARE):
            now = f" It is {100 * seen.share:.1f} % of the original; at most {percent(SHARE)} is asked."
        return (
            f"The peak is still too high.{now} Either the pieces are large, or something as large as the logits waits "
            "for the backward pass: are the head and the loss of each piece inside `checkpoint`, both?"
        )


@functools.cache
def _slip_peak(make: Callable[[], nn.Module]) -> int:
    return chunked.judge(chunked.record(make, write=written)).peak


loss_in_pieces = LossInPieces()
