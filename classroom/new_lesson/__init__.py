"""`course new NN topic`: a lesson's folder with one question, which builds and passes, to be written over."""

from __future__ import annotations

import re
from pathlib import Path

from classroom.notebooks import topics
from course_utils.files import write_whole
from course_utils.units import CourseError

FILES = {
    "__init__.py": '"""{title}."""\n',
    "lesson.py": """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # {number} · {title}
#
# **The one question of this lesson.**

# %% tags=["remove-cell"]
from course_utils.units import KIB, format_bytes

# %% [markdown] slide="slide"
# ## A heading

# %%
format_bytes(3 * KIB)
""",
    "exercise.py": '''\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # {number} · {title}: exercise

# %%
from lessons.{topic} import checks as check

# %% [markdown] question="{topic}_bytes" points=2 difficulty=1 minutes=5
# ## 1. Bytes of some numbers
# Return the bytes that `count` float32 numbers take.

# %% answer="{topic}_bytes"
def {topic}_bytes(count: int) -> int:
    """Bytes of float32 numbers."""
    # BEGIN SOLUTION
    return 4 * count
    # END SOLUTION


# %% check="{topic}_bytes"
check.{topic}_bytes({topic}_bytes)

# %% [markdown] hint="{topic}_bytes"
# **My number is four times too small.** How many bits has a float32?

# %% [markdown] hint="{topic}_bytes"
# **My number is too large by a half.** A float64 has 8 bytes.

# %% graded="{topic}_bytes"
from lessons.{topic} import graded

graded.{topic}_bytes({topic}_bytes)
''',
    "checks.py": '''\
"""Checks of exercise {number}, {title}."""

from __future__ import annotations

from classroom.questions.core import Slip
from classroom.questions.functions import Check

{topic}_bytes = Check(
    "{topic}_bytes",
    lambda count: 4 * count,
    [(1,), (1000,), (4096,)],
    [
        Slip("numbers", lambda count: count, "You counted numbers. Each float32 takes 4 bytes."),
        Slip("float64", lambda count: 8 * count, "Eight bytes are a float64. A float32 takes 4."),
        Slip("bits", lambda count: 32 * count, "These are bits. A byte has 8."),
    ],
    takeaway="Four bytes a number.",
    in_bytes=False,
)
''',
    "graded.py": '''\
"""The inputs of exercise {number}, {title}, drawn from the class seed. No right answer is known."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded


def _counts(draw: random.Random) -> list[tuple[int]]:
    return [(draw.randint(1, 10**6),) for _ in range(4)]


{topic}_bytes = Graded("{topic}_bytes", _counts)
''',
    "answers.py": '''\
"""Right answers to exercise {number}, each written another way; wrong ones beyond the slips, with words they hear."""


def by_bits(count):
    return count * 32 // 8


RIGHT = {{"{topic}_bytes": [lambda count: 4 * count, by_bits]}}
''',
}


def new_lesson(number: str, topic: str, root: Path) -> Path:
    """Write the folder of a new lesson and name it in lessons/contents.txt; returns the folder.

    Args:
        number: what its notebooks begin with, such as "15".
        topic: name of its folder, such as "sparsity".
        root: the course's folder.

    Raises:
        CourseError: no such number or name can be given, or one of them is taken.
    """
    number = number.zfill(2)
    if not re.fullmatch(r"\d\d", number) or not re.fullmatch(r"[a-z][a-z0-9_]*", topic):
        raise CourseError("course new takes a number of two digits and a name such as `course new 15 sparsity`")
    known = topics(root)
    taken = next((name for name in known if name.split("_", 1)[0] == number or known[name].name == topic), None)
    folder = root / "lessons" / topic
    if taken or folder.exists():
        raise CourseError(f"{taken or folder.name} is there already; choose another number and name")
    names = {"number": number, "topic": topic, "title": topic.replace("_", " ").capitalize()}
    for name, text in FILES.items():
        write_whole(folder / name, text.format(**names))
    contents = root / "lessons" / "contents.txt"
    lines = [*contents.read_text(encoding="utf-8").splitlines(), f"{number} {topic}"]
    write_whole(contents, "\n".join(sorted(lines)) + "\n")
    return folder
