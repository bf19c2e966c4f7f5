"""How large the numbers of a tensor are, power of two by power of two, and what 16-bit formats hold of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from course_utils.figures.scene import FAINT, INK, PAPER, WIDTH, Area, Lines, Picture, Scene, Words, text_width
from course_utils.figures.style import ROLE_COLOURS, SIZE, write_title
from course_utils.units import CourseError

PLOT = 120.0  # pixels of a histogram's height
LINE = 34.0  # pixels between the lines of two formats
MOST_TICKS = 14


@dataclass(frozen=True)
class Reach:
    """The numbers of a format as powers of two: from its smallest, with all digits from `normal`, to its largest."""

    name: str
    smallest: int
    normal: int
    largest: int


FLOAT16 = Reach("float16", -24, -14, 15)
BFLOAT16 = Reach("bfloat16", -133, -126, 127)


def magnitudes(
    groups: Mapping[str, Mapping[int, int]],
    title: str = "",
    cut: Reach = FLOAT16,
    reaches: tuple[Reach, ...] = (FLOAT16, BFLOAT16),
) -> Picture:
    """Histograms of the sizes of numbers over one axis of powers of two, with the reach of formats under them.

    Args:
        groups: role ("gradient maps", "weight gradients") or another name -> k -> how many numbers lie from 2**k to
            2**(k + 1), as `lessons.half_precision.precision.powers` counts them.
        title: the finding.
        cut: numbers that this format turns into 0 are drawn hollow.
        reaches: formats to draw.

    Raises:
        CourseError: no groups, or one without numbers.
    """
    if not groups or not all(sum(group.values()) for group in groups.values()):
        raise CourseError("magnitudes needs groups with numbers other than 0")
    low = min(min(group) for group in groups.values())
    low, high = min(low, cut.smallest) - 2, max(cut.largest, *(max(group) for group in groups.values())) + 2
    left, right = 120.0, WIDTH - 24.0
    scene = Scene(WIDTH, 2000, _alternative(groups, title, cut))
    y = write_title(scene, title) + 12 if title else 16.0

    def x(power: float) -> float:
        return left + (min(max(power, low), high) - low) / (high - low) * (right - left)

    top = y
    for name, group in groups.items():
        y += PLOT
        scene.add(Words(12, y - PLOT + 20, name, SIZE, bold=True))
        colour, tallest = ROLE_COLOURS.get(name, "#0e6b51"), max(group.values())
        for power, count in group.items():
            roof = y - (PLOT - 32) * count / tallest
            bar = [(x(power), y), (x(power), roof), (x(power + 1) - 1, roof), (x(power + 1) - 1, y)]
            if power < cut.smallest - 1:
                scene.add(Area(bar, PAPER), Lines([[*bar, bar[0]]], colour, 1.4))
            else:
                scene.add(Area(bar, colour))
        scene.add(Lines([[(left, y), (right, y)]], FAINT))
        share = sum(count for power, count in group.items() if power < cut.smallest - 1) / sum(group.values())
        text = f"{100 * share:.1f} % become 0 in {cut.name}" if share else f"none becomes 0 in {cut.name}"
        end = max(x(cut.smallest - 1) - 10, 12 + text_width(name, SIZE, True) + 24 + text_width(text, SIZE))
        scene.add(Words(end, y - PLOT + 20, text, SIZE, "end"))
    edge = x(cut.smallest - 1)
    scene.add(Lines([[(edge, top + 30), (edge, y)]], INK, 1.6, dashed=True))
    every = next(step for step in (5, 10, 20, 50, 100, 200) if (high - low) / step <= MOST_TICKS)
    for power in range(-(-low // every) * every, high + 1, every):
        scene.add(Lines([[(x(power), y), (x(power), y + 5)]], FAINT))
        scene.place([Words(x(power), y + 22, _power(power), SIZE, "middle", fill=FAINT)])
    y += 46
    scene.add(Words((left + right) / 2, y, "size of a number, as a power of two", SIZE, "middle", fill=FAINT))
    y += 12
    for reach in reaches:
        y += LINE
        _draw_reach(scene, reach, x, y, low, high)
    scene.height = y + 22
    return Picture.from_scene(scene)


def _power(power: int) -> str:
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "2" + str(power).translate(digits)


def _draw_reach(scene: Scene, reach: Reach, x: Callable[[float], float], y: float, low: int, high: int) -> None:
    """A thick line where a format has all its digits, a thin one where it loses them, arrows where it goes on."""
    scene.add(Words(12, y + 0.35 * SIZE, reach.name, SIZE, bold=True))
    begin, normal, end = x(reach.smallest), x(reach.normal), x(reach.largest + 1)
    if normal > begin:
        scene.add(Area([(begin, y - 2), (normal, y - 2), (normal, y + 2), (begin, y + 2)], INK))
    scene.add(Area([(normal, y - 6), (end, y - 6), (end, y + 6), (normal, y + 6)], INK))
    for goes_on, edge, way in ((reach.smallest < low, begin, -1), (reach.largest + 1 > high, end, 1)):
        if goes_on:
            scene.add(Area([(edge, y - 11), (edge + way * 12, y), (edge, y + 11)], INK))
    if normal - begin > text_width("fewer digits", SIZE) + 6:
        scene.add(Words((begin + normal) / 2, y - 8, "fewer digits", SIZE, "middle"))
    lower = f"from {_power(reach.smallest)}" if reach.smallest < low else ""
    upper = f"to {_power(reach.largest + 1)}" if reach.largest + 1 > high else ""
    beyond = " ".join(part for part in (lower, upper) if part)
    if beyond:
        half = text_width(beyond, SIZE) / 2 + 8
        middle = (normal + end) / 2
        scene.add(
            Area(
                [(middle - half, y - 9), (middle + half, y - 9), (middle + half, y + 9), (middle - half, y + 9)], PAPER
            )
        )
        scene.add(Words(middle, y + 0.35 * SIZE, beyond, SIZE, "middle"))


def _alternative(groups: Mapping[str, Mapping[int, int]], title: str, cut: Reach) -> str:
    """The picture in words: for every group its extremes, where most numbers are, and the share that is lost."""
    said = []
    for name, group in groups.items():
        most, count = max(group, key=lambda power: group[power]), sum(group.values())
        lost = sum(n for power, n in group.items() if power < cut.smallest - 1)
        said.append(
            f"{name}: {count:,} numbers from 2^{min(group)} to 2^{max(group) + 1}, most at 2^{most}, "
            f"{100 * lost / count:.1f} % become 0 in {cut.name}"
        )
    head = f"{title}. " if title else ""
    return f"{head}How many numbers there are of each power of two. {'; '.join(said)}."
