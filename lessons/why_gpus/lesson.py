# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 01 · Why GPUs help, and when they don't
#
# **The question:** where is the crossover between CPU and GPU?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say what a GPU has more of than a CPU, and why it needs so many threads;
# 2. work out the time of an operator from three numbers of a device, and place it under a *roofline*;
# 3. say from about which batch a GPU wins, and what that depends on;
# 4. time a step on a GPU without measuring the queue alone;
# 5. read a table of batch times and say where a larger batch stops paying.
#
# About 60 minutes, and {minutes} for the exercise. It builds on lesson 00: a training step, its batch, its phases.
# No GPU is needed.

# %% slide="skip" folded=true
import textwrap
import time

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.hardware import (  # fmt: skip
    REFERENCE_CPU,
    device,
    devices,
    link,
    links,
    roofline_seconds,
)
from course_utils.machine.speed import predict_step, queued
from course_utils.machine.timing import (  # fmt: skip
    measure_ceilings,
    measure_step_time,
    time_runs,
)
from course_utils.trace import training_step
from course_utils.units import format_seconds
from lessons.claims import judge
from lessons.shared import published
from lessons.shared.roofline import Reached, roofline
from lessons.why_gpus.crossover import batch_times, crossover, crossover_ranges
from lessons.why_gpus.explorer import who_wins_explorer
from lessons.why_gpus.hidden_layer import hidden_layer_step
from lessons.why_gpus.host_queue import host_queue  # fmt: skip
from lessons.why_gpus.machine import LAYOUTS, machine
from lessons.why_gpus.timed import measure_layers, measure_products

# one colour a device in every figure of this lesson
CPU, GPU = SERIES_COLOURS[0], SERIES_COLOURS[1]
titan, pcie = device("Titan X (Maxwell)"), link("PCIe 3.0 x16")


def rough(batch):
    """A batch to one digit, which is as well as anybody knows a crossover."""
    return "never" if batch is None else f"{float(f'{batch:.1g}'):,.0f}"


# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# Somebody asked on a forum: is a network with one layer of 100 units small? Small enough for a CPU?

# %%
guess = predict(
    "4 inputs, 100 hidden units, 10 outputs, batches of 32. How many times as fast as on "
    "two 8-core CPUs of 2014 is a training step on a Titan X, a large card of 2015? "
    "(1 is equally fast, 10 ten times as fast, 0.1 a tenth as fast.)",
    unit="times",
)
guess

# %% [markdown] slide="slide"
# ## The machine
#
# Both computers, drawn to one scale.

# %% [markdown] slide="notes"
# A *lane* does one multiply-add in each clock cycle. What a maker sells as a "CUDA core" is one lane, and a core of a
# CPU has lanes too. A GPU's lanes stand in groups, *streaming multiprocessors* (SMs), and each group runs its own
# threads: compare the SMs with a CPU's cores.

# %% folded=true
chips = [(chip, LAYOUTS[chip.name]) for chip in (REFERENCE_CPU, titan)]
(host, cores), (card, sms) = chips
lanes = sms.units * sms.lanes / (cores.units * cores.lanes)
rate, way = card.reached_bytes_per_s(), pcie.bytes_per_s
machine(
    chips,
    pcie,
    f"The card has {lanes:.0f} times the lanes, {rate / host.reached_bytes_per_s():.1f} times "
    f"the memory bandwidth; the link is {rate / way:.0f} times narrower",
)

# %% [markdown] slide="subslide"
# ## Why so many threads?
#
# A number from memory takes several hundred clock cycles to arrive.

# %% [markdown] slide="notes"
# A CPU's core does all it can to shorten that wait for its one or two threads: large caches, guesses at what comes
# next. An SM does little to shorten it. It holds up to 2,048 threads, and while some wait for memory, others compute.
# This is called *latency hiding*.
#
# That works only if there are enough threads. Take one product of a small layer, with a thread for each output:

# %%
outputs = 32 * 100  # a batch of 32, 100 units
room = sms.units * sms.threads
print(f"{outputs:,} threads on a card that holds {room:,}: {outputs / room:.0%}")

# %% [markdown] slide="notes"
# (A real kernel may give a thread several outputs, or split one sum over several threads. The order of magnitude
# stands: small work leaves most of the card without anything to do.)

# %% [markdown] slide="slide"
# ## One product, four ways
#
# A network is mostly products of matrices. Here is one of 128 × 128, 4 million operations, on this machine's CPU.

# %% tags=["nbval-ignore-output"] folded=true
small = measure_products(128, seconds=0.05)
small.insert(0, "time", small.pop("seconds").map(format_seconds))
small.style.format({"GFLOP/s": "{:,.3g}", "times faster": "{:,.0f}"})

