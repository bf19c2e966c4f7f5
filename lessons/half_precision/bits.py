"""The bits of one number in several formats: sign, exponent, the leading one that is not stored, fraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from course_utils.figures.scene import FAINT, INK, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import SERIES_COLOURS, SIZE, text_on, write_title
from course_utils.units import CourseError

CELL, TALL = 22.0, 30.0  # pixels of one bit
FIELDS = ("sign", "exponent", "fraction")
COLOURS = dict(zip(FIELDS, SERIES_COLOURS[:3], strict=True))


class Stored(Protocol):
    """A number as a format stores it, such as a `precision.Bits`: three texts of zeros and ones."""

    @property
    def sign(self) -> str:
        """One bit."""

    @property
    def exponent(self) -> str:
        """Its bits, the highest first."""

    @property
    def fraction(self) -> str:
        """Its bits, the highest first."""

    @property
    def hidden(self) -> int:
        """The digit before the point."""

    @property
    def reading(self) -> str:
        """How the bits are read, on one line."""


def bit_fields(numbers: Mapping[str, Stored], title: str = "") -> Picture:
    """A row of bits for each format, in three colours, and under it how they are read.

    Args:
        numbers: name of a format -> the number as it stores it, in at most 32 bits.
        title: the finding.

    Raises:
        CourseError: nothing to draw, or more than 32 bits.
    """
    widest = max((len(n.sign + n.exponent + n.fraction) for n in numbers.values()), default=0)
    if not 1 <= widest <= 32:
        raise CourseError("bit_fields draws numbers of up to 32 bits")
    said = "; ".join(
        f"{name}: sign {n.sign}, exponent {n.exponent}, fraction {n.fraction}, {n.reading}"
        for name, n in numbers.items()
    )
    scene = Scene(WIDTH, 0, f"{title}. {said}." if title else f"{said}.")
    y = write_title(scene, title) + 14 if title else 14.0
    left = 12 + max(text_width(name, SIZE, True) for name in numbers) + 20
    for row, (name, number) in enumerate(numbers.items()):
        x, heads = left, y + SIZE
        scene.add(Words(12, heads + 10 + TALL / 2 + 0.35 * SIZE, name, SIZE, bold=True))
        for field in FIELDS:
            bits: str = getattr(number, field)
            if row == 0 or len(bits) > 1:
                head = f"{field}: {len(bits)} bits" if len(bits) > 1 else field
                scene.add(Words(x, heads, head, SIZE, fill=FAINT))
            if field == "fraction":
                _bit(scene, x - CELL - 6, heads + 10, str(number.hidden), "")
            for bit in bits:
                _bit(scene, x, heads + 10, bit, COLOURS[field])
                x += CELL
            x += 40 if field == "sign" else 2 * CELL if field == "exponent" else 0
        scene.add(Words(left, heads + 10 + TALL + 1.4 * SIZE, number.reading, SIZE))
        y = heads + 10 + TALL + 2.2 * SIZE + 12
    scene.add(Words(left, y + 8, "dashed: the digit before the point, which no format stores", SIZE, fill=FAINT))
    scene.height = y + 24
    return Picture.from_scene(scene)


def _bit(scene: Scene, x: float, y: float, bit: str, colour: str) -> None:
    box = [(x, y), (x + CELL, y), (x + CELL, y + TALL), (x, y + TALL)]
    if colour:
        scene.add(Area(box, colour))
    scene.add(Lines([[*box, box[0]]], INK if colour else FAINT, 1.0, dashed=not colour))
    ink = text_on(colour) if colour else INK
    scene.add(Words(x + CELL / 2, y + TALL / 2 + 0.35 * SIZE, bit, SIZE, "middle", fill=ink))
