"""A class graded: resumable, regraded, overridden; its gradebook, its pages, its summary. No learner's code is run."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from multiples import NAMES, answer, build_course, right, wrong
from nbformat import NotebookNode
from rich.console import Console

from course_utils.checks.core import Outcome
from course_utils.grading import batch, command
from course_utils.grading.batch import Result, Task, changed_marks, grade_one, read_results, write_result
from course_utils.grading.command import grade_command
from course_utils.grading.gradebook import (
    canvas_csv,
    cell,
    feedback_page,
    moodle_csv,
    override,
    plain_csv,
    read_overrides,
)  # fmt: skip
from course_utils.grading.graft import kind_of
from course_utils.grading.library import copy_without_answers, topic_checks
from course_utils.grading.mark import Marks, QuestionMark
from course_utils.grading.partial import Counts
from course_utils.grading.run import Limits
from course_utils.grading.sandbox import WAYS_OUT
from course_utils.grading.secret import checks_cell, token, with_tokens
from course_utils.grading.submissions import Submission
from course_utils.grading.summary import correlation, distribution, question_facts, summary_page
from course_utils.notebook_files import read_notebook, to_text
from course_utils.units import CourseError

EVIL = "<script>alert('x')</script>"


def made(learner: str, points: list[float], said: str = "", number: str = "", failed: str = "") -> Result:
    """A result with these points in questions of 3 points each."""
    questions = tuple(
        QuestionMark(f"q{i}", f"{i}. Question", Outcome.CORRECT if p else Outcome.WRONG, p, 3, "" if p else said)
        for i, p in enumerate(points)
    )
    return Result(learner, number, f"{learner}.ipynb", "key", Marks("01_multiples", questions), failed=failed)


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


class TestGradebook:
    def test_plain_has_every_question_the_sum_and_the_remarks(self) -> None:
        head, ann, bob = rows(plain_csv([made("ann", [3, 0]), made("bob", [3, 3], failed="the sandbox ended")]))
        assert head == ["learner", "number", "file", "q0", "q1", "points", "out of", "remarks"]
        assert ann == ["ann", "", "ann.ipynb", "3", "0", "3", "6", ""]
        assert bob == ["bob", "", "bob.ipynb", "", "", "", "6", "NOT MARKED: the sandbox ended"]

    def test_platforms_get_their_own_forms_and_nobody_a_zero_for_our_failure(self) -> None:
        results = [made("Ann Lee", [3, 0], number="12"), made("bob", [0, 0], failed="x")]
        assert rows(moodle_csv(results))[1:] == [["Participant 12", "Ann Lee", "3", "6", ""]]
        possible, ann = rows(canvas_csv(results, "01"))[1:]
        assert possible == ["    Points Possible", "", "", "", "", "6"]
        assert ann == ["Ann Lee", "12", "", "", "", "3"]

    @pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=x", "\r\n=x", " =x", "\x00=x"])
    def test_no_formula_reaches_a_spreadsheet(self, text: str) -> None:
        for written in (cell(text), rows(plain_csv([made(text, [3])]))[1][0]):
            assert written.strip()[0] not in "=+-@"
        assert cell(-1) == "-1"

    def test_a_page_holds_no_markup_of_the_learners(self) -> None:
        result = replace(made(EVIL, [0, 3], said=EVIL), problem=EVIL, file=EVIL)
        question = replace(result.marks.questions[0], title=EVIL, flags=(EVIL,))
        result = replace(result, marks=replace(result.marks, questions=(question,), notes=(EVIL,)))
        for page in (feedback_page(result), summary_page([result])):
            assert "<script" not in page
            assert "default-src 'none'" in page
        assert feedback_page(result).count("&lt;script&gt;") >= 6


class TestOverrides:
    def write(self, path: Path, *lines: str) -> Path:
        path.write_text("\n".join(["learner,question,points,reason", *lines]) + "\n")
        return path

    def test_the_teacher_has_the_last_word_and_it_shows(self, tmp_path: Path) -> None:
        overrides = read_overrides(self.write(tmp_path / "o.csv", "ann,q1,1.5,nearly right"))
        (ann,) = override([made("ann", [3, 0])], overrides)
        assert ann.marks.points == 4.5
        assert "1.5 points by the teacher in place of 0: nearly right" in feedback_page(ann)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("ann,q1,2,", "line 2: an override needs a reason"),
            ("ann,q1,two,x", "line 2: points must be whole or half ones, got 'two'"),
            ("ann,q1,-1,x", "line 2: points must be whole or half ones, got '-1'"),
            ("ann,q1,1.2,x", "line 2: points must be whole or half ones, got '1.2'"),
            ("ann,q9,1,x", "an override is for 'ann', question 'q9': there is no such"),
            ("bob,q1,1,x", "an override is for 'bob'"),
            ("ann,q1,4,x", "gives 'ann' 4 of 3 points"),
        ],
    )
    def test_what_makes_no_sense_is_one_line(self, tmp_path: Path, line: str, message: str) -> None:
        path = self.write(tmp_path / "o.csv", line)
        with pytest.raises(CourseError, match=re.escape(message)):
            override([made("ann", [3, 0])], read_overrides(path))

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "o.csv").write_text("learner,points\n")
        with pytest.raises(CourseError, match="no column 'question'"):
            read_overrides(tmp_path / "o.csv")


class TestSummary:
    def test_numbers_against_numpy(self) -> None:
        random = np.random.default_rng(0)
        table = 3 * random.integers(0, 2, (30, 4))
        results = [made(f"l{i}", [int(p) for p in points], said="slip") for i, points in enumerate(table)]
        for index, fact in enumerate(question_facts(results)):
            rest = table.sum(axis=1) - table[:, index]
            assert fact.difficulty == pytest.approx(table[:, index].mean() / 3)
            assert fact.discrimination == pytest.approx(np.corrcoef(table[:, index], rest)[0, 1])
            assert fact.misconceptions == [("slip", int((table[:, index] == 0).sum()))]
            assert sum(fact.outcomes.values()) == 30
        assert sum(distribution(results).values()) == 30
        halves = [made(f"l{i}", [points]) for i, points in enumerate((0, 0.5, 1, 1.5, 2.5, 3))]
        assert distribution(halves) == {"0 to 0.5": 2, "1 to 1.5": 2, "2 to 2.5": 1, "3": 1}
        assert "slip" in summary_page(results)

    def test_corners(self) -> None:
        assert math.isnan(correlation(np.array([1.0]), np.array([1.0])))
        assert math.isnan(correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])))
        for results in ([made("a", [0])], [made("a", [3, 3])] * 3, [made("a", [0, 0], failed="x")]):
            assert "nan" not in summary_page(results).lower().replace("finance", "")


class TestSecret:
    def test_a_token_depends_on_seed_and_question_and_gives_nothing_away(self) -> None:
        tokens = {token(seed, question) for seed in ("1", "2") for question in ("a", "b")}
        assert len(tokens) == 4
        assert all(re.fullmatch("[0-9a-f]{32}", one) for one in tokens)
        assert token("1", "a") == token("1", "a")

    def test_only_graded_cells_change(self, solution: NotebookNode) -> None:
        changed = [
            kind_of(after)[0]
            for before, after in zip(solution.cells, with_tokens(solution, "s").cells, strict=True)
            if before.source != after.source
        ]
        assert changed == ["graded"] * 6

    def test_the_seed_is_nowhere_in_what_a_learner_runs(self, solution: NotebookNode) -> None:
        assert "0123-a-long-seed" not in to_text(with_tokens(solution, "0123-a-long-seed"))

    def test_the_library_without_answers_still_runs_every_graded_cell(self, tmp_path: Path) -> None:
        copy_without_answers(tmp_path)
        stubs = {path.stem for path in topic_checks(tmp_path / "course_utils")}
        graded = {name for _, name, _ in pkgutil.iter_modules([str(tmp_path / "course_utils/grading/graded")])}
        assert {"memory", "stride"} <= stubs <= graded
        program = f"""
