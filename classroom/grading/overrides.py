"""The teacher's last word: points given by hand in place of computed ones, from a CSV, kept with the grading.

    learner,number,question,points,reason
    Ann Lee,11,q2,1.5,nearly right

`number` tells namesakes apart and may be left out. A file given to `course grade` is kept in the grading's folder and
holds in every later call, until another file takes its place.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from classroom.grading.batch import Result
from course_utils.units import CourseError

COLUMNS = ("learner", "question", "points", "reason")


@dataclass(frozen=True)
class Override:
    """A line of the file: points for one answer of one learner; an empty `number` means whoever has that name."""

    line: int
    learner: str
    number: str
    question: str
    points: float
    reason: str

    def fits(self, result: Result) -> bool:
        """Whether it is for this learner."""
        return self.learner == result.learner and self.number in ("", result.number)

    @property
    def whom(self) -> str:
        """The learner, as a message names them."""
        return f"{self.learner!r} ({self.number})" if self.number else repr(self.learner)


def read_overrides(path: Path) -> list[Override]:
    """The overrides in a CSV, separated by commas or semicolons.

    Raises CourseError for a missing column, a row without a reason, or points that are no whole or half number.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=";" if ";" in first and "," not in first else ",")
            if missing := [column for column in COLUMNS if column not in (reader.fieldnames or [])]:
                raise CourseError(f"{path} has no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
            rows = [(reader.line_num, {k: v.strip() for k, v in row.items() if isinstance(v, str)}) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path} cannot be read: {error}") from None
    found = []
    for line, row in rows:
        points = row.get("points", "").replace(",", ".")
        if not re.fullmatch(r"\d+(\.[05])?", points, re.ASCII):
            raise CourseError(f"{path}, line {line}: points must be whole or half ones, got {row.get('points', '')!r}")
        if not row.get("reason"):
            raise CourseError(f"{path}, line {line}: an override needs a reason")
        learner, number, question = row["learner"], row.get("number", ""), row["question"]
        found.append(Override(line, learner, number, question, float(points), row["reason"]))
    return found


def check(overrides: Sequence[Override], results: Sequence[Result], path: Path) -> None:
    """Raise CourseError for an override in this file that fits nobody, several, or gives more points than there are.

    So is a second one for the same answer.
    """
    taken: dict[tuple[str, str, str], int] = {}
    for one in overrides:
        where = f"{path}, line {one.line}: an override"
        fitting = [result for result in results if one.fits(result)]
        questions = [q for result in fitting for q in result.marks.questions if q.question == one.question]
        if not questions:
            raise CourseError(f"{where} is for {one.whom}, question {one.question!r}: there is no such")
        if len(fitting) > 1:
            numbers = ", ".join(result.number or "no number" for result in fitting)
            raise CourseError(f"{where} is for {one.whom}, of whom there are several ({numbers}): give the number")
        if one.points > questions[0].out_of:
            raise CourseError(f"{where} gives {one.whom} {one.points:g} of {questions[0].out_of} points")
        first = taken.setdefault((fitting[0].learner, fitting[0].number, one.question), one.line)
        if first != one.line:
            raise CourseError(f"{path}, line {one.line}: line {first} is for the same answer; keep one of them")


def overridden(result: Result, overrides: Sequence[Override]) -> Result:
    """The result with the teacher's points in place of those computed, each said in a flag."""
    by_question: Mapping[str, Override] = {one.question: one for one in overrides if one.fits(result)}
    questions = []
    for q in result.marks.questions:
        if one := by_question.get(q.question):
            by_hand = f"{one.points:g} points by the teacher in place of {q.points:g}: {one.reason}"
            q = replace(q, points=one.points, flags=(*q.flags, by_hand))
        questions.append(q)
    return replace(result, marks=replace(result.marks, questions=tuple(questions)))
