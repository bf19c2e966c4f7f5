"""Real steps: what the allocator handed out stands a little above the trace, and never below it."""

import pytest
import torch

from course_utils import networks
from course_utils.machine.measure import measure_step, this_machine
from course_utils.trace import training_step
from course_utils.units import CourseError


def sizes(batch: int, optimizer: str, device: str) -> tuple[int, int]:
    """(measured, traced) peak bytes of the same step."""
    measured = measure_step(networks.small_cnn(), (3, 32, 32), 10, batch, optimizer, device)
    target = "cpu" if device == "cpu" else "cuda"
    traced = training_step(networks.small_cnn(), (3, 32, 32), 10, optimizer, target=target).at(batch)
    return measured.peak_bytes, traced.peak_bytes


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_dense_network_on_the_cpu_is_the_trace_but_for_python_numbers(optimizer):
    measured = measure_step(networks.mlp((50, 300, 200, 10)), (50,), 10, 64, optimizer, "cpu")
    traced = training_step(networks.mlp((50, 300, 200, 10)), (50,), 10, optimizer, target="cpu").at(64).peak_bytes
    assert 0 <= measured.peak_bytes - traced <= 64
    assert measured.reserved_bytes is None
    assert 0 < measured.before_bytes < measured.peak_bytes


def test_convolutions_add_at_most_scratch_memory_of_their_kernels():
    measured, traced = sizes(16, "momentum", "cpu")
    assert traced <= measured  # by how much is the processor's affair


def test_state_is_there_before_the_measured_step():
    plain, momentum, adam = (
        measure_step(networks.mlp((20, 30, 10)), (20,), 10, 4, optimizer, "cpu").before_bytes
        for optimizer in ("sgd", "momentum", "adam")
    )
    parameters = 4 * (20 * 30 + 30 + 30 * 10 + 10)
    assert momentum - plain == parameters
    assert adam - plain == 2 * parameters + 4 * 4  # and a step counter for each of the four tensors


def test_inference_is_the_trace_without_gradients_and_leaves_the_network_in_its_mode():
    network = networks.mlp((50, 300, 200, 10))
    network[1].eval()
    modes = [module.training for module in network.modules()]
    measured = measure_step(network, (50,), 10, 64, optimizer=None, device="cpu")
    traced = training_step(network, (50,), 10, optimizer=None, target="cpu").at(64)
    assert 0 <= measured.peak_bytes - traced.peak_bytes <= 64
    parameters = 4 * sum(p.numel() for p in network.parameters())
    assert measured.before_bytes == parameters + 4 * 64 * 50
    assert [module.training for module in network.modules()] == modes


@pytest.mark.parametrize("frozen", [0, 2, 4])
def test_frozen_layers_cost_what_the_trace_says(frozen):
    network = networks.mlp((50, 300, 200, 10))
    network[:frozen].requires_grad_(False)
    measured = measure_step(network, (50,), 10, 64, "adam", "cpu")
    traced = training_step(network, (50,), 10, "adam", target="cpu").at(64)
    assert 0 <= measured.peak_bytes - traced.peak_bytes <= 64


def test_wrong_arguments_are_one_line(monkeypatch):
    with pytest.raises(CourseError, match="unknown optimizer 'rmsprop'"):
        measure_step(networks.small_cnn(), (3, 32, 32), 10, 2, "rmsprop")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match="shows PyTorch no GPU"):
        measure_step(networks.small_cnn(), (3, 32, 32), 10, 2, device="cuda")
    assert "torch" in this_machine()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_on_a_gpu_the_trace_is_within_a_tenth_workspace_aside(optimizer):
    with torch.backends.cudnn.flags(benchmark=False):
        measured, traced = sizes(256, optimizer, "cuda")
    assert abs(traced / measured - 1) < 0.1
