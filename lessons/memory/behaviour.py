"""The check of question 6 of exercise 03: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip, percent
from lessons.shared import rewrites
from lessons.shared.network_questions import NetworkCheck
from lessons.shared.replay.form import Record
from lessons.shared.replay.witness import written
from lessons.shared.rewrites import RewriteComparison, Watched

# -- 6. a network that keeps less ------------------------------------------------------------------------------------

BATCH = 8


class _Leaky(Watched):
    """What the slips of question 6 have in common: a list that is filled map by map."""

    def keep(self, x: Tensor) -> Tensor:
        return x

    def forward(self, images: Tensor) -> Tensor:
        self.maps = []
        x = images
        for layer in self.layers:
            x = layer(x)
            self.maps.append(self.keep(x))
        return x


class _Detached(_Leaky):
    def keep(self, x: Tensor) -> Tensor:
        return x.detach()


class _Cloned(_Leaky):
    def keep(self, x: Tensor) -> Tensor:
        return x.clone().detach()


class _InPlace(_Leaky):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            if isinstance(layer, nn.ReLU):
                layer.inplace = True


class _ClearedAtTheEnd(_Leaky):
    def forward(self, images: Tensor) -> Tensor:
        x = super().forward(images)
        self.maps.clear()
        return x


class _NeverCleared(_Leaky):
    def forward(self, images: Tensor) -> Tensor:
        before = getattr(self, "maps", [])
        x = super().forward(images)
        self.maps = before + self.maps
        return x


class _WithoutGradient(Watched):
    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.layers(images)  # type: ignore[no-any-return]


class _DetachedOnTheWay(Watched):
    def forward(self, images: Tensor) -> Tensor:
        x = images
        for layer in self.layers:
            x = layer(x.detach())
        return x


class _LayerDropped(Watched):
    def forward(self, images: Tensor) -> Tensor:
        x = images
        for layer in [*self.layers[:4].children(), *self.layers[8:].children()]:
            x = layer(x)
        return x


class _OtherShape(Watched):
    def forward(self, images: Tensor) -> Tensor:
        return self.layers[:-1](images)  # type: ignore[no-any-return]


class _OtherParameters(Watched):
    def __init__(self) -> None:
        super().__init__(width=8)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)  # type: ignore[no-any-return]


class KeepLess(NetworkCheck[RewriteComparison]):
    """The check of question 6: a class whose forward is rewritten, judged by the properties of the network it makes."""

    question, name, blank = "keep_less", "KeepsLess", "KeepsLess.forward"
    takeaway = (
        "A reference is enough to keep a map alive: what nobody holds is freed as soon as autograd is done with it."
    )
    by_peak = (
        Slip(
            "still in the list",
            _Detached,
            "The peak has not moved by a byte. A list that holds a map keeps it alive. `.detach()` cuts the map from "
            "the graph and shares its memory, and `.cpu()` gives a map that is on the CPU as it is.",
        ),
        Slip(
            "cloned into the list",
            _Cloned,
            "The peak has risen. `clone()` makes a second copy of every map, and the list keeps it.",
        ),
        Slip(
            "in-place ReLU",
            _InPlace,
            "In-place ReLU only makes the list hold one tensor where it held two; every map still lives to the end of "
            "the step. Without the list it would save nothing at all.",
        ),
        Slip(
            "cleared at the end of forward",
            _ClearedAtTheEnd,
            "The list is emptied too late: when forward ends, every map has already been alive at once.",
        ),
    )
    by_property = (
        Slip(
            "the list grows for ever",
            _NeverCleared,
            "The list is never emptied: every step adds its maps, and memory grows until none is left.",
        ),
        Slip(
            "torch.no_grad",
            _WithoutGradient,
            "The output has no gradient any more, so the network cannot learn. What autograd keeps is needed; "
            "what the list keeps is not.",
        ),
        Slip(
            "detached on the way",
            _DetachedOnTheWay,
            "The output is right, but early layers get no gradient: something detaches the maps on their way.",
        ),
        Slip(
            "a layer dropped",
            _LayerDropped,
            "The output is not the original's: a layer is left out, or they run in another order.",
        ),
        Slip("another shape", _OtherShape, "The output has another shape than the original's."),
        Slip(
            "other parameters",
            _OtherParameters,
            "The parameters are not the original's. Leave `__init__` alone; only `forward` needs to change.",
        ),
    )
    slips: Sequence[Slip] = (*by_peak, *by_property)

    def record(self, given: Callable[[], nn.Module]) -> Record:
        """Two steps of the network."""
        return rewrites.record(given, BATCH)

    def judge(self, record: Record, seed: int) -> RewriteComparison:
        """What they come to beside `Watched`."""
        return rewrites.judge(record, BATCH, seed)

    def praise(self, seen: RewriteComparison) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def diagnose(self, seen: RewriteComparison, given: Callable[[], nn.Module]) -> str:
        """What keeps the network from being right, or ""."""
        unlike = seen.unlike(self.told("other parameters"), self.told("another shape"))
        if unlike:
            return unlike
        if not seen.same_output:
            without = f" `{seen.without_gradient[0]}` gets no gradient." if seen.without_gradient else ""
            return self.told("a layer dropped") + without
        if not seen.trainable:
            return self.told("torch.no_grad")
        if not seen.same_gradients:
            return self.told("detached on the way")
        if seen.leaks:
            return self.told("the list grows for ever")
        if seen.elsewhere:
            return seen.elsewhere
        now = f" It is {percent(seen.share)} of the original; at most {percent(rewrites.SHARE)} is asked."
        for slip in self.by_peak:
            if seen.peak == _slip_peak(slip.function):
                return slip.message + now
        count = rewrites.tensors_kept(given, BATCH)
        kept = f" After a forward pass the network still holds {count} tensors." if count else ""
        return f"The peak is still too high.{now}{kept}"


@functools.cache
def _slip_peak(make: Callable[[], nn.Module]) -> int:
    return rewrites.judge(rewrites.record(make, BATCH, write=written), BATCH).peak


keep_less = KeepLess()
