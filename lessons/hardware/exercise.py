# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 02: Which hardware, or none
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 02` in a terminal for points: it tries your functions on other inputs.
#
# A float32 value takes 4 bytes. 1 MiB is 1024 · 1024 bytes, 1 GiB is 1024 MiB.

# %%
import inspect

import pandas as pd
import torch

from lessons.hardware import checks
from lessons.hardware.judge import Pretrained

# %% [markdown] question="largest_parameters" points=3 difficulty=1 minutes=7
# ## 1. The rule of 2014, corrected
#
# The rule of 2014: take the card's memory, subtract a buffer, divide by 4 bytes and by 2 for momentum. It left
# something out, and it covers one optimizer only.
#
# A card has `card_mib` MiB, of which `buffer_mib` stay free. Return the largest number of float32 parameters that can
# be trained in the rest, feature maps aside. `optimizer` is `"sgd"` (no state), `"momentum"` or `"adam"`. Count the
# worst moment of the step: during the update PyTorch's Adam makes one more value for each parameter, the root of the
# second average. Return a whole number, or 0 if the buffer is larger than the card.


# %% answer="largest_parameters"
def largest_parameters(card_mib, buffer_mib, optimizer):
    """The largest number of float32 parameters whose training fits, feature maps aside."""
    # BEGIN SOLUTION
    # weight and gradient, and what the optimizer keeps or makes
    values = {"sgd": 2, "momentum": 3, "adam": 5}[optimizer]
    room = max(0, card_mib - buffer_mib) * 1024 * 1024
    return room // (4 * values)
    # END SOLUTION


# %% check="largest_parameters"
from lessons.hardware.checks import check

check("largest_parameters")

# %% [markdown] hint="largest_parameters"
# **I get 752,877,568 for a card of 6144 MiB, and the check wants less.** Write the update out: `v = 0.9 * v + g`, `w
# = w - lr * v`. Three of the letters in these two lines stand for one value per parameter. The rule of 2014 counted
# two.

# %% [markdown] hint="largest_parameters"
# **It is right for momentum and wrong for Adam.** Adam divides a running average of the gradient by the root of a
# running average of its square. Both are kept. Where is the root kept during the division?

# %% [markdown] hint="largest_parameters"
# **It is a little too large, or it has decimals.** `//` divides and rounds down. Check also that a card smaller than
# its buffer gives 0.

# %% graded="largest_parameters"
from lessons.hardware import graded

graded.largest_parameters(largest_parameters)

# %% [markdown] question="cards_that_hold" points=4 difficulty=2 minutes=10
# ## 2. A shopping list
#
# A training step needs `needed_gib` GiB of one GPU, context and gaps included. Which cards hold it? Return their
# **names, the cheapest first**.
#
# `cards` is a list of dictionaries with the keys below. `memory_gib` is the memory of the whole card, here as it
# is sold (programs see less); a card with two `dies` splits it between two GPUs, and a program sees one of them.
# `launch_usd` is `None` where no price is confirmed: leave such cards out. If `bfloat16` is true, only cards that
# compute in it will do. Cards of one price stay in the order of `cards`.

# %% reads="course_utils/machine/devices.csv"
pd.DataFrame(checks.catalogue(), dtype=object)


# %% answer="cards_that_hold"
def cards_that_hold(cards, needed_gib, bfloat16):
    """Names of the cards that hold a step of so many GiB, cheapest first."""
    # BEGIN SOLUTION
    good = []
    for card in cards:
        of_one_die = card["memory_gib"] / card["dies"]
        if of_one_die < needed_gib or card["launch_usd"] is None:
            continue
        if bfloat16 and not card["bfloat16"]:
            continue
        good.append(card)
    return [card["name"] for card in sorted(good, key=lambda card: card["launch_usd"])]
    # END SOLUTION


# %% check="cards_that_hold"
from lessons.hardware.checks import check

check("cards_that_hold")

# %% [markdown] hint="cards_that_hold"
# **It crashes with TypeError: '<' not supported between 'NoneType' and 'int'.** Sorting by price meets a card without
# one. Such cards are to be left out; take them out before you sort.

# %% [markdown] hint="cards_that_hold"
# **My list has a card that the check does not want.** Print its row. How many dies does it have? Does it compute in
# bfloat16, where that is required?

# %% [markdown] hint="cards_that_hold"
# **The right cards in the wrong order.** `sorted(good, key=lambda card: card["launch_usd"])` sorts dictionaries by one
# of their values.

# %% graded="cards_that_hold"
from lessons.hardware import graded

graded.cards_that_hold(cards_that_hold)

# %% [markdown] question="break_even_weeks" points=2 difficulty=1 minutes=6
# ## 3. Rent or buy?
#
# A card costs `price` dollars; when you sell it, the share `back` of that comes back (0.4 is 40 %). It draws electricity
# for `power` dollars an hour. The same card can be rented for `rent` dollars an hour. You use it `hours` hours a week,
# above 0.
#
# Return after how many weeks both have cost the same, not rounded; from then on buying is cheaper. Return 0 if that
# never comes.


