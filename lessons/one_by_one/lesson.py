# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 05 · 1×1 convolutions
#
# **The question:** what does squeezing channels save, and where?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. write down values and weights of a 1×1 convolution with a pencil;
# 2. say why a squeeze that widens at once costs memory, and how long a network must stay narrow for it to pay;
# 3. tell what a squeeze does to memory from what it does to arithmetic;
# 4. explain why ResNet-50, full of squeezes, needs more memory than ResNet-34, which has none.
#
# About 50 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: feature maps kept, the peak,
# *downstream*. No GPU is needed.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, plane, side_by_side, skyline
from course_utils.figures.style import SERIES_COLOURS
from course_utils.trace import training_step
from course_utils.units import GIB, format_bytes
from lessons.claims import judge
from lessons.one_by_one.explorer import squeeze_explorer
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant, compare
from lessons.shared.layer_changes import layer_changes

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# A *1×1 convolution* (also *pointwise* convolution) looks at one position at a time and mixes its channels: 64
# numbers in, 32 out, the same weights everywhere. A *squeeze* is a 1×1 convolution that puts out fewer channels than
# it reads; papers call it a *reduction* or, with the layer that widens again, a *bottleneck*.

# %%
guess = predict(
    "VGG-16 at batch 128 peaks at 10.3 GiB. Its conv1_2 reads 64 channels "
    "of 224 × 224. Put a 1×1 convolution to 32 channels (and a ReLU) in "
    "front of it, so that it reads half as much. What is the peak now?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand: one squeeze
#
# Maps of 64 × 64 with 256 channels, and 96 kernels of 1×1.
#
# | what | how | number |
# |---|---|---:|
# | values that come in | 64 · 64 · 256 | 1,048,576 |
# | values that come out | 64 · 64 · 96 | 393,216 |
# | fewer by | 1 − 96 / 256 | 62.5 % |
# | weights | 1 · 1 · 256 · 96 | 24,576 |
# | multiply-adds | 64 · 64 · 24,576 | 100,663,296 |

# %% [markdown] slide="notes"
# 24,576 weights are 96 KiB. For each image the map shrinks by 2.5 MiB. A bargain?

# %% slide="subslide"
squeeze = nn.Conv2d(256, 96, kernel_size=1, bias=False, device="meta")
maps = torch.empty(1, 256, 64, 64, device="meta")
values, weights = squeeze(maps).numel(), squeeze.weight.numel()
print(f"{maps.numel():,} values in, {values:,} out, {weights:,} weights")

# %% [markdown]
# Not yet. To compute the gradient of its weights, the 1×1 convolution needs its *input*. So all 1,048,576
# values stay until the backward pass, and 393,216 come on top. Where the squeeze stands, memory rises.

# %% [markdown] slide="slide"
# ## By hand: how long to stay narrow
#
# A run of convolutions with C channels.

# %% [markdown] slide="notes"
# In front of one of them comes a squeeze to m; then k convolutions stay at m channels, and the next one widens to C
# again. Counted in values for each position of the map:

# %% [markdown]
# | | before | after |
# |---|---:|---:|
# | the squeeze | 0 | m |
# | k convolutions | k · C | k · m |
# | the one that widens | C | C |

# %% [markdown] slide="notes"
# The difference is m + k · (m − C). With k = 0 it is always +m: a squeeze that widens at once only **adds** to what
# is kept. With k = 1 it saves if m is below half of C, with k = 2 below two thirds.

# %%
by_hand_added = 4 * 128 * 224 * 224 * 32  # k = 0: the squeezed map of conv1_2, 32 channels
print(f"squeeze before conv1_2, batch 128: {format_bytes(by_hand_added)} more")

# %% [markdown] slide="slide"
# ## Trace


# %%
def squeezed_vgg16(layer, channels, narrow=()):
    """VGG-16 at batch 128, squeezed in front of `layer`; those in `narrow` stay narrow."""
    with torch.device("meta"):
        model = networks.vgg16()
        names = [name for name, part in model.named_children() if isinstance(part, nn.Conv2d)]
        run = names[names.index(layer) :][: len(narrow) + 1]
        reads = model.get_submodule(layer).in_channels
        for name in run:
            outputs = channels if name in narrow else model.get_submodule(name).out_channels
            setattr(model, name, nn.Conv2d(channels, outputs, 3, padding=1))
        parts = {"squeeze": nn.Conv2d(reads, channels, 1), "relu": nn.ReLU()}
        parts["conv"] = model.get_submodule(layer)
        setattr(model, layer, nn.Sequential(OrderedDict(parts)))
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


with torch.device("meta"):
    model = networks.vgg16()
published = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)
at_once = squeezed_vgg16("conv1_2", 32)

