"""Decoder-only transformers as plain modules: GPT-2, and Llama with its relatives, in the sizes that were published.

Every model also builds under `with torch.device("meta")`, where it allocates nothing. What a lesson varies is an
option: how attention runs, what is computed again in the backward pass, the format of the logits, a loss in pieces.
Weights keep the dtype that the model is moved to.

Token ids are (batch, sequence), maps (batch, sequence, hidden), heads (batch, heads, sequence, hidden / heads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils.units import CourseError

ATTENTION = ("eager", "fused")
RECOMPUTE = ("none", "selective", "full")
LOGITS = ("float32", "model")
NOT_A_LABEL = -100  # what cross entropy leaves out
Cache = list[tuple[Tensor, Tensor]]  # keys and values of each layer, (batch, kv_heads, tokens so far, hidden / heads)


class Output(NamedTuple):
    """What a model returns where it is given labels: the mean loss, and the logits, which a loss in pieces has not."""

    loss: Tensor
    logits: Tensor | None


@dataclass(frozen=True)
class Options:
    """How a model runs; what it computes is the same.

    Attributes:
        attention: "eager" writes the scores, (batch, heads, sequence, sequence); "fused" leaves attention to
            `scaled_dot_product_attention`, which need not.
        dropout: the share dropped behind the embedding, in attention and behind both halves of a layer: 0.1 as GPT-2
            was trained, 0 as Llama was.
        recompute: "none"; "selective", attention's scores are computed again in the backward pass; "full", whole
            layers are.
        group: layers that are one segment of "full".
        logits: "float32" turns logits into float32 before the loss; "model" leaves them as they are.
        pieces: 0 computes all logits at once; else the loss is computed over so many pieces of the tokens, one after
            the other, and their logits again in the backward pass.

    Raises:
        CourseError: an option out of range.
    """

    attention: str = "fused"
    dropout: float = 0.0
    recompute: str = "none"
    group: int = 1
    logits: str = "float32"
    pieces: int = 0

    def __post_init__(self) -> None:
        for what, known in (("attention", ATTENTION), ("recompute", RECOMPUTE), ("logits", LOGITS)):
            if getattr(self, what) not in known:
                raise CourseError(f"unknown {what} {getattr(self, what)!r}: choose one of {', '.join(known)}")
        if not 0 <= self.dropout < 1:
            raise CourseError(f"dropout must be at least 0 and less than 1, got {self.dropout!r}")
        if self.group < 1 or self.pieces < 0:
            raise CourseError(f"group must be 1 or more and pieces 0 or more, got {self.group} and {self.pieces}")


@dataclass(frozen=True)
class Shape:
    """A model by its numbers.

    Attributes:
        name: as published.
        family: "gpt2" or "llama".
        vocabulary: tokens there are, columns of the logits.
        hidden: width of the maps between layers.
        layers: how many.
        heads: of attention.
        kv_heads: heads that keys and values have; fewer than `heads` is grouped-query attention.
        inner: width of the feed-forward half of a layer.
        positions: the longest sequence.
        tied: whether the head is the embedding.
        bias: whether queries, keys and values have a bias (GPT-2 has one everywhere).
        base: of the rotary angles.
        parameters: published; what is tied counts once.
        source: where the numbers are published.
    """

    name: str
    family: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    positions: int
    tied: bool
    bias: bool
    base: float
    parameters: int
    source: str

    def build(self, options: Options | None = None, layers: int | None = None) -> LanguageModel:
        """The model with torch's default initialisation; with `layers`, only so many of its layers."""
        kind = GPT2 if self.family == "gpt2" else Llama
        return kind(self, options or Options(), self.layers if layers is None else layers)


# ---------------------------------------------------------------------------------------------------------------------
# Attention, common to both families


def causal_mask(sequence: int, device: torch.device) -> Tensor:
    """(sequence, sequence) bool: True where a token must not look, at all that come after it."""
    return torch.ones(sequence, sequence, dtype=torch.bool, device=device).triu(1)


