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
    more_for_a_dollar,
    offers,
    rents_asked,
    speed,
    todays_context,
    usual_batch,
    what_they_buy,
    wide_resnet,
)
from lessons.shared.published import (
    A5000,
    COMMUNITY,
    LENT,
    OTHER_RENTS,
    RENTALS,
    STORAGE_USD,
    TRAINED,
    USED,
    XEONS,
    published,
)
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
    return found | {"power": (found["watts"] + found["around"]) / 1000 * found["kwh"]}


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
    hours = given["weekly"] * given["weeks"] / (1 - given["back"])
    paid = given["prices"][0], given["prices"][1] + given["computer"]
    owned = {usd: usd / hours + given["power"] for usd in paid}
    of = offers(given["rents"], given["card"], owned, given["kwh"])
    return what_they_buy(traced_in("float32"), given["most"], given["million"], of, known())


@lru_cache
def traced_in(precision: str) -> StepTrace:
    with torch.device("meta"):
        return training_step(networks.resnet50(), (3, 224, 224), 1000, precision=precision, name="ResNet-50")


def of(column: str, how: str, card: str) -> float:
    """Of "days" or "dollars", in float32 or ", mixed"."""
    kind, _, mixed = column.partition(", ")
    found = str(budgets().loc[(how, card), f"{kind}; mixed"]).replace(",", "").split("; ")
    return float(found[bool(mixed)])


def test_the_rents_of_the_change_cell_are_of_one_seller_and_day_and_its_prices_those_of_used_cards() -> None:
    given = change_cell()
    of_a_day = [one for one in RENTALS if (one.provider, one.seen) == (COMMUNITY, "2025-07-13")]
    assert given["rents"] == {one.device: one.usd_per_hour for one in of_a_day}
    assert "RunPod Community, July 2025" in text_of_the_lesson()
    used = [row for row in USED if row.device == given["card"]]
    assert given["prices"] == (min(row.low_usd for row in used), max(row.high_usd for row in used))
    assert given["million"] == round(90 * 1_281_167 / 1e6)
    low, high = given["prices"]
    assert f"Guides of 2026 give {low:,} to {high:,} dollars" in text_of_the_lesson()


def test_what_imagenet_costs_is_said() -> None:
    rent = {card: [round(of(column, "rented", card)) for column in ("dollars", "dollars, mixed")] for card in RTX}
    (plain, mixed), (plain_4090, mixed_4090) = rent.values()
    text = text_of_the_lesson()
    assert f"cost {plain} dollars on a rented RTX 3090 and {mixed} in mixed precision" in text
    assert plain_4090 > plain
    assert mixed_4090 >= mixed
    days = [round(of("days, mixed", "lent by Kaggle", cards)) for cards in ("T4", "2 x T4")]
    assert f"one T4 takes {days[0]} days in mixed precision, and both {days[1]} at least" in text
    images = 115e6 / (of("days, mixed", "lent by Kaggle", "2 x T4") / 7 * 30 * 3600)
    assert f"if the CPU cores decode {round(images, -1):.0f} images a second" in text
    storage = 150 * STORAGE_USD / (365 * 24 / 12)
    assert f"150 GB of storage, {100 * storage:.0f} cents an hour" in text
    runs = int(300 / of("dollars, mixed", "rented", "RTX 3090") / (1 + storage / 0.22))
    assert f"pay for {runs} such runs" in text


def test_the_ranking_is_of_the_cards_entered() -> None:
    text, rents = text_of_the_lesson(), change_cell()["rents"]
    v100, usual = (of("dollars, mixed", "rented", card) for card in ("V100", "RTX 3090"))
    assert 0.9 < v100 / usual < 1
    assert "In mixed precision a V100 is a tie (within a tenth)" in text
    (timed,) = (row for row in TRAINED if row.device == "RTX 3090")
    share = sorted(rate * ms / 1e3 for rate, ms in zip(A5000, (timed.full_ms, timed.half_ms), strict=True))
    assert f"{100 * share[0]:.0f} to {100 * share[1]:.0f} % as fast as the RTX 3090" in text
    assert all(1 < one * rents["RTX 3090"] / OTHER_RENTS["RTX A5000"] < 1.1 for one in share)
    usd = list(OTHER_RENTS.values())
    assert f"RTX A5000 of 24 GB, {usd[0]:.2f} an hour" in text
    assert f"asked {usd[1]:.2f} for an RTX A6000 of 48 GB and {usd[2]:.2f} for an A100 of 80" in text
    assert [(one.device, one.cards) for one in LENT] == [("T4", 2)]


