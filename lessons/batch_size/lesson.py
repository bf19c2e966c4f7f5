# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 07 · Batch size
#
# **The question:** what scales with the batch, what does not, and what does time do?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say what half the batch saves, before you run it, and why;
# 2. train with a batch that does not fit your card, and prove that the update is the same;
# 3. name the four mistakes that make it another update, and the layer that makes it one anyway;
# 4. say what accumulation costs, in bytes and in seconds;
# 5. read from a table of times where a larger batch stops paying.
#
# About 55 minutes, and {minutes} for the exercise. It builds on the skyline and the fixed part of lesson 03. No GPU is
# needed.

# %% slide="skip" folded=true
import textwrap

import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side, skyline
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.hardware import device
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import measure_step_time
from course_utils.trace import training_step
from course_utils.units import GIB, format_bytes, in_gb
from lessons.batch_size.accumulation import accumulation
from lessons.batch_size.explorer import batch_explorer
from lessons.claims import judge
from lessons.shared import digits
from lessons.shared.batch_lines import batch_lines
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant, compare
from lessons.shared.published import CAFFE2, published

TITAN = "Titan X (Maxwell)"
torch.set_num_threads(1)  # networks this small gain nothing from more, and times are steadier


def traced(builder, optimizer="momentum", **options):
    with torch.device("meta"):  # shapes without numbers
        model = builder()
    return training_step(model, (3, 224, 224), 1000, optimizer, **options)


# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# A course of 2016 gives this advice to whoever runs out of memory: take a batch of 64 in place of 128, which halves
# what the step needs.

# %%
guess = predict(
    "VGG-16 with a batch of 128 takes 12.20 GB in the accounting of 2016: every map, "
    "two buffers for gradient maps, weights and their gradients. "
    "By how many percent does it fall with a batch of 64?",
    unit="%",
)
guess

# %% [markdown] slide="slide"
# ## By hand
#
# Every term in the memory of a step either grows with the batch or is fixed. Three lines are enough:
#
# | VGG-16, network-wide | for one image | fixed |
# |---|---:|---:|
# | feature maps and the image | 15,237,608 values | |
# | two buffers as large as the largest map | 6,422,528 values | |
# | weights, and a gradient for each | | 276,715,088 values |

# %% [markdown] slide="notes"
# A value takes 4 bytes. So *N* images take 86.6 MB · *N* + 1.107 GB. Half the batch halves the first term and
# leaves the second as it is.

# %%
maps = 13_547_520 + 1_530_368 + 2 * 4096 + 1000  # convolutions, pools, dense layers
per_image = 4 * (maps + 3 * 224 * 224 + 2 * 64 * 224 * 224)
fixed = 4 * 2 * 138_357_544
at_128, at_64 = fixed + 128 * per_image, fixed + 64 * per_image
print(f"batch 128: {in_gb(at_128):.2f} GB")
print(f"batch  64: {in_gb(at_64):.2f} GB, {100 * (1 - at_64 / at_128):.0f} % less")

# %% [markdown] slide="slide"
# ## Trace
#
# The trace adds what PyTorch does today: it frees maps as it goes, and it also keeps momentum and pool indices.

# %%
vgg = traced(networks.vgg16, name="VGG-16")
large, small = vgg.at(128), vgg.at(64)
network_wide = small.network_wide_bytes() / large.network_wide_bytes()

