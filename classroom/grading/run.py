"""Run a grafted notebook under nbval in a process of its own, and bring home a verdict for each cell.

The process is bounded by a time for each cell and by a time for the whole; when it is over, nothing of it is left
running. What the verdicts mean for marks is not decided here.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
from nbformat import NotebookNode

from classroom.execution import kernel_environment
from classroom.grading.own_time import OwnTime, child_of
from classroom.grading.sandbox import Sandbox
from classroom.grading.warm import working
from classroom.notebooks import to_text
from course_utils.units import MIB, CourseError

SETUP_SECONDS = 120.0  # the least a set-up cell is given: importing torch takes long on a busy machine
LARGEST_JUDGE = 512 * MIB  # memory of the process that nbval runs in: what a kernel sends waits there


@dataclass(frozen=True)
class CellVerdict:
    """How one cell ended: passed, differs (from the reference output), timeout, died, excess, flood, failed."""

    cell: str
    verdict: str
    text: str = ""
    error: str = ""
    line: int | None = None

    @property
    def fatal(self) -> bool:
        """Whether the kernel was of no use after this cell."""
        return self.verdict in ("timeout", "died", "excess", "flood")


@dataclass(frozen=True)
class Limits:
    """Seconds of a kernel's own time (`own_time`): for one cell, for a whole run of the notebook."""

    cell: float = 20.0
    whole: float = 240.0


def run_notebook(
    notebook: NotebookNode,
    limits: Limits,
    on_cell: Callable[[str], None] = lambda cell: None,
    sandbox: Sandbox | None = None,
) -> list[CellVerdict]:
    """The verdicts of the cells that were reached, in order. `on_cell` is told each cell that begins.

    The kernel runs in the sandbox if one is given. The last verdict is fatal if the run did not reach the end. Raises
    CourseError if it did not even begin.
    """
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as folder:
        path, output = Path(folder) / "marked.ipynb", Path(folder) / "output"
        path.write_text(to_text(notebook), encoding="utf-8")
        environment = kernel_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        if sandbox is not None:
            sandbox.settle()
            environment |= sandbox.environment()
        setup = {cell.id for cell in notebook.cells if not cell.metadata.get("course")}
        with working("classroom.grading.plugin:judge", str(path), environment, output=str(output)) as (process, line):
            found = _follow(process, line, limits, setup, on_cell, sandbox)
        if not found:
            said = output.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
            raise CourseError(f"marking could not start: {said[-1]}; run `course doctor`")
        return found


def _follow(
    process: BaseProcess,
    line: Connection,
    limits: Limits,
    setup: Collection[str],
    on_cell: Callable[[str], None],
    sandbox: Sandbox | None,
) -> list[CellVerdict]:
    """The verdicts that are sent, up to the end or the end of what is allowed; nothing that was started stays.

    Cells of `setup` are given time to import.
    """
    found: dict[str, CellVerdict] = {}
    own, family, end = OwnTime(None), set[psutil.Process](), limits.whole
    verdict, excess = "died", ""  # of a cell that began, if nothing else was sent of it
    try:
        for look in itertools.count():
            if line.poll(0.1):
                said, end = line.recv(), limits.whole
                if said.cell not in found:
                    on_cell(said.cell)
                    given = max(limits.cell, SETUP_SECONDS) if said.cell in setup else limits.cell
                    end = min(own.look() + given, end)
                found[said.cell] = said
            if look % 10 == 0:
                _add_children(process, family)
            own.process = own.process or (sandbox.kernel() if sandbox else child_of(process.pid))
            if sandbox is not None and (excess := sandbox.excess() or _flooded(process)):
                verdict = "excess"
                break
            if own.look() > end:
                verdict = "timeout"
                break
    except EOFError:  # it has ended
        pass
    finally:
        _end(process, family)
    return [replace(one, verdict=verdict, text=excess) if one.verdict == "died" else one for one in found.values()]


def _flooded(process: BaseProcess) -> str:
    """What a kernel sent too much of, however it was put in messages, in words; "" if nothing."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(process.pid).memory_info().rss > LARGEST_JUDGE:
            return "it sent more than a notebook can hold"
    return ""


def _add_children(process: BaseProcess, family: set[psutil.Process]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        family.update(psutil.Process(process.pid).children(recursive=True))


def _end(process: BaseProcess, family: set[psutil.Process]) -> None:
    """End the process and all it started: a kernel is in a session of its own and would stay behind."""
    _add_children(process, family)
    process.kill()
    process.join()
    for child in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # nor does psutil end another that was given the id since
            child.kill()
