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
#
# Afterwards you can
#
# 1. work out the time of an operator from three numbers of a device;
# 2. place a layer under a *roofline* and say what limits it;
# 3. find the batch from which a GPU wins, or see that it never does;
# 4. say what the transfer over the link does to a speed-up;
# 5. read a table of batch times and say where a larger batch stops paying.
#
# About 60 minutes, and 46 for the exercise. It builds on lesson 00: a training step, its batch, its phases. No GPU
# is needed.

# %% slide="skip"
import pandas as pd
import torch
from torch import nn

from course_utils import networks, published
from course_utils.claims import judge
from course_utils.crossover import batch_times, crossover, leads, said
from course_utils.explorers import who_wins_explorer
from course_utils.figures import Axis, Curve, Reached, Spot, plane, roofline, side_by_side
from course_utils.figures.style import SERIES_COLOURS
from course_utils.hardware import REFERENCE_CPU, device, devices, links, roofline_seconds
from course_utils.hidden_layer import hidden_layer_step
from course_utils.predict import predict, reveal
from course_utils.speed import predict_step
from course_utils.timing import measure_ceilings, measure_layers, measure_products, measure_step_time, time_runs
from course_utils.trace import training_step
from course_utils.units import format_seconds

CPU, GPU = SERIES_COLOURS[0], SERIES_COLOURS[1]  # one colour a device in every picture of this lesson

# %% [markdown] slide="slide"
# ## Predict
#
# Somebody asked on a forum: is a network with one layer of 100 units small? Small enough for a CPU?

# %%
guess = predict(
    "4 inputs, 100 hidden units, 10 outputs, batches of 32. How many times faster is a training step on a Titan X of "
    "2015, a graphics card with 3,072 cores, than on two 8-core CPUs of 2014? Below 1 means slower.",
    unit="times",
)
guess

# %% [markdown] slide="slide"
# ## One product, four ways
#
# A network is mostly products of matrices. Here is one of 128 × 128, 4 million operations, on this machine.

# %% tags=["nbval-ignore-output"]
small = measure_products(128, seconds=0.05)
shown = small.assign(seconds=small["seconds"].map(format_seconds)).rename(columns={"seconds": "time"})
shown.style.format({"GFLOP/s": "{:,.3g}", "times faster": "{:,.0f}"})

# %% [markdown] slide="subslide"
# The chip is the same each time. Python's loop pays for every multiplication: find the number, look up its type, make
# a new one. NumPy and torch pay once for the whole product, and then the chip does what it can.
#
# What is paid before any work is done, for each *operator* that is issued, is its **launch cost**. On a CPU it is some
# microseconds, on a GPU more: the work has to be handed to another chip.

# %% tags=["nbval-ignore-output"]
large = measure_products(1024, seconds=0.1, python=False)
one, all_of_them = (large["GFLOP/s"].iloc[row] for row in (1, 2))
print(f"a product of 1,024 × 1,024: one thread {one:,.0f} GFLOP/s, all threads {all_of_them:,.0f}")
print(f"of 128 × 128:               one thread {small['GFLOP/s'].iloc[2]:,.3g}, all {small['GFLOP/s'].iloc[3]:,.3g}")
torch.set_num_threads(torch.get_num_threads() if all_of_them > one else 1)
print(f"threads used from here on: {torch.get_num_threads()}")

# %% [markdown]
# More threads help where there is work for each of them. Handing it out costs time too: on a small product, or on a
# machine that is busy, they can be slower than one. The rest of this page uses what was faster on the large product.

# %% [markdown] slide="slide"
# ## By hand: the time of one operator
#
# Three numbers of a device give the time of any operator:
#
# - the *launch cost*, in µs;
# - the *arithmetic rate*, in TFLOP/s, 10¹² operations a second; a multiply-add is two operations;
# - the *bandwidth* of its memory, in GB/s, 10⁹ bytes a second.
#
# It is launched, then computes and moves bytes at the same time. The slower of the two decides:
#
# > time = launch + max(operations / arithmetic rate, bytes / bandwidth)
#
# Williams, Waterman and Patterson (2009) called this the *roofline*.

