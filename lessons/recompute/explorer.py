"""Explorer of lesson 10: what one extra forward pass buys, by where the chain is cut.

Its controls choose a network and a way to cut it (`recompute.Chain`), a batch and a device; the picture is a
`figures.skyline` over predicted time with the whole network kept as an outline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets
import torch

from classroom.explorer import Explorer, Page, View, described
from course_utils.figures import skyline
from course_utils.machine import hardware
from course_utils.machine.hardware import Device
from course_utils.machine.speed import StepTime, predict_step
from course_utils.networks import NETWORKS, Network
from course_utils.techniques.capacity import FITS, Batches, fit, largest_batch, spare_bytes
from course_utils.units import format_bytes, format_seconds, require_one_of
from lessons.shared.recompute import Chain, Segment, kept_and_again

BATCHES = (2, 8, 16, 32, 64, 128, 256, 512)
OFFERED = ("ResNet-50", "VGG-16", "GoogLeNet", "AlexNet", "52 M dense net")
NOTHING, EVERY, LOWEST, LEAST_TIME = "none: keep all", "every part", "lowest peak", "least time that fits"
EVEN = (2, 3, 4, 6, 8, 12)
RULES = (NOTHING, *(f"{count} even segments" for count in EVEN), EVERY, LOWEST, LEAST_TIME)
LOOKS = 6  # limits that the search for cuts that fit tries
SLIGHT = 0.005  # a change of less than half a percent is none


def segments_of(chain: Chain, rule: str, batch: int, device: Device) -> tuple[Segment, ...]:
    """The segments that a rule of RULES recomputes; more even segments than parts are as many as there are parts.

    Raises:
        CourseError: nothing fits the device.
    """
    parts = len(chain.names)
    if rule == NOTHING:
        return ()
    if rule == EVERY:
        return chain.evenly(parts)
    if rule == LOWEST:
        return chain.least_peak(batch, device)
    if rule == LEAST_TIME:
        return cheapest_that_fits(chain, batch, device)
    return chain.evenly(min(parts, int(rule.split()[0])))


def cheapest_that_fits(chain: Chain, batch: int, device: Device) -> tuple[Segment, ...]:
    """Cuts of little time that `fit` says fit: from the cheapest whose tensors go in, to the lowest peak.

    Where none of them fits surely, those of the lowest peak.

    Raises:
        CourseError: the tensors of no cuts go in.
    """
    lowest = chain.least_peak(batch, device)
    room, least = spare_bytes(device, 0), chain.step(lowest).at(batch).peak_bytes
    for look in range(LOOKS):
        cuts = chain.cheapest(batch, room - (room - least) * look / LOOKS, device)
        if fit(chain.step(cuts).at(batch), device).state == FITS:
            return cuts
    return lowest


def sentences(before: StepTime, after: StepTime, largest: tuple[Batches, Batches]) -> tuple[str, str, str]:
    """What recomputing does, in words: the peak, what it is made of, and the time.

    Args:
        before: the step with everything kept, on a device.
        after: the step with segments recomputed.
        largest: how far the device goes before and after.
    """
    device = after.device
    plain, ledger = before.ledger, after.ledger
    change = ledger.peak_bytes / plain.peak_bytes - 1
    if abs(change) < SLIGHT:
        compared = "the same as with everything kept"
    else:
        compared = f"{100 * abs(change):.0f} % {'less' if change < 0 else 'more'} than with everything kept"
    verdict = fit(ledger, device)
    state = (
        f"Batch {ledger.batch:,} on the {device.name}: peak {format_bytes(ledger.peak_bytes)}, {compared}. "
        f"{verdict.sentence}"
    )

    kept, again = kept_and_again(ledger)
    rest = ledger.peak_bytes - kept - again
    culprit = (
        f"At the peak, in {ledger.peak_layer}: {format_bytes(kept)} of maps kept since the forward pass, "
        f"{format_bytes(again)} computed again, {format_bytes(rest)} of weights, gradients and the rest."
    )
    share = after.total_seconds / before.total_seconds - 1
    repeated = after.recomputed_seconds / float(before.by_phase()["forward"])
    times = f"{format_seconds(after.total_seconds)} in place of {format_seconds(before.total_seconds)}"
    time = (
        f"Modelled on the {device.name}, {100 * repeated:.0f} % of the forward pass runs twice: {times}, "
        f"{100 * share:+.1f} %. "
        f"Cut like this, batches up to {largest[1].fits:,} fit, in place of {largest[0].fits:,}."
    )
    return state, culprit, time.replace("-", "−")


class RecomputeExplorer(Explorer):
    """Controls over a step with recomputation, its skyline over the plain one's outline; see `recompute_explorer`."""

    def __init__(self, networks: Mapping[str, Network], start: Mapping[str, Any]) -> None:
        self._networks = networks
        self._chains: dict[str, Chain] = {}
        dropdown = widgets.Dropdown
        cards = [item.name for item in hardware.devices()]
        self.network = described(dropdown, "network", options=list(networks), value=start["network"])
        self.rule = described(dropdown, "recompute", options=list(RULES), value=start["rule"])
        self.device = described(dropdown, "device", options=cards, value=start["device"])
        self.batch = described(widgets.SelectionSlider, "batch", options=list(BATCHES), value=start["batch"])
        moving = (self.network, self.rule, self.device, self.batch)
        self.lay_out(
            [("1fr 1fr 1fr", [self.network, self.rule, self.device]), ("1fr", [self.batch])],
            {control.description: control for control in moving},
        )

    @property
    def chain(self) -> Chain:
        """The network chosen; each way to recompute it is traced at most once."""
        name = self.network.value
        if name not in self._chains:
            network = self._networks[name]
            with torch.device("meta"):
                module = network.build()
            self._chains[name] = Chain(module, network.input_shape, network.classes, network.name)
        return self._chains[name]

    def view(self) -> View:
        """Skyline and sentences of the present settings; the peak is watched."""
        chain, batch, device = self.chain, self.batch.value, hardware.device(self.device.value)
        segments = segments_of(chain, self.rule.value, batch, device)
        plain, cut = chain.step(), chain.step(segments)
        before, after = (predict_step(step.at(batch), device) for step in (plain, cut))
        picture = skyline(
            after.ledger, device, before.ledger, _title(before, after, self.rule.value), device.name,
            before_name="all kept", time=after, before_time=before,
        )  # fmt: skip
        said = sentences(before, after, (largest_batch(plain, device), largest_batch(cut, device)))
        uncaused = [] if self.rule.value == LEAST_TIME else ["device"]
        return View(picture, said, after.ledger.peak_bytes, uncaused=uncaused)


