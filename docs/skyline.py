"""Draws docs/skyline.png, the picture in the README, from a trace: `make picture`."""

from pathlib import Path

import torch

from course_utils.figures import skyline
from course_utils.networks import vgg16
from course_utils.trace import training_step
from course_utils.units import GIB

if __name__ == "__main__":
    with torch.device("meta"):
        model = vgg16()
    step = training_step(model, (3, 224, 224), 1000, name="VGG-16")
    Path(__file__).with_suffix(".png").write_bytes(skyline(step.at(128), limit_bytes=12 * GIB).png)
