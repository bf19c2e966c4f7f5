"""One sentence to be told: your vote, the verdict, what it should have said; folded, what the verdict rests on."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from classroom.claims import CLAIMS, VERDICTS, Claim, Finding, Verdicts
from course_utils.units import as_written
from lessons.myths_and_facts.ballot import Ballot


@dataclass(frozen=True)
class Told:
    """A claim, what its judge found, what was voted, "" if nothing was, and better words, "" if it needs none."""

    claim: Claim
    finding: Finding
    vote: str = ""
    better: str = ""

    def __repr__(self) -> str:
        better = f". It should have said: {self.better}" if self.better else ""
        return f"“{self.claim.text}” ({self.claim.source}): {self.finding.told}{better}"

    def _repr_html_(self) -> str:
        lesson = self.claim.lesson
        where = f" <a href='{lesson}.ipynb'>Lesson {lesson[:2]}</a>." if lesson else ""
        vote = f"You voted: <b>{escape(self.vote)}</b>. " if self.vote else ""
        better = f"<p>It should have said: <b>{escape(self.better)}</b></p>" if self.better else ""
        rule = f" The rule: {escape(as_written(self.finding.rule))}." if self.finding.rule else ""
        return (
            f"<blockquote class='{VERDICTS}'><p><b>{escape(self.claim.text)}</b><br>"
            f"<small>{escape(self.claim.source)}</small></p>"
            f"<p>{vote}Verdict: <b>{self.finding.told}</b>.</p>{better}"
            "<details><summary>How it was judged</summary>"
            f"<p><small>{escape(as_written(self.finding.evidence))}.{rule}{where}</small></p></details></blockquote>"
        )


def told(number: int, found: Verdicts, ballot: Ballot, better: str = "") -> Told:
    """The sentence of this number, with the verdict that `found = judge([...])` has for it, and the vote on it so far.

    Args:
        number: of the claim.
        found: has its verdict.
        ballot: has the vote on it, if there was one.
        better: what the sentence should have said.

    Raises:
        KeyError: `found` has no such number.
    """
    findings = {claim.number: finding for claim, finding in found.rows}
    return Told(CLAIMS[number], findings[number], ballot.votes.get(number, ""), better)
