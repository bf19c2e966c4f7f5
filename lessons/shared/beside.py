"""What a GPU took, measured or recorded, beside the trace: the table that several lessons end with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from course_utils.networks import NETWORKS
from course_utils.recordings import Live, Recording
from course_utils.trace import training_step
from course_utils.units import format_bytes, format_seconds


def beside_trace(
    source: Live | Recording | None, network: str, precision: str = "float32", batches: Sequence[int] = (16, 64, 128)
) -> list[dict[str, str | int]]:
    """Rows of a table: a network's real steps with momentum on the GPU, each beside its trace.

    Args:
        source: what `gpu()` gave; None gives no rows.
        network: a name of `networks.NETWORKS`.
        precision: of the steps.
        batches: those wanted; a recording gives what it has of them.
    """
    found = [] if source is None else source.sweep(network, batches, precision)
    if not found:
        return []
    known = NETWORKS[network]
    with torch.device("meta"):
        module = known.build()
    traced = training_step(module, known.input_shape, known.classes, precision=precision, name=network)
    rows: list[dict[str, str | int]] = []
    for step in found:
        peak = traced.at(step.batch).peak_bytes
        row: dict[str, str | int] = {"network": network, "precision": precision, "batch": step.batch}
        row |= {"trace": format_bytes(peak), "allocated": "out of memory", "difference": "", "time a sample": ""}
        if step.memory is not None and step.per_sample_s is not None:
            row["allocated"] = format_bytes(step.memory.peak_bytes)
            row["difference"] = f"{100 * (step.memory.peak_bytes / peak - 1):+.1f} %"
            row["time a sample"] = format_seconds(step.per_sample_s)
        rows.append(row)
    return rows
