"""Makes the tables that tell learners what they thought: `python -m lessons.shared.keep_thoughts [TOPIC …]`.

Each question whose answer is a function has a solution in its lesson's `exercise.py`. All its likely changes
(`mutations`), alone and two at a time, are run on the cases of its check; `thoughts.json` keeps a digest of what each
gives. Where two different thoughts give the same, all are told; of more than three, none. What a slip of the check
describes is left to the slip.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib
import io
import itertools
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import isrecursive
from typing import Any

from classroom import ROOT
from classroom.notebooks import topics
from classroom.questions.core import equal, parameters
from classroom.questions.functions import THOUGHTS, Check, digest
from lessons.shared import mutations
from lessons.shared.mutations import PAIR, Mutation

SECONDS = 0.5  # of the processor's time, whatever else runs: a mutant may loop for ever
TRIED, MOST_PAIRS = 3000, 500  # of a question: pairs of thoughts that are tried, and kept
LONGEST = 1000  # entries of a result: no right one is as long
MOST = 3  # thoughts that are told beside each other
OFTEN = (
    "without",
    "rounded",
    "once",
    "exchanged",
    "not squared",
    "whatever",
    "the sum",
    "always",
    "in place of `",
    "with twice",
)  # in words told in pairs


@dataclass(frozen=True)
class Solved:
    """A question with its solution's text, what its notebook gives, and what its own text quotes."""

    check: Check
    source: str
    given: Mapping[str, Any]
    quoted: Sequence[str]
    terms: Mapping[str, str]

    @property
    def made_of(self) -> str:
        """A short text that changes with whatever the thoughts are made of."""
        slips = [digest([tried.value for tried in slip]) for slip in self.check.slipped]
        own = (self.source, self.quoted, sorted(self.terms.items()), self.check.cases, *slips)
        rules = Path(mutations.__file__).read_text(encoding="utf-8")
        return hashlib.sha256(repr((*own, rules)).encode()).hexdigest()[:12]


def solved(topic: str) -> dict[str, Solved]:
    """The questions of a lesson that are answered by functions of numbers."""
    text = (ROOT / "lessons" / topic / "exercise.py").read_text(encoding="utf-8")
    checks = vars(importlib.import_module(f"lessons.{topic}.checks"))
    terms = getattr(importlib.import_module(f"lessons.{topic}.answers"), "TERMS", {})
    given: dict[str, Any] = {}
    found, quoted = {}, {}
    for cell in re.split(r"(?m)^# %%", text):
        marker, _, body = cell.partition("\n")
        key = re.search(r'(question|answer)="(\w+)"', marker)
        if key and key[1] == "question":
            quoted[key[2]] = re.findall(r"\b[a-z_]\w+\b", " ".join(re.findall(r"`([^`]+)`", body)))
        elif not marker.strip():
            with contextlib.redirect_stdout(io.StringIO()):
                exec(body, given)
        elif key and isinstance(check := checks.get(key[2]), Check):
            source = re.sub(r"(?m)^ *# (BEGIN|END) SOLUTION\n", "", body).strip() + "\n"
            names = [one for one in dict.fromkeys(quoted[key[2]]) if re.search(rf"\b{one}\b", source)]
            found[key[2]] = Solved(check, source, given, names, terms.get(key[2], {}))
    return found


def as_function(source: str, name: str, given: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of this name that a text defines, beside what its notebook gives; each call ends in SECONDS."""
    names = {"math": importlib.import_module("math"), **given}
    exec(compile(source, "mutant", "exec"), names)
    function: Callable[..., Any] = names[name]

    def limited(*arguments: Any) -> Any:
        def late(number: int, frame: object) -> None:
            raise TimeoutError("it ran for too long")

        before = signal.signal(signal.SIGVTALRM, late)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            return function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    return limited


def results_of(one: Solved, text: str) -> list[Any] | None:
    """What a changed solution gives for all cases; None where it gives nothing for one of them."""
    try:
        function = as_function(text, one.check.question, one.given)
    except Exception:  # noqa: BLE001 - whatever a mutant raises, it gives nothing
        return None
    results = []
    for case in one.check.cases:
        try:
            value = function(*copy.deepcopy(case))
        except Exception:  # noqa: BLE001
            return None
        if value is None or (isinstance(value, list) and len(value) > LONGEST) or isrecursive(value):
            return None
        results.append(value)
    return results


def thoughts(one: Solved) -> dict[str, list[tuple[str, ...]]]:
    """By the digest of results: the thoughts that give them, the likeliest alone, each of one change or two."""
    names = list(parameters(one.check.reference))
    given = {name: [case[i] for case in one.check.cases if i < len(case)] for i, name in enumerate(names)}
    values = {name: some for name, some in given.items() if some}

    def changes(source: str, wanted: Callable[[str], bool] = bool) -> list[Mutation]:
        found = mutations.mutations(source, one.quoted, one.terms, values, wanted)
        return sorted(found, key=lambda each: each.kind)

    def noted(made: Iterable[tuple[str, tuple[str, ...], int]]) -> dict[str, dict[tuple[str, ...], int]]:
        found: dict[str, dict[tuple[str, ...], int]] = {}
        seen: set[str] = set()
        for text, words, kind in made:
            results = None if text in seen else results_of(one, text)
            seen.add(text)
            if results is not None and not equal(results, one.check.truth):
                found.setdefault(digest(results), {}).setdefault(tuple(sorted(words)), kind)
        return found

    alone = noted((each.source, (each.words,), each.kind) for each in changes(one.source))
    likeliest = {key: [w for w, kind in made.items() if kind == min(made.values())] for key, made in alone.items()}
    sure = {made[0][0] for made in likeliest.values() if len(made) == 1}
    sure = {words for words in sure if any(each in words for each in OFTEN) and "in one place" not in words}
    pairs = (
        (second.source, (each.words, second.words), PAIR)
        for each in changes(one.source, sure.__contains__)
        for second in changes(each.source, (sure - {each.words}).__contains__)
    )
    both = noted(itertools.islice(pairs, TRIED))
    found = {key: list(made) for key, made in both.items() if key not in alone}
    told = {digest([tried.value for tried in slip]) for slip in one.check.slipped}
    few = {key: made for key, made in found.items() if len(made) <= 2}
    all_of_them = {**likeliest, **dict(itertools.islice(few.items(), MOST_PAIRS))}
    return {key: made for key, made in all_of_them.items() if key not in told and len(made) <= MOST}


def kept(one: Solved) -> dict[str, Any]:
    """What the table holds of a question."""
    words: dict[str, int] = {}
    lines = {
        key: "|".join("+".join(str(words.setdefault(said, len(words))) for said in each) for each in made)
        for key, made in thoughts(one).items()
    }
    return {"made_of": one.made_of, "words": list(words), "thoughts": lines}


def write(topic: str) -> Iterator[str]:
    """Write a lesson's table; yields a line for each question."""
    path = ROOT / "lessons" / topic / THOUGHTS
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    now = {}
    for question, one in solved(topic).items():
        old = before.get(question, {})
        now[question] = old if old.get("made_of") == one.made_of else kept(one)
        yield f"{topic} {question}: {len(now[question]['thoughts'])} thoughts"
    path.write_text(json.dumps(now, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    every = [folder.name for folder in topics(ROOT).values() if (folder / "exercise.py").exists()]
    for name in sys.argv[1:] or every:
        for line in write(name):
            print(line, flush=True)
