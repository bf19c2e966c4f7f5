"""The course's pictures: readings in, `Picture` out. One colour per role everywhere, the finding as the title.

`skyline` is the signature figure; `bars`, `batch`, `layers` and `plane` (curves and points over two axes) are in the
same manner. A figure that one lesson alone draws is with the lesson. Each is laid out on a `scene.Scene`, with the
colours and sizes of `style`.
"""

from course_utils.figures.bars import accountings, layer_bars, role_bars, side_by_side
from course_utils.figures.batch import batch_lines
from course_utils.figures.layers import layer_changes
from course_utils.figures.plane import Axis, Curve, Spot, plane
from course_utils.figures.roofline import Reached, roofline
from course_utils.figures.scene import Picture
from course_utils.figures.schedule import describe_schedule, schedule_finding, schedule_lanes
from course_utils.figures.skyline import describe, finding, skyline
from course_utils.figures.style import ROLE_COLOURS

__all__ = [
    "ROLE_COLOURS", "Axis", "Curve", "Picture", "Reached", "Spot", "accountings", "batch_lines",
    "describe", "describe_schedule", "finding", "layer_bars",
    "layer_changes", "plane",
    "role_bars", "roofline", "schedule_finding", "schedule_lanes", "side_by_side", "skyline",
]  # fmt: skip
