"""Lesson 03 in a real JupyterLab in a headless Chromium: it runs, and its pictures answer the reader's hand.

With COURSE_SCREENSHOTS=folder the test leaves pictures of what it saw there, in the light and the dark theme.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab
import nbformat
import pytest
from axe import barriers
from nbformat.v4 import new_code_cell, new_notebook

from classroom import ROOT
from classroom.workspace import as_opened
from course_utils import __version__

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}"),
]

LESSON = lab.REPOSITORY / "notebooks" / "03_memory.ipynb"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """An empty folder that JupyterLab shows, and its address."""
    folder = tmp_path_factory.mktemp("lessons")
    with lab.server(folder, tmp_path_factory.mktemp("server")) as address:
        yield folder, address


@pytest.fixture(scope="module")
def opened(served: tuple[Path, str]) -> Iterator[Any]:
    """A copy of the lesson, opened in JupyterLab, which does not trust it yet."""
    folder, address = served
    (folder / "lesson.ipynb").write_bytes(as_opened(LESSON.read_bytes(), LESSON.name))
    with lab.browser() as tab:
        lab.open_notebook(tab, address, "lesson.ipynb")
        yield tab


@pytest.fixture(scope="module")
def stills(opened: Any) -> list[dict[str, Any]]:
    """Each picture as an untrusted notebook shows it: the words around its image, and the image's width."""
    seen = "[...document.querySelectorAll('.course-picture')].filter(picture => picture.checkVisibility())"
    opened.wait_for_function(
        f"() => {seen}.length > 2 && {seen}.every(picture => picture.querySelector('img').complete)"
    )
    what = "({text: picture.innerText.trim(), width: picture.querySelector('img').getBoundingClientRect().width})"
    found: list[dict[str, Any]] = opened.evaluate(f"() => {seen}.map(picture => {what})")
    return found


@pytest.fixture(scope="module")
def page(opened: Any, stills: object) -> Any:
    """The lesson with every cell run."""
    lab.run_all(opened)
    return opened


def _screenshots(page: Any, name: str) -> None:
    folder = os.environ.get("COURSE_SCREENSHOTS")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    size = page.viewport_size
    for dark in (True, False):
        lab.set_theme(page, dark)
        height = page.evaluate(
            "() => document.querySelector('.jp-NotebookPanel-notebook .jp-WindowedPanel-outer')?.scrollHeight ?? 0"
        )
        page.set_viewport_size({"width": size["width"], "height": max(size["height"], int(height) + 200)})
        page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=Path(folder) / f"{name}_{'dark' if dark else 'light'}.png")
        page.set_viewport_size(size)


def _skyline_label(page: Any) -> str:
    """Alternative text of the explorer's skyline, which holds its numbers."""
    return str(page.locator(".course-explorer svg[role=img]").first.get_attribute("aria-label"))


def _changes(page: Any, before: str) -> None:
    page.wait_for_function(
        """before => document.querySelector('.course-explorer svg[role=img]').getAttribute('aria-label') !== before""",
        arg=before,
    )


# Words that do not fit into their control: the text of a label or button, the longest option of a dropdown.
CUT = """() => {
  const pen = document.createElement('canvas').getContext('2d');
  const wide = (element, text) => { pen.font = getComputedStyle(element).font; return pen.measureText(text).width; };
  const cut = [];
  for (const label of document.querySelectorAll('.course-explorer .widget-label, .course-explorer button'))
    if (label.scrollWidth > label.clientWidth) cut.push(label.innerText);
  for (const select of document.querySelectorAll('.course-explorer select')) {
    const style = getComputedStyle(select);
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    for (const option of select.options) if (wide(select, option.text) > room) cut.push(option.text);
    if (select.selectedIndex < 0) cut.push(`nothing selected in ${select.id}`);
  }
  return cut;
}"""


def test_no_explorers_words_are_cut_and_every_choice_is_made(served: tuple[Path, str]) -> None:
    found = {path.parent.name: re.findall(r"^def (\w+_explorer)", path.read_text(), re.MULTILINE)
             for path in ROOT.glob("lessons/*/explorer.py")}  # fmt: skip
    calls = sorted(name for names in found.values() for name in names)
    needed = {"plan_explorer": "Problem('AlexNet', 128, 'GTX 980', 'PCIe 3.0 x16')"}
    imports = "\n".join(f"from lessons.{topic}.explorer import *" for topic in found)
    imports += "\nfrom lessons.capstone.plan import Problem"
    cells = [new_code_cell(imports), *(new_code_cell(f"{name}({needed.get(name, '')})") for name in calls)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    folder, address = served
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "all.ipynb")
    with lab.browser(1000, 800) as tab:
        lab.open_notebook(tab, address, "all.ipynb")
        lab.run_all(tab)
        tab.locator(".course-explorer svg[role=img]").nth(len(calls) - 1).wait_for(state="attached")
        assert lab.error_outputs(tab) == []
        assert tab.evaluate(CUT) == []
        for dark in (True, False):
            lab.set_theme(tab, dark)
            assert barriers(tab, within=[".course-explorer"]) == []
        _every_slider_speaks(tab)
        _screenshots(tab, "explorers")


