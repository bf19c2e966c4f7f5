"""The skyline's plot: bands, limit and outlines on a scene, and a place for every label where there is room for it."""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from course_utils.figures.events import Events, Floats
from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Scene, Words, overlap, text_width
from course_utils.figures.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    COLUMN_ROW,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    Row,
    axis_top,
    circle,
    label_column,
    name_limit,
    percent,
    write_on_band,
)
from course_utils.memory import ROLES, Ledger
from course_utils.units import format_bytes, format_seconds

# Everything below is in pixels of a scene WIDTH wide.
HEIGHT = 440.0
LEFT = 62.0  # the vertical axis
UNIT_X = 12.0  # where the line that names the axis begins
TITLE_GAP = 26.0  # from the title to the plot, with the axis's name between them
UNDER_PLOT, UNDER_TIMED_PLOT = 38.0, 52.0  # for phases' names; for names with seconds, bars and leaders
COLUMN_KEY, COLUMN_DASH, COLUMN_MARGIN = 20.0, 20.0, 8.0  # beside the words of the column: a colour, a dash, the end
DASH = 10.0  # half the dash that stands for the outline of another step

CENTRED = 0.35 * SIZE  # from the middle of a line of words down to their baseline
TICK, TICK_GAP = 5.0, 44.0  # a tick's length; the least between two
LIFTS = (10.0, 16.0, 24.0, 32.0, 44.0)  # of a label over its point, the best first
LIFTS_ASIDE = (10.0, 7.0, 4.0, 2.0)  # of one to the right of it
LIFTS_OVER_ROOFS = (10.0, 18.0, 30.0, 40.0)
ASIDE = 16.0  # from a point to the words to its right
BRACKET_ASIDE = 9.0  # from the peak to the bracket of a part of it
ABOVE = 8.0  # from a line to the words above it

EDGE, LINE, HALO = 1.2, 1.8, 4.0  # the step's outline; the limit and another step's outline; the paper under these
PHASE_GAP, NARROWEST_PHASE = 2.5, 8.0  # the paper line between two phases, drawn if both are wider than this
STRIPE, STRIPES = 1.6, 6.0  # of what rises above the limit: a stripe's width, and from one to the next
RING, DOT = 6.0, 3.5  # radius where memory runs out, and of the peak, which has DOT_HALO of paper around it
DOT_HALO = 5.0
NEAR_BORDER = 6.0  # a band's words keep as far from where a phase begins
STRIP = 2.0  # words keep as far from axis, limit and outline
SAMPLE = 4.0  # from one column to the next where roofs are looked up
OUTLINE_PIECE = 12.0  # the length of the pieces into which an outline is cut, for words to keep off it
LEADER_REACH = 12.0  # a band that is alive so near to the column is led to its name there

PHASES_NAMED, TIMED_PHASES_NAMED = 3, 4  # of more, only those with room for their names
PHASE_MARGIN = 14.0  # around a phase's name
PHASE_ROW = 24.0  # from the axis to the names of phases
BAR_ROW, LEADER_ROW, TIMED_ROW = 8.0, 24.0, 40.0  # where there are seconds: bars, the ends of leaders, names
PAGE_MARGIN = 4.0


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


