"""The check of lesson 00 names the thought in the cell that readers are to mend, and every other slip that it lists."""

import pytest
from own import own

from classroom import ROOT
from classroom.notebooks import read_notebook
from classroom.questions.core import Outcome
from lessons.start_here.checks import output_bytes


@pytest.mark.parametrize("slip", output_bytes.slips, ids=lambda slip: slip.name)
def test_a_slip_is_named(slip):
    found = output_bytes(own(slip.function))
    assert found.outcome is Outcome.WRONG
    assert slip.message in found.message


def test_the_right_answer_is_right_however_it_is_written():
    found = output_bytes(lambda images, channels, height, width: width * height * channels * images * 4)
    assert found.outcome is Outcome.CORRECT


def test_the_cell_as_it_is_read_holds_the_slip_that_the_check_names():
    cells = read_notebook(ROOT / "notebooks" / "00_start_here.ipynb").cells
    (answer,) = [cell.source for cell in cells if "def output_bytes" in cell.source]
    given: dict[str, object] = {}
    exec(answer, given)
    found = output_bytes(given["output_bytes"])
    assert output_bytes.slips[0].message in found.message
