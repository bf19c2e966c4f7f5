"""What lessons ask of a GPU, answered by a recording or measured on the spot: the same questions, the same types."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import torch

from course_utils.machine import card
from course_utils.machine.card import PLAIN, Contest, Context, RealStep
from course_utils.machine.measure import this_machine
from course_utils.machine.timing import time_transfer
from course_utils.networks import NETWORKS
from course_utils.recordings.schema import DIRECTIONS, Contents, read
from course_utils.units import CourseError, require_one_of

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

    def sentence(self) -> str:
        """Where the numbers come from, for the line under a figure."""
        p = self.contents.provenance
        versions = ", ".join(f"{name} {one}" for name, one in (("driver", p.driver), ("CUDA", p.cuda)) if one)
        inside = f" ({versions})" if versions else ""
        moment = datetime.fromisoformat(p.date)
        course = f"{p.course} ({p.commit})" if p.commit else p.course
        said = (
            f"Recorded on {p.name}{inside} with torch {p.torch} on {moment.day} {moment:%B %Y} "
            f"by `{p.command}`, course {course}."
        )
        if p.quick:
            said += " A quick trial of the recorder, not a measurement to learn from."
        return said if self.contents.complete else f"{said} It was interrupted, so not everything is in it."

    def sweep(
        self, network: str, batches: Sequence[int], precision: str = "float32", way: str = PLAIN
    ) -> list[RealStep]:
        """The recorded steps of one network with momentum, of these batches; the last may be out of memory."""
        wanted = (network, precision, "momentum", way)
        found = [
            step
            for step in self.contents.steps
            if (step.network, step.precision, step.optimizer, step.way) == wanted and step.batch in batches
        ]
        return sorted(found, key=lambda step: step.batch)

    def crossover(self) -> list[Contest]:
        """Networks of one hidden layer on CPU and device, by inputs, units and batch."""
        return sorted(self.contents.contests, key=lambda each: (each.inputs, each.units, each.batch))

    def transfer(self, count: int, pinned: bool = True) -> float:
        """Seconds that `count` bytes take to the device; between recorded sizes, on the straight line between them.

        Raises CourseError where no such transfers are in the recording.
        """
        kind = (pinned, DIRECTIONS[0])
        found = [each for each in self.contents.transfers if (each.pinned, each.direction) == kind]
        points = {each.size_bytes: each.time.median for each in found}
        sizes = sorted(points)
        self._demand(sizes, f"transfers to device, {'pinned' if pinned else 'not pinned'}")
        if count > sizes[-1]:
            return count * points[sizes[-1]] / sizes[-1]  # at the rate of the largest
        return float(np.interp(count, sizes, [points[size] for size in sizes]))

    def context(self) -> Context:
        """Memory the driver counts beside PyTorch's, with the libraries loaded. Raises CourseError if there is none."""
        found = [each for each in self.contents.contexts if each.libraries]
        self._demand(found, "context")
        return found[-1]

    def _demand(self, found: Sequence[object], what: str) -> None:
        if not found:
            raise CourseError(f"{self.path.name} has no {what}: it was interrupted before, or failed")


@dataclass(frozen=True)
class Live:
    """This machine's own GPU, asked what lessons ask of a `Recording`; each is measured when asked."""

    device: str = "cuda"
    seconds: float = card.SHORT

    def sentence(self) -> str:
        """Where the numbers come from, for the line under a figure."""
        return f"Measured here, when this cell ran: {this_machine()}."

    def sweep(
        self, network: str, batches: Sequence[int], precision: str = "float32", way: str = PLAIN
    ) -> list[RealStep]:
        """As a recording's, until memory runs out. Raises CourseError for an unknown network or precision."""
        require_one_of("network", network, NETWORKS)
        found: list[RealStep] = []
        for batch in sorted(batches):
            made = card.measure_one(
                NETWORKS[network], batch, precision, way=way, device=self.device, seconds=self.seconds
            )
            found.append(made)
            if made.out_of_memory:
                break
        return found

    def crossover(self) -> list[Contest]:
        """Networks of one hidden layer on CPU and device: a few of each, in seconds."""
        sizes = itertools.product((4, 1024), (10, 1000), (1, 128))
        return [card.measure_contest(*size, self.device, self.seconds) for size in sizes]

    def transfer(self, count: int, pinned: bool = True) -> float:
        """Seconds that `count` bytes take to the device. Raises CourseError without a GPU."""
        return time_transfer(count, pinned, False, self.seconds).median

    def context(self) -> Context:
        """Memory the driver counts beside PyTorch's; whatever else uses the GPU counts as well."""
        return card.measure_context(self.device, True, None)


def read_recording(path: Path) -> Recording:
    """The recording in a file. Raises CourseError where it is none, or has a fault."""
    return Recording(path, read(path))


def gpu(folder: Path = FOLDER) -> Live | Recording | None:
    """This machine's own GPU, else the newest recording of one in a folder, complete ones first; None if there is none.

    Quick trials and recordings of a CPU are left out: `read_recording` reads those. Raises CourseError for a file in
    the folder that is no recording, or has a fault.
    """
    if torch.cuda.is_available():
        return Live()
    found = [read_recording(path) for path in sorted(folder.glob("*.json"))]
    fit = [each for each in found if each.contents.provenance.device == "cuda" and not each.contents.provenance.quick]
    return max(fit, key=lambda each: (each.contents.complete, each.contents.provenance.date), default=None)


def sentence(source: Live | Recording | None) -> str:
    """The line under a figure: where its numbers come from, or what there is to say where there are none."""
    return NO_RECORDING if source is None else source.sentence()
