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
# **The question:** a max pool remembers where each maximum was. What does remembering cost in
# memory, is there a cheaper way, and what does the pool itself save?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. follow a gradient through a max pool by hand;
# 2. say to the byte what a pool keeps in PyTorch's eager mode, in any precision;
# 3. write a pool that keeps less, and say what `torch.compile` plans to keep;
# 4. say what pools save, and what their place in a network does to the peak.
#
# About 85 minutes without *Further*, and {minutes} for the exercise. It builds on lessons 03 and 04: maps kept for the
# backward pass, the peak. No GPU is needed.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict
from itertools import accumulate, permutations
from math import prod

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes
from lessons.pooling.drawn import pool_drawn, waterfall
from lessons.pooling.explorer import pool_explorer
from lessons.pooling.remembered import PLANNED, kept_by_type
from lessons.shared.beside import beside_trace
from lessons.shared.changes import index_bytes

# %% [markdown] slide="slide"
# ## What a max pool must remember
#
# Sixteen values, four windows of 2 × 2. The pool passes on the largest value of each, and notes where it was: the
# *index*, a position counted row by row in the whole map.

# %%
values = torch.tensor([[1.0, 2, 0, 9], [6, 3, 8, 7], [7, 1, 2, 1], [0, 5, 3, 4]])
one_map = values[None, None]  # one image, one channel
output, index = nn.functional.max_pool2d(one_map, kernel_size=2, return_indices=True)
print("output  ", output[0, 0].tolist(), output.dtype)
print("index   ", index[0, 0].tolist(), index.dtype)

# %% slide="subslide" folded=true
pool_drawn(
    values,
    torch.tensor([[10.0, 20], [30, 40]]),
    title="A max pool sends a gradient to the winner of each window, an average pool to all",
)

# %% [markdown] slide="notes"
# In the backward pass the gradient of an output belongs to the winner of its window. The other three values had no part
# in the output, and their gradient is zero. The index tells where the winner was. An average pool has no winner: each
# value gets a quarter of the gradient, and no position has to be noted.

# %% [markdown] slide="slide"
# ## By hand: twelve bytes a value
#
# For each value that a max pool produces, training keeps
#
# - the value, because the next convolution needs its input: 4 bytes in float32;
# - the index, a 64-bit integer: 8 bytes.

# %% [markdown] slide="notes"
# GoogLeNet has many max pools: 13, beside 57 convolutions. (Ours follows the table of 2014, without its response
# normalisations and auxiliary classifiers, as in lesson 00.) Nine times it joins four branches. Such a *concatenation*
# copies their outputs into one map, which the next layers read and keep.

# %% folded=true
with torch.device("meta"):
    google = networks.googlenet()
step = training_step(google, (3, 224, 224), 1000, name="GoogLeNet").at(128)
table = step.by_layer().set_index("layer")
kept = table["saved feature maps"]
pools = {name: part for name, part in google.named_modules() if isinstance(part, nn.MaxPool2d)}
convolutions = [n for n, part in google.named_modules() if isinstance(part, nn.Conv2d)]
produced = {name: prod(table["shape"][name]) for name in pools}
by_convolutions = sum(prod(table["shape"][name]) for name in convolutions)
joins = [n for n in table.index if n.startswith("inception") and "." not in n]
by_joins = sum(prod(table["shape"][name]) for name in joins)
print("GoogLeNet, values produced for one image:")
print(f"{by_convolutions // 128:,} by {len(convolutions)} convolutions,", end=" ")
print(f"{by_joins // 128:,} by {len(joins)} concatenations,", end=" ")
print(f"{sum(produced.values()) // 128:,} by {len(pools)} max pools")

# %% slide="subslide"
guess = predict(
    "Training keeps these values, 4 bytes each (of a convolution, what its ReLU made), and a "
    "position of 8 bytes for each value of a max pool. What share of all that are the "
    "positions?",
    unit="%",
)
guess

