"""Two classes of hostile and broken submissions, in `course grade`: each gets what it must, others keep theirs.

`hostile.ANSWERS` misbehave when they run: time, the kernel, memory, processes, disk, output, input, magics, forging,
looking for answers, the seed, other people, the home folder, the network. `broken.FILES` are odd as files: versions,
encodings, size, JSON, other exercises, injections, names; `broken.put` adds links, two files and no file, and
`broken.put_in_zip` a zip with paths, a bomb and a link. What the reader does with files is in test_submissions.
"""

from __future__ import annotations

import csv
import io
import multiprocessing.resource_tracker
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import broken
import lab
import psutil
import pytest
from broken import BESIDE, FILES, IN_ZIP, SCRIPTS, Broken
from hostile import ANSWERS, DIED, Hostile, classes, places
from multiples import NAMES, answer, build_course, right, wrong
from nbformat import NotebookNode
from rich.console import Console

from classroom.grading import command, sandbox, submissions
from classroom.grading.batch import Result, file_name, read_results
from classroom.grading.command import grade_command
from classroom.grading.sandbox import Confinement
from classroom.notebooks import read_notebook, to_text
from classroom.questions.core import Outcome
from course_utils.units import GIB, MIB

pytestmark = pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")

CONFINEMENT = Confinement(memory_bytes=GIB, address_bytes=6 * GIB, processes=32)
LARGEST = 120 * MIB
CLASSES = classes()
PLACES = places(CLASSES)


@dataclass(frozen=True)
class Graded:
    """What came of one class."""

    said: str
    results: dict[str, Result]  # by learner
    rows: dict[str, list[str]]  # of the gradebook
    out: Path

    def page(self, learner: str) -> str:
        result = self.results[learner]
        return (self.out / "feedback" / f"{file_name(learner, result.number)}.html").read_text()


def submission(exercise: Path, member: dict[str, Hostile]) -> NotebookNode:
    answers = {name: right(name) for name in ("one", "six")}
    return answer(read_notebook(exercise), **answers, **{q: one.instead_of(q) for q, one in member.items()})


def grade(course: Path, handed_in: Path, out: Path, seconds: float) -> Graded:
    options = ["--exercise", "1", "--out", out, "--seconds", seconds, "--jobs", 2]
    stream = io.StringIO()
    assert grade_command([str(x) for x in (handed_in, *options)], course, Console(file=stream, width=200)) == 0
    return read_out(out, stream.getvalue())


def read_out(out: Path, said: str = "") -> Graded:
    """What a grading left in its folder."""
    table = list(csv.reader(io.StringIO((out / "gradebook.csv").read_text())))
    results = {result.learner: result for result in read_results(out / "results").values()}
    return Graded(said, results, {row[0]: row for row in table[1:]}, out)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Graded]]:
    """The class of endless answers, in a zip and with little time for a cell, and that of all else, in a folder.

    Among the latter are honest learners, who answer one question right, two, and so on.
    """
    course = build_course(tmp_path_factory.mktemp("course"))
    exercise = course / "exercises" / "01_multiples.ipynb"
    honest = answer(read_notebook(exercise), one=right("one"))
    folder = tmp_path_factory.mktemp("handed_in")
    members = {f"hostile {i}": submission(exercise, member) for i, member in enumerate(CLASSES[True])}
    broken.put_in_zip(folder / "class.zip", honest, members, LARGEST)
    (folder / "class").mkdir()
    broken.put(folder / "class", honest)
    for i, member in enumerate(CLASSES[False]):
        (folder / "class" / f"hostile {i}.ipynb").write_text(to_text(submission(exercise, member)))
    for i in range(len(NAMES)):
        answers = {name: (right if place <= i else wrong)(name) for place, name in enumerate(NAMES)}
        (folder / "class" / f"honest {i}.ipynb").write_text(to_text(answer(read_notebook(exercise), **answers)))
    multiprocessing.resource_tracker.ensure_running()  # a process of the tests', which stays as long as they
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    temporary = tempfile.mkdtemp(prefix="h")  # short: names of sockets may have 107 characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", temporary)
        patch.setattr(command, "Confinement", lambda: CONFINEMENT)
        patch.setattr(submissions, "LARGEST_FILE", LARGEST)
        made = {
            True: grade(course, folder / "class.zip", folder / "endless", 2),
            False: grade(course, folder / "class", folder / "others", 20),
        }
    end = time.monotonic() + 10
    while (left := {p.pid for p in psutil.Process().children(recursive=True)} - before) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "processes were left behind"
    assert os.listdir(temporary) == [], "files were left behind"
    shutil.rmtree(folder / "class")  # 100 MB and more
    yield made
    shutil.rmtree(temporary)


def said(result: Result) -> list[str]:
    """Every line that is said of a submission."""
    marks = result.marks
    return [result.problem, *marks.notes, *(line for q in marks.questions for line in (q.diagnosis, *q.flags))]


