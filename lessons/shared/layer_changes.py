"""Two steps layer by layer: what each layer keeps before a change, and after it."""

from __future__ import annotations

from collections.abc import Iterable

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, text_width
from course_utils.figures.style import ROLE_COLOURS, ROW, SIZE, ByteScale, bar_at, beside, write_title
from course_utils.memory import Ledger
from course_utils.units import CourseError, format_bytes


def kept_before_and_after(before: Ledger, after: Ledger) -> list[tuple[str, int, int]]:
    """(layer, bytes of feature maps kept before, after) of every layer of either step, in the order they run.

    A layer that only one of them has keeps 0 bytes in the other. Layers that keep nothing in both are left out.
    """
    tables = [step.by_layer().set_index("layer")["saved feature maps"] for step in (before, after)]
    old, new = ({str(layer): int(size) for layer, size in table.items()} for table in tables)
    return [(layer, old.get(layer, 0), new.get(layer, 0)) for layer in _merged(list(old), list(new))
            if old.get(layer, 0) or new.get(layer, 0)]  # fmt: skip


def _merged(old: Iterable[str], new: list[str]) -> list[str]:
    """The layers of both, those of `new` in their order, those it lacks right after the one they followed."""
    order, last = list(new), ""
    for layer in old:
        if layer not in order:
            order.insert(order.index(last) + 1 if last else 0, layer)
        last = layer
    return order


def layer_changes(before: Ledger, after: Ledger, title: str | None = None, top: int = 12) -> Picture:
    """What every layer keeps for the backward pass: before a change dashed, after it filled, on one scale.

    Args:
        before: the step as it was.
        after: the step as it is now; the same layers have the same names.
        title: the finding; by default by how much all maps together change.
        top: how many layers get a row of their own, those with most bytes in either step; the rest share the last row.

    Raises:
        CourseError: top is less than 1, or no layer keeps anything.
    """
    rows = kept_before_and_after(before, after)
    if top < 1 or not rows:
        raise CourseError(f"layer_changes needs a row to draw: top is {top}, {len(rows)} layers keep something")
    shown = {layer for layer, *_ in sorted(rows, key=lambda row: -max(row[1], row[2]))[:top]}
    rest = [row for row in rows if row[0] not in shown]
    rows = [row for row in rows if row[0] in shown]
    if rest:
        rows.append((f"{len(rest)} smaller layers", sum(old for _, old, _ in rest), sum(new for *_, new in rest)))
    total = sum(old for _, old, _ in rows), sum(new for *_, new in rows)
    if title is None:
        title = f"Maps kept at batch {after.batch:,}: {format_bytes(total[0])} before, {format_bytes(total[1])} after"
    words = [_words(old, new) for _, old, new in rows]
    said = "; ".join(f"{layer}: {text}" for (layer, *_), text in zip(rows, words, strict=True))
    scene = Scene(WIDTH, 0, f"{title}. Feature maps kept per layer, before and after. {said}.")
    y = write_title(scene, title) + 24
    zero = max(text_width(layer, SIZE) for layer, *_ in rows) + 26
    room = WIDTH - zero - max(text_width(text, SIZE) for text in words) - 20
    scale = ByteScale(float(max(max(old, new) for _, old, new in rows)), room)
    _key(scene, zero, y)
    y += 8
    start = y + ROW / 2
    for (layer, old, new), text in zip(rows, words, strict=True):
        y += ROW
        scene.add(beside(12, y, layer))
        scene.add(Area(bar_at(zero, y, zero + scale.pixels(new)), ROLE_COLOURS["feature maps"]))
        if old != new:
            corners = bar_at(zero, y, zero + scale.pixels(old))
            outline = [[*corners, corners[0]]]
            scene.add(Lines(outline, PAPER, 3.6), Lines(outline, INK, 1.6, dashed=True))
        scene.add(beside(zero + scale.pixels(max(old, new)) + 8, y, text, fill=FAINT if old == new else INK))
    scene.add(Lines([[(zero, start), (zero, y + ROW / 2)]], INK, 1.2))
    scene.height = y + ROW
    return Picture.from_scene(scene)


def _words(old: int, new: int) -> str:
    if old == new:
        return format_bytes(old)
    return f"{format_bytes(old) if old else 'nothing'} → {format_bytes(new) if new else 'nothing'}"


def _key(scene: Scene, left: float, y: float) -> None:
    """What outline and fill stand for."""
    for name, filled in (("before", False), ("after", True)):
        corners = bar_at(left, y, left + 26)
        if filled:
            scene.add(Area(corners, ROLE_COLOURS["feature maps"]))
        else:
            scene.add(Lines([[*corners, corners[0]]], INK, 1.6, dashed=True))
        scene.add(beside(left + 34, y, name))
        left += 34 + text_width(name, SIZE) + 26
