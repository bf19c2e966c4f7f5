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
# **The question:** a max pool remembers where each maximum was. What does remembering cost, and who does it for less?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. follow a gradient through a max pool by hand;
# 2. say to the byte what a pool keeps in PyTorch's eager mode, in any precision;
# 3. write a pool that keeps less, and say what `torch.compile` does about it;
# 4. say what pools are for, and where in a network they should be.
#
# About 60 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the backward pass, the
# peak. No GPU is needed.

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
from course_utils.units import GIB, format_bytes
from lessons.pooling.explorer import pool_explorer
from lessons.pooling.remembered import PLANNED, kept_by_type
from lessons.shared import trained
from lessons.shared.beside import beside_trace
from lessons.shared.changes import index_bytes

# %% [markdown] slide="slide"
# ## Thirteen layers without a weight
#
# GoogLeNet has 58 layers with weights and 13 max pools, which have none.

# %% folded=true
with torch.device("meta"):
    google = networks.googlenet()
step = training_step(google, (3, 224, 224), 1000, name="GoogLeNet").at(128)
table = step.by_layer().set_index("layer")
kept = table["saved feature maps"]
pools = {name: part for name, part in google.named_modules() if isinstance(part, nn.MaxPool2d)}
weights = [part for part in google.modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
print(
    f"GoogLeNet, batch 128: {len(weights)} layers with weights, {len(pools)} max pools;",
    end=" ",
)
print(f"kept for the backward pass: {format_bytes(kept.sum())}")

# %%
guess = predict(
    "Of all that training GoogLeNet keeps for its backward pass, what share do its "
    "13 max pools keep?",
    unit="%",
)
guess

# %% [markdown] slide="slide"
# ## What a max pool must remember
#
# Sixteen values, four windows. The pool passes on the largest of each, and notes where it was: the *index*, a position
# counted row by row in the whole map.

# %%
values = torch.tensor([[1.0, 2, 0, 9], [4, 3, 8, 7], [6, 1, 2, 1], [0, 5, 3, 4]])
one_map = values[None, None]  # one image, one channel
output, index = nn.functional.max_pool2d(one_map, kernel_size=2, return_indices=True)
print("output  ", output[0, 0].tolist(), output.dtype)
print("index   ", index[0, 0].tolist(), index.dtype)

# %% [markdown] slide="subslide"
# The backward pass needs the index. A gradient that arrives belongs to the winner of its window; the other three values
# had no part in the output, and get zero.

# %%
values.requires_grad_()
output = nn.functional.max_pool2d(values[None, None], kernel_size=2)[0, 0]
output.backward(torch.tensor([[10.0, 20], [30, 40]]))
pd.DataFrame(values.grad.int().numpy())

# %% [markdown] slide="subslide"
# An average pool has no winner. Each of the four values gets a quarter of the gradient, wherever it is.

# %%
values.grad = None
output = nn.functional.avg_pool2d(values[None, None], kernel_size=2)[0, 0]
output.backward(torch.tensor([[10.0, 20], [30, 40]]))
pd.DataFrame(values.grad.numpy())

# %% [markdown] slide="slide"
# ## By hand: twelve bytes a value
#
# For each value that a max pool produces, training keeps
#
# - the value, because the next convolution needs its input: 4 bytes in float32;
# - the index, a 64-bit integer: 8 bytes.

# %% [markdown] slide="notes"
# PyTorch's pools hold on to their *input* as well, max and average alike. That adds nothing where a ReLU comes before the
# pool, since the ReLU keeps the same tensor:

# %%
positive = torch.relu(torch.randn(1, 4, 8, 8, requires_grad=True))
by_relu = positive.grad_fn._saved_result
for pool in (nn.functional.max_pool2d, nn.functional.avg_pool2d):
    by_pool = pool(positive, 2).grad_fn._saved_self
    same = by_relu.data_ptr() == by_pool.data_ptr()
    print(f"ReLU and {pool.__name__} keep the same tensor: {same}")

# %% [markdown] slide="notes"
# Where a pool reads a *concatenation*, the input does come on top: putting maps side by side is an operator that needs
# nothing of its result. In GoogLeNet `pool3` and `pool4` read one each, and no other layer reads it.

# %% folded=true
produced = {name: torch.Size(table["shape"][name]).numel() for name in pools}
joined = ["inception3b", "inception4e"]  # what pool3 and pool4 read
read = {name: torch.Size(table["shape"][name]).numel() for name in joined}
by_hand = 12 * sum(produced.values()) + 4 * sum(read.values())
share = 100 * kept[[*pools, *joined]].sum() / kept.sum()
reveal(
    guess,
    {"by hand": 100 * by_hand / kept.sum(), "trace": share},
    against="trace",
    thoughts=[
        (
            100 * kept[list(pools)].sum() / kept.sum(),
            "Twelve bytes for each value produced. Two of the pools also keep what they read.",
        ),
        (0.0, "They have no weights; but what is kept are maps, and positions."),
        (
            100 * 4 * sum(produced.values()) / kept.sum(),
            "That is what they produce, at 4 bytes a value. Each has an index of 8 bytes too.",
        ),
        (
            100 * 8 * sum(produced.values()) / kept.sum(),
            "Those are the indices alone; what the pools produce is kept too.",
        ),
        (
            100 * len(pools) / (len(pools) + len(weights)),
            "In proportion to the layers. But a pool keeps three times as many bytes a value.",
        ),
    ],
)

# %% slide="subslide" folded=true
still = [name for name, pool in pools.items() if pool.stride in (1, (1, 1))]
pd.DataFrame(
    {
        name: {
            "pools": len(group),
            "values produced, batch 128": f"{sum(produced[pool] for pool in group):,}",
            "values and indices": format_bytes(kept[group].sum()),
            "inputs, kept for them alone": format_bytes(kept[inputs].sum()),
            "of all that is kept": f"{100 * kept[group + inputs].sum() / kept.sum():.0f} %",
        }
        for name, group, inputs in (
            ("stride 2, between the stages", [p for p in pools if p not in still], joined),
            ("stride 1, in the blocks", still, []),
        )
    }
).T

# %% [markdown] slide="notes"
# Nine of the thirteen are in the Inception blocks, 3 × 3 with stride 1. They shrink nothing: each produces as many
# values as it reads, with an index for each.
#
# In half precision a value takes 2 bytes and the index still 8. What does that do to the share of the indices?

# %%
half = training_step(google, (3, 224, 224), 1000, precision="float16", name="GoogLeNet")
for name, precise in {"float32": step, "float16": half.at(128)}.items():
    everything = precise.by_layer()["saved feature maps"].sum()
    indices = index_bytes(precise)
    print(
        f"{name}: {format_bytes(indices)} of {format_bytes(everything)} are indices,"
        f" {100 * indices / everything:.0f} %"
    )

# %% [markdown] slide="slide"
# ## Two bits would do
#
# A window of 2 × 2 has four positions. Two bits tell which; PyTorch spends 64. Here is a pool that spends as many as you
# say.


# %% slide="skip"
class Remembering(torch.autograd.Function):
    """A 2 × 2 max pool that writes each position in 64, 8 or 2 bits."""

    @staticmethod
    def forward(ctx, maps, bits):
        n, c, h, w = maps.shape
        windows = maps.reshape(n, c, h // 2, 2, w // 2, 2).transpose(3, 4).flatten(4)
        largest, position = windows.max(dim=-1)
        if bits < 64:
            position = position.to(torch.uint8)
        if bits == 2:  # four positions in a byte
            a, b, c, d = position.reshape(-1, 4).unbind(1)
            position = a | b << 2 | c << 4 | d << 6
        ctx.bits = bits
        ctx.save_for_backward(position)
        return largest

    @staticmethod
    def backward(ctx, gradient):
        (position,) = ctx.saved_tensors
        if ctx.bits == 2:
            position = torch.stack([position >> shift & 3 for shift in (0, 2, 4, 6)], 1)
        winner = position.view(gradient.shape)[..., None].long()
        windows = torch.zeros(*gradient.shape, 4, device=gradient.device)
        windows = windows.scatter(-1, winner, gradient[..., None]).unflatten(4, (2, 2))
        n, c, h, w = gradient.shape
        return windows.transpose(3, 4).reshape(n, c, 2 * h, 2 * w), None


class MaxPool(nn.Module):
    """`Remembering` as a layer."""

    def __init__(self, bits):
        super().__init__()
        self.bits = bits

    def forward(self, maps):
        return Remembering.apply(maps, self.bits)


# %% slide="skip" tags=["change"]
# Change bits to 8 and to 64, and run.
bits = 2
maps = torch.randn(2, 16, 32, 32, requires_grad=True)
theirs, ours = nn.functional.max_pool2d(maps, 2), MaxPool(bits)(maps)
arriving = torch.randn_like(ours)
gradients = [torch.autograd.grad(pooled, maps, arriving)[0] for pooled in (theirs, ours)]
print("same values:", torch.equal(theirs, ours), "· same gradient:", torch.equal(*gradients))
position = MaxPool(bits)(maps).grad_fn.saved_tensors[0]
print(f"{position.untyped_storage().nbytes() * 8 / ours.numel():g} bits for each position")

# %% [markdown] slide="notes"
# Same values, same gradients, a thirty-second of the bytes. In VGG-16, whose five pools are all 2 × 2:

# %% slide="subslide" folded=true
POOLS = ("pool1", "pool2", "pool3", "pool4", "pool5")


def vgg16_with(pools, precision="float32"):
    """VGG-16's traced step at batch 128, with other modules in the places of its pools."""
    with torch.device("meta"):
        model = networks.vgg16()
        for name, module in pools.items():
            setattr(model, name, module)
    return training_step(model, (3, 224, 224), 1000, precision=precision, name="VGG-16").at(
        128
    )


ways = {
    "PyTorch's max pool": {},
    "ours, 8 bits": {name: MaxPool(8) for name in POOLS},
    "ours, 2 bits": {name: MaxPool(2) for name in POOLS},
    "average pool": {name: nn.AvgPool2d(2) for name in POOLS},
    "strided 2 × 2 convolution": {
        name: nn.Conv2d(width, width, 2, stride=2, device="meta")
        for name, (_, width) in zip(POOLS, networks.VGG_GROUPS, strict=True)
    },
}
steps = {way: vgg16_with(modules) for way, modules in ways.items()}
published = steps["PyTorch's max pool"]
rows = {}
for way, with_it in steps.items():
    layers = with_it.by_layer().set_index("layer")
    rows[way] = {
        "kept": format_bytes(layers["saved feature maps"].sum()),
        "peak": format_bytes(with_it.peak_bytes),
        "parameters": f"{layers['parameters'].sum():,}",
    }
pd.DataFrame(rows).T.rename_axis("VGG-16, batch 128")

# %% [markdown]
# With two bits the peak is within a few percent of an average pool's, which has nothing to remember. A strided
# convolution keeps no index either, and pays in parameters.

# %% [markdown] slide="slide"
# ## What `torch.compile` keeps
#
# `torch.compile` looks at both passes together before it decides what to keep. It stores each position in 8 bits, for
# windows as small as these.

# %%
guess_compiled = predict(
    f"GoogLeNet keeps {format_bytes(kept.sum())}, of which "
    f"{format_bytes(index_bytes(step))} are indices of 64 bits. Compiled, "
    "it keeps them in 8 bits. How much does it keep in all?",
    unit="GiB",
)
guess_compiled

# %% slide="skip"
images = torch.empty(128, 3, 224, 224, device="meta")
eager, compiled = kept_by_type(google, images), kept_by_type(google, images, PLANNED)

# %% slide="subslide" folded=true
reveal(
    guess_compiled,
    {"compiled": compiled.sum() / GIB},
    thoughts=[
        (
            (kept.sum() - 7 / 8 * index_bytes(step)) / GIB,
            "An eighth of the indices, all else as before. But all else is not as before.",
        ),
        (
            (kept.sum() - index_bytes(step)) / GIB,
            "No indices at all, and still too much: it saves more than those.",
        ),
        (kept.sum() / 8 / GIB, "An eighth of everything: only the indices shrink by 8."),
    ],
)

# %% slide="subslide" folded=true
both = pd.DataFrame({"eager": eager, "compiled": compiled}).fillna(0).astype("int64")
both.map(format_bytes).rename_axis("GoogLeNet, batch 128, kept")

# %%
apart = 100 * (eager.sum() / kept.sum() - 1)
print(f"eager, autograd's sum is {apart:+.2f} % from the trace's")

# %% [markdown] slide="notes"
# The indices shrink to an eighth, as announced. The larger saving is in float32. A ReLU's backward pass asks only which
# values were positive, one byte for each value instead of four: the `bool` row. The planner keeps that sign where nothing
# else needs the value itself. In GoogLeNet there are two such places: before a max pool, which when compiled no longer
# holds on to its input; and at the end of a branch, since the convolutions after it read the concatenation, a copy.

# %% folded=true
before_pools = kept[["relu1", "relu2"]].sum() // 4  # values; pool1 and pool2 read these
branches = ("branch1x1.relu", "branch3x3.relu", "branch5x5.relu", "branch_pool.relu")
before_joins = kept[[name.endswith(branches) for name in kept.index]].sum() // 4
dropped = int(compiled["bool"]) - before_pools - before_joins
print(f"a byte for each value: {format_bytes(before_pools)} before max pools,", end=" ")
print(f"{format_bytes(before_joins)} before concatenations,")
print(f"{format_bytes(dropped)} for the mask of dropout")

# %% [markdown] slide="notes"
# Take the max pools away, and the first of the three should go. Put average pools in their places, which hold on to
# their input; in VGG-16 too, which joins nothing:


# %% slide="subslide" folded=true
def averaged(network):
    """The network with an average pool of the same windows in the place of each max pool."""
    for part in list(network.modules()):
        for name, pool in part.named_children():
            if isinstance(pool, nn.MaxPool2d):
                windows = pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode
                setattr(part, name, nn.AvgPool2d(*windows))
    return network


rows = {}
for name, build in {"GoogLeNet": networks.googlenet, "VGG-16": networks.vgg16}.items():
    for kind in ("max pools", "average pools"):
        with torch.device("meta"):
            model = averaged(build()) if kind == "average pools" else build()
        plain, planned = (kept_by_type(model, images, how) for how in (None, PLANNED))
        rows[f"{name}, {kind}"] = {
            "eager": format_bytes(plain.sum()),
            "compiled": format_bytes(planned.sum()),
            "of it bool": format_bytes(planned.get("bool", 0)),
            "saved": f"{100 * (1 - planned.sum() / plain.sum()):.1f} %",
        }
pd.DataFrame(rows).T.rename_axis("batch 128, kept")

# %% [markdown]
# Eager, a network with average pools keeps less. Compiled, it keeps much more than with max pools. Of the signs only
# those at the ends of GoogLeNet's branches are left, and a mask or two.

# %% [markdown] slide="notes"
# So what this course counts for pools and ReLUs holds in eager mode only. What a compiler keeps may change with its
# next version; ask yours.
#
# We asked the half of `torch.compile` that decides what to keep. The other half, the backend "inductor", writes kernels,
# for which it needs a C++ compiler. Where there is one, a test of this course compares the two: the same types and the same
# bytes, but for copies of images and weights in another layout.

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change the network, or, where there is a C++ compiler, the backend to "inductor".
network, backend = networks.small_cnn(), PLANNED
pictures = torch.randn(64, 3, 32, 32)
print("eager:   ", kept_by_type(network, pictures).to_dict())
print("compiled:", kept_by_type(network, pictures, backend).to_dict())

# %% [markdown] slide="slide"
# ## What pools are for
#
# First, all later maps shrink. Second, later values see further: the *receptive field* of a value is the part of the image
# that it depends on.

# %% [markdown] slide="notes"
# Take pools out of VGG-16, and look at both:


# %% folded=true
def receptive_field(pools):
    """Side of the part of an image that a value after the last convolution depends on."""
    layers = []
    for (count, _), pool in zip(networks.VGG_GROUPS, pools, strict=True):
        layers += [nn.Conv2d(1, 1, 3, padding=1, bias=False) for _ in range(count)]
        layers += [nn.AvgPool2d(2)] if pool else []
    network = nn.Sequential(*layers[: -1 if pools[-1] else None]).double()
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            nn.init.ones_(layer.weight)
    image = torch.zeros(1, 1, 256, 256, dtype=torch.double, requires_grad=True)
    maps = network(image)
    maps[0, 0, maps.shape[2] // 2, maps.shape[3] // 2].backward()
    return int((image.grad[0, 0].sum(0) != 0).sum())


without = {
    "as published": (),
    "without pool4": ("pool4",),
    "without pool1": ("pool1",),
    "without any": POOLS,
}
rows = {}
for name, gone in without.items():
    bare = vgg16_with({pool: nn.Identity() for pool in gone})
    rows[name] = {
        "peak at batch 128": format_bytes(bare.peak_bytes),
        "receptive field": f"{receptive_field([pool not in gone for pool in POOLS])} pixels",
        "GFLOP forward, one image": f"{bare.by_layer()['flops'].sum() / 128e9:.0f}",
    }
pd.DataFrame(rows).T.rename_axis("VGG-16")

# %% [markdown] slide="notes"
# (The head averages what arrives to 7 × 7, so that the dense layers stay the same.)
#
# Third, the usual argument goes, a maximum stays the same when its value moves within the window, so that a small
# shift of the image should not matter. Is it so? A small network on handwritten digits of 16 × 16 halves its maps
# twice, in one of four ways. It is trained on the digits as they are, and tested on digits moved by 0, 1 and 2 pixels:

# %% slide="subslide" folded=true
shifted = 100 * trained.kept("shrunk").groupby(level=0).mean().loc[list(trained.SHRINKING)]
spread = trained.kept("shrunk").groupby(level=0).agg(lambda seeds: seeds.max() - seeds.min())
shifted.set_axis([f"moved by {pixels}" for pixels in shifted.columns], axis=1).map(
    lambda share: f"{share:.1f} %"
).rename_axis("right, after 30 epochs")

# %% folded=true
print(textwrap.fill(trained.provenance("shrunk"), 88))
print("between the seeds of one network, in points: up to", end=" ")
print(", ".join(f"{100 * spread[by].max():.1f} moved by {by}" for by in spread.columns))
lead = shifted.loc["max pool"] - shifted.drop("max pool").max()
print("max pool above the best of the others, in points:", end=" ")
print(", ".join(f"{lead[by]:+.1f} moved by {by}" for by in lead.index))

# %% [markdown] slide="notes"
# Max pools are ahead in every column, and further ahead where the digits are moved, by about as much as two seeds of
# one network differ. But at two pixels all four networks have lost more than a third of the digits. None of the four
# forgives much.

# %% [markdown] slide="slide"
# ## Early or late
#
# Move VGG-16's first pool from its place after the second convolution to an earlier or a later one.


# %% folded=true
def vgg16_moved(convolutions, pool):
    """VGG-16 at batch 128 with its first pool after so many convolutions."""
    with torch.device("meta"):
        layers, seen = OrderedDict(), 0
        for name, layer in networks.vgg16().named_children():
            if name != "pool1":
                layers[name] = layer
            seen += isinstance(layer, nn.Conv2d)
            if isinstance(layer, nn.ReLU) and seen == convolutions and "pool1" not in layers:
                layers["pool1"] = pool
    return training_step(nn.Sequential(layers), (3, 224, 224), 1000, name="VGG-16").at(128)


after = (1, 2, 3, 4, 5, 6)
kinds = {"max pool": nn.MaxPool2d(2), "average pool": nn.AvgPool2d(2)}
curves = {
    kind: [vgg16_moved(number, pool).peak_bytes / GIB for number in after]
    for kind, pool in kinds.items()
}
first, second, last = (curves["max pool"][position] for position in (0, 1, -1))
plane(
    Axis(
        "convolutions before the first pool",
        low=1,
        high=6,
        write=lambda number: "" if number % 1 else f"{number:g}",
    ),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    [
        Curve(kind, after, peaks, colour)
        for (kind, peaks), colour in zip(curves.items(), SERIES_COLOURS, strict=False)
    ],
    title="The first pool after 1, 2 and 6 convolutions: "
    f"{first:.1f}, {second:.1f} and {last:.1f} GiB",
)

# %%
apart = [most - least for most, least in zip(*curves.values(), strict=True)]
print("max pool, GiB at the peak:       ", ", ".join(f"{p:.2f}" for p in curves["max pool"]))
print("above an average pool, GiB:      ", ", ".join(f"{gap:.2f}" for gap in apart))

# %% [markdown] slide="notes"
# The earlier the pool, the lower the peak. The kind of pool matters in the first two places, and hardly in the later ones.
#
# The order within one place matters too, if there is a batch norm. It keeps its *input*, a map of its own.

# %% slide="skip" tags=["change"]
# Change the order of the three and run: which keeps least? (Norm and pool do not commute.)
norm, relu, pool = nn.BatchNorm2d(64, device="meta"), nn.ReLU(), nn.MaxPool2d(2)
order = [norm, relu, pool]
with torch.device("meta"):
    model = networks.vgg16()
    model.relu1_2, model.pool1 = nn.Sequential(*order), nn.Identity()
ordered = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)
saved = ordered.by_layer()["saved feature maps"].sum()
print(f"{format_bytes(saved)} kept, {format_bytes(ordered.peak_bytes)} at the peak")

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
# One question: **what should replace a pool?**

# %% [markdown] slide="notes"
# Before each move, say what happens to the maps and to the indices. All of it is eager mode.

# %% tags=["nbval-ignore-output"]
pool_explorer("AlexNet", "pool1")

# %% [markdown] slide="notes"
# Try three things. In VGG-16 put nothing in place of `pool5`: does the peak move, and why not? Give `pool1` a size of
# 4 × 4. Go to float16 and replace every pool by an average pool.

# %% [markdown] slide="slide"
# ## Recap
#
# 1. In eager mode a max pool keeps 12 bytes for each value it produces, 8 of them for a position.
# 2. `torch.compile` keeps a position in 8 bits, and of a ReLU whose values nobody else needs the signs.
# 3. A pool with a stride shrinks all later maps; the earlier, the more.

# %% [markdown] slide="notes"
# In half precision the 12 bytes are 10. A pool's input is kept as well, which adds nothing where a ReLU keeps the same
# tensor. GoogLeNet's pools, which own no weight, keep more than half of everything.
#
# Now the exercise: [exercises/06_pooling.ipynb](../exercises/06_pooling.ipynb). {questions}. Save,
# then `course check 06` gives your marks.
