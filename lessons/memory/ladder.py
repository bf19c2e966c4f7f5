"""How often the verdict erred: `ladder.json`, which `python -m benchmarks gpu_ladder` writes and says the source of."""

from __future__ import annotations

import json
from pathlib import Path

LADDER_FOUND = Path(__file__).with_name("ladder.json")


def ladder(rows: str = "all") -> dict[str, int]:
    """Counts over the rows of timm's search: networks, met, ran, failed, and "ran fits", "failed no" and the like.

    Args:
        rows: "all", "first half" or "second half".
    """
    found: dict[str, int] = json.loads(LADDER_FOUND.read_text(encoding="utf-8"))["rates"][rows]
    return found
