"""What comes out of a grading: a gradebook in three forms, and a page of feedback for each learner.

Everything a learner wrote is escaped and nothing on a page runs: no script, no style, no link of theirs reaches the
teacher's browser, no formula the teacher's spreadsheet.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from classroom.grading.batch import Result

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


# -- feedback ----------------------------------------------------------------------------------------------------------


def feedback_page(result: Result) -> str:
    """One learner's page: for each question the outcome, the points, and what the check says. Self-contained HTML."""
    said = f"This could not be marked: {result.failed}" if result.failed else result.problem
    notes = [line for line in (said, *result.marks.notes) if line]
    return PAGES.get_template("feedback.html").render(result=result, marks=result.marks, notes=notes)
