"""A new lesson's folder: complete, its cells run, its slips are told apart, and nothing taken is overwritten."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from multiples import add_topic

import lessons
from classroom.authoring import plan
from classroom.new_lesson import new_lesson
from classroom.notebooks import topics
from classroom.predict import Prediction
from classroom.questions.core import Outcome
from course_utils.units import CourseError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (add_topic(tmp_path, "01_multiples") / "exercise.py").write_text("# %% [markdown]\n# # One\n")
    (add_topic(tmp_path, "A_last") / "lesson.py").write_text("# %% [markdown]\n# # Last\n")
    return tmp_path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_builds_and_its_question_judges(root: Path) -> None:
    folder = new_lesson("15", "sparse_nets", root)
    assert list(topics(root)) == ["01_multiples", "15_sparse_nets", "A_last"]
    assert list(plan("15_sparse_nets", root)) == ["notebooks", "exercises", "solutions"]
    checks, graded, answers = (load(folder / f"{name}.py") for name in ("checks", "graded", "answers"))
    for question, answered in answers.RIGHT.items():
        check, cell = getattr(checks, question), getattr(graded, question)
        right = cell.lines(answered[0])
        for answer in answered:
            assert check(answer).outcome is Outcome.CORRECT
            assert cell.lines(answer) == right
        for slip in check.slips:
            feedback = check(slip.function)
            assert (feedback.outcome, slip.message in feedback.message) == (Outcome.WRONG, True)
            assert cell.lines(slip.function) != right


def test_its_lesson_predicts_draws_and_explores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_lesson("15", "sparse_nets", root)
    monkeypatch.setattr(lessons, "__path__", [*lessons.__path__, str(root / "lessons")])
    cells = plan("15_sparse_nets", root)["notebooks"].notebook.cells
    names: dict[str, Any] = {}
    for cell in cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    assert isinstance(names["guess"], Prediction)
    assert names["sizes"]["float32"] == 4 * 10**6 / 2**20
    assert "title=" in next(cell.source for cell in cells if "side_by_side(" in cell.source)
    explorer = names["sparse_nets_explorer"](count=1000, kind="float64")
    assert explorer.view().number == 8000
    explorer.kind.value = "float16"
    assert explorer.view().number == 2000
    assert "the memory falls by" in explorer.words.value
    with pytest.raises(CourseError, match="unknown kind 'int8'"):
        names["sparse_nets_explorer"](kind="int8")


@pytest.mark.parametrize(
    ("number", "topic", "said"),
    [
        ("01", "other", "01_multiples"), ("15", "multiples", "01_multiples"), ("x", "a", "two"),
        ("15", "a b", "one name of a-z, 0-9 and _.*; got `15 a b`$"), ("15", "class", "no word of Python"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(number: str, topic: str, said: str, root: Path) -> None:
    before = sorted(root.rglob("*"))
    with pytest.raises(CourseError, match=said):
        new_lesson(number, topic, root)
    assert sorted(root.rglob("*")) == before
