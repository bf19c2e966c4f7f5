"""A learner's own copies of the lessons and exercises, in the folder `work/`, which git ignores.

`course lab` brings them up to date before JupyterLab opens, `course work` does nothing else. `notebooks/` and
`exercises/` stay as git gave them, so that a pull finds nothing of a learner's in its way. What was handed out is
kept in `work/.course/handed_out/`; by it an edited cell is told from one that was mended since. docs/teaching.md says
what becomes of copies of what was mended; where anything of a learner's has no place in an exercise, the whole earlier
file is kept beside as well. What was handed out is written last: interrupted anywhere, the next call ends what is left.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ipykernel.ipkernel import IPythonKernel
from nbformat import NotebookNode

from classroom.grading.graft import kind_of
from classroom.notebooks import as_notebook, parse_notebook, read_notebook, to_text
from course_utils.files import write_whole
from course_utils.units import CourseError

WORK = "work"
FOLDERS = ("notebooks", "exercises")
HANDED_OUT = Path(WORK) / ".course" / "handed_out"
YOURS = "_yours"  # behind the name of a file that is kept beside
NUMBERED = re.compile(r"(text|code|hint-\w+)-\d+")  # how the build names a cell that is no part of a question

NEW, RENEWED = "New", "Brought up to date"

Cells = list[tuple[str, str]]  # id and text of each cell that is not empty, in order
Change = tuple[str, str]  # what was done, NEW or RENEWED, and with which file; else "" and a sentence that says it


@dataclass(frozen=True)
class Carried:
    """A mended exercise with a learner's answers and cells in it."""

    notebook: NotebookNode
    answered: tuple[str, ...]  # the questions whose answers are in it
    reworded: tuple[str, ...]  # those of them whose words or first line are others than when they were answered
    left: tuple[str, ...]  # what is in the earlier file and not in this one, in words


def bring_up_to_date(root: Path) -> list[str]:
    """Fill `work/` of the course in `root`, or bring it up to date. Returns what was done, in one line each.

    Raises CourseError where a file of the course's own cannot be read or `work/` cannot be written.
    """
    try:
        changes: list[Change] = []
        for folder, shipped in ((one, path) for one in FOLDERS for path in sorted((root / one).glob("*.ipynb"))):
            name = f"{folder}/{shipped.name}"
            if folder == "exercises" and holds_answers(shipped):
                said = f"you answered in {name}, in the way of the next pull; move it to {WORK}/{name}"
                changes.append(("", f"{said}, then run `git checkout -- {name}`"))
                continue
            data, handed = as_opened(shipped.read_bytes(), name), root / HANDED_OUT / name
            change = _bring_one(name, data, root / WORK / name, handed.read_bytes() if handed.exists() else None)
            changes += [change] if change else []
            write_whole(handed, data)
    except OSError as error:
        raise CourseError(f"{error.filename or root / WORK} cannot be written: {error.strerror or error}") from None
    return _said(changes, root)


def as_opened(data: bytes, name: str) -> bytes:
    """A file of the course with what JupyterLab adds when it is opened, and would ask to save."""
    notebook = parse_notebook(data, name)
    notebook.metadata["language_info"] = IPythonKernel.language_info
    return to_text(notebook).encode()


def learners_file(root: Path, topic: str) -> Path:
    """The exercise in which a learner answers: the copy in `work/`, or the course's own where only that has answers."""
    own, shipped = root / WORK / "exercises" / f"{topic}.ipynb", root / "exercises" / f"{topic}.ipynb"
    if shipped.exists() and not (own.exists() and holds_answers(own)) and (holds_answers(shipped) or not own.exists()):
        return shipped
    return own


def _bring_one(file: str, data: bytes, own: Path, before: bytes | None) -> Change | None:
    """Bring a copy up to date with the course's own file; None where there is nothing to do.

    The file has these bytes, and had those `before`, when it was handed out the last time; None if nobody knows.
    """
    name = file.removesuffix(".ipynb")
    if not own.exists():
        write_whole(own, data)
        return NEW, name
    if before == data:
        return None
    new = parse_notebook(data, file)
    try:
        mine = read_notebook(own)
    except CourseError as error:
        return "", f"{error}; rename it, and there will be a fresh one"
    handed = _handed(before, file)
    if _cells(mine) == _cells(new):
        return (RENEWED, name) if own.read_bytes() == before and write_whole(own, data) else None
    if _cells(mine) == handed:
        write_whole(own, data)
        return RENEWED, name
    if handed == _cells(new):
        return None  # only the learner changed it
    if file.startswith("notebooks/"):
        kept = _keep_beside(own)
        write_whole(own, data)
        return "", f"{name} was mended; yours, with the cells you changed, is {kept.stem}"
    carried = carried_over(mine, new, None if handed is None else dict(handed))
    answers = f"your {len(carried.answered)} answer{'' if len(carried.answered) == 1 else 's'}"
    said = f"{name} was mended; {answers if carried.answered else 'what you wrote'} moved over"
    if carried.reworded:
        said += f"; asked in other words, so check again: {', '.join(carried.reworded)}"
    if carried.left:
        said += f"; kept in {_keep_beside(own).stem}: {'; '.join(carried.left)}"
    write_whole(own, to_text(carried.notebook))
    return "", said


def _keep_beside(own: Path) -> Path:
    """Write a file's bytes beside it under a name that is free or that says the same already."""
    data = own.read_bytes()
    names = (own.with_name(f"{own.stem}{YOURS}{number if number > 1 else ''}.ipynb") for number in count(1))
    kept = next(name for name in names if not name.exists() or name.read_bytes() == data)
    write_whole(kept, data)
    return kept