def eager_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, in_float32: bool) -> Tensor:
    """softmax(q kᵀ / √d) v, written out: every intermediate of (batch, heads, sequence, sequence) is a tensor."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32 if in_float32 else None).to(q.dtype)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ v


class Attention(nn.Module):
    """The part of attention without weights: queries, keys and values in, their mix out, (batch, sequence, hidden).

    Keys and values of fewer heads are repeated for every head, but where a fused kernel takes them as they are.
    """

    def __init__(self, options: Options, in_float32: bool) -> None:
        super().__init__()
        self.options, self.in_float32 = options, in_float32

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Mixes v (batch, kv_heads, all tokens, d) by q (batch, heads, sequence, d) and k; `mask` if it is eager."""
        run = partial(self._mix, mask=mask)
        if self.options.recompute == "selective" and self.training:
            mixed = checkpoint(run, q, k, v, use_reentrant=False)
        else:
            mixed = run(q, k, v)
        return mixed.transpose(1, 2).flatten(2)  # type: ignore[no-any-return]

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        fused, shared = self.options.attention == "fused", q.shape[1] // k.shape[1]
        dropout = self.options.dropout if self.training else 0.0
        grouped = fused and shared > 1 and q.dtype != torch.float32
        if shared > 1 and not grouped:
            k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        if not fused:
            return eager_attention(q, k, v, mask, dropout, self.in_float32)
        causal = q.shape[2] == k.shape[2] > 1
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, enable_gqa=grouped)


