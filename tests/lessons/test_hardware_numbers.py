"""Numbers that the text of lesson 02 says, and no cell prints beside it."""

import re
from functools import lru_cache
from math import ceil
from typing import Any

import pandas as pd
import pytest
import torch

from classroom import ROOT
from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device, devices
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import MIB
from lessons.hardware.claims import dense_net
from lessons.hardware.explorer import on_todays
from lessons.hardware.offers import (
    Check,
    against_timings,
    buying,
    checks,
    duration,
    flips,
    gain,
    model_speed,
    offers,
    rent_range,
    speed,
    todays_context,
    what_they_buy,
    wide_resnet,
)
from lessons.shared.published import NEF_TIMES, RENTALS, TRAINED, USED, XEONS, published
from lessons.shared.sources import traced

LESSON = ROOT / "lessons/hardware/lesson.py"
RTX = ("RTX 3090", "RTX 4090")


def text_of_the_lesson() -> str:
    return re.sub(r"\n# *", " ", LESSON.read_text(encoding="utf-8"))


def test_contexts_are_those_of_the_reports() -> None:
    text = text_of_the_lesson()
    assert f"*small* one of {context().least // MIB} MiB" in text
    for card in devices():
        lazy = [one.mib for one in reports() if one.architecture == card.architecture and one.loading == "lazy"]
        if card.architecture == "Kepler":
            assert not lazy
            assert card.name.removeprefix("Tesla ") in text
            assert todays_context(card) == context(card)
        else:
            assert todays_context(card).most == max(512 * MIB, *(int(mib * MIB) for mib in lazy), 0)


def test_cards_of_one_size_are_compared_with_kernels_loaded_alike() -> None:
    """An RTX 3090 holds as much as an RTX 4090; with the eager loading of 2022, which no RTX 4090 ever had, less."""
    step, old, new = traced(networks.resnet50), device("RTX 3090"), device("RTX 4090")
    fits = {one.device: one.largest_batch for one in on_todays(step, 1, [new, old])}
    assert list(fits) == [new, old]
    assert fits[old] == largest_batch(step, old, context(old, "lazy")).fits
    assert fits[old] == pytest.approx(fits[new], rel=0.01)
    assert largest_batch(step, old).fits < 0.95 * fits[new]
    assert not any(one.loading == "eager" for one in reports() if one.architecture == new.architecture)
    table = budgets()["largest batch"]
    assert table[("rented", "RTX 3090")] == fits[old]


@lru_cache(maxsize=1)
def change_cell() -> dict[str, Any]:
    """What the cell of budgets sets."""
    (cell,) = (cell for cell in LESSON.read_text(encoding="utf-8").split("\n# %%") if "\nrents = " in cell)
    lines = [line for line in cell.split("\n\n")[0].splitlines()[1:] if " = " in line and not line.startswith("#")]
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    return found | {"power": found["kilowatts"] * found["kwh"]}


@lru_cache(maxsize=1)
def steps() -> dict[str, StepTrace]:
    with torch.device("meta"):
        wide = wide_resnet()
    return {"ResNet-50": traced_in("float32"), "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam")}


@lru_cache(maxsize=1)
def known() -> dict[str, list[Check]]:
    return checks(steps())


@lru_cache(maxsize=1)
def budgets() -> pd.DataFrame:
    given = change_cell()
    owned = {price: price / (given["weekly"] * given["weeks"]) + given["power"] for price in given["prices"]}
    of = offers(given["rents"], given["card"], owned, given["weekly"], given["kwh"])
    return what_they_buy(traced_in("float32"), given["batch"], given["million"], of, known())


@lru_cache
def traced_in(precision: str) -> StepTrace:
    with torch.device("meta"):
        return training_step(networks.resnet50(), (3, 224, 224), 1000, precision=precision, name="ResNet-50")


def of(column: str, how: str, card: str) -> float:
    """Of "days" or "dollars", in float32 or ", mixed"."""
    kind, _, mixed = column.partition(", ")
    found = str(budgets().loc[(how, card), f"{kind}; mixed"]).replace(",", "").split("; ")
    return float(found[bool(mixed)])


def test_the_rents_of_the_change_cell_are_the_lowest_asked_and_its_prices_those_of_used_cards() -> None:
    given = change_cell()
    assert given["rents"] == {card: rent_range(card)[0] for card in given["rents"]}
    used = [row for row in USED if row.device == given["card"]]
    assert given["prices"] == (min(row.low_usd for row in used), max(row.high_usd for row in used))
    assert given["million"] == round(90 * 1_281_167 / 1e6)
    low, high = given["prices"]
    assert f"Guides of 2026 give {low:,} to {high:,} dollars" in text_of_the_lesson()


