"""Cards that talk to one another inside one process, and a program of a learner's that averages what they hold.

`run` starts the program once for every card, in threads that share nothing but `send` and `receive`, and counts every
byte. Nothing here knows a right answer: the mean of what the cards hold is what the results are compared with.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from classroom.questions.waiting import run_apart
from lessons.shared.tensors import own_kind

Program = Callable[..., Any]
NUMBER_BYTES = 8  # float64, in which the cards hold their numbers


class Silence(Exception):
    """Every card that is still at work waits for a message that nobody will send."""


class Wire:
    """Messages on their way, and how many bytes each card has sent to whom."""

    def __init__(self, cards: int) -> None:
        self.cards, self.working = cards, cards
        self.waiting: set[tuple[int, int]] = set()  # (from, to) that somebody waits for
        self.messages: dict[tuple[int, int], deque[Tensor]] = {}
        self.heard: dict[tuple[int, int], deque[Tensor]] = {}  # those that arrived, as they were
        self.sent = [0] * cards
        self.peers: list[set[int]] = [set() for _ in range(cards)]
        self.changed = threading.Condition()

    def send(self, rank: int, to: int, part: Any) -> None:
        """Put a copy on its way. Never waits."""
        if not 0 <= to < self.cards or to == rank:
            raise ValueError(f"card {rank} cannot send to card {to}: there are cards 0 to {self.cards - 1}")
        copied = own_kind(torch.as_tensor(part)).detach().clone()
        with self.changed:
            self.sent[rank] += copied.numel() * NUMBER_BYTES  # whatever they were cast to for the way
            self.peers[rank].add(to)
            self.messages.setdefault((rank, to), deque()).append(copied)
            self.changed.notify_all()

    def receive(self, rank: int, source: int) -> Tensor:
        """The next message from a card; waits for it.

        Raises:
            Silence: nobody will send it.
        """
        if not 0 <= source < self.cards or source == rank:
            raise ValueError(f"card {rank} cannot receive from card {source}: there are cards 0 to {self.cards - 1}")
        way = (source, rank)
        with self.changed:
            self.waiting.add(way)
            self.changed.notify_all()
            while not self.messages.get(way):
                if len(self.waiting) >= self.working and not any(self.messages.get(one) for one in self.waiting):
                    self.waiting.discard(way)
                    self.working -= 1  # this one goes home, and so will all others
                    self.changed.notify_all()
                    raise Silence(f"card {rank} waits for card {source}")
                self.changed.wait()
            self.waiting.discard(way)
            message = self.messages[way].popleft()
            self.heard.setdefault(way, deque()).append(message.clone())
            return message

    def ended(self) -> None:
        """A card is through."""
        with self.changed:
            self.working -= 1
            self.changed.notify_all()


@dataclass(frozen=True)
class Ring:
    """What the cards returned and sent in one run.

    Attributes:
        held: what each card held at first.
        returned: what each card returned.
        sent: bytes each card sent.
        peers: to how many others it sent.
        silence: which card waited in vain, or "".
        listens: whether each card returns other numbers, all of them, once it hears other messages.
    """

    held: list[Tensor]
    returned: list[Any]
    sent: list[int]
    peers: list[int]
    silence: str
    listens: bool

    @property
    def kind(self) -> str:
        """The type of the first thing returned that is no vector of the right length, or ""."""
        for value in self.returned:
            if not isinstance(value, Tensor) or value.shape != self.held[0].shape:
                return "" if isinstance(value, Tensor) and value.numel() == 0 else type(value).__name__
        return ""

    @property
    def most(self) -> int:
        """Bytes a card may send: 2 (p - 1) chunks, the longest counted."""
        cards, numbers = len(self.held), self.held[0].numel()
        return 2 * (cards - 1) * math.ceil(numbers / cards) * self.held[0].element_size()

    @property
    def averaged(self) -> bool:
        """Whether every card returned the mean."""
        return self.all_are(torch.stack(self.held).mean(dim=0))

    @property
    def rounded(self) -> bool:
        """Whether every card returned the mean, as float32 can hold it."""
        return self.all_are(torch.stack(self.held).mean(dim=0), tolerance=1e-5)

    def all_are(self, wanted: Tensor, tolerance: float = 1e-9) -> bool:
        """Whether every card returned this vector."""
        return not self.silence and all(
            isinstance(one, Tensor)
            and one.shape == wanted.shape
            and torch.allclose(one.double(), wanted, rtol=tolerance, atol=1e-9)
            for one in self.returned
        )

    @property
    def lean(self) -> bool:
        """Whether no card sent more than it may."""
        return max(self.sent) <= self.most


@dataclass(frozen=True)
class RingLook:
    """A program run on rings of several sizes.

    Attributes:
        even: rings whose cards divide the numbers.
        uneven: rings whose cards do not.
        returned: what the last card of the last ring returned.
    """

    even: list[Ring]
    uneven: list[Ring]
    returned: object = field(default=None)

    @property
    def rings(self) -> list[Ring]:
        """All of them."""
        return [*self.even, *self.uneven]

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "every card ends with the mean": all(ring.averaged for ring in self.even),
            "also where the cards do not divide the numbers": all(ring.averaged for ring in self.uneven),
            "no card sends more than it must": all(ring.lean for ring in self.rings),
            "what others hold comes by messages": all(ring.listens for ring in self.rings),
        }


def run(program: Program, cards: int, numbers: int, seed: int = 0) -> Ring:
    """Run `program(rank, cards, values, send, receive)` for every card.

    Raises:
        Exception: whatever the learner's code raises.
    """
    draw = torch.Generator().manual_seed(seed)
    held = [torch.randn(numbers, generator=draw, dtype=torch.float64) for _ in range(cards)]
    wire = Wire(cards)
    returned: list[Any] = [None] * cards
    errors: list[BaseException | None] = [None] * cards

    def one(rank: int) -> None:
        try:
            returned[rank] = program(
                rank,
                cards,
                held[rank].clone(),
                lambda to, part: wire.send(rank, to, part),
                lambda source: wire.receive(rank, source),
            )
        except Silence as error:
            errors[rank] = error
            return
        except BaseException as error:  # noqa: BLE001 - a learner's function may raise anything
            errors[rank] = error
        wire.ended()

    run_apart(*(partial(one, rank) for rank in range(cards)))
    for error in errors:
        if error is not None and not isinstance(error, Silence):
            raise error
    silence = next((str(error) for error in errors if error is not None), "")
    listens = cards == 1 or all(_listens(program, rank, held[rank], returned[rank], wire) for rank in range(cards))
    return Ring(held, returned, wire.sent, [len(to) for to in wire.peers], silence, listens)


def _listens(program: Program, rank: int, values: Tensor, returned: Any, wire: Wire) -> bool:
    """Whether a card that runs once more, alone and with other messages than it heard, returns nothing as it was.

    Cards are threads of one process: what one leaves there for another is not on any wire.
    """
    heard = {source: deque(wire.heard.get((source, rank), ())) for source in range(wire.cards)}
    try:
        again = program(
            rank, wire.cards, values.clone(), lambda to, part: None, lambda source: heard[source].popleft() + 1
        )
    except Exception:  # noqa: BLE001 - it made something of them
        return True
    alike = isinstance(again, Tensor) and isinstance(returned, Tensor) and again.shape == returned.shape
    return not alike or bool((again != returned).all())


def look(program: Program, cards: int = 4, chunk: int = 8, seed: int = 0) -> RingLook:
    """The program on rings of `cards` and of two, of one card alone, and where the numbers do not divide.

    Raises:
        Exception: whatever the learner's code raises.
    """
    even = [run(program, *size, seed) for size in ((cards, cards * chunk), (2, 2 * chunk), (1, chunk))]
    uneven = [
        run(program, *size, seed) for size in ((cards, cards * chunk + 2), (3, 3 * chunk + 1), (cards, cards + 2))
    ]
    return RingLook(even, uneven, next((one for ring in (*even, *uneven) for one in ring.returned if one is ...), None))
