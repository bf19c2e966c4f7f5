"""One step on several cards: data parallelism, layers split by units, and both at once ("one weird trick").

Every card brings `batch` samples, so a step is one update by cards x batch of them.

- DATA: each card runs the whole network on its own samples. Weight gradients are averaged by ring all-reduces, bucket
  by bucket as the backward pass makes them, beside the computation.
- UNITS: each card has 1/p of the units (or channels) of every layer, and runs all samples through them. A layer reads
  all units of the one before, so its input is gathered from all cards before it, and the gradient of that input is
  summed up and scattered after its backward; the card waits for both.
- MIXED: convolutions by data, dense layers by units (Krizhevsky, "One weird trick for parallelizing convolutional
  neural networks", 2014; its variants that send while they compute are not modelled).

STAGES is in `pipeline`. Computation is `course_utils.machine.speed`, with the bytes each card really reads. One ring of
equal links is assumed, whose two directions do not disturb each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Float64, Link, roofline_seconds
from course_utils.machine.speed import StepTime, predict_step
from course_utils.memory import PHASES, ROLE, Int64, Ledger, Tape
from course_utils.units import MIB, CourseError, require_one_of
from lessons.shared.parallel.card_step import DATA, MIXED, SCHEMES, STAGES, UNITS, CardStep, Span
from lessons.shared.parallel.pipeline import in_stages
from lessons.shared.parallel.ring import STEP_SECONDS, all_reduce_seconds, check_cards, ring_bytes

# DistributedDataParallel's: gradients are collected in the order they are made; a bucket goes when it holds this much.
# The first one is small, so that the link begins early. Unless gradients are views of them, buckets are memory besides,
# there from the first step to the last.
FIRST_BUCKET_BYTES, BUCKET_BYTES = MIB, 25 * MIB
FORWARD, BACKWARD, UPDATE = range(len(PHASES))
DENSE = frozenset({"addmm", "mm", "linear"})
LOSS = "loss"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bucket:
    """Gradients that are averaged together: their bytes, and the event after which the last of them is there."""

    size: int
    ready: int


def buckets(ledger: Ledger, layers: frozenset[int] | None = None, bucket_bytes: int = BUCKET_BYTES) -> list[Bucket]:
    """The buckets of a step's weight gradients, in the order in which they are ready.

    Args:
        ledger: the step.
        layers: indices of the layers whose gradients count, all if None.
        bucket_bytes: what each bucket after the first holds before it goes.

    Raises:
        CourseError: the step makes no weight gradients.
    """
    tape, found = ledger.tape, []
    last = _last_write(tape)
    gradients = (tape.role == ROLE["weight gradients"]) & (tape.death >= tape.events - 1)
    if not gradients.any():
        raise CourseError(f"{ledger.name}: this step makes no weight gradients, so there is nothing to average")
    own = [s for s in np.flatnonzero(gradients) if layers is None or int(tape.layer[s]) in layers]
    size, limit = 0, FIRST_BUCKET_BYTES
    for storage in sorted(own, key=lambda s: (last[s], s)):
        size, ready = size + int(ledger.size[storage]), int(last[storage])
        if size >= limit:
            found.append(Bucket(size, ready))
            size, limit = 0, bucket_bytes
    if size:
        found.append(Bucket(size, ready))
    return found


def _last_write(tape: Tape) -> Int64:
    """(S,) the last event that writes each storage; its birth where the trace does not say."""
    last = tape.birth.copy()
    if len(tape.uses):
        event, storage, wrote = tape.uses.T
        np.maximum.at(last, storage[wrote == 1], event[wrote == 1])
    return last


@dataclass(frozen=True)
class Split:
    """Which layers are split by units, and what that asks of the others.

    Attributes:
        layers: indices of the split layers.
        gathered: (S,) True for maps that a split layer reads: every card needs all of them, of all samples.
        summed: (S,) True for the gradients of those maps, of which every card makes a part.
        before: event -> storages gathered before it runs.
        after: event -> storages summed up and scattered after it has run.
        loss: the events before and after which rows of the network's result change hands, and the result; () if none.
    """

    layers: frozenset[int]
    gathered: Bools
    summed: Bools
    before: dict[int, list[int]]
    after: dict[int, list[int]]
    loss: tuple[int, int, int] | tuple[()]


def _split(ledger: Ledger, scheme: str) -> Split:
    tape = ledger.tape
    storages = len(tape.fixed)
    gathered, summed = np.zeros(storages, dtype=np.bool_), np.zeros(storages, dtype=np.bool_)
    products = _products(tape)
    if scheme == DATA or not products:
        return Split(frozenset(), gathered, summed, {}, {}, ())
    dense = {layer for layer, op in products.items() if op in DENSE}
    layers = dense if scheme == MIXED else {int(layer) for layer in tape.layer[tape.role == ROLE["parameters"]]}
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for event, storage, wrote in tape.uses.tolist():
        layer, op = int(tape.event_layer[event]), tape.event_ops[event]
        if layer not in layers or layer not in products or not _is_product(op):
            continue
        phase, role = int(tape.event_phase[event]), int(tape.role[storage])
        if phase == FORWARD and not wrote and role in (ROLE["feature maps"], ROLE["input"]):
            if not gathered[storage] and role != ROLE["input"]:  # images come from the data loader, not over the link
                before.setdefault(event, []).append(storage)
            gathered[storage] = True
        if phase == BACKWARD and wrote and role == ROLE["gradient maps"]:
            summed[storage] = True
            after.setdefault(event, []).append(storage)
    last = max((e for e in range(tape.events) if _forward_product(tape, e)), default=0)
    loss = _loss(tape) if int(tape.event_layer[last]) in layers else ()
    return Split(frozenset(layers), gathered, summed, before, after, loss)


def _is_product(op: str) -> bool:
    return op in DENSE or op.startswith(("convolution", "cudnn_convolution"))


def _forward_product(tape: Tape, event: int) -> bool:
    return int(tape.event_phase[event]) == FORWARD and _is_product(tape.event_ops[event])


def _products(tape: Tape) -> dict[int, str]:
    """Layer with parameters -> the product or convolution it runs in the forward pass."""
    own = set(tape.layer[tape.role == ROLE["parameters"]].tolist())
    found = {int(tape.event_layer[e]): tape.event_ops[e] for e in range(tape.events) if _forward_product(tape, e)}
    return {layer: op for layer, op in found.items() if layer in own}


def _loss(tape: Tape) -> tuple[int, int, int] | tuple[()]:
    """The loss's first event, its last in the backward pass, and the map it reads; () if there is no such layer."""
    events = [e for e in range(tape.events) if tape.layer_names[int(tape.event_layer[e])] == LOSS]
    reads = [s for e, s, wrote in tape.uses.tolist() if events and e == events[0] and not wrote and tape.is_map[s]]
    return (events[0], events[-1], reads[0]) if reads else ()


