"""The trace beside torch's MemTracker and the CPU's allocator: bytes, milliseconds, and the published figures."""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from course_utils import networks
from course_utils.machine.measure import measure_step
from course_utils.memory import StepTrace
from course_utils.trace import training_step
from course_utils.units import GB, format_bytes, in_gb

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles import NETWORKS, Case, make_step, mem_tracker_timeline

try:
    import torchinfo  # a peer to compare with; nothing of ours needs it
except ImportError:
    torchinfo = None

CONSOLE = Console()
BATCHES = (1, 2, 37, 128, 256)
LIMIT = {"AlexNet": 60, "VGG-16": 60, "ResNet-50": 250, "GoogLeNet": 250}  # milliseconds we hold training_step to


def machine() -> None:
    """One line on where the figures come from."""
    cores = torch.get_num_threads()
    CONSOLE.print(f"torch {torch.__version__}, Python {platform.python_version()}, {cores} threads", style="dim")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _trace(name: str, optimizer: str = "momentum", target: str = "cuda") -> StepTrace:
    network = networks.NETWORKS[name]
    with torch.device("meta"):
        model = network.build()
    return training_step(model, network.input_shape, network.classes, optimizer, target=target, name=name)


def accuracy() -> None:
    """Peak of a real CPU step: the trace and MemTracker against the allocator's records, scratch memory included."""
    table = _table(
        "Peak of one real step on this CPU",
        "network, batch, optimizer",
        "allocator",
        "trace",
        "MemTracker",
        *(["torchinfo"] if torchinfo else []),
    )
    cases = [
        ("AlexNet", 16, "momentum"), ("AlexNet", 16, "adam"), ("VGG-16", 2, "momentum"), ("ResNet-50", 8, "momentum"),
        ("GoogLeNet", 16, "momentum"), ("52 M dense net", 64, "adam"),
    ]  # fmt: skip
    for name, batch, optimizer in track(cases, "accuracy", console=CONSOLE, transient=True):
        network = networks.NETWORKS[name]
        measured = measure_step(
            network.build(), network.input_shape, network.classes, batch, optimizer, "cpu"
        ).peak_bytes
        traced = _trace(name, optimizer, "cpu").at(batch).peak_bytes
        _, tracked = mem_tracker_timeline(Case(network.build, network.input_shape, network.classes, optimizer), batch)
        table.add_row(
            f"{name}, {batch}, {optimizer}", f"{in_gb(measured):.3f} GB", f"{traced / measured - 1:+.2%}",
            f"{tracked - traced:+,} B",
            *([f"{_by_torchinfo(network, batch) / measured - 1:+.0%}"] if torchinfo else []),
        )  # fmt: skip
    CONSOLE.print(table)
    CONSOLE.print("Trace and torchinfo: off the allocator, whose surplus over the trace is scratch inside kernels.")
    CONSOLE.print(f"MemTracker: off the trace.{'' if torchinfo else ' torchinfo is not installed, so left out.'}\n")


def _by_torchinfo(network: networks.Network, batch: int) -> int:
    """The "Estimated Total Size" of torchinfo: input, outputs of layers with parameters twice, parameters."""
    with torch.device("meta"):
        model = network.build()
    found = torchinfo.summary(model, (batch, *network.input_shape), device="meta", verbose=0)
    return int(found.total_input + found.total_output_bytes + found.total_param_bytes)


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(1000 * (time.process_time() - began))
    return statistics.median(times)


def _mem_tracker_steps(name: str) -> None:
    """Two tracked steps at one batch, as MemTracker's users run it: the first makes the optimizer's state."""
    network = networks.NETWORKS[name]
    with FakeTensorMode():
        parts, step = make_step(Case(network.build, network.input_shape, network.classes, "momentum"), 128)
        tracker = MemTracker()
        tracker.track_external(*parts)
        with tracker:
            step()
            tracker.reset_mod_stats()
            step()


def speed() -> None:
    """Milliseconds of `training_step`, which gives every batch, beside MemTracker's two steps at one batch."""
    table = _table(
        "Processor time of the whole trace, medians",
        "network",
        "training_step",
        "limit",
        "MemTracker, 2 steps",
        "ratio",
        "at() and peak",
    )
    for name, limit in track(LIMIT.items(), "speed", console=CONSOLE, transient=True):
        network = networks.NETWORKS[name]
        with torch.device("meta"):
            model = network.build()

        def trace(model: torch.nn.Module = model, network: networks.Network = network) -> StepTrace:
            return training_step(model, network.input_shape, network.classes)

        step = trace()
        ours = _median_ms(trace, 7)
        theirs = _median_ms(lambda name=name: _mem_tracker_steps(name), 3)
        batches = iter(range(2, 1000))
        move = _median_ms(lambda step=step, batches=batches: step.at(next(batches)).peak_bytes, 200)
        table.add_row(
            name,
            f"{ours:.0f} ms",
            f"{limit} ms",
            f"{theirs:,.0f} ms",
            f"{theirs / ours:.0f} ×",
            f"{1000 * move:.0f} µs",
        )
    CONSOLE.print(table)
    CONSOLE.print()


def history() -> None:
    """The totals published in 2016, and what PyTorch's allocator would reserve today."""
    table = _table(
        "Network-wide accounting, and today",
        "network, batch",
        "published",
        "network-wide",
        "peak today",
        "reserved, replayed",
    )
    published = {("AlexNet", 128): "1.1 GB", ("VGG-16", 128): "~14 GB", ("VGG-16", 256): "28 GB"}
    for (name, batch), figure in published.items():
        ledger = _trace(name).at(batch)
        table.add_row(
            f"{name}, {batch}", figure, f"{in_gb(ledger.network_wide_bytes()):.2f} GB",
            f"{in_gb(ledger.peak_bytes):.2f} GB", f"{in_gb(ledger.reserved_bytes()):.2f} GB",
        )  # fmt: skip
    with torch.device("meta"):
        deep = training_step(networks.vgg_deep(416), (3, 224, 224), 1000, name="VGG-416").at(32)
    table.add_row(
        "VGG-416, 32", "67 GB", f"{deep.network_wide_bytes() / GB:.2f} GB", f"{in_gb(deep.peak_bytes):.2f} GB", "–"
    )
    CONSOLE.print(table)
    CONSOLE.print("Published: Rhu et al., MICRO-49 (2016), workspace included. Network-wide: without workspace.\n")


def exactness() -> None:
    """Every named network × optimizer × batch: the whole timeline against MemTracker's, to the byte."""
    cases = list(product(NETWORKS.items(), ("sgd", "momentum", "adam"), BATCHES))
    different = 0
    for (name, (build, shape, classes)), optimizer, batch in track(cases, "exactness", console=CONSOLE, transient=True):
        timeline, peak = mem_tracker_timeline(Case(build, shape, classes, optimizer), batch)
        with torch.device("meta"):
            model = build()
        ledger = training_step(model, shape, classes, optimizer, target="cpu").at(batch)
        rows = ledger.timeline().iloc[1:-1]
        if list(zip(rows["event"], rows["total"], strict=True)) != timeline or peak != ledger.peak_bytes:
            different += 1
            off = ledger.peak_bytes - peak
            CONSOLE.print(
                f"{name}, {optimizer}, {batch}: peak off by {off:+,} B ({format_bytes(abs(off))})", style="red"
            )
    CONSOLE.print(f"{len(cases)} combinations, {different} differ from MemTracker in any byte of their timeline\n")
