"""A network from four traces is the network traced: every count equal, at every size."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_utils.networks import mlp
from course_utils.trace import training_step
from course_utils.units import CourseError
from lessons.why_gpus.hidden_layer import OUTPUTS, hidden_layer_step


@settings(deadline=None, max_examples=15)
@given(st.integers(2, 5000), st.integers(2, 20_000), st.sampled_from(["cpu", "cuda"]))
def test_every_count_is_that_of_the_trace(inputs, units, target):
    with torch.device("meta"):
        module = mlp((inputs, units, OUTPUTS))
    traced = training_step(module, (inputs,), OUTPUTS, target=target)
    made = hidden_layer_step(inputs, units, target)
    for name in ("fixed", "per_sample", "role", "birth", "death", "event_phase", "event_traffic", "event_flops"):
        assert np.array_equal(getattr(made.tape, name), getattr(traced.tape, name)), name
    assert made.tape.event_ops == traced.tape.event_ops
    assert made.tape.layer_parameters["fc1"] == sum(p.numel() for p in module.fc1.parameters())
    assert made.at(1).peak_bytes == traced.at(1).peak_bytes
    assert made.at(77).peak_bytes == traced.at(77).peak_bytes


@pytest.mark.parametrize("sizes", [(1, 10), (10, 0)])
def test_sizes_below_two_are_refused(sizes):
    with pytest.raises(CourseError, match="inputs and units must be 2 or more"):
        hidden_layer_step(*sizes)
