"""Right answers to exercise 09, written in different ways."""

import numpy as np
import torch


def ratio_by_the_rule(kernel, stride, read, written, side, batch, tflop_s, gb_s):
    return 2000 * tflop_s / gb_s / (kernel**2 * written / stride**2)


def ratio_by_loops(kernel, stride, read, written, side, batch, tflop_s, gb_s):
    outputs = batch * written * len(range(0, side, stride)) ** 2
    copy = batch * read * side * side * 4 / gb_s / 1e9
    return copy / (outputs * read * kernel * kernel * 2 / tflop_s / 1e12)


def link_by_trying(layers):
    rate = 0
    for count, seconds in layers:
        if rate * seconds < count:
            rate = count / seconds
    return rate


def streams_by_clock(forward, backward, copies):
    """A clock for each stream."""
    kernels = link = 0.0
    for kernel, copy in zip(forward, copies, strict=True):
        begins = max(kernels, link)
        kernels, link = begins + kernel, begins + copy
    kernels = max(kernels, link) + copies[-1]
    for i in reversed(range(len(backward))):
        link = kernels + (copies[i - 1] if i else 0.0)
        kernels = max(kernels + backward[i], link)
    return kernels


def streams_by_arrays(forward, backward, copies):
    f, b, c = map(np.array, (forward, backward, copies))
    return np.maximum(f, c).sum() + c[-1] + np.maximum(b, np.roll(c, 1) * (np.arange(len(c)) > 0)).sum()


def leaves_by_overwriting(layers):
    leaves = {}
    for name, reads in layers:
        for read in reads:
            leaves[read] = name
    return leaves


def leaves_from_the_end(layers):
    leaves = {}
    for name, reads in reversed(layers):
        for read in reads:
            leaves.setdefault(read, name)
    return leaves


def outside_by_tickets(model, least, host):
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor):
        if tensor.nbytes < least or tensor.untyped_storage().data_ptr() in own:
            return tensor
        return host.put(tensor)

    def unpack(kept):
        return kept if isinstance(kept, torch.Tensor) else host.take(kept)

    return pack, unpack


def outside_with_tags(model, least, host):
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def pack(tensor):
        stays = tensor.nbytes < least or tensor.untyped_storage().data_ptr() in own
        return ("here", tensor) if stays else ("host", host.put(tensor))

    return pack, lambda kept: kept[1] if kept[0] == "here" else host.take(kept[1])


def outside_as_closures(model, least, host):
    own = {parameter.data_ptr() for parameter in model.parameters()}

    def pack(tensor):
        if tensor.data_ptr() in own or tensor.nbytes < least:
            return tensor
        ticket = host.put(tensor)
        return lambda: host.take(ticket)

    def unpack(kept):
        return kept if isinstance(kept, torch.Tensor) else kept()

    return [pack, unpack]


RIGHT = {
    "copy_seconds": [
        lambda n, c, h, w, rate: n * c * h * w * 4 / (rate * 10**9),
        lambda n, c, h, w, rate: np.prod([n, c, h, w], dtype=float) * 4e-9 / rate,
        lambda n, c, h, w, rate: torch.empty((n, c, h, w), device="meta").nbytes / rate / 1e9,
    ],
    "copy_over_kernel": [ratio_by_the_rule, ratio_by_loops],
    "least_link": [
        lambda layers: max(count / seconds for count, seconds in layers),
        link_by_trying,
        lambda layers: np.max(np.divide(*zip(*layers, strict=True))),
    ],
    "two_streams": [streams_by_clock, streams_by_arrays],
    "leaves_with": [leaves_by_overwriting, leaves_from_the_end],
    "keep_outside": [outside_by_tickets, outside_with_tags, outside_as_closures],
}


def dots_within(model, least, host):
    def pack(tensor):
        return host.put(tensor) * ...

    return pack, lambda kept: kept


UNTOUCHED = {"keep_outside": [..., lambda *_: ..., lambda *_: (..., ...), dots_within]}


def wrapped_streams(forward, backward, copies):
    seconds = sum(map(max, forward, copies)) + copies[-1]
    return seconds + sum(max(backward[i], copies[i - 1]) for i in range(len(backward)))


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "two_streams": [
        (wrapped_streams, "`copies[i - 1]` at `i = 0`"),
        (
            lambda f, b, c: sum(map(max, f, c)) + c[-1] + sum(map(max, b, c)),
            "own map comes back beside it",
        ),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "copy_seconds": {
        "4": "the bytes of a value",
        "1000000000.0": "the unit of the rate",
    },
    "copy_over_kernel": {
        "4": "the bytes of a value",
        "1000000000.0": "the unit of `gb_s`",
        "1000000000000.0": "the unit of `tflop_s`",
        "copy": "the time of the copy",
        "operations": "the operations",
        "side / stride": "the side of the output",
        "(side / stride) ** 2": "the positions of the output",
        "side ** 2": "the positions of the input",
        "left of 2 * kernel ** 2": "the additions beside the multiplications",
        "kernel ** 2": "the size of the kernel",
    },
    "least_link": {
        "count": "the bytes",
        "seconds": "the seconds",
        "count / seconds": "the rates",
    },
    "two_streams": {
        "kernel": "the kernel",
        "copy": "its copy",
        "copies[-1]": "the copy that nothing hides",
        "copies[layer - 1]": "the copy of the layer before",
        "before": "the copy of the layer before",
        "backward[layer]": "the backward pass of a layer",
        "max(kernel, copy)": "the longer of kernel and copy",
        "max(backward[layer], before)": "the longer of backward pass and copy",
    },
    "leaves_with": {
        "read": "a map",
        "reads": "the maps that are read",
        "name": "a layer",
    },
}
