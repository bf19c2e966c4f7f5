"""The checks of exercise 02, "Which hardware, or none": references, inputs, and the slips people make.

Card and buffer in MiB, needs in GiB, money in dollars, all else in bytes. The rule of 2014 is that of Dettmers, "Which
GPU for deep learning" (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from course_utils.machine.hardware import devices
from course_utils.units import MIB
from lessons.hardware.behaviour import head_only as head_only
from lessons.shared.checks import BytesCheck

STATES = {"sgd": 0, "momentum": 1, "adam": 2}
VALUES = {"sgd": 2, "momentum": 3, "adam": 5}  # a parameter, at the peak: with what Adam's update makes for a moment
Card = Mapping[str, Any]
Layers = Sequence[tuple[int, int, bool]]

# -- 1. the corrected rule -------------------------------------------------------------------------------------------


def _largest_parameters(card_mib: int, buffer_mib: int, optimizer: str) -> int:
    return max(0, (card_mib - buffer_mib) * MIB // (4 * VALUES[optimizer]))


def _room_over(sgd: int, momentum: int, adam: int) -> Callable[[int, int, str], int]:
    """The rule with other bytes a parameter."""
    sizes = {"sgd": sgd, "momentum": momentum, "adam": adam}
    return lambda card, buffer, optimizer: max(0, (card - buffer) * MIB // sizes[optimizer])


largest_parameters = Check(
    "largest_parameters",
    _largest_parameters,
    cases=[
        (6144, 400, "momentum"),
        (6144, 400, "adam"),
        (12288, 512, "sgd"),
        (12, 5, "momentum"),
        (9, 2, "adam"),
        (300, 400, "momentum"),
    ],
    slips=[
        Slip("the rule of 2014", _room_over(4, 8, 12),
             "This is the rule of 2014, with its divisor of two for momentum: the weight gradients are missing. They "
             "are as large as the weights."),
        Slip("what stays", _room_over(8, 12, 16),
             "That is what stays between two steps. Adam's update also makes one value a parameter for a moment, the "
             "root of the second average, while all the others are there."),
        Slip("Adam has one state", _room_over(8, 12, 12),
             "Adam keeps two running averages for every parameter, of the gradient and of its square; you counted "
             "one, and not what its update makes."),
        Slip("a value too many", _room_over(8, 12, 24),
             "You counted one value too many for Adam: weight, gradient, two averages, and one that its update makes."),
        Slip("optimizer ignored", _room_over(12, 12, 12),
             "You took momentum for every optimizer. Plain SGD keeps no state; Adam two values, and makes a third."),
        Slip("inference", _room_over(4, 4, 4),
             "So many parameters fit if nobody trains them. Training also keeps a gradient for each, and the "
             "optimizer's state."),
        Slip("buffer forgotten", lambda card, buffer, optimizer: card * MIB // (4 * VALUES[optimizer]),
             "The buffer is missing: context and libraries take their part of the card before the first weight comes."),
        Slip("decimal megabytes",
             lambda card, buffer, optimizer: max(0, (card - buffer) * 10**6 // (4 * VALUES[optimizer])),
             "You took a MiB for 10**6 bytes. A card's memory is binary: 1 MiB is 1024 · 1024 bytes."),
        Slip("one byte a value",
             lambda card, buffer, optimizer: max(0, (card - buffer) * MIB // VALUES[optimizer]),
             "You counted values. In float32 each takes 4 bytes."),
        Slip("eight bytes a value", _room_over(16, 24, 40),
             "You took 8 bytes for a value. That is float64; a value in float32 takes 4."),
        Slip("eight bytes, what stays", _room_over(16, 24, 32),
             "You took 8 bytes for a value, which is float64: in float32 it takes 4. And Adam's update makes a fifth "
             "value, the root of the second average."),
        Slip("gradient or state", _room_over(8, 8, 12),
             "With momentum you counted 8 bytes a parameter: two values. Weight, gradient and momentum are three, all "
             "there at once."),
        Slip("not rounded",
             lambda card, buffer, optimizer: max(0.0, (card - buffer) * MIB / (4 * VALUES[optimizer])),
             "There is no part of a parameter. Round down."),
        Slip("rounded up",
             lambda card, buffer, optimizer: max(0, math.ceil((card - buffer) * MIB / (4 * VALUES[optimizer]))),
             "You rounded up: the last parameter does not fit. Round down."),
        Slip("negative", lambda card, buffer, optimizer: (card - buffer) * MIB // (4 * VALUES[optimizer]),
             "Where the buffer alone is larger than the card, your number is negative. Return 0."),
        Slip("the rule of 2014, word for word", _room_over(8, 8, 8),
             "This is the rule of 2014 word for word, 8 bytes a parameter: it forgot the weight gradients, as large "
             "as the weights, and knows momentum alone."),
        Slip("the rule of 2014, negative", lambda card, buffer, optimizer: (card - buffer) * MIB // 8,
             "This is the rule of 2014 word for word, 8 bytes a parameter: it forgot the weight gradients and knows "
             "momentum alone. And where the buffer is larger than the card, return 0."),
    ],
    takeaway="A card of 6 GB trains 501,918,378 parameters with momentum, not 752,877,568, and no image yet.",
)  # fmt: skip

# -- 2. cards that hold it -------------------------------------------------------------------------------------------


def catalogue() -> list[dict[str, Any]]:
    """The course's catalogue as the question gives it: memory as sold, of the whole card."""
    return [
        {
            "name": device.name,
            "memory_gib": device.memory_gb * device.dies,
            "dies": device.dies,
            "launch_usd": device.launch_usd,
            "bfloat16": device.bfloat16,
        }
        for device in devices()
    ]


