"""The check of a question whose answer is a function: its results compared with right ones, and what they show.

docs/architecture.md has the whole way from a question to a mark.
"""

import copy
import functools
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

from classroom.questions import core
from classroom.questions.core import Feedback, Outcome, Slip, Try, equal

THOUGHTS = "thoughts.json"


@dataclass(eq=False, repr=False)
class Check:
    """The check of one question whose answer is a function."""

    question: str  # its name, and the function's
    reference: Callable[..., Any]  # a right answer
    cases: Sequence[tuple[Any, ...]]  # arguments; between them they tell every slip from the truth and all others
    slips: Sequence[Slip]  # the catalogue, the more specific first
    takeaway: str  # one sentence for whoever has it right
    parts: bool = False  # any part of the first argument, a list or dictionary, is an input too: the least is shown
    tells_expected: ClassVar[bool] = True  # whether a message says what is right: not where strangers are graded
    package: str = ""  # of the lesson, beside which its table of thoughts lies: set by its `CheckCell`

    @functools.cached_property
    def truth(self) -> list[Any]:
        """The right results, case by case."""
        return [self.reference(*copy.deepcopy(case)) for case in self.cases]

    @functools.cached_property
    def slipped(self) -> list[list[Try]]:
        """What each slip gives, case by case."""
        return [[core.attempt(self.question, slip.function, case) for case in self.cases] for slip in self.slips]

    def __call__(self, answer: object = ...) -> Feedback:
        """Try the learner's function on every case and say what that shows."""
        return Feedback(self.question, *self._judge(answer))

    def _judge(self, answer: object) -> tuple[Outcome, str]:
        if core.has_dots(answer):
            return Outcome.NOT_ATTEMPTED, f"Replace the dots in `{self.question}`, run that cell, then this one."
        if not callable(answer) or core.as_number(answer) is not None:
            return Outcome.WRONG, core.not_asked_for(self.question, answer, "function")
        if mismatch := self._wrong_signature(answer):
            return Outcome.CRASHED, mismatch
        tries = [core.attempt(self.question, answer, case) for case in self.cases]
        for one in tries:
            if core.has_dots(one.value) or core.is_about_dots(one.error):
                return Outcome.NOT_ATTEMPTED, f"There are still dots in `{self.question}`: replace them."
        if any(one.error is not None for one in tries):
            one, _ = self._smallest(answer, tries, lambda one, truth: one.error is not None)
            assert one.error is not None
            return Outcome.CRASHED, f"`{one.call}` raised {core.describe_crash(one.error, answer)}"
        if all(equal(one.value, truth) for one, truth in zip(tries, self.truth, strict=True)):
            changed = next((one for one in tries if one.changed), None)
            if changed is None:
                return Outcome.CORRECT, self.takeaway
            return Outcome.WRONG, (
                f"The result is right, but `{changed.call}` changes its argument `{changed.changed}`, which the "
                "caller may still need. Work on a copy."
            )
        return Outcome.WRONG, self.diagnose(tries, answer)

    def _smallest(
        self, answer: Callable[..., Any], tries: Sequence[Try], fails: Callable[[Try, Any], bool]
    ) -> tuple[Try, Any]:
        """The shortest call that fails, of the cases and, where any part of an input is one, of their parts."""
        failing = [(c, one, t) for c, one, t in zip(self.cases, tries, self.truth, strict=True) if fails(one, t)]
        case, one, truth = min(failing, key=lambda found: len(found[1].call))
        index = 0
        while self.parts and index < len(case[0]) > 1:
            items = case[0].items() if isinstance(case[0], Mapping) else case[0]
            kept = [part for i, part in enumerate(items) if i != index]
            smaller = (type(case[0])(kept), *case[1:])
            again, right = core.attempt(self.question, answer, smaller), self.reference(*copy.deepcopy(smaller))
            if fails(again, right):
                case, one, truth = smaller, again, right
            else:
                index += 1
        return one, truth

    def _wrong_signature(self, answer: Callable[..., Any]) -> str:
        names = list(core.parameters(answer))
        if not names and not inspect.isfunction(answer):
            return ""  # a built-in or the like: let the call decide
        wanted = list(core.parameters(self.reference))
        for case in self.cases:
            try:
                inspect.signature(answer).bind(*case)
            except TypeError:
                return (
                    f"Your function takes ({', '.join(names)}), so `{core.attempt_text(self.question, case)}` fails. "
                    f"It is called with {', '.join(wanted)}: keep the first line as it was given."
                )
        return ""

    # -- diagnosis of wrong values: the plain ones first, then the catalogue, then what can be said of any number ------

    def diagnose(self, tries: Sequence[Try], answer: Callable[..., Any]) -> str:
        """What is wrong with these results."""
        right = sum(equal(one.value, truth) for one, truth in zip(tries, self.truth, strict=True))
        if all(one.value is None for one in tries):
            call = min((one.call for one in tries), key=len)
            return f"`{call}` returned nothing (`None`). Is there a `return`? Printing a number does not return it."
        for diagnosis in (self._slip, self._thought, self._factor, self._offset, self._rounded):
            if message := diagnosis(tries):
                return message
        one, truth = self._smallest(answer, tries, lambda one, t: one.error is None and not equal(one.value, t))
        found, expected = core.shown(one.value), core.shown(truth)
        if found == expected:  # with all digits they do not look alike
            found, expected = repr(one.value), repr(truth)
        if one.value is None:
            found = "nothing (`None`)"
        wants = f", expected {expected}" if self.tells_expected else ""
        but = f"Right for {right} of {len(tries)} inputs, but " if right else ""
        end = self._kind_of_result(one.value, truth)
        if not end:
            same = all(equal(each.value, one.value) for each in tries)
            end = " So does every other call: what of the arguments?" if same else " Work this one out by hand."
        return f"{but}`{one.call}` returned {found}{wants}.{end}"

    def _kind_of_result(self, value: object, truth: object) -> str:
        """What is to be said about the kind of a wrong result."""
        number = core.as_number(value)
        if value is None:
            return " Here it ends without a `return`, or returns `None` itself."
        if core.as_number(truth) is not None and number is None:
            return f" That is {core.what_it_is(value)}. Return one number."
        if isinstance(number, float) and math.isnan(number):
            return " NaN is no number: something is divided by 0, or taken from infinity."
        if isinstance(number, float) and number % 1 and all(isinstance(core.as_number(one), int) for one in self.truth):
            return " It has decimals: a whole number belongs there."
        listed, wanted = core.as_list(value), core.as_list(truth)
        if listed is not None and wanted is not None:
            for one, right in zip(listed, wanted, strict=False):
                if core.as_number(right) is not None and core.as_number(one) is None:
                    return f" It holds {core.what_it_is(one)}, {core.shown(one)}, where a number belongs."
            more = len(listed) - len(wanted) if self.tells_expected else 0
            return f" That is {abs(more)} too {'many' if more > 0 else 'few'} in the list." if more else ""
        if core.as_number(truth) is None and truth is not None and not isinstance(value, type(truth)):
            return f" That is {core.what_it_is(value)}. Return {core.what_it_is(truth)}."
        return ""

    def pairs(self, tries: Sequence[Try]) -> list[tuple[float, float]]:
        """The numbers returned, each with the right one, entry by entry of lists; none where that says nothing."""
        got, right = _numbers([one.value for one in tries]), _numbers(self.truth)
        return list(zip(got, right, strict=True)) if got and right and len(got) == len(right) else []

    def constant_factor(self, tries: Sequence[Try]) -> float | None:
        """What all numbers returned are of the right ones; None if there is no such factor."""
        pairs = self.pairs(tries)
        ratios = [one / truth for one, truth in pairs if truth]
        if not ratios or any(one and not truth for one, truth in pairs):
            return None
        return ratios[0] if all(math.isclose(r, ratios[0], rel_tol=core.TOLERANCE) for r in ratios) else None

    def _slip(self, tries: Sequence[Try]) -> str:
        """The slip whose results these are, every one."""
        for slip, wrong in zip(self.slips, self.slipped, strict=True):
            if all(bad.error is None and equal(one.value, bad.value) for one, bad in zip(tries, wrong, strict=True)):
                return slip.message
        return ""

    def _thought(self, tries: Sequence[Try]) -> str:
        """The change of a right answer, or the two, of those kept beside the lesson, whose results these are."""
        if all(equal(one.value, tries[0].value) for one in tries):
            return ""  # whatever it looks at, it is not the arguments
        kept = table(self.package).get(self.question, {})
        try:
            found = kept.get("thoughts", {}).get(digest([one.value for one in tries]), "")
        except Exception:  # noqa: BLE001 - results are the learner's: one may have no text, or hold itself
            return ""
        either = [" and ".join(kept["words"][int(n)] for n in one.split("+")) for one in found.split("|") if one]
        return f"Every result is what comes out {', or '.join(either)}." if either else ""

    def _factor(self, tries: Sequence[Try]) -> str:
        factor = self.constant_factor(tries)
        if factor is None or factor == 1:
            return ""
        if factor == 0:
            return "Every number you return is 0."
        if factor < 0:
            return "Every number you return has the opposite sign, negative where it is to be positive."
        size = f"{factor:.4g} times too large" if factor > 1 else f"{1 / factor:.4g} times too small"
        return (
            f"Every number you return is {size}: one factor is missing or one too many. "
            f"`{min((one.call for one in tries), key=len)}` is a start."
        )

    def _offset(self, tries: Sequence[Try]) -> str:
        pairs = sorted(self.pairs(tries), key=lambda pair: abs(pair[1]))
        if len({truth for _, truth in pairs}) < 3:
            return ""
        off = pairs[0][0] - pairs[0][1]
        if not off or any(
            abs(one - truth - off) > core.TOLERANCE * abs(off) + 1e-15 * abs(truth) for one, truth in pairs
        ):
            return ""
        size = f"{core.shown(abs(off))} too {'large' if off > 0 else 'small'}"
        return f"Every number you return is {size}: `{min((one.call for one in tries), key=len)}` is a start."

    def _rounded(self, tries: Sequence[Try]) -> str:
        pairs = self.pairs(tries)
        for digits in range(5):
            if any(truth != round(truth, digits) for _, truth in pairs) and all(
                abs(one - truth) < 10.0**-digits and one == round(one, digits) for one, truth in pairs
            ):
                to = f"{digits} decimal places" if digits else "whole ones"
                return f"Your numbers are the right ones, rounded to {to}. Return them as they are."
        return ""


