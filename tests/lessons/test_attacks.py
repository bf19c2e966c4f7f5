"""Who wants the points without the work gets none, and who works in an unusual way gets them all."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest
from amount import THOROUGH, by_turns
from attacks import FORGE, IDLE
from forging import asked, earned, given, printed_by
from imitations import ALL, EARNED
from unusual import UNUSUAL

from classroom.questions.graded import RECORD
from lessons.capstone import graded as capstone
from lessons.capstone import judge as judging
from lessons.capstone.plan import OFFLOADS, Plan
from lessons.capstone.search import combinations
from lessons.transformers import judge as pieces

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks a process for each answer")
WHY = "make test-thorough tries all, in some minutes"
ONCE = ("channel by channel", "prints everything", "generator of one's own", "zeros counted and printed")
REFUSED_ONCE = {(q, name) for q, answers in UNUSUAL.items() for name in answers if any(one in name for one in ONCE)}
ATTACKS = [(one.question, one.name) for one in ALL]
UNUSUAL_ONES = [(question, name) for question, answers in UNUSUAL.items() for name in answers]


def some(cases: list[tuple[str, str]], always: set[tuple[str, str]]) -> list[object]:
    """All cases; but for those that are always tried they are skipped, visibly, unless asked for."""
    skip = pytest.mark.skipif(not THOROUGH, reason=WHY)
    return [pytest.param(*case, marks=[] if case in always else [skip]) for case in cases]


@pytest.mark.parametrize(("question", "name"), some(ATTACKS, {*by_turns(sorted(EARNED), 0)}))
def test_an_attack_earns_nothing(question: str, name: str) -> None:
    (source,) = (one.source for one in ALL if (one.question, one.name) == (question, name))
    won, printed = earned(question, source)
    assert not won, printed


@pytest.mark.parametrize(("question", "name"), some(UNUSUAL_ONES, {*UNUSUAL_ONES[::10], *REFUSED_ONCE}))
def test_an_unusual_answer_earns_all(question: str, name: str) -> None:
    won, printed = earned(question, UNUSUAL[question][name])
    assert won, printed


@pytest.mark.parametrize("bits", ["16 bits, two in an int32", "12 bits, two in a float32"])
def test_logits_of_fewer_bits_have_other_gradients_however_they_are_packed(bits: str) -> None:
    names = dict(given("loss_in_pieces"))
    (source,) = (one.source for one in ALL if one.name == f"all logits in {bits} by arithmetic")
    exec(source, names)
    size = 5, 67  # of few bytes, as the original's are many
    seen = pieces.judge(pieces.record(names["InPieces"], *size), *size)
    assert seen.share < 0.3
    assert seen.same_output
    assert not seen.same_gradients


def test_the_problems_of_the_capstone_are_too_many_for_a_table() -> None:
    drawn = [one for seed in range(200) for one in capstone._problems(random.Random(seed))[:2]]
    assert len({*drawn}) > 0.95 * len(drawn)


LEFT_OUT: dict[str, Callable[[Plan], bool]] = {
    **{policy: lambda plan, policy=policy: plan.offload == policy for policy in OFFLOADS},
    **{precision: lambda plan, precision=precision: plan.precision == precision for precision in judging.PRECISIONS},
    **{f"{n} segments": lambda plan, n=n: plan.segments == n for n in judging.SEGMENTS},
    "small micro-batches": lambda plan: plan.parts > 4,
    "several at once": lambda plan: (plan.offload != "none") + (plan.segments != 1) + (plan.parts > 1) > 1,
}


@pytest.mark.parametrize("seed", range(12) if THOROUGH else [0])
def test_each_part_of_the_search_is_needed_for_some_problem_of_the_capstone(seed: int) -> None:
    needed = set()
    for setting in capstone._problems(random.Random(seed)):
        problem = judging.small_problem(*setting)
        micros = [n for n in range(1, problem.batch + 1) if problem.batch % n == 0]
        tried = combinations(problem, micros, judging.PRECISIONS, OFFLOADS, judging.SEGMENTS)
        found = [one for one in tried if one.feasible]
        best = min((one.seconds for one in found), default=0.0)
        for name, left_out in LEFT_OUT.items():
            rest = min((one.seconds for one in found if not left_out(one.plan)), default=float("inf"))
            if found and rest > (1 + judging.WITHIN) * best:
                needed.add(name)
    assert needed == LEFT_OUT.keys()


def test_every_question_with_a_record_is_attacked_and_answered() -> None:
    assert asked().keys() == {one.question for one in ALL} == UNUSUAL.keys()
    assert len({(one.question, one.name) for one in ALL}) == len(ALL) >= 100
    assert len(UNUSUAL_ONES) >= 100


@pytest.mark.parametrize("question", ["keep_less", "ring_average", "keep_small"])
def test_a_forger_writes_what_the_judge_reads(question: str) -> None:
    forged = printed_by(question, f"{FORGE}write(lambda record: form.RECORD + 'AAAA')\n{IDLE[question]}", "0" * 32)
    assert {*forged.split()} == {f"{RECORD}AAAA"}
