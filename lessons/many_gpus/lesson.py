# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 11 · Many GPUs
#
# **Two questions:** when does data parallelism lose? And how else can the work be split?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. tell from how often a weight is used whether averaging its gradient can hide, and what follows if it cannot;
# 2. average gradients of unequal parts so that the update is the whole batch's;
# 3. count what each card keeps under ZeRO and FSDP;
# 4. choose between splitting the samples and splitting the units of a layer;
# 5. say what a training script needs for several cards, and whether it is still the same training.
#
# About 115 minutes without *Further*, and {minutes} for the exercise. It builds on accumulation (lesson 07) and the
# roofline (01). No GPU is needed: two processes on this machine stand in for two cards. A step's time is modelled, as in
# lesson 01.

# %% slide="skip" folded=true
import inspect
from dataclasses import replace

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import Axis, Spot, plane, side_by_side
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.memory import PHASES, ROLES
from course_utils.trace import training_step
from course_utils.units import MIB, format_seconds
from lessons.claims import judge
from lessons.many_gpus.card_lanes import card_lanes
from lessons.many_gpus.distributed import jobs, run, train
from lessons.many_gpus.explorer import cards_explorer
from lessons.many_gpus.links_figure import link_rates
from lessons.many_gpus.ring_figure import ring_steps
from lessons.shared import digits
from lessons.shared.language_steps import language_step
from lessons.shared.parallel import (
    DATA,
    MIXED,
    STAGES,
    UNITS,
    all_reduce_seconds,
    buckets,
    bytes_by_layer,
    on_cards,
    ring_bytes,
    ring_states,
    sent_bytes,
    sharded,
    state_bytes,
)
from lessons.shared.role_bars import role_bars

PCIE_2, PCIE_3, NVLINK = "PCIe 2.0 x16", "PCIe 3.0 x16", "NVLink 2"
FORWARD, BACKWARD, UPDATE = range(len(PHASES))


def traced(name, optimizer="momentum"):
    network = networks.NETWORKS[name]
    with torch.device("meta"):  # shapes without numbers
        model = network.build()
    return training_step(model, network.input_shape, network.classes, optimizer, name=name)


steps = {name: traced(name) for name in networks.NETWORKS}


def endless(link):
    """The same link with no end of bytes a second: what waits for it, waits no longer."""
    return replace(hardware.link(link), nominal_gb_s=1e9)


# %% [markdown] slide="slide"
# ## Predict
#
# *Data parallelism*: each card has a copy of the network and its own samples.

# %% [markdown] slide="notes"
# After the backward pass the gradients are averaged over the cards, and every card makes the same update. How many
# times as many samples a second they train on as one card alone is the *speed-up*. Here are four GTX Titans of 2013 in
# one machine. Each computes 3.02 TFLOP/s and has 128 samples. PCIe 2.0 joins them; we assume 6 GB/s from each card to
# the next.

# %%
guess = predict(
    "The dense network of lesson 03, 52 million weights. How many times as many samples a "
    "second do four cards train on as one card alone?",
    unit="times",
)
guess

# %% [markdown] slide="slide"
# ## By hand: the ring
#
# Every card has a gradient, and every card needs the mean of all. If one card collected the
# gradients of all and sent the mean back, its link would carry *p* − 1 gradients each way.

# %% [markdown] slide="notes"
# Instead the cards form a *ring*. Each cuts its gradient into *p* chunks and sends one chunk at a time to its
# neighbour. It takes *p* − 1 steps until every sum is complete, and *p* − 1 more until every card has every sum. This
# is a *ring all-reduce*. A card sends
#
# **2 · (*p* − 1) / *p***
#
# gradients: one with 2 cards, one and a half with 4, and less than two however many cards there are.

# %% slide="subslide"
ring_steps(
    ring_states(4),
    title="Six steps of a quarter each: every card sends 1.5 times the gradient",
)

# %% [markdown] slide="notes"
# In our model a ring's bytes travel at three quarters of the link's rate on paper, and each step takes another 2.8 µs
# (see *Further*). *PCIe* joins cards to their machine, *NVLink* NVIDIA's cards to one another, *Ethernet* and
# *InfiniBand* machines. A hollow circle marks a rate that others measured:

# %% slide="subslide" folded=true
between = {
    "network between machines": ["Ethernet 10 Gbit/s", "InfiniBand QDR", "InfiniBand NDR"],
    "PCIe": ["PCIe 2.0 x16", "PCIe 3.0 x16", "PCIe 4.0 x16", "PCIe 5.0 x16"],
    "NVLink": ["NVLink 2", "NVLink 3", "NVLink 4", "NVLink 5"],
}
drawn = {head: [hardware.link(name) for name in names] for head, names in between.items()}
drawn["a card's own memory"] = [hardware.device(name) for name in ("V100", "H100 SXM")]
pcie, nvlink, h100 = drawn["PCIe"][-1], drawn["NVLink"][-2], drawn["a card's own memory"][-1]
link_rates(
    drawn,
    title=f"NVLink 4 carries {nvlink.bytes_per_s / pcie.bytes_per_s:.0f} times what PCIe 5 "
    f"does, and an H100's own memory {h100.reached_bytes_per_s() / nvlink.bytes_per_s:.0f} "
    "times as much again",
)