def _title(before: StepTime, after: StepTime, rule: str) -> str:
    ledger = after.ledger
    head = f"{ledger.name}, batch {ledger.batch:,}, {rule}"
    if not after.recomputed_seconds and ledger.peak_bytes == before.ledger.peak_bytes:
        return f"{head}: {format_bytes(ledger.peak_bytes)}, nothing runs twice"
    share = 100 * (after.total_seconds / before.total_seconds - 1)
    saved = format_bytes(before.ledger.peak_bytes)
    return f"{head}: {format_bytes(ledger.peak_bytes)} in place of {saved}, for {share:.1f} % more time"


def recompute_explorer(
    network: str = "ResNet-50",
    batch: int = 64,
    rule: str = "4 even segments",
    device: str = "P100",
    networks: Mapping[str, Network] | None = None,
) -> RecomputeExplorer:
    """What one extra forward pass buys: controls for network, what is recomputed, device and batch.

    Every move redraws the skyline over predicted time, with the step that keeps everything as an outline. Each new way
    to cut a network is traced (a fraction of a second); other moves are not.

    Args:
        network: which of `networks` to start with.
        batch: samples in the batch to start with, one of BATCHES.
        rule: one of RULES.
        device: of the catalogue.
        networks: what the first control offers, by name; five of `NETWORKS` if not given.

    Raises:
        CourseError: a starting value that its control cannot take.
    """
    offered = {name: NETWORKS[name] for name in OFFERED} if networks is None else networks
    for what, value, known in (("network", network, offered), ("rule", rule, RULES), ("batch", batch, BATCHES)):
        require_one_of(what, value, known)
    start = {"network": network, "batch": batch, "rule": rule, "device": hardware.device(device).name}
    return RecomputeExplorer(offered, start)


# What a page without a kernel shows: all that *Try three things* asks.
PAGE = Page(
    recompute_explorer,
    {"network": ("ResNet-50", "VGG-16", "GoogLeNet", "52 M dense net"), "recompute": None, "batch": (16, 64, 256)},
)
