"""One layout, two painters: shapes and words in pixels, written as an SVG in the reader's theme or as a PNG.

A picture is laid out once as a `Scene` (areas, lines, words; x to the right, y downwards, in pixels). `to_svg` writes
it for a notebook that may run it, its ink and paper taken from the page's own theme; `to_png` paints the same shapes
with matplotlib for places that may not (an untrusted notebook, GitHub, a slide, the README). `Picture` carries both,
with alternative text.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font, LoadFlags
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from PIL import Image

from course_utils.units import as_written

# Colours of the page rather than of the picture: what JupyterLab, VS Code and Colab each call their theme's, and the
# colour of a plain page, which has none of them, and of the PNG. Everything else is a fixed "#rrggbb".
INK, FAINT, PAPER = "ink", "faint", "paper"
THEME = {
    INK: ("jp-content-font-color1", "vscode-editor-foreground", "colab-primary-text-color", "#222222"),
    FAINT: ("jp-content-font-color2", "vscode-descriptionForeground", "colab-secondary-text-color", "#666666"),
    PAPER: ("jp-layout-color0", "vscode-editor-background", "colab-primary-surface-color", "#ffffff"),
}
WIDTH = 960  # pixels of a full picture: the width of a notebook's column
NARROWEST = 600  # pixels on a page: in a narrower column it is moved sideways, so that its words stay readable
FONT = "DejaVu Sans"  # comes with matplotlib, so a PNG is the same everywhere; wider than most, so estimates are safe
LINE_HEIGHT = 1.25  # of the font size

Points: TypeAlias = npt.NDArray[np.float64] | Sequence[tuple[float, float]]
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Area:
    """A filled polygon."""

    points: Points
    fill: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Lines:
    """Unconnected polylines of one look."""

    parts: Sequence[Points]
    stroke: str = INK
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Words:
    """One line of text; (x, y) is its anchor on the baseline."""

    x: float
    y: float
    text: str
    size: float = 16.0
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    fill: str = INK

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", as_written(self.text))

    @property
    def box(self) -> Box:
        """The rectangle it fills, estimated from the widths of DejaVu Sans."""
        width = text_width(self.text, self.size, self.bold)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 0.8 * self.size, left + width, self.y + 0.25 * self.size


@dataclass
class Scene:
    """Shapes in the order in which they are painted, on a canvas of width × height pixels."""

    width: float
    height: float
    alt: str
    items: list[Area | Lines | Words] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alt = as_written(self.alt)

    def add(self, *items: Area | Lines | Words) -> None:
        """Paint these on top of what is there."""
        self.items.extend(items)

    def words(self) -> list[Words]:
        """The texts of the scene, in order."""
        return [item for item in self.items if isinstance(item, Words)]

    def place(self, candidates: Iterable[Words], keep_clear: Iterable[Box] = (), gap: float = 0.0) -> Words | None:
        """Add the first candidate that stays on the canvas and touches neither other words nor `keep_clear`, if any.

        `gap` is how many pixels it keeps from the words to its left and right.
        """
        words_there = [(left - gap, top, right + gap, low) for left, top, right, low in (w.box for w in self.words())]
        taken = [*keep_clear, *words_there]
        for words in candidates:
            left, top, right, bottom = words.box
            inside = left >= 0 and top >= 0 and right <= self.width and bottom <= self.height
            if inside and not any(overlap(words.box, other) for other in taken):
                self.add(words)
                return words
        return None


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share a point of their insides."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@lru_cache(maxsize=2)
def _font(bold: bool) -> FT2Font:
    font = FT2Font(font_manager.findfont(font_manager.FontProperties(family=FONT, weight="bold" if bold else "normal")))
    font.set_size(100, 72)
    return font


@lru_cache(maxsize=4096)
def _advance(character: str, bold: bool) -> float:
    return float(_font(bold).load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance) / 65536 / 100


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width in pixels of a line of DejaVu Sans `size` pixels high."""
    return size * sum(_advance(character, bold) for character in text)