def ratios(rents: dict[str, float], card: str, networks: slice) -> list[float]:
    return [float(one) for row in more_for_a_dollar(rents)[card].iloc[networks] for one in row.split("; ")]


def test_for_transformers_the_4090_trains_more_for_a_dollar() -> None:
    rents, two = change_cell()["rents"], slice(1, 3)
    more = [round(100 * (one - 1)) for one in ratios(rents, "RTX 4090", two)]
    assert f"On an RTX 4090 {min(more)} to {max(more)} % more, and sooner" in text_of_the_lesson()
    assert max(ratios(rents, "RTX 4090", slice(0, 1))) < 1
    v100, others = (ratios(rents, card, two) for card in ("V100", "RTX 4090"))
    assert [one > max(other, 1) for one, other in zip(v100, others, strict=True)] == [False, True, False, False]
    secure = {rental.device: rental.usd_per_hour for rental in RENTALS if rental.provider == "RunPod Secure"}
    assert f"RunPod Secure, {secure['RTX 3090']:.2f} and {secure['RTX 4090']:.2f}: does" in text_of_the_lesson()
    assert min(ratios(rents | secure, "RTX 4090", two)) >= 1 > max(ratios(rents | secure, "RTX 4090", slice(0, 1)))


def test_your_own_card_runs_around_the_clock_and_costs_what_you_lose() -> None:
    given = change_cell()
    for usd in (500, 1500):
        row = budgets().loc[(f"your own, {usd:,} paid", given["card"])]
        assert row["dollars an hour"] == f"{usd * 0.5 / 2080 + 0.09:.2f}"
        assert row["days; mixed"] == budgets().loc[("rented", given["card"]), "days; mixed"]


def test_the_cpu_takes_years_and_its_electricity_more_than_any_rent() -> None:
    days, dollars = (of(column, "no card", XEONS) for column in ("days", "dollars"))
    assert dollars > max(of("dollars", how, card) for how, card in budgets().index[1:])
    text = text_of_the_lesson()
    assert f"take {days / 365:.1f} years by their old timing" in text
    assert f"electricity at 0.17 kW, {round(dollars, -1):.0f} dollars, is more" in text


def test_what_a_cpu_is_enough_for_is_said() -> None:
    (row,) = published("ResNet-50", XEONS)
    head, few = 10_000 * row.forward_ms / row.batch / 1e3, 100_000 * row.per_sample_ms / 1e3
    text = text_of_the_lesson()
    assert f"a head on 10,000 images takes the Xeons {duration(head)} (" in text
    borrowed = 100_000 / speed(traced_in("float32"), usual_batch(traced_in("float32"), 256, "T4"), "T4", known())
    assert f"All layers for 10 epochs take them {duration(few)} and a T4 {duration(borrowed)}: borrow one" in text
    written = [duration(seconds) for seconds in (30, 150, 36_000, 1e6)]
    assert written == ["30 seconds", "2.5 minutes", "10 hours", "12 days"]


def test_in_mixed_precision_the_v100s_rent_turns_the_choice_over_and_no_other() -> None:
    given = change_cell()
    table = flips(traced_in("float32"), given["most"], given["rents"], known())
    for choice, row in table.iterrows():
        assert str(choice).endswith("not RTX 3090")
        assert float(row["below a rent of"]) < float(row["your rent"])
        assert (float(row["in mixed precision"]) > float(row["your rent"])) == ("V100" in str(choice))
    v100 = table.loc["rent V100, not RTX 3090"]
    assert f"its limit, {v100['your rent']} against {v100['in mixed precision']}: a tie" in text_of_the_lesson()


def test_of_every_seller_a_4090s_sample_costs_more_than_a_3090s() -> None:
    sellers = {rental.provider for rental in RENTALS if rental.device == "RTX 3090"}
    rents = [{one.device: one.usd_per_hour for one in RENTALS if one.provider == seller} for seller in sellers]
    dearer = [rent["RTX 4090"] / rent["RTX 3090"] for rent in rents]
    fast = [speed(traced_in("float32"), 256, card, known()) for card in RTX]
    gains = [gain(known(), card, "ResNet-50") or 0 for card in RTX]
    more = [times * fast[0] / fast[1] - 1 for times in dearer]
    more += [times * fast[0] * gains[0] / fast[1] / gains[1] - 1 for times in dearer]
    assert (len(sellers), round(min(dearer), 1), round(max(dearer), 1)) == (3, 1.5, 1.6)
    said = f"between {round(100 * min(more))} and {round(100 * max(more))} % more an image of ResNet-50"
    assert said in text_of_the_lesson()


