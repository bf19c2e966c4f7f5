"""What the command line names by MODULE:NAME."""

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any

from course_utils.units import CourseError


def resolved(name: str, what: str) -> Any:
    """What MODULE:NAME names, here or in an installed package. Raises CourseError for none, and names the nearest."""
    where, _, parts = name.partition(":")
    if not where or not parts:
        raise CourseError(f"{name!r} names no {what}: write PACKAGE.MODULE:NAME, such as torchvision.models:resnet50")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(where.removesuffix(".py"))
    except (Exception, SystemExit) as error:
        raise CourseError(f"cannot import {where} ({reason(error)}): run this in the folder that holds it") from error
    for part in parts.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=2)
            hint = f": did you mean {' or '.join(near)}?" if near else ": is it spelled as in the file?"
            raise CourseError(f"{where} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def reason(error: BaseException) -> str:
    """An error as one line."""
    text = (str(error).strip() or "without a message").splitlines()[0]
    return f"{type(error).__name__}: {text}"
