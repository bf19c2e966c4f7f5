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
# **The question:** VGG-16 with a batch of 256 needs 19 GiB, and the card has 12. Which techniques make it fit, and which of
# them cost the least time?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. tell techniques that train the same network from those that train another one;
# 2. say of each technique which term of the peak it lowers, and where it stops;
# 3. say what two techniques save together;
# 4. read a plane of memory against time, and name the plans that no other beats;
# 5. say which assumption a ranking depends on, and for which network it changes.
#
# About 140 minutes without *Further*, and {minutes} for the exercise. It builds on all lessons before, on 07 to 10 most. No GPU is needed.

# %% slide="skip" folded=true
from dataclasses import replace
from textwrap import fill

import numpy as np
import pandas as pd
import torch
from IPython.display import HTML
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils.figures import side_by_side
from course_utils.memory import ROLES
from course_utils.techniques.capacity import FITS
from course_utils.techniques.offload import BACK, OUT, simulate_work
from course_utils.techniques.offload.work import BACKWARD, FORWARD, UPDATE, WORKSPACE_SHARE
from course_utils.units import GIB, MIB, as_written, format_bytes, format_seconds
from lessons.capstone.explorer import chosen_segments, plan_explorer
from lessons.capstone.plan import ROUNDING, Plan, Problem, Refused
from lessons.capstone.plans import plan_plane
from lessons.capstone.search import TIE, combinations, fastest, pareto_front, table, tied
from lessons.claims import judge
from lessons.shared import digits
from lessons.shared.offload_real import OffloadActivations
from lessons.shared.published import CAFFE2, JOHNSON, published
from lessons.shared.recompute import checkpointed

TITAN, GEN3 = "Titan X (Maxwell)", "PCIe 3.0 x16"
pd.set_option("display.max_colwidth", 80)  # so that no plan's name is cut


def best_that_fits(evaluations, exact=False, seconds=lambda one: one.seconds):
    """The fastest that surely fits; with `exact`, of those equal to rounding."""
    wanted = [one for one in evaluations if one.equal_to == ROUNDING or not exact]
    quickest = sorted(wanted, key=lambda one: (seconds(one), one.tensor_bytes))
    return next((one for one in quickest if one.state == FITS), None)


def longer(one):
    """How much longer an update is than the plain one, in per cent."""
    return as_written(f"{100 * one.lost:+.1f} %")


def percent(one):
    """The same as a number, whole from 1 on."""
    lost = 100 * one.lost
    return round(lost, int(abs(lost) < 1))


def folded(shown, summary="The numbers, as a table", text=""):
    """A table to be opened, below some text."""
    return HTML(f"<details><summary>{summary}</summary>{text}{shown.to_html()}</details>")


# %% [markdown] slide="slide"
# A `Problem` is a network, a batch and a card. A `Plan` says how the batch goes through the card; techniques that it does
# not name are off. With none, it is *plain*.

# %%
vgg = Problem("VGG-16", 256, TITAN, GEN3)
plain = vgg.evaluate(Plan(256))
print(fill(plain.why(), 90))

# %% [markdown] slide="notes"
# *Peak* counts tensors. The line above compares them with the whole card. But 512 MiB of it go to the driver's context, so
# 7.60 GiB are too much. Memory is traced and scheduled, time is modelled for the Titan X.
#
# Lessons 00 and 02 gave only a lower bound for the context, 112 MiB. Here it is taken as 512 MiB. So a plan above a
# picture's dashed line is a *no*, and *tight* concerns the allocator or scratch memory, not the context.

# %% [markdown] slide="subslide"
# | verdict | tensors beside the context |
# |---|---|
# | *no* | do not fit |
# | *tight* | fit, but may not with the allocator's gaps or with scratch memory for fast convolutions (03) |
# | *fits* | fit with both; how much scratch memory is a guess (*How sure is the ranking?*) |

# %% [markdown] slide="notes"
# Why a Titan X? Because a result was published for it. In 2016 this batch was trained on one by moving feature maps to the
# host's memory over PCIe 3.0. It lost 18 % of the speed, which is 22 % more time.
#
# The course has four techniques: micro-batches (07), 16-bit maps (08), offload (09) and recomputation (10). Which *one*
# would you take, and what does it cost?

# %%
guess = predict(
    "One technique alone makes the step fit, surely and with the least time lost. "
    "By the model, how many per cent longer does an update take than the plain one, "
    "on a card that held it?",
    unit="%",
)
guess

# %% [markdown] slide="slide"
# ## What is allowed?
#
# A smaller network would fit too. But the task is to train *this* network by *this* update, so a plan must be
# *training-equivalent*: from the same dropout masks the same weights come out, up to rounding.


# %%
def try_it(problem, *plans):
    for plan in plans:
        try:
            said = problem.evaluate(plan).why()
        except Refused as refused:
            said = f"Refused ({refused.kind}): {refused}."
        print(fill(said, 90))


try_it(vgg, Plan(256, changes=("stride",)), Plan(128), Plan(256, precision="bfloat16"))

# %% [markdown] slide="subslide"
# | technique | is the update the plain one? |
# |---|---|
# | micro-batches, gradients added up | to rounding, without batch norm |
# | offload, recomputation | bit for bit, by the same kernels; batch norm must not count twice (10) |
# | float16 maps, float32 weights, loss scaling | to the tolerance of 16 bits |
# | stride, earlier pooling, 1×1 in front | no: another network |
# | a smaller batch | no: another update |
#
# Whether 16 bits give the same update is for you to decide. This lesson ranks plans with them and without; those without
# are called *exact*.

