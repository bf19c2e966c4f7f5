"""Time measured on this machine: its ceilings, which make it a device to predict for, and real training steps.

By the clock of torch.utils.benchmark, which waits for a GPU to finish; medians with their spread. Imports torch and
NumPy alone, pandas only for tables, so that it runs on a GPU machine with nothing else installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.utils.benchmark import timer

from course_utils.machine.hardware import THIS_MACHINE, Device
from course_utils.machine.measure import RealTraining, find_device, this_machine
from course_utils.trace import PRECISIONS
from course_utils.units import GB, GIB, MIB, CourseError

if TYPE_CHECKING:
    import pandas as pd


ABOVE_0 = {"above 0": True}  # what the reader of a recording asks of a field; "unit" goes behind its key


@dataclass(frozen=True)
class Timing:
    """Seconds of something run repeatedly: the median, the distance between the quartiles, and how many runs."""

    median: float = field(metadata={"unit": "s", **ABOVE_0})
    spread: float = field(metadata={"unit": "s"})
    runs: int = field(metadata=ABOVE_0)


@dataclass(frozen=True)
class Ceilings:
    """What this machine reaches at best: a large product, a large copy, and the least an operator costs.

    Attributes:
        machine: in words.
        flops_per_s: precision -> operations a second of a large matrix product, a multiply-add counting as two.
        bytes_per_s: bytes read and written a second by a large copy within the device's memory.
        launch_seconds: an addition of one number, which is all launch.
        timings: what the figures were computed from, by "float32" and other precisions, "copy", "launch".
        memory_bytes: of the device, or of the host where the device is the CPU.
        bfloat16: whether the device computes in bfloat16.
    """

    machine: str
    flops_per_s: dict[str, float]
    bytes_per_s: float
    launch_seconds: float
    timings: dict[str, Timing]
    memory_bytes: int
    bfloat16: bool

    def as_device(self, name: str = THIS_MACHINE) -> Device:
        """This machine as a device of the catalogue's kind, with measured rates in place of published peaks."""
        half = self.flops_per_s.get("float16", self.flops_per_s.get("bfloat16"))
        return Device(
            name=name, year=0, dies=1, memory_gb=self.memory_bytes / GIB, bandwidth_gb_s=self.bytes_per_s / GB,
            float32_tflops=self.flops_per_s["float32"] / 1e12, bfloat16=self.bfloat16,
            float16_tflops=None if half is None else half / 1e12, sources=f"measured here: {self.machine}",
            measured=True, launch_seconds=self.launch_seconds,
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row a quantity: quantity, value, unit, spread (between the quartiles, as a share of the median), runs."""
        import pandas as pd

        rows = [
            (f"product, {name}", rate / 1e9, "GFLOP/s", self.timings[name]) for name, rate in self.flops_per_s.items()
        ]
        rows += [("copy, read and written", self.bytes_per_s / GB, "GB/s", self.timings["copy"])]
        rows += [("launch of one operator", self.launch_seconds * 1e6, "µs", self.timings["launch"])]
        return pd.DataFrame(
            [(what, value, unit, timing.spread / timing.median, timing.runs) for what, value, unit, timing in rows],
            columns=["quantity", "value", "unit", "spread", "runs"],
        )


def measure_ceilings(
    device: str | None = None,
    seconds: float = 1.0,
    *,
    side: int | None = None,
    copy_bytes: int | None = None,
    precisions: tuple[str, ...] | None = None,
) -> Ceilings:
    """Measure this machine's ceilings: arithmetic by a large matrix product, bandwidth by a large copy, launch cost.

    Args:
        device: "cpu" or "cuda"; by default a GPU if there is one.
        seconds: how long each figure is measured at least; all of them take about three times as long on a CPU.
        side: rows and columns of the matrices; by default 2,048 on a CPU and 8,192 on a GPU.
        copy_bytes: bytes copied; by default 256 MiB on a CPU, well beyond its caches, and 1 GiB on a GPU.
        precisions: of the product, float32 among them; by default float32, on a GPU float16 too.

    Raises:
        CourseError: a GPU asked for and not there, or an argument out of range.
    """
    device = find_device(device)
    on_gpu = device != "cpu"
    side = side or (8192 if on_gpu else 2048)
    precisions = precisions or (("float32", "float16") if on_gpu else ("float32",))
    unknown = [name for name in precisions if name not in PRECISIONS]
    if unknown or "float32" not in precisions:
        raise CourseError(f"precisions must include float32 and be among {', '.join(PRECISIONS)}, got {precisions}")
    if seconds <= 0 or side < 1:
        raise CourseError(f"seconds and side must be above 0, got {seconds} and {side}")
    copy_bytes = (1024 if on_gpu else 256) * MIB if copy_bytes is None else copy_bytes
    if copy_bytes < 4:
        raise CourseError(f"copy_bytes must be 4 or more, got {copy_bytes}")
    timings = {name: time_product(side, name, device, seconds) for name in precisions}
    timings["copy"] = time_copy(copy_bytes, device, seconds)
    timings["launch"] = time_launch(device, min(seconds, 0.2))
    return Ceilings(
        machine=this_machine() if on_gpu or not torch.cuda.is_available() else f"CPU, torch {torch.__version__}",
        flops_per_s={name: 2 * side**3 / timings[name].median for name in precisions},
        bytes_per_s=2 * (copy_bytes // 4 * 4) / timings["copy"].median,
        launch_seconds=timings["launch"].median,
        timings=timings,
        memory_bytes=memory_bytes(device),
        bfloat16=torch.cuda.is_bf16_supported() if on_gpu else "bfloat16" in precisions,
    )


@dataclass(frozen=True)
class MeasuredStep:
    """A real training step, timed: the forward pass with its graph, and the whole step with the update.

    Of inference, where there is a forward pass alone, both are its time.
    """

    name: str
    batch: int
    device: str
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
    name: str | None = None,
) -> MeasuredStep:
    """Time a real training step on random data, as `course_utils.trace.training_step` traces it.

    Args:
        module: the network with real tensors; it is moved to the device and trained for as many steps as it takes.
        input_shape: shape of one sample, without the batch.
        classes: labels are drawn from this many.
        batch: samples in the batch.
        optimizer: "sgd", "momentum", "adam" or "adamw"; None times inference: eval mode, torch.inference_mode.
        device: "cpu" or "cuda"; by default a GPU if there is one.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        seconds: how long forward and step are each measured at least; a slow step is run three times at least.
        name: what tables call the network; the class name if not given.

    Raises:
        CourseError: an unknown optimizer or precision, a batch below 1, or a GPU asked for and not there.
    """
    if seconds <= 0:
        raise CourseError(f"seconds must be above 0, got {seconds}")
    real = RealTraining(module, input_shape, classes, batch, optimizer, device, precision)
    real.step()  # makes the optimizer's state, and lets kernels be chosen
    step = time_runs(real.step, seconds)
    forward = step if optimizer is None else time_runs(real.forward, seconds)
    return MeasuredStep(name or type(module).__name__, batch, real.device, forward, step)


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
    """A copy of `count` bytes between the host's memory and a GPU's, one way.

    Raises:
        CourseError: there is no GPU.
    """
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
