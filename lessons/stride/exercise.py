# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 04: Stride
#
# Replace the dots in each answer cell, run it and the check cell below. The check says *not attempted*, *wrong*
# (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are folded; open one when its first
# line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course
# check 04` in a terminal for points: it tries your functions on other inputs.

# %%
import inspect

from torch import nn

from lessons.shared.originals import pooled

# %% [markdown] question="output_side" points=2 difficulty=1 minutes=6
# ## 1. How many positions
#
# A map has sides of `side` values. A convolution with a `kernel` × `kernel` kernel, this `stride` and this `padding`
# on every side runs over it. How many values are on a side of its output?
#
# Try AlexNet's first layer by hand before you run it: side 224, kernel 11, stride 4, padding 2.


# %% answer="output_side"
def output_side(side, kernel, stride, padding):
    """Values on a side of a convolution's output."""
    # BEGIN SOLUTION
    way = side + 2 * padding - kernel
    return way // stride + 1
    # END SOLUTION


# %% check="output_side"
from lessons.stride.checks import check

check("output_side")

# %% [markdown] hint="output_side"
# **I am off by one.** Draw 8 values and a kernel of 3 at stride 2, without padding. Mark every place where the
# kernel's left edge can be, the first one included. Count marks, not steps.

# %% [markdown] hint="output_side"
# **It is right for some sides and one too large for others.** Does the last step carry the kernel beyond the
# edge? Then it is not taken. Which way of rounding does that ask for?

# %% graded="output_side"
from lessons.stride import graded

graded.output_side(output_side)

# %% [markdown] question="bytes_saved" points=4 difficulty=2 minutes=10
# ## 2. What the stride saves
#
# A network is a chain of 3 × 3 convolutions with padding 1. `maps` lists their outputs in order, as pairs `(channels,
# side)` for one image. All strides are 1. (A pool in between makes the next outputs smaller. Count the outputs of
# convolutions and no others.) Now convolution number `first`, counted from 0, gets stride `stride`. Take it that each
# output from its own on has the side `(side − 1) // stride + 1` in place of `side`. (After a pool, rounding can make
# the true side one less.)
#
# How many bytes **fewer** does the network keep, for `batch` images in float32?


# %% answer="bytes_saved"
def bytes_saved(batch, maps, first, stride):
    """Bytes of maps that a stride at convolution `first` saves."""
    # BEGIN SOLUTION
    saved = 0
    for channels, side in maps[first:]:
        shrunk = (side - 1) // stride + 1
        saved += channels * (side**2 - shrunk**2)
    return 4 * batch * saved
    # END SOLUTION


# %% check="bytes_saved"
from lessons.stride.checks import check

check("bytes_saved")

# %% [markdown] hint="bytes_saved"
# **My number is too large.** Which of the maps was made before the strided convolution ran? It reads that one at
# fewer positions, but another layer made it.

# %% [markdown] hint="bytes_saved"
# **My number is too small.** Go down the list from `first` and ask of each map whether it has its old size. Does the
# list end with the strided layer?

# %% [markdown] hint="bytes_saved"
# **It is right for even sides only.** 9 values at stride 2: the kernel's centre is at 0, 2, 4, 6, 8. Round the side
# first, then square it.

# %% graded="bytes_saved"
from lessons.stride import graded

graded.bytes_saved(bytes_saved)

# %% [markdown] question="times_smaller" points=3 difficulty=2 minutes=8
# ## 3. s² promised
#
# An advertisement says: "stride s makes your training s² times smaller". Take the simplest picture of a step in
# which everything is alive together: `fixed_bytes` for parameters, their gradients and the optimizer, and
# `maps_bytes`, the bytes of the map of every layer in order. Layer number `first` (counted from 0) gets stride
# `stride`; from its own map on, bytes shrink by s², without rounding.
#
# How many times smaller does the step become? 1 means that nothing happened.


# %% answer="times_smaller"
def times_smaller(fixed_bytes, maps_bytes, first, stride):
    """Bytes before the stride divided by bytes after it."""
    # BEGIN SOLUTION
    before = fixed_bytes + sum(maps_bytes)
    downstream = sum(maps_bytes[first:]) / stride**2
    return before / (fixed_bytes + sum(maps_bytes[:first]) + downstream)
    # END SOLUTION


# %% check="times_smaller"
from lessons.stride.checks import check

check("times_smaller")

# %% [markdown] hint="times_smaller"
# **I always get s².** Write the step as a sum with three terms: fixed, upstream, downstream. Which of them does
# the stride divide?

# %% [markdown] hint="times_smaller"
# **My number is below 1.** You divided after by before. The question is how many times *smaller* the step becomes:
# the larger number goes on top.

# %% graded="times_smaller"
from lessons.stride import graded

graded.times_smaller(times_smaller)

# %% [markdown] question="strided" points=4 difficulty=3 minutes=14
# ## 4. Strides for pools
#
# The network below takes images of 3 × 32 × 32 and shrinks its maps by pooling. Build one in its place such that
#
# - the output has the same shape, (batch, 10), and every layer that has parameters keeps theirs in number and
#   shape;
# - everything is trained, and a ReLU follows every convolution, as in the original;
# - the first convolution reads the images as they are, and no part of them is left out to save memory: whichever value
#   is changed, some output changes;
# - the peak of a traced training step is **at most 70 %** of the original's, and the step computes no
#   more than it did.
#
# `strided()` takes no arguments and returns the network.

# %%
print(inspect.getsource(pooled))


# %% answer="strided"
def strided():
    """A network in place of `pooled` with a lower peak and the same parameters."""
    # BEGIN SOLUTION
    layers, inputs = [], 3
    for width, step in ((16, 1), (16, 2), (32, 1), (32, 2), (64, 2)):
        layers += [nn.Conv2d(inputs, width, 3, step, padding=1), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))
    # END SOLUTION


# %% check="strided"
from lessons.stride.checks import check

check("strided")

# %% [markdown] hint="strided"
# **PyTorch says that shapes cannot be multiplied.** The dense layer wants 64 maps of 4 × 4. Write the side after every
# layer: 32, 32, 16, … Which of your layers halves it, and does any place halve it twice?

# %% [markdown] hint="strided"
# **It runs and the peak is too high.** The pools after small maps hardly count. Which pool comes after the
# largest map, and what would make that map small from the start?

# %% [markdown] hint="strided"
# **The check says a parameter is missing.** A stride is an argument of the convolution that is there already.
# Nothing with weights has to be added or taken away.

# %% graded="strided"
from lessons.stride import graded

graded.strided(strided)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 04` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
