"""What whoever follows a step changes around it and puts back: in the process, in torch, in random numbers."""

import gc
import logging
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    was = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, was)


def quiet() -> AbstractContextManager[None]:
    """Fake tensors print what goes wrong before they raise it; the refusal says it in one line."""
    return _replaced(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)


def as_if_real(fake: bool) -> AbstractContextManager[None]:
    """Transformers takes another way with fake tensors, as if it were exported; a step goes the ordinary one."""
    transformers = sys.modules.get("transformers.utils.import_utils")
    if not fake or not hasattr(transformers, "is_fake_tensor"):
        return nullcontext()
    # No mock in its place: that would hold on to every tensor it is asked about.
    return _replaced(transformers, "is_fake_tensor", lambda tensor: False)


class Draws:
    """Whether a step drew from generators of Python and NumPy: those that all share, and others within its reach."""

    def __init__(self) -> None:
        self.seen = False

    @contextmanager
    def watched(self, others: Iterable[Any] = ()) -> Iterator[None]:
        """Puts the generators back; each of `others` is a random.Random, or NumPy's Generator or RandomState."""
        ways = [_state_of(one) for one in (random, np.random, *others)]
        before = [read() for read, _ in ways]
        try:
            yield
        finally:
            for (read, put_back), state in zip(ways, before, strict=True):
                if pickle.dumps(read()) != pickle.dumps(state):
                    self.seen = True
                    put_back(state)


def _state_of(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """How a generator's state is read, and how it is put back."""
    for read, put_back in (("getstate", "setstate"), ("get_state", "set_state")):
        if hasattr(generator, read):
            return getattr(generator, read), getattr(generator, put_back)
    bits = generator.bit_generator
    return lambda: bits.state, lambda state: setattr(bits, "state", state)
