"""Right answers to exercise 13, written in different ways."""

import math

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from lessons.transformers.judge import Reader


def layer_by_terms(sequence, batch, hidden, heads):
    state = sequence * batch * hidden
    scores = heads * sequence * sequence * batch
    attention = 2 * state * (2 + 3 + 1) + state + scores * (2 + 1 + 2)
    return attention + 2 * state * (2 + 4 + 4) + state


def longest_by_root(layers, batch, hidden, heads, room):
    # 5a s² + 34h s - room / (layers batch) = 0
    rest = room // (layers * batch)
    root = (math.isqrt((34 * hidden) ** 2 + 20 * heads * rest) - 34 * hidden) // (10 * heads)
    while layers * batch * root * (34 * hidden + 5 * heads * root) > room:
        root -= 1
    while layers * batch * (root + 1) * (34 * hidden + 5 * heads * (root + 1)) <= room:
        root += 1
    return root


def longest_by_walking(layers, batch, hidden, heads, room):
    sequence = 0
    while layers * batch * (sequence + 1) * (34 * hidden + 5 * heads * (sequence + 1)) <= room:
        sequence += 1
    return sequence


def logits_by_case(batch, sequence, vocabulary, upcast, out_kept):
    each = {(True, True): 14, (True, False): 12, (False, True): 8, (False, False): 6}
    return each[bool(upcast), bool(out_kept)] * batch * sequence * vocabulary


def block_by_list(layers, enters, keeps):
    peaks = [math.ceil(layers / size) * enters + size * keeps for size in range(1, layers + 1)]
    best = peaks.index(min(peaks))
    below = peaks[best - 1] - peaks[best] if best else 0
    above = peaks[best + 1] - peaks[best] if best + 1 < layers else 0
    return [best + 1, below, above]


def block_by_loop(layers, enters, keeps):
    def peak(size):
        return (layers + size - 1) // size * enters + size * keeps

    best = 1
    for size in range(2, layers + 1):
        if peak(size) < peak(best):
            best = size
    return (
        best,
        peak(best - 1) - peak(best) if best > 1 else 0,
        peak(best + 1) - peak(best) if best < layers else 0,
    )


class Chunks(Reader):
    def of_piece(self, maps, labels):
        return cross_entropy(self.head(maps), labels, reduction="sum")

    def forward(self, ids, labels):
        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        total = 0
        for piece, wanted in zip(maps.chunk(8), flat.chunk(8), strict=True):
            total = total + checkpoint(self.of_piece, piece, wanted, use_reentrant=False)
        return total / flat.numel()


class ByText(Reader):
    def forward(self, ids, labels):
        def loss(maps, wanted):
            return cross_entropy(self.head(maps), wanted, reduction="sum")

        maps = self.body(self.embedding(ids))
        parts = []
        for i in range(0, ids.shape[1], 10):
            parts.append(checkpoint(loss, maps[:, i : i + 10].flatten(0, 1), labels[:, i : i + 10].flatten(),
                                    use_reentrant=False))  # fmt: skip
        return torch.stack(parts).sum() / labels.numel()


class WeightedMeans(Reader):
    def forward(self, ids, labels):
        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        loss = 0.0
        for piece, wanted in zip(maps.split(16), flat.split(16), strict=True):
            part = checkpoint(lambda m, w: cross_entropy(self.head(m), w), piece, wanted, use_reentrant=False)
            loss = loss + part * len(wanted) / len(flat)
        return loss


