"""The checks of exercise 14, "Fine-tuning and serving on one card": references, inputs, and the slips people make.

Keys and values of a layer are kept for every key-value head; LoRA trains r · (h + k) values beside a product of h by k
(Hu and others, 2021); a 4-bit base has a float32 scale for every block (Dettmers and others, QLoRA, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from course_utils.units import GIB
from lessons.one_card.behaviour import adapt_layer as adapt_layer
from lessons.shared.checks import BytesCheck

# -- 1. the key-value cache -------------------------------------------------------------------------------------------


def _cache(layers: int, heads: int, kv_heads: int, head_size: int, tokens: int, batch: int) -> int:
    return 2 * layers * kv_heads * head_size * tokens * batch * 2


kv_cache = BytesCheck(
    "kv_cache",
    _cache,
    cases=[
        (32, 32, 8, 128, 8192, 1),
        (22, 32, 4, 64, 2048, 16),
        (12, 12, 12, 64, 1024, 3),
        (28, 24, 8, 128, 100, 7),
    ],
    slips=[
        Slip("all heads", lambda n, h, kv, d, t, b: 4 * n * h * d * t * b,
             "You counted a key and a value for every head. With grouped queries several heads share one: `kv_heads` "
             "is how many there are."),
        Slip("one of keys and values", lambda n, h, kv, d, t, b: 2 * n * kv * d * t * b,
             "Half of it is missing. Either keys or values are left out, or each value has one byte where 16 bits are "
             "two."),
        Slip("float32", lambda n, h, kv, d, t, b: 8 * n * kv * d * t * b,
             "You counted four bytes a value. The cache here is in 16 bits."),
        Slip("one of them for every head", lambda n, h, kv, d, t, b: 2 * n * h * d * t * b,
             "Two things: keys are kept, and values too, so that half is missing; and with grouped queries only "
             "`kv_heads` of the heads have them."),
        Slip("queries too", lambda n, h, kv, d, t, b: 2 * n * (h + 2 * kv) * d * t * b,
             "You counted queries too. A query serves its own token alone and is not kept."),
        Slip("heads that share", lambda n, h, kv, d, t, b: 4 * n * (h // kv) * d * t * b,
             "`heads` / `kv_heads` is how many heads share one key and value. `kv_heads` is how many there are."),
        Slip("heads times heads", lambda n, h, kv, d, t, b: 4 * n * h * kv * d * t * b,
             "You multiplied by `heads` and by `kv_heads`. Keys and values have `kv_heads` of them, and no more."),
        Slip("one layer", lambda n, h, kv, d, t, b: 4 * kv * d * t * b,
             "That is one layer's. Each layer has keys and values of its own."),
        Slip("one sequence", lambda n, h, kv, d, t, b: 4 * n * kv * d * t,
             "That is one sequence's. Sequences share weights, and no keys and values."),
        Slip("one token", lambda n, h, kv, d, t, b: 4 * n * kv * d * b,
             "That is what one token adds. The cache holds those of all tokens so far."),
        Slip("tokens by tokens", lambda n, h, kv, d, t, b: 4 * n * kv * d * t * t * b,
             "You multiplied by the tokens twice. Scores grow like that; there is one key and one value a token."),
    ],
    takeaway="A cache grows with tokens and sequences, and shrinks with every head that shares.",
)  # fmt: skip

# -- 2. LoRA's bytes --------------------------------------------------------------------------------------------------

Widths = Sequence[Sequence[int]]


def _lora(widths: Widths, rank: int) -> int:
    return 2 * rank * sum(a + b for a, b in widths)


lora_bytes = BytesCheck(
    "lora_bytes",
    _lora,
    cases=[
        ([[4096, 4096], [4096, 1024], [4096, 14336]], 16),
        ([[2048, 256]], 8),
        ([[64, 64], [64, 32]], 1),
        ([[4096, 14336]] * 6, 512),
        ([[576, 1536], [1536, 576], [576, 192], [576, 576]], 4),
    ],
    slips=[
        Slip("the frozen product", lambda w, r: 2 * sum(a * b for a, b in w),
             "Those are the frozen weights. Trained are the two thin matrices beside each."),
        Slip("with the frozen product", lambda w, r: 2 * sum(a * b + r * (a + b) for a, b in w),
             "You counted the frozen weights too. Only what is trained is asked for."),
        Slip("one matrix", lambda w, r: 2 * r * sum(a for a, b in w),
             "You counted the first of two matrices. The second goes from `rank` to the outputs."),
        Slip("the other matrix", lambda w, r: 2 * r * sum(b for a, b in w),
             "You counted the second of two matrices. The first goes from the inputs to `rank`."),
        Slip("multiplied", lambda w, r: 2 * r * sum(a * b for a, b in w),
             "You multiplied inputs and outputs. Two matrices, inputs × rank and rank × outputs, add up."),
        Slip("float32", lambda w, r: 4 * r * sum(a + b for a, b in w),
             "Twice too much. Either each value has four bytes, and the adapters here are in 16 bits; or a gradient is "
             "counted beside it, and the matrices alone are asked for."),
        Slip("one product", lambda w, r: 2 * r * sum(w[0]),
             "That is the first product alone. Each pair in `widths` has its own adapter. If there is a loop, is its "
             "`return` inside it?"),
        Slip("the last product", lambda w, r: 2 * r * sum(w[-1]),
             "That is the last product alone. If there is a loop, add up: `+=`, not `=`."),
        Slip("gradients and moments too", lambda w, r: 8 * r * sum(a + b for a, b in w),
             "You counted a gradient and two moments for each value. The matrices themselves are asked for."),
        Slip("one product for all", lambda w, r: 2 * r * sum(a for a, _ in w) * sum(b for _, b in w),
             "You multiplied all inputs by all outputs. Each product has two thin matrices, and their values add up."),
        Slip("the rank of one", lambda w, r: 2 * sum(r * a + b for a, b in w),
             "You multiplied the inputs alone by `rank`. Both matrices have it: rank · (inputs + outputs)."),
        Slip("biases", lambda w, r: 2 * sum(r * (a + b) + r + b for a, b in w),
             "You counted biases. The thin matrices have none."),
        Slip("a middle matrix", lambda w, r: 2 * sum(r * (a + b) + r * r for a, b in w),
             "You counted a third matrix, rank × rank. There are two."),
    ],
    takeaway="Two thin matrices: rank · (inputs + outputs), while the frozen one has inputs · outputs.",
)  # fmt: skip

# -- 3. what stays whatever the batch ----------------------------------------------------------------------------------


def _fixed(base: int, adapters: int, base_bits: int, state_bits: int) -> int:
    trained = adapters or base
    return (base * base_bits + 16 * adapters + 16 * trained + 2 * state_bits * trained) // 8


fixed_bytes = BytesCheck(
    "fixed_bytes",
    _fixed,
    cases=[
        (8_030_261_248, 0, 16, 16),
        (8_030_261_248, 41_943_040, 16, 16),
        (8_030_261_248, 41_943_040, 4, 32),
        (1_100_048_384, 0, 16, 8),
        (1_000_000, 20_000, 4, 8),
    ],
    slips=[
        Slip("gradients of all", lambda n, a, bits, s: n * bits / 8 + 2 * a + 2 * (n + a if a else n)
             + 2 * s / 8 * (a or n),
             "You counted gradients of frozen weights. With adapters only these have a gradient."),
        Slip("state of all", lambda n, a, bits, s: n * bits / 8 + 2 * a + 2 * (a or n)
             + 2 * s / 8 * (n + a if a else n),
             "You counted an optimizer's state for frozen weights. With adapters only these have one."),
        Slip("frozen is trained", lambda n, a, bits, s: n * bits / 8 + 2 * a + (2 + 2 * s / 8) * (n + a if a else n),
             "You counted gradients and state of frozen weights. With adapters only these have them."),
        Slip("one moment", lambda n, a, bits, s: n * bits / 8 + 2 * a + (2 + s / 8) * (a or n),
             "AdamW keeps two values for each weight that is trained; you counted one."),
        Slip("no gradients", lambda n, a, bits, s: n * bits / 8 + 2 * a + 2 * s / 8 * (a or n),
             "The gradients are missing: two bytes for each weight that is trained."),
        Slip("adapters weigh nothing", lambda n, a, bits, s: n * bits / 8 + (2 + 2 * s / 8) * (a or n),
             "The adapters themselves are missing: they are on the card beside the base."),
        Slip("adapters as the base", lambda n, a, bits, s: (n + a) * bits / 8 + (2 + 2 * s / 8) * (a or n),
             "You counted the adapters, or their gradient, in the base's bits. Both are in 16 bits."),
        Slip("base in 16 bits", lambda n, a, bits, s: 2 * (n + a) + (2 + 2 * s / 8) * (a or n),
             "You counted the base in 16 bits throughout. `base_bits` says how many it has."),
        Slip("nothing trained", lambda n, a, bits, s: n * bits / 8 + 2 * a + (2 + 2 * s / 8) * a,
             "Without adapters (`adapters` is 0) the base itself is trained: it has gradients and a state."),
        Slip("no moments", lambda n, a, bits, s: n * bits / 8 + 2 * a + 2 * (a or n),
             "The moments are missing: AdamW keeps two for each weight that is trained."),
        Slip("no weights", lambda n, a, bits, s: (2 + 2 * s / 8) * (a or n),
             "The weights themselves are missing. They are on the card, trained or frozen."),
        Slip("frozen weighs nothing", lambda n, a, bits, s: (2 * a if a else n * bits / 8) + (2 + 2 * s / 8) * (a or n),
             "The frozen base is missing. It is not trained, but it is on the card."),
        Slip("moments in bits", lambda n, a, bits, s: n * bits / 8 + 2 * a + (2 + 2 * s) * (a or n),
             "You counted `state_bits` as bytes. A byte has 8 bits."),
        Slip("base in bits", lambda n, a, bits, s: n * bits + 2 * a + (2 + 2 * s / 8) * (a or n),
             "You counted `base_bits` as bytes. A byte has 8 bits."),
        Slip("both in bits", lambda n, a, bits, s: n * bits + 2 * a + (2 + 2 * s) * (a or n),
             "You counted `base_bits` and `state_bits` as bytes. A byte has 8 bits."),
        Slip("whole bytes", lambda n, a, bits, s: n * (bits // 8) + 2 * a + (2 + 2 * (s // 8)) * (a or n),
             "4 // 8 is 0. Multiply by the values first, or divide with `/`: a value may have half a byte."),
        Slip("gradients in float32", lambda n, a, bits, s: n * bits / 8 + 2 * a + (4 + 2 * s / 8) * (a or n),
             "You counted gradients of 32 bits. Here they have 16."),
        Slip("adapters in float32", lambda n, a, bits, s: n * bits / 8 + 4 * a + (2 + 2 * s / 8) * (a or n),
             "You counted adapters of 32 bits. Here they have 16."),
        Slip("moments in float32", lambda n, a, bits, s: n * bits / 8 + 2 * a + 10 * (a or n),
             "You counted moments of 32 bits throughout. `state_bits` says how many they have."),
        Slip("moments in 16 bits", lambda n, a, bits, s: n * bits / 8 + 2 * a + 6 * (a or n),
             "You counted moments of 16 bits throughout. `state_bits` says how many they have."),
        Slip("gradients in the moments' bits", lambda n, a, bits, s: n * bits / 8 + 2 * a + 3 * s / 8 * (a or n),
             "You counted gradients of `state_bits` bits. Those are the moments'; gradients have 16."),
        Slip("a second copy", lambda n, a, bits, s: n * bits / 8 + 2 * a + (6 + 2 * s / 8) * (a or n),
             "You counted a second copy of the weights in float32, as mixed precision keeps it. Here there is none."),
        Slip("weights alone", lambda n, a, bits, s: n * bits / 8 + 2 * a,
             "Those are the weights alone. What is trained has a gradient and two moments besides."),
    ],
    takeaway="What is frozen costs its weights, what is trained its gradient and moments too.",
)  # fmt: skip

# -- 4. the longest context -------------------------------------------------------------------------------------------


def _longest(card: int, taken: Sequence[int], token: int, batch: int) -> int:
    return max(0, (card - sum(taken)) // (token * batch))


BELOW = "Where not even the weights fit you return a number below 0. Then no token fits: return 0."

longest_context = Check(
    "longest_context",
    _longest,
    cases=[
        (24 * GIB, [GIB // 2, 16_060_522_496], 131_072, 1),
        (24 * GIB, [GIB // 2, 16_060_522_496], 131_072, 7),
        (16 * GIB, [GIB // 2, 16_060_522_496, GIB], 131_072, 4),
        (16 * GIB, [GIB, 2_200_096_768, 3 * GIB], 22_528, 12),
        (1000, [100, 300], 50, 2),
        (1000, [100, 300], 37, 3),
        (50, [20], 1000, 1),
        (30, [5], 1, 400),
    ],
    slips=[
        Slip("one sequence", lambda c, taken, t, b: max(0, (c - sum(taken)) // t),
             "You let one sequence have all the room. Each of the batch keeps its own."),
        Slip("weights for each", lambda c, taken, t, b: max(0, (c - b * sum(taken)) // (t * b)),
             "You took off what is taken once for every sequence. All share the weights."),
        Slip("the first alone", lambda c, taken, t, b: max(0, (c - taken[0]) // (t * b)),
             "You took off the first entry of `taken` alone. All of them are on the card."),
        Slip("the largest alone", lambda c, taken, t, b: max(0, (c - max(taken)) // (t * b)),
             "You took off the largest entry of `taken` alone. All of them are on the card."),
        Slip("an empty card", lambda c, taken, t, b: max(0, c // (t * b)),
             "You gave the cache the whole card. What is in `taken` is there already."),
        Slip("rounded up", lambda c, taken, t, b: max(0, math.ceil((c - sum(taken)) / (t * b))),
             "You rounded up: the last token does not fit. Round down."),
        Slip("a fraction of a token", lambda c, taken, t, b: max(0, (c - sum(taken)) / (t * b)),
             "There is no fraction of a token: round down."),
        Slip("below nothing", lambda c, taken, t, b: (c - sum(taken)) // (t * b), BELOW),
        Slip("below nothing, cut off", lambda c, taken, t, b: int((c - sum(taken)) / (t * b)), BELOW),
        Slip("rounded", lambda c, taken, t, b: max(0, round((c - sum(taken)) / (t * b))),
             "You rounded to the nearest whole number. What does not fit whole does not fit: round down."),
        Slip("one token at least", lambda c, taken, t, b: max(1, (c - sum(taken)) // (t * b)),
             "You return 1 where there is no room for a token. Return 0 there."),
        Slip("the last alone", lambda c, taken, t, b: max(0, (c - taken[-1]) // (t * b)),
             "You took off the last entry of `taken` alone. All of them are on the card."),
        Slip("divided and multiplied", lambda c, taken, t, b: max(0, (c - sum(taken)) // t * b),
             "`a // b * c` divides and then multiplies. Both `token` and `batch` divide: put them in brackets."),
        Slip("one to spare", lambda c, taken, t, b: max(0, (c - sum(taken) - 1) // (t * b)),
             "You left out a token that fits to the last byte."),
        Slip("all sequences together", lambda c, taken, t, b: b * max(0, (c - sum(taken)) // (t * b)),
             "You counted the tokens of all sequences. Those of each are asked for."),
    ],
    takeaway="Weights are shared, caches are not: twice the sequences, half the context.",
)  # fmt: skip

# -- 5. how fast it can write -----------------------------------------------------------------------------------------


def _rate(weights: float, cache: float, batch: int, flops: float, bandwidth: float, arithmetic: float) -> float:
    return batch / (max(weights / bandwidth, batch * flops / arithmetic) + batch * cache / bandwidth)


IN_TURN = "Attention reads the caches when the products are done, so its time is added."

tokens_per_second = Check(
    "tokens_per_second",
    _rate,
    cases=[
        (16e9, 134e6, 1, 15e9, 756e9, 110e12),
        (16e9, 134e6, 40, 15e9, 756e9, 110e12),
        (2.2e9, 4e6, 512, 2.1e9, 320e9, 40e12),
        (4.5e9, 1e9, 8, 15e9, 1500e9, 200e12),
        (2e9, 1e6, 1, 6e9, 3e12, 1e12),
    ],
    slips=[
        Slip("one roof for both", lambda w, c, b, f, bw, p: b / max((w + b * c) / bw, b * f / p),
             f"You let the caches be read while the products compute. {IN_TURN}"),
        Slip("weights for each", lambda w, c, b, f, bw, p: b / (max(b * w / bw, b * f / p) + b * c / bw),
             "You read the weights once for every sequence. A batch reads them once: that is what it is for."),
        Slip("one cache", lambda w, c, b, f, bw, p: b / (max(w / bw, b * f / p) + c / bw),
             "You read one cache. Every sequence has its own, and all are read."),
        Slip("no cache", lambda w, c, b, f, bw, p: b / max(w / bw, b * f / p),
             "You left out the caches: every token reads all keys and values before it."),
        Slip("of one sequence", lambda w, c, b, f, bw, p: 1 / (max(w / bw, b * f / p) + b * c / bw),
             "That is one sequence's rate. All of the batch write at once, and their tokens add up."),
        Slip("one token's arithmetic", lambda w, c, b, f, bw, p: b / (max(w / bw, f / p) + b * c / bw),
             "You counted the arithmetic of one token. Each sequence needs its own: `batch` times as much."),
        Slip("added up", lambda w, c, b, f, bw, p: b / ((w + b * c) / bw + b * f / p),
             "You added all three times. The products read and compute side by side: the longer of these two counts."),
        Slip("the longest of three", lambda w, c, b, f, bw, p: b / max(w / bw, b * f / p, b * c / bw),
             f"You took the longest of three times. {IN_TURN}"),
        Slip("the shorter", lambda w, c, b, f, bw, p: b / (min(w / bw, b * f / p) + b * c / bw),
             "You took the shorter of the products' two times. They are over when both are."),
        Slip("bandwidth alone", lambda w, c, b, f, bw, p: b * bw / (w + b * c),
             "You let bandwidth decide alone. At a large batch the products' arithmetic takes longer."),
        Slip("computed, then read", lambda w, c, b, f, bw, p: b / (b * f / p + b * c / bw),
             "You left out the reading of the weights. For a small batch it takes longer than the arithmetic."),
        Slip("arithmetic alone", lambda w, c, b, f, bw, p: p / f,
             "You let arithmetic decide alone. All weights must be read for it, every time."),
        Slip("seconds a token", lambda w, c, b, f, bw, p: (max(w / bw, b * f / p) + b * c / bw) / b,
             "Those are the seconds of one token. Tokens a second are asked for: one divided by that."),
        Slip("weights for each, no cache", lambda w, c, b, f, bw, p: b / max(b * w / bw, b * f / p),
             "Two things: a batch reads the weights once for all its sequences, and every cache is read too."),
        Slip("one cache, one token", lambda w, c, b, f, bw, p: b / (max(w / bw, f / p) + c / bw),
             "You counted one cache and the arithmetic of one token. Each sequence has its own."),
        Slip("one roof, one cache, one token", lambda w, c, b, f, bw, p: b / max((w + c) / bw, f / p),
             f"You read one cache while one token computes. Each sequence has both. {IN_TURN}"),
        Slip("seconds", lambda w, c, b, f, bw, p: max(w / bw, b * f / p) + b * c / bw,
             "Those are the seconds of one step. Tokens a second are asked for."),
    ],
    takeaway="A batch shares the reading of the weights, until its products compute for longer; caches are not shared.",
)  # fmt: skip

check = CheckCell(globals())
