"""What fits on which card: the three states, the largest batch, and which card to take."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_steps import made_step
from torch import nn

from course_utils.capacity import (
    CANNOT,
    CONTEXT_BYTES,
    FITS,
    TIGHT,
    TOO_SMALL,
    cheapest,
    demand,
    on_cards,
    smallest,
)
from course_utils.hardware import device, devices
from course_utils.trace import training_step
from course_utils.units import GIB, MIB, CourseError

STEP = made_step(name="net")


def card(gib, **changes):
    return replace(device("RTX 4090"), memory_gb=gib, **changes)


def test_a_step_asks_for_tensors_gaps_and_context():
    asked, ledger = demand(STEP, 64), STEP.at(64)
    assert asked.least == ledger.peak_bytes + CONTEXT_BYTES
    assert asked.safe == ledger.reserved_bytes() + CONTEXT_BYTES >= asked.least
    assert demand(STEP, 64, 0).least == ledger.peak_bytes


def test_the_three_states_meet_at_their_bounds():
    asked = demand(STEP, 64)
    assert asked.safe > asked.least
    sizes = {asked.least - 1: TOO_SMALL, asked.least: TIGHT, asked.safe - 1: TIGHT, asked.safe: FITS}
    found = on_cards(STEP, 64, [card(size / GIB) for size in sizes])
    assert [fit.state for fit in found] == list(sizes.values())
    assert [fit.spare_bytes for fit in found] == [size - asked.least for size in sizes]


@given(st.integers(1, 300), st.floats(1, 200))
def test_a_larger_card_is_never_worse_and_its_largest_batch_is_the_largest(batch, gib):
    smaller, larger = on_cards(STEP, batch, [card(gib), card(2 * gib)])
    order = [TOO_SMALL, TIGHT, FITS]
    assert order.index(smaller.state) <= order.index(larger.state)
    assert smaller.largest_batch <= larger.largest_batch
    assert (batch <= smaller.largest_batch) == (smaller.state != TOO_SMALL)


def test_of_two_dies_a_program_has_one_and_of_a_b200_what_is_usable():
    names = ("Tesla K80", "Tesla K40", "B200")
    k80, k40, b200 = on_cards(STEP, 32, [device(name) for name in names])
    assert k80.largest_batch == k40.largest_batch
    assert b200.spare_bytes == 179 * GIB - demand(STEP, 32).least


def test_bfloat16_needs_a_card_that_computes_in_it():
    step = training_step(nn.Linear(10, 5), (10,), 5, precision="bfloat16")
    states = {fit.device.name: fit.state for fit in on_cards(step, 8, devices())}
    assert {name for name, state in states.items() if state == CANNOT} == {
        item.name for item in devices() if not item.bfloat16
    }
    assert {state for name, state in states.items() if device(name).bfloat16} == {FITS}


def test_memory_that_does_not_grow_has_no_largest_batch():
    step = made_step([("a", 100, 0)], sample=0)
    assert on_cards(step, 4, [card(4)])[0].largest_batch is None


def test_the_smallest_and_the_cheapest_card():
    offers = [
        card(24, name="a", launch_usd=900),
        card(12, name="b", launch_usd=None),
        card(12, name="c", launch_usd=1500),
        card(48, name="d", launch_usd=700),
        card(2, name="e", launch_usd=10),
    ]
    fits = on_cards(STEP, 32, offers)
    assert smallest(fits).device.name == "c"  # of the two with 12 GiB the one with a price
    assert cheapest(fits).device.name == "d"
    assert cheapest(fits[1:2]) is None
    assert smallest(fits[4:]) is None is cheapest(fits[4:])


def test_the_context_assumed_is_among_those_seen():
    assert 200e6 < CONTEXT_BYTES < 1000e6
    assert CONTEXT_BYTES == 512 * MIB


def test_a_batch_below_one_is_one_line():
    with pytest.raises(CourseError, match="batch must be a whole number of 1 or more, got 0"):
        on_cards(STEP, 0, devices())
