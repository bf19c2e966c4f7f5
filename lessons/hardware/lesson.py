# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 02 · Which hardware, or none
#
# **The question:** what fits on this card, and what can I do without one?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say how many parameters a card trains, and where the old rule for it goes wrong;
# 2. check a printed number by computing it;
# 3. read a card's line in a catalogue: memory sold and usable, bandwidth, arithmetic rate, price, an hour of it;
# 4. name the smallest card that holds a training step, and the largest batch on another;
# 5. train and use networks without a GPU: threads, a frozen backbone, inference on the CPU.
#
# About 60 minutes, and {minutes} for the exercise. It builds on lessons 00 (the roles of memory, the trace) and 01
# (bandwidth, arithmetic rate). No GPU is needed.

# %% slide="skip" folded=true
import copy
from itertools import pairwise
from textwrap import wrap

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side, skyline
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.context import CONTEXT_BYTES, reports
from course_utils.machine.hardware import devices
from course_utils.machine.measure import measure_step
from course_utils.machine.timing import measure_ceilings, measure_step_time
from course_utils.networks import NETWORKS
from course_utils.recordings import gpu, sentence
from course_utils.techniques.capacity import demand, largest_batch, on_cards
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_seconds
from lessons.claims import judge
from lessons.hardware.claims import bytes_a_parameter
from lessons.hardware.explorer import hardware_explorer
from lessons.hardware.ladder import ladder
from lessons.hardware.threads import measure_threads
from lessons.shared import digits
from lessons.shared.digits import Variant, compare
from lessons.shared.language_steps import language_step
from lessons.shared.published import RENTALS

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# The best card that a student could buy in 2013 had 6,144 MiB of memory.

# %%
guess = predict(
    "Keep 400 MiB of a card of 6,144 MiB free for the system. How many "
    "parameters, in millions, can you train in the rest, in float32 with "
    "momentum, if the inputs and the feature maps took no room at all?",
    unit="million",
)
guess

# %% [markdown] slide="slide"
# ## By hand: the capacity rule of 2014
#
# A widely read text of the time, *Which GPU for deep learning* (Dettmers, 2014), gave a *capacity rule*: what a card
# trains, from its memory alone.

# %% [markdown] slide="notes"
# - Take the card's memory, and keep 400 MB of it free.
# - A parameter in float32 takes 4 bytes.
# - Momentum keeps one number for every parameter: divide by 2.

# %%
room = (6144 - 400) * 1024 * 1024
print(f"left for the network      {room:>13,} bytes")
print(f"the rule of 2014, / (4·2) {room // (4 * 2):>13,} parameters")

# %% [markdown] slide="subslide"
# ## By hand: the rule corrected
#
# Write SGD's update with momentum out: `v = 0.9 * v + g`, then `w = w - lr * v`.

# %% [markdown] slide="notes"
# Three letters stand for a value of every parameter: the weight `w`, the momentum `v`, and the *gradient* `g`, which
# the rule forgot.

