"""One sentence to be told: its source, the lesson that shows it, its numbers, your vote, the verdict and its rule."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from classroom.claims import CLAIMS, Claim, Finding, Verdicts
from course_utils.units import as_written
from lessons.myths_and_facts.ballot import Ballot


@dataclass(frozen=True)
class Told:
    """A claim, what its judge found, and what was voted; "" if nothing was."""

    claim: Claim
    finding: Finding
    vote: str = ""

    def __repr__(self) -> str:
        return f"“{self.claim.text}” ({self.claim.source}): {self.finding.told}"

    def _repr_html_(self) -> str:
        lesson = self.claim.lesson
        where = f", <a href='{lesson}.ipynb'>lesson {lesson[:2]}</a>" if lesson else ""
        vote = f"You voted: <b>{escape(self.vote)}</b>. " if self.vote else ""
        rule = f" ({escape(as_written(self.finding.rule))})" if self.finding.rule else ""
        return (
            f"<blockquote><p><b>{escape(self.claim.text)}</b><br>"
            f"<small>{escape(self.claim.source)}{where}</small></p>"
            f"<p><small>{escape(as_written(self.finding.evidence))}.</small></p>"
            f"<p>{vote}Verdict: <b>{self.finding.told}</b>{rule}.</p></blockquote>"
        )


def told(number: int, found: Verdicts, ballot: Ballot) -> Told:
    """The sentence of this number, with the verdict that `found = judge([...])` has for it, and the vote on it so far.

    Raises:
        KeyError: `found` has no such number.
    """
    findings = {claim.number: finding for claim, finding in found.rows}
    return Told(CLAIMS[number], findings[number], ballot.votes.get(number, ""))
