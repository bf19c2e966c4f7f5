"""Serving a language model: what weights and the key-value cache take, and how fast tokens can be expected.

Prefill reads a whole prompt at once; decode reads one token a sequence and needs the keys and values of all before it.
Both are counted as one pass over the weights with attention, and placed under the roofline of `hardware`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from course_utils.machine.hardware import Device, roofline_seconds
from course_utils.techniques.capacity import spare_bytes
from course_utils.units import CourseError
from lessons.shared.language_models import Cache, LanguageModel, Shape

VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def cache_bytes(shape: Shape, tokens: int, batch: int = 1, value_bytes: float = 2, kv_heads: int | None = None) -> int:
    """Bytes of keys and values: 2 · layers · kv_heads · (hidden / heads) · tokens · batch · bytes of a value.

    Args:
        shape: the model.
        tokens: of each sequence so far, the prompt's and those that were made.
        batch: sequences served at once.
        value_bytes: of one value.
        kv_heads: in place of the model's own, such as `shape.heads` for a model without grouped queries.
    """
    kept = (shape.kv_heads if kv_heads is None else kv_heads) * (shape.hidden // shape.heads)
    return int(2 * shape.layers * kept * tokens * batch * value_bytes)


def weight_bytes(shape: Shape, value_bytes: float = 2) -> int:
    """Bytes of all weights."""
    return int(shape.parameters * value_bytes)


def matrix_values(shape: Shape) -> int:
    """Values of the weights that a token is multiplied with: all but the embedding, of which it takes one row.

    A tied embedding is multiplied with as the head.
    """
    return shape.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)


def largest_context(shape: Shape, card: Device | float, batch: int = 1, value_bytes: float = 2) -> int:
    """The most tokens a sequence may have so that weights, cache and context fit a card; 0 if not even one fits.

    A bound: the maps of one token are small, those of a prompt read at once are not counted.

    Args:
        shape: the model.
        card: a device, or bytes.
        batch: sequences served at once.
        value_bytes: of weights and cache.
    """
    room = spare_bytes(card, weight_bytes(shape, value_bytes))
    return max(0, room // cache_bytes(shape, 1, batch, value_bytes))


@dataclass(frozen=True)
class Pass:
    """One pass over the weights: its arithmetic, what it reads and writes, and the tokens that come of it.

    Attributes:
        flops: a multiply-add counts as two.
        traffic: bytes of weights and cache; maps stay in the chip's caches or are small beside them.
        tokens: that are read by it.
    """

    flops: float
    traffic: float
    tokens: int

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.traffic

    def seconds(self, device: Device, precision: str = "float16") -> float:
        """As the roofline expects, at the rates that `device` is expected to reach; launches come on top."""
        return roofline_seconds(self.flops, self.traffic, device, precision)

    def tokens_per_second(self, device: Device, precision: str = "float16") -> float:
        """As the roofline expects; at most, where the device's rates are those on paper."""
        return self.tokens / self.seconds(device, precision)


def _attention_flops(shape: Shape, queries: int, keys: float) -> float:
    """Of all layers and one sequence: two products of queries × keys × hidden."""
    return 2 * 2 * shape.layers * queries * keys * shape.hidden


def prefill(shape: Shape, prompt: int, batch: int = 1, value_bytes: float = 2) -> Pass:
    """A prompt of so many tokens read at once: weights are read once, the cache is written.

    The head runs for every token, as `forward` does; a server runs it for the last alone. A token looks at half of the
    prompt on average.
    """
    flops = batch * (2 * matrix_values(shape) * prompt + _attention_flops(shape, prompt, prompt / 2))
    traffic = value_bytes * matrix_values(shape) + cache_bytes(shape, prompt, batch, value_bytes)
    return Pass(flops, traffic, batch * prompt)


def decode(
    shape: Shape, context: int, batch: int = 1, value_bytes: float = 2, weight_bits: float | None = None
) -> Pass:
    """One token more for each of `batch` sequences of `context` tokens: all weights and the whole cache are read.

    Args:
        shape: the model.
        context: tokens in the cache.
        batch: sequences, which share the reading of the weights and nothing else.
        value_bytes: of weights and cache.
        weight_bits: of a weight, where weights are kept in fewer bits than the cache; arithmetic stays the same.
    """
    flops = batch * (2 * matrix_values(shape) + _attention_flops(shape, 1, context))
    of_weights = value_bytes if weight_bits is None else weight_bits / 8
    traffic = of_weights * matrix_values(shape) + cache_bytes(shape, context, batch, value_bytes)
    return Pass(flops, traffic, batch)


@dataclass(frozen=True)
class Generated:
    """What a model wrote, and how long it took.

    Attributes:
        ids: (batch, prompt + tokens), the prompt first.
        first_seconds: until the first new token was there: the prefill.
        seconds_a_token: of the new ones after the first, the median.
        cache_bytes: of keys and values at the end; 0 without a cache.
    """

    ids: Tensor
    first_seconds: float
    seconds_a_token: float
    cache_bytes: int

    @property
    def tokens_per_second(self) -> float:
        """Of all sequences together, after the first token."""
        return len(self.ids) / self.seconds_a_token


@torch.no_grad()
def generate(model: LanguageModel, prompt: Tensor, tokens: int, cached: bool = True) -> Generated:
    """Write so many tokens after a prompt, always the likeliest, and time each of them.

    Args:
        model: in evaluation mode, on the CPU.
        prompt: (batch, sequence) token ids.
        tokens: to be written, 2 or more.
        cached: whether keys and values are kept; else every token reads the whole sequence again.

    Raises:
        CourseError: fewer than two tokens.
    """
    if tokens < 2:
        raise CourseError(f"tokens must be 2 or more, got {tokens!r}: the first is the prompt's")
    ids, took = prompt, []
    kept: Cache = []
    cache = kept if cached else None
    for number in range(tokens):
        began = time.perf_counter()
        logits = model(ids[:, -1:] if cached and number else ids, cache=cache)
        ids = torch.cat((ids, logits[:, -1].argmax(-1, keepdim=True)), 1)
        took.append(time.perf_counter() - began)
    held = sum(part.numel() * part.element_size() for pair in kept for part in pair)
    return Generated(ids, took[0], sorted(took[1:])[(tokens - 1) // 2], held)
