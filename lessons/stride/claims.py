"""Claims of lesson 04, stride."""

from __future__ import annotations

from classroom.claims import Finding, by_cases, claim
from course_utils.networks import NETWORKS
from lessons.shared import changes
from lessons.shared.sources import DATAGURU


@claim(76, DATAGURU, "A larger stride makes the output of a convolution smaller, and with it the memory.")
def _larger_stride() -> Finding:
    smaller, found = [], []
    for layer, step in (("conv1_1", 2), ("conv1_1", 4), ("conv5_1", 2)):
        change = changes.stride(NETWORKS["VGG-16"], layer, step)
        output, peak = (old / new for old, new in (change.output_values, change.peaks(128)))
        smaller.append(output > 1 and peak > 1)
        found.append(f"{layer}, stride {step}: output {output:.0f} times smaller, peak {peak:.1f} times")
    return Finding(
        by_cases(smaller),
        f"VGG-16, batch 128, {'; '.join(found)}",
        "By the square of the stride, from that layer on. What comes before it stays, and it is another model.",
    )
