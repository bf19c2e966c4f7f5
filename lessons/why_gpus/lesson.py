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
# **The question:** would a GPU train your network faster, or is the network too small? Where is the crossover between CPU
# and GPU?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. work out how long an operator takes from three numbers of a device;
# 2. find the batch from which a GPU wins, and say how far to trust it;
# 3. time a step on a GPU;
# 4. place an operator under a *roofline* and say what would make it faster.
#
# About 135 minutes without *Further*, and {minutes} for the exercise. It builds on lesson 00: a training step, its batch,
# its phases.
# No GPU is needed. Some numbers are measured on the machine in front of you, so yours differ from those printed here.

# %% slide="skip" folded=true
from dataclasses import replace

import pandas as pd
import torch
from IPython.display import HTML
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.hardware import device, link, roofline_seconds
from course_utils.machine.speed import predict_step
from course_utils.trace import training_step
from course_utils.units import format_seconds
from lessons.claims import judge
from lessons.shared import published
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.why_gpus.charges import charges
from lessons.why_gpus.contest import contest
from lessons.why_gpus.crossover import GPU_LAUNCH_SECONDS, KERNEL_SECONDS, rough
from lessons.why_gpus.explorer import who_wins_explorer
from lessons.why_gpus.host_queue import host_queue
from lessons.why_gpus.machine import LAYOUTS, machine
from lessons.why_gpus.timed import best_of, best_on_threads, measure_here

# one colour a device in every figure of this lesson
CPU, GPU = SERIES_COLOURS[0], SERIES_COLOURS[1]
card, pcie = device("RTX 4090"), link("PCIe 4.0 x16")


# %% [markdown] slide="slide"
# ## A bet
#
# 64 inputs, 100 hidden units, 10 outputs. Would an RTX 4090 train this network faster than the machine in front of you?

# %% [markdown] slide="notes"
# It could read digits of 8 × 8 pixels. You train it on batches of 32, by gradient descent with momentum, in PyTorch
# without `torch.compile`. The data is on the card already.

# %%
guess = predict(
    "A training step of this network, batch 32. How many times as fast as this machine's CPU "
    "is an RTX 4090? (10: ten times as fast; 0.1: it takes ten times as long.)",
    unit="times",
)
guess

# %% [markdown] slide="subslide"
# **Why would a GPU help at all?** A GPU has thousands of small arithmetic units, and a wide path to its memory.

# %% slide="subslide" folded=true
titan = device("Titan X (Maxwell)")
chips = [(chip, LAYOUTS[chip.name]) for chip in (REFERENCE_CPU, titan)]
(host, cores), (old, sms) = chips
lanes = sms.units * sms.lanes / (cores.units * cores.lanes)
arithmetic = sms.peak_tflops / cores.peak_tflops
bandwidth = old.reached_bytes_per_s() / host.reached_bytes_per_s()
machine(
    chips,
    link("PCIe 3.0 x16"),
    f"The card: {lanes:.0f} times the lanes, {arithmetic:.1f} times the arithmetic, "
    f"{bandwidth:.1f} times the bandwidth",
)

# %% [markdown] slide="notes"
# Two Xeons of 2014 and a Titan X of 2015, drawn to one scale (*in use*: three quarters of the published rate, assumed).
# A *lane* (sold as a "CUDA core") can do one multiply-add in each clock cycle. A CPU's core has lanes too, here with
# more than twice the clock (base clock; the card's is its boost). A GPU's lanes come in groups, *streaming
# multiprocessors* (SMs). The line between the memories is the *link*, here PCIe. Data that starts in the
# computer's memory reaches the card over it.
#
# A number from memory takes a few hundred clock cycles to arrive. A CPU shortens that wait with *caches*, small fast
# memories on the chip, and by fetching ahead. A GPU has caches too, but leans on *latency hiding*: an SM of this card holds up to 2,048
# *threads*, runs of one short program, and while some wait, others compute. Take a thread for each of the 3,200 outputs
# that our network's first layer has at batch 32:

# %% folded=true
outputs, room = 32 * 100, sms.units * sms.threads
print(f"{outputs:,} threads on a Titan X that holds {room:,}: {100 * outputs / room:.0f} %")

# %% [markdown] slide="slide"
# ## Three numbers of a device
#
# - the *launch cost*, in µs: what an operator costs before it does any work, paid by the CPU;
# - the *arithmetic rate*, in TFLOP/s, 10¹² operations a second; a multiply-add is two;
# - the *bandwidth* of its memory, in GB/s, 10⁹ bytes a second.

# %% [markdown] slide="notes"
# This machine's three are measured now. For the launch we time an addition of two numbers, which is little else; for the
# arithmetic rate, a product of two 512 × 512 matrices; for the bandwidth, a copy of 128 MiB. The best of many runs
# counts. If the median was much slower, the machine may be busy: trust that row less.

