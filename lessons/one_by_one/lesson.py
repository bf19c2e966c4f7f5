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
# **The question:** in block after block, ResNet-50 squeezes its channels. Does that save memory?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. count what a 1×1 convolution produces, what it owns and what it keeps;
# 2. say whether a squeeze will pay in memory, before you run it;
# 3. tell apart what a squeeze does to memory and what it does to arithmetic;
# 4. count a block that is turned inside out, as in MobileNet.
#
# About 75 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the backward pass, the
# peak. No GPU is needed: the large peaks are traced.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, plane
from course_utils.figures.style import SERIES_COLOURS
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share
from lessons.one_by_one.blocks import channel_bars
from lessons.one_by_one.explorer import squeeze_explorer
from lessons.shared import trained
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant, compare, learned

# %% [markdown] slide="slide"
# ## ResNet-34 or ResNet-50?
#
# Both have sixteen blocks. In ResNet-34 a block is two 3×3 convolutions. In ResNet-50 it is a *bottleneck*: a 1×1
# convolution to few channels, a 3×3 on those few, a 1×1 to four times as many.

# %% [markdown] slide="notes"
# A *1×1 convolution* (also *pointwise*) looks at one position at a time and mixes its channels: 256 numbers in, 64 out,
# the same weights everywhere. One that has fewer channels out than in is a *squeeze*; papers also say *reduction*.
#
# For each pair of channels, one in and one out, a 3×3 does 9 multiply-adds a position, a 1×1 does 1. In units of 64 ·
# 64, two 3×3 from 64 to 64 channels cost 9 + 9; 256 to 64, 3×3, 64 to 256 cost 4 + 9 + 4. The first block of each
# later stage costs about twice ResNet-34's, for two reasons: the convolution on its shortcut is sixteen times as large,
# and its squeeze runs before the stride, at the larger size. (A GFLOP here counts a multiply-add as two operations, papers often as one.)

# %% folded=true
resnets = {
    "ResNet-34": networks.resnet34,
    "ResNet-50": networks.resnet50,
    "ResNet-34, four times as wide": lambda: networks.resnet34(width=256),
}
models, traces, steps, tables = {}, {}, {}, {}
for name, build in resnets.items():
    with torch.device("meta"):
        models[name] = build()
    traces[name] = training_step(models[name], (3, 224, 224), 1000, name=name)
    steps[name] = traces[name].at(128)
    tables[name] = steps[name].by_layer().set_index("layer")
small, deep, wide = resnets

for name in (small, deep):
    print(f"{name}: {tables[name]['parameters'].sum():,} parameters,", end=" ")
    print(f"{tables[name]['flops'].sum() / 128e9:.1f} GFLOP forward for one image")
print(f"{deep} at batch 128, peak: {format_bytes(steps[deep].peak_bytes)}, as in lesson 04")

# %% slide="subslide"
ratios = {
    what: tables[small][what].sum() / tables[deep][what].sum()
    for what in ("parameters", "flops")
}
fewer, less = (f"{100 * (1 - ratio):.0f} %" for ratio in ratios.values())
guess_small = predict(
    f"ResNet-34 has {fewer} fewer parameters than ResNet-50 and does {less} less arithmetic. "
    "What is its peak at batch 128?",
    unit="GiB",
)
guess_small

# %% slide="subslide" folded=true
reveal(
    guess_small,
    {"trace": steps[small].peak_bytes / GIB},
    thoughts=[
        (
            steps[deep].peak_bytes * ratios["flops"] / GIB,
            "In proportion to the arithmetic. But arithmetic is no measure of what is kept.",
        ),
        (
            steps[deep].peak_bytes * ratios["parameters"] / GIB,
            "In proportion to the parameters. They are not where the memory goes.",
        ),
        (
            steps[deep].peak_bytes * 2 / 3 / GIB,
            "Two convolutions a block in place of three. But the third makes a map that is "
            "four times as wide.",
        ),
        (
            steps[deep].peak_bytes / 3 / GIB,
            "You counted the maps of a block. The first layers are the same in both.",
        ),
    ],
)

# %% [markdown] slide="slide"
# ## One block, map by map
#
# ResNet-50 does 12 % more arithmetic, and takes 2.6 times the memory. A convolution's output is kept for the
# normalisation that reads it, the ReLU's for the next convolution: every width appears twice.