def wrap(text: str, size: float, width: float) -> list[str]:
    """Break a text into lines of at most `width` pixels; a word longer than that keeps a line of its own."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


# ---------------------------------------------------------------------------------------------------------------------
# Painter 1: SVG


FINE = 10  # SVG units in a pixel: whole numbers are shorter to write and faster to make


def _fine(pixels: float) -> int:
    return round(FINE * pixels)


def _path(points: Points, close: bool) -> str:
    """SVG path data in whole tenths of a pixel; points that change nothing are left out."""
    (x, y), *rest = np.rint(FINE * np.asarray(points, dtype=float)).astype(int).tolist()
    parts = [f"M{x} {y}"]
    heading = ""
    for new_x, new_y in rest:
        if new_x == x and new_y == y:
            continue
        if new_y == y:
            move, goes = f"H{new_x}", "right" if new_x > x else "left"
        elif new_x == x:
            move, goes = f"V{new_y}", "down" if new_y > y else "up"
        else:
            move, goes = f"L{new_x} {new_y}", ""
        if goes and goes == heading:
            parts[-1] = move  # further the same way
        else:
            parts.append(move)
        heading, x, y = goes, new_x, new_y
    return "".join(parts) + ("Z" if close else "")


def _css(colour: str) -> str:
    return f"var(--{colour})" if colour in THEME else colour


def _svg_item(item: Area | Lines | Words) -> str:
    if isinstance(item, Area):
        opacity = "" if item.opacity == 1 else f' fill-opacity="{item.opacity:g}"'
        return f'<path fill="{_css(item.fill)}"{opacity} d="{_path(item.points, close=True)}"/>'
    if isinstance(item, Lines):
        data = "".join(_path(part, close=False) for part in item.parts)
        dashes = f' stroke-dasharray="{_fine(5 * item.width)} {_fine(4 * item.width)}"' if item.dashed else ""
        return (
            f'<path fill="none" stroke="{_css(item.stroke)}" stroke-width="{_fine(item.width)}"{dashes} '
            f'stroke-linejoin="round" d="{data}"/>'
        )
    anchor = "" if item.anchor == "start" else f' text-anchor="{item.anchor}"'
    bold = ' font-weight="bold"' if item.bold else ""
    return (
        f'<text x="{_fine(item.x)}" y="{_fine(item.y)}" font-size="{_fine(item.size)}"{anchor}{bold} '
        f'fill="{_css(item.fill)}">{escape(item.text)}</text>'
    )


def to_svg(scene: Scene) -> str:
    """The scene as an inline SVG element that takes ink and paper from the page and scales with its font size."""
    theme = ";".join(
        f"--{name}:var(--{lab}, var(--{code}, var(--{colab}, {plain})))"
        for name, (lab, code, colab, plain) in THEME.items()
    )
    # 14 px is JupyterLab's text size: there the picture has its own size, and it grows with larger text in a lecture.
    style = f"{theme};width:{scene.width / 14:.2f}em;max-width:max(100%,{NARROWEST}px);height:auto;display:block"
    body = "".join(_svg_item(item) for item in scene.items)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(scene.alt)}" '
        f'viewBox="0 0 {_fine(scene.width):g} {_fine(scene.height):g}" preserveAspectRatio="xMinYMin" style="{style}" '
        f"font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">{body}</svg>"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Painter 2: PNG


def _fixed(colour: str) -> str:
    return THEME[colour][-1] if colour in THEME else colour


def to_png(scene: Scene, scale: float = 1.5) -> bytes:
    """The scene as a PNG of `scale` times its size, on light paper; the same bytes for the same scene."""
    figure = Figure(figsize=(scene.width / 100, scene.height / 100), dpi=100 * scale, facecolor=_fixed(PAPER))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    axes.set_axis_off()
    points = 0.72  # of a typographic point in a pixel, at 100 pixels an inch
    for order, item in enumerate(scene.items):
        if isinstance(item, Area):
            shape = np.asarray(item.points, dtype=float)
            area = Polygon(shape, facecolor=_fixed(item.fill), alpha=item.opacity, linewidth=0, zorder=order)
            axes.add_artist(area)  # not `add_patch`, which computes limits that are known
        elif isinstance(item, Lines):
            for part in item.parts:
                x, y = np.asarray(part, dtype=float).T
                line = Line2D(x, y, color=_fixed(item.stroke), linewidth=item.width * points, zorder=order)
                line.set_solid_joinstyle("round")
                if item.dashed:
                    line.set_dashes((5, 4))
                axes.add_artist(line)
        else:
            align: dict[str, Any] = {"start": "left", "middle": "center", "end": "right"}
            axes.text(
                item.x,
                item.y,
                item.text.replace("$", r"\$"),
                fontsize=item.size * points,
                fontfamily=FONT,
                fontweight="bold" if item.bold else "normal",
                color=_fixed(item.fill),
                horizontalalignment=align[item.anchor],
                zorder=order,
            )
    inks = [item.stroke if isinstance(item, Lines) else item.fill for item in scene.items]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return _in_few_colours(pixels[..., :3], [_fixed(ink) for ink in dict.fromkeys(inks)])


def _in_few_colours(pixels: npt.NDArray[np.uint8], exact: Sequence[str]) -> bytes:
    """(height, width, 3) pixels as a PNG of 64 colours and these exact ones, which a small area would not keep."""
    rgb = np.ascontiguousarray(pixels)
    few = Image.fromarray(rgb).quantize(64, dither=Image.Dither.NONE)
    indices, palette = np.array(few), (few.getpalette() or [])[: 3 * 64]
    palette += [0] * (3 * 64 - len(palette))
    for number, colour in enumerate(exact[:192], start=64):
        channels = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        indices[(rgb == channels).all(axis=-1)] = number
        palette += channels
    image = Image.fromarray(indices, "P")
    image.putpalette(palette)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# ---------------------------------------------------------------------------------------------------------------------
# What a cell shows


@dataclass(frozen=True)
class Picture:
    """A picture with its alternative text, ready for a notebook, a slide or a file.

    As a cell's last value it shows itself: an SVG in the colours of the reader's theme where the notebook is trusted,
    the PNG where it is not, the alternative text where there are no pictures.
    """

    svg: str
    alt: str
    width: float
    paint: Callable[[], bytes] = field(repr=False)

    @classmethod
    def from_scene(cls, scene: Scene) -> Picture:
        """Both painters over one layout."""
        return cls(to_svg(scene), scene.alt, scene.width, lambda: to_png(scene))

    @cached_property
    def png(self) -> bytes:
        """The picture on light paper, deterministic."""
        return self.paint()

    @property
    def html(self) -> str:
        """The SVG, and inside the same element the PNG that shows instead where a page strips SVG and styles.

        JupyterLab cleans the HTML of a notebook it does not trust: it drops `<style>` and `<svg>` but keeps `hidden`
        (if it has a value), so there the words of the stripped SVG stay hidden and the image shows.
        """
        image = base64.b64encode(self.png).decode()
        return (
            '<div class="course-picture"><style>.course-picture{overflow-x:auto}.course-picture>img{display:none}'
            ".course-picture>div{display:block}</style>"
            f'<img alt="{escape(self.alt)}" width="{self.width:g}" src="data:image/png;base64,{image}">'
            f'<div hidden="hidden">{self.svg}</div></div>'
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {
            "text/html": self.html,
            "image/png": base64.b64encode(self.png).decode(),
            "text/plain": self.alt,
        }
