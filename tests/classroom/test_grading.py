"""Grafting and marking: the learner's own file, nothing it says about itself, one culprit costs one question."""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import nbval.plugin
import psutil
import pytest
from multiples import NAMES, answer, cell_of, right, wrong
from rich.console import Console

from classroom.authoring import plan
from classroom.grading import plugin, report
from classroom.grading.graft import graft
from classroom.grading.mark import Counts, Marks, QuestionMark, mark, read_back
from classroom.grading.run import CellVerdict, Limits, _follow, run_notebook
from classroom.grading.warm import CONTEXT
from classroom.notebooks import as_notebook, read_notebook, to_text
from classroom.questions.core import Outcome, defines
from course_utils.units import CourseError

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(cell=3)


@pytest.fixture(scope="module")
def trusted(course):
    return read_notebook(course / "solutions" / "01_multiples.ipynb")


@pytest.fixture
def exercise(course):
    return read_notebook(course / "exercises" / "01_multiples.ipynb")


def outcomes(marks):
    return {q.question: q.outcome for q in marks.questions}


class TestGraft:
    def test_an_untouched_exercise_attempts_nothing(self, exercise, trusted):
        grafted = graft(exercise, trusted)
        assert grafted.topic == "01_multiples"
        assert not any(a.attempted or a.flags for a in grafted.answers.values())
        assert [(q.name, q.points, q.defines) for q in grafted.questions] == [
            (name, i + 1, (name,)) for i, name in enumerate(NAMES)
        ]

    def test_white_space_is_no_attempt(self, exercise, trusted):
        stub = cell_of(exercise, "answer-one").source
        grafted = graft(answer(exercise, one="\n" + stub.replace("\n", "   \n") + "\n\n"), trusted)
        assert not grafted.answers["one"].attempted

    def test_only_texts_of_answers_come_from_the_learner(self, exercise, trusted):
        cell = cell_of(answer(exercise, one=right("one")), "answer-one")
        cell.metadata.tags = ["nbval-skip", "raises-exception"]
        cell.outputs = [{"output_type": "stream", "name": "stdout", "text": "x"}]
        cell_of(exercise, "check-one").source = "print('Correct')"
        exercise.cells.append(as_notebook({**cell, "id": "extra", "metadata": {}, "source": "extra = 1"}))
        made = graft(exercise, trusted).notebook(["one"])
        assert cell_of(made, "answer-one").source == right("one")
        assert cell_of(made, "check-one").source == "check.one(one)"
        assert "tags" not in json.dumps(made)
        assert "extra" not in to_text(made)
        assert [c.id for c in made.cells if c.execution_count is not None] == ["graded-one"]

    def test_ids_serve_where_metadata_are_lost_and_metadata_where_ids_are(self, exercise, trusted):
        answer(exercise, one=right("one"), two=right("two"))
        cell_of(exercise, "answer-one").metadata = {}
        cell_of(exercise, "answer-two").id = "a1b2c3"
        grafted = graft(exercise, trusted)
        assert [name for name, a in grafted.answers.items() if a.attempted] == ["one", "two"]
        assert not grafted.answers["one"].flags + grafted.answers["two"].flags

    def test_of_copies_the_last_changed_one_is_marked(self, exercise, trusted):
        cell = cell_of(answer(exercise, one=wrong("one")), "answer-one")
        copies = [as_notebook({**cell, "id": f"copy-{i}", "source": s}) for i, s in enumerate((right("one"), ""))]
        exercise.cells += copies
        found = graft(exercise, trusted).answers["one"]
        assert found.source == right("one")
        assert found.flags == ("3 cells claim it; the last changed one was marked",)

    def test_a_split_cell_is_marked_as_one(self, exercise, trusted):
        cell = cell_of(answer(exercise, one=right("one")), "answer-one")
        exercise.cells.append(as_notebook({**cell, "id": "rest", "source": "helper = 3"}))
        found = graft(exercise, trusted).answers["one"]
        assert found.source == right("one") + "\n\nhelper = 3"
        assert "marked as one" in found.flags[0]

    def test_a_merged_cell_answers_both_questions(self, exercise, trusted):
        answer(exercise, one=right("one") + "\n\n" + right("two"))
        exercise.cells = [c for c in exercise.cells if c.id != "answer-two"]
        found = graft(exercise, trusted).answers
        assert (found["one"].source, found["two"].source) == (right("one"), right("two"))
        assert found["two"].attempted
        assert "the cell that defines `two` was marked" in found["two"].flags[0]

    def test_a_missing_answer_is_flagged(self, exercise, trusted):
        exercise.cells = [c for c in exercise.cells if c.id != "answer-two"]
        found = graft(exercise, trusted).answers["two"]
        assert (found.attempted, found.flags) == (False, ("its answer cell is missing or empty",))

    def test_an_emptied_answer_is_flagged(self, exercise, trusted):
        found = graft(answer(exercise, one="  \n"), trusted).answers["one"]
        assert (found.attempted, found.flags) == (False, ("its answer cell is missing or empty",))

    def test_a_retyped_cell_is_marked_and_flagged(self, exercise, trusted):
        cell_of(answer(exercise, one=right("one")), "answer-one").cell_type = "raw"
        found = graft(exercise, trusted).answers["one"]
        assert found.attempted
        assert "no code cell any more" in found.flags[0]

    def test_another_notebook_is_refused(self, exercise, trusted, course):
        with pytest.raises(CourseError, match="this is the solution of 01_multiples"):
            graft(trusted, trusted)
        exercise.metadata.course.topic = "02_other"
        with pytest.raises(CourseError, match="this is 02_other, not 01_multiples"):
            graft(exercise, trusted)
        with pytest.raises(CourseError, match="no answer cell of 01_multiples"):
            graft(as_notebook({**exercise, "metadata": {}, "cells": exercise.cells[:1]}), trusted)

    def test_a_solution_that_was_not_executed_is_refused(self, exercise, course):
        with pytest.raises(CourseError, match="no graded output for 'one'; run `course build`"):
            graft(exercise, plan("01_multiples", course)["solutions"].notebook)


