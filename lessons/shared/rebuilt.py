"""A network that a learner builds in another way, judged by what it is: shapes kept, all trained, how high its peak.

`record` is a training step of it, `judge` what that comes to: the reading that a check and a graded cell share. It is
compared with nothing but itself: its gradients have to be those that autograd finds for its own forward pass. It
looks at properties only, so any program whose network has them passes. Nothing here knows a right answer.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from classroom.questions.core import Slip, percent
from lessons.shared.activations import PRODUCTS, missing_activations
from lessons.shared.compared import same, same_each
from lessons.shared.judged import Unfit
from lessons.shared.network_questions import ReplayCheck
from lessons.shared.replay.form import DTYPES, Operator, Record, Ref
from lessons.shared.replay.replayer import Ran, slopes
from lessons.shared.replay.steps import Batch, Steps, named_inputs, record_steps, run
from lessons.shared.replay.witness import Write, recorded, written

STRAIGHT = (
    "An activation is missing: two layers with weights follow each other without a ReLU between them, and together "
    "they are one linear layer. Keep a ReLU behind every convolution."
)
NO_RELU = (
    "There are fewer ReLUs than convolutions. Keep a ReLU behind every convolution: it keeps its output, which the "
    "next convolution keeps anyway. Others may keep their input too, a second map a layer."
)
BORDERS = frozenset(("constant_pad_nd", "reflection_pad2d", "replication_pad2d"))
GRADIENTS = 1e-4  # relative: those of autograd, summed in another order
LEAST = 0.02  # of what a place in the images changes in the middle: what every place has to change at least
CHANGED = (
    "The first convolution does not read the images as they are. What makes maps small is to come behind it: details "
    "that are pooled away before are lost for every layer."
)
TWICE = (
    "Something is computed twice, as recomputation does (lesson 10): that saves memory for time. Asked is a network "
    "whose maps are smaller, and it computes no more than the original."
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

    def batch(self, images: int, seed: int) -> Batch:
        """Random images and labels."""
        draw = torch.Generator().manual_seed(seed)
        sizes = (images, *self.input_shape)
        return torch.randn(sizes, generator=draw), torch.randint(self.classes, (images,), generator=draw)

    def record(self, make: Callable[[], nn.Module], images: int, write: Write = recorded) -> Record:
        """A training step of a network in its place, and its output on the same images in evaluation.

        Raises what the network raises.
        """
        step, same_again = self.batch(images, 0), self.batch(images, 0)
        return record_steps(make, [step], self.classes, [same_again], write)


class Misfit(Unfit):
    """Why two layers do not fit each other, in torch's words."""


