"""Fixtures that several files of tests use."""

import gc

import pytest
from hypothesis import settings

settings.register_profile("course", deadline=None)  # no test asserts a time: a busy machine is no counterexample
settings.load_profile("course")


# Files of a minute or more: begun first, so that no worker is alone with one at the end (`--no-loadscope-reorder`).
LONGEST = (
    "test_notebooks", "test_types", "test_hostile", "test_checks", "test_browser", "test_accessibility", "test_cluster",
    "test_hostile_ordinary", "test_exactness", "test_slides", "test_sandbox", "test_deck", "test_elsewhere",
    "test_checks_functions", "test_class", "test_recompute", "test_making_recordings", "test_distributed",
    "test_grading", "test_own_time", "test_authoring", "test_reference", "test_two_passes",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """Order the files."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(scope="module", autouse=True)
def short_garbage_collections():
    """Steps that leak collect garbage each time: what earlier files imported and keep is not looked through again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fresh_traces():
    """A patched reading must not be hidden by, nor leak into, a trace that claims keep."""
    from lessons.shared.sources import traced

    traced.cache_clear()
    yield
    traced.cache_clear()


@pytest.fixture(scope="module")
def one_thread():
    """Small tensors on threads that wait for each other are slow where several tests run at once."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The folder of a course of one exercise, built (`multiples`)."""
    from multiples import build_course

    root = build_course(tmp_path_factory.mktemp("course"))
    for name in ("notebooks", "classroom"):
        (root / name).mkdir(exist_ok=True)
    return root
