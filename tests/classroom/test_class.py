"""A class graded: resumable, regraded, ended half-way, to any disk; each submission costs itself alone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from multiples import NAMES, answer, imports_of_every_exercise, right, wrong
from nbformat import NotebookNode
from rich.console import Console
from test_gradebook import made, rows

from classroom.grading import batch, command, helper
from classroom.grading.batch import Result, Task, grade_one, read_results, write_result
from classroom.grading.command import grade_command
from classroom.grading.graft import kind_of
from classroom.grading.library import STUB, copy_without_answers, topic_checks, write_checks
from classroom.grading.mark import Counts, Marks, QuestionMark
from classroom.grading.run import Limits
from classroom.grading.sandbox import WAYS_OUT, why_not
from classroom.grading.secret import reference, token, with_tokens
from classroom.grading.submissions import Submission
from classroom.notebooks import as_notebook, read_notebook, to_text
from classroom.questions.core import Outcome
from course_utils.units import CourseError

ROOT = Path(__file__).resolve().parents[2]


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
        copy_without_answers(tmp_path, imports_of_every_exercise())
        stubs = {path.parent.name for path in topic_checks(tmp_path)} - {"shared"}
        graded = {path.parent.name for path in tmp_path.glob("lessons/*/graded.py")}
        assert {"memory", "stride"} <= stubs <= graded
        program = f"""
import importlib, lessons
assert lessons.__file__.startswith({str(tmp_path)!r})
for name in {sorted(graded)!r}:
    module = importlib.import_module(f"lessons.{{name}}.graded")
    for value in list(vars(module).values()):
        if hasattr(value, "question") and not isinstance(value, type):
            assert value.lines(...) == [f"{{value.question}}: not attempted"], name
for name in {sorted(stubs)!r}:
    module = importlib.import_module(f"lessons.{{name}}.checks")
    assert not [value for value in vars(module).values() if hasattr(value, "slips")], name
