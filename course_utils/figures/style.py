"""What every picture of the course shares: one colour per role, text sizes, byte axes, titles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_utils.figures.scene import (
    FAINT,
    INK,
    LINE_HEIGHT,
    PAPER,
    WIDTH,
    Area,
    Lines,
    Points,
    Scene,
    Words,
    overlap,
    text_width,
    wrap,
)
from course_utils.memory import ROLES
from course_utils.units import GIB, KIB, MIB, as_written

# Chosen by search so that every pair stays apart (CIEDE2000 of 14 or more) for normal sight and for red-, green- and
# blue-blind sight, and so that bands that touch differ in lightness by 12 or more: tests/library/test_figures.py
# measures it.
_COLOURS = ("#113984", "#69c9f2", "#a17f26", "#e5e2e2", "#0e6b51", "#e9888c", "#7d648a", "#f4cd72")
ROLE_COLOURS = dict(zip(ROLES, _COLOURS, strict=True))
# For things that are no roles (devices, techniques): four of Okabe and Ito's colours, which stay apart without colour
# vision and are dark enough for lines on white and light enough for lines on black.
SERIES_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")
DARK_TEXT, LIGHT_TEXT = "#111111", "#ffffff"
SIZE, TITLE_SIZE = 16.0, 19.0  # pixels at notebook width: 12 and 14 point
ROW = 27.0  # pixels from one bar to the next
BAR = 19.0  # pixels a bar is high
BAND_COLUMN = 4.0  # pixels between the columns at which bands are sampled for room
HEADROOM, LIMIT_HEADROOM = 1.19, 1.25  # upper end of an axis of bytes: so many times the peak, or the limit
COLUMN_GAP, COLUMN_ROW = 16.0, 1.35 * SIZE  # of the column of names beside a plot: its distance, its line height
# A row of that column: name, colour, and the point of the band where a leader to the name begins (None for no leader).
Row = tuple[str, str, tuple[float, float] | None]

Floats = npt.NDArray[np.float64]


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", from 0 for black to 1 for white (WCAG 2)."""
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def text_on(colour: str) -> str:
    """The ink, dark or light, with the higher contrast on a fixed colour."""
    behind = luminance(colour) + 0.05
    return LIGHT_TEXT if 1.05 / behind > behind / (luminance(DARK_TEXT) + 0.05) else DARK_TEXT


@dataclass(frozen=True)
class ByteScale:
    """An axis from 0 to `top` bytes over `length` pixels, with round ticks in one unit."""

    top: float
    length: float

    @property
    def unit(self) -> tuple[float, str]:
        """Bytes in the unit of the ticks, and its name."""
        units = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
        return next(((size, name) for size, name in units if self.top >= size), (1, "B"))

    def ticks(self, gap: float) -> list[tuple[float, str]]:
        """(bytes, label) of round values at least `gap` pixels apart, from 0 up."""
        size = self.unit[0]
        least = gap * self.top / size / self.length
        power = 10.0 ** np.floor(np.log10(least))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
        count = int(self.top / size / step + 1e-9)
        return [(i * step * size, f"{i * step:.10g}") for i in range(count + 1)]

    def pixels(self, count: float) -> float:
        """Length of so many bytes."""
        return count / self.top * self.length


def axis_top(peak_bytes: float, limit_bytes: float | None) -> float:
    """Upper end of an axis of bytes: room above the peak, and steady while a slider moves.

    With a limit it is 1.25 times the limit, so that the picture grows against a line that stands still; halved as often
    as a small peak allows, times √2 as often as a large one needs.
    """
    needed = max(peak_bytes, 1.0) * HEADROOM
    if not limit_bytes:
        return needed
    steady = LIMIT_HEADROOM * limit_bytes
    doublings = float(np.log2(needed / steady))
    return float(steady * 2.0 ** (np.ceil(doublings) if doublings < 0 else np.ceil(2 * doublings) / 2))


def write_title(scene: Scene, title: str) -> float:
    """Write the title over the scene, wrapped; returns the y below it."""
    y = TITLE_SIZE + 4
    for line in wrap(as_written(title), TITLE_SIZE, scene.width - 24):
        scene.add(Words(12, y, line, TITLE_SIZE))
        y += TITLE_SIZE * LINE_HEIGHT
    return y - TITLE_SIZE * LINE_HEIGHT + 10


def bar_at(left: float, y: float, right: float) -> Points:
    """The corners of a bar whose middle is at y."""
    return [(left, y - BAR / 2), (right, y - BAR / 2), (right, y + BAR / 2), (left, y + BAR / 2)]


def circle(x: float, y: float, radius: float, corners: int = 24) -> Floats:
    """The corners of a circle around a point, the first again at the end."""
    angle = np.linspace(0, 2 * np.pi, corners + 1)
    return np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle)])


def beside(x: float, y: float, text: str, end: bool = False, bold: bool = False, fill: str = INK) -> Words:
    """Words on the line of a bar whose middle is at y."""
    return Words(x, y + 0.35 * SIZE, text, SIZE, "end" if end else "start", bold, fill)


