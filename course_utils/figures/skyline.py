"""The skyline: memory over one training step, stacked by role, with a card's limit across it.

The course's signature figure. A reading (`memory.Ledger`) goes in, a `scene.Picture` comes out; each label is put where
there is room for it, and every number in words comes from the ledger. With a `speed.StepTime` the horizontal axis is
predicted time instead of one operator after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from course_utils.figures.events import Events, Floats, Span, by_operator, by_time, under
from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    COLUMN_ROW,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    label_column,
    name_limit,
    percent,
    write_on_band,
    write_title,
)
from course_utils.machine.speed import StepTime
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.capacity import Fit, fit
from course_utils.units import CourseError, format_bytes, format_seconds

LEFT = 62.0  # pixels to the vertical axis


def finding(ledger: Ledger, verdict: Fit | None = None) -> str:
    """The skyline's finding in words: whether the step fits the card; without one, what makes up the peak."""
    head = f"{ledger.name}, batch {ledger.batch:,}"
    peak = format_bytes(ledger.peak_bytes)
    if verdict is not None:
        return f"{head}: the peak of {peak} {verdict.words}"
    shares = ledger.by_role()
    role = str(shares.idxmax())
    return f"{head}: {role} {_is(role)} {percent(shares[role], ledger.peak_bytes)} of the {peak} at the peak"


def _is(role: str) -> str:
    return "are" if role.endswith("s") else "is"


def describe(ledger: Ledger, verdict: Fit | None = None, time: StepTime | None = None) -> str:
    """Alternative text of a skyline: what is drawn, the peak, what it consists of, the time, and the verdict."""
    parts = [f"{role} {format_bytes(count)}" for role, count in ledger.by_role().items() if count]
    text = (
        f"Memory over one training step of {ledger.name} at batch {ledger.batch:,}, stacked by role. "
        f"Peak {format_bytes(ledger.peak_bytes)}, {ledger.peak_phase}, at {ledger.peak_layer}: {', '.join(parts)}."
    )
    if time is not None:
        took = [f"{phase} {format_seconds(s)}" for phase, s in time.by_phase().items() if s]
        whole = format_seconds(time.total_seconds)
        text += f" Over the {whole} predicted for {time.device.name}: {', '.join(took)}."
    return text if verdict is None else f"{text} Limit: {verdict.card}. {verdict.sentence}"


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
    time: StepTime | None = None,
    before_time: StepTime | None = None,
    part: tuple[str, int] | None = None,
) -> Picture:
    """Memory over one training step, stacked by role, with a card's limit across it.

    Args:
        ledger: the step to draw.
        limit_bytes: what the card holds; what rises above it is striped, and where the step first exceeds it is ringed.
            Whether the step fits is `course_utils.techniques.capacity.fit`'s to say: tensors below the line may still
            be too much.
        before: another step, drawn as a dashed outline over this one, phase under phase.
        title: the finding; computed by `finding` if not given.
        limit: the name of the limit, "12 GiB card" if not given.
        before_name: what the outline is called.
        time: the predicted time of this step, `predict_step(ledger, device)`. The horizontal axis is then time: every
            operator as wide as the seconds it takes, the transfer before the step if there is one.
        before_time: the predicted time of `before`, drawn on the same scale; needed where both are given.
        part: a part of the peak that is no role, such as the logits: its name, and its bytes. A bracket marks how much
            of the stack that is, from the top down.

    Raises:
        CourseError: a time that is another step's, or an outline that has no time where the axis is time.
    """
    _check_times(ledger, before, time, before_time)
    verdict = None if limit_bytes is None else fit(ledger, limit_bytes, limit)
    name = verdict.card if verdict else ""
    scene = Scene(WIDTH, 440, describe(ledger, verdict, time))
    head = write_title(scene, title or finding(ledger, verdict))
    ghost_name = f"{before_name}: {format_bytes(before.peak_bytes)}" if before else ""
    if before_time is not None:
        ghost_name += f", {format_seconds(before_time.total_seconds)}"
    named = max(text_width(f"↑ {name}", SIZE, True), text_width(ghost_name, SIZE) + 20)
    column = max(text_width("weight gradients", SIZE) + 20, named) + COLUMN_GAP + 8
    right = WIDTH - min(column, WIDTH / 2)
    if time is None:
        events = by_operator(ledger, LEFT, right)
        ghost = under(before, events.spans) if before else None
        heading = "alive after each event of the step"
    else:
        longest = max(each.total_seconds for each in (time, before_time) if each is not None)
        events, *rest = (
            by_time(each, LEFT, (right - LEFT) / (longest or 1.0)) for each in (time, before_time) if each is not None
        )
        ghost = rest[0] if rest else None
        heading = f"alive over the {format_seconds(time.total_seconds)} predicted for {time.device.name}"
    plot = _Plot(scene, ledger, limit_bytes, events, ghost, heading, head + 26, right)
    plot.draw()
    if part is not None:
        plot.bracket(*part)
    plot.label(name, ghost_name)
    return Picture.from_scene(scene)


