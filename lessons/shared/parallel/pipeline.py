"""The split into stages: consecutive layers on each card, micro-batches handed on from card to card.

The schedule is GPipe's (Huang et al., 2019): all micro-batches forward, then all backward, each card as soon as its
neighbour has handed on. There are as many micro-batches as cards, of `batch` samples each.
"""

from __future__ import annotations

import numpy as np

from course_utils.machine.hardware import Device, Float64, Link
from course_utils.machine.speed import StepTime
from course_utils.memory import PHASES, ROLE, Int64
from course_utils.units import CourseError
from lessons.shared.parallel.card_step import STAGES, CardStep, Span
from lessons.shared.parallel.ring import STEP_SECONDS

FORWARD, BACKWARD, UPDATE = range(len(PHASES))


def stages_of(alone: StepTime, cards: int) -> Int64:
    """(L,) the stage of every layer: consecutive in the order they run, the longest stage as short as can be.

    Raises:
        CourseError: fewer layers run than there are cards.
    """
    tape = alone.ledger.tape
    order = list(
        dict.fromkeys(int(layer) for layer in tape.event_layer[(tape.event_phase == FORWARD) & (alone.seconds > 0)])
    )
    if len(order) < cards:
        raise CourseError(f"{alone.name} has {len(order)} layers that run, too few for {cards} stages")
    passes = tape.event_phase != UPDATE
    each = [float(alone.seconds[passes & (tape.event_layer == layer)].sum()) for layer in order]
    stage = np.zeros(len(tape.layer_names), dtype=np.int64)
    for number, (first, last) in enumerate(_shortest_longest(each, cards)):
        stage[order[first:last]] = number
    return stage


def _shortest_longest(each: list[float], parts: int) -> list[tuple[int, int]]:
    """Cut a list into consecutive parts, none empty, so that the largest sum is smallest: [first, end) of each."""
    sums = np.concatenate([[0.0], np.cumsum(each)])
    count = len(each)
    best = np.full((parts + 1, count + 1), np.inf)  # the smallest largest sum of the first `end` in so many parts
    best[1] = sums
    cut = np.zeros((parts + 1, count + 1), dtype=np.int64)
    for part in range(2, parts + 1):
        for end in range(part, count + 1):
            options = np.maximum(best[part - 1, part - 1 : end], sums[end] - sums[part - 1 : end])
            first = int(np.argmin(options))
            best[part, end], cut[part, end] = options[first], first + part - 1
    found, end = [], count
    for part in range(parts, 0, -1):
        first = int(cut[part, end]) if part > 1 else 0
        found.append((first, end))
        end = first
    return found[::-1]


def in_stages(alone: StepTime, device: Device, link: Link, cards: int) -> CardStep:
    """One step of `cards` stages on as many micro-batches of `alone.ledger.batch` samples.

    Lanes are those of the stage that computes longest, memory that of the fullest.

    Raises:
        CourseError: fewer layers run than there are cards.
    """
    stage = stages_of(alone, cards)
    tape, mine = alone.ledger.tape, stage[alone.ledger.tape.event_layer]
    update = _update_seconds(alone, stage, cards)
    times = np.array(
        [
            [alone.seconds[(tape.event_phase == p) & (mine == s)].sum() for s in range(cards)]
            for p in (FORWARD, BACKWARD)
        ]
    )
    handed = _handed_on(alone, stage, cards)
    hand_on = handed / link.bytes_per_s + STEP_SECONDS * (handed > 0)
    begins = np.zeros((2, cards, cards))  # pass, stage, micro-batch
    hands = np.zeros((2, cards, cards, 2))  # the same: when its maps begin to go to the neighbour, and have gone
    done, free = np.zeros(cards), np.zeros(cards)  # when each card, and its link, is through
    for p, order in ((FORWARD, range(cards)), (BACKWARD, range(cards)[::-1])):
        for micro in range(cards):
            arrived = 0.0
            for s in order:
                begins[p, s, micro] = max(done[s], arrived)
                done[s] = begins[p, s, micro] + times[p, s]
                way = s if p == FORWARD else s - 1
                if 0 <= way < cards - 1:
                    leaves = max(done[s], free[s])
                    arrived = free[s] = leaves + hand_on[way]
                    hands[p, s, micro] = leaves, arrived
    busiest = int(np.argmax(times.sum(axis=0)))
    computing = [
        Span(float(begins[p, busiest, m]), float(begins[p, busiest, m] + times[p, busiest]), PHASES[p])
        for p in (FORWARD, BACKWARD)
        for m in range(cards)
        if times[p, busiest] > 0
    ]
    if update[busiest]:
        computing.append(Span(float(done[busiest]), float(done[busiest] + update[busiest]), PHASES[UPDATE]))
    linking = [
        Span(float(hands[p, busiest, m, 0]), float(hands[p, busiest, m, 1]), "hand on", float(handed[way]))
        for p, way in ((FORWARD, busiest), (BACKWARD, busiest - 1))
        if 0 <= way < cards - 1 and handed[way]
        for m in range(cards)
    ]
    return CardStep(
        name=alone.name,
        scheme=STAGES,
        device=device,
        link=link,
        cards=cards,
        batch=alone.ledger.batch,
        alone_seconds=alone.total_seconds,
        computing=tuple(computing),
        linking=tuple(linking),
        seconds=float((done + update).max()),
        peak_bytes=int(max(_stage_bytes(alone, stage, s, cards) for s in range(cards))),
    )


def _update_seconds(alone: StepTime, stage: Int64, cards: int) -> Float64:
    """(p,) seconds of each stage's update: by its share of the parameters."""
    tape = alone.ledger.tape
    parameters = np.where(tape.role == ROLE["parameters"], tape.fixed, 0)
    share = np.bincount(stage[tape.layer], weights=parameters, minlength=cards) / max(1, parameters.sum())
    seconds: Float64 = share * float(alone.seconds[tape.event_phase == UPDATE].sum())
    return seconds


def _handed_on(alone: StepTime, stage: Int64, cards: int) -> Float64:
    """(p - 1,) bytes of maps that cross each border for one micro-batch; as many come back as gradients."""
    tape, size = alone.ledger.tape, alone.ledger.size
    crossing: Float64 = np.zeros(max(0, cards - 1))
    made = stage[tape.layer]
    furthest = made.copy()
    for event, storage, wrote in tape.uses.tolist():
        if not wrote and int(tape.event_phase[event]) == FORWARD and tape.role[storage] == ROLE["feature maps"]:
            furthest[storage] = max(furthest[storage], stage[int(tape.event_layer[event])])
    for storage in np.flatnonzero((tape.role == ROLE["feature maps"]) & (furthest > made)):
        crossing[made[storage] : furthest[storage]] += size[storage]
    return crossing


def _stage_bytes(alone: StepTime, stage: Int64, number: int, cards: int) -> int:
    """Peak of one stage: its own tensors in one micro-batch, and the maps that the others keep meanwhile."""
    ledger, tape = alone.ledger, alone.ledger.tape
    own = stage[tape.layer] == number
    change = np.zeros(tape.events + 1)
    np.add.at(change, tape.birth[own], ledger.size[own])
    np.subtract.at(change, tape.death[own], ledger.size[own])
    backward = np.flatnonzero(tape.event_phase == BACKWARD)
    if not len(backward):
        return int(np.cumsum(change)[:-1].max())
    kept = own & (tape.role == ROLE["feature maps"]) & (tape.birth < backward[0]) & (tape.death > backward[0])
    return int(np.cumsum(change)[:-1].max() + (cards - 1) * ledger.size[kept].sum())
