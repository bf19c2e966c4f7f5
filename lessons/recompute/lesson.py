# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 10 · Recompute instead of store
#
# **The question:** what does one extra forward pass buy?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say what a *segment* keeps, what it computes again, and when;
# 2. count the peak of a chain of equal layers, and find the best number of segments;
# 3. say why real networks want unequal cuts, and where;
# 4. tell what the extra forward pass costs, and when it costs hardly anything;
# 5. checkpoint a network without touching its results.
#
# About 80 minutes, and {minutes} for the exercise. It builds on lesson 03: what is alive at the peak. No GPU is needed.

# %% slide="skip" folded=true
import itertools
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side, skyline
from course_utils.machine import hardware
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.techniques import offload
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes
from lessons.recompute.explorer import recompute_explorer
from lessons.shared.recompute import Chain, checkpointed, evenly


def chain_of(name, precision="float32"):
    network = networks.NETWORKS[name]
    with torch.device("meta"):
        module = network.build()
    return Chain(module, network.input_shape, network.classes, name, precision=precision)


# %% [markdown] slide="slide"
# ResNet-50, batch 64, momentum: 5.38 GiB at the peak, most of it maps that wait for the backward pass.

# %% [markdown] slide="notes"
# A map can be thrown away and computed again when it is needed. So cut the network into pieces, keep what enters each,
# and run a piece forward again when the backward pass comes to it. Papers call this *checkpointing*, *activation
# checkpointing* or *rematerialisation*; an activation is what this course calls a feature map.

