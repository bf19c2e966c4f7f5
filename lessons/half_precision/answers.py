"""Right answers to exercise 08, written in different ways."""

import math

import numpy as np
import torch

from lessons.half_precision.judge import half_loss


def recipe_by_cases(parameters, optimizer, recipe):
    value, more = (2, 0) if recipe == "pure" else (4, 2 if recipe == "mixed" else 0)
    return parameters * (value * (2 + ["sgd", "momentum", "adam"].index(optimizer)) + more)


def recipe_as_sum(parameters, optimizer, recipe):
    states = {"sgd": [], "momentum": [1], "adam": [1, 1]}[optimizer]
    widths = {"float32": (4, 0, 4, 4), "mixed": (4, 2, 4, 4), "pure": (2, 0, 2, 2)}[recipe]
    return sum(parameters * width for width in (*widths[:3], *(widths[3] for _ in states)))


def update_by_doubling(weight, fraction_bits, lowest_exponent):
    power = 2.0**lowest_exponent
    while power * 2 <= abs(weight):
        power *= 2
    return power / 2**fraction_bits / 2


def update_by_trying(weight, fraction_bits, lowest_exponent):
    dtype = torch.float16 if fraction_bits == 10 else torch.bfloat16
    start = torch.tensor(abs(weight), dtype=torch.float64)
    number = start.to(dtype)
    if number > start:  # rounded up: the next lower number is the one that shares its power of two
        number = torch.nextafter(number, torch.tensor(0.0, dtype=dtype))
    after = torch.nextafter(number, torch.tensor(math.inf, dtype=dtype))
    return (after.double() - number.double()) / 2


def scale_by_doubling(gradients, share):
    sizes = np.abs(np.array(gradients))
    wanted = share * np.count_nonzero(sizes)
    scale = 1
    while np.count_nonzero(sizes * scale > 2.0**-25) < wanted:
        scale *= 2
    return scale if sizes.max() * scale <= 65504 else 0


def scale_by_sorting(gradients, share):
    sizes = sorted((abs(g) for g in gradients if g != 0), reverse=True)
    least = sizes[max(0, math.ceil(share * len(sizes)) - 1)]
    power = max(0, math.floor(math.log2(2**-25 / least)) + 1)
    return 2**power * (sizes[0] * 2**power <= 65504)


def scale_from_torch(gradients, share):
    values = torch.tensor([g for g in gradients if g], dtype=torch.float64)
    scale = 1.0
    while (values * scale).abs().max() <= 65504:
        if (values * scale).half().count_nonzero() >= share * len(values):
            return scale
        scale *= 2
    return 0


def scales_by_counting(overflows, scale, interval):
    used, good = [], 0
    for overflow in overflows:
        used += [scale]
        good = 0 if overflow else good + 1
        scale = scale / 2 if overflow else scale * 2 if good % interval == 0 else scale
    return used


def scales_from_torch(overflows, scale, interval):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=float(scale), growth_interval=interval)
    used = []
    for overflow in overflows:
        scaler.scale(weight.sum())
        used.append(scaler.get_scale())
        weight.grad = torch.tensor([math.inf if overflow else 0.0])
        scaler.step(optimizer)
        scaler.update()
    return tuple(used)


def plain(model, optimizer, batches, scale, max_norm):
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        loss = half_loss(model, images, labels, weight)
        (loss * scale).backward()
        for parameter in model.parameters():
            parameter.grad /= scale
        if not all(torch.isfinite(p.grad).all() for p in model.parameters()):
            skipped += 1
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return skipped


def with_grad_scaler(model, optimizer, batches, scale, max_norm):
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        scaler.scale(half_loss(model, images, labels, weight)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    return skipped


def by_norm(model, optimizer, batches, scale, max_norm):
    skipped = 0
    for images, labels, weight in batches:
        gradients = torch.autograd.grad(scale * half_loss(model, images, labels, weight), list(model.parameters()))
        norm = torch.linalg.norm(torch.stack([torch.linalg.norm(g / scale) for g in gradients]))
        if not math.isfinite(norm):
            skipped += 1
            continue
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient / scale * min(1.0, max_norm / (norm + 1e-6))  # as clip_grad_norm_ does
        optimizer.step()
    return torch.tensor(skipped)


def clipped_while_scaled(model, optimizer, batches, scale, max_norm):
    """The norm of scaled gradients beside a norm that is scaled, too."""
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        (half_loss(model, images, labels, weight) * scale).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scale)
        if not norm.isfinite():
            skipped += 1
            continue
        for parameter in model.parameters():
            parameter.grad /= scale
        optimizer.step()
    return skipped