# %% [markdown]
# The chip is the same each time.

# %% [markdown] slide="notes"
# Python's loop pays for every multiplication: find the number, look up its type, make a new one. NumPy and torch pay
# once for the whole product, and then the chip does what it can.
#
# Each *operator* that is issued costs some time before any work is done, its **launch cost**. On a CPU it is some
# microseconds, on a GPU more: the work has to be handed to another chip.

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
large = measure_products(1024, seconds=0.1, python=False)
one, every = large["GFLOP/s"].iloc[1:]
print(f"1,024 × 1,024: one thread {one:,.0f} GFLOP/s, all threads {every:,.0f}")
one_small, every_small = small["GFLOP/s"].iloc[2:]
print(f"128 × 128:     one thread {one_small:,.0f} GFLOP/s, all threads {every_small:,.3g}")
threads = torch.get_num_threads() if every > one else 1
torch.set_num_threads(threads)

# %% [markdown] slide="skip"
# More threads help where there is work for each of them. Handing it out costs time too: on a small product, or on a
# machine that is busy, they can be slower than one. This page goes on with what was faster on the large product.

# %% [markdown] slide="slide"
# ## By hand: the time of one operator

# %% [markdown] slide="notes"
# Three numbers of a device give the time of any operator:

# %% [markdown]
# - the *launch cost*, in µs;
# - the *arithmetic rate*, in TFLOP/s, 10¹² operations a second; a multiply-add is two operations;
# - the *bandwidth* of its memory, in GB/s, 10⁹ bytes a second.

# %% [markdown] slide="notes"
# It is launched, then computes and moves bytes at the same time. The slower of the two decides:

# %% [markdown]
# > time = launch + max(operations / arithmetic rate, bytes / bandwidth)

# %% [markdown] slide="notes"
# Williams, Waterman and Patterson (2009) called the limit that `max` sets the *roofline*.

# %% [markdown] slide="subslide"
# The first layer of a network for digits, 784 inputs, 100 units, a batch of 32, with a pencil:
#
# | what | how | |
# |---|---|---:|
# | operations | 2 · 32 · 784 · 100 | 5,017,600 |
# | bytes read and written | 4 · (32 · 784 + 784 · 100 + 32 · 100) | 426,752 |
# | *arithmetic intensity* | operations a byte | 11.8 |

# %% [markdown] slide="notes"
# The two devices of the figure. Of a GPU's published peak the course expects two thirds, of its bandwidth three
# quarters. The CPU's arithmetic rate is what it reached in cnn-benchmarks. A launch takes 5 to 15 µs on a GPU, and
# the course takes the middle. Two numbers of the CPU are *assumed*, not measured on it: its bandwidth, 88.5 GB/s, and
# its launch, 2.2 µs. (MICS-Lab measured 4.4 µs for two operators on another CPU; this is half of that.)

# %%
flops, traffic = 5_017_600, 426_752
rows = {}
for name, chip in (("CPU", REFERENCE_CPU), ("Titan X", titan)):
    rows[name] = {
        "launch": chip.launch_seconds,
        "arithmetic": flops / chip.reached_flops_per_s(),
        "bandwidth": traffic / chip.reached_bytes_per_s(),
        "time": chip.launch_seconds + roofline_seconds(flops, traffic, chip),
    }
pd.DataFrame(rows).T.map(format_seconds)

# %% [markdown]
# The card's arithmetic is far faster, and yet most of its time is the launch.

# %% [markdown] slide="notes"
# These ratios are the lesson:

# %% folded=true
slow, fast = rows["CPU"], rows["Titan X"]
print(f"arithmetic: {slow['arithmetic'] / fast['arithmetic']:.0f} times faster on the Titan X")
waits = fast["launch"] / (fast["time"] - fast["launch"])
print(f"launch: {waits:.0f} times as long as the product itself")
print(f"the whole operator: {slow['time'] / fast['time']:.1f} times faster")

# %% [markdown] slide="slide"
# ## Trace: the whole step
#
# A training step of a network with one hidden layer is many operators: products, sums, a ReLU, the loss, and the
# backward pass of all these.

# %% [markdown] slide="notes"
# The trace knows each one's operations and bytes, so the model gives the time of the step.

