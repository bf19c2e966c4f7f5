"""The checks of exercise 01, "Why GPUs help, and when they don't": references, inputs, and the slips people make.

Times in seconds, or whole nanoseconds where a crossover has to be exact. Formulas: the roofline of Williams, Waterman
and Patterson (2009), with a launch before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.why_gpus.behaviour import fewer_launches as fewer_launches

# -- 1. the time of an operator --------------------------------------------------------------------------------------


def _operator_seconds(flops: float, traffic: float, flops_per_s: float, bytes_per_s: float, launch: float) -> float:
    return launch + max(flops / flops_per_s, traffic / bytes_per_s)


operator_seconds = Check(
    "operator_seconds",
    _operator_seconds,
    cases=[
        (8e9, 3e6, 4e12, 200e9, 1e-5),  # arithmetic takes longest
        (2e6, 6e8, 4e12, 200e9, 1e-5),  # traffic does
        (1e3, 4e3, 4e12, 200e9, 1e-5),  # the launch does
        (5_017_600, 426_752, 4.422e12, 252.375e9, 1e-5),  # a product of the lesson on a Titan X
        (0, 5e6, 1e11, 2e10, 0.0),  # a copy
        (8, 6, 4, 2, 1),
        (8e12, 0.1, 4e12, 200e9, 0.0),  # nearly nothing but arithmetic
    ],
    slips=[
        Slip("sum of both", lambda f, t, p, b, launch: launch + f / p + t / b,
             "You added arithmetic and traffic. They run at the same time: the longer of the two counts."),
        Slip("the shorter of the two", lambda f, t, p, b, launch: launch + min(f / p, t / b),
             "You took the shorter of arithmetic and traffic. Neither can finish before the other: the longer counts."),
        Slip("launch forgotten", lambda f, t, p, b, launch: max(f / p, t / b),
             "The launch is missing. Each operator pays it before it computes anything."),
        Slip("launch hidden", lambda f, t, p, b, launch: max(launch, f / p, t / b),
             "You let the launch run beside the work. In this model the work starts when the launch is over: add it."),
        Slip("arithmetic only", lambda f, t, p, b, launch: launch + f / p,
             "You counted arithmetic alone. An operator that moves many bytes for few operations waits for memory."),
        Slip("traffic only", lambda f, t, p, b, launch: launch + t / b,
             "You counted traffic alone. An operator with many operations for each byte waits for arithmetic."),
        Slip("rates exchanged", lambda f, t, p, b, launch: launch + max(f / b, t / p),
             "The rates are exchanged: operations are divided by operations a second, bytes by bytes a second."),
        Slip("launch subtracted", lambda f, t, p, b, launch: max(f / p, t / b) - launch,
             "You took the launch off. It comes on top of the work."),
        Slip("rate instead of time", lambda f, t, p, b, launch: min(p, f / t * b),
             "These are operations a second, the roofline itself. Asked is how long the operator takes: divide the "
             "operations by them, and add the launch."),
        Slip("rate in TFLOP/s", lambda f, t, p, b, launch: launch + max(f / (p * 1e12), t / b),
             "You took `flops_per_s` for TFLOP/s. It counts operations a second as it is."),
        Slip("launch in microseconds", lambda f, t, p, b, launch: launch * 1e-6 + max(f / p, t / b),
             "You turned the launch into seconds. `launch` is in seconds already."),
    ],
    takeaway="Launch, then arithmetic or traffic, whichever takes longer: three numbers of a device give every time.",
)  # fmt: skip

# -- 2. the crossover ------------------------------------------------------------------------------------------------


def _crossover_batch(cpu_fixed: int, cpu_per_sample: int, gpu_fixed: int, gpu_per_sample: int) -> int:
    if gpu_fixed + gpu_per_sample < cpu_fixed + cpu_per_sample:
        return 1
    if gpu_per_sample >= cpu_per_sample:
        return 0
    return (gpu_fixed - cpu_fixed) // (cpu_per_sample - gpu_per_sample) + 1


def _divided(cf: int, cs: int, gf: int, gs: int) -> float:
    return (gf - cf) / (cs - gs) if cs != gs else math.inf


def _crossing(cf: int, cs: int, gf: int, gs: int, batch: Callable[[float], float]) -> float:
    """The slips' crossover: right where there is none, or from the start; elsewhere what `batch` makes of it."""
    right = _crossover_batch(cf, cs, gf, gs)
    return right if right <= 1 else batch(_divided(cf, cs, gf, gs))


