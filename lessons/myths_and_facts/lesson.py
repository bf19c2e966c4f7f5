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
# You vote on twelve sentences. Each then gets its verdict, better words, and the numbers that decided it. (*How it was
# judged*, folded, has the rule and all numbers.) Six of the twelve are new. Lessons 08, 11, 13 and 14 judged the others
# (the ballot says which) and explain their terms; 01, 02 and 09 help too. Read this page after them.
#
# The exercise: below each vote write which number would decide the sentence. Its verdict will say what we counted.
#
# The sentences come from a blog, a forum thread, a course and PyTorch's documentation (2014 to 2022) and from pages about
# today's transformers. We put each in our own words and judge it by a number.
#
# About 110 minutes.

# %% slide="skip" folded=true
from collections import Counter

import pandas as pd
from IPython.display import HTML, display

from classroom.claims import PART, SOME
from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import side_by_side
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.memory import Ledger
from course_utils.techniques.capacity import fit
from lessons.claims import CLAIMS, judge
from lessons.half_precision.claims import HALVED, NARROW, change, halving
from lessons.hardware.claims import dense_net
from lessons.many_gpus.claims import (
    CARD,
    CARDS,
    CLUSTER,
    DIGITS,
    LINK,
    LITTLE_GAIN,
    dense_step,
    enough,
    with_and_without_sharing,
)
from lessons.memory.claims import epoch_peak
from lessons.memory.clearing import CLEARED, freeing_saves, plain_frees
from lessons.myths_and_facts.ballot import ballot, count
from lessons.myths_and_facts.told import told
from lessons.one_card.fine_tuning import METHODS, step
from lessons.shared.language_models import SHAPES
from lessons.shared.parallel import MIXED, on_cards
from lessons.shared.role_bars import role_bars
from lessons.shared.sources import traced
from lessons.transformers.claims import adam_step, peak_less, times_less
from lessons.why_gpus.claims import SIZES, gain, own_kernels, speed_ups
from lessons.why_gpus.claims import peaks as rated

TWELVE = (81, 60, 87, 59, 1, 97, 71, 2, 4, 92, 88, 9)
found, better = judge(TWELVE), {}
alexnet, vgg = traced(networks.alexnet), traced(networks.vgg16)


def roles(ledger: Ledger) -> dict[str, float]:
    return {str(role): float(size) for role, size in ledger.by_role().items()}


# %% [markdown] slide="slide"
# ## Vote before you read on
#
# Twelve sentences: each holds, holds in part, held once, or does not hold.

# %% [markdown] slide="notes"
# - **holds** (the verdict is *right*): in every case we tried;
# - **holds in part** (*partly right*): in some cases, or one part of it alone. The verdict says which;
# - **held once** (*outdated*): when it was written, but no longer;
# - **does not hold**: in no case we tried. Such a sentence is *misleading* if its source reports it of another quantity,
#   which we cannot check; otherwise it is *wrong*.
#
# A case is a network, a batch, a card or an option. A tally such as *1 of 8* counts cases that we chose; it is not how
# often a sentence is true. A sentence with exceptions holds in part. Most verdicts rest on thresholds that we chose.
#
# <details><summary>How cases are chosen</summary>
#
# For each sentence we fixed what is counted (*We counted*) and which cases vote (*How it was judged*); any other number
# we show does not vote. We test several cases that the words allow. If the source names its own case (*Said of*), we include
# it. The one exception is the 8-billion model: we do not trace its recipe.
#
# </details>

# %% slide="skip"
votes = ballot(TWELVE)
votes

# %%
how_many = predict(
    "Of the twelve, how many hold as they are written? The end of the page has the count.",
    unit="of 12",
)
how_many

# %% [markdown] slide="slide"
# ## How much, and of what?
#
# Three sentences with a number in them: a half, four times, ten times.

