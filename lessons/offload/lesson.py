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
# **The question:** a feature map made early waits for seconds until the backward pass needs it. It can wait in the
# CPU's memory. When can the copy hide behind the computation?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say from a layer's shape whether the copy of its input hides behind it;
# 2. read a schedule of two streams, and name what waits for what;
# 3. choose what moves: nothing, everything, what feeds convolutions, or what a search finds;
# 4. say when a map may leave in a network with branches;
# 5. move what autograd saves of a real network, with gradients equal bit by bit.
#
# About 60 minutes, and {minutes} for the exercise. It builds on lessons 01 (roofline) and 03 (the peak). No GPU is
# needed.

# %% slide="skip" folded=true
import textwrap
from collections import OrderedDict
from dataclasses import replace

import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side
from course_utils.machine import hardware
from course_utils.machine.measure import cpu_peak_above
from course_utils.techniques.offload import OUT, simulate
from course_utils.trace import training_step
from course_utils.units import GB, MIB, format_bytes, format_seconds, in_gb
from lessons.claims import judge
from lessons.offload.claims import TenNetworks, runs
from lessons.offload.efficiency import loss_by_efficiency
from lessons.offload.explorer import offload_explorer
from lessons.offload.published import LINK, comparison, sensitivity
from lessons.offload.schedule_lanes import schedule_lanes
from lessons.offload.search import simulate_2016
from lessons.shared import digits
from lessons.shared.offload_real import OffloadActivations

# %% [markdown] slide="slide"
# ## The idea
#
# *Offload*: copy a feature map to the CPU's memory in the forward pass, free it on the card, and copy it back in time
# for the backward pass.

# %% [markdown] slide="notes"
# Rhu et al., *vDNN* (2016), did it for whole networks. Copies have a queue of their own, a second *stream*, so they run
# beside kernels, over a link such as PCIe. The host needs room for all that leaves.
#
# Their card is a Maxwell Titan X, 12 GiB, on PCIe 3.0. As with memory (lesson 01), we count on three quarters of what a
# link has on paper: 11.8 of 15.75 GB/s. Measured on four links it was 0.63
# to 0.82: copies on two generations of PCIe, all-reduces on two of NVLink.

# %%
networks_of_2016 = TenNetworks()
card = hardware.device("Titan X (Maxwell)")
vgg = networks_of_2016["VGG-16"].at(128)


def schedule(ledger, policy, algorithm="p", **more):
    return simulate_2016(ledger, card, policy, algorithm, LINK, **more)


kept = schedule(vgg, "none")
everything = schedule(vgg, "all")
one_way = everything.traffic_bytes()[OUT]
print(f"VGG-16, batch 128: {in_gb(kept.peak_bytes):.1f} GB in all, ", end="")
print(f"{format_seconds(kept.total_seconds)} of kernels")
print(f"all maps before the dense layers: {in_gb(one_way):.1f} GB each way")
print(f"the link is busy for {format_seconds(everything.copy_floor_seconds)}")

# %% [markdown] slide="slide"
# ## Predict
#
# 2.88 s of kernels. 1.32 s of copies, out and back, on a stream beside them.

# %%
guess = predict(
    "By how many percent does the step become longer when every map moves?", unit="%"
)
guess

# %% [markdown] slide="slide"
# ## By hand: one layer
#
# `conv1_2` reads 64 maps of 224 × 224 for each of 128 images, and writes as many, with kernels of 3 × 3.

# %% [markdown] slide="notes"
# While it runs, nobody changes its input: the copy may run beside it. Which takes longer?

# %%
link = hardware.link(LINK).bytes_per_s  # bytes a second: 0.75 of those on paper
rate = card.reached_flops_per_s()  # operations a second: 0.67 of the peak, as in lesson 01
input_bytes = 4 * 128 * 64 * 224 * 224
operations = 2 * 9 * 64 * 64 * 128 * 224 * 224
copy, kernel = format_seconds(input_bytes / link), format_seconds(operations / rate)
print(f"copy:   {input_bytes / GB:.2f} GB over {link / GB:.1f} GB/s: {copy}")
print(f"kernel: {operations / 1e9:.0f} GFLOP at {rate / 1e12:.2f} TFLOP/s: {kernel}")

# %% [markdown] slide="slide"
# ## By hand: every convolution
#
# Bytes and operations both grow with the batch, with height and width, and with the channels that are *read*. All of
# these cancel. What is left:
#
# **The copy of its input hides behind a convolution if k² · C ≥ 2 · R / L**

