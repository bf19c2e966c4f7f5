# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 12 · Capstone: fit it on one card
#
# **The question:** VGG-16, a batch of 256, a card with 12 GiB. Which techniques bring it on, with the least time lost?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. tell techniques that train the same network from those that train another one;
# 2. say of each technique which term of the peak it lowers, and where it stops;
# 3. combine techniques without adding up their savings;
# 4. read a plane of memory against time, and name the plans that no other beats;
# 5. say how sure you are of a ranking, and for which network it turns over.
#
# About 60 minutes, and {minutes} for the exercise. It builds on all lessons before, on 07 to 10 most. No GPU is needed.

# %% slide="skip" folded=true
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils.memory import ROLES
from course_utils.techniques.offload import simulate_work
from course_utils.techniques.offload.work import WORKSPACE_SHARE
from course_utils.techniques.recompute import checkpointed
from course_utils.units import MIB, format_bytes, format_seconds
from lessons.capstone.explorer import plan_explorer
from lessons.capstone.plan import (
    Plan,
    Problem,
    Refused,
    combinations,
    fastest,
    pareto_front,
    table,
)
from lessons.capstone.plans import plan_plane
from lessons.claims import judge
from lessons.shared import digits
from lessons.shared.offload_real import OffloadActivations
from lessons.shared.published import CAFFE2, published

TITAN, GEN3 = "Titan X (Maxwell)", "PCIe 3.0 x16"

# %% [markdown] slide="slide"
# ## Predict

# %% [markdown] slide="notes"
# The plain step of VGG-16 with a batch of 256 peaks at 19.10 GiB. In 2016 it was brought onto a Titan X of 12 GiB by
# moving maps to the host's memory. That lost 18 % of the speed.
#
# Micro-batches (07), 16-bit maps (08), offload (09), recomputation (10). Note which *one* of them you would take, and
# what it costs.

# %%
guess = predict(
    "One technique alone brings the batch of 256 onto the card with the least time lost. "
    "By how many percent is an update longer than on a card that held everything?",
    unit="%",
)
guess

# %% [markdown] slide="slide"
# ## The problem
#
# A `Problem` is a network, a batch and a card. A `Plan` says how the batch goes through it; what is not said is not
# done. The plain plan first.

# %% [markdown] slide="notes"
# The context of the driver counts too: 512 MiB, the course's assumption since lesson 02.

# %%
vgg = Problem("VGG-16", 256, TITAN, GEN3)
plain = vgg.evaluate(Plan(256))
print(plain.why())

# %% [markdown] slide="slide"
# ## What is not allowed
#
# A smaller network is easy to fit. The task is to train *this* network by *this* update, so a plan must be
# *training-equivalent*: the same weights come out, up to rounding.


# %%
def try_it(problem, *plans):
    for plan in plans:
        try:
            print(problem.evaluate(plan).why())
        except Refused as refused:
            print(f"Refused ({refused.kind}): {refused}.")


try_it(vgg, Plan(256, changes=("stride",)), Plan(128), Plan(256, precision="bfloat16"))

# %% [markdown] slide="subslide"
# | technique | the update is the plain one |
# |---|---|
# | micro-batches, gradients added up | to rounding, without batch norm |
# | offload, recomputation | bit for bit |
# | float16 maps, float32 weights, loss scaling | to the tolerance of 16 bits |
# | stride, earlier pooling, 1×1 in front | no: another network |
# | a smaller batch | no: another update |
#
# Whether 16 bits are the same update is for you to decide; this page computes the ranking with them and without.
# Dropout draws other masks for micro-batches than for the whole batch.

# %% [markdown] slide="notes"
# We count that as the same: in both, each image gets a mask of its own.

