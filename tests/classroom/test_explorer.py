"""What every explorer has from its base: columns of controls, the last move, and that a slow move says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import ipywidgets as widgets
import pytest
from drawn import said_by

from classroom.explorer import FAINT, Explorer, View, described
from course_utils.figures import side_by_side
from course_utils.units import CourseError


class Doubling(Explorer):
    """A number and twice that; a view waits for `ready`."""

    def __init__(self, ready: threading.Event) -> None:
        self.ready, self.waited = ready, True
        self.number = described(widgets.IntSlider, "number", value=3, min=1, max=9)
        self.unit = described(widgets.Dropdown, "unit", options=["GiB", "MiB"], value="GiB")
        self.lay_out([("1fr 1fr", [self.number, self.unit])], {"number": self.number, "unit": self.unit})

    def view(self) -> View:
        self.waited = self.ready.wait(timeout=60)
        number = self.number.value
        return View(side_by_side({"number": number}, self.unit.value), [f"It is {number}, not 10%."], number, "it", str)


def test_a_move_that_takes_long_says_so_before_it_is_done() -> None:
    """The view is done only once the words have said that it is worked on."""
    ready = threading.Event()
    ready.set()
    explorer = Doubling(ready)
    said = []

    def hear(change: dict[str, str]) -> None:
        said.append((change["new"], FAINT in explorer.figure._dom_classes))
        ready.set()

    explorer.words.observe(hear, names="value")
    ready.clear()
    explorer.number.value = 4
    assert explorer.waited
    assert [faint for _, faint in said] == [True, False]
    assert 'role="status">Working on number 4 …' in said[0][0]
    assert "It is 4" in said[1][0]


def test_a_quick_move_says_what_it_did_and_writes_per_cent_in_the_one_way() -> None:
    ready = threading.Event()
    ready.set()
    explorer = Doubling(ready)
    explorer.number.value = 5
    assert said_by(explorer) == "It is 5, not 10 %.\nLast move, number 3 to 5: it rises by 2."
    with explorer.in_one_move():
        explorer.number.value, explorer.unit.value = 6, "MiB"
    explorer.redraw()
    assert said_by(explorer) == "It is 6, not 10 %."  # two things moved, of which neither is the cause


def test_the_words_come_first() -> None:
    ready = threading.Event()
    ready.set()
    explorer = Doubling(ready)
    assert explorer.children[-2:] == (explorer.words, explorer.figure)


class Slowly(Explorer):
    """A number, its whole in two parts, and two parts of what later moves may need; all that was done is told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.number = described(widgets.IntSlider, "number", value=1, min=1, max=9)
        self.lay_out([("1fr", [self.number])], {"number": self.number})

    def _part(self, name: str) -> Callable[[], object]:
        return lambda: self.done.append(name)

    def view(self) -> View:
        number = self.number.value
        shown = View(side_by_side({"number": number}, "GiB"), [f"{number} whole"])
        parts = [self._part(f"{number}{part}") for part in "ab"]
        return replace(shown, sentences=[f"{number} in part"], whole=lambda: shown, parts=parts)

    def ahead(self) -> Iterator[Callable[[], object]]:
        yield self._part("ahead")
        yield self._refused

    def _refused(self) -> None:
        raise CourseError("said to whoever moves there")


def test_a_move_comes_before_what_an_earlier_one_left_and_pauses_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("classroom.explorer.QUIET", 0.0)

    async def two_moves() -> Slowly:
        explorer = Slowly()
        assert said_by(explorer) == "1 in part"
        assert explorer.done == []  # none of it holds the page up
        explorer.number.value = 2
        assert said_by(explorer) == "2 in part"
        assert explorer._going_on is not None
        await explorer._going_on
        return explorer

    explorer = asyncio.run(two_moves())
    assert explorer.done == ["2a", "2b", "ahead"]
    assert said_by(explorer) == "2 whole"


def test_where_no_move_can_come_the_whole_is_shown_at_once_and_nothing_else_is_computed() -> None:
    explorer = Slowly()
    assert said_by(explorer) == "1 whole"
    assert explorer.done == []