# %% folded=true
by_pools = sum(produced.values())
by_hand = 8 * by_pools / (12 * by_pools + 4 * by_convolutions + 4 * by_joins)
reveal(
    guess,
    {"by hand": 100 * by_hand, "trace": 100 * index_bytes(step) / kept.sum()},
    against="trace",
    thoughts=[
        (0.0, "They have no weights; but what is kept are maps, and positions."),
        (
            100 * by_pools / (by_pools + by_convolutions + by_joins),
            "That is their share of the values. A position takes twice the bytes of a value.",
        ),
        (
            100 * len(pools) / (len(pools) + len(convolutions)),
            "In proportion to the layers. But a pool notes 8 bytes for each value.",
        ),
        (
            100 * 12 * by_pools / kept.sum(),
            "That counts 12 bytes a value, the pools' outputs included. The question is about "
            "the index alone.",
        ),
    ],
)

# %% [markdown]
# A third of what training keeps of our GoogLeNet only tells where the maxima were.

# %% slide="subslide" folded=true
still = [name for name, pool in pools.items() if pool.stride in (1, (1, 1))]
groups = {
    "stride 2, between the stages": [name for name in pools if name not in still],
    "stride 1, in the blocks": still,
}
pd.DataFrame(
    {
        name: {
            "pools": len(group),
            "values and indices": format_bytes(kept[group].sum()),
            "of all that is kept": f"{100 * kept[group].sum() / kept.sum():.0f} %",
        }
        for name, group in groups.items()
    }
).T

# %% [markdown] slide="notes"
# Nine of the thirteen are in the Inception blocks, 3 × 3 with stride 1. They shrink nothing: each produces as many
# values as it reads, with an index for each.
#
# (By hand comes out a little low: it counts the last concatenation too, which no layer keeps. With normalisation the
# share is about a quarter: see *Further*.)

# %%
guess_half = predict(
    "In half precision a value takes 2 bytes, and the index still 8. What is the share of the "
    "positions then?",
    unit="%",
)
guess_half

# %% folded=true
half = training_step(google, (3, 224, 224), 1000, precision="float16", name="GoogLeNet").at(
    128
)
half_kept = half.by_layer()["saved feature maps"].sum()
share = index_bytes(step) / kept.sum()
reveal(
    guess_half,
    {"trace": 100 * index_bytes(half) / half_kept},
    thoughts=[
        (100 * share, "The same share? All the rest is halved, and the positions are not."),
        (200 * share, "Twice the share: but the positions are part of the whole, too."),
        (50 * share, "Half of it? The positions are whole numbers, and keep their 8 bytes."),
    ],
)

# %% tags=["remove-input"]
others = (1 - share) / 2  # of what is kept in float32
hand = 100 * share / (share + others)
print(f"by hand: {share:.4f} / ({share:.4f} + {others:.4f}) = {hand:.1f} %")
twice = half.by_layer().set_index("layer")["saved feature maps"]["conv1"]
print(f"conv1 keeps {format_bytes(twice)} here, and kept {format_bytes(kept['conv1'])} before")
print(f"the share without these: {100 * index_bytes(half) / (half_kept - twice):.1f} %")

# %% [markdown] slide="notes"
# The positions stay, and the other two thirds are halved. The trace's share is a little lower, since `conv1` now keeps
# a copy of the images in 16 bits.

# %% [markdown] slide="slide"
# ## Two bits would do, or none
#
# A window of 2 × 2 has four positions. Two bits tell which; PyTorch, counting through the whole map, spends 64. Where
# the input is kept anyway, none are needed: look again. This pool spends as many as you say.

# %% [markdown] slide="notes"
# A `torch.autograd.Function` is an operator whose two passes you write yourself. `forward` computes, and hands
# `ctx.save_for_backward` what the backward pass will need: the positions, or with 0 bits the maps. `backward` gets the
# gradient of the output, reads what was kept, and returns a gradient for each argument of `forward` (none for `bits`).
# With 2 bits four positions share a byte. The rest cuts maps into windows and puts them together again.