# %% [markdown] slide="subslide"
# The first layer of a network for digits, 784 inputs, 100 units, a batch of 32, with a pencil:
#
# | what | how | |
# |---|---|---:|
# | operations | 2 · 32 · 784 · 100 | 5,017,600 |
# | bytes read and written | 4 · (32 · 784 + 784 · 100 + 32 · 100) | 426,752 |
# | *arithmetic intensity* | operations a byte | 11.8 |
#
# Two devices of one time: the CPU on which cnn-benchmarks ran, two chips of 8 cores, with the rate it reached there,
# and the Titan X of 2015. Of a GPU's published peak the course expects two thirds, of its bandwidth three quarters.

# %%
titan = device("Titan X (Maxwell)")
flops, traffic = 5_017_600, 426_752
rows = {}
for name, chip in (("CPU", REFERENCE_CPU), ("Titan X", titan)):
    arithmetic, bandwidth = flops / chip.reached_flops_per_s(), traffic / chip.reached_bytes_per_s()
    whole = chip.launch_seconds + roofline_seconds(flops, traffic, chip)
    rows[name] = {"launch": chip.launch_seconds, "arithmetic": arithmetic, "bandwidth": bandwidth, "time": whole}
pd.DataFrame(rows).T.map(format_seconds)

# %% [markdown] slide="subslide"
# The card's arithmetic is far faster, and most of the time it waits for the launch. These ratios are the lesson.

# %%
launch, work = rows["Titan X"]["launch"], rows["Titan X"]["time"] - rows["Titan X"]["launch"]
print(f"arithmetic: {rows['CPU']['arithmetic'] / rows['Titan X']['arithmetic']:.0f} times faster on the Titan X")
print(f"launch: {launch / work:.0f} times as long as the product itself")
print(f"the whole operator: {rows['CPU']['time'] / rows['Titan X']['time']:.1f} times faster")

# %% [markdown] slide="slide"
# ## Trace: the whole step
#
# A training step of a network with one hidden layer is a good dozen operators: products, sums, a ReLU, the loss, and
# all that backwards. The trace knows each one's operations and bytes, so the model gives the time of the step.

# %%
forum = {target: hidden_layer_step(inputs=4, units=100, target=target) for target in ("cpu", "cuda")}
on_cpu = predict_step(forum["cpu"].at(batch=32), REFERENCE_CPU)
on_gpu = predict_step(forum["cuda"].at(batch=32), titan)
for name, time in (("CPU", on_cpu), ("Titan X", on_gpu)):
    count, launches = int((time.launch > 0).sum()), time.launch.sum()
    share = launches / time.total_seconds
    print(f"{name:8} {format_seconds(time.total_seconds):>7} a step: {count} launches take {share:.1%} of it")

# %%
epoch = published.MNIST_EPOCH_SECONDS  # 784 inputs, 128 units, batches of 32, another CPU and GPU
reveal(guess, {"model": on_cpu.total_seconds / on_gpu.total_seconds, "published": epoch["CPU"] / epoch["GPU"]})

# %% [markdown] slide="subslide"
# The card is *slower*, by its launches. Its cores wait.
#
# The published row is another small network, 784 inputs and 128 units, on a Core i9 and a Quadro RTX 5000: 4.4 s an
# epoch on the CPU, 6.5 s on the GPU (indepth.dev, "GPU overhead: why our MNIST model trains faster on CPU"). Other
# chips and another network, so no test of the model, but the same winner.

# %% [markdown] slide="slide"
# ## Both in one picture
#
# Now let the batch grow. Below the crossover the CPU wins, above it the GPU. At first neither time grows with the
# batch: launches take as long for one sample as for fifty.

