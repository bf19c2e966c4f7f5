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
NUMBER_BYTES = 8  # float64, in which the cards hold their numbers
LARGER = 5  # cards of the largest ring beside those of the others
WIDE = 4.0  # powers of ten between the smallest numbers held and the largest
LINEAR = 1e-9  # of a number sent: how far it may be from one that adds up as what the cards hold does


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
        plain: whether every number sent is a sum of shares of numbers held: nothing packed, rounded or of another type.
    """

    held: list[Tensor]
    returned: list[Tensor | None]
    kinds: list[str]
    sent: list[int]
    peers: list[int]
    silence: str
    plain: bool

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
        """Whether every card returned the mean, but for what float64 loses as it adds, in whatever order."""
        held = torch.stack(self.held)
        return self.all_are(held.mean(dim=0), 2 * len(held) * torch.finfo(held.dtype).eps * held.abs().mean(dim=0))

    @property
    def rounded(self) -> bool:
        """Whether every card returned the mean, as float32 can hold it."""
        mean = torch.stack(self.held).mean(dim=0)
        return self.all_are(mean, 1e-5 * (1 + mean.abs()))

    def all_are(self, wanted: Tensor, within: Tensor) -> bool:
        """Whether every card returned this vector, each number within its distance."""
        return not self.silence and all(
            one is not None and one.shape == wanted.shape and bool(((one.double() - wanted).abs() <= within).all())
            for one in self.returned
        )

    @property
    def lean(self) -> bool:
        """Whether no card sent more than it may: of numbers that are sums, as nothing else is as many as it looks."""
        return self.plain and max(self.sent) <= self.most


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
    """Cards and numbers of the rings: three whose cards divide the numbers, six whose do not."""
    even = [(cards, cards * chunk), (2, 2 * chunk), (1, chunk)]
    few, many = (cards, cards * chunk + 2), (cards, cards * chunk + cards - 1)
    large = (cards + LARGER, 2 * (cards + LARGER) + 1)
    return [*even, few, (3, 3 * chunk + 1), (cards, cards + 2), many, (cards, cards - 1), large]


def _held(cards: int, numbers: int, seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    size = [10 ** (WIDE * torch.rand(numbers, generator=draw, dtype=torch.float64) - 1) for _ in range(cards)]
    return [one * torch.randn(numbers, generator=draw, dtype=torch.float64) for one in size]


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
        others = _held(ring, numbers, seed + 1)
        rings.append(_together(left[:ring], _held(ring, numbers, seed), others))
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


def _together(records: Sequence[Record], held: list[Tensor], others: list[Tensor]) -> Ring:
    sums = [one + other for one, other in zip(held, others, strict=True)]
    none = [torch.zeros_like(one) for one in held]
    talk, *more = (replay_cards(records, [{"values": one} for one in own]) for own in (held, others, sums, none))
    sent, peers = [0] * len(held), [set[int]() for _ in held]
    for card, to, part in talk.sent:
        sent[card] += NUMBER_BYTES * part.numel()
        peers[card].add(to)
    names = [next((name for name in found.alive if name.startswith("returned ")), "") for found in talk.cards]
    kinds = [name.removeprefix("returned ") for name in names]
    returned = [found.handed.get(name) for found, name in zip(talk.cards, names, strict=True)]
    silence = next((f"card {card} waits for card {other}" for card, other in talk.silence), "")
    messages = zip(*([part for _, _, part in one.sent] for one in (talk, *more)), strict=True)
    plain = all(_adds_up(*four) for four in messages)
    return Ring(held, returned, kinds, sent, [len(to) for to in peers], silence, plain)


def _adds_up(one: Tensor, other: Tensor, both: Tensor, none: Tensor) -> bool:
    """Whether a message is of sums: on two sets of numbers together it is what it is on each, beside what it always is.

    A number that nobody wrote, such as behind the end of a padded chunk, is NaN each time.
    """
    if both.dtype is not torch.float64:
        return False
    four = torch.stack([one, other, both, none])
    close = (one + other - both - none).abs() <= LINEAR * four.abs().amax(dim=0)
    return bool((close | four.isnan().all(dim=0)).all())
