"""What a card does not give to tensors: the context, from what people saw of it.

The driver and the libraries load their code and set up a stack for every thread a card can run, outside PyTorch's
counters. Nobody can compute it. `contexts.csv` has what was reported, in MiB, with PyTorch's own segments taken off:

- *lazy*: kernels are loaded when they are first used, as PyTorch has asked for since 1.13 (pull request 86509: 274 MiB
  in place of 636). From messages of PyTorch 2.1 and later that ran out of memory, which say what the process holds
  in all, what is allocated, and what is reserved beside. Left out were two in which another library had memory of its
  own (lerf issue 73, VGen issue 104). Larger chips take more: 115 MiB on an RTX 4060, 619 on an RTX 5090.
- *eager*: every kernel of every library is loaded at once, as before CUDA 11.7 on the architectures of that time. Most
  were seen after a first tensor, before cuDNN had loaded its own. Messages of that time are no reports: they do not say
  what other processes held of the card.

Two numbers are chosen here, both bounds of those reports; none was fitted to a step that ran or failed.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from course_utils.machine.catalogue import Column, number, one_of, read_rows, whole
from course_utils.machine.hardware import Device
from course_utils.units import MIB, CourseError

REPORTS_FILE = Path(__file__).with_name("contexts.csv")
REPORT_COLUMNS = {
    "name": Column(str),
    "architecture": Column(str),
    "year": Column(whole),
    "loading": Column(one_of("lazy", "eager")),
    "mib": Column(number),
    "sources": Column(str),
    "derived": Column(str, ""),
}
# The most that is allowed for a card of which no report says more: all lazy ones but the RTX 5090's are below.
CONTEXT_BYTES = 512 * MIB
# The least that any card was seen to take, rounded down: what surely is not there for tensors.
LEAST_BYTES = 112 * MIB


@dataclass(frozen=True)
class Report:
    """What somebody saw of the context of a card."""

    name: str  # of the card, and what tells several reports of it apart
    architecture: str  # of its chip, as in `devices.csv`
    year: int  # of the report
    loading: str  # "lazy" or "eager"
    mib: float  # what the process held beside PyTorch's memory
    sources: str  # where it was said
    derived: str = ""  # how it follows from what was said


@dataclass(frozen=True)
class Context:
    """Bytes that a process takes of a card beside PyTorch's memory, between two bounds."""

    least: int  # surely taken
    most: int  # as much as was ever seen to be taken

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise CourseError(f"a context lies between 0 and more bytes, got {self.least} to {self.most}")


@lru_cache(maxsize=1)
def reports() -> tuple[Report, ...]:
    """All that was seen, eager ones first."""
    return tuple(Report(**row) for row in read_rows(REPORTS_FILE, REPORT_COLUMNS))


@lru_cache
def context(card: Device | None = None, loading: str | None = None) -> Context:
    """What a process takes of a card.

    Args:
        card: of the catalogue; None for one that is known by its bytes alone.
        loading: "lazy" where CUDA is 11.7 or later, "eager" before; None for whichever was reported of the card's
            architecture: what fits then fits with old versions too.
    """
    seen = [
        int(report.mib * MIB)
        for report in reports()
        if card is not None and report.architecture == card.architecture and loading in (None, report.loading)
    ]
    return Context(LEAST_BYTES, max(CONTEXT_BYTES, *seen, 0))


def known_context(context_bytes: int) -> Context:
    """A context whose size is known, as `course_utils.recordings` measures it."""
    return Context(int(context_bytes), int(context_bytes))
