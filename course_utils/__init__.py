"""How deep networks use a GPU: the library beside the course's notebooks.

Importing this package alone imports neither torch nor matplotlib; each room is imported by name
(`from course_utils.trace import training_step`). docs/architecture.md shows which room may import which.
"""

__version__ = "0.1.0"
