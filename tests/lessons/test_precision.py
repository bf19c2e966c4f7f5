"""Formats, spacing and fates agree with PyTorch's own conversion."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_utils import networks
from course_utils.machine.hardware import device
from course_utils.trace import PRECISIONS, training_step
from course_utils.units import CourseError
from lessons.half_precision import judge
from lessons.half_precision.precision import (  # fmt: skip
    Halving,
    bits,
    copy_bytes,
    fate,
    formats,
    gradients,
    index_bytes,
    powers,
    spacing,
    speed_up,
)

FORMATS = st.sampled_from(list(PRECISIONS))


def test_formats_are_those_of_the_standards() -> None:
    table = formats()  # IEEE 754 binary32 and binary16; bfloat16 is the upper half of binary32
    assert table["exponent bits"].to_dict() == {"float32": 8, "bfloat16": 8, "float16": 5}
    assert table["fraction bits"].to_dict() == {"float32": 23, "bfloat16": 7, "float16": 10}
    assert table.loc["float16", ["largest", "smallest normal", "smallest"]].tolist() == [65504, 2**-14, 2**-24]
    assert table.loc["bfloat16", "smallest"] == 2**-133
    assert table["digits"].to_dict() == {"float32": 6, "bfloat16": 2, "float16": 3}
    for name, dtype in PRECISIONS.items():
        smallest = torch.tensor(table.loc[name, "smallest"], dtype=torch.float64)
        assert smallest.to(dtype) == smallest
        assert (smallest / 2).to(dtype) == 0


@given(st.floats(-65504, 65504, allow_nan=False, width=32))
def test_bits_are_those_of_pythons_struct(value: float) -> None:
    """binary16 and binary32 from struct; bfloat16 is the upper half of the binary32 of the number it stores."""
    for name, layout in (("float16", ">e"), ("float32", ">f"), ("bfloat16", ">f")):
        found = bits(value, name)
        written = f"{int.from_bytes(struct.pack(layout, found.value)):b}".zfill(8 * struct.calcsize(layout))
        stored = found.sign + found.exponent + found.fraction
        assert written == stored.ljust(len(written), "0")
        digits = found.hidden + int(found.fraction, 2) / 2 ** len(found.fraction)
        assert (-1) ** int(found.sign) * digits * 2.0**found.power == found.value
        assert abs(found.value - value) <= spacing(value, name) / 2


def test_a_number_beyond_a_format_has_no_bits() -> None:
    assert bits(0.1, "float16").reading == "(1 + 614/1,024) · 2⁻⁴ = 0.09997558594"
    with pytest.raises(CourseError, match="float16 has no finite number near 70000"):
        bits(70000, "float16")


@given(FORMATS, st.floats(-60000, 60000, allow_nan=False, width=32))
def test_spacing_is_the_step_to_the_next_number(name: str, value: float) -> None:
    dtype = PRECISIONS[name]
    number = torch.tensor(value, dtype=torch.float64).to(dtype)
    if not abs(float(number)) < torch.finfo(dtype).max:
        return
    away = math.copysign(math.inf, value)
    after = torch.nextafter(number.float() if name == "float32" else number, torch.tensor(away, dtype=dtype))
    assert abs(float(after) - float(number)) == spacing(float(number), name)


def test_the_examples_of_the_lesson() -> None:
    assert spacing(2048, "float16") == 2
    assert spacing(256, "bfloat16") == 2
    assert spacing(0, "float16") == 2**-24
    assert torch.tensor(2048.0).half() + 1 == 2048
    assert torch.tensor(256.0).bfloat16() + 1 == 256
    with pytest.raises(CourseError, match="70000 is beyond float16, whose largest number is 65504"):
        spacing(70000, "float16")
    with pytest.raises(CourseError, match="unknown precision 'int8'"):
        spacing(1, "int8")


def test_every_number_has_one_fate() -> None:
    values = torch.tensor([0.0, 2.0**-25, 2.0**-24, 2.0**-15, -(2.0**-14), 1.0, 65504.0, 65519.0, 65520.0, -1e9])
    found = fate(values, "float16")
    assert (found.zero, found.subnormal, found.normal, found.overflow) == (1, 2, 4, 2)
    assert (found.count, found.lost) == (9, pytest.approx(1 / 9))
    assert fate(values, "bfloat16").zero == 0
    assert fate(values, "float16", scale=2.0**11).zero == 0
    assert fate(torch.zeros(3), "float16").lost == 0


def test_powers_count_by_exponent() -> None:
    assert powers(torch.tensor([0.0, 1.0, -1.99, 2.0, 2.0**-24, 3.0, 2.0**-149])) == {-149: 1, -24: 1, 0: 2, 1: 2}


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_gradients_are_those_of_autograd(precision: str) -> None:
    torch.manual_seed(0)
    net = networks.small_cnn(channels=1, size=8)
    x, y = torch.rand(9, 1, 8, 8), torch.randint(10, (9,))
    found = gradients(net, x, y, precision, 4.0)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not any(layer._forward_hooks for layer in net.modules())
    (4 * nn.functional.cross_entropy(net(x), y)).backward()
    tolerance = {"float32": 1e-6, "float16": 2e-2, "bfloat16": 1e-1}[precision]
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        assert found.weights[name].dtype == torch.float32
        assert torch.linalg.norm(found.weights[name] - parameter.grad) <= tolerance * torch.linalg.norm(parameter.grad)
    assert set(found.maps) == {name for name, _ in net.named_children()}
    assert found.maps["conv1"].dtype == PRECISIONS[precision]
    assert found.maps["conv1"].shape == (9, 16, 8, 8)
    assert len(found.all_weights) == sum(p.numel() for p in net.parameters())
    assert found.all_maps.dtype == torch.float32


def test_a_scale_of_a_power_of_two_changes_no_digit() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-3
    assert torch.equal((values * 2.0**13).half().float() / 2.0**13, ((values * 2.0**9).half().float() / 2.0**9))


@pytest.mark.parametrize(
    ("precision", "peak_layer", "gone"), [("float32", "relu4_3", 25_088 + 100_352), ("float16", "fc6", 0)]
)
def test_indices_are_eight_bytes_a_pooled_value_in_every_precision(precision: str, peak_layer: str, gone: int) -> None:
    with torch.device("meta"):
        net = networks.vgg16()
    ledger = training_step(net, (3, 224, 224), 1000, precision=precision).at(128)
    assert ledger.peak_layer == peak_layer  # in float32 the last two pools are through with their backward by then
    assert index_bytes(ledger) == 8 * 128 * (1_530_368 - gone)


def test_lesson_08s_sum_by_hand_is_the_trace_but_for_cublas() -> None:
    """VGG-16 at 128 under autocast, at fc6's gradient: parameters, copies, maps and indices; biases aside."""
    with torch.device("meta"):
        net = networks.vgg16()
    peak = training_step(net, (3, 224, 224), 1000, precision="float16").at(128).peak_bytes
    fc6, fc7, fc8, per_image = 25_088 * 4_096, 4_096**2, 4_096 * 1_000, 6 * 3 * 224**2
    by_hand = 8 * 138_357_544 + 4 * (fc6 + fc7 + fc8) + 2 * fc6 + 2 * 14_710_464
    by_hand += 128 * (per_image + 2 * (13_547_520 + 1_530_368) + 8 * 1_530_368)
    assert peak - by_hand == pytest.approx(16.25 * 2**20, abs=2**16)