def on_cards(
    ledger: Ledger,
    device: Device | str,
    link: Link | str,
    cards: int,
    scheme: str = DATA,
    overlap: bool = True,
    alone: StepTime | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> CardStep:
    """One step of several cards, each of which brings `ledger.batch` samples.

    Args:
        ledger: the step of one card alone, `training_step(...).at(batch)`.
        device: every card, a Device or its name.
        link: from card to card, a Link or its name.
        cards: how many, 1 or more; with 1 the step is the card's own.
        scheme: one of SCHEMES.
        overlap: whether gradients are averaged beside the backward pass; if not, all of them after it.
        alone: the predicted time of the step on the device, for whoever has it already.
        bucket_bytes: what each bucket of gradients after the first holds before it goes.

    Raises:
        CourseError: an unknown device, link or scheme, no cards, or a step without weight gradients.
    """
    check_cards(cards)
    require_one_of("scheme", scheme, SCHEMES)
    device = hardware.device(device) if isinstance(device, str) else device
    link = hardware.link(link) if isinstance(link, str) else link
    alone = predict_step(ledger, device) if alone is None else alone
    if scheme == STAGES:
        return in_stages(alone, device, link, cards)
    split = _split(ledger, scheme)
    seconds = split_seconds(alone, split, cards)
    whole = frozenset(range(len(ledger.tape.layer_names))) - split.layers
    has_whole = any(int(layer) in whole for layer in ledger.tape.layer[ledger.tape.role == ROLE["weight gradients"]])
    waiting = buckets(ledger, whole, bucket_bytes) if has_whole else []
    buckets(ledger)  # refuses a step without gradients, whichever scheme
    waiting = waiting if cards > 1 else []
    computing, linking, total = _simulate(ledger, seconds, split, waiting, link, cards, overlap)
    return CardStep(
        name=ledger.name,
        scheme=scheme,
        device=device,
        link=link,
        cards=cards,
        batch=ledger.batch,
        alone_seconds=alone.total_seconds,
        computing=computing,
        linking=linking,
        seconds=total,
        peak_bytes=int(split_bytes(ledger, split, cards).max()) + sum(bucket.size for bucket in waiting),
    )


def split_seconds(alone: StepTime, split: Split, cards: int) -> Float64:
    """(E,) seconds of each event on one of the cards.

    A split layer's arithmetic is that of one card alone: all samples, 1/p of the units. Its traffic is not: 1/p of the
    weights is read, and the gathered maps are read whole.
    """
    if cards == 1 or not split.layers:
        return alone.seconds
    tape, size = alone.ledger.tape, alone.ledger.size
    traffic = alone.traffic.astype(np.float64)
    own = np.isin(tape.event_layer, list(split.layers))
    shared = np.isin(tape.role, (ROLE["parameters"], ROLE["weight gradients"])) & np.isin(
        tape.layer, list(split.layers)
    )
    all_samples = split.gathered | split.summed
    event, storage, _ = tape.uses.T
    change = np.where(shared[storage], size[storage] * (1 / cards - 1), 0.0)
    change += np.where(all_samples[storage] & own[event], size[storage] * (cards - 1.0), 0.0)
    np.add.at(traffic, event, np.where(own[event], change, 0.0))
    traffic = np.maximum(traffic, alone.traffic / cards)  # a view reads less than the storage it is part of
    update = tape.event_phase == UPDATE
    traffic[update] *= 1 - (1 - 1 / cards) * _split_share(tape, split)
    return alone.launch + roofline_seconds(alone.flops, traffic, alone.device, alone.precision)


def _split_share(tape: Tape, split: Split) -> float:
    """Which share of the parameters' bytes is split."""
    parameters = np.where(tape.role == ROLE["parameters"], tape.fixed, 0)
    return float(parameters[np.isin(tape.layer, list(split.layers))].sum() / max(1, parameters.sum()))


def split_bytes(ledger: Ledger, split: Split, cards: int) -> Float64:
    """(E,) bytes alive on one card after each event: 1/p of split parameters and what belongs to them.

    A gathered map is counted as kept for the backward pass, and the gradient of one as whole until it is freed.
    """
    tape = ledger.tape
    belongs = np.isin(tape.role, [ROLE[role] for role in ("parameters", "optimizer state", "weight gradients")])
    factor = np.where(belongs & np.isin(tape.layer, list(split.layers)), 1 / cards, 1.0)
    factor = np.where(split.gathered | split.summed, float(cards), factor)
    change = np.zeros(tape.events + 1)
    np.add.at(change, tape.birth, factor * ledger.size)
    np.subtract.at(change, tape.death, factor * ledger.size)
    return np.cumsum(change)[:-1] + (ledger.total - ledger.tape.totals[0] - ledger.tape.totals[1] * ledger.batch)


def _simulate(
    ledger: Ledger, seconds: Float64, split: Split, waiting: list[Bucket], link: Link, cards: int, overlap: bool
) -> tuple[tuple[Span, ...], tuple[Span, ...], float]:
    """Event by event: computation, what it waits for, and the link beside it."""
    tape, now, free = ledger.tape, 0.0, 0.0
    computing: list[Span] = []
    linking: list[Span] = []
    pending = list(waiting)
    sends = cards > 1

    def exchange(sent: float, steps: int) -> None:
        """Maps change hands, and the card waits."""
        nonlocal now, free
        begin = max(now, free)
        now = free = begin + sent / link.bytes_per_s + steps * STEP_SECONDS
        linking.append(Span(begin, now, "exchange", sent))

    def average(bucket: Bucket) -> None:
        nonlocal free
        begin = max(now, free)
        free = begin + all_reduce_seconds(bucket.size, cards, link)
        linking.append(Span(begin, free, "all-reduce", ring_bytes(bucket.size, cards)))

    def rows() -> None:
        exchange((cards - 1) / cards * float(ledger.size[split.loss[2]]), cards - 1)  # type: ignore[misc]

    for event in range(tape.events):
        phase = int(tape.event_phase[event])
        if phase == UPDATE:
            while pending:
                average(pending.pop(0))
            now = max(now, free)
        if sends and split.loss and event == split.loss[0]:
            rows()
        for storage in split.before.get(event, []) if sends else []:
            exchange((cards - 1) * float(ledger.size[storage]), cards - 1)
        if seconds[event] > 0:
            begin, now = now, now + float(seconds[event])
            if computing and computing[-1].what == PHASES[phase] and computing[-1].end == begin:
                computing[-1] = Span(computing[-1].begin, now, PHASES[phase])
            else:
                computing.append(Span(begin, now, PHASES[phase]))
        for storage in split.after.get(event, []) if sends else []:
            exchange((cards - 1) * float(ledger.size[storage]), cards - 1)
        if sends and split.loss and event == split.loss[1]:
            rows()
        while overlap and pending and pending[0].ready <= event:
            average(pending.pop(0))
    while pending:
        average(pending.pop(0))
    return tuple(computing), tuple(linking), max(now, free)


def bytes_by_layer(ledger: Ledger, cards: int) -> dict[str, tuple[float, float]]:
    """Layer -> (bytes a card sends for it by data, by units) of every layer that is a product with weights.

    By data: its gradients in a ring. By units: its input gathered, and the gradient of that input scattered.

    Raises:
        CourseError: cards is not a whole number of 1 or more.
    """
    check_cards(cards)
    tape, split = ledger.tape, _split(ledger, UNITS)
    parameters = np.where(tape.role == ROLE["parameters"], ledger.size, 0)
    found: dict[str, tuple[float, float]] = {}
    for layer in _products(tape):
        maps = [
            float(ledger.size[storage])
            for at in (split.before, split.after)
            for event, storages in at.items()
            if int(tape.event_layer[event]) == layer
            for storage in storages
        ]
        data = ring_bytes(float(parameters[tape.layer == layer].sum()), cards)
        found[tape.layer_names[layer]] = (data, (cards - 1) * sum(maps))
    return found