# %%
forum_cpu = hidden_layer_step(inputs=4, units=100, target="cpu")
forum_gpu = hidden_layer_step(inputs=4, units=100, target="cuda")
on_cpu = predict_step(forum_cpu.at(batch=32), REFERENCE_CPU)
on_gpu = predict_step(forum_gpu.at(batch=32), titan)
for name, step in (("CPU", on_cpu), ("Titan X", on_gpu)):
    count, share = (step.launch > 0).sum(), step.launch.sum() / step.total_seconds
    print(f"{name:8}{format_seconds(step.total_seconds)}: {count} launches, {share:.1%} of it")

# %% [markdown] slide="skip"
# The counts differ in the update: on a GPU the optimizer gives all parameters to one kernel, on a CPU it takes them one
# after the other.

# %% folded=true
epoch = published.MNIST_EPOCH_SECONDS  # 784 inputs, 128 units, batches of 32, other devices
ways = {
    "model": on_cpu.total_seconds / on_gpu.total_seconds,
    "published": epoch["CPU"] / epoch["GPU"],
}
reveal(
    guess,
    ways,
    thoughts=[
        (lanes, "Those are the lanes. Most of them have nothing to do in so small a product."),
        (
            titan.reached_flops_per_s() / REFERENCE_CPU.reached_flops_per_s(),
            "Those are the arithmetic rates; a step so small hardly computes at all.",
        ),
        (20, "A rule of thumb for large networks. This one is over before the card is busy."),
        (
            rate / host.reached_bytes_per_s(),
            "Those are the bandwidths. There is hardly anything to read here.",
        ),
        (
            1.0,
            "Equally fast? Both spend the step on launches; one costs more on the card.",
        ),
    ],
)

# %% [markdown] slide="skip"
# The card is *slower*, by its launches. Its lanes wait.
#
# The published row is another small network, 784 inputs and 128 units, on a Core i9 and a Quadro RTX 5000: 4.4 s an
# epoch on the CPU, 6.5 s on the GPU (indepth.dev, "GPU overhead: why our MNIST model trains faster on CPU"). Other
# chips and another network, so no test of the model, but the same winner.

# %% [markdown] slide="slide"
# ## Both in one figure
#
# Now let the batch grow. Below the crossover the CPU wins, above it the GPU. At first the times hardly grow: launches
# take as long for one sample as for five.

# %% [markdown] slide="notes"
# The CPU's time begins to grow first, the card's at some hundred samples.


# %% folded=true
def both(inputs, units, link=None):
    """The CPU's and the Titan X's time of a step of such a network, at every batch."""
    here = hidden_layer_step(inputs, units, "cpu")
    there = hidden_layer_step(inputs, units, "cuda")
    return batch_times(here, REFERENCE_CPU), batch_times(there, titan, link=link)


slow, fast = both(784, 100)
_, linked = both(784, 100, link="PCIe 3.0 x16")
n = [2**power for power in range(19)]
meets, gain = crossover(slow, fast), slow.at(n[-1]) / fast.at(n[-1])
plane(
    Axis("samples in the batch", log=True, low=1),
    Axis("time of a training step, 784–100–10", log=True, write=format_seconds),
    [
        Curve("CPU", n, slow.at(n), CPU),
        Curve("Titan X", n, fast.at(n), GPU),
        Curve("… over PCIe 3", n, linked.at(n), GPU, dashed=True),
    ],
    title=f"The CPU wins up to a batch near {rough(meets)}, the Titan X above, "
    f"and by {gain:.0f} times at {n[-1]:,}",
    marks={f"crossover near {rough(meets)}": meets},
)

# %% [markdown] slide="skip"
# The dashed line is the same card when input and labels of each batch come over the link. Starting a copy costs about
# as much as a launch, 10 µs however small it is, and there are two: input and labels. So the link costs something at
# every batch; at large ones the card computes faster than it is fed.

# %% slide="skip" folded=true
for name, times in (("on the card", fast), ("over the link", linked)):
    ratio = float(slow.at(n[-1]) / times.at(n[-1]))
    print(
        f"data {name}: the Titan X wins from a batch near {rough(crossover(slow, times))}",
        end="",
    )
    print(f" on, and is {ratio:.0f} times as fast at {n[-1]:,}")

# %% [markdown] slide="slide"
# ## The queue
#
# So far each operator was launched, then ran, then came the next. A GPU does better.

# %% [markdown] slide="notes"
# The host (the CPU that runs your Python) puts operators into a queue and goes on at once; the card works them off in
# order. Launches are *asynchronous*. The same numbers as before, 784 inputs and 100 units, drawn that way:

# %% folded=true
digits = hidden_layer_step(784, 100)
queues = {
    f"batch {n:,}": queued(predict_step(digits.at(n), titan, link=pcie)) for n in (32, 2048)
}
in_turn = predict_step(digits.at(2048), titan, link=pcie)
queues["batch 2,048, from pageable memory"] = queued(in_turn, pinned=False)
host_queue(
    queues,
    "At batch 32 the card waits for the host, at batch 2,048 the host waits for the card",
)

