"""The networks the lessons speak of, as plain modules whose parts carry the literature's names.

Every builder also works under `with torch.device("meta")`, where it allocates nothing. Shapes are given for one sample,
without the batch axis; a network for images has ImageNet's 1000 classes where it does not say otherwise. Weights are
PyTorch's default initialisation: the course counts bytes and operations, and trains only the small networks.
"""

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


def _with_relu(name: str, convolution: nn.Conv2d) -> list[tuple[str, nn.Module]]:
    """A convolution "conv" + `name` and its ReLU, "relu" + `name`."""
    return [(f"conv{name}", convolution), (f"relu{name}", nn.ReLU())]


class AverageTo(nn.Module):
    """Averages maps to the `size` × `size` that a dense head was built for; maps of that size pass, not even copied.

    It lets a network with a dense head take other image sizes with the same parameters.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, channels, size, size)."""
        if tuple(maps.shape[-2:]) == (self.size, self.size):
            return maps
        return F.adaptive_avg_pool2d(maps, self.size)


def alexnet() -> nn.Sequential:
    """AlexNet in its single-tower form: input 3×224×224, 61,100,840 parameters.

    Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014), with the layer order of
    torchvision (dropout before a dense layer).
    """
    convolutions = [
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.Conv2d(256, 256, 3, padding=1),
    ]
    flatten, fc6, relu6, drop6, fc7, relu7, drop7, fc8 = _dense_head(256 * 6 * 6, 4096, 4096)
    dense = [flatten, drop6, fc6, relu6, drop7, fc7, relu7, fc8]
    return _sequence([*_five_convolutions(convolutions, 3), *dense])


def alexnet_two_column() -> nn.Sequential:
    """AlexNet as first published, its two columns as `groups=2`: input 3×227×227, 60,965,224 parameters.

    Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural networks" (2012). The paper
    says 224; its layer sizes need 227. Local response normalisation is left out: it has no parameters, later
    networks dropped it.
    """
    convolutions = [
        nn.Conv2d(3, 96, 11, stride=4),
        nn.Conv2d(96, 256, 5, padding=2, groups=2),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.Conv2d(384, 384, 3, padding=1, groups=2),
        nn.Conv2d(384, 256, 3, padding=1, groups=2),
    ]
    return _sequence([*_five_convolutions(convolutions, 3), *_dense_head(256 * 6 * 6, 4096, 4096)])


def overfeat() -> nn.Sequential:
    """OverFeat, the "fast" model: input 3×231×231, 145,920,872 parameters (145 million in the paper).

    Sermanet et al., "OverFeat: integrated recognition, localization and detection" (2014), table 1.
    """
    convolutions = [
        nn.Conv2d(3, 96, 11, stride=4),
        nn.Conv2d(96, 256, 5),
        nn.Conv2d(256, 512, 3, padding=1),
        nn.Conv2d(512, 1024, 3, padding=1),
        nn.Conv2d(1024, 1024, 3, padding=1),
    ]
    return _sequence([*_five_convolutions(convolutions, 2), *_dense_head(1024 * 6 * 6, 3072, 4096)])


def _five_convolutions(convolutions: Sequence[nn.Conv2d], window: int) -> list[tuple[str, nn.Module]]:
    """Layers 1 to 5 as AlexNet has them: a ReLU behind each, pools behind the first, the second and the last."""
    layers: list[tuple[str, nn.Module]] = []
    for index, convolution in enumerate(convolutions, start=1):
        layers += _with_relu(f"{index}", convolution)
        if index in (1, 2, 5):
            layers.append((f"pool{index}", nn.MaxPool2d(window, stride=2)))
    return [*layers, ("average", AverageTo(6))]


def vgg16(classes: int = 1000) -> nn.Sequential:
    """VGG-16 (configuration D): input 3×224×224, 138,357,544 parameters.

    13 convolutions and 3 dense layers. Simonyan, Zisserman, "Very deep convolutional networks for large-scale image
    recognition" (2015).
    """
    return _vgg(0, classes)