# %% [markdown] slide="slide"
# ## By hand: how many at a time?
#
# From lesson 07: the peak of a step with micro-batches of *N* is a fixed part plus a part for each image. In fc6's
# backward pass these are
#
# | | bytes |
# |---|---:|
# | weights, momentum, all gradients, and fc6's new one beside its old one | 4 × (3 × 138.4 + 102.8) million |
# | kept for each image: 13.5 million ReLU values, 1.5 million pooled ones with an index of 8 bytes each | 70 MiB |

# %% [markdown] slide="notes"
# The first line is 2.1 GB, 1.93 GiB. The card leaves 11.5 GiB beside the context. (11.5 − 1.93) · 1,024 / 70 is 140
# images. The largest divisor of 256 below it is 128.

# %%
parameters, fc6 = 138_357_544, 25_088 * 4_096 + 4_096
fixed = 4 * (3 * parameters + fc6)
twice = vgg.step(Plan(256, 128))
each = (twice.at(128).peak_bytes - twice.at(64).peak_bytes) / 64
by_hand = (vgg.room_bytes - fixed) / each
print(f"fixed {format_bytes(fixed)}, {each / MIB:.0f} MiB an image: {by_hand:.0f} images fit")
print(f"the trace says {twice.largest_batch(vgg.room_bytes)}")

# %% [markdown] slide="slide"
# ## Each technique alone
#
# Memory by trace and schedule, time modelled on the Titan X. *Tight*: tensors and context fit; the gaps of PyTorch's
# allocator, or the workspace that fast convolutions want, do not (lesson 02).

# %% [markdown] slide="notes"
# *Lowest peak* are the segments that lesson 10's search finds.

# %% folded=true
lowest = vgg.least_peak_segments
alone = [
    Plan(256, micro_batch=128),
    Plan(256, micro_batch=64),
    Plan(256, precision="float16"),
    Plan(256, offload="conv"),
    Plan(256, offload="all"),
    Plan(256, offload="windowed"),
    Plan(256, segments=12),
    Plan(256, segments=lowest),
]
singles = [vgg.evaluate(plan) for plan in alone]
table([plain, *singles])

# %% slide="subslide"
best_alone = fastest(singles)
print(best_alone)
safe = min((one for one in singles if one.state == "fits"), key=lambda one: one.seconds)
print(safe)

# %% folded=true
reveal(
    guess,
    {
        f"{best_alone.plan}, tight": 100 * best_alone.lost,
        f"{safe.plan}, safe": 100 * safe.lost,
        "published in 2016": 18.0,
    },
    against=f"{safe.plan}, safe",
    thoughts=[
        (18.0, "That is what moving maps to the host cost in 2016."),
        (100 / 3, "A whole forward pass more? Not every layer has to run again."),
        (
            100 * singles[-1].lost,
            "That is about what recomputation costs, which fits as well. One technique costs "
            "less.",
        ),
        (100 * singles[0].lost, "Two halves cost that little, but they leave the card tight."),
    ],
)

# %% [markdown]
# Two techniques of this table do it alone. Recomputation comes down to a few hundred MiB below the card's limit, tight,
# for some percent of time.

# %% [markdown] slide="notes"
# Micro-batches (*gradient accumulation*) cost a few tenths of a percent, and with four of them nothing is tight. The
# technique without a paper wins, and nobody has to write code for streams. Everything below says when that is so, and
# when it is not.

# %% [markdown] slide="slide"
# ## Why does offload stop above the line?
#
# Offload can move what *waits*. It cannot move what the running operator reads and writes.

# %% [markdown] slide="notes"
# Here is what is alive at the worst moment of "offload all", the backward pass of relu1_2, and whether that operator
# uses it:

