"""Numbers that the text of lesson 02 says of what cards cost, to rent and to buy, and no cell prints beside it."""

import re
from math import ceil, inf

import pytest
from hardware_lesson import (
    NOTEBOOK,
    RTX,
    budgets,
    change_cell,
    known,
    of,
    of_exactly,
    pays,
    text_of_the_lesson,
    traced_in,
)

from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device
from course_utils.techniques.capacity import largest_batch
from course_utils.units import CourseError
from lessons.hardware.buying import (
    MONTH_HOURS,
    Rent,
    buying,
    electricity,
    pays_from,
    rents_asked,
    used_prices,
)
from lessons.hardware.explorer import on_todays
from lessons.hardware.offers import (
    COMPARED,
    TIE,
    as_it_runs,
    card_named,
    choices,
    flips,
    offers,
    rent_range,
    same_work,
    spread,
    timed,
    timed_before,
    what_they_buy,
)
from lessons.shared.published import (
    COMMUNITY,
    KAGGLE_CORES,
    KAGGLE_CORES_SOURCE,
    LENT,
    RENTALS,
    SECURE,
    STORAGE_USD,
    TIMED_AGAIN,
    USED,
    XEONS,
)
from lessons.shared.sources import traced


def test_cards_of_one_size_are_compared_with_kernels_loaded_alike() -> None:
    """An RTX 3090 holds as much as an RTX 4090; with the eager loading of 2022, which no RTX 4090 ever had, less."""
    step, old, new = traced(networks.resnet50), device("RTX 3090"), device("RTX 4090")
    fits = {one.device: one.largest_batch for one in on_todays(step, 1, [new, old])}
    assert list(fits) == [new, old]
    assert fits[old] == largest_batch(step, old, context(old, "lazy")).fits
    assert fits[old] == pytest.approx(fits[new], rel=0.01)
    assert largest_batch(step, old).fits < 0.95 * fits[new]
    assert not any(one.loading == "eager" for one in reports() if one.architecture == new.architecture)
    table = budgets()["fits up to"]
    assert table[("rented", "RTX 3090")] == fits[old]


def test_the_rents_of_the_change_cell_are_of_one_seller_and_day_and_its_prices_those_of_used_cards() -> None:
    given = change_cell()
    of_a_day = [one for one in RENTALS if (one.provider, one.seen) == (COMMUNITY, "2025-07-13")]
    assert given["rents"] == {one.device: one.usd_per_hour for one in of_a_day}
    assert "RunPod Community, July 2025" in text_of_the_lesson()
    assert given["million"] == round(90 * 1_281_167 / 1e6)
    for card, paid in given["own"].items():
        used = [row for row in USED if row.device == card]
        low, high = min(row.low_usd for row in used), max(row.high_usd for row in used)
        assert f"guides of 2026 give {low:,} to {high:,} dollars" in text_of_the_lesson()
        assert (low, high) == paid[:2] if card == "RTX 3090" else low < paid[0] < high


def test_what_imagenet_costs_is_said() -> None:
    plain, mixed = (round(of(column, "rented", "RTX A5000")) for column in ("dollars", "dollars, mixed"))
    text = text_of_the_lesson()
    assert f"cost {plain} dollars on a rented RTX A5000 and {mixed} in mixed precision" in text
    days = [round(of("days, mixed", "lent by Kaggle", cards)) for cards in ("T4", "2 x T4")]
    assert f"one T4 takes {days[0]} days in mixed precision, and two at least {days[1]} (if they were twice" in text
    assert KAGGLE_CORES == 2
    assert "Kaggle's machine had two cores in a run of 2024 (*Further*)" in text
    assert "if each decodes as fast as a thread here, they suffice for both cards" in text
    (threads,) = re.findall(r"2 T4 trains [\d,]+: ([\d.]+) such threads", NOTEBOOK.read_text("utf-8"))
    assert float(threads) < KAGGLE_CORES
    assert KAGGLE_CORES_SOURCE.startswith("a run's ")
    assert KAGGLE_CORES_SOURCE.endswith(" 2024-04")
    storage = 150 * STORAGE_USD["running"] / MONTH_HOURS
    assert f"150 GB of storage while it runs, {100 * storage:.0f} cents an hour" in text
    rent = change_cell()["rents"]["RTX A5000"]
    runs = [int(300 / (24 * of_exactly("RTX A5000", mixed) * (rent + storage))) for mixed in (False, True)]
    assert f"pay for {runs[0]} such runs, in mixed precision for {runs[1]}" in text


