"""The step of a framework of 2016, made of a traced one: what the published figures on offload are about.

`layerwise_2016` allocates layer by layer, as vDNN does (Rhu et al., MICRO-49, 2016); `network_wide_2016` everything
throughout, which vDNN is compared with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from course_utils.machine.hardware import Device
from course_utils.memory import IN_PLACE_2016, ROLE, Int64, Ledger, Tape
from course_utils.techniques.offload.work import (
    ACTIVATIONS_BACKWARD,
    BACKWARD,
    FORWARD,
    NEVER,
    UPDATE,
    WORKSPACE_SHARE,
    Work,
    begins_layer,
    convolution_maps,
    kernel_seconds,
    step_of,
)

DENSE = frozenset({"addmm", "mm", "bmm", "baddbmm", "linear"})


def layerwise_2016(
    ledger: Ledger, device: Device | str, precision: str = "float32", features_only: bool = False
) -> Work:
    """The step of a framework of 2016 that allocates layer by layer, as vDNN does: what its policies run on.

    Forward and backward pass without the update, in the terms of `Ledger.network_wide_bytes`: activations and dropout
    work in place, masks and indices are not kept, weights and weight gradients stay, a gradient map is freed once it
    has been used. Maximum pooling reads its output again in the backward pass, as cuDNN's does. The maps that feed the
    layers before the first dense one, the network's input among them, may move.

    Args:
        ledger: the step at one batch.
        device: whose times.
        precision: of the arithmetic.
        features_only: leave out the memory of the classifier: everything from the first dense layer on. The kernels
            stay.

    Raises:
        CourseError: the trace does not say which tensors its operators use.
    """
    tape = step_of(ledger)
    fast, slow = kernel_seconds(ledger, device, precision)
    kernels = int(np.count_nonzero(tape.event_phase != UPDATE))
    root = _in_place(tape)
    size, birth = ledger.size, tape.birth
    death = np.zeros_like(tape.death)
    np.maximum.at(death, root, np.minimum(tape.death, kernels))
    uses = np.column_stack([tape.uses[:, 0], root[tape.uses[:, 1]], tape.uses[:, 2]])
    uses = np.concatenate([uses, _pools_read_outputs(tape, root)])
    uses = np.unique(uses[np.argsort(uses[:, 0], kind="stable")], axis=0)
    np.maximum.at(death, uses[:, 1], np.minimum(uses[:, 0] + 1, kernels))

    dense = [k for k in range(kernels) if tape.event_phase[k] == FORWARD and tape.event_ops[k] in DENSE]
    classifier = dense[0] if dense else kernels
    own = np.arange(len(root)) == root
    loss = np.array([layer == "loss" for layer in tape.layer_names])[tape.layer]
    images = (tape.role == ROLE["input"]) & tape.is_map
    maps = (ledger.maps_2016 & own) | images
    gradients = (tape.role == ROLE["gradient maps"]) & tape.is_map & own & ~loss
    weights = tape.role == ROLE["parameters"]
    kept = maps | gradients | weights
    if features_only:
        first_part = np.zeros(len(tape.layer_names), dtype=np.bool_)
        first_part[tape.event_layer[:classifier]] = True
        kept &= first_part[tape.layer] | images
    last = np.full(len(root), NEVER, dtype=np.int64)
    forward_uses = uses[tape.event_phase[uses[:, 0]] == FORWARD]
    np.maximum.at(last, forward_uses[:, 1], forward_uses[:, 0])

    index = np.cumsum(kept) - 1
    uses = uses[kept[uses[:, 1]]]
    uses[:, 1] = index[uses[:, 1]]
    wide = np.flatnonzero(kept)
    again = np.flatnonzero(kept & weights)  # a gradient for every weight
    both = np.concatenate([wide, again])
    stays = weights[both]
    return Work(
        name=ledger.name,
        batch=ledger.batch,
        ops=tape.event_ops[:kernels],
        layers=tuple(tape.layer_names[layer] for layer in tape.event_layer[:kernels]),
        phase=tape.event_phase[:kernels],
        begins_layer=begins_layer(tape)[:kernels],
        convolution=tape.convolutions[:kernels],
        fast=fast[:kernels],
        slow=slow[:kernels],
        workspace=(WORKSPACE_SHARE * convolution_maps(tape, size)[:kernels]).astype(np.int64),
        size=size[both],
        role=np.concatenate([tape.role[wide], np.full(len(again), ROLE["weight gradients"], dtype=np.int64)]),
        owners=tuple(tape.layer_names[layer] for layer in tape.layer[both]),
        birth=np.where(stays, 0, birth[both]),
        death=np.where(stays, kernels, death[both]),
        allowed=(maps & (last < classifier))[both] & ~stays,
        uses=uses,
    )


def network_wide_2016(work: Work, algorithm: str) -> Work:
    """The same step with everything allocated throughout: the baseline of 2016, which moves nothing.

    Every map, two gradient buffers as large as the largest map in place of the gradient maps, and with algorithm "p"
    the largest workspace: `Ledger.network_wide_bytes` in every kernel, if `work` has the classifier.
    """
    maps = np.isin(work.role, [ROLE["input"], ROLE["feature maps"]])
    largest = int(work.size[work.role == ROLE["feature maps"]].max(initial=0))
    workspace = int(work.workspace[work.convolution].max(initial=0)) if algorithm == "p" else 0
    keep = np.flatnonzero(work.role != ROLE["gradient maps"])
    index = np.full(len(work.size), NEVER, dtype=np.int64)
    index[keep] = np.arange(len(keep))
    uses = work.uses[maps[work.uses[:, 1]]].copy()
    uses[:, 1] = index[uses[:, 1]]
    shared = {"gradient maps": 2 * [largest], "workspace": [workspace]}
    sizes = [size for each in shared.values() for size in each]
    roles = [ROLE[role] for role, each in shared.items() for _ in each]
    tensors = len(keep) + len(sizes)
    return replace(
        work,
        workspace=np.zeros_like(work.workspace),
        size=np.concatenate([work.size[keep], sizes]),
        role=np.concatenate([work.role[keep], roles]),
        owners=(*(work.owners[i] for i in keep), *("shared" for _ in sizes)),
        birth=np.zeros(tensors, dtype=np.int64),
        death=np.full(tensors, work.kernels, dtype=np.int64),
        allowed=np.zeros(tensors, dtype=np.bool_),
        uses=uses,
    )


def _in_place(tape: Tape) -> Int64:
    """(S,) the tensor that each one shares its memory with in 2016: itself, or the one an in-place operator read."""
    root = np.arange(len(tape.birth), dtype=np.int64)
    by_event: dict[int, list[tuple[int, int]]] = {}
    for event, storage, wrote in tape.uses.tolist():
        by_event.setdefault(event, []).append((storage, wrote))
    for event, used in sorted(by_event.items()):
        forward = tape.event_phase[event] == FORWARD
        if tape.event_ops[event] not in (IN_PLACE_2016 if forward else ACTIVATIONS_BACKWARD):
            continue
        roles = [ROLE["feature maps"], ROLE["input"]] if forward else [ROLE["gradient maps"]]
        # In the backward pass only over a map that nothing needs afterwards.
        read = [
            s
            for s, wrote in used
            if not wrote and tape.is_map[s] and tape.role[s] in roles and (forward or tape.death[s] <= event + 1)
        ]
        for storage, wrote in used:
            if wrote and read and tape.birth[storage] == event and tape.is_map[storage] and tape.role[storage] in roles:
                root[storage] = root[read[0]]
    return root


def _pools_read_outputs(tape: Tape, root: Int64) -> Int64:
    """(U, 3) uses that cuDNN's maximum pooling adds in the backward pass: its output, found by its input."""
    output_of: dict[int, int] = {}
    reads: dict[int, list[int]] = {}
    for event, storage, wrote in tape.uses.tolist():
        if tape.event_ops[event].startswith("max_pool"):
            if not wrote:
                reads.setdefault(event, []).append(int(root[storage]))
            elif tape.event_phase[event] == FORWARD and tape.is_map[storage]:
                output_of.update(dict.fromkeys(reads.get(event, []), int(root[storage])))
    added = [
        (event, output_of[storage], 0)
        for event, storages in reads.items()
        for storage in storages
        if tape.event_phase[event] == BACKWARD and storage in output_of
    ]
    return np.array(added, dtype=np.int64).reshape(-1, 3)
