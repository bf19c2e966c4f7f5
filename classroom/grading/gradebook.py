"""What comes out of a grading: a gradebook in three forms, a page for each learner, and one for the class.

Everything a learner wrote is escaped and nothing on a page runs: no script, no style, no link of theirs reaches the
teacher's browser, no formula the teacher's spreadsheet.
"""

import csv
import io
import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from classroom.grading.batch import Result
from classroom.questions.core import Outcome
from course_utils.figures import side_by_side

PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
# Characters that are, or are taken for (NFKC, such as a full-width one), what begins a formula, or a cell.
SIGNS = r"=+\-@\u207a\u207c\u208a\u208c\u2a75\u2a76\ufb29\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"
SEPARATORS = r",;\u037e\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b\U0001f101-\U0001f10a"
FORMULA = re.compile(rf"((?:^|[{SEPARATORS}])\W*?)([{SIGNS}])")
BARS = 10  # of the distribution, at most
NAMED = 3  # misconceptions shown for a question


def cell(value: object) -> str:
    """A value for a spreadsheet, on one line. What it would run as a formula gets an apostrophe before it.

    A file may be opened with another separator than the one it was written with, so every comma, semicolon and tab may
    begin a cell, and what is neither letter nor digit may be left out at its beginning.
    """
    if isinstance(value, int | float):
        return f"{value:g}"
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", str(value)).rstrip()
    return FORMULA.sub(r"\1'\2", text)


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


def feedback_page(result: Result) -> str:
    """One learner's page: for each question the outcome, the points, and what the check says. Self-contained HTML."""
    said = f"This could not be marked: {result.failed}" if result.failed else result.problem
    notes = [line for line in (said, *result.marks.notes) if line]
    return PAGES.get_template("feedback.html").render(result=result, marks=result.marks, notes=notes)


@dataclass(frozen=True)
class QuestionFacts:
    """One question over a class."""

    question: str
    title: str
    outcomes: dict[Outcome, int]  # how many learners
    difficulty: float  # mean share of its points, 0 to 1, of those who attempted it; NaN if nobody did
    # Correlation of its points with those of all other questions, -1 to 1; NaN if either is the same for everybody. The
    # corrected item-total correlation of classical test theory.
    discrimination: float
    misconceptions: list[tuple[str, int]]  # what checks said to who was wrong or crashed, commonest first, how often


def question_facts(results: Sequence[Result]) -> list[QuestionFacts]:
    """The facts of every question, over those that could be marked."""
    marked = [result for result in results if not result.failed]
    facts = []
    for index, question in enumerate(results[0].marks.questions):
        column = [result.marks.questions[index] for result in marked]
        tried = [q.points / q.out_of for q in column if q.outcome is not Outcome.NOT_ATTEMPTED]
        said = Counter(q.diagnosis for q in column if q.diagnosis and q.outcome in (Outcome.WRONG, Outcome.CRASHED))
        own = [q.points for q in column]
        others = [result.marks.points - q.points for result, q in zip(marked, column, strict=True)]
        outcomes = {outcome: sum(q.outcome is outcome for q in column) for outcome in Outcome}
        difficulty = statistics.fmean(tried) if tried else math.nan
        told, common = correlation(own, others), said.most_common(NAMED)
        facts.append(QuestionFacts(question.question, question.title, outcomes, difficulty, told, common))
    return facts


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's correlation; NaN where either does not vary."""
    try:
        return statistics.correlation(one, other)
    except statistics.StatisticsError:
        return math.nan


def distribution(results: Sequence[Result]) -> dict[str, int]:
    """Ranges of points -> how many learners, from the lowest range to the highest, without gaps."""
    totals = [result.marks.points for result in results if not result.failed]
    most, halves = results[0].marks.out_of, any(total % 1 for total in totals)
    width = max(1, math.ceil((most + 1) / BARS))
    ranges = {}
    for low in range(0, most + 1, width):
        high = min(low + width - 1, most)
        last = high + 0.5 if halves and high < most else high
        ranges[f"{low} to {last:g}" if last > low else f"{low}"] = sum(low <= total <= last for total in totals)
    return ranges


def summary_page(results: Sequence[Result]) -> str:
    """The class as one self-contained HTML page."""
    facts = question_facts(results)
    totals = [result.marks.points for result in results if not result.failed]
    middle = f", median {statistics.median(totals):g} of {results[0].marks.out_of} points" if totals else ""
    pictures = [side_by_side(distribution(results), "learners", f"{len(totals)} marked{middle}")]
    known = {fact.question: round(100 * fact.difficulty) for fact in facts if not math.isnan(fact.difficulty)}
    if known:
        hardest = min(known, key=lambda question: known[question])
        pictures.append(side_by_side(known, "% of the points", f"{hardest} was the hardest question"))
    telling = {f.question: max(0.0, round(f.discrimination, 2)) for f in facts if not math.isnan(f.discrimination)}
    if telling:
        best = max(telling, key=lambda question: telling[question])
        head = f"{best} told strong from weak best: correlation with the points of all other questions"
        pictures.append(side_by_side(telling, "", head))
    page = PAGES.get_template("summary.html")
    return page.render(topic=results[0].marks.topic, pictures=pictures, facts=facts, outcomes=list(Outcome))
