# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 04 · Stride
#
# **The question:** one argument of the first layer can multiply the peak of a whole vision transformer. Which memory
# depends on a stride, and which does not?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. compute how many values any convolution produces, rounding included;
# 2. say which maps a stride shrinks, and whether the peak will notice;
# 3. replace a pool by a stride without changing a single shape after it;
# 4. say what a stride throws away, and how long to train before you judge what that costs.
#
# About 85 minutes, and {minutes} for the exercise. It builds on lesson 03: feature maps, the peak, the skyline. No GPU
# is needed.

# %% slide="skip" folded=true
import inspect
import textwrap

import pandas as pd
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, skyline
from course_utils.figures.scene import INK
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.measure import measure_step
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share
from lessons.shared import trained
from lessons.shared.beside import beside_trace
from lessons.shared.changes import stays
from lessons.shared.digits import learned
from lessons.stride.explorer import stride_explorer
from lessons.stride.positions import kernel_positions

# %% [markdown] slide="slide"
# ## Where a vision transformer begins
#
# A vision transformer cuts an image into patches and turns each into a *token*, a vector of 768 numbers. The cutting is
# one convolution.

# %% [markdown] slide="notes"
# Its *kernel* is as wide as a patch. Its *stride* is how many pixels the kernel moves from one position to the next. In
# ViT-B/16 (Dosovitskiy et al., *An image is worth 16x16 words*, 2021) both are 16, so the patches of an image of
# 224 × 224 lie side by side, 14 in a row. With one *class token* more, an image is 197 tokens. Twelve identical layers
# then work on them.


# %% slide="skip"
class ViT(nn.Module):
    """ViT-B: (N, 3, 224, 224) to (N, 1000)."""

    def __init__(self, kernel=16, stride=16):
        super().__init__()
        self.patches = nn.Conv2d(3, 768, kernel, stride)
        tokens = self.patches(torch.empty(1, 3, 224, 224)).flatten(2).shape[2] + 1
        self.class_token = nn.Parameter(torch.zeros(1, 1, 768))
        self.positions = nn.Parameter(torch.zeros(1, tokens, 768))
        options = {"activation": "gelu", "batch_first": True, "norm_first": True}
        layers = [nn.TransformerEncoderLayer(768, 12, 3072, 0.0, **options) for _ in range(12)]
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(768)
        self.head = nn.Linear(768, 1000)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patches], 1)
        return self.head(self.norm(self.layers(tokens + self.positions))[:, 0])


def vit(kernel, stride):
    """The traced step of ViT-B with AdamW, its patches cut by this kernel and stride."""
    with torch.device("meta"):
        model = ViT(kernel, stride)
    return training_step(model, (3, 224, 224), 1000, "adamw", name="ViT-B")


published = vit(16, 16).at(32)
count = published.by_layer()["parameters"].sum()
print(
    f"ViT-B/16: {count:,} parameters, peak at batch 32: {format_bytes(published.peak_bytes)}"
)

