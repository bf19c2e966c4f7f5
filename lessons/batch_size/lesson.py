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
# **The question:** a batch that does not fit your card can go through it in pieces. Is that the same training step, and
# what does it cost?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. send a batch through the card in pieces, and prove that the update is the same;
# 2. recognise a loop that runs, trains, and makes another update;
# 3. say which layer makes pieces differ, whatever the loop;
# 4. say what a smaller batch saves, from two measurements;
# 5. say what pieces cost, in bytes and in seconds.
#
# About 105 minutes, and {minutes} for the exercise. It builds on lesson 03 (the skyline, what is alive at the peak)
# and, for the times, on the roofline of lesson 01. No GPU is needed.

# %% slide="skip" folded=true
import textwrap
from dataclasses import replace

import pandas as pd
import torch
from IPython.display import HTML
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import side_by_side, skyline
from course_utils.machine.hardware import device
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes
from lessons.batch_size.accumulation import accumulation
from lessons.batch_size.explorer import batch_explorer
from lessons.claims import judge
from lessons.shared import digits
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant, compare
from lessons.shared.published import CAFFE2, published

TITAN = "Titan X (Maxwell)"
torch.set_num_threads(1)  # networks this small gain nothing from more, and times are steadier

# %% [markdown] slide="slide"
# ## Two losses that should be equal
#
# In October 2024 it was reported that the same batch gave two losses: one when it was processed at once, another in
# pieces.

# %% [markdown] slide="notes"
# And this was no beginner's code. It was the `Trainer` of Hugging Face's Transformers. On paper the two losses are
# equal, as its authors say in *Fixing Gradient Accumulation* (Hugging Face blog, October 2024). In this lesson you find
# the mistake, and you find out what else pieces change.
#
# A language model's loss is given in *nats*: its logarithms are natural ones. Here is the batch of one update:

# %% slide="subslide"
guess = predict(
    "A batch of text goes through in two pieces. The first has 900 tokens and a mean loss of "
    "1.2, the second has 100 tokens and a mean loss of 3.2. What is the loss of the batch?",
    unit="nats",
)
guess

# %% [markdown] slide="slide"
# ## One update, in pieces
#
# The loss of a batch is the mean over its samples. The gradient of a mean is the mean of the gradients.

# %% [markdown] slide="notes"
# So split the batch into pieces, *micro-batches*. Run forward and backward for each, let the gradients add up, and
# update once. This is *gradient accumulation*:

# %% [markdown]
# ```python
# optimizer.zero_grad()
# for x, y in micro_batches:
#     loss = F.cross_entropy(model(x), y) / len(micro_batches)
#     loss.backward()                # adds to .grad, and frees the maps
# optimizer.step()
# ```

# %% [markdown] slide="notes"
# By hand: the losses 2, 4, 6, 8 have the mean 5. Two micro-batches have the means 3 and 7, and half of each adds up to
# 5. That works for equal pieces. Were the pieces in your guess equal?

# %% slide="subslide" folded=true
tokens, means = (900, 100), (1.2, 3.2)
mean = sum(n * loss for n, loss in zip(tokens, means, strict=True)) / sum(tokens)
reveal(
    guess,
    {"all tokens alike": mean, "mean of means": sum(means) / 2},
    against="all tokens alike",
    thoughts=[
        (sum(means) / 2, "That is the mean of the means, which the Trainer would have taken."),
        (sum(means), "That is the sum of the means. A loss of a batch is a mean."),
        (means[0], "That is the first piece alone. The second has a tenth of the tokens."),
        (means[1], "That is the last piece alone."),
    ],
)

# %% [markdown]
# Every token must count the same, so 1.4 nats is right. The `Trainer` would have taken the mean of the means, 2.2,
# and so does the loop above: it divides by the number of pieces.

# %% [markdown] slide="subslide"
# With equal pieces the mistake does not show. We compare the gradient of 128 digits at once with that of 4 × 32, accumulated. The
# difference is given as a share of the gradient's length, its norm.


# %%
def network(norm=None):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), norm or nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10))


images, labels, _, _ = digits.images()
images, labels = images[:128], labels[:128]