# %% slide="skip"
class Remembering(torch.autograd.Function):
    """A 2 × 2 max pool that writes each position in 64, 8, 2 or 0 bits."""

    @staticmethod
    def windows(maps):
        n, c, h, w = maps.shape
        return maps.reshape(n, c, h // 2, 2, w // 2, 2).transpose(3, 4).flatten(4)

    @staticmethod
    def forward(ctx, maps, bits):
        largest, position = Remembering.windows(maps).max(dim=-1)
        if bits < 64:
            position = position.to(torch.uint8)
        if bits == 2:  # four positions in a byte
            one, two, three, four = position.reshape(-1, 4).unbind(1)
            position = one | two << 2 | three << 4 | four << 6
        ctx.bits = bits
        ctx.save_for_backward(position if bits else maps)
        return largest

    @staticmethod
    def backward(ctx, gradient):
        (position,) = ctx.saved_tensors
        if ctx.bits == 0:  # these are the maps
            position = Remembering.windows(position).max(dim=-1).indices
        if ctx.bits == 2:
            position = torch.stack([position >> shift & 3 for shift in (0, 2, 4, 6)], 1)
        winner = position.view(gradient.shape)[..., None].long()
        windows = gradient.new_zeros(*gradient.shape, 4)
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
# Change bits to 0, to 8 and to 64, and run.
bits = 2
maps = torch.relu(torch.randn(2, 16, 32, 32)).requires_grad_()  # with ties: windows of zeros
theirs, ours = nn.functional.max_pool2d(maps, 2), MaxPool(bits)(maps)
arriving = torch.randn_like(ours)
gradients = [torch.autograd.grad(pooled, maps, arriving)[0] for pooled in (theirs, ours)]
print("same values:", torch.equal(theirs, ours), "· same gradient:", torch.equal(*gradients))
saved = MaxPool(bits)(maps).grad_fn.saved_tensors[0]
added = 0 if saved.data_ptr() == maps.data_ptr() else saved.untyped_storage().nbytes()
print(f"{added * 8 / ours.numel():g} bits kept for each position, besides the maps")

# %% [markdown] slide="notes"
# Same values, same gradients. In VGG-16, whose five pools are all 2 × 2:

# %% slide="subslide" folded=true
POOLS = ("pool1", "pool2", "pool3", "pool4", "pool5")


def vgg16_with(pools):
    """VGG-16's traced step at batch 128, with other modules in the places of its pools."""
    with torch.device("meta"):
        model = networks.vgg16()
        for name, module in pools.items():
            setattr(model, name, module)
    return training_step(model, (3, 224, 224), 1000, name="VGG-16").at(128)


ways = {
    "PyTorch's max pool": {},
    "ours, 8 bits": {name: MaxPool(8) for name in POOLS},
    "ours, 2 bits": {name: MaxPool(2) for name in POOLS},
    "ours, 0 bits": {name: MaxPool(0) for name in POOLS},
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
    layers, moments = with_it.by_layer().set_index("layer"), with_it.timeline()
    elsewhere = moments[~moments["layer"].isin(POOLS)]["total"].max()
    rows[way] = {
        "kept": format_bytes(layers["saved feature maps"].sum()),
        "peak": format_bytes(with_it.peak_bytes),
        "peak outside the pools' passes": format_bytes(elsewhere),
        "parameters": f"{layers['parameters'].sum():,}",
    }
with torch.device("meta"):
    residual = networks.resnet50()
one_pool = training_step(residual, (3, 224, 224), 1000, name="ResNet-50").at(128)
shares = [
    f"{100 * index_bytes(each) / each.by_layer()['saved feature maps'].sum():.0f} %"
    for each in (published, one_pool)
]
print("positions, of all that is kept: VGG-16 {}, ResNet-50 {}".format(*shares))
pd.DataFrame(rows).T.rename_axis("VGG-16, batch 128")

# %% [markdown] slide="notes"
# How much there is to save depends on the network: ResNet-50 has a single max pool, and its positions are a fiftieth of
# what it keeps. With two bits VGG-16 keeps less than 1 % more than with average pools, which have nothing to remember;
# with none, as much as with these, since the ReLUs keep the maps anyway. The peak does not fall quite as far: it is now
# inside our pool, whose backward pass has the positions in 64 bits and writes the gradient twice, as windows and as a
# map.
#
# Why note positions at all? TensorFlow's [backward
# pass](https://www.tensorflow.org/api_docs/python/tf/raw_ops/MaxPoolGrad) of a max pool is given input and output, and
# so is cuDNN's. But this reads the input once more, and the input must stay; with positions it may go (see the next
# section). We compare bytes, not times: ours is several operators, each of which reads and writes maps.
#
# The last two rows are other networks.

# %% [markdown] slide="slide"
# ## What `torch.compile` plans to keep
#
# So far everything ran as written, in *eager* mode. `torch.compile` sees both passes before either runs. Does it find
# the two bits?

# %% [markdown] slide="notes"
# `torch.compile` first records both passes as one graph, then decides what the forward pass keeps for the backward
# pass, and last writes kernels. We stop before the last, so no C++ compiler is needed: `PLANNED` is PyTorch's debugging
# backend `aot_eager_decomp_partition`, and what follows is the *plan*, not a measurement. (The course's tests compare
# the two on one small network: the same maps, but for copies in other layouts.)
#
# First a ReLU and a max pool between two convolutions. The ReLU makes 128 values, the pool 32.

# %%
convolution = nn.Conv2d(8, 8, 3, padding=1)
pair = nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1))
example = torch.empty(1, 8, 4, 4)
for name, backend in {"eager": None, "plan": PLANNED}.items():
    print(f"{name}: {kept_by_type(pair, example, backend).to_dict()} bytes")

