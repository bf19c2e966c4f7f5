"""What lessons ask of a GPU, answered by a recording or measured on the spot: the same questions, the same types.

`gpu()` gives the machine's own GPU (`Live`), else the newest recording (`Recording`), else None; `sentence` is the line
that goes under a figure in each of the three cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from course_utils.machine.measure import this_machine
from course_utils.machine.timing import Ceilings, Timing, measure_ceilings, time_launch, time_transfer
from course_utils.networks import NETWORKS
from course_utils.recordings import measuring
from course_utils.recordings.schema import (
    DIRECTIONS,
    PLAIN,
    Contents,
    Contest,
    Context,
    Launch,
    Provenance,
    RecordingError,
    Step,
    Transfer,
    Workspace,
    read,
)
from course_utils.trace import training_step
from course_utils.units import MIB, format_bytes, format_seconds, require_one_of

T = TypeVar("T")
FOLDER = Path(__file__).parent
NO_RECORDING = (
    "No recording from a GPU comes with this version of the course, and PyTorch sees no GPU here. "
    "On a machine that has one, `course record` makes it within 8 minutes."
)


@dataclass(frozen=True)
class Recording:
    """One file's contents, and the questions lessons ask of it."""

    path: Path
    contents: Contents

    @property
    def provenance(self) -> Provenance:
        """Where, when and how it was made."""
        return self.contents.provenance

    @property
    def name(self) -> str:
        """What figures call the device."""
        return self.provenance.name

    def sentence(self) -> str:
        """Where the numbers come from, for the line under a figure."""
        p = self.provenance
        versions = [f"driver {p.driver}"] if p.driver else []
        versions += [f"CUDA {p.cuda}"] if p.cuda else []
        inside = f" ({', '.join(versions)})" if versions else ""
        moment = datetime.fromisoformat(p.date)
        course = f"{p.course} ({p.commit})" if p.commit else p.course
        said = (
            f"Recorded on {p.name}{inside} with torch {p.torch} on {moment.day} {moment:%B %Y} "
            f"by `{p.command}`, course {course}."
        )
        if p.quick:
            said += " A quick trial of the recorder, not a measurement to learn from."
        return said if self.contents.complete else f"{said} It was interrupted, so not everything is in it."

    def step(
        self, network: str, batch: int, precision: str = "float32", optimizer: str = "momentum", way: str = PLAIN
    ) -> Step:
        """One recorded step.

        Raises:
            CourseError: it is not in the recording; the message says which batches are.
        """
        found = self.sweep(network, precision, optimizer, way)
        for step in found:
            if step.batch == batch:
                return step
        there = f"recorded are batches {', '.join(str(step.batch) for step in found)}" if found else "none is recorded"
        what = f"{network}, {precision}, {optimizer}" + (f", {way}" if way != PLAIN else "")
        raise RecordingError(f"{self.path.name} has no step of {what} at batch {batch}: {there}")

    def sweep(
        self,
        network: str,
        precision: str = "float32",
        optimizer: str = "momentum",
        way: str = PLAIN,
        batches: Sequence[int] | None = None,
    ) -> list[Step]:
        """The recorded steps of one network at growing batches, or at some of them; the last may be out of memory."""
        wanted = (network, precision, optimizer, way)
        found = {
            step.batch: step
            for step in self.contents.steps
            if (step.network, step.precision, step.optimizer, step.way) == wanted
            and (batches is None or step.batch in batches)
        }
        return [found[batch] for batch in sorted(found)]

    def crossover(self) -> list[Contest]:
        """Networks of one hidden layer on CPU and device, by inputs, units and batch."""
        return sorted(self.contents.contests, key=lambda each: (each.inputs, each.units, each.batch))

    def transfer(self, count: int, pinned: bool = True, direction: str = DIRECTIONS[0]) -> float:
        """Seconds that `count` bytes take over the link; between recorded sizes, on the straight line between them.

        Raises:
            CourseError: no such transfers are in the recording, or an unknown direction.
        """
        points = self.transfers(pinned, direction)
        if not points:
            raise RecordingError(f"{self.path.name} has no transfers {direction}, {_pinned(pinned)}")
        sizes, times = [each.size_bytes for each in points], [each.time.median for each in points]
        if count > sizes[-1]:
            return count * times[-1] / sizes[-1]  # at the rate of the largest
        return float(np.interp(count, sizes, times))

    def transfers(self, pinned: bool = True, direction: str = DIRECTIONS[0]) -> list[Transfer]:
        """The recorded transfers of one kind, by size.

        Raises:
            CourseError: an unknown direction.
        """
        _check_direction(direction)
        found = [each for each in self.contents.transfers if (each.pinned, each.direction) == (pinned, direction)]
        return sorted(found, key=lambda each: each.size_bytes)

    def launch(self, awaited: bool = False) -> Timing:
        """An addition of one number: issued one after another, or each awaited before the next.

        Raises:
            CourseError: it is not in the recording.
        """
        return self._only([each for each in self.contents.launches if (each.kind == "awaited") == awaited], Launch).time

    def context(self) -> Context:
        """Memory the driver counts beside PyTorch's, with the libraries loaded.

        Raises:
            CourseError: it is not in the recording.
        """
        return self._only([each for each in self.contents.contexts if each.libraries], Context)

    def workspaces(self, network: str, batch: int, benchmark: bool = False) -> list[Workspace]:
        """Scratch memory of a network's convolutions, in their order; those alike are there once."""
        wanted = (network, batch, benchmark)
        return [each for each in self.contents.workspaces if (each.network, each.batch, each.benchmark) == wanted]

    def ceilings(self) -> Ceilings:
        """The best product of each precision, the best copy and the launch: `as_device()` makes a device of them.

        Raises:
            CourseError: they are not in the recording.
        """
        contents, timings, rates = self.contents, {}, {}
        for product in sorted(contents.products, key=lambda each: each.flops_per_s):  # the last one of each is the best
            timings[product.precision], rates[product.precision] = product.time, product.flops_per_s
        if "float32" not in rates or not contents.copies:
            raise RecordingError(f"{self.path.name} has no ceilings: a float32 product or a copy is missing")
        copy = max(contents.copies, key=lambda each: each.size_bytes)  # small ones are copied within a cache
        return Ceilings(
            machine=f"{self.name}, torch {self.provenance.torch}",
            flops_per_s=rates,
            bytes_per_s=copy.bytes_per_s,
            launch_seconds=self.launch().median,
            timings={**timings, "copy": copy.time, "launch": self.launch()},
            memory_bytes=self.provenance.memory_bytes,
            bfloat16="bfloat16" in rates,
        )

    def _only(self, found: list[T], kind: type[T]) -> T:
        if not found:
            raise RecordingError(
                f"{self.path.name} has no {kind.__name__.lower()}: it was interrupted before, or failed"
            )
        return found[0]


