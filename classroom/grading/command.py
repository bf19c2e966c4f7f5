"""The command `course grade`: from a folder of submissions to marks, feedback and a gradebook.

docs/teaching.md says what lies in the folder that keeps it all. Started again, it redoes nothing that is finished.
"""

import argparse
import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from tqdm import tqdm

from classroom.execution import CellFailed
from classroom.grading import batch, gradebook
from classroom.grading.batch import Result, Task
from classroom.grading.graft import short
from classroom.grading.helper import grade_all
from classroom.grading.mark import with_partial_points
from classroom.grading.overrides import check, overridden, read_overrides
from classroom.grading.run import Limits
from classroom.grading.sandbox import Confinement, why_not
from classroom.grading.secret import reference
from classroom.grading.submissions import collect
from classroom.grading.temporary import one_folder
from classroom.notebooks import chosen, outline, read_notebook, to_text
from course_utils.files import write_whole
from course_utils.units import MIB, CourseError

SETTINGS = "grading.json"
SHORTEST = 16  # characters of a seed: a process that holds a token tries some hundred before it is stopped
LEAST_ROOM = MIB  # that must be free where a class is graded to
PAGE = re.compile(r"[\w.-]+-[0-9a-f]{8}\.html", re.ASCII)  # as `file_name` makes them


def make_parser() -> argparse.ArgumentParser:
    """The options of `course grade`."""
    parser = argparse.ArgumentParser(
        prog="course grade", description="Grade a class: every submission in a sandbox of its own."
    )
    add = parser.add_argument
    add("submissions", type=Path, help="folder of notebooks, folder of folders, or a platform's zip")
    add("--exercise", required=True, metavar="NN", help="number of the exercise, such as 03")
    add("--out", type=Path, required=True, metavar="DIR", help="where everything is kept")
    add("--seed", help="what inputs are drawn from: the seed of another run, in its DIR; a random one by default")
    add("--jobs", type=int, help="markings at a time (default: one for each processor this may use, or of the cluster)")
    add("--scheduler", metavar="ADDRESS", help="have the workers of this Dask cluster mark, such as tcp://HOST:8786")
    add("--seconds", type=float, default=Limits().cell, help="time for a cell (default: %(default)g)")
    add(
        "--partial", action=argparse.BooleanOptionalAction, default=None,
        help="partial points for the inputs an answer is right for; as before by default, at first none",
    )  # fmt: skip
    add("--overrides", type=Path, help="CSV with the columns learner, question, points, reason; kept in DIR")
    add("--no-sandbox", action="store_true", help="run the files as they are: only for files you trust")
    return parser


@one_folder()
def grade_command(args: Sequence[str], root: Path, console: Console | None = None) -> int:
    """`course grade`: returns 0, or 1 if a submission could not be marked. Raises CourseError."""
    options = make_parser().parse_args(list(args))
    console = console or Console()
    if options.seconds <= 0 or (options.jobs is not None and options.jobs < 1):
        raise CourseError("--seconds and --jobs must be more than 0")
    solutions = {path.stem: path for path in sorted((root / "solutions").glob("*.ipynb"))}
    (topic,) = chosen([options.exercise], solutions, "exercise")
    problem = None if options.no_sandbox or options.scheduler else why_not()
    if problem is not None:
        raise CourseError(problem)
    _prepare(options.out, options.submissions)
    try:
        return _grade_all(root, solutions[topic], options, console)
    except OSError as error:
        what = short(f"{error.filename or options.out}: {error.strerror or error}", batch.LONGEST_FAILURE)
        raise CourseError(f"{what}; call again when that is mended, what is marked stays marked") from None


def _grade_all(root: Path, solution: Path, options: argparse.Namespace, console: Console) -> int:
    """Everything from the submissions to the pages."""
    out: Path = options.out
    submissions = collect(options.submissions)
    kept = out / "overrides.csv"
    given = options.overrides or kept
    overrides = read_overrides(given) if options.overrides or kept.exists() else []
    text, settings = _reference(solution, out, options, console)
    limits = Limits(cell=options.seconds, whole=max(Limits().whole, 12 * options.seconds))
    confinement = None if options.no_sandbox else Confinement()
    hidden = tuple(str(path.resolve()) for path in (root, options.submissions, out))
    tasks = [Task(submission, text, limits, confinement, hidden) for submission in submissions]
    results = _grade(tasks, options, console)
    ordered = [results[key] for key in sorted(results)]
    if settings["partial"]:
        ordered = [replace(result, marks=with_partial_points(result.marks)) for result in ordered]
    check(overrides, ordered, given)
    if options.overrides:
        write_whole(kept, given.read_bytes())
    ordered = [overridden(result, overrides) for result in ordered]
    _write_changes(ordered, settings, out, console)
    _write(ordered, out)
    failed = [result for result in ordered if result.failed]
    for result in failed:
        console.print(f"{result.learner}: not marked: {result.failed}", style="red", markup=False)
    odd = sum(bool(gradebook.remarks(result)) for result in ordered)
    console.print(f"{len(ordered) - len(failed)} of {len(ordered)} marked, {odd} with remarks: {out / 'gradebook.csv'}")
    return 1 if failed else 0


