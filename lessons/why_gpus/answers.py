"""Right answers to exercise 01, written in different ways."""

import math
from fractions import Fraction

import numpy as np
import torch

from lessons.why_gpus.judge import OneByOne


class Plain(OneByOne):
    def forward(self, hands):
        centred = hands - hands.mean(dim=1, keepdim=True)
        return self.fc2(torch.relu(self.fc1(centred)))


class ByVmap(OneByOne):
    def forward(self, hands):
        return torch.vmap(lambda hand: self.fc2(torch.relu(self.fc1(hand - hand.mean()))))(hands)


class ByEinsum(OneByOne):
    def forward(self, hands):
        x = hands - hands.sum(1)[:, None] / hands.shape[1]
        x = torch.einsum("ni,ui->nu", x, self.fc1.weight) + self.fc1.bias
        return torch.clamp(x, min=0) @ self.fc2.weight.T + self.fc2.bias


class Transposed(OneByOne):
    def forward(self, hands):
        columns = hands.T
        columns = columns - columns.mean(dim=0)
        hidden = torch.nn.functional.relu(self.fc1.weight @ columns + self.fc1.bias[:, None])
        return (self.fc2.weight @ hidden + self.fc2.bias[:, None]).T


class TwoHalves(OneByOne):
    def forward(self, hands):
        halves = [half - half.mean(-1, keepdim=True) for half in hands.chunk(2)]
        return torch.cat([self.fc2(self.fc1(half).relu()) for half in halves])


def crossover_by_counting(cpu_fixed, cpu_per_sample, gpu_fixed, gpu_per_sample):
    for batch in range(1, 200_001):
        if gpu_fixed + gpu_per_sample * batch < cpu_fixed + cpu_per_sample * batch:
            return batch
    return 0


def crossover_by_fractions(cpu_fixed, cpu_per_sample, gpu_fixed, gpu_per_sample):
    lead, gain = gpu_fixed - cpu_fixed, cpu_per_sample - gpu_per_sample
    if gain <= 0:
        return int(lead < gain)
    return max(1, math.floor(Fraction(lead, gain)) + 1)


def crossover_of_floats(cpu_fixed, cpu_per_sample, gpu_fixed, gpu_per_sample):
    if gpu_fixed + gpu_per_sample < cpu_fixed + cpu_per_sample:
        return 1.0
    if gpu_per_sample >= cpu_per_sample:
        return 0.0
    return float(np.floor((gpu_fixed - cpu_fixed) / (cpu_per_sample - gpu_per_sample)) + 1)


def shortest_of_three(flops, traffic, flops_per_s, bytes_per_s, launch):
    def seconds(f, t, start):
        return start + max(f / flops_per_s, t / bytes_per_s)

    times = [
        (seconds(flops, traffic, launch / 2), "launch"),
        (seconds(flops / 2, traffic, launch), "flops"),
        (seconds(flops, traffic / 2, launch), "traffic"),
    ]
    return min(times)[1]


def by_its_ridge(flops, traffic, flops_per_s, bytes_per_s, launch):
    arithmetic, moving = flops / flops_per_s, traffic / bytes_per_s
    long, short = max(arithmetic, moving), min(arithmetic, moving)
    if launch / 2 > min(long / 2, long - short):
        return "launch"
    return "flops" if flops * bytes_per_s > traffic * flops_per_s else "traffic"


def by_argmax(f, t, p, b, launch):
    a, m = f / p, t / b
    saved = np.max([a, m]) - np.array([np.maximum(a / 2, m), np.maximum(a, m / 2)])
    return np.array(["launch", "flops", "traffic"])[np.argmax([launch / 2, *saved])]


