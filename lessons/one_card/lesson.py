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
# **The question:** an 8-billion-parameter model, a 24 GiB card: what can be trained, what can be served, and which
# choice makes it possible?

# %% [markdown] slide="notes"
# Afterwards you can
#
# 1. count what full fine-tuning keeps, and say which role each method takes away;
# 2. write LoRA by hand, and say where it saves and where it does not;
# 3. say what a base in 4 bits changes besides the weights;
# 4. count a key–value cache, and the longest context that fits beside the weights;
# 5. bound the tokens a second of a card, and say what batching buys.
#
# About 150 minutes, and {minutes} for the exercise: two sittings, training and then *Serving*. It builds on lesson 13
# (transformers), 11 (ZeRO) and the roofline of 01. No GPU is needed.

# %% slide="skip" folded=true
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pandas as pd
import torch
from torch import nn

from classroom.predict import predict, reveal
from course_utils.figures import Axis, Curve, Spot, plane, side_by_side, skyline
from course_utils.machine import hardware
from course_utils.machine.hardware import BANDWIDTH_EFFICIENCY
from course_utils.machine.measure import measure_step
from course_utils.machine.timing import measure_ceilings
from course_utils.memory import ROLES
from course_utils.networks import mlp
from course_utils.techniques.capacity import fit, room_for_tensors
from course_utils.techniques.fine_tuning import LoRA
from course_utils.trace import training_step
from course_utils.units import GB, GIB, MIB, format_bytes, format_seconds
from lessons.claims import judge
from lessons.one_card import serving
from lessons.one_card.explorer import one_card_explorer
from lessons.one_card.fine_tuning import METHODS, Method, step, trainable_bytes
from lessons.pooling.remembered import PLANNED, kept_by_type
from lessons.shared import digits
from lessons.shared.language_models import SHAPES
from lessons.shared.parallel import sent_bytes, sharded, state_bytes
from lessons.shared.role_bars import role_bars
from lessons.shared.roofline import Reached, roofline

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
# The small matrices have half a percent as many values. Every layer is computed again in the backward pass, as in
# lesson 10.

# %%
guess = predict("How much memory does this training step need at its peak?", unit="GiB")
guess

# %% [markdown] slide="slide"
# First, by hand, what one would like to do: train everything. AdamW keeps two moments a weight. All in 16 bits:

# %%
n = shape.parameters
by_hand = {"weights": 2 * n, "gradients": 2 * n, "two moments": 4 * n}
for what, size in by_hand.items():
    print(f"{what:>12}: {format_bytes(size):>10}")
print(f"{'together':>12}: {format_bytes(sum(by_hand.values())):>10}, before a single map")
print(f"{'the card':>12}: {format_bytes(card.memory_bytes):>10}, as PyTorch reports it")
print(f"{'for tensors':>12}: {format_bytes(room_for_tensors(card)):>10}, beside its context")

# %% [markdown]
# Eight bytes a weight.

# %% [markdown] slide="notes"
# Mixed precision keeps the moments, and a second copy of the weights, in float32: 16 bytes, or 18 where gradients are
# in float32 too. That is 120 GiB and more. A 24 GiB card holds the weights, and 8 GiB besides.
#
# In the rest of the lesson *the card* is an RTX 4090, and what fits must go into the last line.

# %% [markdown] slide="slide"
# ## Eight ways to train
#
# Full fine-tuning, and seven cheaper ways.

# %% [markdown] slide="notes"
# Each row of the second picture is a training step of the whole model, one sequence of 2,048 tokens, by role at its
# peak.

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

# %%
fitting = [name for name, ledger in steps.items() if fit(ledger, card).state == "fits"]
role_bars(
    {name: roles(ledger) for name, ledger in steps.items()},
    f"With one text of 2,048 tokens, {len(fitting)} of {len(steps)} ways fit the 24 GiB card",
    card,
)

# %% [markdown] slide="notes"
# - *8-bit AdamW* keeps its moments in 8 bits, with a scale for every 256 of them.
# - *State on the CPU* (optimizer offload): gradients go to the host, which updates the weights and sends them back.
# - *Step in backward*: each weight is updated as soon as its gradient is there, and that gradient is let go.
# - *Head alone* freezes every weight but those of the last product, which makes the logits. It needs more than LoRA:
#   the head is half a billion weights, with two moments each.
# - *4-bit base and LoRA* (QLoRA): the frozen weights of all layers in 4 bits, 0.5 bytes, and a scale for every 64.

# %% [markdown] slide="subslide"
# 8-bit AdamW, the state on the CPU and the step in the backward pass all train every weight. None of them alone fits.
# The last two together do.

# %% [markdown] slide="skip"
# **What was traced, and what is assumed.** No GPU was used, and no weights were loaded. The trace runs on shapes,
# through five layers; the middle one is then repeated until there are 32. Equal layers do the same, so that is exact.