# %% tags=["nbval-ignore-output"] folded=true
measured_here = measure_here(seconds=1)
mine = measured_here.device
measured_here.table()

# %% [markdown] slide="subslide"
# > time = launch + max(operations / arithmetic rate, bytes / bandwidth)
#
# An operator by itself is launched, then computes and moves bytes at the same time. The slower of the two decides.

# %% [markdown] slide="notes"
# Work out our network's first layer with a pencil. Each of 32 samples meets each of 64 · 100 weights in one
# multiply-add: 2 · 32 · 64 · 100 = 409,600 operations. It reads 32 · 64 inputs and 64 · 100 weights and writes 32 · 100
# outputs, four bytes each: 46,592 bytes, without the bias.
#
# On a card the program that does an operator's work is a *kernel* (no relation to a convolution's window or to the
# notebook's kernel). PyTorch and the driver launch it, on the card's *host*, the computer that runs your Python. So the
# launch cost is the host's, not the card's.
#
# For the RTX 4090 take 67 % of its 82.6 TFLOP/s, 75 % of its 1,008 GB/s, and 10 µs for a launch (5 to 15 are reported,
# indepth.dev). We have not timed an RTX 4090: all its times in this lesson come from this model, which published times
# of two other cards will test.
#
# <details><summary>Where these shares come from</summary>The peaks are published. VGG-16 reached 67 % of the
# arithmetic on one card of 2015. 75 % of the bandwidth is a choice: a copy on a card of 2013 reached 70 %. We
# assume that both launches include the framework's own work for one operator.</details>

# %% tags=["nbval-ignore-output", "change"]
# Change the batch: from about which does the RTX 4090 work for longer than a launch takes?
batch = 32
flops = 2 * batch * 64 * 100
traffic = 4 * (batch * 64 + 64 * 100 + batch * 100)
rows = {}
for name, chip in (("this machine", mine), ("RTX 4090", card)):
    arithmetic = flops / chip.reached_flops_per_s()
    moving = traffic / chip.reached_bytes_per_s()
    time = chip.launch_seconds + max(arithmetic, moving)
    rows[name] = [chip.launch_seconds, arithmetic, moving, time]
columns = ["launch", "arithmetic", "bandwidth", "time"]
pd.DataFrame(rows, index=columns).T.map(lambda t: format_seconds(t, 2))

# %% [markdown]
# The card computes far faster. It has hardly anything to compute.

# %% [markdown] slide="skip"
# <details><summary>From which batch?</summary>About 11,500. In 10 µs, at 756 GB/s, 7.6 MB move, and each sample moves 656
# bytes.</details>

# %% [markdown] slide="notes"
# The model has one rate for small products and large, and no caches, so either device may be faster or slower than its
# row. The RTX 4090's cache holds 72 MB; a copy of 16 MB, which fits, moved 3,645 GB/s (smallscientist1 on GitHub,
# `cuda_microbenchmark`). While launches decide, that changes nothing: the card has hardly anything to fetch.

# %% [markdown] slide="slide"
# ## The whole step
#
# A training step is a sequence of such operators: products, sums, a ReLU, the loss, the backward pass of all these, the
# update. On a card each operator of the update handles all parameters at once, so there are fewer of them.

# %% [markdown] slide="notes"
# Launches are not the only cost before the work. Python runs your lines, and autograd writes down what the backward
# pass will need. To see what all this costs, time the same step with 2 inputs and 2 units, or at batch 1, which leaves
# next to nothing to compute. The fastest of all is the step's *overhead*:

# %% tags=["nbval-ignore-output"] folded=true
digits = contest(64, 100, mine, card, seconds=0.25)
idle, at_one, whole = digits.idle_seconds, digits.measured[1], digits.measured[32]
launched = predict_step(digits.on_cpu.at(32), mine).launch
print(f"64 inputs, 100 units, batch 32:  {format_seconds(whole)} a step")
print(f"the same, batch 1:               {format_seconds(at_one)}")
print(f"the fastest step of all:         {format_seconds(idle)}")
print(f"launches: {(launched > 0).sum()} here, {digits.launches} on the card")

