"""`course new NN topic`: a lesson's folder which builds and passes, to be written over.

It has a prediction, a figure, an explorer and three questions. Its files are the texts in this folder, with
`{number}`, `{topic}`, `{title}` and `{name}` filled in; comments in them say what the tests ask.
"""

import argparse
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from classroom.notebooks import topics
from course_utils.files import write_whole
from course_utils.units import CourseError


def new_lesson(number: str, topic: str, root: Path) -> Path:
    """Write the folder of a new lesson, such as "15" and "sparsity", and name it in lessons/contents.txt.

    Returns the folder. Raises CourseError if no such number or name can be given, or one of them is taken.
    """
    number = number.zfill(2)
    if not re.fullmatch(r"\d\d", number) or not re.fullmatch(r"[a-z][a-z0-9_]*", topic) or keyword.iskeyword(topic):
        asked = "two digits and one name of a-z, 0-9 and _, no word of Python, as in `course new 15 sparse_nets`"
        raise CourseError(f"course new takes {asked}; got `{number} {topic}`")
    known = topics(root)
    taken = next((name for name in known if name.split("_", 1)[0] == number or known[name].name == topic), None)
    folder = root / "lessons" / topic
    if taken or folder.exists():
        raise CourseError(f"{taken or folder.name} is there already; choose another number or name")
    words = topic.replace("_", " ")
    names = {"title": words.capitalize(), "name": words.title().replace(" ", "")}
    for path in Path(__file__).parent.glob("*.py.txt"):
        text = path.read_text(encoding="utf-8").format(number=number, topic=topic, **names)
        write_whole(folder / path.stem, text)
    contents = root / "lessons" / "contents.txt"
    lines = [*contents.read_text(encoding="utf-8").splitlines(), f"{number} {topic}"]
    write_whole(contents, "\n".join(sorted(lines)) + "\n")
    return folder


def new_command(arguments: Sequence[str], root: Path) -> int:
    """`course new`: write a lesson and say what comes next. Raises CourseError."""
    parser = argparse.ArgumentParser(prog="course new")
    parser.add_argument("number", metavar="NN")
    parser.add_argument("topic", metavar="TOPIC", nargs="+", help="one word: its folder's name")
    options = parser.parse_args(arguments)
    folder = new_lesson(options.number, " ".join(options.topic), root)
    print(f"{folder}: now `course build {options.number}`")
    return 0