# %% folded=true
reveal(
    guess,
    {
        "by hand": (published.peak_bytes + by_hand_added) / GIB,
        "trace": at_once.peak_bytes / GIB,
    },
    against="trace",
    thoughts=[
        (
            published.peak_bytes / GIB,
            "The old peak: the squeezed map is new, and stays until the backward pass.",
        ),
        (
            (published.peak_bytes - by_hand_added) / GIB,
            "Less, by the half that conv1_2 no longer reads. But what it read before is "
            "still kept, for the squeeze.",
        ),
        (
            published.peak_bytes / 2 / GIB,
            "Half of everything: only one map became smaller, and the larger one in front "
            "of it stays.",
        ),
    ],
)

# %% [markdown] slide="slide"
# ## The squeeze comes on top
#
# Layer by layer: one map is new, and no other is smaller. `conv1_2` has half the weights and half the
# arithmetic, and puts out 64 channels as before.

# %%
rise = at_once.peak_bytes - published.peak_bytes
title = f"A squeeze that widens at once adds its map: {format_bytes(rise)} at the peak"
layer_changes(published, at_once, top=8, title=title)

# %% [markdown] slide="slide"
# ## Stay narrow
#
# Now `conv1_2` puts out 32 channels too. Its own map is half, and so is everything that only passes it on: the
# pool with its indices. `conv2_1` reads 32 and widens to 128.

# %%
narrow = squeezed_vgg16("conv1_2", 32, narrow=["conv1_2"])
fall = published.peak_bytes - narrow.peak_bytes
title = (
    f"One layer stays narrow: the peak falls by {format_bytes(fall)}, "
    "in spite of the map that is new"
)
layer_changes(published, narrow, top=8, title=title)

# %% slide="subslide" folded=true
was, now = (format_bytes(step.peak_bytes) for step in (published, narrow))
title = f"1×1 to 32 channels, one layer narrow: {now} in place of {was}"
skyline(narrow, before=published, title=title)

# %% [markdown]
# Half the channels were promised. The peak falls by a few percent: what was made
# before stays, parameters stay, and the next layer that widens ends the saving.

# %% [markdown] slide="slide"
# ## Break even
#
# By hand, one narrow layer pays below half of C, two pay below two thirds.

# %% [markdown] slide="notes"
# Squeeze before `conv3_2` (C = 256) to every width, for zero, one and two narrow layers, and let the trace say where
# each begins to pay:

# %% folded=true
runs = {
    "widens at once": [],
    "one layer narrow": ["conv3_2"],
    "two layers narrow": ["conv3_2", "conv3_3"],
}


def more_at_peak(channels, run):
    return squeezed_vgg16("conv3_2", channels, run).peak_bytes - published.peak_bytes


def break_even(run):
    """The most channels with which the peak is still lower; 0 if there is no such width."""
    saves, costs = 0, 257
    while costs - saves > 1:
        middle = (saves + costs) // 2
        saves, costs = (middle, costs) if more_at_peak(middle, run) < 0 else (saves, middle)
    return saves


widths = (16, 32, 64, 96, 128, 160, 192)
change = {name: [more_at_peak(m, run) / GIB for m in widths] for name, run in runs.items()}
_, one, two = (break_even(run) for run in runs.values())
lowest = min(map(min, change.values())) * 1.1
plane(
    Axis("channels of the squeeze before conv3_2", low=0),
    Axis("GiB more or less at the peak", low=lowest, write=lambda gib: f"{gib:+.4g}"),
    [
        Curve(name, widths, peaks, colour)
        for (name, peaks), colour in zip(change.items(), SERIES_COLOURS, strict=False)
    ],
    limits={"as published": 0.0},
    title=f"One narrow layer pays up to {one} channels of 256, two up to {two}; "
    "widening at once never",
)

# %%
print(f"by hand: below {256 / 2:.0f} and below {2 / 3 * 256:.0f} channels; ", end="")
print(f"by trace: up to {one} and up to {two}")