# %%
digits = {target: hidden_layer_step(784, 100, target) for target in ("cpu", "cuda")}
slow = batch_times(digits["cpu"], REFERENCE_CPU)
fast = batch_times(digits["cuda"], titan)
over_the_link = batch_times(digits["cuda"], titan, link="PCIe 3.0 x16")
batches = [2**power for power in range(19)]
meets = crossover(slow, fast)
gain = float(slow.at(batches[-1]) / fast.at(batches[-1]))
plane(
    Axis("samples in the batch", log=True, low=1),
    Axis("time of a training step, 784–100–10", log=True, write=format_seconds),
    [
        Curve("CPU", batches, slow.at(batches), CPU),
        Curve("Titan X", batches, fast.at(batches), GPU),
        Curve("… over PCIe 3", batches, over_the_link.at(batches), GPU, dashed=True),
    ],
    title=f"The CPU wins up to batch {meets - 1}, the Titan X above, and by {gain:.0f} times at {batches[-1]:,}",
    marks={f"crossover at {meets}": meets},
)

# %% [markdown] slide="subslide"
# The dashed line is the same card when input and labels of each batch come over the *link*, the way between the
# computer's memory and the card's, here PCIe 3.0 with 10 GB/s in use. At small batches nobody notices. At large ones
# the card computes faster than it is fed.

# %%
for name, times in (("on the card", fast), ("over the link", over_the_link)):
    ratio = float(slow.at(batches[-1]) / times.at(batches[-1]))
    print(f"data {name:13}: {said('CPU', 'Titan X', leads(slow, times))}; {ratio:.1f} times at {batches[-1]:,}")

# %% [markdown] slide="slide"
# ## By hand: the crossover
#
# Both times are nearly straight lines: a fixed part, mostly launches, and a part for each sample. The CPU has a head
# start, the GPU gains on it with every sample:
#
# > crossover = head start / gain for a sample
#
# For the network of the forum, 4 inputs and 100 units, with a pencil:

# %%
times = {"CPU": batch_times(forum["cpu"], REFERENCE_CPU), "Titan X": batch_times(forum["cuda"], titan)}
start, later = 1_000, 3_000
each = {name: float(line.at(later) - line.at(start)) / (later - start) for name, line in times.items()}
fixed = {name: float(line.at(start)) - start * each[name] for name, line in times.items()}
head_start, gained = fixed["Titan X"] - fixed["CPU"], each["CPU"] - each["Titan X"]
for name in times:
    print(f"{name:8} {format_seconds(fixed[name])} + {format_seconds(each[name])} · batch")
print(f"by hand: {format_seconds(head_start)} / {format_seconds(gained)} = {head_start / gained:,.0f}")
print(f"exactly, operator by operator: {crossover(times['CPU'], times['Titan X']):,}")

# %% [markdown] slide="subslide"
# So the answer to the forum's question is a number. A hundred units on four inputs are small: with batches of 32 or
# 128 the CPU wins, and nobody trains with batches of two thousand on such data. But "100 units" alone says little:

# %%
sizes, ways = (4, 64, 784, 4096), {"on the card": None, **{link.name: link for link in links()[:2]}}
table = {
    f"{inputs:,} inputs": {
        way: crossover(
            batch_times(hidden_layer_step(inputs, 100, "cpu"), REFERENCE_CPU),
            batch_times(hidden_layer_step(inputs, 100, "cuda"), titan, link=link),
        )
        for way, link in ways.items()
    }
    for inputs in sizes
}
pd.DataFrame(table).T.rename_axis("100 units: the GPU wins from batch")

# %% [markdown] slide="slide"
# ## A map of crossovers
#
# From 4 to 4,096 inputs, from 10 to 10,000 units. Under a line the CPU wins, above it the GPU. A line ends where the
# GPU wins from the first sample on.

# %%
widths = sorted({round(10 ** (1 + power / 8)) for power in range(25)})
curves, ends, found = [], [], {}
for inputs, colour in zip((4096, 784, 64, 4), SERIES_COLOURS, strict=True):
    for units in widths:
        here = batch_times(hidden_layer_step(inputs, units, "cpu"), REFERENCE_CPU)
        there = batch_times(hidden_layer_step(inputs, units, "cuda"), titan)
        found[inputs, units] = crossover(here, there)
        if found[inputs, units] == 1:
            break
    line = {width: batch for (size, width), batch in found.items() if size == inputs}
    curves.append(Curve("", list(line), list(line.values()), colour))
    ends.append(Spot(f"{inputs:,} inputs", min(line), line[min(line)], colour, bold=True))
