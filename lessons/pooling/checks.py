"""The checks of exercise 06, "Pooling": references, inputs, and the slips people make.

Memory in bytes; what a pool keeps in training is what PyTorch's kernels keep: its output, and for a max pool an int64
index beside each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.shared.checks import BytesCheck
from lessons.shared.originals import CLASSES, POOLED_WELL
from lessons.shared.rebuilt import CHANGED, STRAIGHT, RebuildCheck

# -- 1. what a pool keeps ----------------------------------------------------------------------------------------------


def _outputs(batch: int, channels: int, side: int, kernel: int, stride: int) -> int:
    return batch * channels * ((side - kernel) // stride + 1) ** 2


def _pool_keeps(kind: str, batch: int, channels: int, side: int, kernel: int, stride: int, value_bytes: int) -> int:
    return _outputs(batch, channels, side, kernel, stride) * (value_bytes + 8 * (kind == "max"))


def _keeping(each: Callable[[str, int], float]) -> Callable[..., float]:
    """Bytes kept where `each(kind, value_bytes)` bytes are kept for every output value."""
    return lambda kind, n, c, side, kernel, stride, v: _outputs(n, c, side, kernel, stride) * each(kind, v)


pool_keeps = BytesCheck(
    "pool_keeps",
    _pool_keeps,
    cases=[
        ("max", 2, 3, 8, 2, 2, 4),
        ("max", 128, 64, 224, 2, 2, 2),
        ("max", 4, 5, 14, 3, 2, 4),
        ("average", 2, 3, 8, 2, 2, 4),
        ("average", 3, 7, 10, 3, 2, 2),
        ("max", 1, 4, 56, 3, 2, 2),
        ("max", 1, 1, 3, 2, 1, 4),
        ("max", 2, 3, 12, 5, 3, 4),  # a third of a step is left over
    ],
    slips=[
        Slip("the index shrinks too", _keeping(lambda kind, v: v + 2 * v * (kind == "max")),
             "Right in float32 only. The index is an int64: 8 bytes, however short the values are."),
        Slip("index forgotten", _keeping(lambda kind, v: v),
             "The indices are missing. A max pool remembers for every output value where the maximum stood."),
        Slip("output forgotten", _keeping(lambda kind, v: 8 if kind == "max" else v),
             "For the max pool you counted the indices alone. Its output is kept too: the next layer needs it."),
        Slip("index of four bytes", _keeping(lambda kind, v: v + 4 * (kind == "max")),
             "An int64 has 64 bits: 8 bytes, not 4."),
        Slip("average pools remember too", _keeping(lambda kind, v: v + 8),
             "You counted an index for the average pool too (its `kind` is \"average\"). It has no winner to remember: "
             "every value of a window gets the same share of the gradient."),
        Slip("windows do not overlap",
             lambda kind, n, c, side, kernel, stride, v: n * c * (side // stride) ** 2 * (v + 8 * (kind == "max")),
             "`side // stride` counts windows of the stride's width. A window of `kernel` values that overlaps its "
             "neighbour has fewer places: (side − kernel) // stride + 1."),
        Slip("stride ignored",
             lambda kind, n, c, side, kernel, stride, v: n * c * (side // kernel) ** 2 * (v + 8 * (kind == "max")),
             "You placed windows side by side. They start `stride` values apart, and may overlap."),
        Slip("the input counted",
             lambda kind, n, c, side, kernel, stride, v: (
                 _pool_keeps(kind, n, c, side, kernel, stride, v) + n * c * side**2 * v
             ),
             "You counted the pool's input. It is kept anyway, by the layer that made it: the pool adds nothing to "
             "it."),
        Slip("the input taken off",
             lambda kind, n, c, side, kernel, stride, v: (
                 _pool_keeps(kind, n, c, side, kernel, stride, v) - n * c * side**2 * v
             ),
             "You took the pool's input off. It stays, for the layer that made it: the pool only adds."),
        Slip("what the pool makes smaller",
             lambda kind, n, c, side, kernel, stride, v: (
                 n * c * (side**2 - ((side - kernel) // stride + 1) ** 2) * (v + 8 * (kind == "max"))
             ),
             "You took the output from the input. The input stays for the layer that made it: the pool adds its output "
             "to what is kept."),
        Slip("values of four bytes", _keeping(lambda kind, v: 12 if kind == "max" else v),
             "For the max pool you took values of 4 bytes. How many a value has is `value_bytes`."),
        Slip("one side only",
             lambda kind, n, c, side, kernel, stride, v: (
                 n * c * ((side - kernel) // stride + 1) * (v + 8 * (kind == "max"))
             ),
             "You counted one row of windows. There are as many rows as columns: square the number of places."),
        Slip("average pools keep nothing", _keeping(lambda kind, v: v + 8 if kind == "max" else 0),
             "An average pool remembers no places, but it puts out a map like any other layer, and that is kept: "
             "`value_bytes` for each output value."),
        Slip("one place forgotten",
             lambda kind, n, c, side, kernel, stride, v: (
                 n * c * ((side - kernel) // stride) ** 2 * (v + 8 * (kind == "max"))),
             "One place too few in each row: you counted the steps. Before its first step the window has stood once "
             "already."),
    ],
    takeaway="In float16 a max pool keeps 10 bytes for each value of 2: the index outweighs the value four to one.",
)  # fmt: skip

# -- 2. where the gradient goes ----------------------------------------------------------------------------------------

Table = Sequence[Sequence[float]]
Choice = Callable[[list[float]], dict[int, float]]


def _routed(choose: Choice, flipped: bool = False) -> Callable[[Table, Table], list[list[float]]]:
    """The gradient of a 2 × 2 pool where `choose` gives the shares of a window's four values, row by row."""

    def route(values: Table, gradients: Table) -> list[list[float]]:
        routed = [[0.0 for _ in row] for row in values]
        for i, row in enumerate(gradients):
            for j, gradient in enumerate(row):
                places = [(2 * i + a, 2 * j + b) for a in (0, 1) for b in (0, 1)]
                shares = choose([values[r][c] for r, c in places])
                for index, share in shares.items():
                    r, c = places[index]
                    if flipped:
                        r, c = 2 * i + c % 2, 2 * j + r % 2
                    routed[r][c] += share * gradient
        return routed

    return route


