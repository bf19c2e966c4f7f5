"""Language models that Llama's layer alone does not make: heads of their own width, normed heads, MLA, experts.

Token ids are (batch, sequence), maps (batch, sequence, hidden). What is left out is said at each class: it changes a
result, not a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lessons.shared.language_models import Attention, Cache, LanguageModel, Options, RMSNorm, Shape, rotated


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention, DeepSeek-AI, "DeepSeek-V2" (2024): widths of what replaces keys and values.

    Attributes:
        queries: width of the queries' short vector; 0 where queries are made at once.
        kept: width of the one short vector of keys and values.
        plain: of a head's query and key, the part without a position.
        turned: the part with one, which all heads of a key share.
        values: width of a head's value.
    """

    queries: int
    kept: int
    plain: int
    turned: int
    values: int


@dataclass(frozen=True)
class Experts:
    """Feed-forward blocks of which each token goes through a few.

    Attributes:
        count: how many there are.
        chosen: how many a token goes through.
        inner: width of one.
        shared: width of a block that every token goes through; 0 for none.
        dense: layers at the start that have one plain block instead.
    """

    count: int
    chosen: int
    inner: int
    shared: int = 0
    dense: int = 0


@dataclass(frozen=True)
class Decoder:
    """A model by its numbers: a `Shape`, and what differs from Llama.

    Attributes:
        shape: as published.
        head: width of a head; 0 for hidden / heads.
        normed: whether queries and keys of each head go through a norm of their own (Qwen3).
        gelu: whether the gate is GELU (Gemma) and not SiLU.
        latent: multi-head latent attention, or None.
        experts: a mixture of experts, or None.
    """

    shape: Shape
    head: int = 0
    normed: bool = False
    gelu: bool = False
    latent: Latent | None = None
    experts: Experts | None = None

    @property
    def width(self) -> int:
        """Of a head's query and key."""
        return self.head or self.shape.hidden // self.shape.heads

    def build(self, layers: int | None = None) -> LanguageModel:
        """The model, or one with so many of its layers."""
        return DecoderModel(self, self.shape.layers if layers is None else layers)


class GroupedHeads(nn.Module):
    """Grouped-query attention whose heads may be wider or narrower than hidden / heads."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        shape, self.d = decoder.shape, decoder.width
        self.q = nn.Linear(shape.hidden, shape.heads * self.d, bias=shape.bias)
        self.k = nn.Linear(shape.hidden, shape.kv_heads * self.d, bias=shape.bias)
        self.v = nn.Linear(shape.hidden, shape.kv_heads * self.d, bias=shape.bias)
        self.norm_q: nn.Module = RMSNorm(self.d) if decoder.normed else nn.Identity()
        self.norm_k: nn.Module = RMSNorm(self.d) if decoder.normed else nn.Identity()
        self.mix = Attention(Options(), in_float32=True)
        self.project = nn.Linear(shape.heads * self.d, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(batch, sequence, hidden) to the same."""
        q, k, v = (part(x).unflatten(2, (-1, self.d)) for part in (self.q, self.k, self.v))
        q, k, v = (part.transpose(1, 2) for part in (self.norm_q(q), self.norm_k(k), v))
        q, k = rotated(q, cos, sin).to(v.dtype), rotated(k, cos, sin).to(v.dtype)
        return self.project(self.mix(q, k, v, None))  # type: ignore[no-any-return]


class LatentHeads(nn.Module):
    """Multi-head latent attention as it is trained: keys and values are made wide again for every head.

    Left out: the scale that stretches positions (YaRN).
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        assert decoder.latent is not None
        shape, self.of = decoder.shape, decoder.latent
        self.heads, wide = shape.heads, self.of.plain + self.of.turned
        if self.of.queries:
            self.q_down: nn.Module = nn.Linear(shape.hidden, self.of.queries, bias=False)
            self.q_norm: nn.Module = RMSNorm(self.of.queries)
        else:
            self.q_down, self.q_norm = nn.Identity(), nn.Identity()
        self.q = nn.Linear(self.of.queries or shape.hidden, shape.heads * wide, bias=False)
        self.kv_down = nn.Linear(shape.hidden, self.of.kept + self.of.turned, bias=False)
        self.kv_norm = RMSNorm(self.of.kept)
        self.kv = nn.Linear(self.of.kept, shape.heads * (self.of.plain + self.of.values), bias=False)
        self.mix = Attention(Options(), in_float32=True)
        self.project = nn.Linear(shape.heads * self.of.values, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(batch, sequence, hidden) to the same."""
        of = self.of
        q = self.q(self.q_norm(self.q_down(x))).unflatten(2, (self.heads, -1)).transpose(1, 2)
        q_plain, q_turned = q.split((of.plain, of.turned), -1)
        short, k_turned = self.kv_down(x).split((of.kept, of.turned), -1)
        kv = self.kv(self.kv_norm(short)).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k_plain, v = kv.split((of.plain, of.values), -1)
        k_turned = rotated(k_turned.unsqueeze(1), cos, sin).to(v.dtype).expand(-1, self.heads, -1, -1)
        q = torch.cat((q_plain, rotated(q_turned, cos, sin).to(v.dtype)), -1)
        return self.project(self.mix(q, torch.cat((k_plain, k_turned), -1), v, None))  # type: ignore[no-any-return]


