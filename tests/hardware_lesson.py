"""What the tests of the numbers of lesson 02 share: its text, what its cells set, and its tables made again."""

import re
from functools import lru_cache
from typing import Any

import pandas as pd
import torch

from classroom import ROOT
from course_utils import networks
from course_utils.memory import StepTrace
from course_utils.trace import training_step
from lessons.hardware.buying import (
    electricity,
    pays_from,
    used_prices,
)
from lessons.hardware.offers import (
    TIE,
    Check,
    against_timings,
    checks,
    offers,
    rent_range,
    same_work,
    speed,
    spread,
    usual_batch,
    what_they_buy,
    wide_resnet,
)

LESSON = ROOT / "lessons/hardware/lesson.py"
NOTEBOOK = ROOT / "notebooks/02_hardware.ipynb"
RTX = ("RTX 3090", "RTX 4090")


def text_of_the_lesson() -> str:
    return re.sub(r"\n# *", " ", LESSON.read_text(encoding="utf-8"))


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


def of_exactly(card: str, mixed: bool = True) -> float:
    """Days of the 90 epochs on a rented card."""
    step = traced_in("float32")
    a_second = speed(step, usual_batch(step, change_cell()["most"], card), card, known())
    return 115e6 / 86_400 / a_second / ((known()[card][0].gain or 1) if mixed else 1)


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


@lru_cache(maxsize=1)
def off() -> pd.DataFrame:
    """Every timing beside the model."""
    with torch.device("meta"):
        wide = wide_resnet()
    halves = {"ResNet-50": traced_in("float16"), "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam", "float16")}
    return against_timings(steps(), halves).droplevel("batch").sort_index()
