"""A lesson's slides with its explorer alive: one file that fits its slides, and says what the lab says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lab
import pytest
from amount import THOROUGH
from bs4 import BeautifulSoup
from slides_seen import walk

from classroom import ROOT
from classroom.notebooks import read_notebook, topics
from website.decks import explorer
from website.flipbook import choose, has_explorer, page_of
from website.slides import make_deck

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}"),
]
LESSONS = [name for name, folder in topics(ROOT).items() if has_explorer(folder.name)]
LESSONS = LESSONS if THOROUGH else LESSONS[:1]
EXPLORER = ".course-explorer"


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with lab.browser(1280, 720) as page:
        page.context.set_offline(True)
        yield page


def deck(name: str, folder: Path) -> tuple[Path, int]:
    path = ROOT / "notebooks" / f"{name}.ipynb"
    html, slides = make_deck(read_notebook(path), name, path.parent, explorer(path))
    file = folder / f"{name}.html"
    file.write_text(html, encoding="utf-8")
    return file, slides


@pytest.mark.parametrize("name", LESSONS)
def test_an_explorer_moves_on_its_slide_and_its_keys_turn_no_page(name: str, tmp_path: Path, tab: Any) -> None:
    file, slides = deck(name, tmp_path)
    faults, seen = walk(tab, file)
    assert not faults, "\n".join(faults)
    assert seen == slides
    tab.goto(file.as_uri())
    tab.wait_for_function("() => window.Reveal?.isReady()")
    tab.evaluate(
        """box => { const to = Reveal.getIndices(document.querySelector(box).closest('section'));
        Reveal.slide(to.h, to.v, 9); }""",
        EXPLORER,
    )
    tab.wait_for_selector(f"{EXPLORER}[data-ready]")
    number = tab.evaluate("Reveal.getSlidePastCount()")
    made = page_of(topics(ROOT)[name].name).make()
    control, labels, slides_along = tab.evaluate(
        f"JSON.parse(document.querySelector('{EXPLORER}').dataset.book).controls"
    ).pop()
    asked = tab.locator(".course-controls label").filter(has=tab.get_by_text(control, exact=True))
    asked = asked.locator("input, select")
    asked.focus()
    asked.press("Home")
    asked.press("ArrowRight" if slides_along else "ArrowDown")
    tab.wait_for_function(f"() => document.querySelector('{EXPLORER}').dataset.settled === 'yes'")
    assert tab.evaluate("Reveal.getSlidePastCount()") == number
    with ThreadPoolExecutor(1) as thread:  # where no loop runs, a picture that is completed later is whole at once
        thread.submit(choose, made.controls[control], labels[1]).result()
    drawn = BeautifulSoup(made.figure.value, "html.parser").svg
    assert tab.locator(f"{EXPLORER} svg").get_attribute("aria-label") == drawn["aria-label"]
    asked.press("PageDown")
    assert tab.evaluate("Reveal.getSlidePastCount()") == number + 1
