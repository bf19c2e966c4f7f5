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
# **The question:** which networks gain from data parallel, which from model parallel?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say how many bytes a card sends in a step, and when they hide behind computation;
# 2. tell from a layer's shape whether to split its samples or its units;
# 3. average gradients of unequal parts so that the update is the whole batch's;
# 4. count what each card keeps under ZeRO and FSDP;
# 5. take a training script from one card to many, and say whether it is still the same training.
#
# About 60 minutes, and {minutes} for the exercise. It builds on accumulation (lesson 07) and the roofline (01). No GPU is
# needed: two processes on this machine stand in for two cards.

# %% slide="skip" folded=true
import inspect

import pandas as pd
import torch

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import Axis, Curve, plane, role_bars, side_by_side
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine import hardware
from course_utils.memory import ROLES
from course_utils.trace import training_step
from course_utils.units import MIB, format_bytes, format_seconds
from lessons.claims import judge
from lessons.many_gpus.card_lanes import card_lanes
from lessons.many_gpus.distributed import jobs, run, train
from lessons.many_gpus.explorer import cards_explorer
from lessons.many_gpus.links_figure import link_rates
from lessons.many_gpus.ring_figure import ring_steps
from lessons.shared import digits
from lessons.shared.parallel import (
    DATA,
    MIXED,
    SCHEMES,
    UNITS,
    all_reduce_seconds,
    bytes_by_layer,
    on_cards,
    ring_bytes,
    ring_states,
    sent_bytes,
    sharded,
    state_bytes,
)

PCIE_2, PCIE_3, NVLINK = "PCIe 2.0 x16", "PCIe 3.0 x16", "NVLink 2"
NAMES = ("52 M dense net", "AlexNet", "VGG-16", "ResNet-50", "GoogLeNet")


def traced(name, optimizer="momentum"):
    network = networks.NETWORKS[name]
    with torch.device("meta"):  # shapes without numbers
        model = network.build()
    return training_step(model, network.input_shape, network.classes, optimizer, name=name)


steps = {name: traced(name) for name in NAMES}

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# Four GTX Titans of 2013 in one machine, joined at 6 GB/s, which is what PCIe 2.0 gives in use. Each card has a copy of
# the network and its own 128 samples. After the backward pass the gradients are averaged, and all cards make the same
# update.

# %%
guess = predict(
    "The dense network of lesson 02, 52 million weights. How many times as many samples a "
    "second do four cards train on, compared with one?",
    unit="times",
)
guess

# %% [markdown] slide="slide"
# ## By hand: the ring
#
# *Data parallel*: every card computes a gradient, every card needs the mean of all. If one card collected *p*
# gradients and sent the mean back, its link would carry them all.

# %% [markdown] slide="notes"
# Instead the cards stand in a *ring*. Each cuts its gradient into *p* chunks and sends one chunk at a time to its
# neighbour: *p* − 1 steps to add up, *p* − 1 to pass the sums on. This is a *ring all-reduce*. A card sends
#
# **2 · (*p* − 1) / *p*** times the size of the gradient,
#
# once for 2 cards, 1.5 times for 4, and never twice, however many cards there are.

# %% slide="subslide"
ring_steps(
    ring_states(4),
    title="Six steps of a quarter each: every card sends 1.5 times the gradient",
)

# %% [markdown] slide="slide"
# ## By hand: the dense net
#
# 52,136,032 parameters of 4 bytes, 1.5 times, at 6 GB/s.

# %% [markdown] slide="notes"
# And the computation: 2 operations a weight and sample forward, twice that backward (less for the first layer, whose
# input needs no gradient), at 0.67 of 4.5 TFLOP/s.