# %% [markdown] slide="notes"
# The end of the lesson tests the first two rows on a real network. In micro-batches dropout draws other masks than in one
# batch; in both, each image gets a random mask of its own.

# %% [markdown] slide="slide"
# ## One technique at a time
#
# First by hand: how many images can go through at a time? With micro-batches of 128 the step peaks in fc6's backward pass:
#
# | | bytes |
# |---|---:|
# | weights, momentum, all gradients, and fc6's new gradient beside its old one | 4 × (3 × 138.4 + 102.8) million |
# | each image: itself, 13.5 million ReLU values, 1.5 million pooled ones with an index of 8 bytes | 70 MiB |

# %% [markdown] slide="notes"
# The first line is 1.93 GiB, and the card has 11.5 GiB left beside the context. So (11.5 − 1.93) · 1,024 / 70 = 140 images
# fit, and the largest divisor of 256 below that is 128. The trace agrees:

# %% tags=["remove-input"]
parameters, fc6 = 138_357_544, 25_088 * 4_096 + 4_096
fixed = 4 * (3 * parameters + fc6)
twice = vgg.step(Plan(256, 128))
each = (twice.at(128).peak_bytes - twice.at(64).peak_bytes) / 64
by_hand = (vgg.room_bytes - fixed) / each
print(f"fixed {format_bytes(fixed)}, {each / MIB:.0f} MiB an image: {by_hand:.0f} images")
print(f"the trace says {twice.largest_batch(vgg.room_bytes)}", end="; ")
print(f"2 × 128 peaks in {vgg.evaluate(Plan(256, 128)).peak}")

# %% [markdown] slide="notes"
# Eight plans with one technique:
#
# | technique | plans | what it does |
# |---|---|---|
# | micro-batches | 2 × 128, 4 × 64 | two of 128 images, or four of 64, one after the other |
# | 16 bits | float16 | maps take half the bytes, the indices of pools all of theirs (8 bytes each) |
# | offload (09) | conv, all | moves the maps that convolutions read, or all maps and indices that wait for their backward pass; the next layer begins when the copies are done |
# | | windowed 5 | moves as much as *all*; kernels go on while up to five copies are under way (`window`) |
# | recomputation (10) | cheapest, lowest peak | runs segments again: the cheapest within the card; those with the lowest peak |
#
# Which of the eight fits, and at what cost? In the picture full points fit; hollow ones do not, or are tight.

# %% folded=true
cheapest = vgg.chain.cheapest(256, vgg.room_bytes, vgg.device)
lowest, chosen = vgg.least_peak_segments, chosen_segments(vgg)
alone = {
    "2 × 128": Plan(256, micro_batch=128),
    "4 × 64": Plan(256, micro_batch=64),
    "float16": Plan(256, precision="float16"),
    "offload conv": Plan(256, offload="conv"),
    "offload all": Plan(256, offload="all"),
    "offload windowed 5": Plan(256, offload="windowed"),
    "recomputation, cheapest": Plan(256, segments=cheapest),
    "recomputation, lowest peak": Plan(256, segments=lowest),
}
singles = {name: vgg.evaluate(plan) for name, plan in alone.items()}
safe = best_that_fits(singles.values())
halves, cheap = singles["2 × 128"], singles["recomputation, cheapest"]
all_out, deep = singles["offload all"], singles["recomputation, lowest peak"]
published_longer = 100 * (1 / (1 - 0.18) - 1)
reveal(
    guess,
    {
        str(safe.plan): percent(safe),
        "recomputation, tight": percent(cheap),
        "published in 2016, offload": round(published_longer),
    },
    thoughts=[
        (18.0, "That is the speed lost in the publication of 2016, by offload."),
        (
            published_longer,
            "That is the publication's offload, or ours with each copy waited for.",
        ),
        (100 / 3, "A whole forward pass more? Few layers have to run again for this limit."),
        (100 * cheap.lost, "That is the cheapest recomputation, but it is tight."),
        (100 * deep.lost, "That is the recomputation with the lowest peak: still tight."),
        (100 * halves.lost, "2 × 128 costs that little, but it is tight."),
    ],
)

# %% slide="subslide" folded=true
quick = {name: one for name, one in singles.items() if one.lost < 0.1}
plan_plane(
    [plain, *quick.values()],
    named={"plain": plain, **quick},
    title=f"Of eight plans with one technique, only {safe.plan} surely fits",
)

# %% slide="skip" folded=true
folded(table([plain, *singles.values()]).set_index(pd.Index(["plain", *singles], name="plan")))

# %% [markdown] slide="notes"
# Of the eight only 4 × 64 (*gradient accumulation*) surely fits. The model says 0.4 % longer. Most of that is traffic:
# three times each new gradient and the old sum are read, and their sum is written. The model assumes that kernels work as fast on 64 images as
# on 256. (*How sure is the ranking?* drops that assumption.)
#
# *Offload all* is outside the picture, 22 % longer. The published loss is as large, but that proves nothing: its policy was
# another one (*Further*).
#
# Why is 2 × 128 only tight, with 840 MiB to spare? Take away the scratch memory of fast convolutions:

# %%
for algorithm in ("p", "m"):  # fast with scratch memory, or slow without
    one = vgg.evaluate(Plan(256, 128, algorithm=algorithm))
    print(f"{one.plan}: {one.state}, {longer(one)}")

# %% [markdown] slide="notes"
# Without it the same tensors fit, so scratch memory is what makes the plan tight. But slow convolutions are no cure: in this
# model they run at half the speed, as VGG-A did on a Titan X (convnet-benchmarks, 2016).

