# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 09 · Offload to CPU memory
#
# **The question:** a feature map is made early in the forward pass, read by the next layer, and then not again until late
# in the backward pass. It could wait in the CPU's memory. When does moving it there and back cost no time?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. tell from a layer's shape and two rates whether the copy of its input hides behind it;
# 2. read a schedule of two streams, and name what waits for what;
# 3. choose what moves and how many copies may be in flight, and tell which pass is the tight one;
# 4. say from which size on a transformer's block surely hides the copy of its input;
# 5. move what autograd saves of a real network, and check that no gradient changes.
#
# About 105 minutes without *Further* and the appendix, and {minutes} for the exercise. It builds on lessons 01
# (roofline) and 03 (the peak). No GPU is needed.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Spot, side_by_side
from course_utils.machine import hardware
from course_utils.machine.measure import cpu_peak_above
from course_utils.techniques.capacity import fit, room_for_tensors
from course_utils.techniques.offload import BACK, OUT, run, simulate
from course_utils.techniques.offload.work import BACKWARD, FORWARD
from course_utils.trace import training_step
from course_utils.units import GB, MIB, format_bytes, format_seconds
from lessons.claims import judge
from lessons.offload.claims import TenNetworks, runs
from lessons.offload.efficiency import loss_by_efficiency
from lessons.offload.explorer import offload_explorer
from lessons.offload.fits import fit_of
from lessons.offload.published import comparison, sensitivity
from lessons.offload.schedule_lanes import schedule_lanes
from lessons.shared import digits
from lessons.shared.language_models import SHAPES, Options
from lessons.shared.language_steps import language_step
from lessons.shared.offload_real import OffloadActivations


def traced(name, precision="float32"):
    network = networks.NETWORKS[name]
    with torch.device("meta"):  # shapes without numbers
        model = network.build()
    return training_step(
        model, network.input_shape, network.classes, precision=precision, name=name
    )


# %% [markdown] slide="slide"
# ## Predict
#
# *Offload*: copy a feature map to the CPU's memory in the forward pass, free it on the card, and copy it back before the
# backward pass reads it.

# %% [markdown] slide="notes"
# The copies have a queue of their own, a second *stream*, so they can run beside the kernels. All cross one link, PCIe
# for most cards. As with memory (lesson 01) we assume three quarters of its nominal rate, here 11.8 of 15.75 GB/s.
# (Weights and optimizer state can wait in the CPU's memory too: lesson 14.) All seconds that follow are predicted from the
# card's rates: no GPU has run these steps for the course.
#
# We want to train VGG-16 on a T4, batch 192, in float32:

# %%
card = hardware.device("T4")
vgg = traced("VGG-16").at(192)
kept, moved = simulate(vgg, card, "none"), simulate(vgg, card, "all")
print(f"the card: {format_bytes(card.memory_bytes)}; peak: {format_bytes(vgg.peak_bytes)}")
print(fit(vgg, card).sentence)
print(f"kernels of one step: {format_seconds(kept.total_seconds)}")
print(f"maps kept for the backward pass: {format_bytes(moved.traffic_bytes()[OUT])}")
print(f"copying all of them out and back: {format_seconds(moved.copy_floor_seconds)}")

# %% slide="subslide"
guess = predict(
    "All these maps move, beside the kernels. A layer waits until the copy that began with "
    "the layer before it has ended. By how many percent is the step longer?",
    unit="%",
)
guess

# %% [markdown] slide="slide"
# ## By hand: does one copy hide?
#
# `conv1_2` reads 64 maps of 224 × 224 for each of 192 images, and writes as many, with windows of 3 × 3.

# %% [markdown] slide="notes"
# While it runs, its input does not change, so the copy may run at the same time. Which of the two takes longer?

# %%
link = card.link.bytes_per_s  # bytes a second: 0.75 of those on paper
rate = card.reached_flops_per_s()  # operations a second: 0.67 of the peak, as in lesson 01
input_bytes = 4 * 192 * 64 * 224 * 224
operations = 2 * 9 * 64 * 64 * 192 * 224 * 224
copy, kernel = format_seconds(input_bytes / link), format_seconds(operations / rate)
print(f"copy:   {input_bytes / GB:.2f} GB over {link / GB:.1f} GB/s: {copy}")
print(f"kernel: {operations / 1e9:.0f} GFLOP at {rate / 1e12:.2f} TFLOP/s: {kernel}")

# %% [markdown] slide="subslide"
# The card does R operations a second, the link carries L bytes. A convolution has windows of k × k and *writes* C channels.
#
# - copy of its input: 4 · values read / L
# - kernel: 2 · k² · C · values read / R
#
# Values read cancel:
#
# **The copy hides behind the convolution if k² · C ≥ 2 · R / L**

