"""Every slide of every lesson in a headless Chromium without a network: nothing cut off, nothing missing, all readable.

For one lesson while writing it: `python -m pytest tests/classroom/test_slides.py -k 04`. A fault names the slide and
says by how much; COURSE_SCREENSHOTS=folder leaves a picture of every slide there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import lab
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from slides_seen import walk

from classroom import STILL, cli
from classroom.claims import VERDICTS, Claim, Finding, Verdicts
from classroom.notebooks import read_notebook, to_text
from course_utils.figures import side_by_side
from course_utils.units import CourseError
from website.slides import TEXT, Slide, cut, export, make_deck

LESSONS = sorted((lab.REPOSITORY / "notebooks").glob("*_*.ipynb"))
EACH_LESSON = pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
WINDOW, LARGER = (1280, 720), (1920, 1080)
MOST_WORDS = 50  # of text on a slide; a picture, a table, code, printed lines and what is quoted come on top
in_a_browser = pytest.mark.skipif(bool(lab.missing()), reason=f"browser tests: {lab.missing()}")


def cell(text: str, slide: str = "", outputs: list[Any] | None = None, tags: list[str] | None = None) -> Any:
    """A markdown cell, or with outputs a code cell that was run."""
    metadata: dict[str, Any] = {"tags": tags or []}
    if slide:
        metadata["slideshow"] = {"slide_type": slide}
    if outputs is None:
        return new_markdown_cell(text, metadata=metadata)
    return new_code_cell(text, metadata=metadata, outputs=outputs, execution_count=1)


def shown(**data: str) -> Any:
    """An output of a cell: mime types with their slash written as an underscore."""
    return new_output("display_data", {name.replace("_", "/", 1): value for name, value in data.items()})


def slides_of(*cells: Any) -> list[Slide]:
    return list(chain(*cut(new_notebook(cells=list(cells)), "lesson.ipynb", Path())[1]))


def html_of(*cells: Any) -> str:
    return "\n".join(block for slide in slides_of(*cells) for block in slide.blocks)


# -- what is on a slide ----------------------------------------------------------------------------------------------


def test_slides_are_cut_by_slide_type() -> None:
    title, ((first, below), (second,)) = cut(
        new_notebook(
            cells=[
                cell("# A *title*", "slide"),
                cell("more"),
                cell("left out", "skip"),
                cell("to say", "notes"),
                cell("next key", "fragment"),
                cell("below", "subslide"),
                cell("dash", "-"),
                cell("## Two", "slide"),
            ]
        ),
        "lesson.ipynb",
        Path(),
    )
    assert title == "A title"
    assert "more" in first.blocks[1]
    assert first.blocks[2].startswith('<div class="fragment')
    assert "left out" not in "".join(first.blocks + below.blocks + second.blocks)
    assert "to say" in first.notes[0]
    assert below.blocks[0] == '<p class="running">A <em>title</em></p>'
    assert "dash" in below.blocks[2]
    assert len(second.blocks) == 1


def test_code_is_shown_if_short_and_not_asked_away() -> None:
    out = [new_output("stream", text="42")]
    assert "short" in html_of(cell("short()", outputs=out))
    assert "long" not in html_of(cell("long()\n" * 9, outputs=out))
    assert "wide" not in html_of(cell("wide" * 30, outputs=out))
    assert "short" not in html_of(cell("short()", outputs=out, tags=["remove-input"]))
    hidden = html_of(cell("short()", outputs=out, tags=["remove-output"]))
    assert "short" in hidden
    assert "42" not in hidden
    assert html_of(cell("short()", outputs=out, tags=["remove-cell"])) == ""


def test_a_picture_is_its_svg_once_and_an_explorer_its_still() -> None:
    picture = side_by_side({"a": 1.0, "b": 2.0}, "GiB")
    text = f'<div class="{STILL}"><p>It fits.</p>{picture.html}</div>'
    made = html_of(cell("explorer()", outputs=[shown(text_html=text)]))
    assert made.count("<svg") == 1
    assert "<img" not in made
    assert "explorer" not in made


def test_an_explorer_s_sentences_are_spoken_wherever_they_are() -> None:
    picture = side_by_side({"a": 1.0, "b": 2.0}, "GiB").html
    for text in (f"{picture}<p>It fits.</p>", f"<p>It fits.</p>{picture}"):
        asked = f'<div class="{STILL}">{text}<p class="course-at-rest"><em>Run this cell.</em></p></div>'
        (slide,) = slides_of(cell("e()", outputs=[shown(text_html=asked)]))
        assert "Run" not in "".join(slide.blocks + slide.notes)
        assert "It fits." in "".join(slide.notes)
        assert "It fits." not in "".join(slide.blocks)
        assert "".join(slide.blocks).count("<svg") == 1


def test_a_verdict_shows_its_belief_and_its_evidence_is_spoken() -> None:
    claim = Claim(1, "it halves", "Somebody (2016)", lambda: Finding("wrong", "a third", "weights stay."))
    text = Verdicts(((claim, claim.judge()),))._repr_html_()
    (slide,) = slides_of(cell("judge([1])", outputs=[shown(text_html=text)]))
    table = "".join(slide.blocks)
    assert "judge" not in table
    for said, on_the_slide in (("it halves", True), ("Somebody", True), ("wrong", True), ("a third", False)):
        assert (said in table) is on_the_slide
    assert "a third. <i>weights stay.</i>" in slide.notes[0]
    told = f"<blockquote class='{VERDICTS}'>it halves<details><summary>S</summary><p>a third</p></details></blockquote>"
    (slide,) = slides_of(cell("told(1)", outputs=[shown(text_html=told)]))
    assert slide.blocks == [f"<blockquote class='{VERDICTS}'>it halves</blockquote>"]
    assert "<div><p>a third</p></div>" in slide.notes[0]
    assert "fragment" not in slide.notes[0]  # no key for what nobody sees


def test_long_numbers_of_a_table_are_read_in_threes_and_years_as_they_are() -> None:
    bytes_of = pd.DataFrame({"kept": [3232, 119432]})
    assert "<td>3,232<" in (made := html_of(cell("", outputs=[shown(text_html=bytes_of.to_html())]))).replace(
        ' class="short"', ""
    )
    assert "119,432" in made
    assert "2016" in html_of(cell("", outputs=[shown(text_html=bytes_of.assign(year=2016).to_html())]))


def test_what_is_folded_away_comes_with_the_next_key() -> None:
    made = html_of(cell("", outputs=[shown(text_html="<details><summary>S</summary><p>answer</p></details>")]))
    assert made == '<div class="fragment together"><p>answer</p></div>'


def test_short_values_of_a_table_stay_on_one_line_and_its_heads_break() -> None:
    table = pd.DataFrame(
        {"measured peak": ["824.58 MiB"], "words": ["a sentence that may well be broken"]}, index=["4 × 16"]
    )
    made = html_of(cell("", outputs=[shown(text_html=table.to_html())]))
    for whole in ("824.58 MiB", "4 × 16"):
        assert f'class="short">{whole}<' in made
    for broken in ("measured peak", "a sentence that may well be broken"):
        assert f">{broken}<" in made
        assert f'class="short">{broken}<' not in made


def test_links_to_files_of_the_course_are_words() -> None:
    made = html_of(cell("[here](../exercises/03.ipynb) and [there](https://pytorch.org)"))
    assert "here and" in made
    assert 'href="https://pytorch.org"' in made
    assert "ipynb" not in made


# -- what the lessons put on them --------------------------------------------------------------------------------------


def words_of(slide: Slide) -> list[str]:
    """The words of a slide's own text."""
    html = "\n".join(slide.blocks)
    beside = r"<(figure|table|pre|blockquote|h[1-3]|style)\b.*?</\1>|<p class=\"running\">.*?</p>"
    text = re.sub(r"<[^>]+>", " ", re.sub(beside, " ", html, flags=re.DOTALL))
    return [word for word in text.split() if re.search(r"[^\W\d_]", word)]


