"""One folder for all temporary files of a grading, its workers' too: nothing of it stays, however the grading ends.

One whose lock is free was left by a grading that was killed, and is cleared by the next.
"""

import contextlib
import multiprocessing.forkserver
import multiprocessing.process
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from filelock import FileLock

PREFIX = "course-grade-"
LOCK = "lock"  # a file in the folder, locked as long as its grading lives
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
YOUNG = 5.0  # seconds: a folder may be locked a little later than it is made


def interrupt(number: int, frame: object) -> NoReturn:
    """End as at Ctrl-C, and once: what a process does on the way out must not be interrupted."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def one_folder() -> Iterator[Path]:
    """Have everything temporary made in one new folder, here and in processes started from now on, and remove it.

    A signal that asks the process to end is answered as Ctrl-C is: whoever started a process ends it on the way out. A
    process that was started by one that has such a folder uses that.
    """
    given = Path(tempfile.gettempdir())
    if given.name.startswith(PREFIX):
        yield given
        return
    _clear_dead()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = FileLock(folder / LOCK)
    lock.acquire()
    before = {name: value for name, value in os.environ.items() if name == "TMPDIR"}
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    here = threading.current_thread() is threading.main_thread()  # no other may set a handler
    handlers = {number: signal.signal(number, interrupt) for number in ENDING[1:] if here}
    # Where multiprocessing keeps its sockets: else it makes a folder, and complains at exit that somebody removed it.
    forking = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
    sockets, forking["tempdir"] = forking.get("tempdir"), str(folder)
    try:
        yield folder
    finally:
        forking["tempdir"] = sockets
        with contextlib.suppress(OSError):  # the process that it forks from, before its socket goes
            multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.pop("TMPDIR")
        os.environ.update(before)
        tempfile.tempdir = None
        lock.release()  # Windows removes no file that is open
        shutil.rmtree(folder, ignore_errors=True)


def _clear_dead() -> None:
    """Remove the folders of this user's gradings that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            facts = folder.lstat()
            user = getattr(os, "geteuid", int)()  # Windows has none, and calls every owner 0
            if facts.st_uid == user and time.time() - facts.st_mtime >= YOUNG:
                with FileLock(folder / LOCK, timeout=0):  # else a grading is at work in it
                    pass
                shutil.rmtree(folder, ignore_errors=True)
