"""The check of question 5 of exercise 01: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record
from lessons.why_gpus import judge as loops
from lessons.why_gpus.judge import LaunchComparison, OneByOne

# -- 5. fewer launches -----------------------------------------------------------------------------------------------

BATCH = 40


class _Listed(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return torch.stack([self.fc2(torch.relu(self.fc1(hand - hand.mean()))) for hand in hands])


class _HalfLooped(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        centred = torch.stack([hand - hand.mean() for hand in hands])
        return self.fc2(torch.relu(self.fc1(centred)))  # type: ignore[no-any-return]


class _InPieces(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        parts = [part - part.mean(dim=1, keepdim=True) for part in hands.split(20)]
        return torch.cat([self.fc2(torch.relu(self.fc1(part))) for part in parts])


class _UnitByUnit(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        x = hands - hands.mean(dim=1, keepdim=True)
        hidden = torch.stack([x @ w + b for w, b in zip(self.fc1.weight, self.fc1.bias, strict=True)], dim=1)
        return self.fc2(torch.relu(hidden))  # type: ignore[no-any-return]


class _MixedSamples(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(hands - hands.mean())))  # type: ignore[no-any-return]


class _MeanOverTheBatch(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(hands - hands.mean(dim=0))))  # type: ignore[no-any-return]


class _NotCentred(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(hands)))  # type: ignore[no-any-return]


class _NoReLU(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(self.fc1(hands - hands.mean(dim=1, keepdim=True)))  # type: ignore[no-any-return]


class _WithoutGradient(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        with torch.no_grad():
            return self.fc2(torch.relu(self.fc1(hands - hands.mean(dim=1, keepdim=True))))  # type: ignore[no-any-return]


class _FirstOnly(OneByOne):
    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(hands[0] - hands[0].mean())))  # type: ignore[no-any-return]


class _Smaller(OneByOne):
    def __init__(self) -> None:
        super().__init__(units=8)

    def forward(self, hands: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(hands - hands.mean(dim=1, keepdim=True))))  # type: ignore[no-any-return]


class FewerLaunches(NetworkCheck[LaunchComparison]):
    """The check of question 5: a class whose forward is rewritten, judged by what the network it makes does."""

    question, name, blank = "fewer_launches", "AllAtOnce", "AllAtOnce.forward"
    takeaway = "The whole batch at once: the launches no longer grow with it, only the work does."
    slips: Sequence[Slip] = (
        Slip(
            "still a loop",
            _Listed,
            "A loop in brackets is a loop: each sample launches every operator again. Give the layers the whole batch.",
        ),
        Slip(
            "half a loop",
            _HalfLooped,
            "The layers take the whole batch now, but something before or after them still runs sample by sample.",
        ),
        Slip(
            "in pieces",
            _InPieces,
            "The launches still grow with the batch: it goes through the layers in pieces. Give them all of it.",
        ),
        Slip(
            "a loop over units",
            _UnitByUnit,
            "The launches no longer grow with the batch, but there are still too many: another loop is left.",
        ),
        Slip(
            "samples mixed",
            _MixedSamples,
            "The mean is taken over the whole batch: each hand's scores depend on the others. Take it over `dim=1`.",
        ),
        Slip(
            "mean over the batch",
            _MeanOverTheBatch,
            "The mean is taken over `dim=0`, from sample to sample. Each hand has its own mean, over `dim=1`.",
        ),
        Slip("not centred", _NotCentred, "The hands are no longer centred: subtract from each its own mean."),
        Slip("ReLU dropped", _NoReLU, "The ReLU is missing: without it the two layers are one."),
        Slip(
            "torch.no_grad",
            _WithoutGradient,
            "The output has no gradient any more, so the network cannot learn. Launch less, but keep autograd.",
        ),
        Slip("another shape", _FirstOnly, "The output has another shape than the original's."),
        Slip(
            "other parameters",
            _Smaller,
            "The parameters are not the original's. Leave `__init__` alone; only `forward` needs to change.",
        ),
    )

    def record(self, given: Callable[[], nn.Module]) -> Record:
        """Two steps of the network."""
        return loops.record(given, BATCH)

    def judge(self, record: Record, seed: int) -> LaunchComparison:
        """What they come to beside `OneByOne`."""
        return loops.judge(record, BATCH, seed)

    def praise(self, seen: LaunchComparison) -> str:
        """How many operators are left."""
        return f"At batch {BATCH}, {seen.original_operators} operators become {seen.operators}. {self.takeaway}"

    def diagnose(self, seen: LaunchComparison, given: Callable[[], nn.Module]) -> str:
        """What keeps the network from being right, or ""."""
        unlike = seen.unlike(self.told("other parameters"), self.told("another shape"))
        if unlike:
            return unlike
        if not seen.same_output:
            return next(
                (self.told(name) for name, kind in _BY_OUTPUT.items() if _same_output(given, kind)),
                "The output is not the original's: compare one sample's scores with those of the loop.",
            )
        if not seen.trainable:
            return self.told("torch.no_grad")
        if not seen.same_gradients:
            return "The output is right, but the gradients are not: something detaches the values on their way."
        if seen.elsewhere:
            return seen.elsewhere
        now = f" At batch {BATCH} it launches {seen.operators} operators; at most {loops.MOST} are asked."
        if not seen.grow:
            return self.told("a loop over units") + now
        if 0 < seen.operators <= loops.MOST:
            return self.told("in pieces")
        return self.told("still a loop" if seen.operators > seen.original_operators / 2 else "half a loop") + now


_BY_OUTPUT: dict[str, type[OneByOne]] = {
    "samples mixed": _MixedSamples,
    "mean over the batch": _MeanOverTheBatch,
    "not centred": _NotCentred,
    "ReLU dropped": _NoReLU,
}


def _same_output(make: Callable[[], nn.Module], kind: type[OneByOne]) -> bool:
    """Whether two networks put out the same with the same weights."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        one, other = make(), kind()
        other.load_state_dict(one.state_dict())
        hands = torch.randn(BATCH, loops.INPUTS) + torch.randn(BATCH, 1)
        return torch.allclose(one(hands), other(hands), rtol=1e-4, atol=1e-5)


fewer_launches = FewerLaunches()