# %%
gradient_bytes = 4 * 52_136_032
on_the_link = 1.5 * gradient_bytes / 6e9
layers = [(9000, 4000), (4000, 4000), (4000, 32)]
passes = [2, 3, 3]  # products a layer: forward, gradient of the weights, gradient of the input
work = sum(2 * 128 * a * b * times for (a, b), times in zip(layers, passes, strict=True))
computing = work / (0.67 * 4.5e12)
print(f"link:        {format_seconds(on_the_link)}")
print(f"computation: {format_seconds(computing)}")
print(f"times as fast, one after the other: {4 * computing / (computing + on_the_link):.2f}")

# %% [markdown] slide="slide"
# ## Trace
#
# The trace knows when each gradient is ready. PyTorch fills *buckets* of 25 MiB and sends each beside the rest of the
# backward pass. The model adds the launches, and the traffic of the update.

# %%
dense = on_cards(steps["52 M dense net"].at(128), "GTX Titan", PCIE_2, 4)

# %% folded=true
reveal(
    guess,
    {"by hand": 4 * computing / (computing + on_the_link), "trace": dense.speed_up},
    against="trace",
    thoughts=[
        (4.0, "Four times the cards, and nothing for the link between them."),
        (2.0, "Half of it lost? The link takes much longer than the computation here."),
        (3.0, "A quarter of it lost? The link takes much longer than the computation here."),
    ],
)

# %% [markdown] slide="subslide"
# Four cards are slower than one. In the trace the computation takes longer than by hand, with its launches and the
# update's traffic, on one card as on four.

# %% [markdown] slide="notes"
# So the link weighs less, though little of it passes beside the backward pass: the largest gradient, the first layer's,
# is ready last. The link is the bottleneck both ways.

# %%
print(f"dense net, one step: {format_seconds(dense.seconds)},", end=" ")
print(f"of which the card computes {format_seconds(dense.seconds - dense.idle_seconds)}")
print(f"and waits {format_seconds(dense.idle_seconds)}; beside the backward pass", end=" ")
print(f"{format_seconds(dense.hidden_seconds)} of the link are hidden")

# %% [markdown]
# Now a network of convolutions on the same cards:

# %%
vgg = on_cards(steps["VGG-16"].at(32), "GTX Titan", PCIE_2, 4)
print(f"VGG-16 sends {vgg.sent_bytes / dense.sent_bytes:.1f} times as much as the dense net,")
print(f"and is {vgg.speed_up:.2f} times as fast on four cards.")

# %% slide="slide"
card_lanes(
    {"dense net": dense, "AlexNet": on_cards(steps["AlexNet"].at(32), "GTX Titan", PCIE_2, 4)},
    title="What counts is computation for each byte: the dense net waits "
    f"{dense.idle_seconds / dense.seconds:.0%} of its step",
)

# %% [markdown]
# One card's step. Where the link is pale, the card computes meanwhile; where it is full, the card waits.

# %% [markdown] slide="slide"
# ## Why convolutions gain
#
# A dense weight is used once for a sample. A weight of a convolution is used at every position of the map, and its
# gradient is still sent once.

# %% [markdown] slide="notes"
# So look at operations for each byte of gradient:

# %%
rows = []
for name, step in steps.items():
    ledger = step.at(32)
    flops = 3 * ledger.by_layer()["flops"].sum()
    size = 4 * sum(ledger.tape.layer_parameters.values())
    gains = [f"{on_cards(ledger, 'V100', link, 4).speed_up:.2f}" for link in (PCIE_3, NVLINK)]
    rows.append((name, f"{size / 1e6:,.0f}", f"{flops / size:,.0f}", *gains))
columns = ["batch 32 a card, 4 V100s", "gradients, MB", "operations a byte", PCIE_3, NVLINK]
pd.DataFrame(rows, columns=columns).set_index(columns[0])

# %% [markdown] slide="notes"
# VGG-16 has twenty times GoogLeNet's gradients and gains more: size is not what decides. GoogLeNet loses a little
# because its gradients fill two buckets, and the second leaves when nothing is left to hide it. Twice the batch is twice
# the operations a byte.

# %% [markdown] slide="slide"
# ## Which link?
#
# Between the cards of one machine there is PCIe, or NVIDIA's own *NVLink*. Between machines there is a network.

