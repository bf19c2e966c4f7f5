"""What an hour of a card costs, lent, rented or owned, and what it trains for that.

Prices and timings are somebody's, with source and day, in `lessons.shared.published`. All speeds have one yardstick:
the model's (`course_utils.machine.speed`) in float32, divided by how much too fast it is where somebody timed the card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

import pandas as pd
import torch
from torch import nn

from course_utils.machine import hardware
from course_utils.machine.context import Context, context
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from lessons.shared.published import HALVES, LAMBDA, LENT, RENTALS, TRAINED, TRANSFORMERS, XEONS, published
from lessons.shared.reference_cpu import REFERENCE_CPU

WEEK_HOURS = 7 * 24
CPU_KILOWATTS = 2 * 0.085  # Intel rates each of XEONS at 85 W
Checks = Mapping[str, "list[Check]"]


@dataclass(frozen=True)
class Offer:
    """A card, how one has it (lent, rented, bought), dollars an hour, hours a week that it may run, and how many."""

    how: str
    card: str
    usd_per_hour: float
    hours_a_week: float = WEEK_HOURS
    cards: int = 1


def card_named(name: str) -> Device:
    """A card of the catalogue, or the CPU."""
    return REFERENCE_CPU if name == REFERENCE_CPU.name else hardware.device(name)


def todays_context(card: Device) -> Context:
    """What today's PyTorch takes of a card, with kernels loaded lazily; of Kepler, where it does not run, as seen."""
    return context(card, None if card.architecture == "Kepler" else "lazy")


def rent_range(card: str) -> tuple[float, ...]:
    """Dollars for an hour of a card, the lowest and the highest of `RENTALS`; nothing if nobody rents it out there."""
    prices = [rental.usd_per_hour for rental in RENTALS if rental.device == card]
    return (min(prices), max(prices)) if prices else ()


def offers(rents: Mapping[str, float], bought: str, owned: Mapping[int, float], kwh_usd: float) -> list[Offer]:
    """The CPU that one has, what is lent for nothing, rented, and bought used.

    Args:
        rents: dollars for an hour of each rented card.
        bought: the card that is bought.
        owned: dollars for an hour of it, by the dollars that were paid.
        kwh_usd: dollars for a kilowatt hour.
    """
    cpu = Offer("no card", REFERENCE_CPU.name, CPU_KILOWATTS * kwh_usd)
    lent = [
        Offer(f"lent by {one.service}", one.device, 0.0, one.hours_a_week, cards)
        for one in LENT
        for cards in sorted({1, one.cards})
    ]
    rented = [Offer("rented", card, hour) for card, hour in rents.items()]
    used = [Offer(f"your own, {paid:,} paid", bought, hour) for paid, hour in owned.items()]
    return [cpu, *lent, *rented, *used]


def as_it_runs(card: Device) -> Device:
    """The card as PyTorch's float32 convolutions use it: TF32, at half the rate of halves, where it has that."""
    rate = max(card.float32_tflops, (card.tensor_tflops or 0) / 2 if card.year >= 2020 else 0)
    return replace(card, float32_tflops=rate)


def model_speed(step: StepTrace, batch: int, card: str) -> float:
    """Samples a second by the model, in the precision that the step was traced with."""
    return predict_step(step.at(batch), as_it_runs(card_named(card))).samples_per_second


def usual_batch(step: StepTrace, most: int, card: str) -> int:
    """The largest batch that fits a card, or so many samples; of the CPU, which has memory enough, these."""
    if card == REFERENCE_CPU.name:
        return most
    found = card_named(card)
    return max(1, min(most, largest_batch(step, found, todays_context(found)).fits))


@dataclass(frozen=True)
class Check:
    """What somebody timed on a card: which network, the model's speed there by the timed one, the gain of halves."""

    network: str
    ratio: float  # both in float32
    gain: float | None


