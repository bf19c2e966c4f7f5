"""Partial points: what the rule gives to right answers, to every slip, and to answers that know nothing."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own import own
from right_answers import CHECKS, GRADED, RIGHT, UNTOUCHED

from classroom.grading.mark import NO_COUNTS, Counts, count, partial_points
from classroom.questions.graded import Graded, draws_for

SEEDS = ("0", "1", "2")
FUNCTIONS = [question for question in GRADED if question not in UNTOUCHED]
MOST = 10  # points, more than any question gives: an answer that earns nothing of these earns nothing


@functools.lru_cache
def expected(question: str, seed: str | None) -> list[str]:
    return list(GRADED[question].lines(RIGHT[question][0]))


def counts(question: str, answer: object) -> Counts:
    right = expected(question, os.environ.get("COURSE_SEED"))
    return count(question, "\n".join(GRADED[question].lines(answer)), "\n".join(right) + "\n")


def points(question: str, answer: object) -> float:
    return partial_points(MOST, counts(question, answer))


def knows_nothing(question: str) -> list[Callable[..., object]]:
    """Answers that always return the same, right or not, or something of what they are given."""
    cases = GRADED[question].draw(draws_for(question))
    constants = [RIGHT[question][0](*case) for case in cases] + [None, 0, 1, True, False, "", [], {}]
    same = [lambda *_, value=value: value for value in constants]
    given = [lambda *a, i=i: a[i] for i in range(min(map(len, cases)))]
    sizes = [lambda *a, i=i: len(a[i]) for i in range(min(map(len, cases)))]
    return [*same, *given, *sizes, lambda *a: max(a), lambda *a: min(a), lambda *a: [0] * len(a[0])]


@pytest.mark.parametrize("question", FUNCTIONS)
def test_right_answers_are_right_for_all_and_who_knows_nothing_earns_nothing(question, monkeypatch) -> None:
    assert isinstance(GRADED[question], Graded)
    for seed in SEEDS:
        monkeypatch.setenv("COURSE_SEED", seed)
        right, inputs, by_chance = counts(question, RIGHT[question][0])
        assert right == inputs >= by_chance >= 1
        for answer in knows_nothing(question):
            found = counts(question, answer)
            assert partial_points(MOST, found) == 0 or found.right == inputs, found
        assert counts(question, lambda *_: ...) == counts(question, ...) == NO_COUNTS


@pytest.mark.parametrize("question", FUNCTIONS)
def test_slips_earn_less_than_all_and_only_where_they_are_right_for_most_inputs(question, monkeypatch) -> None:
    for seed in SEEDS:
        monkeypatch.setenv("COURSE_SEED", seed)
        for slip in CHECKS[question].slips:
            right, inputs, _ = counts(question, own(slip.function))
            earned = points(question, own(slip.function))
            assert earned < MOST
            assert earned == 0 or right > inputs / 2


@pytest.mark.parametrize("question", UNTOUCHED)
def test_where_a_network_is_judged_there_are_no_parts(question) -> None:
    lines = "\n".join(expected(question, None))  # also of a network that has nearly all that is asked
    assert count(question, lines, lines) == count(question, lines.replace("yes", "no", 1), lines) == NO_COUNTS


EXPECTED = "f(1) = 1\nf(2) = 4\nf(3, {a: 1}) = 9\nf(4) = 9\n"


@pytest.mark.parametrize(
    ("printed", "right"),
    [
        (EXPECTED, 4),
        (EXPECTED.replace("9\nf(4) = 9", "9\nf(4): crashed: ZeroDivisionError"), 3),
        (EXPECTED.replace("= 4", "= 4 and changed n"), 3),
        (EXPECTED.replace("= 9", "= 8"), 2),
        (EXPECTED.replace("= 4", ": not attempted").replace(" :", ":"), 0),
        (EXPECTED.replace("f(2) = 4\n", ""), 0),
        (EXPECTED + "f(5) = 5\n", 0),
        (EXPECTED.replace("f(1)", "f(2)"), 0),
        ("", 0),
        ("f: not attempted", 0),
    ],
)
def test_lines_count_where_each_input_has_one(printed: str, right: int) -> None:
    found = count("f", printed.rstrip("\n"), EXPECTED)
    assert found == (Counts(right, 4, 2) if right else NO_COUNTS)


def test_properties_are_no_inputs() -> None:
    assert count("f", "same output: yes\n", "same output: yes\n") == NO_COUNTS
    assert count("f", "", "") == NO_COUNTS


@given(st.integers(1, 10), st.integers(1, 20), st.data())
def test_laws(out_of: int, inputs: int, data: st.DataObject) -> None:
    by_chance = data.draw(st.integers(1, inputs))
    earned = [partial_points(out_of, Counts(right, inputs, by_chance)) for right in range(inputs)]
    assert earned == sorted(earned)
    assert all(2 * points % 1 == 0 and 0 <= points < out_of for points in earned)
    assert not any(earned[: max(by_chance, inputs // 2) + 1])


def test_the_rule_by_hand() -> None:
    assert partial_points(3, Counts(7, 10, 1)) == 2  # (7 - 1) / (10 - 1) of 3
    assert partial_points(3, Counts(7, 9, 2)) == 2  # 5/7 of 3 is 2.14
    assert partial_points(3, Counts(6, 9, 3)) == 1.5
    assert partial_points(3, Counts(5, 10, 1)) == 0  # not more than half
    assert partial_points(3, Counts(9, 9, 2)) == 0  # right for all: the mark itself gives the points