# %% [markdown] slide="notes"
# The course expects three quarters of each rate on paper, as for a card's own memory; white points were measured.

# %% folded=true
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
# Three steps of ten times lie between the slowest and the fastest. What a network gains from four cards depends on it:

# %% slide="skip"
for name in ("NVLink 2", "PCIe 3.0 x16", "InfiniBand QDR", "Ethernet 10 Gbit/s"):
    gain = on_cards(steps["AlexNet"].at(32), "V100", name, 4).speed_up
    print(f"AlexNet, four V100s, batch 32 each, {name}: {gain:.2f} times as fast as one")

# %% [markdown] slide="skip"
# So what is sent most often belongs on the fastest link: inside a machine, not between two.

# %% [markdown] slide="slide"
# ## More cards, another link

# %% folded=true
cards = [1, 2, 3, 4, 5, 6, 7, 8]
curves = [Curve("", cards, cards, "#888888", dashed=True, width=1.4)]
for (name, colour), (link, dashed) in (
    (pair, way)
    for pair in (("52 M dense net", SERIES_COLOURS[0]), ("AlexNet", SERIES_COLOURS[1]))
    for way in ((PCIE_3, True), (NVLINK, False))
):
    gains = [on_cards(steps[name].at(32), "V100", link, p).speed_up for p in cards]
    curves.append(Curve(f"{name.removeprefix('52 M ')}, {link}", cards, gains, colour, dashed))
plane(
    Axis("cards", low=1, high=8),
    Axis("times as fast as one card", low=0, high=8.5),
    curves,
    title=f"8 V100s, batch 32 each: AlexNet {curves[3].y[-1]:.1f} times on PCIe and "
    f"{curves[4].y[-1]:.1f} on NVLink, the dense net {curves[1].y[-1]:.1f} and "
    f"{curves[2].y[-1]:.1f}",
)

# %% [markdown] slide="skip"
# ## Is the ring's formula true?
#
# A published sweep on eight H200s (stas00/ml-engineering on GitHub, 2026) gives the rate of an all-reduce for many
# sizes. The model: bytes over three quarters of the link's rate on paper, plus 2.8 µs a step, which is from the same
# sweep's smallest size.

# %% slide="skip"
SWEEP = {1: 39.93, 4: 107.16, 16: 219.89, 64: 346.51, 256: 436.15}  # MiB -> GB/s a card sends
rows = []
for mib, rate in SWEEP.items():
    published = ring_bytes(mib * MIB, 8) / (rate * 1e9)
    modelled = all_reduce_seconds(mib * MIB, 8, hardware.link("NVLink 4"))
    error = f"{modelled / published - 1:+.0%}"
    rows.append((f"{mib} MiB", f"{1e6 * published:,.0f}", f"{1e6 * modelled:,.0f}", error))
pd.DataFrame(rows, columns=["size", "published, µs", "modelled, µs", "error"]).set_index(
    "size"
)

# %% [markdown] slide="skip"
# For large sizes the real thing is faster than this ring: there the switch between the cards does the adding. PCIe's
# answer time is not confirmed and taken to be the same, so small networks on PCIe may look better here than they
# are.

# %% [markdown] slide="slide"
# ## Measure: two processes, one gradient
#
# Two real processes on this machine, each with half of 64 digits. They talk over *gloo*, PyTorch's library for machines
# without GPUs, and run the ring of above.

# %% [markdown] slide="notes"
# Does their average equal the gradient of one process on all 64?

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

# %% [markdown] slide="notes"
# Both processes hold the same average, to a part in 100,000, which is what adding in another order costs in float32.

# %% [markdown] slide="skip"
# In the second experiment the parts are 48 and 16 samples. The mean of two means is not the mean of all: a sample of
# the small part counts three times as much.

# %% slide="skip" tags=["nbval-ignore-output"]
{
    "off by, mean of means": f"{off(uneven['average']):.1%}",
    "weighed by samples": f"{off(uneven['weighed']):.0e}",
}

