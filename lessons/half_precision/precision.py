"""What 16-bit floats can hold, on real tensors: range, spacing, what becomes zero, and the loss scaling that helps.

`formats` and `fate` ask PyTorch itself, by converting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from course_utils.machine.hardware import Device
from course_utils.machine.measure import autocast
from course_utils.machine.speed import predict_step
from course_utils.memory import ROLE, Ledger
from course_utils.trace import PRECISIONS
from course_utils.units import CourseError, require_one_of

HALVES = ("float16", "bfloat16")


def formats() -> pd.DataFrame:
    """One row a format, from `torch.finfo`.

    Columns: bits; exponent bits; fraction bits; largest; smallest normal (below it digits are lost one by one);
    smallest (above 0); spacing at 1; digits (decimal, that always survive).
    """
    rows = []
    for name, dtype in PRECISIONS.items():
        info = torch.finfo(dtype)
        fraction = _fraction_bits(info)
        rows.append(
            {
                "format": name,
                "bits": info.bits,
                "exponent bits": info.bits - 1 - fraction,
                "fraction bits": fraction,
                "largest": info.max,
                "smallest normal": info.smallest_normal,
                "smallest": info.smallest_normal * info.eps,
                "spacing at 1": info.eps,
                "digits": math.floor(fraction * math.log10(2)),
            }
        )
    return pd.DataFrame(rows).set_index("format")


def _fraction_bits(info: torch.finfo) -> int:
    return round(-math.log2(info.eps))


@dataclass(frozen=True)
class Bits:
    """A number as a format stores it.

    Attributes:
        value: the number that is stored: the nearest to the one asked for.
        sign: "0" for a number that is not negative, else "1".
        exponent: bits of the exponent, the highest first.
        fraction: bits of the fraction, the highest first.
    """

    value: float
    sign: str
    exponent: str
    fraction: str

    @property
    def hidden(self) -> int:
        """The digit before the point: 1, or 0 below the smallest normal number."""
        return int("1" in self.exponent)

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent as it is stored."""
        return int(2 ** (len(self.exponent) - 1) - 1)

    @property
    def power(self) -> int:
        """The power of two that the digits are multiplied by."""
        return max(int(self.exponent, 2), 1) - self.bias

    @property
    def reading(self) -> str:
        """How the bits are read, on one line."""
        counted, steps = int(self.fraction, 2), 2 ** len(self.fraction)
        digits = f"({self.hidden} + {counted:,}/{steps:,})"
        power = str(self.power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        sign = "−" if self.sign == "1" else ""
        return f"{sign}{digits} · 2{power} = {self.value:.10g}"


def bits(value: float, precision: str) -> Bits:
    """The bits of a number in a format, read from PyTorch's own.

    Raises:
        CourseError: an unknown precision, or a number that the format does not hold.
    """
    require_one_of("precision", precision, PRECISIONS)
    stored = torch.tensor(value, dtype=torch.float64).to(PRECISIONS[precision])
    if not stored.isfinite():
        raise CourseError(f"{precision} has no finite number near {value:g}")
    info = torch.finfo(stored.dtype)
    whole = int(stored.view(torch.int16 if info.bits == 16 else torch.int32).item()) % 2**info.bits
    written, ends = f"{whole:0{info.bits}b}", info.bits - _fraction_bits(info)
    return Bits(stored.item(), written[0], written[1:ends], written[ends:])


def spacing(value: float, precision: str) -> float:
    """The distance from a number to the next one further from zero in a format.

    2**(e - f) for 2**e <= |value| < 2**(e + 1) and f fraction bits; below the smallest normal number it stays what it
    is there.

    Raises:
        CourseError: an unknown precision, or a value beyond the largest number.
    """
    require_one_of("precision", precision, PRECISIONS)
    info = torch.finfo(PRECISIONS[precision])
    if not abs(value) <= info.max:
        raise CourseError(f"{value:g} is beyond {precision}, whose largest number is {info.max:g}")
    magnitude = max(abs(value), info.smallest_normal)
    return float(2.0 ** (math.frexp(magnitude)[1] - 1 - _fraction_bits(info)))


@dataclass(frozen=True)
class Fate:
    """What becomes of numbers other than 0 in a format: how many there are, and how many of them end as what.

    Attributes:
        zero: too small, they become 0.
        subnormal: kept with fewer digits than the format has.
        normal: kept with all its digits.
        overflow: too large, they become infinite.
    """

    zero: int
    subnormal: int
    normal: int
    overflow: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.zero + self.subnormal + self.normal + self.overflow

    @property
    def lost(self) -> float:
        """Share that becomes 0, from 0 to 1."""
        return self.zero / max(self.count, 1)


def fate(values: Tensor, precision: str, scale: float = 1.0) -> Fate:
    """What becomes of a tensor's numbers, times `scale`, in a format; those that are 0 to begin with do not count.

    Raises:
        CourseError: an unknown precision.
    """
    require_one_of("precision", precision, PRECISIONS)
    dtype = PRECISIONS[precision]
    numbers = values[values != 0].double() * scale
    converted = numbers.to(dtype).double().abs()
    zero, overflow = int((converted == 0).sum()), int((~converted.isfinite()).sum())
    subnormal = int(((converted > 0) & (converted < torch.finfo(dtype).smallest_normal)).sum())
    return Fate(zero, subnormal, len(numbers) - zero - overflow - subnormal, overflow)


def powers(values: Tensor) -> dict[int, int]:
    """How many of a tensor's numbers lie from 2**k to below 2**(k + 1), by k, in order; 0 lies nowhere."""
    numbers = values[values != 0].detach().double().numpy()
    found, counts = np.unique(np.frexp(numbers)[1] - 1, return_counts=True)
    return {int(power): int(count) for power, count in zip(found, counts, strict=True)}


@dataclass(frozen=True)
class Gradients:
    """The gradients of one backward pass, by layer or parameter, in the precision in which they were made."""

    loss: float
    maps: dict[str, Tensor]
    weights: dict[str, Tensor]

    @property
    def all_maps(self) -> Tensor:
        """Every value of the gradient maps, in float32."""
        return torch.cat([map_.flatten().float() for map_ in self.maps.values()])

    @property
    def all_weights(self) -> Tensor:
        """Every value of the weight gradients, in float32."""
        return torch.cat([gradient.flatten().float() for gradient in self.weights.values()])


def gradients(model: nn.Module, x: Tensor, y: Tensor, precision: str = "float32", scale: float = 1.0) -> Gradients:
    """Gradient maps of every layer's output and weight gradients, of the cross entropy times `scale`, on the CPU.

    The model's own gradients are left empty. Autocast keeps the loss and the weight gradients in float32; maps, and the
    products that weight gradients are made by, are in the precision asked for.

    Args:
        model: the network.
        x: its input, batch first.
        y: (N,) labels.
        precision: "float32", or "bfloat16"/"float16" for autocast with float32 weights.
        scale: what the loss is multiplied by before the backward pass.

    Raises:
        CourseError: an unknown precision.
    """
    require_one_of("precision", precision, PRECISIONS)
    maps: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: maps.__setitem__(name, gradient.detach().clone()))

    hooks = [
        layer.register_forward_hook(lambda _module, _inputs, output, name=name: keep(name, output))
        for name, layer in model.named_modules()
        if not list(layer.children())
    ]
    model.zero_grad(set_to_none=True)
    try:
        with autocast("cpu", precision):
            loss = nn.functional.cross_entropy(model(x), y)
        (loss * scale).backward()
        weights = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    finally:
        model.zero_grad(set_to_none=True)
        for hook in hooks:
            hook.remove()
    return Gradients(loss.item(), maps, weights)


