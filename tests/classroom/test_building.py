"""What a build executes again when a file that cells read has changed: no more than that, and never too little."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amount import THOROUGH, share
from hypothesis import given, settings
from hypothesis import strategies as st
from multiples import add_topic

from classroom import ROOT
from classroom.authoring import AuthoringError, plan
from classroom.building import build, hanging_on
from classroom.notebooks import outline, read_notebook, topics
from course_utils.machine.hardware import DEVICES_FILE

LESSON = """\
# %%
from pathlib import Path

# %%
Path("ran").open("a").write("counted ")
rows = [1]

# %%
rows.append(2)

# %%
Path("ran").open("a").write("left ")
print("alone")

# %% reads="data"
rows.append(int(Path("../data").read_text()))

# %%
print(sum(rows))
"""


def lesson(tmp_path: Path, text: str = LESSON) -> Path:
    """A course of one lesson, which reads the file `data`."""
    (add_topic(tmp_path, "03_memory") / "lesson.py").write_text(text)
    (tmp_path / "data").write_text("10")
    return tmp_path


def printed(root: Path) -> list[str]:
    cells = read_notebook(root / "notebooks" / "03_memory.ipynb").cells
    return [output.text for cell in cells for output in cell.outputs]


def test_a_changed_file_runs_what_reads_it_and_what_that_hangs_on(tmp_path):
    root = lesson(tmp_path)
    ran = root / "notebooks" / "ran"
    build([], root)
    assert printed(root) == ["alone\n", "13\n"]
    (root / "data").write_text("20")
    build([], root)
    assert printed(root) == ["alone\n", "23\n"]
    assert ran.read_text() == "counted left counted "
    build([], root)
    assert ran.read_text() == "counted left counted "
    made = read_notebook(root / "notebooks" / "03_memory.ipynb")
    assert [cell.execution_count for cell in made.cells] == [1, 2, 3, 4, 5, 6]
    assert outline(made) == outline(plan("03_memory", root)["notebooks"].notebook)


def test_a_fault_in_what_runs_again_has_its_line(tmp_path):
    root = lesson(tmp_path)
    build([], root)
    before = (root / "notebooks" / "03_memory.ipynb").read_bytes()
    (root / "data").write_text("ten")
    with pytest.raises(AuthoringError, match=r"^lessons/memory/lesson\.py:16: ValueError"):
        build([], root)
    assert (root / "notebooks" / "03_memory.ipynb").read_bytes() == before


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(AuthoringError, match=r"lesson\.py:15: reads='date' is no file of the course"):
        plan("03_memory", lesson(tmp_path, LESSON.replace('reads="data"', 'reads="date"')))


STATEMENTS = (
    "{a} = [1]", "{a} = [*{b}, 2]", "{a}.append(len({b}))", "{a}, {b} = {b}, {a}", "{a} += [3]", "{a} = {a} + {b}",
    "for {a} in [[5], [6]]: {b}.extend({a})", "for _ in range(2): {a} = {a}[:9] + [4]", "{a} = [{b}[:1] for _ in '12']",
    "print({a})", "print({a}, f())",
    "def f(): return sum({a})", "def g(): {a}.append(len({b}))", "g()", "{a}.append(f())", "[g() for {a} in '12']",
    "class C: held = list({a})", "C.held.append(3)", "print(C.held)",
)  # fmt: skip
SETUP = "v, w, x, y = ([] for _ in range(4))\ndef f(): return 0\ndef g(): pass\nclass C: held = []"
CELL = st.lists(
    st.builds(str.format, st.sampled_from(STATEMENTS), a=st.sampled_from("vwxy"), b=st.sampled_from("vwxy")),
    min_size=1,
    max_size=3,
).map("\n".join)


def outputs(sources: list[str], data: int) -> list[str]:
    """What each cell prints, one after the other in one namespace; an error too."""
    space: dict[str, object] = {"data": lambda: data}
    found = []
    for source in sources:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                exec(source, space)
            except Exception as error:  # noqa: BLE001 - what a cell gives, too
                print(repr(error))
        found.append(said.getvalue())
    return found


@settings(max_examples=share(900), deadline=None)
@given(st.lists(CELL, min_size=1, max_size=6), st.lists(CELL, max_size=6), st.sampled_from("vwxy"))
def test_what_is_kept_and_what_runs_again_is_what_a_whole_run_gives(before, after, name):
    sources = [SETUP, *before, f"{name}.append(data())\nprint({name})", *after]
    stale, needed = hanging_on({len(before) + 1}, sources)
    again = dict(zip(needed, outputs([sources[place] for place in needed], data=20), strict=True))
    kept = outputs(sources, data=10)
    made = [again[place] if place in stale else text for place, text in enumerate(kept)]
    assert made == outputs(sources, data=20)


WIDEST = "Widest,2031,Blackwell,1,480,,1792,104,boost,,209.5,dense,yes,5,99,Nobody,,,,\n"


@pytest.mark.skipif(not THOROUGH, reason="executes every notebook, ten minutes; COURSE_TESTS=thorough does")
def test_a_row_of_the_catalogue_changes_no_output_of_the_course_that_is_kept(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    with (tmp_path / DEVICES_FILE.relative_to(ROOT)).open("a", encoding="utf-8") as file:
        file.write(WIDEST)
    said = []
    for numbers in ([], [topic.split("_")[0] for topic in topics(ROOT)]):
        command = [sys.executable, "-m", "classroom.cli", "build", *numbers]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True, text=True)
        said.append(made.stdout.splitlines())
    assert [line for line in said[0] if line.endswith("written")]
    assert not [line for line in said[1] if line.endswith("written")]
