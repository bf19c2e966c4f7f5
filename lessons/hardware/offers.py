"""What three budgets buy for a month: a card that is lent, one by the hour, a used one.

Every figure is somebody's, with source and day, in `lessons.shared.published`; nothing here is ours but the choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from lessons.shared.published import LENT, RENTALS, USED

MONTH_DAYS = 30
RENT_USD, BUY_USD = 50, 1000  # the two budgets beside nothing
# With the larger budget the cheaper card and a faster one; either runs all month, and money is left.
RENTED = ((RENT_USD, "RTX 3090"), (RENT_USD, "RTX 4090"), (BUY_USD, "RTX 3090"), (BUY_USD, "A100"))


@dataclass(frozen=True)
class Offer:
    """A card for a month.

    Attributes:
        budget: what is spent, in words; less than the budget where the month ends before the money.
        device: the card.
        hours: it runs in a month of 30 days.
        source: who says so.
    """

    budget: str
    device: Device
    hours: float
    source: str


def rent_usd(name: str) -> float:
    """Dollars for an hour of a card, from the cheapest of `RENTALS`."""
    return min(rental.usd_per_hour for rental in RENTALS if rental.device == name)


def offers() -> list[Offer]:
    """What nothing, 50 dollars and 1,000 dollars buy for a month."""
    found = [
        Offer(
            f"nothing: {lent.service}",
            hardware.device(lent.device),
            lent.hours_a_week * MONTH_DAYS / 7,
            f"{lent.source}, {lent.seen}",
        )
        for lent in LENT
    ]
    for dollars, name in RENTED:
        cheapest = min((one for one in RENTALS if one.device == name), key=lambda one: one.usd_per_hour)
        hours = min(MONTH_DAYS * 24, dollars / cheapest.usd_per_hour)
        spent = hours * cheapest.usd_per_hour
        found.append(
            Offer(
                f"{spent:,.0f} dollars: rent at {cheapest.usd_per_hour:.2f}",
                hardware.device(name),
                hours,
                f"{cheapest.source}, {cheapest.seen}",
            )
        )
    for used in USED:
        found.append(
            Offer(
                f"{used.low_usd:,} to {used.high_usd:,} dollars: used, first month",
                hardware.device(used.device),
                MONTH_DAYS * 24,
                f"{used.source}, {used.seen}",
            )
        )
    return found
