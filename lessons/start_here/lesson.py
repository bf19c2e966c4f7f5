# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 00 · Start here
#
# **The question:** yesterday your training ran. Today it ends with *CUDA out of memory*. The network takes 27 MiB, the
# images 147 MiB. What filled the card?

# %% [markdown] slide="notes"
# To find out you do once what every lesson does: a guess, a picture, a pencil, a slider, a check.
#
# About 40 minutes. You should have written a small PyTorch network before. No GPU is needed, here or in any other lesson.
#
# To run a cell, click into it and press Shift+Enter. The *kernel*, a Python process behind the notebook, then runs it. Begin
# with the next two. The first loads what the page needs. The second checks your set-up; if anything is missing, it says
# which command mends that.

# %% slide="skip" folded=true
from collections import OrderedDict

import pandas as pd
import torch
from torch import nn

from classroom import doctor
from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import side_by_side, skyline
from course_utils.machine.measure import measure_step
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, KIB, MIB, format_bytes
from lessons.memory.explorer import memory_explorer
from lessons.start_here.checks import check

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
doctor.show()

# %% [markdown] slide="slide"
# ## It ran yesterday
#
# GoogLeNet has 7.0 million parameters, 26.7 MiB. A batch of 256 images of 224 × 224 pixels takes 147 MiB.

# %% [markdown] slide="notes"
# Yesterday, with 128 images in a batch, it trained. Today, with 256, it fails in its first step. The optimizer is SGD with
# *momentum*, which keeps one number for each parameter: a running sum of its gradients. (A MiB is 2²⁰ bytes, a GiB 2³⁰.)
#
# Every lesson asks you for a number before it shows one. Type what you honestly think, and click *Predict*. Being
# surprised is the point.

# %%
guess = predict(
    "GoogLeNet, 256 images, momentum. How much memory does one training step "
    "need at its worst moment?",
    unit="GiB",
)
guess

# %% [markdown] slide="slide"
# ## The step as a picture
#
# A *training step* has three phases: *forward*, up to the loss; *backward*, the gradients from the last layer to the
# first; *update*, in which the optimizer changes the parameters.

# %% [markdown] slide="notes"
# The cell below *traces* such a step: it runs the step on shapes alone, without any numbers, and records for each tensor
# when it is created and freed, how large it is and what it is for. That takes about a second. It is a step after the first:
# the optimizer's momentum is there already.

# %%
with torch.device("meta"):  # shapes without numbers
    model = networks.googlenet()
step = training_step(
    model, (3, 224, 224), classes=1000, optimizer="momentum", name="GoogLeNet"
)
today, yesterday = step.at(batch=256), step.at(batch=128)

# %% folded=true
parameters, images = 4 * 6_998_552 / GIB, 4 * 256 * 3 * 224 * 224 / GIB
reveal(
    guess,
    {"trace, 256 images": today.peak_bytes / GIB},
    thoughts=[
        (0.03, "Those are the parameters. Training needs far more than them."),
        (2 * parameters, "Parameters and their gradients. What layers make is missing."),
        (
            3 * parameters,
            "Parameters, gradients and momentum. What layers make of the images is missing.",
        ),
        (images, "Those are the images. Every layer makes something of them, too."),
        (2 * images, "The images twice. Every layer makes something of them."),
        (0.5, "A few times parameters and images. What the layers make of them is far more."),
        (
            3 * parameters + images,
            "Parameters, gradients, momentum, images. What layers make of them is missing.",
        ),
        (8.0, "Close. It is a little more."),
        (yesterday.peak_bytes / GIB, "That much it needed yesterday, with 128 images."),
        (
            16.0,
            "Twice the answer. A convolution and its ReLU keep one map between them, not two.",
        ),
        (1.0, "Forty times the parameters, and still not nearly enough."),
        (2.0, "As if only the running layer needed room. What layers make has to stay."),
    ],
)

# %% [markdown]
# The card has 8 GiB.

# %% slide="subslide"
skyline(today, limit_bytes=8 * GIB)

