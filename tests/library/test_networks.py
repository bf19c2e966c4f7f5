"""The networks against the papers: parameter counts, layer counts, shapes, maps and operations."""

from __future__ import annotations

import awkward_nets
import pytest
import torch
from torch import Tensor, nn

from course_utils import networks
from course_utils.networks import NETWORKS
from course_utils.units import CourseError
from lessons.memory.recurrent import rnn_from_cells

BUILDERS = {
    "alexnet": (networks.alexnet, (3, 224, 224), 1000),
    "alexnet_two_column": (networks.alexnet_two_column, (3, 227, 227), 1000),
    "overfeat": (networks.overfeat, (3, 231, 231), 1000),
    "vgg16": (networks.vgg16, (3, 224, 224), 1000),
    "vgg116": (lambda: networks.vgg_deep(116), (3, 224, 224), 1000),
    "googlenet": (networks.googlenet, (3, 224, 224), 1000),
    "resnet34": (networks.resnet34, (3, 224, 224), 1000),
    "resnet34_wide": (lambda: networks.resnet34(width=256), (3, 224, 224), 1000),
    "resnet50": (networks.resnet50, (3, 224, 224), 1000),
    "kaggle_mlp": (networks.kaggle_mlp, (9000,), 32),
    "mlp": (lambda: networks.mlp((5, 3)), (5,), 3),
    "small_cnn": (networks.small_cnn, (3, 32, 32), 10),
    "small_cnn_digits": (lambda: networks.small_cnn(channels=1, size=8), (1, 8, 8), 10),
    "rnn_from_cells": (rnn_from_cells, (7, 4), 10),
    "encoder_block": (awkward_nets.encoder_block, (9, 64), 10),
    "shared_weights": (awkward_nets.shared_weights, (64,), 10),
    "inplace_cnn": (awkward_nets.inplace_cnn, (3, 16, 16), 10),
    "branching_cnn": (awkward_nets.branching_cnn, (3, 16, 16), 10),
}
SMALL = [
    "mlp",
    "small_cnn",
    "small_cnn_digits",
    "rnn_from_cells",
    "encoder_block",
    "shared_weights",
    "inplace_cnn",
    "branching_cnn",
]


def build_on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return BUILDERS[name][0]()


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_modules(module: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(part, kind) for part in module.modules())


def run_one(module: nn.Module, input_shape: tuple[int, ...]) -> list[tuple[nn.Module, Tensor]]:
    """Run one sample on meta; the leaf modules that ran, in order, each with its output."""
    seen: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        leaf.register_forward_hook(lambda leaf, inputs, output: seen.append((leaf, output)))
        for leaf in module.modules()
        if not list(leaf.children())
    ]
    module(torch.empty(1, *input_shape, device="meta"))
    for hook in hooks:
        hook.remove()
    return seen


def multiply_adds(module: nn.Module, output: Tensor) -> int:
    """Multiply-adds of one layer from its own shapes: a product per weight for every position of the output."""
    if isinstance(module, nn.Conv2d):
        return module.weight.numel() * output.shape[-1] * output.shape[-2]
    return module.weight.numel() if isinstance(module, nn.Linear) else 0