"""
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr[-2000:]

    @pytest.mark.parametrize(
        "source",
        ["def two(n):\n    return 1 / 0", "two = 2"],
        ids=["crashes", "no function"],
    )
    def test_words_are_no_reference_that_any_answer_might_equal(self, solution: NotebookNode, source: str) -> None:
        with pytest.raises(CourseError, match="the solution does not answer 'two': two"):
            reference(answer(as_notebook(solution), two=source), "s")

    def test_checks_become_true_ones_and_stubs_again(self, tmp_path: Path) -> None:
        copy_without_answers(tmp_path, imports_of_every_exercise())
        places = {path.relative_to(tmp_path): path for path in topic_checks(tmp_path)}
        assert len(places) > 10
        for true in (True, False):
            write_checks(tmp_path, true)
            texts = {place: (ROOT / place).read_text() if true else STUB for place in places}
            assert {place: path.read_text() for place, path in places.items()} == texts


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
    monkeypatch.setattr(command, "reference", with_tokens)  # what right answers print is not compared
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
        assert "2 of 2 marked" in grade(course, folder, out, "--seed", "7" * 16)
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
        grade(course, folder, out, "--seed", "7" * 16)
        hand_in("bob", "one", "two")
        assert "1 marks differ" in grade(course, folder, out)
        assert markings == ["ann", "bob", "bob"]
        assert rows((out / "changes.csv").read_text())[1:] == [["bob", "", "two", "0", "1"]]

    def test_overrides_hold_until_another_file_is_given(self, course, hand_in, markings, tmp_path) -> None:
        folder, out = hand_in("ann", "one"), tmp_path / "out"
        head, given = "learner,question,points,reason\n", tmp_path / "o.csv"
        given.write_text(f"{head}ann,two,0.5,nearly right\n")

        def total(*more: str) -> str:
            grade(course, folder, out, "--seed", "7" * 16, *more)
            return rows((out / "gradebook.csv").read_text())[1][9]

        def changed() -> list[list[str]]:
            return rows((out / "changes.csv").read_text())[1:] if (out / "changes.csv").exists() else []

        assert total() == "1"
        assert total("--overrides", str(given)) == "1.5"
        assert changed() == [["ann", "", "two", "0", "0.5"]]
        assert total() == "1.5"  # kept, as the seed is
        assert changed() == []
        given.write_text(head)
        assert total("--overrides", str(given)) == "1"
        assert changed() == [["ann", "", "two", "0.5", "0"]]
        assert markings == ["ann"]

    def test_as_many_at_a_time_as_processors_it_may_use(self, monkeypatch) -> None:
        if not hasattr(command.os, "sched_getaffinity"):
            pytest.skip("which processors a process may use is known on Linux only")
        monkeypatch.setattr(command.os, "sched_getaffinity", lambda process: {3})
        assert command.processors() == 1

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
        assert rows((out / "changes.csv").read_text())[1:] == [["ann", "", "six", "0", "0.5"]]
        assert total() == ["0.5", "5.5"]  # kept, as the seed is
        (page,) = (out / "feedback").iterdir()
        assert "0.5 of 1" in page.read_text()
        assert "You added; multiply. Right for 3 of 4 inputs." in page.read_text()
        assert "5.5 of 6 points" in page.read_text()
        assert "median 5.5 of 6 points" in (out / "summary.html").read_text()
        assert rows((out / "moodle.csv").read_text())[1][2] == rows((out / "canvas.csv").read_text())[2][5] == "5.5"
        assert total("--no-partial") == ["0", "5"]
        assert markings == ["ann"]

    def test_a_seed_that_can_be_guessed_is_refused(self, course, hand_in, tmp_path) -> None:
        with pytest.raises(CourseError, match="--seed 42 can be guessed; give that of another run"):
            grade(course, hand_in("ann", *NAMES), tmp_path / "out", "--seed", "42")

    def test_a_new_seed_marks_everybody_anew(self, course, hand_in, markings, tmp_path) -> None:
        folder, out = hand_in("ann", *NAMES), tmp_path / "out"
        grade(course, folder, out, "--seed", "7" * 16)
        grade(course, folder, out, "--seed", "8" * 16)
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


class TestOut:
    """Where a class is graded to: whatever is wrong with it is one line, before any work."""

    def refused(self, course, folder, out, *more: str) -> str:
        with pytest.raises(CourseError) as error:
            grade(course, folder, out, *more)
        return str(error.value)

    def test_a_file_or_a_place_among_the_submissions(self, course, hand_in, markings, tmp_path) -> None:
        folder = hand_in("ann")
        (tmp_path / "file").touch()
        assert "cannot be written to: File exists" in self.refused(course, folder, tmp_path / "file")
        assert "cannot be written to: Not a directory" in self.refused(course, folder, tmp_path / "file" / "out")
        for inside in (folder, folder / "out", folder / ".." / "class" / "out"):
            assert "where it would be marked; name a folder elsewhere" in self.refused(course, folder, inside)
        assert [path.name for path in folder.iterdir()] == ["ann.ipynb"]
        assert not markings

    @pytest.mark.parametrize("way", [["--size", "4096", "--tmpfs"], ["--ro-bind", "."]], ids=["full", "read-only"])
    @pytest.mark.skipif(bool(why_not()), reason=f"sandbox: {why_not()}")
    def test_a_full_or_read_only_disk(self, course, hand_in, tmp_path, way: list[str]) -> None:
        folder, out = hand_in("ann", *NAMES), tmp_path / "out"
        out.mkdir()
        arguments = [str(folder), "--exercise", "1", "--out", str(out), "--no-sandbox"]
        command = [sys.executable, "-m", "classroom.cli", "grade", *arguments]
        ran = subprocess.run(
            ["bwrap", "--dev-bind", "/", "/", *way, str(out), "--", *command],
            cwd=course, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        why = {"--size": "No space left on device", "--ro-bind": "Read-only file system"}[way[0]]
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == f"course: --out {out} cannot be written to: {why}; name another folder\n"

    def test_a_disk_that_fills_up_later(self, course, hand_in, markings, tmp_path, monkeypatch) -> None:
        def full(folder: Path, result: Result) -> None:
            raise OSError(28, "No space left on device", "x" * 50_000)

        monkeypatch.setattr(command.batch, "write_result", full)
        said = self.refused(course, hand_in("ann"), tmp_path / "out")
        assert "what is marked stays marked" in said
        assert len(said) < 500

    def test_pages_and_changes_of_an_earlier_call_go(self, course, hand_in, markings, tmp_path) -> None:
        hand_in("ann", *NAMES)
        folder, out = hand_in("bob", "one"), tmp_path / "out"
        grade(course, folder, out)
        hand_in("bob", "two")
        grade(course, folder, out)
        assert (out / "changes.csv").exists()
        (out / "feedback" / "mine.html").touch()
        (folder / "ann.ipynb").unlink()
        grade(course, folder, out)
        assert not (out / "changes.csv").exists()
        pages = sorted(path.name.split("-")[0] for path in (out / "feedback").iterdir())
        assert pages == ["bob", "mine.html"]


IDLE = 3  # processes of a sandbox without a kernel: bubblewrap twice, and the warm parent


def _in_sandboxes(grader: int) -> int:
    """Processes of all sandboxes of a grading: kernels are forked, so their command line is the warm parent's."""
    found = 0
    for one in psutil.Process(grader).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += "zygote" in " ".join(one.cmdline())
    return found


