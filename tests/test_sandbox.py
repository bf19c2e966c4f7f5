"""What an answer can do in its sandbox: earn all points as a solution does, make no namespace, forge no verdict."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from multiples import NAMES, answer, build_course, cell_of, right

from course_utils.checks.core import Outcome
from course_utils.grading import sandbox, syscalls
from course_utils.grading.graft import graft
from course_utils.grading.mark import QuestionMark, mark, with_partial_points
from course_utils.grading.run import Limits
from course_utils.grading.sandbox import Sandbox
from course_utils.grading.secret import checks_cell, reference
from course_utils.notebook_files import parse_notebook, read_notebook, to_text

pytestmark = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")
ROOT = Path(__file__).resolve().parents[1]
TOPICS = sorted(path.stem for path in (ROOT / "solutions").glob("*.ipynb"))
ALWAYS = {TOPICS[0], TOPICS[-1]}  # each takes some 20 seconds of processor time


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


# Every way into a new namespace, and two to have them allowed again. What succeeds is raised.
ESCAPES = """\
import ctypes
import os
import subprocess

libc = ctypes.CDLL(None, use_errno=True)
done = []
for flag in (0x10000000, 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000, 0x02000000, 0x00000080):
    for flags in (flag, flag | 0x10000000):
        if libc.unshare(flags) == 0:
            done.append(f"unshare {flags:#x}")
        if flag == 0x80:  # to clone, this says which signal ends it
            continue
        child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, flags | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
            done.append(f"clone {flags:#x}")
for command in (["unshare", "--user", "true"], ["unshare", "--map-root-user", "--mount", "true"]):
    if subprocess.run(command, capture_output=True).returncode == 0:
        done.append(" ".join(command))
try:
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("100")
    done.append("the limit lifted")
except OSError:
    pass
assert not done, done
def three(n):
    return 3 * n
