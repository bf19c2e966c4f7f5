"""Predict first: a number is asked for, and the answer in a later cell stays hidden until one was entered.

    guess = predict("How much memory does the output of VGG-16's first convolution need, batch 128?", unit="MiB")
    guess                                                  # one cell
    reveal(guess, {"by hand": 1568, "trace": traced})      # a later one

Nothing blocks: in Run All and under nbval the later cell says that it waits, and shows the answer as soon as a number
is entered. In the saved notebook the answer is folded away, for readers without a kernel. A cell whose answer varies
(a measurement) is tagged `nbval-ignore-output`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import traitlets

from classroom import STILL
from course_utils.figures import Picture, side_by_side
from course_utils.units import CourseError

# Stands once in every widget of ours; the file says what for.
WIDGET_HEAD = Path(__file__).with_name("widget_head.html").read_text(encoding="utf-8").partition("-->")[2].strip()


def still(html: str, purpose: str = "") -> str:
    """What is saved in a widget's place, with what to run its cell for."""
    asked = f'<p class="course-at-rest"><em>Run this cell (Shift+Enter) {purpose}.</em></p>' if purpose else ""
    return f'<div class="{STILL}">{html}{asked}</div>'


def read_number(text: str) -> float:
    """The number a person wrote: "1568", "1,568", "1 568", "12.5", "12,5", "1.5e3" or, with either minus sign, "-392".

    A comma before three digits separates thousands, any other is a decimal comma. Raises CourseError for no number.
    """
    plain = re.sub(r"[\s_]", "", text).replace("\N{MINUS SIGN}", "-")
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", plain):
        plain = plain.replace(",", "")
    elif plain.count(",") == 1 and "." not in plain:
        plain = plain.replace(",", ".")
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?", plain):
        raise CourseError(f"{text.strip()[:40]!r} is not a number: write one such as 12.5, with no unit")
    return float(plain)


def how_far(guess: float, answer: float, unit: str) -> str:
    """How far a guess is from the answer, in words.

    >>> how_far(90, 1568, "MiB")
    'Your guess, 90 MiB, is 17.4 times too small.'
    """
    said = f"Your guess, {guess:,.6g} {unit},"
    if guess == answer:
        return f"{said} is exact."
    if guess * answer <= 0:  # 0, or one of them negative: no factor says how far
        return f"{said} is {abs(answer - guess):,.6g} {unit} too {'small' if guess < answer else 'large'}."
    if unit == "%":  # a percentage of a percentage would be read wrong
        return f"{said} is {abs(answer - guess):,.3g} points too {'small' if guess < answer else 'large'}."
    factor = max(abs(guess), abs(answer)) / min(abs(guess), abs(answer))
    way = "small" if abs(guess) < abs(answer) else "large"
    if factor < 1.2:
        return f"{said} is {100 * abs(guess - answer) / abs(answer):.2g} % too {way}."
    times = f"{factor:,.{1 if factor < 100 else 0}f}" if factor < 1e6 else f"{factor:.3g}"
    return f"{said} is {times} times too {way}."


NEAR = 0.1  # of what a thought leads to: a guess this close may have come from it
CLOSE = 0.05  # of the answer: a guess this close needs no explanation, unless it is what a thought leads to
SAME = 0.01  # of a number: a guess this close is that number


def thought_behind(guess: float, answer: float, thoughts: Sequence[tuple[float, str]]) -> str:
    """The thought that leads nearest to a guess; "" if none leads near it, or the guess is closer to the answer.

    `thoughts` are the numbers that what somebody may have thought leads to, each with a sentence that names it.

    >>> thought_behind(1.5, 10.3, [(1.55, "Those are the parameters alone.")])
    'Those are the parameters alone.'
    """
    if abs(guess - answer) <= SAME * abs(answer):
        return ""
    reach = SAME if abs(guess - answer) <= CLOSE * abs(answer) else NEAR
    near = [(abs(guess - number), said) for number, said in thoughts if abs(guess - number) <= reach * abs(number)]
    return min(near, default=(0.0, ""))[1]


