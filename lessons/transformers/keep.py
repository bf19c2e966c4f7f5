"""The steps that the explorer of lesson 13 offers, traced once and kept: `python -m lessons.transformers.keep`.

To be run again when a trace of them changes, which a test notices. It takes half an hour; `keep bfloat16` keeps those
of one format, in a fifth of that.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from course_utils.memory import Tape
from course_utils.surroundings import no_garbage_collection
from lessons.shared.kept_steps import LENGTHS, write
from lessons.shared.language_models import ATTENTION, RECOMPUTE, SHAPES, Options
from lessons.shared.language_steps import FORMATS, KEPT, kept_name, tracer
from lessons.shared.stacked import SHORT
from lessons.transformers.explorer import LOSSES, OFFERED, OPTIMIZERS


def steps(
    models: Iterable[str] = OFFERED, formats: Iterable[str] = FORMATS
) -> Iterator[tuple[str, Mapping[int, Tape], int]]:
    """Each setting of the explorer: its name, its tape at every one of LENGTHS, the positions of its model."""
    for model, numbers, attention, recompute, pieces in product(models, formats, ATTENTION, RECOMPUTE, LOSSES.values()):
        options = Options(attention, recompute=recompute, pieces=pieces)
        found: dict[str, dict[int, Tape]] = {}
        for length in LENGTHS:
            traced = tracer(SHAPES[model], length, options, numbers, OPTIMIZERS[0], SHORT)
            with no_garbage_collection():
                one, low, high = (traced.run(batch) for batch in (1, *traced.batches))
            for optimizer in OPTIMIZERS:
                other = copy.copy(traced)  # the same two passes, and another optimizer behind them
                other.optimizer, other._updates = optimizer, {}
                for single, recordings in ((True, (one, None)), (False, (low, high))):
                    name = kept_name(SHAPES[model], options, numbers, optimizer, single)
                    found.setdefault(name, {})[length] = other._tape(*recordings)
        print(model, attention, recompute, pieces, numbers, file=sys.stderr, flush=True)
        for name, tapes in found.items():
            yield name, tapes, SHAPES[model].positions


if __name__ == "__main__":
    write(KEPT, steps(formats=sys.argv[1:] or FORMATS))
