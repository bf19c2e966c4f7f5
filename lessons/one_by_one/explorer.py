"""Explorer of lesson 05: where to squeeze, to how many channels, and for how long.

Its controls choose a `changes.squeeze` and a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets

from classroom.explorer import Page, described
from course_utils.units import format_bytes, require_one_of, require_whole
from lessons.shared import changes
from lessons.shared.change_explorer import ChangeExplorer, headline, the_rest
from lessons.shared.changes import Change

# Every convolution but the first, which reads the image, and the last two, after which nothing could widen again.
SQUEEZED = {
    "VGG-16": tuple(f"conv{g}_{i}" for g, n in enumerate((2, 2, 3, 3, 3), 1) for i in range(1, n + 1))[1:-2],
    "AlexNet": ("conv2", "conv3"),
}
CHANNELS = (4, 8, 16, 32, 48, 64, 96, 128, 256)
NARROW = {"none: widens at once": 0, "one layer": 1, "two layers": 2}


class SqueezeExplorer(ChangeExplorer):
    """Network, layer, channels, how many layers stay narrow, batch; made by `squeeze_explorer`."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        super().__init__(list(SQUEEZED), start)
        dropdown, layers = widgets.Dropdown, SQUEEZED[start["network"]]
        self.layer = described(dropdown, "1×1 before", options=layers, value=start["layer"])
        self.channels = described(dropdown, "channels", options=CHANNELS, value=start["channels"])
        self.narrow = described(dropdown, "stay narrow", options=NARROW, value=start["narrow"])
        self.network.observe(self._offer_layers, names="value")  # before the base observes, which draws
        self.lay_out(
            [("1fr 1fr 1fr 1fr", [self.network, self.layer, self.channels, self.narrow]), ("1fr", [self.batch])],
            {one.description: one for one in (self.network, self.layer, self.channels, self.narrow, self.batch)},
        )

    def _offer_layers(self, _change: object) -> None:
        kept, layers = self.layer.value, SQUEEZED[self.network.value]
        with self.in_one_move():
            self.layer.options = layers
            self.layer.value = kept if kept in layers else layers[0]

    @property
    def change(self) -> Change:
        """The network before and after, traced at most once."""
        return changes.squeeze(self.published, self.layer.value, self.channels.value, self.narrow.value)

    @property
    def what(self) -> str:
        """The squeeze in a few words."""
        stays = ("widens at once", "one layer narrow", "two layers narrow")[self.narrow.value]
        return f"1×1 to {self.channels.value} channels before {self.layer.value}, {stays}"

    def said(self, change: Change, batch: int) -> list[str]:
        """Peak, weights and operations before and after; what is added and saved; what would help."""
        added, weights, (old, new) = change.added(batch), change.parameters_added, change.flops
        state = f"Batch {batch:,}, {headline(change, batch, self.what)}."
        kept = f"{format_bytes(abs(added))} of maps {_way(added)}" if added else "as many bytes of maps"
        work = f"{100 * abs(new / old - 1):.1f} % of arithmetic {_way(new - old)}"
        costs = f"{abs(weights):,} parameters {_way(weights)}, {work}"
        culprit = f"Kept: {kept}; {costs}. {the_rest(change, batch)}"
        return [state, culprit]

    def way_out(self, change: Change, batch: int) -> tuple[str, dict[str, object]]:
        """Which of two moves brings the peak lower: one layer more that stays narrow, or fewer channels."""
        here = change.after.at(batch).peak_bytes
        fewer = [count for count in CHANNELS if count < self.channels.value]
        moves: list[tuple[str, str, int]] = []
        if self.narrow.value < max(NARROW.values()):
            moves.append(("With one layer more that stays narrow", "stay narrow", self.narrow.value + 1))
        if fewer:
            moves.append((f"With {fewer[-1]} channels", "channels", fewer[-1]))
        found = {}
        for words, control, value in moves:
            setting = {"channels": self.channels.value, "stay narrow": self.narrow.value, control: value}
            there = changes.squeeze(self.published, self.layer.value, setting["channels"], setting["stay narrow"])
            found[words, control, value] = there.after.at(batch).peak_bytes
        if found and min(found.values()) < here:
            words, control, value = min(found, key=lambda move: found[move])
            return f"{words} the peak is {format_bytes(found[words, control, value])}.", {control: value}
        tried = " and ".join(f"{words[0].lower()}{words[1:]}" for words, *_ in found)
        return f"Tried {tried}: no lower." if tried else "Nothing narrower can be set here.", {}


def _way(difference: float) -> str:
    return "more" if difference > 0 else "less"


def squeeze_explorer(
    network: str = "VGG-16", layer: str = "conv2_1", channels: int = 32, narrow: int = 0, batch: int = 128
) -> SqueezeExplorer:
    """Where to squeeze and to how many channels: memory, weights and operations before and after.

    The first drawing of a combination traces it (tens to hundreds of milliseconds), moves of the batch do not.

    Args:
        network: "VGG-16" or "AlexNet".
        layer: the convolution that the 1×1 convolution stands in front of.
        channels: of its output.
        narrow: how many convolutions keep that number of channels before one widens again, 0 to 2.
        batch: samples in the batch to start with.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    require_one_of("network", network, SQUEEZED)
    for what, value, known in (
        ("layer", layer, SQUEEZED[network]), ("channels", channels, CHANNELS), ("narrow", narrow, (0, 1, 2)),
    ):  # fmt: skip
        require_one_of(what, value, known)
    require_whole("batch", batch)
    start = {"network": network, "layer": layer, "channels": channels, "narrow": narrow, "batch": batch}
    return SqueezeExplorer(start)


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    partial(squeeze_explorer, "VGG-16", "conv1_2", 32, 1),
    {"1×1 before": None, "channels": None, "stay narrow": None},
)
