"""One sentence to be told: your vote, the verdict, what was counted and of what it was said, what it should have said.

What the verdict rests on is folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from classroom.claims import CLAIMS, RIGHT, VERDICTS, Claim, Finding, Verdicts
from course_utils.units import as_written
from lessons.myths_and_facts.ballot import HOLDS, IN_PART, NO, ONCE, Ballot
from lessons.shared.sources import ADDRESSES

# By claim: the number that its verdict rests on; and of which case its source spoke, where it says so.
COUNTED = {
    1: "two Xeons' time for forward and backward of eight large convolutional networks, over a card's with cuDNN, "
    "published",
    2: "the peak of a step of that network, with 128 or 1,024 samples, over 6 GiB",
    4: "the speed of four cards in float32, without tensor cores, over that of one, modelled",
    9: "four GTX Titans' modelled speed on PCIe 2.0 x16 over one's, for VGG-16 and AlexNet with 32 or 128 images a "
    "card, weights shared or not",
    59: "two Xeons' modelled time for a step of a net with one hidden layer, in 64 sizes, over a Titan X's (Maxwell) "
    "with the data on the card, and with each batch copied over PCIe 3.0 x16",
    60: "parameters of a recurrent and of a dense layer, with 4, 100 and 784 inputs",
    71: "the peak of an epoch of a small dense network, measured on the CPU, with fewer images over that with 1,280; "
    "once with all images kept beside the network",
    81: "the peak of a step under autocast in either format, or all in bfloat16, over that in float32; and whether a "
    "small gradient becomes 0, or a small step moves no weight",
    87: "the peak of a step, over the weights",
    88: "attention's peak, forward and backward, traced: written out over fused",
    92: "the traced peak of a step, layers recomputed, in five ways, beside what an RTX 4090, of 24 GB, has free",
    97: "traced bytes between two steps with gradients freed, against zeros, as plain zero_grad() wrote then, and "
    "against what it leaves now",
}
SAID_OF = {
    1: "what he saw in nearly two years; no CPU, card or network is named",
    2: "his own network and card: it “fitted barely into my 6GB GPU memory”",
    4: "his own network, on his machines with InfiniBand of 40 Gbit/s between them",
    87: "a batch of 1, according to its code",
    88: "batch 8, 12 heads of 64, dropout or not, in release 0.1; today's README has the same figures",
    92: "its own recipe, with 8-bit moments in pages, for which it reports 18.9 GiB; we do not trace it",
    97: "None “instead of setting to zero”: “will in general have lower memory footprint”",
}
# To a vote that has a reason of its own.
REPLIES = {
    (1, HOLDS): "Against a slower CPU it may: its source names none.",
    (1, ONCE): "Against these Xeons it did not hold in 2014; against later cards both parts do.",
    (2, HOLDS): "His card was full, he says. With the batches we tried this network takes far less.",
    (9, HOLDS): "AlexNet shares its weights too, and with 32 images a card does not parallelise well.",
    (71, HOLDS): "A step holds one batch: with 128 images it is as large as with 1,280.",
    (71, NO): "It does if the images do not fill a batch, or if all of them are kept on the card.",
    (92, IN_PART): "It says “can”: one way is enough.",
    (92, NO): "In float32 weights, gradients and moments take 128 GB, but not all need be on the card.",
    (59, IN_PART): "It says “can”: one case is enough.",
    (59, NO): "It does in few cases; “can” asks for one.",
    (97, HOLDS): "It did until release 2.0. Today's documentation still compares None with zeros.",
    (97, NO): "Today it does not. In 2022 plain zero_grad() wrote zeros, which stay.",
}


@dataclass(frozen=True)
class Told:
    """A claim, what its judge found, and, "" if there is none: the vote, better words, what the voter would count."""

    claim: Claim
    finding: Finding
    vote: str = ""
    better: str = ""
    count: str = ""

    @property
    def _said(self) -> str:
        return "More exactly" if self.finding.verdict == RIGHT else "It should have said"

    def __repr__(self) -> str:
        better = f". {self._said}: {self.better}" if self.better else ""
        return f"“{self.claim.text}” ({self.claim.source}): {self.finding.in_full}{better}"

    def _repr_html_(self) -> str:
        lesson = self.claim.lesson
        where = f" <a href='{lesson}.ipynb'>Lesson {lesson[:2]}</a>." if lesson else ""
        source = escape(self.claim.source)
        if self.claim.source in ADDRESSES:
            where += f" Source: <a href='{ADDRESSES[self.claim.source]}'>{source}</a>."
        vote = f"You voted: <b>{escape(self.vote)}</b>. " if self.vote else ""
        reply = f" {REPLIES[asked]}" if (asked := (self.claim.number, self.vote)) in REPLIES else ""
        count = f"You would count: {escape(self.count)}. " if self.count else ""
        for words, of in (("We counted", COUNTED), ("Said of", SAID_OF)):
            count += f"{words}: {escape(of[self.claim.number])}. " if self.claim.number in of else ""
        count = f"<p>{count.strip()}</p>" if count else ""
        better = f"<p>{self._said}: <b>{escape(self.better)}</b></p>" if self.better else ""
        rule = f"Rule: {escape(as_written(self.finding.rule))}. " if self.finding.rule else ""
        return (
            f"<blockquote class='{VERDICTS}'><p><b>{escape(self.claim.text)}</b><br>"
            f"<small>{source}</small></p>"
            f"<p>{vote}Verdict: <b>{self.finding.in_full}</b>.{reply}</p>{count}{better}"
            f"<details><summary>How it was judged</summary><p><small>{rule}"
            f"Found: {escape(as_written(self.finding.evidence))}.{where}</small></p></details></blockquote>"
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
    return Told(CLAIMS[number], findings[number], ballot.votes.get(number, ""), better, ballot.counts[number].value)
