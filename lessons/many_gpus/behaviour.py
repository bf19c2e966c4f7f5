"""The check of exercise 11, "Many GPUs", question 6: an answer judged by what it does, and the slips people make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from classroom.questions.core import Slip
from lessons.many_gpus import judge as rings
from lessons.many_gpus.judge import Program, Ring, RingLook
from lessons.shared.network_questions import OTHER, OWN, ReplayCheck
from lessons.shared.replay.form import Record, from_texts, to_texts

# -- 6. an all-reduce ------------------------------------------------------------------------------------------------

Send = Callable[[int, Tensor], None]
Receive = Callable[[int], Tensor]


def _ring(
    rank: int, cards: int, values: Tensor, send: Send, receive: Receive, *, divide: str = "end", onward: bool = True,
    remainder: bool = True, adds_on: bool = False, ahead: int = 1,
) -> Tensor:  # fmt: skip
    """A ring all-reduce with what can be done wrong about it as arguments."""
    size = len(values) // cards
    cut = values.tensor_split(cards) if remainder else values[: size * cards].split(max(1, size))
    chunks = list(cut) if len(cut) == cards else list(values.tensor_split(cards))
    for step in range((2 if onward else 1) * (cards - 1)):
        adding = step < cards - 1
        out = (rank - step + (0 if adding else ahead - 1)) % cards
        send((rank + 1) % cards, chunks[out])
        arrived = receive((rank - 1) % cards)
        if not adding and not adds_on:
            chunks[(out - 1) % cards].copy_(arrived)
        else:
            chunks[(out - 1) % cards].add_(arrived).div_(2 if divide == "each" else 1)
    return values / cards if divide == "end" else values


def _to_everybody(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Each card sends its whole gradient to every other."""
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values)
    return (values + sum((receive(card) for card in others), torch.zeros_like(values))) / cards