def index_bytes(ledger: Ledger) -> int:
    """Bytes of pooling indices alive at the peak: whole numbers of 64 bits, in every precision."""
    return _alive_at_peak(ledger, "max_pool", "feature maps")


def copy_bytes(ledger: Ledger) -> int:
    """Bytes alive at the peak of the half copies that autocast makes of weights; 0 for a step in float32."""
    return _alive_at_peak(ledger, "_to_copy", "other")


def _alive_at_peak(ledger: Ledger, operator: str, role: str) -> int:
    """Bytes of the forward pass's storages of a role, made by an operator, that are no floating-point map of it."""
    tape, event = ledger.tape, ledger.peak_event
    made = np.array([op.startswith(operator) for op in tape.event_ops])[tape.birth]
    forward = tape.event_phase[tape.birth] == 0
    alive = (tape.birth <= event) & (event < tape.death)
    counted = made & forward & alive & (tape.role == ROLE[role])
    if role == "feature maps":
        counted &= ~tape.is_map
    return int((tape.fixed + tape.per_sample * ledger.batch)[counted].sum())


@dataclass(frozen=True)
class Halving:
    """A step traced in float32 and the same one with half maps, each at its own peak.

    Attributes:
        full: the step in float32.
        half: the same step under autocast.
    """

    full: Ledger
    half: Ledger

    @property
    def saved_bytes(self) -> int:
        """What the peak falls by; negative if it rises."""
        return self.full.peak_bytes - self.half.peak_bytes

    @property
    def saved(self) -> float:
        """The same as a share of the peak in float32."""
        return self.saved_bytes / self.full.peak_bytes

    def by_role(self) -> pd.DataFrame:
        """Bytes at either peak by role: columns float32, half, change.

        Pool indices have a row apart from the other feature maps, the half copies of weights one apart from "other".
        """
        columns = {}
        for column, ledger in (("float32", self.full), ("half", self.half)):
            parts = {str(role): int(count) for role, count in ledger.by_role().items()}
            indices, copies = index_bytes(ledger), copy_bytes(ledger)
            parts["feature maps"] -= indices
            parts["other"] -= copies
            columns[column] = {**parts, "pool indices": indices, "half copies of weights": copies}
        table = pd.DataFrame(columns)
        table.index.name = "role"
        return table.assign(change=table["half"] - table["float32"])


def speed_up(halving: Halving, device: Device | str, precision: str) -> float:
    """How many times as fast the model expects the step with half maps to be on a device.

    Raises:
        CourseError: no such device, or a precision that it does not compute in.
    """
    full = predict_step(halving.full, device).total_seconds
    return full / predict_step(halving.half, device, precision).total_seconds
