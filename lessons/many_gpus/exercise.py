# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 11: Many GPUs
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 11` in a terminal for points: it tries your functions on other inputs.
#
# All sizes are in bytes, all times in seconds. No second card, or process, is needed.

# %%
from lessons.many_gpus import checks

# %% [markdown] question="ring_bytes" points=2 difficulty=1 minutes=5
# ## 1. What a card sends
#
# A network of `parameters` float32 weights is trained by data parallelism on `cards` cards. Their gradients are
# averaged by a ring all-reduce. Return the bytes that one card sends in a step.


# %% answer="ring_bytes"
def ring_bytes(parameters, cards):
    """Bytes one card sends in a ring all-reduce of all gradients."""
    # BEGIN SOLUTION
    return 2 * (cards - 1) / cards * 4 * parameters
    # END SOLUTION


# %% check="ring_bytes"
from lessons.many_gpus.checks import check

check("ring_bytes")

# %% [markdown] hint="ring_bytes"
# **My number is half of it.** After *p* − 1 steps each card has one finished chunk. Who has the others?

# %% [markdown] hint="ring_bytes"
# **It grows with the cards.** What travels in one step is a chunk, not a gradient. How large is a chunk?

# %% graded="ring_bytes"
from lessons.many_gpus import graded

graded.ring_bytes(ring_bytes)

# %% [markdown] question="step_seconds" points=3 difficulty=2 minutes=10
# ## 2. How long a step takes
#
# `buckets` is a list of pairs `(ready, size)`: at `ready` seconds into the step a bucket of `size` bytes of gradients
# is complete. They are in order. The link sends one bucket at a time, in this order, each as soon as it is ready and
# the link is free. A card sends 2 (*p* − 1)/*p* times the size of each, at `bytes_per_s`.
#
# The backward pass ends at `backward_seconds`. The update takes `update_seconds` and needs all averaged gradients.
# Return the seconds of the whole step.


# %% answer="step_seconds"
def step_seconds(buckets, backward_seconds, update_seconds, cards, bytes_per_s):
    """Seconds of a data-parallel step whose buckets travel beside the backward pass."""
    # BEGIN SOLUTION
    free = 0
    for ready, size in buckets:
        free = max(free, ready) + 2 * (cards - 1) / cards * size / bytes_per_s
    return max(free, backward_seconds) + update_seconds
    # END SOLUTION


# %% check="step_seconds"
from lessons.many_gpus.checks import check

check("step_seconds")

# %% [markdown] hint="step_seconds"
# **My time is too long.** Does the link wait for the end of the backward pass? Draw two lanes, as in the lesson.

# %% [markdown] hint="step_seconds"
# **My time is too short.** Keep one number: when the link is free again. A bucket begins at that moment, or when it is
# ready, whichever is later.

# %% graded="step_seconds"
from lessons.many_gpus import graded

graded.step_seconds(step_seconds)

# %% [markdown] question="cheaper_split" points=3 difficulty=2 minutes=9
# ## 3. By data or by units?
#
# `layers` is a list of pairs `(weights, inputs)`: the numbers a layer has as weights, and the numbers it reads for one
# sample. There are `cards` cards (two or more), and each brings `batch` samples.
#
# By data, a card sends 2 (*p* − 1)/*p* times the weights' gradient. By units, the inputs of all samples are gathered,
# and their gradient scattered: together 2 (*p* − 1) times the inputs of a card's samples.
#
# Return a list with `"data"` or `"units"` for each layer, whichever sends less; `"data"` where both send the same.


# %% answer="cheaper_split"
def cheaper_split(layers, batch, cards):
    """For each layer "data" or "units", whichever sends less."""
    # BEGIN SOLUTION
    chosen = []
    for weights, inputs in layers:
        by_data = 2 * (cards - 1) / cards * weights
        by_units = 2 * (cards - 1) * batch * inputs
        chosen.append("units" if by_units < by_data else "data")
    return chosen
    # END SOLUTION


# %% check="cheaper_split"
from lessons.many_gpus.checks import check

check("cheaper_split")

# %% [markdown] hint="cheaper_split"
# **It is right for AlexNet and wrong elsewhere.** Write both numbers down for 4,096 inputs, 1,000 units, and 300
# samples on each of 4 cards.

# %% [markdown] hint="cheaper_split"
# **All my layers are split alike.** Decide inside the loop. A convolution has few weights and reads large maps; a
# dense layer is the opposite.

# %% graded="cheaper_split"
from lessons.many_gpus import graded

graded.cheaper_split(cheaper_split)

# %% [markdown] question="card_bytes" points=3 difficulty=1 minutes=8
# ## 4. What a card keeps under ZeRO
#
# Half precision with Adam keeps for every parameter 2 bytes of weight, 2 bytes of gradient, and 12 bytes of optimizer
# state: two averages and the float32 weight that is updated.
#
# ZeRO's stage 1 shares the optimizer state out over the cards, stage 2 the gradients as well, stage 3 the weights as
# well; in stage 0 every card keeps all. Return the bytes on one card, feature maps aside.


# %% answer="card_bytes"
def card_bytes(parameters, cards, stage):
    """Bytes of weights, gradients and optimizer state on each card."""
    # BEGIN SOLUTION
    state, gradient, weight = 12, 2, 2
    if stage >= 1:
        state /= cards
    if stage >= 2:
        gradient /= cards
    if stage >= 3:
        weight /= cards
    return parameters * (state + gradient + weight)
    # END SOLUTION


# %% check="card_bytes"
from lessons.many_gpus.checks import check

check("card_bytes")

# %% [markdown] hint="card_bytes"
# **Stage 0 or stage 3 is right and the others are not.** Which of the three parts goes first? The largest.

# %% [markdown] hint="card_bytes"
# **Everything is too small by a constant.** Add up what one parameter needs: it is 16 bytes.

# %% graded="card_bytes"
from lessons.many_gpus import graded

graded.card_bytes(card_bytes)

# %% [markdown] question="shard_factors" points=2 difficulty=2 minutes=8
# ## 5. Parts of different sizes
#
# The last batch of a data set leaves some cards with fewer samples: card *i* has `sizes[i]`. Each card computes its
# loss over its own samples, as their mean (`reduction` is `"mean"`) or as their sum (`"sum"`), and calls `backward()`.
# DDP then adds the gradients of all cards and divides by the *number of cards*.
#
# Return the list of factors by which each card must multiply its loss, so that the result is the gradient of the mean
# over all samples.


# %% answer="shard_factors"
def shard_factors(sizes, reduction):
    """Factors for the cards' losses that make DDP's average the mean over all samples."""
    # BEGIN SOLUTION
    cards, samples = len(sizes), sum(sizes)
    if reduction == "mean":
        return [cards * size / samples for size in sizes]
    return [cards / samples for size in sizes]
    # END SOLUTION


# %% check="shard_factors"
from lessons.many_gpus.checks import check

check("shard_factors")

# %% [markdown] hint="shard_factors"
# **My factors are too small by the number of cards.** Two cards with one sample each, losses 2 and 4. DDP makes 3 of
# them without your help.

# %% [markdown] hint="shard_factors"
# **One of the two reductions is wrong.** A mean has been divided by the card's own size. What must it be multiplied by
# to become a sum again?

# %% graded="shard_factors"
from lessons.many_gpus import graded

graded.shard_factors(shard_factors)

# %% [markdown] question="ring_average" points=5 difficulty=3 minutes=16
# ## 6. An all-reduce of your own
#
# The program below runs on every card at once. It knows which card it is (`rank`, from 0), how many there are, and
# what this card holds (`values`, a vector as long on every card). Cards share nothing but messages:
#
# - `send(to, part)` puts a tensor on its way to card `to`, and does not wait;
# - `receive(source)` waits for the next tensor from card `source`, and returns it.
#
# Every card must return **the mean of all cards' vectors**, and no card may send more than a ring needs: **2 (*p* −
# 1) chunks** of numbers, sums of what the cards hold, unpacked. `values.tensor_split(cards)` cuts a vector into
# `cards` chunks, even if they cannot be equal. On one card there is nothing to send.

# %% [markdown]
# This program is correct, and it sends far too much: everything to everybody.


# %%
def everything_to_everybody(rank, cards, values, send, receive):
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, values)
    total = values.clone()
    for card in others:
        total += receive(card)
    return total / cards


checks.ring_average(everything_to_everybody)


# %% answer="ring_average"
def ring_average(rank, cards, values, send, receive):
    """The mean of all cards' values, on every card, with at most 2 (p - 1) chunks sent."""
    # BEGIN SOLUTION
    chunks = list(values.tensor_split(cards))
    right, left = (rank + 1) % cards, (rank - 1) % cards
    for step in range(cards - 1):  # add up: what arrives is summed over step + 1 cards
        send(right, chunks[(rank - step) % cards])
        chunks[(rank - step - 1) % cards] += receive(left)
    for step in range(cards - 1):  # pass on: what arrives is finished
        send(right, chunks[(rank - step + 1) % cards])
        chunks[(rank - step) % cards].copy_(receive(left))
    return values / cards
    # END SOLUTION


# %% check="ring_average"
from lessons.many_gpus.checks import check

check("ring_average")

# %% [markdown] hint="ring_average"
# **I do not know which chunk to send.** In the first half card *c* sends chunk *c* − *step*, and adds what arrives to
# chunk *c* − *step* − 1. Follow the frames in the lesson's figure. Indices go round: `% cards`.

# %% [markdown] hint="ring_average"
# **The check says that a card waits in vain.** Every card must send before it receives. If all wait first, nobody
# sends.

# %% [markdown] hint="ring_average"
# **The mean is right only in one chunk.** The second half begins there: card *c* now has a finished chunk *c* + 1,
# and sends it on. What arrives replaces what is there.

# %% graded="ring_average"
from lessons.many_gpus import graded

graded.ring_average(ring_average)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 11` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
