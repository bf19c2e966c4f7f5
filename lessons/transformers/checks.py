"""The checks of exercise 13, "Transformers": references, inputs, and the slips people make.

A layer in 16 bits keeps sbh(34 + 5as/h) bytes: Korthikanti and others, "Reducing activation recomputation in large
transformer models" (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.shared.checks import BytesCheck
from lessons.transformers.behaviour import loss_in_pieces as loss_in_pieces

# -- 1. one layer -----------------------------------------------------------------------------------------------------


def _layer_bytes(sequence: int, batch: int, hidden: int, heads: int) -> int:
    return 34 * sequence * batch * hidden + 5 * heads * sequence**2 * batch


layer_bytes = BytesCheck(
    "layer_bytes",
    _layer_bytes,
    cases=[(1024, 8, 768, 12), (2048, 4, 1024, 16), (512, 1, 768, 12), (128, 32, 1280, 20), (96, 3, 64, 1)],
    slips=[
        Slip("twice", lambda s, b, h, a: 2 * _layer_bytes(s, b, h, a),
             "You doubled it. The formula is in bytes already: 34 counts 2 for each 16-bit value, 1 for each mask."),
        Slip("no scores", lambda s, b, h, a: 34 * s * b * h,
             "The scores are missing: every head has one for every pair of tokens."),
        Slip("scores of one head", lambda s, b, h, a: 34 * s * b * h + 5 * s * s * b,
             "You counted the scores of one head. Every head has its own."),
        Slip("one text's scores", lambda s, b, h, a: 34 * s * b * h + 5 * a * s * s,
             "You counted the scores of one text. Every text of the batch has its own."),
        Slip("one tensor of scores", lambda s, b, h, a: 34 * s * b * h + 2 * a * s * s * b,
             "You counted softmax's output. Dropout's mask, a byte each, and dropout's output are kept too."),
        Slip("scores alone", lambda s, b, h, a: 5 * a * s * s * b,
             "You counted the scores alone. The 34 sbh of all other maps are kept too."),
        Slip("linear scores", lambda s, b, h, a: 34 * s * b * h + 5 * a * s * b,
             "Every token has a score for every *other* token: s for each of s."),
        Slip("no dropout", lambda s, b, h, a: 32 * s * b * h + 2 * a * s * s * b,
             "You left dropout out. Its three masks take a byte a value, and its output on the scores two."),
        Slip("two bytes a mask", lambda s, b, h, a: 34 * s * b * h + 6 * a * s * s * b,
             "You counted 6 bytes a score. Dropout's mask has one byte: 2 + 1 + 2."),
        Slip("no mask of the scores", lambda s, b, h, a: 34 * s * b * h + 4 * a * s * s * b,
             "You counted 4 bytes a score. Dropout keeps a mask of them too, one byte each."),
        Slip("half of the scores", lambda s, b, h, a: 34 * s * b * h + 5 * a * s * s * b / 2,
             "You counted half of the scores. Written out, attention computes and keeps all of them; the causal mask "
             "only sets half of them to minus infinity."),
        Slip("a ratio rounded", lambda s, b, h, a: s * b * h * (34 + 5 * a * s // h),
             "You rounded 5as/h to a whole number. Multiply by sbh first."),
    ],
    takeaway="34 sbh grows with the tokens of a batch, 5 as²b with the square of a text's length.",
)  # fmt: skip

# -- 2. where scores overtake -----------------------------------------------------------------------------------------


def _crossing(hidden: int, heads: int) -> int:
    return -(-34 * hidden // (5 * heads))


crossing = Check(
    "crossing",
    _crossing,
    cases=[(768, 12), (1600, 25), (512, 8), (4096, 32), (640, 16), (50, 17), (496, 8)],
    slips=[
        Slip("rounded to the nearest", lambda h, a: round(34 * h / (5 * a)),
             "You rounded to the nearest whole number. Below the crossing the scores are less, so round up."),
        Slip("heads of a whole width", lambda h, a: -(-34 * (h // a) // 5),
             "You rounded the width of a head first. Multiply before you divide."),
        Slip("rounded down", lambda h, a: 34 * h // (5 * a),
             "You rounded down: at that length the scores are still less. The first length at which they are not is "
             "asked for."),
        Slip("one more", lambda h, a: 34 * h // (5 * a) + 1,
             "Where 34h/5a is whole, the scores are as much as the rest there already."),
        Slip("the share of a head upside down", lambda h, a: -(-34 * a // (5 * h)),
             "Upside down: set 5as/h equal to 34 and solve for s."),
        Slip("no heads", lambda h, a: -(-34 * h // 5), "The heads are missing: all of them have scores."),
        Slip("a fraction", lambda h, a: 34 * h / (5 * a),
             "A text has a whole number of tokens. Round up to the first at which the scores are as much."),
        Slip("two bytes a score", lambda h, a: -(-34 * h // (2 * a)),
             "You took 2 bytes a score. Three tensors are kept: 5 bytes."),
    ],
    takeaway="It is 6.8 times the width of a head, whatever the size of the model.",
)  # fmt: skip

# -- 3. the longest sequence ------------------------------------------------------------------------------------------


def _longest(layers: int, batch: int, hidden: int, heads: int, room: int, scores: int = 5, strict: bool = False) -> int:
    def fits(sequence: int) -> bool:
        size = layers * batch * sequence * (34 * hidden + scores * heads * sequence)
        return size < room if strict else size <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _root(layers: int, batch: int, hidden: int, heads: int, room: int) -> float:
    """The positive solution of layers · batch · (34 hidden s + 5 heads s²) = room."""
    half, scores = 17 * hidden, 5 * heads
    return (math.sqrt(half**2 + scores * room / (layers * batch)) - half) / scores


longest = Check(
    "longest",
    _longest,
    cases=[
        (12, 8, 768, 12, 8 * 2**30), (24, 1, 1024, 16, 12 * 2**30), (12, 1, 64, 1, 100), (2, 3, 64, 2, 10**7),
        (600, 1, 1, 1, 7), (1, 600, 1, 1, 7), (1, 1, 6000, 1, 60), (1, 1, 1, 6000, 60),  # none fits
        (12, 8, 768, 12, 12 * 8 * 512 * (34 * 768 + 5 * 12 * 512)), (48, 1, 1600, 25, 40 * 2**30),
    ],
    slips=[
        Slip("no scores", lambda n, b, h, a, room: room // (n * b * 34 * h),
             "You left the scores out: that is the answer for fused attention."),
        Slip("one layer", lambda n, b, h, a, room: _longest(1, b, h, a, room), "All layers keep their maps at once."),
        Slip("one text", lambda n, b, h, a, room: _longest(n, 1, h, a, room), "The batch is missing."),
        Slip("the limit itself", lambda n, b, h, a, room: _longest(n, b, h, a, room, strict=True),
             "What equals the room fits."),
        Slip("one head", lambda n, b, h, a, room: _longest(n, b, h, 1, room), "Every head has scores of its own."),
        Slip("scores alone", lambda n, b, h, a, room: math.isqrt(room // (5 * a * b * n)),
             "You counted the scores alone. The 34 sbh are there too."),
        Slip("one too many", lambda *x: _longest(*x) + 1, "That length no longer fits. The one before it does."),
        Slip("one token at least", lambda *x: max(1, _longest(*x)),
             "You return 1 where not even one token fits. Return 0 there: begin below the first length that you try."),
        Slip("one too few", lambda *x: max(0, _longest(*x) - 1), "That fits, and so does one token more."),
        Slip("tokens of all texts", lambda n, b, h, a, room: b * _longest(n, b, h, a, room),
             "You counted the tokens of all texts. The length of one is asked for."),
        Slip("the root, not rounded", _root,
             "A text has a whole number of tokens: take the largest that fits."),
        Slip("the root, rounded to the nearest", lambda *x: round(_root(*x)),
             "You rounded to the nearest whole number. Where that rounds up, the text no longer fits."),
        Slip("the root, rounded up", lambda *x: math.ceil(_root(*x)), "You rounded up: that length does not fit."),
        Slip("doubling alone", lambda *x: _longest(*x) and 2 ** (_longest(*x).bit_length() - 1),
             "You stop at the last doubling that fits. The longest lies between it and the next: halve that gap."),
    ],
    takeaway="Four times the room is not four times the text: little more than twice, once scores decide.",
)  # fmt: skip

# -- 4. the logits ----------------------------------------------------------------------------------------------------


def _logit_bytes(batch: int, sequence: int, vocabulary: int, upcast: bool, out_kept: bool) -> int:
    return batch * sequence * vocabulary * (3 * (4 if upcast else 2) + (2 if out_kept else 0))


logit_bytes = BytesCheck(
    "logit_bytes",
    _logit_bytes,
    cases=[
        (8, 1024, 50257, True, True), (8, 1024, 50257, True, False), (1, 4096, 128256, False, True),
        (2, 512, 32000, False, False), (3, 100, 1000, True, True),
    ],
    slips=[
        Slip("one copy", lambda b, s, v, up, out: b * s * v * (4 if up else 2),
             "You counted one tensor of that size. At the peak there are three, and `out` beside them if it is kept."),
        Slip("six bytes", lambda b, s, v, up, out: b * s * v * ((4 if up else 0) + 2),
             "You counted the logits and a copy in float32. What the loss makes of them is larger: three tensors."),
        Slip("out in float32", lambda b, s, v, up, out: b * s * v * (3 + out) * (4 if up else 2),
             "`out` holds the logits as the model made them, in 16 bits, whatever the loss computes in."),
        Slip("out always", lambda b, s, v, up, out: _logit_bytes(b, s, v, up, True),
             "Where only the loss is kept, the logits die once log-softmax has run."),
        Slip("out never", lambda b, s, v, up, out: _logit_bytes(b, s, v, up, False),
             "Where `out` is kept, the logits stay alive to the end of the step: two bytes each."),
        Slip("the gradient forgotten", lambda b, s, v, up, out: b * s * v * (2 * (4 if up else 2) + (2 if out else 0)),
             "One of the three is missing: log-softmax, the gradient of it, and the gradient of the logits."),
        Slip("fourteen always", lambda b, s, v, up, out: 14 * b * s * v,
             "14 bytes a logit are the ordinary loop's. Without `upcast` the three take 2 bytes each, and without "
             "`out` the logits are gone."),
        Slip("in 16 bits always", lambda b, s, v, up, out: _logit_bytes(b, s, v, False, out),
             "Where the loss turns the logits into float32 (`upcast`), the three have 4 bytes each."),
        Slip("the float32 copy too", lambda b, s, v, up, out: b * s * v * ((16 if up else 6) + (2 if out else 0)),
             "You counted the float32 logits besides. Log-softmax does not keep what entered it: three tensors are "
             "there."),
        Slip("one of three in float32", lambda b, s, v, up, out: b * s * v * ((8 if up else 6) + (2 if out else 0)),
             "You counted one of the three in float32. With `upcast` all three are."),
        Slip("one of three in 16 bits", lambda b, s, v, up, out: b * s * v * ((10 if up else 6) + (2 if out else 0)),
             "You counted one of the three in 16 bits. With `upcast` all three are in float32."),
        Slip("either or", lambda b, s, v, up, out: b * s * v * (12 if up else 8 if out else 6),
             "`upcast` and `out_kept` can both be: then the 16-bit logits come on top of the three in float32."),
        Slip("values", lambda b, s, v, up, out: b * s * v * (3 + out), "You counted values. A value has 2 or 4 bytes."),
        Slip("upcast the wrong way round", lambda b, s, v, up, out: _logit_bytes(b, s, v, not up, out),
             "You have `upcast` the wrong way round: with it the three have 4 bytes each, without it 2."),
        Slip("out the wrong way round", lambda b, s, v, up, out: _logit_bytes(b, s, v, up, not out),
             "You have `out_kept` the wrong way round: the logits are there where it is true."),
        Slip("always float32", lambda b, s, v, up, out: _logit_bytes(b, s, v, True, out),
             "Where nothing is upcast, the three have 16 bits too."),
    ],
    takeaway="Fourteen bytes a logit in the ordinary loop; six where nothing is upcast and `out` is let go.",
)  # fmt: skip

# -- 5. the best block, and its neighbours ----------------------------------------------------------------------------


def _block_peak(layers: int, enters: int, keeps: int, size: int) -> int:
    return -(-layers // size) * enters + size * keeps


def _answer(layers: int, enters: int, keeps: int, best: int) -> list[int]:
    peak = _block_peak(layers, enters, keeps, best)
    below = _block_peak(layers, enters, keeps, best - 1) - peak if best > 1 else 0
    above = _block_peak(layers, enters, keeps, best + 1) - peak if best < layers else 0
    return [best, below, above]


def _best_block(layers: int, enters: int, keeps: int) -> list[int]:
    best = min(range(1, layers + 1), key=lambda size: (_block_peak(layers, enters, keeps, size), size))
    return _answer(layers, enters, keeps, best)


def _by_root(whole: Callable[[float], int]) -> Callable[[int, int, int], list[int]]:
    return lambda layers, enters, keeps: _answer(layers, enters, keeps, max(1, whole(math.sqrt(layers))))


def _by_root_of_share(whole: Callable[[float], int]) -> Callable[[int, int, int], list[int]]:
    def answer(layers: int, enters: int, keeps: int) -> list[int]:
        return _answer(layers, enters, keeps, min(layers, max(1, whole(math.sqrt(layers * enters / keeps)))))

    return answer


def _of_sizes(layers: int, enters: int, keeps: int, sizes: range) -> list[int]:
    best = min(sizes, key=lambda size: (_block_peak(layers, enters, keeps, size), size))
    return _answer(layers, enters, keeps, best)


def _in_fractions(layers: int, enters: int, keeps: int) -> list[float]:
    def peak(size: int) -> float:
        return layers / size * enters + size * keeps

    best = min(range(1, layers + 1), key=peak)
    below = peak(best - 1) - peak(best) if best > 1 else 0
    return [best, below, peak(best + 1) - peak(best) if best < layers else 0]


def _beyond_the_stack(layers: int, enters: int, keeps: int) -> list[int]:
    best, below, _ = _best_block(layers, enters, keeps)
    return [best, below, _block_peak(layers, enters, keeps, best + 1) - _block_peak(layers, enters, keeps, best)]


def _of_divisors(layers: int, enters: int, keeps: int) -> list[int]:
    sizes = [size for size in range(1, layers + 1) if layers % size == 0]
    return _answer(layers, enters, keeps, min(sizes, key=lambda size: _block_peak(layers, enters, keeps, size)))


def _rounded_down(layers: int, enters: int, keeps: int) -> list[int]:
    def peak(size: int) -> int:
        return layers // size * enters + size * keeps

    best = min(range(1, layers + 1), key=peak)
    below = peak(best - 1) - peak(best) if best > 1 else 0
    return [best, below, peak(best + 1) - peak(best) if best < layers else 0]


def _last_of_several(layers: int, enters: int, keeps: int) -> list[int]:
    best = min(range(1, layers + 1), key=lambda size: (_block_peak(layers, enters, keeps, size), -size))
    return _answer(layers, enters, keeps, best)


def _count_of_blocks(layers: int, enters: int, keeps: int) -> list[int]:
    best, below, above = _best_block(layers, enters, keeps)
    return [-(-layers // best), below, above]


ROUNDED: dict[str, Callable[[float], int]] = {"": round, ", rounded down": math.floor, ", rounded up": math.ceil}

best_block = Check(
    "best_block",
    _best_block,
    cases=[
        (48, 2, 34), (12, 2, 34), (36, 1, 1), (10, 1, 1), (17, 4, 3),
        (100, 2, 34), (7, 9, 2), (1, 5, 5), (32, 6, 5), (64, 2, 114),
    ],
    slips=[
        *(Slip(f"the root{how}", _by_root(whole),
               "You took √n. That is the best where a layer keeps as much as enters it; here the two differ: try all.")
          for how, whole in ROUNDED.items()),
        *(Slip(f"the root of the share{how}", _by_root_of_share(whole),
               "You took √(n · enters / keeps), the lowest point if blocks came in fractions. Their number is rounded "
               "up, so a size beside it may be better: try all.") for how, whole in ROUNDED.items()),
        Slip("negative", lambda n, e, k: [(b := _best_block(n, e, k))[0], -b[1], -b[2]],
             "Your differences have the wrong sign. How much *higher* the neighbours' peaks are is asked for."),
        Slip("beyond the stack", _beyond_the_stack,
             "You compared with a block of more layers than there are. Where all layers are one block, the third "
             "number is 0."),
        Slip("the peak", lambda n, e, k: [_block_peak(n, e, k, (b := _best_block(n, e, k))[0]), *b[1:]],
             "Your first number is the lowest peak. The block size that has it is asked for."),
        Slip("in fractions", _in_fractions,
             "You divided layers by the size without rounding. There is no fraction of a block: round up."),
        Slip("never all in one", lambda n, e, k: _of_sizes(n, e, k, range(1, max(2, n))),
             "You did not try all layers as one block. `range` ends before its second number."),
        Slip("one layer a block", lambda n, e, k: _answer(n, e, k, 1),
             "You took blocks of one layer. That is the best only where a layer keeps much more than enters it."),
        Slip("divisors only", _of_divisors,
             "You tried block sizes that divide the number of layers. The last block may be shorter."),
        Slip("rounded down", _rounded_down,
             "You rounded the number of blocks down. Where the size does not divide the layers there is one more."),
        Slip("the last of several", _last_of_several,
             "Several sizes have the lowest peak, and you returned the largest of them. The smallest is asked for."),
        Slip("the number of blocks", _count_of_blocks,
             "You returned how many blocks there are. How many layers one has is asked for."),
        Slip("peaks of the neighbours",
             lambda n, e, k: [_best_block(n, e, k)[0],
                              *(d + _block_peak(n, e, k, _best_block(n, e, k)[0]) for d in _best_block(n, e, k)[1:])],
             "You returned the neighbours' peaks. By how much they are higher is asked for."),
        Slip("neighbours exchanged",
             lambda n, e, k: [_best_block(n, e, k)[0], *_best_block(n, e, k)[:0:-1]],
             "You swapped the two neighbours: the smaller block comes first."),
    ],
    takeaway="A layer that keeps much more than enters it wants small blocks; the neighbours say how flat the best is.",
)  # fmt: skip

check = CheckCell(globals())
