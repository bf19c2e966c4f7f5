"""The step of a stack of many equal layers from the traced step of a short one, exactly.

Every layer of a transformer does what its neighbours do, so its events repeat with one period in the forward pass and
with one in the backward pass. A tape of SHORT layers is cut there and the middle put in again as often as is wanted;
tapes at two lengths of sequence give every other, where sizes are affine in it. What does not repeat is refused, never
guessed. An update that works on all weights at once is one event whatever the depth: its traffic is told by whoever
traces it at that depth, or is UNKNOWN, and then no time is predicted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from course_utils.memory import PHASES, ROLE, Int64, Tape
from course_utils.units import CourseError

SHORT = 5  # layers traced: the first two, one that is repeated, the last two; a map may outlive the layer after its own
REPEATED = 2
UNKNOWN = -1  # bytes: `machine.hardware.roofline_seconds` refuses them
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

    def layers(self, events: int) -> Int64:
        """Which layer each event belongs to; -1 for none."""
        found = np.full(events, -1, dtype=np.int64)
        for layer in sorted(range(len(self.begins)), key=lambda i: self.begins[i]):
            found[self.begins[layer] : self.end] = layer
        return found


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
        self.ahead, self.back = (one.layers(tape.events + 1) for one in (self.forward, self.backward))
        self.first, self.further = self._places()
        self.layers = np.array([_unit_of(name, group) for name in tape.layer_names], dtype=np.int64)

    def _places(self) -> tuple[Int64, Int64]:
        """Where each event is among more layers, and how much further the next copy of it is, of those repeated."""
        event, ahead, back = np.arange(self.tape.events + 1), self.forward, self.backward
        later = (self.ahead != REPEATED) & (event >= ahead.begins[REPEATED])
        first = event + np.where(later, self.extra * ahead.period, 0)
        further = np.where(self.ahead == REPEATED, ahead.period, 0)
        if back.runs:
            first += np.where(later & (event >= back.begins[REPEATED]), self.extra * back.period, 0)
            further -= np.where(self.back == REPEATED, back.period, 0)
        return first, further

    def place(self, event: Int64, copy: Int64 | int) -> Int64:
        """Where events are among more layers; `copy` says in which copy of the repeated layer, if they are of that."""
        found: Int64 = self.first[event] + copy * self.further[event]
        return found

    def owners(self) -> Int64:
        """The layer of each storage: where it is born; of what is there from the start, by its name."""
        tape = self.tape
        born = np.minimum(tape.birth, tape.events - 1)
        by_name = (tape.birth == 0) | (tape.birth >= tape.events) | (tape.event_phase[born] == PHASES.index("update"))
        by_event = np.where(self.ahead[born] < 0, self.back[born], self.ahead[born])
        found = np.where(by_name, self.layers[tape.layer], by_event)
        # Of what an optimizer makes on the way: one tensor for each parameter, in their order, or none.
        state = np.flatnonzero((tape.role == ROLE["optimizer state"]) & (tape.birth == 0))
        made = np.flatnonzero((tape.birth > 0) & (tape.event_phase[born] == PHASES.index("update")))
        for event in np.unique(tape.birth[made]):
            group = made[tape.birth[made] == event]
            if len(group) > 1 and len(state) % len(group) == 0:
                found[group] = self.layers[tape.layer[state[:: len(state) // len(group)]]]
        return found

    def deaths(self, storage: Int64, owner: Int64, copy: Int64) -> Int64:
        """Where storages of these copies of their owners end. Raises NotAlike for a life that does not repeat."""
        event = self.tape.death[storage]
        ahead, back = self.ahead[event], self.back[event]
        at = np.where(ahead >= 0, ahead, back)
        if ((owner < 0) & (at == REPEATED)).any():
            raise NotAlike("a tensor from outside the layers ends in the midst of them")
        own = (owner >= 0) & (at >= 0)
        if (far := own & (np.abs(at - owner) > REPEATED)).any():
            one = int(np.flatnonzero(far)[0])
            raise NotAlike(
                f"a tensor of layer {owner[one]} ends in layer {at[one]}, too far for a stack to be made of it"
            )
        now = at + np.where(owner == REPEATED, copy, np.where(owner > REPEATED, self.extra, 0))
        into = np.where(own, np.clip(now - REPEATED, 0, self.extra), 0)
        old = np.where(own, now - into, at)  # the traced layer in whose place the end is
        for part, here in ((self.forward, ahead >= 0), (self.backward, ahead < 0)):
            begins = np.array(part.begins, dtype=np.int64)
            which = own & here
            event[which] += begins[old[which]] - begins[at[which]]
        return self.place(event, into)


def _check_outside(tape: Tape, stack: _Stack) -> None:
    """Raise NotAlike for an operator of the two passes, outside the layers, whose traffic grows with their number."""
    event, storage, _ = tape.uses.T
    if ((stack.ahead[event] < 0) & (stack.back[event] < 0) & (stack.owners()[storage] == REPEATED)).any():
        raise NotAlike("an operator outside the layers works on what belongs to one in their midst")


def _traffic(tape: Tape, update: Sequence[tuple[str, int]] | None) -> Int64:
    """(E, 2) bytes read and written, those of the update as told: operators in their order, and the bytes of each."""
    traffic = tape.event_traffic.copy()
    here = np.flatnonzero(tape.event_phase == PHASES.index("update"))[:-1]  # the last one ends the step
    if update is None:
        here = here[(traffic[here] > 0).any(axis=1)]
        traffic[here] = (UNKNOWN, 0)
    elif tuple(op for op, _ in update) != tuple(tape.event_ops[event] for event in here):
        raise NotAlike("the update of more layers is not that of few")
    else:
        traffic[here, 0] = [size for _, size in update]
    return traffic


def deepened(tape: Tape, units: int, group: int = 1, update: Sequence[tuple[str, int]] | None = None) -> Tape:
    """The tape of a stack of so many equal units, from that of one of SHORT.

    Layers are called "layers.0", "layers.1", … . What each tensor is used by (`Tape.uses`) is left out.

    Args:
        tape: the step of SHORT units.
        units: how many, at least SHORT.
        group: layers in a unit.
        update: the operators of the update of so many units, and the bytes that each reads and writes; None: not known.

    Raises:
        NotAlike: fewer than SHORT units, or a step whose units do not all do the same.
    """
    if units < SHORT:
        raise NotAlike(f"a stack is made of {SHORT} layers or more, got {units}")
    stack = _Stack(tape, units, group)
    _check_outside(tape, stack)
    extra = stack.extra
    names = [_renamed(tape.layer_names, extra, copy, group) for copy in range(extra + 1)]
    known = {name: code for code, name in enumerate(dict.fromkeys(chain.from_iterable(names)))}
    code = np.array([[known[name] for name in copied] for copied in names], dtype=np.int64)

    def copies_of(repeated: npt.NDArray[np.bool_], those: Int64) -> tuple[Int64, Int64]:
        """Each of those as often as it is there, and the number of the copy."""
        times = np.where(repeated[those], extra + 1, 1)
        return np.repeat(those, times), np.concatenate([np.arange(n) for n in times])

    event = np.arange(tape.events)
    repeated_event = (stack.ahead == REPEATED) | (stack.back == REPEATED)
    source, copies = copies_of(repeated_event, event)
    order = np.argsort(stack.place(source, copies))
    source, copies = source[order], copies[order]

    owner = stack.owners()
    has_bytes = np.flatnonzero(tape.fixed | tape.per_sample)  # what a kernel does not make has none
    taken, copied = copies_of(owner == REPEATED, has_bytes)
    return replace(
        tape,
        fixed=tape.fixed[taken],
        per_sample=tape.per_sample[taken],
        role=tape.role[taken],
        layer=code[copied, tape.layer[taken]],
        birth=stack.place(tape.birth[taken], copied),
        death=np.minimum(stack.deaths(taken, owner[taken], copied), len(source)),
        is_map=tape.is_map[taken],
        event_ops=tuple(tape.event_ops[event] for event in source),
        event_phase=tape.event_phase[source],
        event_layer=code[copies, tape.event_layer[source]],
        event_traffic=_traffic(tape, update)[source],
        recomputed=tape.recomputed[source],
        layer_names=tuple(known),
        layer_shapes=_repeated(tape.layer_shapes, extra, group),
        layer_parameters=_repeated(tape.layer_parameters, extra, group),
        count_flops=lambda: tape.event_flops[source],
        uses=np.zeros((0, 3), dtype=np.int64),
    )


def _renamed(names: Iterable[str], extra: int, copy: int, group: int) -> list[str]:
    """What layers of SHORT units are called in this copy of them."""
    found = []
    for name in names:
        unit = _unit_of(name, group)
        further = copy if unit == REPEATED else extra * (unit > REPEATED)
        found.append(_moved(name, further * group) if further else name)
    return found


def _repeated(by_layer: dict[str, Any], extra: int, group: int) -> dict[str, Any]:
    """The same for more units, in the order in which they run."""
    middle = [name for name in by_layer if _unit_of(name, group) == REPEATED]
    copies: dict[str, Any] = {}
    for copy in range(extra + 1):
        copies |= zip(_renamed(middle, extra, copy, group), map(by_layer.__getitem__, middle), strict=True)
    found: dict[str, Any] = {}
    for name, value in by_layer.items():
        found |= copies if name in middle else {_renamed([name], extra, 0, group)[0]: value}
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
