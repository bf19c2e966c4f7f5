"""ZeRO and FSDP: data parallelism whose cards do not all keep the same things.

Stage 1 shards the optimizer state over the cards, stage 2 the weight gradients too, stage 3 (FSDP) the parameters too.
Bytes and traffic after Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020).
"""

from __future__ import annotations

import numpy as np

from course_utils.machine.hardware import Float64
from course_utils.memory import PHASES, ROLE, Int64, Ledger
from course_utils.units import CourseError
from lessons.shared.parallel.ring import check_cards, ring_bytes

STAGES_OF_ZERO = (0, 1, 2, 3)
UPDATE = PHASES.index("update")
SHARDED = ("optimizer state", "weight gradients", "parameters")  # the role that each stage adds to those before it


def _check(cards: int, stage: int) -> None:
    check_cards(cards)
    if stage not in STAGES_OF_ZERO:
        raise CourseError(f"stage must be 0 (nothing sharded), 1, 2 or 3, got {stage!r}")


def state_bytes(parameters: float, gradients: float, optimizer: float, cards: int, stage: int) -> float:
    """Bytes of parameters, gradients and optimizer state on each card, from those of one card that keeps them all.

    Raises:
        CourseError: cards is not a whole number of 1 or more, or there is no such stage.
    """
    _check(cards, stage)
    parts = (optimizer, gradients, parameters)
    return sum(size / cards if stage > number else size for number, size in enumerate(parts))


def sent_bytes(size: float, cards: int, stage: int) -> float:
    """Bytes each card sends in a step for gradients, and parameters, of `size` bytes.

    Up to stage 2 as data parallelism: gradients are scattered as sums, what was updated is gathered, together an
    all-reduce. In stage 3 parameters are gathered for the forward pass and once more for the backward pass, and
    gradients scattered: half as much again.

    Raises:
        CourseError: cards is not a whole number of 1 or more, or there is no such stage.
    """
    _check(cards, stage)
    return ring_bytes(size, cards) * (1.5 if stage == 3 else 1.0)


def sharded(ledger: Ledger, cards: int, stage: int) -> Int64:
    """(events, len(ROLES)) bytes alive on one card after each event of a step, as `Ledger.matrix`.

    What is sharded counts 1/p, but for the layer at work: in stage 3 its parameters are gathered whole, from stage 2 on
    its gradient is whole until it has been scattered. FSDP gathers the next layer ahead of time, which adds that one.
    Each card updates its own share, so what the update makes besides counts 1/p from stage 1 on.

    Raises:
        CourseError: cards is not a whole number of 1 or more, or there is no such stage.
    """
    _check(cards, stage)
    matrix = ledger.matrix.astype(np.float64)
    for number, role in enumerate(SHARDED):
        if stage > number:
            matrix[:, ROLE[role]] = matrix[:, ROLE[role]] / cards
            if role != "optimizer state":
                matrix[:, ROLE[role]] += (1 - 1 / cards) * _at_work(ledger, role)
    if stage:
        matrix[ledger.tape.event_phase == UPDATE, ROLE["other"]] /= cards
    return np.ceil(matrix).astype(np.int64)


def _at_work(ledger: Ledger, role: str) -> Float64:
    """(E,) bytes of a role that belong to the layer each event of the two passes runs for, and are alive then."""
    tape = ledger.tape
    found = np.zeros(tape.events)
    passes = tape.event_phase != UPDATE
    for storage in np.flatnonzero(tape.role == ROLE[role]):
        events = np.arange(tape.birth[storage], min(tape.death[storage], tape.events))
        events = events[passes[events] & (tape.event_layer[events] == tape.layer[storage])]
        found[events] += ledger.size[storage]
    return found