plane(
    Axis("units of the hidden layer", log=True, low=8, high=10_000),
    Axis("batch from which the Titan X wins", log=True, low=1, high=40_000),
    curves,
    ends,
    title=f"4 inputs: the crossover falls from {found[4, 10]:,} with 10 units to {found[4, 10_000]:,} with 10,000",
)

# %% [markdown] slide="slide"
# ## The poker bot
#
# In the same thread somebody tells of a poker bot that learned ten times faster on the CPU. Such a bot plays a hand,
# learns from it, and plays on: the network is tiny and the batch is one. What does the step spend its time on?

# %%
play = {
    "CPU": predict_step(forum["cpu"].at(1), REFERENCE_CPU),
    "Titan X": predict_step(forum["cuda"].at(1), titan, link="PCIe 3.0 x16"),
}
pd.DataFrame(
    {
        name: {
            "launches": format_seconds(time.launch.sum()),
            "work": format_seconds(time.work.sum()),
            "transfer": format_seconds(time.transfer_seconds),
            "step": format_seconds(time.total_seconds),
        }
        for name, time in play.items()
    }
)

# %% [markdown] slide="subslide"
# The CPU's work is some hundred nanoseconds, the rest is the framework. Written without one, in a language that
# is compiled, the step has no launches to pay, and ten times faster than a GPU is modest. Whether the bot of the
# thread was such a program, nobody knows: its network was not published.
#
# What helps on a GPU is to play many hands at once. That is a larger batch.

# %% [markdown] slide="slide"
# ## When the batch time stays flat
#
# "The time of a batch does not grow with the batch", says another answer. Here is somebody's small network for
# digits, measured in 2018, not modelled: the forward pass on a CPU and on a GTX 1080 Ti.

# %%
cpu_ms, gpu_ms = published.DIGITS_CPU_MS, published.DIGITS_GPU_MS
first = next(batch for batch in cpu_ms if gpu_ms[batch] < cpu_ms[batch])
before = max(batch for batch in cpu_ms if batch < first)
plane(
    Axis("pictures in the batch", log=True, low=1),
    Axis(f"ms, forward pass ({published.DIGITS_SOURCE})", log=True),
    [
        Curve("CPU", list(cpu_ms), list(cpu_ms.values()), CPU),
        Curve("GPU", list(gpu_ms), list(gpu_ms.values()), GPU),
    ],
    [Spot("", n, ms, CPU) for n, ms in cpu_ms.items()] + [Spot("", n, ms, GPU) for n, ms in gpu_ms.items()],
    title=f"Measured: the GPU wins between batch {before} and {first}, and its time stays flat to {max(gpu_ms)}",
)

# %% [markdown] slide="subslide"
# Flat means that something else than the samples takes the time: the launches, or the weights, which are read once for
# the whole batch. The larger the network, the sooner the samples weigh more. The model says how far the time on the
# Titan X stays within a tenth of that of one sample:

# %%
with torch.device("meta"):
    model = networks.googlenet()
googlenet = training_step(model, (3, 224, 224), 1000, name="GoogLeNet")
steps = [hidden_layer_step(*sizes) for sizes in ((4, 100), (784, 100), (4096, 1000))]
for step in (*steps, googlenet):
    print(f"{step.name:18} flat up to batch {batch_times(step, titan).flat_until(1.1):,}")

# %% [markdown] slide="slide"
# ## Where that ends
#
# Once every core is busy, twice the batch takes twice as long. That is *saturation*. The authors of Caffe2 timed
# Inception on a Titan X (forward and backward, 2017):