# %% [markdown] slide="notes"
# In eager mode training keeps both maps in float32, and 32 indices of 8 bytes each. By the plan,
#
# 1. a position takes 8 bits: not two, but no longer 64 (in windows up to 5 × 5; in larger ones it stays at 64);
# 2. of the ReLU's output one byte a value is kept: was it positive? The ReLU's backward pass needs no more than that;
# 3. the pool does not keep its *input*: positions are enough.
#
# Eager `max_pool2d` and `avg_pool2d` do keep theirs. (An average over the whole map, GoogLeNet's last pool, runs as a
# mean and does not.) Here that added nothing, since the ReLU before the pool keeps the same tensor:

# %% slide="subslide"
positive = torch.relu(torch.randn(1, 4, 8, 8, requires_grad=True))
by_relu = positive.grad_fn._saved_result
for pool in (nn.functional.max_pool2d, nn.functional.avg_pool2d):
    by_pool = pool(positive, 2).grad_fn._saved_self
    same = by_relu.data_ptr() == by_pool.data_ptr()
    print(f"ReLU and {pool.__name__} keep the same tensor: {same}")

# %% [markdown] slide="notes"
# Now GoogLeNet. The first point shrinks its indices. The second does not shrink every ReLU: where a convolution reads
# the values, they stay. Two kinds of ReLU are read by no convolution: those before a max pool, and those that end a
# branch, where the next convolutions read the concatenation, a copy. Two concatenations are read by a max pool alone.

