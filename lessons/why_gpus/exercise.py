# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 01: Why GPUs help, and when they don't
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 01` in a terminal for points: it tries your functions on other inputs.
#
# Rates are decimal: 1 GB/s is 10⁹ bytes a second, 1 TFLOP/s is 10¹² operations a second.

# %%
import inspect

import torch

from lessons.why_gpus.judge import OneByOne

# %% [markdown] question="operator_seconds" points=3 difficulty=1 minutes=6
# ## 1. The time of one operator
#
# An operator is launched, and then does `flops` operations while it moves `traffic` bytes. The device does
# `flops_per_s` operations a second and moves `bytes_per_s` bytes a second, both at once. `launch` is in seconds.
#
# How many seconds does the operator take in the model of the lesson?


# %% answer="operator_seconds"
def operator_seconds(flops, traffic, flops_per_s, bytes_per_s, launch):
    """Seconds of one operator: its launch, and its roofline."""
    # BEGIN SOLUTION
    arithmetic = flops / flops_per_s
    bandwidth = traffic / bytes_per_s
    return launch + max(arithmetic, bandwidth)
    # END SOLUTION


# %% check="operator_seconds"
from lessons.why_gpus.checks import check

check("operator_seconds")

# %% [markdown] hint="operator_seconds"
# **My time is a little too long.** A kernel reads its next numbers while it multiplies the last ones. Which of the
# two does it wait for?

# %% [markdown] hint="operator_seconds"
# **It is right for large operators and wrong for tiny ones.** What does an operator cost if it does nothing at all?

# %% graded="operator_seconds"
from lessons.why_gpus import graded

graded.operator_seconds(operator_seconds)

# %% [markdown] question="crossover_batch" points=4 difficulty=2 minutes=12
# ## 2. From which batch on does the GPU win?
#
# A step takes a fixed time (overhead, and work that does not grow with the batch) and a time for each sample: `fixed +
# per_sample * batch`, in whole nanoseconds, on the CPU and on the GPU.
#
# Return the smallest batch, 1 or more, at which the GPU takes **less** time than the CPU; 0 if there is none.
#
# Three things can happen, not one: the GPU gets ahead at a later batch, it is ahead at batch 1 (and may be overtaken),
# or it never gets ahead.


# %% answer="crossover_batch"
def crossover_batch(cpu_fixed, cpu_per_sample, gpu_fixed, gpu_per_sample):
    """The smallest batch at which the GPU takes less time; 0 if there is none."""
    # BEGIN SOLUTION
    if gpu_fixed + gpu_per_sample < cpu_fixed + cpu_per_sample:
        return 1
    head_start, gain = gpu_fixed - cpu_fixed, cpu_per_sample - gpu_per_sample
    return head_start // gain + 1 if gain > 0 else 0
    # END SOLUTION


# %% check="crossover_batch"
from lessons.why_gpus.checks import check

check("crossover_batch")

# %% [markdown] hint="crossover_batch"
# **It crashes with ZeroDivisionError.** If a sample takes both devices as long, no batch changes who is ahead. Who is
# ahead at batch 1?

# %% [markdown] hint="crossover_batch"
# **It is off by one.** Put your batch back in. Does the GPU take less time there? And one batch earlier? At a tie it
# does not yet win.

# %% [markdown] hint="crossover_batch"
# **I get a negative batch.** Whoever starts behind and is slower never catches up. Whoever starts ahead has no need
# to. Which of the two is it?

# %% graded="crossover_batch"
from lessons.why_gpus import graded

graded.crossover_batch(crossover_batch)

# %% [markdown] question="speed_up" points=2 difficulty=2 minutes=7
# ## 3. The speed-up, by the clock and with transfers
#
# A step takes `cpu_seconds` on the CPU. On the GPU, with its data there and the queue empty, somebody read
# `time.perf_counter()` three times, in seconds: `began` before the step, `returned` when its last line had returned,
# `synchronized` after a `torch.cuda.synchronize()` that followed.
#
# From now on each step first brings its batch of `batch` samples, each of `sample_bytes` bytes, over a link of
# `link_gb_s` GB/s, in plain copies: host and GPU wait until it is there, so nothing overlaps. How many times as fast as the CPU is the GPU then? (Below 1 it is slower.)


