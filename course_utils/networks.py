"""The networks the lessons speak of, as plain modules whose parts carry the literature's names.

Every builder also works under `with torch.device("meta")`, where it allocates nothing.

Shapes are given for one sample, without the batch axis. Weights are PyTorch's default initialisation: the course
counts bytes and operations, and trains only the small networks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.units import CourseError

VGG_GROUPS = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # (convolutions, channels) of the five groups, 1 to 5


def _sequence(layers: Iterable[tuple[str, nn.Module]]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


class AverageTo(nn.Module):
    """Averages maps to the `size` × `size` that a dense head was built for; maps of that size pass untouched.

    It lets a network with a dense head take other picture sizes with the same parameters, and costs nothing, not even
    a copy, at the size of the paper.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, channels, size, size)."""
        if tuple(maps.shape[-2:]) == (self.size, self.size):
            return maps
        return F.adaptive_avg_pool2d(maps, self.size)


# ---------------------------------------------------------------------------------------------------------------------
# ImageNet networks


def alexnet(classes: int = 1000, inplace: bool = False) -> nn.Sequential:
    """AlexNet in its single-tower form: input 3×224×224, 61,100,840 parameters at 1000 classes.

    Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014), with the layer order of
    torchvision (dropout before a dense layer). `inplace` makes the ReLUs overwrite their input.
    """
    return _sequence(
        [
            ("conv1", nn.Conv2d(3, 64, 11, stride=4, padding=2)),
            ("relu1", nn.ReLU(inplace)),
            ("pool1", nn.MaxPool2d(3, stride=2)),
            ("conv2", nn.Conv2d(64, 192, 5, padding=2)),
            ("relu2", nn.ReLU(inplace)),
            ("pool2", nn.MaxPool2d(3, stride=2)),
            ("conv3", nn.Conv2d(192, 384, 3, padding=1)),
            ("relu3", nn.ReLU(inplace)),
            ("conv4", nn.Conv2d(384, 256, 3, padding=1)),
            ("relu4", nn.ReLU(inplace)),
            ("conv5", nn.Conv2d(256, 256, 3, padding=1)),
            ("relu5", nn.ReLU(inplace)),
            ("pool5", nn.MaxPool2d(3, stride=2)),
            ("average", AverageTo(6)),
            ("flatten", nn.Flatten()),
            ("drop6", nn.Dropout(0.5)),
            ("fc6", nn.Linear(256 * 6 * 6, 4096)),
            ("relu6", nn.ReLU(inplace)),
            ("drop7", nn.Dropout(0.5)),
            ("fc7", nn.Linear(4096, 4096)),
            ("relu7", nn.ReLU(inplace)),
            ("fc8", nn.Linear(4096, classes)),
        ]
    )


def alexnet_two_column(classes: int = 1000) -> nn.Sequential:
    """AlexNet as first published, its two columns as `groups=2`: input 3×227×227, 60,965,224 parameters.

    Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks" (2012). The paper
    says 224; its layer sizes need 227. Local response normalisation is left out: it has no parameters, later
    networks dropped it.
    """
    return _sequence(
        [
            ("conv1", nn.Conv2d(3, 96, 11, stride=4)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(3, stride=2)),
            ("conv2", nn.Conv2d(96, 256, 5, padding=2, groups=2)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.MaxPool2d(3, stride=2)),
            ("conv3", nn.Conv2d(256, 384, 3, padding=1)),
            ("relu3", nn.ReLU()),
            ("conv4", nn.Conv2d(384, 384, 3, padding=1, groups=2)),
            ("relu4", nn.ReLU()),
            ("conv5", nn.Conv2d(384, 256, 3, padding=1, groups=2)),
            ("relu5", nn.ReLU()),
            ("pool5", nn.MaxPool2d(3, stride=2)),
            ("average", AverageTo(6)),
            *_dense_head(256 * 6 * 6, 4096, 4096, classes),
        ]
    )


def overfeat(classes: int = 1000) -> nn.Sequential:
    """OverFeat, the "fast" model: input 3×231×231, 145,920,872 parameters at 1000 classes (145 million in the paper).

    Sermanet et al., "OverFeat: integrated recognition, localization and detection" (2014), table 1.
    """
    return _sequence(
        [
            ("conv1", nn.Conv2d(3, 96, 11, stride=4)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(2)),
            ("conv2", nn.Conv2d(96, 256, 5)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.MaxPool2d(2)),
            ("conv3", nn.Conv2d(256, 512, 3, padding=1)),
            ("relu3", nn.ReLU()),
            ("conv4", nn.Conv2d(512, 1024, 3, padding=1)),
            ("relu4", nn.ReLU()),
            ("conv5", nn.Conv2d(1024, 1024, 3, padding=1)),
            ("relu5", nn.ReLU()),
            ("pool5", nn.MaxPool2d(2)),
            ("average", AverageTo(6)),
            *_dense_head(1024 * 6 * 6, 3072, 4096, classes),
        ]
    )


def vgg16(classes: int = 1000, inplace: bool = False) -> nn.Sequential:
    """VGG-16 (configuration D): input 3×224×224, 138,357,544 parameters at 1000 classes.

    13 convolutions and 3 dense layers. Simonyan, Zisserman, "Very deep convolutional networks for large-scale image
    recognition" (2015). `inplace` makes the ReLUs overwrite their input.
    """
    return _vgg(0, classes, inplace)


def vgg_deep(layers: int, classes: int = 1000, inplace: bool = False) -> nn.Sequential:
    """VGG-116, -216, -316 or -416: VGG-16 with 20, 40, 60 or 80 more convolutions in each of its five groups.

    Input 3×224×224. From Rhu et al., "vDNN: virtualized deep neural networks" (2016), where they stand for networks
    no card of the time could hold. Raises CourseError for another number of layers.
    """
    if layers not in (116, 216, 316, 416):
        raise CourseError(f"vgg_deep has 116, 216, 316 or 416 layers, not {layers}; for 16 use vgg16()")
    return _vgg((layers - 16) // 5, classes, inplace)


def _vgg(more: int, classes: int, inplace: bool) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    channels = 3
    for group, (convolutions, width) in enumerate(VGG_GROUPS, start=1):
        for index in range(1, convolutions + more + 1):
            layers.append((f"conv{group}_{index}", nn.Conv2d(channels, width, 3, padding=1)))
            layers.append((f"relu{group}_{index}", nn.ReLU(inplace)))
            channels = width
        layers.append((f"pool{group}", nn.MaxPool2d(2)))
    layers.append(("average", AverageTo(7)))
    return _sequence([*layers, *_dense_head(512 * 7 * 7, 4096, 4096, classes, inplace)])


def _dense_head(inputs: int, fc6: int, fc7: int, classes: int, inplace: bool = False) -> list[tuple[str, nn.Module]]:
    """Layers 6 to 8 as AlexNet, OverFeat and VGG have them: dropout after the ReLU of the first two."""
    return [
        ("flatten", nn.Flatten()),
        ("fc6", nn.Linear(inputs, fc6)),
        ("relu6", nn.ReLU(inplace)),
        ("drop6", nn.Dropout(0.5)),
        ("fc7", nn.Linear(fc6, fc7)),
        ("relu7", nn.ReLU(inplace)),
        ("drop7", nn.Dropout(0.5)),
        ("fc8", nn.Linear(fc7, classes)),
    ]


class Inception(nn.Module):
    """Four branches over one input, concatenated along the channels: 1×1; 1×1 then 3×3; 1×1 then 5×5; pool then 1×1."""

    def __init__(self, inputs: int, widths: tuple[int, int, int, int, int, int]) -> None:
        """`widths`: 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool projection, the order of the paper's table 1."""
        super().__init__()
        one, three_reduce, three, five_reduce, five, projection = widths
        self.outputs = one + three + five + projection
        self.branch1x1 = _sequence([("conv", nn.Conv2d(inputs, one, 1)), ("relu", nn.ReLU())])
        self.branch3x3 = _reduced_branch(inputs, three_reduce, three, 3)
        self.branch5x5 = _reduced_branch(inputs, five_reduce, five, 5)
        self.branch_pool = _sequence(
            [
                ("pool", nn.MaxPool2d(3, stride=1, padding=1)),
                ("conv", nn.Conv2d(inputs, projection, 1)),
                ("relu", nn.ReLU()),
            ]
        )

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height, width)."""
        return torch.cat(
            [self.branch1x1(maps), self.branch3x3(maps), self.branch5x5(maps), self.branch_pool(maps)], dim=1
        )


def _reduced_branch(inputs: int, reduced: int, outputs: int, kernel: int) -> nn.Sequential:
    return _sequence(
        [
            ("reduce", nn.Conv2d(inputs, reduced, 1)),
            ("relu_reduce", nn.ReLU()),
            ("conv", nn.Conv2d(reduced, outputs, kernel, padding=kernel // 2)),
            ("relu", nn.ReLU()),
        ]
    )


def googlenet(classes: int = 1000) -> nn.Sequential:
    """GoogLeNet as of 2014: input 3×224×224, 6,998,552 parameters at 1000 classes, 57 convolutions and 1 dense layer.

    Szegedy et al., "Going deeper with convolutions" (2015), table 1; no batch normalisation, which came later.
    Left out: the two auxiliary classifiers, and local response normalisation, which has no parameters.
    """
    layers: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(3, 64, 7, stride=2, padding=3)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(3, stride=2, ceil_mode=True)),
        ("conv2_reduce", nn.Conv2d(64, 64, 1)),
        ("relu2_reduce", nn.ReLU()),
        ("conv2", nn.Conv2d(64, 192, 3, padding=1)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(3, stride=2, ceil_mode=True)),
    ]
    channels = 192
    for name, widths in (
        ("inception3a", (64, 96, 128, 16, 32, 32)),
        ("inception3b", (128, 128, 192, 32, 96, 64)),
        ("pool3", None),
        ("inception4a", (192, 96, 208, 16, 48, 64)),
        ("inception4b", (160, 112, 224, 24, 64, 64)),
        ("inception4c", (128, 128, 256, 24, 64, 64)),
        ("inception4d", (112, 144, 288, 32, 64, 64)),
        ("inception4e", (256, 160, 320, 32, 128, 128)),
        ("pool4", None),
        ("inception5a", (256, 160, 320, 32, 128, 128)),
        ("inception5b", (384, 192, 384, 48, 128, 128)),
    ):
        if widths is None:
            layers.append((name, nn.MaxPool2d(3, stride=2, ceil_mode=True)))
        else:
            block = Inception(channels, widths)
            layers.append((name, block))
            channels = block.outputs
    return _sequence(
        [
            *layers,
            ("pool5", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("drop", nn.Dropout(0.4)),
            ("fc", nn.Linear(channels, classes)),
        ]
    )


class Bottleneck(nn.Module):
    """A residual block: 1×1, 3×3 and 1×1 convolutions, each with batch normalisation, added to a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs and stride == 1
            else _sequence(
                [("conv", nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)), ("bn", nn.BatchNorm2d(outputs))]
            )
        )
        self.relu3 = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, 4·width, height/stride, width/stride)."""
        out: Tensor = self.relu1(self.bn1(self.conv1(maps)))
        out = self.relu2(self.bn2(self.conv2(out)))
        out = self.relu3(self.bn3(self.conv3(out)) + self.shortcut(maps))
        return out


class BasicBlock(nn.Module):
    """A residual block without a squeeze: two 3×3 convolutions of full width, added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs and stride == 1
            else _sequence(
                [("conv", nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)), ("bn", nn.BatchNorm2d(outputs))]
            )
        )
        self.relu2 = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height/stride, width/stride)."""
        out: Tensor = self.relu1(self.bn1(self.conv1(maps)))
        out = self.relu2(self.bn2(self.conv2(out)) + self.shortcut(maps))
        return out


def resnet34(classes: int = 1000, width: int = 64) -> nn.Sequential:
    """ResNet-34: input 3×224×224, 21,797,672 parameters at 1000 classes, 36 convolutions and 1 dense layer.

    He et al. (2016), table 1: as many blocks as ResNet-50, each of two 3×3 convolutions. `width` is that of the first
    stage's maps, and each stage has twice the channels of the one before; at 256 the maps between the blocks are those
    of ResNet-50.
    """
    channels = 64
    layers = _resnet_stem()
    for stage, count in enumerate((3, 4, 6, 3), start=2):
        outputs = width * 2 ** (stage - 2)
        for index in range(1, count + 1):
            stride = 2 if index == 1 and stage > 2 else 1
            layers.append((f"conv{stage}_{index}", BasicBlock(channels, outputs, stride)))
            channels = outputs
    return _sequence([*layers, *_resnet_head(channels, classes)])


def resnet50(classes: int = 1000) -> nn.Sequential:
    """ResNet-50: input 3×224×224, 25,557,032 parameters at 1000 classes, 53 convolutions and 1 dense layer.

    He et al., "Deep residual learning for image recognition" (2016), table 1, whose names the blocks carry (conv2_1 …
    conv5_3). A block that halves the maps does so in its 3×3 convolution, as torchvision does; the paper does it in
    the first 1×1.
    """
    return _resnet((3, 4, 6, 3), classes)


def resnet101(classes: int = 1000) -> nn.Sequential:
    """ResNet-101: ResNet-50 with 23 blocks in its fourth stage, 44,549,160 parameters at 1000 classes."""
    return _resnet((3, 4, 23, 3), classes)


def _resnet(blocks: Sequence[int], classes: int) -> nn.Sequential:
    layers = _resnet_stem()
    channels = 64
    for stage, (count, width) in enumerate(zip(blocks, (64, 128, 256, 512), strict=True), start=2):
        for index in range(1, count + 1):
            stride = 2 if index == 1 and stage > 2 else 1
            layers.append((f"conv{stage}_{index}", Bottleneck(channels, width, stride)))
            channels = 4 * width
    return _sequence([*layers, *_resnet_head(channels, classes)])


def _resnet_stem() -> list[tuple[str, nn.Module]]:
    return [
        ("conv1", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),
        ("bn1", nn.BatchNorm2d(64)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(3, stride=2, padding=1)),
    ]


def _resnet_head(channels: int, classes: int) -> list[tuple[str, nn.Module]]:
    return [("pool5", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc", nn.Linear(channels, classes))]


# ---------------------------------------------------------------------------------------------------------------------
# Dense networks


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Dense layers fc1, fc2, … with a ReLU between two: input (sizes[0],), output (sizes[-1],).

    Parameters: the sum of sizes[i]·sizes[i+1] + sizes[i+1]. Raises CourseError for fewer than two sizes.
    """
    if len(sizes) < 2:
        raise CourseError(f"mlp needs at least two sizes, the inputs and the outputs; got {list(sizes)}")
    layers: list[tuple[str, nn.Module]] = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        layers += [(f"fc{index}", nn.Linear(inputs, outputs)), (f"relu{index}", nn.ReLU())]
    return _sequence(layers[:-1])


