"""From `lessons/` to the three notebooks of a topic, not executed: read and check percent files, plan notebooks.

`plan` is the same for the same source, so that a test can compare what is committed with what the source gives.
`building` executes and writes what is planned. CONTRIBUTING.md describes the format an author writes.
"""

import ast
import difflib
import hashlib
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from classroom import deck
from classroom.notebooks import as_notebook, topics
from classroom.questions.core import names_in
from course_utils.units import CourseError

CELL_MARKER = re.compile(r"# ?%%(\s|$)")
BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
DOTS = "...  # replace the dots"
ASKS = re.compile(r"^\w+ = predict\(", re.MULTILINE)  # its widget says what its code says: folded, it is read once
COLUMNS = 95  # of code that a notebook's window shows; a longer line scrolls sideways

# What a cell may be, by the metadata key that says so, and whether it is text.
KINDS = {"question": True, "answer": False, "check": False, "hint": True, "graded": False}
NUMBERS = ("points", "difficulty", "minutes")
SLIDE_TYPES = ("slide", "subslide", "fragment", "skip", "notes")
NBVAL_TAGS = ("nbval-ignore-output", "nbval-check-output", "nbval-skip", "nbval-raises-exception")

NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


class AuthoringError(CourseError):
    """A fault in a source file, written as `lessons/memory/exercise.py:41: what is wrong and what to do`."""


@dataclass(frozen=True)
class SourceCell:
    """One cell as the author wrote it. `line` is the line of its `# %%` marker, counted from 1."""

    file: str
    line: int
    first_line: int  # where the cell's own text begins
    kind: str  # text, code, or a key of KINDS
    question: str  # the question it belongs to, or ""
    text: str
    options: dict[str, Any] = field(default_factory=dict)

    def error(self, message: str, line: int | None = None) -> AuthoringError:
        """An error that points at this cell, or at a line of the file."""
        return AuthoringError(f"{self.file}:{line or self.line}: {message}")


@dataclass(frozen=True)
class Planned:
    """An unexecuted notebook. `lines` maps a cell id to the file and line it was written at."""

    notebook: NotebookNode
    lines: dict[str, tuple[str, int]]


# -- reading ---------------------------------------------------------------------------------------------------------


def read_cells(text: str, file: str) -> list[SourceCell]:
    """Split percent-format text into cells and check each of them. Raises AuthoringError."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if CELL_MARKER.match(line)]
    if not starts:
        raise AuthoringError(f"{file}:1: no cells; a cell begins with a line `# %%`")
    header = "\n".join(lines[: starts[0]]).strip()
    if header and not (header.startswith("# ---") and header.endswith("# ---")):
        raise AuthoringError(f"{file}:1: text before the first cell; begin it with `# %% [markdown]` or `# %%`")
    return [
        _read_cell(lines[start:end], file, start + 1)
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


def read_topic(folder: Path) -> tuple[list[SourceCell], ...]:
    """The cells of a topic's lesson and of its exercise; none of what it has not. Raises AuthoringError."""
    return tuple(
        read_cells(path.read_text(encoding="utf-8"), f"lessons/{folder.name}/{path.name}") if path.exists() else []
        for path in (folder / "lesson.py", folder / "exercise.py")
    )


def _read_cell(lines: list[str], file: str, line: int) -> SourceCell:
    """One cell; jupytext reads it by itself, so that every error has its line."""
    where = f"{file}:{line}"
    try:
        (cell,) = jupytext.reads("\n".join(lines) + "\n", fmt="py:percent").cells
    except (ValueError, TypeError, KeyError, nbformat.ValidationError) as error:
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AuthoringError(f"{where}: this cell cannot be read: {cause}") from None
    options = {k: v for k, v in cell.metadata.items() if k not in ("lines_to_next_cell", "cell_marker")}
    if cell.cell_type == "raw" or "incorrectly_encoded_metadata" in options or "title" in options:
        raise AuthoringError(f'{where}: cannot read `{lines[0]}`: write `# %%` or `# %% [markdown]`, then key="value"')
    is_text = cell.cell_type == "markdown"
    kinds = [key for key in options if key in KINDS]
    if len(kinds) > 1:
        raise AuthoringError(f"{where}: a cell is either {' or '.join(kinds)}, not both")
    kind = kinds[0] if kinds else "text" if is_text else "code"
    question = options.pop(kind, "") if kinds else ""
    if kinds and is_text != KINDS[kind]:
        marker = "# %% [markdown]" if KINDS[kind] else "# %%"
        raise AuthoringError(f"{where}: a cell with {kind}= begins with `{marker}`")
    if kinds and not (isinstance(question, str) and question.isidentifier() and len(question) <= 40):
        raise AuthoringError(f'{where}: {kind}= needs the name of a question such as "map_bytes", got {question!r}')
    first = next((i for i, content in enumerate(lines[1:], start=line + 1) if content.strip()), line + 1)
    made = SourceCell(file, line, first, kind, question, cell.source.strip("\n"), options)
    _check_options(made)
    if not is_text:
        _parse(made)
        for number, content in enumerate(made.text.splitlines(), start=first):
            if len(content) > COLUMNS:
                raise made.error(f"{len(content)} columns of code, a notebook shows {COLUMNS}: break the line", number)
    return made


