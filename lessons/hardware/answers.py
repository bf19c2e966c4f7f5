"""Right answers to exercise 02, written in different ways."""

import numpy as np
import torch

from lessons.hardware.judge import Pretrained


def largest_by_cases(card_mib, buffer_mib, optimizer):
    values = 2
    if optimizer == "momentum":
        values += 1
    elif optimizer == "adam":
        values += 3  # two averages, and the root of one of them while it updates
    room = (card_mib - buffer_mib) * 1024 * 1024
    if room < 0:
        return 0
    return room // (values * 4)


def cards_by_loop(cards, needed_gib, bfloat16):
    good = []
    for card in cards:
        if card["launch_usd"] is None:
            continue
        if bfloat16 and not card["bfloat16"]:
            continue
        if card["memory_gib"] < needed_gib * card["dies"]:
            continue
        good.append((card["launch_usd"], card["name"]))
    good.sort()
    return [name for _, name in good]


def cards_as_tuple(cards, needed_gib, bfloat16=False):
    kept = filter(lambda c: c["memory_gib"] / c["dies"] >= needed_gib and c["launch_usd"], cards)
    kept = [c for c in kept if not bfloat16 or c["bfloat16"]]
    return tuple(c["name"] for c in sorted(kept, key=lambda c: c["launch_usd"]))


def weeks_by_costs(price, back, power, rent, hours):
    renting, owning = hours * rent, hours * power
    if renting <= owning:
        return 0
    return (price - price * back) / (renting - owning)


def weeks_by_hours(price, back, power, rent, hours):
    saved = rent - power
    return np.float64(price * (1 - back)) / saved / hours if saved > 0 else 0.0


def frozen_walking_down(layers, input_values, batch, optimizer):
    state = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    total = input_values * batch
    passes = False
    before = input_values
    for i, (parameters, outputs, trained) in enumerate(layers):
        passes = passes or trained
        total += parameters * (2 + state if trained else 1)
        if passes and i > 0:
            total += before * batch
        before = outputs
    return 4 * total


def frozen_as_arrays(layers, input_values, batch, optimizer):
    parameters, outputs, trained = (np.array(column) for column in zip(*layers, strict=True))
    first = int(np.argmax(trained))
    inputs = outputs[:-1][max(first - 1, 0) :]
    state = ["sgd", "momentum", "adam"].index(optimizer)
    return 4.0 * (parameters.sum() + (1 + state) * parameters[trained].sum() + batch * (input_values + inputs.sum()))


class WithoutGradients(Pretrained):
    def forward(self, images):
        with torch.no_grad():
            features = self.backbone(images)
        return self.head(features)


class FrozenFromTheStart(Pretrained):
    def __init__(self):
        super().__init__()
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False


class FrozenInForward(Pretrained):
    def forward(self, images):
        self.backbone.requires_grad_(False)
        return self.head(self.backbone(images))


class InferenceThenCloned(Pretrained):
    def forward(self, images):
        with torch.inference_mode():
            features = self.backbone(images)
        return self.head(features.clone())


class Decorated(Pretrained):
    @torch.no_grad()
    def features(self, images):
        for layer in self.backbone:
            images = layer(images)
        return images

    def forward(self, images):
        return self.head(self.features(images))


RIGHT = {
    "largest_parameters": [
        largest_by_cases,
        lambda card, buffer, optimizer: max(
            0, (card - buffer) * 2**20 // {"sgd": 8, "momentum": 12, "adam": 20}[optimizer]
        ),
        lambda c, b, o: int(max(c - b, 0) * 2**20 / 4 / (2 + ["sgd", "momentum", "", "adam"].index(o))),
        lambda c, b, o: np.int64(max(c - b, 0)) * 2**20 // (8 + 4 * ("sgd", "momentum", "", "adam").index(o)),
    ],
    "cards_that_hold": [
        cards_by_loop,
        cards_as_tuple,
        lambda cards, needed, bf16: [
            c["name"]
            for c in sorted((c for c in cards if c["launch_usd"] is not None), key=lambda c: c["launch_usd"])
            if c["memory_gib"] // c["dies"] >= needed and (c["bfloat16"] or not bf16)
        ],
    ],
    "break_even_weeks": [
        weeks_by_costs,
        weeks_by_hours,
        lambda p, b, e, r, h: (1 - b) * p / h / (r - e) if r > e else 0,
    ],
    "frozen_step_bytes": [frozen_walking_down, frozen_as_arrays, lambda *arguments: frozen_walking_down(*arguments)],
    "head_only": [
        WithoutGradients, FrozenFromTheStart, FrozenInForward, InferenceThenCloned, Decorated, WithoutGradients(),
    ],
}  # fmt: skip


