"""Execute a planned notebook, and make its bytes depend on its content alone.

The kernel is this Python's own, its folder is the notebook's, its hash seed and course seed are fixed. What differs
from run to run is replaced or left out: execution counts, timings, the kernel's patch version, live widgets.
"""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import run_sync
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager
from tqdm import tqdm

from classroom import ROOT
from classroom.notebooks import WIDGET_VIEW, as_notebook

CELL_TIMEOUT = 300  # seconds; a lesson's longest cell trains a small network


class CellFailed(Exception):
    """A cell raised. `line` counts from 1 within the cell."""

    def __init__(self, cell_id: str, line: int, message: str) -> None:
        super().__init__(message)
        self.cell_id, self.line = cell_id, line


def import_path() -> str:
    """PYTHONPATH with which a process imports the packages that run here, also from where they are not installed."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([str(ROOT), *filter(None, paths)]))


def kernel_environment() -> dict[str, str]:
    """The environment of a kernel: this one's, with Python's hash seed and the course seed fixed."""
    return {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "COURSE_SEED": "0",
        # Two kernels at once else wait for each other's threads in loops, and each takes up to eight times as long.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "PYTHONPATH": import_path(),
    }


def execute(notebook: NotebookNode, folder: Path, label: str) -> NotebookNode:
    """An executed copy of a notebook, normalised. Raises CellFailed for the first cell that does not run through."""
    notebook = as_notebook(notebook)
    manager = AsyncKernelManager(kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager())
    client = NotebookClient(
        notebook, km=manager, timeout=CELL_TIMEOUT, record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}}, extra_arguments=["--log-level=ERROR"],
    )  # fmt: skip
    begun = notebook.cells[:1]  # a kernel may die before any cell
    client.on_cell_execute = lambda cell, **_: begun.append(cell)
    codes = sum(cell.cell_type == "code" for cell in notebook.cells)
    with tqdm(total=codes, desc=label, unit="cell", leave=False, disable=None) as bar:  # none where nobody watches
        client.on_cell_executed = lambda **_: bar.update()
        try:
            with _own_signals(client):
                client.execute(env=kernel_environment(), cleanup_kc=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise _failure(begun[-1], error) from None
        except KeyboardInterrupt:
            if manager.provisioner:  # what ends a kernel at exit interrupts it first, and then it may print why it ends
                run_sync(manager.provisioner.kill)()
            raise
    return normalise(notebook)


@contextmanager
def _own_signals(client: NotebookClient) -> Iterator[None]:
    """Leave SIGINT and SIGTERM to whoever handles them here: nbclient takes both, then fails at them."""
    in_main = threading.current_thread() is threading.main_thread()  # no other may set a handler
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    ours = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}

    def take_back(**_: object) -> None:
        for number, handler in ours.items():
            signal.signal(number, handler)

    client.on_notebook_start = take_back
    try:
        yield
    finally:
        take_back()


def _failure(cell: NotebookNode, error: Exception) -> CellFailed:
    """At which line this cell failed, and why, in one line."""
    line, what, message = 1, "the kernel died", str(error)
    if isinstance(error, CellExecutionError):
        traceback = [text for output in cell.outputs for text in output.get("traceback", [])]
        line, what, message = line_of_error(traceback) or 1, error.ename, error.evalue
    elif isinstance(error, CellTimeoutError):
        what = "ran too long"
    first = next(iter(message.strip().splitlines()), "no message")
    return CellFailed(cell.id, line, f"{what}: {first}")


def line_of_error(traceback: list[str]) -> int | None:
    """The line of the cell, counted from 1, that a kernel's traceback begins at."""
    found = re.search(r"Cell In\[\d+\], line (\d+)", re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(traceback)))
    return int(found[1]) if found else None


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Replace or leave out what differs from run to run. Of a widget what reads without its kernel is kept.

    A page prefers a widget's view to all else that an output has, and shows nothing where no script draws it:
    `jupyter nbconvert --template basic`, a preview of a forge. In JupyterLab the cell makes the view again.
    """
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(codes, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            output.get("data", {}).pop(WIDGET_VIEW, None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"}
    return notebook


def same_where_compared(one: NotebookNode, other: NotebookNode) -> bool:
    """Whether two executed notebooks differ only in outputs that vary and are tagged so, such as measured times."""
    one, other = as_notebook(one), as_notebook(other)
    for cell in (*one.cells, *other.cells):
        if "nbval-ignore-output" in cell.metadata.get("tags", []):
            cell.outputs = []
    return bool(one == other)
