"""The checks of exercise 08, "Half precision": references, inputs, and the slips people make.

float16 has 10 fraction bits and exponents from -14, bfloat16 7 and -126 (IEEE 754; torch.finfo says the same). The
recipe with master weights: Micikevicius et al., "Mixed Precision Training", ICLR 2018.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.half_precision.behaviour import keep_small as keep_small
from lessons.shared.checks import BytesCheck

# -- 1. bytes of a recipe --------------------------------------------------------------------------------------------

STATES = {"sgd": 0, "momentum": 1, "adam": 2}


def _recipe_bytes(parameters: int, optimizer: str, recipe: str) -> int:
    weights = {"float32": 4 + 4, "mixed": 4 + 2 + 4, "pure": 2 + 2}[recipe]
    return parameters * (weights + STATES[optimizer] * (2 if recipe == "pure" else 4))


def _recipe(float32: int, mixed: int, pure: int, state: tuple[int, int, int] = (4, 4, 2)) -> Callable[..., int]:
    """Another recipe: bytes of weights with gradients, and of one state, in each of the three."""
    fixed = {"float32": (float32, state[0]), "mixed": (mixed, state[1]), "pure": (pure, state[2])}

    def count(parameters: int, optimizer: str, recipe: str) -> int:
        weights, each = fixed[recipe]
        return parameters * (weights + each * STATES[optimizer])

    return count


recipe_bytes = BytesCheck(
    "recipe_bytes",
    _recipe_bytes,
    cases=[
        (10, "sgd", "float32"),
        (10, "sgd", "mixed"),
        (10, "momentum", "mixed"),
        (138_357_544, "momentum", "pure"),
        (52_136_032, "adam", "mixed"),
        (61_100_840, "adam", "float32"),
        (7, "adam", "pure"),
    ],
    slips=[
        Slip("two bytes missing", _recipe(8, 8, 4),
             "Your mixed recipe takes as much as float32. Two bytes a parameter are missing: the half copy comes on "
             "top of the float32 weight, and the gradient that stays is float32 (half in the paper of 2018, not "
             "here)."),
        Slip("no master weights", _recipe(8, 6, 4),
             "Your mixed recipe has 4 bytes a parameter too few: it keeps the float32 weights, which small updates "
             "are added to, *and* the float32 gradient, beside the half copy."),
        Slip("half of everything", _recipe(8, 4, 4, (4, 2, 2)),
             "You halved the mixed recipe throughout. That is the pure one; mixed keeps float32 weights, gradients "
             "and optimizer state, and adds a half copy of the weights."),
        Slip("a half gradient beside the float32 one", _recipe(8, 12, 4),
             "Your mixed recipe has 2 bytes a parameter too many. The half gradient of a layer is gone as soon as its"
             " float32 copy is made: one layer's at a time, and no part of the recipe."),
        Slip("half optimizer state", _recipe(8, 10, 4, (4, 2, 2)),
             "Your mixed recipe keeps the optimizer's state in halves. It stays float32, as the weights do that it "
             "updates."),
        Slip("float32 state in the pure recipe", _recipe(8, 10, 4, (4, 4, 4)),
             "In the pure recipe the optimizer's state is half as well: it has the precision of the weights."),
        Slip("Adam has one state",
             lambda p, optimizer, recipe: _recipe_bytes(p, "momentum" if optimizer == "adam" else optimizer, recipe),
             "Adam keeps two running averages for every parameter; you counted one."),
        Slip("optimizer ignored", lambda p, optimizer, recipe: _recipe_bytes(p, "sgd", recipe),
             "The optimizer's state is missing: one value a parameter for momentum, two for Adam."),
        Slip("gradients forgotten", _recipe(4, 6, 2),
             "The gradients are missing: one for each parameter, in every recipe."),
        Slip("no half copy in mixed, half gradient in pure", _recipe(8, 12, 6),
             "The pure recipe keeps nothing in float32: 2 bytes for the weight and 2 for the gradient."),
    ],
    takeaway="With momentum the mixed recipe takes 14 bytes a parameter, float32 12: a lasting half copy costs memory.",
)  # fmt: skip

# -- 2. what is left of the saved maps -------------------------------------------------------------------------------


def _share_left(map_values: int, pool_values: int) -> float:
    return (2 * (map_values + pool_values) + 8 * pool_values) / (4 * (map_values + pool_values) + 8 * pool_values)


def _ratio(
    half: Callable[[int, int], float], full: Callable[[int, int], float] = lambda m, p: 4 * m + 12 * p
) -> Callable[[int, int], float]:
    return lambda map_values, pool_values: half(map_values, pool_values) / full(map_values, pool_values)


share_left = Check(
    "share_left",
    _share_left,
    cases=[(100, 0), (100, 50), (30, 30), (13_547_520, 1_530_368), (0, 7)],
    slips=[
        Slip("everything halves", lambda m, p: 0.5,
             "You say that half is left. Values shrink from 4 bytes to 2; the index beside each pooled value is an "
             "int64 and stays at 8."),
        Slip("int32 indices", _ratio(lambda m, p: 2 * m + 6 * p, lambda m, p: 4 * m + 8 * p),
             "You counted 4 bytes an index. PyTorch keeps an int64: 8 bytes."),
        Slip("the pool's values not halved", _ratio(lambda m, p: 2 * m + 12 * p),
             "The pool's own values are maps too: they halve like the others. Only the indices stay."),
        Slip("the share that is saved", lambda m, p: 1 - _share_left(m, p),
             "This is the share that is saved. The question asks for the share that is left."),
        Slip("the wrong way round", lambda m, p: 1 / _share_left(m, p),
             "Your numbers are above 1: float32 divided by half. Turn the fraction over."),
        Slip("the pool's values forgotten", _ratio(lambda m, p: 2 * m + 8 * p, lambda m, p: 4 * m + 8 * p),
             "A pool puts out values as well as indices: `pool_values` of them, beside `map_values`."),
        Slip("indices in half only", _ratio(lambda m, p: 2 * m + 10 * p, lambda m, p: 4 * m + 4 * p),
             "Your float32 step has no indices. They are there in both precisions."),
        Slip("percent", lambda m, p: 100 * _share_left(m, p), "These are percent. Return the share, 0.58 for 58 %."),
    ],
    takeaway="VGG-16 keeps 58 % of its saved maps in halves, not 50 %, because an index has no half.",
)  # fmt: skip

# -- 3. the smallest update that is not lost -------------------------------------------------------------------------


def _smallest_update(weight: float, fraction_bits: int, lowest_exponent: int) -> float:
    exponent = max(math.frexp(abs(weight))[1] - 1, lowest_exponent) if weight else lowest_exponent
    return 2.0 ** (exponent - fraction_bits) / 2


def _by_exponent(
    exponent: Callable[[float], float], shift: int = 1, floor: bool = True, size: Callable[[float], float] = abs
) -> Callable[[float, int, int], float]:
    """The same formula with another way to the exponent; `shift` halves the result so often."""

    def update(weight: float, fraction_bits: int, lowest_exponent: int) -> float:
        magnitude = size(weight)
        e = exponent(math.log2(magnitude)) if magnitude > 0 else lowest_exponent
        return float(2.0 ** ((max(e, lowest_exponent) if floor else e) - fraction_bits - shift))

    return update


HALF, BRAIN = (10, -14), (7, -126)

smallest_update = Check(
    "smallest_update",
    _smallest_update,
    cases=[
        (1.0, *HALF),
        (1.5, *HALF),
        (2048.0, *HALF),
        (0.75, *BRAIN),
        (-3.0, *HALF),
        (2.0**-18, *HALF),
        (0.0, *HALF),
        (300.0, *BRAIN),
    ],
    slips=[
        Slip("a whole spacing", _by_exponent(math.floor, shift=0),
             "This is the spacing. An update of more than half of it rounds up to the next number and is not lost."),
        Slip("the same spacing everywhere", lambda weight, f, e: 2.0 ** (-f - 1),
             "This is right between 1 and 2. The spacing grows with the weight: twice as far out, twice as wide."),
        Slip("in proportion to the weight", lambda weight, f, e: abs(weight) * 2.0 ** (-f - 1),
             "The spacing does not grow with every weight: it is the same from one power of two to the next, so 1.5 "
             "has the spacing of 1."),
        Slip("rounded to the nearest power", _by_exponent(round),
             "You rounded the exponent to the nearest. Every number from 2**e up to 2**(e + 1) has exponent e: round "
             "down."),
        Slip("rounded up", _by_exponent(math.ceil),
             "You rounded the exponent up. Every number from 2**e up to 2**(e + 1) has exponent e: round down."),
        Slip("no lowest exponent",
             lambda weight, f, e: _by_exponent(math.floor, floor=False)(weight, f, e) if weight else 2.0 ** (e - f - 1),
             "Below 2**lowest_exponent the spacing stops shrinking: use the larger of the two exponents."),
        Slip("negative weights", _by_exponent(math.floor, size=lambda weight: weight),
             "A weight of −3 has the spacing of 3: take its absolute value."),
        Slip("the hidden bit counted", _by_exponent(math.floor, shift=2),
             "Half of what it should be: `fraction_bits` are the bits after the leading 1, which is not stored. Take "
             "no further bit off."),
        Slip("cut off by int()", _by_exponent(int),
             "`int` cuts towards 0, so the exponent of 0.75 becomes 0 and not −1. Round down: `math.floor`."),
    ],
    takeaway="A weight of 1 loses every update below 0.0005 in float16 and below 0.004 in bfloat16: hence float32 "
    "master weights.",
)  # fmt: skip

# -- 4. the smallest loss scale that keeps enough ----------------------------------------------------------------------

LOST, LARGEST = 2.0**-25, 65504.0  # float16 rounds this to 0, and what is less; its largest number
MOST = 40  # scales tried: 1 to 2**39


def _scales_kept(
    gradients: Sequence[float],
    share: float,
    keeps: Callable[[float], bool] = lambda size: size > LOST,
    largest: float = LARGEST,
    zeros: bool = False,
    above: bool = False,
) -> list[int]:
    """Powers of two that keep at least a share of the gradients and let none overflow; `zeros` counts the zeros too."""
    found = []
    for power in range(MOST):
        sizes = [abs(gradient) * 2**power for gradient in gradients]
        counted = [size for size in sizes if size > 0] if not zeros else sizes
        kept = sum(map(keeps, counted))
        enough = kept > share * len(counted) if above else kept >= share * len(counted)
        if enough and max(sizes) <= largest:
            found.append(2**power)
    return found


def _loss_scale(gradients: Sequence[float], share: float) -> int:
    return min(_scales_kept(gradients, share), default=0)


def _signed(gradients: Sequence[float], share: float) -> int:
    nonzero = [g for g in gradients if g]
    for power in range(MOST):
        if sum(g * 2**power > LOST for g in nonzero) >= share * len(nonzero):
            return 2**power if max(nonzero) * 2**power <= LARGEST else 0
    return 0


def _exact(gradients: Sequence[float], share: float) -> float:
    """The scale that lifts the deciding gradient just so far, not rounded to a power of two."""
    sizes = sorted((abs(g) for g in gradients if g), reverse=True)
    decides = sizes[max(math.ceil(share * len(sizes) - 1e-9), 1) - 1]
    scale = max(LOST / decides, 1.0)
    return scale if max(sizes) * scale <= LARGEST else 0


def _overflow_lost(gradients: Sequence[float], share: float) -> int:
    sizes = [abs(one) for one in gradients if one]
    scales = (2**power for power in range(MOST))
    return next((s for s in scales if sum(LOST < s * one <= LARGEST for one in sizes) >= share * len(sizes)), 0)


loss_scale = Check(
    "loss_scale",
    _loss_scale,
    cases=[
        ([3e-9, 2e-8, -5e-7, 1e-3, 0.0, 0.0], 1.0),
        ([3e-9, 2e-8, -5e-7, 1e-3, 0.0, 0.0], 0.75),
        ([1e-5, -2e-4, 0.5, 0.0], 0.9),  # nothing to do
        ([1e-12, 30.0, -2e-9], 1.0),  # none keeps all of it
        ([-4e-9, -3e-9, 6e-8, 7e-8, 0.0, 0.0, 0.0], 0.5),
        ([2.0**-30, -(2.0**-28), 2.0**-26, 1.0], 0.5),
        ([-2.0, 2.0**-38], 1.0),
        ([2.0**-26, 1.0], 1.0),  # 4: twice as much is the middle
        ([1.4 * 2.0**-28, 1.0], 1.0),  # 8: rounded up
        ([2.0**-26, 2.0**-27, 20_000.0], 0.6),  # 4 would keep enough if what overflows counted as lost
        ([2.0**-25, 32_752.0], 1.0),  # 2: exactly 65504 is no overflow
    ],
    slips=[
        Slip("overflow forgotten", lambda g, share: min(_scales_kept(g, share, largest=math.inf), default=0),
             "Your scale lets the largest gradient overflow: times the scale it is beyond 65504. If no scale keeps "
             "enough without that, return 0."),
        Slip("overflow counted as lost",
             _overflow_lost,
             "You count a gradient that overflows as one of those that may be lost. One is enough to spoil the step: "
             "no scale may let any overflow."),
        Slip("the largest scale", lambda g, share: max(_scales_kept(g, share), default=0),
             "This is the largest scale that works. The smallest leaves most room before gradients overflow."),
        Slip("zeros counted", lambda g, share: min(_scales_kept(g, share, zeros=True), default=0),
             "You counted gradients that are 0 to begin with. No scale brings them back: leave them out of the share."),
        Slip("smallest normal number",
             lambda g, share: min(_scales_kept(g, share, lambda size: size >= 2.0**-14), default=0),
             "You asked for 2**-14, the smallest number with all its digits. Down to 2**-24 a number has fewer digits"
             " and is not 0."),
        Slip("sign forgotten", _signed,
             "A negative gradient is as large as its absolute value: −5e-7 survives where 5e-7 does."),
        Slip("no power of two", _exact,
             "Your scale is no power of two. Multiplying by a power of two changes the exponent and no digit; any "
             "other factor rounds every gradient."),
        Slip("every gradient, whatever the share", lambda g, share: _loss_scale(g, 1.0),
             "You kept every gradient. A share of `share` is enough."),
        Slip("more than the share", lambda g, share: min(_scales_kept(g, min(share, 0.999), above=True), default=0),
             "Exactly the share is enough: at least, not more than."),
        Slip("smallest number asked for",
             lambda g, share: min(_scales_kept(g, share, lambda size: size >= 2.0**-24), default=0),
             "You asked for 2**-24, the smallest number. What lies above the middle between it and 0, 2**-25, is "
             "rounded up to it and is not lost."),
        Slip("the middle counted as kept",
             lambda g, share: min(_scales_kept(g, share, lambda size: size >= LOST), default=0),
             "Exactly 2**-25 becomes 0: in the middle, float16 rounds to the neighbour whose last bit is 0. Ask for "
             "more than that."),
    ],
    takeaway="A power of two moves every gradient and changes none of its digits.",
)  # fmt: skip

# -- 5. the dynamic rule -----------------------------------------------------------------------------------------------


def _rule(
    overflows: Sequence[bool],
    scale: float,
    interval: int,
    after: bool = False,
    reset_on_overflow: bool = True,
    reset_on_growth: bool = True,
    grow: float = 2,
    back: float = 0.5,
    early: int = 0,
    least: float = 0,
    whole: bool = False,
) -> list[float]:
    good, used = 0, []
    for overflow in overflows:
        before = scale
        if overflow:
            fallen = max(least, scale * back)
            scale, good = int(fallen) if whole else fallen, 0 if reset_on_overflow else good
        else:
            good += 1
            if good >= interval - early:
                scale, good = scale * grow, 0 if reset_on_growth else good
        used.append(scale if after else before)
    return used


def _next_scales(overflows: Sequence[bool], scale: float, interval: int) -> list[float]:
    return _rule(overflows, scale, interval)


NO, YES = False, True

next_scales = Check(
    "next_scales",
    _next_scales,
    cases=[
        ([NO, NO, NO, NO, NO, NO, NO], 1024, 3),
        ([NO, NO, YES, NO, NO, NO, NO], 65536, 3),
        ([YES, YES, NO, NO, YES, NO, NO, NO], 256, 2),
        ([NO, YES, NO, NO, NO, NO, YES, NO, NO, NO, NO, NO], 64, 4),
        ([NO], 64, 1),
        ([NO, NO], 64, 1),
        ([YES, YES, YES, NO], 2, 4),  # 2, 1, 0.5, 0.25: a scale may be less than 1
    ],
    slips=[
        Slip("the scale after the step", functools.partial(_rule, after=True),
             "Your list holds the scale after each step. What a step uses is known before it runs: the first is the "
             "scale given."),
        Slip("overflow does not begin the row anew", functools.partial(_rule, reset_on_overflow=False),
             "The row of good steps goes on across an overflow in your list. An overflow begins it anew."),
        Slip("growth does not begin the row anew", functools.partial(_rule, reset_on_growth=False),
             "After the first growth your scale grows at every step. Growth begins the row anew."),
        Slip("never grows", functools.partial(_rule, grow=1),
             "Your scale never grows. After `interval` good steps in a row it doubles."),
        Slip("never falls", functools.partial(_rule, back=1),
             "Your scale does not fall at an overflow, so the next step overflows too. Halve it."),
        Slip("whole numbers alone", functools.partial(_rule, least=0, whole=True),
             "Your scale is cut to whole numbers: half of 1 is 0.5, and a scale may be less than 1."),
        Slip("1 at least", functools.partial(_rule, least=1),
             "Your scale never falls below 1. The rule halves it at every overflow."),
        Slip("doubles at an overflow", functools.partial(_rule, back=2, grow=0.5),
             "Your scale moves the wrong way: an overflow means that it is too large."),
        Slip("a step early", functools.partial(_rule, early=1),
             "Your scale grows one step early: `interval` good steps come first, then the next one uses twice the "
             "scale."),
        Slip("a step late", functools.partial(_rule, early=-1),
             "Your scale grows one step late: after `interval` good steps, not one more."),
        Slip("one entry too many", lambda overflows, scale, interval: _rule([*overflows, NO], scale, interval),
             "Your list has one entry too many: the scale after the last step. Asked are the scales that the steps "
             "use, one for each."),
        Slip("one entry too few", lambda overflows, scale, interval: _rule(overflows[:-1], scale, interval),
             "Your list has one entry too few. Every step uses a scale, the last one too."),
    ],
    takeaway="The rule needs no tuning: it climbs until it overflows, steps back, and skips one update each time.",
)  # fmt: skip

check = CheckCell(globals())
