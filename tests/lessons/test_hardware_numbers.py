"""Numbers that the text of lesson 02 says, and no cell prints beside it."""

import re
from functools import lru_cache
from io import BytesIO
from math import ceil, inf, prod
from typing import Any

import pandas as pd
import pytest
import torch
from PIL import Image

from classroom import ROOT
from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device, devices
from course_utils.memory import ROLES, StepTrace
from course_utils.networks import NETWORKS
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, CourseError
from lessons.hardware.buying import (
    MONTH_HOURS,
    Rent,
    buying,
    electricity,
    pays_from,
    rents_asked,
    used_prices,
)
from lessons.hardware.claims import bytes_a_parameter, dense_net
from lessons.hardware.explorer import on_todays
from lessons.hardware.measured_here import HEIGHT, WIDTH, as_input, best_steps, decoded_a_second, photograph
from lessons.hardware.offers import (
    COMPARED,
    SMALL_CARDS,
    TIE,
    Check,
    against_timings,
    as_it_runs,
    card_named,
    checks,
    choices,
    duration,
    flips,
    offers,
    rent_range,
    same_work,
    speed,
    spread,
    timed,
    timed_before,
    todays_context,
    usual_batch,
    what_they_buy,
    wide_resnet,
)
from lessons.shared.language_models import Options
from lessons.shared.language_steps import language_step
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
    published,
)
from lessons.shared.sources import traced

LESSON = ROOT / "lessons/hardware/lesson.py"
NOTEBOOK = ROOT / "notebooks/02_hardware.ipynb"
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
    table = budgets()["fits up to"]
    assert table[("rented", "RTX 3090")] == fits[old]


@lru_cache(maxsize=1)
def change_cell() -> dict[str, Any]:
    """What the cell of budgets sets."""
    (cell,) = (cell for cell in LESSON.read_text(encoding="utf-8").split("\n# %%") if "\nrents = " in cell)
    head, _, tail = cell.partition("\ntask = ")
    lines = [line for line in (head + "\n" + tail.partition("\n")[2]).splitlines()[1:] if line[:1].isalpha()]
    found: dict[str, Any] = {"electricity": electricity}
    exec("\n".join(line for line in lines if not line.startswith("what_they_buy")), found)
    return found


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
    of = offers(given["rents"], given["owned"], given["kwh"])
    return what_they_buy(traced_in("float32"), given["most"], given["million"], of, known())


@lru_cache
def traced_in(precision: str) -> StepTrace:
    with torch.device("meta"):
        return training_step(networks.resnet50(), (3, 224, 224), 1000, precision=precision, name="ResNet-50")


def of(column: str, how: str, card: str) -> float:
    """Of "days" or "dollars", in float32 or ", mixed"."""
    kind, _, mixed = column.partition(", ")
    found = str(budgets().loc[(how, card), f"{kind}; mixed"]).replace(",", "").replace(TIE, "").split("; ")
    return float(found[bool(mixed)])


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


def of_exactly(card: str, mixed: bool = True) -> float:
    """Days of the 90 epochs on a rented card."""
    step = traced_in("float32")
    a_second = speed(step, usual_batch(step, change_cell()["most"], card), card, known())
    return 115e6 / 86_400 / a_second / ((known()[card][0].gain or 1) if mixed else 1)


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


@pytest.mark.parametrize("name", [*NETWORKS, "GPT-2"])
def test_in_adams_update_the_batch_itself_is_left_of_a_sample(name: str) -> None:
    """GPT-2's step holds on to its scores; weight decay copies gradients, and frees the copies before the roots."""
    if name == "GPT-2":
        few = 1
        step, holding = (
            language_step(name, sequence=1024, numbers="float32", optimizer="adam", keep_output=keep)
            for keep in (False, True)
        )
        scores = 4 * 1024 * 50_257
        assert in_update(holding, 2).sum() - in_update(holding, 1).sum() == pytest.approx(scores, rel=1e-3)
        sample = 8 * 1024  # token ids; the labels are the same tensor
    else:
        few, network = 64, NETWORKS[name]
        with torch.device("meta"):
            step = training_step(network.build(), network.input_shape, network.classes, "adam")
        sample = 4 * prod(network.input_shape) + 8  # values in float32, a label
    some, more = (in_update(step, batch) for batch in (few, few + 1))
    parameters = int(step.at(few).by_layer()["parameters"].sum())
    assert more.sum() - some.sum() == pytest.approx(sample, abs=8)
    assert some.sum() - 20 * parameters - few * sample < 17 * MIB  # what cuBLAS has, and buffers
    if name != "GPT-2":
        assert some[ROLES.index("feature maps")] + some[ROLES.index("gradient maps")] < 16
    assert bytes_a_parameter(lambda w: torch.optim.Adam(w, 1e-3, weight_decay=1e-4)) == pytest.approx(20, abs=0.1)


