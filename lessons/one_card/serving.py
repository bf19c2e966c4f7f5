"""Serving a language model: what weights and the key-value cache take, and how fast tokens can be expected.

Prefill reads a whole prompt at once; decode reads one token a sequence and needs the keys and values of all before it.
Either is a pass of two parts, the products with the weights and attention. Their kernels run in turn, so each part is
placed under the roofline of `hardware` by itself, and their times add up.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_utils.machine.hardware import Device, roofline_seconds
from lessons.shared.language_models import Shape


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


def matrix_values(shape: Shape) -> int:
    """Values of the weights that a token is multiplied with: all but the embedding, of which it takes one row.

    A tied embedding is multiplied with as the head.
    """
    return shape.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)


@dataclass(frozen=True)
class Part:
    """Kernels that are alike: their arithmetic, and what they read and write.

    Attributes:
        flops: a multiply-add counts as two.
        traffic: bytes of weights or cache; maps stay in the chip's caches or are small beside them.
    """

    flops: float
    traffic: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.traffic

    def seconds(self, device: Device, precision: str = "float16") -> float:
        """As the roofline expects: the longer of arithmetic and reading."""
        return roofline_seconds(self.flops, self.traffic, device, precision)


@dataclass(frozen=True)
class Pass:
    """One pass through the model: its two parts, and the tokens that it reads."""

    products: Part
    attention: Part
    tokens: int

    @property
    def flops(self) -> float:
        """Operations of both parts."""
        return self.products.flops + self.attention.flops

    @property
    def traffic(self) -> float:
        """Bytes of both parts."""
        return self.products.traffic + self.attention.traffic

    @property
    def intensity(self) -> float:
        """Operations a byte, of the whole pass."""
        return self.flops / self.traffic

    def seconds(self, device: Device, precision: str = "float16") -> float:
        """Both parts, one after the other, at the rates that `device` is expected to reach; launches come on top."""
        return self.products.seconds(device, precision) + self.attention.seconds(device, precision)

    def tokens_per_second(self, device: Device, precision: str = "float16") -> float:
        """As expected; at most, where the device's rates are those on paper."""
        return self.tokens / self.seconds(device, precision)


def _attention_flops(shape: Shape, queries: int, keys: float) -> float:
    """Of all layers and one sequence: two products of queries × keys × hidden."""
    return 2 * 2 * shape.layers * queries * keys * shape.hidden


def prefill(shape: Shape, prompt: int, batch: int = 1, value_bytes: float = 2) -> Pass:
    """A prompt of so many tokens read at once: weights are read once, and so is the cache that they give.

    The head runs for every token, as `forward` does; a server runs it for the last alone. A token looks at half of the
    prompt on average.
    """
    values = matrix_values(shape)
    return Pass(
        Part(2 * values * batch * prompt, value_bytes * values),
        Part(batch * _attention_flops(shape, prompt, prompt / 2), cache_bytes(shape, prompt, batch, value_bytes)),
        batch * prompt,
    )


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
    values = matrix_values(shape)
    of_weights = value_bytes if weight_bits is None else weight_bits / 8
    return Pass(
        Part(2 * values * batch, of_weights * values),
        Part(batch * _attention_flops(shape, 1, context), cache_bytes(shape, context, batch, value_bytes)),
        batch,
    )