def _prepare(out: Path, submissions: Path) -> None:
    """Make the folder that everything is written to. Raises CourseError if it cannot be written to, or lies wrong."""
    if submissions.is_dir() and out.resolve().is_relative_to(submissions.resolve()):
        raise CourseError(f"--out {out} lies in {submissions}, where it would be marked; name a folder elsewhere")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out) as tried:
            tried.write(bytes(LEAST_ROOM))
    except OSError as error:
        raise CourseError(f"--out {out} cannot be written to: {error.strerror or error}; name another folder") from None


def _reference(solution: Path, out: Path, options: argparse.Namespace, console: Console) -> tuple[str, dict[str, Any]]:
    """The text of the reference, and what `grading.json` holds: `points`, by file name, are those of the last call.

    The reference is made once and kept; made anew if the solution or the seed has changed.
    """
    notebook = read_notebook(solution)
    kept = out / "reference.ipynb"
    known: dict[str, Any] = {}
    if (out / SETTINGS).exists():
        try:
            known = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise CourseError(f"{out / SETTINGS} is damaged; name another --out, or give its --seed") from None
    if known and known.get("topic") != solution.stem:
        raise CourseError(f"{out} holds a grading of {known.get('topic')}; name another --out")
    if len(seed := options.seed or known.get("seed") or secrets.token_hex(SHORTEST // 2)) < SHORTEST:
        raise CourseError(f"--seed {seed} can be guessed; give that of another run, from its {SETTINGS}, or none")
    made_of = {"topic": solution.stem, "seed": seed, "solution": outline(notebook)}
    if kept.exists() and made_of.items() <= known.items():
        text = kept.read_text(encoding="utf-8")
    else:
        with console.status("running the solution once, for what right answers print …"):
            try:
                text = to_text(reference(notebook, seed))
            except CellFailed as error:
                raise CourseError(f"the solution does not run here, cell {error.cell_id}: {error}") from None
        write_whole(kept, text)
    partial = bool(known.get("partial")) if options.partial is None else options.partial
    settings = {**made_of, "partial": partial, "points": known.get("points", {})}
    _write_settings(settings, out)
    kept.chmod(0o600)
    return text, settings


def _write_settings(settings: dict[str, Any], out: Path) -> None:
    write_whole(out / SETTINGS, json.dumps(settings, indent=1, sort_keys=True) + "\n")
    (out / SETTINGS).chmod(0o600)


def _grade(tasks: list[Task], options: argparse.Namespace, console: Console) -> dict[tuple[str, str], Result]:
    """Results of all tasks: those that are there already, and the rest as they are made."""
    before = batch.read_results(options.out / "results")
    results: dict[tuple[str, str], Result] = {}
    missing = []
    for task in tasks:
        who = (task.submission.learner, task.submission.number)
        was = before.get(who)
        if was is None or was.key != task.key or was.failed:
            missing.append(task)
        else:
            results[who] = was
            if was.unexplained is not None:  # its marks are final, and checks are still to be asked about it
                missing.append(replace(task, decided=was))
    if len(missing) < len(tasks):
        console.print(f"{len(tasks) - len(missing)} graded before and unchanged")
    with tqdm(total=len(missing), unit="submission", leave=False, disable=None) as bar:
        for result in _results(missing, options.jobs, options.scheduler):
            batch.write_result(options.out / "results", result)
            who = result.learner, result.number
            bar.set_description("asking checks" if who in results else "marking")
            bar.update(result.unexplained is None)
            results[who] = result
    return results


def _results(tasks: list[Task], jobs: int | None, scheduler: str | None) -> Iterator[Result]:
    """Results as they are ready, from this machine or from a cluster: all marks first, then the words of checks."""
    if scheduler is None or not tasks:
        yield from grade_all(tasks, jobs or processors())
        return
    from classroom.grading.cluster import connect, grade_on_cluster

    with connect(scheduler) as client:
        yield from batch.in_two_passes(tasks, lambda some: grade_on_cluster(client, some, jobs))


def processors() -> int:
    """How many this process may use, which on a shared machine or in a container may be fewer than there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write_changes(results: list[Result], settings: dict[str, Any], out: Path, console: Console) -> None:
    """Write which points differ from those of the last call, and keep these for the next."""
    changes, points = [], {}
    for result in results:
        name = batch.file_name(result.learner, result.number)
        points[name] = {q.question: q.points for q in result.marks.questions}
        for question, before in settings["points"].get(name, {}).items():
            if points[name].get(question, before) != before:
                changes.append([result.learner, result.number, question, before, points[name][question]])
    (out / "changes.csv").unlink(missing_ok=True)  # of an earlier call
    if changes:
        head = ["learner", "number", "question", "before", "now"]
        write_whole(out / "changes.csv", gradebook.table([head, *changes]))
        console.print(f"{len(changes)} marks differ from the grading before: {out / 'changes.csv'}")
    _write_settings({**settings, "points": points}, out)


def _write(results: list[Result], out: Path) -> None:
    topic = results[0].marks.topic
    write_whole(out / "gradebook.csv", gradebook.plain_csv(results))
    write_whole(out / "moodle.csv", gradebook.moodle_csv(results))
    write_whole(out / "canvas.csv", gradebook.canvas_csv(results, topic))
    write_whole(out / "summary.html", gradebook.summary_page(results))
    pages = {f"{batch.file_name(result.learner, result.number)}.html": result for result in results}
    for name, result in pages.items():
        write_whole(out / "feedback" / name, gradebook.feedback_page(result))
    for page in (out / "feedback").glob("*.html"):
        if PAGE.fullmatch(page.name) and page.name not in pages:  # of somebody who left
            page.unlink()
