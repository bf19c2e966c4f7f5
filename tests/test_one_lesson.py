"""`make test TOPIC=04` runs what the lesson touches, and nothing of another's."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from one_lesson import TESTS, folder_of, names, touches

from classroom import ROOT
from classroom.notebooks import topics
from course_utils.units import CourseError


def a_test(file: str, identity: str = "", **params: object) -> Any:
    """What pytest knows of a test: its file and, of one with parameters, these."""
    path = TESTS / "lessons" / f"{file}.py"
    return SimpleNamespace(path=path, **({"callspec": SimpleNamespace(params=params, id=identity)} if params else {}))


TOUCHED = [
    a_test("test_notebooks", "solutions-04_stride", folder="solutions", topic="04_stride"),
    a_test("test_checks", "naive", question="strided_size"),
    a_test("test_checks", "x", answer=("strided_size", 0)),
    a_test("test_slides", "lesson3", lesson=Path("slides/04_stride.html")),
    a_test("test_claims_stride", "7", number=7),
    a_test("test_positions"),
]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return {
        "04_stride": "stride",
        "stride": "stride",
        "strided_size": "stride",
        "claim 7": "stride",
        "03_memory": "memory",
    }


@pytest.mark.parametrize("item", TOUCHED, ids=lambda item: item.path.stem)
def test_a_test_is_a_lesson_s_by_its_parameters_or_its_file(item: Any, known: dict[str, str]) -> None:
    assert touches(item, "stride", known)
    assert not touches(item, "memory", known)


def test_a_test_of_another_lesson_is_left_out_wherever_it_is(known: dict[str, str]) -> None:
    assert not touches(a_test("test_explorers", "03_memory", topic="03_memory"), "stride", known)


def test_lessons_are_called_by_number_folder_and_what_they_ask() -> None:
    known = names()
    for topic, folder in topics(ROOT).items():
        assert folder_of(topic.split("_")[0]) == known[topic] == known[folder.name] == folder.name
    assert sum(word.startswith("claim ") for word in known) > 50
    assert len(known) > 150
    with pytest.raises(CourseError, match="no lesson has the number '4'; there are 00, 01"):
        folder_of("4")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("given", "chosen"), [([], False), (["TOPIC=04"], True)])
def test_make_hands_the_number_on(given: list[str], chosen: bool) -> None:
    command = ["make", "--dry-run", "--old-file=.venv/test.done", "test", *given]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert ("-p one_lesson --topic 04" in said) == chosen
