"""The course's pictures: readings in, `Picture` out. One colour per role everywhere, the finding as the title.

`skyline` is the signature figure; `bars`, `batch`, `plane` (curves and points over two axes), `plans` (memory against
time on it), `ranges` (sizes of numbers beside what formats hold), `positions` (of a kernel under a stride) and `bits`
(of one number) are in the same manner.
Each is laid out on a `scene.Scene`, with the colours and sizes of `style`. Must never import torch or ipywidgets.
"""

from course_utils.figures.bars import accountings, layer_bars, role_bars, side_by_side
from course_utils.figures.batch import batch_lines
from course_utils.figures.bits import bit_fields
from course_utils.figures.card_lanes import card_lanes
from course_utils.figures.cards import CardBar, cards
from course_utils.figures.efficiency import loss_by_efficiency
from course_utils.figures.layers import layer_changes
from course_utils.figures.plane import Axis, Curve, Spot, plane
from course_utils.figures.plans import plan_plane
from course_utils.figures.positions import kernel_positions
from course_utils.figures.ranges import Reach, magnitudes
from course_utils.figures.ring import ring_steps
from course_utils.figures.roofline import Reached, roofline
from course_utils.figures.scene import Picture
from course_utils.figures.schedule import describe_schedule, schedule_finding, schedule_lanes
from course_utils.figures.skyline import describe, finding, skyline
from course_utils.figures.style import ROLE_COLOURS

__all__ = [
    "ROLE_COLOURS", "Axis", "CardBar", "Curve", "Picture", "Reach", "Reached", "Spot", "accountings", "batch_lines",
    "bit_fields", "card_lanes", "cards", "describe", "describe_schedule", "finding", "kernel_positions", "layer_bars",
    "layer_changes", "loss_by_efficiency", "magnitudes", "plan_plane", "plane", "ring_steps", "role_bars",
    "roofline", "schedule_finding", "schedule_lanes", "side_by_side", "skyline",
]  # fmt: skip
