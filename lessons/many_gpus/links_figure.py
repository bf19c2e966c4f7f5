"""Links between cards on one scale of rates: a network between machines, PCIe, NVLink, and a card's own memory.

A log axis with a line at every ten times: what differs is the number of steps between two rows, not the length of bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_utils.figures.plane import DOT, Axis
from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import ROW, SERIES_COLOURS, SIZE, beside, circle, write_title
from course_utils.machine.hardware import Device, Link
from course_utils.units import GB, CourseError


def link_rates(groups: Mapping[str, Sequence[Link | Device]], title: str = "") -> Picture:
    """What each link carries a second, one way: expected in use, with a ring where somebody measured it.

    Args:
        groups: heading -> its links, or devices for the rate of their own memory; drawn in this order.
        title: the finding.

    Raises:
        CourseError: nothing to draw, or more groups than there are colours.
    """
    if not any(groups.values()):
        raise CourseError("link_rates needs a link to draw")
    if len(groups) > len(SERIES_COLOURS):
        raise CourseError(f"link_rates has colours for {len(SERIES_COLOURS)} groups, got {len(groups)}")
    said = "; ".join(f"{head}: " + ", ".join(_said(item) for item in items) for head, items in groups.items() if items)
    scene = Scene(WIDTH, 0, f"{title + '. ' if title else ''}GB/s one way, on a log scale. {said}.")
    top = (write_title(scene, title) if title else 4.0) + 8
    rows = [item for items in groups.values() for item in items]
    heads = (text_width(head, SIZE, True) for head, items in groups.items() if items)
    left = max(*heads, *(text_width(item.name, SIZE) + 16 for item in rows)) + 24
    right = WIDTH - text_width("0,000 GB/s", SIZE, True) - 20
    rates = [rate for item in rows for rate in (_expected(item), _measured(item)) if rate is not None]
    axis = Axis("GB/s, one way; each line is ten times the one before", True, min(rates) / 1.5, max(rates) * 1.5)
    bottom = top + ROW * (len(rows) + sum(bool(items) for items in groups.values()) + 0.5)
    for tick in axis.ticks(right - left, (right - left) / 8):
        x = left + axis.share(tick) * (right - left)
        scene.add(Lines([[(x, top), (x, bottom)]], FAINT, 1.0))
        scene.add(Words(x, bottom + 1.3 * SIZE, axis.write(tick), SIZE, "middle", fill=FAINT))
    scene.add(Words((left + right) / 2, bottom + 2.8 * SIZE, axis.label, SIZE, "middle", fill=FAINT))
    y = top
    for (head, items), colour in zip(groups.items(), SERIES_COLOURS, strict=False):
        if not items:
            continue
        y += ROW
        scene.add(beside(12, y, head, bold=True))
        for item in items:
            y += ROW
            scene.add(beside(28, y, item.name))
            at = [left + axis.share(rate) * (right - left) for rate in (_expected(item), _measured(item)) if rate]
            scene.add(Area(circle(at[0], y, DOT), colour), Lines([circle(at[0], y, DOT)], colour, 2.0))
            for x in at[1:]:  # a ring around the filled one: both are to be seen where they nearly agree
                scene.add(Lines([circle(x, y, 1.6 * DOT)], INK, 1.6))
            words = beside(max(at) + 1.6 * DOT + 6, y, f"{_write(_expected(item))} GB/s", bold=True)
            edge, roof, end, floor = words.box
            scene.add(Area([(edge - 2, roof), (end + 2, roof), (end + 2, floor), (edge - 2, floor)], PAPER), words)
    scene.height = bottom + 3.4 * SIZE
    return Picture.from_scene(scene)


def _expected(item: Link | Device) -> float:
    """GB/s that the course expects in use."""
    return (item.bytes_per_s if isinstance(item, Link) else item.reached_bytes_per_s()) / GB


def _measured(item: Link | Device) -> float | None:
    return item.practical_gb_s if isinstance(item, Link) else None


def _said(item: Link | Device) -> str:
    measured = _measured(item)
    return f"{item.name} {_write(_expected(item))}" + ("" if measured is None else f" (measured {measured:g})")


def _write(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
