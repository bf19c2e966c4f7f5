"""The commands `course check` and `course progress`: find the files, have them marked, print tables.

`check` marks afresh and remembers in `.course/marks.json` under the course's folder; `progress` marks only what has no
remembered marks for these answers and this solution.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import unescape
from pathlib import Path

from nbformat import NotebookNode
from rich.box import HORIZONTALS
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from classroom.grading.graft import Graft, graft, kind_of
from classroom.grading.library import not_in_sandbox
from classroom.grading.mark import FORM, Marks, mark, read_kept, with_partial_points
from classroom.grading.run import Limits
from classroom.notebooks import chosen, read_notebook, to_text
from classroom.questions.core import Outcome
from classroom.workspace import WORK, learners_file
from course_utils.files import write_whole
from course_utils.units import CourseError

STYLE = {Outcome.NOT_ATTEMPTED: "dim", Outcome.WRONG: "yellow", Outcome.CRASHED: "red", Outcome.CORRECT: "green"}
SIGNS = {Outcome.NOT_ATTEMPTED: "·", Outcome.WRONG: "✗", Outcome.CRASHED: "!", Outcome.CORRECT: "✓"}
PARTIAL = "give partial points, as a teacher may: for the inputs that are right"
CACHE = Path(".course") / "marks.json"


def check_command(args: Sequence[str], root: Path, console: Console | None = None) -> int:
    """`course check [03 | FILE …]`: mark saved exercises. Returns 0 if every question of them is correct, else 1.

    Without arguments: every exercise in which something was attempted. Raises CourseError.
    """
    parser = argparse.ArgumentParser(prog="course check", description="Mark your saved exercise by questions.")
    add = parser.add_argument
    add("exercise", nargs="*", help="a number such as 03, or a notebook; all you have begun when left out")
    add("--seconds", type=float, default=Limits().cell, help="time a cell may take (default: %(default)g)")
    add("--partial", action="store_true", help=PARTIAL)
    options = parser.parse_args(list(args))
    if options.seconds <= 0:
        raise CourseError("--seconds must be more than 0")
    console = console or Console()
    if options.exercise:
        pairs = [_find_pair(name, root) for name in options.exercise]
    else:
        pairs = [(saved, trusted) for saved, trusted in _all_pairs(root) if saved.exists()]
        pairs = [pair for pair in pairs if any(answer.attempted for answer in _read(*pair).answers.values())]
        if not pairs:
            console.print(f"Nothing attempted yet: open a notebook in {WORK}/exercises/, replace some dots, and save.")
            return 1
    correct = True
    for submission, trusted in pairs:
        grafted = _read(submission, trusted)
        marks = _mark_now(grafted, root, console, Limits(cell=options.seconds))
        marks = with_partial_points(marks) if options.partial else marks
        console.print(_marks_shown(marks, submission, root, _hints(grafted.trusted)))
        flags = [f"{q.title}: {flag}." for q in marks.questions for flag in q.flags]
        for line in (*flags, *_imports_lost(grafted)):  # what was not as it was handed out
            console.print(line, style="bold", markup=False)
        console.print(Rule(style="dim"), Text(_next_step(marks, root)), sep="\n")
        correct = correct and marks.points == marks.out_of
    return 0 if correct else 1


def progress_command(args: Sequence[str], root: Path, console: Console | None = None) -> int:
    """`course progress`: all exercises at a glance; only those that changed since are run. Raises CourseError."""
    parser = argparse.ArgumentParser(prog="course progress", description="All exercises at a glance.")
    parser.add_argument("--partial", action="store_true", help=PARTIAL)
    options = parser.parse_args(list(args))
    console = console or Console()
    counted = [Column(name, justify="right") for name in ("correct", "points")]
    columns = Column("exercise", overflow="fold"), Column("questions", no_wrap=True), *counted
    table = Table(*columns, title="Exercises", title_justify="left", box=HORIZONTALS)
    points, out_of = 0.0, 0
    problems = []
    remembered = _read_cache(root)
    for submission, trusted in _all_pairs(root):
        name = submission.stem
        try:
            grafted = _read(submission, trusted)
            marks = remembered.get(_key(grafted)) or _mark_now(grafted, root, console)
        except CourseError as error:  # one broken file must not hide the others
            table.add_row(name, "cannot be read", "", "", style="bold")
            problems.append(str(error))
            continue
        marks = with_partial_points(marks) if options.partial else marks
        boxes = " ".join(f"[{STYLE[q.outcome]}]{SIGNS[q.outcome]}[/]" for q in marks.questions)
        correct = sum(q.outcome is Outcome.CORRECT for q in marks.questions)
        table.add_row(name, boxes, f"{correct} of {len(marks.questions)}", f"{marks.points:g} of {marks.out_of}")
        points, out_of = points + marks.points, out_of + marks.out_of
    table.add_section()
    table.add_row("all", "", "", f"{points:g} of {out_of}")
    del table.columns[2 : 3 if console.width < 50 else 2]  # on a phone the signs say how many are correct
    console.print(table)
    console.print(", ".join(f"{SIGNS[o]} {o.value}" for o in Outcome), style="dim")
    console.print(*problems, sep="\n", end="\n" * bool(problems), style="bold", markup=False)
    return 0


def _all_pairs(root: Path) -> list[tuple[Path, Path]]:
    """(exercise, solution) for every exercise of the course, in order."""
    return [(learners_file(root, s.stem), s) for s in sorted((root / "solutions").glob("*.ipynb"))]


def _find_pair(name: str, root: Path) -> tuple[Path, Path]:
    """The exercise meant by a number, a name or a path, and its solution. Raises CourseError."""
    known = {exercise.stem: (exercise, solution) for exercise, solution in _all_pairs(root)}
    if not name.endswith(".ipynb"):
        return known[chosen([name], known, "exercise or notebook")[0]]
    path = Path(name)
    notebook = read_notebook(path)
    course = notebook.metadata.get("course")
    topic = str(course.get("topic", path.stem)) if isinstance(course, dict) else path.stem
    if topic not in known:
        raise CourseError(f"{path} belongs to no exercise of this course")
    return path, known[topic][1]


def _read(submission: Path, trusted: Path) -> Graft:
    answered, solution = read_notebook(submission), read_notebook(trusted)
    try:
        return graft(answered, solution)
    except CourseError as error:
        raise CourseError(f"{submission}: {error}") from None


def _mark_now(grafted: Graft, root: Path, console: Console, limits: Limits | None = None) -> Marks:
    """Mark these answers, and remember the marks in place of the exercise's earlier ones."""
    with console.status(f"{grafted.topic}: starting …") as status:
        marks = mark(grafted, limits, on_question=lambda q: status.update(f"{grafted.topic}: {q or 'set-up'} …"))
    kept = {k: m for k, m in _read_cache(root).items() if m.topic != grafted.topic} | {_key(grafted): marks}
    write_whole(root / CACHE, json.dumps({k: asdict(m) for k, m in kept.items()}, indent=1, sort_keys=True) + "\n")
    return marks


