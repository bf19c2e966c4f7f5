"""The skyline: memory over one training step, stacked by role, with a card's limit across it.

The course's signature figure. A reading (`memory.Ledger`) goes in, a `scene.Picture` comes out; each label is put where
there is room for it, and every number in words comes from the ledger. Must never import torch or ipywidgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    COLUMN_ROW,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    label_column,
    limit_name,
    name_limit,
    percent,
    write_on_band,
    write_title,
)
from course_utils.memory import ROLES, Ledger
from course_utils.units import format_bytes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_EVENTS = 300  # more would be narrower than two and a half pixels


def finding(ledger: Ledger, limit_bytes: float | None = None, name: str | None = None) -> str:
    """The skyline's finding in words: whether the step fits and by how much; with no limit, what makes up the peak."""
    head = f"{ledger.name}, batch {ledger.batch:,}"
    peak = format_bytes(ledger.peak_bytes)
    if limit_bytes is None:
        shares = ledger.by_role()
        role = str(shares.idxmax())
        return f"{head}: {role} {_is(role)} {percent(shares[role], ledger.peak_bytes)} of the {peak} at the peak"
    name = name or limit_name(limit_bytes)
    spare = limit_bytes - ledger.peak_bytes
    if spare < 0:
        return f"{head}: the peak of {peak} is {format_bytes(-spare)} more than the {name} holds"
    return f"{head}: the peak of {peak} fits the {name} with {format_bytes(spare)} to spare"


def _is(role: str) -> str:
    return "are" if role.endswith("s") else "is"


def describe(ledger: Ledger, limit_bytes: float | None = None, name: str | None = None) -> str:
    """Alternative text of a skyline: what is drawn, the peak, what it consists of, and the limit."""
    parts = [f"{role} {format_bytes(count)}" for role, count in ledger.by_role().items() if count]
    text = (
        f"Memory over one training step of {ledger.name} at batch {ledger.batch:,}, stacked by role. "
        f"Peak {format_bytes(ledger.peak_bytes)}, {ledger.peak_phase}, at {ledger.peak_layer}: {', '.join(parts)}."
    )
    if limit_bytes is None:
        return text
    spare = limit_bytes - ledger.peak_bytes
    verdict = f"{format_bytes(spare)} to spare" if spare >= 0 else f"{format_bytes(-spare)} too little"
    return f"{text} Limit: {name or limit_name(limit_bytes)}, {verdict}."


def axis_top(peak_bytes: float, limit_bytes: float | None) -> float:
    """Upper end of the skyline's axis: room above the peak, and steady while a slider moves.

    With a limit it is 1.25 times the limit, so that the picture grows against a line that stands still; halved as often
    as a small peak allows, times √2 as often as a large one needs.
    """
    needed = max(peak_bytes, 1.0) * 1.19
    if not limit_bytes:
        return needed
    doublings = float(np.log2(needed / (1.25 * limit_bytes)))
    return float(1.25 * limit_bytes * 2.0 ** (np.ceil(doublings) if doublings < 0 else np.ceil(2 * doublings) / 2))


def skyline(
    ledger: Ledger,
    limit_bytes: float | None = None,
    before: Ledger | None = None,
    title: str | None = None,
    limit: str | None = None,
    before_name: str = "before",
) -> Picture:
    """Memory over one training step, stacked by role, with a card's limit across it.

    Args:
        ledger: the step to draw.
        limit_bytes: what the card holds; what rises above it is striped, and where the step first exceeds it is ringed.
        before: another step, drawn as a dashed outline over this one, phase under phase.
        title: the finding; computed by `finding` if not given.
        limit: the name of the limit, "12 GiB card" if not given.
        before_name: what the outline is called.
    """
    name = limit or (limit_name(limit_bytes) if limit_bytes is not None else "")
    scene = Scene(WIDTH, 440, describe(ledger, limit_bytes, name))
    head = write_title(scene, title or finding(ledger, limit_bytes, name))
    ghost_name = f"{before_name}: {format_bytes(before.peak_bytes)}" if before else ""
    named = max(text_width(f"↑ {name}", SIZE, True), text_width(ghost_name, SIZE) + 16)
    column = max(text_width("weight gradients", SIZE) + 20, named) + COLUMN_GAP + 8
    plot = _Plot(scene, ledger, limit_bytes, before, top=head + 26, right=WIDTH - min(column, WIDTH / 2))
    plot.draw()
    plot.label(name, ghost_name)
    return Picture.from_scene(scene)


