"""What a card costs by the hour, lent, rented or owned, and what it trains for that.

Prices and measured speeds are somebody's, with source and day, in `lessons.shared.published`; speeds without such a
source are those of the model (`course_utils.machine.speed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import nn

from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from lessons.shared.published import HALVES, LENT, RENTALS, TRAINED

MONTH_HOURS = 720  # 30 days


@dataclass(frozen=True)
class Offer:
    """A card, how one has it (lent, rented, used), dollars for an hour of it, and hours it runs in a month at most."""

    how: str
    card: str
    usd_per_hour: float
    hours: float = MONTH_HOURS


def rent_range(card: str) -> tuple[float, ...]:
    """Dollars for an hour of a card, the lowest and the highest of `RENTALS`; nothing if nobody rents it out there."""
    prices = [rental.usd_per_hour for rental in RENTALS if rental.device == card]
    return (min(prices), max(prices)) if prices else ()


def offers(
    rents: Mapping[str, float], bought: str, owned: Mapping[int, float], own_hours: float = MONTH_HOURS
) -> list[Offer]:
    """What is lent for nothing, rented, and bought used.

    Args:
        rents: dollars for an hour of each rented card.
        bought: the card that is bought.
        owned: dollars for an hour of it, by the dollars it was bought for.
        own_hours: hours in a month that it runs, over which its price was spread.
    """
    lent = [Offer(f"lent by {one.service}", one.device, 0.0, one.hours_a_week * MONTH_HOURS / (7 * 24)) for one in LENT]
    rented = [Offer("rented", card, hour) for card, hour in rents.items()]
    used = [Offer(f"used, {price:,} dollars", bought, hour, own_hours) for price, hour in owned.items()]
    return [*lent, *rented, *used]


def as_it_runs(card: Device) -> Device:
    """The card as PyTorch's float32 convolutions use it: TF32, at half the rate of halves, where it has that."""
    rate = max(card.float32_tflops, (card.tensor_tflops or 0) / 2 if card.year >= 2020 else 0)
    return replace(card, float32_tflops=rate)


def model_speed(step: StepTrace, batch: int, card: str) -> float:
    """By the model, in the precision that the step was traced with."""
    return predict_step(step.at(batch), as_it_runs(hardware.device(card))).samples_per_second


def timed_speed(network: str, card: str, precision: str) -> float | None:
    """Samples a second that others timed (`TRAINED`), in float32 or float16 (mixed precision); None if nobody did."""
    for row in TRAINED:
        if (row.network, row.device) == (network, card):
            return 1e3 / (row.full_ms if precision == "float32" else row.half_ms)
    return None


def against_timings(steps: Mapping[tuple[str, str], StepTrace]) -> pd.DataFrame:
    """What others timed of these networks, in samples a second, beside the model at the batch that they timed.

    Args:
        steps: by the network's name in `TRAINED` and `HALVES`, and the precision, "float32" or "float16" (mixed).
    """
    rows = {}
    for row in (*TRAINED, *HALVES):
        if (row.network, "float32") not in steps:
            continue
        found = {}
        for label, precision, ms in (("float32", "float32", row.full_ms), ("mixed", "float16", row.half_ms)):
            model = model_speed(steps[row.network, precision], row.batch, row.device)
            found[f"{label}, timed"], found[f"{label}, model"] = f"{1e3 / ms:,.0f}", f"{model:,.0f}"
            found[f"{label}, model / timed"] = f"{model * ms / 1e3:.2f}"
        rows[row.network, row.device, row.batch, row.source.split(",")[0]] = found
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["network", "card", "batch", "timed by"])


def what_they_buy(
    step: StepTrace,
    batch: int,
    million: float,
    rents: Mapping[str, float],
    bought: str,
    owned: Mapping[int, float],
    own_hours: float = MONTH_HOURS,
) -> pd.DataFrame:
    """One row an offer: what fits, how fast it trains, what a dollar and a month train, and what so many samples cost.

    Days and a month's samples count the hours that the offer has; dollars of a used card are its share by the hour.
    The last four arguments are those of `offers`.
    """
    rows = {}
    for offer in offers(rents, bought, owned, own_hours):
        speed = model_speed(step, batch, offer.card)
        hour = 3600 * speed / 1e6
        hours = million / hour
        rows[offer.how, offer.card] = {
            "dollars an hour": f"{offer.usd_per_hour:.2f}",
            "largest batch": largest_batch(step, hardware.device(offer.card)).fits,
            "samples a second": f"{speed:,.0f}",
            "million a dollar": f"{hour / offer.usd_per_hour:.1f}" if offer.usd_per_hour else "",
            "million a month": f"{hour * offer.hours:,.0f}",
            "dollars a month": f"{offer.usd_per_hour * offer.hours:,.0f}",
            "days for the task": f"{hours / offer.hours * MONTH_HOURS / 24:.1f}",
            "dollars for it": f"{offer.usd_per_hour * hours:.2f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["", "card"])


def flips(
    step: StepTrace, batch: int, rents: Mapping[str, float], bought: str, owned: Mapping[int, float]
) -> pd.DataFrame:
    """The rents at which a decision by samples a dollar turns over, beside those that were asked.

    Args:
        step: traced in the precision that counts, under the name that `TRAINED` has for the network.
        batch: of the model's speeds.
        rents: dollars an hour by card; each is held against the one that trains most for a dollar.
        bought: the card that is bought.
        owned: dollars for an hour of it, by the dollars it was bought for.
    """
    name, precision = step.at(batch).name, step.at(batch).precision
    model = {card: model_speed(step, batch, card) for card in (*rents, bought)}
    timed = {card: timed_speed(name, card, precision) for card in model}
    best = max(rents, key=lambda card: model[card] / rents[card])

    def limits(hour: float, fast: str, slow: str) -> list[str]:
        """What an hour of one card may cost where an hour of the other costs so much, by both kinds of speed."""
        pairs = [(model[fast], model[slow]), (timed[fast], timed[slow])]
        return [f"{hour * one / other:.2f}" if one and other else "" for one, other in pairs]

    choices = [(f"rent {card}, not {best}", card, rents[best], best) for card in rents if card != best]
    choices += [(f"rent {best}, not buy {bought} for {price:,}", best, hour, bought) for price, hour in owned.items()]
    rows = {}
    for choice, card, hour, other in choices:
        asked = " to ".join(f"{rent:.2f}" for rent in rent_range(card))
        rows[choice] = [*limits(hour, card, other), asked]
    columns = ["below a rent of, by the model", "by timed speeds", "asked"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("choose")


class Block(nn.Module):
    """A block of a wide ResNet (Zagoruyko and Komodakis, 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, 3, padding=1), nn.Dropout(0.3)
        )
        self.second = nn.Sequential(nn.BatchNorm2d(outputs), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, stride, 1))
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps of 2 convolutions, added to the input."""
        return self.second(self.first(x)) + self.shortcut(x)  # type: ignore[no-any-return]


def wide_resnet() -> nn.Module:
    """Wide ResNet 28-10 for images of 32 x 32, as it was timed on a T4 and a P100."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    width = 16
    for outputs, stride in ((160, 1), (320, 2), (640, 2)):
        for i in range(4):
            layers.append(Block(width, outputs, 1 if i else stride))
            width = outputs
    return nn.Sequential(*layers, nn.BatchNorm2d(640), nn.ReLU(), nn.AvgPool2d(8), nn.Flatten(), nn.Linear(640, 10))