def _check_times(ledger: Ledger, before: Ledger | None, time: StepTime | None, before_time: StepTime | None) -> None:
    if time is None and before_time is not None:
        raise CourseError("before_time is given and time is not: both steps need one, or neither")
    if time is not None and before is not None and before_time is None:
        raise CourseError("before needs its own before_time where the axis is time: give predict_step(before, device)")
    for what, step, own in (("time", ledger, time), ("before_time", before, before_time)):
        if own is not None and own.ledger is not step:
            raise CourseError(f"{what} must be the time of the very step drawn: predict_step of the same ledger")


# ---------------------------------------------------------------------------------------------------------------------
# Shapes and words


def _steps(edges: Floats, level: Floats) -> Floats:
    """Corners of a step line: level[i] between edges[i] and edges[i + 1]."""
    return np.column_stack([np.repeat(edges, 2)[1:-1], np.repeat(level, 2)])


def _apart(wanted: Sequence[float], widths: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Middles of labels in one row, in order: as near to where they are wanted as the row's ends and gaps allow."""
    places: list[float] = []
    left = low
    for x, width in zip(wanted, widths, strict=True):
        places.append(max(x, left + width / 2))
        left = places[-1] + width / 2 + gap
    right = high
    for i in reversed(range(len(places))):
        places[i] = min(places[i], right - widths[i] / 2)
        right = places[i] - widths[i] / 2 - gap
    return places


def _with_room(spans: Sequence[Span], most: int) -> list[Span]:
    """The spans to name: all, or of more than `most` (a step that accumulates) those wide enough for their names."""
    needed = [text_width(span.name if span.seconds is None else f"{span.name} 99.9 ms", SIZE) + 14 for span in spans]
    return [s for s, width in zip(spans, needed, strict=True) if len(spans) <= most or width <= s.end - s.start]


def _ring(x: float, y: float, radius: float) -> Floats:
    angle = np.linspace(0, 2 * np.pi, 25)
    return np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle)])