def test_a_tie_is_what_lists_of_timings_disagree_by() -> None:
    """The V100 and the RTX 3090 in mixed precision: by one list 1.09 times as fast, by the other 0.96 times."""
    first, second, *_ = TIMED_AGAIN.values()
    ours, theirs = (one["RTX 3090"][1] / one["V100"][1] for one in (first, second))
    assert spread() == pytest.approx(ours / theirs - 1)
    assert spread() < 0.8 * spread([*COMPARED, "A100"])
    assert spread(RTX) < 0.02 < spread()
    assert "A100" not in COMPARED | {card for _, card in budgets().index}
    assert {*change_cell()["rents"]} == COMPARED
    assert "=" not in str(budgets().loc[("rented", "RTX 5090"), "dollars; mixed"])
    assert not choices(change_cell()["rents"])["RTX 5090"].str.contains("=").any()
    text = text_of_the_lesson()
    assert f"marks cards within {100 * spread():.0f} % of the cheapest rented one" in text
    lambdas = [name for name in TIMED_AGAIN if name.startswith("Lambda")]
    assert [name[-4:] for name in lambdas] == ["2022", "2020"]
    told = f"an RTX 3090 was {theirs:.2f} times as fast as a V100 in 2020 and {ours:.2f} times in 2022"
    assert f"The {100 * spread():.0f} % are Lambda's and ResNet-50's alone: in mixed precision {told}" in text
    names = {table.columns.name for table in (budgets(), choices(change_cell()["rents"]))}
    assert names == {f"tie (=): within {100 * spread():.0f} %"}
    newer = [one / other - 1 for one, other in zip(first["RTX 3090"], second["RTX 3090"], strict=True)]
    assert f"found an RTX 3090 up to {100 * max(newer):.0f} % faster" in text
    tied = {card: str(budgets().loc[(how, card), "dollars; mixed"]).count("=") for how, card in budgets().index}
    assert {card for card, times in tied.items() if times == 2} == {
        "RTX A5000",
        "RTX 3090",
        "RTX 3090, 500 paid",
    }
    assert {card for card, times in tied.items() if times == 1} == {"V100"}
    assert [(one.device, one.cards) for one in LENT] == [("T4", 2)]


def test_a_tie_has_two_ends_and_the_table_names_how_near_it_is() -> None:
    """At Secure's rents a used RTX 3090 is far cheaper than any rented card; with an A100 the lists disagree more."""
    given = change_cell()
    secure = {one.device: one.usd_per_hour for one in RENTALS if one.provider == SECURE}
    step = traced_in("float32")
    table = what_they_buy(step, given["most"], given["million"], offers(secure, given["owned"], given["kwh"]), known())
    usd = {row: str(told).split("; ")[0] for row, told in table["dollars; mixed"].items()}
    own, rented = usd["your own", "RTX 3090, 500 paid"], usd["rented", "RTX A5000"]
    assert rented.endswith(TIE)
    assert not own.endswith(TIE)
    assert float(own) * (1 + spread()) < float(rented.removesuffix(TIE))
    assert f"a run costs {float(own):.0f} dollars, on the A5000 {float(rented.removesuffix(TIE)):.0f}" in (
        text_of_the_lesson()
    )
    more = {**given["rents"], "A100": 1.2}
    table = what_they_buy(step, given["most"], given["million"], offers(more, given["owned"], given["kwh"]), known())
    assert 100 * spread([*COMPARED, "A100"]) == pytest.approx(24, abs=0.5)
    assert table.columns.name == choices(more).columns.name == "tie (=): within 24 %"
    few = what_they_buy(step, 256, 0.1, offers({"T4": 0.2}, {}, 0.2), known())
    assert few.loc[("rented", "T4"), "dollars; mixed"] == f"0.035{TIE}; 0.019{TIE}"
    assert TIE not in few.loc[("lent by Kaggle", "T4"), "dollars; mixed"]


def test_an_own_card_without_watts_is_refused_in_a_line() -> None:
    with pytest.raises(CourseError, match="add to `watts` how many your RTX 4090 draws"):
        electricity({"RTX 4090": (1600,)}, {"RTX 3090": 350}, 100, 0.2)


