"""What right answers print: inputs are drawn again where rounding could change a line."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import multiples
import pytest
from multiples import build_course, cell_of

from classroom.grading.secret import reference, token
from classroom.grading.temporary import one_folder
from classroom.notebooks import read_notebook
from course_utils.units import CourseError

ON_A_BOUNDARY, STEADY = 123456.5, 2.25


def solution(folder: Path, drawn: str) -> Path:
    """A course of one exercise whose questions are tried on `drawn`, built; returns the solution."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiples, "SOURCE", multiples.SOURCE.replace("(draw.randint(10, 99),)", drawn))
        build_course(folder)
    return folder / "solutions" / "01_multiples.ipynb"


def test_a_question_on_a_rounding_boundary_gets_another_token(tmp_path: Path) -> None:
    path = solution(tmp_path, f"(draw.choice(({ON_A_BOUNDARY}, {STEADY})),)")

    def drawn(seed: str, turn: int) -> float:
        return random.Random(token(seed, "one", turn)).choice((ON_A_BOUNDARY, STEADY))

    seed = next(str(i) for i in range(99) if (drawn(str(i), 0), drawn(str(i), 1)) == (ON_A_BOUNDARY, STEADY))
    executed = reference(read_notebook(path), seed)
    assert token(seed, "one", 1) in cell_of(executed, "graded-one").source
    assert cell_of(executed, "graded-one").outputs[0].text.startswith(f"one({STEADY}) = {STEADY}\n")
    assert not [cell.id for cell in executed.cells if "steadiness" in cell.id]


def test_it_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading torch's compiler, as exercise 03 does, makes a folder for it: in the grading's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with one_folder():
        reference(read_notebook(Path(__file__).parents[2] / "solutions" / "03_memory.ipynb"), "a seed")
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_always_is_on_one_is_named(tmp_path: Path) -> None:
    path = solution(tmp_path, f"({ON_A_BOUNDARY},)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("classroom.grading.secret.MOST_TURNS", 2)
        with pytest.raises(CourseError, match="results of 'one' lie on a rounding boundary"):
            reference(read_notebook(path), "a seed")
