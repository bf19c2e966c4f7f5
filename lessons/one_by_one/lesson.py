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
# 4. recognise it in a MobileNet, in a transformer and in LoRA.
#
# About 75 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the backward pass, the
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
# The 3×3 convolutions of both networks are equally wide, 64 channels in the first stage, so the bottlenecks cost hardly
# more arithmetic:

# %% folded=true
resnets = {
    "ResNet-34": networks.resnet34,
    "ResNet-50": networks.resnet50,
    "ResNet-34, four times as wide": lambda: networks.resnet34(width=256),
}
steps, tables = {}, {}
for name, build in resnets.items():
    with torch.device("meta"):
        model = build()
    steps[name] = training_step(model, (3, 224, 224), 1000, name=name).at(128)
    tables[name] = steps[name].by_layer().set_index("layer")
small, deep, wide = resnets


def told(name, *hidden):
    """What a network has and needs at batch 128."""
    facts = {
        "parameters": f"{tables[name]['parameters'].sum():,}",
        "GFLOP forward, one image": f"{tables[name]['flops'].sum() / 128e9:.1f}",
        "peak at batch 128": format_bytes(steps[name].peak_bytes),
    }
    return {key: "?" if key in hidden else fact for key, fact in facts.items()}


pd.DataFrame({small: told(small), deep: told(deep, "peak at batch 128")})

# %%
guess = predict(
    "What is the peak of ResNet-50 at batch 128, trained with momentum as ResNet-34 above?",
    unit="GiB",
)
guess

# %% slide="subslide" folded=true
reveal(
    guess,
    {"trace": steps[deep].peak_bytes / GIB},
    thoughts=[
        (
            steps[small].peak_bytes / GIB,
            "As much as ResNet-34: their arithmetic is alike, their maps are not.",
        ),
        (
            steps[small].peak_bytes
            * (tables[deep]["flops"].sum() / tables[small]["flops"].sum())
            / GIB,
            "A little more, as the arithmetic. But arithmetic is no measure of what is kept.",
        ),
        (
            steps[small].peak_bytes * 3 / 4 / GIB,
            "Less, since it squeezes: but a squeeze needs something wide to squeeze.",
        ),
        (
            2 * steps[small].peak_bytes / GIB,
            "Twice as much: a good guess, and still too small.",
        ),
    ],
)

# %% [markdown] slide="slide"
# ## One block, map by map
#
# Where does the rest come from? Here is what one block of each network keeps for the backward pass.


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
# Two things changed from ResNet-34 to ResNet-50: the maps between blocks are four times as wide, and each block
# squeezes. To tell them apart, build a ResNet-34 that is as wide as ResNet-50 between its blocks, and squeezes nowhere.

# %% slide="subslide" folded=true
pd.DataFrame({name: told(name) for name in resnets}).T

# %%
OWNED = ["parameters", "weight gradients", "optimizer state"]
for what, before, after in (("four times the width", small, wide), ("squeezes", wide, deep)):
    more = (steps[after].by_role() - steps[before].by_role()) / GIB
    maps_more = more["feature maps"]
    print(f"{what}: {more.sum():+.2f} GiB at the peak. Feature maps {maps_more:+.2f},")
    print(f"  parameters, their gradients and momentum {more[OWNED].sum():+.2f}")
less = tables[deep]["flops"].sum() / tables[wide]["flops"].sum()
print(f"With squeezes: {100 * less:.0f} % of the arithmetic at the same width")

# %% [markdown] slide="notes"
# At equal width most of what squeezes save is weights, with their gradients and momentum; of the maps they save little,
# and of the arithmetic nearly all. But ResNet-50 does not have the width of ResNet-34. For about the same arithmetic,
# squeezes buy four times the width, and width is what training keeps. (Wide residual networks, Zagoruyko and Komodakis
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
# convolution needs its *input* again. All 1,048,576 values stay until the backward pass, and 393,216 come on top. At the
# squeeze itself memory rises. Autograd confirms it:

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
# | kept, for each position | before | after |
# |---|---:|---:|
# | the squeeze | 0 | m |
# | k convolutions | k · C | k · m |
# | the one that widens | C | C |

# %% [markdown]
# **Kept more: m − k · (C − m).**

# %% [markdown] slide="notes"
# With k = 0 that is +m whatever m is: a squeeze that widens at once only adds. With k = 1 it saves below half of C, with
# k = 2 below two thirds.
#
# The table has one map for each convolution, as in VGG-16. With a normalisation after each, as in the ResNets above,
# every number in it is twice as large, and the break-even is the same.

