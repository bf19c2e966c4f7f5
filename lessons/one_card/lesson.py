# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown] slide="slide"
# # 14 · Fine-tuning and serving on one card
#
# **The question:** you have one card of 24 GiB and a model of 8 billion parameters. What of it can you train, how many
# users can you serve, and which choices make that possible?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. say which bytes full fine-tuning keeps, and which of them each cheaper method takes away;
# 2. write LoRA by hand, and say what it saves;
# 3. put a price on training all weights on one card, in time and in precision;
# 4. count a key–value cache, predict the tokens a second that a card writes, and choose what to shrink for more users.
#
# About 165 minutes without *Further*, and {minutes} for the exercise: two sittings, *training*, which ends with the
# explorer, and *serving*. It builds on lessons 13 (transformers), 10 (recomputation) and 08 (16-bit numbers); serving, on
# the roofline of 01 too. No GPU is needed.

# %% slide="skip" folded=true
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side, skyline
from course_utils.machine import hardware
from course_utils.machine.hardware import ARITHMETIC_EFFICIENCY, BANDWIDTH_EFFICIENCY
from course_utils.machine.measure import measure_step
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.capacity import fit, room_for_tensors
from course_utils.techniques.fine_tuning import NF4, LoRA, dequantised, quantised
from course_utils.trace import training_step
from course_utils.units import GB, GIB, MIB, format_bytes, format_seconds
from lessons.claims import judge
from lessons.one_card import serving
from lessons.one_card.claims import without_logits
from lessons.one_card.explorer import one_card_explorer
from lessons.one_card.fine_tuning import (
    METHODS,
    Method,
    longest_sequence,
    short_tape,
    step,
    trainable_bytes,
)
from lessons.shared.language_models import SHAPES
from lessons.shared.role_bars import role_bars
from lessons.shared.roofline import Reached, roofline
from lessons.shared.stacked import deepened

shape, card = SHAPES["Llama-3-8B"], hardware.device("RTX 4090")
COLOURS = "#0072b2", "#d55e00", "#009e73"


def roles(ledger):
    return {str(role): float(size) for role, size in ledger.by_role().items()}


# %% [markdown] slide="slide"
# ## Predict
#
# Llama-3-8B in bfloat16: 8,030,261,248 weights of two bytes. It is fine-tuned with *LoRA*: all weights are frozen, and
# small matrices beside them are trained. One sequence of 2,048 tokens.

# %% [markdown] slide="notes"
# The small matrices have half a percent as many values. The vocabulary has 128,256 tokens. Every layer is computed
# again in the backward pass, as in lesson 10.

# %%
guess = predict("How much memory does this training step need at its peak?", unit="GiB")
guess

# %% [markdown] slide="slide"
# Start with what one would most like to do: train everything. AdamW keeps two moments a weight. By hand, all in 16 bits:

# %%
n = shape.parameters
by_hand = {"weights": 2 * n, "gradients": 2 * n, "two moments": 4 * n}
for what, size in by_hand.items():
    print(f"{what:>12}: {format_bytes(size):>10}")
print(f"{'together':>12}: {format_bytes(sum(by_hand.values())):>10}, before a single map")
print(f"{'the card':>12}: {format_bytes(card.memory_bytes):>10}, as PyTorch reports it")
print(f"{'for tensors':>12}: {format_bytes(room_for_tensors(card)):>10}, beside its context")

# %% [markdown] slide="notes"
# That is eight bytes a weight (in mixed precision 16 or more: lesson 08). *Maps* are activations, here as in all lessons.
# From here on *the card* is an RTX 4090, and what fits must stay below the last figure.

# %% [markdown] slide="slide"
# ## Eight ways to train
#
# Full fine-tuning, and seven cheaper ways. Each shrinks one role, or several.

# %% [markdown] slide="notes"
# | way | what shrinks or leaves the card | in return |
# |---|---|---|
# | *8-bit AdamW* | moments: 8 bits each, and a scale for every 256 | they are rounded |
# | *State on the CPU* (optimizer offload) | moments: the host keeps them | gradients go to the host, which updates, and weights come back |
# | *Step in backward* | weight gradients: each weight is updated as soon as its gradient is there | no gradient stays to be added to another, or clipped |
# | *State on the CPU + step in backward*, in short *both at once* | moments and gradients | both |
# | *Head alone* | moments and gradients of all weights but the last product's | nothing else is trained |
# | *LoRA* | moments and gradients of all weights | only small matrices beside them are trained |
# | *4-bit base and LoRA* (QLoRA) | the frozen weights of all layers too: 4 bits, half a byte, and a scale for every 64 | they are rounded |
#
# What is frozen has no gradient and no state. (*Head* is the last product here, which makes the logits, and not a head of
# attention.) Each bar below is a training step of the whole model, split by role at its own peak.

# %% folded=true
steps = {name: step("Llama-3-8B", name) for name in METHODS}
lora = steps["LoRA"]
reveal(
    guess,
    {"LoRA, traced": lora.peak_bytes / GIB, "full, traced": steps["full"].peak_bytes / GIB},
    thoughts=[
        (
            2 * n / GIB,
            "Those are the weights, which are there frozen or not. Maps come on top.",
        ),
        (
            4 * trainable_bytes(shape) / GIB,
            "That is what is trained, with its state. Frozen weights take room too.",
        ),
        (
            4 * n / GIB,
            "Those are weights and a gradient for each. Frozen weights have no gradient.",
        ),
        (
            steps["full"].peak_bytes / GIB,
            "That is full fine-tuning: frozen weights have no gradient and no moments.",
        ),
    ],
)

# %% folded=true
fitting = [name for name, ledger in steps.items() if fit(ledger, card).state == "fits"]
role_bars(
    {name: roles(ledger) for name, ledger in steps.items()},
    f"One text of 2,048, each way at its peak: {len(fitting)} of {len(steps)} fit the card",
    card,
)

# %% [markdown] slide="subslide"
# 8-bit AdamW, the state on the CPU and the step in the backward pass each train every weight. None of the three fits;
# the last two together do.

# %% [markdown] slide="notes"
# No GPU was used, and no weights were loaded: *Further* says what is traced and what is assumed.

# %% [markdown] slide="slide"
# ## LoRA
#
# For most of the step the frozen weights are nearly all there is. The peak is at the loss, where tensors of
# 2,048 × 128,256 logits are alive.

# %%
skyline(lora, card)

# %% folded=true
tape, moment = lora.tape, lora.peak_event
alive = (tape.birth <= moment) & (tape.death > moment)
made = tape.role >= ROLES.index("feature maps")  # not the weights, two of which are as large
wide = lora.size[alive & made & (lora.size >= 2 * 2048 * 128_256)]
sums = {
    "weights": 2 * n,
    "adapters, 2 moments, 80 MiB each": 3 * trainable_bytes(shape),
    f"{len(wide)} tensors, {wide.sum() / (2048 * 128_256):g} bytes a logit": wide.sum(),
    "inputs of 32 layers": 32 * 2048 * 4096 * 2,
}
sums["other small tensors"] = lora.peak_bytes - sum(sums.values())
for what, size in sums.items():
    print(f"{what:>32}: {format_bytes(size):>10}")
