# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Exercise 13: Transformers: the same step, other maps
#
# Each question has an answer cell with dots in it, and a check cell below. Replace the dots, run both. The check
# says *not attempted*, *wrong* (and, where it can tell, which slip it was), *crashed* or *correct*. Hints are
# folded; open one when its first line is what you see.
#
# Only the answer cells are marked, so keep what a function needs inside its own cell. Save, then run `course check
# 13` in a terminal for points: it tries your functions on other inputs.
#
# The layer of questions 1 to 3 is that of the lesson: 16 bits a value, dropout on, attention written out. It keeps
# 34 sbh + 5 as²b bytes.

# %%
import inspect

from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from lessons.transformers.judge import Reader

# %% [markdown] question="layer_bytes" points=2 difficulty=1 minutes=5
# ## 1. What a layer keeps
#
# Return the bytes that one layer keeps for its backward pass: `batch` texts of `sequence` tokens, `hidden` values a
# token, `heads` heads in its attention.


# %% answer="layer_bytes"
def layer_bytes(sequence, batch, hidden, heads):
    """Bytes that a layer keeps, in 16 bits, with dropout and scores written out."""
    # BEGIN SOLUTION
    return sequence * batch * (34 * hidden + 5 * heads * sequence)
    # END SOLUTION


# %% check="layer_bytes"
from lessons.transformers.checks import check

check("layer_bytes")

# %% [markdown] hint="layer_bytes"
# **My number is twice too large.** 34 is bytes, not values.

# %% [markdown] hint="layer_bytes"
# **It is right for short texts and too small for long ones.** How many scores has one head for one text? How many heads
# and texts are there?

# %% graded="layer_bytes"
from lessons.transformers import graded

graded.layer_bytes(layer_bytes)

# %% [markdown] question="crossing" points=2 difficulty=1 minutes=5
# ## 2. Where scores overtake
#
# Return the shortest sequence, a whole number of tokens, at which the scores of a layer keep at least as many bytes as
# all the rest of it.


