"""Claims of lesson 06, pooling."""

from __future__ import annotations

from math import prod

from classroom.claims import PARTLY, RIGHT, WRONG, Finding, claim
from course_utils.memory import Ledger
from course_utils.networks import NETWORKS
from course_utils.units import format_bytes
from lessons.shared import changes
from lessons.shared.sources import DATAGURU


def around_pool(ledger: Ledger, before: str = "relu1_2", pool: str = "pool1") -> tuple[int, int, int]:
    """(values in, values out, bytes the pool itself keeps) of one batch at a pool.

    Args:
        ledger: the step.
        before: the layer whose output the pool reads.
        pool: the pool.
    """
    table = ledger.by_layer().set_index("layer")
    return prod(table["shape"][before]), prod(table["shape"][pool]), int(table["saved feature maps"][pool])


@claim(78, DATAGURU, "A 2 × 2 pooling layer takes four layers of data away.")
def _four_layers() -> Finding:
    ledger = changes.unchanged(NETWORKS["VGG-16"]).at(128)
    values_in, values_out, kept = around_pool(ledger)
    factor = values_in / values_out
    each = kept / values_out
    verdict = WRONG if factor == 4 and each > 4 else PARTLY if factor == 4 else RIGHT
    return Finding(
        verdict,
        f"VGG-16, pool1: {factor:.0f} times fewer values, no layer goes; in training the pool keeps {each:.0f} bytes "
        f"for each value it produces, {format_bytes(kept)} at batch 128",
        "A factor of four got lost in translation. The pool adds its output and an index; what shrinks is downstream.",
    )
