# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 06: Pooling
#
# Replace the dots in each answer cell, run it and the check cell below. The check says *not attempted*, *wrong*
# (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are folded; open one when its first
# line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course
# check 06` in a terminal for points: it tries your functions on other inputs.

# %%
import inspect

from torch import nn

from lessons.shared.originals import pooled_late

# %% [markdown] question="pool_keeps" points=3 difficulty=2 minutes=8
# ## 1. What a pool keeps
#
# A pool of `kernel` × `kernel` with this `stride`, without padding, reads `batch` × `channels` maps of `side` ×
# `side`. `kind` is `"max"` or `"average"`; a value takes `value_bytes` bytes, 4 in float32 and 2 in float16.
#
# How many bytes does the pool add to what training keeps? Its input is kept anyway, by the ReLU before it. Its output,
# which the next layer keeps, counts. Windows may overlap, as AlexNet's do (3 × 3, stride 2).


# %% answer="pool_keeps"
def pool_keeps(kind, batch, channels, side, kernel, stride, value_bytes):
    """Bytes that a pool adds to what training keeps."""
    # BEGIN SOLUTION
    places = (side - kernel) // stride + 1
    outputs = batch * channels * places**2
    index_bytes = 8 if kind == "max" else 0
    return outputs * (value_bytes + index_bytes)
    # END SOLUTION


# %% check="pool_keeps"
from lessons.pooling.checks import check

check("pool_keeps")

# %% [markdown] hint="pool_keeps"
# **It is right for float32 and wrong for float16.** The pool keeps a value and a position for each output. Does a
# position take fewer bytes when values do?

# %% [markdown] hint="pool_keeps"
# **It is wrong where windows overlap.** Count where the left edge of a window of 3 may be on 10 values,
# going by 2. Exercise 04 had the formula.

# %% graded="pool_keeps"
from lessons.pooling import graded

graded.pool_keeps(pool_keeps)

# %% [markdown] question="route" points=3 difficulty=2 minutes=10
# ## 2. Where the gradient goes
#
# `values` is a map as a list of rows, its sides even. A 2 × 2 max pool with stride 2 has read it; `gradients`,
# a list of rows too, holds the gradient of each value that the pool produced.
#
# Return the gradient of `values`, as a list of rows of the same size. If the maximum is in a window more
# than once, the first place counts, row by row.


# %% answer="route"
def route(values, gradients):
    """The gradient of the input of a 2 × 2 max pool."""
    # BEGIN SOLUTION
    routed = [[0 for _ in row] for row in values]
    for i, row in enumerate(gradients):
        for j, gradient in enumerate(row):
            places = [(2 * i + down, 2 * j + right) for down in (0, 1) for right in (0, 1)]
            r, c = max(places, key=lambda place: values[place[0]][place[1]])
            routed[r][c] = gradient
    return routed
    # END SOLUTION


# %% check="route"
from lessons.pooling.checks import check

check("route")

# %% [markdown] hint="route"
# **Whole rows of my result change together.** `[[0] * n] * m` is one row written down m times. Make a new list
# for each row.

# %% [markdown] hint="route"
# **It is wrong where values are equal, or negative.** What is your best value before you have looked at any?
# Start from the window's own first value, and let only a larger one replace it.

# %% graded="route"
from lessons.pooling import graded

graded.route(route)

# %% [markdown] question="pool_balance" points=3 difficulty=2 minutes=9
# ## 3. Does the pool pay?
#
# A max pool of `size` × `size` (stride `size`, which divides `side`) is put after `channels` maps of `side` ×
# `side`. Later layers keep maps with `later[0]`, `later[1]`, … channels. Without the pool each of these would
# have `side` × `side` values a channel; with it, the pool's side. The pool's own output is not in `later`.
#
# How many bytes does a step with `batch` images in float32 keep **less** because of the pool? Count what the
# pool adds as well: the balance may be negative.


# %% answer="pool_balance"
def pool_balance(batch, channels, side, size, later):
    """Bytes kept without a max pool minus bytes kept with it."""
    # BEGIN SOLUTION
    pooled = (side // size) ** 2
    saved = 4 * sum(later) * (side**2 - pooled)
    added = (4 + 8) * channels * pooled
    return batch * (saved - added)
    # END SOLUTION


# %% check="pool_balance"
from lessons.pooling.checks import check

check("pool_balance")

# %% [markdown] hint="pool_balance"
# **My balance is too large.** List what exists only with the pool. There are two things, and there is one of each for
# every value that the pool produces.

# %% [markdown] hint="pool_balance"
# **I do not know what to do with the pool's input.** It is there in both cases. What is the same on both sides
# of a balance can be left out.

# %% graded="pool_balance"
from lessons.pooling import graded

graded.pool_balance(pool_balance)

# %% [markdown] question="pooled_well" points=4 difficulty=3 minutes=12
# ## 4. Where the pools go
#
# The network below does its pooling late. Build one in its place such that
#
# - the output has the same shape, (batch, 10), and all parameters keep their number and shape;
# - everything is trained, and a ReLU follows every convolution, as in the original;
# - the first convolution reads the images as they are, and no part of them is left out to save memory: whichever value
#   is changed, some output changes;
# - the peak of a traced training step is **at most 43 %** of the original's, and the step computes no
#   more than it did.
#
# `pooled_well()` takes no arguments and returns the network.

# %%
print(inspect.getsource(pooled_late))


# %% answer="pooled_well"
def pooled_well():
    """A network in place of `pooled_late` with a lower peak and the same parameters."""
    # BEGIN SOLUTION
    layers, inputs = [], 3
    widths, pools = (16, 16, 32, 32, 64, 64), (True, True, False, True, False, False)
    for width, pool in zip(widths, pools, strict=True):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        if pool:
            layers.append(nn.MaxPool2d(2))
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, 10))
    # END SOLUTION


# %% check="pooled_well"
from lessons.pooling.checks import check

check("pooled_well")

# %% [markdown] hint="pooled_well"
# **PyTorch says that shapes cannot be multiplied.** The dense layer wants 4 × 4. How many halvings lead from 32
# to 4?

# %% [markdown] hint="pooled_well"
# **The peak falls, but not enough.** Write the bytes of every map in a column, 4 · channels · side². Which rows
# are the largest, and is there a pool in front of them?

# %% graded="pooled_well"
from lessons.pooling import graded

graded.pooled_well(pooled_well)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 06` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