@dataclass(frozen=True)
class Live:
    """This machine's own GPU, asked the questions of a `Recording`; each is measured when first asked."""

    device: str = "cuda"
    seconds: float = measuring.SHORT
    _steps: dict[tuple[str, int, str, str, str], Step] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """What figures call the device."""
        return torch.cuda.get_device_name() if self.device != "cpu" else "this CPU"

    def sentence(self) -> str:
        """Where the numbers come from, for the line under a figure."""
        return f"Measured here, when this cell ran: {this_machine()}."

    def step(
        self, network: str, batch: int, precision: str = "float32", optimizer: str = "momentum", way: str = PLAIN
    ) -> Step:
        """One step, measured once.

        Raises:
            CourseError: an unknown network, optimizer or precision.
        """
        require_one_of("network", network, NETWORKS)
        key = (network, batch, precision, optimizer, way)
        if key not in self._steps:
            self._steps[key] = measuring.measure_one(
                NETWORKS[network], batch, precision, optimizer, way, self.device, self.seconds
            )
        return self._steps[key]

    def sweep(
        self,
        network: str,
        precision: str = "float32",
        optimizer: str = "momentum",
        way: str = PLAIN,
        batches: Sequence[int] | None = None,
    ) -> list[Step]:
        """Steps at growing batches, by default 16 to 128, until memory runs out."""
        found: list[Step] = []
        for batch in sorted(batches or (16, 32, 64, 128)):
            found.append(self.step(network, batch, precision, optimizer, way))
            if found[-1].out_of_memory:
                break
        return found

    def crossover(self) -> list[Contest]:
        """Networks of one hidden layer on CPU and device: a few of each, in seconds."""
        return [
            measuring.measure_contest(inputs, units, batch, self.device, self.seconds)
            for inputs in (4, 1024)
            for units in (10, 1000)
            for batch in (1, 128)
        ]

    def transfers(self, pinned: bool = True, direction: str = DIRECTIONS[0]) -> list[Transfer]:
        """Transfers of some sizes.

        Raises:
            CourseError: an unknown direction, or no GPU.
        """
        _check_direction(direction)
        return [
            Transfer(size, pinned, direction, time_transfer(size, pinned, direction == DIRECTIONS[1], self.seconds))
            for size in (4096, MIB, 16 * MIB, 64 * MIB)
        ]

    def transfer(self, count: int, pinned: bool = True, direction: str = DIRECTIONS[0]) -> float:
        """Seconds that `count` bytes take over the link.

        Raises:
            CourseError: an unknown direction, or no GPU.
        """
        _check_direction(direction)
        return time_transfer(count, pinned, direction == DIRECTIONS[1], self.seconds).median

    def launch(self, awaited: bool = False) -> Timing:
        """An addition of one number: issued one after another, or each awaited before the next."""
        return time_launch(self.device, self.seconds, awaited)

    def context(self) -> Context:
        """Memory the driver counts beside PyTorch's; whatever else uses the GPU counts as well."""
        return measuring.measure_context(self.device, True, None)

    def workspaces(self, network: str, batch: int, benchmark: bool = False) -> list[Workspace]:
        """Scratch memory of a network's convolutions, in their order; those alike are there once."""
        return list(measuring.measure_workspaces(NETWORKS[network], batch, benchmark, self.device))

    def ceilings(self) -> Ceilings:
        """The best product of each precision, the best copy and the launch: `as_device()` makes a device of them."""
        return measure_ceilings(self.device, 0.2)