print(f"{'peak':>32}: {format_bytes(lora.peak_bytes):>10},", end=" ")
print(f"without tensors of logits {format_bytes(without_logits(lora))}")

# %% [markdown] slide="notes"
# The three are float32: the log-softmax, its gradient, and that of the logits' float32 copy. Without them the peak
# moves into a layer's backward pass, so it falls by less than 2.94 GiB. (A *loss in pieces* makes a part of the logits at
# a time: lesson 13, *Further*.) The adapters are in 16 bits here; in float32 they need 240 MiB more (*Further*).

# %% [markdown] slide="subslide"
# LoRA (Hu and others, 2021) gives a frozen linear layer of h inputs and k outputs an *adapter* of *rank* r.

# %% [markdown] slide="notes"
# By hand: the adapter is two thin linear layers, A from h to r and B from r to k, and s is a constant, here 2:
#
# > y = W x + s · B (A x)
#
# A begins at random and B at zero, so that at first nothing changes. With both at zero neither would have a gradient, as
# A has none in the first step below: the gradient of each is multiplied by the other. One layer, two steps:

# %%
torch.manual_seed(0)
W = torch.randn(6, 8)  # frozen: 8 inputs, 6 outputs
A = (torch.randn(2, 8) / 8**0.5).requires_grad_()  # rank 2
B, s = torch.zeros(6, 2, requires_grad=True), 2
x, wanted = torch.randn(64, 8), torch.randn(64, 6)
adam = torch.optim.AdamW([A, B], lr=0.01)
for number in (1, 2):
    y = x @ W.T + s * (x @ A.T) @ B.T
    (y - wanted).square().mean().backward()
    print(f"step {number}: gradients up to {A.grad.abs().max():.3f} in A,", end=" ")
    print(f"{B.grad.abs().max():.3f} in B")
    adam.step()
    adam.zero_grad()
added = (s * B @ A).detach()  # as large as W, and of low rank
beside, merged = x @ W.T + s * (x @ A.T) @ B.T, x @ (W + added).T
print(f"added: rank {torch.linalg.matrix_rank(added)},", end=" ")
print(f"merged into W the same: {torch.allclose(beside, merged, atol=1e-5)}")

# %% [markdown] slide="notes"
# A has no gradient before B has moved. After training, s · B A can be added to W, and the *merged* layer costs what W
# did. But their sum is rounded to W's format. In bfloat16 an update of a hundredth of W's size arrives, with noise of a
# sixth of it; in 4 bits next to nothing arrives (*Further*).
#
# The adapter trains r · (h + k) values instead of h · k. Beside all seven products of a layer:

# %% tags=["change"]
# Change the rank r and run again: from which rank on does LoRA train a tenth of the weights?
r = 16

h, kv, inner = 4096, 1024, 14336
widths = {"q": (h, h), "k": (h, kv), "v": (h, kv), "project": (h, h),
          "gate": (h, inner), "up": (h, inner), "down": (inner, h)}  # fmt: skip
values = 32 * sum(r * (a + b) for a, b in widths.values())
print(f"{values:,} values, {format_bytes(2 * values)}:", end=" ")
print(f"{100 * values / n:.2f} % of the weights")
print(
    f"gradients and moments: {format_bytes(6 * values)} in place of {format_bytes(6 * n)}"
)

# %% [markdown] slide="skip"
# <details><summary>From which rank on?</summary>
#
# From 307 on. Each rank adds 2.6 million values, and a tenth of the weights is 803 million.
#
# </details>

# %% [markdown] slide="subslide"
# So far each layer's maps were dropped and computed again. Now **every map is kept**.

# %%
guess_maps = predict(
    "LoRA trains half a percent of the values. Full fine-tuning keeps many feature maps; "
    "what share of them does LoRA keep?",
    unit="%",
)
guess_maps

# %% folded=true
kept = {
    name: step("Llama-3-8B", name, recompute=False)
    for name in ("full", "LoRA", "4-bit base and LoRA")
}
maps = {name: ledger.by_role()["feature maps"] for name, ledger in kept.items()}
stay = 100 * maps["LoRA"] / maps["full"]
reveal(
    guess_maps,
    {"traced, at the peak": stay},
    thoughts=[
        (
            100 * trainable_bytes(shape) / (2 * n),
            "That is the share of what is trained. A gradient passes through every layer.",
        ),
        (
            50.0,
            "A frozen layer does not need its input, but the adapter beside it does.",
        ),
        (100.0, "Nearly. What served a frozen weight's gradient and nothing else goes."),
    ],
)

# %% slide="subslide" folded=true
role_bars(
    {name: roles(ledger) for name, ledger in kept.items()},
    f"Every map kept: LoRA sheds the optimizer state and {100 - stay:.0f} % of the maps",
    card,
)

# %% [markdown] slide="notes"
# A gradient must pass *through* every frozen layer to reach the adapters below it, so activation functions, norms and
# attention keep what they need for that. A frozen linear layer no longer needs its input, which served its weight
# gradient, but the adapter beside it does. (What goes: *Further*.) With adapters beside q and v alone, more inputs go:

# %%
few = step("Llama-3-8B", Method("lora", beside=("q", "v")), recompute=False)
share = few.by_role()["feature maps"] / maps["full"]
print(f"adapters beside q and v alone: {100 * share:.0f} % of the maps stay")

# %% [markdown] slide="slide"
# ## What LoRA costs, and what it saves
#
# Llama-3.2-3B was trained for 5,000 steps on MetaMathQA, on an L40S, then asked GSM8K's 1,319 problems:
#
# | trained | values | tokens/s | solved |
# |---|---|---|---|
# | all weights, in bfloat16 | 3.2 billion | 2,300 | 50.0 % |
# | LoRA beside q and v, rank 32 | 9.2 million | 6,776 | 48.2 % |
# | the same, rank 64 | 18.4 million | 6,663 | 48.9 % |
# | the same, rank 64 and s = 8 (rsLoRA) | 18.4 million | 6,700 | 53.0 % |
# | LoRA in the feed-forward block, rank 10 | 9.5 million | 5,763 | 52.6 % |

# %% slide="skip" folded=true
solved = (660, 636, 645, 699, 694)  # of 1,319, in the table's order
apart = ", ".join(f"{many - solved[0]:+}" for many in solved[1:])
chance = (2 * 1319 * 0.5 * 0.5) ** 0.5
print(f"LoRA against all weights, problems: {apart}; one standard error of a difference,")
print(f"if the runs answer independently: {chance:.0f}")
# The files' last 250 steps, on average. Of LoRA's 4 operations 2 take half its time; bytes for
# each weight: clipping 6, AdamW as torch runs it by default 40. L40S: 864 GB/s on paper.
full_step, lora_step, a_byte = 90.549 / 250, 30.737 / 250, 3_212_749_824 / (864 * GB)
spent = {"weights' gradients": lora_step / 2, "clipping": 6 * a_byte, "AdamW": 40 * a_byte}
spent["rest"] = full_step - lora_step - sum(spent.values())
print(f"a step of {2300.2 * full_step:.0f} tokens: {full_step:.3f} s all weights,", end=" ")
print(f"{lora_step:.3f} s LoRA; the difference:")
print(", ".join(f"{what} {seconds:.3f} s" for what, seconds in spent.items()))