"""


REFUSED = f"""\
import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
column = ("x86_64", "aarch64").index(os.uname().machine)
numbers = {syscalls.REFUSED}
allowed = []
for name, number in numbers.items():
    ctypes.set_errno(0)
    if libc.syscall(number[column], 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
        allowed.append(name)
assert not allowed, allowed
child = os.fork()
if child == 0:
    os._exit(libc.syscall(numbers["ptrace"][column], 0, 0, 0, 0) == 0)  # that it be traced, which anybody may ask for
assert os.waitpid(child, 0)[1] == 0
def three(n):
    return 3 * n
"""


@pytest.mark.parametrize("source", [ESCAPES, REFUSED], ids=["namespaces", "system calls"])
def test_no_graded_cell_gets_what_it_has_no_need_of(source: str, box: Sandbox, tmp_path: Path) -> None:
    course = build_course(tmp_path)
    exercise = read_notebook(course / "exercises" / "01_multiples.ipynb")
    trusted = reference(read_notebook(course / "solutions" / "01_multiples.ipynb"), "a seed")
    answers = {name: right(name) for name in NAMES} | {"three": source}
    grafted = dataclasses.replace(graft(answer(exercise, **answers), trusted), checks=checks_cell())
    marks = mark(grafted, Limits(cell=20), sandbox=box)
    assert not marks.questions[2].diagnosis
    assert marks.points == marks.out_of


def test_an_answer_is_told_its_slip_though_a_later_one_takes_its_helper_away(box: Sandbox, tmp_path: Path) -> None:
    course = build_course(tmp_path)
    exercise, solution = (read_notebook(course / name / "01_multiples.ipynb") for name in ("exercises", "solutions"))
    answers = {
        "two": "def helper(n):\n    return n + 2\ndef two(n):\n    return helper(n)",
        "three": "def helper(n, factor):\n    return n * factor\ndef three(n):\n    return helper(n, 3)",
        "four": "def four(n):\n    return 28 if n == 7 else 20 if n == 5 else 0",
    }
    grafted = dataclasses.replace(graft(answer(exercise, **answers), reference(solution, "s")), checks=checks_cell())
    found = {one.question: one for one in mark(grafted, Limits(cell=20), sandbox=box).questions}
    assert (found["two"].outcome, found["two"].diagnosis) == (Outcome.WRONG, "You added; multiply.")
    assert found["three"].outcome is Outcome.CORRECT
    assert found["four"].diagnosis.startswith("Right for the inputs of the check, not for others: `four(")


def solutions() -> list[object]:
    """Every exercise; most are skipped, visibly, unless asked for."""
    skip = pytest.mark.skipif(
        not os.environ.get("COURSE_HOSTILE"), reason="COURSE_HOSTILE=1 grades all solutions, in some minutes"
    )
    return [pytest.param(topic, marks=[] if topic in ALWAYS else [skip]) for topic in TOPICS]


@pytest.mark.parametrize("topic", solutions())
def test_a_solution_earns_every_point_in_a_sandbox(topic: str, box: Sandbox) -> None:
    exercise = read_notebook(ROOT / "exercises" / f"{topic}.ipynb")
    solution = read_notebook(ROOT / "solutions" / f"{topic}.ipynb")
    answers = {cell.id: cell.source for cell in solution.cells if cell.id.startswith("answer-")}
    for cell in exercise.cells:
        cell.source = answers.get(cell.id, cell.source)
    grafted = dataclasses.replace(graft(exercise, reference(solution, "a seed")), checks=checks_cell())
    marks = mark(grafted, Limits(cell=120, whole=600), sandbox=box)
    assert marks.points == marks.out_of, marks
    assert with_partial_points(marks) == marks
    assert all(q.counts.right == q.counts.inputs for q in marks.questions)


# -- verdicts that are made inside the learner's process ---------------------------------------------------------------


def solution_text(topic: str, question: str) -> str:
    return cell_of(read_notebook(ROOT / "solutions" / f"{topic}.ipynb"), f"answer-{question}").source


UNCHANGED = "class KeepsLess(Watched):\n    pass"
PATCH = """\
from course_utils.grading import graded as rooms
words = "parameters kept, output shape kept, same output, same gradients, peak low enough"
rooms.GradedProperties.lines = lambda self, answer: [f"{word}: yes" for word in words.split(", ")]
"""
FORGED = {
    "the judge replaced": (PATCH + UNCHANGED, "the course's own. That is no answer"),
    "the judge reached": (
        "import gc\n" + solution_text("03_memory", "keep_less"),
        "Held: it passes, but it imports `gc`",
    ),
}


@functools.cache
def exercise_03() -> tuple[str, str]:
    """The exercise, and what right answers print, as texts."""
    solution = read_notebook(ROOT / "solutions" / "03_memory.ipynb")
    return to_text(read_notebook(ROOT / "exercises" / "03_memory.ipynb")), to_text(reference(solution, "a seed"))


def mark_03(box: Sandbox, **answers: str) -> dict[str, QuestionMark]:
    """The marks of exercise 03 with these answers."""
    exercise, trusted = (parse_notebook(text.encode(), "exercise 03") for text in exercise_03())
    grafted = dataclasses.replace(graft(answer(exercise, **answers), trusted), checks=checks_cell())
    return {one.question: one for one in mark(grafted, Limits(cell=60), sandbox=box).questions}


def solution_of(question: str) -> str:
    return solution_text("03_memory", question)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_verdict_earns_nothing(name: str, box: Sandbox) -> None:
    source, words = FORGED[name]
    found = mark_03(box, keep_less=source)["keep_less"]
    assert found.points == 0
    assert words in found.diagnosis


def test_an_answer_that_replaces_the_judge_helps_and_harms_no_other(box: Sandbox) -> None:
    patch = f"{PATCH}\n{solution_of('map_bytes')}"
    helped = mark_03(box, map_bytes=patch, keep_less=UNCHANGED)
    assert (helped["map_bytes"].points, helped["keep_less"].points) == (0, 0)  # it imports the judge: no answer
    assert helped["keep_less"].outcome is Outcome.WRONG
    beside = mark_03(box, map_bytes=patch, keep_less=solution_of("keep_less"))
    assert beside["keep_less"].points == beside["keep_less"].out_of
