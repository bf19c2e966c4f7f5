"""A network of many equal layers from the trace of a few: the middle one's events and storages, as often as wanted.

Five equal units are traced. What the third makes is read by itself and its neighbours alone, so that copies of it put
in between change nothing else; where that does not hold, it is noticed. Must never import torch.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from course_utils.memory import ROLE, Int64, Tape
from course_utils.units import CourseError

TRACED = 5  # units in the trace that is repeated
MIDDLE = 2  # the unit that is copied
GLOBAL = -1  # the unit of what belongs to no layer


class NotRepeated(CourseError):
    """The units of a trace are not equal, or reach further than to their neighbours."""


def _units(names: tuple[str, ...], layers: str, group: int) -> Int64:
    """The unit of each layer by its name, GLOBAL for what is in none."""
    found = [re.match(rf"{re.escape(layers)}\.(\d+)(\.|$)", name) for name in names]
    return np.array([int(match[1]) // group if match else GLOBAL for match in found], dtype=np.int64)


def repeated(tape: Tape, units: int, layers: str = "layers", group: int = 1) -> Tape:
    """The step of a network with so many units, from that of TRACED of them.

    Args:
        tape: the step with TRACED units.
        units: how many, at least TRACED.
        layers: path of the list that holds the layers.
        group: layers in a unit.

    Raises:
        NotRepeated: the units are not alike.
    """
    more = units - TRACED
    if more < 0:
        raise NotRepeated(f"at least {TRACED} units can be made of {TRACED}, not {units}")
    unit_of = _units(tape.layer_names, layers, group)
    starts, block, offset = _blocks(tape, unit_of[tape.event_layer])
    copies = np.arange(more + 1)

    # Events: for each of the new step the one it is a copy of, and how many units further it stands.
    take, shift = [], []
    for begin, end, unit in starts:
        here = np.arange(begin, end)
        times = copies if unit == MIDDLE else np.zeros(1, dtype=np.int64)
        if unit == MIDDLE and tape.event_phase[begin] == 1:
            times = times[::-1]
        for copy in times:
            take.append(here)
            shift.append(np.full(len(here), copy if unit == MIDDLE else more * (unit > MIDDLE)))
    source, moved = np.concatenate(take), np.concatenate(shift)
    place = {(int(old), int(by)): new for new, (old, by) in enumerate(zip(source, moved, strict=True))}

    # Storages: which are copied, and when each copy is born and dies.
    events = tape.events
    born = np.minimum(tape.birth, events - 1)
    owner = np.where(block[born] == GLOBAL, GLOBAL, block[born])
    lasting = (owner == GLOBAL) & (block[np.minimum(tape.death, events - 1)] == GLOBAL)
    owner = np.where(lasting, unit_of[tape.layer], owner)
    _own_temporaries(tape, owner, lasting, unit_of)
    made = [np.sort(_codes(tape)[owner == unit]) for unit in (MIDDLE - 1, MIDDLE, MIDDLE + 1)]
    if not np.array_equal(made[0], made[1]) or not np.array_equal(made[1], made[2]):
        raise NotRepeated("the layers in the middle keep different sizes")
    which = np.repeat(np.arange(len(owner)), np.where(owner == MIDDLE, more + 1, 1))
    first = np.concatenate([[0], np.cumsum(np.where(owner == MIDDLE, more + 1, 1))[:-1]])
    by = np.arange(len(which)) - first[which]
    by = np.where(owner[which] == MIDDLE, by, more * (owner[which] > MIDDLE))

    block_at = {(int(tape.event_phase[b] == 1), unit): b for b, _, unit in starts if unit != GLOBAL}

    def moment(old: int, owned: int, shifted: int) -> int:
        """Where an event of the trace falls for a storage of a unit that stands `shifted` units further."""
        if old >= events:
            return len(source) + (old - events)
        unit = int(block[old])
        if unit == GLOBAL:
            return place[(old, 0)]
        if owned == GLOBAL:
            if unit == MIDDLE:
                raise NotRepeated("something of the whole network begins or ends in a layer in its middle")
            return place[(old, more * (unit > MIDDLE))]
        to = unit + shifted  # in the new network
        if to <= MIDDLE:
            at, ahead = to, 0
        elif to <= MIDDLE + more:
            at, ahead = MIDDLE, to - MIDDLE
        else:
            at, ahead = to - more, more
        if at == unit:
            return place[(old, ahead)]
        backward = int(tape.event_phase[old] == 1)
        there = block_at[(backward, at)] + int(offset[old])
        if block[there] != at or tape.event_ops[there] != tape.event_ops[old]:
            raise NotRepeated(f"unit {at} differs from unit {unit}")
        return place[(there, ahead)]

    birth = [moment(int(tape.birth[w]), int(owner[w]), int(b)) for w, b in zip(which, by, strict=True)]
    death = [moment(int(tape.death[w]), int(owner[w]), int(b)) for w, b in zip(which, by, strict=True)]

    names: dict[str, int] = {}

    def named(code: int, units_on: int) -> int:
        return names.setdefault(_renamed(tape.layer_names[code], layers, units_on * group), len(names))

    event_layer = [
        named(int(tape.event_layer[e]), int(s) if unit_of[tape.event_layer[e]] != GLOBAL else 0)
        for e, s in zip(source, moved, strict=True)
    ]
    layer = [
        named(int(tape.layer[w]), int(b) if unit_of[tape.layer[w]] != GLOBAL else 0)
        for w, b in zip(which, by, strict=True)
    ]
    return replace(
        tape,
        fixed=tape.fixed[which], per_sample=tape.per_sample[which], role=tape.role[which],
        layer=np.array(layer, dtype=np.int64), birth=np.array(birth, dtype=np.int64),
        death=np.array(death, dtype=np.int64), is_map=tape.is_map[which],
        event_ops=tuple(tape.event_ops[e] for e in source), event_phase=tape.event_phase[source],
        event_layer=np.array(event_layer, dtype=np.int64), event_traffic=tape.event_traffic[source],
        recomputed=tape.recomputed[source], layer_names=tuple(names),
        layer_shapes=_spread(tape.layer_shapes, layers, group, more),
        layer_parameters=_spread(tape.layer_parameters, layers, group, more),
        count_flops=lambda: tape.event_flops[source], uses=np.zeros((0, 3), dtype=np.int64),
    )  # fmt: skip


def _blocks(tape: Tape, unit: Int64) -> tuple[list[tuple[int, int, int]], Int64, Int64]:
    """Runs of events as (first, behind the last, unit); the unit of each event, and its place in its run.

    What belongs to no layer and stands between two units is with the one before it.
    """
    edges: list[tuple[int, int]] = [(0, GLOBAL)]
    for phase, order in ((0, range(TRACED)), (1, range(TRACED - 1, -1, -1))):
        inside = np.flatnonzero((tape.event_phase == phase) & (unit != GLOBAL))
        first = [int(inside[unit[inside] == u][0]) for u in order]
        last = int(inside[-1]) + 1
        if first != sorted(first):
            raise NotRepeated("the layers do not run one after the other")
        edges += [*zip(first, order, strict=True), (last, GLOBAL)]
    ends = [begin for begin, _ in edges[1:]] + [tape.events]
    runs = [(begin, end, u) for (begin, u), end in zip(edges, ends, strict=True)]
    block, offset = np.full(tape.events, GLOBAL), np.zeros(tape.events, dtype=np.int64)
    for begin, end, u in runs:
        if np.any((unit[begin:end] != u) & (unit[begin:end] != GLOBAL)):
            raise NotRepeated("the layers do not run one after the other")
        block[begin:end], offset[begin:end] = u, np.arange(end - begin)
    return runs, block, offset


def _codes(tape: Tape) -> Int64:
    """A number for every storage, the same for those of equal size and role."""
    kinds = np.stack([tape.fixed, tape.per_sample, tape.role], axis=1)
    return np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)


def _own_temporaries(tape: Tape, owner: Int64, lasting: Int64, unit_of: Int64) -> None:
    """Give what the optimizer makes for every parameter, in their order, to the parameters' units."""
    parameters = np.flatnonzero(tape.role == ROLE["parameters"])
    born = np.minimum(tape.birth, tape.events - 1)
    update = lasting & (tape.birth > 0) & (tape.event_phase[born] == 2) & (unit_of[tape.layer] == GLOBAL)
    for event in np.unique(tape.birth[update]):
        made = np.flatnonzero(update & (tape.birth == event))
        sizes = [tape.fixed[made] * tape.fixed[parameters[0]], tape.fixed[parameters] * tape.fixed[made[0]]]
        if len(made) != len(parameters) or not np.array_equal(*sizes):
            raise NotRepeated("the optimizer makes something else than one tensor for every parameter")
        owner[made] = unit_of[tape.layer[parameters]]


