"""The checks of exercise 05, "1×1 convolutions": references, inputs, and the slips people make.

Memory in bytes, float32; arithmetic in multiply-adds; convolutions at stride 1 that keep the sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.shared.checks import BytesCheck
from lessons.shared.originals import BOTTLENECK, CLASSES
from lessons.shared.rebuilt import STRAIGHT, RebuildCheck

# -- 1. what a squeeze makes -------------------------------------------------------------------------------------------


def _after_squeeze(side: int, channels: int, squeezed: int) -> tuple[int, int]:
    return side * side * squeezed, channels * squeezed + squeezed


after_squeeze = Check(
    "after_squeeze",
    _after_squeeze,
    cases=[(64, 256, 96), (5, 3, 2), (14, 512, 64), (7, 10, 20)],
    slips=[
        Slip("bias forgotten", lambda side, channels, squeezed: (side * side * squeezed, channels * squeezed),
             "The values are right. Of the parameters the biases are missing, one for each kernel."),
        Slip("a kernel of 3 × 3",
             lambda side, channels, squeezed: (side * side * squeezed, 9 * channels * squeezed + squeezed),
             "These are the parameters of a 3 × 3 convolution. A 1 × 1 kernel has one weight for each channel it "
             "reads."),
        Slip("weights for every position",
             lambda side, channels, squeezed: (side * side * squeezed, side * side * channels * squeezed + squeezed,),
             "You gave each position its own weights: that would be a dense layer. A convolution uses the same kernel"
             " everywhere."),
        Slip("one weight for each kernel", lambda side, channels, squeezed: (side * side * squeezed, 2 * squeezed),
             "A kernel of 1 × 1 is one position wide, and `channels` deep: it has a weight for every channel it "
             "reads."),
        Slip("channels of the input",
             lambda side, channels, squeezed: (side * side * channels, channels * squeezed + squeezed),
             "These are the values of the map that goes in. What comes out has `squeezed` channels."),
        Slip("one side only", lambda side, channels, squeezed: (side * squeezed, channels * squeezed + squeezed),
             "A map has `side` rows and `side` columns."),
        Slip("both maps",
             lambda side, channels, squeezed: (side * side * (channels + squeezed), channels * squeezed + squeezed),
             "You added the map that goes in. It stays, but the squeeze does not put it out."),
        Slip("order exchanged", lambda side, channels, squeezed: _after_squeeze(side, channels, squeezed)[::-1],
             "The two numbers are in the other order: values first, then parameters."),
        Slip("bytes of the values",
             lambda side, channels, squeezed: (4 * side * side * squeezed, channels * squeezed + squeezed),
             "You counted bytes. The question asks for numbers: how many values, and how many parameters."),
        Slip("bytes of both",
             lambda side, channels, squeezed: (4 * side * side * squeezed, 4 * (channels * squeezed + squeezed)),
             "You counted bytes. The question asks for numbers: how many values, and how many parameters."),
        Slip("one bias", lambda side, channels, squeezed: (side * side * squeezed, channels * squeezed + 1),
             "You counted one bias. Each of the `squeezed` kernels has its own."),
    ],
    takeaway="24,672 parameters turn 1,048,576 values into 393,216: the cheapest kernel there is.",
)  # fmt: skip

# -- 2. what it adds and saves -----------------------------------------------------------------------------------------


def _bytes_added(batch: int, side: int, channels: int, squeezed: int, narrow: int) -> int:
    return 4 * batch * side**2 * (squeezed + narrow * (squeezed - channels))


bytes_added = BytesCheck(
    "bytes_added",
    _bytes_added,
    cases=[
        (2, 8, 6, 2, 0),
        (128, 56, 256, 64, 2),
        (3, 5, 10, 4, 1),
        (1, 7, 8, 4, 1),
        (4, 9, 12, 9, 3),
        (128, 112, 64, 32, 0),
    ],
    slips=[
        Slip("the wide map is gone",
             lambda n, side, channels, squeezed, narrow: (
                 4 * n * side**2 * (squeezed - channels + narrow * (squeezed - channels))
             ),
             "You replaced the map in front of the 1 × 1 by the squeezed one. It stays: the backward pass of the 1 × "
             "1 needs its input. The squeezed map comes on top."),
        Slip("the squeezed map is free",
             lambda n, side, channels, squeezed, narrow: 4 * n * side**2 * narrow * (squeezed - channels),
             "The squeezed map itself is missing: it is one more map than before."),
        Slip("narrow layers forgotten", lambda n, side, channels, squeezed, narrow: 4 * n * side**2 * squeezed,
             "You counted what the squeeze adds, and not what the layers that stay narrow save."),
        Slip("always one layer narrow",
             lambda n, side, channels, squeezed, narrow: _bytes_added(n, side, channels, squeezed, 1),
             "You let one layer stay narrow in every case. There are `narrow` of them, and there may be none."),
        Slip("the layer that widens counted",
             lambda n, side, channels, squeezed, narrow: _bytes_added(n, side, channels, squeezed, narrow + 1),
             "The layer that widens again produces `channels` channels as before: it saves nothing."),
        Slip("the narrow maps are free",
             lambda n, side, channels, squeezed, narrow: 4 * n * side**2 * (squeezed - narrow * channels),
             "The layers that stay narrow still put out maps, of `squeezed` channels."),
        Slip("the other way round",
             lambda n, side, channels, squeezed, narrow: -_bytes_added(n, side, channels, squeezed, narrow),
             "The sign is the wrong way round: yours is negative where bytes are added."),
        Slip("nothing without narrow layers",
             lambda n, side, channels, squeezed, narrow: narrow and _bytes_added(n, side, channels, squeezed, narrow),
             "Where no layer stays narrow you add nothing. The squeezed map is there all the same."),
        Slip("one side only",
             lambda n, side, channels, squeezed, narrow: 4 * n * side * (squeezed + narrow * (squeezed - channels)),
             "A map has `side` rows and `side` columns."),
        Slip("batch forgotten",
             lambda n, side, channels, squeezed, narrow: _bytes_added(1, side, channels, squeezed, narrow),
             "This is one image. Every image of the batch has its own maps."),
        Slip("values, not bytes",
             lambda n, side, channels, squeezed, narrow: n * side**2 * (squeezed + narrow * (squeezed - channels)),
             "You counted values. In float32 each takes 4 bytes."),
    ],
    takeaway="A squeeze that widens at once only adds. It pays once narrow layers save more than its own map.",
)  # fmt: skip

# -- 3. when the arithmetic pays ---------------------------------------------------------------------------------------


def _break_even(inputs: int, outputs: int, kernel: int) -> int:
    return (kernel**2 * inputs * outputs - 1) // (inputs + kernel**2 * outputs)


def _fraction(inputs: int, outputs: int, kernel: int) -> float:
    return kernel**2 * inputs * outputs / (inputs + kernel**2 * outputs)


break_even = Check(
    "break_even",
    _break_even,
    cases=[(64, 64, 3), (256, 64, 3), (10, 10, 3), (192, 32, 5), (18, 2, 3), (36, 12, 3), (60, 10, 5), (7, 2, 3)],
    slips=[
        Slip("not rounded", _fraction, "A number of channels is whole. Round down to the last one that still pays."),
        Slip("rounded up", lambda inputs, outputs, kernel: math.ceil(_fraction(inputs, outputs, kernel)),
             "You rounded up: with that many channels it no longer costs less."),
        Slip("as much counts as less",
             lambda inputs, outputs, kernel: (kernel**2 * inputs * outputs) // (inputs + kernel**2 * outputs),
             "Where both cost exactly the same, your number is one too many: asked is *fewer* multiply-adds."),
        Slip("the squeeze is free", lambda inputs, outputs, kernel: inputs - 1,
             "You left out the multiply-adds of the 1 × 1 convolution: inputs · m for every position."),
        Slip("kernel not squared",
             lambda inputs, outputs, kernel: (kernel * inputs * outputs - 1) // (inputs + kernel * outputs),
             "A kernel has kernel² weights for each pair of channels."),
        Slip("kernel forgotten", lambda inputs, outputs, kernel: (inputs * outputs - 1) // (inputs + outputs),
             "You counted the same weights for each pair of channels in both convolutions, one or kernel². The wide "
             "one has kernel² of them, the squeeze is 1 × 1."),
    ],
    takeaway="In front of a 3 × 3 nearly any squeeze saves arithmetic; memory is another question.",
)  # fmt: skip

# -- 4. a bottleneck ---------------------------------------------------------------------------------------------------


def _chain(parts: Sequence[tuple[int, int]], head: bool = True) -> nn.Module:
    """The first convolution of `wide`, then convolutions (kernel, outputs), then its head."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    inputs = 64
    for kernel, outputs in parts:
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *([nn.Linear(64, CLASSES)] if head else []))


