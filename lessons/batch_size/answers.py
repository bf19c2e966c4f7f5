"""Right answers to exercise 07, written in different ways."""

import math
from fractions import Fraction

import numpy as np
import torch
from torch.nn import functional as F


def line_by_array(batch, measured):
    (n, low), (m, high) = np.array(sorted(measured, reverse=True)[:2], dtype=float)
    return np.interp(
        batch, [0, 10_000], [low - (high - low) / (m - n) * n, low + (high - low) / (m - n) * (10_000 - n)]
    )


def line_by_system(batch, measured):
    pairs = sorted(measured)[-2:]
    ones = np.array([[1.0, n] for n, _ in pairs])
    fixed, slope = np.linalg.solve(ones, np.array([float(size) for _, size in pairs]))
    return fixed + slope * batch


def line_in_words(batch, measured):
    by_batch = dict(measured)
    large = max(by_batch)
    next_large = max(n for n in by_batch if n != large)
    per_sample = Fraction(by_batch[large] - by_batch[next_large], large - next_large)
    return float(by_batch[large] + per_sample * (batch - large))


def micro_by_counting(wanted, fixed_bytes, accumulated_bytes, bytes_per_sample, limit):
    for micro in range(wanted, 0, -1):
        extra = accumulated_bytes if micro < wanted else 0
        if wanted % micro == 0 and fixed_bytes + extra + bytes_per_sample * micro <= limit:
            return micro
    return 0


def micro_by_steps(wanted, fixed, accumulated, per_sample, limit):
    steps = 1
    while steps <= wanted:
        if wanted % steps == 0:
            need = fixed + per_sample * wanted / steps + (accumulated if steps > 1 else 0)
            if need <= limit:
                return wanted / steps
        steps += 1
    return 0


def saturated_by_loop(times, tolerance):
    rates = {batch: batch / seconds for batch, seconds in times.items()}
    for batch in sorted(rates):
        if max(rates.values()) / rates[batch] <= 1 + tolerance:
            return batch
    return None


def saturated_by_array(times, tolerance):
    batch = np.array(sorted(times))
    each = np.array([times[n] for n in batch]) / batch
    return batch[each <= (1 + tolerance) * each.min()][0]


def plain(model, optimizer, images, labels, micro):
    optimizer.zero_grad()
    for start in range(0, len(images), micro):
        x, y = images[start : start + micro], labels[start : start + micro]
        loss = F.cross_entropy(model(x), y) * len(x) / len(images)
        loss.backward()
    optimizer.step()


def summed(model, optimizer, images, labels, micro):
    optimizer.zero_grad(set_to_none=True)
    for x, y in zip(images.split(micro), labels.split(micro), strict=True):
        F.cross_entropy(model(x), y, reduction="sum").div(len(images)).backward()
    optimizer.step()


def gradients_by_hand(model, optimizer, images, labels, micro):
    parameters = list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for x, y in zip(torch.split(images, micro), torch.split(labels, micro), strict=True):
        loss = F.cross_entropy(model(x), y)
        for mine, new in zip(total, torch.autograd.grad(loss, parameters), strict=True):
            mine += new * (len(x) / len(images))
    for parameter, gradient in zip(parameters, total, strict=True):
        parameter.grad = gradient
    optimizer.step()
    return loss.item()


def divided_at_the_end(model, optimizer, images, labels, micro):
    model.zero_grad()
    losses = []
    for i in range(math.ceil(len(images) / micro)):
        part = slice(i * micro, (i + 1) * micro)
        loss = F.nll_loss(model(images[part]).log_softmax(1), labels[part], reduction="sum")
        loss.backward()
        losses.append(loss.item())
    for parameter in model.parameters():
        parameter.grad /= len(images)
    optimizer.step()
    return sum(losses) / len(images)


