"""Claims of lesson 05, 1×1 convolutions."""

from __future__ import annotations

from math import prod

from torch import nn

from classroom.claims import RIGHT, WRONG, Finding, claim
from course_utils.trace import training_step
from lessons.shared.sources import DATAGURU


def squeezed(side: int = 64, channels: int = 256, to: int = 96) -> tuple[int, int, int, int]:
    """For each image (values before a 1×1 convolution, after it, weights added, bytes kept of the map before).

    The map before it comes from a convolution and a ReLU, as in any network; what is kept is read from a traced step.
    """
    network = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, to, 1, bias=False), nn.ReLU()
    ).to("meta")
    step = training_step(network, (3, side, side), criterion=lambda output, labels: output.mean())
    table = step.at(2).by_layer().set_index("layer")
    before, after = (prod(table["shape"][layer]) // 2 for layer in ("0", "2"))
    return before, after, int(table["parameters"]["2"]), int(table["saved feature maps"]["1"]) // 2


@claim(77, DATAGURU, "96 kernels of 1 × 1 turn maps of 64 × 64 × 256 into maps of 64 × 64 × 96.")
def _squeeze() -> Finding:
    before, after, weights, kept = squeezed()
    share = 1 - after / before
    verdict = RIGHT if (before, after) == (64 * 64 * 256, 64 * 64 * 96) else WRONG
    return Finding(
        verdict,
        f"{before:,} values become {after:,}, {100 * share:.1f} % fewer, for {weights:,} weights; of the map before, "
        f"{kept // 4:,} values stay kept for the backward pass",
        "In training the squeezed map comes on top. What is saved is saved downstream, in layers that stay narrow.",
    )
