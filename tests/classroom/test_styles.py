"""Right answers in unusual styles, handed in as strangers do: `course grade` gives each its points and holds none."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from amount import THOROUGH
from multiples import answer
from unusual import UNUSUAL

from classroom import ROOT
from classroom.grading import sandbox
from classroom.grading.batch import read_results
from classroom.grading.graft import kind_of
from classroom.notebooks import as_notebook, read_notebook, to_text
from classroom.questions.core import Outcome

pytestmark = [
    pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}"),
    pytest.mark.skipif(not THOROUGH, reason="make test-thorough grades a class for each exercise, in some minutes"),
]
SOLUTIONS = {
    path.stem: {kind_of(cell)[1]: cell.source for cell in read_notebook(path).cells if kind_of(cell)[0] == "answer"}
    for path in sorted((ROOT / "solutions").glob("*.ipynb"))
}


def test_every_question_answered_in_styles_is_in_an_exercise() -> None:
    assert UNUSUAL.keys() <= {question for answers in SOLUTIONS.values() for question in answers}


@pytest.mark.parametrize("exercise", [name for name, answers in SOLUTIONS.items() if answers.keys() & UNUSUAL.keys()])
def test_a_class_of_unusual_styles_earns_every_point(exercise: str, tmp_path: Path) -> None:
    right = SOLUTIONS[exercise]
    blank = read_notebook(ROOT / "exercises" / f"{exercise}.ipynb")
    styles = {question: list(UNUSUAL[question].values()) for question in right.keys() & UNUSUAL.keys()}
    handed_in = tmp_path / "class"
    handed_in.mkdir()
    for turn in range(max(map(len, styles.values()))):
        chosen = {question: found[turn % len(found)] for question, found in styles.items()}
        (handed_in / f"style {turn:02}.ipynb").write_text(to_text(answer(as_notebook(blank), **right | chosen)))
    options = {"--exercise": exercise[:2], "--out": tmp_path / "out", "--seed": "honest answers 1"}
    options["--jobs"] = os.cpu_count()
    line = [sys.executable, "-m", "classroom.cli", "grade", handed_in, *itertools.chain(*options.items())]
    done = subprocess.run([*map(str, line)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = read_results(tmp_path / "out" / "results").values()
    assert len(results) == len([*handed_in.iterdir()])
    for result in results:
        assert result.marks, (result.learner, result)
        missed = {one.question: one for one in result.marks.questions if one.outcome is not Outcome.CORRECT}
        assert not missed, (result.learner, missed)
