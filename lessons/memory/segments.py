"""Pictures of the caching allocator: a card with its segments and gaps, and which of several batches fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_utils.allocator import CachingAllocator
from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SIZE, bar_at, beside, text_on, write_title
from course_utils.techniques.capacity import FITS
from course_utils.units import CourseError, format_bytes
from lessons.hardware.cards import FILLS

LINE, BAR_LINE = 24.0, 30.0  # pixels: a line of words, and one with a bar
LEAST_USED = 4.0  # pixels of a block in use, which holds its segment however small it is: more than the border's
USED, GAP = "#5a5a5a", "#d9d9d9"


@dataclass(frozen=True)
class Moment:
    """What an allocator held at one moment: bytes of the card that it may take, its `layout()`, a request, in bytes."""

    room: int
    layout: Sequence[Sequence[tuple[int, bool]]]
    asked: int = 0

    @classmethod
    def of(cls, allocator: CachingAllocator, asked: int = 0) -> Moment:
        """The present one.

        Raises:
            CourseError: the allocator has a card without end.
        """
        if allocator.limit is None:
            raise CourseError("a picture of segments needs an allocator with a limit")
        return cls(allocator.limit, allocator.layout(), asked)

    @property
    def untaken(self) -> int:
        """Bytes of the card that are in no segment."""
        return self.room - sum(size for blocks in self.layout for size, _ in blocks)

    @property
    def free(self) -> list[int]:
        """Bytes of every free piece, the largest first: gaps in segments, and what is in no segment."""
        gaps = [size for blocks in self.layout for size, free in blocks if free]
        return sorted([*gaps, self.untaken], reverse=True)


def segments(moments: Mapping[str, Moment], title: str) -> Picture:
    """A bar for every moment, as long as the card: blocks in use dark, gaps light, and below them what is asked for.

    Where something is asked for, the largest free piece bears its size, if there is room.

    Args:
        moments: what happens -> the allocator then; all of one card.
        title: the finding.

    Raises:
        CourseError: no moment, or cards of different sizes.
    """
    if len({moment.room for moment in moments.values()}) != 1:
        raise CourseError("segments needs moments of one card")
    said = "; ".join(f"{name}: {_said(moment)}" for name, moment in moments.items())
    scene = Scene(WIDTH, 0, f"{title}. {said}.")
    y = write_title(scene, title) + 8
    for name, moment in moments.items():
        y = _moment(scene, name, moment, y + LINE) + 8
    x = 12.0
    for words, colour in (("in use", USED), ("gap in a segment", GAP), ("in no segment", PAPER)):
        corners = [(x, y + 18), (x + 16, y + 18), (x + 16, y + 32), (x, y + 32)]
        scene.add(Area(corners, colour), Lines([[*corners, corners[0]]], FAINT))
        scene.add(beside(x + 24, y + 25, words))
        x += 60 + text_width(words, SIZE)
    scene.height = y + 44
    return Picture.from_scene(scene)


def _said(moment: Moment) -> str:
    used = sum(size for blocks in moment.layout for size, free in blocks if not free)
    asked = f", {format_bytes(moment.asked)} asked for" if moment.asked else ""
    largest = format_bytes(moment.free[0])
    return f"{format_bytes(used)} in use, {format_bytes(sum(moment.free))} free, at most {largest} in a piece{asked}"


def _moment(scene: Scene, name: str, moment: Moment, y: float) -> float:
    """One bar from this y on, its name above it; returns the y below it."""
    left, pixels = 12.0, (WIDTH - 24.0) / moment.room
    scene.add(beside(left, y, name))
    y += BAR_LINE
    x, pieces = left, list[tuple[int, float]]()
    for blocks in moment.layout:
        start, end = x, x + sum(size for size, _ in blocks) * pixels
        used = list[Area]()
        for size, free in blocks:
            if free:
                scene.add(Area(bar_at(x, y, x + size * pixels), GAP))
                pieces.append((size, x))
            else:
                left_edge = max(start, min(x, end - LEAST_USED))
                right_edge = max(x + size * pixels, left_edge + LEAST_USED)
                used.append(Area(bar_at(left_edge, y, min(right_edge, end)), USED))
            x += size * pixels
        corners = bar_at(start, y, end)
        scene.add(*used, Lines([[*corners, corners[0]]], INK, 1.4))
    corners = bar_at(x, y, left + moment.room * pixels)
    scene.add(Lines([[*corners, corners[0]]], FAINT, 1.2))
    if moment.asked:
        size, start = max([*pieces, (moment.untaken, x)])
        ink = INK if start == x else text_on(GAP)  # a gap has its grey in the dark theme too
        words = format_bytes(size)
        if text_width(words, SIZE) + 8 < size * pixels:
            scene.add(Words(start + size * pixels / 2, y + 0.35 * SIZE, words, SIZE, "middle", fill=ink))
        y += BAR_LINE
        corners = bar_at(left, y, left + moment.asked * pixels)
        words = f"asked for: {format_bytes(moment.asked)}; largest piece: {format_bytes(moment.free[0])}"
        scene.add(Lines([[*corners, corners[0]]], INK, 1.8, dashed=True))
        scene.add(beside(left + moment.asked * pixels + 10, y, words))
    return y


def verdicts(states: Mapping[int, str], title: str) -> Picture:
    """A square for each batch in the colour of its verdict, the batches that fit in bold below.

    Args:
        states: batch -> "fits" or "tight", in increasing order.
        title: the finding.

    Raises:
        CourseError: no batch, or another verdict.
    """
    if not states or set(states.values()) - set(FILLS):
        raise CourseError(f"verdicts needs batches that are {' or '.join(FILLS)}")
    said = "; ".join(
        f"{state}: {', '.join(str(batch) for batch, its in states.items() if its == state)}" for state in FILLS
    )
    scene = Scene(WIDTH, 0, f"{title}. {said}.")
    y = write_title(scene, title) + 24
    side = (WIDTH - 24.0) / len(states)
    for place, (batch, state) in enumerate(states.items()):
        x = 12 + place * side
        scene.add(Area(bar_at(x + 1.5, y, x + side - 1.5), FILLS[state]))
        bold = state == FITS
        scene.add(Words(x + side / 2, y + 32, str(batch), SIZE, "middle", bold, INK if bold else FAINT))
    x = 12.0
    for state, colour in FILLS.items():
        scene.add(Area(bar_at(x, y + 62, x + 16), colour), beside(x + 24, y + 62, state))
        x += 60 + text_width(state, SIZE)
    scene.height = y + 80
    return Picture.from_scene(scene)
