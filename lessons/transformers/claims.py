"""Claims of lesson 13, transformers: what pages say that many read, beside the trace of the models meant."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from classroom.claims import MISLEADING, SOME, WRONG, Finding, by_cases, claim
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.fine_tuning import fused
from course_utils.units import GIB
from lessons.shared.language_models import SHAPES, Options
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


@claim(87, ACCELERATE, "Training with Adam needs four times the memory of the weights.")
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
    fits = [abs(one / 4 - 1) < NEAR for one, _ in times.values()]
    alone = ", ".join(f"{model}, {update} update {one:.1f}" for (model, update), (one, _) in times.items())
    many = " and ".join(f"{max(times[model, update][1] for update in ADAMS):.1f}" for model in ADAM_MODELS)
    return Finding(
        by_cases(fits) if any(fits) else MISLEADING if abs(lasting / 4 - 1) < NEAR else WRONG,
        f"the source counts a batch of 1. Float32, a text of {SEQUENCE:,} tokens, the peak in times the weights: "
        f"{alone}; with 8 texts up to {many}. Weights, gradients and moments of GPT-2 in the update "
        f"{lasting:.1f}",
        "Four are weights, gradients and two moments. A default update adds temporaries as large as the weights; maps "
        "and logits make other peaks, at which no weight has a gradient yet.",
        rule=f"right if all peaks with one text are within {NEAR:.0%} of four (3.8 to 4.2), partly right if one is; if "
        "none, misleading if weights, gradients and moments are, and else wrong",
        kind=SOME,
    )


@claim(88, FLASH, "With flash attention, attention takes ten times less memory at 2,000 tokens, twenty times at 4,000.")
def _ten_and_twenty_times() -> Finding:
    cases = {
        f"{how}{heads}": (dropout, head)
        for head, heads in ((64, ""), (128, " and heads of 128"))
        for how, dropout in (("with dropout", 0.1), ("without", 0.0))
    }
    found = {name: times_less(*case) for name, case in cases.items()}
    enough = [at["attention"] >= said for both in found.values() for at, said in zip(both, (10, 20), strict=True)]
    kept = ", ".join(f"{a['attention']:.1f} and {b['attention']:.1f} {name}" for name, (a, b) in found.items())
    low, high = (at["peak"] for at in found["with dropout"])
    doubled = sorted(at_4["attention"] / at_2["attention"] for at_2, at_4 in found.values())
    return Finding(
        by_cases(enough),
        f"GPT-2, heads of 64, 2 texts of 2,048 and 4,096 tokens: attention, with its queries, keys, values and output, "
        f"keeps so many times less: {kept}; twice the tokens save {doubled[0]:.1f} to {doubled[-1]:.1f} times as much. "
        f"The peak of the step with dropout is {low:.1f} and {high:.1f} times lower",
        'The README adds that the "memory footprint is the same no matter if you use dropout or masking", and does not '
        "say what it counts. Counted as here, the factors depend on both dropout and the size of a head; without "
        "dropout neither size reaches them. That they grow in proportion to the length, as it also says, nearly holds. "
        "FlashAttention-2 takes both: it asks for 16 bits, heads of up to 256 values and no mask of one's own. The "
        "rest of each layer stays, and so do the logits.",
        rule="right if at least ten and twenty times in each case (who promises ten and gives twenty has kept it), "
        "partly right if in one, wrong if in none",
        kind=SOME,
    )


@lru_cache(maxsize=4)
def times_less(dropout: float, head: int = 64) -> list[dict[str, float]]:
    """What attention written out keeps over what fused attention keeps, and the same of the peaks, at 2,048 and 4,096.

    In GPT-2 with heads of `head` values. Queries, keys, values and the output count in both, in 16 bits: the first
    three written out as copies that attention makes, fused as what the product gives.
    """
    heads, found = SHAPES["GPT-2"].hidden // head, []
    shape = replace(SHAPES["GPT-2"], heads=heads, kv_heads=heads)
    for sequence in (2048, 4096):
        ways = [Options(attention=way, dropout=dropout) for way in ("eager", "fused")]
        steps = [language_step(shape, sequence, way).at(2) for way in ways]
        kept = [step.by_layer().set_index("layer")["saved feature maps"] for step in steps]
        eager, fused = (float(maps[["layers.5.qkv", "layers.5.attention"]].sum()) for maps in kept)
        found.append({"attention": eager / fused, "peak": steps[0].peak_bytes / steps[1].peak_bytes})
    return found