# %% tags=["nbval-ignore-output"] folded=true
arithmetic = card.reached_flops_per_s() / mine.reached_flops_per_s()
bandwidth = card.reached_bytes_per_s() / mine.reached_bytes_per_s()
ends = [replace(digits, card=replace(card, launch_seconds=t)) for t in GPU_LAUNCH_SECONDS]
there = digits.there(32)
most, least = (whole / one.there(32) for one in ends)
tenth = (10 * whole - digits.python_seconds) / digits.launches
# The host's whole time for a kernel, Python included, as a timing below comes to.
priced = replace(digits, card=replace(card, launch_seconds=KERNEL_SECONDS), idle_seconds=0.0)
reveal(
    guess,
    {"launches of 5 µs": most, "of 10 µs": whole / there, "of 15 µs": least},
    thoughts=[
        (arithmetic, "Those are the arithmetic rates. This step hardly computes."),
        (bandwidth, "Those are the bandwidths. There is hardly anything to read here."),
        (20, "A rule of thumb for large networks. This one is over before the card is busy."),
        (30, "A rule of thumb for large networks. This one is over before the card is busy."),
        *((k, "A card speeds up work; there is little here.") for k in (2, 3, 5, 10, 50, 100)),
        (
            whole / priced.there(32),
            "So it is at 60 µs a kernel with Python included, as in a timing below.",
        ),
        (0.1, f"That would take {format_seconds(tenth, 2)} a launch; 5 to 15 are reported."),
    ],
    against="of 10 µs",
    within=(least, most),
)

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
bare = min(float(launched.sum()), idle)
on_card = digits.launches * card.launch_seconds
last_kernel = max(0.0, there - on_card - digits.python_seconds)
share = 1 - last_kernel / (on_card + digits.python_seconds + last_kernel)
on_the_card = "nearly all of it" if share > 0.95 else f"{100 * share:.0f} %"
parts = ("launches", "Python and autograd", "work not hidden")
charges(
    {
        "this machine": dict(zip(parts, (bare, idle - bare, whole - idle), strict=True)),
        "RTX 4090": dict(
            zip(parts, (on_card, digits.python_seconds, last_kernel), strict=True)
        ),
    },
    f"Overhead is {100 * idle / whole:.0f} % of the step here and, by the model, "
    f"{on_the_card} on the card",
)

# %% [markdown] slide="notes"
# - *Launches*: here each operator costs what the addition above did; on the card each kernel costs 10 µs.
# - *Python and autograd*: the rest of the overhead. The card's host runs nearly the same lines, so we charge it to both.
# - *Work not hidden*: here, what the step takes beyond its overhead. A card's launches are *asynchronous* (PyTorch's
#   documentation, *CUDA semantics*): the host puts operators into a queue and goes on, and the card works through the
#   queue meanwhile. With kernels this short, only the last one's work is left when the host is done.
#
# A step like the card's is called *bound by overhead*. A card with few threads does not reach its rates, and no kernel is
# shorter than some minimum. The model ignores both. Here that hardly matters: if each kernel ends before the host has
# issued the next, only the last one's minimum is added. What the host needs for a kernel does matter:

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
who = "the card wins" if least > 1 else "this machine wins" if most < 1 else "either may win"
even = max(0.0, whole - digits.python_seconds - last_kernel) / digits.launches
each = [1e6 * one.issuing.launch_seconds for one in (ends[0], digits, ends[1])]
print("with Python, a launch of 5, 10 or 15 µs makes", end=" ")
print(f"{each[0]:.0f}, {each[1]:.0f} or {each[2]:.0f} µs a kernel")
print(f"the card's step, at 10 µs: {format_seconds(there)}")
print(f"the card is {most:.2f} times as fast at 5 µs, {least:.2f} times at 15: {who}")
evenly = f"as fast as this machine at launches of {format_seconds(even)}"
print(evenly if even else "slower than this machine even if launches were free")
print(f"the rates alone: {bandwidth:,.0f} times (bandwidth), {arithmetic:,.0f} (arithmetic)")
print(f"with no work at all: {idle / (on_card + digits.python_seconds):.2f} times as fast")

# %% [markdown] slide="slide"
# ## Launch less
#
# Fewer calls help against overhead. Take 256 samples through a layer one by one, or all at once: the same operations, and
# the same numbers up to rounding, in 1 call in place of 256. A call is a launch and the Python around it.

# %% tags=["nbval-ignore-output"] folded=true
layer, samples = nn.Linear(64, 100), torch.randn(256, 64)
empty, nothing = nn.Linear(2, 2), torch.randn(256, 2)
one_by_one, calls, at_once = [], [], []
with torch.no_grad():
    for _ in range(3):  # in turn, so that another program's busy second falls on all
        one_by_one.append(best_of(lambda: [layer(x) for x in samples], 0.1).seconds)
        calls.append(best_of(lambda: [empty(x) for x in nothing], 0.1).seconds)
        at_once.append(best_on_threads(lambda: layer(samples), 0.1)[0].seconds)
one_by_one, calls, at_once = min(one_by_one), min(calls), min(at_once)

side_by_side(
    {
        "256 calls": round(1e6 * one_by_one),
        "256 calls, 2 → 2": round(1e6 * calls),
        "1 call": round(1e6 * at_once, 1),
    },
    unit="µs",
    title=f"The same samples, on this CPU: {one_by_one / at_once:.0f} times as fast at once",
)

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
print("The middle bar: the same calls with next to nothing to compute.")
if calls < one_by_one:
    print(f"So calling costs about {100 * calls / one_by_one:.0f} % of the first bar.")
