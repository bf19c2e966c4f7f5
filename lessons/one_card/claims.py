"""Claims of lesson 14, fine-tuning and serving on one card: published figures beside what is traced and counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, by_cases, claim
from course_utils.machine import hardware
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.capacity import FITS, fit
from course_utils.techniques.fine_tuning import BLOCK_4_BIT
from course_utils.units import GB, format_bytes, in_gb
from lessons.one_card.fine_tuning import METHODS, Method, step
from lessons.one_card.serving import cache_bytes
from lessons.shared.language_models import SHAPES
from lessons.shared.sources import COOKBOOK, LITGPT, TORCHTUNE

MODEL, CARD = "Llama-3-8B", "RTX 4090"
# Qwen/Qwen3-1.7B on the Hugging Face hub, without the norms of queries and keys, which no size depends on.
QWEN3 = replace(SHAPES["SmolLM2-1.7B"], name="Qwen3-1.7B", layers=28, heads=16, kv_heads=8, inner=6144)
BYTES = 2  # of a 16-bit value
CLOSE = 0.05  # of a published figure: what is this close to it is taken for it


@claim(89, LITGPT, "TinyLlama, batches of 8: QLoRA needs more memory than LoRA.")
def _qlora_needs_more() -> Finding:
    peaks = {
        base: step("TinyLlama-1.1B", Method("lora", base), 512, 8, False, kept=True).peak_bytes
        for base in ("16 bits", "4 bits", "4 bits, copies kept", "4 bits, rest in float32")
    }
    wide = peaks.pop("16 bits")
    more = sum(peak > wide for peak in peaks.values())
    told = ", ".join(f"{in_gb(peak):.1f} GB ({base})" for base, peak in peaks.items())
    return Finding(
        RIGHT if more == len(peaks) else PARTLY if more else WRONG,
        f"traced with 512 tokens, every map kept: LoRA {in_gb(wide):.1f} GB; {told}. Published: 13.50, of a run not "
        f"known well enough to trace ({1 - in_gb(wide) / 13.50:.0%} less is traced), and 16.24",
        "4 bits save on weights, of which a small model has few. Copies that autograd keeps, or maps that become "
        "float32 after float32 norms, cost more than that; where there are neither, 4 bits need less. Which of these "
        "the published program paid for, it does not say.",
        rule="right if every way of 4 bits needs more than 16, partly right if one does",
    )


@claim(90, COOKBOOK, "A key–value cache takes bytes of a value · hidden · layers · tokens · sequences.")
def _cache_formula() -> Finding:
    found, holds = {}, []
    for shape in (SHAPES["GPT-2"], SHAPES["SmolLM2-1.7B"], SHAPES[MODEL], QWEN3):
        with torch.device("meta"):
            cache: list[tuple[torch.Tensor, torch.Tensor]] = []
            shape.build(layers=1).to(torch.bfloat16).eval()(torch.zeros(1, 64, dtype=torch.int64), cache=cache)
        real = shape.layers * sum(part.numel() * part.element_size() for pair in cache for part in pair)
        assert real == cache_bytes(shape, 64)
        found[shape.name] = real / (BYTES * shape.hidden * shape.layers * 64)
        holds.append(found[shape.name] == 1 and shape.kv_heads == shape.heads)
    return Finding(
        by_cases(holds),
        "the real cache, traced on shapes, is so many times that: "
        + ", ".join(f"{name} {times:g}" for name, times in found.items()),
        "Keys and values are two. Where several heads share one of each, it is divided by as many, by two in Qwen3.",
        rule="right if it is 1 for each, partly right if for one, else wrong; where heads share, two errors cancel: "
        "no case that counts",
    )


LLAMA2 = {"parameters": 6_738_415_616, "outside": 2 * 32_000 * 4096}  # Touvron and others, Llama 2 (2023)
PUBLISHED = {"bfloat16": 13.52, "NF4": 4.57}  # GB


@claim(91, LITGPT, "Writing with Llama-2-7B takes 13.52 GB in bfloat16, 4.57 GB in NF4, 4 bits.")
def _third() -> Finding:
    inside = LLAMA2["parameters"] - LLAMA2["outside"]
    counted = {
        "bfloat16": 2 * LLAMA2["parameters"] / GB,
        "NF4": (inside * (0.5 + 4 / BLOCK_4_BIT) + 2 * LLAMA2["outside"]) / GB,
    }
    off = [abs(counted[name] / PUBLISHED[name] - 1) for name in counted]
    left = {name: PUBLISHED[name] - counted[name] for name in counted}
    return Finding(
        by_cases(share <= CLOSE for share in off),
        f"weights alone, counted: {counted['bfloat16']:.2f} GB and {counted['NF4']:.2f}, "
        f"{counted['NF4'] / counted['bfloat16']:.0%} of it",
        "We call a number right if the weights alone explain it to 5 %: they do the first, but not the second, though "
        "a scale for every 64 values is counted, and embedding and head in 16 bits. "
        f"In NF4 {left['NF4']:.2f} GB remain beside the weights, in bfloat16 {left['bfloat16']:.2f}. Part is a 16-bit "
        "copy of the weight in use; the source does not explain the rest.",
    )


@claim(92, TORCHTUNE, "All weights of an 8-billion model can be trained on a 24 GB card, with two texts of 2,048.")
def _full_on_one_card() -> Finding:
    whole = [name for name, method in METHODS.items() if method.trained == "all"]
    steps = {name: step(MODEL, name, batch=2, kept=True) for name in whole}
    card = hardware.device(CARD)
    verdicts = {name: fit(ledger, card) for name, ledger in steps.items()}
    fitting = [name for name, verdict in verdicts.items() if verdict.state == FITS]
    best = min(steps, key=lambda name: steps[name].peak_bytes)
    least, maps_kept = steps[best].peak_bytes, step(MODEL, best, batch=2, recompute=False).peak_bytes
    return Finding(
        RIGHT if fitting else WRONG,
        f"Llama-3-8B, layers recomputed: AdamW {format_bytes(steps['full'].peak_bytes)}; the least, with the state on "
        f"the CPU and the step in the backward pass, {format_bytes(least)}, and the context takes up to "
        f"{format_bytes(verdicts[best].context.most)} of the {format_bytes(card.memory_bytes)} of an {CARD}; "
        f"{len(fitting)} of {len(steps)} ways fits. "
        f"With every map kept that way takes {format_bytes(maps_kept)}",
        "With AdamW it takes three techniques: layers are recomputed, no gradient is kept, and no state. The published "
        "run reports 18.9 GiB. It takes its loss in pieces and keeps 8-bit moments in pages, which we do not trace.",
        rule="right if one way fits, since the sentence says can",
    )


def without_logits(ledger: Ledger) -> int:
    """The peak if no tensor as large as the logits were made in the two passes."""
    tape, logits = ledger.tape, 2048 * ledger.batch * SHAPES[MODEL].vocabulary
    alive = ledger.total.copy()
    for i in np.flatnonzero((tape.role >= ROLES.index("feature maps")) & (ledger.size >= 2 * logits)):
        alive[tape.birth[i] : tape.death[i]] -= ledger.size[i]
    return int(alive.max())
