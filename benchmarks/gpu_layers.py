"""Peaks of single layers that others measured on an A100 and an H100, beside the trace.

`liger_peaks.csv` holds what Liger-Kernel publishes of plain torch (BSD-2, LinkedIn; `all_benchmark_data.csv` in
benchmark/data at ead96b61, y_value_50), for scripts that do not keep the graph alive and whose process holds nothing
else. Each makes an input that wants a gradient and, beside torch's layer, Liger's; then it runs forward and backward
ten times without clearing gradients. So does the trace: the second of two micro-batches has the gradients of the first.

Nothing was fitted to these rows, but those of RMS norm showed that a gradient which is not contiguous is copied
(difference 10 of `course_utils.trace.kernels`), which its source then said too.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from course_utils.trace import Spec, training_step
from course_utils.units import MIB

CONSOLE = Console(width=130)
PEAKS = Path(__file__).with_name("liger_peaks.csv")
BFLOAT16: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta"}
NEAR, WORST = 27, 0.005  # rows within SCALARS bytes; the share that no row is off by
SCALARS = 1024  # two numbers, a block each: micro-batches halve their loss, which the scripts do not


class CrossEntropy(nn.Module):
    """Logits in float32, (tokens, vocabulary), and labels."""

    beside = 0  # bytes of Liger's layer
    keeps = False  # whether what it returns is alive in the backward pass

    def __init__(self, tokens: int, _width: int, vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, vocabulary, device="meta"))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self.x, batch["labels"][0])


class LinearCrossEntropy(nn.Module):
    """A language model's last layer and its loss, in bfloat16."""

    keeps = False

    def __init__(self, tokens: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, width, **BFLOAT16))
        self.linear = nn.Linear(width, vocabulary, bias=False, **BFLOAT16)
        self.beside = 2 * width * vocabulary

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self.linear(self.x), batch["labels"][0])


class RMSNorm(nn.Module):
    """torch's own, in bfloat16; the gradient comes from a sum."""

    beside, keeps = 0, True  # the script makes one layer only

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, 1, width, **BFLOAT16))
        self.norm = nn.RMSNorm(width, **BFLOAT16)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        out: Tensor = self.norm(self.x)
        return out


class LayerNorm(nn.Module):
    """torch's own, in float32."""

    keeps = True

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, width, device="meta"))
        self.norm = nn.LayerNorm(width, device="meta")
        self.beside = 2 * 4 * width  # Liger's layer has weights of its own

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        out: Tensor = self.norm(self.x)
        return out


class AddRMSNorm(nn.Module):
    """A residual added, then the norm operator by operator, in float32."""

    keeps = True

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        super().__init__()
        self.x, self.residual = (nn.Parameter(torch.empty(tokens, width, device="meta")) for _ in range(2))
        self.weight = nn.Parameter(torch.empty(width, device="meta"))
        self.beside = 3 * 4 * width  # Liger's two layers have three weights

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        added = self.x + self.residual
        scaled = added * torch.rsqrt(added.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled, added


class TwoLinearsJensenShannon(nn.Module):
    """Distillation: a student's and a teacher's logits in bfloat16, their divergence in float32."""

    beside, keeps = 0, False  # Liger's layer shares these weights

    def __init__(self, tokens: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, width, **BFLOAT16))
        self.seen = nn.Parameter(torch.empty(tokens, width, **BFLOAT16), requires_grad=False)
        self.student, self.teacher = (nn.Linear(width, vocabulary, bias=False, **BFLOAT16) for _ in range(2))
        self.divergence = nn.KLDivLoss(reduction="batchmean", log_target=True)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        logits, seen = self.student(self.x), self.teacher(self.seen)
        return self._between(torch.log_softmax(logits / 1.0, -1), torch.log_softmax(seen / 1.0, -1))

    def _between(self, student: Tensor, teacher: Tensor) -> Tensor:
        teacher, student = teacher.float(), student.float()
        middle = torch.lerp(torch.exp(teacher), torch.exp(student), 0.5)
        halves = self.divergence(torch.log(middle), teacher), self.divergence(torch.log(middle), student)
        return (0.5 * halves[0] + 0.5 * halves[1]).to(torch.bfloat16)