# %% [markdown] slide="notes"
# This figure is a *skyline*. Read it from left to right, from the first *operator* of the step to the last. An operator is
# one call into PyTorch's library, such as a convolution or an addition; the line above the figure calls it an *event*.
# Each is drawn equally wide, however long it takes. The height is the memory that tensors take (`nvidia-smi` shows
# more; lesson 03 says why). The dot is the *peak*, the worst moment. The card must hold that.
#
# The driver keeps part of the card for itself: the *context*, which we take to be 0.5 GiB. So the dashed line is at 7.5
# GiB, and the ring is where the step crosses it. Around there, in the forward phase, it ends with *out of memory*. The
# backward phase never happens; the figure draws it all the same. The hatched part is what the card lacks. (The title counts
# from 8 GiB, without the context.)

# %% slide="skip" folded=true
full = int((today.total > 7.5 * GIB).argmax())
lacks = today.peak_bytes / GIB - 7.5
print(f"The tensors pass 7.5 GiB in the {today.phases[full]} phase, at {today.layers[full]}")
print(f"lacking: {lacks:.2f} GiB, of which {lacks - 0.5:.2f} beyond 8 GiB and 0.5 context")

# %% [markdown] slide="slide"
# Each colour is a *role*: what the memory is for. The green one is *feature maps*, the outputs of layers. Others call
# them *activations*.

# %% folded=true
is_for = {
    "parameters": "what training changes: weights and biases",
    "optimizer state": "what the optimizer remembers: here, momentum",
    "weight gradients": "of the loss with respect to each parameter",
    "input": "images and labels of the batch",
    "feature maps": "outputs of layers",
    "gradient maps": "of the loss with respect to feature maps",
    "workspace": "scratch memory of the libraries",
    "other": "temporaries of the optimizer's update",
}
at_the_peak = today.by_role()
columns = {"at the peak": at_the_peak.map(format_bytes), "what it is": pd.Series(is_for)}
pd.DataFrame(columns, index=at_the_peak.index)

# %% [markdown] slide="notes"
# Nearly all of it is feature maps. Follow the green band: it grows through the forward phase and melts away in the
# backward phase. Would the same 256 images fit without training? They go through the same network, but without
# gradients.

# %%
guess_inference = predict(
    "GoogLeNet, 256 images, no gradients. How much memory at the worst moment?",
    unit="GiB",
)
guess_inference

# %%
inference = training_step(model, (3, 224, 224), 1000, optimizer=None, name="inference").at(256)

# %% slide="subslide" folded=true
reveal(
    guess_inference,
    {"trace, no training": inference.peak_bytes / GIB},
    thoughts=[
        (
            today.peak_bytes / GIB,
            "As much as training. Without gradients a map can go once it is used.",
        ),
        (
            yesterday.peak_bytes / GIB,
            "Half? Without gradients far more than half of it can go.",
        ),
        (
            parameters + images,
            "Parameters and images. A layer needs its input and its output at once.",
        ),
    ],
)

# %% slide="subslide"
side_by_side(
    {
        "the card": 8.0,
        "training, 256 images": today.peak_bytes / GIB,
        "training, 128 images": yesterday.peak_bytes / GIB,
        "no training, 256 images": inference.peak_bytes / GIB,
    },
    "GiB",
    title=f"Without training {format_bytes(inference.peak_bytes)} is enough",
    hollow="the card",
)

# %% [markdown] slide="notes"
# So this filled the card: maps that training *keeps* until the backward phase has used them. Half the images make half
# the maps, and so it ran yesterday. Lessons 04 to 10 are about keeping less.
#
# Without training, two large maps meet at the worst moment: the first convolution's and its ReLU's, 784 MiB each. Add the
# images, the parameters and a little scratch memory, and you have the peak.

# %% [markdown] slide="skip"
# <details><summary>Is this torchvision's GoogLeNet?</summary>
#
# Nearly. This one is built from the table of 2014, without the two auxiliary classifiers and the response normalisation.
# Torchvision's has a batch norm after each convolution. A batch norm keeps its input for the backward phase, so there is
# about one more map for each convolution.
#
# </details>

