"""A lesson presented live by jupyterlab-slideshow: each press of the space bar shows something, no slide is taller than
the window, and an explorer on a slide answers the keyboard. Left again, the notebook fits a desk and a phone.

Lesson 03 is walked, and every lesson in the thorough run. With COURSE_SCREENSHOTS=folder the walk leaves a picture of
every slide there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import lab
import pytest
import widths
from amount import THOROUGH
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from classroom import deck
from classroom.authoring import plan
from classroom.notebooks import read_notebook, to_text, topics
from website.slides import cut

browser_test = pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}")
LESSON = lab.REPOSITORY / "notebooks" / "03_memory.ipynb"
LISTS_ALONE = {"12_capstone"}  # lessons whose explorer has no slider

# Which cells are on the slide, whether its top is seen, what sticks out at the right, and the text's size.
SLIDE = """() => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const shown = notebook.widgets.filter(cell => cell.hasClass('jp-deck-mod-visible'));
  const boxes = shown.map(cell => cell.node.getBoundingClientRect());
  const text = shown.map(cell => cell.node.querySelector('p, li')).find(Boolean);
  return {
    active: notebook.activeCellIndex, cells: shown.map(cell => cell.model.id),
    top: Math.min(...boxes.map(box => box.top)), bottom: Math.max(...boxes.map(box => box.bottom)),
    right: Math.max(...boxes.map(box => box.right)),
    size: text ? parseFloat(getComputedStyle(text).fontSize) : null,
  };
}"""


def test_the_style_hides_long_code_and_acts_in_a_deck_alone() -> None:
    cells = [
        new_code_cell("short()", id="a"),
        new_code_cell("x = 1\n" * 9, id="b"),
        new_code_cell("x" * 101, id="c"),
        new_code_cell("short()", id="d", metadata={"tags": ["remove-input"]}),
        new_markdown_cell("long\n" * 20, id="e"),
    ]
    rules = deck.live_style(cells)["styles"][":root"]
    always = {key for key in rules if key.startswith("&")}
    assert always == {"& .jp-Placeholder-content", "& .jp-PlaceholderText"}
    parts = [part for key in rules.keys() - always for part in key.split(", ")]
    assert all(part.startswith("body[data-jp-deck-mode='presenting'] &") for part in parts)
    [hidden] = [key for key in rules if 'data-jpf-cell-id="b"' in key]
    assert [name for name in "abcde" if f'data-jpf-cell-id="{name}"' in hidden] == ["b", "c", "d"]
    assert rules[hidden] == {"display": "none"}


def test_every_lesson_carries_it_and_no_exercise() -> None:
    made = plan("03_memory", lab.REPOSITORY)
    lesson = made["notebooks"].notebook
    assert lesson.metadata[deck.METADATA_KEY] == deck.live_style(lesson.cells)
    assert deck.METADATA_KEY not in made["exercises"].notebook.metadata


@pytest.mark.parametrize("topic", topics(lab.REPOSITORY))
def test_the_space_bar_stops_where_a_slide_begins_and_nowhere_else(topic: str) -> None:
    cells = read_notebook(lab.REPOSITORY / "notebooks" / f"{topic}.ipynb").cells
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
    assert "notes" not in kinds, "a live deck stops at such a cell and shows nothing"
    last = max(i for i, kind in enumerate(kinds) if kind in ("slide", "subslide"))
    assert None not in kinds[last:], "the last slide has one cell: a layer of it would come on the first slide"
    for cell, kind in zip(cells, kinds, strict=True):
        assert (deck.LAYER_KEY in cell.metadata) is (kind is None)
        if kind in ("slide", "subslide", "fragment") and cell.cell_type == "code":
            assert cell.outputs or deck.is_short(cell), f"{cell.id} begins a slide and shows nothing"


def test_notes_are_kept_for_the_speaker() -> None:
    lesson = read_notebook(LESSON)
    noted = [cell for cell in lesson.cells if deck.NOTES in cell.metadata.get("tags", [])]
    slides = [*chain(*cut(lesson, "03", LESSON.parent)[1])]
    spoken = "\n".join(chain(*(slide.notes for slide in slides)))
    assert noted
    for cell in noted:
        word = max(re.findall(r"\w+", cell.source), key=len)
        assert word in spoken


@pytest.fixture(scope="module", params=topics(lab.REPOSITORY) if THOROUGH else [LESSON.stem])
def lesson(request: pytest.FixtureRequest) -> NotebookNode:
    return read_notebook(LESSON.with_stem(request.param))


def has_explorer(lesson: NotebookNode) -> bool:
    return any("_explorer(" in cell.source for cell in lesson.cells if cell.cell_type == "code")


@pytest.fixture(scope="module")
def page(lesson: NotebookNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The lesson presented from its first cell on, run whole, and every number guessed: an answer takes its room."""
    copy = tmp_path_factory.mktemp("deck") / "lesson.ipynb"
    copy.write_text(to_text(lesson))
    codes = [cell for cell in lesson.cells if cell.cell_type == "code"]
    ids = [cell.id for cell in codes]
    with lab.server(copy.parent, tmp_path_factory.mktemp("server")) as address, lab.browser(1280, 720) as tab:
        lab.open_notebook(tab, address, copy.name)
        tab.set_default_timeout(lab.CELLS_SECONDS * 1000)
        tab.evaluate(
            """async ids => {
              const notebook = window.jupyterapp.shell.currentWidget.content;
              for (const [index, cell] of notebook.widgets.entries()) {
                if (!ids.includes(cell.model.id)) continue;
                notebook.activeCellIndex = index;
                await window.jupyterapp.commands.execute('notebook:run-cell');
              }
            }""",
            ids,
        )
        tab.wait_for_function(lab.IDLE)
        if has_explorer(lesson):
            tab.locator(".course-explorer svg[role=img]").first.wait_for(state="attached")
        for field in tab.locator(".course-predict input").all():
            field.fill("3")
            field.press("Enter")
        tab.locator(".jp-MarkdownCell").first.click()
        tab.evaluate("() => window.jupyterapp.commands.execute('deck:start')")
        tab.locator(".jp-deck-mod-visible").first.wait_for()
        yield tab