# %% folded=true
under, all_16 = (
    [change(halving(name, way=way).saved) for name in HALVED] for way in ("bfloat16", NARROW)
)
better[81] = (
    f"Under autocast a step's peak changes by {under[0]} (ResNet-50), {under[1]} (VGG-16) and "
    f"{under[2]} (a dense net); all in bfloat16, by {all_16[0]}, {all_16[1]} and {all_16[2]}. "
    "Float16 needs a scale for the loss, and weights in bfloat16 lose small updates; bfloat16 "
    "under autocast rounds, but kept the small gradient and the small step tried."
)
told(81, found, votes, better[81])

# %% [markdown] slide="notes"
# In float16 a small gradient becomes 0 without a scale for the loss; a trained network's maps have such gradients
# (lesson 08).
# With weights in bfloat16 a step of 0.001, Adam's default, does not move a weight of 1. Bfloat16 under autocast
# keeps both, and saves as much as float16. (It rounds. We count a gradient that becomes 0 and a step
# that moves nothing, not digits.)
#
# Under autocast only ResNet-50 comes near half (we accept a fall of more than 45 %). Weights and optimizer state stay in
# 32 bits, and VGG-16's pooling layers, for one, keep an index of eight bytes for each value. The dense net, of 52 million
# weights, has hardly any maps. It grows: for a moment its first layer's gradient is there twice, in 16 and in 32 bits.
# With all in bfloat16 two of the three halve.

# %% slide="subslide"
guess_adam = predict(
    "GPT-2 XL (1.6 billion weights, 48 layers, hidden 1,600) in float32 with PyTorch's "
    "default Adam, dropout and fused attention, one text of 1,024: "
    "how many times the weights is the peak?",
    unit="times",
)
guess_adam

# %% folded=true
def in_weights(name, batch, update="default"):
    """A step's peak by role, in times the weights."""
    return adam_step(name, batch, update).by_role() / (4 * SHAPES[name].parameters)


both_models = ("GPT-2", "GPT-2 XL")
adam = {(name, 1): in_weights(name, 1) for name in both_models}
adam["GPT-2 XL, fused update", 1] = in_weights("GPT-2 XL", 1, "fused")
adam |= {(name, 8): in_weights(name, 8) for name in both_models}
peaks = {row: parts.sum() for row, parts in adam.items()}
reveal(
    guess_adam,
    {"traced": peaks["GPT-2 XL", 1]},
    thoughts=[
        (
            4.0,
            "That is weights, gradients and two moments. PyTorch's default update adds "
            "temporaries as large as the weights.",
        ),
        (peaks["GPT-2 XL, fused update", 1], "That is with a fused update."),
        (2.0, "That is weights and gradients: the two moments are missing."),
        (3.0, "That is weights and two moments: the gradients are missing."),
        (
            4.5,
            "At this peak hardly any map is left. The update's temporaries are as large "
            "as all the weights.",
        ),
        *(
            (each, "That is bytes for each weight: divide by the four of a float32 weight.")
            for each in (16.0, 20.0)
        ),
        (peaks["GPT-2 XL", 8], "That is the peak with 8 texts. Maps grow with the batch."),
        (
            peaks["GPT-2", 1],
            "That is the small GPT-2's. From it to XL weights grow more than maps.",
        ),
        (peaks["GPT-2", 8], "That is the small GPT-2's with 8 texts: mostly maps and logits."),
    ],
)

# %% slide="subslide" folded=true
better[87] = (
    "During the update, weights, gradients and two moments take four times the memory of the "
    "weights; PyTorch's default update on a GPU makes it five. At the loss, maps can take "
    "even more."
)
told(87, found, votes, better[87])

# %% slide="skip" folded=true
together = {
    "weights and moments": ["parameters", "optimizer state"],
    "gradients": ["weight gradients"],
    "temporaries": ["other"],
    "maps and logits": ["feature maps", "gradient maps"],
}
apart = {
    f"{name}, {batch} × 1,024": {what: part[names].sum() for what, names in together.items()}
    for (name, batch), part in adam.items()
}
display(pd.DataFrame(apart).T.map("{:.1f}".format))
side_by_side(
    {f"{name}, {batch} × 1,024": float(times) for (name, batch), times in peaks.items()},
    "times",
    "The peak, in times the weights: with one text, as its source says, and with eight",
    limit=("four times", 4.0),
)

