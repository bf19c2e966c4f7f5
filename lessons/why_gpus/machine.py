"""Two chips, their memories and the link between them, drawn to scale.

One square is one lane, the width of a band is a rate, the area of a block of memory is its size; the clocks, which
differ too, stand in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words
from course_utils.figures.style import SERIES_COLOURS, SIZE, text_on, write_title
from course_utils.machine.hardware import ARITHMETIC_EFFICIENCY, Device, Link
from course_utils.units import GB
from lessons.shared.reference_cpu import REFERENCE_CPU

PITCH, BETWEEN = 4.8, 1.2  # pixels: from one lane to the next, and the gap between two
GAP = 8.0  # pixels between two units
UNIT_COLUMNS = 16  # lanes in a row of a unit
BAND = 0.25  # pixels of a band's width for each GB/s
MEMORY = 620.0  # square pixels of a GiB
MEMORY_HEIGHT, PIPE = 108.0, 62.0  # pixels
CENTRES = (215.0, 700.0)  # x of the two chips


@dataclass(frozen=True)
class Layout:
    """How a chip's arithmetic is laid out.

    Attributes:
        unit: what it calls a part that runs programs on its own: a "core", or an "SM" (streaming multiprocessor).
        units: how many of them.
        lanes: float32 multiply-adds one of them begins in each clock cycle.
        threads: one of them holds at once; which of these runs may change with every cycle.
        gigahertz: of the clock that the chip's published peak is at.
        sources: where the figures are from.
    """

    unit: str
    units: int
    lanes: int
    threads: int
    gigahertz: float
    sources: str

    @property
    def peak_tflops(self) -> float:
        """10**12 operations a second if every lane begins a multiply-add, two operations, in every cycle."""
        return self.units * self.lanes * 2 * self.gigahertz / 1e3


# Of the two devices that lesson 01 compares. The Xeon's lanes: two units of 8 in each core, as its 32 operations a
# cycle say; its threads: hyper-threading.
LAYOUTS = {
    REFERENCE_CPU.name: Layout("core", 16, 16, 2, 2.4, "Intel Xeon E5-2630 v3, two of them"),
    "Titan X (Maxwell)": Layout(
        "SM", 24, 128, 2048, 1.075, "HotHardware; ocaholic; threads: CUDA C++ Programming Guide, capability 5.2"
    ),
}

# The same Xeons at the share of their peak that the course expects of every card. With `REFERENCE_CPU`, whose rate is
# what Torch's kernels of 2016 reached, a comparison of chips would be one of libraries.
XEONS = replace(REFERENCE_CPU, float32_tflops=LAYOUTS[REFERENCE_CPU.name].peak_tflops * ARITHMETIC_EFFICIENCY)


def machine(chips: Sequence[tuple[Device, Layout]], link: Link, title: str = "") -> Picture:
    """A host and a card beside each other: lanes counted, rates as widths, memories as areas, all to one scale.

    Args:
        chips: two devices with how they are laid out, the host first. Rates are those the course expects in use.
        link: between them.
        title: the finding.
    """
    said = [_words(device, layout) for device, layout in chips]
    alt = "; ".join(f"{head}: {', '.join(lines)}" for head, lines in said)
    scene = Scene(WIDTH, 0, f"{title}. {alt}; {link.name} between their memories: {_rate(link.bytes_per_s)}.")
    top = (write_title(scene, title) if title else 4.0) + 22
    tall = max(_size(layout)[1] for _, layout in chips)
    words = 1.35 * SIZE * max(len(lines) for _, lines in said)
    base = top + words + tall + 14  # y of the chips' lower edge
    floor = base + PIPE  # y of the memories' upper edge
    ends = []
    for (device, layout), (head, lines), centre, colour in zip(chips, said, CENTRES, SERIES_COLOURS, strict=False):
        wide, high = _size(layout)
        y = base - high - 12 - 1.35 * SIZE * len(lines)
        scene.add(Words(centre, y, head, SIZE, "middle", bold=True))
        for line in lines[:-1]:
            y += 1.35 * SIZE
            scene.add(Words(centre, y, line, SIZE, "middle"))
        _lanes(scene, layout, centre - wide / 2, base - high, colour)
        band = BAND * device.reached_bytes_per_s() / GB
        scene.add(Area(_box(centre - band / 2, base + 4, centre + band / 2, floor), colour))
        rate = f"{_rate(device.reached_bytes_per_s())} in use"
        scene.add(Words(centre + band / 2 + 10, (base + floor) / 2 + 6, rate, SIZE))
        half = MEMORY * device.memory_gb / MEMORY_HEIGHT / 2
        scene.add(Area(_box(centre - half, floor, centre + half, floor + MEMORY_HEIGHT), colour))
        size = f"{device.memory_gb:g} GiB"
        middle = floor + MEMORY_HEIGHT / 2 + 0.35 * SIZE
        scene.add(Words(centre, middle, size, SIZE, "middle", bold=True, fill=text_on(colour)))
        ends.append((centre - half, centre + half))
    middle = floor + MEMORY_HEIGHT / 2
    width = BAND * link.bytes_per_s / GB
    (_, start), (end, _) = ends
    scene.add(Area(_box(start, middle - width / 2, end, middle + width / 2), INK))
    scene.add(Words((start + end) / 2, middle - 10, link.name, SIZE, "middle", bold=True))
    scene.add(Words((start + end) / 2, middle + 24, f"{_rate(link.bytes_per_s)} in use", SIZE, "middle"))
    bottom = floor + MEMORY_HEIGHT + 26
    key = "one square: one lane · width of a band: bytes a second · area of a memory: its size"
    scene.add(Words(WIDTH / 2, bottom, key, SIZE, "middle", fill=FAINT))
    scene.height = bottom + 14
    return Picture.from_scene(scene)


def _words(device: Device, layout: Layout) -> tuple[str, list[str]]:
    """A chip's name, and what there is to say of it; the last line goes to the alternative text alone."""
    return f"{device.name}, {device.year}", [
        f"{layout.units} {layout.unit}s × {layout.lanes} lanes = {layout.units * layout.lanes:,} lanes",
        f"{layout.gigahertz:g} GHz, {layout.peak_tflops:.1f} TFLOP/s at that clock",
        f"{layout.threads:,} threads in each {layout.unit}",
        f"{device.memory_gb:g} GiB of memory at {_rate(device.reached_bytes_per_s())} in use",
    ]


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / GB:.3g} GB/s"


