"""Two recordings of one step, at two batches, become one `Tape`: every size as `fixed + per_sample * batch`.

Never extrapolates what does not fit: a size, a shape or an order of events that no straight line describes raises
`NotAffine` with the place. What two batches cannot show is a network that takes another path at some batches between
them alone, such as `if len(x) == 64`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from course_utils.memory import ROLE, Int64, Tape
from course_utils.trace.recorder import ALIVE, OPTIMIZER, UPDATE, Run


class NotAffine(Exception):
    """Two recordings do not lie on one straight line; the message says where."""


@dataclass(frozen=True)
class Update:
    """The recording of one `optimizer.step()` on tensors of its own, to be set behind any backward pass."""

    record: Run
    state: list[int]  # the storages of the optimizer's state
    before: int  # how many storages existed before it ran

    def after(self, first: int) -> Run:
        """State and temporaries with events counted from `first` on, and `zero_grad` at the end."""
        source, out = self.record, Run()
        for index in [*self.state, *range(self.before, len(source.size))]:
            lasting = index < self.before
            out.size.append(source.size[index])
            out.shape.append(source.shape[index])
            out.role.append(source.role[index])
            out.layer.append(source.layer[index])
            out.is_map.append(source.is_map[index])
            out.birth.append(0 if lasting else source.birth[index] + first)
            out.death.append(ALIVE if lasting else min(source.death[index], len(source.ops)) + first)
        for op, layer, traffic in zip(source.ops, source.event_layer, source.traffic, strict=True):
            out.event(op, UPDATE, layer, None, traffic)
        out.event("zero_grad", UPDATE, OPTIMIZER)
        return out


def make_tape(
    small: Run,
    large: Run | None,
    batches: tuple[int, int],
    update: Update | None,
    layer_parameters: dict[str, int],
) -> Tape:
    """The forward and backward pass, the update and zero_grad one after the other.

    Args:
        small: the forward and backward pass at the first of `batches`.
        large: the same at the second; None makes a tape of `small` alone, every size fixed.
        batches: the two batches, the smaller one first.
        update: the optimizer's step; None for inference.
        layer_parameters: layer -> number of parameters it owns.

    Raises:
        NotAffine: the two runs differ by more than sizes that grow in proportion to the batch.
    """
    if large is not None:
        _check_same_step(small, large, batches)
    fits = _Lines(batches, large is not None)
    other = small if large is None else large
    fixed, slope = fits.fit("the size of a tensor", small.size, other.size, small.layer)
    traffic = fits.fit("the traffic", small.traffic, other.traffic, small.event_layer)
    shapes = {
        layer: tuple(
            zip(*(c.tolist() for c in fits.fit("the shape", shape, other.layer_shapes[layer], [layer])), strict=True)
        )
        for layer, shape in small.layer_shapes.items()
    }
    extra = Run() if update is None else update.after(len(small.ops))
    end = len(small.ops) + len(extra.ops)  # one past the last event
    role = np.array([*small.role, *extra.role], dtype=np.int64)
    death = np.array([*small.death, *extra.death], dtype=np.int64)
    if update is not None:
        death[(role == ROLE["weight gradients"]) & (death >= ALIVE)] = end - 1  # zero_grad frees them
    layers = [*small.layer, *extra.layer]
    event_layers = [*small.event_layer, *extra.event_layer]
    names = tuple(dict.fromkeys([*event_layers, *layers]))
    code = {name: index for index, name in enumerate(names)}

    def count_flops() -> Int64:
        # Nothing is counted for the update: torch has no formulas for its operators.
        counted = np.zeros((end, 2), dtype=np.int64)
        lines = fits.fit("the arithmetic", small.flops(), other.flops(), small.event_layer)
        counted[: len(small.ops)] = np.stack(lines, axis=1)
        return counted

    def padded(values: Int64, more: Iterable[int]) -> Int64:
        return np.concatenate([values, np.array(list(more), dtype=np.int64)])

    return Tape(
        fixed=padded(fixed, extra.size),
        per_sample=padded(slope, [0] * len(extra.size)),
        role=role,
        layer=np.array([code[name] for name in layers], dtype=np.int64),
        birth=np.array([*small.birth, *extra.birth], dtype=np.int64),
        death=np.minimum(death, end),
        is_map=np.array([*small.is_map, *extra.is_map], dtype=np.bool_),
        event_ops=(*small.ops, *extra.ops),
        event_phase=np.array([*small.phase, *extra.phase], dtype=np.int64),
        event_layer=np.array([code[name] for name in event_layers], dtype=np.int64),
        event_traffic=np.stack(
            [padded(traffic[0], extra.traffic), padded(traffic[1], [0] * len(extra.traffic))], axis=1
        ),
        recomputed=np.array([*small.recomputed, *extra.recomputed], dtype=np.bool_),
        layer_names=names,
        layer_shapes=shapes,
        layer_parameters=layer_parameters,
        count_flops=count_flops,
        uses=np.array(small.uses, dtype=np.int64).reshape(-1, 3),
    )


@dataclass(frozen=True)
class _Lines:
    """Straight lines through values at two batches; flat ones if there is only one recording."""

    batches: tuple[int, int]
    sloped: bool

    def fit(self, what: str, first: Iterable[int], second: Iterable[int], layers: list[str]) -> tuple[Int64, Int64]:
        """(fixed, per sample) for each value, whole numbers that are not negative."""
        low = np.array(list(first), dtype=np.int64)
        if not self.sloped:
            return low, np.zeros_like(low)
        small, large = self.batches
        slope, rest = np.divmod(np.array(list(second), dtype=np.int64) - low, large - small)
        fixed = low - slope * small
        broken = np.flatnonzero((rest != 0) | (slope < 0) | (fixed < 0))
        if len(broken):
            raise NotAffine(
                f"{what} in {layers[min(int(broken[0]), len(layers) - 1)]} is not fixed + per_sample * batch"
            )
        return fixed, slope


def _check_same_step(small: Run, large: Run, batches: tuple[int, int]) -> None:
    """Raise NotAffine unless both runs did the same in the same order, each tensor growing by rows at most."""
    first, second = batches
    if small.ops != large.ops:
        differing = [i for i, (a, b) in enumerate(zip(small.ops, large.ops, strict=False)) if a != b]
        at = differing[0] if differing else min(len(small.ops), len(large.ops)) - 1
        raise NotAffine(f"{small.event_layer[at]} runs other operators at batch {first} than at {second}")
    ours, theirs = (
        (run.role, run.layer, run.birth, run.death, run.event_layer, run.layer_shapes.keys(), run.uses, run.recomputed)
        for run in (small, large)
    )
    if ours != theirs:
        raise NotAffine(f"tensors live differently at batch {first} than at {second}")
    for shape, other, layer in zip(small.shape, large.shape, small.layer, strict=True):
        growth = [b - a for a, b in zip(shape, other, strict=True) if a != b] if len(shape) == len(other) else [0, 0]
        if len(growth) > 1:
            raise NotAffine(f"a tensor in {layer} grows in more than one dimension with the batch")
        if growth and growth[0] % (second - first):
            raise NotAffine(f"a tensor in {layer} does not grow by whole rows with the batch")
