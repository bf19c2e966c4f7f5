"""One sentence to be told: its source, the lesson that shows it, and the verdict that its number gives."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from classroom.claims import CLAIMS, Claim, Finding, Verdicts


@dataclass(frozen=True)
class Told:
    """A claim and what its judge found, without the evidence: that is for the page to show."""

    claim: Claim
    finding: Finding

    def __repr__(self) -> str:
        return f"“{self.claim.text}” ({self.claim.source}): {self.finding.told}"

    def _repr_html_(self) -> str:
        lesson = self.claim.lesson
        where = f", <a href='{lesson}.ipynb'>lesson {lesson[:2]}</a>" if lesson else ""
        return (
            f"<blockquote><p><b>{escape(self.claim.text)}</b><br>"
            f"<small>{escape(self.claim.source)}{where}</small></p>"
            f"<p>Verdict: <b>{self.finding.told}</b></p></blockquote>"
        )


def told(number: int, found: Verdicts) -> Told:
    """The sentence of this number, with the verdict that `found = judge([...])` has for it.

    Raises:
        KeyError: `found` has no such number.
    """
    findings = {claim.number: finding for claim, finding in found.rows}
    return Told(CLAIMS[number], findings[number])
