# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # A · Myths and facts
#
# **The question:** of what people say about GPUs and memory, how much survives a computation?

# %% [markdown] slide="notes"
# You vote on ten sentences and see how they fared. Others follow, sorted by how they go wrong, and then the whole table.
# At the end you judge one yourself.
#
# The sentences come from five older texts (a blog, two articles, a forum thread and a course, 2014 to 2020) and from
# pages about today's transformers, retold in our words. A verdict is computed when its cell runs, from numbers that
# the cell computes or that a publication gives. If only a document can decide, the verdict is marked *cited*.
#
# About 60 minutes.

# %% slide="skip" folded=true
from inspect import getsource

import pandas as pd

from classroom.claims import OPEN, WRONG
from classroom.predict import predict, reveal
from course_utils import networks
from lessons.claims import CLAIMS, judge
from lessons.myths_and_facts.ballot import ballot, count
from lessons.shared.sources import traced

# %% [markdown] slide="slide"
# ## Predict: all of them
#
# Some of the sentences are plain facts, others bold rules. Guess before you see any of them.

# %%
guess = predict(
    f"Of the {len(CLAIMS)} sentences, how many hold as they are written?", unit="sentences"
)
guess

# %% [markdown] slide="slide"
# ## Vote before you read on
#
# Ten sentences: each holds, holds in part, held once, or does not hold.

# %% [markdown] slide="notes"
# - **holds**: a number says so too;
# - **holds in part**: it does for some of the cases that it speaks of, or one of its parts does;
# - **held once**: true when it was written;
# - **does not hold**: a number says otherwise, or the sentence is *misleading*: its words may be true, and it makes one
#   believe what is not so.

# %% slide="skip"
votes = ballot([58, 24, 28, 71, 12, 37, 90, 40, 81, 9])
votes

# %% [markdown] slide="slide"
# ## How your ten fared

# %% folded=true
count(votes)

# %% [markdown] slide="notes"
# And all of them? A sentence stays *open* where what would decide it was not published, or has no unit, such as
# "complicated".

# %% folded=true
found = judge(sorted(CLAIMS))
counts = found.counts()
reveal(
    guess,
    {"right": counts["right"], **counts},
    thoughts=[
        (
            len(CLAIMS),
            "Then nobody who knows a subject would ever write a wrong number about it.",
        ),
        (
            counts["right"] + counts["partly right"],
            "So many hold at least in part. The question was about sentences as written.",
        ),
        (counts["wrong"], "So many are plainly wrong; more of them hold only in part."),
    ],
)

# %% [markdown] slide="slide"
# ## Six ways to be wrong
#
# 1. **A part is taken for the whole** (13, 79, 27, 88, 74).
# 2. **Two accountings are mixed** (66, 30).
# 3. **A number has aged** (18, 65, 4).
# 4. **Size is taken for another quantity** (5).
# 5. **A condition is left out** (33, 46, 52, 43, 64).
# 6. **A slip of the pen** (14, 23, 31).

# %% [markdown] slide="notes"
# The sorting is ours; the verdicts in the tables are computed. Cover the columns *verdict* and *computed*, read a
# sentence, and say which number you would ask for. A small number leads to the lesson that shows the sentence.

# %% [markdown] slide="subslide"
# ### A part for the whole, and two accountings

# %% slide="subslide"
judge([13, 79, 27, 88, 74, 66, 30], links=True)

# %% [markdown] slide="subslide"
# ### Numbers that aged, and size taken for another quantity

# %% slide="subslide"
judge([18, 65, 4, 5], links=True)

# %% [markdown] slide="subslide"
# ### A condition left out

# %% slide="subslide"
judge([33, 46, 52, 43, 64], links=True)

# %% [markdown] slide="subslide"
# ### Three slips, and two bold sentences that hold

# %% slide="subslide"
judge([14, 23, 31, 34, 42], links=True)

# %% [markdown] slide="slide"
# ## The whole table

# %% [markdown] slide="notes"
# One line a sentence. `judge([...])` shows the evidence of those whose numbers you give: **change the numbers and run
# the cell.** Above it the cell prints the rule that leads from the numbers to the first verdict. Somebody chose each
# threshold in it: would you choose the same?

# %% slide="skip" tags=["change"]
asked = [15, 32]  # change the numbers
print(getsource(CLAIMS[asked[0]].judge))
judge(asked)

# %% slide="skip" folded=true
pd.set_option("display.max_colwidth", None, "display.max_rows", None)
whole = pd.DataFrame(
    [
        {"number": c.number, "verdict": f.told, "sentence": c.text, "source": c.source}
        for c, f in found.rows
        if c.number not in (39, 48)  # measured here, and so not the same twice
    ]
).set_index("number")
whole

# %% [markdown] slide="notes"
# Two are missing: 39 and 48 measure your machine. Ask `judge` for them.

# %% [markdown] slide="slide"
# ## Judge one yourself
#
# "X halves the memory": half of **which bytes**, at **which moment**, at **which batch**?

# %% [markdown] slide="notes"
# Here is a sentence that people say about every network: *half the batch, half the memory.* Guess first. Then **change
# the network or the batch, run the cell**, and find one where half the memory is left, to within a percentage point,
# and one where more than nine tenths are. Try `networks.alexnet`, `networks.resnet50` or `networks.googlenet`, and batches
# of 8 and of 1,024.

# %%
guess_half = predict(
    "AlexNet takes 128 images a step, then 64. What share of its peak is left?", unit="%"
)
guess_half

# %% folded=true
alexnet = traced(networks.alexnet)
left = 100 * alexnet.at(64).peak_bytes / alexnet.at(128).peak_bytes
reveal(
    guess_half,
    {"trace": left},
    thoughts=[
        (50.0, "Maps halve. Parameters, gradients and momentum do not."),
    ],
)

# %% tags=["change"]
# change the network and the batch
step, batch = traced(networks.vgg16), 128

half, whole_batch = step.at(batch // 2).peak_bytes, step.at(batch).peak_bytes
print(f"{100 * half / whole_batch:.1f} % of the peak is left at half the batch")

# %% [markdown] slide="notes"
# [Lesson 03](03_memory.ipynb) traces a model of your own.

# %% [markdown] slide="slide"
# ## Recap

# %% folded=true
right, wrong, undecided = counts["right"], counts[WRONG], counts[OPEN]
print(
    f"{len(CLAIMS)} sentences: {right} hold as written, {wrong} are wrong, "
    f"{undecided} stay open,\nand "
    f"{len(CLAIMS) - right - wrong - undecided} hold in part, held once or mislead."
)

# %% [markdown] slide="slide"
# 1. Ask for the number beside a sentence, and compute it again.
# 2. Which part, counted how, in which year, of which quantity, under which condition?
# 3. A verdict follows from a number and a threshold: change either, and it may be another.