# %% [markdown] slide="slide"
# ## Two layers with a pencil
#
# Is the trace right? We try it on a convolution with 3 channels in and 16 out, 3 × 3, and the ReLU after it. The 32
# images of 64 × 64 take 1.5 MiB, the parameters 1.75 KiB.

# %% [markdown] slide="notes"
# A value takes 4 bytes. There are 16 output maps of 64 × 64 for each of 32 images: 32 · 16 · 64 · 64 · 4 = 8,388,608
# bytes, 8 MiB. That is the output of the convolution, and the ReLU's is as large. The loss is the mean of the ReLU's
# output. You do not know yet which of these are in memory at the same time. Guess.

# %%
guess_layer = predict(
    "How much memory is in use at the worst moment of a training step of these two layers?",
    unit="MiB",
)
guess_layer


# %% slide="subslide"
def mean(output, labels):  # a loss for a network that ends in maps
    return output.mean()


conv, relu = nn.Conv2d(3, 16, kernel_size=3, padding=1), nn.ReLU()
layer = nn.Sequential(OrderedDict(conv=conv, relu=relu))
traced = training_step(layer, (3, 64, 64), classes=16, criterion=mean, target="cpu").at(32)

# %% tags=["nbval-ignore-output"]
measured = measure_step(layer, (3, 64, 64), classes=16, batch=32, criterion=mean)  # for real

# %% tags=["nbval-ignore-output"] folded=true
output = 32 * 16 * 64 * 64 * 4
images = 32 * 3 * 64 * 64 * 4
by_hand = 3 * output + images
reveal(
    guess_layer,
    {
        "by hand": by_hand / MIB,
        "trace": traced.peak_bytes / MIB,
        "measured here": measured.peak_bytes / MIB,
    },
    against="trace",
    thoughts=[
        (images / MIB, "Those are the images. What the layers make of them is larger."),
        (
            output / MIB,
            "One output. At the worst moment two gradients of that size are there too.",
        ),
        (
            (output + images) / MIB,
            "One output and the images: the forward phase. The backward phase has more.",
        ),
        (
            2 * output / MIB,
            "Two outputs. The worst moment is in the backward phase, with gradients as large.",
        ),
        (
            (2 * output + images) / MIB,
            "Two outputs and the images: the forward phase, if both outputs were kept.",
        ),
        (
            3 * output / MIB,
            "Three of the large ones, which is right. The images are there as well.",
        ),
        (
            4 * output / MIB,
            "Both outputs and a gradient for each. One of the four is gone by then.",
        ),
        (
            (4 * output + images) / MIB,
            "Both outputs, a gradient for each, the images. One of the four is gone by then.",
        ),
    ],
)

# %% slide="subslide"
skyline(
    traced,
    title=f"At the peak, in the {traced.peak_phase} phase, three blocks of "
    f"{format_bytes(output)} meet",
)

# %% [markdown] slide="notes"
# Count the blocks in the picture: at the worst moment three things of 8 MiB are alive, and the images.
#
# - the ReLU's output, which waited for the backward phase;
# - the gradient that arrives for it;
# - the gradient that the ReLU hands on to the convolution.
#
# The convolution's own output is gone by then. A ReLU does not need its input to find its gradient: its output and the
# arriving gradient are enough, since where the output is zero nothing passes. The convolution finds the gradient of its
# weights from the *images*. So nothing had to keep the map in between.
#
# By hand, traced, measured: three ways to one number.

# %%
more = traced.peak_bytes - by_hand
print(f"trace: {more:,} bytes more than by hand:")
print("parameters, momentum, labels, the loss and its gradient")

# %% tags=["nbval-ignore-output"]
more = measured.peak_bytes - traced.peak_bytes
print(f"measured: {more:+,} bytes from the trace (scratch memory of operators, if any)")

