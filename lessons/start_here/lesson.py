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
# **The question:** what will I be able to do, does my set-up work, and how do I read a skyline?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say what the course teaches, and where to enter it;
# 2. tell whether your installation is complete, and mend it if not;
# 3. read a *skyline*, the one figure that every lesson uses;
# 4. go one round of guess, formula, trace and measurement, as every lesson does;
# 5. use an explorer by keyboard, and get marks for an exercise.
#
# About 10 minutes. You should have written a small PyTorch network before. No GPU is needed, here or later.

# %% slide="skip" folded=true
from collections import OrderedDict

import torch
from torch import nn

from classroom import doctor
from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import skyline
from course_utils.machine.measure import measure_step
from course_utils.trace import training_step
from course_utils.units import GIB, MIB
from lessons.memory.explorer import memory_explorer

# %% [markdown] slide="slide"
# ## The course
#
# | | lesson | the one question |
# |---|---|---|
# | 01 | [Why GPUs help, and when they don't](01_why_gpus.ipynb) | where is the crossover between CPU and GPU? |
# | 02 | [Which hardware, or none](02_hardware.ipynb) | what fits on this card, what can I do without one? |
# | 03 | [Where the memory goes](03_memory.ipynb) | which bytes are alive at the peak, and why? |
# | 04 | [Stride](04_stride.ipynb) | which memory depends on a stride, and which does not? |
# | 05 | [1×1 convolutions](05_one_by_one.ipynb) | what does a squeeze do to memory? |
# | 06 | [Pooling](06_pooling.ipynb) | what does a pool remember, and who needs less? |
# | 07 | [Batch size](07_batch_size.ipynb) | what scales with the batch, what does not? |
# | 08 | [Half precision](08_half_precision.ipynb) | why is it not half? |
# | 09 | [Offload to CPU memory](09_offload.ipynb) | when can the copy hide behind the computation? |
# | 10 | [Recompute instead of store](10_recompute.ipynb) | what does one extra forward pass buy? |
# | 11 | [Many GPUs](11_many_gpus.ipynb) | which networks gain from which kind of parallel? |
# | 12 | [Capstone: fit it on one card](12_capstone.ipynb) | VGG-16, batch 256, 12 GiB: which plan loses the least time? |
# | 13 | [Transformers: the same step, other maps](13_transformers.ipynb) | why does a longer sequence cost more than a larger batch? |
# | 14 | [Fine-tuning and serving on one card](14_one_card.ipynb) | 8 billion parameters, 24 GiB: what can be trained, what served? |
# | A | [Myths and facts](A_myths_and_facts.ipynb) | of what people say about GPUs and memory, how much holds? |
#
# Out of memory today? Begin with 03, then 04 to 10. Buying hardware? Begin with 01 and 02.

# %% [markdown] slide="slide"
# ## Does your set-up work?
#
# The cell below looks at this machine. What fails stands first, with the command that mends it. In a terminal,
# `course doctor` says the same.

# %% tags=["nbval-ignore-output"]
doctor.show()

# %% [markdown] slide="slide"
# ## A training step
#
# Training repeats one thing, the *training step*. It has three *phases*:
#
# - *forward*: each layer computes its output, up to the loss;
# - *backward*: gradients, from the last layer to the first;
# - *update*: the optimizer changes the parameters.

# %% [markdown] slide="notes"
# A step takes a *batch*: some *samples*, images for example, with their labels. A gradient is that of the loss, with
# respect to each output and each parameter. One step is like the next, so this course looks at one, closely.

# %% [markdown] slide="slide"
# ## The skyline of a tiny network
#
# A *skyline* is the memory in use over one training step, stacked by what it is for.

# %% [markdown] slide="notes"
# Read it from left to right: the phases stand under the axis, and the dot is the *peak*, the worst moment. A card must
# hold the peak.

