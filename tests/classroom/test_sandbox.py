"""What an answer can do in its sandbox: earn all points as a solution does, forge no verdict, harm no neighbour."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from amount import THOROUGH
from multiples import answer, build_course, cell_of, imports_of_every_exercise, mark_stranger

from classroom.grading import run, sandbox
from classroom.grading.graft import graft
from classroom.grading.mark import QuestionMark, decide, explain, with_partial_points
from classroom.grading.run import Limits
from classroom.grading.sandbox import Confinement, Sandbox
from classroom.grading.secret import reference
from classroom.notebooks import parse_notebook, read_notebook, to_text
from classroom.questions.core import Outcome
from course_utils.units import CourseError
from lessons.memory import checks as memory

pytestmark = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")
ROOT = Path(__file__).resolve().parents[2]
TOPICS = sorted(path.stem for path in (ROOT / "solutions").glob("*.ipynb"))
ALWAYS = {TOPICS[0], TOPICS[-1]}  # each takes some 20 seconds of processor time


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with contextlib.closing(Sandbox(imports_of_every_exercise(), Confinement())) as made:
        yield made


def test_an_answer_is_told_its_slip_though_a_later_one_takes_its_helper_away(box: Sandbox, tmp_path: Path) -> None:
    course = build_course(tmp_path)
    exercise, solution = (read_notebook(course / name / "01_multiples.ipynb") for name in ("exercises", "solutions"))
    answers = {
        "two": "def helper(n):\n    return n + 2\ndef two(n):\n    return helper(n)",
        "three": "def helper(n, factor):\n    return n * factor\ndef three(n):\n    return helper(n, 3)",
        "four": "def four(n):\n    return 28 if n == 7 else 20 if n == 5 else 0",
    }
    grafted = graft(answer(exercise, **answers), reference(solution, "s"))
    found = {one.question: one for one in mark_stranger(grafted, Limits(cell=20), box).questions}
    assert (found["two"].outcome, found["two"].diagnosis) == (Outcome.WRONG, "You added; multiply.")
    assert found["three"].outcome is Outcome.CORRECT
    assert found["four"].diagnosis.startswith("Right for the inputs of the check, not for others: `four(")


def solutions() -> list[object]:
    """Every exercise; most are skipped, visibly, unless asked for."""
    skip = pytest.mark.skipif(not THOROUGH, reason="make test-thorough grades all solutions, in some minutes")
    return [pytest.param(topic, marks=[] if topic in ALWAYS else [skip]) for topic in TOPICS]


@pytest.mark.parametrize("topic", solutions())
def test_a_solution_earns_every_point_in_a_sandbox(topic: str, box: Sandbox) -> None:
    exercise = read_notebook(ROOT / "exercises" / f"{topic}.ipynb")
    solution = read_notebook(ROOT / "solutions" / f"{topic}.ipynb")
    answers = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    for cell in exercise.cells:
        cell.source = answers.get(cell.id, cell.source)
    grafted = graft(exercise, reference(solution, "a seed"))
    marks = mark_stranger(grafted, Limits(cell=120, whole=600), box)
    assert marks.points == marks.out_of, marks
    assert with_partial_points(marks) == marks
    assert all(q.counts.right == q.counts.inputs for q in marks.questions)


# -- verdicts that are made inside the learner's process ---------------------------------------------------------------


def solution_text(topic: str, question: str) -> str:
    return cell_of(read_notebook(ROOT / "solutions" / f"{topic}.ipynb"), f"answer-{question}").source


LOOKS = """\
def map_bytes(*sizes):
    from pathlib import Path
    from lessons.memory import checks
    raise KeyError if "Slip(" in Path(checks.__file__).read_text() else IndexError
