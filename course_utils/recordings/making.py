"""`course record`: everything the lessons need from a GPU, measured within minutes and written as one file.

A list of items in order of importance, each with a limit of its own; what time does not suffice for, what runs out of
memory and what fails is written down as such. What lessons call live measures here, too: `course_utils.machine`.
"""

import argparse
import itertools
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from course_utils.machine import card, timing
from course_utils.networks import NETWORKS, Network, mlp, small_cnn
from course_utils.recordings import schema, whereabouts
from course_utils.recordings.schema import Contents, Entry, Skipped
from course_utils.trace import PRECISIONS
from course_utils.units import GIB, KIB, MIB, CourseError

BUDGET_SECONDS = 420.0  # of the 8 minutes a recording may take, the start and the last item's overrun set aside
SAVE_SECONDS = 20.0  # between two writings of what there is so far
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Extent:
    """What is measured, and how large: everything that lessons ask for, where nothing else is said."""

    networks: dict[str, Network] = field(default_factory=lambda: NETWORKS)
    first_batches: Sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # of momentum
    other_batches: Sizes = (16, 64, 128, 256)  # of the other optimizers
    precisions: tuple[str, ...] = tuple(PRECISIONS)
    optimizers: tuple[str, ...] = ("momentum", "adam", "sgd", "adamw")
    sides: Sizes = (256, 512, 1024, 2048, 4096, 8192, 16384)
    copies: Sizes = (64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB)
    transfers: Sizes = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
    # Inputs, units, batches.
    contest: tuple[Sizes, Sizes, Sizes] = ((4, 64, 784, 4096), (10, 100, 1000, 10_000), (1, 16, 128, 1024))
    ways: tuple[tuple[str, int], ...] = (("VGG-16", 32), ("ResNet-50", 32), ("ResNet-50", 128), ("AlexNet", 128))
    seconds: float = card.SHORT


FULL = Extent()
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
    seconds=0.002,
)

# -- The list ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """Something to measure."""

    name: str
    cap: float  # what it may take, in seconds
    run: Callable[[float], Iterator[Entry]]  # by `time.monotonic()`, when it should be done -> one entry after another


def items(plan: Extent, device: str, others: int | None) -> Iterator[Item]:
    """Everything to measure, the most important first; `others` are bytes of the card that other processes use."""
    on_gpu, seconds = device != "cpu", plan.seconds
    measured = partial(card.measure_one, device=device, seconds=seconds)
    contests = (card.measure_contest(*size, device, seconds) for size in itertools.product(*plan.contest))
    contexts = (card.measure_context(device, libraries, others) for libraries in (False, True))

    def ceilings(ends: float) -> Iterator[Entry]:
        for side, precision in itertools.product(plan.sides, plan.precisions):
            yield schema.Product(side, precision, timing.time_product(side, precision, device, seconds))
        for size in plan.copies:
            yield schema.MemoryCopy(size, timing.time_copy(size, device, seconds))
        for kind in schema.LAUNCHES:
            yield schema.Launch(kind, timing.time_launch(device, seconds, awaited=kind == "awaited"))

    def transfers(ends: float) -> Iterator[Entry]:
        for size, pinned, way in itertools.product(plan.transfers, (True, False), schema.DIRECTIONS):
            yield schema.Transfer(size, pinned, way, timing.time_transfer(size, pinned, way == "to host", seconds))

    def steps(network: str, precision: str, optimizer: str, batches: Sequence[int]) -> Item:
        name = f"steps of {network}, {precision}, {optimizer}"

        def run(ends: float) -> Iterator[Entry]:
            """At growing batches, until memory runs out or the next one would take longer than there is time."""
            took, last = 0.0, 0
            for batch in batches:
                began = time.monotonic()
                if last and took * batch / last > ends - began:
                    yield Skipped(name, f"batch {batch} and above: no time left")
                    return
                step = measured(plan.networks[network], batch, precision, optimizer)
                yield step
                if step.out_of_memory:
                    return
                took, last = time.monotonic() - began, batch

        return Item(name, 45, run)

    def moved(network: str, batch: int, way: str) -> Item:
        def run(ends: float) -> Iterator[Entry]:
            if way.endswith("pinned") and not on_gpu:
                raise CourseError("pinned memory is for transfers to a GPU")
            yield measured(plan.networks[network], batch, way=way)

        return Item(f"maps of {network}, batch {batch}: {way}", 20, run)

    if on_gpu:
        yield Item("context", 10, lambda ends: contexts)
    yield Item("ceilings", 40, ceilings)
    if on_gpu:
        yield Item("transfers", 30, transfers)
    yield Item("contests of CPU and device", 60, lambda ends: contests)
    first, *others_precise = plan.precisions
    for network in plan.networks:
        yield steps(network, first, "momentum", plan.first_batches)
    for (network, batch), way in itertools.product(plan.ways, card.WAYS):
        if way != card.PLAIN or batch not in plan.first_batches:  # else a sweep has measured that
            yield moved(network, batch, way)
    for precision, network in itertools.product(others_precise, plan.networks):
        yield steps(network, precision, "momentum", plan.first_batches)
    for precision, optimizer, network in itertools.product(plan.precisions, plan.optimizers, plan.networks):
        if optimizer != "momentum":
            yield steps(network, precision, optimizer, plan.other_batches)


