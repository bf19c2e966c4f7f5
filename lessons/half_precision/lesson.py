# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 08 · Half precision
#
# **The question:** a 16-bit number takes half the bytes of a 32-bit one. Why is it not half the memory?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. read a 16-bit number bit by bit, and tell range from rounding;
# 2. count a parameter's bytes in any recipe of *mixed precision*, with or without master weights;
# 3. say what shrinks under *autocast*, what does not, and for which networks it pays;
# 4. write the training loop with a loss scale, and say what each line is for;
# 5. tell which devices gain time, and how much of a predicted gain was ever measured.
#
# About 60 minutes, and {minutes} for the exercise. It builds on lesson 03: roles, the peak, pool indices. No GPU is
# needed.

# %% slide="skip" folded=true
import textwrap

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, plane, side_by_side, skyline
from course_utils.machine import hardware
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share, in_gb
from lessons.claims import judge
from lessons.half_precision.bits import bit_fields
from lessons.half_precision.claims import TITAN_X_2016, halving
from lessons.half_precision.explorer import half_explorer
from lessons.half_precision.precision import (
    bits,
    fate,
    formats,
    gradients,
    powers,
    scales,
    spacing,
    speed_up,
)
from lessons.half_precision.ranges import magnitudes
from lessons.shared import digits
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant
from lessons.shared.published import HALVES

# %% [markdown] slide="slide"
# ## Predict
#
# Lesson 03 found 10.31 GiB at the peak of VGG-16's training step, batch 128, momentum, in float32.

