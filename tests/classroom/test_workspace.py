"""A learner's files are theirs: a mended course is pulled over answered exercises and run lessons, and nothing is lost.

Upstream and clone are real git repositories of a course of one topic.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import multiples
import pytest
from ipykernel.ipkernel import IPythonKernel
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from classroom.authoring import plan
from classroom.grading.graft import graft
from classroom.notebooks import read_notebook, to_text
from classroom.workspace import HANDED_OUT, bring_up_to_date, carried_over, learners_file
from course_utils.units import CourseError

TOPIC = "01_multiples"
LESSON = """\
# %% [markdown]
# # Multiples

# %%
2 * 3

# %%
3 * 3
"""
EXERCISE = multiples.SOURCE + "".join(
    multiples.QUESTION.format(name=name, points=i + 1) for i, name in enumerate(multiples.NAMES)
)
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *arguments: str) -> str:
    """What git prints, with no settings but these."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=learner", "-c", "user.email=learner@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def publish(upstream: Path, lesson: str, exercise: str) -> None:
    """Write a course of this lesson and exercise, and commit it."""
    folder = multiples.add_topic(upstream, TOPIC)
    (folder / "lesson.py").write_text(lesson)
    (folder / "exercise.py").write_text(exercise)
    for name, planned in plan(TOPIC, upstream).items():
        (upstream / name).mkdir(exist_ok=True)
        (upstream / name / f"{TOPIC}.ipynb").write_text(to_text(planned.notebook))
    (upstream / ".gitignore").write_text("/work/\n")
    git(upstream, "add", "--all")
    git(upstream, "commit", "--quiet", "--message", "The course")


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "--quiet")
    publish(folder, LESSON, EXERCISE)
    return folder


@pytest.fixture
def clone(upstream: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "--quiet", str(upstream), "clone")
    bring_up_to_date(tmp_path / "clone")
    return tmp_path / "clone"


def test_a_copy_is_the_shipped_file_with_what_a_kernel_says_of_its_language(clone: Path) -> None:
    for folder in ("notebooks", "exercises"):
        copy, shipped = read_notebook(own(clone, folder)), read_notebook(clone / folder / f"{TOPIC}.ipynb")
        assert copy.metadata.language_info == IPythonKernel.language_info
        assert {**copy, "metadata": {**copy.metadata, "language_info": shipped.metadata.language_info}} == shipped


def pull(clone: Path) -> list[str]:
    """Pull, which must find nothing in its way, and bring the copies up to date."""
    assert git(clone, "status", "--porcelain") == ""
    git(clone, "pull", "--quiet", "--ff-only")
    said = bring_up_to_date(clone)
    assert git(clone, "status", "--porcelain") == ""
    return said


def own(clone: Path, folder: str, name: str = TOPIC) -> Path:
    return clone / "work" / folder / f"{name}.ipynb"


def save(path: Path, notebook: NotebookNode) -> None:
    path.write_text(to_text(notebook))


def run_and_save(path: Path) -> None:
    """As JupyterLab saves a notebook whose cells were run from top to bottom: outputs, and an empty cell at the end."""
    notebook = read_notebook(path)
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.outputs = [new_output("stream", text=f"output {count}\n")]
    notebook.cells.append(new_code_cell())
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    save(path, notebook)


def answer(path: Path, **sources: str) -> None:
    save(path, multiples.answer(read_notebook(path), **sources))


def source(path: Path, identity: str) -> str:
    return str(multiples.cell_of(read_notebook(path), identity).source)


MENDED_LESSON = LESSON.replace("2 * 3", "2 * 4")


def test_who_ran_everything_and_answered_pulls_a_mended_course(clone: Path, upstream: Path) -> None:
    run_and_save(own(clone, "notebooks"))
    answer(own(clone, "exercises"), one=multiples.right("one"), three=multiples.wrong("three"))
    run_and_save(own(clone, "exercises"))
    publish(upstream, MENDED_LESSON, EXERCISE.replace("## 2. Times two", "## 2. Times the number two"))
    said = pull(clone)
    assert source(own(clone, "notebooks"), "code-1") == "2 * 4"
    exercise = own(clone, "exercises")
    assert source(exercise, "question-two").startswith("## 2. Times the number two")
    assert source(exercise, "answer-one") == multiples.right("one")
    assert source(exercise, "answer-three") == multiples.wrong("three")
    assert sorted(path.name for path in exercise.parent.iterdir()) == [exercise.name]
    assert said == [
        f"work/ holds your copies. Brought up to date: notebooks/{TOPIC}.",
        f"exercises/{TOPIC} was mended; your 2 answers moved over.",
        f"You have written in exercises/{TOPIC}.",
    ]