def test_a_card_beside_no_other_is_refused_in_a_line_and_one_not_timed_has_no_mixed_row() -> None:
    step = traced_in("float32")
    with pytest.raises(CourseError, match="add a card to `rents` that does the work of the RTX 3090"):
        same_work(step, 256, "RTX 3090", {"RTX 3090": 0.22}, known())
    assert same_work(step, 256, "RTX 3060", change_cell()["rents"], known(), mixed=True)[1] == 0


def test_by_nvidias_program_the_v100_was_faster_and_its_a100_is_another_card() -> None:
    lambdas, nvidias = (
        next(of for name, of in TIMED_AGAIN.items() if name.startswith(by)) for by in ("Lambda", "NVIDIA")
    )
    faster = nvidias["V100"][1] / lambdas["V100"][1]
    assert f"(*channels last*), it was {faster:.1f} times as fast (*Further*)." in text_of_the_lesson()
    assert {"V100", "A100 SXM, 80 GB"} == {*nvidias}
    assert "A100" in lambdas


def test_who_rents_an_a100_too_has_more_ties() -> None:
    rents = change_cell()["rents"]
    fewer, more = (choices(one).map(lambda said: str(said).count("=")) for one in (rents, {**rents, "A100": 0.8}))
    assert (more[[*rents]] >= fewer[[*rents]]).all(axis=None)
    assert more.loc[("ResNet-50", "float32"), "RTX 4090"] == 1 > fewer.loc[("ResNet-50", "float32"), "RTX 4090"]


def test_the_cheapest_is_the_a5000_or_it_ties_but_for_one_transformer_in_float32() -> None:
    rents = change_cell()["rents"]
    table = choices(rents)
    found = list(table["cheapest"])
    assert found == ["RTX A5000", "RTX A5000", "RTX A5000", "V100", "RTX 4090", "RTX 4090"]
    without = table["RTX A5000"][~table["RTX A5000"].str.contains("=")]
    assert [*without.index] == [("Transformer-XL base", "float32")]
    row = ("Transformer-XL base", 0)
    times = {
        (network, i): timed(network)["RTX 3090"][i] / timed(network)["RTX A5000"][i]
        for network in ("ResNet-50", "BERT base", "Transformer-XL base")
        for i in (0, 1)
    }
    others = [one for of, one in times.items() if of != row]
    assert (
        f"there the RTX 3090 is {times[row]:.1f} times as fast as the A5000, in the other rows" in text_of_the_lesson()
    )
    assert f"in the other rows {min(others):.1f} to {max(others):.1f} times." in text_of_the_lesson()
    assert list(table.loc["BERT base"].index) == ["float32", "mixed"]
    text = text_of_the_lesson()
    assert "For ResNet-50 the cheapest is the RTX A5000" in text
    once, twice = timed("ResNet-50")["RTX A5000"], [*TIMED_AGAIN.values()][:2]
    usd = [rents[one] / of_a_dollar for one, of_a_dollar in (("RTX A5000", once[0]), ("RTX A5000", once[1]))]
    more = [rents["RTX 3090"] / of["RTX 3090"][i] - usd[i] for of in twice for i in (0, 1)]
    least, most = (115e6 / 3600 * one(more) for one in (min, max))
    assert f"A run costs {least:.1f} to {most:.1f} dollars more on the RTX 3090" in text
    assert all(one > two for of in twice for one, two in zip(of["RTX 3090"], once, strict=True))
    ties = [[usd[i] * of["RTX 3090"][i] / rents["RTX 3090"] * (1 + spread()) >= 1 for i in (0, 1)] for of in twice]
    assert ties == [[True, True], [False, False]]
    assert [line.split(":")[0] for line in timed_before(rents, "RTX 3090", "RTX A5000")[1:3]] == [
        "  0.92, mixed 0.94",
        "  0.84, mixed 0.82",
    ]
    assert timed_before({"RTX 3090": 0.22}, "RTX 3090", "RTX A5000") == []
    secure = {one.device: one.usd_per_hour for one in RENTALS if one.provider == SECURE}
    usd = [f"{secure[f'RTX {card}']:.2f}" for card in ("4090", "5090", "3090", "A4000", "A5000")]
    assert "Secure tier (data centers of its partners; in Community others rent out their machines) asked" in text
    told = "asked {} for it, {} for the RTX 5090, {} for the RTX 3090, {} and {} for the RTX A4000 and A5000".format(
        *usd
    )
    assert told in text_of_the_lesson()
    assert "V100" not in secure
    for rents in (secure, {**change_cell()["rents"], **secure}):  # whoever leaves the V100 in
        at_secure = choices({card: usd for card, usd in rents.items() if card != "V100"})
        resnet, others = at_secure.xs("ResNet-50"), at_secure.drop(index="ResNet-50", level=0)
        assert set(resnet["cheapest"]) == {"RTX A5000"}
        ties = at_secure.map(lambda one: str(one).count("=")).sum(axis=1)
        assert [*ties[ties > 1].index] == [("Transformer-XL base", "float32")]
        assert [*others.index[others["cheapest"] != "RTX A5000"]] == [("Transformer-XL base", "float32")]
        assert others.loc[("Transformer-XL base", "float32"), "cheapest"] == "RTX 4090"
        assert "=" in others.loc[("Transformer-XL base", "float32"), "RTX A5000"]


