# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 09: Offload to CPU memory
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 09` in a terminal for points: it tries your functions on other inputs.
#
# A float32 value takes 4 bytes. Rates are decimal: 1 GB/s is 10⁹ bytes a second, 1 TFLOP/s is 10¹² operations.

# %%
import inspect

import torch

from lessons.offload import judge as saved

# %% [markdown] question="copy_seconds" points=2 difficulty=1 minutes=5
# ## 1. Seconds of a copy
#
# A feature map of `channels` × `height` × `width` float32 values for each image of a batch goes over a link of
# `gb_s` GB/s, one way. Return the seconds.


# %% answer="copy_seconds"
def copy_seconds(batch, channels, height, width, gb_s):
    """Seconds that the maps of a batch take over a link, one way."""
    # BEGIN SOLUTION
    return 4 * batch * channels * height * width / (gb_s * 1e9)
    # END SOLUTION


# %% check="copy_seconds"
from lessons.offload.checks import check

check("copy_seconds")

# %% [markdown] hint="copy_seconds"
# **My number is 4 times too small.** A link's rate is in bytes.

# %% [markdown] hint="copy_seconds"
# **I am off by a billion, or by 7 %.** How many bytes are a GB? This one is decimal.

# %% graded="copy_seconds"
from lessons.offload import graded

graded.copy_seconds(copy_seconds)

# %% [markdown] question="copy_over_kernel" points=3 difficulty=2 minutes=8
# ## 2. Does it hide?
#
# A convolution with a kernel of `kernel` × `kernel` and a stride of `stride` reads `read` maps of `side` × `side`
# for each image and writes `written` maps of (`side` / `stride`) × (`side` / `stride`). The device computes
# `tflop_s` TFLOP/s; a multiplication and an addition are two operations. While the layer runs, the map that it
# reads is copied out at `gb_s` GB/s.
#
# Return the time of the copy divided by the time of the kernel. Above 1 the copy does not hide.


# %% answer="copy_over_kernel"
def copy_over_kernel(kernel, stride, read, written, side, batch, tflop_s, gb_s):
    """The time of the copy of a convolution's input over the time of its kernel."""
    # BEGIN SOLUTION
    copy = 4 * batch * read * side**2 / (gb_s * 1e9)
    operations = 2 * kernel**2 * read * written * batch * (side / stride) ** 2
    return copy / (operations / (tflop_s * 1e12))
    # END SOLUTION


# %% check="copy_over_kernel"
from lessons.offload.checks import check

check("copy_over_kernel")

# %% [markdown] hint="copy_over_kernel"
# **I do not know where to begin.** One output value is a sum over `kernel` × `kernel` positions in each of `read`
# maps. How many output values are there?

# %% [markdown] hint="copy_over_kernel"
# **It is right at stride 1 only.** The layer reads the whole map and writes fewer values.

# %% [markdown] hint="copy_over_kernel"
# **I am off by a factor of 2.** Count the operations again, and how many ways the copy goes.

# %% graded="copy_over_kernel"
from lessons.offload import graded

graded.copy_over_kernel(copy_over_kernel)

# %% [markdown] question="least_link" points=2 difficulty=2 minutes=8
# ## 3. The slowest link that is fast enough
#
# `layers` is a list of pairs: the bytes copied while a layer runs, and the seconds its kernels take. Each copy must
# finish no later than the layer that it started with.
#
# Return the lowest rate of a link, in bytes a second, at which every copy hides. All seconds are above 0.


# %% answer="least_link"
def least_link(layers):
    """The lowest rate in bytes a second with which every copy hides behind its own layer."""
    # BEGIN SOLUTION
    return max(count / seconds for count, seconds in layers)
    # END SOLUTION


# %% check="least_link"
from lessons.offload.checks import check

check("least_link")

# %% [markdown] hint="least_link"
# **My rate is too low.** Go through the layers one by one at that rate: which copy is late?

# %% [markdown] hint="least_link"
# **My rate is too high.** Do the bytes and the seconds that you divide belong to the same layer?

# %% graded="least_link"
from lessons.offload import graded

graded.least_link(least_link)

# %% [markdown] question="two_streams" points=3 difficulty=2 minutes=10
# ## 4. A step on two streams
#
# The layers form a chain. `forward[i]` and `backward[i]` are the seconds of layer i's kernels; `copies[i]` is how long
# the map that layer i reads takes to be copied, one way, or 0 if it stays. The rules are those of the lesson's first
# schedule, with one more for the turn:
#
# - forward: the copy of a layer's input starts with the layer; the next layer starts when both have finished. The
#   backward pass starts when the last layer and its copy have finished;
# - at the turn, the input of the last layer is copied back before its backward kernels start, while nothing runs;
# - backward, from the last layer to the first: while a layer runs, the input of the layer *before* it is copied back;
#   the next starts when both have finished.
#
# Return the seconds of the step.


# %% answer="two_streams"
def two_streams(forward, backward, copies):
    """Seconds of a step whose copies run beside its kernels."""
    # BEGIN SOLUTION
    seconds = sum(max(kernel, copy) for kernel, copy in zip(forward, copies, strict=True))
    seconds += copies[-1]
    for layer in range(len(backward)):
        before = copies[layer - 1] if layer > 0 else 0
        seconds += max(backward[layer], before)
    return seconds
    # END SOLUTION


# %% check="two_streams"
from lessons.offload.checks import check

check("two_streams")

# %% [markdown] hint="two_streams"
# **My number is too large.** Two things start together, and both have to finish. Which of them decides?

# %% [markdown] hint="two_streams"
# **My number is too small.** Time passes in three places: each layer forward, the turn, each layer backward.

# %% [markdown] hint="two_streams"
# **It is right for one layer, not for several.** While layer i's backward kernels run, the input of layer i − 1 is
# copied back. While those of layer 0 run, nothing is.

# %% graded="two_streams"
from lessons.offload import graded

graded.two_streams(two_streams)

# %% [markdown] question="leaves_with" points=3 difficulty=2 minutes=10
# ## 5. When may a map leave?
#
# `layers` lists the layers in the order in which they run: pairs of a layer's name and a list of the maps it reads.
# A map has the name of the layer that makes it; the network's input is called `"input"`. A map may be copied out while
# a layer reads it, and is gone when that layer has finished.
#
# Return a dictionary: for every map that is read, the earliest layer it may leave with, so that no later layer of the
# forward pass misses it.

# %%
example = [
    ("stem", ["input"]),
    ("left", ["stem"]),
    ("right", ["stem"]),
    ("join", ["left", "right"]),
]


# %% answer="leaves_with"
def leaves_with(layers):
    """For every map that is read: the layer beside which its copy may begin."""
    # BEGIN SOLUTION
    leaves = {}
    for name, reads in layers:
        for read in reads:
            leaves[read] = name
    return leaves
    # END SOLUTION


# %% check="leaves_with"
from lessons.offload.checks import check

check("leaves_with")

# %% [markdown] hint="leaves_with"
# **I do not know how to begin.** In `example`, who reads `"stem"`? Which of them is the last to run?

# %% [markdown] hint="leaves_with"
# **A chain is right, branches are wrong.** A map with several readers has to stay until the last of them runs.

# %% graded="leaves_with"
from lessons.offload import graded

graded.leaves_with(leaves_with)

# %% [markdown] question="keep_outside" points=5 difficulty=3 minutes=15
# ## 6. Move what autograd saves
#
# Within `torch.autograd.graph.saved_tensors_hooks(pack, unpack)` autograd calls `pack(tensor)` for every tensor it
# saves for the backward pass, keeps what `pack` returns, and calls `unpack` with that when it needs the tensor.
#
# Write both. `host` stands for the CPU's memory: `host.put(tensor)` copies a tensor there and returns a ticket,
# `host.take(ticket)` copies it back. In every training step of the network `model` below,
#
# - maps of `least` bytes or more are put on the host, and nothing keeps them in memory until they are needed;
# - parameters and smaller tensors stay: `pack` returns them as they are;
# - the gradients equal those of the step without hooks, bit by bit.
#
# The images themselves may move or stay.

# %%
print(inspect.getsource(saved.Host))
print(inspect.getsource(saved.network))


# %% answer="keep_outside"
def keep_outside(model, least, host):
    """Two hooks, pack and unpack, that keep the large maps of a model on the host."""
    # BEGIN SOLUTION
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor):
        if tensor.nbytes < least or tensor.untyped_storage().data_ptr() in own:
            return tensor
        return host.put(tensor)

    def unpack(kept):
        return kept if isinstance(kept, torch.Tensor) else host.take(kept)

    return pack, unpack
    # END SOLUTION


# %% check="keep_outside"
from lessons.offload.checks import check

check("keep_outside")

# %% [markdown] hint="keep_outside"
# **I do not know what to return.** Two functions, defined inside yours, the one that packs first. `unpack` gets tickets
# and tensors; `isinstance(kept, torch.Tensor)` tells them apart.

# %% [markdown] hint="keep_outside"
# **The check says that a parameter is moved.** A dense layer saves its weight transposed: another tensor object on
# the same bytes. `tensor.untyped_storage().data_ptr()` is the address of the bytes.

# %% [markdown] hint="keep_outside"
# **The maps are still in memory.** Anything that refers to the tensor, such as a list or a view like `tensor.numpy()`,
# keeps its bytes alive.

# %% graded="keep_outside"
from lessons.offload import graded

graded.keep_outside(keep_outside)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 09` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
