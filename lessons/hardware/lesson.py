# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 02 · Which hardware, or none
#
# **The question:** what fits on this card, and what can I do without one?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say how many parameters a card trains, and what the old rule for it forgot;
# 2. say what a card's memory has to hold beside the parameters, and which card a step needs;
# 3. train a head on a frozen backbone where nothing larger fits;
# 4. choose between no card, a free, a rented and a used one, and choose again when prices change.
#
# About 150 minutes without *Further*, and {minutes} for the exercise. It builds on lessons 00 (the roles of memory, the
# trace) and 01 (bandwidth, arithmetic rate). No GPU is needed.

# %% slide="skip" folded=true
import copy
from textwrap import wrap

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import side_by_side, skyline
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device, devices
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import measure_step_time
from course_utils.networks import NETWORKS
from course_utils.recordings import gpu, sentence
from course_utils.techniques.capacity import largest_batch, with_room
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_seconds, format_share
from lessons.claims import judge
from lessons.hardware.claims import bytes_a_parameter
from lessons.hardware.explorer import hardware_explorer
from lessons.hardware.offers import (
    against_timings,
    buying,
    checks,
    duration,
    flips,
    more_for_a_dollar,
    offers,
    rent_range,
    rents_asked,
    speed,
    todays_context,
    usual_batch,
    what_they_buy,
    wide_resnet,
)
from lessons.shared import digits
from lessons.shared.digits import Variant, compare
from lessons.shared.language_steps import language_step
from lessons.shared.published import (
    HALVES,
    LENT,
    NEF,
    NEF_TIMES,
    RENTALS,
    TRAINED,
    USED,
    XEONS,
    published,
)

# %% [markdown] slide="slide"
# ## Part one: what fits

# %% [markdown] slide="notes"
# A GTX Titan of 2013, sold for 999 dollars, had 6,144 MiB of memory, 6 GiB. (Makers mostly write GB and mean GiB, 2³⁰
# bytes; the course writes GiB.) How large a network does it train?

# %%
guess = predict(
    "Keep 400 MiB of a card of 6,144 MiB free for the system. How many "
    "parameters, in millions, can you train in the rest, in float32 with "
    "momentum, if the inputs and the feature maps took no room at all?",
    unit="million",
)
guess

# %% [markdown] slide="subslide"
# A widely read text of the time, *Which GPU for deep learning* (Dettmers, 2014), gave a *capacity rule*: what a card
# trains, from its memory alone.

# %% [markdown] slide="notes"
# - Take the card's memory, and keep 400 MiB of it free.
# - A parameter in float32 takes 4 bytes.
# - Momentum keeps one number for every parameter: divide by 2.

# %%
room = (6144 - 400) * 1024 * 1024
print(f"left for the network      {room:>13,} bytes")
print(f"the rule of 2014, / (4·2) {room // (4 * 2):>13,} parameters")

# %% [markdown] slide="notes"
# Is that all? Train one layer for one step and count what is left of each kind.

# %% slide="subslide" tags=["change"]
# Change SGD to torch.optim.Adam(layer.parameters()): how many values of each weight now?
layer = nn.Linear(1000, 1000, bias=False)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
layer(torch.randn(1, 1000)).sum().backward()
optimizer.step()
state = [t for t in optimizer.state[layer.weight].values() if torch.is_tensor(t)]
kept = {"weight": layer.weight, "gradient": layer.weight.grad, "state": state}
for name, held in kept.items():
    count = sum(t.numel() for t in held) if name == "state" else held.numel()
    print(f"{name:9} {count / layer.weight.numel():.0f} of each")

# %% [markdown] slide="notes"
# The rule of 2014 counted weights and momentum, and forgot the *gradient*.

