"""Two recordings of one step, at two batches, become one `Tape`: every size as `fixed + per_sample * batch`.

Never extrapolates what does not fit: a size, a shape or an order of events that no straight line describes raises
`NotAffine` with the place. What two batches cannot show is a network that takes another path at some batches between
them alone, such as `if len(x) == 64`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from course_utils.memory import ROLE, Int64, Tape
from course_utils.trace.record import ALIVE, UPDATE, Event, Run, flops
from course_utils.trace.recorder import OPTIMIZER


class NotAffine(Exception):
    """Two recordings do not lie on one straight line; the message says where."""


@dataclass(frozen=True)
class Update:
    """The recording of one `optimizer.step()` on tensors of its own, to be set behind any backward pass."""

    record: Run
    state: list[int]  # the storages of the optimizer's state, those included that take the place of others
    before: int  # how many storages existed before it ran
    uncleared: list[int]  # parameters that it does not update, and whose gradients its zero_grad leaves alone
    freed: dict[int, int]  # places in `Run.handed` of what it lets go of -> before which of its events

    def after(self, first: int, clears: bool) -> Run:
        """State and temporaries with events counted from `first` on, and `zero_grad` at the end if it `clears`."""
        source, out, state = self.record, Run(), set(self.state)
        for number, storage in enumerate(source.storages):
            if number >= self.before or number in state:
                kept = number in state and storage.death == ALIVE
                birth = 0 if number < self.before else storage.birth + first
                death = ALIVE if kept else min(storage.death, len(source.events)) + first
                out.storages.append(replace(storage, birth=birth, death=death))
        # Without their work: torch has no formulas for an update's operators.
        out.events = [Event(event.op, UPDATE, event.layer, traffic=event.traffic) for event in source.events]
        out.events.append(Event("zero_grad" if clears else "end", UPDATE, OPTIMIZER))
        return out


def make_tape(
    small: Run,
    large: Run,
    batches: tuple[int, int],
    update: Update | None,
    layer_parameters: dict[str, int],
    clears: bool,
) -> Tape:
    """The forward and backward pass, the update and zero_grad one after the other.

    Forward and backward ran at both `batches`, the smaller one first; one run given twice makes a tape of it alone,
    every size fixed. Inference has no update. A step that `clears` ends with a zero_grad that frees the gradients.

    Raises NotAffine where the two runs differ by more than sizes that grow in proportion to the batch.
    """
    if large is not small:
        _check_same_step(small, large, batches)
    fit = partial(_fit, batches)
    extra = Run() if update is None else update.after(len(small.events), clears)  # the same at every batch
    storages, events = [*small.storages, *extra.storages], [*small.events, *extra.events]
    grown, later = [*large.storages, *extra.storages], [*large.events, *extra.events]
    ran_in = [event.layer for event in events]
    fixed, per_sample = fit(
        "the size of a tensor",
        [storage.size for storage in storages],
        [storage.size for storage in grown],
        [storage.layer for storage in storages],
    )
    traffic = fit("the traffic", [event.traffic for event in events], [event.traffic for event in later], ran_in)
    shapes = {
        layer: tuple(
            zip(*(c.tolist() for c in fit("the shape", shape, large.layer_shapes[layer], [layer])), strict=True)
        )
        for layer, shape in small.layer_shapes.items()
    }
    end = len(events)  # one past the last event
    role, birth, death = np.array([(one.role, one.birth, one.death) for one in storages], dtype=np.int64).T
    if update is not None and clears:
        death[(role == ROLE["weight gradients"]) & (birth > 0) & (death >= ALIVE)] = end - 1  # zero_grad frees them
    for place, event in {} if update is None else update.freed.items():
        if (handed := small.handed[place]) is not None:
            death[handed] = len(small.events) + event
    names = tuple(dict.fromkeys([*(event.layer for event in events), *(storage.layer for storage in storages)]))
    code = {name: index for index, name in enumerate(names)}

    work, other_work = ([event.work for event in ran] for ran in (events, later))  # all that is kept of the runs

    def count_flops() -> Int64:
        return np.stack(fit("the arithmetic", flops(work), flops(other_work), ran_in), axis=1)

    return Tape(
        fixed=fixed,
        per_sample=per_sample,
        role=role,
        layer=np.array([code[storage.layer] for storage in storages], dtype=np.int64),
        birth=birth,
        death=np.minimum(death, end),
        is_map=np.array([storage.is_map for storage in storages], dtype=np.bool_),
        event_ops=tuple(event.op for event in events),
        event_phase=np.array([event.phase for event in events], dtype=np.int64),
        event_layer=np.array([code[event.layer] for event in events], dtype=np.int64),
        event_traffic=np.stack(traffic, axis=1),
        recomputed=np.array([event.recomputed for event in events], dtype=np.bool_),
        layer_names=names,
        layer_shapes=shapes,
        layer_parameters=layer_parameters,
        count_flops=count_flops,
        uses=np.array(small.uses(), dtype=np.int64).reshape(-1, 3),
    )


def in_proportion(small: Run, large: Run, batches: tuple[int, int]) -> bool:
    """Whether all that grows does so from nothing: then a line through two batches is one through all."""
    first, second = batches
    return all(
        a == b or a * second == b * first
        for one, other in zip(small.storages, large.storages, strict=True)
        for a, b in zip(one.shape, other.shape, strict=True)
    )


def check_third(tape: Tape, run: Run, batch: int) -> None:
    """Raise NotAffine unless a run at a third batch lies on the lines: a square in one dimension does not."""
    sizes = [storage.size for storage in run.storages]
    expected = (tape.fixed + tape.per_sample * batch)[: len(sizes)].tolist()
    ran = [event.op for event in run.events]
    broken = [i for i, (one, other) in enumerate(zip(sizes, expected, strict=True)) if one != other]
    if broken or ran != list(tape.event_ops[: len(ran)]):
        layer = run.storages[broken[0]].layer if broken else "the step"
        raise NotAffine(f"the size of a tensor in {layer} is not fixed + per_sample * batch")


def _fit(
    batches: tuple[int, int], what: str, first: Sequence[int], second: Sequence[int], layers: list[str]
) -> tuple[Int64, Int64]:
    """(fixed, per sample) of straight lines through values at two batches, whole numbers that are not negative."""
    small, large = batches
    low = np.array(first, dtype=np.int64)
    slope, rest = np.divmod(np.array(second, dtype=np.int64) - low, large - small)
    fixed = low - slope * small
    broken = np.flatnonzero((rest != 0) | (slope < 0) | (fixed < 0))
    if len(broken):
        raise NotAffine(f"{what} in {layers[min(int(broken[0]), len(layers) - 1)]} is not fixed + per_sample * batch")
    return fixed, slope


def _check_same_step(small: Run, large: Run, batches: tuple[int, int]) -> None:
    """Raise NotAffine unless both runs did the same in the same order, each tensor growing by rows at most."""
    first, second = batches
    ran, ran_then = ([event.op for event in run.events] for run in (small, large))
    if ran != ran_then:
        differing = [i for i, (a, b) in enumerate(zip(ran, ran_then, strict=False)) if a != b]
        at = differing[0] if differing else min(len(ran), len(ran_then)) - 1
        raise NotAffine(f"{small.events[at].layer} runs other operators at batch {first} than at {second}")
    if _lived(small) != _lived(large):
        raise NotAffine(f"tensors live differently at batch {first} than at {second}")
    for storage, grown in zip(small.storages, large.storages, strict=True):
        shape, other, layer = storage.shape, grown.shape, storage.layer
        growth = [b - a for a, b in zip(shape, other, strict=True) if a != b] if len(shape) == len(other) else [0, 0]
        if len(growth) > 1:
            raise NotAffine(f"a tensor in {layer} grows in more than one dimension with the batch")
        if growth and growth[0] % (second - first):
            raise NotAffine(f"a tensor in {layer} does not grow by whole rows with the batch")


_OF_STORAGE = attrgetter("role", "layer", "birth", "death")
_OF_EVENT = attrgetter("layer", "reads", "writes", "recomputed")


def _lived(run: Run) -> tuple[Any, ...]:
    """What must be the same at every batch, but for the operators themselves."""
    return [*map(_OF_STORAGE, run.storages)], [*map(_OF_EVENT, run.events)], run.layer_shapes.keys()