# %% [markdown] slide="skip"
# Now the dense net. Its 52,136,032 gradients of 4 bytes go over the link 1.5 times. The computation is 2 operations a
# weight and sample forward and twice that backward (less for the first layer, whose input needs no gradient). The
# update with momentum reads or writes five numbers a weight.

# %%
gradient_bytes = 4 * 52_136_032
on_the_link = 1.5 * gradient_bytes / 6e9
layers = [(9000, 4000), (4000, 4000), (4000, 32)]
passes = [2, 3, 3]  # products a layer: forward, gradient of the weights, gradient of the input
work = sum(2 * 128 * a * b * times for (a, b), times in zip(layers, passes, strict=True))
titan = hardware.device("GTX Titan")
update = 5 * gradient_bytes / titan.reached_bytes_per_s()
computing = work / titan.reached_flops_per_s() + update
print(f"link: {format_seconds(on_the_link)}")
print(f"forward, backward and update: {format_seconds(computing)}")

# %% [markdown] slide="slide"
# The trace knows when each gradient is ready. PyTorch collects them in *buckets* of 25 MiB, the first of 1, and sends
# each while the backward pass goes on.

# %% [markdown] slide="notes"
# (On a real card the exchange also slows the backward pass down. Here it costs the computation nothing.)

# %%
dense = on_cards(steps["52 M dense net"].at(128), "GTX Titan", PCIE_2, 4)

# %% folded=true
by_hand = 4 * computing / (computing + on_the_link)
reveal(
    guess,
    {"trace": dense.speed_up, "by hand, one after the other": by_hand},
    thoughts=[
        (4.0, "Four times the cards. And the link between them?"),
        (2.0, "Half of it lost? The link takes much longer than the computation."),
        (3.0, "A quarter of it lost? The link takes much longer than the computation."),
    ],
)

# %% [markdown] slide="subslide"
# Four cards are slower than one. Take the link away, and see:

# %%
free = on_cards(steps["52 M dense net"].at(128), "GTX Titan", endless(PCIE_2), 4)
print(f"dense net: {format_seconds(dense.seconds)} a step,", end=" ")
print(f"of which the card waits {format_seconds(dense.idle_seconds)}")
print(f"with an infinitely fast link: {free.speed_up:.2f} times as fast as one card")

# %% [markdown]
# Now AlexNet on the same cards, with the same 128 images each. It has *more* weights to send.

# %% slide="slide" folded=true
alexnet = on_cards(steps["AlexNet"].at(128), "GTX Titan", PCIE_2, 4)
card_lanes(
    {"dense net, 128 a card": dense, "AlexNet, 128 a card": alexnet},
    title=f"AlexNet sends {alexnet.sent_bytes / dense.sent_bytes:.1f} times as much as the "
    f"dense net, and is {alexnet.speed_up:.2f} times as fast on four cards",
)

# %% [markdown] slide="notes"
# One card's step. Pale on the link: sent while the card computes. Solid: the card waits.

# %% [markdown] slide="slide"
# ## How often is a weight used?
#
# A dense weight is used once for each sample, a convolution's at each position of the map. Its gradient is sent once.
# Each of *p* cards computes R operations a second; its link carries L bytes a second.
#
# | a weight is used in a step, on average | then, in steps of arithmetic alone |
# |---|---|
# | at least *n* = 2 · (*p* − 1)/*p* · R/L times | **averaging has time to hide** |
# | less than *n* / (1.5 *p* − 0.5) times | ***p* cards are slower than one** |

# %% [markdown] slide="notes"
# The first row: in the backward pass each use of a weight takes 4 operations, at R operations a second. The gradient
# of the weight is 4 bytes, sent 2 (p − 1)/p times, at L bytes a second. (In 16 bits it has 2 bytes: (p − 1)/p · R/L,
# where R is that of 16 bits.) It is the R/L of lesson 09, with another link in it.
#
# For the second row, measure time in backward passes. A forward pass is half of one, so a step on one card takes 1.5,
# and the samples of *p* cards take one card 1.5 *p*. The *p* cards need 0.5 for the forward pass, and then the exchange. They lose if that is
# more than 1.5 *p*, so if the exchange takes longer than 1.5 *p* − 0.5. For four cards that is 5.5.
#
# The first layer's weights take 2 operations, as its input needs no gradient, and need twice the uses. All this
# supposes passes of nothing but arithmetic at R, and no update. Where a pass takes longer, fewer uses are enough.

# %% slide="skip" folded=true
def uses(ledger):
    """How often a weight is used in a step, on average: forward operations / 2 / weights."""
    weights = sum(ledger.tape.layer_parameters.values())
    return ledger.by_layer()["flops"].sum() / (2 * weights)


def needed(device, link, cards, precision="float32"):
    rate, over = hardware.device(device), hardware.link(link)
    each = 2 if precision == "float32" else 1
    return each * (cards - 1) / cards * rate.reached_flops_per_s(precision) / over.bytes_per_s