def test_when_a_used_card_pays() -> None:
    """A card of 500 dollars, each row by hand: its price over what an hour of it saves, in 104 weeks."""
    table, given = pays(), change_cell()
    rents, names = given["rents"], [*pays().index]
    days = [[of_exactly(card, mixed) for card in ("RTX A5000", "RTX 3090")] for mixed in (False, True)]
    hour = [rents["RTX A5000"] * there / here for there, here in days]
    off = 1 + spread()
    saved = {
        "500 paid": hour[0] - 0.09,
        f"500, {100 * spread():.0f} % slower": hour[0] / off - 0.09,
        "500, as much faster": hour[0] * off - 0.09,
        "500, in mixed precision": hour[1] - 0.09,
        "500, beside a rented one at 0.18": 0.18 - 0.09,
        **{f"500, {kwh:.2f} a kWh": hour[0] - 0.45 * kwh for kwh in (0.12, 0.30, 0.40)},
    }
    for name, usd in saved.items():
        for column, lost in (("unsold", 500), ("50 % comes back", 250)):
            least = ceil(lost / usd / 104)
            assert table.loc[f"RTX 3090, {name}", column] == (f"{least} h" if least <= 168 else "over 168 h")
    prices = [name for name in names if name.endswith("paid")]
    assert prices == [
        *(f"RTX 3060, {paid} paid" for paid in (150, 240, 300)),
        *(f"RTX 3090, {paid:,} paid" for paid in (500, 740, 1000, 1500)),
    ]
    assert len(names) == len(prices) + len(saved) - 1
    assert pays_from({"a": (500, 0.0)}, 104, 0.5).loc["a", "unsold"] == "never"
    assert used_prices("RTX 4090") == ()


