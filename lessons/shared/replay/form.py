"""The form of a record: operators with their arguments, births and deaths of memory, what was handed in and out.

A tensor is written as the memory that it is a view of (`Ref`), so that views need no entry of their own. What is read
from a text is checked here, for its form alone; `replayer` finds out what it comes to. Raises Refused, with one line.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import json
import operator as arithmetic
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from classroom.questions.graded import RECORD
from lessons.shared.judged import Unfit

MOST_ENTRIES = 50_000  # of a record: the longest of a right answer has 3,000
MOST_RECORDS = 100  # of one answer
MOST_TEXT = 4 * 2**20  # characters, packed
MOST_JSON = 64 * 2**20  # bytes, unpacked
MOST_CONSTANTS = 1024  # values that a program may hold of its own
MOST_VALUES = 2**27  # of one tensor
MOST_DIMENSIONS = 8
PACKED = re.compile(rf"{RECORD}([A-Za-z0-9+/]*={{0,2}})")
LISTED = frozenset(Path(__file__).with_name("operators.txt").read_text(encoding="utf-8").split())
# What stands in arguments beside tensors and numbers, by how torch writes it.
NAMED = {
    str(one): one
    for one in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16),
        *(torch.int32, torch.int64, torch.bool, torch.strided, torch.contiguous_format, torch.preserve_format),
        *(torch.channels_last, torch.channels_last_3d),
    )
} | {"cpu": torch.device("cpu")}
DTYPES = {name: one for name, one in NAMED.items() if isinstance(one, torch.dtype)}


class Refused(Unfit):
    """Why a record cannot be replayed, in one line."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor: the number of its storage, and which values of that it shows, in units of its dtype."""

    storage: int
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def whole(self) -> bool:
        """Whether it shows every value of its storage up to its own end, and each once, in whatever order."""
        sizes = sorted((step, n) for n, step in zip(self.size, self.stride, strict=True) if n != 1)
        steps = itertools.accumulate((n for _, n in sizes), arithmetic.mul, initial=1)
        return 0 in self.size or (
            self.offset == 0 and all(step == at for (step, _), at in zip(sizes, steps, strict=False))
        )

    @property
    def end(self) -> int:
        """Bytes from the beginning of the storage to behind the last value."""
        last = self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        return 0 if 0 in self.size else (last + 1) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that ran: what it was given, and the tensors it returned.

    Attributes:
        name: with its overload, as in "aten::add.Tensor".
        draw: a number for the state of torch's generator, where it draws: the same state, the same draw.
    """

    name: str
    given: tuple[Any, ...]
    named: dict[str, Any]
    made: tuple[Ref | None, ...]
    draw: int | None = None

    @property
    def kind(self) -> str:
        """Its name without namespace and overload."""
        return self.name.removeprefix("aten::").partition(".")[0]


@dataclass(frozen=True, slots=True)
class Read:
    """A number that was looked at, by an operator of this kind. What was made of it shows on other values."""

    kind: str


@dataclass(frozen=True, slots=True)
class Freed:
    """Storages whose last tensor has gone."""

    storages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A few values that a program brings along, such as those of `torch.tensor([0.5, 0.5])`."""

    ref: Ref
    values: tuple[bool | int | float, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a program: a tensor that is handed out there, or the end of a phase."""

    name: str
    ref: Ref | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A tensor that was put on its way to another card."""

    to: int
    ref: Ref


@dataclass(frozen=True, slots=True)
class Received:
    """The next tensor from another card; None where none came."""

    source: int
    ref: Ref | None


Entry = Operator | Read | Freed | Constant | Mark | Sent | Received


@dataclass(frozen=True)
class Record:
    """A program: what is handed in, by name, and what happened then, in order."""

    inputs: dict[str, Ref]
    entries: tuple[Entry, ...]

    @property
    def marks(self) -> dict[str, Ref | None]:
        """What is handed out, by name."""
        return {one.name: one.ref for one in self.entries if isinstance(one, Mark)}

    def require_marks(self, pattern: str) -> None:
        """Raise Refused unless the names of its marks, each with a line feed, are what a pattern says, in this order.

        What counts between two marks is counted right only where they stand as the recorder sets them.
        """
        names = [one.name for one in self.entries if isinstance(one, Mark)]
        if any("\n" in name for name in names) or not re.fullmatch(pattern, "".join(f"{name}\n" for name in names)):
            raise Refused("what it hands out is not what a step hands out, or not in this order")

    def shapes(self, prefix: str = "") -> dict[str, tuple[int, ...]]:
        """Sizes of the inputs whose names begin so, by the rest of their names."""
        return {n.removeprefix(prefix): ref.size for n, ref in self.inputs.items() if n.startswith(prefix)}


@functools.cache
def operator(name: str) -> Callable[..., Any]:
    """The operator of this name. Raises Refused for one that is not listed."""
    if re.fullmatch(r"torch\w*::\w+(\.\w+)?", name):  # such as torch_nn's: made of ATen's, and seen as one
        raise Refused(f"`{name}` does the work of several operators in one call: write it out with plainer ones")
    if not re.fullmatch(r"aten::\w+(\.\w+)?", name):
        raise Refused(f"`{name}` is none of torch's own operators: use those alone")
    kind, _, overload = name.removeprefix("aten::").partition(".")
    known = getattr(getattr(torch.ops.aten, kind, None), overload or "default", None)
    if not isinstance(known, torch._ops.OpOverload):
        raise Refused(f"`{name}` is no operator")
    if kind.removesuffix("_") in LISTED or kind.startswith("_foreach_") or torch.Tag.pointwise in known.tags:
        return known
    raise Refused(f"`{kind}` is none of the operators that can be replayed: write the same with plainer ones")


# -- to text -----------------------------------------------------------------------------------------------------------


def packed(data: Any) -> str:
    """Data of JSON's kinds as one line of text."""
    return f"{RECORD}{base64.b64encode(zlib.compress(json.dumps(data, separators=(',', ':')).encode(), 6)).decode()}"


def unpacked(text: str) -> Any:
    """The data in a line of text. Raises Refused for any that is none, or too long."""
    found = PACKED.fullmatch(text.strip()) if len(text) <= MOST_TEXT else None
    if found is None:
        raise Refused("this is no record")
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(found[1], validate=True), MOST_JSON)
        if not unpack.eof:
            raise Refused("the record is cut off, or too long")
        return json.loads(data)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise Refused("the record has not the form of one") from None