# %% folded=true
before_pools = kept[["relu1", "relu2"]].sum() // 4  # values; pool1 and pool2 read these
branches = ("branch1x1.relu", "branch3x3.relu", "branch5x5.relu", "branch_pool.relu")
before_joins = kept[[name.endswith(branches) for name in kept.index]].sum() // 4
joined = ["inception3b", "inception4e"]  # what pool3 and pool4 read
positions, signs = index_bytes(step) // 8 * 7, 3 * (before_pools + before_joins)
shrinking = {
    "indices of max pools": (index_bytes(step), "1/8"),
    "outputs of ReLUs before max pools": (4 * before_pools, "1/4"),
    "outputs of ReLUs at the ends of branches": (4 * before_joins, "1/4"),
}
columns = ["eager", "plan"]
table = pd.DataFrame.from_dict(shrinking, orient="index", columns=columns)
table["eager"] = table["eager"].map(format_bytes)
table.loc["concatenations that pool3 and pool4 read"] = [format_bytes(kept[joined].sum()), "?"]
table.loc["all that training keeps"] = [format_bytes(kept.sum()), "?"]
table.rename_axis("GoogLeNet, batch 128")

# %%
guess_plan = predict("By the plan, how much does training keep in all?", unit="GiB")
guess_plan

# %% slide="skip"
images = torch.empty(128, 3, 224, 224, device="meta")
eager, planned = kept_by_type(google, images), kept_by_type(google, images, PLANNED)

# %% slide="subslide" folded=true
reveal(
    guess_plan,
    {"plan": planned.sum() / GIB},
    thoughts=[
        (
            (kept.sum() - positions) / GIB,
            "An eighth of the indices. The values of the ReLUs shrink to a quarter too.",
        ),
        (
            (kept.sum() - positions - signs) / GIB,
            "Positions and signs, both right. But who still needs what pool3 and pool4 read?",
        ),
        (kept.sum() / 8 / GIB, "An eighth of everything: only the indices shrink by 8."),
    ],
)

# %% [markdown] slide="notes"
# That is the third point: a concatenation does not need its result in the backward pass, and eager mode keeps these two
# for the pools alone. With them, and 0.4 MiB of dropout's mask, the sum is closed:

# %% slide="subslide" folded=true
mask = 3 * 128 * 1024  # of dropout, 1,024 values an image; eager mode on meta keeps float32
falls = {
    "positions, 8 bits for 64": positions,
    "signs before max pools": 3 * before_pools,
    "signs at the ends of branches": 3 * before_joins,
    "what pool3 and pool4 read": kept[joined].sum(),
    "dropout's mask, a byte a value": mask,
}
fall = eager.sum() - planned.sum()
waterfall(
    ("eager", eager.sum() / MIB),
    {what: size / MIB for what, size in falls.items()},
    "plan, by this sum",
    "MiB",
    title=f"By the plan GoogLeNet keeps {fall / MIB:,.0f} MiB less; positions are "
    f"{100 * positions / fall:.0f} % of that",
)

# %%
left = eager.sum() - sum(falls.values())
print(f"by the sum {left:,} bytes, by the plan {planned.sum():,} bytes")

# %% [markdown]
# By this plan GoogLeNet keeps less than half, and every byte of the difference is accounted for. (The last 0.4 MiB come
# from running without a card: on one, eager mode also keeps dropout's mask in bytes.) How far the *peak* falls is
# another question, and this plan does not tell.

# %% [markdown] slide="notes"
# Does the plan need a *max* pool to keep less? We try VGG-16, which joins nothing, with average pools, and with
# averages by reshaping, over the same windows:


# %% slide="skip"
class Mean(nn.Module):
    """A 2 × 2 average pool whose backward pass needs nothing but shapes."""

    def forward(self, maps):
        return maps.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).mean((3, 5))


# %% slide="subslide" folded=true
rows = {}
for kind, make in {
    "max pools": lambda: nn.MaxPool2d(2),
    "average pools": lambda: nn.AvgPool2d(2),
    "averages by reshaping": Mean,
}.items():
    with torch.device("meta"):
        model = networks.vgg16()
        for name in POOLS:
            setattr(model, name, make())
    rows[kind] = {
        way: format_bytes(kept_by_type(model, images, backend).sum())
        for way, backend in {"eager": None, "plan": PLANNED}.items()
    }
