"""The catalogue of devices and links, and the time an operator takes at least: the roofline.

Every value of `devices.csv`, `links.csv` (host to device) and `peers.csv` (card to card) carries its unit in the
column's name and rests on the publications its row names; a value nobody confirmed is an empty cell, and None here.
The device "this machine" is not in the catalogue: what measures it makes a `Device` of its rates.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from course_utils.machine.catalogue import Column, address, check_quote, number, one_of, read_rows, whole, yes
from course_utils.units import GB, GIB, CourseError, require_one_of

Float64 = npt.NDArray[np.float64]

# What kernels reach of a published peak. Chosen once, for every device, network and precision; never fitted to a row.
# Arithmetic: VGG-16, batch 16, forward with cuDNN 4: 495 GFLOP in 112.0 ms on the Maxwell Titan X of 6.6 TFLOP/s
# (cnn-benchmarks, 2016) are 0.67 of the peak, all layers together; that row is no test of the model.
ARITHMETIC_EFFICIENCY = 0.67
# Bandwidth: a copy within a Tesla K40 reaches 202.7 of 288 GB/s, 0.70 (Microway's bandwidthTest, error correction on);
# 0.75 allows for the cards without it.
BANDWIDTH_EFFICIENCY = 0.75
# What copies reach of a link's rate on paper, for every link: in use 0.63 (PCIe 3, to a K40), 0.75 (PCIe 2), 0.78 and
# 0.82 (NVLink 3 and 4) of it, by the sources of `links.csv` and `peers.csv`; a test holds it between these.
LINK_EFFICIENCY = 0.75
# What issuing one operator from Python costs on a GPU: the middle of the 5 to 15 µs usually given (indepth.dev, "GPU
# overhead: why our MNIST model trains faster on CPU"). Where this machine is measured its own figure is used instead.
LAUNCH_SECONDS = 10e-6
# What starting one copy between host and device costs, however small: about 10 µs (University of Virginia, "Memory
# Transfer Overhead", a GTX 280 on PCIe 2.0); 5 to 7 µs in 2026 (Wu et al., "DualPath", section 5.2).
COPY_SECONDS = 10e-6

PRECISIONS = ("float32", "bfloat16", "float16")
# PyTorch adds up halves in float32 too. Its convolutions ask cuDNN for that (aten/src/ATen/cudnn/Descriptors.h, "if
# (dataType == CUDNN_DATA_HALF) mathType = CUDNN_DATA_FLOAT"; pull request 668, "use pseudo-fp16 for convolutions"), its
# products cuBLAS ("The second to last argument is always CUDA_R_32F", issue 123157). Tensor cores do it. The plain
# float16 arithmetic of a P100, twice as fast as float32, does not, nor does a GTX 1080's, which is slower. (Issue 1539
# has LSTMs timed on a P100: in float16 they were no faster, mostly slower.)
THIS_MACHINE = "this machine"
DEVICES_FILE = Path(__file__).with_name("devices.csv")
LINKS_FILE = Path(__file__).with_name("links.csv")
PEERS_FILE = Path(__file__).with_name("peers.csv")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU as a program sees it, or this machine. For a card with two dies, every figure but the price is one die's.

    None stands for what nobody confirmed.
    """

    name: str  # as the course writes it
    year: int  # in which it was announced
    dies: int  # GPUs on the card; a program uses one unless it is written for more
    memory_gb: float  # as sold. Makers call 2**30 bytes a GB, so this is GiB
    usable_gb: float | None = None  # what programs can have, in GiB, where a source says that it is less
    bandwidth_gb_s: float  # of the device's own memory, in 10**9 bytes a second
    # Peak without tensor cores, in 10**12 operations a second; a multiply-add counts as two. TF32, which PyTorch allows
    # convolutions from Ampere on, is another, faster arithmetic and not in the catalogue.
    float32_tflops: float
    float32_clock: str = ""  # the clock of that peak, "base" or "boost", which explains most disagreements of sources
    # Of plain float16 arithmetic, whose sums are float16 too: PyTorch does not use it, so no time is predicted from it.
    float16_tflops: float | None = None
    # Dense peak of the tensor cores on float16 or bfloat16, sums kept in float32. Never the sparse rate, which counts
    # weights that are zero. Of a measured device, what a product of halves reached.
    tensor_tflops: float | None = None
    bfloat16: bool = False  # whether it computes in bfloat16
    pcie: int | None = None  # generation of its link
    launch_usd: float | None = None  # price at launch, of the whole card
    sources: str  # the publications the values are from
    address: str = ""  # where one of them is read; "" where no address is known
    quote: str = ""  # what it says there, word for word; … stands for what is left out
    derived: str = ""  # values computed from others, and how
    remarks: str = ""  # other versions, and what sources disagree on
    measured: bool = False  # whether the rates are what was measured, not published peaks
    launch_seconds: float = LAUNCH_SECONDS  # what issuing one operator costs
    architecture: str = ""  # of the chip, such as "Ampere"; empty for what is measured here

    @property
    def memory_bytes(self) -> int:
        """Bytes a program can have at most; the context and the libraries still come off."""
        return int((self.usable_gb or self.memory_gb) * GIB)

    @property
    def link(self) -> Link | None:
        """The link to the host; None if its generation is not confirmed."""
        return None if self.pcie is None else next(item for item in links() if item.generation == self.pcie)

    def flops_per_s(self, precision: str = "float32") -> float:
        """Peak operations a second of PyTorch's convolutions and products, which add up in float32.

        Without tensor cores halves are computed at float32's rate, only stored smaller. Raises CourseError for an
        unknown precision, or bfloat16 on a device that does not compute in it.
        """
        require_one_of("precision", precision, PRECISIONS)
        if precision == "bfloat16" and not self.bfloat16:
            raise CourseError(f"{self.name} does not compute in bfloat16: choose float16 or float32")
        if precision == "float32":
            return self.float32_tflops * 1e12
        return (self.tensor_tflops or self.float32_tflops) * 1e12

    def reached_flops_per_s(self, precision: str = "float32") -> float:
        """Operations a second the model expects: the published peak times ARITHMETIC_EFFICIENCY, or as measured."""
        return self.flops_per_s(precision) * (1.0 if self.measured else ARITHMETIC_EFFICIENCY)

    def reached_bytes_per_s(self) -> float:
        """Bytes a second the model expects: the published bandwidth times BANDWIDTH_EFFICIENCY, or as measured."""
        return self.bandwidth_gb_s * GB * (1.0 if self.measured else BANDWIDTH_EFFICIENCY)

    def ridge(self, precision: str = "float32") -> float:
        """Operations a byte at which both ceilings take as long: below it bandwidth decides, above it arithmetic."""
        return self.reached_flops_per_s(precision) / self.reached_bytes_per_s()


