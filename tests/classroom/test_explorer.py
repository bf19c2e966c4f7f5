"""What every explorer has from its base: columns of controls, the last move, and that a slow move says so."""

from __future__ import annotations

import threading

import ipywidgets as widgets
from drawn import said_by

from classroom.explorer import FAINT, Explorer, View, described
from course_utils.figures import side_by_side


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
