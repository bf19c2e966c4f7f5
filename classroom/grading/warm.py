"""pytest and nbval, imported once and forked for each submission: starting them takes longer than marking one.

The forked processes run nothing of a submission: its code is in a sandbox's kernel, which they talk to.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = "classroom.grading.preloaded"
FORKS = "forkserver" in multiprocessing.get_all_start_methods()


def start_warming() -> None:
    """Start the process that runs are forked from, and do not wait for it."""
    if FORKS:
        multiprocessing.set_forkserver_preload([PRELOADED])
        multiprocessing.forkserver.ensure_running()


class WarmProcess:
    """A pytest run in a forked process, with the few methods of `subprocess.Popen` that `run` uses."""

    def __init__(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path) -> None:
        start_warming()
        context = multiprocessing.get_context("forkserver" if FORKS else "spawn")
        given = (list(arguments), str(folder), dict(environment), str(output))
        self._process: multiprocessing.process.BaseProcess = context.Process(target=_run, args=given)  # type: ignore[attr-defined]
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """None while it runs, else its exit code."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.join()


def _run(arguments: list[str], folder: str, environment: dict[str, str], output: str) -> None:
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, stream), (2, stream)):
        os.dup2(source, target)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    import pytest

    sys.exit(int(pytest.main(arguments)))
