"""What an answer needs is taken along: what worked in a learner's notebook works where it is marked, no more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multiples import answer, cell_of, notebooks, right
from nbformat import NotebookNode

from classroom.grading.graft import graft
from classroom.grading.needs import own_part, with_needs
from classroom.notebooks import as_notebook
from classroom.questions.core import names_in


def exercise(*cells: str, **answers: str) -> NotebookNode:
    """The exercise with these answers, and cells of the learner's own before them."""
    notebook, _ = notebooks()
    notebook = answer(as_notebook(notebook), **answers)
    own = [{**notebook.cells[1], "id": f"own-{i}", "source": source} for i, source in enumerate(cells)]
    notebook.cells[2:2] = [as_notebook(cell) for cell in own]
    return notebook


def found(notebook: NotebookNode) -> dict[str, Any]:
    return {name: one for name, one in graft(notebook, notebooks()[1]).answers.items() if one.attempted}


def ran(*cells: str) -> dict[str, Any]:
    """The names after cells have run, one after the other."""
    space: dict[str, Any] = {}
    for cell in cells:
        exec(cell, space)
    return space


@st.composite
def definitions(draw: Any) -> list[str]:
    """Constants and functions, each of which may use earlier ones."""
    made = []
    for place in range(draw(st.integers(1, 6))):
        used = draw(st.lists(st.integers(0, place - 1), max_size=2)) if place else []
        terms = [str(draw(st.integers(1, 9))), *(f"h{i}(n)" for i in used)]
        total = " + ".join(terms)
        body = draw(
            st.sampled_from(
                [
                    "def h{0}(n):\n    return n + {1}",
                    "h{0} = lambda n: {1}",
                    "FACTOR{0} = 2\ndef h{0}(n):\n    return FACTOR{0} * ({1})",
                ]
            )
        )
        made.append(body.format(place, total))
    return made


@settings(deadline=None)
@given(definitions(), st.data())
def test_what_worked_in_a_notebook_works_where_it_is_marked(helpers: list[str], data: Any) -> None:
    last = data.draw(st.integers(0, len(helpers) - 1))
    source = f"def one(n):\n    return h{last}(n)"
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(helpers) - 1)))))
    cells = ["\n".join(helpers[a:b]) for a, b in zip([0, *cuts], [*cuts, len(helpers)], strict=True)]
    cells += ["unused = [1]\nprint(unused)", "unused.append(2)"]
    grafted = found(exercise(*cells, one=source))["one"].source
    assert ran(grafted)["one"](5) == ran(*cells, source)["one"](5)
    assert grafted.endswith(source)
    assert "unused" not in grafted


def test_a_constant_in_an_earlier_part_of_a_split_answer() -> None:
    notebook = exercise(one="def one(n):\n    return n * FACTOR")
    notebook.cells.insert(
        2, as_notebook({**cell_of(notebook, "answer-one"), "id": "x", "source": "FACTOR = 1\nprint(2)"})
    )
    one = found(notebook)["one"]
    assert one.source == "FACTOR = 1\n\ndef one(n):\n    return n * FACTOR"
    assert one.flags == (
        "2 cells claim it; the last changed one was marked",
        "with it was marked what other cells define for it: FACTOR",
    )


def test_all_answers_in_one_cell_are_each_marked_by_themselves() -> None:
    cell = "import math, sys\nK = 2\n" + "\n\n".join(
        (right("one"), "def two(n):\n    return n * K\n\nprint(two(3))", right("three"))
    )
    for elsewhere in (exercise(cell), exercise(one=cell)):
        answers = found(elsewhere)
        assert {name: one.source for name, one in answers.items()} == {
            "one": right("one"),
            "two": "K = 2\n\ndef two(n):\n    return n * K\n\nprint(two(3))",
            "three": right("three"),
        }
        assert "its answer cell is as it was handed out; the cell that defines `two` was marked" in answers["two"].flags


def test_what_the_set_up_and_other_questions_bind_is_never_taken() -> None:
    own = "NAMES = ('mine',)\ncheck = None\ngraded = print"
    (one,) = found(exercise(own, one="def one(n):\n    return (NAMES, check, graded, two, n)")).values()
    assert one.source == "def one(n):\n    return (NAMES, check, graded, two, n)"


def test_what_a_cell_does_beside_defining_stays_where_it_is() -> None:
    own = "import os\nos.environ['x'] = 'y'\ntable = {}\ntable['a'] = 1\nfor i in range(3):\n    table[i] = i"
    (one,) = found(exercise(own, one="def one(n):\n    return table, os")).values()
    assert one.source == "import os\n\ntable = {}\n\ndef one(n):\n    return table, os"


def test_an_untouched_exercise_attempts_nothing_whatever_else_is_in_it() -> None:
    assert not found(exercise("one == 1", "x = 1", "# def one(n): pass"))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(n):\n    x = n\n    return x + y + len(z)", {"y", "z"}),
        ("class A(B):\n    c = d\n    def e(self, g=h):\n        return self.i(c)", {"B", "d", "h", "c"}),
        ("[a for a in b if c]\nlambda d: d + e", {"b", "c", "e"}),
        ("import a\na.b = c\nfrom x import d as e\ne, d", {"c", "d"}),
        ("@deco\ndef f(): pass", {"deco"}),
        ("%magic", set()),
        ("(" * 10_000, set()),
    ],
)
def test_needed_names(source: str, names: set[str]) -> None:
    assert names_in(source)[1] == names


def test_of_several_definitions_the_last_before_the_answer_counts() -> None:
    made, taken = with_needs("x = a", ["a = 1; b = 2", "a = 3"], ["a = 4", "c = 5"], ["z"])
    assert (made, taken) == ("a = 3\n\nx = a", ("a",))
    assert with_needs("x = c", ["a = 1"], ["c = z + q", "q = 2"], ["z"])[0] == "c = z + q\n\nq = 2\n\nx = c"
    assert own_part("a = 1\r\nb = a", ["b"], ["c"]) == "a = 1\r\nb = a"