# %% folded=true
schedule = vgg.schedule(Plan(256, offload="all"))
work, peak = schedule.work, schedule.peak_kernel
alive = (work.birth <= peak) & (work.death > peak)
alive[schedule.moved] &= ~schedule.away(schedule.begins[peak], np.flatnonzero(schedule.moved))
used = set(work.uses[work.uses[:, 0] == peak, 1].tolist())
largest = np.argsort(-work.size * alive)[:6]
rows = [
    (
        work.owners[i],
        ROLES[work.role[i]],
        format_bytes(work.size[i]),
        "yes" if i in used else "no",
    )
    for i in largest
]
print(f"{schedule.kernel_name(peak)}: {format_bytes(schedule.peak_bytes)}")
columns = ["made by", "role", "size", "used now"]
pd.DataFrame(rows, columns=columns).set_index("made by")

# %% [markdown] slide="subslide"
# Three of the large maps are in use: the operator reads its own output and the gradient that came down, and writes the
# gradient that goes on. The fourth is not.

# %% [markdown] slide="notes"
# It is `relu1_1`, fetched early (*prefetch*) for the convolution that comes next, so that nobody waits for the copy.
# The same schedule with each tensor brought back on demand:

# %%
rate, latency = vgg.link.bytes_per_s, vgg.device.launch_seconds
on_demand = simulate_work(work, "all", "p", rate, latency=latency, prefetch=False)
for way, one in (("fetched early", schedule), ("on demand", on_demand)):
    waits = format_seconds(one.stall_seconds().sum())
    print(f"{way + ':':15} {format_bytes(one.peak_bytes)}, waits {waits}")

# %% [markdown] slide="subslide"
# On demand the peak is a map lower, and every copy back is waited for in full. Prefetching hides that time, and memory
# is its price.

# %% [markdown] slide="notes"
# By hand: a map of group 1 has 64 · 224 · 224 values of 4 bytes, for 256 images 3.06 GiB. Three of them, and the
# parameters, gradients, momentum and images that always stay:

# %%
one_map = 4 * 64 * 224 * 224 * 256
stays = 4 * (3 * parameters + 256 * 3 * 224 * 224)
floor = format_bytes(3 * one_map + stays)
print(f"3 × {format_bytes(one_map)} + {format_bytes(stays)} = {floor}")
print(f"the card leaves {format_bytes(vgg.room_bytes)}")
print(f"recomputing, lowest peak: {format_bytes(singles[-1].needs_bytes - vgg.context_bytes)}")

# %% [markdown] slide="notes"
# This is a *floor*: no way to move or recompute maps gets below the working set of the largest operator. Recomputation
# reaches it, and so does offload on demand, which waits. Two things lower the floor itself: fewer images at a time, and
# fewer bytes a value. (ReLU in place, as the frameworks of 2016 had it, is not a third: the convolution below works with
# three such maps as well.)

# %% [markdown] slide="slide"
# ## Two together
#
# Float16 halves the maps, the floor's too, and offload then has room below the line. Savings do not add up: each
# technique changes what is left for the next.

# %%
together = [
    Plan(256, precision="float16", offload="windowed"),
    Plan(256, precision="float16", segments=lowest),
    Plan(256, micro_batch=128, precision="float16"),
    Plan(256, offload="windowed", segments=lowest),
    Plan(256, micro_batch=128, offload="conv"),
]
pairs = [vgg.evaluate(plan) for plan in together]
table(pairs)

# %%
half, moved = (
    vgg.evaluate(Plan(256, precision="float16")),
    vgg.evaluate(Plan(256, offload="windowed")),
)
saved = [plain.needs_bytes - one.needs_bytes for one in (half, moved, pairs[0])]
print(f"float16 alone saves {format_bytes(saved[0])}, offload alone {format_bytes(saved[1])}")
print(f"together {format_bytes(saved[2])}, not {format_bytes(saved[0] + saved[1])}")

# %% [markdown] slide="slide"
# ## Every combination
#
# Four ways to cut the batch, two precisions, four policies of offload, three of recomputation.

# %% [markdown] slide="notes"
# A plan is on the *Pareto front* if no other needs as little memory in less time, or less memory in as little time.
#
# Put in your own. Yours is the blue one.