# %% tags=["change"]
# Change network, batch a card, number of cards, device or link, and run again.
name, batch, cards, device, link = "52 M dense net", 128, 4, "V100", "PCIe 3.0 x16"


ledger = steps[name].at(batch)
print(f"used {uses(ledger):,.0f} times; needed {needed(device, link, cards):,.0f}")
print(f"{cards} cards: {on_cards(ledger, device, link, cards).speed_up:.2f} times as fast")

# %% [markdown] slide="notes"
# Five networks, four batch sizes and three links, sixty runs of the model on four V100s. Does this one number tell in
# which of them four cards are slower than one? One colour is one network.

# %% slide="slide" folded=true
spots, gains, lose = [], {}, 1 / (1.5 * 4 - 0.5)
named = {  # one point of each network
    "AlexNet": (8, PCIE_3),
    "VGG-16": (8, NVLINK),
    "GoogLeNet": (128, "Ethernet 10 Gbit/s"),
    "ResNet-50": (512, NVLINK),
    "52 M dense net": (8, NVLINK),
}
colours = [*SERIES_COLOURS, "#777777"][: len(steps)]
for (name, step), colour in zip(steps.items(), colours, strict=True):
    for batch in (8, 32, 128, 512):
        ledger = step.at(batch)
        alone = predict_step(ledger, "V100")
        for link in ("Ethernet 10 Gbit/s", PCIE_3, NVLINK):
            ratio = uses(ledger) / needed("V100", link, 4)
            gain = on_cards(ledger, "V100", link, 4, alone=alone).speed_up
            gains[f"{name}, {batch} a card, {link}"] = ratio, gain
            label = name if named[name] == (batch, link) else ""
            spots.append(Spot(label, ratio, 25 * gain, colour))
twice = min(gain for ratio, gain in gains.values() if ratio >= 2) / 4
left = [what for what, (ratio, _) in gains.items() if ratio < lose]
slower = [what for what, (_, gain) in gains.items() if gain < 1]
plane(
    Axis("times a weight is used / times needed", log=True),
    Axis("% of a speed-up of 4", low=0, high=105),
    [],
    spots,
    title=f"Below {lose:.2f}, {len({*left} & {*slower})} of {len(left)} runs are slower than "
    f"one card; from 2 on, all have at least {int(100 * twice)} %",
    limits={"one card": 25},
    marks={"break-even": lose, "enough": 1.0},
)

# %% folded=true
rest = {*slower} - {*left}
print(f"right of break-even, slower than one card: {len(rest)} of {len(gains) - len(left)}")
for what in {*left} - {*slower}:
    print(f"left of it and no slower: {what}, {gains[what][1]:.2f} times as fast")
swift = replace(hardware.device("V100"), bandwidth_gb_s=1e9)
quick = on_cards(steps["52 M dense net"].at(8), swift, NVLINK, 4).speed_up
print(f"the same with an infinitely fast memory on each card: {quick:.2f} times as fast")
ratio = uses(steps["52 M dense net"].at(128)) / needed("GTX Titan", PCIE_2, 4)
print(f"the dense net of the first guess: used {ratio:.2f} times as often as needed")
ledger, link = steps["GoogLeNet"].at(128), "Ethernet 10 Gbit/s"
sizes = " and ".join(f"{bucket.size / MIB:.0f}" for bucket in buckets(ledger))
small = on_cards(ledger, "V100", link, 4, bucket_bytes=MIB).speed_up
print(f"GoogLeNet, 128 a card, {link}: buckets of {sizes} MiB;")
print(f"with buckets of 1 MiB {25 * small:.1f} % of a speed-up of 4")

# %% [markdown] slide="notes"
# So left of *break-even* data parallelism loses in all these runs but one, whose card mostly waits for its own memory.
# (On faster cards launches slow the single card, too, so that four can win.) Between the lines these runs gain something.
# (A large first layer moves *break-even* to the right: the dense net's 256 samples a V100 over PCIe 3.0 have a ratio of
# 0.19, and four cards lose.) Right of *enough* something is still lost: the last bucket has no backward pass left to hide
# behind. GoogLeNet's gradients make two buckets; the second holds most of them and is complete only when the backward
# pass ends. Twice the batch is twice the uses; the number of weights is not in the rule.

# %% [markdown] slide="slide"
# ## A language model on eight H100s
#
# Llama-3.2-1B in bfloat16: 1.24 billion weights. Each of eight H100s has one text of 2,048 tokens.

# %% [markdown] slide="notes"
# A weight of its layers is used once for each token. (Weights, gradients and AdamW's state are all in bfloat16 here,
# to keep the sum short; lesson 08 says what that risks.) Suppose that the cards had PCIe 5.0 alone, without NVLink.

# %% folded=true
llama = language_step("Llama-3.2-1B", 2048, numbers="bfloat16")
one = llama.at(1)
h100, pcie_5 = hardware.device("H100 SXM"), hardware.link("PCIe 5.0 x16")
alone = predict_step(one, h100, "bfloat16")
seconds = [alone.seconds[one.tape.event_phase == phase].sum() for phase in range(3)]
gradients = 2 * sum(one.tape.layer_parameters.values())
phases = zip(PHASES, seconds, strict=True)
print("one card:", ", ".join(f"{what} {format_seconds(took)}" for what, took in phases))
print(f"gradients: {gradients / 1e9:.2f} GB; PCIe 5.0: {pcie_5.bytes_per_s / 1e9:.1f} GB/s")

