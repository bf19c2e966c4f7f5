"""What an hour of a card costs, lent, rented or owned, and what it trains for that; `buying` has when to buy one.

Prices and timings are somebody's, with source and day, in `lessons.shared.published`. All speeds have one yardstick:
the model's (`course_utils.machine.speed`) in float32, divided by how much too fast it is where somebody timed the card.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pandas as pd
import torch
from torch import nn

from course_utils.machine import hardware
from course_utils.machine.context import Context, context
from course_utils.machine.hardware import Device
from course_utils.machine.speed import predict_step
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from course_utils.units import CourseError
from lessons.shared.published import (
    COMMUNITY,
    HALVES,
    LENT,
    RENTALS,
    TIMED_AGAIN,
    TRAINED,
    TRANSFORMERS,
    XEONS,
    published,
)
from lessons.shared.reference_cpu import REFERENCE_CPU

WEEK_HOURS = 7 * 24
CPU_KILOWATTS = 2 * 0.085  # Intel rates each of XEONS at 85 W
RENTED = "rented"
TIE = "\u00a0="  # marks what costs about as much as the cheapest rented card
COMPARED = frozenset(one.device for one in RENTALS if one.provider == COMMUNITY)
Checks = Mapping[str, "list[Check]"]


def _ampere(
    name: str, gb: float, seen: float, rate: float, tflops: float, tensor: float, sources: str, derived: str
) -> Device:
    return Device(name=name, year=2021, dies=1, memory_gb=gb, usable_gb=seen, bandwidth_gb_s=rate,
                  float32_tflops=tflops, float32_clock="boost", tensor_tflops=tensor, bfloat16=True,
                  sources=sources, derived=derived, architecture="Ampere")  # fmt: skip


# Small cards that people rent and buy. The other lessons do not list them.
SMALL_CARDS = {
    card.name: card
    for card in (
        _ampere("RTX 3060", 12, 11.76, 360, 12.7, 25.5,
                "pcpartdb.com; PhotoMaker on GitHub, issue 47 (what PyTorch reports)",
                "3,584 cores x 2 x 1,777 MHz; 112 tensor cores x 128 x 2 x 1,777 MHz / 2"),
        _ampere("RTX A4000", 16, 15.61, 448, 19.2, 76.7,
                "technical.city; VGGT-Long on GitHub, issue 6 (what PyTorch reports)",
                "tensor_tflops: 192 tensor cores x 128 x 2 x 1,560 MHz"),
        _ampere("RTX A5000", 24, 23.67, 768, 27.8, 111,
                "topcpu.net; Accelerator-Simple-Template on GitHub, issue 7 (what PyTorch reports)",
                "tensor_tflops: 256 tensor cores x 128 x 2 x 1,695 MHz"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Offer:
    """A card, how one has it (lent, rented, bought), dollars an hour, hours a week that it may run, and how many."""

    how: str
    card: str
    usd_per_hour: float
    hours_a_week: float = WEEK_HOURS
    cards: int = 1
    paid: int = 0  # dollars for it, with a computer if one is bought

    @property
    def name(self) -> str:
        """The card, with how many there are, or what was paid."""
        many = f"{self.cards} x {self.card}" if self.cards > 1 else self.card
        return f"{many}, {self.paid:,} paid" if self.paid else many


def card_named(name: str) -> Device:
    """A card of the catalogue or of SMALL_CARDS, or the CPU."""
    if name == REFERENCE_CPU.name:
        return REFERENCE_CPU
    return SMALL_CARDS.get(name) or hardware.device(name)


def todays_context(card: Device) -> Context:
    """What today's PyTorch takes of a card, with kernels loaded lazily; of Kepler, where it does not run, as seen."""
    return context(card, None if card.architecture == "Kepler" else "lazy")


def rent_range(card: str) -> tuple[float, ...]:
    """Dollars for an hour of a card, the lowest and the highest of `RENTALS`; nothing if nobody rents it out there."""
    prices = [rental.usd_per_hour for rental in RENTALS if rental.device == card]
    return (min(prices), max(prices)) if prices else ()


