"""Peaks of single layers that others measured on an A100 and an H100, beside the trace.

`liger_peaks.csv` holds what Liger-Kernel publishes of plain torch (BSD-2, LinkedIn; `all_benchmark_data.csv` in
benchmark/data at ead96b61, y_value_50), for scripts whose process holds nothing else. Each makes an input that wants a
gradient and, beside torch's layer, Liger's; then it runs forward and backward ten times without clearing gradients. So
does the trace. Scripts of 2024 keep the graph through
the backward pass; theirs, in benchmark/scripts at 3d0653b0 and de12602d, are the layers that are a `KeptGraph`.

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

from course_utils.allocator import ROUND
from course_utils.trace import Spec, training_step
from course_utils.trace.kernels import CUBLAS_WORKSPACE
from course_utils.units import MIB

CONSOLE = Console(width=130)
PEAKS = Path(__file__).with_name("liger_peaks.csv")
BFLOAT16: dict[str, Any] = {"dtype": torch.bfloat16, "device": "meta"}
NEAR, WORST = 69, 0.005  # rows within SCALARS bytes; the share that no row is off by
SCALARS = 1024  # two numbers, a block each, which a step has and a script has not: an input, a loss, its gradient


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


class KeptGraph(nn.Module):
    """A layer whose script runs the backward pass itself and keeps the graph while it runs: y.backward(…, True).

    What a step must have beside, a parameter to learn, its loss and its gradient, takes three blocks.
    """

    keeps = False
    beside = -3 * ROUND

    def __init__(self, *buffers: str, shape: tuple[int, ...] = (), **options: Any) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty((), device="meta"))
        for name in buffers:
            self.register_buffer(name, torch.empty(shape, **options))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        self.whole()
        return self.nothing * 1

    def whole(self) -> None:
        """Forward and backward."""
        raise NotImplementedError


class GatedLayers(KeptGraph):
    """Llama's two dense layers side by side, one of them gated, and one after, in bfloat16."""

    inner = 11_008
    beside = KeptGraph.beside + CUBLAS_WORKSPACE  # a backward pass runs in a thread of its own, which has another

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.empty(tokens, width, **BFLOAT16))
        self.gate, self.up = (nn.Linear(width, self.inner, bias=False, **BFLOAT16) for _ in range(2))
        self.down = nn.Linear(self.inner, width, bias=False, **BFLOAT16)

    def gated(self, x: Tensor) -> Tensor:
        """GELU by tanh, as in GEGLU."""
        return nn.functional.gelu(x, approximate="tanh")

    def whole(self) -> None:
        out = self.down(self.gated(self.gate(self.x)) * self.up(self.x))
        out.backward(torch.randn_like(out), retain_graph=True)


class GatedForward(GatedLayers):
    """Its forward pass alone, in a process in which backward passes ran before."""

    def whole(self) -> None:
        self.down(self.gated(self.gate(self.x)) * self.up(self.x))


class SwiGLU(GatedLayers):
    """The same with SiLU."""

    def gated(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x)


class Float32RMSNorm(KeptGraph):
    """Llama's norm: bfloat16 in, float32 weights and what it computes."""

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        super().__init__("gradient", shape=(tokens, width), **BFLOAT16)
        self.x = nn.Parameter(torch.empty(tokens, width, **BFLOAT16))
        self.weight = nn.Parameter(torch.empty(width, device="meta"))
        self.beside = KeptGraph.beside + 4 * width  # Liger's layer has weights of its own

    def normed(self) -> Tensor:
        """What the layer returns; its locals are gone then."""
        wide = self.x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * scaled.to(torch.bfloat16)

    def whole(self) -> None:
        self.normed().backward(self.gradient, retain_graph=True)


class RotaryPositions(KeptGraph):
    """Queries of 32 heads and keys of 8, turned by their positions, in bfloat16."""

    # The angles are a matrix product, whose workspace stays; their frequencies and positions stay too.
    beside = KeptGraph.beside + CUBLAS_WORKSPACE

    def __init__(self, tokens: int, width: int, _vocabulary: int) -> None:
        size = width // 32
        super().__init__("cos", "sin", shape=(1, tokens, size), **BFLOAT16)
        self.register_buffer("frequencies", torch.empty(size // 2, device="meta"))
        self.register_buffer("positions", torch.empty(1, tokens, dtype=torch.int64, device="meta"))
        for name, heads in (("query", 32), ("key", 8)):
            self.register_parameter(name, nn.Parameter(torch.empty(1, tokens, heads, size, **BFLOAT16)))
            self.register_buffer(f"of_{name}", torch.empty(1, tokens, heads, size, **BFLOAT16))

    def turned(self, x: Tensor) -> Tensor:
        """One of the two: x cos + (its halves swapped, one negated) sin; no temporary has a name that keeps it."""
        half = x.shape[-1] // 2
        return x * self.cos.unsqueeze(1) + torch.cat((-x[..., half:], x[..., :half]), -1) * self.sin.unsqueeze(1)

    def whole(self) -> None:
        inputs = self.query.transpose(1, 2), self.key.transpose(1, 2)
        gradients = self.of_query.transpose(1, 2), self.of_key.transpose(1, 2)
        torch.autograd.grad([self.turned(x) for x in inputs], inputs, gradients, retain_graph=True)


class Divergence(KeptGraph):
    """Of log-probabilities from probabilities, by torch's loss, in float32."""

    log_target = False

    def __init__(self, tokens: int, _width: int, vocabulary: int) -> None:
        super().__init__("target", shape=(tokens, vocabulary), device="meta")
        self.x = nn.Parameter(torch.empty(tokens, vocabulary, device="meta"))
        self.divergence = nn.KLDivLoss(reduction="batchmean", log_target=self.log_target)

    def between(self, student: Tensor) -> Tensor:
        """The loss."""
        return self.divergence(student, self.target)  # type: ignore[no-any-return]

    def whole(self) -> None:
        self.between(torch.log_softmax(self.x, -1)).backward(retain_graph=True)


class JensenShannon(Divergence):
    """The mean of two, from the middle of both."""

    log_target = True

    def between(self, student: Tensor) -> Tensor:
        middle = torch.lerp(torch.exp(self.target), torch.exp(student), 0.5)
        halves = (0.5 * self.divergence(torch.log(middle), each) for each in (self.target, student))
        return next(halves) + next(halves)


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
    "GEGLU": (GatedLayers, _as_it_is),
    "GEGLU, forward": (GatedForward, _as_it_is),
    "GEGLU, backward": (GatedLayers, _as_it_is),
    "SwiGLU": (SwiGLU, _as_it_is),
    "RMS norm, float32": (Float32RMSNorm, _as_it_is),
    "rotary positions": (RotaryPositions, _as_it_is),
    "KL divergence": (Divergence, _as_it_is),
    "Jensen-Shannon": (JensenShannon, _as_it_is),
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
    step = training_step(model, inputs=inputs, loss=loss, optimizer="sgd", zero_grad="never", keep_output=model.keeps)
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