def checks(steps: Mapping[str, StepTrace]) -> dict[str, list[Check]]:
    """Every timing of `TRAINED`, `HALVES` and, on the CPU, of `published`, beside the model; by card.

    Args:
        steps: traced in float32, by the network's name there.
    """
    found: dict[str, list[Check]] = {}
    for row in (*TRAINED, *HALVES):
        if row.network in steps:
            ratio = model_speed(steps[row.network], row.batch, row.device) * row.full_ms / 1e3
            found.setdefault(row.device, []).append(Check(row.network, ratio, row.times))
    for cpu in (row for name in steps if name == "ResNet-50" for row in published(name, XEONS)):
        ratio = model_speed(steps[cpu.network], cpu.batch, cpu.device) * cpu.per_sample_ms / 1e3
        found.setdefault(cpu.device, []).append(Check(cpu.network, ratio, None))
    return found


def relied_on(known: Checks, card: str, network: str) -> Check | None:
    """The check that says most about a network on a card: its own, else another's; of several the first, `TRAINED`'s.

    Most rows of `TRAINED` are by one program, so that cards are compared by it alone.
    """
    of_card = known.get(card, [])
    return next(iter([one for one in of_card if one.network == network] or of_card), None)


def speed(step: StepTrace, batch: int, card: str, known: Checks) -> float:
    """Samples a second: the model's, divided by how much too fast it is where the card was timed."""
    found = relied_on(known, card, step.at(batch).name)
    return model_speed(step, batch, card) / (found.ratio if found else 1.0)


def gain(known: Checks, card: str, network: str) -> float | None:
    """How many times as fast mixed precision was timed; None if nobody did."""
    found = relied_on(known, card, network)
    return found.gain if found else None


def what_they_buy(step: StepTrace, most: int, million: float, of: Iterable[Offer], known: Checks) -> pd.DataFrame:
    """One row an offer: what fits, how fast it trains at batch `most` or less, and what so many million samples cost.

    Days count the hours a week that the offer has. Two cards are taken to be twice as fast as one, which is a bound.
    """
    rows, network = {}, step.at(most).name
    for offer in of:
        found = relied_on(known, offer.card, network)
        said = f"{found.ratio:.2f}" if found else "not timed"
        other = "" if not found or found.network == network else f", {found.network}"
        card, times = card_named(offer.card), gain(known, offer.card, network)
        largest = largest_batch(step, card, todays_context(card)).fits if card != REFERENCE_CPU else None
        a_second = offer.cards * speed(step, most if largest is None else max(1, min(most, largest)), offer.card, known)
        hours = [million * 1e6 / 3600 / a_second / share for share in (1.0, times) if share]
        days, dollars = (
            [f"{one * each:,.1f}" for one in hours] for each in (7 / offer.hours_a_week, offer.usd_per_hour)
        )
        rows[offer.how, f"{offer.cards} x {offer.card}" if offer.cards > 1 else offer.card] = {
            "dollars an hour": f"{offer.usd_per_hour:.2f}",
            "largest batch": "" if largest is None else largest,
            "samples a second": f"{a_second:,.{0 if card != REFERENCE_CPU else 1}f}",
            "model / timed": said + other,
            "mixed, timed": f"{times:.1f} times" if times else "",
            "days; mixed": "; ".join(days),
            "dollars; mixed": "; ".join(dollars),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["", "card"])


