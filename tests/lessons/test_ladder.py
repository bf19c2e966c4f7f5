"""How often the verdict erred, as kept, and as the pages say it."""

import json
import re

import pytest

from classroom import ROOT
from lessons.hardware.ladder import LADDER_FOUND, ladder


def test_every_batch_has_one_verdict_and_the_halves_are_the_whole():
    whole, *halves = (ladder(rows) for rows in ("all", "first half", "second half"))
    assert whole == {name: sum(half[name] for half in halves) for name in whole}
    for kind in ("ran", "failed"):
        assert whole[kind] == sum(whole[f"{kind} {state}"] for state in ("fits", "tight", "no"))
    missed = whole["networks"] - whole["met"]
    assert missed <= whole["failed fits"] + whole["ran tight"] + whole["ran no"] <= 2 * missed
    wrong = json.loads(LADDER_FOUND.read_text(encoding="utf-8"))["wrong"]
    assert [row["ran"] for row in wrong].count(False) == whole["failed fits"]
    assert [row["ran"] for row in wrong].count(True) == whole["ran no"]


@pytest.mark.parametrize("page", ["README.md", "docs/trace.md"])
def test_the_pages_say_what_was_found(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    said = re.search(r"RTX 3090,? (?:of (\d+) batches that failed )?(\d+) are called \*fits\*", text)
    found = ladder()
    assert said
    assert int(said[2]) == found["failed fits"]
    assert f"{found['failed']} batches that failed" in text
    assert f"of {found['ran']} that ran, one is called *no*" in text
    assert found["ran no"] == 1