# %% [markdown] slide="notes"
# A row is a map that is kept, named after what made it. Dashed: what the block reads; it is counted where it was made.


# %% slide="subslide" folded=true
def of_block(name, block):
    """What one block reads, then the maps that it keeps: what made each, and its channels."""
    rows = tables[name].filter(like=block, axis="index")
    rows = rows[rows["saved feature maps"] > MIB]  # a normalisation keeps a few KiB
    sides = []
    for layer in rows.index:
        part = models[name].get_submodule(layer)
        kind = type(part).__name__
        if isinstance(part, nn.Conv2d):
            kind = "depthwise" if part.groups > 1 else "{}×{}".format(*part.kernel_size)
        sides.append({"BatchNorm2d": "norm", "Inverted": "sum"}.get(kind, kind))
    channels = [shape[1] for shape in rows["shape"]]
    total = format_bytes(rows["saved feature maps"].sum())
    return f"{name}: {total}", [("reads", channels[-1]), *zip(sides, channels, strict=True)]


channel_bars(
    dict(of_block(name, "conv2_2") for name in (small, deep)),
    title="What a block keeps at batch 128: the bottleneck is narrow inside, wide outside",
)

# %% [markdown]
# In the bottleneck the two maps of 256 channels outweigh the four of 64. Is it the squeeze that costs, or the width to
# which the block returns?

# %% [markdown] slide="notes"
# ResNet-50's blocks squeeze, and the maps between them are four times as wide. So compare at equal width: with a
# ResNet-34 that squeezes nowhere, but is as wide between its blocks as ResNet-50. But first, one squeeze by hand.

# %% [markdown] slide="slide"
# ## By hand: one squeeze
#
# To compute the gradient of its weights, a 1×1 convolution needs its *input* again. A squeeze makes a small map, but
# the large one stays.

# %%
squeeze = nn.Conv2d(256, 64, kernel_size=1, bias=False)
maps = torch.randn(1, 256, 56, 56, requires_grad=True)
node = squeeze(maps).grad_fn
print("the input is kept:", node._saved_input.data_ptr() == maps.data_ptr())

# %% [markdown] slide="notes"
# It owns 64 · 256 = 16,384 weights; a bias would be 64 more. By itself it saves nothing and adds its own small map. It
# can pay through the layers that stay narrow after it. Two convolutions at 256 channels keep 512 values a position.
# Squeeze to 64 first, let one convolution stay at 64 and the next go back to 256, and it is 64 + 64 + 256 = 384.

# %% [markdown] slide="subslide"
# In letters: squeeze C channels to m, stay there for k convolutions, and let the next one widen back to C.
#
# | kept, for each position | without squeeze | with |
# |---|---:|---:|
# | the squeeze | 0 | m |
# | k convolutions | k · C | k · m |
# | the layer that widens back | C | C |
#
# **A squeeze adds m − k · (C − m) values a position.**

# %% [markdown] slide="notes"
# With k = 0 that is +m, whatever m is: a squeeze that widens at once adds to the maps. With k = 1 it saves if m is
# below C / 2, with k = 2 if m is below 2 · C / 3.
#
# Now the bottleneck: C = 256, m = 64, and one 3×3 stays narrow. That is 64 − 192 = −128 values a position, and −256 as
# every width appears twice. A block of two 3×3 at 256 channels keeps 4 · 256 = 1,024. So **by hand, the squeeze should
# save a quarter of a block.** Draw the two:

# %% slide="subslide" folded=true
channel_bars(
    {
        title.replace(", four times as wide", ", wide"): maps
        for title, maps in (of_block(name, "conv2_2") for name in (wide, deep))
    },
    title="Wide block: four maps of 256 channels. Bottleneck: two, and four of 64, "
    "a quarter less",
)

# %%
print(f"{wide}: {tables[wide]['parameters'].sum():,} parameters,")
print(f"{tables[wide]['flops'].sum() / 128e9:.1f} GFLOP forward for one image")
guess = predict(
    f"ResNet-50 peaks at {format_bytes(steps[deep].peak_bytes)}. At what does this wide "
    "ResNet-34 peak, at the same batch of 128?",
    unit="GiB",
)
guess

