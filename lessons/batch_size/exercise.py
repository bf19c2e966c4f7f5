# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 07: Batch size
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 07` in a terminal for points: it tries your functions on other inputs.
#
# All memory is in bytes, all time in seconds.

# %%
import inspect

from torch.nn import functional as F

from lessons.batch_size import judge as training

# %% [markdown] question="bytes_at" points=3 difficulty=1 minutes=7
# ## 1. A batch nobody measured
#
# You ran your job at a few small batches and noted the peak each time: `measured` is a list of pairs `(batch,
# bytes)`, two or more, in any order. How much will it need at `batch`, which is larger than all of them?
#
# At each moment of a step, memory is a fixed part plus a part for every sample, so two points give a line. But the
# *peak* may be at one moment for a small batch (in the update, say) and at another for a large one. Which two points do
# you trust?


# %% answer="bytes_at"
def bytes_at(batch, measured):
    """Peak at `batch`, from the line through the two measurements that can be trusted most."""
    # BEGIN SOLUTION
    (smaller, its_bytes), (larger, most_bytes) = sorted(measured)[-2:]
    per_sample = (most_bytes - its_bytes) / (larger - smaller)
    return most_bytes + per_sample * (batch - larger)
    # END SOLUTION


# %% check="bytes_at"
from lessons.batch_size.checks import check

check("bytes_at")

# %% [markdown] hint="bytes_at"
# **My number is far too large.** At twice the batch, does everything double? Draw the two points; where does their
# line meet batch 0?

# %% [markdown] hint="bytes_at"
# **It is right for two measurements and wrong for three.** Three points need not lie on one line. You are asked about
# a large batch: which two points are likely to share its moment?

# %% graded="bytes_at"
from lessons.batch_size import graded

graded.bytes_at(bytes_at)

# %% [markdown] question="saved_by_halving" points=2 difficulty=1 minutes=5
# ## 2. What half the batch saves
#
# "Half the batch, half the memory." Return the share of the memory that is saved, a number between 0 and 1, when a
# step of `fixed_bytes + bytes_per_sample * batch` bytes is run with half the batch.


# %% answer="saved_by_halving"
def saved_by_halving(fixed_bytes, bytes_per_sample, batch):
    """Share of the memory that half the batch saves, 0 to 1."""
    # BEGIN SOLUTION
    whole = fixed_bytes + bytes_per_sample * batch
    half = fixed_bytes + bytes_per_sample * batch / 2
    return 1 - half / whole
    # END SOLUTION


# %% check="saved_by_halving"
from lessons.batch_size.checks import check

check("saved_by_halving")

# %% [markdown] hint="saved_by_halving"
# **I always get a half.** Which of the two terms has `batch` in it?

# %% [markdown] hint="saved_by_halving"
# **My number is above a half.** Then it may be what is left, or a share of the smaller total. Try `fixed_bytes = 0`:
# what must your function return? And with a huge `fixed_bytes`?

# %% graded="saved_by_halving"
from lessons.batch_size import graded

graded.saved_by_halving(saved_by_halving)

# %% [markdown] question="micro_batch" points=3 difficulty=2 minutes=10
# ## 3. Which micro-batch?
#
# The update has to be the one that `wanted` samples at once would give. If they fit the card at once, there is nothing to
# do. If not, they go through it in micro-batches of one size, and the gradients add up. From the second micro-batch
# on, the gradients of those before wait, and a layer's old and new gradient are alive together. So a step with accumulation
# needs `accumulated_bytes` more than a plain step on one micro-batch.
#
# Return the largest micro-batch that fits into `limit` bytes and divides `wanted`; `wanted` itself if the plain step
# fits; 0 if nothing does. A plain step of *N* samples needs `fixed_bytes + bytes_per_sample * N`.


# %% answer="micro_batch"
def micro_batch(wanted, fixed_bytes, accumulated_bytes, bytes_per_sample, limit):
    """Samples in the largest micro-batch that divides `wanted` and fits; 0 if none does."""
    # BEGIN SOLUTION
    for parts in range(1, wanted + 1):
        size, left_over = divmod(wanted, parts)
        needed = fixed_bytes + bytes_per_sample * size
        needed += accumulated_bytes if parts > 1 else 0
        if left_over == 0 and needed <= limit:
            return size
    return 0
    # END SOLUTION


# %% check="micro_batch"
from lessons.batch_size.checks import check

check("micro_batch")

# %% [markdown] hint="micro_batch"
# **It is right for some batches and wrong for others.** Is your answer a divisor of `wanted`? A power of two need not
# be one, and 45 divides 90.

# %% [markdown] hint="micro_batch"
# **It is a little too large.** Put it back in: are `accumulated_bytes` in the sum?

# %% [markdown] hint="micro_batch"
# **It is too small where everything fits.** One micro-batch is no accumulation. When are `accumulated_bytes` needed?

# %% graded="micro_batch"
from lessons.batch_size import graded

graded.micro_batch(micro_batch)

# %% [markdown] question="loss_weights" points=2 difficulty=2 minutes=6
# ## 4. Micro-batches of different sizes
#
# A data set of 1,297 images in micro-batches of 32 leaves 17 for the last one. The loss of each micro-batch is a
# mean over *its* samples, and the update has to come from the mean over *all* samples. (Each sample here has one label.
# For padded texts `sizes` would count the tokens that are not padding.)
#
# Return the list of factors, one for each micro-batch of `sizes`, by which its loss must be multiplied before
# `backward()`.


# %% answer="loss_weights"
def loss_weights(sizes):
    """Factors for the mean losses of micro-batches with so many samples each."""
    # BEGIN SOLUTION
    samples = sum(sizes)
    return [size / samples for size in sizes]
    # END SOLUTION


# %% check="loss_weights"
from lessons.batch_size.checks import check

check("loss_weights")

# %% [markdown] hint="loss_weights"
# **It is right for equal sizes only.** Take two micro-batches, of 1 sample and of 3, whose means are 8 and 4. What is
# the mean of all four samples?

# %% [markdown] hint="loss_weights"
# **Do the factors add up to 1?** If every sample has the same loss, the mean over all is that loss. Your factors must
# agree.

# %% graded="loss_weights"
from lessons.batch_size import graded

graded.loss_weights(loss_weights)

# %% [markdown] question="saturated_from" points=3 difficulty=2 minutes=9
# ## 5. Where time saturates
#
# `times` is a dictionary, batch → seconds of a step with it. A larger batch takes longer; what it can save is time
# *for each sample*, until the device has all it can do.
#
# Return the smallest batch whose time per sample is at most `1 + tolerance` times the best of all.


# %% answer="saturated_from"
def saturated_from(times, tolerance):
    """The smallest batch that is within `tolerance` of the best time for each sample."""
    # BEGIN SOLUTION
    each = {batch: seconds / batch for batch, seconds in times.items()}
    enough = (1 + tolerance) * min(each.values())
    return min(batch for batch in each if each[batch] <= enough)
    # END SOLUTION


# %% check="saturated_from"
from lessons.batch_size.checks import check

check("saturated_from")

# %% [markdown] hint="saturated_from"
# **I always get the smallest batch.** A step with one sample is over soonest. Who is done first with a thousand
# samples?

# %% [markdown] hint="saturated_from"
# **I get a batch that is too large.** Several are good enough. Which of them leaves the most memory?

# %% [markdown] hint="saturated_from"
# **It is right for the table of 2017 and wrong for others.** The best need not be the largest batch, and a dictionary
# need not be in order.

# %% graded="saturated_from"
from lessons.batch_size import graded

graded.saturated_from(saturated_from)

# %% [markdown] question="accumulate" points=5 difficulty=3 minutes=14
# ## 6. A training step in micro-batches
#
# Below is a training step on the whole batch. Write one that makes **the same update** with at most `micro` images
# in the network at a time, so that the step asks for **at most a quarter** of the memory that the step below asks for,
# beyond what is there before the step (on the batches of the check).
#
# The last micro-batch may be smaller. The function is called for one batch after the other. When it begins, gradients
# may still be there, from its last call or from somebody else's step. What it returns does not matter.

# %%
print(inspect.getsource(training.whole_batch))


# %% answer="accumulate"
def accumulate(model, optimizer, images, labels, micro):
    """One update by the mean cross-entropy over all images, `micro` of them at a time."""
    # BEGIN SOLUTION
    optimizer.zero_grad()
    for some, their_labels in zip(images.split(micro), labels.split(micro), strict=True):
        loss = F.cross_entropy(model(some), their_labels)
        (loss * len(some) / len(images)).backward()
    optimizer.step()
    # END SOLUTION


# %% check="accumulate"
from lessons.batch_size.checks import check

check("accumulate")

# %% [markdown] hint="accumulate"
# **The update is too large, or too small.** `backward()` adds to the gradients that are there. Say for each
# micro-batch what its mean counts for: question 4.

# %% [markdown] hint="accumulate"
# **Only one micro-batch has an effect, or the second step is wrong.** Gradients are cleared once for each *update*.
# Where in your function is that?

# %% [markdown] hint="accumulate"
# **The update is right and the memory is not.** Maps live until the backward pass of their loss has run. When does it
# run for the first micro-batch: before the second one goes in, or after the last?

# %% graded="accumulate"
from lessons.batch_size import graded

graded.accumulate(accumulate)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 07` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
