"""The checks of exercise 01, "Why GPUs help, and when they don't": references, inputs, and the slips people make.

Times in seconds, or whole nanoseconds where a crossover has to be exact. Formulas: the roofline of Williams, Waterman
and Patterson (2009), with a launch before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
        Slip("rounded to the nearest", lambda cf, cs, gf, gs: _crossing(cf, cs, gf, gs, round),
             "You rounded to the nearest: where that is down, or a tie, the GPU does not win yet. It wins at the next "
             "whole batch."),
        Slip("no gain, so never", lambda cf, cs, gf, gs: 0 if cs <= gs else _crossover_batch(cf, cs, gf, gs),
             "With no gain a sample the GPU gets no further ahead, but it may be ahead at batch 1: compare there."),
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
             "You made up for the GPU's whole fixed part. The CPU has one too: what counts is the difference."),
        Slip("devices exchanged", lambda cf, cs, gf, gs: _crossover_batch(gf, gs, cf, cs),
             "This is the batch from which the CPU wins. Check which device each argument belongs to."),
        Slip("smaller fixed part", lambda cf, cs, gf, gs: 1 if gf < cf else _crossover_batch(cf, cs, gf, gs),
             "A smaller fixed part is no win yet: a sample's time comes on top, and the GPU's may be longer. Compare "
             "both devices at batch 1."),
        Slip("search ends at 10,000",
             lambda cf, cs, gf, gs: n if (n := _crossover_batch(cf, cs, gf, gs)) <= 10_000 else 0,
             "Your search ends too early: the GPU may win later. Divide the difference of the fixed parts by the "
             "gain a sample: no search is needed."),
    ],
    takeaway="The crossover is the difference of the fixed times, over the gain a sample. Each launch that the GPU is "
    "spared brings it to a smaller batch.",
)  # fmt: skip

# -- 3. the speed-up, by the clock and with transfers ----------------------------------------------------------------


def _speed_up(
    cpu_seconds: float, began: float, returned: float, synchronized: float, batch: int, sample_bytes: int,
    link_gb_s: float,
) -> float:  # fmt: skip
    return cpu_seconds / (synchronized - began + batch * sample_bytes / (link_gb_s * 1e9))


def _seconds(n: int, s: int, r: float) -> float:
    """Of the transfer."""
    return n * s / (r * 1e9)


speed_up = Check(
    "speed_up",
    _speed_up,
    cases=[
        (0.020, 2.0, 2.0005, 2.001, 256, 602_112, 10.0),  # images of 224 × 224: 15 ms to bring
        (0.004, 0.5, 0.5019, 0.502, 1_000, 16_392, 6.0),  # the host decides, and the transfer cancels the gain
        (0.5, 7.25, 7.2504, 7.26, 64, 3_144, 12.5),  # the card does
        (0.003, 1.0, 1.001, 1.003, 1, 8, 31.5),
        (0.25, 0.125, 0.126, 0.145, 128, 1_000_000, 63.0),
        (6, 1, 2, 4, 2, 10**9, 1),
    ],
    slips=[
        Slip("clock stopped at once", lambda c, a, b, d, n, s, r: c / (b - a + _seconds(n, s, r)),
             "You stopped the clock too early, when the last line had returned. By then the host has queued the work; "
             "the card is done when `torch.cuda.synchronize()` returns."),
        Slip("clock stopped at once, no transfer", lambda c, a, b, d, n, s, r: c / (b - a),
             "Two things are missing: the card is done only when `torch.cuda.synchronize()` returns, and each step "
             "brings its batch over the link first."),
        Slip("the wait alone", lambda c, a, b, d, n, s, r: c / (d - b + _seconds(n, s, r)),
             "You took the wait in `synchronize` alone. The step began earlier, with the first launch."),
        Slip("issuing counted twice", lambda c, a, b, d, n, s, r: c / (b - a + d - a + _seconds(n, s, r)),
             "You counted the time of issuing twice: from `began` to `synchronized` it is included."),
        Slip("a reading for a time", lambda c, a, b, d, n, s, r: c / (d + _seconds(n, s, r)),
             "`synchronized` is what the clock read, not how long the step took. From when to when does it take?"),
        Slip("transfer forgotten", lambda c, a, b, d, n, s, r: c / (d - a),
             "This is the speed-up with the data on the card already. Each step brings its batch over the link first."),
        Slip("one sample transferred", lambda c, a, b, d, n, s, r: c / (d - a + s / (r * 1e9)),
             "You brought one sample over. The whole batch has to come: multiply by `batch`."),
        Slip("transfer on both sides",
             lambda c, a, b, d, n, s, r: (c + _seconds(n, s, r)) / (d - a + _seconds(n, s, r)),
             "You added the transfer to the CPU too. The data is in its memory; only the GPU's has to be brought."),
        Slip("transfer subtracted", lambda c, a, b, d, n, s, r: c / (d - a) - _seconds(n, s, r),
             "You took seconds off a ratio. Add the transfer to the GPU's seconds first, then divide."),
        Slip("transfer hidden", lambda c, a, b, d, n, s, r: c / max(d - a, _seconds(n, s, r)),
             "You let the transfer run beside the step. Here the step waits for its batch: add the two."),
        Slip("slow-down", lambda c, a, b, d, n, s, r: (d - a + _seconds(n, s, r)) / c,
             "This is the GPU's time over the CPU's, a slow-down. A speed-up is the other way round."),
        Slip("binary gigabytes", lambda c, a, b, d, n, s, r: c / (d - a + n * s / (r * 2**30)),
             "You took 2**30 bytes for a GB. Rates are decimal: 1 GB/s is 10**9 bytes a second."),
        Slip("megabytes", lambda c, a, b, d, n, s, r: c / (d - a + n * s / (r * 1e6)),
             "You took the rate for MB/s. `link_gb_s` counts GB/s: 10**9 bytes a second."),
        Slip("gigabits", lambda c, a, b, d, n, s, r: c / (d - a + 8 * _seconds(n, s, r)),
             "You took the rate for gigabits. GB/s counts bytes: no factor 8."),
        Slip("bytes over GB/s", lambda c, a, b, d, n, s, r: c / (d - a + n * s / r),
             "You divided bytes by GB/s as they are. 1 GB/s is 10**9 bytes a second: multiply the rate by that first."),
        Slip("transfer only", lambda c, a, b, d, n, s, r: c / _seconds(n, s, r),
             "You left out the GPU's own seconds. It waits for its batch, and then computes."),
    ],
    takeaway="The step ends when `synchronize` returns, and the link comes on top. Data that stays pays it once.",
)  # fmt: skip

# -- 4. what would make it faster ------------------------------------------------------------------------------------


def _saved(arithmetic: float, bandwidth: float, launch: float) -> dict[str, float]:
    """Seconds that halving each saves of an operator by itself."""
    work = max(arithmetic, bandwidth)
    return {
        "launch": launch / 2,
        "flops": work - max(arithmetic / 2, bandwidth),
        "traffic": work - max(arithmetic, bandwidth / 2),
    }


def _most(named: dict[str, float]) -> str:
    return max(named, key=lambda name: named[name])


def _helps_most(flops: float, traffic: float, flops_per_s: float, bytes_per_s: float, launch: float) -> str:
    return _most(_saved(flops / flops_per_s, traffic / bytes_per_s, launch))


def _parts(f: float, t: float, p: float, b: float, launch: float) -> dict[str, float]:
    return {"launch": launch, "flops": f / p, "traffic": t / b}


helps_most = Check(
    "helps_most",
    _helps_most,
    cases=[
        (8e9, 3e6, 4e12, 2e11, 1e-5),  # far on the flat part: 2 ms of arithmetic, 15 µs of traffic
        (2e6, 6e8, 4e12, 2e11, 1e-5),  # far on the slope: 3 ms of traffic
        (409_600, 46_592, 55.3e12, 756e9, 1e-5),  # the lesson's layer on the RTX 4090, batch 32
        (1.28e10, 656_025_600, 55.3e12, 756e9, 1e-5),  # a million rows
        (4e8, 1.8e7, 4e12, 2e11, 3e-5),  # 100 µs against 90, launch 30: halved arithmetic saves 10
        (3.6e8, 2e7, 4e12, 2e11, 3e-5),  # 90 against 100
        (4e8, 1.76e7, 4e12, 2e11, 3e-5),  # 100 against 88: halved arithmetic saves 12, a launch 15, a third of it 10
        (4e8, 1.6e7, 4e12, 2e11, 3e-5),  # 100 against 80: halved arithmetic saves 20, a launch 15
        (3.2e8, 2e7, 4e12, 2e11, 3e-5),  # 80 against 100
        (4e8, 2e6, 4e12, 2e11, 6e-5),  # 100 against 10, launch 60
        (2e8, 1e6, 4e12, 2e11, 8e-5),  # 50 against 5, launch 80
        (0, 5e6, 1e11, 2e10, 0.0),  # a copy
        (8, 6, 4, 2, 1),
        (12, 2, 4, 2, 1),
    ],
    slips=[
        Slip("the longest part", lambda f, t, p, b, launch: _most(_parts(f, t, p, b, launch)),
             "You named what takes longest. Where arithmetic and traffic are about as long, halving one leaves the "
             "other, and little is saved: compare what each saves."),
        Slip("launch forgotten", lambda f, t, p, b, launch: "flops" if f / p > t / b else "traffic",
             "You looked at the roofline alone. A short operator is launch more than work: compare the launch too."),
        Slip("sides exchanged",
             lambda f, t, p, b, launch: _most(_saved(t / b, f / p, launch)),
             "The sides of the ridge are exchanged. More operations a byte than the ridge: arithmetic decides."),
        Slip("operations against bytes",
             lambda f, t, p, b, launch: "flops" if f > t else "traffic",
             "You compared operations with bytes. Divide each by its rate first: seconds can be compared."),
        Slip("rates exchanged", lambda f, t, p, b, launch: _most(_saved(f / b, t / p, launch)),
             "The rates are exchanged: operations are divided by operations a second, bytes by bytes a second."),
        Slip("launch taken away", lambda f, t, p, b, launch: _most({**_saved(f / p, t / b, launch), "launch": launch}),
             "You saved the whole launch. Like the others it is halved."),
        Slip("what saves least", lambda f, t, p, b, launch: min(
                 (saved := _saved(f / p, t / b, launch)), key=lambda name: saved[name]),
             "You named what saves least: the operator takes longest with it. Which time is the shortest?"),
        Slip("always the launch", lambda f, t, p, b, launch: "launch",
             "Fewer launches help where launches are most of the time. An operator can also wait for arithmetic or "
             "memory."),
    ],
    takeaway="On the slope fewer bytes, on the flat part fewer operations, far below the roof fewer launches. Near the "
    "ridge, halving one runs into the other.",
)  # fmt: skip

check = CheckCell(globals())