def offers(rents: Mapping[str, float], owned: Mapping[tuple[str, int], float], kwh_usd: float) -> list[Offer]:
    """The CPU that one has, what is lent for nothing, rented, and bought used.

    Args:
        rents: dollars for an hour of each rented card.
        owned: dollars for an hour of one's own, by the card and the dollars that were paid.
        kwh_usd: dollars for a kilowatt hour.
    """
    cpu = Offer("no card", REFERENCE_CPU.name, CPU_KILOWATTS * kwh_usd)
    lent = [
        Offer(f"lent by {one.service}", one.device, 0.0, one.hours_a_week, cards)
        for one in LENT
        for cards in sorted({1, one.cards})
    ]
    rented = [Offer(RENTED, card, hour) for card, hour in rents.items()]
    used = [Offer("your own", card, hour, paid=paid) for (card, paid), hour in owned.items()]
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


def spread(cards: Collection[str] = COMPARED) -> float:
    """By how much two lists of `TIMED_AGAIN` disagree at most on how many times as fast one of these cards is."""
    far = 1.0
    for one, other in combinations(TIMED_AGAIN.values(), 2):
        for a, b in combinations([card for card in one if card in other and card in cards], 2):
            for first, second, third, fourth in zip(one[a], one[b], other[a], other[b], strict=True):
                far = max(far, first / second * fourth / third, second / first * third / fourth)
    return far - 1


def _up_to(cards: Iterable[str]) -> float:
    """How many times the cheapest a tie may cost, if these cards are compared beside `COMPARED`."""
    return 1 + spread(COMPARED | {*cards})


def what_they_buy(step: StepTrace, most: int, million: float, of: Sequence[Offer], known: Checks) -> pd.DataFrame:
    """One row an offer: what fits, how fast it trains at batch `most` or less, and what so many million samples cost.

    Days count the hours a week that the offer has. Two cards are taken to be twice as fast as one, which is a bound.
    Dollars that tie with the cheapest rented card's are marked; the name of the columns says how near that is.
    """
    rows, costs, network = {}, {}, step.at(most).name
    for offer in of:
        found = relied_on(known, offer.card, network)
        said = f"{found.ratio:.2f}" if found else "not timed"
        other = "" if not found or found.network == network else f", {found.network}"
        card, times = card_named(offer.card), gain(known, offer.card, network)
        largest = largest_batch(step, card, todays_context(card)).fits if card != REFERENCE_CPU else None
        a_second = offer.cards * speed(step, most if largest is None else max(1, min(most, largest)), offer.card, known)
        hours = [million * 1e6 / 3600 / a_second / share for share in (1.0, times) if share]
        costs[offer] = [offer.usd_per_hour * one for one in hours]
        rows[offer.how, offer.name] = {
            "dollars an hour": f"{offer.usd_per_hour:.2f}",
            "fits up to": "" if largest is None else largest,
            "samples a second": f"{a_second:,.{0 if card != REFERENCE_CPU else 1}f}",
            "model / timed": said + other,
            "days; mixed": "; ".join(_short(one * 7 / offer.hours_a_week) for one in hours),
        }
    rented = [own for offer, own in costs.items() if offer.how == RENTED]
    cheapest = [min((own[i] for own in rented if i < len(own)), default=0.0) for i in (0, 1)]
    up_to = _up_to(offer.card for offer in of)
    for row, own in zip(rows.values(), costs.values(), strict=True):
        tied = [0 < least <= up_to * usd and usd <= up_to * least for usd, least in zip(own, cheapest, strict=False)]
        row["dollars; mixed"] = "; ".join(_short(usd) + TIE * tie for usd, tie in zip(own, tied, strict=True))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index=["", "card"], columns=_within(up_to))


def _short(number: float) -> str:
    """With one decimal; below 1 with two digits."""
    return f"{number:,.1f}" if number >= 1 or not number else f"{number:.2g}"


def _within(up_to: float) -> str:
    """How near a tie is, as the name of a table's columns."""
    return f"tie (=): within {100 * (up_to - 1):.0f} %"


