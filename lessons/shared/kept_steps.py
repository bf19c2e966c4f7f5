"""Traced steps of short stacks, kept in a file beside a lesson, so that its explorer answers without tracing.

How many tokens a sequence has enters every size as a polynomial of the second degree (scores are its square); where
positions are learned, each token beyond those that the model was published with adds one row of them. Four lengths are
traced, which is what it takes to know every other multiple of UNIT exactly, for a batch of one and for all larger ones.
What cannot be written so is refused when it is kept. Another release of torch may trace another step: then nothing is
read here, and an explorer traces.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_utils.files import write_whole
from course_utils.memory import Int64, Tape
from lessons.shared.stacked import NotAlike

UNIT = 128  # tokens; lengths are multiples of it, so that a loss in pieces has whole ones
LENGTHS = (128, 256, 512, 2048)  # tokens traced: three for the polynomial, one beyond the positions of the smallest
ALIKE = ("birth", "death", "role", "layer", "is_map", "event_phase", "event_layer", "recomputed")
TRUTHS = ("is_map", "recomputed")
RELEASE = ".".join(torch.__version__.split(".")[:2])


def _exactly(value: Int64, by: int) -> Int64:
    found, rest = np.divmod(value, by)
    if rest.any():
        raise NotAlike("a size is no polynomial of the second degree in the sequence")
    return found


def _coefficients(at: list[Int64], positions: int) -> Int64:
    """(4, …): of values at LENGTHS, what stands with UNITs to the power 0, 1 and 2, and with each further position."""
    a, b, c, d = (length // UNIT for length in LENGTHS)
    first, second, third, beyond = at
    low, high = _exactly(np.subtract(second, first), b - a), _exactly(np.subtract(third, second), c - b)
    square = _exactly(np.subtract(high, low), c - a)
    slope = low - square * (a + b)
    constant = first - slope * a - square * a * a
    more = beyond - (constant + slope * d + square * d * d)
    beyond_positions = LENGTHS[-1] - positions
    row = _exactly(np.asarray(more), beyond_positions) if beyond_positions > 0 else more
    if beyond_positions <= 0 and row.any():
        raise NotAlike("a size is no polynomial of the second degree in the sequence")
    return np.stack([constant, slope, square, row])


def _told_apart(columns: Int64) -> tuple[Int64, Int64]:
    """The distinct columns in the order in which they come, and which of them each is."""
    _, first, which = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return columns[:, np.sort(first)], place[which.reshape(-1)]


def write(path: Path, steps: Iterable[tuple[str, Mapping[int, Tape], int]]) -> None:
    """Keep steps in a file.

    Args:
        path: of the file.
        steps: of each its name, the tape at every one of LENGTHS, and the positions that the model was published with.

    Raises:
        NotAlike: a step that is another one at another length, or whose sizes are no such polynomials.
    """
    arrays: dict[str, Int64] = {}
    known: dict[bytes, str] = {}
    texts: dict[tuple[str, ...], int] = {}
    index: dict[str, Any] = {}

    def kept(array: Int64) -> str:
        small = array.astype(np.min_scalar_type(int(array.max(initial=0))) if array.min(initial=0) >= 0 else np.int64)
        key = small.dtype.str.encode() + str(small.shape).encode() + small.tobytes()
        if key not in known:
            known[key] = str(len(known))
            arrays[known[key]] = small
        return known[key]

    for name, tapes, positions in steps:
        first, *others = (tapes[length] for length in LENGTHS)
        for other in others:
            if other.event_ops != first.event_ops or other.layer_names != first.layer_names:
                raise NotAlike(f"{name} is another step at another length")
            if not all(np.array_equal(getattr(first, field), getattr(other, field)) for field in ALIKE):
                raise NotAlike(f"{name} is another step at another length")
        lines = {
            field: np.concatenate(
                [
                    _coefficients([getattr(tapes[length], field).reshape(-1) for length in LENGTHS], positions)
                    for field in fields
                ]
            )
            for field, fields in (("size", ("fixed", "per_sample")), ("traffic", ("event_traffic",)))
        }
        table, which = _told_apart(lines["size"])
        # Operators as numbers: (E,) names in the order in which they come.
        ops = tuple(dict.fromkeys(first.event_ops))
        code = {op: number for number, op in enumerate(ops)}
        index[name] = {
            "positions": positions,
            "table": kept(table),
            "which": kept(which),
            "traffic": kept(lines["traffic"]),
            "ops": texts.setdefault(ops, len(texts)),
            "event_ops": kept(np.array([code[op] for op in first.event_ops])),
            "layer_names": texts.setdefault(first.layer_names, len(texts)),
            **{field: kept(getattr(first, field).astype(np.int64)) for field in ALIKE},
        }
    head = json.dumps({"torch": RELEASE, "texts": list(texts), "steps": index}).encode()
    packed = BytesIO()
    np.savez(packed, head=np.frombuffer(head, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    write_whole(path, lzma.compress(packed.getvalue()))


@dataclass(frozen=True)
class KeptSteps:
    """The steps of a file, read when the first is asked for."""

    path: Path

    @cached_property
    def _file(self) -> tuple[dict[str, Any], Mapping[str, Int64]]:
        if not self.path.exists():
            return {"steps": {}}, {}
        arrays = np.load(BytesIO(lzma.decompress(self.path.read_bytes())))
        head = json.loads(arrays["head"].tobytes())
        return (head if head["torch"] == RELEASE else {**head, "steps": {}}), arrays

    @property
    def names(self) -> Collection[str]:
        """Of the steps; none where they were traced with another release of torch."""
        steps: dict[str, Any] = self._file[0]["steps"]
        return steps.keys()

    def tape(self, name: str, sequence: int) -> Tape | None:
        """A step at this length of sequence, or None if it is not kept: without arithmetic, shapes and uses."""
        head, arrays = self._file
        step = head["steps"].get(name)
        if step is None or sequence % UNIT:
            return None
        units = sequence // UNIT
        powers = np.array([1, units, units**2, max(0, sequence - step["positions"])], dtype=np.int64)

        def values(key: str) -> Int64:
            return arrays[step[key]].astype(np.int64)

        size = np.tensordot(powers, values("table").reshape(2, 4, -1), (0, 1))[:, values("which")]
        ops = head["texts"][step["ops"]]

        def not_counted() -> Int64:
            raise NotAlike("a kept step has no arithmetic: trace it")

        whole = {field: values(field).astype(np.bool_ if field in TRUTHS else np.int64) for field in ALIKE}
        return Tape(
            fixed=size[0], per_sample=size[1], event_ops=tuple(ops[op] for op in values("event_ops")),
            event_traffic=(powers @ values("traffic")).reshape(-1, 2),
            layer_names=tuple(head["texts"][step["layer_names"]]), layer_shapes={}, layer_parameters={},
            count_flops=not_counted, **whole,  # type: ignore[arg-type]
        )  # fmt: skip