# %% [markdown] slide="slide"
# ## How low can offload go?
#
# Offload can move what *waits*, not what the running operator reads and writes. So how far down does the peak get, and why
# did *offload all* stop above the line?

# %% [markdown] slide="notes"
# The largest tensors at the peak of *offload all*:


# %% folded=true
def print_largest(schedule, count):
    """The largest tensors at the peak, and whether the running operator uses them."""
    work, peak = schedule.work, schedule.peak_kernel
    alive = (work.birth <= peak) & (work.death > peak)
    tensors = np.flatnonzero(schedule.moved)
    alive[tensors] &= ~schedule.away(schedule.begins[peak], tensors)
    used = set(work.uses[work.uses[:, 0] == peak, 1].tolist())
    print(f"{schedule.kernel_name(peak)}: {format_bytes(schedule.peak_bytes)}, of which")
    for i in np.argsort(-work.size * alive)[:count]:
        said = "used now" if i in used else "not used now"
        made = f"{ROLES[work.role[i]]}, made by {work.owners[i]}"
        print(f"  {format_bytes(work.size[i])}, {made}: {said}")


schedule = vgg.schedule(Plan(256, offload="all"))
work = schedule.work
print_largest(schedule, 4)

# %% [markdown] slide="subslide"
# Three of the large maps are in use: the operator reads its own output and the gradient with respect to it, and writes
# the gradient with respect to its input.

# %% [markdown] slide="notes"
# The fourth is `relu1_1`, *prefetched* for the convolution that comes next. Here is the same schedule with each tensor fetched
# only when it is needed:

# %%
rate, latency = vgg.link.bytes_per_s, vgg.device.launch_seconds
on_demand = simulate_work(work, "all", "p", rate, latency=latency, prefetch=False)
for name, one in (("prefetched", schedule), ("on demand", on_demand)):
    slower = 100 * (one.total_seconds / plain.seconds - 1)
    print(f"{name + ':':12} {format_bytes(one.peak_bytes)}, {slower:.1f} % longer than plain")

# %% [markdown] slide="notes"
# On demand the peak is one map lower, below the line, and the step takes still longer. **So prefetching keeps *offload all*
# above the line**: it buys time with memory.
#
# How low can offload get at all, if only maps move? We call that the *floor*: what stays (parameters, gradients, momentum,
# images), and the maps of the one operator that needs most at once. By hand, for relu1_2, these are three maps of
# 64 · 224 · 224 values of 4 bytes an image; the function looks at all operators.


# %% folded=true
def floor_bytes(work):
    """What stays on the card, with the most that any one operator uses."""
    roles = ("parameters", "optimizer state", "weight gradients", "input")
    stays = np.isin(work.role, [ROLES.index(role) for role in roles])
    most = 0
    for kernel in range(len(work.fast)):
        alive = (work.birth <= kernel) & (work.death > kernel)
        in_use = stays.copy()
        in_use[work.uses[work.uses[:, 0] == kernel, 1]] = True
        most = max(most, int(work.size[alive & in_use].sum()))
    return most


one_map = 4 * 64 * 224 * 224 * 256
stays = 4 * (3 * parameters + 256 * 3 * 224 * 224)
print(f"by hand: 3 × {format_bytes(one_map)} + {format_bytes(stays)} = ", end="")
print(format_bytes(3 * one_map + stays))
rows = {"floor of the plain step": floor_bytes(work)}
rows["offload all, on demand"] = on_demand.peak_bytes
rows["recomputation, lowest peak"] = deep.tensor_bytes
for plan in (Plan(256, 128), Plan(256, precision="float16")):
    rows[f"floor of {plan}"] = floor_bytes(vgg.schedule(plan).work)
rows["the card leaves"] = vgg.room_bytes
side_by_side(
    {name: size / GIB for name, size in rows.items()},
    "GiB",
    title="Offload on demand and recomputation reach the floor; 2 × 128 and float16 lower it",
    hollow="the card leaves",
)

# %% [markdown] slide="notes"
# Recomputation comes within 20 MiB of the floor for 5 % more time, offload on demand for 38 %. The card has some 600 MiB
# more than that. The allocator's gaps may need more, so recomputation is *tight*. (For offload on
# demand we did not replay the allocator.) To get lower, lower the floor itself: fewer images at a time, or fewer bytes a
# value.

# %% [markdown] slide="slide"
# ## Two together
#
# Does a second technique help? Float16 lowers the floor; offload moves what lies above it. Neither fits alone.

# %%
half, moved = singles["float16"], singles["offload windowed 5"]
saved = [plain.tensor_bytes - one.tensor_bytes for one in (half, moved)]
indices = 8 * 64 * 112 * 112 * 256  # of pool1
maps = moved.tensor_bytes - stays - indices
print(f"float16 alone saves {format_bytes(saved[0])}, offload alone {format_bytes(saved[1])}")
print(f"offload's peak is in {moved.peak}, {format_bytes(moved.tensor_bytes)}:")
print(f"{format_bytes(stays)} stay, {format_bytes(indices)} are indices,", end=" ")
print(f"{format_bytes(maps)} are maps")
pools = 64 * 112**2 + 128 * 56**2 + 256 * 28**2 + 512 * (14**2 + 7**2)
print(f"float16's peak is in {half.peak}:", end=" ")
print(f"{format_bytes(8 * 256 * pools)} of it are indices;")
print(f"that is {format_bytes(half.tensor_bytes - vgg.room_bytes)} more than there is room")

# %%
second = predict(
    "How much does the same offload (windowed, 5) save in a step that is in float16?",
    unit="GiB",
)
second

