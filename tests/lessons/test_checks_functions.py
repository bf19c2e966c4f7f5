"""Checks of functions: wrong answers refused by check and graded cell alike, and what a wrong one is told."""

import ast
import itertools
import math
import random
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from amount import by_turns, share
from own import own
from right_answers import CHECKS, GRADED, RIGHT, TOPICS, WRONG

from classroom import ROOT
from classroom.grading.graft import UNTOLD
from classroom.grading.mark import LONGEST
from classroom.questions.core import Outcome, Slip, as_number, equal, parameters, shown
from classroom.questions.functions import Check
from classroom.questions.graded import canonical, draws_for
from lessons.many_gpus import checks as many_gpus

FUNCTIONS = [question for question, check in CHECKS.items() if isinstance(check, Check)]
SEEDS = range(share(60))
REFUSED = [(question, index) for question, answers in WRONG.items() for index in range(len(answers))]
MANY = "Every number you return is"


@pytest.mark.parametrize(("question", "index"), REFUSED)
def test_a_wrong_answer_hears_what_is_wrong(question, index):
    answer, words = WRONG[question][index]
    feedback = CHECKS[question](answer)
    assert feedback.outcome in (Outcome.WRONG, Outcome.CRASHED), feedback
    assert (words or "` returned ") in feedback.message


@pytest.mark.parametrize("question", FUNCTIONS)
def test_wrong_answers_and_slips_earn_no_point_whatever_the_seed(question, monkeypatch):
    wrong = [answer for answer, _ in WRONG.get(question, [])] + [own(slip.function) for slip in CHECKS[question].slips]
    for seed in SEEDS:
        monkeypatch.setenv("COURSE_SEED", str(seed))
        right = GRADED[question].lines(RIGHT[question][0])
        assert not [answer for answer in wrong if earns_the_point(question, answer, right)], seed


def earns_the_point(question, answer, right):
    """Whether every line of the graded cell is the right one; looks no further than to the first that is not."""
    graded = GRADED[question]
    inputs = graded.draw(draws_for(question))
    return all(graded._line(answer, given) == line for given, line in zip(inputs, right, strict=True))


@pytest.mark.parametrize("question", FUNCTIONS)
def test_a_right_answer_earns_the_point_line_by_line(question):
    right = RIGHT[question][0]
    assert earns_the_point(question, right, GRADED[question].lines(right))


def test_few_wrong_answers_hear_no_more_than_that_they_are_wrong():
    """Of those that learners gave and no slip describes."""
    messages = [CHECKS[question](answer).message for question, wrong in WRONG.items() for answer, _ in wrong]
    assert len([message for message in messages if "Work this one out by hand" in message]) < len(messages) / 10


def test_an_answer_that_looks_at_nothing_and_a_list_that_is_too_long_are_told_so():
    scales, right = CHECKS["next_scales"], RIGHT["next_scales"][0]
    assert "returned 7, expected " in (message := CHECKS["longest"](lambda *_: 7).message)
    assert "So does every other call" in message
    assert "That is 1 too many in the list." in scales(lambda *given: [1, *right(*given)]).message
    short, _ = next(wrong for wrong in WRONG["best_block"] if len(wrong[0](7, 9, 2)) == 1)
    assert "2 too few in the list." in CHECKS["best_block"](short).message


def test_a_number_is_written_as_a_whole_one_only_if_it_is_one():
    """367,001.6 read "367,002, expected 367,001"."""
    whole = {367_001: "367,001", 1e6: "1,000,000", 1e9 + 1e-3: "1,000,000,000", 2.0: "2", 12_345.0: "12,345"}
    assert {number: shown(number) for number in whole} == whole
    parts = {
        367_001.6: "367,001.6",
        12_345.96: "12,345.96",
        1_234_567.04: "1,234,567.04",
        -99_999.96: "-99,999.96",
        12_345.678: "12,345.68",
        0.25: "0.25",
    }
    assert {number: shown(number) for number in parts} == parts


def off_at(question, index):
    """The reference, but for one input of the check."""
    check = CHECKS[question]

    def answer(*arguments):
        right = check.reference(*arguments)
        if not equal(list(arguments), list(check.cases[index])):
            return right
        if isinstance(right, dict):
            return {**right, "q": 1}
        if isinstance(right, list | tuple):
            return [*right[:-1], "q"]
        return right * 3 + 7 if as_number(right) is not None else "zz"

    return answer