def test_a_lesson_with_changed_cells_is_kept_beside_the_mended_one(clone: Path, upstream: Path) -> None:
    mine = own(clone, "notebooks")
    notebook = read_notebook(mine)
    notebook.cells[1].source = "2 * 300"
    save(mine, notebook)
    before = mine.read_bytes()
    publish(upstream, LESSON, EXERCISE + "\n")  # nothing of the lesson changed
    assert pull(clone)[0] == "work/ holds your copies. All are up to date."
    assert mine.read_bytes() == before
    publish(upstream, MENDED_LESSON, EXERCISE)
    said = pull(clone)
    assert f"notebooks/{TOPIC} was mended; yours, with the cells you changed, is {TOPIC}_yours." in said
    assert own(clone, "notebooks", f"{TOPIC}_yours").read_bytes() == before
    assert source(mine, "code-1") == "2 * 4"
    notebook = read_notebook(mine)
    notebook.cells[1].source = "2 * 400"
    save(mine, notebook)
    publish(upstream, LESSON, EXERCISE)
    pull(clone)  # the first one that was kept is not overwritten
    assert own(clone, "notebooks", f"{TOPIC}_yours").read_bytes() == before
    assert source(own(clone, "notebooks", f"{TOPIC}_yours2"), "code-1") == "2 * 400"


def test_an_answer_whose_question_is_gone_is_kept_and_told(clone: Path, upstream: Path) -> None:
    mine = own(clone, "exercises")
    answer(mine, one=multiples.right("one"), six=multiples.right("six"))
    last = multiples.QUESTION.format(name="six", points=6)
    publish(upstream, LESSON, EXERCISE.replace(last, ""))
    said = pull(clone)
    kept = own(clone, "exercises", f"{TOPIC}_yours")
    assert source(kept, "answer-six") == multiples.right("six")
    assert source(mine, "answer-one") == multiples.right("one")
    assert all(cell.id != "answer-six" for cell in read_notebook(mine).cells)
    assert any(f"kept in {TOPIC}_yours: your answer to six, which is asked no longer" in line for line in said)


def test_cells_of_ones_own_and_given_cells_that_one_changed_move_over(clone: Path, upstream: Path) -> None:
    mine = own(clone, "exercises")
    notebook = multiples.answer(read_notebook(mine), two="def two(n):\n    return double(n)")
    setup = multiples.cell_of(notebook, "code-1")
    setup.source = "import math\n" + setup.source
    place = next(i for i, cell in enumerate(notebook.cells) if cell.id == "answer-two")
    notebook.cells.insert(place, new_code_cell("def double(n):\n    return 2 * n", id="own"))
    notebook.cells.insert(place + 2, new_code_cell("two(4)", id="a-try"))
    save(mine, notebook)
    publish(upstream, LESSON, EXERCISE.replace("## 1. Times one", "## 1. Times 1"))
    pull(clone)
    now = read_notebook(mine)
    ids = [cell.id for cell in now.cells]
    place = ids.index("answer-two")
    assert ids[place - 1 : place + 2] == ["own", "answer-two", "a-try"]
    assert source(mine, "code-1").startswith("import math\n")
    assert source(mine, "question-one").startswith("## 1. Times 1")
    assert sorted(path.name for path in mine.parent.iterdir()) == [mine.name]
    solution = read_notebook(multiples_solution(clone))
    assert graft(now, solution).answers["two"].source.startswith("def double(n)")  # it is marked with what it needs


def multiples_solution(clone: Path) -> Path:
    """The executed solution, which marking needs."""
    path = clone / "solution.ipynb"
    save(path, multiples.notebooks()[1])
    return path


def test_a_given_cell_that_both_changed_is_kept_beside(clone: Path, upstream: Path) -> None:
    mine = own(clone, "exercises")
    notebook = read_notebook(mine)
    multiples.cell_of(notebook, "code-1").source += "\nMINE = 1"
    save(mine, notebook)
    publish(upstream, LESSON, EXERCISE.replace('"good")', '"very good")'))
    said = pull(clone)
    assert "MINE" in source(own(clone, "exercises", f"{TOPIC}_yours"), "code-1")
    assert '"very good")' in source(mine, "code-1")
    assert any("the cell `from types import SimpleNamespace` as you changed it" in line for line in said)


def test_an_answer_to_a_question_that_is_asked_in_other_words_is_named(clone: Path, upstream: Path) -> None:
    answer(own(clone, "exercises"), one=multiples.right("one"), two=multiples.right("two"))
    publish(upstream, LESSON, EXERCISE.replace("def two(n):", "def two(n, times=1):"))
    assert any("so check again: two." in line for line in pull(clone))
    assert source(own(clone, "exercises"), "answer-two") == multiples.right("two")


