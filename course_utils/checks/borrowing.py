"""Whether an answer calls the course's own library in place of computing by itself, however it got hold of it.

While an answer runs, every call from outside of the library into it is noted, but those of what the exercise's own
cells give. Must never import anything of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = str(Path(__file__).resolve())
LIBRARY = str(Path(__file__).resolve().parents[1])
CALLER = (str(Path(__file__).resolve().with_name("core.py")), "attempt")  # what calls an answer, by file and name


@contextmanager
def calls_noted(given: Collection[object] = ()) -> Iterator[list[str]]:
    """While active, the list fills with the names of what is called of the library from outside of it.

    Args:
        given: functions and classes of the library that may be called.
    """
    found: list[str] = []
    allowed = {code for one in given for code in _codes(one)}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(LIBRARY) or code.co_filename == HERE or code in allowed:
            return
        caller = frame.f_back.f_code if frame.f_back is not None else None
        if caller is not None and caller.co_filename.startswith(LIBRARY):
            calls_answer = (caller.co_filename, caller.co_name) == CALLER
            if not calls_answer or code.co_filename == CALLER[0]:  # it also looks at what came back
                return
        found.append(f"{frame.f_globals.get('__name__')}.{code.co_name}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


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
