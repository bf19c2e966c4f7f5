"""How often the verdict erred, as kept, and as the pages say it."""

import json
import re

import pytest

from classroom import ROOT
from lessons.memory.ladder import LADDER_FOUND, ladder


def test_every_batch_has_one_verdict_and_the_halves_are_the_whole():
    whole, *halves = (ladder(rows) for rows in ("all", "first half", "second half"))
    assert whole == {name: sum(half[name] for half in halves) for name in whole}
    for kind in ("ran", "failed"):
        assert whole[kind] == sum(whole[f"{kind} {state}"] for state in ("fits", "tight", "no"))
    found = json.loads(LADDER_FOUND.read_text(encoding="utf-8"))
    missed = found["missed"]
    assert len({row["model"] for row in missed}) == whole["networks"] - whole["met"]
    for ran, states in ((False, ("fits",)), (True, ("tight", "no"))):
        for state in states:
            rows = [row for row in missed if (row["ran"], row["state"]) == (ran, state)]
            assert len(rows) == whole[f"{'ran' if ran else 'failed'} {state}"]
    twice = found["both_layouts"]
    assert twice["met"] <= twice["same"] <= twice["both"] <= whole["networks"]


@pytest.mark.parametrize("page", ["README.md", "docs/trace.md"])
def test_the_pages_say_what_was_found(page):
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    said = re.search(r"RTX 3090,? (?:of (\d+) batches that failed )?(\d+) are called \*fits\*", text)
    found = ladder()
    assert said
    assert int(said[2]) == found["failed fits"]
    assert f"{found['failed']} batches that failed" in text
    assert re.search(rf"of {found['ran']} that ran, none (is called )?\*no\*", text)
    assert found["ran no"] == 0