# %% folded=true
reveal(
    guess,
    {
        "by hand": 100 * (1 - at_64 / at_128),
        "traced as in 2016": 100 * (1 - network_wide),
        "traced in PyTorch": 100 * (1 - small.peak_bytes / large.peak_bytes),
    },
    against="traced as in 2016",
    thoughts=[
        (50, "Half of everything: weights and their gradients do not know the batch."),
        (
            100 * fixed / at_128,
            "That is the share of what stays: weights and their gradients. The rest halves.",
        ),
        (
            25,
            "A quarter, if maps were half of it all. They are by far the larger part.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# The table says role by role what is alive at the peak. Three roles do not depend on the batch, nor does cuBLAS's
# workspace: they are the *fixed part*.

# %% [markdown] slide="notes"
# Its share of the peak grows as the batch shrinks.

# %%
roles = pd.DataFrame({"batch 128": large.by_role(), "batch 64": small.by_role()})
roles = roles[roles.any(axis=1)]
stays = roles["batch 64"][roles["batch 64"] == roles["batch 128"]]
shares = [
    f"{100 * stays.sum() / at.peak_bytes:.0f} % at batch {at.batch}" for at in (large, small)
]
print(f"fixed: {format_bytes(stays.sum())}, of the peak {', '.join(shares)}")
saved = (1 - roles["batch 64"] / roles["batch 128"]).map(lambda share: f"{100 * share:.0f} %")
roles.map(format_bytes).assign(saved=saved)

# %% [markdown] slide="slide"
# ## Half and half again
#
# Each halving saves less than the one before it, because the fixed part is a larger share of what is left. At a small
# batch there is more to gain elsewhere.

# %% folded=true
batches = [256, 128, 64, 32, 16, 8, 4, 2]
peaks = {batch: vgg.at(batch).peak_bytes for batch in batches}
batch_lines(
    vgg,
    batches[::-1],
    limit_bytes=12 * GIB,
    title=f"VGG-16: from 256 to 128 saves {1 - peaks[128] / peaks[256]:.0%}, "
    f"from 16 to 8 saves {1 - peaks[8] / peaks[16]:.0%}",
)

# %% [markdown] slide="slide"
# ## It depends on the network
#
# A network of convolutions is nearly all maps. A dense network is nearly all parameters: as far as memory goes, its
# batch is free.

# %% folded=true
halves = {}
for name, network in networks.NETWORKS.items():
    with torch.device("meta"):
        model = network.build()
    step = training_step(model, network.input_shape, network.classes, name=name)
    halves[name] = 100 * (1 - step.at(64).peak_bytes / step.at(128).peak_bytes)
side_by_side(
    halves,
    unit="%",
    title=f"Half of batch 128 saves {min(halves.values()):.1f} % "
    f"to {max(halves.values()):.0f} %, by the network",
)

# %% [markdown] slide="slide"
# ## Which moment is the peak
#
# The batch also moves the peak. With a few images per step the worst moment is where gradients and parameters pile up;
# with many, where maps do.

# %% [markdown] slide="notes"
# So a measurement at batch 4 looks at one moment, and batch 256 runs out of memory at another.

# %% folded=true
rows = []
for optimizer in ("momentum", "adam"):
    step = traced(networks.alexnet, optimizer)
    for batch in (2, 32, 128, 512):
        at = step.at(batch)
        where = at.peak_phase, at.peak_layer
        rows.append((optimizer, batch, *where, format_bytes(at.peak_bytes)))
moments = pd.DataFrame(rows, columns=["AlexNet with", "batch", "phase", "layer", "peak"])
moments.set_index(["AlexNet with", "batch"])

# %% [markdown] slide="slide"
# ## What does time do?
#
# People say that a GPU takes as long for a large batch as for a small one.

# %% [markdown] slide="notes"
# The notes of Caffe2 (2017) timed one network, Inception, on one Titan X with 12 GB. The model of lesson 01 predicts
# the same: launch cost and roofline of every operator.

# %% folded=true
table = {row.batch: row for row in published("GoogLeNet", source=CAFFE2)}
googlenet = traced(networks.googlenet, name="GoogLeNet")
rows = []
predicted = {}
for batch, row in table.items():
    phases = predict_step(googlenet.at(batch), TITAN).by_phase()
    predicted[batch] = phases["forward"] + phases["backward"]
    error = f"{100 * (predicted[batch] / row.seconds - 1):+.0f} %"
    an_image = round(row.per_sample_ms, 2), round(1e3 * predicted[batch] / batch, 2)
    rows.append((batch, row.both_ms, *an_image, error))
columns = ["batch", "published, ms", "ms per image", "predicted, ms per image", "error"]
pd.DataFrame(rows, columns=columns).set_index("batch")

# %% [markdown] slide="subslide"
# Eight times the batch takes 6.2 times as long: far from flat, and not quite in proportion.

# %% [markdown] slide="notes"
# The gain is in the second column: less time for each image, and less gain with every doubling. Where the gain stops,
# the device is saturated.
#
# The prediction is too low, by a third at batch 16 and less at 128. Two reasons are known. The notes do not say which
# Inception it is, so it is predicted as GoogLeNet. And in the model a small batch pays for launches alone; a real GPU
# with a small batch also leaves part of its units without work, which the model does not know.
#
# The shape of it, with a small network measured on this machine:

# %% folded=true tags=["nbval-ignore-output"]
small_cnn = networks.small_cnn()


def an_image(batch):
    timing = measure_step_time(small_cnn, (3, 32, 32), 10, batch, seconds=0.05)
    return timing.step.median / batch


# three rounds, of which the fastest counts: whatever else the machine does only adds
rounds = [{batch: an_image(batch) for batch in table} for _ in range(3)]
each = {
    "published": {batch: row.per_sample_ms for batch, row in table.items()},
    "predicted": {batch: seconds / batch for batch, seconds in predicted.items()},
    "measured here": {batch: min(one[batch] for one in rounds) for batch in table},
}
curves, spots = [], []
for (name, times), colour in zip(each.items(), SERIES_COLOURS, strict=False):
    shares = [time / times[16] for time in times.values()]
    curves.append(Curve(name, list(times), shares, colour))
    spots += [Spot("", *at, colour) for at in zip(times, shares, strict=True)]
gains = [f"{100 * (times[128] / times[16] - 1):+.0f} % {name}" for name, times in each.items()]
plane(
    Axis("batch", low=0, high=140),
    Axis(
        "time per image, batch 16 = 100 %", low=0, write=lambda share: f"{100 * share:.0f} %"
    ),
    curves,
    spots,
    title=f"Time per image from batch 16 to 128: {', '.join(gains)}",
)

# %% [markdown] slide="notes"
# The networks differ (Inception, GoogLeNet, and a small one on one core), the question is the same. A CPU does not
# need thousands of threads, and a small batch may even suit its caches better: believe the curve of your own
# machine.

# %% [markdown] slide="skip"
# And on a GPU? The next cell asks the one in this machine, or else a recording of one, or else says that there is
# neither. It times whole steps of GoogLeNet, update included.

# %% slide="skip" tags=["nbval-ignore-output"]
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "GoogLeNet", batches=(16, 32, 64, 128))
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## The batch you want, on the card you have
#
# The loss of a batch is the mean over its samples, and the gradient of a mean is the mean of the gradients.

# %% [markdown] slide="notes"
# So split the batch into *micro-batches*, run forward and backward for each, let the gradients add up, and update once.
# That is *gradient accumulation*:

# %% [markdown]
# ```python
# optimizer.zero_grad()
# for x, y in micro_batches:
#     loss = F.cross_entropy(model(x), y) / len(micro_batches)
#     loss.backward()                # adds to .grad, and frees the maps
# optimizer.step()
# ```

# %% [markdown] slide="notes"
# By hand: losses 2, 4, 6, 8 have the mean 5. Two micro-batches have the means 3 and 7; half of each adds up to 5.

# %% [markdown] slide="subslide"
# Is it the same, on real digits? We compare the gradient of 128 images at once with that of 4 × 32, accumulated. A
# difference is given as a share of the gradient's length (its norm).


# %%
def network(norm=None):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), norm or nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))


