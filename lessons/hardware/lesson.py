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
# 4. choose between no card, a free, a rented and a used one, and again when prices change.
#
# About 150 minutes without *Further*, and {minutes} for the exercise. It builds on lessons 00 (the roles of memory, the
# trace) and 01 (bandwidth, arithmetic rate). No GPU is needed. All cards here are NVIDIA's.

# %% slide="skip" folded=true
import copy
from bisect import bisect_right
from textwrap import fill

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils import networks
from course_utils.figures import skyline
from course_utils.machine.context import context, reports
from course_utils.machine.hardware import device, devices
from course_utils.machine.measure import measure_step
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import measure_step_time
from course_utils.networks import NETWORKS
from course_utils.recordings import gpu, sentence
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, format_bytes, format_share
from lessons.claims import judge
from lessons.hardware.buying import (
    Rent,
    buying,
    electricity,
    pays_from,
    rents_asked,
    used_prices,
)
from lessons.hardware.claims import bytes_a_parameter
from lessons.hardware.explorer import hardware_explorer
from lessons.hardware.measured_here import (
    HEIGHT,
    WIDTH,
    best_steps,
    decoded_a_second,
    photograph,
)
from lessons.hardware.offers import (
    COMPARED,
    SMALL_CARDS,
    against_timings,
    as_it_runs,
    card_named,
    checks,
    choices,
    duration,
    flips,
    gain,
    offers,
    rent_range,
    same_work,
    speed,
    spread,
    timed,
    timed_before,
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
    KAGGLE_CORES,
    KAGGLE_CORES_SOURCE,
    LENT,
    NEF,
    NEF_TIMES,
    RENTALS,
    TIMED_AGAIN,
    TRAINED,
    USED,
    XEONS,
    published,
)

# %% [markdown] slide="slide"
# ## Part one: what fits
#
# How large a network does a card train? *Which GPU for deep learning* (Dettmers, 2014) gave a *capacity rule*, from the
# card's memory alone.

# %% [markdown] slide="notes"
# - Take the card's memory, and keep 400 MiB of it free.
# - A parameter in float32 takes 4 bytes.
# - Momentum keeps one number for every parameter: divide by 2.
#
# Try it on a GTX Titan of 2013: 6,144 MiB, 6 GiB. (Makers mostly write GB and mean GiB, 2³⁰ bytes; the course writes
# GiB.)

# %%
room = (6144 - 400) * 1024 * 1024
print(f"left for the network      {room:>13,} bytes")
print(f"the rule of 2014, / (4·2) {room // (4 * 2):>13,} parameters")

# %% [markdown] slide="notes"
# What did the rule forget? Train one layer for one step and count what is left of each kind.

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
# The rule counted weights and momentum, and forgot the *gradient*: 12 bytes a parameter, not 8.

# %% [markdown] slide="subslide"
# **Adam** keeps two averages in place of one sum: `m` of the gradient, `s` of its square. Weight, gradient, two averages:
# 16 bytes for each parameter, whatever the batch. The update needs one value more.

# %% [markdown] slide="notes"
# The update is `w = w - lr * m / (sqrt(s) + eps)`, bias correction left out, and the root needs a tensor of its own. On a
# GPU PyTorch's default updates all parameters together: for a moment there is a root for each. A trace of a dense
# network shows the worst moment:

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
adams = bytes_a_parameter(lambda w: torch.optim.Adam(w, 1e-3, weight_decay=1e-4))
print(f"with weight decay, which copies gradients: momentum {decaying:.0f}, Adam {adams:.0f}")

# %% [markdown] slide="skip"
# (`torch.optim.Adam(..., fused=True)` updates in one kernel that needs no root. Lesson 14 counts with it.)

# %% [markdown] slide="slide"
# ## What the corrected rule leaves out
#
# The text of 2014 tries its rule on a dense network: 9,000 inputs, then 4,000, 4,000 and 32 units, on a card of 1,536 MiB. Here
# is a trace of one step of it, with momentum and a batch of 128.

# %%
with torch.device("meta"):
    dense = networks.kaggle_mlp()
dense_step = training_step(dense, (9000,), 32, "momentum", name="52 M dense net")
skyline(dense_step.at(128), limit_bytes=1536 * MIB)

# %% [markdown] slide="skip"
# The step fits; the dashed line leaves 512 MiB of the card to the driver. Feature maps are next to nothing here, so 12
# bytes for each of 52,136,032 parameters should do. The trace has a little more: the batch, gradient maps, and scratch
# memory of cuBLAS, the library that multiplies matrices.

# %% slide="skip" folded=true
by_hand, peak = 12 * 52_136_032, dense_step.at(128).peak_bytes
print(f"12 bytes a parameter: {format_bytes(by_hand)}")
print(f"the trace: {format_bytes(peak)}, {100 * (peak / by_hand - 1):.0f} % more")

# %% [markdown] slide="subslide"
# In other networks the *feature maps*, the outputs of the layers, count: they are kept from the forward pass to the
# backward pass, one set for every sample.

# %% [markdown] slide="notes"
# VGG-16, which classifies images, has 138 million parameters. GPT-2, a small language model of 2019, has 124 million. It
# is a *transformer* (lesson 13). Its samples are texts of 1,024 *tokens*, pieces of words, and for each token it gives a
# score to each of 50,257 such pieces. Here it has no dropout, and its attention does not store its own scores (lesson
# 13).
#
# Trained with momentum, how many samples fit a card of 6 GiB?

