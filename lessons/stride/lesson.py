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
# **The question:** one argument of a vision transformer's first layer decides most of its peak. Which memory depends on
# a stride, and which does not?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. compute how many values any convolution produces, rounding included;
# 2. say which maps a stride shrinks, and whether the peak will notice;
# 3. say when a larger stride stops helping;
# 4. say what a stride throws away, and how long to train before you judge what that costs.
#
# About 75 minutes, and {minutes} for the exercise. It builds on lesson 03: feature maps, the peak, the skyline. No GPU
# is needed.

# %% slide="skip" folded=true
import textwrap

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, skyline
from course_utils.figures.scene import INK
from course_utils.figures.style import SERIES_COLOURS
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share
from lessons.shared import trained
from lessons.shared.beside import beside_trace
from lessons.stride.explorer import stride_explorer
from lessons.stride.positions import kernel_positions

# %% [markdown] slide="slide"
# ## Where a vision transformer begins
#
# A vision transformer cuts an image into patches and turns each into a *token*, in ViT-B a vector of 768 numbers. The
# cutting is one convolution.

# %% [markdown] slide="notes"
# Its *kernel* is as wide as a patch. Its *stride* is how many pixels the kernel moves from one position to the next. In
# ViT-B/16 (Dosovitskiy et al., *An image is worth 16x16 words*, 2021) both are 16, so the patches of an image of
# 224 × 224 lie side by side, 14 in a row. One token more, the *class token*, is where the class is read, so an image is
# 197 tokens. To each a learned vector is added that tells where it lies, its *position embedding*. Twelve identical
# layers then work on them.


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
print(f"ViT-B/16: {count:,} parameters, for each of which AdamW keeps two averages;")
print(f"peak at batch 32: {format_bytes(published.peak_bytes)}")

# %% [markdown] slide="slide"
# ## By hand: where the kernel stops
#
# A kernel of width 3 on 8 values, padded by 1 on either side. Its left edge starts on the padding, at 0, and can go no
# further than 7.
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

# %% [markdown]
# Both sides of a map shrink, so stride s leaves roughly 1 / s² of the values: roughly, because positions are whole
# numbers.

# %% [markdown] slide="notes"
# A side of 224 at stride 3, with a kernel of 3 and padding of 1, has 75 positions and not 74.67. PyTorch rounds the same
# way:

# %% slide="skip"
layer = nn.Conv2d(3, 1, kernel_size=3, stride=3, padding=1)
side = layer(torch.zeros(1, 3, 224, 224)).shape[-1]
print("by hand:", (224 + 2 * 1 - 3) // 3 + 1, "· PyTorch:", side)

# %% [markdown] slide="slide"
# ## What a token weighs
#
# Back to the transformer. At stride 8 its patches overlap. How many tokens does an image have then, and which part of
# the peak grows with them?

# %%
guess = predict(
    f"ViT-B/16 at batch 32 peaks at {format_bytes(published.peak_bytes)}. Now the stride is "
    "8 and the kernel stays 16, so that patches overlap. What is the peak?",
    unit="GiB",
)
guess

# %% folded=true
overlapping = vit(16, 8).at(32)
tokens = {stride: ((224 - 16) // stride + 1) ** 2 + 1 for stride in (16, 8)}
roles = published.by_role()
maps = roles["feature maps"] + roles["gradient maps"]
fixed = published.peak_bytes - maps  # parameters, AdamW's averages, images and what is small
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
            "Four times everything. But parameters and AdamW's averages hardly grow with "
            "the tokens.",
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
factor, more = overlapping.peak_bytes / published.peak_bytes, tokens[8] / tokens[16]
print(f"by hand: {fixed / GIB:.1f} GiB stay; {maps / GIB:.1f} GiB of maps", end=" ")
print(f"grow {tokens[8]} / {tokens[16]} = {more:.1f} times, to {maps * more / GIB:.1f}")
skyline(
    overlapping,
    before=published,
    before_name="stride 16",
    title=f"ViT-B at stride 8: {tokens[8]} tokens instead of {tokens[16]}, "
    f"the peak is {factor:.1f} times as high",
)

# %% [markdown]
# All layers follow the patches, so all their maps grow with the number of tokens. The images do not, and parameters and
# AdamW's averages hardly do: only the position embedding has a row more for each token. By hand, these two rules come
# within 1 % of the trace.

# %% [markdown] slide="notes"
# (Lesson 13 takes attention apart. What PyTorch's *fused* version keeps, traced here, grows in proportion to the
# tokens; what a plain one keeps grows faster.)
#
# Now try the first layer yourself: which of the two moves the peak, kernel or stride?

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
# number of positions. (Kernel 8 reads a quarter of the image; a later section asks what that costs.)
#
# </details>

# %% [markdown] slide="slide"
# ## The same stride, further in
#
# In a transformer every layer comes after the stride. In VGG-16 we can put one anywhere: here into `conv5_1`, the
# eleventh of its thirteen convolutions.

# %% [markdown] slide="notes"
# The maps of group 5, its last three convolutions, then have a quarter of their values.


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


# %% slide="subslide" folded=true
def moments(step):
    """The most bytes alive while each layer runs, forward and then backward, in GiB."""
    return step.timeline().groupby(["phase", "layer"], sort=False)["total"].max() / GIB


def over_the_step(steps, low, high, gib, marks, title):
    """A curve for each step, over layers `low` to `high` counted from the turn."""
    first = moments(next(iter(steps.values())))
    curves = {name: moments(step)[first.index] for name, step in steps.items()}
    phases, layers = zip(*first.index, strict=True)
    turn = phases.index("backward")
    return plane(
        Axis(
            "layers in the order in which they run; some are named",
            low=turn + low,
            high=turn + high,
            write=lambda place: layers[round(place)] if 0 <= place < len(layers) else "",
        ),
        gib,
        [
            Curve(name, range(len(layers)), list(curve), SERIES_COLOURS[i], dashed=i > 0)
            for i, (name, curve) in enumerate(curves.items())
        ],
        marks={name: layers.index(layer, turn) for name, layer in marks.items()},
        title=title,
    )


over_the_step(
    {"as published": plain, "stride 2": late},
    low=-14,
    high=23,
    gib=Axis("most GiB alive while each layer runs (the axis starts at 9)", low=9, high=10.6),
    marks={"backward begins": "loss", f"peak, at {plain.peak_layer}": plain.peak_layer},
    title=f"Stride 2 in conv5_1 saves {(saved[0] - saved[1]) / MIB:.0f} MiB around the turn, "
    f"and nothing at the peak",
)

# %% [markdown] slide="notes"
# The backward pass runs from the last layer to the first. At the peak, at `relu4_3`, it has finished with group 5 and
# freed its maps, whatever their size was.

# %% [markdown] slide="slide"
# **Bytes saved lower the peak only if they would have been alive there, and no further than to the highest moment at
# which they would not have been.**
#
# This is the law of the lesson. Where the peak comes *before* late maps are freed, even a late stride should count.

# %% [markdown] slide="notes"
# ResNet-50 is such a network. Its convolutions have strides already, in four places, so we go the other way and take out
# one at a time. If late strides count, the peak rises for each, the last one included:

# %% slide="subslide" folded=true
resnet = {}
for place in ("none", "conv5_1", "conv4_1", "conv3_1", "conv1"):
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
    }
).rename_axis("stride taken out of")

# %% [markdown]
# It rises each time. ResNet-50 peaks in its last block, when nearly all maps are still alive.

# %% [markdown] slide="slide"
# ## And a larger stride?
#
# Stride 2 in an early layer helps. Does stride 4 help more?

# %%
early, earlier = vgg16({"conv3_1": 2}), vgg16({"conv3_1": 4})
guess_floor = predict(
    f"Stride 2 in conv3_1 alone lowers VGG-16's peak from {format_bytes(plain.peak_bytes)} to "
    f"{format_bytes(early.peak_bytes)}. With stride 4 there instead, how far below the "
    "published peak is it?",
    unit="GiB",
)
guess_floor

# %% slide="subslide" folded=true
won = (plain.peak_bytes - early.peak_bytes) / GIB
reveal(
    guess_floor,
    {"trace": (plain.peak_bytes - earlier.peak_bytes) / GIB},
    thoughts=[
        (
            won * (15 / 16) / (3 / 4),
            "The maps after conv3_1 shrink to a sixteenth in place of a quarter. But which of "
            "them are alive at the peak?",
        ),
        (2 * won, "Twice the stride, twice the saving? Ask which maps are alive at the peak."),
    ],
)

# %% slide="skip" tags=["change"]
# Can you bring VGG-16 below 8 GiB with one stride? Change the layer or the stride, and run,
# before you look at the figure below.
step = vgg16({"conv3_1": 3})
print(f"{format_bytes(step.peak_bytes)}, {step.peak_phase} pass, at {step.peak_layer}")

# %% slide="subslide" folded=true
places, strides = ("conv5_1", "conv3_1", "conv2_1", "conv1_1"), (1, 2, 3, 4)
peaks = {
    place: [vgg16({place: stride}).peak_bytes / GIB for stride in strides] for place in places
}
floor = peaks["conv3_1"]
plane(
    Axis("stride of that layer", low=0.8, high=4.2, write=lambda s: "" if s % 1 else f"{s:g}"),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    [
        Curve(place, strides, row, colour)
        for (place, row), colour in zip(peaks.items(), SERIES_COLOURS, strict=False)
    ],
    [
        Spot("", stride, peak, colour, small=True)
        for (place, row), colour in zip(peaks.items(), SERIES_COLOURS, strict=False)
        for stride, peak in zip(strides, row, strict=True)
    ],
    title=f"In conv3_1 a larger stride stops at {floor[1]:.2f} GiB; "
    f"in conv1_1 it goes on to {peaks['conv1_1'][3]:.2f}",
)

# %% [markdown]
# Why does the peak stop falling? Look at the backward pass:

# %% slide="subslide" folded=true
over_the_step(
    {"as published": plain, "stride 2": early, "stride 4": earlier},
    low=0,
    high=39,
    gib=Axis("most GiB alive while each layer runs", low=0, high=10.6),
    marks={early.peak_layer: early.peak_layer},
    title=f"From {early.peak_layer} on no stride in conv3_1 changes the curve",
)

# %%
for place in ("conv2_1", "conv1_1"):
    step = vgg16({place: 4})
    roles = step.by_role()[["parameters", "weight gradients", "optimizer state", "input"]]
    peak = f"{format_bytes(step.peak_bytes)} at {step.peak_layer}"
    print(f"{place} at stride 4: {peak}, {format_bytes(roles.sum())} of it", end=" ")
    print("parameters, gradients, momentum, images")

# %% [markdown] slide="notes"
# From `relu2_2` on the curves lie on each other. There every map made after the stride has been freed, and no stride
# shrinks those made before it. These maps, the gradient maps at that moment, the images, 16 MiB of workspace, and parameters with
# gradients and momentum are the *floor* of `conv3_1`: no stride there brings the peak below it. `conv2_1` has one too, at
# `relu1_2`. Before `conv1_1` no map is made. Its floor is parameters, gradients, momentum, images and 16 MiB of
# workspace, and at stride 4 the peak is still above it.

# %% [markdown] slide="slide"
# **In use: a stride in place of a pool.** Drop each pool of VGG-16, and give the convolution before it stride 2. Every
# later map has the shape it had.

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
    rows.append((f"{layer} instead of {pool}", format_bytes(step.peak_bytes), step.peak_layer))
everywhere = vgg16(dict.fromkeys(swaps, 2), dropped=swaps.values())
rows.append(("all five", format_bytes(everywhere.peak_bytes), everywhere.peak_layer))
rows.append(("none, as published", format_bytes(plain.peak_bytes), plain.peak_layer))
columns = ["a stride for a pool", "peak at batch 128", "at"]
pd.DataFrame(rows, columns=columns).set_index("a stride for a pool")

# %% [markdown] slide="notes"
# The pool goes, and with it its indices. The map that it shrank is small from the start. By the law, the last pool
# lowers nothing: group 5 is not alive at the peak. All five together reach the floor of `conv1_2`, at `relu1_1`.
#
# It is another network, though. Springenberg et al. (*Striving for simplicity: the all convolutional net*, 2015, table
# 3) tried it on CIFAR-10: in their network C the error rose from 9.74 % with pools to 10.19 % with strides. With a
# strided convolution *added* in each pool's place it fell to about 9.1 %; but that network has more convolutions, so the
# fall need not be the strides'.

# %% [markdown] slide="slide"
# ## What a stride throws away
#
# A kernel narrower than its stride skips values. Autograd tells which: the gradient of an input value that no kernel
# reads is zero.


# %%
def share_read(layers, side):
    """Share of the values of a map that these layers look at."""
    for weights in layers.parameters():
        nn.init.ones_(weights)
    x = torch.zeros(1, 1, side, side, requires_grad=True)
    layers(x).sum().backward()
    return float((x.grad != 0).float().mean())


kernels, strides = (1, 3, 5, 7), (1, 2, 3, 4)
read = [
    [
        f"{100 * share_read(nn.Conv2d(1, 1, kernel, stride, kernel // 2), 64):.0f} %"
        for stride in strides
    ]
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
# (The missing 3 % are the border: steps of 4 stop one row and one column before the end of 64 values.) The first row is
# no rare case: ResNet-50 halves its maps three times with a 1 × 1 kernel at stride 2, on the *shortcut* that adds a
# block's input to its output. That kernel ignores three quarters of its input.

# %% [markdown] slide="slide"
# **Does it matter?** A small network learns scikit-learn's handwritten digits, enlarged to 16 × 16. Its first
# convolution, 3 × 3, gets stride 1, 2, 4 or 8.
#
# A fifth network averages the image to 6 × 6 first, then takes stride 3: as few positions as at stride 8 and as many
# weights, but all of the image is read.

# %% [markdown] slide="notes"
# (Two more convolutions and a dense layer follow. Before the dense layer any map is brought to 4 × 4.) After three
# epochs, 60 updates, it looks like a verdict:

# %% slide="subslide" folded=true
kept, named = trained.kept("strided"), list(trained.RUNS["strided"].networks)
early = kept[3].groupby(level=0).mean().loc[named]
rows = {}
for name in named:
    model = trained.RUNS["strided"].networks[name]()
    first = model[: 1 + isinstance(model[0], nn.AdaptiveAvgPool2d)]
    step = training_step(model, (1, 16, 16), 10, "adam", "float32", "cpu").at(64)
    rows[name] = {
        "peak at batch 64": format_bytes(step.peak_bytes),
        "image read": format_share(share_read(first, 16)),
        "accuracy after 3 epochs": format_share(early[name]),
    }
pd.DataFrame(rows).T

# %%
guess_long = predict(
    "With stride 8 the first layer reads a tenth of the image. Train all five "
    "networks ten times as long, for 30 epochs. What accuracy does this one reach?",
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
            100 * early["stride 8"],
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
    Axis("% of the test digits recognised", low=30, high=100),
    [
        Curve(name, list(means.columns), list(row), colours[name])
        for name, row in means.iterrows()
    ],
    [
        Spot("", epochs, share, colours[name], small=True)
        for name, row in means.iterrows()
        for epochs, share in row.items()
    ],
    title=f"2 × 2 positions, 100 epochs: {means[100]['stride 8']:.0f} % correct at stride 8, "
    f"{means[100]['averaged, stride 3']:.0f} % on the averaged image",
)

# %% folded=true
print(textwrap.fill(trained.provenance("strided"), 88))
seeds = 100 * kept.groupby(level=0).agg(lambda shares: shares.max() - shares.min())
for name, row in means.iterrows():
    told = ", ".join(f"{row[e] - means[e]['stride 1']:+.1f} after {e}" for e in (3, 100))
    print(f"{name}: {told} epochs; seeds {seeds.loc[name, 100]:.1f} apart")

# %% [markdown] slide="notes"
# (In points, against stride 1.) After three epochs stride 8 is 53 points behind, after a hundred 14. Three
# epochs compare how fast networks learn. Train until the curves are flat before you say what a stride costs, and read
# the spread of the seeds too. This curve is not flat yet: it still rises between 30 and 100 epochs. So the 14 points may
# be more than this stride costs in the end.
#
# The fifth network has the same 2 × 2 positions and as many weights, but reads all of the image. After a hundred epochs
# it is two points behind stride 1, whose own seeds are one point apart. So the small number of positions explains little
# of the 14 points, on these digits and after so many epochs. Most of the loss comes from which values are read. These
# digits were 8 × 8 before they were enlarged; a photograph has finer detail to lose.

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
# In AlexNet `conv2` brings the peak to 1.05 GiB. From `conv4` on it no longer matters which: both peak at `relu3`, at
# 1.13 GiB. (`conv3` prints as 1.13 too, but peaks at `relu2`, a little lower.) With stride 2 in `conv1_2` VGG-16 peaks at
# 6.23 GiB, like all five strides together: the same floor, at `relu1_1`. Without the pool the peak is higher, 8.02 GiB:
# the later maps have their published size again. In ResNet-50 the peak rises to 12.20 GiB, as in the table above.
#
# </details>

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "VGG-16") + beside_trace(gpu, "ResNet-50")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Stride s leaves roughly 1 / s² of the values of its output, and of the maps that follow.
# 2. Bytes saved lower the peak only if they would have been alive there.
# 3. A kernel narrower than its stride never reads part of its input. Train long before you judge what that costs.

# %% [markdown] slide="notes"
# They lower it no further than to the highest moment at which they would not have been alive. In VGG-16 a stride does not touch parameters, gradients,
# momentum and images, nor the maps made before it. These, and the gradient maps of that moment, are its floor. A layer that fixes the size of its output, such as the average before
# VGG-16's dense layers, ends what a stride shrinks. In a vision transformer the first stride sets the number of tokens.
#
# Now the exercise: [exercises/04_stride.ipynb](../exercises/04_stride.ipynb). {questions}. Save, then `course check 04`
# gives your marks.
