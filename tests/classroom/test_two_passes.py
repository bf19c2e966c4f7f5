"""Every mark of a class is final before a check, which holds answers, enters any kernel of any of its submissions."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from multiples import NAMES, answer, right, wrong
from nbformat import NotebookNode
from rich.console import Console

from classroom.grading import batch, command, helper
from classroom.grading import mark as marking
from classroom.grading.batch import (
    Result,
    Task,
    grade_one,
    in_two_passes,
    read_results,
    unmarked,
    write_result,
)
from classroom.grading.command import grade_command
from classroom.grading.mark import Unexplained, unattempted
from classroom.grading.run import CellVerdict, Limits
from classroom.grading.submissions import Submission
from classroom.notebooks import read_notebook, to_text
from classroom.questions.core import Outcome
from course_utils.units import CourseError

LEARNERS = ("ann", "bob", "cid")


def handed_in(course: Path, **answers: str) -> str:
    return to_text(answer(read_notebook(course / "exercises" / "01_multiples.ipynb"), **answers))


def tasks(course: Path) -> list[Task]:
    """Three submissions, of which the second is right."""
    reference = (course / "solutions" / "01_multiples.ipynb").read_text()
    answers = {name: {"one": right("one"), "two": (right if name == "bob" else wrong)("two")} for name in LEARNERS}
    texts = {name: handed_in(course, **answers[name]) for name in LEARNERS}
    return [
        Task(Submission(name, file=f"{name}.ipynb", data=text.encode()), reference, Limits(), None)
        for name, text in texts.items()
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_kernel_is_sent_a_graded_cell_after_any_was_sent_a_check(
    jobs: int, course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[set[str]] = []

    def run(notebook: NotebookNode, *_: object, **__: object) -> list[CellVerdict]:
        sent.append({cell.id.partition("-")[0] for cell in notebook.cells})
        is_wrong = any("n + 2" in cell.source for cell in notebook.cells if cell.id == "answer-two")
        found = []
        for cell in notebook.cells:
            two, said = "passed", "Wrong: You added."
            if cell.id == "graded-two":
                two, said = "differs" if is_wrong else "passed", re.sub("= .*", "= 3", cell.outputs[0].text)
            found.append(CellVerdict(cell.id, two, said))
        return found

    monkeypatch.setattr(helper, "grade_in_helper", grade_one)
    monkeypatch.setattr(marking, "run_notebook", run)
    found = list(helper.grade_all(tasks(course), jobs))
    asked = ["check" in kinds for kinds in sent]
    assert asked == [False] * 3 + [True] * 2
    assert ["graded" in kinds for kinds in sent] == [not one for one in asked]
    assert sorted(one.learner for one in found[:3]) == [*LEARNERS]
    assert sorted(one.learner for one in found[3:]) == ["ann", "cid"]
    last = {one.learner: one for one in found}
    assert not any(one.unexplained or one.failed for one in last.values())
    said = {name: {q.question: q.diagnosis for q in one.marks.questions}["two"] for name, one in last.items()}
    assert said == {"ann": "You added.", "bob": "", "cid": "You added."}
    assert [last[name].marks.points for name in LEARNERS] == [1, 3, 1]


# Without a sandbox there is a way from one kernel to the next that no test has to find: a file.
SPY = """\
import sys
from pathlib import Path

def two(n):
    frame = sys._getframe()
    while frame:
        asking = frame.f_locals.get("self")
        if type(asking).__name__ == "Check":
            Path({place!r}).write_text(str(asking.reference(1)))
        frame = frame.f_back
    return 0
"""
NEIGHBOUR = """\
import time
from pathlib import Path

end = time.monotonic() + 5
while time.monotonic() < end and not Path({place!r}).exists():
    time.sleep(0.1)
factor = int(Path({place!r}).read_text()) if Path({place!r}).exists() else 0

def two(n):
    return factor * n
