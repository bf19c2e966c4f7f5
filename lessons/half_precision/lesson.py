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
# **The question:** a number of 16 bits takes half the bytes of one of 32. Can you train in 16 bits alone? And how much
# memory does it save?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. read a 16-bit number bit by bit, and tell its range from its rounding;
# 2. say what, if anything, goes wrong when everything is float16, and when everything is bfloat16;
# 3. write the training loop with a loss scale, and say what each line is for;
# 4. count a parameter's bytes in *mixed precision*, and a step's bytes under *autocast*;
# 5. say for which networks autocast saves memory.
#
# About 120 minutes, and {minutes} for the exercise. It builds on lesson 03: roles, the peak, pool indices. No GPU is
# needed.

# %% slide="skip" folded=true
import textwrap

import pandas as pd
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, plane, side_by_side, skyline
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share
from lessons.claims import judge
from lessons.half_precision.bits import bit_fields
from lessons.half_precision.claims import halving
from lessons.half_precision.explorer import half_explorer
from lessons.half_precision.precision import (
    bits,
    fate,
    formats,
    gradients,
    powers,
    spacing,
    speed_up,
)
from lessons.half_precision.ranges import magnitudes
from lessons.shared import digits
from lessons.shared.beside import beside_trace
from lessons.shared.digits import Variant
from lessons.shared.published import HALVES

torch.set_num_threads(1)  # networks this small gain nothing from more

# %% [markdown] slide="slide"
# ## Everything in 16 bits
#
# What would you try first? `model.half()`: weights, maps, gradients and Adam's averages, all in *float16*.

# %% [markdown] slide="notes"
# The network is small and learns handwritten digits. In float32 it goes like this:


# %%
def train(dtype=torch.float32, rate=3e-3, epochs=4, eps=1e-8, autocast=False):
    """The trained network, and its accuracy on the test images after each epoch in %."""
    torch.manual_seed(0)
    model = networks.small_cnn(channels=1, size=8).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=eps)
    reached = []
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[:1280].view(-1, 64):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                loss = nn.functional.cross_entropy(model(images[rows].to(dtype)), labels[rows])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = model(test_images.to(dtype)).argmax(dim=1) == test_labels
        reached.append(100 * float(right.float().mean()))
    return model, reached


images, labels, test_images, test_labels = digits.images(side=8)

# %% tags=["nbval-ignore-output"]
in_float32 = train()[1]
print("float32, accuracy after each epoch:", ", ".join(f"{one:.0f} %" for one in in_float32))

# %%
guess = predict(
    "The same training with everything in float16: network, images, gradients and Adam's "
    "averages. What is the accuracy after four epochs?",
    unit="%",
)
guess

# %% slide="subslide" folded=true tags=["nbval-ignore-output"]
broken, in_float16 = train(torch.float16)
reveal(
    guess,
    {"all in float16": in_float16[-1], "float32": in_float32[-1]},
    against="all in float16",
    thoughts=[
        (
            in_float32[-1],
            "As good as float32: it would be, if fewer digits were all that changes.",
        ),
        (
            0.9 * in_float32[-1],
            "A little worse: fewer digits do cost a little. But something else went wrong.",
        ),
        (
            0.75 * in_float32[-1],
            "Worse, but it learns? It does not learn at all. See below.",
        ),
        (50, "Half the bits, half the accuracy? With ten digits, guessing gets a tenth."),
    ],
)

# %% tags=["nbval-ignore-output"]
weights = torch.cat([parameter.detach().flatten() for parameter in broken.parameters()])
print(f"{int(weights.isnan().sum()):,} of {len(weights):,} weights are nan, not a number")
with torch.no_grad():
    answers = broken(test_images.half()).argmax(dim=1)
print(f"Of ten nans argmax names the first: {answers.unique().tolist()}", end=", ")
print(f"and {100 * (test_labels == 0).float().mean():.0f} % of the test images show a 0.")

# %% [markdown] slide="slide"
# ## Where 16 bits go
#
# A float is a sign, an *exponent* and a *fraction*. A float of 16 bits is called *half precision*, or a *half*. In
# PyTorch's names (`.half()`, `torch.half`) that word means float16 alone.

# %% [markdown] slide="notes"
# The exponent says between which two powers of two the number lies. The fraction says where between them.

# %%
bit_fields(
    {name: bits(0.1, name) for name in ("float32", "float16", "bfloat16")},
    title="0.1 in three formats: 16 bits can be split in two ways",
)

