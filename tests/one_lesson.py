"""Of all tests those that one lesson touches: `pytest -p one_lesson --topic 04`, which is `make test TOPIC=04`.

Touched are the tests whose parameters name the lesson, one of its questions or one of its claims (its notebooks under
nbval, its checks, graded cells, slips and verdicts, its slides), and those of files that import its folder or have it
in their name. What the library and the classroom do for every lesson is left to `make test`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from classroom import ROOT
from classroom.notebooks import topics
from course_utils.units import CourseError

TESTS = Path(__file__).parent
# Beside tests/lessons: of the classroom's tests, those that look at each notebook.
LOOKING = {TESTS / "classroom" / f"test_{name}.py" for name in ("slides", "accessibility")}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--topic`."""
    parser.addoption("--topic", metavar="NN", help="only what the lesson of this number touches, such as 04")


def folder_of(number: str, root: Path = ROOT) -> str:
    """The folder in lessons/ of the lesson with this number. Raises CourseError where there is none."""
    numbers = {topic.split("_")[0]: folder.name for topic, folder in topics(root).items()}
    if number not in numbers:
        raise CourseError(f"no lesson has the number {number!r}; there are {', '.join(numbers)}")
    return numbers[number]


def names(root: Path = ROOT) -> dict[str, str]:
    """What a test may call a lesson by, and its folder: "04_stride", "stride", its questions, "claim 7"."""
    known = {}
    for topic, folder in topics(root).items():
        words = {topic, folder.name}
        for file, pattern in (("exercise.py", r'question="(\w+)"'), ("claims.py", r"^@claim\((\d+)")):
            text = (folder / file).read_text(encoding="utf-8") if (folder / file).exists() else ""
            words |= {f"claim {w}" if w.isdigit() else w for w in re.findall(pattern, text, re.MULTILINE)}
        known |= dict.fromkeys(words, folder.name)
    return known


def _said(value: object) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _said(part)
    elif isinstance(value, Path):
        yield value.stem
    else:
        yield str(value)


def touches(item: pytest.Item, folder: str, known: dict[str, str]) -> bool:
    """Whether a test is one of this lesson's."""
    if callspec := getattr(item, "callspec", None):
        words = {word for value in callspec.params.values() for word in _said(value)} | set(callspec.id.split("-"))
        if item.path.stem.startswith("test_claims") and "number" in callspec.params:
            words.add(f"claim {callspec.params['number']}")
        if named := {known[word] for word in words if word in known}:
            return folder in named
    return item.path.parent.name == "lessons" and mentions(item.path, folder)


def mentions(file: Path, folder: str) -> bool:
    """Whether a file of tests imports the lesson's folder, or has it in its name."""
    imports = re.search(rf"\blessons\.{folder}\b|from lessons import .*\b{folder}\b", file.read_text(encoding="utf-8"))
    return bool(imports) or file.stem.endswith(f"_{folder}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files that have no such test."""
    if not config.getoption("topic") or collection_path.is_dir():
        return None
    return None if collection_path.parent.name == "lessons" or collection_path in LOOKING else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the lesson does not touch."""
    if not (number := config.getoption("topic")):
        return
    try:
        folder = folder_of(number)
    except CourseError as error:
        raise pytest.UsageError(str(error)) from error
    known = names()
    kept = [item for item in items if touches(item, folder, known)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