# %%
rows = published.published("GoogLeNet", source=published.CAFFE2)  # the notes do not say which Inception
modelled = {
    row.batch: 1e3 * predict_step(googlenet.at(row.batch), titan).by_phase()[["forward", "backward"]].sum()
    for row in rows
}
table = pd.DataFrame(
    {
        "ms a batch": {row.batch: row.both_ms for row in rows},
        "ms an image": {row.batch: row.per_sample_ms for row in rows},
        "model, ms a batch": modelled,
    }
).rename_axis("batch")
table["saved"] = -table["ms an image"].pct_change()
table["model is off by"] = table["model, ms a batch"] / table["ms a batch"] - 1
form = {"saved": "{:.1%}", "model is off by": "{:+.0%}", "ms an image": "{:.2f}", "model, ms a batch": "{:.1f}"}
table.style.format({**form, "ms a batch": "{:.1f}"}, na_rep="")

# %% [markdown] slide="subslide"
# Eight times the images take six times as long. From 64 to 128 an image is hardly cheaper: the card is full.
#
# The model, for the GoogLeNet of 2014, is too fast by a fifth to a third. It takes every kernel to reach two thirds of
# the card's peak, and the small kernels of this network do not. It sees the saturation, not the milliseconds.

# %%
sizes = [1, 2, 4, 8, *modelled]
ms = [1e3 * predict_step(googlenet.at(n), titan).by_phase()[["forward", "backward"]].sum() for n in sizes]
factor = rows[-1].both_ms / rows[0].both_ms
plane(
    Axis("images in the batch", log=True, low=1),
    Axis("ms, forward and backward", log=True),
    [Curve("model", sizes, ms, GPU)],
    [Spot(f"{row.both_ms:g}", row.batch, row.both_ms, GPU, hollow=True) for row in rows],
    title=f"Inception, Titan X, published as rings: {rows[-1].batch / rows[0].batch:.0f} times the images take "
    f"{factor:.1f} times as long",
)

# %% [markdown] slide="slide"
# ## What the link does to a speed-up
#
# Each sample brought over the link has to be worth it. Per sample and byte, a hidden layer does about as many
# operations as it has units: ten units are not worth a trip. With 4,096 inputs:

# %%
rows = {}
for units in (10, 100, 1000):
    here = batch_times(hidden_layer_step(4096, units, "cpu"), REFERENCE_CPU)
    rows[f"{units:,} units"] = {
        way: float(here.at(4096) / batch_times(hidden_layer_step(4096, units, "cuda"), titan, link=link).at(4096))
        for way, link in ways.items()
    }
pd.DataFrame(rows).T.rename_axis("times faster at batch 4,096").style.format("{:.1f}")

# %% [markdown]
# Below 1 the transfer has eaten the gain, and more. Data that stays on the card for many steps pays once.

# %% [markdown] slide="slide"
# ## Measure: this machine's ceilings
#
# Enough of 2014. What are the three numbers of the machine in front of you? A large product gives the arithmetic rate,
# a large copy the bandwidth, an addition of two numbers the launch cost.

# %% tags=["nbval-ignore-output"]
ceilings = measure_ceilings("cpu", seconds=0.3)
mine = ceilings.as_device()
ceilings.table().style.format({"value": "{:,.3g}", "spread": "{:.0%}"}).hide(axis="index")

# %% [markdown]
# *Spread* is the distance between the quartiles. Where it is large, something else is running, and every number below
# is uncertain by as much.

# %% [markdown] slide="slide"
# ## VGG-16 under the roofline
#
# One picture through VGG-16, each layer timed, and placed at its arithmetic intensity. The line is what this machine
# allows: it rises with the bandwidth, and is flat at the arithmetic rate. Where they meet is the *ridge*.

# %% tags=["nbval-ignore-output"]
model = networks.vgg16().eval()
took = measure_layers(model, torch.randn(1, 3, 224, 224), runs=2, only=(nn.Conv2d, nn.Linear))
del model
with torch.device("meta"):
    model = networks.vgg16()