# %% [markdown] slide="skip"
# PyTorch's DDP averages in this way whatever the parts are. If the last part is smaller, weigh the loss: question 5.

# %% [markdown] slide="slide"
# ## Is it still the same training?
#
# The gradient is the mean over all cards, so the update is that of the *global batch*, a card's batch times the cards.
# Three things follow, and none of them shows in the speed.

# %% [markdown] slide="notes"
# - **Batch norm** takes mean and variance over the samples that a card has, not over all. Two halves are then not the
#   whole, as with micro-batches in lesson 07. `torch.nn.SyncBatchNorm` exchanges the sums, one more wait in each layer.
# - **The global batch grows** with the cards, and there are fewer updates in an epoch. Whoever keeps the learning rate
#   trains less far. Goyal and others (*Accurate, large minibatch SGD*, 2017) multiply it by the number of cards and begin
#   with a warm-up; for ResNet-50 that held up to 8,192 images.
# - **Accumulated micro-batches** need one exchange an update, not one each: all but the last run under `model.no_sync()`.
#
# Without processes, the first of them: is the mean of two halves' gradients the gradient of the whole?


# %% folded=true
def mean_of_halves_is_whole(norm):
    """Whether the gradients of two halves of 64 digits average to that of all, in float64."""
    torch.manual_seed(0)
    layers = [torch.nn.Flatten(), torch.nn.Linear(64, 32), *norm, torch.nn.Linear(32, 10)]
    net = torch.nn.Sequential(*layers).double()

    def gradient(samples):
        loss = torch.nn.functional.cross_entropy(net(x[samples].double()), y[samples])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, net.parameters())])

    all_samples, halves = gradient(slice(64)), [gradient(slice(32)), gradient(slice(32, 64))]
    return torch.allclose(sum(halves) / 2, all_samples, atol=1e-12)


print("without batch norm:", mean_of_halves_is_whole([]))
print("with batch norm:   ", mean_of_halves_is_whole([torch.nn.BatchNorm1d(32)]))

# %% [markdown] slide="slide"
# ## The other way: split the layer
#
# *Model parallel*, today *tensor parallel*: the samples stay together, the weights are split. Each card has a share of
# the *units* of a layer.

# %% [markdown] slide="notes"
# For that it needs the whole input, of all samples: the cards *gather* it before the layer, and after the layer's
# backward they add up and scatter its gradient.
#
# On two processes, two dense layers, half of the units each:

# %%
parts = run(jobs.split_layers, processes=2, images=x.flatten(1), labels=y)
alone = jobs.whole_layers(x.flatten(1), y)
for i, gradient in enumerate(alone["gradients"]):
    joined = torch.cat([part["gradients"][i] for part in parts])
    shape = tuple(parts[0]["gradients"][i].shape)
    print(f"layer {i + 1}: each has {shape} of {tuple(gradient.shape)};", end=" ")
    print("together equal to one process:", torch.allclose(joined, gradient, atol=1e-6))
print("the same loss:", abs(parts[0]["loss"] - alone["loss"]) < 1e-6)

# %% [markdown] slide="slide"
# ## Which one sends less?
#
# A dense layer of *n* inputs and *m* units, *b* samples a card, *p* cards. Numbers a card sends:
#
# | | sent | for AlexNet's `fc7`: 4,096 to 4,096, *b* = 128, *p* = 4 |
# |---|---|---:|
# | by data: the gradient in a ring | 2 (*p* − 1)/*p* · *n* · *m* | 25.2 million |
# | by units: the input gathered, its gradient scattered | 2 (*p* − 1) · *b* · *n* | 3.1 million |

# %% [markdown] slide="notes"
# The second is smaller while **p · b < m**: while the whole batch is smaller than the layer has units. For a
# convolution on a map of *H* × *W* with kernels of *k* × *k* it is *p* · *b* · *H* · *W* < *m* · *k*².

