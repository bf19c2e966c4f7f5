"""The host that issues operators, beside the device that runs them: who waits for whom, and what a clock shows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SERIES_COLOURS, SIZE, write_title
from course_utils.units import CourseError, format_seconds
from lessons.why_gpus.queued import Queued

LANE, BETWEEN = 30.0, 10.0  # pixels: a lane's height, and between two lanes
HOST, KERNEL, COPY = SERIES_COLOURS[0], SERIES_COLOURS[1], SERIES_COLOURS[2]
LEFT, RIGHT = 96.0, WIDTH - 30.0


def host_queue(steps: Mapping[str, Queued], title: str = "") -> Picture:
    """Two lanes for every step: what the host issues, and what the device runs, each step over its own time.

    Stripes are waiting: of the device for the host, and of the host, in `torch.cuda.synchronize()`, for the device.

    Args:
        steps: a name of each step -> `lessons.why_gpus.queued.queued`.
        title: the finding.

    Raises:
        CourseError: no step.
    """
    if not steps:
        raise CourseError("host_queue needs a step to draw")
    alt = "; ".join(
        f"{name}: the host has issued {len(step.names)} operators after {format_seconds(step.host_seconds)}, the "
        f"device is done after {format_seconds(step.total_seconds)}"
        for name, step in steps.items()
    )
    scene = Scene(WIDTH, 0, f"{title}. {alt}.")
    y = (write_title(scene, title) if title else 4.0) + 20
    for name, step in steps.items():
        y = _step(scene, name, step, y) + 30
    _key(scene, y - 4, any(step.copies for step in steps.values()))
    scene.height = y + 18
    return Picture.from_scene(scene)


def _step(scene: Scene, name: str, step: Queued, y: float) -> float:
    """One step from this y on; returns the y below it."""
    total = step.total_seconds or 1.0

    def x(seconds: float) -> float:
        return LEFT + seconds / total * (RIGHT - LEFT)

    scene.add(Words(12, y, name, SIZE, bold=True))
    top = y + 12
    low = top + LANE + BETWEEN
    for lane, text in ((top, "host"), (low, "device")):
        scene.add(Words(LEFT - 12, lane + LANE / 2 + 0.35 * SIZE, text, SIZE, "end"))
    _blocks(scene, [(x(a), x(b)) for a, b in zip(step.issues, step.issued, strict=True)], top, HOST)
    busy = [(x(a), x(b)) for a, b in zip(step.begins, step.ends, strict=True)]
    _blocks(scene, busy[: step.copies], low, COPY)
    _blocks(scene, busy[step.copies :], low, KERNEL)
    idle = zip((0.0, *step.ends[:-1]), step.begins, strict=True)
    held = zip((*step.issued,), (*step.issues[1:], total), strict=True)
    for gaps, lane in ((idle, low), (held, top)):
        _stripes(scene, [(x(a), x(b)) for a, b in gaps if b > a], lane)
    done = x(step.host_seconds)
    room = x(total) - done
    words = f"synchronize: waits {format_seconds(total - step.host_seconds)}"
    if text_width(words, SIZE) + 20 < room:
        middle = done + room / 2
        half = text_width(words, SIZE) / 2 + 6
        scene.add(Area([(middle - half, top + 3), (middle + half, top + 3), (middle + half, top + LANE - 3),
                        (middle - half, top + LANE - 3)], PAPER))  # fmt: skip
        scene.add(Words(middle, top + LANE / 2 + 0.35 * SIZE, words, SIZE, "middle"))
    bottom = low + LANE
    scene.add(Lines([[(LEFT, bottom + 4), (RIGHT, bottom + 4)]], FAINT))
    for seconds in (0.0, total):
        scene.add(Lines([[(x(seconds), bottom + 4), (x(seconds), bottom + 9)]], FAINT))
    scene.add(Words(LEFT, bottom + 26, "0", SIZE, "middle", fill=FAINT))
    scene.add(Words(RIGHT, bottom + 26, format_seconds(total), SIZE, "end", fill=FAINT))
    if 60 < done - LEFT < RIGHT - LEFT - 110:
        scene.add(Lines([[(done, top - 4), (done, bottom + 9)]], INK, 1.6, dashed=True))
        scene.add(Words(done, bottom + 26, f"issued: {format_seconds(step.host_seconds)}", SIZE, "middle"))
    return bottom + 26


def _blocks(scene: Scene, spans: list[tuple[float, float]], y: float, colour: str) -> None:
    """Blocks of a lane; none thinner than a line, neighbours told apart by a gap where there is room for one."""
    for left, right in spans:
        right = max(right, left + 1.2)
        scene.add(Area([(left, y), (right, y), (right, y + LANE), (left, y + LANE)], colour))
    cuts = [[(b[0], y), (b[0], y + LANE)] for a, b in pairwise(spans) if abs(a[1] - b[0]) < 0.5 and b[1] - b[0] > 4]
    if cuts:
        scene.add(Lines(cuts, PAPER, 1.4))


def _stripes(scene: Scene, spans: list[tuple[float, float]], y: float) -> None:
    lines = [
        [(float(x), y + 3), (float(x), y + LANE - 3)]
        for left, right in spans
        for x in np.arange(left + 2.5, right - 1.5, 4.0)
    ]
    if lines:
        scene.add(Lines(lines, FAINT, 1.2))


def _key(scene: Scene, y: float, copies: bool) -> None:
    """What the colours are, in one line."""
    x = LEFT
    kinds = [("the host issues", HOST), ("a kernel runs", KERNEL)] + [("a copy runs", COPY)] * copies
    for text, colour in kinds:
        scene.add(Area([(x, y - 12), (x + 14, y - 12), (x + 14, y + 2), (x, y + 2)], colour))
        scene.add(Words(x + 20, y, text, SIZE))
        x += 44 + text_width(text, SIZE)
    scene.add(Lines([[(x + i, y - 12), (x + i, y + 2)] for i in (1.0, 5.0, 9.0, 13.0)], FAINT, 1.2))
    scene.add(Words(x + 20, y, "waits", SIZE))
