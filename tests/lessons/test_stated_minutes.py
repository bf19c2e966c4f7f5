"""The minutes that a lesson states: what readers needed for twelve lessons, put as a rule, and held against all."""

from __future__ import annotations

import pytest

from classroom import ROOT
from classroom.authoring import plan
from classroom.hours import stated
from classroom.notebooks import topics

# Minutes that a reader with pencil and guesses needed for a lesson without its exercise, read for the first time.
READ = {
    "01": 135, "02": 145, "03": 120, "04": 85, "05": 95, "06": 85, "09": 110, "10": 80, "11": 120, "12": 110, "14": 150,
}  # fmt: skip
WORDS_A_MINUTE, A_CHANGE = 25, 8  # fitted to READ: text read with its outputs, minutes for a cell that is changed
NEAR = 0.25  # of what the rule says
OUTSIDE = {"00", "A"}  # a tour that is run together, not studied; tables, whose words are outputs


def by_the_rule(topic: str) -> float:
    """Minutes for a lesson, from the words of its text and the cells that the reader changes."""
    cells = plan(topic, ROOT)["notebooks"].notebook.cells
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    changes = sum("change" in cell.metadata.get("tags", []) for cell in cells)
    return words / WORDS_A_MINUTE + A_CHANGE * changes


STATED = stated(ROOT)
NUMBERS = {topic: topic.split("_")[0] for topic in topics(ROOT)}


@pytest.mark.parametrize("topic", [topic for topic, number in NUMBERS.items() if number in READ])
def test_the_rule_says_about_what_readers_needed(topic):
    assert by_the_rule(topic) == pytest.approx(READ[NUMBERS[topic]], rel=NEAR)


@pytest.mark.parametrize("topic", [topic for topic, number in NUMBERS.items() if number not in OUTSIDE])
def test_a_lesson_states_about_what_the_rule_says(topic):
    minutes = by_the_rule(topic)
    assert STATED[topic].lesson == pytest.approx(minutes, rel=NEAR), f"the rule says {5 * round(minutes / 5)} minutes"