pd.DataFrame(rows).T.rename_axis("VGG-16, batch 128, kept")

# %% [markdown] slide="notes"
# In eager mode VGG-16 keeps less with average pools; by the plan it keeps *more* than with max pools. PyTorch's average
# pool holds on to its input, so the ReLU's values before it stay. The average by reshaping does not, and lets them go.
# So what counts is whether a pool needs its input. By the plan, the max pool and the average by reshaping do not; the
# max pool keeps its positions on top, 5.19 GiB against 5.01.
#
# What a compiler keeps may change with its next version. Run the next cell with yours.

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change the network. Where there is a C++ compiler, try the backend "inductor" too.
network, backend = networks.small_cnn(), PLANNED
pictures = torch.randn(64, 3, 32, 32)
print("eager:", kept_by_type(network, pictures).to_dict())
print(f"{backend}:", kept_by_type(network, pictures, backend).to_dict())

# %% [markdown] slide="slide"
# ## What a pool saves, and where
#
# Eager again, and what the pools give in return. A pool with a stride shrinks the maps that follow. It also lets later
# values see further: the *receptive field* of a value is the part of the image that it depends on.

# %% slide="subslide"
width = sum(count * channels for count, channels in networks.VGG_GROUPS)
guess_none = predict(
    f"VGG-16's convolutions write {width:,} channels in all, and it peaks at "
    f"{format_bytes(published.peak_bytes)} at batch 128. Take out all five "
    "pools. The head averages what arrives to 7 × 7, so it still runs. What is the peak?",
    unit="GiB",
)
guess_none


# %% slide="skip" folded=true
# How many convolutions come before each pool.
AFTER = list(accumulate(count for count, _ in networks.VGG_GROUPS))