class _Plot:
    """The plot of one ledger on a scene: first everything is drawn, then every label finds its place."""

    def __init__(
        self,
        scene: Scene,
        ledger: Ledger,
        limit: float | None,
        events: Events,
        ghost: Events | None,
        heading: str,
        top: float,
        right: float,
    ) -> None:
        self.scene, self.ledger, self.events, self.ghost, self.heading = scene, ledger, events, ghost, heading
        self.total = events.total
        self.levels = np.concatenate([np.zeros((len(self.total), 1)), np.cumsum(events.matrix, axis=1)], axis=1)
        self.timed = events.spans[0].seconds is not None
        self.right, self.top, self.bottom = right, top, scene.height - (52.0 if self.timed else 38.0)
        highest = max(int(each.total.max()) for each in (events, ghost) if each is not None)
        self.scale = ByteScale(axis_top(highest, limit), self.bottom - top)
        self.limit = limit
        self.limit_shown = limit is not None and limit <= self.scale.top

    def y(self, count: npt.ArrayLike) -> Floats:
        """Bytes to pixels."""
        return self.bottom - np.asarray(count, dtype=float) * (self.scale.length / self.scale.top)

    # Shapes

    def draw(self) -> None:
        """Axis, bands, what exceeds the limit, the outline of the whole, phases, limit and ghost, in this order."""
        self._draw_axis()
        for code, role in enumerate(ROLES):
            if self.events.matrix[:, code].any():
                upper = _steps(self.events.edges, self.y(self.levels[:, code + 1]))
                lower = _steps(self.events.edges, self.y(self.levels[:, code]))
                self.scene.add(Area(np.concatenate([upper, lower[::-1]]), ROLE_COLOURS[role]))
        if self.limit is not None and self.limit_shown:
            self._draw_overshoot(self.limit)
        self.scene.add(Lines([_steps(self.events.edges, self.y(self.total))], INK, 1.2))
        for span, following in pairwise(self.events.spans):
            if min(span.end - span.start, following.end - following.start) > 8:
                self.scene.add(Lines([[(span.end, self.top), (span.end, self.bottom)]], PAPER, 2.5))
        if self.limit is not None and self.limit_shown:
            y = float(self.y(self.limit))
            line = [[(LEFT, y), (self.right, y)]]
            self.scene.add(Lines(line, PAPER, 4), Lines(line, INK, 1.8, dashed=True))
        if self.ghost is not None:
            outline = [_steps(self.ghost.edges, self.y(self.ghost.total))]
            self.scene.add(Lines(outline, PAPER, 4), Lines(outline, INK, 1.8, dashed=True))

    def bracket(self, name: str, count: int) -> None:
        """Mark so many bytes at the peak, from the top of the stack down, and name them with their share."""
        event = int(np.argmax(self.total))
        x = float(self.events.edges[event] + self.events.edges[event + 1]) / 2 + 9
        top, low = float(self.y(self.total[event])), float(self.y(self.total[event] - count))
        line = [[(x - 5, top), (x, top), (x, low), (x - 5, low)]]
        self.scene.add(Lines(line, PAPER, 5), Lines(line, INK, 1.8))
        text = f"{name}: {percent(count, self.ledger.peak_bytes)} of the peak"
        width, box = text_width(text, SIZE, True), self._clear()
        heights = np.linspace(top + SIZE, max(low, top + SIZE), 9)
        places = [Words(x + 10, y, text, SIZE, bold=True) for y in heights if x + 10 + width < self.right]
        places += [Words(x - 22, y, text, SIZE, "end", bold=True) for y in heights if x - 22 - width > LEFT]
        words = self.scene.place(sorted(places, key=lambda one: self._over_bands(one.box)), box)
        if words is not None:  # over the bands it has paper behind it
            left, above, right, below = words.box
            behind = [(left - 3, above), (right + 3, above), (right + 3, below), (left - 3, below)]
            self.scene.items.insert(-1, Area(behind, PAPER))

    def _over_bands(self, box: Box) -> float:
        """Over how many pixels of its height a box covers the stack, at most."""
        roof = self.y(self.total[self.events.at(np.arange(box[0], min(box[2], self.events.end), 4.0))])
        return max(0.0, box[3] - float(roof.min(initial=self.bottom)))

    def _draw_axis(self) -> None:
        unit = self.scale.unit[1]
        self.scene.add(Words(12, self.top - 8, f"{unit} {self.heading}", SIZE, fill=FAINT))
        for count, label in self.scale.ticks(gap=44):
            y = float(self.y(count))
            if y >= self.top + 4:
                self.scene.add(Words(LEFT - 9, y + 0.35 * SIZE, label, SIZE, "end", fill=FAINT))
                self.scene.add(Lines([[(LEFT - 5, y), (LEFT, y)]], FAINT))
        self.scene.add(Lines([[(LEFT, self.top), (LEFT, self.bottom), (self.right, self.bottom)]], FAINT))
        if self.timed:
            self._name_timed(_with_room(self.events.spans, 4))
            return
        for span in _with_room(self.events.spans, 3):
            self.scene.add(Words((span.start + span.end) / 2, self.bottom + 24, span.name, SIZE, "middle"))

    def _name_timed(self, spans: Sequence[Span]) -> None:
        """Phases and their seconds in one row under the axis, each under its span or led to it by a line."""
        texts = [f"{span.name} {format_seconds(span.seconds or 0.0)}" for span in spans]
        widths = [text_width(text, SIZE) for text in texts]
        wanted = [(span.start + span.end) / 2 for span in spans]
        places = _apart(wanted, widths, 14.0, 4.0, WIDTH - 4)
        for x, span, text, width in zip(places, spans, texts, widths, strict=True):
            middle, ends = (span.start + span.end) / 2, (span.start + 1.5, max(span.end - 1.5, span.start + 2))
            self.scene.add(Lines([[(ends[0], self.bottom + 8), (ends[1], self.bottom + 8)]], INK, 2))
            aim = min(max(middle, x - width / 2 + 4), x + width / 2 - 4)
            self.scene.add(Lines([[(middle, self.bottom + 8), (aim, self.bottom + 24)]], FAINT))
            self.scene.add(Words(x, self.bottom + 40, text, SIZE, "middle"))

    def _draw_overshoot(self, limit: float) -> None:
        x = np.arange(LEFT + 3, self.events.end, 6.0)
        over = np.flatnonzero(self.total[self.events.at(x)] > limit)
        floor, roofs = float(self.y(limit)), self.y(self.total[self.events.at(x)])
        if len(over):
            self.scene.add(Lines([[(x[i], floor), (x[i], roofs[i])] for i in over], PAPER, 1.6))
            # Where the step first needs more than there is.
            at = float(self.events.edges[int(np.argmax(self.total > limit))])
            self.scene.add(Lines([_ring(at, floor, 6)], PAPER, 5), Lines([_ring(at, floor, 6)], INK, 2))

    # Words

    def label(self, limit_name: str, before_name: str) -> None:
        """The peak, where memory runs out, the bands; what finds no room on the plot goes to the column beside it."""
        on_plot = self._label_peak(named=False)
        if self.limit is not None and self.limit_shown and self.total.max() > self.limit:
            self._label_crossing(self.limit)
        columns = np.arange(LEFT + 2, self.events.end - 2, BAND_COLUMN)
        event = self.events.at(columns)
        blocked = np.zeros(len(columns), dtype=bool)
        for span in self.events.spans[1:]:
            blocked |= np.abs(columns - span.start) < 6
        crossing = float(self.y(self.limit)) if self.limit is not None and self.limit_shown else None
        shares = self.ledger.by_role()
        beside = []
        for code in np.flatnonzero(self.events.matrix.any(axis=0)):
            share = f"{percent(shares.iloc[code], self.ledger.peak_bytes)} of the peak"
            floor, roof = self.y(self.levels[event, code]), self.y(self.levels[event, code + 1])
            if self.ghost is not None:  # words keep to the larger side of an outline that crosses the band
                line = self.y(self.ghost.total[self.ghost.at(columns)])
                crossed, low = (roof < line) & (line < floor), floor - line > line - roof
                floor, roof = np.where(crossed & ~low, line - 3, floor), np.where(crossed & low, line + 3, roof)
            if not any(
                write_on_band(self.scene, columns, floor, roof, blocked, lines, ROLE_COLOURS[ROLES[code]], crossing)
                for lines in ([ROLES[code], share], [ROLES[code]])
            ):
                beside.append(int(code))
        self._label_beside(beside, limit_name, before_name)
        if not on_plot:
            self._label_peak(named=True)

    def _clear(self) -> list[Box]:
        """The vertical axis and the strip around the limit's line, which words must not touch."""
        boxes = [(LEFT - 2, self.top, LEFT + 2, self.bottom)]
        if self.limit is not None and self.limit_shown:
            y = float(self.y(self.limit))
            boxes.append((LEFT, y - 2, self.right, y + 2))
        return boxes

    def _outline(self) -> list[Box]:
        """The strip around the ghost's line, in short pieces, which words keep off where they can."""
        if self.ghost is None:
            return []
        ends = np.arange(LEFT, self.ghost.end, 12.0)
        y = self.y(self.ghost.total[self.ghost.at(ends)])
        return [(a, min(m, n) - 2, b, max(m, n) + 2) for (a, m), (b, n) in pairwise(zip(ends, y, strict=True))]

    def _above(self, x: float, y: float, text: str, bold: bool = False) -> list[Words]:
        """Places for a label over a point, best first: straight above, then higher, then to the sides."""
        half = text_width(text, SIZE, bold) / 2
        places = [(aside, lift) for lift in (10, 16, 24, 32, 44) for aside in (0.0, -half, half)]
        low, high = LEFT + half + 6, self.right - half
        return [Words(min(max(x + aside, low), high), y - lift, text, SIZE, "middle", bold) for aside, lift in places]

    def _label_peak(self, named: bool) -> bool:
        """Name the peak on the plot; or once the column has its names, in what room they leave, or over an outline."""
        ledger, event = self.ledger, int(np.argmax(self.total))
        x, y = float(self.events.edges[event] + self.events.edges[event + 1]) / 2, float(self.y(self.total[event]))
        if not named:
            self.scene.add(Area(_ring(x, y, 5), PAPER), Area(_ring(x, y, 3.5), INK))
        bold = self.limit is not None and ledger.peak_bytes > self.limit
        peak = f"peak {format_bytes(ledger.peak_bytes)}"
        where = f"{ledger.peak_phase}, {ledger.peak_layer}" if ledger.peak_layer else ledger.peak_phase
        texts = (f"{peak}: {where}", f"{peak}: {ledger.peak_phase}", peak)
        above = [words for text in texts for words in self._above(x, y, text, bold)]
        aside = [Words(x + 16, y - lift, text, SIZE, bold=bold) for text in texts for lift in (10, 7, 4, 2)]
        inside = [words for words in aside if words.x + text_width(words.text, SIZE, bold) <= self.right]
        low = [words for text in texts for words in self._under(x, y, text, bold)] if self.ghost is not None else []
        if not named:
            return self.scene.place([*above, *inside, *low], [*self._clear(), *self._outline()]) is not None
        placed = self.scene.place(aside, [*self._clear(), *self._outline()]) or self.scene.place(above, self._clear())
        return placed is not None

    def _under(self, x: float, y: float, text: str, bold: bool) -> list[Words]:
        """Places to the right of a point and lower, where the roofs leave paper under the outline of another step."""
        begin, end = x + 12, x + 16 + text_width(text, SIZE, bold)
        if end > self.events.end:
            return []
        roof = float(self.y(self.total[self.events.at(np.arange(begin, end, 4.0))].max()))
        return [Words(begin, low, text, SIZE, bold=bold) for low in np.arange(roof - 8, y + 10, -6.0).tolist()]

    def _label_crossing(self, limit: float) -> None:
        """Beside the ring, over the line: to its left nothing is drawn there, as the step is still below the limit."""
        x, y = float(self.events.edges[int(np.argmax(self.total > limit))]), float(self.y(limit))
        text = "out of memory here"
        if self.scene.place([Words(x - 12, y - 8, text, SIZE, "end")], self._clear()):
            return
        # No room: above the roofs, with a line down to the ring.
        start = max(x - 4, LEFT + 6)
        roof = float(
            self.y(self.total[self.events.at(np.arange(start, start + text_width(text, SIZE) + 8, 4.0))].max())
        )
        words = self.scene.place([Words(start, roof - lift, text, SIZE) for lift in (10, 18, 30, 40)], self._clear())
        if words is not None:
            self.scene.add(Lines([[(x, words.y + 5), (x, y - 6)]], INK, 1.5))

    def _label_beside(self, codes: Sequence[int], limit_name: str, before_name: str) -> None:
        """The column beside the plot: bands too thin for words, in stacking order; the limit and the ghost by name."""
        rows: list[tuple[str, str, float | None]] = []
        for code in codes:
            thickness = self.levels[:, code + 1] - self.levels[:, code]
            leader, event = None, int(np.flatnonzero(thickness)[-1])
            late = event >= len(thickness) - max(2, len(thickness) // 50)
            if late and self.events.end > self.right - 12:  # alive about where the column begins
                leader = float(self.y(self.levels[event, code] + thickness[event] / 2))
            rows.append((ROLES[code], ROLE_COLOURS[ROLES[code]], leader))
        x = self.right + COLUMN_GAP
        roof = label_column(self.scene, self.right, self.bottom, rows)
        names: list[tuple[float, bool]] = []  # y of what is named, whether it is the limit
        if self.limit is not None and self.limit_shown:
            names.append((float(self.y(self.limit)), True))
        elif self.limit is not None:
            self.scene.add(Words(x + 2, self.top - 8, f"↑ {limit_name}", SIZE, bold=True))
        if self.ghost is not None:
            names.append((float(self.y(self.ghost.total.max())), False))
        for line, is_limit in sorted(names, reverse=True):
            if is_limit:
                roof = name_limit(self.scene, self.right, line, roof, limit_name)
            else:
                y = min(line, roof)
                self.scene.add(Lines([[(x - 10, y), (x + 10, y)]], INK, 1.8, dashed=True))
                self.scene.add(Words(x + 18, y + 0.35 * SIZE, before_name, SIZE))
                roof = y - COLUMN_ROW