# %% answer="break_even_weeks"
def break_even_weeks(price, back, power, rent, hours):
    """Weeks after which a bought card has cost no more than a rented one."""
    # BEGIN SOLUTION
    lost = price * (1 - back)
    saved = hours * (rent - power)  # in a week
    if saved <= 0:
        return 0
    return lost / saved
    # END SOLUTION


# %% check="break_even_weeks"
from lessons.hardware.checks import check

check("break_even_weeks")

# %% [markdown] hint="break_even_weeks"
# **I do not know where to begin.** Write down what a week of renting costs, and what a week with your own card costs. How
# much does the owner save in a week? How many such weeks pay for what the card loses?

# %% [markdown] hint="break_even_weeks"
# **It crashes with ZeroDivisionError, or my number is negative.** What does the owner save if an hour of electricity
# costs as much as an hour of rent, or more?

# %% graded="break_even_weeks"
from lessons.hardware import graded

graded.break_even_weeks(break_even_weeks)

# %% [markdown] question="frozen_step_bytes" points=4 difficulty=3 minutes=14
# ## 4. A step with frozen layers
#
# Some layers of a network are frozen. How many bytes does a training step need, in float32, by this accounting?
#
# - Every parameter is on the card, frozen or not.
# - A trained layer also has a gradient for each of its parameters, and the optimizer's state (for Adam its two averages;
#   what its update makes for a moment is not counted here).
# - The batch of inputs is on the card.
# - All layers are convolutions, so every layer **from the first trained one up** keeps its input, frozen or not. The
#   input of the first layer of all is the batch itself, which is counted already. Nothing below the first trained layer
#   is kept, and the output of the last layer does not count.
#
# `layers` lists the layers from the input up. Each is a triple: how many parameters it has, how many values its
# output has for one sample, and whether it is trained (at least one is). `input_values` is the number of values in
# one input; `optimizer` is `"sgd"`, `"momentum"` or `"adam"`.


# %% answer="frozen_step_bytes"
def frozen_step_bytes(layers, input_values, batch, optimizer):
    """Bytes of a training step in which some layers are frozen."""
    # BEGIN SOLUTION
    states = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    values = batch * input_values
    gradient_passes = False
    for i, (parameters, _, trained) in enumerate(layers):
        gradient_passes = gradient_passes or trained
        values += parameters
        if trained:
            values += (1 + states) * parameters
        if gradient_passes and i > 0:
            values += batch * layers[i - 1][1]  # its input is what the layer before puts out
    return 4 * values
    # END SOLUTION


# %% check="frozen_step_bytes"
from lessons.hardware.checks import check

check("frozen_step_bytes")

# %% [markdown] hint="frozen_step_bytes"
# **It is right if only the last layer is trained, and wrong otherwise.** Walk up from the input with a variable that
# says whether a trained layer has come yet. From there on, in this accounting, every layer keeps its input, even
# a frozen one.

# %% [markdown] hint="frozen_step_bytes"
# **It is right for batch 1 and wrong for the rest.** Ask of each line of the list: does a second sample
# need this again?

# %% [markdown] hint="frozen_step_bytes"
# **The maps are off by one layer.** The triple holds the size of a layer's *output*. The size of its input is in the
# triple before it.

# %% graded="frozen_step_bytes"
from lessons.hardware import graded

graded.frozen_step_bytes(frozen_step_bytes)

# %% [markdown] question="head_only" points=4 difficulty=2 minutes=10
# ## 5. Train the head alone
#
# The network below has a backbone, which stands for one that somebody else has trained on a large data set, and a head
# for your own classes. As it is, all of it learns.
#
# Change it so that the head alone does: the output is the same, the head's gradients are the same, the backbone has
# none, and the peak of a traced training step is **at most half**. Rewrite `forward`; or delete the `forward` below
# and write an `__init__` that freezes what is not to learn.

# %%
print(inspect.getsource(Pretrained))


# %% answer="head_only"
class HeadOnly(Pretrained):
    """The same network; its head alone is trained."""

    def forward(self, images):
        # BEGIN SOLUTION
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)
        # END SOLUTION


# %% check="head_only"
from lessons.hardware.checks import check

check("head_only")

# %% [markdown] hint="head_only"
# **No gradient reaches the backbone any more, and the peak is still high.** When does autograd stop keeping maps?
# `.detach()` cuts when the backbone has run. By then the maps have been kept. Stop autograd before the backbone runs.

# %% [markdown] hint="head_only"
# **The check says that the head cannot learn.** Only part of `forward` may run under `torch.no_grad()`. Which
# lines have to be indented?

# %% [markdown] hint="head_only"
# **It crashes with "Inference tensors cannot be saved for backward".** `torch.inference_mode()` goes further than
# `torch.no_grad()`: what is made in it must never meet a backward pass. Take `torch.no_grad()`.

# %% graded="head_only"
from lessons.hardware import graded

graded.head_only(HeadOnly)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 02` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
