# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 05: 1×1 convolutions
#
# Replace the dots in each answer cell, run it and the check cell below. The check says *not attempted*, *wrong*
# (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are folded; open one when its first
# line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course
# check 05` in a terminal for points: it tries your functions on other inputs.

# %%
import inspect

from torch import nn

from lessons.shared.originals import wide

# %% [markdown] question="after_squeeze" points=2 difficulty=1 minutes=6
# ## 1. What comes out
#
# A 1×1 convolution with a bias reads `channels` maps of `side` × `side` and produces `squeezed` maps. Return two
# numbers, for one image: how many values it produces, and how many parameters it has.


# %% answer="after_squeeze"
def after_squeeze(side, channels, squeezed):
    """(values of the output, parameters) of a 1×1 convolution."""
    # BEGIN SOLUTION
    values = side * side * squeezed
    parameters = channels * squeezed + squeezed
    return values, parameters
    # END SOLUTION


# %% check="after_squeeze"
from lessons.one_by_one.checks import check

check("after_squeeze")

# %% [markdown] hint="after_squeeze"
# **I have far too many parameters.** Does the kernel change from one position to the next? Count the weights of one
# kernel, and then the kernels.

# %% [markdown] hint="after_squeeze"
# **I have slightly too few parameters.** `nn.Conv2d(256, 96, 1)` has two parameters. Print their shapes.

# %% graded="after_squeeze"
from lessons.one_by_one import graded

graded.after_squeeze(after_squeeze)

# %% [markdown] question="bytes_added" points=4 difficulty=2 minutes=11
# ## 2. What a squeeze adds, and what it saves
#
# Each convolution of a run produces `channels` maps of `side` × `side`. Now a 1×1 convolution to `squeezed` channels
# is put in front of one of them. The next `narrow` convolutions have `squeezed` channels too; the one after them has
# `channels` again, and everything from there on is as before.
#
# How many bytes of maps **more** does training keep, for `batch` images in float32? If it keeps less, the number is
# negative. A ReLU follows each convolution, and training keeps one map of each such pair.


# %% answer="bytes_added"
def bytes_added(batch, side, channels, squeezed, narrow):
    """Bytes of maps kept with the squeeze minus bytes kept without."""
    # BEGIN SOLUTION
    one_map = 4 * batch * side * side
    return one_map * (squeezed - narrow * (channels - squeezed))
    # END SOLUTION


# %% check="bytes_added"
from lessons.one_by_one.checks import check

check("bytes_added")

# %% [markdown] hint="bytes_added"
# **I get a negative number for `narrow = 0`.** Which maps are there before and not after? The squeeze reads a
# wide map; can training throw that away?

# %% [markdown] hint="bytes_added"
# **I am off by one layer.** Write two columns, before and after, with a row for each convolution, from the one that
# makes the wide map to the one that widens again. In how many rows do the columns differ?

# %% graded="bytes_added"
from lessons.one_by_one import graded

graded.bytes_added(bytes_added)

# %% [markdown] question="break_even" points=3 difficulty=2 minutes=9
# ## 3. When the arithmetic pays
#
# A `kernel` × `kernel` convolution reads `inputs` channels and produces `outputs`. With a 1×1 convolution to m
# channels in front of it, it reads m instead. Count the multiply-adds for one position, without biases.
#
# Return the largest m for which the two together take *fewer* than the convolution alone, 0 if there is none.


# %% answer="break_even"
def break_even(inputs, outputs, kernel):
    """The largest m with which squeeze and convolution cost less than the latter alone."""
    # BEGIN SOLUTION
    alone = kernel**2 * inputs * outputs
    for_each_channel = inputs + kernel**2 * outputs
    return (alone - 1) // for_each_channel
    # END SOLUTION


# %% check="break_even"
from lessons.one_by_one.checks import check

check("break_even")

# %% [markdown] hint="break_even"
# **I do not know where to start.** Write the two sides: the convolution alone on the left; on the right the 1×1
# (inputs times m) and what is left of the convolution. Everything on the right has m in it.

# %% [markdown] hint="break_even"
# **I am one too high for some inputs.** Put your m back in. Is the right side smaller, or equal?

# %% graded="break_even"
from lessons.one_by_one import graded

graded.break_even(break_even)

# %% [markdown] question="bottleneck" points=4 difficulty=3 minutes=12
# ## 4. A bottleneck
#
# The network below has 64 channels throughout. Build one in its place such that
#
# - the output has the same shape, (batch, 10), and everything is trained;
# - the first convolution and the dense layer are as they were; counting the first, there are at least four convolutions
#   of 3 × 3, and there is at least one of 1 × 1; a ReLU follows each convolution;
# - all maps keep their 32 × 32 up to the average before the head (no strides, no pools);
# - no part of the images is left out to save memory: whichever value of an image is changed, some output changes;
# - the peak of a traced forward and backward pass of 6 images is **at most 85 %** of the original's, and the
#   step computes no more than it did.
#
# `bottleneck()` takes no arguments and returns the network.

# %%
print(inspect.getsource(wide))


# %% answer="bottleneck"
def bottleneck():
    """A network in place of `wide` that squeezes, and has a lower peak."""
    # BEGIN SOLUTION
    layers, inputs = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()], 64
    for kernel, outputs in ((1, 16), (3, 16), (3, 16), (3, 64)):
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    # END SOLUTION


# %% check="bottleneck"
from lessons.one_by_one.checks import check

check("bottleneck")

# %% [markdown] hint="bottleneck"
# **The peak has risen.** Count the maps with 64 channels before and after. Which of your layers widens again, and do
# the narrow layers in between make up for it?

# %% [markdown] hint="bottleneck"
# **PyTorch expects another number of channels.** Each convolution reads what the one before it produces. Write
# the channels in a row, 3, 64, …, and take neighbours.

# %% [markdown] hint="bottleneck"
# **It falls, but not to 85 %.** Question 2 computes the gain. Put in your numbers. Would more narrow layers help, or
# narrower ones?

# %% graded="bottleneck"
from lessons.one_by_one import graded

graded.bottleneck(bottleneck)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 05` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