# Compared within the page, as the kernel may set one slider after another's move at any moment.
SPEAKS = """([handle, before]) => {
  const said = handle.getAttribute("aria-valuetext");
  const read = handle.closest(".widget-slider").querySelector(".widget-readout").innerText;
  return said !== before && said === read && said;
}"""


def _every_slider_speaks(tab: Any) -> None:
    """A screen reader hears the words on the page, and after an arrow key the new ones; the key moves what is drawn."""
    handles = tab.locator(".course-explorer .noUi-handle")
    assert handles.count() >= 14
    for i in range(handles.count()):
        handle = handles.nth(i)
        row = handle.locator("xpath=ancestor::*[contains(@class, 'widget-slider')]")
        assert handle.get_attribute("aria-label") == row.locator(".widget-label").inner_text()
        before = tab.wait_for_function(SPEAKS, arg=[handle.element_handle(), None]).json_value()
        handle.focus()
        at_its_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
        tab.keyboard.press("ArrowLeft" if at_its_end else "ArrowRight")
        tab.wait_for_function(SPEAKS, arg=[handle.element_handle(), before])
        tab.wait_for_function(lab.IDLE)  # what this move sets elsewhere is set before the next slider is read
    tab.wait_for_function(lab.IDLE)
    assert tab.locator(".course-explorer [role=alert]").count() == 0
    said = tab.locator(".course-explorer .course-words").all_inner_texts()
    assert sum("Last move" in words for words in said) >= 10


def test_course_is_found_in_jupyterlabs_own_terminal(served: tuple[Path, str]) -> None:
    """As `course lab` starts it: from a folder that is not the course's, in the shell that a terminal starts."""
    folder, address = served
    with lab.browser() as tab:
        tab.goto(f"{address}lab?reset")
        tab.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=lab.START_SECONDS * 1000)
        tab.evaluate("() => window.jupyterapp.commands.execute('terminal:create-new')")
        tab.locator(".jp-Terminal .xterm-helper-textarea").focus()
        tab.keyboard.type("course --version > said.txt 2>&1; echo done > done.txt\n")
        lab.wait_until(lambda: (folder / "done.txt").exists())
    assert (folder / "said.txt").read_text() == f"course {__version__}\n"


ANSWER = "def map_bytes(batch, channels, height, width, value_bytes=4):\n    "
CHECK = 'from lessons.memory.checks import check\n\ncheck("map_bytes")'


