"""Models that nobody here wrote, each step traced for the CPU and beside it run for real: one line a family.

Exact: every operator's bytes equal those of real storages. Needs the extra "zoo". Models are built from small
configurations, with random weights.
"""

from __future__ import annotations

import importlib
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from course_utils.memory import StepTrace
from course_utils.trace.huggingface import training_step
from course_utils.units import CourseError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles import Case, live_storages_timeline

CONSOLE = Console(width=120)
BATCH, LENGTH, WORDS = 3, 16, 96

SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "image_size": 32,
    "patch_size": 8, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "dim": 32, "hidden_dim": 64,
    "n_layers": 2, "n_heads": 4, "d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4,
    "ffn_dim": 64, "word_embed_proj_dim": 32, "embedding_size": 32, "num_experts": 4, "num_local_experts": 4,
    "moe_intermediate_size": 32, "num_experts_per_tok": 2, "rotary_dim": 4,
    "attention_types": [[["global", "local"], 1]],
}  # fmt: skip
FAMILIES: dict[str, list[str]] = {
    "decoders": (
        "GPT2LMHeadModel GPTNeoForCausalLM GPTNeoXForCausalLM GPTJForCausalLM OPTForCausalLM BloomForCausalLM "
        "LlamaForCausalLM MistralForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM GemmaForCausalLM Gemma2ForCausalLM "
        "PhiForCausalLM Phi3ForCausalLM GraniteForCausalLM OlmoForCausalLM Olmo2ForCausalLM CohereForCausalLM "
        "StableLmForCausalLM Starcoder2ForCausalLM FalconForCausalLM"
    ).split(),
    "mixtures of experts": "MixtralForCausalLM Qwen2MoeForCausalLM OlmoeForCausalLM GraniteMoeForCausalLM".split(),
    "encoders": (
        "BertForMaskedLM BertForSequenceClassification RobertaForMaskedLM ElectraForMaskedLM DistilBertForMaskedLM "
        "AlbertForMaskedLM DebertaV2ForMaskedLM ModernBertForMaskedLM RoFormerForMaskedLM XLMRobertaForMaskedLM"
    ).split(),
    "encoder and decoder": (
        "T5ForConditionalGeneration BartForConditionalGeneration MT5ForConditionalGeneration"
    ).split(),
    "pictures": (
        "ViTForImageClassification DeiTForImageClassification BeitForImageClassification Dinov2ForImageClassification "
        "ConvNextForImageClassification ResNetForImageClassification SwinForImageClassification"
    ).split(),
}  # fmt: skip


LOOK_FOR_PADDING = ("GPT2LMHeadModel", "DebertaV2ForMaskedLM", "RoFormerForMaskedLM")  # and want a mask to do without


@dataclass
class Outcome:
    """What became of the models of a family, by name."""

    tried: int = 0
    exact: int = 0
    labelled: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


def _build(name: str) -> Callable[[], nn.Module]:
    transformers = importlib.import_module("transformers")
    kind = getattr(transformers, name)
    known = kind.config_class()
    sizes = {key: value for key, value in SIZES.items() if hasattr(known, key)}
    if name.startswith(("ConvNext", "ResNet", "Swin")):
        sizes = {}

    if name.startswith(("T5", "MT5")):
        sizes["decoder_start_token_id"] = 0

    def build() -> nn.Module:
        torch.manual_seed(0)
        return kind(kind.config_class(**sizes)).train()  # type: ignore[no-any-return]

    return build


class _Loop(nn.Module):
    """`out = model(**batch)`, with `out` alive to the end of the step."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names, self.kept = model, names, []

    def forward(self, tensors: list[Tensor]) -> Tensor:
        self.kept.clear()
        batch = dict(zip(self.names, tensors, strict=True))
        out = self.model(**batch)
        self.kept.append(out)
        return out.loss  # type: ignore[no-any-return]


def _real(build: Callable[[], nn.Module], step: StepTrace) -> list[tuple[str, int]]:
    """The second step of a real run, on a batch like the traced one."""
    inputs: dict[str, Any] = step.settings["inputs"]  # type: ignore[assignment]
    made: dict[int, Tensor] = {}
    for spec in inputs.values():
        shape = (BATCH, *(LENGTH if isinstance(n, str) else n for n in spec.shape))
        tensor = torch.randn(shape) if spec.dtype.is_floating_point else torch.randint(1, 2, shape, dtype=spec.dtype)
        made.setdefault(id(spec), tensor)
    batch = [made[id(spec)] for spec in inputs.values()]
    case = Case(
        lambda: _Loop(build(), list(inputs)), (), 2, criterion=lambda loss, y: loss, make_input=lambda *shape: batch,
        make_target=lambda size: torch.zeros(0),
    )  # fmt: skip
    return live_storages_timeline(case, BATCH)


def _try(name: str, outcome: Outcome) -> None:
    outcome.tried += 1
    build = _build(name)
    pictures = name.endswith("ForImageClassification")
    began = time.process_time()
    try:
        step = training_step(build(), None if pictures else LENGTH, "sgd", target="cpu", mask=name in LOOK_FOR_PADDING)
    except CourseError as error:
        outcome.refused.append(f"{name}: {error}")
        return
    outcome.milliseconds.append(1000 * (time.process_time() - began))
    frame = step.at(BATCH).timeline()
    traced = list(zip(frame["event"][1:-1], frame["total"][1:-1].tolist(), strict=True))
    if traced == _real(build, step):
        outcome.exact += 1
    elif step.assumptions:
        outcome.labelled.append(f"{name}: {'; '.join(step.assumptions)}")
    else:
        outcome.different.append(name)


def zoo() -> None:
    """Every family, one line each, then what was not exact, by name."""
    logging.disable(logging.WARNING)
    table = Table(title=f"A real step and its trace, batch {BATCH}, on the CPU", title_justify="left")
    for column in ("family", "tried", "exact", "labelled", "refused", "different", "median ms", "worst ms"):
        table.add_column(column, justify="left" if column == "family" else "right")
    notes: list[str] = []
    for family, names in FAMILIES.items():
        outcome = Outcome()
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    _try(name, outcome)
                except Exception as error:  # noqa: BLE001 - a model that does not build from these sizes is not tried
                    outcome.tried -= 1
                    notes.append(f"not tried: {name}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
        times = outcome.milliseconds or [0.0]
        table.add_row(
            family, str(outcome.tried), str(outcome.exact), str(len(outcome.labelled)), str(len(outcome.refused)),
            str(len(outcome.different)), f"{statistics.median(times):,.0f}", f"{max(times):,.0f}",
        )  # fmt: skip
        notes += [f"different: {name}" for name in outcome.different]
        notes += [f"refused: {what}" for what in outcome.refused] + [f"labelled: {what}" for what in outcome.labelled]
    CONSOLE.print(table)
    for note in notes:
        CONSOLE.print(note)