@pytest.mark.skipif(bool(why_not()), reason=f"sandbox: {why_not()}")
def test_a_signal_ends_a_grading_and_leaves_nothing(course, hand_in, tmp_path) -> None:
    """Of the signals that are answered alike (test_temporary) the one that nbclient would take."""
    for name in ("ann", "bob"):
        folder = hand_in(name, *NAMES)
    temporary = Path(tempfile.mkdtemp(prefix="s"))  # short: names of sockets may have 107 characters
    arguments = [str(folder), "--exercise", "1", "--out", str(tmp_path / "out"), "--jobs", "2"]
    with (tmp_path / "said").open("w") as said:
        grading = subprocess.Popen(
            [sys.executable, "-m", "classroom.cli", "grade", *arguments], cwd=course, stdout=said, stderr=said,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        end = time.monotonic() + 300
        while _in_sandboxes(grading.pid) < 2 * IDLE + 1 and time.monotonic() < end:  # a kernel runs
            assert grading.poll() is None
            time.sleep(0.05)
        family = psutil.Process(grading.pid).children(recursive=True)
        grading.send_signal(signal.SIGTERM)
        assert grading.wait(120) == 130
    assert len(family) > 4
    assert not psutil.wait_procs(family, timeout=30)[1]
    assert list(temporary.iterdir()) == []
    assert "course: interrupted; files already written are whole" in (tmp_path / "said").read_text()
    shutil.rmtree(temporary)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_workers_end_when_the_process_that_grades_is_killed(tmp_path: Path) -> None:
    at_work = (
        "import time; from classroom.grading import batch; batch.grade_one = lambda _: [print(1), time.sleep(1000)]"
    )
    program = f"""
import pickle, threading, time
from classroom.grading import helper
helper.SERVE = {at_work!r} + "; " + helper.SERVE
one = helper.Helper()
threading.Thread(target=one.grade, args=("a task",), daemon=True).start()
print(one.pid, flush=True)
time.sleep(1000)
"""
    grading = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert grading.stdout is not None
    worker = psutil.Process(int(grading.stdout.readline()))
    assert grading.stderr is not None
    assert grading.stderr.readline() == "1\n"  # what a helper prints is no result: it is at work
    grading.kill()
    grading.wait()
    grading.stdout.close()
    grading.stderr.close()
    assert not psutil.wait_procs([worker], timeout=60)[1]


def test_a_task_that_fails_in_its_worker_costs_itself_alone(solution: NotebookNode, monkeypatch) -> None:
    def work(task: Task) -> Result:
        if task.submission.learner == "bob":
            raise ValueError("x\n" * 10_000)
        return made(task.submission.learner, [3])

    monkeypatch.setattr(helper, "grade_in_helper", work)
    tasks = [Task(Submission(name), to_text(solution), Limits(), None) for name in ("ann", "bob", "cid")]
    failed = {result.learner: result.failed for result in helper.grade_all(tasks, 2)}
    assert (failed["ann"], failed["cid"]) == ("", "")
    assert failed["bob"].startswith("ValueError: x x x")
    assert len(failed["bob"]) == batch.LONGEST_FAILURE


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

        monkeypatch.setattr(batch, "decide", broken)
        data = (course / "exercises" / "01_multiples.ipynb").read_bytes()
        result = grade_one(self.task(solution, file="a.ipynb", data=data))
        assert result.failed == "the sandbox has ended"
        assert result.marks.points == 0

    def test_whatever_marking_fails_with_is_one_short_line(self, solution, course, monkeypatch) -> None:
        def broken(*arguments: object) -> Marks:
            raise ValueError("Unable to avoid\nbackslash" * 2000)

        monkeypatch.setattr(batch, "decide", broken)
        data = (course / "exercises" / "01_multiples.ipynb").read_bytes()
        result = grade_one(self.task(solution, file="a.ipynb", data=data))
        assert result.failed.startswith("ValueError: Unable to avoid backslash")
        assert len(result.failed) == batch.LONGEST_FAILURE

    def test_results_come_back_as_they_were_written(self, tmp_path: Path) -> None:
        result = made("a/../b", [3, 0], said="é <b>", number="7")
        write_result(tmp_path, result)
        assert read_results(tmp_path) == {("a/../b", "7"): result}