def _first(window: list[float]) -> dict[int, float]:
    return {window.index(max(window)): 1.0}


def _winners(window: list[float]) -> list[int]:
    return [i for i, value in enumerate(window) if value == max(window)]


route = Check(
    "route",
    _routed(_first),
    cases=[
        ([[1, 5], [3, 2]], [[10]]),
        ([[1, 2, 0, 9], [4, 3, 8, 7], [6, 1, 2, 1], [0, 5, 3, 4]], [[1, 2], [3, 4]]),
        ([[7, 7, 1, 2], [7, 0, 2, 2]], [[5, -3]]),
        ([[-4, -1, 0, 0], [-2, -3, 0, 0]], [[6, 8]]),
    ],
    slips=[
        Slip("spread evenly", _routed(lambda window: dict.fromkeys(range(4), 0.25)),
             "You spread each gradient over its window: that is an average pool. A max pool passes on one value of "
             "four, and only that one gets the gradient."),
        Slip("everybody gets it all", _routed(lambda window: dict.fromkeys(range(4), 1.0)),
             "All four values of a window get the whole gradient. Three of them had no part in the output."),
        Slip("all winners", _routed(lambda window: dict.fromkeys(_winners(window), 1.0)),
             "Where the maximum stands twice, you gave the gradient to both. There is one index for each window, so "
             "one winner: the first, row by row."),
        Slip("shared among the winners",
             _routed(lambda window: {i: 1 / len(_winners(window)) for i in _winners(window)}),
             "Where the maximum stands twice, you shared the gradient. There is one index for each window: the first."),
        Slip("the last winner", _routed(lambda window: {_winners(window)[-1]: 1.0}),
             "Where the maximum stands twice you took the last place (`>=` where `>` is meant?). Asked is the first."),
        Slip("the smallest", _routed(lambda window: {window.index(min(window)): 1.0}),
             "The gradient went to the smallest value of each window."),
        Slip("the largest magnitude", _routed(lambda window: {max(range(4), key=lambda i: abs(window[i])): 1.0}),
             "Right for values of 0 and more. The maximum of −4, −1, −2, −3 is −1: do not start from 0, and "
             "do not drop the signs."),
        Slip("rows and columns exchanged", _routed(_first, flipped=True),
             "Inside the windows rows and columns are exchanged: a maximum at the top right got its gradient at the "
             "bottom left."),
        Slip("multiplied by the value",
             lambda values, gradients: [
                 [share * value for share, value in zip(shares, row, strict=True)]
                 for shares, row in zip(_routed(_first)(values, gradients), values, strict=True)
             ],
             "You multiplied by the value. A maximum hands its value on unchanged, so its slope is 1."),
    ],
    takeaway="One place of four gets the gradient, and only the index knows which: that is what the 8 bytes are for.",
)  # fmt: skip