# %% tags=["remove-input"]
mine = Plan(256, micro_batch=64)

# %% slide="subslide" folded=true
everything = combinations(
    vgg,
    micro_batches=(256, 128, 64, 32),
    precisions=("float32", "float16"),
    offloads=("none", "conv", "all", "windowed"),
    segments=(1, 12, lowest),
)
front = pareto_front(everything)
best, exact = (
    fastest(everything),
    fastest(one for one in everything if one.plan.precision == "float32"),
)
plan_plane(
    everything,
    front,
    named=[plain, singles[0], half, singles[6], singles[4], moved],
    chosen=vgg.evaluate(mine),
    chosen_name="yours",
    title=f"{sum(one.feasible for one in everything)} of {len(everything)} plans fit; "
    f"the fastest, {best.plan}, takes {-best.lost:.1%} less time than plain",
)

# %% slide="subslide"
table(one for one in front if one.feasible)

# %% [markdown] slide="notes"
# Read it from the left. Every plan on the front computes in 16 bits: not because this card is faster in them, it is
# not, but because ReLU and pooling read and write half the bytes. The front is steep: from 9.5 GiB down to 3 GiB costs
# two percent of time. Then it is flat, and each further 100 MiB costs much.

# %% slide="slide"
print(f"{exact}\nIt is the fastest of those that are equal {exact.equal_to}.")

# %% [markdown] slide="slide"
# ## How sure is the ranking?
#
# The times are modelled. Change one assumption at a time, and see which plans stay where they are.

# %% [markdown] slide="notes"
# - *workspace*: the fastest convolutions take scratch memory, in 2016 about half of the maps they touch;
# - *older link*: PCIe 2.0, 6 GB/s in place of 11.8;
# - *twice the arithmetic*: the card computes twice as fast, and nothing else changes.

# %% folded=true
faster = replace(vgg.device, float32_tflops=2 * vgg.device.float32_tflops)
assumptions = {
    "as above": vgg,
    "workspace": vgg.changed(workspace_share=WORKSPACE_SHARE),
    "older link": vgg.changed(link="PCIe 2.0 x16"),
    "twice the arithmetic": vgg.changed(device=faster),
}
judged = [Plan(256, 64), Plan(256, 128), *together]
rows = {}
for name, problem in assumptions.items():
    found = [problem.evaluate(plan) for plan in judged]
    rows[name] = [f"{one.lost:+.1%}" if one.feasible else one.state for one in found]
pd.DataFrame(rows, index=[str(plan) for plan in judged])

# %% [markdown] slide="subslide"
# What moves bytes over the link depends on the link, and the faster the card the less there is to hide a copy behind.

# %% [markdown] slide="notes"
# Micro-batches do not depend on the link, and little on the card: with twice the arithmetic they still cost less than
# one percent.
#
# The model flatters them in one way: a small batch leaves part of a real GPU idle, and the model does not know. The
# published table of lesson 07 says how much for one network of 2017:

# %%
times = {row.batch: row.per_sample_ms for row in published("GoogLeNet", source=CAFFE2)}
for batch in (64, 32, 16):
    more = times[batch] / times[128] - 1
    print(f"Inception on a Titan X, {batch} at a time: {more:+.0%} an image against 128")

# %% [markdown]
# Even with that on top, 4 × 64 stays far from 18 %.

# %% [markdown] slide="notes"
# And 2 × 128 pays next to nothing of it.

# %% [markdown] slide="slide"
# ## Another network, another winner
#
# ResNet-50, the same batch, the same card. Will micro-batches win again?

# %%
resnet = Problem("ResNet-50", 256, TITAN, GEN3)
try_it(resnet, Plan(256), Plan(256, 64))

# %% slide="subslide"
segments = resnet.chain.cheapest(256, resnet.room_bytes, resnet.device)
others = [Plan(256, segments=segments), Plan(256, segments=resnet.least_peak_segments)]
others += [Plan(256, offload=policy) for policy in ("conv", "all", "windowed")]
others += [Plan(256, precision="float16"), Plan(256, precision="float16", offload="conv")]
table(resnet.evaluate(plan) for plan in others)

