"""What a recording holds, and its file: one JSON whose every key and value is checked when it is read.

The dataclasses are the schema. A live measurement has the same types (`measure.Measurement`, `timing.Timing`), so that
a lesson reads one or the other alike. Every number's key ends in its unit (`median_s`, `peak_bytes`), counts aside.
Needs the standard library alone besides those two; must never import pandas, psutil, matplotlib or ipywidgets.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from course_utils.machine.measure import Measurement
from course_utils.machine.timing import Timing
from course_utils.trace import OPTIMIZERS, PRECISIONS
from course_utils.units import CourseError

FORMAT = 1
DIRECTIONS = ("to device", "to host")
LAUNCHES = ("issued", "awaited")
WAYS = ("kept", "save_on_cpu", "save_on_cpu, pinned", "checkpoint")
PLAIN = WAYS[0]


class RecordingError(CourseError):
    """A file is no recording, or not one this version of the course reads; the message names file, place and fault."""


ABOVE_0 = {"above 0": True}
PRECISION, OPTIMIZER = {"choices": tuple(PRECISIONS)}, {"choices": tuple(OPTIMIZERS)}


@dataclass(frozen=True)
class Provenance:
    """Where, when and how a recording was made. Clocks are those read right after a large product, where readable.

    Attributes:
        device: "cuda" or "cpu".
        name: of the GPU, or of the processor.
        memory_bytes: of the device.
        driver: of the GPU; empty if not readable.
        torch: version.
        cuda: version PyTorch was built with; empty on a CPU.
        cudnn: version; empty on a CPU.
        python: version.
        system: operating system.
        cpu: processor of the host.
        threads: of torch on the host.
        date: when it began, ISO 8601, UTC.
        command: the command line.
        course: version of the course.
        commit: of the course, "-dirty" behind it where files were changed; empty where git does not know.
        quick: whether only its workings were tried; such a recording is never shown in a lesson.
        tf32_convolutions: whether float32 convolutions were allowed to round their inputs to TF32, PyTorch's default.
        tf32_products: whether float32 matrix products were, which by default they are not.
        clock_mhz: of the multiprocessors.
        clock_limit_mhz: their highest.
        memory_clock_mhz: of the memory.
        took_s: how long recording took.
    """

    device: str = field(metadata={"choices": ("cuda", "cpu")})
    name: str
    memory_bytes: int
    driver: str
    torch: str
    cuda: str
    cudnn: str
    python: str
    system: str
    cpu: str
    threads: int
    date: str
    command: str
    course: str
    commit: str
    quick: bool
    tf32_convolutions: bool
    tf32_products: bool
    clock_mhz: float | None
    clock_limit_mhz: float | None
    memory_clock_mhz: float | None
    took_s: float


@dataclass(frozen=True)
class Product:
    """A product of two square matrices."""

    side: int = field(metadata=ABOVE_0)
    precision: str = field(metadata=PRECISION)
    time: Timing

    @property
    def flops_per_s(self) -> float:
        """Operations a second, a multiply-add counting as two."""
        return 2 * self.side**3 / self.time.median


@dataclass(frozen=True)
class Copy:
    """A copy within the device's memory of `size_bytes`, which are read once and written once."""

    size_bytes: int = field(metadata=ABOVE_0)
    time: Timing

    @property
    def bytes_per_s(self) -> float:
        """Bytes read and written a second."""
        return 2 * self.size_bytes / self.time.median