RIGHT = {
    "operator_seconds": [
        lambda flops, traffic, flops_per_s, bytes_per_s, launch: (
            launch + max(flops / flops_per_s, traffic / bytes_per_s)
        ),
        lambda f, t, p, b, launch: max(launch + f / p, launch + t / b),
        lambda *a: np.maximum(a[0] / a[2], a[1] / a[3]) + a[4],
        lambda f, t, p, b, launch: f / min(p, f / t * b) + launch if f else t / b + launch,
    ],
    "crossover_batch": [crossover_by_fractions, crossover_by_counting, crossover_of_floats],
    "speed_up": [
        lambda cpu, began, returned, synchronized, batch, sample_bytes, link_gb_s: (
            cpu / (synchronized - began + batch * sample_bytes / (link_gb_s * 1e9))
        ),
        lambda c, a, b, d, n, s, r: c / ((b - a) + (d - b) + n * s / 1e9 / r),
        lambda c, a, b, d, n, s, r: torch.tensor(c, dtype=torch.float64) / (d - a + n * s / (r * 10**9)),
    ],
    "helps_most": [shortest_of_three, by_its_ridge, by_argmax],
    "fewer_launches": [Plain, ByVmap, ByEinsum, Transposed, TwoHalves, Plain()],
}


class Dots(OneByOne):
    def forward(self, hands):
        return ...


class DotsWithin(OneByOne):
    def forward(self, hands):
        return self.fc2(torch.relu(self.fc1(hands))) * ...


UNTOUCHED = {"fewer_launches": [..., Dots, DotsWithin]}


def searched(most, start=1):
    """The crossover by search up to a batch."""

    def search(cf, cs, gf, gs):
        return next((n for n in range(start, most + 1) if gf + gs * n < cf + cs * n), 0)

    return search


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "operator_seconds": [
        (lambda f, t, p, b, launch: f / p if f / p > t / b else t / b, "launch is missing"),
        (lambda f, t, p, b, launch: min(p, f / t * b), "operations a second"),
        (lambda f, t, p, b, launch: launch * 1e-6 + max(f / p, t / b), "in seconds already"),
        (lambda f, t, p, b, launch: (launch + max(f / p, t / b)) * 1e3, "1000 times too large"),
        (lambda f, t, p, b, launch: launch + max(f / p, t / b) + 1e-7, "too large"),
    ],
    "crossover_batch": [
        (lambda cf, cs, gf, gs: 1 if gf < cf else RIGHT["crossover_batch"][0](cf, cs, gf, gs), "at batch 1"),
        (lambda cf, cs, gf, gs: 0 if gf < cf and gs < cs else RIGHT["crossover_batch"][0](cf, cs, gf, gs), None),
        (searched(10_000), "search ends too early"),
        (searched(1_000), None),
        (lambda *a: RIGHT["crossover_batch"][0](*a) + 1, "Every number you return is 1 too large"),
    ],
    "speed_up": [
        (lambda c, a, b, d, n, s, r: c / (d - a + n * s / r), "10**9 bytes a second"),
        (lambda c, a, b, d, n, s, r: c / (b - a + n * s / (r * 10**9)), "the host has queued the work"),
    ],
    "helps_most": [
        (lambda f, t, p, b, launch: "flops" if f / t > p / b else "traffic" if t else "launch", "roofline alone"),
        (lambda f, t, p, b, launch: max((launch, "launch"), (f / p, "flops"), (t / b, "traffic"))[1], "longest"),
        (lambda *a: by_its_ridge(*a).upper(), None),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "operator_seconds": {
        "arithmetic": "the time of the arithmetic",
        "bandwidth": "the time of the traffic",
    },
    "crossover_batch": {
        "head_start": "the difference of the fixed times",
        "gain": "what a sample gains",
        "head_start // gain": "the quotient",
        "gpu_fixed + gpu_per_sample < cpu_fixed + cpu_per_sample": "who wins with one sample",
    },
    "speed_up": {
        "gpu_seconds": "the GPU's own time",
        "transfer": "the transfer",
        "10 ** 9": "the unit of the rate",
    },
    "helps_most": {
        "arithmetic": "the time of the arithmetic",
        "bandwidth": "the time of the traffic",
        "work": "the longer of the two",
    },
}