def receptive_field(pools):
    """Side of what a value after the last convolution depends on; `pools` are like AFTER."""
    layers = []
    for number in range(1, AFTER[-1] + 1):
        layers.append(nn.Conv2d(1, 1, 3, padding=1, bias=False))
        layers += pools.count(number) * [nn.AvgPool2d(2)] if number < AFTER[-1] else []
    network = nn.Sequential(*layers).double()
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            nn.init.ones_(layer.weight)
    image = torch.zeros(1, 1, 256, 256, dtype=torch.double, requires_grad=True)
    maps = network(image)
    maps[0, 0, maps.shape[2] // 2, maps.shape[3] // 2].backward()
    return int((image.grad[0, 0].sum(0) != 0).sum())


def bare(gone):
    """VGG-16's traced step without these pools."""
    return vgg16_with({pool: nn.Identity() for pool in gone})


none_left = bare(POOLS)

# %% slide="subslide" folded=true
channel = 4 * 128 * 224**2  # bytes of one channel, as large as the images
all_maps, two_gradients = channel * width, channel * 2 * 512
reveal(
    guess_none,
    {"by hand": (all_maps + two_gradients) / GIB, "trace": none_left.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (
            published.peak_bytes / GIB - index_bytes(published) / GIB,
            "The indices are gone. But all maps now have the size of the image.",
        ),
        (
            4 * published.peak_bytes / GIB,
            "Four times: one pool's worth. The maps of group 5 shrank by 4 four times over.",
        ),
        (
            all_maps / GIB,
            "All maps at full size. At the peak two gradient maps are alive, too, as large as "
            "group 5's, and the parameters.",
        ),
    ],
)

# %%
rest = none_left.peak_bytes - all_maps - two_gradients
print(f"maps: 4 · 128 · 224 · 224 · {width:,} bytes, {format_bytes(all_maps)}")
print(f"two gradient maps of 512 channels: {format_bytes(two_gradients)}")
print(f"not counted: {format_bytes(rest)} of parameters, gradients, momentum, images")

# %% slide="subslide" folded=true
without = {
    "as published": (),
    "without pool4": ("pool4",),
    "without pool1": ("pool1",),
    "without any": POOLS,
}
rows = {}
for name, gone in without.items():
    each = bare(gone)
    left = [after for pool, after in zip(POOLS, AFTER, strict=True) if pool not in gone]
    layers = each.by_layer()
    written = layers[layers["layer"].str.startswith("conv")]["shape"].map(prod).sum()
    rows[name] = {
        "peak at batch 128": format_bytes(each.peak_bytes),
        "receptive field": f"{receptive_field(left)} pixels",
        "GFLOP forward, one image": f"{layers['flops'].sum() / 128e9:.0f}",
        "convolutions write": f"{written / 128e6:.1f} million values",
    }
pd.DataFrame(rows).T.rename_axis("VGG-16")

# %% [markdown]
# Without its pools VGG-16 needs twelve times the memory and nearly fifty times the arithmetic, and a value after its
# last convolution depends on 27 × 27 pixels, not on 196 × 196.

# %% [markdown] slide="notes"
# Why does `pool1` save so much more than `pool4`? Take a pool out, and every map after it, up to the head's average, is
# four times as large: three times as much on top, which is what the last column gains. After `pool1` come groups 2 to
# 5, more than half of what the convolutions write; after `pool4` comes group 5 alone, a fiftieth.

# %% [markdown] slide="slide"
# Does it also matter where the *first* pool stands? VGG-16 has it after two convolutions. Here it comes after one to
# four.


# %% folded=true
def vgg16_moved(convolutions):
    """VGG-16 at batch 128 with its first pool after so many convolutions."""
    with torch.device("meta"):
        layers, seen = OrderedDict(), 0
        for name, layer in networks.vgg16().named_children():
            if name != "pool1":
                layers[name] = layer
            seen += isinstance(layer, nn.Conv2d)
            if isinstance(layer, nn.ReLU) and seen == convolutions and "pool1" not in layers:
                layers["pool1"] = nn.MaxPool2d(2)
    return training_step(nn.Sequential(layers), (3, 224, 224), 1000, name="VGG-16").at(128)


rows = {}
for number in (1, 2, 3, 4):
    moved = vgg16_moved(number)
    rows[number] = {
        "peak at batch 128": format_bytes(moved.peak_bytes),
        "it is in": f"the {moved.peak_phase} pass, at {moved.peak_layer}",
        "receptive field": f"{receptive_field([number, *AFTER[1:]])} pixels",
        "GFLOP forward, one image": f"{moved.by_layer()['flops'].sum() / 128e9:.0f}",
    }
pd.DataFrame(rows).T.rename_axis("convolutions before the first pool")

# %% [markdown] slide="notes"
# The earlier the first pool, the lower the peak, and the fewer operations. The parameters stay, and the receptive field
# hardly changes. It is another network all the same; whether it learns as well is not computed here.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what should replace a pool?**

# %% [markdown] slide="notes"
# Before each move, say what happens to the maps and to the indices. All of it is eager.

# %% tags=["nbval-ignore-output"]
pool_explorer("VGG-16", "pool1")

# %% [markdown] slide="notes"
# Try three things. In VGG-16 put nothing in place of `pool5`: does the peak move? In AlexNet make `pool1` 4 × 4,
# with stride 4: what falls besides the indices? Replace every pool of VGG-16 by an average pool, in float32 and in
# float16: in which does the peak lose the larger share?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Without `pool5` the peak does not move: it is at `relu4_3` in the backward pass, and by then `pool5` is done. With the
# larger stride the pool produces fewer values, so the maps after it shrink too. In float32 the peak falls from 10.31 to
# 8.97 GiB, 13 %. In float16 it falls from 6.89 to 5.43 GiB, 21 %: the indices have the same 8 bytes, and the maps are
# halved.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Eager, in float32, a max pool costs 12 bytes a value, 8 for its position. Positions are a third of what our
#    GoogLeNet keeps, 2 % of ResNet-50's.
# 2. For windows of 2 × 2 two bits would do, or none. By `torch.compile`'s plan GoogLeNet keeps 1.75 GiB, not 4.13.
# 3. Without pools VGG-16 peaks at 127 GiB, not at 10.

# %% [markdown] slide="notes"
# In half precision the 12 bytes are 10. With no bits the pool's input must stay. GoogLeNet's windows, of 3 × 3, would
# take four bits. The plan spends a byte on a position or on a value that only its ReLU needs, and nothing on the
# input of a max pool (of PyTorch's average pool it keeps the input). The pools do not save alike: without `pool1` VGG-16 peaks over twice as high, without `pool4` a twentieth
# higher.
#
# Now the exercise: [exercises/06_pooling.ipynb](../exercises/06_pooling.ipynb). {questions}. Save, then `course check
# 06` gives your marks.

# %% [markdown] slide="skip"
# ## Further: normalisation
#
# **The share of the positions** is smaller with normalisation. Torchvision's GoogLeNet has a batch norm after each
# convolution. The published one has two local response normalisations, after `pool1` and before `pool2`. Ours with
# either:

# %% slide="skip" folded=true
with torch.device("meta"):
    batch, response = networks.googlenet(), networks.googlenet()
    for name in convolutions:
        part = batch.get_submodule(name)
        batch.set_submodule(name, nn.Sequential(part, nn.BatchNorm2d(part.out_channels)))
    response.pool1 = nn.Sequential(response.pool1, nn.LocalResponseNorm(5))
    response.pool2 = nn.Sequential(nn.LocalResponseNorm(5), response.pool2)
ways = {
    "57 batch norms": (batch, by_convolutions),
    "2 response normalisations": (response, produced["pool1"] + kept["relu2"] // 4),
}
rows = {}
for name, (model, read) in ways.items():
    normed = training_step(model, (3, 224, 224), 1000, name="GoogLeNet").at(128)
    in_all = normed.by_layer()["saved feature maps"].sum()
    rows[name] = {
        "values read, one image": f"{read // 128:,}",
        "kept for them": format_bytes(in_all - kept.sum()),
        "bytes a value": f"{(in_all - kept.sum()) / read:.1f}",
        "share of the positions": f"{100 * index_bytes(normed) / in_all:.0f} %",
    }
pd.DataFrame(rows).T.rename_axis("GoogLeNet, batch 128")

# %% [markdown] slide="skip"
# A batch norm keeps one map, its input. A response normalisation is several operators in eager mode. They keep the squares
# of the input (padded by four channels), the base of a power, and the power; its output is a fourth map. So two of them
# weigh about as much as 57 batch norms, which read four times as many values.
#
# **The order of norm, ReLU and pool** matters too. VGG-16 with one batch norm at `pool1`, in all six orders:

# %% slide="skip" folded=true
rows = {}
for order in permutations(("norm", "ReLU", "pool")):
    norm = nn.BatchNorm2d(64, device="meta")
    parts = {"norm": norm, "ReLU": nn.ReLU(), "pool": nn.MaxPool2d(2)}
    three = nn.Sequential(*(parts[name] for name in order))
    ordered = vgg16_with({"relu1_2": three, "pool1": nn.Identity()})
    saved = [s.by_layer()["saved feature maps"].sum() for s in (published, ordered)]
    rows[", ".join(order)] = {"kept more": format_bytes(saved[1] - saved[0])}
pd.DataFrame(rows).T.rename_axis("VGG-16, batch 128")

# %% [markdown] slide="skip"
# Each time one map more is kept, the norm's input or its output, a quarter as large where the pool comes before the
# norm.
#
# **VGG-16 on a GPU, beside the trace**, where somebody recorded it:

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "VGG-16")
rows += beside_trace(gpu, "VGG-16", "float16")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="skip"
# The exercise is [exercises/06_pooling.ipynb](../exercises/06_pooling.ipynb). {questions}.