# %% slide="subslide" folded=true
OWNED = ["parameters", "weight gradients", "optimizer state"]
weights = sum(steps[deep].by_role()[role] for role in OWNED)
reveal(
    guess,
    {"trace": steps[wide].peak_bytes / GIB},
    thoughts=[
        (
            steps[deep].peak_bytes
            * (tables[wide]["flops"].sum() / tables[deep]["flops"].sum())
            / GIB,
            "In proportion to the arithmetic. But arithmetic is no measure of what is kept.",
        ),
        (
            steps[deep].peak_bytes
            * (tables[wide]["parameters"].sum() / tables[deep]["parameters"].sum())
            / GIB,
            "In proportion to the parameters. They are not where the memory goes.",
        ),
        (
            steps[deep].peak_bytes * 4 / 3 / GIB,
            "By the block, four thirds. But only twelve of the sixteen blocks grow that much, "
            "and there are thirteen times as many weights.",
        ),
        (
            4 / 3 * (steps[deep].peak_bytes - weights) / GIB
            + 12 * tables[wide]["parameters"].sum() / GIB,
            "Four thirds of all but the weights, and 12 bytes a weight. But four blocks and "
            "the first layers grow less, and at the peak some gradients do not exist yet.",
        ),
        (
            4 * steps[small].peak_bytes / GIB,
            "Four times ResNet-34: nearly. The first convolution is no wider, which makes it "
            "less; there are about sixteen times as many weights, which makes it more.",
        ),
    ],
)

# %% folded=true
at_peak = pd.DataFrame({name: steps[name].by_role() for name in (wide, deep)})
kept = {name: tables[name]["saved feature maps"] for name in (wide, deep)}
layers = {name: [layer.split(".")[0] for layer in tables[name].index] for name in kept}
by_block = pd.DataFrame({name: kept[name].groupby(layers[name]).sum() for name in kept})
blocks = by_block[by_block.index.str.contains("_")]
first = blocks.index.str.endswith("_1")
rows = {
    "maps, 12 blocks": blocks[~first].sum(),
    "maps, conv2_1": blocks.loc["conv2_1"],
    "maps, conv3_1, conv4_1 and conv5_1": blocks[first].drop("conv2_1").sum(),
    "maps, before and after the blocks": by_block.sum() - blocks.sum(),
    "all maps": by_block.sum(),
    "at the peak: maps": at_peak.loc["feature maps"],
    "at the peak: weights, gradients, momentum": at_peak.loc[OWNED].sum(),
    "peak": at_peak.sum(),
}
table = pd.DataFrame(rows).T
table.map(format_bytes).assign(
    saved=[f"{100 * (1 - row[deep] / row[wide]):.0f} %" for _, row in table.iterrows()]
)

# %% [markdown]
# **The width costs, not the squeeze.** At equal width, the network that squeezes keeps 17 % less in maps. At batch 128
# its peak is 31 % lower; of that difference two thirds are weights, their gradients and momentum.

# %% [markdown] slide="notes"
# Twelve of the sixteen blocks save the quarter that we counted, `conv2_1` a fifth; `conv3_1`, `conv4_1` and `conv5_1`
# keep a tenth *more*. (At the peak some maps are already freed, and some weight gradients do not exist yet.)

# %% [markdown] slide="skip"
# <details><summary>By hand: the four others</summary>
#
# Take a block of C channels. One unit is one channel at the smaller size, so a map before the stride counts four
# times. The squeeze runs before it (here, as in torchvision; in the paper it has the stride itself), and keeps two
# maps of C / 4: 2 · C / 4 · 4 = 2 · C. The rest of the bottleneck keeps 2.5 · C, the convolution on its shortcut C:
# 5.5 · C. The wide block keeps 4 · C, and C on its shortcut: 5 · C. `conv2_1` has no stride, so there it is 4 · C
# against 5 · C.
#
# </details>

# %% [markdown] slide="subslide"
# **What else a squeeze saves: arithmetic.** A 3×3 from C to C channels costs 9 · C · C a position. A squeeze to m and a
# 3×3 back to C cost m · C + 9 · m · C, ten times m · C. That is less if m is below 0.9 · C.

# %% [markdown] slide="notes"
# In a bottleneck, too, the squeeze makes the 3×3 cheap: in units of C / 4 · C / 4 it costs 4 + 9 + 4 = 17, two 3×3 at
# full width 2 · 9 · 16 = 288. Weights follow the same count.

