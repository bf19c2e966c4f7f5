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
# **The question:** what does skipping positions save, and what does it cost?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say how large the output of any convolution is, rounding included;
# 2. say which maps a stride shrinks and which it cannot reach;
# 3. explain why the peak of a network never falls by the factor that one layer's output does;
# 4. put strides in place of pools without changing a single shape after them;
# 5. say what it costs in accuracy, and where you would rather not stride.
#
# About 45 minutes, and {minutes} for the exercise. It builds on lesson 03: feature maps, the peak, the skyline. No GPU
# is needed.

# %% slide="skip" folded=true
import textwrap

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, plane, skyline
from course_utils.figures.style import SERIES_COLOURS
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes
from lessons.claims import judge
from lessons.shared.beside import beside_trace
from lessons.shared.changes import stays
from lessons.shared.digits import Variant, compare
from lessons.shared.layer_changes import layer_changes
from lessons.stride.explorer import stride_explorer
from lessons.stride.positions import kernel_positions

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# The *stride* of a convolution is how far its kernel moves from one position to the next. With stride 2 it
# visits every second row and every second column.

# %%
guess = predict(
    "VGG-16 at batch 128 peaks at 10.3 GiB. Now its first convolution "
    "gets stride 2, and every map of the network has a quarter "
    "of its values. Nothing else is changed. What is the peak now?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand: where the kernel stands
#
# A kernel of width 3 on 8 values, padded by 1 on either side. Its left edge may start at 0 and must stop at 7,
# where its right edge ends with the padding.
#
# | stride | left edge at | positions |
# |---:|---|---:|
# | 1 | 0 1 2 3 4 5 6 7 | 8 |
# | 2 | 0 2 4 6 | 4 |
# | 3 | 0 3 6 | 3 |
# | 4 | 0 4 | 2 |

# %% [markdown] slide="notes"
# The way is `side + 2 · padding − kernel` long, 7 here. It holds `way // stride` whole steps, and one position
# more, the one before the first step:

# %% [markdown]
# **side of the output = (side + 2 · padding − kernel) // stride + 1**

# %% slide="subslide" folded=true
kernel_positions(
    side=8,
    kernel=3,
    padding=1,
    strides=(1, 2, 3, 4),
    title="Twice the stride, half the positions; past the kernel's width, values nobody reads",
)

# %% slide="subslide" folded=true
rows = []
for name, side, kernel, padding, stride in (
    ("VGG-16 conv1_1", 224, 3, 1, 1),
    ("the same at stride 2", 224, 3, 1, 2),
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
# Both sides of the map shrink, so the *values* shrink by s²: 4 at stride 2, 16 at stride 4. That is almost exact,
# because steps are whole.

# %% [markdown] slide="notes"
# A side of 224 at stride 3 gives 75 positions and not 74.67. In AlexNet's first layer the way is 224 + 2 · 2 − 11 = 217
# long; at stride 4 the kernel makes 54 steps of 4 and stops one column short of the end.

# %% [markdown] slide="slide"
# ## By hand: all of VGG-16
#
# Lesson 03 counted what VGG-16 keeps for one image: the image itself, 13,547,520 values of convolutions, and 1,530,368
# of pools with an index of 8 bytes each.

# %% [markdown] slide="notes"
# With stride 2 in `conv1_1` the image stays, and the rest is a quarter. The kernels have the same weights at every
# stride, so the parameters stay too.

# %%
image, convolutions, pools, parameters = 3 * 224 * 224, 13_547_520, 1_530_368, 138_357_544
maps = 4 * (convolutions + pools) + 8 * pools
fixed = 3 * 4 * parameters
for stride in (1, 2):
    per_image = 4 * image + maps / stride**2
    all_images, together = 128 * per_image, fixed + 128 * per_image
    print(f"stride {stride}: {format_bytes(all_images):>9} of maps and images", end=", ")
    print(f"{format_bytes(fixed)} for parameters, {format_bytes(together)} together")
by_hand = fixed + 128 * (4 * image + maps / 4)

# %% [markdown] slide="slide"
# ## Trace
#
# In code the change is one line. VGG-16's head expects maps of 7 × 7 and now gets 3 × 3.

# %% [markdown] slide="notes"
# Our network brings any map to 7 × 7, here by repeating values, so that the dense layers keep their shape and the
# comparison stays fair.


# %%
def vgg16_with(strides, dropped=()):
    """VGG-16's traced step with strides by layer name, without the pools in `dropped`."""
    with torch.device("meta"):
        model = networks.vgg16()
        for layer, stride in strides.items():
            model.get_submodule(layer).stride = (stride, stride)
        for pool in dropped:
            setattr(model, pool, nn.Identity())
    return training_step(model, (3, 224, 224), 1000, name="VGG-16")


published = vgg16_with({}).at(128)
strided = vgg16_with({"conv1_1": 2}).at(128)

# %% folded=true
reveal(
    guess,
    {"by hand": by_hand / GIB, "trace": strided.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (
            published.peak_bytes / 4 / GIB,
            "A quarter of everything: parameters, gradients and momentum do not shrink with "
            "the maps.",
        ),
        (
            published.peak_bytes / 2 / GIB,
            "Half: both sides of a map are halved, so its values are a quarter.",
        ),
        (
            published.peak_bytes / GIB,
            "That is the old peak. One stride reaches every map after it.",
        ),
        (
            (by_hand - fixed) / GIB,
            "Those are the maps; parameters, their gradients and momentum come on top.",
        ),
    ],
)

# %% [markdown] slide="slide"
# ## Not four times smaller
#
# The dashed outline is the network as published. Every map is a quarter, and still the peak is not.

# %%
factor = published.peak_bytes / strided.peak_bytes
fixed_share = stays(strided) / strided.peak_bytes
skyline(
    strided,
    before=published,
    title=f"Stride 2 in conv1_1: maps 4 times smaller, the peak {factor:.1f} times",
)

# %%
fixed_before, fixed_after = stays(published), stays(strided)
share_before = fixed_before / published.peak_bytes
print("stay whatever the maps:", end=" ")
print(f"{format_bytes(fixed_before)} before, {format_bytes(fixed_after)} after,")
print(f"that is {share_before:.0%} of the peak before and {fixed_share:.0%} after.")
print(f"A quarter of the old peak would be {format_bytes(published.peak_bytes / 4)}.")

# %% [markdown] slide="slide"
# ## The same stride, four layers later
#
# Layer by layer, what is kept for the backward pass. *Downstream*, from the strided layer on, every map is a quarter.
# Upstream nothing moves.

# %% [markdown] slide="notes"
# The strided layer reads its input at fewer positions, but the input was made at full size by the layer before, and has
# to be kept at full size for the backward pass.

# %%
later = vgg16_with({"conv3_1": 2}).at(128)
fall = 1 - later.peak_bytes / published.peak_bytes
layer_changes(
    published,
    later,
    title=f"Stride 2 in conv3_1: nothing before it shrinks, and the peak falls by {fall:.0%}",
)

# %% [markdown] slide="slide"
# ## Predict once more

# %%
guess_late = predict(
    "conv5_1 gets stride 2 instead. By how many MiB does the peak of VGG-16 fall?", unit="MiB"
)
guess_late

# %%
late = vgg16_with({"conv5_1": 2}).at(128)
saved_maps = [int(step.by_layer()["saved feature maps"].sum()) for step in (published, late)]
fewer = (saved_maps[0] - saved_maps[1]) / MIB

# %% folded=true
reveal(
    guess_late,
    {"trace": (published.peak_bytes - late.peak_bytes) / MIB},
    thoughts=[
        (
            fewer,
            "That is what the maps of group 5 shrink by. They are not alive at the peak.",
        ),
        (
            (published.peak_bytes - strided.peak_bytes) / MIB,
            "That would be every map; only those from conv5_1 on shrink.",
        ),
    ],
)

# %% slide="subslide"
print(f"kept at the end of the forward pass: {fewer:,.1f} MiB less")
for when, at in (("before:", published), ("after: ", late)):
    print(f"peak {when} {format_bytes(at.peak_bytes)}, {at.peak_phase}, {at.peak_layer}")

# %% [markdown]
# The maps of group 5 do shrink. But the peak stands in the backward pass at `relu4_3`: by then the maps of group 5 are
# gone, whatever their size.

# %% [markdown] slide="notes"
# A saving counts at the peak only if it is alive there.

# %% [markdown] slide="slide"
# ## A floor under every place
#
# A larger stride must help more? Up to a floor. Once everything downstream is small, the peak moves upstream, into
# the backward pass of the layers before the stride, and there a larger stride changes nothing.

# %% folded=true
places, strides = ("conv5_1", "conv3_1", "conv2_1", "conv1_1"), (1, 2, 3, 4)
peaks = {
    place: [vgg16_with({place: stride}).at(128).peak_bytes / GIB for stride in strides]
    for place in places
}
floor = peaks["conv3_1"]
finding = (
    f"conv3_1: stride 2 reaches {floor[1]:.2f} GiB and stride 4 {floor[3]:.2f}; "
    "only conv1_1 goes on falling"
)
divided = [peaks["conv1_1"][0] / s**2 for s in strides]
lines = [
    Curve(place, strides, peak, colour)
    for (place, peak), colour in zip(peaks.items(), SERIES_COLOURS, strict=True)
]
plane(
    Axis("stride of that layer", low=1, high=4, write=lambda s: "" if s % 1 else f"{s:g}"),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    [Curve("divided by s²", strides, divided, dashed=True, width=1.6), *lines],
    title=finding,
)

# %% [markdown] slide="slide"
# ## A stride in place of a pool
#
# Networks rarely add a stride. They put one in place of a pool, so that every later map keeps its shape.

# %% [markdown] slide="notes"
# The pool goes, with its output and its indices, and the map in front of it is made small from the start.

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
    step = vgg16_with({layer: 2}, dropped=[pool]).at(128)
    factor = published.peak_bytes / step.peak_bytes
    rows.append((f"{layer} for {pool}", format_bytes(step.peak_bytes), f"{factor:.2f}"))
everywhere = vgg16_with(dict.fromkeys(swaps, 2), dropped=swaps.values()).at(128)
factor = published.peak_bytes / everywhere.peak_bytes
rows.append(("all five", format_bytes(everywhere.peak_bytes), f"{factor:.2f}"))
columns = ["stride 2 in", "peak at batch 128", "times smaller"]
pd.DataFrame(rows, columns=columns).set_index("stride 2 in")

# %% slide="subslide"
skyline(
    everywhere,
    before=published,
    title="A stride for each of the five pools: the same shapes "
    f"after each, the peak {factor:.1f} times smaller",
)

# %% [markdown] slide="subslide"
# It is another network. A max pool looks at all four positions and keeps the largest; a stride computes one of
# them, and not the others.

# %% [markdown] slide="notes"
# Springenberg et al. (*Striving for simplicity: the all convolutional net*, 2015, table 3) did this swap on
# CIFAR-10 without data augmentation: the error went from 9.74 % with pools to 10.19 % with strides in the same
# convolutions. Two larger networks had one more convolution at each of these places: 9.31 % with the pools behind
# them, 9.08 % with a stride in them and no pools. Stride is not worse as such. It is a different model, with more
# or less capacity.

# %% [markdown] slide="slide"
# ## What is never read
#
# A kernel narrower than its stride leaves values out for good. Which, can be asked of autograd: the gradient of
# an input value that nobody reads is zero.


# %%
def share_read(kernel, stride, side=64):
    """Share of the values of a map that a convolution looks at."""
    layer = nn.Conv2d(1, 1, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.ones_(layer.weight)
    x = torch.zeros(1, 1, side, side, requires_grad=True)
    layer(x).sum().backward()
    return float((x.grad != 0).float().mean())


kernels, strides = (1, 3, 5, 7), (1, 2, 3, 4)
read = [[f"{share_read(kernel, stride):.0%}" for stride in strides] for kernel in kernels]
pd.DataFrame(
    read,
    index=pd.Index(
        [f"kernel {kernel} × {kernel}" for kernel in kernels],
        name="share of the input that is read",
    ),
    columns=[f"stride {stride}" for stride in strides],
)

# %% [markdown] slide="notes"
# (The 97 % are the border: with 64 values the steps of 4 do not come out even, and the last row and column stay unread.)
#
# ResNet-50 halves its maps three times with a 1 × 1 kernel at stride 2 on the *shortcut*, the way on which a
# block's input is added to its output: three quarters of what arrives there is thrown away unseen. AlexNet's 11 × 11
# at stride 4 reads every value, many of them several times.

# %% [markdown] slide="slide"
# ## ResNet-50 strides already
#
# It has strides in `conv1`, `conv3_1`, `conv4_1` and `conv5_1`. What if one of them were
# left out?

# %% folded=true
resnet = {}
for place in ("as published", "conv1", "conv3_1", "conv4_1", "conv5_1"):
    with torch.device("meta"):
        model = networks.resnet50()
        if place == "conv1":
            model.conv1.stride = (1, 1)
        elif place in model._modules:
            block = model.get_submodule(place)
            block.conv2.stride = block.shortcut.conv.stride = (1, 1)
    resnet[place] = training_step(model, (3, 224, 224), 1000, name="ResNet-50").at(128)
table = pd.DataFrame(
    {
        "peak at batch 128": {
            place: format_bytes(step.peak_bytes) for place, step in resnet.items()
        },
        "GFLOP forward, one image": {
            place: f"{step.by_layer()['flops'].sum() / 128e9:.1f}"
            for place, step in resnet.items()
        },
    }
)
table.rename_axis("without the stride of")

# %% [markdown]
# The earlier the stride, the more hangs on it.

# %% [markdown] slide="notes"
# And the arithmetic follows the maps: what a stride saves in memory downstream, it saves in operations as well.

# %% [markdown] slide="slide"
# ## Measure: memory, time, accuracy
#
# A small network on scikit-learn's handwritten digits, enlarged to 16 × 16.

# %% [markdown] slide="notes"
# Its first convolution gets stride 1, 2, 4 or 8; its head averages what arrives to 4 × 4, so all four have the same
# parameters. Each is trained three times from different seeds.


# %%
def digit_net(stride):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


count = sum(p.numel() for p in digit_net(1).parameters())
print(f"{count:,} parameters at every stride;", end=" ")
print(f"at stride 8 the first layer reads {share_read(3, 8, side=16):.0%} of the image")

# %% tags=["nbval-ignore-output"]
variants = {f"stride {s}": Variant(lambda s=s: digit_net(s)) for s in (1, 2, 4, 8)}
trained = compare(variants, epochs=3, side=16)
trained.style.format(
    {
        "traced peak": format_bytes, "measured peak": format_bytes, "epoch "
        "seconds": "{:.2f}",
        "accuracy": "{:.1%}", "lowest": "{:.1%}", "highest": "{:.1%}",
    }
)  # fmt: skip

# %% tags=["nbval-ignore-output"]
first = trained.iloc[0]
for name, row in trained.iloc[1:].iterrows():
    apart = "within" if row["highest"] >= first["lowest"] else "beyond"
    smaller = first["traced peak"] / row["traced peak"]
    time = row["epoch seconds"] / first["epoch seconds"]
    gained = row["accuracy"] - first["accuracy"]
    print(
        f"{name}: traced peak {smaller:.1f} times smaller, an epoch in {time:.0%} of the time,"
    )
    print(f"  accuracy {gained:+.1%}, {apart} the spread of the seeds")

# %% [markdown] slide="subslide"
# Stride 2 is free here: a digit of 8 × 8 that was blown up to 16 × 16 holds nothing that every second position misses.

# %% [markdown] slide="notes"
# At stride 8 four positions are left of the whole image, and most of its values are never read.
#
# Three seeds tell a large effect from none, not a small one: differences of a point or two are noise. And what
# a digit can spare, a photograph may not.
#
# What the measured peak has above the traced one, the convolution's kernels use for themselves: workspace, as in
# lesson 03. How much, the processor decides.

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
# One question: **which layer should get the stride, and what comes of s² at the peak?**

# %% [markdown] slide="notes"
# Before each move say whether the peak will fall, and by how much.

# %% tags=["nbval-ignore-output"]
stride_explorer()

# %% [markdown] slide="notes"
# Try three things. Walk stride 2 from `conv1_1` to `conv5_3`: from which layer on does it save nothing? Set
# `conv3_1` and compare strides 2, 3 and 4. Leave out the next pool: which maps have their old size again?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# From `conv5_1` on the peak stays where it was: it stands at `relu4_3` in the backward pass, when every map that became
# smaller has gone. At
# `conv3_1` strides 3 and 4 bring nothing beyond stride 2, because the peak has moved in front of `conv3_1`.
# Without the next pool all maps after it have their old size; only those between the stride and the place of the
# pool stay small.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# In our words, with where it was published.

# %% [markdown] slide="notes"
# The verdict is computed when the cell runs.

# %%
judge([76])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A stride of s makes s² times fewer values of every map downstream.
# 2. The peak falls by less than s².
# 3. It costs nothing in parameters and changes the model: early strides save most, and throw away most.

# %% [markdown] slide="notes"
# Sizes are rounded to whole positions, and the input that a stride skips through is kept whole. At the peak parameters
# stay, maps upstream stay, and a saving that is not alive then does not count.
#
# Now the exercise: [exercises/04_stride.ipynb](../exercises/04_stride.ipynb). {questions}. Save,
# then `course check 04` gives your marks.
