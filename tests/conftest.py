"""Fixtures that several files of tests use."""

import pytest


@pytest.fixture
def fresh_traces():
    """A patched reading must not be hidden by, nor leak into, a trace that claims keep."""
    from course_utils.claims.core import traced

    traced.cache_clear()
    yield
    traced.cache_clear()