second = predict("What is the speed-up of the eight over one?", unit="times")
second

# %% slide="subslide" folded=true
pcie = on_cards(one, h100, pcie_5, 8, alone=alone)
link = ring_bytes(gradients, 8) / pcie_5.bytes_per_s
slowest = seconds[FORWARD] + max(seconds[BACKWARD], link) + seconds[UPDATE]
reveal(
    second,
    {"trace": pcie.speed_up, "by hand": 8 * alone.total_seconds / slowest},
    thoughts=[
        (8.0, "Large products are what a GPU does best, but tensor cores finish them so fast "
         "that the link falls behind."),
        (7.0, "It is close to that on NVLink. PCIe is a seventh as fast."),
    ],
)

# %% [markdown] slide="subslide"
# Sending takes longer than the whole backward pass. Would the rule have told us?

# %% folded=true
asked = needed(h100.name, pcie_5.name, 8, "bfloat16") / uses(one)
print(f"by the rule the link takes {asked:.1f} times as long as the backward pass,", end=" ")
print(f"here it takes {link / seconds[BACKWARD]:.1f} times as long")
no_wait = replace(h100, bandwidth_gb_s=1e9)
for what, card in (
    ("as it is", h100),
    ("with an infinitely fast memory", no_wait),
    ("and no time for launches", replace(no_wait, launch_seconds=0.0)),
):
    times = predict_step(one, card, "bfloat16").seconds
    took = format_seconds(times[one.tape.event_phase == BACKWARD].sum())
    print(f"backward pass, {what}: {took}")

# %% [markdown] slide="notes"
# Yes, but it is too pessimistic here. More than half of this backward pass is not arithmetic: kernels wait for the
# card's own memory, and each has to be launched. That gives the link more time to hide in.

# %% folded=true
rows, waits = [], {}
for batch in (1, 2, 4, 8):
    ledger = llama.at(batch)
    alone = predict_step(ledger, h100, "bfloat16")
    row = [f"{batch * 2048:,} tokens a card"]
    waits[row[0]] = on_cards(ledger, h100, pcie_5, 8, alone=alone).idle_seconds
    for link in ("NVLink 4", "PCIe 5.0 x16", "InfiniBand NDR", "Ethernet 10 Gbit/s"):
        enough = uses(ledger) / needed("H100 SXM", link, 8, "bfloat16")
        gain = on_cards(ledger, h100, link, 8, alone=alone).speed_up
        row.append(f"{gain:.1f}{' *' if enough >= 1 else ''}")
    rows.append(row)
columns = [
    "speed-up on 8 H100s",
    "NVLink 4",
    "PCIe 5.0",
    "InfiniBand NDR",
    "Ethernet 10 Gbit/s",
]
pd.DataFrame(rows, columns=columns).set_index(columns[0])

# %% [markdown] slide="notes"
# An asterisk marks where the rule says that averaging has time to hide. We assume a network adapter for each card.
# (Our model adds every launch. Real launches run ahead of the kernels, so some of that time may vanish.) More tokens a
# card can replace a faster link, if they fit in memory: PCIe 5.0 does well from 8,192 tokens on. Over 10 Gbit/s even
# 16,384 are too few. But PCIe 5.0 stays below 8 with 16,384 as well. What does the card still wait for?

# %% folded=true
for tokens, seconds in waits.items():
    print(f"PCIe 5.0, {tokens}: the card waits {format_seconds(seconds)}")
layer, weights = max(one.tape.layer_parameters.items(), key=lambda item: item[1])
sent = ring_bytes(2 * weights, 8) / pcie_5.bytes_per_s
print(f"{layer}: {weights / 1e6:.0f} million weights,", end=" ")
print(f"{format_seconds(sent)} of the last {format_seconds(seconds)}")

# %% [markdown] slide="notes"
# From 8,192 tokens on the wait no longer shrinks. It is the last bucket: the embedding, which serves as the output
# layer too, is the first layer and the largest. Its gradient is ready last, and no backward pass is left to hide it.

# %% [markdown] slide="slide"
# ## Is it still the same training?
#
# Two real processes on this machine, each with half of 64 digits. They talk over *gloo*, PyTorch's library for machines
# without GPUs, and average in a ring.

# %% [markdown] slide="notes"
# Is their average the gradient of one process on all 64?

# %% folded=true
images, labels, _, _ = digits.images(side=8)
x, y = images[:64], labels[:64]
whole = jobs.gradient(x, y)
told = run(
    jobs.averaged_gradients, processes=2, images=x, labels=y, shards=[[32, 32], [48, 16]]
)
halves, uneven = told[0]


def off(gradient):
    return float((gradient - whole).norm() / whole.norm())


