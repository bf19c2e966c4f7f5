"""Put a learner's answers into the trusted notebook. Pure: notebooks in, notebooks out; nothing is run.

The trusted notebook is the executed solution. From the learner's file come the texts of the answer cells and the
definitions they need, nothing else: no metadata, no tags, no outputs.

Which cell answers a question:
1. the cells whose metadata say so, or else whose id does (`answer-map_bytes`);
2. of several, the last that was changed from the placeholder, as it would win when the notebook runs from top to
   bottom; if it alone does not define what is asked (a cell was split), all changed ones in their order;
3. if there is none, or it is as it was handed out, the last code cell that defines what is asked (cells were merged,
   or the text was typed anew); of a cell with several answers, each question gets its own part.
What an answer reads and only another cell of the learner's defines is put before it (`needs`). Whatever is not as it
was handed out is flagged in words.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from classroom.grading.needs import own_part, with_needs
from classroom.notebooks import as_notebook
from classroom.questions.core import defines, names_in
from course_utils.units import CourseError

# Where strangers are marked: a graded cell prints a record; no check says what would have been right.
HAND_OVER = "from classroom.questions.graded import hand_over\n\nhand_over({!r})\n"
UNTOLD = "from classroom.questions.functions import Check\n\nCheck.tells_expected = False\n"
GRADED_CALL = re.compile(r"^([\w.]+)\((\w+)\)\s*\Z", re.MULTILINE)  # of which gives which answer to be graded
LONGEST_NAME = 120  # characters shown of what a file names itself


@dataclass(frozen=True)
class Answer:
    """What a learner's file has for one question."""

    source: str
    attempted: bool
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """One question of the trusted notebook."""

    name: str
    title: str
    points: int
    stub: str
    defines: tuple[str, ...]  # the names the graded cell uses
    expected: str  # what the graded cell of a right answer prints


@dataclass(frozen=True)
class Graft:
    """A learner's answers beside the trusted notebook they will run in."""

    topic: str
    trusted: NotebookNode
    questions: tuple[Question, ...]
    answers: dict[str, Answer]

    def notebook(
        self,
        marked: Collection[str],
        without: Collection[str] = (),
        kinds: Collection[str] = ("check", "graded"),
        handed_over: Collection[str] = (),
    ) -> NotebookNode:
        """The code cells to run: all answers but those left out, and cells of these kinds for the marked questions.

        Graded cells of those `handed_over` print a record. Checks that are asked alone are asked about a stranger.
        """
        cells: list[dict[str, Any]] = []
        for cell in self.trusted.cells:
            kind, question = kind_of(cell)
            if cell.cell_type != "code" or (kind == "answer" and question in without):
                continue
            if kind in ("check", "graded") and (question not in marked or kind not in kinds):
                continue
            made = {**cell, "metadata": {"course": cell.metadata.get("course", {})}}
            if kind == "answer":
                made["source"] = self.answers[question].source
            if kind == "check" and "graded" not in kinds:
                made["source"] = f"{UNTOLD}{cell.source}"
            if kind == "graded" and question in handed_over:
                made["source"] = f"{HAND_OVER.format(question)}{cell.source}"
            if kind != "graded" or question in handed_over:  # a cell without count and outputs is run, not compared
                made |= {"execution_count": None, "outputs": []}
            cells.append(made)
        return as_notebook(
            {**self.trusted, "cells": cells, "metadata": {"kernelspec": self.trusted.metadata.kernelspec}}
        )


def replaying(trusted: NotebookNode, question: str, record: str) -> NotebookNode:
    """The graded cell of a question with a record in place of an answer, alone."""
    cell = next(cell for cell in trusted.cells if kind_of(cell) == ("graded", question))
    call = GRADED_CALL.search(cell.source)
    assert call is not None
    token = cell.metadata.course.get("token", "")
    source = f"{cell.source[: call.start()]}{call[1]}.replay({record.strip()!r}, {token!r})"
    made = {**cell, "source": source, "metadata": {"course": {"kind": "graded", "question": question}}}
    return as_notebook({**trusted, "cells": [made], "metadata": {"kernelspec": trusted.metadata.kernelspec}})


def kind_of(cell: NotebookNode) -> tuple[str, str]:
    """(kind, question) of a cell by its metadata, else by its id; ("", "") for a cell that belongs to no question."""
    course = cell.metadata.get("course")
    if isinstance(course, dict) and isinstance(course.get("kind"), str) and isinstance(course.get("question"), str):
        return course["kind"], course["question"]
    kind, _, question = str(cell.get("id", "")).partition("-")
    return (kind, question) if kind == "answer" and question else ("", "")


