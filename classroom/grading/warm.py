"""Processes forked from one that has pytest, nbval and what reads a file: to start these takes longer than to mark.

None of them runs a line of a submission: its code is in a kernel, which they talk to.
"""

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pkgutil import resolve_name

FORKS = "forkserver" in multiprocessing.get_all_start_methods()
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
CONTEXT.set_forkserver_preload(["classroom.grading.intake", "classroom.grading.plugin"])


@contextmanager
def working(work: str, *given: object, output: str = os.devnull) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process, forked where it can be, in which `work(line, *given)` runs, and what it sends; it ends with the block.

    `work` is "module:function", imported there and not here; `output` is the file that what it prints goes to.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    given = output, work, theirs, *given
    process = CONTEXT.Process(target=_begin, args=given, daemon=True)  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        ours.close()
        process.kill()
        process.join()


def _begin(output: str, work: str, *given: object) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, stream), (2, stream)):
        os.dup2(source, target)
    resolve_name(work)(*given)
