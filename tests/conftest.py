"""Fixtures that several files of tests use."""

import gc

import pytest
from hypothesis import settings

settings.register_profile("course", deadline=None)  # no test asserts a time: a busy machine is no counterexample
settings.load_profile("course")


@pytest.fixture(scope="session", autouse=True)
def short_garbage_collections():
    """Traces that leak collect garbage at every step: what was imported by now is not looked through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fresh_traces():
    """A patched reading must not be hidden by, nor leak into, a trace that claims keep."""
    from lessons.shared.sources import traced

    traced.cache_clear()
    yield
    traced.cache_clear()
