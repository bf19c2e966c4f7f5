"""Numbers that the text of lesson 02 says, and no cell prints beside it."""

import re
from functools import lru_cache
from typing import Any

import pandas as pd
import pytest
import torch

from classroom import ROOT
from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import MIB, format_bytes
from lessons.hardware.claims import dense_net
from lessons.hardware.offers import (
    against_timings,
    flips,
    model_speed,
    rent_range,
    timed_speed,
    what_they_buy,
    wide_resnet,
)
from lessons.shared.published import HALVES, NEF_TIMES, RENTALS, TRAINED, USED
from lessons.shared.sources import traced

LESSON = ROOT / "lessons/hardware/lesson.py"


def text_of_the_lesson() -> str:
    return re.sub(r"\n# *", " ", LESSON.read_text(encoding="utf-8"))


def test_contexts_are_those_of_the_reports() -> None:
    text, card = text_of_the_lesson(), device("RTX 3090")
    lazy = [one.mib for one in reports() if one.architecture == card.architecture and one.loading == "lazy"]
    assert f"For the RTX 3090 that is {format_bytes(context(card).most)}, seen in 2022 on an A100" in text
    assert max(lazy) < context(card, "lazy").most == context(device("RTX 4090")).most
    assert f"*small* one of {context().least // MIB} MiB" in text


def test_the_old_report_is_why_an_rtx_3090_holds_less() -> None:
    """Without it, it holds as much as the RTX 4090, which has as much memory."""
    step, old, new = traced(networks.resnet50), device("RTX 3090"), device("RTX 4090")
    assert largest_batch(step, old).fits < largest_batch(step, new).fits
    assert largest_batch(step, old, context(old, "lazy")).fits == largest_batch(step, new).fits


@lru_cache(maxsize=1)
def change_cell() -> dict[str, Any]:
    """What the cell of budgets sets."""
    (cell,) = (cell for cell in LESSON.read_text(encoding="utf-8").split("\n# %%") if "\nrents = " in cell)
    lines = [line for line in cell.splitlines()[1:] if " = " in line and not line.startswith("#")]
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    return found


@lru_cache(maxsize=1)
def budgets() -> pd.DataFrame:
    given = change_cell()
    task = traced_in("float32"), given["batch"], given["million"]
    return what_they_buy(*task, given["rents"], given["card"], given["owned"])


def timed(network: str, card: str, precision: str) -> float:
    speed = timed_speed(network, card, precision)
    assert speed is not None
    return speed


@lru_cache
def traced_in(precision: str) -> StepTrace:
    with torch.device("meta"):
        return training_step(networks.resnet50(), (3, 224, 224), 1000, precision=precision, name="ResNet-50")


def test_the_rents_of_the_change_cell_are_the_lowest_asked_and_its_prices_those_of_used_cards() -> None:
    given, (used,) = change_cell(), USED
    assert given["rents"] == {card: rent_range(card)[0] for card in given["rents"]}
    assert (given["card"], given["price"]) == (used.device, used.low_usd)
    assert list(given["owned"]) == [given["price"], given["price"] + given["computer"]]
    assert given["million"] == round(90 * 1_281_167 / 1e6)


def test_what_imagenet_costs_is_said() -> None:
    table = budgets()
    cost = {card: round(float(table.loc[("rented", card), "dollars for it"])) for card in ("RTX 3090", "RTX 4090")}
    days = round(float(table.loc[("lent by Kaggle", "P100"), "days for the task"]))
    said = f"cost {cost['RTX 3090']} dollars on an RTX 3090 and {cost['RTX 4090']} on an RTX 4090"
    assert said in text_of_the_lesson()
    assert f"for nothing they take a P100 {days} days" in text_of_the_lesson()


def test_a_month_of_a_rented_4090_is_what_a_reader_computed() -> None:
    table = budgets()
    month = table.loc[("rented", "RTX 4090")]
    assert (month["dollars a month"], month["million a month"]) == ("209", "1,845")
    assert float(month["million a dollar"]) == pytest.approx(1845 / 209, abs=0.05)


def test_no_faster_card_is_cheaper_by_the_sample_and_the_4090_costs_a_tenth_more() -> None:
    given = change_cell()
    rents, owned, card = given["rents"], given["owned"], given["card"]
    table = flips(traced_in("float32"), given["batch"], rents, card, owned)
    for choice, row in table.iterrows():
        lowest = float(row["asked"].split(" to ")[0])
        limit = float(row["below a rent of, by the model"])
        if "not buy" in str(choice):
            assert row["below a rent of, by the model"] == row["by timed speeds"]
            assert lowest < limit, choice
        else:
            assert limit < lowest, choice
            assert not row["by timed speeds"] or float(row["by timed speeds"]) < lowest
    speed = {one: model_speed(traced_in("float32"), 32, one) for one in ("RTX 3090", "RTX 4090")}
    sellers = {rental.provider for rental in RENTALS if rental.device == "RTX 3090"}
    dearer = []
    for seller in sellers:
        rent = {rental.device: rental.usd_per_hour for rental in RENTALS if rental.provider == seller}
        dearer.append(rent["RTX 4090"] / rent["RTX 3090"])
    assert (len(sellers), round(min(dearer), 1), round(max(dearer), 1)) == (3, 1.5, 1.6)
    assert round(speed["RTX 4090"] / speed["RTX 3090"], 1) == 1.4
    assert all(0.08 < one * speed["RTX 3090"] / speed["RTX 4090"] - 1 < 0.15 for one in dearer)