# %% [markdown] slide="notes"
# Lesson 00 took 0.5 GiB for the driver's part of a card, the *context*. It differs from machine to machine, so the course
# reckons with two: a *large* one, the most that was reported for the card's architecture (512 MiB at least), and a
# *small* one of 112 MiB, slightly below all reports.
#
# - A step *fits* if its tensors, the gaps between them and the scratch memory of kernels find room beside the large
#   context.
# - It *does not fit* if its tensors and the small context are more than the card.
# - Between the two it is *tight*: it may run or fail.
#
# Programs see a little less of a card than was sold. Where no source tells how much, we take what was sold: *fits* is
# then a little too generous.


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
        (
            1,
            "Attention as in 2019, with its scores stored and dropout? That fits 1. Here is "
            "neither.",
        ),
        (
            2,
            "With Adam, or with attention that stores its scores, 2 fit. Here it is momentum, "
            "and attention does not.",
        ),
        (4, "6 GiB over what a text adds? The parameters and the context come off first."),
        (0, "Not even one? Parameters and the context leave room for some texts."),
        *(
            (texts, "You expected a text to need more than an image. It needs even more.")
            for texts in (5, 6, 7, 8, 10, 12, 15, 20, 30)
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
# Count 12 bytes a parameter with momentum, 16 with Adam. What a further sample adds is read from a trace.
#
# During Adam's update a parameter takes 20 bytes, but the maps are gone by then (all but GPT-2's scores): the batch itself
# is left. So check this moment separately:
#
# > 20 bytes · parameters + the batch itself + cuBLAS's 16 MiB ≤ card − context

# %% [markdown] slide="subslide"
# The rule on this card of 6 GiB, with momentum and a context of 512 MiB:

# %% folded=true
def by_rule(step, card, up_to):
    """Parameters, bytes of a further sample, batch by rule and by tensors, gradients."""
    at_peak = step.at(up_to)
    parameters = int(at_peak.by_layer()["parameters"].sum())
    sample = step.at(up_to + 1).peak_bytes - at_peak.peak_bytes
    left = card - 512 * MIB
    batch = int((left - 12 * parameters) // sample)
    tensors = bisect_right(range(1, 10**5), left, key=lambda n: step.at(n).peak_bytes)
    gradients = at_peak.by_role()["weight gradients"] / (4 * parameters)
    return parameters, sample, batch, tensors, gradients


rows = []
for name, step in steps.items():
    parameters, sample, *batches, there = by_rule(step, 6 * GIB, on_six[name])
    batches = [f"{batch:,}" for batch in (*batches, on_six[name])]
    sizes = f"{parameters:,}", format_bytes(sample)
    rows.append((name, *sizes, *batches, f"{100 * there:.0f} %"))
columns = ["parameters", "a further sample", "rule in full", "tensors alone", "fits up to"]
columns += ["gradients there at the peak"]
pd.DataFrame(rows, columns=["network", *columns]).set_index("network")

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


def adds(step, batch):
    """Bytes that a further sample adds to the most that is there during the update."""
    some, more = map(step.at, (batch, batch + 1))
    most = [one.matrix[one.phases == "update"].sum(axis=1).max() for one in (some, more)]
    return int(most[1] - most[0])


for keep, what in ((True, "as the step holds on to its scores"), (False, "if it did not")):
    adam = language_step(
        "GPT-2", sequence=1024, numbers="float32", optimizer="adam", keep_output=keep
    )
    there = format_bytes(adds(adam, texts))
    print(f"  in Adam's update, {what}: {there}")

adam = training_step(dense, (9000,), 32, "adam", name="52 M dense net")
of_adam, room = (bytes_a * 52_136_032 for bytes_a in (16, 20)), 1024 * MIB
first, second = (room - weights for weights in of_adam)
sample = adam.at(8001).peak_bytes - adam.at(8000).peak_bytes  # a peak in the backward pass
input_bytes = adds(adam, 128)
alone = bisect_right(range(1, 10**5), room, key=lambda n: adam.at(n).peak_bytes)
print("The dense net with Adam, 1,536 MiB, up to which batch")
print(f"  by the first condition {first // sample:,}")
print(f"  by the second {(second - 16 * MIB) // input_bytes:,}", end=", ")
print(f"if it left out cuBLAS {second // input_bytes:,}")
print(f"  tensors alone {alone:,}")

# %% [markdown] slide="notes"
# At the peak of GPT-2 four maps have a value for each token and each piece of a word: the scores, their
# log-probabilities, and a gradient of each. These four take more than the maps of all the layers before, where
# attention stores none of its own scores.
#
# The rule promises too much for all but GPT-2, and most for AlexNet. The rule's batches are close to those of *tensors
# alone*. Both leave out
# the gaps and the scratch memory of convolutions, which *fits up to* allows for; the rule's first condition also leaves
# out cuBLAS's. It errs in the other direction too: it adds all gradients to all maps, though four of these peaks come
# before most gradients exist. On this card that counts for less: no network fits a larger batch than by the rule.

# %% [markdown] slide="slide"
# ## What the driver takes
#
# The rule kept 400 MiB free. Often the context is larger: code that the driver and the libraries load onto the card, for
# every process. To measure it, run a step with no other program on the card, then:
#
# ```python
# free, total = torch.cuda.mem_get_info()
# context = total - free - torch.cuda.memory_reserved()
# ```

# %% [markdown] slide="notes"
# Today's PyTorch loads kernels *lazily*, each when it is first used. (Older ones loaded all at once, *eagerly*.) From here
# on, cards are compared as they run today: with the most that was reported for lazy loading on their architecture, at
# least 512 MiB.

# %% [markdown] slide="slide"
# ## Explore
#
# **Which card do I need?**

# %% [markdown] slide="notes"
# The vertical line is the traced peak plus the small context. A card with a blue dot holds the step; on an orange one it
# is tight, on an empty one it does not fit. Prices are those at launch, blank where nobody confirmed one.
#
# Memory alone decides here. The GTX Titan, K40 and K80 do not run today's PyTorch: their dots suppose the eager context
# of their time. The others from before 2018 need its builds for CUDA 12.6. Before each move, say which card drops out
# next.

# %% tags=["nbval-ignore-output"] reads="course_utils/machine/devices.csv"
hardware_explorer()

# %% [markdown] slide="skip"
# Try two things. What does the move from momentum to Adam cost the dense net, and what VGG-16? Which card suffices to
# train ResNet-50 with a batch of 256, and which for inference (optimizer: none)?

# %% [markdown] slide="skip"
# <details><summary>What you will see</summary>
#
# 1. The dense net needs two thirds more: it is nearly all parameters, 20 bytes each at the peak in place of 12. VGG-16 at
#    batch 80 grows by its second average alone, about a fourteenth: its peak is in the backward pass, among the maps,
#    before Adam's update.
# 2. Training at batch 256 takes a card of 24 GiB or more; for inference a GTX 1080's 8 GiB will do.
#    (A GTX 980's 4 are tight; a GTX Titan's 6 hold it, but it does not run today's PyTorch.)
#
# </details>
#
# That was part one. Here is a good place for a break.

# %% [markdown] slide="slide"
# ## Part two: without a card, or for little
#
# Nothing fits, or there is no card? Take a network that somebody else has trained on a large data set.

# %% [markdown] slide="notes"
# You keep its layers as they are, a *frozen backbone*, and train only a new last layer, the *head*: *transfer learning*. A
# frozen parameter gets no gradient and no optimizer state. And if no gradient is needed below the head, nothing needs the
# feature maps there.


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
            everything.peak_bytes / GIB / 2,
            "Half, as the backward pass falls away? The maps that the forward pass kept for "
            "it go too, and they were most of the peak.",
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
        *(
            (
                guess,
                "Weights, and the head's gradient and momentum? While the backbone runs, two "
                "maps at a time are there too.",
            )
            for guess in ((weights + 2 * momentum) / GIB, 0.8, 1, 1.5)
        ),
        (
            everything.peak_bytes * 4_097_000 / 138_357_544 / GIB,
            "The head's share of the parameters? The frozen ones stay on the card too.",
        ),
        *(
            (guess, "Some of the maps? Below the head none stays; two are there at a time.")
            for guess in (3.5, 4)
        ),
    ],
)

