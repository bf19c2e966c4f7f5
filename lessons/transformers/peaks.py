"""Peaks of transformers that others measured on GPUs and published to the byte, and what was traced of the same steps.

`t4_peaks.json` says where its rows come from. What the trace says of each is written into it by
`python -m benchmarks gpu_peaks`, which builds the models of transformers and peft that were measured: that takes an
extra, so that lessons read what it wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

T4_PEAKS = Path(__file__).parent / "t4_peaks.json"
T4_SOURCE = "fitcheck-llm 0.3.1 (PyPI, MIT licence), data/measurements/t4-sweep and t4-phase3"


@dataclass(frozen=True)
class T4Peak:
    """One step measured on a Tesla T4: LoRA of rank `rank` in float16, every layer checkpointed, AdamW.

    Attributes:
        model: its shape, by the names of transformers' configurations.
        attention: "eager" or "efficient", the memory-efficient kernel.
        batch: texts in the batch.
        sequence: tokens in each.
        rank: of LoRA.
        measured: `torch.cuda.max_memory_allocated`, in bytes.
        reserved: `torch.cuda.max_memory_reserved`, in bytes.
        traced: what `Ledger.allocated_bytes` says of the step, in bytes.
        replayed: what `Ledger.reserved_bytes` says of it, in bytes.
        least: the lowest of what is traced where the program had other blocks before its first step, in bytes.
        most: the highest.
    """

    model: dict[str, Any]
    attention: str
    batch: int
    sequence: int
    rank: int
    measured: int
    reserved: int
    traced: int
    replayed: int
    least: int
    most: int

    @property
    def name(self) -> str:
        """Of the model, without how it was tuned."""
        return str(self.model["name"]).removesuffix("-Instruct").removesuffix("-Chat-v1.0")

    @property
    def off(self) -> int:
        """Bytes that the trace is above what was measured."""
        return self.traced - self.measured


def t4_peaks() -> list[T4Peak]:
    """The twenty steps, in the order of the file."""
    rows = json.loads(T4_PEAKS.read_text(encoding="utf-8"))["rows"]
    return [
        T4Peak(
            row["model"], row["attention"], row["batch"], row["sequence"], row["lora_rank"],
            row["max_memory_allocated_bytes"], row["max_memory_reserved_bytes"],
            row["traced_allocated_bytes"], row["traced_reserved_bytes"], *row["traced_after_histories_bytes"],
        )
        for row in rows
    ]  # fmt: skip


@dataclass(frozen=True)
class MegatronRun:
    """One run of Megatron-LM's test of a GPT-3 of twelve layers on eight A100: bfloat16, data parallel.

    Attributes:
        name: what is computed again.
        recompute: "none", "selective" (or an attention that writes no scores) or "full".
        peak: `mem-max-allocated-bytes` of the golden values.
        between: `mem-allocated-bytes`, what is alive between steps.
    """

    name: str
    recompute: str
    peak: int
    between: int

    @property
    def step(self) -> int:
        """What a step adds, in bytes."""
        return self.peak - self.between


MEGATRON_SOURCE = (
    "NVIDIA/Megatron-LM at d98e8a64dd, tests/functional_tests/test_cases/gpt, golden_values_dev_dgx_a100.json"
)
# Of model_config.yaml beside the golden values; the vocabulary as Megatron pads it.
MEGATRON_SHAPE = {"layers": 12, "hidden": 512, "heads": 8, "sequence": 1024, "batch": 4, "vocabulary": 50_304}
MEGATRON = (
    MegatronRun("scores written", "none", 4_673_069_568, 552_128_512),
    MegatronRun("fused attention", "selective", 2_711_714_304, 552_128_512),
    MegatronRun("whole layers again", "full", 2_534_070_272, 1_232_487_936),
)