def _check_direction(direction: str) -> None:
    require_one_of("direction", direction, DIRECTIONS)


def _pinned(pinned: bool) -> str:
    return "pinned" if pinned else "not pinned"


def load(folder: Path = FOLDER) -> Recording | None:
    """The newest recording of a GPU in a folder, complete ones first; None if there is none.

    Quick trials and recordings of a CPU are left out: `read_recording` reads those.

    Raises:
        CourseError: a file in the folder is no recording.
    """
    found = [read_recording(path) for path in sorted(folder.glob("*.json"))]
    fit = [each for each in found if each.provenance.device == "cuda" and not each.provenance.quick]
    return max(fit, key=lambda each: (each.contents.complete, each.provenance.date), default=None)


def read_recording(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        CourseError: it is none, or has a fault.
    """
    return Recording(path, read(path))


def gpu(folder: Path = FOLDER) -> Live | Recording | None:
    """The GPU that lessons show: this machine's own, else the newest recording, else None.

    Raises:
        CourseError: a file in the folder is no recording.
    """
    return Live() if torch.cuda.is_available() else load(folder)


def sentence(source: Live | Recording | None) -> str:
    """The line under a figure: where its numbers come from, or what there is to say where there are none."""
    return NO_RECORDING if source is None else source.sentence()


def beside_trace(
    source: Live | Recording | None, network: str, precision: str = "float32", batches: Sequence[int] = (16, 64, 128)
) -> list[dict[str, str | int]]:
    """Rows of a table: a network's real steps with momentum on the GPU, each beside its trace.

    Args:
        source: what `gpu()` gave; None gives no rows.
        network: a name of `networks.NETWORKS`.
        precision: of the steps.
        batches: those wanted; a recording gives what it has of them.
    """
    found = [] if source is None else source.sweep(network, precision, batches=batches)
    if not found:
        return []
    known = NETWORKS[network]
    with torch.device("meta"):
        module = known.build()
    traced = training_step(module, known.input_shape, known.classes, precision=precision, name=network)
    rows: list[dict[str, str | int]] = []
    for step in found:
        peak = traced.at(step.batch).peak_bytes
        row: dict[str, str | int] = {"network": network, "precision": precision, "batch": step.batch}
        row |= {"trace": format_bytes(peak), "allocated": "out of memory", "difference": "", "time a sample": ""}
        if step.memory is not None and step.per_sample_s is not None:
            row["allocated"] = format_bytes(step.memory.peak_bytes)
            row["difference"] = f"{step.memory.peak_bytes / peak - 1:+.1%}"
            row["time a sample"] = format_seconds(step.per_sample_s)
        rows.append(row)
    return rows
