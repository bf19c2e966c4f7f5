"""A vote on some claims before any verdict is shown, and the count once every vote is in.

    votes = ballot([12, 24, 40])              # one cell
    count(votes, judge([12, 24, 40]))         # a later one, which waits

As with a prediction, nothing blocks: the count says what it waits for, and appears with the last vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import ipywidgets as widgets
import traitlets

from classroom.claims import CLAIMS, MISLEADING, OPEN, OUTDATED, PARTLY, RIGHT, WRONG, Verdicts
from classroom.predict import WIDGET_HEAD, still
from course_utils.units import CourseError

HOLDS, IN_PART, ONCE, NO = "holds", "holds in part", "held once", "does not hold"
VOTES = (HOLDS, IN_PART, ONCE, NO)
# What one votes for who knows the verdict. A misleading sentence may be true word for word; what it makes one believe
# is not.
MEANS = {RIGHT: HOLDS, PARTLY: IN_PART, OUTDATED: ONCE, MISLEADING: NO, WRONG: NO}


class Ballot(widgets.VBox):  # type: ignore[misc]
    """Buttons and a line to write on for each claim. Show it as a cell's last value; `count` takes it in a later cell.

    Attributes:
        numbers: of the claims.
        votes: by number, one of `VOTES`; claims not voted on are missing.
        counts: by number, the line that says which number would decide.

    Raises:
        CourseError: no claim has such a number.
    """

    votes: traitlets.Dict[int, str] = traitlets.Dict()

    def __init__(self, numbers: Sequence[int]) -> None:
        unknown = [number for number in numbers if number not in CLAIMS]
        if unknown:
            raise CourseError(f"no claim number {unknown[0]}; there are {min(CLAIMS)} to {max(CLAIMS)}")
        self.numbers = tuple(numbers)
        self.buttons = {  # each as wide as its words: a width in em cuts them in some fonts
            number: widgets.ToggleButtons(options=VOTES, value=None, style={"button_width": "auto"})
            for number in self.numbers
        }
        self.counts = {
            number: widgets.Text(
                description="decided by",
                placeholder="which number?",
                style={"description_width": "initial"},
                layout={"width": "auto"},
            )
            for number in self.numbers
        }
        asked = [widgets.HTML(f"{WIDGET_HEAD}<p><b>Vote</b> on each sentence. One that misleads does not hold.</p>")]
        for number, buttons in self.buttons.items():
            asked += [widgets.HTML(_sentence(number)), buttons, self.counts[number]]
            buttons.observe(self._vote, names="value")
        super().__init__(asked)
        self.add_class("course-widget")

    def _vote(self, _change: object) -> None:
        self.votes = {n: buttons.value for n, buttons in self.buttons.items() if buttons.value is not None}

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        text = "\n".join(f"{CLAIMS[n].text} [{CLAIMS[n].source}]" for n in self.numbers)
        html = "".join(_sentence(number) for number in self.numbers)
        return {**bundle, "text/html": still(html, "and vote here"), "text/plain": text}


def _sentence(number: int) -> str:
    claim = CLAIMS[number]
    seen = f"; judged in lesson {claim.lesson[:2]}" if claim.lesson else ""
    return f"<p>{escape(claim.text)} <small>({escape(claim.source)}{seen})</small></p>"


class Count(widgets.VBox):  # type: ignore[misc]
    """The verdicts beside the votes of a ballot, which it waits for; their evidence is for the page to tell.

    Raises:
        CourseError: something else than a ballot, or a claim on it that is open: nobody could vote right.
    """

    def __init__(self, ballot: Ballot, found: Verdicts) -> None:
        if not isinstance(ballot, Ballot):
            raise CourseError(f"count needs what ballot(...) returned, got {type(ballot).__name__}")
        self.ballot = ballot
        self.found = replace(found, rows=tuple(row for row in found.rows if row[0].number in ballot.numbers))
        undecided = [claim.number for claim, finding in self.found.rows if finding.verdict == OPEN]
        if undecided:
            raise CourseError(f"claim {undecided[0]} is open: vote on claims that a number decides")
        self.content = widgets.HTML()
        super().__init__([widgets.HTML(WIDGET_HEAD), self.content])
        self.add_class("course-widget")
        ballot.observe(self._update, names="votes")
        self._update()

    @property
    def words(self) -> str:
        """How many votes agree with the verdicts, or how many are waited for."""
        votes = self.ballot.votes
        if missing := len(self.ballot.numbers) - len(votes):
            return f"Vote above first: {missing} to go."
        agree = [MEANS[finding.verdict] == votes[claim.number] for claim, finding in self.found.rows]
        return f"{sum(agree)} of your {len(agree)} votes agree with the verdict."

    def _update(self, _change: object = None) -> None:
        votes = self.ballot.votes
        shown = ""
        if len(votes) == len(self.ballot.numbers):
            shown = "".join(
                f"<p>{escape(claim.text)}<br>You: {votes[claim.number]}. Verdict: <b>{finding.in_full}</b>.</p>"
                for claim, finding in self.found.rows
            )
        self.content.value = f'<p aria-live="polite"><b>{self.words}</b></p>{shown}'

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs) or {}
        told = "".join(f"<li>{escape(c.text)} <b>{f.in_full}</b></li>" for c, f in self.found.rows)
        html = f"<details><summary>The verdicts, for readers without a kernel</summary><ul>{told}</ul></details>"
        return {**bundle, "text/html": still(html), "text/plain": self.words}


ballot, count = Ballot, Count  # as the lesson calls them
