"""Every network with one hidden layer from four traces: inputs, units, ten outputs.

All counts of such a network, bytes and operations of each operator, are `a + b·inputs + c·units + d·inputs·units`. Four
traced networks give the four coefficients, and so the trace of any other, exactly and at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from course_utils.memory import Int64, StepTrace, Tape
from course_utils.networks import mlp
from course_utils.trace import training_step
from course_utils.units import CourseError

OUTPUTS = 10
CORNERS = (16, 48)  # inputs and units of the traced four: small, so that products stay far from 2**63
WIDE = CORNERS[1] - CORNERS[0]


def hidden_layer_step(inputs: int, units: int, target: str = "cuda") -> StepTrace:
    """The training step (momentum, cross-entropy) of `mlp((inputs, units, 10))`, as `training_step` traces it.

    Args:
        inputs: values of one sample, 2 or more.
        units: of the hidden layer, 2 or more.
        target: whose kernels, "cuda" or "cpu".

    Raises:
        CourseError: a size below 2.
    """
    if inputs < 2 or units < 2:
        raise CourseError(f"inputs and units must be 2 or more, got {inputs} and {units}")
    tapes = [[_tape(i, u, target) for u in CORNERS] for i in CORNERS]

    def count(read: Callable[[Tape], Int64]) -> Int64:
        """What `read` takes from the four tapes, at these inputs and units."""
        weights = [[(CORNERS[1] - size), (size - CORNERS[0])] for size in (inputs, units)]
        parts = [weights[0][i] * weights[1][u] * read(tapes[i][u]) for i in (0, 1) for u in (0, 1)]
        total: Int64 = np.sum(parts, axis=0)
        return total // WIDE**2

    tape = replace(
        tapes[0][0],
        fixed=count(lambda tape: tape.fixed),
        per_sample=count(lambda tape: tape.per_sample),
        event_traffic=count(lambda tape: tape.event_traffic),
        count_flops=lambda: count(lambda tape: tape.event_flops),
        layer_shapes={},
        layer_parameters={"fc1": units * (inputs + 1), "fc2": OUTPUTS * (units + 1)},
    )
    return StepTrace(
        f"{inputs:,}–{units:,}–{OUTPUTS}", tape, lambda batch: _traced(inputs, units, target).trace_at(batch)
    )


def _traced(inputs: int, units: int, target: str) -> StepTrace:
    with torch.device("meta"):
        module = mlp((inputs, units, OUTPUTS))
    return training_step(module, (inputs,), OUTPUTS, target=target)


@lru_cache(maxsize=16)
def _tape(inputs: int, units: int, target: str) -> Tape:
    tape = _traced(inputs, units, target).tape
    assert tape is not None, "a dense network is affine in the batch"
    return tape