import importlib, course_utils
assert course_utils.__file__.startswith({str(tmp_path)!r})
for name in {sorted(graded)!r}:
    module = importlib.import_module(f"course_utils.grading.graded.{{name}}")
    for value in list(vars(module).values()):
        if hasattr(value, "question") and not isinstance(value, type):
            assert value.lines(...) == [f"{{value.question}}: not attempted"], name
for name in {sorted(stubs)!r}:
    module = importlib.import_module(f"course_utils.checks.{{name}}")
    assert not [value for value in vars(module).values() if hasattr(value, "slips")], name
"""
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr[-2000:]

    def test_checks_are_sent_as_they_are(self) -> None:
        assert "Slip(" in checks_cell().source
        compile(checks_cell().source, "cell", "exec")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build_course(tmp_path_factory.mktemp("course"))
    for name in ("notebooks", "course_utils"):
        (root / name).mkdir(exist_ok=True)
    return root


@pytest.fixture(scope="module")
def solution(course: Path) -> NotebookNode:
    return read_notebook(course / "solutions" / "01_multiples.ipynb")


@pytest.fixture
def hand_in(course: Path, tmp_path: Path) -> Callable[..., Path]:
    """Put a submission into the class's folder: which questions are answered right, the others wrong."""

    def put(learner: str, *questions: str) -> Path:
        exercise = read_notebook(course / "exercises" / "01_multiples.ipynb")
        answers = {name: right(name) if name in questions else wrong(name) for name in NAMES}
        folder = tmp_path / "class"
        folder.mkdir(exist_ok=True)
        (folder / f"{learner}.ipynb").write_text(to_text(answer(exercise, **answers)))
        return folder

    return put


