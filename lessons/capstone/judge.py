"""How a plan that a learner returns stands on its problem, and the problems it is tried on.

A look, no right answer: the plans it is compared with are all of `lessons.capstone.plan.combinations`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from classroom.questions.core import has_dots
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import NO, TIGHT
from course_utils.units import GIB, CourseError, require_one_of
from lessons.capstone.plan import OFFLOADS, ROUNDING, Evaluation, Plan, Problem, Refused
from lessons.capstone.search import combinations, fastest
from lessons.shared.judged import Unfit
from lessons.shared.replay.form import packed, unpacked

TITAN_X = "Titan X (Maxwell)"
GEN2, GEN3, GEN4, NVLINK = "PCIe 2.0 x16", "PCIe 3.0 x16", "PCIe 4.0 x16", "NVLink 2"
PRECISIONS = ("float32", "float16")
SEGMENTS = (1, 2, 4)
LARGEST_BATCH = 10**6
Setting = tuple[bool, int, int, float, str, str]  # the arguments of `small_problem`
WITHIN = 0.02  # more time than the fastest plan of all by at most this share
LOST = 0.2  # more time than the plain step by at most this share


@dataclass(frozen=True)
class PlanLook:
    """What a learner's function returned for one problem.

    Attributes:
        problem: the problem.
        returned: what it returned.
        refused: the reason, if it is a plan that trains something else.
        found: what the plan comes to; None where it is none, or refused.
        best: the fastest of all combinations that fit; None if none does, or if nobody asked.
    """

    problem: Problem
    returned: Any
    refused: Refused | None = None
    found: Evaluation | None = None
    best: Evaluation | None = None

    @property
    def slower(self) -> float:
        """More time than the best plan takes, as a share; 0 without one."""
        return 0.0 if self.found is None or self.best is None else self.found.seconds / self.best.seconds - 1

    @property
    def right(self) -> bool:
        """Whether it is a plan as fast as the best ones, or None where none fits."""
        if self.best is None:
            return self.returned is None
        return self.found is not None and self.found.feasible and self.slower <= WITHIN


@dataclass(frozen=True)
class OwnLook:
    """What a learner's function returned that chooses the problem as well.

    Attributes:
        returned: what it returned, the problem by the names of its parts.
        look: how the plan stands on that problem; None where there is no such problem in the catalogues.
        plain: the problem's plain step.
    """

    returned: Any
    look: PlanLook | None = None
    plain: Evaluation | None = None

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked of problem and plan, by name."""
        found = None if self.look is None else self.look.found
        return {
            "a problem of your own": self.look is not None and not of_the_lesson(self.look.problem),
            "the plain step does not fit": self.plain is not None and self.plain.state == NO,
            "the same update": found is not None,
            "equal to the rounding of float32": found is not None and not inexact(found),
            "surely fits": found is not None and found.feasible and not tight(found),
            "fast enough": found is not None and found.lost <= LOST,
        }


@dataclass(frozen=True)
class Looks:
    """The same for several problems; `returned` is all that came back, for dots in it."""

    each: Sequence[PlanLook]

    @property
    def returned(self) -> list[Any]:
        """What came back, problem by problem."""
        return [look.returned for look in self.each]

    @property
    def holds(self) -> dict[str, bool]:
        """Whether all problems of a kind are solved, by name: those that may be cut into micro-batches, and others."""
        kinds: dict[str, list[bool]] = {"with micro-batches": [], "with batch norm": [], "where nothing fits": []}
        cut, norm, nothing = kinds.values()
        for look in self.each:
            (nothing if look.best is None else norm if look.problem.batch_norms else cut).append(look.right)
        return {name: bool(found) and all(found) for name, found in kinds.items()}


def look_at(problem: Problem, returned: Any, best: Evaluation | None = None) -> PlanLook:
    """How what was returned stands on a problem."""
    if type(returned) is not Plan or has_dots(vars(returned)):
        return PlanLook(problem, returned, best=best)
    try:
        return PlanLook(problem, returned, found=problem.evaluate(returned), best=best)
    except Refused as refused:
        return PlanLook(problem, returned, refused=refused, best=best)


def to_text(returned: Sequence[Any]) -> str:
    """What a function returned, plans and other things, as a line of text that another process can judge."""
    if has_dots(list(returned)) or any(type(one) is Plan and has_dots(vars(one)) for one in returned):
        raise TypeError("an ellipsis is no plan")
    return packed(
        [asdict(one) if type(one) is Plan else None if one is None else type(one).__name__ for one in returned]
    )


