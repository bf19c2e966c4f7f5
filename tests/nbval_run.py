"""nbval over notebooks of this repository, strictly, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from classroom.execution import kernel_environment
from classroom.grading.run import PYTEST

ROOT = Path(__file__).resolve().parents[1]


def nbval(*what: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Compare every output of these notebooks, or of "notebook.ipynb::Cell 3" alone, with what it was."""
    command = [
        sys.executable, "-c", PYTEST, *what, "-p", "nbval.plugin", "--nbval", "--nbval-current-env",
        "--nbval-sanitize-with=tests/nbval_sanitize.cfg", "--nbval-cell-timeout=300",
        "-p", "no:cacheprovider", "-q", "--color=no",
    ]  # fmt: skip
    own = kernel_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""} | environment
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=900, check=False)
