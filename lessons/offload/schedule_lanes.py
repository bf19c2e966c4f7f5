"""The two-lane schedule: computation and copies over the time of one step, what waits for what, and memory below.

A reading (`offload.Schedule`) goes in, a `scene.Picture` comes out; every number in words comes from the schedule.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from course_utils.figures.scene import (
    FAINT,
    INK,
    PAPER,
    WIDTH,
    Area,
    Box,
    Lines,
    Picture,
    Scene,
    Words,
    text_width,
)
from course_utils.figures.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    COLUMN_ROW,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    Floats,
    axis_top,
    label_column,
    name_limit,
    write_on_band,
    write_title,
)  # fmt: skip
from course_utils.memory import PHASES, ROLES, Int64
from course_utils.techniques.capacity import card_name
from course_utils.techniques.offload.schedule import BACK, OUT, Schedule
from course_utils.units import format_bytes, format_seconds
from lessons.offload.lanes import LANES_HEIGHT, STALL_ROWS, TwoLanes

MEMORY_HEIGHT = 250.0  # pixels
MOVED = {"none": "nothing", "windowed": "all", "conv": "what convolutions read", "dyn": "a choice"}  # by policy


def what_it_is(schedule: Schedule) -> str:
    """Network, batch, what moves: "VGG-16, batch 128, all moved", and the algorithms where they are not the fastest."""
    work = schedule.work
    how = {"p": "", "m": " (m)"}.get(schedule.algorithm, " (mixed algorithms)")
    window = f", {schedule.window} in flight" if schedule.window else ""
    return f"{work.name}, batch {work.batch:,}, {MOVED.get(schedule.policy, schedule.policy)} moved{how}{window}"


def schedule_finding(schedule: Schedule, before: Schedule | None = None) -> str:
    """The finding in words: what the peak becomes, and what that costs in time."""
    head = f"{what_it_is(schedule)}: peak {format_bytes(schedule.peak_bytes)}"
    if not schedule.copies:
        return f"{head} in {_time(schedule)}, nothing moves"
    if before is None:
        waits = schedule.total_seconds - schedule.compute_seconds
        return f"{head}; the device waits {_percent(waits / schedule.total_seconds)} of {_time(schedule)}"
    more = schedule.total_seconds / before.total_seconds - 1
    cost = f"{_percent(more)} more time" if more >= 0.0005 else "no more time"
    if format_bytes(schedule.peak_bytes) == format_bytes(before.peak_bytes):
        return f"{head} as before, for {cost}"
    return f"{head} instead of {format_bytes(before.peak_bytes)}, for {cost}"


def describe_schedule(schedule: Schedule, limit_bytes: float | None = None, before: Schedule | None = None) -> str:
    """Alternative text: the lanes, the longest waits with their reasons, and memory."""
    traffic = schedule.traffic_bytes()
    parts = [
        f"Two lanes over one training step of {what_it_is(schedule)}: computation "
        f"{format_seconds(schedule.compute_seconds)} in a step of {_time(schedule)}; copies of "
        f"{format_bytes(traffic[OUT])} to the host and {format_bytes(traffic[BACK])} back"
    ]
    longest = sorted(schedule.stalls, key=lambda stall: stall.seconds, reverse=True)[:3]
    parts += [f"{schedule.explain(stall)}" for stall in longest] or ["Nothing waits"]
    average = format_bytes(schedule.average_bytes)
    where = schedule.kernel_name(schedule.peak_kernel)
    parts.append(f"Memory below: peak {format_bytes(schedule.peak_bytes)} at {where}, average {average}")
    if before is not None:
        parts.append(f"With nothing moved: {format_bytes(before.peak_bytes)}, {_time(before)}")
    if limit_bytes is not None:
        parts.append(f"Limit: {card_name(limit_bytes)}")
    return ". ".join(parts) + "."


def schedule_lanes(
    schedule: Schedule,
    limit_bytes: float | None = None,
    before: Schedule | None = None,
    title: str | None = None,
    limit: str | None = None,
) -> Picture:
    """Computation and copies as two lanes over time, stalls named, and memory over the same time below.

    Args:
        schedule: the step to draw.
        limit_bytes: what the card holds.
        before: the same step with nothing moved, drawn as an outline over the memory.
        title: the finding; computed if not given.
        limit: the name of the limit, "12 GiB card" if not given.
    """
    name = limit or (card_name(limit_bytes) if limit_bytes is not None else "")
    height = LANES_HEIGHT + 1.4 * SIZE + MEMORY_HEIGHT + 150
    scene = Scene(WIDTH, height, describe_schedule(schedule, limit_bytes, before))
    head = write_title(scene, title or schedule_finding(schedule, before))
    named = max(text_width(name, SIZE, True), text_width("nothing moved", SIZE) + 16)
    column = max(text_width("weight gradients", SIZE) + 20, named) + COLUMN_GAP
    left = text_width("computation", SIZE) + 24
    seconds = max(schedule.total_seconds, before.total_seconds if before else 0.0)
    lanes = TwoLanes(scene, schedule, left, WIDTH - column - 12, seconds)
    bottom = lanes.draw(head + STALL_ROWS * 1.4 * SIZE + 16)
    memory = _Memory(lanes, bottom + 44, height - 62)
    memory.draw(limit_bytes, before)
    memory.label(limit_bytes, name, before)
    return Picture.from_scene(scene)


def _time(schedule: Schedule) -> str:
    return format_seconds(schedule.total_seconds)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


class _Memory:
    """Memory under the lanes: everything is drawn first, then what names it."""

    def __init__(self, lanes: TwoLanes, top: float, bottom: float) -> None:
        self.lanes, self.scene, self.schedule = lanes, lanes.scene, lanes.schedule
        self.left, self.right, self.top, self.bottom = lanes.left, lanes.right, top, bottom
        self.x = lanes.x
        self.scale = ByteScale(1.0, 1.0)
        self.keep_clear: list[Box] = []  # the outline and the lines between passes
        self.edges: Floats = np.zeros(1)
        self.levels: Floats = np.zeros((1, len(ROLES) + 1))

    def draw(self, limit_bytes: float | None, before: Schedule | None) -> None:
        """Memory over time, stacked by role, the limit and the outline of the step with nothing moved."""
        scene, schedule = self.scene, self.schedule
        highest = max(schedule.peak_bytes, before.peak_bytes if before else 0)
        self.scale = ByteScale(axis_top(highest, limit_bytes), self.bottom - self.top)
        times, by_role = schedule.memory_by_role
        edges, levels = _thinned(np.array([self.x(t) for t in (*times, schedule.total_seconds)]), by_role)
        self.edges = edges
        self.levels = np.concatenate([np.zeros((len(levels), 1)), np.cumsum(levels, axis=1)], axis=1)
        self._axes()
        for code, role in enumerate(ROLES):
            if levels[:, code].any():
                upper = _steps(edges, self.y(self.levels[:, code + 1]))
                lower = _steps(edges, self.y(self.levels[:, code]))
                scene.add(Area(np.concatenate([upper, lower[::-1]]), ROLE_COLOURS[role]))
        scene.add(Lines([_steps(edges, self.y(self.levels[:, -1]))], INK, 1.2))
        if before is not None:
            when, level = before.memory
            ghost_edges, ghost = _thinned(np.array([self.x(t) for t in (*when, before.total_seconds)]), level[:, None])
            line = [_steps(ghost_edges, self.y(ghost[:, 0]))]
            scene.add(Lines(line, PAPER, 4), Lines(line, FAINT, 1.8))
            for (ax, ay), (bx, by) in pairwise(line[0]):
                self.keep_clear.append((min(ax, bx) - 3, min(ay, by) - 3, max(ax, bx) + 3, max(ay, by) + 3))
        if limit_bytes is not None and limit_bytes <= self.scale.top:
            y = float(self.y(np.array(limit_bytes)))
            across = [[(self.left, y), (self.right, y)]]
            scene.add(Lines(across, PAPER, 4), Lines(across, INK, 1.8, dashed=True))

    def y(self, count: Floats) -> Floats:
        """Bytes to pixels."""
        return self.bottom - np.asarray(count, dtype=float) * (self.scale.length / self.scale.top)

    def _axes(self) -> None:
        scene = self.scene
        scene.add(Words(12, self.top - 8, f"{self.scale.unit[1]} over the time of the step", SIZE, fill=FAINT))
        for count, label in self.scale.ticks(gap=40):
            y = self.bottom - self.scale.pixels(count)
            if y >= self.top + 4:
                scene.add(Words(self.left - 9, y + 0.35 * SIZE, label, SIZE, "end", fill=FAINT))
                scene.add(Lines([[(self.left - 5, y), (self.left, y)]], FAINT))
        scene.add(Lines([[(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)]], FAINT))
        seconds = self.lanes.seconds
        step, unit, name = _time_ticks(seconds)
        for i in range(int(seconds / step + 1e-9) + 1):
            x = self.x(i * step)
            scene.add(Lines([[(x, self.bottom), (x, self.bottom + 5)]], FAINT))
            label = f"{i * step / unit:.10g}" + (f" {name}" if i == 0 else "")
            scene.add(Words(x, self.bottom + 24, label, SIZE, "middle", fill=FAINT))
        self._phases()

    def _phases(self) -> None:
        """Where a pass begins: a line through the lanes and the memory; its name under the axis."""
        schedule = self.schedule
        for phase, name in enumerate(PHASES):
            own = np.flatnonzero(schedule.work.phase == phase)
            if not len(own):
                continue
            left, right = self.x(schedule.begins[own[0]]), self.x(schedule.ends[own[-1]])
            if phase:
                marks = [(self.lanes.top - 4, self.lanes.bottom), (self.top, self.bottom)]
                self.scene.add(Lines([[(left, y) for y in mark] for mark in marks], FAINT, 1.2))
                self.keep_clear.append((left - 2, self.top, left + 2, self.bottom))
            if right - left > text_width(name, SIZE) + 8:
                self.scene.place([Words((left + right) / 2, self.bottom + 48, name, SIZE, "middle")])

    def label(self, limit_bytes: float | None, limit: str, before: Schedule | None) -> None:
        """Peak and average, the bands by name, the limit and the outline in the column beside the plot."""
        schedule, scene = self.schedule, self.scene
        end = self.x(schedule.total_seconds)
        columns = np.arange(self.left + 2, end - 2, BAND_COLUMN)
        event = np.clip(np.searchsorted(self.edges, columns, side="right") - 1, 0, len(self.levels) - 1)
        crossing = None
        if limit_bytes is not None and limit_bytes <= self.scale.top:
            crossing = float(self.y(np.array(limit_bytes)))
        self._peak(crossing)
        beside = []
        for code in np.flatnonzero((self.levels[:, 1:] > self.levels[:, :-1]).any(axis=0)):
            floor, roof = self.y(self.levels[event, code]), self.y(self.levels[event, code + 1])
            colour = ROLE_COLOURS[ROLES[code]]
            if not len(columns) or not write_on_band(scene, columns, floor, roof, [ROLES[code]], colour, crossing):
                beside.append((ROLES[code], colour, None))
        roof_y = label_column(scene, self.right, self.bottom, beside)
        names: list[tuple[float, str, bool]] = []
        if crossing is not None:
            names.append((crossing, limit, True))
        if before is not None:
            names.append((float(self.y(np.array(before.peak_bytes))), "nothing moved", False))
        for y, name, is_limit in sorted(names, reverse=True):
            if is_limit:
                roof_y = name_limit(scene, self.right, y, roof_y, name)
            else:
                y = min(y, roof_y)
                x = self.right + COLUMN_GAP
                scene.add(Lines([[(x - 10, y), (x + 10, y)]], FAINT, 1.8))
                scene.add(Words(x + 14, y + 0.35 * SIZE, name, SIZE))
                roof_y = y - COLUMN_ROW

    def _peak(self, crossing: float | None) -> None:
        total = self.levels[:, -1]
        at = int(np.argmax(total))
        x, y = float(self.edges[at] + self.edges[at + 1]) / 2, float(self.y(total[at]))
        peak = format_bytes(self.schedule.peak_bytes, 1)
        where = self.schedule.kernel_name(self.schedule.peak_kernel)
        texts = [f"peak {peak}: {where}", f"peak {peak}"]
        clear = [*self.keep_clear, *([] if crossing is None else [(self.left, crossing - 2, self.right, crossing + 2)])]
        spots = []
        for text in texts:
            half = text_width(text, SIZE) / 2
            low, high = self.left + half + 6, self.right - half
            spots += [
                Words(min(max(x + aside, low), high), y - lift, text, SIZE, "middle")
                for lift in (*range(10, 45, 8), *range(45, max(46, int(y - self.top) - 16), 16))
                for aside in (0.0, -half, half)
            ]
        words = self.scene.place(spots, clear)
        if words is not None and y - words.y > 32:
            self.scene.add(Lines([[(x, words.y + 5), (x, y - 3)]], INK, 1.2))


def _thinned(edges: Floats, levels: Int64) -> tuple[Floats, Floats]:
    """(n + 1,) edges and (n, …) levels with stretches of at least half a pixel: of those joined, the highest."""
    total = levels.sum(axis=1)
    starts: list[int] = []
    keep: list[int] = []
    for i in range(len(levels)):
        if starts and edges[i + 1] - edges[starts[-1]] < 0.5:
            if total[i] > total[keep[-1]]:
                keep[-1] = i
        else:
            starts.append(i)
            keep.append(i)
    return np.append(edges[starts], edges[-1]), np.asarray(levels[keep], dtype=float)


def _steps(edges: Floats, level: Floats) -> Floats:
    """Corners of a step line: level[i] between edges[i] and edges[i + 1]."""
    return np.column_stack([np.repeat(edges, 2)[1:-1], np.repeat(level, 2)])


def _time_ticks(seconds: float) -> tuple[float, float, str]:
    """Seconds between ticks, seconds of the unit, its name: about six round ticks."""
    unit, name = next(((u, n) for u, n in ((1.0, "s"), (1e-3, "ms")) if seconds >= 2 * u), (1e-6, "µs"))
    least = seconds / unit / 7
    power = 10.0 ** np.floor(np.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return float(step * unit), unit, name