else:
    print("It is longer than the first: noise, and more of it than the first bar's work.")

# %% [markdown] slide="notes"
# Some code cannot be written without many small operators. A *CUDA graph* records them once and issues them all in one
# call; shapes must not change, nor may the host read a result on the way. The backbone of Mask R-CNN, at batch 1 on
# each GPU, took 6 ms in place of 31 (PyTorch's blog, *Accelerating PyTorch with CUDA Graphs*, 2021).
#
# Here is a good place for a break.

# %% [markdown] slide="slide"
# ## From which batch on?
#
# A larger batch adds work, not launches. Dearer launches on the card give the CPU a *head start*; cheaper samples are the
# card's *gain*.
#
# > crossover = (head start − fixed work) / gain for a sample

# %% [markdown] slide="notes"
# *Fixed work* is the CPU's work that is the same at any batch, such as the update. This machine's times give all three.
# Head start: the card's whole bar less this machine's overhead. Fixed work: this machine's step at batch 1, less its
# overhead. Gain: what each of the other 31 samples adds up to batch 32 (the card's own work is neglected).

# %%
guess_batch = predict(
    "The same network, launches of 10 µs. From which batch on does the RTX 4090 win? "
    "Take a pencil and the times above.",
    unit="in a batch",
)
guess_batch

# %% tags=["nbval-ignore-output"] folded=true
head, fixed, gain = max(0.0, there - idle), at_one - idle, (whole - at_one) / 31
by_bars = max(1, round((head - fixed) / gain)) if gain > 0 else 1
prices = [*ends, priced]
low, meets, high, top = (one.crossover() or 2**17 for one in (ends[0], digits, *prices[1:]))
thoughts = [
    (32, "A usual batch. The bars of the bet say who is ahead there."),
    (11_500, "From there a layer's work outlasts its launch. Who is ahead is another matter."),
]
if gain > 0:
    thoughts += [
        (there / gain, "That makes up for the card's whole bar. This machine has overhead."),
        (on_card / gain, "Those are all of the card's launches. This machine launches too."),
        (head / (whole / 32), "That shares overhead out among the samples. It is paid once."),
    ]
if meets > 1:
    said = "From the first sample on? There the card's overhead exceeds this machine's step."
    thoughts.append((1, said))
bars = {"by hand": by_bars} if gain > 0 else {}
told = sorted((meets, *bars.values()))
thoughts += [
    (k, "With another host it may be there. At 10 µs on this one it is not.")
    for k in (64, 500, 1000)
    if low <= k <= top
]
if gain > 0 and there > whole:
    said = "The card is so many samples behind at batch 32. Those 32 count as well."
    thoughts.append(((there - whole) / gain, said))
bars |= {"launches of 5 µs": low, "of 10 µs": meets, "of 15 µs": high}
bars |= {"60 µs with Python": top}
reveal(
    guess_batch,
    bars,
    thoughts=thoughts,
    against="of 10 µs",
    within=(0.9 * told[0], 1.1 * told[-1]),  # a pencil rounds
)

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
HTML(
    "<details><summary>By hand, from the times</summary>"
    f"Head start: {format_seconds(there)} less {format_seconds(idle)}, {1e6 * head:.0f} µs. "
    f"Fixed work: {format_seconds(at_one)} less {format_seconds(idle)}, {1e6 * fixed:.0f} µs. "
    f"Gain: {format_seconds(whole)} less {format_seconds(at_one)}, over 31 samples, "
    f"{1e6 * gain:.2f} µs each. "
    + ("" if fixed else "(Batch 1 was the fastest: its fixed work is lost in the noise.) ")
    + (f"The crossover: {rough(by_bars)}." if gain > 0 else "That is noise: run it again.")
    + "</details>"
)

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
met = (low, meets, high, top)
far = max(*digits.measured, 4 * meets, 2 * max(met))
n = [2**power for power in range(18) if 2**power <= far]
plane(
    Axis("samples in the batch", log=True, low=1),
    Axis("time of a training step, 64–100–10", log=True, write=format_seconds),
    [
        Curve("this machine", n, [float(digits.here(k)) for k in n], CPU),
        Curve("RTX 4090, 10 µs", n, [digits.there(k) for k in n], GPU),
        Curve("over PCIe, 10 µs", n, [digits.there(k, pcie) for k in n], GPU, dashed=True),
        *(
            Curve(f"RTX 4090, {t}", n, [one.there(k) for k in n], GPU, width=1.2)
            for t, one in zip(("5 µs", "15 µs", "60 µs with Python"), prices, strict=True)
        ),
    ],
    [
        *(Spot("", k, took, CPU, hollow=True) for k, took in digits.measured.items()),
        *(Spot(rough(k), k, digits.here(k).item(), bold=True) for k in met),
    ],
    title=f"A kernel's cost decides where the card gets ahead: batch {rough(min(met))} to "
    f"{rough(max(met))}, with launches of 10 µs about {rough(meets)}"
    if max(met) > min(met)
    else f"The card is ahead from batch {rough(low)}",
)