# %% [markdown] slide="notes"
# with kernels of k × k, C channels *written*, R operations and L bytes a second. (A stride of s divides the left side
# by s², as fewer outputs are computed. A value has 4 bytes.)

# %%
needed = 2 * rate / link
print(f"needed: {needed:.0f}")
for kernel, written in ((3, 64), (3, 128), (1, 64), (1, 512), (11, 64)):
    verdict = "hides" if kernel**2 * written >= needed else "does not hide"
    print(f"{kernel} × {kernel}, {written} channels: {kernel**2 * written:>5,}, {verdict}")

# %% [markdown] slide="notes"
# The batch is not in it: a larger batch does not help the copy to hide. A pool computes next to nothing, so a copy
# beside it never hides.

# %% [markdown] slide="slide"
# ## Trace: the rule, and what the schedule says
#
# Each point is a convolution of a traced network: the time of its input's copy over its kernel's.


# %% slide="skip" folded=true
def points(name, colour, named):
    """Convolutions beside which a map leaves: k² · C / s², copy time over kernel time."""
    found = schedule(networks_of_2016[name].at(128), "all")
    with torch.device("meta"):
        modules = dict(getattr(networks, name.lower().replace("-", ""))().named_modules())
    spots = []
    for copy in found.copies:
        layer = found.work.layers[copy.beside]
        module = modules.get(layer)
        if copy.direction != OUT or not isinstance(module, nn.Conv2d):
            continue
        x = module.kernel_size[0] ** 2 * module.out_channels / module.stride[0] ** 2
        kernel = found.ends[copy.beside] - found.begins[copy.beside]
        label = f"{name} {named[layer]}" if layer in named else ""
        spots.append(Spot(label, x, (copy.ends - copy.begins) / kernel, colour))
    return spots


# %% folded=true
vgg_points = points(
    "VGG-16", "#0072b2", {"conv1_2": "conv1_2", "conv2_2": "conv2_2", "conv4_2": "conv4_2"}
)
google_points = points(
    "GoogLeNet", "#d55e00", {"inception3a.branch_pool.conv": "1×1, 32 channels"}
)
ends = [20, 9000]
plane(
    Axis("k² · channels written / stride²", log=True),
    Axis("time of the copy / time of the kernel", log=True),
    curves=[Curve("the rule", ends, [needed / x for x in ends])],
    spots=google_points + vgg_points,  # VGG-16 over GoogLeNet, where both have a point
    limits={"hides below": 1.0},
    title=f"One line for every convolution: k² · C ≥ {needed:.0f} lets its input's copy hide",
)

# %% [markdown] slide="notes"
# Points off the line are kernels that memory bandwidth bounds, not arithmetic: slower than the rule thinks. The dashed
# line is where the two times are equal.

# %% [markdown] slide="slide"
# ## A schedule of two streams
#
# Now the whole step. vDNN is strict: a layer begins when the copy beside the layer before it has ended. Read the lanes
# from left to right; stripes are waits.

# %% [markdown] slide="notes"
# Below, memory over the same time; the outline is the step with nothing moved.

# %%
schedule_lanes(everything, card.memory_bytes, kept)

# %% slide="subslide" folded=true
reveal(
    guess,
    {
        "nothing hides": 100 * everything.copy_floor_seconds / kept.total_seconds,
        "trace, two streams": 100 * everything.slowdown,
        "all of it hides": 0.0,
    },
    against="trace, two streams",
    thoughts=[
        (
            100 * everything.copy_floor_seconds / kept.total_seconds,
            "That is every copy waited for in full. Most run beside kernels.",
        ),
        (0, "Long kernels hide their copies; pools and wide early layers do not."),
    ],
)

# %% slide="skip"
for stall in sorted(everything.stalls, key=lambda stall: -stall.seconds)[:4]:
    print(*textwrap.wrap(everything.explain(stall), 90), sep="\n", end="\n\n")
waits = everything.stall_seconds()
for reason, seconds in waits.items():
    print(f"{reason}: {format_seconds(seconds)} of waiting")

# %% [markdown] slide="skip"
# The waits are behind pools. A pool reads the largest maps and computes next to nothing; the layer after it waits for
# the copy that began with the pool.

# %% [markdown] slide="slide"
# ## What moves: policies

