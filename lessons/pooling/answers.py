"""Right answers to exercise 06, written in different ways."""

import itertools
import math

import numpy as np
import torch
from torch import nn


def keeps_as_torch(kind, batch, channels, side, kernel, stride, value_bytes):
    x = torch.empty(batch, channels, side, side, device="meta")
    if kind == "max":
        values, indices = nn.functional.max_pool2d(x, kernel, stride, return_indices=True)
        return values.numel() * value_bytes + indices.numel() * indices.element_size()
    return nn.functional.avg_pool2d(x, kernel, stride).numel() * value_bytes


def keeps_by_sliding(kind, batch, channels, side, kernel, stride, value_bytes):
    places = len(range(0, side - kernel + 1, stride))
    return batch * channels * places * places * {"max": value_bytes + 8, "average": value_bytes}[kind]


def routed_plainly(values, gradients):
    routed = [[0] * len(row) for row in values]
    for i in range(len(gradients)):
        for j in range(len(gradients[0])):
            best_r, best_c = 2 * i, 2 * j
            for r in (2 * i, 2 * i + 1):
                for c in (2 * j, 2 * j + 1):
                    if values[r][c] > values[best_r][best_c]:
                        best_r, best_c = r, c
            routed[best_r][best_c] = gradients[i][j]
    return routed


def routed_by_autograd(values, gradients):
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    nn.functional.max_pool2d(x[None, None], 2)[0, 0].backward(torch.tensor(gradients, dtype=torch.float64))
    return x.grad.tolist()


def routed_as_array(values, gradients):
    values, routed = np.array(values), np.zeros(np.shape(values))
    for (i, j), gradient in np.ndenumerate(gradients):
        window = values[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        r, c = np.unravel_index(window.argmax(), (2, 2))
        routed[2 * i + r, 2 * j + c] = gradient
    return routed


def balance_map_by_map(batch, channels, side, size, later):
    pooled = side // size
    without = sum(4 * c * side * side for c in later)
    with_pool = sum(4 * c * pooled * pooled for c in later) + (4 + 8) * channels * pooled * pooled
    return batch * (without - with_pool)


def built(places):
    layers, inputs = [], 3
    for index, width in enumerate((16, 16, 32, 32, 64, 64)):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        inputs = width
        if index in places:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


class InAClass(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 16, 16, 32, 32, 64, 64)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(widths))
        self.head = nn.Linear(64 * 4 * 4, 10)

    def forward(self, x):
        for number, conv in enumerate(self.convs):
            x = conv(x).relu()
            if number in (0, 2, 4):
                x = nn.functional.max_pool2d(x, 2)
        return self.head(x.flatten(1))


RIGHT = {
    "pool_keeps": [
        lambda kind, n, c, side, kernel, stride, v: (
            n * c * ((side - kernel) // stride + 1) ** 2 * (v + (8 if kind == "max" else 0))
        ),
        keeps_as_torch,
        keeps_by_sliding,
    ],
    "route": [routed_plainly, routed_by_autograd, routed_as_array],
    "pool_balance": [
        lambda n, c, side, size, later: (
            n * (4 * sum(later) * (side**2 - (side // size) ** 2) - 12 * c * (side // size) ** 2)
        ),
        balance_map_by_map,
        lambda n, c, side, size, later: math.fsum(
            [4.0 * n * sum(later) * side**2 * (1 - size**-2), -12 * n * c * (side / size) ** 2]
        ),
    ],
    "pooled_well": [lambda: built((0, 1, 3)), InAClass, lambda: built((1, 2, 3))],
}

UNTOUCHED = {"pooled_well": [..., lambda: ..., lambda: nn.Sequential(nn.Conv2d(3, 16, 3), ...)]}


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "pool_keeps": [
        (
            lambda kind, n, c, side, k, s, v: n * c * ((side - k) // s + 1) ** 2 * (v + 8) if kind == "max" else 0,
            "puts out a map",
        ),
        (
            lambda kind, n, c, side, k, s, v: n * c * ((side - k) // s) ** 2 * (v + 8 * (kind == "max")),
            "One place too few",
        ),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "pool_keeps": {
        "places": "the positions on a side",
        "outputs": "the outputs",
        "index_bytes": "the index",
        "8": "the index",
        "right of (side - kernel) // stride + 1": "the first position",
    },
    "pool_balance": {
        "4": "the bytes of a value",
        "8": "the index",
        "left of 4 + 8": "the value of an output",
        "pooled": "the pooled map",
        "saved": "what the later layers save",
        "added": "what the pool adds",
        "side ** 2": "the whole map",
    },
}