# %% [markdown] slide="notes"
# One narrow layer crosses where the formula says, within a few channels: the weights that a squeeze saves are in the
# trace and not in the formula. Two narrow layers pay well beyond two thirds: `pool3` behind them passes
# the narrow maps on, with its indices, and is not in the formula either. Widening at once never pays.

# %% [markdown] slide="slide"
# ## What it saves, below its break-even: arithmetic
#
# A 3×3 convolution does 9 multiply-adds for each pair of channels, a 1×1 convolution does 1.

# %% [markdown] slide="notes"
# Where C channels were read and C were put out, the two layers that stand there now cost C · m + 9 · m · C in place of
# 9 · C · C. They are cheaper as long as m is below nine tenths of C. Weights follow the same count.

# %% folded=true
rows = {}
for name, (channels, run) in {
    "as published": (None, []),
    "to 64, widens at once": (64, []),
    "to 64, one layer narrow": (64, ["conv3_2"]),
    "to 64, two layers narrow": (64, ["conv3_2", "conv3_3"]),
    "to 240, widens at once": (240, []),
}.items():
    step = squeezed_vgg16("conv3_2", channels, run) if channels else published
    table = step.by_layer()
    rows[name] = {
        "peak": format_bytes(step.peak_bytes),
        "parameters": f"{table['parameters'].sum():,}",
        "GFLOP forward, one image": f"{table['flops'].sum() / 128e9:.2f}",
    }
pd.DataFrame(rows).T.rename_axis("squeeze before conv3_2")

# %% [markdown]
# The last row is above break-even (240 is more than nine tenths of 256) and costs more of everything.

# %% [markdown] slide="slide"
# ## Where squeezes live: an Inception block
#
# GoogLeNet runs convolutions of several sizes side by side on the same input and joins what they put out.

# %% [markdown] slide="notes"
# Without squeezes the 5×5 branch alone would be expensive: 25 multiply-adds for each pair of channels. So each wide
# kernel has a *reduction* in front of it:

# %% [markdown]
# | branch of block 3a, which reads 192 channels | with reductions | without |
# |---|---|---|
# | 1 | 1×1 to 64 | 1×1 to 64 |
# | 2 | 1×1 to **96**, then 3×3 to 128 | 3×3 to 128 |
# | 3 | 1×1 to **16**, then 5×5 to 32 | 5×5 to 32 |
# | 4 | max pool, then 1×1 to 32 | max pool, then 1×1 to 32 |


# %% folded=true
class Inception(nn.Module):
    """Block 3a of GoogLeNet, with or without its reductions; 192 channels in, 256 out."""

    def __init__(self, reduced):
        super().__init__()

        def conv(inputs, outputs, kernel):
            layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
            return nn.Sequential(layer, nn.ReLU())

        def branch(squeeze, outputs, kernel):
            if not reduced:
                return conv(192, outputs, kernel)
            return nn.Sequential(conv(192, squeeze, 1), conv(squeeze, outputs, kernel))

        pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.branches = nn.ModuleList(
            [
                conv(192, 64, 1),
                branch(96, 128, 3),
                branch(16, 32, 5),
                nn.Sequential(pool, conv(192, 32, 1)),
            ]
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Block(nn.Module):
    """A block between a convolution, which makes its input, and a head."""

    def __init__(self, before, block, after):
        super().__init__()
        self.before, self.block = before, block
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(after, 10))

    def forward(self, x):
        return self.head(self.block(self.before(x)))


def block_row(before, block, after, side):
    """Kept maps, parameters and arithmetic of one block at batch 128."""
    with torch.device("meta"):
        step = training_step(Block(before(), block(), after), (3, side, side), 10).at(128)
    table = step.by_layer()
    of_block = table[table["layer"].str.startswith("block")]
    return {
        "kept": format_bytes(of_block["saved feature maps"].sum()),
        "parameters": f"{of_block['parameters'].sum():,}",
        "GFLOP forward, one image": f"{of_block['flops'].sum() / 128e9:.3f}",
    }


def before(channels):
    return lambda: nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU())


pd.DataFrame(
    {
        "with reductions": block_row(before(192), lambda: Inception(True), 256, 28),
        "without": block_row(before(192), lambda: Inception(False), 256, 28),
    }
).T.rename_axis("Inception block 3a, maps of 28 × 28")

# %% [markdown]
# Far less arithmetic and fewer weights, and *more* memory: two maps are new and none went.

# %% [markdown] slide="notes"
# The authors wanted the arithmetic.

