"""Trainings too long for a notebook, run once and kept: `python -m lessons.shared.trained` renews `trained.json`.

`RUNS` are the networks of lessons 04 and 05, by the name of their run. The file says when, where and with
which PyTorch they were trained.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from course_utils.units import require_one_of
from lessons.shared.digits import learned

KEPT = Path(__file__).with_name("trained.json")
EPOCHS, SEEDS = (3, 10, 30), (0, 1, 2)
LONGER = (*EPOCHS, 100)  # for networks that still learn after the last of EPOCHS


def strided(stride: int, padding: int = 1) -> nn.Sequential:
    """Three convolutions, the first with this stride and padding; (N, 1, 16, 16) -> (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride, padding), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def averaged() -> nn.Sequential:
    """The image averaged to 6 × 6, then stride 3: positions and weights as at stride 8, but all of it is read."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(6), *strided(3, padding=0))


def chain(*convolutions: tuple[int, int]) -> nn.Sequential:
    """Convolutions by (kernel, channels), a ReLU after each; (N, 1, 8, 8) -> (N, 10)."""
    layers, inputs = [], 1
    for kernel, outputs in convolutions:
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * inputs, 10))


def _after_epochs(build: Callable[[], nn.Module], seed: int, side: int, epochs: Sequence[int] = EPOCHS) -> list[float]:
    return learned(build, epochs, seed, side)


@dataclass(frozen=True)
class Run:
    """Networks that are trained side by side.

    Attributes:
        networks: name -> what makes it.
        side: of the images.
        columns: the epochs after which their accuracy is looked at.
        look: trains a network from a seed and gives its share of right test images for each column.
    """

    networks: Mapping[str, Callable[[], nn.Module]]
    side: int = 16
    columns: Sequence[int] = EPOCHS
    look: Callable[[Callable[[], nn.Module], int, int], list[float]] = _after_epochs


RUNS = {
    "strided": Run(
        {
            **{f"stride {stride}": partial(strided, stride) for stride in (1, 2, 4, 8)},
            "averaged, stride 3": averaged,
        },
        columns=LONGER,
        look=partial(_after_epochs, epochs=LONGER),
    ),
    "squeezed": Run(
        {
            "32 channels throughout": partial(chain, (3, 32), (3, 32), (3, 32), (3, 32)),
            "squeeze, widens at once": partial(chain, (3, 32), (1, 8), (3, 32), (3, 32), (3, 32)),
            "squeeze, two layers narrow": partial(chain, (3, 32), (1, 8), (3, 8), (3, 8), (3, 32)),
            "8 channels throughout": partial(chain, (3, 8), (3, 8), (3, 8), (3, 8)),
        },
        side=8,
    ),
}


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return found


def kept(run: str) -> pd.DataFrame:
    """Share of the test images that are right: a row for each network and seed, a column for each of `Run.columns`.

    Raises:
        CourseError: no such run.
    """
    require_one_of("run", run, RUNS)
    found = _read()[run]["shares"]
    rows = {(name, seed): shares for name, seeds in found.items() for seed, shares in enumerate(seeds)}
    index = pd.MultiIndex.from_tuples(rows, names=["network", "seed"])
    return pd.DataFrame(list(rows.values()), index, pd.Index(RUNS[run].columns, name="epochs"))


def provenance(run: str) -> str:
    """When, where and how a run was trained, in a sentence."""
    said = _read()[run]
    return (
        f"Trained {said['date']} with PyTorch {said['torch']} on one thread of {said['processor']}, "
        f"{len(SEEDS)} seeds, batches of 64, Adam at 0.003 (python -m lessons.shared.trained {run})."
    )


def _processor() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def make(name: str) -> None:
    """Train a run, some minutes, and write it into the file."""
    run = RUNS[name]
    shares = {
        network: [[round(share, 4) for share in run.look(build, seed, run.side)] for seed in SEEDS]
        for network, build in run.networks.items()
    }
    made = {
        "date": date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "processor": _processor(),
        "shares": shares,
    }
    KEPT.write_text(json.dumps({**_read(), name: made}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or RUNS:
        make(wanted)