# %% [markdown] slide="notes"
# With them go the batch, the map's height and width, and the channels *read*. (A stride of s divides the left side by s².)
#
# This is for the way out. On the way back a copy runs beside *another* layer, one nearer to the loss. A convolution there
# has two kernels, one for each gradient, so about twice its forward time; a pool takes next to no time.

# %% tags=["change"]
# Change the device, or window, stride and channels written of a layer, and run again.
device = hardware.device("T4")
layers = [(3, 1, 64), (3, 1, 128), (3, 1, 512), (1, 1, 64), (1, 1, 2048), (11, 4, 64)]

needed = 2 * device.reached_flops_per_s() / device.link.bytes_per_s
print(f"{device.name}: k² · C / s² must be at least {needed:.0f}")
for k, stride, channels in layers:
    found = k**2 * channels / stride**2
    verdict = "hides" if found >= needed else "does not hide"
    print(f"{k} × {k}, stride {stride}, {channels} channels: {found:,.0f}, {verdict}")

# %% [markdown] slide="notes"
# So a larger batch does not help, as long as R stays the same. Where a kernel takes longer than its arithmetic, fewer
# channels are enough; where it skips arithmetic, as Winograd's 3 × 3 convolutions do, it takes more.

# %% [markdown] slide="subslide"
# And a pool? It reads its map at the rate of the card's own memory and computes next to nothing. Its copy goes at the
# rate of the link, so it does not hide:

# %% reads="course_utils/machine/devices.csv"
cards = [device for device in hardware.devices() if device.link is not None]
ratio = [device.reached_bytes_per_s() / device.link.bytes_per_s for device in cards]
print(f"own memory over link, {len(cards)} cards: {min(ratio):.0f} to {max(ratio):.0f} times")

# %% [markdown] slide="slide"
# ## A schedule of two streams
#
# Now the whole step on the T4. In the forward pass the next layer begins when two things have ended: this layer, and the
# copy that began with it.

# %% [markdown] slide="notes"
# In the backward pass, while a layer runs, the map that the next one needs comes in. (A ReLU is part of the layer before
# it.)
#
# By hand: suppose that a pool takes no time, and that all copies hide but those beside pools. On the way out the step
# waits for the copy of a pool's input. On the way back, while the pool runs, the input of the convolution before it comes
# in, and the step waits for that. In VGG-16 these two maps are equally large:

# %%
pooled = [(64, 224), (128, 112), (256, 56), (512, 28), (512, 14)]  # maps, side
both_ways = 2 * sum(4 * 192 * maps * side**2 for maps, side in pooled)
by_hand = both_ways / link / kept.total_seconds

# %% slide="subslide" folded=true
in_full = moved.copy_floor_seconds / kept.total_seconds
reveal(
    guess,
    {
        "two streams": 100 * moved.slowdown,
        "by hand, pools alone": 100 * by_hand,
        "every copy waited for": 100 * in_full,
    },
    thoughts=[
        (100 * in_full, "That is every copy waited for in full. Most run beside kernels."),
        (0, "Many copies hide. Under this rule those beside pools and narrow layers do not."),
    ],
)

# %% [markdown] slide="notes"
# What else is waited for? A max pool also keeps an *index* of eight bytes for each value that it produces, half as many
# bytes as its input, and these move as well. Take them away: average pools read the same maps and have no index.

# %% folded=true
with torch.device("meta"):
    model = networks.vgg16()
    for place in range(1, 6):
        setattr(model, f"pool{place}", nn.AvgPool2d(2))
unindexed = training_step(model, (3, 224, 224), 1000, name="VGG-16").at(192)
without = simulate(unindexed, card, "all").slowdown
ways = {"by hand": by_hand, "no index": without, "two streams": moved.slowdown}
for name, longer in ways.items():
    print(f"{name}: {100 * longer:.1f} % longer")

# %% [markdown] slide="notes"
# Most of the gap is the indices. The schedule shows where the step waits:

# %% slide="slide" folded=true
room = room_for_tensors(card)
schedule_lanes(
    moved,
    room,
    kept,
    limit="T4 − context",
    title=f"Every map moves: peak {format_bytes(moved.peak_bytes)} instead of "
    f"{format_bytes(vgg.peak_bytes)}, for {100 * moved.slowdown:.0f} % more time",
)

# %% [markdown] slide="notes"
# Below the lanes is memory over the same time. A wait is named after the layer that cannot start, not after the one
# whose copy is late. (*1.1 GiB of pool1* is the index that it keeps.) The four longest:

