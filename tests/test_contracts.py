"""What the rooms may import of each other, as pyproject.toml states it: kept here, and broken where an import turns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from classroom import PACKAGES, ROOT

TURNED = {
    "": "",
    "neither knows a lesson": "course_utils/memory.py: import lessons.memory.checks",
    "The library knows no classroom": "course_utils/units.py: import classroom.deck",
    "The classroom knows nothing of GPUs": "classroom/questions/core.py: import course_utils.trace",
    "which know neither": "course_utils/machine/speed.py: import course_utils.techniques.offload",
    "nothing needs it": "classroom/deck.py: import website.pages",
    "read without torch": "course_utils/techniques/capacity.py: import course_utils.machine.measure",
    "A graded cell knows no right answer": "lessons/stride/graded.py: import lessons.stride.checks",
}


@pytest.mark.parametrize("contract", TURNED)
def test_a_contract_breaks_where_an_import_is_turned_round(contract: str, tmp_path: Path) -> None:
    for package in (*PACKAGES, "website"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file, _, line = TURNED[contract].partition(": ")
    if contract:
        with (tmp_path / file).open("a") as module:
            module.write(f"\n{line}\n")
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    broken = [line for line in " ".join(ran.stdout.split()).split(" BROKEN")[:-1] if contract in line]
    assert (ran.returncode != 0, bool(broken)) == (bool(contract), bool(contract)), ran.stdout + ran.stderr


MOST_LINES = 450  # of a module that is read in one sitting; a lesson's text is a notebook, and a test's file a list


def test_no_module_is_too_long_to_be_read_in_one_sitting() -> None:
    for package in (*PACKAGES, "website", "benchmarks"):
        for module in (path for path in (ROOT / package).rglob("*.py") if path.name != "lesson.py"):
            lines = len(module.read_text(encoding="utf-8").splitlines())
            assert lines <= MOST_LINES, f"{module.relative_to(ROOT)} has {lines} lines, {MOST_LINES} at most: split it"