# %% [markdown] slide="notes"
# Read float16:
#
# - Its exponent is 01011, eleven. It is stored 15 too large, so that negative ones can be stored: 11 − 15 = −4, and the
#   power is 2⁻⁴. So 0.1 lies between 1/16 and 1/8, and its fraction is 614 of 1,024 steps from one to the other.
# - In binary every number but 0 begins with a 1, so the 1 need not be stored: with this *hidden one*, 10 bits make 11
#   binary digits.
# - Only when the exponent is all zeros is that digit a 0. Such *subnormal* numbers reach further down, with fewer digits.
# - An exponent of all ones is no power of two: with a fraction of 0 it stands for infinity, with any other for nan.

# %%
columns = ["exponent bits", "fraction bits", "largest", "smallest normal", "smallest"]
formats()[[*columns, "spacing at 1", "digits"]].map("{:.5g}".format)

# %% [markdown] slide="notes"
# - **Range** comes from the exponent, and at the very bottom from the fraction too. float16 ends at 65,504 above and at
#   6 · 10⁻⁸ below, and it loses digits one by one under its smallest *normal* number. bfloat16 has the exponent of
#   float32: it reaches about as far up, and nearly as far down.
# - **Rounding** comes from the fraction. float16 has 3 decimal digits, bfloat16 has 2.
#
# Which of the two was it?

# %% [markdown] slide="slide"
# ## float16 fails by range
#
# One step of that training, in slow motion. Adam divides by √v + ε, where v is a running mean of *squared* gradients.


# %%
def one_step(eps):
    """Gradients, v, and how far each weight moves in Adam's first step, all in float16."""
    torch.manual_seed(0)
    model = networks.small_cnn(channels=1, size=8).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=eps)
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.functional.cross_entropy(model(images[:64].half()), labels[:64]).backward()
    optimizer.step()
    gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    v = torch.cat([state["exp_avg_sq"].flatten() for state in optimizer.state.values()])
    return gradient, v, nn.utils.parameters_to_vector(model.parameters()).detach() - before


# %% tags=["nbval-ignore-output"]
gradient, v, moved = one_step(eps=1e-8)
print(f"weights:                         {len(v):,}")
print(f"v is 0, and the gradient is not: {int(((gradient != 0) & (v == 0)).sum()):,}")
print(f"v is 0, and the gradient too:    {int((gradient == 0).sum()):,}")
print(f"ε, 1e-8, in float16:             {torch.tensor(1e-8).half().item()}")
print(f"infinite or nan after this step: {int((~moved.isfinite()).sum()):,}")

# %% [markdown] slide="notes"
# A gradient of 10⁻³ is a float16 number, and so is its square, 10⁻⁶. But Adam adds only a thousandth of the square to
# v, and 10⁻⁹ becomes 0. ε, which should prevent a division by 0, becomes 0 as well. Then a gradient that
# is not 0 gives infinity, and one that is 0 gives nan. If that is the cause, an ε that is large enough for float16 must help:

# %% tags=["nbval-ignore-output"]
held, control = train(torch.float16, eps=1e-3)[1], train(eps=1e-3)[1]
print(f"ε of 1e-3, four epochs: all in float16 {held[-1]:.0f} %, float32 {control[-1]:.0f} %")

# %% slide="skip" tags=["change", "nbval-ignore-output"]
# Change ε: how small may it be before float16 stops learning? Is that where it becomes 0?
eps = 1e-5
longest = float(one_step(eps)[2].abs().max()) / 3e-3
print(f"ε in float16 {torch.tensor(eps).half().item():.1e},", end=" ")
print(f"longest first step {longest:,.0f} times the rate,", end=" ")
print(f"accuracy {train(torch.float16, eps=eps)[1][-1]:.0f} %")

# %% [markdown] slide="notes"
# It is not enough that ε is not 0. Where v is 0 the gradient is divided by ε alone: the smaller ε, the longer the step. In
# float32, where v is not lost, Adam's first step is no longer than the rate.
#
# With an ε that suits it, 10⁻³, float16 trains as well as float32 here: at this rate its rounding does no harm. So is range
# still a problem when Adam's averages are kept in float32, and only what the layers compute is in float16? Here are a
# network trained in float32 and the gradients of one batch. Hollow bars are numbers that become 0 in float16: those up
# to 2⁻²⁵, half of its smallest number.

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
net = train(epochs=20)[0]
exact = gradients(net, images[:64], labels[:64])
lost = fate(exact.all_maps, "float16").lost
zero = float((exact.all_maps == 0).float().mean())
print(f"{100 * zero:.0f} % of the gradient maps' values are 0 in float32 already, not drawn.")
magnitudes(
    {"gradient maps": powers(exact.all_maps), "weight gradients": powers(exact.all_weights)},
    title=f"Of a trained network's gradient maps, {100 * lost:.1f} % of what is not 0 "
    "is too small for float16",
)

