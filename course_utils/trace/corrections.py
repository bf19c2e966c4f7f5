"""What a recording becomes once its step is over: roles that only its end tells, and what kernels do unseen."""

from __future__ import annotations

import math

from course_utils.memory import ROLE
from course_utils.trace import kernels
from course_utils.trace.recorder import BACKWARD, FORWARD, Recorder


def mark_weight_gradient(recorder: Recorder, gradient: int | None, layer: str) -> None:
    """Give the storage of a gradient, and the partial sums it was added up from, the role of a weight gradient."""
    record = recorder.record
    waiting = [gradient]
    while waiting:
        index = waiting.pop()
        if index is None or record.role[index] != ROLE["gradient maps"]:
            continue
        record.role[index], record.layer[index] = ROLE["weight gradients"], layer
        op = record.ops[record.birth[index]]
        if op in ("add", "_to_copy", "clone"):
            waiting.extend(recorder.made_from.get(index, []))


def as_on_cpu(recorder: Recorder) -> None:
    """What the CPU's kernels keep beside the shapes they return."""
    record = recorder.record
    seen: set[int] = set()
    for index, birth in enumerate(record.birth):
        if birth < len(record.ops) and record.ops[birth] == "_embedding_bag" and not record.is_map[index]:
            if birth not in seen and record.size[index]:
                record.size[index] += (
                    8  # made one longer, then cut (aten/native/EmbeddingBag.cpp, `make_offset2bag_out`)
                )
            seen.add(birth)


def as_on_cuda(recorder: Recorder) -> None:
    """Apply the differences of CUDA eager mode that `course_utils.trace.kernels` lists to a recording."""
    record = recorder.record
    for mask in kernels.dropout_masks(recorder.reads):
        record.size[mask], record.is_map[mask] = math.prod(record.shape[mask]), False
    for event, left, total in reversed(recorder.sums):
        if record.death[left] == event + 1 and record.role[left] == record.role[total]:
            record.death[left], record.size[total] = record.death[total], 0
    for event, size in recorder.scratch:
        index = record.storage(size, (size,), ROLE["gradient maps"], record.event_layer[event], is_map=False)
        record.birth[index], record.death[index] = event, event + 1
    for phase in (FORWARD, BACKWARD):
        if any(op in kernels.MATRIX_PRODUCTS and p == phase for op, p in zip(record.ops, record.phase, strict=True)):
            size = kernels.CUBLAS_WORKSPACE
            index = record.storage(size, (size,), ROLE["workspace"], "cuBLAS", is_map=False)
            record.birth[index] = 0
