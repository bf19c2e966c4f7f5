"""The order of a marking: points are final before a check, which holds answers, enters any kernel."""

import re
from pathlib import Path

import pytest
from multiples import NAMES, answer, mark_stranger, right, wrong
from nbformat import NotebookNode

from classroom.grading import mark as marking
from classroom.grading.graft import Graft, graft
from classroom.grading.run import CellVerdict, Limits
from classroom.notebooks import as_notebook, read_notebook
from classroom.questions.core import Outcome


class Kernels:
    """Stands in for every kernel: which cells each was sent, and verdicts as asked for."""

    def __init__(self, verdicts: dict[str, CellVerdict]) -> None:
        self.verdicts = verdicts
        self.sent: list[list[str]] = []

    def __call__(self, notebook: NotebookNode, *_: object, **__: object) -> list[CellVerdict]:
        self.sent.append([])
        found = []
        for cell in notebook.cells:
            self.sent[-1].append(cell.id)
            found.append(self.verdicts.get(cell.id, CellVerdict(cell.id, "passed")))
            if found[-1].fatal:
                break
        return found


def grafted(course: Path, **answers: str) -> Graft:
    """A stranger's answers."""
    trusted = as_notebook(read_notebook(course / "solutions" / "01_multiples.ipynb"))
    exercise = answer(read_notebook(course / "exercises" / "01_multiples.ipynb"), **answers)
    return graft(exercise, trusted)


def kinds(sent: list[str]) -> list[str]:
    return [cell.partition("-")[0] for cell in sent]


def test_no_kernel_is_sent_a_graded_cell_after_any_was_sent_a_check(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {name: right(name) for name in NAMES} | {"two": "import sys\n" + wrong("two"), "five": wrong("five")}
    differs = {f"graded-{name}": CellVerdict(f"graded-{name}", "differs", f"{name}(1) = 0") for name in ("two", "five")}
    dies = {"graded-three": CellVerdict("graded-three", "died"), "graded-six": CellVerdict("graded-six", "timeout")}
    said = {"check-two": CellVerdict("check-two", "passed", "Wrong: You added; multiply.")}
    kernels = Kernels(differs | dies | said)
    monkeypatch.setattr(marking, "run_notebook", kernels)
    marks = mark_stranger(grafted(course, **answers), Limits(), None)
    first = next(i for i, sent in enumerate(kernels.sent) if "check" in kinds(sent))
    assert len(kernels.sent) > first > 2  # what a dead kernel cost was run again before
    assert not any("graded" in kinds(sent) for sent in kernels.sent[first:])
    found = {one.question: one for one in marks.questions}
    assert (found["two"].outcome, found["two"].diagnosis) == (Outcome.WRONG, "You added; multiply.")
    asked = [cell for sent in kernels.sent[first:] for cell in sent if cell.startswith("check-")]
    assert asked == ["check-two", "check-five"]  # those of whom only a check can say more
    assert marks.points == 1 + 4


def test_an_answer_that_was_not_graded_is_told_why(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where processes that it left keep its kernel from starting anything."""
    kernels = Kernels({})

    def without_two(notebook: NotebookNode, *more: object, **named: object) -> list[CellVerdict]:
        return [one for one in kernels(notebook, *more, **named) if one.cell != "graded-two"]

    monkeypatch.setattr(marking, "run_notebook", without_two)
    marks = mark_stranger(grafted(course, **{name: right(name) for name in NAMES}), Limits(), None)
    two = next(one for one in marks.questions if one.question == "two")
    assert (two.outcome, two.points) == (Outcome.CRASHED, 0)
    assert two.diagnosis == "What it left running, or changed, kept it from being graded."


def test_where_all_is_right_no_check_is_sent_at_all(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels({})
    monkeypatch.setattr(marking, "run_notebook", kernels)
    marks = mark_stranger(grafted(course, **{name: right(name) for name in NAMES}), Limits(), None)
    assert marks.points == marks.out_of
    assert [kinds(sent).count("check") + kinds(sent).count("course") for sent in kernels.sent] == [0]


@pytest.mark.parametrize(
    ("behind", "alone", "points"),
    [
        ("four: crashed: NameError", None, 4),  # an answer before it took a name away
        ("", None, 4),  # or what it printed
        ("four: crashed: NameError", "four: crashed: ValueError", 0),
        ("= 5", None, 0),  # a result for every input, and a wrong one
    ],
)
def test_an_answer_that_others_may_have_bent_is_run_by_itself(
    course: Path, monkeypatch: pytest.MonkeyPatch, behind: str, alone: str | None, points: int
) -> None:
    kernels, answers = Kernels({}), grafted(course, **{name: right(name) for name in NAMES})
    results = next(one.expected for one in answers.questions if one.name == "four")

    def run(notebook: NotebookNode, *_: object, **__: object) -> list[CellVerdict]:
        found = kernels(notebook)
        said = behind if "answer-one" in kernels.sent[-1] else alone
        said = re.sub("= .*", said, results) if said and said.startswith("=") else said
        bent = CellVerdict("graded-four", "differs", said or "")
        return [bent if one.cell == "graded-four" and said is not None else one for one in found]

    monkeypatch.setattr(marking, "run_notebook", run)
    marks = mark_stranger(answers, Limits(), None)
    found = {one.question: one for one in marks.questions}
    assert found["four"].points == points
    assert marks.points == marks.out_of - 4 + points


def test_a_check_that_raises_counts_an_answer_neither_as_right_nor_as_wrong(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a learner is trusted the check counts; a stranger's points come from the graded cell alone."""
    raised = CellVerdict("check-two", "failed", error="KeyError: 'x'")
    monkeypatch.setattr(marking, "run_notebook", Kernels({"check-two": raised}))
    answers = grafted(course, one=right("one"), two=right("two"))
    trusted = marking.mark(answers)
    found = {one.question: one for one in trusted.questions}
    assert (found["two"].outcome, found["two"].points) == (Outcome.NOT_ATTEMPTED, 0)
    assert "KeyError: 'x'" in found["two"].diagnosis
    assert "neither as right nor as wrong" in found["two"].diagnosis
    assert {one.question: one.points for one in mark_stranger(answers, Limits(), None).questions}["two"] == 2
