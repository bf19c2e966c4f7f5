"""The checks of questions 5 and 6 of exercise 12: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from classroom.questions.core import Slip
from course_utils.techniques.capacity import NO
from course_utils.units import format_bytes
from lessons.capstone import judge as planning
from lessons.capstone.judge import Looks, OwnLook, PlanLook
from lessons.capstone.plan import ANOTHER_BATCH, ANOTHER_NETWORK, BATCH_NORM, OFFLOADS, Evaluation, Plan, Problem
from lessons.capstone.search import combinations
from lessons.shared.judged import PropertyCheck

# -- 5. a problem and a plan of one's own ------------------------------------------------------------------------------

LOST = planning.LOST


def _on_t4(plan: Plan, batch: int = 192) -> tuple[Problem, Plan]:
    return Problem("VGG-16", batch, "T4"), plan


class YourPlan(PropertyCheck[OwnLook]):
    """The check of question 5: a problem of one's own and a plan for it, judged by what the plan comes to."""

    question = name = "your_plan"
    running = "Making or judging your problem and plan"
    takeaway = "The same questions decide for any network and card: what is allowed, what fits, what it costs."
    slips = (
        Slip(
            "the lesson's problem",
            lambda: (Problem("VGG-16", 256, planning.TITAN_X, planning.GEN3), Plan(256, 64)),
            "That is the problem of the lesson. Choose another network, batch or card.",
        ),
        Slip(
            "it fits as it is",
            lambda: _on_t4(Plan(32), 32),
            "The plain step of your problem is not too large for its card. Take a larger batch or a smaller card.",
        ),
        Slip(
            "another network",
            lambda: _on_t4(Plan(192, changes=("stride",))),
            "Your plan is not training-equivalent, it changes the network itself.",
        ),
        Slip(
            "a smaller batch",
            lambda: _on_t4(Plan(64)),
            "Your plan updates from fewer samples than the problem's batch. Say how many of them go through at a time "
            "with `micro_batch`.",
        ),
        Slip(
            "sixteen bits",
            lambda: _on_t4(Plan(192, 64, "float16")),
            "Your plan is equal to the tolerance of 16 bits. Here it must be equal to the rounding of float32.",
        ),
        Slip("too large", lambda: _on_t4(Plan(192)), "Your plan does not fit."),
        Slip(
            "tight",
            lambda: _on_t4(Plan(192, offload="windowed")),
            "Your plan is tight: its tensors fit, and not all else that needs room. Nobody wants to find out after a "
            "night of training. Leave more room.",
        ),
        Slip(
            "slow",
            lambda: _on_t4(Plan(192, 64, offload="all")),
            "Your plan surely fits, and is slower than it has to be.",
        ),
    )

    def look(self, given: Callable[..., Any]) -> OwnLook:
        """The problem and the plan it returns, judged."""
        return planning.own_look(planning.own_to_text(given()))

    def praise(self, seen: OwnLook) -> str:
        """What the plan comes to."""
        assert seen.look is not None
        return f"{seen.look.found} {self.takeaway}"

    def diagnose(self, seen: OwnLook, given: Callable[..., Any]) -> str:
        """What keeps problem or plan from being right."""
        look, plain = seen.look, seen.plain
        if look is None or plain is None:
            return (
                "`your_plan()` must return two things, `return problem, plan`, with a `Problem` whose network and card "
                'are named as in the catalogues: `Problem("ResNet-50", 256, "T4")`.'
            )
        if planning.of_the_lesson(look.problem):
            return self.told("the lesson's problem")
        if plain.state != NO:
            return f"{self.told('it fits as it is')} {plain.why()}"
        if look.refused is not None:
            told = {ANOTHER_NETWORK: self.told("another network"), ANOTHER_BATCH: self.told("a smaller batch")}
            return f"{told.get(look.refused.kind, '')} {_sentence(look.refused)}".strip()
        return self._of(look.found) if look.found else "The second thing you return must be a plan: `Plan(192, …)`."

    def _of(self, found: Evaluation) -> str:
        if planning.inexact(found):
            return self.told("sixteen bits")
        if not found.feasible:
            return f"{self.told('too large')} {found.why()}"
        if planning.tight(found):
            return f"{self.told('tight')} {found.verdict.sentence}"
        if found.lost > LOST:
            waits = found.waiting_seconds / found.seconds
            why = f", of which {100 * waits:.0f} % waiting for copies" if waits > 0.01 else ""
            return f"{self.told('slow')} It loses {100 * found.lost:.1f} %{why}; {100 * LOST:.0f} % is allowed."
        return ""


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."


