"""Peaks that others measured on a real GPU, beside the trace: bytes beside bytes, blocks and reserved.

`lessons/transformers/t4_peaks.json` says where its rows come from: LoRA fine-tuning in float16, checkpointing on, on
one Tesla T4. What is traced is written into it, for lesson 13. Needs transformers and peft (`pip install -e ".[zoo]"`).
Models are built from their configuration, without weights.
"""

from __future__ import annotations

import json
import logging
import random
import statistics
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.zoo_models import torchvision_beside_a_cpu_build
from course_utils.trace.huggingface import training_step
from course_utils.units import MIB
from lessons.transformers.peaks import T4_PEAKS

CONSOLE = Console(width=150)
LIMITS = {"allocated": (0.0001, 0.0041), "reserved": (0.015, 0.09)}  # median and worst, as the project asks of it
EXACT = 10  # rows to the byte
HISTORIES = 40  # made up: what the program may have allocated and given back before its first step


def histories() -> Iterator[list[int]]:
    """Bytes of 1 to 20 blocks of 1 to 48 MiB each, in the order in which they are given back."""
    draw = random.Random("before the first step")
    for _ in range(HISTORIES):
        yield [int(draw.choice((1, 2, 4, 8, 16, 32)) * draw.choice((1, 1.125, 1.25, 1.5)) * MIB)
               for _ in range(draw.randint(1, 20))]  # fmt: skip


def expanded_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, scaling: float | None = None, **_: Any
) -> tuple[Tensor, None]:
    """What the measured program ran: keys and values repeated for every head, then torch's attention."""
    from transformers.integrations.sdpa_attention import repeat_kv

    groups = module.num_key_value_groups
    if groups > 1:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def build(facts: dict[str, Any], attention: str, rank: int) -> nn.Module:
    """The model of a row, as it was trained."""
    from peft import LoraConfig, get_peft_model
    from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    AttentionInterface.register("expanded", expanded_attention)
    options = {key: facts[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")}
    make = (Qwen2Config, Qwen2ForCausalLM) if "Qwen" in facts["name"] else (LlamaConfig, LlamaForCausalLM)
    config = make[0](
        **options, num_hidden_layers=facts["num_layers"], num_key_value_heads=facts["num_kv_heads"], use_cache=False,
        tie_word_embeddings=facts["tie_word_embeddings"], max_position_embeddings=8192,
    )  # fmt: skip
    config._attn_implementation = "eager" if attention == "eager" else "expanded"
    with torch.device("meta"):
        model = make[1]._from_config(config, dtype=torch.float16)
    lora = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )  # fmt: skip
    model = get_peft_model(model, lora)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()  # type: ignore[no-any-return]


@contextmanager
def _quiet() -> Iterator[None]:
    kept = torchvision_beside_a_cpu_build() if torch.version.cuda is None else []  # which transformers imports
    logging.disable(logging.WARNING)
    with (
        warnings.catch_warnings(),
        nn.attention.sdpa_kernel([nn.attention.SDPBackend.EFFICIENT_ATTENTION, nn.attention.SDPBackend.MATH]),
    ):
        warnings.simplefilter("ignore")
        yield
    del kept


def gpu_peaks() -> None:
    """All rows: what the trace says, and by how much it is off what the card said."""
    table = Table(
        title="LoRA in float16 on a Tesla T4: allocated and reserved, measured and traced", title_justify="left"
    )
    table.add_column("model, attention, batch × sequence")
    for column in ("max_memory_allocated", "traced", "off, bytes", "by history", "reserved, MiB", "replayed", "off"):
        table.add_column(column, justify="right")
    off: list[float] = []
    reserved_off: list[float] = []
    exact = 0
    recorded = json.loads(T4_PEAKS.read_text(encoding="utf-8"))
    rows = recorded["rows"]
    with _quiet():
        for row in rows:
            model = build(row["model"], row["attention"], row["lora_rank"])
            ledger = training_step(model, row["sequence"]).at(row["batch"])
            measured, held = row["max_memory_allocated_bytes"], row["max_memory_reserved_bytes"]
            traced, reserved = ledger.allocated_bytes(), ledger.reserved_bytes()
            row["traced_allocated_bytes"], row["traced_reserved_bytes"] = traced, reserved
            after = [ledger.requests.replay(before=before).peak_allocated for before in histories()]
            row["traced_after_histories_bytes"] = [min(traced, *after), max(traced, *after)]
            off.append(traced / measured - 1)
            reserved_off.append(reserved / held - 1)
            exact += traced == measured
            table.add_row(
                f"{row['model']['name']}, {row['attention']}, {row['batch']} × {row['sequence']}", f"{measured:,}",
                f"{traced:,}", f"{traced - measured:+,}",
                " … ".join(f"{each - measured:+,}" for each in row["traced_after_histories_bytes"]),
                f"{held / MIB:,.0f}", f"{reserved / MIB:,.0f}", f"{reserved_off[-1]:+.1%}",
            )  # fmt: skip
    recorded["traced_with"] = {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft")}
    T4_PEAKS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    CONSOLE.print(table)
    for what, values in (("allocated", off), ("reserved", reserved_off)):
        sizes = [abs(value) for value in values]
        median, worst = statistics.median(sizes), max(sizes)
        holds = median <= LIMITS[what][0] and worst <= LIMITS[what][1]
        asked = " and ".join(f"{limit:.2%}" for limit in LIMITS[what])
        CONSOLE.print(
            f"{'pass' if holds else 'FAIL'}: {what}: median off by {median:.3%}, at worst by {worst:.3%}, asked {asked}"
        )
    CONSOLE.print(f"{'pass' if exact >= EXACT else 'FAIL'}: {exact} of {len(rows)} rows to the byte, asked {EXACT}\n")
