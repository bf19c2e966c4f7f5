"""What is kept for the backward pass, asked of autograd: beside the trace, and beside torch.compile's own kernels."""

from __future__ import annotations

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils.trace import training_step
from lessons.pooling.remembered import PLANNED, kept_by_type

POOLS = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


def built(*parts: tuple[int, str], side: int = 32, device: str = "meta") -> nn.Sequential:
    """Convolutions of these channels, a ReLU and a pool after each, and a head."""
    layers: list[nn.Module] = []
    inputs = 3
    with torch.device(device):
        for channels, pool in parts:
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(), POOLS[pool](2)]
            inputs, side = channels, side // 2
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * side**2, 5))


PARTS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(sorted(POOLS))), min_size=1, max_size=3)


@settings(deadline=None, max_examples=15)
@given(PARTS, st.integers(1, 5))
def test_in_eager_mode_autograd_and_trace_agree_on_what_is_kept(parts, batch):
    network = built(*parts)
    kept = kept_by_type(network, torch.empty(batch, 3, 32, 32, device="meta"))
    step = training_step(network, (3, 32, 32), criterion=lambda output, _labels: output.mean()).at(batch)
    table = step.by_layer().set_index("layer")["saved feature maps"]
    # Of the network's own layers: the loss comes after them, and for it alone the output is alive.
    assert int(kept.sum()) == table.filter(regex=r"^\d").iloc[:-1].sum()
    assert ("int64" in kept) == any(pool == "max" for _, pool in parts)


def test_compiled_a_max_pool_keeps_eight_bits_and_its_relu_a_sign():
    images = torch.empty(8, 3, 32, 32, device="meta")
    network = built((4, "max"))
    values = 8 * 4 * 32 * 32
    assert kept_by_type(network, images).to_dict() == {"float32": 4 * (values + values // 4), "int64": 8 * values // 4}
    assert kept_by_type(network, images, PLANNED).to_dict() == {
        "float32": 4 * values // 4, "bool": values, "int8": values // 4,
    }  # fmt: skip


@pytest.mark.parametrize(("window", "kind"), [(2, "int8"), (3, "int8"), (5, "int8"), (6, "int64"), (8, "int64")])
def test_compiled_a_position_in_a_window_above_five_keeps_its_eight_bytes(window, kind):
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(window))
    images = torch.empty(2, 3, 2 * window, 2 * window, device="meta")
    kept = kept_by_type(pooled.to("meta"), images, PLANNED)
    assert kept[kind] == 2 * 4 * 2 * 2 * torch.empty((), dtype=getattr(torch, kind)).itemsize
    assert len({"int8", "int64"} & set(kept.index)) == 1


def test_compiled_an_average_pool_keeps_what_it_kept():
    images, network = torch.empty(8, 3, 32, 32, device="meta"), built((4, "average"), (8, "average"))
    assert int(kept_by_type(network, images, PLANNED).sum()) == int(kept_by_type(network, images).sum())


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor writes C++")
def test_the_plan_is_what_inductor_keeps_for_each_image():
    network = built((4, "max"), side=16, device="cpu")

    def each(backend: str) -> dict[str, int]:
        """Bytes by type that two images more keep; copies of weights, in another layout, do not count."""
        counts = [kept_by_type(network, torch.randn(batch, 3, 16, 16), backend) for batch in (2, 4)]
        return {kind: int(counts[1][kind] - counts[0][kind]) for kind in counts[1].index}

    planned, real = each(PLANNED), each("inductor")
    real["float32"] -= 2 * 3 * 16 * 16 * 4  # the images, of which inductor keeps a copy in another layout
    assert planned == real
