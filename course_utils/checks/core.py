"""What every check shares: four outcomes, feedback that reads well in a notebook, and the diagnosis of a function.

A question is a reference function, the inputs it is tried on, and a catalogue of slips: known misconceptions written as
wrong functions. Whoever's numbers equal a slip's is told which one. Two numbers are equal when they differ by at most
one part in 10**9 (bytes are whole numbers, so that is rounding of floats only); int, float, NumPy scalar and tensor of
one number are all numbers; the order of dictionary keys does not matter.

Must never import torch, figures or explorers.
"""

from __future__ import annotations

import copy
import functools
import html
import inspect
import itertools
import linecache
import math
import numbers
import re
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import EllipsisType
from typing import Any, Protocol

from course_utils.checks.borrowing import calls_noted

TOLERANCE = 1e-9

# Factors between a right number of bytes and the same quantity in another unit.
UNITS = {
    8: "Your numbers are bits: 8 times too large. A byte has 8 bits; `value_bytes` and memory are counted in bytes.",
    1 / 2**10: "Your numbers are in KiB. Return bytes; divide by 1024 only when you print.",
    1 / 2**20: "Your numbers are in MiB. Return bytes; divide by 2**20 only when you print.",
    1 / 2**30: "Your numbers are in GiB. Return bytes; divide by 2**30 only when you print.",
    1 / 10**3: "Your numbers are in kB (1000 bytes). Return bytes; divide only when you print.",
    1 / 10**6: "Your numbers are in MB (10**6 bytes). Return bytes; divide only when you print.",
    1 / 10**9: "Your numbers are in GB (10**9 bytes). Return bytes; divide only when you print.",
}
DECIMAL_AGAINST_BINARY = (
    "Your numbers are off by {percent:.1f} %: a decimal unit (1000) stands where a binary one (1024) belongs, "
    "or the other way round. Return plain bytes and no unit is needed."
)


BORROWED = (
    "It calls `{name}`, the course's own. That is no answer: write the computation yourself. What the cells of this "
    "exercise import may be used."
)


class Outcome(Enum):
    """How an answer fares; the same four words everywhere in the course."""

    NOT_ATTEMPTED = "not attempted"
    WRONG = "wrong"
    CRASHED = "crashed"
    CORRECT = "correct"


# JupyterLab's own colours, so that feedback follows a light and a dark theme; the second value stands in elsewhere.
COLOURS = {
    Outcome.NOT_ATTEMPTED: "var(--jp-border-color1, #9e9e9e)",
    Outcome.WRONG: "var(--jp-warn-color1, #ef6c00)",
    Outcome.CRASHED: "var(--jp-error-color1, #c62828)",
    Outcome.CORRECT: "var(--jp-success-color1, #2e7d32)",
}


@dataclass(frozen=True)
class Feedback:
    """What a check says. Shows as a framed line in a notebook and as the same words in plain text."""

    question: str
    outcome: Outcome
    message: str

    def __repr__(self) -> str:
        return f"{self.outcome.value.capitalize()}: {self.message}"

    def _repr_html_(self) -> str:
        message = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(self.message, quote=False))
        return (
            f'<div role="status" style="border-left: 4px solid {COLOURS[self.outcome]}; padding: 0.3em 0.8em; '
            'color: var(--jp-content-font-color1, inherit); max-width: 60em">'
            f"<strong>{self.outcome.value.capitalize()}:</strong> {message}</div>"
        )


@dataclass(frozen=True)
class Slip:
    """A known misconception: its name, the wrong answer it leads to, and what its owner should be told."""

    name: str
    function: Callable[..., Any]
    message: str


@dataclass(frozen=True)
class Try:
    """One call of an answer: what was asked, and what came back."""

    call: str
    value: Any = None
    error: BaseException | None = None
    changed: str = ""  # the argument that was changed, if one was


# -- values ----------------------------------------------------------------------------------------------------------


