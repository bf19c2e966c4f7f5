"""A class at a glance: how points are distributed, and how each question did.

Of a question: how hard it was, whether it told strong from weak, which misconceptions were behind its wrong answers.
The one room of grading that draws.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from classroom.grading.batch import Result
from classroom.grading.gradebook import PAGES
from classroom.questions.core import Outcome
from course_utils.figures import side_by_side

BARS = 10  # of the distribution, at most
NAMED = 3  # misconceptions shown for a question


@dataclass(frozen=True)
class QuestionFacts:
    """One question over a class.

    Attributes:
        question: its name.
        title: its heading.
        outcomes: outcome -> how many learners.
        difficulty: mean share of its points, 0 to 1; of those who attempted it, NaN if nobody did.
        discrimination: correlation of its points with the points of all other questions, -1 to 1; NaN if either is
            the same for everybody. The corrected item-total correlation of classical test theory.
        misconceptions: what the check said to those who were wrong or crashed, commonest first, with how many.
    """

    question: str
    title: str
    outcomes: dict[Outcome, int]
    difficulty: float
    discrimination: float
    misconceptions: list[tuple[str, int]]


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
        facts.append(
            QuestionFacts(
                question.question,
                question.title,
                {outcome: sum(q.outcome is outcome for q in column) for outcome in Outcome},
                statistics.fmean(tried) if tried else math.nan,
                correlation(own, others),
                said.most_common(NAMED),
            )
        )
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
