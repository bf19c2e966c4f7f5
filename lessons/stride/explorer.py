"""Explorer of lesson 04: which layer gets the stride, and what becomes of the factor s² at the peak.

Its controls choose a `changes.stride` and a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets

from classroom.explorer import Page, described
from course_utils.units import CourseError, format_bytes, require_one_of, require_whole
from lessons.shared import changes
from lessons.shared.change_explorer import ChangeExplorer, headline, the_rest, times
from lessons.shared.changes import Change

LAYERS = {
    "VGG-16": tuple(f"conv{g}_{i}" for g, count in enumerate((2, 2, 3, 3, 3), start=1) for i in range(1, count + 1)),
    "AlexNet": ("conv1", "conv2", "conv3", "conv4", "conv5"),
    "ResNet-50": ("conv1", "conv2_1", "conv3_1", "conv4_1", "conv5_1"),
}
STRIDES = (1, 2, 3, 4)
DROPS = {"stays": False, "is left out": True}


class StrideExplorer(ChangeExplorer):
    """Network, layer, stride, what becomes of the next pool, batch; made by `stride_explorer`."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        super().__init__(list(LAYERS), start)
        dropdown, layers = widgets.Dropdown, LAYERS[start["network"]]
        self.layer = described(dropdown, "layer", options=layers, value=start["layer"])
        self.stride = described(dropdown, "stride", options=STRIDES, value=start["stride"])
        self.pool = described(dropdown, "next pool", options=DROPS, value=start["drop_pool"])
        self.network.observe(self._offer_layers, names="value")  # before the base observes, which draws
        self.lay_out(
            [("1fr 1fr 1fr 1fr", [self.network, self.layer, self.stride, self.pool]), ("1fr", [self.batch])],
            {one.description: one for one in (self.network, self.layer, self.stride, self.pool, self.batch)},
        )

    def _offer_layers(self, _change: object) -> None:
        kept, layers = self.layer.value, LAYERS[self.network.value]
        with self.in_one_move():
            self.layer.options = layers
            self.layer.value = kept if kept in layers else layers[0]

    @property
    def _dropped(self) -> str | None:
        return changes.next_pool(self.published, self.layer.value) if self.pool.value else None

    @property
    def change(self) -> Change:
        """The network before and after, traced at most once."""
        return changes.stride(self.published, self.layer.value, self.stride.value, self.pool.value)

    @property
    def what(self) -> str:
        """The layer with its stride."""
        without = f", no {self._dropped}" if self._dropped else ""
        return f"{self.layer.value} at stride {self.stride.value}{without}"

    def said(self, change: Change, batch: int) -> list[str]:
        """Promised and got, who owns the rest, and which place would reach further."""
        old, new = change.peaks(batch)
        wide, narrow = change.output_values
        state = f"Batch {batch:,}, {headline(change, batch, self.what)}."
        promise = f"The output of {change.layer} is {times(wide / narrow)}, the peak is {times(old / new)}."
        return [state, f"{promise} {the_rest(change, batch)}"]

    def way_out(self, change: Change, batch: int) -> tuple[str, dict[str, object]]:
        """Whether this stride in the first layer, which reaches all maps, does better."""
        first = LAYERS[self.network.value][0]
        wide, narrow = change.output_values
        if wide == narrow and not self._dropped:
            return f"This is the stride that {self.network.value} has as published: choose another.", {}
        if change.layer == first:
            left = format_bytes(change.after.at(batch).peak_bytes - changes.stays(change.after.at(batch)))
            return f"What is left at the peak beside weights, gradients and optimizer state is {left}.", {}
        there = changes.stride(self.published, first, self.stride.value, self.pool.value).after.at(batch).peak_bytes
        if there < change.after.at(batch).peak_bytes:
            return f"The same stride in {first}, the first layer, brings {format_bytes(there)}.", {"layer": first}
        instead = f"With stride {self.stride.value} in {first}, the first layer, the peak would be"
        verdict = "more than as published" if there > change.before.at(batch).peak_bytes else "no less"
        return f"{instead} {format_bytes(there)}: {verdict}.", {}


def stride_explorer(
    network: str = "VGG-16", layer: str = "conv1_1", stride: int = 2, drop_pool: bool = False, batch: int = 128
) -> StrideExplorer:
    """Which layer gets the stride: the peak before and after, against the factor s² of the layer's own output.

    The first drawing of a combination traces it (tens to hundreds of milliseconds), moves of the batch do not.

    Args:
        network: "VGG-16", "AlexNet" or "ResNet-50".
        layer: the convolution, or in ResNet-50 the block, that gets the stride in place of its own.
        stride: 1 to 4.
        drop_pool: leave out the first pool after it, as networks do that stride instead of pooling.
        batch: samples in the batch to start with.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    require_one_of("network", network, LAYERS)
    if layer not in LAYERS[network]:
        raise CourseError(f"unknown layer {layer!r} of {network}: choose one of {', '.join(LAYERS[network])}")
    if stride not in STRIDES:
        raise CourseError(f"stride must be 1, 2, 3 or 4, got {stride!r}")
    require_whole("batch", batch)
    start = {"network": network, "layer": layer, "stride": stride, "drop_pool": bool(drop_pool), "batch": batch}
    return StrideExplorer(start)


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    partial(stride_explorer, "AlexNet", "conv3", 2),
    {"network": None, "layer": None, "stride": None, "next pool": None},
)