print(
    f"sent by a process: {halves['sent']:,} bytes;"
    f" by hand: {ring_bytes(4 * whole.numel(), 2):,.0f}"
)
print(
    "its own half differs from the whole:",
    "by rounding" if off(halves["own"]) < 1e-5 else "truly",
)
print(
    "the average of the two differs:     ",
    "by rounding" if off(halves["average"]) < 1e-5 else "truly",
)

# %% [markdown] slide="skip"
# In the second experiment the parts are 48 and 16 samples. The mean of two means is not the mean of all: a sample of
# the small part counts three times as much.

# %% slide="skip" tags=["nbval-ignore-output"]
print(f"the mean of means is off by {100 * off(uneven['average']):.1f} %")
print(f"weighted by samples, by a share of {off(uneven['weighed']):.0e}: rounding")

# %% [markdown] slide="skip"
# PyTorch's `DistributedDataParallel`, *DDP*, takes the mean of means, whatever the sizes. If the last part is smaller,
# weight the loss: question 5 of the exercise.

# %% [markdown] slide="subslide"
# The update is that of the *global batch*, a card's batch times the cards. Three things to watch: the first two change
# what is learned, the third costs time.

# %% [markdown] slide="notes"
# - **Batch norm** takes mean and variance over the samples that a card has, not over all. Two halves are then not the
#   whole, as lesson 07 showed for micro-batches. `torch.nn.SyncBatchNorm` exchanges the sums, once forward and once backward
#   in each such layer.
# - **The global batch grows** with the cards, and there are fewer updates in an epoch. Goyal and others (*Accurate, large
#   minibatch SGD*, 2017) multiply the learning rate by as much as the batch has grown, and begin with a warm-up; for
#   ResNet-50 that held up to 8,192 images.
# - **Accumulated micro-batches** need one exchange an update, not one each: run all but the last under DDP's `no_sync()`.

# %% [markdown] slide="slide"
# ## When it does not fit
#
# Under data parallelism every card keeps everything. *ZeRO*, the zero redundancy optimizer (Rajbhandari et al., 2020),
# stays data parallel and shares out what is the same on all cards:
#
# | stage | shared out over the cards | a card sends, in all-reduces of the gradients |
# |---|---|---|
# | 0 | nothing | 1 × |
# | 1 | optimizer state | 1 × |
# | 2 | and gradients | 1 × |
# | 3, *FSDP* | and parameters, gathered layer by layer when they run | 1.5 × |

# %% [markdown] slide="notes"
# PyTorch calls stage 3 *fully sharded data parallel*, FSDP. DDP keeps the gradients twice, once more in its buckets,
# unless it is made with `gradient_as_bucket_view=True`.
#
# By hand, the paper's example: 7.5 billion parameters, half precision, Adam (2 + 2 + 12 bytes each), 64 cards, in the
# paper's unit:

# %%
psi = 7.5e9
for stage in range(4):
    kept = state_bytes(2 * psi, 2 * psi, 12 * psi, 64, stage)
    share = sent_bytes(1.0, 64, stage) / sent_bytes(1.0, 64, 0)
    print(f"stage {stage}: {kept / 1e9:6.1f} GB a card, sends {share:.1f} ×")

# %% slide="subslide" folded=true
adam = traced("52 M dense net", "adam").at(128)
bars = {"one card": adam.by_role().to_dict()}
for stage in (1, 2, 3):
    alive = sharded(adam, 4, stage)
    bars[f"4 cards, stage {stage}"] = dict(
        zip(ROLES, alive[alive.sum(axis=1).argmax()].tolist(), strict=True)
    )
totals = {name: sum(shares.values()) for name, shares in bars.items()}
role_bars(
    bars,
    title=f"The dense net with Adam: one card needs {totals['one card'] / MIB:,.0f} MiB; "
    f"under stage 3 each of four needs {totals['4 cards, stage 3'] / MIB:,.0f}",
)

# %% [markdown] slide="notes"
# While a layer runs, each card holds all of it, and all of its gradient until that is summed. That is why the dark blue
# of stage 3 is still long, and the gradients of stages 2 and 3: `fc1`'s are there in full. From stage 2 on the peak is
# no longer in the update, and Adam's scratch, the yellow band, is gone from it. Feature maps are not shared out: they
# belong to a card's own samples. So what does stage 3 save where maps are most of the peak?

# %%
for name in ("52 M dense net", "VGG-16"):
    step = traced(name, "adam").at(64)
    peak = int(sharded(step, 4, 3).sum(axis=1).max())
    print(
        f"{name:>14}, Adam, batch 64 a card, stage 3 on 4 cards: "
        f"{100 * (peak / step.peak_bytes - 1):+.0f} % at the peak"
    )

# %% [markdown] slide="skip"
# From one card to several, a script usually has: `init_process_group` and `torch.cuda.set_device`; its own rows of
# each batch for each process (`DistributedSampler`, with `set_epoch` before each epoch); a mean of the losses that it
# reports; files saved by one process; and a model wrapped like this:

# %% slide="skip"
print(inspect.getsource(train.wrapped))

