"""What an answer needs of a learner's other cells, and what of a cell belongs to which answer; nothing is run.

Only what defines is taken along: functions, classes, imports, assignments to names. It becomes a part of the answer,
for every reading as for every run; what else a cell does stays where it is.
"""

import ast
import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from classroom.questions.core import UNREADABLE, as_python, names_in


@dataclass(frozen=True)
class _Part:
    """Some lines of a cell: statements at its top level."""

    text: str
    binds: frozenset[str]
    needs: frozenset[str]
    defines: bool  # and does nothing else


@functools.lru_cache(maxsize=10_000)
def _parts(source: str) -> tuple[_Part, ...]:
    """The parts of a cell, in order; none if it is no Python."""
    source = as_python(source.replace("\r\n", "\n").replace("\r", "\n"))
    try:
        tree = ast.parse(source)
    except UNREADABLE:
        return ()
    spans: list[tuple[int, int, bool]] = []
    for node in tree.body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        last, defines = node.end_lineno or node.lineno, _defines(node)
        if spans and first <= spans[-1][1]:  # on one line, behind a semicolon
            first, _, other = spans.pop()
            defines = defines and other
        spans.append((first, last, defines))
    lines = source.split("\n")
    texts = [("\n".join(lines[first - 1 : last]), defines) for first, last, defines in spans]
    return tuple(_Part(text, *names_in(text), defines) for text, defines in texts)


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        inner = [part for target in targets for part in ast.walk(target)]
        return all(isinstance(part, ast.Name | ast.Tuple | ast.List | ast.Starred | ast.expr_context) for part in inner)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)


def _closure(wanted: Iterable[str], parts: Sequence[_Part], without: Collection[str] = ()) -> list[int]:
    """The places of those parts that define what is wanted, and what they need in turn; the last of several counts."""
    by_name = {name: place for place, part in enumerate(parts) if part.defines for name in part.binds}
    waiting, taken = sorted(wanted), set[int]()
    while waiting:
        name = waiting.pop()
        place = by_name.get(name)
        if place is not None and name not in without and place not in taken:
            taken.add(place)
            waiting += sorted(parts[place].needs)
    return sorted(taken)


def with_needs(
    source: str, before: Sequence[str], after: Sequence[str], known: Collection[str]
) -> tuple[str, tuple[str, ...]]:
    """An answer (`source`) behind the definitions that it needs, and the names they bind.

    They are looked for in the texts of the cells before it and, where those define no such name, of those after it.
    Nothing taken may bind a name that is `known` to be there, of the set-up or of questions.
    """
    bound, needed = names_in(source)
    wanted = needed.difference(known)
    if not wanted:
        return source, ()
    cells = [*((1, text) for text in after), *((0, text) for text in before)]
    parts = [(rank, part) for rank, text in cells for part in _parts(text) if part.binds.isdisjoint(known)]
    places = _closure(wanted, [part for _, part in parts], bound)
    taken = [part for _, part in sorted((parts[place] for place in places), key=lambda one: one[0])]
    names = sorted({name for part in taken for name in part.binds})
    return "\n\n".join([*(part.text for part in taken), source]), tuple(names)


def own_part(source: str, own: Collection[str], others: Collection[str]) -> str:
    """Of a cell with several answers, what belongs to the one that binds `own`; `others` are what the others bind.

    A cell that has no other answer is given back as it is.
    """
    parts = _parts(source)
    bound = frozenset[str]().union(*(part.binds for part in parts if part.defines))
    if not frozenset(own) <= bound or not bound & frozenset(others):
        return source
    kept = {*_closure(own, parts, others)}
    names = frozenset[str]().union(*(parts[place].binds for place in kept))
    kept |= {
        place
        for place, part in enumerate(parts)
        if not part.defines and part.needs & names and not (part.needs | part.binds) & frozenset(others)
    }
    return "\n\n".join(parts[place].text for place in sorted(kept))