def _renamed(name: str, layers: str, by: int) -> str:
    match = re.match(rf"({re.escape(layers)}\.)(\d+)(.*)", name)
    return f"{match[1]}{int(match[2]) + by}{match[3]}" if match else name


def _spread(of: dict[str, Any], layers: str, group: int, more: int) -> dict[str, Any]:
    """A dictionary by layer, with the middle unit's entries as often as it is repeated, in order."""
    units = _units(tuple(of), layers, group)
    found: dict[str, Any] = {}
    for name, unit in zip(of, units, strict=True):
        if unit != MIDDLE:
            continue
        for copy in range(more + 1):
            found[_renamed(name, layers, copy * group)] = of[name]
    before = {name: of[name] for name, unit in zip(of, units, strict=True) if unit in (0, 1)}
    after = {
        _renamed(name, layers, more * group): of[name] for name, unit in zip(of, units, strict=True) if unit > MIDDLE
    }
    names = list(of)
    head = max((i for i, unit in enumerate(units) if unit == 0), default=0)
    first = next((i for i, unit in enumerate(units) if unit != GLOBAL), head)
    begin = {name: of[name] for name, unit in zip(names[:first], units[:first], strict=True)}
    end = {n: of[n] for n, u in zip(names, units, strict=True) if u == GLOBAL and n not in begin}
    by_copy = sorted(found, key=lambda n: int(n[len(layers) + 1 :].split(".")[0]))
    return {**begin, **before, **{n: found[n] for n in by_copy}, **after, **end}