# %% [markdown] slide="notes"
# - Rings: measured here. Dots: crossovers.
# - Blue: the model's card, for launches of 5, 10 and 15 µs with this host's Python on top, and for 60 µs a kernel,
#   Python included, which a timing by NVIDIA (next) comes to.
# - Dashed: each batch copied first, over PCIe 4.0 and without waiting: two more calls of 10 µs, samples and labels.
#
# The head start is a difference of two times, so a little more for a launch can move the crossover far.

# %% [markdown] slide="subslide"
# **All of this was a model.** NVIDIA timed ResNet-50, forward only, in PyTorch (DeepLearningExamples, 2021). A V100 has
# about twice a T4's arithmetic rate and nearly three times its bandwidth. Solid: measured; dashed: our model, with the
# bet's host, Python included.

# %% tags=["nbval-ignore-output"] folded=true
with torch.device("meta"):
    resnet = networks.resnet50()
resnet = training_step(resnet, (3, 224, 224), 1000, optimizer=None, name="ResNet-50")
curves, spots = [], []
for (name, ms), colour in zip(published.RESNET50_MS.items(), SERIES_COLOURS[1:], strict=False):
    issued = replace(device(name), launch_seconds=digits.issuing.launch_seconds)
    passes = [predict_step(resnet.at(n), issued) for n in ms]
    by_model = [1e3 * max(one.launch.sum(), one.work.sum()) for one in passes]
    curves.append(Curve(name, list(ms), list(ms.values()), colour))
    curves.append(Curve(f"{name}, model", list(ms), by_model, colour, dashed=True))
    spots += [Spot("", n, took, colour, hollow=True) for n, took in ms.items()]
v100, t4 = published.RESNET50_MS.values()
plane(
    Axis("images in the batch", log=True, low=1),
    Axis("ms for a batch, ResNet-50 forward", log=True, low=1),
    curves,
    spots,
    f"Measured: at batch 1 the V100 is {t4[1] / v100[1]:.2f} times as fast as the T4, "
    f"at 256 {t4[256] / v100[256]:.1f} times",
)

# %% [markdown] slide="notes"
# Each measured line is flat, then rises. The model predicts the rise: from batch 8 on, the T4 is within 12 % of its work.
# At 256 the V100 takes
# a quarter less than the model says. It may reach more than our shares, or need fewer operations than we count (as
# Winograd kernels do); the timing does not say which. How far off the flat part is, with the bet's
# host, is printed next.
#
# At batch 1 the V100, with about twice the arithmetic rate, takes as long as the T4. Either the host decides, or the
# kernels have too few threads to fill either card. (The T4's host is not named.) The flat part comes to 60 µs a kernel,
# Python included. Compare that with what a kernel costs the bet's host, printed next, not with 10 µs for the launch
# alone. The hosts differ, and NVIDIA's time includes whatever its loop does between batches.
#
# Crossovers were measured too: with R's torch on an unnamed machine (brulee's documentation), and on a Xeon E5-2650 v3
# and a GTX 1080 Ti (`paddle_notes`, 2018). The networks and hosts are others, and so are the crossovers:

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
kernels = (passes[0].launch > 0).sum()
floors = [max(v100[1], 1e3 * one.work.sum()) for one in passes]  # T4, the V100's flat part
worst = max(abs(took / floor - 1) for took, floor in zip(t4.values(), floors, strict=True))
print(f"V100, batch 1: {kernels} kernels, {1e3 * v100[1] / kernels:.0f} µs each;", end=" ")
print(f"the bet's host: {each[1]:.0f} µs, Python in both.")
print(f"At batch 1 the T4 takes {t4[1] / by_model[0]:.1f} times as long as by the model.")
print(f"With the V100's flat part, the T4's model is off by {100 * worst:.0f} % at most.")
print(f"At 60 µs a kernel our card is {whole / priced.there(32):.2f} times as fast", end=" ")
print(f"at batch 32, and ahead from batch {rough(top)}.")
print(f"At {each[1]:.0f} µs it is ahead from {rough(meets)},", end=" ")
print(f"at {each[0]:.0f} from {rough(low)}.")
needed = f"{1e6 * (whole - last_kernel) / digits.launches:.0f} µs a kernel, Python included"
print(f"The bet is even where the card's host needs {needed}.")
pairs = {n: (took, published.DIGITS_GPU_MS[n]) for n, took in published.DIGITS_CPU_MS.items()}
for what, measured in (
    ("training one hidden layer of 50 units", published.HIDDEN_LAYER_SECONDS),
    ("a small convolutional network, forward", pairs),
):
    behind = max(n for n, (cpu, gpu) in measured.items() if cpu < gpu)
    ahead = min(n for n in measured if n > behind)
    print(f"Measured, {what}: the CPU wins up to batch {behind}, the GPU from {ahead}.")

