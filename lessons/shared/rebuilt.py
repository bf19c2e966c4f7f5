"""A network that a learner builds in another way, judged by what it is: shapes kept, all trained, how high its peak.

`look` is the reading that a check and a graded cell share. It looks at properties only, so any program whose network
has them passes. Nothing here knows a right answer.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from classroom.questions.core import Slip, percent
from classroom.questions.properties import PropertyCheck
from lessons.shared.watched import WatchedStep, step

STRAIGHT = (
    "An activation is missing: two layers with weights follow each other without a ReLU between them, and together "
    "they are one linear layer. Keep a ReLU behind every convolution."
)
NO_RELU = (
    "There are fewer ReLUs than convolutions. Keep a ReLU behind every convolution: it keeps its output, which the "
    "next convolution keeps anyway. Others may keep their input too, a second map a layer."
)
RELUS = frozenset("relu relu_ clamp clamp_ clamp_min clamp_min_ threshold threshold_ maximum where".split())
CHANGED = (
    "The first convolution does not read the images as they are. What makes maps small is to come behind it: details "
    "that are pooled away before are lost for every layer."
)
OTHER_SIDE = "A map has another size than the input."
MISFIT = re.compile(r"mat1 and mat2|size mismatch|expected input.* to have|Calculated output size|Kernel size can't")


@dataclass(frozen=True)
class Original:
    """The network handed out, and what is asked of another in its place.

    Attributes:
        build: makes it.
        input_shape: of one sample.
        classes: columns of its output.
        share: of its peak, as high as the other's may be.
        same_kernels: whether the parameters must have the same shapes, in any order.
        kernels: shapes of parameters that there must be at least so often: shape -> times. (3, 3) stands for every
            convolution of 3 × 3.
        full_size: whether every map must have the sides of the input, or a side of 1.
    """

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    share: float
    same_kernels: bool = True
    kernels: tuple[tuple[tuple[int, ...], int], ...] = ()
    full_size: bool = False

    def step(self, network: nn.Module, batch: int, device: str = "meta") -> WatchedStep:
        """A watched step of a network in its place, on shapes alone: what is asked for shows in them."""
        images = torch.zeros((batch, *self.input_shape), device=device)
        labels = torch.zeros(batch, dtype=torch.int64, device=device)
        return step(network.to(device), images, labels, (batch, self.classes))


@dataclass(frozen=True)
class RebuildLook:
    """What a network turned out to be. The fields after a failed one mean nothing."""

    original: Original
    kind: str  # of what was returned: "network", "ellipsis" or the name of another type
    misfit: str = ""  # why two layers do not fit each other, or ""
    returned: str = ""  # type of what forward returned
    shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    kernels_differ: str = ""
    without_gradient: tuple[str, ...] = ()
    ignores_images: bool = False  # some images of the batch do not go through every convolution
    operators: tuple[str, ...] = ()  # that launched a kernel
    straight: bool = False  # weights stand behind weights without an activation between
    other_activation: bool = False  # a convolution has no ReLU, but something else
    changed_first: bool = False  # the first convolution does not read the images as they are
    other_side: int = 0  # side of a map that has another size than the input, where none may
    peak: int = 0
    original_peak: int = 1

    @property
    def share(self) -> float:
        """The peak as a share of the original's."""
        return self.peak / self.original_peak

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        ran = self.peak > 0
        found = {
            "layers fit each other": self.kind == "network" and not self.misfit,
            "output shape kept": self.shape != () and self.shape == self.expected_shape,
            "everything trained": ran and not self.without_gradient,
            "all images count": ran and not self.ignores_images,
            "activations kept": ran and not self.straight and not self.other_activation,
            "peak low enough": 0 < self.peak <= self.original.share * self.original_peak,
        }
        if self.original.same_kernels or self.original.kernels:
            found["parameters kept"] = self.shape != () and not self.kernels_differ
        if self.original.full_size:
            found["sides kept"] = ran and not self.other_side
        else:
            found["images read whole"] = ran and not self.changed_first
        return found


def maker(answer: object) -> Callable[[], object] | None:
    """What makes the learner's network: a function without arguments, or a class; None for anything else."""
    if isinstance(answer, nn.Module) or not callable(answer):
        return None
    return answer


def look(make: Callable[[], object], original: Original, batch: int) -> RebuildLook:
    """Build the learner's network and look at one training step of it, on shapes.

    Raises what the learner's code raises, but for layers that misfit.
    """
    made = make()
    if not isinstance(made, nn.Module):
        return RebuildLook(original, type(made).__name__)
    seen = RebuildLook(original, "network", expected_shape=(batch, original.classes))
    try:
        step = original.step(made, batch)
    except Exception as failure:
        misfit = _misfit(make, original)
        if misfit:
            return replace(seen, misfit=misfit)
        raise failure from None
    seen = replace(seen, returned=type(step.output).__name__)
    if not isinstance(step.output, Tensor):
        return seen
    seen = replace(seen, shape=tuple(step.output.shape), kernels_differ=_other_kernels(step.parameters, original))
    if seen.shape != seen.expected_shape or seen.kernels_differ:
        return seen
    without = tuple(name for name in step.parameters if name not in step.gradients)
    side = original.input_shape[-1]
    return replace(
        seen,
        without_gradient=without or (() if step.trainable else ("the output",)),
        ignores_images=any(len(shape) < 4 or shape[0] != batch for shape in step.read),
        straight=step.straight,
        other_activation=sum(name in RELUS for name in step.operators) < step.operators.count("convolution"),
        changed_first=step.read[:1] != ((batch, *original.input_shape),),
        other_side=max((s for s in step.sides if original.full_size and s not in (1, side)), default=0),
        operators=step.operators,
        peak=step.peak,
        original_peak=original.step(original.build(), batch).peak,
    )


