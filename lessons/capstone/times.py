"""How long an update of many micro-batches takes, from the schedule of two."""

from __future__ import annotations

import numpy as np

from course_utils.techniques.offload import Schedule
from course_utils.techniques.offload.work import BACKWARD, FORWARD, UPDATE


def seconds_of(schedule: Schedule, parts: int) -> tuple[float, float]:
    """(seconds, of these waiting) of so many micro-batches, each from the second on like the second."""
    work, ends = schedule.work, schedule.ends
    busy = np.cumsum(ends - schedule.begins)
    seconds, computing = float(ends[-1]), float(busy[-1])
    if parts > 2:
        passes = np.flatnonzero(work.phase != UPDATE)
        starts = np.flatnonzero((work.phase[1:] == FORWARD) & (work.phase[:-1] == BACKWARD))
        seconds += (parts - 2) * float(ends[passes[-1]] - ends[starts[-1]])
        computing += (parts - 2) * float(busy[passes[-1]] - busy[starts[-1]])
    return seconds, max(0.0, seconds - computing)
