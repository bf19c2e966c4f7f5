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
# **The question:** ResNet-50 squeezes its channels in every block. What does a squeeze do to memory?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. count what a 1×1 convolution produces, what it owns and what it keeps;
# 2. say whether a squeeze will pay in memory, before you run it;
# 3. tell what a squeeze does to memory from what it does to arithmetic;
# 4. recognise it in MobileNet and in LoRA.
#
# About 85 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the backward pass, the
# peak. No GPU is needed.

# %% slide="skip" folded=true
import inspect
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
from lessons.one_by_one.explorer import squeeze_explorer
from lessons.shared import trained
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant, compare, learned

# %% [markdown] slide="slide"
# ## ResNet-34 or ResNet-50?
#
# Both have sixteen blocks. In ResNet-34 a block is two 3×3 convolutions. In ResNet-50 it is a *bottleneck*: a 1×1
# convolution to a quarter of the channels, a 3×3 on those few, a 1×1 back to all.

# %% [markdown] slide="notes"
# A *1×1 convolution* (also *pointwise*) looks at one position at a time and mixes its channels: 256 numbers in, 64 out,
# the same weights everywhere. One that has fewer channels out than in is a *squeeze*; papers also say *reduction*.
#
# The arithmetic is nearly the same. For each position, in units of 64 · 64 multiply-adds, a block of the first stage
# costs 9 + 9 in ResNet-34, and 4 + 9 + 4 in ResNet-50. (A GFLOP here counts a multiply-add as two operations. Papers
# often count it as one.)

# %% folded=true
resnets = {
    "ResNet-34": networks.resnet34,
    "ResNet-50": networks.resnet50,
    "ResNet-34, four times as wide": lambda: networks.resnet34(width=256),
}
traces, steps, tables = {}, {}, {}
for name, build in resnets.items():
    with torch.device("meta"):
        model = build()
    traces[name] = training_step(model, (3, 224, 224), 1000, name=name)
    steps[name] = traces[name].at(128)
    tables[name] = steps[name].by_layer().set_index("layer")
small, deep, wide = resnets


def told(name):
    """What a network has and needs at batch 128."""
    return {
        "parameters": f"{tables[name]['parameters'].sum():,}",
        "GFLOP forward, one image": f"{tables[name]['flops'].sum() / 128e9:.1f}",
        "peak at batch 128": format_bytes(steps[name].peak_bytes),
    }


pd.DataFrame({name: told(name) for name in (small, deep)})

# %% [markdown] slide="slide"
# ## One block, map by map
#
# About the same arithmetic, and more than twice the peak. Here is what one block of each network keeps for the backward
# pass.


# %% folded=true
def of_block(name, block):
    """The layers of one block that keep something, with shape and bytes."""
    rows = tables[name].filter(like=block, axis="index")
    rows = rows[rows["saved feature maps"] > 2**20]
    shapes = rows["shape"].map(lambda shape: " × ".join(map(str, shape[1:])))
    return pd.DataFrame({"one image": shapes, "kept": rows["saved feature maps"]})


blocks = {name: of_block(name, "conv2_2") for name in (small, deep)}
pd.concat(blocks, names=["", "layer"]).assign(
    kept=lambda table: table["kept"].map(format_bytes)
)

# %%
for name, block in blocks.items():
    broad = block["one image"].str.startswith("256")
    outside, total = block["kept"][broad].sum(), block["kept"].sum()
    print(
        f"{name}: {format_bytes(total)} in this block,",
        f"{100 * outside / total:.0f} % in maps of 256 channels",
    )

# %% [markdown] slide="notes"
# Each convolution's output is kept for the normalisation that reads it; what the ReLU makes of it is kept for the next
# convolution. So every width appears twice. In the bottleneck the two maps of 256 channels outweigh the four of 64.
#
# Three things changed from ResNet-34 to ResNet-50: the maps between blocks are four times as wide, each block squeezes,
# and it has one convolution more. To see what squeezing does at equal width, build a ResNet-34 that is as wide as
# ResNet-50 between its blocks, and squeezes nowhere.

# %%
print(f"{wide}: {tables[wide]['parameters'].sum():,} parameters,")
print(f"{tables[wide]['flops'].sum() / 128e9:.1f} GFLOP forward for one image")
guess = predict("What is its peak at batch 128?", unit="GiB")
guess

