"""What comes out of a grading: the gradebook in three forms, pages, the summary. Nothing is run."""

from __future__ import annotations

import csv
import io
import math
import sys
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classroom.grading.batch import Result
from classroom.grading.gradebook import (
    canvas_csv,
    cell,
    correlation,
    distribution,
    feedback_page,
    moodle_csv,
    plain_csv,
    question_facts,
    summary_page,
    table,
)
from classroom.grading.mark import Marks, QuestionMark
from classroom.questions.core import Outcome

# What begins a formula, or looks as if it did; what separates cells, or what a reader may leave out before one.
LIKE_FORMULAS = [
    *"=+-@,;\t\r\n\"' x1\uff1d\uff0b\uff0d\uff20\u207a\ufe66\uff1b\uff0c\u037e\u3000\u200b\ufeff\u2a75\U0001f101\u2028"
]
EVIL = "<script>alert('x')</script>"


def made(learner: str, points: list[float], said: str = "", number: str = "", failed: str = "") -> Result:
    """A result with these points in questions of 3 points each."""
    questions = tuple(
        QuestionMark(f"q{i}", f"{i}. Question", Outcome.CORRECT if p else Outcome.WRONG, p, 3, "" if p else said)
        for i, p in enumerate(points)
    )
    return Result(learner, number, f"{learner}.ipynb", "key", Marks("01_multiples", questions), failed=failed)


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


class TestGradebook:
    def test_plain_has_every_question_the_sum_and_the_remarks(self) -> None:
        head, ann, bob = rows(plain_csv([made("ann", [3, 0]), made("bob", [3, 3], failed="the sandbox ended")]))
        assert head == ["learner", "number", "file", "q0", "q1", "points", "out of", "remarks"]
        assert ann == ["ann", "", "ann.ipynb", "3", "0", "3", "6", ""]
        assert bob == ["bob", "", "bob.ipynb", "", "", "", "6", "NOT MARKED: the sandbox ended"]

    def test_platforms_get_their_own_forms_and_nobody_a_zero_for_our_failure(self) -> None:
        results = [made("Ann Lee", [3, 0], number="12"), made("bob", [0, 0], failed="x")]
        assert rows(moodle_csv(results))[1:] == [["Participant 12", "Ann Lee", "3", "6", ""]]
        possible, ann = rows(canvas_csv(results, "01"))[1:]
        assert possible == ["    Points Possible", "", "", "", "", "6"]
        assert ann == ["Ann Lee", "12", "", "", "", "3"]

    @pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=x", "\r\n=x", " =x", "\x00=x"])
    def test_no_formula_reaches_a_spreadsheet(self, text: str) -> None:
        for written in (cell(text), rows(plain_csv([made(text, [3])]))[1][0]):
            assert written.strip()[0] not in "=+-@"
        assert cell(-1) == "-1"

    @given(st.lists(st.lists(st.text(st.sampled_from(LIKE_FORMULAS), max_size=8), min_size=3, max_size=3), max_size=3))
    def test_no_formula_however_a_file_is_taken_apart(self, texts: list[list[str]]) -> None:
        marked = [replace(made(a, [3, 0], number=b), problem=c, file=b) for a, b, c in texts] or [made("=x;=y", [0, 0])]
        for written in (table(texts), plain_csv(marked), moodle_csv(marked), canvas_csv(marked, "01")):
            for text in (written, unicodedata.normalize("NFKC", written)):
                for separator in ",;\t":
                    read = csv.reader(io.StringIO(text), delimiter=separator)
                    naive = [line.split(separator) for line in text.split("\n")]
                    for piece in (piece for line in (*read, *naive) for piece in line):
                        assert unicodedata.normalize("NFKC", piece).strip(' "')[:1] not in tuple("=+-@\t\r"), piece

    @pytest.mark.parametrize("name", ["=HYPERLINK(1)", "@SUM(1)|cmd", "\uff1d1+1", "x;=1+1", 'x; "=1+1', "x,\uff0b1"])
    def test_names_that_are_formulas_are_read_as_text(self, name: str) -> None:
        assert cell(name).replace("'", "", 1) == name
        assert cell(name) != name

    def test_every_character_that_is_taken_for_one_of_a_formula_or_for_a_separator_is_known(self) -> None:
        plain = {chr(code): unicodedata.normalize("NFKC", chr(code)) for code in range(sys.maxunicode + 1)}
        kinds = {one: unicodedata.category(one) for one in plain}
        hidden = [one for one in plain if kinds[one] == "Cf" or not plain[one].strip(' "')]
        hidden = [one for one in hidden if kinds[one] not in ("Cc", "Zl", "Zp")]  # in place of which there is a space
        signs = [one for one in plain if plain[one].lstrip().startswith(tuple("=+-@"))]
        separators = [one for one in plain if set(plain[one]) & set(",;")]
        assert not [one for one in signs if cell(f"{one}1") != f"'{one}1"]
        assert not [one for one in separators if cell(f"x{one}=1") != f"x{one}'=1"]
        assert not [one for one in hidden if cell(f"{one}=1") != f"{one}'=1"]

    def test_a_page_holds_no_markup_of_the_learners(self) -> None:
        result = replace(made(EVIL, [0, 3], said=EVIL), problem=EVIL, file=EVIL)
        question = replace(result.marks.questions[0], title=EVIL, flags=(EVIL,))
        result = replace(result, marks=replace(result.marks, questions=(question,), notes=(EVIL,)))
        for page in (feedback_page(result), summary_page([result])):
            assert "<script" not in page
            assert "default-src 'none'" in page
        assert feedback_page(result).count("&lt;script&gt;") >= 6


class TestSummary:
    def test_numbers_against_numpy(self) -> None:
        random = np.random.default_rng(0)
        table = 3 * random.integers(0, 2, (30, 4))
        results = [made(f"l{i}", [int(p) for p in points], said="slip") for i, points in enumerate(table)]
        for index, fact in enumerate(question_facts(results)):
            rest = table.sum(axis=1) - table[:, index]
            assert fact.difficulty == pytest.approx(table[:, index].mean() / 3)
            assert fact.discrimination == pytest.approx(np.corrcoef(table[:, index], rest)[0, 1])
            assert fact.misconceptions == [("slip", int((table[:, index] == 0).sum()))]
            assert sum(fact.outcomes.values()) == 30
        assert sum(distribution(results).values()) == 30
        halves = [made(f"l{i}", [points]) for i, points in enumerate((0, 0.5, 1, 1.5, 2.5, 3))]
        assert distribution(halves) == {"0 to 0.5": 2, "1 to 1.5": 2, "2 to 2.5": 1, "3": 1}
        assert "slip" in summary_page(results)

    def test_corners(self) -> None:
        assert math.isnan(correlation([], []))
        assert math.isnan(correlation([1.0], [1.0]))
        assert math.isnan(correlation([1.0, 1.0], [1.0, 2.0]))
        for results in ([made("a", [0])], [made("a", [3, 3])] * 3, [made("a", [0, 0], failed="x")]):
            assert "nan" not in summary_page(results).lower().replace("finance", "")