# %%
guess_even = predict(
    "In VGG-16, conv3_2 reads 256 channels. Squeeze to m before it, and let conv3_2 and "
    "conv3_3 stay narrow: k = 2. What is the largest m with which the peak still falls?",
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

# %% slide="skip" tags=["change"]
# Change channels and run, until the sign changes. Then try one narrow layer, or none.
channels, narrow = 64, ["conv3_2", "conv3_3"]
more = squeezed_vgg16("conv3_2", channels, narrow).peak_bytes - published.peak_bytes
print(f"{channels} channels, {len(narrow)} narrow: {more / MIB:+,.1f} MiB at the peak")


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
    {"trace": two, "by the formula": 2 * 256 // 3},
    thoughts=[
        (
            170,
            "That is the formula: two thirds of 256. Look what comes after conv3_3: a pool.",
        ),
        (128, "Half of 256 is the break-even of one narrow layer."),
    ],
)

# %% [markdown] slide="notes"
# The formula counts convolutions. After `conv3_3` comes `pool3`, and it passes the narrow maps on: a quarter of the
# values, each of 4 bytes with an index of 8: the space of three. So 3 / 4 of a map more becomes narrow, and the
# break-even is where 3.75 · m = 2.75 · 256. To check that it is the pool, replace it by an average pool, which keeps
# no index: 1 / 4 of a map.

# %%
averaged = break_even(["conv3_2", "conv3_3"], nn.AvgPool2d(2))
for name, most, extra in (("max", two, 3 / 4), ("average", averaged, 1 / 4)):
    by_hand = 256 * (2 + extra) / (3 + extra)
    print(f"{name} pool: by hand below {by_hand:.1f} channels, by trace up to {most}")

# %% [markdown] slide="notes"
# The trace pays a little longer than the maps by hand. Narrow layers have fewer weights too. How many channels are they
# worth, with the max pool?

# %%
narrower = squeezed_vgg16("conv3_2", two, ["conv3_2", "conv3_3"])
spared = published.by_role()[OWNED].sum() - narrower.by_role()[OWNED].sum()
channel = 4 * 128 * 56 * 56 * 3.75  # bytes of one channel in the squeeze, two layers and pool
print(f"{format_bytes(spared)} less of {', '.join(OWNED)}: {spared / channel:.1f} channels")

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
least, most = min(change["widens at once"]), max(change["widens at once"])
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
    marks={"1/2": 128.0, "2/3": 256 * 2 / 3},
    title=f"One narrow layer pays up to {one} channels of 256, two up to {two}; "
    f"widening at once adds {1024 * least:.0f} to {1024 * most:.0f} MiB",
)

# %% [markdown] slide="slide"
# ## What else it saves: arithmetic
#
# A 3×3 convolution does 9 multiply-adds for each pair of channels, a 1×1 convolution 1.

# %% [markdown] slide="notes"
# A 3×3 convolution from C to C channels costs 9 · C · C. With a squeeze before it, the two cost C · m + 9 · m · C. That is
# less if m is below 0.9 · C. Weights follow the same count. Memory does not: compare the second row with the first.

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
# by itself (*depthwise*), a 1×1 back to 24. It was made to compute little, on a phone.

# %% [markdown] slide="notes"
# A batch normalisation follows each convolution, in this block and in the plain 3×3 beside it. (MobileNetV2 adds the
# block's input to its output. An addition keeps nothing.)


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


def inverted(activation=nn.ReLU6):
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


mobile, usual = block_row(24, inverted, 24, 56), block_row(24, plain, 24, 56)
print(f"3×3 at 24 channels: {usual[1]:,} parameters, {usual[2]:.3f} GFLOP,", end=" ")
print(f"keeps {usual[0]:.2f} MiB at batch 128, maps of 56 × 56")
print(f"MobileNetV2's block: {mobile[1]:,} parameters, {mobile[2]:.3f} GFLOP")

# %%
guess_mobile = predict(
    "How many MiB does training keep of MobileNetV2's block, at the same batch and size?",
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
            "Two wide convolutions, and two maps kept at each, as at the plain one. But ReLU6 "
            "keeps its input, to know where it cut off: three maps at each.",
        ),
    ],
)