def _whole_round(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Whole gradients go round the ring."""
    total, passing = values.clone(), values
    for _ in range(cards - 1):
        send((rank + 1) % cards, passing)
        passing = receive((rank - 1) % cards)
        total += passing
    return total / cards


def _on_card_0(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Card 0 collects, averages and sends back."""
    if rank:
        send(0, values)
        return receive(0)
    mean = (values + sum((receive(card) for card in range(1, cards)), torch.zeros_like(values))) / cards
    for card in range(1, cards):
        send(card, mean)
    return mean


def _one_neighbour(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Each card averages with the one before it."""
    if cards == 1:
        return values
    send((rank + 1) % cards, values)
    return (values + receive((rank - 1) % cards)) / 2


_SHARED: dict[int, Tensor] = {}


def _shared_memory(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Each card leaves its values where all can read them, and waits until all have."""
    _SHARED[rank] = values
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values[:1])
    for card in others:
        receive(card)
    return torch.stack([_SHARED[card] for card in range(cards)]).mean(dim=0)


class RingAverage(ReplayCheck[RingLook]):
    """The check of question 6: a program for each card, judged by what the cards end with and what they send."""

    question = name = "ring_average"
    running = "Running it on every card"
    takeaway = "No card sends twice its gradient, and none is busier than another: that is why libraries use rings."
    by_value = (
        Slip(
            "not divided",
            functools.partial(_ring, divide="never"),
            "Every card has the sum. The mean is asked for: divide by the number of cards, once.",
        ),
        Slip(
            "averaged on the way",
            functools.partial(_ring, divide="each"),
            "You halve in every step, so numbers that join late count more than those that joined early. Add up on the "
            "way, divide once at the end.",
        ),
        Slip(
            "sums not passed on",
            functools.partial(_ring, onward=False),
            "Each card has the mean of one chunk only: chunks were added up and not passed on. The finished ones go "
            "round once more, `cards` - 1 steps.",
        ),
        Slip(
            "sums added on",
            functools.partial(_ring, adds_on=True),
            "You go on adding in the second half of the round. What arrives there is a finished sum: put it in the "
            "place of your own.",
        ),
        Slip(
            "the wrong chunk passed on",
            functools.partial(_ring, ahead=0),
            "The second half begins with the wrong chunk. After the first half card *c* has finished the chunk that it "
            "was the last to add to, `(c + 1) % cards`: send that one on.",
        ),
        Slip(
            "remainder left out",
            functools.partial(_ring, remainder=False),
            "Right where the cards divide the numbers. Else the last few stay what they were: chunks need not be "
            "equal, and `values.tensor_split(cards)` always gives as many as there are cards.",
        ),
        Slip(
            "one neighbour",
            _one_neighbour,
            "Each card averages with one neighbour. The numbers of all cards have to reach every card.",
        ),
    )
    by_bytes = (
        Slip(
            "everything to everybody",
            _to_everybody,
            "The mean is right. But each card sends its whole gradient to every other: cut it into chunks, and let "
            "each card add up one of them.",
        ),
        Slip(
            "whole gradients round the ring",
            _whole_round,
            "The mean is right, and it is a ring. But whole gradients go round it. Let one chunk leave in each step, "
            "and send on what has been added up.",
        ),
        Slip(
            "gathered on one card",
            _on_card_0,
            "The mean is right. But one card sends it to all others, and they wait for its link. Share the work: each "
            "card adds up one chunk.",
        ),
    )
    unheard = Slip(
        "shared memory",
        _shared_memory,
        "The mean is right, but it did not come by messages: cards share no memory, so nothing that one card keeps is "
        "there for another. Send what the others need.",
    )
    slips: Sequence[Slip] = (*by_value, *by_bytes, unheard)

    def record(self, given: Program) -> list[Record]:
        """The program on each card of rings of several sizes."""
        return rings.record(given, seed=OWN)

    def judge(self, record: Sequence[Record], seed: int) -> RingLook:
        """The same cards with other numbers."""
        return rings.judge(record, seed=seed)

    def as_read(self, record: Sequence[Record]) -> list[Record]:
        """The records, after they have been a text."""
        return from_texts(to_texts(record))

    def remembers(self, record: Sequence[Record]) -> str:
        """What is said where the mean is right for its own numbers alone."""
        return self.unheard.message if rings.shared(record, seed=OWN) else super().remembers(record[0])

    def diagnose(self, seen: RingLook, given: Program) -> str:
        """What keeps the program from being right."""
        silent = next((ring for ring in seen.rings if ring.silence), None)
        if silent is not None:
            return (
                f"With {len(silent.held)} cards and {len(silent.held[0])} numbers, {silent.silence}, and nothing "
                "comes. Each `receive` needs a `send` on the other side."
            )
        if seen.kind:
            return f"A card returned a {seen.kind}. Return the averaged vector, as long as `values`."
        if not all(ring.averaged for ring in seen.rings):
            return self._wrong(seen)
        return self._too_much(next(ring for ring in seen.rings if not ring.lean))

    def _wrong(self, seen: RingLook) -> str:
        for slip, theirs in zip(self.by_value, _slip_looks(), strict=True):
            if all(_same(one, other) for one, other in zip(seen.rings, theirs.rings, strict=True)):
                return slip.message
        if all(ring.rounded for ring in seen.rings):
            return "The mean was rounded on its way: keep and send the numbers in the `dtype` of `values`, float64."
        bad = next(ring for ring in seen.rings if not ring.averaged)
        where = "where the cards do not divide the numbers" if any(bad is ring for ring in seen.uneven) else "here"
        mean = torch.stack(bad.held).mean(dim=0)
        off = max(float((one.double() - mean).abs().max()) for one in bad.returned if one is not None)
        return (
            f"The mean is wrong {where}: {len(bad.held)} cards, {len(mean)} numbers each, off by up to {off:.2g}. "
            "Follow one chunk from card to card."
        )

    def _too_much(self, ring: Ring) -> str:
        if not ring.plain:
            return (
                "The mean is right, but what is sent is no sum of what the cards hold: it is packed, or of another "
                "type than `values`. Fewer bytes would be too few bits. Send the numbers as they are, in chunks."
            )
        name = "whole gradients round the ring"
        if max(ring.sent) > min(ring.sent):
            name = "gathered on one card"
        elif max(ring.peers) > 1:
            name = "everything to everybody"
        sent = f"{max(ring.sent):,} bytes sent by one, at most {ring.most:,} are needed"
        return f"{self.told(name)} With {len(ring.held)} cards: {sent}."

    def praise(self, seen: RingLook) -> str:
        """What it achieved."""
        ring = seen.rings[0]
        whole = ring.held[0].numel() * ring.held[0].element_size()
        return f"On {len(ring.held)} cards each sends {max(ring.sent) / whole:.2g} times its gradient. {self.takeaway}"


def _same(one: Ring, other: Ring) -> bool:
    pairs = zip(one.returned, other.returned, strict=True)
    return all(a is not None and b is not None and torch.allclose(a.double(), b, atol=1e-9) for a, b in pairs)


@functools.cache
def _slip_looks() -> list[RingLook]:
    return [rings.judge(rings.record(slip.function, seed=OWN), seed=OTHER) for slip in RingAverage.by_value]


ring_average = RingAverage()