def _shot(page: Any, name: str) -> None:
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"deck_{name}.png")


@pytest.mark.browser
@browser_test
def test_each_press_of_the_space_bar_shows_another_slide_whole_in_large_text(page: Any, lesson: NotebookNode) -> None:
    slides = [*chain(*cut(lesson, "03", LESSON.parent)[1])]
    seen: list[list[str]] = []
    looks: list[bytes] = []
    for number in range(1, len(lesson.cells)):
        slide, look = page.evaluate(SLIDE), page.screenshot()
        where = f"slide {number}, cells {slide['cells']}"
        assert slide["cells"], f"{where}: nothing on it"
        assert looks[-1:] != [look], f"{where}: the space bar changed nothing"  # two unguessed answers look alike
        assert slide["top"] >= -1, f"{where}: its top is {-slide['top']:.0f} px above the window"
        assert slide["bottom"] <= 721, f"{where}: {slide['bottom'] - 720:.0f} px too tall"
        assert slide["right"] <= 1281, f"{where}: sticks out to the right"
        assert slide["size"] is None or slide["size"] >= 18, f"{where}: text of {slide['size']} px"
        seen.append(slide["cells"])
        looks.append(look)
        _shot(page, f"{number:02d}")
        page.keyboard.press("Space")
        page.wait_for_timeout(200)  # what comes fades in for 0.1 s
        if page.evaluate(SLIDE)["active"] == slide["active"]:
            break
    assert len(seen) == len(slides)
    skipped = {cell.id for cell in lesson.cells if cell.metadata.get("slideshow", {}).get("slide_type") == "skip"}
    assert {identity for cells in seen for identity in cells} == {cell.id for cell in lesson.cells} - skipped


@pytest.mark.browser
@browser_test
def test_on_a_slide_an_arrow_key_moves_the_explorer_and_not_the_slide(page: Any, lesson: NotebookNode) -> None:
    if not has_explorer(lesson):
        pytest.skip("a lesson without an explorer")
    for _ in range(60):  # back to the explorer
        if page.locator(".course-explorer").first.is_visible():
            break
        page.keyboard.press("Shift+Space")
        page.wait_for_timeout(50)
    before, cells = page.locator(".course-explorer svg[role=img]").first, page.evaluate(SLIDE)["cells"]
    label = before.get_attribute("aria-label")
    control = "select" if lesson.metadata["course"]["topic"] in LISTS_ALONE else ".noUi-handle"
    page.locator(f".course-explorer {control}").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "label => document.querySelector('.course-explorer svg[role=img]').getAttribute('aria-label') !== label",
        arg=label,
    )
    assert page.evaluate(SLIDE)["cells"] == cells
    assert lab.error_outputs(page) == []
    _shot(page, "explorer")


@pytest.mark.browser
@browser_test
def test_escape_gives_the_notebook_back(page: Any) -> None:
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.body.dataset.jpDeckMode")
    size = page.locator(".jp-RenderedMarkdown p").first.evaluate("text => parseFloat(getComputedStyle(text).fontSize)")
    assert size == 14


@pytest.mark.browser
@browser_test
@pytest.mark.parametrize(("width", "height"), widths.SIZES if THOROUGH else widths.SIZES[-1:])
def test_of_the_notebook_nothing_is_cut_whatever_the_window(page: Any, width: int, height: int) -> None:
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    assert widths.what_sticks_out(page, width, height) == []