def to_text(record: Record) -> str:
    """A record as one line of text."""
    inputs = {name: _written(ref) for name, ref in record.inputs.items()}
    return packed([inputs, [_entry(one) for one in record.entries]])


def to_texts(records: Sequence[Record]) -> str:
    """Several records as one line of text."""
    return " ".join(map(to_text, records))


def _entry(one: Entry) -> list[Any]:
    match one:
        case Operator():
            named = {key: _written(value) for key, value in one.named.items()}
            made = [None if ref is None else _written(ref) for ref in one.made]
            return ["do", one.name, _written(one.given), named, made, one.draw]
        case Read():
            return ["read", one.kind]
        case Freed():
            return ["free", *one.storages]
        case Constant():
            return ["constant", _written(one.ref), list(one.values)]
        case Mark():
            return ["mark", one.name, None if one.ref is None else _written(one.ref)]
        case Sent():
            return ["send", one.to, _written(one.ref)]
        case Received():
            return ["receive", one.source, None if one.ref is None else _written(one.ref)]


def _written(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"t": [value.storage, value.dtype.removeprefix("torch."), value.size, value.stride, value.offset]}
    if isinstance(value, list | tuple):
        return [_written(part) for part in value]
    return {"c": str(value)} if isinstance(value, tuple(map(type, NAMED.values()))) else value


# -- from text ---------------------------------------------------------------------------------------------------------


def from_text(text: str) -> Record:
    """The record in a text. Raises Refused for any that is none."""
    data = unpacked(text)
    try:
        inputs, entries = data
        if len(entries) > MOST_ENTRIES:
            raise Refused(f"more than {MOST_ENTRIES:,} operators ran")
        given = {_text(name): _ref(one) for name, one in inputs.items()}
        return Record(given, tuple(map(_read_entry, entries)))
    except Refused:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise Refused("the record has not the form of one") from None


def from_texts(text: str) -> list[Record]:
    """The records in a text. Raises Refused for any that is none, and for too many."""
    texts = text.split()
    if len(texts) > MOST_RECORDS:
        raise Refused(f"these are more than {MOST_RECORDS} records")
    return list(map(from_text, texts))


def _read_entry(entry: Sequence[Any]) -> Entry:
    match entry:
        case ["do", str(name), list(given), dict(named), list(made), draw]:
            operator(name)
            if draw is not None:
                _whole(draw)
            made_refs = tuple(None if one is None else _ref(one) for one in made)
            by_name = {_text(key): _argument(value) for key, value in named.items()}
            return Operator(name, tuple(map(_argument, given)), by_name, made_refs, draw)
        case ["read", str(kind)]:
            return Read(kind)
        case ["free", *storages]:
            return Freed(tuple(map(_whole, storages)))
        case ["constant", ref, list(values)]:
            if not all(isinstance(one, bool | int | float) for one in values):
                raise TypeError
            return Constant(_ref(ref), tuple(values))
        case ["mark", str(name), ref]:
            return Mark(name, None if ref is None else _ref(ref))
        case ["send", to, ref]:
            return Sent(_whole(to), _ref(ref))
        case ["receive", source, ref]:
            return Received(_whole(source), None if ref is None else _ref(ref))
    raise TypeError


def _argument(value: Any) -> Any:
    match value:
        case {"t": _}:
            return _ref(value)
        case {"c": str(name)}:
            return NAMED[name]
        case list():
            return [_argument(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError


def _ref(value: Any) -> Ref:
    storage, dtype, size, stride, offset = value["t"]
    made = Ref(_whole(storage), f"torch.{dtype}", tuple(map(_whole, size)), tuple(map(_whole, stride)), _whole(offset))
    if made.dtype not in DTYPES or len(made.size) > MOST_DIMENSIONS or made.end > 8 * MOST_VALUES:
        raise Refused("a tensor is larger than any answer needs, or of another kind")
    return made


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise TypeError
    return value