"""
UNCHANGED = "class KeepsLess(Watched):\n    pass"
PATCH = """\
from lessons.shared import judged as rooms
words = "can be replayed, parameters kept, output shape kept, same output, same gradients, peak low enough"
rooms.GradedReplay.lines = lambda self, answer: [f"{one}: yes" for one in words.split(", ")]
"""


@functools.cache
def exercise(topic: str) -> tuple[str, str]:
    """The exercise, and what right answers print, as texts."""
    solution = read_notebook(ROOT / "solutions" / f"{topic}.ipynb")
    return to_text(read_notebook(ROOT / "exercises" / f"{topic}.ipynb")), to_text(reference(solution, "a seed"))


def mark_03(box: Sandbox, topic: str = "03_memory", **answers: str) -> dict[str, QuestionMark]:
    """The marks of exercise 03, or another, with these answers."""
    given, trusted = (parse_notebook(text.encode(), topic) for text in exercise(topic))
    grafted = graft(answer(given, **answers), trusted)
    return {one.question: one for one in mark_stranger(grafted, Limits(cell=60), box).questions}


def solution_of(question: str) -> str:
    return solution_text("03_memory", question)


def test_a_stranger_is_told_the_slip_by_a_check_that_the_sandbox_had_as_a_stub(box: Sandbox) -> None:
    slip = "def map_bytes(batch, channels, height, width, value_bytes=4):\n    return batch * channels * height * width"
    messages = [one.message for one in memory.map_bytes.slips]
    assert mark_03(box, map_bytes=slip)["map_bytes"].diagnosis in messages


def test_a_check_is_a_stub_whenever_marks_are_decided(box: Sandbox) -> None:
    answers = {"map_bytes": LOOKS}
    given, trusted = (parse_notebook(text.encode(), "03_memory") for text in exercise("03_memory"))
    grafted, limits = graft(answer(given, **answers), trusted), Limits(cell=60)
    for _ in range(2):  # the second time the sandbox has shown them
        marks, found = decide(grafted, limits, box)
        assert {one.question: one for one in marks.questions}["map_bytes"].diagnosis.endswith("crashed: IndexError")
        told = explain(grafted, marks, found, limits, box)
        assert "KeyError" in {one.question: one for one in told.questions}["map_bytes"].diagnosis


def test_a_forged_verdict_earns_nothing(box: Sandbox) -> None:
    found = mark_03(box, keep_less=PATCH + UNCHANGED)["keep_less"]
    assert (found.outcome, found.points) == (Outcome.WRONG, 0)


def test_a_right_network_earns_its_points_whatever_it_imports(box: Sandbox) -> None:
    """What it does is replayed in another process, so nobody has to look at how it came about."""
    found = mark_03(box, keep_less=f"import gc\n{solution_of('keep_less')}")["keep_less"]
    assert found.points == found.out_of


SAYS_YES = """\
from lessons.shared import judged as rooms
words = "can be replayed, weights follow float32's, skipped batches counted, maps in float16"
rooms.GradedReplay.lines = lambda self, answer: [f"{one}: yes" for one in words.split(", ")]
def keep_small(*_):
    return 0
"""


def test_a_verdict_that_is_forged_in_its_process_earns_nothing(box: Sandbox) -> None:
    found = mark_03(box, "08_half_precision", keep_small=SAYS_YES)["keep_small"]
    assert (found.outcome, found.points) == (Outcome.WRONG, 0)


def test_an_answer_that_replaces_the_judge_helps_and_harms_no_other(box: Sandbox) -> None:
    patch = f"{PATCH}\n{solution_of('map_bytes')}"
    helped = mark_03(box, map_bytes=patch, keep_less=UNCHANGED)
    assert (helped["map_bytes"].points, helped["keep_less"].points) == (helped["map_bytes"].out_of, 0)
    assert helped["keep_less"].outcome is Outcome.WRONG
    beside = mark_03(box, map_bytes=patch, keep_less=solution_of("keep_less"))
    assert beside["keep_less"].points == beside["keep_less"].out_of


def test_a_full_disk_is_said_in_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x" * 48_760)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sandbox, "copy_without_answers", full)
    with pytest.raises(CourseError) as raised:
        Sandbox(frozenset(), Confinement())
    assert str(raised.value) == "the sandbox could not be made: No space left on device"
    assert os.listdir(tmp_path) == []


# -- neighbours, and who listens to a kernel ---------------------------------------------------------------------------


def test_no_two_sandboxes_have_the_same_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SEAT", f"test-{os.getpid()}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    seats = [sandbox._take_processor() for _ in range(3)]
    assert [processors for _, processors in seats] == [[3], [5], [3, 5]]
    seats[0][0].close()
    again = sandbox._take_processor()
    assert again[1] == [3]
    for seat, _ in (again, *seats):
        seat.close()


@pytest.mark.parametrize("bytes_sent", [run.LARGEST_JUDGE, 0])
def test_what_waits_for_the_judge_is_bounded(bytes_sent: int) -> None:
    program = f"import time; kept = b'x' * {bytes_sent}; print(flush=True); time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert bool(run._flooded(process)) == bool(bytes_sent)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not run._flooded(process)