class Gated(nn.Module):
    """down(act(gate(x)) · up(x)): the feed-forward block of Llama and its relatives."""

    def __init__(self, hidden: int, inner: int, gelu: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.act: nn.Module = nn.GELU(approximate="tanh") if gelu else nn.SiLU()
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, hidden) to the same."""
        return self.down(self.act(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Mixture(nn.Module):
    """A mixture of experts in which each gets the same number of tokens: the router's scores choose, its load is even.

    Even load is taken for granted here: what a router does depends on its weights, which shapes do not have. One that
    sends more tokens to one expert needs as much in all, but for that expert's temporaries.
    """

    def __init__(self, hidden: int, of: Experts) -> None:
        super().__init__()
        self.of = of
        self.router = nn.Linear(hidden, of.count, bias=False)
        self.experts = nn.ModuleList(Gated(hidden, of.inner) for _ in range(of.count))
        self.shared = Gated(hidden, of.shared) if of.shared else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) to the same; batch · sequence · chosen must be a multiple of the experts."""
        flat = x.flatten(0, 1)
        scores, which = self.router(flat).softmax(-1, dtype=torch.float32).topk(self.of.chosen, -1)
        scores = (scores / scores.sum(-1, keepdim=True)).to(x.dtype).flatten()
        order = which.flatten().argsort()
        out = torch.zeros_like(flat)
        for expert, slots in zip(self.experts, order.chunk(self.of.count), strict=True):
            tokens = slots // self.of.chosen
            out.index_add_(0, tokens, (expert(flat[tokens]) * scores[slots, None]).to(out.dtype))
        if self.shared is not None:
            out = out + self.shared(flat)
        return out.view_as(x)


class DecoderLayer(nn.Module):
    """Norm, attention, norm, feed-forward or experts, each half added to what entered it."""

    def __init__(self, decoder: Decoder, dense: bool) -> None:
        super().__init__()
        hidden = decoder.shape.hidden
        self.norm1, self.norm2 = RMSNorm(hidden), RMSNorm(hidden)
        self.attention: nn.Module = LatentHeads(decoder) if decoder.latent else GroupedHeads(decoder)
        mixed = decoder.experts is not None and not dense
        self.block: nn.Module = (
            Mixture(hidden, decoder.experts)
            if mixed and decoder.experts
            else Gated(hidden, decoder.shape.inner, decoder.gelu)
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """(batch, sequence, hidden) to the same."""
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.block(self.norm2(x))  # type: ignore[no-any-return]


class DecoderModel(LanguageModel):
    """Embedding, layers, a last norm and the head. Layers that are unlike the others come first, apart from them."""

    def __init__(self, decoder: Decoder, layers: int) -> None:
        super().__init__(decoder.shape, Options())
        self.turned = decoder.latent.turned if decoder.latent else decoder.width
        dense = decoder.experts.dense if decoder.experts else 0
        self.first = nn.ModuleList(DecoderLayer(decoder, dense=True) for _ in range(dense))
        self.layers.extend(DecoderLayer(decoder, dense=False) for _ in range(layers - dense))
        self.norm = RMSNorm(decoder.shape.hidden)

    def enter(self, ids: Tensor, first: int) -> tuple[Tensor, tuple[Any, ...]]:
        """Token embeddings; beside them the cosines and sines of the positions, each (sequence, turned)."""
        maps, d = self.embedding(ids), self.turned
        places = torch.arange(first, first + ids.shape[1], device=ids.device).float()
        angles = torch.outer(places, self.shape.base ** (-torch.arange(0, d, 2, device=ids.device) / d))
        angles = torch.cat((angles, angles), -1)
        return maps, (angles.cos().to(maps.dtype), angles.sin().to(maps.dtype))

    def leave(self, maps: Tensor) -> Tensor:
        """The last norm."""
        return self.norm(maps)  # type: ignore[no-any-return]

    def _through_layers(self, maps: Tensor, beside: tuple[Any, ...]) -> Tensor:
        for layer in self.first:
            maps = layer(maps, *beside)
        return super()._through_layers(maps, beside)