# %% [markdown] slide="notes"
# Traced are all tensors of autograd and of recomputation, LoRA's maps, and the 16-bit copies of 4-bit weights. We assume
# that 4-bit kernels and a fused AdamW make no scratch memory, and that a gradient used at once is freed before the next
# operator.

# %%
default = step("Llama-3-8B", Method(optimizer="AdamW, torch's default"))
more = default.peak_bytes - steps["full"].peak_bytes
print(
    f"torch's default AdamW in place of fused=True: {format_bytes(more)} more, "
    f"in the {default.peak_phase}"
)

# %% [markdown] slide="slide"
# ## LoRA
#
# Its skyline is a plateau, the weights, and a needle at the loss: tensors of 2,048 × 128,256 logits.

# %%
skyline(lora, card)

# %% folded=true
tape, moment = lora.tape, lora.peak_event
alive = (tape.birth <= moment) & (tape.death > moment)
made = tape.role >= ROLES.index("feature maps")  # not the weights, two of which are as large
wide = lora.size[alive & made & (lora.size >= 2 * 2048 * 128_256)]
sums = {
    "weights": 2 * n,
    "adapters, two moments": 3 * trainable_bytes(shape),
    f"{len(wide)} tensors, {wide.sum() / (2048 * 128_256):g} bytes a logit": wide.sum(),
    "inputs of 32 layers": 32 * 2048 * 4096 * 2,
}
sums["other small tensors"] = lora.peak_bytes - sum(sums.values())
for what, size in (*sums.items(), ("peak", lora.peak_bytes)):
    print(f"{what:>28}: {format_bytes(size):>10}")

# %% [markdown] slide="notes"
# In lesson 13 it was 14 bytes a logit, where the program still held the 16-bit logits. Here it keeps the loss alone.

# %% [markdown] slide="subslide"
# By hand. Hu and others (2021): a frozen linear layer of h inputs and k outputs gets an *adapter* of *rank* r beside
# it.

# %% [markdown] slide="notes"
# It is two thin linear layers, h to r and r to k. The second begins at zero, so at first nothing changes. Trained are r
# · (h + k) values in place of h · k. With rank 16, beside all seven products of a layer:

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
    f"with gradients and moments: {format_bytes(8 * values)} in place of {format_bytes(8 * n)}"
)

# %% [markdown] slide="subslide"
# Where does LoRA not save? All weights, LoRA, and LoRA on a 4-bit base, now with every map kept and none recomputed:

# %% folded=true
kept = {
    name: step("Llama-3-8B", name, recompute=False)
    for name in ("full", "LoRA", "4-bit base and LoRA")
}
maps = {name: ledger.by_role()["feature maps"] for name, ledger in kept.items()}


def of_norms(ledger):
    """Bytes of the norms' maps at the peak."""
    tape, at = ledger.tape, ledger.peak_event
    alive = (tape.birth <= at) & (tape.death > at) & (tape.role == ROLES.index("feature maps"))
    owner = [".norm" in f".{name}" for name in tape.layer_names]
    return ledger.size[alive & [owner[i] for i in tape.layer]].sum()


gone = format_bytes(maps["full"] - maps["LoRA"])
norms = format_bytes(of_norms(kept["full"]) - of_norms(kept["LoRA"]))
print(f"LoRA keeps {gone} of maps less; the norms' maps are {norms} less")
role_bars(
    {name: roles(ledger) for name, ledger in kept.items()},
    f"Optimizer state goes, {100 * maps['LoRA'] / maps['full']:.0f} % of the maps stay",
    card,
)

# %% [markdown] slide="notes"
# A gradient must pass *through* every frozen layer to reach the adapters below it, so activations, norms and attention
# keep what that needs. A frozen linear layer no longer needs its input, which served its weight gradient, but the
# adapter beside it needs that same input. What does go belongs to the norms: one map each, for the norm's own weight.
#
# The bar *full* has no weight gradients: its peak is at the loss, before the first of them. With recomputation the peak
# of *full* was at the end of the backward pass, with all gradients and hardly a map. The two are about equally high by
# chance.

# %% [markdown] slide="slide"
# ## A base in 4 bits: is it less?
#
# LoRA of SmolLM2-135M, one text of 4,096 tokens, was measured on a T4. With a base in 16 bits the peak was 3,148 MiB.
# With a base in 4 bits the loaded weights are 91 MiB less.

# %%
third = predict("What peak was measured with the base in 4 bits?", unit="MiB")
third

# %% slide="subslide" folded=true
pairs = pd.read_csv(Path(serving.__file__).with_name("t4_pairs.csv"), comment="#")
pairs["attention"] = pairs["attention"].replace("flash", "fused")
asked = pairs.query(
    "model == 'SmolLM2-135M' and attention == 'fused' and sequence == 4096"
).iloc[0]
higher = pairs["four_bits_mib"] > pairs["sixteen_bits_mib"]
reveal(
    third,
    {"measured on a T4": asked["four_bits_mib"]},
    thoughts=[
        (3148 - 91, "That is what the weights save. It forgets what the step makes besides."),
        (3148, "The weights are a small part of this peak. But maps may grow."),
    ],
)

