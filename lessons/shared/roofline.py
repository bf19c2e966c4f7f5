"""The roofline: what a device can reach at most at each arithmetic intensity, and what layers reached under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_utils.figures.plane import Axis, Curve, Spot, plane
from course_utils.figures.scene import INK, Picture
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.hardware import Device
from course_utils.units import GB, CourseError


@dataclass(frozen=True)
class Reached:
    """What an operator or layer did: its name, operations, bytes read and written, the seconds it took (or would)."""

    name: str
    flops: float
    traffic: float
    seconds: float
    modelled: bool = False  # drawn hollow

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.traffic

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.flops / self.seconds


def roofline(device: Device, layers: Sequence[Reached], title: str = "", precision: str = "float32") -> Picture:
    """Both ceilings of a device over arithmetic intensity, the ridge between them named, and a point a layer.

    Left of the ridge bandwidth decides, right of it arithmetic. Ceilings are what the model expects of the device
    (`Device.reached_flops_per_s`), or what was measured.

    Args:
        device: whose ceilings.
        layers: what was measured; each needs operations, bytes and seconds above 0.
        title: the finding; by default how many layers stand on either side.
        precision: of the arithmetic.

    Raises:
        CourseError: a layer without operations, bytes or time: it has no place on a logarithmic axis.
    """
    for layer in layers:
        if min(layer.flops, layer.traffic, layer.seconds) <= 0:
            raise CourseError(f"roofline needs operations, bytes and seconds above 0, {layer.name!r} lacks one")
    top, ridge = device.reached_flops_per_s(precision) / 1e9, device.ridge(precision)
    at = [layer.intensity for layer in layers]
    low, high = min([ridge / 8, *at]) / 1.6, max([ridge * 8, *at]) * 1.6
    right = sum(layer.intensity > ridge for layer in layers)
    if not title and layers:
        name = device.name[0].upper() + device.name[1:]
        title = f"{name}: arithmetic limits {right} of {len(layers)} layers, bandwidth {len(layers) - right}"
    roof = [min(top, x * device.reached_bytes_per_s() / 1e9) for x in (low, ridge, high)]
    most = 2 * max([top, *(layer.rate / 1e9 for layer in layers)])
    colour = SERIES_COLOURS[1]
    return plane(
        Axis("arithmetic intensity, FLOP a byte", log=True, low=low, high=high),
        Axis(f"GFLOP/s; the slope is {_rate(device.reached_bytes_per_s() / GB)} GB/s", log=True, high=most),
        [Curve(f"{_rate(top)} GFLOP/s", [low, ridge, high], roof, INK, width=3.0)],
        [Spot(layer.name, layer.intensity, layer.rate / 1e9, colour, layer.modelled) for layer in layers],
        title,
        marks={f"ridge: {ridge:,.3g} FLOP a byte": ridge},
    )


def _rate(value: float) -> str:
    """With three significant digits, or whole from a thousand on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
