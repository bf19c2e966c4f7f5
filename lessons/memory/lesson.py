# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 03 · Where the memory goes
#
# **The question:** *CUDA out of memory.* Which bytes filled the card, and at which moment of the step?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. write down the bytes of any layer's output, parameters, gradients and optimizer state with a pencil;
# 2. read a *skyline* and name the role that broke the budget;
# 3. say why PyTorch prints one number, `nvidia-smi` another, and why neither says whether a batch fits;
# 4. find the largest batch that fits a card, and know when extrapolating is wrong;
# 5. spot code that keeps memory alive for no reason.
#
# **Part one** asks what is alive at the peak. **Part two** asks how to read an out-of-memory message, and whether a step
# fits a card.
#
# About 120 minutes, and {minutes} for the exercise. It builds on lesson 00 (the roles, the trace); lesson 02 has more on the
# *context*, the driver's share. No GPU is needed.

# %% slide="skip" folded=true
from textwrap import fill

import pandas as pd
import torch
from IPython.display import HTML
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks, recordings
from course_utils.allocator import CachingAllocator, OutOfMemory
from course_utils.figures import skyline
from course_utils.machine.measure import cpu_peak_above, measure_step
from course_utils.techniques.capacity import demand, fit, largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes
from lessons.claims import judge
from lessons.memory.bars import layer_bars
from lessons.memory.explorer import memory_explorer
from lessons.memory.ladder import ladder
from lessons.memory.segments import Moment, segments, verdicts
from lessons.shared.batch_lines import batch_lines
from lessons.shared.beside import beside_trace

# %% [markdown] slide="notes"
# Guess first; then we work it out by hand, and then you see the answer. If you remember what VGG-16 took in lesson 02,
# do not double that: part of it does not grow with the batch.

