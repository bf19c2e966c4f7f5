"""A network that a learner builds in another way, judged by what it is: shapes kept, all trained, how high its peak.

`look` is the reading that a check and a graded cell share. It looks at properties only, so any program whose network
has them passes. Nothing here knows a right answer. Must never import figures or explorers.
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

from course_utils.checks.core import Slip, percent
from course_utils.checks.properties import PropertyCheck
from course_utils.memory import Ledger
from course_utils.trace import TraceError, training_step

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

    def peak(self, batch: int) -> int:
        """Peak bytes of a traced step (momentum, CPU kernels: no workspace)."""
        return _original_peak(self.build, self.input_shape, self.classes, batch)


@dataclass(frozen=True)
class Look:
    """What a network turned out to be. The fields after a failed one mean nothing."""

    kind: str  # of what was returned: "network", "ellipsis" or the name of another type
    misfit: str = ""  # why two layers do not fit each other, or ""
    returned: str = "Tensor"  # type of what forward returned
    shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    kernels_differ: str = ""
    without_gradient: tuple[str, ...] = ()
    ignores_pictures: bool = False  # some pictures of the batch do not count for the output
    trace_error: str = ""
    shrunk: str = ""  # a layer whose map has another size than the input, where none may
    peak: int = 0
    original_peak: int = 1

    @property
    def share(self) -> float:
        """The peak as a share of the original's."""
        return self.peak / self.original_peak


def trace_peak(network: nn.Module, input_shape: tuple[int, ...], classes: int, batch: int) -> int:
    """Peak bytes of one training step, traced at this very batch. Raises TraceError."""
    return training_step(network, input_shape, classes, target="cpu").traced_at(batch).peak_bytes


@functools.cache
def _original_peak(build: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, batch: int) -> int:
    return trace_peak(build(), shape, classes, batch)


def maker(answer: object) -> Callable[[], object] | None:
    """What makes the learner's network: a function without arguments, or a class; None for anything else."""
    if isinstance(answer, nn.Module) or not callable(answer):
        return None
    return answer


def look(make: Callable[[], object], original: Original, batch: int, seed: int = 0) -> Look:
    """Build the learner's network and look at it. Raises what the learner's code raises, but for layers that misfit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = make()
        if not isinstance(made, nn.Module):
            return Look(type(made).__name__)
        pictures = torch.randn(batch, *original.input_shape, requires_grad=True)
    seen = Look("network", expected_shape=(batch, original.classes), original_peak=original.peak(batch))
    try:
        output = made(pictures)
    except RuntimeError as error:
        if MISFIT.search(str(error)):
            return replace(seen, misfit=str(error).splitlines()[0])
        raise
    if not isinstance(output, Tensor):
        return replace(seen, returned=type(output).__name__)
    seen = replace(seen, shape=tuple(output.shape), kernels_differ=_other_kernels(made, original))
    if seen.shape != seen.expected_shape or seen.kernels_differ:
        return seen
    without = tuple(n for n, p in made.named_parameters() if not p.requires_grad)
    if output.requires_grad:
        nn.functional.cross_entropy(output, torch.arange(batch) % original.classes).backward()
        without += tuple(n for n, p in made.named_parameters() if p.requires_grad and p.grad is None)
    else:
        without = without or ("the output",)
    if without:
        return replace(seen, without_gradient=without)
    if pictures.grad is None or not pictures.grad.flatten(1).any(1).all():
        return replace(seen, ignores_pictures=True)
    try:
        step = training_step(_made(make), original.input_shape, original.classes, target="cpu").traced_at(batch)
    except TraceError as error:
        return replace(seen, trace_error=str(error))
    return replace(seen, peak=step.peak_bytes, shrunk=_shrunk(step, original) if original.full_size else "")


def _shrunk(step: Ledger, original: Original) -> str:
    """The first layer whose map has neither the sides of the input nor a side of 1, or ""."""
    side = original.input_shape[-1]
    table = step.by_layer()
    shapes = zip(table["layer"], table["shape"], strict=True)
    return next((str(layer) for layer, shape in shapes if len(shape) == 4 and shape[-1] not in (1, side)), "")


def _made(make: Callable[[], object]) -> nn.Module:
    again = make()
    assert isinstance(again, nn.Module)
    return again


def _other_kernels(made: nn.Module, original: Original) -> str:
    """A parameter shape that one of the two has too often or not often enough, or ""."""
    if not original.same_kernels:
        shapes = [tuple(p.shape) for p in made.parameters()]
        for wanted, often in original.kernels:
            found = sum(
                shape == wanted or (len(wanted) == 2 and len(shape) == 4 and shape[2:] == wanted) for shape in shapes
            )
            if found < often:
                return f"parameters of shape {wanted}: {found}, where {often} are asked"
        return ""
    ours, theirs = (Counter(tuple(p.shape) for p in net.parameters()) for net in (original.build(), made))
    for shape in [*ours, *theirs]:
        if ours[shape] != theirs[shape]:
            what = "less" if theirs[shape] < ours[shape] else "more"
            return f"one parameter of shape {shape} {what} than the original"
    return ""


class RebuildCheck(PropertyCheck[Look]):
    """The check of a question whose answer is a function that builds a network.

    Args:
        question: its name, and the function's.
        original: the network handed out, and what is asked.
        by_property: slips told apart by what their network is: "misfit", "another output", "other kernels",
            "untrained", "shrunk", as many as the catalogue has, by these names.
        by_peak: slips told apart by their peak.
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

    def look(self, given: Callable[[], object]) -> Look:
        """The network that is built."""
        return look(given, self.original, self.batch)

    def praise(self, seen: Look) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def _told(self, name: str, otherwise: str) -> str:
        return self.by_property[name].message if name in self.by_property else otherwise

    def diagnose(self, seen: Look, given: Callable[[], object]) -> str:
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
        if seen.ignores_pictures:
            return "Some pictures of the batch do not count: whatever they show, the output is the same."
        if seen.trace_error:
            return f"The step cannot be traced: {seen.trace_error}"
        if seen.shrunk:
            told = self._told("shrunk", "A map has another size than the input.")
            return f"{told} (Layer {seen.shrunk}.)"
        if seen.share <= self.original.share:
            return ""
        now = f" It is {percent(seen.share)} of the original; at most {percent(self.original.share)} is asked."
        for slip in self.by_peak:
            if seen.peak == _slip_peak(slip.function, self.original, self.batch):
                return slip.message + now
        return f"The peak is still too high.{now}"


@functools.cache
def _slip_peak(make: Callable[[], Any], original: Original, batch: int) -> int:
    return trace_peak(make(), original.input_shape, original.classes, batch)
