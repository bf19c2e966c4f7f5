"""The events of a step from left to right: how wide each is, by operator or by predicted time, and its bytes.

`skyline` draws what is laid out here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import numpy as np
import numpy.typing as npt

from course_utils.machine.speed import StepTime
from course_utils.memory import PHASES, Ledger

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_EVENTS = 300  # more would be narrower than two and a half pixels
NARROW = 2.5  # pixels: events that take less time than this are drawn together
UPDATE = PHASES[-1]


@dataclass(frozen=True)
class Span:
    """A phase of the step, or the transfer before it, in pixels; its seconds, None where the axis is no time."""

    name: str
    start: float
    end: float
    seconds: float | None = None


@dataclass(frozen=True)
class Events:
    """Bytes of n events by role, and where they stand: event i from edges[i] to edges[i + 1], in pixels.

    Where many events are drawn as one, it has the bytes of the one with most, so that no peak is lost.
    """

    matrix: Ints
    edges: Floats
    spans: list[Span]

    @property
    def total(self) -> Ints:
        """(n,) bytes of all roles."""
        total: Ints = self.matrix.sum(axis=1)
        return total

    @property
    def end(self) -> float:
        """Pixels of the right end."""
        return float(self.edges[-1])

    def at(self, x: Floats) -> Ints:
        """Index of the event drawn at each x."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.matrix) - 1)


def by_operator(ledger: Ledger, left: float, right: float) -> Events:
    """All events of a phase equally wide; a phase as wide as its events, but wide enough for its name."""
    matrix, phases = _thin(ledger)
    runs = _runs(phases)
    weight = np.array([count for _, count in runs], dtype=float)
    weight /= weight.sum()
    if len(runs) > 1:
        update = np.array([phase == UPDATE for phase, _ in runs])  # a fifth at most
        weight = np.where(update, np.minimum(weight, 0.25 * (1 - weight)), weight)
        weight = np.maximum(weight / weight.sum(), 0.12)
        weight /= weight.sum()
    edges = left + (right - left) * np.concatenate([[0.0], np.cumsum(weight)])
    spans = [Span(phase, float(edges[i]), float(edges[i + 1])) for i, (phase, _) in enumerate(runs)]
    return Events(matrix, _equally_wide(spans, [count for _, count in runs]), spans)


def under(ledger: Ledger, spans: Sequence[Span]) -> Events:
    """Another step, each of its phases stretched over the same phase of the first; phases the first lacks left out.

    Where only one of the two accumulates several batches, its passes are stretched over all passes of the first.
    """
    matrix, phases = _thin(ledger)
    runs = _runs(phases)
    if [phase for phase, _ in runs] == [span.name for span in spans]:
        own = list(spans)
    elif max(len(runs), len(spans)) > len(PHASES):
        update = next((span for span in spans if span.name == UPDATE), Span(UPDATE, spans[-1].end, spans[-1].end))
        passes = sum(count for phase, count in runs if phase != UPDATE)
        runs = [("passes", passes), (UPDATE, len(phases) - passes)]
        own = [Span("passes", spans[0].start, update.start), update]
    else:
        places = {span.name: span for span in spans}
        matrix = matrix[[phase in places for phase in phases]]
        runs = [(phase, count) for phase, count in runs if phase in places]
        own = [places[phase] for phase, _ in runs]
    return Events(matrix, _equally_wide(own, [count for _, count in runs]), own)


def by_time(time: StepTime, left: float, pixels_a_second: float) -> Events:
    """Every event as wide as the seconds it takes, after the transfer, in which input and labels come in."""
    matrix, phases, seconds = time.ledger.matrix, time.ledger.phases, time.seconds
    if time.transfer_seconds > 0:
        matrix, phases = np.concatenate([matrix[:1], matrix]), np.array(["transfer", *phases])
        seconds = np.concatenate([[time.transfer_seconds], seconds])
    edges = left + pixels_a_second * np.concatenate([[0.0], np.cumsum(seconds)])
    runs = _runs(phases)
    ends = pairwise([0, *accumulate(count for _, count in runs)])
    spans = [
        Span(str(phase), float(edges[a]), float(edges[b]), float(seconds[a:b].sum()))
        for (phase, _), (a, b) in zip(runs, ends, strict=True)
    ]
    # Narrow events that begin within the same few pixels of the same phase are drawn as one.
    wide = np.diff(edges) >= NARROW
    cell = np.floor((edges[:-1] - left) / NARROW)
    apart = wide[1:] | wide[:-1] | (np.diff(cell) != 0) | (phases[1:] != phases[:-1])
    starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    return Events(matrix[_fullest(matrix, starts)], edges[[*starts, len(matrix)]], spans)


def _runs(phases: Iterable[str]) -> list[tuple[str, int]]:
    return [(phase, len(list(group))) for phase, group in groupby(phases)]


def _equally_wide(spans: Sequence[Span], counts: Sequence[int]) -> Floats:
    pieces = [np.linspace(s.start, s.end, n + 1)[:-1] for s, n in zip(spans, counts, strict=True)]
    return np.concatenate([*pieces, [spans[-1].end]])


def _thin(ledger: Ledger) -> tuple[Ints, list[str]]:
    """Bytes and phase of about MOST_EVENTS events at most: of so many neighbours in a phase the fullest."""
    every = -(-len(ledger.matrix) // MOST_EVENTS)
    within = np.concatenate([np.arange(count) for _, count in _runs(ledger.phases)])
    keep = _fullest(ledger.matrix, np.flatnonzero(within % every == 0))
    return ledger.matrix[keep], list(ledger.phases[keep])


def _fullest(matrix: Ints, starts: Ints) -> Ints:
    """Of the events from each start to the next the one with most bytes, so that no peak is lost."""
    group = np.searchsorted(starts, np.arange(len(matrix)), side="right")
    return np.lexsort((-matrix.sum(axis=1), group))[starts]
