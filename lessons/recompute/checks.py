"""The checks of exercise 10, "Recompute instead of store": references, inputs, and the slips people make.

The model of a chain in questions 1 to 3 and 5: every layer keeps its output; a segment keeps the output of the layer
before it; when the backward pass is in a segment, its own outputs are there and the inputs of it and of the segments
before it. Chen et al., "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.recompute.behaviour import recompute_blocks as recompute_blocks

# -- 1. a chain of equal layers --------------------------------------------------------------------------------------


def _chain_peak(layers: int, segments: int) -> int:
    return segments + math.ceil(layers / segments)


chain_peak = Check(
    "chain_peak",
    _chain_peak,
    cases=[(36, 6), (36, 4), (10, 3), (100, 7), (5, 5), (12, 1),
        (3, 2),
    ],
    slips=[
        Slip("a short segment", lambda n, k: k + n // k,
             "You rounded down. Where k does not divide n some segments have one layer more, and the longest counts."),
        Slip("no inputs", lambda n, k: math.ceil(n / k),
             "You counted the longest segment alone. The inputs of all k segments wait for it, too."),
        Slip("all layers and the inputs", lambda n, k: n + k,
             "You kept every layer and the inputs besides. Only one segment at a time has all its outputs."),
        Slip("inputs only", lambda n, k: k, "You counted the inputs alone. The segment in work holds its outputs."),
        Slip("a fraction of a layer", lambda n, k: k + n / k,
             "A segment has a whole number of layers: round n/k up, the longest segment counts."),
        Slip("one input forgotten", lambda n, k: k - 1 + math.ceil(n / k),
             "One unit too few: here the inputs of *all* segments are held, that of the first one too."),
    ],
    takeaway="Inputs grow with the number of segments, the segment in work shrinks with it: k + n/k.",
)  # fmt: skip

# -- 2. the best number of segments ----------------------------------------------------------------------------------


def _best_count(layers: int) -> int:
    return min(range(1, layers + 1), key=lambda k: (_chain_peak(layers, k), k))


best_count = Check(
    "best_count",
    _best_count,
    cases=[(36,), (10,), (17,), (7,), (1,), (100,), (12,), (1000,),
        (3,),
    ],
    slips=[
        Slip("the root rounded", lambda n: max(1, round(math.sqrt(n))),
             "This is √n rounded to the nearest, or the best number for segments of n / k layers, not rounded up. The "
             "longest segment has a whole number of layers, so that fewer segments may be as good."),
        Slip("the root rounded down", lambda n: math.isqrt(n),
             "You rounded √n down. It is as good as any number, but a smaller one may reach the same peak: the "
             "smallest is asked for."),
        Slip("the root rounded up", lambda n: math.ceil(math.sqrt(n)), "You rounded √n up. Try all numbers instead."),
        Slip("the largest of the best", lambda n: min(range(1, n + 1), key=lambda k: (_chain_peak(n, k), -k)),
             "Several numbers reach the lowest peak; you returned the largest. The smallest is asked for."),
        Slip("the peak", lambda n: _chain_peak(n, _best_count(n)),
             "You returned the lowest peak. The number of segments that reaches it is asked for."),
        Slip("two segments at least",
             lambda n: min(range(min(2, n + 1), n + 1), key=lambda k: (_chain_peak(n, k), k)) if n > 1 else 2,
             "A chain of one layer has one segment: try every number from 1 up to `layers`."),
    ],
    takeaway="Near √n the peak is flat: a few segments more or fewer change little.",
)  # fmt: skip

# -- 3. unequal layers ------------------------------------------------------------------------------------------------


def _edges(outputs: Sequence[int], cuts: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise([0, *cuts, len(outputs)]))


def _peak(outputs: Sequence[int], cuts: Sequence[int]) -> int:
    return max(
        sum(outputs[cut - 1] for cut in cuts if cut <= first) + sum(outputs[first:last])
        for first, last in _edges(outputs, cuts)
    )


def _all_inputs(outputs: Sequence[int], cuts: Sequence[int]) -> int:
    largest = max(sum(outputs[first:last]) for first, last in _edges(outputs, cuts))
    return sum(outputs[cut - 1] for cut in cuts) + largest


def _late_input(outputs: Sequence[int], cuts: Sequence[int]) -> int:
    return max(
        sum(outputs[cut] for cut in cuts if cut <= first) + sum(outputs[first:last])
        for first, last in _edges(outputs, cuts)
    )


def _own_input_only(outputs: Sequence[int], cuts: Sequence[int]) -> int:
    edges = _edges(outputs, cuts)
    return max((outputs[first - 1] if first else 0) + sum(outputs[first:last]) for first, last in edges)


cut_peak = Check(
    "cut_peak",
    _peak,
    cases=[
        ([8, 8, 4, 4, 2, 2], [2, 4]),
        ([5, 1, 7, 3], [1, 3]),
        ([64, 32, 16, 8, 4, 2, 1], [3]),
        ([1, 2, 3, 4, 5, 6], [2, 3, 5]),
        ([9, 9, 9], []),
        ([100, 3, 50, 2, 70, 30], [2, 4]),
        ([2, 3, 1, 4, 9, 1, 6, 5], [1, 3, 6]),
        ([3, 1, 2], [1]),
    ],
    slips=[
        Slip("all inputs held to the end", _all_inputs,
             "You held the inputs of all segments beside the largest one. The backward pass goes from the last to the"
             " first: beside a segment wait its own input and those of the segments before it; later ones are gone."),
        Slip("the segment's own first output", _late_input,
             "What enters a segment is the output of the layer before it: `outputs[cut - 1]`."),
        Slip("its own input only", _own_input_only,
             "You held the input of the segment in work alone. Those of the segments before it are still needed."),
        Slip("no inputs", lambda outputs, cuts: max(sum(outputs[a:b]) for a, b in _edges(outputs, cuts)),
             "You took the largest segment alone. The inputs that are kept are missing."),
        Slip("the last segment decides",
             lambda outputs, cuts: sum(outputs[cut - 1] for cut in cuts) + sum(outputs[_edges(outputs, cuts)[-1][0] :]),
             "You looked at the last segment. Where the first layers are the large ones, an earlier segment is "
             "higher."),
        Slip("index -1", lambda outputs, cuts: _peak(outputs, cuts) + outputs[-1],
             "The first segment is entered by the network's own input, which does not count. `outputs[first - 1]` at "
             "`first = 0` is the *last* output."),
        Slip("its own input missing",
             lambda o, cuts: max(sum(o[c - 1] for c in cuts if c < a) + sum(o[a:b]) for a, b in _edges(o, cuts)),
             "What enters the segment in work is missing: you hold the inputs of the segments before it alone."),
        Slip("everything kept", lambda outputs, cuts: sum(outputs),
             "This is what all layers keep together. Only the segment in work has all its outputs; of the others the "
             "inputs are held."),
    ],
    takeaway="A cut where the map is small costs little to keep: cut after a pool, not before.",
)  # fmt: skip

# -- 4. the price -----------------------------------------------------------------------------------------------------

Times = Sequence[float]
Segments = Sequence[tuple[int, int]]


def _again(forward: Times, segments: Segments) -> float:
    return sum(sum(forward[first:last]) for first, last in segments)


def _extra_share(forward: Times, backward: Times, segments: Segments) -> float:
    return _again(forward, segments) / (sum(forward) + sum(backward))


extra_share = Check(
    "extra_share",
    _extra_share,
    cases=[
        ([1, 1, 1, 1], [2, 2, 2, 2], [(0, 4)]),
        ([3, 1, 2, 4], [6, 3, 4, 8], [(0, 2)]),
        ([5, 1, 5, 1, 8], [9, 2, 10, 2, 17], [(1, 2), (3, 4)]),
        ([2, 2], [5, 5], []),
        ([1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, 13], [(0, 2), (2, 4)]),
    ],
    slips=[
        Slip("a share of the forward pass", lambda f, b, s: _again(f, s) / sum(f),
             "You divided by the forward pass. The step is forward and backward: the share of the whole is asked for."),
        Slip("a share of the longer step", lambda f, b, s: _again(f, s) / (sum(f) + sum(b) + _again(f, s)),
             "You divided by the step with recomputation. How much longer it gets is measured by the step as it was."),
        Slip("the last layer included", lambda f, b, s: sum(sum(f[x : y + 1]) for x, y in s) / (sum(f) + sum(b)),
             "Segment (first, last) ends before `last`, as a slice does."),
        Slip("the backward pass again",
             lambda f, b, s: sum(sum(f[x:y]) + sum(b[x:y]) for x, y in s) / (sum(f) + sum(b)),
             "Only the forward pass of a segment runs twice; its backward pass runs once."),
        Slip("how many times as long", lambda f, b, s: 1 + _extra_share(f, b, s),
             "You returned how many times as long the step takes. The extra alone is asked: 0 if nothing runs twice."),
    ],
    takeaway="With a backward pass of twice the forward pass, running everything again is one third more.",
)  # fmt: skip

# -- 5. the cheapest cuts under a limit --------------------------------------------------------------------------------


def _least(
    peak: Callable[[Sequence[int], Sequence[int]], float],
    again: Callable[[Times, Sequence[int]], float],
    fits: Callable[[float, float], bool] = lambda size, limit: size <= limit,
) -> Callable[[Sequence[int], Times, int], float]:
    """The least of what runs again over all cuts that fit."""

    def search(outputs: Sequence[int], seconds: Times, limit: int) -> float:
        places = range(1, len(outputs))
        every = (cuts for count in range(len(outputs)) for cuts in itertools.combinations(places, count))
        return min((again(seconds, cuts) for cuts in every if fits(peak(outputs, cuts), limit)), default=-1)

    return search


def _all_but_the_last(seconds: Times, cuts: Sequence[int]) -> float:
    return sum(seconds[: cuts[-1]]) if cuts else 0


def _of_the_lowest_peak(outputs: Sequence[int], seconds: Times, limit: int) -> float:
    every = [c for k in range(len(outputs)) for c in itertools.combinations(range(1, len(outputs)), k)]
    best = min(every, key=lambda cuts: (_peak(outputs, cuts), _all_but_the_last(seconds, cuts)))
    return _all_but_the_last(seconds, best) if _peak(outputs, best) <= limit else -1


def _first_that_fits(outputs: Sequence[int], seconds: Times, limit: int) -> float:
    every = (cuts for k in range(len(outputs)) for cuts in itertools.combinations(range(1, len(outputs)), k))
    return next((_all_but_the_last(seconds, cuts) for cuts in every if _peak(outputs, cuts) <= limit), -1)


def _one_cut(outputs: Sequence[int], seconds: Times, limit: int) -> float:
    every: list[tuple[int, ...]] = [(), *((cut,) for cut in range(1, len(outputs)))]
    return min((_all_but_the_last(seconds, c) for c in every if _peak(outputs, c) <= limit), default=-1)


least_again = Check(
    "least_again",
    _least(_peak, _all_but_the_last),
    cases=[
        ([8, 8, 4, 4, 2, 2], [1, 5, 2, 6, 3, 7], 20),
        ([8, 8, 4, 4, 2, 2], [1, 5, 2, 6, 3, 7], 28),
        ([8, 8, 4, 4, 2, 2], [1, 5, 2, 6, 3, 7], 16),
        ([4, 4, 4, 4, 4, 4, 4, 4], [1, 1, 1, 1, 1, 1, 1, 1], 16),
        ([4, 4, 4, 4, 4, 4, 4, 4], [2, 1, 3, 1, 2, 1, 1, 4], 20),
        ([9, 1, 9, 1, 9, 1, 9, 1], [4, 1, 4, 1, 4, 1, 4, 1], 13),
        ([9, 1, 9, 1, 9, 1, 9, 1], [4, 1, 4, 1, 4, 1, 4, 1], 21),
        ([5, 6, 7], [1, 1, 1], 4),
        ([11, 5, 1, 7, 11, 4, 11], [1, 4, 2, 2, 1, 6, 4], 30),
        ([4, 1, 4, 2], [1, 2, 3, 4], 8),
        ([6, 3, 6, 8, 8, 3, 8, 7], [3, 6, 3, 9, 7, 4, 8, 4], 24),  # one more, and some would fit
        ([5, 3, 3, 8, 4, 8, 5, 9], [8, 1, 5, 6, 3, 3, 6, 1], 22),  # only with the last cut there is
    ],
    slips=[
        Slip("every segment runs again", _least(_peak, lambda seconds, cuts: sum(seconds) if cuts else 0),
             "You let the last segment run twice. The backward pass begins with it while its outputs are still there."),
        Slip("inputs held to the end", _least(_all_inputs, _all_but_the_last),
             "Your peak holds the inputs of all segments beside the largest. The peak of question 3 must fit: inputs "
             "of later segments are gone."),
        Slip("the lowest peak", _of_the_lowest_peak,
             "You took the cuts with the lowest peak. A higher one that still fits may run less again."),
        Slip("one cut at most", _one_cut,
             "You tried no cut and one cut. Two or more may fit where one does not, or run less again."),
        Slip("the limit itself", _least(_peak, _all_but_the_last, fits=lambda size, limit: size < limit),
             "A peak that equals the limit fits."),
        Slip("the first cuts that fit", _first_that_fits,
             "You took the first cuts that fit. Others that fit, with more cuts or later ones, may run less again: "
             "look at all of them and keep the least."),
    ],
    takeaway="Memory that is there is worth using: recompute until it fits, and no more.",
)  # fmt: skip

check = CheckCell(globals())