images, labels, _, _ = digits.images()
images, labels = images[:128], labels[:128]


def gradient(model, parts, weights=None):
    """All gradients of a model in one vector, accumulated over parts of the digits."""
    model.zero_grad()
    x = images.to(model[0].weight.dtype)
    for i, part in enumerate(parts):
        weight = len(part) / 128 if weights is None else weights[i]
        (F.cross_entropy(model(x[part]), labels[part]) * weight).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def off(one, whole):
    return float((one - whole).norm() / whole.norm())


whole = [torch.arange(128)]
quarters = list(torch.arange(128).split(32))

# %% tags=["nbval-ignore-output"]
for dtype in (torch.float32, torch.float64):
    model = network().to(dtype)
    one, other = gradient(model, whole), gradient(model, quarters)
    largest, share = float((one - other).abs().max()), off(other, one)
    print(f"{dtype}: largest difference {largest:.0e}, {share:.0e} of the gradient's length")

# %% [markdown] slide="notes"
# Not exactly zero: adding the same numbers in another order rounds in other places. If it is rounding, it must shrink
# by nine digits or so in *float64*, which has nine more. It does. A real difference would stay.

# %% [markdown] slide="slide"
# ## Four ways to get it wrong
#
# The first row is right, the other four are not. None of them crashes: the network trains, but on something else.