def gradient(model, parts):
    """All gradients of a model in one vector, accumulated over equal parts of the digits."""
    model.zero_grad()
    x = images.to(model[0].weight.dtype)
    for part in parts:
        (F.cross_entropy(model(x[part]), labels[part]) / len(parts)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def off(one, whole):
    return float((one - whole).norm() / whole.norm())


whole = [torch.arange(128)]
quarters = list(torch.arange(128).split(32))

# %% tags=["nbval-ignore-output"]
for dtype in (torch.float32, torch.float64):
    model = network().to(dtype)
    share = off(gradient(model, quarters), gradient(model, whole))
    print(f"{dtype}: the two differ by {share:.0e} of the gradient's length")

# %% [markdown] slide="notes"
# The difference is not exactly zero: adding the same numbers in another order rounds in other places. How do we know
# that it is rounding? *float64* has nine more decimal digits. Rounding must shrink by about as many, and it does. A
# real difference would stay.

# %% [markdown] slide="slide"
# ## Five loops, one right
#
# All five run without an error. Each lies between `optimizer.zero_grad()` and `optimizer.step()`.

# %% [markdown] slide="notes"
# Here `batch` is the labels of the whole batch, `len(y)` the samples of a micro-batch, and `counted(y)` those of its
# labels that are not −100. PyTorch's cross-entropy leaves out labels of −100; a language model's padding is given this
# label. There are three batches to get right, all of 128 images:
#
# - *equal*: four micro-batches of 32;
# - *last one smaller*: 40, 40, 40 and 8, as at the end of most data sets;
# - *padded*: four micro-batches of 32, of which 32, 24, 12 and 4 have a label that counts.

# %% [markdown]
# ```python
# def mean(x, y):
#     return F.cross_entropy(model(x), y)  # labels of −100 do not count
#
# for x, y in micro_batches:               # loop 1
#     (mean(x, y) / len(micro_batches)).backward()
#
# for x, y in micro_batches:               # loop 2
#     (mean(x, y) * len(y) / len(batch)).backward()
#
# for x, y in micro_batches:               # loop 3
#     (mean(x, y) * counted(y) / counted(batch)).backward()
#
# for x, y in micro_batches:               # loop 4
#     mean(x, y).backward()
#
# for x, y in micro_batches:               # loop 5
#     optimizer.zero_grad()
#     (mean(x, y) * counted(y) / counted(batch)).backward()
# ```


# %% folded=true
def counted(y):
    return int((y != -100).sum())


padded = labels.clone()
for part, kept in zip(quarters, (32, 24, 12, 4), strict=True):
    padded[part[kept:]] = -100
uneven = list(torch.arange(128).split(40))
BATCHES = {
    "equal": (quarters, labels),
    "last one smaller": (uneven, labels),
    "padded": (quarters, padded),
}
FACTORS = {
    1: lambda y, batch, parts: 1 / parts,
    2: lambda y, batch, parts: len(y) / len(batch),
    3: lambda y, batch, parts: counted(y) / counted(batch),
    4: lambda y, batch, parts: 1,
    5: lambda y, batch, parts: counted(y) / counted(batch),
}


def looped(number, parts, batch):
    """The gradient that a loop hands to the optimizer, in float64."""
    model = network().double()
    for part in parts:
        if number == 5:
            model.zero_grad()
        loss = F.cross_entropy(model(images[part].double()), batch[part])
        (loss * FACTORS[number](batch[part], batch, len(parts))).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def errors(number):
    """Batch -> by what share a loop's gradient is off."""
    return {
        name: off(looped(number, parts, batch), looped(3, [torch.arange(128)], batch))
        for name, (parts, batch) in BATCHES.items()
    }


def choose(number):
    """Say how far off the loop is that somebody chose."""
    if number not in FACTORS:
        print("Write 1, 2, 3, 4 or 5 in place of 0, and run the cell again.")
        return
    for name, share in errors(number).items():
        said = "the same, to rounding" if share < 1e-12 else f"off by {100 * share:.0f} %"
        print(f"loop {number}, {name}: {said}")


# %% tags=["change"]
my_loop = 0  # change this to the loop that is right for all three batches, before you read on
choose(my_loop)

# %% slide="subslide" folded=true
rows = {
    f"loop {number}": {
        name: f"{100 * share:.0f} %" if share > 1e-12 else "right"
        for name, share in errors(number).items()
    }
    for number in FACTORS
}
table = pd.DataFrame(rows).T.rename_axis("gradient off by").to_html()
HTML(f"<details><summary>All five: choose, then open this</summary>{table}</details>")

# %% [markdown]
# Loop 1 is the `Trainer`'s. A test in which all micro-batches have equally many labels that count cannot find its
# mistake.

# %% [markdown] slide="notes"
# Texts differ in length, so micro-batches with equally many texts do not have equally many tokens, and where a
# micro-batch is short, each of its tokens weighs more. Transformers' issue 24725 described it in July 2023. In
# October 2024 the makers of Unsloth, too, reported it; the authors of the `Trainer` then wrote that the loss has to
# be the sum over all micro-batches, divided by the number of tokens that are not padding, and changed the code for
# their most popular models (pull request 34191). That is loop 3.
#
# Loop 2 weighs by samples, which is right where every sample has a label. Loop 4 divides by nothing, loop 5 keeps the
# last micro-batch alone. Where a micro-batch holds nothing but padding, loop 3 still makes the right
# update, but reports nan: a mean of nothing is nan, and 0 · nan too. A check for nan then stops on it. It is safer to
# add up and to divide by all that counts:

# %%
scores, padding = torch.zeros(4, 10), torch.full((4,), -100)
total = F.cross_entropy(scores, padding, reduction="sum") / counted(padded)
print(f"loop 3: {F.cross_entropy(scores, padding) * 0 / counted(padded):.0f}", end=", ")
print(f"sum: {total:.0f}")

# %% [markdown] slide="slide"
# ## The layer that sees the batch
#
# *Batch norm* takes each channel's mean over all images and positions of the batch, subtracts it from the channel's
# values, and divides them by the standard deviation.

# %% [markdown] slide="notes"
# So its output for one image depends on the other images, and a micro-batch of 32 has other statistics than the batch
# of 128. We compare again with the right loop:

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
# With batch norm the difference is as large in float64 as in float32, so it is not rounding. Here is what the layer
# sees, for channel 3 of its 16:

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
# The *running statistics*, which eval mode uses, move once for each micro-batch, four times instead of once. With batch
# norm, then, accumulation is training with the statistics of 32 images. In eval mode, as when a pretrained network is
# fine-tuned with its statistics frozen, batch norm no longer looks at the batch. Group norm looks at one sample at a
# time. Both rows are down to rounding. Whether 2 % of a gradient matters for what is learned is not measured here.

# %% [markdown] slide="slide"
# ## What a smaller batch saves
#
# Pieces are worth their trouble only if a small batch needs much less memory than a large one.

# %% [markdown] slide="notes"
# Here is VGG-16 with a batch of 128 as 4 × 32: forward and backward pass, four times, and the update. After each piece
# its maps are gone; what stays are the gradients. (The spikes at `fc6` come back below.)

# %% slide="subslide" folded=true
def traced(builder, optimizer="momentum", **options):
    with torch.device("meta"):  # shapes without numbers
        model = builder()
    return training_step(model, (3, 224, 224), 1000, optimizer, **options)


vgg = traced(networks.vgg16, name="VGG-16")
large = vgg.at(128)
in_pieces = traced(networks.vgg16, accumulate=4, name="VGG-16").at(32)
skyline(
    in_pieces,
    before=large,
    before_name="128 at once",
    title=f"VGG-16, 128 images: {format_bytes(large.peak_bytes)} at once, "
    f"{format_bytes(in_pieces.peak_bytes)} as 4 × 32",
)

# %% slide="subslide"
guess_peak = predict(
    f"VGG-16 with a batch of 128 peaks at {format_bytes(large.peak_bytes)}. A batch of 8 has "
    "a sixteenth of the images. What is its peak?",
    unit="GiB",
)
guess_peak

# %% [markdown] slide="subslide"
# What is alive at the peak either grows in proportion to the batch or does not depend on it. The second is the *fixed
# part*. Two measurements tell the two apart, if the peak is at the same moment in both.

# %%
medium = vgg.at(64)
per_image = (large.peak_bytes - medium.peak_bytes) / 64
fixed = large.peak_bytes - 128 * per_image
print(
    f"batch 128: {format_bytes(large.peak_bytes)}, batch 64: {format_bytes(medium.peak_bytes)}"
)
print(f"for each image {format_bytes(per_image)}, fixed {format_bytes(fixed)}")
print("the peak is at", ", ".join(f"{vgg.at(n).peak_layer} for {n}" for n in (128, 64, 8)))

# %% folded=true
small = vgg.at(8)
parameters = 4 * 138_357_544
reveal(
    guess_peak,
    {"by hand": (fixed + 8 * per_image) / GIB, "trace": small.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (
            large.peak_bytes / 16 / GIB,
            "That is a sixteenth. Parameters, their gradients and momentum do not shrink.",
        ),
        (
            large.peak_bytes / 2 / GIB,
            "Half? There are sixteen times fewer images, and most of the peak is their maps.",
        ),
        (
            (3 * parameters + large.peak_bytes / 16) / GIB,
            "Nearly. You added what is fixed, but a sixteenth of it is in the other term too.",
        ),
        (
            3 * parameters / GIB,
            "Those are parameters, gradients and momentum. Eight images have maps, too.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# Parameters, their gradients and momentum do not shrink, so each halving of the batch takes a smaller share off the
# peak than the one before. And how much is fixed depends on the network.

# %% folded=true
halvings = [256, 128, 64, 32, 16, 8]
less = [
    f"{100 * (1 - vgg.at(half).peak_bytes / vgg.at(2 * half).peak_bytes):.0f} %"
    for half in halvings[1:]
]
print(f"VGG-16 from {' to '.join(map(str, halvings))}: saves {', '.join(less)}")
steps = {}
for name, known in networks.NETWORKS.items():
    with torch.device("meta"):
        model = known.build()
    steps[name] = accumulation(model, known.input_shape, known.classes, name=name)
halves = {
    name: 100 * (1 - step.plain.at(64).peak_bytes / step.plain.at(128).peak_bytes)
    for name, step in steps.items()
}
side_by_side(
    {name: round(share) if share >= 1 else round(share, 2) for name, share in halves.items()},
    unit="%",
    title=f"Halving a batch of 128 saves from {min(halves.values()):.2f} % "
    f"to {max(halves.values()):.0f} % of the peak",
)

# %% [markdown] slide="notes"
# GoogLeNet and ResNet-50 are nearly all maps. The dense net is nearly all parameters: for memory, its batch size
# hardly matters.
#
# The batch can also move the peak to another moment of the step. Then two measurements lie on two lines, and the line
# through them is wrong. So check that the peak is at the same layer in both, and, by a trace, at the batch you predict.
# AlexNet does not pass:

# %%
moving = steps["AlexNet"].plain
at = [f"{moving.at(batch).peak_layer} for {batch}" for batch in (128, 64, 32, 8)]
print("AlexNet peaks at", ", ".join(at))

# %% [markdown] slide="slide"
# ## What pieces cost in memory
#
# AlexNet, a batch of 8 images. This is alive at its peak:

# %%
alexnet = steps["AlexNet"]
eight, four, two_fours = alexnet.ledger(8, 1), alexnet.ledger(4, 1), alexnet.ledger(4, 2)
weights, fc6 = 61_100_840, 9_216 * 4_096 + 4_096
print(f"{weights:,} parameters")
for role, size in eight.by_role().items():
    if size >= 0.01 * MIB:
        print(f"{role:17}{size / MIB:8.2f} MiB")

# %%
guess_pieces = predict(
    f"At once, 8 images peak at {eight.peak_bytes / MIB:.1f} MiB. Now they go through as "
    "2 × 4, accumulated before the update. What is the peak of that step?",
    unit="MiB",
)
guess_pieces

# %% slide="subslide" folded=true
by_hand = 4 * (3 * weights + fc6)
reveal(
    guess_pieces,
    {
        "8 at once": eight.peak_bytes / MIB,
        "by hand": by_hand / MIB,
        "trace, 2 × 4": two_fours.peak_bytes / MIB,
    },
    against="trace, 2 × 4",
    thoughts=[
        (
            eight.peak_bytes / 2 / MIB,
            "Half of everything. But AlexNet at batch 8 is mostly parameters, which stay.",
        ),
        (
            four.peak_bytes / MIB,
            "That is 4 images alone. The second four find the gradients of the first.",
        ),
        (
            eight.peak_bytes / MIB,
            "The same? Fewer maps are alive, but more gradients, and the two do not cancel.",
        ),
        (
            2 * eight.peak_bytes / MIB,
            "Twice? The maps of the first four are gone before the next four come.",
        ),
        (
            (four.peak_bytes + 4 * weights) / MIB,
            "You put all gradients on top of the peak. Most of them were in it already.",
        ),
    ],
)

# %% [markdown]
# In a plain step, weight gradients appear one by one in the backward pass, while maps go.

# %% [markdown] slide="notes"
# In the second micro-batch all gradients of the first are there from the start. Each layer then makes its gradient anew
# and adds it to the old one. For that moment the layer has both. The largest layer is `fc6`, so by hand:

# %%
print(f"weights, momentum, gradients: 3 × {format_bytes(4 * weights)}")
print(f"gradient of fc6's {fc6:,} parameters once more: {format_bytes(4 * fc6)}")
small_roles = ["feature maps", "input", "gradient maps", "workspace"]
rest = two_fours.by_role()[small_roles]
missing = ", ".join(f"{role} {size / MIB:.2f}" for role, size in rest.items())
print(f"not counted by hand: {missing} MiB")

# %% slide="subslide"
extra = two_fours.peak_bytes - eight.peak_bytes
skyline(
    two_fours,
    before=eight,
    before_name="8 at once",
    title=f"AlexNet: 2 × 4 needs {extra / MIB:.0f} MiB more than 8 at once",
)

# %%
# role by role, each step at its own peak
change = two_fours.by_role() - eight.by_role()
for role, size in [*change.items(), ("together", extra)]:
    if abs(size) >= 0.01 * MIB:
        print(f"{role:17}{size / MIB:+8.2f} MiB")

# %% [markdown] slide="notes"
# Accumulation is meant to save memory, and here it needs more. Of the 145.28 MiB of gradients, 144.02 are `fc6`'s
# second one. That the others wait costs only 1.26 MiB: at the peak of the plain step nearly all gradients are
# there as well. Halving the maps saves less than `fc6` costs.
#
# So as a rule of thumb for a peak in the backward pass, pieces pay where they save more of the maps than the gradient
# of the largest layer. A third micro-batch needs no more than the second:

# %% slide="subslide"
three_fours = traced(networks.alexnet, accumulate=3).at(4)
print(f"AlexNet: 3 × 4 {format_bytes(three_fours.peak_bytes)}", end=", ")
print(f"2 × 4 {format_bytes(two_fours.peak_bytes)}")

# %% tags=["change"]
# Change name and batch: from which batch on do two halves of AlexNet need less than the whole?
name, batch = "AlexNet", 32
at_once, in_two = steps[name].ledger(batch, 1), steps[name].ledger(batch // 2, 2)
print(f"{name}: {batch} at once {format_bytes(at_once.peak_bytes)}", end=", ")
print(f"2 × {batch // 2} {format_bytes(in_two.peak_bytes)}")

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Cut in two, a batch of 64 needs 31 MiB more than at once; a batch of 96 needs 30 MiB less. VGG-16 has fewer parameters
# for its maps: two halves need more than 8 at once, and less than 16.
#
# </details>

# %% [markdown] slide="subslide"
# Does a real step need more in pieces, too? AlexNet, measured here:

# %% tags=["nbval-ignore-output"] folded=true
cuts = {"8 at once": (8, 1), "4 at once": (4, 1), "2 × 4": (4, 2)}
rows, peaks = [], {}
for name, (batch, parts) in cuts.items():
    measured = measure_step(networks.alexnet(), (3, 224, 224), 1000, batch, accumulate=parts)
    target = "cpu" if measured.device == "cpu" else "cuda"
    trace = traced(networks.alexnet, accumulate=parts, target=target).at(batch).peak_bytes
    peaks[name] = measured.peak_bytes
    sizes = format_bytes(trace), format_bytes(measured.peak_bytes)
    rows.append((name, *sizes, f"{100 * (measured.peak_bytes / trace - 1):+.1f} %"))
change = peaks["2 × 4"] - peaks["8 at once"]
more = "more" if change > 0 else "less"
print(f"2 × 4 needs {format_bytes(abs(change))} {more} than 8 at once.")
pd.DataFrame(rows, columns=["AlexNet", "trace", "measured", "difference"]).set_index("AlexNet")

# %% [markdown] slide="notes"
# (Without a GPU there is no *workspace*, memory that cuBLAS sets aside, so the traces are a little smaller than above.)

# %% [markdown] slide="slide"
# ## What pieces cost in time
#
# If a GPU's time shrinks in proportion to the batch, pieces cost nothing. If it needs the same time for 16 images as
# for 128, eight pieces of 16 take eight times as long as one batch of 128.

# %% [markdown] slide="notes"
# The notes of Caffe2 (2017) time Inception on a Titan X with 12 GB, forward and backward, at four batches. From them
# follows what 128 images cost in pieces, the additions of gradients not counted. The last column is what the course's
# model predicts (lesson 01: launches and a roofline).

# %% folded=true
times = {row.batch: row for row in published("GoogLeNet", source=CAFFE2)}
googlenet = steps["GoogLeNet"].plain
modelled = {
    batch: predict_step(googlenet.at(batch), TITAN).by_phase()[["forward", "backward"]].sum()
    for batch in times
}
rows = []
for batch, row in sorted(times.items(), reverse=True):
    parts = 128 // batch
    dearer = parts * row.both_ms / times[128].both_ms - 1
    said = parts * modelled[batch] / modelled[128] - 1
    rows.append(
        ("128 at once" if parts == 1 else f"{parts} × {batch}", f"{row.both_ms:.1f}",
         f"{row.per_sample_ms:.2f}", f"{100 * dearer:+.0f} %", f"{100 * said:+.0f} %")
    )  # fmt: skip
columns = ["128 as", "ms a piece", "ms an image", "128 images take", "modelled"]
pd.DataFrame(rows, columns=columns).set_index("128 as")

# %% [markdown]
# Smaller pieces lose time, more than the model predicts.

# %% [markdown] slide="notes"
# (Caffe2's `convnet_benchmarks.py`, which has these times, defines its Inception as GoogLeNet. It ran on cuDNN 4, and
# computed the images' gradient too, which a training step does not need.)
#
# At 8 × 16 the notes lose 29 %, the model 6 %. The model misses most of the loss; what follows explains only the part
# that it has. It knows two reasons why a piece costs more than its share: each micro-batch launches every kernel again,
# and each reads all the weights and adds to all the gradients, however few its samples. The table removes the first
# reason, then the second, then both. It compares 4 × 16 with 64 at once, with the update and the adding up of gradients:

# %% slide="subslide" folded=true
titan = device(TITAN)
free, endless = {"launch_seconds": 0.0}, {"bandwidth_gb_s": 1e9}
cards = {
    "as the card is": {},
    "free launches": free,
    "endless bandwidth": endless,
    "both": {**free, **endless},
}
rows = {}
for name in ("GoogLeNet", "AlexNet", "52 M dense net"):
    rows[name] = {}
    for what, changed in cards.items():
        card = replace(titan, name=what, **changed)
        once, pieces = (steps[name].cut(64 // parts, parts, card).seconds for parts in (1, 4))
        rows[name][what] = f"{100 * (pieces / once - 1):+.0f} %"
whole, eighths = (steps["GoogLeNet"].cut(128 // n, n, titan).seconds for n in (1, 8))
print(f"GoogLeNet, 8 × 16, additions and update counted: {100 * (eighths / whole - 1):+.0f} %")
pd.DataFrame(rows).T.rename_axis(f"4 × 16 on a {TITAN}, against 64 at once")

# %% [markdown]
# In the model GoogLeNet, with many small layers, loses by its launches: if they were free, 1 % would be left. (With
# endless bandwidth they are as long, and the step is shorter: 8 % become 9.) The dense net, with many weights, loses by
# bandwidth, and far more. AlexNet is between them.

# %% [markdown] slide="slide"
# ## And learning?
#
# So the batch for the card and the batch for the update are two choices. If the loss is a sum over samples, no layer mixes
# samples, and nothing is drawn at random, only the second one changes what is learned.

# %% [markdown] slide="notes"
# We train a small network with Adam on real digits:


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
runs = [learn(64), learn(16, parts=4), learn(256)]
runs += [learn(256, epochs=12), learn(256, epochs=12, rate=3e-3)]
runs += [learn(64, rate=3e-3), learn(256, rate=3e-3)]
columns = ["batch", "epochs", "updates", "rate", "measured peak", "accuracy (and range)"]
pd.DataFrame(runs, columns=columns).set_index("batch")

# %% [markdown] slide="notes"
# As the equal gradients promised, 4 × 16 learns what 64 learns. It does so in less than half the memory. A batch of 256
# is far behind after three epochs, in which it makes a quarter of the updates. After as many updates, in twelve epochs,
# it is ahead of 64 at either rate: for each update it has learned more, and for each image less. A larger rate narrows
# the gap after three epochs: how far can you take 256?

# %% tags=["change", "nbval-ignore-output"]
# Change the rate and run. (Two seeds, up to 3 points apart above: do not read much into less.)
rate = 1e-3
print(learn(256, rate=rate)[-1])

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# About 90 %, at a rate of 2e-2; no more at 3e-2. A batch of 64 reaches about 95 % at 1e-2.
#
# </details>

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **which batch, and how do I get there?**

# %% [markdown] slide="notes"
# Choose a network, a card and the batch you want. Each point is a way to cut it: up is memory, right is predicted time.
# 4 × 16 is four pieces of 16. Hollow points do not fit, and some are *tight*. The words below say which the chosen
# point is.

# %% tags=["nbval-ignore-output"]
batch_explorer()

# %% [markdown] slide="notes"
# Try three things. Find a way to a batch of 1,024 on the GTX 980, which has 4 GiB. Switch to the dense net: which way
# does the curve run now? Take Adam: what does accumulation add to VGG-16 in micro-batches of 2, and why?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# On the GTX 980, 64 at a time do not fit. The sentence names the largest micro-batch that does, and how little time it
# is predicted to lose. The dense net's curve runs the other way: every cut needs more memory than the batch at once,
# since the second gradient of its largest layer outweighs what the cut saves of images and maps. With Adam and
# micro-batches of 2 accumulation adds next to nothing. The plain step then peaks in the update, where all gradients are
# alive anyway; the accumulated step peaks in the backward pass, at almost the same height. Move the micro-batch to 4
# and 8, and the backward pass rises above the update.
#
# </details>

# %% [markdown] slide="skip"
# ## Further: what people believe
#
# Claims from articles and courses of 2016 and 2017, in our words. The verdicts are computed from traces and from
# published times: see `lessons/batch_size/claims.py`, and for 55 `lessons/why_gpus/claims.py`.

# %% slide="skip"
judge([26, 55, 79, 80])

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "GoogLeNet", batches=(16, 32, 64, 128))
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Recap
#
# 1. In pieces, every sample (or token) of the batch has to count the same.
# 2. Maps shrink with the batch. Parameters, their gradients and the optimizer's state do not.
# 3. The batch for the update and the batch for the card are two choices.

# %% [markdown] slide="notes"
# The update is then the same up to rounding, provided that the loss is a sum over samples or tokens, no layer mixes
# samples, and nothing is drawn at random (dropout is). A mean of means is right only where all micro-batches count
# equally many. Batch norm in training mode gives another update, whichever loop you write.
#
# With accumulation all gradients wait, and the largest layer's is there twice for a moment. For a network with many
# parameters and few images that can cost more than it saves. In the notes of Caffe2 pieces lose time.
#
# Now the exercise: [exercises/07_batch_size.ipynb](../exercises/07_batch_size.ipynb). {questions}. Save, then `course
# check 07` gives your marks.