# %% [markdown] slide="notes"
# Weight gradients are sums over images and positions, and larger here. Do the lost values of the maps matter? For this
# batch, no: see the first row of the next table. A share of `conv1`'s map is lost, and the weight gradients hardly change.
# The lost values matter once all gradients are small.

# %% [markdown] slide="slide"
# ## Range has a remedy: scale the loss
#
# Take the 64 training images that the network knows best. Their gradients are tiny.

# %% [markdown] slide="notes"
# The remedy: multiply the *loss* by a scale, run the backward pass, divide the weight gradients by the scale. A factor
# on the loss is the same factor on every gradient, and the division takes it out again, in float32: in float16 the smallest would
# become 0 again.

# %% tags=["nbval-ignore-output"] folded=true
with torch.no_grad():
    known = nn.functional.cross_entropy(net(images), labels, reduction="none").argsort()[:64]
usual = gradients(net, images[:64], labels[:64], "float16")
usual_zeros = fate(exact.maps["conv1"], "float16").lost
usual_wrong = torch.linalg.norm(usual.all_weights - exact.all_weights)
usual_wrong = float(usual_wrong / torch.linalg.norm(exact.all_weights))
exact = gradients(net, images[known], labels[known])


def error(weights):
    off = torch.linalg.norm(weights - exact.all_weights)
    return float(off / torch.linalg.norm(exact.all_weights))


rows = [("usual batch, no scale", f"{100 * usual_zeros:.1f} %", f"{100 * usual_wrong:.2f} %")]
for scale in (1, 2**4, 2**8, 2**12, 2**16):
    half = gradients(net, images[known], labels[known], "float16", scale)
    zeros = fate(exact.maps["conv1"], "float16", scale).lost
    wrong = error(half.all_weights / scale)
    name = f"known batch, {f'times {scale:,}' if scale > 1 else 'no scale'}"
    rows.append((name, f"{100 * zeros:.1f} %", f"{100 * wrong:.2f} %"))
half = gradients(net, images[known], labels[known], "bfloat16")
zeros = fate(exact.maps["conv1"], "bfloat16").lost
wrong = error(half.all_weights)
rows.append(("known batch in bfloat16", f"{100 * zeros:.1f} %", f"{100 * wrong:.2f} %"))
columns = ["scale", "gradient of conv1's map: becomes 0", "weight gradients: error"]
pd.DataFrame(rows, columns=columns).set_index("scale")

# %% [markdown] slide="notes"
# Without a scale a large part of the gradient is lost; with a large enough one nothing becomes 0, and rounding is left.
# Scales are powers of two: between normal numbers they move the exponent and touch no digit. bfloat16 needs no scale here,
# and rounds more coarsely.

# %% [markdown] slide="subslide"
# In practice only the layers compute in float16, and a float32 *master weight* is updated: *mixed precision*. PyTorch's
# *autocast* decides operator by operator.

# %% [markdown] slide="notes"
# Put `with torch.autocast("cuda", dtype=torch.float16):` around the forward pass, and
#
# - convolutions and matrix products run in half, on half copies of their inputs and weights;
# - the loss, softmax, layer and group norm, and sums run in float32; batch norm takes and keeps halves, but its
#   weight, bias and statistics are float32;
# - the weights themselves stay float32, and so do their gradients in `.grad`. An optimizer needs no change.

# %% [markdown] slide="subslide"
# The loop to copy:
#
# ```python
# scaler = torch.amp.GradScaler("cuda")
# for images, labels in batches:
#     optimizer.zero_grad()
#     with torch.autocast("cuda", dtype=torch.float16):       # forward pass and loss only
#         loss = F.cross_entropy(model(images), labels)
#     scaler.scale(loss).backward()                           # gradients times the scale
#     scaler.unscale_(optimizer)                              # true size, to clip
#     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
#     scaler.step(optimizer)                                  # skipped if not finite
#     scaler.update()                                         # the next step's scale
# ```

# %% [markdown] slide="notes"
# One mistake raises no error: without `unscale_`, clipping meets gradients that are larger by the scale, 65,536 to begin
# with. `scaler.step` then divides what is left by the scale, so that SGD's steps shrink to next to nothing. `backward`
# stays outside of the autocast block: each operator's backward pass runs in the type that its forward pass had.
#
# Too small a scale, and gradients become 0. Too large, and they become infinite. `GradScaler` finds its own: a step
# with an infinite gradient is *skipped* and the scale halved; after a row of good steps it is doubled. Here it is on
# this CPU, starting far too large and doubling after 20 good steps instead of 2,000:

# %% slide="subslide" tags=["nbval-ignore-output"] folded=true
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
corners = [(step + side, scale) for step, scale in enumerate(used) for side in (0, 1)]
plane(
    Axis("step", low=0, high=120),
    Axis("log2 of the loss scale", low=14),
    curves=[
        Curve(
            "", [at for at, _ in corners], [torch.tensor(s).log2().item() for _, s in corners]
        )
    ],
    title=f"The scale finds its place: {sum(skipped)} of 120 steps skipped, "
    f"{sum(skipped[:20])} of them among the first 20",
)

