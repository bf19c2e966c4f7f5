"""Programs for question 6 of exercise 11 that average wrongly, or send too much.

Each is `program(rank, cards, values, send, receive)`, as the answer is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Send = Callable[[int, Tensor], None]
Receive = Callable[[int], Tensor]


def ring(
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


def to_everybody(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Each card sends its whole gradient to every other."""
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values)
    return (values + sum((receive(card) for card in others), torch.zeros_like(values))) / cards


def whole_round(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Whole gradients go round the ring."""
    total, passing = values.clone(), values
    for _ in range(cards - 1):
        send((rank + 1) % cards, passing)
        passing = receive((rank - 1) % cards)
        total += passing
    return total / cards


def on_card_0(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Card 0 collects, averages and sends back."""
    if rank:
        send(0, values)
        return receive(0)
    mean = (values + sum((receive(card) for card in range(1, cards)), torch.zeros_like(values))) / cards
    for card in range(1, cards):
        send(card, mean)
    return mean


def one_neighbour(rank: int, cards: int, values: Tensor, send: Send, receive: Receive) -> Tensor:
    """Each card averages with the one before it."""
    if cards == 1:
        return values
    send((rank + 1) % cards, values)
    return (values + receive((rank - 1) % cards)) / 2