# %% slide="skip"
for stall in sorted(moved.stalls, key=lambda stall: -stall.seconds)[:4]:
    print(*textwrap.wrap(moved.explain(stall), 90), sep="\n", end="\n\n")

# %% [markdown] slide="subslide"
# Three of these copies began beside a pool. Leave on the card what only pools use, and move only what *convolutions*
# read:


# %% folded=true
def compared(ledger, ways, device=card):
    """One row for each way of moving: peak, bytes, seconds, how much longer."""
    rows = []
    for policy, window in ways.values():
        found = simulate(ledger, device, policy, window=window)
        out = format_bytes(found.traffic_bytes()[OUT])
        took, longer = format_seconds(found.total_seconds), f"{100 * found.slowdown:.1f} %"
        rows.append((format_bytes(found.peak_bytes), out, took, longer))
    columns = ("peak", "moved each way", "step", "longer by")
    named = pd.Index(ways, name=f"{ledger.name}, batch {ledger.batch}")
    return pd.DataFrame(rows, named, columns)


compared(
    vgg,
    {"nothing": ("none", 1), "everything": ("all", 1), "what convolutions read": ("conv", 1)},
)

# %% [markdown] slide="notes"
# The pools cost most of the time. Nearly all that is left are two waits for the input of `conv1_2`. On the way *out* its
# copy runs beside `conv1_2` itself, whose k² · C is 576 where the T4 asks for 919. On the way *back* it runs beside
# `conv2_1`, whose two kernels together have no more operations than `conv1_2` alone.

# %% slide="skip"
some = simulate(vgg, card, "conv")
for stall in sorted(some.stalls, key=lambda stall: -stall.seconds)[:2]:
    beside = format_seconds(stall.begins - some.copies[stall.copy].begins)
    said = f"{some.explain(stall)}. Kernels beside it: {beside}."
    print(*textwrap.wrap(said, 90), sep="\n", end="\n\n")

# %% [markdown] slide="slide"
# ## More copies in flight
#
# Let a layer start while up to *five* copies out are still under way, and bring up to five maps back ahead of use.

# %% [markdown] slide="notes"
# In the first schedule the step waited 1.04 s for them. Half of the copies must
# leave while the forward kernels run: which of the two takes longer?

# %%
second = predict(
    "Everything moves, five maps in flight. By how many percent is the step longer now?",
    unit="%",
)
second

# %% slide="subslide" folded=true
five = simulate(vgg, card, "windowed", window=5)
reveal(
    second,
    {
        "five in flight": 100 * five.slowdown,
        "before: each layer waits for its own copies": 100 * moved.slowdown,
    },
    thoughts=[
        (100 * moved.slowdown, "As much is copied, but a late copy may now catch up."),
        (50 * moved.slowdown, "Half? A late copy has several long kernels to catch up in."),
        (20 * moved.slowdown, "Fewer still: most waits end altogether."),
    ],
)

# %% slide="skip" folded=true
schedule_lanes(
    five,
    room,
    kept,
    limit="T4 − context",
    title="Five in flight: copies run on under later layers; "
    f"{100 * five.slowdown:.1f} % longer, peak {format_bytes(five.peak_bytes)}",
)

# %% [markdown] slide="notes"
# Compare with the first schedule: in the forward pass the copies now follow one another with hardly a gap, and a late
# one catches up under later kernels. The price is memory, as a map stays on the card until it has left. **How many can
# be in flight before the peak rises? How many until hardly anything waits?**

# %% slide="subslide"
print(f"the card without the context: {format_bytes(room)}")
ways = {several: simulate(vgg, card, "windowed", window=several) for several in range(2, 8)}
print("verdict:", ", ".join(f"{n}: {fit_of(vgg, way, card).state}" for n, way in ways.items()))
compared(vgg, {f"{several} in flight": ("windowed", several) for several in ways})

# %% [markdown] slide="notes"
# **Up to four in flight cost no memory at the peak:** it stays the 10.86 GiB of the first schedule. With six hardly
# anything waits, and the tensors still have room. (From three on the verdict is *tight*, lesson 03: mostly a
# convolution's workspace may find no piece.)
#
# How much time is there to catch up in? Here are the seconds of each pass, with five in flight. Then we make the kernels of
# one pass alone 1.5 times as fast: of the time that they save, how much does the step save?