class Prediction(widgets.VBox):  # type: ignore[misc]
    """Ask for one number before anything is shown. Show it as a cell's last value; `reveal` takes it in a later cell.

    Attributes:
        question: what is asked, in words.
        unit: what the number counts.
        number: the number entered, None until then. The first one stands.
    """

    number = traitlets.Float(None, allow_none=True)

    def __init__(self, question: str, unit: str = "MiB") -> None:
        self.question, self.unit = question, unit
        self.field = widgets.Text(
            description="your guess", placeholder="a number", continuous_update=False,
            style={"description_width": "initial"}, layout=widgets.Layout(width="16em"),
        )  # fmt: skip
        self.button = widgets.Button(description="Predict", layout=widgets.Layout(width="7em"))
        self.line = widgets.HTML()
        asked = widgets.HTML(f"{WIDGET_HEAD}<p><b>Predict.</b> {escape(question)}</p>")
        layout = widgets.Layout(align_items="center", flex_flow="row wrap")
        row = widgets.HBox([self.field, widgets.Label(unit), self.button], layout=layout)
        super().__init__([asked, row, self.line])
        self.add_class("course-widget").add_class("course-predict")
        self.field.observe(self._enter, names="value")  # Enter, or leaving the field
        self.button.on_click(self._enter)

    def _enter(self, _event: object = None) -> None:
        if self.number is not None:
            return
        if not self.field.value.strip():
            self.line.value = "<p>Write a number first.</p>"
            return
        try:
            number = read_number(self.field.value)
        except CourseError as error:
            self.line.value = f'<p role="alert">{escape(str(error))}.</p>'
            return
        self.field.disabled = self.button.disabled = True
        self.line.value = f"<p>Your guess: <b>{number:,.6g} {escape(self.unit)}</b>. It stays on screen; read on.</p>"
        self.number = number

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        text = f"Predict. {self.question} ({self.unit})"
        html = f"<p><b>Predict.</b> {escape(self.question)} ({escape(self.unit)})</p>"
        return {**bundle, "text/html": still(html, "and write your guess here"), "text/plain": text}


class Reveal(widgets.VBox):  # type: ignore[misc]
    """The answer beside the guess: how far off and why in words, and every way to the answer as a bar with its number.

    Args:
        guess: what `predict` returned.
        rows: way to the answer ("by hand", "trace", "measured here") -> number in the guess's unit.
        against: the row the guess is compared with; the first one if not given.
        within: the ends of what cannot be told apart; a guess between them is accepted.
        thoughts: as in `thought_behind`; who guessed near such a number, and not near the answer, reads its sentence.

    Raises CourseError: no rows, a number that is not finite, `against` not among them, or no prediction.
    """

    def __init__(
        self,
        guess: Prediction,
        rows: Mapping[str, float],
        against: str | None = None,
        thoughts: Sequence[tuple[float, str]] = (),
        within: tuple[float, float] | None = None,
    ) -> None:
        if not isinstance(guess, Prediction):
            raise CourseError(f"reveal needs what predict(...) returned first, got {type(guess).__name__}")
        if not rows or not all(map(math.isfinite, (*rows.values(), *(number for number, _ in thoughts)))):
            raise CourseError(f"reveal needs rows and thoughts with finite numbers, got {dict(rows)!r}, {thoughts!r}")
        if against is not None and against not in rows:
            raise CourseError(f"reveal compares with one of {', '.join(rows)}, got {against!r}")
        self.guess, self.rows, self.thoughts, self.within = guess, dict(rows), tuple(thoughts), within
        self.against = against or next(iter(rows))
        self.content = widgets.HTML()
        super().__init__([widgets.HTML(WIDGET_HEAD), self.content])
        self.add_class("course-widget").add_class("course-reveal")
        guess.observe(self._update, names="number")
        self._update()

    def picture(self) -> Picture:
        """Guess and answers as bars; the answers alone while there is no guess."""
        number = self.guess.number
        guessed = {} if number is None else {"your guess": number}
        return side_by_side({**guessed, **self.rows}, self.guess.unit, hollow="your guess")

    def words(self) -> str:
        """How far the guess is from the answer and the thought behind it, or that it is waited for."""
        number, answer = self.guess.number, self.rows[self.against]
        if number is None:
            return f"Enter your guess above first; then this shows: {', '.join(self.rows)}."
        if self.within and self.within[0] <= number <= self.within[1]:
            return f"Your guess, {number:,.6g} {self.guess.unit}, lies within what can be told here."
        return f"{how_far(number, answer, self.guess.unit)} {thought_behind(number, answer, self.thoughts)}".rstrip()

    def _kept(self) -> str:
        """All that a page without a kernel needs to answer as this does, as JSON; numbers to nine digits."""
        told = {"question": self.guess.question, "unit": self.guess.unit, "rows": self.rows, "against": self.against}
        bounds = {"within": self.within} if self.within else {}
        text = json.dumps({**told, "thoughts": self.thoughts, **bounds}, default=float)
        nine = json.loads(text, parse_float=lambda number: float(f"{float(number):.9g}"))
        return json.dumps(nine, ensure_ascii=False)

    def _update(self, _change: object = None) -> None:
        shown = "" if self.guess.number is None else self.picture().svg
        self.content.value = f'<p aria-live="polite"><b>{escape(self.words())}</b></p>{shown}'

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        folded = f"<summary>The answer, for readers without a kernel</summary>{self.picture().html}"
        html = f'<details data-reveal="{escape(self._kept())}">{folded}</details>'
        return {**bundle, "text/html": still(html), "text/plain": self.words()}


predict, reveal = Prediction, Reveal  # as a lesson calls them