# %% slide="subslide" folded=true
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
            "By the block: four maps of 392 MiB in place of two and four small ones. "
            "The weights come on top.",
        ),
        (
            4 * steps[small].peak_bytes / GIB,
            "Four times ResNet-34: nearly. The first convolution is not wider, but there are "
            "about sixteen times as many weights.",
        ),
    ],
)

# %% [markdown]
# A wide block without squeezes keeps four maps of 392 MiB. The bottleneck keeps two, and four of 98 MiB: a quarter
# less.

# %% folded=true
rows = {}
for batch in (128, 256):
    for name in (wide, deep):
        step = traces[name].at(batch)
        owned = step.by_role()["parameters"] * 3
        rows[f"{name}, batch {batch}"] = {
            "maps kept": format_bytes(step.by_layer()["saved feature maps"].sum()),
            "weights, gradients, momentum": format_bytes(owned),
            "peak": format_bytes(step.peak_bytes),
        }
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# (At the peak some gradients do not exist yet, and some maps are already freed. So the peak is less than the sum.)
#
# At batch 128 squeezes save 2.1 GiB of maps, a sixth, and 3.5 GiB of weights with their gradients and momentum, nearly
# all. The weights do not grow with the batch. At batch 256 the maps are the larger part of what is saved.
#
# But ResNet-50 does not have the width of ResNet-34. For about the same arithmetic, squeezes buy four times the width
# between blocks, and the maps that training keeps grow with the width. (Wide residual networks, Zagoruyko and Komodakis
# 2016, pay the full price: pairs of 3×3 at 4 to 10 times the width, in fewer layers.)

# %% [markdown] slide="slide"
# ## By hand: one squeeze
#
# Maps of 64 × 64 with 256 channels, and a 1×1 convolution to 96.
#
# | what | how | number |
# |---|---|---:|
# | values in | 64 · 64 · 256 | 1,048,576 |
# | values out | 64 · 64 · 96 | 393,216 |
# | weights | 1 · 1 · 256 · 96 | 24,576 |
# | multiply-adds | 64 · 64 · 24,576 | 100,663,296 |

# %% [markdown] slide="notes"
# For 96 KiB of weights the map shrinks by 2.5 MiB an image. But to compute the gradient of its weights, the 1×1
# convolution needs its *input* again. All 1,048,576 values stay until the backward pass, and 393,216 come on top. The
# squeeze alone saves nothing. Autograd confirms that the input stays:

# %%
squeeze = nn.Conv2d(256, 96, kernel_size=1, bias=False)
maps = torch.randn(1, 256, 64, 64, requires_grad=True)
node = squeeze(maps).grad_fn
print("the input is kept:", node._saved_input.data_ptr() == maps.data_ptr())

# %% [markdown] slide="slide"
# ## How long to stay narrow

# %% [markdown] slide="notes"
# In a run of convolutions with C channels, squeeze to m. Then k convolutions stay at m, and the next widens again.

# %% [markdown]
# | kept, for each position | without squeeze | with |
# |---|---:|---:|
# | the squeeze | 0 | m |
# | k convolutions | k · C | k · m |
# | the one that widens | C | C |

# %% [markdown]
# **Kept more: m − k · (C − m).**

# %% [markdown] slide="notes"
# With k = 0 that is +m, whatever m is: a squeeze that widens at once adds to the maps. With k = 1 it saves if m is
# below C / 2, with k = 2 if m is below 2 · C / 3.
#
# The table has one map for each convolution, as in VGG-16. A max pool keeps a map too, its output, and an index of 8
# bytes for each value of it. `conv3_3` is followed by such a pool, `pool3`, of 2 × 2. VGG-16 peaks in the backward pass
# at
# `relu4_3`, when all maps of group 3 are still alive.

# %%
guess_even = predict(
    "In VGG-16, conv3_2 reads 256 channels. Squeeze to m before it, and let conv3_2 and "
    "conv3_3 stay narrow: k = 2. pool3 follows. What is the largest m with which the "
    "peak still falls?",
    unit="channels",
)
guess_even


# %% slide="skip"
def squeezed_vgg16(layer, channels, narrow=(), pool3=None):
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
        model.pool3 = pool3 or model.pool3
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


published = squeezed_vgg16("conv3_2", None)
print(f"VGG-16 at batch 128, peak: {format_bytes(published.peak_bytes)}")


