"""Programs that talk to one another, one a card: each recorded by itself, and all of them replayed together."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from course_utils.surroundings import no_garbage_collection
from lessons.shared.replay.form import Record, Refused
from lessons.shared.replay.recorder import Recorder
from lessons.shared.replay.replayer import Message, Replayed, Replayer, drawing
from lessons.shared.replay.steps import warm_up
from lessons.shared.replay.witness import OTHERWISE, apart

Send = Callable[[int, Any], None]
Receive = Callable[[int], Tensor]
Program = Callable[[int, Tensor, Send, Receive], Any]  # of a card, what it holds, and how it talks
Ways = dict[tuple[int, int], list[Tensor]]  # messages in order, by (from, to)


class _Waits(BaseException):
    """A message has not come yet: the program is begun anew when it has."""


class _Card:
    """One run of a card's program on the messages that have come so far.

    Attributes:
        sent: what it sent, by the card it went to.
        waits: the card whose message did not come, and how many had come from it; None where all had.
    """

    def __init__(self, rank: int, cards: int, come: Ways) -> None:
        self.rank, self.cards = rank, cards
        self.recorder: Recorder | None = None
        # Copied before a recorder is active, which would take the copies for work of the program's.
        self.come = {source: deque(one.clone() for one in come.get((source, rank), ())) for source in range(cards)}
        self.sent: Ways = {}
        self.waits: tuple[int, int] | None = None
        self.heard = [0] * cards

    def send(self, to: int, part: Any) -> None:
        """Put a copy on its way."""
        self._must_be_another(to, "send to")
        if self.recorder is not None:
            self.recorder.sent(to, torch.as_tensor(part))
        else:
            self.sent.setdefault((self.rank, to), []).append(torch.as_tensor(part).detach().clone())

    def receive(self, source: int) -> Tensor:
        """The next message from a card."""
        self._must_be_another(source, "receive from")
        arrived = self.come[source].popleft() if self.come[source] and self.waits is None else None
        if self.recorder is not None:
            self.recorder.received(source, arrived)
        if arrived is None:
            self.waits = self.waits or (source, self.heard[source])
            raise _Waits
        self.heard[source] += 1
        return arrived

    def run(self, program: Program, values: Tensor) -> Any:
        """What the program returns; None where it waits. Raises whatever it raises before that."""
        try:
            found = program(self.rank, values, self.send, self.receive)
        except BaseException:
            if self.waits is None:
                raise
            found = None
        return found if self.waits is None else None

    def _must_be_another(self, card: int, what: str) -> None:
        if not 0 <= card < self.cards or card == self.rank:
            raise ValueError(f"card {self.rank} cannot {what} card {card}: there are cards 0 to {self.cards - 1}")


def record_cards(program: Program, held: Sequence[Tensor]) -> list[Record]:
    """A record for each card of what `program(rank, values, send, receive)` does with what the card holds.

    A record's input is "values", its last mark "returned" and the type of what came back. A program is run again from
    its beginning for every message that it had to wait for, so no card needs a thread. Raises what the program raises,
    and Refused, also where a run that nobody recorded returned something else than the records come to.
    """
    come: Ways = {}
    returned: dict[int, Any] = {}
    waits: dict[int, tuple[int, int]] = {}
    ready = [*range(len(held))]
    with contextlib.redirect_stdout(io.StringIO()):  # what a program prints is shown once, when it is recorded
        while ready:
            for rank in ready:
                card = _Card(rank, len(held), come)
                returned[rank] = card.run(program, held[rank].clone())
                come |= card.sent
                waits.pop(rank, None)
                if card.waits is not None:
                    waits[rank] = card.waits
            ready = [rank for rank, (source, heard) in waits.items() if len(come.get((source, rank), ())) > heard]
    warm_up()
    with no_garbage_collection():
        records = [_record(program, _Card(rank, len(held), come), own.clone()) for rank, own in enumerate(held)]
    for rank, found in enumerate(replay_cards(records, [{"values": own} for own in held]).cards):
        if isinstance(one := returned[rank], Tensor) and apart(one, found.handed.get(f"returned {type(one).__name__}")):
            raise Refused(OTHERWISE)
    return records


def _record(program: Program, card: _Card, values: Tensor) -> Record:
    card.recorder = recorder = Recorder({"values": values})
    with recorder:
        found = card.run(program, values)
        recorder.mark(f"returned {type(found).__name__}", found if isinstance(found, Tensor) else None)
    return recorder.record


@dataclass(frozen=True)
class Talk:
    """What cards come to that talk to one another.

    Attributes:
        cards: what each came to, as far as it got.
        sent: (from, to, what is in it) of each message.
        silence: (card, other) of those that wait for a message that nobody sends.
    """

    cards: list[Replayed]
    sent: list[tuple[int, int, Tensor]] = field(default_factory=list)
    silence: list[tuple[int, int]] = field(default_factory=list)


def replay_cards(records: Sequence[Record], values: Sequence[Mapping[str, Tensor]], seed: int = 0) -> Talk:
    """Run the records of some cards together, each on its values: a message is what its sender sends here.

    Raises Refused as `replay` does.
    """
    with torch.no_grad(), drawing():
        runs = [Replayer(record, own, seed) for record, own in zip(records, values, strict=True)]
        talk = Talk([run.found for run in runs])
        steps = [run.steps() for run in runs]
        on_way: dict[tuple[int, int], deque[Tensor]] = {}
        waiting: dict[int, Message | None] = dict.fromkeys(range(len(runs)))
        moved = True
        while moved:
            moved = False
            for rank, message in list(waiting.items()):
                while message is None or on_way.get((message.card, rank)):
                    moved = True
                    arrived = None if message is None else on_way[message.card, rank].popleft()
                    try:
                        message = steps[rank].send(arrived)
                        while message.tensor is not None:
                            talk.sent.append((rank, message.card, message.tensor.clone()))
                            on_way.setdefault((rank, message.card), deque()).append(message.tensor)
                            message = next(steps[rank])
                    except StopIteration:
                        waiting.pop(rank)
                        break
                    waiting[rank] = message
    talk.silence.extend((rank, message.card) for rank, message in sorted(waiting.items()) if message is not None)
    return talk
