"""Points by the teacher's hand: what the file may say, whom a row is for, and that a later call keeps them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_gradebook import made

from classroom.grading.gradebook import feedback_page
from classroom.grading.overrides import check, overridden, read_overrides
from course_utils.units import CourseError

HEAD = "learner,number,question,points,reason"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_teacher_has_the_last_word_and_it_shows(tmp_path: Path) -> None:
    (one,) = read_overrides(write(tmp_path / "o.csv", "learner,question,points,reason", "ann,q1,1.5,nearly right"))
    ann = overridden(made("ann", [3, 0]), [one])
    assert ann.marks.points == 4.5
    assert "1.5 points by the teacher in place of 0: nearly right" in feedback_page(ann)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["ann,,q1,2,"], "line 2: an override needs a reason"),
        (["ann,,q1,two,x"], "line 2: points must be whole or half ones, got 'two'"),
        (["ann,,q1,-1,x"], "line 2: points must be whole or half ones, got '-1'"),
        (["ann,,q1,1.2,x"], "line 2: points must be whole or half ones, got '1.2'"),
        (["ann,,q9,1,x"], "an override is for 'ann', question 'q9': there is no such"),
        (["bob,,q1,1,x"], "an override is for 'bob'"),
        (["ann,12,q1,1,x"], "an override is for 'ann' (12), question 'q1': there is no such"),
        (["ann,,q1,4,x"], "gives 'ann' 4 of 3 points"),
        (["ann,,q1,1,x", "ann,,q1,2,x"], "line 3: line 2 is for the same answer; keep one of them"),
        (["ann,,q1,1,x", "ann,7,q1,2,x"], "line 3: line 2 is for the same answer; keep one of them"),
        (["Ann Lee,,q1,1,x"], "an override is for 'Ann Lee', of whom there are several (11, 12): give the number"),
    ],
)
def test_what_makes_no_sense_is_one_line(tmp_path: Path, lines: list[str], message: str) -> None:
    path = write(tmp_path / "o.csv", HEAD, *lines)
    results = [made("ann", [3, 0], number="7"), *(made("Ann Lee", [3, 0], number=number) for number in ("11", "12"))]
    with pytest.raises(CourseError, match=re.escape(message)) as caught:
        check(read_overrides(path), results, path)
    assert str(path) in str(caught.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no column 'question'"):
        read_overrides(write(tmp_path / "o.csv", "learner,points"))


def test_a_row_with_a_number_is_for_one_of_two_namesakes(tmp_path: Path) -> None:
    overrides = read_overrides(write(tmp_path / "o.csv", HEAD, "Ann Lee,12,q1,2,by hand"))
    both = [made("Ann Lee", [3, 0], number=number) for number in ("11", "12")]
    check(overrides, both, tmp_path)
    assert [overridden(one, overrides).marks.points for one in both] == [3, 5]


def test_a_spreadsheet_that_separates_by_semicolons_is_read(tmp_path: Path) -> None:
    (one,) = read_overrides(write(tmp_path / "o.csv", HEAD.replace(",", ";"), "Lee, Ann;;q1;1,5;nearly, but not quite"))
    assert (one.learner, one.points, one.reason) == ("Lee, Ann", 1.5, "nearly, but not quite")
