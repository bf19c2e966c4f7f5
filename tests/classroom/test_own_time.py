"""A neighbour that burns processors costs nobody a question: a cell's time is that of its kernel, not the clock's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from multiples import answer, build_course, imports_of_every_exercise, mark_stranger
from nbformat import NotebookNode

from classroom.grading import own_time, sandbox
from classroom.grading.graft import graft
from classroom.grading.mark import QuestionMark
from classroom.grading.own_time import LEAST, OwnTime, child_of, shares
from classroom.grading.run import Limits
from classroom.grading.sandbox import Confinement, Sandbox
from classroom.notebooks import read_notebook
from classroom.questions.core import Outcome

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's schedstat")
HOGS = 3
BURNS = """\
import time
def three(n):
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    return 3 * n
"""


@pytest.mark.parametrize(
    ("shared", "own"),  # by thread, what it ran and waited in ten seconds
    [
        ({}, 10.0),
        ({"1": (6.0, 4.0)}, 6.0),
        ({"1": (1.0, 4.0), "2": (1.0, 5.0)}, 5.0),
        ({"1": (0.0, 10.0)}, 10 * LEAST),
        ({"3": (0.0, 99.0)}, 10 * LEAST),
        ({"1": (5.0, 5.0), "2": (5.0, 5.0)}, 10.0),  # each waited for the other
        ({"1": (2.0, 8.0), "2": (4.0, 6.0)}, 6.0),  # and both for others
        ({"1": (10.0, 0.0), "2": (10.0, 0.0)}, 10.0),  # on two processors
    ],
)
def test_what_a_kernel_waits_for_others_does_not_count_but_for_itself_it_does(
    shared: dict[str, tuple[float, float]], own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, found = [100.0], (Counter({"1": int(3e9)}), Counter({"1": int(7e9)}))
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr(own_time, "shares", lambda process: tuple(one.copy() for one in found))
    counted = OwnTime(1)
    for _ in range(2):
        clock[0] += 5
        for thread, both in shared.items():
            for one, seconds in zip(found, both, strict=True):
                one[thread] += int(seconds / 2 * 1e9)
        counted.look()
    assert counted.seconds == pytest.approx(own)


@pytest.mark.parametrize("of", ["threads", "processes"])
def test_what_starve_each_other_have_the_time_that_they_ran(of: str) -> None:
    """Six on one processor: each waits for five sixths of the time, and all of it is their own."""
    burn = f"""
import multiprocessing, os, threading
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
def spin():
    while True: pass
make = threading.Thread if {of!r} == "threads" else multiprocessing.get_context("fork").Process
for _ in range(5): make(target=spin, daemon=True).start()
print(flush=True)
spin()
"""
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as hog:
        try:
            assert hog.stdout is not None
            hog.stdout.readline()
            counted = OwnTime(hog.pid)
            before = counted._shares[0].total()
            for _ in range(10):
                time.sleep(0.1)
                counted.look()
            assert counted.seconds >= 0.95 * (counted._shares[0].total() - before) / 1e9
            assert counted.seconds > LEAST
        finally:
            for child in psutil.Process(hog.pid).children():
                child.kill()
            hog.kill()


def test_of_a_process_that_is_not_there_the_clock_counts() -> None:
    assert shares(None) == shares(2**22 + 1) == (Counter(), Counter())
    assert OwnTime(2**22 + 1).look() >= 0
    assert child_of(None) is child_of(2**22 + 1) is None


def test_a_process_that_ends_while_it_is_looked_at_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["1", "2"])
    assert shares(2**22 + 1) == (Counter(), Counter())


@pytest.fixture
def course(tmp_path: Path) -> tuple[NotebookNode, NotebookNode]:
    root = build_course(tmp_path / "course")
    exercise, solution = (read_notebook(root / name / "01_multiples.ipynb") for name in ("exercises", "solutions"))
    return exercise, solution


@pytest.fixture
def beside_hogs(course: tuple[NotebookNode, NotebookNode]) -> Iterator[Callable[[str], QuestionMark]]:
    """The mark of an answer to `three` in a sandbox whose processor others burn, each in a session of its own."""
    with contextlib.closing(Sandbox(imports_of_every_exercise(), Confinement())) as box:

        def marked(source: str) -> QuestionMark:
            exercise, solution = course
            grafted = graft(answer(exercise, three=source), solution)
            found = mark_stranger(grafted, Limits(cell=2), box)
            return next(one for one in found.questions if one.question == "three")

        box._processors = box._processors[:1]
        burn = f"import os; os.sched_setaffinity(0, {box._processors}); print(flush=True)\nwhile True: pass"
        hogs = [
            subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE, start_new_session=True)
            for _ in range(HOGS)
        ]
        try:
            for hog in hogs:
                assert hog.stdout is not None
                hog.stdout.readline()
            yield marked
        finally:
            for hog in hogs:
                hog.kill()
                hog.communicate()


@pytest.mark.skipif(bool(sandbox.why_not()), reason=f"sandbox: {sandbox.why_not()}")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_beside_hogs_an_honest_answer_is_not_called_endless_and_an_endless_one_is(
    beside_hogs: Callable[[str], QuestionMark],
) -> None:
    assert beside_hogs(BURNS).outcome is Outcome.CORRECT
    endless = beside_hogs("def three(n):\n    while True:\n        pass")
    assert (endless.outcome, "a loop that never ends" in endless.diagnosis) == (Outcome.CRASHED, True)