# %% [markdown] slide="notes"
# (huggingface/peft, `method_comparison/MetaMathQA/results`, commits f650b08, eccc788, 18e07f1, e253b59 and 1948110: one
# seed each, tokens/s of the last 250 steps without evaluation.) Two are below and two above: these runs show no price of
# LoRA as such. (On the same problems answers agree more often than by chance, so that the error should be smaller; but
# another seed gives another model.) Nor do they show that there is none, as the baseline may be weak: weights and moments
# in bfloat16, with a learning rate of 1e-5. The next section shows what that can lose. The adapters were in float32.
#
# LoRA is 2.9 times as fast here, mostly as little is updated: clipping and AdamW move 46 bytes a weight that is trained,
# however few the tokens. And a frozen weight needs no gradient of its own, 2 operations of 6 for each token (nothing was
# recomputed), a quarter of the time saved. (This is counted at LoRA's pace, launches included, so rather long; the update
# at the full bandwidth, so too short.) In steps of 4,096 tokens torchtune has 1.9 times: on an RTX 4090, 3,083 tokens/s
# for LoRA, 1,650 for all weights of Llama-3.1-8B; with a base in 4 bits, dequantised for every product, 2,413. (Memory
# reserved on the L40S, evaluation included: at most 37.2 GB, and 22.3 for LoRA.)
#
# In memory we trace 20 runs on a T4, 0.0 to 2.1 % below what was measured. But those runs also showed us what to trace;
# of two others, on an RTX 4090, the trace is 6 % above (*Further*).

# %% [markdown] slide="slide"
# ## What training all weights costs
#
# *Both at once*, state on the CPU and step in backward, trains all weights on the card. For each weight in turn its
# gradient leaves, the host updates, and the weight comes back. Added up, if nothing overlaps:

# %% folded=true
link = hardware.link("PCIe 4.0 x16")
copy = 2 * n / link.bytes_per_s
# Two memory channels of a desktop: GB/s on paper, and at the share that we expect of a card
HOSTS = {"DDR4-3200": 51.2, "DDR5-5600": 89.6}
hosts = {name: BANDWIDTH_EFFICIENCY * rate * GB for name, rate in HOSTS.items()}
head = shape.vocabulary * shape.hidden
operations = 8 * serving.matrix_values(shape) - 2 * head  # the head is not computed again
a_token = operations / card.reached_flops_per_s("float16")
in_turn = {name: 2 * copy + 14 * n / rate for name, rate in hosts.items()}
attention = 4 * serving.prefill(shape, 2048).attention.flops  # forward, again, and backward
print(f"on the host, weights and both moments: {format_bytes(6 * n)},", end=" ")
print(f"with gradients {format_bytes(8 * n)}")
print(f"attention, left out: {100 * attention / (2048 * operations):.0f} % more operations")
print(f"1.1 billion weights, DDR4: {in_turn['DDR4-3200'] * 1.1e9 / n:.2f} s in turn,", end=" ")
print(f"{1.53 - 1.27:.2f} s measured with torchao")
pd.DataFrame(
    {
        f"host with {name}": [
            f"{part:.1f} s"
            for part in (copy, 14 * n / rate, copy, in_turn[name], 2048 * a_token)
        ]
        for name, rate in hosts.items()
    },
    index=["1. gradients to the host", "2. the host updates", "3. weights back",
           "the card waits, 1 + 2 + 3", "it computes, 2,048 tokens"],
)  # fmt: skip

# %% [markdown] slide="notes"
# The table is computed from published rates, of which we expect three quarters for memory and link, and 67 % for
# arithmetic: 110 of 165 TFLOP/s (by our count of its operations, the LoRA run above reached 82 %: *Further*). For an
# update the host moves 14 bytes a weight: it reads a gradient (2), and reads and writes the weight (4) and both moments
# (8). The card does 2 operations for a weight and token forward, 2 again where layers are recomputed, and 4 backward;
# attention comes on top.
#
# So *if nothing overlaps* the card computes for one second and waits for three or four. torchao's
# `CPUOffloadOptimizer(…, offload_gradients=True)` sends gradients during the backward pass. By its README, 1.1 billion
# weights (RTX 4070 Ti SUPER, DDR4) took 1.53 s a step in place of 1.27: 0.26 s more, where our sum gives 0.59. With state
# alone on the host it was 0.25 s more, and 0.57 with a compiled model; with DeepSpeed's ZeRO-Offload, untuned, 1.86.
# torchao's host keeps gradients too. *Further*: overlap, and moments in pages.

# %% [markdown] slide="subslide"
# The other price is precision. As lesson 08 warned, an update smaller than half the distance to the next bfloat16 value
# is lost. 300 equal steps of AdamW, with weights and moments in bfloat16 or float32:

# %% folded=true
torch.manual_seed(0)
start, bf16, fp32 = 0.02 * torch.randn(100_000), torch.bfloat16, torch.float32
for weights, moments in ((bf16, bf16), (fp32, bf16), (fp32, fp32)):
    weight = nn.Parameter(start.to(weights, copy=True))
    adam = torch.optim.AdamW([weight], lr=2e-5, weight_decay=0)
    for _ in range(300):
        weight.grad = torch.full_like(weight, 1e-3)
        adam.step()
        for moment in ("exp_avg", "exp_avg_sq"):  # rounded after every step
            adam.state[weight][moment] = adam.state[weight][moment].to(moments).to(weights)
    change = (weight.detach() - start.to(weights)).float().abs()
    print(f"weights {weights}, moments {moments}:".replace("torch.", ""), end=" ")
    print(f"{100 * (change == 0).double().mean():.0f} % never moved, mean {change.mean():.1e}")
print(f"asked for: {300 * 2e-5:.1e}")

# %% [markdown] slide="notes"
# In bfloat16 70 % of these weights never moved. Their rounding is why: in float32 all of them move, and in 300 steps
# moments in bfloat16 hardly matter (in thousands they can: *Further*). So it is a price of 16-bit weights, not of *both
# at once*: AdamW alone pays it here. One remedy costs the card no memory: the host keeps weights and moments in float32
# (ZeRO-Offload: Ren and others, 2021), 90 GiB in place of 45, and moves twice the bytes to update.

# %% [markdown] slide="slide"
# ## Explore
#
# **What can be trained on this card, and which choice makes it possible?** Before each move say which colour will
# shrink.

# %% tags=["nbval-ignore-output"]
one_card_explorer()

# %% [markdown] slide="notes"
# Try three things. Train all weights of Llama-3-8B on the RTX 4090. Find the longest sequence for LoRA with a base in
# 4 bits. Keep every map, and say why LoRA no longer fits.