# %% [markdown] slide="skip"
# The whole script is `lessons/many_gpus/distributed/train.py`. (It names its device, cuts its rows by hand, and saves
# nothing.) In a terminal:
#
# ```
# torchrun --standalone --nproc-per-node 2 -m lessons.many_gpus.distributed.train --mode ddp fsdp
# ```
#
# Here both modes run for real on two processes, 64 digits a step, beside one process with the same 64.

# %% folded=true
options = {"steps": 8, "batch": 64, "images": images, "labels": labels}
both = run(train.train_in, processes=2, modes=("ddp", "fsdp"), **options)[0]
(losses, kept), *_ = run(train.train_in, 1, modes=("single",), **options)[0].values()
rows = [("one process", f"{losses[0]:.3f}", f"{losses[-1]:.3f}", "", f"{kept:,}")]
for mode, (its_losses, its_bytes) in both.items():
    same = max(abs(a / b - 1) for a, b in zip(its_losses, losses, strict=True)) < 1e-4
    equal = "equal to 4 digits" if same else "different"
    rows.append(
        (
            mode.upper(),
            f"{its_losses[0]:.3f}",
            f"{its_losses[-1]:.3f}",
            equal,
            f"{its_bytes:,}",
        )
    )
columns = ["", "first loss", "last loss", "all losses", "bytes kept: parameters and momentum"]
pd.DataFrame(rows, columns=columns).set_index("")

# %% [markdown] slide="notes"
# FSDP keeps half of parameters and momentum on each process, with the same losses. This is FSDP's second version,
# FSDP2: `torch.distributed.fsdp.fully_shard`.

# %% [markdown] slide="slide"
# ## Which way to split?
#
# A second way keeps the samples together and cuts the weights: *tensor parallelism*. Each card has a share of the
# *units* of a layer.

# %% [markdown] slide="notes"
# (A third, by *stages*, is in *Further*.) For its units a card needs the whole input, of all samples: the cards
# *gather* it before the layer; after the layer's backward they add up the gradient of that input and scatter it. On
# two processes, two dense layers, half of the units each:

# %%
parts = run(jobs.split_layers, processes=2, images=x.flatten(1), labels=y)
alone = jobs.whole_layers(x.flatten(1), y)
for i, gradient in enumerate(alone["gradients"]):
    joined = torch.cat([part["gradients"][i] for part in parts])
    shape = tuple(parts[0]["gradients"][i].shape)
    print(f"layer {i + 1}: each has {shape} of {tuple(gradient.shape)};", end=" ")
    print("together equal to one process:", torch.allclose(joined, gradient, atol=1e-6))
print("the same loss:", abs(parts[0]["loss"] - alone["loss"]) < 1e-6)

# %% [markdown] slide="subslide"
# Which way sends less? A dense layer of *n* inputs and *m* units, *b* samples a card, *p* cards:
#
# | | numbers a card sends |
# |---|---|
# | by data: the gradient in a ring | 2 (*p* − 1)/*p* · *n* · *m* |
# | by units: the input gathered, its gradient scattered | 2 (*p* − 1) · *b* · *n* |

# %% [markdown] slide="notes"
# By data, what is sent has the size of the weights; by units, that of the samples' inputs. In a gather each card sends
# on *p* − 1 blocks of *b* · *n* numbers. That is less than by data while **p · b < m**: while the whole batch has
# fewer samples than the layer has units. In a transformer the samples of a layer are its tokens. Fewer bytes need not
# mean less time: a gradient can hide behind the backward pass, but a layer waits for what a split by units gathers.

# %% [markdown] slide="subslide"
# **In pairs.** *Megatron-LM* (Shoeybi and others, 2019) splits a transformer's layers two by two, the first by its
# units, the second by its inputs. What lies between them is not gathered.

# %% [markdown] slide="notes"
# Every card has all tokens, and there are two all-reduces a pair: one in the forward pass, of the second layer's
# sums, and one in the backward pass, of the gradient of the first layer's input. Here is the feed-forward block of
# Llama-3.2-1B, three matrices of 2,048 × 8,192, two of which read the same input:

# %% tags=["change"]
# Change the cards and the tokens a card, and run again: who sends least with 256 tokens?
p, b = 8, 2048
h, m = 2048, 8192  # inputs and units

counts = {
    "by data": 2 * (p - 1) / p * 3 * h * m,
    "by units, layer by layer": 2 * (p - 1) * b * (h + m),
    "by units, in a pair": 2 * (2 * (p - 1) / p * (p * b) * h),
}
for way, numbers in counts.items():
    print(f"{way:>24}: {numbers / 1e6:,.0f} million numbers a card")

# %% [markdown] slide="notes"
# With a long text on each card data parallelism sends least; with 256 tokens a card it sends most, and the pair least.
# The pair is for few tokens, for weights that do not fit
# one card, or for a global batch that may not grow.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what do more cards bring, and how should the work be split?**

# %% [markdown] slide="notes"
# Before each move say whether the card will wait. (*One weird trick* splits convolutions by data and dense layers by
# units; see *Further*.)

# %% tags=["nbval-ignore-output"]
cards_explorer()