def test_at_the_dearest_rent_of_a_3090_another_card_is_the_best() -> None:
    given = change_cell()
    rents = given["rents"] | {"RTX 3090": rent_range("RTX 3090")[1]}
    table = flips(traced_in("float32"), 32, rents, given["card"], given["owned"])
    assert "rent RTX 3090, not RTX 4090" in table.index
    assert f"put in the dearest, {rents['RTX 3090']:.2f}" in text_of_the_lesson()


@lru_cache(maxsize=1)
def off() -> pd.DataFrame:
    """How much faster the model is than what was timed, by network, card and publication."""
    with torch.device("meta"):
        wide = wide_resnet()
    steps = {("ResNet-50", one): traced_in(one) for one in ("float32", "float16")}
    steps |= {("Wide ResNet", one): training_step(wide, (3, 32, 32), 10, "adam", one) for one in ("float32", "float16")}
    table = against_timings(steps)[["float32, model / timed", "mixed, model / timed"]].astype(float)
    return table.set_axis(["float32", "mixed"], axis="columns").droplevel("batch").sort_index()


def test_the_model_is_as_far_off_as_said() -> None:
    full, mixed = off()["float32"], off()["mixed"]
    for card in ("RTX 3090", "RTX 4090"):
        assert 1 < full["ResNet-50", card, "Lambda"] < 1.1
        assert round(6 * (mixed["ResNet-50", card, "Lambda"] - 1)) == 1
    of_a100 = off().loc["ResNet-50", "A100"]
    assert len(of_a100) == 2
    assert of_a100.max().max() == pytest.approx(1.8, abs=0.05)
    assert of_a100.min().min() > 1 / 1.8
    assert "trust the model within a factor of 1.8" in text_of_the_lesson()


def test_an_a100_costs_as_much_more_a_sample_as_said() -> None:
    base = next(row for row in TRAINED if row.device == "RTX 3090")
    dearer = rent_range("A100")[0] / rent_range("RTX 3090")[0]
    rows = [row for row in (*TRAINED, *HALVES) if (row.network, row.device) == ("ResNet-50", "A100")]
    times = [dearer * row.full_ms / base.full_ms for row in rows]
    times += [dearer * row.half_ms / base.half_ms for row in rows]
    assert f"samples cost {min(times):.1f} to {max(times):.1f} times as much" in text_of_the_lesson()


def test_the_t4_is_slower_in_mixed_precision_than_the_model_and_timed_the_faster_of_the_free_cards() -> None:
    with torch.device("meta"):
        network = wide_resnet()
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(36.5e6, rel=0.01)
    wide = off().loc["Wide ResNet"]
    too_fast = wide.loc[("T4", "Ceshine Lee"), "mixed"]
    assert (wide["float32"] - 1).abs().max() < 0.1
    assert abs(wide.loc[("P100", "Ceshine Lee"), "mixed"] - 1) < 0.1
    text, half = text_of_the_lesson(), traced_in("float16")
    t4, p100 = model_speed(half, 32, "T4"), model_speed(half, 32, "P100")
    assert f"{too_fast:.1f} times too fast for the T4 in mixed precision" in text
    assert f"the T4's {t4:.0f} may be {t4 / too_fast:.0f}, below the P100's {p100:.0f}" in text
    faster = timed("Wide ResNet", "T4", "float16") / timed("Wide ResNet", "P100", "float32")
    assert f"{faster:.1f} times a P100 for the wide ResNet" in text
    assert NEF_TIMES * model_speed(traced_in("float32"), 32, "T4") > p100


def test_what_a_used_card_needs_is_above_one_rent_and_below_another() -> None:
    given = change_cell()
    lowest, highest = rent_range(given["card"])
    alone, with_computer = given["owned"].values()
    assert lowest < alone < highest < with_computer, "before anything is sold again"


def test_a_reader_rents_a_card_that_no_list_has_and_buys_another() -> None:
    table = flips(traced_in("float32"), 32, {"RTX 3090": 0.18, "V100": 0.19}, "RTX 4090", {1600: 0.9})
    assert list(table["asked"]) == ["", "0.18 to 0.43"]
    speeds = [model_speed(traced_in("float32"), 32, card) for card in ("RTX 3090", "RTX 4090")]
    limit = float(table.loc["rent RTX 3090, not buy RTX 4090 for 1,600", "below a rent of, by the model"])
    assert limit == pytest.approx(0.9 * speeds[0] / speeds[1], abs=0.005)


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