@pytest.mark.parametrize("name", BUILDERS)
def test_builds_on_meta_and_gives_one_score_per_class(name: str) -> None:
    module = build_on_meta(name)
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    output = module(torch.empty(5, *BUILDERS[name][1], device="meta"))
    assert output.shape == (5, BUILDERS[name][2])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Krizhevsky 2014, single tower; the count torchvision publishes for the same layers.
        ("alexnet", 61_100_840),
        # Krizhevsky, Sutskever, Hinton 2012 say 60 million; layer by layer from their section 3.5.
        (
            "alexnet_two_column",
            (96 * 3 * 11**2 + 96)
            + (256 * 48 * 5**2 + 256)
            + (384 * 256 * 3**2 + 384)
            + (384 * 192 * 3**2 + 384)
            + (256 * 192 * 3**2 + 256)
            + (256 * 6 * 6 * 4096 + 4096)
            + (4096 * 4096 + 4096)
            + (4096 * 1000 + 1000),
        ),
        # Sermanet et al. 2014, table 4: 145 million for the fast model.
        ("overfeat", 145_920_872),
        # Simonyan, Zisserman 2015, table 2: 138 million for configuration D; exactly as every implementation has it.
        ("vgg16", 138_357_544),
        # The published Caffe model without its auxiliary classifiers.
        ("googlenet", 6_998_552),
        # He et al. 2016, as every implementation has it.
        ("resnet50", 25_557_032),
        # He et al. 2016, as every implementation has it.
        ("resnet34", 21_797_672),
        # Stem 9,408 + 128; a 3×3 of c channels has 9c² weights, each normalisation 2c. Stages of c = 256, 512, 1024,
        # 2048 with 3, 4, 6, 3 blocks; in each first block one 3×3 and the shortcut's 1×1 read the stage before.
        (
            "resnet34_wide",
            (9_408 + 128)
            + (9 * 64 * 256 + 64 * 256 + 5 * 9 * 256**2 + 7 * 2 * 256)
            + (9 * 256 * 512 + 256 * 512 + 7 * 9 * 512**2 + 9 * 2 * 512)
            + (9 * 512 * 1024 + 512 * 1024 + 11 * 9 * 1024**2 + 13 * 2 * 1024)
            + (9 * 1024 * 2048 + 1024 * 2048 + 5 * 9 * 2048**2 + 7 * 2 * 2048)
            + (2048 * 1000 + 1000),
        ),
        # Dettmers 2014: 9000·4000 + 4000·4000 + 4000·32 weights (he prints one digit too many) and 8,032 biases.
        ("kaggle_mlp", 52_128_000 + 8_032),
        # 4 inputs and 100 units: 100·4 + 100·100 + two biases of 100 in the cell; the dense layer 100·10 + 10.
        ("rnn_from_cells", 10_600 + 1_010),
        # one 64×64 weight, two biases, the head: 4,096 + 2·64 + 650, not 8,192 + …
        ("shared_weights", 4_096 + 128 + 650),
        # norms 2·2·64, qkv 64·192 + 192, projection 64·64 + 64, the two dense layers, the head
        ("encoder_block", 256 + 12_480 + 4_160 + (64 * 256 + 256) + (256 * 64 + 64) + 650),
        ("small_cnn", (16 * 27 + 16) + (32 * 16 * 9 + 32) + (32 * 64 * 10 + 10)),
        ("inplace_cnn", (16 * 27 + 16) + (16 * 16 * 9 + 16) + 170),
        ("branching_cnn", (16 * 27 + 16) + (8 * 16 + 8) + (8 * 16 * 25 + 8) + (16 * 16 * 9 + 16) + 170),
        ("mlp", 18),
    ],
)
def test_parameter_count(name: str, parameters: int) -> None:
    assert count_parameters(build_on_meta(name)) == parameters


def test_two_column_alexnet_is_the_figure_of_the_claims() -> None:
    assert count_parameters(build_on_meta("alexnet_two_column")) == 60_965_224


@pytest.mark.parametrize(
    ("name", "convolutions", "dense"),
    [
        ("alexnet", 5, 3),
        ("alexnet_two_column", 5, 3),
        ("overfeat", 5, 3),
        ("vgg16", 13, 3),
        ("googlenet", 57, 1),
        ("resnet34", 36, 1),  # 33 + 1 on the main path give the name; 3 projections
        ("resnet50", 53, 1),  # 49 + 1 on the main path give the name; 4 projections are not counted in it
    ],
)
def test_layer_counts(name: str, convolutions: int, dense: int) -> None:
    module = build_on_meta(name)
    assert count_modules(module, nn.Conv2d) == convolutions
    assert count_modules(module, nn.Linear) == dense


@pytest.mark.parametrize("layers", [116, 216, 316, 416])
def test_deep_vgg_adds_the_same_number_of_convolutions_to_each_group(layers: int) -> None:
    with torch.device("meta"):
        deep = networks.vgg_deep(layers)
    more = {116: 20, 216: 40, 316: 60, 416: 80}[layers]  # Rhu et al. 2016
    names = [name for name, part in deep.named_modules() if isinstance(part, nn.Conv2d)]
    per_group = [sum(name.startswith(f"conv{group}_") for name in names) for group in range(1, 6)]
    assert per_group == [2 + more, 2 + more, 3 + more, 3 + more, 3 + more]
    assert len(names) + count_modules(deep, nn.Linear) == layers


def test_vgg16_maps_convolution_by_convolution() -> None:
    seen = run_one(build_on_meta("vgg16"), (3, 224, 224))
    convolutions = [output.numel() for module, output in seen if isinstance(module, nn.Conv2d)]
    # Simonyan, Zisserman 2015, table 1: width by side, group by group.
    assert convolutions == [
        width * side * side
        for count, width, side in [(2, 64, 224), (2, 128, 112), (3, 256, 56), (3, 512, 28), (3, 512, 14)]
        for _ in range(count)
    ]
    assert sum(convolutions) == 13_547_520
    pools = [output.numel() for module, output in seen if isinstance(module, nn.MaxPool2d)]
    assert sum(pools) == 1_530_368


def test_vgg16_takes_31_gflop_forward() -> None:
    seen = run_one(build_on_meta("vgg16"), (3, 224, 224))
    flops = 2 * sum(multiply_adds(module, output) for module, output in seen)
    assert round(flops / 1e9, 2) == 30.94


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds"),
    [
        ("googlenet", 1.58),  # Szegedy et al. 2015 say about 1.5 billion; 1.58 with their table's layer sizes
        ("resnet50", 4.09),  # the paper's 3.8 has the stride in the first 1×1; in the 3×3 it is 4.1
    ],
)
def test_multiply_adds_of_the_branching_networks(name: str, giga_multiply_adds: float) -> None:
    seen = run_one(build_on_meta(name), BUILDERS[name][1])
    assert round(sum(multiply_adds(module, output) for module, output in seen) / 1e9, 2) == giga_multiply_adds


