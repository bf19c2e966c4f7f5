"""Bars: one quantity found in several ways."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, text_width
from course_utils.figures.style import (
    ROW,
    SERIES_COLOURS,
    SIZE,
    bar_at,
    beside,
    clear_of,
    line_through_bars,
    name_over_bars,
    write_title,
)
from course_utils.units import CourseError


def side_by_side(
    rows: Mapping[str, float],
    unit: str = "MiB",
    title: str = "",
    hollow: str | Sequence[str] = (),
    blue: Collection[str] = (),
    limit: tuple[str, float] | None = None,
) -> Picture:
    """One quantity found in several ways (guess, formula, trace, measurement) as bars from zero with their numbers.

    Args:
        rows: name of the way -> the number it gives, in `unit`; bars of negative ones reach to the left of zero.
        unit: what the numbers count.
        title: the finding.
        hollow: the row or rows to draw as outlines, such as the learner's guess.
        blue: the rows to tell from the others by colour.
        limit: the name of a number, in `unit`, and the number: a dashed line through the bars.

    Raises:
        CourseError: no rows, or a number that is not finite.
    """
    if not rows or not all(np.isfinite(value) for value in rows.values()):
        raise CourseError(f"side_by_side needs finite numbers, got {dict(rows)!r}")
    texts = {name: f"{_readable(value)} {unit}" for name, value in rows.items()}
    said = "; ".join(f"{name}: {text}" for name, text in texts.items())
    said += f". Dashed line, {limit[0]}, at {_readable(limit[1])} {unit}" if limit else ""
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) if title else 4.0
    first = max(text_width(name, SIZE, True) for name in rows) + 26
    room = WIDTH - first - max(text_width(text, SIZE, True) for text in texts.values()) - 20
    least, most = (extreme(0.0, *rows.values(), limit[1] if limit else 0.0) for extreme in (min, max))
    pixels = room / ((most - least) or 1.0)
    zero = first - pixels * least
    outlined = [hollow] if isinstance(hollow, str) else hollow
    line = zero + pixels * limit[1] if limit else None
    if limit and line is not None:
        y = name_over_bars(scene, line, y, limit[0])
    top = y + 6
    for name, value in rows.items():
        y += ROW
        left, right = zero + pixels * min(value, 0.0), zero + max(1.0, pixels * value)
        scene.add(beside(12, y, name))
        if name in outlined:
            corners = bar_at(left, y, right)
            scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        else:
            scene.add(Area(bar_at(left, y, right), SERIES_COLOURS[1] if name in blue else FAINT))
        scene.add(beside(clear_of(line, right + 8, texts[name]), y, texts[name], bold=True))
    if line is not None:
        line_through_bars(scene, line, top, y + ROW / 2)
    scene.height = y + ROW
    return Picture.from_scene(scene)


def _readable(value: float) -> str:
    """A number with two decimals, none if it is whole, more if it is small; a power of ten if it is out of bounds."""
    sign, size = "−" if value < 0 else "", abs(value)
    if 0 < size < 0.1 or size >= 1e9:
        return f"{sign}{size:.3g}"
    return f"{sign}{size:,.2f}".removesuffix(".00")