def from_text(text: str) -> list[Any]:
    """What is in such a text; in place of anything but plans and None, a text. Raises Unfit for one that is none."""
    data = unpacked(text)
    if not isinstance(data, list):
        raise Unfit("these are no plans")
    return [_plan(one) if isinstance(one, dict) else None if one is None else "no plan" for one in data]


def _plan(fields: dict[str, Any]) -> Plan | str:
    segments = fields.get("segments")
    cut = tuple(tuple(one) for one in segments) if isinstance(segments, list) else segments
    try:
        if not isinstance(fields["batch"], int) or fields["batch"] > LARGEST_BATCH:
            return "no plan"
        return Plan(**{**fields, "segments": cut, "changes": tuple(fields["changes"])})
    except (CourseError, TypeError, KeyError):
        return "no plan"


def own_to_text(returned: Any) -> str:
    """A pair of problem and plan as a line of text: the problem by the names of its parts; null for another thing."""
    problem, plan = returned if isinstance(returned, tuple | list) and len(returned) == 2 else (None, returned)
    named = None
    if type(problem) is Problem:
        named = [problem.network.name, problem.batch, problem.device.name, problem.link.name, problem.optimizer]
    return packed([named, *unpacked(to_text([plan]))])


def own_look(text: str) -> OwnLook:
    """How the plan of such a text stands on its problem, which is made anew from the catalogues.

    Raises:
        Unfit: the text is none.
    """
    data = unpacked(text)
    if not isinstance(data, list) or len(data) != 2:
        raise Unfit("this is no problem with a plan")
    named, (plan,) = data[0], from_text(packed(data[1:]))
    try:
        problem = _own_problem(*named)
        plain = problem.evaluate(Plan(problem.batch))
    except (CourseError, TypeError):
        return OwnLook((named, plan))
    return OwnLook((named, plan), look_at(problem, plan), plain)


@functools.lru_cache(maxsize=16)
def _own_problem(network: str, batch: int, device: str, link: str, optimizer: str) -> Problem:
    require_one_of("network", network, NETWORKS)
    if batch > LARGEST_BATCH:
        raise CourseError(f"batch must be {LARGEST_BATCH:,} or less, got {batch:,}")
    return Problem(network, batch, device, link, optimizer)


def of_the_lesson(problem: Problem) -> bool:
    """Whether it is the problem that lesson 12 solves."""
    return (problem.network.name, problem.batch, problem.device.name) == ("VGG-16", 256, TITAN_X)


def inexact(found: Evaluation) -> bool:
    """Whether the update is equal to the tolerance of 16 bits only."""
    return found.equal_to != ROUNDING


def tight(found: Evaluation) -> bool:
    """Whether its tensors fit, and not all else that needs room."""
    return found.state == TIGHT


def best_of(problem: Problem) -> Evaluation | None:
    """The fastest plan that fits, of all micro-batches that divide the batch, both precisions, policies, SEGMENTS."""
    micros = [n for n in range(1, problem.batch + 1) if problem.batch % n == 0]
    return fastest(combinations(problem, micros, PRECISIONS, OFFLOADS, SEGMENTS))


def chain(norm: bool, width: int) -> nn.Sequential:
    """Four convolutions, two pools and a dense head, for images of 32 × 32."""
    norms = [nn.BatchNorm2d(width)] if norm else []
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, padding=1), *norms, nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2 * width * 64, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


@functools.cache
def _traced(norm: bool, width: int) -> Problem:
    name = "a chain with batch norm" if norm else "a chain"
    return Problem(Network(name, functools.partial(chain, norm, width), (3, 32, 32), 10), 64, TITAN_X, GEN3)


@functools.cache
def small_problem(norm: bool, width: int, batch: int, share: float, device: str, link: str) -> Problem:
    """A small chain on a card as fast as a device, with room for a share of what the plain step needs in tensors."""
    large = _traced(norm, width).changed(batch=batch, device=device, link=link)
    plain = large.evaluate(Plan(batch))
    memory = (plain.context_bytes + share * plain.tensor_bytes) / GIB
    return large.changed(device=replace(large.device, name="small card", memory_gb=memory))


@functools.cache
def _best_small(*settings: Any) -> Evaluation | None:
    return best_of(small_problem(*settings))


def returned_for(function: Callable[[Problem], Any], settings: Sequence[Setting]) -> list[Any]:
    """What a function returns for several small problems, each given as the arguments of `small_problem`."""
    return [function(small_problem(*one)) for one in settings]


def look_at_small(returned: Sequence[Any], settings: Sequence[Setting]) -> Looks:
    """How what was returned for several small problems stands on them."""
    pairs = zip(settings, returned, strict=True)
    return Looks([look_at(small_problem(*one), plan, _best_small(*one)) for one, plan in pairs])