def flips(step: StepTrace, most: int, rents: Mapping[str, float], known: Checks) -> pd.DataFrame:
    """The rents below which another card trains more for a dollar than the best one, beside those that were asked.

    Args:
        step: traced in float32, under the name that the timings have for the network.
        most: samples of a batch, where a card holds so many.
        rents: dollars an hour by card; each is held against the one that trains most for a dollar in float32.
        known: what `speed` is checked against.
    """
    network = step.at(most).name
    speeds = {card: speed(step, usual_batch(step, most, card), card, known) for card in rents}
    best = max(rents, key=lambda card: speeds[card] / rents[card])
    rows = {}
    for card in (one for one in rents if one != best):
        limit = rents[best] * speeds[card] / speeds[best]
        gains = gain(known, card, network), gain(known, best, network)
        mixed = f"{limit * gains[0] / gains[1]:.2f}" if gains[0] and gains[1] else ""
        others = " to ".join(f"{x:.2f}" for x in sorted(set(rent_range(card))))
        rows[f"rent {card}, not {best}"] = [f"{limit:.2f}", mixed, f"{rents[card]:.2f}", others]
    columns = ["below a rent of", "in mixed precision", "your rent", "asked"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("choose")


def more_for_a_dollar(rents: Mapping[str, float]) -> pd.DataFrame:
    """Samples a dollar over those of the first card of `rents`, in float32 and mixed, by one program (`LAMBDA`)."""
    resnet = {row.device: (1e3 / row.full_ms, 1e3 / row.half_ms) for row in TRAINED if row.source == LAMBDA}
    rows = {}
    for network, timed in ({"ResNet-50": resnet} | TRANSFORMERS).items():
        each = {card: [rate / rent for rate in timed[card]] for card, rent in rents.items() if card in timed}
        first = next(iter(each.values()), [])
        rows[network] = {
            card: "; ".join(f"{a / b:.2f}" for a, b in zip(own, first, strict=True)) for card, own in each.items()
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(f"float32; mixed ({LAMBDA})")


def buying(
    prices: Iterable[int], computer: int, rents: Mapping[str, float], power: float, hours: float, weeks: float
) -> pd.DataFrame:
    """What makes buying a card cheaper than renting the same: hours a week, or the share of the price that comes back.

    Args:
        prices: dollars for the card.
        computer: dollars for one around it.
        rents: dollars for an hour of that card, by who asks them.
        power: dollars of electricity in an hour.
        hours: a week that the card will run, for which the share is told.
        weeks: that it will be used.
    """
    rows = {}
    for around in (0, computer) if computer else (0,):
        for price in prices:
            row, paid = {}, price + around
            for seller, rent in rents.items():
                least = paid / (rent - power) / weeks if rent > power else inf
                share = max(0.0, 1 - hours * weeks * (rent - power) / paid)
                told = f"{ceil(least)} h" if least <= WEEK_HOURS else "never"
                row[f"{rent:.2f}, {seller}"] = f"{told}; {100 * share:.0f} %" if rent > power else "never"
            rows[f"card {price:,}" + (f", computer {around:,}" if around else "")] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("dollars paid")


def rents_asked(card: str) -> dict[str, float]:
    """Dollars for an hour of a card in `RENTALS`, by seller and month, the lowest first."""
    found = sorted((one for one in RENTALS if one.device == card), key=lambda one: one.usd_per_hour)
    return {f"{one.provider}, {one.seen[:7]}": one.usd_per_hour for one in found}


def duration(seconds: float) -> str:
    """Seconds in the unit that a reader plans with."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.0f} seconds"


def against_timings(steps: Mapping[str, StepTrace], halves: Mapping[str, StepTrace]) -> pd.DataFrame:
    """Every timing of these networks, what the model says at its batch, and what mixed precision gains by both.

    Args:
        steps: traced in float32, by the network's name in `TRAINED` and `HALVES`.
        halves: the same in float16.
    """
    rows = {}
    for row in (one for one in (*TRAINED, *HALVES) if one.network in steps):
        full, half = (model_speed(kind[row.network], row.batch, row.device) for kind in (steps, halves))
        rows[row.device, row.network, row.batch, row.source.split(",")[0]] = {
            "float32, timed": f"{1e3 / row.full_ms:,.0f}",
            "model / timed": f"{full * row.full_ms / 1e3:.2f}",
            "mixed, timed": f"{row.times:.1f} times",
            "by the model": f"{half / full:.1f} times",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["card", "network", "batch", "timed by"])


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