@dataclass(frozen=True)
class RebuildLook:
    """What a network turned out to be. The fields after a failed one mean nothing."""

    original: Original
    returned: str = ""  # type of what forward returned
    shape: tuple[int, ...] = ()
    expected_shape: tuple[int, ...] = ()
    kernels_differ: str = ""
    without_gradient: tuple[str, ...] = ()
    ignores_images: bool = False  # some images of the batch change nothing in the output
    ignored: str = ""  # a place in the images whose values change nothing in the output, or ""
    evaluates: bool = False  # in evaluation it computes the same, or, where it keeps statistics, tells images apart
    operators: tuple[str, ...] = ()  # that launched a kernel
    straight: bool = False  # weights stand behind weights without an activation between
    other_activation: bool = False  # a convolution, or a part of its map, has no ReLU
    changed_first: bool = False  # no convolution reads the images as they are, or something else does
    other_side: int = 0  # side of a map that has another size than the input, where none may
    peak: int = 0
    original_peak: int = 1
    flops: int = 0  # of the step's products and convolutions
    original_flops: int = 0

    @property
    def share(self) -> float:
        """The peak as a share of the original's."""
        return self.peak / self.original_peak

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        ran = self.peak > 0
        found = {
            "output shape kept": self.shape != () and self.shape == self.expected_shape,
            "everything trained": ran and not self.without_gradient,
            "every value counts": ran and not self.ignores_images and not self.ignored and self.evaluates,
            "activations kept": ran and not self.straight and not self.other_activation,
            "peak low enough": 0 < self.peak <= self.original.share * self.original_peak,
            "no more computed": ran and self.flops <= self.original_flops,
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


def record(make: Callable[[], object], original: Original, images: int, seed: int = 0) -> Record:
    """A training step of the network that a learner builds.

    Raises what the learner's code raises; Unfit where it builds no network, and Misfit for layers that do not fit.
    """

    def network() -> nn.Module:
        made = make()
        if made is ...:
            raise TypeError("an ellipsis is no network")
        if not isinstance(made, nn.Module):
            nothing = ". Is there a `return`?" if made is None else ""
            raise Unfit(f"your function returned a {type(made).__name__}, not a network{nothing}")
        return made

    try:
        return original.record(network, images)
    except RuntimeError as error:
        if MISFIT.search(str(error)):
            raise Misfit(str(error).splitlines()[0]) from None
        raise


def judge(record: Record, original: Original, images: int, seed: int = 1) -> RebuildLook:
    """What a record comes to, on weights and images drawn from this seed. Raises Refused."""
    seen = RebuildLook(original, expected_shape=(images, original.classes))
    batch = original.batch(images, seed)
    values = {**_values(record, seed), **named_inputs({}, {}, [batch], [original.batch(images, seed)])}
    steps, flops = _replayed(record, values)
    (step,) = steps.each
    seen = replace(seen, returned=step.returned)
    if step.output is None:
        return seen
    shapes = record.shapes("parameter ")
    differ = _other_numbers(record) or _other_kernels(shapes, original)
    seen = replace(seen, shape=tuple(step.output.shape), kernels_differ=differ)
    if seen.shape != seen.expected_shape or seen.kernels_differ:
        return seen
    slope = (torch.softmax(step.output, 1) - nn.functional.one_hot(batch[1], original.classes)) / images
    found = slopes(record, values, "output 1", slope)
    slopes_of = {name: found[f"parameter {name}"] for name in shapes}
    trained = same_each(step.gradients, slopes_of, GRADIENTS)
    forward = steps.replayed.ran[: steps.replayed.done["output 1"]]
    straight, other_activation = missing_activations(record, values, forward)
    theirs, original_flops = _steps(original.build, original, images)
    return replace(
        seen,
        without_gradient=tuple(
            name
            for name, right in trained.items()
            if not right or not slopes_of[name].any() or not _multiplies(record.inputs[f"parameter {name}"], forward)
        ),
        ignores_images=not bool((found["batch 1.0"] != 0).flatten(1).any(1).all()),
        ignored=_ignored(found["batch 1.0"]),
        evaluates=_evaluates(record, steps),
        straight=straight,
        other_activation=other_activation,
        changed_first=_changed_first(record, forward),
        other_side=_other_side(record, forward, original),
        operators=steps.replayed.operators,
        peak=steps.peak,
        original_peak=theirs.peak,
        flops=flops,
        original_flops=original_flops,
    )


def _values(record: Record, seed: int) -> dict[str, Tensor]:
    """Random values for the parameters and buffers of a record, such that no layer falls silent."""
    draw = torch.Generator().manual_seed(seed)
    values = {}
    for name, ref in record.inputs.items():
        if name.startswith(("parameter ", "buffer ")):
            size, dtype = ref.size, DTYPES[ref.dtype]
            fan_in = math.prod(size[1:]) if len(size) > 1 else 100
            value = torch.randn(size, generator=draw) * math.sqrt(2 / max(1, fan_in))
            values[name] = (1 + value.abs() if name.startswith("buffer ") else value).to(dtype)
    return values


def _ignored(slope: Tensor) -> str:
    """The first place whose values change nothing in any image, and how many more there are; "" if there is none."""
    most = slope.abs().amax(0)
    silent = (most <= LEAST * most.median()).nonzero()
    return f"{tuple(silent[0].tolist())}, and {len(silent) - 1:,} more" if len(silent) else ""


def _evaluates(record: Record, steps: Steps) -> bool:
    """Whether its output in evaluation is that in training, or, of a network with buffers, differs between images."""
    (found,), trained = steps.evaluated, steps.each[0].output
    if found is None or trained is None or found.shape != trained.shape:
        return False
    draws = any(isinstance(one, Operator) and one.draw is not None for one in record.entries)  # dropout
    keeps = draws or any(name.startswith("buffer ") for name in record.inputs)
    return bool(found.std(0).all()) if keeps else same(found, trained)


def _multiplies(weight: Ref, forward: Sequence[Ran]) -> bool:
    """Whether a parameter of two dimensions or more is a factor of a product with maps of all images."""
    using = [one for one in forward if any(ref.storage == weight.storage for ref in one.read)]
    return len(weight.size) < 2 or any(one.name in PRODUCTS for one in using)


def _changed_first(record: Record, forward: Sequence[Ran]) -> bool:
    """Whether something else than products of all their values is made of the images."""
    images = record.inputs["batch 1.0"]
    theirs = {images.storage}
    for one in forward:
        read = [ref for ref in one.read if ref.storage in theirs]
        if any(ref.size != images.size for ref in read if one.name == "convolution"):
            return True
        if read and one.name not in PRODUCTS:
            if any(math.prod(ref.size) < math.prod(images.size) for ref in one.made):
                return True
            theirs |= {ref.storage for ref in one.made}
    return False


def _other_side(record: Record, forward: Sequence[Ran], original: Original) -> int:
    """A side of a map that is neither the input's nor, behind all convolutions, 1, where that is asked; else 0."""
    side = original.input_shape[-1]
    weights = {ref.storage for ref in record.inputs.values()} - {record.inputs["batch 1.0"].storage}
    last = max((i for i, one in enumerate(forward) if one.name == "convolution"), default=-1)
    # What a border was put around for a convolution, which takes it off again.
    made = (ref for one in forward if one.name in BORDERS for ref in one.made if len(ref.size) == 4)
    bordered = {ref.storage for ref in made if min(ref.size[2:]) > side}
    for i, one in enumerate(forward if original.full_size else ()):
        for ref in (*one.read, *one.made):
            if ref.storage in bordered and (one.name in BORDERS or (one.name == "convolution" and ref in one.read)):
                continue
            sides = set(ref.size[2:]) if len(ref.size) == 4 and ref.storage not in weights else {side}
            if sides != {side} and not (sides == {1} and i > last):
                return next(iter(sides - {side}))
        if i < last and (pooled := _pooled(one, record.inputs["batch 1.0"].size)):
            return pooled
    return 0


def _pooled(one: Ran, images: tuple[int, ...]) -> int:
    """The side of what is left of maps where an operator makes fewer values of them, in whatever shape; else 0.

    Products may have fewer channels. A statistic has fewer values than a row of pixels.
    """
    most = max((math.prod(ref.size) for ref in one.read), default=0)
    made = max((math.prod(ref.size) for ref in one.made), default=0)
    if one.name in PRODUCTS or not images[0] * images[-1] <= made < most:
        return 0
    return max(1, math.isqrt(images[-1] ** 2 * made // most))


@functools.cache
def _steps(make: Callable[[], Any], original: Original, images: int) -> tuple[Steps, int]:
    found = original.record(make, images, written)
    return _replayed(found, {**_values(found, 1), **named_inputs({}, {}, *([original.batch(images, 1)] for _ in "12"))})


def _replayed(record: Record, values: Mapping[str, Tensor]) -> tuple[Steps, int]:
    """What a record comes to, and the FLOP of its products and convolutions, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        steps = run(record, values, others=1)
    return steps, counter.get_total_flops()


def _other_numbers(record: Record) -> str:
    """A kind of numbers with fewer bits than float32 that parameters or maps are of, in words, or ""."""
    made = (ref for one in record.entries if isinstance(one, Operator) for ref in one.made if ref is not None)
    few = {ref.dtype for ref in (*record.inputs.values(), *made)} & {"torch.float16", "torch.bfloat16"}
    return f"numbers of {min(few)}, where float32 is asked" if few else ""


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


class RebuildCheck(ReplayCheck[RebuildLook]):
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
        batch: int = 24,
    ) -> None:
        self.question = self.name = question
        self.original, self.takeaway, self.batch = original, takeaway, batch
        self.by_property, self.by_peak = dict(by_property), tuple(by_peak)
        self.slips = (*self.by_property.values(), *self.by_peak)

    def accept(self, answer: object) -> Callable[[], object] | None:
        """What makes the network: a function without arguments, or a class."""
        return maker(answer)

    def record(self, given: Callable[[], object]) -> Record:
        """A step of the network that is built."""
        try:
            return record(given, self.original, self.batch)
        except Misfit as misfit:
            told = self._told("misfit", "Two layers do not fit each other.")
            raise Unfit(f"{told} (PyTorch: {misfit}.)") from None

    def judge(self, record: Record, seed: int) -> RebuildLook:
        """What it comes to."""
        return judge(record, self.original, self.batch, seed)

    def praise(self, seen: RebuildLook) -> str:
        """How far the peak falls."""
        return f"The peak falls to {percent(seen.share)}. {self.takeaway}"

    def _told(self, name: str, otherwise: str) -> str:
        return self.by_property[name].message if name in self.by_property else otherwise

    def diagnose(self, seen: RebuildLook, given: Callable[[], object]) -> str:
        """What keeps the network from being right, or ""."""
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
            return "Some images of the batch do not count: the output does not depend on them."
        if not seen.evaluates:
            return "In evaluation, after `eval()`, the network computes something else than in training."
        if seen.straight:
            return self._told("straight", STRAIGHT)
        if seen.other_activation:
            return NO_RELU
        if seen.other_side:
            told = self._told("shrunk" if seen.other_side < self.original.input_shape[-1] else "grown", OTHER_SIDE)
            return f"{told} (There are sides of {seen.other_side}.)"
        if not self.original.full_size and seen.changed_first:
            return self._told("images changed", CHANGED)
        if seen.ignored:
            return (
                f"Something is thrown away: the output does not depend on the values at {seen.ignored}, of any image."
            )
        if seen.share <= self.original.share:
            return f"{TWICE} (A step computes {seen.flops / seen.original_flops:.2f} times as much.)"
        now = f" It is {percent(seen.share)} of the original; at most {percent(self.original.share)} is asked."
        for slip in self.by_peak:
            steps, _ = _steps(slip.function, self.original, self.batch)
            if (seen.peak, seen.operators) == (steps.peak, steps.replayed.operators):
                return slip.message + now
        if percent(seen.share) == percent(1.0):  # also where a few bytes came or went
            return "The peak is as high as it was." + now
        return (self._told("risen", "The peak has risen.") if seen.share > 1 else "The peak is still too high.") + now