vgg = training_step(model, (3, 224, 224), 1000, optimizer=None, target="cpu", name="VGG-16")
events = predict_step(vgg.at(1), mine).timeline().query("flops > 0")
layers = [Reached(row.layer, row.flops, row.traffic, took[row.layer]) for row in events.itertuples()]
shares = sorted(layer.share_of_roof(mine) for layer in layers)
right = [layer for layer in layers if layer.intensity > mine.ridge()]
roofline(
    mine,
    layers,
    f"VGG-16 here: arithmetic limits {len(right)} layers, bandwidth {len(layers) - len(right)}; "
    f"in the middle they reach {shares[len(shares) // 2]:.0%}",
)

# %% [markdown] slide="subslide"
# A convolution uses each weight at thousands of places: hundreds of operations a byte, far right of the ridge. A dense
# layer at batch 1 reads each weight for one multiply-add: half an operation a byte, so it waits for memory whatever the
# chip can compute. A batch of 32 uses each weight 32 times. **That is what a batch is for.**
#
# A point above the line is not magic: its kernel multiplies less than the formula says, its weights sat in a cache, or
# the ceiling was measured while the machine was busy.

# %% tags=["nbval-ignore-output"]
pd.DataFrame(
    {
        layer.name: {
            "FLOP a byte": f"{layer.intensity:,.1f}",
            "measured": format_seconds(layer.seconds),
            "roofline": format_seconds(roofline_seconds(layer.flops, layer.traffic, mine)),
            "of the roof": f"{layer.share_of_roof(mine):.0%}",
        }
        for layer in layers
        if layer.name in ("conv1_1", "conv1_2", "conv3_2", "conv5_3", "fc6", "fc8")
    }
).T

# %% [markdown] slide="slide"
# ## Guess, model, measurement
#
# Networks with one hidden layer, trained here on batches of 32. Lines: the model with this machine's three numbers.
# Points: measured. The largest, 4,096 inputs and 10,000 units, is left to the model.

# %% tags=["nbval-ignore-output"]
units_here, inputs_here = (10, 100, 1000, 10_000), (4, 128, 4096)
curves, spots, ratios = [], [], {}
for inputs, colour in zip(inputs_here, SERIES_COLOURS, strict=False):
    model_line = [float(batch_times(hidden_layer_step(inputs, units, "cpu"), mine).at(32)) for units in units_here]
    curves.append(Curve(f"{inputs:,} inputs", units_here, model_line, colour))
    for units, expected in zip(units_here, model_line, strict=True):
        if inputs * units > 2_000_000 and units == 10_000:
            continue
        network = networks.mlp((inputs, units, 10))
        seconds = measure_step_time(network, (inputs,), 10, 32, device="cpu", seconds=0.05).step.median
        spots.append(Spot("", units, seconds, colour))
        ratios[inputs, units] = seconds / expected