# %% slide="skip" folded=true
smaller = pairs["four_bits_weights_mib"] < pairs["sixteen_bits_weights_mib"]
print(f"loaded weights are smaller with 4 bits in {smaller.sum()} of {len(pairs)} pairs")
shown = (
    pairs[higher].drop(columns=["rank"]).rename(columns=lambda name: name.replace("_", " "))
)
shown.round(0).set_index("model")

# %% [markdown] slide="notes"
# In these 7 of 20 pairs 4 bits lose, six of them in the two smallest models. (Measured: fitcheck-llm 0.3.1.) The weights
# shrink in all 20, so what grows is made during the step. Two suspects:
#
# - *Copies kept.* bitsandbytes makes a 16-bit copy of a 4-bit weight before each product. If autograd saved these copies
#   for the backward pass, the base would be there in 4 bits and in 16. bitsandbytes makes each copy a second time
#   instead.
# - *The rest in float32.* peft turns norms, embedding and head to float32. What leaves a float32 norm is float32, so that
#   most maps double.
#
# The measured programs recomputed every layer. Traced under the same condition, with fused attention:

# %% folded=true
ways = {
    "copy made twice": {"base": "4 bits"},
    "copies kept": {"base": "4 bits, copies kept"},
    "rest in float32": {"base": "4 bits, rest in float32"},
    "rest in float32, out alive": {"base": "4 bits, rest in float32", "keep_output": True},
}


def lora_peak(name, base, pair, keep_output=False):
    method = Method("lora", base)
    ledger = step(name, method, pair.sequence, pair.batch, keep_output=keep_output)
    return ledger.allocated_bytes() / MIB


rows, errors = {}, {"dropped": [], "alive": []}
for pair in pairs[pairs["attention"] == "fused"].itertuples():
    name = pair.model.removesuffix("-Instruct").removesuffix("-Chat-v1.0")
    wide = {out: lora_peak(name, "16 bits", pair, out == "alive") for out in errors}
    four = {way: lora_peak(name, pair=pair, **how) for way, how in ways.items()}
    measured = pair.four_bits_mib - pair.sixteen_bits_mib
    more = [four[way] - wide["alive" if "alive" in way else "dropped"] for way in ways]
    rows[f"{name}, {pair.batch} × {pair.sequence:,}"] = [measured, *more]
    for out, narrow in zip(errors, list(four.values())[2:], strict=True):
        errors[out] += [wide[out] / pair.sixteen_bits_mib - 1, narrow / pair.four_bits_mib - 1]
for out, off in errors.items():
    low, high = 100 * min(off), 100 * max(off)
    print(f"out {out}: traced peaks are off by {low:+.1f} to {high:+.1f} %")
table = pd.DataFrame(rows, ["measured", *ways]).T.rename_axis("MiB more with 4 bits")
table.map("{:+,.0f}".format)

# %% [markdown] slide="notes"
# Kept copies are cleared of suspicion here: with recomputation only one layer's copies exist at a time. The float32 rest
# takes back a part of the saving, and still too little.
#
# What is missing is the loop of lesson 03: `out = model(ids)` keeps the model's output alive through the backward pass.
# Its logits, tokens × vocabulary, have 16 bits where the head has, and 32 where peft turned the head to float32. Traced
# with `out` alive, the sign is right in every row, and all 20 peaks are within 2 % of the measurement; without it they
# are up to 21 % too low. (Their LoRA is of rank 32 on four products of a layer, ours of rank 16 on seven.)
#
# With nothing recomputed, kept copies do count. They cost 2 bytes a weight, and 4 bits save 1.44, so that they lose in
# every model:

# %% tags=["change"]
# Change tokens and sequences and run again: when does the rest in float32 need less?
length, sequences = 512, 8

ways = {
    "base in 16 bits": "16 bits",
    "4 bits, copy made twice": "4 bits",
    "4 bits, copies kept": "4 bits, copies kept",
    "4 bits, the rest in float32": "4 bits, rest in float32",
}
tiny = {
    name: step("TinyLlama-1.1B", Method("lora", base), length, sequences, False)
    for name, base in ways.items()
}
worse = [name for name in tiny if tiny[name].peak_bytes > tiny["base in 16 bits"].peak_bytes]
role_bars({name: roles(ledger) for name, ledger in tiny.items()},
          f"{len(worse)} of 3 4-bit ways need more than a base in 16 bits")  # fmt: skip

# %% [markdown] slide="slide"
# ## What training all weights costs
#
# State on the CPU trains all weights. Each step sends all gradients to the host and all weights back:

# %% folded=true
link = hardware.link("PCIe 4.0 x16")
one_way = 2 * n / link.bytes_per_s
tokens = 2048
head = shape.vocabulary * shape.hidden
operations = 8 * serving.matrix_values(shape) - 2 * head  # the head is not computed again
a_token = operations / card.reached_flops_per_s("float16")
print(
    f"{link.name}: {format_bytes(2 * n)} take {format_seconds(one_way)} each way, "
    f"{format_seconds(2 * one_way)} one after the other"
)
print(
    f"products of {tokens:,} tokens on the {card.name}, each layer twice forward: "
    f"{format_seconds(tokens * a_token)}"
)
print(f"as long as one way: {one_way / a_token:,.0f} tokens a step;", end=" ")
print(f"as both ways: {2 * one_way / a_token:,.0f}")

# %% [markdown]
# Products: 2 operations a weight and token forward, 2 again for the recomputed layers, 4 backward. The embedding is
# looked up, and attention's scores are left out.

# %% [markdown] slide="notes"
# Gradients leave while the backward pass is still at work. If the host updates after the pass, the weights return
# afterwards: both ways count. If each weight is updated as soon as its gradient has arrived, it returns while later
# gradients leave, and little more than one way counts.
#
# The update itself is not counted. For each weight the host reads a gradient (2 bytes), and reads and writes the weight
# (4) and both moments (8): 14 bytes, 112 GB in all, two seconds where its memory gives 50 GB/s. A longer batch in one
# pass spreads the copies over more tokens. Gradient accumulation does not help here: no gradient is kept on the card, so
# every micro-batch sends all of them again. (torchtune's recipe for one card refuses it with the step in the backward
# pass.)

# %% [markdown] slide="subslide"
# And there is a price in the result. Lesson 08 warned: an update smaller than half the distance to the next bfloat16
# value is lost. All weights in bfloat16, without a float32 copy, 300 equal steps of AdamW:

# %%
for dtype in (torch.bfloat16, torch.float32):
    torch.manual_seed(0)
    weight = nn.Parameter((0.02 * torch.randn(100_000)).to(dtype))
    began = weight.detach().clone()
    adam = torch.optim.AdamW([weight], lr=2e-5, weight_decay=0)
    for _ in range(300):
        weight.grad = torch.full_like(weight, 1e-3)
        adam.step()
    change = (weight.detach() - began).float().abs()
    print(f"{dtype}: {100 * (change == 0).double().mean():.0f} % never moved; ", end="")
    print(f"on average by {change.mean():.1e}, and {300 * 2e-5:.1e} were asked for")

# %% [markdown] slide="notes"
# So *both of these* fits the card, and 70 % of these weights never move. Real gradients change sign, so another share of
# theirs is lost. A remedy that costs the card nothing: the host keeps a float32 copy of the weights, 4 bytes each,
# updates that, and sends it back rounded. Stochastic rounding is another.

# %% [markdown] slide="slide"
# ## Measure and train
#
# A dense net, six layers of 512, batch 256, on this machine: traced and measured.


# %% tags=["nbval-ignore-output"] folded=true
def dense(adapted):
    torch.manual_seed(0)
    layers = []
    for _ in range(6):
        one = nn.Linear(512, 512)
        layers += [LoRA(one, 512, 512, 8, one.weight) if adapted else one, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 10).requires_grad_(not adapted))


target = "cuda" if torch.cuda.is_available() else "cpu"
rows = {}
for name, adapted in (("full", False), ("LoRA", True)):
    trace = training_step(dense(adapted), (512,), 10, "adamw", target=target).at(256)
    rows[f"{name}, trace"] = trace.peak_bytes / MIB
    rows[f"{name}, measured"] = (
        measure_step(dense(adapted), (512,), 10, 256, "adamw").peak_bytes / MIB
    )
side_by_side(rows, title="Six dense layers: what is not trained needs no state")

# %% [markdown] slide="subslide"
# A net that knows the digits is shown them upside down. What must it change?

# %% tags=["nbval-ignore-output"] folded=true
x, y, test, labels = digits.load()
turned, turned_test = (p.reshape(-1, 8, 8).flip(1).flatten(1) for p in (x, test))
known = []
for seed in range(3):
    torch.manual_seed(seed)
    known.append(mlp((64, 256, 256, 10)))
    digits.train(known[-1], x, y)


def adapted(net, rank):
    for i, layer in enumerate(net):
        if isinstance(layer, nn.Linear):
            net[i] = LoRA(layer, layer.in_features, layer.out_features, rank, layer.weight)
    return net


def head_alone(net):
    net.requires_grad_(False)
    net[-1].requires_grad_(True)
    return net


