"""What lessons 01 and 02 time has the right form, and leaves torch as it was. No time is asserted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from course_utils import networks
from course_utils.units import CourseError
from lessons.hardware.threads import measure_threads
from lessons.why_gpus import timed


def test_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    table = measure_threads(lambda: networks.mlp([8, 4, 3]), (8,), 3, 5, threads=(1, 3), seconds=0.01)
    assert torch.get_num_threads() == before
    assert list(table.index) == [1, 3]
    assert table["speed-up"].iloc[0] == 1
    assert (table["seconds"] > 0).all()
    with pytest.raises(CourseError, match="threads must be 1 or more"):
        measure_threads(lambda: networks.mlp([8, 3]), (8,), 3, 5, threads=(0, 1))


def test_the_threads_tried_reach_those_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    table = measure_threads(lambda: networks.mlp([8, 3]), (8,), 3, 5, seconds=0.001)
    assert list(table.index) == [1, 2, 4, 6]


def test_layers_are_timed_each_and_the_module_is_left_as_it_was() -> None:
    model = networks.small_cnn().eval()
    hooks = [len(layer._forward_hooks) for layer in model.modules()]
    took = timed.measure_layers(model, torch.randn(2, 3, 32, 32), runs=2, only=(nn.Conv2d, nn.Linear))
    assert list(took) == ["conv1", "conv2", "fc"]
    assert all(seconds > 0 for seconds in took.values())
    assert [len(layer._forward_hooks) for layer in model.modules()] == hooks
    assert len(timed.measure_layers(model, torch.randn(1, 3, 32, 32), runs=1)) == 8
    with pytest.raises(CourseError, match="runs must be 1 or more, got 0"):
        timed.measure_layers(model, torch.randn(1, 3, 32, 32), runs=0)


def test_a_layer_used_twice_is_timed_twice_and_an_unused_one_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(self.used(x))  # type: ignore[no-any-return]

    clock = iter(range(1000))
    monkeypatch.setattr(timed, "timer", lambda: float(next(clock)))
    assert timed.measure_layers(Twice(), torch.randn(3, 4), runs=3) == {"used": 2.0}


def test_products_are_timed_in_four_ways_and_torchs_threads_put_back() -> None:
    threads = torch.get_num_threads()
    table = timed.measure_products(16, seconds=0.01)
    assert len(table) == 4
    assert table.index[0] == "Python's loops"
    assert (table["seconds"] > 0).all()
    assert table["times faster"].iloc[0] == 1
    np.testing.assert_allclose(table["GFLOP/s"] * table["seconds"], 2 * 16**3 / 1e9)
    assert timed.measure_products(16, seconds=0.01, python=False).index[0] == "NumPy"
    assert torch.get_num_threads() == threads
    with pytest.raises(CourseError, match="side must be 1 or more, got 0"):
        timed.measure_products(0)