middle = sorted(ratios.values())[len(ratios) // 2]
plane(
    Axis("units of the hidden layer", log=True),
    Axis("time of a training step, batch 32", log=True, write=format_seconds),
    curves,
    spots,
    f"Measured here against the model: {min(ratios.values()):.1f} to {max(ratios.values()):.1f} times, "
    f"in the middle {middle:.1f}",
)

# %% [markdown] slide="subslide"
# Where they differ, and why:
#
# - *Small networks take longer than the model says.* An operator with autograd around it costs more than a bare
#   addition, and Python's own lines between the operators are in no trace.
# - *Middle ones can be faster.* Their tensors stay in the CPU's caches, and the model knows main memory alone.
# - *A busy machine is slower than its own ceilings*, measured a minute ago.
#
# The model is good for who wins and why. For milliseconds, measure.

# %% [markdown] slide="slide"
# ## A GPU, if there is one
#
# This version of the course ships no recording from a GPU yet. If PyTorch sees one on your machine, the next cell
# measures the crossover for real. Otherwise it shows times others published, beside the model.

# %% tags=["nbval-ignore-output"]
if torch.cuda.is_available():
    real = {"cpu": [], "cuda": []}
    for chip in real:
        for batch in (tried := [2**power for power in range(0, 17, 4)]):
            network = networks.mlp((784, 100, 10))
            real[chip].append(measure_step_time(network, (784,), 10, batch, device=chip, seconds=0.1).step.median)
    ahead = [batch for batch, a, b in zip(tried, real["cpu"], real["cuda"], strict=True) if b < a]
    figure = plane(
        Axis("samples in the batch", log=True, low=1),
        Axis("time of a training step, 784–100–10, measured", log=True, write=format_seconds),
        [Curve("CPU", tried, real["cpu"], CPU), Curve("GPU", tried, real["cuda"], GPU)],
        title=f"Measured here: the GPU is ahead at batch {ahead}" if ahead else "Measured here: the CPU is ahead",
    )
else:
    cards = {"two 8-core Xeons": REFERENCE_CPU} | {card.name: card for card in devices()}
    with torch.device("meta"):
        model = networks.vgg16()
    step = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(16)
    lines = {}
    for row in published.published("VGG-16"):
        phases = predict_step(step, cards[row.device]).by_phase()
        lines[f"{row.device}, {row.library}"] = {
            "published, ms": row.both_ms,
            "model, ms": 1e3 * phases[["forward", "backward"]].sum(),
        }
    figure = pd.DataFrame(lines).T.rename_axis("VGG-16, batch 16 (cnn-benchmarks, 2016-17)")
    figure["off by"] = figure["model, ms"] / figure["published, ms"] - 1
    figure["times faster"] = figure["published, ms"].iloc[0] / figure["published, ms"]
    figure = figure.style.format(
        {"published, ms": "{:,.0f}", "model, ms": "{:,.0f}", "off by": "{:+.0%}", "times faster": "{:.0f}"}
    )
figure

# %% [markdown] slide="subslide"
# A large network is another world: the last column. The model's arithmetic rates were read off the rows *Torch* and
# *cuDNN 4.0*, so those prove nothing. The others show its limits: the K40's kernels reach less of their peak than it
# believes, and from cuDNN 5.1 on convolutions multiply less than the formula says.

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
    {"256 launches": round(1e6 * one_by_one), "1 launch": round(1e6 * at_once)},
    unit="µs",
    title=f"The same 256 samples: {one_by_one / at_once:.0f} times faster at once, on this CPU",
)

# %% [markdown]
# On a CPU a launch is cheap, and it shows all the same. On a GPU it shows more. The last question of the exercise is
# such a loop.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **who wins?** Move inputs, units or batch with the mouse or the arrow keys. Before each move say which
# way the crossover goes.

# %% tags=["nbval-ignore-output"]
who_wins_explorer(cpu=mine)

# %% [markdown]
# Try three things. Find a network that the GPU wins with the data on the card and never over the link. Give the GPU a
# batch of 1: how many units does it take until it wins? Change the card from the Titan X to a B200: why does the
# crossover of a small network hardly move?

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from articles and forums of 2014 to 2020, in our words, with where they were published. Each verdict is
# computed when the cell runs: change a formula in `course_utils/claims/why_gpus.py`, and it changes.

# %%
judge([1, 36, 37, 38])

# %% slide="subslide"
judge([40, 49, 50, 51, 52])

# %% slide="subslide"
judge([53, 54, 55, 59, 61])

# %% [markdown] slide="subslide"
# One claim is about your machine, and is measured on it.

# %% tags=["nbval-ignore-output"]
judge([39])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. An operator costs its launch, and then arithmetic or bandwidth, whichever takes longer: three numbers of a device.
# 2. The CPU has a head start, the GPU gains with every sample: the crossover is one divided by the other, and the link
#    can move it out of reach.
# 3. Batch time is flat while launches or idle cores take it, and grows with the batch once the card is full; from
#    there on a larger batch gains nothing.
#
# Now the exercise: [exercises/01_why_gpus.ipynb](../exercises/01_why_gpus.ipynb). Five questions, 46 minutes. Save,
# then `course check 01` gives your marks.
