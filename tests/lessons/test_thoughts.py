"""What a check says of a wrong answer: the thought behind it, found among the changes of the solution, and no other."""

import itertools
import random

import pytest
from amount import share
from right_answers import CHECKS, TOPICS
from wrong_answers import QUOTED, TYPICAL, UNTRUE

from classroom.questions.core import Outcome
from classroom.questions.functions import digest, table
from lessons.shared.keep_thoughts import as_function, kept, mutations, parameters, results_of, solved

SOLVED = {question: one for topic in TOPICS for question, one in solved(topic).items()}
WRONG = [(question, answer) for some in (QUOTED, TYPICAL) for question, answers in some.items() for answer in answers]
GENERIC = "Work this one out by hand"
RULE = ("def paid(side, padding):", "    way = side + 2 * padding", "    return way // 3 + 1")
VALUES = {"side": [4, 5, 9], "padding": [1, 2, 3]}


@pytest.mark.parametrize("question", SOLVED)
def test_the_kept_thoughts_are_those_of_todays_solution_slips_and_cases(question):
    one = SOLVED[question]
    now = table(one.check.package).get(question, {}).get("made_of")
    assert now == one.made_of, "run: python -m lessons.shared.keep_thoughts"


@pytest.mark.parametrize("question", ["ring_bytes", "training_bytes"])
def test_what_is_kept_is_made_again_alike(question):
    assert kept(SOLVED[question]) == table(SOLVED[question].check.package)[question]


def changes(one):
    names = parameters(one.check.reference)
    given = {name: [case[i] for case in one.check.cases if i < len(case)] for i, name in enumerate(names)}
    return list(mutations.mutations(one.source, one.quoted, one.terms, {k: v for k, v in given.items() if v}))


@pytest.mark.parametrize("question", SOLVED)
def test_a_changed_solution_hears_of_no_other_change_alone(question):
    """Whatever is said of a thought names that thought, or is a slip's message, or names none."""
    one = SOLVED[question]
    package = one.check.package
    slips = [slip.message for slip in one.check.slips]
    found = random.Random(question).sample(changes(one), share(12))
    for change in found:
        results = results_of(one, change.source)
        if results is None or digest(results) == digest(one.check.truth):
            continue
        said = one.check(as_function(change.source, question, one.given)).message
        kinds = {m.kind for m in changes(one) if m.words in said}
        words = change.words.removesuffix(" in one place")  # where it is in all, the results may be the same
        assert said in slips or "Every result" not in said or words in said or min(kinds) < change.kind, package


def test_no_right_answer_is_a_thought():
    for question, one in SOLVED.items():
        assert digest(one.check.truth) not in table(one.check.package)[question]["thoughts"]


def test_wrong_answers_are_called_wrong_and_few_hear_no_more_than_that():
    heard = [CHECKS[question](answer) for question, answer in WRONG]
    assert Outcome.CORRECT not in {one.outcome for one in heard}
    assert len([one for one in heard if GENERIC in one.message]) < len(heard) / 5


@pytest.mark.parametrize(("question", "answer", "untrue"), UNTRUE)
def test_nothing_untrue_is_said_of_a_thought(question, answer, untrue):
    feedback = CHECKS[question](answer)
    assert feedback.outcome is Outcome.WRONG
    assert untrue not in feedback.message


def test_each_change_is_a_text_of_its_own_and_named_by_what_the_reader_knows():
    source = "\n".join(RULE) + "\n"
    found = {m.words: m.source for m in mutations.mutations(source, [], {"way": "the way"}, VALUES)}
    assert "return way // 3" in found["without the 1 that is added"]
    assert "side + padding" in found["with `padding` counted once"]
    assert "math.ceil(way / 3)" in found["with the way rounded up"].replace("(way)", "way").replace("(3)", "3")
    assert "padding + 2 * side" in found["with `padding` and `side` exchanged"]
    assert source not in found.values()


def test_a_change_of_a_change_is_two_thoughts():
    source = "\n".join(RULE) + "\n"
    once = {m.words: m.source for m in mutations.mutations(source, [], {}, VALUES)}
    for first, second in itertools.permutations(("without the 1 that is added", "with `padding` counted once")):
        again = {m.words: m.source for m in mutations.mutations(once[first], [], {}, VALUES)}
        assert as_function(again[second], "paid", {})(7, 2) == (7 + 2) // 3


@pytest.mark.parametrize(
    ("one", "other"), [(2, 2.0), ([1, 2.5], (1, 2.5 + 1e-12)), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
)
def test_equal_results_have_one_digest(one, other):
    assert digest([one]) == digest([other])


def test_different_results_have_different_digests():
    few = [
        0,
        1,
        3e-18,
        7.68e-8,
        1644167168,
        1644167169,
        0.1,
        0.1001,
        "a",
        None,
        [1, [2]],
        [[1], 2],
        {"a": 1},
        float("nan"),
    ]
    assert len({digest([one]) for one in few}) == len(few)