# %% [markdown] slide="notes"
# With one text, as its source counts, GPT-2 XL peaks in the update. There PyTorch's default Adam adds temporaries as
# large as the weights. A fused update adds none. Then the peak is in the backward pass, within 5 % of four. Of eight
# cases (two models, two updates, one text or eight) only this one holds. (Its gradients are 1.1 times the weights:
# embedding and head are one matrix, for a moment with a gradient from each and their sum.)
#
# The other three bars peak at the loss. The three fused cases that are not drawn (GPT-2 with one text and with eight,
# XL with eight) peak there too, as high. No weight has a gradient yet, but maps and logits are alive: with eight texts,
# most of the peak.

# %% slide="subslide" folded=true
falls = {
    (head, wide): peak_less(head, 0.0, wide)
    for head, wide in ((64, False), (128, False), (128, True))
}
few, many, wide = (" and ".join(f"{times:.0f}" for times in of) for of in falls.values())
better[88] = (
    f"With 8 texts of 2,048 and 4,096 tokens, attention's own peak is {few} times lower with "
    f"heads of 64. With heads of 128 it is {many} times lower if softmax too is in 16 bits, "
    f"{wide} if it is in float32. The peak of a whole step falls less."
)
told(88, found, votes, better[88])

# %% slide="subslide" folded=true
bars = {
    f"its peak, 8 × {tokens}, heads of {head}{', softmax in float32' if wide else ''}": times
    for (head, wide), both in falls.items()
    for tokens, times in zip(("2,048", "4,096"), both, strict=True)
}
for how, share in (("dropout", 0.1), ("no dropout", 0.0)):
    bars[f"what it keeps, 2 × 4,096, {how}"] = times_less(share)[1]["kept"]
    bars[f"a step's peak, 2 × 4,096, {how}"] = times_less(share)[1]["step"]
side_by_side(
    {name: round(times) for name, times in bars.items()},
    "times less",
    "Attention's own peak: ten and twenty times less, but for heads of 128 all in 16 bits",
    blue=[name for name in bars if not name.startswith("its")],
)

# %% [markdown] slide="notes"
# The source shows attention by itself, and finds the same memory with dropout or a mask. That fits the peak of its
# forward and backward pass, which dropout does not change here, so we count that. With heads of 64, as there, the
# sentence holds. The sentence itself names no heads, so we try 128 too. With them it fails if all is in 16 bits, softmax
# too. With softmax in float32, as in Llama (lesson 13), attention written out takes nearly twice as much, and the
# sentence holds again.
#
# Written out in 16 bits (scores, softmax, product, each an operator), four tensors as large as the scores make the peak.
# (With three, heads of 64 too would fall short of twenty times.)
#
# The blue bars are other counts, with heads of 64. What attention keeps for the backward pass does depend on dropout. The
# peak of a whole step of GPT-2, which we give longer texts than its 1,024 tokens, falls less.

# %% [markdown] slide="slide"
# ## Large in what?
#
# *Fewer* images: of the data set, or of a step? How much of a full card is the network's? Do equal units have
# equal weights?

# %% slide="subslide" folded=true
better[71] = (
    "Fewer images in a step need less memory where maps make the peak; fewer in the data set "
    "did so here only when they did not fill a batch, or when all of them were kept beside "
    "the network."
)
told(71, found, votes, better[71])

# %% tags=["nbval-ignore-output"] folded=true
side_by_side(
    {
        "1,280 images": epoch_peak(1280) / 1024,
        "128 images": epoch_peak(128) / 1024,
        "16 images, each four times": epoch_peak(16) / 1024,
        "16 images, batch 16": epoch_peak(16, 16) / 1024,
        "1,280 images, all kept": epoch_peak(1280, kept=True) / 1024,
        "128 images, all kept": epoch_peak(128, kept=True) / 1024,
    },
    "KiB",
    "Digits in batches of 64, peak of an epoch on the CPU: the batch counts, and images kept",
)