class Plot:
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
        self.right, self.top, self.bottom = right, top, scene.height - (UNDER_TIMED_PLOT if self.timed else UNDER_PLOT)
        highest = max(int(each.total.max()) for each in (events, ghost) if each is not None)
        self.scale = ByteScale(axis_top(highest, limit), self.bottom - top)
        self.limit = np.inf if limit is None else limit
        self.line = float(self.y(self.limit)) if self.limit <= self.scale.top else None  # in pixels, where it is shown
        self.over = self.total > self.limit
        self.crossing = float(events.edges[np.argmax(self.over)])  # where the step first needs more than there is
        at = int(np.argmax(self.total))
        self.peak = float(events.edges[at] + events.edges[at + 1]) / 2, float(self.y(self.total[at]))  # in pixels
        self.peak_bold = ledger.peak_bytes > self.limit

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
        if self.line is not None:
            self._draw_overshoot(self.line)
        self.scene.add(Lines([_steps(self.events.edges, self.y(self.total))], INK, EDGE))
        for span, following in pairwise(self.events.spans):
            if min(span.end - span.start, following.end - following.start) > NARROWEST_PHASE:
                # From the lowest roof around it down, so that the line hides no narrow tower.
                near = self.events.at(np.arange(span.end - NARROWEST_PHASE, span.end + NARROWEST_PHASE, 1.0))
                line = [[(span.end, float(self.y(self.total[near].min()))), (span.end, self.bottom)]]
                self.scene.add(Lines(line, PAPER, PHASE_GAP))
        if self.line is not None:
            line = [[(LEFT, self.line), (self.right, self.line)]]
            self.scene.add(Lines(line, PAPER, HALO), Lines(line, INK, LINE, dashed=True))
        if self.ghost is not None:
            outline = [_steps(self.ghost.edges, self.y(self.ghost.total))]
            self.scene.add(Lines(outline, PAPER, HALO), Lines(outline, INK, LINE, dashed=True))

    def bracket(self, name: str, count: int) -> None:
        """Mark so many bytes at the peak, from the top of the stack down, and name them with their share."""
        x, top = self.peak[0] + BRACKET_ASIDE, self.peak[1]
        low = float(self.y(self.total.max() - count))
        line = [[(x - TICK, top), (x, top), (x, low), (x - TICK, low)]]
        self.scene.add(Lines(line, PAPER, HALO), Lines(line, INK, LINE))
        text = f"{name}: {percent(count, self.ledger.peak_bytes)} of the peak"
        width, left, right = text_width(text, SIZE, True), x - ASIDE - BRACKET_ASIDE, x + ASIDE / 2
        heights = np.linspace(top + SIZE, max(low, top + SIZE), 9)
        places = [Words(right, y, text, SIZE, bold=True) for y in heights if right + width < self.right]
        places += [Words(left, y, text, SIZE, "end", bold=True) for y in heights if left - width > LEFT]
        words = self.scene.place(sorted(places, key=lambda one: self._over_bands(one.box)), self._clear())
        if words is not None:  # over the bands it has paper behind it
            left, above, right, below = words.box
            behind = [(left - STRIP, above), (right + STRIP, above), (right + STRIP, below), (left - STRIP, below)]
            self.scene.items.insert(-1, Area(behind, PAPER))

    def _over_bands(self, box: Box) -> float:
        """Over how many pixels of its height a box covers the stack, at most."""
        roof = self.y(self.total[self.events.at(np.arange(box[0], min(box[2], self.events.end), SAMPLE))])
        return max(0.0, box[3] - float(roof.min(initial=self.bottom)))

    def _draw_axis(self) -> None:
        unit = self.scale.unit[1]
        self.scene.add(Words(UNIT_X, self.top - ABOVE, f"{unit} {self.heading}", SIZE, fill=FAINT))
        for count, label in self.scale.ticks(gap=TICK_GAP):
            y = float(self.y(count))
            if y >= self.top + PAGE_MARGIN:
                self.scene.add(Words(LEFT - TICK - PAGE_MARGIN, y + CENTRED, label, SIZE, "end", fill=FAINT))
                self.scene.add(Lines([[(LEFT - TICK, y), (LEFT, y)]], FAINT))
        self.scene.add(Lines([[(LEFT, self.top), (LEFT, self.bottom), (self.right, self.bottom)]], FAINT))
        self._name_phases()

    def _name_phases(self) -> None:
        """Phases in one row under the axis; where they have seconds with these, and led to by a line."""
        spans = self.events.spans
        if len(spans) > (TIMED_PHASES_NAMED if self.timed else PHASES_NAMED):  # of a step that accumulates
            seconds = " 99.9 ms" if self.timed else ""
            needed = [text_width(span.name + seconds, SIZE) + PHASE_MARGIN for span in spans]
            spans = [span for span, room in zip(spans, needed, strict=True) if room <= span.end - span.start]
        texts = [span.name if span.seconds is None else f"{span.name} {format_seconds(span.seconds)}" for span in spans]
        widths = [text_width(text, SIZE) for text in texts]
        middles = [(span.start + span.end) / 2 for span in spans]
        low, high = (PAGE_MARGIN, WIDTH - PAGE_MARGIN) if self.timed else (LEFT, self.right)
        places = _apart(middles, widths, PHASE_MARGIN, low, high)
        bars, leaders = self.bottom + BAR_ROW, self.bottom + LEADER_ROW
        for x, span, text, width, middle in zip(places, spans, texts, widths, middles, strict=True):
            if self.timed:
                # Bars of neighbours do not touch; the shortest is still seen.
                start, end = span.start + 1.5, max(span.end - 1.5, span.start + 2)
                aim = min(max(middle, x - width / 2 + 4), x + width / 2 - 4)  # within the words
                self.scene.add(Lines([[(start, bars), (end, bars)]], INK, 2))
                self.scene.add(Lines([[(middle, bars), (aim, leaders)]], FAINT))
            self.scene.add(Words(x, self.bottom + (TIMED_ROW if self.timed else PHASE_ROW), text, SIZE, "middle"))

    def _draw_overshoot(self, line: float) -> None:
        x = np.arange(LEFT + STRIPES / 2, self.events.end, STRIPES)
        x = x[self.over[self.events.at(x)]]
        if len(x):
            stripes = zip(x, self.y(self.total[self.events.at(x)]), strict=True)
            ring = [circle(self.crossing, line, RING)]
            self.scene.add(Lines([[(px, line), (px, roof)] for px, roof in stripes], PAPER, STRIPE))
            self.scene.add(Lines(ring, PAPER, 5), Lines(ring, INK, 2))

    # Words

    def label(self, limit_name: str, before_name: str) -> None:
        """The peak, where memory runs out, the bands; what finds no room on the plot goes to the column beside it."""
        self.scene.add(Area(circle(*self.peak, DOT_HALO), PAPER), Area(circle(*self.peak, DOT), INK))
        named = self._name_peak()
        if self.line is not None and self.over.any():
            self._label_crossing(self.line)
        columns = np.arange(LEFT + STRIP, self.events.end - STRIP, BAND_COLUMN)
        event = self.events.at(columns)
        starts = np.array([span.start for span in self.events.spans[1:]])
        border = (np.abs(columns[:, None] - starts) < NEAR_BORDER).any(axis=1)
        shares = self.ledger.by_role()
        beside = []
        for code in np.flatnonzero(self.events.matrix.any(axis=0)):
            share = percent(shares.iloc[code], self.ledger.peak_bytes)
            with_share = [[ROLES[code], f"{share} of the peak"]] if share != "0 %" else []
            floor, roof = self.y(self.levels[event, code]), self.y(self.levels[event, code + 1])
            if self.ghost is not None:  # words keep to the larger side of an outline that crosses the band
                line = self.y(self.ghost.total[self.ghost.at(columns)])
                crossed, low = (roof < line) & (line < floor), floor - line > line - roof
                floor, roof = np.where(crossed & ~low, line - HALO, floor), np.where(crossed & low, line + HALO, roof)
            floor = np.where(border, roof, floor)
            if not any(
                write_on_band(self.scene, columns, floor, roof, lines, ROLE_COLOURS[ROLES[code]], self.line)
                for lines in (*with_share, [ROLES[code]])
            ):
                beside.append(int(code))
        self._label_beside(beside, limit_name, before_name)
        # Else in what room the column's names leave, or over another step's outline.
        if not named and not self.scene.place(self._aside(), [*self._clear(), *self._outline()]):
            self.scene.place(self._above(), self._clear())

    def _clear(self) -> list[Box]:
        """The vertical axis and the strip around the limit's line, which words must not touch."""
        boxes = [(LEFT - STRIP, self.top, LEFT + STRIP, self.bottom)]
        if self.line is not None:
            boxes.append((LEFT, self.line - STRIP, self.right, self.line + STRIP))
        return boxes

    def _outline(self) -> list[Box]:
        """The strip around the ghost's line, in short pieces, which words keep off where they can."""
        if self.ghost is None:
            return []
        ends = np.arange(LEFT, self.ghost.end, OUTLINE_PIECE)
        y = self.y(self.ghost.total[self.ghost.at(ends)])
        pieces = pairwise(zip(ends, y, strict=True))
        return [(a, min(m, n) - STRIP, b, max(m, n) + STRIP) for (a, m), (b, n) in pieces]

    def _above(self) -> list[Words]:
        """Places for the peak's name over it, best first: most words, straight above; then to the sides, and higher."""
        (x, y), places = self.peak, []
        for text in self._peak_texts():
            half = text_width(text, SIZE, self.peak_bold) / 2
            for lift, aside in product(LIFTS, (0.0, -half, half)):
                middle = min(max(x + aside, LEFT + half + 6), self.right - half)
                places.append(Words(middle, y - lift, text, SIZE, "middle", self.peak_bold))
        return places

    def _peak_texts(self) -> tuple[str, ...]:
        """What can be said of the peak, from the most words to the fewest."""
        peak = f"peak {format_bytes(self.ledger.peak_bytes)}"
        phase, layer = f"{peak}: {self.ledger.peak_phase}", self.ledger.peak_layer
        named = layer not in ("", self.ledger.name)  # the whole network is no layer
        return f"{phase}, {layer}" if named else phase, phase, peak

    def _name_peak(self) -> bool:
        """Name the peak on the plot: above it, to its right, or lower under another step's outline. Whether it fits."""
        inside = [words for words in self._aside() if words.box[2] <= self.right]
        low = [words for text in self._peak_texts() for words in self._under(text)] if self.ghost else []
        return self.scene.place([*self._above(), *inside, *low], [*self._clear(), *self._outline()]) is not None

    def _aside(self) -> list[Words]:
        """Places for the peak's name to its right, in the column too."""
        x, y = self.peak
        places = [(text, lift) for text in self._peak_texts() for lift in LIFTS_ASIDE]
        return [Words(x + ASIDE, y - lift, text, SIZE, bold=self.peak_bold) for text, lift in places]

    def _under(self, text: str) -> list[Words]:
        """Places right of the peak and lower, where the roofs leave paper under the outline of another step."""
        x, y = self.peak
        begin, end = x + ASIDE - SAMPLE, x + ASIDE + text_width(text, SIZE, self.peak_bold)
        if end > self.events.end:
            return []
        roof = float(self.y(self.total[self.events.at(np.arange(begin, end, SAMPLE))].max()))
        lines = np.arange(roof - ABOVE, y + LIFTS[0], -6.0).tolist()
        return [Words(begin, line, text, SIZE, bold=self.peak_bold) for line in lines]

    def _label_crossing(self, y: float) -> None:
        """Beside the ring, over the line: to its left nothing is drawn there, as the step is still below the limit."""
        x, text = self.crossing, "over the limit here"
        if self.scene.place([Words(x - 2 * RING, y - ABOVE, text, SIZE, "end")], self._clear()):
            return
        # No room: above the roofs, with a line down to the ring.
        start = max(x - 4, LEFT + 6)
        under = np.arange(start, start + text_width(text, SIZE) + 2 * SAMPLE, SAMPLE)
        roof = float(self.y(self.total[self.events.at(under)].max()))
        places = [Words(start, roof - lift, text, SIZE) for lift in LIFTS_OVER_ROOFS]
        in_the_way = [one for one in self.scene.words() if overlap((x - 1, self.top, x + 1, y), one.box)]
        if in_the_way:  # a line down would go through them: to their left, with a line that passes below
            places = [Words(one.box[0] - ABOVE, one.y, text, SIZE, "end") for one in in_the_way]
        words = self.scene.place(places, self._clear())
        if words is not None:
            foot = x if words.anchor == "start" else words.x
            self.scene.add(Lines([[(foot, words.y + 5), (x, y - RING)]], INK, 1.5))

    def _label_beside(self, codes: Sequence[int], limit_name: str, before_name: str) -> None:
        """The column beside the plot: bands too thin for words, in stacking order; the limit and the ghost by name."""
        rows: list[Row] = []
        for code in codes:
            thickness = self.levels[:, code + 1] - self.levels[:, code]
            leader, event = None, int(np.flatnonzero(thickness)[-1])
            ends = float(self.events.edges[event + 1])
            if ends > self.right - LEADER_REACH:  # alive about where the column begins: led there from where it ends
                leader = (ends, float(self.y(self.levels[event, code] + thickness[event] / 2)))
            rows.append((ROLES[code], ROLE_COLOURS[ROLES[code]], leader))
        x = self.right + COLUMN_GAP
        roof = label_column(self.scene, self.right, self.bottom, rows)
        names = [] if self.line is None else [(self.line, True)]  # y of what is named, whether it is the limit
        if limit_name and self.line is None:
            self.scene.add(Words(x + 2, self.top - ABOVE, f"↑ {limit_name}", SIZE, bold=True))
        if self.ghost is not None:
            names.append((float(self.y(self.ghost.total.max())), False))
        for line, is_limit in sorted(names, reverse=True):
            if is_limit:
                roof = name_limit(self.scene, self.right, line, roof, limit_name)
            else:
                y = min(line, roof)
                self.scene.add(Lines([[(x - DASH, y), (x + DASH, y)]], INK, LINE, dashed=True))
                self.scene.add(Words(x + DASH + ABOVE, y + CENTRED, before_name, SIZE))
                roof = y - COLUMN_ROW