# -- 3. does the pool pay? ---------------------------------------------------------------------------------------------


def _pool_balance(batch: int, channels: int, side: int, size: int, later: Sequence[int]) -> int:
    small = (side // size) ** 2
    return batch * (4 * sum(later) * (side**2 - small) - 12 * channels * small)


pool_balance = BytesCheck(
    "pool_balance",
    _pool_balance,
    cases=[
        (2, 4, 8, 2, [6, 6]),
        (128, 64, 224, 2, [128, 128]),
        (3, 50, 12, 2, [1, 2]),
        (1, 8, 9, 3, [5, 7, 2]),
        (4, 16, 8, 4, [16]),
        (5, 6, 10, 2, []),
    ],
    slips=[
        Slip("indices forgotten",
             lambda n, c, side, size, later: (
                 n * 4 * (sum(later) * (side**2 - (side // size) ** 2) - c * (side // size) ** 2)
             ),
             "The pool's indices are missing: 8 bytes beside each value it puts out."),
        Slip("the pool itself is free",
             lambda n, c, side, size, later: n * 4 * sum(later) * (side**2 - (side // size) ** 2),
             "You counted what the later maps save, and not what the pool itself adds: its output and its indices."),
        Slip("output forgotten",
             lambda n, c, side, size, later: (
                 n * (4 * sum(later) * (side**2 - (side // size) ** 2) - 8 * c * (side // size) ** 2)
             ),
             "You counted 8 bytes for each output of the pool: the index alone, or value and index at 4 each. The "
             "index is an int64, and the output is another map that is kept."),
        Slip("its input disappears",
             lambda n, c, side, size, later: _pool_balance(n, c, side, size, later) + 4 * n * c * side**2,
             "You counted the pool's input as saved. It was made before the pool, and stays."),
        Slip("the pool's bytes added",
             lambda n, c, side, size, later: _pool_balance(n, c, side, size, later) + 24 * n * c * (side // size) ** 2,
             "What the pool itself keeps costs memory: take it off what the later maps save."),
        Slip("four layers of data",
             lambda n, c, side, size, later: n * (4 * sum(later[: size**2]) * side**2 - 12 * c * (side // size) ** 2),
             "No map disappears: each of the later ones stays, with fewer values. This is the claim of the four "
             "layers."),
        Slip("one side only",
             lambda n, c, side, size, later: (
                 n * (4 * sum(later) * (side**2 - side * (side // size)) - 12 * c * side * (side // size))
             ),
             "Both sides of a map shrink, so its values shrink by the square of `size`."),
        Slip("the other way round", lambda n, c, side, size, later: -_pool_balance(n, c, side, size, later),
             "The sign is the wrong way round: yours is negative where memory is saved."),
        Slip("without its sign", lambda n, c, side, size, later: abs(_pool_balance(n, c, side, size, later)),
             "You dropped the sign. A pool with little behind it costs more than it saves: the balance is below 0."),
        Slip("what is left", lambda n, c, side, size, later: n * (4 * sum(later) + 12 * c) * (side // size) ** 2,
             "This is what is kept with the pool. Asked is the difference that the pool makes."),
        Slip("batch forgotten", lambda n, c, side, size, later: _pool_balance(1, c, side, size, later),
             "This is one image. Every image of the batch has its own maps."),
    ],
    takeaway="A pool is an investment: it adds 12 bytes a value at once, and every map behind it pays back.",
)  # fmt: skip

# -- 4. where the pools go ---------------------------------------------------------------------------------------------

WIDTHS = (16, 16, 32, 32, 64, 64)


def _with_pools(places: Sequence[int], make: Callable[[int], nn.Module] = nn.MaxPool2d, head: bool = True) -> nn.Module:
    """`pooled_late` with pools behind these of its convolutions, counted from 1; one named twice has two."""
    layers: list[nn.Module] = []
    inputs = 3
    for index, width in enumerate(WIDTHS, start=1):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        layers += [make(2) for _ in range(list(places).count(index))]
        inputs = width
    return nn.Sequential(*layers, *([nn.Flatten(), nn.Linear(64 * 4 * 4, CLASSES)] if head else [nn.Flatten()]))


def _fewer_channels() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(8), nn.Flatten(), nn.Linear(8 * 4 * 4, CLASSES)
    )  # fmt: skip


def _frozen() -> nn.Module:
    network = _with_pools((1, 2, 4))
    for parameter in list(network.parameters())[:8]:
        parameter.requires_grad_(False)
    return network


pooled_well = RebuildCheck(
    "pooled_well",
    POOLED_WELL,
    by_property={
        "misfit": Slip(
            "a pool too many",
            lambda: _with_pools((1, 2, 3, 4)),
            "The maps that reach the dense layer do not have its size. Each pool of 2 × 2 halves a side: from 32 to 4 "
            "takes three of them.",
        ),
        "another output": Slip(
            "no dense layer",
            lambda: _with_pools((1, 2, 4), head=False),
            "The output has another shape than the original's.",
        ),
        "other kernels": Slip(
            "a smaller network",
            _fewer_channels,
            "The parameters are not the original's. Move pools; keep the six convolutions and the dense layer.",
        ),
        "straight": Slip(
            "no ReLU",
            lambda: nn.Sequential(*(one for one in _with_pools((1, 2, 4)).children() if not isinstance(one, nn.ReLU))),
            STRAIGHT,
        ),
        "images changed": Slip(
            "images pooled",
            lambda: nn.Sequential(nn.AvgPool2d(2), *_with_pools((2, 4)).children()),
            CHANGED,
        ),
        "untrained": Slip(
            "the start frozen",
            _frozen,
            "Not every parameter gets a gradient. All layers have to be trained.",
        ),
    },
    by_peak=[
        Slip(
            "average pools in the old places",
            lambda: _with_pools((4, 6, 6), nn.AvgPool2d),
            "Average pools save the indices, and no more: the maps in front of them are as large as before. Move them.",
        ),
        Slip(
            "only the last pair parted",
            lambda: _with_pools((4, 5, 6)),
            "You parted the last two pools. The wide maps at the start, where most memory is, do not notice.",
        ),
        Slip(
            "one pool moved",
            lambda: _with_pools((2, 4, 6)),
            "Pools spread evenly are better than late ones. The first two maps still have their full size, and they "
            "are the largest.",
        ),
        Slip(
            "nothing moved",
            lambda: _with_pools((4, 6, 6)),
            "This is the network as it was.",
        ),
    ],
    takeaway="The earlier a pool, the more maps stand behind it. What it costs in accuracy is for the digits to say.",
)

check = CheckCell(globals())
