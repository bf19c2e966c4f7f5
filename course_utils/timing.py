"""Time measured on this machine: its ceilings, which make it a device to predict for, and real training steps.

By torch.utils.benchmark, which waits for a GPU to finish; medians with their spread. Must never import matplotlib or
ipywidgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import psutil
import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from course_utils.hardware import THIS_MACHINE, Device
from course_utils.measure import autocast, check_known, inference, this_machine
from course_utils.trace import OPTIMIZERS, PRECISIONS, Criterion
from course_utils.units import GB, GIB, MIB, CourseError


@dataclass(frozen=True)
class Timing:
    """Seconds of something run repeatedly: the median, the distance between the quartiles, and how many runs."""

    median: float
    spread: float
    runs: int


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

    def as_device(self) -> Device:
        """This machine as a device of the catalogue's kind, with measured rates in place of published peaks."""
        half = self.flops_per_s.get("float16", self.flops_per_s.get("bfloat16"))
        return Device(
            name=THIS_MACHINE, year=0, dies=1, memory_gb=self.memory_bytes / GIB, usable_gb=None,
            bandwidth_gb_s=self.bytes_per_s / GB, float32_tflops=self.flops_per_s["float32"] / 1e12, float32_clock="",
            float16_tflops=None if half is None else half / 1e12, tensor_tflops=None, bfloat16=self.bfloat16,
            pcie=None, launch_usd=None, sources=f"measured here: {self.machine}", measured=True,
            launch_seconds=self.launch_seconds,
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """One row a quantity: quantity, value, unit, spread (between the quartiles, as a share of the median), runs."""
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
    device = _device(device)
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
    timings = {name: _time_product(side, name, device, seconds) for name in precisions}
    source = torch.randn(copy_bytes // 4, device=device)
    copied = torch.empty_like(source)
    timings["copy"] = _time(lambda: copied.copy_(source), seconds)
    one = torch.zeros(1, device=device)
    timings["launch"] = _time(lambda: one.add_(1.0), min(seconds, 0.2))
    memory = torch.cuda.get_device_properties(device).total_memory if on_gpu else psutil.virtual_memory().total
    return Ceilings(
        machine=this_machine() if on_gpu or not torch.cuda.is_available() else f"CPU, torch {torch.__version__}",
        flops_per_s={name: 2 * side**3 / timings[name].median for name in precisions},
        bytes_per_s=2 * source.nbytes / timings["copy"].median,
        launch_seconds=timings["launch"].median,
        timings=timings,
        memory_bytes=int(memory),
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
    criterion: Criterion = nn.functional.cross_entropy,
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
        criterion: (output, labels) -> scalar loss.
        name: what tables call the network; the class name if not given.

    Raises:
        CourseError: an unknown optimizer or precision, a batch below 1, or a GPU asked for and not there.
    """
    if optimizer is not None:
        check_known("optimizer", optimizer, OPTIMIZERS)
    check_known("precision", precision, PRECISIONS)
    if batch < 1 or seconds <= 0:
        raise CourseError(f"batch and seconds must be above 0, got {batch} and {seconds}")
    device = _device(device)
    model = module.to(device)
    x = torch.randn((batch, *input_shape), device=device)
    name = name or type(module).__name__
    if optimizer is None:

        def answer() -> None:
            with inference(model), autocast(device, precision):
                model(x)

        answer()
        timing = _time(answer, seconds)
        return MeasuredStep(name, batch, device, timing, timing)
    y = torch.randint(classes, (batch,), device=device)
    kind, options = OPTIMIZERS[optimizer]
    update = kind(model.parameters(), **options)

    def forward() -> Tensor:
        with autocast(device, precision):
            return criterion(model(x), y)

    def step() -> None:
        forward().backward()
        update.step()
        update.zero_grad(set_to_none=True)

    step()  # makes the optimizer's state, and lets kernels be chosen
    return MeasuredStep(name, batch, device, _time(forward, seconds), _time(step, seconds))


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


def _device(name: str | None) -> str:
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise CourseError("this machine shows PyTorch no GPU: leave device=None to measure on the CPU")
    return name


def _time(run: Callable[[], object], seconds: float) -> Timing:
    """At least three runs; with all of torch's threads, where torch.utils.benchmark by itself takes one."""
    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    times = timer.blocked_autorange(min_run_time=seconds).times
    while len(times) < 3:
        times = [*times, *timer.timeit(1).times]
    low, median, high = np.percentile(times, [25, 50, 75])
    return Timing(float(median), float(high - low), len(times))


def _time_product(side: int, precision: str, device: str, seconds: float) -> Timing:
    left, right = (torch.randn(side, side, device=device).to(PRECISIONS[precision]) for _ in range(2))
    product = torch.empty_like(left)
    return _time(lambda: torch.mm(left, right, out=product), seconds)