def _grid(units: int) -> tuple[int, int]:
    """Columns and rows in which units stand, not wider than four."""
    columns = min(4, units)
    return columns, math.ceil(units / columns)


def _unit(layout: Layout) -> tuple[float, float]:
    """Pixels of one unit."""
    columns = min(UNIT_COLUMNS, layout.lanes)
    return columns * PITCH, math.ceil(layout.lanes / columns) * PITCH


def _size(layout: Layout) -> tuple[float, float]:
    """Pixels of a chip."""
    (wide, high), (columns, rows) = _unit(layout), _grid(layout.units)
    return columns * (wide + GAP) - GAP, rows * (high + GAP) - GAP


def _lanes(scene: Scene, layout: Layout, left: float, top: float, colour: str) -> None:
    """A block for every unit, cut into its lanes."""
    (wide, high), (columns, _) = _unit(layout), _grid(layout.units)
    cuts = []
    for unit in range(layout.units):
        x, y = left + unit % columns * (wide + GAP), top + unit // columns * (high + GAP)
        scene.add(Area(_box(x, y, x + wide, y + high), colour))
        cuts += [[(x + i * PITCH, y), (x + i * PITCH, y + high)] for i in range(1, round(wide / PITCH))]
        cuts += [[(x, y + i * PITCH), (x + wide, y + i * PITCH)] for i in range(1, round(high / PITCH))]
    scene.add(Lines(cuts, PAPER, BETWEEN))


def _box(left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]