# %% [markdown] slide="subslide"
# By hand: all weights, the head's momentum (16 MiB), the images, and the *two* largest maps, input and output of
# `relu1_1`. A layer's input is freed once its output is there.

# %% [markdown] slide="notes"
# The peak has moved to the forward pass, where the head has no gradient yet. The trace has 16 MiB more: two buffers that
# PyTorch sets aside for cuBLAS.

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
# **The other end.** Now train the *first* layer alone, `conv1_1` with its 1,792 parameters, and freeze all the others.

# %%
guess_first = predict(
    "VGG-16, batch 64, only conv1_1 trained: what is the peak?",
    unit="GiB",
)
guess_first

# %% folded=true
first_layer, dense_layers = vgg({"conv1_1"}), vgg({"fc6", "fc7", "fc8"})
convolutions = (224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)
convolved = sum(64 * 4 * side**2 * channels * count for side, channels, count in convolutions)
pooled = sum(64 * 4 * (side // 2) ** 2 * channels for side, channels, _ in convolutions[:-1])
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
        (
            (weights + convolved) / GIB,
            "Weights, and one output of each convolution? The pools keep theirs too, and an "
            "index of 8 bytes for each value.",
        ),
        (
            (first_layer.peak_bytes - pooled) / GIB,
            "You left out the inputs of the frozen convolutions: the gradient does not need "
            "them, but PyTorch keeps them.",
        ),
        *(
            (guess, "Some of the maps stay? Nearly all of them do.")
            for guess in (1, 2.5, (everything.peak_bytes + head.peak_bytes) / 2 / GIB)
        ),
    ],
)

# %% [markdown] slide="notes"
# A gradient that has to reach the first layer passes through all the others, frozen or not. For that the ReLUs keep
# their outputs and the pools the indices of their winners. PyTorch keeps the input of a frozen convolution too (of a
# frozen linear layer it does not), though the gradient needs its weights alone. So nearly all maps stay. The gradients
# and the momentum of the frozen weights go.
#
# Near the top, training more is cheap: at this batch all three dense layers cost only the momentum of two more than the
# head alone.

