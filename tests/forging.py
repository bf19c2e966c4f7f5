"""The light way from an answer's text to its points: one process runs the answer, another one replays its record.

It is what grading does with the questions that are judged by a record, without sandbox, kernel and nbval: a child that
is forked runs the text and leaves what its graded cell prints, and a second one, which ran nothing of the answer's,
judges that on values from a token that the first never had.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import resource
import secrets
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch
from right_answers import GRADED

from classroom import ROOT
from classroom.grading.graft import GRADED_CALL, kind_of
from classroom.notebooks import read_notebook
from classroom.questions.graded import RECORD, REPLAYED, draw_from, hand_over
from lessons.shared.judged import GradedReplay

SECONDS = 60
MOST_BYTES = 12 * 2**30  # of address space


@functools.cache
def asked() -> dict[str, tuple[list[str], str, str]]:
    """By question with a record: the set-up cells' texts, the name of its answer, what the solution prints."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        cells = read_notebook(path).cells
        setup = [cell.source for cell in cells if cell.cell_type == "code" and not kind_of(cell)[0]]
        for cell in cells:
            kind, question = kind_of(cell)
            if kind == "graded" and isinstance(GRADED[question], GradedReplay):
                call = GRADED_CALL.search(cell.source)
                printed = "".join(output.get("text", "") for output in cell.outputs)
                assert call is not None
                found[question] = setup, call[2], printed
    return found


@functools.cache
def given(question: str) -> dict[str, Any]:
    """What a question's notebook gives to answers."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for text in asked()[question][0]:
            exec(text, names)
    return names


def in_child(work: Callable[[], str]) -> str:
    """What `work` returns in a process of its own, or what ended it."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            torch.set_num_threads(1)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            signal.alarm(SECONDS)
            try:
                text = work()
            except BaseException as error:  # noqa: BLE001 - whatever an answer raises
                text = f"raised {type(error).__name__}: {error}"
            with open(writing, "w", errors="replace") as file:
                file.write(text)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, errors="replace") as file:
        text = file.read()
    status = os.waitpid(child, 0)[1]
    return f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


def printed_by(question: str, source: str, token: str) -> str:
    """What a question's graded cell prints where strangers are graded, after an answer of this text."""
    _, name, _ = asked()[question]
    names = given(question)

    def work() -> str:
        draw_from(question, token)
        hand_over(question)
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, "answer", "exec"), names)
        with contextlib.redirect_stdout(said):
            GRADED[question](names[name])
        return said.getvalue()

    return in_child(work)


def earned(question: str, source: str) -> tuple[bool, str]:
    """Whether an answer of this text earns the question's points, and what was printed last."""
    token, values = secrets.token_hex(16), secrets.token_hex(16)
    text = printed_by(question, source, token)
    if not text.startswith(RECORD):
        return False, text

    def work() -> str:
        draw_from(question, token)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            GRADED[question].replay(text.strip(), values)
        return said.getvalue()

    lines = in_child(work)
    return lines.startswith(f"{REPLAYED}: yes") and lines == asked()[question][2], lines
