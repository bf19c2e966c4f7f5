"""One max pool on a map of sixteen values, and what falls away from a total step by step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import LIGHT_TEXT, ROW, SERIES_COLOURS, SIZE, bar_at, beside, write_title
from course_utils.units import CourseError

CELL, GAP = 38.0, 46.0  # pixels of one value, and between two grids


def pool_drawn(values: Tensor, arriving: Tensor, title: str = "") -> Picture:
    """Windows of 2 × 2 and their winners; output and index; a gradient that arrives, and what each value receives.

    All that is drawn comes from PyTorch's pools.

    Args:
        values: (4, 4), the map.
        arriving: (2, 2), the gradient of the output.
        title: the finding.

    Raises:
        CourseError: tensors of other shapes.
    """
    if values.shape != (4, 4) or arriving.shape != (2, 2):
        raise CourseError(f"pool_drawn takes 4 × 4 values and 2 × 2 gradients, got {values.shape} and {arriving.shape}")
    one_map = values.detach().clone()[None, None].requires_grad_()
    output, index = F.max_pool2d(one_map, 2, return_indices=True)
    (gradient,) = torch.autograd.grad(output, one_map, arriving[None, None])
    (shared,) = torch.autograd.grad(F.avg_pool2d(one_map, 2), one_map, arriving[None, None])
    winners = torch.zeros(16, dtype=torch.bool).index_fill(0, index.flatten(), True).view(4, 4)
    everywhere = torch.ones(2, 2, dtype=torch.bool)
    grids = [
        ("map", values, winners),
        ("output", output[0, 0], everywhere),
        ("index", index[0, 0], everywhere),
        ("gradient arrives", arriving, everywhere),
        ("goes to the winners", gradient[0, 0], winners),
        ("average pool: to all", shared[0, 0], torch.ones(4, 4, dtype=torch.bool)),
    ]
    said = "; ".join(f"{name}: {[[float(f'{v:g}') for v in row] for row in grid.tolist()]}" for name, grid, _ in grids)
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    top = write_title(scene, title) + 8 if title else 4.0
    room = sum(len(grid) * CELL for _, grid, _ in grids)
    gap = min(GAP, (WIDTH - 24 - room) / (len(grids) - 1))
    left = 12.0
    for name, grid, filled in grids:
        side = len(grid)
        y = top + 2 * SIZE + (4 - side) * CELL / 2
        scene.add(Words(left + side * CELL / 2, y - 8, name, SIZE, "middle", fill=FAINT))
        for row in range(side):
            for column in range(side):
                x, below = left + column * CELL, y + row * CELL
                box = [(x, below), (x + CELL, below), (x + CELL, below + CELL), (x, below + CELL)]
                lit = bool(filled[row, column])
                if lit:
                    scene.add(Area(box, SERIES_COLOURS[1]))
                scene.add(Lines([[*box, box[0]]], FAINT, 1.0))
                text = f"{grid[row, column].item():g}"
                ink = LIGHT_TEXT if lit else INK
                scene.add(Words(x + CELL / 2, below + CELL / 2 + 0.35 * SIZE, text, SIZE, "middle", fill=ink))
        wide = side * CELL
        edges = [wide * part / 2 for part in range(3)]
        scene.add(Lines([[(left + e, y), (left + e, y + wide)] for e in edges], INK, 2.0))
        scene.add(Lines([[(left, y + e), (left + wide, y + e)] for e in edges], INK, 2.0))
        left += wide + gap
    scene.height = top + 2 * SIZE + 4 * CELL + 12
    return Picture.from_scene(scene)


def waterfall(total: tuple[str, float], falls: Mapping[str, float], left: str, unit: str, title: str = "") -> Picture:
    """A total, what falls away from it, each bar beginning where the last one ended, and what is left.

    Args:
        total: its name and number, in `unit`.
        falls: name -> how much falls away, in `unit`, positive.
        left: the name of what is left.
        unit: what the numbers count.
        title: the finding.

    Raises:
        CourseError: nothing falls, or more than there is.
    """
    name, whole = total
    ends = list(accumulate(falls.values(), lambda rest, fall: rest - fall, initial=whole))
    if not falls or min(falls.values()) < 0 or ends[-1] < 0:
        raise CourseError(f"waterfall needs parts of a total, got {dict(falls)!r} of {whole!r}")
    texts = [f"{whole:,.0f} {unit}", *(f"−{fall:,.1f}" for fall in falls.values()), f"{ends[-1]:,.0f} {unit}"]
    names = [name, *falls, left]
    spans = [(0.0, whole), *((low, high) for high, low in pairwise(ends)), (0.0, ends[-1])]
    said = "; ".join(f"{what}: {text}" for what, text in zip(names, texts, strict=True))
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) if title else 4.0
    first = max(text_width(what, SIZE) for what in names) + 26
    pixels = (WIDTH - first - max(text_width(text, SIZE, True) for text in texts) - 20) / whole
    for place, (what, text, (low, high)) in enumerate(zip(names, texts, spans, strict=True)):
        y += ROW
        ends_here = place in (0, len(names) - 1)
        scene.add(beside(12, y, what))
        bar = bar_at(first + pixels * low, y, first + max(pixels * high, pixels * low + 1.0))
        scene.add(Area(bar, FAINT if ends_here else SERIES_COLOURS[1]))
        scene.add(beside(first + pixels * high + 8, y, text, bold=True))
    scene.height = y + ROW
    return Picture.from_scene(scene)