def test_what_imagenet_costs_is_said() -> None:
    rent = {card: [round(of(column, "rented", card)) for column in ("dollars", "dollars, mixed")] for card in RTX}
    (plain, mixed), (plain_4090, mixed_4090) = rent.values()
    text = text_of_the_lesson()
    assert f"cost {plain} dollars on a rented RTX 3090, in mixed precision {mixed}" in text
    assert f"on an RTX 4090 {plain_4090} and {mixed_4090}" in text
    days = round(of("days, mixed", "lent by Kaggle", "T4")), round(of("days, mixed", "lent by Kaggle", "P100"))
    assert f"a lent T4 takes {days[0]} days in mixed precision, a P100 {days[1]}" in text
    runs = int(300 / of("dollars, mixed", "rented", "RTX 3090"))
    assert f"300 dollars pay for {runs} such runs" in text


def test_the_cpu_takes_years_and_its_electricity_more_than_any_rent() -> None:
    days, dollars = (of(column, "no card", XEONS) for column in ("days", "dollars"))
    assert dollars > max(of("dollars", how, card) for how, card in budgets().index[1:])
    said = f"takes {days / 365:.1f} years, and its electricity, {round(dollars, -1):.0f} dollars"
    assert said in text_of_the_lesson()


def test_what_a_cpu_is_enough_for_is_said() -> None:
    (row,) = published("ResNet-50", XEONS)
    head, few = 10_000 * row.forward_ms / row.batch / 1e3, 100_000 * row.per_sample_ms / 1e3
    text = text_of_the_lesson()
    assert f"a head on 10,000 images takes the Xeons {duration(head)} (" in text
    assert f"all layers for 10 epochs {duration(few)}." in text
    written = [duration(seconds) for seconds in (30, 150, 36_000, 1e6)]
    assert written == ["30 seconds", "2.5 minutes", "10 hours", "12 days"]


def test_no_lowest_rent_turns_the_choice_over_and_the_dearest_of_a_3090_does() -> None:
    given = change_cell()
    table = flips(traced_in("float32"), given["batch"], given["rents"], known())
    for choice, row in table.iterrows():
        lowest = float(row["asked"].split(" to ")[0])
        assert str(choice).endswith("not RTX 3090")
        assert float(row["below a rent of"]) < lowest
        assert not row["in mixed precision"] or float(row["in mixed precision"]) < lowest
    rents = given["rents"] | {"RTX 3090": rent_range("RTX 3090")[1]}
    assert "rent RTX 3090, not RTX 4090" in flips(traced_in("float32"), given["batch"], rents, known()).index
    assert f"Put in the RTX 3090's dearest rent, {rents['RTX 3090']:.2f}" in text_of_the_lesson()


def test_of_every_seller_a_4090s_sample_costs_more_than_a_3090s() -> None:
    sellers = {rental.provider for rental in RENTALS if rental.device == "RTX 3090"}
    asked = [{one.device: one.usd_per_hour for one in RENTALS if one.provider == seller} for seller in sellers]
    dearer = [rent["RTX 4090"] / rent["RTX 3090"] for rent in asked]
    fast = [speed(traced_in("float32"), 32, card, known()) for card in RTX]
    gains = [gain(known(), card, "ResNet-50") or 0 for card in RTX]
    more = [times * fast[0] / fast[1] - 1 for times in dearer]
    more += [times * fast[0] * gains[0] / fast[1] / gains[1] - 1 for times in dearer]
    assert (len(sellers), round(min(dearer), 1), round(max(dearer), 1)) == (3, 1.5, 1.6)
    said = f"between {round(100 * min(more))} and {round(100 * max(more))} % more a sample"
    assert said in text_of_the_lesson()


def test_when_to_buy_is_said() -> None:
    given = change_cell()
    low, high = rent_range(given["card"])
    weekly, weeks, power = given["weekly"], given["weeks"], given["power"]
    table = buying(given["prices"], given["computer"], (low, high), power, weekly, weeks, given["back"])
    assert list(table.columns) == [f"rent {rent:.2f}, {back} % back" for back in (0, 50) for rent in (low, high)]
    buys = {(row, column) for row in table.index for column in table if "buy" in table.loc[row, column]}
    nothing, half = (f"rent {high:.2f}, {back} % back" for back in (0, 50))
    assert buys == {("card 500", nothing), ("card 500", half), ("card 1,000", half), ("card 500, computer 500", half)}
    least = [int(table.loc["card 500", f"rent {rent:.2f}, 0 % back"].split(":")[0]) for rent in (high, low)]
    assert least == [ceil(500 / (rent - power) / weeks) for rent in (high, low)]
    text = text_of_the_lesson()
    assert f"from {least[0]} hours a week on" in text
    assert f"at the lowest from {least[1]}" in text
    never = buying((3000,), 0, (low, power), power, 168, weeks, 0.0)
    assert set(never.iloc[0]) == {"never: rent"}


