"""What is typed is typed throughout: mypy as pyproject.toml configures it, beside the tests, as it takes one core."""

import subprocess
import sys
from pathlib import Path


def test_mypy_finds_nothing():
    root = Path(__file__).resolve().parents[1]
    ran = subprocess.run([sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