# %%
guess = predict(
    "Train VGG-16 on batches of 128 images of 224 × 224, with momentum. "
    "Its 138 million parameters take half a GiB. "
    "How much memory is in use at the worst moment of a training step?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## By hand: one layer
#
# Take a convolution small enough for a pencil: 3 channels in, 8 out, a 3 × 3 kernel, on 4 images of 16 × 16.
# A value in *float32* takes 4 bytes.
#
# | what | how | bytes |
# |---|---|---:|
# | parameters | (3 · 8 · 3 · 3 + 8) · 4 | 896 |
# | their gradients | as many | 896 |
# | momentum | as many | 896 |
# | input | 4 · 3 · 16 · 16 · 4 | 12,288 |
# | output, the *feature map* | 4 · 8 · 16 · 16 · 4 | 32,768 |

# %% [markdown] slide="notes"
# All that training keeps for the parameters is 2,688 bytes. The output alone is twelve times that, and it grows with the
# batch; the parameters do not. Now let the library count. After the layer we put a ReLU and a second convolution, with
# 2,336 bytes of parameters of its own:

# %% slide="subslide"
layers = nn.Sequential(
    nn.Conv2d(3, 8, kernel_size=3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
)
step = training_step(
    layers, input_shape=(3, 16, 16), criterion=lambda output, y: output.mean(), target="cpu"
)
passes = step.at(batch=4).timeline().query("phase != 'update'").set_index("event")
roles = ["parameters", "weight gradients", "input", "feature maps", "gradient maps"]

# %% folded=true
which = [
    "", "first convolution", "ReLU", "second convolution", "the loss: a mean",
    "gradient of the loss", "gradient of the mean", "second convolution", "ReLU",
    "first convolution",
]  # fmt: skip
alive = passes[roles].sum(axis=1)
marks = ["peak: " if total == alive.max() else "" for total in alive]
which_is = [mark + layer for mark, layer in zip(marks, which, strict=True)]
passes[roles[1:]].map("{:,}".format).assign(**{"which is": which_is})

# %% [markdown] slide="notes"
# Each row is an operator of the forward or the backward pass, with the bytes alive when it has made its output and not
# yet dropped its inputs.
#
# - Parameters, 3,232 bytes, are there all the time. So is, from the first update on, *optimizer state*: momentum keeps
#   one number for every parameter, another 3,232 bytes. The table leaves both out.
# - *Feature maps*, the outputs of layers, appear in the forward pass. The first convolution's is gone before the second
#   convolution begins. The ReLU's, 32,768 bytes, stays until the backward pass has been through the ReLU.
# - *Gradient maps*, the gradients of those outputs, and *weight gradients* appear in the backward pass.
# - `input` holds the images and the labels: 12,288 bytes, and 8 for each of the 4 labels.
#
# **A map stays if the backward pass will need it.** A convolution computes the gradient of its weights from its input; a
# ReLU needs its output, to know where it was zero.

# %% [markdown] slide="slide"
# ## One line or two
#
# The step in the table wrote `criterion(net(x), y)`. Tutorials, PyTorch's own among them, take two lines:
#
# ```python
# out = net(x)
# loss = criterion(out, y)
# ```
#
# The same operators run, on the same numbers.

# %%
guess_loop = predict(
    "By how many per cent does that change the peak of the small step above?", unit="%"
)
guess_loop


# %% folded=true
def peak_of(keep_output):
    traced_again = training_step(
        layers,
        input_shape=(3, 16, 16),
        criterion=lambda output, y: output.mean(),
        target="cpu",
        keep_output=keep_output,
    )
    return traced_again.at(4).peak_bytes


nested, named = peak_of(False), peak_of(True)
output_map = 4 * 8 * 16 * 16 * 4
reveal(
    guess_loop,
    {"trace": 100 * (named / nested - 1)},
    thoughts=[
        (0.0, "The output has to exist in both loops. In one of them it has to stay."),
        (100.0, "One map more is alive at the peak, and other things were there before."),
    ],
)

# %% folded=true
print(f"{nested:,} bytes at the peak, with momentum; {named - nested:,} more with `out`,")
print(f"which is the last layer's map: {output_map:,} bytes")

# %% [markdown] slide="notes"
# While the name `out` exists, the last layer's map stays, although nothing needs it: the mean is already computed, and its
# backward pass does not use the map. At the peak there is one map more.
#
# Now both loops run for real. What the allocator hands out is counted, scratch memory included, so the share is smaller.
# **Change the second loop, and run the cell.**

# %% tags=["change", "nbval-ignore-output"]
images = torch.randn(4, 3, 16, 16)


def one_line():
    layers(images).mean().backward()


def two_lines():
    out = layers(images)
    loss = out.mean()
    # change this: what happens with `del out` here?
    loss.backward()


for loop in (one_line, two_lines):
    layers.zero_grad()
    print(f"{loop.__name__}: {format_bytes(cpu_peak_above(loop))} above what was there before")

# %% slide="skip" folded=true
there = step.at(4).by_role()[["parameters", "optimizer state", "input"]].sum()
print("by the trace, without scratch:", *map(format_bytes, (nested - there, named - there)))

# %% [markdown] slide="notes"
# With `del out` the two loops are alike. How much the name costs depends on the size of the last output: little for a
# classifier, much for a network that ends in maps, or for a language model, whose last output has a number for each token
# and each word that may follow. It depends on the loss, too: one that saves its input keeps that until its own backward
# pass has run.

# %% [markdown] slide="slide"
# ## VGG-16: by hand, then traced
#
# The same arithmetic, layer by layer. For one image, the outputs of VGG-16's 13 convolutions have 13,547,520 values, those
# of its 5 pools 1,530,368.

# %% [markdown] slide="notes"
# What training keeps:
#
# - for every convolution one map, the ReLU's after it: 4 bytes a value;
# - every pool's map: 4 bytes a value, and 8 more for the *index* of the winner, a 64-bit integer;
# - the image: 3 · 224 · 224 values, 4 bytes each;
# - for every parameter 12 bytes, whatever the batch: the weight, its gradient and its momentum.

# %%
image, convolutions, pools, parameters = 3 * 224 * 224, 13_547_520, 1_530_368, 138_357_544
per_image = 4 * (image + convolutions + pools) + 8 * pools
by_hand = 128 * per_image + 3 * 4 * parameters
print(f"maps of one image     {format_bytes(per_image):>10}")
print(f"for the parameters    {format_bytes(3 * 4 * parameters):>10}")

# %% [markdown] slide="notes"
# In the networks here the size of each tensor is a fixed part plus a part per sample, so two traces give every moment of
# the step at any batch.

# %%
with torch.device("meta"):  # shapes without numbers: 138 million parameters, no memory
    model = networks.vgg16()
vgg = training_step(
    model, input_shape=(3, 224, 224), classes=1000, optimizer="momentum", name="VGG-16"
)
ledger = vgg.at(batch=128)

# %% slide="subslide" folded=true
fixed = 3 * 4 * parameters
reveal(
    guess,
    {"by hand": by_hand / GIB, "trace": ledger.peak_bytes / GIB},
    against="trace",
    thoughts=[
        (4 * parameters / GIB, "That is the parameters alone."),
        (fixed / GIB, "Parameters, their gradients and momentum, and no maps."),
        ((by_hand - fixed) / GIB, "The maps; parameters, gradients and momentum come on top."),
        (per_image / GIB, "Those are the maps of one image; the batch has 128."),
    ],
)

# %%
ledger.by_role().map(format_bytes).to_frame("at the peak")

# %% [markdown] slide="slide"
# ## Reading a skyline
#
# Memory over the step, stacked by role. Feature maps pile up in the forward pass and melt away in the backward pass,
# last made, first freed.

# %% [markdown] slide="notes"
# Each operator has the same width. The title names the peak, and the dot marks it.

# %%
skyline(ledger)

# %% [markdown] slide="subslide"
# Seven roles share the figure, each with its own life:
#
# | role | born | dies | grows with the batch |
# |---|---|---|---|
# | parameters | before training | never | no |
# | optimizer state | in the first update | never | no |
# | weight gradients | backward pass | `zero_grad`, here before the next forward pass | no |
# | input | before the step | after the step | yes |
# | feature maps | forward pass | as soon as no later operator needs them: at once, or in the backward pass; later if a name holds them | yes |
# | gradient maps | backward pass | as soon as they are used | yes |
# | *workspace*, scratch memory of a kernel | when the kernel starts | when it ends; cuBLAS keeps its own | often |

# %% [markdown] slide="notes"
# An eighth, *other*, is what an optimizer's update makes for a moment. With momentum and no weight decay that is next to
# nothing; with Adam as PyTorch runs it by default it is not, as a figure below shows. Here, with momentum and 128
# images, the peak is neither at the beginning of the step nor at its end:

# %%
moment = ledger.timeline().iloc[ledger.peak_event]
gradients = moment["weight gradients"] / (4 * parameters)
where = f"{ledger.peak_phase} pass, {ledger.peak_layer}"
print(f"peak    {format_bytes(ledger.peak_bytes)}, {where}")
off = abs(by_hand / ledger.peak_bytes - 1)
print(f"by hand {format_bytes(by_hand)}, off by {100 * off:.1f} %")
print(f"By then {100 * gradients:.0f} % of the weight gradients exist,")
left_out = format_bytes(moment["gradient maps"])
print(f"and {left_out} of gradient maps, which the estimate by hand left out.")
gone = format_bytes(by_hand - fixed - moment["feature maps"] - moment["input"])
print(f"But {gone} of the maps it counts have gone: errors that nearly cancel.")

# %% [markdown] slide="subslide"
# Three quarters of the parameters are in one dense layer, `fc6`. A third of the maps are those of `relu1_1` and
# `relu1_2`. The layer that feeds the first, `conv1_1`, has 1,792 parameters, 7 KiB.

# %%
layer_bars(ledger)

# %% slide="skip" folded=true
layers_of = ledger.by_layer().set_index("layer")
kept, owned = layers_of["saved feature maps"], layers_of["parameters"]
print(f"fc6: {100 * owned['fc6'] / owned.sum():.0f} % of the parameters")
first_two = kept["relu1_1"] + kept["relu1_2"]
print(f"relu1_1 and relu1_2: {100 * first_two / kept.sum():.0f} % of the maps that are kept")

# %% [markdown] slide="slide"
# ## Which moment is the worst
#
# In these networks each moment of the step is a straight line in the batch. The *peak* is whichever of these lines is
# highest, and at another batch that may be another line.

# %% [markdown] slide="notes"
# With Adam and a small batch the worst moment is the update, whose temporaries do not depend on the batch; with a large
# one it is the backward pass. So the peaks of two small batches do not tell that of a large one:

# %%
with torch.device("meta"):
    model = networks.vgg16()
vgg_adam = training_step(model, (3, 224, 224), 1000, optimizer="adam", name="VGG-16 with Adam")
peak = {batch: vgg_adam.at(batch).peak_bytes for batch in (2, 4, 256)}
extrapolated = peak[2] + (peak[4] - peak[2]) / 2 * (256 - 2)
print(f"batch 256 from batches 2 and 4: {format_bytes(extrapolated)}")
print(f"batch 256 traced:               {format_bytes(peak[256])}")
print(f"off by {100 * (extrapolated / peak[256] - 1):.0f} %")

# %% slide="subslide"
turn = next(batch for batch in range(2, 65) if vgg_adam.at(batch).peak_phase == "backward")
batch_lines(
    vgg_adam,
    [*range(2, 12), *range(12, 65, 4)],
    title=f"VGG-16 with Adam: up to batch {turn - 1} the "
    "update is the worst moment, then backward is",
)

# %% [markdown] slide="subslide"
# Momentum and Adam create their state in the first update. Until then a job with either needs what plain SGD does, so
# it can fit in its first step and fail in its second.

# %%
peaks, rows = {}, []
for name in ("sgd", "momentum", "adam"):
    with torch.device("meta"):
        model = networks.vgg16()
    at = training_step(model, (3, 224, 224), 1000, optimizer=name).at(128)
    peaks[name] = format_bytes(at.peak_bytes)
    state = at.by_role()["optimizer state"]
    rows.append((name, format_bytes(state), state / parameters, peaks[name]))
print(f"Peak before the state exists: {peaks['sgd']}")
print(f"from step 2 on: {peaks['momentum']} with momentum, {peaks['adam']} with Adam")
columns = ["optimizer", "state", "bytes a parameter", "peak"]
pd.DataFrame(rows, columns=columns).set_index("optimizer")

# %% [markdown] slide="slide"
# ## Measure
#
# Does a real step need what the trace says? Here is a small CNN on 64 random images of 64 × 64, two steps, the second one
# measured. Nearly all of it is maps.

# %% [markdown] slide="notes"
# On a CPU the measurement is every byte its allocator handed out, the scratch memory inside kernels included; on a GPU
# it is `max_memory_allocated`.

# %% tags=["nbval-ignore-output"] folded=true
shape = (3, 64, 64)
measured = measure_step(networks.small_cnn(size=64), shape, classes=10, batch=64)
target = "cpu" if measured.device == "cpu" else "cuda"
traced = training_step(networks.small_cnn(size=64), shape, 10, target=target).at(64)
maps = traced.by_role()[["feature maps", "gradient maps"]].sum()
difference = measured.peak_bytes / traced.peak_bytes - 1
print(f"trace         {format_bytes(traced.peak_bytes)}, of which maps {format_bytes(maps)}")
print(f"measured here {format_bytes(measured.peak_bytes)}, {100 * difference:+.2f} %")

# %% [markdown] slide="notes"
# What is left over is probably scratch memory of operators, which no tensor shows. On a GPU it depends on the operator, the
# card and the library version. The trace counts the buffer that PyTorch sets aside for cuBLAS, NVIDIA's library of matrix
# products: `workspace`, too thin to be seen in the skyline above. For convolutions part two adds a guess.

# %% [markdown] slide="slide"
# ## Part two: three counters, one message
#
# How full is the card? *Allocated*, *reserved* and `nvidia-smi` are three answers. Each counts more than the one before.

# %% [markdown] slide="notes"
# (Here is a good place for a break.)
#
# - *Allocated*, `torch.cuda.memory_allocated()`, are the blocks of the tensors alive, which may be larger than the
#   tensors, and of cuBLAS's buffer. While a convolution runs, its workspace comes on top; `max_memory_allocated()` counts
#   it. How much that is depends on the algorithm that cuDNN, NVIDIA's library of convolutions, picks.
# - *Reserved*, `torch.cuda.memory_reserved()`, is what PyTorch's caching allocator holds of the card. It takes *segments*
#   from the driver and cuts *blocks* for tensors out of them.
# - `nvidia-smi` adds, in the line of your process, the driver's *context* (lesson 02), which holds none of your tensors.
#   Its size is measured, not computed. The card's total counts all other programs, too.
#
# Why is reserved more than allocated? Follow the allocator on a card with room for 60 MiB:

# %% folded=true
small_card = CachingAllocator(limit=60 * MIB)
first = small_card.allocate(40 * MIB)
moments = {"1. A map of 40 MiB gets a segment of its own.": Moment.of(small_card)}
small_card.release(first)
small_card.allocate(12 * MIB)
moments["2. It is freed. A tensor of 12 MiB goes into the segment."] = Moment.of(small_card)
try:
    small_card.allocate(30 * MIB)
except OutOfMemory as error:
    moments["3. 30 MiB are asked for."] = Moment.of(small_card, error.asked)

# %% slide="subslide" folded=true
last = list(moments.values())[-1]
segments(
    moments,
    f"Out of memory with {format_bytes(sum(last.free))} free: the largest piece has "
    f"{format_bytes(last.free[0])}",
)

# %% [markdown] slide="notes"
# That is *fragmentation*. A tensor lies in one piece, and the segment cannot go back to the driver while a block of it
# is in use. (Before it fails, the allocator gives back every segment that is wholly free. So a step may reserve more than
# 11 GiB on a large card and still fit one of 11 GiB: *Will it fit?* shows such a step.)
#
# `reserved_bytes` replays PyTorch's rules for each tensor of a traced step and for cuBLAS's buffer. The workspace of
# convolutions is left out here; a real step reserves more by it:

# %%
for batch in (64, 128):
    at = vgg.at(batch)
    reserved = at.reserved_bytes()
    more = 100 * (reserved / at.peak_bytes - 1)
    print(f"batch {batch}: allocated {format_bytes(at.peak_bytes)},", end=" ")
    print(f"reserved {format_bytes(reserved)} where there is room, {more:.0f} % more")

# %% [markdown] slide="subslide"
# An out-of-memory message splits the card into these counters:
#
# > CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB is free.
# > Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the allocated memory 22.90 GiB is
# > allocated by PyTorch, and 194.87 MiB is reserved by PyTorch but unallocated.

# %% [markdown] slide="notes"
# (Somebody got this one, and posted it: pytorch/pytorch, issue 16417, a comment of March 2024.) Line by line:

# %% folded=true
total, in_use, allocated = 23.65 * GIB, 23.60 * GIB, 22.90 * GIB
free, cached, asked = 11.06 * MIB, 194.87 * MIB, 22 * MIB


def about(size):
    """To 10 MiB, as numbers with two digits of a GiB are known."""
    return 10 * MIB * round(size / (10 * MIB))


pd.Series(
    {
        "allocated: tensors, in blocks": allocated,
        "reserved but unallocated: gaps between them": cached,
        "in use beyond: context, other libraries, about": about(in_use - allocated - cached),
        "taken by other programs, or by the driver, about": about(total - in_use - free),
        "free": free,
    }
).map(format_bytes).to_frame(f"of {format_bytes(total)}; segment asked: {format_bytes(asked)}")

# %% [markdown] slide="subslide"
# How to read it, five questions in this order: what is left, fragmentation, other programs, your own tensors, growth.

# %% [markdown] slide="notes"
# 1. **Is that much left at all?** *Tried to allocate* is the segment that was missing; the tensor may be smaller. 20.00 MiB
#    stands for any tensor of 1 to 10 MiB: then the message cannot say; go on with question 2. Any other segment
#    exceeds its tensor by less than 2 MiB. So if *Tried to allocate* exceeds *free* plus *unallocated* by 2 MiB or more,
#    the tensor cannot fit, however the gaps lie: go on with question 3. Here the tensor had 20 to 22 MiB, and 195 MiB
#    lay unallocated, in pieces that it could not use.
# 2. **Is it fragmentation?** A large *reserved but unallocated* beside a small request says so. Start the program with
#    `PYTORCH_ALLOC_CONF=expandable_segments:True` (`PYTORCH_CUDA_ALLOC_CONF` in older releases): segments can then
#    grow, and free memory in their gaps can be given back and used elsewhere. Here it might save this request, and not
#    many more.
# 3. **Is it other programs?** The message names those it can see, each as *Process … has … memory in use*; here none.
#    If no line says *this process*, as in a container, one of them is yours: one with at least *allocated* and
#    *unallocated* together. `nvidia-smi` lists them, too. A notebook's kernel that was not shut down is one.
# 4. **Is the card full of your own tensors?** Here 97 % of it is allocated. Then ask *which role*, as this lesson does:
#    trace the step, look at the skyline, and take the technique that lowers the tallest band.
# 5. **Does *allocated* grow**, read at the same place of every step, on inputs of the same size? Then something keeps
#    tensors: a list of outputs, or a loss that is added up where no backward pass frees its maps, as in a validation
#    loop without `torch.no_grad()` (add up `loss.item()`). If only *reserved* grows, go back to 2.

# %% [markdown] slide="skip"
# On a machine with a GPU, `print(torch.cuda.memory_summary())` is a table of these counters, and
# `torch.cuda.max_memory_allocated()` the peak, to compare with `ledger.allocated_bytes()`. A recording of every request
# can be opened as a picture at pytorch.org/memory_viz; its *Active Memory Timeline* is a skyline of your own step:
#
# ```python
# torch.cuda.memory._record_memory_history()
# train_step()
# torch.cuda.memory._dump_snapshot("step.pickle")
# ```

# %% [markdown] slide="slide"
# ## Will it fit?
#
# Before a step runs, `fit` has three answers:
#
# | answer | what it means |
# |---|---|
# | *no* | the tensors at the peak and the least context together exceed the card |
# | *fits* | tensors, guessed workspace and gaps find room beside the most context, with 2 % to spare |
# | *tight* | neither: it may run or fail |

# %% [markdown] slide="notes"
# The *most* context is the largest that was reported for the card's architecture, the *least* is slightly below all
# reports (lesson 02's *large* and *small* one). To see the gaps, `fit` replays PyTorch's allocator twice, beside each of
# them. It has to guess how much workspace the convolutions will ask for. For a *tight* step it names the obstacle: context, gaps or
# workspace.

# %% slide="skip" folded=true
said = ladder()
columns = ["batches that …", "of them", "said: fits", "tight", "no"]
rows = [
    [kind, said[kind], said[f"{kind} fits"], said[f"{kind} tight"], said[f"{kind} no"]]
    for kind in ("ran", "failed")
]
of = {it: said[f"ran {it}"] + said[f"failed {it}"] for it in ("fits", "tight", "no")}
table = pd.DataFrame(rows, columns=columns).set_index(columns[0]).to_html()
assumed = (
    "The least context is slightly below all that were reported. The most is the largest "
    "reported for the card's architecture, and at least 512 MiB, which is also what a card "
    "known only by its size gets. The workspace of fast convolutions is a guess, from one "
    "rounded number of 2016. The 2 % are the mean error of the replay on 20 published "
    "steps; on a single step it can be off by more."
)
source = (
    "In 2022 the author of timm, a library of image models, searched the largest batch of "
    "several hundred networks on one RTX 3090: 512, then 384, 256, 192 …, until one ran. "
    "Here is a random sample of the networks: the batch that ran, and the one before it."
)
care = (
    "Read it with care. The batch that failed is a third to a half larger than the one "
    "that ran: a verdict that is off by less is still counted as right. And it is not an "
    "independent test. Its rows had been seen when we decided to leave the 2 % to spare; "
    "without them 7 failed batches are called <i>fits</i> (docs/measured.md)."
)
met = (
    f"In a published search on one RTX 3090, {said['failed fits']} of the {of['fits']} "
    f"batches called <i>fits</i> failed, and {said['ran no']} of the {of['no']} called "
    f"<i>no</i> ran. {of['tight']} were called <i>tight</i>."
)
summary = "<summary>What it assumes, and how to read these counts</summary>"
more = f"<details>{summary}<p>{assumed}</p><p>{source}</p>{table}<p>{care}</p></details>"
HTML(f"<p>{met}</p>{more}")

# %% [markdown] slide="notes"
# VGG-16 again, on a card of 11 GiB. One image more takes 70 MiB of tensors:

# %%
found = largest_batch(vgg, 11 * GIB)
for batch in (found.fits, found.fits + 1):
    print(f"batch {batch} {fit(vgg.at(batch), 11 * GIB).words}")
large = demand(vgg.at(found.fits)).scratch.replay()
print(f"(on a larger card batch {found.fits} reserves", end=" ")
print(f"{format_bytes(large.reserved)}, the guessed workspace included)")

# %% [markdown] slide="notes"
# At its peak batch 101 leaves two GiB. Why might 70 MiB more be too much? The replay of batch 102 does not fail at the
# peak. It fails near the end of the backward pass, with five GiB free, most of them in gaps between tensors. Here is the
# card at that moment, without the context and the 2 %. Each segment still holds a block in use; the thinnest are drawn
# wider than they are.

# %% slide="subslide" folded=true
asked = demand(vgg.at(found.fits + 1))
room = int((11 * GIB - asked.on(11 * GIB).context_bytes) / 1.02)
try:
    asked.scratch.replay(room)
except OutOfMemory as error:
    in_use, stuck = error.allocator.allocated, Moment.of(error.allocator, error.asked)
segments(
    {f"VGG-16, batch {found.fits + 1}, 11 GiB": stuck},
    f"{format_bytes(sum(stuck.free))} are free, but no piece holds the "
    f"{format_bytes(stuck.asked)} that, we guess, a convolution asks for",
)

# %% folded=true
tight = vgg.at(found.fits + 1)
wanted = asked.scratch.alive - asked.requests.alive
those = (wanted == wanted.max()).nonzero()[0]  # the one beside as much as the allocator holds
event = min(those, key=lambda one: abs(asked.requests.alive[one] - in_use))
where = f"{tight.phases[event]} pass of {tight.layers[event]}"
print(f"asked for in the {where}, event {event} of {len(tight.phases)}")
through = "gets" if asked.requests.fit_in(room) else "does not get"
print(f"without any workspace the replay {through} through")
most = format_bytes(asked.scratch.alive.max())
print(f"in one piece, without gaps, the step takes {most} of {format_bytes(room)}")

# %% [markdown] slide="notes"
# By our guess the request is the workspace of `conv1_2`'s backward pass. It takes two causes together, a large workspace
# and gaps: without either there is room, as the last two lines say. PyTorch expects this case: where a workspace finds no
# room, it tries cuDNN's next algorithm, which may want less and be slower. Hence *tight*, not *no*. The batches around it,
# by the same replay:

# %% slide="subslide" folded=true
looked = range(found.fits - 6, found.some + 5)
states = {batch: fit(vgg.at(batch), 11 * GIB).state for batch in looked}
again = [str(batch) for batch in looked if batch > found.fits and states[batch] == "fits"]
verdicts(
    states,
    f"The edge is ragged: up to batch {found.fits} all fit, then {' and '.join(again)}",
)

# %% [markdown] slide="notes"
# In the replay the blocks fall into the segments differently from batch to batch; nobody has run these batches. So *the
# largest batch that fits* has two answers: the batch up to which *every* batch fits, and the largest that does. The course
# reports the first. It rests on our guess, too, and not smoothly: with 10, 5 and 1 % less workspace all would fit up
# to batch 110, 92 and 106, with 10 % more up to 89. Treat the edge as a zone: a tight batch may well run.

# %% [markdown] slide="subslide"
# One question for any step: **does it fit, and if not, which role is to blame?**

# %% [markdown] slide="notes"
# The dashed line is the card without the context; where it lies above the figure, an arrow at the top says so. Before each
# move say what the peak will do.

# %% tags=["nbval-ignore-output"]
memory_explorer("VGG-16", batch=7, optimizer="adam", card_gib=6)

# %% [markdown] slide="notes"
# Try these. Give the batch one image more: what changes? Take momentum and a card of 12 GiB: at which batch does VGG-16
# stop fitting? Switch to the dense net: why does the batch hardly matter? Then choose time for the axis: each operator
# becomes as wide as it is predicted to take.

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# At batch 8 the peak moves from the update into the backward pass. With momentum the last sentence names two batches: up
# to the first all fit the 12 GiB card, above the second none does, between them a step is tight. On 11 GiB it names three:
# some batches above the first fit, up to the second. The dense net's maps are a few MiB beside 600 MiB of parameters,
# gradients and momentum.
#
# </details>
#
# And VGG-16 with momentum on 12 GiB, for readers without a kernel:

# %% slide="skip" folded=true
print(largest_batch(vgg, 12 * GIB).words.replace("; ", ";\n"))

# %% [markdown] slide="slide"
# ## Your own model
#
# Put yours in place of this one; the errors say which layer fails, and why.

# %% [markdown] slide="notes"
# Before you run it: what will half the image's side do to the peak, and what two classes in place of ten? **Change the
# sizes or the layers.** A model with several inputs, any loss and any optimizer, or one of Hugging Face's as it is: see
# *Trace your own model* in the README.


# %% tags=["change"]
class Mine(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


side, classes = 64, 10  # change these, or the model
mine = training_step(
    Mine(classes), input_shape=(3, side, side), classes=classes, optimizer="adam"
)
at = mine.at(256)
maps = at.by_role()[["feature maps", "gradient maps"]].sum() / at.peak_bytes
skyline(at, title=f"Maps and their gradients are {100 * maps:.0f} % of the peak")

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# Half the side: about a quarter of the peak, which is nearly all maps. Two classes: next to nothing.
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Which bytes? VGG-16 with many images: mostly feature maps; with few, like the dense net: parameters, gradients,
#    optimizer state.
# 2. At which moment? The backward pass; with Adam and few images, the update.
# 3. Allocated, reserved and `nvidia-smi`'s figure are three counters. None says whether a batch fits.

# %% [markdown] slide="skip"
# ## Further
#
# Five claims that people have published, in our words. A verdict is computed when the cell runs; the
# others on memory are in Appendix A.

# %% slide="skip"
judge([22, 24, 27, 67, 74])

# %% [markdown] slide="skip"
# **In place.** An *in-place* ReLU writes over its input instead of making a new map. Many pages say that it saves memory. In
# training it does not save any of VGG-16's peak. The convolution before the ReLU does not need its own output for the
# backward pass, and that map dies anyway as soon as the ReLU has run:


# %% slide="skip"
def peaks_in_place(build, optimizer="momentum"):
    """The step's moments at batch 128, with a map of its own for each ReLU and in place."""
    with torch.device("meta"):
        model = build()
    for inplace in (False, True):
        for relu in (layer for layer in model.modules() if isinstance(layer, nn.ReLU)):
            relu.inplace = inplace
        yield training_step(model, (3, 224, 224), 1000, optimizer).at(128)


for name, at in zip(("own map", "in place"), peaks_in_place(networks.vgg16), strict=True):
    print(f"VGG-16, training, {name:<9} {format_bytes(at.peak_bytes)}, at {at.peak_layer}")

# %% [markdown] slide="skip"
# In inference no map has to stay for a backward pass. In a chain of layers, while a ReLU runs, two maps are alive, its
# input and its output; in place there is one.

# %% slide="skip"
guess_inplace = predict(
    "VGG-16, 128 images, inference. The first ReLU's map takes 1,568 MiB. By how many MiB "
    "does the peak fall if all ReLUs work in place?",
    unit="MiB",
)
guess_inplace

# %% slide="skip" folded=true
both = {
    build: list(peaks_in_place(build, None)) for build in (networks.vgg16, networks.googlenet)
}
falls = {build: own.peak_bytes - shared.peak_bytes for build, (own, shared) in both.items()}
reveal(
    guess_inplace,
    {"VGG-16": falls[networks.vgg16] / MIB, "GoogLeNet": falls[networks.googlenet] / MIB},
    against="VGG-16",
    thoughts=[
        (1568, "The ReLU no longer needs a second map. A convolution still does."),
        (784, "Half a map? Either two of the large maps meet, or they do not."),
    ],
)

# %% slide="skip" folded=true
for build, steps_of in both.items():
    for name, at in zip(("own map", "in place"), steps_of, strict=True):
        peak = f"{format_bytes(at.peak_bytes):>10}, at {at.peak_layer}"
        print(f"{build.__name__:<10} {name:<9} {peak}")

# %% [markdown] slide="skip"
# In VGG-16 the next layer is a convolution with input and output both that large: two of them still meet. In GoogLeNet a
# pool comes next, whose output and *indices*, which it makes even without training, take 294 MiB in place of a second
# map of 392: 98 less. (Lesson 06 asks who needs fewer bytes for indices.)

# %% [markdown] slide="skip"
# **VGG-16 on a GPU, beside the trace**, where somebody recorded it:

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
gpu = recordings.gpu()
print(fill(recordings.sentence(gpu), 88))
rows = beside_trace(gpu, "VGG-16")
pd.DataFrame(rows) if rows else None

# %% [markdown] slide="skip"
# Now the exercise: [exercises/03_memory.ipynb](../exercises/03_memory.ipynb). {questions}. Save,
# then `course check 03` gives your marks.