GOOD = ((1, 16), (3, 16), (3, 16), (3, 64))


def _misfit() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def _padded() -> nn.Module:
    network = _chain(GOOD)
    network.get_submodule("2").padding = (1, 1)  # type: ignore[assignment]
    return network


def _frozen() -> nn.Module:
    network = _chain(GOOD)
    for parameter in list(network.parameters())[:4]:
        parameter.requires_grad_(False)
    return network


def _strided() -> nn.Module:
    network = _chain(GOOD)
    network.get_submodule("0").stride = (4, 4)  # type: ignore[assignment]
    return network


bottleneck = RebuildCheck(
    "bottleneck",
    BOTTLENECK,
    by_property={
        "misfit": Slip(
            "the next layer not told",
            _misfit,
            "Two layers do not fit each other: what follows the squeeze has to read as many channels as it produces.",
        ),
        "another output": Slip(
            "no dense layer",
            lambda: _chain(GOOD, head=False),
            "The output has another shape than the original's.",
        ),
        "other kernels": Slip(
            "a 3 × 3 left out",
            lambda: _chain(((1, 16), (3, 64))),
            "A convolution is missing. Keep the first one, a head that reads 64 channels, and four convolutions of "
            "3 × 3 altogether; at least one of 1 × 1 squeezes.",
        ),
        "straight": Slip(
            "no ReLU",
            lambda: nn.Sequential(*(one for one in _chain(GOOD).children() if not isinstance(one, nn.ReLU))),
            STRAIGHT,
        ),
        "grown": Slip(
            "a padded 1 × 1",
            _padded,
            "The maps have grown. A 1 × 1 reads one place at a time and needs no padding; with it every map gains two "
            "rows and two columns.",
        ),
        "risen": Slip(
            "a squeeze before each",
            lambda: _chain(((1, 16), (3, 64), (1, 16), (3, 64), (1, 16), (3, 64))),
            "The peak has risen. Each squeeze adds a map, and each 3 × 3 after it widens again at once. Stay narrow "
            "for more than one layer.",
        ),
        "untrained": Slip(
            "the start frozen",
            _frozen,
            "Not every parameter gets a gradient. All layers have to be trained.",
        ),
        "shrunk": Slip(
            "a stride",
            _strided,
            "The maps have become smaller. That is what strides and pools do; here the sides stay at 32 up to the "
            "average before the head.",
        ),
    },
    by_peak=[
        Slip(
            "one squeeze that widens at once",
            lambda: _chain(((1, 16), (3, 64), (3, 64), (3, 64))),
            "The squeeze adds a map, and the 3 × 3 after it has 64 channels again: nothing downstream is narrow.",
        ),
        Slip(
            "hardly a squeeze",
            lambda: _chain(((1, 48), (3, 48), (3, 48), (3, 64))),
            "Two layers stay narrow, but 48 channels are hardly narrower than 64. Squeeze harder.",
        ),
        Slip(
            "one layer narrow",
            lambda: _chain(((1, 32), (3, 32), (3, 64), (3, 64))),
            "One layer of half the width saves what the squeezed map adds. Stay narrow for longer, or squeeze harder.",
        ),
    ],
    takeaway="Two layers at a quarter of the width pay for the map that the squeeze adds, and then some.",
    batch=6,
)

check = CheckCell(globals())
