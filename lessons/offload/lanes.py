"""The two lanes of a schedule: kernels on one, copies on the other, stripes and words where one waits for the other.

`lessons.offload.schedule_lanes` puts memory below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product

import numpy as np

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Scene, Words, overlap, text_width
from course_utils.figures.style import SERIES_COLOURS, SIZE, text_on
from course_utils.techniques.offload.schedule import BACK, OUT, Schedule
from course_utils.units import format_bytes, format_seconds

LANE = 34.0  # pixels a lane is high
STALL_ROWS = 2  # rows of words over the lanes that name what waits
NAME_GAP = 5.0  # pixels on either side of such words
SMALLEST = 4.0  # pixels; narrower kernels and copies are drawn together
COMPUTE_COLOUR = SERIES_COLOURS[1]
COPY_COLOURS = {OUT: SERIES_COLOURS[0], BACK: "#f0a060"}  # one hue for copies, and none of a role's
COPY_NAMES = {OUT: "copies to the host", BACK: "copies back"}
LANES_HEIGHT = 2 * LANE + 12 + STALL_ROWS * 1.4 * SIZE


@dataclass(frozen=True)
class _Block:
    """A stretch of a lane with one name."""

    name: str
    colour: str
    left: float
    right: float


class TwoLanes:
    """Two lanes between `left` and `right` pixels, `seconds` long."""

    def __init__(self, scene: Scene, schedule: Schedule, left: float, right: float, seconds: float) -> None:
        self.scene, self.schedule, self.left, self.right = scene, schedule, left, right
        self.seconds = seconds or 1.0
        self.top = self.bottom = 0.0  # of the lanes, once drawn

    def x(self, seconds: float) -> float:
        """Seconds to pixels."""
        return self.left + seconds / self.seconds * (self.right - self.left)

    def draw(self, top: float) -> float:
        """Both lanes from this y on, their names, the waits over them and the bytes under them; returns the y below."""
        scene, schedule = self.scene, self.schedule
        self.top = top
        rows = ((top, "computation", self._kernels()), (top + LANE + 12, "copies", self._copies()))
        for y, name, blocks in rows:
            scene.add(Words(self.left - 12, y + LANE / 2 + 0.35 * SIZE, name, SIZE, "end"))
            scene.add(Lines([[(self.left, y + LANE), (self.x(schedule.total_seconds), y + LANE)]], FAINT))
            for block in blocks:
                scene.add(Area(_box(block.left, y, block.right, y + LANE), block.colour))
            self._separate(blocks, y)
        self._stalls(top)
        for y, _, blocks in rows:
            for block in blocks:
                self._name(block, y)
        bottom = rows[1][0] + LANE
        x = self.left
        for way, colour in COPY_COLOURS.items():
            if any(copy.direction == way for copy in schedule.copies):
                sent = f"{COPY_NAMES[way]}: {format_bytes(schedule.traffic_bytes()[way], 1)}"
                scene.add(Area(_box(x, bottom + 10, x + 14, bottom + 24), colour))
                scene.add(Words(x + 20, bottom + 23, sent, SIZE))
                x += 44 + text_width(sent, SIZE)
        if schedule.stalls:
            scene.add(Lines([[(x + i, bottom + 10), (x + i, bottom + 24)] for i in (1, 5, 9, 13)], FAINT, 1.2))
            waits = f"waits: {format_seconds(schedule.total_seconds - schedule.compute_seconds)}"
            scene.add(Words(x + 20, bottom + 23, waits, SIZE))
        if not schedule.copies:
            scene.add(Words(x, bottom + 23, "nothing is copied", SIZE, fill=FAINT))
        self.bottom = bottom
        return bottom + 24

    def _name(self, block: _Block, y: float) -> None:
        """The layer's name on its block, where that is wide enough."""
        if block.name and text_width(block.name, SIZE) + 6 <= block.right - block.left:
            middle, ink = (block.left + block.right) / 2, text_on(block.colour)
            self.scene.add(Words(middle, y + LANE / 2 + 0.35 * SIZE, block.name, SIZE, "middle", fill=ink))

    def _kernels(self) -> list[_Block]:
        """Consecutive kernels of one layer and pass as one block; no block across a stall."""
        schedule = self.schedule
        work = schedule.work
        blocks = []
        waits = {stall.kernel for stall in schedule.stalls}
        group = np.cumsum([kernel in waits for kernel in range(work.kernels)])
        keys = [(int(group[k]), work.layers[k], int(work.phase[k])) for k in range(work.kernels)]
        for (_, layer, _), members in groupby(range(work.kernels), key=lambda kernel: keys[kernel]):
            kernels = list(members)
            begins, ends = self.x(schedule.begins[kernels[0]]), self.x(schedule.ends[kernels[-1]])
            if ends > begins:
                blocks.append(_Block(layer, COMPUTE_COLOUR, begins, ends))
        return _merged(blocks)

    def _copies(self) -> list[_Block]:
        owners = self.schedule.work.owners
        return _merged(
            [
                _Block(owners[copy.tensor], COPY_COLOURS[copy.direction], self.x(copy.begins), self.x(copy.ends))
                for copy in self.schedule.copies
            ]
        )

    def _separate(self, blocks: Sequence[_Block], y: float) -> None:
        cuts = [
            [(after.left, y), (after.left, y + LANE)]
            for one, after in pairwise(blocks)
            if abs(one.right - after.left) < 1 and min(one.right - one.left, after.right - after.left) >= SMALLEST
        ]
        if cuts:
            self.scene.add(Lines(cuts, PAPER, 1.5))

    def _stalls(self, top: float) -> None:
        """Stripes where the device waits, and the longest waits by name."""
        schedule = self.schedule
        stripes = []
        for stall in schedule.stalls:
            left, right = self.x(stall.begins), self.x(stall.begins + stall.seconds)
            stripes += [[(x, top + 2), (x, top + LANE - 2)] for x in np.arange(left + 1.5, right - 0.5, 4.0)]
        if stripes:
            self.scene.add(Lines(stripes, FAINT, 1.2))
        by_kernel: dict[int, float] = {}
        begins: dict[int, float] = {}
        for stall in schedule.stalls:
            by_kernel[stall.kernel] = by_kernel.get(stall.kernel, 0.0) + stall.seconds
            begins.setdefault(stall.kernel, stall.begins)
        longest = sorted(by_kernel, key=lambda kernel: by_kernel[kernel], reverse=True)[:5]
        named = [
            (self.x(begins[kernel] + by_kernel[kernel] / 2),
             f"{schedule.kernel_name(kernel)} waits {format_seconds(by_kernel[kernel], 2)}")
            for kernel in longest if self.x(by_kernel[kernel]) - self.left >= 1.5
        ]  # fmt: skip
        ways = [
            self._name_stalls(named, top, rows)
            for rows in (tuple(range(STALL_ROWS)), tuple(reversed(range(STALL_ROWS))))
        ]
        for words, leader in max(ways, key=len):
            self.scene.add(words, Lines([leader], INK, 1.2))

    def _name_stalls(
        self, named: Sequence[tuple[float, str]], top: float, rows: tuple[int, ...]
    ) -> list[tuple[Words, list[tuple[float, float]]]]:
        """Words over the lanes with a line down to what they name, neither crossing another; what has no room is left.

        Each is put into the first of `rows`, counted upwards, that has room for it.
        """
        placed: list[tuple[Words, list[tuple[float, float]]]] = []
        for x, text in named:
            half = text_width(text, SIZE) / 2
            low, high = self.left - 4 + half, WIDTH - half - 4
            for row, aside in product(rows, (0.0, half - 6, 6 - half)):
                words = Words(min(max(x + aside, low), high), top - 12 - row * 1.4 * SIZE, text, SIZE, "middle")
                left, roof, right, floor = words.box
                around = (left - NAME_GAP, roof, right + NAME_GAP, floor)
                leader = (x - 3, words.y + 4, x + 3, top - 1)
                others = [(other.box, (line[0][0] - 3, line[0][1] - 1, line[0][0] + 3, top)) for other, line in placed]
                if not any(
                    overlap(around, box) or overlap(words.box, line) or overlap(leader, box) for box, line in others
                ):
                    placed.append((words, [(x, words.y + 5), (x, top - 1)]))
                    break
        return placed


def _merged(blocks: Sequence[_Block]) -> list[_Block]:
    """Neighbours of one colour that touch, where one is too narrow to be told apart, as one block without a name."""
    merged: list[_Block] = []
    for block in blocks:
        last = merged[-1] if merged else None
        touches = last is not None and last.colour == block.colour and block.left - last.right < 0.6
        if last is not None and touches and min(last.right - last.left, block.right - block.left) < SMALLEST:
            wider = max(last, block, key=lambda one: one.right - one.left)
            name = wider.name if wider.right - wider.left > 10 * SMALLEST else ""
            merged[-1] = _Block(name, block.colour, last.left, block.right)
        else:
            merged.append(block)
    return merged


def _box(left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]
