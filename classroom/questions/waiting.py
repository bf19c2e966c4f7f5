"""Waiting for code of a learner's that may never end, so that it can be interrupted: in this thread and in others."""

from __future__ import annotations

import _thread
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable

SLICE = 0.2  # seconds: Windows interrupts no wait, so none is long
PATIENCE = 2.0  # seconds that an interrupted thread has to end
SLACK = 4  # times as long by the clock where other processes hold the processor, or the answer sleeps
AGAIN = 5.0  # seconds, more than PATIENCE: an answer may catch what interrupts it, so it is interrupted again


def interrupt_after(seconds: float, ended: threading.Event) -> threading.Thread:
    """Start a thread that raises KeyboardInterrupt in the main one, from then on again and again, until `ended` is set.

    The seconds are those of the clock; where this process got less than half of them, more are given, up to four times
    as many. On Linux and macOS it is a signal, which ends a sleep as well; on Windows it waits for Python's own code.
    Called from another thread than the main one, it interrupts nothing.
    """
    main = threading.main_thread()
    concerns = threading.current_thread() is main

    def watch() -> None:
        own, wait = time.process_time(), seconds
        last = time.monotonic() + SLACK * seconds
        while not ended.wait(wait):
            if time.process_time() - own < seconds / 2 and time.monotonic() < last:
                wait = SLICE
                continue
            wait = AGAIN
            if concerns and hasattr(signal, "pthread_kill") and main.ident is not None:
                signal.pthread_kill(main.ident, signal.SIGINT)
            elif concerns:
                _thread.interrupt_main()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def run_apart(*works: Callable[[], None]) -> None:
    """Run each of these in a thread of its own and wait until all have ended.

    An interrupt of the main thread is passed on to them, so that none runs on for ever. Raises KeyboardInterrupt where
    one does not end; whatever they raise themselves is theirs to keep.
    """
    ended = [threading.Event() for _ in works]

    def run(work: Callable[[], None], done: threading.Event) -> None:
        try:
            work()
        finally:
            done.set()

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in zip(works, ended, strict=True)]
    for thread in threads:
        thread.start()
    try:
        for done in ended:
            while not done.wait(SLICE):  # not `join`: an interrupted one takes a thread for ended (bpo-45274)
                pass
    except KeyboardInterrupt:
        left = {thread.ident or 0 for thread, done in zip(threads, ended, strict=True) if not done.is_set()}
        frames = sys._current_frames()
        busy = {one for one in left if one in frames and frames[one].f_code.co_filename != threading.__file__}
        for one in busy or left:  # those that wait for others end with them, and are not where it did not end
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(one), ctypes.py_object(KeyboardInterrupt))
        if not all(done.wait(PATIENCE) for done in ended):
            raise
