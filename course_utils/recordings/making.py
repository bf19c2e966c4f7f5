"""`course record`: everything the lessons need from a GPU, measured within minutes and written as one file.

A list of items in order of importance, each with a limit of its own; what time does not suffice for, what runs out of
memory and what fails is written down as such. The measuring is that of `measure` and `timing`, which lessons call
live. Needs torch, NumPy and this package alone (tqdm for a progress bar, if it is there), because a GPU machine may
have nothing else; must never import pandas, psutil, matplotlib, ipywidgets or scikit-learn.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from course_utils.machine.timing import time_copy, time_launch, time_product, time_transfer
from course_utils.networks import NETWORKS, Network, mlp, small_cnn
from course_utils.recordings.measuring import (
    SHORT,
    free,
    measure_contest,
    measure_context,
    measure_one,
    measure_workspaces,
    out_of_memory,
)
from course_utils.recordings.schema import (
    FORMAT,
    PLAIN,
    WAYS,
    Contents,
    Copy,
    Entry,
    Launch,
    Product,
    RecordingError,
    Skipped,
    Transfer,
    read,
    write,
)
from course_utils.recordings.whereabouts import as_number, ask_driver, provenance, with_clocks
from course_utils.trace import PRECISIONS
from course_utils.units import GIB, KIB, MIB, CourseError

BUDGET_SECONDS = 420.0  # of the 8 minutes a recording may take, the start and the last item's overrun set aside
SAVE_SECONDS = 20.0  # between two writings of what there is so far


@dataclass(frozen=True)
class Extent:
    """What is measured, and how large."""

    networks: dict[str, Network]
    first_batches: tuple[int, ...]  # of momentum in float32, and of the other precisions
    other_batches: tuple[int, ...]  # of the other optimizers
    precisions: tuple[str, ...]
    optimizers: tuple[str, ...]
    sides: tuple[int, ...]
    copies: tuple[int, ...]
    transfers: tuple[int, ...]
    contest: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # inputs, units, batches
    ways: tuple[tuple[str, int], ...]  # network, batch
    workspaces: tuple[tuple[str, int], ...]
    seconds: float


FULL = Extent(
    networks=NETWORKS,
    first_batches=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    other_batches=(16, 64, 128, 256),
    precisions=tuple(PRECISIONS),
    optimizers=("momentum", "adam", "sgd", "adamw"),
    sides=(256, 512, 1024, 2048, 4096, 8192, 16384),
    copies=(64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB),
    transfers=(4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB),
    contest=((4, 64, 784, 4096), (10, 100, 1000, 10_000), (1, 16, 128, 1024)),
    ways=(("VGG-16", 32), ("ResNet-50", 32), ("ResNet-50", 128), ("AlexNet", 128)),
    workspaces=(("VGG-16", 16), ("VGG-16", 128), ("AlexNet", 128)),
    seconds=SHORT,
)
QUICK = Extent(
    networks={
        "small CNN": Network("small CNN", lambda: small_cnn(size=16), (3, 16, 16), 10),
        "small dense net": Network("small dense net", lambda: mlp((20, 30, 10)), (20,), 10),
    },
    first_batches=(2, 4),
    other_batches=(2,),
    precisions=("float32", "bfloat16"),
    optimizers=("momentum", "adam"),
    sides=(16, 64),
    copies=(4 * KIB, MIB),
    transfers=(4 * KIB, MIB),
    contest=((4, 16), (10,), (1, 8)),
    ways=(("small CNN", 4),),
    workspaces=(("small CNN", 2),),
    seconds=0.002,
)


# ---------------------------------------------------------------------------------------------------------------------
# The list


@dataclass
class Clock:
    """Time left: of the whole, and of the item under way."""

    ends: float
    item_ends: float = 0.0

    def left(self) -> float:
        """Seconds left for the item under way."""
        return min(self.ends, self.item_ends) - time.monotonic()

    def start(self, cap: float) -> None:
        """Begin an item that may take `cap` seconds."""
        self.item_ends = time.monotonic() + cap


@dataclass(frozen=True)
class Item:
    """Something to measure: its name, what it may take in seconds, and the measuring, one entry after another."""

    name: str
    cap: float
    run: Callable[[Clock], Iterator[Entry]]


def sweep(
    plan: Extent, network: str, batches: Sequence[int], precision: str, optimizer: str, device: str, clock: Clock
) -> Iterator[Entry]:
    """Steps at growing batches, until memory runs out or the next one would take longer than there is time."""
    item, took, last = f"steps of {network}, {precision}, {optimizer}", 0.0, 0
    for batch in batches:
        if last and took * batch / last > clock.left():
            yield Skipped(item, f"batch {batch} and above: no time left")
            return
        began = time.monotonic()
        step = measure_one(plan.networks[network], batch, precision, optimizer, device=device, seconds=plan.seconds)
        yield step
        if step.out_of_memory:
            return
        took, last = time.monotonic() - began, batch


def items(plan: Extent, device: str, others: int | None) -> Iterator[Item]:
    """Everything to measure, the most important first."""
    on_gpu, seconds = device != "cpu", plan.seconds

    def contexts(clock: Clock) -> Iterator[Entry]:
        for libraries in (False, True):
            yield measure_context(device, libraries, others)

    def ceilings(clock: Clock) -> Iterator[Entry]:
        for side, precision in itertools.product(plan.sides, plan.precisions):
            yield Product(side, precision, time_product(side, precision, device, seconds))
        for size in plan.copies:
            yield Copy(size, time_copy(size, device, seconds))
        for kind in ("issued", "awaited"):
            yield Launch(kind, time_launch(device, seconds, awaited=kind == "awaited"))

    def transfers(clock: Clock) -> Iterator[Entry]:
        for size, pinned, to_host in itertools.product(plan.transfers, (True, False), (False, True)):
            timing = time_transfer(size, pinned, to_host, seconds)
            yield Transfer(size, pinned, "to host" if to_host else "to device", timing)

    def contests(clock: Clock) -> Iterator[Entry]:
        for inputs, units, batch in itertools.product(*plan.contest):
            yield measure_contest(inputs, units, batch, device, seconds)

    def steps(network: str, precision: str, optimizer: str, batches: Sequence[int]) -> Item:
        name = f"steps of {network}, {precision}, {optimizer}"
        return Item(name, 45, lambda clock: sweep(plan, network, batches, precision, optimizer, device, clock))

    def moved(network: str, batch: int, way: str) -> Item:
        def run(clock: Clock) -> Iterator[Entry]:
            if way.endswith("pinned") and not on_gpu:
                raise CourseError("pinned memory is for transfers to a GPU")
            yield measure_one(plan.networks[network], batch, way=way, device=device, seconds=seconds)

        return Item(f"maps of {network}, batch {batch}: {way}", 20, run)

    gpu_only = [Item("context", 10, contexts), Item("transfers", 30, transfers)]
    if on_gpu:
        yield gpu_only[0]
    yield Item("ceilings", 40, ceilings)
    if on_gpu:
        yield gpu_only[1]
    yield Item("contests of CPU and device", 60, contests)
    first, *others_precise = plan.precisions
    for network in plan.networks:
        yield steps(network, first, "momentum", plan.first_batches)
    for (network, batch), way in itertools.product(plan.ways, WAYS):
        if way == PLAIN and batch in plan.first_batches:
            continue  # a sweep has measured that
        yield moved(network, batch, way)
    for network, batch in plan.workspaces:
        for benchmark in (False, True):
            yield Item(
                f"workspace of {network}, batch {batch}, benchmark {'on' if benchmark else 'off'}",
                15,
                lambda clock, n=network, b=batch, on=benchmark: measure_workspaces(  # type: ignore[misc]
                    plan.networks[n], b, on, device
                ),
            )
    for precision, network in itertools.product(others_precise, plan.networks):
        yield steps(network, precision, "momentum", plan.first_batches)
    for precision, optimizer, network in itertools.product(plan.precisions, plan.optimizers, plan.networks):
        if optimizer != "momentum":
            yield steps(network, precision, optimizer, plan.other_batches)


# ---------------------------------------------------------------------------------------------------------------------
# Recording


@contextmanager
def _ended_politely() -> Iterator[None]:
    """A request to end (SIGTERM, as `timeout` sends it) is taken as Ctrl-C, so that what there is gets written."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before: Any = None
    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _progress(todo: Sequence[Item]) -> Iterable[Item]:
    """The items, with a bar where tqdm is installed and a line each where it is not."""
    try:
        from tqdm import tqdm
    except ImportError:
        for i, item in enumerate(todo):
            print(f"{i + 1}/{len(todo)} {item.name}", file=sys.stderr, flush=True)
            yield item
        return
    with tqdm(todo, unit="item", file=sys.stderr) as bar:
        for item in bar:
            bar.set_description(item.name[:48])
            yield item


