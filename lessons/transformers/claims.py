"""Claims of lesson 13, transformers: what pages say that many read, beside the trace of the models meant."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from classroom.claims import MISLEADING, SOME, WRONG, Finding, by_cases, claim
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.fine_tuning import fused
from course_utils.trace import training_step
from course_utils.units import GIB
from lessons.shared.language_models import SHAPES, Options, eager_attention
from lessons.shared.language_steps import kept_bytes, language_step
from lessons.shared.sources import ACCELERATE, COOKBOOK, FLASH, HF_BLOG, NANOTRON

BATCH, SEQUENCE = 4, 1024
FORMULA_AT = ("GPT-2", SEQUENCE), ("GPT-2 XL", SEQUENCE // 2)
NEAR = 0.05  # of a number: what is this close to it is taken for it


@lru_cache(maxsize=32)
def a_layer(options: Options, model: str = "GPT-2", sequence: int = SEQUENCE) -> float:
    """Bytes of maps that a layer leaves for the backward pass, in units of sbh: what six layers keep beyond five."""
    kept = [
        kept_bytes(language_step(model, sequence, options, layers=layers, optimizer="sgd").at(BATCH))
        for layers in (5, 6)
    ]
    return (kept[1] - kept[0]) / (sequence * BATCH * SHAPES[model].hidden)


@claim(84, HF_BLOG, "The peak is parameters, optimizer and the largest of gradients, temporaries and activations.")
def _largest_of_three() -> Finding:
    steps = [language_step("Qwen2.5-1.5B", 256, Options(), "float32").at(batch) for batch in (2, 8)]
    weights = 4 * SHAPES["Qwen2.5-1.5B"].parameters
    maps = [float(step.by_role()[["feature maps", "gradient maps"]].sum()) for step in steps]
    formula = [3 * weights + max(weights, one) for one in maps]  # gradients and temporaries are as large as weights
    (few, many), traced = formula, [step.peak_bytes for step in steps]
    return Finding(
        by_cases(abs(said / peak - 1) < NEAR for said, peak in zip(formula, traced, strict=True)),
        f"Qwen2.5-1.5B in float32, 2 × 256 tokens: {few / GIB:.2f} GiB by that formula, {traced[0] / GIB:.2f} traced, "
        f"at the {steps[0].peak_layer}; with gradients and temporaries both added, as that page writes at first, "
        f"{5 * weights / GIB:.2f}. With 8 × 256: {many / GIB:.2f} by the formula, {traced[1] / GIB:.2f} traced",
        "It holds where maps are the largest of the three. In the update it does not: Adam's temporaries are made "
        "while the gradients are still there, and those two add up.",
    )


@claim(85, NANOTRON, "Activations need twice L·sbh(34 + 5as/h) bytes, since a value has two bytes.")
def _twice_the_formula() -> Finding:
    found = {case: (formula(*case), a_layer(Options(attention="eager", dropout=0.1), *case)) for case in FORMULA_AT}
    told = "; ".join(
        f"{model}, {sequence:,} tokens: {traced:.2f} sbh bytes traced, {said:.0f} by the formula, {2 * said:.0f} by "
        "its double"
        for (model, sequence), (said, traced) in found.items()
    )
    return Finding(
        by_cases(abs(traced / (2 * said) - 1) < NEAR for said, traced in found.values()),
        f"a layer, eager, 16 bits, with dropout. {told}",
        "The formula counts bytes already: 34 is 2 for every 16-bit value, and 1 for a dropout mask.",
        rule=f"right if its double is within {NEAR:.0%} of the trace in both, wrong if in neither",
    )


def formula(model: str, sequence: int) -> float:
    """34 + 5as/h of a model: bytes that its layer keeps, in units of sbh, by Korthikanti and others (2022)."""
    return 34 + 5 * SHAPES[model].heads * sequence / SHAPES[model].hidden


@claim(86, COOKBOOK, "With activation checkpointing a layer keeps 34 sbh bytes.")
def _checkpointing_keeps_34() -> Finding:
    selective = a_layer(Options(attention="eager", dropout=0.1, recompute="selective"))
    full = a_layer(Options(attention="eager", dropout=0.1, recompute="full"))
    return Finding(
        by_cases(abs(kept / 34 - 1) < NEAR for kept in (selective, full)),
        f"GPT-2, traced: selective checkpointing keeps {selective:.1f} sbh a layer, full checkpointing {full:.1f}",
        "The source asks for Megatron's kind, which is selective. In the library transformers that option is full "
        "checkpointing: a layer keeps its input and nothing else.",
    )


ADAMS = {"default": "adamw", "fused": fused}  # AdamW keeps what Adam keeps
ADAM_MODELS = ("GPT-2", "GPT-2 XL")


def adam_step(model: str, batch: int, update: str = "default") -> Ledger:
    """A step in float32, with dropout and fused attention, on texts of SEQUENCE tokens."""
    return language_step(model, SEQUENCE, Options(dropout=0.1), "float32", ADAMS[update]).at(batch)


@claim(87, ACCELERATE, "Training with Adam needs about four times the memory of the weights.")
def _four_times_the_weights() -> Finding:
    times = {
        (model, update): [
            adam_step(model, batch, update).peak_bytes / (4 * SHAPES[model].parameters) for batch in (1, 8)
        ]
        for update in ADAMS
        for model in ADAM_MODELS
    }
    step = adam_step("GPT-2", 1)
    of_weights = [ROLES.index(role) for role in ("parameters", "optimizer state", "weight gradients")]
    lasting = float(step.matrix[step.phases == "update"][:, of_weights].sum(axis=1).max())
    lasting /= 4 * SHAPES["GPT-2"].parameters
    fits = [abs(one / 4 - 1) < NEAR for peaks in times.values() for one in peaks]
    alone = ", ".join(f"{model}, {update} update {one:.1f}" for (model, update), (one, _) in times.items())
    many = " and ".join(f"{max(times[model, update][1] for update in ADAMS):.1f}" for model in ADAM_MODELS)
    return Finding(
        by_cases(fits) if any(fits) else MISLEADING if abs(lasting / 4 - 1) < NEAR else WRONG,
        f"the source counts a batch of 1. Float32, one text of {SEQUENCE:,} tokens, the peak in times the weights: "
        f"{alone}; with 8 texts up to {many}. Weights, gradients and moments in GPT-2's update {lasting:.1f}",
        "Four are weights, gradients and two moments. A default update adds temporaries as large as the weights; maps "
        "and logits make other peaks, at which no weight has a gradient yet.",
        rule=f"right if all peaks, with one text and with 8, are within {NEAR:.0%} of four, partly right if one is; if "
        "none, misleading if weights, gradients and moments are, else wrong",
        kind=f"{SOME}: {sum(fits)} of {len(fits)}",
    )


@claim(88, FLASH, "With flash attention, attention takes ten times less memory at 2,000 tokens, twenty times at 4,000.")
def _ten_and_twenty_times() -> Finding:
    dropouts, ways = (0.1, 0.0), {"all in 16 bits": False, "softmax in float32": True}
    found = {
        f"heads of {head}, {way}": [peak_less(head, dropout, in_float32) for dropout in dropouts]
        for head in (64, 128)
        for way, in_float32 in ways.items()
    }
    enough = {
        case: all(fall >= said for both in falls for fall, said in zip(both, (10, 20), strict=True))
        for case, falls in found.items()
    }
    without = "; ".join(case for case, well in enough.items() if not well)
    peaks = "; ".join(f"{case}, {_with_and_without(*falls)}" for case, falls in found.items())
    kept, step = (
        _with_and_without(*([at[what] for at in times_less(dropout)] for dropout in dropouts))
        for what in ("kept", "step")
    )

    eager, fused = Options(attention="eager"), Options(attention="fused")
    three = " and ".join(
        f"{(peak_alone(n, 64, eager) - 2 * TEXTS * HEADS * n**2) / peak_alone(n, 64, fused):.1f}" for n in (2048, 4096)
    )
    return Finding(
        by_cases(enough.values()),
        f"attention alone, {TEXTS} texts of 2,048 and of 4,096 tokens, {HEADS} heads, forward and backward, traced. "
        f"Its peak falls: {peaks}. What it keeps for the backward pass falls, with heads of 64, {kept}, and "
        f"the peak of GPT-2's step with 2 texts {step}. Without softmax's temporary, a fourth tensor as large as the "
        f"scores, attention's peak would fall {three} times with heads of 64, all in 16 bits",
        "The README measures attention alone and finds the same memory with dropout or a mask. That is so of the peak, "
        "not of what is kept. Written out in 16 bits, four tensors as large as the scores make the peak. Fused, the "
        "float32 sum in which FlashAttention-2's kernel adds up a gradient is counted. In a step all else stays. "
        "FlashAttention-2 asks for 16 bits, heads of up to 256 values and no mask of one's own.",
        rule="right if attention's peak falls at least ten and twenty times in each of four cases: heads of 64 and of "
        "128, with softmax in 16 bits like all else and in float32; partly right if it does in one",
        kind=f"{SOME}: {sum(enough.values())} of {len(enough)}{'; not with ' + without if without else ''}",
    )


def _with_and_without(with_dropout: list[float], bare: list[float]) -> str:
    """Times with both lengths, with dropout and without; said once if they are the same."""
    kept, alone = (" and ".join(f"{times:.1f}" for times in both) for both in (with_dropout, bare))
    return f"{kept} times with dropout or without" if kept == alone else f"{kept} times with dropout, {alone} without"


TEXTS, HEADS = 8, 12  # of the README's figure, whose heads have 64 values
# FlashAttention-2 sums the queries' gradient in float32, in memory that its kernel takes and no trace sees: `dq_accum`
# in flash_api.cpp. Bytes a value.
ACCUMULATOR = 4


class Alone(nn.Module):
    """Attention and nothing else. Queries, keys and values are parameters, so that they have gradients."""

    def __init__(self, sequence: int, head: int, options: Options, in_float32: bool = False) -> None:
        super().__init__()
        sizes = TEXTS, HEADS, sequence, head
        self.qkv = nn.ParameterList(torch.empty(sizes, dtype=torch.bfloat16, device="meta") for _ in range(3))
        self.options, self.in_float32 = options, in_float32

    def forward(self, _: Tensor) -> Tensor:
        """The mix of the values, without a mask."""
        q, k, v = self.qkv
        if self.options.attention == "eager":
            return eager_attention(q, k, v, None, self.options.dropout, self.in_float32)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.options.dropout)


def peak_alone(sequence: int, head: int, options: Options, in_float32: bool = False) -> int:
    """Bytes at the peak of attention's forward and backward pass, with its queries, keys, values and their gradients.

    All in 16 bits, but for a softmax in float32 if attention is written out so. The loss is the sum of the output's
    squares, so that the output gets a gradient of its own.
    """
    module = Alone(sequence, head, options, in_float32)
    step = training_step(module, (1,), optimizer="sgd", criterion=_squares, name="attention")
    inside = ACCUMULATOR * TEXTS * HEADS * sequence * head if options.attention == "fused" else 0
    return step.at(2).peak_bytes + inside


def _squares(out: Tensor, _: Tensor) -> Tensor:
    return out.square().sum()


@lru_cache(maxsize=8)
def peak_less(head: int, dropout: float, in_float32: bool = False) -> list[float]:
    """How many times lower attention's own peak is fused than written out, at 2,048 and 4,096 tokens."""
    eager, fused = (Options(attention=way, dropout=dropout) for way in ("eager", "fused"))
    return [peak_alone(n, head, eager, in_float32) / peak_alone(n, head, fused) for n in (2048, 4096)]


@lru_cache(maxsize=4)
def times_less(dropout: float, head: int = 64) -> list[dict[str, float]]:
    """How many times less fused attention takes than written out, at 2,048 and 4,096 tokens: two counts.

    "kept": what a layer of GPT-2, with heads of `head` values,
    keeps for the backward pass of its queries, keys, values, scores and output, in 16 bits; written out the first three
    are copies that attention makes, fused what the product gives. "step": at the peak of GPT-2's step.
    """
    heads, found = SHAPES["GPT-2"].hidden // head, []
    shape = replace(SHAPES["GPT-2"], heads=heads, kv_heads=heads)
    for sequence in (2048, 4096):
        ways = [Options(attention=way, dropout=dropout) for way in ("eager", "fused")]
        steps = [language_step(shape, sequence, way).at(2) for way in ways]
        tables = [step.by_layer().set_index("layer")["saved feature maps"] for step in steps]
        counts = {
            "kept": [int(maps[["layers.5.qkv", "layers.5.attention"]].sum()) for maps in tables],
            "step": [step.peak_bytes for step in steps],
        }
        found.append({what: eager / fused for what, (eager, fused) in counts.items()})
    return found