# %%
tiny = nn.Sequential(
    OrderedDict(
        conv=nn.Conv2d(3, 8, kernel_size=3, padding=1),
        relu=nn.ReLU(),
        flatten=nn.Flatten(),
        dense=nn.Linear(8 * 32 * 32, 10),
    )
)
# target="cpu": as it runs on a CPU
step = training_step(tiny, (3, 32, 32), classes=10, target="cpu", name="A tiny network")
skyline(step.at(batch=64))

# %% [markdown] slide="slide"
# ## What memory is for: the roles
#
# Everything in a skyline plays one of these roles, in the same colours in every figure of the course.
#
# | role | in a phrase |
# |---|---|
# | parameters | what training changes: weights and biases |
# | optimizer state | what the optimizer remembers of each parameter, such as its momentum |
# | weight gradients | the gradient of the loss with respect to each parameter |
# | input | the samples and labels of the batch |
# | feature maps | outputs of layers, kept from forward until backward has used them |
# | gradient maps | gradients with respect to those outputs, on their way back through the network |
# | workspace | scratch memory that a computation takes and gives back |
# | other | what is none of these: for example values that an optimizer makes for a moment while it updates |

# %% [markdown] slide="notes"
# Feature maps are what others call *activations*. Follow them, the green band: it grows in the forward phase and
# shrinks in the backward phase. That shape is the subject of half the course.

# %% [markdown] slide="slide"
# ## The skyline of a real one
#
# AlexNet in its form of 2014 (the first won the ImageNet contest of 2012), with 512 images of 224 × 224 in the batch.

# %% [markdown] slide="notes"
# The dashed line is the *limit*, what the card holds. Where the skyline crosses it, training ends with *out of memory*.
# A little below it a step may be *tight*: tensors are not all that needs room on the card. The title says which it is.

# %%
with torch.device("meta"):  # shapes without numbers: no memory is taken here
    model = networks.alexnet()
alexnet = training_step(model, input_shape=(3, 224, 224), classes=1000, name="AlexNet")
skyline(alexnet.at(batch=512), limit_bytes=2 * GIB)

# %% [markdown] slide="slide"
# ## One round, first part: predict

# %% [markdown] slide="notes"
# Every lesson asks for a number before it shows one. A wrong guess that you remember teaches more than a right
# answer that you read.

# %%
guess = predict(
    "One convolution, 3 channels in, 16 out, 3 × 3, and the ReLU after it, "
    "on 32 images of 64 × 64. The images take 1.5 MiB, the parameters "
    "1.75 KiB. How much memory is in use at the peak of a training step?",
    unit="MiB",
)
guess

# %% [markdown] slide="slide"
# ## Second part: by hand
#
# A value takes 4 bytes. One output map is 64 × 64, there are 16 of them for each of 32 images:
# 32 · 16 · 64 · 64 · 4 = 8,388,608 bytes, 8 MiB.

# %% [markdown] slide="notes"
# The worst moment is in the backward phase, at the ReLU. Three things of that size are alive: the ReLU's output, kept
# since the forward phase; the gradient that arrives for it; the gradient that it hands to the convolution. And the
# images: 32 · 3 · 64 · 64 · 4 bytes, 1.5 MiB. (The convolution's own output is gone by then: for its gradient a ReLU
# needs its output alone.)

# %%
output = 32 * 16 * 64 * 64 * 4
images = 32 * 3 * 64 * 64 * 4
by_hand = 3 * output + images
print(f"by hand {by_hand / MIB:.2f} MiB")

# %% [markdown] slide="slide"
# ## Third part: trace
#
# A *trace* runs the step once on shapes alone and notes every tensor's birth, death, size and role. It needs neither
# the data nor the memory: AlexNet's took a fraction of a second above.


# %%
def mean(output, labels):  # a loss for a network that ends in maps
    return output.mean()