# %% [markdown] slide="notes"
# Read it from the left. Each skipped step halves the scale, one step of the curve down. Where it stays level, gradients
# are finite, and after 20 such steps it goes up by one.

# %% [markdown] slide="slide"
# ## And all in bfloat16?
#
# bfloat16 needed no scale, and it holds Adam's ε. Is it the answer, then? All in bfloat16, the training from the
# beginning:

# %% tags=["nbval-ignore-output"]
in_bfloat16 = train(torch.bfloat16)[1]
print(f"after four epochs: bfloat16 {in_bfloat16[-1]:.0f} %, float32 {in_float32[-1]:.0f} %")

# %% [markdown] slide="notes"
# Now a smaller learning rate, and more time to learn, in float32 to begin with:

# %% tags=["nbval-ignore-output"]
slow = {"float32": train(rate=1e-4, epochs=30)[1]}
print(f"float32, a rate of 1e-4: {slow['float32'][-1]:.0f} % after 30 epochs")

# %% [markdown] slide="subslide"
# Numbers of a format lie further apart the larger they are. Beyond 256, bfloat16 does not have every whole number:

# %%
for value, name in ((2048, "float16"), (256, "bfloat16")):
    one_more = torch.tensor(value, dtype=getattr(torch, name)) + 1
    print(f"{name + ':':9} {value:>4} + 1 = {one_more:.0f}, spacing {spacing(value, name):g}")
print(f"bfloat16's spacing at a weight of 0.05: {spacing(0.05, 'bfloat16'):.1e}")

# %% [markdown] slide="notes"
# A weight update adds a small number to a large one. If the update is below half the spacing at the weight, nothing
# happens. Adam's first step moves a weight by about the rate. In bfloat16 a step of 1e-4 is lost on every weight larger
# than 1/32: half the spacing there is 2⁻¹³, 1.2e-4, or more. How many weights of a new network would not move?

# %% folded=true
torch.manual_seed(0)
fresh = networks.small_cnn(channels=1, size=8)
weights = nn.utils.parameters_to_vector(fresh.parameters()).detach()


def unmoved(name, step):
    """% of the weights that stay what they are when the step is added."""
    rounded = weights.to(getattr(torch, name))
    stays = rounded + torch.tensor(step).to(rounded.dtype) == rounded
    return 100 * float(stays.float().mean())


steps = torch.logspace(-6, -2, 801).tolist()  # fine enough that a fall is upright
formats_drawn = zip(("bfloat16", "float16", "float32"), SERIES_COLOURS, strict=False)
plane(
    Axis("step", log=True, write=lambda step: f"{step:.0e}".replace("e-0", "e-")),
    Axis("weights that do not move, %", low=0, high=100),
    curves=[
        Curve(name, steps, [unmoved(name, step) for step in steps], colour)
        for name, colour in formats_drawn
    ],
    title=f"A step of 0.0001: {unmoved('bfloat16', 1e-4):.0f} % of the weights do not move "
    f"in bfloat16, {unmoved('float16', 1e-4):.0f} % in float16",
)

# %% slide="subslide"
guess_slow = predict(
    "All in bfloat16, a learning rate of 1e-4 in place of 3e-3: what is the accuracy after 30 "
    "epochs?",
    unit="%",
)
guess_slow

# %% slide="subslide" folded=true tags=["nbval-ignore-output"]
slow["all in bfloat16"] = train(torch.bfloat16, rate=1e-4, epochs=30)[1]
reveal(
    guess_slow,
    {"all in bfloat16": slow["all in bfloat16"][-1], "float32": slow["float32"][-1]},
    against="all in bfloat16",
    thoughts=[
        (
            slow["float32"][-1],
            "As good as float32, as at the larger rate? There the updates were large enough "
            "to survive rounding.",
        ),
        (
            0.9 * slow["float32"][-1],
            "A little worse? Updates are not made a little worse: many are lost altogether.",
        ),
        (
            in_float16[-1],
            "It does not break down as float16 did: it learns, slowly.",
        ),
    ],
)

# %% [markdown] slide="notes"
# Three things are suspected: lost updates, the rounding of the maps, and Adam's averages, which are bfloat16 too. So we
# take them away, and put them back one by one. *At random* means up or down, the nearer number being the likelier, so
# that small updates survive on average, though the weights are as coarse as before. (Weights are
# rounded after a step computed in float32; only *all in bfloat16* computes the step itself in bfloat16.)


# %% slide="skip" tags=["nbval-ignore-output"] folded=true
def nearest(dtype):
    return lambda weight: weight.to(dtype)