# %% [markdown] slide="notes"
# ReLU6 cuts off at 0 and at 6. With a plain ReLU, whose output tells all that its backward pass needs, the same block
# keeps a third less, as the table says. In *inference* there is no backward pass to keep maps for.
#
# Two more blocks are in the table. An Inception block of GoogLeNet has a reduction before its 3×3 and its 5×5 branch.
# The *MLP* of a transformer is two dense layers, and wide inside, like MobileNet's block.


# %% slide="subslide" folded=true
def branch(*convolutions):
    """Convolutions by (inputs, outputs, kernel), a ReLU after each."""
    layers = [
        part
        for i, o, k in convolutions
        for part in (nn.Conv2d(i, o, k, padding=k // 2), nn.ReLU())
    ]
    return nn.Sequential(*layers)


class Inception(nn.Module):
    """Block 3a of GoogLeNet, with or without its reductions; 192 channels in, 256 out."""

    def __init__(self, reduced):
        super().__init__()
        three = [(192, 96, 1), (96, 128, 3)] if reduced else [(192, 128, 3)]
        five = [(192, 16, 1), (16, 32, 5)] if reduced else [(192, 32, 5)]
        pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), *branch((192, 32, 1)))
        parts = [branch((192, 64, 1)), branch(*three), branch(*five), pool]
        self.branches = nn.ModuleList(parts)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def mlp():
    """A transformer's MLP as 1×1 convolutions: each position is a token; 768 channels."""
    return nn.Sequential(nn.Conv2d(768, 3072, 1), nn.GELU(), nn.Conv2d(3072, 768, 1))


blocks = {
    "Inception 3a, 28 × 28": block_row(192, lambda: Inception(True), 256, 28),
    "the same without reductions": block_row(192, lambda: Inception(False), 256, 28),
    "MobileNetV2, 56 × 56": mobile,
    "the same with ReLU for ReLU6": block_row(24, lambda: inverted(nn.ReLU), 24, 56),
    "MLP of ViT-B, 14 × 14 tokens": block_row(768, mlp, 768, 14),
}
pd.DataFrame(
    {
        name: {
            "kept": f"{kept:,.1f} MiB",
            "parameters": f"{count:,}",
            "GFLOP": f"{work:.2f}",
        }
        for name, (kept, count, work) in blocks.items()
    }
).T.rename_axis("block")

# %% [markdown]
# The reductions more than halve the arithmetic of the Inception block, and add two maps to what is kept.

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
# This squeeze widens at once, so it adds to the maps, as the formula says. What it saves are gradients and optimizer
# state. Lesson 14 fine-tunes with it.

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
spread = 100 * (seeds.max() - seeds.min()).max()
for name in means.index[1:]:
    gaps = 100 * (means.loc[name] - means.iloc[0])
    told = ", ".join(f"{gap:+.1f} after {epochs} epochs" for epochs, gap in gaps.items())
    print(f"{name}: {told}")
print(
    f"seeds of one network after {means.columns[-1]} epochs: up to {spread.iloc[-1]:.1f} apart"
)

# %% [markdown] slide="notes"
# (In points, against 32 channels throughout.) After three epochs the narrow networks look bad. Most of that is slow
# learning. After thirty, both squeezes are closer to the wide network than two seeds of one network were to each other
# here. With 8 channels throughout there is still a gap. These digits are easy; on harder images gaps may stay.
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
# Try three things. Change the channels: from which number on does the peak rise? Find a squeeze that costs memory *and*
# weights. Squeeze before `conv5_1`: what does the peak lose, and why so little?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Before `conv1_2`, with one narrow layer, the peak falls at 32 channels and rises at 48. A squeeze to 64 channels before
# `conv1_2`, which reads 64, costs weights too. Before `conv5_1` the peak falls by tens of MiB of weights, their gradients
# and momentum: it is at `relu4_3` in the backward pass, when group 5 has already been through its own.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A squeeze keeps its input and adds its output: m − k · (C − m) values for each position.
# 2. It saves arithmetic below 0.9 · C, even if it widens at once.
# 3. For the arithmetic of ResNet-34, squeezes buy ResNet-50 four times the width, and width is what training keeps.

# %% [markdown] slide="notes"
# Where a pool follows the narrow layers, it becomes narrow as well, and the squeeze pays a little longer. MobileNet's
# block and a transformer's MLP are narrow outside and wide inside: little arithmetic for their width, and much to keep.
#
# Now the exercise: [exercises/05_one_by_one.ipynb](../exercises/05_one_by_one.ipynb). {questions}.
# Save, then `course check 05` gives your marks.