# %%
guess = predict(
    f"ViT-B/16 at batch 32 peaks at {format_bytes(published.peak_bytes)}. Now the stride is "
    "8 and the kernel stays 16, so that patches overlap. What is the peak?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand: where the kernel stops
#
# A kernel of width 3 on 8 values, padded by 1 on either side. Its left edge starts on the padding,
# at 0, and can go no further than 7.
#
# | stride | left edge at | positions |
# |---:|---|---:|
# | 1 | 0 1 2 3 4 5 6 7 | 8 |
# | 2 | 0 2 4 6 | 4 |
# | 3 | 0 3 6 | 3 |
# | 4 | 0 4 | 2 |

# %% [markdown] slide="notes"
# At 7 its right edge is on the last value of the padding. So the left edge can move by `side + 2 · padding − kernel`, 7
# here. Divide by the stride, round down, and add one for the position at 0:

# %% [markdown]
# **side of the output = (side + 2 · padding − kernel) // stride + 1**

# %% slide="subslide" folded=true
kernel_positions(
    side=8,
    kernel=3,
    padding=1,
    strides=(1, 2, 3, 4),
    title="Twice the stride, half the positions; stride 4 leaves values out",
)

# %% slide="subslide" folded=true
rows = []
for name, side, kernel, padding, stride in (
    ("ViT-B/16, patches", 224, 16, 0, 16),
    ("VGG-16 conv1_1", 224, 3, 1, 1),
    ("the same at stride 3", 224, 3, 1, 3),
    ("AlexNet conv1", 224, 11, 2, 4),
    ("ResNet-50 conv1", 224, 7, 3, 2),
):
    formula = (side + 2 * padding - kernel) // stride + 1
    layer = nn.Conv2d(3, 1, kernel, stride, padding, device="meta")
    pytorch = layer(torch.empty(1, 3, side, side, device="meta")).shape[-1]
    rows.append((name, side, kernel, padding, stride, formula, pytorch))
columns = ["layer", "side", "kernel", "padding", "stride", "formula", "PyTorch"]
pd.DataFrame(rows, columns=columns).set_index("layer")

# %% [markdown]
# Both sides of a map shrink, so stride s leaves about 1 / s² of the values. Only about, since positions are whole
# numbers.

# %% [markdown] slide="notes"
# A side of 224 at stride 3 gives 75 positions, not 74.67. In AlexNet's first layer the left edge could move
# by 217. It takes 54 steps of 4, which make 216. The last column, of padding, is never read.
#
# Now your guess. Work out how many tokens an image has at stride 8, and which part of the peak grows with them.

# %% [markdown] slide="slide"
# ## What a token weighs

# %% folded=true
overlapping = vit(16, 8).at(32)
tokens = {stride: ((224 - 16) // stride + 1) ** 2 + 1 for stride in (16, 8)}
fixed = 3 * 4 * count  # parameters and the two averages of AdamW
maps = published.peak_bytes - fixed
by_hand = fixed + maps * tokens[8] / tokens[16]
reveal(
    guess,
    {"by hand": by_hand / GIB, "trace": overlapping.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (
            2 * published.peak_bytes / GIB,
            "Twice as many patches in a row; but there are also twice as many rows.",
        ),
        (
            4 * published.peak_bytes / GIB,
            "Four times everything. Parameters and AdamW's averages do not grow with the "
            "tokens.",
        ),
        (
            (fixed + 4 * maps) / GIB,
            "Four times the maps. Nearly: a kernel of 16 fits 27 times into a row, not 28.",
        ),
        (
            published.peak_bytes / GIB,
            "The kernel is as large as before, but it stops at more places, and each "
            "is a token.",
        ),
        (
            published.peak_bytes / 4 / GIB,
            "A smaller stride gives more tokens, not fewer.",
        ),
    ],
)

# %% slide="subslide"
factor = overlapping.peak_bytes / published.peak_bytes
skyline(
    overlapping,
    before=published,
    before_name="stride 16",
    title=f"ViT-B at stride 8: {tokens[8]} tokens instead of {tokens[16]}, "
    f"the peak is {factor:.1f} times as high",
)

# %%
for stride, step in ((16, published), (8, overlapping)):
    each = step.by_layer()["saved feature maps"].sum() / 32 / tokens[stride]
    print(
        f"stride {stride:>2}: {tokens[stride]} tokens, {each / MIB:.2f} MiB kept for each;",
        end=" ",
    )
    print(f"of the peak {format_bytes(stays(step))} are parameters,", end=" ")
    print("gradients and AdamW's averages")

# %% [markdown]
# Every layer comes after the patches, so every map is counted in tokens. By hand we scaled the images too, which are
# not: hence a little more than the trace.

# %% [markdown] slide="notes"
# A token weighs the same at either stride, although each token attends to all others. Should it not weigh more, the
# more others there are? It does if attention writes down its table of all pairs of tokens. The *fused* attention that
# was traced above does not. Make PyTorch write it:

# %% slide="skip"
with sdpa_kernel(SDPBackend.MATH):
    written = {16: vit(16, 16).at(32), 8: vit(16, 8).at(32)}
for stride, step in written.items():
    each = step.by_layer()["saved feature maps"].sum() / 32 / tokens[stride]
    print(f"stride {stride:>2}, all pairs written: {each / MIB:.2f} MiB kept for each token")

# %% [markdown] slide="notes"
# Lesson 13 takes attention apart. Here try the first layer: does the kernel make the model smaller, or the stride?

# %% slide="skip" tags=["change"]
# Change one of the two at a time, and run: 32, 16, 14 or 8.
kernel, stride = 32, 16
step = vit(kernel, stride)
weights = step.at(32).by_layer()["parameters"].sum()
print(f"kernel {kernel}, stride {stride}: {format_bytes(step.at(32).peak_bytes)} at the peak,")
print(f"{weights:,} parameters")

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Kernel 32 has 1.75 million parameters more, and the peak falls: without padding it fits 13 times into a row, so there
# are 170 tokens. Kernel 14 or 8 at stride 16 fits 14 times, as before, and the peak hardly moves. What counts is the
# number of positions.
#
# </details>

# %% [markdown] slide="slide"
# ## The same stride, further in
#
# In a transformer every layer comes after the stride. In VGG-16 one can put a stride anywhere.

# %% [markdown] slide="notes"
# Give `conv5_1`, its eleventh convolution, stride 2: the maps of group 5 have a quarter of their values.


# %% folded=true
def vgg16(strides, dropped=()):
    """VGG-16's traced step at batch 128 with these strides, without the `dropped` pools."""
    with torch.device("meta"):
        model = networks.vgg16()
        for layer, stride in strides.items():
            model.get_submodule(layer).stride = (stride, stride)
        for pool in dropped:
            setattr(model, pool, nn.Identity())
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


plain, late = vgg16({}), vgg16({"conv5_1": 2})
saved = [int(step.by_layer()["saved feature maps"].sum()) for step in (plain, late)]
print(f"VGG-16 at batch 128, peak: {format_bytes(plain.peak_bytes)}")
print(f"kept when the backward pass begins: {format_bytes(saved[0])};", end=" ")
print(f"with stride 2 in conv5_1: {format_bytes(saved[1])}")

# %%
guess_late = predict(
    "conv5_1 of VGG-16 gets stride 2, and training keeps less, as printed above. By how "
    "many MiB does the peak change?",
    unit="MiB",
)
guess_late

# %% slide="subslide" folded=true
fewer = (saved[0] - saved[1]) / MIB
reveal(
    guess_late,
    {"trace": (plain.peak_bytes - late.peak_bytes) / MIB},
    thoughts=[
        (
            fewer,
            "That is what is kept less at the end of the forward pass. The peak comes later, "
            "when those maps have been used and freed.",
        ),
        (
            3 / 4 * plain.peak_bytes / MIB,
            "Three quarters of everything: but ten convolutions come before this one.",
        ),
    ],
)

# %% slide="subslide"
gone = saved[0] - saved[1]
skyline(
    late,
    before=plain,
    title=f"Stride 2 in conv5_1: {format_bytes(gone)} less is kept, "
    f"and the peak stays at {format_bytes(late.peak_bytes)}",
)

# %% [markdown]
# The two outlines differ around the turn from forward to backward, while group 5 is passed, and agree at the peak.

# %% [markdown] slide="notes"
# The peak is in the backward pass at `relu4_3`. The backward pass runs from the last layer to the first. By then it has
# finished with group 5 and freed its maps, whatever their size. **Bytes saved lower the peak only if they would have
# been alive there.**
#
# If that is the reason, a network whose peak comes before the late maps are freed must behave differently. ResNet-50
# is one. Its convolutions have strides in four places. Take out one at a time:

# %% slide="subslide" folded=true
resnet = {}
for place in ("as published", "conv5_1", "conv4_1", "conv3_1", "conv1"):
    with torch.device("meta"):
        model = networks.resnet50()
        if place == "conv1":
            model.conv1.stride = (1, 1)
        elif place in model._modules:
            block = model.get_submodule(place)
            block.conv2.stride = block.shortcut.conv.stride = (1, 1)
    resnet[place] = training_step(model, (3, 224, 224), 1000, name="ResNet-50").at(128)
pd.DataFrame(
    {
        "peak at batch 128": {k: format_bytes(step.peak_bytes) for k, step in resnet.items()},
        "where": {k: f"{step.peak_phase}, {step.peak_layer}" for k, step in resnet.items()},
        "GFLOP forward, one image": {
            place: f"{step.by_layer()['flops'].sum() / 128e9:.1f}"
            for place, step in resnet.items()
        },
    }
).rename_axis("without the stride of")

# %% [markdown]
# Its peak is in the last block, so even the last stride counts. In this network, the earlier a stride, the more
# depends on it, in memory and in arithmetic.

# %% [markdown] slide="slide"
# ## A floor
#
# One would think: if stride 2 in an early layer helps, stride 4 helps more. See whether you can get VGG-16 below 8 GiB
# with a stride in `conv3_1` alone.

# %% slide="skip" tags=["change"]
# Change the stride of conv3_1 and run. Then try conv2_1.
step = vgg16({"conv3_1": 2})
print(f"{format_bytes(step.peak_bytes)}, {step.peak_phase} pass, at {step.peak_layer}")

# %% slide="subslide" folded=true
places, strides = ("conv5_1", "conv3_1", "conv2_1", "conv1_1"), (1, 2, 3, 4)
peaks = {
    place: [vgg16({place: stride}).peak_bytes / GIB for stride in strides] for place in places
}
floor = peaks["conv3_1"]
plane(
    Axis("stride of that layer", low=0, high=5, write=lambda s: "" if s % 1 else f"{s:g}"),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    spots=[
        Spot(place if stride == 4 else "", stride, peak, colour)
        for (place, row), colour in zip(peaks.items(), SERIES_COLOURS, strict=False)
        for stride, peak in zip(strides, row, strict=True)
    ],
    title=f"Stride 2 in conv3_1 reaches {floor[1]:.2f} GiB, stride 4 no less; "
    f"conv1_1 falls to {peaks['conv1_1'][3]:.2f}",
)

# %% [markdown] slide="notes"
# With stride 2 in `conv3_1` the peak moves to `relu2_2`, before the stride. The maps alive there were all made before
# the stride, at full size, and the gradients of the weights do not depend on it. So a larger stride finds a floor. The
# strided layer stops at fewer positions, but its input is kept whole.

# %% [markdown] slide="slide"
# ## A stride in place of a pool
#
# VGG-16 has a pool after each group. Drop the pool, give the convolution before it stride 2, and every later map has
# the shape it had.

# %% folded=true
swaps = {
    "conv1_2": "pool1",
    "conv2_2": "pool2",
    "conv3_3": "pool3",
    "conv4_3": "pool4",
    "conv5_3": "pool5",
}
rows = []
for layer, pool in swaps.items():
    step = vgg16({layer: 2}, dropped=[pool])
    rows.append((f"{layer} instead of {pool}", format_bytes(step.peak_bytes)))
everywhere = vgg16(dict.fromkeys(swaps, 2), dropped=swaps.values())
rows.append(("all five", format_bytes(everywhere.peak_bytes)))
rows.append(("none, as published", format_bytes(plain.peak_bytes)))
columns = ["a stride for a pool", "peak at batch 128"]
pd.DataFrame(rows, columns=columns).set_index("a stride for a pool")

# %% [markdown] slide="notes"
# The pool goes, with its output and its indices, and the map it read is small from the start. (In place of `pool5` this
# lowers no peak: group 5 is not alive there.)
#
# It is another network, though. Before a pool the convolution computes four values, of which the pool keeps the
# largest; a stride computes one of the four. Springenberg et al. (*Striving for simplicity: the all convolutional
# net*, 2015, table 3) tried it on CIFAR-10 without data augmentation: in their network C the error rose from 9.74 %
# with pools to 10.19 % with strides. Then they made both one convolution deeper at each of these places. With pools the
# error was 9.31 %, with strides 9.08 %.

# %% [markdown] slide="slide"
# ## What is never read
#
# A kernel narrower than its stride skips values. Autograd tells which: the gradient of an input value that no kernel
# reads is zero.


# %%
def share_read(kernel, stride, padding, side):
    """Share of the values of a map that a convolution looks at."""
    layer = nn.Conv2d(1, 1, kernel, stride, padding, bias=False)
    nn.init.ones_(layer.weight)
    x = torch.zeros(1, 1, side, side, requires_grad=True)
    layer(x).sum().backward()
    return float((x.grad != 0).float().mean())


kernels, strides = (1, 3, 5, 7), (1, 2, 3, 4)
read = [
    [f"{100 * share_read(kernel, stride, kernel // 2, 64):.0f} %" for stride in strides]
    for kernel in kernels
]
pd.DataFrame(
    read,
    index=pd.Index(
        [f"kernel {kernel} × {kernel}" for kernel in kernels],
        name="share of the input that is read",
    ),
    columns=[f"stride {stride}" for stride in strides],
)

# %% [markdown] slide="notes"
# (The missing 3 % are the border: steps of 4 stop one row and one column before the end of 64 values.)
#
# ResNet-50 halves its maps three times with a 1 × 1 kernel at stride 2, on the *shortcut* that adds a block's input to
# its output. Three quarters of the values that arrive at this kernel are not read by it.

# %% [markdown] slide="slide"
# ## What it costs in accuracy
#
# A small network on scikit-learn's handwritten digits, enlarged to 16 × 16. Its first convolution, 3 × 3, gets stride
# 1, 2, 4 or 8. A fifth network has stride 8 and kernel 8.

# %% [markdown] slide="notes"
# Stride 8 changes two things: most of the image is never read, and only 2 × 2 positions are left. With kernel 8 the
# positions are as few, and all of the image is read. (The head brings any map to 4 × 4; at stride 8 each value is
# copied to four places.) First what they need, traced and measured here:

# %% slide="skip"
print(inspect.getsource(trained.strided))

# %% tags=["nbval-ignore-output"] folded=true
needs = {}
for name, build in trained.RUNS["strided"].networks.items():
    with torch.device("meta"):
        step = training_step(build(), (1, 16, 16), 10, "adam", "float32", "cpu").at(64)
    here = measure_step(build(), (1, 16, 16), 10, 64, "adam", "cpu")
    needs[name] = {"traced": step.peak_bytes, "measured here": here.peak_bytes}
pd.DataFrame(needs).map(format_bytes).rename_axis("peak at batch 64")

# %% [markdown] slide="skip"
# What the measured peak has above the traced one is probably scratch memory of the CPU's convolutions.
#
# Then accuracy. Three epochs, 60 updates, look like a verdict:

# %% slide="subslide" folded=true
kept, named = trained.kept("strided"), list(trained.RUNS["strided"].networks)
early = kept[3].groupby(level=0).agg(["mean", "min", "max"]).loc[named]
first_layers = [(3, 1, 1), (3, 2, 1), (3, 4, 1), (3, 8, 1), (8, 8, 0)]
early["read"] = [share_read(*first, side=16) for first in first_layers]
columns = ["accuracy after 3 epochs", "lowest seed", "highest seed", "image read by conv 1"]
early.set_axis(columns, axis=1).map(format_share)

# %%
guess_long = predict(
    "A bet. With kernel 3 and stride 8 the first layer reads a tenth of the image. Train it "
    "ten times as long: below 50 %, from 50 to 80 %, or near stride 1?",
    unit="%",
)
guess_long

# %% slide="subslide" folded=true
long = 100 * float(kept[30]["stride 8"].mean())
reveal(
    guess_long,
    {"after 30 epochs": long},
    thoughts=[
        (
            100 * early["mean"]["stride 8"],
            "That is the table's number. But much of the gap to stride 1 was slow learning.",
        ),
        (
            100 * float(kept[30]["stride 1"].mean()),
            "As good as stride 1: ten times the training closes part of the gap, and not all.",
        ),
    ],
)

# %% slide="subslide" folded=true
means = 100 * kept.groupby(level=0).mean().loc[named]
colours = dict(zip(means.index, [*SERIES_COLOURS, INK], strict=True))
plane(
    Axis("epochs", log=True),
    Axis("% of the test digits recognised", low=0, high=100),
    [
        Curve(name, list(means.columns), list(row), colours[name])
        for name, row in means.iterrows()
    ],
    [
        Spot("", epochs, share, colours[name], small=True)
        for name, row in means.iterrows()
        for epochs, share in row.items()
    ],
    title=f"Stride 8 after 100 epochs: {means[100]['stride 8']:.0f} % with kernel 3, "
    f"{means[100]['stride 8, kernel 8']:.0f} % with kernel 8",
)

# %% folded=true
print(textwrap.fill(trained.provenance("strided"), 88))
seeds = 100 * kept.groupby(level=0).agg(lambda shares: shares.max() - shares.min())
for name, row in means.iterrows():
    told = ", ".join(f"{row[e] - means[e]['stride 1']:+.1f} after {e}" for e in means.columns)
    print(f"{name}: {told} epochs; seeds {seeds.loc[name, 100]:.1f} apart")

# %% [markdown] slide="notes"
# After three epochs stride 8 with kernel 3 is 53 points behind stride 1, after a hundred 14. Three epochs compare how
# fast networks learn. Train until the curves are flat before you say what a stride costs, and read the spread of the
# seeds too.
#
# The fifth network has the same 2 × 2 positions and reads all of the image. After a hundred epochs it is one point
# behind stride 1, whose seeds are 1.2 apart. So on these digits it is not the few positions that cost 14 points, but
# what the narrow kernel never reads. (Kernel 8 has 440 weights more.) Stride 4, which reads 47 %, is two points behind.
# These digits were 8 × 8 before they were enlarged; a photograph has finer detail to lose.
#
# Train one yourself. Thirty epochs at stride 8 take some seconds; at stride 1 several times as long.

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change stride or epochs and run.
stride, epochs = 8, [1, 3, 10]
shares = learned(lambda: trained.strided(stride), epochs)
print({epoch: format_share(share) for epoch, share in zip(epochs, shares, strict=True)})

# %% [markdown] slide="skip"
# And on a GPU? The next cell asks the one in this machine, or else a recording of one, or else says that there is
# neither: VGG-16, which pools, beside ResNet-50, which strides.

# %% slide="skip" tags=["nbval-ignore-output"]
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "VGG-16") + beside_trace(gpu, "ResNet-50")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **which layer should get the stride?**

# %% [markdown] slide="notes"
# Before each move say whether the peak will fall.

# %% tags=["nbval-ignore-output"]
stride_explorer("AlexNet", "conv3", 2)

# %% [markdown] slide="notes"
# Try three things. In AlexNet, give stride 2 to `conv2`, `conv4` and `conv5` in turn: from where on does it no longer
# matter which? In VGG-16, give `conv1_2` stride 2, then leave out the next pool as well: does the peak fall further? In
# ResNet-50, undo the stride of `conv5_1`.

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# In AlexNet `conv2` brings the peak to 1.05 GiB, `conv4` and `conv5` both to 1.13 GiB. With stride 2 in `conv1_2`
# VGG-16 peaks at 6.23 GiB. Without the pool the peak is higher, 8.02 GiB: the later maps have their published size
# again. In ResNet-50 the peak rises to 12.20 GiB, as in the table above.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Stride s leaves about 1 / s² of the values of its output, and of the maps that follow.
# 2. Bytes saved lower the peak only if they would have been alive there.
# 3. A kernel narrower than its stride never reads part of its input. Train long before you judge what that costs.

# %% [markdown] slide="notes"
# Sizes are rounded to whole positions. A convolution's parameters stay, and so does the input of the strided layer, at
# full size. A layer that fixes the size of its output, such as the average before VGG-16's dense layers, ends what a
# stride shrinks. In a vision transformer the first stride decides the number of tokens.
#
# Now the exercise: [exercises/04_stride.ipynb](../exercises/04_stride.ipynb). {questions}. Save,
# then `course check 04` gives your marks.
