"""The inputs of exercise 02, "Which hardware, or none", drawn from the class seed. No right answer is known here."""

from __future__ import annotations

import random

from classroom.questions.graded import Graded
from lessons.hardware import judge as transfer
from lessons.shared.network_questions import graded_network

OPTIMIZERS = ("sgd", "momentum", "adam")
Case = tuple[object, ...]


def _cards_and_buffers(draw: random.Random) -> list[Case]:
    """Rooms that 3 does not divide, so that rounding shows with momentum, and a card smaller than its buffer."""
    cases: list[Case] = []
    for name in OPTIMIZERS:
        for most in (30, 60_000):
            buffer = draw.randint(1, most)
            left = 2 if most == 30 else draw.choice((1, 2))  # two thirds: no decimals hide behind six digits
            cases.append((buffer + 3 * draw.randint(1, most) + left, buffer, name))
    return [*cases, (draw.randint(100, 300), draw.randint(301, 500), draw.choice(OPTIMIZERS))]


def _catalogues(draw: random.Random) -> list[Case]:
    """Made-up cards: every way to go wrong shows on each of them."""
    cases: list[Case] = []
    for bfloat16 in (False, True, False):
        needed = draw.randint(6, 40)
        prices = draw.sample(range(100, 5_000), 8)
        memory = [draw.randint(needed + 1, 3 * needed) for _ in range(8)]
        cards = [
            {"name": f"card {letter}", "memory_gib": size, "dies": 1, "launch_usd": price, "bfloat16": True}
            for letter, size, price in zip("ABCDEFGH", memory, prices, strict=True)
        ]
        cards[0]["memory_gib"] = needed  # exactly enough
        cards[1] |= {"memory_gib": 2 * needed - 1, "dies": 2}  # enough on two dies alone
        cards[2]["launch_usd"] = None
        cards[3]["bfloat16"] = False
        cards[4]["memory_gib"] = needed - 1
        # The dearest of the last three has the least memory, so that price and memory give different orders.
        for card, price, size in zip(cards[5:], sorted(prices[5:]), sorted(memory[5:], reverse=True), strict=True):
            card["launch_usd"], card["memory_gib"] = price, size
        cards[0]["launch_usd"] = max(prices) + draw.randint(1, 99)
        cards[7]["memory_gib"] = needed + 1
        cases.append((draw.sample(cards[::-1], len(cards)), needed, bfloat16))
    return cases


def _purchases(draw: random.Random) -> list[Case]:
    """Two that pay, one whose electricity costs as much as the rent, one whose costs more, one that saves cents."""
    cases: list[Case] = []
    for more, hours in (
        (draw.randint(3, 40), 60),
        (draw.randint(3, 40), 60),
        (0, 60),
        (-draw.randint(3, 4), 60),
        (3, 30),
    ):
        power, back = draw.randint(5, 30), draw.randint(1, 9) / 10
        cases.append((draw.randint(200, 2_000), back, power / 100, (power + more) / 100, draw.randint(3, hours)))
    return cases


def _frozen_networks(draw: random.Random) -> list[Case]:
    def layers(*trained: bool) -> list[tuple[int, int, bool]]:
        return [(draw.randint(10, 9_999), draw.randint(10, 9_999), learns) for learns in trained]

    networks = [
        layers(False, False, True),
        layers(False, True, False, True),
        layers(True, False, False, False),
        layers(False, False, True, False),
    ]
    return [
        (network, draw.randint(10, 9_999), draw.randint(2, 256), name)
        for network, name in zip(networks, ("adam", "momentum", "adam", "sgd"), strict=True)
    ]


largest_parameters = Graded("largest_parameters", _cards_and_buffers)
cards_that_hold = Graded("cards_that_hold", _catalogues)
break_even_weeks = Graded("break_even_weeks", _purchases)
frozen_step_bytes = Graded("frozen_step_bytes", _frozen_networks)


head_only = graded_network("head_only", transfer.record, transfer.judge, lambda draw: (draw.randint(16, 32),))