dice = torch.Generator().manual_seed(0)  # of its own, so that batches come in the same order


def at_random(weight):
    """Rounded to bfloat16's upper 16 bits, up with the probability that the lower 16 say."""
    noise = torch.randint(2**16, weight.shape, dtype=torch.int32, generator=dice)
    return ((weight.view(torch.int32) + noise) & -(2**16)).view(torch.float32)


def with_rounded_weights(rounded, averages=False):
    def round_after_the_step(optimizer, *_):
        with torch.no_grad():
            for weight, state in optimizer.state.items():
                weight.copy_(rounded(weight))
                if averages:
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name].copy_(state[name].bfloat16())

    hook = register_optimizer_step_post_hook(round_after_the_step)  # until removed
    reached = train(rate=1e-4, epochs=30, autocast=True)[1]
    hook.remove()
    return reached


slow["autocast"] = train(rate=1e-4, epochs=30, autocast=True)[1]
slow["autocast, weights to nearest"] = with_rounded_weights(nearest(torch.bfloat16))
slow["autocast, weights at random"] = with_rounded_weights(at_random)
drawn = dict(slow)
slow["and averages to nearest"] = with_rounded_weights(at_random, averages=True)
slow["autocast, weights to float16"] = with_rounded_weights(nearest(torch.float16))
what = [
    ("float32", "float32", "float32"),
    ("bfloat16, nearest", "bfloat16", "bfloat16"),
    ("float32", "float32", "bfloat16"),
    ("bfloat16, nearest", "float32", "bfloat16"),
    ("bfloat16, at random", "float32", "bfloat16"),
    ("bfloat16, at random", "bfloat16", "bfloat16"),
    ("float16, nearest", "float32", "bfloat16"),
]
pd.DataFrame(
    [
        (*kinds, f"{reached[-1]:.0f} %")
        for kinds, reached in zip(what, slow.values(), strict=True)
    ],
    index=pd.Index(slow, name="run"),
    columns=["weights", "Adam's averages", "maps", "after 30 epochs"],
)

# %% tags=["nbval-ignore-output"] folded=true
ends = {name: reached[-1] for name, reached in drawn.items()}
costs = [
    max(0.0, ends["autocast"] - ends[f"autocast, weights {how}"])
    for how in ("to nearest", "at random")
]
plane(
    Axis("epochs", low=0),
    Axis("accuracy, %", low=0, high=100),
    curves=[
        Curve(name, list(range(1, 31)), reached, colour, dashed=name == "autocast")
        for (name, reached), colour in zip(
            drawn.items(), [*SERIES_COLOURS, "#777777"][: len(drawn)], strict=True
        )
    ],
    title=f"Weights rounded to the nearest bfloat16 cost {costs[0]:.0f} points, "
    f"rounded at random {costs[1]:.0f} (one seed)",
)

# %% [markdown] slide="notes"
# (The network is small and this is one seed: how much is lost varies.) Three curves lie together. Under autocast the curve
# is that of float32, so it was not the maps. Round the weights to the nearest bfloat16 as well, and accuracy falls nearly as
# far as all in bfloat16. Round them at random and it does not fall, even with Adam's averages rounded too.
# Coarse weights are harmless here; losing every update below half a spacing is not. More time does not close the gap:
# `train` with 120 epochs in place of 30, run once for this page, ends at 93 % in float32 and at 73 % all in bfloat16.
# float16 has three more bits of fraction, so it begins to lose updates at steps eight times smaller, as the two curves
# above show: hardly any at 1e-4.

# %% [markdown] slide="subslide"
# **Can you train in 16 bits alone?** float16: not with Adam's usual ε, and small gradients are lost unless the loss
# is scaled, and the scale taken out in float32. bfloat16: here yes at a rate of 3e-3, no at 1e-4, where too many updates are lost. So keep float32 weights.

# %% [markdown] slide="skip"
# On cards that compute in bfloat16, NVIDIA's from Ampere (2020) on, the plain loop with one line more is enough:
#
# ```python
# optimizer.zero_grad()
# with torch.autocast("cuda", dtype=torch.bfloat16):   # the line more; no scaler
#     loss = F.cross_entropy(model(images), labels)
# loss.backward()
# optimizer.step()
# ```
#
# On older cards with tensor cores, Volta and Turing, take float16 and the loop above with its `GradScaler`.

# %% [markdown] slide="slide"
# ## What does a parameter cost?
#
# With momentum, in bytes; autocast at three moments:
#
# | | float32 | paper of 2018 | autocast: forward pass | in each layer's backward, for a moment | after it |
# |---|---:|---:|---:|---:|---:|
# | weight | 4 | 4 | 4 | 4 | 4 |
# | half copy of it | – | 2 | 2 | – | – |
# | gradient in half | – | 2 | – | 2 | – |
# | gradient | 4 | – | – | 4 | 4 |
# | momentum | 4 | 4 | 4 | 4 | 4 |
# | **together** | **12** | **12** | **10** | **14** | **12** |

