"""What learners send is read in a process with limits: whatever a file holds costs that file, with one line.

`COURSE_FUZZ=10000 python -m pytest tests/classroom/test_intake.py -k mutated` tries as many mutated
notebooks as it says.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import broken
import multiples
import pytest
from multiples import answer, right, wrong
from nbformat import NotebookNode

from classroom.grading import intake
from classroom.grading.intake import Bounds, read
from classroom.notebooks import as_notebook, to_text
from classroom.questions.core import defines
from course_utils.units import MIB, CourseError

KEYS = ["name", "cell_type", "source", "metadata", "id", "level", "course", "\ud800"]
MUTATED = int(os.environ.get("COURSE_FUZZ", "300"))
JUNK: list[Any] = [
    None, True, 0, -1, 3, 10**30, 1.5, float("inf"), float("nan"), "", "x\ud800", "\n" * 50, "#" * 50, "NBVAL_SKIP",
    [], {}, [[]], [1, None], {"x": {"y": []}}, "answer-one", "code", "markdown", "heading", "answer", "\x00", "\u2028",
    "def one(n):\n    return n", "def f(x=f\"{b'\t'}\"):\n    pass", "class A:\n    x = f'{1!r:>{2}}'", "%magic\n!ls",
    "from x import one\n" * 3,
]  # fmt: skip


@cache
def notebooks() -> tuple[NotebookNode, NotebookNode]:
    """The exercise with two answers, and its solution."""
    exercise, solution = multiples.notebooks()
    return answer(copy.deepcopy(exercise), one=right("one"), two=wrong("two")), solution


@cache
def bases() -> list[dict[str, Any]]:
    """The exercise as JSON in each format that nbformat has had."""
    exercise, _ = notebooks()
    first = [
        {"cell_type": "code", "code": cell.source, "prompt_number": 1}
        if cell.cell_type == "code"
        else {"cell_type": "text", "text": cell.source}
        for cell in exercise.cells
    ]
    older = [json.loads(broken.older(as_notebook(exercise), version)) for version in (2, 3)]
    older[1]["metadata"]["name"] = "exercise"
    older[1]["worksheets"][0]["cells"][1]["outputs"] = [
        {"output_type": "pyout", "prompt_number": 1, "text": ["x"], "metadata": {}},
        {"output_type": "pyerr", "ename": "E", "evalue": "v", "traceback": []},
        {"output_type": "stream", "stream": "stdout", "text": "x"},
    ]
    older[1]["worksheets"][0]["cells"].append({"cell_type": "heading", "level": 2, "source": "a\nb", "metadata": {}})
    return [{"nbformat": 1, "nbformat_minor": 0, "cells": first}, *older, json.loads(to_text(exercise))]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, part in inner for place in places(part, (*path, key))]


def mutated(number: int) -> bytes:
    """The notebook of this number: one of some format, with a few values or bytes put in, taken out, or doubled."""
    dice = random.Random(number)
    content = json.loads(json.dumps(dice.choice(bases())))
    for _ in range(dice.randint(1, 4)):
        known = places(content)
        if not known:
            break
        *inner, last = dice.choice(known)
        holder = content
        for key in inner:
            holder = holder[key]
        act = dice.randrange(5)
        if act == 0:
            del holder[last]
        elif act == 1 and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        elif act == 2 and isinstance(holder, dict):
            holder[dice.choice(KEYS)] = copy.deepcopy(holder[last])
        else:
            holder[last] = copy.deepcopy(dice.choice(JUNK))
    data = json.dumps(content).encode()
    for _ in range(dice.choice([0, 0, 0, 1, 5])):
        start = dice.randrange(len(data) + 1)
        data = data[:start] + dice.randbytes(dice.randrange(4)) + data[start + dice.randrange(20) :]
    return data


def content_of(data: bytes) -> list[Any]:
    """What is in a file, read without a process."""
    made: list[Any] = json.loads(next(intake._read(data, "x.ipynb", notebooks()[1], Bounds())))
    return made


def here(number: int) -> list[Any] | str:
    """What is in a mutated notebook, or the line that is said of it, without a process."""
    try:
        made = content_of(mutated(number))
    except CourseError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"number {number}: {error!r}") from error
    return made


def outcome(data: bytes, bounds: Bounds | None = None) -> str:
    """The line that is said of a file, "" if it is read."""
    try:
        read(data, "x.ipynb", notebooks()[1], bounds)
    except CourseError as error:
        return str(error)
    return ""


def test_mutated_notebooks_of_all_formats_end_in_answers_or_in_one_line() -> None:
    ends = {True: 0, False: 0}
    for number in range(MUTATED):
        made = here(number)
        ends[isinstance(made, str)] += 1
        assert "\n" not in made, number
        assert "cannot be read" not in json.dumps(made), number
    assert min(ends.values()) > MUTATED / 10  # some of each, or the mutations try nothing


def test_the_process_says_the_same_as_reading_here() -> None:
    for number in range(10):
        made = here(number)
        if isinstance(made, str):
            assert outcome(mutated(number)) == made
        else:
            there = read(mutated(number), "x.ipynb", notebooks()[1])
            assert [[q, a.source, a.attempted, list(a.flags)] for q, a in there.answers.items()] == made


def with_answer(source: str) -> bytes:
    return to_text(answer(as_notebook(notebooks()[0]), one=source)).encode()


def nested(depth: int) -> bytes:
    return (
        to_text(notebooks()[0]).replace('"cells": [', '"x": ' + "[" * depth + "]" * depth + ', "cells": [', 1).encode()
    )


def many_old_cells() -> bytes:
    content = json.loads(broken.older(as_notebook(notebooks()[0]), 3))
    content["worksheets"][0]["cells"] *= 2000
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("make", "bounds", "line"),
    [
        (lambda: b"[" + b"{}," * 2**22 + b"{}]", Bounds(256 * MIB), "takes more than 256.00 MiB of memory to read"),
        (many_old_cells, Bounds(seconds=1), "takes too long to read"),
        (lambda: with_answer(f"x = '{'y' * MIB}'"), None, "has answers of more than 1.00 MiB"),
        (lambda: nested(100_000), None, "is damaged: not valid JSON; restore a checkpoint in JupyterLab"),
    ],
    ids=["memory", "time", "length", "depth"],
)
def test_a_file_that_takes_too_much_is_one_line(make: Callable[[], bytes], bounds: Bounds | None, line: str) -> None:
    assert outcome(make(), bounds) == f"x.ipynb {line}"
    assert outcome(with_answer(right("one"))) == ""


def test_what_a_text_defines() -> None:
    for source in (
        "def a(): pass",
        "class a: pass",
        "a = 1",
        "a: int = 1",
        "import a",
        "from x import b as a",
        "import b, a",
    ):
        assert defines(source, ["a"]), source
    for source in ("", "a == 1", "  a = 1", "from a import b", "import ab", "# import a"):
        assert not defines(source, ["a"]), source
    assert not defines("from x import " * 10**5 + "\n" * 10**6, ["a"])  # a slow way would not end
