# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 03: Where the memory goes
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 03` in a terminal for points: it tries your functions on other inputs.
#
# All memory is in bytes. A float32 value takes 4.

# %%
import inspect

import torch  # noqa: F401 - for your answers

from lessons.shared.rewrites import Watched

# %% [markdown] question="map_bytes" points=2 difficulty=1 minutes=4
# ## 1. Bytes of one feature map
#
# A layer's output is a tensor of `batch` × `channels` × `height` × `width` values, each of `value_bytes` bytes. How
# many bytes is that?
#
# Try it on VGG-16's first layer before you run it: 128 images, 64 channels of 224 × 224.


# %% answer="map_bytes"
def map_bytes(batch, channels, height, width, value_bytes=4):
    """Bytes of one feature map."""
    # BEGIN SOLUTION
    return batch * channels * height * width * value_bytes
    # END SOLUTION


# %% check="map_bytes"
from lessons.memory.checks import check

check("map_bytes")

# %% [markdown] hint="map_bytes"
# **My number is smaller by a whole factor.** Divide what it should be by what you have, on a small case by hand: 2
# images, 3 channels, 5 × 7. The factor is the thing you left out.

# %% [markdown] hint="map_bytes"
# **It is right for float32 and wrong for float16.** The last argument says how many bytes a value takes. It is 4 only
# if nobody says otherwise.

# %% graded="map_bytes"
from lessons.memory import graded

graded.map_bytes(map_bytes)

# %% [markdown] question="training_bytes" points=2 difficulty=1 minutes=5
# ## 2. What training keeps for every parameter
#
# Three roles do not grow with the batch: weights, weight gradients and optimizer state. Return their bytes together for
# a network of `parameters` float32 parameters. `optimizer` is `"sgd"` (no state), `"momentum"` or `"adam"`. Leave out
# what an update makes for a moment, which lesson 02 counted: that is another role.


# %% answer="training_bytes"
def training_bytes(parameters, optimizer):
    """Bytes of weights, weight gradients and optimizer state in float32."""
    # BEGIN SOLUTION
    states = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    return 4 * parameters * (1 + 1 + states)
    # END SOLUTION


# %% check="training_bytes"
from lessons.memory.checks import check

check("training_bytes")

# %% [markdown] hint="training_bytes"
# **I have 8 bytes for momentum, and the check wants more.** Look at VGG-16's table of roles at the peak. Which two rows
# are as large as the parameters, or nearly?

# %% [markdown] hint="training_bytes"
# **Adam is wrong, the rest is right.** The lesson's table of optimizers has the bytes of Adam's state for a parameter.

# %% graded="training_bytes"
from lessons.memory import graded

graded.training_bytes(training_bytes)

# %% [markdown] question="pool_saved_bytes" points=3 difficulty=2 minutes=8
# ## 3. What a pool adds
#
# A max pool of 2 × 2 with stride 2 shrinks the map, and the layers after it profit. But in training the pool itself
# *adds* memory. Its output is kept for the next layer. And to send each gradient back to the value it came from,
# PyTorch keeps, for every output value, where the maximum was: an int64 index.
#
# The pool's input is there anyway, saved by the layer that made it. How many bytes does the pool add, in float32,
# for an input of `batch` × `channels` × `height` × `width`? Windows do not overlap; a row or column left over is
# dropped.


# %% answer="pool_saved_bytes"
def pool_saved_bytes(batch, channels, height, width):
    """Bytes a 2 × 2 max pool with stride 2 adds in training, for an input of this shape."""
    # BEGIN SOLUTION
    outputs = batch * channels * (height // 2) * (width // 2)
    return outputs * (4 + 8)  # the value in float32, the index in int64
    # END SOLUTION


# %% check="pool_saved_bytes"
from lessons.memory.checks import check

check("pool_saved_bytes")

# %% [markdown] hint="pool_saved_bytes"
# **My number is too large by 2 or by 4.** Draw 4 × 4 values and put 2 × 2 windows on them. Count the windows.

# %% [markdown] hint="pool_saved_bytes"
# **My number is too small by a third or by two thirds.** An int64 is 64 bits wide, twice a float32. Each output
# value has one beside it.

# %% [markdown] hint="pool_saved_bytes"
# **It is right for 6 × 6 and wrong for 5 × 7.** How many whole windows fit into 5 rows? Into 7 columns? Round before
# you multiply.

# %% graded="pool_saved_bytes"
from lessons.memory import graded

graded.pool_saved_bytes(pool_saved_bytes)

# %% [markdown] question="network_wide" points=3 difficulty=2 minutes=8
# ## 4. The accounting of 2016
#
# The verdict on claim 22 of the lesson rests on this sum. The papers of the time counted a whole network like this, in
# float32, without workspace:
#
# - every feature map of the batch, and the input;
# - the weights, and a gradient for each;
# - two buffers for gradient maps, shared by all layers, each as large as the largest feature map of the batch.
#
# Return the bytes. `map_values`, `input_values` and `largest_map_values` count values **for one image**;
# `map_values` is the sum over all maps. (For VGG-16 with 128 images this gives 12.2 GB. The trace, with momentum, has
# 11.1: it counts a map only while it is there. And it counts what this sum leaves out, momentum and the indices of
# pools.)


# %% answer="network_wide"
def network_wide(map_values, input_values, parameters, largest_map_values, batch):
    """Bytes of a training step in the network-wide accounting."""
    # BEGIN SOLUTION
    maps = batch * (map_values + input_values)
    gradient_maps = 2 * batch * largest_map_values
    weights = 2 * parameters
    return 4 * (maps + gradient_maps + weights)
    # END SOLUTION


# %% check="network_wide"
from lessons.memory.checks import check

check("network_wide")

# %% [markdown] hint="network_wide"
# **It is right for batch 1 and wrong for the rest.** Go through the list and ask of each line: does a second image
# need this again? Two lines say yes, one says no.

# %% [markdown] hint="network_wide"
# **It is a little too small.** Count the lists inside the lines: maps *and* input, weights *and* gradients, *two*
# buffers.

# %% [markdown] hint="network_wide"
# **It is much too large.** The two buffers are all the gradient maps there are. Each layer writes into one and reads
# from the other.

# %% graded="network_wide"
from lessons.memory import graded

graded.network_wide(network_wide)

# %% [markdown] question="largest_batch" points=4 difficulty=2 minutes=10
# ## 5. The largest batch that fits
#
# A trace describes every moment of a step by two numbers: at batch *N* it needs `fixed_bytes + bytes_per_sample *
# N`. `events` is the list of these pairs, one for each moment. Return the largest batch, 1 or more, for which no moment
# needs more than `limit` bytes; 0 if there is none.
#
# Some moments need nothing per sample (the optimizer's, say); at least one does. One short cut is wrong: the moment
# that is the peak at batch 1 need not be the peak at batch 100.


