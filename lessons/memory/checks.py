"""The checks of exercise 03, "Where the memory goes": references, inputs, and the slips people make.

Bytes throughout; a feature map is (N, C, H, W). Formulas: the network-wide accounting is that of Rhu et al., vDNN,
MICRO-49 (2016), without workspace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.memory.behaviour import keep_less as keep_less
from lessons.shared.checks import BytesCheck

Events = Sequence[tuple[int, int]]

# -- 1. one feature map ----------------------------------------------------------------------------------------------


def _map_bytes(batch: int, channels: int, height: int, width: int, value_bytes: int = 4) -> int:
    return batch * channels * height * width * value_bytes


map_bytes = BytesCheck(
    "map_bytes",
    _map_bytes,
    cases=[(2, 3, 5, 7), (128, 64, 224, 224), (16, 8, 6, 6, 2), (1, 4, 9, 5, 8), (3, 10, 2, 1, 1)],
    slips=[
        Slip("batch forgotten", lambda n, c, h, w, v=4: c * h * w * v,
             "This is one image's map. Every image of the batch has its own: multiply by `batch`."),
        Slip("values, not bytes", lambda n, c, h, w, v=4: n * c * h * w,
             "You counted values. Each takes `value_bytes` bytes: 4 in float32, 2 in float16."),
        Slip("always four bytes", lambda n, c, h, w, v=4: n * c * h * w * 4,
             "Right for float32 only: `value_bytes` is not always 4."),
        Slip("width forgotten", lambda n, c, h, w, v=4: n * c * h * v,
             "`width` is missing: a map of 224 × 224 has 224 columns in each of its rows."),
        Slip("height forgotten", lambda n, c, h, w, v=4: n * c * w * v,
             "`height` is missing: a map of 224 × 224 has 224 rows."),
        Slip("square of the height", lambda n, c, h, w, v=4: n * c * h * h * v,
             "You used `height` twice. Maps need not be square: multiply by `width`."),
        Slip("square of the width", lambda n, c, h, w, v=4: n * c * w * w * v,
             "You used `width` twice. Maps need not be square: multiply by `height`."),
        Slip("channels forgotten", lambda n, c, h, w, v=4: n * h * w * v,
             "This is one channel. A layer with 64 kernels puts out 64 of them: multiply by `channels`."),
        Slip("gradient map included", lambda n, c, h, w, v=4: 2 * n * c * h * w * v,
             "Twice the map: its gradient map is as large, but it is another tensor and is counted by itself."),
    ],
    takeaway="VGG-16's first layer owns 7 KiB of parameters; at batch 128 its output takes 1,568 MiB.",
)  # fmt: skip

# -- 2. what training keeps for every parameter ----------------------------------------------------------------------

STATES = {"sgd": 0, "momentum": 1, "adam": 2}


def _training_bytes(parameters: int, optimizer: str) -> int:
    return 4 * parameters * (2 + STATES[optimizer])


def _per_parameter(sgd: int, momentum: int, adam: int) -> Callable[[int, str], int]:
    sizes = {"sgd": sgd, "momentum": momentum, "adam": adam}
    return lambda parameters, optimizer: parameters * sizes[optimizer]


training_bytes = BytesCheck(
    "training_bytes",
    _training_bytes,
    cases=[
        (10, "sgd"),
        (10, "momentum"),
        (10, "adam"),
        (138_357_544, "momentum"),
        (61_100_840, "adam"),
        (52_136_032, "sgd"),
    ],
    slips=[
        Slip("gradients forgotten", _per_parameter(4, 8, 12),
             "Four bytes a parameter are missing. Weights and momentum alone are the rule of 2014 (divide the card's "
             "memory by two); it leaves out the weight gradients."),
        Slip("Adam has one state", _per_parameter(8, 12, 12),
             "Adam keeps two running averages for every parameter, of the gradient and of its square; you counted "
             "one."),
        Slip("optimizer ignored", _per_parameter(8, 8, 8),
             "Weights and gradients only. Momentum keeps one more value for each parameter, Adam two."),
        Slip("Adam at its peak", _per_parameter(8, 12, 20),
             "20 bytes a parameter are Adam's peak, while an update makes the root of an average. Asked is what stays: "
             "16."),
        Slip("weights only", _per_parameter(4, 4, 4),
             "This is what inference needs. Training also keeps a gradient for each weight, and the optimizer's "
             "state."),
        Slip("plain SGD keeps a state", _per_parameter(12, 12, 16),
             'Plain "sgd" keeps no state: it subtracts the gradient and forgets it.'),
        Slip("momentum taken for Adam", _per_parameter(8, 16, 16),
             "Momentum keeps one running average for each parameter; you counted two."),
        Slip("two bytes a value", _per_parameter(4, 6, 8), "You counted 2 bytes a value; float32 takes 4."),
    ],
    takeaway="None of this depends on the batch, and a step that updates after its backward pass peaks no lower.",
)  # fmt: skip

# -- 3. what a pool adds ---------------------------------------------------------------------------------------------


def _pool_saved_bytes(batch: int, channels: int, height: int, width: int) -> int:
    return (4 + 8) * batch * channels * (height // 2) * (width // 2)


ODD = "An odd side loses its last row or column: a 2 × 2 window needs two. Halve each side, then round it down."

pool_saved_bytes = BytesCheck(
    "pool_saved_bytes",
    _pool_saved_bytes,
    cases=[(1, 1, 2, 2), (2, 3, 5, 7), (128, 64, 224, 224), (4, 8, 6, 6), (1, 2, 7, 4)],
    slips=[
        Slip("indices forgotten", lambda n, c, h, w: 4 * n * c * (h // 2) * (w // 2),
             "This is the output alone. To send gradients back, the pool also saves where each maximum stood: one "
             "int64 index for each output value."),
        Slip("8 bytes an output", lambda n, c, h, w: 8 * n * c * (h // 2) * (w // 2),
             "You counted 8 bytes for each output value. Its own 4 and an index of 8 (int64, not int32) make 12."),
        Slip("input counted", lambda n, c, h, w: 12 * n * c * (h // 2) * (w // 2) + 4 * n * c * h * w,
             "You counted the pool's input too. The layer before made it and it stays; what does the pool add?"),
        Slip("input taken off", lambda n, c, h, w: 12 * n * c * (h // 2) * (w // 2) - 4 * n * c * h * w,
             "You took the pool's input off. It stays, for the layer that made it: the pool only adds."),
        Slip("half instead of a quarter", lambda n, c, h, w: 6 * n * c * h * w,
             "You divided by 2. A 2 × 2 pool with stride 2 halves the height and the width: a quarter of the values."),
        Slip("one side halved", lambda n, c, h, w: 12 * n * c * (h // 2) * w,
             "You halved the height only. Stride 2 halves the width as well."),
        Slip("nothing halved", lambda n, c, h, w: 12 * n * c * h * w,
             "Your output is as large as the input. With stride 2 it has half the rows and half the columns."),
        Slip("a quarter, not rounded", lambda n, c, h, w: 3 * n * c * h * w,
             ODD),
        Slip("a quarter, rounded at the end", lambda n, c, h, w: 12 * n * c * (h * w // 4),
             ODD),
        Slip("rounded up", lambda n, c, h, w: 12 * n * c * -(-h // 2) * -(-w // 2),
             "You rounded odd sides up. Without padding (`ceil_mode=False`) the last row or column is dropped."),
    ],
    takeaway="Two thirds of what a pool adds are indices, and 16-bit values do not make them smaller.",
)  # fmt: skip

# -- 4. the accounting of 2016 ---------------------------------------------------------------------------------------


def _network_wide(map_values: int, input_values: int, parameters: int, largest_map_values: int, batch: int) -> int:
    return 4 * (batch * (map_values + input_values + 2 * largest_map_values) + 2 * parameters)


network_wide = BytesCheck(
    "network_wide",
    _network_wide,
    cases=[
        (100, 30, 500, 40, 1),
        (1_000, 200, 5_000, 300, 16),
        (7, 3, 2, 5, 3),
        (9, 6, 4, 5, 2),  # an input larger than any map
        (15_087_080, 150_528, 138_357_544, 3_211_264, 128),  # VGG-16
    ],
    slips=[
        Slip("one gradient buffer", lambda m, i, p, g, n: 4 * (n * (m + i + g) + 2 * p),
             "One gradient buffer is missing: the backward pass reads one gradient map while it writes the next, so "
             "it needs two of the largest size."),
        Slip("no gradient buffers", lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * p),
             "The gradient maps are missing: two shared buffers, each as large as the largest map, for the whole "
             "batch."),
        Slip("every gradient map kept", lambda m, i, p, g, n: 4 * (n * (m + i + m) + 2 * p),
             "You kept a gradient map for every map. This accounting shares two buffers of the largest size among "
             "them."),
        Slip("weights times batch", lambda m, i, p, g, n: 4 * n * (m + i + 2 * g + 2 * p),
             "You multiplied the parameters by the batch. There is one set of weights, and one of weight gradients, "
             "whatever the batch."),
        Slip("weight gradients forgotten", lambda m, i, p, g, n: 4 * (n * (m + i + 2 * g) + p),
             "The weight gradients are missing: they are as large as the weights."),
        Slip("input forgotten", lambda m, i, p, g, n: 4 * (n * (m + 2 * g) + 2 * p),
             "The input is missing: the first layer needs it in its backward pass, so it is kept like a map."),
        Slip("buffers without batch", lambda m, i, p, g, n: 4 * (n * (m + i) + 2 * g + 2 * p),
             "Your gradient buffers hold one image. They hold the batch: multiply `largest_map_values` by `batch`."),
        Slip("the input as the largest map", lambda m, i, p, g, n: 4 * (n * (m + i + 2 * max(g, i)) + 2 * p),
             "You took the input for the largest map where it is larger. No gradient map is made for the input: the "
             "buffers are as large as `largest_map_values` says."),
        Slip("momentum counted", lambda m, i, p, g, n: 4 * (n * (m + i + 2 * g) + 3 * p),
             "Three values a parameter: this accounting has weights and their gradients, no momentum."),
        Slip("values, not bytes", lambda m, i, p, g, n: n * (m + i + 2 * g) + 2 * p,
             "You counted values. In float32 each takes 4 bytes."),
    ],
    takeaway="VGG-16 at batch 128 comes to 12.20 GB; the paper says about 14, the rest presumably workspace.",
)  # fmt: skip

# -- 5. the largest batch that fits ----------------------------------------------------------------------------------


def _largest_batch(events: Events, limit: int) -> int:
    if any(fixed > limit for fixed, _ in events):
        return 0
    return min((limit - fixed) // per_sample for fixed, per_sample in events if per_sample > 0)


def _room(event: tuple[int, int], limit: int) -> int:
    fixed, per_sample = event
    return max(0, (limit - fixed) // per_sample) if per_sample else 0


def _over_growing(batch: Callable[[int, int, int], float], fits: bool = True) -> Callable[[Events, int], float]:
    """The least that `batch(fixed, per_sample, limit)` gives for a growing moment; 0 if a flat one does not fit."""
    return lambda events, limit: (
        0 if fits and max(f for f, _ in events) > limit else min(batch(f, s, limit) for f, s in _growing(events))
    )


def _growing(events: Events) -> list[tuple[int, int]]:
    return [event for event in events if event[1] > 0]


def _averaged(events: Events, limit: int) -> int:
    fixed = sum(f for f, _ in events) / len(events)
    return max(0, math.floor((limit - fixed) / (sum(s for _, s in events) / len(events))))


largest_batch = Check(
    "largest_batch",
    _largest_batch,
    cases=[
        ([(1_000, 1), (100, 10), (500, 5), (10, 1)], 1_500),  # the peak moves as the batch grows
        ([(1_000, 1), (100, 10)], 1_050),  # …and does not always end where the slope is steepest
        ([(1_000, 1), (100, 10)], 1_100),  # fits exactly
        ([(200, 0), (100, 10), (50, 9)], 1_105),  # something left over; a moment that does not grow
        ([(1_000, 1), (100, 10)], 900),  # not even an empty batch
        ([(1_000, 7), (100, 10)], 1_006),  # not even one image
        ([(1_660_290_528, 0), (1_106_860_352, 84_000_000), (1_300_000_000, 70_000_000)], 12 * 2**30),
        ([(2_000, 0), (100, 10)], 1_500),  # nothing fits: a moment that does not grow is beyond the limit
        ([(0, 1), (9, 0)], 9),  # such a moment fits exactly
        ([(7_000, 3), (60_000, 1), (500_000, 0)], 500_000),  # 164,333 images
    ],
    slips=[
        Slip("the peak at a small batch", lambda events, limit: _room(max(_growing(events), key=sum), limit),
             "You followed the moment that is the peak at batch 1. As the batch grows another moment overtakes it: "
             "every moment has to fit."),
        Slip("the steepest moment only", lambda events, limit: _room(max(events, key=lambda e: e[1]), limit),
             "You followed the moment that grows fastest. One that starts higher may hit the limit first: every "
             "moment has to fit."),
        Slip("rounded up", _over_growing(lambda f, s, limit: math.ceil((limit - f) / s)),
             "You rounded up: the last image does not fit. Round down."),
        Slip("not rounded", _over_growing(lambda f, s, limit: (limit - f) / s),
             "A batch is a whole number of images. Round down."),
        Slip("strictly less", _over_growing(lambda f, s, limit: max(0, (limit - f - 1) // s)),
             "One too few when it fits exactly: memory may be equal to the limit."),
        Slip("average of the moments", _averaged,
             "You averaged over the moments. The limit must hold at each of them, and the worst one decides."),
        Slip("fixed part forgotten", _over_growing(lambda f, s, limit: limit // s, fits=False),
             "The fixed bytes are missing: they are taken from the limit before the first image comes."),
        Slip("sum of the moments",
             lambda events, limit: max(0, (limit - sum(f for f, _ in events)) // sum(s for _, s in events)),
             "You added the moments up. They come one after the other, and each has the whole card to itself."),
        Slip("most instead of least", lambda events, limit: max(_room(event, limit) for event in _growing(events)),
             "This batch fits at one moment. It has to fit at every one: the smallest of the numbers decides."),
        Slip("negative batch", _over_growing(lambda f, s, limit: (limit - f) // s, fits=False),
             "Where nothing fits, your batch is negative. Return 0."),
        Slip("flat moments left out", _over_growing(lambda f, s, limit: max(0, (limit - f) // s), fits=False),
             "You left out the moments that need nothing for a sample. One of them may be beyond the limit whatever "
             "the batch: then the answer is 0."),
        Slip("search ends at 1,000", lambda events, limit: min(1_000, _largest_batch(events, limit)),
             "Your search ends at 1,000, and more may fit. Divide what is left of the limit by the bytes for a "
             "sample: no search is needed."),
        Slip("the peak at batch 1 multiplied", lambda events, limit: limit // max(f + s for f, s in events),
             "You divided the limit by the peak at batch 1. Only a part of it grows with the batch, and at a larger "
             "batch another moment may be the peak."),
        Slip("the peak at batch 1, flat or not", lambda events, limit: _room(max(events, key=sum), limit),
             "You followed the moment that is the peak at batch 1. As the batch grows another moment overtakes it: "
             "every moment has to fit."),
    ],
    takeaway="The peak moves as the batch grows. That is why it cannot be extrapolated from one small run.",
)  # fmt: skip

check = CheckCell(globals())
