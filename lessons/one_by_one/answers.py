"""Right answers to exercise 05, written in different ways."""

from fractions import Fraction

import torch
from torch import nn


def squeezed_by_torch(side, channels, squeezed):
    layer = nn.Conv2d(channels, squeezed, 1, device="meta")
    output = layer(torch.empty(1, channels, side, side, device="meta"))
    return [output.numel(), sum(p.numel() for p in layer.parameters())]


def added_map_by_map(batch, side, channels, squeezed, narrow):
    before = [channels] + [channels] * narrow
    after = [channels, squeezed] + [squeezed] * narrow
    return 4 * batch * side * side * (sum(after) - sum(before))


def break_even_by_trying(inputs, outputs, kernel):
    alone = kernel**2 * inputs * outputs
    return max(m for m in range(inputs + 1) if inputs * m + kernel**2 * m * outputs < alone)


def break_even_as_fraction(inputs, outputs, kernel):
    exact = Fraction(kernel**2 * inputs * outputs, inputs + kernel**2 * outputs)
    return int(exact) - (exact.denominator == 1)


def as_resnets_do():
    """One squeeze, three narrow layers, one 1×1 that widens."""
    layers, inputs = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()], 64
    for kernel, outputs in ((1, 16), (3, 16), (3, 16), (3, 16), (1, 64)):
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.squeeze = nn.Conv2d(64, 8, 1)
        self.one, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.widen = nn.Conv2d(8, 64, 3, padding=1)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for conv in (self.first, self.squeeze, self.one, self.two, self.widen):
            x = conv(x).relu()
        return self.head(x.mean(dim=(2, 3)))


def plain():
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 16, 1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


RIGHT = {
    "after_squeeze": [
        lambda side, channels, squeezed: (side**2 * squeezed, (channels + 1) * squeezed),
        squeezed_by_torch,
        lambda side, channels, squeezed: (squeezed * side * side, float(channels * squeezed + squeezed)),
    ],
    "bytes_added": [
        lambda n, side, channels, squeezed, narrow: 4 * n * side**2 * ((narrow + 1) * squeezed - narrow * channels),
        added_map_by_map,
        lambda n, side, channels, squeezed, narrow: 4.0 * n * side**2 * (squeezed + narrow * (squeezed - channels)),
    ],
    "break_even": [
        lambda inputs, outputs, kernel: (kernel**2 * inputs * outputs - 1) // (inputs + kernel**2 * outputs),
        break_even_by_trying,
        break_even_as_fraction,
    ],
    "bottleneck": [plain, as_resnets_do, Narrow],
}

UNTOUCHED = {"bottleneck": [..., lambda: ..., lambda: nn.Sequential(nn.Conv2d(3, 64, 3), ...)]}


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "after_squeeze": [(lambda side, c, s: (4 * side**2 * s, c * s + s), "You counted bytes")],
    # The fraction is never whole there.
    "break_even": [(lambda *a: RIGHT["break_even"][0](*a) + 1, "You rounded up")],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "after_squeeze": {
        "values": "the values",
        "parameters": "the parameters",
        "channels * squeezed": "the weights",
        "right of channels * squeezed + squeezed": "the biases",
        "left of side * side": "one of the two sides",
    },
    "bytes_added": {
        "4": "the bytes of a value",
        "one_map": "the size of a channel",
        "channels - squeezed": "the channels that are saved",
        "narrow * (channels - squeezed)": "what the narrow maps save",
        "left of squeezed - narrow * (channels - squeezed)": "the map of the squeeze",
    },
    "break_even": {
        "alone": "the convolution alone",
        "for_each_channel": "what each channel costs",
        "left of inputs + kernel ** 2 * outputs": "the squeeze",
        "kernel ** 2 * outputs": "the convolution after it",
        "right of alone - 1": "the rule that equal is not less",
        "kernel ** 2": "the kernel",
    },
}