# %% slide="subslide" folded=true
work, rows = five.work, {}
for name, phase, way in (("forward", FORWARD, OUT), ("backward", BACKWARD, BACK)):
    own = work.phase == phase
    quicker = replace(work, fast=np.where(own, work.fast / 1.5, work.fast))
    found = run(quicker, five.moved, five.fast, link, card.launch_seconds, window=5)
    seconds = {
        "copies": sum(one.ends - one.begins for one in five.copies if one.direction == way),
        "kernels": work.fast[own].sum(),
        "waits": sum(stall.seconds for stall in five.stalls if own[stall.kernel]),
        "faster kernels save": five.compute_seconds - found.compute_seconds,
        "the step saves": five.total_seconds - found.total_seconds,
    }
    rows[name] = {what: f"{value:.2f} s" for what, value in seconds.items()}
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# **The forward pass is the tight one.** Half of the copies fall into it, but only a third of the kernels' time,
# hardly more than its copies take. Make the forward kernels faster, and most of the time saved turns into waits; in the
# backward pass little does.

# %% [markdown] slide="slide"
# ## A faster card on a faster link
#
# An H100 sits on PCIe 5.0, four times as fast as the T4's 3.0. (We leave out TF32 for now, a faster and coarser
# float32.)

# %%
third = predict(
    "The same step on an H100, float32 without TF32: everything moves, and each layer waits "
    "for its own copies. "
    "By how many percent is it longer?",
    unit="%",
)
third

# %% slide="subslide" folded=true
h100 = hardware.device("H100 SXM")
quick = simulate(vgg, h100, "all")
reveal(
    third,
    {"H100": 100 * quick.slowdown, "T4": 100 * moved.slowdown},
    thoughts=[
        (100 * moved.slowdown / 4, "The copies are four times as fast. And the kernels?"),
        (100 * moved.slowdown, "So it would be if kernels had sped up as much as the link."),
        (0, "Kernels have sped up too, and by more than the link."),
    ],
)

# %% [markdown] slide="notes"
# Which of the two did it, the kernels or the link? Swap one and keep the other:

# %% slide="subslide" folded=true
rows = {}
for device in (card, h100):
    rows[f"kernels of the {device.name}"] = {
        name: f"{100 * simulate(vgg, device, 'all', link=name).slowdown:.1f} %"
        for name in ("PCIe 3.0 x16", "PCIe 5.0 x16")
    }
times = h100.reached_flops_per_s() / card.reached_flops_per_s()
faster = h100.link.bytes_per_s / card.link.bytes_per_s
print(f"H100 over T4: arithmetic {times:.1f} times, link {faster:.0f} times")
pd.DataFrame(rows).T

# %% [markdown] slide="notes"
# The kernels did it: with the T4's kernels on the faster link hardly a copy is waited for but those beside pools. For
# copies to hide as well as before, the link must speed up as much as the kernels do.

# %% [markdown] slide="slide"
# ## From card to card
#
# Of a card, the rule needs only R and L. In 16 bits a value has two bytes, so there the rule is k² · C ≥ R / L, with
# the R of 16 bits. (An upper estimate: measured steps gain less from tensor cores, lesson 08.)

# %% folded=true
table = pd.DataFrame(
    {
        "year": [device.year for device in cards],
        "link": [device.link.name for device in cards],
        "float32": [f"{2 * d.reached_flops_per_s() / d.link.bytes_per_s:,.0f}" for d in cards],
        "float16, tensor cores": [
            f"{d.reached_flops_per_s('float16') / d.link.bytes_per_s:,.0f}"
            if d.tensor_tflops
            else "–"
            for d in cards
        ],
    },
    index=pd.Index([device.name for device in cards], name="k² · C needed"),
)
table

# %% [markdown] slide="notes"
# From the K40 to the H100 arithmetic has gained more than the links: the rule asks for more. The widest 3 × 3
# convolutions of VGG-16 and ResNet-50 have 9 · 512 = 4,608, the 1 × 1 convolutions of ResNet-50 64 to 2,048. **In 16
# bits a V100, an A100 and an H100 ask for more than any of them has.**

# %% [markdown] slide="notes"
# One more thing decides your R: does your float32 run as TF32? From Ampere (2020) on, PyTorch's default lets
# convolutions use it: values of four bytes, multiplied on the tensor cores at half the rate of float16 (A100: 156 and
# 312 TFLOP/s, NVIDIA's data sheet). Twice the bytes at half the rate: the last column holds for TF32 too, where a card has it. So far our
# float32 has been without it (`torch.backends.cudnn.allow_tf32 = False`). Here is our step with it:


# %% slide="subslide"
def with_tf32(device):
    """The device with all float32 products, dense layers' too, at half of float16's rate."""
    return replace(device, float32_tflops=device.tensor_tflops / 2)


