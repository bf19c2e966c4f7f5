"""What this lesson times on the learner's machine, so that it can be believed when other programs run too.

Of many runs the best counts: whatever else a machine does makes a run slower and none faster. How far the middle run
lies above the best is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch.utils.benchmark import timer

from course_utils.machine.hardware import THIS_MACHINE, Device
from course_utils.machine.measure import RealTraining, this_machine
from course_utils.machine.timing import memory_bytes
from course_utils.networks import mlp
from course_utils.units import GB, GIB, MIB, CourseError, format_seconds, require_whole


@dataclass(frozen=True)
class Best:
    """Seconds of one run, of many that were timed: the best, the median, and how many there were."""

    seconds: float
    median: float
    runs: int

    @property
    def spread(self) -> float:
        """By what share the median lies above the best: 0 where nothing else ran."""
        return self.median / self.seconds - 1


def best_of(run: Callable[[], object], seconds: float = 0.1, block: int = 1) -> Best:
    """Time something on the CPU for `seconds` and at least five times, after one run to warm up.

    Args:
        run: what to time.
        seconds: how long in all, at least.
        block: runs between two looks at the clock, more than one where a run takes a few µs.

    Raises:
        CourseError: block below 1.
    """
    require_whole("block", block)
    run()
    took: list[float] = []
    while len(took) < 5 or sum(took) < seconds:
        began = timer()
        for _ in range(block):
            run()
        took.append(timer() - began)
    return Best(min(took) / block, float(np.median(took)) / block, len(took) * block)


def best_on_threads(run: Callable[[], object], seconds: float = 0.1) -> tuple[Best, int]:
    """As `best_of`, once on one of torch's threads and once on all: the better, and on how many it was.

    All are slower than one where other programs use the cores, and where there is little work to share.
    """
    most = torch.get_num_threads()
    found = []
    try:
        for threads in sorted({1, most}):
            torch.set_num_threads(threads)
            found.append((best_of(run, seconds), threads))
    finally:
        torch.set_num_threads(most)
    return min(found, key=lambda one: one[0].seconds)


@dataclass(frozen=True)
class Here:
    """This machine's three numbers, each the best of many runs.

    Attributes:
        product: of two matrices of `side` rows and columns, into a third.
        copy: of `copy_bytes` bytes, well beyond the caches.
        launch: an addition of one number, which is all launch.
    """

    product: Best
    copy: Best
    launch: Best
    side: int
    copy_bytes: int

    @property
    def device(self) -> Device:
        """This machine as a device of the catalogue's kind, with measured rates in place of published peaks."""
        return Device(
            name=THIS_MACHINE, year=0, dies=1, memory_gb=memory_bytes("cpu") / GIB,
            bandwidth_gb_s=2 * self.copy_bytes / self.copy.seconds / GB,
            float32_tflops=2 * self.side**3 / self.product.seconds / 1e12,
            sources=f"measured here: {this_machine()}", measured=True, launch_seconds=self.launch.seconds,
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row a number, written for reading: what, the best, the median above it, how many runs."""
        device = self.device
        rows = [
            ("launch", format_seconds(device.launch_seconds), self.launch),
            ("arithmetic rate", f"{1e3 * device.float32_tflops:,.3g} GFLOP/s", self.product),
            ("bandwidth", f"{device.bandwidth_gb_s:,.3g} GB/s", self.copy),
        ]
        return pd.DataFrame(
            [(what, best, f"{100 * timed.spread:.0f} %", timed.runs) for what, best, timed in rows],
            columns=["this machine", "best", "median slower by", "runs"],
        ).set_index("this machine")


def measure_here(seconds: float = 0.3, side: int = 512, copy_bytes: int = 128 * MIB) -> Here:
    """Measure the CPU's launch, arithmetic rate and bandwidth, on one of torch's threads or all, whichever is faster.

    Args:
        seconds: how long each number is measured at least.
        side: rows and columns of the matrices.
        copy_bytes: of the copy, a multiple of 4.
    """
    left, right, made = (torch.randn(side, side) for _ in range(3))
    source = torch.zeros(copy_bytes // 4)
    target, one = torch.zeros_like(source), torch.zeros(1)
    product, _ = best_on_threads(lambda: torch.mm(left, right, out=made), seconds)
    copy, _ = best_on_threads(lambda: target.copy_(source), seconds)
    launch = best_of(lambda: one.add_(1.0), seconds, block=100)
    return Here(product, copy, launch, side, copy_bytes)


def measure_steps(inputs: int, units: int, batches: list[int], seconds: float = 0.15) -> dict[int, Best]:
    """Training steps (momentum, cross-entropy) of `mlp((inputs, units, 10))` on this CPU: batch -> the best of many.

    Each is timed on one of torch's threads and on all.

    Raises:
        CourseError: no batch, or a number below 1.
    """
    if not batches:
        raise CourseError("measure_steps needs a batch to time")
    for what, number in (("inputs", inputs), ("units", units), *(("batch", batch) for batch in batches)):
        require_whole(what, number)
    network = mlp((inputs, units, 10))
    training = {n: RealTraining(network, (inputs,), 10, n, "momentum", "cpu", "float32") for n in batches}
    return {n: best_on_threads(real.step, seconds)[0] for n, real in training.items()}