@pytest.mark.parametrize("question", FUNCTIONS)
def test_the_input_that_fails_is_shown_whole_with_both_results(question):
    check = CHECKS[question]
    for index, (case, right) in enumerate(zip(check.cases, check.truth, strict=True)):
        feedback = check(own(off_at(question, index)))
        assert feedback.outcome is Outcome.WRONG
        if not check.parts:  # else a part is shown, where a part fails
            assert f"`{question}({', '.join(map(repr, case))})` returned" in feedback.message
            assert "…" not in feedback.message
            assert len(feedback.message) <= LONGEST
        assert f"expected {shown(right)}." in feedback.message or f"expected {right!r}." in feedback.message


@pytest.mark.parametrize("question", FUNCTIONS)
def test_of_the_inputs_that_fail_the_shortest_is_shown(question):
    check = CHECKS[question]
    shortest = min((f"{question}({', '.join(map(repr, case))})" for case in check.cases), key=len)
    message = check(lambda *_: "nonsense").message
    assert (f"`{shortest}` returned 'nonsense', expected " in message) or check.parts
    assert len(message) <= 300


@pytest.mark.parametrize("question", [q for q in FUNCTIONS if CHECKS[q].parts])
def test_where_parts_are_inputs_the_least_of_them_is_shown(question):
    check = CHECKS[question]

    def answer(first, *rest):  # wrong as soon as two are there
        return own(check.reference)(first, *rest) if len(first) < 2 else "nonsense"

    called = check(answer).message.partition("` returned")[0].partition(f"{question}(")[2].removesuffix(")")
    assert len(eval(f"[{called}]", {})[0]) == 2