# %% slide="skip"
table = bytes_by_layer(steps["AlexNet"].at(128), 4)
rows = [
    (name, f"{data / 1e6:,.1f}", f"{units / 1e6:,.1f}", "data" if data <= units else "units")
    for name, (data, units) in table.items()
]
pd.DataFrame(rows, columns=["layer", "by data, MB", "by units, MB", "sends less"]).set_index(
    "layer"
)

# %% [markdown] slide="skip"
# `conv1` reads the images, which every card loads by itself, but what comes out of it would have to be gathered for
# `conv2`.

# %% [markdown] slide="slide"
# ## One weird trick
#
# So do both: convolutions by data, dense layers by units (Krizhevsky, *One weird trick for parallelizing convolutional
# neural networks*, 2014).

# %% [markdown] slide="notes"
# The fourth way cuts the network into *stages*, a few layers on each card, and hands micro-batches on: a *pipeline*, or
# *pipeline parallel*. While the first micro-batch is on its way down, the later cards have nothing to do, and at the
# end the earlier ones: that idle time is the pipeline's *bubble*.

# %%
found = {
    scheme: on_cards(steps["AlexNet"].at(128), "Tesla K40", PCIE_2, 4, scheme)
    for scheme in SCHEMES
}
late = on_cards(steps["AlexNet"].at(128), "Tesla K40", PCIE_2, 4, overlap=False)
card_lanes(
    found,
    title="AlexNet on four K40s: the trick sends "
    f"{found[MIXED].sent_bytes / found[DATA].sent_bytes:.0%} of the bytes",
)

# %% [markdown] slide="notes"
# It sends a fifth, and is not faster, in this model: a dense layer cannot begin before its input is gathered, so the
# card is taken to wait for every byte, while data parallel hides nearly all of its own. (Measured times of both on one
# machine we have not found.)

# %% [markdown] slide="subslide"
# If the gradients go after the backward pass, as in the simplest program, it is the other way round:

# %%
side_by_side(
    {
        "by data, after it": round(late.speed_up, 2),
        "one weird trick": round(found[MIXED].speed_up, 2),
        "by data, beside it": round(found[DATA].speed_up, 2),
    },
    unit="times as fast",
    title="Fewer bytes help a program that waits for them; hiding them helps as much",
)

# %% [markdown] slide="slide"
# ## Where model parallel wins today
#
# Where data parallel has nothing to hide behind, and where the weights do not fit.

# %%
step = steps["52 M dense net"].at(128)
rows = []
for scheme in (DATA, UNITS):
    for link in (PCIE_3, NVLINK):
        on_four = on_cards(step, "V100", link, 4, scheme)
        sent, peak = format_bytes(on_four.sent_bytes), format_bytes(on_four.peak_bytes)
        rows.append((scheme, link, sent, f"{on_four.speed_up:.2f}", peak))
columns = ["dense net, 4 V100s", "link", "a card sends", "times as fast", "peak a card"]
pd.DataFrame(rows, columns=columns).set_index(columns[:2])

# %% [markdown]
# More than four times, with four cards?

# %% [markdown] slide="notes"
# Each reads a quarter of the weights for all 512 samples. One card alone reads all of them for 128, and this net is
# bound by bandwidth.

# %% [markdown] slide="slide"
# ## Memory a card
#
# Data parallel saves no memory: every card keeps everything. *ZeRO* (Rajbhandari et al., 2020) stays data parallel and
# shares out what is the same on all cards:
#
# | stage | shared out over the cards | a card sends, in all-reduces of the gradients |
# |---|---|---|
# | 0 | nothing | 1 × |
# | 1 | optimizer state | 1 × |
# | 2 | and gradients | 1 × |
# | 3, *FSDP* | and parameters, gathered layer by layer when they run | 1.5 × |

# %% [markdown] slide="notes"
# By hand, the paper's example: 7.5 billion parameters, half precision, Adam (2 + 2 + 12 bytes each), 64 cards.

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
    title=f"The dense net with Adam: {format_bytes(totals['one card'])} on one card, "
    f"{format_bytes(totals['4 cards, stage 3'])} on each of four under stage 3",
)