# %% [markdown] slide="notes"
# A step holds one batch, here of images of one size. If we take each of 16 images four times, the batch stays 64, and so
# does the peak. Taken once, they are a batch of 16, and the peak falls. A data set kept on the card takes its own bytes,
# fewer with fewer images.

# %% slide="subslide" folded=true
better[2] = (
    "With 128 samples such a network takes a tenth of 6 GiB, or with Adam a sixth. What "
    "filled the rest of his card he does not say."
)
told(2, found, votes, better[2])

# %% folded=true
dense = {"momentum": dense_net().at(128), "Adam": dense_net("adam").at(128)}
of_6 = [f"{one.peak_bytes / (6 * 2**30):.0%}" for one in dense.values()]
role_bars(
    {f"52 M dense net, {way}": roles(one) for way, one in dense.items()},
    f"The network of that contest, traced: {of_6[0]} of 6 GiB, with Adam {of_6[1]}",
    hardware.device("GTX Titan"),
)

# %% [markdown] slide="notes"
# *Misleading*, not *wrong*: he reports that his card was full, but the sentence names the network. Its layers are
# 9000 × 4000 × 4000 × 32, as he prints them; the batch is our choice. It takes about 60,000 samples for the network alone
# to fill 6 GiB.

# %% slide="subslide" folded=true
better[60] = (
    "A plain recurrent layer of 100 units has 100 · 100 weights more than a dense one, "
    "and in PyTorch 100 biases more."
)
told(60, found, votes, better[60])

# %% [markdown] slide="notes"
# The extra weights multiply the layer's own output of the step before. With many inputs they are a small share, and with
# 4 nearly all.

# %% [markdown] slide="slide"
# ## True when, and on what condition?
#
# Three sentences that leave something out: a link, a release, a method.

# %% folded=true
nets, of_2014 = (dense_net(), dense_step(*DIGITS)), (CLUSTER, LINK)
titans = {
    batch: [
        on_cards(net.at(batch), CARD, link, CARDS).speed_up for net in nets for link in of_2014
    ]
    for batch in (128, 1024)
}
few, many = (f"{min(of):.1f} to {max(of):.1f}" for of in titans.values())
better[4] = (
    f"Over InfiniBand or PCIe 2.0, four GTX Titans train dense nets of 52 million weights "
    f"(his) and of 12 million (for digits) {few} times as fast as one card does with 128 "
    f"samples a card, {many} times with 1,024."
)
told(4, found, votes, better[4])

# %% slide="subslide" folded=true
four = {
    f"{card}, {link}, batch {batch:,}": on_cards(dense_net().at(batch), card, link, 4).speed_up
    for card, link, batch in (
        ("GTX Titan", "InfiniBand QDR", 128),
        ("GTX Titan", "PCIe 2.0 x16", 128),
        ("GTX Titan", "NVLink 4", 128),
        ("H100 SXM", "PCIe 5.0 x16", 128),
        ("H100 SXM", "NVLink 4", 128),
        ("GTX Titan", "InfiniBand QDR", 1024),
        ("H100 SXM", "PCIe 5.0 x16", 1024),
    )
}
large = dense_net().at(1024)
for link in ("PCIe 5.0 x16", "NVLink 4"):
    four[f"H100 SXM, {link}, batch 1,024, tensor cores"] = on_cards(
        large, "H100 SXM", link, 4, alone=predict_step(large, "H100 SXM", "bfloat16")
    ).speed_up
side_by_side(
    four,
    "times",
    "Four cards, modelled: without tensor cores a fast link or a large batch pays "
    "(outlined: imagined)",
    hollow=[name for name in four if "Titan, NVLink" in name or "PCIe 5.0" in name],
    limit=(f"below {LITTLE_GAIN}: almost nothing", LITTLE_GAIN),
)

