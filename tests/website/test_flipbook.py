"""Views for pages without a kernel: which settings, in what order, as what files; on the page they are in test_site."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from classroom import ROOT
from classroom.explorer import Explorer, Page, View, described, written
from classroom.notebooks import read_notebook, topics
from course_utils.figures import side_by_side
from course_utils.units import CourseError
from website import flipbook
from website.flipbook import digest, draw, has_explorer, page_of, parts, settings, write_parts

SIZES = {"few": ("1", "2"), "many": ("2", "3")}


class Small(Explorer):
    """A kind decides which sizes there are, and one setting cannot be."""

    def __init__(self) -> None:
        self.kind = described(widgets.Dropdown, "kind", options=list(SIZES), value="few")
        self.size = described(widgets.Dropdown, "size", options=SIZES["few"], value="2")
        self.batch = described(widgets.IntSlider, "batch", value=1, min=1, max=8)
        self.other = described(widgets.Dropdown, "other", options=["a", "b"], value="b")
        self.kind.observe(self._offer, names="value")
        controls = (self.kind, self.size, self.batch, self.other)
        self.lay_out([("1fr", controls)], {one.description: one for one in controls})

    def _offer(self, _change: object) -> None:
        with self.in_one_move():
            self.size.options = SIZES[self.kind.value]

    def view(self) -> View:
        if (self.kind.value, self.batch.value) == ("many", 4):
            raise CourseError("many of 4 cannot be")
        number = int(self.size.value) * self.batch.value
        picture = side_by_side({"bytes": float(number)}, "B", title=f"{self.kind.value} {number}")
        return View(picture, [f"{self.kind.value}: {number}"], number, "the number", uncaused=["kind"])


GRID: dict[str, Any] = {"kind": None, "size": None, "batch": (1, 4)}


def test_each_setting_that_the_controls_offer_is_drawn_as_the_explorer_draws_it() -> None:
    book = draw(Page(Small, GRID))
    assert [name for name, _, _ in book["controls"]] == list(GRID)
    assert [labels for _, labels, _ in book["controls"]] == [["few", "many"], ["1", "2", "3"], ["1", "4"]]
    assert [slides for _, _, slides in book["controls"]] == [False, False, True]
    assert book["start"] == [0, 1, 0]
    assert book["rest"] == {"other": "b"}
    said = [view and view[1] for view in book["views"]]
    few = [["few: 1"], ["few: 4"], ["few: 2"], ["few: 8"], None, None]
    assert said == [*few, None, None, ["many: 2"], "many of 4 cannot be", ["many: 3"], "many of 4 cannot be"]
    explorer = Small()
    explorer.size.value, explorer.batch.value = "1", 4
    assert book["views"][1] == [explorer.view().picture.svg, ["few: 4"], 4, ["kind"]]


@pytest.mark.parametrize(
    ("grid", "why"),
    [({"colour": None}, "PAGE names 'colour'"), ({"batch": (2, 4)}, "PAGE leaves out where the explorer begins: 1")],
)
def test_a_grid_that_does_not_suit_its_explorer_is_refused(grid: dict[str, Any], why: str) -> None:
    with pytest.raises(CourseError, match=why):
        draw(Page(Small, grid))


def unpacked(text: str) -> list[Any]:
    elements, views = json.loads(gzip.decompress(base64.b64decode(text)))
    return [view and [view[0] and "".join(elements[i] for i in view[0]), *view[1:]] for view in views]


@pytest.mark.parametrize("most", [10**6, 800, 600, 1])
def test_parts_hold_every_view_in_order_and_no_part_more_than_is_allowed(most: int) -> None:
    views = draw(Page(Small, GRID))["views"]
    run, packed = parts(views, [2, 3, 2], most)
    assert [view for text in packed for view in unpacked(text)] == views
    assert all(len(unpacked(text)) == run for text in packed[:-1])
    assert run == 1 or max(map(len, packed)) <= most
    assert (len(packed) == 1) == (most == 10**6)


def test_what_the_page_is_told_finds_each_part(tmp_path: Path) -> None:
    book = draw(Page(Small, GRID))
    head = write_parts("small", book, tmp_path)
    assert head["missing"] == [4, 5, 6, 7]
    assert "views" not in head
    [found] = re.findall(r'^courseViews\("small",0,"(.*)"\)\n$', (tmp_path / "0.js").read_text())
    assert unpacked(found) == book["views"]


def test_views_are_drawn_again_when_what_they_come_from_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flipbook, "SOURCES", ("shared",))
    for path in ("shared/a.py", "lessons/one/explorer.py", "lessons/one/lesson.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    before = digest("one", tmp_path)
    (tmp_path / "lessons/one/lesson.py").write_text("2")  # its words are read from the notebook
    assert digest("one", tmp_path) == before
    (tmp_path / "shared/a.py").write_text("2")
    assert digest("one", tmp_path) != before


WITH_EXPLORER = [folder.name for folder in topics(ROOT).values() if has_explorer(folder.name)]


def test_every_explorer_of_the_course_says_what_its_page_shows() -> None:
    assert len(WITH_EXPLORER) == 15
    for topic in WITH_EXPLORER:
        page = page_of(topic)
        assert 2 <= len(page.grid) <= 7, topic
        assert page.write in re.findall(r"^    (\w+): ", (ROOT / "website/static/explorer.js").read_text(), re.M), topic


@pytest.mark.parametrize("name", [name for name, folder in topics(ROOT).items() if has_explorer(folder.name)])
def test_a_page_begins_as_its_lesson_does(name: str) -> None:
    page = page_of(topics(ROOT)[name].name)
    explorer = page.make()
    said = explorer._repr_mimebundle_()["text/plain"]
    start = tuple(written(explorer.controls[control]) for control in page.grid)
    assert start in settings(explorer, page.grid)
    if name != "01_why_gpus":  # which begins with what was measured on the machine that ran it
        lesson = read_notebook(ROOT / f"notebooks/{name}.ipynb")
        outputs = [output for cell in lesson.cells for output in cell.get("outputs", [])]
        assert said in [output.get("data", {}).get("text/plain") for output in outputs]