# %% slide="subslide" folded=true
def break_even(narrow, pool3=None):
    """The most channels with which the peak is still lower than without a squeeze."""
    usual = squeezed_vgg16("conv3_2", None, pool3=pool3).peak_bytes
    saves, costs = 1, 257
    while costs - saves > 1:
        middle = (saves + costs) // 2
        lower = squeezed_vgg16("conv3_2", middle, narrow, pool3).peak_bytes < usual
        saves, costs = (middle, costs) if lower else (saves, middle)
    return saves


two = break_even(["conv3_2", "conv3_3"])
reveal(
    guess_even,
    {"trace": two, "by the formula, no pool": 2 * 256 // 3},
    thoughts=[
        (170, "Two thirds of 256: the convolutions alone. The pool becomes narrow too."),
        (128, "Half of 256 is the break-even of one narrow layer."),
    ],
)

# %% [markdown] slide="notes"
# The pool passes the narrow maps on. It keeps a quarter of the values, at 4 bytes and an index of 8: as much as 3 / 4
# of a map. So the peak falls while 3.75 · m < 2.75 · 256. To check that it is the pool, replace it by an average pool,
# which keeps no index: 1 / 4 of a map.

# %%
averaged = break_even(["conv3_2", "conv3_3"], nn.AvgPool2d(2))
for name, most, extra in (("max", two, 3 / 4), ("average", averaged, 1 / 4)):
    by_hand = 256 * (2 + extra) / (3 + extra)
    print(f"{name} pool: by hand below {by_hand:.1f} channels, by trace up to {most}")
OWNED = ["parameters", "weight gradients", "optimizer state"]
narrower = squeezed_vgg16("conv3_2", two, ["conv3_2", "conv3_3"])
spared = published.by_role()[OWNED].sum() - narrower.by_role()[OWNED].sum()
channel = 4 * 128 * 56 * 56 * 3.75  # bytes of one channel in the squeeze, two layers and pool
print(f"Narrow layers have fewer weights too: {format_bytes(spared)} less with gradients")
print(f"and momentum, as much as {spared / channel:.1f} channels")

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
widths = (16, 32, 64, 96, 128, 160, 192)
change = {
    name: [
        (squeezed_vgg16("conv3_2", m, run).peak_bytes - published.peak_bytes) / GIB
        for m in widths
    ]
    for name, run in runs.items()
}
one = break_even(["conv3_2"])
plane(
    Axis("channels of the squeeze before conv3_2", low=0),
    Axis(
        "GiB more or less at the peak",
        low=min(map(min, change.values())) * 1.1,
        write=lambda gib: f"{gib:+.4g}",
    ),
    [
        Curve(name, widths, peaks, colour)
        for (name, peaks), colour in zip(change.items(), SERIES_COLOURS, strict=False)
    ],
    limits={"as published": 0.0},
    marks={f"{one} channels": one, f"{two} channels": two},
    title=f"The peak falls up to {one} channels with one narrow layer, {two} with two",
)

# %% [markdown] slide="slide"
# ## What else it saves: arithmetic
#
# A 3×3 convolution does 9 multiply-adds for each pair of channels, a 1×1 convolution 1.

# %% [markdown] slide="notes"
# A 3×3 convolution from C to C channels costs 9 · C · C. With a squeeze before it, the two cost C · m + 9 · m · C. That
# is less if m is below 0.9 · C. Weights follow the same count. Memory does not. In the table, a squeeze to 64 that
# widens at once has less arithmetic and fewer weights than VGG-16 as published, and a higher peak.

# %% folded=true
rows = {}
for name, (channels, run) in {
    "as published": (None, []),
    "to 64, widens at once": (64, []),
    "to 64, one layer narrow": (64, ["conv3_2"]),
    "to 64, two layers narrow": (64, ["conv3_2", "conv3_3"]),
    "to 240, widens at once": (240, []),
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
# 240 is more than nine tenths of 256: the last row costs more of everything.

# %% [markdown] slide="slide"
# ## Narrow outside, wide inside
#
# MobileNetV2 turns the bottleneck inside out: a 1×1 convolution from 24 to 144 channels, a 3×3 that treats each channel
# by itself (*depthwise*), a 1×1 back to 24. It was made for phones, to compute little.

# %% [markdown] slide="notes"
# A plain 3×3 at 144 channels would have 9 · 144 · 144 = 186,624 weights. Here a batch normalisation follows each
# convolution, and a ReLU the two wide ones. The plain 3×3 in the output below is at 24 channels, with normalisation and
# ReLU. (MobileNetV2 adds the block's input to its output. An addition keeps nothing.)


# %% folded=true
class Block(nn.Module):
    """A block between a convolution, which makes its input, and a head."""

    def __init__(self, before, block, after):
        super().__init__()
        self.before = nn.Sequential(nn.Conv2d(3, before, 3, padding=1), nn.ReLU())
        self.block = block
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(after, 10))

    def forward(self, x):
        return self.head(self.block(self.before(x)))


def block_row(before, block, after, side):
    """Kept maps (MiB), parameters and GFLOP of one block at batch 128."""
    with torch.device("meta"):
        step = training_step(Block(before, block(), after), (3, side, side), 10).at(128)
    table = step.by_layer()
    own = table[table["layer"].str.startswith("block")]
    kept = own["saved feature maps"].sum() / MIB
    return kept, own["parameters"].sum(), own["flops"].sum() / 128e9


def inverted(activation):
    """A block of MobileNetV2 without its shortcut; (N, 24, H, W) -> (N, 24, H, W)."""
    return nn.Sequential(
        nn.Conv2d(24, 144, 1, bias=False), nn.BatchNorm2d(144), activation(),
        nn.Conv2d(144, 144, 3, padding=1, groups=144, bias=False),
        nn.BatchNorm2d(144), activation(),
        nn.Conv2d(144, 24, 1, bias=False), nn.BatchNorm2d(24),
    )  # fmt: skip


def plain():
    return nn.Sequential(
        nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()
    )


mobile = block_row(24, lambda: inverted(nn.ReLU), 24, 56)
usual = block_row(24, plain, 24, 56)
print(f"3×3 at 24 channels: {usual[1]:,} parameters, {usual[2]:.3f} GFLOP,", end=" ")
print(f"keeps {usual[0]:.2f} MiB at batch 128, maps of 56 × 56")
print(f"MobileNetV2's block with ReLU: {mobile[1]:,} parameters, {mobile[2]:.3f} GFLOP")

# %%
guess_mobile = predict(
    "How many MiB does training keep of this block with ReLU, at the same batch and size?",
    unit="MiB",
)
guess_mobile

# %% slide="subslide" folded=true
reveal(
    guess_mobile,
    {"trace": mobile[0]},
    thoughts=[
        (usual[0] * mobile[1] / usual[1], "As the parameters. They are not what is kept."),
        (6 * usual[0], "Six times as wide. But the block is wide at two convolutions."),
        (
            12 * usual[0],
            "Two wide convolutions, and two maps kept at each, as at the plain one. The last, "
            "narrow one adds its output, which its normalisation needs.",
        ),
    ],
)

# %% [markdown] slide="notes"
# MobileNetV2 has ReLU6 in place of ReLU: it cuts off at 0 and at 6. What does the block keep with it?

# %%
six = block_row(24, lambda: inverted(nn.ReLU6), 24, 56)
print(f"with ReLU6: {six[0]:,.2f} MiB, {six[0] - mobile[0]:.2f} MiB more")
for activation in (nn.ReLU(), nn.ReLU6()):
    node = activation(torch.randn(8, requires_grad=True)).grad_fn
    what = "its input" if hasattr(node, "_saved_self") else "its output"
    print(f"{type(activation).__name__} saves {what}")

# %% [markdown] slide="notes"
# The convolution that follows keeps the activation's output in any case. ReLU saves the same tensor. ReLU6, as PyTorch
# wrote it, saves its input, so each of the two wide places holds one map more. It need not: the gradient is 0 where the
# output is 0 or 6. (On a phone the network runs *inference*, where nothing is kept.)

# %% [markdown] slide="slide"
# ## A squeeze that is not about maps: LoRA
#
# LoRA freezes a large matrix and trains a squeeze beside it: from 4,096 numbers to 16, and back.


# %% folded=true
class LoRA(nn.Module):
    """A frozen dense layer, and a squeeze beside it that is trained."""

    def __init__(self, width=4096, rank=16):
        super().__init__()
        self.large = nn.Linear(width, width, bias=False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        self.large.weight.requires_grad_(False)

    def forward(self, x):
        return self.large(x) + self.up(self.down(x))


rows = {}
for name, make in {
    "all weights": lambda: nn.Linear(4096, 4096, bias=False),
    "LoRA, rank 16": LoRA,
}.items():
    with torch.device("meta"):
        layers = [nn.Sequential(make(), nn.GELU()) for _ in range(4)]
        model = nn.Sequential(*layers, nn.Linear(4096, 10))
    step = training_step(model, (4096,), 10, "adamw").at(2048)
    roles, table = step.by_role(), step.by_layer()
    rows[name] = {
        "maps kept": format_bytes(table["saved feature maps"].sum()),
        "gradients of weights": format_bytes(table["weight gradients"].sum()),
        "AdamW's averages": format_bytes(roles["optimizer state"]),
        "peak": format_bytes(step.peak_bytes),
    }
pd.DataFrame(rows).rename_axis("four layers of 4,096, 2,048 tokens")

# %% [markdown] slide="notes"
# This squeeze widens at once, k = 0, so it adds to the maps. What it saves are gradients and optimizer state. Lesson 14
# fine-tunes with it.

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
peaks = {}
for name, build in named.items():
    with torch.device("meta"):
        step = training_step(build(), (1, 8, 8), 10, "adam", "float32", "cpu")
    peaks[name] = step.at(64).peak_bytes
table.map(format_share).assign(**{"traced peak, batch 64": pd.Series(peaks).map(format_bytes)})

# %% folded=true
print(textwrap.fill(trained.provenance("squeezed"), 88))
seeds = kept.groupby(level=0)
spread = 100 * (seeds.max() - seeds.min())
for name in means.index[1:]:
    gaps = 100 * (means.loc[name] - means.iloc[0])
    told = ", ".join(f"{gap:+.1f} after {epochs} epochs" for epochs, gap in gaps.items())
    print(f"{name}: {told}; seeds {spread.loc[name].iloc[-1]:.1f} apart")

# %% [markdown] slide="notes"
# (In points, against 32 channels throughout. The last number is for the longest training.) After three epochs the
# narrow networks look bad. After thirty, each squeeze is closer to the wide network than its own three seeds are to
# each other: a difference is not shown. With 8 channels throughout it is. These digits are easy; on harder images gaps
# may stay.
#
# Memory can be judged without training: of the four, the squeeze that widens at once has the highest peak.

# %% slide="skip"
print(inspect.getsource(trained.chain))

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change the convolutions, (kernel, channels) each, or the epochs, and run.
convolutions, epochs = [(3, 32), (1, 8), (3, 8), (3, 8), (3, 32)], [1, 3]
shares = learned(lambda: trained.chain(*convolutions), epochs, side=8)
print({epoch: format_share(share) for epoch, share in zip(epochs, shares, strict=True)})
needs = compare({"yours": Variant(lambda: trained.chain(*convolutions))}, 1, (0,), side=8)
needs[["traced peak", "measured peak"]].map(format_bytes)

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
squeeze_explorer("VGG-16", "conv1_2", 32, 1)

# %% [markdown] slide="notes"
# Try three things. Change the channels: between which two of them does the peak begin to rise? (By hand first; `pool1`
# follows.) Find a squeeze that costs memory *and* weights. Squeeze before `conv5_1`: what does the peak lose, and why
# so little?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# By hand the squeeze, `conv1_2` and the pool become narrow: 2.75 · m against 1.75 · 64, so it saves up to 40 channels.
# The peak falls at 32 and rises at 48. A squeeze to 64 channels before `conv1_2`, which reads 64, costs weights too.
# Before
# `conv5_1` the peak falls by tens of MiB of weights, their gradients and momentum. No map is saved: the peak is at `relu4_3`
# in the backward pass, and by then the backward pass has finished with group 5.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A squeeze adds m values a position. Each convolution that stays narrow saves C − m.
# 2. Before a 3×3 it saves arithmetic below 0.9 · C, even if it widens at once.
# 3. For ResNet-34's arithmetic, squeezes buy ResNet-50 four times the width. Training keeps it.

# %% [markdown] slide="notes"
# Where a pool follows the narrow layers, it becomes narrow as well, and the squeeze saves up to a few more channels.
# MobileNet's block is narrow outside and wide inside: little arithmetic for its width, and much to keep.
#
# Now the exercise: [exercises/05_one_by_one.ipynb](../exercises/05_one_by_one.ipynb). {questions}.
# Save, then `course check 05` gives your marks.