def _good(
    cards: Sequence[Card],
    needed: float,
    bfloat16: bool,
    die: Callable[[Card], float] = lambda card: card["memory_gib"] / card["dies"],
) -> list[Card]:
    return [card for card in cards if die(card) >= needed and (card["bfloat16"] or not bfloat16)]


def _names(cards: Sequence[Card], key: Callable[[Card], Any] = lambda card: card["launch_usd"]) -> list[str]:
    return [card["name"] for card in sorted(cards, key=key)]


def _priced(cards: Sequence[Card]) -> list[Card]:
    return [card for card in cards if card["launch_usd"] is not None]


def _cards_that_hold(cards: Sequence[Card], needed_gib: float, bfloat16: bool) -> list[str]:
    return _names(_priced(_good(cards, needed_gib, bfloat16)))


MADE_UP = [
    {"name": "slow and large", "memory_gib": 16, "dies": 1, "launch_usd": 450, "bfloat16": False},
    {"name": "two dies", "memory_gib": 32, "dies": 2, "launch_usd": 300, "bfloat16": True},
    {"name": "unpriced", "memory_gib": 48, "dies": 1, "launch_usd": None, "bfloat16": True},
    {"name": "small", "memory_gib": 8, "dies": 1, "launch_usd": 200, "bfloat16": True},
    {"name": "large", "memory_gib": 24, "dies": 1, "launch_usd": 700, "bfloat16": True},
    {"name": "dear and small", "memory_gib": 8, "dies": 1, "launch_usd": 900, "bfloat16": False},
]

