"""The steps that the explorer of lesson 14 offers, traced once and kept: `python -m lessons.one_card.keep`.

To be run again when a trace of them changes, which a test notices. `keep bfloat16` keeps those of
one format.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product

from course_utils.memory import Tape
from course_utils.units import CourseError
from lessons.one_card.explorer import MODELS, TRAINED
from lessons.one_card.fine_tuning import DTYPES, OPTIMIZERS, STEPS, Method, kept_name, short_tape
from lessons.shared.kept_steps import LENGTHS, write
from lessons.shared.language_models import SHAPES


def methods() -> Iterator[Method]:
    """Those that the explorer's controls can choose."""
    for (trained, base), optimizer, within in product(TRAINED.values(), OPTIMIZERS, (False, True)):
        with suppress(CourseError):  # not every optimizer can step within the backward pass
            yield Method(trained, base, optimizer, within)


def steps(
    models: Iterable[str] = MODELS, formats: Iterable[str] = tuple(DTYPES)
) -> Iterator[tuple[str, Mapping[int, Tape], int]]:
    """Each setting of the explorer: its name, its tape at every one of LENGTHS, the positions of its model."""
    for model, recompute, dtype in product(models, (True, False), formats):
        for method, single in product(methods(), (True, False)):
            name = kept_name(model, method, single, recompute, dtype)
            shape = SHAPES[model]
            tapes = {n: short_tape(shape, method, n, 1 if single else 2, recompute, dtype) for n in LENGTHS}
            yield name, tapes, shape.positions
        print(model, recompute, dtype, file=sys.stderr, flush=True)


if __name__ == "__main__":
    write(STEPS, steps(formats=sys.argv[1:] or tuple(DTYPES)))