# %% tags=["nbval-ignore-output", "change"]
# Change inputs and units. Which network should go to the card at batch 32?
other = contest(inputs=16, units=30, cpu=mine, card=card)
full, tiny = other.measured[32], other.idle_seconds
operators = predict_step(other.on_cpu.at(32), mine)
idling = (operators.launch > operators.work).sum()
print(f"{(operators.launch > 0).sum()} operators here;", end=" ")
print(f"{idling} of them take longer to launch than to work")
print(f"a step: {format_seconds(full)}, overhead {format_seconds(tiny)};", end=" ")
print(f"the card: {full / other.there(32):.2f} times as fast")
print("the card wins from batch", rough(other.crossover()), end="; ")
print("with transfers, from batch", rough(other.crossover(pcie)))

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>A wide one, such as 1,000 inputs and 1,000 units: each sample brings more
# work, and the launches are as many.</details>

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **who wins?**

# %% [markdown] slide="notes"
# Before each move say which way the crossover goes. Both sides are the model; *this machine* has the arithmetic rate of
# the steps above and all data in a cache, so with a large network it may be slower than shown. At first each batch comes
# over the link.

# %% tags=["nbval-ignore-output"]
explorer = who_wins_explorer(cpu=digits.reached, python_seconds=digits.python_seconds)
fitted = format_seconds(float(explorer.times()[0].at(32)))
print(f"this machine, batch 32: {fitted} by this model, {format_seconds(whole)} measured")
explorer

# %% [markdown] slide="notes"
# Change the card from the RTX 4090 to a B200. How far does the crossover of 64 inputs and 100 units move?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>Not at all. At the crossover either card waits for its host, and the model
# gives both the same launch cost.</details>

# %% [markdown] slide="slide"
# ## What a clock shows
#
# On a GPU, its data already there, you time a step with `time.perf_counter()`: first 32 rows, then a million, 31,250
# times the work.

# %%
guess_clock = predict(
    "loss.backward() and optimizer.step() have returned, and you stop the clock. How many "
    "times as long does it show for a million rows as for 32?",
    unit="times as long",
)
guess_clock

# %% tags=["nbval-ignore-output"] folded=true
table_of_rows, thirty_two = digits.queue(10**6), digits.queue(32)
reveal(
    guess_clock,
    {  # by the model
        "clock, at once": round(table_of_rows.host_seconds / thirty_two.host_seconds, 3),
        "clock, after waiting": table_of_rows.total_seconds / thirty_two.total_seconds,
    },
    thoughts=[
        (
            10**6 / 32,
            "As many times as the rows? The card is not done, and the host does not wait.",
        ),
        (
            table_of_rows.total_seconds / thirty_two.total_seconds,
            "That is how long the card takes. The clock was stopped before that.",
        ),
        *(
            (k, "The card takes longer. The clock saw the host, which did no more.")
            for k in (3, 20, 100)
        ),
    ],
)

# %% [markdown] slide="skip"
# Launches are asynchronous: the clock timed the queueing, and in this model the host issues as many operators for a
# million rows as for 32.
#
# And why not 31,250 times as long, once you wait? At batch 32 the step was launches and Python; the card had next to
# nothing to do. A step takes about as long as the slower of the two, the host or the card. The figure draws both steps,
# each over its own time (the short kernels of batch 32 are drawn too wide).

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
share = table_of_rows.host_seconds / table_of_rows.total_seconds
host_queue(
    {"batch 32": thirty_two, "a million rows": table_of_rows},
    "By the model. Batch 32: the card waits. "
    f"A million rows: all is issued after {100 * share:.0f} % of the time",
)

# %% [markdown] slide="subslide"
# `torch.cuda.synchronize()` waits until the card is done. A clock needs it on both sides, and a few steps before: the
# first ones also load kernels and ask for memory.
#
# ```python
# for _ in range(3):
#     step()
# torch.cuda.synchronize()
# began = time.perf_counter()
# step()
# torch.cuda.synchronize()
# took = time.perf_counter() - began
# ```

# %% [markdown] slide="notes"
# `torch.utils.benchmark.Timer` does all this many times, and `torch.profiler` draws such rows for a real step.
#
# `.item()`, `.cpu()`, `print(loss)` and `if loss > 3:` also wait: they need a number that is still on the card, so the
# queue runs empty each time. A copy to the card, `x.to("cuda")`, waits too, unless the batch lies in *pinned* memory and
# you say `non_blocking=True` (lesson 09).