def _kind(value: object) -> str:
    return "nothing (`None`)" if value is None else f"a {type(value).__name__}"


your_plan = YourPlan()

# -- 6. a plan for any problem -----------------------------------------------------------------------------------------


def _all_of(problem: Problem, micros: Sequence[int] | None = None) -> list[Evaluation]:
    divisors = [n for n in range(1, problem.batch + 1) if problem.batch % n == 0]
    return combinations(problem, micros or divisors, planning.PRECISIONS, OFFLOADS, planning.SEGMENTS)


def _leanest(problem: Problem) -> Plan | None:
    found = [one for one in _all_of(problem) if one.feasible]
    return min(found, key=lambda one: one.needs_bytes).plan if found else None


class FindPlan(PropertyCheck[Looks]):
    """The check of question 6: a search for plans, judged by what it finds for several problems."""

    question = name = "find_plan"
    running = "Searching"
    takeaway = "A search that knows what is allowed, what fits, and what it costs needs no favourite technique."
    # Chains that may be cut, one with batch norm that may not, and one that nothing fits.
    problems = (
        (False, 32, 96, 0.434, planning.TITAN_X, planning.GEN3),
        (False, 32, 144, 0.368, "V100", planning.GEN2),
        (False, 32, 60, 0.595, "GTX 1080", planning.GEN4),
        (False, 32, 96, 0.317, "V100", planning.NVLINK),
        (True, 32, 120, 0.635, planning.TITAN_X, planning.GEN3),
        (True, 32, 64, 0.05, planning.TITAN_X, planning.GEN3),
    )
    slips = (
        Slip(
            "the plain step",
            lambda problem: Plan(problem.batch),
            "Your plan does not fit.",
        ),
        Slip(
            "micro-batches for every network",
            lambda problem: Plan(problem.batch, problem.batch // 4),
            "Your search takes micro-batches for granted. `problem.evaluate` refuses them under batch norm; catch "
            "`Refused`, and try something else.",
        ),
        Slip(
            "another batch",
            lambda problem: Plan(problem.batch // 8),
            "Your plan updates from fewer samples than `problem.batch`.",
        ),
        Slip(
            "another network",
            lambda problem: Plan(problem.batch, changes=("pool",)),
            "Your plan changes the network. That is never training-equivalent.",
        ),
        Slip(
            "the leanest",
            _leanest,
            "Your plan fits, and another that fits is faster.",
        ),
        Slip(
            "nothing",
            lambda problem: None,
            "Your search finds no plan where there is one.",
        ),
        Slip(
            "always a plan",
            lambda problem: min(_all_of(problem), key=lambda one: (not one.feasible, one.seconds)).plan,
            "Your search returns a plan where none fits. Return `None` there.",
        ),
    )

    def look(self, given: Callable[..., Any]) -> Looks:
        """What it finds for the problems of the check."""
        return planning.look_at_small(planning.returned_for(given, self.problems), self.problems)

    def praise(self, seen: Looks) -> str:
        """How near to the best it comes."""
        worst = max(look.slower for look in seen.each)
        return f"At most {100 * worst:.1f} % slower than the fastest of all. {self.takeaway}"

    def diagnose(self, seen: Looks, given: Callable[..., Any]) -> str:
        """What is wrong with the first problem that is not solved."""
        looks = sorted((look for look in seen.each if not look.right), key=lambda look: look.refused is None)
        return f"{self._of(looks[0])} {_task(looks[0])}" if looks else ""

    def _of(self, look: PlanLook) -> str:
        told = {
            ANOTHER_NETWORK: "another network",
            ANOTHER_BATCH: "another batch",
            BATCH_NORM: "micro-batches for every network",
        }
        if look.best is None:
            return self.told("always a plan")
        if look.returned is None:
            return self.told("nothing")
        if look.refused is not None:
            message = self.told(told[look.refused.kind]) if look.refused.kind in told else ""
            return f"{message} {_sentence(look.refused)}".strip()
        if look.found is None:
            return f"`find_plan(problem)` returned {_kind(look.returned)}. Return a plan, or `None` where none fits."
        if not look.found.feasible:
            return f"{self.told('the plain step')} {look.found.why()}"
        return (
            f"{self.told('the leanest')} {look.found.plan} takes {100 * look.slower:.0f} % longer than "
            f"{look.best.plan}; {100 * planning.WITHIN:.0f} % is allowed."
        )


def _task(look: PlanLook) -> str:
    room = format_bytes(look.problem.room_bytes)
    return (
        f"(This was {look.problem.network.name}, batch {look.problem.batch}, with room for {room} and "
        f"{look.problem.link.name}.)"
    )


find_plan = FindPlan()
