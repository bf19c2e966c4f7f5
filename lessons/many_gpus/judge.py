"""Cards that average what they hold, by a program of a learner's: what each returns, and what it sends.

Every card's program is recorded by itself and all are replayed together, on other numbers. Nothing here knows a right
answer: the mean of what the cards hold is what the results are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lessons.shared.replay.cards import record_cards, replay_cards
from lessons.shared.replay.form import Constant, Record, Refused

Program = Callable[..., Any]
NUMBER_BYTES = 8  # float64, in which the cards hold their numbers: of each that is sent, whatever it was cast to
PRECISE = 5e-15  # of a float64 mean: what numbers have not that are packed, such as four into three


@dataclass(frozen=True)
class Ring:
    """What the cards returned and sent in one run.

    Attributes:
        held: what each card held at first.
        returned: what each card returned, None for what is no tensor.
        kinds: the type of that.
        sent: bytes each card sent.
        peers: to how many others it sent.
        silence: which card waited in vain, or "".
    """

    held: list[Tensor]
    returned: list[Tensor | None]
    kinds: list[str]
    sent: list[int]
    peers: list[int]
    silence: str

    @property
    def kind(self) -> str:
        """The type of the first thing returned that is no vector of the right length, or ""."""
        for value, kind in zip(self.returned, self.kinds, strict=True):
            if value is None or value.shape != self.held[0].shape:
                return "" if value is not None and value.numel() == 0 else kind
        return ""

    @property
    def most(self) -> int:
        """Bytes a card may send: 2 (p - 1) chunks, the longest counted."""
        cards, numbers = len(self.held), self.held[0].numel()
        return 2 * (cards - 1) * math.ceil(numbers / cards) * NUMBER_BYTES

    @property
    def averaged(self) -> bool:
        """Whether every card returned the mean."""
        return self.all_are(torch.stack(self.held).mean(dim=0))

    @property
    def rounded(self) -> bool:
        """Whether every card returned the mean, as float32 can hold it."""
        return self.all_are(torch.stack(self.held).mean(dim=0), tolerance=1e-5)

    def all_are(self, wanted: Tensor, tolerance: float = PRECISE) -> bool:
        """Whether every card returned this vector."""
        return not self.silence and all(
            one is not None
            and one.shape == wanted.shape
            and torch.allclose(one.double(), wanted, rtol=tolerance, atol=tolerance)
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
    """

    even: list[Ring]
    uneven: list[Ring]

    @property
    def rings(self) -> list[Ring]:
        """All of them."""
        return [*self.even, *self.uneven]

    @property
    def kind(self) -> str:
        """The type of the first thing returned that is no vector of the right length, or ""."""
        return next((ring.kind for ring in self.rings if ring.kind), "")

    @property
    def holds(self) -> dict[str, bool]:
        """The properties asked for, by name."""
        return {
            "every card ends with the mean": all(ring.averaged for ring in self.even),
            "also where the cards do not divide the numbers": all(ring.averaged for ring in self.uneven),
            "no card sends more than it must": all(ring.lean for ring in self.rings),
        }


def _sizes(cards: int, chunk: int) -> list[tuple[int, int]]:
    """Cards and numbers of the rings: three whose cards divide the numbers, three whose do not."""
    even = [(cards, cards * chunk), (2, 2 * chunk), (1, chunk)]
    return [*even, (cards, cards * chunk + 2), (3, 3 * chunk + 1), (cards, cards + 2)]


def _held(cards: int, numbers: int, seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(numbers, generator=draw, dtype=torch.float64) for _ in range(cards)]


def record(program: Program, cards: int = 4, chunk: int = 8, seed: int = 0) -> list[Record]:
    """What `program(rank, cards, values, send, receive)` does on each card of each ring, ring by ring.

    Raises whatever the learner's code raises, and Refused.
    """

    def on(ring: int) -> Program:
        return lambda rank, values, send, receive: program(rank, ring, values, send, receive)

    return [one for size in _sizes(cards, chunk) for one in record_cards(on(size[0]), _held(*size, seed))]


def judge(records: Sequence[Record], cards: int = 4, chunk: int = 8, seed: int = 1) -> RingLook:
    """What these records come to together, on numbers from this seed. Raises Refused."""
    sizes = _sizes(cards, chunk)
    if len(records) != sum(ring for ring, _ in sizes):
        raise Refused("a card is missing")
    left = list(records)
    rings = []
    for ring, numbers in sizes:
        rings.append(_together(left[:ring], _held(ring, numbers, seed)))
        left = left[ring:]
    return RingLook(rings[:3], rings[3:])


def shared(records: Sequence[Record], cards: int = 4, chunk: int = 8, seed: int = 0) -> bool:
    """Whether a card brings along, past the messages, all that another of its ring held on numbers from this seed."""
    held = [_held(*size, seed) for size in _sizes(cards, chunk)]
    others = [[*one[:rank], *one[rank + 1 :]] for one in held for rank in range(len(one))]
    for record, theirs in zip(records, others, strict=True):
        brought = {number for entry in record.entries if isinstance(entry, Constant) for number in entry.values}
        if any(brought.issuperset(one.tolist()) for one in theirs):
            return True
    return False


def _together(records: Sequence[Record], held: list[Tensor]) -> Ring:
    talk = replay_cards(records, [{"values": one} for one in held])
    sent, peers = [0] * len(held), [set[int]() for _ in held]
    for card, to, numbers in talk.sent:
        sent[card] += NUMBER_BYTES * numbers
        peers[card].add(to)
    names = [next((name for name in found.alive if name.startswith("returned ")), "") for found in talk.cards]
    kinds = [name.removeprefix("returned ") for name in names]
    returned = [found.handed.get(name) for found, name in zip(talk.cards, names, strict=True)]
    silence = next((f"card {card} waits for card {other}" for card, other in talk.silence), "")
    return Ring(held, returned, kinds, sent, [len(to) for to in peers], silence)
