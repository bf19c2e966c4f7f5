"""The course's pictures: readings in, `Picture` out. One colour per role everywhere, the finding as the title.

`skyline` is the signature figure; `bars` and `plane` (curves and points over two axes) are in the same manner. A figure
that one lesson alone draws is with the lesson, one that several draw in `lessons/shared`. Each is laid out on a
`scene.Scene`, with the colours and sizes of `style`.
"""

from course_utils.figures.bars import side_by_side
from course_utils.figures.plane import Axis, Curve, Spot, plane
from course_utils.figures.scene import Picture
from course_utils.figures.skyline import describe, finding, skyline
from course_utils.figures.style import ROLE_COLOURS

__all__ = [
    "ROLE_COLOURS", "Axis", "Curve", "Picture", "Spot", "describe", "finding", "plane", "side_by_side", "skyline",
]  # fmt: skip
