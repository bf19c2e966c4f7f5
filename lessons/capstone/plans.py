"""Plans for one batch over memory and time: all of them, those that no other beats, and the one in question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from course_utils.figures.plane import HEIGHT, Axis, Curve, Spot, plane
from course_utils.figures.scene import FAINT, INK, Picture
from course_utils.figures.style import SERIES_COLOURS
from course_utils.techniques.capacity import FITS
from course_utils.units import GIB, CourseError, as_written

if TYPE_CHECKING:
    from lessons.capstone.plan import Evaluation


def plan_plane(
    evaluations: Sequence[Evaluation],
    front: Iterable[Evaluation] = (),
    named: Mapping[str, Evaluation] | None = None,
    chosen: Evaluation | None = None,
    title: str = "",
    chosen_name: str = "",
    height: float = HEIGHT,
    marks: Mapping[str, float] | None = None,
) -> Picture:
    """Peaks of plans against what an update takes more than plain; hollow points do not fit, or are tight.

    The line is what the card leaves beside the context.

    Args:
        evaluations: every plan, of one problem.
        front: those that no other beats, joined by a line: `lessons.capstone.plan.pareto_front`.
        named: those with a name beside them, by that name; the first find room first.
        chosen: one in another colour, with its name.
        title: the finding.
        chosen_name: what stands beside `chosen`; its techniques if empty.
        height: pixels of the picture.
        marks: name -> more time than plain, as a share of it: a dashed vertical line.

    Raises:
        CourseError: no plan to draw.
    """
    if not evaluations:
        raise CourseError("there is no plan to draw: every combination was refused")
    steps = sorted(front, key=lambda one: one.seconds)
    verdict = evaluations[0].verdict
    on_front, names = {one.plan for one in steps}, {one.plan: name for name, one in (named or {}).items()}
    places = {plan: place for place, plan in enumerate(names)}
    spots = [] if chosen is None else [_spot(chosen, chosen_name or str(chosen.plan), SERIES_COLOURS[1], bold=True)]
    rest = [one for one in evaluations if chosen is None or one.plan != chosen.plan]
    # Drawn last, over the others: the front and what has a name; of these, those named first find room first.
    for one in sorted(rest, key=lambda one: (one.plan in names, one.plan in on_front, places.get(one.plan, 0))):
        name = names.get(one.plan, "")
        colour = SERIES_COLOURS[0] if one.plan in on_front else INK if name else FAINT
        spots.append(_spot(one, name, colour, small=not name))
    curves = []
    if len(steps) > 1:  # level until the next plan needs less
        x, y = [_longer(steps[0])], [_peak(steps[0])]
        for one in steps[1:]:
            x += [_longer(one), _longer(one)]
            y += [y[-1], _peak(one)]
        curves.append(Curve("", x, y, SERIES_COLOURS[0], width=1.8))
    longer = [_longer(one) for one in evaluations]
    low = min(longer) - 0.1 * (max(longer) - min(longer))
    return plane(
        Axis("predicted time of one update, % more than plain", low=low, write=_signed),
        Axis("peak of tensors, GiB", low=0),
        curves=curves,
        spots=spots,
        title=title,
        limits={f"{verdict.card} − context": verdict.limit_bytes / GIB},
        marks={name: 100 * share for name, share in (marks or {}).items()},
        height=height,
    )


def _spot(one: Evaluation, name: str, colour: str, bold: bool = False, small: bool = False) -> Spot:
    return Spot(name, _longer(one), _peak(one), colour, one.state != FITS, bold, small)


def _peak(one: Evaluation) -> float:
    return one.tensor_bytes / GIB


def _longer(one: Evaluation) -> float:
    return 100 * one.lost


def _signed(value: float) -> str:
    return as_written(f"{value:.3g}")
