"""What comes out of a grading: a gradebook in three forms, and a page of feedback for each learner.

Everything a learner wrote is escaped and nothing on a page runs: no script, no style, no link of theirs reaches the
teacher's browser, no formula the teacher's spreadsheet.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from classroom.grading.batch import Result
from classroom.grading.partial import whole
from course_utils.units import CourseError

PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def cell(value: object) -> str:
    """A value for a spreadsheet, on one line. What it would run as a formula gets an apostrophe before it.

    A file may be opened with another separator than the one it was written with, so every comma, semicolon and tab may
    begin a cell. Characters are taken for what they look like (NFKC): a full-width sign of equality is one.
    """
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", str(value)).rstrip()
    if isinstance(value, int | float):
        return text
    made, begins = [], True
    for character in text:
        plain = unicodedata.normalize("NFKC", character)
        if begins and plain.lstrip()[:1] in ("=", "+", "-", "@"):
            made.append("'")
        made.append(character)
        if any(separator in plain for separator in ",;"):
            begins = True
        elif plain.strip(' "') and unicodedata.category(character) != "Cf":  # neither seen nor read at the beginning
            begins = False
    return "".join(made)


def table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV, every value safe in a spreadsheet."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([[cell(value) for value in row] for row in rows])
    return stream.getvalue()


def remarks(result: Result) -> list[str]:
    """What a teacher should look at: problems, flags, overridden marks."""
    first = f"NOT MARKED: {result.failed}" if result.failed else result.problem
    flags = [f"{q.question}: {flag}" for q in result.marks.questions for flag in q.flags]
    return [line for line in (first, *result.marks.notes, *flags) if line]


def plain_csv(results: Sequence[Result]) -> str:
    """One row a learner: points of each question, their sum, and what a teacher should look at."""
    questions = [q.question for q in results[0].marks.questions]
    head = ["learner", "number", "file", *questions, "points", "out of", "remarks"]
    rows = []
    for r in results:
        points = [*(q.points for q in r.marks.questions), r.marks.points]
        shown = ["" for _ in points] if r.failed else points
        rows.append([r.learner, r.number, r.file, *shown, r.marks.out_of, "; ".join(remarks(r))])
    return table([head, *rows])


def moodle_csv(results: Sequence[Result]) -> str:
    """Moodle's grading worksheet: its own identifier, the grade, and a comment. Who could not be marked is left out."""
    head = ["Identifier", "Full name", "Grade", "Maximum grade", "Feedback comments"]
    rows = []
    for r in results:
        if not r.failed:
            who = f"Participant {r.number}" if r.number else ""
            rows.append([who, r.learner, r.marks.points, r.marks.out_of, "; ".join(remarks(r))])
    return table([head, *rows])


def canvas_csv(results: Sequence[Result], assignment: str) -> str:
    """Canvas's gradebook import: points possible, then a row a learner. Who could not be marked is left out."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    possible = ["    Points Possible", "", "", "", "", results[0].marks.out_of]
    rows = [[r.learner, r.number, "", "", "", r.marks.points] for r in results if not r.failed]
    return table([head, possible, *rows])


# -- overrides ---------------------------------------------------------------------------------------------------------


def read_overrides(path: Path) -> dict[tuple[str, str], tuple[float, str]]:
    """(learner, question) -> (points, reason), from a CSV with the columns learner, question, points, reason.

    Raises CourseError for a missing column, a row without a reason, or points that are no whole or half number.
    """
    found = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = sorted({"learner", "question", "points", "reason"} - set(reader.fieldnames or []))
            if missing:
                need = "it needs learner, question, points, reason"
                raise CourseError(f"{path} has no column {missing[0]!r}; {need}")
            for number, row in enumerate(reader, start=2):
                points, reason = (row["points"] or "").strip(), (row["reason"] or "").strip()
                if not re.fullmatch(r"\d+(\.[05])?", points, re.ASCII):
                    raise CourseError(f"{path}, line {number}: points must be whole or half ones, got {points!r}")
                if not reason:
                    raise CourseError(f"{path}, line {number}: an override needs a reason")
                found[row["learner"], row["question"]] = (whole(float(points)), reason)
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path} cannot be read: {error}") from None
    return found


def override(results: Sequence[Result], overrides: Mapping[tuple[str, str], tuple[float, str]]) -> list[Result]:
    """The results with the teacher's points in place of those computed. Raises CourseError for one that fits nobody."""
    known = {(r.learner, q.question): q for r in results for q in r.marks.questions}
    for (learner, question), (points, _) in overrides.items():
        if (learner, question) not in known:
            raise CourseError(f"an override is for {learner!r}, question {question!r}: there is no such")
        if points > known[learner, question].out_of:
            raise CourseError(f"an override gives {learner!r} {points:g} of {known[learner, question].out_of} points")
    changed = []
    for result in results:
        questions = []
        for q in result.marks.questions:
            points, reason = overrides.get((result.learner, q.question), (q.points, ""))
            by_hand = f"{points:g} points by the teacher in place of {q.points:g}: {reason}"
            questions.append(replace(q, points=points, flags=(*q.flags, by_hand) if reason else q.flags))
        changed.append(replace(result, marks=replace(result.marks, questions=tuple(questions))))
    return changed


# -- feedback ----------------------------------------------------------------------------------------------------------


def feedback_page(result: Result) -> str:
    """One learner's page: for each question the outcome, the points, and what the check says. Self-contained HTML."""
    said = f"This could not be marked: {result.failed}" if result.failed else result.problem
    notes = [line for line in (said, *result.marks.notes) if line]
    return PAGES.get_template("feedback.html").render(result=result, marks=result.marks, notes=notes)
