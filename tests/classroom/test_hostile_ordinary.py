"""Graded by a teacher who is an ordinary user, so that all kernels have one user's number: what may notice, again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ordinary
import psutil
import pytest
from hostile import ANSWERS, Hostile, classes, places
from multiples import build_course
from test_hostile import Graded, costs_its_own_question_and_nothing_else, read_out, submission

from classroom.grading import sandbox
from classroom.notebooks import to_text

TESTS = Path(__file__).resolve().parents[1]
WHY_NOT = sandbox.why_not() or ordinary.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
NOTICING = [one for one in ANSWERS if one.reaches_the_machine]
CLASSES = classes(NOTICING)
PLACES = places(CLASSES)
GRADE = """\
import sys
from pathlib import Path
import test_hostile
test_hostile.command.Confinement = lambda: test_hostile.CONFINEMENT
course, *classes = sys.argv[1:]
for endless, seconds in (("True", 2), ("False", 20)):
    folder = Path(course).parent
    test_hostile.grade(Path(course), folder / f"class-{endless}", folder / f"out-{endless}", seconds)
"""


@pytest.fixture(scope="module")
def graded() -> Iterator[dict[bool, Graded]]:
    folder = Path(tempfile.mkdtemp(prefix="o"))
    course = build_course(folder / "course")
    for endless, members in CLASSES.items():
        (folder / f"class-{endless}").mkdir()
        for i, member in enumerate(members):
            text = to_text(submission(course / "exercises" / "01_multiples.ipynb", member))
            (folder / f"class-{endless}" / f"hostile {i}.ipynb").write_text(text)
    (folder / "t").mkdir()
    ordinary.give(folder)
    environment = {
        **os.environ, "HOME": str(folder / "t"), "TMPDIR": str(folder / "t"),
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'classroom'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = ordinary.as_ordinary([sys.executable, "-c", GRADE, str(course)], folder)
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    end = time.monotonic() + 10
    while (left := still_running()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left, "processes were left behind"
    assert not [name for name in os.listdir(folder / "t") if name.startswith("course")], "files were left behind"
    yield {endless: read_out(folder / f"out-{endless}") for endless in (True, False)}
    shutil.rmtree(folder)


def still_running() -> list[psutil.Process]:
    """Processes of the ordinary user, but for dead ones that nobody has looked at."""
    found = psutil.process_iter(["uids", "status"])
    return [p for p in found if p.info["uids"].real == ordinary.UID and p.info["status"] != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("hostile", NOTICING, ids=lambda one: one.name.replace(" ", "_"))
def test_an_answer_costs_its_own_question_and_nothing_else(hostile: Hostile, graded: dict[bool, Graded]) -> None:
    costs_its_own_question_and_nothing_else(hostile, PLACES[hostile.name], graded)
