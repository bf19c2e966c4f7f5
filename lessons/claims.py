"""What people believe about memory and GPUs, and the verdict that a computed number gives: the claims of all lessons.

`judge([22, 23])` in a lesson shows the claims with these numbers. Each lesson has its own; a claim that concerns
several lessons is with the first.
"""

import importlib

from classroom import ROOT
from classroom.claims import CLAIMS, Claim, Finding, Verdicts, judge
from classroom.notebooks import topics
from lessons.shared.sources import SOURCES

for _folder in topics(ROOT).values():
    if (_folder / "claims.py").exists():
        importlib.import_module(f"lessons.{_folder.name}.claims")

__all__ = ["CLAIMS", "SOURCES", "Claim", "Finding", "Verdicts", "judge"]