print("PyTorch's default lets convolutions use TF32:", torch.backends.cudnn.allow_tf32)
for name, device in (("without TF32", h100), ("with TF32", with_tf32(h100))):
    print(f"H100, {name}: {100 * simulate(vgg, device, 'all').slowdown:.0f} % longer")

# %% [markdown] slide="slide"
# ## Which copies still hide?
#
# In 16 bits or TF32 an H100 asks for wider layers than VGG-16 has. What helps is more arithmetic for each byte that moves.
# So of a transformer's block move only the *input*. The maps inside are thrown away, and made again in the backward pass
# (lesson 10).

# %% [markdown] slide="notes"
# A *transformer* is a chain of equal *blocks* (lesson 13). It works on *tokens*, pieces of a text. Each token is a vector
# of *h* numbers, as each position of a map is a vector of C.
#
# A block has about 12 · h² weights. Each is used once a token, in one multiplication and one addition: 24 · h² operations.
# (Attention's products come on top.) Its input is 2 · h bytes a token in 16 bits. Divide by R and by L, as before:

# %% [markdown] slide="subslide"
# **The copy of a block's input surely hides behind its forward pass if 12 · h ≥ R / L**

# %% tags=["change"]
# Change the device or the numbers a token, and run again. From which h on does it surely hide?
device = hardware.device("H100 SXM")
widths = {"Llama-3.2-1B": 2048, "SmolLM2-135M": 576}

needed = device.reached_flops_per_s("float16") / device.link.bytes_per_s
for name, h in widths.items():
    verdict = "hides" if 12 * h >= needed else "may not hide"
    print(f"{name} on {device.name}: 12 · h = {12 * h:,}, needed {needed:,.0f}: {verdict}")

# %% [markdown] slide="notes"
# *Surely*, if a block has 12 · h² weights and no kernel is faster than R. Below the rule a copy may hide as well, as a
# block does more than this arithmetic: in *Further* the narrow model's copies do. The forward pass is again the tight
# one: on the way back a second forward pass comes on top.
#
# **What does it save?** In *Further*, for five blocks of Llama-3.2-1B, recomputing takes the peak from 21.15 to 17.16
# GiB, and moving the inputs to 17.04.

# %% [markdown] slide="slide"
# ## The real thing
#
# A copy can overlap with kernels only if it has a stream of its own, the host does not wait for it, and the host's memory is
# pinned. The numbered lines keep it correct. (No GPU has run it for this course.)
#
# ```python
# copies = torch.cuda.Stream()
#
# def pack(tensor):  # autograd saves a tensor
#     host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
#     copies.wait_stream(torch.cuda.current_stream())  # 1. after what writes it
#     with torch.cuda.stream(copies):
#         host.copy_(tensor, non_blocking=True)        # the program does not wait
#     tensor.record_stream(copies)                     # 2. its block waits, too
#     return host, copies.record_event()
#
# def unpack(packed):  # autograd needs it
#     host, left = packed
#     torch.cuda.current_stream().wait_event(left)     # 3. out before it is back
#     return host.to("cuda", non_blocking=True)
#
# with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
#     loss = criterion(net(x), y)
# loss.backward()
# ```

# %% [markdown] slide="skip"
# An *event* marks a place in a stream's queue: `wait_event` holds this stream until that place is passed, `wait_stream`
# until all that the other has now is done. `record_stream` tells the allocator that another stream still uses a block.
#
# *Pinned* memory is host memory that the operating system may not move or swap, so the card can read it by itself
# (NVIDIA's *CUDA C++ Best Practices Guide*). Other programs lose it. Torch 2.13 rounds each block up to a power of
# two, so VGG-16's 13 GiB of maps, each moved once, pin 23 GiB. The code above pins 40: it also moves parameters
# (question 6 of the exercise), and a map that two layers save twice.
#
# **Correct is not yet small.** Nothing here limits how many copies are in flight. The host runs ahead (lesson 01), and
# by line 2 a block is free only after its copy. When the host asks for the next map, that copy has often not begun:
# no block is free, and the allocator takes new memory. On a full card it first waits for the copies: the step becomes slow, and fails only if there is still
# no room. Code for real use limits the copies in flight. In place of line 2 it keeps the last few tensors with their
# events; before it drops the oldest, the kernels' stream waits for that tensor's event (torchtune:
# `max_fwd_stash_size`).
#
# **Only the way out overlaps.** Each tensor comes back *on demand*, on the stream of the kernels, and the kernel that
# needs it waits for the whole copy. To *prefetch* is to begin that copy some layers earlier, at the price of the memory
# it then fills.
#
# <details><summary>Somebody leaves out line 1, and the loss becomes NaN now and then. Why? And line 2?</summary>
#
# Without line 1 the copy may begin before the tensor is written. Without line 2 the tensor's block is free as soon as
# Python lets go of it, and the next kernel may write into it while the copy still reads. Neither raises an error.
#
# </details>
#
# `OffloadActivations` is the course's own class (torchtune has one of the same name), with a window and prefetch. Here,
# on a CPU, it moves real bytes to a second pool: you see everything but the overlap.


