"""The checks of exercise 12, "Capstone": references, inputs, and the slips people make.

Memory in bytes, time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from classroom.questions.cell import CheckCell
from classroom.questions.core import Slip
from classroom.questions.functions import Check
from lessons.capstone.behaviour import find_plan as find_plan
from lessons.capstone.behaviour import your_plan as your_plan
from lessons.shared.checks import BytesCheck

# -- 1. the bytes of a plan ------------------------------------------------------------------------------------------


def _plan_bytes(
    batch: int, parts: int, half: bool, context: int, fixed: int, accumulated: int, per_sample: int, copies: int
) -> int:
    maps = batch // parts * per_sample
    return context + fixed + (accumulated if parts > 1 else 0) + (maps // 2 + copies if half else maps)


def _wrong_bytes(
    maps_of: Callable[[int, int], int] = lambda batch, parts: batch // parts,
    kept: Callable[[int], int] = lambda parts: int(parts > 1),
    halves: str = "maps",
    with_copies: bool = True,
    with_context: bool = True,
) -> Callable[..., int]:
    """The sum with one term wrong: samples of maps, times the gradients count, what halves, copies, the context."""

    def total(
        batch: int, parts: int, half: bool, context: int, fixed: int, accumulated: int, per_sample: int, copies: int
    ) -> int:
        by = 2 if half else 1
        all_of_it = fixed + kept(parts) * accumulated
        maps = maps_of(batch, parts) * per_sample // (1 if halves == "nothing" else by)
        rest = all_of_it // by if halves == "everything" else all_of_it
        return (context if with_context else 0) + rest + maps + (copies if half and with_copies else 0)

    return total


MB = 10**6
plan_bytes = BytesCheck(
    "plan_bytes",
    _plan_bytes,
    cases=[
        (256, 1, False, 512 * MB, 1_660 * MB, 410 * MB, 74 * MB, 277 * MB),
        (256, 2, False, 512 * MB, 1_660 * MB, 410 * MB, 74 * MB, 277 * MB),
        (256, 8, True, 512 * MB, 1_660 * MB, 410 * MB, 74 * MB, 277 * MB),
        (128, 1, True, 512 * MB, 900 * MB, 300 * MB, 42 * MB, 50 * MB),
        (96, 3, True, 300 * MB, 626 * MB, 208 * MB, 2 * MB, 104 * MB),
        (8, 2, True, 1, 30, 20, 6, 7),
        (8, 1, False, 1, 30, 20, 6, 7),
    ],
    slips=[
        Slip("maps of the whole batch", _wrong_bytes(maps_of=lambda batch, parts: batch),
             "You count the maps of the whole batch. Those of one micro-batch are gone when the next one comes: count"
             " `batch / parts` samples."),
        Slip("gradients for each part", _wrong_bytes(kept=lambda parts: parts),
             "You count gradients once for each micro-batch. They are added up into *one* set, which is what stays."),
        Slip("gradients of the other parts", _wrong_bytes(kept=lambda parts: parts - 1),
             "You keep gradients for every micro-batch but the last. They are added up into one set, whatever `parts`"
             " is."),
        Slip("gradients always", _wrong_bytes(kept=lambda parts: 1),
             "With one part nothing is accumulated, so `accumulated` does not come on top."),
        Slip("gradients forgotten", _wrong_bytes(kept=lambda parts: 0),
             "From the second micro-batch on, the gradients of those before are alive as well: `accumulated`."),
        Slip("everything halved", _wrong_bytes(halves="everything"),
             "You halved weights, momentum and gradients too. In mixed precision they stay float32; the maps are "
             "half."),
        Slip("nothing halved", _wrong_bytes(halves="nothing"),
             "The maps are as large as before here: in 16 bits each value takes half the bytes."),
        Slip("copies forgotten", _wrong_bytes(with_copies=False),
             "The half copies of the weights are missing, `copies`: the layers compute with them."),
        Slip("context forgotten", _wrong_bytes(with_context=False),
             "The driver's context is missing. It is no tensor, and it takes its part of the card all the same."),
    ],
    takeaway="Parts divide the maps, 16 bits halve them; neither touches what is there whatever the batch.",
)  # fmt: skip

# -- 2. the time of a plan -------------------------------------------------------------------------------------------


def _update_seconds(
    parts: int, forward: float, backward: float, copy_out: float, copy_back: float, update: float
) -> float:
    return parts * (max(forward, copy_out) + max(backward, copy_back)) + update


update_seconds = Check(
    "update_seconds",
    _update_seconds,
    cases=[
        (1, 1.9, 3.8, 1.7, 1.7, 0.01),
        (2, 0.9, 1.9, 1.2, 1.2, 0.05),
        (4, 0.25, 0.5, 0.6, 0.6, 0.02),
        (8, 0.1, 0.2, 0.0, 0.0, 0.02),
        (3, 0.5, 0.7, 0.2, 0.9, 0.3),
        (2, 0.1, 0.2, 0.9, 0.1, 0.05),  # one copy longer than both passes
        (2, 0.1, 0.2, 0.1, 0.9, 0.05),
    ],
    slips=[
        Slip("nothing overlaps", lambda n, f, b, out, back, u: n * (f + out + b + back) + u,
             "You added copies to kernels. They run at the same time: each pass takes as long as the longer of the "
             "two."),
        Slip("copies are free", lambda n, f, b, out, back, u: n * (f + b) + u,
             "A copy that takes longer than the pass beside it is waited for. Take the longer of the two."),
        Slip("one pass hides the other's copies", lambda n, f, b, out, back, u: n * max(f + b, out + back) + u,
             "You let the backward pass hide the copies of the forward pass. A map has to be gone before it is "
             "needed: compare pass by pass."),
        Slip("the whole step hides", lambda n, f, b, out, back, u: max(n * (f + b) + u, n * (out + back)),
             "You compared all kernels with all copies. A copy can hide only behind its own pass."),
        Slip("an update for each part", lambda n, f, b, out, back, u: n * (max(f, out) + max(b, back) + u),
             "You update after every micro-batch. That is another training; accumulation updates once."),
        Slip("update forgotten", lambda n, f, b, out, back, u: n * (max(f, out) + max(b, back)),
             "The update is missing: it comes once, after the last part."),
        Slip("one part only", lambda n, f, b, out, back, u: max(f, out) + max(b, back) + u,
             "This is one micro-batch with its update. The times given are those of one micro-batch; there are "
             "`parts`."),
        Slip("times divided by the parts", lambda n, f, b, out, back, u: (max(f, out) + max(b, back)) / n + u,
             "You divided by the number of parts. The times given are those of *one* micro-batch already."),
        Slip("the shorter one", lambda n, f, b, out, back, u: n * (min(f, out) + min(b, back)) + u,
             "You took the shorter of pass and copy. The next layer waits for whichever ends last."),
    ],
    takeaway="Copies are free as long as they are shorter than the pass they run beside, and cost time from there on.",
)  # fmt: skip

# -- 3. the plans that nothing beats -----------------------------------------------------------------------------------

Points = Mapping[str, tuple[float, float]]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def _front(plans: Points, beats: Callable[[Any, Any], bool] = _beats) -> list[str]:
    left = [name for name in plans if not any(beats(other, plans[name]) for other in plans.values())]
    return sorted(left, key=lambda name: (plans[name][1], plans[name][0]))


def _unbeaten(plans: Points) -> list[str]:
    return _front(plans)


def _by_neighbour(plans: Points) -> list[str]:
    order = sorted(plans, key=lambda name: (plans[name][1], plans[name][0]))
    return [name for i, name in enumerate(order) if not i or plans[name][0] < plans[order[i - 1]][0]]


def _ties_as_given(plans: Points) -> list[str]:
    front: list[str] = []
    for name in sorted(plans, key=lambda name: plans[name][1]):
        if not front or plans[name][0] < plans[front[-1]][0]:
            front.append(name)
    return front


def _by_bytes(plans: Points) -> list[str]:
    order = sorted(plans, key=lambda name: plans[name][0])
    return [name for i, name in enumerate(order) if all(plans[name][1] <= plans[one][1] for one in order[:i])][::-1]


def _ends(plans: Points) -> list[str]:
    ends = [min(plans, key=lambda n: (plans[n][1], plans[n][0])), min(plans, key=lambda n: plans[n])]
    return list(dict.fromkeys(ends))


unbeaten = Check(
    "unbeaten",
    _unbeaten,
    cases=[
        ({"plain": (19.6, 5.77), "2 × 128": (11.2, 5.78), "4 × 64": (6.8, 5.79), "offload all": (14.5, 7.42)},),
        ({"d": (2, 8), "a": (9, 1), "c": (4, 4), "e": (4, 6), "b": (7, 3), "f": (8, 3)},),
        ({"a": (5, 1), "b": (5, 2), "c": (3, 2), "d": (6, 3), "e": (4, 5), "f": (1, 9)},),
        ({"only": (1, 1)},),
        ({"z": (3, 3), "y": (2, 4), "x": (5, 3), "w": (4, 5), "v": (1, 6)},),
        ({"b": (5, 2), "c": (3, 2)},),
        ({"b": (5, 2), "a": (5, 1)},),
    ],
    slips=[
        Slip("all of them", lambda plans: sorted(plans, key=lambda name: (plans[name][1], plans[name][0])),
             "Every plan is in your list. Leave out those for which another one is at least as good in both, bytes "
             "and seconds."),
        Slip("beaten in both only", lambda plans: _front(plans, lambda a, b: a[0] < b[0] and a[1] < b[1]),
             "You keep a plan that is equal in one and worse in the other. As fast with more memory is beaten."),
        Slip("beaten in either", lambda plans: _front(plans, lambda a, b: a != b and (a[0] < b[0] or a[1] < b[1])),
             "You drop a plan as soon as another is better in *one*. It is beaten only by one that is at least as "
             "good in both."),
        Slip("against the next faster one", _by_neighbour,
             "You compared each plan with the next faster one only. Another, faster still, may need even less."),
        Slip("only the ends", _ends,
             "You return the fastest and the leanest. Between the two there are plans that no other beats."),
        Slip("leanest first", lambda plans: _front(plans)[::-1],
             "The plans are right and the order is not: fastest first."),
        Slip("in the order given", lambda plans: [name for name in plans if name in _front(plans)],
             "The plans are right, in the order in which they were given. Sort them, fastest first."),
        Slip("by bytes, ties as given", _by_bytes,
             "You went through the plans by bytes, and kept one that takes as long as a leaner one. Equal seconds with "
             "more bytes is beaten."),
        Slip("the beaten ones", lambda plans: [name for name in plans if name not in _front(plans)],
             "These are the plans that are beaten. The others are asked for."),
        Slip("ties in the order given", _ties_as_given,
             "Of two plans that take equally long you kept the one that comes first. The one with fewer bytes beats "
             "it: sort by seconds, then by bytes."),
    ],
    takeaway="Whatever you want, the answer is on the front: no other plan needs a second look.",
    parts=True,
)  # fmt: skip

# -- 4. the least time -------------------------------------------------------------------------------------------------

Table = Mapping[str, tuple[float, float, bool]]


def _choose(
    plans: Table,
    room: float,
    fits: Callable[[float, float], bool] = lambda needs, room: needs <= room,
    same_update: bool = True,
    key: Callable[[tuple[float, float, bool]], Any] = lambda plan: plan[1],
) -> str | None:
    left = [n for n, plan in plans.items() if fits(plan[0], room) and (plan[2] or not same_update)]
    return min(left, key=lambda name: key(plans[name]), default=None)


def _least_time(plans: Table, room: float) -> str | None:
    return _choose(plans, room)


least_time = Check(
    "least_time",
    _least_time,
    cases=[
        (
            {
                "plain": (19.6, 5.77, True),
                "offload": (14.5, 7.42, True),
                "stride 2": (6.0, 2.1, False),
                "8 × 32": (4.6, 5.83, True),
                "2 × 128": (11.2, 5.78, True),
            },
            12,
        ),
        ({"a": (12, 3.0, True), "b": (11, 4.0, True), "c": (3, 9.0, True)}, 12),  # equal to the room
        ({"a": (12, 3.0, True), "b": (5, 1.0, False)}, 10),  # nothing is left
        ({"slow": (2, 8.0, True), "quick": (7, 2.0, True), "quickest": (9, 1.0, True), "lean": (1, 9.0, True)}, 8),
        ({"other": (1, 1.0, False), "large": (30, 2.0, True), "right": (10, 5.0, True), "lean": (3, 6.0, True)}, 11),
        ({"r": (5, 6.0, True), "q": (9, 4.0, True), "p": (7, 2.0, True), "s": (2, 3.0, True)}, 10),
    ],
    slips=[
        Slip("another network", lambda plans, room: _choose(plans, room, same_update=False),
             "You chose a plan that trains something else. The third entry says whether the update is the same; if it"
             " is not, the plan does not count."),
        Slip("memory forgotten", lambda plans, room: _choose(plans, room, fits=lambda needs, room: True),
             "You chose the fastest of all, and it does not fit. Look at the memory first."),
        Slip("least memory", lambda plans, room: _choose(plans, room, key=lambda plan: plan[0]),
             "You chose the plan that needs the least. What is left of the card's memory buys nothing: of those that "
             "fit, take the fastest."),
        Slip("most memory that fits", lambda plans, room: _choose(plans, room, key=lambda plan: -plan[0]),
             "You chose the plan that fills the card best. A full card is no faster than an empty one: compare times."),
        Slip("slowest", lambda plans, room: _choose(plans, room, key=lambda plan: -plan[1]),
             "This is the slowest one that fits."),
        Slip("strictly less", lambda plans, room: _choose(plans, room, fits=lambda needs, room: needs < room),
             "A plan that needs as much as there is room for fits."),
        Slip("first that fits",
             lambda plans, room: next((n for n, (needs, _, same) in plans.items() if needs <= room and same), None),
             "You took the first plan that fits. The order of the table means nothing."),
    ],
    takeaway="First what is allowed, then what fits, and time decides among the rest.",
    parts=True,
)  # fmt: skip

check = CheckCell(globals())