def _key(grafted: Graft) -> str:
    """What marks depend on: the answers and the solution."""
    answers = {name: vars(answer) for name, answer in grafted.answers.items()}
    content = json.dumps([FORM, answers, to_text(grafted.trusted)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _read_cache(root: Path) -> dict[str, Marks]:
    return read_kept(Mapping[str, Marks], root / CACHE) or {}


def _marks_shown(marks: Marks, submission: Path, root: Path, hints: Mapping[str, Sequence[str]]) -> Group:
    """A row for each question, and below it, over the whole width, what the check says and what to do next."""
    shown = submission.relative_to(root) if submission.is_relative_to(root) else submission
    parts: list[RenderableType] = [
        Rule(style="dim"),
        Text(f"{shown}: {marks.points:g} of {marks.out_of} points", style="bold"),
    ]
    for q in marks.questions:
        widths = Column(ratio=1), Column(width=2 + max(map(len, Outcome))), Column(width=9, justify="right")
        row = Table.grid(*widths, padding=(0, 2), expand=True)
        told = Text.assemble((SIGNS[q.outcome], STYLE[q.outcome]), f" {q.outcome.value}")  # words would be too faint
        row.add_row(Text(q.title), told, f"{q.points:g} of {q.out_of}")
        parts += [Rule(style="dim"), row]
        said = [q.diagnosis] * bool(q.diagnosis)
        if q.outcome in (Outcome.WRONG, Outcome.CRASHED) and hints.get(q.question):
            said.append(f"Hints below it, open the one that fits: {' / '.join(hints[q.question])}")
        parts += [Padding(Text(line), (0, 0, 0, 3)) for line in said]
    return Group(*parts)


def _imports_lost(grafted: Graft) -> Iterator[str]:
    """A line for each answer that imports what runs here and is not there where a teacher grades."""
    for question in grafted.questions:
        if names := not_in_sandbox(grafted.answers[question.name].source, grafted.trusted):
            lost = ", ".join(f"`{name}`" for name in names)
            yield f"{question.title}: {lost} will not be there when this is graded; write what you need here."


def _next_step(marks: Marks, root: Path) -> str:
    """What to do next, in one line: mend the first wrong answer, go on with the next question or the next lesson."""
    wrong = [q for q in marks.questions if q.outcome in (Outcome.WRONG, Outcome.CRASHED)]
    if wrong:
        return f"Next: mend {wrong[0].title}, save the notebook, and check again."
    left = [q for q in marks.questions if q.outcome is Outcome.NOT_ATTEMPTED]
    if left:
        return f"Nothing to mend, {len(left)} to go. Next: {left[0].title}."
    later = sorted(path.name for path in (root / "notebooks").glob("*.ipynb") if path.stem > marks.topic)
    return f"All are right. Next: {WORK}/notebooks/{later[0]}" if later else "All are right, and this is the last."


def _hints(trusted: NotebookNode) -> dict[str, list[str]]:
    """The symptoms that a notebook's hints are for, by question."""
    found: dict[str, list[str]] = {}
    for cell in trusted.cells:
        kind, question = kind_of(cell)
        symptom = re.search(r"<summary><b>Hint\.</b> (.*?)</summary>", cell.source)
        if kind == "hint" and symptom:
            found.setdefault(question, []).append(unescape(re.sub(r"</?code>", "`", symptom[1])).rstrip("."))
    return found
