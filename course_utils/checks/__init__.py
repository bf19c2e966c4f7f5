"""Instant, diagnosing feedback for the exercises: one module a topic, the common part in `core`.

In a notebook: `from course_utils.checks import memory as check`, then `check.map_bytes(map_bytes)`. Must never import
figures or explorers.
"""
