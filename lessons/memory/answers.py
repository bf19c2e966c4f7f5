"""Right answers to exercise 03, written in different ways."""

import functools
import math

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from lessons.shared.rewrites import Watched


class Plain(Watched):
    def forward(self, images):
        x = images
        for layer in self.layers:
            x = layer(x)
        return x


class AtOnce(Watched):
    def forward(self, images):
        return self.layers(images)


class KeepsMeans(Watched):
    def forward(self, images):
        self.means, x = [], images
        for layer in self.layers:
            x = layer(x)
            self.means.append(x.mean().item())
            self.means.append(float(x.detach().std()))
        return x


class KeepsLast(Watched):
    def forward(self, images):
        for layer in self.layers:
            images = layer(images)
            self.maps = [images]
        return images


class InPlaceToo(AtOnce):
    def __init__(self):
        super().__init__()
        for layer in self.layers:
            if isinstance(layer, torch.nn.ReLU):
                layer.inplace = True


class Recomputes(Watched):
    def forward(self, images):
        x = checkpoint(self.layers[:9], images, use_reentrant=False)
        return self.layers[9:](x)


def largest_by_counting(events, limit):
    batch = 0
    while all(fixed + per_sample * (batch + 1) <= limit for fixed, per_sample in events):
        batch += 1
    return batch


def largest_by_halving(events, limit):
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if max(f + s * middle for f, s in events) <= limit else (low, middle)
    return low


def largest_as_array(events, limit):
    fixed, per_sample = np.array(events).T
    growing = per_sample > 0
    return max(0, np.where(fixed > limit, -1, np.min((limit - fixed[growing]) // per_sample[growing])).min())


def training_by_cases(parameters, optimizer="sgd"):
    if optimizer == "adam":
        return parameters * 16.0
    if optimizer == "momentum":
        return parameters * 12.0
    return parameters * 8.0


RIGHT = {
    "map_bytes": [
        lambda batch, channels, height, width, value_bytes=4: batch * channels * height * width * value_bytes,
        lambda *sizes: math.prod(sizes) * (4 if len(sizes) == 4 else 1),
        lambda n, c, h, w, v=4: np.prod([n, c, h, w, v]),
        lambda n, c, h, w, v=4: torch.tensor([n, c, h, w, v]).prod(),
        lambda n, c, h, w, v=4: n * c * h * w * v / 2**20 * 2**20,
        lambda n, c, h, w, v=4: torch.empty(n, c, h, w, device="meta").numel() * v,
        functools.partial(lambda extra, n, c, h, w, v=4: n * c * h * w * v, None),
    ],
    "training_bytes": [
        training_by_cases,
        lambda p, optimizer: p * {"sgd": 8, "momentum": 12, "adam": 16}[optimizer],
        lambda p, optimizer: 4 * p + 4 * p + 4 * p * ["sgd", "momentum", "adam"].index(optimizer),
    ],
    "pool_saved_bytes": [
        lambda n, c, h, w: 12 * n * c * (h // 2) * (w // 2),
        lambda n, c, h, w: 12.0 * n * c * math.floor(h / 2) * math.floor(w / 2),
        lambda n, c, h, w: sum(
            t.numel() * t.element_size()
            for t in torch.nn.functional.max_pool2d(torch.empty(n, c, h, w, device="meta"), 2, return_indices=True)
        ),
    ],
    "network_wide": [
        lambda m, i, p, g, n: 4 * n * (m + i) + 4 * 2 * n * g + 4 * 2 * p,
        lambda m, i, p, g, n: np.float64(4) * (n * m + n * i + 2 * p + 2 * g * n),
    ],
    "largest_batch": [largest_by_halving, largest_by_counting, largest_as_array],
    "keep_less": [Plain, AtOnce, KeepsMeans, KeepsLast, InPlaceToo, Recomputes, AtOnce()],
}


class Dots(Watched):
    def forward(self, images):
        return ...


class DotsWithin(Watched):
    def forward(self, images):
        return self.layers(images) * ...


UNTOUCHED = {"keep_less": [..., Dots, DotsWithin]}


def largest_of_growing(events, limit):
    return max(0, min((limit - fixed) // each for fixed, each in events if each))


def largest_in_range(events, limit):
    fitting = [n for n in range(1, 1001) if all(fixed + each * n <= limit for fixed, each in events)]
    return max(fitting, default=0)


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "largest_batch": [
        (largest_of_growing, "need nothing for a sample"),
        (largest_in_range, "search ends at 1,000"),
        (lambda events, limit: limit // max(fixed + each for fixed, each in events), "peak at batch 1"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "training_bytes": {
        "4": "the bytes of a value",
        "states": "the optimizer's state",
        "1 + 1": "weights and gradients",
        "left of 1 + 1": "the weights",
        "right of 1 + 1": "the gradients",
    },
    "pool_saved_bytes": {
        "outputs": "the outputs",
        "4": "the value of an output",
        "8": "the index",
        "height // 2": "half the `height`",
        "width // 2": "half the `width`",
    },
    "network_wide": {
        "4": "the bytes of a value",
        "maps": "the kept maps",
        "gradient_maps": "the gradient maps",
        "weights": "weights and gradients",
    },
    "largest_batch": {
        "fixed": "the fixed bytes",
        "each": "the bytes of a sample",
        "fixed_bytes": "the fixed bytes",
    },
}