def extended(k: Tensor, v: Tensor, cache: Cache | None, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values behind those of the tokens before, which the cache then holds."""
    if cache is None:
        return k, v
    if layer < len(cache):
        k, v = torch.cat([cache[layer][0], k], 2), torch.cat([cache[layer][1], v], 2)
        cache[layer] = k, v
    else:
        cache.append((k, v))
    return k, v


# ---------------------------------------------------------------------------------------------------------------------
# What both families have in common


class LanguageModel(nn.Module):
    """Embedding, equal layers, a last norm, and the head: token ids in, logits out, (batch, sequence, vocabulary)."""

    def __init__(self, shape: Shape, options: Options) -> None:
        super().__init__()
        self.shape, self.options = shape, options
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList()
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def enter(self, ids: Tensor, first: int) -> tuple[Tensor, tuple[Any, ...]]:
        """What enters the first layer, and what every layer is given beside it. `first`: position of the first id."""
        raise NotImplementedError

    def leave(self, maps: Tensor) -> Tensor:
        """The last norm."""
        raise NotImplementedError

    def forward(self, ids: Tensor, labels: Tensor | None = None, cache: Cache | None = None) -> Tensor | Output:
        """Logits; with `labels`, (batch, sequence) token ids like `ids`, the loss of predicting each next one.

        `cache` holds the keys and values of the tokens before these ids; an empty list begins one, and it is extended.

        Raises:
            CourseError: more tokens than the model has positions, or several tokens behind a cache that holds some.
        """
        first = cache[0][0].shape[2] if cache else 0
        if first + ids.shape[1] > self.shape.positions:
            raise CourseError(
                f"{self.shape.name} has {self.shape.positions:,} positions, got {first + ids.shape[1]:,} tokens"
            )
        if first and ids.shape[1] > 1:
            raise CourseError("give one token at a time behind a cache that holds some")
        maps, beside = self.enter(ids, first)
        eager = self.options.attention == "eager" and ids.shape[1] > 1
        mask = causal_mask(ids.shape[1], ids.device) if eager else None
        maps = self.leave(self._through_layers(maps, (*beside, mask, cache)))
        if labels is None:
            return self.head(maps)  # type: ignore[no-any-return]
        targets = F.pad(labels[:, 1:], (0, 1), value=NOT_A_LABEL)
        if self.options.pieces:
            return Output(self._loss_in_pieces(maps, targets), None)
        logits = self.head(maps)
        return Output(self._loss(logits, targets), logits)

    def _through_layers(self, maps: Tensor, beside: tuple[Any, ...]) -> Tensor:
        group = self.options.group
        full = self.options.recompute == "full" and self.training
        for begin in range(0, len(self.layers), group if full else 1):
            if full:
                maps = checkpoint(partial(self._run, begin, begin + group), maps, *beside, use_reentrant=False)
            else:
                maps = self.layers[begin](maps, *beside)
        return maps

    def _run(self, begin: int, end: int, maps: Tensor, *beside: Any) -> Tensor:
        for layer in self.layers[begin:end]:  # one name for every map: a second would keep one alive
            maps = layer(maps, *beside)
        return maps

    def _loss(self, logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
        """Cross entropy of (…, vocabulary) and targets (…)."""
        if self.options.logits == "float32":
            logits = logits.float()
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=NOT_A_LABEL, reduction=reduction)

    def _loss_in_pieces(self, maps: Tensor, targets: Tensor) -> Tensor:
        def of_piece(maps: Tensor, targets: Tensor) -> Tensor:
            return self._loss(self.head(maps), targets, "sum")

        pieces = self.options.pieces
        found = [
            checkpoint(of_piece, *piece, use_reentrant=False)
            for piece in zip(maps.flatten(0, 1).chunk(pieces), targets.flatten().chunk(pieces), strict=True)
        ]
        return torch.stack(found).sum() / (targets.shape[0] * (targets.shape[1] - 1))


# ---------------------------------------------------------------------------------------------------------------------
# GPT-2


class GPT2Layer(nn.Module):
    """Norm, attention, norm, feed-forward, each half added to what entered it."""

    def __init__(self, shape: Shape, options: Options, index: int) -> None:
        super().__init__()
        self.heads, self.index = shape.heads, index
        self.norm1 = nn.LayerNorm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.attention = Attention(options, in_float32=False)
        self.project = nn.Linear(shape.hidden, shape.hidden)
        self.drop1 = nn.Dropout(options.dropout) if options.dropout else nn.Identity()
        self.norm2 = nn.LayerNorm(shape.hidden)
        self.up = nn.Linear(shape.hidden, shape.inner)
        self.gelu = nn.GELU(approximate="tanh")
        self.down = nn.Linear(shape.inner, shape.hidden)
        self.drop2 = nn.Dropout(options.dropout) if options.dropout else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """(batch, sequence, hidden) to the same."""
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, 2))
        k, v = extended(k, v, cache, self.index)
        x = x + self.drop1(self.project(self.attention(q, k, v, mask)))
        return x + self.drop2(self.down(self.gelu(self.up(self.norm2(x)))))  # type: ignore[no-any-return]


class GPT2(LanguageModel):
    """Radford and others, "Language models are unsupervised multitask learners" (2019)."""

    def __init__(self, shape: Shape, options: Options, layers: int) -> None:
        super().__init__(shape, options)
        self.position = nn.Embedding(shape.positions, shape.hidden)
        self.drop = nn.Dropout(options.dropout) if options.dropout else nn.Identity()
        self.layers.extend(GPT2Layer(shape, options, index) for index in range(layers))
        self.norm = nn.LayerNorm(shape.hidden)

    def enter(self, ids: Tensor, first: int) -> tuple[Tensor, tuple[Any, ...]]:
        """Token and position embeddings, added."""
        places = torch.arange(first, first + ids.shape[1], device=ids.device)
        return self.drop(self.embedding(ids) + self.position(places)), ()

    def leave(self, maps: Tensor) -> Tensor:
        """The last norm."""
        return self.norm(maps)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------------
# Llama and its relatives


class RMSNorm(nn.Module):
    """x / √(mean of x²) · weight, in float32, written out as Llama's code has it."""

    def __init__(self, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x: Tensor) -> Tensor:
        """(…, hidden) to the same."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by their positions' angles, (sequence, d): Su and others, RoFormer (2021), in Llama's order."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class LlamaLayer(nn.Module):
    """RMSNorm, grouped-query attention with rotary positions, RMSNorm, SwiGLU, each half added to what entered it."""

    def __init__(self, shape: Shape, options: Options, index: int) -> None:
        super().__init__()
        self.d, self.index = shape.hidden // shape.heads, index
        self.norm1 = RMSNorm(shape.hidden)
        self.q = nn.Linear(shape.hidden, shape.hidden, bias=shape.bias)
        self.k = nn.Linear(shape.hidden, shape.kv_heads * self.d, bias=shape.bias)
        self.v = nn.Linear(shape.hidden, shape.kv_heads * self.d, bias=shape.bias)
        self.attention = Attention(options, in_float32=True)
        self.project = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.norm2 = RMSNorm(shape.hidden)
        self.gate = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.silu = nn.SiLU()
        self.up = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """(batch, sequence, hidden) to the same."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(2, (-1, self.d)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        k, v = extended(k, v, cache, self.index)
        x = x + self.project(self.attention(q, k, v, mask))
        y = self.norm2(x)
        return x + self.down(self.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


class Llama(LanguageModel):
    """Touvron and others, "LLaMA" (2023), with grouped-query attention as from Llama 2 (2023) on."""

    def __init__(self, shape: Shape, options: Options, layers: int) -> None:
        super().__init__(shape, options)
        self.layers.extend(LlamaLayer(shape, options, index) for index in range(layers))
        self.norm = RMSNorm(shape.hidden)

    def enter(self, ids: Tensor, first: int) -> tuple[Tensor, tuple[Any, ...]]:
        """Token embeddings; beside them the cosines and sines of the positions, each (sequence, d)."""
        maps, d = self.embedding(ids), self.shape.hidden // self.shape.heads
        places = torch.arange(first, first + ids.shape[1], device=ids.device).float()
        angles = torch.outer(places, self.shape.base ** (-torch.arange(0, d, 2, device=ids.device) / d))
        angles = torch.cat((angles, angles), -1)
        return maps, (angles.cos().to(maps.dtype), angles.sin().to(maps.dtype))

    def leave(self, maps: Tensor) -> Tensor:
        """The last norm."""
        return self.norm(maps)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------------
# The published sizes


def _gpt2(name: str, hidden: int, layers: int, heads: int, parameters: int) -> Shape:
    return Shape(
        name, "gpt2", 50_257, hidden, layers, heads, heads, 4 * hidden, 1024, True, True, 0.0, parameters,
        f"huggingface.co/openai-community/{name.lower()}",
    )  # fmt: skip


def _llama(
    name: str, vocabulary: int, hidden: int, layers: int, heads: tuple[int, int], inner: int, parameters: int,
    source: str, tied: bool = False, positions: int = 131_072, base: float = 500_000.0, bias: bool = False,
) -> Shape:  # fmt: skip
    return Shape(
        name, "llama", vocabulary, hidden, layers, *heads, inner, positions, tied, bias, base, parameters,
        f"huggingface.co/{source}",
    )  # fmt: skip


SHAPES = {
    shape.name: shape
    for shape in (
        _gpt2("GPT-2", 768, 12, 12, 124_439_808),
        _gpt2("GPT-2 medium", 1024, 24, 16, 354_823_168),
        _gpt2("GPT-2 large", 1280, 36, 20, 774_030_080),
        _gpt2("GPT-2 XL", 1600, 48, 25, 1_557_611_200),
        _llama("SmolLM2-135M", 49_152, 576, 30, (9, 3), 1536, 134_515_008, "HuggingFaceTB/SmolLM2-135M",
               True, 8192, 100_000.0),
        _llama("SmolLM2-360M", 49_152, 960, 32, (15, 5), 2560, 361_821_120, "HuggingFaceTB/SmolLM2-360M",
               True, 8192, 100_000.0),
        _llama("TinyLlama-1.1B", 32_000, 2048, 22, (32, 4), 5632, 1_100_048_384,
               "TinyLlama/TinyLlama-1.1B-Chat-v1.0", False, 2048, 10_000.0),
        _llama("Llama-3.2-1B", 128_256, 2048, 16, (32, 8), 8192, 1_235_814_400, "meta-llama/Llama-3.2-1B", True),
        _llama("Qwen2.5-1.5B", 151_936, 1536, 28, (12, 2), 8960, 1_543_714_304, "Qwen/Qwen2.5-1.5B",
               True, 131_072, 1_000_000.0, True),
        _llama("SmolLM2-1.7B", 49_152, 2048, 24, (32, 32), 8192, 1_711_376_384, "HuggingFaceTB/SmolLM2-1.7B",
               True, 8192, 130_000.0),
        _llama("Llama-3.2-3B", 128_256, 3072, 28, (24, 8), 8192, 3_212_749_824, "meta-llama/Llama-3.2-3B", True),
        _llama("Llama-3-8B", 128_256, 4096, 32, (32, 8), 14_336, 8_030_261_248, "meta-llama/Meta-Llama-3-8B",
               False, 8192),
    )
}  # fmt: skip
