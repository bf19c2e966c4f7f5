"""Our part of the pytest process in which nbval runs a grafted notebook (`warm`).

It sends the start and the verdict of each cell, taken from nbval's report objects (a JUnit file would show an
unexpected pass as a pass); notices a dead kernel at once, and what a cell sends too much of; and stops at the first
cell that killed its kernel, as the rest would only be noise. Time is bounded by whoever reads what is sent (`run`).
"""

import math
import os
from collections.abc import Generator, Mapping
from multiprocessing.connection import Connection
from queue import Empty
from typing import Any

import nbformat
import nbval.kernel
import nbval.plugin
import pytest
from nbval.kernel import RunningKernel

from classroom.execution import line_of_error
from classroom.grading.provisioner import register
from classroom.grading.run import CellVerdict
from classroom.questions.graded import RECORD

POLL = 0.25  # seconds between two looks at whether the kernel lives
LONGEST_TEXT = 20_000  # characters kept of what a cell printed
LONGEST_RECORD = 4 * 2**20  # the same of a record
LONGEST_OUTPUT = 8 * 2**20  # characters a cell may send

# What takes long and is done once, where `warm` forks from: to read what every installed package offers, and to compile
# the schema of notebooks.
register()
nbformat.validate(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]


class OutputFlood(Exception):
    """A cell sent more than anybody will read."""


class KernelDied(Exception):
    """The kernel's process ended while a cell was running."""


class LiveKernel(RunningKernel):  # type: ignore[misc]
    """nbval's kernel, whose waiting ends when the process does."""

    received = 0  # characters since the cell began

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        """The next message. Raises Empty after so many seconds, KernelDied as soon as nobody can send one."""
        left = math.inf if timeout is None else timeout
        while True:
            try:
                message = super().get_message(stream, timeout=min(POLL, left))
            except Empty:
                if not self.is_alive():
                    raise KernelDied from None
                left -= POLL
                if left <= 0:
                    raise
            else:
                self.received += len(repr(message)) + sum(buffer.nbytes for buffer in message.get("buffers", ()))
                if self.received > LONGEST_OUTPUT:
                    raise OutputFlood
                return message

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> Any:
        """Have a cell run, and count anew what comes back."""
        self.received = 0
        return super().execute_cell_input(cell_input, allow_stdin)


class Judge:
    """Sends of each cell that begins that it died, which stands if this process is killed, then how it ended."""

    def __init__(self, line: Connection) -> None:
        self.line = line

    def pytest_configure(self) -> None:
        """Make nbval start our kernel, in a sandbox if the environment asks for it."""
        nbval.plugin.RunningKernel = LiveKernel
        nbval.plugin.find_comment_markers = lambda source: ()  # a comment may be a learner's, and steers nothing
        nbval.kernel.pformat = str  # every message would be laid out for a debug log: 40 times as slow, with megabytes

    @pytest.hookimpl(trylast=True)  # before the first one the kernel is started
    def pytest_runtest_setup(self, item: Any) -> None:
        """Note that a cell begins."""
        self.line.send(CellVerdict(item.cell.id, "died"))
        item.output_timeout = math.inf

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: Any, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note how a cell ended."""
        report = yield
        if call.when == "call" or (call.when == "setup" and report.failed):
            outputs = item.test_outputs or []
            error = next((o for o in outputs if o.output_type == "error"), None)
            said = f"{error.ename}: {error.evalue}".split("\n")[0][:LONGEST_TEXT] if error else ""
            line = line_of_error(error.traceback) if error else None
            verdict = CellVerdict(item.cell.id, _verdict(item, call, report), _text(outputs), said, line)
            self.line.send(verdict)
            if verdict.fatal:
                item.session.shouldstop = f"cell {item.cell.id}: {verdict.verdict}"
        return report


def _verdict(item: Any, call: pytest.CallInfo[None], report: pytest.TestReport) -> str:
    """One of passed, differs, died, flood, failed."""
    if report.passed and not hasattr(report, "wasxfail"):
        return "passed"
    problem = call.excinfo.value if call.excinfo else None
    if isinstance(problem, KernelDied) or (isinstance(problem, RuntimeError) and "Kernel dead" in str(problem)):
        return "died"
    if isinstance(problem, OutputFlood):
        return "flood"
    return "differs" if "outputs differ" in str(problem) else "failed"


def _text(outputs: list[Any]) -> str:
    """What a cell printed and showed, as plain text."""
    parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
    text = "\n".join(str(part).rstrip("\n") for part in parts if part)
    return text[: LONGEST_RECORD if text.startswith(RECORD) else LONGEST_TEXT]


def judge(line: Connection, path: str, environment: Mapping[str, str]) -> None:
    """Run a notebook, in its folder, under pytest and nbval."""
    folder, name = os.path.split(path)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    arguments = [
        name, "--nbval", "--nbval-current-env", "--nbval-cell-timeout=inf", "-q", "--color=no", f"--rootdir={folder}",
        "-p", "no:cacheprovider",
        "-p", "no:unraisableexception", "-p", "no:threadexception",  # they collect garbage ten times at the end
    ]  # fmt: skip
    # As modules: for a plugin's name pytest would read what every installed package offers.
    pytest.main(arguments, plugins=[nbval.plugin, Judge(line)])
