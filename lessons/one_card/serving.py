"""Serving a language model: what weights and the key-value cache take, and how fast tokens can be expected.

Prefill reads a whole prompt at once; decode reads one token a sequence and needs the keys and values of all before it.
Both are counted as one pass over the weights with attention, and placed under the roofline of `hardware`.
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
