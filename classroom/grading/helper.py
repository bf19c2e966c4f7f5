"""Processes that mark what they are sent: of this machine for `grade_all`, beside a Dask worker for `cluster`.

A helper reads pickled tasks from its standard input and writes pickled results to its standard output, and has one
sandbox for all of them. It ends when its input does, whatever it is at, and when it had nothing to do for a while. One
that is killed costs nobody a mark: what it was at is tried again in another. (A pool of multiprocessing's would not do:
it loses all that its workers are at with the first that is killed, and a Dask worker may not have one.)
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from classroom.execution import import_path
from classroom.grading import batch
from classroom.grading.batch import Result, Task
from classroom.grading.temporary import ENDING, interrupt, one_folder

SERVE = "from classroom.grading import helper; helper.serve()"
IDLE = 60.0  # seconds without a task after which a helper gives its sandbox's memory back
_all: "set[Helper]" = set()
_own = threading.local()  # of a thread that has tasks: its `helper`


class Helper(subprocess.Popen[bytes]):
    """The side of whoever has tasks: one process, one task at a time."""

    given_up = False  # whether it was ended on purpose, and nobody is to try again what it was at

    def __init__(self) -> None:
        super().__init__(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": import_path()}, start_new_session=True,
        )  # fmt: skip
        _all.add(self)

    def grade(self, task: Task) -> Result:
        """Have a submission marked. Raises OSError, EOFError or UnpicklingError if the process ends before it is."""
        assert self.stdin is not None
        assert self.stdout is not None
        try:
            pickle.dump(task, self.stdin)
            self.stdin.flush()
            result: Result = pickle.load(self.stdout)
        except BaseException:  # what it sends from now on would be taken for the next result
            self.close()
            raise
        return result

    def close(self) -> None:
        """Have it end; it cleans up by itself."""
        _all.discard(self)
        for stream in filter(None, (self.stdin, self.stdout)):
            with contextlib.suppress(OSError):
                stream.close()


def grade_in_helper(task: Task) -> Result:
    """Mark one submission in this thread's helper, or in a new one if that has ended."""
    for _ in range(batch.TRIES):
        helper: Helper | None = getattr(_own, "helper", None)
        if helper is not None and helper.poll() is not None:
            helper.close()
        if helper not in _all:
            helper = _own.helper = Helper()
        try:
            return helper.grade(task)
        except (OSError, EOFError, pickle.UnpicklingError):  # it was killed, perhaps by what it marked
            if helper.given_up:
                break
    return batch.unmarked(task, batch.KILLED)


def grade_all(tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
    """Results of both passes as they are ready, from so many helpers, which end with it."""
    threads = ThreadPoolExecutor(jobs)

    def grade(some: Sequence[Task]) -> Iterator[Result]:
        futures = {threads.submit(grade_in_helper, task): task for task in some}
        for future in as_completed(futures):
            try:
                result = future.result()
            except Exception as error:  # noqa: BLE001 - it costs this submission alone
                result = batch.unmarked(futures[future], batch.in_words(error))
            yield result

    try:
        yield from batch.in_two_passes(tasks, grade)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        helpers = list(_all)
        for helper in helpers:
            helper.given_up = True
            helper.terminate()
        for helper in helpers:
            try:
                helper.wait(30)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()
            helper.close()
        threads.shutdown()


@one_folder()
def serve() -> None:
    """Mark what comes until nothing more can come."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # whatever prints, prints no result
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for number in ENDING:
        signal.signal(number, interrupt)
    threading.Thread(target=_read, args=(source, tasks), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt, queue.Empty, BrokenPipeError):
        while True:
            pickle.dump(batch.grade_one(tasks.get(timeout=IDLE)), target)
            target.flush()
    batch.give_up_sandbox()


def _read(source: object, tasks: queue.SimpleQueue[Task]) -> None:
    while True:
        try:
            tasks.put(pickle.load(source))  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError):  # whoever sent them is gone
            os.kill(os.getpid(), signal.SIGINT)
            return
