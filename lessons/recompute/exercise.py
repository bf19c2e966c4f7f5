# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 10: Recompute instead of store
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 10` in a terminal for points: it tries your functions on other inputs.
#
# In questions 1, 2, 3 and 5 every layer of a chain keeps its output for its backward pass. A *segment* keeps what
# enters it and computes its outputs again when the backward pass gets there. Questions 1 and 2 hold all inputs to the
# end, as the lesson's count by hand does. Questions 3 and 5 count more closely: what they hold is listed there.

# %%
import inspect
import itertools
import math

from torch.utils.checkpoint import checkpoint

from lessons.shared.rewrites import Tower

# %% [markdown] question="chain_peak" points=2 difficulty=1 minutes=5
# ## 1. A chain of equal layers
#
# A chain of `layers` equal layers, each with an output of one unit, is cut into `segments` segments as equal as they
# can be. The inputs of all segments are held, and one segment at a time holds its outputs.
#
# Return the units at the peak, a whole number. (Where the lengths differ, the longest segment counts.)


# %% answer="chain_peak"
def chain_peak(layers, segments):
    """Units at the peak: the inputs of the segments, and the longest segment."""
    # BEGIN SOLUTION
    return segments + math.ceil(layers / segments)
    # END SOLUTION


# %% check="chain_peak"
from lessons.recompute.checks import check

check("chain_peak")

# %% [markdown] hint="chain_peak"
# **It is right for 36 layers in 6 segments and wrong for 10 in 3.** Ten layers in three segments are 4, 3 and 3.

# %% [markdown] hint="chain_peak"
# **My number is too small.** What is held besides the segment that runs?

# %% graded="chain_peak"
from lessons.recompute import graded

graded.chain_peak(chain_peak)

# %% [markdown] question="best_count" points=2 difficulty=2 minutes=7
# ## 2. The best number of segments
#
# Return the number of segments with the lowest peak in the sense of question 1, from 1 to `layers`. If several reach
# it, return the smallest of them.


# %% answer="best_count"
def best_count(layers):
    """The smallest number of segments that reaches the lowest peak."""
    # BEGIN SOLUTION
    return min(range(1, layers + 1), key=lambda k: k + math.ceil(layers / k))
    # END SOLUTION


# %% check="best_count"
from lessons.recompute.checks import check

check("best_count")

# %% [markdown] hint="best_count"
# **It is right for 36 and wrong for 10.** The root of 10 is no whole number. Write down the peaks for 2, 3 and 4
# segments.

# %% [markdown] hint="best_count"
# **I return 12 for 36.** That is the peak; which number of segments reaches it?

# %% graded="best_count"
from lessons.recompute import graded

graded.best_count(best_count)

# %% [markdown] question="cut_peak" points=3 difficulty=2 minutes=10
# ## 3. Unequal layers
#
# `outputs` lists the bytes of each layer's output, first layer first. `cuts` lists, in order, the layers with which
# the second, third, … segment begins: with `cuts = [2, 4]` six layers become 0–1, 2–3 and 4–5.
#
# What enters a segment is the output of the layer before it. The network's own input does not count. While the
# backward pass works through a segment, these are alive:
#
# - all outputs of this segment;
# - what enters it, and what enters the segments before it. (Unlike in question 1: later segments are done, their inputs
#   gone.)
#
# Return the bytes at the peak.


# %% answer="cut_peak"
def cut_peak(outputs, cuts):
    """Bytes at the peak of the backward pass."""
    # BEGIN SOLUTION
    peak = held = 0
    for first, last in itertools.pairwise([0, *cuts, len(outputs)]):
        if first > 0:
            held += outputs[first - 1]
        peak = max(peak, held + sum(outputs[first:last]))
    return peak
    # END SOLUTION


# %% check="cut_peak"
from lessons.recompute.checks import check

check("cut_peak")

# %% [markdown] hint="cut_peak"
# **My number is too large.** Go through the segments from the first on and add up inputs as you pass them. Beside the
# first segment no input is held.

# %% [markdown] hint="cut_peak"
# **My number is too small.** Do you hold the inputs of all segments up to the one that runs?

# %% [markdown] hint="cut_peak"
# **It is wrong when neighbours differ a lot.** What enters segment 2–3 is the output of layer 1.

# %% graded="cut_peak"
from lessons.recompute import graded

graded.cut_peak(cut_peak)

# %% [markdown] question="extra_share" points=2 difficulty=1 minutes=5
# ## 4. The price
#
# `forward` and `backward` list the seconds of every layer in each pass. `segments` lists what is recomputed, each as
# (first, last), with `last` excluded as in a slice. Return how much longer the step becomes, as a share of forward
# and backward together: 0.25 for a quarter.


# %% answer="extra_share"
def extra_share(forward, backward, segments):
    """Extra time as a share of the step without recomputation."""
    # BEGIN SOLUTION
    again = sum(sum(forward[first:last]) for first, last in segments)
    return again / (sum(forward) + sum(backward))
    # END SOLUTION


# %% check="extra_share"
from lessons.recompute.checks import check

check("extra_share")

# %% [markdown] hint="extra_share"
# **My share is about three times too large.** A share of what? The step has two passes.

# %% [markdown] hint="extra_share"
# **My number is above 1.** The question asks for the extra time, not for the whole.

# %% graded="extra_share"
from lessons.recompute import graded

graded.extra_share(extra_share)

# %% [markdown] question="least_again" points=4 difficulty=3 minutes=13
# ## 5. As little as possible
#
# A chain as in question 3; `seconds` lists each layer's time in the forward pass. Every segment but the last runs
# again: the backward pass begins with the last, while its outputs are there. Without a cut nothing runs again.
#
# Choose the cuts so that the peak of question 3, in which the last segment's outputs count too, is at most `limit` bytes,
# and as few seconds as possible run again. (A segment's last layer runs again too, unlike the convolutions of the lesson.)
# Return these seconds, or -1 if no cuts fit. (At most ten layers: you may try all cuts.)


# %% answer="least_again"
def least_again(outputs, seconds, limit):
    """The least seconds that run again with a peak within the limit; -1 if no cuts fit."""

    # BEGIN SOLUTION
    def peak(cuts):
        highest = held = 0
        for first, last in itertools.pairwise([0, *cuts, len(outputs)]):
            held += outputs[first - 1] if first > 0 else 0
            highest = max(highest, held + sum(outputs[first:last]))
        return highest

    least = -1
    for count in range(len(outputs)):
        for cuts in itertools.combinations(range(1, len(outputs)), count):
            again = sum(seconds[: cuts[-1]]) if cuts else 0
            if peak(cuts) <= limit and (least < 0 or again < least):
                least = again
    return least
    # END SOLUTION


# %% check="least_again"
from lessons.recompute.checks import check

check("least_again")

# %% [markdown] hint="least_again"
# **How do I try all cuts?** `itertools.combinations(range(1, n), count)` gives every choice of `count` of them; let
# `count` go from 0 up.

# %% [markdown] hint="least_again"
# **My seconds are too many.** Which segment never runs again? And do you look for the lowest peak, or for the least
# time among those that fit?

# %% [markdown] hint="least_again"
# **I return 0 and the check wants something else.** 0 is for "everything may be kept". Nothing that fits is -1.

# %% graded="least_again"
from lessons.recompute import graded

graded.least_again(least_again)

# %% [markdown] question="recompute_blocks" points=5 difficulty=3 minutes=12
# ## 6. A network that recomputes
#
# The network below has eight blocks with dropout. Rewrite its `forward` with `torch.utils.checkpoint.checkpoint`, so
# that the peak of a training step, weights included, is at most 55 % of the original's. Parameters, output and
# gradients stay the same: with the same random numbers dropout drops the same values.
#
# The check compares your network with the original on random images and by trace. Where you cut is up to you. Pass
# `use_reentrant=False`.

# %%
print(inspect.getsource(Tower))


# %% answer="recompute_blocks"
class Recomputes(Tower):
    def forward(self, images):
        # BEGIN SOLUTION
        x = self.stem(images)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)
        # END SOLUTION


# %% check="recompute_blocks"
from lessons.recompute.checks import check

check("recompute_blocks")

# %% [markdown] hint="recompute_blocks"
# **The check says that the peak has not moved.** What runs in one `checkpoint(function, x, use_reentrant=False)` is one
# segment. How many segments do you have, and how many layers are in each?

# %% [markdown] hint="recompute_blocks"
# **The gradients are not the same.** Dropout runs twice. `checkpoint` restores its random numbers by itself, unless
# it is told not to.

# %% graded="recompute_blocks"
from lessons.recompute import graded

graded.recompute_blocks(Recomputes)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 10` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