# %% answer="largest_batch"
def largest_batch(events, limit):
    """The largest N for which fixed_bytes + bytes_per_sample * N <= limit at every moment."""
    # BEGIN SOLUTION
    if any(fixed_bytes > limit for fixed_bytes, _ in events):
        return 0
    return min((limit - fixed) // each for fixed, each in events if each > 0)
    # END SOLUTION


# %% check="largest_batch"
from lessons.memory.checks import check

check("largest_batch")

# %% [markdown] hint="largest_batch"
# **It crashes with ZeroDivisionError.** A moment that needs nothing per sample either fits at every batch or at
# none. It has no batch of its own.

# %% [markdown] hint="largest_batch"
# **It is right for some lists and too large for others.** Take one moment at a time and work out the largest batch
# that *it* allows. You have as many numbers as moments. Which one counts?

# %% [markdown] hint="largest_batch"
# **It is off by one, or negative.** Put your answer back in: does *N* fit at every moment, and *N* + 1 not? What if
# not even the fixed bytes fit?

# %% graded="largest_batch"
from lessons.memory import graded

graded.largest_batch(largest_batch)

# %% [markdown] question="keep_less" points=4 difficulty=3 minutes=12
# ## 6. A network that keeps too much
#
# Somebody wanted a plot of the maps, long ago. Nobody has made it since, but the network below still puts every map
# into a list. Autograd keeps a map only if a backward pass needs it, and until that is over; a map in a list stays until
# the next step replaces it.
#
# Rewrite `forward` so that output and gradients are the same, and the peak of a traced training step is **at most
# half**. The plot is not needed any more.

# %%
print(inspect.getsource(Watched))


# %% answer="keep_less"
class KeepsLess(Watched):
    """The same network, without the list."""

    def forward(self, images):
        # BEGIN SOLUTION
        x = images
        for layer in self.layers:
            x = layer(x)
        return x
        # END SOLUTION


# %% check="keep_less"
from lessons.memory.checks import check

check("keep_less")

# %% [markdown] hint="keep_less"
# **I detached the maps and the peak has not moved.** Ask who still holds a map when its layer's backward pass is
# over. `.detach()` returns a second tensor on the *same* memory.

# %% [markdown] hint="keep_less"
# **I empty the list and the peak is still too high.** When do you empty it? By the end of `forward` all maps have
# been alive at the same time, and that moment is the peak.

# %% [markdown] hint="keep_less"
# **The peak is fine and the check says the network cannot learn.** Keep what autograd keeps. `torch.no_grad()`
# throws away what the backward pass needs; only your own references have to go.

# %% graded="keep_less"
from lessons.memory import graded

graded.keep_less(KeepsLess)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 03` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
