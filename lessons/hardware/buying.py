"""When a used card is cheaper than a rented one.

Prices are somebody's, with source and day, in `lessons.shared.published`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf

import pandas as pd

from course_utils.units import CourseError
from lessons.hardware.offers import WEEK_HOURS
from lessons.shared.published import COMMUNITY, RENTALS, SECURE, STORAGE_USD, USED

MONTH_HOURS = 365 * 24 / 12


def electricity(cards: Iterable[str], watts: Mapping[str, float], around: float, kwh_usd: float) -> dict[str, float]:
    """Dollars for an hour of each of one's own cards.

    Args:
        cards: their names.
        watts: what each draws.
        around: watts of the computer around it.
        kwh_usd: dollars for a kilowatt hour.

    Raises:
        CourseError: `watts` leaves a card out.
    """
    for card in cards:
        if card not in watts:
            raise CourseError(f"add to `watts` how many your {card} draws")
    return {card: (watts[card] + around) / 1000 * kwh_usd for card in cards}


def used_prices(card: str) -> tuple[int, ...]:
    """What people ask for a used card: the lowest price, and about the middle of what they ask; or nothing."""
    asked = [one for one in USED if one.device == card]
    middles = [(one.low_usd + one.high_usd) / 2 for one in asked]
    return (min(one.low_usd for one in asked), round(sum(middles) / len(middles) / 10) * 10) if asked else ()


@dataclass(frozen=True)
class Rent:
    """Dollars for an hour of a card, and for the storage kept beside it, in an hour that it runs or is stopped."""

    usd: float
    running: float = 0.0
    stopped: float = 0.0


def rents_asked(card: str, stored_gb: float) -> dict[str, Rent]:
    """What an hour of a card costs in `RENTALS`, the lowest first, by seller and month; at RunPod with storage too."""
    found: dict[str, Rent] = {}
    for one in sorted((one for one in RENTALS if one.device == card), key=lambda one: one.usd_per_hour):
        named = f"{one.usd_per_hour:.2f}, {one.provider}, {one.seen[:7]}"
        found[named] = Rent(one.usd_per_hour)
        kinds = {COMMUNITY: ("running", "stopped"), SECURE: ("network", "network")}.get(one.provider)
        if kinds and stored_gb:
            running, stopped = (stored_gb * STORAGE_USD[kind] / MONTH_HOURS for kind in kinds)
            found[f"{named} + {stored_gb:g} GB"] = Rent(one.usd_per_hour, running, stopped)
    return found


def buying(prices: Iterable[int], rents: Mapping[str, Rent], power: float, hours: float, weeks: float) -> pd.DataFrame:
    """What makes buying a card cheaper than renting the same: hours a week, or the share of the price that comes back.

    Args:
        prices: dollars paid, with a computer around it if one is bought.
        rents: by who asks them.
        power: dollars of electricity in an hour.
        hours: a week that the card will run, for which the share is told.
        weeks: that it will be used.
    """
    rows = {}
    for seller, rent in rents.items():
        kept = WEEK_HOURS * rent.stopped  # dollars a week, whatever the card does
        gain = rent.usd + rent.running - rent.stopped - power  # dollars in an hour that it works
        rows[seller] = {f"{price:,} paid": _told(price, kept * weeks, gain * weeks, hours) for price in prices}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("rent, dollars an hour")


def _told(price: float, kept: float, gain: float, hours: float) -> str:
    """Such as "54 h; 63 %": hours a week that pay for a card, the share that must come back. Dollars over all weeks."""
    left = max(0.0, price - kept)
    enough = 0.0 if not left else left / gain if gain > 0 else inf
    return f"{_hours(enough)}; {100 * max(0.0, 1 - (kept + hours * gain) / price):.0f} %"


def _hours(enough: float) -> str:
    """Hours a week, rounded up; of more than a week has, that."""
    if enough == inf:
        return "never"
    return f"{ceil(enough)} h" if enough <= WEEK_HOURS else f"over {WEEK_HOURS} h"


def pays_from(cases: Mapping[str, tuple[float, float]], weeks: float, back: float) -> pd.DataFrame:
    """From how many hours a week on a card of one's own is cheaper, if it cannot be sold, and if it can.

    Args:
        cases: by name, dollars paid for it and dollars that an hour on it saves.
        weeks: that it will be used.
        back: share of the price that comes back.
    """
    shares = {"unsold": 0.0, f"{100 * back:.0f} % comes back": back}
    rows = {
        case: {
            kind: _hours(paid * (1 - share) / (saved * weeks) if saved > 0 else inf) for kind, share in shares.items()
        }
        for case, (paid, saved) in cases.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns="hours a week")