# %% [markdown] slide="subslide"
# **Run the backbone once.** In `eval()` mode, where no dropout acts, a frozen backbone gives the same answer to the same
# image in every epoch.

# %% [markdown] slide="notes"
# So run it once, store its output, and train the head on these *cached features*, here those of ImageNet:

# %%
with torch.device("meta"):
    alone = training_step(nn.Linear(4096, 1000), (4096,), 1000, "momentum", name="head").at(64)
images = 1_281_167  # of ImageNet, 1,000 classes
print(f"head on a frozen backbone: {format_bytes(head.peak_bytes)}")
print(f"head on cached features:   {format_bytes(alone.peak_bytes)}")
print(f"the store:                 {format_bytes(images * 4096 * 4)}, on disk")

# %% [markdown]
# The price: every epoch sees the same features. *Data augmentation*, random crops or flips, needs several stored versions.

# %% [markdown] slide="subslide"
# **A trap: batch norm is not frozen by freezing its weights.** `requires_grad_(False)` stops gradients. It does not stop
# a batch norm from updating its *running statistics* whenever it runs in training mode:

# %%
torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).requires_grad_(False)
for _ in range(100):  # its running statistics settle on these images
    body(torch.randn(32, 3, 16, 16))
probe, alike = torch.randn(1, 3, 16, 16), torch.randn(20, 32, 3, 16, 16)
unlike = 3 + 2 * alike


def drift(in_training, batches):
    """How far the frozen body's answer to one image moves over 20 batches of others."""
    net = copy.deepcopy(body)
    before = net.eval()(probe)
    net.train(in_training)
    for batch in batches:
        net(batch)
    return 100 * float((net.eval()(probe) - before).abs().max() / before.abs().max())


print("the answer to one image moves, in per cent of its largest value, by up to")
print(f"{drift(True, unlike):4.1f} % in train(), as model.train() leaves it, by unlike images")
print(f"{drift(True, alike):4.1f} % in train(), by images like those it has seen")
print(f"{drift(False, unlike):4.1f} % in eval(), called after model.train()")

# %% [markdown] slide="notes"
# So a frozen backbone takes two lines: `backbone.requires_grad_(False)`, and `backbone.eval()` after each
# `model.train()`. (In training mode a batch norm also answers by the batch's own mean and variance.)

# %% [markdown] slide="subslide"
# **Does the head learn enough?** Real handwritten digits, enlarged to 16 × 16 pixels. A backbone of three convolutions is
# trained on the digits 0 to 4.

# %% [markdown] slide="notes"
# Then the digits 5 to 9, which it has never seen, are learned: everything from scratch; the head alone on the frozen
# backbone; and as controls, the head on a backbone of random weights, and on one whose outputs are made as large as the
# pretrained one's.


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
formats |= dict.fromkeys(["accuracy", "lowest", "highest"], format_share)
pd.DataFrame({name: trained_on_digits[name].map(write) for name, write in formats.items()})

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
whole, frozen = (trained_on_digits.loc[name] for name in trained_on_digits.index[:2])
for kind in ("traced peak", "measured peak"):
    print(f"freezing saved {100 * (1 - frozen[kind] / whole[kind]):.0f} % of the {kind}")
traces = [
    training_step(net, (1, 16, 16), 10, "adam").at(32)
    for net in (head_alone(pretrained[0]), with_head(backbone()))
]
less, all_of_it = (predict_step(trace, "T4").flops.sum() for trace in traces)
print(f"and {100 * (1 - less / all_of_it):.0f} % of a step's operations")
bodies = backbone(), as_large(backbone())
nets = [with_head(backbone()), *(head_alone(one) for one in (pretrained[0], *bodies))]
with digits.one_thread():
    seconds = best_steps(nets, x[:32], y[:32], rounds=400)
whole_step, *frozen_steps = (1e3 * one for one in seconds)
print(f"a step on one thread, best of 400 in turns: {whole_step:.2f} ms,", end=" ")
print("frozen", ", ".join(f"{one:.2f}" for one in frozen_steps), "ms")
saved = (100 * (1 - one(frozen_steps) / whole_step) for one in (max, min))
print("freezing saved {:.0f} to {:.0f} % of the time".format(*saved))
print("the three frozen ones do equal work, so their difference is noise")
with digits.one_thread():
    torch.backends.mkldnn.enabled = False  # oneDNN, which computes convolutions on a CPU
    without = measure_step(head_alone(pretrained[0]), (1, 16, 16), 10, 32, "adam", "cpu")
    torch.backends.mkldnn.enabled = True
print(f"measured peak of the frozen one without oneDNN: {format_bytes(without.peak_bytes)}")
with torch.no_grad():
    times = float(pretrained[0](x).std() / backbone()(x).std())
print(f"outputs of the pretrained backbone: {times:.0f} times as large as of a random one")

# %% [markdown] slide="notes"
# Freezing takes away the backbone's backward pass: about two thirds of a step's operations. In the stored copy it saved
# less of the time; we have not measured why. The measured peaks also have scratch memory of oneDNN, PyTorch's library of convolutions on a CPU.
#
# Two seeds cannot show whether freezing costs accuracy, and our digits are too easy to show that the backbone's training
# helps: random weights whose outputs are made as large serve about as well. On photographs of 205 kinds of places one
# dense layer was right on 39 % with the frozen features of an AlexNet trained on ImageNet, on 20 % with those of random
# weights, and on 27 % with weights from k-means, a method without labels (Zhang, Isola and Efros, [*Split-Brain
# Autoencoders*](https://arxiv.org/abs/1611.09842), table 3, each at its best layer).