# %% [markdown]
# The layer at work is always whole. And sharing out helps with parameters, gradients and state alone. Feature maps
# belong to a card's own samples, and nothing shares them out:

# %%
for name in ("52 M dense net", "VGG-16"):
    step = traced(name, "adam").at(64)
    peak = int(sharded(step, 4, 3).sum(axis=1).max())
    print(
        f"{name:>14}, Adam, batch 64 a card, stage 3 on 4 cards: "
        f"{peak / step.peak_bytes - 1:+.0%} at the peak"
    )

# %% [markdown] slide="slide"
# ## When one card is not enough

# %% [markdown] slide="notes"
# 1. **It fits, and is slow**: data parallel, PyTorch's `DistributedDataParallel`. Or run other experiments on the
#    other cards: nothing is sent.
# 2. **Maps do not fit**: smaller batch a card, half precision (08), recompute (10), offload (09). More cards only
#    help by a smaller batch each.
# 3. **Parameters do not fit**: FSDP, `fully_shard`. Half as many bytes again on the link, so a fast one.
# 4. **One layer does not fit**, or there are many machines: split by units inside a machine, stages between them.
#    That is what the large libraries do; leave this course for them.

# %% [markdown]
# From one card to two processes, this is what changes:

# %%
print(inspect.getsource(train.wrapped))

# %% [markdown] slide="subslide"
# The whole script is `lessons/many_gpus/distributed/train.py`. In a terminal:
#
# ```
# torchrun --standalone --nproc-per-node 2 -m lessons.many_gpus.distributed.train --mode ddp fsdp
# ```

# %% [markdown] slide="notes"
# Here both modes run for real on two processes, 64 digits a step, beside one process with the same 64.

# %% folded=true
options = {"steps": 8, "batch": 64, "images": images, "labels": labels}
both = run(train.train_in, processes=2, modes=("ddp", "fsdp"), **options)[0]
losses, kept = train.train("single", **options)
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
# FSDP keeps half of parameters and momentum on each process, and learns the same. The second
# version of FSDP is used, `torch.distributed.fsdp.fully_shard`, which runs on a CPU over gloo as well.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what do more cards bring, and how should the work be split?**

# %% [markdown] slide="notes"
# Before each move say whether the card will wait.

# %% tags=["nbval-ignore-output"]
cards_explorer()

# %% [markdown] slide="notes"
# Try three things. Find the smallest batch at which eight K40s still train ResNet-50 seven times as fast. From which
# batch on does data parallel overtake one weird trick for AlexNet? Why does a faster device need a faster link?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# A batch of 4 a card is enough for ResNet-50, which has few parameters for its arithmetic. For AlexNet on four K40s the
# two schemes are level at 64 a card, and data parallel is ahead from 128 on: by then its all-reduce hides behind the
# backward pass. A faster device takes less time to compute and as long to exchange gradients, so less is hidden.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# Four claims of 2014 to 2020, in our words.

# %% [markdown] slide="notes"
# The verdicts are computed in `lessons/many_gpus/claims.py`; the others on many cards are in Appendix A.

# %%
judge([4, 5, 9, 10])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A ring all-reduce sends 2 (*p* − 1)/*p* of the gradient from each card.
# 2. Splitting by units sends maps in place of gradients.
# 3. Data parallel saves no memory; ZeRO and FSDP share out parameters, gradients and optimizer state, never maps.

# %% [markdown] slide="notes"
# The all-reduce costs time only where there is too little computation to hide it: dense networks, small batches, slow
# links. Maps are less than gradients while the whole batch is smaller than the layer has units, and the card waits for
# them.
#
# Now the exercise: [exercises/11_many_gpus.ipynb](../exercises/11_many_gpus.ipynb). {questions}. Save,
# then `course check 11` gives your marks.
