"""Which part of the library lies in a stranger's sandbox: what trusted cells import, and nothing that knows an answer.

The list is derived: from the imports of a trusted notebook's cells, followed from module to module. Checks of topics,
which hold the answers, are stubs that do nothing until all marks are decided (`mark`).
"""

import ast
import contextlib
from collections.abc import Collection
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from classroom import PACKAGES, ROOT
from classroom.questions.core import UNREADABLE, as_python
from classroom.questions.functions import THOUGHTS

ZYGOTE = "classroom.grading.zygote"
STUB = '''"""The check is not needed for a mark."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *answer: None
'''


def topic_checks(root: Path = ROOT) -> list[Path]:
    """The modules that hold answers: the checks of each lesson, those of behaviour beside, and shared ones."""
    return sorted(path for name in ("checks", "behaviour") for path in (root / "lessons").glob(f"*/{name}.py"))


def trusted_imports(notebook: NotebookNode) -> frozenset[str]:
    """What the code cells of a trusted notebook import, but for its answers."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    trusted = (cell for cell in cells if (cell.metadata.get("course") or {}).get("kind", "") != "answer")
    return frozenset[str]().union(*(_imports(cell.source) for cell in trusted))


def not_in_sandbox(answer: str, notebook: NotebookNode) -> list[str]:
    """The modules of the library that an answer imports and no sandbox for this trusted notebook holds."""
    try:
        asked = _imports(answer)
    except UNREADABLE:
        return []  # it cannot be run anywhere
    places = {name: ROOT.joinpath(*name.split(".")) for name in asked if name.split(".")[0] in PACKAGES}
    modules = [name for name, place in places.items() if place.is_dir() or place.with_suffix(".py").exists()]
    return sorted({*modules} - {*Finder({*trusted_imports(notebook), ZYGOTE}).modules}) if modules else []


def _imports(source: str) -> set[str]:
    """All that a cell's import statements name, modules and what is in them. Raises what `ast.parse` does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(as_python(source))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return found


def copy_without_answers(target: Path, names: Collection[str]) -> frozenset[str]:
    """Copy to a folder the modules of the library that these imports lead to.

    Topic checks are copied as stubs; their tables of thoughts know no right result. A data file goes with the module
    beside it whose text names it. Returns the names of all modules that are imported on the way, ours and others'.
    """
    stubs = topic_checks()
    finder = Finder({*names, ZYGOTE})
    for module in finder.files():
        text = module.read_text(encoding="utf-8")
        place = target / module.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(STUB if module in stubs else text, encoding="utf-8")
        for beside in module.parent.iterdir():
            named = f'"{beside.name}"' in text or (module in stubs and beside.name == THOUGHTS)
            if beside.suffix not in (".py", "") and named:
                (place.parent / beside.name).write_bytes(beside.read_bytes())
    return frozenset({*names, *finder.modules, *finder.badmodules})


def write_checks(target: Path, true: bool) -> None:
    """Make the topic checks in a copy true ones, or stubs."""
    for module in topic_checks():
        place = target / module.relative_to(ROOT)
        if place.exists():
            place.write_text(module.read_text(encoding="utf-8") if true else STUB, encoding="utf-8")


class Finder(ModuleFinder):
    """Follows imports from these names on, from text to text, without running any; none but ours."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__([str(ROOT)])
        for name in names:
            if name.split(".")[0] in PACKAGES:
                with contextlib.suppress(ImportError):  # it may be a name in a module
                    self.import_hook(name)

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Where a module lies. Raises ImportError for one of others, which `badmodules` keeps."""
        if path is None and name not in PACKAGES:
            raise ImportError(name)
        return super().find_module(name, path, parent)

    def files(self) -> set[Path]:
        """Those of the modules that were found; true checks too, which may come later."""
        return {Path(m.__file__) for m in self.modules.values() if m.__file__}  # type: ignore[attr-defined]
