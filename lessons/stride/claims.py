"""Claims of lesson 04, stride."""

from __future__ import annotations

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, claim
from course_utils.networks import NETWORKS
from lessons.shared import changes
from lessons.shared.sources import DATAGURU


@claim(76, DATAGURU, "A larger stride makes the output of a convolution smaller, and with it the memory.")
def _larger_stride() -> Finding:
    strides = {step: changes.stride(NETWORKS["VGG-16"], "conv1_1", step) for step in (2, 4)}
    outputs = {step: change.output_values[0] / change.output_values[1] for step, change in strides.items()}
    peaks = {step: old / new for step, change in strides.items() for old, new in [change.peaks(128)]}
    by_square = all(abs(factor - step**2) < 0.1 for step, factor in outputs.items())
    verdict = WRONG if min(peaks.values()) <= 1 else RIGHT if by_square else PARTLY
    found = [f"stride {step}: output {outputs[step]:.0f} times smaller, peak {peaks[step]:.1f} times" for step in peaks]
    return Finding(
        verdict,
        f"VGG-16, conv1_1, batch 128, {'; '.join(found)}",
        "By the square of the stride, from that layer on. What comes before it stays, and it is another model.",
    )