def vgg_deep(layers: int) -> nn.Sequential:
    """VGG-116, -216, -316 or -416: VGG-16 with 20, 40, 60 or 80 more convolutions in each of its five groups.

    Input 3×224×224. From Rhu et al., "vDNN: virtualized deep neural networks" (2016), where they stand for networks
    no card of the time could hold. Raises CourseError for another number of layers.
    """
    if layers not in (116, 216, 316, 416):
        raise CourseError(f"vgg_deep has 116, 216, 316 or 416 layers, not {layers}; for 16 use vgg16()")
    return _vgg((layers - 16) // 5)


def _vgg(more: int, classes: int = 1000) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    channels = 3
    for group, (convolutions, width) in enumerate(VGG_GROUPS, start=1):
        for index in range(1, convolutions + more + 1):
            layers += _with_relu(f"{group}_{index}", nn.Conv2d(channels, width, 3, padding=1))
            channels = width
        layers.append((f"pool{group}", nn.MaxPool2d(2)))
    return _sequence([*layers, ("average", AverageTo(7)), *_dense_head(512 * 7 * 7, 4096, 4096, classes)])


def _dense_head(inputs: int, fc6: int, fc7: int, classes: int = 1000) -> list[tuple[str, nn.Module]]:
    """Layers 6 to 8 as AlexNet, OverFeat and VGG have them: dropout after the ReLU of the first two."""
    return [
        ("flatten", nn.Flatten()),
        ("fc6", nn.Linear(inputs, fc6)),
        ("relu6", nn.ReLU()),
        ("drop6", nn.Dropout(0.5)),
        ("fc7", nn.Linear(fc6, fc7)),
        ("relu7", nn.ReLU()),
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
        self.branch1x1 = _sequence(_with_relu("", nn.Conv2d(inputs, one, 1)))
        self.branch3x3 = _reduced_branch(inputs, three_reduce, three, 3)
        self.branch5x5 = _reduced_branch(inputs, five_reduce, five, 5)
        pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.branch_pool = _sequence([("pool", pool), *_with_relu("", nn.Conv2d(inputs, projection, 1))])

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height, width)."""
        return torch.cat([branch(maps) for branch in self.children()], dim=1)


def _reduced_branch(inputs: int, reduced: int, outputs: int, kernel: int) -> nn.Sequential:
    reduce = [("reduce", nn.Conv2d(inputs, reduced, 1)), ("relu_reduce", nn.ReLU())]
    return _sequence([*reduce, *_with_relu("", nn.Conv2d(reduced, outputs, kernel, padding=kernel // 2))])


def googlenet() -> nn.Sequential:
    """GoogLeNet as of 2014: input 3×224×224, 6,998,552 parameters, 57 convolutions and 1 dense layer.

    Szegedy et al., "Going deeper with convolutions" (2015), table 1; no batch normalisation, which came later.
    Left out: the two auxiliary classifiers, and local response normalisation, which has no parameters.
    """
    layers: list[tuple[str, nn.Module]] = [
        *_with_relu("1", nn.Conv2d(3, 64, 7, stride=2, padding=3)),
        ("pool1", nn.MaxPool2d(3, stride=2, ceil_mode=True)),
        *_with_relu("2_reduce", nn.Conv2d(64, 64, 1)),
        *_with_relu("2", nn.Conv2d(64, 192, 3, padding=1)),
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
    layers += [("pool5", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("drop", nn.Dropout(0.4))]
    return _sequence([*layers, ("fc", nn.Linear(channels, 1000))])


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Round a residual block: nothing where maps keep their shape, else a 1×1 convolution."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    convolution = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return _sequence([("conv", convolution), ("bn", nn.BatchNorm2d(outputs))])


class Bottleneck(nn.Module):
    """A residual block: 1×1, 3×3 and 1×1 convolutions, each with batch normalisation, added to a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.outputs = outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)
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
        self.outputs = outputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)
        self.relu2 = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height/stride, width/stride)."""
        out: Tensor = self.relu1(self.bn1(self.conv1(maps)))
        out = self.relu2(self.bn2(self.conv2(out)) + self.shortcut(maps))
        return out


def resnet34(width: int = 64) -> nn.Sequential:
    """ResNet-34: input 3×224×224, 21,797,672 parameters, 36 convolutions and 1 dense layer.

    He et al. (2016), table 1: as many blocks as ResNet-50, each of two 3×3 convolutions. `width` is that of the first
    stage's maps; at 256 the maps between the blocks are those of ResNet-50.
    """
    return _resnet(BasicBlock, (3, 4, 6, 3), width)


def resnet50() -> nn.Sequential:
    """ResNet-50: input 3×224×224, 25,557,032 parameters, 53 convolutions and 1 dense layer.

    He et al., "Deep residual learning for image recognition" (2016), table 1, whose names the blocks carry (conv2_1 …
    conv5_3). A block that halves the maps does so in its 3×3 convolution, as torchvision does; the paper does it in
    the first 1×1.
    """
    return _resnet(Bottleneck, (3, 4, 6, 3))


def resnet101() -> nn.Sequential:
    """ResNet-101: ResNet-50 with 23 blocks in its fourth stage, 44,549,160 parameters."""
    return _resnet(Bottleneck, (3, 4, 23, 3))


def _resnet(block: type[BasicBlock | Bottleneck], counts: Sequence[int], width: int = 64) -> nn.Sequential:
    """Stages of so many blocks, each but the first with half the pixels and twice the width of the one before."""
    layers: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)),
        ("bn1", nn.BatchNorm2d(64)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(3, stride=2, padding=1)),
    ]
    channels = 64
    for stage, count in enumerate(counts, start=2):
        for index in range(1, count + 1):
            made = block(channels, width * 2 ** (stage - 2), stride=2 if index == 1 and stage > 2 else 1)
            layers.append((f"conv{stage}_{index}", made))
            channels = made.outputs
    head = [("pool5", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()), ("fc", nn.Linear(channels, 1000))]
    return _sequence([*layers, *head])


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


def small_cnn(channels: int = 3, size: int = 32, classes: int = 10) -> nn.Sequential:
    """Two convolutions with pools and a dense layer: input channels×size×size, 25,578 parameters by default.

    `size` is a multiple of 4: 32 for small colour images; with channels=1, size=8 it fits scikit-learn's digits.
    """
    layers = [
        *_with_relu("1", nn.Conv2d(channels, 16, 3, padding=1)),
        ("pool1", nn.MaxPool2d(2)),
        *_with_relu("2", nn.Conv2d(16, 32, 3, padding=1)),
        ("pool2", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(32 * (size // 4) ** 2, classes)),
    ]
    return _sequence(layers)


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