RIGHT = {
    "layer_bytes": [
        lambda sequence, batch, hidden, heads: sequence * batch * (34 * hidden + 5 * heads * sequence),
        layer_by_terms,
    ],
    "crossing": [
        lambda hidden, heads: math.ceil(34 * hidden / (5 * heads)),
        lambda hidden, heads: -(-34 * hidden // (5 * heads)),
    ],
    "longest": [longest_by_root, longest_by_walking],
    "logit_bytes": [
        lambda batch, sequence, vocabulary, upcast, out_kept: (
            batch * sequence * vocabulary * ((12 if upcast else 6) + (2 if out_kept else 0))
        ),
        logits_by_case,
    ],
    "best_block": [block_by_list, block_by_loop],
    "loss_in_pieces": [Chunks, ByText, WeightedMeans],
}


class DotsInside(Reader):
    def forward(self, ids, labels):
        return ...


UNTOUCHED = {"loss_in_pieces": [..., DotsInside]}


class Shifted(Reader):
    """Against the next label, by habit."""

    def forward(self, ids, labels):
        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        total = 0
        for piece, wanted in zip(maps.split(32), flat.roll(1).split(32), strict=True):
            total = total + checkpoint(self.piece, piece, wanted, use_reentrant=False)
        return total / flat.numel()

    def piece(self, maps, labels):
        return cross_entropy(self.head(maps), labels, reduction="sum")


class ByTexts(Chunks):
    """Divided by the number of texts."""

    def forward(self, ids, labels):
        return super().forward(ids, labels) * ids.shape[1]


class LossOutside(Reader):
    """Only the head is computed again: the loss keeps what it gave."""

    def forward(self, ids, labels):
        maps, flat = self.body(self.embedding(ids)).flatten(0, 1), labels.flatten()
        total = 0
        for piece, wanted in zip(maps.split(10), flat.split(10), strict=True):
            logits = checkpoint(self.head, piece, use_reentrant=False)
            total = total + cross_entropy(logits, wanted, reduction="sum")
        return total / flat.numel()


def with_choice(choose, differ=lambda below, above: [below, above]):
    def block(layers, enters, keeps):
        def peak(size):
            return -(-layers // size) * enters + size * keeps

        best = choose(layers, enters, keeps, peak)
        below = peak(best - 1) - peak(best) if best > 1 else 0
        above = peak(best + 1) - peak(best) if best < layers else 0
        return [best, *differ(below, above)]

    return block


def lowest(layers, enters, keeps, peak):
    return min(range(1, layers + 1), key=peak)


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "layer_bytes": [
        (lambda s, b, h, a: s * (34 * h + 5 * a * s), "without `batch`"),
        (lambda s, b, h, a: s * b * h * (34 + 5 * s), "`hidden` in place of `heads`"),
        (lambda s, b, h, a: s * b * h * (34 + int(5 * a * s / h)), "Multiply by sbh first"),
        (lambda s, b, h, a: s * b * (17 * h + 2.5 * a * s), "2 times too small"),
    ],
    "crossing": [
        (lambda h, a: round(6.8 * h / a), "nearest"),
        (lambda h, a: int(6.8 * h / a), "rounded down"),
        (lambda h, a: -(-34 * (h // a) // 5), "width of a head first"),
        (lambda h, a: -(-68 * h // (5 * a)), "with twice the 34"),
    ],
    "longest": [
        (lambda n, b, h, a, room: max(1, longest_by_root(n, b, h, a, room)), "Return 0 there"),
        (lambda n, b, h, a, room: longest_by_root(n, b, h, a, room) or -1, None),
        (lambda n, b, h, a, room: longest_by_root(n, b, h, a, room) or None, None),
        (lambda n, b, h, a, room: longest_by_root(1, 1, h, a, room), "without the term of `layers` and `batch`"),
        (lambda n, b, h, a, room: longest_by_root(n, b, h, a, room) * b, "tokens of all texts"),
    ],
    "logit_bytes": [
        (lambda b, s, v, up, out: 14 * b * s * v, "ordinary loop's"),
        (lambda b, s, v, up, out: b * s * v * (8 if out else 6), "the three have 4 bytes each"),
        (lambda b, s, v, up, out: 12 * b * s * v, "`upcast` always True"),
        (lambda b, s, v, up, out: 6 * b * s * v, "`upcast` always False"),
        (lambda b, s, v, up, out: s * v * ((12 if up else 6) + 2 * out), "without `batch`"),
    ],
    "best_block": [
        (with_choice(lambda n, e, k, peak: math.isqrt(n)), "You took √n"),
        (with_choice(lambda n, e, k, peak: math.ceil(math.sqrt(n))), "You took √n"),
        (with_choice(lambda n, e, k, peak: min(n, max(1, int(math.sqrt(n * e / k))))), "if blocks came in fractions"),
        (with_choice(lowest, lambda below, above: [-below, -above]), "the wrong sign"),
        (with_choice(lowest, lambda below, above: []), None),
        (lambda n, e, k: block_by_list(n, e, k)[0], "with the best size as the answer"),
        (lambda n, e, k: block_by_list(n, k, e), "exchanged"),
    ],
    "loss_in_pieces": [
        (Shifted, "The loss is nearly right"),
        (ByTexts, "divided by less than the number of tokens"),
        (LossOutside, "the head and the loss of each piece inside `checkpoint`"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "layer_bytes": {
        "34": "the 34",
        "5": "the 5",
        "34 * hidden": "the term with 34",
        "5 * heads * sequence": "the term of the scores",
    },
    "crossing": {
        "34": "the 34",
        "5": "the 5",
    },
    "longest": {
        "34": "the 34",
        "5": "the 5",
        "34 * hidden": "the term with 34",
        "5 * heads * sequence": "the term of the scores",
        "right of sequence * (34 * hidden + 5 * heads * sequence)": "all but one factor",
    },
    "logit_bytes": {
        "4 if upcast else 2": "the bytes of a value",
        "left of 3 * (4 if upcast else 2)": "the three tensors",
        "3": "the number of tensors",
        "each": "the bytes of a logit",
    },
    "best_block": {
        "-(-layers // size)": "the number of blocks",
        "-(-layers // size) * enters": "what enters the blocks",
        "size * keeps": "what a block keeps",
        "size": "the size of a block",
        "peak(best)": "the peak at the best size",
        "peak(best - 1)": "the peak one size below",
        "peak(best + 1)": "the peak one size above",
        "best": "the best size",
    },
}
