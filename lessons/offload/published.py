"""The published figures of offload beside the model: what it gets right, what it misses, and by how much.

Rhu et al., "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design" (MICRO-49,
2016; the figures of the final abstract and its list of contributions), and Rhu et al., "Compressing DMA engine" (2017).
Nothing is fitted to a row: the constants are those of `course_utils.machine.hardware` and
`course_utils.techniques.offload.work`, and the rows they are from are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from course_utils.machine import hardware
from course_utils.machine.hardware import Device, Link
from course_utils.memory import StepTrace
from course_utils.techniques.offload.schedule import Schedule
from course_utils.units import GB, GIB
from lessons.offload.frameworks_2016 import layerwise_2016
from lessons.offload.search import schedule_2016

VDNN = "Rhu et al. 2016"
CDMA = "Rhu et al. 2017"
DEVICE, LINK = "Titan X (Maxwell)", "PCIe 3.0 x16"

# The ten networks: name -> builder in `course_utils.networks`, its arguments, size of the image, batches.
NETWORKS: dict[str, tuple[str, tuple[int, ...], int, tuple[int, ...]]] = {
    "AlexNet": ("alexnet", (), 224, (128,)),
    "OverFeat": ("overfeat", (), 231, (128,)),
    "GoogLeNet": ("googlenet", (), 224, (128,)),
    "VGG-16": ("vgg16", (), 224, (64, 128, 256)),
    "VGG-116": ("vgg_deep", (116,), 224, (32,)),
    "VGG-216": ("vgg_deep", (216,), 224, (32,)),
    "VGG-316": ("vgg_deep", (316,), 224, (32,)),
    "VGG-416": ("vgg_deep", (416,), 224, (32,)),
}
# Those that exceed 12 GB, of which the publication gives ranges.
SIX = (("VGG-16", 128), ("VGG-16", 256), ("VGG-116", 32), ("VGG-216", 32), ("VGG-316", 32), ("VGG-416", 32))
POLICIES = (("all", "m"), ("all", "p"), ("conv", "m"), ("conv", "p"), ("dyn", "p"))


@dataclass(frozen=True)
class Row:
    """One published figure.

    Attributes:
        network: its network; "six" for a range over the six that exceed 12 GB.
        batch: samples; 0 for a range.
        quantity: what it is, with its unit.
        low: the figure, or the lower end of the range published.
        high: the upper end; the same as `low` for one figure.
        source: the publication.
        model: reads the model's figure, or the ends of its range, off the runs.
        within: how far off the model may be and still count as agreeing, as a share of the figure.
        why: where the difference comes from.
        calibration: whether a constant of the model is from this row, which then tests nothing.
    """

    network: str
    batch: int
    quantity: str
    low: float
    high: float
    source: str
    model: Callable[[Runs], tuple[float, float]]
    within: float
    why: str
    calibration: bool = False


class Runs:
    """The schedules of the ten networks under every policy, each made when first asked for.

    Args:
        steps: network -> its traced step, with the names of NETWORKS.
        device: whose times; the publication's card if not given.
        link: between host and device; the publication's if not given.
    """

    def __init__(self, steps: Mapping[str, StepTrace], device: Device | None = None, link: Link | None = None) -> None:
        self.steps, self.device = steps, device or hardware.device(DEVICE)
        self.link = link or hardware.link(LINK)
        self._found: dict[tuple[str, int, str, str, bool], Schedule] = {}

    def get(self, network: str, batch: int, policy: str, algorithm: str = "p", features_only: bool = False) -> Schedule:
        """One schedule, in the accounting of 2016; `features_only` leaves the classifier's memory out.

        Raises:
            CourseError: "dyn", where not even everything moved fits the card.
        """
        key = (network, batch, policy, algorithm, features_only)
        if key not in self._found:
            work = layerwise_2016(self.steps[network].at(batch), self.device, features_only=features_only)
            self._found[key] = schedule_2016(
                work,
                policy,
                algorithm,
                self.link.bytes_per_s,
                latency=self.device.launch_seconds,
                limit_bytes=self.device.memory_bytes,
            )
        return self._found[key]

    def baseline_gb(self, network: str, batch: int) -> float:
        """Everything allocated throughout, with the fastest algorithms' workspace, in 10**9 bytes."""
        return self.get(network, batch, "none").peak_bytes / GB

    def average_saving(
        self, network: str, batch: int, policy: str, algorithm: str, features_only: bool = False
    ) -> float:
        """Percent by which memory averaged over the step is below the baseline's."""
        base = self.get(network, batch, "none", "p", features_only)
        return 100 * (1 - self.get(network, batch, policy, algorithm, features_only).average_bytes / base.peak_bytes)

    def peak_saving(self, network: str, batch: int, policy: str, algorithm: str, features_only: bool = False) -> float:
        """Percent by which the peak is below the baseline's."""
        base = self.get(network, batch, "none", "p", features_only)
        return 100 * (1 - self.get(network, batch, policy, algorithm, features_only).peak_bytes / base.peak_bytes)

    def loss(self, network: str, batch: int, policy: str, algorithm: str = "p") -> float:
        """Percent of performance lost against the fastest step on a card without limit."""
        return 100 * self.get(network, batch, policy, algorithm).loss


