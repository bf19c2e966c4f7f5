"""Right answers to exercise 12, written in different ways."""

import itertools
import math

import numpy as np

from course_utils.units import CourseError
from lessons.capstone.plan import Plan, Problem
from lessons.capstone.search import combinations, fastest


def bytes_by_terms(batch, parts, half, context_bytes, fixed_bytes, accumulated_bytes, bytes_per_sample, copies_bytes):
    total = context_bytes + fixed_bytes
    if parts != 1:
        total += accumulated_bytes
    if half:
        return total + copies_bytes + 0.5 * bytes_per_sample * batch / parts
    return total + bytes_per_sample * (batch / parts)


def bytes_in_numpy(batch, parts, half, *sizes):
    context, fixed, accumulated, each, copies = np.array(sizes, dtype=np.float64)
    weights = [1, 1, parts > 1, batch / parts / (2 if half else 1), half]
    return np.dot(weights, [context, fixed, accumulated, each, copies])


def seconds_by_loop(parts, forward, backward, copy_out, copy_back, update):
    total = update
    for _ in range(parts):
        total += forward if forward > copy_out else copy_out
        total += sorted([backward, copy_back])[1]
    return total


def sweep(plans):
    front, least = [], math.inf
    for name in sorted(plans, key=lambda name: plans[name][::-1]):
        if plans[name][0] < least:
            front.append(name)
            least = plans[name][0]
    return front


def pairwise(plans):
    beaten = set()
    for (one, (size, time)), (_, (its_size, its_time)) in itertools.permutations(plans.items(), 2):
        if its_size <= size and its_time <= time and (its_size < size or its_time < time):
            beaten.add(one)
    return tuple(sorted(plans.keys() - beaten, key=lambda name: plans[name][1]))


def least_by_sorting(plans, room):
    for name, (needs, _, same) in sorted(plans.items(), key=lambda item: item[1][1]):
        if same and needs <= room:
            return name
    return None


def search(problem):
    micros = [n for n in range(1, problem.batch + 1) if problem.batch % n == 0]
    found = combinations(problem, micros, segments=(1, 2, 4))
    best = fastest(found)
    return None if best is None else best.plan


def search_by_hand(problem):
    best = None
    divisors = [parts for parts in range(1, problem.batch + 1) if problem.batch % parts == 0]
    for parts, precision, offload, segments in itertools.product(
        divisors, ("float32", "float16"), ("none", "conv", "windowed", "all"), (4, 2, 1)
    ):
        try:
            plan = Plan(problem.batch, problem.batch // parts, precision, offload, segments=segments)
            found = problem.evaluate(plan)
        except CourseError:
            continue
        if found.feasible and (best is None or found.seconds < best.seconds):
            best = found
    return best.plan if best else None


def recomputed():
    problem = Problem("ResNet-50", 256, "Titan X (Maxwell)", "PCIe 3.0 x16")
    cut = problem.chain.cheapest(256, 0.92 * problem.room_bytes, problem.device)
    return problem, Plan(256, segments=cut)


RIGHT = {
    "plan_bytes": [bytes_by_terms, bytes_in_numpy],
    "update_seconds": [
        lambda parts, f, b, out, back, update: parts * max(f, out) + parts * max(b, back) + update,
        seconds_by_loop,
        lambda n, f, b, out, back, u: n * (f + max(0, out - f)) + n * (b + max(0, back - b)) + u,
    ],
    "unbeaten": [sweep, pairwise],
    "least_time": [
        lambda plans, room: min(
            (n for n, p in plans.items() if p[2] and p[0] <= room), key=lambda n: plans[n][1], default=None
        ),
        least_by_sorting,
    ],
    "your_plan": [
        lambda: (Problem("VGG-16", 192, "T4"), Plan(192, micro_batch=96)),
        lambda: (Problem("VGG-16", 192, "T4"), Plan(192, offload="windowed", window=2)),
        recomputed,
    ],
    "find_plan": [search, search_by_hand],
}

UNTOUCHED = {
    "your_plan": [..., lambda: ..., lambda: (..., ...), lambda: (Problem("VGG-16", 192, "T4"), ...)],
    "find_plan": [..., lambda problem: ..., lambda problem: ... * problem.batch],
}


def pareto_without_ties(plans):
    front, least = [], float("inf")
    for name, (size, _) in sorted(plans.items(), key=lambda item: item[1][1]):
        if size < least:
            front.append(name)
            least = size
    return front


def deliberate_none(plans, room):
    good = [name for name, (size, _, same) in plans.items() if same and size < room - 1]
    return min(good, key=lambda name: plans[name][1]) if len(good) > 1 else None


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "your_plan": [
        (lambda: Plan(192, 64), "must return two things"),
        (lambda: (Problem("VGG-16", 192, "T4"), 64), "must be a plan"),
        (lambda: (Problem("ResNet-50", 512, "T4"), Plan(512, 64)), "batch norms"),
    ],
    "unbeaten": [(pareto_without_ties, "equally long")],
    "least_time": [(deliberate_none, "Here it ends without a `return`, or returns `None` itself")],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "plan_bytes": {
        "maps": "the maps",
        "gradients": "the accumulated gradients",
        "batch / parts": "the size of a micro-batch",
        "maps / 2": "the halved maps",
        "left of batch / parts": "`batch`",
    },
    "update_seconds": {
        "max(forward, copy_out)": "the forward pass",
        "max(backward, copy_back)": "the backward pass",
    },
    "unbeaten": {
        "size": "the bytes",
        "least": "the least bytes so far",
    },
    "least_time": {
        "same": "whether it trains the same",
        "size": "the bytes",
        "time": "the seconds",
        "seconds": "the plans that fit",
    },
}
