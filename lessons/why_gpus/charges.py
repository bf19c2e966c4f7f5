"""What a step is charged with, as stacked bars of time."""

from __future__ import annotations

from collections.abc import Mapping

from course_utils.figures.scene import WIDTH, Area, Picture, Scene, Words, text_width
from course_utils.figures.style import ROW, SIZE, bar_at, beside, text_on, write_title
from course_utils.units import CourseError, format_seconds

COLOURS = ("#009e73", "#f0e442", "#cc79a7")  # of the parts: no device's, and neighbours differ in grey
NARROW = 0.15  # of the longest bar: its seconds stand beside the bar, with its sum


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
    if len(parts) > len(COLOURS):
        raise CourseError(f"charges has {len(COLOURS)} colours, got {len(parts)} parts")
    colours = dict(zip(parts, COLOURS, strict=False))
    said = "; ".join(
        f"{name}: " + ", ".join(f"{part} {format_seconds(seconds, 2)}" for part, seconds in row.items())
        for name, row in rows.items()
    )
    scene = Scene(WIDTH, 0, f"{title}. {said}.")
    y = write_title(scene, title)
    zero = max(text_width(name, SIZE) for name in rows) + 26
    sums = {name: _sum(row, NARROW * max(totals.values())) for name, row in rows.items()}
    pixels = (WIDTH - zero - max(text_width(said, SIZE, True) for said in sums.values()) - 20) / max(totals.values())
    for name, row in rows.items():
        y += ROW
        scene.add(beside(12, y, name))
        x = zero
        for part, seconds in row.items():
            wide, words = seconds * pixels, format_seconds(seconds)
            scene.add(Area(bar_at(x, y, x + wide), colours[part]))
            if text_width(words, SIZE) + 10 < wide and words not in sums[name]:
                middle, colour = x + wide / 2, text_on(colours[part])
                scene.add(Words(middle, y + 0.35 * SIZE, words, SIZE, "middle", fill=colour))
            x += wide
        scene.add(beside(x + 8, y, sums[name], bold=True))
    x, y = zero, y + ROW + 6
    for part, colour in colours.items():
        scene.add(Area(bar_at(x, y, x + 16), colour), beside(x + 24, y, part))
        x += 52 + text_width(part, SIZE)
    scene.height = y + ROW / 2 + 4
    return Picture.from_scene(scene)


def _sum(row: Mapping[str, float], narrow: float) -> str:
    """What a bar takes in all, and which of its parts are too narrow to have their seconds on them."""
    parts = [f"{part} {format_seconds(seconds, 2)}" for part, seconds in row.items() if 0 < seconds < narrow]
    return ", ".join([format_seconds(sum(row.values())), *parts])
