"""A training step timed with several numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import torch
from torch import nn

from course_utils.machine.timing import measure_step_time
from course_utils.units import CourseError


def measure_threads(
    build: Callable[[], nn.Module],
    input_shape: tuple[int, ...],
    classes: int,
    batch: int,
    threads: Sequence[int] | None = None,
    seconds: float = 0.5,
) -> pd.DataFrame:
    """Time a training step (momentum, on the CPU) with several numbers of threads; torch's own number is put back.

    Args:
        build: makes the network, anew for each number of threads.
        input_shape: shape of one sample, without the batch.
        classes: labels are drawn from this many.
        batch: samples in the batch.
        threads: the numbers to try; by default 1, 2, 4, … up to the number torch uses, and that number.
        seconds: how long each is measured at least.

    Returns:
        One row a number of threads: "seconds" (median of a step), "spread" (between the quartiles), "speed-up"
        (against the first row).

    Raises:
        CourseError: a number of threads below 1, or as `measure_step_time` does.
    """
    most = torch.get_num_threads()
    numbers = list(threads) if threads is not None else sorted({*(2**i for i in range(most.bit_length())), most})
    if not numbers or min(numbers) < 1:
        raise CourseError(f"threads must be 1 or more each, got {numbers}")
    steps = []
    try:
        for number in numbers:
            torch.set_num_threads(number)
            steps.append(measure_step_time(build(), input_shape, classes, batch, device="cpu", seconds=seconds).step)
    finally:
        torch.set_num_threads(most)
    return pd.DataFrame(
        {
            "seconds": [step.median for step in steps],
            "spread": [step.spread for step in steps],
            "speed-up": [steps[0].median / step.median for step in steps],
        },
        index=pd.Index(numbers, name="threads"),
    )
