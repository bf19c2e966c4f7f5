"""What the lessons' folders hold of questions: their checks, graded cells, slips and right answers, for general tests.

Several different right answers to every question are in `lessons/TOPIC/answers.py`. It defines RIGHT: question ->
answers, the first one plain; and WRONG: question -> (answer, words it must hear) that learners gave, beyond the slips.
For a question whose answer is no function of numbers (a network to change, say) it also defines UNTOUCHED: question ->
answers with dots left in them; the general tests that call an answer with numbers leave such a question to the tests of
its topic.
"""

import importlib
import re

import pytest

from classroom import ROOT
from classroom.notebooks import topics

TOPICS = [folder.name for folder in topics(ROOT).values() if (folder / "exercise.py").exists()]


def questions_of(module) -> dict:
    values = vars(module).values()
    return {value.question: value for value in values if hasattr(value, "question") and not isinstance(value, type)}


def _gather(room: str, attribute: str | None = None) -> dict:
    found: dict = {}
    for topic in TOPICS:
        module = importlib.import_module(f"lessons.{topic}.{room}")
        own = questions_of(module) if attribute is None else getattr(module, attribute, {})
        assert not found.keys() & own.keys(), f"two questions of one name in {module.__name__}"
        found |= own
    return found


RIGHT = _gather("answers", "RIGHT")
UNTOUCHED = _gather("answers", "UNTOUCHED")
WRONG = _gather("answers", "WRONG")
CHECKS = _gather("checks")
GRADED = _gather("graded")
SLIPS = [(question, slip) for question, check in CHECKS.items() for slip in check.slips]

for _topic in TOPICS:
    _text = (ROOT / "lessons" / _topic / "exercise.py").read_text(encoding="utf-8")
    for _question in re.findall(r'^# %% \[markdown\] question="(\w+)"', _text, re.MULTILINE):
        for _room, _found in {"checks.py": CHECKS, "graded.py": GRADED, "answers.py, in RIGHT": RIGHT}.items():
            if _question not in _found:
                raise pytest.Collector.CollectError(f"question {_question!r}: add it to lessons/{_topic}/{_room}")
