"""Grade a class: every submission marked by itself, in parallel, resumable, whatever the others do.

The first of two passes decides every mark of everybody; only then are checks, which hold answers, sent to any kernel,
for what they say of wrong ones. A task holds all that one marking needs and can go to any process (`helper`), which
keeps one warm sandbox for all its tasks.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from classroom.grading import intake
from classroom.grading.graft import short
from classroom.grading.library import trusted_imports
from classroom.grading.mark import FORM, Marks, Unexplained, decide, explain, read_kept, unattempted
from classroom.grading.run import Limits
from classroom.grading.sandbox import Confinement, Sandbox
from classroom.grading.submissions import Submission
from classroom.notebooks import parse_notebook
from course_utils.files import write_whole
from course_utils.units import CourseError

TRIES = 2  # a submission whose marking fails through no visible fault of its own is tried this often
LONGEST_FAILURE = 300  # characters of why a submission could not be marked
KILLED = "the process that marked it was killed, more than once; mark it by hand"  # why, where it ends every process


@dataclass(frozen=True)
class Task:
    """One marking: the submission, and the reference (a notebook's text) it is compared with."""

    submission: Submission
    reference: str
    limits: Limits
    confinement: Confinement | None  # None: without a sandbox, for files that are trusted
    hidden: tuple[str, ...] = ()  # files and folders that no submission may see
    decided: "Result | None" = None  # of the first pass, for the second

    @property
    def key(self) -> str:
        """What the marks depend on."""
        rest = repr((FORM, self.submission.problem, self.limits))
        parts = (self.submission.data or b"", rest.encode(), self.reference.encode())
        return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@dataclass(frozen=True)
class Result:
    """The marks of one submission. `failed` says why it could not be marked: its points then mean nothing.

    While `unexplained` is there its points are final, and checks are still to be asked about its wrong answers.
    """

    learner: str
    number: str
    file: str
    key: str
    marks: Marks
    problem: str = ""
    failed: str = ""
    unexplained: Unexplained | None = None


def grade_one(task: Task) -> Result:
    """One pass over one submission in this process's sandbox. Never raises for what a submission does."""
    said = ""
    for _ in range(TRIES):
        try:
            return _graded(task)
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this submission alone
            said = in_words(error)
            give_up_sandbox()
    return unmarked(task, said)


def _graded(task: Task) -> Result:
    submission, decided = task.submission, task.decided
    reference = parse_notebook(task.reference.encode(), "the reference")
    if submission.data is None:
        return _result(task, unattempted(reference), submission.problem)
    try:
        grafted = intake.read(submission.data, submission.file, reference)
    except CourseError as error:
        return unmarked(task, str(error)) if decided else _result(task, unattempted(reference), str(error))
    sandbox = _sandbox(task, reference)
    if decided is not None and decided.unexplained is not None:
        marks = explain(grafted, decided.marks, decided.unexplained, task.limits, sandbox)
        return replace(decided, marks=marks, unexplained=None)
    marks, found = decide(grafted, task.limits, sandbox)
    return _result(task, marks, unexplained=found if found.cells else None)


def _result(
    task: Task, marks: Marks, problem: str = "", failed: str = "", unexplained: Unexplained | None = None
) -> Result:
    whose = task.submission
    marks = replace(marks, notes=(*whose.notes, *marks.notes))
    return Result(whose.learner, whose.number, whose.file, task.key, marks, problem, failed, unexplained)


def in_words(error: BaseException) -> str:
    """An error on one short line."""
    known = isinstance(error, CourseError)
    return short(error if known else f"{type(error).__name__}: {error}", LONGEST_FAILURE)


_kept: dict[object, Sandbox] = {}  # this process's, by what was asked for: one at most


def _sandbox(task: Task, reference: NotebookNode) -> Sandbox | None:
    """This process's sandbox, if one is asked for: made for the first task, and anew for another exercise."""
    if task.confinement is None:
        return None
    asked = trusted_imports(reference), task.confinement, task.hidden
    if asked not in _kept:
        give_up_sandbox()
        _kept[asked] = Sandbox(*asked)
    return _kept[asked]


def give_up_sandbox() -> None:
    """End this process's sandbox; the next marking makes another."""
    while _kept:
        _kept.popitem()[1].close()


def in_two_passes(tasks: Sequence[Task], grade: Callable[[Sequence[Task]], Iterator[Result]]) -> Iterator[Result]:
    """Results as they are ready: of each submission its marks, then, if checks are to be asked about it, once more.

    `grade` is one pass over tasks. Those with a result that waits for the second pass are in that alone.
    """
    known = {(task.submission.learner, task.submission.number): task for task in tasks}
    for result in grade([task for task in tasks if task.decided is None]):
        who = result.learner, result.number
        if result.unexplained is not None:
            known[who] = replace(known[who], decided=result)
        yield result
    yield from grade([task for task in known.values() if task.decided is not None])


def unmarked(task: Task, failed: str) -> Result:
    """The result of a submission that could not be marked for this reason, or whose marks could not be explained."""
    decided = task.decided
    if decided is not None:
        note = f"What is wrong with an answer could not be looked for: {failed}"
        marks = replace(decided.marks, notes=(*decided.marks.notes, note))
        return replace(decided, marks=marks, unexplained=None)
    return _result(task, unattempted(parse_notebook(task.reference.encode(), "the reference")), failed=failed)


def file_name(learner: str, number: str = "") -> str:
    """A file name for a learner: readable, harmless on every system, different for different learners."""
    plain = re.sub(r"[^\w.-]+", "_", learner, flags=re.ASCII).strip("._")[:60] or "learner"
    return f"{plain}-{hashlib.sha256(repr((learner, number)).encode()).hexdigest()[:8]}"


def read_results(folder: Path) -> dict[tuple[str, str], Result]:
    """What is graded already, by learner; a damaged file is as if it were not there, and is made again."""
    results = [read_kept(Result, path) for path in sorted(folder.glob("*.json"))]
    return {(result.learner, result.number): result for result in results if result is not None}


def write_result(folder: Path, result: Result) -> None:
    """One learner's result, whole."""
    text = json.dumps(asdict(result), indent=1, sort_keys=True) + "\n"
    write_whole(folder / f"{file_name(result.learner, result.number)}.json", text)