def test_the_decision_of_each_budget_follows_and_flips_as_said() -> None:
    given, text = change_cell(), text_of_the_lesson()
    t4 = device("T4")
    assert f"even a small batch with frozen layers does not fit a T4's {t4.usable_gb:.1f} GiB" in text
    power, weekly, weeks = given["power"]["RTX 3090"], given["weekly"], given["weeks"]
    other, usd = same_work(traced_in("float32"), given["most"], "RTX 3090", given["rents"], known())
    assert other == "RTX A5000"
    assert usd == pytest.approx(
        given["rents"][other] * of_exactly(other, mixed=False) / of_exactly("RTX 3090", mixed=False)
    )
    beside = buying((500,), {other: Rent(usd)}, power, weekly, weeks).loc[other]
    assert f"Read *{beside['500 paid']}* so" in text
    hours, share = beside["500 paid"].removesuffix(" %").split(" h; ")
    told = f"it has to work {hours} hours a week (rounded up) for two years; if it works 20, you need {share} %"
    assert told in text
    assert (given["weekly"], given["weeks"], given["back"], given["kwh"]) == (20, 104, 0.5, 0.20)
    lowest, _ = used_prices("RTX 3090")
    assert lowest == min(given["own"]["RTX 3090"])
    table = pays().map(lambda told: told.removesuffix(" h"))
    alone, within = (list(table.loc[f"RTX 3090, {paid:,} paid"]) for paid in (lowest, lowest + 500))
    rented, _ = table.loc[f"RTX 3090, {lowest}, beside a rented one at 0.18"]
    assert f"a used 3090 for {lowest}, if it works {alone[0]} to {rented} hours a week for two years, unsold." in text
    assert f"it is {alone[0]} hours beside a rented A5000, {rented} beside that 3090 at 0.18." in text
    told = f"Of the {alone[0]} hours {alone[1]} are enough if half comes back; with a 500-dollar computer it is"
    assert f"{told} {within[0]} and {within[1]}." in text
    small, sold = table.loc["RTX 3060, 300 paid"]
    told = f"A used RTX 3060 of 300 dollars has to work {small} hours a week for two years, {sold} if half comes back"
    assert told in text
    assert abs(of("days, mixed", "lent by Kaggle", "T4") - 26) < 0.5
    lesson = text_of_the_lesson()
    assert "or 26 days are too long" in lesson
    lowest_rent = min(rent_range("RTX 3090"))
    asks = next(one for one in RENTALS if (one.device, one.usd_per_hour) == ("RTX 3090", lowest_rent))
    assert (asks.provider, asks.seen[:7]) == ("OpenRelay", "2026-09")
    told = f"at {lowest_rent}, which OpenRelay asked in September 2026, 14 months later, a 3090 ties with that A5000"
    assert f"{told} in float32 and is cheaper in mixed precision" in text
    for mixed in (False, True):
        same = same_work(traced_in("float32"), given["most"], "RTX 3090", {"RTX A5000": 0.16}, known(), mixed)[1]
        assert lowest_rent < 0.20 < same < 0.21
        assert (same / lowest_rent > 1 + spread()) is mixed
    assert given["rents"]["RTX A5000"] == 0.16
    assert "rent an RTX A5000 at 0.16, or an RTX 3090 below 0.20" in text
    less, more = (of_exactly("RTX 4090", mixed) / of_exactly("RTX A5000", mixed) for mixed in (False, True))
    assert abs(less - more) < 0.03
    rents = given["rents"]["RTX 4090"] / given["rents"]["RTX A5000"]
    assert f"takes {100 * less:.0f} % of the A5000's time for a fifth more money" in text
    assert less * rents - 1 == pytest.approx(0.2, abs=0.015)
    asked = next(one for one in RENTALS if (one.device, one.provider) == ("RTX 4090", "OpenRelay"))
    assert f"its 4090, at {asked.usd_per_hour}, ties" in text
    for part in (less, more):
        again = asked.usd_per_hour / given["rents"]["RTX A5000"] * part
        assert abs(again - 1) < 0.03
    assert "=" in str(budgets().loc[("your own", "RTX 3090, 500 paid"), "dollars; mixed"])


def test_the_3060_is_not_timed_and_the_model_was_too_fast_on_others() -> None:
    assert budgets().loc[("your own", "RTX 3060, 300 paid"), "model / timed"] == "not timed"
    new = [known()[card][0].ratio for card in known() if card != XEONS and card not in ("V100", "T4", "P100")]
    least, most = (100 * (one(new) - 1) for one in (min, max))
    assert f"from 2020 on the model was {least:.0f} to {most:.0f} % too fast" in text_of_the_lesson()


def test_the_images_for_a_dollar_that_are_guessed() -> None:
    given, text = change_cell(), text_of_the_lesson()
    names = "RTX 4090", "RTX A5000"
    pair = [card_named(one) for one in names]
    cents = [round(100 * given["rents"][one]) for one in names]
    assert f"An hour of an RTX 4090 costs {cents[0]} cents, of an RTX A5000 {cents[1]}" in text
    for told in ([card.float32_tflops for card in pair], [card.bandwidth_gb_s for card in pair]):
        assert all(f"{one:,g}" in text for one in told)
    first, second = (timed("ResNet-50")[one][0] for one in names)
    times = f"costs {cents[0] / cents[1]:.1f} times as much and was timed {first / second:.1f} times as fast"
    assert times in text
    assert "{:.1f} and {:.1f} in TF32".format(*(as_it_runs(one).float32_tflops for one in pair)) in text
    by_rate = pair[0].float32_tflops / pair[1].float32_tflops * cents[1] / cents[0]
    assert first / second * cents[1] / cents[0] < 1 < by_rate  # who bets by the rates bets on the wrong card


def test_your_own_card_runs_around_the_clock_and_costs_what_you_lose() -> None:
    for usd in (500, 1000, 1500):
        row = budgets().loc[("your own", f"RTX 3090, {usd:,} paid")]
        assert row["dollars an hour"] == f"{usd * 0.5 / 2080 + 0.09:.2f}"
        assert row["days; mixed"] == budgets().loc[("rented", "RTX 3090"), "days; mixed"]