class Dots(Pretrained):
    def forward(self, images):
        return ...


class DotsWithin(Pretrained):
    def forward(self, images):
        return self.head(self.backbone(images) * ...)


UNTOUCHED = {"head_only": [..., Dots, DotsWithin]}


def cards_by_agreement(cards, needed, bfloat16):
    good = [
        card
        for card in cards
        if card["memory_gib"] / card["dies"] >= needed and card["bfloat16"] == bfloat16 and card["launch_usd"]
    ]
    return [card["name"] for card in sorted(good, key=lambda card: card["launch_usd"])]


def frozen_up_to_the_last_trained(layers, input_values, batch, optimizer):
    last = max(i for i, layer in enumerate(layers) if layer[2])
    above = sum(4 * parameters for parameters, _, _ in layers[last + 1 :])
    return frozen_walking_down(layers[: last + 1], input_values, batch, optimizer) + above


def frozen_with_every_output(layers, input_values, batch, optimizer):
    state = {"sgd": 0, "momentum": 1, "adam": 2}[optimizer]
    values = sum(parameters * (2 + state if trained else 1) for parameters, _, trained in layers)
    return 4 * (values + batch * (input_values + sum(outputs for _, outputs, _ in layers)))


def frozen_with_the_root(layers, input_values, batch, optimizer):
    roots = sum(4 * parameters for parameters, _, trained in layers if trained) if optimizer == "adam" else 0
    return frozen_walking_down(layers, input_values, batch, optimizer) + roots


# Answers that learners gave beyond the slips, each with words that it must hear; None: the general message.
WRONG = {
    "largest_parameters": [
        (lambda card, buffer, optimizer: max(0, (card - buffer) * 1024**2 // 4 // 2), "8 bytes a parameter"),
        (lambda *_: 501_918_378, "returned 501,918,378, expected "),
        (lambda *a: RIGHT["largest_parameters"][0](*a) + 1, "1 too large"),
        (lambda c, b, o: max(0, (c - b) * 2**20 // (8 * {"sgd": 2, "momentum": 3, "adam": 5}[o])), "That is float64"),
        (lambda c, b, o: (c - b) * 2**18 / {"sgd": 2, "momentum": 3, "adam": 5}[o], "It has decimals: a whole number"),
    ],
    "cards_that_hold": [(cards_by_agreement, "cards that have it are missing"), (lambda *_: [], None)],
    "break_even_weeks": [
        (lambda price, back, power, rent, hours: price / rent / hours, "price over rent"),
        (lambda p, b, e, r, h: p * (1 - b) / h / (r - e) if r - e else 0, "your number is negative"),
        (lambda p, b, e, r, h: p * (1 - b) / (r - e) if r > e else 0, "These are hours of use"),
        (lambda p, b, e, r, h: p * (1 - b) / h / (r - e) if r > e else "never", "Return one number"),
        (lambda price, back, power, rent, hours: price - hours * rent, None),
    ],
    "frozen_step_bytes": [
        (lambda layers, values, n, _: RIGHT["frozen_step_bytes"][0](layers, values, n, "sgd"), "state is missing"),
        (frozen_up_to_the_last_trained, "above the last trained layer"),
        (frozen_with_every_output, "the output of every layer"),
        (frozen_with_the_root, "The question leaves it out"),
    ],
}


# What the terms of a solution are called where a check tells a learner's thought.
TERMS = {
    "largest_parameters": {
        "values": "the values of a parameter",
        "room": "the room",
        "4": "the bytes of a value",
    },
    "cards_that_hold": {
        "of_one_die": "the memory of one die",
        "card['launch_usd'] is None": "a price that is missing",
        "card['dies']": "the number of dies",
        "card['memory_gib']": "the memory",
    },
    "break_even_weeks": {
        "1 - back": "the share that is lost",
        "lost": "what the card loses",
        "rent - power": "what an hour saves",
        "saved": "what a week saves",
        "saved <= 0": "whether it ever pays",
    },
    "frozen_step_bytes": {
        "4": "the bytes of a value",
        "states": "the optimizer's state",
        "gradient_passes": "whether a gradient passes",
        "trained": "whether a layer is trained",
        "parameters": "the weights",
        "batch * layers[i - 1][1]": "the input of a layer",
        "1 + states": "gradient and state",
        "(1 + states) * parameters": "gradients and optimizer state",
        "left of 1 + states": "the gradients",
        "gradient_passes and i > 0": "which maps are kept",
        "batch * input_values": "the input",
    },
}