# %% [markdown] slide="notes"
# The first bar has his network and link; card and batch are our choice. There the sentence holds: four cards train on
# half as many samples a second as one. With 1,024 a card he would have gained. (We do not model how many steps training
# then takes. PCIe 2.0 links cards inside one machine of that time.)
#
# By the model, in float32 without tensor cores, four of either card pay off with NVLink or with 1,024 samples a card.
# With tensor cores (last two bars) an H100 needs so little time to compute that sending decides. Over PCIe 5.0, with
# gradients in float32, four are slower than one even with 1,024 samples a card; over NVLink they gain. (An H100 SXM comes with NVLink. We imagine it without, to
# separate the link from the card.)

# %% slide="subslide" folded=true
saved = {name: freeing_saves(name, plain=False) for name in CLEARED}
today = max(max(freeing_saves(name, plain=plain_frees())) for name in CLEARED)
least, most = (f"{100 * of(left for left, _ in saved.values()):.0f}" for of in (min, max))
better[97] = (
    f"With momentum, set_to_none=True leaves {least} to {most} % less than zeros do. Plain "
    f"zero_grad() wrote zeros until PyTorch 2.0; today the argument saves {100 * today:.0f} %."
)
told(97, found, votes, better[97])

# %% slide="subslide" folded=true
bars = {f"{name}, left": left for name, (left, _) in saved.items()}
bars["any, against today's zero_grad()"] = today
bars |= {f"{name}, peak": peak for name, (_, peak) in saved.items()}
bars["52 M dense net, Adam, peak"] = freeing_saves("52 M dense net", False, "adam")[1]
side_by_side(
    {name: round(100 * share) for name, share in bars.items()},
    "% less",
    "With momentum, gradients freed, not zeroed: a third less is left; the peak falls less",
    blue=[name for name in bars if name.endswith("peak")],
)

# %% [markdown] slide="notes"
# We count what is left between two steps. By the peak (blue) the sentence would have held only in part even then: the
# dense net with Adam peaks in the update, where the gradients are there either way. What changed is the default, with
# [release 2.0](https://github.com/pytorch/pytorch/releases/tag/v2.0.0) (2023). None still takes less than zeros.

# %% slide="subslide" folded=true
# weights and both moments on the host, in 16 bits and in float32
on_host = [3 * size * SHAPES["Llama-3-8B"].parameters / 2**30 for size in (2, 4)]
better[92] = (
    "It fits, with layers recomputed, weights in 16 bits, no gradient kept, and moments and "
    f"update on the host. With the weights they take {on_host[0]:.0f} GiB there. Small "
    "updates are lost if weights in 16 bits are rounded to nearest; float32 weights and "
    f"moments on the host keep them, and take {on_host[1]:.0f} GiB."
)
told(92, found, votes, better[92])

# %% slide="skip" folded=true
card = hardware.device("RTX 4090")
ways = {
    name: step("Llama-3-8B", name, batch=2, kept=True)
    for name, method in METHODS.items()
    if method.trained == "all"
}
fitting = [name for name, ledger in ways.items() if fit(ledger, card).state == "fits"]
title = f"Layers recomputed, {len(fitting)} of {len(ways)} ways to train all weights fits"
for name in fitting:
    ways["the same, every map kept"] = step("Llama-3-8B", name, batch=2, recompute=False)
bars = {
    name.replace("full", "AdamW, fused"): roles(ledger) for name, ledger in ways.items()
}
role_bars(bars, title, card)

# %% [markdown] slide="notes"
# A sentence that says *can* holds if one way shows it. The way that fits is not the source's, which reports 18.9 GiB (its
# loss in pieces, 8-bit moments in pages). We judge memory: *trained* means that the traced peak leaves room. The room
# is 5 % of the peak; of 20 traces in lesson 14 none was over 2.1 % too low.
#
# An update takes seconds (lesson 14). Whether the model learns is another question: of made-up weights in 16 bits, 70 %
# did not move in 300 equal steps (lesson 14). In float32 all moved. To keep weights and moments in float32 on the host costs
# the card nothing. The host needs twice as much, and more if it keeps gradients too.

