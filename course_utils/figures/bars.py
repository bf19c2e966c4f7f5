"""Bars: layers, one quantity found in several ways, two accountings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import (
    ROLE_COLOURS,
    ROW,
    SIZE,
    ByteScale,
    bar_at,
    beside,
    colour_key,
    text_on,
    write_title,
)
from course_utils.memory import ROLES, Ledger
from course_utils.units import CourseError, format_bytes, in_gb


def layer_bars(ledger: Ledger, top: int = 14, title: str | None = None, parameter_bytes: int = 4) -> Picture:
    """Per layer: parameters to the left, feature maps kept for the backward pass to the right, on one scale of bytes.

    Args:
        ledger: the step to read.
        top: how many layers get a row of their own, those with most bytes; the rest share the last row.
        title: the finding; by default it says which layers own most of each.
        parameter_bytes: bytes of one parameter, 4 for float32 (also under autocast, which keeps float32 weights).

    Raises:
        CourseError: top is less than 1.
    """
    if top < 1:
        raise CourseError(f"top must be 1 layer or more, got {top}")
    table = ledger.by_layer()
    sizes = pd.DataFrame({"parameters": table["parameters"] * parameter_bytes, "maps": table["saved feature maps"]})
    layers = [str(layer) for layer in table["layer"]]
    kept = sorted(np.argsort(-sizes.max(axis=1).to_numpy(), kind="stable")[:top])
    rows = [(layers[i], float(sizes["parameters"].iloc[i]), float(sizes["maps"].iloc[i])) for i in kept]
    rest = sizes.drop(index=kept).sum()
    if rest.any():
        rows.append((f"{len(sizes) - len(kept)} smaller layers", float(rest["parameters"]), float(rest["maps"])))
    total = sizes.sum()
    if title is None:
        first = {column: layers[int(np.argmax(sizes[column]))] for column in sizes}
        head = f"{ledger.name}, batch {ledger.batch:,}"
        title = f"{head}: {first['parameters']} owns most parameters, {first['maps']} most feature maps"
    said = "; ".join(f"{name}: {format_bytes(own)} and {format_bytes(maps)}" for name, own, maps in rows)
    scene = Scene(WIDTH, 0, f"{title}. Parameters and feature maps per layer. {said}.")
    y = write_title(scene, title) + 24
    names = max(text_width(name, SIZE) for name, _, _ in rows) + 24
    heads = [f"parameters {format_bytes(total['parameters'])}", f"feature maps kept {format_bytes(total['maps'])}"]
    value = text_width("1,023.99 MiB", SIZE) + 12
    longest = (max(own for _, own, _ in rows), max(maps for _, _, maps in rows))
    least = [text_width(head, SIZE, True) + 14 for head in heads]

    def needs(pixels_a_byte: float) -> list[float]:
        """Width of either side: its longest bar with the number beside it, or its heading if that is wider."""
        return [max(pixels_a_byte * size + value, head) for size, head in zip(longest, least, strict=True)]

    room = WIDTH - names - 8
    low, high = 0.0, room / max(*longest, 1.0)
    for _ in range(40):  # the largest scale that both sides have room for
        middle = (low + high) / 2
        low, high = (middle, high) if sum(needs(middle)) <= room else (low, middle)
    scale, zero = ByteScale(1.0, low), names + needs(low)[0]
    scene.add(beside(zero - 10, y, heads[0], end=True, bold=True), beside(zero + 10, y, heads[1], bold=True))
    y += 8
    start = y + ROW / 2
    for name, own, maps in rows:
        y += ROW
        scene.add(beside(12, y, name))
        if own:
            scene.add(Area(bar_at(zero - scale.pixels(own), y, zero), ROLE_COLOURS["parameters"]))
            scene.add(beside(zero - scale.pixels(own) - 7, y, format_bytes(own), end=True, fill=FAINT))
        if maps:
            scene.add(Area(bar_at(zero, y, zero + scale.pixels(maps)), ROLE_COLOURS["feature maps"]))
            scene.add(beside(zero + scale.pixels(maps) + 7, y, format_bytes(maps), fill=FAINT))
    scene.add(Lines([[(zero, start), (zero, y + ROW / 2)]], INK, 1.2))
    scene.height = y + ROW
    return Picture.from_scene(scene)


def side_by_side(rows: Mapping[str, float], unit: str = "MiB", title: str = "", hollow: str | None = None) -> Picture:
    """One quantity found in several ways (guess, formula, trace, measurement) as bars from zero with their numbers.

    Args:
        rows: name of the way -> the number it gives, in `unit`; bars of negative ones reach to the left of zero.
        unit: what the numbers count.
        title: the finding.
        hollow: the row to draw as an outline, such as the learner's guess.

    Raises:
        CourseError: no rows, or a number that is not finite.
    """
    if not rows or not all(np.isfinite(value) for value in rows.values()):
        raise CourseError(f"side_by_side needs finite numbers, got {dict(rows)!r}")
    texts = {name: f"{_readable(value)} {unit}" for name, value in rows.items()}
    said = "; ".join(f"{name}: {text}" for name, text in texts.items())
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) if title else 4.0
    first = max(text_width(name, SIZE, True) for name in rows) + 26
    room = WIDTH - first - max(text_width(text, SIZE, True) for text in texts.values()) - 20
    least, most = min(0.0, *rows.values()), max(0.0, *rows.values())
    pixels = room / ((most - least) or 1.0)
    zero = first - pixels * least
    for name, value in rows.items():
        y += ROW
        left, right = zero + pixels * min(value, 0.0), zero + max(1.0, pixels * value)
        scene.add(beside(12, y, name))
        if name == hollow:
            corners = bar_at(left, y, right)
            scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        else:
            scene.add(Area(bar_at(left, y, right), FAINT))
        scene.add(beside(right + 8, y, texts[name], bold=True))
    scene.height = y + ROW
    return Picture.from_scene(scene)


def _readable(value: float) -> str:
    """A number with two decimals, none if it is whole, more if it is small; a power of ten if it is out of bounds."""
    sign, size = "−" if value < 0 else "", abs(value)
    if 0 < size < 0.1 or size >= 1e9:
        return f"{sign}{size:.3g}"
    return f"{sign}{size:,.2f}".removesuffix(".00")


def accountings(ledgers: Sequence[Ledger], published: Mapping[str, float], title: str | None = None) -> Picture:
    """The network-wide accounting of 2016 beside the peak of a step in PyTorch, and what was published.

    Args:
        ledgers: one a network.
        published: ledger name -> bytes as published, decimal GB as the papers of the time give them.
        title: the finding.
    """
    title = title or "What was counted in 2016, and what a step needs at its peak today"
    rows: list[tuple[str, str, dict[str, float] | None, float]] = []
    for ledger in ledgers:
        head = f"{ledger.name}, batch {ledger.batch:,}"
        if ledger.name in published:
            rows.append((head, "published", None, published[ledger.name]))
            head = ""
        parts = {role: float(count) for role, count in ledger.network_wide_parts().items()}
        rows.append((head, "2016 accounting, computed", parts, float(sum(parts.values()))))
        peak = {str(role): float(count) for role, count in ledger.by_role().items()}
        rows.append(("", "PyTorch, peak of the step", peak, float(ledger.peak_bytes)))
    said = "; ".join(f"{head + ' ' if head else ''}{way} {in_gb(total):.2f} GB" for head, way, _, total in rows)
    scene = Scene(WIDTH, 0, f"{title}. {said}.")
    y = write_title(scene, title)
    zero = max(text_width(way, SIZE) for _, way, _, _ in rows) + 30
    room = WIDTH - zero - text_width("0,000.00 GB", SIZE, True) - 20
    scale = ByteScale(max(total for *_, total in rows), room)
    silent: dict[str, None] = {}  # roles that found no bar wide enough for their name, in order
    written: set[str] = set()
    for head, way, shares, total in rows:
        if head:
            y += ROW * 1.15
            scene.add(beside(12, y, head, bold=True))
        y += ROW
        scene.add(beside(20, y, way))
        right = zero + scale.pixels(total)
        if shares is None:
            corners = bar_at(zero, y, right)
            scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        else:
            _stack(scene, y, zero, scale, shares, written, silent)
        scene.add(beside(right + 8, y, f"{in_gb(total):.2f} GB", bold=True))
    y = colour_key(scene, [role for role in ROLES if role in silent and role not in written], zero, y + ROW * 1.3)
    scene.height = y + ROW / 2
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


def role_bars(
    rows: Mapping[str, Mapping[str, float]], title: str = "", limit_bytes: float | None = None, limit: str = ""
) -> Picture:
    """Bars of bytes stacked by role on one scale, such as what each card keeps under several plans.

    Args:
        rows: name of the bar -> role -> bytes.
        title: the finding.
        limit_bytes: what a card holds, a dashed line through the bars.
        limit: the limit's name.

    Raises:
        CourseError: no rows, or bytes that are negative or not finite.
    """
    sizes = [size for shares in rows.values() for size in shares.values()]
    if not rows or not all(np.isfinite(size) and size >= 0 for size in sizes):
        raise CourseError("role_bars needs bars of 0 bytes or more")
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
    if limit_bytes is not None:
        y += 1.3 * SIZE
        x, wide = zero + scale.pixels(limit_bytes), text_width(limit, SIZE, True)
        scene.add(Words(min(max(x, zero + wide / 2), WIDTH - wide / 2 - 4), y, limit, SIZE, "middle", bold=True))
    top = y + 6
    for name, shares in rows.items():
        y += ROW
        scene.add(beside(12, y, name))
        crossing = None if limit_bytes is None else zero + scale.pixels(limit_bytes)
        _stack(scene, y, zero, scale, shares, written, silent, crossing)
    bottom = y + ROW / 2
    if limit_bytes is not None:
        x = zero + scale.pixels(limit_bytes)
        scene.add(Lines([[(x, top), (x, bottom)]], PAPER, 4.0), Lines([[(x, top), (x, bottom)]], INK, 1.8, dashed=True))
    for i, total in enumerate(totals.values()):
        at = bottom - ROW / 2 - ROW * (len(rows) - 1 - i)
        words = beside(zero + scale.pixels(total) + 8, at, format_bytes(total), bold=True)
        left, roof, right, floor = words.box
        if (
            limit_bytes is not None and left - 4 < zero + scale.pixels(limit_bytes) < right + 4
        ):  # the line stops at words
            scene.add(Area([(left - 3, roof), (right + 3, roof), (right + 3, floor), (left - 3, floor)], PAPER))
        scene.add(words)
    missing = [role for role in ROLES if role in silent and role not in written]
    if missing:
        bottom = colour_key(scene, missing, zero, bottom + ROW * 0.7) + ROW * 0.6
    scene.height = bottom + 6
    return Picture.from_scene(scene)