RIGHT = {
    "bytes_at": [line_in_words, line_by_array, line_by_system],
    "saved_by_halving": [
        lambda fixed, per_sample, batch: (per_sample * batch / 2) / (fixed + per_sample * batch),
        lambda f, s, n: 1 - (f + s * n / 2) / (f + s * n),
        lambda f, s, n: np.float64(0.5) / (1 + f / (s * n)),
    ],
    "micro_batch": [micro_by_counting, micro_by_steps],
    "loss_weights": [
        lambda sizes: [size / sum(sizes) for size in sizes],
        lambda sizes: np.array(sizes) / np.sum(sizes),
        lambda sizes: tuple(torch.tensor(sizes, dtype=torch.float64) / sum(sizes)),
        lambda sizes: torch.tensor(sizes) / sum(sizes),  # in float32
    ],
    "saturated_from": [
        lambda times, tolerance: min(
            n for n in times if times[n] / n <= (1 + tolerance) * min(t / m for m, t in times.items())
        ),
        saturated_by_loop,
        saturated_by_array,
    ],
    "accumulate": [plain, summed, gradients_by_hand, divided_at_the_end],
}


def dots(model, optimizer, images, labels, micro):
    return ...


def dots_within(model, optimizer, images, labels, micro):
    optimizer.zero_grad()
    (F.cross_entropy(model(images), labels) * ...).backward()


UNTOUCHED = {"accumulate": [..., dots, dots_within]}


def falls_off_the_loop(wanted, fixed, accumulated, per_sample, limit):  # noqa: RET503 - this is the mistake
    for parts in range(1, wanted + 1):
        extra = accumulated if parts > 1 else 0
        if wanted % parts == 0 and fixed + extra + per_sample * wanted // parts <= limit:
            return wanted // parts


def by_throughput(times, tolerance):
    rates = {batch: batch / seconds for batch, seconds in times.items()}
    return min(batch for batch in rates if rates[batch] >= (1 - tolerance) * max(rates.values()))


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "micro_batch": [
        (falls_off_the_loop, "Here it ends without a `return`"),
        (lambda *a: RIGHT["micro_batch"][0](*a) + 1, "1 too large"),
    ],
    "loss_weights": [
        (lambda sizes: [size * len(sizes) / sum(sizes) for size in sizes], "mean size"),
        (lambda sizes: [size / len(sizes) for size in sizes], "how many *samples*"),
        (lambda sizes: [sum(sizes) / size for size in sizes], "Upside down"),
        (lambda sizes: torch.tensor(sizes) / max(sizes), "You compared with the largest micro-batch"),
        (lambda sizes: [100 * size / sum(sizes) for size in sizes], "100 times too large"),
    ],
    "saturated_from": [(by_throughput, "off the throughput")],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "bytes_at": {
        "per_sample": "the bytes of a sample",
        "most_bytes": "the bytes at the larger batch",
        "its_bytes": "the bytes at the smaller batch",
        "larger": "the larger batch",
        "smaller": "the smaller batch",
        "batch - larger": "the distance to `batch`",
        "sorted(measured)[-2:]": "the two largest batches",
        "sorted(measured)": "the measurements",
    },
    "saved_by_halving": {
        "whole": "the memory of the whole batch",
        "half": "the memory of half the batch",
        "left of 1 - half / whole": "the step from what is left to what is saved",
    },
    "micro_batch": {
        "size": "the size of a part",
        "parts": "the number of parts",
        "left_over": "what is left over",
        "left_over == 0": "equal parts",
        "needed": "the bytes needed",
        "needed <= limit": "the limit",
    },
    "loss_weights": {
        "size": "the size of a micro-batch",
        "samples": "the number of samples",
        "sum(sizes)": "the number of samples",
    },
    "saturated_from": {
        "seconds": "the seconds",
        "seconds / batch": "the time of a sample",
        "each": "the times of a sample",
        "enough": "the limit",
        "each[batch]": "the time of a sample",
        "min(each.values())": "the best time of a sample",
        "each.values()": "the times of a sample",
    },
}