def _baseline(network: str, batch: int) -> Callable[[Runs], tuple[float, float]]:
    return lambda runs: (runs.baseline_gb(network, batch),) * 2


def _saving(network: str, batch: int, features_only: bool) -> Callable[[Runs], tuple[float, float]]:
    return lambda runs: (runs.average_saving(network, batch, "all", "m", features_only),) * 2


def _ends(figures: Sequence[float]) -> tuple[float, float]:
    return min(figures), max(figures)


def _faster_kernels(runs: Runs) -> tuple[float, float]:
    twice = replace(runs.device, float32_tflops=2 * runs.device.float32_tflops)
    faster = Runs(runs.steps, twice, runs.link)
    losses = [faster.loss(name, batches[-1], "all") for name, (_, _, _, batches) in list(NETWORKS.items())[:4]]
    return (sum(losses) / len(losses),) * 2


DENSE = (
    "weights of dense layers and their gradients never move: the publication may have counted the memory of feature "
    "extraction alone"
)
ROWS = (
    Row(
        "AlexNet", 128, "all memory, GB", 1.1, 1.1, VDNN, _baseline("AlexNet", 128), 0.06,
        "a workspace as large a share of the maps as VGG-16's may be too much here: without it the model is below 1.1",
    ),
    Row(
        "VGG-16", 128, "all memory, GB", 14, 14, VDNN, _baseline("VGG-16", 128), 0.01,
        "the share of workspace is from this row, which therefore tests nothing", calibration=True,
    ),
    Row(
        "VGG-16", 256, "all memory, GB", 28, 28, VDNN, _baseline("VGG-16", 256), 0.06,
        "workspace need not double with the batch: libraries choose among algorithms",
    ),
    Row(
        "VGG-416", 32, "all memory, GB", 67, 67, VDNN, _baseline("VGG-416", 32), 0.06,
        "the model's figure in GiB is nearer: the publication may count in those",
    ),
    Row(
        "AlexNet", 128, "average saving, %", 89, 89, VDNN, _saving("AlexNet", 128, False), 0.06, DENSE,
    ),
    Row(
        "AlexNet", 128, "average saving, % of features", 89, 89, VDNN, _saving("AlexNet", 128, True), 0.06,
        "every map returns one layer early here, and the baseline's workspace may have been larger",
    ),
    Row(
        "OverFeat", 128, "average saving, %", 91, 91, VDNN, _saving("OverFeat", 128, False), 0.06, DENSE,
    ),
    Row(
        "OverFeat", 128, "average saving, % of features", 91, 91, VDNN, _saving("OverFeat", 128, True), 0.06,
        "weights and gradients of its wide convolutions stay too; a larger workspace in the baseline would raise it",
    ),
    Row(
        "GoogLeNet", 128, "average saving, %", 95, 95, VDNN, _saving("GoogLeNet", 128, False), 0.06,
        "nearly no dense layers, so nearly all of it can move",
    ),
    Row(
        "six", 0, "average saving, %", 73, 98, VDNN,
        lambda runs: _ends([runs.average_saving(n, b, "all", "m") for n, b in SIX]), 0.06,
        "with everything moved; the search moves no more than it must",
    ),
    Row(
        "six", 0, "performance lost, %", 1, 18, VDNN,
        lambda runs: _ends([runs.loss(n, b, "dyn") for n, b in SIX]), 0.06,
        "copies never disturb kernels in the model, and its search knows every time exactly: the upper end is below 18",
    ),
    Row(
        "VGG-16", 256, "performance lost, %", 18, 18, VDNN, lambda runs: (runs.loss("VGG-16", 256, "dyn"),) * 2, 0.06,
        "the model's search moves only what feeds convolutions and slows one kernel down, which leaves no room for a "
        "driver: the real search had to slow down or move more",
    ),
    Row(
        "VGG-16", 256, "peak with all moved, GB of 12.88", 0, 12.88, VDNN,
        lambda runs: (runs.get("VGG-16", 256, "all", "m").peak_bytes / GB,) * 2, 0.0,
        "it fits 12 GiB as published, with next to nothing left for the driver's own",
    ),
    Row(
        "first four", 0, "lost with faster kernels, %", 31, 31, CDMA, _faster_kernels, 0.06,
        "peak arithmetic doubled, everything moved; mean of AlexNet, OverFeat, GoogLeNet and VGG-16 (256), where the "
        "publication's networks and batches are partly others",
    ),
)  # fmt: skip


