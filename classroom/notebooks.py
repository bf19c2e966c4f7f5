"""Read notebook files that anybody may have broken, give a notebook its one text form, and name the course's topics.

Every fault of a file becomes a one-line CourseError that says what to do.
"""

import json
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_utils.units import CourseError

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # the output that is a live widget
KEPT = ("nbformat", "nbformat_minor", "cell_type", "id", "source")  # beside metadata, of what marking looks at


def read_notebook(path: Path) -> NotebookNode:
    """A notebook file in format 4, each cell with a type, a source and a metadata dictionary.

    Raises CourseError: cannot be read, empty, not JSON, conflict markers of git, not a notebook.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror or error}); check the name") from None
    return parse_notebook(content, str(path))


def parse_notebook(data: bytes, name: str, slim: bool = False) -> NotebookNode:
    """The bytes of a notebook file as `read_notebook` gives them; `name` is what errors call the file.

    UTF-8 with or without a byte order mark, or UTF-16 with one. `slim` leaves out what no marking looks at: outputs,
    attachments, the metadata of others. Raises CourseError as `read_notebook` does.
    """
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        raise CourseError(f"{name} is not a text file, so it is no notebook") from None
    if not text.strip():
        raise CourseError(f"{name} is empty; save the notebook in JupyterLab first")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if "\n<<<<<<< " in text or text.startswith("<<<<<<< "):
            raise CourseError(f"{name} holds conflict markers of git (<<<<<<<); settle the conflict first") from None
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise CourseError(f"{name} is damaged: not valid JSON{line}; restore a checkpoint in JupyterLab") from None
    try:
        if content["nbformat"] < 4:
            with warnings.catch_warnings(action="ignore"):  # of what it corrects
                content = nbformat.convert(nbformat.reader.reads(text), 4)  # type: ignore[no-untyped-call]
        for part in (content, *content["cells"]):
            if not isinstance(part.get("metadata"), dict):
                part["metadata"] = {}
        if slim:
            content = {**_slim(content), "cells": [_slim(cell) for cell in content["cells"]]}
        # Half characters, which JSON can hold and no file, become question marks.
        text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace").decode()
        # Without validation: one odd cell must not refuse the rest.
        notebook = nbformat.v4.reads(text)  # type: ignore[no-untyped-call]
        if not all(isinstance(cell.source, str) and isinstance(cell.cell_type, str) for cell in notebook.cells):
            raise TypeError("a cell without text")
    except MemoryError:
        raise CourseError(f"{name} is too large to be read; clear its outputs") from None
    except Exception:  # noqa: BLE001 - the converters of old formats fail in ways of their own
        raise CourseError(f"{name} is JSON but no notebook; is it the right file?") from None
    return as_notebook(notebook)


def _slim(part: dict[str, Any]) -> dict[str, Any]:
    """What marking looks at, of a notebook or of a cell."""
    kept = {key: value for key, value in part.items() if key in KEPT}
    return {**kept, "metadata": {key: value for key, value in part["metadata"].items() if key == "course"}}


def as_notebook(content: dict[str, Any]) -> NotebookNode:
    """Nested dictionaries as a notebook with attribute access; always a copy."""
    made: NotebookNode = nbformat.from_dict(json.loads(json.dumps(content)))  # type: ignore[no-untyped-call]
    return made


def to_text(notebook: NotebookNode) -> str:
    """A notebook as it stands in a file: sorted keys, one space of indent, a final newline."""
    text: str = nbformat.writes(notebook, version=4)  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def outline(notebook: NotebookNode) -> str:
    """A notebook's cells and metadata without outputs, as text: what the source alone decides."""
    cells = [
        {"id": c.get("id"), "type": c.cell_type, "metadata": c.metadata, "source": c.source} for c in notebook.cells
    ]
    metadata = {key: value for key, value in notebook.metadata.items() if key != "widgets"}
    return json.dumps({"cells": cells, "metadata": metadata}, indent=1, sort_keys=True, ensure_ascii=False)


def topics(root: Path) -> dict[str, Path]:
    """The topics of a course in their order: "03_memory", as its notebooks are named, and its folder in lessons/.

    Raises CourseError: lessons/contents.txt is missing, or does not name each folder of a lesson once.
    """
    lessons = root / "lessons"
    try:
        lines = (lessons / "contents.txt").read_text(encoding="utf-8").split("\n")
    except OSError:
        raise CourseError("lessons/contents.txt is missing; a line such as `03 memory` for each topic") from None
    named = dict(line.split()[::-1] for line in lines if len(line.split()) == 2)
    written = sorted(path.parent.name for path in {*lessons.glob("*/lesson.py"), *lessons.glob("*/exercise.py")})
    odd = next((topic for topic in (*named, *written) if topic not in named or topic not in written), None)
    if odd is not None or len(named) != len([line for line in lines if line.strip()]):
        raise CourseError(f"lessons/contents.txt and the folders of lessons/ differ in {odd or 'a line'}: a line each")
    return {f"{number}_{topic}": lessons / topic for topic, number in named.items()}


def chosen(names: Sequence[str], known: Collection[str], what: str) -> list[str]:
    """The topics that numbers or names mean ("3", "03", "memory", "03_memory"), each once; all that are known for none.

    Raises CourseError for a name that means no topic, which it calls an exercise, a lesson, or whatever `what` is.
    """
    found: dict[str, None] = {}
    for name in names:
        matches = [topic for topic in known if {name, name.zfill(2)} & {topic, *topic.split("_", 1)}]
        if not matches:
            raise CourseError(f"no {what} {name!r}; there is {', '.join(known) or 'none'}")
        found.update(dict.fromkeys(matches))
    return list(found if names else known)
