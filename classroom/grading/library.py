"""Which part of the library lies in a stranger's sandbox: what trusted cells import, and nothing that knows an answer.

The list is derived: from the imports of a trusted notebook's cells, followed from module to module. Checks of topics,
which hold the answers, become stubs that do nothing; their true text is sent when marks are decided (`secret`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from nbformat import NotebookNode

from classroom import PACKAGES, ROOT

ZYGOTE = "classroom.grading.zygote"
STUB = '''"""The check is not needed for a mark."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *answer: None
'''


def topic_checks(root: Path = ROOT) -> list[Path]:
    """The modules that hold answers: the checks of each lesson, and those of behaviour where they lie beside."""
    return sorted(path for name in ("checks", "behaviour") for path in (root / "lessons").glob(f"*/{name}.py"))


def trusted_imports(notebook: NotebookNode) -> frozenset[str]:
    """What the code cells of a trusted notebook import, but for its answers."""
    found: set[str] = set()
    for cell in notebook.cells:
        kind = (cell.metadata.get("course") or {}).get("kind", "")
        if cell.cell_type == "code" and kind != "answer":
            found.update(_imports(re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.MULTILINE), ""))
    return frozenset(found)


def copy_without_answers(target: Path, names: Collection[str] | None = None) -> None:
    """Copy to a folder the modules of the library that these imports lead to; without names, those of all graded cells.

    Topic checks are copied as stubs. A data file goes with the module beside it whose text names it.
    """
    if names is None:
        names = [
            f"lessons.{path.parent.name}.{path.stem}"
            for name in ("graded", "checks")
            for path in ROOT.glob(f"lessons/*/{name}.py")
        ]
    stubs = topic_checks()
    for module in modules_of({*names, ZYGOTE}):
        text = module.read_text(encoding="utf-8")
        place = target / module.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(STUB if module in stubs else text, encoding="utf-8")
        for beside in module.parent.iterdir():
            if beside.suffix not in (".py", "") and f'"{beside.name}"' in text:
                (place.parent / beside.name).write_bytes(beside.read_bytes())


def modules_of(names: Collection[str]) -> set[Path]:
    """The files of all modules of ours that these names lead to; also through checks, whose true text comes later."""
    reached: set[Path] = set()
    todo = [name for name in names if name.split(".")[0] in PACKAGES]
    while todo:
        parts = todo.pop().split(".")
        for end in range(1, len(parts) + 1):
            path = ROOT.joinpath(*parts[:end])
            package = ".".join(parts[:end])
            if not path.is_dir():
                path, package = path.with_suffix(".py"), package.rpartition(".")[0]
            else:
                path = path / "__init__.py"
            if path.exists() and path not in reached:
                reached.add(path)
                found = _imports(path.read_text(encoding="utf-8"), package)
                todo += [name for name in found if name.split(".")[0] in PACKAGES]
    return reached


def _imports(text: str, package: str) -> Iterator[str]:
    """Names of what a text in this package imports: modules, and what it takes from them, which may be modules too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