# %% folded=true
reveal(
    guess,
    {"corrected, / 12": room // 12 / 1e6, "rule of 2014, / 8": room // 8 / 1e6},
    thoughts=[
        (
            room / 8e6,
            "Weights and momentum: that is the rule of 2014. Each weight has a gradient too.",
        ),
        (room / 4e6, "Those are weights alone, to use the network and not to train it."),
        (
            room / 16e6,
            "Four values each: that is Adam, which keeps two averages.",
        ),
        (room / 20e6, "Five values each: that is Adam's peak, which comes next."),
        (room / 1e6, "Those are bytes; a value in float32 takes four."),
        *((room / n, "That is the number itself; the field takes millions.") for n in (8, 12)),
    ],
)

# %% [markdown] slide="subslide"
# **Adam** keeps two averages in place of one: `m` of the gradient, `s` of its square. Weight, gradient, two averages: 16
# bytes for each parameter, whatever the batch. The update needs one value more.

# %% [markdown] slide="notes"
# The update is `w = w - lr * m / (sqrt(s) + eps)`, and the root needs a tensor of its own. On a GPU PyTorch's default
# updates all parameters together, so for a moment there is a root for every one of them. A trace of a dense network shows
# the worst moment of the update:

# %%
for name, values in (("sgd", "w, g"), ("momentum", "w, g, v"), ("adam", "w, g, m, s")):
    size = 4 * len(values.split(", "))
    peak = bytes_a_parameter(name)
    count = int(room // peak)
    print(
        f"{name:<9} {values:<11} {size:>2} bytes, {peak:.0f} at the peak:", end=" "
    )
    print(f"{count / 1e6:,.0f} million parameters")
decaying = bytes_a_parameter(lambda w: torch.optim.SGD(w, 0.1, 0.9, weight_decay=1e-4))
print(f"momentum and weight decay: {decaying:.0f} at the peak, since gradients are copied")

# %% [markdown] slide="skip"
# (`torch.optim.Adam(..., fused=True)` updates in one kernel that needs no root. Lesson 14 counts with it.)

# %% [markdown] slide="slide"
# ## What both rules leave out
#
# The text tries its rule on a dense network: 9,000 inputs, then 4,000, 4,000 and 32 units, on a card of 1,536 MiB. Here
# is a trace of one step of it, with momentum and a batch of 128.

# %%
with torch.device("meta"):
    dense = networks.kaggle_mlp()
dense_step = training_step(dense, (9000,), 32, "momentum", name="52 M dense net")
skyline(dense_step.at(128), limit_bytes=1536 * MIB)

# %% [markdown] slide="skip"
# The step fits, as the text says; the dashed line leaves 512 MiB of the card to the driver. Feature maps are next to
# nothing here, so 12 bytes for each of 52,136,032 parameters should do. The trace has a little more: the
# batch, gradient maps, and scratch memory of cuBLAS, the library that multiplies matrices.

# %% slide="skip" folded=true
by_hand = 12 * 52_136_032
peak = dense_step.at(128).peak_bytes
side_by_side(
    {
        "rule of 2014": 8 * 52_128_000 / MIB,
        "corrected": by_hand / MIB,
        "trace, batch 128": peak / MIB,
    },
    title=f"With small maps the corrected rule comes within {abs(by_hand / peak - 1):.0%} "
    "of the trace",
    hollow="rule of 2014",
)

# %% [markdown] slide="subslide"
# Other networks are not like that. Their *feature maps*, the outputs of the layers, are kept from the forward pass to the
# backward pass, one set for every sample.

# %% [markdown] slide="notes"
# By the rule of 2014, a card of 6 GiB trains 753 million parameters. VGG-16, which classifies images, has 138 million.
# GPT-2, a small language model of 2019, has 124 million. It is a *transformer* (lesson 13). Its samples are texts of
# 1,024 *tokens*, pieces of words, and for each token it gives a score to each of 50,257 such pieces.
#
# How many samples fit?

# %% [markdown] slide="notes"
# Lesson 00 took 0.5 GiB for the driver's part of a card, the *context*. It differs from machine to machine, so from here
# on the course reckons with two: a *large* context, the most that was reported for the card's architecture (512 MiB at
# least), and a *small* one of 112 MiB, slightly below all reports.
#
# - A step *fits* if its tensors, the gaps between them and the scratch memory of kernels find room beside the large
#   context.
# - It *does not fit* if its tensors and the small context are more than the card.
# - Between the two it is *tight*: it may run or fail.


# %% slide="skip" folded=true
def traced(name, precision="float32", optimizer="momentum"):
    network = NETWORKS[name]
    with torch.device("meta"):
        module = network.build()
    return training_step(
        module, network.input_shape, network.classes, optimizer, precision, name=name
    )


steps = {name: traced(name) for name in NETWORKS}
steps["GPT-2"] = language_step("GPT-2", sequence=1024, numbers="float32", optimizer="momentum")

# %% folded=true
largest = {name: largest_batch(step, 6 * GIB) for name, step in steps.items()}
on_six = {name: found.fits for name, found in largest.items()}
print(f"VGG-16 fits this card with up to {on_six['VGG-16']} images in a batch.")
print(f"Above {largest['VGG-16'].tight} it does not fit; between the two it is tight.")

# %%
guess_texts = predict(
    "And GPT-2, which has fewer parameters? Up to how many texts fit on the same card?",
    unit="texts",
)
guess_texts

# %% folded=true
reveal(
    guess_texts,
    {"GPT-2": on_six["GPT-2"]},
    thoughts=[
        (
            on_six["VGG-16"],
            "As many as images? Parameters do not tell how large the maps are.",
        ),
        (
            1.1 * on_six["VGG-16"],
            "A few more, for fewer parameters? It is the maps that count.",
        ),
        *(
            (texts, "You expected a text to need more than an image. It needs even more.")
            for texts in (5, 10, 20, 30)
        ),
        *(
            (texts, "Fewer parameters, so more samples? It is the maps of a text that count.")
            for texts in (50, 60, 75, 100, 120, 150, 200, 250, 300, 400, 500)
        ),
    ],
)

# %% [markdown] slide="notes"
# The rule in full is an estimate:
#
# > bytes a parameter · parameters + what a further sample adds · batch ≤ card − context
#
# Count 12 bytes a parameter with momentum. With Adam count 16, and see that 20 fit without any maps, for the update. Here
# with momentum and a context of 512 MiB:

# %% folded=true
def by_rule(step, card, up_to):
    """Parameters, what a further sample adds, batch by the rule, gradients at the peak."""
    at_peak = step.at(up_to)
    parameters = int(at_peak.by_layer()["parameters"].sum())
    sample = step.at(up_to + 1).peak_bytes - at_peak.peak_bytes
    batch = int((card - 512 * MIB - 12 * parameters) // sample)
    return parameters, sample, batch, at_peak.by_role()["weight gradients"] / (4 * parameters)


rows = []
for name, step in steps.items():
    parameters, sample, batch, there = by_rule(step, 6 * GIB, on_six[name])
    sizes = format_bytes(12 * parameters), format_bytes(sample)
    alone = with_room(step, 6 * GIB, 512 * MIB)
    batches = f"{batch:,}", f"{alone:,}", f"{on_six[name]:,}"
    rows.append((name, f"{parameters:,}", *sizes, *batches, f"{100 * there:.0f} %"))
columns = ["parameters", "· 12 bytes", "a further sample", "rule in full", "tensors alone"]
columns += ["fits up to", "gradients there at the peak"]
pd.DataFrame(rows, columns=["network", *columns]).set_index("network")

# %% slide="skip" folded=true
small = 1536 * MIB
up_to = largest_batch(dense_step, small).fits
parameters, _, batch, there = by_rule(dense_step, small, up_to)
print("On a card of 1,536 MiB")
print(f"  the dense net, momentum: by the rule {batch:,}, fits up to {up_to:,};", end=" ")
print(f"{100 * there:.0f} % of the gradients are there at the peak")
parameters, up_to = 61_100_840, largest_batch(traced("AlexNet", optimizer="adam"), small).fits
sizes = [format_bytes(size) for size in (16 * parameters, 20 * parameters, small - 512 * MIB)]
print(f"  AlexNet, Adam: 16 bytes a parameter are {sizes[0]},", end=" ")
print(f"20 are {sizes[1]}, beside the context there are {sizes[2]}: fits up to {up_to}")

# %% slide="skip" folded=true
texts = on_six["GPT-2"]
some, more = (steps["GPT-2"].at(n) for n in (texts, texts + 1))
asked, scores = more.requests, 4 * 1024 * 50_257  # bytes: a value in float32 for each pair
there = (asked.birth <= more.peak_event) & (asked.death > more.peak_event)
count = int((there & (asked.size == (texts + 1) * scores)).sum())
kept = [one.by_layer().set_index("layer")["saved feature maps"] for one in (some, more)]
in_layers = (kept[1] - kept[0]).filter(like="layers.").sum()
print(f"A further text of GPT-2: {format_bytes(more.peak_bytes - some.peak_bytes)}")
print(f"  {count} maps of 1,024 × 50,257 at the peak: {format_bytes(count * scores)}")
print(f"  maps kept by the 12 layers before: {format_bytes(in_layers)}")

# %% [markdown] slide="notes"
# At the peak of GPT-2 four maps have a value for each
# token and each piece of a word: the scores, their log-probabilities, and a gradient of each. These four take more than
# the maps of all the layers before, if attention is fused, as here (lesson 13).
#
# The rule errs either way. It adds all gradients to all maps, although at four of these peaks few gradients are there: so
# it can ask too much. It leaves out gaps and the scratch memory of convolutions: so it can ask too little. The column
# *tensors alone* leaves these two out as well and comes near the rule. The column *fits up to* allows for them.

# %% [markdown] slide="slide"
# ## What the driver takes
#
# The 400 MiB of 2014 were a buffer. Some buffer is needed, often a larger one: for every process the driver and the
# libraries load code onto the card, its context. To measure it, run a step with no other program on the card, then:
#
# ```python
# free, total = torch.cuda.mem_get_info()
# context = total - free - torch.cuda.memory_reserved()
# ```

# %% [markdown] slide="notes"
# Today kernels are loaded *lazily*, each when it is first used: PyTorch has asked for that since CUDA 11.7. Before, they
# were loaded *eagerly*, all at once. Stas Bekman tried both with the same card and the same PyTorch, for his *Machine
# Learning Engineering*:

# %% folded=true
seen = pd.DataFrame(reports())[["name", "year", "loading", "mib"]]
seen.columns = ["card", "reported", "kernels are loaded", "context, MiB"]
same = seen["card"].str.startswith("A100, PyTorch 2.1.1")
seen[same].set_index("card")

# %% [markdown] slide="notes"
# 940 or 479 MiB: how kernels are loaded can nearly double the context. The tables above know a card by its 6 GiB alone
# and allow 512 MiB. From here on, cards are compared as today's PyTorch runs on them, lazily: with the most that was
# reported so for their architecture, at least 512 MiB. (An old PyTorch takes more: *Further*. How often the verdicts are
# wrong: lesson 03.)

# %% [markdown] slide="slide"
# ## Explore
#
# **Which card do I need?**

# %% [markdown] slide="notes"
# The vertical line is the traced peak plus the small context. A card with a blue dot holds the step; on an orange one it
# is tight, on an empty one it does not fit. Prices are those at launch, blank where nobody confirmed one.
#
# Memory alone decides here. Not every card of the list runs today's PyTorch: the GTX Titan, K40 and K80 do not (they have
# the eager context of their time), and the others older than the RTX 2080 need its builds for CUDA 12.6 (*Further*).
# Before each move, say which card drops out next.

# %% tags=["nbval-ignore-output"]
hardware_explorer()

# %% [markdown] slide="skip"
# Try two things. What does the move from momentum to Adam cost the dense net, and what does it cost VGG-16? Which card
# suffices to train ResNet-50 with a batch of 256, and which for inference (optimizer: none)?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# 1. The dense net needs two thirds more: it is nearly all parameters, and each takes 20 bytes at the peak in place of
#    12. VGG-16 at batch 80 grows by its second average alone, about a fourteenth: its peak is in the backward pass, among
#    the maps, and the values that Adam's update makes come later.
# 2. Training at batch 256 takes a card of 24 GiB or more; for inference the GTX Titan's 6 GiB will do.
#
# </details>
#
# That was part one. Here is a good place for a break.

# %% [markdown] slide="slide"
# ## Part two: without a card, or for little
#
# Nothing fits, or there is no card? Take a network that somebody else has trained on a large data set.

# %% [markdown] slide="notes"
# You keep its layers as they are, a *frozen backbone*, and train only a new last layer, the *head*. This is *transfer
# learning*.
#
# What does freezing save? A frozen parameter gets no gradient and no optimizer state. And if no gradient is needed
# below the head, nothing needs the feature maps there.


# %% slide="skip" folded=true
def vgg(trained):
    """VGG-16 at batch 64, of which the named layers are trained; all of them for None."""
    with torch.device("meta"):
        model = networks.vgg16()
    for name, layer in model.named_children():
        layer.requires_grad_(trained is None or name in trained)
    return training_step(model, (3, 224, 224), 1000, "momentum", name="VGG-16").at(64)


everything, head = vgg(None), vgg({"fc8"})

# %%
guess_frozen = predict(
    f"VGG-16, batch 64, momentum: training all of it peaks at "
    f"{everything.peak_bytes / GIB:.2f} GiB, of which {format_bytes(4 * 138_357_544, 0)} are "
    "weights. What is the peak if all but the last dense layer is frozen?",
    unit="GiB",
)
guess_frozen

# %% folded=true
weights = 4 * 138_357_544
momentum = 4 * (4096 * 1000 + 1000)
hand = weights + momentum + 64 * 4 * (3 + 2 * 64) * 224 * 224
reveal(
    guess_frozen,
    {
        "trace": head.peak_bytes / GIB,
        "by hand": hand / GIB,
        "everything trained": everything.peak_bytes / GIB,
    },
    thoughts=[
        (
            everything.peak_bytes / GIB,
            "As much as before? A frozen layer below the head keeps no map: nobody asks for a "
            "gradient there.",
        ),
        (
            everything.peak_bytes / GIB - 2 * weights / GIB,
            "You took off gradients and momentum, and left the maps. They go too.",
        ),
        (
            weights / GIB,
            "Those are the weights. While the backbone runs, two maps are there too.",
        ),
        (weights / MIB, "Those are the weights alone, in MiB; the field takes GiB."),
        (
            (hand - 64 * 4 * 64 * 224 * 224) / GIB,
            "Weights and one map? While a layer runs, its input and output are both there.",
        ),
        (
            (weights + 2 * momentum) / GIB,
            "Weights, and the head's gradient and momentum. While the backbone runs, two maps "
            "at a time are there too.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# By hand: all weights, the head's momentum (16 MiB), the images, and the *two* largest maps: a layer's input is freed
# once its output is there.

# %% [markdown] slide="notes"
# The peak has moved to the forward pass, where the head has no gradient yet. The trace has 16 MiB more: two buffers that
# PyTorch sets aside for cuBLAS, of 8 MiB each on cards before the H100.

# %% folded=true
skyline(
    head,
    before=everything,
    before_name="everything trained",
    title=f"Head alone: {format_bytes(head.peak_bytes)} in place of "
    f"{format_bytes(everything.peak_bytes)}, and the peak is in the {head.peak_phase} pass",
)

# %% [markdown] slide="skip"
# Below the head the trace finds nothing that training keeps, except the head's own input (4,096 values an image):

# %% slide="skip"
table = head.by_layer().set_index("layer").drop(index=["fc8", "loss"], errors="ignore")
kinds_of_memory = ["saved feature maps", "gradient maps", "weight gradients"]
print(table[kinds_of_memory].sum().map(format_bytes).to_string())

# %% [markdown] slide="subslide"
# **Does it matter *where* you freeze?** Now train the *first* layer alone, `conv1_1` with its 1,792 parameters, and
# freeze all the others.

# %%
guess_first = predict(
    "VGG-16, batch 64, only conv1_1 trained: what is the peak?",
    unit="GiB",
)
guess_first

# %% folded=true
first_layer, dense_layers = vgg({"conv1_1"}), vgg({"fc6", "fc7", "fc8"})
reveal(
    guess_first,
    {
        "first layer alone": first_layer.peak_bytes / GIB,
        "head alone": head.peak_bytes / GIB,
        "the three dense layers": dense_layers.peak_bytes / GIB,
        "everything trained": everything.peak_bytes / GIB,
    },
    thoughts=[
        (
            head.peak_bytes / GIB,
            "As little as the head alone? The gradient has to come down through every layer.",
        ),
        (
            everything.peak_bytes / GIB,
            "As much as everything? The frozen layers have no gradient and no momentum.",
        ),
        (
            (everything.peak_bytes - weights) / GIB,
            "You took off the gradients of the frozen weights or their momentum: both go.",
        ),
        (weights / GIB, "Those are the weights. The gradient passes through all the maps."),
    ],
)

# %% [markdown] slide="notes"
# A gradient that has to reach the first layer passes through all the others, frozen or not. For that the ReLUs keep
# their outputs and the pools the indices of their winners. A frozen convolution would need its weights alone, but
# PyTorch keeps its input too, here the outputs of ReLUs and pools. So nearly all maps stay. The gradients and the
# momentum of the frozen weights go.
#
# Near the top, training more is cheap: at this batch all three dense layers cost only the momentum of two more than the
# head alone.
#
# Between the head alone and everything lies *LoRA*, small trained matrices beside frozen layers. Lesson 14 trains a
# language model of 8 billion weights this way.

# %% [markdown] slide="subslide"
# **Run the backbone once.** In `eval()` mode, where no dropout acts, a frozen backbone gives the same answer to the same
# image in every epoch.

# %% [markdown] slide="notes"
# So run it once, store its output, and train the head on these *cached features*. Here is what the head then needs, and
# how large the store is for ImageNet:

# %%
with torch.device("meta"):
    alone = training_step(nn.Linear(4096, 1000), (4096,), 1000, "momentum", name="head").at(64)
images = 1_281_167  # of ImageNet, 1,000 classes
print(f"head on a frozen backbone: {format_bytes(head.peak_bytes)}")
print(f"head on cached features:   {format_bytes(alone.peak_bytes)}")
print(f"the store:                 {format_bytes(images * 4096 * 4)}, on disk")

# %% [markdown]
# The price: every epoch sees the same features. *Data augmentation*, which crops or flips images at random, is out,
# unless several versions are stored.

# %% [markdown] slide="subslide"
# **A trap: batch norm is not frozen by freezing its weights.** `requires_grad_(False)` stops gradients. It does not stop
# a batch norm from updating its *running statistics* whenever it runs in training mode:

# %%
torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).requires_grad_(False)
probe, batches = torch.randn(1, 3, 16, 16), 3 + 2 * torch.randn(20, 32, 3, 16, 16)


def drift(in_training):
    """How far the frozen body's answer to one image moves over 20 batches of other images."""
    net = copy.deepcopy(body)
    before = net.eval()(probe)
    net.train(in_training)
    for batch in batches:
        net(batch)
    return 100 * float((net.eval()(probe) - before).abs().max() / before.abs().max())


print("the answer to one image moves, in per cent of its largest value, by up to")
print(f"{drift(True):2.0f} % in train(), as model.train() leaves it")
print(f"{drift(False):2.0f} % in eval(), called after model.train()")

# %% [markdown] slide="notes"
# So a frozen backbone takes two lines: `backbone.requires_grad_(False)`, and `backbone.eval()` after each
# `model.train()`. (How far the answer moves depends on the images.)

# %% [markdown] slide="subslide"
# **Does the head learn enough?** Real handwritten digits, enlarged to 16 × 16 pixels. A backbone of three convolutions is
# trained on the digits 0 to 4.

# %% [markdown] slide="notes"
# Then the digits 5 to 9, which it has never seen, are learned: everything from scratch; the head alone on the frozen
# backbone; and as controls, the head alone on a backbone of random weights, and on one whose outputs are made as large as
# the pretrained one's.


# %% slide="skip" folded=true
def backbone():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    )  # fmt: skip


def with_head(body):
    return nn.Sequential(body, nn.Linear(32 * 4 * 4, 10))


def head_alone(body):
    return with_head(copy.deepcopy(body).requires_grad_(False))


@torch.no_grad()
def as_large(body):
    # outputs as large as the pretrained one's: a ReLU and a pool keep factors above zero
    factor = pretrained[0](x).std() / body(x).std()
    for parameter in body[5].parameters():
        parameter *= factor
    return body


# %% tags=["nbval-ignore-output"] folded=true
x, y, test_x, test_y = digits.only(range(5))
torch.manual_seed(0)
pretrained = with_head(backbone())
optimizer = torch.optim.Adam(pretrained.parameters(), lr=3e-3)
for _ in range(5):
    for batch in torch.randperm(len(x)).split(32):
        nn.functional.cross_entropy(pretrained(x[batch]), y[batch]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
print(f"0 to 4, test images right: {100 * digits.accuracy(pretrained, test_x, test_y):.0f} %")

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
trained_on_digits = compare(
    {
        "everything, from scratch": Variant(lambda: with_head(backbone()), batch=32),
        "head alone, frozen backbone": Variant(lambda: head_alone(pretrained[0]), batch=32),
        "head alone, random backbone": Variant(lambda: head_alone(backbone()), batch=32),
        "the same, outputs as large": Variant(
            lambda: head_alone(as_large(backbone())), batch=32
        ),
    },
    epochs=5,
    seeds=(0, 1),
    data=digits.only(range(5, 10)),
)

# %% tags=["nbval-ignore-output"]
formats = dict.fromkeys(["traced peak", "measured peak"], format_bytes)
formats["epoch seconds"] = format_seconds
formats |= dict.fromkeys(["accuracy", "lowest", "highest"], format_share)
pd.DataFrame({name: trained_on_digits[name].map(write) for name, write in formats.items()})

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
whole, frozen = (trained_on_digits.loc[name] for name in trained_on_digits.index[:2])
for kind in ("traced peak", "measured peak", "epoch seconds"):
    print(f"freezing saved {100 * (1 - frozen[kind] / whole[kind]):.0f} % of the {kind}")
traces = [
    training_step(net, (1, 16, 16), 10, "adam").at(32)
    for net in (head_alone(pretrained[0]), with_head(backbone()))
]
less, all_of_it = (predict_step(trace, "T4").flops.sum() for trace in traces)
print(f"and {100 * (1 - less / all_of_it):.0f} % of a step's operations")
with digits.one_thread():
    torch.backends.mkldnn.enabled = False  # oneDNN, which computes convolutions on a CPU
    without = measure_step(head_alone(pretrained[0]), (1, 16, 16), 10, 32, "adam", "cpu")
    torch.backends.mkldnn.enabled = True
print(f"measured peak of the frozen one without oneDNN: {format_bytes(without.peak_bytes)}")
with torch.no_grad():
    times = float(pretrained[0](x).std() / backbone()(x).std())
print(f"outputs of the pretrained backbone: {times:.0f} times as large as of a random one")

# %% [markdown] slide="notes"
# Freezing takes away the backbone's backward pass: about two thirds of a step's operations. (How much of the time that is
# depends on the machine.) The measured peaks are above the traced ones by scratch memory of oneDNN, PyTorch's library of
# convolutions on a CPU: without it they agree.
#
# Two seeds cannot show whether freezing costs accuracy here: with the frozen backbone they differ by more than the two
# means do. Nor does this run show that the backbone's training helps. With random weights the head falls far behind, but
# it is their small outputs that hold it back, at this learning rate: made as large, they serve about as well. For digits,
# it seems, a head and random convolutions are enough. Of harder pictures this says nothing.

# %% [markdown] slide="slide"
# ## Three budgets
#
# What does it take to train ResNet-50 on ImageNet, 90 epochs, 115 million images? And which hardware would you choose for
# nothing, for 300 dollars, for 1,000?

# %% [markdown] slide="notes"
# - **No card:** your CPU. The table has two Xeons of 2014, timed in 2016 or 2017.
# - **Nothing:** Kaggle lends two T4s for 30 hours a week. A program uses one of them unless it is written for both
#   (lesson 11). Colab lends a T4 when one is free, for at most 12 hours at a time.
# - **300 dollars:** cards by the hour, at the rents of one seller on one day: RunPod Community, July 2025.
# - **1,000 dollars:** a used RTX 3090 too. Guides of 2026 give 500 to 1,000 dollars; a computer around it costs about 500
#   more (local-llm.net).
#
# To read the table:
#
# - *Samples a second* are those of lesson 01's model in float32, at batch 256 or the largest that fits. Where somebody
#   timed the card, they are divided by *model / timed*, how much too fast the model was (with another network, if one is
#   named). A *largest batch* of 0 rules a card out (lesson 07 cuts batches into pieces).
# - *Mixed, timed* is how many times as fast mixed precision was: 16-bit numbers where they suffice (lesson 08).
# - *Days* and *dollars* are those of float32, then of mixed precision, around the clock; on Kaggle 30 hours a week.
# - An hour on your own card costs electricity and a share of the money you lose in two years at 20 hours a week: half of
#   500 dollars for a cheap card in a computer you have, half of 1,500 for a dear card and a new computer.

# %% slide="skip" folded=true
with torch.device("meta"):
    wide = wide_resnet()
timed_steps = {
    "ResNet-50": traced("ResNet-50"),
    "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam"),
}
known = checks(timed_steps)

# %% tags=["change"]
# Change it to your task and to tomorrow's prices, and run the cells below again.
name, most, million = "ResNet-50", 256, 115  # of NETWORKS; batch at most; millions of samples
rents = {"RTX 3090": 0.22, "V100": 0.19, "RTX 4090": 0.34, "RTX 5090": 0.69, "H100 SXM": 2.69}
card, prices, computer = "RTX 3090", (500, 1000), 500  # a used card from, to; one to put it in
weekly, weeks, back = 20, 104, 0.5  # hours, two years; share of what you paid that comes back
watts, around, kwh = 350, 100, 0.20  # of the card; of its computer (a guess); dollars a kWh

task, power = traced(name), (watts + around) / 1000 * kwh
paid = prices[0], prices[1] + computer
owned = {usd: usd * (1 - back) / (weekly * weeks) + power for usd in paid}
what_they_buy(task, most, million, offers(rents, card, owned, kwh), known)

# %% [markdown] slide="notes"
# The 90 epochs cost 14 dollars on a rented RTX 3090 and 8 in mixed precision. With 150 GB of storage, 2 cents an hour,
# 300 dollars pay for 35 such runs. For nothing, one T4 takes 26 days in mixed precision, and both 13 at least, if the
# CPU cores decode 580 images a second (half as many for one). The Xeons take 1.5 years by their old timing, and their
# electricity at 0.17 kW, 450 dollars, is more than any other row costs.
#
# The ranking is one of these cards alone, and of this network. In mixed precision a V100 is a tie (within a tenth) by
# Lambda's timings of both. (By NVIDIA's it would lead, but there is none of an RTX 3090.) It has 16 GB, no bfloat16, and
# needs PyTorch's builds for CUDA 12.6. An RTX A5000 of 24 GB, 0.16 an hour, is a tie
# too: Lambda ran it in 2021, 78 to 79 % as fast as the RTX 3090 of 2023. If 24 GB are too few, RunPod asked 0.33 for an
# RTX A6000 of 48 GB and 1.19 for an A100 of 80.
#
# How much training of a transformer does a dollar buy, beside an RTX 3090 (1.00)?

# %% slide="subslide" folded=true
more_for_a_dollar(rents)

# %% [markdown] slide="notes"
# On an RTX 4090 4 to 22 % more, and sooner. On a V100 more only of BERT, and only in mixed precision.
#
# <details><summary>How good are the speeds?</summary>The model is within a sixth of the timings of the RTX cards, the
# V100 and, with another network, the T4; of the H100 and the Xeons it is further off. The RTX 5090's timing does not
# name its image size; on the same page the RTX 3090 and 4090 are 3 to 8 % slower than by Lambda's at 224 × 224. The
# T4's gain is from one run on CIFAR-10 in 2019; for ResNet-50 Inria found about twice the speed of float32 on several
# cards, a T4 among them. On cards from 2020 on, float32 convolutions run by default on tensor cores in *TF32*, at half
# the rate of float16, but dense layers do not: for a network of those the table promises too much. The timed V100 draws
# up to 300 W; which kind RunPod rents out, its list does not say. Two T4s are taken to be twice as fast as
# one.</details>

# %% [markdown] slide="subslide"
# **No card at all.** When is a CPU enough? A head on cached features needs one forward pass of each image.

# %% [markdown] slide="notes"
# Your own CPU, timed now with ResNet-50 (the stored copy: two cores, busy with other work), beside the others, all
# without a break:

# %% tags=["nbval-ignore-output"] folded=true
images = 10_000  # of your own
with torch.device("meta"):
    forward = training_step(networks.resnet50(), (3, 224, 224), 1000, None, name="ResNet-50")
resnet = networks.resnet50()
timed_here = [
    measure_step_time(resnet, (3, 224, 224), 1000, 4, optimizer, "cpu").step.median
    for optimizer in (None, "momentum")
]
kinds = forward, timed_steps["ResNet-50"]
(xeons,) = published("ResNet-50", XEONS)
a_second = {
    "this CPU": [4 / seconds for seconds in timed_here],
    XEONS: [1e3 * xeons.batch / ms for ms in (xeons.forward_ms, xeons.both_ms)],
}
for one in ("T4", "RTX 3090"):
    size = usual_batch(kinds[1], most, one)
    a_second[f"{one}, float32"] = [speed(step, size, one, known) for step in kinds]
threads = torch.get_num_threads()
days = 115e6 / (16 / threads * a_second["this CPU"][1]) / 86_400
print(f"ImageNet, if 16 cores are {16 / threads:g} times as fast as these {threads}:", end=" ")
print(f"{days:,.0f} days, {days * 24 * 0.17 * kwh:,.0f} dollars at 0.17 kW")
tasks = {
    "a head on cached features, 10,000 images": (0, images),
    "everything, 10,000 images, 10 epochs": (1, 10 * images),
    "everything, ImageNet, 90 epochs": (1, 115e6),
}
pd.DataFrame(
    {
        on: {what: duration(count / rates[kind]) for what, (kind, count) in tasks.items()}
        for on, rates in a_second.items()
    }
)

# %% [markdown] slide="notes"
# By the published times a head on 10,000 images takes the Xeons 26 minutes (and its own epochs on the features): a CPU
# is enough. All layers for 10 epochs take them 12 hours and a T4 11 minutes: borrow one. Their timing is old; the
# printed line is for cores like yours and today's software, at best.

# %% [markdown] slide="subslide"
# **What would turn the choice over?** The prices are of few sellers, each on one day (*Further*). Below which rents does
# another card train more for a dollar?

# %% slide="skip" folded=true
flips(task, most, rents, known)

# %% [markdown] slide="notes"
# In mixed precision the V100's rent is below its limit, 0.19 against 0.20: a tie.
#
# And when is your own card cheaper than the same card rented? Read *54 h; 63 %* so: if you cannot sell it, the card has
# to work 54 hours a week for two years; if it works your 20, you need 63 % of your money back when you sell. (44 hours
# and 54 % without the computer's 100 W.) Storage is left out. To keep 150 GB rented for two years, at 2 cents an hour,
# would cost 350 dollars.

# %% folded=true
buying(prices, computer, rents_asked(card), power, weekly, weeks)

# %% [markdown] slide="notes"
# At the highest rent, 20 hours a week pay for a card of 500 dollars even if nothing comes back, in a computer that you
# have.

# %% [markdown] slide="subslide"
# The decision, at these prices:
#
# - **No card:** your CPU, for a head on cached features.
# - **Nothing:** a T4 in mixed precision; save often.
# - **300 dollars:** free until the code works. Then rent an RTX 4090; for convolutions an RTX 3090 ties.
# - **1,000:** the same, or a used card with enough hours.

# %% [markdown] slide="notes"
# Of two sellers, one with two tiers, an RTX 4090 costs 1.5 to 1.6 times as much as an RTX 3090, between 7 and 15 % more
# an image of ResNet-50. Put in both rents of RunPod Secure, 0.43 and 0.69: does the decision change?
#
# **Before you pay.** *To buy:* has the power supply the watts and the plugs (an RTX 3090 draws 350 W), has the case the
# length, the slots and the air? See a used card train for half an hour without errors. *To rent:* a private host or a
# spot machine can be taken away: keep checkpoints elsewhere. Count its CPU cores, which decode the images, and what
# storage costs while it is off. *To ask:* a university's cluster, or credits for students, may cost nothing.

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from a blog of 2014 and a column of 2020, in our words, with where they were published.

# %%
judge([13, 14, 17, 18, 47])

# %% [markdown] slide="skip"
# The other claims about hardware are in [appendix A](A_myths_and_facts.ipynb).

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A float32 parameter takes 12 bytes with momentum (16 in updates with weight decay), with Adam 16 (20 in updates).
# 2. Freezing saves gradients and state. Below the lowest trained layer no map is kept; above it, in VGG-16, nearly all
#    are.
# 3. Free first, then rent by samples a dollar; buy for enough hours.

# %% [markdown] slide="skip"
# ## Further

# %% [markdown] slide="skip"
# **Contexts.** Of some cards programs see only a part; the course allows for
# that where a source gives the number. (Which old cards run today's PyTorch: its pull request 101187, and issue 190385.)

# %% slide="skip" folded=true
mib = seen["context, MiB"]
print(f"{len(seen)} reports, {mib.min():,.0f} to {mib.max():,.0f} MiB;", end=" ")
print(f"the small context is {format_bytes(context().least, 0)}")
for name in ("RTX 3090", "RTX 4090", "RTX 5090", "GTX Titan"):
    print(f"allowed for, {name}: {format_bytes(todays_context(device(name)).most)}")
for loading in ("eager", "lazy"):
    taken = context(device("RTX 3090"), loading)
    up_to = largest_batch(steps["VGG-16"], device("RTX 3090"), taken).fits
    print(f"RTX 3090, {loading} loading, the most reported of an Ampere card:", end=" ")
    print(f"{format_bytes(taken.most)}, VGG-16 fits up to {up_to}")
t4 = device("T4")
print(f"of a T4's {t4.memory_gb:g} GiB a program sees {t4.usable_gb:g},", end=" ")
print("and its context comes out of these")

# %% [markdown] slide="skip"
# **What cards cost.** The catalogue of the course, prices at launch in the dollars of the year, rents on the day they
# were noted. *Halves* are 16-bit numbers (lesson 08). A cell is empty where nobody confirmed a value.

# %% slide="skip" folded=true
rented = pd.DataFrame(RENTALS)
rows = []
for card in devices():
    half = max(card.float16_tflops or 0, card.tensor_tflops or 0)
    price = card.launch_usd
    rows.append(
        {
            "card": f"{card.name}{', two dies' if card.dies > 1 else ''}, {card.year}",
            "GB, as sold": card.memory_gb * card.dies,
            "GB/s": card.bandwidth_gb_s * card.dies,
            "TFLOP/s, float32": card.float32_tflops * card.dies,
            "halves": f"{half * card.dies:g}" if half else "",
            "dollars": "" if price is None else f"{price:,.0f}",
            "dollars an hour": f"{rent_range(card.name)[0]:.2f}"
            if card.name in set(rented["device"])
            else "",
        }
    )
catalogue = pd.DataFrame(rows).set_index("card")
numbers = dict.fromkeys(["GB, as sold", "GB/s", "TFLOP/s, float32"], "{:g}".format)
catalogue.assign(**{k: catalogue[k].map(f) for k, f in numbers.items()})

# %% slide="skip" folded=true
for source, of in rented.groupby("source", sort=False):
    names, days = (", ".join(sorted(set(of[column]))) for column in ("device", "seen"))
    print(f"an hour of {names}: {source}, {days}")
for one in LENT:
    print(f"{one.cards} x {one.device}, lent: {one.source}, {one.seen}")
for one in USED:
    asked = f"{one.low_usd:,} to {one.high_usd:,} dollars"
    print(f"{one.device}, used, {asked}: {one.source}, {one.seen}")
for row in (*TRAINED, *(row for row in HALVES if row.network == "ResNet-50"), xeons):
    print(f"speed, {row.network}, {row.device}, batch {row.batch}: {row.source}")
print(f"mixed precision, ResNet-50, a T4 among five cards, about {NEF_TIMES} times: {NEF}")

# %% [markdown] slide="skip"
# **The yardstick against every timing**, in samples a second at the batch that was timed, and what mixed precision gains:

# %% slide="skip" folded=true
halves = {
    "ResNet-50": traced("ResNet-50", "float16"),
    "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam", "float16"),
}
against_timings(timed_steps, halves)

# %% [markdown] slide="skip"
# The budgets take the gain that was timed: 1.8 times as fast was timed on the T4, the model has 5.6. NVIDIA's A100 has
# 80 GB and faster memory, Lambda's 40 GB as in the catalogue. Where two timed a card, the budgets take Lambda's.

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
source = gpu()
if source is not None:
    print(f"context, libraries loaded: {format_bytes(source.context().context_bytes)}")
print(*wrap(sentence(source), 90), sep="\n")

# %% [markdown] slide="skip"
# Now the exercise: [exercises/02_hardware.ipynb](../exercises/02_hardware.ipynb). {questions}. Save,
# then `course check 02` gives your marks.
