"""Cards as dots on an axis of memory, and what a step needs as lines across them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SIZE, beside, circle, write_title
from course_utils.units import GIB, CourseError, format_bytes

ROW, DOT = 20.0, 6.5  # pixels from one card to the next, less than elsewhere, so that all fit a screen; and of a dot
LOW, HIGH = GIB / 2, 256 * GIB  # ends of the axis, which do not move with what is drawn
# The fill of a dot by state; a state without an entry is an outline. Blue and orange stay apart without colour vision.
FILLS = {"fits": "#0072b2", "tight": "#d55e00"}


@dataclass(frozen=True)
class CardBar:
    """One card: its name, its memory in bytes, the state its dot is drawn in, and notes in columns at the right."""

    name: str
    memory_bytes: float
    state: str
    notes: Sequence[str] = ()


def cards(
    bars: Sequence[CardBar], lines: Mapping[str, float], title: str = "", headings: Sequence[str] = ()
) -> Picture:
    """Every card's memory as a dot on a logarithmic axis, and what a step needs as named lines across all of them.

    A bar would have a length, which on such an axis says nothing.

    Args:
        bars: the cards, drawn from the top.
        lines: name -> bytes; the first is drawn solid, the others dashed. Beyond the axis they stand at its end.
        title: the finding.
        headings: what the notes at the right are, one for each of them.

    Raises:
        CourseError: no cards, a number of bytes that is not above 0, or another number of notes than of headings.
    """
    if not bars or not all(math.isfinite(n) and n > 0 for n in [*lines.values(), *(b.memory_bytes for b in bars)]):
        raise CourseError("cards needs a card, and bytes above 0 for every card and line")
    if any(len(bar.notes) != len(headings) for bar in bars):
        raise CourseError(f"cards needs {len(headings)} notes for every card, one for each heading")
    said = "; ".join(
        ", ".join(
            [f"{bar.name}: {format_bytes(bar.memory_bytes, 0)}", bar.state]
            + [f"{heading} {note}" for heading, note in zip(headings, bar.notes, strict=True)]
        )
        for bar in bars
    )
    needs = "; ".join(f"{name}: {format_bytes(value)}" for name, value in lines.items())
    scene = Scene(WIDTH, 0, f"{title}. {needs}. Memory of each card. {said}.")
    y = (write_title(scene, title) if title else 4.0) + 10
    left = max(text_width(bar.name, SIZE) for bar in bars) + 24
    columns, right = [], WIDTH - 12.0  # x of the right end of each column of notes, the last one first
    for i in reversed(range(len(headings))):
        columns.append(right)
        right -= max(text_width(text, SIZE, True) for text in (headings[i], *(bar.notes[i] for bar in bars))) + 22

    right = min(right, WIDTH - 30)  # the last mark's number stands half beyond it

    def at(size: float) -> float:
        share = math.log(size / LOW) / math.log(HIGH / LOW)
        return left + min(max(share, 0.0), 1.0) * (right - left)

    marks = sorted(lines.items(), key=lambda item: item[1])
    for name, value in reversed(marks):  # the names above the dots, the smallest lowest, so that no line crosses one
        y += 1.3 * SIZE
        text = f"{name} {format_bytes(value)}"
        wide = text_width(text, SIZE, True)
        scene.add(Words(min(max(at(value), left + wide / 2), right - wide / 2), y, text, SIZE, "middle", bold=True))
    for x, heading in zip(columns, reversed(headings), strict=True):
        scene.add(Words(x, y, heading, SIZE, "end", bold=True))
    top = y + 8
    y = top - ROW / 2 + 6
    dots: list[Area] = []
    for bar in bars:
        y += ROW
        end = at(bar.memory_bytes)
        scene.add(Lines([[(left, y), (end - DOT, y)]], FAINT, 0.8))
        dots.append(Area(circle(end, y, DOT), FILLS.get(bar.state, INK)))
        if bar.state not in FILLS:
            dots.append(Area(circle(end, y, DOT - 1.6), PAPER))
        scene.add(beside(left - 10, y, bar.name, end=True))
        for x, note in zip(columns, reversed(bar.notes), strict=True):
            if note:
                scene.add(beside(x, y, note, end=True))
    bottom = y + ROW / 2 + 2
    crossing = [[[(at(value), top), (at(value), bottom)]] for value in lines.values()]
    for line in crossing:
        scene.add(Lines(line, PAPER, 4.0))
    for i, line in enumerate(crossing):
        scene.add(Lines(line, INK, 2.0, dashed=i > 0))
    scene.add(*dots)
    scene.add(Lines([[(left, bottom), (right, bottom)]], FAINT))
    tick = 1
    while tick * GIB <= HIGH:
        scene.add(Lines([[(at(tick * GIB), bottom), (at(tick * GIB), bottom + 5)]], FAINT))
        scene.add(Words(at(tick * GIB), bottom + 22, f"{tick}", SIZE, "middle", fill=FAINT))
        tick *= 2
    scene.add(Words((left + right) / 2, bottom + 46, "GiB, each mark doubles", SIZE, "middle", fill=FAINT))
    scene.height = bottom + 58
    return Picture.from_scene(scene)