# %% [markdown] slide="subslide"
# At equal width the bottleneck saves a quarter of most blocks' maps, and more than nine tenths of the network's
# arithmetic and weights.
#
# **ResNet-50 spends that on width:** between its blocks it is four times as wide as ResNet-34, for about the same
# arithmetic. Training keeps those wide maps.

# %% [markdown] slide="notes"
# (8.2 against 111 GFLOP, 26 against 342 million weights.) A block like `conv2_2` keeps four times as much as
# ResNet-34's, less a quarter: three times. All sixteen keep 3.4 times as much, as the first of each stage grows more;
# with what lies outside, about the same in both, the peak is 2.6 times.

# %% [markdown] slide="slide"
# ## How long to stay narrow
#
# Test the formula on a network without normalisation, which keeps one map for each convolution: VGG-16, squeezed before
# `conv3_2`.

# %% [markdown] slide="notes"
# In VGG-16 `conv3_2` is a single convolution (in ResNet such a name was a whole block). It and the next one, `conv3_3`,
# have 256 channels each; then comes `pool3`. The peak is in the backward pass at `relu4_3`. At that moment all maps of
# these layers are still alive, so what is saved here lowers the peak.


# %% slide="skip"
def squeezed_vgg16(layer, channels, narrow=()):
    """VGG-16 at batch 128, squeezed before `layer`; those in `narrow` stay narrow."""
    with torch.device("meta"):
        model = networks.vgg16()
        names = [name for name, part in model.named_children() if isinstance(part, nn.Conv2d)]
        run = names[names.index(layer) :][: len(narrow) + 1] if channels else []
        reads = model.get_submodule(layer).in_channels
        for name in run:
            outputs = channels if name in narrow else model.get_submodule(name).out_channels
            setattr(model, name, nn.Conv2d(channels, outputs, 3, padding=1))
        if channels:
            parts = {"squeeze": nn.Conv2d(reads, channels, 1), "relu": nn.ReLU()}
            parts["conv"] = model.get_submodule(layer)
            setattr(model, layer, nn.Sequential(OrderedDict(parts)))
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


published = squeezed_vgg16("conv3_2", None)
print(f"VGG-16 at batch 128, peak: {format_bytes(published.peak_bytes)}")


# %% slide="skip" tags=["change"]
# Change narrow to one layer, or to none. From which number of channels on does it cost?
channels, narrow = 64, ["conv3_2", "conv3_3"]
more = squeezed_vgg16("conv3_2", channels, narrow).peak_bytes - published.peak_bytes
print(f"{channels} channels, {len(narrow)} narrow: {more / MIB:+,.1f} MiB at the peak")

# %% slide="subslide" folded=true
runs = {
    "widens at once": [],
    "one layer narrow": ["conv3_2"],
    "two layers narrow": ["conv3_2", "conv3_3"],
}
widths = (16, 32, 64, 96, 128, 160, 192, 208)
change = {
    name: [
        (squeezed_vgg16("conv3_2", m, run).peak_bytes - published.peak_bytes) / GIB
        for m in widths
    ]
    for name, run in runs.items()
}


def pays_up_to(narrow):
    """The most channels with which the peak is still lower than without a squeeze."""
    saves, costs = 1, 257
    while costs - saves > 1:
        middle = (saves + costs) // 2
        lower = squeezed_vgg16("conv3_2", middle, narrow).peak_bytes < published.peak_bytes
        saves, costs = (middle, costs) if lower else (saves, middle)
    return saves


one, two = (pays_up_to(runs[name]) for name in ("one layer narrow", "two layers narrow"))
plane(
    Axis("channels of the squeeze before conv3_2", low=0, high=widths[-1]),
    Axis(
        "GiB more or less at the peak",
        low=min(map(min, change.values())) * 1.1,
        write=lambda gib: f"{gib:+.4g}" if gib else "0",
    ),
    [
        Curve(name, widths, peaks, colour)
        for (name, peaks), colour in zip(change.items(), SERIES_COLOURS, strict=False)
    ],
    limits={"as published": 0.0},
    marks={f"{one} channels": one, f"{two} channels": two},
    title=f"A squeeze pays up to {one} channels with one narrow layer, up to {two} with two",
)

