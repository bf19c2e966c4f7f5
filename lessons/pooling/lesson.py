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
# **The question:** a max pool remembers where each maximum was. What does remembering cost, and who gets by with
# less?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. follow a gradient through a max pool by hand;
# 2. say to the byte what a pool keeps in PyTorch's eager mode, in any precision;
# 3. write a pool that keeps less, and say what `torch.compile` does about it;
# 4. say what pools are for, and what their place in a network does to the peak.
#
# About 80 minutes, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the backward pass, the
# peak. No GPU is needed.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Spot, plane
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
    "A bet: count the outputs of its 13 max pools, what the pools note for themselves, and "
    "inputs that no other layer keeps. What share is this of all that training keeps?",
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
# PyTorch's backward pass uses the index. A gradient that arrives belongs to the winner of its window; the other three
# values had no part in the output, and get zero.

# %%
values.requires_grad_()
output = nn.functional.max_pool2d(values[None, None], kernel_size=2)[0, 0]
output.backward(torch.tensor([[10.0, 20], [30, 40]]))
pd.DataFrame(values.grad.int().numpy())

# %% [markdown] slide="notes"
# (The index can be found again from the input and the output. The max pools of NVIDIA's cuDNN take those two and no
# index.)

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
# PyTorch's pools hold on to their *input* as well, max and average alike. That adds nothing where a ReLU comes before
# the pool, since the ReLU keeps the same tensor:

# %%
positive = torch.relu(torch.randn(1, 4, 8, 8, requires_grad=True))
by_relu = positive.grad_fn._saved_result
for pool in (nn.functional.max_pool2d, nn.functional.avg_pool2d):
    by_pool = pool(positive, 2).grad_fn._saved_self
    same = by_relu.data_ptr() == by_pool.data_ptr()
    print(f"ReLU and {pool.__name__} keep the same tensor: {same}")

# %% [markdown] slide="notes"
# Where a pool alone reads a *concatenation*, the input does come on top: a concatenation does not need its result in
# the backward pass. In GoogLeNet `pool3` and `pool4` read one each, and no other layer reads it.

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
# A window of 2 × 2 has four positions. Two bits tell which; PyTorch spends 64. Here is a pool that spends as many as
# you say.


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
            one, two, three, four = position.reshape(-1, 4).unbind(1)
            position = one | two << 2 | three << 4 | four << 6
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
maps = torch.relu(torch.randn(2, 16, 32, 32)).requires_grad_()  # with ties: windows of zeros
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

# %% [markdown] slide="notes"
# With two bits VGG-16 keeps less than 1 % more than with average pools, which have nothing to remember. The peak is 0.2
# GiB higher, and at `pool4`: our backward pass makes more than one map of gradients there. It also copies every map
# into windows, so it shows what could be kept, not how fast. A strided convolution keeps no index either, and pays in
# parameters. (Here it is a sixth kernel in the pool's place. Lesson 04 strides the convolution before it.)

# %% [markdown] slide="slide"
# ## What `torch.compile` keeps
#
# `torch.compile` looks at both passes together before it decides what to keep. Take a ReLU and a max pool between two
# convolutions.

# %%
convolution = nn.Conv2d(8, 8, 3, padding=1)
pair = nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1))
example = torch.empty(1, 8, 4, 4)
for name, backend in {"eager": None, "compiled": PLANNED}.items():
    print(f"{name}: {kept_by_type(pair, example, backend).to_dict()} bytes")

# %% [markdown] slide="notes"
# The ReLU makes 128 values, the pool 32. Eager, training keeps both in float32 and 32 indices of 8 bytes. Compiled, it
# keeps each position in 8 bits. Of the ReLU it keeps one byte for each value: was it positive? A ReLU's backward pass
# needs no more, and the compiled pool does not hold on to its input.
#
# The convolutions that follow a ReLU directly need its values, so these stay. In GoogLeNet a ReLU's values can go in
# two places: before a max pool, and at the end of a branch, since the convolutions after it read the concatenation, a
# copy.