# %% slide="subslide" folded=true
def digits_net():
    layers = []
    for i in range(6):
        layers += [
            (f"conv{i}", nn.Conv2d(16 if i else 1, 16, 3, padding=1)),
            (f"norm{i}", nn.BatchNorm2d(16)),
        ]
        layers += [(f"relu{i}", nn.ReLU())]
    return nn.Sequential(
        OrderedDict([*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(16 * 16 * 16, 10))])
    )


x, y, _, _ = digits.images(side=16)
offload = OffloadActivations("all", device="cpu", keep=[x])


def trained(policy, steps=10):
    """A network after some steps with Adam on the digits."""
    torch.manual_seed(0)
    net = digits_net()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for batch in torch.randperm(len(x))[: 64 * steps].view(steps, 64):
        optimizer.zero_grad()
        if policy == "none":
            loss = F.cross_entropy(net(x[batch]), y[batch])
        else:
            with offload:  # around the forward pass
                loss = F.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    return net


ours, theirs = trained("all").state_dict(), trained("none").state_dict()
out, back = offload.moved_bytes / MIB, offload.returned_bytes / MIB
print(f"10 steps on the digits, {out:.0f} MiB to the second pool, {back:.0f} MiB back")
print("same weights, bit by bit:", all(torch.equal(ours[name], theirs[name]) for name in ours))

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **when does the copy hide?**

# %% [markdown] slide="notes"
# Before each move say whether the step becomes longer or shorter, and what moving costs.

# %% tags=["nbval-ignore-output"]
offload_explorer(moves="everything, 2 in flight")

# %% [markdown] slide="skip"
# Try three things. Double the batch: what happens to the cost of moving? Back at 192, switch to float16, in which most
# maps are half as large. Stay there, and give the T4 a faster link: from which one on does moving everything, with four or
# more maps in flight, cost less than one more forward pass? And with two?
#
# <details><summary>What you will see</summary>
#
# The cost in percent stays as it was: kernels and copies both double. In float16 it rises: the copies take a little
# more than half as long (indices keep their eight bytes), the kernels on tensor cores far less than half. With four
# or six in flight it is below a forward pass (35 %) from PCIe 4.0 on, with two from PCIe 5.0 on. A T4 has PCIe 3.0.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# A copy costs no time if the kernels beside it last longer.
#
# 1. A convolution's do if k² · C ≥ 2 · R / L; in 16 bits, R / L.
# 2. With several in flight a late copy can catch up. The forward pass is the tight one.
# 3. A transformer's block surely does if 12 · h ≥ R / L.

# %% [markdown] slide="notes"
# So on a T4 in float32, with four copies in flight, VGG-16's peak falls by a quarter for 3.8 % more time, if its
# workspaces find room. On a V100, an A100 or an H100 in 16 bits, by our rates, none of its convolutions is wide enough.
# What hides there is the input of a wide block whose inside is computed again (lesson 10), such as a transformer's.
#
# Now the exercise: [exercises/09_offload.ipynb](../exercises/09_offload.ipynb). {questions}. Save, then
# `course check 09` gives your marks. The appendix: seven of 13 published figures agree, no single time among them.

# %% [markdown] slide="skip"
# **Further: a whole step of transformer blocks.** Five blocks of each model on an H100, four texts of 2,048 tokens. Times
# are relative to the step that keeps everything. Where every map moves, five copies may be in flight. Where only the
# blocks' inputs move, one may: it has its whole block to hide behind.

