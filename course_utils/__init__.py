"""How deep networks use a GPU: the library beside the course's notebooks.

Importing this package alone imports neither torch nor matplotlib; each room is imported by name
(`from course_utils.trace import training_step`). docs/architecture.md shows which room may import which.
"""

import sys

# jsonschema, which reads the form of notebooks, would load this package if it is there, for checks of addresses that no
# notebook has: its grammars take 2.4 seconds, more than all else that a command of the course does before its work.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

__version__ = "0.1.0"
