"""Right answers to exercise 04, written in different ways."""

import math

import numpy as np
import torch
from torch import nn


def by_sliding(side, kernel, stride, padding):
    positions, left = 0, -padding
    while left + kernel <= side + padding:
        positions, left = positions + 1, left + stride
    return positions


def by_convolving(side, kernel, stride, padding):
    line = torch.empty(1, 1, side, device="meta")
    return nn.Conv1d(1, 1, kernel, stride, padding, device="meta")(line).shape[-1]


def saved_in_a_loop(batch, maps, first, stride):
    saved = 0
    for index, (channels, side) in enumerate(maps):
        if index >= first:
            smaller = (side + 2 - 3) // stride + 1
            saved += 4 * batch * channels * (side * side - smaller * smaller)
    return saved


def saved_as_array(batch, maps, first, stride):
    channels, sides = np.array(maps[first:]).T
    return (4.0 * batch * channels * (sides**2 - np.ceil(sides / stride) ** 2)).sum()


def smaller_in_a_loop(fixed_bytes, maps_bytes, first, stride):
    before = after = fixed_bytes
    for index, size in enumerate(maps_bytes):
        before += size
        after += size / stride / stride if index >= first else size
    return before / after


def plain():
    layers, inputs = [], 3
    for width, stride in ((16, 1), (16, 2), (32, 1), (32, 2), (64, 2)):
        layers += [nn.Conv2d(inputs, width, 3, stride, padding=1), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


class EarlyStrides(nn.Module):
    """The stride at the first convolution of each group, in a class."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, s, 1) for a, b, s in ((3, 16, 2), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2))
        )
        self.head = nn.Linear(64 * 4 * 4, 10)

    def forward(self, x):
        for conv in self.convs:
            x = conv(x).relu()
        return self.head(x.flatten(1))


def by_editing():
    """Changes the network it was given, in odd places."""
    from lessons.shared.originals import pooled

    network = pooled()
    for conv, pool in ((2, 4), (7, 9), (10, 12)):
        network[conv].stride = (2, 2)
        network[pool] = nn.Identity()
    return network


RIGHT = {
    "output_side": [
        lambda side, kernel, stride, padding: (side + 2 * padding - kernel) // stride + 1,
        lambda side, kernel, stride, padding: math.floor((side + 2 * padding - kernel) / stride + 1),
        lambda side, kernel, stride, padding: (side + 2 * padding - kernel + stride) // stride,
        by_sliding,
        by_convolving,
    ],
    "bytes_saved": [
        lambda batch, maps, first, stride: sum(
            4 * batch * c * (side**2 - math.ceil(side / stride) ** 2) for c, side in maps[first:]
        ),
        saved_in_a_loop,
        saved_as_array,
    ],
    "times_smaller": [
        lambda fixed_bytes, maps_bytes, first, stride: (
            (fixed_bytes + sum(maps_bytes))
            / (fixed_bytes + sum(maps_bytes[:first]) + sum(maps_bytes[first:]) / stride**2)
        ),
        smaller_in_a_loop,
        lambda fixed, maps, first, stride: (
            np.sum([fixed, *maps]) / (fixed + np.where(np.arange(len(maps)) < first, 1, stride**-2.0) @ np.array(maps))
        ),
    ],
    "strided": [plain, EarlyStrides, by_editing],
}

UNTOUCHED = {
    "strided": [..., lambda: ..., lambda: nn.Sequential(nn.Conv2d(3, 16, 3), ...), lambda: nn.Conv2d(3, 16, 3, ...)],
}


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "output_side": [
        (lambda side, kernel, stride, padding: (side + 2 * padding) // stride + 1, "own width is missing"),
        (lambda side, kernel, stride, padding: round((side + 2 * padding - kernel) / stride) + 1, "to the nearest"),
        (lambda *a: RIGHT["output_side"][0](*a) + 1, "with the first position counted twice"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "output_side": {
        "way": "the way of the kernel",
        "right of way // stride + 1": "the first position",
    },
    "bytes_saved": {
        "4": "the bytes of a value",
        "shrunk": "the new side",
        "shrunk ** 2": "the new map",
        "side ** 2": "the old map",
        "saved": "what is saved",
    },
    "times_smaller": {
        "before": "the bytes before",
        "downstream": "the maps downstream",
        "sum(maps_bytes)": "the maps",
        "sum(maps_bytes[:first])": "the maps upstream",
        "sum(maps_bytes[first:])": "the maps downstream",
    },
}