# %% answer="crossing"
def crossing(hidden, heads):
    """The first length at which 5 as²b is at least 34 sbh."""
    # BEGIN SOLUTION
    return -(-34 * hidden // (5 * heads))
    # END SOLUTION


# %% check="crossing"
from lessons.transformers.checks import check

check("crossing")

# %% [markdown] hint="crossing"
# **I have a fraction.** At the whole number below it the scores are still less. And if it is whole already?

# %% [markdown] hint="crossing"
# **Where is the batch?** Both terms have it. What is left of 5 as²b = 34 sbh?

# %% graded="crossing"
from lessons.transformers import graded

graded.crossing(crossing)

# %% [markdown] question="longest" points=3 difficulty=2 minutes=10
# ## 3. The longest text
#
# `layers` layers keep their maps at once, and there are `room` bytes for them. Return the longest sequence that fits
# with `batch` texts; 0 if not even one token does. What equals the room fits.


# %% answer="longest"
def longest(layers, batch, hidden, heads, room):
    """The largest sequence whose maps fit the room, in tokens."""

    # BEGIN SOLUTION
    def fits(sequence):
        return layers * batch * sequence * (34 * hidden + 5 * heads * sequence) <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
    # END SOLUTION


# %% check="longest"
from lessons.transformers.checks import check

check("longest")

# %% [markdown] hint="longest"
# **How do I solve for s?** You do not have to: the bytes grow with s. Double s until it no longer fits, then halve the
# gap. Or walk up one token at a time, which is slow where there is much room.

# %% [markdown] hint="longest"
# **I am off by one where it fits exactly.** A square root of floats rounds. Test the whole numbers beside it.

# %% graded="longest"
from lessons.transformers import graded

graded.longest(longest)

# %% [markdown] question="logit_bytes" points=2 difficulty=2 minutes=8
# ## 4. The tower
#
# A model in 16 bits returns logits, batch · sequence · vocabulary of them. At the peak, in the backward pass of the
# loss, several tensors of that many values are alive; the lesson's table names them. Those that the loss makes are in
# float32 if it turns the logits into float32 first (`upcast`), else in 16 bits. The logits themselves, in 16 bits, are
# there if the loop has kept `out` (`out_kept`).
#
# Return the bytes of all of these together.


# %% answer="logit_bytes"
def logit_bytes(batch, sequence, vocabulary, upcast, out_kept):
    """Bytes of tensors as large as the logits at the peak."""
    # BEGIN SOLUTION
    each = 3 * (4 if upcast else 2)
    if out_kept:
        each += 2
    return each * batch * sequence * vocabulary
    # END SOLUTION


# %% check="logit_bytes"
from lessons.transformers.checks import check

check("logit_bytes")

# %% [markdown] hint="logit_bytes"
# **The four bytes of float32 are there, and it is too small.** How many tensors of that size does the loss make, in the
# lesson's table?

# %% [markdown] hint="logit_bytes"
# **It is right but where `out` is kept.** In which format did the model make the logits?

# %% graded="logit_bytes"
from lessons.transformers import graded

graded.logit_bytes(logit_bytes)

# %% [markdown] question="best_block" points=4 difficulty=3 minutes=12
# ## 5. The best block, beside its neighbours
#
# A stack of `layers` equal layers is checkpointed in blocks of some size; the last block may be shorter. The inputs of
# all blocks are held, `enters` bytes each, and one whole block at a time holds what its layers keep, `keeps` bytes a
# layer. The peak is the sum.
#
# Find the block size, from 1 to `layers`, with the lowest peak; if several tie, take the smallest. Return a list of three
# numbers: that size, and by how many bytes the peak is higher with blocks of one layer less, and of one layer more.
# Where there is no such neighbour the number is 0.


# %% answer="best_block"
def best_block(layers, enters, keeps):
    """The best block size, and how much higher the peak is one size below and one above."""

    # BEGIN SOLUTION
    def peak(size):
        return -(-layers // size) * enters + size * keeps

    best = min(range(1, layers + 1), key=peak)
    below = peak(best - 1) - peak(best) if best > 1 else 0
    above = peak(best + 1) - peak(best) if best < layers else 0
    return [best, below, above]
    # END SOLUTION


# %% check="best_block"
from lessons.transformers.checks import check

check("best_block")

# %% [markdown] hint="best_block"
# **I return a square root.** √n is for layers that keep as much as enters them, and any root is for blocks in
# fractions. Here the last block may be short: write down the peak for sizes 1, 2 and 3, then for all.

# %% [markdown] hint="best_block"
# **It is right where the size divides the layers.** Ten layers in blocks of three are four blocks.

# %% graded="best_block"
from lessons.transformers import graded

graded.best_block(best_block)

# %% [markdown] question="loss_in_pieces" points=5 difficulty=3 minutes=15
# ## 6. A loss whose logits are never all there
#
# The small model below makes all logits at once. Rewrite its `forward` so that the peak of a training step is at
# most 25 % of the original's, with the same loss and the same gradients: no more than a piece of the logits may be
# alive at a time, in the forward pass and in the backward pass. Values are counted as well as bytes, and each row of a
# gradient is compared by itself: fewer bits are no pieces, however they are packed. Write the pieces yourself: PyTorch's
# own `linear_cross_entropy` is not judged here.
#
# The original's loss is the mean over all tokens; no label is left out. The check compares the two models on random
# tokens: 4 texts of 63, so that most sizes of a piece leave a shorter last one. Give `checkpoint` the argument
# `use_reentrant=False`, as PyTorch advises.

# %%
print(inspect.getsource(Reader))


# %% answer="loss_in_pieces"
class InPieces(Reader):
    def forward(self, ids, labels):
        # BEGIN SOLUTION
        def loss_of(maps, labels):
            return cross_entropy(self.head(maps), labels, reduction="sum")

        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        total = 0
        for piece, wanted in zip(maps.split(32), flat.split(32), strict=True):
            total = total + checkpoint(loss_of, piece, wanted, use_reentrant=False)
        return total / flat.numel()
        # END SOLUTION


# %% check="loss_in_pieces"
from lessons.transformers.checks import check

check("loss_in_pieces")

# %% [markdown] hint="loss_in_pieces"
# **How do I begin?** Flatten maps and labels to one row a token, `split` both into pieces, and write a function of one
# piece of each that returns its loss.

# %% [markdown] hint="loss_in_pieces"
# **The loss is not quite the same.** The last piece is shorter. `reduction="sum"` gives sums; what do you divide by?

# %% [markdown] hint="loss_in_pieces"
# **The loss is right and the peak is too high.** What does every piece keep for its backward pass?
# `checkpoint(function, maps, labels, use_reentrant=False)` keeps the arguments alone.

# %% graded="loss_in_pieces"
from lessons.transformers import graded

graded.loss_in_pieces(InPieces)

# %% [markdown]
# ## Afterwards
#
# Save this notebook, then run `course check 13` in a terminal. It marks this file question by question, on inputs
# you have not seen. `course progress` shows where you stand in the course.