# %% slide="subslide" folded=true
both = vgg.evaluate(Plan(256, precision="float16", offload="windowed"))
reveal(
    second,
    {
        "in float16": (half.tensor_bytes - both.tensor_bytes) / GIB,
        "in float32": saved[1] / GIB,
    },
    thoughts=[
        (saved[1] / GIB, "As much as in float32. But the maps are now half as large."),
        (saved[1] / 2 / GIB, "Half, as maps are half as large. See where the peaks are."),
        (0, "Offload still adds to it: maps wait in float16 too."),
    ],
)

# %% [markdown] slide="notes"
# By hand: 1.69 + 1.53 + 11.5 / 2 = 8.97 GiB with both, and 12.05 − 8.97 = 3.1 (the trace: 3.0). Here is each precision at two
# moments, its peak without offload and its peak with it:

# %% slide="subslide" folded=true
levels, ends = {}, {}
for precision, first in (("float32", "relu4_3"), ("float16", "fc6")):
    for layer in (first, "relu2_1"):
        for offload, said in (("none", "nothing moved"), ("windowed", "offload")):
            one = vgg.schedule(Plan(256, precision=precision, offload=offload))
            kernels = [one.kernel_name(kernel) for kernel in range(one.work.kernels)]
            at_layer = [kernel == f"{layer} backward" for kernel in kernels]
            ends[precision, offload] = kernels[one.peak_kernel].removesuffix(" backward")
            mark = ", the peak" if layer == ends[precision, offload] else ""
            highest = one.at_kernels[at_layer].max() / GIB
            levels[f"{precision}, {layer}, {said}{mark}"] = highest
(turn,) = {ends[precision, "windowed"] for precision in ("float32", "float16")}
side_by_side(
    levels,
    "GiB",
    title=f"With offload the peak is at {turn}, where it saves nothing",
    hollow=[name for name in levels if "nothing moved" in name],
)

# %% [markdown] slide="notes"
# At the old peaks offload takes away three quarters and more; at relu2_1 nothing, in either precision. So the peak is there
# now, and all that offload saves is how far the old one was above it: 4.37 GiB in float32, 3 GiB in float16. **What a technique
# saves depends on where the next peak is.** So try pairs; do not add savings.
#
# Why nothing there? In float32 four tensors that the operator does not use are back already, or on their way: three maps and
# the indices of pool1 (1.53 GiB), together 8.4 GiB. That is the price of prefetching again. On demand they would still be
# away (last line).

# %% slide="skip" folded=true
windowed = vgg.schedule(moved.plan)
print_largest(windowed, 7)
fetched_late = simulate_work(work, "windowed", "p", rate, latency=latency, prefetch=False)
print(f"on demand: {format_bytes(fetched_late.at_kernels[windowed.peak_kernel])}")

# %% [markdown] slide="slide"
# Now a plan of your own, with as many techniques as you like. The next picture shows it as a point.

# %% tags=["change"]
# Change it and run again, until it fits. micro_batch: 256, 128, 64, 32;
# precision: "float32", "float16"; offload: "none", "conv", "all", "windowed";
# segments, of recomputation: 1, 2, 4, 12, lowest, chosen["2 chosen segments"].
mine = Plan(256, micro_batch=256, precision="float32", offload="none", segments=1)

print(fill(str(vgg.evaluate(mine)), 90))

# %% [markdown] slide="notes"
# `segments=4` cuts the network into four pieces and computes all but the last again; 1 computes nothing again. *2 chosen
# segments* are two stretches of layers that lesson 10's search picked; these alone are computed again.

# %% [markdown] slide="slide"
# ## A hundred combinations
#
# Of the plans that fit, one is on the *Pareto front* if every leaner one is slower, and every faster one needs more memory.

# %% [markdown] slide="notes"
# We try four micro-batches, each without offload or with *conv*, *all* or *windowed* (3 to 6 copies under way), and with
# nothing computed again, 12 even pieces or the lowest peak. For 2 × 128 we add segments that lesson 10's search picks.
#
# Which differences can we believe? Others timed VGG-16 on this card:

# %% slide="skip" folded=true
def an_image(problem):
    """Milliseconds of an image's forward and backward pass, in a batch of 16."""
    one = problem.changed(batch=16).schedule(Plan(16))
    return 1000 * (one.ends - one.begins)[one.work.phase != UPDATE].sum() / 16


def timed(name):
    """What cnn-benchmarks published of an image's passes on this card, by library."""
    rows = published(name, TITAN, JOHNSON)
    return ", ".join(f"{row.per_sample_ms:.1f} ms with {row.library}" for row in rows)


print(f"VGG-16, an image in a batch of 16: {an_image(vgg):.1f} ms by the model,")
print(f"{timed('VGG-16')} (cnn-benchmarks)")

# %% [markdown] slide="notes"
# So the model takes some 7 % longer than one version of the kernels, and nearly twice as long as the next. An error that all
# plans share cancels in a ranking; whether it does to the last per cent we do not know. So we call plans *tied* that surely
# fit and take at most 1 % longer than the fastest that surely fits. Among them we choose by **what there is to build**: fewer
# techniques first, then no copies, fewer segments, fewer micro-batches.
#
# In the picture the orange line is the front, and *yours* is your plan. Labels that begin with *+* continue 2 × 128. Plans
# beyond 2 % are left out.

# %% slide="subslide" folded=true
limits = [share * vgg.room_bytes for share in (0.75, 0.7, 0.65)]
cuts = {vgg.chain.cheapest(128, limit, vgg.device) for limit in limits}
policies = ("none", "conv", "all", "windowed")