RIGHT = {
    "recipe_bytes": [
        recipe_by_cases,
        recipe_as_sum,
        lambda n, o, r: (
            n
            * (
                {"float32": 8, "mixed": 10, "pure": 4}[r]
                + {"sgd": 0, "momentum": 4.0, "adam": 8}[o] / (1 + (r == "pure"))
            )
        ),
    ],
    "share_left": [
        lambda m, p: (2 * m + 10 * p) / (4 * m + 12 * p),
        lambda m, p: 1 - (m + p) / (2 * m + 6 * p),
        lambda m, p: np.float64(m * 2 + p * 2 + p * 8) / (m * 4 + p * 4 + p * 8),
    ],
    "smallest_update": [
        update_by_doubling,
        update_by_trying,
        lambda w, f, low: 2.0 ** (max(math.floor(math.log2(abs(w))) if w else low, low) - f - 1),
    ],
    "loss_scale": [scale_by_doubling, scale_by_sorting, scale_from_torch],
    "next_scales": [
        scales_by_counting,
        scales_from_torch,
    ],
    "keep_small": [plain, with_grad_scaler, by_norm, clipped_while_scaled],
}


def dots_within(model, optimizer, batches, scale, max_norm):
    for images, labels, weight in batches:
        (half_loss(model, images, labels, weight) * ...).backward()


UNTOUCHED = {"keep_small": [..., lambda *_: ..., dots_within]}


def by_weight(model, optimizer, batches, scale, max_norm):
    """Skips what looks like an outlier, whatever its gradients are."""
    small = [batch for batch in batches if batch[2] < 1]
    return len(batches) - len(small) + plain(model, optimizer, small, scale, max_norm)


def by_item(model, optimizer, batches, scale, max_norm):
    """Clips by a number that it has read."""
    skipped = 0
    for images, labels, weight in batches:
        optimizer.zero_grad()
        (half_loss(model, images, labels, weight) * scale).backward()
        gradients = [p.grad.div_(scale) for p in model.parameters()]
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        if not math.isfinite(norm):
            skipped += 1
            continue
        for gradient in gradients:
            gradient *= min(1.0, max_norm / norm)
        optimizer.step()
    return skipped


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "recipe_bytes": [
        (
            lambda p, optimizer, recipe: (
                RIGHT["recipe_bytes"][0](p, optimizer, recipe) - p * (2 if recipe == "pure" else 4)
            ),
            "gradients are missing",
        )
    ],
    "share_left": [(lambda m, p: 100 * RIGHT["share_left"][0](m, p), "percent")],
    "smallest_update": [
        (
            lambda weight, bits, lowest: (
                2.0 ** ((max(int(math.log2(abs(weight))), lowest) if weight else lowest) - bits - 1)
            ),
            "cuts towards 0",
        )
    ],
    "next_scales": [
        (lambda flags, scale, interval: [scale, *RIGHT["next_scales"][0](flags, scale, interval)], None),
        (lambda flags, scale, interval: RIGHT["next_scales"][0](flags, scale, interval)[:-1], "one entry too few"),
        (lambda flags, *rest: RIGHT["next_scales"][0]([*flags, False], *rest), "one entry too many"),
    ],
    "keep_small": [
        (by_weight, "with a scale of 1 nothing overflows"),
        (by_item, "`.item()`, `float()` or `if` reads a number"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "recipe_bytes": {
        "recipe == 'mixed'": "`recipe`",
        "recipe == 'pure'": "`recipe`",
        "value": "the bytes of a value",
        "copy": "the 16-bit copy",
        "states": "the optimizer's state",
        "1 + 1": "weights and gradients",
        "left of 1 + 1": "the weights",
        "right of 1 + 1": "the gradients",
    },
    "share_left": {
        "values": "the values",
        "indices": "the indices",
        "8": "the bytes of an index",
        "4": "the bytes of a float32",
        "2": "the bytes of a half",
    },
    "smallest_update": {
        "exponent": "the exponent",
        "exponent - fraction_bits": "the exponent of the spacing",
    },
    "loss_scale": {
        "sizes": "the gradients",
        "scaled": "the scaled gradients",
        "size": "a gradient",
        "gradient": "a gradient",
        "gradient != 0": "gradients that are 0",
        "max(scaled)": "the largest scaled gradient",
        "max(scaled) > 65504": "overflow",
        "power": "the power of two",
        "2 ** (-25)": "half the smallest number",
        "2 ** -25": "half the smallest number",
    },
    "next_scales": {
        "good": "the steps in a row without overflow",
        "used": "the scales",
        "overflow": "an overflow",
        "scale / 2": "the halved scale",
    },
}
