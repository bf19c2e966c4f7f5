"""Claims of lesson 14, fine-tuning and serving on one card: published figures beside what is traced and counted."""

from __future__ import annotations

import numpy as np
import torch

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, claim
from course_utils.memory import ROLES, Ledger
from course_utils.techniques.capacity import FITS, fit
from course_utils.techniques.fine_tuning import BLOCK_4_BIT
from course_utils.units import GB, GIB, format_bytes, in_gb
from lessons.one_card.fine_tuning import METHODS, Method, step
from lessons.one_card.serving import cache_bytes
from lessons.shared.language_models import SHAPES
from lessons.shared.sources import COOKBOOK, LITGPT, TORCHTUNE

MODEL, CARD_BYTES = "Llama-3-8B", 24 * GIB
IN_24_GB = 18.9  # GiB: torchtune's peak, which takes its loss in pieces
CLOSE = 0.1  # of a published figure: as much as context, libraries and a few maps may make of it


@claim(89, LITGPT, "TinyLlama, batches of 8: QLoRA needs more memory than LoRA, 16.24 GB against 13.50.")
def _qlora_needs_more() -> Finding:
    peaks = {
        base: step("TinyLlama-1.1B", Method("lora", base), 512, 8, False).peak_bytes
        for base in ("16 bits", "4 bits", "4 bits, copies kept", "4 bits, rest in float32")
    }
    wide = peaks.pop("16 bits")
    more = sum(peak > wide for peak in peaks.values())
    told = ", ".join(f"{in_gb(peak):.1f} GB ({base})" for base, peak in peaks.items())
    return Finding(
        RIGHT if more == len(peaks) else PARTLY if more else WRONG,
        f"traced with 512 tokens, every map kept: LoRA {in_gb(wide):.1f} GB, {1 - in_gb(wide) / 13.50:.0%} below the "
        f"published run, which is not known well enough to trace; {told}",
        "4 bits save on weights, of which a small model has few. Copies that autograd keeps, or maps that become "
        "float32 after float32 norms, cost more than that; where there are neither, 4 bits need less. Which of these "
        "the published program paid for, it does not say.",
        rule="right if every way of 4 bits needs more than 16, partly right if one does",
    )


@claim(90, COOKBOOK, "A key–value cache takes bytes of a value · hidden · layers · tokens · sequences.")
def _cache_formula() -> Finding:
    found = {}
    for name in ("GPT-2", "SmolLM2-1.7B", MODEL):
        shape = SHAPES[name]
        with torch.device("meta"):
            cache: list[tuple[torch.Tensor, torch.Tensor]] = []
            shape.build(layers=1).to(torch.bfloat16).eval()(torch.zeros(1, 64, dtype=torch.int64), cache=cache)
        real = shape.layers * sum(part.numel() * part.element_size() for pair in cache for part in pair)
        assert real == cache_bytes(shape, 64)
        found[name] = real / (2 * shape.hidden * shape.layers * 64)
    return Finding(
        RIGHT if all(times == 1 for times in found.values()) else WRONG,
        "the real cache, traced on shapes, is so many times that: "
        + ", ".join(f"{name} {times:g}" for name, times in found.items()),
        "Keys and values are two. Where several heads share one of each, it is divided by as many.",
        rule="right if it is 1 for each",
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
        RIGHT if max(off) <= CLOSE else PARTLY,
        f"weights alone, counted: {counted['bfloat16']:.2f} GB and {counted['NF4']:.2f}, "
        f"{counted['NF4'] / counted['bfloat16']:.0%} of it",
        "Not a quarter: a scale for every 64 values makes 4 bits 4.5, and embedding and head stay in 16. "
        f"In NF4 {left['NF4']:.2f} GB remain beside the weights, in bfloat16 {left['bfloat16']:.2f}. Part is a 16-bit "
        "copy of the weight in use; the source does not explain the rest.",
    )


@claim(92, TORCHTUNE, "All weights of an 8-billion model train on a 24 GB card, in 18.9 GiB, two texts of 2,048.")
def _full_on_one_card() -> Finding:
    whole = [name for name, method in METHODS.items() if method.trained == "all"]
    one, two = ({name: step(MODEL, name, batch=batch) for name in whole} for batch in (1, 2))
    fitting = [name for name, ledger in two.items() if fit(ledger, CARD_BYTES).state == FITS]
    least = [min(steps.values(), key=lambda ledger: ledger.peak_bytes) for steps in (one, two)]
    whole_loss, in_pieces = least[1].peak_bytes, without_logits(least[1])
    between = in_pieces <= IN_24_GB * GIB <= whole_loss
    return Finding(
        RIGHT if fitting and between else PARTLY if fitting else WRONG,
        f"two texts of 2,048 tokens, layers recomputed: AdamW {format_bytes(two['full'].peak_bytes)}; the least, with "
        f"the state on the CPU and the step in the backward pass, {format_bytes(whole_loss)}, and without the logits "
        f"{format_bytes(in_pieces)} (one text: {format_bytes(least[0].peak_bytes)}); "
        f"{len(fitting)} of {len(two)} ways fit",
        "It takes two techniques at once: no gradient may be kept, and no state. The published run takes its loss in "
        "pieces, so that not all tensors of the logits are there at once. It also keeps 8-bit moments in pages that "
        "move to the card.",
        rule="right if one fits and the published peak lies between ours with the logits and without, partly right if "
        "one fits",
    )


def without_logits(ledger: Ledger) -> int:
    """The peak if no tensor as large as the logits were made in the two passes."""
    tape, logits = ledger.tape, 2048 * ledger.batch * SHAPES[MODEL].vocabulary
    alive = ledger.total.copy()
    for i in np.flatnonzero((tape.role >= ROLES.index("feature maps")) & (ledger.size >= 2 * logits)):
        alive[tape.birth[i] : tape.death[i]] -= ledger.size[i]
    return int(alive.max())