# %% [markdown] slide="slide"
# ## The other way round: a MobileNet block
#
# MobileNetV2 turns the bottleneck inside out: 1×1 from 24 to 144 channels, a 3×3 that treats each channel by itself
# (*depthwise*), 1×1 back to 24. Narrow between blocks, wide inside.

# %% [markdown] slide="notes"
# The arithmetic is small because the 3×3 mixes no channels. And the memory?


# %% folded=true
def inverted():
    """A block of MobileNetV2 without its normalisation; (N, 24, H, W) -> (N, 24, H, W)."""
    return nn.Sequential(
        nn.Conv2d(24, 144, 1), nn.ReLU6(),
        nn.Conv2d(144, 144, 3, padding=1, groups=144), nn.ReLU6(),
        nn.Conv2d(144, 24, 1),
    )  # fmt: skip


def plain():
    return nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())


def wide():
    return nn.Sequential(
        nn.Conv2d(24, 144, 3, padding=1), nn.ReLU(), nn.Conv2d(144, 24, 3, padding=1)
    )


pd.DataFrame(
    {
        "MobileNetV2's: 24, 144, 144, 24": block_row(before(24), inverted, 24, 56),
        "the same widths in plain 3×3: 24, 144, 24": block_row(before(24), wide, 24, 56),
        "one 3×3 at 24": block_row(before(24), plain, 24, 56),
    }
).T.rename_axis("one block, maps of 56 × 56")

# %% [markdown] slide="notes"
# This block was made for phones, and while it trains it keeps many times the maps of a plain convolution. Every wide map
# is kept twice: ReLU6 keeps its input, and the convolution behind it keeps what ReLU6 put out. It was made for
# *inference*, where no map is kept. Small in arithmetic and small in memory are two different things.

# %% [markdown] slide="slide"
# ## ResNet-50 and ResNet-34
#
# A *block* of ResNet-34 is two 3×3 convolutions at full width, and adds its input to their output.

# %% [markdown] slide="notes"
# A block of ResNet-50, a *bottleneck*, squeezes by 1×1, does one 3×3 in the narrow, and widens by 1×1. Its squeezed
# layers are as wide as those of ResNet-34. Which needs more?

# %% folded=true
resnets = {
    "ResNet-34: two 3×3 at 64": networks.resnet34,
    "ResNet-50: 256, squeezed to 64": networks.resnet50,
    "two 3×3 at 256": lambda: networks.resnet34(width=256),
}
steps = {}
for name, build in resnets.items():
    with torch.device("meta"):
        model = build()
    steps[name] = training_step(model, (3, 224, 224), 1000, name=name).at(128)
side_by_side(
    {name: step.peak_bytes / GIB for name, step in steps.items()},
    unit="GiB",
    title="Squeezed blocks need more than narrow ones, and less than wide ones",
)

# %% slide="subslide"
pd.DataFrame(
    {
        name: {
            "peak at batch 128": format_bytes(step.peak_bytes),
            "parameters": f"{step.by_layer()['parameters'].sum():,}",
            "GFLOP forward, one image": f"{step.by_layer()['flops'].sum() / 128e9:.1f}",
        }
        for name, step in steps.items()
    }
).T

# %% [markdown]
# Against the same block without a squeeze, the bottleneck saves a third of the memory and more than nine tenths of the
# arithmetic. But nobody trains that block.

# %% [markdown] slide="notes"
# What people did with the arithmetic they saved was to make the maps between the blocks four times as wide, and *those*
# are what ResNet-50 keeps.

# %% slide="subslide"
layers = steps["ResNet-50: 256, squeezed to 64"].by_layer().set_index("layer")
block = layers.filter(like="conv2_2", axis="index")
block = block[block["saved feature maps"] > 2**20]
pd.DataFrame({"shape": block["shape"], "kept": block["saved feature maps"].map(format_bytes)})

# %% [markdown]
# One block, `conv2_2`: behind each convolution stand a normalisation (lesson 07 takes it apart), which keeps its input,
# and a ReLU, which keeps its output, so each of the three widths is kept twice.

# %% [markdown] slide="notes"
# The two maps of 256 channels outweigh the four of 64 by two to one.

# %% [markdown] slide="slide"
# ## Measure: memory, time, accuracy
#
# Handwritten digits of 8 × 8, four convolutions of 32 channels. Then a squeeze to 8 in front of the second that widens
# at once, and one that stays narrow for two layers.

