# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 06 · Pooling
#
# **The question:** why does the pool itself add memory while the network shrinks?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say to the byte what a pool adds to what is kept in training, in any precision, and what for;
# 2. follow a gradient through a max pool by hand;
# 3. choose between max pool, average pool and strided convolution by what each adds;
# 4. say what moving a pool earlier or later does to the peak, and what its order with ReLU and batch norm does.
#
# About 45 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: feature maps, the peak,
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
from course_utils.units import GIB, MIB, format_bytes
from lessons.claims import judge
from lessons.pooling.explorer import pool_explorer
from lessons.shared.beside import beside_trace
from lessons.shared.changes import index_bytes
from lessons.shared.digits import Variant, compare
from lessons.shared.layer_changes import layer_changes

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# A 2 × 2 max pool reads four values and puts out one. It has no parameters.

# %%
guess = predict(
    "VGG-16's pool1 stands behind 64 maps of 224 × 224, which take 1,568 MiB at "
    "batch 128. By how many MiB does pool1 itself, not what stands behind it, "
    "change what is kept for the backward pass? Less is negative, nothing is 0.",
    unit="MiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand: what a pool must remember
#
# Sixteen values, four windows.

# %% [markdown] slide="notes"
# The pool puts out the largest value of each window, and beside it writes down where it stood: the *pooling index*, the
# position counted row by row from 0 in the whole map.

# %%
values = torch.tensor([[1.0, 2, 0, 9], [4, 3, 8, 7], [6, 1, 2, 1], [0, 5, 3, 4]])
one_map = values[None, None]  # one image, one channel
output, index = nn.functional.max_pool2d(one_map, kernel_size=2, return_indices=True)
print("output  ", output[0, 0].tolist(), output.dtype)
print("index   ", index[0, 0].tolist(), index.dtype)

# %% [markdown] slide="subslide"
# The backward pass needs the index. The output's gradient belongs to one value of each window, the winner; the
# other three had no part in the output, and get zero.

# %%
values.requires_grad_()
output = nn.functional.max_pool2d(values[None, None], kernel_size=2)[0, 0]
output.backward(torch.tensor([[10.0, 20], [30, 40]]))
pd.DataFrame(values.grad.int().numpy())

# %% [markdown] slide="subslide"
# An average pool has no winner: each of the four values gets a quarter of the gradient, and no position has to be
# remembered.

# %%
values.grad = None
output = nn.functional.avg_pool2d(values[None, None], kernel_size=2)[0, 0]
output.backward(torch.tensor([[10.0, 20], [30, 40]]))
pd.DataFrame(values.grad.numpy())

# %% [markdown] slide="slide"
# ## By hand: twelve bytes
#
# For each value that a max pool puts out, training keeps
#
# - the value, because the next convolution needs its input: 4 bytes in float32;
# - the index, a 64-bit integer: 8 bytes.

# %% [markdown] slide="notes"
# PyTorch's pool holds on to its *input* as well, max pool and average pool alike. Here that costs nothing more, since
# the input is what the ReLU before it put out, and the ReLU keeps that anyway: one tensor, kept for two. So the pool
# adds 12 bytes a value, two thirds of them for positions that two bits could tell.

# %%
outputs = 128 * 64 * 112 * 112
by_hand = outputs * (4 + 8)
print(f"pool1 at batch 128: {outputs:,} values,", end=" ")
print(f"{format_bytes(4 * outputs)} of them and {format_bytes(8 * outputs)} of indices")

# %% [markdown] slide="slide"
# ## Trace


# %%
def vgg16_with(pools, precision="float32"):
    """VGG-16's traced step at batch 128, with other modules in the places of its pools."""
    with torch.device("meta"):
        model = networks.vgg16()
        for name, module in pools.items():
            setattr(model, name, module)
    step = training_step(model, (3, 224, 224), 1000, precision=precision, name="VGG-16")
    return step.at(128)


POOLS = ("pool1", "pool2", "pool3", "pool4", "pool5")
published = vgg16_with({})
kept = published.by_layer().set_index("layer")["saved feature maps"]
in_front = 4 * 128 * 64 * 224 * 224  # bytes of the maps that the pool reads

# %% folded=true
reveal(
    guess,
    {"by hand": by_hand / MIB, "trace": kept["pool1"] / MIB},
    against="trace",
    thoughts=[
        (
            -3 / 4 * in_front / MIB,
            "Three quarters less: but the maps in front of the pool stay, and what it puts "
            "out comes on top.",
        ),
        (
            4 * outputs / MIB,
            "A quarter of the maps: that is what the pool puts out. It also remembers where "
            "each value came from.",
        ),
        (
            8 * outputs / MIB,
            "Those are the positions alone; the values it puts out are kept too.",
        ),
        (
            0.0,
            "No parameters, nothing to keep? Its output feeds the next convolution, and its "
            "backward pass has to know the winners.",
        ),
    ],
)

# %% [markdown] slide="slide"
# ## Who keeps the input?
#
# Ask autograd. The backward node of a layer has an attribute for every tensor it saved. Here is a pool right behind a
# convolution, without a ReLU between them:

# %%
maps = nn.Conv2d(1, 4, 3, padding=1)(torch.randn(1, 1, 8, 8))
for pooled in (nn.functional.max_pool2d(maps, 2), nn.functional.avg_pool2d(maps, 2)):
    node = pooled.grad_fn
    print(
        f"{node.name()} saved the pool's input:",
        node._saved_self.data_ptr() == maps.data_ptr(),
    )

# %% [markdown] slide="slide"
# ## ReLU first or pool first
#
# The ReLU of the largest of four values is the largest of their four ReLUs, so the two can be swapped without changing
# any result. Does the order change the memory?

# %% [markdown] slide="notes"
# Whoever comes first keeps the large map: the ReLU its output, which is the pool's input too; or the pool its input,
# and then the ReLU a small output.


# %%
def vgg16_in_order(*layers):
    """VGG-16 at batch 128; its first group ends in these layers, not in ReLU and pool."""
    with torch.device("meta"):
        model = networks.vgg16()
        model.relu1_2, model.pool1 = nn.Sequential(OrderedDict(layers)), nn.Identity()
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


relu, pool = ("relu", nn.ReLU()), ("pool", nn.MaxPool2d(2))
norm = ("norm", nn.BatchNorm2d(64, device="meta"))
orders = {"ReLU, pool": (relu, pool), "pool, ReLU": (pool, relu)}
orders |= {"norm, ReLU, pool": (norm, relu, pool), "pool, norm, ReLU": (pool, norm, relu)}
in_order = {name: vgg16_in_order(*layers) for name, layers in orders.items()}
pd.DataFrame(
    {
        name: {
            "kept": format_bytes(step.by_layer()["saved feature maps"].sum()),
            "peak": format_bytes(step.peak_bytes),
        }
        for name, step in in_order.items()
    }
).T.rename_axis("behind conv1_2")

# %% [markdown] slide="notes"
# With ReLU and pool alone nothing is gained: what one no longer keeps the other does, to the byte. Batch norm
# is different. It keeps its *input*, a map of its own, and behind the pool that map has a quarter of the values. (Norm
# and pool do not commute, so that is another network.)

# %% slide="subslide" folded=true
first, second = in_order["norm, ReLU, pool"], in_order["pool, norm, ReLU"]
saved = format_bytes(first.peak_bytes - second.peak_bytes)
skyline(
    second,
    before=first,
    before_name="norm, ReLU, pool",
    title=f"Pool before batch norm in one place of VGG-16: {saved} less at the peak",
)

# %% [markdown] slide="slide"
# ## Then why pool at all?
#
# Because of what stands behind it. Take `pool1` out, and every map after it has four times its values.
# (VGG-16's head gets maps averaged to 7 × 7, so that the dense layers are the same.)

# %%
without = vgg16_with({"pool1": nn.Identity()})
factor = without.peak_bytes / published.peak_bytes
title = (
    f"Without pool1, {format_bytes(kept['pool1'])} of its own are gone, "
    f"and the peak is {factor:.1f} times as high"
)
skyline(without, before=published, before_name="with pool1", title=title)

# %% [markdown] slide="subslide"
# So both are true. The pool itself adds memory, now. The network shrinks, downstream. It is an investment, and
# whether it pays depends on how much stands behind it.

# %%
share = index_bytes(published) / published.peak_bytes
balance = pd.Series(
    {
        "added by pool1 itself": kept["pool1"],
        "peak without it": without.peak_bytes,
        "peak with it": published.peak_bytes,
        "saved at the peak": without.peak_bytes - published.peak_bytes,
    }
)
balance.map(format_bytes).to_frame("VGG-16, batch 128")

# %% [markdown] slide="slide"
# ## The same shrinking, without the index
#
# Average pools shrink the maps as much and remember no position. Only the pools themselves change, layer by layer:

# %%
averaged = vgg16_with({name: nn.AvgPool2d(2) for name in POOLS})
fewer = index_bytes(published) - index_bytes(averaged)
fall = published.peak_bytes - averaged.peak_bytes
title = (
    f"Average pools: {format_bytes(fewer)} of indices less, "
    f"and the peak falls by {format_bytes(fall)}"
)
layer_changes(published, averaged, title=title)

# %% [markdown] slide="subslide"
# The peak falls by less than the indices. It stands in the backward pass at `relu4_3`: by then `pool4` and `pool5` have
# been through their backward pass, and their indices are gone.

# %% [markdown] slide="notes"
# What is not alive at the peak cannot be saved there.

# %%
print(f"the peak stands at {published.peak_layer} in the {published.peak_phase} pass")
shapes = published.by_layer().set_index("layer")["shape"][["pool4", "pool5"]]
late = 8 * sum(torch.Size(shape).numel() for shape in shapes)
print(f"indices of pool4 and pool5: {format_bytes(late)};", end=" ")
print(f"{format_bytes(fewer)} - {format_bytes(late)} = {format_bytes(fewer - late)},", end=" ")
print(f"and the peak falls by {format_bytes(fall)}")

# %% [markdown] slide="slide"
# ## Three ways to a quarter
#
# A convolution of 2 × 2 with stride 2 is a third way. It keeps no index, learns what to keep, and pays in
# parameters and arithmetic.

# %% folded=true
ways = {
    "max pool": {},
    "average pool": {name: nn.AvgPool2d(2) for name in POOLS},
    "strided convolution": {
        name: nn.Conv2d(width, width, 2, stride=2, device="meta")
        for name, (_, width) in zip(POOLS, networks.VGG_GROUPS, strict=True)
    },
}
steps = {way: vgg16_with(pools) for way, pools in ways.items()}
tables = {way: step.by_layer() for way, step in steps.items()}
pd.DataFrame(
    {
        "bytes a value": {
            way: table.set_index("layer")["saved feature maps"]["pool1"] // outputs
            for way, table in tables.items()
        },
        "peak": {way: format_bytes(step.peak_bytes) for way, step in steps.items()},
        "parameters": {way: f"{table['parameters'].sum():,}" for way, table in tables.items()},
        "GFLOP forward, one image": {
            way: f"{table['flops'].sum() / 128e9:.1f}" for way, table in tables.items()
        },
    }
)

# %% [markdown] slide="slide"
# ## Half the value, the whole index
#
# Half precision stores a value in 2 bytes (lesson 08 says how one trains like that). An index is an integer and stays
# at 8 bytes.

# %% [markdown] slide="notes"
# So a max pool keeps 10 bytes for every value of 2.

# %% folded=true
halved = vgg16_with({}, precision="float16")
shares = {}
for name, step in {"float32": published, "float16": halved}.items():
    everything = step.by_layer()["saved feature maps"].sum()
    shares[name] = 100 * index_bytes(step) / everything
    of_them = format_bytes(index_bytes(step))
    print(f"{name}: {format_bytes(everything)} kept, {of_them} of them indices")
side_by_side(
    {f"indices, share of what {name} keeps": share for name, share in shares.items()},
    unit="%",
    title="In half precision the indices of VGG-16 are "
    f"{shares['float16']:.0f} % of what is kept",
)

# %% [markdown] slide="slide"
# ## Early or late
#
# Where should the first pool stand? Move `pool1` from behind the second convolution to behind the first, the
# third, …: every convolution it waits for works on maps of full size.


# %% folded=true
def vgg16_moved(convolutions, pool):
    """VGG-16 at batch 128 with its first pool behind so many convolutions."""
    with torch.device("meta"):
        layers, seen = OrderedDict(), 0
        for name, layer in networks.vgg16().named_children():
            if name != "pool1":
                layers[name] = layer
            seen += isinstance(layer, nn.Conv2d)
            if isinstance(layer, nn.ReLU) and seen == convolutions and "pool1" not in layers:
                layers["pool1"] = pool
    return training_step(nn.Sequential(layers), (3, 224, 224), 1000, name="VGG-16").at(128)


def whole(number):
    return "" if number % 1 else f"{number:g}"


behind = (1, 2, 3, 4, 5, 6)
kinds = {"max pool": nn.MaxPool2d(2), "average pool": nn.AvgPool2d(2)}
curves = {
    kind: [vgg16_moved(number, pool).peak_bytes / GIB for number in behind]
    for kind, pool in kinds.items()
}
first, second, last = (curves["max pool"][position] for position in (0, 1, -1))
plane(
    Axis("convolutions before the first pool", low=1, high=6, write=whole),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    [
        Curve(kind, behind, peaks, colour)
        for (kind, peaks), colour in zip(curves.items(), SERIES_COLOURS, strict=False)
    ],
    title="The first pool behind 1, 2 and 6 convolutions: "
    f"{first:.1f}, {second:.1f} and {last:.1f} GiB",
)

# %% [markdown] slide="subslide"
# One convolution earlier saves about as much as giving up all the indices.

# %% [markdown] slide="notes"
# From the third convolution on it hardly matters which kind of pool it is: the peak has moved to the backward pass of
# the wide maps before the pool, and at that moment its index is gone.

# %% [markdown] slide="slide"
# ## Measure: memory, time, accuracy
#
# Handwritten digits of 16 × 16. One network, one place after its second convolution; what stands there changes. Then
# the max pool one convolution earlier.

# %% [markdown] slide="notes"
# The head averages to 4 × 4, so that all have the same shapes behind it.


# %%
def digit_net(there=None, early=None):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), early or nn.Identity(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), there or nn.Identity(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


variants = {
    "no pool": Variant(digit_net),
    "max pool": Variant(lambda: digit_net(nn.MaxPool2d(2))),
    "average pool": Variant(lambda: digit_net(nn.AvgPool2d(2))),
    "strided convolution": Variant(lambda: digit_net(nn.Conv2d(16, 16, 2, stride=2))),
    "max pool, earlier": Variant(lambda: digit_net(early=nn.MaxPool2d(2))),
}

# %% tags=["nbval-ignore-output"]
trained = compare(variants, epochs=3, side=16)
trained.style.format(
    {
        "traced peak": format_bytes, "measured peak": format_bytes, "epoch seconds": "{:.2f}",
        "accuracy": "{:.1%}", "lowest": "{:.1%}", "highest": "{:.1%}",
    }
)  # fmt: skip

# %% tags=["nbval-ignore-output"]
least, most = trained["lowest"].min(), trained["highest"].max()
spread = (trained["highest"] - trained["lowest"]).max()
gap = trained["accuracy"].max() - trained["accuracy"].min()
print(f"between the best and the worst mean: {gap:.1%};", end=" ")
print(f"between seeds of one variant: up to {spread:.1%}")
peak = trained["traced peak"]
print(f"lowest traced peak: {peak.idxmin()}, {format_bytes(peak.min())}")

# %% [markdown] slide="subslide"
# Read the spread before the means: three seeds cannot order variants that lie within a few points of one another.

# %% [markdown] slide="notes"
# The strided convolution has 1,040 parameters more than the pools. The digits are too few and too easy to show
# whether that helps. On CIFAR-10 it hardly did: of two networks with as many convolutions, Springenberg et al. (2015,
# table 3) report 9.31 % error for the one with max pools, and 9.08 % for the one with strides in place of them.
#
# Max pool and average pool have the same peak here. It stands in the backward pass of the wide maps in front of
# the pool, and by then the index is gone.
#
# What the measured peak has above the traced one is the workspace of the convolutions.

# %% [markdown] slide="skip"
# And on a GPU? The next cell asks the one in this machine, or else a recording of one, or else says that there is
# neither: VGG-16 with its five pools, in float32 and in half precision, where the indices keep their 8 bytes.

# %% slide="skip" tags=["nbval-ignore-output"]
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "VGG-16")
rows += beside_trace(gpu, "VGG-16", "float16")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what should stand where a pool stands?**