class _Backward(torch.autograd.Function):
    """A number whose backward pass starts with gradients that exist already, as `torch.autograd.backward` does."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, *gradients: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return first.new_empty(())

    @staticmethod
    def backward(ctx: Any, _of_the_number: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.saved_tensors, None, None)


def _as_it_is(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch)  # type: ignore[no-any-return]


def _summed(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch).sum()  # type: ignore[no-any-return]


class _BackwardFromOne(torch.autograd.Function):
    """The same for one tensor."""

    @staticmethod
    def forward(ctx: Any, first: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return first.new_empty(())

    @staticmethod
    def backward(ctx: Any, _of_the_number: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.saved_tensors, None)


def _with_gradient(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return _BackwardFromOne.apply(model(batch), batch["first"][0])  # type: ignore[no-any-return]


def _with_gradients(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return _Backward.apply(*model(batch), batch["first"][0], batch["second"][0])  # type: ignore[no-any-return]


LAYERS: dict[str, tuple[Any, Callable[[nn.Module, Any], Tensor]]] = {
    "cross entropy": (CrossEntropy, _as_it_is),
    "linear, cross entropy": (LinearCrossEntropy, _as_it_is),
    "RMS norm": (RMSNorm, _summed),
    "layer norm": (LayerNorm, _with_gradient),
    "add, RMS norm": (AddRMSNorm, _with_gradients),
    "two linears, Jensen-Shannon": (TwoLinearsJensenShannon, _as_it_is),
}


def read_peaks() -> list[dict[str, str]]:
    """The published rows: layer, card, tokens, width, vocabulary, peak_mib, date."""
    return list(csv.DictReader(PEAKS.read_text(encoding="utf-8").splitlines()))


def traced(row: dict[str, str]) -> int:
    """`max_memory_allocated` of a row by the trace, in bytes, what lies beside the layer included."""
    make, loss = LAYERS[row["layer"]]
    tokens, width, vocabulary = (int(row[key] or 0) for key in ("tokens", "width", "vocabulary"))
    model = make(tokens, width, vocabulary)
    if loss in (_with_gradient, _with_gradients):
        inputs = {name: Spec((tokens, width)) for name in ("first", "second")[: 1 + (loss is _with_gradients)]}
    else:  # a layer without labels has one number in their place
        inputs = {"labels": Spec((tokens if row["layer"].endswith("cross entropy") else 1,), torch.int64)}
    step = training_step(model, inputs=inputs, loss=loss, optimizer="sgd", accumulate=2, keep_output=model.keeps)
    return step.at(1).allocated_bytes() + int(model.beside)


def published(row: dict[str, str]) -> tuple[int, int]:
    """(bytes, how many bytes apart two such figures can lie): they were kept as float32 numbers of MiB."""
    mib = torch.tensor(float(row["peak_mib"]), dtype=torch.float32)
    step = float(torch.nextafter(mib, torch.tensor(torch.inf)) - mib)
    return int(float(row["peak_mib"]) * MIB), int(step * MIB)


def gpu_layers() -> None:
    """All rows, bytes beside bytes."""
    title = "One layer, forward and backward, max_memory_allocated: published and traced"
    table = Table(title=title, title_justify="left")
    for column in ("layer", "card", "tokens", "width", "vocabulary", "published", "traced", "off, bytes", "off"):
        table.add_column(column, justify="left" if column in ("layer", "card") else "right")
    near, worst = 0, 0.0
    rows = read_peaks()
    for row in rows:
        (measured, apart), ours = published(row), traced(row)
        off = ours - measured
        near += abs(off) <= max(SCALARS, apart)
        worst = max(worst, abs(off) / measured)
        table.add_row(
            row["layer"], row["card"][:4], row["tokens"], row["width"], row["vocabulary"], f"{measured:,}",
            f"{ours:,}", f"{off:+,}", f"{off / measured:+.3%}",
        )  # fmt: skip
    CONSOLE.print(table)
    for said, holds in (
        (f"{near} of {len(rows)} rows within {SCALARS:,} bytes, asked {NEAR}", near >= NEAR),
        (f"at worst off by {worst:.2%}, asked {WORST:.1%}", worst <= WORST),
    ):
        CONSOLE.print(f"{'pass' if holds else 'FAIL'}: {said}")
    CONSOLE.print()
