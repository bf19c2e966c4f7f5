"""What only the teacher's side knows while strangers are graded: the seed, and what the solution prints for it.

From the seed comes a token for each question; a learner's process gets a question's token with its graded cell and not
before, and cannot find the seed from it. It never gets the token of the values on which a record is replayed. The
reference is the solution, executed with these tokens; a question whose results lie where rounding would change their
text gets another token (`Graded.tells_unsteady`).
"""

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from classroom.execution import execute
from classroom.grading.graft import GRADED_CALL, kind_of
from classroom.notebooks import as_notebook
from classroom.questions.graded import CRASHED, NOT_ATTEMPTED, UNSTEADY
from course_utils.units import CourseError

TELL_UNSTEADY = "from classroom.questions.graded import Graded\n\nGraded.tells_unsteady = True\n"
MOST_TURNS = 20  # a result of random size is that close to a rounding boundary once in some thousand


def token(seed: str, question: str, turn: int = 0) -> str:
    """A question's token: 32 hexadecimal digits, slow to make (scrypt), so that a seed is not found by trial."""
    salt = f"{question} {turn}" if turn else question
    return hashlib.scrypt(seed.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()


def with_tokens(notebook: NotebookNode, seed: str, turns: Mapping[str, int] | None = None) -> NotebookNode:
    """A copy whose graded cells draw their inputs from tokens; `turns` tells which token of a question, if not 0."""
    turns = turns or {}
    notebook = as_notebook(notebook)
    for cell in notebook.cells:
        kind, question = kind_of(cell)
        if kind == "graded":
            if not GRADED_CALL.search(cell.source):
                raise CourseError(f"the graded cell of {question!r} must end with a call such as graded.name(answer)")
            drawn = f"draw_from({question!r}, {token(seed, question, turns.get(question, 0))!r})"
            cell.source = f"from classroom.questions.graded import draw_from\n\n{drawn}\n{cell.source}"
            cell.metadata.course["token"] = token(seed, f"{question} values")  # of what no answer's kernel is given
    return notebook


def reference(solution: NotebookNode, seed: str) -> NotebookNode:
    """The solution executed with this seed's tokens: what right answers print.

    Raises CellFailed if it does not run; CourseError if a question's results are always where rounding changes them,
    if it shows no results but words, which any answer might earn, or if its graded cell is no call.
    """
    turns: Counter[str] = Counter()
    for _ in range(MOST_TURNS):
        notebook = with_tokens(solution, seed, turns)
        notebook.cells.insert(0, new_code_cell(TELL_UNSTEADY, id="course-steadiness"))  # type: ignore[no-untyped-call]
        with tempfile.TemporaryDirectory(prefix="course-") as folder:
            executed = execute(notebook, Path(folder), "reference")
        del executed.cells[0]
        unsteady = []
        for kind, question, cell in ((*kind_of(cell), cell) for cell in executed.cells):
            printed = "".join(output.get("text", "") for output in cell.outputs) if kind == "graded" else ""
            if words := re.search(f"^.*: ({CRASHED}|{NOT_ATTEMPTED})(: .*)?$", printed, re.MULTILINE):
                raise CourseError(f"the solution does not answer {question!r}: {words[0]}")
            unsteady += [question] * (f": {UNSTEADY}\n" in printed)
        if not unsteady:
            return executed
        turns.update(unsteady)
    raise CourseError(f"results of {unsteady[0]!r} lie on a rounding boundary for every seed; change what it draws")
