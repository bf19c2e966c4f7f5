"""Grade a class: every submission marked by itself, in parallel, resumable, whatever the others do.

A task holds all that one marking needs and can go to any process: of this machine's pool, or of a Dask cluster. A
worker keeps one warm sandbox for all its tasks. Results come back as they are ready and are written whole, one file a
learner; started again, a grading takes up what is missing and redoes nothing finished.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import multiprocessing.util
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from classroom.grading import intake
from classroom.grading.graft import Graft, short
from classroom.grading.library import trusted_imports
from classroom.grading.mark import FORM, Marks, QuestionMark, mark, unattempted
from classroom.grading.run import Limits
from classroom.grading.sandbox import Confinement, Sandbox
from classroom.grading.secret import checks_cell
from classroom.grading.submissions import Submission
from classroom.grading.warm import start_warming
from classroom.notebooks import parse_notebook
from course_utils.files import write_whole
from course_utils.units import CourseError

TRIES = 2  # a submission whose marking fails through no visible fault of its own is tried this often
LONGEST_FAILURE = 300  # characters of why a submission could not be marked


@dataclass(frozen=True)
class Task:
    """One marking: the submission, and the reference (a notebook's text) it is compared with."""

    submission: Submission
    reference: str
    limits: Limits
    confinement: Confinement | None  # None: without a sandbox, for files that are trusted
    hidden: tuple[str, ...] = ()  # files and folders that no submission may see

    @property
    def key(self) -> str:
        """What the marks depend on."""
        parts = (
            self.submission.data or b"",
            repr((FORM, self.submission.problem, self.limits)).encode(),
            self.reference.encode(),
        )
        return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@dataclass(frozen=True)
class Result:
    """The marks of one submission. `failed` says why it could not be marked: its points then mean nothing."""

    learner: str
    number: str
    file: str
    key: str
    marks: Marks
    problem: str = ""
    failed: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it back."""
        return {**vars(self), "marks": self.marks.as_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        """The result that `as_json` wrote."""
        return cls(**{**data, "marks": Marks.from_json(data["marks"])})


def grade_one(task: Task) -> Result:
    """Mark one submission in this process's sandbox. Never raises for what a submission does."""
    submission, reference = task.submission, parse_notebook(task.reference.encode(), "the reference")

    def result(marks: Marks | None, problem: str = "", failed: str = "") -> Result:
        marks = marks or unattempted(reference)
        marks = dataclasses.replace(marks, notes=(*submission.notes, *marks.notes))
        return Result(submission.learner, submission.number, submission.file, task.key, marks, problem, failed)

    if submission.data is None:
        return result(None, submission.problem)
    said = ""
    for _ in range(TRIES):
        try:
            grafted = intake.read(submission.data, submission.file, reference)
        except CourseError as error:
            return result(None, str(error))
        except Exception as error:  # noqa: BLE001 - no process could be had to read it in
            said = in_words(error)
            continue
        try:
            return result(_mark(dataclasses.replace(grafted, checks=checks_cell()), task))
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this submission alone
            said = in_words(error)
            give_up_sandbox()
    return result(None, failed=said)


def in_words(error: BaseException) -> str:
    """An error on one short line."""
    known = isinstance(error, CourseError)
    return short(error if known else f"{type(error).__name__}: {error}", LONGEST_FAILURE)


def _mark(grafted: Graft, task: Task) -> Marks:
    return mark(grafted, task.limits, sandbox=_sandbox(task) if task.confinement else None)


_kept: dict[str, Sandbox] = {}  # this worker's, made for one exercise


def _sandbox(task: Task) -> Sandbox:
    """This process's sandbox, made when it is first asked for, and anew for another exercise."""
    names = trusted_imports(parse_notebook(task.reference.encode(), "the reference"))
    kept = _kept.get("sandbox")
    if kept is None or (kept.limits, kept.names, kept.hidden) != (task.confinement, names, task.hidden):
        give_up_sandbox()
        start_warming()
        _kept["sandbox"] = Sandbox(task.confinement, os.getpid() % 4096, names, task.hidden).__enter__()
    return _kept["sandbox"]


def give_up_sandbox() -> None:
    """End this process's sandbox; the next marking makes another."""
    sandbox = _kept.pop("sandbox", None)
    if sandbox is not None:
        sandbox.__exit__(None, None, None)


def grade_all(tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
    """Results as they are ready, from a pool of processes. A worker that is killed costs nobody a mark."""
    left = {(task.submission.learner, task.submission.number): task for task in tasks}
    kills = dict.fromkeys(left, 0)  # workers killed while this was graded alone
    alone = False  # after a worker was killed, until it is known by which task
    while left:
        who = max(left, key=lambda key: kills[key])
        batch = [left[who]] if alone else list(left.values())
        spawn = multiprocessing.get_context("spawn")  # a fork would share this process's open files and threads
        others = set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(jobs, len(batch)), spawn, _start_worker) as pool:
            futures = {pool.submit(grade_one, task): task for task in batch}
            try:
                for future in _as_ready(set(futures)):
                    result = _result(future, futures[future])
                    del left[result.learner, result.number]
                    yield result
            except BrokenProcessPool:
                if not alone:
                    alone = True
                    continue
                kills[who] += 1
                if kills[who] >= TRIES:
                    alone = False
                    yield lost(left.pop(who))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()  # it gives up its sandbox
                raise


def _result(future: Future[Result], task: Task) -> Result:
    """What came of a task. Raises BrokenProcessPool if a worker was killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as error:  # noqa: BLE001 - it costs this submission alone
        return unmarked(task, in_words(error))


def _start_worker() -> None:
    """Have the sandbox given up when the worker ends; its processes do not run what `atexit` would."""
    multiprocessing.util.Finalize(None, give_up_sandbox, exitpriority=1)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _interrupt(number: int, frame: object) -> NoReturn:
    """End what is being marked, once: what ends it must not be interrupted."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """End this worker when the process that grades was killed: it would wait for a task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        give_up_sandbox()
        os._exit(1)


def _as_ready(futures: set[Future[Result]]) -> Iterator[Future[Result]]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from done


def lost(task: Task) -> Result:
    """The result of a submission that ended every process that marked it."""
    return unmarked(task, "the process that marked it was killed, more than once; mark it by hand")


def unmarked(task: Task, failed: str) -> Result:
    """The result of a submission that could not be marked for this reason."""
    submission = task.submission
    marks = unattempted(parse_notebook(task.reference.encode(), "the reference"))
    return Result(submission.learner, submission.number, submission.file, task.key, marks, failed=failed)


# -- results on disk ---------------------------------------------------------------------------------------------------


def file_name(learner: str, number: str = "") -> str:
    """A file name for a learner: readable, harmless on every system, different for different learners."""
    plain = re.sub(r"[^\w.-]+", "_", learner, flags=re.ASCII).strip("._")[:60] or "learner"
    return f"{plain}-{hashlib.sha256(repr((learner, number)).encode()).hexdigest()[:8]}"


def read_results(folder: Path) -> dict[tuple[str, str], Result]:
    """What is graded already, by learner; a damaged file is as if it were not there, and is made again."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            result = Result.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        found[result.learner, result.number] = result
    return found


def write_result(folder: Path, result: Result) -> None:
    """One learner's result, whole."""
    text = json.dumps(result.as_json(), indent=1, sort_keys=True) + "\n"
    write_whole(folder / f"{file_name(result.learner, result.number)}.json", text)


def changed_marks(before: Result, after: Result) -> list[tuple[QuestionMark, QuestionMark]]:
    """(before, after) of every question whose points differ."""
    old = {q.question: q for q in before.marks.questions}
    pairs = [(old[q.question], q) for q in after.marks.questions if q.question in old]
    return [(one, other) for one, other in pairs if one.points != other.points]