rows = []
for name, change in {
    "as it is": None, "full": lambda net: net, "LoRA, rank 4": lambda net: adapted(net, 4),
    "LoRA, rank 1": lambda net: adapted(net, 1), "head alone": head_alone,
}.items():  # fmt: skip
    right = []
    for net in map(deepcopy, known):
        if change is not None:
            net = change(net)
            digits.train(net, turned, y)
        right.append(100 * digits.accuracy(net, turned_test, labels))
    trained = [p.numel() for p in net.parameters() if p.requires_grad] if change else []
    rows.append((name, f"{sum(trained):,}", " ".join(f"{share:.1f}" for share in right)))
pd.DataFrame(rows, columns=["trained", "values trained", "%, three seeds"]).set_index(
    "trained"
)

# %% [markdown]
# Rank 4 trains a twentieth of the values. The last layer alone trains fewer than rank 4, and more than rank 1.

# %% [markdown] slide="notes"
# The rank bounds in how many directions a layer's result can change, not by how much. Compare rank 1 with the last
# layer alone: where the values go may matter as well as how many they are.

# %% [markdown] slide="slide"
# ## Serving: weights and the cache
#
# A model writes one token after the other. Each looks at the keys and values of all before it, so these are kept: the
# *key–value cache*.

# %% [markdown] slide="notes"
# In every layer a token leaves one key and one value for each key–value head:
#
# > 2 · layers · key–value heads · values a head · bytes a value

# %% [markdown] slide="notes"
# Llama-3-8B has 32 heads of 128 values, and only 8 key–value heads, each shared by four: *grouped-query attention*.

# %%
per_token = 2 * 32 * 8 * 128 * 2
print(
    f"a token: {format_bytes(per_token)}; "
    f"with all 32 heads: {format_bytes(2 * 32 * 32 * 128 * 2)}"
)
print(f"a sequence of 8,192: {format_bytes(serving.cache_bytes(shape, 8192))}")

# %% [markdown]
# And in a real forward pass, on shapes:

# %%
with torch.device("meta"):
    model, cache = shape.build(layers=2).to(torch.bfloat16).eval(), []
    model(torch.zeros(1, 1000, dtype=torch.int64), cache=cache)
held = sum(part.numel() * part.element_size() for pair in cache for part in pair)
print(f"two layers, 1,000 tokens: {held:,} bytes; by hand {1000 * per_token * 2 // 32:,}")

# %% [markdown] slide="subslide"
# All sequences share what the weights and the driver's context leave of 24 GiB. Below a line weights and cache fit:

# %% folded=true
batches = [2**i for i in range(9)]


