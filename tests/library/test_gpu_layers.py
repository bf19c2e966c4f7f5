"""Peaks of single layers that others measured on real cards: the trace says them to the byte, or by how much it misses.

`python -m benchmarks gpu_layers` prints all rows; here is the smallest of each layer, and those that a rule explains.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from benchmarks.gpu_layers import LAYERS, SCALARS, KeptGraph, published, read_peaks, traced
from course_utils.trace import training_step
from course_utils.trace.kernels import CUBLAS_WORKSPACE
from course_utils.units import MIB

ROWS = read_peaks()
FIRST = {layer: next(row for row in ROWS if row["layer"] == layer) for layer in LAYERS}
HOPPER = 2 * (32 * MIB - CUBLAS_WORKSPACE)  # what its two cuBLAS workspaces have more than those that a trace assumes


@pytest.mark.parametrize("layer", ["cross entropy", "linear, cross entropy"])
def test_losses_are_exact(layer: str) -> None:
    assert traced(FIRST[layer]) == published(FIRST[layer])[0]


@pytest.mark.parametrize("layer", [name for name, (made, _) in LAYERS.items() if issubclass(made, KeptGraph)])
def test_layers_whose_graph_is_kept_are_exact(layer: str) -> None:
    assert traced(FIRST[layer]) == published(FIRST[layer])[0]


def test_a_norm_copies_the_gradient_of_a_sum() -> None:
    row = FIRST["RMS norm"]
    assert 0 <= traced(row) - published(row)[0] <= SCALARS


def test_the_largest_rows_differ_by_what_their_numbers_can_tell() -> None:
    for layer, more in (("add, RMS norm", 0), ("two linears, Jensen-Shannon", HOPPER)):
        row = [one for one in ROWS if one["layer"] == layer][-1]
        measured, apart = published(row)
        assert abs(traced(row) + more - measured) <= 16 * 1024 + apart, layer


class Turned(nn.Module):
    """A layer norm over channels, whose gradient comes back turned or as it is."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.wide, self.norm, self.turned = nn.Linear(8, 64), nn.LayerNorm(64), turned

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.wide(x))
        return torch.sigmoid(out.transpose(1, 2).contiguous() if self.turned else out.clone()).flatten(1)


@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_a_turned_gradient_costs_a_copy_on_cuda_alone(target: str) -> None:
    def made_at_the_norm(turned: bool) -> int:
        step = training_step(Turned(turned), (16, 8), target=target, optimizer="sgd")
        ledger = step.at(4)
        event = ledger.tape.event_ops.index("native_layer_norm_backward")
        return int(ledger.size[ledger.tape.birth == event].sum())

    copy = 4 * 16 * 64 * 4 if target == "cuda" else 0  # float32 values of one map
    assert made_at_the_norm(True) - made_at_the_norm(False) == copy
