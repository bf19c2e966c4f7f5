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
# **The question:** of what people say about GPUs and memory, how much holds when it is computed?

# %% [markdown] slide="notes"
# Here are all claims that the course judges, in the order of the texts they come from. Most come from five texts: a
# blog of 2014, two articles, a forum thread and a course. The last come from pages about today's transformers. Each
# claim is told in our words. Its verdict is not written here: it is derived, when the cell runs, from a number that the
# cell computes or that a publication gives.
#
# About 20 minutes to browse. Every row leads to the lesson that explains it.

# %% slide="skip" folded=true
import pandas as pd

from classroom.claims import Verdicts
from classroom.predict import predict, reveal
from lessons.claims import CLAIMS, judge
from lessons.shared.sources import SOURCES

# %% [markdown] slide="slide"
# ## Predict
#
# The texts were written by people who knew their subject, most between 2014 and 2020, and they are still read.

# %%
guess = predict(
    "Of every 100 claims, how many will the computed number bear out as they stand?",
    unit="of 100",
)
guess

# %% slide="skip" folded=true
TODAY = "today's pages"
groups = {source: [source] for source in SOURCES[:5]} | {TODAY: SOURCES[5:]}
verdicts = {
    name: judge([n for n in sorted(CLAIMS) if CLAIMS[n].source in sources], links=True)
    for name, sources in groups.items()
}
counts = Verdicts(tuple(row for found in verdicts.values() for row in found.rows)).counts()
total = sum(counts.values())
print(f"{total} claims judged")

# %% [markdown] slide="slide"
# ## How they fare

# %% folded=true
share = {name: 100 * count / total for name, count in counts.items()}
reveal(
    guess,
    {"right": share["right"], **share},
    thoughts=[
        (
            100.0,
            "People who know their subject are right about much, and about fewer numbers.",
        ),
        (
            share["right"] + share.get("partly right", 0.0),
            "So many are right at least in part. The question was about right as they stand.",
        ),
        (share["wrong"], "That is how many are plainly wrong."),
        (
            10.0,
            "The texts are better: most of what does not hold is right in part, or was.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# ## The verdicts

# %% [markdown] slide="notes"
# - **right**: the number says so too;
# - **partly right**: one part holds, or it holds under conditions that were left out;
# - **outdated**: true when it was written;
# - **misleading**: the words may be true, what they suggest is not;
# - **wrong**: the number says otherwise;
# - **open**: what it would take to decide was not published.

# %% slide="subslide" folded=true
table = pd.DataFrame(
    {source.split(",")[0]: found.counts() for source, found in verdicts.items()}
)
table.reindex(counts).fillna(0).astype(int)

# %% [markdown] slide="slide"
# ## Where claims go wrong
#
# 1. **A part is taken for the whole.**
# 2. **Two accountings are mixed.**
# 3. **What held for one year or machine ages.**
# 4. **Size stands for another quantity.**
# 5. **A limit is left out.**
# 6. **A slip of the pen.**

# %% [markdown] slide="notes"
# Read the tables below for these six; between them they explain most of what is not right.
#
# 1. Parameters without gradients and momentum (12, 13), maps without parameters
#    (79, 81): the ratio of the part is not the ratio of the step.
# 2. All maps kept, as frameworks did in 2016, or what autograd keeps now (66).
# 3. Rates of a link, prices, cores, what software can do (25, 58, 63).
# 4. Depth for parameters (24), data for memory (71), parameters for
#    arithmetic (5).
# 5. It holds until the card saturates (54), above the crossover (52), in a chain of layers
#    (29), for as many inputs and units (94).
# 6. A digit too many (14), layers miscounted (21, 23), one network's number given to another
#    (31).

# %% [markdown] slide="skip"
# ## Dettmers, *Which GPU for deep learning*, 2014
#
# Its author himself dropped the memory rule in 2016. A rule that can be checked is an honest teacher, even a wrong one.

# %% slide="skip"
verdicts[SOURCES[0]]

# %% [markdown] slide="skip"
# ## Zhu for Synced, 2017, on *vDNN*
#
# A summary of Rhu et al. (MICRO-49, 2016), whose method lesson 09 rebuilds.

# %% slide="skip"
verdicts[SOURCES[1]]

# %% [markdown] slide="skip"
# ## MathWorks, *All About GPUs*, 2020

# %% slide="skip" tags=["nbval-ignore-output"]
verdicts[SOURCES[2]]

# %% [markdown] slide="skip"
# ## Data Science Stack Exchange, question 19220
#
# A question about a network of 100 units, and the answers it got, some of which contradict each other (60, 94).

# %% slide="skip"
verdicts[SOURCES[3]]

# %% [markdown] slide="skip"
# ## A course on Caffe, lesson 13, after Dettmers 2016

# %% slide="skip"
verdicts[SOURCES[4]]

# %% [markdown] slide="skip"
# ## Pages about transformers, 2022 to today

# %% slide="skip"
verdicts[TODAY]

# %% [markdown] slide="slide"
# ## Judge one yourself
#
# Next time somebody says *X takes half the memory*, ask three things: half of **which bytes**, counted in **which
# accounting**, at **which batch**? Then trace it:
#
# ```python
# from course_utils.trace import training_step
#
# training_step(model, (3, 224, 224), classes=1000).at(32).peak_bytes
# ```

# %% [markdown] slide="notes"
# [Lesson 03](03_memory.ipynb) shows how, with any model of your own.

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A claim is worth as much as the number behind it.
# 2. Most of those that do not hold are right about a part, a year or a machine.
# 3. What is computed can be computed again: change a formula, and the verdict follows.

# %% [markdown] slide="notes"
# Where no number decides, the verdict is *open*, however likely the claim.