# ---------------------------------------------------------------------------------------------------------------------
# From events to pixels


def _spans(phases: Sequence[str], left: float, right: float) -> list[tuple[str, int, float, float]]:
    """(phase, events, left, right): as wide as its events, but wide enough for its name; the update a fifth at most."""
    runs = [(phase, len(list(group))) for phase, group in groupby(phases)]
    weight = np.array([count for _, count in runs], dtype=float)
    weight /= weight.sum()
    if len(runs) > 1:
        for index, (phase, _) in enumerate(runs):
            if phase == "update":
                weight[index] = min(weight[index], 0.25 * (1 - weight[index]))
        weight = np.maximum(weight / weight.sum(), 0.12)
        weight /= weight.sum()
    edges = left + (right - left) * np.concatenate([[0.0], np.cumsum(weight)])
    return [(phase, count, edges[i], edges[i + 1]) for i, (phase, count) in enumerate(runs)]


def _event_edges(spans: Sequence[tuple[str, int, float, float]]) -> Floats:
    pieces = [np.linspace(start, end, count + 1)[:-1] for _, count, start, end in spans]
    return np.concatenate([*pieces, [spans[-1][3]]])


def _thin(ledger: Ledger) -> tuple[Ints, list[str]]:
    """Bytes and phase of about MOST_EVENTS events at most: of neighbours the one with most, so no peak is lost."""
    matrix, phases = ledger.matrix, list(ledger.phases)
    if len(matrix) <= MOST_EVENTS:
        return matrix, phases
    every = -(-len(matrix) // MOST_EVENTS)
    total = matrix.sum(axis=1)
    keep: list[int] = []
    start = 0
    for _, group in groupby(phases):
        end = start + len(list(group))
        keep += [i + int(np.argmax(total[i : min(i + every, end)])) for i in range(start, end, every)]
        start = end
    return matrix[keep], [phases[i] for i in keep]


def _steps(edges: Floats, level: Floats) -> Floats:
    """Corners of a step line: level[i] between edges[i] and edges[i + 1]."""
    return np.column_stack([np.repeat(edges, 2)[1:-1], np.repeat(level, 2)])


def _ring(x: float, y: float, radius: float) -> Floats:
    angle = np.linspace(0, 2 * np.pi, 25)
    return np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle)])