cards_that_hold = Check(
    "cards_that_hold",
    _cards_that_hold,
    cases=[
        (MADE_UP, 5.5, False),
        (MADE_UP, 16, False),
        (MADE_UP, 8, True),
        (MADE_UP, 20, True),
        (MADE_UP, 99, False),
        (MADE_UP, 15.7, False),
        (catalogue(), 11.5, False),
        (catalogue(), 20.0, False),
    ],
    slips=[
        Slip("two dies taken for one",
             lambda cards, needed, bf16: _names(_priced(_good(cards, needed, bf16, lambda card: card["memory_gib"]))),
             "You counted the memory of both dies. A program sees one of them unless it is written for two: divide."),
        Slip("an empty price is nothing",
             lambda cards, needed, bf16: _names(_good(cards, needed, bf16), lambda card: card["launch_usd"] or 0),
             "You took an unknown price for 0 dollars. `None` means that nobody confirmed it: leave the card out."),
        Slip("an empty price comes last",
             lambda cards, needed, bf16: _names(_good(cards, needed, bf16), lambda c: c["launch_usd"] or math.inf),
             "Cards without a confirmed price are in your list, at its end. The list is by price: leave them out."),
        Slip("strictly more",
             lambda cards, needed, bf16: _names(
                 _priced([card for card in _good(cards, needed, bf16) if card["memory_gib"] / card["dies"] > needed])
             ),
             "A card whose memory is exactly what is needed is missing. It holds it: use `>=`."),
        Slip("bfloat16 ignored", lambda cards, needed, bf16: _names(_priced(_good(cards, needed, False))),
             "Where `bfloat16` is asked for, cards that do not compute in it are in your list."),
        Slip("bfloat16 always", lambda cards, needed, bf16: _names(_priced(_good(cards, needed, True))),
             "Where bfloat16 is not asked for, cards without it are missing. They will do."),
        Slip("by memory",
             lambda cards, needed, bf16: _names(_priced(_good(cards, needed, bf16)), lambda card: card["memory_gib"]),
             "The right cards, in order of their memory. The question asks for the cheapest first."),
        Slip("dearest first", lambda cards, needed, bf16: _names(_priced(_good(cards, needed, bf16)))[::-1],
             "The right cards, the most expensive first. The question asks for the cheapest first."),
        Slip("not sorted", lambda cards, needed, bf16: [card["name"] for card in _priced(_good(cards, needed, bf16))],
             "The right cards, in the order of the catalogue. Sort them by their price."),
        Slip("the cheapest alone", lambda cards, needed, bf16: _names(_priced(_good(cards, needed, bf16)))[:1],
             "This is the first of them. Return all that hold it, cheapest first."),
        Slip("a context taken off",
             lambda cards, needed, bf16: _names(_priced(_good(cards, needed + 0.5, bf16))),
             "A card with hardly more than `needed_gib` is missing: nothing else is to be taken off its memory."),
        Slip("bfloat16 must agree",
             lambda cards, needed, bf16: _names(
                 [c for c in _priced(_good(cards, needed, False)) if c["bfloat16"] == bf16]),
             "Where bfloat16 is not asked for, cards that have it are missing from your list: they will do as well as"
             " the others."),
        Slip("cards, not names",
             lambda cards, needed, bf16: sorted(
                 _priced(_good(cards, needed, bf16)), key=lambda card: card["launch_usd"]),
             "The right cards in the right order, but as dictionaries. Return the name of each: `card[\"name\"]`."),
    ],
    takeaway="The K80 is sold as 24 GB and holds steps of 12. Prices are of the launch, not adjusted for inflation.",
    parts=True,
)  # fmt: skip

# -- 3. rent or buy --------------------------------------------------------------------------------------------------


def _break_even_weeks(price: float, back: float, power: float, rent: float, hours: float) -> float:
    return price * (1 - back) / (hours * (rent - power)) if rent > power else 0


def _weeks(
    lost: Callable[[float, float], float] = lambda price, back: price * (1 - back),
    saved: Callable[[float, float, float], float] = lambda power, rent, hours: hours * (rent - power),
    never: object = 0,
) -> Callable[[float, float, float, float, float], object]:
    """The answer with another loss, another saving of a week, or another word for never."""

    def weeks(price: float, back: float, power: float, rent: float, hours: float) -> object:
        each = saved(power, rent, hours)
        return lost(price, back) / each if each > 0 else never

    return weeks