# %% [markdown] slide="slide"
# ## Faster than what?
#
# Two sentences about speed. Which machines are compared, and what is in the time?

# %% folded=true
measured = sorted(
    (hardware.device(row.device).year, ratio, row.device, row.library)
    for row, ratio in speed_ups()
    if row.network == "VGG-16"
)
equal = {f"{card}, equal shares": rated(card) for _, _, card, _ in measured}
then, later = (
    [ratio for row, ratio in speed_ups() if (hardware.device(row.device).year > 2014) == new]
    for new in (False, True)
)
then, later = (f"{min(of):.0f} to {max(of):.0f}" for of in (then, later))
better[1] = (
    f"On large convolutional networks two 8-core Xeons in Torch took {then} times as long as "
    f"a card of 2013 with cuDNN, {later} times as long as cards of 2015 and 2016."
)
told(1, found, votes, better[1])

# %% slide="subslide" folded=true
bars = {f"{card} ({year}), {library}": ratio for year, ratio, card, library in measured}
own = {f"{card}, Torch's own kernels": of[0] for card, of in own_kernels().items()}
bars = {name: round(times) for name, times in (bars | own | equal).items()}
side_by_side(
    bars,
    "times",
    f"VGG-16 alone: {measured[0][1]:.0f} times as fast as two Xeons with a card of "
    f"{measured[0][0]}, {measured[-1][1]:.0f} with one of {measured[-1][0]}",
    blue=list(equal),
    limit=("20 times", 20.0),
)

# %% [markdown] slide="notes"
# Of the cards sold by 2014 one was measured: a K40, with a library of 2016. Its median over the eight networks is 14
# times, so with that card neither part held against these Xeons; with later cards both do (we read both as *at
# least*: their median is 46, their most 77). (The tally counts cards sold by
# 2014 as one case, later cards as another.) Times of another CPU would add cases, and the sentence would still hold in
# some and fail in others.
#
# But the source names no CPU, and more of the sentence holds against a slower one. If one Xeon took twice as long as two,
# the K40's median would be 27: *typically* would have held in 2014 too. A desktop with four cores at 3.4 GHz that add and
# multiply eight numbers a cycle has less than a fifth of the two Xeons' peak. At the same share of it the K40 would be 49
# to 85 times as fast, and both parts would have held.
#
# The library counts too: without cuDNN the Titan X (Maxwell) does not reach 20 times. With VGG-16 the Xeons reached 14 %
# of their peak, the K40 37 %, and the Titan X (Maxwell) 71 % or 125 %, depending on cuDNN's version (multiplications of
# a direct convolution, peaks at base clock; Winograd's needs fewer, lesson 09). The blue bars are the ratios of peaks: at
# equal shares none of these cards would reach 20 times.

# %% slide="subslide" folded=true
speed = {size: gain(*size) for size in SIZES}
ahead = [size for size, (there, _) in speed.items() if there > 1]
lost = [size for size in ahead if speed[size][1] <= 1]
units = " or ".join(f"{units}" for units in sorted({units for _, units, _ in lost}))
better[59] = (
    "A GPU that is faster with its data on the card can be slower than the CPU if each batch "
    f"is copied first: here in {len(lost)} of {len(ahead)} cases, all with {units} units."
)
told(59, found, votes, better[59])

# %% slide="subslide" folded=true
bars = {}
for inputs, units, batch in [*lost, (4096, 100, 4096)]:
    name = f"{inputs:,} inputs, {units} units, batch {batch:,}"
    bars[name], bars[f"{name}, copied"] = speed[inputs, units, batch]