def in_update(step: StepTrace, batch: int) -> Any:
    """Bytes by role at the moment of the update that has most."""
    ledger = step.at(batch)
    update = ledger.matrix[ledger.phases == "update"]
    return update[update.sum(axis=1).argmax()]


def test_a_frozen_convolution_keeps_its_input_and_a_frozen_linear_layer_does_not() -> None:
    for layer, size, kept in ((torch.nn.Conv2d(3, 4, 3), (2, 3, 8, 8), True), (torch.nn.Linear(3, 4), (2, 3), False)):
        given, saved = torch.randn(size, requires_grad=True), list[torch.Tensor]()
        with torch.autograd.graph.saved_tensors_hooks(lambda one, to=saved: to.append(one), lambda one: one):
            layer.requires_grad_(False)(given)
        assert (given.data_ptr() in [one.data_ptr() for one in saved]) is kept
    assert "the input of a frozen convolution too (of a frozen linear layer it does not)" in text_of_the_lesson()


def test_what_decodes_gives_inputs_of_the_network() -> None:
    jpeg = photograph()
    with Image.open(BytesIO(jpeg)) as image:
        assert image.size == (WIDTH, HEIGHT) == (500, 375)
    tried = [as_input(jpeg) for _ in range(20)]
    assert {tuple(one.shape) for one in tried} == {NETWORKS["ResNet-50"].input_shape}
    assert all(one.dtype == torch.float32 and -2.5 < one.mean() < 2.5 for one in tried)
    threads = torch.get_num_threads()
    assert decoded_a_second(runs=2, images=1) > 0
    assert torch.get_num_threads() == threads
    x, y = torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)
    frozen = torch.nn.Sequential(torch.nn.Linear(3, 3).requires_grad_(False), torch.nn.Linear(3, 2))
    was = [one.clone() for one in frozen.parameters()]
    assert len(best_steps([frozen, torch.nn.Linear(3, 2)], x, y, rounds=2)) == 2
    assert [bool((a == b).all()) for a, b in zip(was, frozen.parameters(), strict=True)] == [True, True, False, False]


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


@lru_cache(maxsize=1)
def pays() -> pd.DataFrame:
    """The table of the lesson of when a used card is cheaper, by its own cell."""
    given = change_cell()
    (cell,) = (cell for cell in LESSON.read_text(encoding="utf-8").split("\n# %%") if "\npays_from(" in cell)
    found = {
        **{name: given[name] for name in ("own", "rents", "most", "power", "kwh", "weeks", "back")},
        **{one.__name__: one for one in (same_work, used_prices, spread, rent_range)},
        "task": traced_in("float32"),
        "known": known(),
    }
    exec(cell[cell.index("\ncases") : cell.index("\npays_from(")], found)
    return pays_from(found["cases"], given["weeks"], given["back"])


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


def test_the_rates_of_small_cards_are_cores_times_clock() -> None:
    """Cores, tensor cores, GHz, GB, GB/s, typed from their pages; a GeForce adds up in float32 at half the rate."""
    pages = {
        "RTX 3060": (3584, 112, 1.777, 12, 360),
        "RTX A4000": (6144, 192, 1.560, 16, 448),
        "RTX A5000": (8192, 256, 1.695, 24, 768),
    }
    assert pages.keys() == SMALL_CARDS.keys()
    for name, (cores, tensor_cores, clock, memory, bandwidth) in pages.items():
        card, halved = SMALL_CARDS[name], 1 if " A" in name else 2
        assert (card.memory_gb, card.bandwidth_gb_s) == (memory, bandwidth)
        assert card.usable_gb == {"RTX 3060": 11.76, "RTX A4000": 15.61, "RTX A5000": 23.67}[name]  # their issues
        assert card.float32_tflops == pytest.approx(cores * 2 * clock / 1e3, rel=0.005)
        assert card.tensor_tflops == pytest.approx(tensor_cores * 128 * 2 * clock / 1e3 / halved, rel=0.005)


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


