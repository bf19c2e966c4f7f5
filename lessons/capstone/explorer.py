"""Explorer of lesson 12: which techniques together bring a batch onto a card, and what they cost in time.

Its controls make a `plan.Plan`, the reading is the `Evaluation` of its problem, the picture a `figures.plane` of memory
against time with every other combination of the controls. All of them are judged when it is made, so that a move reads
what is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import Picture
from course_utils.techniques.capacity import FITS, NO, TIGHT
from course_utils.techniques.offload import WINDOW
from course_utils.units import CourseError, format_bytes, format_seconds
from lessons.capstone.plan import OFFLOADS, TOLERANCE, Evaluation, Plan, Problem
from lessons.capstone.plans import plan_plane
from lessons.capstone.search import TIE, combinations, fastest, pareto_front, tied
from lessons.shared.recompute import Segment
from lessons.shared.recompute.real import parts

PRECISIONS = ("float32", "float16")
EVEN = (12,)  # pieces of an even cut that are offered, beside the segments with the lowest peak
# Micro-batches, and the share of the card's room to which their segments are chosen, that are offered too.
CHOSEN = ((1, 1.0), (2, 0.75), (2, 0.7))
HALVINGS = 3  # of the batch
IN_FLIGHT = (3, WINDOW)  # copies under way, of offload that does not wait for each
SLIGHT = 0.0005  # a share of time below this is none


def sentences(evaluations: Sequence[Evaluation], found: Evaluation) -> tuple[str, str, str]:
    """What a plan comes to in words: memory, where its time goes, and what would be faster.

    Args:
        evaluations: every plan there is to choose from.
        found: the one shown.
    """
    why = found.why()
    return why[0].upper() + why[1:], _time(found), _way(evaluations, found)


def _time(found: Evaluation) -> str:
    head = f"An update is predicted to take {format_seconds(found.seconds)}, {_against(found)}"
    waits = found.waiting_seconds / found.seconds
    waiting = f"; it waits {format_seconds(found.waiting_seconds)} for copies" if waits > SLIGHT else ""
    tolerance = "; equal to the plain one to the tolerance of 16 bits" if found.equal_to == TOLERANCE else ""
    return f"{head}{waiting}{tolerance}."


def _against(found: Evaluation) -> str:
    if abs(found.lost) < SLIGHT:
        return "as long as the plain step would on a card that held it"
    way = "more" if found.lost > 0 else "less"
    return f"{100 * abs(found.lost):.1f} % {way} than the plain step would on a card that held it"


def _way(evaluations: Sequence[Evaluation], found: Evaluation) -> str:
    fitting = [one for one in evaluations if one.state == FITS]
    best = fastest(fitting)
    if best is None:
        least = min(evaluations, key=lambda one: one.tensor_bytes)
        return f"No combination surely fits; the lowest peak is {format_bytes(least.tensor_bytes)}, with {least.plan}."
    if found.state == FITS and found.seconds <= best.seconds:
        return "No combination here that fits is faster."
    alikes = [one for one in fitting if one.equal_to == found.equal_to]
    exact = fastest(alikes)
    if exact is None or exact.plan == best.plan:
        alike = ""
    elif exact.plan == found.plan:
        alike = f"; of those equal {exact.equal_to}: this one"
    else:
        alike = f"; of those equal {exact.equal_to}: {_named(exact, alikes)}"
    return f"Fastest of the {len(fitting)} of {len(evaluations)} that fit: {_named(best, fitting)}{alike}."


def _named(one: Evaluation, among: Sequence[Evaluation]) -> str:
    others = len(tied(among)) - 1
    ties = f", tied within {100 * TIE:.0f} % with {others} other{'s' * (others > 1)}" if others else ""
    return f"{one.plan} ({format_seconds(one.seconds)}){ties}"


def picture(problem: Problem, evaluations: Sequence[Evaluation], found: Evaluation) -> Picture:
    """The plan among all others, over memory and time."""
    finding = {FITS: "fits", TIGHT: "is tight", NO: "does not fit"}[found.state]
    cost = f", {found.lost:+.1%} time" if abs(found.lost) >= SLIGHT else ""
    best = fastest(one for one in evaluations if one.state == FITS)
    plain = problem.evaluate(Plan(problem.batch))
    return plan_plane(
        evaluations,
        pareto_front(one for one in evaluations if one.state == FITS),
        {"plain": plain} | ({} if best is None else {"fastest": best}),
        found,
        chosen_name="this plan",
        title=f"{problem.network.name}, batch {problem.batch:,}: {found.plan} {finding}{cost}",
    )


class PlanExplorer(Explorer):
    """Controls over the techniques, all their combinations over memory and time, sentences; made by `plan_explorer`."""

    def __init__(self, problem: Problem, start: Plan) -> None:
        self._problem = problem
        offered = choices(problem)
        micros, precisions, _, segments = (values.values() for values in offered.values())
        self._all = combinations(problem, micros, precisions, OFFLOADS, segments, IN_FLIGHT)
        controls = {
            name: described(widgets.Dropdown, name, options=list(values.items())) for name, values in offered.items()
        }
        wanted = _settings(start)
        for control, value in zip(controls.values(), wanted, strict=True):
            control.value = value
        self.micro, self.precision, self.offload, self.segments = controls.values()
        self.lay_out([("1fr 1fr 1fr 1fr", list(controls.values()))], controls)

    @property
    def plan(self) -> Plan:
        """What the controls say."""
        micro = None if self.micro.value == self._problem.batch else self.micro.value
        offload, window = self.offload.value
        return Plan(self._problem.batch, micro, self.precision.value, offload, window, segments=self.segments.value)

    def view(self) -> View:
        """The plan among all of them, and what it comes to in words; its peak is watched."""
        found = self._problem.evaluate(self.plan)
        drawn = picture(self._problem, self._all, found)
        best = fastest(one for one in self._all if one.state == FITS)
        advised = {} if best is None else dict(zip(self.controls, _settings(best.plan), strict=True))
        return View(drawn, sentences(self._all, found), found.tensor_bytes, "the peak", advised=advised)


def _settings(plan: Plan) -> tuple[Any, ...]:
    """What the controls are set to for a plan."""
    return plan.micro, plan.precision, (plan.offload, plan.window), plan.segments


def choices(problem: Problem) -> dict[str, dict[str, Any]]:
    """What each control offers for a problem: name on the screen -> value of the plan."""
    micros = [problem.batch] if problem.batch_norms else _halvings(problem.batch)
    return {
        "batch": {f"{problem.batch // n} × {n}" if n < problem.batch else f"{n} at once": n for n in micros},
        "precision": {precision: precision for precision in PRECISIONS},
        "offload": {
            **{policy: (policy, WINDOW) for policy in OFFLOADS if policy != "windowed"},
            **{f"all, {count} in flight": ("windowed", count) for count in IN_FLIGHT},
        },
        "recompute": {
            "nothing": 1,
            **{f"{count} even segments": count for count in EVEN if count <= len(parts(problem.module))},
            "lowest peak": problem.least_peak_segments,
            **chosen_segments(problem),
        },
    }


def chosen_segments(problem: Problem) -> dict[str, tuple[Segment, ...]]:
    """What lesson 10's search takes for CHOSEN, by the words that a plan has for it; those that there are."""
    found: dict[str, tuple[Segment, ...]] = {}
    for parts_of_it, share in CHOSEN:
        if problem.batch % parts_of_it == 0:
            with contextlib.suppress(CourseError):  # where no segments bring it down so far
                cut = problem.chain.cheapest(problem.batch // parts_of_it, share * problem.room_bytes, problem.device)
                if cut and cut != problem.least_peak_segments:
                    found.setdefault(str(Plan(problem.batch, segments=cut)), cut)
    return found


def plan_explorer(problem: Problem, start: Plan | None = None) -> PlanExplorer:
    """Which techniques together: controls for micro-batch, precision, offload and recomputation.

    Every move shows the plan among all combinations over memory and time, and says whether it fits, where its time
    goes, and what would be faster. All combinations are judged before the first picture, which takes a few seconds
    where `problem` has not judged them yet.

    Args:
        problem: what to train on which card; its network must be a chain.
        start: the plan shown first; the plain one if None.

    Raises:
        CourseError: the network is no chain, or `start` is not among the combinations offered.
    """
    start = Plan(problem.batch) if start is None else start
    wanted = _settings(start)
    for (name, values), value in zip(choices(problem).items(), wanted, strict=True):
        if value not in values.values():
            raise CourseError(f"the control {name!r} does not offer {value!r}: it has {', '.join(values)}")
    if start != replace(start, algorithm="p", changes=(), every=1):
        raise CourseError(f"the controls cannot show {start}: leave algorithm, changes and every as they are")
    return PlanExplorer(problem, start)


def _halvings(batch: int) -> list[int]:
    """The batch and its halves, as long as they are whole."""
    return [batch >> power for power in range(HALVINGS + 1) if batch % (1 << power) == 0]


# What a page without a kernel shows: all that *Try two things* asks.
PAGE = Page(
    lambda: plan_explorer(Problem("VGG-16", 256, "Titan X (Maxwell)", "PCIe 3.0 x16")),
    {"batch": None, "precision": None, "offload": None, "recompute": None},
)