def _check_options(cell: SourceCell) -> None:
    own = {"code": ("folded", "reads"), "question": NUMBERS}
    allowed = ("slide", "tags", *own.get(cell.kind, ()))
    for key, value in cell.options.items():
        if key not in allowed:
            close = difflib.get_close_matches(key, [*allowed, *KINDS], n=1)
            hint = f"did you mean {close[0]}=?" if close else f"a {cell.kind} cell may have {', '.join(allowed)}"
            raise cell.error(f"unknown key {key}=; {hint}")
        if key == "slide" and value not in SLIDE_TYPES:
            raise cell.error(f"slide={value!r} is no slide type; choose one of {', '.join(SLIDE_TYPES)}")
        if key == "folded" and value is not True:
            raise cell.error(f"folded={value!r} must be true, or be left out")
        if key == "tags":
            unknown = [t for t in value if str(t).startswith("nbval") and t not in NBVAL_TAGS]
            if unknown:
                raise cell.error(f"unknown tag {unknown[0]!r}; nbval knows {', '.join(NBVAL_TAGS)}")
        if key in NUMBERS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise cell.error(f"{key}={value!r} must be a whole number of at least 1")
    if cell.options.get("difficulty", 1) > 3:
        raise cell.error(f"difficulty={cell.options['difficulty']} must be 1, 2 or 3")


def _parse(cell: SourceCell) -> ast.Module:
    """The syntax tree of a code cell, magics included, with the file's lines. Raises AuthoringError at a line of it."""
    try:
        code = TransformerManager().transform_cell(cell.text)  # type: ignore[no-untyped-call]
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, cell.file, "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        raise cell.error(f"syntax error: {error.msg}", cell.first_line + (error.lineno or 1) - 1) from None
    assert isinstance(tree, ast.Module)
    return ast.increment_lineno(tree, cell.first_line - 1)


# -- questions -------------------------------------------------------------------------------------------------------


