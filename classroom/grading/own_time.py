"""How long a kernel took, without the time in which it was ready to run and others had the processor.

Linux counts that time for every thread (field 2 of `schedstat`, see its "Scheduler Statistics"); where it does not,
all time is a kernel's own.
"""

import contextlib
import os
import time
from pathlib import Path

LEAST = 0.25  # of the clock's time that counts whatever is waited for: nothing is given more than four times its limit


class OwnTime:
    """A process's own time since this was made, in seconds: what it ran, slept, or waited for anything but others.

    Args:
        process: its id; None for one that nothing is known of, whose time is the clock's.
    """

    def __init__(self, process: int | None) -> None:
        self.process, self.seconds = process, 0.0
        self._looked, self._waited = time.monotonic(), waited(process)

    def look(self) -> float:
        """The seconds up to now. Of its threads, the one that waited most since the last look counts."""
        now, waits = time.monotonic(), waited(self.process)
        passed = now - self._looked
        starved = max((waits[thread] - self._waited.get(thread, 0.0) for thread in waits), default=0.0)
        self.seconds += max(passed - starved, LEAST * passed)
        self._looked, self._waited = now, waits
        return self.seconds


def waited(process: int | None) -> dict[str, float]:
    """Seconds for which each thread of a process was ready and had no processor, by the thread's id."""
    found = {}
    with contextlib.suppress(OSError):  # it may end at any moment, and its threads before it
        for thread in os.listdir(f"/proc/{process}/task") if process else ():
            # Asked ten times a second, of every thread: without pathlib and text, which take three times as long.
            path = f"/proc/{process}/task/{thread}/schedstat"
            with contextlib.suppress(OSError, ValueError, IndexError), open(path, "rb", buffering=0) as file:
                found[thread] = int(file.read().split()[1]) / 1e9
    return found


def child_of(process: int | None) -> int | None:
    """The first process that this one started and that lives; None if there is none, or nothing is known of it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])
    return None