@pytest.fixture
def markings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Marking replaced by reading the answers, here and at once; the names of those who were marked."""
    marked: list[str] = []

    def instead(tasks: list[Task], jobs: int) -> Iterator[Result]:
        for task in tasks:
            marked.append(task.submission.learner)
            text = (task.submission.data or b"").decode()
            questions = tuple(
                QuestionMark(name, name, Outcome.CORRECT, 1, 1)
                if f"n * {i}" in text
                else QuestionMark(name, name, Outcome.WRONG, 0, 1, "You added; multiply.", counts=Counts(3, 4, 1))
                for i, name in enumerate(NAMES, start=1)
            )
            yield Result(task.submission.learner, "", task.submission.file, task.key, Marks("01_multiples", questions))

    monkeypatch.setattr(command, "grade_all", instead)
    monkeypatch.setattr(command, "why_not", lambda: None)
    return marked


def grade(course: Path, folder: Path, out: Path, *more: str) -> str:
    stream = io.StringIO()
    arguments = [str(folder), "--exercise", "1", "--out", str(out), *more]
    assert grade_command(arguments, course, Console(file=stream, width=200)) == 0
    return stream.getvalue()


class TestCommand:
    def test_everything_is_written_and_nothing_is_redone(self, course, hand_in, markings, tmp_path) -> None:
        hand_in("ann", *NAMES)
        folder, out = hand_in("bob", "one"), tmp_path / "out"
        assert "2 of 2 marked" in grade(course, folder, out, "--seed", "7")
        written = {path.name for path in out.iterdir()}
        assert written == {
            "grading.json", "reference.ipynb", "results", "feedback", "summary.html", "gradebook.csv", "moodle.csv",
            "canvas.csv",
        }  # fmt: skip
        assert [row[9] for row in rows((out / "gradebook.csv").read_text())[1:]] == ["6", "1"]
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
        assert "2 graded before and unchanged" in grade(course, folder, out)
        assert markings == ["ann", "bob"]
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before

    def test_only_what_changed_is_marked_anew_and_the_change_is_listed(
        self, course, hand_in, markings, tmp_path
    ) -> None:
        hand_in("ann", *NAMES)
        folder, out = hand_in("bob", "one"), tmp_path / "out"
        grade(course, folder, out, "--seed", "7")
        hand_in("bob", "one", "two")
        assert "1 marks differ" in grade(course, folder, out)
        assert markings == ["ann", "bob", "bob"]
        assert rows((out / "changes.csv").read_text())[1:] == [["bob", "two", "0", "1"]]

    def test_a_damaged_result_is_made_again(self, course, hand_in, markings, tmp_path) -> None:
        folder, out = hand_in("ann", *NAMES), tmp_path / "out"
        grade(course, folder, out)
        (path,) = (out / "results").iterdir()
        path.write_text(path.read_text()[:40])
        grade(course, folder, out)
        assert markings == ["ann", "ann"]
        assert json.loads(path.read_text())["learner"] == "ann"

    def test_killed_half_way_it_goes_on_where_it_was(self, course, hand_in, markings, tmp_path, monkeypatch) -> None:
        for name in ("ann", "bob", "cid"):
            folder = hand_in(name, *NAMES)
        whole = command.grade_all

        def half(tasks: list[Task], jobs: int) -> Iterator[Result]:
            yield next(iter(whole(tasks, jobs)))
            raise KeyboardInterrupt

        monkeypatch.setattr(command, "grade_all", half)
        with pytest.raises(KeyboardInterrupt):
            grade(course, folder, tmp_path / "out")
        monkeypatch.setattr(command, "grade_all", whole)
        assert "1 graded before" in grade(course, folder, tmp_path / "out")
        assert markings == ["ann", "bob", "cid"]

    def test_partial_points_are_in_every_page_and_nobody_is_marked_anew_for_them(
        self, course, hand_in, markings, tmp_path
    ) -> None:
        folder, out = hand_in("ann", "one", "two", "three", "four", "five"), tmp_path / "out"

        def total(*more: str) -> list[str]:
            grade(course, folder, out, *more)
            (row,) = rows((out / "gradebook.csv").read_text())[1:]
            return row[8:10]

        assert total() == ["0", "5"]
        assert total("--partial") == ["0.5", "5.5"]
        assert rows((out / "changes.csv").read_text())[1:] == [["ann", "six", "0", "0.5"]]
        assert total() == ["0.5", "5.5"]  # kept, as the seed is
        (page,) = (out / "feedback").iterdir()
        assert "0.5 of 1" in page.read_text()
        assert "You added; multiply. Right for 3 of 4 inputs." in page.read_text()
        assert "5.5 of 6 points" in page.read_text()
        assert "median 5.5 of 6 points" in (out / "summary.html").read_text()
        assert rows((out / "moodle.csv").read_text())[1][2] == rows((out / "canvas.csv").read_text())[2][5] == "5.5"
        assert total("--no-partial") == ["0", "5"]
        assert markings == ["ann"]

    def test_a_new_seed_marks_everybody_anew(self, course, hand_in, markings, tmp_path) -> None:
        folder, out = hand_in("ann", *NAMES), tmp_path / "out"
        grade(course, folder, out, "--seed", "7")
        grade(course, folder, out, "--seed", "8")
        assert markings == ["ann", "ann"]
        assert (out / "grading.json").stat().st_mode & 0o077 == 0

    def test_a_folder_of_another_exercise_is_refused(self, course, hand_in, markings, tmp_path) -> None:
        folder, out = hand_in("ann"), tmp_path / "out"
        out.mkdir()
        (out / "grading.json").write_text('{"topic": "09_other"}')
        with pytest.raises(CourseError, match="holds a grading of 09_other"):
            grade(course, folder, out)

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--jobs", "0"], "must be more than 0"),
            (["--seconds", "0"], "must be more than 0"),
            (["--exercise", "99"], "no exercise '99'"),
        ],
    )
    def test_a_wrong_request_is_one_line(self, course, hand_in, markings, tmp_path, more, message) -> None:
        with pytest.raises(CourseError, match=message):
            grade(course, hand_in("ann"), tmp_path / "out", *more)

    def test_without_a_sandbox_it_refuses_and_names_the_ways_out(self, course, hand_in, monkeypatch, tmp_path) -> None:
        monkeypatch.setattr(command, "why_not", lambda: f"sandboxes need Linux; {WAYS_OUT}")
        with pytest.raises(CourseError, match="in a container, or name --no-sandbox"):
            grade(course, hand_in("ann"), tmp_path / "out")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_workers_end_when_the_process_that_grades_is_killed(tmp_path: Path) -> None:
    program = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from course_utils.grading import batch
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), batch._start_worker)
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 1000)
    time.sleep(1000)
"""
    (tmp_path / "grades.py").write_text(program)
    grading = subprocess.Popen([sys.executable, tmp_path / "grades.py"], stdout=subprocess.PIPE, text=True)
    assert grading.stdout is not None
    worker = psutil.Process(int(grading.stdout.readline()))
    grading.kill()
    grading.wait()
    grading.stdout.close()
    assert not psutil.wait_procs([worker], timeout=60)[1]


