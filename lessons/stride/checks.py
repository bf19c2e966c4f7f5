"""The checks of exercise 04, "Stride": references, inputs, and the slips people make.

Sides are in values, memory in bytes, float32. The size of a strided convolution's output is that of
`torch.nn.Conv2d` with dilation 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.shared.checks import BytesCheck
from lessons.shared.originals import CLASSES, STRIDED
from lessons.shared.rebuilt import CHANGED, STRAIGHT, RebuildCheck

# -- 1. the size of the output -----------------------------------------------------------------------------------------


def _output_side(side: int, kernel: int, stride: int, padding: int) -> int:
    return (side + 2 * padding - kernel) // stride + 1


output_side = Check(
    "output_side",
    _output_side,
    cases=[(224, 3, 2, 1), (224, 11, 4, 2), (227, 11, 4, 0), (14, 3, 2, 1), (9, 3, 3, 0), (7, 1, 2, 0), (32, 5, 1, 2),
        (8, 3, 2, 0),
    ],
    slips=[
        Slip("side divided by stride", lambda side, kernel, stride, padding: side // stride,
             "`side // stride` is right only where kernel and padding happen to match. Count the positions of the "
             "kernel's left edge."),
        Slip("one position forgotten", lambda side, kernel, stride, padding: (side + 2 * padding - kernel) // stride,
             "One too few everywhere: you counted the steps. Before its first step the kernel has stood once already."),
        Slip("padding on one side", lambda side, kernel, stride, padding: (side + padding - kernel) // stride + 1,
             "The padding is missing on one side: it is added left and right, top and bottom."),
        Slip("padding forgotten", lambda side, kernel, stride, padding: (side - kernel) // stride + 1,
             "The padding is missing: the kernel slides over `side + 2 * padding` values."),
        Slip("rounded up", lambda side, kernel, stride, padding: math.ceil((side + 2 * padding - kernel) / stride) + 1,
             "You rounded up. A last step that would carry the kernel over the edge is not taken: round down."),
        Slip("rounded to the nearest",
             lambda side, kernel, stride, padding: math.floor((side + 2 * padding - kernel) / stride + 0.5) + 1,
             "You rounded to the nearest whole number. Half a step or more is no step either: round down."),
        Slip("not rounded", lambda side, kernel, stride, padding: (side + 2 * padding - kernel) / stride + 1,
             "Where the last step does not fit, your side is not a whole number. Round down."),
        Slip("kernel forgotten", lambda side, kernel, stride, padding: (side + 2 * padding - 1) // stride + 1,
             "The kernel's own width is missing: its left edge stops `kernel` values before the end."),
        Slip("one added before dividing",
             lambda side, kernel, stride, padding: (side + 2 * padding - kernel + 1) // stride,
             "The 1 is added too early. Divide the way by the stride first, then add the position it starts from."),
        Slip("kernel left out", lambda side, kernel, stride, padding: (side + 2 * padding) // stride + 1,
             "The kernel's own width is missing: its left edge stops `kernel` values before the end."),
        Slip("kernel left out, and no first position",
             lambda side, kernel, stride, padding: (side + 2 * padding) // stride,
             "The kernel's own width is missing: its left edge stops `kernel` values before the end."),
        Slip("rounded by round()",
             lambda side, kernel, stride, padding: round((side + 2 * padding - kernel) / stride) + 1,
             "You rounded to the nearest whole number. Half a step or more is no step either: round down."),
        Slip("padding forgotten, and one position", lambda side, kernel, stride, padding: (side - kernel) // stride,
             "Neither the padding nor the position from which the kernel starts is counted: it slides over `side + 2 "
             "* padding` values."),
    ],
    takeaway="AlexNet's first layer makes 55 positions of 224: it rounds down, and a column of padding is left.",
)  # fmt: skip

# -- 2. what a stride saves downstream ---------------------------------------------------------------------------------

Maps = Sequence[tuple[int, int]]


def _strided(side: int, stride: int) -> int:
    return -(-side // stride)


def _bytes_saved(batch: int, maps: Maps, first: int, stride: int) -> int:
    return 4 * batch * sum(c * (side**2 - _strided(side, stride) ** 2) for c, side in maps[first:])


def _saved(shrunk: Callable[[int, int], float], begin: int = 0) -> Callable[[int, Maps, int, int], float]:
    """Bytes saved where `shrunk(side, stride)` stands for the values of a channel, from `first + begin` on."""
    return lambda batch, maps, first, stride: (
        4 * batch * sum(c * (side**2 - shrunk(side, stride)) for c, side in maps[max(0, first + begin) :])
    )


bytes_saved = BytesCheck(
    "bytes_saved",
    _bytes_saved,
    cases=[
        (2, [(4, 8), (6, 8), (10, 4)], 1, 2),
        (128, [(64, 224), (64, 224), (128, 112), (128, 112)], 1, 2),
        (3, [(5, 12), (7, 6), (8, 6), (9, 3)], 2, 4),
        (1, [(3, 15), (4, 15), (5, 5), (2, 5), (3, 4)], 2, 3),
        (5, [(2, 9), (3, 9), (6, 7)], 1, 2),
    ],
    slips=[
        Slip("the layer alone",
             lambda batch, maps, first, stride: _bytes_saved(batch, maps[first : first + 1], 0, stride),
             "This is the strided layer alone. Every map after it is smaller too."),
        Slip("its input included", _saved(lambda side, stride: _strided(side, stride) ** 2, -1),
             "You shrank the input of the strided layer as well. It was made before, and has to be kept as it is."),
        Slip("its own output left out", _saved(lambda side, stride: _strided(side, stride) ** 2, 1),
             "The strided layer's own output is missing: it is the first map that shrinks."),
        Slip("all maps", lambda batch, maps, first, stride: _bytes_saved(batch, maps, 0, stride),
             "You shrank every map of the network. Those before the strided layer stay."),
        Slip("s in place of s squared", _saved(lambda side, stride: side * _strided(side, stride)),
             "The stride skips rows *and* columns: both sides shrink, so the values shrink by the square."),
        Slip("what is left",
             lambda batch, maps, first, stride: (
                 4 * batch * sum(c * _strided(side, stride) ** 2 for c, side in maps[first:])
             ),
             "This is what the shrunken maps still take. Asked is what is saved."),
        Slip("rounded down", _saved(lambda side, stride: (side // stride) ** 2),
             "Right where the stride divides the side. With a 3 × 3 kernel and padding 1, 9 values at stride 2 give 5"
             " positions, not 4."),
        Slip("divided without rounding", _saved(lambda side, stride: side**2 / stride**2),
             "You divided the values by s². A side is a whole number of positions: round each side, then square."),
        Slip("batch forgotten", lambda batch, maps, first, stride: _bytes_saved(1, maps, first, stride),
             "This is one image. Every image of the batch has its own maps."),
        Slip("values, not bytes", lambda batch, maps, first, stride: _bytes_saved(batch, maps, first, stride) // 4,
             "You counted values. A float32 value takes 4 bytes."),
    ],
    takeaway="What a stride saves lies downstream, its own output included; the input it skips through stays whole.",
)  # fmt: skip

# -- 3. s² promised, what comes of it ----------------------------------------------------------------------------------


def _times_smaller(fixed_bytes: int, maps_bytes: Sequence[int], first: int, stride: int) -> float:
    before = fixed_bytes + sum(maps_bytes)
    return before / (fixed_bytes + sum(maps_bytes[:first]) + sum(maps_bytes[first:]) / stride**2)


times_smaller = Check(
    "times_smaller",
    _times_smaller,
    cases=[
        (1000, [800, 400, 200, 100], 1, 2),
        (1_660_000_000, [1_644_167_168, 1_644_167_168, 822_083_584, 411_041_792], 0, 2),
        (0, [500, 300], 1, 3),
        (900, [100, 100, 700], 2, 4),
        (50, [640, 320, 160], 0, 4),
    ],
    slips=[
        Slip("the square of the stride", lambda fixed, maps, first, stride: stride**2,
             "s² is the factor of one layer's output. The whole is a sum, and only some of its terms shrink."),
        Slip("fixed bytes left out", lambda fixed, maps, first, stride: _times_smaller(0, maps, first, stride),
             "The fixed bytes are missing. Parameters, gradients and optimizer state are there before and after."),
        Slip("fixed bytes shrunk too",
             lambda fixed, maps, first, stride: (
                 (fixed + sum(maps)) / (fixed / stride**2 + sum(maps[:first]) + sum(maps[first:]) / stride**2)
             ),
             "You shrank the fixed bytes with the maps. A kernel has the same weights at any stride."),
        Slip("all maps shrunk", lambda fixed, maps, first, stride: _times_smaller(fixed, maps, 0, stride),
             "You shrank every map. Those before layer `first` stay as they are."),
        Slip("only its own map shrunk",
             lambda fixed, maps, first, stride: (
                 (fixed + sum(maps)) / (fixed + sum(maps) - maps[first] * (1 - 1 / stride**2))
             ),
             "You shrank the map of layer `first` alone. Every map after it shrinks too."),
        Slip("counted from the next layer",
             lambda fixed, maps, first, stride: _times_smaller(fixed, maps, first + 1, stride),
             "Layer `first` is the strided one: its own output is the first to shrink, not the one after it."),
        Slip("s in place of s squared",
             lambda fixed, maps, first, stride: (
                 (fixed + sum(maps)) / (fixed + sum(maps[:first]) + sum(maps[first:]) / stride)
             ),
             "You divided by the stride. It skips rows and columns, so a map shrinks by its square."),
        Slip("upside down", lambda fixed, maps, first, stride: 1 / _times_smaller(fixed, maps, first, stride),
             "This is after divided by before. Asked is how many times *smaller* it becomes: before divided by after."),
    ],
    takeaway="The factor lies between 1 and s², and the bytes that the stride does not reach decide where.",
)  # fmt: skip

# -- 4. stride in place of pools ---------------------------------------------------------------------------------------


def _rebuilt(strides: Sequence[int], pools: Sequence[str], skip: int | None = None) -> nn.Module:
    """`pooled` with these strides of its five convolutions and these pools: "max", "average" or "" for none."""
    layers: list[nn.Module] = []
    inputs = 3
    for index, (width, stride) in enumerate(zip((16, 16, 32, 32, 64), strides, strict=True)):
        if index != skip:
            layers += [nn.Conv2d(inputs, width, 3, stride, padding=1), nn.ReLU()]
            inputs = width
        if index in (1, 3, 4):
            kind = pools[(1, 3, 4).index(index)]
            if kind:
                layers.append(nn.MaxPool2d(2) if kind == "max" else nn.AvgPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES))


def _without_relu(strides: Sequence[int]) -> nn.Module:
    return nn.Sequential(*(one for one in _rebuilt(strides, ("", "", "")).children() if not isinstance(one, nn.ReLU)))


def _frozen_start() -> nn.Module:
    network = _rebuilt((1, 2, 1, 2, 2), ("", "", ""))
    for parameter in network[:4].parameters():  # type: ignore[index]
        parameter.requires_grad_(False)
    return network


strided = RebuildCheck(
    "strided",
    STRIDED,
    by_property={
        "misfit": Slip(
            "pools kept",
            lambda: _rebuilt((1, 2, 1, 2, 2), ("max", "max", "max")),
            "The maps that reach the dense layer do not have its size. Each place is to halve the sides once: by its "
            "pool or by a stride, not by both, and not by neither.",
        ),
        "another output": Slip(
            "no dense layer",
            lambda: nn.Sequential(*list(_rebuilt((1, 2, 1, 2, 2), ("", "", "")).children())[:-1]),
            "The output has another shape than the original's.",
        ),
        "other kernels": Slip(
            "a convolution left out",
            lambda: _rebuilt((1, 1, 1, 2, 2), ("max", "", ""), skip=0),
            "The parameters are not the original's. A stride changes none of them: keep all five convolutions and the "
            "dense layer with their channels and kernels.",
        ),
        "straight": Slip(
            "no ReLU",
            lambda: _without_relu((1, 2, 1, 2, 2)),
            STRAIGHT,
        ),
        "images changed": Slip(
            "images pooled",
            lambda: nn.Sequential(nn.MaxPool2d(2), *_rebuilt((1, 1, 1, 1, 1), ("", "max", "max")).children()),
            CHANGED,
        ),
        "untrained": Slip(
            "the start frozen",
            _frozen_start,
            "Not every parameter gets a gradient. The first layers have to be trained as well.",
        ),
    },
    by_peak=[
        Slip(
            "average pools",
            lambda: _rebuilt((1,) * 5, ("average",) * 3),
            "Average pools drop the indices and keep every wide map: the convolution before the pool still makes its "
            "output at full size. A stride makes it small from the start.",
        ),
        Slip(
            "only the last pool",
            lambda: _rebuilt((1, 1, 1, 1, 2), ("max", "max", "")),
            "You replaced the last pool, where the maps are smallest. Ask which map is the widest.",
        ),
        Slip(
            "only the late pools",
            lambda: _rebuilt((1, 1, 1, 2, 2), ("max", "", "")),
            "You replaced the later pools. The first one stands behind the widest maps of the network.",
        ),
        Slip(
            "only the first pool",
            lambda: _rebuilt((1, 2, 1, 1, 1), ("", "max", "max")),
            "The first pool has gone, which is the largest part of it. Replace the next one as well: its indices and "
            "its second map are what is still too much.",
        ),
        Slip(
            "nothing changed",
            lambda: _rebuilt((1,) * 5, ("max",) * 3),
            "This is the network as it was.",
        ),
    ],
    takeaway="Where a stride stands in for a pool there is no index and no second map; what the maximum did is now up "
    "to the kernels.",
)

check = CheckCell(globals())
