"""Several different right answers to every question of every exercise, one module a topic.

A module defines RIGHT: question -> answers, the first one plain. For a question whose answer is no function of numbers
(a network to change, say) it also defines UNTOUCHED: question -> answers with dots left in them; the general tests that
call an answer with numbers leave such a question to the tests of its topic.
"""

import importlib
import pkgutil

from course_utils import checks
from course_utils.grading import graded

TOPICS = [module.name for module in pkgutil.iter_modules(__path__)]


def questions_of(module) -> dict:
    values = vars(module).values()
    return {value.question: value for value in values if hasattr(value, "question") and not isinstance(value, type)}


def topics_of(package) -> set[str]:
    """The modules of a package that hold questions; the rest is what topics share."""
    names = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return {name for name in names if questions_of(importlib.import_module(f"{package.__name__}.{name}"))}


def _gather(package: str, attribute: str | None = None) -> dict:
    found: dict = {}
    for topic in TOPICS:
        module = importlib.import_module(f"{package}.{topic}")
        own = questions_of(module) if attribute is None else getattr(module, attribute, {})
        assert not found.keys() & own.keys(), f"two questions of one name in {package}.{topic}"
        found |= own
    return found


RIGHT = _gather(__name__, "RIGHT")
UNTOUCHED = _gather(__name__, "UNTOUCHED")
CHECKS = _gather(checks.__name__)
GRADED = _gather(graded.__name__)
SLIPS = [(question, slip) for question, check in CHECKS.items() for slip in check.slips]
