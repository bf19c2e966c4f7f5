# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 12: Capstone
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 12` in a terminal for points: it tries your functions on other inputs.
#
# All memory is in bytes, all time in seconds.

# %%
from textwrap import fill

from course_utils.machine.hardware import devices
from course_utils.networks import NETWORKS
from lessons.capstone.plan import Plan, Problem, Refused
from lessons.capstone.search import combinations, table

# %% [markdown] question="plan_bytes" points=3 difficulty=1 minutes=8
# ## 1. What a plan needs
#
# A batch goes through the card in `parts` equal micro-batches, in 16 bits if `half`. What does the card have to hold?
#
# | | |
# |---|---|
# | `context` | the driver's |
# | `fixed` | float32 weights, momentum and one set of gradients, at the peak |
# | `accumulated` | what comes on top at the peak if the gradients of several micro-batches are added up |
# | `per_sample` | the float32 maps of one sample (leave out indices) |
# | `copies` | 16-bit copies of the weights, in mixed precision |


# %% answer="plan_bytes"
def plan_bytes(batch, parts, half, context, fixed, accumulated, per_sample, copies):
    """Bytes of the card that a plan needs."""
    # BEGIN SOLUTION
    maps = batch / parts * per_sample
    if half:
        maps = maps / 2 + copies
    gradients = accumulated if parts > 1 else 0
    return context + fixed + gradients + maps
    # END SOLUTION


# %% check="plan_bytes"
from lessons.capstone.checks import check

check("plan_bytes")

# %% [markdown] hint="plan_bytes"
# **My number is far too large with several parts.** How many samples are in the network at a time? The gradients are added
# up in place. So what is `accumulated` for (lesson 12: fc6), and when is it 0?

# %% [markdown] hint="plan_bytes"
# **It is right in float32 and wrong in 16 bits.** Two things change: one term is halved, one comes on top. The weights
# that are updated stay as they are.

# %% [markdown] hint="plan_bytes"
# **It is off by the same amount everywhere.** Go through the table. Is every row that belongs in the sum there?

# %% graded="plan_bytes"
from lessons.capstone import graded

graded.plan_bytes(plan_bytes)

# %% [markdown] question="update_seconds" points=3 difficulty=2 minutes=8
# ## 2. How long a plan takes
#
# The maps of each micro-batch leave during its forward pass and come back during its backward pass. Copies and
# kernels run beside each other, and a pass is over when both are done. All times but `update` are those of *one*
# micro-batch.
#
# How long is one update, with `parts` micro-batches one after the other, and the optimizer's `update` at the end?


# %% answer="update_seconds"
def update_seconds(parts, forward, backward, copy_out, copy_back, update):
    """Seconds of one update with offload."""
    # BEGIN SOLUTION
    return parts * (max(forward, copy_out) + max(backward, copy_back)) + update
    # END SOLUTION


# %% check="update_seconds"
from lessons.capstone.checks import check

check("update_seconds")

# %% [markdown] hint="update_seconds"
# **My number is too large.** A kernel of 3 s and a copy of 2 s begin together. When are both done?

# %% [markdown] hint="update_seconds"
# **It is right where the copies are short.** Which of the two ends last? Ask it for each pass: a map that is still on
# its way out cannot be fetched back.

# %% graded="update_seconds"
from lessons.capstone import graded

graded.update_seconds(update_seconds)

# %% [markdown] question="unbeaten" points=4 difficulty=2 minutes=12
# ## 3. The plans that nothing beats
#
# `plans` is a dictionary, name → `(bytes, seconds)`. A plan is *beaten* if another one needs at most as many bytes
# and at most as many seconds, and is better in at least one of the two. No two plans are equal in both.
#
# Return the list of the names of those that are not beaten, fastest first.


# %% answer="unbeaten"
def unbeaten(plans):
    """Names of the plans on the Pareto front, fastest first."""
    # BEGIN SOLUTION
    front, least = [], float("inf")
    for name in sorted(plans, key=lambda name: (plans[name][1], plans[name][0])):
        size, _ = plans[name]
        if size < least:
            front.append(name)
            least = size
    return front
    # END SOLUTION


# %% check="unbeaten"
from lessons.capstone.checks import check

check("unbeaten")

# %% [markdown] hint="unbeaten"
# **Too many names.** Draw the points, bytes upwards and seconds to the right. A point is beaten if another lies in the
# corner below and to the left of it, edges included.

# %% [markdown] hint="unbeaten"
# **Too few names.** A plan that is slower and leaner than another is not beaten by it. Being worse in one is allowed.

# %% [markdown] hint="unbeaten"
# **It is right for some tables and wrong for others.** Two plans may take equally long. Go from the fastest to the
# slowest and remember the least memory so far: who adds something new?

# %% graded="unbeaten"
from lessons.capstone import graded

graded.unbeaten(unbeaten)

# %% [markdown] question="least_time" points=2 difficulty=1 minutes=6
# ## 4. The least time
#
# `plans` is a dictionary, name → `(bytes, seconds, same_update)`; the third is False where the plan is not
# training-equivalent. Return the name of the one to take on a card with `room` bytes, or `None` if there is none. No
# two take equally long.


# %% answer="least_time"
def least_time(plans, room):
    """Name of the fastest plan that fits and trains the same network, or None."""
    # BEGIN SOLUTION
    seconds = {
        name: time for name, (size, time, same) in plans.items() if same and size <= room
    }
    return min(seconds, key=seconds.get, default=None)
    # END SOLUTION


# %% check="least_time"
from lessons.capstone.checks import check

check("least_time")

# %% [markdown] hint="least_time"
# **I get a plan that is faster than the right one.** Then something forbids it. What do the first and the third entry
# say?

# %% [markdown] hint="least_time"
# **I get a plan that is leaner than the right one.** Memory that is left over buys nothing. Of those that fit, which
# is the fastest?

# %% graded="least_time"
from lessons.capstone import graded

graded.least_time(least_time)

# %% [markdown] question="your_plan" points=3 difficulty=2 minutes=10
# ## 5. Your network, your card
#
# Choose a problem of your own: a network (a name of `NETWORKS`), a batch, and a card of lesson 02's catalogue whose
# memory the plain step exceeds. Return two things, the `Problem` and a `Plan` for it. The plan
#
# - makes the same update, to the rounding of float32;
# - surely fits: its state is *fits*, not *tight*;
# - takes at most 20 % longer than the plain step on a card that held it.
#
# Not VGG-16 with 256 images on a Titan X, the lesson's first problem. The cell below judges any plan, with the reason;
# change its first lines.

# %% reads="course_utils/machine/devices.csv"
problem = Problem("ResNet-50", 256, "T4")
some = [Plan(256), Plan(256, offload="all"), Plan(256, offload="windowed", segments=4)]
print(", ".join(NETWORKS))
names = [card.name for card in devices()]
for first in range(0, len(names), 8):
    print(", ".join(names[first : first + 8]))
table(problem.evaluate(plan) for plan in some)


# %% answer="your_plan"
def your_plan():
    """A problem whose plain step does not fit, and a plan that does."""
    # BEGIN SOLUTION
    return Problem("VGG-16", 192, "T4"), Plan(192, micro_batch=64)
    # END SOLUTION


# %% check="your_plan"
from lessons.capstone.checks import check

check("your_plan")

# %% [markdown] hint="your_plan"
# **It does not fit.** Which term is too large: maps that wait, or those of the operator that runs? Only two techniques
# lower the second.

# %% [markdown] hint="your_plan"
# **It is tight.** The state says what stands in the way: PyTorch's allocator, or scratch memory (*workspace*). Which
# technique makes both smaller?

# %% [markdown] hint="your_plan"
# **It fits and is slow.** `problem.evaluate(plan)` says how much time is lost, and `waiting_seconds` how much of it is
# waiting for copies. What else is there to save memory with? For a network with batch norm, lesson 12 took
# `problem.chain.cheapest(batch, bytes, problem.device)`.

# %% graded="your_plan"
from lessons.capstone import graded

graded.your_plan(your_plan)

# %% [markdown] question="find_plan" points=5 difficulty=3 minutes=16
# ## 6. A plan for any problem
#
# Write a search. `problem` has a network, a `batch`, a card and a link you do not know. Return a plan that makes the same
# update, to 16 bits or better, and takes at most 2 % longer than the fastest *feasible* one of all these. Feasible is what
# fits or is *tight*, as it takes long to replay the allocator for each:
#
# - micro-batches: every divisor of the batch;
# - precision: float32, float16;
# - offload: none, conv, all, windowed (with the default window);
# - segments: 1, 2, 4, of equal length.
#
# Return `None` if none of them is feasible. You may use
#
# - `problem.evaluate(plan)`, an `Evaluation`. It has `plan`, the plan itself; `feasible`, True or False; and `seconds`, how
#   long an update takes. A plan that is not allowed raises `Refused`.
# - `combinations(problem, micro_batches, precisions, offloads, segments)`, a list of Evaluations: one for each combination
#   of what is in the four lists, without those refused.
#
# A refusal looks like this:

# %%
resnet = Problem("ResNet-50", 256, "Titan X (Maxwell)", "PCIe 3.0 x16")
try:
    resnet.evaluate(Plan(256, micro_batch=64))
except Refused as refused:
    print(fill(str(refused), 90))


# %% answer="find_plan"
def find_plan(problem):
    """The fastest feasible plan, or None."""
    # BEGIN SOLUTION
    divisors = [n for n in range(1, problem.batch + 1) if problem.batch % n == 0]
    halves, policies = ("float32", "float16"), ("none", "conv", "all", "windowed")
    found = combinations(problem, divisors, halves, policies, segments=(1, 2, 4))
    fitting = [one for one in found if one.feasible]
    return min(fitting, key=lambda one: one.seconds).plan if fitting else None
    # END SOLUTION


# %% check="find_plan"
from lessons.capstone.checks import check

check("find_plan")

# %% [markdown] hint="find_plan"
# **It crashes with Refused.** That is an answer, not an accident: this network has a layer that looks at the batch.
# Catch it and go on, or let `combinations` do so.

# %% [markdown] hint="find_plan"
# **Another plan is faster.** Do you try every combination, also those of three techniques? And of the feasible ones, do
# you take the one with the fewest `seconds`?

# %% [markdown] hint="find_plan"
# **It returns a plan where none is feasible.** An `Evaluation` says `feasible`. What is left if it is False for all?

# %% graded="find_plan"
from lessons.capstone import graded

graded.find_plan(find_plan)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 12` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
