"""What whoever follows a step changes around it and puts back: in the process, in torch, in random numbers."""

import gc
import logging
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Deaths must come from reference counts alone, or two runs would differ."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def quiet() -> Iterator[None]:
    """Fake tensors print what goes wrong before they raise it; the refusal says it in one line."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


@contextmanager
def as_if_real(fake: bool) -> Iterator[None]:
    """Transformers takes another way with fake tensors, as if it were exported; a step goes the ordinary one."""
    transformers: Any = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(transformers, "is_fake_tensor", None)
    if not fake or asked is None:
        yield
        return
    transformers.is_fake_tensor = lambda tensor: False  # no mock: that would hold on to every tensor it is asked about
    try:
        yield
    finally:
        transformers.is_fake_tensor = asked


class Draws:
    """Whether a step drew from the generators that Python and NumPy share among all."""

    def __init__(self) -> None:
        self.seen = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Leaves the generators as they were."""
        before = _states()
        try:
            yield
        finally:
            if before != _states():
                self.seen = True
                random.setstate(before[0])
                np.random.set_state(before[1])


def _states() -> tuple[Any, Any]:
    """Of both generators, as values that compare: to write them out as text would take a twentieth of a trace."""
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), (kind, np.asarray(keys).tolist(), *rest)