# %%
guess = predict(
    "ResNet-50, batch 64, cut between its blocks, no layer run forward more than twice: to "
    "what does the peak fall, with every gradient as it was?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand, then traced: the square root
#
# A chain of n layers, each with an output of one unit. The backward pass wants all n. Cut the chain into k *segments*
# of n/k layers.

# %% [markdown] slide="notes"
# In the forward pass keep only what enters each segment: k units. The backward pass takes the segments from the last to
# the first; each runs forward once more from its input, and for that time its n/k outputs are held.

# %% [markdown]
# | | units at the peak |
# |---|---:|
# | keep everything | n |
# | k segments | k + n/k |

# %% [markdown] slide="notes"
# Few segments are long; many segments mean many inputs to hold. The two are equal at k = √n, where the sum is smallest:
# 2√n. For 36 layers:

# %%
n = 36
counts = [k for k in range(1, n + 1) if n % k == 0]
by_hand = {k: k + n // k for k in counts}
pd.DataFrame({"segments": counts, "inputs": counts, "one segment": [n // k for k in counts],
              "together": by_hand.values()}).set_index("segments").T  # fmt: skip

# %% [markdown] slide="subslide"
# Now traced, with 36 equal layers. Tanh needs its own output in the backward pass and nothing else: one unit a layer.
# The trace runs the chain through PyTorch's own `torch.utils.checkpoint`, on shapes.

# %% [markdown] slide="notes"
# Two things differ from the count by hand. The last segment keeps its maps: the backward pass begins there, and would
# want them back at once. So 6 segments need 5 inputs. And the peak is at the turn, where the loss adds three units: a
# map of its own and two gradients. Together k − 1 + n/k + 3.


# %% folded=true
def equal_layers(count):
    with torch.device("meta"):
        tanhs = nn.Sequential(nn.Linear(64, 64), *(nn.Tanh() for _ in range(count)))
    return Chain(tanhs, (64,), 64, f"{count} equal layers", optimizer="sgd", target="cpu")


equal = equal_layers(n)
batch, unit = 1024, 1024 * 64 * 4


def units(segments, chain=equal):
    """Units at the peak above weights, input and labels."""
    return (chain.step(segments).at(batch).peak_bytes - 4 * 64 * 65 - unit - 8 * batch) / unit


traced = {}
for k in counts:
    length = n // k
    traced[k] = units([(1 + i * length, 1 + (i + 1) * length) for i in range(k - 1)])
plane(
    Axis("segments", log=True, low=0.9, high=45),
    Axis("units at the peak"),
    curves=[Curve("", [k / 10 for k in range(10, 361)],
                  [k / 10 + 10 * n / k + 2 for k in range(10, 361)])],
    spots=[Spot(f"{traced[k]:.0f}", k, traced[k], "#d55e00", bold=k == 6) for k in counts],
    title=f"36 layers: {traced[1]:.0f} units kept whole, {traced[6]:.0f} in six segments",
)  # fmt: skip

# %% [markdown]
# Points are traced, the line is the formula, k + n/k + 2.

# %% [markdown] slide="slide"
# ## Better than even
#
# When the backward pass begins, all inputs are held. When it reaches the *first* segment, the others are done and their
# inputs gone. So the first segment may be longer.

# %% [markdown] slide="notes"
# If the first segment may have m layers, the second, beside one more input, may have m − 1, the third m − 2, and so on.
# They add up to about m²/2, so n layers need a height of about √(2n), in place of 2√n.
#
# There is a second trick: keep one layer *between* two segments. Its output serves its own backward pass, and is the
# next segment's input. Both together, on the 36 layers; · is a map held since the forward pass, █ a map of the
# segment that runs again, ░ a gradient, or the loss's own map:

# %%
best = equal.least_peak(batch)
lengths = [last - first for first, last in best]
rest = n + 1 - sum(lengths)  # of 37 layers with the dense one
for held, (first, last) in enumerate(best):
    length = last - max(first, 1)  # of the dense layer no map is held while Tanhs run again
    bar = "·" * held + "█" * length + "░░"
    print(f"{bar} = {held + length + 2}: layers {first} to {last - 1} again")
print(f"{'·' * rest}░░░ = {rest + 3}: at the turn, where the loss adds three units")
print(f"traced: {units(best):.0f} units at the peak, where even segments had {traced[6]:.0f}")

# %% [markdown] slide="subslide"
# What if every layer is a segment? Then every layer's input is kept. It is the output of the Tanh before, which the
# plain network keeps too. Nothing is saved.

# %% [markdown] slide="notes"
# And if each segment is itself cut into segments, and those again? Then a layer runs more than twice. Five ways for a
# hundred equal layers:


# %% folded=true
def halves(first, last):
    """The first half of a run of layers as a segment, and the same within both halves."""
    if last - first < 2:
        return []
    middle = (first + last) // 2
    return [(first, middle), *halves(first, middle), *halves(middle, last)]


hundred, rows = equal_layers(100), {}
for what, segments in {
    "all kept": (),
    "every layer a segment": [(i, i + 1) for i in range(1, 100)],
    "10 even segments": [(1 + 10 * i, 11 + 10 * i) for i in range(9)],
    "best cuts": hundred.least_peak(batch),
    "halves within halves": halves(1, 101),
}.items():
    again = int(hundred.step(segments).at(batch).tape.recomputed.sum())
    peak = round(units(segments, hundred))
    rows[what] = {"units at the peak": peak, "extra layer runs": again}
longer = {k: units(halves(1, k + 1), equal_layers(k)) for k in (25, 50, 200)}
told = ", ".join(f"{k} layers {height:.0f}" for k, height in longer.items())
print(f"halves within halves, units at the peak: {told}")
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# *Halves within halves* holds least and pays most. It grows like log n: twice as many layers, one unit more. (Griewank,
# 1992; *Revolve*, by Griewank and Walther, 2000, makes provably optimal schedules.) With the best cuts no layer runs
# more than twice.

# %% [markdown] slide="slide"
# ## Trace: ResNet-50
#
# Its 23 parts are the layers of the stem, 16 residual blocks and the head; we cut between blocks, not inside. Below it
# is in four even segments, over predicted time.

# %% [markdown] slide="notes"
# The hills of the backward pass are the segments, each but the last computed again. Your guess was for the best cuts,
# not for these four. Would you change it?

# %%
resnet = chain_of("ResNet-50")
plain, four = resnet.step().at(64), resnet.step(resnet.evenly(4)).at(64)
plain_time, four_time = (predict_step(ledger, "P100") for ledger in (plain, four))
longer = four_time.total_seconds / plain_time.total_seconds - 1
skyline(four, before=plain, before_name="all kept", time=four_time, before_time=plain_time,
        title=f"ResNet-50 in four even segments: {format_bytes(four.peak_bytes)} in place of "
        f"{format_bytes(plain.peak_bytes)}, for {longer:.0%} more time")  # fmt: skip

# %% [markdown] slide="subslide"
# How many even segments are best? And where would they be, if they need not be even?

# %% [markdown] slide="notes"
# `least_peak` looks for them by dynamic programming over what each part keeps. With blocks it may miss the lowest
# peak, so *best cuts* below are the best found.

# %%
tried = (2, 3, 4, 6, 8, 12, 16, 19, 23)
peaks = {k: resnet.step(resnet.evenly(k)).at(64).peak_bytes for k in tried}
fewest = min(peaks, key=peaks.get)
even, lowest = (resnet.step(s).at(64) for s in (resnet.evenly(fewest), resnet.least_peak(64)))
lowest_time = predict_step(lowest, "P100")

# %% folded=true
parts = len(resnet.names)
root = min(range(1, parts + 1), key=lambda k: k + parts / k)
weights = 3 * 4 * 25_557_032
formula = weights + (plain.peak_bytes - weights) * (root + parts / root) / parts
reveal(
    guess,
    {"all kept": plain.peak_bytes / GIB, f"{fewest} even segments": even.peak_bytes / GIB,
     "best cuts": lowest.peak_bytes / GIB},
    against="best cuts",
    thoughts=[
        (plain.peak_bytes / 2 / GIB, "Half: segments keep much less than half of the maps."),
        (even.peak_bytes / GIB, "That is the best of even segments. The maps are not even."),
        (formula / GIB, f"That is k + n/k for {parts} equal parts. These are not equal."),
        (weights / GIB, "Those are parameters, gradients and momentum. While a "
         "segment is in work, its own maps are there too."),
    ],
)  # fmt: skip

# %% slide="subslide" folded=true
zigzag = [resnet.step(resnet.evenly(k)).at(64).peak_bytes / GIB for k in range(1, parts + 1)]
ups = sum(after > before for before, after in itertools.pairwise(zigzag))
plane(
    Axis("even segments", low=0, high=parts + 2),
    Axis("GiB at the peak", low=0),
    curves=[Curve("traced", list(range(1, parts + 1)), zigzag)],
    spots=[Spot(f"lowest: {fewest}", fewest, min(zigzag), bold=True)],
    title=f"ResNet-50: adding a segment raises the peak in {ups} of {parts - 1} cases",
)

# %% [markdown] slide="notes"
# So it also matters *where* the cuts fall. Below are those that `least_peak` found: `conv1` to `pool1` are the stem,
# names such as `conv2_1` are blocks, | separates segments, missing parts are kept.

# %% slide="subslide" folded=true
least = resnet.least_peak(64)
named = [" ".join(resnet.names[first:last]) for first, last in least]
print(" | ".join(named[:8]), " | ".join(named[8:]), sep=" |\n")
stem = resnet.names.index("pool1") + 1
alone = [(i, i + 1) for i in range(stem, parts)]
for what, cuts in {
    "every part a segment": resnet.evenly(parts),
    "the same, the stem in one": [(0, stem), *alone[:-1]],
    "best cuts": least,
    "the same, the stem in its parts": [(i, i + 1) for i in range(stem)]
    + [cut for cut in least if cut[0] >= stem],
    "best cuts, conv2_2 and conv2_3 in one": [
        *least[:2], (least[2][0], least[3][1]), *least[4:]
    ],
}.items():
    print(f"{what}: {format_bytes(resnet.step(cuts).at(64).peak_bytes)}")
inside = plain.by_layer().set_index("layer")["saved feature maps"] / MIB
stem_map = 4 * 64 * 64 * 112**2 / MIB  # float32, 64 images, 64 maps of 112 x 112
print(f"what enters bn1, relu1 and pool1: 3 x {stem_map:.0f} = {3 * stem_map:.0f} MiB")
block = "conv2_2"
print(f"kept inside {block}: {inside[inside.index.str.startswith(block)].sum():.0f} MiB")

# %% [markdown] slide="notes"
# Why the stem in one piece? Cut inside it, and what enters `bn1`, `relu1` and `pool1` has to stay too.
#
# Why so many more than √23 ≈ 5? The square root assumes that each layer inside a segment is as large as what enters it.
# But `conv2_2` keeps 588 MiB inside, and its input takes 196. So one more input costs little. Running two early blocks
# as one segment costs much: 2.11 GiB instead of 1.77. Leave out any segment, or make any two neighbours one, and the
# peak rises.

# %% [markdown] slide="slide"
# ## What runs twice, and what it costs
#
# A checkpointed segment runs forward without keeping its maps.

# %% [markdown] slide="notes"
# When the backward pass asks for the first of them, the segment runs again from its input, with the random numbers of
# the first time. It stops as soon as the last map that is needed exists. Below, a segment of a Tanh and a dense layer.
# Only the Tanh runs *again*: the dense layer's backward pass needs its input, not its output. (Two maps are 16,384
# bytes; the loss is 4.)

# %%
with torch.device("meta"):
    one, two, three = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
    middle = nn.Sequential(nn.Tanh(), two)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.middle, self.three = one, middle, three

    def forward(self, x):
        return self.three(checkpoint(self.middle, self.one(x), use_reentrant=False))

# %% folded=true
ledger = training_step(Small(), (64,), 10, "sgd", target="cpu").at(32)
timeline = ledger.timeline().assign(again=ledger.tape.recomputed)
shown = timeline[timeline["layer"].str.startswith("middle")]
sizes = shown[["feature maps"]].map("{:,}".format)
shown[["event", "phase", "layer", "again"]].join(sizes)

# %% [markdown] slide="subslide"
# In a network of your own the call is the one in `forward` above. For an `nn.Sequential` there is
# `checkpoint_sequential(net, 4, x, use_reentrant=False)`: four segments; what is left over goes to the last, which
# keeps its maps.

# %% [markdown] slide="notes"
# The older way, `use_reentrant=True`, runs the whole segment again, and gives no gradients to one that begins with the
# images.
#
# *Selective* checkpointing goes by operator. With `create_selective_checkpoint_contexts` you can keep the results of
# products and let what is cheap run again.

# %% [markdown] slide="subslide"
# The backward pass of a convolution computes two products, the forward pass one.

# %% [markdown] slide="notes"
# So a step is about three, and a second forward pass makes it four: a third more. Chen and others (*Training deep nets with sublinear memory cost*, 2016), reported 30 % for a residual
# network of 1,000 layers.

# %%
guess_time = predict(
    "VGG-16, batch 64, on a P100: cut so that its peak is as low as it can be. "
    "How much longer does a step take?",
    unit="%",
)
guess_time

# %% folded=true
vgg = chain_of("VGG-16")
vgg_before = predict_step(vgg.step().at(64), "P100")
vgg_lowest = predict_step(vgg.step(vgg.least_peak(64)).at(64), "P100")
forward = float(vgg_before.by_phase()["forward"])
reveal(
    guess_time,
    {"modelled": 100 * (vgg_lowest.total_seconds / vgg_before.total_seconds - 1)},
    thoughts=[
        (
            100 * forward / vgg_before.total_seconds,
            "That is a whole forward pass. Only a few layers run again.",
        ),
        (33.3, "That is a third: a forward pass of three. Only a few layers run again."),
    ],
)

# %% [markdown] slide="subslide"
# The table is modelled on a P100, at batch 64; *6 even* means six even segments:

# %% folded=true
rows = []
for name in ("VGG-16", "ResNet-50", "GoogLeNet", "AlexNet"):
    chain = {"ResNet-50": resnet, "VGG-16": vgg}.get(name) or chain_of(name)
    before = predict_step(chain.step().at(64), "P100")
    share = before.by_phase()["forward"] / before.total_seconds
    row = {"network": name, "forward pass": f"{100 * share:.0f} % of the step"}
    least = chain.least_peak(64)
    limit = max(0.9 * before.ledger.peak_bytes, chain.step(least).at(64).peak_bytes)
    ways = {
        "6 even": chain.evenly(6),
        "lowest": least,
        "10 % less": chain.cheapest(64, limit),
    }
    for way, cuts in ways.items():
        after = predict_step(chain.step(cuts).at(64), "P100")
        memory = after.ledger.peak_bytes / before.ledger.peak_bytes - 1
        row[f"{way}: memory"] = f"{100 * memory:+.0f} %"
        longer = after.total_seconds / before.total_seconds - 1
        row[f"{way}: time"] = f"{100 * longer:+.1f} %"
    rows.append(row)
pd.DataFrame(rows).set_index("network")

# %% [markdown] slide="notes"
# *Lowest* is the lowest peak that `least_peak` finds, *10 % less* the cheapest cuts that save a tenth of the peak, or
# all that can be saved. ResNet-50's lowest peak costs nearly the third. VGG-16's beats six even segments in memory
# *and* in time. How?

# %% [markdown] slide="slide"
# ## Real layers are not equal
#
# VGG-16 keeps most of its bytes in its first layers. Of these, the first convolution reads only three channels, and
# ReLUs and pools compute little: they are cheap to run again. The one expensive layer that runs again is `conv2_2`.

# %% [markdown] slide="notes"
# From here on at batch 128. Where a segment ends with a convolution, that one does not run again at all: its backward
# pass needs its input alone.

# %% folded=true
vgg_plain = vgg.step().at(128)
cuts = vgg.least_peak(128)
vgg_low = vgg.step(cuts).at(128)
vgg_time, vgg_low_time = (predict_step(ledger, "P100") for ledger in (vgg_plain, vgg_low))
print("segments:", ", ".join(f"{vgg.names[a]} to {vgg.names[b - 1]}" for a, b in cuts))
layer_of = [vgg_low.tape.layer_names[layer] for layer in vgg_low.tape.event_layer]
again = pd.Series(vgg_low_time.seconds * vgg_low.tape.recomputed).groupby(layer_of).sum()
again = again[again > 0].sort_values(ascending=False)
told = ", ".join(f"{name} {1000 * took:.0f}" for name, took in again.items())
print(f"ms that run again: {told};")
print(f"together {1000 * again.sum():.0f}, in a step that took", end=" ")
print(f"{1000 * vgg_time.total_seconds:,.0f} ms with everything kept")
kept = vgg_plain.by_layer().set_index("layer")["saved feature maps"]
kept = kept[kept > 0]
rows = {f"{name}, again" if name in again else name: size / MIB for name, size in kept.items()}
side_by_side(
    dict(itertools.islice(rows.items(), 10)),
    title=f"VGG-16: ten layers keep {kept.head(10).sum() / kept.sum():.0%} of what is kept",
)

# %% slide="subslide"
longer = vgg_low_time.total_seconds / vgg_time.total_seconds - 1
skyline(vgg_low, before=vgg_plain, before_name="all kept", time=vgg_low_time,
        before_time=vgg_time,
        title=f"VGG-16, batch 128, {len(cuts)} short segments: "
        f"{format_bytes(vgg_low.peak_bytes)} in place of "
        f"{format_bytes(vgg_plain.peak_bytes)}, for {longer:.1%} more time")  # fmt: skip

# %% [markdown] slide="subslide"
# There is a floor.

# %% [markdown] slide="notes"
# While a convolution's or a ReLU's backward pass runs, three maps are alive, whatever was dropped elsewhere: a
# convolution needs its *input* and the *gradient of its output*, and (but for the first) makes the *gradient of its
# input*. A ReLU needs its output and the same two gradients. The three are largest at `conv1_2` and `relu1_2`: 64 maps
# of 224 × 224 an image.

# %%
one_map = 4 * 128 * 64 * 224 * 224
everywhere = 4 * (3 * 138_357_544 + 128 * 3 * 224 * 224)
print(
    f"parameters, their gradients, momentum and images: {format_bytes(everywhere)};", end=" "
)
print(f"with 3 × {format_bytes(one_map)}: {format_bytes(3 * one_map + everywhere)}")
print(f"the lowest peak, traced: {format_bytes(vgg_low.peak_bytes)}, at {vgg_low.peak_layer}")

# %% [markdown]
# The best cuts of VGG-16 are at that floor, but for scratch memory.

# %% [markdown] slide="notes"
# No cut gets below it, as the trace counts. Smaller maps do: of a smaller batch, or of 16 bits.

# %% [markdown] slide="slide"
# ## Three traps
#
# The same network, the same data, plain and with a checkpoint. Are the gradients the same? Is everything else?


# %%
def trained(segments, steps=2, **options):
    """Gradients and buffers after steps of a small network with batch norm and dropout."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Dropout(0.5), nn.Flatten(), nn.Linear(288, 10),
    )  # fmt: skip
    run = checkpointed(net, segments, **options)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
    for _ in range(steps):
        run.zero_grad()
        nn.functional.cross_entropy(run(x), y).backward()
    return {**{n: p.grad for n, p in run.named_parameters()}, **dict(run.named_buffers())}


def differing(segments=((0, 4),), steps=2, **options):
    plainly, found = trained([], steps), trained(segments, steps, **options)
    return [name for name, value in plainly.items() if not torch.equal(value, found[name])]


print("with care:                   ", differing() or "nothing differs, to the last bit")
print("preserve_rng_state=False:    ", differing(preserve_rng_state=False))
print("the same after one step:     ", differing(steps=1, preserve_rng_state=False))
print("... from dropout to the end: ", differing([(3, 6)], 1, preserve_rng_state=False))
print("plain torch.utils.checkpoint:", differing(keep_statistics=False))

# %% [markdown] slide="notes"
# - **Dropout** must drop the same values both times. `preserve_rng_state=True`, torch's default, sees to it. Without it
#   gradients are wrong: those of layers before the dropout, and of weights after it in the same segment, whose input is
#   made again with another mask. Running again also uses up random numbers, so in the second step every mask differs,
#   and every gradient.
# - **Batch norm** updates its running statistics in every forward pass, so twice a step. Gradients do not see it;
#   evaluation does. Our `checkpointed` holds them still the second time; torch does not.
# - **In place.** A segment that begins with a layer such as `ReLU(inplace=True)` overwrites the input it is to start
#   from. PyTorch counts the versions of a tensor, and refuses:

# %%
part = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 8))
x = torch.ones(4, 8, requires_grad=True)
try:
    checkpoint(part, 1 * x, use_reentrant=False).sum().backward()
except RuntimeError as error:
    print(str(error).split(":")[0])

# %% tags=["change"]
# change the segment: which care does (0, 1), the convolution, need? And (1, 2), and (3, 4)?
print(differing([(0, 1)], preserve_rng_state=False, keep_statistics=False))

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# The convolution needs neither: nothing differs. (1, 2) is the batch norm: its statistics differ, and no gradient. (3,
# 4) is the dropout: every gradient differs.
#
# </details>

# %% [markdown] slide="slide"
# ## Measure
#
# Twelve convolutions with batch norm, batch 64, here: predicted and measured peak.


# %% tags=["nbval-ignore-output"] folded=true
def deep():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(11):
        layers += [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


target = "cuda" if torch.cuda.is_available() else "cpu"
rows = {}
for what, build in {
    "all kept": deep,
    "6 segments": lambda: checkpointed(net := deep(), evenly(net, 6)),
}.items():
    peak = training_step(build(), (3, 16, 16), 10, target=target).at(64).peak_bytes
    rows[f"{what}, trace"] = peak / MIB
    torch.backends.mkldnn.enabled = False  # its convolutions need scratch memory
    measured = measure_step(build(), (3, 16, 16), 10, 64)
    torch.backends.mkldnn.enabled = True
    rows[f"{what}, measured"] = measured.peak_bytes / MIB
less = rows["6 segments, measured"] / rows["all kept, measured"] - 1
side_by_side(
    rows,
    title=f"Measured: {less:+.0%} memory with six segments",
)

# %% [markdown]
# On a CPU this is measured without oneDNN, whose convolutions take scratch memory that the trace does not count.

# %% [markdown] slide="subslide"
# And the time? What runs again should cost about its share of the convolutions. Both networks take turns, on one thread
# of this CPU. The medians tell the order of size, no more.

# %% tags=["nbval-ignore-output"] folded=true
pictures, labels = torch.randn(64, 3, 16, 16), torch.randint(10, (64,))
whole, cut = deep(), checkpointed(net := deep(), evenly(net, 6))
tape = training_step(cut, (3, 16, 16), 10, target="cpu").at(64).tape
again = tape.recomputed[np.array(tape.event_ops) == "convolution"]  # of all runs forward
share = again.sum() / (~again).sum()


def processor_seconds(network):
    """Of the forward pass, and of both passes."""
    start = time.process_time()
    loss = nn.functional.cross_entropy(network(pictures), labels)
    middle = time.process_time()
    loss.backward()
    return middle - start, time.process_time() - start


threads = torch.get_num_threads()
torch.set_num_threads(1)
turns = [(*processor_seconds(whole), *processor_seconds(cut)) for _ in range(25)]
torch.set_num_threads(threads)
forward, all_kept, _, six = np.median(turns, axis=0)
print(f"convolutions that run again: {again.sum()} of {(~again).sum()}")
print(f"all kept: {1000 * all_kept:.0f} ms, of which forward {1000 * forward:.0f}")
print(f"by that share of a forward pass: {100 * share * forward / all_kept:+.0f} %")
print(f"6 segments, measured: {100 * (six / all_kept - 1):+.0f} %")

# %% [markdown] slide="slide"
# ## Offload or recompute?
#
# Lesson 09 moved the maps to the host. Here are both ways for ResNet-50, batch 64, modelled on a P100.

# %% [markdown] slide="notes"
# The orange line moves every 6th, 4th, 3rd and 2nd map, with eight in flight; the blue
# one recomputes.


# %% folded=true
def extra_time(step):
    return step.total_seconds / plain_time.total_seconds - 1


limits = [share * plain.peak_bytes for share in (0.9, 0.75, 0.6, 0.5, 0.42)]
again = [(plain, plain_time)]
for limit in limits:
    ledger = resnet.step(resnet.cheapest(64, limit)).at(64)
    again.append((ledger, predict_step(ledger, "P100")))
again.append((lowest, lowest_time))
again.sort(key=lambda pair: pair[0].peak_bytes)
curve = Curve("", [ledger.peak_bytes / GIB for ledger, _ in again],
              [step.total_seconds * 1000 for _, step in again], colour="#0072b2")  # fmt: skip
halved = predict_step(resnet.step(resnet.cheapest(64, 0.5 * plain.peak_bytes)).at(64), "P100")
policies = ("all", "conv", "windowed")
moved = {policy: offload.simulate(plain, "P100", policy) for policy in policies}
every = offload.simulate(plain, "P100", "windowed", window=8)


def parted(k, rate=every.bytes_per_s):
    """The schedule in which each k-th of the maps is moved, at so many bytes a second."""
    chosen_maps = np.zeros_like(every.moved)
    chosen_maps[np.flatnonzero(every.moved)[::k]] = True
    latency = hardware.device("P100").launch_seconds
    return offload.run(every.work, chosen_maps, every.fast, rate, latency, every.window)


both = offload.simulate(four, "P100", "windowed")
spots = [Spot("all kept", plain.peak_bytes / GIB, plain_time.total_seconds * 1000, bold=True)]
labels = {"all": "everything", "conv": "what convolutions read", "windowed": "5 in flight"}
for policy, run in moved.items():
    at = run.peak_bytes / GIB, run.total_seconds * 1000
    spots.append(Spot(f"offload {labels[policy]}", *at, colour="#d55e00"))
for ledger, step in again[:-1]:
    name = "recompute" if ledger is again[0][0] else ""
    at = ledger.peak_bytes / GIB, step.total_seconds * 1000
    spots.append(Spot(name, *at, colour="#0072b2", bold=True))
spots += [Spot("both", both.peak_bytes / GIB, both.total_seconds * 1000, colour="#009e73")]
few_x, few_y = [plain.peak_bytes / GIB], [plain_time.total_seconds * 1000]
for k, label in {6: "", 4: "", 3: "", 2: "offload every 2nd map"}.items():
    few_x.append(parted(k).peak_bytes / GIB)
    few_y.append(parted(k).total_seconds * 1000)
    spots.append(Spot(label, few_x[-1], few_y[-1], colour="#d55e00"))
few = Curve("", few_x, few_y, colour="#d55e00")
plane(
    Axis("GiB at the peak", high=6.2),
    Axis("milliseconds a step, modelled", low=0),
    curves=[curve, few],
    spots=spots,
    title=f"ResNet-50: half the memory for {extra_time(halved):.0%} more time by recomputing",
)

# %% slide="skip" folded=true
for what, share in {"as it is": 1, "half as fast": 0.5, "four times as fast": 4}.items():
    fourth = parted(4, share * every.bytes_per_s)
    less, longer = 100 * (fourth.peak_bytes / plain.peak_bytes - 1), 100 * extra_time(fourth)
    print(f"every 4th map, the link {what}: {less:+.0f} % memory, {longer:+.1f} % time")
print(f"4 segments: {four.peak_bytes:,} bytes; and offload: {both.peak_bytes:,}")

# %% [markdown] slide="notes"
# To save a fifth of the memory costs a few per cent of time either way. But offload depends on the link: at half the
# rate it costs 46 %. For nearly half of the memory recomputing is far cheaper.
#
# Added to four even segments (*both*), offload gains nothing: at the peak only one map dates from the forward pass, the
# 196 MiB that enter the segment at work. It is in use, and cannot be moved. **Now set 19 segments, the best
# even number, and *all*: where do peak and time go?**

# %% tags=["change"]
segments, policy = 4, "windowed"  # change these: 2 to 23 segments; "all", "conv", "windowed"
cut = resnet.step(resnet.evenly(segments)).at(64)
both = offload.simulate(cut, "P100", policy)
for name, run in ((f"{segments} segments", predict_step(cut, "P100")), ("and offload", both)):
    peak = run.ledger.peak_bytes if run is not both else both.peak_bytes
    print(f"{name:14}{format_bytes(peak)}, {1000 * run.total_seconds:.0f} ms")
print(f"lowest by recomputing alone: {format_bytes(lowest.peak_bytes)}")

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# 1.72 GiB in 661 ms. That is below the lowest peak of recomputing alone, which takes 414 ms. (The best cuts and *conv*
# are as low, in 596 ms.)
#
# </details>

# %% [markdown] slide="notes"
# ### Another card
#
# For each network and card, at batch 192, take the fastest of lesson 09's three schedules and note its peak. Which way
# gets there with less extra time? (Offload may also keep single maps on the card, within that peak.)

# %% slide="subslide" folded=true
def chosen(start, device, limit):
    """The schedule when maps stay one by one, the longest waited for first, within `limit`."""
    best, moved, tried = start, start.moved.copy(), set()
    while True:
        waits = {}
        for stall in best.stalls:
            tensor = best.copies[stall.copy].tensor
            waits[tensor] = waits.get(tensor, 0.0) + stall.seconds
        left = [tensor for tensor in waits if moved[tensor] and tensor not in tried]
        if not left:
            return best
        worst = max(left, key=waits.get)
        tried.add(worst)
        moved[worst] = False
        rate, latency = start.bytes_per_s, device.launch_seconds
        found = offload.run(start.work, moved.copy(), start.fast, rate, latency, start.window)
        if found.peak_bytes <= limit and found.total_seconds < best.total_seconds:
            best = found
        else:
            moved[worst] = True


rows, ran = [], {"T4": [], "H100 SXM": []}
for name in ("VGG-16", "ResNet-50"):
    for numbers in ("float32", "float16"):
        chain = chain_of(name, numbers)
        ledger, row = chain.step().at(192), [f"{name}, {numbers}"]
        for device in map(hardware.device, ran):
            ways = [
                offload.simulate(ledger, device, policy, window=6, precision=numbers)
                for policy in policies
            ]
            fastest = min(ways, key=lambda way: way.slowdown)
            ran[device.name].append(ways[1])  # what convolutions read
            one_by_one = chosen(ways[-1], device, fastest.peak_bytes)
            cuts = chain.cheapest(192, fastest.peak_bytes, device)
            recomputed = predict_step(chain.step(cuts).at(192), device).recomputed_seconds
            row.append(f"{100 * (fastest.peak_bytes / ledger.peak_bytes - 1):+.0f} %")
            row.append(f"{100 * min(fastest.slowdown, one_by_one.slowdown):+.1f} %")
            row.append(f"{100 * recomputed / fastest.compute_seconds:+.1f} %")
        rows.append(row)
said = ("peak", "offload: time", "recompute: time")
columns = [(card, what) for card in ran for what in said]
names, values = [row[0] for row in rows], [row[1:] for row in rows]
pd.DataFrame(values, names, pd.MultiIndex.from_tuples(columns, names=["batch 192", ""]))

# %% slide="skip" folded=true
took = np.array([[way.compute_seconds for way in ways] for ways in ran.values()])
cards, bits = took[0] / took[1], took[:, ::2] / took[:, 1::2]  # columns: both numbers, twice
link = ran["H100 SXM"][0].bytes_per_s / ran["T4"][0].bytes_per_s
print(f"T4 to H100: link {link:.0f} times as fast, kernels", end=" ")
print(f"{cards.min():.0f} to {cards.max():.0f} times")
print("float32 to float16: maps half as large, kernels", end=" ")
print(f"{bits.min():.1f} to {bits.max():.1f} times as fast")
costs = {}
for name, row in {"VGG-16": 0, "ResNet-50": 2}.items():
    old, new = ran["T4"][row], ran["H100 SXM"][row + 1]
    rate = old.bytes_per_s * old.compute_seconds / new.compute_seconds / 2  # half the bytes
    latency = hardware.device("H100 SXM").launch_seconds
    level = offload.run(new.work, new.moved, new.fast, rate, latency, new.window)
    costs[name] = [f"{100 * way.slowdown:+.1f} %" for way in (old, new, level)]
ways = ["T4, float32", "H100, float16", "the same, a link that gains as much"]
pd.DataFrame(costs, pd.Index(ways, name="moving what convolutions read"))

# %% [markdown] slide="notes"
# On the T4 in float32 the two cost about the same. On the H100, and in 16 bits, recomputing is far cheaper, as far as
# these searches find. Why? What runs again speeds up with the rest of the step. Where kernels speed up more than copies
# do, less of the copying hides behind them. With a link that gains as much, most of the difference is gone.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what does one extra forward pass buy?**

# %% [markdown] slide="notes"
# Before each move, say whether the peak will fall, and at what cost in time.

# %% tags=["nbval-ignore-output"]
recompute_explorer()

# %% [markdown] slide="notes"
# Try three things. Which of the numbers of even segments on offer gives GoogLeNet the lowest peak? Then take *lowest
# peak*. Give VGG-16 to *least time that fits* at batch 256 on a P100. Why does the 52 M dense net gain nothing?

# %% [markdown] slide="skip"
# <details><summary>What to look for</summary>
#
# GoogLeNet at batch 64: 2.20 GiB all kept, 950.71 MiB in 8 even segments, 721.06 MiB by *lowest peak*. For
# VGG-16 at 256 none of the cuts tried surely fits, so the lowest peak is taken: 10.89 GiB in 4.1 s, tight
# for the 3.35 GiB of scratch memory. At the dense net's peak no feature map is alive but the loss.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A segment keeps its input and computes the rest again.
# 2. One extra forward pass makes a step about a third longer, and takes two thirds off ResNet-50's peak. VGG-16's
#    lowest peak costs 5 % (modelled).
# 3. Results stay the same, if random numbers are drawn as before and statistics left alone.

# %% [markdown] slide="notes"
# The same to the last bit, where kernels are deterministic: on a GPU two plain runs may differ already.
#
# Of even cuts, about √n segments hold the fewest units of n equal layers; uneven cuts hold fewer.
#
# Now the exercise: [exercises/10_recompute.ipynb](../exercises/10_recompute.ipynb). {questions}. Save,
# then `course check 10` gives your marks.
