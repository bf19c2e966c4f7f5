"""Whether a step whose maps move fits a card: `capacity.fit`, asked of a schedule."""

from __future__ import annotations

import numpy as np

from course_utils.machine.hardware import Device
from course_utils.memory import Ledger
from course_utils.techniques.capacity import Demand, Fit
from course_utils.techniques.offload import Schedule
from course_utils.techniques.offload.work import WORKSPACE_SHARE, convolution_maps


def fit_of(ledger: Ledger, schedule: Schedule, device: Device) -> Fit:
    """The verdict on a card; that of `capacity.fit` where nothing moves.

    Args:
        ledger: the step at one batch.
        schedule: of `simulate` on this ledger: what it asks of the allocator, beside the scratch memory that fast
            convolutions may want.
        device: the card.
    """
    asked = schedule.requests
    wanted = (WORKSPACE_SHARE * convolution_maps(ledger.tape, ledger.size)).astype(np.int64)
    events = np.flatnonzero(wanted)
    return Demand(asked, asked.also(wanted[events], events) if len(events) else asked).on(device)
