"""The order of a marking: points are final before a check, which holds answers, enters any kernel."""

import dataclasses
from pathlib import Path

import pytest
from multiples import NAMES, answer, mark_stranger, right, wrong
from nbformat import NotebookNode

from classroom.grading import mark as marking
from classroom.grading.graft import Graft, graft, kind_of
from classroom.grading.run import CellVerdict, Limits
from classroom.grading.secret import checks_cell
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


def grafted(course: Path, inside: str = "", **answers: str) -> Graft:
    """A stranger's answers; the graded cell of `inside` asks what code is like."""
    trusted = as_notebook(read_notebook(course / "solutions" / "01_multiples.ipynb"))
    for cell in trusted.cells:
        if kind_of(cell) == ("graded", inside):
            cell.outputs[0].text = "peak low enough: yes\n"
    exercise = answer(read_notebook(course / "exercises" / "01_multiples.ipynb"), **answers)
    return dataclasses.replace(graft(exercise, trusted), checks=checks_cell())


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
    first = next(i for i, sent in enumerate(kernels.sent) if {"check", "course"} & {*kinds(sent)})
    assert len(kernels.sent) > first > 2  # what a dead kernel cost was run again before
    assert not any("graded" in kinds(sent) for sent in kernels.sent[first:])
    found = {one.question: one for one in marks.questions}
    assert (found["two"].outcome, found["two"].diagnosis) == (Outcome.WRONG, "You added; multiply.")
    asked = [cell for sent in kernels.sent[first:] for cell in sent if cell.startswith("check-")]
    assert asked == ["check-two", "check-five"]  # those of whom only a check can say more
    assert marks.points == 1 + 4


def test_where_all_is_right_no_check_is_sent_at_all(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels({})
    monkeypatch.setattr(marking, "run_notebook", kernels)
    marks = mark_stranger(grafted(course, **{name: right(name) for name in NAMES}), Limits(), None)
    assert marks.points == marks.out_of
    assert [kinds(sent).count("check") + kinds(sent).count("course") for sent in kernels.sent] == [0]


def test_what_is_judged_inside_runs_in_a_kernel_that_has_run_nothing_of_this_learner(
    course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels({})
    monkeypatch.setattr(marking, "run_notebook", kernels)
    mark_stranger(grafted(course, inside="four", **{name: right(name) for name in NAMES}), Limits(), None)
    (sent,) = kernels.sent
    assert [cell for cell in sent if kinds([cell])[0] in ("answer", "graded")][:3] == [
        "answer-four", "graded-four", "answer-one",
    ]  # fmt: skip


@pytest.mark.parametrize(("before", "points"), [("", 4), ("import gc\n", 0)])
def test_a_right_answer_that_needs_another_is_run_behind_those_that_reach_nobody(
    course: Path, monkeypatch: pytest.MonkeyPatch, before: str, points: int
) -> None:
    kernels = Kernels({})

    def run(notebook: NotebookNode, *_: object, **__: object) -> list[CellVerdict]:
        found = kernels(notebook)
        sent = kernels.sent[-1]
        before_it = sent[: sent.index("graded-four")] if "graded-four" in sent else []
        error = CellVerdict("graded-four", "differs", "four: crashed: NameError")
        return [error if one.cell == "graded-four" and "answer-one" not in before_it else one for one in found]

    monkeypatch.setattr(marking, "run_notebook", run)
    answers = {name: right(name) for name in NAMES} | {"one": before + right("one")}
    marks = mark_stranger(grafted(course, inside="four", **answers), Limits(), None)
    found = {one.question: one for one in marks.questions}
    assert found["four"].points == points
