"""What operators.toml says of torch's operators."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("operators.toml").read_text(encoding="utf-8"))
AUTOCAST: dict[str, list[str]] = {kind: names.split() for kind, names in _TABLES["autocast"].items()}
# A step for the CPU that runs no others, and nothing that is special to shapes alone (`Recorder.unlike_cpu`), may be
# traced on meta tensors, which takes less than half the time of fake ones.
SAME_AS_CPU, VIEWS, WITH_RULES = (frozenset(_TABLES[key].split()) for key in ("same_as_cpu", "views", "with_rules"))
