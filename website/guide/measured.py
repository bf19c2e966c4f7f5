"""What others measured on real cards, traced as the guide traces it. `measured.csv` names its sources."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from course_utils.machine import hardware
from course_utils.techniques.capacity import demand
from course_utils.units import MIB
from website.guide.models import MODELS
from website.guide.steps import Way, step

MEASURED = Path(__file__).with_name("measured.csv")


@dataclass(frozen=True)
class Measured:
    """One measurement. `mib` is what was allocated at the peak; or `batch` ran on `card`, and `failed` did not."""

    model: str
    way: Way
    batch: int
    mib: float
    card: str
    failed: int

    @property
    def name(self) -> str:
        """By which its traced peak is kept."""
        return f"{self.model}, {self.way.method}, {self.batch} x {self.way.length}"

    def traced(self) -> int | list[tuple[int, str, str]]:
        """Of the guide's own step: bytes allocated at the peak, or of each batch tried on the card what is said of it.

        Returns:
            Bytes; or of the batch that ran, and of the one that failed if there is one, the batch, the state of the
            verdict and its words.
        """
        found = step(MODELS[self.model], self.way)
        if not self.card:
            return found.at(self.batch).allocated_bytes()
        card = hardware.device(self.card)
        tried = {n: demand(found.at(n)).on(card) for n in (self.batch, self.failed) if n}
        return [(batch, verdict.state, verdict.words) for batch, verdict in tried.items()]


def measured() -> list[Measured]:
    """All of them, in the order of the file."""
    return [
        Measured(
            row["model"], Way(row["method"], row["optimizer"], not row["card"], int(row["length"])), int(row["batch"]),
            float(row["mib"] or 0), row["card"], int(row["failed"] or 0),
        )
        for row in rows(MEASURED)
    ]  # fmt: skip


def off(row: Measured, ours: int) -> float:
    """By what share of the measurement the traced peak differs from it."""
    return ours / (row.mib * MIB) - 1


def rows(path: Path) -> list[dict[str, str]]:
    """Of a csv file in this folder, whose first lines, with #, say where its rows are from."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))