# -- Recording --------------------------------------------------------------------------------------------------------


def record(
    out: Path, device: str = "cuda", plan: Extent = FULL, minutes: float = BUDGET_SECONDS / 60, command: str = ""
) -> Contents:
    """Measure everything and write it to `out`; also what there is when interrupted, marked as not complete.

    Args:
        out: the file; it must not exist yet.
        device: "cuda" or "cpu".
        plan: what to measure; anything less than FULL makes a quick trial, which no lesson shows.
        minutes: how long it may take in all; the last item may overrun by a little.
        command: the command line, for the provenance.

    Raises:
        CourseError: no GPU, a file that is there already or cannot be written, or time that is no time.
        KeyboardInterrupt: interrupted; what was measured is in the file.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise CourseError("this machine shows PyTorch no GPU: add --device cpu --quick to try the recorder without one")
    if not minutes > 0:
        raise CourseError(f"minutes must be above 0, got {minutes}")
    if out.exists():
        raise CourseError(f"{out} is there already: move it away or choose another name with --out")
    if not out.parent.is_dir():
        raise CourseError(f"there is no folder {out.parent}: make it or choose another place with --out")
    began = saved = time.monotonic()
    others = whereabouts.used_bytes() if device == "cuda" else None  # before the context exists
    torch.manual_seed(0)
    contents = Contents(schema.FORMAT, False, whereabouts.provenance(device, plan is not FULL, command))
    schema.write(contents, out)  # before minutes are spent: a place that cannot be written to fails now
    todo = list(items(plan, device, others))
    try:
        for i, item in enumerate(todo):
            print(f"{i + 1}/{len(todo)} {item.name}", file=sys.stderr, flush=True)
            _do(item, began + 60 * minutes, contents, device)
            if item.name == "ceilings" and device == "cuda":
                contents = replace(contents, provenance=whereabouts.with_clocks(contents.provenance))
            if time.monotonic() - saved > SAVE_SECONDS:
                schema.write(contents, out)
                saved = time.monotonic()
        contents = replace(contents, complete=True)
    finally:
        took = round(time.monotonic() - began, 1)
        contents = replace(contents, provenance=replace(contents.provenance, took_s=took))
        schema.write(contents, out)
    return contents


def _do(item: Item, ends: float, contents: Contents, device: str) -> None:
    """Measure one item as far as time allows; what fails is written down, and the rest goes on."""
    ends = min(ends, time.monotonic() + item.cap)
    entries = item.run(ends)
    try:
        while time.monotonic() < ends:
            if (entry := next(entries, None)) is None:
                return
            contents.add(entry)
        contents.add(Skipped(item.name, "stopped: its time was up"))
        return
    except (RuntimeError, CourseError) as error:
        reason = "out of memory" if card.out_of_memory(error) else (str(error).strip() or type(error).__name__)
        contents.add(Skipped(item.name, reason.splitlines()[0][:300]))
    card.free(device)  # after the exception, whose traceback held the tensors


def default_out(device: str, quick: bool) -> Path:
    """Where a recording goes by itself: a GPU's to the folder lessons read, anything else to the current one."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    if device == "cpu" or quick:
        return Path(f"recording-{device}-{stamp}.json")
    name = whereabouts.ask_driver("name")[0] or "gpu"  # PyTorch would make the context, whose size is to be measured
    return Path(__file__).parent / f"{''.join(c if c.isalnum() else '-' for c in name.lower())}-{stamp}.json"


def record_command(arguments: Sequence[str], root: Path | None = None) -> int:
    """`course record`: record, then say what there is. Returns the exit code. Needs no folder of the course."""
    parser = argparse.ArgumentParser(prog="course record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write; by default where lessons look")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu only tries the workings")
    parser.add_argument("--quick", action="store_true", help="tiny networks alone, in seconds, to try the workings")
    parser.add_argument("--minutes", type=float, default=BUDGET_SECONDS / 60, help="how long it may take (default: 7)")
    options, command = parser.parse_args(arguments), shlex.join(["course", "record", *arguments])
    out, plan = options.out or default_out(options.device, options.quick), QUICK if options.quick else FULL
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `timeout` sends it: keep what there is
    try:
        record(out, options.device, plan, options.minutes, command)
    except KeyboardInterrupt:
        print(f"course: interrupted; what was measured so far is in {out}", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    contents = schema.read(out)  # as a lesson will
    print(f"{out}: {len(contents.steps)} steps measured, {contents.provenance.took_s:.0f} s in all")
    for skipped in contents.skipped:
        print(f"  not measured: {skipped.item}: {skipped.reason}")
    return 0
