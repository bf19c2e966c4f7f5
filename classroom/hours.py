"""How long the course takes: the minutes that lessons and exercises state, added up, and written where they are told.

`course build` fills in the blocks of DOCUMENTS: `<!-- hours -->…<!-- /hours -->` becomes the total in words, and
`<!-- minutes -->…<!-- /minutes -->` a table of all lessons. A test fails where one is not what the lessons say.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from classroom.authoring import SourceCell, read_topic
from classroom.building import build
from classroom.notebooks import topics
from course_utils.files import write_whole

DOCUMENTS = ("README.md", "docs/teaching.md")


@dataclass(frozen=True)
class Stated:
    """What one topic says of itself: its title, and the minutes its lesson and its exercise take."""

    title: str
    lesson: int
    exercise: int


def stated(root: Path) -> dict[str, Stated]:
    """Each topic, such as "03_memory", in the course's order. Raises AuthoringError for a lesson that states none."""
    made = {}
    for topic, folder in topics(root).items():
        lesson, exercise = read_topic(folder)
        asked = sum(cell.options["minutes"] for cell in exercise if cell.kind == "question")
        made[topic] = Stated(*(_said(lesson) if lesson else ("", 0)), asked)
    return made


def _said(cells: list[SourceCell]) -> tuple[str, int]:
    """A lesson's title without its number, and its minutes, as the texts before its first code have them."""
    opening = "\n".join(cell.text for cell in takewhile(lambda cell: cell.kind == "text", cells))
    title, minutes = re.match(r"# \w+ · (.+)", opening), re.search(r"\bAbout (\d+) minutes\b", opening)
    if title is None or minutes is None:
        raise cells[0].error("a lesson begins with `# 15 · Title`, and says `About 20 minutes` before its first code")
    return title[1], int(minutes[1])


def in_hours(minutes: int) -> str:
    """Minutes as hours, to the half hour above: 815 is "14", 690 "11.5"."""
    return f"{-(-minutes // 30) / 2:g}"


def total(root: Path) -> str:
    """All lessons and all exercises, in words."""
    made = stated(root).values()
    lessons, exercises = sum(one.lesson for one in made), sum(one.exercise for one in made)
    said = f"{in_hours(lessons)} hours of lessons and {in_hours(exercises)} of exercises"
    return f"{said}, {in_hours(lessons + exercises)} in all"


def table(root: Path) -> str:
    """A Markdown table: a row for each topic."""
    rows = [
        f"| {topic.split('_')[0]} | {one.title} | {one.lesson or ''} | {one.exercise or ''} |"
        for topic, one in stated(root).items()
    ]
    return "\n".join(["| | lesson | minutes | and its exercise |", "|---|---|---:|---:|", *rows])


def filled(text: str, root: Path) -> str:
    """A document with its blocks as the lessons are today."""
    for name, content in (("hours", total(root)), ("minutes", f"\n{table(root)}\n")):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        text = re.sub(f"{begin}.*?{end}", (begin + content + end).replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


def build_command(arguments: Sequence[str], root: Path) -> int:
    """`course build`: write the notebooks, then how long they take. Raises AuthoringError."""
    parser = argparse.ArgumentParser(prog="course build")
    said = "topic numbers such as 03, executed again; without any, all whose source changed"
    parser.add_argument("topics", nargs="*", metavar="NN", help=said)
    build(parser.parse_args(arguments).topics, root)
    for path in (root / name for name in DOCUMENTS):
        if path.exists() and write_whole(path, filled(path.read_text(encoding="utf-8"), root)):
            print(f"{path.name}: hours renewed")
    return 0
