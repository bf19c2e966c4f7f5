"""On an older processor, which this one pretends to be: what computes with floats says the same there.

This is the small part of `make test-elsewhere`.
"""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
from pathlib import Path

from nbformat import NotebookNode
from nbval_run import ROOT, in_one_notebook, nbval

from classroom.notebooks import read_notebook, to_text

OLDER = {"ONEDNN_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}


def names(source: str) -> tuple[set[str], set[str]]:
    """(names that the code makes, names that it reads)."""
    made, read = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            made.add(getattr(node, "asname", None) or node.name or "")
    return made, read


def quick_cells(lesson: NotebookNode) -> list[NotebookNode]:
    """The first cell, and those compared that compute with real tensors and need nothing but its imports."""
    first, *others = [cell for cell in lesson.cells if cell.cell_type == "code"]
    known = names(first.source)[0] | set(dir(builtins))
    quick = []
    for cell in others:
        made, read = names(cell.source)
        compared = cell.outputs and "nbval-ignore-output" not in cell.metadata.get("tags", [])
        if compared and "torch." in cell.source and '"meta"' not in cell.source and read - made <= known:
            quick.append(cell)
    return [first, *quick] if quick else []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    own = os.environ | OLDER | {"PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=own, capture_output=True, text=True, timeout=900, check=False
    )


def test_it_does_pretend() -> None:
    assert run("-c", "import torch; print(torch.backends.cpu.get_cpu_capability())").stdout == "DEFAULT\n"


def test_small_trainings_and_their_judges() -> None:
    files = ["tests/lessons/test_digits.py", "tests/lessons/test_rebuilt.py"]
    ran = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def test_cells_say_the_same(tmp_path: Path) -> None:
    quick = {path.stem: quick_cells(read_notebook(path)) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    gathered = in_one_notebook({name: cells for name, cells in quick.items() if cells})
    assert len(gathered.cells) >= 15, gathered.cells
    (tmp_path / "quick.ipynb").write_text(to_text(gathered), encoding="utf-8")
    ran = nbval(str(tmp_path / "quick.ipynb"), **OLDER)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert f"{len(gathered.cells)} passed" in ran.stdout