# %% [markdown] slide="notes"
# The paper is Micikevicius et al., *Mixed Precision Training*, ICLR 2018: weights, maps and gradients in float16, a float32
# master copy for the update. Autocast makes its half copy of a weight once and keeps it until the forward pass ends, or
# longer where the backward pass needs it. The 14 bytes are there when a layer's half gradient is copied to float32. (18
# while an earlier micro-batch's gradient is still in `.grad`.) So parameters save nothing at the end; what is saved must
# come from the maps. (*Further* has these moments in the trace of one layer.)

# %% [markdown] slide="slide"
# ## How much memory is saved?
#
# VGG-16, batch 128, momentum: 10.31 GiB at the peak in float32 (lesson 03).

# %%
guess_peak = predict(
    "VGG-16, batch 128, momentum: 10.31 GiB at the peak in float32. What is the peak under "
    "autocast with float16?",
    unit="GiB",
)
guess_peak

# %% [markdown] slide="subslide"
# By hand. Where will the peak be? Under autocast a layer's weight gradient is there twice for a moment, in half and in
# float32. `fc6` has the most weights, and nearly all maps still wait then. So add up what is alive at `fc6`.

# %% [markdown] slide="notes"
# `fc6` and the layers after it have their gradients by then. Below, every value takes 4 bytes but a pool index, a whole
# number of 8. The sum is not quite the 10.31 GiB: float32 peaks later.

# %% tags=["change"]
# Change the 4s: how many bytes does a value take under autocast?
size = {"weight": 4, "momentum": 4, "gradient": 4, "image": 4, "map": 4, "pool index": 8}
values = {
    "weight": 138_357_544,
    "momentum": 138_357_544,
    "gradient": 25_088 * 4_096 + 4_096 * 4_096 + 4_096 * 1_000,  # of fc6, fc7, fc8
    "image": 128 * 3 * 224 * 224,
    "map": 128 * (13_547_520 + 1_530_368),  # of convolutions and pools
    "pool index": 128 * 1_530_368,
}
print(f"{sum(size[name] * values[name] for name in size) / GIB:.2f} GiB")

# %% [markdown] slide="notes"
# Three terms are still missing, all of them in half: a copy of the images, copies of the convolutions' weights, and the
# gradient of `fc6`, which is made in half and then copied to float32.

# %% folded=true
right = {"weight": 4, "momentum": 4, "gradient": 4, "image": 4, "map": 2, "pool index": 8}
terms = {
    f"{name}, {count} bytes a value": count * values[name] for name, count in right.items()
}
terms |= {
    "half copy of the images": 2 * values["image"],
    "half copies of the convolutions' weights": 2 * 14_710_464,
    "gradient of fc6 in half": 2 * 25_088 * 4_096,
}
by_hand = sum(terms.values())
vgg = halving("VGG-16", 128)  # the step twice, traced in float32 and under float16 autocast
table = vgg.by_role()
full = vgg.full.peak_bytes
fixed = table.loc[["parameters", "optimizer state", "weight gradients"], "float32"].sum()
reveal(
    guess_peak,
    {"by hand": by_hand / GIB, "trace": vgg.half.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (full / 2 / GIB, "Half of everything: but parameters and momentum stay as they are."),
        (
            (fixed + (full - fixed) / 2) / GIB,
            "You kept parameters, gradients and momentum, and halved the rest. Pool indices "
            "stay too, and one layer's gradient is there in half as well as in float32.",
        ),
        (
            0.75 * full / GIB,
            "A quarter less? Maps are most of the peak, and all but indices are halved.",
        ),
        (full / GIB, "That is float32's peak. Most of it is maps, and maps do become halves."),
    ],
)

# %% folded=true
for name, count in {**terms, "together": by_hand}.items():
    print(f"{name:42}{count / MIB:9,.1f} MiB")
print(f"trace: {(vgg.half.peak_bytes - by_hand) / MIB:.1f} MiB more:", end=" ")
print(f"{table.loc['workspace', 'half'] / MIB:.1f} MiB are cuBLAS's workspace. A gradient map")
print(f"of {table.loc['gradient maps', 'half'] / MIB:.1f} MiB is there, pool5's map is not.")

# %% slide="subslide"
peaks = [format_bytes(ledger.peak_bytes) for ledger in (vgg.full, vgg.half)]
skyline(
    vgg.half,
    before=vgg.full,
    before_name="float32",
    title=f"VGG-16 under autocast: {peaks[1]} in place of {peaks[0]}, −{vgg.saved:.0%}",
)