def all_plans(problem, precisions=("float32",)):
    even = combinations(
        problem,
        micro_batches=(256, 128, 64, 32),
        precisions=precisions,
        offloads=policies,
        segments=(1, 12, lowest),
        windows=(3, 4, 5, 6),
    )
    return even + combinations(problem, (128,), precisions, policies, sorted(cuts), (3, 5))


exact = all_plans(vgg)
fitting = [one for one in exact if one.state == FITS]
front, best = pareto_front(fitting), best_that_fits(exact)
near = tied(exact)
again = vgg.evaluate(Plan(256, 128, segments=chosen["2 chosen segments"]))
plan_plane(
    [one for one in exact if one.lost < 0.02],
    [one for one in front if one.lost < 0.02],
    named={
        "plain": plain,
        "+ offload": best,
        "+ segments": again,
        "4 × 64": safe,
        "2 × 128": halves,
        "offload windowed 5": moved,
    },
    chosen=vgg.evaluate(mine),
    chosen_name="yours",
    title=f"{len(fitting)} of {len(exact)} exact plans fit; {len(near)} are ties",
    height=560,
    marks={"1 % longer than the fastest that fits": (1 + TIE) * (1 + best.lost) - 1},
)

# %% slide="skip" folded=true
kinds = {}
for one in near:
    plan, together = one.plan, [f"{one.plan.parts} × {one.plan.micro}"]
    together += ["offload"] * (plan.offload != "none") + ["segments"] * (plan.segments != 1)
    kinds.setdefault(" + ".join(together), []).append(one)
rows = {
    kind: {
        "tied plans": len(some),
        "against plain, from": longer(min(some, key=lambda one: one.seconds)),
        "peak, from": format_bytes(min(one.tensor_bytes for one in some)),
    }
    for kind, some in kinds.items()
}
behind, left = safe.seconds / best.seconds - 1, (1 + TIE) * best.seconds / safe.seconds - 1
print(f"The least to build: {near[0].plan}, {100 * behind:.2f} % longer than {best.plan};")
print(f"if it took another {100 * left:.2f} % longer, it would not tie")
half_tied = tied(all_plans(vgg, ("float32", "float16")))[0]
print(f"With 16 bits too: {half_tied.plan}, {longer(half_tied)}")
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# We follow three of the tied plans: *4 × 64*; *2 × 128 + 2 chosen segments*, computed again; and *2 × 128 + offload windowed
# 5*, five copies under way.

# %% [markdown] slide="slide"
# ## How sure is the ranking?
#
# The times are modelled. Change one assumption at a time, and see which plans keep their place.

# %% [markdown] slide="notes"
# Each row searches again among all plans. Every verdict assumes that a convolution wants scratch memory, about half of the maps
# that it touches: our guess from one rounded figure of 2016. The second row takes twice as much.
#
# Three rows rest on measurements. *As above* comes nearest to VGG-16 with cuDNN 4.0, *twice the arithmetic* to cuDNN
# 5.1. And in batches below 128 an image of GoogLeNet takes longer on a Titan X, by Caffe2's published times (07): the
# row *small batches* adds that loss to every plan, and the last row takes twice the scratch memory too. As the series
# ends at 128, 2 × 128 pays nothing, which favours it.

# %% slide="skip" folded=true
def faster(problem, times):
    """The same problem on a card with so many times the arithmetic."""
    rate = times * problem.device.float32_tflops
    return problem.changed(device=replace(problem.device, float32_tflops=rate))


endless = replace(vgg.device, bandwidth_gb_s=1000 * vgg.device.bandwidth_gb_s)
assumptions = {
    "as above": vgg,
    "twice the scratch memory": vgg.changed(workspace_share=2 * WORKSPACE_SHARE),
    "context of 1 GiB": vgg.changed(context_bytes=GIB),
    "older link, PCIe 2.0": vgg.changed(link="PCIe 2.0 x16"),
    "1.5 times the arithmetic": faster(vgg, 1.5),
    "twice the arithmetic": faster(vgg, 2),
    "memory 1,000 times as fast": vgg.changed(device=endless),
}
ms = {row.batch: row.per_sample_ms for row in published("GoogLeNet", source=CAFFE2)}


def small_batches(one):
    """Seconds of an update whose small batches are as slow as GoogLeNet's."""
    return one.seconds * ms[min(one.plan.micro, 128)] / ms[128]


def row(problem, seconds=lambda one: one.seconds):
    """What three plans take, how many tie, and the least to build of these."""
    in_full = problem.evaluate(Plan(256)).seconds
    near = tied(all_plans(problem), seconds)
    ties = {one.plan: ", tied" for one in near}

    def takes(one):
        told = as_written(f"{100 * (seconds(one) / in_full - 1):+.1f} %")
        return told + (ties.get(one.plan, "") if one.state == FITS else f", {one.state}")

    three = {str(one.plan): takes(problem.evaluate(one.plan)) for one in (safe, again, best)}
    return three | {
        "tied plans": len(near),
        "the least to build": str(near[0].plan),
    }


rows = {name: row(problem) for name, problem in assumptions.items()}
rows["small batches as GoogLeNet's"] = row(vgg, small_batches)
more_scratch = assumptions["twice the scratch memory"]
rows["the same, twice the scratch"] = row(more_scratch, small_batches)
ranking = pd.DataFrame(rows).T.replace(" %", "\N{NO-BREAK SPACE}%", regex=True)
twice_as_fast = an_image(assumptions["twice the arithmetic"])
print(f"An image of VGG-16 with twice the arithmetic: {twice_as_fast:.1f} ms")
ranking

