"""What the explorers of lessons 04 to 06 share: one network changed at one place, its skyline before and after.

A subclass makes its controls, says which `changes.Change` they stand for and what the change is called; the picture,
the factor promised and the factor got, and who owns the rest are the same for all. No arithmetic of its own; must never
import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from classroom.explorer import Explorer, View, described
from course_utils.figures import skyline
from course_utils.networks import NETWORKS, Network
from course_utils.units import format_bytes
from lessons.shared.changes import Change, stays

LARGEST_BATCH = 512


def times(factor: float) -> str:
    """A factor in words.

    >>> times(2.73), times(4.0), times(0.5), times(1.004)
    ('2.7 times smaller', '4 times smaller', '2 times larger', 'as large as before')
    """
    if abs(factor - 1) < 0.005:
        return "as large as before"
    way, size = ("smaller", factor) if factor > 1 else ("larger", 1 / factor)
    if size < 1.095:
        return f"{100 * (1 - 1 / factor if factor > 1 else 1 / factor - 1):.1f} % {way}"
    return f"{f'{size:.1f}'.removesuffix('.0')} times {way}"


def headline(change: Change, batch: int, what: str) -> str:
    """The finding: what the peak was, what it is."""
    old, new = change.peaks(batch)
    if old == new:
        return f"{what}: the peak stays at {format_bytes(new)}"
    way = "falls" if new < old else "rises"
    if format_bytes(old) == format_bytes(new):
        return f"{what}: the peak {way} by {format_bytes(abs(new - old))} from {format_bytes(old)}"
    return f"{what}: the peak {way} from {format_bytes(old)} to {format_bytes(new)}"


def the_rest(change: Change, batch: int, reach: bool = True) -> str:
    """Who owns what is left at the peak, and (if `reach`) how much the layers before the place keep."""
    ledger = change.after.at(batch)
    fixed, above = stays(ledger), change.above(batch) if reach else 0
    where = f"{ledger.peak_phase} pass" if ledger.peak_phase != "update" else "update"
    where += f", at {ledger.peak_layer}" if ledger.peak_layer else ""
    said = f"The peak is now in the {where}; {format_bytes(fixed)} of it are parameters, gradients and optimizer state."
    return f"{said} The layers before {change.layer} keep {format_bytes(above)}, as they did." if above else said


class ChangeExplorer(Explorer):
    """Controls for one change and the batch over two skylines, the one before as an outline."""

    def __init__(self, names: list[str], start: Mapping[str, Any]) -> None:
        self.network = described(widgets.Dropdown, "network", options=names, value=start["network"])
        most = max(LARGEST_BATCH, start["batch"])
        self.batch = described(widgets.IntSlider, "batch", value=start["batch"], min=1, max=most)

    @property
    def published(self) -> Network:
        """The network that is changed."""
        return NETWORKS[self.network.value]

    @property
    def change(self) -> Change:
        """What the controls ask for, traced at most once.

        Raises:
            CourseError: it cannot be made, or cannot be traced.
        """
        raise NotImplementedError

    @property
    def what(self) -> str:
        """The change in a few words, for the title."""
        raise NotImplementedError

    def said(self, change: Change, batch: int) -> list[str]:
        """The first two sentences: state, culprit."""
        raise NotImplementedError

    def way_out(self, change: Change, batch: int) -> tuple[str, dict[str, object]]:
        """The last sentence, and what it advises: settings with a lower peak, by the names of their controls."""
        raise NotImplementedError

    def view(self) -> View:
        """Both skylines and the sentences; the peak is watched."""
        change, batch = self.change, self.batch.value
        before, after = change.before.at(batch), change.after.at(batch)
        title = f"{self.published.name}, batch {batch:,}, {headline(change, batch, self.what)}"
        way_out, advised = self.way_out(change, batch)
        said = [*self.said(change, batch), way_out]
        return View(skyline(after, before=before, title=title), said, after.peak_bytes, advised=advised)