# %% [markdown] slide="notes"
# Try three things. Find the smallest batch at which eight K40s still train ResNet-50 seven times as fast. From which
# batch on does data parallelism overtake one weird trick for AlexNet? Then take a faster device, and leave the link.

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# A batch of 4 a card is enough for ResNet-50, whose weights are used often. For AlexNet on four K40s the two schemes
# are level at 64 a card, and data parallelism is ahead from 128 on. A faster device computes in less time and
# exchanges gradients in as much as before, so that less of it can be hidden.
#
# </details>
#
# And three claims of 2014, in our words. The verdicts are computed in `lessons/many_gpus/claims.py`; the others on many
# cards are in Appendix A.

# %% slide="slide"
judge([4, 5, 9])

# %% [markdown] slide="slide"
# ## What to do, then?
#
# | what is wrong | do this | mind |
# |---|---|---|
# | it fits, and is slow | data parallelism, or an experiment on each card | how often weights are used; the copy in DDP's buckets |
# | maps do not fit | a smaller batch a card, or lessons 08 to 10 | sharding helps little: maps belong to a card's own samples |
# | optimizer state does not fit | ZeRO's stage 1 or 2 | sends no more than data parallelism |
# | parameters do not fit | FSDP | sends half as much again: a fast link |
# | one layer does not fit | split by units | layers wait for what is gathered: a fast link |

