"""Training steps written down by hand, so that pictures and explorers are tested without torch and without a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_utils.machine.context import context
from course_utils.memory import ROLE, StepTrace, Tape
from course_utils.techniques.capacity import REPLAY_PERCENT, Demand

Layer = tuple[str, int, int]  # name, bytes of parameters, bytes of its output for one sample

CONVOLUTIONS = [(64, 3, 224), (64, 64, 224), (128, 64, 112), (128, 128, 112), (256, 128, 56), (256, 256, 56)]
CONVOLUTIONS += [(256, 256, 56), (512, 256, 28), (512, 512, 28), (512, 512, 28), *3 * [(512, 512, 14)]]
VGG: list[Layer] = [
    *((f"conv{i + 1}", 36 * into * out, 8 * out * size**2) for i, (out, into, size) in enumerate(CONVOLUTIONS)),
    ("fc6", 4 * 25088 * 4096, 4 * 4096),
    ("fc7", 4 * 4096 * 4096, 4 * 4096),
    ("fc8", 4 * 4096 * 1000, 4 * 1000),
]


def made_step(
    layers: Sequence[Layer] = VGG,
    sample: int = 4 * 3 * 224 * 224,
    state: float = 1.0,
    train: bool = True,
    name: str = "made",
) -> StepTrace:
    """A chain of layers: outputs kept to the backward pass, gradient maps passed down, gradients freed by zero_grad.

    `state` is the optimizer state in multiples of the parameters; `train=False` is a forward pass alone.
    """
    names = ("", *(layer[0] for layer in layers), "loss")
    events: list[tuple[str, int, int]] = [("start", 0, 0)]
    events += [("convolution", 0, i + 1) for i in range(len(layers))] + [("loss", 0, len(names) - 1)]
    backward = len(events)
    if train:
        events += [("backward", 1, i + 1) for i in reversed(range(len(layers)))]
        events += [("add_", 2, i + 1) for i in range(len(layers))] + [("zero_grad", 2, 0)]
    end = len(events)
    rows: list[tuple[int, int, str, int, int, int]] = [(0, sample, "input", 0, 0, end)]
    for i, (_, parameters, output) in enumerate(layers):
        rows.append((parameters, 0, "parameters", i + 1, 0, end))
        rows.append((int(state * parameters) if train else 0, 0, "optimizer state", i + 1, 0, end))
        if train:
            seen = backward + len(layers) - 1 - i  # the event of this layer's backward
            rows.append((0, output, "feature maps", i + 1, i + 1, seen + 1))
            rows.append((0, layers[i - 1][2] if i else 0, "gradient maps", i + 1, seen, seen + 2))
            rows.append((parameters, 0, "weight gradients", i + 1, seen, end - 1))
        else:
            rows.append((0, output, "feature maps", i + 1, i + 1, min(i + 3, end)))
    fixed, slope, roles, layer, birth, death = zip(*rows, strict=True)
    ops, phase, event_layer = zip(*events, strict=True)
    tape = Tape(
        fixed=np.array(fixed, dtype=np.int64),
        per_sample=np.array(slope, dtype=np.int64),
        role=np.array([ROLE[role] for role in roles], dtype=np.int64),
        layer=np.array(layer, dtype=np.int64),
        birth=np.array(birth, dtype=np.int64),
        death=np.array(death, dtype=np.int64),
        is_map=np.array([role == "feature maps" for role in roles]),
        event_ops=tuple(ops),
        event_phase=np.array(phase, dtype=np.int64),
        event_layer=np.array(event_layer, dtype=np.int64),
        event_traffic=np.zeros((end, 2), dtype=np.int64),
        recomputed=np.zeros(end, dtype=np.bool_),
        layer_names=names,
        layer_shapes={layer[0]: ((0, 1), (layer[2] // 4, 0)) for layer in layers},
        layer_parameters={layer[0]: layer[1] // 4 for layer in layers},
        count_flops=lambda: np.zeros((end, 2), dtype=np.int64),
    )
    return StepTrace(name, tape, lambda batch: tape)


def roomy(asked: Demand) -> int:
    """Bytes of a card on which the allocator gives nothing back and has the error of a replay to spare."""
    reserved = asked.scratch.reserved_bytes
    return reserved + -(-reserved * REPLAY_PERCENT // 100) + (asked.context or context()).most
