"""What a recording becomes once its step is over: roles that only its end tells, and what kernels do unseen."""

import math

from course_utils.memory import ROLE
from course_utils.trace import kernels
from course_utils.trace.operators import MATRIX_PRODUCTS, PARTIAL_SUMS
from course_utils.trace.record import ALIVE, BACKWARD, FORWARD, Run, Storage
from course_utils.trace.recorder import Recorder


def mark_weight_gradient(record: Run, gradient: int | None, layer: str) -> None:
    """Give the storage of a gradient, and the partial sums it was added up from, the role of a weight gradient."""
    waiting = [] if gradient is None else [gradient]
    while waiting:
        storage = record.storages[waiting.pop()]
        if storage.role != ROLE["gradient maps"]:
            continue
        storage.role, storage.layer = ROLE["weight gradients"], layer
        maker = record.events[storage.birth]
        if maker.op in PARTIAL_SUMS:
            waiting.extend(maker.reads)


def as_on_cpu(recorder: Recorder) -> None:
    """What the CPU's kernels keep beside the shapes they return."""
    storages = recorder.record.storages
    for event in recorder.record.events:
        if event.op == "_embedding_bag":
            indices = [storages[i] for i in event.writes if not storages[i].is_map]
            if indices and indices[0].size:
                # made one longer, then cut (aten/native/EmbeddingBag.cpp, `make_offset2bag_out`)
                indices[0].size += 8


def as_on_cuda(recorder: Recorder) -> None:
    """Apply the differences of CUDA eager mode that `course_utils.trace.kernels` lists to a recording."""
    record = recorder.record
    for number in kernels.dropout_masks(record.events):
        mask = record.storages[number]
        mask.size, mask.is_map = math.prod(mask.shape), False
    for number, left, total in reversed(recorder.branch_sums.found):
        first, both = record.storages[left], record.storages[total]
        if first.death == number + 1 and first.role == both.role:
            first.death, both.size = both.death, 0
    for number, event in enumerate(record.events):
        if event.scratch:
            _add(record, event.scratch, "gradient maps", event.layer, birth=number, death=number + 1)
    for phase in (FORWARD, BACKWARD):
        if any(event.phase == phase and event.op in MATRIX_PRODUCTS for event in record.events):
            _add(record, kernels.CUBLAS_WORKSPACE, "workspace", "cuBLAS", birth=0)


def _add(record: Run, size: int, role: str, layer: str, birth: int, death: int = ALIVE) -> None:
    record.storages.append(Storage(size, (size,), ROLE[role], layer, is_map=False, birth=birth, death=death))