# %%
guess = predict(
    "Let PyTorch use float16 wherever it thinks it may. "
    "How much memory is in use at the worst moment now?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## What a 16-bit number is
#
# A float of 16 bits is in *half precision*, a *half* for short. Like every float it is a sign, an *exponent* and a
# *fraction*.

# %% [markdown] slide="notes"
# The exponent says between which two powers of two the number lies; the fraction, how far along the way it is.

# %%
bit_fields(
    {name: bits(0.1, name) for name in ("float32", "float16", "bfloat16")},
    title="0.1 in three formats: 16 bits can be split in two ways",
)

# %% [markdown] slide="notes"
# Read float16. Its exponent is 01011, eleven. From it 15 is taken off, so that small numbers have an exponent too: 2⁻⁴,
# and 0.1 lies between 1/16 and 1/8. Its fraction is 614 of 1,024 steps along that way. In binary every number but 0
# begins with a 1, so the 1 need not be stored: the *hidden one* makes 11 digits out of 10 bits. Only when the exponent
# is all zeros is that digit a 0; such *subnormal* numbers reach further down, with fewer digits.

# %% [markdown] slide="subslide"
# Two formats split 16 bits in two ways.

# %%
columns = ["exponent bits", "fraction bits", "largest", "smallest normal", "smallest"]
formats()[[*columns, "spacing at 1", "digits"]]

# %% [markdown] slide="notes"
# - **Range** is the exponent: float16 ends at 65,504 above and at 6 · 10⁻⁸ below, losing digits one by one
#   under its smallest *normal* number. bfloat16 has all of float32's range.
# - **Rounding** is the fraction: float16 has 3 decimal digits, bfloat16 has 2.

# %% [markdown]
# float16 fails by range, bfloat16 by rounding.

# %% [markdown] slide="notes"
# Each failure has its own remedy.

# %% [markdown] slide="slide"
# ## By hand: what a parameter costs
#
# *Mixed precision* computes in halves and updates a float32 weight, the *master weight*. There are two recipes, and
# they differ in the gradient. Bytes for every parameter:
#
# | | float32 | the paper of 2018 | PyTorch's autocast |
# |---|---:|---:|---:|
# | master weight | 4 | 4 | 4 |
# | half copy that the layers compute with | – | 2 | 2, for a while |
# | gradient | 4 | 2 | 4 |
# | momentum | 4 | 4 | 4 |
# | **together** | **12** | **12** | **14 at most** |

# %% [markdown] slide="notes"
# Neither saves a byte for parameters. What is saved must come from the maps.

# %% [markdown] slide="notes"
# The paper is Micikevicius et al., *Mixed Precision Training*, ICLR 2018: weights, maps and gradients in float16, a
# float32 master copy for the update. Autocast keeps `weight` and `weight.grad` in float32, so that every optimizer
# works unchanged, and makes half copies as layers need them. A copy goes when its layer's backward pass has used it.

# %% [markdown] slide="slide"
# ## By hand: VGG-16 under autocast
#
# Add up what is alive when `fc6`, the layer with the most weights, has its gradient: that is where parameters,
# gradients and maps pile up. Halves take 2 bytes, pool indices 8, everything else 4.

# %%
P, batch = 138_357_544, 128
fc6, fc7, fc8 = 25_088 * 4_096, 4_096 * 4_096, 4_096 * 1_000
terms = {
    "weights and momentum": 2 * 4 * P,
    "gradients of fc6, fc7, fc8": 4 * (fc6 + fc7 + fc8),
    "fc6's again, as the half it was made in": 2 * fc6,
    "half copies of the convolutions' weights": 2 * 14_710_464,
    "images, float32 and a half copy": (4 + 2) * 3 * 224 * 224 * batch,
    "maps of convolutions and pools": 2 * (13_547_520 + 1_530_368) * batch,
    "pool indices, int64": 8 * 1_530_368 * batch,
}
by_hand = sum(terms.values())
for name, size in {**terms, "together": by_hand}.items():
    print(f"{name:42}{size / MIB:9,.1f} MiB")

# %% [markdown] slide="slide"
# ## What autocast does

# %% [markdown] slide="notes"
# Put `with torch.autocast("cuda", dtype=torch.float16):` around the forward pass, and PyTorch decides operator by
# operator:
#
# - convolutions and matrix products run in half, on half copies of their inputs and weights;
# - the loss, softmax, layer and group norm, and sums run in float32; batch norm takes and keeps halves, and only its
#   statistics are float32;
# - the weights themselves stay float32; each copy is made once and kept until the forward pass ends, or longer
#   where the backward pass needs it.
#
# The trace shows it on a dense layer of 1,000 × 1,000: each `_to_copy` makes a half copy of a float32 tensor, or a
# float32 copy of a half one. Half copies of weights are in the role `other`.

# %%
with torch.device("meta"):
    layer = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
step = training_step(layer, (1000,), 10, precision="float16", target="cpu")
timeline = step.at(64).timeline()
sizes = ["weight gradients", "gradient maps", "other", "total"]
first = timeline[timeline["layer"] == "0"]
first[["event", "phase"]].join(first[sizes].map("{:,}".format))

# %% [markdown] slide="slide"
# ## Trace: VGG-16
#
# The outline is float32, the figure inside it is the same step under autocast.

# %%
vgg = halving("VGG-16", 128)  # the step twice, traced in float32 and under float16 autocast
table = vgg.by_role()
full = vgg.full.peak_bytes
fixed = table.loc[["parameters", "optimizer state", "weight gradients"], "float32"].sum()

# %% folded=true
reveal(
    guess,
    {"by hand": by_hand / GIB, "trace": vgg.half.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (full / 2 / GIB, "Half of everything: but parameters and momentum stay as they are."),
        (
            (fixed + (full - fixed) / 2) / GIB,
            "You kept parameters, gradients and momentum, and halved the rest. Pool indices "
            "stay too, and one layer's gradient is there in half as well as in float32.",
        ),
        (full / GIB, "That is float32's peak. Most of it is maps, and maps do become halves."),
    ],
)

# %% slide="subslide"
peaks = [format_bytes(ledger.peak_bytes) for ledger in (vgg.full, vgg.half)]
skyline(
    vgg.half,
    before=vgg.full,
    before_name="float32",
    title=f"VGG-16 under autocast: {peaks[1]} in place "
    f"of {peaks[0]}, −{vgg.saved:.0%}, not −50%",
)

# %% [markdown]
# The thin band on top, `other`, is the half copies of weights. What the sum by hand lacks is mostly cuBLAS's
# workspace.

# %% [markdown] slide="slide"
# ## What shrank, and what did not
#
# Each column is that step's own peak, in MiB. The two peaks are two moments: float32's comes later in the backward
# pass, under autocast the gradients of `fc6` outweigh it.

# %%
for name, at in (("float32", vgg.full), ("half", vgg.half)):
    print(f"{name}: the peak is in the {at.peak_phase} pass of {at.peak_layer}")
(table[(table != 0).any(axis=1)] / 2**20).map("{:,.0f}".format)

# %% [markdown] slide="notes"
# - *Feature maps* halve, but for a few that float32's later moment has already freed.
# - *Gradient maps* would halve too. Here they all but vanish, because at `fc6` there are only small ones yet.
# - *Parameters* and *optimizer state* stay: updates happen in float32.
# - *Weight gradients* grow for a moment: a layer's gradient is made in half and copied to float32; both are alive
#   while the copy is made. At the peak that layer is `fc6`, the largest.
# - *Pool indices* stay: whole numbers of 64 bits. There are more of them, because at `fc6` all pools still need theirs.
# - *Input* stays float32, as the data loader made it.

# %%
stays = ["parameters", "optimizer state", "weight gradients", "pool indices", "input"]
share = table.loc[stays, "half"].sum() / vgg.half.peak_bytes
print(f"What never halves is {100 * share:.0f} % of the peak under autocast.")

# %% [markdown] slide="slide"
# ## And a dense network?
#
# The dense net has hardly any maps. Before you run the cell: does its peak fall, stay, or rise?

# %%
dense = halving("52 M dense net", 128)
skyline(
    dense.half,
    before=dense.full,
    before_name="float32",
    title=f"The dense net under autocast: {in_gb(dense.full.peak_bytes) * 1000:.0f} MB become "
    f"{in_gb(dense.half.peak_bytes) * 1000:.0f} MB, {-dense.saved:+.0%}",
)

# %% [markdown] slide="notes"
# 14 bytes in place of 12 would be 17 % more, and the trace says less. It would take 14 if all half copies were alive at
# the peak. But PyTorch frees a copy as soon as its layer's backward pass has used it, and `fc1` needs none there, so
# most are gone by then. What comes on top of float32 is the half gradient of `fc1`, beside the float32 gradient made
# from it.

# %% slide="notes"
added = dense.by_role().loc["weight gradients", "change"]
print(f"weight gradients at the peak: {added / 1e6:+.1f} MB")
print(f"a half gradient of fc1:       {2 * 9000 * 4000 / 1e6:+.1f} MB")
in_forward = max(dense.half.total[dense.half.phases == "forward"]) - max(
    dense.full.total[dense.full.phases == "forward"]
)
print(f"and in the forward pass, where the copies are alive: {in_forward / 1e6:+.1f} MB")

# %% [markdown] slide="slide"
# ## Measure
#
# A real step, here: a small convolutional network, batch 64, in float32 and under autocast with *bfloat16*, the
# other format of 16 bits.

# %% tags=["nbval-ignore-output"] folded=true
target = "cuda" if torch.cuda.is_available() else "cpu"
peaks = {}
for precision in ("float32", "bfloat16"):
    net, shape = networks.small_cnn(), (3, 32, 32)
    traced = training_step(net, shape, 10, precision=precision, target=target).at(64)
    measured = measure_step(net, shape, 10, 64, precision=precision)
    peaks[f"{precision}, trace"] = traced.peak_bytes / MIB
    peaks[f"{precision}, measured"] = measured.peak_bytes / MIB
ways = ("trace", "measured")
change = {way: peaks[f"bfloat16, {way}"] / peaks[f"float32, {way}"] - 1 for way in ways}
side_by_side(
    peaks,
    title=f"Tensors alone would be {change['trace']:+.0%}; the "
    f"measured peak changes by {change['measured']:+.0%}",
)

# %% tags=["nbval-ignore-output"]
inside = [
    f"{peaks[f'{precision}, measured'] - peaks[f'{precision}, trace']:.1f} MiB in {precision}"
    for precision in ("float32", "bfloat16")
]
print("Measured above the trace:", ", ".join(inside))

# %% [markdown]
# That is scratch memory which kernels allocate and free inside.

# %% [markdown] slide="notes"
# Every processor has its own kernels: one that cannot compute in a format converts to float32, in buffers of its own.
# The digits below show float16 too.

# %% [markdown] slide="skip"
# And on a GPU? The next cell asks the one in this machine, or else a recording of one, or else says that there is
# neither.

# %% slide="skip" tags=["nbval-ignore-output"]
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = []
for name in ("VGG-16", "52 M dense net"):
    for precision in ("float32", "float16"):
        rows += beside_trace(gpu, name, precision, batches=(128,))
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="slide"
# ## Range, on real gradients
#
# A small network learns the digits in float32. Then we look at the gradients of one batch: how large are they? Hollow
# bars are numbers that float16 rounds to 0.

# %% [markdown] slide="notes"
# The smallest number above 0 in float16 is 2⁻²⁴, and what is at most half of it becomes 0.

# %%
images, labels, _, _ = digits.images(side=8)
torch.manual_seed(0)
net = networks.small_cnn(channels=1, size=8)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(20):
    for rows in torch.randperm(len(images))[:1280].view(-1, 64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
        optimizer.step()
exact = gradients(net, images[:64], labels[:64])

# %% tags=["nbval-ignore-output"]
lost = fate(exact.all_maps, "float16").lost
magnitudes(
    {"gradient maps": powers(exact.all_maps), "weight gradients": powers(exact.all_weights)},
    title=f"{lost:.0%} of a trained network's gradient maps "
    "are too small for float16, and none for bfloat16",
)

# %% [markdown] slide="notes"
# Weight gradients are sums over images and positions, so they are larger. In PyTorch the gradient maps suffer first. Is
# it bad that small ones become 0? Not while large ones outweigh them. It is when all are small: near the end of
# training, in deep networks, in a loss term of small weight.

# %% [markdown] slide="slide"
# ## Loss scaling
#
# Take the 64 training images that the network knows best. Their gradients are tiny, and float16 loses most of them.

# %% [markdown] slide="notes"
# The remedy: multiply the *loss* by a scale, run the backward pass, divide the weight gradients by it. Every gradient
# is proportional to the loss, so nothing else changes.

# %% tags=["nbval-ignore-output"] folded=true
with torch.no_grad():
    known = nn.functional.cross_entropy(net(images), labels, reduction="none").argsort()[:64]
exact = gradients(net, images[known], labels[known])


def error(weights):
    off = torch.linalg.norm(weights - exact.all_weights)
    return float(off / torch.linalg.norm(exact.all_weights))


rows = []
for scale in (1, 2**4, 2**8, 2**12, 2**16):
    half = gradients(net, images[known], labels[known], "float16", scale)
    zeros = fate(exact.maps["conv1"], "float16", scale).lost
    wrong = error(half.all_weights / scale)
    rows.append((f"{scale:,}", f"{100 * zeros:.1f} %", f"{100 * wrong:.2f} %"))
half = gradients(net, images[known], labels[known], "bfloat16")
zeros = fate(exact.maps["conv1"], "bfloat16").lost
wrong = error(half.all_weights)
rows.append(("bfloat16, no scale", f"{100 * zeros:.1f} %", f"{100 * wrong:.2f} %"))
columns = ["scale", "conv1's map: becomes 0", "weight gradients: error"]
pd.DataFrame(rows, columns=columns).set_index("scale")

# %% [markdown] slide="notes"
# Without a scale a large part of the gradient is lost; with one, what is left is the rounding of float16. bfloat16
# needs no scale and rounds more coarsely. Why powers of two? They move the exponent and touch no digit:

# %% slide="notes"
# drawn as whole numbers, which are the same on every processor
whole = torch.randint(2**24, (100_000,), generator=torch.Generator().manual_seed(0))
values = whole * 2.0**-34
for scale in (2.0**12, 5000.0):
    changed = (values * scale / scale != values).sum()
    print(f"times {scale:,.0f} and back: {changed:>6,} of 100,000 numbers changed")

# %% [markdown] slide="slide"
# ## The loop to copy
#
# ```python
# scaler = torch.amp.GradScaler("cuda")
# for images, labels in batches:
#     optimizer.zero_grad()
#     with torch.autocast("cuda", dtype=torch.float16):       # forward pass and loss only
#         loss = F.cross_entropy(model(images), labels)
#     scaler.scale(loss).backward()                           # gradients times the scale
#     scaler.unscale_(optimizer)                              # their true size, before clipping
#     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
#     scaler.step(optimizer)                                  # skipped if a gradient is not finite
#     scaler.update()                                         # the next step's scale
# ```
#
# bfloat16 needs no scale: there it is `loss.backward()`, clip, `optimizer.step()`.

# %% [markdown] slide="notes"
# Two mistakes crash nothing. Without `unscale_`, clipping meets gradients that are 65,536 times too large, and cuts
# every step to next to nothing. And `backward` inside the autocast block works, and is not needed: each operator's
# backward pass runs in the type that its forward pass had.

# %% [markdown] slide="slide"
# ## Which scale?
#
# Too small, and gradients become 0. Too large, and they become infinite.

# %% [markdown] slide="notes"
# `GradScaler` needs no choice: a step with an infinite gradient is *skipped* and the scale halved; after a row of good
# steps it is doubled. The same loop on this CPU, with a row of 20 in place of the usual 2,000, from a scale that is far
# too large:

# %% tags=["nbval-ignore-output"]
torch.manual_seed(1)
learner = networks.small_cnn(channels=1, size=8)
optimizer = torch.optim.SGD(learner.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28, growth_interval=20)
used, skipped = [], []
for step in range(120):
    rows = torch.arange(64 * step, 64 * step + 64) % len(images)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(learner(images[rows]), labels[rows])
    scaler.scale(loss).backward()
    used.append(scaler.get_scale())
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    skipped.append(scaler.get_scale() < used[-1])
print(
    "the rule, simulated from the skipped steps alone, gives the same scales:",
    scales(skipped, 2.0**28, interval=20) == used,
)

# %% tags=["nbval-ignore-output"]
plane(
    Axis("step"),
    Axis("loss scale", log=True, write=lambda value: f"{value:,.0f}"),
    curves=[Curve("scale", list(range(120)), used, colour="#0072b2")],
    title=f"The scale finds its place by itself: {sum(skipped)} of 120 steps skipped, "
    f"{sum(skipped[:20])} of them among the first 20",
)

# %% [markdown] slide="slide"
# ## Rounding
#
# Numbers of a format lie further apart the larger they are. With the hidden one, 10 fraction bits are 11 digits: they
# count to 2¹¹ = 2,048. Beyond, every other whole number is missing.

# %%
for value, name in ((2048, "float16"), (256, "bfloat16")):
    one_more = torch.tensor(value, dtype=getattr(torch, name)) + 1
    print(f"{name + ':':9} {value:>4} + 1 = {one_more:.0f}, spacing {spacing(value, name):g}")

# %% [markdown] slide="notes"
# A weight update is such a sum: a large number plus a small one. If the update is below half the spacing at the weight,
# nothing happens. We take one step of gradient descent, rate 0.01, on the trained network and an ordinary batch:

# %% tags=["nbval-ignore-output"] folded=true
weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
ordinary = gradients(net, images[:64], labels[:64]).all_weights
update = -0.01 * ordinary
rows = {}
for name in ("float32", "float16", "bfloat16"):
    dtype = getattr(torch, name)
    before = weights.to(dtype)
    unmoved = ((before + update.to(dtype)) == before) & (update != 0)
    rows[name] = 100 * float(unmoved.sum() / (update != 0).sum())
side_by_side(
    rows,
    unit="%",
    title=f"{rows['float16']:.0f} % of the updates are lost on "
    f"float16 weights, {rows['bfloat16']:.0f} % on bfloat16's",
)

# %% [markdown] slide="notes"
# This is why the weights stay float32: *master weights*. The layers compute with rounded copies, and the small
# updates add up where there is room for them. Range has a remedy in loss scaling; rounding has this one, and it costs
# the half copies: 2 bytes a parameter while they live.

# %% [markdown] slide="slide"
# ## float16 against bfloat16
#
# | | float16 | bfloat16 |
# |---|---|---|
# | range | 2⁻²⁴ to 65,504 | as float32 |
# | decimal digits | 3 | 2 |
# | needs loss scaling | yes | no |
# | needs float32 master weights | yes | yes, all the more |
# | bytes | 2 | 2 |
# | fast on | P100, and tensor cores from 2017 | Ampere (2020) and later |
#
# For memory the choice does not matter: the trace is the same to the byte.

# %% [markdown] slide="slide"
# ## Train: memory, time and accuracy together
#
# The digits, four ways, same network, same seed, Adam. *Pure* float16 is what one would try first: weights, gradients
# and Adam's averages in halves, no autocast, no scaling. It saves the most. What does it learn?


# %% tags=["nbval-ignore-output"] folded=true
def build():
    return networks.small_cnn(channels=1, size=8)


trained = digits.compare(
    {
        "float32": Variant(build),
        "bfloat16 autocast": Variant(build, precision="bfloat16"),
        "float16 autocast, scaled": Variant(build, precision="float16"),
        "float16, pure": Variant(build, precision="float16", pure=True),
    },
    epochs=4,
    seeds=(0,),
    side=8,
)
shown = trained[["traced peak", "measured peak"]].map(format_bytes)
shown["seconds an epoch"] = trained["epoch seconds"].round(2)
shown["accuracy"] = trained["accuracy"].map(format_share)
shown

# %% tags=["nbval-ignore-output"]
slower = trained["epoch seconds"] / trained.loc["float32", "epoch seconds"]
ends, epsilon = trained.loc["float16, pure", "accuracy"], torch.tensor(1e-8).half()
print(f"Pure float16 ends at {100 * ends:.0f} %, which is guessing.")
print(f"Adam's 1e-8, which keeps it from dividing by 0, in float16: {epsilon.item()}")
print("An epoch on this CPU takes", end=" ")
print(f"{slower['bfloat16 autocast']:.1f} times as long in bfloat16 autocast,", end=" ")
print(f"{slower['float16 autocast, scaled']:.1f} times in float16 autocast.")

# %% [markdown] slide="notes"
# Pure float16 fails by range: a weight whose gradient is 0 moves by 0 / 0, and every number after that is *nan*, not a
# number. Both autocasts learn as float32 does. A CPU without arithmetic for a format converts back and forth, and is
# slower for it. Half precision saves time only where the device computes in it.

# %% [markdown] slide="slide"
# ## Which devices gain
#
# From the catalogue, TFLOP/s; "–" is not in the catalogue. The last column is what the model of lesson 01 makes of them
# for VGG-16, batch 64: float32's time over half's.

# %% [markdown] slide="notes"
# It is a prediction, and the next page says how good it is.

# %%
vgg_64 = halving("VGG-16", 64)
chosen = "Tesla K40, Titan X (Maxwell), GTX 1080, P100, V100, RTX 2080, T4, A100, RTX 4090"
rows = []
for card in map(hardware.device, [*chosen.split(", "), "H100 SXM"]):
    rates = card.float32_tflops, card.float16_tflops, card.tensor_tflops
    written = [f"{rate:g}" if rate else "–" for rate in rates]
    step = f"{speed_up(vgg_64, card, 'float16'):.1f}"
    rows.append((card.name, card.year, *written, "yes" if card.bfloat16 else "no", step))
rates = ["float32", "plain float16", "tensor cores"]
columns = ["device", "year", *rates, "bfloat16", "modelled"]
pd.DataFrame(rows, columns=columns).set_index("device")

# %% [markdown] slide="notes"
# - K40, Titan X, GTX 1080: no fast arithmetic for halves. Half the traffic helps layers bound by bandwidth, and
#   nothing else. Autocast reads every float32 weight once more to copy it: the dense net, which reads its weights for
#   little arithmetic, even loses time there.
# - The P100 has plain float16 at twice float32's rate. The V100 has it too; the model takes its tensor cores.
# - Tensor cores (lesson 02), from the V100 on, multiply halves and add up in float32.
#
# From Ampere (2020) on the table flatters: PyTorch may run float32 convolutions as *TF32*, float32's range with 10
# fraction bits, on the tensor cores. The catalogue has no TF32 rates, so what halves gain over that is less than the
# last column says.

# %% [markdown] slide="slide"
# ## Published: how much of it was measured
#
# Forward and backward, in milliseconds per image, as others timed it; and the model, where the catalogue has the card.

# %% folded=true
rows = []
for row in HALVES:
    modelled = None
    if row.device in [card.name for card in hardware.devices()] and row.full == "float32":
        found = halving(row.network, row.batch)
        pair = ((found.full, "float32"), (found.half, "float16"))
        passes = [predict_step(at, row.device, kind).by_phase() for at, kind in pair]
        full_time, half_time = (at[["forward", "backward"]].sum() for at in passes)
        modelled = full_time / half_time
    rows.append((row, modelled))
columns = ["network, batch", "device", "from", "ms per image", "in halves"]
columns += ["measured", "modelled"]
shown = [
    (f"{row.network}, {row.batch}", row.device, row.full, f"{row.full_ms:.2f}",
     f"{row.half_ms:.2f}", f"{row.times:.2f}", f"{modelled:.1f}" if modelled else "–")
    for row, modelled in rows
]  # fmt: skip
pd.DataFrame(shown, columns=columns).set_index("network, batch")

# %%
both = [(row.times, modelled) for row, modelled in rows if modelled]
reached = [(times - 1) / (modelled - 1) for times, modelled in both]
print(f"Of the gain that is modelled, {100 * min(reached):.0f} % to", end=" ")
print(f"{100 * max(reached):.0f} % was measured.")

# %% [markdown]
# The model is an upper bound on what tensor cores give: it lets every product run near its peak.

# %% [markdown] slide="notes"
# Early kernels for halves were poor, and small or odd shapes never fill a tensor core. Until you have measured, believe
# a factor of 1.4 to 3.

# %% [markdown] slide="notes"
# Sources, all as their READMEs stood: VGG-16 from u39kun's deep-learning-benchmark, 2017 to 2019, PyTorch 0.3 (V100,
# GTX 1080 Ti) and 1.0 (RTX 2080 Ti), everything in halves, without autocast. ResNet-50 from NVIDIA's own
# DeepLearningExamples, 2021, with autocast and the memory layout that tensor cores like: the best case. NVIDIA's A100
# row starts from TF32, not from float32.

# %% [markdown] slide="skip"
# And on a card without fast arithmetic for halves, a Maxwell Titan X? In 2016 convnet-benchmarks timed forward and
# backward passes both ways (Torch, cuDNN 4).

# %% slide="skip" folded=true
rows = []
for name, (full, half) in TITAN_X_2016.items():
    modelled = "–"
    if name in networks.NETWORKS:
        both = [predict_step(at, "Titan X (Maxwell)").by_phase() for at in
                (halving(name).full, halving(name).half)]  # fmt: skip
        times = [phases[["forward", "backward"]].sum() for phases in both]
        modelled = f"{times[0] / times[1]:.2f}"
    rows.append((name, full, half, f"{full / half:.2f}", modelled))
columns = ["network", "float32, ms", "float16, ms", "measured", "modelled"]
pd.DataFrame(rows, columns=columns).set_index("network")

# %% [markdown] slide="skip"
# Model and measurement both stay between nothing and 14 %, but they do not agree on who gains. AlexNet's measured gain
# presumably comes from other kernels, which no roofline sees.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what do I gain by halving?**

# %% [markdown] slide="notes"
# The outline is float32. Before each move say whether the peak will fall, and whether the device gains time.

# %% tags=["nbval-ignore-output"]
half_explorer()

# %% [markdown] slide="notes"
# Try three things. Find the network that gains most and say which roles it hardly has. Give the dense net Adam: why
# does nothing change? Compare AlexNet at batch 8 and at 512.

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# ResNet-50 gains most, and comes close to half: pool indices, parameters and momentum are a small share of its peak.
# The dense net with Adam peaks in the update. There Adam's averages and its temporaries are alive, all of them float32,
# and no map or half copy is. AlexNet at batch 8 is nearly all dense layers, so it grows; at 512 its maps count, and
# it shrinks, though its pool indices and images do not.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# Two claims of 2016, in our words, with where they were published.

# %% [markdown] slide="notes"
# The verdict is computed when the cell runs.

# %%
judge([81, 82])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Maps halve; weights, optimizer state, indices and input do not.
# 2. A loss scale repairs the range of float16; float32 master weights repair rounding.
# 3. Time is gained where the device has arithmetic for halves.

# %% [markdown] slide="notes"
# The more a network is made of maps, the closer it comes to half, and a dense one grows. float16 loses small numbers to
# its range; both formats lose small updates to rounding. Where the device has no arithmetic for halves hardly any time
# is gained, and what was measured is less than the rates promise.
#
# Now the exercise: [exercises/08_half_precision.ipynb](../exercises/08_half_precision.ipynb). {questions}. Save,
# then `course check 08` gives your marks.