def test_guesses_of_one_and_two_texts_are_those_of_the_thoughts_named() -> None:
    def most(optimizer: str, **options: Any) -> int:
        step = language_step("GPT-2", sequence=1024, options=Options(**options), numbers="float32", optimizer=optimizer)
        return largest_batch(step, 6 * GIB).fits

    assert most("momentum", attention="eager", dropout=0.1) == 1
    assert most("adam") == most("momentum", attention="eager") == 2
    assert most("momentum") == 3


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


def test_what_a_cpu_is_enough_for_is_said() -> None:
    (row,) = published("ResNet-50", XEONS)
    head, few = 10_000 * row.forward_ms / row.batch / 1e3, 100_000 * row.per_sample_ms / 1e3
    text = text_of_the_lesson()
    assert f"a head on 10,000 images takes the Xeons {duration(head)}: a CPU" in text
    borrowed = 100_000 / speed(traced_in("float32"), usual_batch(traced_in("float32"), 256, "T4"), "T4", known())
    assert f"All layers for 10 epochs take them {duration(few)} and a T4 {duration(borrowed)}: borrow one" in text
    written = [duration(seconds) for seconds in (30, 150, 36_000, 1e6)]
    assert written == ["30 seconds", "2.5 minutes", "10 hours", "12 days"]


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
    assert min(abs(one - 1) for card in ("H100 SXM", "RTX A4000", "RTX A5000", XEONS) for one in ratio[card]) > 1 / 6
    near_ones = "the RTX 3090, 4090 and 5090, the V100 and, with another network, the T4"
    assert f"within a sixth of the timings of {near_ones}" in text
    assert {one.network for one in known()["T4"]} == {"Wide ResNet"}
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
    assert table.loc["GTX 1080", "asked"] == table.loc["GTX 1080", "in mixed precision"] == ""
    vgg = traced(networks.vgg16)
    of_vgg = what_they_buy(vgg, 32, 1, offers({"GTX 1080": 0.1}, {("RTX 4090", 1600): 0.9}, 0.2), known())
    assert list(of_vgg["model / timed"])[-2:] == ["not timed", "1.09, ResNet-50"]
    assert choices({"GTX 1080": 0.1}).empty


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


def test_gaps_and_scratch_memory_count_for_more_on_six_gib() -> None:
    """The tensors alone of two networks would fit in larger batches than the rule says; no network really does."""
    more = []
    for name, network in NETWORKS.items():
        with torch.device("meta"):
            step = training_step(network.build(), network.input_shape, network.classes, "momentum")
        fits = largest_batch(step, 6 * GIB).fits
        parameters = int(step.at(fits).by_layer()["parameters"].sum())
        rule = (5632 * MIB - 12 * parameters) // (step.at(fits + 1).peak_bytes - step.at(fits).peak_bytes)
        assert fits <= rule
        assert (fits == rule) is (name == "GPT-2")  # for all others it promises too much
        if step.at(rule + 1).peak_bytes <= 5632 * MIB:
            more.append(name)
    assert sorted(more) == ["52 M dense net", "ResNet-50"]


def test_the_smallest_card_that_runs_inference_of_resnet_50() -> None:
    with torch.device("meta"):
        step = training_step(networks.resnet50(), (3, 224, 224), 1000, None)
    batches = {card.name: largest_batch(step, card, todays_context(card)) for card in devices() if card.memory_gb <= 8}
    assert {name for name, found in batches.items() if found.fits >= 256} == {"GTX Titan", "GTX 1080", "RTX 2080"}
    assert batches["GTX 980"].fits < 256 <= batches["GTX 980"].tight
    assert "for inference a GTX 1080's 8 GiB will do" in text_of_the_lesson()
