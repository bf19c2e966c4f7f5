"""Waiting for code of a learner's that may never end, so that it can be interrupted."""

from __future__ import annotations

import _thread
import signal
import threading
import time

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