@dataclass(frozen=True)
class Transfer:
    """A copy between host and device, from or to pinned memory or ordinary (pageable) memory of the host."""

    size_bytes: int = field(metadata=ABOVE_0)
    pinned: bool
    direction: str = field(metadata={"choices": DIRECTIONS})
    time: Timing

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second, one way."""
        return self.size_bytes / self.time.median


@dataclass(frozen=True)
class Launch:
    """An addition of one number: "issued", one after another without waiting, or "awaited", each before the next."""

    kind: str = field(metadata={"choices": LAUNCHES})
    time: Timing


@dataclass(frozen=True)
class Contest:
    """A training step (plain SGD) of a network of one hidden layer, on the host's CPU and on the device.

    `transferred` is the device's step with input and labels copied from ordinary memory of the host before each step.
    """

    inputs: int = field(metadata=ABOVE_0)
    units: int = field(metadata=ABOVE_0)
    batch: int = field(metadata=ABOVE_0)
    cpu: Timing
    device: Timing
    transferred: Timing


@dataclass(frozen=True)
class Step:
    """A real training step of a network: what it took of memory and time. Both are None where memory ran out.

    Attributes:
        network: as `course_utils.networks.NETWORKS` names it.
        batch: samples in the batch.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        optimizer: "sgd", "momentum", "adam" or "adamw".
        way: what becomes of saved maps: "kept", moved by torch's "save_on_cpu" (pinned or not), or computed again by
            "checkpoint".
        memory: allocated, reserved, and what was there before.
        forward: the forward pass with its graph.
        step: the whole step with the update.
    """

    network: str
    batch: int = field(metadata=ABOVE_0)
    precision: str = field(metadata=PRECISION)
    optimizer: str = field(metadata=OPTIMIZER)
    way: str = field(metadata={"choices": WAYS})
    memory: Measurement | None
    forward: Timing | None
    step: Timing | None

    @property
    def out_of_memory(self) -> bool:
        """Whether the device had too little memory for it."""
        return self.memory is None

    @property
    def per_sample_s(self) -> float | None:
        """Seconds of the step for each sample."""
        return None if self.step is None else self.step.median / self.batch


@dataclass(frozen=True)
class Context:
    """What the driver counts as used beside what PyTorch's allocator reserved.

    Attributes:
        libraries: whether a product and a convolution had run before, so that cuBLAS and cuDNN were loaded.
        used_bytes: of the device, by the driver.
        reserved_bytes: of it, by PyTorch's allocator.
        others_bytes: used before this process touched the device; None if not readable.
    """

    libraries: bool
    used_bytes: int
    reserved_bytes: int
    others_bytes: int | None

    @property
    def context_bytes(self) -> int:
        """What the process took besides reserved memory: the context, and the libraries' code."""
        return max(0, self.used_bytes - self.reserved_bytes - (self.others_bytes or 0))


@dataclass(frozen=True)
class Workspace:
    """Scratch memory of one convolution: how far its peaks stand above its tensors.

    Attributes:
        network: the network it is a layer of.
        layer: its name there.
        batch: samples in the batch.
        benchmark: torch.backends.cudnn.benchmark, which tries several algorithms at the first call.
        forward_bytes: in the forward pass, from the second call on.
        backward_bytes: in the backward pass, from the second call on.
        first_bytes: in the first forward or backward, whichever asked for more: with `benchmark`, what the trying took.
    """

    network: str
    layer: str
    batch: int = field(metadata=ABOVE_0)
    benchmark: bool
    forward_bytes: int
    backward_bytes: int
    first_bytes: int


@dataclass(frozen=True)
class Skipped:
    """Something that was not measured, or not to its end, and why."""

    item: str
    reason: str