def _exercise(folder: Path, name: str, answer: str) -> None:
    """A notebook of an answer and its check."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [new_code_cell(ANSWER + answer), new_code_cell(CHECK)]
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / name)


def test_a_check_says_so_when_its_answer_was_edited_until_it_runs_itself(served: tuple[Path, str]) -> None:
    folder, address = served
    _exercise(folder, "edited.ipynb", "return 0")
    note = "getComputedStyle(document.querySelector('[data-edited]'), '::after').content"
    with lab.browser() as tab:
        lab.open_notebook(tab, address, "edited.ipynb")
        lab.run_all(tab)
        tab.locator("[data-edited]").wait_for(state="attached")
        assert tab.evaluate(note) == "none"
        tab.locator(".jp-CodeCell .cm-content").first.click()
        tab.keyboard.press("Control+End")
        tab.keyboard.type(" + 1")
        tab.wait_for_function(f"() => {note} !== 'none'")
        assert "The cell above was edited since." in tab.evaluate(note)
        _screenshots(tab, "edited")
        tab.keyboard.press("Control+Enter")
        tab.wait_for_function("() => !document.querySelector('.jp-CodeCell.jp-mod-dirty')")
        assert "This is about its earlier text" in tab.evaluate(note)
        lab.run_all(tab)
        tab.wait_for_function(f"() => document.querySelector('[data-edited]') && {note} === 'none'")


def test_the_stop_button_ends_a_check_in_one_line(served: tuple[Path, str]) -> None:
    folder, address = served
    _exercise(folder, "endless.ipynb", "open('begun.txt', 'w').close()\n    while True: pass")
    with lab.browser() as tab:
        lab.open_notebook(tab, address, "endless.ipynb")
        tab.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
        lab.wait_until(lambda: (folder / "begun.txt").exists())
        tab.evaluate("() => void window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
        said = tab.locator("[role=status]", has_text="Crashed").first
        said.wait_for()
        line = "in line 3 of your cell: while True: pass. Is there a loop that does not end?"
        assert re.fullmatch(rf"Crashed: Stopped after \d+ s, {re.escape(line)}", said.inner_text().strip())
        tab.wait_for_function(lab.IDLE)
        assert lab.error_outputs(tab) == []


def test_opening_a_learners_copy_changes_nothing_of_it(opened: Any) -> None:
    """It has what the kernel says of its language: no dot for what is not saved, and no question when it is closed."""
    assert not opened.evaluate("() => window.jupyterapp.shell.currentWidget.context.model.dirty")


def test_before_anything_runs_every_picture_is_a_still(stills: list[dict[str, Any]]) -> None:
    assert len(stills) >= 3
    for still in stills:
        assert still["width"] > 300
        assert still["text"] == ""


def _says_something_else(page: Any, said: str) -> None:
    """The words come in a message of their own, a little after the picture."""
    page.wait_for_function(
        "said => document.querySelector('.course-explorer [aria-live]').innerText !== said", arg=said
    )


def test_every_cell_runs_without_an_error(page: Any) -> None:
    assert lab.error_outputs(page) == []


def test_every_picture_is_drawn_in_the_readers_theme(page: Any) -> None:
    """Inline SVG of a size, its ink that of the theme; the PNG for untrusted pages does not show beside it."""
    pictures = page.locator(".course-picture:visible")
    assert pictures.count() >= 1
    for i in range(pictures.count()):
        box = pictures.nth(i).locator("svg[role=img]").bounding_box()
        assert box["width"] > 300
        assert box["height"] > 50
        assert not pictures.nth(i).locator("img").is_visible()
    inks = []
    for dark in (False, True):
        lab.set_theme(page, dark)
        inks.append(pictures.first.locator("svg text").first.evaluate("text => getComputedStyle(text).fill"))
    lab.set_theme(page, dark=False)
    assert inks[0] != inks[1]


def test_what_the_lesson_puts_out_keeps_to_wcag_in_both_themes(page: Any) -> None:
    for dark in (True, False):
        lab.set_theme(page, dark)
        assert barriers(page, within=[".jp-OutputArea-output"]) == []


def test_an_arrow_key_moves_the_batch_the_picture_and_the_words(page: Any) -> None:
    words = page.locator(".course-explorer [aria-live]").first
    before, said = _skyline_label(page), words.inner_text()
    lab.slider(page, "batch").focus()
    page.keyboard.press("ArrowRight")
    _changes(page, before)
    _says_something_else(page, said)
    assert "Last move, batch" in words.inner_text()


def test_dragging_the_batch_slider_redraws(page: Any) -> None:
    before = page.locator(".course-explorer svg[role=img]").first.inner_html()
    label, said = _skyline_label(page), page.locator(".course-explorer [aria-live]").first.inner_text()
    handle = lab.slider(page, "batch")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 150, y, steps=8)
    page.mouse.up()
    _changes(page, label)
    page.wait_for_function(lab.IDLE)
    assert page.locator(".course-explorer svg[role=img]").first.inner_html() != before
    _says_something_else(page, said)
    assert lab.error_outputs(page) == []


CELLS = """() => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  return [notebook.mode, notebook.activeCellIndex, ...notebook.model.toJSON().cells.map(cell => cell.id)];
}"""


def test_no_key_on_a_control_is_a_command_of_the_notebook(page: Any) -> None:
    """Arrows, and letters that would insert, cut, delete, hide or change cells, on every control of every widget."""
    controls = page.locator(".course-widget").locator("select, input, button, [role=slider], [tabindex='0']")
    kinds = set()
    for i in range(controls.count()):
        control = controls.nth(i)
        if not control.is_visible() or control.is_disabled():
            continue
        kinds.add(control.evaluate("element => element.getAttribute('role') ?? element.type ?? element.localName"))
        control.focus()
        before = page.evaluate(CELLS)
        for key in ("ArrowDown", "ArrowUp", "ArrowRight", "a", "x", "d", "d", "m", "Shift+ArrowDown"):
            page.keyboard.press(key)
            assert page.evaluate(CELLS) == before, key
    assert kinds >= {"select-one", "slider", "submit"}
    page.wait_for_function(lab.IDLE)
    assert lab.error_outputs(page) == []


def test_the_commands_that_a_reader_means_stay_the_notebooks(page: Any) -> None:
    page.locator(".course-explorer select").first.focus()
    before = page.evaluate(CELLS)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(f"before => ({CELLS})()[1] === before[1] + 1", arg=before)
    page.wait_for_function(lab.IDLE)


def test_the_answer_waits_for_a_guess(page: Any) -> None:
    reveals = page.locator(".course-reveal")
    assert reveals.count() >= 1
    assert "Enter your guess above first" in reveals.first.inner_text()
    assert reveals.first.locator("svg").count() == 0
    _screenshots(page, "waiting")
    question = page.locator(".course-predict").first
    field = question.locator("input")
    field.fill("ninety")
    field.press("Enter")
    question.get_by_text("is not a number").wait_for()
    field.fill("90")
    field.press("Enter")
    shown = reveals.filter(has=page.locator("svg[role=img]"))  # not every guess is answered in the order of asking
    shown.first.wait_for()
    assert "Your guess, 90" in shown.first.inner_text()
    assert "Your guess: 90" in question.inner_text()
    assert field.is_disabled()
    assert lab.error_outputs(page) == []
    _screenshots(page, "answered")


def test_nothing_lies_over_a_new_readers_notebook(page: Any) -> None:
    """JupyterLab's question about news would, in every first session."""
    assert page.locator(".Toastify__toast").count() == 0
