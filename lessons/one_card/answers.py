"""Right answers to exercise 14, written in different ways."""

import math

import numpy as np
import torch
from torch import nn


def cache_by_parts(layers, heads, kv_heads, head_size, tokens, batch):
    one = kv_heads * head_size * 2
    keys = values = one * tokens * batch
    return layers * (keys + values)


def lora_by_loop(widths, rank):
    total = 0
    for inputs, outputs in widths:
        total += inputs * rank + rank * outputs
    return 2 * total


def fixed_by_parts(base, adapters, base_bits, state_bits):
    trained = base if adapters == 0 else adapters
    weights = base * base_bits / 8 + adapters * 2
    return weights + trained * 2 + trained * 2 * state_bits / 8


def context_by_floor(card, taken, token, batch):
    left = card
    for size in taken:
        left -= size
    return math.floor(left / batch / token + 1e-9) if left > 0 else 0


def rate_by_times(weights, cache, batch, flops, bandwidth, arithmetic):
    reading, computing = weights / bandwidth, batch * flops / arithmetic
    seconds = reading if reading > computing else computing
    for _ in range(batch):
        seconds += cache / bandwidth
    return batch / seconds


class TwoLinears(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


class WithDropout(nn.Module):
    """As peft's `lora_dropout`: off when the network is used."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(nn.functional.dropout(x, 0.1, self.training)))


class TwoParameters(nn.Module):
    """The first matrix is the one at 0, and a scale as in the paper."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.zeros(layer.in_features, rank))
        self.b = nn.Parameter(torch.randn(rank, layer.out_features))

    def forward(self, x):
        return self.layer(x) + 2.0 * (x @ self.a @ self.b)


class MergedWhenRun(nn.Module):
    """The product is added to the weight each time."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / rank)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        return nn.functional.linear(x, self.layer.weight + self.b @ self.a, self.layer.bias)


RIGHT = {
    "kv_cache": [lambda n, h, kv, d, t, b: 4 * n * kv * d * t * b, cache_by_parts],
    "lora_bytes": [
        lambda widths, rank: 2 * rank * sum(a + b for a, b in widths),
        lora_by_loop,
        lambda widths, rank: int(np.array(widths).sum()) * 2 * rank,
    ],
    "fixed_bytes": [
        lambda n, a, bits, s: (n * bits + 16 * a + (16 + 2 * s) * (a or n)) // 8,
        fixed_by_parts,
    ],
    "longest_context": [lambda c, taken, t, b: max(0, (c - sum(taken)) // (t * b)), context_by_floor],
    "tokens_per_second": [
        lambda w, c, b, f, bw, p: b / (max(w / bw, b * f / p) + b * c / bw),
        rate_by_times,
        lambda w, c, b, f, bw, p: 1 / (max(w / bw / b, f / p) + c / bw),
    ],
    "adapt_layer": [TwoLinears, TwoParameters, MergedWhenRun, WithDropout],
}


class DotsInside(nn.Module):
    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return ...


UNTOUCHED = {"adapt_layer": [..., DotsInside]}


def returned_in_the_loop(widths, rank):
    total = 0
    for inputs, outputs in widths:
        total += 2 * rank * (inputs + outputs)
        return total
    return 0


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "kv_cache": [
        (lambda n, h, kv, d, t, b: 8 * n * h * d * t * b, None),
        (lambda n, h, kv, d, t, b: 4 * h * d * t * b, "without `layers`"),
        (lambda n, h, kv, d, t, b: 4 * n * kv * t * b, "without `head_size`"),
        (lambda n, h, kv, d, t, b: 32 * n * kv * d * t * b, "are bits"),
        (lambda n, h, kv, d, t, b: 2 * n * h * d * t * b, "half is missing"),
        (lambda n, h, kv, d, t, b: 3 * n * kv * d * t * b, "1.333 times too small"),
    ],
    "lora_bytes": [
        (lambda widths, rank: rank * sum(map(sum, widths)), "without the bytes of a value"),
        (returned_in_the_loop, "`return` inside it"),
        (lambda widths, rank: 2 * sum(map(sum, widths)), "without `rank`"),
        (lambda widths, rank: 2 * rank * sum(widths[-1]), "`+=`, not `=`"),
    ],
    "fixed_bytes": [
        (lambda n, a, bits, s: 8 * RIGHT["fixed_bytes"][0](n, a, bits, s), "are bits"),
        (lambda n, a, bits, s: RIGHT["fixed_bytes"][0](n, a, 16, s) if a else 8 * n, None),
        (lambda n, a, bits, s: n * bits // 8 + 2 * a + (2 + 2 * s) * (a or n), "`state_bits` as bytes"),
        (lambda n, a, bits, s: n * (bits // 8) + 2 * a + (2 + 2 * (s // 8)) * (a or n), "4 // 8 is 0"),
        (lambda n, a, bits, s: RIGHT["fixed_bytes"][0](n, a, bits, bits), "`base_bits` in place of `state_bits`"),
    ],
    "longest_context": [
        (lambda *a: RIGHT["longest_context"][0](*a) + 1, "1 too large"),
        (lambda c, taken, t, b: (c - sum(taken)) // (t * b) if c > sum(taken) else None, "`None`"),
        (lambda c, taken, t, b: int((c - sum(taken)) / (t * b)), "a number below 0"),
        (lambda c, taken, t, b: abs(c - sum(taken)) // (t * b), None),
        (lambda c, taken, t, b: max(0, (c - sum(taken)) // b), "without `token`"),
        (lambda c, taken, t, b: max(0, (c - sum(taken)) // t * b), "put them in brackets"),
    ],
    "tokens_per_second": [
        (lambda w, c, b, f, bw, p: RIGHT["tokens_per_second"][0](w, c, b, f, bw, p) / 1000, "1000 times too small"),
        (lambda w, c, b, f, bw, p: b / (min(w / bw, b * f / p) + b * c / bw), "shorter of the products' two times"),
        (lambda w, c, b, f, bw, p: min(b * bw / (w + b * c), p / f), "while the products compute"),
        (lambda w, c, b, f, bw, p: b / (max(w, b * c) / bw + b * f / p), None),
        (lambda w, c, b, f, bw, p: round(RIGHT["tokens_per_second"][0](w, c, b, f, bw, p)), "rounded to the nearest"),
        (lambda w, c, b, f, bw, p: b / max((w + c) / bw, f / p), "Each sequence has both"),
        (lambda w, c, b, f, bw, p: b / (max(w / bw, f / p) + c / bw), "Each sequence has its own"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "kv_cache": {
        "left of 2 * layers": "the values beside the keys",
        "right of 2 * layers * kv_heads * head_size * tokens * batch * 2": "the bytes of a value",
    },
    "lora_bytes": {
        "left of 2 * rank": "the bytes of a value",
        "inputs": "the inputs of a layer",
        "outputs": "the outputs of a layer",
        "left of inputs + outputs": "the matrix at the input",
        "right of inputs + outputs": "the matrix at the output",
    },
    "fixed_bytes": {
        "trained": "what is trained",
        "weights": "the weights",
        "2 * trained": "the gradients",
        "2 * state_bits / 8 * trained": "the optimizer's state",
        "left of 2 * state_bits": "one of Adam's two states",
        "2 * adapters": "the weights of the adapters",
        "base * base_bits / 8": "the weights of the base",
        "8": "the step from bits to bytes",
    },
    "longest_context": {
        "sum(taken)": "what is taken",
        "token * batch": "the cache of one token",
        "card - sum(taken)": "what is free",
    },
    "tokens_per_second": {
        "weights / bandwidth": "the reading of the weights",
        "batch * flops / arithmetic": "the products' arithmetic",
        "products": "the time of the products",
        "attention": "the time of attention",
        "batch * cache": "the caches",
    },
}