break_even_weeks = Check(
    "break_even_weeks",
    _break_even_weeks,
    cases=[
        (500, 0.5, 0.09, 0.22, 20),
        (1000, 0, 0.1, 0.6, 10),
        (300, 0.2, 0.02, 0.17, 35),
        (1500, 0.4, 0.09, 0.43, 8.5),
        (700, 0.3, 0.25, 0.18, 20),
        (800, 0.1, 0.2, 0.2, 40),
        (300, 0.5, 0.09, 0.14, 10),  # a week saves half a dollar
    ],
    slips=[
        Slip("electricity forgotten", _weeks(saved=lambda power, rent, hours: hours * rent),
             "The electricity is missing. Your own card draws it in each hour, and the rent has it in."),
        Slip("rent and electricity", _weeks(saved=lambda power, rent, hours: hours * (rent + power)),
             "You added electricity and rent. Who buys saves the rent and pays the electricity: subtract."),
        Slip("the wrong way round", _weeks(saved=lambda power, rent, hours: hours * (power - rent)),
             "You took the rent off the electricity. An hour saves the owner the rent, less the electricity."),
        Slip("whichever is larger", _weeks(saved=lambda power, rent, hours: hours * abs(rent - power)),
             "Where electricity costs more than the rent, each hour of your own card loses money. The difference has "
             "a sign: there buying never gets cheaper, and 0 is to be returned."),
        Slip("nothing comes back", _weeks(lost=lambda price, back: price),
             "You lost the whole price. The share `back` comes back when the card is sold."),
        Slip("the share that comes back", _weeks(lost=lambda price, back: price * back),
             "You took the money that comes back. The hours have to pay for the rest, the share 1 - `back`."),
        Slip("back is dollars", _weeks(lost=lambda price, back: price - back),
             "You took `back` for dollars. It is a share of the price: 0.4 is 40 %."),
        Slip("hours, not weeks", _weeks(saved=lambda power, rent, hours: rent - power),
             "These are hours of use. The question asks for weeks, with `hours` of use in each."),
        Slip("around the clock", _weeks(saved=lambda power, rent, hours: 168 * (rent - power)),
             "You let the card work all 168 hours of a week. It works `hours` of them."),
        Slip("electricity around the clock", _weeks(saved=lambda power, rent, hours: hours * rent - 168 * power),
             "You pay for electricity all week. By this accounting the card draws it in the hours that it works."),
        Slip("brackets", lambda price, back, power, rent, hours: (
                 price * (1 - back) / hours * (rent - power) if rent > power else 0),
             "You divided by the hours alone and multiplied by the rest. Put what a week saves in brackets: "
             "`/ (hours * (rent - power))`."),
        Slip("years", _weeks(saved=lambda power, rent, hours: 52 * hours * (rent - power)),
             "These are years. The question asks for weeks."),
        Slip("upside down", lambda price, back, power, rent, hours: (
                 max(0.0, hours * (rent - power)) / (price * (1 - back))),
             "This is the share of the loss that one week pays for. The number of weeks is one over that."),
        Slip("never is negative", lambda price, back, power, rent, hours: (
                 price * (1 - back) / (hours * (rent - power)) if rent != power else 0),
             "Where electricity costs more than the rent, your number is negative. Buying never gets cheaper there: "
             "return 0."),
        Slip("never is infinite", _weeks(never=math.inf),
             "Where buying never gets cheaper, return 0, as the question says."),
        Slip("never is None", _weeks(never=None),
             "Where buying never gets cheaper, you return nothing, or `None`. Return 0."),
        Slip("rounded up", lambda *case: math.ceil(_break_even_weeks(*case)),
             "These are whole weeks, rounded up. Return the number as it comes out."),
        Slip("price and rent alone", _weeks(lambda price, back: price, lambda power, rent, hours: hours * rent),
             "This is price over rent. The electricity of your own card is missing, and the share that comes back."),
    ],
    takeaway="Half of 500 dollars, 20 hours a week at 13 cents saved in each: 96 weeks, nearly two years.",
)  # fmt: skip

# -- 4. a step with a frozen backbone --------------------------------------------------------------------------------


def _first(layers: Layers) -> int:
    return next(i for i, (_, _, trained) in enumerate(layers) if trained)


def _kept(layers: Layers, first: int) -> int:
    """Values of the maps kept for one sample: the outputs of the layers before `first` and after, but the last one."""
    return sum(outputs for _, outputs, _ in layers[max(0, first - 1) : -1])


def _frozen_step_bytes(layers: Layers, input_values: int, batch: int, optimizer: str) -> int:
    kept = _everything(layers) + (1 + STATES[optimizer]) * _learning(layers)
    return 4 * (kept + batch * (input_values + _needed(layers)))


def _everything(layers: Layers) -> int:
    return sum(parameters for parameters, _, _ in layers)


def _learning(layers: Layers) -> int:
    return sum(parameters for parameters, _, learns in layers if learns)


def _needed(layers: Layers) -> int:
    return _kept(layers, _first(layers))


def _step(
    weights: Callable[[Layers], int] = _everything,
    gradients: Callable[[Layers], int] = _learning,
    states: Callable[[Layers], int] = _learning,
    maps: Callable[[Layers], int] = _needed,
    sizes: Mapping[str, int] = STATES,
) -> Callable[[Layers, int, int, str], int]:
    """The rule with one of its terms replaced."""
    return lambda layers, inputs, batch, optimizer: (
        4 * (weights(layers) + gradients(layers) + sizes[optimizer] * states(layers) + batch * (inputs + maps(layers)))
    )


def _up_to_the_last_trained(layers: Layers) -> int:
    """Values of the inputs from the first trained layer up to the last one."""
    last = max(i for i, (_, _, learns) in enumerate(layers) if learns)
    return _needed(layers[: last + 1])


MIXED = [(100, 70, False), (200, 50, True), (300, 30, False), (400, 11, True)]