def _misfit(make: Callable[[], object], original: Original) -> str:
    """Why two layers do not fit each other, in the words a learner would see on a real image; "" if they do."""
    made = make()
    assert isinstance(made, nn.Module)
    try:
        original.step(made, 2, "cpu")
    except RuntimeError as error:
        if MISFIT.search(str(error)):
            return str(error).splitlines()[0]
        raise
    return ""


def _other_kernels(parameters: Mapping[str, tuple[int, ...]], original: Original) -> str:
    """A parameter shape that one of the two has too often or not often enough, or ""."""
    if not original.same_kernels:
        for wanted, often in original.kernels:
            found = sum(
                shape == wanted or (len(wanted) == 2 and len(shape) == 4 and shape[2:] == wanted)
                for shape in parameters.values()
            )
            if found < often:
                return f"parameters of shape {wanted}: {found}, where {often} are asked"
        return ""
    ours = Counter(tuple(p.shape) for p in original.build().parameters())
    theirs = Counter(parameters.values())
    for shape in [*ours, *theirs]:
        if ours[shape] != theirs[shape]:
            what = "less" if theirs[shape] < ours[shape] else "more"
            return f"one parameter of shape {shape} {what} than the original"
    return ""


class RebuildCheck(PropertyCheck[RebuildLook]):
    """The check of a question whose answer is a function that builds a network.

    Args:
        question: its name, and the function's.
        original: the network handed out, and what is asked.
        by_property: slips told apart by what their network is: "misfit", "another output", "other kernels",
            "untrained", "straight",
            "images changed", "shrunk", "grown", "risen", as many as the catalogue has.
        by_peak: slips told apart by their peak and what they run.
        takeaway: one sentence for whoever has it right.
        batch: at which the peaks are compared.
    """

    running = "Building or running the network"

    def __init__(
        self,
        question: str,
        original: Original,
        by_property: Mapping[str, Slip],
        by_peak: Sequence[Slip],
        takeaway: str,
        batch: int = 32,
    ) -> None:
        self.question = self.name = question
        self.original, self.takeaway, self.batch = original, takeaway, batch
        self.by_property, self.by_peak = dict(by_property), tuple(by_peak)
        self.slips = (*self.by_property.values(), *self.by_peak)

    def accept(self, answer: object) -> Callable[[], object] | None:
        """What makes the network: a function without arguments, or a class."""
        return maker(answer)

    def look(self, given: Callable[[], object]) -> RebuildLook:
        """The network that is built."""
        return look(given, self.original, self.batch)

    def praise(self, seen: RebuildLook) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def _told(self, name: str, otherwise: str) -> str:
        return self.by_property[name].message if name in self.by_property else otherwise

    def diagnose(self, seen: RebuildLook, given: Callable[[], object]) -> str:
        """What keeps the network from being right, or ""."""
        if seen.kind != "network":
            nothing = " Is there a `return`?" if seen.kind == "NoneType" else ""
            return f"`{self.question}()` returned a {seen.kind}, not a network.{nothing}"
        if seen.misfit:
            return f"{self._told('misfit', 'Two layers do not fit each other.')} (PyTorch: {seen.misfit}.)"
        if seen.returned != "Tensor":
            return f"The network returned a {seen.returned}, not a tensor."
        if seen.shape != seen.expected_shape:
            told = self._told("another output", "The output has another shape than the original's.")
            return f"{told} It is {seen.shape} and should be {seen.expected_shape}."
        if seen.kernels_differ:
            told = self._told("other kernels", "The parameters are not the original's.")
            return f"{told} ({seen.kernels_differ[0].upper()}{seen.kernels_differ[1:]}.)"
        if seen.without_gradient:
            told = self._told("untrained", "Not everything is trained any more.")
            return f"{told} (Without a gradient: {', '.join(seen.without_gradient[:3])}.)"
        if seen.ignores_images:
            return "Some images of the batch do not count: a convolution reads only a part of them."
        if seen.straight:
            return self._told("straight", STRAIGHT)
        if seen.other_activation:
            return NO_RELU
        if seen.other_side:
            told = self._told("shrunk" if seen.other_side < self.original.input_shape[-1] else "grown", OTHER_SIDE)
            return f"{told} (There are sides of {seen.other_side}.)"
        if not self.original.full_size and seen.changed_first:
            return self._told("images changed", CHANGED)
        now = f" It is {percent(seen.share)} of the original; at most {percent(self.original.share)} is asked."
        for slip in self.by_peak:
            if (seen.peak, seen.operators) == _slip_step(slip.function, self.original, self.batch):
                return slip.message + now
        if percent(seen.share) == percent(1.0):  # also where a few bytes came or went
            return "The peak is as high as it was." + now
        return (self._told("risen", "The peak has risen.") if seen.share > 1 else "The peak is still too high.") + now


@functools.cache
def _slip_step(make: Callable[[], Any], original: Original, batch: int) -> tuple[int, tuple[str, ...]]:
    step = original.step(make(), batch)
    return step.peak, step.operators
