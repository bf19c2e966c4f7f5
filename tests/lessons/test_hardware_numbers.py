"""Numbers that the text of lesson 02 says, and no cell prints beside it."""

import re

from classroom import ROOT
from course_utils import networks
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device
from course_utils.techniques.capacity import largest_batch
from course_utils.units import MIB, format_bytes
from lessons.hardware.offers import MONTH_DAYS, offers, rent_usd
from lessons.shared.sources import traced

LESSON = ROOT / "lessons/hardware/lesson.py"


def text_of_the_lesson() -> str:
    return re.sub(r"\n# *", " ", LESSON.read_text(encoding="utf-8"))


def test_contexts_are_those_of_the_reports() -> None:
    text, card = text_of_the_lesson(), device("RTX 3090")
    lazy = [one.mib for one in reports() if one.architecture == card.architecture and one.loading == "lazy"]
    assert f"For the RTX 3090 the course allows {format_bytes(context(card).most)}, seen in 2022 on an A100" in text
    assert f"with lazy loading the most reported for it is {max(lazy):.0f} MiB" in text
    assert f"*small* one of {context().least // MIB} MiB" in text


def test_the_old_report_is_why_an_rtx_3090_holds_less() -> None:
    """Without it, it holds as much as the RTX 4090, which has as much memory."""
    step, old, new = traced(networks.resnet50), device("RTX 3090"), device("RTX 4090")
    assert largest_batch(step, old).fits < largest_batch(step, new).fits
    assert largest_batch(step, old, context(old, "lazy")).fits == largest_batch(step, new).fits


def test_the_decision_names_what_a_month_costs() -> None:
    month = {name: f"{MONTH_DAYS * 24 * rent_usd(name):.0f}" for name in ("A100", "RTX 3090")}
    text, all_month = text_of_the_lesson(), {one.budget.split()[0] for one in offers() if one.hours == MONTH_DAYS * 24}
    assert set(month.values()) <= all_month
    lowest = f"an A100 (at the lowest rent {month['A100']})"
    assert f"{lowest}, or for about half the samples an RTX 3090 ({month['RTX 3090']})" in text
