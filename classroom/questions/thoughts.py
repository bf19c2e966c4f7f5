"""What a learner thought, told by the results alone: a small table beside each lesson, made when the course is built.

For every likely change of a right answer the table holds a digest of its results on all cases of the check, and the
change in words. So the learner's kernel needs neither the solution nor its variants. Digests hide the results, and
compare numbers to six digits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from classroom.questions.core import TOLERANCE, as_list, as_number

FILE = "thoughts.json"


def digest(results: Sequence[Any]) -> str:
    """A short text for a list of results; equal ones have the same."""
    return hashlib.sha256(_text(list(results)).encode()).hexdigest()[:9]


def _text(value: Any) -> str:
    """One text for equal values: numbers to six digits, whole ones to the unit."""
    number, parts = as_number(value), as_list(value)
    if isinstance(number, int):
        return str(number)
    if number is not None:
        whole = math.isfinite(number) and abs(number - round(number)) <= TOLERANCE * abs(number)
        return str(round(number)) if whole else f"{number:.6g}"
    if parts is not None:
        return f"[{', '.join(map(_text, parts))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_text(one)}' for key, one in value.items()))}}}"
    return str(value)


@functools.cache
def table(package: str) -> Mapping[str, Any]:
    """The thoughts of a lesson's questions, by question; nothing where none were kept, or no lesson is named."""
    if not package:
        return {}
    try:
        kept: Mapping[str, Any] = json.loads((files(package) / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ModuleNotFoundError):
        return {}
    return kept


def thought(package: str, question: str, results: Sequence[Any]) -> str:
    """The thought, or the two, that give these results, as a sentence; "" if none is known."""
    kept = table(package).get(question, {})
    try:
        found = kept.get("thoughts", {}).get(digest(results), "")
    except Exception:  # noqa: BLE001 - results are the learner's: one may have no text, or hold itself
        return ""
    either = [" and ".join(kept["words"][int(n)] for n in one.split("+")) for one in found.split("|") if one]
    return f"Every result is what comes out {', or '.join(either)}." if either else ""