crossover_batch = Check(
    "crossover_batch",
    _crossover_batch,
    cases=[
        (57_000, 90, 170_000, 20),  # somewhere
        (50_000, 150, 170_000, 50),  # exactly a tie at 1,200
        (100_000, 90_000, 170_000, 5_000),  # from the first sample on
        (60_000, 40, 170_000, 55),  # never: the GPU is slower for each sample too
        (60_000, 40, 170_000, 40),  # never: as fast for each sample
        (300_000, 100, 170_000, 100),  # always, though each sample takes as long
        (300_000, 90, 170_000, 20),  # always, and more so with every sample
        (1_000, 7, 1_010, 2),  # a tie at 2
        (10, 50, 40, 20),  # a tie at the first sample
        (100, 1, 99, 50),  # never: a smaller fixed part, and behind at the first sample
        (300, 10, 200, 15),  # from the first sample on, though each takes longer
        (10, 5, 8, 6),  # from the first sample on, by less than a sample takes
        (1_000, 50, 6_001_000, 10),  # late: 150,001
        (1_000, 9, 1_027, 2),  # they meet at 3.86
    ],
    slips=[
        Slip("fixed parts forgotten", lambda cf, cs, gf, gs: 1 if gs < cs else 0,
             "You compared the time of a sample alone. The fixed part, all those launches, comes first."),
        Slip("one too early", lambda cf, cs, gf, gs: _crossing(cf, cs, gf, gs, math.ceil),
             "At your batch the two can tie. The GPU has to take less time, so at a tie the crossover is one later."),
        Slip("rounded down", lambda cf, cs, gf, gs: _crossing(cf, cs, gf, gs, math.floor),
             "You rounded down: at that batch the CPU is still at least as fast. The GPU wins at the next whole "
             "batch."),
        Slip("not rounded", lambda cf, cs, gf, gs: _crossing(cf, cs, gf, gs, lambda n: n),
             "A batch is a whole number. Return the first one at which the GPU takes less time."),
        Slip("never is overlooked",
             lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else abs(gf - cf) // max(1, abs(cs - gs)) + 1,
             "Where the GPU is not faster for each sample either, it never catches up: return 0."),
        Slip("always is overlooked",
             lambda cf, cs, gf, gs: (gf - cf) // (cs - gs) + 1 if cs > gs else _crossover_batch(cf, cs, gf, gs),
             "Where the GPU has less to do from the start, your batch is below 1. The answer is 1: from the first on."),
        Slip("per-sample time of the GPU forgotten",
             lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else 0 if gs >= cs else (gf - cf) // cs + 1,
             "You divided by the CPU's time for a sample. The GPU needs time for it too: what counts is the "
             "difference."),
        Slip("head start forgotten",
             lambda cf, cs, gf, gs: 1 if gf + gs < cf + cs else 0 if gs >= cs else gf // (cs - gs) + 1,
             "You made up for the GPU's whole fixed part. The CPU has one too: the head start is the difference."),
        Slip("devices exchanged", lambda cf, cs, gf, gs: _crossover_batch(gf, gs, cf, cs),
             "This is the batch from which the CPU wins. Check which device each argument belongs to."),
        Slip("smaller fixed part", lambda cf, cs, gf, gs: 1 if gf < cf else _crossover_batch(cf, cs, gf, gs),
             "A smaller fixed part is no win yet: a sample's time comes on top, and the GPU's may be longer. Compare "
             "both devices at batch 1."),
        Slip("search ends at 10,000",
             lambda cf, cs, gf, gs: n if (n := _crossover_batch(cf, cs, gf, gs)) <= 10_000 else 0,
             "Your search ends too early: the GPU may win later. Divide the head start by the gain a sample: no "
             "search is needed."),
    ],
    takeaway="The crossover is the head start divided by the gain a sample: with a launch less it comes sooner.",
)  # fmt: skip

# -- 3. speed-up once transfers count --------------------------------------------------------------------------------


def _speed_up(cpu_seconds: float, gpu_seconds: float, batch: int, sample_bytes: int, link_gb_s: float) -> float:
    return cpu_seconds / (gpu_seconds + batch * sample_bytes / (link_gb_s * 1e9))


