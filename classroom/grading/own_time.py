"""How long a kernel took, without the time in which it was ready to run and others had the processor.

Linux counts that time for every thread (field 2 of `schedstat`, see its "Scheduler Statistics"); where it does not,
all time is a kernel's own.
"""

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

LEAST = 0.25  # of the clock's time that counts whatever is waited for: nothing is given more than four times its limit


class OwnTime:
    """A process's own time since this was made, in seconds: what it ran, slept, or waited for anything but others.

    Args:
        process: its id; None for one that nothing is known of, whose time is the clock's.
    """

    def __init__(self, process: int | None) -> None:
        self.process, self.seconds = process, 0.0
        self._looked, self._shares = time.monotonic(), shares(process)

    def look(self) -> float:
        """The seconds up to now. The thread that waited most counts, but never less than what all of them ran."""
        now, found = time.monotonic(), shares(self.process)
        passed = now - self._looked
        ran, waited = (new - old for new, old in zip(found, self._shares, strict=True))
        starved = max(waited.values(), default=0) / 1e9
        self.seconds += max(passed - starved, min(ran.total() / 1e9, passed), LEAST * passed)
        self._looked, self._shares = now, found
        return self.seconds


def shares(process: int | None) -> tuple[Counter[str], Counter[str]]:
    """For how many nanoseconds each thread, of a process and of what it started, ran, and was ready in vain."""
    ran, waited, left = Counter[str](), Counter[str](), [process] if process else []
    for one in left:
        with contextlib.suppress(OSError):  # it may end at any moment, and its threads before it
            for thread in os.listdir(f"/proc/{one}/task"):
                # Asked ten times a second, of every thread: without pathlib and text, which take three times as long.
                path = f"/proc/{one}/task/{thread}"
                with contextlib.suppress(OSError, ValueError), open(f"{path}/schedstat", "rb", buffering=0) as file:
                    ran[thread], waited[thread], _ = map(int, file.read().split())
                with contextlib.suppress(OSError, ValueError), open(f"{path}/children", "rb", buffering=0) as file:
                    left += map(int, file.read().split())
    return ran, waited


def child_of(process: int | None) -> int | None:
    """The first process that this one started and that lives; None if there is none, or nothing is known of it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])
    return None