# %% [markdown] slide="skip"
# <details><summary>What to look for</summary>
#
# With one text of 2,048 tokens all weights fit by *both at once*. LoRA with a base in 4 bits takes all 8,192 tokens of
# the model; by then most of the peak is the logits and their gradient. With every map kept, the maps of 2,048 tokens are
# four fifths as large as the weights.
#
# </details>

# %% [markdown] slide="subslide"
# A published sentence about training:

# %%
judge([92])

# %% [markdown] slide="notes"
# **The first sitting ends here.** Serving, the second, keeps less: no gradients, no moments, hardly a map.

# %% [markdown] slide="slide"
# ## Serving: how many users?
#
# The same model on the same card now writes text, one token after the other. Each token looks at the keys and values
# of all before it, so these are kept: the *key–value cache*.

# %% [markdown] slide="notes"
# In every layer a token leaves one key and one value for each key–value head:
#
# > 2 · layers · key–value heads · values a head · bytes a value
#
# Llama-3-8B has 32 heads of 128 values, and only 8 key–value heads, each shared by four query heads: *grouped-query
# attention*. (A trained model can be given it too, if it is trained a little further: Ainslie and others, 2023.) By hand,
# and in a real forward pass on shapes:

# %%
per_token = 2 * 32 * 8 * 128 * 2
print(f"a token: {format_bytes(per_token)}; with all 32 heads: {format_bytes(4 * per_token)}")
print(f"a sequence of 8,192: {format_bytes(serving.cache_bytes(shape, 8192))}")

with torch.device("meta"):
    model, cache = shape.build(layers=2).to(torch.bfloat16).eval(), []
    model(torch.zeros(1, 1000, dtype=torch.int64), cache=cache)
held = sum(part.numel() * part.element_size() for pair in cache for part in pair)
print(f"two layers, 1,000 tokens: {held:,} bytes; by hand {1000 * per_token * 2 // 32:,}")

# %% [markdown] slide="subslide"
# What weights and context leave of the card is for caches. How many sequences fit?

# %% folded=true
room = room_for_tensors(card)


