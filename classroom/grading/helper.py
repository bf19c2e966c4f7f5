"""A process that marks what it is sent, beside one that cannot: multiprocessing gives a Dask worker no children.

It reads pickled tasks from its standard input and writes pickled results to its standard output, and has one sandbox
for all of them, as the processes of `batch`'s pool have. It ends when its input does, whatever it is at, and when it
had nothing to do for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from classroom.grading.batch import TRIES, Result, Task, give_up_sandbox, grade_one, lost
from classroom.grading.temporary import one_folder

SERVE = "from classroom.grading import helper; helper.serve()"
IDLE = 60.0  # seconds without a task after which a helper gives its sandbox's memory back
_unused: list[Helper] = []
_lock = threading.Lock()


class Helper:
    """The side of whoever has tasks: one process, one task at a time."""

    def __init__(self) -> None:
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, start_new_session=True,
        )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def grade(self, task: Task) -> Result:
        """Have a submission marked. Raises OSError, EOFError or UnpicklingError if the process ends before it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(task, self._process.stdin)
        self._process.stdin.flush()
        result: Result = pickle.load(self._process.stdout)
        return result

    def close(self) -> None:
        """Have it end; it cleans up by itself."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def grade_in_helper(task: Task) -> Result:
    """Mark one submission in a helper of this process: one that is at leisure, or a new one."""
    for _ in range(TRIES):
        helper = _take()
        try:
            result = helper.grade(task)
        except (OSError, EOFError, pickle.UnpicklingError):  # it was killed, perhaps by what it marked
            helper.close()
            continue
        except BaseException:
            helper.close()
            raise
        with _lock:
            _unused.append(helper)
        return result
    return lost(task)


def _take() -> Helper:
    with _lock:
        while _unused:
            helper = _unused.pop()
            if helper.alive:
                return helper
            helper.close()
    return Helper()


@one_folder()
def serve() -> None:
    """Mark what comes until nothing more can come."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # whatever prints, prints no result
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, tasks), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt, queue.Empty, BrokenPipeError):
        while True:
            result = grade_one(tasks.get(timeout=IDLE))
            pickle.dump(result, target)
            target.flush()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_up_sandbox()


def _read(source: object, tasks: queue.SimpleQueue[Task]) -> None:
    while True:
        try:
            tasks.put(pickle.load(source))  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError):  # whoever sent them is gone
            os.kill(os.getpid(), signal.SIGINT)
            return