def _check_questions(cells: Sequence[SourceCell]) -> None:
    """Every question whole, in order, named once. Raises AuthoringError."""
    questions: dict[str, SourceCell] = {}
    for cell in cells:
        if cell.kind == "question":
            if cell.question in questions:
                first = questions[cell.question].line
                raise cell.error(f"question {cell.question!r} was already asked at line {first}")
            questions[cell.question] = cell
            if not cell.text.startswith("## "):  # the one level below the title: a screen reader's list of questions
                raise cell.error(f"question {cell.question!r} must begin with a heading: ## and its title")
            for key in NUMBERS:
                if key not in cell.options:
                    raise cell.error(f"question {cell.question!r} has no {key}=")
        elif cell.question and cell.question not in questions:
            close = difflib.get_close_matches(cell.question, questions, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f'ask it first: question="{cell.question}"'
            raise cell.error(f"{cell.kind} of unknown question {cell.question!r}; {hint}")
        if cell.kind == "hint" and not re.match(r"\*\*.+?\*\*", cell.text):
            raise cell.error("a hint begins with the symptom it is for, in bold: `**My number is too small.** …`")
        if cell.kind in ("code", "check", "graded"):
            for number, line in enumerate(cell.text.splitlines(), start=cell.first_line):
                if line.strip() in (BEGIN, END):
                    raise cell.error(f"`{line.strip()}` stands outside an answer cell", number)
    if questions and cells[0].kind != "text":
        raise cells[0].error("an exercise begins with a text cell: its title")
    for name, cell in questions.items():
        parts = [c.kind for c in cells if c.question == name]
        for kind in ("answer", "check", "graded"):
            if parts.count(kind) != 1:
                raise cell.error(f"question {name!r} has {_count(parts.count(kind), f'{kind} cell')}; it needs one")
        hints = parts.count("hint")
        if not 2 <= hints <= 3:
            raise cell.error(f"question {name!r} has {_count(hints, 'hint')}; give two or three, each for a symptom")
        if not parts.index("answer") < parts.index("check") < parts.index("graded"):
            raise cell.error(f"question {name!r}: the order is answer, check, graded")


def split_answer(cell: SourceCell) -> tuple[str, str]:
    """(solution, stub) of an answer cell: markers dropped; the dots where the solution stood. Raises AuthoringError."""
    tree, lines = _parse(cell), cell.text.splitlines()
    marks = [(place, line.strip()) for place, line in enumerate(lines) if line.strip() in (BEGIN, END)]
    if not marks:
        raise cell.error(f"the answer to {cell.question!r} has no `{BEGIN}` … `{END}`")
    for number, (place, mark) in enumerate(marks):
        is_last = number == len(marks) - 1
        if mark != (BEGIN, END)[number % 2] or (mark == BEGIN and is_last):
            raise cell.error(f"`{mark}` stands alone: `{BEGIN}` and `{END}` come in pairs", cell.first_line + place)
    places = [place for place, _ in marks]
    solution = [line for place, line in enumerate(lines) if place not in places]
    for begin, end in reversed(list(zip(places[::2], places[1::2], strict=True))):
        solved, indent = "\n".join(lines[begin + 1 : end]), lines[end][: -len(lines[end].lstrip())]
        lines[begin : end + 1] = _dots(cell, tree, cell.first_line + begin, solved, indent)
    return "\n".join(solution), "\n".join(lines)


def _dots(cell: SourceCell, tree: ast.Module, begin: int, solved: str, indent: str) -> list[str]:
    """The lines that stand in for a solution, which begins at this line of the file."""
    defined = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    functions = [one.name for one in defined if one.lineno < begin < (one.end_lineno or 0)]
    if functions:  # a method `__init__` that returns something is a TypeError
        return [f"{indent}{DOTS}" if "__init__" in functions else f"{indent}return {DOTS}"]
    bound, _ = names_in(textwrap.dedent(solved))
    if not bound:
        raise cell.error("this solution neither stands in a function nor names anything", begin)
    return [f"{indent}{name} = {DOTS}" for name in dict.fromkeys(re.findall(r"\w+", solved)) if name in bound]


# -- planning --------------------------------------------------------------------------------------------------------


def plan(topic: str, root: Path) -> dict[str, Planned]:
    """The notebooks of one topic, such as "03_memory", by the folder they are for. Raises AuthoringError."""
    lesson, exercise = ([_with_digest(cell, root) for cell in cells] for cells in read_topic(topics(root)[topic]))
    _check_questions(exercise)
    for cell in lesson:
        if cell.question:
            raise cell.error(f"a lesson has no {cell.kind} cells; put them in exercise.py")
    told = [_with_counts(cell, exercise) for cell in lesson]
    kinds = {"notebooks": ("lesson", told), "exercises": ("exercise", exercise), "solutions": ("solution", exercise)}
    return {folder: _notebook(topic, kind, cells) for folder, (kind, cells) in kinds.items() if cells}


def _with_digest(cell: SourceCell, root: Path) -> SourceCell:
    """A cell with a digest of the file it reads, of which its outputs hang as of its code. Raises AuthoringError."""
    if "reads" not in cell.options:
        return cell
    path = root / str(cell.options["reads"])
    if not path.is_file():
        raise cell.error(f"reads={cell.options['reads']!r} is no file of the course, such as course_utils/units.py")
    digest = hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()[:16]
    return replace(cell, options={**cell.options, "reads": {cell.options["reads"]: digest}})


NUMBER_WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


def _with_counts(cell: SourceCell, exercise: Sequence[SourceCell]) -> SourceCell:
    """A lesson's text with what its exercise asks: `{questions}` as "Six questions, 47 minutes", `{minutes}` as 47."""
    if cell.kind != "text":
        return cell
    minutes = [asked.options["minutes"] for asked in exercise if asked.kind == "question"]
    count = NUMBER_WORDS[len(minutes)] if len(minutes) < len(NUMBER_WORDS) else str(len(minutes))
    asked = f"{count} question{'' if len(minutes) == 1 else 's'}, {sum(minutes)} minutes"
    return replace(cell, text=cell.text.replace("{questions}", asked).replace("{minutes}", str(sum(minutes))))


def _notebook(topic: str, kind: str, cells: Sequence[SourceCell]) -> Planned:
    counts: dict[str, int] = {}
    asked = [cell for cell in cells if cell.kind == "question"]
    points = {cell.question: cell.options["points"] for cell in asked}
    made: list[NotebookNode] = []
    lines: dict[str, tuple[str, int]] = {}
    for cell in cells:
        if cell.kind == "graded" and kind == "exercise":
            continue
        stem = f"{cell.kind}-{cell.question}" if cell.question else cell.kind
        counts[stem] = counts.get(stem, 0) + 1
        numbered = cell.kind in ("text", "code", "hint")
        identity = f"{stem}-{counts[stem]}" if numbered else stem
        made.append(_cell(cell, kind, identity, points.get(cell.question, 0)))
        lines[identity] = (cell.file, cell.first_line)
    if points:
        minutes = sum(cell.options["minutes"] for cell in asked)
        made[0].source += f"\n\n*{len(asked)} questions, {sum(points.values())} points, about {minutes} minutes*"
    metadata = {**NOTEBOOK_METADATA, "course": {"kind": kind, "topic": topic}}
    if kind == "lesson":
        deck.join_slides(made)
        metadata[deck.METADATA_KEY] = deck.live_style(made)
    return Planned(as_notebook(new_notebook(cells=made, metadata=metadata)), lines)  # type: ignore[no-untyped-call]


def _cell(cell: SourceCell, kind: str, identity: str, points: int) -> NotebookNode:
    """One notebook cell. `kind` is the kind of notebook: lesson, exercise or solution."""
    metadata: dict[str, Any] = {}
    text = cell.text
    if cell.question:
        metadata["course"] = {"kind": cell.kind, "question": cell.question, "points": points}
    if cell.kind == "question":
        heading, _, rest = text.partition("\n")
        difficulty, minutes = cell.options["difficulty"], cell.options["minutes"]
        facts = f"{_count(points, 'point')} · difficulty {difficulty} of 3 · about {_count(minutes, 'minute')}"
        text = f"{heading}\n\n*{facts}*\n\n{rest.strip()}".rstrip()
    elif cell.kind == "hint":
        symptom, rest = re.match(r"\*\*(.+?)\*\*\s*(.*)", text, flags=re.DOTALL).groups()  # type: ignore[union-attr]
        symptom = re.sub(r"`([^`]+)`", r"<code>\1</code>", symptom)  # no Markdown is read inside a summary
        text = f"<details>\n<summary><b>Hint.</b> {symptom}</summary>\n\n{rest}\n\n</details>"
    elif cell.kind == "answer":
        solution, stub = split_answer(cell)
        text = solution if kind == "solution" else stub
        # Marking compares with the stub to know what was attempted, and reads it from here.
        metadata["course"]["stub"] = stub
        metadata["deletable"] = False
    elif cell.kind == "check":
        metadata["deletable"] = metadata["editable"] = False
    if "reads" in cell.options:
        metadata["reads"] = cell.options["reads"]
    tags = list(cell.options.get("tags", []))
    if "slide" in cell.options:
        notes = cell.options["slide"] == "notes"  # a live deck stops at such a cell, and passes one that is skipped
        metadata["slideshow"] = {"slide_type": "skip" if notes else cell.options["slide"]}
        tags += [deck.NOTES] * notes
    if tags:
        metadata["tags"] = tags
    if cell.options.get("folded") or ASKS.search(text):
        metadata["jupyter"] = {"source_hidden": True}
        metadata["transient"] = {"remove_source": True}  # in pages that nbconvert makes, which fold nothing
    make = new_markdown_cell if cell.kind == "text" or KINDS.get(cell.kind) else new_code_cell
    return as_notebook(make(text, id=identity, metadata=metadata))  # type: ignore[no-untyped-call]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