# %% [markdown]
# `other` is the half copies of weights. Feature maps include pool indices here. The table below has a row for each.

# %% slide="subslide"
for name, at in (("float32", vgg.full), ("half", vgg.half)):
    print(f"{name}: the peak is in the {at.peak_phase} pass of {at.peak_layer}")
print("MiB by role, each at its own peak:")
(table[(table != 0).any(axis=1)] / 2**20).map("{:,.0f}".format)

# %% [markdown] slide="notes"
# - *Feature maps* halve. But the maps of the last layers are now part of the peak. In float32 the peak came later, when
#   they had been freed.
# - *Gradient maps* would halve, too. But what matters here is that the peak has moved: at `fc6` the large ones do
#   not exist yet.
# - *Parameters* and *optimizer state* stay, so that small updates survive.
# - *Weight gradients*: `fc6` has its gradient twice for a moment, with 196 MiB in half. float32's later peak has
#   no such copy, and instead the gradients of some convolutions, which are far smaller.
# - *Pool indices* stay: whole numbers of 64 bits. There are more of them, since at `fc6` all pools still need theirs.
# - *Input* stays float32, as the data loader made it.

# %% [markdown] slide="subslide"
# And a network with hardly any maps? The dense net of lesson 03 has 52 million weights, 36 million of them in `fc1`
# (9,000 × 4,000). In float32 its peak, too, is in the backward pass:

# %%
dense = halving("52 M dense net", 128)
guess_dense = predict(
    f"In float32, the dense net at batch 128 peaks at {dense.full.peak_bytes / MIB:.1f} MiB. "
    "What is the peak under autocast with float16?",
    unit="MiB",
)
guess_dense

# %% slide="subslide" folded=true
copies = dense.full.by_role()["parameters"] / 2
reveal(
    guess_dense,
    {"trace": dense.half.peak_bytes / MIB, "float32": dense.full.peak_bytes / MIB},
    thoughts=[
        (
            dense.full.peak_bytes / 2 / MIB,
            "Half of everything: but parameters, gradients and momentum stay float32.",
        ),
        (
            dense.full.peak_bytes * (1 - vgg.saved) / MIB,
            "A third less, as for VGG-16? That one is mostly maps, and here are hardly any.",
        ),
        (
            dense.full.peak_bytes / MIB,
            "Nothing halves, that is right. But something is added in half.",
        ),
        (
            (dense.full.peak_bytes + copies) / MIB,
            "14 bytes in place of 12. The half copies are gone again when the peak comes.",
        ),
    ],
)

# %%
skyline(
    dense.half,
    before=dense.full,
    before_name="float32",
    title=f"The dense net: {format_bytes(dense.full.peak_bytes)} become "
    f"{format_bytes(dense.half.peak_bytes)}, {-dense.saved:+.0%}",
)

# %% [markdown] slide="notes"
# It grows. At the peak no half copy of a weight is left: the later layers have freed theirs, and `fc1`'s went at the end of
# the forward pass, as all it could give is the gradient of the images. What comes on top is `fc1`'s gradient in half,
# beside the float32 gradient that is made from it:

# %% slide="notes"
added = dense.by_role().loc["weight gradients", "change"]
print(f"weight gradients at the peak: {format_bytes(added)} more")
print(f"a half gradient of fc1:       {format_bytes(2 * 9000 * 4000)}")
print(f"the rest of the step:         {(-dense.saved_bytes - added) / MIB:+.2f} MiB")

# %% slide="subslide" folded=true
found = {
    "ResNet-50": halving("ResNet-50", 128),
    "VGG-16": vgg,
    "52 M dense net": dense,
}
left = {name: round(100 * (1 - one.saved)) for name, one in found.items()}
side_by_side(
    {"any of them in float32": 100, **left},
    unit="%",
    title=f"Autocast: ResNet-50 keeps {left['ResNet-50']} % of its peak, the dense net grows",
)

# %% [markdown] slide="notes"
# ResNet-50 has little besides maps: one small dense layer, one pool with indices.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what do I gain by halving?**

# %% [markdown] slide="notes"
# The outline is float32. Before each move say whether the peak will fall, and whether the device gains time.

# %% tags=["nbval-ignore-output"]
half_explorer()