def read_questions(trusted: NotebookNode) -> tuple[Question, ...]:
    """The questions of a solution, in order. Raises CourseError for a notebook that is none or was not executed."""
    cells = {kind_of(cell): cell for cell in trusted.cells if kind_of(cell)[0]}
    found = []
    asked = {name: cell for (kind, name), cell in cells.items() if kind == "question"}
    for name, cell in asked.items():
        answer, graded = cells.get(("answer", name)), cells.get(("graded", name))
        if answer is None or graded is None or not graded.get("outputs"):
            raise CourseError(f"the solution has no graded output for {name!r}; run `course build` first")
        used = [name for name in sorted(names_in(answer.source)[0]) if re.search(rf"\b{name}\b", graded.source)]
        title = cell.source.split("\n")[0].lstrip("# ")
        expected = "".join(output.get("text", "") for output in graded.outputs)
        stub, points = answer.metadata.course.stub, cell.metadata.course.points
        found.append(Question(name, title, points, stub, tuple(used), expected))
    if not found:
        raise CourseError("the solution asks no questions; run `course build` first")
    return tuple(found)


def graft(submission: NotebookNode, trusted: NotebookNode) -> Graft:
    """Find a learner's answers. Raises CourseError for another exercise's notebook, a lesson or a solution."""
    topic = trusted.metadata.course.topic
    course = submission.metadata.get("course")
    if isinstance(course, dict):
        if course.get("topic", topic) != topic:
            raise CourseError(f"this is {short(course['topic'])}, not {topic}")
        if course.get("kind", "exercise") != "exercise":
            raise CourseError(f"this is the {short(course['kind'])} of {topic}; mark the exercise")
    questions = read_questions(trusted)
    given = [cell.source for cell in trusted.cells if cell.cell_type == "code" and not kind_of(cell)[0]]
    known = {name for text in given for name in names_in(text)[0]}.union(*(q.defines for q in questions))
    untouched = {_plain(text) for text in ("", *given, *(q.stub for q in questions))}
    texts = [
        "" if cell.cell_type != "code" or _plain(cell.source) in untouched else cell.source for cell in submission.cells
    ]
    answers = {q.name: _find(q, submission.cells, texts, known, questions) for q in questions}
    claimed = [question for kind, question in map(kind_of, submission.cells) if kind == "answer"]
    if not claimed and not any(answer.attempted for answer in answers.values()):
        raise CourseError(f"no answer cell of {topic} is in this notebook; is it the right one?")
    return Graft(topic, trusted, questions, answers)


def _find(
    question: Question,
    cells: Sequence[NotebookNode],
    texts: Sequence[str],
    known: Collection[str],
    questions: Sequence[Question],
) -> Answer:
    """The answer to a question; `texts` are those of the code cells that are not as they were handed out, else ""."""
    flags = []
    claims = [cell for cell in cells if kind_of(cell) == ("answer", question.name)]
    changed = [cell for cell in claims if _plain(cell.source) not in ("", _plain(question.stub))]
    if not changed:
        elsewhere = [cell for cell, text in zip(cells, texts, strict=True) if defines(text, question.defines)][-1:]
        if not elsewhere:
            if all(not cell.source.strip() for cell in claims):
                flags.append("its answer cell is missing or empty")
            return Answer(question.stub, False, tuple(flags))
        why = "as it was handed out" if claims else "missing"
        flags.append(f"its answer cell is {why}; the cell that defines `{'`, `'.join(question.defines)}` was marked")
        claims = changed = elsewhere
    if any(cell.cell_type != "code" for cell in changed):
        flags.append("its answer cell is no code cell any more; its text was marked as code")
    chosen = changed[-1:]
    if len(claims) > 1:
        if defines(chosen[0].source, question.defines):
            flags.append(f"{len(claims)} cells claim it; the last changed one was marked")
        else:
            chosen = changed
            flags.append(f"{len(claims)} cells claim it; they were marked as one, in their order")
    source = "\n\n".join(cell.source for cell in chosen)
    others = {name for other in questions for name in other.defines} - {*question.defines}
    source = own_part(source, question.defines, others)
    place = next(place for place, cell in enumerate(cells) if cell is chosen[0])
    source, taken = with_needs(source, texts[:place], texts[place:], known)
    if taken:
        flags.append(f"with it was marked what other cells define for it: {short(', '.join(taken))}")
    return Answer(source, True, tuple(flags))


def short(text: object, most: int = LONGEST_NAME) -> str:
    """What a learner's file or an error says, on one line that can be read."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _plain(source: str) -> str:
    """A text without differences that no reader sees."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