# %% [markdown]
# With one narrow layer the maps come out even at C / 2 = 128, as the formula says. At 129 the squeeze still pays: the
# weights that it saves, with their momentum, outweigh the two channels of maps that it adds.

# %% [markdown] slide="notes"
# With two the formula says 170, and the trace 188: here `conv4_1` widens, after `pool3`, which is narrow too. The pool
# outputs a quarter of the values and keeps 12 bytes for each, the value and an index of 8: three quarters of a map.

# %% [markdown] slide="skip"
# <details><summary>By hand: why 188?</summary>
#
# The squeeze, two convolutions and three quarters for the pool: 3.75 · m in place of 2.75 · 256. So a squeeze pays up
# to m = 187, and the weights saved pay for one channel more.
#
# </details>

# %% [markdown] slide="slide"
# Arithmetic and weights are counted one way, kept maps another: one can fall while the other rises. VGG-16 again:

# %% folded=true
rows = {}
for name, (channels, run) in {
    "as published": (None, []),
    "to 64, widens at once": (64, []),
    "to 64, one layer narrow": (64, ["conv3_2"]),
    "to 64, two layers narrow": (64, ["conv3_2", "conv3_3"]),
}.items():
    step = squeezed_vgg16("conv3_2", channels, run)
    table = step.by_layer()
    rows[name] = {
        "peak": format_bytes(step.peak_bytes),
        "parameters": f"{table['parameters'].sum():,}",
        "GFLOP forward, one image": f"{table['flops'].sum() / 128e9:.2f}",
    }
pd.DataFrame(rows).T.rename_axis("squeeze before conv3_2")

# %% [markdown]
# Widened at once, this squeeze has less arithmetic, fewer weights, and a higher peak.

# %% [markdown] slide="slide"
# ## Narrow outside, wide inside
#
# MobileNetV2 turns the bottleneck inside out: a 1×1 convolution from 24 to 144 channels, a 3×3 that treats each channel
# by itself (*depthwise*), a 1×1 back to 24. It was made for phones, to compute little.

# %% [markdown] slide="notes"
# A normalisation follows each convolution, and a ReLU6 each of the two wide ones. It cuts off at 0 and at 6, and for
# the backward pass PyTorch keeps its input; of a ReLU it keeps the output.
#
# Our yardstick is ResNet-34, as it is about as accurate: on ImageNet torchvision's is right for 73.3 % of the images,
# its MobileNetV2 for 71.9 % (documentation, weights `IMAGENET1K_V1`).


