"""The checks of exercise 07, "Batch size": references, inputs, and the slips people make.

Memory in bytes, time in seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.batch_size.behaviour import accumulate as accumulate
from lessons.shared.checks import BytesCheck

Measured = Sequence[tuple[int, int]]

# -- 1. bytes at a batch nobody measured -----------------------------------------------------------------------------


def _line(batch: int, one: tuple[int, int], other: tuple[int, int]) -> float:
    """What the line through two measurements gives at a batch, whole where it is."""
    (n, low), (m, high) = one, other
    rise = (high - low) * (batch - n)
    return low + (rise // (m - n) if rise % (m - n) == 0 else rise / (m - n))


def _bytes_at(batch: int, measured: Measured) -> float:
    one, other = sorted(measured)[-2:]
    return _line(batch, one, other)


def _fitted(batch: int, measured: Measured) -> float:
    xs, ys = [n for n, _ in measured], [size for _, size in measured]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in measured) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y + slope * (batch - mean_x)


def _slope(measured: Measured) -> float:
    (n, low), (m, high) = sorted(measured)[-2:]
    return (high - low) / (m - n)


bytes_at = BytesCheck(
    "bytes_at",
    _bytes_at,
    cases=[
        (128, [(32, 4_012_000_000), (64, 6_361_000_000)]),
        (256, [(2, 1_660_290_528), (16, 2_840_000_000), (64, 7_016_000_000)]),  # the update rules at batch 2
        (200, [(64, 940_000_000), (16, 780_000_000), (128, 1_180_000_000)]),  # not in order
        (48, [(64, 6_361_000_000), (32, 4_012_000_000), (4, 2_100_000_000)]),
        (500, [(100, 700_000_000), (1, 640_000_000), (10, 641_000_000), (50, 660_000_000)]),
        (4, [(1, 30), (2, 40), (3, 60)]),
        (6, [(2, 100), (4, 105)]),  # a slope that is no whole number
    ],
    slips=[
        Slip("in proportion", lambda batch, measured: max(measured)[1] * batch / max(measured)[0],
             "You scaled with the batch, as if everything grew with it. Parameters, their gradients and the "
             "optimizer's state stay: two measurements give a slope *and* what is left at batch 0."),
        Slip("fixed part forgotten", lambda batch, measured: _slope(measured) * batch,
             "This is what grows with the batch. What does not is missing: subtract the slope's share from a "
             "measurement to find it."),
        Slip("first two in the list", lambda batch, measured: _line(batch, measured[0], measured[1]),
             "You took the first two measurements of the list. Sort them: the two largest batches count, because at a"
             " small one another moment of the step may be the peak."),
        Slip("the two smallest batches", lambda batch, measured: _line(batch, *sorted(measured)[:2]),
             "You drew the line through the two smallest batches. There the worst moment may be another one, the "
             "update for one; take the two largest."),
        Slip("smallest and largest batch", lambda batch, measured: _line(batch, min(measured), max(measured)),
             "You drew the line through the smallest and the largest batch. Where the peak moves to another moment "
             "between them, no single line joins the two: take the two largest."),
        Slip("a line through all", _fitted,
             "You fitted one line to all measurements. Memory is exact, not noisy: a point off the line belongs to "
             "another moment of the step, and a fit mixes the two. Take the two largest batches."),
        Slip("the largest measured, and the batch on top",
             lambda batch, measured: max(measured)[1] + _slope(measured) * batch,
             "You added the whole batch to a measurement that has a batch in it already. Add the difference of the "
             "two."),
    ],
    takeaway="Two runs at large batches are worth more than ten at small ones, where another moment may be the peak.",
)  # fmt: skip

# -- 2. what halving saves -------------------------------------------------------------------------------------------


def _saved_by_halving(fixed_bytes: float, bytes_per_sample: float, batch: int) -> float:
    return (bytes_per_sample * batch / 2) / (fixed_bytes + bytes_per_sample * batch)


saved_by_halving = Check(
    "saved_by_halving",
    _saved_by_halving,
    cases=[
        (1_106_860_352, 86_640_544, 128),  # VGG-16 network-wide: 45 %
        (200, 10, 20),
        (1_000, 1, 10),
        (0, 7, 4),
        (3_000, 500, 2),
        (1_000, 30, 6),
    ],
    slips=[
        Slip("always half", lambda fixed, per_sample, batch: 0.5,
             "Half is saved only where nothing is fixed. Write down both totals, then compare them."),
        Slip("what is left",
             lambda fixed, per_sample, batch: (fixed + per_sample * batch / 2) / (fixed + per_sample * batch),
             "This is the share that is left. What is saved is the rest of it: 1 minus this."),
        Slip("of the smaller one",
             lambda fixed, per_sample, batch: (per_sample * batch / 2) / (fixed + per_sample * batch / 2),
             "You divided by the memory at half the batch. A saving is a share of what was needed before."),
        Slip("percent", lambda fixed, per_sample, batch: 100 * _saved_by_halving(fixed, per_sample, batch),
             "These are percent. Return the share, 0.45 for 45 %."),
        Slip("bytes", lambda fixed, per_sample, batch: per_sample * batch / 2,
             "These are the bytes saved. Divide by what the whole batch needs."),
        Slip("fixed part halved too",
             lambda fixed, per_sample, batch: (fixed + per_sample * batch / 2) / 2 / (fixed + per_sample * batch),
             "You halved the fixed part too. Parameters, gradients and optimizer state do not know the batch."),
        Slip("the growing part's share",
             lambda fixed, per_sample, batch: per_sample * batch / (fixed + per_sample * batch),
             "This is the share of what grows with the batch. Half of *it* is saved."),
    ],
    takeaway="Counted as in 2016, VGG-16 needs 45 % less at batch 64 than at 128; a dense network of 52 million, 1 %.",
)  # fmt: skip

# -- 3. which micro-batch --------------------------------------------------------------------------------------------


def _most(fixed: int, per_sample: int, limit: int) -> int:
    return max(0, (limit - fixed) // per_sample)


def _divisors(wanted: int) -> list[int]:
    return [n for n in range(1, wanted + 1) if wanted % n == 0]


def _micro_batch(wanted: int, fixed_bytes: int, accumulated_bytes: int, bytes_per_sample: int, limit: int) -> int:
    if fixed_bytes + bytes_per_sample * wanted <= limit:
        return wanted
    most = _most(fixed_bytes + accumulated_bytes, bytes_per_sample, limit)
    return max((n for n in _divisors(wanted) if n <= most), default=0)


def _micro_slip(extra: float = 1, divides: bool = True, strict: int = 0) -> Callable[[int, int, int, int, int], int]:
    def slip(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
        if fixed + per_sample * wanted + strict <= limit:
            return wanted
        most = _most(fixed + int(extra * accumulated), per_sample, limit - strict)
        return max((n for n in _divisors(wanted) if n <= most), default=0) if divides else min(wanted, most)

    return slip


def _always_extra(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
    most = _most(fixed + accumulated, per_sample, limit)
    return max((n for n in _divisors(wanted) if n <= most), default=0)


def _power_of_two(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
    if fixed + per_sample * wanted <= limit:
        return wanted
    most = _most(fixed + accumulated, per_sample, limit)
    return max((n for n in _divisors(wanted) if n <= most and n & (n - 1) == 0), default=0)


def _halved(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
    if fixed + per_sample * wanted <= limit:
        return wanted
    micro = wanted
    while micro and fixed + accumulated + per_sample * micro > limit:
        micro //= 2
    return micro


def _steps(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
    micro = _micro_batch(wanted, fixed, accumulated, per_sample, limit)
    return wanted // micro if micro else 0


def _at_least_one(wanted: int, fixed: int, accumulated: int, per_sample: int, limit: int) -> int:
    return max(1, _micro_batch(wanted, fixed, accumulated, per_sample, limit))


micro_batch = Check(
    "micro_batch",
    _micro_batch,
    cases=[
        (128, 1_600, 500, 80, 10_000),  # 98 fit, the gradients counted: 64
        (96, 1_600, 500, 80, 5_000),  # 36 fit: 32
        (120, 1_000, 0, 10, 1_650),  # 65 fit: 60, which halving finds too
        (60, 500, 300, 10, 1_050),  # 25 fit: 20; without the gradients 30
        (90, 400, 100, 10, 1_000),  # 50 fit: 45
        (64, 1_000, 900, 10, 1_640),  # the whole batch fits, exactly
        (64, 1_000, 400, 10, 1_720),  # exactly 32 with the gradients, but the whole batch fits anyway
        (50, 1_000, 400, 10, 1_450),  # 5 fit: 5
        (128, 1_000, 400, 10, 1_405),  # nothing fits
        (16, 1_000, 0, 10, 900),  # nor here
        (8, 0, 0, 2_000, 1_000),  # not even one
        (8, 100, 5_000, 10, 170),  # 7 samples would fit, but the gradients would not
        (97, 100, 50, 10, 900),  # prime: one by one
        (40, 2, 3, 1, 30),  # 25 fit: 20
    ],
    slips=[
        Slip("does not divide", _micro_slip(divides=False),
             "It fits, but it does not divide the wanted batch: the last micro-batch would be smaller, or the batch "
             "would be another."),
        Slip("gradients forgotten", _micro_slip(extra=0),
             "From the second micro-batch on, the gradients of those before wait, one beside its successor: "
             "`accumulated_bytes` more than a plain step needs."),
        Slip("gradients always counted", _always_extra,
             "Where the whole batch fits, nothing is accumulated and nothing more is needed: return `wanted`."),
        Slip("powers of two", _power_of_two,
             "You tried powers of two only. Any divisor of the wanted batch will do: 45 for 90."),
        Slip("halved again and again", _halved,
             "You halved until it fitted. A third or a fifth of the batch may be larger than that, and an odd batch "
             "does not halve."),
        Slip("number of steps", _steps, "This is how many micro-batches there are. Return how many samples one has."),
        Slip("one at least", _at_least_one, "Where not even one sample fits beside the gradients, return 0."),
        Slip("strictly less", _micro_slip(strict=1),
             "Too small where it fits exactly: the memory needed may equal the limit."),
    ],
    takeaway="The wanted batch is a matter of learning, the micro-batch one of memory; only the second has to fit.",
)  # fmt: skip

# -- 4. micro-batches of different sizes -----------------------------------------------------------------------------


def _loss_weights(sizes: Sequence[int]) -> list[float]:
    return [size / sum(sizes) for size in sizes]


loss_weights = Check(
    "loss_weights",
    _loss_weights,
    cases=[([32, 32, 32, 4],), ([1, 3],), ([8, 8],), ([5],), ([2, 3, 5, 6],)],
    slips=[
        Slip("mean of means", lambda sizes: [1 / len(sizes)] * len(sizes),
             "Every micro-batch counts alike here, even the small one: each of its samples would count for more than "
             "the others. That is right only where all sizes are equal."),
        Slip("nothing divided", lambda sizes: [1.0] * len(sizes),
             "Without a factor the gradients of all micro-batches add up to as many times the mean: the step is too "
             "large by their number."),
        Slip("divided by the size", lambda sizes: [1 / size for size in sizes],
             "The mean loss has been divided by the micro-batch's own size already. Undo that, and divide by the "
             "whole."),
        Slip("against the first", lambda sizes: [size / sizes[0] for size in sizes],
             "Relative to the first micro-batch the factors are right, but they add up to more than 1."),
        Slip("divided by the batch", lambda sizes: [1 / sum(sizes)] * len(sizes),
             "This is right for losses that are *summed* over a micro-batch. These are means: multiply by the size."),
        Slip("only the size", lambda sizes: [float(size) for size in sizes],
             "This turns each mean into a sum. Divide by the samples of the whole batch."),
        Slip("averaged twice", lambda sizes: [size / sum(sizes) / len(sizes) for size in sizes],
             "The factors add up to less than 1: you divided by the number of micro-batches as well."),
        Slip("against the largest", lambda sizes: [size / max(sizes) for size in sizes],
             "You compared with the largest micro-batch, so the factors add up to more than 1. Divide by all samples."),
        Slip("against the mean size", lambda sizes: [size * len(sizes) / sum(sizes) for size in sizes],
             "You compared with the mean size, so the factors add up to the number of micro-batches. They are to add "
             "up to 1: divide by all samples."),
        Slip("upside down", lambda sizes: [sum(sizes) / size for size in sizes],
             "Upside down: the smaller a micro-batch, the larger your factor. A factor is its share of all samples."),
        Slip("divided by their number", lambda sizes: [size / len(sizes) for size in sizes],
             "You divided each size by how many micro-batches there are. Divide by how many *samples* there are in "
             "all."),
        Slip("small ones made up for", lambda sizes: [1 / size / sum(1 / n for n in sizes) for size in sizes],
             "You give small micro-batches more weight. One with fewer samples counts less: each *sample* counts "
             "alike."),
    ],
    takeaway="Each sample counts alike: that is all the mean over the whole batch says.",
)  # fmt: skip

# -- 5. where time saturates -----------------------------------------------------------------------------------------

Times = Mapping[int, float]


def _best(times: Times) -> float:
    return min(seconds / batch for batch, seconds in times.items())


def _saturated(times: Times, tolerance: float) -> list[int]:
    return sorted(batch for batch, seconds in times.items() if seconds / batch <= (1 + tolerance) * _best(times))


def _saturated_from(times: Times, tolerance: float) -> int:
    return _saturated(times, tolerance)[0]


def _next_one(times: Times, tolerance: float) -> int:
    order = sorted(times)
    for batch, after in itertools.pairwise(order):
        if times[batch] / batch <= (1 + tolerance) * times[after] / after:
            return batch
    return order[-1]


def _against_largest(times: Times, tolerance: float) -> int:
    last = times[max(times)] / max(times)
    return min(batch for batch in times if times[batch] / batch <= (1 + tolerance) * last)


saturated_from = Check(
    "saturated_from",
    _saturated_from,
    cases=[
        ({16: 0.0727, 32: 0.1275, 64: 0.2336, 128: 0.4506}, 0.05),  # Caffe2 notes: 64
        ({16: 0.0727, 32: 0.1275, 64: 0.2336, 128: 0.4506}, 0.15),  # 32
        ({128: 0.13, 8: 0.02, 32: 0.04, 64: 0.07}, 0.10),  # not in order
        ({1: 0.010, 2: 0.012, 4: 0.0225, 8: 0.040, 16: 0.0500}, 0.08),  # a step of 2 to 4 that saves little
        ({1: 0.010, 2: 0.011, 4: 0.012, 8: 0.020, 16: 0.048}, 0.10),  # slower again at the end
        ({4: 0.004, 8: 0.004, 16: 0.004, 32: 0.008}, 0.0),  # flat, then in proportion
        ({1: 1.36, 2: 2.0}, 0.3),  # 36 % more time, 26 % less throughput
        ({2: 2.5, 4: 4.0}, 0.25),  # exactly
        ({4: 0.030, 8: 0.020, 16: 0.024}, 0.10),  # the smallest batch takes longest
    ],
    slips=[
        Slip("time of the batch",
             lambda times, tolerance: min(b for b in times if times[b] <= (1 + tolerance) * min(times.values())),
             "You compared seconds of whole batches, and a small batch always takes fewest. Compare seconds for each "
             "sample."),
        Slip("the best batch itself", lambda times, tolerance: min(times, key=lambda batch: times[batch] / batch),
             "This is the fastest batch. A smaller one that is slower by no more than the tolerance is asked for."),
        Slip("largest of the saturated", lambda times, tolerance: _saturated(times, tolerance)[-1],
             "Several batches are fast enough. The smallest of them leaves most memory free."),
        Slip("against the next one", _next_one,
             "You compared with the next batch in the table. Small gains add up over several steps: compare each "
             "batch with the best of all."),
        Slip("against the largest", _against_largest,
             "You compared with the largest batch. It need not be the fastest for each sample."),
        Slip("largest batch", lambda times, tolerance: max(times),
             "The largest batch is not always needed: look for the smallest that is nearly as fast for each sample."),
        Slip("a share less throughput",
             lambda times, tolerance: min(n for n in times if (1 - tolerance) * times[n] / n <= _best(times)),
             "You took the tolerance off the throughput, samples a second. The question asks for a share more "
             "*time*: 30 % more time is 23 % less throughput."),
        Slip("strictly less",
             lambda times, more: min((n for n in times if times[n] / n < (1 + more) * _best(times)), default=0),
             "A batch that takes exactly `1 + tolerance` times the best will do: at most, not less than."),
        Slip("tolerance in seconds",
             lambda times, tolerance: min(n for n in times if times[n] / n <= tolerance + _best(times)),
             "You added the tolerance to seconds. It is a share: multiply the best time by `1 + tolerance`."),
    ],
    takeaway="Beyond saturation a larger batch costs memory and saves no time.",
)  # fmt: skip

check = CheckCell(globals())
