"""Bars of bytes stacked by role, each role's name on its part or in a line below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import (
    ROLE_COLOURS,
    ROW,
    SIZE,
    ByteScale,
    bar_at,
    beside,
    clear_of,
    line_through_bars,
    name_over_bars,
    text_on,
    write_title,
)
from course_utils.machine.hardware import Device
from course_utils.memory import ROLES
from course_utils.techniques.capacity import card_name, room_for_tensors
from course_utils.units import CourseError, format_bytes


def role_bars(rows: Mapping[str, Mapping[str, float]], title: str = "", card: Device | float | None = None) -> Picture:
    """Bars of bytes stacked by role on one scale, such as what each card keeps under several plans.

    Args:
        rows: name of the bar -> role -> bytes.
        title: the finding.
        card: a device or the bytes it holds; what its context leaves is a dashed line through the bars.

    Raises:
        CourseError: no rows, or bytes that are negative or not finite.
    """
    sizes = [size for shares in rows.values() for size in shares.values()]
    if not rows or not all(np.isfinite(size) and size >= 0 for size in sizes):
        raise CourseError("role_bars needs bars of 0 bytes or more")
    limit_bytes = None if card is None else room_for_tensors(card)
    limit = "" if card is None else f"{card.name if isinstance(card, Device) else card_name(card)} − context"
    totals = {name: float(sum(shares.values())) for name, shares in rows.items()}
    said = "; ".join(f"{name}: {format_bytes(total)}" for name, total in totals.items())
    line = f". {limit}: {format_bytes(limit_bytes)}" if limit_bytes is not None else ""
    scene = Scene(WIDTH, 0, f"{title}. Bytes by role. {said}{line}.")
    y = write_title(scene, title) if title else 4.0
    zero = max(text_width(name, SIZE) for name in rows) + 26
    room = WIDTH - zero - max(text_width(format_bytes(total), SIZE, True) for total in totals.values()) - 24
    scale = ByteScale(max(*totals.values(), limit_bytes or 0.0, 1.0), room)
    silent: dict[str, None] = {}
    written: set[str] = set()
    crossing = None if limit_bytes is None else zero + scale.pixels(limit_bytes)
    if crossing is not None:
        y = name_over_bars(scene, crossing, y, limit, zero)
    top = y + 6
    for name, shares in rows.items():
        y += ROW
        scene.add(beside(12, y, name))
        _stack(scene, y, zero, scale, shares, written, silent, crossing)
    bottom = y + ROW / 2
    if crossing is not None:
        line_through_bars(scene, crossing, top, bottom)
    for i, total in enumerate(totals.values()):
        at = bottom - ROW / 2 - ROW * (len(rows) - 1 - i)
        text = format_bytes(total)
        scene.add(beside(clear_of(crossing, zero + scale.pixels(total) + 8, text), at, text, bold=True))
    missing = [role for role in ROLES if role in silent and role not in written]
    if missing:
        bottom = _colour_key(scene, missing, zero, bottom + ROW * 0.7) + ROW * 0.6
    scene.height = bottom + 6
    return Picture.from_scene(scene)


def _stack(
    scene: Scene,
    y: float,
    zero: float,
    scale: ByteScale,
    shares: Mapping[str, float],
    written: set[str],
    silent: dict[str, None],
    line: float | None = None,
) -> None:
    """One bar stacked by role, names on the parts that are wide enough; those that are not are noted in `silent`.

    A vertical line at x = `line` goes through no name.
    """
    x = zero
    for role in (role for role in ROLES if shares.get(role)):
        wide, colour = scale.pixels(shares[role]), ROLE_COLOURS[role]
        scene.add(Area(bar_at(x, y, x + wide), colour))
        left, right = x, x + wide
        if line is not None and left < line < right:
            left, right = (left, line) if line - left > right - line else (line, right)
        if text_width(role, SIZE) + 8 <= right - left:
            scene.add(Words((left + right) / 2, y + 0.35 * SIZE, role, SIZE, "middle", fill=text_on(colour)))
            written.add(role)
        else:
            silent[role] = None
        x += wide
    corners = bar_at(zero, y, x)
    scene.add(Lines([[*corners, corners[0]]], INK, 0.8))


def _colour_key(scene: Scene, roles: Sequence[str], left: float, y: float) -> float:
    """A line (or two) of squares with names, for roles that no bar could name; returns the y of the last line."""
    x = left
    for role in roles:
        if x + 40 + text_width(role, SIZE) > scene.width:
            x, y = left, y + ROW
        square = [(x, y - 7), (x + 14, y - 7), (x + 14, y + 7), (x, y + 7)]
        scene.add(Area(square, ROLE_COLOURS[role]), Lines([[*square, square[0]]], FAINT, 0.8), beside(x + 20, y, role))
        x += 44 + text_width(role, SIZE)
    return y