# %% [markdown] slide="notes"
# Four policies:
#
# - **none**: nothing moves, and everything is allocated throughout, as in frameworks of 2016.
# - **all**: every map before the dense layers.
# - **conv**: what convolutions read. Their long kernels hide the copy; what only a pool reads stays.
# - **dyn**: a search for the fastest plan that fits the card.

# %% [markdown]
# Each with convolutions that are *memory-optimal* **(m)**, slower and without workspace, or *performance-optimal*
# **(p)**. In the model (m) has half of (p)'s speed.

# %%
rows = []
ways = [("none", "p"), ("all", "m"), ("all", "p"), ("conv", "m"), ("conv", "p")]
for policy, algorithm in ways:
    found = schedule(vgg, policy, algorithm)
    sizes = (found.peak_bytes, found.average_bytes, found.traffic_bytes()[OUT])
    row = [f"{in_gb(size):.2f}" for size in sizes]
    row += [format_seconds(found.total_seconds), f"{found.loss:.1%}"]
    rows.append((f"{policy} ({algorithm})", *row))
columns = ["policy", "peak, GB", "average, GB", "moved each way, GB", "step", "lost"]
pd.DataFrame(rows, columns=columns).set_index("policy")

# %% [markdown]
# *Lost* is counted as in 2016: 1 − fastest step / this step.

# %% [markdown] slide="notes"
# Moving what convolutions read costs under two percent; the slow algorithms cost half. Both policies have one peak: the
# backward pass of `conv1_2`, whose own maps and workspace must be there in any case.

# %% [markdown] slide="skip"
# ### conv (p): the same figure, hardly a wait

# %% slide="skip"
schedule_lanes(schedule(vgg, "conv"), card.memory_bytes, kept)

# %% [markdown] slide="slide"
# ## Who waits longest: reuse distance
#
# The *reuse distance* of a map is the time between its last use in the forward pass and its first in the backward pass.

# %% [markdown] slide="notes"
# The earlier a layer, the longer: its map is the largest, and the idlest.

# %% folded=true
distance = {
    owner: seconds
    for owner, seconds, moved in zip(
        everything.work.owners, everything.reuse_seconds, everything.moved, strict=True
    )
    if moved
}
shown = ["conv1_1", "conv1_2", "pool1", "conv2_2", "conv3_3", "conv4_3", "conv5_3"]
side_by_side(
    {f"map of {layer}": 1000 * distance[layer] for layer in shown},
    unit="ms",
    title=f"Nobody looks at conv1_1's map for {format_seconds(distance['conv1_1'])}, "
    f"at conv5_3's for {format_seconds(distance['conv5_3'])}",
)

# %% [markdown] slide="slide"
# ## The search
#
# `dyn` tries, in this order: everything moved, no workspace (it must fit); nothing moved; conv (p); all (p). If none
# fits, it slows convolutions down where memory runs out. VGG-16, batch **256**, on 12 GiB:

# %%
vgg_256 = networks_of_2016["VGG-16"].at(256)
found = schedule(vgg_256, "dyn")
print(*found.tried, sep="\n")
print(f"\ntaken: {format_seconds(found.total_seconds)}, {found.loss:.1%} lost")

# %% slide="subslide"
schedule_lanes(found, card.memory_bytes, schedule(vgg_256, "none"))

# %% [markdown]
# 25 GiB become 11.75, and the step still trains on 256 images.

# %% [markdown] slide="notes"
# One kernel without workspace, the backward pass of `conv1_2`, makes the difference between fitting and not.

# %% [markdown] slide="slide"
# ## Branches: when may a map leave?
#
# In a chain a map has one reader. An Inception module has four branches, and all read the map before it. It may leave
# beside its **last** reader, not the first:

# %%
google = schedule(networks_of_2016["GoogLeNet"].at(128), "all")
work = google.work
tensor = next(c.tensor for c in google.copies if work.owners[c.tensor] == "pool2")
last = work.last_forward_use[tensor]
reads = [k for k, t, wrote in work.uses if t == tensor and not wrote and k <= last]
for kernel in reads:
    begins = 1000 * google.begins[kernel]
    print(f"{begins:6.1f} ms: {work.layers[kernel]} reads the map of pool2")
leaves = next(copy for copy in google.copies if copy.tensor == tensor)
print(f"{1000 * leaves.begins:6.1f} ms: its copy begins")

# %% [markdown] slide="notes"
# The same in the backward pass, the other way round: four branches add to its gradient, and the map must be back for
# the first of them.

