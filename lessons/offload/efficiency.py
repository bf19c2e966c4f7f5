"""What offload costs against how fast the kernels are: the same copies beside shorter and shorter kernels."""

from __future__ import annotations

import pandas as pd

from course_utils.figures.plane import Axis, Curve, Spot, plane
from course_utils.figures.scene import Picture
from course_utils.figures.style import SERIES_COLOURS
from course_utils.machine.hardware import LINK_EFFICIENCY
from course_utils.units import CourseError

NAMES = {"all": "all, no limit", "dyn": "dyn, must fit", "conv": "conv, no limit"}


def loss_by_efficiency(
    table: pd.DataFrame,
    name: str,
    spots: tuple[Spot, ...] = (),
    marks: dict[str, float] | None = None,
    title: str | None = None,
) -> Picture:
    """Performance lost by each policy against the share of the card's peak that kernels reach.

    Only the search, "dyn", has to fit the card; the others show what the copies alone cost.

    Args:
        table: as `offload.published.sensitivity` returns it: efficiency, link, percent lost by policy.
        name: the network and batch, for the title.
        spots: published figures, as points.
        marks: named efficiencies, such as the one the model uses.
        title: the finding; computed if not given.

    Raises:
        CourseError: fewer than two efficiencies at the share of the link's rate that the course expects.
    """
    rows = table[table["link"] == LINK_EFFICIENCY].sort_values("efficiency")
    if len(rows) < 2:
        shares = ", ".join(f"{share:g}" for share in sorted(table["link"].unique()))
        raise CourseError(f"two efficiencies needed at a link's share of {LINK_EFFICIENCY:g}; the table has {shares}")
    efficiency = rows["efficiency"].tolist()
    ends = rows["all"].iloc[[0, -1]]
    faster = f"{name}: with kernels {efficiency[-1] / efficiency[0]:.1f} times as fast"
    cost = f"moving everything loses {ends.iloc[1]:.0f} % instead of {ends.iloc[0]:.0f} %"
    return plane(
        Axis(
            "share of the card's peak arithmetic that kernels reach; above 1, kernels that skip some of it",
            low=0.0,
            high=max(efficiency),
        ),
        Axis("performance lost, %"),
        [
            Curve(NAMES[policy], efficiency, rows[policy].round(1).tolist(), colour)
            for policy, colour in zip(NAMES, SERIES_COLOURS, strict=False)
        ],
        spots,
        title=title or f"{faster}, {cost}",
        marks=marks,
    )
