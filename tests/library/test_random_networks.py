"""Networks drawn by hypothesis, held against both witnesses; what real tensors refuse, the trace must refuse too."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from oracles import Case, live_storages_timeline, mem_tracker_timeline
from random_nets import Build, random_networks
from small_nets import operators

from course_utils.trace import TraceError, training_step

OPTIMIZERS = ("sgd", "momentum", "adam")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(random_networks(), st.sampled_from([1, 2, 3, 8]), st.sampled_from(OPTIMIZERS))
def test_random_networks_equal_both_witnesses(
    network: tuple[Build, tuple[int, ...]], batch: int, optimizer: str
) -> None:
    build, input_shape = network
    case = Case(build, input_shape, 5, optimizer)
    note(f"{build()}, input {input_shape}, batch {batch}, {optimizer}")
    try:
        real = live_storages_timeline(case, batch)
    except (RuntimeError, ValueError) as error:
        # What the backward pass needs is overwritten, or a single value is normalised: the trace must refuse it too.
        with pytest.raises(TraceError, match=re.escape(str(error)[:30])):
            training_step(build(), input_shape, 5, optimizer, target="cpu").at(batch)
        return
    ledger = training_step(build(), input_shape, 5, optimizer, target="cpu").at(batch)
    assert operators(ledger) == real
    timeline, peak = mem_tracker_timeline(case, batch)
    assert operators(ledger) == timeline
    assert ledger.peak_bytes == peak
