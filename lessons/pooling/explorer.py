"""Explorer of lesson 06: what stands where a pool stood, and what that adds and saves.

Its controls choose a `changes.pool` and a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets

from classroom.explorer import Page, described
from course_utils.networks import NETWORKS
from course_utils.units import CourseError, format_bytes, require_one_of, require_whole
from lessons.shared import changes
from lessons.shared.change_explorer import ChangeExplorer, headline, the_rest, times
from lessons.shared.changes import EVERY_POOL, POOL_KINDS, Change

NETWORK_NAMES = ("VGG-16", "AlexNet", "ResNet-50")
# A dropdown takes None for "nothing is chosen" and starts empty, so 0 stands for the published size.
SIZES = {"as published": 0, "2 × 2": 2, "3 × 3": 3, "4 × 4": 4}
POOL_PRECISIONS = ("float32", "float16")


class PoolExplorer(ChangeExplorer):
    """Network, place, what stands there, its size, precision, batch; made by `pool_explorer`."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        super().__init__(list(NETWORK_NAMES), start)
        dropdown = widgets.Dropdown
        self.place = described(dropdown, "place", options=self._places(), value=start["place"])
        self.kind = described(dropdown, "put there", options=POOL_KINDS, value=start["kind"])
        self.size = described(dropdown, "size", options=SIZES, value=start["size"] or 0)
        self.precision = described(dropdown, "precision", options=POOL_PRECISIONS, value=start["precision"])
        self.network.observe(self._offer_places, names="value")  # before the base observes, which draws
        moving = (self.network, self.place, self.kind, self.size, self.precision, self.batch)
        self.lay_out(
            [
                ("1fr 1fr 1fr", [self.network, self.place, self.precision]),
                ("1fr 1fr 1fr", [self.kind, self.size, self.batch]),
            ],
            {control.description: control for control in moving},
        )

    def _places(self) -> list[str]:
        names = changes.pools(self.published)
        return [*names, EVERY_POOL] if len(names) > 1 else names

    def _offer_places(self, _change: object) -> None:
        kept, places = self.place.value, self._places()
        with self.in_one_move():
            self.place.options = places
            self.place.value = kept if kept in places else places[0]

    def _made(self, kind: str, size: int) -> Change:
        return changes.pool(self.published, self.place.value, kind, size or None, self.precision.value)

    @property
    def change(self) -> Change:
        """The network before and after, traced at most once."""
        try:
            return self._made(self.kind.value, 0 if self.kind.value == "nothing" else self.size.value)
        except CourseError as error:
            if "fails in the forward pass" not in str(error):
                raise
            raise CourseError(
                f"{self.what}: nothing is left of the maps. Choose a smaller size, or one pool"
            ) from error

    @property
    def what(self) -> str:
        """What stands where."""
        size = "" if not self.size.value or self.kind.value == "nothing" else f" of {self.size.label}"
        return f"{self.kind.value}{size} in {self.place.value}"

    def said(self, change: Change, batch: int) -> list[str]:
        """Peak before and after; what the indices and what the maps do; who owns the rest, or a way out."""
        state = f"Batch {batch:,}, {self.precision.value}, {headline(change, batch, self.what)}."
        indices = [changes.index_bytes(step.at(batch)) for step in (change.before, change.after)]
        maps = change.added(batch) - (indices[1] - indices[0])
        old, new = change.peaks(batch)
        kept = f"Kept for the backward pass: maps {_more(maps)}, indices {_more(indices[1] - indices[0])}"
        culprit = f"{kept}; the peak is {times(old / new)}. {the_rest(change, batch, reach=False)}"
        return [state, culprit]

    def way_out(self, change: Change, batch: int) -> tuple[str, dict[str, object]]:
        """What the pool costs and saves; of a max pool whether an average pool does better."""
        peak, indices = change.after.at(batch).peak_bytes, changes.index_bytes(change.after.at(batch))
        if self.kind.value == "nothing":
            more = peak - change.peaks(batch)[0]
            if more <= 0:
                return "Without this pool the peak is no higher.", {}
            return f"Every map after it has its full size, and the peak is {format_bytes(more)} higher.", {}
        if not indices:
            added = change.parameters_added
            cost = f" It adds {added:,} parameters." if added > 0 else ""
            return f"No indices are left to save.{cost}", {}
        if self.kind.value == "max pool":
            kept = f"All pools together keep {format_bytes(indices)} of indices, 8 bytes each in any precision"
            average = self._made("average pool", self.size.value).after.at(batch).peak_bytes
            if average < peak:
                better = f"an average pool here would bring the peak to {format_bytes(average)}"
                return f"{kept}; {better}.", {"put there": "average pool"}
            return f"{kept}; an average pool here would not lower the peak.", {}
        return f"The other pools keep {format_bytes(indices)} of indices, 8 bytes each in any precision.", {}


def _more(count: int) -> str:
    """A change of bytes in words."""
    if not count:
        return "as before"
    return f"{format_bytes(abs(count))} {'more' if count > 0 else 'less'}"


def pool_explorer(
    network: str = "VGG-16",
    place: str = "pool1",
    kind: str = "average pool",
    size: int | None = None,
    precision: str = "float32",
    batch: int = 128,
) -> PoolExplorer:
    """What a pool adds and what it saves: something else in its place, the peak before and after.

    The first drawing of a combination traces it (tens to hundreds of milliseconds), moves of the batch do not.

    Args:
        network: "VGG-16", "AlexNet" or "ResNet-50".
        place: one of its pools, or "every pool".
        kind: "max pool", "average pool", "strided convolution" or "nothing".
        size: sides of its window, 2 to 4; as published if None.
        precision: "float32" or "float16", before and after alike.
        batch: samples in the batch to start with.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    require_one_of("network", network, NETWORK_NAMES)
    names = changes.pools(NETWORKS[network])
    places = [*names, EVERY_POOL] if len(names) > 1 else names
    for what, value, known in (
        ("place", place, places),
        ("kind", kind, POOL_KINDS),
        ("size", size, (None, *filter(None, SIZES.values()))),
        ("precision", precision, POOL_PRECISIONS),
    ):
        require_one_of(what, value, known)
    require_whole("batch", batch)
    start = {"network": network, "place": place, "kind": kind, "size": size, "precision": precision, "batch": batch}
    return PoolExplorer(start)


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    partial(pool_explorer, "VGG-16", "pool1"),
    {"network": ("AlexNet", "VGG-16"), "place": None, "put there": None, "size": None, "precision": None},
)
