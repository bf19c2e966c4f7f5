"""Predict first: numbers as people write them, the distance in words, and an answer that waits for the guess."""

from __future__ import annotations

from html import unescape

import pytest
from drawn import assert_well_laid, words_of
from hypothesis import given
from hypothesis import strategies as st

from classroom import STILL
from classroom.predict import how_far, predict, read_number, reveal
from course_utils.units import CourseError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1568", 1568), (" 1,568 ", 1568), ("1 568", 1568), ("1,568,000.5", 1568000.5), ("12.5", 12.5), ("12,5", 12.5),
        ("1.5e3", 1500), (".5", 0.5), ("0", 0), ("+3", 3), ("1_000", 1000),
        ("-392", -392), ("−1,568", -1568),
    ],
)  # fmt: skip
def test_numbers_as_people_write_them(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["ninety", "90 MiB", "--3", "nan", "inf", "1e999", "1.2.3", "", "1,2,3"])
def test_what_is_no_number_is_refused_in_one_line(text):
    with pytest.raises(CourseError, match=r"is not a number: write one such as 12\.5"):
        read_number(text)


@given(st.integers(0, 10**12))
def test_thousands_separators_do_not_matter(number):
    assert read_number(f"{number:,}") == read_number(str(number)) == number


@pytest.mark.parametrize(
    ("guess", "answer", "words"),
    [
        (90, 1568, "Your guess, 90 MiB, is 17.4 times too small."),
        (3000, 1500, "Your guess, 3,000 MiB, is 2.0 times too large."),
        (1500, 1568, "Your guess, 1,500 MiB, is 4.3 % too small."),
        (1568, 1568, "Your guess, 1,568 MiB, is exact."),
        (0, 1568, "Your guess, 0 MiB, is 1,568 MiB too small."),
        (5, 0, "Your guess, 5 MiB, is 5 MiB too large."),
        (1, 50_000, "Your guess, 1 MiB, is 50,000 times too small."),
        (1e90, 1, "Your guess, 1e+90 MiB, is 1e+90 times too large."),
        (-392, 294, "Your guess, -392 MiB, is 686 MiB too small."),
    ],
)
def test_how_far_off_in_words(guess, answer, words):
    assert how_far(guess, answer, "MiB") == words


def test_percent_are_told_in_points():
    assert how_far(50, 45.459, "%") == "Your guess, 50 %, is 4.54 points too large."
    assert how_far(18, 0.41, "%") == "Your guess, 18 %, is 17.6 points too large."


@pytest.fixture
def question():
    return predict("How much does it need?", unit="MiB")


def test_the_answer_is_hidden_until_a_number_was_entered(question):
    answer = reveal(question, {"by hand": 1568, "measured here": 1572.5})
    assert "Enter your guess above first" in answer.content.value
    assert "1,568" not in answer.content.value
    assert "1,568" not in answer._repr_mimebundle_()["text/plain"]
    question.field.value = "90"
    assert "17.4 times too small" in answer.content.value
    texts = [text.text for text in words_of(answer.picture())]
    assert {"90 MiB", "1,568 MiB", "1,572.50 MiB"} <= set(texts)
    assert_well_laid(answer.picture())


def test_an_answer_made_after_the_guess_is_shown_at_once(question):
    question.field.value = "90"
    assert "17.4 times too small" in reveal(question, {"trace": 1568.0}).content.value


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("10505", "both"),
        ("10650", ""),
        ("1500", "parameters"),
        ("1640", "parameters"),
        ("-390", "shrinks"),
        ("10300", ""),
        ("3000", ""),
    ],
)
def test_a_guess_is_answered_with_the_thought_behind_it(question, number, said):
    thoughts = [
        (1550.0, "Those are the parameters alone."),
        (-392.0, "A pool shrinks what follows."),
        (10_510.0, "You counted both."),
    ]
    answer = reveal(question, {"trace": 10_300.0, "by hand": 10_200.0}, thoughts=thoughts)
    question.field.value = number
    assert [one for _, one in thoughts if one in answer.words()] == [one for _, one in thoughts if said and said in one]
    assert_well_laid(answer.picture())


def test_who_is_right_hears_of_no_wrong_thought(question):
    question.field.value = "100"
    assert reveal(question, {"trace": 101.0}, thoughts=[(100.0, "A slip.")]).words().endswith("too small.")


def test_a_guess_out_of_this_world_is_drawn_too(question):
    question.field.value = "1e99"
    assert_well_laid(reveal(question, {"trace": 1568.0}).picture())


def test_a_guess_within_what_can_be_told_is_accepted(question):
    question.field.value = "64"
    shown = reveal(question, {"low": 2.0, "high": 170.0}, thoughts=[(64, "No.")], within=(2, 170))
    assert shown.words() == f"Your guess, 64 {question.unit}, lies within what can be told here."
    assert '"within": [2, 170]' in unescape(shown._repr_mimebundle_()["text/html"])
    assert "too" in reveal(question, {"low": 2.0, "high": 50.0}, within=(2, 50)).words()


def test_the_guess_is_compared_with_the_row_named(question):
    question.field.value = "100"
    assert "2.0 times too small" in reveal(question, {"a": 400.0, "b": 200.0}, against="b").words()
    assert "4.0 times too small" in reveal(question, {"a": 400.0, "b": 200.0}).words()


def test_an_invalid_entry_gets_one_line_and_the_field_stays_open(question):
    question.field.value = "ninety"
    assert "&#x27;ninety&#x27; is not a number" in question.line.value
    assert question.number is None
    assert not question.field.disabled
    question.field.value = "<b>"
    assert "<b>" not in question.line.value.replace("<b>Predict", "")
    question.field.value = ""
    question.button.click()
    assert "Write a number first" in question.line.value
    question.field.value = "12,5"
    assert question.number == 12.5


def test_the_first_guess_stands(question):
    question.field.value = "90"
    question.field.value = "1568"
    question.button.click()
    assert question.number == 90
    assert question.field.disabled
    assert "90 MiB" in question.line.value


def test_a_reader_without_a_kernel_can_unfold_the_answer(question):
    html = reveal(question, {"by hand": 1568})._repr_mimebundle_()["text/html"]
    assert html.startswith(f'<div class="{STILL}"><details data-reveal="')
    assert "1,568 MiB" in html
    asked = question._repr_mimebundle_()
    assert asked["text/plain"] == "Predict. How much does it need? (MiB)"
    assert "How much does it need?" in asked["text/html"]
    assert "Run this cell (Shift+Enter) and write your guess here." in asked["text/html"]


def test_the_field_has_a_name(question):
    assert question.field.description == "your guess"


@pytest.mark.parametrize(
    ("rows", "against", "message"),
    [
        ({}, None, "reveal needs rows and thoughts with finite numbers"),
        ({"a": float("nan")}, None, "reveal needs rows and thoughts with finite numbers"),
        ({"a": 1.0}, "b", "reveal compares with one of a, got 'b'"),
    ],
)
def test_reveal_refuses_what_it_cannot_show(question, rows, against, message):
    with pytest.raises(CourseError, match=message):
        reveal(question, rows, against)


def test_reveal_needs_a_prediction():
    with pytest.raises(CourseError, match=r"needs what predict\(\.\.\.\) returned first, got float"):
        reveal(90.0, {"a": 1.0})