class TestMarking:
    def test_each_outcome_and_its_words(self, exercise, trusted):
        answer(
            exercise,
            one=right("one") + "\n\none(3) / 0  # a trial of one's own that fails",
            two=wrong("two"),
            three="def three(n):\n    k = n - n\n    return n // k",
            four="def four(n):\n    return n * 4 if n > 0 else 0",
            five="def five(n):\n    return n * 5\n  pass",
            six="def six(n):\n    return np.prod([n, factor])",
        )
        helpers = "import math, numpy as np\n%precision 3\nfactor = 6"
        exercise.cells.append(as_notebook({**exercise.cells[1], "id": "mine", "metadata": {}, "source": helpers}))
        marks = mark(graft(exercise, trusted), LIMITS)
        assert outcomes(marks) == {
            "one": Outcome.CORRECT,
            "two": Outcome.WRONG,
            "three": Outcome.CRASHED,
            "four": Outcome.WRONG,
            "five": Outcome.CRASHED,
            "six": Outcome.CORRECT,
        }
        said = {q.question: q.diagnosis for q in marks.questions}
        assert said["two"] == "You added; multiply."
        assert "ZeroDivisionError: integer division or modulo by zero, in line 3 of your cell" in said["three"]
        assert said["four"] == "Right for the inputs of the check, not for others: `four(-3)` returned 0"
        assert said["five"].startswith("IndentationError: ")
        assert marks.questions[5].flags == ("with it was marked what other cells define for it: factor, math, np",)
        assert (marks.points, marks.out_of) == (7, 21)
        counted = {q.question: q.counts for q in marks.questions}
        assert counted["one"] == (2, 2, 1)
        assert counted["two"] == (0, 2, 1)
        assert counted["four"] == (1, 2, 1)
        assert read_back(Marks, json.loads(json.dumps(asdict(marks)))) == marks

    def test_what_the_notebook_refuses_is_refused(self, exercise, trusted):
        answer(exercise, one="def one(n):\n    return n if n != 7 else 0", two=right("two"))
        one, two, *_ = mark(graft(exercise, trusted), LIMITS).questions
        assert (one.outcome, one.points) == (Outcome.WRONG, 0)  # though it is right for all inputs that were drawn
        assert one.diagnosis.startswith("Right for 1 of 2 inputs, but `one(7)` returned 0, expected 7.")
        assert (two.outcome, two.points) == (Outcome.CORRECT, 2)

    def test_loops_and_dead_kernels_cost_their_own_question_only(self, exercise, trusted, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        answer(
            exercise,
            one="def one(n):\n    while True:\n        pass",
            two=right("two"),
            three="def three(n):\n    import os\n    os._exit(1)",
            four="while True:\n    try:\n        print('x' * 100, flush=True)\n    except BaseException:\n        pass",
            five=right("five"),
            six=wrong("six"),
        )
        marks = mark(graft(exercise, trusted), LIMITS)
        assert outcomes(marks) == {
            "one": Outcome.CRASHED,
            "two": Outcome.CORRECT,
            "three": Outcome.CRASHED,
            "four": Outcome.CRASHED,
            "five": Outcome.CORRECT,
            "six": Outcome.WRONG,
        }
        said = {q.question: q.diagnosis for q in marks.questions}
        assert said["one"] == said["four"] == "It ran for more than 3 seconds. Is there a loop that never ends?"
        assert said["three"].startswith("It ended the kernel")
        assert not list(tmp_path.iterdir())
        assert not [p for p in psutil.process_iter(["cwd"]) if str(p.info["cwd"]).startswith(str(tmp_path))]

    def test_tricks_win_nothing(self, exercise, trusted):
        fake = "lambda *_: type('F', (), {'__repr__': lambda self: 'Correct: good'})()"
        answer(
            exercise,
            one=wrong("one") + f"\ncheck.one = {fake}",
            two=wrong("two") + f"\nimport classroom.questions.functions as core\ncore.Check.__call__ = {fake}"
            "\ncore.equal = lambda *_: True\ncore.Check._judge = lambda *_: (core.Outcome.CORRECT, 'good')",
            three="# NBVAL_SKIP\n" + wrong("three") + "\n# NBVAL_IGNORE_OUTPUT",
            four=wrong("four") + "\nget_ipython().input_transformers_post.append("
            "lambda lines: [] if any('graded.four' in line for line in lines) else lines)",
            five=wrong("five") + "\nclass Same:\n    __eq__ = lambda *_: True\n    __hash__ = None\n"
            "five = lambda n: Same()",
            six=wrong("six") + "\nfrom classroom.questions import graded as g\ng.Graded.lines = lambda *_: []",
        )
        cell_of(exercise, "answer-six").metadata.tags = ["nbval-ignore-output"]
        exercise.cells = [c for c in exercise.cells if not c.id.startswith("check-")]
        marks = mark(graft(exercise, trusted), LIMITS)
        assert marks.points == 0
        assert set(outcomes(marks).values()) <= {Outcome.WRONG, Outcome.CRASHED}

    def test_no_comment_steers_nbval(self, exercise, trusted):
        for question, marker in zip(NAMES, nbval.plugin.comment_markers, strict=False):
            answer(exercise, **{question: f"# {marker}\n{right(question)}\n    ##  {marker}  "})
        marks = mark(graft(exercise, trusted), LIMITS)
        assert [one.outcome for one in marks.questions[:5]] == [Outcome.CORRECT] * 5

    def test_nothing_runs_when_nothing_was_attempted(self, exercise, trusted, monkeypatch):
        monkeypatch.setattr("classroom.grading.mark.run_notebook", None)
        assert set(outcomes(mark(graft(exercise, trusted))).values()) == {Outcome.NOT_ATTEMPTED}

    def test_a_solution_that_does_not_run_here_is_nobodys_fault(self, exercise, trusted):
        grafted = graft(answer(exercise, one=right("one")), as_notebook(trusted))
        cell_of(grafted.trusted, "code-1").source = "import os\nos._exit(3)"
        with pytest.raises(CourseError, match=r"cell code-1 of the solution does not run here \(died\)"):
            mark(grafted, LIMITS)


class TestRun:
    def test_time_for_the_whole_is_bounded_and_nothing_stays_behind(self):
        process = CONTEXT.Process(target=subprocess.run, args=([sys.executable, "-c", "import time; time.sleep(99)"],))
        process.start()
        line, judge = CONTEXT.Pipe(duplex=False)
        for said in (CellVerdict("a", "died"), CellVerdict("a", "passed"), CellVerdict("b", "died")):
            judge.send(said)
        for _ in range(100):
            if family := psutil.Process(process.pid).children():
                break
            time.sleep(0.1)
        told = []
        found = _follow(process, line, Limits(whole=0.3), (), told.append, None)
        assert [(one.cell, one.verdict) for one in found] == [("a", "passed"), ("b", "timeout")]
        assert told == ["a", "b"]
        assert process.exitcode is not None
        assert len(family) == 1
        assert not psutil.wait_procs(family, timeout=10)[1]

    def test_a_notebook_that_cannot_start_is_one_line(self):
        with pytest.raises(CourseError, match="marking could not start: "):
            run_notebook(as_notebook({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), LIMITS)

    def test_an_unexpected_pass_is_no_pass(self):
        item = SimpleNamespace(parent=SimpleNamespace(timed_out=False))
        call = SimpleNamespace(excinfo=None)
        assert plugin._verdict(item, call, SimpleNamespace(passed=True)) == "passed"
        assert plugin._verdict(item, call, SimpleNamespace(passed=True, wasxfail="reason: timed out")) == "failed"


@pytest.fixture
def attempted(course, exercise, tmp_path):
    """A course in which the learner has saved two answers; marking is replaced by a count of what was asked."""
    root = tmp_path / "course"
    (root / "exercises").mkdir(parents=True)
    (root / "solutions").mkdir()
    for name in ("01_multiples", "02_more"):
        for folder in ("exercises", "solutions"):
            notebook = read_notebook(course / folder / "01_multiples.ipynb")
            notebook.metadata.course.topic = name
            if (folder, name) == ("exercises", "01_multiples"):
                answer(notebook, one=right("one"), two=wrong("two"))
            (root / folder / f"{name}.ipynb").write_text(to_text(notebook))
    return root


@pytest.fixture
def asked(monkeypatch):
    """Topics that were marked; every attempted answer counts as correct."""
    topics = []

    def fake(grafted, limits=None, on_question=None):
        tried = [a.attempted for a in grafted.answers.values()]
        if any(tried):
            topics.append(grafted.topic)
        outcome = {True: Outcome.CORRECT, False: Outcome.NOT_ATTEMPTED}
        return Marks(
            grafted.topic,
            tuple(
                QuestionMark(
                    q.name, q.title, outcome[t], q.points * t, q.points, "[said]", grafted.answers[q.name].flags
                )
                for q, t in zip(grafted.questions, tried, strict=True)
            ),
        )

    monkeypatch.setattr(report, "mark", fake)
    return topics


def run(command, args, root):
    console = Console(width=120)
    with console.capture() as captured:
        code = command(args, root=root, console=console)
    return code, captured.get()


class TestCommands:
    def test_check_marks_what_is_attempted(self, attempted, asked):
        code, text = run(report.check_command, [], attempted)
        assert asked == ["01_multiples"]
        assert code == 1
        assert "01_multiples.ipynb: 3 of 21 points" in text
        assert "1. Times one" in text
        assert "not attempted" in text
        assert "[said]" in text

    def test_a_diagnosis_has_the_whole_width_of_80_columns_and_names_the_hints(self, attempted, asked, monkeypatch):
        instead, said = report.mark, "It is four times too large: do not count bytes that are not there, [so] be"

        def wrong_one(*args, **more):
            marks = instead(*args, **more)
            first = replace(marks.questions[0], outcome=Outcome.WRONG, points=0, diagnosis=said)
            return replace(marks, questions=(first, *marks.questions[1:]))

        monkeypatch.setattr(report, "mark", wrong_one)
        console = Console(width=80)
        with console.capture() as captured:
            report.check_command(["01"], root=attempted, console=console)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        assert f"   {said}" in lines
        assert "   Hints below it, open the one that fits: a / c" in lines
        assert lines[-1] == "Next: mend 1. Times one, save the notebook, and check again."

    def test_signs_have_colours_and_words_the_terminals_own(self, attempted, asked):
        console = Console(width=80, force_terminal=True, color_system="standard", legacy_windows=False)
        with console.capture() as captured:
            report.check_command(["01"], root=attempted, console=console)
        assert "\x1b[32m✓\x1b[0m correct" in captured.get()

    def test_on_a_phone_progress_cuts_no_name(self, attempted, asked):
        console = Console(width=38)
        with console.capture() as captured:
            report.progress_command([], root=attempted, console=console)
        assert "…" not in captured.get()
        assert "01_multip" in captured.get()
        assert "3 of 21" in captured.get()

    def test_check_and_progress_give_partial_points_when_asked(self, attempted, asked, monkeypatch):
        instead = report.mark
        half = {"outcome": Outcome.WRONG, "points": 0, "counts": Counts(3, 4, 1)}

        def partly(*args, **more):
            marks = instead(*args, **more)
            return replace(marks, questions=(marks.questions[0], replace(marks.questions[1], **half)))

        monkeypatch.setattr(report, "mark", partly)
        for given, points in ([], "1 of 3 points"), (["--partial"], "2 of 3 points"), ([], "1 of 3 points"):
            assert points in run(report.check_command, ["1", *given], attempted)[1]
        assert "2 of 3" in run(report.progress_command, ["--partial"], attempted)[1]

    def test_check_finds_an_exercise_by_number_name_and_path(self, attempted, asked):
        for name in ("1", "01", "01_multiples", str(attempted / "exercises" / "01_multiples.ipynb")):
            assert "3 of 21 points" in run(report.check_command, [name], attempted)[1]
        moved = attempted / "mine.ipynb"
        moved.write_text((attempted / "exercises" / "01_multiples.ipynb").read_text())
        assert "mine.ipynb: 3 of 21" in run(report.check_command, [str(moved)], attempted)[1]

    def test_check_returns_0_when_everything_is_right_and_names_the_next_lesson(self, attempted, asked):
        path = attempted / "exercises" / "01_multiples.ipynb"
        path.write_text(to_text(answer(read_notebook(path), **{name: right(name) for name in NAMES})))
        for lessons, step in (([], "this is the last."), (["01_multiples", "02_more"], "work/notebooks/02_more.ipynb")):
            for name in lessons:
                (attempted / "notebooks").mkdir(exist_ok=True)
                (attempted / "notebooks" / f"{name}.ipynb").touch()
            code, text = run(report.check_command, ["01"], attempted)
            assert code == 0
            assert text.rstrip().splitlines()[-1].startswith("All are right")
            assert text.rstrip().endswith(step)

    def test_check_never_asks_to_mend_what_is_not_wrong(self, attempted, asked):
        text = run(report.check_command, ["01"], attempted)[1]
        assert text.rstrip().splitlines()[-1].strip() == "Nothing to mend, 4 to go. Next: 3. Times three."

    def test_the_copy_in_work_is_marked_and_the_courses_own_where_only_that_has_answers(self, attempted, asked):
        own = attempted / "work" / "exercises" / "01_multiples.ipynb"
        own.parent.mkdir(parents=True)
        own.write_text((attempted / "exercises" / "02_more.ipynb").read_text().replace("02_more", "01_multiples"))
        assert "exercises/01_multiples.ipynb: 3 of 21" in run(report.check_command, ["01"], attempted)[1]
        own.write_text(to_text(answer(read_notebook(own), one=right("one"))))
        assert "work/exercises/01_multiples.ipynb: 1 of 21" in run(report.check_command, ["01"], attempted)[1]
        assert "1 of 42" in run(report.progress_command, [], attempted)[1]

    def test_what_was_flagged_is_shown(self, attempted, asked):
        path = attempted / "exercises" / "01_multiples.ipynb"
        notebook = read_notebook(path)
        notebook.cells = [c for c in notebook.cells if c.id != "answer-three"]
        path.write_text(to_text(notebook))
        assert "3. Times three: its answer cell is missing or empty." in run(report.check_command, ["01"], attempted)[1]

    def test_an_import_that_is_lost_where_a_teacher_grades_is_said(self, attempted, asked):
        path = attempted / "exercises" / "01_multiples.ipynb"
        imports = "from classroom.questions.core import percent\nimport lessons.shared.parallel\n"
        path.write_text(to_text(answer(read_notebook(path), one=imports + right("one"))))
        text = " ".join(run(report.check_command, ["01"], attempted)[1].split())
        assert "1. Times one: `lessons.shared.parallel` will not be there when this is graded" in text
        assert "`classroom.questions.core`" not in text

    def test_nothing_attempted_is_said(self, attempted, asked):
        (attempted / "exercises" / "01_multiples.ipynb").unlink()
        code, text = run(report.check_command, [], attempted)
        assert (code, asked) == (1, [])
        assert "Nothing attempted yet" in text

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["07"], "no exercise or notebook '07'; there is 01_multiples, 02_more"),
            (["none.ipynb"], "none.ipynb cannot be read"),
            (["01", "--seconds", "0"], "--seconds must be more than 0"),
        ],
    )
    def test_mistakes_are_one_line(self, attempted, args, message):
        with pytest.raises(CourseError, match=message) as caught:
            run(report.check_command, args, attempted)
        assert len(str(caught.value).splitlines()) == 1

    def test_a_broken_file_is_named(self, attempted):
        path = attempted / "exercises" / "01_multiples.ipynb"
        for content, message in {"": "is empty", "{": "not valid JSON", "[]": "no notebook"}.items():
            path.write_text(content)
            with pytest.raises(CourseError, match=message) as caught:
                run(report.check_command, ["01"], attempted)
            assert str(path) in str(caught.value)
        path.write_text((attempted / "exercises" / "02_more.ipynb").read_text())
        with pytest.raises(CourseError, match=r"01_multiples\.ipynb: this is 02_more, not 01_multiples"):
            run(report.check_command, ["01"], attempted)

    def test_progress_runs_only_what_changed(self, attempted, asked):
        for _ in range(2):
            code, text = run(report.progress_command, [], attempted)
            assert code == 0
            assert "✓ ✓ · · · ·" in text
            assert "2 of 6" in text
            assert "3 of 42" in text
        assert asked == ["01_multiples"]
        path = attempted / "exercises" / "01_multiples.ipynb"
        notebook = read_notebook(path)
        notebook.cells[1].source = "# another set-up cell changes no answer"
        path.write_text(to_text(notebook))
        run(report.progress_command, [], attempted)
        assert asked == ["01_multiples"]
        path.write_text(to_text(answer(notebook, three=right("three"))))
        assert "6 of 42" in run(report.progress_command, [], attempted)[1]
        assert asked == ["01_multiples"] * 2
        solution = attempted / "solutions" / "01_multiples.ipynb"
        solution.write_text(solution.read_text().replace("Times one", "Once"))
        run(report.progress_command, [], attempted)
        assert asked == ["01_multiples"] * 3

    def test_check_is_remembered_by_progress_and_a_damaged_memory_is_made_again(self, attempted, asked):
        run(report.check_command, ["01"], attempted)
        run(report.progress_command, [], attempted)
        assert asked == ["01_multiples"]
        (attempted / ".course" / "marks.json").write_text("{")
        run(report.progress_command, [], attempted)
        assert asked == ["01_multiples"] * 2

    def test_progress_shows_the_others_when_one_file_is_broken(self, attempted, asked):
        (attempted / "exercises" / "02_more.ipynb").write_text("{")
        code, text = run(report.progress_command, [], attempted)
        assert code == 0
        assert "cannot be read" in text
        assert "3 of 21" in text
        assert "not valid JSON" in " ".join(text.split())


class TestDefines:
    @pytest.mark.parametrize(
        "source",
        [
            "def a(n): pass",
            "class a:",
            "a = 3",
            "a: int = 3",
            "import a",
            "import x as a",
            "from b import x, a",
            "async def a():",
            "a, b = 1, 2",
            "b, a = 1, 2",
        ],
    )
    def test_it_sees_what_binds_a_name(self, source):
        assert defines(f"x = 1\n{source}", ["a"])

    @pytest.mark.parametrize("source", ["a == 3", "    a = 3", "def ab(): pass", "b = a", "# a = 3", "a, b == 3"])
    def test_it_sees_nothing_else(self, source):
        assert not defines(source, ["a"])


def test_the_solution_of_exercise_03_earns_every_point():
    solution = read_notebook(ROOT / "solutions" / "03_memory.ipynb")
    exercise = read_notebook(ROOT / "exercises" / "03_memory.ipynb")
    for cell in solution.cells:
        if cell.id.startswith("answer-"):
            cell_of(exercise, cell.id).source = cell.source
    marks = mark(graft(exercise, solution), Limits(cell=120))
    assert marks.points == marks.out_of, marks
