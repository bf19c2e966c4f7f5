"""Run a grafted notebook under nbval in a process of its own, and bring home a verdict for each cell.

The process is bounded by a time for each cell and by a time for the whole; when it is over, nothing of it is left
running. What the verdicts mean for marks is not decided here.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
from nbformat import NotebookNode

from classroom.execution import kernel_environment
from classroom.grading.own_time import OwnTime
from classroom.grading.sandbox import Sandbox
from classroom.grading.warm import start_pytest
from classroom.notebooks import to_text
from course_utils.units import MIB, CourseError

LARGEST_JUDGE = 512 * MIB  # memory of the process that nbval runs in: what a kernel sends waits there


@dataclass(frozen=True)
class CellVerdict:
    """How one cell ended: passed, differs (from the reference output), raised, timeout, died, excess, flood, failed."""

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
        path, verdicts, output = (Path(folder) / name for name in ("marked.ipynb", "verdicts", "output"))
        path.write_text(to_text(notebook), encoding="utf-8")
        verdicts.touch()
        output.touch()
        arguments = [
            path.name, "--nbval", "--nbval-current-env",
            f"--course-cell-seconds={limits.cell}", f"--course-verdicts={verdicts}", "-p", "no:cacheprovider",
            "-p", "no:unraisableexception", "-p", "no:threadexception",  # they collect garbage ten times at the end
            "-q", "--color=no", f"--rootdir={folder}",
        ]  # fmt: skip
        environment = kernel_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        if sandbox is not None:
            sandbox.settle()
            environment |= sandbox.environment()
        process = start_pytest(arguments, Path(folder), environment, output)
        family: set[psutil.Process] = set()
        try:
            verdict, why = _wait(process, verdicts, limits.whole, on_cell, family, sandbox)
        finally:
            _end(process, family)
        lines = _lines(verdicts)
        found = [CellVerdict(**line) for line in lines if "verdict" in line]
        if len(lines) > 2 * len(found):  # a cell began and never ended
            found.append(CellVerdict(lines[-1]["cell"], verdict, why))
        if not found:
            said = output.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
            raise CourseError(f"marking could not start: {said[-1]}; run `course doctor`")
        return found


def _lines(verdicts: Path) -> list[dict[str, Any]]:
    text = verdicts.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _wait(
    process: BaseProcess,
    verdicts: Path,
    seconds: float,
    on_cell: Callable[[str], None],
    family: set[psutil.Process],
    sandbox: Sandbox | None,
) -> tuple[str, str]:
    """Wait for the end, or for the end of what is allowed; collect the process's descendants in `family`.

    Returns the verdict on a cell that began and has not ended, and what the kernel took too much of.
    """
    own, told, looks = OwnTime(None), 0, 0
    while process.is_alive():
        begun = [line["cell"] for line in _lines(verdicts) if "verdict" not in line]
        for cell in begun[told:]:
            on_cell(cell)
        told = len(begun)
        if looks % 10 == 0:
            _add_children(process, family)
        looks += 1
        if sandbox is not None:
            if excess := sandbox.excess() or _flooded(process):
                return "excess", excess
            own.process = own.process or sandbox.kernel()
        if own.look() > seconds:
            return "timeout", ""
        time.sleep(0.1)
    return "died", ""


def _flooded(process: BaseProcess) -> str | None:
    """What a kernel sent too much of, however it was put in messages, in words; None if nothing."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(process.pid).memory_info().rss > LARGEST_JUDGE:
            return "it sent more than a notebook can hold"
    return None


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
