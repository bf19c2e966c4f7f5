"""Time measured on this machine: large products, large copies, launches, transfers, and real training steps.

By the clock of torch.utils.benchmark, which waits for a GPU to finish; medians with their spread. Imports torch and
NumPy alone, so that it runs on a GPU machine with nothing else installed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.benchmark import timer

from course_utils.machine.measure import RealTraining, find_device
from course_utils.trace import PRECISIONS
from course_utils.units import CourseError

ABOVE_0 = {"above 0": True}  # what the reader of a recording asks of a field; "unit" goes behind its key


@dataclass(frozen=True)
class Timing:
    """Seconds of something run repeatedly: the median, the distance between the quartiles, and how many runs."""

    median: float = field(metadata={"unit": "s", **ABOVE_0})
    spread: float = field(metadata={"unit": "s"})
    runs: int = field(metadata=ABOVE_0)


@dataclass(frozen=True)
class MeasuredStep:
    """A real training step, timed: the forward pass with its graph, and the whole step with the update.

    Of inference, where there is a forward pass alone, both are its time.
    """

    forward: Timing
    step: Timing


def measure_step_time(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int,
    batch: int,
    optimizer: str | None = "momentum",
    device: str | None = None,
    *,
    precision: str = "float32",
    seconds: float = 1.0,
) -> MeasuredStep:
    """Time a real training step on random data, as `course_utils.trace.training_step` traces it.

    Forward and step are each measured for so many `seconds` at least, and three times at least. All other arguments,
    and what is raised, are as for `course_utils.machine.measure.measure_step`.
    """
    if seconds <= 0:
        raise CourseError(f"seconds must be above 0, got {seconds}")
    real = RealTraining(module, input_shape, classes, batch, optimizer, device, precision)
    real.step()  # makes the optimizer's state, and lets kernels be chosen
    step = time_runs(real.step, seconds)
    forward = step if optimizer is None else time_runs(real.forward, seconds)
    return MeasuredStep(forward, step)


BLOCK_SECONDS = 5e-3  # of runs between two looks at the clock: the looks then cost a thousandth or two


def time_runs(run: Callable[[], object], seconds: float) -> Timing:
    """Time something that has run before, for `seconds` and at least three blocks of runs, with all of torch's threads.

    Runs of a block follow each other without waiting for the device in between, as those of a training loop do; a run
    that takes milliseconds is a block of its own. torch.utils.benchmark's own blocks take a thousand times the cost of
    a look at the clock each: too long for the many steps of a recording.
    """

    def block(number: int) -> float:
        began = timer()
        for _ in range(number):
            run()
        return float(timer() - began)

    number = 1
    while (took := block(number)) < BLOCK_SECONDS:
        number = max(2 * number, min(100 * number, int(number * BLOCK_SECONDS / max(took, 1e-9))))
    blocks = [took]
    while len(blocks) < 3 or sum(blocks) < seconds:
        blocks.append(block(number))
    low, median, high = np.percentile(blocks, [25, 50, 75]) / number
    return Timing(float(median), float(high - low), len(blocks) * number)


def time_product(side: int, precision: str, device: str, seconds: float) -> Timing:
    """A product of two square matrices: 2 · side³ operations."""
    left, right = (torch.randn(side, side, device=device).to(PRECISIONS[precision]) for _ in range(2))
    product = torch.empty_like(left)
    return time_warm(lambda: torch.mm(left, right, out=product), seconds)


def time_copy(count: int, device: str, seconds: float) -> Timing:
    """A copy of `count` bytes (a multiple of 4) within the device's memory: each is read once and written once."""
    source = torch.randn(count // 4, device=device)
    copied = torch.empty_like(source)
    return time_warm(lambda: copied.copy_(source), seconds)


def time_launch(device: str, seconds: float, awaited: bool = False) -> Timing:
    """An addition of one number, which is all launch: issued one after another, or each awaited before the next."""
    one = torch.zeros(1, device=device)

    def add() -> None:
        one.add_(1.0)
        if awaited and one.is_cuda:
            torch.cuda.synchronize()

    return time_warm(add, seconds)


def time_transfer(count: int, pinned: bool, to_host: bool, seconds: float) -> Timing:
    """A copy of `count` bytes between the host's memory and a GPU's, one way. Raises CourseError without a GPU."""
    device = find_device("cuda")
    here = torch.zeros(count, dtype=torch.uint8, pin_memory=pinned)
    there = torch.zeros(count, dtype=torch.uint8, device=device)
    source, target = (there, here) if to_host else (here, there)
    return time_warm(lambda: target.copy_(source, non_blocking=pinned), seconds)


def time_warm(run: Callable[[], object], seconds: float) -> Timing:
    """As `time_runs`, after one run to warm up."""
    run()
    return time_runs(run, seconds)


def memory_bytes(device: str) -> int:
    """What the device has in all: a GPU's memory, or the host's."""
    if device != "cpu":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        import psutil
    except ImportError:  # where only a recording is made
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return int(psutil.virtual_memory().total)
