"""The checks of exercise 09, "Offload to CPU memory": references, inputs, and the slips people make.

The schedule of question 4 is that of Rhu et al., "vDNN" (MICRO-49, 2016), for a chain of layers, as
`course_utils.techniques.offload.simulation` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.offload.behaviour import keep_outside as keep_outside

# -- 1. seconds of a copy ----------------------------------------------------------------------------------------------


def _copy_seconds(batch: int, channels: int, height: int, width: int, gb_s: float) -> float:
    return 4 * batch * channels * height * width / (gb_s * 1e9)


def _copy_times(factor: float, batchless: bool = False) -> Callable[..., float]:
    """The right time, off by a factor; or for one image."""
    return lambda n, c, h, w, rate: factor * _copy_seconds(1 if batchless else n, c, h, w, rate)


copy_seconds = Check(
    "copy_seconds",
    _copy_seconds,
    cases=[(128, 64, 224, 224, 11.8), (1, 3, 8, 8, 10.0), (32, 512, 14, 14, 31.5), (256, 256, 56, 28, 6.0)],
    slips=[
        Slip("values, not bytes", _copy_times(1 / 4),
             "You divided a number of values by bytes a second. A float32 value has 4 bytes."),
        Slip("there and back", _copy_times(2), "This is the way out and back. The question asks for one way."),
        Slip("GiB", _copy_times(1e9 / 2**30),
             "You took a GB of a link for 2**30 bytes. Rates are decimal: 1 GB/s is 10**9 bytes a second."),
        Slip("bits", _copy_times(8), "You counted bits. The rate is in bytes a second: a large B."),
        Slip("milliseconds", _copy_times(1e3), "These are milliseconds. Return seconds."),
        Slip("a second for every byte", _copy_times(1e9),
             "A rate in GB/s has to become bytes a second before you divide by it: times 10**9."),
        Slip("one image", _copy_times(1, batchless=True),
             "This is the map of one image. The maps of the whole batch move."),
    ],
    takeaway="The map of VGG-16's conv1_1, batch 128, takes 0.14 s at 11.8 GB/s, and conv1_2 runs for 0.11 s.",
)  # fmt: skip

# -- 2. a copy beside a convolution ------------------------------------------------------------------------------------


def _ratio(
    kernel: int,
    stride: int,
    read: int,
    written: int,
    side: int,
    batch: int,
    tflop_s: float,
    gb_s: float,
) -> float:
    count = 4 * batch * read * side**2
    operations = 2 * kernel**2 * read * written * batch * (side / stride) ** 2
    return (count / (gb_s * 1e9)) / (operations / (tflop_s * 1e12))


def _other_ratio(factor: Callable[..., float]) -> Callable[..., float]:
    """The right ratio times a factor of kernel, stride, read, written and side."""
    return lambda k, s, read, written, side, *rest: (
        factor(k, s, read, written, side) * _ratio(k, s, read, written, side, *rest)
    )


copy_over_kernel = Check(
    "copy_over_kernel",
    _ratio,
    cases=[
        (3, 1, 64, 64, 224, 128, 4.4, 11.8),
        (3, 1, 256, 512, 28, 64, 4.4, 11.8),
        (1, 1, 192, 32, 28, 128, 4.4, 10.0),
        (11, 4, 3, 64, 224, 128, 6.6, 6.0),
        (5, 2, 16, 40, 30, 7, 1.5, 31.5),
    ],
    slips=[
        Slip("twice", _other_ratio(lambda k, s, r, w, side: 2),
             "Twice too large. A multiplication and an addition are two operations, and one way of the copy runs "
             "beside the forward pass."),
        Slip("values, not bytes", _other_ratio(lambda k, s, r, w, side: 1 / 4),
             "Four times too small: bytes move, and a float32 value has 4."),
        Slip("the way round", lambda *arguments: 1 / _ratio(*arguments),
             "This is the kernel's time over the copy's. Turn it over: above 1 means that the copy does not hide."),
        Slip("stride forgotten", _other_ratio(lambda k, s, r, w, side: 1 / s**2),
             "Right at stride 1. With a stride of s the convolution has s² times fewer outputs, and computes as much "
             "less."),
        Slip("stride counted once", _other_ratio(lambda k, s, r, w, side: 1 / s),
             "A stride thins out rows and columns: it counts squared."),
        Slip("kernel not squared", _other_ratio(lambda k, s, r, w, side: k),
             "Each output looks at kernel × kernel positions, not at a row of them."),
        Slip("written channels forgotten", _other_ratio(lambda k, s, r, w, side: w),
             "Every one of the `written` channels is computed: they are a factor of the operations."),
        Slip("read channels forgotten", _other_ratio(lambda k, s, r, w, side: r),
             "An output is a sum over all channels that are read: they are a factor of the operations."),
        Slip("the output copied", _other_ratio(lambda k, s, r, w, side: w / r / s**2),
             "You copied what the layer writes. What leaves beside it is what it reads: nobody changes that "
             "meanwhile."),
    ],
    takeaway="Batch, image and channels read cancel: what decides is k² · channels written, and the machine.",
)  # fmt: skip

# -- 3. the slowest link that will do ----------------------------------------------------------------------------------

Layers = Sequence[tuple[int, float]]


def _rates(layers: Layers) -> list[float]:
    return [count / seconds for count, seconds in layers]


least_link = Check(
    "least_link",
    lambda layers: max(_rates(layers)),
    cases=[
        ([(1_644_167_168, 0.120), (1_644_167_168, 0.0114), (411_041_792, 0.060)],),
        ([(100, 1.0), (900, 3.0), (50, 0.125), (3, 0.01)],),
        ([(8, 2.0)],),
        ([(0, 0.001), (70, 0.7), (600, 5.0), (90, 0.8)],),
        ([(4, 2.0), (9, 3.0)],),
        ([(7, 2.0), (3, 1.0)],),  # 3.5
    ],
    slips=[
        Slip("all bytes over all seconds",
             lambda layers: sum(count for count, _ in layers) / sum(seconds for _, seconds in layers),
             "This is all bytes over all seconds: enough if copies may lag behind any number of layers. Here each has"
             " to hide behind its own."),
        Slip("the mean rate", lambda layers: sum(_rates(layers)) / len(layers),
             "This is the mean of the layers' rates. With it the copies beside some layers are late."),
        Slip("the least rate", lambda layers: min(_rates(layers)),
             "With this rate the copy beside one layer hides, the easiest. All of them have to."),
        Slip("the largest map",
             lambda layers: (
                 max(layers, key=lambda layer: (layer[0], layer[1]))[0]
                 / max(layers, key=lambda layer: (layer[0], layer[1]))[1]
             ),
             "You took the largest map. A smaller one beside a much shorter layer may need a faster link."),
        Slip("the shortest layer",
             lambda layers: min(layers, key=lambda layer: layer[1])[0] / min(layers, key=lambda layer: layer[1])[1],
             "You took the shortest layer. What counts is bytes for each second, layer by layer."),
        Slip("most bytes over fewest seconds",
             lambda layers: max(count for count, _ in layers) / min(seconds for _, seconds in layers),
             "You divided the largest map by the shortest layer, but these are two layers. Divide within each."),
        Slip("the sum of rates", lambda layers: sum(_rates(layers)),
             "You added the layers' rates up. The copies come one after another, so each has the whole link."),
        Slip("GB/s", lambda layers: max(_rates(layers)) / 1e9, "This is in GB/s. Return bytes a second."),
    ],
    takeaway="One pool sets the demand: for VGG-16 the link would have to be twelve times as fast as PCIe 3.0.",
    parts=True,
)  # fmt: skip

# -- 4. the time of a step on two streams ------------------------------------------------------------------------------

Seconds = Sequence[float]


def _beside(kernels: Seconds, copies: Seconds) -> float:
    return sum(max(kernel, copy) for kernel, copy in zip(kernels, copies, strict=True))


def _two_streams(forward: Seconds, backward: Seconds, copies: Seconds) -> float:
    return _beside(forward, copies) + copies[-1] + _beside(backward, [0.0, *copies[:-1]])


two_streams = Check(
    "two_streams",
    _two_streams,
    cases=[
        ([3.0, 4.0, 5.0], [6.0, 8.0, 9.0], [2.0, 6.0, 1.0]),
        ([3.0, 4.0], [3.0, 4.0], [2.0, 6.0]),
        ([0.5, 1.0, 0.25, 2.0], [1.0, 2.0, 0.5, 4.0], [0.0, 3.0, 3.0, 0.0]),
        ([1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0], [4.0, 0.5, 3.0, 1.5]),
        ([7.0], [9.0], [2.0]),
        ([1.0, 1.0], [2.0, 2.0], [0.5, 3.0]),
        ([0.25, 3.0], [0.5, 6.0], [1.0, 2.0]),  # beside the first layer's backward kernels comes nothing
    ],
    slips=[
        Slip("nothing beside anything", lambda f, b, c: sum(f) + sum(b) + 2 * sum(c),
             "You added up everything. Kernels and copies are on two streams: what runs beside something longer costs"
             " nothing."),
        Slip("all of it hides", lambda f, b, c: max(sum(f) + sum(b), 2 * sum(c)),
             "This is the best any schedule could do. Here a layer waits for the copy of the layer before: take the "
             "longer of the two layer by layer."),
        Slip("each pass hides", lambda f, b, c: max(sum(f), sum(c)) + max(sum(b), sum(c)),
             "You compared the sums of each pass. A layer waits for the copy of the layer before: take the longer of "
             "the two layer by layer."),
        Slip("the last map is there", lambda f, b, c: _beside(f, c) + _beside(b, [0.0, *c[:-1]]),
             "What the last layer needs is missing: it comes back before the backward pass begins, beside nothing."),
        Slip("its own map in the backward pass", lambda f, b, c: _beside(f, c) + _beside(b, c),
             "In your backward pass each layer's own map comes back beside it. It has to be there when the layer "
             "begins: beside it comes the map of the layer before."),
        Slip("the layer after", lambda f, b, c: _beside(f, c) + c[0] + _beside(b, [*c[1:], 0.0]),
             "Your backward pass runs from the first layer to the last. It runs the other way: beside a layer comes "
             "back what the layer *before* it needs."),
        Slip("nothing comes back", lambda f, b, c: _beside(f, c) + sum(b),
             "Your copies go out and never come back. The backward pass needs every map again."),
        Slip("kernels alone", lambda f, b, c: sum(f) + sum(b),
             "You counted kernels alone. Copies run beside them, and a step waits for those that take longer."),
        Slip("nothing goes out", lambda f, b, c: sum(f) + c[-1] + _beside(b, [0.0, *c[:-1]]),
             "Your forward pass does not wait for copies. A layer begins when the copy beside the one before has "
             "ended."),
        Slip("a layer late", lambda f, b, c: _beside([*f, 0.0], [0.0, *c]) + c[-1] + _beside(b, [0.0, *c[:-1]]),
             "In your forward pass a copy begins one layer late. A layer only reads its input, so the copy of that "
             "runs beside the layer itself."),
        Slip("index -1", lambda f, b, c: _beside(f, c) + c[-1] + _beside(b, [c[-1], *c[:-1]]),
             "Beside the first layer's backward kernels nothing comes back: there is no layer before it. `copies[i - "
             "1]` at `i = 0` is the *last* copy."),
        Slip("own map, and the turn", lambda f, b, c: _beside(f, c) + c[-1] + _beside(b, c),
             "In your backward pass each layer's own map comes back beside it. It has to be there when the layer "
             "begins: beside it comes the map of the layer before."),
    ],
    takeaway="A step costs the longer of kernel and copy, layer by layer, and one copy at the turn that nothing hides.",
)  # fmt: skip

# -- 5. when a map may leave -------------------------------------------------------------------------------------------

Network = Sequence[tuple[str, Sequence[str]]]


def _readers(layers: Network) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, reads in layers:
        for read in reads:
            found.setdefault(read, []).append(name)
    return found


def _leaves(layers: Network) -> dict[str, str]:
    return {read: names[-1] for read, names in _readers(layers).items()}


def _one_later(layers: Network) -> dict[str, str]:
    names = [name for name, _ in layers]
    return {read: names[min(names.index(last) + 1, len(names) - 1)] for read, last in _leaves(layers).items()}


def _most_distant(layers: Network) -> dict[str, str]:
    """The last reader in alphabetical order, which is what `max` of names gives."""
    return {read: max(names) for read, names in _readers(layers).items()}


leaves_with = Check(
    "leaves_with",
    _leaves,
    cases=[
        ([("conv1", ["input"]), ("conv2", ["conv1"]), ("dense", ["conv2"])],),
        (
            [
                ("s", ["input"]),
                ("c", ["s"]),
                ("b", ["s"]),
                ("a", ["s"]),
                ("join", ["c", "b", "a"]),
            ],
        ),
        (
            [
                ("c1", ["input"]),
                ("c2", ["c1"]),
                ("c3", ["c2"]),
                ("add", ["c1", "c3"]),
                ("c4", ["input", "add"]),
                ("d", ["c4"]),
            ],
        ),
    ],
    slips=[
        Slip("the first reader", lambda layers: {read: names[0] for read, names in _readers(layers).items()},
             "Your maps leave with their first reader, and are missing for the others. Wait for the last."),
        Slip("its maker", lambda layers: {read: read for read in _leaves(layers)},
             "Your maps leave with the layer that makes them. That one still writes; the copy needs what it leaves "
             "behind, and the layers that read the map need it too."),
        Slip("a layer late", _one_later,
             "Your maps leave one layer late. The last reader does not change the map, so the copy may run beside it."),
        Slip("the end of the network", lambda layers: dict.fromkeys(_leaves(layers), layers[-1][0]),
             "Your maps stay to the end of the forward pass: by then all of them are in memory at once."),
        Slip("joins only",
             lambda layers: {read: names[-1] for read, names in _readers(layers).items() if len(names) > 1},
             "Only maps with several readers are in your answer. A map with one reader leaves with that one."),
        Slip("without the input",
             lambda layers: {read: last for read, last in _leaves(layers).items() if read != "input"},
             "The input is missing: it is read like any other map and can leave like them."),
        Slip("lists of readers", _readers,
             "Your answer has lists of readers. Of each list, which layer is the one that counts?"),
        Slip("the last in the alphabet", _most_distant,
             "You took the largest of the readers' names. The order of the layers counts, not of the letters."),
    ],
    takeaway="The last reader in the forward pass is the first in the backward pass: the map must be back for it.",
)  # fmt: skip

check = CheckCell(globals())
