"""The check of question 6 of exercise 14: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip
from lessons.one_card import judge as adapters
from lessons.one_card.judge import Adapted
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record

BATCH = 16
INPUTS, OUTPUTS = 6, 5  # of a layer that is looked at alone

# -- 6. LoRA by hand --------------------------------------------------------------------------------------------------


class _Beside(nn.Module):
    """What the slips have in common: a layer, two thin matrices beside it."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.up(self.down(x))
        return y


class _RandomBoth(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        nn.init.normal_(self.up.weight)


class _ZeroBoth(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        nn.init.zeros_(self.down.weight)


class _Thawed(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        self.layer.requires_grad_(True)


class _Copied(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        copied = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
        copied.load_state_dict(layer.state_dict())
        self.layer = copied.requires_grad_(False)


class _FullSize(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.beside = nn.Parameter(torch.zeros(layer.out_features, layer.in_features))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + x @ self.beside.t()
        return y


class _TwiceAsWide(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, 2 * rank)


class _AllFrozen(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        self.requires_grad_(False)


class _Untouched(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class _NotUsed(_Beside):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class _InPlaceOf(_Beside):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x))
        return y


class _WithBiases(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        self.up = nn.Linear(rank, layer.out_features)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)


class _Bent(_Beside):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.up(torch.relu(self.down(x)))
        return y


class _Cut(_Beside):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.up(self.down(x.detach()))
        return y


class _Gated(_Beside):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__(layer, rank)
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.gate * self.up(self.down(x))
        return y


class _OneNumber(nn.Module):
    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.number = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.number * x.sum(-1, keepdim=True)
        return y


UNSTEADY = (
    "What you add is right for one batch in evaluation, and not always: on fewer rows, in training, or in a later call "
    "it is something else."
)


class AdaptLayer(NetworkCheck[Adapted]):
    """The check of question 6: a class that adapts a frozen layer, judged by a network of such layers."""

    question, name, blank = "adapt_layer", "Adapted", "Adapted"
    running = "Adapting and training the network"
    takeaway = "Frozen weights, thin matrices beside them, nothing changed at the start: that is all of LoRA."
    slips: Sequence[Slip] = (
        Slip("no thin matrices", _Untouched,
             "Nothing is trained: there is no parameter of your own beside the frozen layer."),
        Slip("all frozen", _AllFrozen,
             "Your own parameters are frozen too, so that nothing is trained. `adapt` has frozen the layer already."),
        Slip("both at random", _RandomBoth,
             "The output is not the original's at the start. Let one matrix begin at 0: so does their product."),
        Slip("in place of the layer", _InPlaceOf,
             "The output is not the original's at the start, it is 0: the frozen layer's own result is missing. Add to "
             "it."),
        Slip("thawed", _Thawed,
             "The frozen layer is trained again. Leave its `requires_grad` as it is: only your matrices are to learn."),
        Slip("a copy", _Copied,
             "Besides what it trains, your class holds a copy of the frozen weights, or something as large. Keep the "
             "very layer that is given, and nothing else: a copy is the same bytes a second time."),
        Slip("full size", _FullSize,
             "What you train is as large as the frozen weight. Two thin matrices, inputs × rank and rank × outputs, "
             "are asked for."),
        Slip("twice as wide", _TwiceAsWide,
             "Too much is trained. Are there two matrices beside a layer, inputs × rank and rank × outputs, and no "
             "more?"),
        Slip("biases", _WithBiases,
             "A few trained values too many: the thin matrices have no biases."),
        Slip("a gate", _Gated,
             "A few trained values too many: something is trained besides the two thin matrices. LoRA has no more; "
             "a factor of the product is a fixed number."),
        Slip("bent", _Bent,
             "What you add is no linear function of x, so it is not LoRA: after training it could not be added to the "
             "frozen weight. Multiply by both matrices with nothing in between."),
        Slip("another rank", _OneNumber,
             "What you add is a matrix of another rank than asked for, so it can learn less. Multiply by two matrices, "
             "inputs × rank and rank × outputs."),
        Slip("cut", _Cut,
             "The gradient does not pass through your matrices to the layers below, so these learn from another one. "
             "Let nothing be detached on the way."),
        Slip("both zero", _ZeroBoth,
             "Nothing learns. Where both matrices are 0, the gradient of each is 0, too, since it is multiplied by the "
             "other. Let one begin at random."),
        Slip("not used", _NotUsed,
             "Your matrices learn nothing: they have no part in the output, or no gradient reaches them. Add their "
             "product to the layer's result, and let no `no_grad` stand around it."),
    )  # fmt: skip

    def record(self, given: Callable[..., Any]) -> Record:
        """Layers that are adapted with it."""
        return adapters.record(given)

    def judge(self, record: Record, seed: int) -> Adapted:
        """What they do."""
        return adapters.judge(record, seed=seed)

    def praise(self, seen: Adapted) -> str:
        """How little is trained."""
        return f"{sum(seen.trained):,} values are trained, of {sum(seen.allowed):,} that may be. {self.takeaway}"

    def diagnose(self, seen: Adapted, given: Callable[..., Any]) -> str:
        """What keeps the layer from being right."""
        if seen.kind != "Tensor":
            nothing = " Is there a `return`?" if seen.kind == "NoneType" else ""
            return f"`forward` returned a {seen.kind}, not a tensor.{nothing}"
        if seen.copied:
            return self.told("a copy")
        if not seen.frozen:
            return self.told("thawed")
        if not seen.same_at_start:
            return self.told("in place of the layer" if _returns_nothing(given) else "both at random")
        if not any(seen.trained):
            return self.told("all frozen" if _own(given) else "no thin matrices")
        if seen.too_much:
            few = sum(seen.trained) < 2 * sum(seen.allowed)
            much = "full size" if _has_full_size(given) else "twice as wide"
            told = self.told(("biases" if _has_biases(given) else "a gate") if few else much)
            return f"{told} ({sum(seen.trained):,} values are trained, {sum(seen.allowed):,} may be.)"
        if not seen.learning:
            return self.told("both zero" if not any(parameter.any() for parameter in _own(given)) else "not used")
        if seen.learning == seen.layers:
            bent = "bent" if seen.linear < seen.layers else ""
            if not bent and seen.of_rank == seen.layers == seen.passing:
                return UNSTEADY
            return self.told(bent or ("another rank" if seen.of_rank < seen.layers else "cut"))
        return (
            f"{seen.learning} of {seen.layers} layers learn. Every one is to be adapted in the same way, and gradients "
            "must pass through the frozen layers as well: no `no_grad` and no `detach` there."
        )


def _example(make: Callable[..., nn.Module]) -> tuple[set[int], nn.Module]:
    """An adapted layer, and what tells the frozen one's own parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.Linear(INPUTS, OUTPUTS).requires_grad_(False)
        return {id(parameter) for parameter in layer.parameters()}, make(layer, 2)


def _own(make: Callable[..., nn.Module]) -> list[nn.Parameter]:
    """What the class brings beside the layer's own parameters."""
    known, adapted = _example(make)
    return [parameter for parameter in adapted.parameters() if id(parameter) not in known]


def _has_full_size(make: Callable[..., nn.Module]) -> bool:
    return any(parameter.numel() == INPUTS * OUTPUTS for parameter in _own(make))


def _has_biases(make: Callable[..., nn.Module]) -> bool:
    """Whether a vector of its own is as long as a thin matrix has rows."""
    return any(parameter.dim() == 1 and parameter.numel() in (2, OUTPUTS) for parameter in _own(make))


def _returns_nothing(make: Callable[..., nn.Module]) -> bool:
    return not _example(make)[1](torch.ones(1, INPUTS)).any()


adapt_layer = AdaptLayer()