class TestOne:
    def task(self, solution: NotebookNode, **submission: object) -> Task:
        handed_in = Submission(**{"learner": "ann", **submission})  # type: ignore[arg-type]
        return Task(handed_in, to_text(solution), Limits(), None)

    @pytest.mark.parametrize("data", [b"", b"{", b"\x00\xff", b"[]"])
    def test_a_broken_file_is_a_problem_and_nothing_attempted(self, solution: NotebookNode, data: bytes) -> None:
        result = grade_one(self.task(solution, file="a.ipynb", data=data))
        assert result.problem.startswith("a.ipynb")
        assert not result.failed
        assert {q.outcome for q in result.marks.questions} == {Outcome.NOT_ATTEMPTED}

    def test_no_file_is_a_problem(self, solution: NotebookNode) -> None:
        assert (
            grade_one(self.task(solution, problem="no notebook was handed in")).problem == "no notebook was handed in"
        )

    def test_what_fails_through_us_is_not_a_zero(self, solution, course, monkeypatch) -> None:
        def broken(*arguments: object) -> Marks:
            raise CourseError("the sandbox has ended")

        monkeypatch.setattr(batch, "_mark", broken)
        data = (course / "exercises" / "01_multiples.ipynb").read_bytes()
        result = grade_one(self.task(solution, file="a.ipynb", data=data))
        assert result.failed == "the sandbox has ended"
        assert result.marks.points == 0

    def test_results_come_back_as_they_were_written(self, tmp_path: Path) -> None:
        result = made("a/../b", [3, 0], said="é <b>", number="7")
        write_result(tmp_path, result)
        assert read_results(tmp_path) == {("a/../b", "7"): result}
        assert changed_marks(made("a", [3, 0]), made("a", [3, 3]))[0][1].points == 3