Entry = Product | Copy | Transfer | Launch | Contest | Step | Context | Workspace | Skipped
SECTIONS: dict[type[Any], str] = {
    Product: "products", Copy: "copies", Transfer: "transfers", Launch: "launches", Contest: "contests",
    Step: "steps", Context: "contexts", Workspace: "workspaces", Skipped: "skipped",
}  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """Everything in a recording's file. `complete` is False where it was interrupted."""

    format: int
    complete: bool
    provenance: Provenance
    products: list[Product] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    contests: list[Contest] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    workspaces: list[Workspace] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Put an entry into the list of its kind."""
        getattr(self, SECTIONS[type(entry)]).append(entry)


# ---------------------------------------------------------------------------------------------------------------------
# To JSON and back


def _key(item: dataclasses.Field[Any]) -> str:
    unit = item.metadata.get("unit")
    return f"{item.name}_{unit}" if unit else item.name


def as_json(value: Any) -> Any:
    """A dataclass of the schema as dictionaries, lists, strings and numbers."""
    if dataclasses.is_dataclass(value):
        return {_key(item): as_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def write(contents: Contents, path: Path) -> None:
    """Write the file whole: beside its place first, then moved there. One entry a line.

    Raises:
        RecordingError: the place cannot be written to.
    """
    lines = []
    for name, value in as_json(contents).items():
        if isinstance(value, list) and value:
            rows = ",\n  ".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in value)
            lines.append(f'"{name}": [\n  {rows}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(value, ensure_ascii=False, allow_nan=False)}')
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise RecordingError(f"{path} cannot be written ({error.strerror}): choose another place with --out") from error


def read(path: Path) -> Contents:
    """The contents of a recording's file, every key and value checked.

    Raises:
        RecordingError: it cannot be read, is of an unknown format, or has a fault; the message names the first one.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path.name} is no JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(data, dict) or "format" not in data:
        raise RecordingError(f"{path.name} is no recording: it has no format number")
    if type(data["format"]) is not int or data["format"] != FORMAT:
        raise RecordingError(
            f"{path.name} has format {data['format']!r}, and this course reads {FORMAT}: "
            "record anew with `course record`, or update the course"
        )
    contents: Contents = _value(Contents, data, path.name, "")
    for i, step in enumerate(contents.steps):
        if len({part is None for part in (step.memory, step.forward, step.step)}) > 1:
            raise RecordingError(f"{path.name}, steps[{i}]: memory, forward and step must all be given, or all be null")
    return contents


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number a recording may hold")


LARGEST = 2**63
T = TypeVar("T")
NONE: Mapping[str, Any] = types.MappingProxyType({})


def _value(kind: Any, value: Any, file: str, place: str, demands: Mapping[str, Any] = NONE) -> Any:
    def fault(what: str) -> typing.NoReturn:
        raise RecordingError(f"{file}, {place or 'top level'}: {what}")

    if isinstance(kind, types.UnionType):  # X | None is the only union of the schema
        inner = next(each for each in typing.get_args(kind) if each is not type(None))
        return None if value is None else _value(inner, value, file, place, demands)
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            fault(f"must be a list, got {_name(value)}")
        (inner,) = typing.get_args(kind)
        return [_value(inner, each, file, f"{place}[{i}]") for i, each in enumerate(value)]
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            fault(f"must be an object, got {_name(value)}")
        return _object(typing.cast(Any, kind), value, file, place)
    if kind is bool or kind is str:
        if type(value) is not kind:
            fault(f"must be {'true or false' if kind is bool else 'text'}, got {_name(value)}")
        if value not in demands.get("choices", (value,)):
            fault(f"must be one of {', '.join(demands['choices'])}, got {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        fault(f"must be a {'whole ' if kind is int else ''}number, got {_name(value)}")
    if not -LARGEST < value < LARGEST:  # false for what is not finite, too
        fault("is no number a recording may hold")
    if value < 0:
        fault(f"must be 0 or more, got {value}")
    if value == 0 and demands.get("above 0"):
        fault("must be above 0")
    return kind(value)


def _object(kind: type[T], value: dict[str, Any], file: str, place: str) -> T:
    known = {_key(item): item for item in dataclasses.fields(typing.cast(Any, kind))}
    where = f"{place}." if place else ""
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise RecordingError(f"{file}, {where}{name}: unknown; {hint}")
    for name in known:
        if name not in value:
            raise RecordingError(f"{file}, {where}{name}: is missing")
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            item.name: _value(hints[item.name], value[name], file, f"{where}{name}", item.metadata)
            for name, item in known.items()
        }
    )


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
