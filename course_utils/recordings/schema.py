"""What a recording holds, and its file: one JSON whose every key and value is checked when it is read.

The dataclasses are the schema. A live measurement has the same types, many of them beside what measures them in
`machine/`, so that a lesson reads one or the other alike. Every number's key ends in its unit (`median_s`,
`peak_bytes`), counts aside.
"""

import dataclasses
import difflib
import json
import reprlib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.files import write_whole
from course_utils.machine.card import Contest, Context, RealStep
from course_utils.machine.timing import ABOVE_0, Timing
from course_utils.trace import PRECISIONS
from course_utils.units import CourseError

FORMAT = 2
DIRECTIONS = ("to device", "to host")
LAUNCHES = ("issued", "awaited")
LARGEST = 2**63


@dataclass(frozen=True)
class Provenance:
    """Where, when and how a recording was made. What the machine does not say is empty, or None for a number."""

    device: str = field(metadata={"choices": ("cuda", "cpu")})
    name: str  # of the GPU, or of the processor
    memory_bytes: int  # of the device
    driver: str
    torch: str
    cuda: str  # that PyTorch was built with; empty on a CPU, as the next
    cudnn: str
    python: str
    system: str
    cpu: str  # of the host
    threads: int  # of torch on the host
    date: str  # when it began, ISO 8601, UTC
    command: str
    course: str
    commit: str  # of the course, "-dirty" behind it where files were changed
    quick: bool  # not the full plan: only the workings were tried, and no lesson shows it
    tf32_convolutions: bool  # whether float32 convolutions might round their inputs to TF32, PyTorch's default
    tf32_products: bool  # whether float32 matrix products might, which by default they may not
    clock_mhz: float | None = None  # of the multiprocessors under load, as the next two
    clock_limit_mhz: float | None = None
    memory_clock_mhz: float | None = None
    took_s: float = 0.0


@dataclass(frozen=True)
class Product:
    """A product of two square matrices: 2 · side³ operations."""

    side: int = field(metadata=ABOVE_0)
    precision: str = field(metadata={"choices": tuple(PRECISIONS)})
    time: Timing


@dataclass(frozen=True)
class MemoryCopy:
    """A copy within the device's memory of `size_bytes`, which are read once and written once."""

    size_bytes: int = field(metadata=ABOVE_0)
    time: Timing


@dataclass(frozen=True)
class Transfer:
    """A copy between host and device, from or to pinned memory or ordinary (pageable) memory of the host."""

    size_bytes: int = field(metadata=ABOVE_0)
    pinned: bool
    direction: str = field(metadata={"choices": DIRECTIONS})
    time: Timing


@dataclass(frozen=True)
class Launch:
    """An addition of one number: "issued", one after another without waiting, or "awaited", each before the next."""

    kind: str = field(metadata={"choices": LAUNCHES})
    time: Timing


@dataclass(frozen=True)
class Skipped:
    """Something that was not measured, or not to its end, and why."""

    item: str
    reason: str


Entry = Product | MemoryCopy | Transfer | Launch | Contest | RealStep | Context | Skipped