def comparison(runs: Runs) -> pd.DataFrame:
    """One row a published figure: network, batch, quantity, published, model, off (share), verdict, why, source.

    `published` and `model` are in words, ranges as "1 to 18". The verdict is "agrees" where the model's figure, or
    range, lies within the published one widened by the row's tolerance of 6 %, else "misses"; or "calibration".
    """
    rows = []
    for row in ROWS:
        low, high = row.model(runs)
        middle = (row.low + row.high) / 2
        inside = row.low * (1 - row.within) <= low and high <= row.high * (1 + row.within)
        verdict = "calibration" if row.calibration else "agrees" if inside else "misses"
        rows.append(
            {
                "network": row.network,
                "batch": row.batch or "",
                "quantity": row.quantity,
                "published": _range(row.low, row.high),
                "model": _range(low, high),
                "off": (low + high) / 2 / middle - 1 if row.low == row.high else None,
                "verdict": verdict,
                "why": row.why,
                "source": row.source,
            }
        )
    return pd.DataFrame(rows)


def _range(low: float, high: float) -> str:
    if low == 0:
        return f"at most {high:.4g}"
    return f"{low:.3g}" if low == high else f"{low:.2g} to {high:.3g}"


def overview(runs: Runs) -> pd.DataFrame:
    """One row a network, batch and policy.

    Columns: network, batch, all memory (GB and GiB of the baseline), step (ms of the fastest), policy, algorithm, moved
    (GB each way), average and peak saving (percent, whole network), average of features (percent, without the
    classifier), lost (percent of performance).
    """
    rows = []
    for name, (_, _, _, batches) in NETWORKS.items():
        for batch in batches:
            base = runs.get(name, batch, "none")
            for policy, algorithm in POLICIES:
                schedule = runs.get(name, batch, policy, algorithm)
                rows.append(
                    {
                        "network": name,
                        "batch": batch,
                        "all GB": base.peak_bytes / GB,
                        "all GiB": base.peak_bytes / GIB,
                        "step ms": 1e3 * base.total_seconds,
                        "policy": policy,
                        "algorithm": schedule.algorithm,
                        "moved GB": sum(schedule.traffic_bytes().values()) / 2 / GB,
                        "average saved %": runs.average_saving(name, batch, policy, algorithm),
                        "of features %": runs.average_saving(name, batch, policy, algorithm, features_only=True),
                        "peak saved %": runs.peak_saving(name, batch, policy, algorithm),
                        "lost %": runs.loss(name, batch, policy, algorithm),
                    }
                )
    return pd.DataFrame(rows)


def sensitivity(
    steps: Mapping[str, StepTrace],
    efficiencies: Sequence[float] = (0.30, 0.45, 0.67, 1.0, 1.34),
    link_efficiencies: Sequence[float] = (0.63, hardware.LINK_EFFICIENCY, 0.82),
) -> pd.DataFrame:
    """How the loss of VGG-16 at batch 256 depends on what kernels reach of the peak, and on the link.

    Columns: efficiency (share of the card's peak arithmetic; above 1 stands for kernels that do less arithmetic than
    the formula), link (share of its rate on paper; the ends are the least and the most measured on any link), and
    percent lost with "conv", "all" and "dyn".
    """
    card, rows = hardware.device(DEVICE), []
    own = hardware.link(LINK)
    for share in link_efficiencies:
        for efficiency in efficiencies:
            peak = card.float32_tflops * efficiency / hardware.ARITHMETIC_EFFICIENCY
            link = replace(own, nominal_gb_s=own.nominal_gb_s * share / hardware.LINK_EFFICIENCY)
            runs = Runs(steps, replace(card, float32_tflops=peak), link)
            losses = {policy: runs.loss("VGG-16", 256, policy) for policy in ("conv", "all", "dyn")}
            rows.append({"efficiency": efficiency, "link": share, **losses})
    return pd.DataFrame(rows)