@EACH_LESSON
def test_a_slide_carries_a_sentence_or_a_picture_and_asks_for_no_key(lesson: Path) -> None:
    slides = [*chain(*cut(read_notebook(lesson), lesson.name, lesson.parent)[1])]
    assert (8 if lesson.name.startswith("A") else 14) <= len(slides) <= 25, "a lecture has 15 to 25 slides"
    for number, slide in enumerate(slides, start=1):
        said = words_of(slide)
        where = f"{lesson.stem}, slide {number}, {' '.join(said)[:60]!r}"
        assert len(said) <= MOST_WORDS, f'{where}: {len(said)} words; speak some, in a cell with slide="notes"'
        asks = re.search(r"\b(arrow keys?|mouse|slider|press|drag|click|Run this cell|Tab)\b", " ".join(said))
        assert not asks, f"{where}: a picture does not answer to {asks[0] if asks else ''!r}; speak it"


def test_words_of_tables_pictures_code_and_quotes_are_not_counted() -> None:
    assert words_of(
        Slide(
            [
                '<p class="running">One</p>\n<h2>Two</h2>\n<p>Three <em>four</em> 5</p><blockquote>six</blockquote>',
                '<table class="x"><tr><td>seven</td></tr></table><div class="code"><pre>eight</pre></div>',
                "<figure><svg><text>nine</text></svg></figure><ul><li>ten</li></ul>",
            ]
        )
    ) == ["Three", "four", "ten"]


