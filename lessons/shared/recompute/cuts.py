"""Which segments to recompute: dynamic programming over what each part of a chain keeps, read from its plain trace.

The model. When the backward pass is in part p of a segment that begins with part i, memory holds what it holds there in
the plain step, less the maps made before part i, plus what the plan keeps of those: whole parts, and the inputs of
segments. For a chain of single layers this is the traced peak; a block of branches may stop running again earlier than
the model thinks, which then gives an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_utils.machine.hardware import Float64
from course_utils.memory import PHASES, ROLE, Int64, Ledger, Tape
from course_utils.units import KIB, CourseError

Segment = tuple[int, int]
Label = tuple[int, float, tuple[Segment, ...]]  # bytes kept so far, seconds spent again, the segments

FORWARD, BACKWARD = PHASES.index("forward"), PHASES.index("backward")


@dataclass(frozen=True)
class Costs:
    """What n parts cost when kept, and every segment of them when recomputed.

    Attributes:
        kept: (n,) bytes a part makes that the plain step still holds when the backward pass begins.
        output: (n,) bytes of each part's output.
        output_kept: (n,) True if the plain step holds that output when the backward pass begins.
        read_later: (n,) True if the backward pass of a later part reads that output.
        level: (n, n) level[i, p]: the most bytes alive in the backward pass of part p, less every map made before
            part i ≤ p.
        again: (n, n) again[i, p]: the same in the forward pass of part p, so while it runs again in such a segment.
        runs_again: (n,) True for a part whose backward needs a map that the part made itself. A segment runs again up
            to its last such part: a convolution at its end does not, since its backward needs its input alone.
        gradients: (n + 1,) bytes of gradients alive when the backward pass comes to part p - 1; 0 for n.
        seconds: (n, n + 1) of running parts i … j - 1 again.
        begins: (n,) True where a segment may begin.
    """

    kept: Int64
    output: Int64
    output_kept: npt.NDArray[np.bool_]
    read_later: npt.NDArray[np.bool_]
    level: Int64
    again: Int64
    gradients: Int64
    runs_again: npt.NDArray[np.bool_]
    seconds: Float64
    begins: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, ledger: Ledger, names: Sequence[str], begins: Sequence[bool], seconds: Float64) -> Costs:
        """Read a plain step.

        Args:
            ledger: the step of the chain with nothing recomputed.
            names: the parts, by path.
            begins: for each part, whether a segment may begin with it.
            seconds: (E,) of each event.

        Raises:
            CourseError: the step recomputes something already.
        """
        tape, n = ledger.tape, len(names)
        if tape.recomputed.any():
            raise CourseError(f"{ledger.name} recomputes already: give the step of the network as it is")
        part = _part_of_layer(tape, names)[tape.event_layer]  # of each event; n - 1 for the loss
        forward, backward = tape.event_phase == FORWARD, tape.event_phase == BACKWARD
        start = int(np.flatnonzero(backward)[0])  # the first event of the backward pass
        owner = part[np.minimum(tape.birth, tape.events - 1)]
        born = np.minimum(tape.birth, tape.events - 1)
        loss = np.array([name == "loss" for name in tape.layer_names])[tape.layer]
        maps = (tape.role == ROLE["feature maps"]) & forward[born] & ~loss
        alive = maps & (tape.death > start - 1)

        made_before = np.zeros((tape.events + 1, n + 1), dtype=np.int64)  # [e, i]: alive after e, made before part i
        np.add.at(made_before, (tape.birth[maps], owner[maps] + 1), ledger.size[maps])
        np.subtract.at(made_before, (tape.death[maps], owner[maps] + 1), ledger.size[maps])
        made_before = np.cumsum(np.cumsum(made_before, axis=0), axis=1)[:-1]
        rest = ledger.total[:, None] - made_before[:, :n]

        level, again = np.zeros((n, n), dtype=np.int64), np.zeros((n, n), dtype=np.int64)
        for p in range(n):
            for where, into in ((backward & (part == p), level), (forward & (part == p), again)):
                if where.any():
                    into[: p + 1, p] = rest[where, : p + 1].max(axis=0)
        end = rest[forward][-1]  # the end of the forward pass belongs to the last part
        level[:, n - 1] = np.maximum(level[:, n - 1], end)

        kept = np.bincount(owner[alive], ledger.size[alive], n).astype(np.int64)
        last = _outputs(tape, part, maps, n)
        read = np.zeros(len(maps), dtype=np.int64)  # of each map, the latest part whose backward pass reads it
        event, storage, wrote = tape.uses.T
        reads = backward[event] & (wrote == 0)
        np.maximum.at(read, storage[reads], part[event[reads]])
        needs_own = np.zeros(n, dtype=np.bool_)
        own = reads & maps[storage] & (part[event] == owner[storage])
        needs_own[part[event[own]]] = True
        return cls(
            kept=kept,
            output=np.where(last >= 0, ledger.size[last], 0),
            output_kept=(last >= 0) & alive[last],
            read_later=(last >= 0) & (read[last] > np.arange(n)),
            level=level,
            again=again,
            gradients=_gradients(ledger, part, backward, n),
            runs_again=needs_own,
            seconds=_seconds_again(tape, part, forward, needs_own, seconds, n),
            begins=np.array(begins, dtype=np.bool_),
        )

    @property
    def parts(self) -> int:
        """n, the number of parts."""
        return len(self.kept)

    def least_peak(self) -> int:
        """The lowest limit, in bytes and to one KiB, for which `cheapest` finds segments."""
        low, high = (
            0,
            int(self.level.max() + self.again.max() + self.kept.sum() + self.output.sum() + self.gradients.max()),
        )
        while high - low > KIB:
            middle = (low + high) // 2
            low, high = (low, middle) if self._plans(middle, timed=False) else (middle, high)
        return high

    def cheapest(self, limit_bytes: float) -> tuple[Segment, ...] | None:
        """The segments that fit into a limit with the least time, None if none do; of equals, those that keep less."""
        plans = self._plans(limit_bytes, timed=True)
        return min(plans, key=lambda label: (label[1], label[0], len(label[2])))[2] if plans else None

    def _plans(self, limit: float, timed: bool) -> list[Label]:
        """Plans of the whole chain that stay within a limit, none of them worse than another in bytes and time."""
        n = self.parts
        worst = np.maximum.accumulate(self.level, axis=1)  # [i, p]: over parts i … p
        # again[i, p] of the parts that run again only: [i, j] over parts i … j up to the last that does.
        running = np.maximum.accumulate(self.again, axis=1)
        rerun = np.maximum.accumulate(np.where(self.runs_again, running, 0), axis=1)
        # By the part that comes next, and whether the part before it was kept whole.
        found: list[dict[bool, list[Label]]] = [{True: [], False: []} for _ in range(n + 1)]
        found[0][True].append((0, 0.0, ()))
        for i in range(n):
            for whole, labels in found[i].items():
                for held, spent, segments in _pareto(labels, timed):
                    in_front = int(self.output[i - 1]) if i else 0
                    known = bool(self.output_kept[i - 1]) if i else True
                    keep = held + (in_front if not whole and i and self.read_later[i - 1] else 0)
                    passing = 0 if known else in_front  # the input of a part that nobody keeps
                    if keep + max(self.level[i, i], self.again[i, i] + passing) <= limit:
                        found[i + 1][True].append((keep + int(self.kept[i]), spent, segments))
                    if not self.begins[i]:
                        continue
                    held += 0 if whole and known else in_front
                    room = limit - held
                    for j in range(i + 1, n):  # to drop the last part's maps gains nothing: they are needed at once
                        if worst[i, j - 1] > room:
                            break
                        if rerun[i, j - 1] + self.gradients[j] <= room:
                            longer = spent + float(self.seconds[i, j])
                            found[j][False].append((held, longer, (*segments, (i, j))))
        return _pareto([*found[n][True], *found[n][False]], timed)


def _pareto(labels: list[Label], timed: bool) -> list[Label]:
    """The labels that no other beats in bytes and seconds; without time, the one with the least bytes."""
    if not labels:
        return []
    if not timed:
        return [min(labels, key=lambda label: label[0])]
    best: list[Label] = []
    for label in sorted(labels, key=lambda label: (label[0], label[1], len(label[2]))):
        if not best or label[1] < best[-1][1]:
            best.append(label)
    return best


def _part_of_layer(tape: Tape, names: Sequence[str]) -> Int64:
    """(layers,) the part each layer belongs to; n - 1 for the loss and whatever else is outside the chain."""
    index = {name: i for i, name in enumerate(names)}
    parts = []
    for layer in tape.layer_names:
        path = layer
        while path not in index and "." in path:
            path = path.rpartition(".")[0]
        parts.append(index.get(path, len(names) - 1))
    return np.array(parts, dtype=np.int64)


def _outputs(tape: Tape, part: Int64, maps: npt.NDArray[np.bool_], n: int) -> Int64:
    """(n,) each part's output: the last map it writes that the forward pass of a later part reads; -1 where none is."""
    last = np.full(n, -1, dtype=np.int64)
    written: dict[int, int] = {}  # by storage, the last part that wrote it
    for event, storage, wrote in tape.uses.tolist():
        if not maps[storage] or tape.event_phase[event] != FORWARD:
            continue
        if wrote:
            written[storage] = int(part[event])
        elif written.get(storage, n) < part[event]:  # batch norm writes its statistics last, and nobody reads them
            last[written[storage]] = max(last[written[storage]], storage)
    for p in range(1, n):
        if last[p] < 0:  # a part that makes no map of its own hands on the one it got
            last[p] = last[p - 1]
    return last