side_by_side(
    bars,
    "times",
    "Modelled: with 10 units copies cancel the gain over two Xeons, with 100 a part of it",
    blue=[name for name in bars if name.endswith("copied")],
    limit=("as fast as the CPU", 1.0),
)

# %% [markdown] slide="notes"
# It says *can*: one case is enough. Of 64, the GPU is behind in 26 even with the data on the card, and ahead in 35 even
# with copies. In the other three a copy alone takes longer than the CPU's step.

# %% [markdown] slide="slide"
# ## Is that the reason?
#
# The last sentence says *because*. We take the cause away.

# %% folded=true
least = max(ratio for _, ratio in map(enough, (networks.vgg16, networks.alexnet)))
better[9] = (
    f"On four {CARD}s over {LINK}, by the model, VGG-16 and AlexNet parallelise well (3.2 "
    f"times) if they compute at least {least:.1f} times as long as they send. With at most "
    "128 images a card, they do so there only because positions share weights."
)
told(9, found, votes, better[9])

# %% slide="subslide" folded=true
shared, unshared = with_and_without_sharing(vgg.at(128))
few = alexnet.at(32)
gains = {
    "VGG-16, 128 images a card": shared,
    "… each position its own weights": unshared,
    "VGG-16, 32 images": with_and_without_sharing(vgg.at(32))[0],
    "AlexNet, 128 images": with_and_without_sharing(alexnet.at(128))[0],
    "AlexNet, 32 images": with_and_without_sharing(few)[0],
    "… dense layers split by units": on_cards(few, CARD, LINK, CARDS, MIXED).speed_up,
}
side_by_side(
    gains,
    "times",
    f"Four {CARD}s, {LINK}, modelled: here sharing weights is needed, and not enough",
    blue=[name for name in gains if name.startswith("…")],
)

# %% [markdown] slide="notes"
# The first blue bar takes the sentence's reason away. The computation is the same, but every position of a convolution
# has weights of its own. All their gradients must be sent, and the gain goes. So with these batches, on these cards
# and this link, sharing is needed. (Four H100s over NVLink gain 4.0 times with 128 images even without it.)
# With more images sharing matters less: every unshared weight then does work for more images. With 400 images a card
# both networks gain over 3.2 times even without sharing, if the link never waits. (No card of that time has room
# for VGG-16's unshared weights, and a GTX Titan has none for VGG-16 with 128 images: we model only the time. We leave
# out reading and updating so many weights. The first blue bar, too, assumes a link that never waits.)
#
# It is not enough: AlexNet with 32 images gains 2.53 times. The second blue bar gives each card a share of its dense
# layers (lesson 11). Their gradients are not sent, and the gain is back. But dense layers alone do not decide. VGG-16
# has nine tenths of its weights in them and loses nothing with 32 images: it computes for 7.6 times as long as it
# sends. AlexNet with 32 computes for 0.9 times as long. (VGG-16 with 4 images is not far above: it computes 1.1 times
# as long as it sends, and gains 3.03. This case does not vote.)

# %% slide="subslide" folded=true
hold, every = found.counts(), judge(sorted(CLAIMS))
in_part = hold["right"] + hold["partly right"]
by_verdict = {
    verdict: [one.text for one, finding in found.rows if finding.in_full.startswith(verdict)]
    for verdict in ("right", "partly right: some cases")
}
some = by_verdict["partly right: some cases"]
in_some = " ".join(
    [
        "You may have counted some of these; each fails in a case that we tried:",
        *(f"({n}) {text}" for n, text in enumerate(some, 1)),
    ]
)
reveal(
    how_many,
    {"right": hold["right"]},
    thoughts=[
        (
            in_part,
            "So many hold at least in part. The question was about sentences as written.",
        ),
        *(
            (number, f"As written these hold; they say can: {' '.join(by_verdict['right'])}")
            for number in range(hold["right"])
        ),
        *((number, in_some) for number in range(hold["right"] + 1, in_part)),
        *(
            (number, f"Some hold in no case of today: even in part only {in_part} do.")
            for number in range(in_part + 1, len(TWELVE) + 1)
        ),
    ],
)

