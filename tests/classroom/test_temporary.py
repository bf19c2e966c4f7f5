"""What a grading leaves of its temporary files: nothing, also when it is ended or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from classroom.grading import sandbox, temporary

RUN = """\
import subprocess, tempfile, threading, time
from pathlib import Path
from classroom.execution import execute
from classroom.grading.temporary import one_folder
from classroom.notebooks import as_notebook
def run_notebook(source):
    cell = {"cell_type": "code", "id": "a", "source": source, "metadata": {}, "execution_count": None, "outputs": []}
    execute(as_notebook({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}), folder, "a")
def tell():
    while not list(folder.glob("told")):
        time.sleep(0.1)
    print((folder / "told").read_text(), flush=True)
with one_folder() as folder:
    tempfile.mkdtemp()
"""
AT_WORK = {
    "alone": "",
    "after a notebook": "    run_notebook('1')\n",
    "in a notebook": (
        "    threading.Thread(target=tell, daemon=True).start()\n"
        "    run_notebook('import os, time; open(\"new\", \"w\").write(str(os.getpid())); '\n"
        "                 'os.rename(\"new\", \"told\"); time.sleep(1000)')\n"
    ),
}
ENDLESS = """\
    child = subprocess.Popen(["sleep", "1000"])
    try:
        print(child.pid, flush=True)
        time.sleep(1000)
    finally:
        child.kill()
        child.wait()
"""
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks and signals are those of Unix")


def started(folder: Path, at_work: str = "alone") -> tuple[subprocess.Popen[str], int]:
    """A process at work in its temporary folder below this one, and the id of a process it started."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN + AT_WORK[at_work] + ENDLESS], env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


# nbclient takes SIGTERM while it runs a notebook, and knows no SIGHUP.
@pytest.mark.parametrize(("number", "at_work"), [*((signal.SIGTERM, one) for one in AT_WORK), (signal.SIGHUP, "alone")])
def test_a_grading_that_is_asked_to_end_leaves_nothing(number: signal.Signals, at_work: str, tmp_path: Path) -> None:
    process, child = started(tmp_path, at_work)
    assert os.listdir(tmp_path)
    family = [psutil.Process(child)]
    process.send_signal(number)
    assert process.wait(20) == -signal.SIGINT  # as at Ctrl-C
    assert os.listdir(tmp_path) == []
    assert not psutil.wait_procs(family, timeout=20)[1]


def test_the_next_grading_clears_what_a_killed_one_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "course-of-mine").mkdir()
    process, child = started(tmp_path)
    alive, other = started(tmp_path)
    process.kill()
    process.wait()
    assert len(os.listdir(tmp_path)) == 3
    monkeypatch.setattr(temporary, "YOUNG", -1)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with temporary.one_folder() as folder:
        assert len(os.listdir(tmp_path)) == 3  # ours, theirs who still works, and what is none of a grading's
    assert not folder.exists()
    alive.terminate()
    alive.wait(20)
    assert os.listdir(tmp_path) == ["course-of-mine"]
    os.kill(child, signal.SIGKILL)
    assert not psutil.pid_exists(other)


def test_a_folder_with_too_long_a_name_is_said_in_one_line_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux":
        pytest.skip("sandboxes need Linux")
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    said = sandbox.why_not()
    assert said is not None
    assert "TMPDIR" in said
    assert "\n" not in said
