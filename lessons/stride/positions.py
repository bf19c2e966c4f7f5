"""Where the kernel of a convolution stands along one row of a map, stride by stride."""

from __future__ import annotations

from collections.abc import Sequence

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import LIGHT_TEXT, SERIES_COLOURS, SIZE, write_title
from course_utils.units import CourseError

CELL = 40.0  # pixels of one value
LANE = 13.0  # pixels between kernels that overlap


def positions(side: int, kernel: int, padding: int, stride: int) -> list[int]:
    """Left edges of the kernel, counted from the first value of the padding: as many as the output has values."""
    return list(range(0, side + 2 * padding - kernel + 1, stride))


def kernel_positions(side: int, kernel: int, padding: int, strides: Sequence[int], title: str = "") -> Picture:
    """A row of values for each stride, with a bar under it wherever the kernel stands; what no kernel reads is empty.

    Args:
        side: values in the row.
        kernel: width of the kernel, in values.
        padding: zeros on either side.
        strides: one picture row each.
        title: the finding.

    Raises:
        CourseError: a row that is too long to be drawn, or a kernel that is wider than the padded row.
    """
    padded = side + 2 * padding
    if not (1 <= kernel <= padded <= 16 and padding >= 0 and strides and min(strides) >= 1):
        raise CourseError("kernel_positions draws rows of up to 16 values, padding included, and kernels within them")
    edges = {stride: positions(side, kernel, padding, stride) for stride in strides}
    read = {
        stride: {value for edge in at for value in range(edge, edge + kernel) if padding <= value < padding + side}
        for stride, at in edges.items()
    }
    told = {s: f"stride {s}: {len(edges[s])} positions, {len(read[s])} of {side} values read" for s in strides}
    said = "; ".join(told.values())
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) + 12 if title else 12.0
    left = 12 + text_width("stride 0", SIZE, True) + 24
    for stride in strides:
        scene.add(Words(12, y + CELL / 2 + 0.35 * SIZE, f"stride {stride}", SIZE, bold=True))
        for value in range(padded):
            x = left + value * CELL
            box = [(x, y), (x + CELL, y), (x + CELL, y + CELL), (x, y + CELL)]
            inside = padding <= value < padding + side
            if value in read[stride]:
                scene.add(Area(box, SERIES_COLOURS[1]))
            scene.add(Lines([[*box, box[0]]], INK if inside else FAINT, 1.0, dashed=not inside))
            if inside:
                ink = LIGHT_TEXT if value in read[stride] else INK
                label = str(value - padding + 1)
                scene.add(Words(x + CELL / 2, y + CELL / 2 + 0.35 * SIZE, label, SIZE, "middle", fill=ink))
        count = f"{len(edges[stride])} positions, {len(read[stride])} of {side} values read"
        scene.add(Words(left + padded * CELL + 20, y + CELL / 2 + 0.35 * SIZE, count, SIZE))
        y += CELL + 10
        lanes = -(-kernel // stride)  # that many kernels stand over one another
        for number, edge in enumerate(edges[stride]):
            at = y + (number % lanes) * LANE
            ends = (left + edge * CELL + 4, left + (edge + kernel) * CELL - 4)
            scene.add(Lines([[(ends[0], at), (ends[1], at)]], INK, 3.0))
        y += lanes * LANE + 16
    told_once = "a bar is one position of the kernel; dashed values are padding; an empty value is never read"
    scene.add(Words(left, y + 6, told_once, SIZE, fill=FAINT))
    scene.height = y + 20
    return Picture.from_scene(scene)
