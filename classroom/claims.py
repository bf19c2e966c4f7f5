"""What a claim is, the table of claims, and how verdicts are shown.

Each claim is told in our own words with the publication it comes from; its judge computes the evidence and derives the
verdict from it, so that a changed formula changes the verdict. One module a lesson registers its claims with `claim`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from classroom import ROOT
from classroom.notebooks import topics
from course_utils.units import CourseError, as_written

PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)
PAGES.filters |= {"plain": escape, "written": lambda text: escape(as_written(text))}
PAGE = PAGES.get_template("claims.html")
VERDICTS = "course-verdicts"  # class of what shows verdicts; what they rest on is spoken in a lecture
# What they say of a sentence, by cases: a network, a batch, a card, an option, a way to count. Right: it holds in
# every case tried. Partly right: in one of them, for one of its parts, or nearly. Outdated: it held when it was
# written, and no longer. Open: no number decides. One that holds in no case is misleading if its source reports it of
# another quantity, which nothing here checks, and else wrong. What can or may be is right if one case shows it; what is
# always so is partly right with exceptions. What a sentence's words cover is a case, also if its source spoke of
# another. In each, what it names is changed and nothing else. A case in which two errors cancel does not count.
RIGHT, PARTLY, OUTDATED, MISLEADING, WRONG, OPEN = "right", "partly right", "outdated", "misleading", "wrong", "open"
# What of a sentence with cases or parts is partly right: no part in more than some cases, or one in all.
SOME, PART = "some cases", "one part"


@dataclass(frozen=True)
class Finding:
    """A verdict, the evidence in one phrase, and why."""

    verdict: str  # one of the six words above
    evidence: str  # the numbers it follows from, or the document it is cited from
    why: str  # what they mean
    cited: bool = False  # it rests on a document; no number could have made it another
    rule: str = ""  # what the numbers had to be for the verdict, where a page shows it
    kind: str = ""  # if partly right: SOME, or what `by_parts` says, by the same numbers, where a page shows it

    @property
    def in_full(self) -> str:
        """The verdict, and of one that is partly right, what is."""
        return f"{self.told}: {self.kind}" if self.verdict == PARTLY and self.kind else self.told

    @property
    def told(self) -> str:
        """The verdict, and whether it was cited."""
        return f"{self.verdict} (cited)" if self.cited else self.verdict


@dataclass(frozen=True)
class Claim:
    """One belief: its number in the table of claims, the belief, where it was published, and its judge."""

    number: int
    text: str
    source: str
    judge: Callable[[], Finding]

    @property
    def lesson(self) -> str:
        """The lesson that shows it, as its notebook is named: "03_memory"; "" if none does."""
        topic = self.judge.__module__.split(".")[-2]
        name, folder = next((name, folder) for name, folder in topics(ROOT).items() if folder.name == topic)
        shown = re.findall(r"\bjudge\(\[([\d, ]+)\]", (folder / "lesson.py").read_text(encoding="utf-8"))
        return name if any(self.number in map(int, numbers.split(",")) for numbers in shown) else ""


CLAIMS: dict[int, Claim] = {}


def by_cases(holds: Iterable[bool]) -> str:
    """The verdict on a sentence that holds, or does not, in each of the cases tried, or of its parts."""
    found = list(holds)
    return RIGHT if all(found) else PARTLY if any(found) else WRONG


def by_parts(parts: Mapping[str, Sequence[bool]]) -> str:
    """What of a sentence is right if it is partly right, from its words for each part and whether that holds, by case.

    >>> by_parts({"is fast": [True, False], "is small": [True, True]})
    'one part, “is small”, holds in each case; “is fast” in 1 of 2'
    """
    whole = " and ".join(f"“{words}”" for words, holds in parts.items() if all(holds))
    rest = [f"“{words}” in {sum(holds)} of {len(holds)}" for words, holds in parts.items() if not all(holds)]
    return "; ".join([f"{PART}, {whole}, holds in each case", *rest]) if whole else f"{SOME}: {'; '.join(rest)}"


def claim(number: int, source: str, text: str) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Decorate a claim's judge: its number in the table of claims, where it was published, the claim in our words.

    Raises CourseError if another judge has this number. Its own module read again is no other.
    """

    def register(judge: Callable[[], Finding]) -> Callable[[], Finding]:
        found = [CLAIMS[number].judge, judge] if number in CLAIMS else []
        judges = {f"{one.__module__}.{one.__qualname__}" for one in found}
        if len(judges) > 1:
            raise CourseError(f"claim {number} has two judges, {' and '.join(sorted(judges))}: number one anew")
        CLAIMS[number] = Claim(number, text, source, judge)
        return judge

    return register


@dataclass(frozen=True)
class Verdicts:
    """Claims with their findings, shown as a table; `links` adds the lesson that shows each, where one does."""

    rows: tuple[tuple[Claim, Finding], ...]
    links: bool = False

    def __repr__(self) -> str:
        return "\n".join(
            f"{claim.number:>3}  {finding.told.upper()}: {claim.text}\n"
            f"     {as_written(finding.evidence)}. {as_written(finding.why)} [{claim.source}]"
            for claim, finding in self.rows
        )

    def _repr_html_(self) -> str:
        rows = [(claim, finding, claim.lesson if self.links else "") for claim, finding in self.rows]
        return "".join(line.strip() for line in PAGE.render(name=VERDICTS, rows=rows).splitlines())

    def counts(self) -> dict[str, int]:
        """How often each verdict was given, the most frequent first."""
        return dict(Counter(finding.verdict for _, finding in self.rows).most_common())


def judge(numbers: Iterable[int], links: bool = False) -> Verdicts:
    """Compute the verdicts of the claims with these numbers; `links` leads to the lessons that show them.

    Raises CourseError if no claim has such a number.
    """
    numbers = list(numbers)
    unknown = [number for number in numbers if number not in CLAIMS]
    if unknown:
        raise CourseError(f"no claim number {unknown[0]}; there are {min(CLAIMS)} to {max(CLAIMS)}")
    return Verdicts(tuple((CLAIMS[number], CLAIMS[number].judge()) for number in numbers), links)