# %% [markdown] slide="skip"
# Where the kernels are long, the queue hides the launches; where they are short, the card waits for each. The model of
# this lesson, one after the other, is right at both ends and too slow in between. A crossover, where the card waits,
# hardly moves:

# %% slide="skip"
on_cpu = batch_times(hidden_layer_step(784, 100, "cpu"), REFERENCE_CPU)
meets_queued = next(
    n
    for n in range(1, 10_000)
    if queued(predict_step(digits.at(n), titan)).total_seconds < on_cpu.at(n)
)
print(f"crossover, one after the other: {crossover(on_cpu, batch_times(digits, titan))}")
print(f"crossover, with a queue:        {meets_queued}")

# %% [markdown] slide="subslide"
# ## What a clock shows
#
# A clock that is stopped when the last operator is in the queue has timed the queue, not the work. For the second row
# of the figure:

# %%
fast = queues["batch 2,048"]
print(f"without synchronize: {format_seconds(fast.host_seconds)}")
print(f"with synchronize:    {format_seconds(fast.total_seconds)}")

# %% [markdown]
# `torch.cuda.synchronize()` waits until the card is done.

# %% [markdown] slide="notes"
# So do `.item()`, `.cpu()`, `print(loss)` and `if loss > 3:`, which need a number from the card, and a loop that prints
# its loss in each step waits in each step. To time anything:


