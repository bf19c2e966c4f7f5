"""Blocks of layers side by side, each map as wide as its channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import BAR, ROLE_COLOURS, ROW, SIZE, text_on, write_title
from course_utils.units import CourseError

GAP = 30.0  # pixels between two blocks


def channel_bars(blocks: Mapping[str, Sequence[tuple[str, int]]], title: str = "") -> Picture:
    """Blocks from top to bottom, a bar for each map that training keeps, on one scale of channels.

    The first map of a block is what it reads: another block made it, so it is an outline.

    Args:
        blocks: name of the block -> its maps in order, each what made it and how many channels it has.
        title: the finding.

    Raises:
        CourseError: no blocks, a block without maps, or a map without channels.
    """
    if not blocks or not all(maps and min(channels for _, channels in maps) >= 1 for maps in blocks.values()):
        raise CourseError("channel_bars needs blocks of one map or more, each of one channel or more")
    said = "; ".join(f"{name}: {', '.join(f'{what} {n}' for what, n in maps)}" for name, maps in blocks.items())
    scene = Scene(WIDTH, 0, f"{title}. Channels of each map. {said}.")
    top = write_title(scene, title) + 10 if title else 4.0
    column = (WIDTH - 24 - GAP * (len(blocks) - 1)) / len(blocks)
    labels = max(text_width(what, SIZE) for maps in blocks.values() for what, _ in maps) + 14
    pixels = (column - labels) / max(channels for maps in blocks.values() for _, channels in maps)
    for place, (name, maps) in enumerate(blocks.items()):
        left = 12 + place * (column + GAP)
        middle = left + labels + (column - labels) / 2
        scene.add(Words(left, top + SIZE, name, SIZE, bold=True))
        for row, (what, channels) in enumerate(maps):
            y = top + SIZE + 0.6 * ROW + row * ROW
            half = channels * pixels / 2
            box = [(middle - half, y), (middle + half, y), (middle + half, y + BAR), (middle - half, y + BAR)]
            fill = ROLE_COLOURS["feature maps"]
            scene.add(Lines([[*box, box[0]]], INK, 1.2, dashed=True) if row == 0 else Area(box, fill))
            scene.add(Words(left, y + BAR / 2 + 0.35 * SIZE, what, SIZE, fill=FAINT if row == 0 else INK))
            inside = text_width(str(channels), SIZE) + 6 < 2 * half
            baseline = y + BAR / 2 + 0.35 * SIZE
            if inside:
                ink = text_on(fill) if row else INK
                scene.add(Words(middle, baseline, str(channels), SIZE, "middle", fill=ink))
            else:
                scene.add(Words(middle + half + 6, baseline, str(channels), SIZE))
    scene.height = top + SIZE + 0.6 * ROW + max(map(len, blocks.values())) * ROW + 8
    return Picture.from_scene(scene)
