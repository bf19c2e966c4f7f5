"""What any course of this kind needs, and nothing about GPUs: authoring, questions, grading, the command.

What the course's three packages may import of each other is stated in pyproject.toml, and tested.
"""

import sys
from pathlib import Path

# jsonschema, which reads the form of notebooks, would load this package if it is there, for checks of addresses that no
# notebook has: its grammars take 2.4 seconds, more than all else that a command of the course does before its work.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("classroom", "course_utils", "lessons")  # of the course, each a folder of ROOT
STILL = "course-still"  # the class of what is saved in a widget's place, for where no kernel runs
