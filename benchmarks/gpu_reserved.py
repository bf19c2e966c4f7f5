"""What whole steps reserved on an A100 and an MI250, as others published it, beside the trace and the replay.

`reserved_peaks.csv` holds two sources. LLMs-from-scratch (Apache-2.0, Sebastian Raschka) trains GPT-2 small, written
operator by operator, and says after each change of its script what PyTorch had reserved at the end of an epoch, to
0.0001 GiB; texts were generated and losses evaluated too, of which a replay knows nothing. optimum-benchmark
(Apache-2.0, Hugging Face) trains models of transformers by its Trainer on an AMD card, and the trace is that for CUDA:
which workspaces AMD's libraries ask for is not known here. These rows need transformers. Nothing was fitted to any row.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.zoo_models import torchvision_beside_a_cpu_build
from course_utils.memory import Ledger
from course_utils.trace import Spec, training_step
from course_utils.trace.huggingface import training_step as transformers_step

CONSOLE = Console(width=130)
PEAKS = Path(__file__).with_name("reserved_peaks.csv")
BATCH, LENGTH, WORDS, WIDTH, HEADS, BLOCKS, DROP = 8, 1024, 50_257, 768, 12, 12, 0.1
# What each row of the script has changed, one after another.
CHANGES = (
    "baseline",
    "mask on the fly",
    "fused AdamW",
    "bfloat16 weights",
    "LayerNorm, GELU of torch",
    "flash attention",
)


class WrittenNorm(nn.Module):
    """Layer norm, operator by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        spread = x.var(dim=-1, keepdim=True, unbiased=False)
        normed = (x - mean) / torch.sqrt(spread + 1e-5)
        return self.scale * normed + self.shift


class WrittenGELU(nn.Module):
    """GELU by tanh, operator by operator."""

    def forward(self, x: Tensor) -> Tensor:
        root = (2 / torch.pi) ** 0.5
        return 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * torch.pow(x, 3))))


def causal(device: torch.device | None = None) -> Tensor:
    """1 where a token comes later."""
    return torch.triu(torch.ones(LENGTH, LENGTH, device=device), diagonal=1)


class Attention(nn.Module):
    """Of heads, with its matrix of scores or by torch's function."""

    def __init__(self, changed: int) -> None:
        super().__init__()
        self.written, self.on_the_fly = changed < CHANGES.index("flash attention"), changed > 0
        many = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.inputs: nn.Module = many if self.written else nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(DROP)
        if not self.on_the_fly:
            self.register_buffer("mask", causal())

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        if self.written:
            assert isinstance(self.inputs, nn.ModuleList)
            key, query, value = (
                made(x).view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for made in self.inputs
            )
            scores = query @ key.transpose(2, 3)
            whole = (
                torch.triu(torch.ones(length, length, device=x.device), diagonal=1) if self.on_the_fly else self.mask
            )
            mask = whole.bool()[:length, :length]
            scores.masked_fill_(mask, -torch.inf)
            weights = self.drop(torch.softmax(scores / key.shape[-1] ** 0.5, dim=-1))
            mixed = (weights @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        else:
            three = self.inputs(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            query, key, value = three
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=DROP, is_causal=True)
            mixed = mixed.transpose(1, 2).contiguous().view(batch, length, WIDTH)
        out: Tensor = self.out(mixed)
        return out


class Block(nn.Module):
    """Attention and two dense layers, each beside a shortcut."""

    def __init__(self, changed: int) -> None:
        super().__init__()
        torchs = changed >= CHANGES.index("LayerNorm, GELU of torch")
        self.attention, self.drop = Attention(changed), nn.Dropout(DROP)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) if torchs else WrittenNorm() for _ in range(2))
        gelu = nn.GELU(approximate="tanh") if torchs else WrittenGELU()
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, (self.attention, self.dense), strict=True):
            shortcut = x
            x = norm(x)
            x = layer(x)
            x = self.drop(x)
            x = x + shortcut
        return x


class GPT2(nn.Module):
    """The script's network after so many of its changes."""

    def __init__(self, changed: int) -> None:
        super().__init__()
        torchs = changed >= CHANGES.index("LayerNorm, GELU of torch")
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.drop = nn.Dropout(DROP)
        self.blocks = nn.Sequential(*(Block(changed) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH) if torchs else WrittenNorm()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        words = self.words(ids)
        places = self.places(torch.arange(ids.shape[1], device=ids.device))
        x = words + places
        x = self.drop(x)
        x = self.blocks(x)
        x = self.norm(x)
        logits: Tensor = self.head(x)
        return logits


def _loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["ids"])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())


def gpt2(change: str) -> Ledger:
    """The step of a row of the script."""
    changed = CHANGES.index(change)
    with torch.device("meta"):
        model: nn.Module = GPT2(changed)
    if changed >= CHANGES.index("bfloat16 weights"):
        model = model.to(torch.bfloat16)
    fused = changed >= CHANGES.index("fused AdamW")
    words = Spec((LENGTH,), torch.int64)
    step = training_step(
        model, inputs={"ids": words, "labels": Spec((LENGTH,), torch.int64)}, loss=_loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, fused=fused),
    )  # fmt: skip
    return step.at(BATCH)


def trainer(what: str) -> Ledger:
    """The step of optimum-benchmark: a model of transformers as it is, AdamW, a batch of 2."""
    transformers: Any = importlib.import_module("transformers")
    with torch.device("meta"):
        if what.startswith("gpt2"):
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
            return transformers_step(model, 16, optimizer="adamw").at(2)
        model = transformers.ViTForImageClassification(transformers.ViTConfig())
    return transformers_step(model, optimizer="adamw").at(2)


def traced(row: dict[str, str]) -> int:
    """What the trace says of a row, in bytes."""
    ledger = trainer(row["what"]) if row["card"].startswith("MI250") else gpt2(row["what"])
    return ledger.allocated_bytes() if row["kind"] == "allocated" else ledger.reserved_bytes()


def gpu_reserved() -> None:
    """All rows that can be asked here."""
    table = Table(title="Whole steps, published and traced", title_justify="left")
    for column in ("card", "step", "counter", "published", "traced", "off"):
        table.add_column(column, justify="right" if column in ("published", "traced", "off") else "left")
    known = importlib.util.find_spec("transformers") is not None
    kept = torchvision_beside_a_cpu_build() if known and torch.version.cuda is None else []
    for row in csv.DictReader(PEAKS.read_text(encoding="utf-8").splitlines()):
        if row["card"].startswith("MI250") and not known:
            continue
        measured, ours = int(row["bytes"]), traced(row)
        table.add_row(
            row["card"], row["what"], row["kind"], f"{measured:,}", f"{ours:,}", f"{ours / measured - 1:+.2%}"
        )
    del kept
    CONSOLE.print(table)
    if not known:
        CONSOLE.print("The rows of the MI250 need transformers.")
    CONSOLE.print()