# %% [markdown] slide="notes"
# The last micro-batch is smaller here, as it is at the end of most data sets: 40, 40, 40 and 8 images.

# %% folded=true
uneven = list(torch.arange(128).split(40))
model = network().double()
right = gradient(model, whole)
mistakes = {
    "each mean weighed by its share": gradient(model, uneven),
    "mean of means: each by a quarter": gradient(model, uneven, [1 / 4] * 4),
    "nothing divided": gradient(model, uneven, [1.0] * 4),
    "zero_grad in the loop": gradient(model, uneven[-1:]),
    "zero_grad never: two steps in one": gradient(model, uneven) + right,
}
rows = {
    name: (f"{made.norm() / right.norm():.2f}", f"{100 * off(made, right):.0f} %")
    for name, made in mistakes.items()
}
pd.DataFrame.from_dict(rows, orient="index", columns=["length", "off by"])

# %% [markdown]
# The length is that of the gradient, the right one being 1.

# %% [markdown] slide="notes"
# In the mean of means, each of the last 8 images counts five times as much as any other. "Nothing divided" is four
# times that: with plain SGD, a learning rate four times as large. Adam divides by the gradient's own size and hides it,
# until clipping meets a gradient of another scale.

# %% [markdown] slide="slide"
# ## The layer that sees the batch
#
# *Batch norm* subtracts the mean of the batch and divides by its standard deviation.

# %% [markdown] slide="notes"
# So its output for one image depends on which others are in the batch, and a micro-batch of 32 has other statistics
# than the batch of 128.

# %% tags=["nbval-ignore-output"] folded=true
norms = {
    "none": lambda: None,
    "batch norm": lambda: nn.BatchNorm2d(16),
    "batch norm, eval mode": lambda: nn.BatchNorm2d(16).eval(),
    "group norm": lambda: nn.GroupNorm(4, 16),
}
rows = {}
for name, norm in norms.items():
    rows[name] = []
    for dtype in (torch.float32, torch.float64):
        model = network(norm()).to(dtype)
        rows[name].append(f"{off(gradient(model, quarters), gradient(model, whole)):.0e}")
pd.DataFrame.from_dict(rows, orient="index", columns=["off by, float32", "off by, float64"])

# %% [markdown] slide="subslide"
# Batch norm is off by as much in float64 as in float32, so this is no rounding. Here is what it sees:

# %%
at_once, in_four = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
with torch.no_grad():
    maps = network()[0](images)
    among_128 = at_once(maps)[0]
    among_32 = torch.cat([in_four(maps[part]) for part in quarters])[0]
deviations = [float(maps[part].std(dim=(0, 2, 3))[3]) for part in [*whole, *quarters]]
print(f"standard deviation of channel 3 over 128 images: {deviations[0]:.3f}")
print(f"over each micro-batch: {', '.join(f'{one:.3f}' for one in deviations[1:])}")
print(f"the first image's output moves by up to {(among_128 - among_32).abs().max():.3f}")
print(f"running statistics updated {at_once.num_batches_tracked} time at once,", end=" ")
print(f"{in_four.num_batches_tracked} times in micro-batches")

# %% [markdown] slide="notes"
# The *running statistics*, which eval mode uses, differ too: they move once for each micro-batch, so they forget four
# times as fast. With batch norm, then, accumulation is training with the statistics of 32 images. Often that is good
# enough; it is never the same. It is exact again with norms that look at one sample (group norm, layer norm), and with
# batch norm in eval mode, as when a pretrained network is fine-tuned.

# %% [markdown] slide="slide"
# ## What does accumulation cost in memory?
#
# A batch of 128 is wanted, as two micro-batches of 64.

# %% [markdown] slide="notes"
# Is the peak that of 64?

# %%
guess_peak = predict(
    f"VGG-16 with a batch of 64 peaks at {format_bytes(small.peak_bytes)}. "
    "Two such micro-batches are accumulated before the update. What is the peak of that step?",
    unit="GiB",
)
guess_peak