# %% [markdown] slide="notes"
# One text too long for a card can be split along its length (*sequence* or *context parallelism*, not in this lesson).
# Splitting by units is also for a global batch that may not grow: Megatron-LM does so inside a machine, where the link
# is fast, and cuts the network into *stages* (a pipeline, see *Further*) between machines. (PyTorch's
# `ZeroRedundancyOptimizer` beside DDP is stage 1 and sends half as much again.)

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Averaging can hide if weights are used *n* = 2 (*p* − 1)/*p* · R/L times a step. Below *n* / (1.5 *p* − 0.5) times, one
#    card is faster.
# 2. ZeRO and FSDP share out weights, gradients and optimizer state, not maps.
# 3. By units, dense layers with more units than the batch has samples send less.

# %% [markdown] slide="notes"
# That is for float32 and steps of arithmetic alone; other work moves both limits down. In a ring all-reduce each card
# sends 2 (*p* − 1)/*p* times the gradient.
#
# Now the exercise: [exercises/11_many_gpus.ipynb](../exercises/11_many_gpus.ipynb). {questions}. Save,
# then `course check 11` gives your marks.

# %% [markdown] slide="skip"
# ## Further: a pipeline, the model of a link, one weird trick, by units
#
# **A pipeline** cuts the network into *stages*, some layers on each card, and hands *micro-batches* on from stage to
# stage. Before its first micro-batch arrives, and after its last has left, a card is idle: the pipeline's *bubble*.
#
# By hand: *p* equal stages and *m* micro-batches. A card is busy for *m* slots forward and as many backward; the step
# takes *m* + *p* − 1 of each. So it is idle for
#
# **(*p* − 1) / (*m* + *p* − 1)**
#
# of the step. In the model there are as many micro-batches as cards. Sixteen equal convolutions, four stages:

# %% slide="skip" folded=true
with torch.device("meta"):
    equal = nn.Sequential(
        *[nn.Conv2d(64, 64, 3, padding=1) for _ in range(16)],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
even = training_step(equal, (64, 56, 56), 10, "sgd", name="16 equal layers").at(64)
print(f"by hand, p = m = 4: {100 * 3 / 7:.0f} %; with m = 32: {100 * 3 / 35:.0f} %")
for name, step in (("16 equal layers", even), ("AlexNet", steps["AlexNet"].at(128))):
    for what, link in ((PCIE_3, hardware.link(PCIE_3)), ("infinitely fast", endless(PCIE_3))):
        staged = on_cards(step, "V100", link, 4, STAGES)
        idle = 100 * staged.idle_seconds / staged.seconds
        print(f"{name}, {what}: the busiest of 4 V100s idles for {idle:.0f} %")

# %% [markdown] slide="skip"
# Idle time that remains with an infinitely fast link is the bubble. The busiest card is idle the least, so with
# AlexNet's unequal stages it is below the 43 % of equal ones. More micro-batches make the bubble smaller, at the price
# of smaller products and more launches.

# %% [markdown] slide="skip"
# **The model of a link.** A published sweep on eight H200s (stas00/ml-engineering on GitHub, 2026) gives the rate of
# an all-reduce for many sizes. The model's 2.8 µs a step are from the sweep's size of 32 KiB. At 1 MiB they are 39 of
# 45 µs, so the first row tests little.

# %% slide="skip"
SWEEP = {1: 39.93, 4: 107.16, 16: 219.89, 64: 346.51, 256: 436.15}  # MiB -> GB/s a card sends
rows = []
for mib, rate in SWEEP.items():
    published = ring_bytes(mib * MIB, 8) / (rate * 1e9)
    modelled = all_reduce_seconds(mib * MIB, 8, hardware.link("NVLink 4"))
    error = f"{100 * (modelled / published - 1):+.0f} %"
    rows.append((f"{mib} MiB", f"{1e6 * published:,.0f}", f"{1e6 * modelled:,.0f}", error))
pd.DataFrame(rows, columns=["size", "published, µs", "modelled, µs", "error"]).set_index(
    "size"
)

# %% [markdown] slide="skip"
# At 256 MiB the model is a third too slow. Our three quarters of the paper rate may be too low, or the switch between
# the cards does the adding; the sweep does not say which. A layer larger than a bucket is sent in one piece, such as
# Llama's embedding: on NVLink its speed-ups may be too low. We found no confirmed latency of PCIe, so the model takes
# NVLink's; small networks on PCIe may look better here than they are.
#
# **One weird trick.** For a convolution on a map of *H* × *W* with kernels of *k* × *k* a split by units sends less
# while *p* · *b* · *H* · *W* < *m* · *k*². Layer by layer:

# %% slide="skip" folded=true
table = bytes_by_layer(steps["AlexNet"].at(128), 4)
rows = [
    (name, f"{data / MIB:,.1f}", f"{units / MIB:,.1f}", "data" if data <= units else "units")
    for name, (data, units) in table.items()
]
columns = ["AlexNet, 128 a card, 4 cards", "by data, MiB", "by units, MiB", "sends less"]
pd.DataFrame(rows, columns=columns).set_index(columns[0])

# %% [markdown] slide="skip"
# `conv1` reads the images, which every card loads by itself, but its output would have to be gathered for `conv2`. So
# do both: convolutions by data, dense layers by units. That is Krizhevsky's *One weird trick for parallelizing
# convolutional neural networks* (2014). On four K40s with 128 images each:

# %% slide="skip" folded=true
found = {
    scheme: on_cards(steps["AlexNet"].at(128), "Tesla K40", PCIE_2, 4, scheme)
    for scheme in (DATA, UNITS, MIXED)
}
late = on_cards(steps["AlexNet"].at(128), "Tesla K40", PCIE_2, 4, overlap=False)
side_by_side(
    {
        "by data, sent after the backward pass": round(late.speed_up, 2),
        "by data, sent during it": round(found[DATA].speed_up, 2),
        "by units": round(found[UNITS].speed_up, 2),
        "one weird trick": round(found[MIXED].speed_up, 2),
    },
    unit="times",
    title=f"The trick sends {100 * found[MIXED].sent_bytes / found[DATA].sent_bytes:.0f} % of "
    "the bytes; all, sent during the backward pass, take no longer",
)

# %% [markdown] slide="skip"
# In this model a dense layer cannot begin before its input is gathered, so nearly all of the trick's few bytes are
# waited for. Data parallelism sends five times as many and hides nearly all. (We found no measurement of both on one
# machine.)

# %% [markdown] slide="skip"
# **A split by units divides one more thing.** The dense net again, 128 samples a card, now on four V100s with
# NVLink. One card's step:

# %% slide="skip" folded=true
ledger = steps["52 M dense net"].at(128)
alone = predict_step(ledger, "V100")
passes = alone.seconds[ledger.tape.event_phase != UPDATE].sum()
update = alone.seconds[ledger.tape.event_phase == UPDATE].sum()
print(f"forward and backward {format_seconds(passes)}, update {format_seconds(update)}")
third = predict(
    "The dense net by units, four V100s: how many times as many samples a second as one?",
    unit="times",
)
third

# %% slide="skip" folded=true
by_units = on_cards(ledger, "V100", NVLINK, 4, UNITS)
by_data = on_cards(ledger, "V100", NVLINK, 4)
reveal(
    third,
    {"by units": by_units.speed_up, "by data": by_data.speed_up},
    thoughts=[
        (4.0, "Four cards, so four times? Not all that one card does is done four times."),
        (3.5, "Less than four, as the card waits for maps? It does, but look at the update."),
        (3.0, "Less than four, as the card waits for maps? It does, but look at the update."),
    ],
)

# %% [markdown] slide="skip"
# More than four times, with four cards. Remove each suspect in turn:

# %% slide="skip" folded=true
mine = sum(span.seconds for span in by_units.computing if span.what == PHASES[UPDATE])
whole = 4 * alone.total_seconds / (by_units.seconds - mine + update)
shared = by_units.compute_seconds - mine
print(f"forward and backward, 128 samples on one card:   {format_seconds(passes)}")
print(f"the same, 512 samples on four, a quarter each:   {format_seconds(shared)}")
print(f"update on one card, and on each of the four:     {format_seconds(update)},", end=" ")
print(format_seconds(mine))
print(f"if each of the four updated all weights:         {whole:.2f} times as fast")
at_once = predict_step(steps["52 M dense net"].at(512), "V100")
fair = at_once.total_seconds / by_units.seconds
print(f"against one card with all 512 samples at once:   {fair:.2f} times as fast")
free = on_cards(ledger, "V100", endless(NVLINK), 4, UNITS)
print(f"with an infinitely fast link:                    {free.speed_up:.2f} times as fast")

# %% [markdown] slide="skip"
# Each card updates a quarter of the weights. Take that away and less than four is left. (One card that took all 512 at
# once would update as rarely as the four do; beside that card they are less than four times as fast.)
#
# The exercise is [exercises/11_many_gpus.ipynb](../exercises/11_many_gpus.ipynb). {questions}.