class _Plot:
    """The plot of one ledger on a scene: first everything is drawn, then every label finds its place."""

    def __init__(
        self, scene: Scene, ledger: Ledger, limit: float | None, before: Ledger | None, top: float, right: float
    ) -> None:
        self.scene, self.ledger, self.before = scene, ledger, before
        self.matrix, phases = _thin(ledger)
        self.total = self.matrix.sum(axis=1)
        self.levels = np.concatenate([np.zeros((len(self.matrix), 1)), np.cumsum(self.matrix, axis=1)], axis=1)
        self.left, self.right, self.top, self.bottom = 62.0, right, top, scene.height - 38.0
        self.spans = _spans(phases, self.left, self.right)
        self.edges = _event_edges(self.spans)
        highest = max(int(self.total.max()), before.peak_bytes if before else 0)
        self.scale = ByteScale(axis_top(highest, limit), self.bottom - top)
        self.limit = limit
        self.limit_shown = limit is not None and limit <= self.scale.top

    def y(self, count: npt.ArrayLike) -> Floats:
        """Bytes to pixels."""
        return self.bottom - np.asarray(count, dtype=float) * (self.scale.length / self.scale.top)

    def event_at(self, x: Floats) -> Ints:
        """Index of the event drawn at each x."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.matrix) - 1)

    # Shapes

    def draw(self) -> None:
        """Axis, bands, what exceeds the limit, the outline of the whole, phases, limit and ghost, in this order."""
        self._draw_axis()
        for code, role in enumerate(ROLES):
            if self.matrix[:, code].any():
                upper = _steps(self.edges, self.y(self.levels[:, code + 1]))
                lower = _steps(self.edges, self.y(self.levels[:, code]))
                self.scene.add(Area(np.concatenate([upper, lower[::-1]]), ROLE_COLOURS[role]))
        if self.limit is not None and self.limit_shown:
            self._draw_overshoot(self.limit)
        self.scene.add(Lines([_steps(self.edges, self.y(self.total))], INK, 1.2))
        for _, _, start, _ in self.spans[1:]:
            self.scene.add(Lines([[(start, self.top), (start, self.bottom)]], PAPER, 2.5))
        if self.limit is not None and self.limit_shown:
            y = float(self.y(self.limit))
            line = [[(self.left, y), (self.right, y)]]
            self.scene.add(Lines(line, PAPER, 4), Lines(line, INK, 1.8, dashed=True))
        if self.before is not None:
            outline = [self._ghost(self.before)]
            self.scene.add(Lines(outline, PAPER, 4), Lines(outline, INK, 1.8, dashed=True))

    def _draw_axis(self) -> None:
        unit = self.scale.unit[1]
        self.scene.add(Words(12, self.top - 8, f"{unit} alive after each event of the step", SIZE, fill=FAINT))
        for count, label in self.scale.ticks(gap=44):
            y = float(self.y(count))
            if y >= self.top + 4:
                self.scene.add(Words(self.left - 9, y + 0.35 * SIZE, label, SIZE, "end", fill=FAINT))
                self.scene.add(Lines([[(self.left - 5, y), (self.left, y)]], FAINT))
        self.scene.add(Lines([[(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)]], FAINT))
        for phase, _, start, end in self.spans:
            self.scene.add(Words((start + end) / 2, self.bottom + 24, phase, SIZE, "middle"))

    def _draw_overshoot(self, limit: float) -> None:
        x = np.arange(self.left + 3, self.right, 6.0)
        over = np.flatnonzero(self.total[self.event_at(x)] > limit)
        floor, roofs = float(self.y(limit)), self.y(self.total[self.event_at(x)])
        if len(over):
            self.scene.add(Lines([[(x[i], floor), (x[i], roofs[i])] for i in over], PAPER, 1.6))
            # Where the step first needs more than there is.
            at = float(self.edges[int(np.argmax(self.total > limit))])
            self.scene.add(Lines([_ring(at, floor, 6)], PAPER, 5), Lines([_ring(at, floor, 6)], INK, 2))

    def _ghost(self, before: Ledger) -> Floats:
        """The outline of another step, each of its phases stretched over the same phase of this one."""
        matrix, phases = _thin(before)
        places = {phase: (start, end) for phase, _, start, end in self.spans}
        own = [(phase, len(list(group))) for phase, group in groupby(phases)]
        kept = np.array([phase in places for phase in phases])
        spans = [(phase, count, *places[phase]) for phase, count in own if phase in places]
        return _steps(_event_edges(spans), self.y(matrix.sum(axis=1)[kept]))

    # Words

    def label(self, limit_name: str, before_name: str) -> None:
        """The peak, where memory runs out, the bands; what finds no room on the plot goes to the column beside it."""
        self._label_peak()
        if self.limit is not None and self.limit_shown and self.total.max() > self.limit:
            self._label_crossing(self.limit)
        columns = np.arange(self.left + 2, self.right - 2, BAND_COLUMN)
        event = self.event_at(columns)
        blocked = np.zeros(len(columns), dtype=bool)
        for _, _, start, _ in self.spans[1:]:
            blocked |= np.abs(columns - start) < 6
        crossing = float(self.y(self.limit)) if self.limit is not None and self.limit_shown else None
        shares = self.ledger.by_role()
        beside = []
        for code in np.flatnonzero(self.matrix.any(axis=0)):
            share = f"{percent(shares.iloc[code], self.ledger.peak_bytes)} of the peak"
            floor, roof = self.y(self.levels[event, code]), self.y(self.levels[event, code + 1])
            if not any(
                write_on_band(self.scene, columns, floor, roof, blocked, lines, ROLE_COLOURS[ROLES[code]], crossing)
                for lines in ([ROLES[code], share], [ROLES[code]])
            ):
                beside.append(int(code))
        self._label_beside(beside, limit_name, before_name)

    def _clear(self) -> list[Box]:
        """The vertical axis and the strip around the limit's line, which words must not touch."""
        boxes = [(self.left - 2, self.top, self.left + 2, self.bottom)]
        if self.limit is not None and self.limit_shown:
            y = float(self.y(self.limit))
            boxes.append((self.left, y - 2, self.right, y + 2))
        return boxes

    def _above(self, x: float, y: float, text: str, bold: bool = False) -> list[Words]:
        """Places for a label over a point, best first: straight above, then higher, then to the sides."""
        half = text_width(text, SIZE, bold) / 2
        places = [(aside, lift) for lift in (10, 16, 24, 32, 44) for aside in (0.0, -half, half)]
        low, high = self.left + half + 6, self.right - half
        return [Words(min(max(x + aside, low), high), y - lift, text, SIZE, "middle", bold) for aside, lift in places]

    def _label_peak(self) -> None:
        ledger, event = self.ledger, int(np.argmax(self.total))
        x, y = float(self.edges[event] + self.edges[event + 1]) / 2, float(self.y(self.total[event]))
        self.scene.add(Area(_ring(x, y, 5), PAPER), Area(_ring(x, y, 3.5), INK))
        bold = self.limit is not None and ledger.peak_bytes > self.limit
        peak = f"peak {format_bytes(ledger.peak_bytes)}"
        where = f"{ledger.peak_phase}, {ledger.peak_layer}" if ledger.peak_layer else ledger.peak_phase
        texts = (f"{peak}: {where}", f"{peak}: {ledger.peak_phase}", peak)
        self.scene.place([words for text in texts for words in self._above(x, y, text, bold)], self._clear())

    def _label_crossing(self, limit: float) -> None:
        """Beside the ring, over the line: to its left nothing is drawn there, as the step is still below the limit."""
        x, y = float(self.edges[int(np.argmax(self.total > limit))]), float(self.y(limit))
        text = "out of memory here"
        if self.scene.place([Words(x - 12, y - 8, text, SIZE, "end")], self._clear()):
            return
        # No room: above the roofs, with a line down to the ring.
        start = max(x - 4, self.left + 6)
        roof = float(self.y(self.total[self.event_at(np.arange(start, start + text_width(text, SIZE) + 8, 4.0))].max()))
        words = self.scene.place([Words(start, roof - lift, text, SIZE) for lift in (10, 18, 30, 40)], self._clear())
        if words is not None:
            self.scene.add(Lines([[(x, words.y + 5), (x, y - 6)]], INK, 1.5))

    def _label_beside(self, codes: Sequence[int], limit_name: str, before_name: str) -> None:
        """The column beside the plot: bands too thin for words, in stacking order; the limit and the ghost by name."""
        rows: list[tuple[str, str, float | None]] = []
        for code in codes:
            thickness = self.levels[:, code + 1] - self.levels[:, code]
            leader, event = None, int(np.flatnonzero(thickness)[-1])
            if event >= len(thickness) - max(2, len(thickness) // 50):  # alive about where the column begins
                leader = float(self.y(self.levels[event, code] + thickness[event] / 2))
            rows.append((ROLES[code], ROLE_COLOURS[ROLES[code]], leader))
        x = self.right + COLUMN_GAP
        roof = label_column(self.scene, self.right, self.bottom, rows)
        names: list[tuple[float, bool]] = []  # y of what is named, whether it is the limit
        if self.limit is not None and self.limit_shown:
            names.append((float(self.y(self.limit)), True))
        elif self.limit is not None:
            self.scene.add(Words(x + 2, self.top - 8, f"↑ {limit_name}", SIZE, bold=True))
        if self.before is not None:
            names.append((float(self._ghost(self.before)[:, 1].min()), False))
        for line, is_limit in sorted(names, reverse=True):
            if is_limit:
                roof = name_limit(self.scene, self.right, line, roof, limit_name)
            else:
                y = min(line, roof)
                self.scene.add(Lines([[(x - 10, y), (x + 10, y)]], INK, 1.8, dashed=True))
                self.scene.add(Words(x + 14, y + 0.35 * SIZE, before_name, SIZE))
                roof = y - COLUMN_ROW