# %% [markdown] slide="subslide"
# **4 × 64** is tied, and the least to build, in every row but the last two. *2 × 128 + offload* drops out on an older
# link, with faster kernels, and with twice the scratch memory.

# %% [markdown] slide="notes"
# (*Further* takes the copies apart.) With memory 1,000 times as fast the three are within 0.1 %: most of what 4 × 64 and the
# two segments lose is traffic.
#
# If 16 bits count as the same update, they are faster than the plain step. The Titan X multiplies no faster in 16 bits:
# operators such as ReLU read and write half the bytes.

# %% [markdown] slide="slide"
# ## The answer
#
# Of seven kinds of tied plans the least to build is **4 × 64**.
#
# If small batches are as slow as GoogLeNet's, it loses 4 %. Then **2 × 128 with two segments computed again**.
#
# If 16 bits count: **2 × 128 + float16**.

# %% [markdown] slide="notes"
# All but the last are exact; we ranked only the plans searched. Offload counts on four things, none measured here: a fast
# link, copies that cost the kernels nothing, a host with room to pin what is moved, and an allocator that frees a
# map as soon as the second stream has copied it.
#
# One measurement says whether 4 × 64 stands: on your card, time an image in a batch of 64 against one in 128. A tie reaches to
# 1 %, and 4 × 64 is 0.24 % behind the fastest already. So if an image takes over 0.75 % longer, 4 × 64 is out. Then measure
# whether 2 × 128 with the two segments fits, as its verdict rests on our guess of scratch memory.

# %% [markdown] slide="slide"
# ## Another network, another winner
#
# ResNet-50, the same batch, the same card.

# %%
resnet = Problem("ResNet-50", 256, TITAN, GEN3)
try_it(resnet, Plan(256), Plan(256, 64))

# %% [markdown] slide="notes"
# Two exact techniques are left: offload and recomputation, alone or together. Neither has to take all maps: offload may move
# every second, third or fourth (`every`), and recomputation may choose which segments to run again. Computing the whole
# forward pass again would make the update about a third longer, so expect less. If every map moves:


# %% slide="skip" folded=true
def by_pass(schedule):
    """Seconds of copies, kernels and waits, for the forward and the backward pass."""
    work, told = schedule.work, {}
    for name, phase, way in (("forward", FORWARD, OUT), ("backward", BACKWARD, BACK)):
        here, moving = work.phase == phase, [c for c in schedule.copies if c.direction == way]
        seconds = {
            "copies": sum(copy.ends - copy.begins for copy in moving),
            "kernels": (schedule.ends - schedule.begins)[here].sum(),
            "waits": sum(stall.seconds for stall in schedule.stalls if here[stall.kernel]),
        }
        told |= {(name, what): f"{value:.2f} s" for what, value in seconds.items()}
    return told


moving = by_pass(resnet.schedule(Plan(256, offload="windowed")))
took = {what: moving["forward", what] for what in ("copies", "kernels")}
over = resnet.evaluate(Plan(256)).tensor_bytes - resnet.room_bytes
print(f"forward pass: copies {took['copies']}, kernels {took['kernels']};", end=" ")
print(f"{format_bytes(over)} have to go")

# %%
third = predict(
    "Take the fastest exact plan with which ResNet-50 surely fits. "
    "How much longer is its update than the plain one, in per cent?",
    unit="%",
)
third


# %% slide="subslide" folded=true
def searched(problem, micro_batches=(None,), offloads=policies):
    """Plans that recompute to a peak around the card's room, and move all maps or some."""
    whole, least = problem.batch, problem.least_peak_segments
    lowest_peak = problem.step(Plan(whole, segments=least)).at(whole).peak_bytes
    room = [share * problem.room_bytes for share in (1.6, 1.4, 1.2, 1, 0.92, 0.8)]
    limits = [max(lowest_peak, limit) for limit in room]
    cuts = {problem.chain.cheapest(whole, limit, problem.device) for limit in limits} - {()}
    return combinations(
        problem,
        micro_batches,
        precisions=("float32",),
        offloads=offloads,
        segments=(1, *sorted(cuts)),
        windows=(8,),
        every=(1, 2, 3, 4),
    )


tried = searched(resnet)
best_resnet = best_that_fits(tried)
offload_alone = [one for one in tried if one.plan.segments == 1]
all_moved, quickest = best_that_fits(offload_alone), fastest(offload_alone)
only_again = best_that_fits(one for one in tried if one.plan.offload == "none")
reveal(
    third,
    {
        str(best_resnet.plan): percent(best_resnet),
        str(only_again.plan): percent(only_again),
        f"{quickest.plan}, {quickest.state}": percent(quickest),
        str(all_moved.plan): percent(all_moved),
    },
    thoughts=[
        (100 * safe.lost, "That was VGG-16. Batch norm rules micro-batches out here."),
        (100 * only_again.lost, "That is recomputation alone. Some maps can move as well."),
        (100 * quickest.lost, f"That is offload alone, of some maps: {quickest.state}."),
        (100 * all_moved.lost, "That is offload alone, of all maps. Need all of them move?"),
        (100 / 3, "One more forward pass? This limit does not ask for all of it."),
    ],
)