# %% [markdown] slide="notes"
# Before each move, say what becomes of the maps and of the indices.

# %% tags=["nbval-ignore-output"]
pool_explorer()

# %% [markdown] slide="notes"
# Try three things. Put nothing in place of `pool5`: does anything happen, and why not? Give `pool1` a size of 4
# × 4. Go to float16 and replace every pool by an average pool: what share of the peak was that?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# `pool5` is the last layer before the head: nothing large stands behind it, and by the peak, at
# `relu4_3` in the backward pass, its maps and indices have gone. At 4 × 4 everything behind `pool1` has a quarter of what a 2 × 2 pool leaves, and the peak falls by about
# a quarter, not to a quarter: the maps in front stay. In float16 the average pools take about a fifth off the peak, in
# float32 about an eighth: the indices weigh 8 bytes in both, and the values around them half.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# In our words, with where it was published.

# %% [markdown] slide="notes"
# The verdict is computed when the cell runs.

# %%
judge([78])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A max pool adds its output and an int64 index for every value of it.
# 2. It shrinks everything downstream by the square of its size.
# 3. Average pools and strided convolutions shrink as much and keep no index.

# %% [markdown] slide="notes"
# That is 12 bytes for a value in float32, 10 in half precision. The pool's input is kept too, which costs nothing where
# a ReLU in front keeps the same map. Shrinking is what a pool is for, and the earlier it comes the more there is to
# shrink. An average pool learns nothing; a strided convolution does, and pays for it in parameters.
#
# Now the exercise: [exercises/06_pooling.ipynb](../exercises/06_pooling.ipynb). {questions}. Save,
# then `course check 06` gives your marks.