speed_up = Check(
    "speed_up",
    _speed_up,
    cases=[
        (0.020, 0.001, 256, 602_112, 10.0),  # images of 224 × 224: 15 ms to bring
        (0.004, 0.002, 1_000, 16_392, 6.0),  # the transfer cancels the gain
        (0.5, 0.01, 64, 3_144, 12.5),
        (0.003, 0.003, 1, 8, 31.5),
        (0.25, 0.02, 128, 1_000_000, 63.0),
        (6, 1, 2, 10**9, 1),
    ],
    slips=[
        Slip("transfer forgotten", lambda c, g, n, s, r: c / g,
             "This is the speed-up with the data on the card already. Each step brings its batch over the link first."),
        Slip("one sample transferred", lambda c, g, n, s, r: c / (g + s / (r * 1e9)),
             "You brought one sample over. The whole batch has to come: multiply by `batch`."),
        Slip("transfer on both sides", lambda c, g, n, s, r: (c + n * s / (r * 1e9)) / (g + n * s / (r * 1e9)),
             "You added the transfer to the CPU too. The data is in its memory; only the GPU's has to be brought."),
        Slip("transfer subtracted", lambda c, g, n, s, r: c / g - n * s / (r * 1e9),
             "You took seconds off a ratio. Add the transfer to the GPU's seconds first, then divide."),
        Slip("transfer hidden", lambda c, g, n, s, r: c / max(g, n * s / (r * 1e9)),
             "You let the transfer run beside the step. Here the step waits for its batch: add the two."),
        Slip("slow-down", lambda c, g, n, s, r: (g + n * s / (r * 1e9)) / c,
             "This is the GPU's time over the CPU's, a slow-down. A speed-up is the other way round."),
        Slip("binary gigabytes", lambda c, g, n, s, r: c / (g + n * s / (r * 2**30)),
             "You took 2**30 bytes for a GB. Rates are decimal: 1 GB/s is 10**9 bytes a second."),
        Slip("megabytes", lambda c, g, n, s, r: c / (g + n * s / (r * 1e6)),
             "You took the rate for MB/s. `link_gb_s` counts GB/s: 10**9 bytes a second."),
        Slip("gigabits", lambda c, g, n, s, r: c / (g + 8 * n * s / (r * 1e9)),
             "You took the rate for gigabits. GB/s counts bytes: no factor 8."),
        Slip("bytes over GB/s", lambda c, g, n, s, r: c / (g + n * s / r),
             "You divided bytes by GB/s as they are. 1 GB/s is 10**9 bytes a second: multiply the rate by that first."),
        Slip("transfer only", lambda c, g, n, s, r: c / (n * s / (r * 1e9)),
             "You left out the GPU's own seconds. It waits for its batch, and then computes."),
    ],
    takeaway="The link can eat the gain. Data that stays on the card over many steps pays once.",
)  # fmt: skip

# -- 4. where the batch time saturates -------------------------------------------------------------------------------


def _saturates_at(batches: Sequence[int], milliseconds: Sequence[float], share: float) -> int:
    each = [time / batch for batch, time in zip(batches, milliseconds, strict=True)]
    for i in range(len(batches) - 1):
        if 1 - each[i + 1] / each[i] < share:
            return batches[i]
    return batches[-1]


def _first(batches: Sequence[int], gains: Sequence[float], share: float, offset: int = 0) -> int:
    return next((batches[i + offset] for i, gain in enumerate(gains) if gain < share), batches[-1])


def _each(batches: Sequence[int], milliseconds: Sequence[float]) -> list[float]:
    return [time / batch for batch, time in zip(batches, milliseconds, strict=True)]


def _gains(values: Sequence[float]) -> list[float]:
    return [1 - after / before for before, after in pairwise(values)]


INCEPTION = ([16, 32, 64, 128], [72.7, 127.5, 233.6, 450.6])  # Caffe2 notes (2017), Titan X
FLAT = ([1, 2, 8, 32, 64, 128, 256], [2.66, 2.82, 2.86, 2.39, 2.40, 2.10, 2.46])  # paddle_notes (2018), GTX 1080 Ti