# %% folded=true
reveal(
    guess,
    {"corrected, / 12": room // 12 / 1e6, "rule of 2014, / 8": room // 8 / 1e6},
    thoughts=[
        (
            room / 8e6,
            "Weights and momentum: that is the rule of 2014. Each weight has a gradient too.",
        ),
        (room / 4e6, "Those are weights alone, to use the network and not to train it."),
        (
            room / 16e6,
            "Four values each: that is what stays with Adam, which keeps two averages.",
        ),
        (room / 20e6, "Five values each: that is Adam's peak, which comes next."),
        (room / 1e6, "Those are bytes; a value in float32 takes four."),
    ],
)

# %% [markdown] slide="subslide"
# ## Adam: four values stay, five are there at the peak
#
# Adam keeps two averages in place of one: `m` of the gradient, `s` of its square. Weight, gradient, two averages: 16
# bytes for each parameter *stay*.

# %% [markdown] slide="notes"
# But look at the update, `w = w - lr * m / (sqrt(s) + eps)`. The root is a value of its own. On a GPU PyTorch's default
# updates all parameters together, so for a moment there is a root for every one of them. A trace of a dense network
# shows the worst moment of the update:

# %%
for name, stays in (("sgd", "w, g"), ("momentum", "w, g, v"), ("adam", "w, g, m, s")):
    values = len(stays.split(", "))
    peak = bytes_a_parameter(name)
    fit = int(room // peak)
    print(
        f"{name:<9} {stays:<11} {4 * values:>2} bytes stay, {peak:.0f} at the peak:", end=" "
    )
    print(f"{fit / 1e6:,.0f} million parameters")

# %% [markdown] slide="skip"
# (`torch.optim.Adam(..., fused=True)` does the update in one kernel that needs no such tensor. It is not the default,
# and the trace cannot run it.)

# %% [markdown] slide="slide"
# ## The rule at work
#
# The text of 2014 tries its rule on a network for a contest: dense layers, 9,000 inputs, then 4,000, 4,000 and 32
# units.

# %% [markdown] slide="notes"
# It prints that this network has **512,128,000** weights, and that it fits a card of 1,536 MB.
#
# What does the rule itself say of such a card?

# %%
print(f"{(1536 - 400) * 1024 * 1024 // (4 * 2):,} parameters at most")

# %% [markdown] slide="notes"
# Something is odd: 512 million do not go into 149 million. Either the network does not fit, or the rule is broken, or
# the count is. Take a pencil before you run the next cell: three products and their sum.

# %%
guess_weights = predict(
    "How many weights does a dense network of 9,000, 4,000, 4,000 and 32 units have?",
    "million",
)
guess_weights

# %% slide="subslide"
sizes = [9000, 4000, 4000, 32]
products = [a * b for a, b in pairwise(sizes)]
for (a, b), product in zip(pairwise(sizes), products, strict=True):
    print(f"{a:>5,} · {b:>5,} {product:>12,}")
print(f"{'sum':<13} {sum(products):>12,}")
print(f"{'printed':<13} {512_128_000:>12,}")

# %% [markdown] slide="notes"
# Compare the last two lines digit by digit, and say what happened, before you go on.

# %% folded=true
reveal(
    guess_weights,
    {"computed": sum(products) / 1e6, "printed in 2014": 512.128},
    thoughts=[
        (512.128, "So the text of 2014 says too. Three products say otherwise."),
        (
            sum(sizes) / 1e6,
            "Those are the units. The weights sit on the connections between them.",
        ),
        (36.0, "That is the first product; two more are to be added."),
    ],
)

# %% [markdown] slide="fragment"
# One digit too many went into print. The conclusion beside it was right: 52 million do go into 149 million.
#
# The sentence around a number can be true and the number wrong. Recompute what you can. It took three products.

# %% [markdown] slide="slide"
# ## Trace: does it fit?
#
# Here is a trace of one step of that network, with momentum and a batch of 128, against a card of 1,536 MiB.

# %%
with torch.device("meta"):
    dense = networks.kaggle_mlp()
dense_step = training_step(dense, (9000,), 32, "momentum", name="52 M dense net")
skyline(dense_step.at(128), limit_bytes=1536 * MIB)

# %% [markdown] slide="skip"
# It fits, and hardly anything in the figure is a feature map. For a dense network on a table of numbers the corrected
# rule is nearly the whole truth. By hand it is 12 bytes for each of 52,136,032 parameters:

# %% slide="skip" folded=true
by_hand = 12 * 52_136_032
peak = dense_step.at(128).peak_bytes
side_by_side(
    {
        "rule of 2014": 8 * 52_128_000 / MIB,
        "corrected": by_hand / MIB,
        "trace, batch 128": peak / MIB,
    },
    title=f"The corrected rule is {abs(by_hand / peak - 1):.0%} "
    "from the trace where maps are small",
)

# %% [markdown] slide="slide"
# ## What both rules leave out
#
# Feature maps: the outputs of the layers, kept from the forward pass to the backward pass, one set for every sample.

# %% [markdown] slide="notes"
# By the rule of 2014, a 6 GB card trains 752 million parameters. None of these networks has a fifth of that. The last
# one is a *transformer*, a small language model of 2019; its samples are texts of 1,024 *tokens*, pieces of words
# (lesson 13).


# %% slide="skip" folded=true
def traced(name, optimizer="momentum"):
    network = NETWORKS[name]
    with torch.device("meta"):
        module = network.build()
    return training_step(module, network.input_shape, network.classes, optimizer, name=name)


steps = {name: traced(name) for name in NETWORKS}
steps["GPT-2"] = language_step("GPT-2", sequence=1024, numbers="float32", optimizer="momentum")

# %% folded=true
rows = []
for name, step in steps.items():
    parameters = int(step.at(2).by_layer()["parameters"].sum())
    kept, peaks = 12 * parameters, [step.at(batch).peak_bytes for batch in (16, 64)]
    largest = f"{largest_batch(step, 6 * GIB).fits:,}"
    rows.append(
        (name, f"{parameters:,}", format_bytes(kept), *map(format_bytes, peaks), largest)
    )
columns = [
    "network",
    "parameters",
    "corrected rule",
    "peak, batch 16",
    "peak, batch 64",
    "fits 6 GiB up to batch",
]
pd.DataFrame(rows, columns=columns).set_index("network")

# %% [markdown] slide="notes"
# The rule in full has a part that stays and a part for every sample:
#
# > bytes a parameter · parameters + maps of one sample · batch ≤ card − what others take
#
# No count of parameters tells how large the maps are: VGG-16 and GPT-2 have about as many, and GPT-2's text needs many
# times the maps of VGG-16's image. The trace tells. What does one more sample cost?

# %% slide="skip"
for name, step in steps.items():
    more = step.at(129).peak_bytes - step.at(128).peak_bytes
    print(f"{name:<14} {format_bytes(more):>10} for each further sample")

# %% [markdown] slide="slide"
# ## What others take: the context
#
# The 400 MB of 2014 were for what the driver and the libraries load for every process that uses the card: the
# *context*. No tensor of yours is in it, and it cannot be computed.

# %% [markdown] slide="notes"
# People who looked found 200 to 700 MB in 2019 (PyTorch's issue 28113), and 1,685 MiB on an RTX 3090 of 2020 (issue
# 55277). Every kernel of every library was loaded at once. Since CUDA 11.7 kernels are loaded when they are first used:
# out-of-memory messages of recent years add up to 115 MiB on a small chip, 619 on the largest. The course keeps such
# reports with their sources. A step must do with the most that was seen, if it is to *fit*; the answer is *no* only
# where even the least is too much.

# %% slide="skip" folded=true
seen = pd.DataFrame(reports())[["name", "architecture", "year", "loading", "mib"]]
seen.columns = ["card", "architecture", "reported", "kernels are loaded", "context, MiB"]
seen.set_index("card").sort_values("context, MiB")

# %% [markdown] slide="notes"
# There is more: PyTorch's allocator rounds sizes up and leaves gaps that nothing fits into. Lesson 03 takes them apart.

# %%
asked = demand(steps["VGG-16"].at(64))
gaps = asked.requests.reserved_bytes - asked.tensors
print(f"VGG-16, batch 64: tensors                {format_bytes(asked.tensors):>10}")
print(f"                  gaps, if there is room {format_bytes(gaps):>10}")
print(f"                  workspace, our guess   {format_bytes(asked.workspace):>10}")
print(f"                  context, at most       {format_bytes(CONTEXT_BYTES):>10}")

# %% [markdown] slide="notes"
# Whether a step fits has three answers in this course, given by one function, `fit(ledger, card)`. *No*: the tensors and
# the least context are more than the card. *Fits*: the allocator, replayed on what the most context leaves of a card of
# this size, gets through; where it runs short it first gives back what it holds unused, as PyTorch's does. *Tight*:
# neither. The gaps may be in the way, the context may be too large, or there may be no room for the scratch memory
# (*workspace*) of fast convolutions. How much these want is a guess, from one rounded figure of 2016.

# %% [markdown] slide="subslide"
# **How often is the verdict wrong?** In 2022 the author of timm searched the largest batch of several hundred networks on
# an RTX 3090, with every kernel loaded at once. A batch either ran or failed. For a random sample of the networks:

# %% folded=true
said = ladder()
rows = [
    [kind, said[kind], said[f"{kind} fits"], said[f"{kind} tight"], said[f"{kind} no"]]
    for kind in ("ran", "failed")
]
met = f"{said['met']} of {said['networks']} networks"
print(f"the largest of the batches tried: found for {met}")
columns = ["batches that …", "of them", "said: fits", "tight", "no"]
pd.DataFrame(rows, columns=columns).set_index(columns[0])

# %% [markdown] slide="skip"
# On a GPU, this machine's or a recorded one, the driver counts beside PyTorch's own memory:

# %% tags=["nbval-ignore-output"]
source = gpu()
if source is not None:
    print(f"context, libraries loaded: {format_bytes(source.context().context_bytes)}")
print(*wrap(sentence(source), 90), sep="\n")

# %% [markdown] slide="slide"
# ## Sold and usable
#
# A card has less for programs than its box says: error correction and the driver take some before anybody counts. What
# people's out-of-memory messages call *total capacity* is what there is.

# %% [markdown] slide="notes"
# For the cards of the catalogue where a source says so:

# %% folded=true
known = [card for card in devices() if card.usable_gb]
pd.DataFrame(
    {
        "sold, GiB": [f"{card.memory_gb:g}" for card in known],
        "usable, GiB": [f"{card.usable_gb:g}" for card in known],
        "missing": [f"{1 - card.usable_gb / card.memory_gb:.1%}" for card in known],
    },
    index=[f"{card.name}, {card.year}" for card in known],
)

# %% [markdown] slide="skip"
# (The H100's is what the driver reports; PyTorch shows a little less.) Where no source is known the course takes what
# is sold, which flatters the card. The context comes off after that.

# %% [markdown] slide="slide"
# ## Price and memory
#
# The course's catalogue, each value with its source, and an empty cell where nobody confirmed one.

# %% [markdown] slide="notes"
# Prices are those of the launch, in the dollars of that year: nothing is adjusted for inflation, and nobody sells a K40
# at its launch price today. Cards sold to laboratories and data centres are orange, those sold for games are blue.

# %% slide="skip" folded=true
cards = pd.DataFrame(devices())
cards["whole card, GiB"] = cards["memory_gb"] * cards["dies"]
cards["GiB per 1,000 dollars"] = 1000 * cards["whole card, GiB"] / cards["launch_usd"]
cards["professional"] = cards["name"].str.match(r"Tesla|[PVAHB]\d+|T4")
priced = cards.dropna(subset=["launch_usd"])


def spots(y):
    kinds = {True: SERIES_COLOURS[0], False: SERIES_COLOURS[1]}
    return [
        Spot(c["name"], c[y[0]], c[y[1]], kinds[c["professional"]])
        for _, c in priced.iterrows()
    ]


# %% folded=true
best, worst = (
    priced.loc[priced["GiB per 1,000 dollars"].agg(which)] for which in ("idxmax", "idxmin")
)
plane(
    Axis("dollars at launch", log=True),
    Axis("GiB on the card", log=True),
    spots=spots(("launch_usd", "whole card, GiB")),
    title=f"1,000 dollars bought {best['GiB per 1,000 dollars']:.0f} GiB as "
    f"{best['name']} ({best['year']}), {worst['GiB per 1,000 dollars']:.1f} "
    f"as {worst['name']} ({worst['year']})",
)

# %% slide="skip" folded=true
unpriced = cards[cards["launch_usd"].isna()]["name"]
print(f"left out, no confirmed launch price: {', '.join(unpriced)}")

# %% [markdown] slide="skip"
# ## By year
#
# The same by the year of launch. The newest cards of the data centre are missing: no launch price of theirs is
# confirmed.

# %% slide="skip" folded=true
consumer = priced[~priced["professional"]]
first, last = consumer.iloc[0], consumer.iloc[-1]
gain = last["GiB per 1,000 dollars"] / first["GiB per 1,000 dollars"]
plane(
    Axis("year of launch", low=2012.5, high=2026.5, write=lambda year: f"{year:.0f}"),
    Axis("GiB per 1,000 dollars"),
    spots=spots(("year", "GiB per 1,000 dollars")),
    title=f"Memory for the money, {first['year']} to {last['year']}: "
    f"{gain:.1f} times as much on cards sold for games",
)

# %% [markdown] slide="slide"
# ## Renting one
#
# Few people buy a card for one experiment. The table says what an hour of one GPU cost, on demand, on the day when
# somebody wrote it down.

# %% [markdown] slide="notes"
# These prices move from week to week: take the pattern, and look the numbers up.

# %% folded=true
rented = pd.DataFrame(RENTALS)
rented["for each GiB"] = rented["usd_per_hour"] / rented["memory_gb"]
shown = rented.drop(columns="source").rename(
    columns={"memory_gb": "GiB", "usd_per_hour": "dollars an hour"}
)
shown["dollars an hour"] = shown["dollars an hour"].map("{:.2f}".format)
shown["for each GiB"] = shown["for each GiB"].map("{:.3f}".format)
shown.set_index("device")

# %% [markdown] slide="skip"
# Sources:

# %% slide="skip" folded=true
for source, rows in rented.groupby("source", sort=False):
    names, days = (", ".join(sorted(set(rows[column]))) for column in ("device", "seen"))
    print(f"{names}: {source}, {days}")
same = rented[rented["device"] == "H100 SXM"]["usd_per_hour"]
print(f"\nthe same H100: {same.max() / same.min():.1f} times from cheapest to dearest")
card = next(card for card in devices() if card.name == "RTX 4090")
hour = rented.set_index("device")["usd_per_hour"]["RTX 4090"]
print(
    f"{card.name}: its launch price pays for {card.launch_usd / hour:,.0f} hours at {hour:.2f}"
)

# %% [markdown] slide="slide"
# ## Bandwidth and arithmetic by generation
#
# For each year, the best card so far in multiples of the best of 2013. *Half precision* computes with 16-bit numbers,
# *halves* for short (lesson 08).

# %% [markdown] slide="notes"
# From 2017 on its rate is that of *tensor cores*, units that multiply small matrices as a whole and can keep the sums
# in float32. Much of the first leap comes from comparing float32 of 2013 with halves on tensor cores, which is not the
# same arithmetic. The *sparse* rates of advertisements are left out: they count multiplications by zero that are
# skipped.

# %% slide="skip" folded=true
rates = ["float32_tflops", "float16_tflops", "tensor_tflops"]
cards["half"] = cards[rates].max(axis="columns")
kinds = {
    "half": "arithmetic, half",
    "bandwidth_gb_s": "bandwidth",
    "memory_gb": "memory",
    "float32_tflops": "float32",
}
so_far = cards.groupby("year")[list(kinds)].max().cummax()
growth = so_far / so_far.iloc[0]
final = growth.iloc[-1]

# %% folded=true
plane(
    Axis("year", low=2012.7, high=2025, write=lambda year: f"{year:.0f}"),
    Axis("times the best of 2013", log=True),
    curves=[
        Curve(kinds[kind], list(growth.index), list(growth[kind]), colour)
        for kind, colour in zip(kinds, SERIES_COLOURS, strict=True)
    ],
    title=f"Since 2013: arithmetic in halves {final['half']:.0f} times the float32 of then, "
    f"bandwidth {final['bandwidth_gb_s']:.0f}, memory {final['memory_gb']:.0f}, "
    f"float32 arithmetic {final['float32_tflops']:.0f}",
)

# %% [markdown] slide="skip"
# Arithmetic in halves outruns bandwidth, so a network in halves needs ever more operations a byte to keep a new card
# busy (lesson 01's ridge). Float32 has kept step with bandwidth. And this machine? It belongs in the table, measured; its GiB are those of the host:

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
here = measure_ceilings("cpu", seconds=0.1).as_device()
some = ("GTX Titan", "Titan X (Maxwell)", "RTX 3090", "H200 SXM")
table = pd.DataFrame([here, *(device for device in devices() if device.name in some)])
columns = {
    "memory_gb": "GiB",
    "bandwidth_gb_s": "GB/s",
    "float32_tflops": "TFLOP/s, float32",
    "tensor_tflops": "tensor",
}
table = table.set_index("name")[list(columns)].rename(columns=columns)
table.round(2).astype(object).fillna("none")

# %% [markdown] slide="slide"
# ## Without a GPU, 1: threads
#
# PyTorch uses every core of the CPU. How much do the cores bring? Say a number before you look: two threads in place of
# one, and a step takes …?

# %% tags=["nbval-ignore-output"] folded=true
threads = measure_threads(networks.small_cnn, (3, 32, 32), classes=10, batch=128, seconds=0.15)
print(threads.assign(**threads[["seconds", "spread"]].map(format_seconds)))
most = threads.index[-1]
plane(
    Axis("threads", low=0, high=most + 0.5, write=lambda n: "" if n % 1 else f"{n:.0f}"),
    Axis("times as fast as one thread", low=0.0),
    curves=[
        Curve("ideal", [0, most], [0, most], dashed=True),
        Curve("measured", list(threads.index), list(threads["speed-up"]), SERIES_COLOURS[1]),
    ],
    spots=[
        Spot("", n, gained, SERIES_COLOURS[1]) for n, gained in threads["speed-up"].items()
    ],
    title=f"A small network, batch 128: {threads['speed-up'].iloc[-1]:.1f} "
    f"times as fast on {most} threads",
)

# %% [markdown] slide="notes"
# Threads share the memory's bandwidth, and some operators run on one thread only. Where other programs use the cores,
# as on a shared machine, more threads can be slower: measure yours, and take the best.

# %% slide="skip" tags=["nbval-ignore-output"]
torch.set_num_threads(int(threads["speed-up"].idxmax()))

# %% [markdown] slide="slide"
# ## Without a GPU, 2: a frozen backbone
#
# Somebody else has trained the network on a large data set.

# %% [markdown] slide="notes"
# You keep its layers as they are, a *frozen backbone*, and train only a new last layer, the *head*. This is *transfer
# learning*.
#
# What does freezing save? A frozen parameter gets no gradient and no optimizer state. And if no gradient is needed
# below the head, nothing needs the feature maps there.


# %% slide="skip" folded=true
def vgg(trained):
    """VGG-16 at batch 64, of which the named layers are trained; all of them for None."""
    with torch.device("meta"):
        model = networks.vgg16()
    for name, layer in model.named_children():
        layer.requires_grad_(trained is None or name in trained)
    return training_step(model, (3, 224, 224), 1000, "momentum", name="VGG-16").at(64)


everything, head = vgg(None), vgg({"fc8"})

# %%
guess_frozen = predict(
    f"VGG-16, batch 64, momentum: training all of it peaks at "
    f"{everything.peak_bytes / GIB:.2f} GiB. What is the peak if all but the last dense "
    "layer is frozen?",
    unit="GiB",
)
guess_frozen

# %% folded=true
weights = 4 * 138_357_544
momentum = 4 * (4096 * 1000 + 1000)
hand = weights + momentum + 64 * 4 * (3 + 2 * 64) * 224 * 224
reveal(
    guess_frozen,
    {
        "trace": head.peak_bytes / GIB,
        "by hand": hand / GIB,
        "everything trained": everything.peak_bytes / GIB,
    },
    thoughts=[
        (
            everything.peak_bytes / GIB,
            "As much as before? A frozen layer below the head keeps no map: nobody asks for a "
            "gradient there.",
        ),
        (
            everything.peak_bytes / GIB - 2 * weights / GIB,
            "You took off gradients and momentum, and left the maps. They go too.",
        ),
        (
            weights / GIB,
            "Those are the weights. While the backbone runs, two maps are there too.",
        ),
        (
            (weights + 2 * momentum) / GIB,
            "Weights, and the head's gradient and momentum. While the backbone runs, two maps "
            "at a time are there too.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# By hand: all weights (528 MiB), the head's momentum (16 MiB), the images, and the *two* largest maps, since a layer's
# input dies when its output is there.

# %% [markdown] slide="notes"
# The peak has moved to the forward pass, where the head has no gradient yet. The trace has 16 MiB more: a buffer that
# PyTorch sets aside for cuBLAS, the library that multiplies matrices.

# %% folded=true
skyline(
    head,
    before=everything,
    before_name="everything trained",
    title=f"Head alone: {format_bytes(head.peak_bytes)} in place of "
    f"{format_bytes(everything.peak_bytes)}, and the peak is in the {head.peak_phase} pass",
)

# %% [markdown] slide="skip"
# Below the head the trace finds nothing that training keeps, except the head's own input (4,096 values an image):

# %% slide="skip"
table = head.by_layer().set_index("layer").drop(index=["fc8", "loss"], errors="ignore")
kinds_of_memory = ["saved feature maps", "gradient maps", "weight gradients"]
print(table[kinds_of_memory].sum().map(format_bytes).to_string())

# %% [markdown] slide="skip"
# *Where* you freeze decides. A gradient that has to reach the first layer passes through all the others, frozen or
# not, and needs most of their maps:

# %% slide="skip" folded=true
rows = {
    "everything trained": everything,
    "head alone (fc8)": head,
    "the three dense layers": vgg({"fc6", "fc7", "fc8"}),
    "first layer alone (conv1_1)": vgg({"conv1_1"}),
}
pd.DataFrame(
    {
        "peak": {name: format_bytes(ledger.peak_bytes) for name, ledger in rows.items()},
        "in the": {
            name: f"{ledger.peak_phase} pass, {ledger.peak_layer}"
            for name, ledger in rows.items()
        },
    }
)

# %% [markdown] slide="subslide"
# ## Run the backbone once
#
# In `eval()` mode, where no dropout acts, a frozen backbone gives the same answer to the same image in every epoch.

# %% [markdown] slide="notes"
# So run it once, store what comes out, and train the head on these *cached features*. The cell says what the head then
# needs, and how large the store is for ImageNet's images:

# %%
with torch.device("meta"):
    alone = training_step(nn.Linear(4096, 1000), (4096,), 1000, "momentum", name="head").at(64)
images = 1_281_167  # of ImageNet, 1,000 classes
print(f"head on a frozen backbone: {format_bytes(head.peak_bytes)}")
print(f"head on cached features:   {format_bytes(alone.peak_bytes)}")
print(f"the store:                 {format_bytes(images * 4096 * 4)}, on disk")

# %% [markdown]
# The price: every epoch sees the very same features.

# %% [markdown] slide="notes"
# With *data augmentation*, where an image is cropped or flipped at random each time, there are no fixed features to
# store.

# %% [markdown] slide="subslide"
# ## A trap: batch norm is not frozen by freezing its weights
#
# `requires_grad_(False)` stops gradients. It does not stop a batch norm from updating its *running statistics* whenever
# it runs in training mode, so a "frozen" backbone drifts with every batch:

# %%
torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).requires_grad_(False)
probe, batches = torch.randn(1, 3, 16, 16), 3 + 2 * torch.randn(20, 32, 3, 16, 16)


def drift(in_training):
    """How far the frozen body's answer to one image moves over 20 batches of other images."""
    net = copy.deepcopy(body)
    before = net.eval()(probe)
    net.train(in_training)
    for batch in batches:
        net(batch)
    return float((net.eval()(probe) - before).abs().max())


print(f"train(), as model.train() leaves it: moves by up to {drift(True):.1f}")
print(f"eval(), after model.train():         moves by up to {drift(False):.1f}")

# %% [markdown] slide="notes"
# So a frozen backbone takes two lines: `backbone.requires_grad_(False)`, and `backbone.eval()` after each
# `model.train()`.

# %% [markdown] slide="skip"
# ## Measure: frozen, and not trained at all
#
# AlexNet on 8 images, here, in three ways: all of it trained, the head alone trained, and *inference*, which is the
# forward pass without gradients or labels. The column "by hand" counts weights, gradients, momentum and images, and no
# maps.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
alexnet, parameters, of_head = networks.alexnet(), 61_100_840, 4096 * 1000 + 1000
target = "cuda" if torch.cuda.is_available() else "cpu"
rows = []
for name, optimizer, trained in (
    ("everything trained", "momentum", parameters),
    ("head alone", "momentum", of_head),
    ("inference", None, 0),
):
    alexnet.requires_grad_(trained == parameters)
    alexnet.fc8.requires_grad_(True)
    hand = 4 * (parameters + 2 * trained + 8 * 3 * 224 * 224)
    step = training_step(alexnet, (3, 224, 224), 1000, optimizer, target=target)
    trace = step.at(8).peak_bytes
    measured = measure_step(alexnet, (3, 224, 224), 1000, 8, optimizer).peak_bytes
    sizes = map(format_bytes, (hand, trace, measured))
    rows.append((name, *sizes, f"{measured / trace - 1:+.1%}"))

# %% slide="skip" tags=["nbval-ignore-output"]
columns = [
    "AlexNet, batch 8",
    "by hand, no maps",
    "trace",
    "measured here",
    "measured against trace",
]
pd.DataFrame(rows, columns=columns).set_index("AlexNet, batch 8")

# %% [markdown] slide="skip"
# Without maps the sum by hand is close where the head alone is trained: the weights are nearly all there is. What a
# measurement has beyond the trace is scratch memory inside kernels, which no tensor shows.

# %% [markdown] slide="slide"
# ## Does the head learn enough?
#
# Real handwritten digits, enlarged to 16 × 16 pixels. A backbone of three convolutions is trained on the digits 0 to 4.

# %% [markdown] slide="notes"
# Then the digits 5 to 9, which it has never seen, are learned in three ways: everything from scratch; the head alone on
# the frozen backbone; the head alone on a backbone of random weights, as a control.


# %% slide="skip" folded=true
def backbone():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip


def with_head(body):
    return nn.Sequential(body, nn.Linear(32 * 4 * 4, 10))


def head_alone(body):
    return with_head(copy.deepcopy(body).requires_grad_(False))


# %% tags=["nbval-ignore-output"] folded=true
x, y, test_x, test_y = digits.only(range(5))
torch.manual_seed(0)
pretrained = with_head(backbone())
optimizer = torch.optim.Adam(pretrained.parameters(), lr=3e-3)
for _ in range(5):
    for batch in torch.randperm(len(x)).split(32):
        nn.functional.cross_entropy(pretrained(x[batch]), y[batch]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
print(f"0 to 4, test images right: {digits.accuracy(pretrained, test_x, test_y):.0%}")

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
trained_on_digits = compare(
    {
        "everything, from scratch": Variant(lambda: with_head(backbone()), batch=32),
        "head alone, frozen backbone": Variant(lambda: head_alone(pretrained[0]), batch=32),
        "head alone, random backbone": Variant(lambda: head_alone(backbone()), batch=32),
    },
    epochs=5,
    seeds=(0, 1),
    data=digits.only(range(5, 10)),
)

# %% tags=["nbval-ignore-output"]
formats = dict.fromkeys(["traced peak", "measured peak"], format_bytes)
formats["epoch seconds"] = format_seconds
formats |= dict.fromkeys(["accuracy", "lowest", "highest"], "{:.1%}".format)
pd.DataFrame({name: trained_on_digits[name].map(write) for name, write in formats.items()})

# %% [markdown] slide="notes"
# The frozen backbone takes less memory and less time, and is right about as often: features learned on some digits
# serve the others. The control shows that the training of the backbone does it, not the head alone.

# %% [markdown] slide="notes"
# How well this goes depends on how alike the two tasks are; five digits and five others are very much alike. Where few
# maps are kept, a kernel's scratch memory weighs more: compare the traced peak with the measured one.

# %% [markdown] slide="slide"
# ## Without a GPU, 3: inference on the CPU
#
# Using a network is cheaper than training it. Without a backward pass about a third of the operations are left.

# %% [markdown] slide="notes"
# And no map has to wait for one, so two are alive at a time. `torch.inference_mode()` says that nothing will be
# differentiated.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
small, shape, batch = networks.small_cnn(size=64), (3, 64, 64), 64
training = measure_step_time(small, shape, 10, batch, device="cpu", seconds=0.15)
answering = measure_step_time(small, shape, 10, batch, None, device="cpu", seconds=0.15)
peaks = {
    o: training_step(small, shape, 10, o, target="cpu").at(batch).peak_bytes
    for o in ("momentum", None)
}
rows = [
    ("training step", training.step, format_bytes(peaks["momentum"])),
    ("its forward pass, maps kept", training.forward, ""),
    ("torch.inference_mode", answering.step, format_bytes(peaks[None])),
]

# %% tags=["nbval-ignore-output"] folded=true
pd.DataFrame(
    [
        (name, format_seconds(t.median / batch), format_seconds(t.spread / batch), peak)
        for name, t, peak in rows
    ],
    columns=["small CNN, 64 images of 64 × 64", "time per image", "spread", "traced peak"],
).set_index("small CNN, 64 images of 64 × 64")

# %% [markdown]
# Train on a rented or borrowed card, use the result at home.

# %% [markdown] slide="notes"
# A network that needs a large card to learn often answers on a laptop.

# %% [markdown] slide="slide"
# ## Explore
#
# **Which card do I need?**

# %% [markdown] slide="notes"
# The solid line is what the tensors take, exactly; the dashed one adds the least context. A card with a blue bar
# holds the step, on an orange one it is tight. Before each move: which card drops out next?

# %% tags=["nbval-ignore-output"]
hardware_explorer()

# %% [markdown] slide="skip"
# Try three things. What does the move from momentum to Adam cost the dense net, and what does it cost VGG-16? Which
# card suffices to train ResNet-50 with a batch of 256, and which for inference (optimizer: none)? Take bfloat16, a
# precision that lesson 08 explains: why do most cards drop out?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# 1. The dense net needs two thirds more: it is nearly all parameters, and each takes 20 bytes at the peak in place of
#    12. VGG-16 at batch 64 grows by its second average alone, about a tenth: its peak is in the backward pass, among
#    the maps, and the values that Adam's update makes come later.
# 2. Training at batch 256 takes a card of 24 GiB or more; for inference one of the smallest will do.
# 3. Bfloat16 came with the cards of 2020. Older ones compute in float16, or not in 16 bits at all.
#
# </details>

# %% [markdown] slide="skip"
# The same as a table, for a network of your own. Put it in place of this one:

# %% slide="skip"
mine = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 32 * 32, 100)
)
step = training_step(mine, (3, 32, 32), classes=100, optimizer="adam", name="mine")
fits = on_cards(step, batch=4096, devices=devices())
names = ("GTX 980", "GTX Titan", "RTX 2080", "T4", "RTX 4090")
some = [fit for fit in fits if fit.device.name in names]
pd.DataFrame(
    [
        (fit.device.name, f"{fit.device.memory_gb:g} GiB", fit.state, f"{fit.largest_batch:,}")
        for fit in some
    ],
    columns=["card", "sold with", "batch 4,096", "fits up to batch"],
).set_index("card")

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from a blog of 2014 and a column of 2020, in our words, with where they were published.

# %% [markdown] slide="notes"
# Each verdict is computed when the cell runs, from a trace or from the catalogue.

# %%
judge([13, 14, 17, 18, 47])

# %% [markdown] slide="skip"
# The other claims about hardware are in [appendix A](A_myths_and_facts.ipynb).

# %% [markdown] slide="slide"
# ## Recap
#
# 1. With momentum a parameter takes 12 bytes, with Adam 20, of which 16 stay.
# 2. Recompute a printed number.
# 3. Without a GPU: use the cores, freeze everything below the head, and let the CPU answer.

# %% [markdown] slide="notes"
# Beside the parameters a card needs room for the feature maps of the batch, which only a trace tells, and for a context
# that nobody can compute. Three products showed that 512,128,000 has one digit too many; and a card's memory is what
# programs can use, not what is sold. Where layers are frozen, put their norms into `eval()`.
#
# Now the exercise: [exercises/02_hardware.ipynb](../exercises/02_hardware.ipynb). {questions}. Save,
# then `course check 02` gives your marks.