@pytest.mark.parametrize("topic", TOPICS)
def test_a_check_names_arguments_as_the_exercise_does(topic):
    given = {
        node.name: [one.arg for one in node.args.args[: len(node.args.args) - len(node.args.defaults)]]
        for node in ast.walk(ast.parse((ROOT / "lessons" / topic / "exercise.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS
    }
    for question, names in given.items():
        wanted = parameters(CHECKS[question].reference).values()
        assert names == [parameter.name for parameter in wanted if parameter.default is parameter.empty]


@pytest.mark.parametrize("question", FUNCTIONS)
def test_a_slip_is_named_only_if_all_results_are_its(question):
    check = CHECKS[question]
    for turn, slip in enumerate(check.slips):
        for case in by_turns(check.cases, turn):

            def answer(*arguments, slip=slip, case=case):
                value = slip.function(*arguments)
                return (value, "q") if equal(list(arguments), list(case)) else value

            assert slip.message not in check(own(answer)).message


@pytest.mark.parametrize("question", [q for q in FUNCTIONS if as_number(CHECKS[q].truth[0]) is not None])
def test_one_too_many_everywhere_is_said_so(question):
    check = CHECKS[question]
    more = [right + 1 for right in check.truth]
    slips = [
        slip for slip, found in zip(check.slips, check.slipped, strict=True) if equal([f.value for f in found], more)
    ]
    message = check(lambda *arguments: own(check.reference)(*arguments) + 1).message
    said = f"{MANY} 1 too large" in message or "Every result" in message
    assert message in {slip.message for slip in slips} or (not slips and said)


def test_where_strangers_are_graded_no_right_result_is_told(monkeypatch):
    monkeypatch.setattr(Check, "tells_expected", False)
    for question in FUNCTIONS:
        for answer in (off_at(question, 0), off_at(question, len(CHECKS[question].cases) - 1)):
            assert "expected" not in CHECKS[question](answer).message
    program = f"{UNTOLD}\nassert not Check.tells_expected"
    subprocess.run([sys.executable, "-c", program], check=True)


class Odd:
    """What answers may return or be, and nobody should try to read."""

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None
    __len__ = __bool__ = __repr__ = __iter__ = __eq__  # type: ignore[assignment]


class OddError(Exception):
    def __str__(self):
        raise RuntimeError("no")


def in_itself():
    values = [1]
    values.append(values)
    return values


def raises(error):
    raise error


JUNK = [
    *(lambda *_, v=value: v for value in (
        None, True, "", "a", b"a", 0, -1, 10**400, 10**5000, 1e308 * 10, math.nan, 1j, Decimal("1.5"), Decimal("NaN"),
        Fraction(1, 3), [], [[]], {}, {1: 2}, {"a": [1]}, set(), (1, [2, (3,)]), range(3), object(), Odd(), [Odd()],
        {"a": Odd()}, int, np.arange(3), np.array([["a"]]), np.datetime64("2020"), torch.ones(2), torch.ones(1, 1),
        torch.tensor(1j), torch.nn.Linear(1, 1), (n for n in range(3)), memoryview(b"a"),
    )),
    lambda *_: in_itself(),
    lambda *_: raises(OddError()),
    lambda *_: raises(SystemExit(2)),
    lambda *_: raises(RecursionError("deep")),
    lambda *a: a,
    lambda *a: a[0],
    lambda *a: a[-1],
    lambda *a: random.random(),
    lambda *a: [*a].clear(),
    lambda *a: a[0].clear() if isinstance(a[0], list | dict) else 1,
    lambda *a: a[0].append(a[0]) if isinstance(a[0], list) else 1,
    Odd(), Odd, OddError, print, len, max, dict, type, object, list, [], {}, "f", in_itself(), lambda: 1, torch.ones(3),
]  # fmt: skip


@pytest.mark.parametrize("question", FUNCTIONS)
def test_no_answer_makes_a_check_or_a_graded_cell_raise(question, capsys):
    for answer in by_turns(JUNK, FUNCTIONS.index(question)):
        feedback = CHECKS[question](answer)
        assert feedback.outcome is not Outcome.CORRECT
        assert len(repr(feedback).splitlines()) == 1
        assert len(feedback.message) < 4000
        assert all(isinstance(line, str) for line in GRADED[question].lines(answer))


def test_a_list_that_holds_itself_is_told_so():
    """And not by Python, which finds out when no more calls fit: what runs then in between, such as garbage, fails."""
    feedback = CHECKS["longest"](lambda *_: in_itself())
    assert feedback.outcome is Outcome.CRASHED
    assert "raised RecursionError: what it returned holds itself" in feedback.message
    shared = [1]
    assert CHECKS["longest"](lambda *_: [shared, [shared], {"a": shared}, ()]).outcome is Outcome.WRONG


def ring_slip(start=0, later=None):
    """A ring all-reduce whose second half begins with chunk `rank + start`, or adds where it is to copy."""

    def program(rank, cards, values, send, receive):
        chunks = list(values.tensor_split(cards))
        for step in range(2 * (cards - 1)):
            out = (rank - step + (0 if step < cards - 1 else cards + start)) % cards
            send((rank + 1) % cards, chunks[out])
            arrived = receive((rank - 1) % cards)
            place = chunks[(out - 1) % cards]
            if step < cards - 1 or later == "add":
                place.add_(arrived)
            else:
                place.copy_(arrived)
        return torch.cat(chunks) / cards

    return program


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (ring_slip(later="add"), "You go on adding in the second half"),
        (ring_slip(start=-1), "The second half begins with the wrong chunk"),
        (ring_slip(start=1), "The mean is wrong here: 4 cards, 32 numbers each, off by up to"),
    ],
)
def test_slips_of_a_ring_are_named_or_told_how_far_off_they_are(slip, words):
    feedback = many_gpus.ring_average(slip)
    assert feedback.outcome is Outcome.WRONG
    assert words in feedback.message


class SaysOne(torch.Tensor):
    def numel(self):
        return 1


def test_a_message_is_weighed_whatever_its_class_says():
    def light(rank, cards, values, send, receive):
        others = [card for card in range(cards) if card != rank]
        for card in others:
            send(card, values.as_subclass(SaysOne))
        return sum((receive(card) for card in others), values) / cards

    *right, last = GRADED["ring_average"].lines(light)
    assert last == "no card sends more than it must: no"
    assert all(line.endswith(": yes") for line in right)


def test_numbers_of_every_kind_are_numbers():
    kinds = [0.5, Decimal("0.5"), Fraction(1, 2), np.float32(0.5), torch.tensor(0.5)]
    assert all(itertools.starmap(equal, itertools.product(kinds, kinds)))
    assert {canonical(kind) for kind in kinds} == {"0.5"}
    assert not equal(10**400, 0.5)
    assert not equal(1e-11, 0.0)
    assert equal(1e-17, 0.0)


def test_a_slip_of_the_same_values_needs_all_of_them():
    up = Slip("up", lambda n: -(-n // 2), "You rounded up.")
    check = Check("f", lambda n: n // 2, [(2,), (3,), (5,)], [up], "good")
    assert check(lambda n: -(-n // 2)).message == "You rounded up."
    assert "rounded" not in check(lambda n: n // 2 + 1).message
