"""Whether an answer calls the course's own library in place of computing by itself, however it got hold of it.

While an answer runs, every call from outside of the library into it is noted, but those of what the exercise's own
cells give.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from classroom import PACKAGES, ROOT

HERE = str(ROOT / "classroom" / "questions" / "borrowing.py")
LIBRARY = tuple(f"{ROOT / package}/" for package in PACKAGES)
INSTALLED = (sys.prefix, sys.base_prefix, "<frozen")
CALLER = (str(ROOT / "classroom" / "questions" / "core.py"), "attempt")  # what calls an answer, by file and name


@contextmanager
def calls_noted(given: Collection[object] = ()) -> Iterator[list[str]]:
    """While active, the list fills with the names of what is called of the library from outside of it.

    Args:
        given: functions and classes of the library that may be called.
    """
    found: list[str] = []
    allowed = {code for one in given for code in _codes(one)}

    collecting: list[FrameType] = []  # while garbage is looked for, who ran when that began

    def collects(phase: str, _: Any) -> None:
        collecting[:] = [sys._getframe(1)] if phase == "start" else []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if not _is_library(code.co_filename) or code.co_filename == HERE or code in allowed:
            return
        if collecting and _of_what_dies(frame, collecting[0]):
            return
        caller = frame.f_back.f_code if frame.f_back is not None else None
        if caller is not None and _is_library(caller.co_filename):
            calls_answer = (caller.co_filename, caller.co_name) == CALLER
            if not calls_answer or code.co_filename == CALLER[0]:  # it also looks at what came back
                return
        found.append(f"{frame.f_globals.get('__name__')}.{code.co_name}")

    before = sys.getprofile()
    gc.callbacks.append(collects)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        gc.callbacks.remove(collects)


def _of_what_dies(frame: FrameType, runs: FrameType) -> bool:
    """Whether what dies of the library says so, whoever runs then: no code of an answer stands between the two."""
    between = frame.f_back
    while between is not None and between is not runs:
        if not between.f_code.co_filename.startswith((*LIBRARY, *INSTALLED)):
            return False
        between = between.f_back
    return True


@functools.cache  # asked at every call
def _is_library(file: str) -> bool:
    """Whether code of this file is the course's; answers beside their lesson, for tests, are as a learner's own."""
    return file.startswith(LIBRARY) and not file.endswith("/answers.py")


def _codes(given: object) -> Iterator[CodeType]:
    """The code of a function, or of the methods of a class and of those it inherits."""
    values: list[Any] = [given]
    if isinstance(given, type):
        values = [value for kind in given.__mro__ for value in vars(kind).values()]
    for value in values:
        for one in (value, *(getattr(value, name, None) for name in ("__func__", "fget", "func", "__wrapped__"))):
            code = getattr(one, "__code__", None)
            if isinstance(code, CodeType):
                yield code