# %% slide="skip" folded=true
columns = {}
for name in ("Llama-3.2-1B", "SmolLM2-135M"):
    shape = SHAPES[name]
    plain = language_step(name, 2048, layers=5).at(4)
    again = language_step(name, 2048, Options(recompute="full"), layers=5).at(4)
    recomputed = simulate(again, h100, "none", precision="bfloat16")
    work = recomputed.work
    inputs = work.movable & (work.size == 2 * 4 * 2048 * shape.hidden)
    inputs &= [owner != "norm" for owner in work.owners]  # after the last block
    fast = np.full(work.kernels, True)
    ways = {
        "everything kept": simulate(plain, h100, "none", precision="bfloat16"),
        "every map moved": simulate(plain, h100, "windowed", window=5, precision="bfloat16"),
        "blocks recomputed": recomputed,
        "blocks recomputed, inputs moved": run(
            work, inputs, fast, h100.link.bytes_per_s, h100.launch_seconds, window=1
        ),
    }
    keeps = ways["everything kept"].total_seconds
    column = columns.setdefault(f"{name}, 12 · h = {12 * shape.hidden:,}", {})
    for way, found in ways.items():
        longer = 100 * (found.total_seconds / keeps - 1)
        column[way] = f"{format_bytes(found.peak_bytes)}, {longer:+.1f} %"
    gradient_maps = format_bytes(int(again.by_role()["gradient maps"]))
    moved_bytes = format_bytes(int(work.size[inputs].sum()))
    print(f"{name}: {inputs.sum()} inputs moved, {moved_bytes};", end=" ")
    print(f"at the peak, gradient maps {gradient_maps}")
    a_copy = max(one.ends - one.begins for one in found.copies)
    block = (work.phase == FORWARD) & ["layers.1" in layer for layer in work.layers]
    small = block & [op != "mm" and "attention" not in op for op in work.ops]
    print(f"  a copy {format_seconds(a_copy)};", end=" ")
    print(f"a block's forward pass {format_seconds(work.fast[block].sum())},", end=" ")
    print(f"without its products {format_seconds(work.fast[small].sum())}")
pd.DataFrame(columns)

# %% [markdown] slide="skip"
# Moving the blocks' inputs costs nothing *on top of* recomputing the blocks, which has its price (lesson 10). Here 160
# MiB move; nearly half of the peak are gradient maps at the loss. The wide model's copies hide, as the rule says. So do
# the narrow one's: its norms and other small kernels, which the rule leaves out, alone take longer than a copy. (The
# trace is of eager PyTorch.)
#
# torchtune measured a whole model: Llama 3.2 3B, 2 × 4,096 tokens in bfloat16, on an A100. Added to checkpointing and an
# update within the backward pass, its offload took the peak from 23.1 to 21.8 GiB, for 0.1 % fewer tokens a second
# (README, 2025).

# %% [markdown] slide="skip"
# **Further: the course's own class, and `save_on_cpu`.** The allocator's peak in one step of the digits network, batch 64,
# moved by `OffloadActivations`, beside the trace. (The second pool's buffers are reused from the step before, so they are
# not counted.)

# %% slide="skip" folded=true
at_once = hardware.Link(
    "no time at all", 5, 1e9, 1e9, "on a CPU the copy is over before the next layer begins"
)


def first_pool(policy, prefetch=True, batch=64):
    """MiB at the peak of a forward and backward pass, traced and measured."""
    with torch.device("meta"):
        ledger = training_step(digits_net(), (1, 16, 16), 10, "sgd", target="cpu").at(batch)
    at_rest = replace(card, launch_seconds=0.0)
    traced = simulate(ledger, at_rest, policy, link=at_once, prefetch=prefetch).peak_bytes
    rows = slice(0, batch)
    model = digits_net()
    moving = OffloadActivations(policy, prefetch=prefetch, device="cpu", keep=[x])

    def step():
        with moving:
            loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        model.zero_grad(set_to_none=True)

    step()
    standing = sum(p.nbytes for p in model.parameters()) + x[rows].nbytes + y[rows].nbytes
    torch.backends.mkldnn.enabled = False  # its convolutions need scratch memory
    with digits.one_thread():
        above = cpu_peak_above(step)
    torch.backends.mkldnn.enabled = True
    return traced / MIB, (standing + above) / MIB


# %% slide="skip" tags=["nbval-ignore-output"] folded=true
peaks = {}
for name, how in (
    ("kept", ("none",)),
    ("moved", ("all",)),
    ("moved, on demand", ("all", False)),
):
    peaks[f"{name}, trace"], peaks[f"{name}, measured"] = first_pool(*how)
fall = 1 - peaks["moved, measured"] / peaks["kept, measured"]
side_by_side(
    peaks,
    title=f"Moving everything takes {100 * fall:.0f} % off the measured peak",
)

# %% [markdown] slide="skip"
# On demand, 1 MiB more is measured than traced, as much as one map. We have not found out which.
#
# PyTorch's own version, `torch.autograd.graph.save_on_cpu`, moves whatever autograd saves, as `pack` does. How much would
# that be in this step?


