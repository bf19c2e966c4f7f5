"""Wrong answers that learners gave, beyond the slips of the catalogues: question -> (answer, words it must hear).

Each is refused by the check, with these words, and earns no point whatever the seed. An answer that is marked None
hears the general message, which shows the smallest input that it gets wrong.
"""

import itertools
import math

import torch
from right_answers import RIGHT


def best_step_that_pays(batches, milliseconds, share):
    each = [time / batch for batch, time in zip(batches, milliseconds, strict=True)]
    for i in range(len(each) - 1, 0, -1):
        if 1 - each[i] / each[i - 1] >= share:
            return batches[i]
    return batches[0]


def searched(most, start=1):
    """The crossover by search up to a batch."""

    def search(cf, cs, gf, gs):
        return next((n for n in range(start, most + 1) if gf + gs * n < cf + cs * n), 0)

    return search


def cards_by_agreement(cards, needed, bfloat16):
    good = [
        card
        for card in cards
        if card["memory_gib"] / card["dies"] >= needed and card["bfloat16"] == bfloat16 and card["launch_usd"]
    ]
    return [card["name"] for card in sorted(good, key=lambda card: card["launch_usd"])]


def largest_of_growing(events, limit):
    return max(0, min((limit - fixed) // each for fixed, each in events if each))


def largest_in_range(events, limit):
    fitting = [n for n in range(1, 1001) if all(fixed + each * n <= limit for fixed, each in events)]
    return max(fitting, default=0)


def falls_off_the_loop(wanted, fixed, accumulated, per_sample, limit):  # noqa: RET503 - this is the mistake
    for parts in range(1, wanted + 1):
        extra = accumulated if parts > 1 else 0
        if wanted % parts == 0 and fixed + extra + per_sample * wanted // parts <= limit:
            return wanted // parts


def by_throughput(times, tolerance):
    rates = {batch: batch / seconds for batch, seconds in times.items()}
    return min(batch for batch in rates if rates[batch] >= (1 - tolerance) * max(rates.values()))


def wrapped_streams(forward, backward, copies):
    seconds = sum(map(max, forward, copies)) + copies[-1]
    return seconds + sum(max(backward[i], copies[i - 1]) for i in range(len(backward)))


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


def plus_one(question):
    return lambda *arguments: RIGHT[question][0](*arguments) + 1


WRONG = {
    "operator_seconds": [
        (lambda f, t, p, b, launch: f / p if f / p > t / b else t / b, "launch is missing"),
        (lambda f, t, p, b, launch: min(p, f / t * b), "operations a second"),
        (lambda f, t, p, b, launch: launch * 1e-6 + max(f / p, t / b), "in seconds already"),
        (lambda f, t, p, b, launch: (launch + max(f / p, t / b)) * 1e3, "1000 times too large"),
        (lambda f, t, p, b, launch: launch + max(f / p, t / b) + 1e-7, "too large"),
    ],
    "crossover_batch": [
        (lambda cf, cs, gf, gs: 1 if gf < cf else RIGHT["crossover_batch"][1](cf, cs, gf, gs), "at batch 1"),
        (lambda cf, cs, gf, gs: 0 if gf < cf and gs < cs else RIGHT["crossover_batch"][1](cf, cs, gf, gs), None),
        (searched(10_000), "search ends at 10,000"),
        (searched(1_000), None),
        (plus_one("crossover_batch"), "Every number you return is 1 too large"),
    ],
    "speed_up": [(lambda c, g, n, s, r: c / (g + n * s / r), "10**9 bytes a second")],
    "saturates_at": [
        (best_step_that_pays, "Stop before the first that does not"),
        (
            lambda b, t, share: next(
                (n for n, x, m, y in zip(b, t, b[1:], t[1:], strict=False) if 1 - y / m / (x / n) <= share), b[-1]
            ),
            "exactly the share",
        ),
    ],
    "largest_parameters": [
        (lambda card, buffer, optimizer: max(0, (card - buffer) * 1024**2 // 4 // 2), "8 bytes a parameter"),
        (lambda *_: 501_918_378, "returned 501,918,378, expected "),
        (lambda *a: RIGHT["largest_parameters"][0](*a) + 1, "1 too large"),
    ],
    "cards_that_hold": [(cards_by_agreement, "cards that have it are missing"), (lambda *_: [], None)],
    "frozen_step_bytes": [
        (lambda layers, values, n, _: RIGHT["frozen_step_bytes"][0](layers, values, n, "sgd"), "state is missing"),
    ],
    "largest_batch": [
        (largest_of_growing, "need nothing for a sample"),
        (largest_in_range, "search ends at 1,000"),
        (lambda events, limit: limit // max(fixed + each for fixed, each in events), "peak at batch 1"),
    ],
    "output_side": [
        (lambda side, kernel, stride, padding: (side + 2 * padding) // stride + 1, "own width is missing"),
        (lambda side, kernel, stride, padding: round((side + 2 * padding - kernel) / stride) + 1, "to the nearest"),
        (plus_one("output_side"), "Every number you return is 1 too large"),
    ],
    "after_squeeze": [(lambda side, c, s: (4 * side**2 * s, c * s + s), "You counted bytes")],
    "break_even": [(plus_one("break_even"), "You rounded up")],  # which it does: the fraction is never whole there
    "pool_keeps": [
        (
            lambda kind, n, c, side, k, s, v: n * c * ((side - k) // s + 1) ** 2 * (v + 8) if kind == "max" else 0,
            "puts out a map",
        ),
        (
            lambda kind, n, c, side, k, s, v: n * c * ((side - k) // s) ** 2 * (v + 8 * (kind == "max")),
            "One place too few",
        ),
    ],
    "micro_batch": [(falls_off_the_loop, "Here it ends without a `return`"), (plus_one("micro_batch"), "1 too large")],
    "loss_weights": [
        (lambda sizes: [size * len(sizes) / sum(sizes) for size in sizes], "mean size"),
        (lambda sizes: [size / len(sizes) for size in sizes], "how many *samples*"),
        (lambda sizes: [sum(sizes) / size for size in sizes], "Upside down"),
        (lambda sizes: torch.tensor(sizes) / max(sizes), None),  # float32, but for this the largest one's slip
        (lambda sizes: [100 * size / sum(sizes) for size in sizes], "100 times too large"),
    ],
    "saturated_from": [(by_throughput, "off the throughput")],
    "recipe_bytes": [
        (
            lambda p, optimizer, recipe: (
                RIGHT["recipe_bytes"][0](p, optimizer, recipe) - p * (2 if recipe == "pure" else 4)
            ),
            "gradients are missing",
        )
    ],
    "share_left": [(lambda m, p: 100 * RIGHT["share_left"][0](m, p), "percent")],
    "smallest_update": [
        (
            lambda weight, bits, lowest: (
                2.0 ** ((max(int(math.log2(abs(weight))), lowest) if weight else lowest) - bits - 1)
            ),
            "cuts towards 0",
        )
    ],
    "next_scales": [
        (lambda flags, scale, interval: [scale, *RIGHT["next_scales"][0](flags, scale, interval)], None),
        (lambda flags, scale, interval: RIGHT["next_scales"][0](flags, scale, interval)[:-1], "one entry too few"),
        (lambda flags, *rest: RIGHT["next_scales"][0]([*flags, False], *rest), "one entry too many"),
    ],
    "two_streams": [
        (wrapped_streams, "`copies[i - 1]` at `i = 0`"),
        (
            lambda f, b, c: sum(map(max, f, c)) + c[-1] + sum(map(max, b, c)),
            "own map comes back beside it",
        ),
    ],
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
    "step_seconds": [
        (lambda buckets, _, update, cards, rate: RIGHT["step_seconds"][0](buckets, 0, update, cards, rate), "backward"),
    ],
    "shard_factors": [
        (lambda sizes, way: RIGHT["shard_factors"][0](sizes, "sum" if way == "mean" else "mean"), "exchanged"),
    ],
    "kv_cache": [
        (lambda n, h, kv, d, t, b: 4 * n * (h // kv) * d * t * b, None),
        (lambda n, h, kv, d, t, b: 3 * n * kv * d * t * b, "1.333 times too small"),
    ],
    "lora_bytes": [(lambda widths, rank: rank * sum(map(sum, widths)), "2 times too small")],
    "fixed_bytes": [
        (lambda n, a, bits, s: 8 * RIGHT["fixed_bytes"][0](n, a, bits, s), "are bits"),
        (lambda n, a, bits, s: RIGHT["fixed_bytes"][0](n, a, 16, s) if a else 8 * n, None),
    ],
    "longest_context": [
        (plus_one("longest_context"), "1 too large"),
        (lambda c, taken, t, b: (c - sum(taken)) // (t * b) if c > sum(taken) else None, "`None`"),
    ],
    "tokens_per_second": [
        (lambda w, c, b, f, bw, p: RIGHT["tokens_per_second"][0](w, c, b, f, bw, p) / 1000, "1000 times too small"),
        (lambda w, c, b, f, bw, p: b * max(bw / (w + b * c), p / (b * f)), None),
    ],
    "unbeaten": [(pareto_without_ties, "equally long")],
    "least_time": [(deliberate_none, "Here it ends without a `return`, or returns `None` itself")],
}