@dataclass(frozen=True)
class Contents:
    """Everything in a recording's file. `complete` is False where it was interrupted."""

    format: int
    complete: bool
    provenance: Provenance
    products: list[Product] = field(default_factory=list)
    copies: list[MemoryCopy] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    steps: list[RealStep] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Put an entry into the list of its kind."""
        getattr(self, SECTIONS[type(entry)]).append(entry)


SECTIONS: dict[type[Any], str] = {
    typing.get_args(hint)[0]: name
    for name, hint in typing.get_type_hints(Contents).items()
    if typing.get_origin(hint) is list
}


# -- To JSON and back -------------------------------------------------------------------------------------------------


def _key(item: dataclasses.Field[Any]) -> str:
    unit = item.metadata.get("unit")
    return f"{item.name}_{unit}" if unit else item.name


def as_json(value: Any) -> Any:
    """A dataclass of the schema as dictionaries, lists, strings and numbers."""
    if dataclasses.is_dataclass(value):
        return {_key(item): as_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def write(contents: Contents, path: Path) -> None:
    """Write the file whole, one entry a line. Raises CourseError where the place cannot be written to."""
    text, lines = partial(json.dumps, ensure_ascii=False, allow_nan=False), []
    for name, value in as_json(contents).items():
        rows = "[\n  " + ",\n  ".join(map(text, value)) + "\n]" if isinstance(value, list) and value else text(value)
        lines.append(f"{text(name)}: {rows}")
    try:
        write_whole(path, "{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise CourseError(f"{path} cannot be written ({error.strerror}): choose another place with --out") from error


def read(path: Path) -> Contents:
    """The contents of a recording's file, every key and value checked.

    Raises CourseError if it cannot be read, is of an unknown format, or has a fault: file and place of the first.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path.name} is no JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict) or "format" not in data:
        raise CourseError(f"{path.name} is no recording: it has no format number")
    if type(data["format"]) is not int or data["format"] != FORMAT:
        raise CourseError(
            f"{path.name} has format {data['format']!r}, and this course reads {FORMAT}: "
            "record anew with `course record`, or update the course"
        )
    try:
        contents: Contents = _value(Contents, data, "")
        for i, step in enumerate(contents.steps):
            alike = len({part is None for part in (step.memory, step.forward, step.step)}) == 1
            _demand(alike, f"steps[{i}]", "memory, forward and step must all be given, or all be null")
    except CourseError as fault:
        raise CourseError(f"{path.name}, {fault}") from None
    return contents


def _demand(right: bool, place: str, what: str) -> None:
    if not right:
        raise CourseError(f"{place or 'top level'}: {what}")


def _value(kind: Any, value: Any, place: str, demands: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    """The value as the type its dataclass gives it; raises CourseError."""
    got, inner = f"got {_name(value)}", [each for each in typing.get_args(kind) if each is not type(None)]
    if isinstance(kind, types.UnionType):  # X | None is the only union of the schema
        return None if value is None else _value(inner[0], value, place, demands)
    if inner:
        _demand(isinstance(value, list), place, f"must be a list, {got}")
        return [_value(inner[0], each, f"{place}[{i}]") for i, each in enumerate(value)]
    if dataclasses.is_dataclass(kind):
        _demand(isinstance(value, dict), place, f"must be an object, {got}")
        fields = {_key(item): item for item in dataclasses.fields(kind)}
        where = f"{place}." if place else ""
        for name in (name for name in value if name not in fields):
            near = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
            raise CourseError(f"{where}{name}: unknown; {hint}")
        for name in (name for name in fields if name not in value):
            raise CourseError(f"{where}{name}: is missing")
        hints = typing.get_type_hints(kind)
        made = {it.name: _value(hints[it.name], value[key], where + key, it.metadata) for key, it in fields.items()}
        return typing.cast(Any, kind)(**made)
    if kind in (bool, str):
        _demand(type(value) is kind, place, f"must be {'true or false' if kind is bool else 'text'}, {got}")
        choices = demands.get("choices", (value,))
        _demand(value in choices, place, f"must be one of {', '.join(map(str, choices))}, got {value!r}")
        return value
    numbers = (int,) if kind is int else (int, float)
    _demand(type(value) in numbers, place, f"must be a {'whole ' if kind is int else ''}number, {got}")
    _demand(-LARGEST < value < LARGEST, place, "is no number a recording may hold")  # nor what is not finite
    _demand(value >= 0, place, f"must be 0 or more, {got}")
    _demand(value > 0 or "above 0" not in demands, place, "must be above 0")
    return kind(value)


def _name(value: Any) -> str:
    """A value of a JSON in a few words."""
    special = {dict: "an object", list: "a list", type(None): "null"}
    return special[type(value)] if type(value) in special else reprlib.repr(value)