"""


def test_what_a_spy_reads_of_a_check_comes_too_late_for_its_neighbour(course: Path, tmp_path: Path) -> None:
    """One job: the neighbour comes behind the spy. With two the order is that of the test above."""
    place, folder, out = tmp_path / "left", tmp_path / "class", tmp_path / "out"
    folder.mkdir()
    for name, source in (("a spy", SPY), ("b neighbour", NEIGHBOUR)):
        text = handed_in(course, one=right("one"), two=source.format(place=str(place)))
        (folder / f"{name}.ipynb").write_text(text)
    options = ["--exercise", "1", "--out", out, "--no-sandbox", "--jobs", 1, "--seconds", 30]
    assert grade_command([str(x) for x in (folder, *options)], course, Console(file=io.StringIO())) == 0
    found = {result.learner: result for result in read_results(out / "results").values()}
    assert place.read_text() == "2"  # the spy did read the check
    for name in ("a spy", "b neighbour"):
        marks = {q.question: q for q in found[name].marks.questions}
        assert (marks["one"].points, marks["two"].points, marks["two"].outcome) == (1, 0, Outcome.WRONG)


def decided(task: Task) -> Result:
    """The result of a first pass, with a question that a check has to be asked about."""
    two = {"graded": CellVerdict("graded-two", "differs", "two(1) = 3")}
    marks = unattempted(read_notebook_text(task.reference))
    who = task.submission.learner, task.submission.number
    return Result(*who, task.submission.file, task.key, marks, unexplained=Unexplained({"two": two}, ("five",)))


def read_notebook_text(text: str) -> NotebookNode:
    return batch.parse_notebook(text.encode(), "the reference")


def test_the_second_pass_begins_when_the_first_has_ended(course: Path) -> None:
    passes: list[list[str]] = []

    def grade(some: Sequence[Task]) -> Iterator[Result]:
        passes.append([task.submission.learner for task in some])
        for task in reversed(some):
            result = decided(task)
            yield result if task.decided is None else dataclasses.replace(result, unexplained=None)

    ann, bob, cid = tasks(course)
    bob = dataclasses.replace(bob, decided=decided(bob))  # of a grading that was ended between the passes
    found = [(one.learner, one.unexplained is None) for one in in_two_passes([ann, bob, cid], grade)]
    assert passes == [["ann", "cid"], [*LEARNERS]]
    assert found == [("cid", False), ("ann", False), ("cid", True), ("bob", True), ("ann", True)]


def test_a_grading_that_was_ended_between_the_passes_marks_nobody_again(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[bool]] = []

    def results(some: list[Task], *_: object) -> Iterator[Result]:
        asked.append([task.decided is not None for task in some])
        for task in some:
            yield decided(task) if task.decided is None else dataclasses.replace(task.decided, unexplained=None)
        if len(asked) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "_results", results)
    folder = tmp_path / "class"
    folder.mkdir()
    for name in NAMES[:2]:
        (folder / f"{name}.ipynb").write_text(handed_in(course, two=wrong("two")))
    arguments = [str(folder), "--exercise", "1", "--out", str(tmp_path / "out"), "--no-sandbox"]
    with pytest.raises(KeyboardInterrupt):
        grade_command(arguments, course, Console(file=io.StringIO()))
    for _ in range(2):
        assert grade_command(arguments, course, Console(file=io.StringIO())) == 0
    assert asked == [[False] * 2, [True] * 2, []]


def test_what_waits_for_the_second_pass_is_kept_whole_and_its_points_are_safe(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, *_ = tasks(course)
    result = decided(task)
    write_result(tmp_path, result)
    assert read_results(tmp_path) == {("ann", ""): result}

    def too_long(*_: object) -> None:
        raise CourseError("ann.ipynb takes too long to read")

    monkeypatch.setattr(batch.intake, "read", too_long)
    second = dataclasses.replace(task, decided=result)
    lost = unmarked(second, "no sandbox"), "no sandbox"
    for kept, why in (lost, (grade_one(second), "ann.ipynb takes too long to read")):
        assert (kept.failed, kept.unexplained, kept.marks.questions) == ("", None, result.marks.questions)
        assert kept.marks.notes == (f"What is wrong with an answer could not be looked for: {why}",)