# %% slide="subslide" folded=true
plain_resnet = resnet.evaluate(Plan(256))
named = {
    "fastest that fits": best_resnet,
    "recomputation alone": only_again,
    f"offload alone, {quickest.state}": quickest,
    "plain": plain_resnet,
}
front = pareto_front(one for one in tried if one.state == FITS)
single = pareto_front(one for one in tried if len(one.plan.techniques) == 1)
shown = {one.plan: one for one in (*named.values(), *single, *front) if one.lost < 0.5}
plan_plane(
    list(shown.values()),
    [one for one in front if one.lost < 0.5],
    named=named,
    title=f"ResNet-50: of {len(tried)} exact plans the fastest that fits does both, "
    f"{longer(best_resnet)}",
    height=560,
)

# %% slide="skip" folded=true
resnet_half = resnet.evaluate(Plan(256, precision="float16"))
folded(table([*named.values(), all_moved, resnet_half]))

# %% [markdown] slide="notes"
# Beside the front the picture shows the best plans with one technique, and the fastest with offload alone. If 16 bits count as the same update, none of this is needed: float16 alone fits, and takes 14 %
# less time than the plain step (last row of the table).
#
# Of the plans searched, the fastest that fits does both, and no other ties with it: it computes one segment again, and moves
# one map in three of those that wait. (Some of its batch norms run twice. Gradients do not notice; running statistics do,
# unless they are held still the second time: lesson 10.) Take away one part at a time:

# %% slide="skip"
again_alone = Plan(256, segments=best_resnet.plan.segments)
changed = [best_resnet.plan, again_alone, replace(best_resnet.plan, segments=1)]
for plan in (*changed, replace(best_resnet.plan, every=1)):
    one = resnet.evaluate(plan)
    waits = format_seconds(one.waiting_seconds) if one.waiting_seconds > 1e-4 else "0 s"
    print(f"{plan}: {format_bytes(one.tensor_bytes)}, {one.state}, ", end="")
    print(f"{longer(one)}, waits {waits} for copies")

# %% [markdown] slide="notes"
# All of the lost time is recomputation; the copies hide. Without either part it does not fit, and if every map moves, the
# kernels wait. (*Further* has the same plans on other links and cards. On an older link recomputation alone ties with both,
# and is less to build.)
#
# Why does moving every map cost VGG-16 next to no time, and nearly double ResNet-50's? Compare pass by pass, and give
# ResNet-50 a faster link:

# %% slide="skip" folded=true
rows = {}
for problem in (vgg, resnet, resnet.changed(link="PCIe 5.0 x16")):
    one = problem.evaluate(Plan(256, offload="windowed"))
    total = {("update", "against plain"): longer(one), ("update", "card"): one.state}
    rows[f"{problem.network.name}, {problem.link.name}"] = by_pass(one.schedule) | total
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# ResNet-50 moves 18 % more bytes, but its kernels take a third of the time, 2.0 s against 5.8. So in either pass its
# copies take longer than its kernels, and cannot all hide. On a link four times as fast, which a Titan X does not have,
# nearly all of them do.
#
# Now your network and your card:

# %% tags=["change"] slide="skip"
# Change the network, the batch, the card or the link, and run again.
yours = resnet.changed(
    network="ResNet-50", batch=512, device="RTX 3090", link="PCIe 4.0 x16"
)

cut = [yours.batch >> power for power in range(4)]  # the batch and its halves
found = searched(yours, cut, ("none", "windowed"))
found += combinations(yours, cut, ("float16",), ("none", "windowed"))
for name, only_exact in (("exact", True), ("16 bits too", False)):
    one = best_that_fits(found, only_exact)
    print(f"{name}: " + ("none fits" if one is None else f"{one.plan}, {longer(one)}"))

# %% [markdown] slide="skip"
# An RTX 3090, unlike the Titan X, multiplies 16-bit numbers at twice the rate of float32 ones, in its tensor cores (02).

# %% [markdown] slide="slide"
# ## Measure: all of it at once
#
# Does the update survive if everything is done together?

# %% [markdown] slide="notes"
# A small network on real digits: the gradient of 128 images at once, with each technique alone, and with all three: 4 ×
# 32, the first five layers recomputed, every kept map moved out and back. (Here the "host" is the same memory.)


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


# %% tags=["nbval-ignore-output"] slide="subslide" folded=true
rows = []
for dtype in (torch.float32, torch.float64):
    whole = gradient(network(dtype))
    names = ("offload", "all three")
    moving = {name: OffloadActivations("all", device="cpu") for name in names}
    five = [(0, 5)]
    ways = {
        "recomputation": gradient(checkpointed(network(dtype), five)),
        "offload": gradient(network(dtype), offload=moving["offload"]),
        "4 × 32": gradient(network(dtype), 4),
        "all three": gradient(checkpointed(network(dtype), five), 4, moving["all three"]),
    }
    for name, found in ways.items():
        off = float((found - whole).norm() / whole.norm())
        bytes_out = format_bytes(moving[name].moved_bytes) if name in moving else "–"
        equal = "yes" if torch.equal(found, whole) else "no"
        rows.append((str(dtype)[6:], name, equal, f"{off:.0e}" if off else "0", bytes_out))
columns = ["numbers", "technique", "bit for bit", "off by", "moved out"]
pd.DataFrame(rows, columns=columns).set_index(["numbers", "technique"])

# %% [markdown]
# On this machine recomputation and offload change no bit. Adding up four parts rounds differently: in float64, which has
# nine more decimal digits, the difference is about nine digits smaller.

# %% [markdown] slide="notes"
# This network has neither batch norm nor dropout (lesson 10 has both). And a GPU may choose another algorithm the second
# time, unless told to be deterministic.

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **which techniques together?**

# %% [markdown] slide="notes"
# Each point is a combination, hollow where it does not fit or is tight; those of *The answer* are among them. Try two
# things. Find the exact plan with the lowest peak. Go to the fastest of all, float16 with offload *all, 3 in flight*
# (*windowed 3*), and take its two techniques away one at a time: what is each for?

