"""The checks of exercise 11, "Many GPUs": references, inputs, and the slips people make.

Sizes in bytes, times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.many_gpus.behaviour import ring_average as ring_average
from lessons.shared.checks import BytesCheck

# -- 1. what a card sends --------------------------------------------------------------------------------------------


def _ring_bytes(parameters: int, cards: int) -> float:
    return 8 * (cards - 1) * parameters / cards


ring_bytes = BytesCheck(
    "ring_bytes",
    _ring_bytes,
    cases=[(52_136_032, 4), (1_000_000, 2), (138_357_544, 8), (3_000, 3), (700, 1)],
    slips=[
        Slip("half of the way", lambda parameters, cards: 4 * (cards - 1) * parameters / cards,
             "This is the first half, in which chunks are added up. Then every card has one finished chunk, and as "
             "many steps are needed again to pass them round."),
        Slip("everything to everybody", lambda parameters, cards: 4 * (cards - 1) * parameters,
             "This is a card that sends its whole gradient to every other. In a ring it sends one chunk, a share of "
             "1/`cards`, in each step."),
        Slip("all cards together", lambda parameters, cards: 8 * (cards - 1) * parameters,
             "This is what all cards send together. Asked is what one sends."),
        Slip("twice the gradient", lambda parameters, cards: 8 * parameters,
             "Twice the gradient is what very many cards come near to. One card sends nothing at all: try `cards = "
             "1`."),
        Slip("numbers, not bytes", lambda parameters, cards: 2 * (cards - 1) * parameters / cards,
             "These are numbers. Each takes 4 bytes."),
        Slip("one step too many", lambda parameters, cards: 8 * parameters * (cards - 0.5) / cards,
             "One step too many: a card's own chunk need not come to it. `cards` - 1 steps add up, `cards` - 1 pass "
             "on."),
    ],
    takeaway="One and a half times the gradient on four cards, never twice, however many there are.",
)  # fmt: skip

# -- 2. how long a step takes ----------------------------------------------------------------------------------------

Buckets = Sequence[tuple[float, float]]


def _share(cards: int) -> float:
    return 2 * (cards - 1) / cards


def _step_seconds(
    buckets: Buckets, backward_seconds: float, update_seconds: float, cards: int, bytes_per_s: float
) -> float:
    free = 0.0
    for ready, size in buckets:
        free = max(free, ready) + _share(cards) * size / bytes_per_s
    return max(backward_seconds, free) + update_seconds


def _total(buckets: Buckets, cards: int, rate: float) -> float:
    return _share(cards) * sum(size for _, size in buckets) / rate


step_seconds = Check(
    "step_seconds",
    _step_seconds,
    cases=[
        ([(0.010, 16e6), (0.012, 64e6), (0.030, 151e6), (0.060, 10e6)], 0.062, 0.004, 4, 6e9),
        ([(0.010, 16e6), (0.012, 64e6), (0.030, 151e6), (0.060, 10e6)], 0.062, 0.004, 4, 150e9),
        ([(0.002, 144e6), (0.003, 64e6)], 0.004, 0.001, 8, 10e9),
        ([(0.05, 1e6), (0.10, 1e6), (0.15, 40e6)], 0.15, 0.01, 2, 1e9),
        ([(0.05, 60e6), (0.06, 60e6), (0.15, 10e6)], 0.15, 0.01, 3, 1e9),
        ([(0.01, 5e6), (0.02, 5e6)], 0.02, 0.003, 1, 1e9),
        ([(1, 2)], 3, 1, 2, 4),
        ([(1, 6), (2, 1)], 3, 1, 2, 1),
    ],
    slips=[
        Slip("nothing hidden",
             lambda buckets, backward, update, cards, rate: backward + _total(buckets, cards, rate) + update,
             "You let the link begin when the backward pass has ended. Each bucket leaves as soon as it is ready and "
             "the link is free, beside the computation."),
        Slip("all hidden but for the rest",
             lambda buckets, backward, update, cards, rate: max(backward, _total(buckets, cards, rate)) + update,
             "You took the longer of computation and link. The link cannot begin before the first bucket is ready, "
             "and the last bucket is ready late."),
        Slip("no queue",
             lambda buckets, backward, update, cards, rate: (
                 max(backward, *(ready + _share(cards) * size / rate for ready, size in buckets)) + update
             ),
             "Each of your buckets leaves when it is ready, even while another is on the link. One after the other: "
             "it also waits until the link is free."),
        Slip("link from the first bucket on, without a break",
             lambda buckets, backward, update, cards, rate: (
                 max(backward, buckets[0][0] + _total(buckets, cards, rate)) + update
             ),
             "Your link runs from the first bucket on without a break. It stands still where the next bucket is not "
             "ready yet."),
        Slip("update forgotten",
             lambda buckets, backward, update, cards, rate: _step_seconds(buckets, backward, 0.0, cards, rate),
             "The update is missing. It begins when the last gradient has been averaged and the backward pass is "
             "over."),
        Slip("update beside the link",
             lambda buckets, backward, update, cards, rate: max(
                 backward + update, _step_seconds(buckets, backward, 0.0, cards, rate)
             ),
             "Your update runs beside the link. It needs the averaged gradients, so it comes after both."),
        Slip("each byte once",
             lambda buckets, backward, update, cards, rate: _step_seconds(buckets, backward, update, 2, rate),
             "You sent each bucket once. In a ring a card sends 2 (`cards` - 1) / `cards` of it."),
        Slip("backward pass forgotten",
             lambda buckets, backward, update, cards, rate: _step_seconds(buckets, 0.0, update, cards, rate),
             "The backward pass is missing: where the link is done first, the update still waits for its end."),
    ],
    takeaway="The last bucket decides: it is ready when nothing is left to hide it.",
)  # fmt: skip

# -- 3. by data or by units ------------------------------------------------------------------------------------------

Layers = Sequence[tuple[int, int]]


def _chosen(rule: Callable[[int, int, int, int], bool]) -> Callable[[Layers, int, int], list[str]]:
    """Where the rule of (weights, inputs, batch, cards) holds, by units."""
    return lambda layers, batch, cards: ["units" if rule(w, n, batch, cards) else "data" for w, n in layers]


_ALEXNET = [(34_848, 150_528), (307_200, 46_656), (884_736, 43_264), (37_748_736, 9_216), (16_777_216, 4_096)]


def _cheaper_split(layers: Layers, batch: int, cards: int) -> list[str]:
    return _chosen(lambda w, n, b, p: p * b * n < w)(layers, batch, cards)


cheaper_split = Check(
    "cheaper_split",
    _cheaper_split,
    cases=[
        (_ALEXNET, 128, 4),
        (_ALEXNET, 2, 2),
        ([(16_777_216, 4_096), (4_096_000, 4_096)], 300, 4),  # 1,200 samples: between 1,000 and 4,096 units
        ([(16_777_216, 4_096), (16_777_216, 4_096)], 1_024, 4),  # a tie
        ([(16_777_216, 4_096), (128_000, 4_000)], 600, 8),  # 4,800 samples: too many
        ([(2_359_296, 100_352), (2_359_296, 4_608)], 16, 16),
        ([(9, 2), (7, 2)], 2, 2),
        ([(5_000, 100)], 10, 4),
        ([(4_400, 100)], 10, 4),  # more than 4 · 10 · 100, less than 2 · 3 · 10 · 100
    ],
    slips=[
        Slip("batch of one card", _chosen(lambda w, n, b, p: b * n < w),
             "You compared with the samples of one card. By units every card needs the inputs of all samples: `cards`"
             " times `batch`."),
        Slip("more weights than inputs", _chosen(lambda w, n, b, p: n < w),
             "You compared weights and inputs of one sample. The input is sent for every sample, the gradient once."),
        Slip("exchanged", _chosen(lambda w, n, b, p: p * b * n >= w),
             "It is the other way round: by data the gradient of the weights travels, by units the input."),
        Slip("gradient of the input forgotten", _chosen(lambda w, n, b, p: p * b * n < 2 * w),
             "By units the input is gathered before the layer, and its gradient is scattered after the layer's "
             "backward pass: both count."),
        Slip("ring once", _chosen(lambda w, n, b, p: 2 * p * b * n < w),
             "By data each card sends 2 (p - 1)/p of the gradient, not half of that."),
        Slip("ties by units", _chosen(lambda w, n, b, p: p * b * n <= w),
             'Where both send the same, the answer is "data".'),
        Slip("one for all layers",
             lambda layers, batch, cards: (
                 ["units" if cards * batch * sum(n for _, n in layers) < sum(w for w, _ in layers) else "data"]
                 * len(layers)
             ),
             "You decided once for the whole network. Decide for each layer: that is the trick."),
    ],
    takeaway="By units while the whole batch is smaller than the layer has units: dense layers, and small batches.",
)  # fmt: skip

# -- 4. what a card keeps --------------------------------------------------------------------------------------------


def _card_bytes(parameters: int, cards: int, stage: int) -> float:
    parts = (12, 2, 2)  # optimizer state, gradients, parameters: in the order in which stages take them
    return sum(parameters * size / (cards if stage > i else 1) for i, size in enumerate(parts))


def _in_order(order: Sequence[int]) -> Callable[[int, int, int], float]:
    return lambda parameters, cards, stage: sum(
        parameters * size / (cards if stage > i else 1) for i, size in enumerate(order)
    )


card_bytes = BytesCheck(
    "card_bytes",
    _card_bytes,
    cases=[
        (7_500_000_000, 64, 0),
        (7_500_000_000, 64, 1),
        (7_500_000_000, 64, 2),
        (7_500_000_000, 64, 3),
        (52_000_000, 4, 1),
        (1_200_000_000, 8, 2),
        (96_000_000, 1, 3),
        (90_000_000, 2, 3),
        (30, 2, 1),
        (30, 3, 2),
    ],
    slips=[
        Slip("parameters first", _in_order((2, 2, 12)),
             "You share out the parameters first. Stage 1 begins with the largest part, the optimizer's state; the "
             "parameters come last."),
        Slip("everything from stage 1 on", lambda parameters, cards, stage: 16 * parameters / (cards if stage else 1),
             "You share out everything from stage 1 on. Each stage adds one thing: state, then gradients, then "
             "parameters."),
        Slip("one stage too far", lambda parameters, cards, stage: _card_bytes(parameters, cards, min(stage + 1, 3)),
             "Each of your stages is one too far: in stage 0 nothing is shared out."),
        Slip("state of 8 bytes", lambda parameters, cards, stage: _in_order((8, 2, 2))(parameters, cards, stage),
             "Adam's two averages take 8 bytes. The float32 copy of the weights that is updated belongs to the state "
             "as well: 12."),
        Slip("float32", _in_order((8, 4, 4)),
             "You count float32 parameters and gradients, with 8 bytes of state. Here they are halves, 2 bytes each, "
             "and the state is 12."),
        Slip("only what the stage names",
             lambda parameters, cards, stage: sum(
                 parameters * size / (cards if stage == i + 1 else 1) for i, size in enumerate((12, 2, 2))
             ),
             "Each stage keeps what the ones before it have shared out: stage 3 shares out all three."),
        Slip("all cards together", lambda parameters, cards, stage: cards * _card_bytes(parameters, cards, stage),
             "This is what all cards keep together. Asked is what one keeps."),
    ],
    takeaway="120 GB on every card become 1.9 GB on each of 64. Feature maps are not among them.",
)  # fmt: skip

# -- 5. shares of different sizes ------------------------------------------------------------------------------------


def _shard_factors(sizes: Sequence[int], reduction: str) -> list[float]:
    cards, samples = len(sizes), sum(sizes)
    return [cards * (size if reduction == "mean" else 1) / samples for size in sizes]


shard_factors = Check(
    "shard_factors",
    _shard_factors,
    cases=[
        ([32, 32, 32, 17], "mean"),
        ([32, 32, 32, 17], "sum"),
        ([1, 3], "mean"),
        ([1, 3], "sum"),
        ([8, 8], "mean"),
        ([8, 8], "sum"),
        ([5], "sum"),
    ],
    slips=[
        Slip("nothing to do", lambda sizes, reduction: [1.0 for _ in sizes],
             "With factors of 1 DDP gives the mean of the cards' losses. Where sizes differ, that is not the mean "
             "over the samples."),
        Slip("averaging forgotten",
             lambda sizes, reduction: [(size if reduction == "mean" else 1) / sum(sizes) for size in sizes],
             "These factors would be right if the gradients were added up. DDP also divides by the number of cards: "
             "undo that."),
        Slip("mean for both", lambda sizes, reduction: [len(sizes) * size / sum(sizes) for size in sizes],
             "Right for means. A sum over a card's samples has its size in it already."),
        Slip("sum for both", lambda sizes, reduction: [len(sizes) / sum(sizes) for size in sizes],
             "Right for sums. A mean has been divided by the card's own size: multiply by it."),
        Slip("against the largest",
             lambda sizes, reduction: [(size if reduction == "mean" else 1) / max(sizes) for size in sizes],
             "You compared with the largest part. The whole batch over the number of cards, the average part, is what"
             " a part must be compared with."),
        Slip("small parts made up for",
             lambda sizes, reduction: [
                 sum(sizes) / len(sizes) / (size if reduction == "mean" else size**2) for size in sizes
             ],
             "You give small parts more weight. A part with fewer samples counts less: each *sample* counts alike."),
        Slip("exchanged",
             lambda sizes, reduction: [len(sizes) * (size if reduction == "sum" else 1) / sum(sizes) for size in sizes],
             "The two are exchanged. A mean has been divided by the card's own size and must be multiplied by it; a "
             "sum must not."),
    ],
    takeaway="DDP averages over cards, a loss averages over samples. Where the parts are equal the two agree.",
)  # fmt: skip

check = CheckCell(globals())
