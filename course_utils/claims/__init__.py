"""What people believe about memory and GPUs, and the verdict that a computed number gives.

`judge([22, 23])` in a lesson shows the claims with these numbers. `core` holds what a claim is, the other modules the
claims of one lesson each; a claim that concerns several is with the first. Must never import matplotlib or ipywidgets.
"""

from course_utils.claims import (
    batch_size,
    half_precision,
    hardware,
    many_gpus,
    memory,
    offload,
    one_by_one,
    one_card,
    pooling,
    stride,
    transformers,
    why_gpus,
)
from course_utils.claims.core import CLAIMS, SOURCES, Claim, Finding, Verdicts, judge

__all__ = [
    "CLAIMS", "SOURCES", "Claim", "Finding", "Verdicts", "batch_size", "half_precision", "hardware", "judge",
    "many_gpus", "memory", "offload", "one_by_one", "one_card", "pooling", "stride", "transformers", "why_gpus",
]  # fmt: skip
