"""No exercise's kernel holds a function that computes an answer to one of its questions.

Looked at is all that an exercise's trusted cells lead to: that is what lies in a stranger's sandbox. Whatever of it can
be called is tried on the questions' inputs, and the exercise's own check with it, whose references must be found, or
the search finds nothing. `COURSE_REACHABLE=1` tries every exercise, in two minutes of processor time.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from right_answers import questions_of

from classroom.grading.library import Finder, topic_checks, trusted_imports
from classroom.notebooks import read_notebook
from classroom.questions.functions import Check

ROOT = Path(__file__).resolve().parents[2]


def asked(topic: str) -> set[str]:
    """The questions of an exercise that are answered by a function of numbers."""
    found = questions_of(importlib.import_module(f"lessons.{topic[3:]}.checks"))
    return {name for name, check in found.items() if isinstance(check, Check)}


TOPICS = [path.stem for path in sorted((ROOT / "solutions").glob("*.ipynb")) if asked(path.stem)]
SAMPLE = {"03_memory"}  # seven seconds of processor time
# Where the course itself computes what a question asks for, in a way that takes more than a call.
ANSWERING = {
    "08_half_precision": "lessons.half_precision.precision",
    "09_offload": "course_utils.techniques.offload.simulation",
    "11_many_gpus": "lessons.shared.parallel",
}


def named(paths: Collection[Path]) -> list[str]:
    parts = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(paths))
    return [name.removesuffix(".__init__") for name in parts]


def reachable(topic: str) -> list[str]:
    """The modules that a learner of this exercise can reach, those that are stubs for strangers left out."""
    reached = Finder(trusted_imports(read_notebook(ROOT / "solutions" / f"{topic}.ipynb"))).files()
    return named(reached - {*topic_checks()})


@pytest.mark.parametrize("topic", ANSWERING)
def test_no_module_that_computes_an_answer_is_imported(topic: str) -> None:
    assert importlib.import_module(ANSWERING[topic])
    assert not [name for name in reachable(topic) if name.startswith(ANSWERING[topic])]


@pytest.mark.skipif(sys.platform == "win32", reason="calls are ended by signals")
@pytest.mark.parametrize("topic", TOPICS)
def test_nothing_in_an_exercises_kernel_computes_an_answer(topic: str) -> None:
    if topic not in SAMPLE and not os.environ.get("COURSE_REACHABLE"):
        pytest.skip("COURSE_REACHABLE=1 tries every exercise")
    check = f"lessons.{topic[3:]}.checks"
    program = [sys.executable, str(ROOT / "tests" / "reachable.py"), topic[3:], check, *reachable(topic)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr[-2000:]
    tried, *found = map(json.loads, ran.stdout.splitlines())
    assert tried["tried"] > 300
    assert {one["question"] for one in found if one["name"].startswith(check)} == asked(topic)
    assert [one for one in found if not one["name"].startswith(check)] == []