# %% [markdown] slide="notes"
# For comparison a network that is narrow from the start.


# %%
def digit_net(*parts, first=32, last=32):
    layers, inputs = [nn.Conv2d(1, first, 3, padding=1), nn.ReLU()], first
    for kernel, outputs in parts:
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    head = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * last, 10)
    return nn.Sequential(*layers, *head)


variants = {
    "wide": Variant(lambda: digit_net((3, 32), (3, 32), (3, 32))),
    "squeeze, widens at once": Variant(lambda: digit_net((1, 8), (3, 32), (3, 32), (3, 32))),
    "squeeze, two layers narrow": Variant(lambda: digit_net((1, 8), (3, 8), (3, 8), (3, 32))),
    "narrow from the start": Variant(lambda: digit_net(*[(3, 8)] * 3, first=8, last=8)),
}
for name, variant in variants.items():
    print(f"{name}: {sum(p.numel() for p in variant.build().parameters()):,} parameters")

# %% slide="subslide" tags=["nbval-ignore-output"]
trained = compare(variants, epochs=3, side=8)
trained.style.format(
    {
        "traced peak": format_bytes, "measured peak": format_bytes, "epoch seconds": "{:.2f}",
        "accuracy": "{:.1%}", "lowest": "{:.1%}", "highest": "{:.1%}",
    }
)  # fmt: skip

# %% tags=["nbval-ignore-output"]
first = trained.iloc[0]
for name, row in trained.iloc[1:].iterrows():
    apart = "within" if row["highest"] >= first["lowest"] else "beyond"
    peak, time = (row[each] / first[each] for each in ("traced peak", "epoch seconds"))
    gained = row["accuracy"] - first["accuracy"]
    print(f"{name}: traced peak {peak:.0%} of the wide one's,", end=" ")
    print(f"an epoch in {time:.0%} of the time,")
    print(f"  accuracy {gained:+.1%}, {apart} the spread of the seeds")

# %% [markdown] slide="subslide"
# What to take from the table: the squeeze that widens at once has a *higher* peak than the wide network, the one that
# stays narrow a lower one, and narrow from the start the lowest of all.

# %% [markdown] slide="notes"
# What is saved has to be paid in accuracy or in epochs: a network with fewer channels learns more slowly, so part of a
# gap would close with more epochs. Three seeds and three epochs show large effects, not small ones.
#
# What the measured peak has above the traced one is the workspace of the convolutions.

# %% [markdown] slide="skip"
# And on a GPU? The next cell asks the one in this machine, or else a recording of one, or else says that there is
# neither: ResNet-50 with its squeezes beside VGG-16, which has none and does nearly four times the
# arithmetic.

# %% slide="skip" tags=["nbval-ignore-output"]
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "ResNet-50") + beside_trace(gpu, "VGG-16")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **where to squeeze, to how many channels, and for how long?**

# %% [markdown] slide="notes"
# Before each move say whether memory rises or falls.

# %% tags=["nbval-ignore-output"]
squeeze_explorer()

# %% [markdown] slide="notes"
# Try three things. Let layers stay narrow, none, one, two: when does the peak first fall? Find a squeeze that
# costs memory *and* weights. Squeeze before `conv5_1`: why does the peak hardly care?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Before `conv1_2`, with one narrow layer, the peak falls at 32 channels and rises at 48. A squeeze costs weights too
# where it puts out nearly as many channels as it reads, or more, such as 64 before `conv1_2`: then two layers do the
# work of one. Before `conv5_1` the peak falls by tens of MiB, and those are weights, their gradients and momentum: it
# stands at `relu4_3`, earlier in the network, and the maps of group 5 are gone by then.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# In our words, with where it was published.

# %% [markdown] slide="notes"
# The verdict is computed when the cell runs.

# %%
judge([77])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A 1×1 convolution is the cheapest way to fewer channels.
# 2. Its input stays and its output comes on top: memory falls only downstream, in layers that stay narrow.
# 3. Below its break-even a squeeze saves arithmetic and weights.

# %% [markdown] slide="notes"
# It has a weight for each pair of channels, and none for position. Memory falls until a layer widens again. The
# break-even is nine tenths of C where it widens at once. Networks have spent what they saved on wider maps, so that
# blocks full of squeezes keep more memory, not less.
#
# Now the exercise: [exercises/05_one_by_one.ipynb](../exercises/05_one_by_one.ipynb). {questions}.
# Save, then `course check 05` gives your marks.