def as_number(value: object) -> int | float | None:
    """A plain number for anything that is one; None for what is not. True and False are not numbers."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, Decimal) and value.is_finite():
        value = Fraction(value)
        value = value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def equal(got: object, expected: object) -> bool:
    """Whether two results are the same, numbers to one part in 10**9, lists and tuples alike."""
    left, right = as_number(got), as_number(expected)
    if left is not None and right is not None:
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        return got.keys() == expected.keys() and all(equal(got[key], expected[key]) for key in expected)
    one, other = _as_list(got), _as_list(expected)
    if one is not None and other is not None:
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return type(got) is type(expected) and bool(got == expected)


def _as_list(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    return list(value) if hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0 else None


def has_dots(value: object) -> bool:
    """Whether the placeholder `...` is anywhere in a result."""
    if isinstance(value, Mapping):
        return any(map(has_dots, value.values()))
    if isinstance(value, list | tuple | set):
        return any(map(has_dots, value))
    return isinstance(value, EllipsisType)


def shown(value: object) -> str:
    """A value as a message quotes it: thousands in groups, long things cut."""
    number = as_number(value)
    if isinstance(number, int):
        return f"{number:,}"
    text = f"{number:,.6g}" if number is not None else repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def percent(share: float) -> str:
    """A share as the course writes it: 0.453 is "45 %"."""
    return f"{100 * share:.0f} %"


# -- trying an answer ------------------------------------------------------------------------------------------------


def attempt(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Try:
    """Call a learner's function on copies of the arguments; whatever it raises is part of the result."""
    call = f"{name}({', '.join(_argument(a) for a in arguments)})"
    copies = copy.deepcopy(list(arguments))
    try:
        value = function(*copies)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's function may raise anything
        return Try(call, error=error)
    names = list(parameters(function)) or [f"argument {i + 1}" for i in range(len(copies))]
    changed = next((n for n, a, b in zip(names, arguments, copies, strict=False) if not equal(a, b)), "")
    return Try(call, value, changed=changed)