frozen_step_bytes = BytesCheck(
    "frozen_step_bytes",
    _frozen_step_bytes,
    cases=[
        ([(10, 7, False), (20, 5, False), (30, 3, True)], 9, 4, "momentum"),
        (MIXED, 90, 8, "adam"),
        (MIXED, 90, 1, "sgd"),
        ([(100, 70, True), (200, 50, False), (300, 30, False)], 90, 16, "momentum"),
        ([(500, 40, True), (600, 20, True)], 60, 3, "adam"),
        ([(14_714_688, 15_000_000, False), (123_642_856, 9_192, True)], 150_528, 64, "momentum"),
        ([(5, 3, False), (2, 1, True)], 4, 2, "adam"),
    ],
    slips=[
        Slip("frozen weights not counted", _step(weights=_learning),
             "The frozen weights are missing. They do not learn, but they still sit on the card."),
        Slip("gradients for all", _step(gradients=_everything, states=_everything),
             "You gave gradients and optimizer state to every layer. A frozen one has neither."),
        Slip("state for all", _step(states=_everything),
             "You gave optimizer state to every layer. It is made for a parameter when it first gets a gradient."),
        Slip("all maps kept", _step(maps=lambda layers: _kept(layers, 0)),
             "You kept the maps of the whole network. Below the first trained layer no gradient passes, so nothing "
             "there is kept."),
        Slip("maps of trained layers alone", _step(maps=lambda layers: sum(a[1] for a, b in pairwise(layers) if b[2])),
             "You kept the inputs of the trained layers alone. A frozen layer above a trained one must pass the "
             "gradient on, and in this accounting it keeps its input too."),
        Slip("outputs instead of inputs", _step(maps=lambda layers: sum(o for _, o, _ in layers[_first(layers) :])),
             "You kept outputs. What a layer keeps for its backward pass is here its input, the output before it."),
        Slip("every output", _step(maps=lambda layers: sum(outputs for _, outputs, _ in layers)),
             "You kept the output of every layer. Kept are inputs, from the first trained layer up; the last output is "
             "no layer's input."),
        Slip("the last output too", _step(maps=lambda layers: _needed(layers) + layers[-1][1]),
             "You kept the last layer's output as well. No layer reads it: kept are inputs."),
        Slip("no maps", _step(maps=lambda layers: 0),
             "The maps between the layers are missing: every layer from the first trained one up keeps its input."),
        Slip("batch forgotten",
             lambda layers, inputs, batch, optimizer: _frozen_step_bytes(layers, inputs, 1, optimizer),
             "The maps are those of one sample. Each sample of the batch has its own."),
        Slip("weights times batch",
             lambda layers, inputs, batch, optimizer: batch * _frozen_step_bytes(layers, inputs, 1, optimizer),
             "You multiplied everything by the batch. There is one set of weights, gradients and states, whatever the"
             " batch."),
        Slip("input forgotten",
             lambda layers, inputs, batch, optimizer: _frozen_step_bytes(layers, 0, batch, optimizer),
             "The batch of inputs is missing. It is on the card, whether or not the first layer learns."),
        Slip("Adam has one state", _step(sizes={"sgd": 0, "momentum": 1, "adam": 1}),
             "Adam keeps two running averages for every trained parameter; you counted one."),
        Slip("values, not bytes",
             lambda layers, inputs, batch, optimizer: _frozen_step_bytes(layers, inputs, batch, optimizer) // 4,
             "You counted values. In float32 each takes 4 bytes."),
        Slip("optimizer state forgotten", _step(states=lambda layers: 0),
             "The optimizer's state is missing: for each trained parameter one value with momentum, two with Adam."),
        Slip("the batch twice",
             lambda layers, inputs, batch, optimizer: _frozen_step_bytes(layers, inputs, batch, optimizer)
             + 4 * batch * inputs * layers[0][2],
             "Where the first layer of all is trained, you counted its input twice: it is the batch, which is there "
             "already."),
        Slip("maps up to the last trained layer", _step(maps=_up_to_the_last_trained),
             "You kept no maps above the last trained layer. The gradient comes down from the loss through every layer "
             "above a trained one, and in this accounting each keeps its input."),
        Slip("the root counted", _step(sizes={"sgd": 0, "momentum": 1, "adam": 3}),
             "You counted the root that Adam's update makes for a moment. The question leaves it out: Adam keeps two "
             "averages."),
        Slip("gradients forgotten", _step(gradients=lambda layers: 0),
             "The gradients are missing: one for each trained parameter, whatever the optimizer."),
    ],
    takeaway="Where the first trained layer is decides: in this accounting, every map from there up stays.",
)  # fmt: skip

check = CheckCell(globals())