# %% [markdown] slide="slide"
# ## Three budgets
#
# Which hardware would you choose for nothing, for 300 dollars, for 1,000? The task: ResNet-50 on ImageNet, 90 epochs, 115
# million images.

# %% slide="subslide"
guess_images = predict(
    "An hour of an RTX 4090 costs 34 cents, of an RTX A5000 16. They compute 82.6 and 27.8 "
    "TFLOP/s in float32, 82.6 and 55.5 in TF32, float32 rounded for tensor cores. "
    "Their memory moves 1,008 and 768 GB/s. How many times as many images of ResNet-50 does a "
    "dollar train on the 4090 as on the A5000?",
    unit="times",
)
guess_images

# %% folded=true
pair = [card_named(one) for one in ("RTX 4090", "RTX A5000")]
rate, tensor_rate = (
    one.float32_tflops / other.float32_tflops
    for one, other in (pair, [as_it_runs(one) for one in pair])
)
first, second = (timed("ResNet-50")[one.name][0] for one in pair)
cheaper, moved = 0.16 / 0.34, pair[0].bandwidth_gb_s / pair[1].bandwidth_gb_s
reveal(
    guess_images,
    {
        "timed": first / second * cheaper,
        "by float32": rate * cheaper,
        "by TF32": tensor_rate * cheaper,
    },
    thoughts=[
        (rate * cheaper, "By the rates of float32? The convolutions run in TF32."),
        (tensor_rate * cheaper, "By the rates of TF32? The timings are a little better."),
        (moved * cheaper, "By the bandwidth? It limits only a part of the step."),
        (cheaper, "That is the rents alone, as if both were as fast."),
        (1 / cheaper, "That is how many times as much an hour costs."),
        (rate / cheaper, "You multiplied by the rents. Divide by them."),
        *((one, "The rents are missing.") for one in (rate, tensor_rate, moved)),
        (first / second, "That is how many times as fast it was timed. It also costs more."),
        *((guess, "The dearer card is faster, but not by as much.") for guess in (1, 1.2)),
    ],
)

# %% [markdown] slide="notes"
# The 4090 costs 2.1 times as much and was timed 1.8 times as fast. On cards from 2020 on, PyTorch's convolutions run in
# *TF32* (lesson 08).
#
# - **No card:** your CPU. The table has two Xeons of 2014, timed in 2016 or 2017.
# - **Nothing:** Kaggle lends two T4s for 30 hours a week. A program uses one of them unless it is written for both
#   (lesson 11).
# - **300 dollars:** cards by the hour, at the rents of one seller on one day: RunPod Community, July 2025. Or a used RTX
#   3060 of 12 GB, for a computer that has the slot and the watts: guides of 2026 give 150 to 320 dollars.
# - **1,000 dollars:** a used RTX 3090 too: guides of 2026 give 500 to 1,000 dollars, and a computer around it about 500
#   more. So *1,000 paid* means either an expensive 3090 alone, or a 500-dollar one with a 500-dollar computer.
#
# In the table below *samples a second* come from lesson 01's model in float32. Where somebody has timed the card, we
# correct the model: *model / timed* says how many times too fast it was, and the table divides by it. A name after it is
# the network that was timed instead. *Mixed* is mixed precision, 16-bit numbers where they suffice (lesson 08); where
# nobody timed that, the number is missing. **=** marks cards within 13 % of the cheapest rented one: lists of timings
# disagree by as much. A new card may widen the band (*Further*).
#
# <details><summary>What else the table takes for granted</summary>
#
# - Lambda timed random images. A card is as fast with photographs if the CPU cores beside it decode as many (below).
# - *Float32* is TF32 on the cards that have it. Matrix products use it only after
#   `torch.set_float32_matmul_precision("high")`; without that call dense layers are slower than the table says.
# - *Days* are around the clock, on Kaggle 30 hours a week.
# - An hour on your own card costs electricity and its share of half the price, lost in two years at 20 hours a week.
#   The half, the computer's 500 and 0.20 a kWh are our guesses.
# - The 13 % are Lambda's and ResNet-50's alone: in mixed precision an RTX 3090 was 0.96 times as fast as a V100 in 2020 and 1.09 times
#   in 2022 (*Further*). The RTX A5000 was timed between the two. The RTX 5090's source trained on CIFAR-10 and names no
#   image size.
#
# </details>

# %% slide="skip" folded=true
with torch.device("meta"):
    wide = wide_resnet()
timed_steps = {
    "ResNet-50": traced("ResNet-50"),
    "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam"),
}
known = checks(timed_steps)