# %% [markdown]
# Batch norm rules micro-batches out. Recomputation, which VGG-16 could do without, is now the only way that is exact
# and cheap. Offload that fits takes about twice as long.

# %% [markdown] slide="notes"
# By hand, the seconds for all copies, against the seconds for all kernels that could hide them:

# %%
for problem in (vgg, resnet):
    schedule = problem.schedule(Plan(256, offload="all"))
    copies = format_seconds(schedule.copy_floor_seconds)
    kernels = format_seconds(schedule.compute_seconds)
    print(f"{problem.network.name}: {copies} of copies, {kernels} of kernels")

# %% [markdown] slide="slide"
# ## Measure: all of it at once
#
# Does the update survive if everything is done together?

# %% [markdown] slide="notes"
# A small network on real digits: the gradient of 128 images at once, and of 4 × 32 with the first five layers
# recomputed and every kept map moved out and back. Here the "host" is the same memory; the bytes are copied all the
# same.


# %%
def network(dtype):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
    ]
    layers += [nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10)).to(dtype)


images, labels, _, _ = digits.images()
images, labels = images[:128], labels[:128]


def gradient(model, parts=1, offload=None):
    """All gradients in one vector, accumulated over so many parts of the digits."""
    x = images.to(next(model.parameters()).dtype)
    for some, theirs in zip(x.chunk(parts), labels.chunk(parts), strict=True):
        some = some.clone()  # else the storage of all images moves along
        if offload is None:
            loss = F.cross_entropy(model(some), theirs)
        else:
            with offload:
                loss = F.cross_entropy(model(some), theirs)
        (loss / parts).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


# %% tags=["nbval-ignore-output"] slide="subslide"
rows = {}
for dtype in (torch.float32, torch.float64):
    whole = gradient(network(dtype))
    offload = OffloadActivations("all", device="cpu")
    planned = gradient(checkpointed(network(dtype), [(0, 5)]), 4, offload)
    off = float((planned - whole).norm() / whole.norm())
    rows[str(dtype)] = (
        f"{off:.0e}",
        format_bytes(offload.moved_bytes),
        format_bytes(offload.returned_bytes),
    )
pd.DataFrame.from_dict(rows, orient="index", columns=["off by", "moved out", "moved back"])

# %% [markdown]
# Rounding, and nothing else: in float64, which has nine more decimal digits, the difference is nine digits smaller.
# Recomputation and offload change no bit; the rounding is that of adding the four parts.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **which techniques together?**

# %% [markdown] slide="notes"
# Each point is a combination, hollow where it does not fit. Find the fastest plan that is exact; then the one that
# needs the least memory; then the most expensive mistake.

# %% tags=["nbval-ignore-output"]
plan_explorer(vgg, mine)

# %% [markdown] slide="slide"
# ## What people believe
#
# The claim this lesson began with, in our words.

# %% [markdown] slide="notes"
# The verdict is computed in the accounting of 2016: `lessons/offload/claims.py`.

# %%
judge([32])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Only what is training-equivalent counts.
# 2. Savings do not add up, so judge the combination.
# 3. The winner depends on network and card.

# %% [markdown] slide="notes"
# Micro-batches, offload and recomputation are training-equivalent, 16 bits nearly; a stride is not, and micro-batches
# are not under batch norm. Each technique lowers another term: batch and precision lower the floor itself, the three
# maps of the largest operator; recomputation comes down to it; offload stays above it by what it fetches early. Draw
# the plane, drop what is beaten, and ask which assumption the rest hangs on.
#
# Now the exercise: [exercises/12_capstone.ipynb](../exercises/12_capstone.ipynb). {questions}. Save, then
# `course check 12` gives your marks.
