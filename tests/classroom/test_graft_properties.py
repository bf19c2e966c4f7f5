"""Laws of grafting for any file: only texts of answers are the learner's, any damage ends in a mark or in one line."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from multiples import NAMES, answer, notebooks, right
from nbformat import NotebookNode

from classroom.grading.graft import Graft, graft, kind_of
from classroom.notebooks import as_notebook, parse_notebook, to_text
from classroom.questions.core import defines
from course_utils.units import CourseError

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ["", "...", *map(right, NAMES)]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), TEXTS), st.lists(TEXTS, max_size=3), st.randoms(use_true_random=False))
def test_nothing_but_the_texts_of_answers_is_the_learners(sources, others, dice) -> None:
    exercise, solution = notebooks()
    exercise = answer(as_notebook(exercise), **sources)
    outside = [as_notebook({**exercise.cells[1], "id": f"other-{i}", "source": s}) for i, s in enumerate(others)]
    exercise.cells += outside
    dice.shuffle(exercise.cells)
    exercise.cells = [cell for cell in exercise.cells if kind_of(cell)[0] == "answer" or dice.random() < 0.7]
    grafted = graft(exercise, solution)
    made = {cell.id: cell for cell in grafted.notebook(NAMES).cells}
    assert list(made) == [cell.id for cell in solution.cells if cell.cell_type == "code"]
    for cell in solution.cells:
        kind, question = kind_of(cell)
        if kind == "answer":
            given_text = sources.get(question, cell.metadata.course.stub)
            used = grafted.answers[question].attempted
            elsewhere = [text for text in (*others, *sources.values()) if defines(text, [question])]
            untouched = given_text.strip() in ("", cell.metadata.course.stub.strip())
            if elsewhere and untouched:  # it may be marked where it stands
                continue
            expected = given_text if used else cell.metadata.course.stub
            assert made[cell.id].source == expected
            assert used is not untouched
        elif cell.cell_type == "code":
            assert made[cell.id].source == cell.source
            assert "tags" not in made[cell.id].metadata


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), TEXTS))
def test_ids_metadata_and_a_round_trip_through_a_file_find_the_same_answers(sources) -> None:
    exercise, solution = notebooks()
    whole = answer(as_notebook(exercise), **sources)
    without_ids, without_metadata = as_notebook(whole), as_notebook(whole)
    for i, (one, other) in enumerate(zip(without_ids.cells, without_metadata.cells, strict=True)):
        one.id, other.metadata = f"x{i}", NotebookNode()
    found = graft(whole, solution).answers
    for same in (without_ids, without_metadata, parse_notebook(to_text(whole).encode(), "x")):
        assert graft(same, solution).answers == found


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to each value in nested JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, part in inner for place in places(part, (*path, key))]


def graft_or_line(data: bytes) -> Graft | str:
    """What becomes of a file: its answers, or the line that is said of it."""
    try:
        return graft(parse_notebook(data, "x.ipynb"), notebooks()[1])
    except CourseError as error:
        return str(error)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_is_put_anywhere_in_a_notebook_ends_in_a_graft_or_in_one_line(data) -> None:
    exercise, _ = notebooks()
    content = json.loads(to_text(answer(copy.deepcopy(exercise), one=right("one"))))
    for _ in range(data.draw(st.integers(1, 3))):
        *inner, last = data.draw(st.sampled_from(places(content)))
        holder = content
        for key in inner:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(JUNK)
        else:
            del holder[last]
    grafted = graft_or_line(json.dumps(content).encode())
    if isinstance(grafted, str):
        assert "\n" not in grafted
        return
    to_text(grafted.notebook(NAMES)).encode()
    assert all("\n" not in line for a in grafted.answers.values() for line in a.flags)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_bytes_cut_out_or_put_in_end_in_a_graft_or_in_one_line(data) -> None:
    exercise, _ = notebooks()
    whole = to_text(exercise).encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 200)))
    grafted = graft_or_line(whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:])
    assert isinstance(grafted, Graft) or "\n" not in grafted
