"""Right answers to exercise 11, written in different ways."""

from fractions import Fraction

import torch


def bytes_step_by_step(parameters, cards):
    sent = Fraction(0)
    for _half in range(2):
        for _step in range(cards - 1):
            sent += Fraction(4 * parameters, cards)
    return float(sent)


def seconds_by_queue(buckets, backward_seconds, update_seconds, cards, bytes_per_s):
    ends = [0]
    for ready, size in buckets:
        ends.append(max(ready, ends[-1]) + size * 2 * (cards - 1) / (cards * bytes_per_s))
    return max([backward_seconds, *ends]) + update_seconds


def seconds_backwards(buckets, backward_seconds, update_seconds, cards, bytes_per_s):
    # Whoever comes last has waited behind an unbroken row that began with some bucket.
    takes = [(2 - 2 / cards) * size / bytes_per_s for _, size in buckets]
    rows = [ready + sum(takes[i:]) for i, (ready, _) in enumerate(buckets)]
    return update_seconds + max(backward_seconds, *rows)


def split_by_bytes(layers, batch, cards):
    chosen = []
    for weights, inputs in layers:
        data, units = Fraction(2 * (cards - 1), cards) * weights, 2 * (cards - 1) * batch * inputs
        chosen.append("data" if data <= units else "units")
    return chosen


def bytes_by_stage(parameters, cards, stage):
    kept = {0: 16, 1: 4 + 12 / cards, 2: 2 + 14 / cards, 3: 16 / cards}[stage]
    return parameters * kept


def factors_one_by_one(sizes, reduction):
    average = sum(sizes) / len(sizes)
    factors = []
    for size in sizes:
        factors.append(size / average if reduction == "mean" else 1 / average)
    return tuple(factors)


def ring(rank, cards, values, send, receive):
    chunks = [chunk.clone() for chunk in values.tensor_split(cards)]
    right, left = (rank + 1) % cards, (rank - 1) % cards
    for step in range(cards - 1):
        send(right, chunks[(rank - step) % cards])
        chunks[(rank - step - 1) % cards] += receive(left)
    for step in range(cards - 1):
        send(right, chunks[(rank + 1 - step) % cards])
        chunks[(rank - step) % cards] = receive(left)
    return torch.cat(chunks) / cards


def direct(rank, cards, values, send, receive):
    """No ring: each card adds up its own chunk from all, and sends it to all. As few bytes."""
    chunks = list(values.tensor_split(cards))
    others = [card for card in range(cards) if card != rank]
    for card in others:
        send(card, chunks[card])
    mean = chunks[rank].clone()
    for card in others:
        mean += receive(card)
    mean /= cards
    for card in others:
        send(card, mean)
    return torch.cat([mean if card == rank else receive(card) for card in range(cards)])


def left_ring(rank, cards, values, send, receive):
    """Round the other way, divided first, in padded chunks of one size."""
    size = -(-len(values) // cards)
    table = torch.zeros(cards, size, dtype=values.dtype)
    table.view(-1)[: len(values)] = values / cards
    for step in range(cards - 1):
        send((rank - 1) % cards, table[(rank + step) % cards])
        table[(rank + step + 1) % cards] += receive((rank + 1) % cards)
    for step in range(cards - 1):
        send((rank - 1) % cards, table[(rank - 1 + step) % cards])
        table[(rank + step) % cards] = receive((rank + 1) % cards)
    return table.view(-1)[: len(values)]


RIGHT = {
    "ring_bytes": [
        lambda n, p: 2 * (p - 1) / p * 4 * n,
        bytes_step_by_step,
    ],
    "step_seconds": [seconds_by_queue, seconds_backwards],
    "cheaper_split": [
        lambda layers, b, p: ["units" if p * b * n < w else "data" for w, n in layers],
        split_by_bytes,
    ],
    "card_bytes": [
        bytes_by_stage,
        lambda n, p, stage: n * (16 - (1 - 1 / p) * (0, 12, 14, 16)[stage]),
    ],
    "shard_factors": [
        factors_one_by_one,
        lambda sizes, how: (
            torch.tensor(sizes if how == "mean" else [1] * len(sizes)).double() * len(sizes) / sum(sizes)
        ),
    ],
    "ring_average": [ring, direct, left_ring],
}


def dots_within(rank, cards, values, send, receive):
    send((rank + 1) % cards, values / ...)


UNTOUCHED = {"ring_average": [..., lambda *_: ..., dots_within]}


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "step_seconds": [
        (lambda buckets, _, update, cards, rate: RIGHT["step_seconds"][0](buckets, 0, update, cards, rate), "backward"),
    ],
    "shard_factors": [
        (lambda sizes, way: RIGHT["shard_factors"][0](sizes, "sum" if way == "mean" else "mean"), "exchanged"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "ring_bytes": {
        "4": "the bytes of a value",
        "cards - 1": "the chunks that are sent",
        "2 * (cards - 1)": "the messages",
        "2 * (cards - 1) / cards": "the share that is sent",
    },
    "step_seconds": {
        "free": "the time at which the link is free",
        "ready": "the time at which a bucket is ready",
        "size": "the bytes of a bucket",
        "cards - 1": "the chunks that are sent",
    },
    "cheaper_split": {
        "by_data": "what data parallel sends",
        "by_units": "what a split by units sends",
        "weights": "the weights",
        "inputs": "the inputs",
        "cards - 1": "the other cards",
    },
    "card_bytes": {
        "state": "the optimizer's state",
        "gradient": "the gradients",
        "weight": "the weights",
    },
    "shard_factors": {
        "size": "the samples of a card",
        "samples": "the number of samples",
        "sum(sizes)": "the number of samples",
        "len(sizes)": "the number of cards",
        "cards": "the number of cards",
    },
}
