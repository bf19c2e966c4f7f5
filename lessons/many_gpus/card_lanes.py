"""A step on several cards as lanes over time: when a card computes, when its link is busy, and where it waits.

Readings (`parallel.CardStep`) go in.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SERIES_COLOURS, SIZE, text_on, write_title
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.shared.parallel import CardStep, Span

LANE = 30.0  # pixels
COMPUTE, LINK = SERIES_COLOURS[1], SERIES_COLOURS[0]
HIDDEN = 0.4  # opacity of the link where the card computes meanwhile


def card_lanes(steps: Mapping[str, CardStep], title: str = "", room_for: int = 1) -> Picture:
    """Two lanes for each step, all on one scale of time: computation, and the link, full where the card waits for it.

    Args:
        steps: name of the row -> the step.
        title: the finding.
        room_for: the picture is as tall as with so many steps, whatever is said of each: a control then adds one, and
            nothing on the page moves.

    Raises:
        CourseError: no steps.
    """
    if not steps:
        raise CourseError("card_lanes needs a step to draw")
    longest = max(step.seconds for step in steps.values())
    said = "; ".join(f"{name}: {_words(step)}" for name, step in steps.items())
    scene = Scene(WIDTH, 0, f"{title}. Computation and link of a card over time. {said}.")
    y = write_title(scene, title) + 8 if title else 12.0
    left = text_width("computation", SIZE) + 24
    right = WIDTH - 24.0

    def x(seconds: float) -> float:
        return left + seconds / longest * (right - left)

    for name, step in steps.items():
        y += 1.25 * SIZE
        scene.add(Words(12, y, name, SIZE, bold=True))
        words = _words(step)
        if room_for == 1 and 12 + text_width(name, SIZE, True) + 24 + text_width(words, SIZE) < WIDTH:
            scene.add(Words(12 + text_width(name, SIZE, True) + 20, y, words, SIZE))
        else:
            y += 1.25 * SIZE
            scene.add(Words(12, y, words, SIZE))
        y += 9
        for lane, spans in (("computation", step.computing), ("link", step.linking)):
            scene.add(Words(left - 12, y + LANE / 2 + 0.35 * SIZE, lane, SIZE, "end"))
            if lane == "computation":
                _computing(scene, y, [(x(span.begin), x(span.end), span.what) for span in spans])
            else:
                _link(scene, y, step, x(1.0) - x(0.0), left)
            end = x(step.seconds)
            scene.add(Lines([[(left, y + LANE), (end, y + LANE)]], FAINT))
            y += LANE + 5
        y += 8
    bottom = y
    scene.add(Lines([[(left, bottom), (right, bottom)]], FAINT))
    unit, name = next(((u, n) for u, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if longest >= 2 * u), (1e-6, "µs"))
    power = 10.0 ** len(str(int(longest / unit / 7)))
    step_size = next(f * power / 100 for f in (1, 2, 5, 10, 20, 50, 100) if f * power / 100 >= longest / unit / 7)
    for i in range(int(longest / unit / step_size + 1e-9) + 1):
        at = x(i * step_size * unit)
        scene.add(Lines([[(at, bottom), (at, bottom + 5)]], FAINT))
        label = f"{i * step_size:.10g}" + (f" {name}" if i == 0 else "")
        scene.add(Words(at, bottom + 23, label, SIZE, "middle", fill=FAINT))
    missing = max(0, room_for - len(steps)) * (2.5 * SIZE + 9 + 2 * (LANE + 5) + 8)
    scene.height = bottom + 34 + missing
    return Picture.from_scene(scene)


def _words(step: CardStep) -> str:
    """What a row says: how long, how much of it waiting, what is sent."""
    if step.cards == 1:
        return f"{format_seconds(step.seconds)} a step"
    waits = step.idle_seconds / step.seconds
    share = "under 1 %" if 0 < waits < 0.01 else f"{100 * waits:.0f} %"
    return (
        f"{format_seconds(step.seconds)}, {share} of it waiting; a card sends {format_bytes(step.sent_bytes)}; "
        f"{step.speed_up:.2f} times as fast"
    )


def _box(left: float, right: float, y: float) -> list[tuple[float, float]]:
    return [(left, y), (right, y), (right, y + LANE), (left, y + LANE)]


def _computing(scene: Scene, y: float, blocks: list[tuple[float, float, str]]) -> None:
    """Stretches of computation, joined where less than a pixel lies between two of one phase."""
    joined: list[tuple[float, float, str]] = []
    for begin, end, what in blocks:
        if joined and joined[-1][2] == what and begin - joined[-1][1] < 1:
            joined[-1] = (joined[-1][0], end, what)
        else:
            joined.append((begin, end, what))
    scene.add(*(Area(_box(begin, max(end, begin + 0.5), y), COMPUTE) for begin, end, _ in joined))
    for one, other in pairwise(joined):
        if one[2] != other[2] and other[0] - one[1] < 1:
            scene.add(Lines([[(other[0], y), (other[0], y + LANE)]], PAPER, 2.0))
    widest: dict[str, tuple[float, float]] = {}
    for begin, end, what in joined:
        if end - begin > widest.get(what, (0.0, 0.0))[1] - widest.get(what, (0.0, 0.0))[0]:
            widest[what] = (begin, end)
    for what, (begin, end) in widest.items():
        if end - begin > text_width(what, SIZE) + 10:
            at = y + LANE / 2 + 0.35 * SIZE
            scene.add(Words((begin + end) / 2, at, what, SIZE, "middle", fill=text_on(COMPUTE)))


def _link(scene: Scene, y: float, step: CardStep, pixels_a_second: float, left: float) -> None:
    """The link's stretches: faint where the card computes meanwhile, full where it waits."""
    faint: list[Span] = []
    full: list[Span] = []
    for span in step.linking:
        at = span.begin
        for busy in step.computing:
            if busy.end <= at or busy.begin >= span.end:
                continue
            if busy.begin > at:
                full.append(Span(at, busy.begin, span.what))
            faint.append(Span(max(at, busy.begin), min(span.end, busy.end), span.what))
            at = min(span.end, busy.end)
        if span.end > at:
            full.append(Span(at, span.end, span.what))
    for spans, opacity in ((faint, HIDDEN), (full, 1.0)):
        for span in spans:
            begin, end = left + span.begin * pixels_a_second, left + span.end * pixels_a_second
            scene.add(Area(_box(begin, max(end, begin + 0.5), y), LINK, opacity))
    for spans, words, ink in ((full, "waits", text_on(LINK)), (faint, "hidden", INK)):
        widest = max(spans, key=lambda span: span.seconds, default=None)
        if widest is not None and widest.seconds * pixels_a_second > text_width(words, SIZE) + 10:
            middle = left + (widest.begin + widest.end) / 2 * pixels_a_second
            scene.add(Words(middle, y + LANE / 2 + 0.35 * SIZE, words, SIZE, "middle", fill=ink))