def _gradients(ledger: Ledger, part: Int64, backward: npt.NDArray[np.bool_], n: int) -> Int64:
    """(n + 1,) bytes of gradients that wait when the backward pass comes to part p - 1: made before, needed from it on.

    A segment runs again between two events, when what the one before it alone needed is gone.
    """
    tape, found = ledger.tape, np.zeros(n + 1, dtype=np.int64)
    gradients = (tape.role == ROLE["weight gradients"]) | (tape.role == ROLE["gradient maps"])
    for p in range(n - 1):
        events = np.flatnonzero(backward & (part == p))
        if len(events):
            wait = gradients & (tape.birth < events[0]) & (tape.death > events[0])
            found[p + 1] = ledger.size[wait].sum()
    return found


def _seconds_again(
    tape: Tape,
    part: Int64,
    forward: npt.NDArray[np.bool_],
    runs_again: npt.NDArray[np.bool_],
    seconds: Float64,
    n: int,
) -> Float64:
    """(n, n + 1) seconds of running parts i … j - 1 again, up to the last of them that needs a map of its own."""
    in_chain = forward & np.array([name != "loss" for name in tape.layer_names])[tape.event_layer]
    each = np.bincount(part[in_chain], seconds[in_chain], n)
    sums = np.zeros((n, n + 1))
    for i in range(n):
        total = pending = 0.0
        for j in range(i, n):
            pending += each[j]
            if runs_again[j]:
                total, pending = total + pending, 0.0
            sums[i, j + 1] = total
    return sums