def _argument(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """A function's parameters by name; empty where Python cannot tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def describe_crash(error: BaseException, answer: object) -> str:
    """What was raised and at which line of the learner's cell, without a traceback."""
    first = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
    code = getattr(inspect.unwrap(answer) if callable(answer) else answer, "__code__", None)
    files = {code.co_filename} if code else {_file_of(answer)}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
    if not frames or frames[-1].lineno is None:
        return what
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"{what}, in line {frames[-1].lineno} of your cell" + (f": `{line}`" if line else "")


def _file_of(answer: object) -> str | None:
    """The file of a class's own methods."""
    methods = vars(answer).values() if inspect.isclass(answer) else ()
    return next((m.__code__.co_filename for m in methods if inspect.isfunction(m)), None)


def is_about_dots(error: BaseException | None) -> bool:
    """Whether Python stumbled over a `...` that is still in the answer."""
    return isinstance(error, TypeError) and "ellipsis" in str(error).lower()


class Holding(Protocol):
    """What a look at an answer found: which of the properties asked for hold, by name; it is right if all do."""

    @property
    def holds(self) -> Mapping[str, bool]:
        """Properties by name: for the check and the graded cell alike."""


def unfinished(seen: object) -> bool:
    """Whether a look met dots: in what was returned, or as the type of what was returned or made."""
    returned = getattr(seen, "returned", None)
    return has_dots(returned) or "ellipsis" in (returned, getattr(seen, "kind", None))


# -- the check -------------------------------------------------------------------------------------------------------


class Check:
    """The check of one question whose answer is a function.

    Attributes:
        given: functions and classes of the library that an answer may call.

    Args:
        question: the name of the question and of the function.
        reference: a right answer.
        cases: argument tuples; between them they tell every slip from the truth and from every other slip.
        slips: the catalogue, the more specific first.
        takeaway: one sentence for whoever has it right.
        in_bytes: the result is a number of bytes, so another unit is a diagnosis.
    """

    def __init__(
        self,
        question: str,
        reference: Callable[..., Any],
        cases: Sequence[tuple[Any, ...]],
        slips: Sequence[Slip],
        takeaway: str,
        in_bytes: bool = True,
    ) -> None:
        self.question = question
        self.reference = reference
        self.cases = list(cases)
        self.slips = list(slips)
        self.takeaway = takeaway
        self.in_bytes = in_bytes

    given: Collection[object] = ()

    @functools.cached_property
    def truth(self) -> list[Any]:
        """The right results, case by case."""
        return [self.reference(*copy.deepcopy(case)) for case in self.cases]

    def __call__(self, answer: object = ...) -> Feedback:
        """Try the learner's function on every case and say what that shows."""
        outcome, message = self._judge(answer)
        return Feedback(self.question, outcome, message)

    def _judge(self, answer: object) -> tuple[Outcome, str]:
        if has_dots(answer):
            return Outcome.NOT_ATTEMPTED, f"Replace the dots in `{self.question}`, run that cell, then this one."
        problem = self._not_a_function(answer)
        if problem:
            return Outcome.WRONG, problem
        assert callable(answer)
        mismatch = self._wrong_signature(answer)
        if mismatch:
            return Outcome.CRASHED, mismatch
        with calls_noted(self.given) as borrowed:
            tries = [attempt(self.question, answer, case) for case in self.cases]
        if borrowed:
            return Outcome.WRONG, BORROWED.format(name=borrowed[0])
        for one in tries:
            if has_dots(one.value) or is_about_dots(one.error):
                return Outcome.NOT_ATTEMPTED, f"There are still dots in `{self.question}`: replace them."
        for one in tries:
            if one.error is not None:
                return Outcome.CRASHED, f"`{one.call}` raised {describe_crash(one.error, answer)}"
        if all(equal(one.value, truth) for one, truth in zip(tries, self.truth, strict=True)):
            changed = next((one for one in tries if one.changed), None)
            if changed is None:
                return Outcome.CORRECT, self.takeaway
            return Outcome.WRONG, (
                f"The numbers are right, but `{changed.call}` changes its argument `{changed.changed}`, which the "
                "caller may still need. Work on a copy."
            )
        return Outcome.WRONG, self._diagnose(tries)

    def _not_a_function(self, answer: object) -> str:
        name = self.question
        if answer is None:
            return f"You gave `None`. Give the function itself: `check.{name}({name})`."
        if as_number(answer) is not None or not callable(answer):
            kind = "a number" if as_number(answer) is not None else f"a {type(answer).__name__}"
            return (
                f"You gave {kind}, {shown(answer)}. Give the function itself, without calling it: "
                f"`check.{name}({name})`. If `{name}` is no longer a function, run its cell again."
            )
        return ""

    def _wrong_signature(self, answer: Callable[..., Any]) -> str:
        names = list(parameters(answer))
        if not names and not inspect.isfunction(answer):
            return ""  # a built-in or the like: let the call decide
        wanted = list(parameters(self.reference))
        for case in self.cases:
            try:
                inspect.signature(answer).bind(*case)
            except TypeError:
                return (
                    f"Your function takes ({', '.join(names)}), so `{attempt_text(self.question, case)}` fails. "
                    f"It is called with {', '.join(wanted)}: keep the first line as it was given."
                )
        return ""

    # -- diagnosis of wrong values: the plain ones first, then the catalogue, then what can be said of any number ------

    def _diagnose(self, tries: Sequence[Try]) -> str:
        missed = [(one, truth) for one, truth in zip(tries, self.truth, strict=True) if not equal(one.value, truth)]
        first, truth = missed[0]
        numeric = all(as_number(t) is not None for t in self.truth)
        if any(one.value is None for one, _ in missed):
            call = next(one.call for one, _ in missed if one.value is None)
            return f"`{call}` returned nothing (`None`). Is there a `return`? Printing a number does not return it."
        if numeric:
            for one, _ in missed:
                if as_number(one.value) is None:
                    return f"`{one.call}` returned {_kind(one.value)}, {shown(one.value)}. Return one number."
            got = [float(as_number(one.value) or 0) for one in tries]
            if any(map(math.isnan, got)):
                return f"`{tries[[*map(math.isnan, got)].index(True)].call}` returned NaN, which is no number."
        elif type(truth) is not type(first.value) and _as_list(first.value) is None:
            return f"`{first.call}` returned {_kind(first.value)}. Return {_kind(truth)}."
        for diagnosis in (self._unit, self._slip, self._swapped, self._factor):
            if (numeric or diagnosis in (self._slip, self._swapped)) and (message := diagnosis(tries)):
                return message
        right = len(tries) - len(missed)
        but = f"Right for {right} of {len(tries)} inputs, but " if right else ""
        size = ""
        if numeric:
            size = f", which is too {'large' if as_number(first.value) > as_number(truth) else 'small'}"  # type: ignore[operator]
        return f"{but}`{first.call}` gives {shown(first.value)}{size}. Work this one out by hand."

    def _ratios(self, tries: Sequence[Try]) -> list[float]:
        pairs = [(as_number(one.value) or 0, as_number(t) or 0) for one, t in zip(tries, self.truth, strict=True)]
        return [got / truth for got, truth in pairs if truth] if all(got == 0 for got, t in pairs if t == 0) else []

    def _constant_factor(self, tries: Sequence[Try]) -> float | None:
        ratios = self._ratios(tries)
        if not ratios or not all(math.isclose(r, ratios[0], rel_tol=TOLERANCE) for r in ratios):
            return None
        return ratios[0]

    def _unit(self, tries: Sequence[Try]) -> str:
        if not self.in_bytes:
            return ""
        factor = self._constant_factor(tries)
        for unit, message in UNITS.items():
            if factor is not None and math.isclose(factor, unit, rel_tol=TOLERANCE):
                return message
            # The same, rounded to whole units.
            pairs = [(float(as_number(one.value) or 0), t * unit) for one, t in zip(tries, self.truth, strict=True)]
            if unit < 1 and max(t for _, t in pairs) > 100 and all(abs(got - t) < 1 for got, t in pairs):
                return message
        for power in (1, 2, 3, -1, -2, -3):
            if factor is not None and math.isclose(factor, 1.024**power, rel_tol=1e-6):
                return DECIMAL_AGAINST_BINARY.format(percent=abs(factor - 1) * 100)
        return ""

    def _slip(self, tries: Sequence[Try]) -> str:
        """The slip whose results these are: on every input, else on every input where the slip shows."""
        partly = ""
        for slip in self.slips:
            wrong = [attempt(self.question, slip.function, case) for case in self.cases]
            alike = [bad.error is None and equal(one.value, bad.value) for one, bad in zip(tries, wrong, strict=True)]
            if all(alike):
                return slip.message
            showing = [same for same, bad, t in zip(alike, wrong, self.truth, strict=True) if not equal(bad.value, t)]
            if showing and all(showing):
                partly = partly or slip.message
        return partly

    def _swapped(self, tries: Sequence[Try]) -> str:
        names = list(parameters(self.reference))
        widest = max(len(case) for case in self.cases)
        for i, j in itertools.combinations(range(widest), 2):
            swapped = []
            for case in self.cases:
                arguments = list(case)
                if j < len(case):
                    arguments[i], arguments[j] = arguments[j], arguments[i]
                swapped.append(attempt(self.question, self.reference, arguments))
            if all(s.error is None and equal(one.value, s.value) for one, s in zip(tries, swapped, strict=True)):
                return f"These are the numbers with `{names[i]}` and `{names[j]}` exchanged. Check where each one goes."
        return ""

    def _factor(self, tries: Sequence[Try]) -> str:
        factor = self._constant_factor(tries)
        if factor is None or factor == 1:
            return ""
        if factor == 0:
            return "Every number you return is 0."
        if factor < 0:
            return "Your numbers are negative; an amount of memory is not."
        size = f"{factor:.4g} times too large" if factor > 1 else f"{1 / factor:.4g} times too small"
        return (
            f"Every number you return is {size}: one factor is missing or one too many. `{tries[0].call}` is a start."
        )


def attempt_text(name: str, arguments: Sequence[Any]) -> str:
    """A call as a learner would write it."""
    return f"{name}({', '.join(_argument(a) for a in arguments)})"


def _kind(value: object) -> str:
    kinds = {bool: "True or False", str: "a text", list: "a list", tuple: "a tuple", dict: "a dictionary", set: "a set"}
    return kinds.get(type(value), f"a {type(value).__name__}")
