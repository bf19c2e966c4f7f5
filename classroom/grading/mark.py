"""Mark grafted answers: run them, read the verdicts as outcomes and points.

Points come from the graded cells alone, whose output nbval compares outside the learner's process. A check, which holds
the answer, only supplies words; where strangers are marked (`decide`, `explain`) it enters a kernel when the marks of
everybody are final. docs/architecture.md has the whole way from file to mark.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from nbformat import NotebookNode

from classroom.grading.graft import Graft, Question, kind_of, read_questions, replaying
from classroom.grading.run import CellVerdict, Limits, run_notebook
from classroom.grading.sandbox import Sandbox
from classroom.questions.core import Outcome
from classroom.questions.graded import CRASHED, NOT_ATTEMPTED, RECORD, REPLAYED
from course_utils.units import CourseError

STOPPED = {  # what is said of a cell that ended the kernel, by its verdict
    "timeout": "It ran for more than {seconds:g} seconds. Is there a loop that never ends?",
    "excess": "It was stopped: {what}.",
    "flood": "It was stopped: it printed more than a notebook can hold.",
    "died": "It ended the kernel: by exit, or by using more memory than there is.",
}
CHECK_RAISED = "Its check does not work ({why}), so it counts neither as right nor as wrong. Tell your teacher."
FEEDBACK = re.compile("^(" + "|".join(o.value.capitalize() for o in Outcome) + "): (.+)$", re.MULTILINE)
LONGEST = 400  # characters of a diagnosis
FORM = 7  # of what marks hold: marks that were kept in another form are made anew


class Counts(NamedTuple):
    """Inputs an answer is right for, of how many, and for how many the commonest right result is right."""

    right: int = 0
    inputs: int = 0
    by_chance: int = 0


NO_COUNTS = Counts()


@dataclass(frozen=True)
class QuestionMark:
    """The mark of one question; `counts` holds what partial points are made from, whether or not they are given."""

    question: str
    title: str
    outcome: Outcome
    points: float
    out_of: int
    diagnosis: str = ""
    flags: tuple[str, ...] = ()
    counts: Counts = NO_COUNTS


@dataclass(frozen=True)
class Marks:
    """The marks of one exercise, and what is to be said about the file as a whole."""

    topic: str
    questions: tuple[QuestionMark, ...]
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points earned, whole and half ones."""
        return sum(q.points for q in self.questions)

    @property
    def out_of(self) -> int:
        """Points there are."""
        return sum(q.out_of for q in self.questions)


@dataclass(frozen=True)
class Unexplained:
    """What was found of answers of which only a check can say more, and the answers that ended the kernel."""

    cells: Mapping[str, Mapping[str, CellVerdict]]  # by question and kind of cell
    without: tuple[str, ...] = ()


def read_back(kind: Any, data: Any) -> Any:
    """What `asdict` and JSON made of a dataclass of this kind, as it was. Raises what its parts do if it is damaged."""
    within = get_args(kind)
    if get_origin(kind) is tuple:
        return tuple(read_back(within[0], one) for one in data)
    if get_origin(kind) is Mapping:
        return {key: read_back(within[1], one) for key, one in data.items()}
    if get_origin(kind) is UnionType:
        return None if data is None else read_back(within[0], data)
    if kinds := get_type_hints(kind) if is_dataclass(kind) else {}:
        return kind(**{name: read_back(kinds[name], one) for name, one in data.items()})
    return Outcome(data) if kind is Outcome else Counts(*data) if kind is Counts else data


