"""What every check shares: four outcomes, feedback that reads well in a notebook, values compared, answers tried.

Two numbers are equal when they differ by at most one part in 10**9 (bytes are whole numbers, so that is rounding of
floats only), or in 10**6 where one comes as a float32; int, float, Decimal, NumPy scalar and tensor of one number are
all numbers; the order of dictionary keys does not matter.
"""

import ast
import builtins
import copy
import html
import inspect
import linecache
import math
import numbers
import re
import symtable
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pprint import isrecursive
from types import EllipsisType
from typing import Any

TOLERANCE = 1e-9
SINGLE = 1e-6  # of what came as float32, which has seven digits
LONGEST = 160  # characters of a value in a message
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # raised for a text that is no Python
# What a text that is none was to bind at its top level.
MEANT = re.compile(r"(?m)^(?!(?:print|if|while|for|with|assert|return|del)\b)(?:(?:async )?\w+ +(\w+)|(\w+) *=(?!=))")
NOTHING = 1e-15  # a difference of so little is rounding, where 0 is right as well: no time or share here is as small


class Outcome(StrEnum):
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

# JupyterLab marks a cell that was edited since it ran. Once the answer's, just above its check, is, the check says so.
EDITED = (
    "<style>.course-old::after{content:attr(data-edited);display:block;margin-top:.3em;font-weight:bold}</style>"
    '<div data-edited="The cell above was edited since. This is about its earlier text: run that cell, then this one.">'
    """</div><img hidden alt="" src="data:," onerror="setTimeout(()=>{const answer=this.closest('.jp-CodeCell')
?.previousElementSibling,look=()=>{if(answer.matches('.jp-mod-dirty'))this.previousSibling.className='course-old'}
if(answer){look();new MutationObserver(look).observe(answer,{attributes:true})}},99)">"""
)


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
            f"<strong>{self.outcome.value.capitalize()}:</strong> {message}{EDITED}</div>"
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
    if type(value) is int or type(value) is float:  # most are, and the rest takes long
        return value
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
    if type(got) is int and type(expected) is int:
        return got == expected
    left, right = as_number(got), as_number(expected)
    if left is not None and right is not None:
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        near = SINGLE if str(getattr(got, "dtype", "")).endswith("float32") else TOLERANCE
        return math.isclose(as_float(left), as_float(right), rel_tol=near, abs_tol=NOTHING)
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        return got.keys() == expected.keys() and all(equal(got[key], expected[key]) for key in expected)
    one, other = as_list(got), as_list(expected)
    if one is not None and other is not None:
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if hasattr(got, "item") and getattr(got, "ndim", None) == 0:  # NumPy's texts and truths
        got = got.item()
    return type(got) is type(expected) and bool(got == expected)