# %% slide="subslide" tags=["change"]
# Change it to your task and to tomorrow's prices, and run the cells below again.
name, most, million = "ResNet-50", 256, 115  # of NETWORKS; batch at most; millions of samples
rents = {"RTX A4000": 0.17, "RTX A5000": 0.16, "V100": 0.19, "RTX 3090": 0.22}  # an hour
rents |= {"RTX 4090": 0.34, "RTX 5090": 0.69, "H100 SXM": 2.69}
own = {"RTX 3060": (300,), "RTX 3090": (500, 1000, 1500)}  # dollars, with a computer if needed
weekly, weeks, back = 20, 104, 0.5  # hours, two years; share of what you paid that comes back
watts, around, kwh = {"RTX 3060": 170, "RTX 3090": 350}, 100, 0.20  # computer: a guess; a kWh

task = traced(name)
power = electricity(own, watts, around, kwh)  # dollars an hour
lost = (1 - back) / (weekly * weeks)  # of a dollar, in an hour
owned = {(card, usd): usd * lost + power[card] for card in own for usd in own[card]}
what_they_buy(task, most, million, offers(rents, owned, kwh), known)

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
a_thread = decoded_a_second()
print(f"Here one thread decodes, crops, flips and normalizes {a_thread:,.0f} images a second,")
print(f"JPEGs of {WIDTH} × {HEIGHT}, {len(photograph()) / 1e3:.0f} kB. In mixed precision")
for cards, one in ((1, "T4"), (2, "T4"), (1, "RTX A5000"), (1, "RTX 3090"), (1, "H100 SXM")):
    trained = cards * speed(task, usual_batch(task, most, one), one, known)
    trained *= gain(known, one, name) or 1
    print(f"  {cards} {one} trains {trained:,.0f}: {trained / a_thread:.1f} such threads")

# %% [markdown] slide="notes"
# The 90 epochs cost 13 dollars on a rented RTX A5000 and 7 in mixed precision, if the cores beside it decode fast enough.
# With 150 GB of storage while it runs, 2 cents an hour, 300 dollars pay for 21 such runs, in mixed precision for 36, the
# hours of loading not counted.
#
# At Kaggle's 30 hours a week, one T4 takes 26 days in mixed precision, and two at least 13 (if they were twice as fast as
# one; lesson 11). Kaggle's machine had two cores in a run of 2024 (*Further*): if each decodes as fast as a thread here,
# they suffice for both cards. If not, store small images. Its sessions end after some hours: keep checkpoints.
#
# The chips alone of the Xeons draw electricity for 450 dollars, more than any other row costs (for today's cores see
# below). The RTX 3060 may be slower than this: on other cards from 2020 on the model was 5 to 54 % too fast.
#
# A V100 costs as little in mixed precision, but has 16 GB, no bfloat16, and needs PyTorch's builds for CUDA 12.6. In
# NVIDIA's own run of the same program, with another memory layout (*channels last*), it was 1.4 times as fast
# (*Further*). We found no A5000 timed so; the other *mixed* figures are without that layout, where it is known.
#
# Do transformers choose another card? Samples for a dollar, beside the card that gives most (empty: not timed):

# %% slide="subslide" folded=true
print(*timed_before(rents, "RTX 3090", "RTX A5000"), sep="\n")
choices(rents)

# %% [markdown] slide="notes"
# For ResNet-50 the cheapest is the RTX A5000. It was timed in 2021. By the RTX 3090's timing of 2022 the two tie, by those
# of 2020 and 2025 they do not. A run costs 0.5 to 2.3 dollars more on the RTX 3090, and takes less time by both. With
# transformers, too, the A5000 is the cheapest or ties, but for Transformer-XL in float32. That rests on one odd
# timing: there the RTX 3090 is 1.5 times as fast as the A5000, in the other rows 1.2 to 1.3 times. We do not know
# why.
#
# <details><summary>How good are the speeds?</summary>The model is within a sixth of the timings of the RTX 3090, 4090
# and 5090, the V100 and, with another network, the T4; of the A4000, the A5000, the H100 and the Xeons it is further
# off. A newer run of the same program found an RTX 3090 up to 14 % faster.</details>

# %% [markdown] slide="subslide"
# **No card at all.** When is a CPU enough? A head on cached features needs one forward pass of each image.

# %% [markdown] slide="notes"
# Your own CPU, timed now with ResNet-50 (in the stored copy two cores), beside the others, all without a break:

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
print(f"ImageNet, if 16 cores do {16 / threads:g} times the work of {threads}:", end=" ")
print(f"{days:,.0f} days, {days * 24 * 0.17 * kwh:,.0f} dollars at 0.17 kW for the chips")
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
# By the published times a head on 10,000 images takes the Xeons 26 minutes: a CPU is enough. All layers for 10 epochs
# take them 12 hours and a T4 11 minutes: borrow one. Decoding is not counted, and the 16 cores are assumed to scale
# perfectly. Even so ImageNet takes weeks and costs more than the rented card's run: use a CPU for small jobs only.

# %% [markdown] slide="subslide"
# **What would turn the choice over?** The prices are of few sellers, each on one day (*Further*). Up to which rent does a
# card tie with the cheapest of the others?

# %% folded=true
flips(task, most, rents, known)

