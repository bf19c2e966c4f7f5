# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 14: Fine-tuning and serving on one card
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 14` in a terminal for points: it tries your functions on other inputs.
#
# Values are in 16 bits, two bytes, unless a question says otherwise.

# %%
import inspect

import torch  # noqa: F401 - for your answers
from torch import nn

from lessons.one_card import judge

# %% [markdown] question="kv_cache" points=2 difficulty=1 minutes=6
# ## 1. The key–value cache
#
# A model has `layers` layers, each with `heads` heads of `head_size` values. There are only `kv_heads` heads of keys
# and values, each shared by several heads. The model serves `batch` sequences of `tokens` tokens each.
#
# Return the bytes of the cache.


# %% answer="kv_cache"
def kv_cache(layers, heads, kv_heads, head_size, tokens, batch):
    """Bytes of all keys and values."""
    # BEGIN SOLUTION
    return 2 * layers * kv_heads * head_size * tokens * batch * 2
    # END SOLUTION


# %% check="kv_cache"
from lessons.one_card.checks import check

check("kv_cache")

# %% [markdown] hint="kv_cache"
# **My number is too large.** Which heads have keys and values of their own? And how many bytes does a value take?

# %% [markdown] hint="kv_cache"
# **My number is half of the right one.** There is a key, and there is a value.

# %% graded="kv_cache"
from lessons.one_card import graded

graded.kv_cache(kv_cache)

# %% [markdown] question="lora_bytes" points=2 difficulty=1 minutes=5
# ## 2. What LoRA trains
#
# `widths` lists the frozen products of a model, each as `[inputs, outputs]`. Beside each there are two thin matrices
# of the given rank: from the inputs to `rank`, and from `rank` to the outputs.
#
# Return the bytes of all thin matrices.


# %% answer="lora_bytes"
def lora_bytes(widths, rank):
    """Bytes of what is trained."""
    # BEGIN SOLUTION
    return 2 * rank * sum(inputs + outputs for inputs, outputs in widths)
    # END SOLUTION


# %% check="lora_bytes"
from lessons.one_card.checks import check

check("lora_bytes")

# %% [markdown] hint="lora_bytes"
# **My number is thousands of times too large.** Write down both matrices of one product, and count the values of each.

# %% [markdown] hint="lora_bytes"
# **It is right for square products only.** One matrix has as many rows as there are inputs, the other as there are
# outputs.

# %% graded="lora_bytes"
from lessons.one_card import graded

graded.lora_bytes(lora_bytes)

# %% [markdown] question="fixed_bytes" points=3 difficulty=2 minutes=9
# ## 3. What stays, whatever the batch
#
# A model has `base` weights of `base_bits` bits each. If `adapters` is more than 0, the base is frozen, and `adapters`
# values of 16 bits beside it are trained. If `adapters` is 0, the base itself is trained; `base_bits` is 16 then.
#
# What is trained has a gradient of 16 bits, and AdamW's two moments of `state_bits` bits each. Leave out the scales
# that values of 4 or 8 bits have.
#
# Return the bytes of weights, gradients and moments together.


# %% answer="fixed_bytes"
def fixed_bytes(base, adapters, base_bits, state_bits):
    """Bytes of weights, gradients and optimizer state."""
    # BEGIN SOLUTION
    trained = adapters or base
    weights = base * base_bits / 8 + 2 * adapters
    return weights + 2 * trained + 2 * state_bits / 8 * trained
    # END SOLUTION


# %% check="fixed_bytes"
from lessons.one_card.checks import check

check("fixed_bytes")

# %% [markdown] hint="fixed_bytes"
# **It is right without adapters, and far too large with them.** What is frozen has no gradient. Does it have moments?

# %% [markdown] hint="fixed_bytes"
# **It is wrong without adapters.** `adapters` is 0 then. What is trained instead?

# %% graded="fixed_bytes"
from lessons.one_card import graded

graded.fixed_bytes(fixed_bytes)

# %% [markdown] question="longest_context" points=2 difficulty=1 minutes=6
# ## 4. The longest context
#
# A card of `card` bytes serves `batch` sequences of the same length. `taken` lists the bytes of what is on it already:
# the driver's context, the weights, and so on. Each token of a sequence leaves `token` bytes in the cache, all layers
# together.
#
# Return the most tokens a sequence may have, a whole number; 0 if there is no room for one.


# %% answer="longest_context"
def longest_context(card, taken, token, batch):
    """Tokens of each sequence."""
    # BEGIN SOLUTION
    return max(0, (card - sum(taken)) // (token * batch))
    # END SOLUTION


# %% check="longest_context"
from lessons.one_card.checks import check

check("longest_context")

# %% [markdown] hint="longest_context"
# **My number is negative.** Then the weights do not fit, and no token does.

# %% [markdown] hint="longest_context"
# **My number is too large for several sequences.** Each keeps keys and values of its own. Which part do they share?

# %% graded="longest_context"
from lessons.one_card import graded

graded.longest_context(longest_context)

# %% [markdown] question="tokens_per_second" points=3 difficulty=2 minutes=9
# ## 5. How fast it can write
#
# To write one token for each of `batch` sequences, a card does two things in turn.
#
# - *Products* with the weights: it reads all `weights` bytes once, and computes `flops` operations for each sequence. The
#   two go on side by side.
# - *Attention*: it reads each sequence's `cache` bytes. The few operations take no longer than that.
#
# It reads `bandwidth` bytes and computes `arithmetic` operations a second.
#
# Return the tokens a second of all sequences together.


# %% answer="tokens_per_second"
def tokens_per_second(weights, cache, batch, flops, bandwidth, arithmetic):
    """Tokens a second of the whole batch."""
    # BEGIN SOLUTION
    products = max(weights / bandwidth, batch * flops / arithmetic)
    attention = batch * cache / bandwidth
    return batch / (products + attention)
    # END SOLUTION


# %% check="tokens_per_second"
from lessons.one_card.checks import check

check("tokens_per_second")

# %% [markdown] hint="tokens_per_second"
# **My number is the same for every batch.** Which bytes are read once for all sequences, and which for each?

# %% [markdown] hint="tokens_per_second"
# **It is right for small batches only.** The products take the longer of two times. With few sequences that is the
# reading. With many?

# %% [markdown] hint="tokens_per_second"
# **My number is too large for large batches.** Are the caches read while the products compute, or before and after?

# %% graded="tokens_per_second"
from lessons.one_card import graded

graded.tokens_per_second(tokens_per_second)

# %% [markdown] question="adapt_layer" points=5 difficulty=3 minutes=15
# ## 6. LoRA by hand
#
# The function below freezes a network and replaces each of its linear layers by `Adapted(layer, rank)`. Write the
# class. It keeps the frozen `layer` and adds the result of two thin matrices to the layer's own, so that
#
# - at the start the network's output is what it was;
# - the frozen layer is the one that was given, is not trained, and does not change;
# - at most `rank · (inputs + outputs)` values are trained beside each layer, and no more than as many kept besides;
# - after two steps of training (the first may move one matrix alone) every layer's result has changed;
# - what is added is a linear function of the layer's input, a matrix of rank at most `rank`, so that it could be added to the
#   frozen weight afterwards.
#
# The check adapts a network of three layers and trains it. How you write the matrices is up to you; a layer knows its
# `in_features` and `out_features`.

# %%
print(inspect.getsource(judge.adapt))


# %% answer="adapt_layer"
class Adapted(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        # BEGIN SOLUTION
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        # END SOLUTION

    def forward(self, x):
        # BEGIN SOLUTION
        return self.layer(x) + self.up(self.down(x))
        # END SOLUTION


# %% check="adapt_layer"
from lessons.one_card.checks import check

check("adapt_layer")

# %% [markdown] hint="adapt_layer"
# **The output is not the same at the start.** A product is 0 if one of its two factors is.

# %% [markdown] hint="adapt_layer"
# **Nothing learns.** The gradient of one matrix is multiplied by the other. What if both are 0?

# %% [markdown] hint="adapt_layer"
# **What is added is no matrix of that rank.** For an input of zeros a matrix gives zeros. What else does `nn.Linear`
# add?

# %% graded="adapt_layer"
from lessons.one_card import graded

graded.adapt_layer(Adapted)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 14` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