@dataclass(frozen=True)
class Link:
    """The way between host and device, or from card to card: rates one way in GB/s, 10**9 bytes a second."""

    name: str  # as the course writes it
    generation: int  # of its standard
    nominal_gb_s: float  # on paper
    practical_gb_s: float | None  # measured in use; None where nobody confirmed any. No prediction takes it
    sources: str  # where both are from
    derived: str = ""  # how a figure was computed, where no source says it
    address: str = ""  # where one source is read; "" where no address is known
    quote: str = ""  # what it says there, word for word

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second the model expects: the rate on paper times LINK_EFFICIENCY, alike for every link."""
        return self.nominal_gb_s * GB * LINK_EFFICIENCY


@overload
def roofline_seconds(flops: float, traffic: float, device: Device, precision: str = ...) -> float: ...
@overload
def roofline_seconds(
    flops: npt.NDArray[Any], traffic: npt.NDArray[Any], device: Device, precision: str = ...
) -> Float64: ...
def roofline_seconds(flops: Any, traffic: Any, device: Device, precision: str = "float32") -> Any:
    """Seconds an operator takes at least: its arithmetic or its traffic, whichever takes longer.

    max(flops / (peak · efficiency), traffic / (bandwidth · efficiency)), after Williams, Waterman and Patterson,
    "Roofline" (2009). Launching it comes on top.

    Args:
        flops: operations, a multiply-add counting as two; a number or an array.
        traffic: bytes read and written; a number or an array of the same shape.
        device: whose rates.
        precision: "float32", "bfloat16" or "float16": of the arithmetic; the traffic is given in bytes.

    Raises:
        CourseError: a negative number of operations or bytes, or a precision the device does not have.
    """
    if np.any(np.asarray(flops) < 0) or np.any(np.asarray(traffic) < 0):
        raise CourseError("operations and bytes must be 0 or more")
    seconds = np.maximum(
        np.asarray(flops) / device.reached_flops_per_s(precision), np.asarray(traffic) / device.reached_bytes_per_s()
    )
    return float(seconds) if seconds.ndim == 0 else seconds


# -- The catalogue -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def devices() -> tuple[Device, ...]:
    """The catalogue, oldest first. Raises CourseError for a faulty `devices.csv` or `links.csv`, as `load_devices`."""
    return load_devices(DEVICES_FILE)


@lru_cache(maxsize=1)
def links() -> tuple[Link, ...]:
    """The links between host and device, slowest first."""
    return load_links(LINKS_FILE)


@lru_cache(maxsize=1)
def peers() -> tuple[Link, ...]:
    """The ways from card to card, slowest first: a network between machines, the host's PCIe, NVLink."""
    return tuple(sorted((*links(), *load_links(PEERS_FILE)), key=lambda item: item.bytes_per_s))


