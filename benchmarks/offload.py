"""The offload model beside the published figures: memory, savings, losses, and how sensitive they are."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table

from course_utils.machine import hardware
from course_utils.techniques.offload.work import SLOW_SPEED, WORKSPACE_SHARE
from lessons.offload import published
from lessons.offload.claims import TenNetworks, runs

CONSOLE = Console()


def offload() -> None:
    """Every published row with its model, every network under every policy, and the sensitivity to the kernels."""
    found = runs()
    CONSOLE.print(
        f"{found.device.name}, {found.device.float32_tflops} TFLOP/s of which kernels reach "
        f"{hardware.ARITHMETIC_EFFICIENCY:.2f}, {found.device.bandwidth_gb_s} GB/s of which they reach "
        f"{hardware.BANDWIDTH_EFFICIENCY:.2f}; {found.link.name}, {found.link.bytes_per_s / 1e9:.1f} GB/s; algorithm "
        f"(m) at {SLOW_SPEED:.2f} of (p)'s speed, workspace of (p) {WORKSPACE_SHARE:.2f} of a convolution's maps. "
        "Chosen once, for every row.\n"
    )
    table = Table(title="Published, and the model", title_justify="left")
    for index, column in enumerate(("network, batch", "quantity", "published", "model", "off", "")):
        table.add_column(column, justify="left" if index in (0, 1) else "right")
    rows = published.comparison(found)
    for row in rows.to_dict("records"):
        off = "" if row["off"] is None or row["off"] != row["off"] else f"{row['off']:+.0%}"
        table.add_row(
            f"{row['network']}, {row['batch']}".rstrip(", "), row["quantity"], row["published"], row["model"], off,
            row["verdict"],
        )  # fmt: skip
    CONSOLE.print(table)
    tests = rows["verdict"] != "calibration"
    agree = int((rows["verdict"] == "agrees").sum())
    CONSOLE.print(f"{agree} of {int(tests.sum())} agree within 6 %. Where the differences come from:")
    for row in rows.to_dict("records"):
        batch = f" ({row['batch']})" if row["batch"] else ""
        CONSOLE.print(f"- {row['network']}{batch}, {row['quantity']}: {row['why']}")
    CONSOLE.print()
    _print("Every network and policy", published.overview(found))
    CONSOLE.print(
        "all: everything allocated throughout, workspace included. saved: below that, averaged over the step or at\n"
        "its peak. of features: the same without the memory of the classifier. lost: 1 - fastest step / this step.\n"
    )
    _print("Performance lost by VGG-16, batch 256, percent", published.sensitivity(TenNetworks()))
    CONSOLE.print("efficiency: what kernels reach of the peak; above 1, kernels that do less arithmetic.\n")


def _print(title: str, frame: pd.DataFrame) -> None:
    text = frame.to_string(index=False, float_format=lambda value: f"{value + 0.0:,.4g}")
    print(f"{title}\n{text}\n", flush=True)