saturates_at = Check(
    "saturates_at",
    _saturates_at,
    cases=[
        (*INCEPTION, 0.05),
        (*INCEPTION, 0.10),
        (*INCEPTION, 0.02),  # not within the table
        (*INCEPTION, 0.50),  # from the start
        (*FLAT, 0.05),
        ([8, 16, 64, 128], [10.0, 12.0, 44.0, 87.0], 0.09),  # 1.25, 0.75, 0.6875, 0.68 ms a sample
        ([8, 16, 32, 64], [100.0, 190.0, 370.0, 700.0], 0.06),  # gains 5.0, 2.6, 5.4 %
        ([2, 4, 8], [2.0, 3.7, 7.2], 0.08),  # a gain of 7.5 % of the old time, 8.1 % of the new
        ([4, 8, 16], [8.0, 12.0, 28.0], 0.30),  # the largest is not the best
        ([1, 2], [4.0, 6.0], 0.25),
        ([2, 4, 8], [4.0, 6.0, 11.0], 0.25),  # exactly the share, then less
        ([4, 8, 16, 32], [40.0, 72.0, 141.0, 250.0], 0.05),  # 10, 2, 11 %
        ([8, 32, 64], [10.0, 30.0, 58.0], 0.05),  # a step to four times the batch, which pays
        ([8, 16, 32], [10.0, 30.0, 45.0], 0.05),  # a larger batch takes longer for each sample
        ([4, 8, 16], [10.0, 8.0, 15.9], 0.15),  # and here it even takes less as a whole
        ([8, 16, 32], [80.0, 144.0, 287.95], 0.05),  # a gain of 0.02 %
    ],
    slips=[
        Slip("time of the batch", lambda b, t, share: _first(b, _gains(t), share),
             "You compared times of whole batches, which grow. Divide by the batch first: time for a sample."),
        Slip("the next batch", lambda b, t, share: _first(b, _gains(_each(b, t)), share, 1),
             "One row too far: return the batch after which it stops paying, not the one that no longer paid."),
        Slip("milliseconds for a share",
             lambda b, t, share: _first(b, [x - y for x, y in pairwise(_each(b, t))], share),
             "You compared milliseconds with a share. Divide the gain by the time for a sample before it."),
        Slip("against the first batch",
             lambda b, t, share: _first(b, [(x - y) / _each(b, t)[0] for x, y in pairwise(_each(b, t))], share),
             "You took the gain as a share of the first batch's time. Compare each row with the row before it."),
        Slip("the best of all", lambda b, t, share: min(zip(_each(b, t), b, strict=True))[1],
             "This is the batch with the least time for a sample. The question is where a larger one stops paying."),
        Slip("share of the new time",
             lambda b, t, share: _first(b, [x / y - 1 for x, y in pairwise(_each(b, t))], share),
             "You divided the gain by the time after it. Divide by the time before: how much of that is saved?"),
        Slip("the last such row",
             lambda b, t, share: max([n for n, g in zip(b, _gains(_each(b, t)), strict=False) if g < share] or b[-1:]),
             "This is the last batch whose step up does not pay. Return the first."),
        Slip("all or nothing", lambda b, t, share: b[-1],
             "You return the largest batch of the table, the advice to fill the card. Ask what each step up gained."),
        Slip("equal is too little",
             lambda b, t, share: next((n for n, g in zip(b, _gains(_each(b, t)), strict=False) if g <= share), b[-1]),
             "A step that saves exactly the share still pays: only less than that does not."),
        Slip("slower is a gain",
             lambda b, t, share: _first(b, [abs(gain) for gain in _gains(_each(b, t))], share),
             "You took the size of the change, whichever way it goes. A larger batch whose samples take longer saves "
             "nothing."),
        Slip("each row is twice the one before",
             lambda b, t, share: _first(b, [1 - after / (2 * before) for before, after in pairwise(t)], share),
             "You took each batch for twice the one before. Divide each time by its own batch."),
        Slip("rates", lambda b, t, share: _first(b, _gains([1 / each for each in _each(b, t)]), share),
             "You compared samples a millisecond, which grow where a larger batch pays. Compare milliseconds for one."),
        Slip("the last that pays",
             lambda b, t, share: max(
                 [b[0], *(n for n, g in zip(b[1:], _gains(_each(b, t)), strict=True) if g >= share)]),
             "You went on to the last step that pays. Stop before the first that does not, whatever comes after it."),
    ],
    takeaway="Inception on a Titan X: from 64 to 128 an image gains 3.6 %. The batch time was never flat there.",
)  # fmt: skip

check = CheckCell(globals())