# %% [markdown] slide="notes"
# Try three things. Find the network that gains most, and say which roles it hardly has. Give the dense net Adam: why
# does nothing change? Compare AlexNet at batch 8 and at 512.

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# ResNet-50 gains most, and comes close to half: pool indices, parameters and momentum are a small share of its peak.
# The dense net with Adam peaks in the update. There Adam's averages and its temporaries are alive, all of them float32,
# and no map or half copy is. AlexNet at batch 8 is nearly all dense layers, so it grows; at 512 its maps count, and it
# shrinks, though its pool indices and images do not.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. float16 fails by range: scale the loss. Both lose small updates: keep float32 weights.
# 2. Under autocast maps halve, a layer norm's and a softmax's aside. Weights, their gradients, optimizer state, indices,
#    input do not.
# 3. ResNet-50 comes close to half, VGG-16 saves a third, weights or layer norms may grow.

# %% [markdown] slide="notes"
# Is it faster, too? On cards with tensor cores it is, though by less than their rates promise: *Further* has measured times.
#
# Now the exercise: [exercises/08_half_precision.ipynb](../exercises/08_half_precision.ipynb). {questions}. Save, then
# `course check 08` gives your marks.

# %% [markdown] slide="skip"
# ## Further: which devices gain time
#
# Most time is gained where the device has tensor cores. Two claims of 2016, judged:

# %% slide="skip"
judge([81, 82])

# %% [markdown] slide="skip"
# **The catalogue**, in TFLOP/s; "–" where it has no figure. (Every card with tensor cores can also compute float16 without
# them.) The last column is what the model of lesson 01 makes of the rates for VGG-16, batch 64: float32's time
# over half's. *Tensor cores* (lesson 02) multiply halves and add up in float32.

# %% slide="skip" folded=true
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

# %% [markdown] slide="skip"
# Without tensor cores only the traffic is halved: PyTorch adds halves up in float32, and the P100's plain float16
# arithmetic, twice as fast, adds up in float16. On the A100 and every later card here, PyTorch
# runs float32 convolutions as *TF32* by default: float32's range with 10 fraction bits, on the tensor cores. Matrix
# products use it only if you allow it. Halves then gain less than the last column says. The catalogue has no rates for
# TF32.
#
# **How much of it was measured?** Forward and backward, in milliseconds an image, as others timed it; and the model,
# where the catalogue has the card.

# %% slide="skip" folded=true reads="course_utils/machine/devices.csv"
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
columns = ["network, batch", "device", "from", "ms an image", "in halves"]
columns += ["measured", "modelled"]
shown = [
    (f"{row.network}, {row.batch}", row.device, row.full, f"{row.full_ms:.3f}",
     f"{row.half_ms:.3f}", f"{row.times:.2f}", f"{modelled:.1f}" if modelled else "–")
    for row, modelled in rows
]  # fmt: skip
pd.DataFrame(shown, columns=columns).set_index("network, batch")

# %% [markdown] slide="skip"
# Where this table has both, less was measured than modelled. One reason may be that the model lets every product run
# near the peak of the tensor cores. Sources, as their READMEs were: VGG-16 from u39kun's deep-learning-benchmark, 2017
# to 2019, PyTorch 0.3 (V100, GTX 1080 Ti) and 1.0 (RTX 2080 Ti), everything in halves, without autocast. ResNet-50 from
# NVIDIA's own DeepLearningExamples, 2021, with autocast and the memory layout that tensor cores like. NVIDIA's A100 row
# starts from TF32, not from float32.

# %% [markdown] slide="skip"
# **The bytes of a parameter, traced**, in a dense layer of 1,000 × 1,000. A `_to_copy` makes a half copy of a float32
# tensor, or the other way round; `mm` is a matrix product, `addmm` one with the bias added; half copies of weights are in
# the role `other`.

# %% slide="skip" folded=true
with torch.device("meta"):
    layer = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
step = training_step(layer, (1000,), 10, precision="float16", target="cpu")
timeline = step.at(64).timeline()
sizes = ["weight gradients", "gradient maps", "other", "total"]
first = timeline[timeline["layer"] == "0"]
purposes = [
    *("bias to half", "weight to half", "input to half", "the layer itself"),
    *("weight gradient, in half", "bias gradient, in half"),
    *("weight gradient to float32", "bias gradient to float32"),
]
first[["event", "phase"]].assign(makes=purposes).join(first[sizes].map("{:,}".format))

# %% [markdown] slide="skip"
# **On this CPU**, the digits once more, four ways. Where it lacks arithmetic for halves they cost time. Pure float16 ends
# in nan, as before.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true


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
shown = trained[["traced peak"]].map(format_bytes)
shown["seconds an epoch"] = trained["epoch seconds"].round(2)
shown["accuracy"] = trained["accuracy"].map(format_share)
shown

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(textwrap.fill(recordings.sentence(gpu), 88))
rows = []
for name in ("VGG-16", "52 M dense net"):
    for precision in ("float32", "float16"):
        rows += beside_trace(gpu, name, precision, batches=(128,))
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="skip"
# The exercise is [exercises/08_half_precision.ipynb](../exercises/08_half_precision.ipynb). {questions}.
