"""Recordings made up for tests. They stand for no device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from course_utils.machine.timing import Timing
from course_utils.recordings import schema
from course_utils.recordings.schema import Contents, Provenance


def here(**changes: Any) -> Provenance:
    """Where a recording of "Card X" was made."""
    made = Provenance(
        device="cuda", name="Card X", memory_bytes=8 * 2**30, driver="1.2", torch="2.11.0", cuda="12.8", cudnn="9",
        python="3.12", system="Linux", cpu="host", threads=4, date="2026-03-05T10:00:00+00:00",
        command="course record", course="0.1.0", commit="abc", quick=False, tf32_convolutions=True,
        tf32_products=False, clock_mhz=None, clock_limit_mhz=None, memory_clock_mhz=None, took_s=300.0,
    )  # fmt: skip
    return replace(made, **changes)


def made(complete: bool = True, **changes: Any) -> Contents:
    """Contents without an entry."""
    return Contents(schema.FORMAT, complete, here(**changes))


def timing(seconds: float) -> Timing:
    """Three runs that all took as long."""
    return Timing(seconds, 0.0, 3)