def write_on_band(
    scene: Scene,
    columns: Floats,
    floor: Floats,
    roof: Floats,
    lines: Sequence[str],
    colour: str,
    crossing: float | None = None,
) -> bool:
    """Write on a band of the picture where it is tall and wide enough; False, and nothing written, if it is nowhere.

    Args:
        scene: where to write.
        columns: (n,) x of sampled columns, BAND_COLUMN apart.
        floor: (n,) y of the band's lower edge there, the larger number; the upper edge's where no words may stand.
        roof: (n,) y of its upper edge.
        lines: the words, the first line bold.
        colour: the band's.
        crossing: y of a horizontal line through the picture that words keep clear of.
    """
    wide = int((max(text_width(line, SIZE, True) for line in lines) + 20) / BAND_COLUMN)
    tall = SIZE * (LINE_HEIGHT * len(lines) + 0.15)
    if wide >= len(columns) or (floor - roof).max() < tall:
        return False
    windows = np.lib.stride_tricks.sliding_window_view
    low, high = windows(floor, wide).min(axis=1), windows(roof, wide).max(axis=1)
    if crossing is not None:
        below = low - crossing >= crossing - high  # the side of the line that has more room
        low = np.where(below, low, np.minimum(low, crossing - 3))
        high = np.where(below, np.maximum(high, crossing + 3), high)
    height = low - high
    if height.max() < tall:
        return False
    good = np.flatnonzero(height >= max(tall, 0.9 * height.max()))
    start = int(good[len(good) // 2])  # of all places nearly as tall as the tallest, the one in the middle
    x, middle = float(columns[start : start + wide].mean()), float(low[start] + high[start]) / 2
    first = middle + SIZE * (0.35 - LINE_HEIGHT / 2 * (len(lines) - 1))
    ink = text_on(colour)
    words = [
        Words(x, first + LINE_HEIGHT * SIZE * i, line, SIZE, "middle", bold=i == 0, fill=ink)
        for i, line in enumerate(lines)
    ]
    if any(overlap(one.box, other.box) for one in words for other in scene.words()):
        return False
    # Stripes and outlines stop at the words.
    left, top = min(one.box[0] for one in words) - 4, words[0].box[1] - 2
    right, bottom = max(one.box[2] for one in words) + 4, words[-1].box[3] + 2
    scene.add(Area([(left, top), (right, top), (right, bottom), (left, bottom)], colour), *words)
    return True


def label_column(scene: Scene, right: float, bottom: float, rows: Sequence[Row]) -> float:
    """The names of bands too thin for words, in a column beside the plot, lowest first, each with its colour.

    `right` and `bottom` are the plot's edges. Returns the y of the next free row.
    """
    x, y = right + COLUMN_GAP, bottom + COLUMN_ROW / 2
    for name, colour, leader in rows:
        y -= COLUMN_ROW
        if leader is not None:
            scene.add(Lines([[leader, (x - 2, y)]], FAINT))
        square = [(x, y - 7), (x + 14, y - 7), (x + 14, y + 7), (x, y + 7)]
        scene.add(Area(square, colour), Lines([[*square, square[0]]], FAINT, 0.8))
        scene.add(Words(x + 20, y + 0.35 * SIZE, name, SIZE))
    return y - COLUMN_ROW


def name_limit(scene: Scene, right: float, line: float, roof: float, name: str) -> float:
    """The limit's name beside the plot, at the end of its line, or above the column with a leader if that is taller.

    `right` is the plot's edge, `line` the y of the limit's line, `roof` that of the next free row of the column.
    Returns the y of the next free row.
    """
    y = min(line, roof)
    x = right + COLUMN_GAP
    scene.add(Lines([[(right, line), (x - 2, y)]], INK, 1.8, dashed=y == line))
    scene.add(Words(x + 2, y + 0.35 * SIZE, name, SIZE, bold=True))
    return y - COLUMN_ROW


def name_over_bars(scene: Scene, x: float, y: float, name: str, left: float = 0.0) -> float:
    """The name of an upright limit, in the middle over it, not left of `left`; the y of the next row."""
    y += 1.3 * SIZE
    half = text_width(name, SIZE, True) / 2
    scene.add(Words(min(max(x, left + half), WIDTH - half - 4), y, name, SIZE, "middle", bold=True))
    return y


def line_through_bars(scene: Scene, x: float, top: float, bottom: float) -> None:
    """An upright limit through bars: dashed, on a strip of paper."""
    line = [[(x, top), (x, bottom)]]
    scene.add(Lines(line, PAPER, 4.0), Lines(line, INK, 1.8, dashed=True))


def clear_of(line: float | None, x: float, text: str) -> float:
    """Where a bar's number begins: at `x`, or after an upright limit that it would lie across."""
    if line is not None and x - 4 < line < x + text_width(text, SIZE, True) + 4:
        return line + 8
    return x


def percent(part: float, whole: float) -> str:
    """A share in whole percent."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