def longest(weights=2.0, kv_heads=None):
    room = room_for_tensors(card) - shape.parameters * weights
    return [int(room // serving.cache_bytes(shape, 1, b, 2, kv_heads)) for b in batches]


in_layers = 32 * sum(a * b for a, b in widths.values())
quarter, most = (2 * (n - in_layers) + in_layers * (0.5 + 4 / 64)) / n, longest()
plane(
    Axis("sequences at once", log=True, low=0.9, high=300),
    Axis("tokens of each", log=True, low=20),
    [Curve("4-bit weights", batches, longest(weights=quarter), COLOURS[2]),
     Curve("16-bit weights", batches, most, COLOURS[0]),
     Curve("no shared heads", batches, longest(kv_heads=32), COLOURS[1])],
    title=f"One sequence of {most[0]:,.0f} tokens, or {batches[5]} of {most[5]:,.0f}",
    limits={"8,192 tokens": 8192},
)  # fmt: skip

# %% [markdown] slide="notes"
# The model was trained for 8,192 positions, so one reader cannot use all that room. Many readers together still fill it.
# Sharing heads gives four times the tokens.
#
# Three other ways to a smaller cache: *quantise* it, 8 or 4 bits a value; give it out in *pages*, so that a sequence
# holds what it has written and not what it may write (vLLM, 16 tokens a page); or keep one short vector a token from
# which keys and values are computed, *multi-head latent attention* (DeepSeek-V2, 2024: 60 layers, 576 values each, in place of
# 128 heads of 128 for keys and for values). Counted:

# %% tags=["change"]
# Change the tokens that a sequence has written so far, and run again.
written = 500

room = room_for_tensors(card) - 2 * n
ways = {
    "8,192 tokens reserved each": serving.cache_bytes(shape, 8192),
    "pages of 16 tokens": serving.cache_bytes(shape, -(-written // 16) * 16),
    "pages, 8 bits": serving.cache_bytes(shape, -(-written // 16) * 16, value_bytes=1),
}
for way, size in ways.items():
    print(f"{way:>26}: {format_bytes(size):>10} a sequence, {room // size:,.0f} fit")
latent, whole = 60 * 576 * 2, 60 * 2 * 128 * 128 * 2
print(
    f"DeepSeek-V2, a token: {latent:,} bytes; all heads {whole:,}, {whole / latent:.0f} times"
)
# The scales of 8-bit values are not counted.

# %% [markdown] slide="skip"
# Published figures: Kwon and others, *PagedAttention* (2023); DeepSeek-AI, *DeepSeek-V2* (2024).

# %% [markdown] slide="slide"
# ## How fast does it write?
#
# The RTX 4090 is published to compute 165 TFLOP/s in 16 bits and to read 1,008 GB/s. To write a token takes two
# operations for each of 7.5 billion weights.

# %% [markdown] slide="notes"
# The token comes after 1,024 others. The embedding is looked up, so it is not among the 7.5 billion.

# %%
second = predict(
    "About how many tokens a second can it write, for one reader?", unit="tokens/s"
)
second

# %% folded=true
one = serving.decode(shape, 1024)
whole_bandwidth = replace(card, bandwidth_gb_s=card.bandwidth_gb_s / BANDWIDTH_EFFICIENCY)
reveal(
    second,
    {
        "expected, at three quarters of the bandwidth": one.tokens_per_second(card),
        "bound, at all of it": one.tokens_per_second(whole_bandwidth),
    },
    thoughts=[
        (
            card.flops_per_s("float16") / (2 * 7.5e9),
            "That is what arithmetic allows. All weights must be read for it, every time.",
        ),
        (
            card.reached_flops_per_s("float16") / (2 * 7.5e9),
            "That is what arithmetic allows. All weights must be read for it, every time.",
        ),
        (
            card.bandwidth_gb_s * GB / one.traffic,
            "That is all of the published bandwidth: a bound. We expect three quarters of it.",
        ),
    ],
)

# %% [markdown] slide="notes"
# As in lesson 01 we expect three quarters of the published bandwidth. That is an expectation and no bound. It was
# measured: llama.cpp on an RTX 4090, Llama-3-8B in 16 bits,
# 1,024 tokens written from an empty cache (XiongjieDai, GPU-Benchmarks-on-LLM-Inference, May 2024). On average half of
# them are in the cache.

# %%
MEASURED = {"16 bits": 54.34, "Q4_K_M": 127.74}  # tokens a second, "tg 1024"
average = serving.decode(shape, 512)
reached = MEASURED["16 bits"] / average.tokens_per_second(whole_bandwidth)
print(f"measured: {MEASURED['16 bits']} tokens/s, {100 * reached:.0f} % of the bandwidth")
print(f"expected {average.tokens_per_second(card):.1f},", end=" ")
print(f"at most {average.tokens_per_second(whole_bandwidth):.1f} tokens/s")

# %% [markdown] slide="subslide"
# The prompt goes through the model at once, *prefill*: each weight that is read serves all its tokens. Then *decode*:
# each weight is read anew for one token a sequence. On the roofline of lesson 01:

# %%
passes = {"decode, 1 sequence": one, "8 sequences": serving.decode(shape, 1024, 8),
          "64 sequences": serving.decode(shape, 1024, 64),
          "prefill, 1,024": serving.prefill(shape, 1024)}  # fmt: skip
points = [Reached(name, p.flops, p.traffic, p.seconds(card)) for name, p in passes.items()]
roofline(card, points, f"Decoding does {one.intensity:.1f} FLOP a byte, "
         f"prefill {points[-1].intensity:,.0f}", precision="float16")  # fmt: skip

# %% [markdown] slide="notes"
# Two operations for a weight of two bytes are one operation a byte, and this card's ridge is at 146: by the model,
# bandwidth decides. The model puts every point on the roof, so it cannot prove that. The measurement can: 81 % of the
# published bandwidth was used, and less than a hundredth of the arithmetic.

# %% slide="skip"
quarter_read = serving.decode(shape, 1024, weight_bits=4.5)
# The head stays in 16 bits, as in the 4-bit base above.
head_whole = replace(quarter_read, traffic=quarter_read.traffic + head * (2 - 4.5 / 8))
for what, read in (("the head too", quarter_read), ("head in 16", head_whole)):
    print(f"weights in 4.5 bits, {what}: {read.tokens_per_second(card):.0f} tokens/s")

# %% [markdown] slide="notes"
# The head is a fourteenth of the weights that are read, and in 16 bits a fifth of the bytes. llama.cpp, measured with
# weights of about that size (Q4_K_M, 4.58 GiB), reached 128 tokens a second, less than both lines. It may be the work of
# unpacking, or a fixed time for each token, such as launches: two measured rates cannot tell these apart.

# %% [markdown] slide="slide"
# What batching buys: sequences served at once share the reading of the weights. They do not share caches: each reads
# its own.

# %% folded=true
many = [2**i for i in range(10)]
curves = [
    Curve(
        f"{context:,} tokens",
        many,
        [serving.decode(shape, context, b).tokens_per_second(card) for b in many],
        colour,
    )
    for context, colour in zip((512, 2048, 8192), COLOURS, strict=True)
]
fits_at = {c: serving.largest_context(shape, card, 1) // c for c in (512, 2048, 8192)}
spots = [Spot(f"{b} fit", b, serving.decode(shape, c, b).tokens_per_second(card), colour)
         for (c, b), colour in zip(fits_at.items(), COLOURS, strict=True)]  # fmt: skip
gain = serving.decode(shape, 2048, fits_at[2048]).tokens_per_second(card) / serving.decode(
    shape, 2048, 1
).tokens_per_second(card)
plane(
    Axis("sequences at once", log=True),
    Axis("tokens a second, all together", log=True),
    curves,
    spots,
    f"{fits_at[2048]} sequences of 2,048 write {gain:.0f} times as much as one",
)

# %% folded=true
print("reading the caches takes as long as reading the weights:")
for context in fits_at:
    bend = 2 * serving.matrix_values(shape) / serving.cache_bytes(shape, context)
    print(f"{context:>6,} tokens: from {bend:.0f} sequences on")

# %% [markdown] slide="notes"
# There a line bends. The size of the memory bounds how many sequences fit; its bandwidth bounds how fast they are written.

# %% [markdown] slide="slide"
# Measured on this machine: a Llama of 19 million weights in float32. Without a cache each token reads the whole
# sequence again.

# %% tags=["nbval-ignore-output"] folded=true
ceilings = measure_ceilings("cpu", seconds=0.2)
mine = ceilings.as_device()
torch.manual_seed(0)
small = replace(
    shape, name="small", hidden=384, layers=8, heads=6, kv_heads=2, inner=1024, vocabulary=8192
)
writer = small.build().eval()
small = replace(small, parameters=sum(p.numel() for p in writer.parameters()))
rows = []
for batch, cached in ((1, False), (1, True), (16, True)):
    prompt = torch.randint(8192, (batch, 256))
    wrote = serving.generate(writer, prompt, 8, cached)
    bound = (
        serving.decode(small, 256, batch, 4)
        if cached
        else serving.prefill(small, 256, batch, 4)
    )
    most = batch / bound.seconds(mine, "float32")
    what = f"{batch} × 256, {'cache' if cached else 'no cache'}"
    share = f"{100 * wrote.tokens_per_second / most:.0f} %"
    rates = (f"{rate:,.3g}" for rate in (wrote.tokens_per_second, most))
    rows.append((what, *rates, share, format_bytes(wrote.cache_bytes)))
columns = ["", "tokens/s", "roofline", "of it", "cache"]
pd.DataFrame(rows, columns=columns).set_index("")

# %% [markdown] slide="notes"
# With a cache that is far from the roofline. Where does the time of a token go? Take parts away: all but one token of
# the cache; all but the products, the dense layers; all but the operators' launches, in a model of the same operators
# with next to no weights. The last column is what the roofline allows for reading weights and cache once.


# %% tags=["nbval-ignore-output"] folded=true
def token_seconds(model, batch, prompt):
    """Seconds of one token with a cache, the median of seven."""
    ids = torch.randint(64, (batch, prompt))
    return serving.generate(model, ids, 8).seconds_a_token


def product_seconds(model, batch):
    """Seconds of a model's dense layers on one token of each sequence, the median of seven."""
    products = [part for part in model.modules() if isinstance(part, nn.Linear)]
    inputs = [torch.randn(batch, 1, part.in_features) for part in products]
    took = []
    with torch.no_grad():
        for _ in range(7):
            began = perf_counter()
            for part, x in zip(products, inputs, strict=True):
                part(x)
            took.append(perf_counter() - began)
    return sorted(took)[3]


thin = replace(small, hidden=48, inner=64, vocabulary=64).build().eval()
rows = []
for batch in (1, 16):
    seconds = {
        "all of it": token_seconds(writer, batch, 256),
        "one token in the cache": token_seconds(writer, batch, 1),
        "products alone": product_seconds(writer, batch),
        "operators alone": token_seconds(thin, batch, 1),
        "roofline": serving.decode(small, 256, batch, 4).seconds(mine, "float32"),
    }
    rows.append({what: format_seconds(took) for what, took in seconds.items()})
pd.DataFrame(rows, index=pd.Index(["1 × 256", "16 × 256"], name="a token"))

# %% [markdown] slide="notes"
# What the first column has above the second grows with the cache. For every token this plain model copies the whole
# cache, repeats it for the heads that share it, and attends to it; we did not time these apart. Servers allocate the
# cache in advance, in pages. The launches do not depend on the weights; servers avoid most of them with *CUDA graphs*.
# Where the products alone take longer than the roofline, their kernels use less of this machine than the plain copy and
# the large product that the roofline was measured with.

# %% [markdown] slide="slide"
# ## Beyond one card
#
# Full fine-tuning in mixed precision, 16 bytes a weight, is beyond an 80 GB card. ZeRO and FSDP of lesson 11 share it
# out.

# %% [markdown] slide="notes"
# On eight cards, weights and gradients of 2 bytes, and 12 bytes for the moments and float32 weights:

# %%
rows = []
for stage in range(4):
    kept = state_bytes(2 * n, 2 * n, 12 * n, 8, stage)
    sent = sent_bytes(2 * n, 8, stage)
    rows.append((stage, format_bytes(kept), format_bytes(sent)))
pd.DataFrame(rows, columns=["stage", "a card keeps", "and sends in a step"]).set_index("stage")

# %% [markdown] slide="subslide"
# The same with the steps traced above, AdamW all in 16 bits: eight bytes a weight, and the maps.

# %%
full = steps["full"]
bars = {"one card": roles(full)}
for stage in (1, 2, 3):
    alive = sharded(full, 8, stage)
    bars[f"8 cards, stage {stage}"] = dict(
        zip(ROLES, alive[alive.sum(axis=1).argmax()].tolist(), strict=True)
    )
last = sum(bars["8 cards, stage 3"].values())
title = f"AdamW in 16 bits, stage 3: {format_bytes(last)} on each of eight cards"
role_bars(bars, title, card)

# %% [markdown]
# In stage 3 a layer's weights are gathered (*all-gather*) right before it runs, forward and once more backward, and let
# go after it.

# %% [markdown] slide="notes"
# Its gradient is whole until it has been summed and scattered (*reduce-scatter*). The embedding and the head, 1 GB
# each, are the largest that are ever whole. Maps are each card's own.

# %% [markdown] slide="notes"
# **Other models, other tools.** In a *mixture of experts* each token goes through a few of many feed-forward blocks:
# all weights have to be there, and for one sequence few are read. Mixtral 8x7B (Mistral AI, 2023) has 46.7 billion
# weights and reads 12.9 billion a token. And `torch.compile` chooses what the forward pass keeps (06). Here for one gated
# block, which keeps four wide maps, and compiled only three:

# %% slide="skip" folded=true
print(
    f"Mixtral: {format_bytes(2 * 46.7e9)} to hold, {format_bytes(2 * 12.9e9)} to read a token"
)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(256, 896, bias=False) for _ in range(2))
        self.down = nn.Linear(896, 256, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


tokens_in = torch.randn(512, 256)
for name, backend in (("eager", None), ("torch.compile", PLANNED)):
    print(f"{name} keeps {format_bytes(kept_by_type(Gated(), tokens_in, backend).sum())}")

# %% [markdown] slide="slide"
# ## Explore
#
# One question: **what can be trained on this card, and which choice makes it possible?**

# %% [markdown] slide="notes"
# Before each move say which colour will shrink.

# %% tags=["nbval-ignore-output"]
one_card_explorer()

# %% [markdown] slide="notes"
# Try three things. Train all weights of Llama-3-8B on the RTX 4090. Find the longest sequence for LoRA with a base in
# 4 bits. Keep every map, and say why LoRA no longer fits.

# %% [markdown] slide="skip"
# <details><summary>What to look for</summary>
#
# All weights fit with the state on the CPU and the update within the backward pass. LoRA with a base in 4 bits takes
# all 8,192 tokens of the model; by then most of the peak is logits, of 128,256 columns, and their gradient. With every
# map kept, the maps of 2,048 tokens are four fifths as large as the weights.
#
# </details>

# %% [markdown] slide="skip"
# In PyTorch:
#
# ```python
# model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)   # or quantization_config=…
# lora = peft.LoraConfig(r=16, target_modules="all-linear")
# model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
# model.gradient_checkpointing_enable()
# torch.optim.AdamW(model.parameters(), fused=True)
# ```
#
# Without `autocast_adapter_dtype=False` peft keeps the adapters of a 16-bit model in float32, and each of them then
# keeps a float32 copy of its input: where nothing is recomputed, LoRA's maps are more than those of full fine-tuning.
#
# 8-bit moments and 4-bit weights are bitsandbytes' or torchao's; `register_post_accumulate_grad_hook` is how a step
# gets into the backward pass. Your own model's step: `course trace --hf config.json`.

# %% [markdown] slide="slide"
# What is said of it:

# %%
judge(range(89, 93))

# %% [markdown] slide="slide"
# ## Recap
#
# 1. Full fine-tuning with AdamW keeps 8 to 16 bytes a weight, before any map.
# 2. On 24 GiB all weights of an 8-billion model learn from one short text, if no gradient is kept and the moments are on
#    the host.
# 3. Decoding reads all weights for one token a sequence.

# %% [markdown] slide="notes"
# Sixteen bytes are those of mixed precision. A host that keeps the moments should keep a float32 copy of the weights too.
# LoRA takes away gradients and moments, a 4-bit base most of the weights' bytes, recomputation most of the maps. The
# price of training all weights is the link, and an update on the host. When decoding, bandwidth is the bound, batching
# shares the reading, and the cache bounds the batch.
#
# Now the exercise: [exercises/14_one_card.ipynb](../exercises/14_one_card.ipynb). {questions}. Save, then
# `course check 14` gives your marks.