def timed(network: str) -> dict[str, tuple[float, float]]:
    """Samples a second in float32 and mixed, by card, as `TRAINED` or `TRANSFORMERS` have them."""
    return TRANSFORMERS.get(network) or {
        row.device: (1e3 / row.full_ms, 1e3 / row.half_ms) for row in TRAINED if row.network == network
    }


def choices(rents: Mapping[str, float]) -> pd.DataFrame:
    """Samples a dollar beside the card that trains most for it, ties marked, and that card.

    Args:
        rents: dollars an hour by card; those that nobody timed with a network have an empty cell.
    """
    rows = {}
    for network in ("ResNet-50", *TRANSFORMERS):
        rates = {card: rate for card, rate in timed(network).items() if card in rents}
        if not rates:
            continue
        for i, precision in enumerate(("float32", "mixed")):
            each = {card: rate[i] / rents[card] for card, rate in rates.items()}
            most = max(each.values())
            tied = [card for card, one in each.items() if most <= _up_to(rents) * one]
            rows[network, precision] = {
                card: f"{each[card] / most:.2f}{TIE if card in tied else ''}" if card in each else "" for card in rents
            } | {"cheapest": max(each, key=each.__getitem__)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis(index=["", ""], columns=_within(_up_to(rents))) if rows else table


def timed_before(rents: Mapping[str, float], card: str, other: str) -> list[str]:
    """Lines: samples of ResNet-50 a dollar on a card beside another, timed once, by each list of `TIMED_AGAIN`."""
    once = timed("ResNet-50").get(other)
    if once is None or not {card, other} <= rents.keys():
        return []
    shares = {
        source: [a / rents[card] / b * rents[other] for a, b in zip(of[card], once, strict=True)]
        for source, of in TIMED_AGAIN.items()
        if card in of
    }
    lines = [f"  {full:.2f}, mixed {half:.2f}: {source}" for source, (full, half) in shares.items()]
    return [f"ResNet-50, images for a dollar, {card} beside {other}, by who timed the {card}:", *lines]


def same_work(
    step: StepTrace, most: int, card: str, rents: Mapping[str, float], known: Checks, mixed: bool = False
) -> tuple[str, float]:
    """The other card that is cheapest to rent, and dollars there for what an hour of `card` trains.

    Arguments as of `flips`; `card` need not be rented. In float32, or in mixed precision: 0 dollars if nobody timed
    that on `card`.

    Raises:
        CourseError: no other card is rented.
    """
    network = step.at(most).name
    gains = {one: gain(known, one, network) or 0.0 if mixed else 1.0 for one in {card, *rents}}
    rate = {one: speed(step, usual_batch(step, most, one), one, known) * times for one, times in gains.items()}
    others = [one for one in rents if one != card and rate[one]]
    if not others:
        raise CourseError(f"add a card to `rents` that does the work of the {card}")
    other = min(others, key=lambda one: rents[one] / rate[one])
    return other, rents[other] * rate[card] / rate[other]


def flips(step: StepTrace, most: int, rents: Mapping[str, float], known: Checks) -> pd.DataFrame:
    """Up to which rent each card ties with the cheapest of the others, in float32 and mixed, and what is asked.

    Args:
        step: traced in float32, under the name that the timings have for the network.
        most: samples of a batch, where a card holds so many.
        rents: dollars an hour by card.
        known: what `speed` is checked against.
    """
    network, rows = step.at(most).name, {}
    full = {card: speed(step, usual_batch(step, most, card), card, known) for card in rents}
    mixed = {card: full[card] * (gain(known, card, network) or 0) for card in rents}
    for card in sorted(rents, key=full.__getitem__):
        limits = []
        for rate in (full, mixed):
            others = [rents[one] / rate[one] for one in rents if one != card and rate[one]]
            limits.append(f"{_up_to(rents) * min(others) * rate[card]:.2f}" if others and rate[card] else "")
        asked = " to ".join(f"{x:.2f}" for x in sorted(set(rent_range(card))))
        rows[card] = [*limits, f"{rents[card]:.2f}", asked]
    columns = ["ties up to a rent of", "in mixed precision", "your rent", "asked"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.rename_axis(index="card", columns=_within(_up_to(rents)))


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
