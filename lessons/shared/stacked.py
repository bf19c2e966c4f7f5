"""The step of a stack of many equal layers from the traced step of a short one, exactly.

Every layer of a transformer does what its neighbours do, so its events repeat with one period in the forward pass and
with one in the backward pass. A tape of SHORT layers is cut there and the middle put in again as often as is wanted;
tapes at two lengths of sequence give every other, where sizes are affine in it. What does not repeat is refused, never
guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from course_utils.memory import PHASES, ROLE, Int64, Tape
from course_utils.units import CourseError

SHORT = 5  # layers traced: the first two, one that is repeated, the last two; a map may outlive the layer after its own
REPEATED = 2
_LAYER = re.compile(r"^layers\.(\d+)")


class NotAlike(CourseError):
    """A step whose units do not all do the same, or reach further than to their neighbours."""


def _unit_of(name: str, group: int) -> int:
    found = _LAYER.match(name)
    return int(found.group(1)) // group if found else -1


@dataclass(frozen=True)
class _Pass:
    """Where the layers of one pass begin, by layer, and where the last one to run ends; nothing where none runs."""

    begins: tuple[int, ...]
    end: int

    @property
    def runs(self) -> bool:
        return bool(self.begins)

    @property
    def period(self) -> int:
        """Events of a layer."""
        return abs(self.begins[REPEATED + 1] - self.begins[REPEATED]) if self.runs else 0

    def layer(self, event: int) -> int:
        """Which layer an event belongs to; -1 for none."""
        begun = [i for i, begin in enumerate(self.begins) if begin <= event < self.end]
        return max(begun, key=lambda i: self.begins[i], default=-1)


def _alike(tape: Tape, group: int) -> bool:
    """Whether the repeated unit has the parameters and the shapes of those beside it."""
    names = [name for name in tape.layer_names if _unit_of(name, group) == REPEATED]
    beside = [[_moved(name, by * group) for name in names] for by in (-1, 0, 1)]
    looks = [[(tape.layer_parameters.get(n), tape.layer_shapes.get(n)) for n in unit] for unit in beside]
    return looks[0] == looks[1] == looks[2]


def _moved(name: str, further: int) -> str:
    return _LAYER.sub(lambda found: f"layers.{int(found[1]) + further}", name)


def _pass(tape: Tape, phase: str, group: int) -> _Pass:
    layers = np.array([_unit_of(name, group) for name in tape.layer_names])[tape.event_layer]
    here = (tape.event_phase == PHASES.index(phase)) & (layers >= 0)
    if not here.any():
        return _Pass((), 0)
    found = [np.flatnonzero(here & (layers == i)) for i in range(SHORT)]
    if not all(len(events) for events in found):
        raise NotAlike(f"not every layer has a part in the {phase} pass: a stack cannot be made of it")
    begins = tuple(int(events[0]) for events in found)
    gaps = np.abs(np.diff(begins if phase == "forward" else begins[1:]))
    ran = {tape.event_ops[begin : begin + int(gaps[1])] for begin in begins[REPEATED - 1 : REPEATED + 2]}
    if len({*gaps.tolist()}) > 1 or len(ran) > 1 or not _alike(tape, group):
        raise NotAlike(f"the layers do not do the same in the {phase} pass: a stack cannot be made of them")
    return _Pass(begins, int(np.flatnonzero(here)[-1]) + 1)


class _Stack:
    """Events and storages of a tape of SHORT layers, placed in one of more."""

    def __init__(self, tape: Tape, units: int, group: int) -> None:
        self.tape, self.extra = tape, units - SHORT
        self.forward, self.backward = _pass(tape, "forward", group), _pass(tape, "backward", group)
        self.layers = [_unit_of(name, group) for name in tape.layer_names]
        self.updated = self._updated()

    def _updated(self) -> dict[int, int]:
        """The layers of what an optimizer makes on the way: one tensor for each parameter, in their order, or none."""
        tape = self.tape
        state = np.flatnonzero((tape.role == ROLE["optimizer state"]) & (tape.birth == 0))
        events = np.minimum(tape.birth, tape.events - 1)
        made = np.flatnonzero((tape.birth > 0) & (tape.event_phase[events] == PHASES.index("update")))
        found: dict[int, int] = {}
        for event in np.unique(tape.birth[made]):
            group = made[tape.birth[made] == event]
            if len(group) > 1 and len(state) % len(group) == 0:
                of_state = tape.layer[state[:: len(state) // len(group)]]
                found |= {int(s): self.layers[layer] for s, layer in zip(group, of_state, strict=True)}
        return found

    def place(self, event: int, copy: int) -> int:
        """Where an event is among more layers; `copy` says in which copy of the repeated layer, if it is of that."""
        ahead, back, extra = self.forward, self.backward, self.extra
        layer = ahead.layer(event)
        if layer == REPEATED:
            return event + copy * ahead.period
        if event < ahead.begins[REPEATED]:
            return event
        shifted = event + extra * ahead.period
        if not back.runs or event < back.begins[REPEATED]:
            return shifted
        if back.layer(event) == REPEATED:
            return shifted + (extra - copy) * back.period
        return shifted + extra * back.period

    def owner(self, storage: int) -> int:
        """The layer that a storage belongs to: where it is born; of what is there from the start, by its name."""
        tape, born = self.tape, int(self.tape.birth[storage])
        if storage in self.updated:
            return self.updated[storage]
        if born == 0 or born >= tape.events or tape.event_phase[born] == PHASES.index("update"):
            return self.layers[int(tape.layer[storage])]
        layer = self.forward.layer(born)
        return self.backward.layer(born) if layer < 0 and self.backward.runs else layer

    def death(self, storage: int, owner: int, copy: int) -> int:
        """Where a storage of this copy of its owner ends. Raises NotAlike for a life that does not repeat."""
        event = int(self.tape.death[storage])
        part = next((p for p in (self.forward, self.backward) if p.runs and p.layer(event) >= 0), None)
        if part is None:
            return self.place(event, 0)
        at = part.layer(event)
        if owner < 0:
            if at == REPEATED:
                raise NotAlike("a tensor from outside the layers ends in the midst of them")
            return self.place(event, 0)
        if abs(at - owner) > REPEATED:
            raise NotAlike(f"a tensor of layer {owner} ends in layer {at}, too far for a stack to be made of it")
        now = at - owner + (owner if owner < REPEATED else owner + copy if owner == REPEATED else owner + self.extra)
        if now < REPEATED:
            old, into = now, 0
        elif now <= REPEATED + self.extra:
            old, into = REPEATED, now - REPEATED
        else:
            old, into = now - self.extra, 0
        return self.place(event - part.begins[at] + part.begins[old], into)


def deepened(tape: Tape, units: int, group: int = 1) -> Tape:
    """The tape of a stack of so many equal units, from that of one of SHORT.

    Layers are called "layers.0", "layers.1", … . What each tensor is used by (`Tape.uses`) is left out.

    Args:
        tape: the step of SHORT units.
        units: how many, at least SHORT.
        group: layers in a unit.

    Raises:
        NotAlike: fewer than SHORT units, or a step whose units do not all do the same.
    """
    if units < SHORT:
        raise NotAlike(f"a stack is made of {SHORT} layers or more, got {units}")
    stack = _Stack(tape, units, group)
    extra = stack.extra
    names = [_renamed(name, extra, copy, group) for copy in range(extra + 1) for name in tape.layer_names]
    known = {name: code for code, name in enumerate(dict.fromkeys(names))}
    code = np.array([known[name] for name in names], dtype=np.int64).reshape(extra + 1, -1)

    total = stack.place(tape.events, 0)
    source, copies = np.zeros(total, dtype=np.int64), np.zeros(total, dtype=np.int64)
    for event in range(tape.events):
        repeated = REPEATED in (stack.forward.layer(event), stack.backward.layer(event))
        for copy in range(extra + 1 if repeated else 1):
            at = stack.place(event, copy)
            source[at], copies[at] = event, copy

    rows: list[tuple[int, int, int, int]] = []  # storage, copy, birth, death
    for storage in np.flatnonzero(tape.fixed | tape.per_sample).tolist():  # what a kernel does not make has no bytes
        owner, born = stack.owner(storage), int(tape.birth[storage])
        for copy in range(extra + 1 if owner == REPEATED else 1):
            rows.append((storage, copy, stack.place(born, copy), stack.death(storage, owner, copy)))
    taken, copied, birth, death = np.array(rows, dtype=np.int64).T
    end = np.minimum(death, total)
    return replace(
        tape,
        fixed=tape.fixed[taken],
        per_sample=tape.per_sample[taken],
        role=tape.role[taken],
        layer=code[copied, tape.layer[taken]],
        birth=birth,
        death=end,
        is_map=tape.is_map[taken],
        event_ops=tuple(tape.event_ops[event] for event in source),
        event_phase=tape.event_phase[source],
        event_layer=code[copies, tape.event_layer[source]],
        event_traffic=tape.event_traffic[source],
        recomputed=tape.recomputed[source],
        layer_names=tuple(known),
        layer_shapes=_repeated(tape.layer_shapes, extra, group),
        layer_parameters=_repeated(tape.layer_parameters, extra, group),
        count_flops=lambda: tape.event_flops[source],
        uses=np.zeros((0, 3), dtype=np.int64),
    )


def _renamed(name: str, extra: int, copy: int, group: int) -> str:
    unit = _unit_of(name, group)
    further = copy if unit == REPEATED else extra * (unit > REPEATED)
    return _moved(name, further * group) if further else name


def _repeated(by_layer: dict[str, Any], extra: int, group: int) -> dict[str, Any]:
    """The same for more units, in the order in which they run."""
    middle = [name for name in by_layer if _unit_of(name, group) == REPEATED]
    copies = {_renamed(name, extra, copy, group): by_layer[name] for copy in range(extra + 1) for name in middle}
    found: dict[str, Any] = {}
    for name, value in by_layer.items():
        found |= copies if name in middle else {_renamed(name, extra, 0, group): value}
    return found


def between(one: tuple[int, Tape], other: tuple[int, Tape], at: int) -> Tape:
    """The tape at another size, such as the length of a sequence, from those at two: every number on a straight line.

    Args:
        one: a size and the tape at it.
        other: another size, and its tape.
        at: the size asked for.

    Raises:
        CourseError: the two steps are not alike, or a number is not affine in the size.
    """
    (low, small), (high, large) = one, other
    alike = small.event_ops == large.event_ops and all(
        np.array_equal(getattr(small, name), getattr(large, name))
        for name in ("birth", "death", "role", "layer", "event_layer", "event_phase")
    )
    if not alike:
        raise CourseError(f"the step at {low} and at {high} is not the same one: nothing between them can be told")

    def line(name: str) -> Int64:
        first, second = getattr(small, name), getattr(large, name)
        slope, rest = np.divmod(second - first, high - low)
        if rest.any():
            raise CourseError(f"{name} is not affine between {low} and {high}")
        found: Int64 = first + slope * (at - low)
        return found

    def not_counted() -> Int64:
        raise CourseError("arithmetic is counted at a traced size alone: attention's is not affine in the sequence")

    return replace(
        small, fixed=line("fixed"), per_sample=line("per_sample"), event_traffic=line("event_traffic"),
        layer_shapes={}, count_flops=not_counted,
    )  # fmt: skip


def stepped_in_backward(tape: Tape) -> Tape:
    """The same step with the optimizer run on each weight as soon as its gradient is whole, which then goes.

    A gradient ends with the event behind the one that wrote it last: counted, not traced. The update that follows the
    backward pass is left as it is, with no gradients; an optimizer of one kernel makes nothing besides.
    """
    writes = np.zeros(len(tape.role), dtype=np.int64)
    written = tape.uses[tape.uses[:, 2] == 1]
    np.maximum.at(writes, written[:, 1], written[:, 0])
    gradients = (tape.role == ROLE["weight gradients"]) & (tape.death >= tape.events - 1)
    last = np.maximum(writes, tape.birth)
    return replace(tape, death=np.where(gradients, np.minimum(last + 1, tape.death), tape.death))
