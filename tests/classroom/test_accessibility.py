"""Everybody can read it: WCAG 2.1 AA for notebooks, slides, a lesson as a web page, explorers, a class's pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lab
import pytest
from axe import barriers
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from test_class import made

from classroom.grading.gradebook import feedback_page, summary_page
from classroom.notebooks import read_notebook
from classroom.questions.core import Outcome
from course_utils.figures import side_by_side
from website.slides import make_deck

FOLDERS = ("notebooks", "exercises", "solutions")
NOTEBOOKS = [path for folder in FOLDERS for path in sorted((lab.REPOSITORY / folder).glob("*.ipynb"))]
LESSONS = sorted((lab.REPOSITORY / "notebooks").glob("*_*.ipynb"))
in_a_browser = pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}")

# -- notebooks, without a browser ------------------------------------------------------------------------------------


def faults(notebook: Any) -> list[str]:
    """What a screen reader would miss in a notebook: headings, alternative texts, header cells, words of links."""
    found, levels = [], []
    for cell in notebook.cells:
        where = f"cell {cell.id}"
        if cell.cell_type == "markdown":
            text = re.sub(r"^```.*?^```", "", cell.source, flags=re.S | re.M)
            levels += [(where, len(marks)) for marks in re.findall(r"^(#{1,6}) ", text, flags=re.M)]
            found += [
                f"{where}: a picture without words" for alt in re.findall(r"!\[(.*?)\]\(", text) if not alt.strip()
            ]
            links = re.findall(r"(?<!!)\[([^\]]*)\]\(", text)
            found += [f"{where}: a link that says {said!r}" for said in links if said.strip(" *`").lower() in EMPTY]
            parts = [text]
        else:
            parts = []
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                parts.append(data.get("text/html", ""))
                if not parts[-1] and any(kind.startswith("image/") for kind in data):
                    found.append(f"{where}: a picture as {', '.join(data)}, which keeps no words")
        for part in parts:
            page = BeautifulSoup(part, "html.parser")
            pictures = page.select("img:not([hidden]), svg")  # no screen reader has what is hidden
            found += [f"{where}: {tag.name} without words" for tag in pictures if not words(tag)]
            found += [
                f"{where}: a table without header cells" for table in page.select("table") if not table.select("th")
            ]
            levels += [(where, int(tag.name[1])) for tag in page.select("h1, h2, h3, h4, h5, h6")]
    found += [] if [level for _, level in levels].count(1) == 1 else ["not one H1"]
    before = 0
    for where, level in levels:
        found += [f"{where}: H{level} after H{before}"] if level > before + 1 else []
        before = level
    return found


EMPTY = {"", "here", "click here", "this", "link", "more"}


def words(tag: Any) -> str:
    """What stands for a picture; pictures inside a picture speak through it."""
    return str(tag.get("alt") or tag.get("aria-label") or tag.find_parent("svg") or "").strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_notebook_can_be_read_without_seeing_it(path: Path) -> None:
    assert faults(read_notebook(path)) == []


BAD = {
    "not one H1": new_markdown_cell("# Two"),
    "H3 after H1": new_markdown_cell("### Three"),
    "a picture without words": new_markdown_cell("![](x.png)"),
    "a link that says 'here'": new_markdown_cell("[here](x.html)"),
    "a table without header cells": new_markdown_cell("<table><tr><td>1</td></tr></table>"),
    "img without words": new_code_cell("", outputs=[new_output("display_data", {"text/html": "<img src='x'>"})]),
    "svg without words": new_code_cell("", outputs=[new_output("display_data", {"text/html": "<svg></svg>"})]),
    "a picture as image/png": new_code_cell("", outputs=[new_output("display_data", {"image/png": "eA=="})]),
}


@pytest.mark.parametrize("fault", BAD)
def test_each_kind_of_fault_is_seen(fault: str) -> None:
    good = [
        new_markdown_cell("# One\n\n```\n# code\n```\n\n![words](x.png) [the lesson](x)"),
        new_markdown_cell("## Two"),
    ]
    assert faults(new_notebook(cells=good)) == []
    [line] = faults(new_notebook(cells=[good[0], BAD[fault]]))
    assert fault in line


# -- pages, in a browser ---------------------------------------------------------------------------------------------

# All slides below one another, as no reader sees them: one look at all words, each on its own background.
UNROLLED = """
* { transition: none !important; animation: none !important; }
html, body, .reveal { overflow: visible !important; height: auto !important; }
.reveal, .reveal .slides {
  position: static !important; transform: none !important; zoom: 1 !important; width: 1280px; height: auto !important;
}
.reveal .slides section {
  display: block !important; position: static !important; visibility: visible !important; opacity: 1 !important;
  transform: none !important;
}
.fragment { visibility: visible !important; opacity: 1 !important; }
.backgrounds { display: none !important; }
"""
UNHIDE = """() => document.querySelectorAll('section').forEach(section =>
  ['hidden', 'aria-hidden', 'inert'].forEach(name => section.removeAttribute(name)))"""

# Of a lesson as nbconvert's web page, what its template brings.
NBCONVERT = {
    ".jp-InputPrompt": "the grey of its prompts is 2.2 to 1",
    ".jp-OutputPrompt": "the same",
    ".highlight": "the colours of its code",
}
NBCONVERT_RULES = {"link-in-text-block": "its links are told from text by colour alone"}


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with lab.browser(1280, 720) as page:
        page.context.set_offline(True)
        yield page


def show(tab: Any, file: Path, html: str) -> None:
    file.write_text(html, encoding="utf-8")
    tab.goto(file.as_uri(), wait_until="load")


@in_a_browser
@pytest.mark.browser
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_the_slides_of_a_lesson(tab: Any, tmp_path: Path, lesson: Path) -> None:
    show(tab, tmp_path / "slides.html", make_deck(read_notebook(lesson), lesson.name, lesson.parent)[0])
    tab.wait_for_function("() => window.Reveal?.isReady()")
    tab.add_style_tag(content=UNROLLED)
    tab.evaluate(UNHIDE)
    assert barriers(tab) == []


@in_a_browser
@pytest.mark.browser
def test_a_lesson_as_a_web_page(tab: Any, tmp_path: Path) -> None:
    from nbconvert import HTMLExporter

    [lesson] = (lab.REPOSITORY / "notebooks").glob("03_*.ipynb")
    show(tab, tmp_path / "lesson.html", HTMLExporter().from_notebook_node(read_notebook(lesson))[0])
    assert barriers(tab, without=NBCONVERT, rules_left_out=NBCONVERT_RULES) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_where_no_script_runs(lesson: Path) -> None:
    """Widgets are their stills, what is folded is away, and so is the code of each answer."""
    from nbconvert import HTMLExporter

    notebook = read_notebook(lesson)
    html = HTMLExporter(template_name="basic").from_notebook_node(notebook)[0]
    page = BeautifulSoup(html, "html.parser").get_text()
    assert "widget-view+json" not in html
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    asked = len(re.findall(r"= predict\(", code))
    moved = len(re.findall(r"^(?:\w+_explorer\(|explorer$)", code, flags=re.M))
    assert page.count("(Shift+Enter) and write your guess here.") == asked >= 1
    assert page.count("(Shift+Enter) to move it.") == moved
    assert "reveal(" not in page


@in_a_browser
@pytest.mark.browser
def test_the_pages_of_a_class(tab: Any, tmp_path: Path) -> None:
    results = [made(f"learner {i}", [3.0 * (i % 2), 3, 0, 0], said="a slip", number=str(i)) for i in range(4)]
    results.append(made("nobody", [0, 0, 0, 0], failed="the file is not a notebook"))
    marks = results[0].marks
    each = [
        replace(question, outcome=outcome, flags=("look at this",))
        for question, outcome in zip(marks.questions, Outcome, strict=True)
    ]
    one = replace(results[0], marks=replace(marks, questions=tuple(each), notes=("a note",)))
    for page in (summary_page(results), feedback_page(one), feedback_page(results[-1])):
        show(tab, tmp_path / "page.html", page)
        assert barriers(tab) == []


@in_a_browser
@pytest.mark.browser
def test_a_fault_on_a_page_or_in_a_picture_is_seen(tab: Any, tmp_path: Path) -> None:
    picture = side_by_side({"a": 1.0, "b": 2.0}, "GiB").svg
    page = '<!DOCTYPE html><html lang="en"><title>t</title><body style="background:#fff"><h1>One</h1>{}</body></html>'
    show(tab, tmp_path / "page.html", page.format(picture))
    assert barriers(tab) == []
    show(tab, tmp_path / "page.html", page.format('<p style="color:#999">grey</p><img src="x">'))
    assert [line.split(":")[0] for line in barriers(tab)] == ["color-contrast", "image-alt"]
    show(tab, tmp_path / "page.html", page.format(re.sub(r'fill="[^"]*"(?=>[ab]<)', 'fill="#999"', picture)))
    found = barriers(tab)
    assert len(found) == 2
    assert all("at least 4.5" in line for line in found)
