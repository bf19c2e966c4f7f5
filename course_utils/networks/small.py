"""Dense and small convolutional networks."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from course_utils.units import CourseError


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Dense layers fc1, fc2, … with a ReLU between two: input (sizes[0],), output (sizes[-1],).

    Parameters: the sum of sizes[i]·sizes[i+1] + sizes[i+1]. Raises CourseError for fewer than two sizes.
    """
    if len(sizes) < 2:
        raise CourseError(f"mlp needs at least two sizes, the inputs and the outputs; got {list(sizes)}")
    layers: list[tuple[str, nn.Module]] = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        layers += [(f"fc{index}", nn.Linear(inputs, outputs)), (f"relu{index}", nn.ReLU())]
    return nn.Sequential(OrderedDict(layers[:-1]))


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
        ("conv1", nn.Conv2d(channels, 16, 3, padding=1)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(16, 32, 3, padding=1)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(32 * (size // 4) ** 2, classes)),
    ]
    return nn.Sequential(OrderedDict(layers))
