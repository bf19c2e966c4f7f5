"""What a step is charged with, as stacked bars of time."""

from __future__ import annotations

from collections.abc import Mapping

from course_utils.figures.scene import WIDTH, Area, Picture, Scene, Words, text_width
from course_utils.figures.style import ROW, SERIES_COLOURS, SIZE, bar_at, beside, text_on, write_title
from course_utils.units import CourseError, format_seconds


def charges(rows: Mapping[str, Mapping[str, float]], title: str) -> Picture:
    """A bar for each row on one scale, stacked from parts that have the same colour in all of them.

    Args:
        rows: name of the bar -> part -> seconds.
        title: the finding.

    Raises:
        CourseError: no row, a negative time, more parts than there are colours, or no time at all.
    """
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    totals = {name: sum(row.values()) for name, row in rows.items()}
    if not any(totals.values()) or any(seconds < 0 for row in rows.values() for seconds in row.values()):
        raise CourseError("charges needs a bar, and times of 0 or more")
    if len(parts) > len(SERIES_COLOURS):
        raise CourseError(f"charges has {len(SERIES_COLOURS)} colours, got {len(parts)} parts")
    colours = dict(zip(parts, SERIES_COLOURS, strict=False))
    said = "; ".join(
        f"{name}: " + ", ".join(f"{part} {format_seconds(seconds)}" for part, seconds in row.items())
        for name, row in rows.items()
    )
    scene = Scene(WIDTH, 0, f"{title}. {said}.")
    y = write_title(scene, title)
    zero = max(text_width(name, SIZE) for name in rows) + 26
    room = WIDTH - zero - max(text_width(format_seconds(total), SIZE, True) for total in totals.values()) - 20
    pixels = room / max(totals.values())
    for name, row in rows.items():
        y += ROW
        scene.add(beside(12, y, name))
        x = zero
        for part, seconds in row.items():
            wide, words = seconds * pixels, format_seconds(seconds)
            scene.add(Area(bar_at(x, y, x + wide), colours[part]))
            if text_width(words, SIZE) + 10 < wide:
                middle, colour = x + wide / 2, text_on(colours[part])
                scene.add(Words(middle, y + 0.35 * SIZE, words, SIZE, "middle", fill=colour))
            x += wide
        scene.add(beside(x + 8, y, format_seconds(totals[name]), bold=True))
    x, y = zero, y + ROW + 6
    for part, colour in colours.items():
        scene.add(Area(bar_at(x, y, x + 16), colour), beside(x + 24, y, part))
        x += 52 + text_width(part, SIZE)
    scene.height = y + ROW / 2 + 4
    return Picture.from_scene(scene)