# %% folded=true
before_pools = kept[["relu1", "relu2"]].sum() // 4  # values; pool1 and pool2 read these
branches = ("branch1x1.relu", "branch3x3.relu", "branch5x5.relu", "branch_pool.relu")
before_joins = kept[[name.endswith(branches) for name in kept.index]].sum() // 4
positions, signs = 7 / 8 * index_bytes(step), 3 * (before_pools + before_joins)
print(f"GoogLeNet, batch 128: eager, training keeps {format_bytes(kept.sum())}.")
print(f"{format_bytes(index_bytes(step))} of it are indices.")
print(f"{format_bytes(4 * before_pools)} are outputs of ReLUs before max pools,")
print(f"{format_bytes(4 * before_joins)} are outputs of ReLUs at the ends of branches.")

# %%
guess_compiled = predict("Compiled, how much does training keep in all?", unit="GiB")
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
            (kept.sum() - positions) / GIB,
            "An eighth of the indices. The values of the ReLUs shrink to a quarter too.",
        ),
        (
            (kept.sum() - positions - signs) / GIB,
            "Positions and signs, both right. One thing more goes: what pool3 and pool4 read.",
        ),
        (kept.sum() / 8 / GIB, "An eighth of everything: only the indices shrink by 8."),
    ],
)

# %% [markdown] slide="notes"
# `pool3` and `pool4` read concatenations, which were kept for them alone. The compiled pools do not hold on to them. With
# these the sum is closed:

# %% slide="subslide" folded=true
mask = 3 * 128 * 1024  # of dropout, 1,024 values an image; eager mode on meta keeps float32
parts = {
    "eager": eager.sum(),
    "positions, 8 bits for 64": -positions,
    "signs before max pools": -3 * before_pools,
    "signs at the ends of branches": -3 * before_joins,
    "what pool3 and pool4 read": -kept[joined].sum(),
    "the mask of dropout, a byte a value": -mask,
}
balance = {**parts, "sum": sum(parts.values()), "compiled": compiled.sum()}
pd.DataFrame({"kept, MiB": {what: f"{size / 2**20:+,.2f}" for what, size in balance.items()}})

# %% [markdown] slide="notes"
# Take the max pools away, and the positions and the signs before them should go. Put average pools in their places; in
# VGG-16 too, which joins nothing:


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

# %% [markdown] slide="notes"
# Eager, these two networks keep less with average pools. Compiled, they keep more. An average's gradient needs only
# shapes, but PyTorch's operator for it takes the input, so the input stays. The signs that are left are those at the
# ends of GoogLeNet's branches and of VGG-16's two ReLUs before dropout; the rest are dropout's masks.
#
# So what this course counts for pools and ReLUs holds in eager mode only. What a compiler keeps may change with its
# next version; run the next cell with yours. It asks the part of `torch.compile` that decides what to keep. Another
# part, the backend "inductor", writes the kernels.

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change the network. Where there is a C++ compiler, try the backend "inductor" too.
network, backend = networks.small_cnn(), PLANNED
pictures = torch.randn(64, 3, 32, 32)
print("eager:   ", kept_by_type(network, pictures).to_dict())
print("compiled:", kept_by_type(network, pictures, backend).to_dict())

# %% [markdown] slide="slide"
# ## What pools are for
#
# First, all later maps shrink. Second, later values see further: the *receptive field* of a value is the part of the
# image that it depends on.

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

# %% [markdown] slide="slide"
# ## Do pools forgive a shift?
#
# The usual argument: a maximum stays the same when its value moves within the window, so a small shift of the image
# should not matter. Is it so?

# %% [markdown] slide="notes"
# A small network on handwritten digits of 16 × 16 halves its maps twice, in one of four ways. It is trained on the
# digits as they are, and tested on digits moved by 0, 1 and 2 pixels:

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
# Max pools have the best mean in every column. But three seeds of one network are as far apart as their lead, or
# further, in two of the three columns. So three seeds do not decide. At two pixels all four networks have lost more
# than a third of the digits. (The dense layer at the end reads positions, so that a shift costs something whatever
# comes before it.)