# %% [markdown] slide="slide"
# Which raises the peak more: a *kernel* (here: a convolution's window) of 11 × 11, or twice as many channels? Guess what
# the kernel alone adds. Then try both.

# %%
guess_kernel = predict(
    "A kernel of 11 × 11 in place of 3 × 3, thirteen times the weights, and still 16 "
    "channels. By how much does the peak grow?",
    unit="KiB",
)
guess_kernel

# %% tags=["change"]
kernel, channels = 3, 16  # change one of these two: kernel 11, or channels 32

layer = nn.Sequential(nn.Conv2d(3, channels, kernel, padding=kernel // 2), nn.ReLU())
changed = training_step(layer, (3, 64, 64), channels, criterion=mean, target="cpu").at(32)
print(f"parameters: {sum(p.numel() for p in layer.parameters()):,}")
print(f"peak: {changed.peak_bytes / MIB:.2f} MiB")

# %% folded=true
added = 4 * 16 * 3 * (11 * 11 - 3 * 3)  # bytes of the further weights
grows = {}  # KiB
for kernel_side, outputs in ((11, 16), (3, 32)):
    other = nn.Sequential(
        nn.Conv2d(3, outputs, kernel_side, padding=kernel_side // 2), nn.ReLU()
    )
    at = training_step(other, (3, 64, 64), outputs, criterion=mean, target="cpu").at(32)
    growth = at.peak_bytes - traced.peak_bytes
    grows[f"{kernel_side} × {kernel_side}, {outputs} channels"] = growth / KIB
wider = grows.pop("3 × 3, 32 channels")
print(f"twice the channels: {wider * KIB / MIB:.0f} MiB more")
reveal(
    guess_kernel,
    grows,
    thoughts=[
        (
            added / KIB,
            "The new weights once. Momentum keeps a number for each, too.",
        ),
        (
            3 * added / KIB,
            "Weights, gradients, momentum: at the peak the weights have no gradient yet.",
        ),
        (
            12 * traced.peak_bytes / KIB,
            "Thirteen times all of it. The weights grow so much, and they are tiny.",
        ),
        (
            traced.peak_bytes / KIB,
            "Twice? The outputs are as large as they were, and they fill the memory.",
        ),
    ],
)

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# A kernel of 11 × 11 has 16 · 3 · (121 - 9) = 5,376 more weights, 21 KiB. The peak grows by twice that: the weights, and
# their momentum. Their gradients do not exist yet when three blocks of 8 MiB meet. Sizes add up only while they
# are *alive at the same time*. (On a GPU a convolution may take scratch memory besides.)
#
# Twice the channels means outputs of twice the size, and so nearly twice the peak. In these two layers the parameters hardly
# count; lesson 02 has a network in which they are nearly all.
#
# </details>

# %% [markdown] slide="slide"
# ## A slider
#
# Back to GoogLeNet and the card of 8 GiB. **What is the largest batch that fits?**

# %% [markdown] slide="notes"
# This is an *explorer*. Above its picture you read whether the step fits, which role takes most, and how large the batch may
# be. (The *allocator* is the part of PyTorch that hands out the card's memory, in *blocks*.)
#
# Run the cell. To move the slider click its handle, or reach it with Tab, and use the arrow keys. Now choose a card of 6
# GiB, and guess its largest batch before you read the sentence. Then try another network.

# %% tags=["nbval-ignore-output"]
memory_explorer("GoogLeNet", batch=128, card_gib=8)

# %% [markdown] slide="notes"
# The last sentence names two batches. Up to the first a step fits (of so many, every 2nd was tried). Beyond the second
# the tensors, beside the smallest context that was reported, are more than the card. In between it is *tight*, and we
# do not say: the context may be smaller than 0.5 GiB, and the blocks may fall badly (lesson 03). Plan with the first.
# In numbers, for the card of 8 GiB:

# %% slide="skip" folded=true
found = largest_batch(step, 8 * GIB)
for batch in (found.fits, found.tight):
    print(f"batch {batch}: peak {format_bytes(step.at(batch).peak_bytes)}")

# %% [markdown] slide="slide"
# ## A check that knows what you thought
#
# Exercises ask for small functions. Here is one with a mistake in it, and the check below it. Run both.


# %% tags=["change"]
# Change the function until the check is satisfied.
def output_bytes(images, channels, height, width):
    """Bytes of a convolution's output in float32."""
    return images * channels * height * width


# %%
check("output_bytes")

# %% [markdown] slide="notes"
# It did not only say *wrong*. It tried the function on several inputs and recognised the thought behind the mistake. Fix
# the function and run both cells. Then break it in a way of your own: leave out the batch, or count bits.
#
# In an exercise, an answer cell has dots for you to replace. A check says one of four things:
#
# | outcome | what it means |
# |---|---|
# | *not attempted* | the dots are still there |
# | *wrong* | it ran, and something is off; where it can, the check names the thought |
# | *crashed* | it raised an error, which is shown in one line |
# | *correct* | right, for other inputs too |

# %% [markdown] slide="slide"
# Each lesson from 01 to 14 has an exercise in the folder `exercises`. When you have answered, save the notebook, open a
# terminal here in JupyterLab (*File*, *New*, *Terminal*), and type `course check 03` for the marks of exercise 03.

# %% [markdown] slide="notes"
# `course progress` shows all exercises at a glance. What you open through `make lab` (which runs `course lab`) are
# your own copies, in the folder `work`; `course doctor` checks the set-up again. Change what you like. When we correct a
# lesson, `git pull` and `make lab` bring it to you, and your answers stay.

# %% [markdown] slide="slide"
# ## Where to go
#
# Out of memory today? Lesson 03, which ends with a model of your own, then 04 to 10. Buying hardware? 01 and 02. Language
# models? 03, 08 and 10, then 13 and 14.

# %% [markdown] slide="skip"
# | | lesson | its question |
# |---|---|---|
# | 01 | [Why GPUs help, and when they don't](01_why_gpus.ipynb) | where is the crossover between CPU and GPU? |
# | 02 | [Which hardware, or none](02_hardware.ipynb) | what fits on this card, what can I do without one? |
# | 03 | [Where the memory goes](03_memory.ipynb) | which bytes are alive at the peak, and why? |
# | 04 | [Stride](04_stride.ipynb) | which memory depends on a stride, and which does not? |
# | 05 | [1×1 convolutions](05_one_by_one.ipynb) | what does a squeeze do to memory? |
# | 06 | [Pooling](06_pooling.ipynb) | what does a pool remember, and who needs less? |
# | 07 | [Batch size](07_batch_size.ipynb) | what scales with the batch, what does not? |
# | 08 | [Half precision](08_half_precision.ipynb) | why is it not half? |
# | 09 | [Offload to CPU memory](09_offload.ipynb) | when does the copy hide while the card computes? |
# | 10 | [Recompute instead of store](10_recompute.ipynb) | what does one extra forward pass buy? |
# | 11 | [Many GPUs](11_many_gpus.ipynb) | which networks gain from which kind of parallelism? |
# | 12 | [Capstone: fit it on one card](12_capstone.ipynb) | VGG-16, batch 256, 12 GiB: which plan loses the least time? |
# | 13 | [Transformers: the same step, other maps](13_transformers.ipynb) | must one long text cost more than many short ones? |
# | 14 | [Fine-tuning and serving on one card](14_one_card.ipynb) | 8 billion parameters, 24 GiB: what can be trained, what served? |
# | A | [Myths and facts](A_myths_and_facts.ipynb) | of what people say about GPUs and memory, how much holds? |

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A training step goes forward, backward, update. Its skyline shows what is alive when, and what for.
# 2. GoogLeNet's maps, kept for the backward phase, filled the card; its parameters did not.
# 3. Guess, pencil, trace, measurement: compare them, and ask why they differ.

# %% [markdown] slide="notes"
# This lesson has no exercise. Go on with
# [01, Why GPUs help, and when they don't](01_why_gpus.ipynb), or where your own question is.