def in_order(graded: Graded, learner: str, points: int, words: str) -> None:
    """Whether a submission has its points and its line, in its result, in the gradebook and on its page."""
    result, row = graded.results[learner], graded.rows[in_a_spreadsheet(learner)]
    assert not result.failed
    assert (result.marks.points, row[-3]) == (points, str(points)), said(result)
    assert any(words in line for line in said(result)), said(result)
    assert not any("\n" in line or len(line) > 500 for line in said(result))
    assert f"<b>{points} of 21 points</b>" in graded.page(learner)


def in_a_spreadsheet(learner: str) -> str:
    return f"'{learner}" if learner[0] in "=-" else learner


def test_the_corpus_is_large_and_its_names_differ() -> None:
    assert len({one.name for one in ANSWERS}) == len(ANSWERS) >= 60
    assert len(PLACES) == len(ANSWERS)
    assert len({file.learner for file in FILES} | set(BESIDE)) == len(FILES) + len(BESIDE) >= 50


@pytest.mark.parametrize("hostile", ANSWERS, ids=lambda one: one.name.replace(" ", "_"))
def test_an_answer_costs_its_own_question_and_nothing_else(hostile: Hostile, graded: dict[bool, Graded]) -> None:
    costs_its_own_question_and_nothing_else(hostile, PLACES[hostile.name], graded)


def costs_its_own_question_and_nothing_else(
    hostile: Hostile, place: tuple[bool, int, str], graded: dict[bool, Graded]
) -> None:
    endless, number, question = place
    result = graded[endless].results[f"hostile {number}"]
    marks = {q.question: q for q in result.marks.questions}
    assert not result.failed
    assert [marks[name].points for name in ("one", "six")] == [1, 6], said(result)
    mark = marks[question]
    gone = hostile.may_end and mark.outcome is Outcome.CRASHED
    assert mark.outcome == (Outcome.CRASHED if gone else hostile.outcome), mark
    assert mark.points == (mark.out_of if mark.outcome is Outcome.CORRECT else 0)
    assert (DIED if gone else hostile.words) in mark.diagnosis
    assert "\n" not in mark.diagnosis
    assert "<script" not in graded[endless].page(result.learner)


def test_beside_all_of_them_honest_learners_get_their_points(graded: dict[bool, Graded]) -> None:
    for i in range(len(NAMES)):
        in_order(graded[False], f"honest {i}", sum(range(1, i + 2)), "You added; multiply." if i < 5 else "")


def test_both_classes_are_graded_whole(graded: dict[bool, Graded]) -> None:
    for one in graded.values():
        assert f"{len(one.results)} of {len(one.results)} marked" in one.said
    assert len(graded[False].results) == len(FILES) + len(BESIDE) + len(CLASSES[False]) + len(NAMES)


@pytest.mark.parametrize("file", FILES, ids=lambda one: ascii(one.learner)[1:40])
def test_a_file_gets_its_points_and_its_line(file: Broken, graded: dict[bool, Graded]) -> None:
    in_order(graded[False], broken.named(file.learner), file.points, file.words)
    result = graded[False].results[broken.named(file.learner)]
    of_the_file = [result.problem, *result.marks.notes, *(flag for q in result.marks.questions for flag in q.flags)]
    assert all(len(line) <= 300 for line in of_the_file), of_the_file


@pytest.mark.parametrize("learner", BESIDE)
def test_what_is_no_plain_file_gets_its_line(learner: str, graded: dict[bool, Graded]) -> None:
    in_order(graded[False], learner, *BESIDE[learner])


@pytest.mark.parametrize("learner", IN_ZIP)
def test_what_is_in_a_zip_gets_its_line(learner: str, graded: dict[bool, Graded]) -> None:
    in_order(graded[True], learner, *IN_ZIP[learner])


@pytest.mark.browser
@pytest.mark.skipif(bool(lab.missing()), reason=lab.missing())
def test_no_script_of_a_learner_runs_in_a_browser_and_nothing_is_fetched(
    graded: dict[bool, Graded], tmp_path: Path
) -> None:
    pages = [path for one in graded.values() for path in one.out.rglob("*.html") if "&lt;" in path.read_text()]
    assert len(pages) >= 4
    naive = tmp_path / "naive.html"
    naive.write_text(f"<!DOCTYPE html><body>{SCRIPTS}</body>")
    with lab.browser() as browser:
        asked: list[str] = []
        browser.on("request", lambda request: asked.append(request.url))
        for path in (naive, *pages):
            asked.clear()
            browser.goto(path.as_uri())
            ran = browser.evaluate("() => window.ran ?? 0")
            inserted = browser.locator("body :is(script, img, [onload], iframe, style, link, a, object)").count()
            hidden = not browser.locator("body").is_visible()
            found = (ran, inserted > 0, hidden, len(asked) > 1)
            assert found == ((1, True, True, True) if path is naive else (0, False, False, False)), path
