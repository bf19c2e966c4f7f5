"""Claims of lesson 13, transformers: what pages say that many read, beside the trace of the models meant."""

from __future__ import annotations

from functools import lru_cache

from classroom.claims import MISLEADING, RIGHT, WRONG, Finding, by_cases, claim
from course_utils.memory import ROLES
from course_utils.units import GIB
from lessons.shared.language_models import SHAPES, Options
from lessons.shared.language_steps import kept_bytes, language_step
from lessons.shared.sources import ACCELERATE, COOKBOOK, FLASH, HF_BLOG, NANOTRON

BATCH, SEQUENCE = 4, 1024
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
    shape = SHAPES["GPT-2"]
    formula = 34 + 5 * shape.heads * SEQUENCE / shape.hidden
    traced = a_layer(Options(attention="eager", dropout=0.1))
    return Finding(
        RIGHT if abs(traced / (2 * formula) - 1) < NEAR else WRONG,
        f"a layer of GPT-2, eager, 16 bits: {traced:.2f} sbh bytes traced, {formula:.0f} by the formula, "
        f"{2 * formula:.0f} by its double",
        "The formula counts bytes already: 34 is 2 for every 16-bit value, and 1 for a dropout mask.",
    )


@claim(86, COOKBOOK, "With activation checkpointing a layer keeps 34 sbh bytes.")
def _checkpointing_keeps_34() -> Finding:
    selective = a_layer(Options(attention="eager", dropout=0.1, recompute="selective"))
    full = a_layer(Options(attention="eager", dropout=0.1, recompute="full"))
    return Finding(
        by_cases(abs(kept / 34 - 1) < NEAR for kept in (selective, full)),
        f"GPT-2, traced: selective checkpointing keeps {selective:.1f} sbh a layer, full checkpointing {full:.1f}",
        "In the library transformers that option is full checkpointing: a layer keeps its input and nothing else.",
        rule=f"partly right if one way is within {NEAR:.0%} of 34 and the other is not",
    )


@claim(87, ACCELERATE, "Training with Adam needs four times the memory of the weights.")
def _four_times_the_weights() -> Finding:
    weights, times, at_peak, lasting = 4 * SHAPES["GPT-2"].parameters, {}, {}, 0.0
    of_weights = [ROLES.index(role) for role in ("parameters", "optimizer state", "weight gradients")]
    for batch in (1, 8):
        step = language_step("GPT-2", SEQUENCE, Options(dropout=0.1), "float32").at(batch)
        times[batch] = step.peak_bytes / weights
        at_peak[batch] = step.by_role() / weights
        lasting = float(step.matrix[step.phases == "update"][:, of_weights].sum(axis=1).max()) / weights
    states = [one["parameters"] + one["optimizer state"] for one in at_peak.values()]
    gradients = [one["weight gradients"] for one in at_peak.values()]
    peaks_fit, weights_fit = (all(abs(one / 4 - 1) < NEAR for one in n) for n in (times.values(), [lasting]))
    return Finding(
        RIGHT if peaks_fit else MISLEADING if weights_fit else WRONG,
        f"GPT-2 in float32, texts of {SEQUENCE:,} tokens: {times[1]:.1f} times at batch 1, {times[8]:.1f} at batch 8. "
        f"At both peaks weights and moments are {max(states):.1f} times, weight gradients {max(gradients):.1f}; in the "
        f"update the three together {lasting:.1f}",
        "Four are weights, gradients and two moments. At the peak, in the loss's backward pass, no weight has a "
        "gradient yet; the rest is maps and logits.",
        rule=f"right if both peaks are within {NEAR:.0%} of four, misleading if weights, gradients and moments are",
    )


@claim(88, FLASH, "With flash attention, attention takes ten times less memory at 2,000 tokens, twenty times at 4,000.")
def _ten_and_twenty_times() -> Finding:
    times = {dropout: times_less(dropout) for dropout in (0.1, 0.0)}
    enough = [
        all(at["attention"] >= said for at, said in zip(found, (10, 20), strict=True)) for found in times.values()
    ]
    (with2, with4), (without2, without4) = times.values()
    return Finding(
        by_cases(enough),
        f"GPT-2, 2 texts of 2,048 and of 4,096 tokens: attention, with its queries, keys and values, keeps "
        f"{with2['attention']:.1f} and {with4['attention']:.1f} times less with dropout on the scores, "
        f"{without2['attention']:.1f} and {without4['attention']:.1f} times without; the peak of the step with dropout "
        f"is {with2['peak']:.1f} and {with4['peak']:.1f} times lower",
        'The README adds that the "memory footprint is the same no matter if you use dropout or masking", and does not '
        "say what it counts. Counted as here, the factors are at least ten and twenty with dropout alone. The rest of "
        "each layer stays, and so do the logits.",
        rule="right if at least ten and twenty times with dropout and without, partly right if with one of them",
    )


@lru_cache(maxsize=2)
def times_less(dropout: float) -> list[dict[str, float]]:
    """What attention written out keeps over what fused attention keeps, and the same of the peaks, at 2,048 and 4,096.

    Queries, keys and values count in both: written out as copies that attention makes, fused as what the product gives.
    """
    found = []
    for sequence in (2048, 4096):
        ways = [Options(attention=way, dropout=dropout) for way in ("eager", "fused")]
        steps = [language_step("GPT-2", sequence, way).at(2) for way in ways]
        kept = [step.by_layer().set_index("layer")["saved feature maps"] for step in steps]
        eager, fused = (float(maps[["layers.5.qkv", "layers.5.attention"]].sum()) for maps in kept)
        found.append({"attention": eager / fused, "peak": steps[0].peak_bytes / steps[1].peak_bytes})
    return found