# %% slide="skip" folded=true
def saved_by_autograd(model, images, labels):
    """Bytes of every saved tensor, of each storage once, and of each map's storage once."""
    own = {
        tensor.untyped_storage().data_ptr()
        for tensor in (images, *model.parameters(), *model.buffers())
    }
    every, storages = 0, {}

    def pack(tensor):
        nonlocal every
        every += tensor.nbytes
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        F.cross_entropy(model(images), labels)
    once = sum(storage.nbytes() for storage in storages.values())
    theirs = sum(
        storage.nbytes() for pointer, storage in storages.items() if pointer not in own
    )
    return {"every saved tensor": every, "each storage once": once, "each map once": theirs}


sizes = saved_by_autograd(digits_net(), x[:64], y[:64])
more = sizes["every saved tensor"] / sizes["each map once"]
side_by_side(
    {name: size / MIB for name, size in sizes.items()},
    title=f"save_on_cpu would move {more:.1f} times the bytes of each map once",
)

# %% [markdown] slide="skip"
# It has no stream of its own: in the source of torch 2.13 it copies on the stream of the kernels, where a copy takes its
# turn like any kernel. And by default (`pin_memory=False`) the host waits for each copy out as well, so the queue of
# lesson 01 runs empty at every saved tensor.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(*textwrap.wrap(recordings.sentence(gpu), 90), sep="\n")
if gpu is not None:
    for pinned in (True, False):
        seconds = gpu.transfer(64 * MIB, pinned)
        kind = "pinned" if pinned else "not pinned"
        print(f"64 MiB to the device, {kind}: {64 * MIB / seconds / GB:.1f} GB/s")
    for way in ("kept", "save_on_cpu", "save_on_cpu, pinned"):
        for step in gpu.sweep("VGG-16", way=way, batches=[32]):
            if step.memory is not None and step.step is not None:
                peak, seconds = step.memory.peak_bytes, step.step.median
                found = f"{format_bytes(peak)}, {format_seconds(seconds)}"
                print(f"VGG-16, batch 32, {way}: {found}")

# %% [markdown] slide="skip"
# ## Appendix: the paper of 2016
#
# Rhu et al. (*vDNN*, 2016) were among the first to offload whole networks, on a Maxwell Titan X with 12 GiB and PCIe
# 3.0. This appendix counts as they did, in GB: forward and backward pass, every map allocated throughout where nothing
# moves, activations in place. Their policies are *all*, *conv* (what convolutions read) and *dyn*, a search for the
# fastest plan that fits, with convolutions that are fast and need workspace, or slow and need none. *Lost* is 1 −
# fastest step / this step.

# %% slide="skip" folded=true
published = comparison(runs())
tested = published[published["verdict"] != "calibration"]
single = ~tested["published"].str.contains("to |at most")
agree = tested["verdict"] == "agrees"
print(f"within 6 %: {(single & agree).sum()} of {single.sum()} single figures;", end=" ")
print(f"inside: {(~single & agree).sum()} of {(~single).sum()} ranges and bounds")
names = (published["network"] + " " + published["batch"].astype(str)).str.strip()
shown = published.assign(network=names)
shown[["network", "quantity", "published", "model", "verdict"]].set_index("network")

# %% [markdown] slide="skip"
# The row marked *calibration* gave the model a constant, so it tests nothing. What may be the reason where others miss:

# %% slide="skip" folded=true
for row in published[published["verdict"] == "misses"].to_dict("records"):
    network, why = f"{row['network']} {row['batch']}".strip(), row["why"]
    said = f"{network}, {row['quantity']}: {row['published']}, model {row['model']}. "
    print(*textwrap.wrap(said + why[0].upper() + why[1:] + ".", 92), "", sep="\n")

# %% [markdown] slide="skip"
# The best known figure, 18 % lost by VGG-16 at batch 256, depends on how fast one takes the kernels to be. We do not know
# which share of the peak theirs reached, so the place of the hollow point is an assumption:

# %% slide="skip" folded=true
loss_by_efficiency(
    sensitivity(TenNetworks()),
    "VGG-16, batch 256",
    (Spot("published", hardware.ARITHMETIC_EFFICIENCY, 18.0, hollow=True),),
    {"the model's": hardware.ARITHMETIC_EFFICIENCY},
)

# %% [markdown] slide="skip"
# And five claims of 2017 about it, in our words. Each verdict is computed when the cell runs, in
# `lessons/offload/claims.py`:

# %% slide="skip"
judge([30, 31, 32, 33, 34])

# %% [markdown] slide="skip"
# The exercise is [exercises/09_offload.ipynb](../exercises/09_offload.ipynb). {questions}.