# %% [markdown] slide="subslide"
# By hand: in a plain step the weight gradients come one by one in the backward pass, while maps go.

# %% [markdown] slide="notes"
# In the second micro-batch *all* of them are there from its first layer on, 4 bytes a parameter. And each new gradient
# exists beside the old one until it has been added.

# %%
vgg_twice = traced(networks.vgg16, accumulate=2, name="VGG-16").at(64)
everything = 4 * 138_357_544
largest_layer = 4 * (25_088 * 4_096 + 4_096)  # fc6
forward = small.timeline().query("phase == 'forward'")
all_maps = forward.iloc[-1]["total"]  # and no weight gradient yet

# %% folded=true
reveal(
    guess_peak,
    {
        "a batch of 64": small.peak_bytes / GIB,
        "by hand": (all_maps + everything + largest_layer) / GIB,
        "trace": vgg_twice.peak_bytes / GIB,
        "a batch of 128": large.peak_bytes / GIB,
    },
    against="trace",
    thoughts=[
        (
            small.peak_bytes / GIB,
            "That is one micro-batch alone. The second finds the first one's gradients.",
        ),
        (
            (small.peak_bytes + everything) / GIB,
            "You put all gradients on top of the peak. Most of them were in it already.",
        ),
        (
            large.peak_bytes / GIB,
            "That is 128 at once. The first micro-batch's maps go before the second.",
        ),
    ],
)

# %% slide="subslide"
extra = vgg_twice.peak_bytes - small.peak_bytes
skyline(
    vgg_twice,
    limit_bytes=12 * GIB,
    before=large,
    before_name="128 at once",
    title="VGG-16, 2 × 64: the second micro-batch stands on the gradients of the first, "
    f"{format_bytes(extra)} more",
)

# %% [markdown]
# The peak has moved to the layer with the largest weight, fc6: there its old gradient and its new one are alive
# together, while gradient maps are still small.

# %% [markdown] slide="notes"
# A third micro-batch is like the second, and needs no more.

# %% [markdown] slide="slide"
# ## Measure
#
# AlexNet, here, in three steps for real: 8 images at once, 4, and 2 × 4. Most of its parameters are in dense layers.

# %% tags=["nbval-ignore-output"]
cuts = {"8 at once": (8, 1), "4 at once": (4, 1), "2 × 4": (4, 2)}
rows = []
for name, (batch, parts) in cuts.items():
    measured = measure_step(networks.alexnet(), (3, 224, 224), 1000, batch, accumulate=parts)
    target = "cpu" if measured.device == "cpu" else "cuda"
    trace = traced(networks.alexnet, accumulate=parts, target=target).at(batch).peak_bytes
    sizes = format_bytes(trace), format_bytes(measured.peak_bytes)
    rows.append((name, *sizes, f"{100 * (measured.peak_bytes / trace - 1):+.1f} %"))
pd.DataFrame(rows, columns=["AlexNet", "trace", "measured", "difference"]).set_index("AlexNet")

# %% [markdown] slide="notes"
# What the measured step needs beyond the trace is scratch memory of the kernels, which no tensor shows. And the table
# shows a surprise: accumulation is meant to save memory, and 2 × 4 needs *more* than 8 at once. The gradients that it
# keeps alive weigh more than the maps of four images.

# %% [markdown] slide="slide"
# ## What does it cost in time?
#
# Two things: each image costs as much as in the smaller batch, and each micro-batch reads and writes all gradients to
# add them up.

# %% [markdown] slide="notes"
# Here are four ways to cut a batch of 256, predicted for a Titan X:

# %% folded=true
rows = []
for name in ("VGG-16", "ResNet-50", "52 M dense net"):
    known = networks.NETWORKS[name]
    with torch.device("meta"):
        model = known.build()
    steps = accumulation(model, known.input_shape, known.classes, name=name)
    cuts = {cut.micro: cut for cut in steps.cuts(256, device(TITAN))}
    for micro in (256, 64, 16, 4):
        cut = cuts[micro]
        lost = cut.seconds / cuts[256].seconds - 1
        how, peak = f"{cut.parts} × {micro}", format_bytes(cut.peak_bytes)
        rows.append((name, how, peak, f"{100 * lost:+.1f} %"))
columns = ["network", "256 as", "peak", "time"]
pd.DataFrame(rows, columns=columns).set_index(columns[:2])

