"""The scratch memory of convolutions, measured: on a GPU, and its workings on this CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.scratch import convolutions, measure_scratch
from course_utils import networks
from course_utils.machine import card
from course_utils.networks import NETWORKS, Network
from course_utils.trace import training_step


def test_the_convolutions_of_a_network_with_the_maps_they_get() -> None:
    found = convolutions(NETWORKS["AlexNet"])
    assert len(found) == 5
    assert [first for *_, first in found] == [True, False, False, False, False]
    name, layer, shape, _ = found[1]
    assert (layer.in_channels, layer.kernel_size, shape[0]) == (64, (5, 5), 64)
    assert name in dict(NETWORKS["AlexNet"].build().named_modules())
    assert len(convolutions(NETWORKS["VGG-16"])) == 13
    assert not found[0][1]._forward_pre_hooks


def test_scratch_memory_is_what_stands_above_the_tensors() -> None:
    network = Network("net", networks.small_cnn, (3, 32, 32), 10)
    found = list(measure_scratch(network, 4, search=False, device="cpu"))
    assert found
    for one in found:
        assert min(one.forward, one.backward, one.first) >= 0
    assert found[0].maps == 4 * 4 * (3 * 32 * 32 + 16 * 32 * 32)
    dense = Network("dense", lambda: nn.Sequential(nn.Linear(4, 4)), (4,), 4)
    assert list(measure_scratch(dense, 4, search=False, device="cpu")) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; PyTorch sees none")
def test_on_a_gpu_the_peak_is_the_trace_and_at_most_the_scratch_memory_measured() -> None:
    network = NETWORKS["AlexNet"]
    with torch.backends.cudnn.flags(enabled=True, benchmark=False):
        memory = card.measure_one(network, 16, seconds=1e-3).memory
        scratch = [max(each.forward, each.backward) for each in measure_scratch(network, 16, search=False)]
    assert memory is not None
    assert memory.reserved_bytes is not None
    traced = training_step(network.build(), network.input_shape, network.classes).at(16).peak_bytes
    room = 64 * 2**20  # what cuBLAS keeps differs from card to card
    assert traced - room <= memory.peak_bytes <= traced + max(scratch) + room
    assert memory.reserved_bytes >= memory.peak_bytes
