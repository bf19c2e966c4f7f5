"""Right answers to exercise 10, written in different ways."""

import itertools
import math

import numpy as np
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from lessons.shared.rewrites import Tower


def peak_by_list(layers, segments):
    lengths = [layers // segments + (i < layers % segments) for i in range(segments)]
    return max(lengths) + segments


def count_by_loop(layers):
    best = 1
    for k in range(1, layers + 1):
        if k - (-layers // k) < best - (-layers // best):
            best = k
    return best


def cut_peak_by_walking(outputs, cuts):
    peak = held = work = 0
    for i, size in enumerate(outputs):
        if i in cuts:
            held, work = held + outputs[i - 1], 0
        work += size
        peak = max(peak, held + work)
    return peak


def cut_peak_by_numpy(outputs, cuts):
    edges = [0, *cuts, len(outputs)]
    sizes = np.array(outputs)
    inputs = np.cumsum([0, *sizes[np.array(cuts, dtype=int) - 1]]) if len(cuts) else np.array([0])
    return max(int(inputs[s] + sizes[a:b].sum()) for s, (a, b) in enumerate(itertools.pairwise(edges)))


def least_by_subsets(outputs, seconds, limit):
    best = -1
    for mask in range(2 ** (len(outputs) - 1)):
        cuts = [i + 1 for i in range(len(outputs) - 1) if mask >> i & 1]
        if cut_peak_by_walking(outputs, cuts) <= limit:
            spent = sum(seconds[: cuts[-1]]) if cuts else 0
            best = spent if best < 0 else min(best, spent)
    return best


def least_by_growing(outputs, seconds, limit):
    n = len(outputs)
    held = {0: 0}  # the least that is held where a segment begins
    for j in range(1, n):
        fits = [held[i] + outputs[j - 1] for i in held if held[i] + sum(outputs[i:j]) <= limit]
        if fits:
            held[j] = min(fits)
    ends = [sum(seconds[:i]) for i in held if held[i] + sum(outputs[i:]) <= limit]
    return min(ends, default=-1)


class EachBlock(Tower):
    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


class Pairs(Tower):
    def run(self, x, first, last):
        for block in self.blocks[first:last]:
            x = block(x)
        return x

    def forward(self, images):
        x = self.stem(images)
        for first in range(0, len(self.blocks), 2):
            x = checkpoint(self.run, x, first, first + 2, use_reentrant=False)
        return self.head(x)


class Sequentially(Tower):
    def forward(self, images):
        x = checkpoint_sequential(list(self.blocks), 4, self.stem(images), use_reentrant=False)
        return self.head(x)


RIGHT = {
    "chain_peak": [lambda n, k: k + math.ceil(n / k), lambda n, k: k - (-n // k), peak_by_list],
    "best_count": [
        lambda n: min(range(1, n + 1), key=lambda k: k + math.ceil(n / k)),
        count_by_loop,
        lambda n: int(np.argmin([k + -(-n // k) for k in range(1, n + 1)])) + 1,
    ],
    "cut_peak": [cut_peak_by_walking, cut_peak_by_numpy],
    "extra_share": [
        lambda f, b, s: sum(sum(f[x:y]) for x, y in s) / (sum(f) + sum(b)),
        lambda f, b, s: float(sum(f[i] for x, y in s for i in range(x, y)) / np.sum([*f, *b])),
    ],
    "least_again": [least_by_subsets, least_by_growing],
    "recompute_blocks": [EachBlock, Pairs, Sequentially],
}


class DotsInside(Tower):
    def forward(self, images):
        return ...


UNTOUCHED = {"recompute_blocks": [..., DotsInside]}


def wrapped_inputs(outputs, cuts):
    peak = held = 0
    for first, last in itertools.pairwise([0, *cuts, len(outputs)]):
        held += outputs[first - 1]
        peak = max(peak, held + sum(outputs[first:last]))
    return peak


def first_cuts_that_fit(outputs, seconds, limit):
    for count in range(len(outputs)):
        for cuts in itertools.combinations(range(1, len(outputs)), count):
            if RIGHT["cut_peak"][0](outputs, list(cuts)) <= limit:
                return sum(seconds[: cuts[-1]]) if cuts else 0
    return -1


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "chain_peak": [(lambda n, k: k - 1 + math.ceil(n / k), "One unit too few")],
    "best_count": [
        (lambda n: min(range(2, n + 1), key=lambda k: (k + math.ceil(n / k), k), default=2), "one layer"),
        (lambda n: min(range(1, n), key=lambda k: k + math.ceil(n / k)), "ValueError"),
    ],
    "cut_peak": [
        (wrapped_inputs, "`outputs[first - 1]` at `first = 0`"),
        (
            lambda o, cuts: max(
                sum(o[cut - 1] for cut in cuts if cut < a) + sum(o[a:b])
                for a, b in itertools.pairwise([0, *cuts, len(o)])
            ),
            "What enters the segment in work is missing",
        ),
    ],
    "least_again": [(first_cuts_that_fit, "the first cuts that fit")],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "chain_peak": {
        "layers / segments": "the length of a segment",
        "math.ceil(layers / segments)": "the longest segment",
        "left of segments + math.ceil(layers / segments)": "the inputs of the segments",
    },
    "best_count": {
        "k": "the number of segments",
        "left of k + math.ceil(layers / k)": "the inputs of the segments",
        "layers / k": "the length of a segment",
        "math.ceil(layers / k)": "the longest segment",
    },
    "cut_peak": {
        "held": "the inputs that are kept",
        "outputs[first - 1]": "the input of a segment",
        "outputs[first:last]": "the outputs of a segment",
        "sum(outputs[first:last])": "the outputs of a segment",
        "first": "the first of a segment",
        "peak": "the peak so far",
    },
    "extra_share": {
        "again": "what runs again",
        "sum(forward)": "the forward pass",
        "sum(backward)": "the backward pass",
        "forward[first:last]": "the segment's part",
        "sum(forward[first:last])": "the layers of a segment",
    },
    "least_again": {
        "highest": "the peak",
        "held": "the inputs that are kept",
        "outputs[first - 1]": "the input of a segment",
        "sum(outputs[first:last])": "the outputs of a segment",
        "outputs[first:last]": "the outputs of a segment",
        "again": "what runs again",
        "least": "the least so far",
        "seconds[:cuts[-1]]": "the seconds of the segments that run again",
        "cuts": "the cuts",
        "count": "the number of cuts",
        "sum(seconds[:cuts[-1]])": "the seconds of the segments that run again",
        "peak(cuts)": "the peak",
    },
}