def _numbers(value: object) -> list[float] | None:
    """The numbers of lists within lists, in their order; None where anything else is among them."""
    number = core.as_number(value)
    if number is not None:
        return [core.as_float(number)] if math.isfinite(core.as_float(number)) else None
    parts = core.as_list(value)
    found = None if parts is None else [_numbers(part) for part in parts]
    if found is None or any(part is None for part in found):
        return None
    return [one for part in found for one in part or []]


# -- what a learner thought, told by the results alone ---------------------------------------------------------------
# The table beside a lesson holds, for every likely change of a right answer, a digest of its results on all cases of
# the check, and the change in words. So the learner's kernel needs neither the solution nor its variants.


def digest(results: Sequence[Any]) -> str:
    """A short text for a list of results; equal ones have the same."""
    return hashlib.sha256(_digested(list(results)).encode()).hexdigest()[:9]


def _digested(value: Any) -> str:
    """One text for equal values: numbers to six digits, whole ones to the unit."""
    number, parts = core.as_number(value), core.as_list(value)
    if isinstance(number, int):
        return str(number)
    if number is not None:
        whole = math.isfinite(number) and abs(number - round(number)) <= core.TOLERANCE * abs(number)
        return str(round(number)) if whole else f"{number:.6g}"
    if parts is not None:
        return f"[{', '.join(map(_digested, parts))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_digested(one)}' for key, one in value.items()))}}}"
    return str(value)


@functools.cache
def table(package: str) -> Mapping[str, Any]:
    """The thoughts of a lesson's questions, by question; nothing where none were kept, or no lesson is named."""
    if not package:
        return {}
    try:
        kept: Mapping[str, Any] = json.loads((files(package) / THOUGHTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ModuleNotFoundError):
        return {}
    return kept
