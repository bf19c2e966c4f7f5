"""A class graded end to end: seconds, speed-up over jobs, memory, what is left behind; and the same beside nbgrader.

    python benchmarks/grading.py [--submissions 200] [--jobs 1 2] [--exercise 03 02] [--beside 20] [--nbgrader PATH]

Submissions are made from the solution, every slip of the catalogue, untouched stubs, answers that raise, and hostile
ones; so the marks are known, and each is compared. Beside nbgrader, submissions made alike, but none of them hostile
(it has no sandbox), are graded by both in turn, in one run. nbgrader is no requirement of the course: give it an
environment of its own, `python -m venv nbg; nbg/bin/pip install nbgrader==0.9.6`, and name `--nbgrader
nbg/bin/nbgrader`.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from nbformat import NotebookNode
from rich.console import Console
from rich.table import Table

from classroom.grading.batch import Result, read_results
from classroom.grading.graft import kind_of, read_questions
from classroom.grading.secret import reference, token
from classroom.notebooks import as_notebook, read_notebook, to_text
from classroom.questions.core import Outcome
from classroom.questions.graded import draw_from, draws_for
from course_utils.units import CourseError, format_bytes

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = Console(width=None if sys.stdout.isatty() else 130)
SEED = "a class of strangers"
SECONDS = 20  # allowed for a cell, in both
ROUNDS = 2
# Of 100 answers: right, a slip, not attempted, raises. Of 100 submissions this many have one hostile answer as well.
SHARES = {"right": 60, "slip": 25, "untouched": 8, "raises": 7}
HOSTILE_SHARE = 5
HOSTILE = {
    "ends the kernel": "import os\nos._exit(1)",
    "endless": "while True:\n    pass",
    "floods": "while True:\n    print('x' * 10**5)",
    "forks": "import os\nwhile True:\n    os.fork()",
    "steals": "print(open('/etc/passwd').read())\nraise SystemError('stolen')",
    "leaves a daemon": "import os\nif not os.fork():\n    os.execv('/bin/setsid', ['', 'sleep', '999'])\nraise OSError",
}


@dataclass(frozen=True)
class Made:
    """A submission and the outcome that each of its answers must get."""

    learner: str
    notebook: NotebookNode
    expected: dict[str, Outcome]
    told: dict[str, str]  # question -> the message of the slip that was made
    hostile: bool


class Exercise:
    """One exercise, and the texts that submissions to it are made of."""

    def __init__(self, number: str) -> None:
        (path,) = (ROOT / "solutions").glob(f"{number}_*.ipynb")
        self.number, self.topic = number, path.stem.partition("_")[2]
        self.solution, self.blank = read_notebook(path), read_notebook(ROOT / "exercises" / path.name)
        self.questions = read_questions(self.solution)
        self.right = {kind_of(cell)[1]: cell.source for cell in self.solution.cells if kind_of(cell)[0] == "answer"}
        slips = {question: self._slips(question) for question in self.right}
        self.turns = {question: itertools.cycle(found) for question, found in slips.items() if found}

    def _slips(self, question: str) -> list[tuple[str, str]]:
        """(answer, message) for each slip of a function's catalogue: a table of what it returns to what it is asked."""
        check = getattr(importlib.import_module(f"lessons.{self.topic}.checks"), question)
        graded = getattr(importlib.import_module(f"lessons.{self.topic}.graded"), question)
        if not hasattr(graded, "draw") or not getattr(check, "slips", ()):
            return []
        draw_from(question, token(SEED, question))
        asked = [*check.cases, *graded.draw(draws_for(question))]
        found = []
        for slip in check.slips:
            try:
                table = {repr(tuple(arguments)): slip.function(*arguments) for arguments in asked}
                if eval(repr(table), {}) != table:  # nan, say, is not equal to itself
                    continue
            except Exception:  # noqa: BLE001, S112 - a slip that raises, or whose results no text can hold
                continue
            found.append((f"def {question}(*inputs):\n    return {table!r}[repr(inputs)]", slip.message))
        return found

    def make(self, index: int, dice: random.Random, hostile: bool = True) -> Made:
        """One submission; a question's slips take turns, so that each of the catalogue occurs."""
        notebook, expected, told = as_notebook(self.blank), {}, {}
        cells = {kind_of(cell)[1]: cell for cell in notebook.cells if kind_of(cell)[0] == "answer"}
        for question, cell in cells.items():
            (what,) = dice.choices(list(SHARES), list(SHARES.values()))
            if what == "slip" and question in self.turns:
                cell.source, told[question] = next(self.turns[question])
                expected[question] = Outcome.WRONG
            elif what in ("right", "slip"):
                cell.source, expected[question] = self.right[question], Outcome.CORRECT
            elif what == "raises":
                cell.source = f"def {question}(*inputs):\n    raise ZeroDivisionError"
                expected[question] = Outcome.CRASHED
            else:
                expected[question] = Outcome.NOT_ATTEMPTED
        evil = hostile and index % 100 < HOSTILE_SHARE
        if evil:
            victim = dice.choice(list(cells))
            cells[victim].source = list(HOSTILE.values())[index % 100 + (index // 100) % 2]
            expected[victim] = Outcome.CRASHED
            told.pop(victim, None)
        return Made(f"learner {index:03}", notebook, expected, told, evil)


class Watch(threading.Thread):
    """Looks at a process and all it starts, a few times a second, until it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.process, self.seen, self.most, self.shared = process, set[psutil.Process](), 0, 0

    def run(self) -> None:
        while self.process.poll() is None:
            resident = proportional = 0
            try:
                family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
            except psutil.NoSuchProcess:
                break
            for one in family:
                try:
                    memory = one.memory_full_info()
                except psutil.Error:
                    continue
                self.seen.add(one)
                resident, proportional = resident + memory.rss, proportional + memory.pss
            self.most, self.shared = max(self.most, resident), max(self.shared, proportional)
            time.sleep(0.5)

    def alive(self) -> int:
        """How many of the processes that were seen still run."""
        return sum(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in self.seen)


@dataclass(frozen=True)
class Ran:
    """What a command took, and what it left."""

    seconds: float
    peak_bytes: int  # resident, what several share counted once
    resident_bytes: int  # resident, what several share counted for each
    processes: int
    files: int


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None, log: Path | None = None) -> Ran:
    """Run a command to its end, with a folder of its own for temporary files; what it says goes to `log` if given."""
    temporary = Path(tempfile.mkdtemp(prefix="b"))
    began = time.monotonic()
    variables = {**os.environ, **(environment or {}), "TMPDIR": str(temporary)}
    stream = log.open("ab") if log else None
    process = subprocess.Popen(command, cwd=folder, env=variables, stdout=stream, stderr=stream)
    watch = Watch(process)
    watch.start()
    process.wait()
    if stream is not None:
        stream.close()
    seconds = time.monotonic() - began
    watch.join()
    time.sleep(2)
    left = Ran(seconds, watch.shared, watch.most, watch.alive(), len(list(temporary.iterdir())))
    shutil.rmtree(temporary, ignore_errors=True)
    return left


def course_grade(exercise: Exercise, handed_in: Path, out: Path, jobs: int) -> tuple[Ran, dict[str, Result]]:
    command = [sys.executable, "-m", "classroom.cli", "grade", str(handed_in), "--exercise", exercise.number]
    options = {"--out": out, "--seed": SEED, "--jobs": jobs, "--seconds": SECONDS}
    ran = run([*command, *(str(part) for pair in options.items() for part in pair)], ROOT)
    return ran, {result.learner: result for result in read_results(out / "results").values()}


def hand_in(made: list[Made], folder: Path) -> Path:
    folder.mkdir()
    for one in made:
        (folder / f"{one.learner}.ipynb").write_text(to_text(one.notebook), encoding="utf-8")
    return folder


def differences(made: list[Made], results: dict[str, Result]) -> tuple[list[str], int, int]:
    """What was not marked as it must be; of the slips, how many were told their own message, and how many there are."""
    wrong, told, slips = [], 0, 0
    for one in made:
        result = results.get(one.learner)
        if result is None or result.failed:
            wrong.append(f"{one.learner}: not marked")
            continue
        for mark in result.marks.questions:
            if mark.outcome is not one.expected[mark.question]:
                expected = one.expected[mark.question].value
                wrong.append(f"{one.learner}, {mark.question}: {mark.outcome.value}, not {expected}: {mark.diagnosis}")
            if mark.question in one.told:
                slips += 1
                told += mark.diagnosis == one.told[mark.question]
    return wrong, told, slips


def class_table(exercise: Exercise, submissions: int, jobs: list[int], folder: Path) -> None:
    """A class of this size, graded with each number of jobs."""
    dice = random.Random(exercise.number)
    made = [exercise.make(index, dice) for index in range(submissions)]
    handed_in = hand_in(made, folder / "class")
    kinds = Counter(outcome.value for one in made for outcome in one.expected.values())
    CONSOLE.print(
        f"\n[bold]Exercise {exercise.number}[/]: {submissions} submissions, {sum(one.hostile for one in made)} with a "
        f"hostile answer; answers: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
    )
    names = (
        "jobs",
        "seconds",
        "a submission",
        "speed-up",
        "peak memory",
        "(summed)",
        "as expected",
        "told the slip",
        "left",
    )
    table = Table(*names)
    first = None
    for number in jobs:
        ran, results = course_grade(exercise, handed_in, folder / f"out{number}", number)
        wrong, told, slips = differences(made, results)
        first = first or ran.seconds
        table.add_row(
            str(number), f"{ran.seconds:.0f}", f"{ran.seconds / submissions:.2f} s", f"{first / ran.seconds:.2f}",
            format_bytes(ran.peak_bytes), format_bytes(ran.resident_bytes),
            f"{submissions - len({line.split(',')[0].split(':')[0] for line in wrong})} of {submissions}",
            f"{told} of {slips}", f"{ran.processes} processes, {ran.files} files",
        )  # fmt: skip
        for line in wrong[:10]:
            CONSOLE.print(line, markup=False, style="red")
    CONSOLE.print(table)


# -- nbgrader ----------------------------------------------------------------------------------------------------------


def assignment(exercise: Exercise, trusted: NotebookNode) -> NotebookNode:
    """The exercise as nbgrader's source notebook: the same answer cells, and tests that do what graded cells do.

    A test has the same inputs drawn, has the same function called, and compares what is printed with the reference.
    """
    points = {question.name: question.points for question in exercise.questions}
    cells = []
    for cell in trusted.cells:
        kind, question = kind_of(cell)
        if cell.cell_type != "code" or kind == "check":
            continue
        facts: dict[str, Any] = {
            "schema_version": 3, "grade_id": cell.id, "locked": kind != "answer", "solution": kind == "answer",
            "grade": kind == "graded", "task": False,
        }  # fmt: skip
        source = cell.source
        if kind == "graded":
            facts["points"] = points[question]
            printed = "".join(output.get("text", "") for output in cell.outputs)
            body = textwrap.indent(source, "    ")
            source = (
                "from IPython.utils.capture import capture_output\n\n"
                f"with capture_output() as said:\n{body}\nassert said.stdout == {printed!r}"
            )
        cells.append({
            "cell_type": "code", "id": cell.id, "source": source, "metadata": {"nbgrader": facts}, "outputs": [],
            "execution_count": None,
        })  # fmt: skip
    kernel = {"name": "course", "display_name": "course", "language": "python"}
    return as_notebook({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells})


def prepare(exercise: Exercise, made: list[Made], folder: Path, nbgrader: str) -> dict[str, str]:
    """A course folder of nbgrader's, with every submission handed in; returns the environment to run nbgrader in."""
    kernel = folder / "jupyter" / "kernels" / "course"
    source = folder / "source" / "bench"
    for place in (kernel, source):
        place.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "course", "language": "python", "env": {"PYTHONPATH": str(ROOT)}}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    (folder / "nbgrader_config.py").write_text(f"c = get_config()\nc.ExecutePreprocessor.timeout = {SECONDS}\n")
    (source / "exercise.ipynb").write_text(to_text(assignment(exercise, reference(exercise.solution, SEED))))
    path = f"{Path(nbgrader).parent}{os.pathsep}{os.environ['PATH']}"  # it calls another program of its environment
    environment = {"JUPYTER_PATH": str(folder / "jupyter"), "PYTHONPATH": "", "PATH": path}
    run([nbgrader, "generate_assignment", "bench"], folder, environment, folder / "log")
    release = folder / "release" / "bench" / "exercise.ipynb"
    if not release.exists():
        raise CourseError(f"nbgrader made no assignment: {(folder / 'log').read_text().strip().splitlines()[-1]}")
    for one in made:
        notebook = read_notebook(release)
        answers = {kind_of(cell)[1]: cell.source for cell in one.notebook.cells if kind_of(cell)[0] == "answer"}
        for cell in notebook.cells:
            if cell.metadata.nbgrader.solution:
                cell.source = answers[cell.metadata.nbgrader.grade_id.removeprefix("answer-")]
        submitted = folder / "submitted" / one.learner.replace(" ", "_") / "bench" / "exercise.ipynb"
        submitted.parent.mkdir(parents=True)
        submitted.write_text(to_text(notebook), encoding="utf-8")
    return environment


def beside_nbgrader(exercise: Exercise, submissions: int, folder: Path, nbgrader: str) -> None:
    """The same submissions graded by both, in turn."""
    dice = random.Random(exercise.number)
    made = [exercise.make(index, dice, hostile=False) for index in range(submissions)]
    handed_in, theirs = hand_in(made, folder / "same"), folder / "nbgrader"
    environment = prepare(exercise, made, theirs, nbgrader)
    autograde = [nbgrader, "autograde", "bench", "--force"]
    table = Table("round", "nbgrader autograde", "course grade", "ratio", "left by nbgrader", "left by course")
    ratios = []
    for turn in range(1, ROUNDS + 1):
        one = run(autograde, theirs, environment, theirs / "log")
        other, results = course_grade(exercise, handed_in, folder / f"beside{turn}", jobs=1)
        ratios.append(one.seconds / other.seconds)
        table.add_row(
            str(turn), f"{one.seconds / submissions:.2f} s", f"{other.seconds / submissions:.2f} s",
            f"{ratios[-1]:.1f}", f"{one.processes} processes", f"{other.processes} processes",
        )  # fmt: skip
    run([nbgrader, "export", f"--to={folder / 'scores.csv'}"], theirs, environment, theirs / "log")
    with (folder / "scores.csv").open() as file:
        scores = {row["student_id"].replace("_", " "): float(row["score"]) for row in csv.DictReader(file)}
    ours = {learner: float(result.marks.points) for learner, result in results.items()}
    same = sum(scores.get(learner) == points for learner, points in ours.items())
    CONSOLE.print(f"\n[bold]Exercise {exercise.number}[/], {submissions} submissions, one job, seconds a submission")
    CONSOLE.print(table)
    wrong, _, _ = differences(made, results)
    CONSOLE.print(f"Scores equal: {same} of {submissions}; ours as expected but for {len(wrong)} answers.")
    CONSOLE.print(
        "nbgrader runs what it is given as the user, without a sandbox, and compares; course grade runs each in a "
        "sandbox of its own, and the checks too, for their words."
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A class graded end to end, and beside nbgrader.")
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--exercise", nargs="+", default=["03", "02"])
    parser.add_argument("--beside", type=int, default=20, help="submissions graded beside nbgrader; 0: none")
    parser.add_argument("--nbgrader", default=shutil.which("nbgrader"), help="the program, of another environment")
    options = parser.parse_args(arguments)
    busy, cores = psutil.getloadavg()[0], psutil.cpu_count()
    CONSOLE.print(f"{cores} cores, on which {busy:.1f} processes want to run; {SECONDS} s allowed for a cell")
    for number in options.exercise:
        exercise = Exercise(number)
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            if options.submissions:
                class_table(exercise, options.submissions, options.jobs, Path(name))
            if options.beside and options.nbgrader:
                beside_nbgrader(exercise, options.beside, Path(name), str(Path(options.nbgrader).absolute()))
    if options.beside and not options.nbgrader:
        CONSOLE.print("Not beside nbgrader, which is not on the PATH: python -m venv nbg; nbg/bin/pip install "
                      "nbgrader==0.9.6; then --nbgrader nbg/bin/nbgrader", markup=False)  # fmt: skip


if __name__ == "__main__":
    main()