conv, relu = nn.Conv2d(3, 16, kernel_size=3, padding=1), nn.ReLU()
layer = nn.Sequential(OrderedDict(conv=conv, relu=relu))
step = training_step(layer, (3, 64, 64), classes=16, criterion=mean, name="conv and ReLU")
traced = step.at(batch=32)
more = traced.peak_bytes - by_hand
print(
    f"trace {traced.peak_bytes / MIB:.2f} MiB, "
    f"{traced.peak_phase} phase, at {traced.peak_layer}"
)
print(f"{more:,} bytes more than by hand: parameters, momentum, labels, the loss")

# %%
skyline(traced)

# %% [markdown] slide="slide"
# ## Fourth part: measure
#
# Now the step for real, on this machine. Enter your guess above, and the four stand side by side.

# %% tags=["nbval-ignore-output"]
measured = measure_step(layer, (3, 64, 64), classes=16, batch=32, criterion=mean)
more = measured.peak_bytes - traced.peak_bytes
print(f"measured {measured.peak_bytes / MIB:.2f} MiB, {more:+,} bytes from the trace")

# %% tags=["nbval-ignore-output"] folded=true
reveal(
    guess,
    {
        "by hand": by_hand / MIB,
        "trace": traced.peak_bytes / MIB,
        "measured here": measured.peak_bytes / MIB,
    },
    against="trace",
    thoughts=[
        (
            images / MIB,
            "Those are the images; what the layers put out is larger, and is kept.",
        ),
        (
            output / MIB,
            "Those are the ReLU's outputs. At the worst moment two gradients of that size "
            "are there too.",
        ),
        (
            (output + images) / MIB,
            "One map and the images: that is the forward phase. The backward phase has more.",
        ),
        (
            (2 * output + images) / MIB,
            "Two maps and the images: the kept output, or one of the gradients, is missing.",
        ),
        (
            (4 * output + images) / MIB,
            "Four maps: the convolution's own output is gone by then.",
        ),
    ],
)

# %% [markdown]
# Where a measurement lies above the trace, the rest is workspace inside the kernels, which no tensor shows.

# %% [markdown] slide="notes"
# Every lesson says how far its numbers are apart, and why.

# %% [markdown] slide="slide"
# ## Explore
#
# An explorer answers one question while you move it. This one: **does it fit on the card?**

# %% [markdown] slide="notes"
# Click the handle of *batch* or reach it with Tab, then press the right and left arrow keys. Say what the peak will do
# before each press.

# %% tags=["nbval-ignore-output"]
memory_explorer("AlexNet", batch=256, card_gib=2)

# %% [markdown] slide="notes"
# Three sentences stand under the figure: how things stand, which role is to blame, and what would help. Two of their
# words come later: the *context* is what the driver takes of the card (lesson 02), the *allocator* hands out the rest
# (lesson 03, which takes this explorer apart). Without a running kernel the figure stays as it was saved: run the cell first.

# %% [markdown] slide="slide"
# ## Exercises and marks
#
# Lessons 01 to 14 each have an exercise in the folder `exercises`. An answer cell has dots to replace, and a check
# cell below it says at once what became of it:
#
# | outcome | what it means |
# |---|---|
# | *not attempted* | the dots are still there |
# | *wrong* | it ran, and a number or property is off; where it can, the check names the slip |
# | *crashed* | it raised an error, which is shown in one line |
# | *correct* | right, also for inputs that you did not try |

# %% [markdown] slide="notes"
# For points, save the notebook and open a terminal here in JupyterLab (*File*, *New*, *Terminal*). `course check 03`
# marks exercise 03 on other inputs; `course progress` shows all exercises at a glance.
#
# Notebooks and exercises that you open in this way are your own copies, in the folder `work`. Change what you like:
# when the course is mended, `git pull` and `make lab` bring the mended lessons, and your answers move over to them.

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A training step goes forward, backward, update; its skyline shows what is alive when, and what for.
# 2. A card must hold the peak, and the limit line says whether it does.
# 3. Guess, formula, trace and measurement stand side by side, and what separates them is explained.

# %% [markdown] slide="notes"
# This lesson has no exercise. Go on with [01, Why GPUs help, and when they don't](01_why_gpus.ipynb).
