"""nbval over notebooks of this repository, strictly, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from classroom.authoring import NOTEBOOK_METADATA
from classroom.execution import kernel_environment
from classroom.notebooks import as_notebook

ROOT = Path(__file__).resolve().parents[1]
# Importing the classroom spares it 2.4 seconds.
PYTEST = "import sys, classroom, pytest; sys.path.append('tests'); sys.exit(pytest.main(sys.argv[1:]))"


def in_one_notebook(cells_of: Mapping[str, Sequence[NotebookNode]]) -> NotebookNode:
    """Code cells of several notebooks in one, each beginning without the names of the last; ids begin with its name."""
    cells = []
    for name, own in cells_of.items():
        cells += [
            new_code_cell("%reset -f", id=f"{name}-begins", execution_count=1),
            *(as_notebook({**cell, "id": f"{name}-{cell.id}"}) for cell in own if cell.cell_type == "code"),
        ]
    return as_notebook(new_notebook(cells=cells, metadata=NOTEBOOK_METADATA))


def nbval(*what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Compare every output of these notebooks, or of "notebook.ipynb::Cell 3" alone, with what it was."""
    command = [
        sys.executable, "-c", PYTEST, *what, "-p", "nbval.plugin", "--nbval", "--nbval-current-env",
        "--nbval-sanitize-with=tests/nbval_sanitize.cfg", "--nbval-cell-timeout=300",
        "-p", "no:cacheprovider", "-q", "--color=no",
    ]  # fmt: skip
    own = kernel_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""} | environment
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=3600, check=False)