# %% [markdown] slide="notes"
# The RTX 4090 ties up to 0.32 dollars in float32: not at RunPod's 0.34. RunPod's Secure tier (data centers of its partners;
# in Community others rent out their machines) asked 0.69 for it, 0.89 for the RTX 5090, 0.43 for the RTX 3090, 0.29 and
# 0.26 for the RTX A4000 and A5000, and had no V100. Put these in: which card now?
#
# <details><summary>What you will see</summary>Of the rented ones the RTX A5000, and no tie, but for Transformer-XL in
# float32: there the RTX 4090 is the cheapest, and the A5000 ties. Your own RTX 3090 of 500 dollars is cheaper still: a
# run costs 13 dollars, on the A5000 20.</details>
#
# And when is your own card cheaper than a rented one? Row one: what an A5000 costs for the work that a 3090 does in an
# hour. The other rows are real rents of a 3090. Read *43 h; 53 %* so: if you cannot sell your card, it has to work 43
# hours a week (rounded up) for two years; if it works 20, you need 53 % of your money back when you sell.
#
# *+ 150 GB* keeps your data there between runs: at RunPod Community a GB costs 10 cents a month while the machine runs
# and 20 while it is stopped, in Secure's network volumes 7.

# %% slide="subslide" folded=true
card = [*own][-1]
other, usd = same_work(task, most, card, rents, known)
asked = {f"{usd:.2f} for the same work, {other}": Rent(usd), **rents_asked(card, 150)}
buying(own[card], asked, power[card], weekly, weeks)

# %% [markdown] slide="notes"
# At *0 h* storage alone costs more than the card: 718 dollars for two years on a machine that never runs. Whoever loads
# the data anew for each run pays only while it runs.

# %% [markdown] slide="subslide"
# At these prices (rents 2025, used cards 2026):
#
# - **Nothing:** a T4; a CPU for a head on cached features.
# - **300 dollars:** free until the code works; then rent an RTX A5000 at 0.16, or an RTX 3090 below 0.20.
# - **1,000:** the same; or a used 3090 for 500, if it works 43 to 54 hours a week for two years, unsold.

# %% [markdown] slide="notes"
# What flips it:
#
# - *Nothing:* even a small batch with frozen layers does not fit a T4's 14.6 GiB, or 26 days are too long. Then rent.
# - *300:* you are in a hurry: an RTX 4090 takes 56 % of the A5000's time for a fifth more money. Or the rents change:
#   at 0.18, which OpenRelay asked in September 2026, 14 months later, a 3090 ties with that A5000 in float32 and is
#   cheaper in mixed precision; its 4090, at 0.29, ties. A used RTX 3060 of 300 dollars has to work 118 hours a week for
#   two years, 59 if half comes back: rent.
# - *1,000:* it is 43 hours beside a rented A5000, 54 beside that 3090 at 0.18. Of the 43 hours 22 are enough if half
#   comes back; with a 500-dollar computer it is 86 and 43. The table gives the hours a week above which, over two years,
#   a used card costs less than renting the same work (float32, except one row). A computer around it counts as part of
#   the price.

# %% slide="skip" folded=true
cases, off = {}, 1 + spread()
for card in own:
    other, usd = same_work(task, most, card, rents, known)
    for paid in sorted({*own[card], *used_prices(card)}):
        cases[f"{card}, {paid:,} paid"] = paid, usd - power[card]
paid, hour = min(own[card]), power[card]
of_an_hour = {f"{100 * (off - 1):.0f} % slower": usd / off, "as much faster": usd * off}
mixed = same_work(task, most, card, rents, known, mixed=True)[1]
of_an_hour |= {"in mixed precision": mixed} if mixed else {}
of_an_hour |= {f"beside a rented one at {least:.2f}": least for least in rent_range(card)[:1]}
for what, saved in of_an_hour.items():
    cases[f"{card}, {paid:,}, {what}"] = paid, saved - hour
for dear in (0.12, 0.30, 0.40):
    cases[f"{card}, {paid:,}, {dear:.2f} a kWh"] = paid, usd - hour / kwh * dear
pays_from(cases, weeks, back)

# %% [markdown] slide="notes"
# **Before you pay.** Check that the power supply has the watts and the plugs (an RTX 3090 draws 350 W), and the case the
# room and the air. See a used card train for half an hour. Keep checkpoints off a rented machine, whose host can take it
# away. And ask for a university's cluster or credits for students.

# %% [markdown] slide="slide"
# ## What people believe
#
# Claims from a blog of 2014 and a column of 2020, in our words, with where they were published.

# %% reads="course_utils/machine/devices.csv"
judge([13, 14, 17, 18, 47])

# %% [markdown] slide="skip"
# The other claims about hardware are in [appendix A](A_myths_and_facts.ipynb).

# %% [markdown] slide="slide"
# ## Recap
#
# 1. A float32 parameter takes 12 bytes with momentum (16 in updates with weight decay), with Adam 16 (20 in updates).
# 2. Freezing saves gradients and state. Below the lowest trained layer no map is kept but its input; above it, in VGG-16,
#    nearly all are.
# 3. Free first; then rent the cheapest; buy for many hours.

# %% [markdown] slide="skip"
# ## Further

# %% [markdown] slide="skip"
# **Contexts.** Of some cards programs see only a part; the course allows for that where a source gives the number. (Which
# old cards run today's PyTorch: its pull request 101187, and issue 190385.)

