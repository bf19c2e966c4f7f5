"""Curves and points over two axes, each linear or logarithmic: crossovers, rooflines, prices, Pareto fronts.

Names stand at the things themselves: a curve's at its right end, a point's beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SIZE, circle, write_title
from course_utils.units import CourseError

HEIGHT = 460.0  # pixels, with the title on one line
DOT, SMALL_DOT = 5.5, 3.5  # radius of a point, in pixels
NAME_GAP = 1.3 * SIZE  # between the names of two curves
SPOT_GAP = 0.6 * SIZE  # between the names of two points, or two would read as one
# Where a point's name may stand, best first, in pixels to the right and down; and that of the only bold one among many.
NEAR = [(10, 0.35 * SIZE), (-10, 0.35 * SIZE), (0, -12), (0, 24), *((x, y) for y in (-8, 20, -22, 32) for x in (8, -8))]
FAR = [(x, y) for y in (-30, 46, -54, 70) for x in (24, -24, 70, -70)]


def write_plain(value: float) -> str:
    """A tick's number with thousands separators and no needless zeros."""
    return f"{value:,.10g}"


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows with its unit, whether it is logarithmic, its ends (fitted if None), how ticks read."""

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None
    write: Callable[[float], str] = write_plain

    def fit(self, values: Sequence[float]) -> Axis:
        """The same axis with both ends: around the values, from 0 if linear, a little room on every open side."""
        low, high = self.low, self.high
        if self.log:
            low = min(values) / 1.3 if low is None else low
            high = max(values) * 1.3 if high is None else high
        else:
            low = min(0.0, *values) if low is None else low
            high = low + 1.12 * (max(values) - low) if high is None else high
        if not low < high:
            low, high = (low / 2, low * 2) if self.log else (low, low + 1)
        return Axis(self.label, self.log, low, high, self.write)

    def share(self, value: float) -> float:
        """Where a value lies between the ends: 0 at the low end, 1 at the high one."""
        assert self.low is not None
        assert self.high is not None
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, length: float, gap: float) -> list[float]:
        """Round values within the ends, at least `gap` of `length` pixels apart."""
        assert self.low is not None
        assert self.high is not None
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for factors in ((1, 2, 5), (1,)):
                ticks = [f * 10.0**power for power in range(first, last + 1) for f in factors]
                ticks = [tick for tick in ticks if -1 <= self.share(tick) * length <= length + 1]
                apart = [abs(self.share(b) - self.share(a)) * length for a, b in pairwise(ticks)]
                if not apart or min(apart) >= gap:
                    return ticks
            return ticks[:: math.ceil(gap / min(apart))]
        least = gap * (self.high - self.low) / length
        power = 10.0 ** math.floor(math.log10(least))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
        return [i * step for i in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Curve:
    """A line through points, named at its right end; x increasing."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = INK
    dashed: bool = False
    width: float = 2.4


@dataclass(frozen=True)
class Spot:
    """A named point. A hollow one is a guess, or somebody else's figure, or does not fit; small ones lie behind."""

    name: str
    x: float
    y: float
    colour: str = INK
    hollow: bool = False
    bold: bool = False
    small: bool = False


@dataclass(frozen=True)
class _Frame:
    """Pixels of the plot's edges, and the axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point, clipped to a little beyond the plot so that lines leave it at the right slope."""
        across, up = (min(max(share, -3.0), 4.0) for share in (self.x.share(x), self.y.share(y)))
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)


