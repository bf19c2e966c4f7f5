"""What one run of a step leaves: its storages and its events, each one record.

Numbers count from the start of the run: an event's place in `Run.events`, a storage's in `Run.storages`.
"""

from dataclasses import dataclass, field
from typing import Any

from torch.utils.flop_counter import flop_registry

from course_utils.memory import PHASES

FORWARD, BACKWARD, UPDATE = range(len(PHASES))
ALIVE = 2**31  # death of a storage that outlives the recording

OperatorCall = tuple[Any, list[Any], Any]  # an operator, its arguments and its result, tensors replaced by their shapes


@dataclass(slots=True)
class Storage:
    """Memory that tensors share, alive in the events `birth <= event < death`."""

    size: int  # bytes
    shape: tuple[int, ...]  # of the first tensor in it
    role: int  # index into memory.ROLES
    layer: str
    is_map: bool  # a floating-point result, as opposed to a mask or an index
    birth: int
    death: int = ALIVE


@dataclass(slots=True)
class Event:
    """An operator that allocated or wrote."""

    op: str
    phase: int
    layer: str
    work: OperatorCall | None = None  # where torch has a formula for its arithmetic
    traffic: int = 0  # bytes read and written
    recomputed: bool = False  # in the backward pass, repeats what the forward pass did
    scratch: int = 0  # bytes that CUDA's kernel makes besides, and gives back when it ends
    reads: tuple[int, ...] = ()  # storages, those that are written too left out
    writes: tuple[int, ...] = ()


@dataclass
class Run:
    """The storages and events of one run, in the order in which they came."""

    storages: list[Storage] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    layer_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of each layer's last output
    handed: list[int | None] = field(default_factory=list)  # to the update: gradients' storages, then parameters'

    def uses(self) -> list[tuple[int, int, int]]:
        """(event, storage, 1 if written and 0 if read), in the order of events."""
        return [
            (number, storage, written)
            for number, event in enumerate(self.events)
            for written, storages in enumerate((event.reads, event.writes))
            for storage in storages
        ]


def flops(works: list[OperatorCall | None]) -> list[int]:
    """Floating-point operations of each event by torch's own formulas (a multiply-add counts as two)."""
    return [0 if work is None else int(flop_registry[work[0]](*work[1], out_val=work[2])) for work in works]