def _said(changes: Sequence[Change], root: Path) -> list[str]:
    """What was done, in a line or two, and a line for each file in which a learner has changed something."""
    files = {what: [file for done, file in changes if done == what] for what in (NEW, RENEWED)}
    parts = [f"{what}: {_names(names)}." for what, names in files.items() if names]
    lines = [f"{WORK}/ holds your copies. {' '.join(parts) or 'All are up to date.'}"]
    lines += [f"{sentence}." for done, sentence in changes if not done]
    handed = [path.relative_to(root / HANDED_OUT) for path in sorted((root / HANDED_OUT).glob("*/*.ipynb"))]
    if theirs := [place.with_suffix("").as_posix() for place in handed if _is_theirs(root, place)]:
        lines.append(f"You have written in {_names(theirs)}.")
    return lines


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} files"


def _is_theirs(root: Path, place: Path) -> bool:
    """Whether a learner has changed a cell of the copy at this place in `work/`."""
    own, handed = root / WORK / place, (root / HANDED_OUT / place).read_bytes()
    try:
        return own.exists() and own.read_bytes() != handed and _cells(read_notebook(own)) != _handed(handed, str(place))
    except CourseError:
        return True


def carried_over(mine: NotebookNode, new: NotebookNode, before: Mapping[str, str] | None) -> Carried:
    """A mended exercise with what a learner wrote into an earlier one. Pure.

    Answers go to the cell of their question. A cell of the learner's own follows the cell that it followed. A cell
    that was handed out stays as the learner changed it where nobody else did.

    Args:
        mine: the learner's file.
        new: the exercise as it is handed out now.
        before: texts of the cells as they were handed out when `mine` was, by id; None where nobody knows.
    """
    made = as_notebook(new)
    places = {str(cell.get("id", "")): cell for cell in made.cells}
    answers = {question: cell for kind, question, cell in _parts(made) if kind == "answer"}
    asked, asked_before = (
        {question: cell.source for kind, question, cell in _parts(notebook) if kind == "question"}
        for notebook in (new, mine)
    )
    follow: defaultdict[str, list[NotebookNode]] = defaultdict(list)
    place, answered, reworded, left = "", [], [], []
    for kind, question, cell in _parts(mine):
        identity = str(cell.get("id", ""))
        if kind == "answer":
            target = answers.get(question)
            if target is None:
                left += [f"your answer to {question}, which is asked no longer"] if _is_attempt(cell) else []
                continue
            place = str(target.id)
            if _is_attempt(cell) and question in answered:
                follow[place].append(cell)  # of several cells that claim a question, marking takes the last
            elif _is_attempt(cell):
                stub = target.metadata.course.stub
                same = _stub(cell) == stub and asked_before.get(question, asked[question]) == asked[question]
                reworded += [] if same else [question]
                target.source = cell.source
                answered.append(question)
        elif identity in places:
            place = identity
            was = (before or {}).get(identity)
            if _text(cell) in (_text(places[identity]), was) or cell.metadata.get("editable") is False:
                continue
            if was == _text(places[identity]):
                places[identity].source = cell.source
            else:
                left.append(f"the cell {_shown(cell)} as {'you changed it' if was else 'it was'}")
        elif (before or {}).get(identity) == _text(cell):
            pass  # it was handed out then, and is no longer
        elif identity in (before or {}) or kind or (before is None and NUMBERED.fullmatch(identity)):
            left.append(f"the cell {_shown(cell)}")
        elif cell.source.strip():
            follow[place].append(cell)
    made.cells = [*follow[""], *(one for cell in made.cells for one in (cell, *follow[str(cell.get("id", ""))]))]
    return Carried(as_notebook(made), tuple(answered), tuple(reworded), tuple(left))


def _parts(notebook: NotebookNode) -> list[tuple[str, str, NotebookNode]]:
    return [(*kind_of(cell), cell) for cell in notebook.cells]


def _is_attempt(cell: NotebookNode) -> bool:
    """Whether the dots of an answer cell were replaced by something."""
    return cell.source.strip() not in ("", _stub(cell).strip())


def _stub(cell: NotebookNode) -> str:
    """An answer cell as it was handed out."""
    course = cell.metadata.get("course")
    return str(course.get("stub", "")) if isinstance(course, dict) else ""


def _shown(cell: NotebookNode) -> str:
    """A cell as a sentence names it: the start of its first line."""
    first = str(cell.source).strip().split("\n")[0]
    return f"`{first if len(first) <= 40 else first[:39] + '…'}`"


def holds_answers(path: Path) -> bool:
    """Whether somebody has answered in this file; False for one that cannot be read."""
    try:
        return any(kind == "answer" and _is_attempt(cell) for kind, _, cell in _parts(read_notebook(path)))
    except CourseError:  # whoever marks or builds it will say so
        return False


def _cells(notebook: NotebookNode) -> Cells:
    """Cells by what a learner may change of them. JupyterLab leaves an empty one below the last that was run."""
    return [(str(cell.get("id", "")), _text(cell)) for cell in notebook.cells if cell.source.strip()]


def _text(cell: NotebookNode) -> str:
    return f"{cell.cell_type} {cell.source}"


def _handed(before: bytes | None, name: str) -> Cells | None:
    """The cells of what was handed out; None where it is not known, or damaged: then nothing is taken for untouched."""
    try:
        return None if before is None else _cells(parse_notebook(before, name))
    except CourseError:
        return None
