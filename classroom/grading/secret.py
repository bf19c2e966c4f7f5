"""What only the teacher's side knows while strangers are graded: the seed, and what the solution prints for it.

From the seed comes a token for each question; a learner's process gets a question's token with its graded cell and not
before, and cannot find the seed from it. It never gets the token of the values on which a record is replayed. The
reference is the solution, executed with these tokens; a question whose results lie where rounding would change their
text gets another token (`graded.is_steady`).
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
from classroom.questions.graded import CRASHED, NOT_ATTEMPTED
from course_utils.units import CourseError

MOST_TURNS = 20  # a result of random size is that close to a rounding boundary once in some thousand


def token(seed: str, question: str, turn: int = 0) -> str:
    """A question's token: 32 hexadecimal digits, slow to make (scrypt), so that a short seed is not found by trial."""
    salt = f"{question} {turn}" if turn else question
    return hashlib.scrypt(seed.encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=16).hex()


def with_tokens(notebook: NotebookNode, seed: str, turns: Mapping[str, int] | None = None) -> NotebookNode:
    """A copy whose graded cells draw their inputs from tokens; `turns` tells which token of a question, if not 0."""
    turns = turns or {}
    notebook = as_notebook(notebook)
    for cell in notebook.cells:
        kind, question = kind_of(cell)
        if kind == "graded":
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
        notebook.cells.append(_steadiness_cell(notebook))
        with tempfile.TemporaryDirectory(prefix="course-") as folder:
            executed = execute(notebook, Path(folder), "reference")
        printed = executed.cells.pop().outputs
        unsteady = "".join(output.get("text", "") for output in printed).split()
        if not unsteady:
            _refuse_words(executed)
            return executed
        turns.update(unsteady)
    raise CourseError(f"results of {unsteady[0]!r} lie on a rounding boundary for every seed; change what it draws")


def _refuse_words(executed: NotebookNode) -> None:
    """Raise CourseError if a graded cell of the solution shows a crash, or no result."""
    for cell in executed.cells:
        if kind_of(cell)[0] == "graded":
            for line in "".join(output.get("text", "") for output in cell.outputs).splitlines():
                if re.search(f": ({CRASHED}|{NOT_ATTEMPTED})(: |$)", line):
                    raise CourseError(f"the solution does not answer {kind_of(cell)[1]!r}: {line}")


def _steadiness_cell(notebook: NotebookNode) -> NotebookNode:
    """A cell that prints the questions whose results rounding could change."""
    pairs = []
    for cell in notebook.cells:
        kind, question = kind_of(cell)
        call = GRADED_CALL.search(cell.source)
        if kind == "graded":
            if call is None:
                raise CourseError(f"the graded cell of {question!r} must end with a call such as graded.name(answer)")
            pairs.append(f"({question!r}, {call[1]}.is_steady({call[2]}))")
    source = f"print(*(question for question, steady in ({', '.join(pairs)},) if not steady))"
    return as_notebook(new_code_cell(source, id="course-steadiness"))  # type: ignore[no-untyped-call]
