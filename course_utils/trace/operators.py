"""What operators.toml says of torch's operators."""

import tomllib
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("operators.toml").read_text(encoding="utf-8"))


def _names(*path: str) -> frozenset[str]:
    found: Any = _TABLES
    for key in path:
        found = found[key]
    return frozenset(found.split())


# By the function of shortcuts.py or norms.py, its underscore left out.
SHORTCUTS_FOR: dict[str, list[str]] = {name: names.split() for name, names in _TABLES["shortcuts"].items()}
AUTOCAST: dict[str, list[str]] = {kind: names.split() for kind, names in _TABLES["autocast"].items()}
# A step for the CPU that runs no others, and in which `observers.CpuDifferences` finds nothing, may be traced on meta
# tensors, which takes less than half the time of fake ones.
SAME_AS_CPU, VIEWS, WITH_RULES = _names("same_as_cpu"), _names("views"), _names("with_rules")
NOTICED = {concern: _names("noticed", concern) for concern in _TABLES["noticed"]}
WRITES_A_NUMBER, PARTIAL_SUMS = _names("writes_a_number"), _names("partial_sums")
MIXES_DEVICES = _names("mixes_devices")
MATRIX_PRODUCTS = _names("cuda", "matrix_products")
READS_IN_ORDER: dict[str, int] = _TABLES["cuda"]["reads_in_order"]
TOUCHES_FEW = {kind: _names("traffic", kind) for kind in _TABLES["traffic"]}
MADE_FROM_NOTHING = _names("known", "made")
FILLED: dict[str, float | None] = {
    name: fill for kind, fill in (("zeros", 0), ("ones", 1), ("given", None)) for name in _TABLES["known"][kind].split()
}