def kaggle_mlp() -> nn.Sequential:
    """The 9000×4000×4000×32 dense network: input (9000,), 52,136,032 parameters (52,128,000 of them weights).

    Dettmers, "Which GPU for deep learning" (2014), where it is said to have 512,128,000: one digit too many.
    """
    return mlp((9000, 4000, 4000, 32))


# ---------------------------------------------------------------------------------------------------------------------
# Small networks, for exercises and tests: each has one feature that makes memory hard to predict


def small_cnn(channels: int = 3, size: int = 32, classes: int = 10) -> nn.Sequential:
    """Two convolutions with pools and a dense layer: input channels×size×size, 25,578 parameters by default.

    `size` is a multiple of 4: 32 for small colour pictures; with channels=1, size=8 it fits scikit-learn's digits.
    """
    return _sequence(
        [
            ("conv1", nn.Conv2d(channels, 16, 3, padding=1)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(2)),
            ("conv2", nn.Conv2d(16, 32, 3, padding=1)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.MaxPool2d(2)),
            ("flatten", nn.Flatten()),
            ("fc", nn.Linear(32 * (size // 4) ** 2, classes)),
        ]
    )


class RecurrentNet(nn.Module):
    """One recurrent cell applied at every step of a sequence, and a dense layer on its last state."""

    def __init__(self, inputs: int, units: int, classes: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(inputs, units)
        self.fc = nn.Linear(units, classes)

    def forward(self, sequence: Tensor) -> Tensor:
        """(batch, steps, inputs) to (batch, classes)."""
        state: Tensor | None = None
        for step in sequence.unbind(dim=1):
            state = self.cell(step, state)
        scores: Tensor = self.fc(state)
        return scores


def rnn_from_cells(inputs: int = 4, units: int = 100, classes: int = 10) -> RecurrentNet:
    """A recurrent network written out step by step: input (steps, inputs) for any number of steps.

    The cell has units·(inputs + units + 2) parameters, 10,600 by default (PyTorch keeps two biases), whatever the
    number of steps; the dense layer adds 1,010. Elman, "Finding structure in time" (1990).
    """
    return RecurrentNet(inputs, units, classes)


class Encoder(nn.Module):
    """One encoder block (attention, then two dense layers, each added to its input) and a head on the mean token."""

    def __init__(self, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) to (batch, classes)."""
        batch, length, width = tokens.shape
        qkv = self.qkv(self.norm1(tokens)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        tokens = tokens + self.fc2(self.gelu(self.fc1(self.norm2(tokens))))
        scores: Tensor = self.head(tokens.mean(dim=1))
        return scores


def encoder_block(width: int = 64, heads: int = 4, classes: int = 10) -> Encoder:
    """One transformer encoder block with a head: input (tokens, width), 50,634 parameters by default.

    Vaswani et al., "Attention is all you need" (2017), normalising before each part as later work does. Raises
    CourseError when `heads` does not divide `width`.
    """
    if width % heads:
        raise CourseError(f"encoder_block: {heads} heads do not divide a width of {width}; choose a multiple")
    return Encoder(width, heads, classes)


class SharedWeights(nn.Module):
    """A layer applied twice, and a second layer that owns a bias but borrows the first one's weight."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.shared = nn.Linear(width, width)
        self.tied = nn.Linear(width, width)
        self.tied.weight = self.shared.weight
        self.head = nn.Linear(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        """(batch, width) to (batch, classes)."""
        features = torch.relu(self.shared(features))
        features = torch.relu(self.shared(features))
        features = torch.relu(self.tied(features))
        scores: Tensor = self.head(features)
        return scores


def shared_weights(width: int = 64, classes: int = 10) -> SharedWeights:
    """One 64×64 weight used three times, through two layers: input (width,), 4,874 parameters by default.

    The shared weight is counted once, as `Module.parameters()` does.
    """
    return SharedWeights(width, classes)


class InplaceCNN(nn.Module):
    """Convolutions whose ReLUs, and whose residual addition, overwrite their input."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.relu2 = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, classes)."""
        maps = self.relu1(self.conv1(pictures))
        out = self.conv2(maps)
        out += maps
        out = self.relu2(out)
        scores: Tensor = self.fc(self.pool(out).flatten(1))
        return scores


def inplace_cnn(channels: int = 3, width: int = 16, classes: int = 10) -> InplaceCNN:
    """A small residual network that works in place: input channels×height×width, 2,938 parameters by default."""
    return InplaceCNN(channels, width, classes)


class BranchingCNN(nn.Module):
    """Two branches over one map, concatenated; the map has three users, so it dies later than in a chain."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, padding=1)
        self.narrow = nn.Conv2d(16, 8, 1)
        self.wide = nn.Conv2d(16, 8, 5, padding=2)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.join = nn.Conv2d(16, 16, 3, padding=1)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, classes)."""
        maps = torch.relu(self.stem(pictures))
        both = self.relu(torch.cat([self.narrow(maps), self.wide(maps)], dim=1))
        out = self.join(self.pool(both)) + self.pool(maps)
        scores: Tensor = self.fc(self.average(out).flatten(1))
        return scores


def branching_cnn(channels: int = 3, classes: int = 10) -> BranchingCNN:
    """A small network with branches, a concatenation and a residual sum: input channels×height×width.

    6,282 parameters by default; height and width are at least 2.
    """
    return BranchingCNN(channels, classes)


# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """A network by name: `build()` makes it, for samples of `input_shape` and `classes` outputs."""

    name: str
    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    classes: int


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network("AlexNet", alexnet, (3, 224, 224), 1000),
        Network("VGG-16", vgg16, (3, 224, 224), 1000),
        Network("GoogLeNet", googlenet, (3, 224, 224), 1000),
        Network("ResNet-50", resnet50, (3, 224, 224), 1000),
        Network("52 M dense net", kaggle_mlp, (9000,), 32),
    )
}
"""The networks the explorers offer, by the name they show."""