# %% [markdown] slide="slide"
# ## Under the roofline
#
# Once launches are hidden, what do kernels wait for?
#
# An operator's *arithmetic intensity*: operations (FLOP) per byte. A chip's *ridge*: arithmetic rate / bandwidth.

# %% tags=["nbval-ignore-output"]
print(f"first layer, batch 32:   {409_600 / 46_592:.1f} FLOP a byte")
print(f"this machine balances at {mine.ridge():.0f}, the RTX 4090 at {card.ridge():.0f}")

# %% [markdown] slide="notes"
# The ridge is the number of operations a chip can do while one byte arrives. RTX 4090: 67 % of 82.6 TFLOP/s over 75 % of
# 1,008 GB/s, 55,300 / 756 = 73. Below it an operator waits for memory, above it for arithmetic.
#
# A larger batch reads the same weights for more samples, so the intensity rises. Far enough?

# %%
guess_intensity = predict(
    "The same layer, 64 inputs and 100 units, for the million rows. "
    "What is its arithmetic intensity, in FLOP a byte?",
    unit="FLOP a byte",
)
guess_intensity


# %% folded=true
def intensity(batch, inputs=64, units=100):
    """Operations a byte of a dense layer in float32."""
    return 2 * batch * inputs * units / (4 * (batch * inputs + inputs * units + batch * units))


reveal(
    guess_intensity,
    {"a million rows": intensity(10**6)},
    thoughts=[
        (
            409_600 / 46_592 * 31_250,
            "As many times as the batch grew? Each sample brings its own inputs and outputs.",
        ),
        (50, "That counts the inputs alone. The outputs are written, four bytes each, too."),
        (100, "An input meets 100 weights, but has four bytes, and outputs are written too."),
        (32, "That counts the outputs alone. The inputs are read, four bytes each, too."),
        (4 * intensity(10**6), "That is operations a value. A value has four bytes."),
        (2 * intensity(10**6), "That has two bytes a value. Here a value has four."),
        (intensity(10**6) / 2, "A multiply-add is two operations."),
        (card.ridge(), "That is where the card balances. This layer does not get there."),
        (409_600 / 46_592, "It does rise: the weights are read once for more samples."),
    ],
)

# %% [markdown] slide="skip"
# By hand: at a huge batch the weights no longer count. A sample moves 64 + 100 values, 656 bytes, for 2 · 64 · 100 =
# 12,800 operations, whatever the batch. So in this model the layer stays below the card's ridge at every batch: launch
# apart, memory decides.
#
# Both machines, with this layer by itself. Rings: measured here. Dots: the card, by the model, with launch. The numbers
# are batches:

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
weight, out = torch.randn(100, 64), torch.ones(32_768, 100)
rings, dots, reached = [], [], {}
for batch in (1, 32, 1024, 32_768):
    x, at = torch.randn(batch, 64), intensity(batch)
    there = out[:batch]  # written before, as in the roof's measurement
    best, _ = best_on_threads(lambda x=x, y=there: torch.mm(x, weight.T, out=y), 0.2)
    flops = 2 * batch * 64 * 100
    on_card = card.launch_seconds + roofline_seconds(flops, flops / at, card)
    reached[batch] = roofline_seconds(flops, flops / at, card) / on_card
    rings += [Spot(f"{batch:,}", at, flops / best.seconds / 1e9, CPU, hollow=True)]
    dots += [Spot(f"{batch:,}", at, flops / on_card / 1e9, GPU)]
curves = []
for name, chip, colour in (("this machine", mine, CPU), ("RTX 4090", card, GPU)):
    across = [0.2, chip.ridge(), 400]
    top, slope = chip.reached_flops_per_s() / 1e9, chip.reached_bytes_per_s() / 1e9
    curves.append(
        Curve(name, across, [min(top, k * slope) for k in across], colour, width=3.0)
    )
plane(
    Axis("arithmetic intensity, FLOP a byte", log=True, low=0.2, high=400),
    Axis("GFLOP/s", log=True),
    curves,
    dots + rings,
    f"By itself, by the model: {100 * reached[32]:.1f} % of the card's roof at batch 32, "
    f"{100 * reached[32_768]:.0f} % at 32,768, the rest launch",
)

# %% [markdown] slide="notes"
# The bent line is the chip's *roofline*. On its slope an operator waits for memory, on the flat part for arithmetic.
# What would make an operator faster?
#
# - Where its launch takes longer than its work: one call for many (a larger batch, a CUDA graph).
# - On the slope: fewer bytes for the same operations. `torch.compile` can write one kernel for a sum and a ReLU, so that
#   what is between them never goes to memory; or take smaller numbers (lesson 08).
# - On the flat part: fewer operations, or cheaper ones (lesson 08).
#
# Near the ridge either of the last two alone helps little.
#
# The lines are from one product and one copy; another shape may reach more or less. Small batches lie lower: the call is
# timed too, and a small product may reach less of the rate. A ring above its slope got its bytes faster than the copy
# did: a cache can do that. The card's could, too, while all bytes fit its 72 MB. Then its ridge would lie further left.

