"""A class with hostile members: each gets what it must, its other answers keep their marks, nothing is left behind."""

from __future__ import annotations

import dataclasses
import html
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hostile import ANSWERS, Hostile
from multiples import NAMES, answer, build_course, right
from nbformat import NotebookNode

from course_utils.checks.core import Outcome
from course_utils.grading import sandbox
from course_utils.grading.batch import Result
from course_utils.grading.gradebook import feedback_page
from course_utils.grading.graft import graft
from course_utils.grading.mark import Marks, mark
from course_utils.grading.run import Limits
from course_utils.grading.sandbox import Confinement, Sandbox
from course_utils.grading.secret import checks_cell, reference
from course_utils.notebook_files import read_notebook
from course_utils.units import GIB

pytestmark = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")

# The others take minutes: their runs end at time-outs, or are repeated question by question.
ALWAYS = {
    "os._exit", "one huge request", "network", "graded cells replaced", "a text that forges a line",
    "script in what it returns", "reads the seed", "looks for solutions", "looks for other submissions",
    "writes to the library", "searches memory for the answer", "asks for input",
}  # fmt: skip
ALL = bool(os.environ.get("COURSE_HOSTILE"))

LIMITS = Limits(cell=4, whole=60)
CONFINEMENT = Confinement(memory_bytes=GIB, address_bytes=6 * GIB, processes=64)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_course(tmp_path_factory.mktemp("course"))


@pytest.fixture(scope="module")
def trusted(course: Path) -> NotebookNode:
    return reference(read_notebook(course / "solutions" / "01_multiples.ipynb"), "a seed")


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(CONFINEMENT) as made:
        yield made


def marked(course: Path, trusted: NotebookNode, box: Sandbox, three: str) -> Marks:
    """The marks of a submission with five right answers and this one."""
    exercise = read_notebook(course / "exercises" / "01_multiples.ipynb")
    answers = {name: right(name) for name in NAMES} | {"three": three}
    grafted = dataclasses.replace(graft(answer(exercise, **answers), trusted), checks=checks_cell())
    return mark(grafted, LIMITS, sandbox=box)


def test_the_corpus_is_large_and_its_names_differ() -> None:
    names = {hostile.name for hostile in ANSWERS}
    assert len(names) == len(ANSWERS) >= 55
    assert names > ALWAYS


def corpus() -> list[object]:
    """Every hostile answer; most are skipped, visibly, unless asked for."""
    skip = pytest.mark.skipif(not ALL, reason="COURSE_HOSTILE=1 runs all hostile answers, in some minutes")
    return [
        pytest.param(one, id=one.name.replace(" ", "_"), marks=[] if one.name in ALWAYS else [skip]) for one in ANSWERS
    ]


@pytest.mark.parametrize("hostile", corpus())
def test_it_costs_its_own_question_and_nothing_else(
    hostile: Hostile, course: Path, trusted: NotebookNode, box: Sandbox
) -> None:
    marks = marked(course, trusted, box, hostile.source)
    outcomes = {q.question: q.outcome for q in marks.questions}
    assert outcomes == dict.fromkeys(NAMES, Outcome.CORRECT) | {"three": hostile.outcome}, marks
    three = marks.questions[2]
    assert three.points == (3 if hostile.outcome is Outcome.CORRECT else 0)
    page = feedback_page(Result("somebody", "", "", "", marks))
    assert hostile.words in html.unescape(page) or hostile.words in page, three.diagnosis
    assert "\n" not in three.diagnosis
    assert "<script>" not in page
    box.settle()  # raises if a process is left


def test_the_machine_is_as_it_was(course: Path, trusted: NotebookNode) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with Sandbox(CONFINEMENT) as made:
        home = made.sockets.parent
        marked(course, trusted, made, "import os\nos.fork()\nwhile True:\n    pass")
        assert home.exists()
    assert not home.exists()
    end = time.monotonic() + 10
    while {p.pid for p in psutil.Process().children(recursive=True)} - before and time.monotonic() < end:
        time.sleep(0.1)
    assert not {process.pid for process in psutil.Process().children(recursive=True)} - before


def test_right_answers_are_right_and_are_the_users_own(course: Path, trusted: NotebookNode, box: Sandbox) -> None:
    marks = marked(course, trusted, box, right("three"))
    assert marks.points == marks.out_of
    source = "import os\nassert os.getuid() != 0 and os.geteuid() != 0, 'root'\n" + right("three")
    assert marked(course, trusted, box, source).points == marks.out_of
    assert os.getuid() == os.geteuid()