# %% [markdown] slide="subslide"
# ### GoogLeNet: copies that cannot hide

# %%
google_kept = schedule(networks_of_2016["GoogLeNet"].at(128), "none")
schedule_lanes(google, card.memory_bytes, google_kept)

# %% [markdown] slide="notes"
# Convolutions of 1 × 1, pools, and the concatenations that join branches read many bytes for little arithmetic. The
# copies alone take longer than all kernels together.

# %% [markdown] slide="slide"
# ## A looser rule: a window
#
# Must a layer wait for the copy before it? Not if memory allows a few maps on their way at once: a *window*. Then only
# the sum counts.

# %% [markdown] slide="notes"
# VGG-16's copies take 46 % of its kernels' time, and all of them hide; GoogLeNet's take 143 %, and cannot.

# %%
rows = []
for name in ("VGG-16", "GoogLeNet"):
    ledger = networks_of_2016[name].at(128)
    for window in (0, 1, 2, 5):
        more = {"policy": "windowed", "window": window} if window else {"policy": "all"}
        found = schedule(ledger, **more)
        share = found.copy_floor_seconds / found.fastest_seconds
        row = f"{share:.0%}", f"{found.loss:.1%}", f"{in_gb(found.peak_bytes):.2f}"
        rows.append((name, window, *row))
columns = ["network", "window", "copies / kernels", "lost", "peak, GB"]
pd.DataFrame(rows, columns=columns).set_index(["network", "window"])

# %% [markdown] slide="slide"
# ## The published figures
#
# The model's constants were chosen once, for every row.

# %% [markdown] slide="notes"
# One of them is from a row of this table, marked *calibration*, so that row tests nothing. What agrees within 6 %, and
# what does not?

# %%
table = comparison(runs())
tested = table[table["verdict"] != "calibration"]
agree = int((tested["verdict"] == "agrees").sum())
print(f"{agree} of {len(tested)} published figures agree")
names = (table["network"] + " " + table["batch"].astype(str)).str.strip()
shown = table.assign(network=names)
shown[["network", "quantity", "published", "model", "verdict"]].set_index("network")

# %% [markdown] slide="skip"
# ### What it misses, and why

# %% slide="skip"
for row in table[table["verdict"] == "misses"].to_dict("records"):
    network, why = f"{row['network']} {row['batch']}".strip(), row["why"]
    said = f"{network}, {row['quantity']}: {row['published']}, model {row['model']}. "
    print(*textwrap.wrap(said + why[0].upper() + why[1:] + ".", 92), "", sep="\n")

# %% [markdown] slide="slide"
# ## How sure is 18 %?
#
# The best known figure: VGG-16, batch 256, 18 % lost. The model says less. But faster kernels leave less time to hide
# copies behind, so what a model says depends on how fast it thinks kernels are.

# %%
by_speed = sensitivity(networks_of_2016)
loss_by_efficiency(
    by_speed,
    "VGG-16, batch 256",
    (Spot("published", hardware.ARITHMETIC_EFFICIENCY, 18.0, hollow=True),),
    {"the model's": hardware.ARITHMETIC_EFFICIENCY},
)

# %% [markdown] slide="notes"
# Nobody published which share of the peak those kernels reached, so the point's place is an assumption too. That a
# model agrees with one such figure proves little. That it says what would change it is worth more.

# %% [markdown] slide="slide"
# ## And today?
#
# The rule needs only R and L.

# %% [markdown] slide="notes"
# As everywhere in the course, L is three quarters of a link's rate on paper, and R two thirds of a card's. In 16 bits a
# value has two bytes, and the rule is k² · C ≥ R / L:

# %%
rows = []
for device in hardware.devices():
    if device.link is None:
        continue
    float32 = 2 * device.reached_flops_per_s() / device.link.bytes_per_s
    half = device.reached_flops_per_s("float16") / device.link.bytes_per_s
    row = f"{float32:,.0f}", f"{half:,.0f}" if device.tensor_tflops else "–"
    rows.append((device.name, device.year, device.link.name, *row))
columns = ["device", "year", "link", "k² · C needed, float32", "float16, tensor cores"]
pd.DataFrame(rows, columns=columns).set_index("device")

# %% [markdown]
# In plain float32 the need has been of the same order since 2016.