# %% [markdown] slide="subslide"
# **What lifts the intensity?** Using again what was read: a weight for every row, an input for every unit, and in a
# convolution for every place of the window.

# %% folded=true
with torch.device("meta"):
    model = networks.vgg16()
layers = predict_step(
    training_step(model, (3, 224, 224), 1000, optimizer=None, name="VGG-16").at(1), card
).timeline()
vgg = {e.layer: e.flops / e.traffic for e in layers.query("flops > 0").itertuples()}
million = predict_step(digits.on_card.at(10**6), card)
without = million.work[million.flops == 0].sum() / million.work.sum()
print(f"A million rows: {100 * without:.0f} % of the card's work is in operators", end=" ")
print("without a product, such as ReLU.")
found = {
    "a ReLU": 1 / (4 + 4),
    "64 → 100, a million rows": intensity(10**6),
    "1,024 → 1,000, a million rows": intensity(10**6, 1024, 1000),
    "VGG-16's conv1_1, one image": vgg["conv1_1"],
    "VGG-16's conv1_2, one image": vgg["conv1_2"],
    "the same with a window of 1 × 1": intensity(224 * 224, 64, 64),
    "VGG-16's conv3_2, one image": vgg["conv3_2"],
    "VGG-16's fc6, one image": vgg["fc6"],
}
waits = ["arithmetic" if at > card.ridge() else "memory" for at in found.values()]
pd.DataFrame(
    {
        "FLOP a byte": [f"{at:,.1f}" for at in found.values()],
        "launch apart, the RTX 4090 waits for": waits,
    },
    index=list(found),
)

# %% [markdown] slide="notes"
# Width alone does nothing: with one row, as in fc6, each weight is used once. Rows alone soon stop helping: 64 → 100
# moves 164 values a row, however many rows there are. A convolution has a row for each place of its map, 50,176 in
# conv1_2, and its 3 × 3 window uses each input nine times. conv1_1 has that window too, but reads 3 channels to write 64.

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from articles and forums of 2014 to 2020, in our words, with where they were published.

# %% [markdown] slide="notes"
# A sentence is *right* if it holds in every case tried (if it says *can*, in one), *partly right* if in some. 52 is
# computed for the Xeons and the Titan X, 54 from published times.

# %%
judge([52, 54])

# %% [markdown] slide="skip"
# The other claims about CPUs and GPUs are in [appendix A](A_myths_and_facts.ipynb).

# %% [markdown] slide="slide"
# ## Recap
#
# 1. An operator alone: launch, plus the longer of arithmetic and bandwidth.
# 2. Crossover: (head start − fixed work) / gain, more uncertain than a launch.
# 3. The slower of host and card sets the time. A clock needs `torch.cuda.synchronize()`.
# 4. Short operators: launch less. On the slope: fewer bytes. On the flat: less arithmetic.

# %% [markdown] slide="notes"
# And your network? Time a step, then make its layers as small as they go and time it again: 2 units or channels each, 2
# samples, and for a CNN the smallest map that passes. The second time is nearly all overhead. The difference is work,
# which a card can speed up.
#
# Are the two about equal? Then only overhead counts, this machine's against the card's. For our network that is the last
# line printed below the bet's bars. Are they far apart? Then the roofline says, layer by layer, what the difference waits for.
# A recording from your card (`course record`) would settle it.
#
# Now the exercise: [exercises/01_why_gpus.ipynb](../exercises/01_why_gpus.ipynb). {questions}. Save,
# then `course check 01` gives your marks.

# %% [markdown] slide="skip"
# ## Further
#
# **The same contest, measured.** If a recording from a GPU is there:

# %% tags=["nbval-ignore-output"] slide="skip" folded=true
gpu = recordings.gpu()
contests = [] if gpu is None else gpu.crossover()
print(recordings.sentence(gpu).replace(". ", ".\n"))
rows = []
for c in contests:
    if c.units in (10, 100, 1000):
        times = (c.cpu.median, c.device.median, c.transferred.median)
        rows.append((f"{c.inputs:,}–{c.units:,}–10", c.batch, *times))
names = ["network", "batch", "CPU", "GPU", "GPU, with transfer"]
timed = pd.DataFrame(rows, columns=names).set_index(["network", "batch"])
timed.map(format_seconds) if rows else None

# %% [markdown] slide="skip"
# The exercise is [exercises/01_why_gpus.ipynb](../exercises/01_why_gpus.ipynb). {questions}.