def plane(
    x: Axis,
    y: Axis,
    curves: Sequence[Curve] = (),
    spots: Sequence[Spot] = (),
    title: str = "",
    limits: Mapping[str, float] | None = None,
    marks: Mapping[str, float] | None = None,
    height: float = HEIGHT,
) -> Picture:
    """Curves and points over two axes.

    Args:
        x: the axis to the right.
        y: the axis upwards.
        curves: lines, drawn in this order.
        spots: points, drawn over them. Names that find no room are left to the alternative text.
        title: the finding.
        limits: name -> y of a dashed horizontal line, such as what a card holds.
        marks: name -> x of a dashed vertical line, such as a crossover.
        height: pixels of the picture.

    Raises:
        CourseError: nothing to draw, a number that is not finite, or one of 0 or less on a logarithmic axis.
    """
    limits, marks = dict(limits or {}), dict(marks or {})
    xs = [*chain.from_iterable(c.x for c in curves), *(s.x for s in spots), *marks.values()]
    ys = [*chain.from_iterable(c.y for c in curves), *(s.y for s in spots), *limits.values()]
    if not xs or not ys:
        raise CourseError("plane needs a curve or a point to draw")
    for axis, values in ((x, xs), (y, ys)):
        if not all(map(math.isfinite, values)) or (axis.log and min(values) <= 0):
            what = "finite numbers above 0 on a logarithmic axis" if axis.log else "finite numbers"
            raise CourseError(f"plane needs {what} for {axis.label!r}")
    said = _in_words(x, y, curves, spots, limits, marks)
    scene = Scene(WIDTH, height, f"{title}. {said}" if title else said)
    top = write_title(scene, title) + 26 if title else 30.0
    x, y = x.fit(xs), y.fit(ys)
    bottom = height - 62.0
    ticks = [(tick, y.write(tick)) for tick in y.ticks(bottom - top, 2.2 * SIZE)]
    names = [text_width(curve.name, SIZE, True) for curve in curves] + [text_width(name, SIZE, True) for name in limits]
    left = max((text_width(text, SIZE) for _, text in ticks), default=0.0) + 26
    frame = _Frame(left, top, WIDTH - max([*names, 20.0]) - 26, bottom, x, y)
    _axes(scene, frame, ticks)
    across = [frame.at(value, 1.0 if y.log else 0.0)[0] for value in marks.values()]
    up = [frame.at(xs[0], value)[1] for value in limits.values()]
    for px in across:
        scene.add(Lines([[(px, top), (px, bottom)]], INK, 1.6, dashed=True))
    drawn: list[Box] = [(0.0, bottom - 2, frame.right, bottom + 2), (left - 2, top, left + 2, bottom)]  # the axes
    for py in up:
        line = [[(left, py), (frame.right, py)]]
        scene.add(Lines(line, PAPER, 4), Lines(line, INK, 1.8, dashed=True))
        drawn.append((left, py - 2, frame.right, py + 2))
    paths = [_within(frame, np.array([frame.at(a, b) for a, b in zip(c.x, c.y, strict=True)])) for c in curves]
    for curve, points in zip(curves, paths, strict=True):
        if len(points) > 1:
            scene.add(Lines([points], curve.colour, curve.width, curve.dashed))
            drawn += _boxes(points)
    ends = [(points[-1], c.name, c.colour) for c, points in zip(curves, paths, strict=True) if c.name and points]
    _end_names(scene, frame, [*ends, *(((frame.right, py), name, INK) for py, name in zip(up, limits, strict=True))])
    dots = [frame.at(spot.x, spot.y) for spot in spots]
    _small_dots(scene, spots, dots)
    for spot, (px, py) in zip(spots, dots, strict=True):
        radius = SMALL_DOT if spot.small else DOT
        drawn.append((px - radius, py - radius, px + radius, py + radius))
        if not spot.small:
            around = circle(px, py, radius)
            scene.add(Area(around, PAPER if spot.hollow else spot.colour), Lines([around], spot.colour, 2.0))
    for name, px in zip(marks, across, strict=True):
        words = (
            Words(px + side * 8, top + lift, name, SIZE, "start" if side > 0 else "end", bold=True)
            for lift in (14, 36, 58, 80, 102)
            for side in (1, -1)
        )
        scene.place(words, drawn)
    drawn += [(px - 2, top, px + 2, bottom) for px in across]
    for spot, (px, py) in zip(spots, dots, strict=True):
        if spot.name and scene.place(_names(spot, px, py, NEAR), drawn, SPOT_GAP) is None and spot.bold:
            far = scene.place(_names(spot, px, py, FAR), drawn, SPOT_GAP)
            if far is not None:  # too far to be seen as this point's without a line
                left, top_edge, right, bottom_edge = far.box
                leader = (px, py), (min(max(px, left), right), min(max(py, top_edge), bottom_edge))
                scene.add(Lines([leader], FAINT, 1.0))
    return Picture.from_scene(scene)


def _small_dots(scene: Scene, spots: Sequence[Spot], dots: Sequence[tuple[float, float]]) -> None:
    """All small points of one look as one shape: there may be hundreds, and a browser paints each shape by itself."""
    small = [(spot, dot) for spot, dot in zip(spots, dots, strict=True) if spot.small]
    for colour, hollow in dict.fromkeys((spot.colour, spot.hollow) for spot, _ in small):
        here = [dot for spot, dot in small if (spot.colour, spot.hollow) == (colour, hollow)]
        if not hollow:  # a thick ring of half the radius is a disc
            scene.add(Lines([circle(*dot, SMALL_DOT / 2, 12) for dot in here], colour, SMALL_DOT))
        scene.add(Lines([circle(*dot, SMALL_DOT, 12) for dot in here], colour, 2.0))