def device(name: str) -> Device:
    """One device by name; upper and lower case do not matter. Raises CourseError, which suggests the nearest name."""
    return _by_name(name, devices(), "device")


def link(name: str) -> Link:
    """One link by name, such as "PCIe 3.0 x16" or "NVLink 3". Raises CourseError, which suggests the nearest name."""
    return _by_name(name, peers(), "link")


DEVICE_COLUMNS = {
    "name": Column(str),
    "year": Column(whole),
    "architecture": Column(str),
    "dies": Column(whole),
    "memory_gb": Column(number),
    "usable_gb": Column(number, None),
    "bandwidth_gb_s": Column(number),
    "float32_tflops": Column(number),
    "float32_clock": Column(one_of("base", "boost")),
    "float16_tflops": Column(number, None),
    "tensor_tflops": Column(number, None),
    "tensor_kind": Column(str, ""),
    "bfloat16": Column(yes),
    "pcie": Column(whole, None),
    "launch_usd": Column(number, None),
    "sources": Column(str),
    "address": Column(address, ""),
    "quote": Column(str, ""),
    "derived": Column(str, ""),
    "remarks": Column(str, ""),
}
LINK_COLUMNS = {
    "name": Column(str),
    "generation": Column(whole),
    "nominal_gb_s": Column(number),
    "practical_gb_s": Column(number, None),
    "sources": Column(str),
    "address": Column(address, ""),
    "quote": Column(str, ""),
    "derived": Column(str, ""),
}

Named = TypeVar("Named", Device, Link)


def _by_name(name: str, catalogue: tuple[Named, ...], kind: str) -> Named:
    if name.casefold() == THIS_MACHINE:
        raise CourseError(f"{THIS_MACHINE} is not in the catalogue: measure its rates, as lesson 01 does, for a Device")
    known = {item.name.casefold(): item for item in catalogue}
    if name.casefold() in known:
        return known[name.casefold()]
    near = [key for key in known if name.casefold() in key] if name else []
    near = near or difflib.get_close_matches(name.casefold(), known, n=2, cutoff=0.5)
    names = " or ".join(known[key].name for key in near)
    hint = f"did you mean {names}?" if near else f"known are {', '.join(item.name for item in catalogue)}"
    raise CourseError(f"no {kind} called {name!r}: {hint}")


def load_devices(path: Path) -> tuple[Device, ...]:
    """Devices from a file of the form of `devices.csv`, every cell checked.

    Raises CourseError, naming file, line and column of the first fault.
    """
    found = []
    for row in read_rows(path, DEVICE_COLUMNS):
        kind = row.pop("tensor_kind")
        tensor = row["tensor_tflops"]
        if "sparse" in kind:
            row.fault("tensor_kind", "sparse rates count weights that are zero: give the dense rate")
        if kind != ("dense" if tensor else ""):
            row.fault("tensor_kind", 'must be "dense" where tensor_tflops is given, and empty elsewhere')
        if tensor is not None and tensor < row["float32_tflops"]:
            row.fault("tensor_tflops", "is below float32_tflops: tensor cores are not slower than ordinary ones")
        if row["usable_gb"] is not None and row["usable_gb"] > row["memory_gb"]:
            row.fault("usable_gb", "is above memory_gb: no program can have more than the card carries")
        if row["pcie"] is not None and row["pcie"] not in {item.generation for item in links()}:
            row.fault("pcie", f"generation {row['pcie']} is not in {LINKS_FILE.name}")
        check_quote(row, ("bandwidth_gb_s", "float32_tflops", "tensor_tflops", "launch_usd"))
        found.append(Device(**row))
    return tuple(found)


def load_links(path: Path) -> tuple[Link, ...]:
    """Links from a file of the form of `links.csv`, every cell checked. Raises CourseError as `load_devices`."""
    found = []
    for row in read_rows(path, LINK_COLUMNS):
        if row["practical_gb_s"] is not None and row["practical_gb_s"] > row["nominal_gb_s"]:
            row.fault("practical_gb_s", "is above nominal_gb_s: no link is faster in use than on paper")
        check_quote(row, ("nominal_gb_s", "practical_gb_s"))
        found.append(Link(**row))
    return tuple(found)