# %% slide="skip" folded=true
seen = pd.DataFrame(reports())
mib = seen["mib"]
print(f"{len(seen)} reports, {mib.min():,.0f} to {mib.max():,.0f} MiB;", end=" ")
print(f"the small context is {format_bytes(context().least, 0)}")
for one in seen[seen["name"].str.startswith("A100, PyTorch 2.1.1")].itertuples():
    print(f"one A100 with one PyTorch, {one.loading} loading: {one.mib:.0f} MiB (Stas Bekman)")
for name in ("RTX 3090", "RTX 4090", "RTX 5090", "GTX Titan"):
    print(f"allowed for, {name}: {format_bytes(todays_context(device(name)).most)}")
for loading in ("eager", "lazy"):
    taken = context(device("RTX 3090"), loading)
    up_to = largest_batch(steps["VGG-16"], device("RTX 3090"), taken).fits
    print(f"RTX 3090, {loading} loading, the most reported of an Ampere card:", end=" ")
    print(f"{format_bytes(taken.most)}, VGG-16 fits up to {up_to}")
for one in (device("T4"), device("B200")):
    print(f"of a {one.name}'s {one.memory_gb:g} GiB programs see {one.usable_gb:g},", end=" ")
    print("and its context comes out of these")

# %% [markdown] slide="skip"
# **What cards cost.** The catalogue of the course and three small cards, prices at launch in the dollars of the year,
# rents on the day they were noted. *Halves* are 16-bit numbers (lesson 08). A cell is empty where nobody confirmed a
# value.

# %% slide="skip" folded=true reads="course_utils/machine/devices.csv"
rows = []
for card in sorted((*devices(), *SMALL_CARDS.values()), key=lambda card: card.year):
    half = max(card.float16_tflops or 0, card.tensor_tflops or 0)
    price, rent = card.launch_usd, rent_range(card.name)
    rows.append(
        {
            "card": f"{card.name}{', two dies' if card.dies > 1 else ''}, {card.year}",
            "GB, as sold": card.memory_gb * card.dies,
            "GB/s": card.bandwidth_gb_s * card.dies,
            "TFLOP/s, float32": card.float32_tflops * card.dies,
            "halves": f"{half * card.dies:g}" if half else "",
            "dollars": "" if price is None else f"{price:,.0f}",
            "dollars an hour": f"{rent[0]:.2f}" if rent else "",
        }
    )
catalogue = pd.DataFrame(rows).set_index("card")
numbers = dict.fromkeys(["GB, as sold", "GB/s", "TFLOP/s, float32"], "{:g}".format)
catalogue.assign(**{k: catalogue[k].map(f) for k, f in numbers.items()})

# %% slide="skip" folded=true
def told(what, source):
    print(f"{what}:", source, sep=" " if len(what + source) < 94 else "\n    ")


for source, of in pd.DataFrame(RENTALS).groupby("source", sort=False):
    names, days = (", ".join(sorted(set(of[column]))) for column in ("device", "seen"))
    told(f"an hour of {names}", f"{source}, {days}")
for card in SMALL_CARDS.values():
    told(f"data of {card.name}", card.sources)
for one in LENT:
    told(f"{one.cards} x {one.device}, lent", f"{one.source}, {one.seen}")
for one in USED:
    asked = f"{one.low_usd:,} to {one.high_usd:,} dollars"
    told(f"{one.device}, used, {asked}", f"{one.source}, {one.seen}")
for row in (*TRAINED, *(row for row in HALVES if row.network == "ResNet-50"), xeons):
    told(f"speed, {row.network}, {row.device}, batch {row.batch}", row.source)
told(f"mixed precision, ResNet-50, a T4 among five cards, about {NEF_TIMES} times", NEF)
told(f"Kaggle's machine, {KAGGLE_CORES} cores of two threads", KAGGLE_CORES_SOURCE)

# %% [markdown] slide="skip"
# **The yardstick against every timing**, in samples a second at the batch that was timed, and what mixed precision gains:

# %% slide="skip" folded=true
halves = {
    "ResNet-50": traced("ResNet-50", "float16"),
    "Wide ResNet": training_step(wide, (3, 32, 32), 10, "adam", "float16"),
}
against_timings(timed_steps, halves)

# %% [markdown] slide="skip"
# The budgets take the gain that was timed: 1.8 times as fast was timed on the T4, the model has 5.6. Where two timed a
# card, they take Lambda's.
#
# **Where the ties come from.** The same cards in four lists, images a second of ResNet-50 in float32 and mixed (Lambda's
# A100 is a PCIe card with 40 GB, NVIDIA's another card):

# %% slide="skip" folded=true reads="course_utils/machine/devices.csv"
print("by how much lists disagree on how many times as fast one card is as another:")
for among, cards in (
    ("RTX 3090 and 4090", ("RTX 3090", "RTX 4090")),
    ("these and the V100", COMPARED),
    ("these and the A100, which no budget has", [card.name for card in devices()]),
):
    print(f"up to {100 * spread(cards):.0f} %: {among}")
pd.DataFrame(TIMED_AGAIN).map(lambda pair: "" if pair != pair else f"{pair[0]}; {pair[1]}")

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
source = gpu()
if source is not None:
    print(f"context, libraries loaded: {format_bytes(source.context().context_bytes)}")
print(fill(sentence(source), 90))

# %% [markdown] slide="skip"
# Now the exercise: [exercises/02_hardware.ipynb](../exercises/02_hardware.ipynb). {questions}. Save,
# then `course check 02` gives your marks.