def test_answers_in_the_courses_own_folder_are_marked_left_and_told(clone: Path, upstream: Path) -> None:
    shipped = clone / "exercises" / f"{TOPIC}.ipynb"
    answer(shipped, one=multiples.right("one"))
    before = shipped.read_bytes()
    assert learners_file(clone, TOPIC) == shipped
    assert any(f"move it to work/exercises/{TOPIC}.ipynb, then run `git" in line for line in bring_up_to_date(clone))
    assert shipped.read_bytes() == before
    shipped.rename(own(clone, "exercises"))  # as it was told
    git(clone, "checkout", "--", f"exercises/{TOPIC}.ipynb")
    assert learners_file(clone, TOPIC) == own(clone, "exercises")
    publish(upstream, MENDED_LESSON, EXERCISE.replace("## 1. Times one", "## 1. Times 1"))
    pull(clone)
    assert source(own(clone, "exercises"), "answer-one") == multiples.right("one")
    answer(shipped, one=multiples.wrong("one"))  # in both places: neither is lost
    assert learners_file(clone, TOPIC) == own(clone, "exercises")
    bring_up_to_date(clone)
    assert source(own(clone, "exercises"), "answer-one") == multiples.right("one")
    assert source(shipped, "answer-one") == multiples.wrong("one")


def test_without_the_record_nothing_is_taken_for_untouched(clone: Path, upstream: Path) -> None:
    """A copy from elsewhere, or a record that was deleted: answers move over, a lesson that differs is kept."""
    answer(own(clone, "exercises"), one=multiples.right("one"))
    before = own(clone, "notebooks").read_bytes()
    for handed in (clone / HANDED_OUT).glob("*/*"):
        handed.write_text("{")
    publish(upstream, MENDED_LESSON, EXERCISE.replace("## 1. Times one", "## 1. Times 1"))
    pull(clone)
    assert source(own(clone, "exercises"), "answer-one") == multiples.right("one")
    assert own(clone, "notebooks", f"{TOPIC}_yours").read_bytes() == before
    assert source(own(clone, "notebooks"), "code-1") == "2 * 4"


@pytest.mark.parametrize("stops_at", range(1, 7))
def test_interrupted_anywhere_the_next_call_ends_what_is_left(
    clone: Path, upstream: Path, stops_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(own(clone, "exercises"), one=multiples.right("one"), six=multiples.right("six"))
    notebook = read_notebook(own(clone, "notebooks"))
    notebook.cells[1].source = "2 * 300"
    save(own(clone, "notebooks"), notebook)
    last = multiples.QUESTION.format(name="six", points=6)
    publish(upstream, MENDED_LESSON, EXERCISE.replace(last, ""))
    git(clone, "pull", "--quiet")
    from classroom import workspace

    written, real = [], workspace.write_whole

    def interrupted(path: Path, content: str | bytes) -> bool:
        written.append(path)
        if len(written) == stops_at:
            raise KeyboardInterrupt
        return real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(workspace, "write_whole", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bring_up_to_date(clone)
    bring_up_to_date(clone)
    assert source(own(clone, "notebooks"), "code-1") == "2 * 4"
    assert source(own(clone, "notebooks", f"{TOPIC}_yours"), "code-1") == "2 * 300"
    assert source(own(clone, "exercises"), "answer-one") == multiples.right("one")
    assert source(own(clone, "exercises", f"{TOPIC}_yours"), "answer-six") == multiples.right("six")
    for folder in ("notebooks", "exercises"):
        assert len(list((clone / "work" / folder).iterdir())) == 2
    assert len(written) == stops_at


def test_a_copy_that_cannot_be_read_is_left_and_named(clone: Path, upstream: Path) -> None:
    own(clone, "notebooks").write_text("{")
    publish(upstream, MENDED_LESSON, EXERCISE)
    said = pull(clone)
    assert own(clone, "notebooks").read_text() == "{"
    assert any(f"{TOPIC}.ipynb is damaged" in line and "rename it" in line for line in said)


def test_a_copy_that_was_deleted_comes_anew(clone: Path) -> None:
    own(clone, "exercises").unlink()
    assert bring_up_to_date(clone)[0] == f"work/ holds your copies. New: exercises/{TOPIC}."
    assert own(clone, "exercises").exists()


def test_a_folder_that_cannot_be_made_is_one_line(clone: Path) -> None:
    shutil.rmtree(clone / "work")
    (clone / "work").write_text("a file")
    with pytest.raises(CourseError, match=r"work.* cannot be written"):
        bring_up_to_date(clone)


def test_of_several_cells_that_claim_a_question_marking_takes_the_same_as_before() -> None:
    exercise, solution = multiples.notebooks()
    mine = multiples.answer(carried_over(exercise, exercise, None).notebook, one="def one(n):\n    return 0")
    first = multiples.cell_of(mine, "answer-one")
    second = new_code_cell(multiples.right("one"), id="copy", metadata=dict(first.metadata))
    mine.cells.insert(mine.cells.index(first) + 1, second)
    carried = carried_over(mine, exercise, None)
    assert carried.answered == ("one",)
    assert graft(carried.notebook, solution).answers["one"] == graft(mine, solution).answers["one"]