# %%
def seconds_of(run, device):
    """How long `run()` takes, on a CPU or a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()  # what was asked for earlier is not timed
    begin = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()  # what was asked for here is
    return time.perf_counter() - begin


# %% [markdown] slide="skip"
# A copy is queued like an operator only if the card can fetch the data without help: from *pinned* memory, which the
# operating system may not move. From ordinary, *pageable* memory the driver first copies into a pinned buffer, and the
# host waits. That is the third row. Such a copy is slower besides: a small study at the University of Virginia, on a
# GTX 280, found 2.4 times the throughput from pinned memory for large copies. These lines let a batch travel while the
# card computes:
#
# ```python
# loader = DataLoader(data, batch_size=256, pin_memory=True)
# for images, labels in loader:
#     images = images.to("cuda", non_blocking=True)
#     labels = labels.to("cuda", non_blocking=True)
#     ...
# ```

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
here = "cuda" if torch.cuda.is_available() else "cpu"
left, right = torch.randn(2, 512, 512, device=here)
seconds_of(lambda: left @ right, here)  # the first run loads libraries
print(f"a product of 512 × 512 on this machine's {here}:", end=" ")
print(format_seconds(seconds_of(lambda: left @ right, here)))

# %% [markdown] slide="slide"
# ## By hand: the crossover
#
# Both times are nearly straight lines: a fixed part, mostly launches, and a part for each sample. The CPU has a head
# start, the GPU gains on it with every sample:
#
# > crossover = head start / gain for a sample

# %% [markdown] slide="notes"
# For the network of the forum, 4 inputs and 100 units, with a pencil:

# %%
fixed, each = {}, {}
for name, line in zip(("CPU", "Titan X"), times := both(4, 100), strict=True):
    each[name] = float(line.at(3000) - line.at(1000)) / 2000
    fixed[name] = float(line.at(1000)) - 1000 * each[name]
    print(f"{name:8}{format_seconds(fixed[name])} + {format_seconds(each[name])} · batch")
head_start, gained = fixed["Titan X"] - fixed["CPU"], each["CPU"] - each["Titan X"]
print(f"by hand: {format_seconds(head_start)} / {format_seconds(gained)}", end=" ")
print(f"= about {rough(head_start / gained)}")

# %% [markdown] slide="subslide"
# ## How sure is that?
#
# Not very. The crossover is one difference divided by another, and the numbers behind both are known only roughly.

# %% [markdown] slide="notes"
# Let one number at a time go to either end of its range: 5 to 15 µs for a launch on the GPU, half to twice for the
# CPU's launch and for its rates.

# %%
ranges = crossover_ranges(forum_cpu, forum_gpu, REFERENCE_CPU, titan)
for what, ends in ranges.items():
    low, high = map(rough, ends)
    print(f"{what:17} from about {low:>5} to about {high}")
lowest, highest = (pick(sum(ranges.values(), ())) for pick in (min, max))

# %% [markdown]
# So the answer to the forum's question is a range: from several hundred samples to several thousand.

# %% [markdown] slide="notes"
# A hundred units on four inputs are small: with batches of 32 or 128 the CPU wins whichever end you take. But "100
# units" alone says little. Each crossover with its range:


# %% folded=true
def with_range(inputs, link=None):
    """The crossover of a network with 100 units, and how far it can be moved."""
    steps = hidden_layer_step(inputs, 100, "cpu"), hidden_layer_step(inputs, 100)
    ends = sum(crossover_ranges(*steps, REFERENCE_CPU, titan, link).values(), ())
    middle = crossover(*both(inputs, 100, link))
    return f"{rough(middle)} ({rough(min(ends))} to {rough(max(ends))})"


ways = {"on the card": None, **{link.name: link for link in links()[:2]}}
table = {
    f"{inputs:,} inputs": {way: with_range(inputs, ways[way]) for way in ways}
    for inputs in (4, 64, 784, 4096)
}
pd.DataFrame(table).T.rename_axis("100 units: the GPU wins from batch")

# %% [markdown] slide="skip"
# ## A map of crossovers
#
# From 4 to 4,096 inputs, from 10 to 10,000 units. Under a line the CPU wins, above it the GPU; every line is the middle
# of a range as wide as those above. A line ends where the GPU wins from the first sample on.

# %% slide="skip" folded=true
widths = sorted({round(10 ** (1 + power / 8)) for power in range(25)})
curves, names = [], []
for inputs, colour in zip((4096, 784, 64, 4), SERIES_COLOURS, strict=True):
    meets = {units: crossover(*both(inputs, units)) for units in widths}
    line = [units for units in widths if meets[units] > 1]
    curves.append(Curve("", line, [meets[units] for units in line], colour))
    names.append(Spot(f"{inputs:,} inputs", 10, meets[10], colour, bold=True))
plane(
    Axis("units of the hidden layer", log=True, low=2.5, high=10_000),
    Axis("batch from which the Titan X wins", log=True, low=1, high=40_000),
    curves,
    names,
    f"4 inputs: the crossover falls from about {rough(meets[10])} "
    f"with 10 units to about {rough(meets[10_000])} with 10,000",
)

# %% [markdown] slide="skip"
# ## The poker bot
#
# In the same thread somebody tells of a poker bot that learned ten times faster on the CPU. Such a bot plays a hand,
# learns from it, and plays on: the network is tiny and the batch is one. What does the step spend its time on?

# %% slide="skip" folded=true
play = {
    "CPU": predict_step(forum_cpu.at(1), REFERENCE_CPU),
    "Titan X": predict_step(forum_gpu.at(1), titan, link=pcie),
}
parts = {
    name: [step.launch.sum(), step.work.sum(), step.transfer_seconds, step.total_seconds]
    for name, step in play.items()
}
pd.DataFrame(parts, index=["launches", "work", "two copies", "step"]).map(format_seconds)

# %% [markdown] slide="skip"
# The CPU's work is less than a microsecond; the rest is the framework. Written without one, in a language that is
# compiled, the step has no launches to pay, and ten times faster than a GPU is modest. Whether the bot of the thread
# was such a program nobody knows: its network was not published.
#
# What helps on a GPU is to play many hands at once. That is a larger batch.

# %% [markdown] slide="slide"
# ## When the batch time stays flat
#
# "The time of a batch does not grow with the batch", says another answer.

# %% [markdown] slide="notes"
# Here is somebody's small network for digits, measured in 2018, not modelled: the forward pass on a CPU and on a GTX
# 1080 Ti.

# %% folded=true
cpu_ms, gpu_ms = published.DIGITS_CPU_MS, published.DIGITS_GPU_MS
batches, slow, fast = list(cpu_ms), list(cpu_ms.values()), list(gpu_ms.values())
first = next(i for i in range(len(batches)) if fast[i] < slow[i])
plane(
    Axis("images in the batch", log=True, low=1),
    Axis(f"ms, forward pass ({published.DIGITS_SOURCE})", log=True),
    [Curve("CPU", batches, slow, CPU), Curve("GPU", batches, fast, GPU)],
    [Spot("", *at, CPU) for at in cpu_ms.items()]
    + [Spot("", *at, GPU) for at in gpu_ms.items()],
    f"Measured: the GPU wins between batch {batches[first - 1]} and {batches[first]}, "
    f"and its time stays flat to {batches[-1]}",
)

# %% [markdown] slide="skip"
# Flat means that something other than the samples takes the time: the launches, or the weights, which are read once
# for the whole batch. The larger the network, the sooner the samples weigh more. The model says up to which batch the
# time on the Titan X is at most a tenth longer than for one sample:

# %% slide="skip" folded=true
with torch.device("meta"):
    model = networks.googlenet()
googlenet = training_step(model, (3, 224, 224), 1000, name="GoogLeNet")
steps = [hidden_layer_step(*sizes) for sizes in ((4, 100), (784, 100), (4096, 1000))]
for step in (*steps, googlenet):
    print(f"{step.name:18} flat up to batch {batch_times(step, titan).flat_until(1.1):,}")

# %% [markdown] slide="slide"
# ## Where that ends
#
# Once the whole card is busy, twice the batch takes twice as long. That is *saturation*. The authors of Caffe2 timed
# Inception on a Titan X (forward and backward, 2017):


# %% folded=true
def forward_backward_ms(step, batch, chip=titan):
    return 1e3 * predict_step(step.at(batch), chip).by_phase()[["forward", "backward"]].sum()


# which Inception, they do not say
rows = published.published("GoogLeNet", source=published.CAFFE2)
table = pd.DataFrame(
    {
        "ms a batch": [row.both_ms for row in rows],
        "ms per image": [row.per_sample_ms for row in rows],
        "model, ms a batch": [forward_backward_ms(googlenet, row.batch) for row in rows],
    },
    index=pd.Index([row.batch for row in rows], name="batch"),
)
table.insert(2, "saved", -table["ms per image"].pct_change())
table["off by"] = table["model, ms a batch"] / table["ms a batch"] - 1
forms = ("{:.1f}", "{:.2f}", "{:.1%}", "{:.1f}", "{:+.0%}")  # one a column
pd.DataFrame(
    {name: table[name].map(form.format) for name, form in zip(table, forms, strict=True)}
).replace("nan%", "")

# %% [markdown] slide="skip"
# Eight times the images take six times as long. From 64 to 128 an image is hardly cheaper: the card is full.
#
# The model, for the GoogLeNet of 2014, is too fast by a fifth to a third. It assumes that every kernel reaches two
# thirds of the card's peak, and the small kernels of this network do not. It sees the saturation, not the milliseconds.

# %% slide="skip" folded=true
sizes = [1, 2, 4, 8, 16, 32, 64, 128]
first, last = rows[0], rows[-1]
plane(
    Axis("images in the batch", log=True, low=1),
    Axis("ms, forward and backward", log=True),
    [Curve("model", sizes, [forward_backward_ms(googlenet, size) for size in sizes], GPU)],
    [Spot(f"{row.both_ms:g}", row.batch, row.both_ms, GPU, hollow=True) for row in rows],
    f"Inception, Titan X, published as rings: {last.batch / first.batch:.0f} "
    f"times the images take {last.both_ms / first.both_ms:.1f} times as long",
)

# %% [markdown] slide="slide"
# ## What the link does to a speed-up
#
# Each sample brought over the link has to be worth it.

# %% [markdown] slide="notes"
# For each byte of a sample, forward and backward do about as many operations as the layer has units: ten units are not
# worth the trip. With 4,096 inputs:

# %% folded=true
faster = {}
for units in (10, 100, 1000):
    pairs = {way: both(4096, units, link) for way, link in ways.items()}
    faster[f"{units:,} units"] = {
        way: cpu.at(4096) / gpu.at(4096) for way, (cpu, gpu) in pairs.items()
    }
pd.DataFrame(faster, dtype=float).T.rename_axis("times faster at batch 4,096").round(1)

# %% [markdown]
# Below 1 the transfer has eaten the gain, and more.

# %% [markdown] slide="notes"
# Data that stays on the card for many steps pays once.

# %% [markdown] slide="slide"
# ## Measure: this machine's ceilings
#
# Enough of 2014. What are the three numbers of the machine in front of you? A large product gives the arithmetic rate,
# a large copy the bandwidth, an addition of two numbers the launch cost.

# %% tags=["nbval-ignore-output"]
ceilings = measure_ceilings("cpu", seconds=0.3)
mine = ceilings.as_device()
ceilings.table().style.format({"value": "{:,.3g}", "spread": "{:.0%}"}).hide(axis="index")

# %% [markdown] slide="notes"
# *Spread* is the distance between the quartiles. Where it is large, something else is running, and every number below
# is uncertain by as much.

# %% [markdown] slide="slide"
# ## VGG-16 under the roofline
#
# One image through VGG-16, each layer timed, and placed at its arithmetic intensity. The line is what this machine
# allows: it rises with the bandwidth, and is flat at the arithmetic rate.

# %% [markdown] slide="notes"
# Where they meet is the *ridge*.

# %% tags=["nbval-ignore-output"] folded=true
with torch.device("meta"):
    model = networks.vgg16()
vgg = training_step(model, (3, 224, 224), 1000, optimizer=None, target="cpu", name="VGG-16")
image, kinds = torch.randn(1, 3, 224, 224), (nn.Conv2d, nn.Linear)
took = measure_layers(networks.vgg16().eval(), image, runs=2, only=kinds)
events = predict_step(vgg.at(1), mine).timeline().query("flops > 0")
layers = [Reached(e.layer, e.flops, e.traffic, took[e.layer]) for e in events.itertuples()]
shares = sorted(layer.share_of_roof(mine) for layer in layers)
right = sum(layer.intensity > mine.ridge() for layer in layers)
title = f"VGG-16 here: arithmetic limits {right} layers, bandwidth {len(layers) - right}; "
roofline(mine, layers, f"{title}half of them reach {shares[len(shares) // 2]:.0%} or more")

# %% [markdown] slide="subslide"
# A convolution uses each weight at every place of its map, 196 to 50,176 of them here: from `conv1_2` on that is 90
# operations a byte or more, far right of the ridge. (`conv1_1` sums over three channels only.)

# %% [markdown] slide="notes"
# A dense layer at batch 1 reads each weight for one multiply-add: half an operation a byte, so it waits for memory
# whatever the chip can compute. A batch of 32 uses each weight 32 times. **That is what a batch is for.**
#
# A point above the line is not magic: its kernel multiplies less than the formula says, its weights sat in a cache, or
# the ceiling was measured while the machine was busy.

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
some = [
    layer for layer in layers if layer.name in ("conv1_1", "conv1_2", "conv3_2", "fc6", "fc8")
]
roof = [roofline_seconds(layer.flops, layer.traffic, mine) for layer in some]
pd.DataFrame(
    {
        "FLOP a byte": [f"{layer.intensity:,.1f}" for layer in some],
        "measured": [format_seconds(layer.seconds) for layer in some],
        "roofline": [format_seconds(seconds) for seconds in roof],
        "of the roof": [f"{layer.share_of_roof(mine):.0%}" for layer in some],
    },
    index=[layer.name for layer in some],
)

# %% [markdown] slide="skip"
# ## Model and measurement
#
# Networks with one hidden layer, trained here on batches of 32. Lines: the model with this machine's three numbers.
# Points: measured. The largest, 4,096 inputs and 10,000 units, is left to the model.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
curves, spots, ratios = [], [], []
for inputs, colour in zip((4, 128, 4096), SERIES_COLOURS, strict=False):
    line = {}
    for units in (10, 100, 1000, 10_000):
        step = hidden_layer_step(inputs, units, "cpu")
        line[units] = float(batch_times(step, mine).at(32))
        if inputs * units < 10**7:
            network = networks.mlp((inputs, units, 10))
            real = measure_step_time(network, (inputs,), 10, 32, device="cpu", seconds=0.05)
            spots.append(Spot("", units, real.step.median, colour))
            ratios.append(real.step.median / line[units])
    curves.append(Curve(f"{inputs:,} inputs", list(line), list(line.values()), colour))
middle = sorted(ratios)[len(ratios) // 2]
plane(
    Axis("units of the hidden layer", log=True),
    Axis("time of a training step, batch 32", log=True, write=format_seconds),
    curves,
    spots,
    f"Measured here against the model: {min(ratios):.1f} "
    f"to {max(ratios):.1f} times as long, the median {middle:.1f}",
)

# %% [markdown] slide="skip"
# Where they differ, and why:
#
# - *Small networks take longer than the model says.* An operator with autograd around it costs more than a bare
#   addition, and Python's own lines between the operators are in no trace.
# - *Middle ones can be faster.* Their tensors stay in the CPU's caches, and the model knows main memory alone.
# - *A busy machine is slower than its own ceilings*, measured a minute ago.
#
# The model says who wins and why, and not how many milliseconds it takes. So the crossovers above are ranges. For
# milliseconds, measure.

# %% [markdown] slide="slide"
# ## On a real GPU
#
# If PyTorch sees a GPU on your machine, the next cell measures the crossover there. If not, it shows a recording, where
# the course has one.

# %% tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
rows = [] if gpu is None else gpu.crossover()
print(textwrap.fill(recordings.sentence(gpu), 88))
contests = []
for c in rows:
    if c.units in (10, 100, 1000):
        times = (c.cpu.median, c.device.median, c.transferred.median)
        contests.append((f"{c.inputs:,}–{c.units:,}–10", c.batch, *times))
names = ["network", "batch", "CPU", "GPU", "GPU, with transfer"]
measured = pd.DataFrame(contests, columns=names).set_index(["network", "batch"])
measured.map(format_seconds) if contests else None

# %% [markdown] slide="notes"
# Others have published theirs. VGG-16, batch 16, forward and backward, from cnn-benchmarks, beside the model:

# %% folded=true
with torch.device("meta"):
    model = networks.vgg16()
vgg = training_step(model, (3, 224, 224), 1000, name="VGG-16")
chips = {REFERENCE_CPU.name: REFERENCE_CPU} | {card.name: card for card in devices()}
rows = published.published("VGG-16")
table = pd.DataFrame(
    {
        "published, ms": [row.both_ms for row in rows],
        "model, ms": [forward_backward_ms(vgg, row.batch, chips[row.device]) for row in rows],
    },
    index=[f"{row.device}, {row.library}" for row in rows],
)
table["off by"] = table["model, ms"] / table["published, ms"] - 1
table["times faster"] = table["published, ms"].iloc[0] / table["published, ms"]
forms = ("{:,.0f}", "{:,.0f}", "{:+.0%}", "{:,.0f}")
pd.DataFrame(
    {name: table[name].map(form.format) for name, form in zip(table, forms, strict=True)}
)

# %% [markdown]
# A large network is another world: see the last column.

# %% [markdown] slide="notes"
# The model's arithmetic rates were read off the rows *Torch* and *cuDNN 4.0*, so those prove nothing. The others show
# its limits: the K40's kernels reach less of their peak than it believes, and since version 5 cuDNN's kernels for 3 × 3
# (Winograd) multiply less than the formula says.

# %% [markdown] slide="slide"
# ## Fewer launches
#
# If launches cost the time, launch less. Take 256 samples through a layer one by one, or all at once: the same
# numbers, the same operations, 1 launch in place of 256.

# %% tags=["nbval-ignore-output"]
layer, samples = nn.Linear(100, 100), torch.randn(256, 100)
with torch.no_grad():
    one_by_one = time_runs(lambda: [layer(x) for x in samples], seconds=0.2).median
    at_once = time_runs(lambda: layer(samples), seconds=0.2).median

side_by_side(
    {"256 launches": round(1e6 * one_by_one), "1 launch": round(1e6 * at_once, 1)},
    unit="µs",
    title=f"The same 256 samples: {one_by_one / at_once:.0f} "
    "times faster at once, on this CPU",
)

# %% [markdown] slide="notes"
# On a CPU a launch is cheap, and it shows all the same. On a GPU it shows more. The last question of the exercise is
# such a loop.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **who wins?**

# %% [markdown] slide="notes"
# Move inputs, units or batch with the mouse or the arrow keys. Before each move say which way the crossover goes.

# %% tags=["nbval-ignore-output"]
who_wins_explorer(cpu=mine)

# %% [markdown] slide="notes"
# The CPU is the one of 2014 at first; *this machine* is yours, as it was measured above. Try three things.
# Find a network that the GPU wins with the data on the card and never over the link. Give the GPU a
# batch of 1: how many units does it take until it wins? Change the card from the Titan X to a B200: why does the
# crossover of a small network hardly move?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# 1. Ten units with 64 inputs or more: over PCIe 3.0 a sample costs more to bring than the CPU needs to compute it.
# 2. With 784 inputs about a thousand units, with 4,096 about a hundred, with 4 inputs more than the slider has.
# 3. Below the crossover the card waits for launches, and the model gives every card the same launch cost. A B200 would
#    do the work some twenty times as fast, but there is next to none.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from articles and forums of 2014 to 2020, in our words, with where they were published.

# %% [markdown] slide="notes"
# Each verdict is computed when the cell runs: change a formula in `lessons/why_gpus/claims.py`, and it changes.

# %%
judge([36, 38, 52, 54, 59])

# %% [markdown] slide="skip"
# The other claims about CPUs and GPUs are in [appendix A](A_myths_and_facts.ipynb).

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A GPU has more lanes, more bandwidth, and a launch to pay for each operator.
# 2. The crossover is the CPU's head start divided by the GPU's gain for a sample.
# 3. Launches are asynchronous: a clock needs `torch.cuda.synchronize()`.

# %% [markdown] slide="notes"
# A GPU needs many threads to be busy. An operator costs its launch, and then arithmetic or bandwidth, whichever takes
# longer. The crossover is known to a factor of a few, and the link can move it out of reach. The time of a batch is
# flat while launches decide it or lanes are idle, and grows with the batch once the card is full.
#
# Now the exercise: [exercises/01_why_gpus.ipynb](../exercises/01_why_gpus.ipynb). {questions}. Save,
# then `course check 01` gives your marks.
