"""How many cases a law is tried on: enough to meet each of its parts in `make test`, all in `make test-thorough`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

THOROUGH = os.environ.get("COURSE_TESTS") == "thorough"


def share(count: int) -> int:
    """So many examples or seeds, or a third of them."""
    return count if THOROUGH else -(-count // 3)


def by_turns(cases: Sequence[Any], turn: int) -> Sequence[Any]:
    """All cases, or every third, beginning with that of the turn: three turns try all."""
    return cases if THOROUGH else cases[turn % 3 :: 3]


def every_pair(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations of one value from each choice, or so few that every two values still meet."""
    values = [list(choice) for choice in choices]
    places = list(itertools.product(*(range(len(choice)) for choice in values)))
    met = {one: set(itertools.combinations(enumerate(one), 2)) for one in places}
    missing, chosen = set[Any]().union(*met.values()), list[tuple[int, ...]]()
    while missing:
        chosen.append(max(places, key=lambda one: len(met[one] & missing)))
        missing -= met[chosen[-1]]
    return [tuple(map(list.__getitem__, values, one)) for one in (places if THOROUGH else sorted(chosen))]