def fits(tokens, weights=2 * n, memory=room, value_bytes=2.0, kv_heads=None):
    """Sequences of so many tokens that fit beside weights of so many bytes."""
    cache = serving.cache_bytes(shape, tokens, 1, value_bytes, kv_heads)
    return int((memory - weights) // cache)


in_layers = 32 * sum(a * b for a, b in widths.values())
quarter = 2 * (n - in_layers) + in_layers * (0.5 + 4 / 64)  # bytes: layers in 4 bits
more_weights = 2 * 32 * 2 * (h - kv) * h  # bytes of the products that make keys and values
pages = -(-500 // 16) * 16
prefix = serving.cache_bytes(shape, 2048)  # there once, for all
left, piece = room - 2 * n - 8 * serving.cache_bytes(shape, 8192), 3 * 2048 * inner * 2
print(f"beside weights and 8 caches of 8,192: {format_bytes(left)};")
print(f"a layer's feed-forward maps of 2,048 tokens: {format_bytes(piece)}")
pd.DataFrame(
    {
        "of 8,192 tokens, reserved": [fits(8192)],
        "the same, no shared heads": [fits(8192, 2 * n + more_weights, kv_heads=32)],
        "of 8,192, their first 2,048 alike": [fits(8192 - 2048, 2 * n + prefix)],
        "of 500 tokens so far, in pages of 16": [fits(pages)],
    },
    index=["fit"],
).T

# %% [markdown] slide="notes"
# Weights and caches alone are counted. Reserve room for 8,192 tokens, as long a text as the model was trained on, and at
# most 8 users fit; without shared heads, one. What 8 leave is hardly enough for the maps of a prompt, so a real server
# takes fewer (*Further*). vLLM hands out the cache in *pages* of 16 tokens, so that a sequence takes room for what it has
# written, not for what it might write, and sequences that begin alike share pages (Kwon and others, 2023). But sequences
# grow. When no page is left, a sequence is *preempted*: its pages are freed, and its cache is computed again later.

# %% [markdown] slide="slide"
# ## How fast does it write?
#
# For the RTX 4090 NVIDIA publishes 165 TFLOP/s in 16 bits, with float32 sums, and 1,008 GB/s. Writing a token takes two
# operations for each of 7.5 billion weights.

# %% [markdown] slide="notes"
# (Of the embedding's half billion, a token reads one row.) llama.cpp was measured on this card: Llama-3-8B in 16
# bits wrote 1,024 tokens for one user, from an empty cache (XiongjieDai, GPU-Benchmarks-on-LLM-Inference, May 2024).

# %%
guess_rate = predict("About how many tokens a second did it write?", unit="tokens/s")
guess_rate

# %% folded=true
MEASURED = {  # tokens a second: "tg 512", "tg 1024", "tg 4096", "tg 8192"
    "16 bits": (54.84, 54.34, 52.63, 50.88),
    "Q4_K_M": (130.58, 127.74, 119.44, 110.66),
}
wrote = MEASURED["16 bits"][1]
one = serving.decode(shape, 512)  # on average half of the 1,024 are in the cache
on_paper = replace(
    card,
    bandwidth_gb_s=card.bandwidth_gb_s / BANDWIDTH_EFFICIENCY,
    tensor_tflops=card.tensor_tflops / ARITHMETIC_EFFICIENCY,
)
reveal(
    guess_rate,
    {
        "measured": wrote,
        "expected, three quarters of the bandwidth": one.tokens_per_second(card),
        "bound, all of the bandwidth": one.tokens_per_second(on_paper),
    },
    thoughts=[
        *[
            (flops / 15e9, "Arithmetic allows that. But all weights must be read each time.")
            for flops in (card.flops_per_s("float16"), card.reached_flops_per_s("float16"))
        ],
        (
            one.tokens_per_second(on_paper),
            "That is all of the published bandwidth: a bound. We expect three quarters of it.",
        ),
        (
            on_paper.reached_bytes_per_s() / (2 * n),
            "That reads all weights. Of the embedding a token reads one row.",
        ),
    ],
)

# %% [markdown] slide="subslide"
# In *prefill* the whole prompt goes through the model in one pass, and each weight that is read serves all its tokens. In
# *decode* each pass reads all weights anew, for one token a sequence. On the roofline of lesson 01:

# %% folded=true
points = [Reached("1 sequence, measured", one.flops, one.traffic, 1 / wrote)]
modelled = {"8 sequences": serving.decode(shape, 512, 8),
            "64 sequences": serving.decode(shape, 512, 64),
            "prefill, 1,024 tokens": serving.prefill(shape, 1024)}  # fmt: skip
points += [Reached(name, p.flops, p.traffic, p.seconds(card), True)
           for name, p in modelled.items()]
roofline(on_paper, points,
         f"One sequence does {one.intensity:.0f} FLOP a byte, 64 do "
         f"{points[2].intensity:.0f}, prefill {points[-1].intensity:,.0f}",
         precision="float16")  # fmt: skip

# %% slide="skip" folded=true
bytes_share = wrote / one.tokens_per_second(on_paper)
flops_share = wrote * one.flops / card.flops_per_s("float16")
print(f"measured: {100 * bytes_share:.0f} % of the published bandwidth,", end=" ")
print(f"{100 * flops_share:.1f} % of the arithmetic")
embedding = head * 4.5 / 8  # a row of it is read; Q4_K has 4.5 bits a value
read = {"16 bits": one.products.traffic, "Q4_K_M": 4.58 * GIB - embedding}
paces = {}
for name, rates in MEASURED.items():  # a token's time against half of what is written
    seconds_a_token = [1 / rate for rate in rates]
    slope, alone = paces[name] = np.polyfit((256, 512, 2048, 4096), seconds_a_token, 1)
    of_weights, of_cache = (
        100 * size / time / on_paper.reached_bytes_per_s()
        for size, time in ((read[name], alone), (per_token, slope))
    )
    print(f"{name}: {1e3 * alone:.1f} ms a token (if all is reading weights, at", end=" ")
    print(f"{of_weights:.0f} % of the bandwidth),")
    print(f"    {1e6 * slope:.2f} µs a token in the cache ({of_cache:.0f} %)")
alike = (read["16 bits"] - read["Q4_K_M"]) / (paces["16 bits"][1] - paces["Q4_K_M"][1])
besides = paces["16 bits"][1] - read["16 bits"] / alike
print(f"or both weights at {100 * alike / on_paper.reached_bytes_per_s():.0f} %,", end=" ")
print(f"and {1e3 * besides:.1f} ms besides")

# %% [markdown] slide="notes"
# Two operations for a weight of two bytes are one operation a byte, far left of the ridge, where reading is the bound.
# The measured point is at four fifths of it. Hollow points are modelled, at the rates that we expect.
#
# The last lines fit the rates published for 512 to 8,192 tokens, in 16 bits and in 4 to 6 (Q4_K_M). A token's time is a
# sum: a part that depends on the format of the weights, and a part that grows with the cache, alike for either format.
# Two formats cannot tell how much of the first part is reading: a bandwidth for each format fits, and so does one
# bandwidth for both, with a fixed time on top. The part that grows with the cache is twice what our 75 % gives. (The published
# command does not ask for fused attention.) What follows is computed by the rule.

# %% [markdown] slide="slide"
# ## A full card
#
# Sequences served at once share the reading of the weights; each reads its own cache, where texts differ. Eight users
# with 8,192 tokens each fill the card.

# %% folded=true
def each(context, sequences, bits=16.0, value_bytes=2.0, on=card):
    """Tokens a second that each of so many sequences is expected to get."""
    found = serving.decode(shape, context, sequences, value_bytes, bits)
    return found.tokens_per_second(on) / sequences


guess_full = predict(
    f"Alone, one of them would get {each(8192, 1):.0f} tokens a second. "
    "How many does each of the eight get?",
    unit="tokens/s",
)
guess_full

# %% folded=true
reveal(
    guess_full,
    {"expected": each(8192, 8)},
    thoughts=[
        (
            each(8192, 1),
            "The weights are read once for all. But eight caches are read too, 8 GiB.",
        ),
        (
            each(8192, 1) / 8,
            "Then the weights would be read once for each. One reading serves all eight.",
        ),
        (8 * each(8192, 8), "That is what all eight get together."),
    ],
)

# %% slide="subslide" folded=true
# Bits read for a weight, on average: 4 and scales in the layers, 16 in the head
four = 8 * (quarter - 2 * head) / serving.matrix_values(shape)


lines, ends = [], []
for name, context, colour, weights, bits in (
    ("of 8,192", 8192, COLOURS[1], 2 * n, 16),
    ("of 2,048", 2048, COLOURS[0], 2 * n, 16),
    ("of 2,048, 4-bit weights", 2048, COLOURS[2], quarter, four),
):
    users = range(1, fits(context, weights) + 1)
    rates = [each(context, many, bits) for many in users]
    lines.append(Curve("", users, rates, colour, dashed=bits != 16))
    ends.append(Spot(f"{users[-1]} {name}", users[-1], rates[-1], colour, bold=True))
plane(
    Axis("users at once, until the card is full", log=True, high=300),
    Axis("tokens a second for each", log=True, low=20),
    lines,
    ends,
    title=f"Modelled: each user of a full card gets {ends[0].y:.0f} tokens a second, "
    f"with 4-bit weights {ends[2].y:.0f}",
)

# %% [markdown] slide="subslide"
# A step writes one token for each user. Its kernels run in turn, so the times of *products* with the weights and of
# *attention* add up:
#
# > max(weights / bandwidth, users · operations / arithmetic) + users · cache / bandwidth
#
# Products read or compute, whichever takes longer; attention reads. Where products read, **a full card is read once a
# step, whoever fills it.**

# %% folded=true
faster = {
    "as it is": card,
    "with endless arithmetic": replace(card, tensor_tflops=1e9),
    "with endless bandwidth": replace(card, bandwidth_gb_s=1e9),
}
for what, context, many, bits in (
    ("8 users of 8,192 tokens", 8192, 8, 16),
    ("70 of 2,048, 4-bit weights", 2048, fits(2048, quarter), four),
):
    full = serving.decode(shape, context, many, weight_bits=bits)
    reading = full.products.traffic / card.reached_bytes_per_s()
    computing = full.products.flops / card.reached_flops_per_s("float16")
    print(f"{what}: products read for {format_seconds(reading)}", end=" ")
    print(f"and compute for {format_seconds(computing)},", end=" ")
    print(f"attention {format_seconds(full.attention.seconds(card))}")
    print("    each gets", ", ".join(f"{each(context, many, bits, on=it):.0f} {name}"
                                     for name, it in faster.items()))  # fmt: skip
for many in (32, 1):
    get = " and ".join(f"{each(2048, many, bits):.0f}" for bits in (16, four))
    print(f"{many} × 2,048 tokens: {get} tokens/s each, with weights in 16 and in 4 bits")
turn, own = card.ridge("float16"), full.attention.seconds(card) / full.tokens
late, early = (int(users) + 1 for users in (turn, turn * four / 16))
print(f"products compute from {late} users on, with 4-bit weights {early}:")
print(f"    a user more adds {1e3 * own:.2f} ms before,", end=" ")
print(f"{1e3 * (own + computing / full.tokens):.2f} after;")
in_all = (f"{u * each(2048, u, four):,.0f} tokens/s for {u}" for u in (25, 50, 70))
print("    in all", ", ".join(in_all))
slope, alone = paces["16 bits"]
slow = 1 / (alone + 8 * 8192 * slope)  # 65,536 tokens in the caches, as of 32 users of 2,048
slope, alone = paces["Q4_K_M"]
few_bits = 1 / (max(alone, computing) + 70 * 2048 * slope)
print(f"as llama.cpp read: 8 of 8,192 {slow:.0f} tokens/s each, 70 of 2,048 {few_bits:.0f}")

# %% [markdown] slide="notes"
# Eight users of 8,192 tokens and 32 of 2,048 both get 32 tokens a second: either way a step reads the weights and 8 GiB
# of caches. So on a full card smaller weights or caches bring users, and no speed, if caches are read as fast as weights.
# On a card that is not full they bring speed: with 4-bit weights the same 32 users get 56 in place of 32, and one alone
# 144 in place of 49. Both are the rule's, which flatters 4 bits: with as long a cache llama.cpp wrote 119 in place of 53.
#
# Eight users wait for reading and nothing else. With 4-bit weights products compute from 49 users on. Attention reads on,
# so at 70 users more arithmetic would help, and so would more bandwidth. From 49 on the whole time is proportional to the
# users, and the total grows no more. (The last rate of each line is below the rule: with endless bandwidth
# attention's own operations remain, 0.3 and 0.7 ms.)
#
# What the rule leaves out takes time: launches, norms, sampling. Its 75 % of the bandwidth stands for all of that, and
# may err: llama.cpp took less for the weights in 16 bits, 18.2 ms in place of 19.9, and twice as long for a cache. If
# eight caches take eight times as long as one did there, each of the eight gets 24 tokens a second in place of 32, and
# each of the 70 with 4-bit weights 17 in place of 29.

# %% [markdown] slide="slide"
# **What would you shrink?** Say that users have 2,048 tokens each. Do you put the weights in 4 bits, or the caches in 8?

# %% tags=["change"]
# Change the card to "H100 SXM" and run again: which of the two makes room for more users now?
on = hardware.device("RTX 4090")

for what, weights, bits, value_bytes in (
    ("16 bits", 2 * n, 16, 2),
    ("4-bit weights", quarter, four, 2),
    ("8-bit caches", 2 * n, 16, 1),
    ("both", quarter, four, 1),
):
    users = fits(2048, weights, room_for_tensors(on), value_bytes)
    rate = each(2048, users, bits, value_bytes, on)
    print(f"{what:>13}: {format_bytes(room_for_tensors(on) - weights)} for caches,", end=" ")
    print(f"{users:>3} users, {rate:.0f} tokens/s each, {users * rate:,.0f} in all")

# %% [markdown] slide="skip"
# <details><summary>Which of the two?</summary>
#
# The caches: 513 users, and 294 with weights in 4 bits. Halved caches double the users of any card. Weights in 4 bits
# free 9 GiB: more than the caches have on the small card, little beside 64 GiB on the large one.
#
# </details>

# %% [markdown] slide="notes"
# (On the small card the 65 users of 8-bit caches and the 70 of 4-bit weights get as much in all, within 2 %: the rates
# that we expect are not known that well.)
#
# Both are paid for in rounding. For Llama-3-8B llama.cpp's Q4_K_M raises the *perplexity*, e to the mean loss, from 6.23
# to 6.41 on WikiText-2, by 2.8 %; weights in 8 bits raise it by 0.04 % (its README on perplexity, revision f364eb6f). For
# NF4 and for 8-bit caches we have no such figure. We suppose a kernel that unpacks 4-bit weights while it multiplies.
# Where a 16-bit copy is written first and read again, as by bitsandbytes for a batch, 4.6 bytes a weight move in place of
# 2: 4 bits buy room and cost speed.

# %% [markdown] slide="slide"
# ## Recap
#
# | | saves | price |
# |---|---|---|
# | LoRA | gradients, moments, time | learns only changes of low rank |
# | 4-bit weights, 8-bit caches | weights, caches | rounded |
# | both at once | gradients, moments | seconds an update, 45–60 GiB of the host |
# | 16-bit weights | half of float32 | small updates lost |
# | recomputing | maps | a forward pass |
# | shared heads | caches | trained for it |
# | pages | reserved room | preemption |
# | full card | reading weights for each user | each waits longer |

# %% [markdown] slide="notes"
# All 8 billion weights train on 24 GiB, with up to 4,779 tokens; an update takes three or four seconds if nothing
# overlaps, and less if much does. At most eight users fit, with 8,192 tokens each, in 16 bits.
#
# Decode mostly reads, and a full card is read once a step. Smaller weights or caches make room for more users. Each stays
# as fast, if caches are read as fast as weights and products compute for no longer than they read.

# %% [markdown] slide="skip"
# ## Further
#
# **What was traced, and what is assumed.** The trace runs on shapes, through five layers; the middle one is then
# repeated until there are 32. All tensors of autograd and of recomputation are traced, LoRA's maps, and the 16-bit
# copies of 4-bit weights. We assume that 4-bit kernels and a fused AdamW make no scratch memory, and that a gradient
# used at once is freed before the next operator. The first line below traces eight layers both ways; the second is AdamW
# as torch runs it by default. (QLoRA as published rounds the scales as well, to 4.13 bits a weight in place of 4.5:
# Dettmers and others, 2023.)

# %% slide="skip" folded=true
short, all_eight = (
    short_tape(shape, METHODS["LoRA"], 2048, 1, True, "bfloat16", layers) for layers in (5, 8)
)
repeated, traced = (Ledger("", tape, 1).peak_bytes for tape in (deepened(short, 8), all_eight))
print(f"eight layers, repeated {repeated:,} bytes; traced whole {traced:,}")
default = step("Llama-3-8B", Method(optimizer="AdamW, torch's default"))
more = default.peak_bytes - steps["full"].peak_bytes
print(f"without fused=True: {format_bytes(more)} more, in the {default.peak_phase}")

# %% [markdown] slide="skip"
# **Which maps LoRA drops.** Each of 65 norms, written as separate operators, kept a map of 16 MiB for the gradient of its
# own weight alone. The head has no adapter, so its input goes too; and the first norm's float32 copy, of 32 MiB, as
# nothing below it is trained.

# %% slide="skip" folded=true
def more_maps(part):
    """Bytes that LoRA's maps at the peak are more than those of full, of layers so named."""
    found = {}
    for name in ("LoRA", "full"):
        tape, at = kept[name].tape, kept[name].peak_event
        alive = (tape.birth <= at) & (tape.death > at)
        alive &= tape.role == ROLES.index("feature maps")
        named = [part in f".{layer}." for layer in tape.layer_names]
        found[name] = kept[name].size[alive & [named[i] for i in tape.layer]].sum()
    return found["LoRA"] - found["full"]


print(f"LoRA's maps: {format_bytes(maps['full'] - maps['LoRA'])} less", end=" ")
print(f"(norms {format_bytes(-more_maps('.norm'))} less,", end=" ")
print(f"by hand {format_bytes((65 + 1 + 2) * 2048 * 4096 * 2)};")
print(f"the adapters' own thin maps {format_bytes(more_maps('.down.'))} more)")

# %% [markdown] slide="skip"
# **Merging rounds.** Updates of rank 16, a tenth to a thousandth of the weights' size. *Arrives*: how much of the update
# is in what the weights have changed by; *noise*: the rest of that, in per cent of the update.

# %% slide="skip" folded=true
torch.manual_seed(0)
weight, update = 0.02 * torch.randn(512, 512), torch.randn(512, 16) @ torch.randn(16, 512)
scales, codes = quantised(weight)[1][:, None], torch.tensor(NF4)


def held(values):
    """In 4 bits, with the scales that the weight's blocks have now."""
    nearest = (values.reshape(-1, 64, 1) / scales[..., None] - codes).abs().argmin(-1)
    return (codes[nearest] * scales).reshape(512, 512)


formats = {
    "bfloat16": lambda values: values.to(bf16).float(),
    "4 bits": lambda values: dequantised(*quantised(values), (512, 512), torch.float32),
    "4 bits, scales held": held,
}
for size in (0.1, 0.01, 0.001):
    change = size * update * weight.std() / update.std()
    for name, rounded in formats.items():
        moved = rounded(rounded(weight) + change) - rounded(weight)
        arrives = (moved * change).sum() / change.square().sum()
        noise = (moved - arrives * change).norm() / change.norm()
        print(f"{100 * size:4.1f} % of the weights, {name}: {100 * arrives:.0f} %", end=" ")
        print(f"arrives, noise {100 * noise:.0f} %,", end=" ")
        print(f"{100 * (moved == 0).double().mean():.0f} % of the values as before")

# %% [markdown] slide="skip"
# A weight in 4 bits has 16 values to choose from. An update of 1 % is too small to move any to the next, as the lines
# with the scales held show. What does change are the scales: each is the largest magnitude of its block, and moves all 64 of
# them. That is the noise. So an adapter stays beside a 4-bit base, or the base is turned to 16 bits first.
#
# **LoRA on this machine.** Six dense layers of 512, batch 256:

# %% slide="skip" tags=["nbval-ignore-output"] folded=true
def dense(adapted):
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        one = nn.Linear(512, 512)
        layers += [LoRA(one, 512, 512, 8, one.weight) if adapted else one, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 10).requires_grad_(not adapted))


target = "cuda" if torch.cuda.is_available() else "cpu"
for name, adapted in (("full", False), ("LoRA", True)):
    trace = training_step(dense(adapted), (512,), 10, "adamw", target=target).at(256)
    measured = measure_step(dense(adapted), (512,), 10, 256, "adamw").peak_bytes
    print(f"{name}: traced {format_bytes(trace.peak_bytes)},", end=" ")
    print(f"measured {format_bytes(measured)}")

# %% [markdown] slide="skip"
# **Moments in bfloat16.** 3,000 steps of one float32 weight, with either moment rounded to bfloat16. The first 300
# gradients are ten times as large as the others:

# %% slide="skip" folded=true
moments = {"neither": "", "the first": "exp_avg", "the second": "exp_avg_sq"}
for name, rounded in moments.items():
    weight = nn.Parameter(torch.zeros(1))
    adam = torch.optim.AdamW([weight], lr=2e-5, weight_decay=0)
    after = []  # each step: the weight, the second moment
    for number in range(3000):
        weight.grad = torch.full_like(weight, 1e-2 if number < 300 else 1e-3)
        adam.step()
        state = adam.state[weight]
        if rounded:
            state[rounded] = state[rounded].to(bf16).to(fp32)
        after.append((weight.item(), state["exp_avg_sq"].item()))
    last = (after[2699][0] - after[2999][0]) / 300
    print(f"{name} in bfloat16: second moment {after[299][1]:.1e}, at the end", end=" ")
    print(f"{after[2999][1]:.1e}; last steps {last:.1e}")
# Every positive value of bfloat16 but the subnormal ones
every = torch.arange(128, 32640).to(torch.int16).view(bf16)
same = ((0.999 * every.float()).to(bf16) == every).sum()
print(f"0.999 · v rounds back to v for {same:,} of {len(every):,} values of bfloat16")

# %% [markdown] slide="skip"
# The first moment hardly matters. The second, v, is multiplied by 0.999 in each step. That takes away 0.1 %, less than
# half the distance between two bfloat16 values, so 0.999 · v rounds back to v. Once the
# gradients have shrunk, v is still large, and the steps are a third as long as they should be. (Real gradients change
# sign, so the figures differ. Stochastic rounding is another remedy.)

# %% [markdown] slide="skip"
# **LoRA on a T4** (fitcheck-llm 0.3.1). In MiB, the longest texts of each of the five models. Left out are the runs with
# *eager* attention, which writes the scores out: our trace is of fused attention, which does not. That `out`
# stays alive and the rest is in float32 was found on these runs, as the next figure shows, so this is a fit and no test.

# %% slide="skip" folded=true
pairs = pd.read_csv(Path(serving.__file__).with_name("t4_pairs.csv"), comment="#")
pairs["name"] = pairs["model"].str.replace("-Instruct|-Chat-v1.0", "", regex=True)
fused = pairs[pairs["attention"] == "flash"].sort_values("sequence")


def t4_peak(pair, base, out=True):
    """MiB traced for a pair's step."""
    method = Method("lora", base, rank=pair["rank"], beside=("q", "k", "v", "project"))
    ledger = step(pair["name"], method, pair.sequence, pair.batch, keep_output=out)
    return ledger.allocated_bytes() / MIB


t4 = pd.DataFrame({"model": fused["name"], "tokens": fused["batch"] * fused["sequence"]})
below = []
for base, bits, column in (
    ("16 bits", "16 bits", "sixteen_bits_mib"),
    ("4 bits, rest in float32", "4 bits", "four_bits_mib"),
):
    traced = [t4_peak(pair, base) for _, pair in fused.iterrows()]
    t4[f"{bits}, measured"], t4[f"{bits}, traced"] = fused[column], traced
    below += list(100 * (1 - traced / fused[column]))
print(f"{2 * (len(pairs) - len(fused))} runs left out, {len(below)} traced:", end=" ")
print(f"the trace is {min(below):.1f} to {max(below):.1f} % below")
t4.groupby("model").tail(1).set_index("model").map("{:,.0f}".format)

# %% [markdown] slide="skip"
# SmolLM2-135M needs 429 MiB more in 4 bits than in 16, though its loaded weights are 91 MiB smaller. Three suspects:
# `out`, the logits, alive through the backward pass, as in that program (lesson 03); the rest in float32, where peft's
# `prepare_model_for_kbit_training` puts norms, embedding and head, so that the logits are float32 too; and *copies kept*:
# bitsandbytes makes a 16-bit copy of a 4-bit weight before each product, and autograd might save it.

# %% slide="skip" folded=true
asked = fused[fused["name"] == "SmolLM2-135M"].iloc[-1]
side_by_side(
    {
        "16 bits, measured": asked["sixteen_bits_mib"],
        "16 bits: out alive": t4_peak(asked, "16 bits"),
        "16 bits: out gone": t4_peak(asked, "16 bits", False),
        "4 bits, measured": asked["four_bits_mib"],
        "4 bits: float32 rest, out alive": t4_peak(asked, "4 bits, rest in float32"),
        "4 bits: float32 rest, out gone": t4_peak(asked, "4 bits, rest in float32", False),
        "4 bits: out alive": t4_peak(asked, "4 bits"),
        "4 bits: out alive, copies kept": t4_peak(asked, "4 bits, copies kept"),
    },
    title="4 bits: of those tried, only both causes together (blue) give the measured peak "
    "(hollow)",
    hollow=("16 bits, measured", "4 bits, measured"),
    blue=("4 bits: float32 rest, out alive",),
)

# %% slide="skip" folded=true
for base in ("16 bits", "4 bits, rest in float32", "4 bits"):
    alive, gone = (
        format_bytes(step("Llama-3-8B", Method("lora", base), keep_output=output).peak_bytes)
        for output in (True, False)
    )
    print(f"Llama-3-8B, {base}: {alive} with out alive, {gone} without")

# %% [markdown] slide="skip"
# With `out` alive in both programs and nothing in float32, 4 bits save 146 MiB. The rest in float32 makes that an
# extra: the logits, 4,096 × 49,152 values, take 768 MiB in place of 384. Without `out` in either program the extra is 65
# MiB; with it the logits are still there at the peak, and the extra is 449 (measured: 429). Kept copies change nothing
# here: with recomputation only one layer's exist at a time. (bitsandbytes keeps none.)
#
# Three more published sentences, two of them about 4 bits:

# %% slide="skip"
judge([89, 90, 91])

# %% [markdown] slide="skip"
# (Claim 89 is judged by ways to compute in 4 bits, some of which need more. Which one its program took is open.)
#
# In Llama-3-8B the weights outweigh the logits: 4 bits save, but about 3 GiB less with the rest in float32. So before you
# blame 4 bits for a peak, keep only the loss (`loss = model(...).loss`), and look for what was turned to float32.

# %% [markdown] slide="skip"
# **In PyTorch:**
#
# ```python
# model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)   # or quantization_config=…
# lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")   # s = lora_alpha / r
# model = peft.get_peft_model(model, lora)
# model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
# model.train()
# torch.optim.AdamW(model.parameters(), fused=True)
# ```
#
# peft keeps the adapters of a 16-bit model in float32, with a float32 copy of the input of each. In 16 bits, as we trace
# them (`autocast_adapter_dtype=False`), they lose small updates, as any weight does. What float32 takes for one text of
# 2,048, and without the tensors of logits:

# %% slide="skip" folded=true
exact = step("Llama-3-8B", Method("lora", "16 bits, adapters in float32"))
print(f"adapters in float32: {format_bytes(exact.peak_bytes - lora.peak_bytes)} more;", end="")
print(f" without logits {format_bytes(without_logits(exact) - without_logits(lora))}")

# %% [markdown] slide="skip"
# `from_pretrained` leaves a model as for serving, and then nothing is computed again, silently: hence
# `model.train()`. 8-bit moments and 4-bit weights are bitsandbytes' or torchao's; `register_post_accumulate_grad_hook`
# is how a step gets into the backward pass. Your own model's step: `course trace --hf config.json`.

# %% [markdown] slide="skip"
# **Three published runs on this card.** torchtune's README lists Llama-3.1-8B, of the same shape, on two texts of 2,048:
# LoRA, LoRA with a base in 4 bits, and all weights. The last keeps 8-bit moments in pages that move to the card, and
# updates there. Their loss is in pieces, so we leave the tensors of logits out, which may be too much:

# %% slide="skip" folded=true
for base, gib, rate in (("LoRA", 16.2, 3083), ("4-bit base and LoRA", 7.4, 2413)):
    ours = without_logits(step("Llama-3-8B", base, batch=2)) / GIB
    print(f"{base}: traced {ours:.1f} GiB, published {gib} GiB, {rate:,} tokens/s")
lora_rate = 3083 * (operations - 2 * serving.matrix_values(shape))  # no gradients of weights
lora_share = 100 * lora_rate / card.flops_per_s("float16")
print(f"LoRA computes {lora_rate / 1e12:.0f} TFLOP/s, {lora_share:.0f} % of those published")
paged = 2 * n * (1 + 4 / 256)  # two moments of 8 bits, and their scales
print(f"8-bit moments in pages: {format_bytes(paged)} each way,", end=" ")
print(f"{2 * paged / link.bytes_per_s:.1f} s in all, and no update by the host")
print(f"4,096 tokens of all weights: computing {4096 * operations / lora_rate:.1f} s", end=" ")
print(f"as in LoRA, {4096 * a_token:.1f} s at 67 %; published {4096 / 1650:.1f} s")

# %% [markdown] slide="skip"
# Both traces are 6 % above; what differs (they compile their layers) we have not told apart. If all weights compute at
# the rate of LoRA, 0.7 s of the 2.5 are left for pages and update, half of the 1.4 s. Both ways at once, pages that stay
# on the card, or copies beside the computing would explain it; which of them, the README does not say.

# %% [markdown] slide="skip"
# **How many tokens until the card waits no more?** All weights are trained, in one pass of so many tokens an update.
# *In turn* is the table of the lesson. *Side by side*: copies, update and the card's own products all at once. The copies
# cross the host's memory too, another 4 bytes a weight. That is a bound: the next forward pass would have to find each
# layer's new weights there.

# %% slide="skip" folded=true
at_once = {name: max(copy, 18 * n / rate) for name, rate in hosts.items()}
most = longest_sequence(
    "Llama-3-8B", "state on the CPU + step in backward", room_for_tensors(card)
)
print(f"In one pass the card has room for {most:,} tokens.")
pd.DataFrame(
    [
        (name, way, f"{seconds[name]:.1f} s", f"{seconds[name] / a_token:,.0f} tokens")
        for way, seconds in (("in turn", in_turn), ("side by side", at_once))
        for name in hosts
    ],
    columns=["host", "copies and update", "take", "in which the card computes"],
).set_index("host")

# %% [markdown] slide="skip"
# (At 67 % of the arithmetic; at 82 %, as LoRA, 1.23 times as many.) If copies and update take turns, the card needs more
# tokens than it has room for. If they overlap, the 4,779 that fit are enough with the faster memory at 67 %, and 4 % too
# few at 82 %; with the slower one they are not enough at either. Several passes can add up their gradients on the host,
# which then updates once.

# %% [markdown] slide="skip"
# **A server keeps the card full**: a new sequence enters as soon as one has ended (*continuous batching*). Its prompt,
# computed in one go, would hold up the others for nine of their tokens, so a server takes it in pieces, each in the same
# step as their tokens, which leave arithmetic idle (*chunked prefill*). And vLLM by default keeps to 92 % of the card,
# maps included (`gpu_memory_utilization` in its `config/cache.py`, commit 002f10e).

# %% slide="skip" folded=true
prompt = serving.prefill(shape, 2048).seconds(card)
print(f"a prompt of 2,048: {format_seconds(prompt)}, {prompt * each(8192, 8):.0f} steps")
fewer = fits(8192, memory=0.92 * card.memory_bytes)
print(f"of 8,192 tokens in 92 % of the card: {fewer} users at most")

# %% [markdown] slide="skip"
# **Speculative decoding** (Leviathan and others, 2023). One user, too, can have several tokens a reading: a small model
# proposes a few, and the large one checks them all in one pass, as if they were a prompt: arithmetic that one user leaves
# unused.
#
# Now the exercise: [exercises/14_one_card.ipynb](../exercises/14_one_card.ipynb). {questions}. Save, then
# `course check 14` gives your marks.
