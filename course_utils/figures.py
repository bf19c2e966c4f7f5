"""The course's pictures: readings in, `Picture` out. One colour per role everywhere, the finding as the title.

`skyline` is the signature figure (its layout lives in `skyline.py`, colours and sizes in `style.py`); the others are
bars and areas in the same manner, each drawn on a `scene.Scene`. Must never import torch or ipywidgets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from course_utils.memory import ROLES, Ledger, StepTrace
from course_utils.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Picture, Points, Scene, Words, text_width
from course_utils.skyline import describe, finding, skyline
from course_utils.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    label_column,
    limit_name,
    name_limit,
    text_on,
    write_on_band,
    write_title,
)
from course_utils.units import CourseError, format_bytes, in_gb

__all__ = [
    "ROLE_COLOURS",
    "Picture",
    "accountings",
    "batch_lines",
    "describe",
    "finding",
    "layer_bars",
    "side_by_side",
    "skyline",
]

ROW = 27.0  # pixels from one bar to the next
BAR = 19.0  # pixels a bar is high


def _bar(left: float, y: float, right: float) -> Points:
    return [(left, y - BAR / 2), (right, y - BAR / 2), (right, y + BAR / 2), (left, y + BAR / 2)]


def _beside(x: float, y: float, text: str, end: bool = False, bold: bool = False, fill: str = INK) -> Words:
    """Words on the line of a bar whose middle is at y."""
    return Words(x, y + 0.35 * SIZE, text, SIZE, "end" if end else "start", bold, fill)


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
    scene.add(_beside(zero - 10, y, heads[0], end=True, bold=True), _beside(zero + 10, y, heads[1], bold=True))
    y += 8
    start = y + ROW / 2
    for name, own, maps in rows:
        y += ROW
        scene.add(_beside(12, y, name))
        if own:
            scene.add(Area(_bar(zero - scale.pixels(own), y, zero), ROLE_COLOURS["parameters"]))
            scene.add(_beside(zero - scale.pixels(own) - 7, y, format_bytes(own), end=True, fill=FAINT))
        if maps:
            scene.add(Area(_bar(zero, y, zero + scale.pixels(maps)), ROLE_COLOURS["feature maps"]))
            scene.add(_beside(zero + scale.pixels(maps) + 7, y, format_bytes(maps), fill=FAINT))
    scene.add(Lines([[(zero, start), (zero, y + ROW / 2)]], INK, 1.2))
    scene.height = y + ROW
    return Picture.from_scene(scene)


def side_by_side(rows: Mapping[str, float], unit: str = "MiB", title: str = "", hollow: str | None = None) -> Picture:
    """One quantity found in several ways (guess, formula, trace, measurement) as bars from zero with their numbers.

    Args:
        rows: name of the way -> the number it gives, in `unit`, 0 or more.
        unit: what the numbers count.
        title: the finding.
        hollow: the row to draw as an outline, such as the learner's guess.

    Raises:
        CourseError: no rows, or a number that is negative or not finite.
    """
    if not rows or not all(np.isfinite(value) and value >= 0 for value in rows.values()):
        raise CourseError(f"side_by_side needs numbers of 0 or more, got {dict(rows)!r}")
    texts = {name: f"{_readable(value)} {unit}" for name, value in rows.items()}
    said = "; ".join(f"{name}: {text}" for name, text in texts.items())
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) if title else 4.0
    zero = max(text_width(name, SIZE, True) for name in rows) + 26
    room = WIDTH - zero - max(text_width(text, SIZE, True) for text in texts.values()) - 20
    most = max(rows.values()) or 1.0
    for name, value in rows.items():
        y += ROW
        right = zero + room * value / most
        scene.add(_beside(12, y, name))
        if name == hollow:
            corners = _bar(zero, y, max(right, zero + 1))
            scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        else:
            scene.add(Area(_bar(zero, y, max(right, zero + 1)), FAINT))
        scene.add(_beside(right + 8, y, texts[name], bold=True))
    scene.height = y + ROW
    return Picture.from_scene(scene)


def _readable(value: float) -> str:
    """A number with two decimals, none if it is whole, more if it is small; a power of ten if it is out of bounds."""
    if 0 < value < 0.1 or value >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.2f}".removesuffix(".00")


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
            scene.add(_beside(12, y, head, bold=True))
        y += ROW
        scene.add(_beside(20, y, way))
        right = zero + scale.pixels(total)
        if shares is None:
            corners = _bar(zero, y, right)
            scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        else:
            x = zero
            for role in (role for role in ROLES if shares.get(role)):
                wide, colour = scale.pixels(shares[role]), ROLE_COLOURS[role]
                scene.add(Area(_bar(x, y, x + wide), colour))
                if text_width(role, SIZE) + 8 <= wide:
                    scene.add(Words(x + wide / 2, y + 0.35 * SIZE, role, SIZE, "middle", fill=text_on(colour)))
                    written.add(role)
                else:
                    silent[role] = None
                x += wide
            corners = _bar(zero, y, right)
            scene.add(Lines([[*corners, corners[0]]], INK, 0.8))
        scene.add(_beside(right + 8, y, f"{in_gb(total):.2f} GB", bold=True))
    y = _key(scene, [role for role in ROLES if role in silent and role not in written], zero, y + ROW * 1.3)
    scene.height = y + ROW / 2
    return Picture.from_scene(scene)


def _key(scene: Scene, roles: Sequence[str], left: float, y: float) -> float:
    """A line (or two) of squares with names, for roles that no bar could name; returns the y of the last line."""
    x = left
    for role in roles:
        if x + 40 + text_width(role, SIZE) > scene.width:
            x, y = left, y + ROW
        square = [(x, y - 7), (x + 14, y - 7), (x + 14, y + 7), (x, y + 7)]
        scene.add(Area(square, ROLE_COLOURS[role]), Lines([[*square, square[0]]], FAINT, 0.8), _beside(x + 20, y, role))
        x += 44 + text_width(role, SIZE)
    return y


def batch_lines(
    step: StepTrace, batches: Sequence[int], limit_bytes: float | None = None, title: str | None = None
) -> Picture:
    """The peak against the batch, stacked by role: what grows with it, what does not, and which moment sets the peak.

    Args:
        step: the step at every batch.
        batches: increasing batch sizes to read, two or more.
        limit_bytes: what the card holds; the largest batch that fits is marked.
        title: the finding.

    Raises:
        CourseError: fewer than two batches, or not increasing.
    """
    if len(batches) < 2 or any(low >= high for low, high in pairwise(batches)):
        raise CourseError("batch_lines needs two or more batch sizes in increasing order")
    ledgers = [step.at(batch) for batch in batches]
    peaks = np.array([ledger.by_role().to_numpy() for ledger in ledgers], dtype=float)
    levels = np.concatenate([np.zeros((len(batches), 1)), np.cumsum(peaks, axis=1)], axis=1)
    regimes = [(phase, [batch for _, batch in group]) for phase, group in groupby(
        ((ledger.peak_phase, ledger.batch) for ledger in ledgers), key=lambda pair: pair[0])]  # fmt: skip
    fits = step.largest_batch(limit_bytes) if limit_bytes is not None else None
    if title is None:
        ends = [f"{format_bytes(ledger.peak_bytes)} at batch {ledger.batch:,}" for ledger in (ledgers[0], ledgers[-1])]
        title = f"{step.name}: {ends[0]}, {ends[1]}"
    moments = [f"{_stretch(own)} the peak is in the {phase} phase" for phase, own in regimes]
    said = f"{title}. Peak memory against batch size, stacked by role; {'; '.join(moments)}"
    if limit_bytes is not None and fits is not None:
        said += f"; largest batch within the {limit_name(limit_bytes)}: {fits:,}"
    scene = Scene(WIDTH, 430, said + ".")
    top = write_title(scene, title) + 26
    left, right, bottom = 62.0, WIDTH - 176.0, 430 - 62.0
    highest = max(levels[-1, -1], levels[:, -1].max())
    shown = limit_bytes is not None and limit_bytes < 2.5 * highest
    scale = ByteScale(1.15 * max(highest, limit_bytes if limit_bytes is not None and shown else 0.0, 1.0), bottom - top)

    def x_of(batch: float) -> float:
        return left + (batch - batches[0]) / (batches[-1] - batches[0]) * (right - left)

    xs = np.array([x_of(batch) for batch in batches])
    ys = bottom - levels * (scale.length / scale.top)
    scene.add(Words(12, top - 8, f"{scale.unit[1]} alive at the peak", SIZE, fill=FAINT))
    for count, label in scale.ticks(gap=44):
        y = bottom - scale.pixels(count)
        if y > top + 4:
            scene.add(_beside(left - 9, y, label, end=True, fill=FAINT), Lines([[(left - 5, y), (left, y)]], FAINT))
    for role, code in ((role, code) for code, role in enumerate(ROLES) if peaks[:, code].any()):
        shape = np.concatenate([np.column_stack([xs, ys[:, code + 1]]), np.column_stack([xs, ys[:, code]])[::-1]])
        scene.add(Area(shape, ROLE_COLOURS[role]))
    scene.add(Lines([np.column_stack([xs, ys[:, -1]])], INK, 1.6))
    scene.add(Lines([[(left, top), (left, bottom), (right, bottom)]], FAINT))
    for batch in _round_batches(batches):
        scene.add(Lines([[(x_of(batch), bottom), (x_of(batch), bottom + 5)]], FAINT))
        scene.place([Words(x_of(batch), bottom + 22, f"{batch:,}", SIZE, "middle", fill=FAINT)])
    scene.add(Words((left + right) / 2, bottom + 44, "batch", SIZE, "middle", fill=FAINT))
    crossing = bottom - scale.pixels(limit_bytes) if limit_bytes is not None and shown else None
    columns = np.arange(left + 2, right - 2, BAND_COLUMN)
    roofs = np.interp(columns, xs, ys[:, -1])
    curve: list[Box] = [(x, y, x + BAND_COLUMN, bottom) for x, y in zip(columns, roofs, strict=True)]
    curve.append((0, top, left + 2, bottom))
    if limit_bytes is not None and crossing is not None:
        line = [[(left, crossing), (right, crossing)]]
        scene.add(Lines(line, PAPER, 4), Lines(line, INK, 1.8, dashed=True))
        curve.append((left, crossing - 2, right, crossing + 2))
        if fits is not None and batches[0] <= fits <= batches[-1]:
            x = x_of(fits)
            scene.add(Lines([[(x, crossing), (x, bottom)]], PAPER, 4), Lines([[(x, crossing), (x, bottom)]], INK, 1.8))
            texts = (f"largest batch that fits: {fits:,}", f"{fits:,} fits")
            scene.place((Words(x - 8, crossing - 9, text, SIZE, "end", bold=True) for text in texts), curve)
    _label_regimes(scene, regimes, x_of, np.column_stack([xs, ys[:, -1]]), curve)
    blocked = np.zeros(len(columns), dtype=bool)
    if fits is not None and crossing is not None:
        blocked |= np.abs(columns - x_of(fits)) < 6
    rows: list[tuple[str, str, float | None]] = []
    for code, role in enumerate(ROLES):
        if not peaks[:, code].any():
            continue
        low, high = (np.interp(columns, xs, ys[:, edge]) for edge in (code, code + 1))
        if not write_on_band(scene, columns, low, high, blocked, [role], ROLE_COLOURS[role], crossing):
            leader = float(ys[-1, code] + ys[-1, code + 1]) / 2 if peaks[-1, code] else None
            rows.append((role, ROLE_COLOURS[role], leader))
    roof = label_column(scene, right, bottom, rows)
    if limit_bytes is not None and crossing is not None:
        name_limit(scene, right, crossing, roof, limit_name(limit_bytes))
    elif limit_bytes is not None:
        scene.add(Words(right + COLUMN_GAP, top - 8, f"↑ {limit_name(limit_bytes)}", SIZE, bold=True))
    return Picture.from_scene(scene)


def _stretch(batches: Sequence[int]) -> str:
    return f"from batch {batches[0]:,} to {batches[-1]:,}" if len(batches) > 1 else f"at batch {batches[0]:,}"


def _round_batches(batches: Sequence[int]) -> list[int]:
    """The first and the last batch and about six round ones between them."""
    step = max(1, 2 ** int(np.ceil(np.log2(max(1, (batches[-1] - batches[0]) / 7)))))
    low, high = batches[0] + 0.6 * step, batches[-1] - 0.6 * step
    return [batches[0], batches[-1], *(batch for batch in range(step, batches[-1], step) if low < batch < high)]


def _label_regimes(
    scene: Scene,
    regimes: Sequence[tuple[str, Sequence[int]]],
    x_of: Callable[[float], float],
    curve: npt.NDArray[np.float64],
    keep_clear: Sequence[Box],
) -> None:
    """Over each stretch of the curve the phase that sets the peak, and a mark where one hands over to the next."""
    for _, own in regimes[1:]:
        x = x_of(own[0])
        y = float(np.interp(x, *curve.T))
        scene.add(Lines([[(x, y), (x, y - 14)]], INK, 1.8))
    for phase, own in regimes:
        low, high = x_of(own[0]), x_of(own[-1])
        places: list[tuple[float, Literal["start", "middle", "end"]]] = [(low + 6, "start"), (high, "end")]
        places[:0] = [(low + share * (high - low), "middle") for share in (0.5, 0.35, 0.65, 0.2)]
        scene.place(
            (
                Words(x, float(np.interp(x, *curve.T)) - lift, f"peak in {phase}", SIZE, anchor)
                for lift in (18, 34, 50, 66, 90)
                for x, anchor in places
            ),
            keep_clear,
        )
