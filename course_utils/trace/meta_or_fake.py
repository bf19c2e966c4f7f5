"""When a step for the CPU may be traced on meta tensors, which takes a fifth of the time of fake CPU tensors.

If every operator that ran is one of SAME_AS_CPU, and the recorder saw nothing that is special to shapes alone
(`Recorder.unlike_cpu`). tests/library/test_real_models.py holds every operator of the list to it.
"""

from __future__ import annotations

from pathlib import Path

_TABLE = Path(__file__).with_name("same_as_cpu.txt").read_text(encoding="utf-8")
SAME_AS_CPU = frozenset(" ".join(line for line in _TABLE.splitlines() if not line.startswith("#")).split())
