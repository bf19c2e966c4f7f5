"""pytest and nbval, imported once and forked for each submission: starting them takes longer than marking one.

The forked processes run nothing of a submission: its code is in a kernel, which they talk to.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

FORKS = "forkserver" in multiprocessing.get_all_start_methods()
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
CONTEXT.set_forkserver_preload(["classroom.grading.preloaded"])


def start_pytest(arguments: list[str], folder: Path, environment: Mapping[str, str], output: Path) -> BaseProcess:
    """A process, forked where it can be, in which pytest runs in this folder; what it prints goes to a file."""
    given = arguments, folder, environment, output
    process: BaseProcess = CONTEXT.Process(target=_run, args=given)  # type: ignore[attr-defined]
    process.start()
    return process


def _run(arguments: list[str], folder: Path, environment: Mapping[str, str], output: Path) -> None:
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, stream), (2, stream)):
        os.dup2(source, target)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    import nbval.plugin
    import pytest

    from classroom.grading import plugin

    # As modules: for a plugin's name pytest would read what every installed package offers.
    sys.exit(int(pytest.main(arguments, plugins=[nbval.plugin, plugin])))
