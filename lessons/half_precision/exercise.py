# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 08: Half precision
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 08` in a terminal for points: it tries your functions on other inputs.
#
# A float32 value takes 4 bytes, a float16 or bfloat16 value takes 2.

# %%
import inspect
import math

import torch

from lessons.half_precision.judge import half_loss, loses_small

# %% [markdown] question="recipe_bytes" points=2 difficulty=1 minutes=5
# ## 1. What a recipe keeps for every parameter
#
# Three ways to train, and what each keeps for every parameter:
#
# - `"float32"`: weight, gradient and optimizer state in float32;
# - `"mixed"`: the same, and beside each float32 *master weight* a half copy that the layers compute with and that stays
#   (Megatron-LM keeps bfloat16 weights like that; autocast, of the lesson, drops its copies);
# - `"pure"`: weight, gradient and state in halves, and nothing else.
#
# Return the bytes for a network of `parameters`. `optimizer` is `"sgd"` (no state), `"momentum"` (one value a
# parameter) or `"adam"` (two).


# %% answer="recipe_bytes"
def recipe_bytes(parameters, optimizer, recipe):
    """Bytes of weights, copies, gradients and optimizer state."""
    # BEGIN SOLUTION
    value = 2 if recipe == "pure" else 4
    copy = 2 if recipe == "mixed" else 0
    states = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    return parameters * (value * (1 + 1 + states) + copy)
    # END SOLUTION


# %% check="recipe_bytes"
from lessons.half_precision.checks import check

check("recipe_bytes")

# %% [markdown] hint="recipe_bytes"
# **My mixed recipe takes as much as float32, or less.** It keeps everything that float32 keeps. What does it add?

# %% [markdown] hint="recipe_bytes"
# **Only the pure recipe is wrong.** Nothing in it is float32, the optimizer's state included.

# %% graded="recipe_bytes"
from lessons.half_precision import graded

graded.recipe_bytes(recipe_bytes)

# %% [markdown] question="share_left" points=2 difficulty=1 minutes=6
# ## 2. What is left of the saved maps
#
# A network keeps `map_values` values of its convolutions for the backward pass, and `pool_values` values of its
# pools, each with an int64 index beside it. Under autocast the values become halves, numbers of 2 bytes.
#
# Return the bytes kept in half precision as a share of the bytes kept in float32: a number from 0 to 1.


# %% answer="share_left"
def share_left(map_values, pool_values):
    """Bytes of the saved maps and indices in half precision, as a share of float32's."""
    # BEGIN SOLUTION
    values, indices = map_values + pool_values, 8 * pool_values
    return (2 * values + indices) / (4 * values + indices)
    # END SOLUTION


# %% check="share_left"
from lessons.half_precision.checks import check

check("share_left")

# %% [markdown] hint="share_left"
# **I get 0.5.** Write down the bytes of one pooled value with its index, in float32 and in half precision. Is the
# second number half of the first?

# %% [markdown] hint="share_left"
# **My number is above 1, or it falls where it should rise.** Left, not saved; half over float32.

# %% graded="share_left"
from lessons.half_precision import graded

graded.share_left(share_left)

# %% [markdown] question="smallest_update" points=3 difficulty=2 minutes=10
# ## 3. Half a spacing
#
# Between two neighbouring powers of two, 2^e and 2^(e+1), a format with `fraction_bits` bits has evenly spaced
# numbers, 2^(e − `fraction_bits`) apart. Below 2^`lowest_exponent` the spacing does not shrink any more. (float16:
# 10 and −14; bfloat16: 7 and −126.)
#
# A result between two numbers is rounded to the nearer one. So an update of less than half a spacing leaves the
# weight where it was. Return this half spacing for a weight, which may be negative or 0. At a power of two take the
# spacing above it in size.


# %% answer="smallest_update"
def smallest_update(weight, fraction_bits, lowest_exponent):
    """Half the spacing of a format at a weight."""
    # BEGIN SOLUTION
    exponent = lowest_exponent
    if weight != 0:
        exponent = max(exponent, math.floor(math.log2(abs(weight))))
    return 2.0 ** (exponent - fraction_bits) / 2
    # END SOLUTION


# %% check="smallest_update"
from lessons.half_precision.checks import check

check("smallest_update")

# %% [markdown] hint="smallest_update"
# **It is right for 1 and wrong for 1.5 or 0.75.** Between which two powers of two does 1.5 lie? The lower one
# gives the exponent. `math.log2` and rounding down find it.

# %% [markdown] hint="smallest_update"
# **It crashes, or is wrong for 0, for −3 or for very small weights.** Zero has no logarithm and no exponent of
# its own: it takes the lowest. A sign changes nothing.

# %% [markdown] hint="smallest_update"
# **Everything is wrong by a factor of 2.** Is it the spacing that is asked for, or the half of it?

# %% graded="smallest_update"
from lessons.half_precision import graded

graded.smallest_update(smallest_update)

# %% [markdown] question="loss_scale" points=3 difficulty=2 minutes=10
# ## 4. A loss scale for these gradients
#
# float16's smallest number above 0 is 2⁻²⁴, its largest 65504. Between 0 and 2⁻²⁴ it rounds to the nearer of the two;
# in the middle, at 2⁻²⁵, to 0. `gradients` is a list of numbers, at least one of them not 0. Return the smallest scale
# out of 1, 2, 4, 8, … for which
#
# - at least a share of `share` of the gradients *that are not 0* are not 0 in float16 after scaling: more than 2⁻²⁵ in
#   size, and
# - none is above 65504 in size.
#
# If no scale does both, the answer is 0. Scales up to 2³⁹ are enough.


# %% answer="loss_scale"
def loss_scale(gradients, share):
    """The smallest power of two that keeps the share in float16 without overflow, or 0."""
    # BEGIN SOLUTION
    sizes = [abs(gradient) for gradient in gradients if gradient != 0]
    for power in range(40):
        scaled = [size * 2**power for size in sizes]
        if max(scaled) > 65504:
            return 0
        if sum(size > 2**-25 for size in scaled) >= share * len(scaled):
            return 2**power
    return 0
    # END SOLUTION


# %% check="loss_scale"
from lessons.half_precision.checks import check

check("loss_scale")

# %% [markdown] hint="loss_scale"
# **My scale is too large.** Do you count the zeros? They stay 0 at any scale. Is every gradient asked for, or a
# share of them?

# %% [markdown] hint="loss_scale"
# **My scale is too small, or not a power of two.** A number may be smaller than 2^−14 and still not be 0. Try 1,
# 2, 4, … in turn and stop at the first that will do.

# %% [markdown] hint="loss_scale"
# **I return a number and the check wants 0.** Multiply the largest gradient by your scale.

# %% graded="loss_scale"
from lessons.half_precision import graded

graded.loss_scale(loss_scale)

# %% [markdown] question="next_scales" points=3 difficulty=2 minutes=8
# ## 5. The rule that finds the scale
#
# `torch.amp.GradScaler` needs no list of gradients. It begins with a scale and watches:
#
# - a step whose scaled gradients overflow is skipped, and the next step uses half the scale;
# - after `interval` good steps in a row the next step uses twice the scale, and a new row begins;
# - an overflow begins the row anew, too.
#
# `overflows` says of each step whether it overflows. Return the list of the scales that the steps use, one for each;
# the first is `scale`.


# %% answer="next_scales"
def next_scales(overflows, scale, interval):
    """The loss scale of every step under the dynamic rule."""
    # BEGIN SOLUTION
    used, good = [], 0
    for overflow in overflows:
        used.append(scale)
        if overflow:
            scale, good = scale / 2, 0
        else:
            good += 1
            if good == interval:
                scale, good = scale * 2, 0
    return used
    # END SOLUTION


# %% check="next_scales"
from lessons.half_precision.checks import check

check("next_scales")

# %% [markdown] hint="next_scales"
# **My first number is wrong.** Note the scale of a step before you change it for the next one.

# %% [markdown] hint="next_scales"
# **It is right at first, then grows too early or too often.** Which two events set the count of good steps back
# to 0?

# %% graded="next_scales"
from lessons.half_precision import graded

graded.next_scales(next_scales)

# %% [markdown] question="keep_small" points=5 difficulty=3 minutes=15
# ## 6. A loop that loses its small gradients
#
# The loop below trains a small network on the digits. Its loss is a mean over 512 images times a weight of about 1/1,000,
# as if it were one small term of a larger loss, so many values of its gradient maps are too small for float16. Some
# batches are outliers, of a large weight (some of them with black images) or of very bright images: their gradients
# overflow when they are scaled. One is so bright that float16 does not even hold its pixels.
#
# Repair the loop so that the weights end where those of a float32 loop would that leaves out the same batches: scale the
# loss by `scale`; *unscale*, which is to divide the gradients by it; skip a batch whose gradients are not all finite;
# clip; step. The network goes on in float16. Return how many batches were skipped. `torch.amp.GradScaler` is allowed and
# not needed.

# %%
print(inspect.getsource(half_loss))
print(inspect.getsource(loses_small))


# %% answer="keep_small"
def keep_small(model, optimizer, batches, scale, max_norm):
    """Train on each batch whose scaled gradients are finite; returns how many were not."""
    # BEGIN SOLUTION
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        loss = half_loss(model, images, labels, weight)
        (loss * scale).backward()
        for parameter in model.parameters():
            parameter.grad /= scale
        if not all(torch.isfinite(parameter.grad).all() for parameter in model.parameters()):
            skipped += 1
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped
    # END SOLUTION


# %% check="keep_small"
from lessons.half_precision.checks import check

check("keep_small")

# %% [markdown] hint="keep_small"
# **The check says that nothing is scaled.** The scale has to be there before the backward pass: a gradient that has
# become 0 cannot be brought back.

# %% [markdown] hint="keep_small"
# **My steps are far too long or far too short.** After the backward pass print the norm of the gradients. Which of
# the lines below that one expect the true size?

# %% [markdown] hint="keep_small"
# **My weights become nan.** `torch.isfinite(parameter.grad).all()` says whether a gradient is a number throughout.
# Ask it before you step, and leave the batch out if one is not.

# %% graded="keep_small"
from lessons.half_precision import graded

graded.keep_small(keep_small)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 08` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
