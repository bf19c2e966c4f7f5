"""Many plans for one problem: tried in combination, then ordered, tabulated, and those that nearly tie."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from course_utils.techniques.capacity import FITS, TIGHT
from course_utils.techniques.offload import WINDOW
from course_utils.units import as_written, format_bytes, format_seconds
from lessons.capstone.plan import OFFLOADS, Evaluation, Plan, Problem, Refused
from lessons.shared.recompute import Segment

if TYPE_CHECKING:
    import pandas as pd

TIE = 0.01  # of the time of the fastest that fits: what takes longer by less, the model of kernels does not rank


def combinations(
    problem: Problem,
    micro_batches: Iterable[int | None] = (None,),
    precisions: Iterable[str] = ("float32", "float16"),
    offloads: Iterable[str] = OFFLOADS,
    segments: Iterable[int | tuple[Segment, ...]] = (1,),
    windows: Iterable[int] = (WINDOW,),
    every: Iterable[int] = (1,),
) -> list[Evaluation]:
    """Every combination, of windows with "windowed" alone and of `every` with any offload, but for those refused."""
    windows, every = tuple(windows), tuple(every)
    ways = [(name, window) for name in offloads for window in (windows if name == "windowed" else (WINDOW,))]
    some = [(*way, one) for way in ways for one in (every if way[0] != "none" else (1,))]
    found: list[Evaluation] = []
    for micro, precision, (policy, window, one), pieces in itertools.product(micro_batches, precisions, some, segments):
        at_once = None if micro == problem.batch else micro
        plan = Plan(problem.batch, at_once, precision, policy, window, segments=pieces, every=one)
        with contextlib.suppress(Refused):
            found.append(problem.evaluate(plan))
    return found


def pareto_front(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Those that no other beats: none needs as little memory in less time, or less in as little. Fastest first."""
    front: list[Evaluation] = []
    for one in sorted(evaluations, key=lambda one: (one.seconds, one.tensor_bytes)):
        if not front or one.tensor_bytes < front[-1].tensor_bytes:
            front.append(one)
    return front


def table(evaluations: Iterable[Evaluation]) -> pd.DataFrame:
    """One row a plan: what it does, peak, verdict (and what makes it tight), time, and what that is against plain."""
    import pandas as pd

    rows = []
    for one in evaluations:
        peak, time = format_bytes(one.tensor_bytes), format_seconds(one.seconds, 2)
        state = f"{TIGHT}: {one.verdict.decided}" if one.state == TIGHT else one.state
        rows.append((str(one.plan), peak, state, time, as_written(f"{100 * one.lost:+.1f} %")))
    return pd.DataFrame(rows, columns=["plan", "peak", "card", "time", "against plain"]).set_index("plan")


def fastest(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    """Of those whose tensors fit the one with the least time, of several the least memory; None if there is none."""
    fitting = [one for one in evaluations if one.feasible]
    return min(fitting, key=lambda one: (one.seconds, one.tensor_bytes), default=None)


def tied(
    evaluations: Iterable[Evaluation], seconds: Callable[[Evaluation], float] = lambda one: one.seconds
) -> list[Evaluation]:
    """Those that surely fit and take at most TIE longer than the fastest of them; the least to build first."""
    found = list(evaluations)
    least = next((seconds(one) for one in sorted(found, key=seconds) if one.state == FITS), 0.0)
    near = [one for one in found if seconds(one) <= (1 + TIE) * least]  # what is slower need not be judged
    return sorted((one for one in near if one.state == FITS), key=_to_build)


def _to_build(one: Evaluation) -> tuple[int, bool, int, int]:
    """What there is to build: techniques, then whether there are copies, then segments, then micro-batches."""
    plan = one.plan
    segments = plan.segments if isinstance(plan.segments, int) else len(plan.segments)
    return len(plan.techniques), plan.offload != "none", segments, plan.parts