# %% folded=true
class Inverted(nn.Module):
    """A block of MobileNetV2: widens, filters each channel by itself, narrows again."""

    def __init__(self, inputs, outputs, times, stride, activation, depthwise):
        super().__init__()
        wide = times * inputs
        widen = [nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), activation()]
        groups = wide if depthwise else 1
        self.inside = nn.Sequential(
            *(widen if times > 1 else []),
            nn.Conv2d(wide, wide, 3, stride, padding=1, groups=groups, bias=False),
            nn.BatchNorm2d(wide), activation(),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.adds = inputs == outputs and stride == 1

    def forward(self, maps):
        return self.inside(maps) + maps if self.adds else self.inside(maps)


def mobilenet(activation=nn.ReLU6, depthwise=True):
    """MobileNetV2, table 2 of Sandler et al. (2018)."""
    def layer(inputs, outputs, kernel, stride):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), activation())

    parts, reads = {"conv1": layer(3, 32, 3, 2)}, 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)]
    stages += [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for times, channels, count, stride in stages:
        for place in range(count):
            step = stride if place == 0 else 1
            block = Inverted(reads, channels, times, step, activation, depthwise)
            parts[f"block{len(parts)}"], reads = block, channels
    parts |= {"conv2": layer(reads, 1280, 1, 1), "pool": nn.AdaptiveAvgPool2d(1)}
    parts |= {"flat": nn.Flatten(), "drop": nn.Dropout(0.2), "fc": nn.Linear(1280, 1000)}
    return nn.Sequential(OrderedDict(parts))


def mobile_step(**options):
    """The network and its traced step at batch 128."""
    with torch.device("meta"):
        model = mobilenet(**options)
    return model, training_step(model, (3, 224, 224), 1000, name="MobileNetV2").at(128)


mobile = "MobileNetV2"
models[mobile], steps[mobile] = mobile_step()
tables[mobile] = steps[mobile].by_layer().set_index("layer")
parts_of = {
    what: tables[mobile][what].sum() / tables[small][what].sum()
    for what in ("parameters", "flops")
}
for name in (small, mobile):
    print(f"{name}: {tables[name]['parameters'].sum():,} parameters,", end=" ")
    print(f"{tables[name]['flops'].sum() / 128e9:.1f} GFLOP forward for one image")

# %%
guess_mobile = predict(
    f"At batch 128 ResNet-34 peaks at {format_bytes(steps[small].peak_bytes)}. At what does "
    "MobileNetV2 peak?",
    unit="GiB",
)
guess_mobile

# %% slide="subslide" folded=true
with_relu = mobile_step(activation=nn.ReLU)[1].peak_bytes
reveal(
    guess_mobile,
    {"trace": steps[mobile].peak_bytes / GIB},
    thoughts=[
        (
            steps[small].peak_bytes * parts_of["flops"] / GIB,
            "In proportion to the arithmetic. But arithmetic is no measure of what is kept.",
        ),
        (
            steps[small].peak_bytes * parts_of["parameters"] / GIB,
            "In proportion to the parameters. They are not where the memory goes.",
        ),
        (
            steps[small].peak_bytes / GIB,
            "As much as ResNet-34? Count the channels of a block: it is wide inside.",
        ),
        (with_relu / GIB, "So it would be with ReLU. ReLU6 keeps its input, one map more."),
        (
            steps[small].peak_bytes * (4 * 144 + 2 * 24) / (4 * 64) / GIB,
            "By one block, two maps for every width. That is near by luck: ReLU6 keeps a "
            "third one at each wide place, and later blocks grow less.",
        ),
        (
            steps[small].peak_bytes * (6 * 144 + 2 * 24) / (4 * 64) / GIB,
            "By one block at 56 × 56. But later blocks grow less (see below).",
        ),
    ],
)

# %% slide="subslide" folded=true
channel_bars(
    dict([of_block(small, "conv2_2"), of_block(mobile, "block3")]),
    title="What a block keeps at batch 128, at 56 × 56: MobileNetV2's is wide inside",
)

# %% [markdown] slide="notes"
# By hand: three at each wide place, 6 · 144 + 2 · 24 = 912 channels against 4 · 64 = 256, 3.6 times. At 28 × 28 it is
# 6 · 192 + 2 · 32 = 1,216 against 4 · 128 = 512, 2.4 times; the whole peak is 2.3 times. Does the depthwise convolution
# save maps? Put full 3×3 convolutions in its place. Then let ReLU6 work in place, and replace it by ReLU:

# %% folded=true
rows = {}
for name, options in {
    "as published: depthwise, ReLU6": {},
    "ReLU6 in place": {"activation": lambda: nn.ReLU6(inplace=True)},
    "full 3×3, ReLU6": {"depthwise": False},
    "depthwise, ReLU": {"activation": nn.ReLU},
}.items():
    step = mobile_step(**options)[1]
    table = step.by_layer()
    rows[name] = {
        "parameters": f"{table['parameters'].sum():,}",
        "GFLOP forward, one image": f"{table['flops'].sum() / 128e9:.1f}",
        "maps kept": format_bytes(table["saved feature maps"].sum()),
        "peak": format_bytes(step.peak_bytes),
    }
pd.DataFrame(rows).T.rename_axis("MobileNetV2, batch 128")

# %% [markdown] slide="notes"
# Depthwise saves arithmetic and weights, and no map. Nor should the layer's time fall as much: it does about 2 operations a
# byte, and an RTX 4090 balances at 73 (lesson 01).
#
# ReLU keeps its output, which the next convolution keeps anyway; ReLU6's input is one map more at each wide place. In
# place it overwrites its input, so PyTorch first copies it, and keeps the copy.

# %% [markdown] slide="slide"
# ## What it costs in accuracy
#
# Handwritten digits of 8 × 8, four convolutions of 32 channels. Then a squeeze to 8 before the second: one that widens
# at once, one that stays narrow for two layers. And a network with 8 channels throughout.

# %% slide="subslide" folded=true
named = trained.RUNS["squeezed"].networks
kept = trained.kept("squeezed")
means = kept.groupby(level=0).mean().loc[list(named)]
table = means.set_axis([f"{epochs} epochs" for epochs in means.columns], axis=1)
seeds = kept.iloc[:, -1].groupby(level=0)  # after the longest training
gaps, spread = means.iloc[:, -1] - means.iloc[0, -1], seeds.max() - seeds.min()
peaks = {}
for name, build in named.items():
    with torch.device("meta"):
        step = training_step(build(), (1, 8, 8), 10, "adam", "float32", "cpu")
    peaks[name] = step.at(64).peak_bytes
table.map(format_share).assign(
    **{
        "gap, points": [f"{100 * gap:+.1f}" for gap in gaps],
        "worst seed": [format_share(seeds.min()[name]) for name in means.index],
        "seeds apart, points": [f"{100 * spread[name]:.1f}" for name in means.index],
        "traced peak, batch 64": pd.Series(peaks).map(format_bytes),
    }
)

# %% folded=true
print(textwrap.fill(trained.provenance("squeezed"), 88))

# %% [markdown] slide="notes"
# (The gap, before rounding, is to 32 channels throughout, after 30 epochs. *Seeds apart*: the best of three runs less
# the worst, then. One of the 500 test images is worth 0.2 points.)
#
# After thirty epochs only 8 channels throughout has a gap wider than its own seeds are apart. But that rule is kind to
# noisy training: the squeezes' seeds are 1.2 and 1.6 points apart, not 0.2. So look at the worst one, too. These digits are
# easy; on harder images gaps may stay.

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change the convolutions, (kernel, channels) each, or the epochs, and run: one seed.
convolutions, epochs = [(3, 32), (1, 8), (3, 8), (3, 8), (3, 32)], [1, 3]
shares = learned(lambda: trained.chain(*convolutions), epochs, side=8)
print({epoch: format_share(share) for epoch, share in zip(epochs, shares, strict=True)})
needs = compare({"yours": Variant(lambda: trained.chain(*convolutions))}, 1, (0,), side=8)
needs[["traced peak", "measured peak"]].map(format_bytes)

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **where to squeeze, to how many channels, and for how long?**

# %% [markdown] slide="notes"
# Before each move say whether memory rises or falls.

# %% tags=["nbval-ignore-output"]
squeeze_explorer("VGG-16", "conv1_2", 32, 1)

# %% [markdown] slide="notes"
# Try three things. Change the channels: between which two settings does the squeeze stop paying? (By hand first;
# `pool1` follows.) Find a 1×1 convolution that costs memory *and* weights. Squeeze before `conv5_1`: what does the
# peak lose, and why so little?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# By hand the squeeze, `conv1_2` and the pool are narrow: 2.75 · m against 1.75 · 64, so it saves up to 40 channels.
# The peak falls at 32 and rises at 48. A 1×1 to 64 channels before `conv1_2`, which reads 64, squeezes nothing, and
# costs weights too. Before `conv5_1` the peak falls by tens of MiB of weights, their gradients and momentum. The maps
# that the explorer counts there do not matter: at the peak, in the backward pass at `relu4_3`, those after `pool4` are
# gone. (With 256 channels that widen at once it is at `relu5_3`.)
#
# </details>

# %% [markdown] slide="skip"
# **ResNet-50 and VGG-16 on a GPU, beside the trace**, where somebody recorded them:

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "ResNet-50") + beside_trace(gpu, "VGG-16")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A squeeze adds m values a position; each narrow layer saves C − m.
# 2. It saves arithmetic before a 3×3 (C to C) if m < 0.9 · C.
# 3. ResNet-50's saves 17 % of the maps at equal width, 31 % of the peak. Against ResNet-34: 2.6 times the peak.
# 4. MobileNetV2, wide inside: 1.6 times ResNet-34's with ReLU, 2.3 with ReLU6.

# %% [markdown] slide="notes"
# With batch norms, as in ResNets, double both numbers of the first point. LoRA, in lesson 14, squeezes to save
# gradients and optimizer state.
#
# Now the exercise: [exercises/05_one_by_one.ipynb](../exercises/05_one_by_one.ipynb). {questions}. Save, then `course
# check 05` gives your marks.