# -- what cannot be exported -----------------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course's folder with one lesson of one slide."""
    for name in ("lessons", "notebooks", "classroom"):
        (tmp_path / name).mkdir()
    notebook = new_notebook(cells=[cell("# One", "slide"), cell("1", outputs=[])])
    (tmp_path / "notebooks" / "03_memory.ipynb").write_text(to_text(notebook), encoding="utf-8")
    return tmp_path


def test_the_command_writes_each_lesson_and_counts_its_slides(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(course)
    monkeypatch.setattr("website.decks.explorer", lambda lesson: None)  # test_decks has it
    assert cli.main(["slides"]) == 0
    assert "03_memory.html: 1 slide, " in capsys.readouterr().out
    assert [path.name for path in (course / "slides").iterdir()] == ["03_memory.html"]
    for number, name in enumerate(("3", "memory", "03_memory")):  # as `course build` names it
        assert cli.main(["slides", name, "--out", f"elsewhere{number}"]) == 0
        assert (course / f"elsewhere{number}" / "03_memory.html").is_file()


@pytest.mark.parametrize("name", ["99", "mem", "../03_memory", "*"])
def test_an_unknown_lesson_is_one_line(course: Path, name: str) -> None:
    with pytest.raises(CourseError, match=r"no lesson .* there is 03_memory$"):
        export([name], course, course / "slides")


def test_a_folder_that_cannot_be_written_is_one_line(course: Path) -> None:
    (course / "file").write_text("kept")
    with pytest.raises(CourseError, match=r"cannot be written: .*; choose another folder with --out$"):
        export(["03"], course, course / "file")
    assert (course / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (new_code_cell("1"), "has cells that were not run"),
        (cell("1", outputs=[new_output("error", ename="ValueError", evalue="")]), "failed with ValueError"),
        (cell("costs $5 or $6"), "slides show no LaTeX"),
        (cell("$$x$$"), "slides show no LaTeX"),
    ],
)
def test_a_lesson_that_is_not_fit_to_show_is_refused_and_the_old_slides_stay(
    course: Path, bad: Any, message: str
) -> None:
    (course / "slides").mkdir()
    old = course / "slides" / "03_memory.html"
    old.write_text("old")
    notebook = new_notebook(cells=[cell("# One", "slide"), bad])
    (course / "notebooks" / "03_memory.ipynb").write_text(to_text(notebook), encoding="utf-8")
    with pytest.raises(CourseError, match=message):
        export([], course, course / "slides")
    assert old.read_text() == "old"
    assert len(list(old.parent.iterdir())) == 1