def _axes(scene: Scene, frame: _Frame, ticks: Sequence[tuple[float, str]]) -> None:
    left, top, right, bottom = frame.left, frame.top, frame.right, frame.bottom
    scene.add(Lines([[(left, top), (left, bottom), (right, bottom)]], FAINT))
    scene.add(Words(12, top - 10, frame.y.label, SIZE, fill=FAINT))
    for value, text in ticks:
        py = bottom - frame.y.share(value) * (bottom - top)
        if scene.place([Words(left - 9, py + 0.35 * SIZE, text, SIZE, "end", fill=FAINT)]):  # else the label is there
            scene.add(Lines([[(left - 5, py), (left, py)]], FAINT))
    widest = max(text_width(frame.x.write(end or 1.0), SIZE) for end in (frame.x.low, frame.x.high))
    for value in frame.x.ticks(right - left, max(60.0, widest + 16)):
        px = left + frame.x.share(value) * (right - left)
        scene.add(Lines([[(px, bottom), (px, bottom + 5)]], FAINT))
        scene.place([Words(px, bottom + 22, frame.x.write(value), SIZE, "middle", fill=FAINT)])
    scene.add(Words((left + right) / 2, bottom + 46, frame.x.label, SIZE, "middle", fill=FAINT))


def _within(frame: _Frame, points: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[tuple[float, float]]:
    """The part of a polyline inside the plot, cut at its edges: the first stretch that is."""
    kept: list[tuple[float, float]] = []
    for (ax, ay), (bx, by) in pairwise(points):
        start, end = 0.0, 1.0
        for a, b, low, high in ((ax, bx, frame.left, frame.right), (ay, by, frame.top, frame.bottom)):
            if a == b:
                if not low <= a <= high:
                    start, end = 1.0, 0.0
            else:
                one, other = sorted(((low - a) / (b - a), (high - a) / (b - a)))
                start, end = max(start, one), min(end, other)
        if start >= end:
            if kept:
                break
            continue
        if not kept:
            kept.append((ax + start * (bx - ax), ay + start * (by - ay)))
        kept.append((ax + end * (bx - ax), ay + end * (by - ay)))
    return kept


def _boxes(points: Sequence[tuple[float, float]]) -> list[Box]:
    """Small boxes along a polyline, which words keep clear of."""
    line = np.array(points)
    far = np.hypot(*np.diff(line, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(far)])
    steps = np.arange(0.0, along[-1] + 1, 8.0)
    xs, ys = (np.interp(steps, along, values) for values in line.T)
    return [(px - 3, py - 3, px + 3, py + 3) for px, py in zip(xs, ys, strict=True)]


def _end_names(scene: Scene, frame: _Frame, ends: Sequence[tuple[tuple[float, float], str, str]]) -> None:
    """Names to the right of the plot at the height at which a line ends, moved apart where they would touch.

    A leader in the line's colour ties the two: no colour that shows on white and on black is one to read words in.
    """
    ends = sorted(ends, key=lambda end: (end[0][1], end[1]))
    heights = [y for (_, y), _, _ in ends]
    for _ in range(60):  # push neighbours apart, a little each round
        for i in range(len(heights) - 1):
            missing = NAME_GAP - (heights[i + 1] - heights[i])
            if missing > 0:
                heights[i] -= missing / 2
                heights[i + 1] += missing / 2
        heights = [min(max(y, frame.top + 2), frame.bottom - 2) for y in heights]
    for y, ((x, end), name, colour) in zip(heights, ends, strict=True):
        if x < frame.right - 3:  # the line ends within the plot: a thin one goes on to where names begin
            scene.add(Lines([[(x, end), (frame.right, end)]], FAINT, 1.0))
        if abs(y - end) > 3 or colour != INK:
            leader = (FAINT, 1.0) if colour == INK else (colour, 2.4)
            scene.add(Lines([[(frame.right, end), (frame.right + 12, y)]], *leader))
        scene.add(Words(frame.right + 16, y + 0.35 * SIZE, name, SIZE, bold=True))


def _names(spot: Spot, px: float, py: float, places: Iterable[tuple[float, float]]) -> list[Words]:
    """A point's name in each of some places around it: to its right, to its left, or centred."""
    return [
        Words(px + dx, py + dy, spot.name, SIZE, "start" if dx > 0 else "end" if dx else "middle", spot.bold)
        for dx, dy in places
    ]


def _in_words(
    x: Axis, y: Axis, curves: Sequence[Curve], spots: Sequence[Spot], limits: dict[str, float], marks: dict[str, float]
) -> str:
    """The picture in words: every curve from its first to its last point, every named point, line and mark."""
    parts = [
        f"{curve.name or 'a line'}: from {_said(y, curve.y[0])} at {_said(x, curve.x[0])} "
        f"to {_said(y, curve.y[-1])} at {_said(x, curve.x[-1])}"
        for curve in curves
        if len(curve.x)
    ]
    parts += [f"{spot.name}: {_said(y, spot.y)} at {_said(x, spot.x)}" for spot in spots if spot.name]
    parts += [f"{name}: {_said(y, value)}" for name, value in limits.items()]
    parts += [f"{name}: {_said(x, value)}" for name, value in marks.items()]
    return f"{y.label} against {x.label}. {'; '.join(parts)}."


def _said(axis: Axis, value: float) -> str:
    """A value as its axis writes it; where that is plain, to four digits unless it is a whole number."""
    if axis.write is write_plain and value != round(value):
        return write_plain(float(f"{value:.4g}"))
    return axis.write(value)
