"""The real thing: a chain whose segments run through `torch.utils.checkpoint`.

A *segment* (first, last) is the run of parts first, first + 1, … last - 1. In the forward pass all of its maps but its
input are dropped, and computed again when the backward pass gets there. Works on real, fake and meta tensors alike, so
that what is trained is what is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from course_utils.units import CourseError

Segment = tuple[int, int]
Tree = tuple[tuple[Segment, "Tree"], ...]  # segments of one level, each with those inside it


def parts(module: nn.Module) -> dict[str, nn.Module]:
    """The parts of a chain by path, in the order in which they run: children of nn.Sequential, nested ones opened.

    Raises:
        CourseError: the module is no nn.Sequential, so its order is not known.
    """
    if isinstance(module, Checkpointed):
        raise CourseError("this chain is checkpointed already: give the network it was made of")
    if not isinstance(module, nn.Sequential):
        raise CourseError(
            f"{type(module).__name__} is no nn.Sequential, so nobody knows the order of its parts: "
            "write the network as a chain of layers and blocks"
        )
    return dict(_opened(module, ""))


def _opened(module: nn.Sequential, before: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        if isinstance(child, nn.Sequential):
            yield from _opened(child, f"{before}{name}.")
        else:
            yield before + name, child


def works_in_place(part: nn.Module) -> bool:
    """Whether a layer overwrites its input."""
    return bool(getattr(part, "inplace", False))


class Checkpointed(nn.Module):
    """A chain of which some segments are recomputed; made by `checkpointed`.

    The layers are those of the chain it was made of, under the same names and with the same parameters: training one
    trains the other.
    """

    def __init__(
        self, chain: nn.Sequential, segments: Iterable[Segment], preserve_rng_state: bool, keep_statistics: bool
    ) -> None:
        super().__init__()
        for name, child in chain.named_children():
            self.add_module(name, child)
        self.training = chain.training
        self.paths = tuple(parts(chain))
        self.segments = _sorted(segments, list(parts(chain).items()))
        self.preserve_rng_state, self.keep_statistics = preserve_rng_state, keep_statistics
        self._tree = _nested(self.segments)

    def forward(self, x: Tensor) -> Tensor:
        """As the chain."""
        return self._run(x, 0, len(self.paths), self._tree)

    def _run(self, x: Tensor, first: int, last: int, inside: Tree) -> Tensor:
        for step in self._steps(first, last, inside):  # one name for every map: a second would keep one alive
            x = step(x)
        return x

    def _steps(self, first: int, last: int, inside: Tree) -> Iterator[Callable[[Tensor], Tensor]]:
        """What runs one after the other: parts, and segments."""
        at = first
        for (begin, end), deeper in inside:
            yield from map(self.get_submodule, self.paths[at:begin])
            yield partial(
                checkpoint,
                partial(self._run, first=begin, last=end, inside=deeper),
                use_reentrant=False,
                preserve_rng_state=self.preserve_rng_state,
                context_fn=partial(self._contexts, begin, end),
            )
            at = end
        yield from map(self.get_submodule, self.paths[at:last])

    def _contexts(self, first: int, last: int) -> tuple[Any, Any]:
        """Where a segment runs the first time, and where it runs again."""
        if not self.keep_statistics:
            return nullcontext(), nullcontext()
        return nullcontext(), statistics_kept([self.get_submodule(path) for path in self.paths[first:last]])


def checkpointed(
    module: nn.Module,
    segments: Iterable[Segment],
    preserve_rng_state: bool = True,
    keep_statistics: bool = True,
) -> Checkpointed:
    """The same network with some segments recomputed in the backward pass: same output, same gradients, bit for bit.

    Args:
        module: an nn.Sequential of layers and blocks. It is not copied: the result has the same layers.
        segments: runs of parts, each (first, last) without last. Two of them are apart, or one lies within the other:
            the inner one is then recomputed within the recomputation of the outer one.
        preserve_rng_state: draw the same random numbers the second time. Without it dropout drops other values.
        keep_statistics: leave the running statistics of normalisation layers alone the second time. Without it, as in
            plain `torch.utils.checkpoint`, they move twice a step.

    Raises:
        CourseError: the module is no nn.Sequential, a segment is out of range, two of them overlap, or one begins with
            a layer that works in place and would overwrite the input it is to start from again.
    """
    parts(module)
    assert isinstance(module, nn.Sequential)
    return Checkpointed(module, segments, preserve_rng_state, keep_statistics)


@contextmanager
def statistics_kept(modules: Sequence[nn.Module]) -> Iterator[None]:
    """While active, normalisation layers in these modules compute as in training and update no running statistics."""
    norms = [n for m in modules for n in m.modules() if isinstance(n, _NormBase) and n.training]
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms if norm.track_running_stats]
    for norm, _, _ in before:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, momentum, tracked in before:
            norm.momentum, norm.num_batches_tracked = momentum, tracked


def evenly(module: nn.Module, count: int) -> tuple[Segment, ...]:
    """The chain in `count` segments with as many parts each, give or take one; the last is not among those returned.

    The backward pass begins with the last segment, so that dropping its maps would gain nothing. A cut before a layer
    that works in place moves behind it.

    Raises:
        CourseError: count is below 1 or above the number of parts, or the module is no nn.Sequential.
    """
    layers = list(parts(module).values())
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(layers):
        raise CourseError(
            f"segments must be a whole number from 1 to {len(layers)}, the parts there are; got {count!r}"
        )
    cuts = [0]
    for index in range(1, count):
        cut = round(index * len(layers) / count)
        while cut < len(layers) and works_in_place(layers[cut]):
            cut += 1
        if cut > cuts[-1] and cut < len(layers):
            cuts.append(cut)
    return tuple(pairwise(cuts))


def _sorted(segments: Iterable[Segment], layers: Sequence[tuple[str, nn.Module]]) -> tuple[Segment, ...]:
    """The segments, outer before inner, once they are found to be in order."""
    ordered = sorted((tuple(segment) for segment in segments), key=lambda segment: (segment[0], -segment[1]))
    for segment in ordered:
        if len(segment) != 2 or not 0 <= segment[0] < segment[1] <= len(layers):
            raise CourseError(f"segment {segment} is not (first, last) with 0 ≤ first < last ≤ {len(layers)}")
        name, part = layers[segment[0]]
        if works_in_place(part):
            raise CourseError(
                f"segment {segment} begins with {name}, which works in place: it would overwrite the input that the "
                "recomputation starts from. Begin it one part earlier or later"
            )
    for index, (first, last) in enumerate(ordered):
        for begin, end in ordered[index + 1 :]:
            if begin < last and (end > last or (begin, end) == (first, last)):
                raise CourseError(
                    f"segments ({first}, {last}) and ({begin}, {end}) overlap: keep them apart, or nest them"
                )
    return tuple((first, last) for first, last in ordered)


def _nested(segments: Sequence[Segment]) -> Tree:
    tree: list[tuple[Segment, Tree]] = []
    rest = list(segments)
    while rest:
        outer, *rest = rest
        inside = [segment for segment in rest if segment[1] <= outer[1]]
        tree.append((outer, _nested(inside)))
        rest = rest[len(inside) :]
    return tuple(tree)
