"""The peak against the batch, stacked by role."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Box, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import (
    BAND_COLUMN,
    COLUMN_GAP,
    ROLE_COLOURS,
    SIZE,
    ByteScale,
    Row,
    beside,
    label_column,
    name_limit,
    write_on_band,
    write_title,
)  # fmt: skip
from course_utils.memory import ROLES, StepTrace
from course_utils.techniques.capacity import card_name, largest_batch, room_for_tensors
from course_utils.units import CourseError, format_bytes


def batch_lines(
    step: StepTrace, batches: Sequence[int], limit_bytes: float | None = None, title: str | None = None
) -> Picture:
    """The peak against the batch, stacked by role: what grows with it, what does not, and which moment sets the peak.

    Args:
        step: the step at every batch.
        batches: increasing batch sizes to read, two or more.
        limit_bytes: what the card holds. The line is what the context leaves of it, and the batch up to which all fit
            is marked, both by `course_utils.techniques.capacity`.
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
    fits = largest_batch(step, limit_bytes).fits if limit_bytes is not None else None
    line = room_for_tensors(limit_bytes) if limit_bytes is not None else None
    if title is None:
        ends = [f"{format_bytes(ledger.peak_bytes)} at batch {ledger.batch:,}" for ledger in (ledgers[0], ledgers[-1])]
        title = f"{step.name}: {ends[0]}, {ends[1]}"
    moments = [f"{_stretch(own)} the peak is in the {phase} phase" for phase, own in regimes]
    said = f"{title}. Peak memory against batch size, stacked by role; {'; '.join(moments)}"
    if limit_bytes is not None and fits is not None:
        said += f"; batches up to {fits:,} fit the {card_name(limit_bytes)}"
    scene = Scene(WIDTH, 430, said + ".")
    top = write_title(scene, title) + 26
    named = "" if limit_bytes is None else f"{card_name(limit_bytes)} − context"
    left, right, bottom = 62.0, WIDTH - max(176.0, text_width(f"↑ {named}", SIZE, True) + COLUMN_GAP + 8), 430 - 62.0
    highest = max(levels[-1, -1], levels[:, -1].max())
    shown = line is not None and 0 < line < 2.5 * highest
    scale = ByteScale(1.15 * max(highest, line if line is not None and shown else 0.0, 1.0), bottom - top)

    def x_of(batch: float) -> float:
        return left + (batch - batches[0]) / (batches[-1] - batches[0]) * (right - left)

    xs = np.array([x_of(batch) for batch in batches])
    ys = bottom - levels * (scale.length / scale.top)
    turns = [i for i in range(1, len(batches)) if ledgers[i].peak_phase != ledgers[i - 1].peak_phase]
    # Another moment has other bands: they change in a step, not along a slope.
    xs, ys = np.insert(xs, turns, xs[turns]), np.insert(ys, turns, ys[np.array(turns, dtype=int) - 1], axis=0)
    scene.add(Words(12, top - 8, f"{scale.unit[1]} alive at the peak", SIZE, fill=FAINT))
    for count, label in scale.ticks(gap=44):
        y = bottom - scale.pixels(count)
        if y > top + 4:
            scene.add(beside(left - 9, y, label, end=True, fill=FAINT), Lines([[(left - 5, y), (left, y)]], FAINT))
    for role, code in ((role, code) for code, role in enumerate(ROLES) if peaks[:, code].any()):
        shape = np.concatenate([np.column_stack([xs, ys[:, code + 1]]), np.column_stack([xs, ys[:, code]])[::-1]])
        scene.add(Area(shape, ROLE_COLOURS[role]))
    scene.add(Lines([np.column_stack([xs, ys[:, -1]])], INK, 1.6))
    scene.add(Lines([[(left, top), (left, bottom), (right, bottom)]], FAINT))
    for batch in _round_batches(batches):
        scene.add(Lines([[(x_of(batch), bottom), (x_of(batch), bottom + 5)]], FAINT))
        scene.place([Words(x_of(batch), bottom + 22, f"{batch:,}", SIZE, "middle", fill=FAINT)])
    scene.add(Words((left + right) / 2, bottom + 44, "batch", SIZE, "middle", fill=FAINT))
    crossing = bottom - scale.pixels(line) if line is not None and shown else None
    columns = np.arange(left + 2, right - 2, BAND_COLUMN)
    roofs = np.interp(columns, xs, ys[:, -1])
    curve: list[Box] = [(x, y, x + BAND_COLUMN, bottom) for x, y in zip(columns, roofs, strict=True)]
    curve.append((0, top, left + 2, bottom))
    if crossing is not None:
        across = [[(left, crossing), (right, crossing)]]
        scene.add(Lines(across, PAPER, 4), Lines(across, INK, 1.8, dashed=True))
        curve.append((left, crossing - 2, right, crossing + 2))
        if fits is not None and batches[0] <= fits <= batches[-1]:
            x = x_of(fits)
            scene.add(Lines([[(x, crossing), (x, bottom)]], PAPER, 4), Lines([[(x, crossing), (x, bottom)]], INK, 1.8))
            texts = (f"fits up to batch {fits:,}", f"{fits:,} fits")
            scene.place((Words(x - 8, crossing - 9, text, SIZE, "end", bold=True) for text in texts), curve)
    _label_regimes(scene, regimes, x_of, np.column_stack([xs, ys[:, -1]]), curve)
    rows: list[Row] = []
    for code, role in enumerate(ROLES):
        if not peaks[:, code].any():
            continue
        low, high = (np.interp(columns, xs, ys[:, edge]) for edge in (code, code + 1))
        if fits is not None and crossing is not None:
            low = np.where(np.abs(columns - x_of(fits)) < 6, high, low)  # no words over the line down from the limit
        if not write_on_band(scene, columns, low, high, [role], ROLE_COLOURS[role], crossing):
            leader = (right, float(ys[-1, code] + ys[-1, code + 1]) / 2) if peaks[-1, code] else None
            rows.append((role, ROLE_COLOURS[role], leader))
    roof = label_column(scene, right, bottom, rows)
    if limit_bytes is not None and crossing is not None:
        name_limit(scene, right, crossing, roof, named)
    elif limit_bytes is not None:
        scene.add(Words(right + COLUMN_GAP, top - 8, f"↑ {named}", SIZE, bold=True))
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
