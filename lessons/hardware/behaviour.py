"""The check of question 5 of exercise 02: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip, percent
from lessons.hardware import judge as transfer
from lessons.hardware.judge import Pretrained
from lessons.shared.compared import LEAKS
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record

# -- 5. a network whose head alone is trained ------------------------------------------------------------------------

BATCH = 32


class _Detached(Pretrained):
    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images).detach())  # type: ignore[no-any-return]


class _FirstStillLearns(Pretrained):
    def __init__(self) -> None:
        super().__init__()
        self.backbone[1:].requires_grad_(False)


class _OnlyFirstFrozen(Pretrained):
    def __init__(self) -> None:
        super().__init__()
        self.backbone[0].requires_grad_(False)


class _NoGradAtAll(Pretrained):
    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(images)


class _HeadFrozenToo(Pretrained):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)
        self.head.bias.requires_grad_(True)


class _BackboneShortened(Pretrained):
    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.backbone[-2:](self.backbone[:4](images))
        return self.head(features)  # type: ignore[no-any-return]


class _OtherParameters(Pretrained):
    def __init__(self) -> None:
        super().__init__(width=8)
        self.backbone.requires_grad_(False)


class HeadOnly(NetworkCheck[transfer.TransferComparison]):
    """The check of question 5: a class, judged by the properties of the network it makes."""

    question, name = "head_only", "HeadOnly"
    takeaway = "Nothing below the head needs a gradient, so autograd keeps nothing there: two maps at a time are alive."
    slips: Sequence[Slip] = (
        Slip(
            "detached afterwards",
            _Detached,
            "The backbone gets no gradient, but the peak is still high: `.detach()` comes too late. Until it runs, "
            "autograd has kept every map of the backbone.",
        ),
        Slip(
            "the first layer still learns",
            _FirstStillLearns,
            "Most of the backbone is frozen and the peak has hardly moved: its first layer still learns, so gradients "
            "pass through all the layers above it, and what those need for that stays.",
        ),
        Slip(
            "only the first layer frozen",
            _OnlyFirstFrozen,
            "Layers of the backbone still get gradients. All of it is to stay as it is.",
        ),
        Slip(
            "torch.no_grad around everything",
            _NoGradAtAll,
            "The output has no gradient, so the head cannot learn. Only the backbone runs without gradients.",
        ),
        Slip(
            "the head frozen too",
            _HeadFrozenToo,
            "Part of the head gets no gradient, or another one than before. The head is what is to learn.",
        ),
        Slip(
            "another output",
            _BackboneShortened,
            "The output is not the original's. Freezing changes what is kept, not what is computed.",
        ),
        Slip(
            "other parameters",
            _OtherParameters,
            "The parameters are not the original's. Keep the layers and their sizes as they are.",
        ),
    )

    def record(self, given: Callable[[], nn.Module]) -> Record:
        """A step of the network."""
        return transfer.record(given, BATCH)

    def judge(self, record: Record, seed: int) -> transfer.TransferComparison:
        """What it comes to beside `Pretrained`."""
        return transfer.judge(record, BATCH, seed)

    def praise(self, seen: transfer.TransferComparison) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def diagnose(self, seen: transfer.TransferComparison, given: Callable[[], nn.Module]) -> str:
        """What keeps the network from being right, or ""."""
        unlike = seen.unlike(self.told("other parameters"), self.told("another output"))
        if unlike:
            return unlike
        if not seen.same_output:
            return self.told("another output")
        if not seen.trainable:
            return self.told("torch.no_grad around everything")
        if not seen.head_learns:
            return self.told("the head frozen too")
        learning = {name.split(".")[1] for name in seen.backbone_gradients}
        if learning == {"0"}:
            return self.told("the first layer still learns")
        if learning:
            return self.told("only the first layer frozen")
        if seen.elsewhere:
            return seen.elsewhere
        if seen.leaks:
            return LEAKS
        is_at = f"It is {percent(seen.share)} of the original's; at most {percent(transfer.SHARE)} is asked."
        return f"{self.told('detached afterwards')} {is_at}"


head_only = HeadOnly()