def record(
    out: Path,
    device: str = "cuda",
    quick: bool = False,
    minutes: float = BUDGET_SECONDS / 60,
    command: str = "",
    plan: Extent | None = None,
) -> Contents:
    """Measure everything and write it to `out`; also what there is when interrupted, marked as not complete.

    Args:
        out: the file; it must not exist yet.
        device: "cuda" or "cpu".
        quick: whether to measure tiny networks alone, in seconds, to try the workings.
        minutes: how long it may take in all; the last item may overrun by a little.
        command: the command line, for the provenance.
        plan: what to measure; by default FULL, or QUICK.

    Raises:
        CourseError: no GPU, a file that is there already or cannot be written, or time that is no time.
        KeyboardInterrupt: interrupted; what was measured is in the file.
    """
    if device not in ("cuda", "cpu"):
        raise CourseError(f"unknown device {device!r}: choose cuda or cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise CourseError("this machine shows PyTorch no GPU: add --device cpu --quick to try the recorder without one")
    if not minutes > 0:
        raise CourseError(f"minutes must be above 0, got {minutes}")
    if out.exists():
        raise RecordingError(f"{out} is there already: move it away or choose another name with --out")
    if not out.parent.is_dir():
        raise RecordingError(f"there is no folder {out.parent}: make it or choose another place with --out")
    began = time.monotonic()
    used = as_number(ask_driver("memory.used")[0]) if device == "cuda" else None  # before the context exists
    torch.manual_seed(0)
    contents = Contents(FORMAT, False, provenance(device, quick, command))
    write(contents, out)  # before minutes are spent: a place that cannot be written to fails now
    todo = list(items(plan or (QUICK if quick else FULL), device, None if used is None else int(used * MIB)))
    clock = Clock(began + 60 * minutes)
    saved = began
    try:
        with _ended_politely():
            for item in _progress(todo):
                _do(item, clock, contents, device)
                if item.name == "ceilings":
                    contents = replace(contents, provenance=with_clocks(contents.provenance, device))
                if time.monotonic() - saved > SAVE_SECONDS:
                    _save(contents, out, began)
                    saved = time.monotonic()
        contents = replace(contents, complete=True)
    finally:
        contents = _save(contents, out, began)
    return contents


def _save(contents: Contents, out: Path, began: float) -> Contents:
    contents = replace(contents, provenance=replace(contents.provenance, took_s=round(time.monotonic() - began, 1)))
    write(contents, out)
    return contents


def _do(item: Item, clock: Clock, contents: Contents, device: str) -> None:
    """Measure one item as far as time allows; what fails is written down, and the rest goes on."""
    clock.start(item.cap)
    entries = item.run(clock)
    try:
        while True:
            if clock.left() <= 0:
                contents.add(Skipped(item.name, "stopped: its time was up"))
                return
            try:
                contents.add(next(entries))
            except StopIteration:
                return
    except (RuntimeError, CourseError) as error:
        reason = "out of memory" if out_of_memory(error) else (str(error).strip() or type(error).__name__)
        contents.add(Skipped(item.name, reason.splitlines()[0][:300]))
    free(device)


def default_out(device: str, quick: bool) -> Path:
    """Where a recording goes by itself: a GPU's to the folder lessons read, anything else to the current one."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if device == "cpu" or quick:
        return Path(f"recording-{device}-{stamp}.json")
    name = ask_driver("name")[0] or "gpu"  # PyTorch would make the context, whose size is to be measured
    name = "".join(c if c.isalnum() else "-" for c in name.lower())
    return Path(__file__).parent / f"{name}-{stamp}.json"


def record_command(options: Any, command: str) -> int:
    """`course record`: record, then say what there is. Returns the exit code."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise CourseError("this machine shows PyTorch no GPU: add --device cpu --quick to try the recorder without one")
    out = options.out or default_out(options.device, options.quick)
    try:
        contents = record(out, options.device, options.quick, options.minutes, command)
    except KeyboardInterrupt:
        print(f"course: interrupted; what was measured so far is in {out}", file=sys.stderr)
        return 130
    contents = read(out)  # as a lesson will
    print(f"{out}: {len(contents.steps)} steps measured, {contents.provenance.took_s:.0f} s in all")
    for skipped in contents.skipped:
        print(f"  not measured: {skipped.item}: {skipped.reason}")
    return 0
