"""A check cell: it runs alone, says which text it judged, and ends. Each cell is run as a notebook runs it."""

from __future__ import annotations

import atexit
import re
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from classroom.questions import cell
from classroom.questions.cell import ABSENT, CheckCell, failed_since
from classroom.questions.core import Feedback, Outcome
from classroom.questions.functions import Check
from course_utils.units import CourseError

RIGHT = "def twice(n):\n    return 2 * n"
CHECK = 'check("twice")'


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Runs a cell in a fresh kernel that holds nothing but `check`; gives the value of its last line."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own there
    one = InteractiveShell()
    monkeypatch.setattr(cell, "get_ipython", lambda: one)
    module = {"twice": Check("twice", lambda n: 2 * n, [(3,), (5,)], [], "good"), "__file__": __file__}
    one.user_ns["check"] = CheckCell(module, seconds=0.5)
    yield lambda source: one.run_cell(source, store_history=True).result
    one.atexit_operations()
    atexit.unregister(one.atexit_operations)


def said(feedback: Feedback) -> tuple[Outcome, str]:
    return feedback.outcome, feedback.message


def test_it_says_which_cell_to_run_where_nothing_is_defined(shell):
    outcome, message = said(shell(CHECK))
    assert outcome is Outcome.NOT_ATTEMPTED
    assert message.startswith("`twice` is not defined: run its cell above, then this one. After a restart, Run >")
    shell(RIGHT)
    assert said(shell(CHECK)) == (Outcome.CORRECT, "good")


@pytest.mark.parametrize(
    "failing",
    ["def twice(n):\n    return 2 * n +", "1 / 0\ndef twice(n):\n    return 3 * n", "dfe twice(n):\n    return n"],
    ids=["syntax", "an exception before it", "no def any more"],
)
def test_what_a_failed_cell_left_is_not_judged(shell, failing, capsys):
    shell(failing)
    outcome, message = said(shell(CHECK))
    assert (outcome, message) == (
        Outcome.CRASHED, "The cell of `twice` failed when it last ran, as In [1]. Mend it and run it first.",
    )  # fmt: skip
    shell(RIGHT)
    assert said(shell(CHECK))[0] is Outcome.CORRECT
    shell("twice(4)")  # trying it out is no new text of it, even if that fails
    shell("twice()")
    assert said(shell(CHECK))[0] is Outcome.CORRECT
    shell(failing)
    outcome, message = said(shell(CHECK))
    assert outcome is Outcome.CRASHED
    assert "as In [8]. `twice` is still what In [3] made it, and was not judged." in message
    shell(RIGHT)
    assert said(shell(CHECK))[0] is Outcome.CORRECT


def test_an_exception_behind_the_definition_leaves_the_new_text_to_be_judged(shell, capsys):
    shell(RIGHT)
    shell("def twice(n):\n    return 3 * n\n\ntwice()")
    assert said(shell(CHECK))[0] is Outcome.WRONG


def test_what_comes_from_no_cell_is_judged(shell):
    shell("twice = (2).__mul__")
    shell("from operator import neg as twice\ntwice = (2).__mul__")
    assert said(shell(CHECK))[0] is Outcome.CORRECT
    for later in (
        "def double(n):\n    return 2 * n",
        "twice = double",
        "from functools import cache\ntwice = cache(twice)",
    ):
        shell(later)
        assert said(shell(CHECK))[0] is Outcome.CORRECT, later
    assert failed_since("n", 3, ["", "n = 3", "n = ", "check"]) == ""
    assert "as In [1]. Mend" in failed_since("n", ABSENT, ["", "n = ", "check"])


@pytest.mark.parametrize("line", ["while True: n += 1", "import time; time.sleep(60)"])
def test_an_endless_answer_ends_in_one_line_that_names_its_own(shell, line):
    if sys.platform == "win32" and "sleep" in line:
        pytest.skip("Windows ends no sleep early")
    shell(f"def twice(n):\n    {line}")
    outcome, message = said(shell(CHECK))
    assert outcome is Outcome.CRASHED
    where = f"in line 2 of your cell: `{line}`"
    assert re.fullmatch(rf"It had not ended after \d s, {re.escape(where)}\. Is there a loop that .+", message)


def test_the_stop_button_ends_in_one_line_as_well(shell):
    shell("import _thread\ndef twice(n):\n    _thread.interrupt_main()\n    while True: n += 1")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # as in a kernel while a cell runs
    assert said(shell(CHECK))[1].startswith("Stopped after 0 s, in line ")


def test_a_name_of_a_cell_that_was_not_run_is_told_from_a_slip(shell, tmp_path, monkeypatch):
    source = '# %% [markdown]\n# # Title\n\n# %%\nimport math\n\n# %% answer="twice"\ndef twice(n):\n    return 2 * n\n'
    (tmp_path / "exercise.py").write_text(source)
    shell("check.module['__file__'] = " + repr(str(tmp_path / "checks.py")))
    shell("def twice(n):\n    return math.floor(2 * n)")
    assert said(shell(CHECK))[1].endswith(
        ". `math` comes from a cell of this notebook that was not run since the kernel started: "
        "Run > Run All Above Selected Cell runs all that it needs."
    )
    shell("def twice(n):\n    return maht.floor(2 * n)")
    assert "comes from a cell" not in said(shell(CHECK))[1]


def test_a_wrong_call_is_one_line(shell):
    check = CheckCell({"twice": Check("twice", abs, [(1,)], [], "good")})
    with pytest.raises(CourseError, match="unknown question 'twize': choose one of twice"):
        check("twize")


def test_where_no_inputs_are_kept_the_limit_is_another_ones(shell, monkeypatch):
    """As where it is marked, on a machine that may be doing much else."""
    shell(RIGHT)
    shell("In.clear()")
    monkeypatch.setattr(cell, "interrupted_after", None)
    assert said(shell("check('twice')"))[0] is Outcome.CORRECT


def test_every_check_cell_of_the_course_runs_alone() -> None:
    """It imports what it calls, and names its question and nothing else."""
    from classroom import ROOT

    cells = 0
    for path in sorted((ROOT / "lessons").glob("*/exercise.py")):
        text = path.read_text(encoding="utf-8")
        topic = path.parent.name
        for part in text.split("\n# %% ")[1:]:
            if part.startswith("check="):
                question = part.split('"')[1]
                code = part.split("\n", 1)[1].strip()
                assert code == f'from lessons.{topic}.checks import check\n\ncheck("{question}")'
                cells += 1
    assert cells > 70
