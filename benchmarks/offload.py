"""The offload model beside the published figures: memory, savings, losses, and how sensitive they are."""

from __future__ import annotations

from functools import lru_cache

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from course_utils import hardware, networks
from course_utils.memory import StepTrace
from course_utils.offload import published
from course_utils.offload.work import SLOW_SPEED, WORKSPACE_SHARE
from course_utils.trace import training_step

CONSOLE = Console()


@lru_cache(maxsize=1)
def steps() -> dict[str, StepTrace]:
    """The ten networks traced, by name."""
    found = {}
    for name, (builder, arguments, size, _) in published.NETWORKS.items():
        with torch.device("meta"):
            module = getattr(networks, builder)(*arguments)
        found[name] = training_step(module, (3, size, size), 1000, name=name)
    return found


def offload() -> None:
    """Every published row with its model, every network under every policy, and the sensitivity to the kernels."""
    runs = published.Runs(steps())
    CONSOLE.print(
        f"{runs.device.name}, {runs.device.float32_tflops} TFLOP/s of which kernels reach "
        f"{hardware.ARITHMETIC_EFFICIENCY:.2f}, {runs.device.bandwidth_gb_s} GB/s of which they reach "
        f"{hardware.BANDWIDTH_EFFICIENCY:.2f}; link {runs.link.practical_gb_s} GB/s ({runs.link.sources}); algorithm "
        f"(m) at {SLOW_SPEED:.2f} of (p)'s speed, workspace of (p) {WORKSPACE_SHARE:.2f} of a convolution's maps. "
        "Chosen once, for every row.\n"
    )
    table = Table(title="Published, and the model", title_justify="left")
    for index, column in enumerate(("network, batch", "quantity", "published", "model", "off", "")):
        table.add_column(column, justify="left" if index in (0, 1) else "right")
    found = published.comparison(runs)
    for row in found.to_dict("records"):
        off = "" if row["off"] is None or row["off"] != row["off"] else f"{row['off']:+.0%}"
        table.add_row(
            f"{row['network']}, {row['batch']}".rstrip(", "), row["quantity"], row["published"], row["model"], off,
            row["verdict"],
        )  # fmt: skip
    CONSOLE.print(table)
    tests = found["verdict"] != "calibration"
    agree = int((found["verdict"] == "agrees").sum())
    CONSOLE.print(f"{agree} of {int(tests.sum())} agree within 6 %. Where the differences come from:")
    for row in found.to_dict("records"):
        batch = f" ({row['batch']})" if row["batch"] else ""
        CONSOLE.print(f"- {row['network']}{batch}, {row['quantity']}: {row['why']}")
    CONSOLE.print()
    _print("Every network and policy", published.overview(runs))
    CONSOLE.print(
        "all: everything allocated throughout, workspace included. saved: below that, averaged over the step or at\n"
        "its peak. of features: the same without the memory of the classifier. lost: 1 - fastest step / this step.\n"
    )
    _print("Performance lost by VGG-16, batch 256, percent", published.sensitivity(steps()))
    CONSOLE.print("efficiency: what kernels reach of the peak; above 1, kernels that do less arithmetic.\n")


def _print(title: str, frame: pd.DataFrame) -> None:
    text = frame.to_string(index=False, float_format=lambda value: f"{value + 0.0:,.4g}")
    print(f"{title}\n{text}\n", flush=True)
