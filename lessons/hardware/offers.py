"""What a card costs by the hour, lent, rented or owned, and what it trains for that.

Prices and measured speeds are somebody's, with source and day, in `lessons.shared.published`; speeds without such a
source are those of the model (`course_utils.machine.speed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from lessons.shared.published import LENT, RENTALS, TRAINED

MONTH_HOURS = 720  # 30 days


@dataclass(frozen=True)
class Offer:
    """A card, how one has it (lent, rented, used), dollars for an hour of it, and hours it runs in a month at most."""

    how: str
    card: str
    usd_per_hour: float
    hours: float = MONTH_HOURS


def rent_range(card: str) -> tuple[float, float]:
    """Dollars for an hour of a card: the lowest and the highest of `RENTALS`."""
    prices = [rental.usd_per_hour for rental in RENTALS if rental.device == card]
    return min(prices), max(prices)


def offers(rents: Mapping[str, float], bought: str, owned: Mapping[int, float]) -> list[Offer]:
    """What is lent for nothing, rented, and bought used.

    Args:
        rents: dollars for an hour of each rented card.
        bought: the card that is bought.
        owned: dollars for an hour of it, by the dollars it was bought for.
    """
    lent = [Offer(f"lent by {one.service}", one.device, 0.0, one.hours_a_week * MONTH_HOURS / (7 * 24)) for one in LENT]
    rented = [Offer("rented", card, hour) for card, hour in rents.items()]
    return [*lent, *rented, *(Offer(f"used, {price:,} dollars", bought, hour) for price, hour in owned.items())]


def as_it_runs(card: Device) -> Device:
    """The card as PyTorch's float32 convolutions use it: TF32, at half the rate of halves, where it has that."""
    rate = max(card.float32_tflops, card.tensor_tflops / 2 if card.year >= 2020 else 0)
    return replace(card, float32_tflops=rate)


def samples_a_second(step: StepTrace, batch: int, card: str) -> float:
    """By the model, in the precision that the step was traced with."""
    return predict_step(step.at(batch), as_it_runs(hardware.device(card))).samples_per_second


def timed_speed(network: str, card: str, precision: str) -> float | None:
    """Samples a second that others measured (`TRAINED`), in float32 or float16 (mixed precision); None if nobody did."""
    for row in TRAINED:
        if (row.network, row.device) == (network, card):
            return 1e3 / (row.full_ms if precision == "float32" else row.half_ms)
    return None


def what_they_buy(step: StepTrace, batch: int, million: float, offered: list[Offer]) -> pd.DataFrame:
    """One row an offer: what fits, how fast it trains, and what a dollar, a month and a task of so many samples come to.

    Days and a month's samples count the hours that the offer has; dollars of a used card are its share by the hour.
    """
    rows = {}
    for offer in offered:
        speed = samples_a_second(step, batch, offer.card)
        hour = 3600 * speed / 1e6
        hours = million / hour
        rows[offer.how, offer.card] = {
            "dollars an hour": f"{offer.usd_per_hour:.2f}",
            "largest batch": largest_batch(step, hardware.device(offer.card)).fits,
            "samples a second": round(speed),
            "million a dollar": f"{hour / offer.usd_per_hour:.1f}" if offer.usd_per_hour else "",
            "a month: million": f"{hour * offer.hours:,.0f}",
            "dollars": f"{offer.usd_per_hour * offer.hours:,.0f}",
            "your task: days": f"{hours / offer.hours * 30:.1f}",
            "dollars ": f"{offer.usd_per_hour * hours:.2f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["", "card"])


def flips(step: StepTrace, batch: int, rents: Mapping[str, float], owned: Mapping[int, float]) -> pd.DataFrame:
    """The rents at which a decision by samples a dollar turns over, beside those that were asked.

    Args:
        step: traced in the precision that counts, under the name that `TRAINED` has for the network.
        batch: of the model's speeds.
        rents: dollars an hour by card; each is held against the one that trains most for a dollar.
        owned: dollars for an hour of that one, by the dollars it was bought for.
    """
    name, precision = step.at(batch).name, step.at(batch).precision
    by_model = {card: samples_a_second(step, batch, card) for card in rents}
    by_times = {card: timed_speed(name, card, precision) or 0.0 for card in rents}
    best = max(rents, key=lambda card: by_model[card] / rents[card])
    rows = []
    for card in (card for card in rents if card != best):
        limits = [rents[best] * speeds[card] / speeds[best] if speeds[best] else 0 for speeds in (by_model, by_times)]
        rows.append((f"rent {card}, not {best}", *(f"below {rent:.2f}" if rent else "" for rent in limits), rent_range(card)))
    for price, hour in owned.items():
        rows.append((f"buy {best} for {price:,}, not rent", *2 * [f"above {hour:.2f}"], rent_range(best)))
    columns = ["choose", "at a rent, by the model", "by measured speeds", "asked"]
    shown = [(*row[:3], " to ".join(f"{rent:.2f}" for rent in row[3])) for row in rows]
    return pd.DataFrame(shown, columns=columns).set_index("choose")
