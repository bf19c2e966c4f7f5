"""Build the notebooks that `authoring` plans: execute lesson and solution, or keep the outputs that still hold; write.

What a cell prints hangs on its code, and on the files it `reads`. Where code is as it was and a file is not, only cells
that read it are executed, those that use what these make, and what all of these stand on. Which they are is read off
names, so a test executes everything (nbval).
"""

import ast
import symtable
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from nbformat import NotebookNode

from classroom import execution
from classroom.authoring import AuthoringError, Planned, plan
from classroom.notebooks import as_notebook, chosen, read_notebook, to_text, topics
from classroom.questions.core import as_python, names_in
from classroom.workspace import holds_answers
from course_utils.files import write_whole


def build(names: Sequence[str], root: Path) -> None:
    """Write notebooks/, exercises/ and solutions/ of the topics from lessons/, executing lesson and solution.

    Without names, outputs are kept where neither code nor files that it reads changed. New figures in outputs tagged
    `nbval-ignore-output` are no change: delete the file to renew them. A build that fails writes nothing.
    Raises AuthoringError, also for an exercise that holds somebody's answers, which would be lost.
    """
    plans = {topic: plan(topic, root) for topic in chosen(names, topics(root), "topic")}
    for topic, made in plans.items():
        if "exercises" in made and holds_answers(root / "exercises" / f"{topic}.ipynb"):
            raise AuthoringError(f"exercises/{topic}.ipynb holds answers; move the file away, then build")
    outputs = [output for topic, made in plans.items() for output in _make(topic, made, root, again=bool(names))]
    for path, notebook in outputs:
        same = path.exists() and execution.same_where_compared(read_notebook(path), notebook)
        changed = not same and write_whole(path, to_text(notebook))
        print(f"{path.parent.name}/{path.name}: {'written' if changed else 'unchanged'}")


def _make(topic: str, made: dict[str, Planned], root: Path, again: bool) -> Iterator[tuple[Path, NotebookNode]]:
    """(path, notebook) of what a topic has, executed where it is to be, `again` or not. Raises AuthoringError."""
    for folder in sorted(made, key=lambda folder: folder == "notebooks"):  # a solution fails sooner
        notebook, lines = made[folder].notebook, made[folder].lines
        path = root / folder / f"{topic}.ipynb"
        path.parent.mkdir(exist_ok=True)  # the kernel runs there
        execute = partial(execution.execute, folder=path.parent, label=f"{folder}/{path.name}")
        try:
            if folder != "exercises":
                kept = None if again or not path.exists() else _renewed(notebook, read_notebook(path), execute)
                notebook = kept or execute(notebook)
        except execution.CellFailed as failure:
            file, line = lines[failure.cell_id]
            raise AuthoringError(f"{file}:{line + failure.line - 1}: {failure}") from None
        yield path, notebook


def _renewed(
    notebook: NotebookNode, old: NotebookNode, execute: Callable[[NotebookNode], NotebookNode]
) -> NotebookNode | None:
    """A planned notebook with the outputs of an executed one, made again where files that cells read have changed.

    None if their code differs, or not all of it was run.
    """
    made = as_notebook(notebook)
    new, ran = ([cell for cell in one.cells if cell.cell_type == "code"] for one in (made, old))
    if [cell.source for cell in new] != [cell.source for cell in ran] or not all(c.execution_count for c in ran):
        return None
    pairs = list(zip(new, ran, strict=True))
    digests = [(now.metadata.get("reads"), was.metadata.get("reads")) for now, was in pairs]
    changed = {place for place, (now, was) in enumerate(digests) if now != was}
    stale, needed = hanging_on(changed, [cell.source for cell in new])
    part = as_notebook({**made, "cells": [new[place] for place in needed]})
    again = dict(zip(needed, execute(part).cells if needed else (), strict=True))
    for place, (now, was) in enumerate(pairs):
        now.outputs = (again[place] if place in stale else was).outputs
    return execution.normalise(made)


def hanging_on(changed: set[int], sources: Sequence[str]) -> tuple[set[int], list[int]]:
    """(stale, needed) places of cells: what others print may differ after `changed`, and all that must run to see it.

    A cell may alter whatever it names that is not imported, and whatever the functions and classes name that it uses.
    Two names of one object are not seen. The first cell sets the notebook up, and is always needed.
    """
    names = [_names(source) for source in sources]
    tables = [symtable.symtable(as_python(source), "cell", "exec").get_symbols() for source in sources]
    imported = {symbol.get_name() for table in tables for symbol in table if symbol.is_imported()}
    touched, inside = list[tuple[set[str], set[str]]](), dict[str, set[str]]()
    for (bound, read), table in zip(names, tables, strict=True):
        uses = read.union(*(inside.get(name, ()) for name in bound | read))
        touched.append(((bound | uses) - imported, uses))
        inside |= {symbol.get_name(): touched[-1][0] for symbol in table if symbol.is_namespace()}
    stale, altered = set[int](), set[str]()
    for place, (alters, uses) in enumerate(touched):
        if place in changed or uses & altered:
            stale.add(place)
            altered |= alters
    needed, wanted = list[int](), set[str]()
    for place, (alters, uses) in reversed([*enumerate(touched)]):
        if place in stale or (stale and not place) or (names[place][0] | alters) & wanted:
            needed.insert(0, place)
            wanted |= uses
    return stale, needed


def _names(source: str) -> tuple[set[str], set[str]]:
    """(bound, read) as `names_in`, but a name is read too whose earlier value a cell uses before it binds it again."""
    bound, read = set[str](), set[str]()
    for statement in ast.parse(as_python(source)).body:
        binds, needs = map(set, names_in(ast.unparse(statement)))
        for part in ast.walk(statement):
            if isinstance(part, ast.AugAssign):  # total += 1
                needs |= _in(part.target, ast.Store)
            elif isinstance(part, ast.Assign):  # total = total + 1
                targets = set[str]().union(*(_in(target, ast.Store) for target in part.targets))
                needs |= targets & _in(part.value, ast.Load)
        read |= needs - bound
        bound |= binds
    return bound, read


def _in(part: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(part) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}