def test_googlenet_maps_have_the_sides_of_table_1() -> None:
    module = build_on_meta("googlenet")
    shapes: dict[str, tuple[int, ...]] = {}
    for name, part in module.named_children():
        part.register_forward_hook(lambda part, inputs, output, name=name: shapes.update({name: tuple(output.shape)}))
    module(torch.empty(1, 3, 224, 224, device="meta"))
    expected = {
        "conv1": (64, 112),
        "pool1": (64, 56),
        "conv2": (192, 56),
        "pool2": (192, 28),
        "inception3a": (256, 28),
        "inception3b": (480, 28),
        "inception4a": (512, 14),
        "inception4d": (528, 14),
        "inception4e": (832, 14),
        "inception5b": (1024, 7),
    }
    assert {name: (shapes[name][1], shapes[name][2]) for name in expected} == expected


def test_names_are_those_of_the_literature() -> None:
    vgg = dict(build_on_meta("vgg16").named_modules())
    assert {"conv1_1", "relu1_1", "pool1", "conv5_3", "pool5", "fc6", "fc7", "fc8"} <= set(vgg)
    assert "inception3a.branch3x3.conv" in dict(build_on_meta("googlenet").named_modules())
    assert "conv4_6.conv2" in dict(build_on_meta("resnet50").named_modules())


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_give_every_parameter_a_gradient(name: str) -> None:
    build, input_shape, classes = BUILDERS[name]
    module = build()
    loss = nn.functional.cross_entropy(module(torch.randn(3, *input_shape)), torch.arange(3) % classes)
    loss.backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


def test_shared_weights_really_share_one_storage() -> None:
    module = awkward_nets.shared_weights()
    assert module.tied.weight is module.shared.weight
    assert module.tied.bias is not module.shared.bias


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "googlenet", "resnet50"])
@pytest.mark.parametrize("side", [112, 192, 320])
def test_other_picture_sizes_keep_the_head(name: str, side: int) -> None:
    assert build_on_meta(name)(torch.empty(2, 3, side, side, device="meta")).shape == (2, 1000)


def test_average_to_passes_maps_of_the_right_size_untouched() -> None:
    maps = torch.randn(2, 3, 7, 7)
    assert networks.AverageTo(7)(maps) is maps
    # 14 to 7 is the mean of 2×2 blocks.
    maps = torch.randn(2, 3, 14, 14)
    expected = maps.reshape(2, 3, 7, 2, 7, 2).mean(dim=(3, 5))
    torch.testing.assert_close(networks.AverageTo(7)(maps), expected)


def test_rnn_equals_torch_rnn_with_the_same_weights() -> None:
    torch.manual_seed(0)
    net = rnn_from_cells(inputs=4, units=6, classes=3)
    oracle = nn.RNN(4, 6, batch_first=True)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(oracle, f"{name}_l0").data.copy_(getattr(net.cell, name))
    sequence = torch.randn(5, 7, 4)
    _, last = oracle(sequence)
    torch.testing.assert_close(net(sequence), net.fc(last[0]))


def test_encoder_equals_torch_encoder_layer_with_the_same_weights() -> None:
    torch.manual_seed(0)
    net = awkward_nets.encoder_block(width=16, heads=4, classes=3)
    oracle = nn.TransformerEncoderLayer(
        16, 4, dim_feedforward=64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    pairs = {
        "self_attn.in_proj_weight": net.qkv.weight,
        "self_attn.in_proj_bias": net.qkv.bias,
        "self_attn.out_proj.weight": net.projection.weight,
        "self_attn.out_proj.bias": net.projection.bias,
        "linear1.weight": net.fc1.weight,
        "linear1.bias": net.fc1.bias,
        "linear2.weight": net.fc2.weight,
        "linear2.bias": net.fc2.bias,
        "norm1.weight": net.norm1.weight,
        "norm1.bias": net.norm1.bias,
        "norm2.weight": net.norm2.weight,
        "norm2.bias": net.norm2.bias,
    }
    oracle.load_state_dict(pairs)
    tokens = torch.randn(2, 9, 16)
    torch.testing.assert_close(net(tokens), net.head(oracle(tokens).mean(dim=1)))


def test_networks_table_builds_what_it_says() -> None:
    assert list(NETWORKS) == ["AlexNet", "VGG-16", "GoogLeNet", "ResNet-50", "52 M dense net"]
    for name, network in NETWORKS.items():
        assert network.name == name
        with torch.device("meta"):
            module = network.build()
        assert module(torch.empty(2, *network.input_shape, device="meta")).shape == (2, network.classes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: networks.vgg_deep(115), "vgg_deep has 116, 216, 316 or 416 layers, not 115"),
        (lambda: networks.mlp((9000,)), "at least two sizes"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(call, message: str) -> None:
    with pytest.raises(CourseError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