# %% [markdown] slide="notes"
# On the tensor cores of the data-centre cards (V100, T4, A100, H100) it is several times as much; those of the two RTX
# cards are nearer to their float32. TF32, the tensor cores' format for float32 since the A100, has half the rate of
# float16 and twice the bytes, so its need is that of the last column. A dense layer is a 1 × 1 convolution of one
# pixel: C outputs. In float16 on an H100 it takes more than 10,000 of them.

# %% [markdown] slide="slide"
# ## The lines that overlap a copy
#
# A GPU works off queues of kernels, *streams*. A copy on one overlaps with kernels on another, if four things are right:
#
# ```python
# copies = torch.cuda.Stream()
#
# def pack(tensor):  # autograd saves a tensor
#     host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
#     copies.wait_stream(torch.cuda.current_stream())  # 1. whoever writes the tensor ends first
#     with torch.cuda.stream(copies):
#         host.copy_(tensor, non_blocking=True)        # 2. does not hold up the program
#     tensor.record_stream(copies)                     # 3. its block is not reused before that
#     return host, copies.record_event()
#
# def unpack(packed):  # autograd needs it
#     host, left = packed
#     torch.cuda.current_stream().wait_event(left)     # 4. it is out before it comes back
#     return host.to("cuda", non_blocking=True)
#
# with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
#     loss = criterion(net(x), y)
# loss.backward()
# ```

# %% [markdown] slide="skip"
# *Pinned* memory (`pin_memory=True`) is host memory that the operating system may not move or swap, so the card can
# read it by itself. From ordinary, *pageable* memory the driver first copies into a pinned buffer of its own, piece by
# piece, and the program waits: `non_blocking=True` then changes nothing, and nothing overlaps. Pinned memory is taken
# from all other programs, so nobody pins everything.
#
# This version brings each tensor back when it is needed, on demand: every copy back is waited for. To *prefetch* means
# to begin it some layers earlier on the stream of copies, at the price of the memory it then fills. The class below has
# a switch for it, `prefetch=False`; its first pool is measured both ways, and lesson 12 meets the difference at VGG-16.
#
# <details><summary>Somebody leaves out line 1, and the loss becomes NaN now and then. Why? And line 3?</summary>
#
# Without line 1 the copy may begin before the kernel that writes the tensor has ended: it copies what was there before,
# sometimes. Without line 3 the allocator thinks the tensor's block is free as soon as Python lets go of it, and hands
# it to the next kernel while the copy still reads it. Neither is an error that anybody reports.
#
# </details>
#
# No GPU has run these lines for this course yet.

# %% [markdown] slide="slide"
# ## The real thing
#
# Autograd asks two functions, if given: *pack* when it saves a tensor for the backward pass, *unpack* when it needs it.
# `OffloadActivations` is built on these.

# %% [markdown] slide="notes"
# On a GPU it copies on a stream of its own, through pinned memory, and fetches ahead. Here, on a CPU, the same code
# moves real bytes to a second pool: everything but the overlap can be seen.


# %%
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


x, y, test_x, test_y = digits.images(side=16)
offload = OffloadActivations("all", device="cpu", keep=[x])
torch.manual_seed(0)
net = digits_net()
gradients = []
for moves in (False, True):
    net.zero_grad()
    if moves:
        with offload:  # around the forward pass
            loss = F.cross_entropy(net(x[:64]), y[:64])
    else:
        loss = F.cross_entropy(net(x[:64]), y[:64])
    loss.backward()
    gradients.append([parameter.grad.clone() for parameter in net.parameters()])
same = all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
moved, tensors = offload.moved_bytes / MIB, offload.moved_tensors
print(f"moved to the second pool: {moved:.1f} MiB in {tensors} tensors")
print(f"brought back:             {offload.returned_bytes / MIB:.1f} MiB")
print(f"gradients equal, bit by bit: {same}")

# %% [markdown] slide="slide"
# ## Measure: the first pool
#
# The peak of what the allocator hands out in a step, beside the trace. The second pool's buffers exist from the step
# before, so they are not counted.

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
    with digits.one_thread():
        return traced / MIB, (standing + cpu_peak_above(step)) / MIB


# %% tags=["nbval-ignore-output"]
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
    title=f"Moving everything takes {fall:.0%} off the measured peak",
)

# %% [markdown] slide="notes"
# On demand the first pool holds less, because no map is fetched before the kernel that needs it. What is measured above
# the trace is scratch memory of a convolution, as much as this processor's kernels take: with the maps gone, the peak
# is where one runs. And the small network of lesson 08? It has two layers, and its peak is in one of them: nothing to
# gain. Offload pays where a network is deep.