def read_kept(kind: Any, path: Path) -> Any:
    """`read_back` of a file; None if it is absent or was damaged, as it can be made again."""
    try:
        return read_back(kind, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def with_partial_points(marks: Marks) -> Marks:
    """The marks with the points that answers earned for a part of their inputs, and words that say what for."""
    questions = []
    for q in marks.questions:
        points = partial_points(q.out_of, q.counts) if q.outcome in (Outcome.WRONG, Outcome.CRASHED) else 0
        if points:
            said = f"{q.diagnosis} Right for {q.counts.right} of {q.counts.inputs} inputs.".strip()
            q = replace(q, points=points, diagnosis=said)
        questions.append(q)
    return replace(marks, questions=tuple(questions))


def count(question: str, printed: str, expected: str) -> Counts:
    """The counts of what a graded cell printed, beside what the reference did.

    All are 0 for a question that is not tried on inputs, and for an answer that did not say something of each of them.
    """
    wanted, shown = expected.splitlines(), printed.splitlines()
    calls = [re.match(rf"({re.escape(question)}\(.*?\)) = (.*)", line) for line in wanted]
    found = [call for call in calls if call is not None]
    if not wanted or len(found) < len(wanted) or len(shown) != len(wanted):
        return NO_COUNTS
    told = all(line.startswith((f"{call[1]} = ", f"{call[1]}: ")) for line, call in zip(shown, found, strict=True))
    if not told or any(line.endswith(f": {NOT_ATTEMPTED}") for line in shown):
        return NO_COUNTS
    right = sum(one == other for one, other in zip(shown, wanted, strict=True))
    return Counts(right, len(wanted), max(Counter(call[2] for call in found).values()))


def partial_points(out_of: int, counts: Counts) -> float:
    """The points of an answer that is wrong for some inputs: whole or half ones, less than all.

    Of n inputs it is right for r; whoever returns the commonest right result every time is right for c. If r is more
    than half of n, the answer earns the share (r - c) / (n - c) of the points, rounded down to half points: the
    correction for guessing of classical test theory. So an answer that is always the same earns nothing. Only functions
    are tried on inputs: a network that nobody touched has most of what is asked of one.
    """
    right, inputs, by_chance = counts
    if right >= inputs or right <= by_chance or 2 * right <= inputs:
        return 0
    return (2 * out_of * (right - by_chance)) // (inputs - by_chance) / 2


def unattempted(trusted: NotebookNode) -> Marks:
    """The marks of a learner of whom there is nothing to mark."""
    asked = read_questions(trusted)
    none = tuple(QuestionMark(q.name, q.title, Outcome.NOT_ATTEMPTED, 0, q.points) for q in asked)
    return Marks(trusted.metadata.course.topic, none)


def mark(
    grafted: Graft, limits: Limits | None = None, on_question: Callable[[str], None] = lambda question: None
) -> Marks:
    """Mark the answers of somebody who is trusted; `on_question` is told whose cell begins.

    Nothing is run if nothing was attempted. Raises CourseError if the solution itself does not run here.
    """
    marking = _Marking(grafted, limits or Limits(), on_question=on_question)
    marking.run(marking.attempted, ("check", "graded"))
    return marking.judge()


def decide(grafted: Graft, limits: Limits, sandbox: Sandbox | None) -> tuple[Marks, Unexplained]:
    """The marks of a stranger's answers with every point final, and what `explain` needs to find more words.

    No check, which holds the answer, enters a kernel. Raises CourseError as `mark` does.
    """
    if sandbox is not None:
        sandbox.show_checks(False)
    marking = _Marking(grafted, limits, sandbox, handing=True)
    marking.run(marking.attempted, ("graded",))
    marking.run_again()
    wanting = {name: marking.cells[name] for name in marking.attempted if _wants_words(marking.cells[name])}
    return marking.judge(), Unexplained(wanting, tuple(marking.without))


def explain(grafted: Graft, marks: Marks, found: Unexplained, limits: Limits, sandbox: Sandbox | None) -> Marks:
    """The marks that `decide` gave, with what checks say of wrong answers; no point changes."""
    if sandbox is not None:
        sandbox.show_checks(True)
    marking = _Marking(grafted, limits, sandbox)
    marking.cells.update({name: dict(cells) for name, cells in found.cells.items()})
    marking.without += found.without
    marking.run([name for name in marking.attempted if name in found.cells], ("check",))
    told = {one.question: one for one in marking.judge().questions if one.question in found.cells}
    return replace(marks, questions=tuple(told.get(one.question, one) for one in marks.questions))


class _Marking:
    """The runs that a submission's marks are made from; `cells` holds what they found, by question and kind of cell."""

    def __init__(
        self,
        grafted: Graft,
        limits: Limits,
        sandbox: Sandbox | None = None,
        on_question: Callable[[str], None] = lambda question: None,
        handing: bool = False,
    ) -> None:
        self.grafted, self.limits, self.sandbox, self.on_question = grafted, limits, sandbox, on_question
        self.attempted = [name for name, answer in grafted.answers.items() if answer.attempted]
        self.owners = {cell.id: kind_of(cell) for cell in grafted.trusted.cells}
        self.cells: dict[str, dict[str, CellVerdict]] = {q.name: {} for q in grafted.questions}
        self.expected = {q.name: q.expected for q in grafted.questions}
        # Of these a stranger's kernel prints a record, as any process could say yes to each property without any work.
        recorded = [name for name, text in self.expected.items() if text.startswith(f"{REPLAYED}: yes")]
        self.handed_over = recorded if handing else []
        self.without: list[str] = []  # answers that ended the kernel

    def run(self, questions: Collection[str], kinds: Sequence[str]) -> None:
        """Run the cells of these kinds, without whatever ends the kernel, until all had their turn."""
        todo = list(questions)
        while todo:
            verdicts = self._verdicts(self.grafted.notebook(todo, self.without, kinds, self.handed_over))
            for verdict in verdicts:
                kind, question = self.owners[verdict.cell]
                if question:
                    self.cells[question].setdefault(kind, verdict)
            last = verdicts[-1]
            if not last.fatal:
                break
            kind, culprit = self.owners[last.cell]
            if not culprit:  # a trusted cell: an answer before it is to blame
                begun = [self.owners[verdict.cell] for verdict in verdicts]
                answers = [question for what, question in begun if what == "answer"]
                if not answers:
                    why = f"cell {last.cell} of the solution does not run here ({last.verdict})"
                    raise CourseError(f"{why}; run `course doctor`")
                culprit = answers[-1]
                self.cells[culprit]["answer"] = last
            if kind not in ("check", "graded"):  # the definitions in an answer that ran through may serve later ones
                self.without.append(culprit)
            done = {name for name in todo if kinds[-1] in self.cells[name]}
            todo = [question for question in todo if question != culprit and question not in done]

    def _verdicts(self, notebook: NotebookNode) -> list[CellVerdict]:
        """The verdicts of a run; of a record, what it comes to in a kernel that ran nothing else."""
        found = run_notebook(notebook, self.limits, lambda cell: self.on_question(self.owners[cell][1]), self.sandbox)
        records = [("graded", question) for question in self.handed_over]
        return [self._replayed(one) if self.owners[one.cell] in records else one for one in found]

    def _replayed(self, verdict: CellVerdict) -> CellVerdict:
        if verdict.verdict != "passed":
            return verdict
        if not verdict.text.startswith(RECORD):  # a verdict in place of a record is not the graded cell's own word
            return replace(verdict, verdict="differs", text="" if ": yes" in verdict.text else verdict.text)
        _, question = self.owners[verdict.cell]
        alone = replaying(self.grafted.trusted, question, verdict.text)
        replayed = run_notebook(alone, self.limits, sandbox=self.sandbox)[-1]
        # Where it took too much, that was in a kernel which nothing else needs.
        return replace(verdict, verdict="differs", text=f"{REPLAYED}: no") if replayed.fatal else replayed

    def run_again(self) -> None:
        """Run a question by itself where an earlier answer may have bent what it ran in, or left it no memory."""
        for name in self.attempted[1:]:
            found, expected = self.cells[name], self.expected[name]
            garbled = _is_garbled(found, expected)
            if _passed(found) or not (garbled or _printed_outcome(found.get("graded")) is Outcome.CRASHED):
                continue
            without = [one for one in self.grafted.answers if one != name]
            verdicts = self._verdicts(self.grafted.notebook([name], without, ("graded",), self.handed_over))
            alone = {self.owners[v.cell][0]: v for v in verdicts if self.owners[v.cell][1] == name}
            if _passed(alone) or (garbled and not _is_garbled(alone, expected)):
                self.cells[name] = alone

    def judge(self) -> Marks:
        """The marks that the runs amount to."""
        return Marks(self.grafted.topic, tuple(map(self._mark_of, self.grafted.questions)))

    def _mark_of(self, question: Question) -> QuestionMark:
        name, answer = question.name, self.grafted.answers[question.name]
        outcome, said, counts = Outcome.NOT_ATTEMPTED, "", NO_COUNTS
        if answer.attempted:
            outcome, said = self._judge(question)
            said = said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
            # What steers a terminal, or turns the writing round, is shown as a question mark.
            said = "".join(one if one.isprintable() else "?" for one in said)
        graded = self.cells[name].get("graded")
        if graded is not None and graded.verdict in ("passed", "differs"):  # it ran to its end
            counts = count(name, graded.text, question.expected)
        points = question.points if outcome is Outcome.CORRECT else 0
        return QuestionMark(name, question.title, outcome, points, question.points, said, answer.flags, counts)

    def _judge(self, question: Question) -> tuple[Outcome, str]:
        """The outcome of an attempted question, and the words for it."""
        cells = self.cells[question.name]
        graded, answered = cells.get("graded"), cells.get("answer")
        feedback = FEEDBACK.search(cells["check"].text) if "check" in cells else None
        said, message = (Outcome(feedback[1].lower()), feedback[2]) if feedback else (None, "")
        if _passed(cells):
            if said in (Outcome.WRONG, Outcome.CRASHED):
                return said, message  # its inputs count too, where it was asked
            if "check" in cells and cells["check"].error:
                return Outcome.NOT_ATTEMPTED, CHECK_RAISED.format(why=cells["check"].error)
            return Outcome.CORRECT, ""
        for verdict in cells.values():
            if verdict.fatal:
                return Outcome.CRASHED, STOPPED[verdict.verdict].format(seconds=self.limits.cell, what=verdict.text)
        if answered is not None and answered.error:
            line = f", in line {answered.line} of the answer cell" if answered.line else ""
            return Outcome.CRASHED, f"{answered.error}{line}"
        outcome = _printed_outcome(graded)
        if said is outcome:
            return outcome, message
        if outcome is Outcome.CRASHED:
            return outcome, (graded.error if graded else "") or _first_difference(graded, question.expected)
        if outcome is Outcome.WRONG:
            where = "Right for the inputs of the check, not for others" if said is Outcome.CORRECT else "Not for these"
            call, equals, value = _first_difference(graded, question.expected).partition(" = ")
            return outcome, f"{where}: `{call}`" + (f" returned {value}" if equals else "")
        return outcome, "There are still dots in it."


def _passed(cells: Mapping[str, CellVerdict]) -> bool:
    return "graded" in cells and cells["graded"].verdict == "passed"


def _wants_words(cells: Mapping[str, CellVerdict]) -> bool:
    """Whether only a check can say what is wrong: nothing raised in the answer cell, and nothing ended the kernel."""
    ended = any(verdict.fatal or (kind == "answer" and verdict.error) for kind, verdict in cells.items())
    return not ended and not _passed(cells)


def _is_garbled(cells: Mapping[str, CellVerdict], expected: str) -> bool:
    """Whether a graded cell shows something else than results for the inputs it was given, right or wrong."""
    graded = cells.get("graded")
    if graded is None or graded.verdict not in ("passed", "differs"):
        return True

    def inputs(text: str) -> list[str]:
        return [re.split(" = |: ", line)[0] for line in text.splitlines()]

    return inputs(graded.text) != inputs(expected)


def _printed_outcome(graded: CellVerdict | None) -> Outcome:
    """What the printed lines of a graded cell that failed amount to."""
    if graded is None or graded.error:
        return Outcome.CRASHED
    lines = graded.text.splitlines()
    if any(line.endswith(f": {NOT_ATTEMPTED}") for line in lines):
        return Outcome.NOT_ATTEMPTED
    return Outcome.CRASHED if any(f": {CRASHED}: " in line for line in lines) else Outcome.WRONG


def _first_difference(graded: CellVerdict | None, expected: str) -> str:
    """The learner's first line that is not the reference's. The reference's own line is never shown."""
    if graded is None:
        return "What it left running, or changed, kept it from being graded."
    wanted, printed = expected.splitlines(), graded.text.splitlines()
    return next((line for i, line in enumerate(printed) if line not in wanted[i : i + 1]), "nothing was printed")