def test_exporting_imports_no_torch(course: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from website.slides import export; here = Path(sys.argv[1]);"
        "export([], here, here / 'slides'); assert 'torch' not in sys.modules and 'sphinx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(course)], check=True, cwd=lab.REPOSITORY)


# -- how it looks ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    with lab.browser(*WINDOW) as page:
        page.context.set_offline(True)
        yield page


@in_a_browser
@pytest.mark.browser
@pytest.mark.parametrize(
    ("lesson", "window"),
    # A slide is laid out on its own canvas, and scaled to the window: one lesson in another window shows that.
    [*((lesson, WINDOW) for lesson in LESSONS), (LESSONS[3], LARGER)],
    ids=lambda one: one.stem if isinstance(one, Path) else f"{one[0]}x{one[1]}",
)
def test_every_slide_fits_and_reads(tab: Any, tmp_path: Path, lesson: Path, window: tuple[int, int]) -> None:
    html, slides = make_deck(read_notebook(lesson), lesson.name, lesson.parent)
    file = tmp_path / f"{lesson.stem}.html"
    file.write_text(html, encoding="utf-8")
    tab.set_viewport_size({"width": window[0], "height": window[1]})
    shots = os.environ.get("COURSE_SCREENSHOTS")
    faults, count = walk(tab, file, Path(shots) if shots else None)
    assert not faults, "\n" + "\n".join(faults)
    assert count == slides


PARAGRAPH = "Fifty words of text stand here, and then some more. " * 5
BAD = {
    "too tall": [cell("\n\n".join([PARAGRAPH] * 12), "slide")],
    "too wide": [cell("1", "slide", outputs=[shown(text_html=f"<p style='white-space:pre'>{'wide ' * 60}</p>")])],
    "a picture is missing": [cell("![gone](https://example.org/gone.png)", "slide")],
    "asks the network": [cell("![gone](https://example.org/gone.png)", "slide")],
    "px text, not 28": [cell('<p style="font-size:24px">smaller than the others</p>', "slide")],
    "px words, at least 18": [cell('<p style="font-size:12px">small print</p>', "slide")],
    "px words, at least 14": [
        cell(
            '<figure><svg viewBox="0 0 900 90"><path d="M0 0"/><text style="font-size:4px">x</text></svg></figure>',
            "slide",
        )
    ],
    "of overlap": [cell(f'<p style="margin-bottom:-90px">{PARAGRAPH}</p>\n\n{PARAGRAPH}', "slide")],
    "a Python object's name": [cell("1", "slide", outputs=[shown(text_plain="<thing.Thing object at 0x1>")])],
}


@in_a_browser
@pytest.mark.browser
@pytest.mark.parametrize("fault", BAD)
def test_the_walk_sees_each_kind_of_fault_and_where(tab: Any, tmp_path: Path, fault: str) -> None:
    cells = [cell("# Good", "slide"), *BAD[fault], cell("# Good again", "slide")]
    file = tmp_path / "bad.html"
    file.write_text(make_deck(new_notebook(cells=cells), "bad", tmp_path)[0], encoding="utf-8")
    faults, count = walk(tab, file)
    assert count == 3
    found = [line for line in faults if fault in line]
    assert found, faults
    assert fault == "asks the network" or "slide 2" in found[0]


@in_a_browser
@pytest.mark.browser
def test_a_printed_line_breaks_only_where_it_must(tab: Any, tmp_path: Path) -> None:
    def rows(words: int) -> float:
        said = [new_output("stream", text="words " * words)]
        notebook = new_notebook(cells=[cell("# One", "slide"), cell("1", outputs=said)])
        file = tmp_path / "one.html"
        file.write_text(make_deck(notebook, "one", tmp_path)[0], encoding="utf-8")
        assert walk(tab, file)[0] == []
        return float(
            tab.locator("pre.out").evaluate("text => text.clientHeight / parseFloat(getComputedStyle(text).lineHeight)")
        )

    assert round(rows(15)) == 1
    assert round(rows(40)) >= 2


@in_a_browser
@pytest.mark.browser
def test_a_wide_line_or_table_leaves_the_text_around_it_large(tab: Any, tmp_path: Path) -> None:
    table = pd.DataFrame({f"a column {i}": ["some words"] for i in range(8)}).to_html()
    for wide in (new_output("stream", text="x" * 95), shown(text_html=table)):
        notebook = new_notebook(cells=[cell("# One\n\nText.", "slide"), cell("1", outputs=[wide])])
        file = tmp_path / "one.html"
        file.write_text(make_deck(notebook, "one", tmp_path)[0], encoding="utf-8")
        assert walk(tab, file)[0] == []
        assert tab.locator(".page p").first.evaluate("text => getComputedStyle(text).fontSize") == f"{TEXT}px"


@in_a_browser
@pytest.mark.browser
def test_a_picture_shrinks_to_what_the_text_leaves_and_code_leaves_first(tab: Any, tmp_path: Path) -> None:
    picture = side_by_side({str(i): float(i) for i in range(1, 16)}, "GiB")
    few, many = cell("Short."), cell(PARAGRAPH)
    code = cell("a = 1\n" * 8, outputs=[shown(text_html=picture.html)])
    sizes = []
    for text in (few, many):
        notebook = new_notebook(cells=[cell("# One", "slide"), text, code])
        file = tmp_path / "one.html"
        file.write_text(make_deck(notebook, "one", tmp_path)[0], encoding="utf-8")
        faults, _ = walk(tab, file)
        assert faults == []
        sizes.append(tab.locator("figure svg").bounding_box()["height"])
    assert sizes[1] < sizes[0]
    assert not tab.locator(".code").is_visible()