def test_when_to_buy_is_said() -> None:
    given = change_cell()
    rents, weekly, weeks, power = rents_asked(given["card"]), given["weekly"], given["weeks"], given["power"]
    table = buying(given["prices"], given["computer"], rents, power, weekly, weeks)
    assert list(table.columns) == [f"{usd:.2f}, {seller}" for seller, usd in rents.items()]
    assert [seller.split(", ")[1] for seller in rents] == ["2026-09", "2025-07", "2025-07"]
    for row, paid in zip(table.index, (500, 1000, 1000, 1500), strict=True):
        for column, rent in zip(table, rents.values(), strict=True):
            hours, share = (float(part.split()[0]) for part in table.loc[row, column].split("; "))
            assert hours == ceil(paid / (rent - power) / weeks)
            lost = paid * (1 - share / 100)  # with this share back, these hours cost the same either way
            same = pytest.approx(weekly * weeks * (rent - power), abs=0.006 * paid)
            assert hours <= weekly if not share else lost == same
    text = text_of_the_lesson()
    assert f"Read *{table.iloc[0, 0]}* so" in text
    alone = buying((500,), 0, rents, given["watts"] / 1000 * given["kwh"], weekly, weeks).iloc[0, 0]
    hours, share = alone.split(" h; ")
    assert f"({hours} hours and {share} without the computer's {given['around']} W.)" in text
    assert table.iloc[0, -1].endswith("; 0 %")
    never = buying((3000,), 0, {"a": 0.18, "b": power}, power, 168, weeks)
    assert set(never.iloc[0]) == {"never; 48 %", "never"}


@lru_cache(maxsize=1)
def off() -> pd.DataFrame:
    """Every timing beside the model."""
    with torch.device("meta"):
        wide = wide_resnet()
    halves = {"ResNet-50": traced_in("float16"), "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam", "float16")}
    return against_timings(steps(), halves).droplevel("batch").sort_index()


def test_the_model_is_as_far_off_as_said() -> None:
    ratio = {card: [one.ratio for one in found] for card, found in known().items()}
    near = [one for card in (*RTX, "RTX 5090", "V100", "T4") for one in ratio[card]]
    assert max(abs(one - 1) for one in near) < 1 / 6
    text = text_of_the_lesson()
    assert min(abs(one - 1) for card in ("H100 SXM", XEONS) for one in ratio[card]) > 0.5
    assert "within a sixth of the timings of the RTX cards, the V100 and, with another network, the T4; of the" in text
    assert {one.network for one in known()["T4"]} == {"Wide ResNet"}
    beside = {"RTX 3090": (489, 836), "RTX 4090": (699, 1224)}  # as the page of the RTX 5090 has them
    rows = {row.device: row for row in TRAINED if row.network == "ResNet-50"}
    less = [1 - n * ms / 1e3 for c, two in beside.items()
            for n, ms in zip(two, (rows[c].full_ms, rows[c].half_ms), strict=True)]  # fmt: skip
    assert f"{100 * min(less):.0f} to {100 * max(less):.0f} % slower" in text
    table = off()
    assert float(table.loc[("RTX 3090", "ResNet-50", "Lambda"), "model / timed"]) == round(ratio["RTX 3090"][0], 2)


def test_mixed_precision_gains_a_t4_less_than_the_model_says() -> None:
    row = off().loc[("T4", "Wide ResNet", "Ceshine Lee")]
    said = f"{row['mixed, timed']} as fast was timed on the T4, the model has {row['by the model'].split()[0]}"
    assert said in text_of_the_lesson()
    with torch.device("meta"):
        assert sum(p.numel() for p in wide_resnet().parameters()) == pytest.approx(36.5e6, rel=0.01)


def test_a_reader_rents_a_card_that_no_list_has_and_takes_another_network() -> None:
    table = flips(traced_in("float32"), 32, {"RTX 3090": 0.18, "GTX 1080": 0.1}, known())
    assert list(table["asked"]) == [""]
    vgg = traced(networks.vgg16)
    of_vgg = what_they_buy(vgg, 32, 1, offers({"GTX 1080": 0.1}, "RTX 4090", {1600: 0.9}, 0.2), known())
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