# %% [markdown]
# For the convolutional networks, micro-batches of a quarter cost next to no time.

# %% [markdown] slide="notes"
# For the dense one, accumulation loses on both counts. Remember from the table of 2017 that real small batches lose
# more time than this model says.

# %% [markdown] slide="slide"
# ## And learning?
#
# The batch is also a choice of how to learn.

# %% [markdown] slide="notes"
# We train small networks on real digits, in two comparisons that are often confused: at the same number of *epochs*, or
# at the same number of *updates*.


# %% slide="skip" folded=true
def small_network():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)),
    )


def learn(batch, parts=1, epochs=3, rate=1e-3):
    variants = {"": Variant(small_network, batch, parts)}
    row = compare(variants, epochs, seeds=(0, 1), side=8, rate=rate).iloc[0]
    mean, *ends = (f"{100 * row[what]:.1f} %" for what in ("accuracy", "lowest", "highest"))
    accuracy = f"{mean} ({' to '.join(ends)})"
    name = f"{parts} × {batch}" if parts > 1 else f"{batch}"
    updates = epochs * (1297 // (batch * parts))
    return name, epochs, updates, rate, format_bytes(row["measured peak"]), accuracy


# %% tags=["nbval-ignore-output"]
runs = [learn(16), learn(64), learn(16, parts=4), learn(256)]
runs += [learn(16, epochs=1), learn(256, epochs=12), learn(256, rate=4e-3)]
columns = ["batch", "epochs", "updates", "rate", "measured peak", "accuracy (and range)"]
pd.DataFrame(runs, columns=columns).set_index("batch")

# %% [markdown] slide="notes"
# Read three things from the table.
#
# - 4 × 16 learns what 64 learns, in the memory of 16 and a little: the promise of accumulation, kept.
# - At equal *epochs* (3) the large batch is behind. It was given fewer updates. At equal *updates* (60, and 81 for the
#   smallest) it is ahead; it saw more images. Neither comparison says that one batch is better.
# - With a larger learning rate, most of the gap at equal epochs goes. A rate that is tuned for one batch is not tuned
#   for another; rules such as "twice the batch, twice the rate" are starting points, and no more than that.
#
# Two seeds and 500 test images: differences of a percent or two are noise.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **which batch, and how do I get there?**

# %% [markdown] slide="notes"
# Choose a network, a card and the batch you want. Each point is a way to cut it: up is memory, right is time. Hollow
# points do not fit. The words below say whether a point under the line is *tight*.

# %% tags=["nbval-ignore-output"]
batch_explorer()

# %% [markdown] slide="notes"
# Try three things. Find the best way to a batch of 1,024 on the GTX 980, which has 4 GiB. Switch to the dense net:
# which way is the curve now? Take Adam: what does accumulation add to VGG-16 in small micro-batches, and why?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# On the GTX 980 micro-batches of 16 are the largest that fit; 64 of them cost 3 % of time against the whole batch at
# once, if that fitted. The dense net's curve runs the other way: every cut needs more memory than the batch at once,
# since its gradients outweigh its maps. With Adam and micro-batches of 2 accumulation adds next to nothing: there the
# peak stands in the update, where all gradients are alive anyway. From 8 on the backward pass is the peak again.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from articles and courses of 2016 and 2017, in our words.

# %% [markdown] slide="notes"
# The verdicts are computed from the traces and from the published times: see `lessons/batch_size/claims.py`, and
# `lessons/why_gpus/claims.py` for 54 and 55.

# %%
judge([26, 54, 55, 79, 80])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Maps scale with the batch; parameters, their gradients and the optimizer's state do not.
# 2. Accumulation gives the update of the large batch, up to rounding, unless a layer looks at the batch.
# 3. The batch for learning and the batch for the card are two choices.

# %% [markdown] slide="notes"
# Half the batch saves less than half, and each halving less than the last. Accumulation costs the gradients' bytes
# during the forward pass, and time: little for convolutions, much for dense layers. Time for each image falls with the
# batch until the device is saturated.
#
# Now the exercise: [exercises/07_batch_size.ipynb](../exercises/07_batch_size.ipynb). {questions}. Save,
# then `course check 07` gives your marks.