# %% answer="speed_up"
def speed_up(cpu_seconds, began, returned, synchronized, batch, sample_bytes, link_gb_s):
    """The CPU's time over the GPU's, transfer included."""
    # BEGIN SOLUTION
    gpu_seconds = synchronized - began
    transfer = batch * sample_bytes / (link_gb_s * 10**9)
    return cpu_seconds / (gpu_seconds + transfer)
    # END SOLUTION


# %% check="speed_up"
from lessons.why_gpus.checks import check

check("speed_up")

# %% [markdown] hint="speed_up"
# **The check says that I stopped the clock too early.** When the last line has returned, the host is done. Is the card?

# %% [markdown] hint="speed_up"
# **My number is hardly different from the one without a transfer.** How many bytes are one batch? How many seconds is
# that at 10 GB/s? Write both down for 256 images of 600 kB.

# %% [markdown] hint="speed_up"
# **My number is upside down, or negative.** A speed-up is a ratio of two times. Which seconds belong to which device?
# Add first, divide last.

# %% graded="speed_up"
from lessons.why_gpus import graded

graded.speed_up(speed_up)

# %% [markdown] question="helps_most" points=3 difficulty=2 minutes=9
# ## 4. What would make it faster?
#
# An operator by itself, as in question 1: a launch, then arithmetic and traffic at the same time. You may halve one of
# three: the seconds of its `launch`, its operations (`flops`), or its bytes (`traffic`).
#
# Which saves the most time? Return `"launch"`, `"flops"` or `"traffic"`. There is never a tie.


# %% answer="helps_most"
def helps_most(flops, traffic, flops_per_s, bytes_per_s, launch):
    """What to halve: "launch", "flops" or "traffic"."""
    # BEGIN SOLUTION
    arithmetic = flops / flops_per_s
    bandwidth = traffic / bytes_per_s
    work = max(arithmetic, bandwidth)
    saved = {
        "launch": launch / 2,
        "flops": work - max(arithmetic / 2, bandwidth),
        "traffic": work - max(arithmetic, bandwidth / 2),
    }
    return max(saved, key=saved.get)
    # END SOLUTION


# %% check="helps_most"
from lessons.why_gpus.checks import check

check("helps_most")

# %% [markdown] hint="helps_most"
# **I named the longest of the three, and it is wrong for some.** Arithmetic takes 100 µs, traffic 90. How long does the
# operator work once the arithmetic takes 50?

# %% [markdown] hint="helps_most"
# **It is right for large operators and wrong for small ones.** Under the roofline there are two of the three. Which one
# is missing?

# %% [markdown] hint="helps_most"
# **I do not know how to begin.** Question 1 gives the operator's time. Work it out three more times, each with one of
# the three halved. Which is the shortest?

# %% graded="helps_most"
from lessons.why_gpus import graded

graded.helps_most(helps_most)

# %% [markdown] question="fewer_launches" points=4 difficulty=3 minutes=12
# ## 5. A network that launches too much
#
# The network below scores hands of cards. It was written for one hand, and then somebody put a loop around it. Each
# hand launches every operator again: with a batch of 40, forward and backward launch over 600 operators.
#
# Rewrite `forward` so that output and gradients are the same, and forward, loss and backward together launch **at most
# 32 operators, whatever the batch**. They are counted as the trace counts them: a view, such as `.T` or `[:, None]`,
# launches nothing. The check says how many there are.

# %%
print(inspect.getsource(OneByOne))


# %% answer="fewer_launches"
class AllAtOnce(OneByOne):
    """The same network, the whole batch at once."""

    def forward(self, hands):
        # BEGIN SOLUTION
        each_centred = hands - hands.mean(dim=1, keepdim=True)
        return self.fc2(torch.relu(self.fc1(each_centred)))
        # END SOLUTION


# %% check="fewer_launches"
from lessons.why_gpus.checks import check

check("fewer_launches")

# %% [markdown] hint="fewer_launches"
# **The output is not the original's.** Of what is the mean taken in the loop, and of what in yours? Compare the first
# hand's scores: do they change when another hand of the batch does?

# %% [markdown] hint="fewer_launches"
# **There is an error about shapes.** `hands.mean(dim=1)` has one number a hand, shape (N,). To subtract it from each
# of the hand's 20 values you need shape (N, 1): `keepdim=True`.

# %% [markdown] hint="fewer_launches"
# **No loop is left and there are still too many operators.** A list in brackets, `map` and `torch.stack` are loops
# too. `nn.Linear` takes a whole batch as it is.

# %% graded="fewer_launches"
from lessons.why_gpus import graded

graded.fewer_launches(AllAtOnce)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 01` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