def as_float(number: int | float) -> float:
    """A number as a float; infinity for a whole number beyond the largest float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def as_list(value: Any) -> list[Any] | None:
    """The entries of a list, a tuple, an array or a tensor; None for what is none."""
    if isinstance(value, list | tuple):
        return list(value)
    return list(value) if hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0 else None


def has_dots(value: object, within: tuple[object, ...] = ()) -> bool:
    """Whether the placeholder `...` is anywhere in a result; `within` are the collections it is in."""
    if isinstance(value, EllipsisType) or any(value is one for one in within):
        return isinstance(value, EllipsisType)
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple | set) else ()
    return any(has_dots(part, (*within, value)) for part in parts)


def shown(value: object) -> str:
    """A value as a message quotes it: thousands in groups; what is longer than any right result is cut."""
    try:
        number = as_number(value)
        if isinstance(number, int):
            return f"{number:,}"
        if number is not None and 1e4 <= abs(number) < 1e15:
            return f"{round(number, 2):,.15g}"  # as a whole number beside it is written
        text = f"{number:,.6g}" if number is not None else repr(value)
    except Exception:  # noqa: BLE001 - an object of the learner's own may refuse to be shown
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def what_it_is(value: object) -> str:
    """A value's kind as a message names it: "a number", "a text"."""
    if as_number(value) is not None:
        return "a number"
    kinds = {bool: "True or False", str: "a text", list: "a list", tuple: "a tuple", dict: "a dictionary", set: "a set"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def percent(share: float) -> str:
    """A share as the course writes it: 0.453 is "45 %"."""
    return f"{100 * share:.0f} %"


# -- trying an answer ------------------------------------------------------------------------------------------------


def attempt(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Try:
    """Call a learner's function on copies of the arguments; whatever it raises is part of the result."""
    call = attempt_text(name, arguments)
    copies = copy.deepcopy(list(arguments))
    try:
        value = function(*copies)
        # What cannot be compared or written down is found here, not where it is judged.
        if isrecursive(value):
            raise RecursionError("what it returned holds itself")
        has_dots(value), equal(value, value), repr(value)
        place = next((i for i, pair in enumerate(zip(arguments, copies, strict=True)) if not equal(*pair)), None)
        changed = "" if place is None else dict(enumerate(parameters(function))).get(place, f"argument {place + 1}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a learner's function may raise anything
        return Try(call, error=error)
    return Try(call, value, changed=changed)


def attempt_text(name: str, arguments: Sequence[Any]) -> str:
    """A call as a learner would write it, whole."""
    return f"{name}({', '.join(map(repr, arguments))})"


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """A function's parameters by name; empty where Python cannot tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def not_asked_for(name: str, answer: object, kind: str) -> str:
    """What to do where a name is not the function or class that is asked for, but a value, or nothing."""
    what = "`None`" if answer is None else f"{what_it_is(answer)}, {shown(answer)},"
    return f"`{name}` is {what} and no {kind}. Keep its first line as it was given, and run its cell again."


def describe_crash(error: BaseException, answer: Any) -> str:
    """What was raised and at which line of the learner's cell, without a traceback."""
    try:
        first = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - an error of the learner's own may refuse to be shown
        first = []
    what = f"{type(error).__name__}: {first[0][:LONGEST]}" if first else type(error).__name__
    return what + place_in(error, answer)


def place_in(error: BaseException, answer: object) -> str:
    """At which line of the learner's cell something was raised, as the end of a sentence; "" where nobody can tell."""
    file = file_of(answer)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    if not frames or frames[-1].lineno is None:
        return ""
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f", in line {frames[-1].lineno} of your cell" + (f": `{line}`" if line else "")


def file_of(answer: Any) -> str | None:
    """The file, or the cell in place of one, that a function or a class was defined in; None where nobody can tell."""
    own = filter(inspect.isfunction, vars(answer).values()) if inspect.isclass(answer) else [inspect.unwrap(answer)]
    return next((part.__code__.co_filename for part in own if hasattr(part, "__code__")), None)


def is_about_dots(error: BaseException | None) -> bool:
    """Whether Python stumbled over a `...` that is still in the answer."""
    return isinstance(error, TypeError) and "ellipsis" in str(error).lower()


# -- what a text binds -----------------------------------------------------------------------------------------------


def as_python(source: str) -> str:
    """A cell's text, without the lines of IPython's own (`%precision 3`) where it is no Python with them."""
    try:
        ast.parse(source)
    except UNREADABLE:
        return re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)
    return source


def names_in(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """(bound, needed) names of a cell: those it binds at its top level, and those it reads and does not bind.

    What its functions read counts too. Neither has any if the cell is no Python.
    """
    try:
        top = symtable.symtable(as_python(source), "cell", "exec")
    except UNREADABLE:
        return frozenset(), frozenset()
    bound = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        symbols = (symbol for symbol in table.get_symbols() if symbol.is_referenced())
        read.update(symbol.get_name() for symbol in symbols if table is top or symbol.is_global())
    return frozenset(bound), frozenset(read - bound - {*dir(builtins)})


def defines(source: str, names: Collection[str]) -> bool:
    """Whether a text binds all these names at its top level, or would but for a syntax error; a misspelt `def` too."""
    bound, needed = names_in(source)
    if not bound and not needed:
        bound = frozenset(name for found in MEANT.findall(source) for name in found)
    return bool(names) and bound.issuperset(names)
