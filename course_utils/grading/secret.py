"""What only the teacher's side knows while strangers are graded: the seed, and what the solution prints for it.

From the seed comes a token for each question; a learner's process gets a question's token with its graded cell and not
before, and cannot find the seed from it. The reference is the solution, executed once with these tokens. Checks, which
hold the answers, are sent after the last graded cell, when the marks are decided. Must never import torch.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from nbformat import NotebookNode

from course_utils.execution import execute
from course_utils.grading.graft import kind_of
from course_utils.grading.sandbox import topic_checks
from course_utils.notebook_files import as_notebook


def token(seed: str, question: str) -> str:
    """A question's token: 32 hexadecimal digits, slow to make (scrypt), so that a short seed is not found by trial."""
    digest = hashlib.scrypt(seed.encode(), salt=question.encode(), n=2**14, r=8, p=1, dklen=16)
    return digest.hex()


def with_tokens(notebook: NotebookNode, seed: str) -> NotebookNode:
    """A copy whose graded cells draw their inputs from tokens."""
    notebook = as_notebook(notebook)
    for cell in notebook.cells:
        kind, question = kind_of(cell)
        if kind == "graded":
            first = "from course_utils.grading.graded import draw_from\n\n"
            cell.source = f"{first}draw_from({question!r}, {token(seed, question)!r})\n{cell.source}"
    return notebook


def reference(solution: NotebookNode, seed: str) -> NotebookNode:
    """The solution executed with this seed's tokens: what right answers print. Raises CellFailed if it does not run."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        return execute(with_tokens(solution, seed), Path(folder), "reference")


SERVE = """\
import importlib
import importlib.abc
import importlib.util
import sys

texts = {texts}


class Served(importlib.abc.InspectLoader):
    def get_source(self, name):
        return texts[name.rpartition(".")[2]]


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, last = name.rpartition(".")
        if package == "course_utils.checks" and last in texts:
            return importlib.util.spec_from_loader(name, Served())


sys.meta_path.insert(0, Finder)
stubs = {{name: sys.modules.pop(f"course_utils.checks.{{name}}", None) for name in texts}}
for name, stub in stubs.items():
    if stub is not None:
        vars(stub).update(vars(importlib.import_module(f"course_utils.checks.{{name}}")))
"""


def checks_cell() -> NotebookNode:
    """A cell that gives the sandbox's stubs of checks their true text."""
    modules = {path.stem: path.read_text(encoding="utf-8") for path in topic_checks(Path(__file__).parents[1])}
    source = SERVE.format(texts=repr(modules))
    course = {"kind": "checks", "question": ""}
    cell: dict[str, object] = {
        "cell_type": "code", "id": "course-checks", "source": source, "metadata": {"course": course},
        "execution_count": None, "outputs": [],
    }  # fmt: skip
    return as_notebook(cell)