def test_the_cpus_electricity_costs_more_than_any_other_row() -> None:
    dollars = of("dollars", "no card", XEONS)
    assert dollars > max(of("dollars", how, card) for how, card in budgets().index[1:])
    assert (
        f"of the Xeons draw electricity for {round(dollars, -1):.0f} dollars, more than any other row"
        in text_of_the_lesson()
    )


def test_the_stored_copys_16_cores_take_weeks() -> None:
    """29 days where nothing else ran when it was built, 211 where much did."""
    (said,) = re.findall(r"times the work of \d+: ([\d,]+) days, ([\d,]+) dollars at", NOTEBOOK.read_text("utf-8"))
    days, dollars = (float(one.replace(",", "")) for one in said)
    assert days > 20
    assert dollars > of("dollars", "rented", "RTX A5000")
    assert "Even so ImageNet takes weeks and costs more than the rented card's run" in text_of_the_lesson()


def test_up_to_which_rents_cards_tie() -> None:
    given = change_cell()
    table = flips(traced_in("float32"), given["most"], given["rents"], known())
    for card, row in table.iterrows():
        costs = str(budgets().loc[("rented", card), "dollars; mixed"]).split("; ")
        for limit, cost in zip(("ties up to a rent of", "in mixed precision"), costs, strict=True):
            assert (float(row[limit]) >= given["rents"][card]) == cost.endswith("=")
    assert f"The RTX 4090 ties up to {table.loc['RTX 4090', 'ties up to a rent of']} dollars in float32" in (
        text_of_the_lesson()
    )


def test_when_to_buy_is_said() -> None:
    given = change_cell()
    rents, weekly, weeks, power = (
        rents_asked("RTX 3090", 150),
        given["weekly"],
        given["weeks"],
        given["power"]["RTX 3090"],
    )
    table = buying(given["own"]["RTX 3090"], rents, power, weekly, weeks)
    assert [name.count("150 GB") for name in rents] == [0, 0, 1, 0, 1]
    for name, rent in rents.items():
        for paid in given["own"]["RTX 3090"]:
            told, share = (part.split()[0] for part in table.loc[name, f"{paid:,} paid"].split("; "))

            def renting(hours: float, rent: Rent = rent) -> float:
                return weeks * (hours * (rent.usd + rent.running) + (168 - hours) * rent.stopped)

            hours = float(told) if told not in ("never", "over") else inf
            assert hours == inf or paid + hours * weeks * power <= renting(hours) + 1e-6
            assert not hours or paid + (hours - 1) * weeks * power > renting(hours - 1)
            owning = paid * (1 - float(share) / 100) + weekly * weeks * power
            assert (
                owning <= renting(weekly)
                if share == "0"
                else owning == pytest.approx(renting(weekly), abs=0.006 * paid)
            )
    text = text_of_the_lesson()
    cents = [100 * STORAGE_USD[kind] for kind in ("running", "stopped", "network")]
    said = "a GB costs {:.0f} cents a month while the machine runs and {:.0f} while it is stopped"
    assert said.format(*cents) + f", in Secure's network volumes {cents[2]:.0f}" in text
    kept = rents[next(name for name in rents if COMMUNITY in name and "GB" in name)]
    stored = weeks * 168 * kept.stopped
    told = f"costs more than the card: {stored:.0f} dollars for two years on a machine that never runs"
    assert told in text
    never = buying((3000,), {"a": Rent(0.18), "b": Rent(power), "c": Rent(0.05)}, power, 168, weeks)
    assert [one.split(";")[0] for one in never["3,000 paid"]] == ["over 168 h", "never", "never"]


def test_a_reader_rents_a_card_that_no_list_has_and_takes_another_network() -> None:
    table = flips(traced_in("float32"), 32, {"RTX 3090": 0.18, "GTX 1080": 0.1}, known())
    assert table.loc["GTX 1080", "asked"] == table.loc["GTX 1080", "in mixed precision"] == ""
    vgg = traced(networks.vgg16)
    of_vgg = what_they_buy(vgg, 32, 1, offers({"GTX 1080": 0.1}, {("RTX 4090", 1600): 0.9}, 0.2), known())
    assert list(of_vgg["model / timed"])[-2:] == ["not timed", "1.09, ResNet-50"]
    assert choices({"GTX 1080": 0.1}).empty
