"""Whether activations stand between weights, however a program is written: by the values that its operators make.

What holds of a tensor holds of each of its bytes: a map may be gone through channel by channel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from lessons.shared.replay.form import DTYPES, Entry, Mark, Operator, Record, Ref
from lessons.shared.replay.replayer import Ran, replay

PRODUCTS = frozenset("convolution addmm mm bmm baddbmm addbmm addmv mv dot vdot addr outer".split())
ACTIVATIONS = frozenset(
    "leaky_relu leaky_relu_ elu elu_ gelu silu silu_ hardtanh hardtanh_ mish softplus tanh sigmoid".split()
)


def missing_activations(record: Record, values: Mapping[str, Tensor], forward: Sequence[Ran]) -> tuple[bool, bool]:
    """Whether weights follow weights without an activation between, and whether a convolution's map has no ReLU.

    Args:
        record: of a step.
        values: of its inputs.
        forward: what ran of it up to its output.
    """
    rectified = _rectified(record, values)
    bent = rectified | {number for number, one in enumerate(forward) if one.name in ACTIVATIONS}
    output = tuple(filter(None, [record.marks["output 1"]]))
    end = Ran("mm", "", False, output, (), 0, 0)  # as if it were multiplied: the last convolution has a ReLU too
    return _is_straight(forward, bent, PRODUCTS), _is_straight([*forward, end], rectified, {"convolution"})


def _rectified(record: Record, values: Mapping[str, Tensor]) -> frozenset[int]:
    """Which operators of the forward pass, by their number, are a ReLU: they cut off what is below 0.

    It shows in what they make, whatever they are called: the record is run once more, with each operator's tensors
    handed out.
    """
    entries: list[Entry] = []
    number = -1
    for entry in record.entries:
        if isinstance(entry, Operator):
            number += 1
            reads = [ref for ref in tree_leaves(entry.given) if isinstance(ref, Ref)]
            made = [ref for ref in entry.made[:1] if ref is not None and DTYPES[ref.dtype].is_floating_point]
            of_maps = [ref for ref in reads if made and (ref.size, ref.dtype) == (made[0].size, made[0].dtype)]
            before = [Mark(f"read {number} {place}", ref) for place, ref in enumerate(of_maps)]
            entries += [*before, entry, *(Mark(f"made {number}", ref) for ref in made if of_maps)]
        elif isinstance(entry, Mark) and entry.name == "output 1":
            break
        elif not isinstance(entry, Mark):
            entries.append(entry)
    handed = replay(Record(record.inputs, tuple(entries)), values).handed

    def cuts(number: int) -> bool:
        reads = (one for name, one in handed.items() if name.startswith(f"read {number} "))
        return any(bool((one < 0).any()) and torch.equal(one.relu(), handed[f"made {number}"]) for one in reads)

    return frozenset(number for number in range(number + 1) if f"made {number}" in handed and cuts(number))


def _is_straight(forward: Sequence[Ran], bends: Collection[int], makers: Collection[str]) -> bool:
    """Whether weights multiply what these products are made of, and no operator stands between that bends it."""
    linear: dict[int, Tensor] = {}  # of storages, which bytes hold products that nothing has bent since
    for number, one in enumerate(forward):
        reads = any(bool(_bytes(linear, ref).any()) for ref in _sources(one) if ref.storage in linear)
        if reads and one.name in PRODUCTS:
            return True
        straight = one.name in makers or (reads and number not in bends)
        for ref in one.made:
            if straight or ref.storage in linear:
                _bytes(linear, ref).fill_(straight)
    return False


def _sources(one: Ran) -> tuple[Ref, ...]:
    """The tensors whose values an operator reads: of what is to be alike it takes the shape, a copy writes over it."""
    alike = one.name.endswith("_like") or one.name.startswith("new_")
    return () if alike else one.read[1:] if one.name == "copy_" else one.read


def _bytes(known: dict[int, Tensor], ref: Ref) -> Tensor:
    """The flags in `known` of the bytes that a tensor shows; those of a storage begin as False."""
    flags = known.get(ref.storage, torch.zeros(0, dtype=torch.bool))
    if len(flags) < ref.end:
        flags = known[ref.storage] = nn.functional.pad(flags, (0, ref.end - len(flags)))
    width = DTYPES[ref.dtype].itemsize
    return flags.as_strided((*ref.size, width), (*(width * step for step in ref.stride), 1), width * ref.offset)
