"""The networks the lessons speak of, as plain modules whose parts carry the literature's names.

Every builder also works under `with torch.device("meta")`, where it allocates nothing. Shapes are given for one sample,
without the batch axis. Weights are PyTorch's default initialisation: the course counts bytes and operations, and trains
only the small networks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from course_utils.networks.convolutional import (
    VGG_GROUPS,
    Bottleneck,
    alexnet,
    alexnet_two_column,
    googlenet,
    overfeat,
    resnet34,
    resnet50,
    resnet101,
    vgg16,
    vgg_deep,
)
from course_utils.networks.small import kaggle_mlp, mlp, small_cnn

__all__ = [
    "NETWORKS", "VGG_GROUPS", "Bottleneck", "Network", "alexnet", "alexnet_two_column", "googlenet", "kaggle_mlp",
    "mlp", "overfeat", "resnet34", "resnet50", "resnet101", "small_cnn", "vgg16", "vgg_deep",
]  # fmt: skip


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