# %% [markdown] slide="skip"
# ## Beside torch's save_on_cpu
#
# PyTorch has `torch.autograd.graph.save_on_cpu`. It moves whatever autograd saves: parameters too, and a map as often
# as it is saved. What would it move of the same step?


# %% slide="skip"
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


sizes = saved_by_autograd(net, x[:64], y[:64])
more = sizes["every saved tensor"] / sizes["each map once"]
side_by_side(
    {name: size / MIB for name, size in sizes.items()},
    title=f"save_on_cpu would move {more:.1f} times as much",
)

# %% [markdown] slide="skip"
# It also waits for each copy, so nothing hides. On a CPU it does nothing at all: a tensor's `.cpu()` is the tensor.

# %% [markdown] slide="slide"
# ## On real data
#
# The digits, two epochs, with and without. Memory and time differ. Does anything else?

# %% tags=["nbval-ignore-output"] folded=true
from time import perf_counter

rows, weights = [], []
for name, policy in (("kept", "none"), ("moved", "all"), ("moved, window 5", "windowed")):
    torch.manual_seed(0)
    net, moving = digits_net(), OffloadActivations(policy, device="cpu", keep=[x])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    order = torch.cat([torch.randperm(len(x))[:1280] for _ in range(2)]).view(-1, 64)
    started = perf_counter()
    with digits.one_thread():
        for batch in order:
            optimizer.zero_grad()
            with moving:
                loss = F.cross_entropy(net(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    seconds = (perf_counter() - started) / len(order)
    weights.append([p.detach().clone() for p in net.parameters()])
    equal = all(torch.equal(a, b) for a, b in zip(weights[0], weights[-1], strict=True))
    accuracy = digits.accuracy(net.eval(), test_x, test_y)
    row = f"{first_pool(policy)[1]:.1f}", f"{1000 * seconds:.0f}", f"{accuracy:.1%}"
    rows.append((name, *row, equal))
columns = ["maps", "peak, MiB", "ms a step", "accuracy", "same weights, bit by bit"]
pd.DataFrame(rows, columns=columns).set_index("maps")

# %% [markdown]
# The same weights to the last bit, so the same accuracy: offload changes where bytes wait and nothing else.

# %% [markdown] slide="notes"
# Time here is a CPU's, which has nothing to hide copies behind.

# %% [markdown] slide="skip"
# ## On a GPU
#
# The next cell asks the GPU in this machine, or a recording of one: how long copies take, pinned and not, and what
# `save_on_cpu` costs. `OffloadActivations` has not met a GPU in this version of the course: its copy stream is written
# and untried.

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

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **when can the copy hide?**

# %% [markdown] slide="notes"
# Before each move say whether the waits become longer or shorter.

# %% tags=["nbval-ignore-output"]
offload_explorer()

# %% [markdown] slide="skip"
# Try three things. Double the batch: what happens to the share of waiting? Take the older link. Find the network and
# policy that lose least, and the one for which even the best policy loses much.
#
# <details><summary>What you will see</summary>
#
# The share of waiting stays: kernels and copies both double. On PCIe 2.0 it is twice as large. VGG-16 with *windowed*
# loses nothing, as copies may lag behind short layers. ResNet-50 always loses: its 1 × 1 convolutions are over before
# their maps are away, and *conv*, which leaves the most maps at home, still loses a quarter.
#
# </details>

# %% [markdown] slide="slide"
# ## What people believe
#
# Five claims of 2017, in our words.

# %% [markdown] slide="notes"
# Each verdict is computed when the cell runs: change a formula in `lessons/offload/claims.py`, and it changes.

# %%
judge([30, 31, 32, 33, 34])

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A copy hides behind a convolution if k² · C ≥ 2 · R / L.
# 2. A map leaves beside its last reader and must be back for the first in the backward pass.
# 3. Results are the same to the last bit; what it costs is time on the link.

# %% [markdown] slide="notes"
# Wide 3 × 3 convolutions hide the copy, 1 × 1 convolutions and pools do not, and the batch has no say. What moves, with
# which algorithm and how many at once decides between memory and time. Tensor cores have outgrown links: in 16 bits a
# copy hides worse today than in 2016.
#
# Now the exercise: [exercises/09_offload.ipynb](../exercises/09_offload.ipynb). {questions}. Save, then
# `course check 09` gives your marks.