@lru_cache(maxsize=1)
def off() -> pd.DataFrame:
    """Every timing beside the model."""
    with torch.device("meta"):
        wide = wide_resnet()
    halves = {"ResNet-50": traced_in("float16"), "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam", "float16")}
    return against_timings(steps(), halves).droplevel("batch").sort_index()


def test_the_model_is_as_far_off_as_said() -> None:
    ratio = {card: [one.ratio for one in found] for card, found in known().items()}
    near = [one for card in (*RTX, "T4", "P100") for one in ratio[card]]
    assert max(abs(one - 1) for one in near) < 0.1
    text = text_of_the_lesson()
    assert min(abs(one - 1) for card in ("A100", "H100 SXM", XEONS) for one in ratio[card]) > 0.3
    assert "within a tenth of the timings of the RTX 3090 and 4090 and, with another network, of the T4 and the" in text
    assert "RTX 5090" not in ratio
    new = [found for card, found in ratio.items() if card != XEONS and device(card).year >= 2020]
    assert min(min(found) for found in new) > 1
    assert {one.network for card in ("T4", "P100") for one in known()[card]} == {"Wide ResNet"}
    table = off()
    assert float(table.loc[("RTX 3090", "ResNet-50", "Lambda"), "model / timed"]) == round(ratio["RTX 3090"][0], 2)


def test_mixed_precision_gains_a_t4_less_than_the_model_says() -> None:
    row = off().loc[("T4", "Wide ResNet", "Ceshine Lee")]
    said = f"{row['mixed, timed']} as fast was timed on the T4, the model has {row['by the model'].split()[0]}"
    assert said in text_of_the_lesson()
    with torch.device("meta"):
        assert sum(p.numel() for p in wide_resnet().parameters()) == pytest.approx(36.5e6, rel=0.01)


def test_a_t4_is_the_faster_of_the_free_cards_by_every_timing() -> None:
    rows = {row.device: row for row in TRAINED if row.network == "Wide ResNet"}
    times = rows["P100"].full_ms / rows["T4"].half_ms
    assert f"Wide ResNet {times:.1f} times as fast as a P100" in text_of_the_lesson()
    slower = min(of("days, mixed", "lent by Kaggle", "P100"), of("days", "lent by Kaggle", "P100"))
    assert of("days, mixed", "lent by Kaggle", "T4") < slower
    plain = {card: model_speed(traced_in("float32"), 32, card) for card in ("T4", "P100")}
    assert NEF_TIMES * plain["T4"] > plain["P100"]


def test_a_reader_rents_a_card_that_no_list_has_and_takes_another_network() -> None:
    table = flips(traced_in("float32"), 32, {"RTX 3090": 0.18, "V100": 0.19}, known())
    assert list(table["asked"]) in ([""], ["0.18 to 0.43"])
    vgg = traced(networks.vgg16)
    of_vgg = what_they_buy(vgg, 32, 1, offers({"RTX 5090": 0.69}, "RTX 4090", {1600: 0.9}, 20, 0.2), known())
    assert list(of_vgg["model / timed"])[-2:] == ["not timed", "1.09, ResNet-50"]


def test_the_rule_in_full_errs_either_way() -> None:
    """With the gradients that are there at the peak it allows as many as the trace; the replay then asks for more."""
    step = dense_net()
    found, room = largest_batch(step, 1536 * MIB).fits, 1024 * MIB
    sample = step.at(found + 1).peak_bytes - step.at(found).peak_bytes
    gradients = step.at(found).by_role()["weight gradients"]
    assert (room - 12 * 52_136_032) // sample < found < (room - 8 * 52_136_032 - gradients) // sample
    vgg = traced(networks.vgg16)
    found = largest_batch(vgg, 6144 * MIB).fits
    sample = vgg.at(found + 1).peak_bytes - vgg.at(found).peak_bytes
    assert (5632 * MIB - 12 * 138_357_544) // sample > found