def halving(
    build: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, optimizer: str, batch: int
) -> Halving:
    with torch.device("meta"):
        net = build()
    full, half = (training_step(net, shape, classes, optimizer, precision) for precision in ("float32", "float16"))
    return Halving(full.at(batch), half.at(batch))


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_table_of_a_halving_adds_up(optimizer: str) -> None:
    found = halving(networks.vgg16, (3, 224, 224), 1000, optimizer, 128)
    table = found.by_role()
    assert (table["float32"].sum(), table["half"].sum()) == (found.full.peak_bytes, found.half.peak_bytes)
    assert table["change"].sum() == -found.saved_bytes
    assert (table.loc[["parameters", "optimizer state", "input"], "change"] == 0).all()
    maps = 128 * (13_547_520 + 1_530_368)  # values of convolutions and pools; the peak in float32 has lost some
    assert table.loc["feature maps", "half"] == pytest.approx(2 * maps, rel=0.02)
    assert table.loc["other"].tolist() == [0, 0, 0]
    convolutions = 14_714_688 - 4_224  # weights and biases of the 13 layers; fc6 and the rest are through
    assert table.loc["half copies of weights", "half"] == pytest.approx(2 * convolutions, rel=0.01)
    assert table.loc["half copies of weights", "float32"] == 0


def test_the_dense_net_grows_by_the_half_of_one_gradient() -> None:
    found = halving(networks.kaggle_mlp, (9000,), 32, "momentum", 128)
    assert found.saved_bytes < 0
    assert found.by_role().loc["weight gradients", "change"] == pytest.approx(
        2 * 9000 * 4000, rel=1e-3
    )  # beside float32
    adam = halving(networks.kaggle_mlp, (9000,), 32, "adam", 128)
    assert (adam.saved_bytes, adam.full.peak_phase, copy_bytes(adam.half)) == (0, "update", 0)


def test_only_tensor_cores_gain_more_than_traffic() -> None:
    found = halving(networks.vgg16, (3, 224, 224), 1000, "momentum", 64)
    for without in ("Tesla K40", "P100", "GTX 1080"):  # a P100 has float16 arithmetic, which PyTorch does not use
        assert 1 < speed_up(found, without, "float16") < 1.1
    assert speed_up(found, "V100", "float16") > 3
    assert speed_up(found, device("A100"), "bfloat16") == speed_up(found, "A100", "float16") > 5
    with pytest.raises(CourseError, match="P100 does not compute in bfloat16"):
        speed_up(found, "P100", "bfloat16")


@pytest.mark.parametrize("seed", range(2))
def test_where_a_batch_is_too_bright_all_gradients_are_nan_and_else_finite_without_a_scale(seed: int) -> None:
    bright = 0
    for training in judge._trainings(seed, seed):
        for images, labels, weight in training.batches:
            training.model.zero_grad(set_to_none=True)
            judge.half_loss(training.model, images, labels, weight).backward()
            gradients = torch.cat([p.grad.flatten() for p in training.model.parameters() if p.grad is not None])
            too_bright = float(images.max()) > judge.BRIGHT * 100
            assert bool(gradients.isnan().all() if too_bright else gradients.isfinite().all())
            bright += too_bright
    assert bright == 1