# %% slide="skip" folded=true
count(votes, found)

# %% folded=true
for words, these in (("your twelve", found), (f"all {len(CLAIMS)} sentences", every)):
    counts = ", ".join(f"{number} {verdict}" for verdict, number in these.counts().items())
    print(f"Of {words}: {counts}")
partly = [finding.kind for _, finding in found.rows if finding.verdict == "partly right"]
kinds = Counter(PART if kind.startswith(PART) else SOME for kind in partly)
print("Partly right of your twelve:", ", ".join(f"{n} {kind}" for kind, n in kinds.items()))

# %% [markdown] slide="notes"
# The counts depend on which sentences we chose, and on our rule that one case is enough for *in part*. A sentence stays
# *open* if the number that would decide it was never published, or if it cannot be measured.

# %% [markdown] slide="slide"
# ## Judge one yourself
#
# *GoogLeNet is smaller than AlexNet.* This course has not judged it. In what?

# %% [markdown] slide="notes"
# The weights, or the peak of a step? **Change what is counted, and the batch.** Write down your verdict and
# what the sentence should have said. Then judge a sentence of your own.

# %% tags=["change"]
# change what is counted, "weights" or "peak", and the batch
counted, batch = "weights", 128


def size(trace):
    ledger = trace.at(batch)
    return {"weights": ledger.by_role()["parameters"], "peak": ledger.peak_bytes}[counted]


number = size(traced(networks.googlenet)) / size(alexnet)
print(f"{counted}, batch {batch}: GoogLeNet has {number:.2f} times as many bytes as AlexNet")

# %% [markdown] slide="skip"
# <details><summary>Which verdict?</summary>
#
# First say what you count. By its weights it is right: it has a ninth of AlexNet's. (Its two auxiliary classifiers, left
# out here, would make it a fifth.) By the peak of a step (SGD with momentum, float32) it is partly right: up to 20
# images, not from 21 on, since an image's maps are larger. By its depth it is wrong. It should have said: *GoogLeNet
# has fewer weights; with up to 20 images it also trains in less memory.*
#
# </details>

# %% [markdown] slide="slide"
# ## Recap
#
# Of your twelve and of all sentences few survive as they are written, and many in part. Ask of each: **which part, of
# what, when, and on what condition?**

# %% slide="skip" folded=true
def folded(summary, table, **options):
    """A table of sentences, folded; sentences and their headings begin at the left."""
    rows = table.to_html(**options)
    for cell in ("th", "td"):
        rows = rows.replace(f"<{cell}>", f'<{cell} style="text-align: left">')
    return HTML(f"<details><summary>{summary}</summary>{rows}</details>")


kept = [{"said": one.text, "better": better[one.number]} for one, _ in found.rows]
folded("Your twelve, better said", pd.DataFrame(kept), index=False)

# %% [markdown] slide="skip"
# ## All of them
#
# Every sentence of the course but two, with its verdict (*cited*: a document decides, not a number).

# %% slide="skip" folded=true
pd.set_option("display.max_colwidth", None, "display.max_rows", None)
table = pd.DataFrame(
    [
        {"number": c.number, "verdict": f.told, "sentence": c.text, "source": c.source}
        for c, f in every.rows
        if c.number not in (39, 48)  # measured here, and so not the same twice
    ]
).set_index("number")
folded(f"The table: {len(table)} sentences", table)

# %% [markdown] slide="notes"
# The two are 39 and 48, which measure your machine. The next cell finds sentences by a word or a verdict; give some of
# their numbers to `judge`, and it shows the evidence.

# %% slide="skip" tags=["change"]
# change the word, or take a verdict such as "outdated"; then change the numbers
word = "AlexNet"
numbers = [16, 20]

said = table["sentence"].str.contains(word, case=False, regex=False)
table[table["verdict"].str.startswith(word) | said]

# %% slide="skip"
judge(numbers, links=True)