# %% tags=["nbval-ignore-output"]
plan_explorer(vgg)

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# *Lowest peak:* 8 × 32, *all, 3 in flight*, recompute *lowest peak*: 2.73 GiB in 6.14 s. It hardly waits for copies.
#
# *Fastest:* float16 with *all, 3 in flight*: 8.29 GiB in 5.59 s. Without offload it is as fast, and 12.05 GiB do not fit.
# Without float16 it takes 5.94 s, and 13.96 GiB do not fit. So float16 brings the speed, and it takes both to fit.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. VGG-16 takes micro-batches. ResNet-50, with batch norm, takes recomputation, and offload too where the link is fast
#    for the card's kernels.
# 2. Take 16 bits first, if they count as the same update.
# 3. Offload at most what the same pass's kernels can hide.
# 4. Judge the combination: savings need not add up.

# %% [markdown] slide="notes"
# The menu. If 16 bits count, try them first. If micro-batches are refused, compare 3, 4, and both:

# %% slide="skip" folded=true
def dish(one):
    if one is None:
        return "refused"
    return f"{one.tensor_bytes / GIB:.1f} GiB, {one.state}, {longer(one)}"


pair = vgg.evaluate(Plan(256, offload="windowed", segments=lowest))
menu = {
    "1. 16 bits": ("every map", half, resnet_half, "16 bits count as another update"),
    "2. micro-batches": ("every map", safe, None, "batch norm, or small batches slow"),
    "3. recomputation": ("maps that wait", cheap, only_again, "the floor is too high"),
    "4. offload": ("maps that wait", moved, all_moved, "copies too slow, or prefetching"),
    "1 and 2": ("every map", half_tied, None, "as 1, or as 2"),
    "2 and 3": ("both", again, None, "batch norm"),
    "2 and 4": ("both", best, None, "batch norm, or as 4"),
    "3 and 4": ("maps that wait", pair, best_resnet, "the floor is too high"),
}
columns = ["lowers", "VGG-16", "ResNet-50", "not if"]
rows = {name: (what, *map(dish, ones), no) for name, (what, *ones, no) in menu.items()}
pd.DataFrame(rows, columns).T

# %% slide="skip" folded=true
usual, fast = (problem.schedule(best.plan) for problem in (vgg, faster(vgg, 1.5)))
spared = np.where(usual.work.phase == FORWARD, usual.work.fast, fast.work.fast)
mixed = replace(fast.work, fast=spared)
schedules = {
    "as above": usual,
    "1.5 times the arithmetic": fast,
    "the same, backward alone": simulate_work(mixed, "windowed", "p", rate, latency=latency),
    "twice the arithmetic": faster(vgg, 2).schedule(best.plan),
    "older link, PCIe 2.0": assumptions["older link, PCIe 2.0"].schedule(best.plan),
}
folded(
    pd.DataFrame({name: by_pass(one) for name, one in schedules.items()}).T,
    f"Further: why does {best.plan} drop out of VGG-16's ties?",
    "<p>With 1.5 times the arithmetic all copies together take less time than all kernels. "
    "But half of them leave in the forward pass, and outlast its kernels. Where the forward "
    "pass keeps its old speed, <em>backward alone</em>, the wait is gone.</p><p>In the last "
    "two rows the kernels of the backward pass take longer than its copies, and still wait: "
    "each map must be back before the kernel that reads it, and some are not.</p>",
)

# %% slide="skip" folded=true
def both_or_one(problem):
    """Of the same plans the fastest with both techniques and with recomputation alone."""
    same = [one.plan for one in tried if one.plan.offload in ("none", "windowed")]
    found = [problem.evaluate(plan) for plan in same]
    near = tied(found)
    ways = {
        "both": (one for one in found if len(one.plan.techniques) == 2),
        "recomputation alone": (one for one in found if one.plan.offload == "none"),
    }
    told = {name: longer(best_that_fits(some)) for name, some in ways.items()}
    return told | {"tied plans": len(near), "the least to build": str(near[0].plan)}


cases = {
    "as above": resnet,
    "older link, PCIe 2.0": resnet.changed(link="PCIe 2.0 x16"),
    "0.75 times the arithmetic": faster(resnet, 0.75),
    "1.5 times the arithmetic": faster(resnet, 1.5),
}
nearest = an_image(cases["0.75 times the arithmetic"])
folded(
    pd.DataFrame({name: both_or_one(problem) for name, problem in cases.items()}).T,
    "Further: how sure is ResNet-50's plan?",
    "<p>On the older link the two tie, and recomputation alone is less to build. In the other "
    "rows offload with recomputation wins. One of them is nearest to the published times: an "
    f"image in a batch of 16 took {timed('ResNet-50')} (cnn-benchmarks). The model says "
    f"{an_image(resnet):.1f} ms, and {nearest:.1f} ms with 0.75 times the arithmetic.</p>",
)

# %% [markdown] slide="skip"
# **Further: 28 GB or 19.10 GiB?** The paper of 2016 writes that this step needs 28 GB. It counts all feature maps, held for
# the whole step, and the scratch memory of the fastest convolutions. PyTorch frees a map after its last use. The paper's
# policy searched for the fastest plan that fits (lesson 09's appendix).

# %% slide="skip" folded=true
judge([32])

# %% [markdown] slide="skip"
# Now the exercise: [exercises/12_capstone.ipynb](../exercises/12_capstone.ipynb). {questions}. Save, then
# `course check 12` gives your marks.