# %% [markdown] slide="slide"
# ## Early or late
#
# VGG-16's first pool comes after the second convolution. Move it.


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
moved = {kind: [vgg16_moved(number, pool) for number in after] for kind, pool in kinds.items()}
peaks = {kind: [step.peak_bytes / GIB for step in steps] for kind, steps in moved.items()}
plane(
    Axis(
        "convolutions before the first pool",
        low=0,
        high=7,
        write=lambda number: "" if number % 1 else f"{number:g}",
    ),
    Axis("GiB at the peak, batch 128", low=0, write=lambda gib: f"{gib:.4g}"),
    spots=[
        Spot(kind if number == 1 else "", number, peak, colour, hollow=kind == "average pool")
        for (kind, row), colour in zip(peaks.items(), SERIES_COLOURS, strict=False)
        for number, peak in zip(after, row, strict=True)
    ],
    title="Each convolution before the first pool raises the peak: "
    f"{peaks['max pool'][0]:.1f} GiB after 1, {peaks['max pool'][-1]:.1f} after 6",
)

# %%
pd.DataFrame(
    {
        f"after {number}": {
            "max pool": format_bytes(most.peak_bytes),
            "peak at": most.peak_layer,
            "more than with an average pool": format_bytes(most.peak_bytes - least.peak_bytes),
        }
        for number, most, least in zip(after, *moved.values(), strict=True)
    }
)

# %% [markdown] slide="notes"
# The kind of pool matters where the index is alive at the peak. After 3, 4 and 6 convolutions the peak is in the
# backward pass at the ReLU right before the pool. The pool's backward pass is over by then, and its index is gone.
#
# The order within one place matters too, if there is a batch norm. It keeps its *input*, a map of its own.

# %% slide="skip" tags=["change"]
# Change the order of the three and run: which orders keep least, and what do they share?
# (ReLU and max pool may be swapped. With the norm after the pool it is another network.)
norm, relu, pool = nn.BatchNorm2d(64, device="meta"), nn.ReLU(), nn.MaxPool2d(2)
order = [norm, relu, pool]
with torch.device("meta"):
    model = networks.vgg16()
    model.relu1_2, model.pool1 = nn.Sequential(*order), nn.Identity()
ordered = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)
saved = ordered.by_layer()["saved feature maps"].sum()
print(f"{format_bytes(saved)} kept, {format_bytes(ordered.peak_bytes)} at the peak")

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Three orders keep 10.19 GiB, three 9.04 GiB. Those that keep less have the norm after the pool, where its input is a
# quarter as large.
#
# </details>

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
# Try three things. In VGG-16 put nothing in place of `pool5`: does the peak move? In AlexNet give `pool1` a size of 4 ×
# 4: what falls besides the indices? Replace every pool of VGG-16 by an average pool, in float32 and in float16: in
# which does the peak lose the larger share?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Without `pool5` the peak does not move: it is at `relu4_3` in the backward pass, and by then `pool5` is done. A larger
# window makes fewer values, so all maps after it shrink. In float32 the peak falls from 10.31 to 8.97 GiB, 13 %. In
# float16 it falls from 6.89 to 5.43 GiB, 21 %: the indices have the same 8 bytes, and all else is smaller.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Eager and in float32, a max pool keeps 12 bytes for each value it produces, 8 of them for a position.
# 2. `torch.compile` keeps a position in 8 bits, and only the signs where only a ReLU needs them.
# 3. A pool with a stride shrinks all later maps.

# %% [markdown] slide="notes"
# In half precision the 12 bytes are 10. A pool's input is kept as well, which adds nothing where a ReLU keeps the same
# tensor. With their outputs, GoogLeNet's pools, which own no weight, account for more than half of all that is kept.
#
# Now the exercise: [exercises/06_pooling.ipynb](../exercises/06_pooling.ipynb). {questions}. Save,
# then `course check 06` gives your marks.
